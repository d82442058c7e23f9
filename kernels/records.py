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
    """The inputs from which exact scores of pairs of rows are computed.

    Attributes
    ----------
    metric_type : int
        DOT, COSINE or EUCLIDEAN of ``pair_scores``.
    queries, items : array (n, d) and (m, d)
        The rows; low-precision rows are passed as the bits that ``pair_scores`` describes.
    query_norms, item_norms : float64 array (n,) and (m,)
        The norms of the rows. item_norms is empty for kernels that measure the norms.
    item_offsets : float64 array (m,)
        The numbers that are added to the inner products of each item, or empty.
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
        The item that is the query itself, or -1. The array is empty, like excluded_indptr, if no
        query excludes anything.
    excluded_indptr, excluded_rows : int64 array (n + 1,) and (e,)
        The excluded items of each query as CSR, ascending.
    allowed : uint8 array (m,)
        1 for each item that all queries may return, or empty.
    """

    self_rows: Any
    excluded_indptr: Any
    excluded_rows: Any
    allowed: Any


class ScaledRows(NamedTuple):
    """Rows and their scaling for the tiles: factors[i] rows[i] - coefficients[i] shift.

    rows has the shape (n, d). factors and coefficients (n,) are float64. shift (d,) is float64, or
    empty; without a shift, coefficients is not used.
    """

    rows: Any
    factors: Any
    coefficients: Any
    shift: Any


class PanelLayout(NamedTuple):
    """How rows are packed: the instruction set, the number of words, and the signs of the rotation.

    isa is described in ``simd.instruction_sets``. words is the number of words of 4 bytes of a
    packed row. signs (2, max(d, 16)) float32 holds +1 and -1.
    """

    isa: Any
    words: Any
    signs: Any


class ItemPanels(NamedTuple):
    """Packed items, in panels of 32 items.

    Attributes
    ----------
    order : int32 array (m,)
        The row in each slot.
    packed : int32 or float32 array (panels * 32 * words,)
        The codes of the rows, or the rows; see ``simd.panel``.
    small_offsets : float32 array (m,)
        Offsets by slot, or empty.
    statistics : float32 array (panels, 5)
        The statistics of each panel: 1 / scale, largest norm, largest norm of a residual, largest
        and least offset.
    """

    order: Any
    packed: Any
    small_offsets: Any
    statistics: Any


class ProjectedPanels(NamedTuple):
    """Packed coordinates of items along the axes.

    packed and statistics are described in ItemPanels. rest_norms (32 panels,) float32 bounds the
    length of the remainder of each item, which is the item minus its projection on the axes.
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
        The arrays of ItemPanels. Rows that are searched without packing are their own packed form.
        If there is a projection, the words of an item lie together, except with AMX.
    words : int
        The number of words of a packed row.
    shift : float64 array (d,)
        As in ScaledRows.
    signs : float32 array (2, max(d, 16))
        As in PanelLayout.
    tile_configuration : uint8 array (64,)
        Configuration of the tile registers.
    scaling : float32 array (slots, 2)
        The factor and the offset of each row that is searched without packing, otherwise empty. A
        tile's score v of an item stands for v factor + weight offset.
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
    """Items projected on a few axes; without a projection, words is 0 and all arrays are empty.

    Attributes
    ----------
    axes : float32 array (axes / 32, d, 32)
    packed, statistics, rest_norms
        As in ProjectedPanels.
    words : int
        The number of words of a packed projection.
    eta : float32 array (1,)
        The bound ETA of ``projection_filter``.
    largest_k : float32 array (2,)
        The largest k for which few queries, and many queries, are searched by their projection.
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
    """How the tiles scale each query; the arrays (n,) are float64, except weights, float32.

    A query a becomes a' = factor a - coefficient shift, the offsets of items are multiplied by its
    weight, and its raw scores become slope score + intercept.
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
        A bound on the rounding error of a float32 tile, relative to the norms; 0 for integers.
    rounding : float
        A bound on the rounding error that a shift adds.
    filters : QueryFilters
        The filters, whose self_rows and excluded_indptr are not empty.
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
        The range of panels, without last_panel.
    capacity : int
        The number of candidates that the buffer of a query holds, at least 4 k.
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
        A lower bound of the k-th best score of each query, in the terms of the filter. The array is
        an input and an output.
    scores, rows : float64 and int64 array (n, k)
        The best items, equal scores by lower row, padded by -inf and -1.
    unproved : float32 array (n,)
        The largest threshold, in the same terms, by which a row that belongs to the best k may have
        been dropped; -3e38 if there is no such threshold. The query must be searched again unless
        its k-th best score in all panels reaches this threshold.
    """

    thresholds: Any
    scores: Any
    rows: Any
    unproved: Any


class TaskGrid(NamedTuple):
    """How a search of many queries is divided into tasks of a query block and a range of panels.

    Task t searches block t // n_ranges in range t % n_ranges.

    Attributes
    ----------
    queries_per_block, panels_per_range, n_ranges : int
    capacity, sample_stride, sample_rank : int
        The fields of PanelSearch.
    """

    queries_per_block: Any
    panels_per_range: Any
    n_ranges: Any
    capacity: Any
    sample_stride: Any
    sample_rank: Any


class CandidateLists(NamedTuple):
    """Outputs of a range search: the candidates of each query.

    starts (n,) int64 holds the place in rows at which the list of each query begins. A list holds
    at most `capacity` candidates. counts (n,) int64 holds the number of candidates, which may be
    larger.
    """

    capacity: Any
    starts: Any
    counts: Any
    rows: Any


class CandidateRanges(NamedTuple):
    """Candidates of each query: a part of rows (c,), which holds item numbers.

    The candidates of query i are rows[firsts[i] : lasts[i]], ascending; firsts and lasts (n,) are
    int64.
    """

    rows: Any
    firsts: Any
    lasts: Any


class CopyGroups(NamedTuple):
    """Groups of equal items: group_of (m,), and members, ascending from starts[g] for group g."""

    group_of: Any
    starts: Any
    members: Any


class DistinctResults(NamedTuple):
    """Neighbours of distinct queries: rows, scores (u, w) best first, padded by -1.

    distinct_query (n,) holds the number of the distinct query that equals each query.
    """

    distinct_query: Any
    rows: Any
    scores: Any


class Csr(NamedTuple):
    """A sparse matrix in compressed rows: indptr (n + 1,) int64, indices (nnz,), data (nnz,).

    data is None if all values are 1, or if a kernel does not read the values.
    """

    indptr: Any
    indices: Any
    data: Any


class BitViews(NamedTuple):
    """The arrays of a Csr as unsigned integers, for comparisons that vectorise.

    columns holds the indices of the matrix, and values its data. magnitude is the mask of all bits
    of a value except the sign, and infinity the bits of positive infinity.
    """

    columns: Any
    values: Any
    magnitude: Any
    infinity: Any


class SampledRows(NamedTuple):
    """Items (p, d), their norms (p,), and the row numbers (n,) of the items that are examined."""

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
        The ascending conditions that a radius may have.
    depth : int
        The largest number of times that the range of a norm ratio is bisected.
    """

    first: Any
    complete: Any
    levels: Any
    depth: Any


class Attacks(NamedTuple):
    """How neighbours are attacked: ``attacks.attacked_radii``.

    n_targets is the number of competitors that are attacked one by one. certified (n, k) holds the
    conditions up to which no attack is needed. levels and depth are described in CertificateSearch.
    """

    n_targets: Any
    certified: Any
    levels: Any
    depth: Any


class BitRows(NamedTuple):
    """Packed bits (n, w) uint64, and the square roots of the numbers of bits that are 1.

    The norms of items have 8 more entries than there are items.
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

    key_0 and key_1 are the words of the random key. A row that draws race_from items or more uses
    the race at once. Every other row makes up to max_draws repeated draws first.
    """

    key_0: Any
    key_1: Any
    race_from: Any
    max_draws: Any
