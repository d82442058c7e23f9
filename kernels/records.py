"""Records: the named arguments of kernels, as Python builds them and kernels read them.

A kernel that Python calls takes at most eight arguments: lo and hi, then records of inputs, then
outputs. ``fastcos.similarity.kernel_records`` and ``fastcos.search.packing`` build most records,
and a kernel reads their fields by name. A new field is added here and where the record is built; no
other argument moves.

A row is numbered within its segment of an index. A slot is a place in the packed order. Arrays are
C-contiguous, and inputs are read-only. An empty array stands for numbers that are all 0, or for a
filter that lets all items pass.
"""

from typing import Any, NamedTuple


class PairScoring(NamedTuple):
    """What exact scores of pairs of rows are computed from.

    Attributes
    ----------
    metric_type : int
        DOT, COSINE or EUCLIDEAN of ``pair_scores``.
    queries, items : array (n, d) and (m, d)
        Rows; low-precision ones as the bits that ``pair_scores`` describes.
    query_norms, item_norms : float64 array (n,) and (m,)
        Norms of the rows. item_norms is empty for kernels that measure them.
    item_offsets : float64 array (m,)
        Added to the inner products of each item, or empty.
    """

    metric_type: Any
    queries: Any
    query_norms: Any
    items: Any
    item_norms: Any
    item_offsets: Any


class QueryFilters(NamedTuple):
    """Items that a query must not return.

    Attributes
    ----------
    self_rows : int64 array (n,)
        The item that is the query itself, or -1. Empty, like excluded_indptr, where no query
        excludes anything.
    excluded_indptr, excluded_rows : int64 array (n + 1,) and (e,)
        Excluded items of each query as CSR, ascending.
    allowed : uint8 array (m,)
        1 for each item that all queries may return, or empty.
    """

    self_rows: Any
    excluded_indptr: Any
    excluded_rows: Any
    allowed: Any


class ScaledRows(NamedTuple):
    """Rows and their scaling for the tiles: factors[i] rows[i] - coefficients[i] shift.

    rows (n, d); factors, coefficients (n,) float64; shift (d,) float64, or empty. Without a shift
    the coefficients mean nothing.
    """

    rows: Any
    factors: Any
    coefficients: Any
    shift: Any


class PanelLayout(NamedTuple):
    """How rows are packed: for which instruction set, in how many words, rotated by which signs.

    isa: see ``simd.instruction_sets``; words: of 4 bytes, of a packed row; signs (2, max(d, 16))
    float32 of +1 and -1.
    """

    isa: Any
    words: Any
    signs: Any


class ItemPanels(NamedTuple):
    """Packed items, of which a panel has 32.

    Attributes
    ----------
    order : int32 array (m,)
        The row in each slot.
    packed : int32 or float32 array (panels * 32 * words,)
        The codes of the rows, or the rows; see ``simd.panel``.
    small_offsets : float32 array (m,)
        Offsets by slot, or empty.
    statistics : float32 array (panels, 5)
        Of each panel: 1 / scale, largest norm, largest norm of a residual, largest and least
        offset.
    """

    order: Any
    packed: Any
    small_offsets: Any
    statistics: Any


class ProjectedPanels(NamedTuple):
    """Packed coordinates of items along the axes: packed and statistics as in ItemPanels.

    rest_norms (32 panels,) float32: bounds on the length of each item outside of the axes.
    """

    packed: Any
    statistics: Any
    rest_norms: Any


class Items(NamedTuple):
    """The items of a search by tiles.

    Attributes
    ----------
    isa, metric_type
        Instruction set, and DOT, COSINE or EUCLIDEAN of ``pair_scores``.
    rows, norms, offsets
        As items, item_norms and item_offsets of PairScoring.
    order, packed, small_offsets, statistics
        As in ItemPanels. Rows that are searched as they are given are their own packed form. Where
        there is a projection, the words of an item lie together, except with AMX.
    words : int
        Words of a packed row.
    shift : float64 array (d,)
        As in ScaledRows.
    signs : float32 array (2, max(d, 16))
        As in PanelLayout.
    tile_configuration : uint8 array (64,)
        Configuration of the tile registers.
    scaling : float32 array (slots, 2)
        Of rows that are packed as they are given, otherwise empty: a tile's score v of an item
        stands for v factor + weight offset, with the two numbers of the item.
    projection : Projection
    """

    isa: Any
    metric_type: Any
    rows: Any
    norms: Any
    offsets: Any
    order: Any
    packed: Any
    words: Any
    small_offsets: Any
    statistics: Any
    shift: Any
    signs: Any
    tile_configuration: Any
    scaling: Any
    projection: Any


class Projection(NamedTuple):
    """Items projected on a few axes; words is 0, and all arrays are empty, where there is none.

    Attributes
    ----------
    axes : float32 array (axes / 32, d, 32)
    packed, statistics, rest_norms
        As in ProjectedPanels.
    words : int
        Words of a packed projection.
    eta : float32 array (1,)
        The bound ETA of ``projection_filter``.
    largest_k : float32 array (2,)
        Up to which k few queries, and many queries, are searched by their projection.
    """

    axes: Any
    packed: Any
    words: Any
    statistics: Any
    rest_norms: Any
    eta: Any
    largest_k: Any


class ItemAddresses(NamedTuple):
    """Items by the addresses of their arrays, which take less time to pass than the arrays.

    Attributes
    ----------
    isa, metric_type
        As in Items.
    places : int64 array (N_PLACES,)
        Addresses and sizes of the arrays, see ``query_scaling.items_at``.
    row_type, packed_type : arrays (0,)
        Their types are those of the rows and of the packed rows.
    units : tuple of 4 float
        Units of the scaled rows and of the scaled offsets, and bounds on the rounding of a float32
        tile and of a shift.
    """

    isa: Any
    metric_type: Any
    places: Any
    row_type: Any
    packed_type: Any
    units: Any


class QueryScaling(NamedTuple):
    """How the tiles scale each query: of (n,) queries, float64, weights float32.

    A query a becomes a' = factor a - coefficient shift, its offsets have the weight, and its raw
    scores become slope score + intercept.
    """

    factors: Any
    coefficients: Any
    weights: Any
    slopes: Any
    intercepts: Any


class Queries(NamedTuple):
    """The queries of a search by tiles.

    Attributes
    ----------
    rows, norms
        As queries and query_norms of PairScoring.
    scaling : QueryScaling
    error : float
        Bound on the rounding of a float32 tile, relative to the norms; 0 for integers.
    rounding : float
        Bound on the rounding that a shift adds.
    filters : QueryFilters
        Its self_rows and excluded_indptr are not empty.
    """

    rows: Any
    norms: Any
    scaling: Any
    error: Any
    rounding: Any
    filters: Any


class PanelSearch(NamedTuple):
    """How a task searches a range of panels.

    Attributes
    ----------
    first_panel, last_panel : int
        The range; the second one is not part of it.
    capacity : int
        Candidates that the buffer of a query holds, at least 4 k.
    sample_stride, sample_rank : int
        The first threshold is estimated by the sample_rank-th of the largest scores of every
        sample_stride-th panel; 0 for no estimate.
    is_shared : bool
        Whether other tasks search the same queries in other panels, and share their thresholds.
    """

    first_panel: Any
    last_panel: Any
    capacity: Any
    sample_stride: Any
    sample_rank: Any
    is_shared: Any


class FewQuerySearch(NamedTuple):
    """How few queries are searched in one launch: by the kernels of three modules.

    ``few_queries`` and ``projected_queries`` compare them one by one, and ``one_block`` as a block.

    Attributes
    ----------
    rank : int
        Not read by ``one_block``: the slots that reach the rank-th largest of the panels' largest
        scores are scored first.
    capacity : int
        Read by ``one_block`` alone: as of PanelSearch.
    sample_stride, sample_rank : int
        Not read by ``few_queries``: every sample_stride-th panel is part of a sample, and the first
        threshold is the sample_rank-th largest of its panels' largest scores.
    panels_per_range : int
        Panels of a task.
    must_check : bool
        Whether the kernel checks that the queries are ordinary, because nothing else has.
    """

    rank: Any
    capacity: Any
    sample_stride: Any
    sample_rank: Any
    panels_per_range: Any
    must_check: Any


class SearchResults(NamedTuple):
    """Outputs of a search of n queries.

    Attributes
    ----------
    thresholds : float32 array (n,)
        In and out: a lower bound of the k-th best score of each query, in the terms of the filter.
    scores, rows : float64 and int64 array (n, k)
        The best items, equal scores by lower row, padded by -inf and -1.
    unproved : float32 array (n,)
        The largest threshold, in the same terms, by which a row that belongs to the best k may have
        been dropped; -3e38 where there is none. The query must be searched again unless its k-th
        best score in all panels reaches this threshold.
    """

    thresholds: Any
    scores: Any
    rows: Any
    unproved: Any


class TaskGrid(NamedTuple):
    """How a search of many queries is divided into tasks: query blocks x ranges of panels.

    Task t searches block t // n_ranges in range t % n_ranges.

    Attributes
    ----------
    queries_per_block, panels_per_range, n_ranges : int
    capacity, sample_stride, sample_rank : int
        As of PanelSearch.
    """

    queries_per_block: Any
    panels_per_range: Any
    n_ranges: Any
    capacity: Any
    sample_stride: Any
    sample_rank: Any


class CandidateLists(NamedTuple):
    """Outputs of a range search: the candidates of each query.

    starts (n,) int64: where the list of a query begins in rows, which holds at most `capacity`
    candidates of each; counts (n,) int64: how many there are, which may be more.
    """

    capacity: Any
    starts: Any
    counts: Any
    rows: Any


class CandidateRanges(NamedTuple):
    """Candidates of each query: rows (c,) of items, of which query i has a part.

    The part goes from number firsts[i] up to lasts[i], (n,) int64, and ascends.
    """

    rows: Any
    firsts: Any
    lasts: Any


class CopyGroups(NamedTuple):
    """Groups of equal items: group_of (m,); members of group g from starts[g] on, ascending."""

    group_of: Any
    starts: Any
    members: Any


class DistinctResults(NamedTuple):
    """Neighbours of distinct queries: rows, scores (u, w) best first, padded by -1.

    distinct_query (n,): the distinct query that is equal to each query.
    """

    distinct_query: Any
    rows: Any
    scores: Any


class Csr(NamedTuple):
    """A sparse matrix in compressed rows: indptr (n + 1,) int64, indices (nnz,), data (nnz,).

    data is None where all values are 1, or where a kernel does not read them.
    """

    indptr: Any
    indices: Any
    data: Any


class BitViews(NamedTuple):
    """The arrays of a Csr as unsigned integers, for comparisons that vectorise.

    columns: its indices; values: its data; magnitude: mask of all bits of a value but the sign;
    infinity: the bits of positive infinity.
    """

    columns: Any
    values: Any
    magnitude: Any
    infinity: Any


class SampledRows(NamedTuple):
    """Items (p, d), their norms (p,), and the row numbers (n,) of those that are examined."""

    items: Any
    norms: Any
    rows: Any


class RowPairs(NamedTuple):
    """Pairs of rows x[i] and y[i], (n, d) float64, with the norms (n,) of both sides."""

    x: Any
    y: Any
    x_norms: Any
    y_norms: Any


class CertificateSearch(NamedTuple):
    """How neighbours are certified: ``certificates.rescaling_radii``.

    Attributes
    ----------
    first : int
        The competitors are the listed items from here on.
    complete : bool
        Whether there are no items but the listed ones.
    levels : float64 array
        Conditions, ascending, one of which a radius becomes.
    depth : int
        How often the range of a norm ratio is bisected.
    """

    first: Any
    complete: Any
    levels: Any
    depth: Any


class Attacks(NamedTuple):
    """How neighbours are attacked: ``attacks.attacked_radii``.

    n_targets: competitors that are attacked one by one; certified (n, k): conditions that need no
    attack; levels, depth: as in CertificateSearch.
    """

    n_targets: Any
    certified: Any
    levels: Any
    depth: Any


class BitRows(NamedTuple):
    """Packed bits (n, w) uint64, and the square roots of the numbers of bits that are 1.

    The norms of items have 8 numbers more than there are items.
    """

    words: Any
    norms: Any


class LabelCodes(NamedTuple):
    """Labels of columns: codes (m,) int64, and how many columns have each code, (C,) int64."""

    codes: Any
    sizes: Any


class LabelRanks(NamedTuple):
    """Outputs for n queries: auc and precision (n,) float64, voted (n,) int64 codes."""

    auc: Any
    precision: Any
    voted: Any


class ScoreMoments(NamedTuple):
    """Means and standard deviations (n,) of the scores of each row; the latter are positive."""

    means: Any
    deviations: Any


class ClusteredRows(NamedTuple):
    """Unit rows, sorted by cluster, and the levels by which their pairs are put into strata.

    Attributes
    ----------
    rows, panels : float64 array (n, d), and the same packed by ``dot_tile.pack_rows``
    ends : int64 array (n,)
        End of the cluster of each row.
    levels : float64 array (n,)
        The level of a pair is the sum of the levels of its rows.
    boundaries : float64 array (strata - 1,)
        Ascending: the stratum of a pair is the number of boundaries below its level.
    """

    rows: Any
    panels: Any
    ends: Any
    levels: Any
    boundaries: Any


class Drawing(NamedTuple):
    """How items are drawn: ``sampling.sample_rows``.

    key_0, key_1: words of the random key; race_from: rows of so many items or more race at once;
    max_draws: repeated draws of the others before they race.
    """

    key_0: Any
    key_1: Any
    race_from: Any
    max_draws: Any
