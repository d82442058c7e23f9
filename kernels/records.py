"""Records: named tuples of kernel arguments, which Python builds and kernels read.

A kernel that Python calls takes at most eight arguments: lo and hi, then records of inputs, then
outputs. ``fastcos.similarity.kernel_records`` and ``fastcos.search.packing`` build most records,
and a kernel reads their fields by name. To pass a new number to a kernel, add a field here and in
the function that builds the record; the other arguments stay the same.

The number of a row is its position in its segment of an index. Packed rows are in another order,
and a slot is a position in this packed order. All arrays are C-contiguous, and inputs are
read-only. An empty array stands for numbers that are all 0, or for a filter that allows all items.
"""

from typing import Any, NamedTuple


class PairScoring(NamedTuple):
    """The inputs from which the exact scores of pairs of rows are computed.

    Attributes
    ----------
    metric_type : int
        DOT, COSINE or EUCLIDEAN of ``pair_scores``.
    queries, items : array (n, d) and (m, d)
        The rows. Rows of one- or two-byte numbers are passed as the bits that ``pair_scores``
        describes.
    query_norms, item_norms : float64 array (n,) and (m,)
        The norms of the rows. item_norms is empty for kernels that measure the norms.
    item_offsets : float64 array (m,)
        The number that is added to every inner product with an item, or empty.
    """

    metric_type: Any
    queries: Any
    query_norms: Any
    items: Any
    item_norms: Any
    item_offsets: Any


class QueryFilters(NamedTuple):
    """Filters that determine which items each query must not return.

    Attributes
    ----------
    self_rows : int64 array (n,)
        For each query, the number of the item that is the query itself, or -1. If no query excludes
        an item, self_rows and excluded_indptr may be empty.
    excluded_indptr, excluded_rows : int64 array (n + 1,) and (e,)
        The items that are excluded for query i are excluded_rows[excluded_indptr[i] :
        excluded_indptr[i + 1]], in ascending order.
    allowed : uint8 array (m,)
        1 for each item that is allowed in the results, and 0 for the other items. If the array is
        empty, all items are allowed.
    """

    self_rows: Any
    excluded_indptr: Any
    excluded_rows: Any
    allowed: Any


class ScaledRows(NamedTuple):
    """Rows and their scaling for the tiles, which read factors[i] rows[i] - coefficients[i] shift.

    rows has the shape (n, d). factors and coefficients (n,) are float64. shift (d,) is float64, or
    empty; without a shift, coefficients is not used.
    """

    rows: Any
    factors: Any
    coefficients: Any
    shift: Any


class PanelLayout(NamedTuple):
    """The format of packed rows: instruction set, number of words, and signs of the rotation.

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
        The number of the row in each slot.
    packed : int32 or float32 array (panels * 32 * words,)
        The codes of the rows, or the rows themselves, in the layout that ``simd.panel`` describes.
    small_offsets : float32 array (m,)
        The offset of the row in each slot, or empty.
    statistics : float32 array (panels, 5)
        The statistics of each panel, in the columns that ``simd.panel`` names.
    """

    order: Any
    packed: Any
    small_offsets: Any
    statistics: Any


class ProjectedPanels(NamedTuple):
    """Packed coordinates of items along the axes of a projection.

    packed and statistics have the form that ItemPanels describes. The remainder of an item is the
    item minus its projection on the axes, and remainder_norms (32 panels,) float32 holds an upper
    bound of the norm of each remainder.
    """

    packed: Any
    statistics: Any
    remainder_norms: Any


class Items(NamedTuple):
    """The items of a search by tiles.

    Attributes
    ----------
    isa : InstructionSet
        The instruction set of the tiles; see ``simd.instruction_sets``.
    metric_type : int
        DOT, COSINE or EUCLIDEAN of ``pair_scores``.
    rows, norms, offsets
        The fields items, item_norms and item_offsets of PairScoring.
    order, packed, small_offsets, statistics
        The fields of ItemPanels. If rows are searched without packing, packed holds the rows
        themselves. With a projection, the panels of packed are laid out by item, except with AMX
        (see ``simd.panel``).
    words : int
        The number of words of a packed row.
    shift : float64 array (d,)
        The shift of ScaledRows.
    signs : float32 array (2, max(d, 16))
        The signs of PanelLayout.
    tile_configuration : uint8 array (64,)
        The configuration of the tile registers of AMX.
    scaling : float32 array (slots, 2)
        For items that are searched without packing, the factor and the offset of the row in each
        slot; otherwise empty. If a tile computes the score v for a row, the scaled score is
        v factor + weight offset.
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
        The axes, in groups of 32.
    packed, statistics, remainder_norms
        The fields of ProjectedPanels.
    words : int
        The number of words of the packed projection of a row.
    eta : float32 array (1,)
        The bound ETA of ``projection_filter``.
    largest_k : float32 array (2,)
        The largest k for which a search uses the projection: for few queries, and for many queries.
        Kernels do not read it; ``fastcos.search.plan`` does.
    """

    axes: Any
    packed: Any
    words: Any
    statistics: Any
    remainder_norms: Any
    eta: Any
    largest_k: Any


class ScalingUnits(NamedTuple):
    """The factors that scale all items of a segment, and bounds on the errors of their scores.

    Attributes
    ----------
    unit : float
        The factor by which rows are multiplied; 1 for cosines, whose rows are divided by their
        norms.
    offset_unit : float
        The factor by which the offsets of items are multiplied.
    tile_error : float
        A bound on the rounding error of a score of a float32 tile, relative to the product of the
        norms; 0 for int8 codes.
    shift_error : float
        A bound on the rounding error that a shift adds to a score.
    """

    unit: Any
    offset_unit: Any
    tile_error: Any
    shift_error: Any


class ItemAddresses(NamedTuple):
    """The addresses of the arrays of Items, which take less time to pass than the arrays.

    Attributes
    ----------
    isa, metric_type
        The fields of Items.
    table : int64 array (TABLE_SIZE,)
        The addresses and the sizes of the arrays, from which ``query_scaling.items_at`` makes the
        Items.
    row_type, packed_type : arrays (0,)
        Empty arrays with the types of the rows and of the packed rows.
    units : ScalingUnits
    """

    isa: Any
    metric_type: Any
    table: Any
    row_type: Any
    packed_type: Any
    units: Any


class QueryScaling(NamedTuple):
    """The scaling of each query for the tiles.

    The arrays have the shape (n,); weights is float32, and the other arrays are float64. A query a
    becomes factor a - coefficient shift, the offsets of items are multiplied by the weight of the
    query, and the raw score of a pair becomes K = slope score + intercept (``candidate_filter``).
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
        The fields queries and query_norms of PairScoring.
    scaling : QueryScaling
    tile_error, shift_error : float
        The fields of ScalingUnits.
    filters : QueryFilters
        The filters of the queries; here, self_rows and excluded_indptr are not empty.

    A kernel that performs a whole search measures and scales the queries itself. Python then passes
    the rows and the filters only, and the arrays of the filters may be empty.
    """

    rows: Any
    norms: Any
    scaling: Any
    tile_error: Any
    shift_error: Any
    filters: Any


class FewQuerySearch(NamedTuple):
    """The settings of a search with few queries, which are compared with the items one by one.

    Attributes
    ----------
    first_rank : int
        The first value of the number r in ``few_queries``, whose step 4 scores the slots that reach
        the r-th largest of the panels' largest products.
    panels_per_range : int
        The number of panels that a task searches.
    must_check : bool
        Whether the kernel must check that the queries are ordinary, because no caller has checked.
    """

    first_rank: Any
    panels_per_range: Any
    must_check: Any


class ProjectedSearch(NamedTuple):
    """The settings of a search with few queries among items that have a projection.

    Attributes
    ----------
    first_rank, panels_per_range, must_check
        The fields of FewQuerySearch.
    sample_stride, sample_rank : int
        Every sample_stride-th panel is part of a sample, and the first threshold is the
        sample_rank-th largest of the largest scores of these panels. sample_stride is at least 2.
    """

    first_rank: Any
    panels_per_range: Any
    must_check: Any
    sample_stride: Any
    sample_rank: Any


class BlockSearch(NamedTuple):
    """The settings of a search with many queries, whose tasks are blocks of queries.

    A task searches one block of queries in one range of panels. Task t searches block
    t // n_ranges in range t % n_ranges.

    Attributes
    ----------
    queries_per_block, panels_per_range, n_ranges : int
    capacity, sample_stride, sample_rank, use_projection
        The fields of PanelSearch.
    is_whole_search : bool
        Whether the kernel performs the whole search of a block of queries in a range of panels, as
        the kernels for few queries do. The kernel then reads no list of queries.
    must_check : bool
        For a whole search: whether the kernel checks that the queries are ordinary, because no
        other code has checked them.
    """

    queries_per_block: Any
    panels_per_range: Any
    n_ranges: Any
    capacity: Any
    sample_stride: Any
    sample_rank: Any
    use_projection: Any
    is_whole_search: Any
    must_check: Any


class PanelSearch(NamedTuple):
    """The range of panels that one task of a BlockSearch searches, and the settings of the task.

    Attributes
    ----------
    first_panel, last_panel : int
        The range of panels, without last_panel.
    capacity : int
        The number of candidates that the buffer of a query holds, at least 4 k.
    sample_stride, sample_rank : int
        The first threshold of a query is the sample_rank-th largest of the largest scores of every
        sample_stride-th panel. If sample_stride is 0, no threshold is estimated.
    use_projection : bool
        Whether projected codes are multiplied first, if the items have a projection.
    is_shared : bool
        Whether other tasks search the same queries in other panels, and share their thresholds.
    """

    first_panel: Any
    last_panel: Any
    capacity: Any
    sample_stride: Any
    sample_rank: Any
    use_projection: Any
    is_shared: Any


class SearchResults(NamedTuple):
    """The outputs of a search with n queries.

    Attributes
    ----------
    thresholds : float32 array (n,)
        For each query, a lower bound of its k-th best score, in terms of K (``candidate_filter``).
        The array is an input and an output.
    scores, rows : float64 and int64 array (n, k)
        The best items of each query, equal scores by lower row, padded by -inf and -1.
    unproved : float32 array (n,)
        For each query, the largest threshold by which a row of the best k may have been dropped, in
        terms of K; -3e38 if there is no such threshold. The query must be searched again unless its
        k-th best score in all panels reaches this threshold.

    thresholds and unproved are empty for a kernel that performs a whole search.
    """

    thresholds: Any
    scores: Any
    rows: Any
    unproved: Any


class CandidateLists(NamedTuple):
    """The outputs of a range search: the candidates of each query.

    starts (n,) int64 holds the position in rows at which the list of each query begins. A list
    holds at most `capacity` candidates. counts (n,) int64 holds the number of candidates of each
    query, which may be larger than the capacity.
    """

    capacity: Any
    starts: Any
    counts: Any
    rows: Any


class CandidateRanges(NamedTuple):
    """The candidates of each query, as ranges of one array rows (c,) of item numbers.

    The candidates of query i are rows[firsts[i] : lasts[i]], ascending; firsts and lasts (n,) are
    int64.
    """

    rows: Any
    firsts: Any
    lasts: Any


class CopyGroups(NamedTuple):
    """Groups of equal items: the group of each item, and the members of each group.

    group_of (m,) holds the number of each item's group. The members of group g are the entries of
    members from starts[g] to starts[g + 1], in ascending order.
    """

    group_of: Any
    starts: Any
    members: Any


class DistinctResults(NamedTuple):
    """The neighbours of distinct queries: rows and scores (u, w), best first, padded by -1.

    distinct_query (n,) holds, for each query, the number of the distinct query that has the same
    entries.
    """

    distinct_query: Any
    rows: Any
    scores: Any


class Csr(NamedTuple):
    """A sparse matrix in compressed sparse rows: indptr (n + 1,) int64, indices and data (nnz,).

    data is None if all values are 1, or if a kernel does not read the values.
    """

    indptr: Any
    indices: Any
    data: Any


class BitViews(NamedTuple):
    """The arrays of a Csr as unsigned integers, which the compiler compares in vector registers.

    columns holds the indices of the matrix, and values the bits of its data. magnitude is a mask of
    all bits of a value except the sign bit, and infinity holds the bits of positive infinity.
    """

    columns: Any
    values: Any
    magnitude: Any
    infinity: Any


class SampledRows(NamedTuple):
    """Items and a sample of them.

    items has the shape (p, d), norms (p,) holds the norms of all items, and rows (n,) the numbers
    of the items in the sample.
    """

    items: Any
    norms: Any
    rows: Any


class RowPairs(NamedTuple):
    """Pairs of rows x[i] and y[i].

    x and y (n, d) are float64, and x_norms and y_norms (n,) hold the norms of their rows.
    """

    x: Any
    y: Any
    x_norms: Any
    y_norms: Any


class CertificateSearch(NamedTuple):
    """The settings of ``certificates.rescaling_radii``, which certifies neighbours.

    Attributes
    ----------
    first : int
        The competitors of a neighbour are the listed items from this position on.
    complete : bool
        Whether each list contains all items.
    levels : float64 array
        The conditions (see ``certificates``) that a certified radius may have, in ascending order.
    depth : int
        The largest number of times that ``certificates.refined_certificate`` bisects the range of a
        norm ratio.
    """

    first: Any
    complete: Any
    levels: Any
    depth: Any


class Attacks(NamedTuple):
    """The settings of ``attacks.attacked_radii``, which searches rescalings that drop a neighbour.

    n_targets is the number of competitors that an attack tries to bring nearer one by one.
    certified (n, k) holds the condition up to which each neighbour is certified to remain, so that
    no attack is needed. levels and depth are described in CertificateSearch.
    """

    n_targets: Any
    certified: Any
    levels: Any
    depth: Any


class BitRows(NamedTuple):
    """Rows of packed bits, and their norms.

    words (n, w) uint64 holds the bits of each row. The norm of a row is the square root of the
    number of its bits that are 1. For items, norms has 8 more entries than there are items.
    """

    words: Any
    norms: Any


class LabelCodes(NamedTuple):
    """The labels of m columns, as codes.

    codes (m,) int64 holds the code of the label of each column, and sizes (C,) the number of
    columns with each of C codes.
    """

    codes: Any
    sizes: Any


class LabelRanks(NamedTuple):
    """The outputs for n queries: auc and precision (n,) float64, and voted (n,) int64.

    voted holds the label code that most of a query's nearest columns have.
    """

    auc: Any
    precision: Any
    voted: Any


class ScoreMoments(NamedTuple):
    """The means and the standard deviations (n,) of the scores of each row.

    The standard deviations are positive.
    """

    means: Any
    deviations: Any


class ClusteredRows(NamedTuple):
    """Unit rows, sorted by cluster, and the levels by which their pairs are put into strata.

    Attributes
    ----------
    rows, panels : float64 array (n, d), and the same rows packed by ``dot_tile.pack_rows``
    ends : int64 array (n,)
        For each row, the number of the first row after the cluster of the row.
    levels : float64 array (n,)
        The level of a pair is the sum of the levels of its rows.
    boundaries : float64 array (strata - 1,)
        The boundaries of the strata, ascending. The stratum of a pair is the number of boundaries
        below its level.
    """

    rows: Any
    panels: Any
    ends: Any
    levels: Any
    boundaries: Any


class Drawing(NamedTuple):
    """The settings of ``sampling.sample_rows``, which draws items.

    key_0 and key_1 are the two words of the random key. For a row with race_from items or more, the
    exponential race draws all items. For every other row, up to max_draws repeated draws come
    first.
    """

    key_0: Any
    key_1: Any
    race_from: Any
    max_draws: Any
