"""Named tuples of kernel arguments, called records, which Python builds and kernels read.

A kernel that Python calls takes at most eight arguments: lo and hi, then arrays and records of
inputs, and then outputs. ``fastcos.similarity.kernel_records`` and ``fastcos.search.packing`` build
most records, and a kernel reads their fields by name. To pass a further value to a kernel without
changing its arguments, add a field to the record, and set the field in the function that builds the
record.

The number of a row is the position of the row in its segment of an index. Packing changes the order
of the rows, and a slot is a position in the order of the packed rows. All arrays are C-contiguous.
Inputs are read-only, except the mask of a QueryFilters, which is always writeable. An empty array
stands for an array of zeros, or for a filter that allows all items.
"""

from typing import Any, NamedTuple

import numpy as np

from .jit import kernel
from .simd.low_precision import ARRAY_TYPES, FLOAT32, FLOAT64
from .simd.memory import array_at
from .simd.panel import N_STATISTICS, PANEL


class Rows(NamedTuple):
    """Rows of numbers, stored as bytes, together with a code for the type of the numbers.

    All rows have the same Numba type, whatever their number type is. The code that searches is
    therefore compiled once, and not once per number type. The operations of ``simd.row_products``
    interpret the bytes.

    Attributes
    ----------
    data : uint8 array (n, bytes per row)
        The bytes of the rows.
    number_type : int
        FLOAT64, FLOAT32, FLOAT16, BFLOAT16 or INT8 of ``simd.low_precision``.
    n_columns : int
        The number of columns d.
    """

    data: Any
    number_type: Any
    n_columns: Any


# A dict from NumPy types to number types. A key is the character of a NumPy type. The value is an
# integer code, which says what kind of numbers the arrays of this NumPy type hold.
_NUMBER_TYPES = {np.dtype(name).char: code for code, name in enumerate(ARRAY_TYPES)}
_BYTE = np.dtype(np.uint8)


def bytes_of(array):
    """Return a read-only view of the bytes (n, d * itemsize) of an array (n, d) in C order.

    Kernels are compiled only for read-only inputs.
    """
    try:
        view = array.view(_BYTE)
    except ValueError:
        # An array in C order may have any stride along an axis of length 1. NumPy can view an array
        # as bytes only if the stride along the last axis equals the size of one number of the
        # array.
        n, depth = array.shape
        view = array.reshape(-1).view(_BYTE).reshape(n, depth * array.itemsize)
    view.setflags(write=False)
    return view


def rows_of(array):
    """Return the Rows of an array (n, d) in C order, without a copy."""
    return Rows(bytes_of(array), _NUMBER_TYPES[array.dtype.char], array.shape[1])


@kernel
def rows_of_query_bytes(query_bytes, items):
    """Return the Rows of queries; `query_bytes` is the result of ``bytes_of`` for the queries.

    Queries are float32 or float64, so their number type follows from the number of bytes of a
    query. Passing only the bytes to a kernel takes 0.5 us less than passing a Rows, because Python
    need not make the Rows.
    """
    depth = items.rows.n_columns
    return Rows(query_bytes, FLOAT32 if query_bytes.shape[1] == 4 * depth else FLOAT64, depth)


@kernel
def float64_row(array):
    """Return the Rows (1, d) of a float64 array (d,)."""
    depth = array.shape[0]
    return Rows(array.view(np.uint8).reshape(1, 8 * depth), FLOAT64, depth)


class PairScoring(NamedTuple):
    """The inputs from which the exact scores of pairs of rows are computed.

    Attributes
    ----------
    metric_type : int
        DOT, COSINE or EUCLIDEAN of ``pair_scores``.
    queries, items : Rows (n, d) and (m, d)
        The rows to compare. If the items are not float32, the queries are float64.
    query_norms, item_norms : float64 array (n,) and (m,)
        The norms of the rows. If the kernel itself computes the norms of the items, `item_norms` is
        empty.
    item_bias : float64 array (m,)
        For each item, the number that is added to its inner products; empty if all numbers are 0.
    """

    metric_type: Any
    queries: Any
    query_norms: Any
    items: Any
    item_norms: Any
    item_bias: Any


class QueryFilters(NamedTuple):
    """The items that must not be returned for each query.

    Attributes
    ----------
    self_rows : int64 array (n,)
        For each query, the number of the item that is the query itself, or -1. If no item is
        excluded for any query, self_rows and excluded_indptr may be empty.
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
    """Rows with their scaling: the tiles use factors[i] * rows[i] - coefficients[i] * shift.

    `rows` is a Rows (n, d), and `factors` and `coefficients` (n,) are float64. `shift` (d,) is
    float64. If nothing is subtracted, `shift` is empty and `coefficients` is not used.
    """

    rows: Any
    factors: Any
    coefficients: Any
    shift: Any


class PanelLayout(NamedTuple):
    """The layout of packed rows: instruction set, number of words, and signs of the rotation.

    `isa` is described in ``simd.instruction_sets``. `words` is the number of 4-byte words of a
    packed row. `signs` (2, max(d, 16)) float32 holds the random signs of the rotation, +1 or -1.
    """

    isa: Any
    words: Any
    signs: Any


class ItemPanels(NamedTuple):
    """Packed items, in panels of 32 items.

    Attributes
    ----------
    row_of_slot : int32 array (m,)
        The number of the row in each slot.
    packed : int32 or float32 array (panels * 32 * words,)
        The codes of the rows, or the rows themselves, in the layout that ``simd.panel`` describes.
    small_offsets : float32 array (m,)
        The offset of the row in each slot; empty if there are no offsets.
    statistics : float32 array (panels, 5)
        The statistics of each panel. Module ``simd.panel`` describes the five columns of this
        array.
    """

    row_of_slot: Any
    packed: Any
    small_offsets: Any
    statistics: Any


class ProjectedPanels(NamedTuple):
    """Packed coordinates of items along the axes of a projection.

    The arrays `packed` and `statistics` are laid out as in ItemPanels. The remainder of an item is
    the item minus its projection on the axes. `remainder_norms` (32 panels,) float32 holds an upper
    bound on the norm of each remainder.
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
    rows, norms, bias : as in PairScoring
        The fields `items`, `item_norms` and `item_bias` of PairScoring.
    row_of_slot, packed, small_offsets, statistics : as in ItemPanels
        The fields of ItemPanels. If rows are searched without packing, `packed` holds the rows
        themselves. If the items have a projection, the panels of `packed` are laid out by item,
        except with AMX (see ``simd.panel``).
    words : int
        The number of words of a packed row.
    shift : float64 array (d,)
        The shift of ScaledRows.
    signs : float32 array (2, max(d, 16))
        The signs of PanelLayout.
    tile_configuration : uint8 array (64,)
        The configuration of the tile registers of AMX.
    scaling : float32 array (slots, 2)
        For each slot, the factor and the offset of its row, if items are searched without packing.
        If items are packed, the array is empty. Let v be the score of a row in a tile, and let
        `weight` be the weight of the query. The scaled score of the row is then
        v * factor + weight * offset.
    projection : Projection
        The projection of the items, which is empty if there is none.
    """

    isa: Any
    metric_type: Any
    rows: Any
    norms: Any
    bias: Any
    row_of_slot: Any
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
    """The projection of items on a few axes.

    Without a projection, `words` is 0 and the arrays are empty.

    Attributes
    ----------
    axes : float32 array (axes / 32, d, 32)
        The axes, in groups of 32.
    packed, statistics, remainder_norms : as in ProjectedPanels
        The fields of ProjectedPanels.
    words : int
        The number of words per row in the packed projections.
    eta : float32 array (1,)
        The bound ETA of ``projection_filter``.
    largest_k : float32 array (2,)
        The first entry is the largest k for which searches with few queries use the projection. The
        second entry is the largest k for which searches with many queries use the projection. No
        kernel uses `largest_k`; ``fastcos.search.packing`` passes it to ``fastcos.search.plan``.
    """

    axes: Any
    packed: Any
    words: Any
    statistics: Any
    remainder_norms: Any
    eta: Any
    largest_k: Any


class ScalingUnits(NamedTuple):
    """The factors that scale the items of a segment, and bounds on the errors of scores.

    Attributes
    ----------
    unit : float
        The factor by which rows are multiplied. For cosines, the factor is 1, because rows are
        divided by their norms instead.
    offset_unit : float
        The factor by which the offsets of items are multiplied.
    tile_error : float
        With float32 tiles, a bound on the rounding error of a score, relative to the product of the
        norms. With int8 codes, `tile_error` is 0.
    shift_error : float
        A bound on the rounding error that shifting the rows adds to a score, if rows are shifted.
    """

    unit: Any
    offset_unit: Any
    tile_error: Any
    shift_error: Any


class ItemAddresses(NamedTuple):
    """The addresses of the arrays of an Items; Numba passes addresses faster than arrays.

    Attributes
    ----------
    isa, metric_type : as in Items
        The fields of Items.
    table : int64 array (TABLE_SIZE,)
        The addresses and the sizes of the arrays, from which ``items_at`` makes the
        Items.
    packed_type : array (0,)
        An empty array with the type of the packed rows.
    units : ScalingUnits
        The factors that scale the items.
    """

    isa: Any
    metric_type: Any
    table: Any
    packed_type: Any
    units: Any


# The table of an ItemAddresses begins with these fields of Items. Each field takes two entries: the
# first entry is the address of an array, and the second entry is its number of elements. For the
# field `rows`, this array holds the bytes of the rows.
ARRAYS_OF_ITEMS = (
    "rows", "norms", "bias", "row_of_slot", "packed", "small_offsets", "statistics", "shift",
    "signs", "tile_configuration", "scaling",
)  # fmt: skip
# The table of an ItemAddresses continues with these fields of Projection. Each field takes two
# entries: the first entry is the address of an array, and the second entry is its number of
# elements.
ARRAYS_OF_PROJECTION = ("axes", "packed", "statistics", "remainder_norms", "eta", "largest_k")
# Each of these constants is an index into the table of an ItemAddresses. At this index, the table
# contains the address of an array. The entry after the address is the number of elements of the
# array.
(
    _ROWS, _NORMS, _BIAS, _ROW_OF_SLOT, _PACKED, _SMALL_OFFSETS, _STATISTICS, _SHIFT, _SIGNS,
    _TILE_CONFIGURATION, _SCALING,
) = (2 * number for number in range(len(ARRAYS_OF_ITEMS)))  # fmt: skip
(_AXES, _PROJECTED, _PROJECTED_STATISTICS, _REMAINDER_NORMS, _ETA, _LARGEST_K) = (
    2 * (len(ARRAYS_OF_ITEMS) + number) for number in range(len(ARRAYS_OF_PROJECTION))
)
# The table of an ItemAddresses ends with five numbers that describe the rows: the number type, the
# bytes per row, the columns, the words per packed row, and the words per projected row.
_NUMBER_TYPE, _ROW_BYTES, _COLUMNS, _WORDS, _PROJECTED_WORDS = range(_LARGEST_K + 2, _LARGEST_K + 7)
TABLE_SIZE = _PROJECTED_WORDS + 1
# ``array_at`` makes an array from an address. The last argument of ``array_at`` is one of these
# empty arrays, and determines the type of the new array.
_FLOAT64, _FLOAT32 = np.empty(0, np.float64), np.empty(0, np.float32)
_INT32, _UINT8 = np.empty(0, np.int32), np.empty(0, np.uint8)


@kernel
def items_at(addresses):
    """Return the Items whose arrays lie at the addresses in an ItemAddresses.

    At every call, Numba takes 0.1 us to read the array of addresses. Reading the 11 arrays of Items
    and the 6 arrays of Projection from a tuple would take more than 2 us. The addresses are
    collected once, when the items are packed (``fastcos.search.packing``).
    """
    table, packed_type = addresses.table, addresses.packed_type
    depth = table[_COLUMNS]
    data, row_bytes = array_at(table, _ROWS, _UINT8), table[_ROW_BYTES]
    rows = data.reshape(data.shape[0] // row_bytes, row_bytes)
    statistics, signs = array_at(table, _STATISTICS, _FLOAT32), array_at(table, _SIGNS, _FLOAT32)
    scaling, axes = array_at(table, _SCALING, _FLOAT32), array_at(table, _AXES, _FLOAT32)
    projected_statistics = array_at(table, _PROJECTED_STATISTICS, _FLOAT32)
    projection = Projection(
        axes.reshape(axes.shape[0] // (depth * PANEL), depth, PANEL),
        array_at(table, _PROJECTED, packed_type),
        table[_PROJECTED_WORDS],
        projected_statistics.reshape(projected_statistics.shape[0] // N_STATISTICS, N_STATISTICS),
        array_at(table, _REMAINDER_NORMS, _FLOAT32),
        array_at(table, _ETA, _FLOAT32),
        array_at(table, _LARGEST_K, _FLOAT32),
    )
    return Items(
        addresses.isa,
        addresses.metric_type,
        Rows(rows, table[_NUMBER_TYPE], depth),
        array_at(table, _NORMS, _FLOAT64),
        array_at(table, _BIAS, _FLOAT64),
        array_at(table, _ROW_OF_SLOT, _INT32),
        array_at(table, _PACKED, packed_type),
        table[_WORDS],
        array_at(table, _SMALL_OFFSETS, _FLOAT32),
        statistics.reshape(statistics.shape[0] // N_STATISTICS, N_STATISTICS),
        array_at(table, _SHIFT, _FLOAT64),
        signs.reshape(2, signs.shape[0] // 2),
        array_at(table, _TILE_CONFIGURATION, _UINT8),
        scaling.reshape(scaling.shape[0] // 2, 2),
        projection,
    )


class QueryScaling(NamedTuple):
    """The factors, weights and offsets by which the queries of tiles are scaled.

    The arrays have the shape (n,); `weights` is float32, and the other arrays are float64. A query
    `a` is scaled to factor * a - coefficient * shift. The offsets of items are multiplied by the
    weight of the query. The raw score of a pair is converted to K = slope * score + intercept (see
    ``candidate_filter``).
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
    rows, norms : as in PairScoring
        The fields `queries` and `query_norms` of PairScoring.
    scaling : QueryScaling
        The scaling of the queries.
    tile_error, shift_error : float
        The fields of ScalingUnits.
    filters : QueryFilters
        The filters of the queries; neither `self_rows` nor `excluded_indptr` is empty.

    A kernel that performs a whole search computes the norms and the scaling of the queries itself.
    Python therefore passes only the rows and the filters to such a kernel, and the arrays of the
    filters may be empty.
    """

    rows: Any
    norms: Any
    scaling: Any
    tile_error: Any
    shift_error: Any
    filters: Any


class FewQuerySettings(NamedTuple):
    """The settings of a search that compares a few queries with the items, one query at a time.

    Attributes
    ----------
    first_rank : int
        The first value of the rank r in step 4 of ``few_queries``. Step 4 computes one estimate per
        panel, and scores the slots that reach the r-th largest estimate.
    panels_per_range : int
        The number of panels that a task searches.
    check_norms : bool
        Whether the kernel must check that the norms of the queries are ordinary (see
        ``query_encoding.are_ordinary``). The kernel must check the norms if no caller has checked
        them.
    """

    first_rank: Any
    panels_per_range: Any
    check_norms: Any


class ProjectedSettings(NamedTuple):
    """The settings of a search with few queries among items that have a projection.

    Attributes
    ----------
    first_rank, panels_per_range, check_norms : as in FewQuerySettings
        The fields of FewQuerySettings.
    sample_stride, sample_rank : int
        Every sample_stride-th panel belongs to a sample, where `sample_stride` is at least 2. The
        largest score of each panel of the sample is computed. These scores are ranked in descending
        order, and the score with rank sample_rank becomes the first threshold.
    """

    first_rank: Any
    panels_per_range: Any
    check_norms: Any
    sample_stride: Any
    sample_rank: Any


class BlockSettings(NamedTuple):
    """The settings of a search that has many queries and is divided into tasks.

    A task searches one range of panels for one block of queries. Task t searches the range
    t % n_ranges, and it searches this range for the block t // n_ranges.

    Attributes
    ----------
    queries_per_block, panels_per_range, n_ranges : int
        The number of queries of a block, the number of panels of a range, and the number of ranges.
    capacity, sample_stride, sample_rank, use_projection : as in PanelSettings
        The fields of PanelSettings.
    is_whole_search : bool
        Whether each task performs a whole search. Like the kernels for few queries, such a task
        computes the final results of a block of queries in a range of panels. A kernel that
        performs a whole search does not read the argument `batch`.
    check_norms : bool
        Whether the kernel must check that the norms of the queries are ordinary (see
        ``query_encoding.are_ordinary``). The kernel must check the norms if no other code has
        checked them. This setting concerns only kernels that perform a whole search.
    """

    queries_per_block: Any
    panels_per_range: Any
    n_ranges: Any
    capacity: Any
    sample_stride: Any
    sample_rank: Any
    use_projection: Any
    is_whole_search: Any
    check_norms: Any


class PanelSettings(NamedTuple):
    """The range of panels that one task searches, and the settings of the task.

    Attributes
    ----------
    first_panel, last_panel : int
        The first panel of the range, and the panel after the last panel of the range.
    capacity : int
        The number of candidates that fit in the buffer of a query; this number is at least 4 k.
    sample_stride, sample_rank : int
        In every sample_stride-th panel, the largest score of each query is computed. The scores of
        a query are ranked in descending order, and the score with rank sample_rank becomes the
        first threshold of the query. If sample_stride is 0, no threshold is estimated.
    use_projection : bool
        Whether projected codes are multiplied before full codes. The setting has no effect if the
        items have no projected codes.
    is_shared : bool
        Whether several tasks search different panels for the same queries and share the thresholds.
    """

    first_panel: Any
    last_panel: Any
    capacity: Any
    sample_stride: Any
    sample_rank: Any
    use_projection: Any
    is_shared: Any


class SelfJoinSettings(NamedTuple):
    """The settings of one stage of a self-join.

    Attributes
    ----------
    stage : int
        The constant FIRST or LAST of ``self_join``, or the number of a round. Rounds are numbered
        from 0.
    n_blocks, panels_per_block : int
        The number of blocks, which is even, and the number of panels of a block. If the items have
        fewer than n_blocks * panels_per_block panels, the last blocks have fewer panels or none.
    sample_stride, sample_rank : int
        The fields of PanelSettings.
    """

    stage: Any
    n_blocks: Any
    panels_per_block: Any
    sample_stride: Any
    sample_rank: Any


class SelfJoinState(NamedTuple):
    """The state of a self-join of n rows, which all stages share.

    Row i of the state is the row in slot i of the packed items.

    Attributes
    ----------
    packed : int32 array (panels * size,)
        The rows, packed as queries.
    bound_terms, steps, corrections, remainders : as in Block
        The fields of ``query_blocks.Block``, for the panels of all rows.
    units : float32 array (panels, 32)
        The number unit(i) of each row, which the docstring of ``self_join`` defines.
    initial_thresholds : float32 array (n,)
        For each row, the threshold with which the search for its neighbours begins, divided by the
        row's quantisation step.
    candidates : Candidates of ``candidate_buffers``
        The candidates of all rows.
    """

    packed: Any
    bound_terms: Any
    steps: Any
    corrections: Any
    remainders: Any
    units: Any
    initial_thresholds: Any
    candidates: Any


class SearchResults(NamedTuple):
    """The outputs of a search with n queries.

    Attributes
    ----------
    thresholds : float32 array (n,)
        For each query, a lower bound on its k-th best score, expressed as K (see
        ``candidate_filter``). Kernels read the thresholds and raise them.
    scores, rows : float64 and int64 array (n, k)
        The best items of each query, padded with -inf and -1. Items with equal scores are ordered
        by row number.
    unproved : float32 array (n,)
        For each query, the largest threshold that the search used without proof, expressed as K.
        Because of this threshold, the search may have dropped one of the best k rows. The entry is
        -3e38 if the search has certainly dropped none of the best k rows. The query must be
        searched again if its k-th best score among all panels is below its entry in `unproved`.

    If a kernel performs a whole search, the arrays `thresholds` and `unproved` are empty.
    """

    thresholds: Any
    scores: Any
    rows: Any
    unproved: Any


class CandidateLists(NamedTuple):
    """The outputs of a range search, which hold a list of candidates for each query.

    The list of query i is rows[starts[i] : starts[i + 1]], and `starts` (n + 1,) is int64. `counts`
    (n,) int64 holds the number of candidates of each query, including candidates for which the list
    had no room.
    """

    starts: Any
    counts: Any
    rows: Any


class CandidateRanges(NamedTuple):
    """The candidates of each query, stored as a range of one array of item numbers.

    The candidates of query i are rows[firsts[i] : lasts[i]], in ascending order. `rows` has the
    shape (c,), and `firsts` and `lasts` (n,) are int64.
    """

    rows: Any
    firsts: Any
    lasts: Any


class CopyGroups(NamedTuple):
    """The groups of equal items: the group of each item, and the members of each group.

    `group_of` (m,) holds the number of each item's group. The items of group g are
    members[starts[g] : starts[g + 1]], in ascending order.
    """

    group_of: Any
    starts: Any
    members: Any


class DistinctResults(NamedTuple):
    """The neighbours of u distinct queries, best first, as arrays `rows` and `scores` (u, w).

    The array `rows` is padded with -1. For each of n queries, `distinct_query` (n,) holds the
    number of the distinct query that is equal to this query.
    """

    distinct_query: Any
    rows: Any
    scores: Any


class Csr(NamedTuple):
    """A sparse matrix in compressed sparse rows: indptr (n + 1,) int64, indices and data (nnz,).

    `data` is None if all values are 1, or if a kernel does not read the values.
    """

    indptr: Any
    indices: Any
    data: Any


class BitViews(NamedTuple):
    """The arrays of a Csr, viewed as unsigned integers, so that comparisons can be vectorised.

    `columns` holds the indices of the matrix, and `values` holds the bits of its data. `magnitude`
    is a mask of all bits of a value except the sign bit, and `infinity` holds the bits of positive
    infinity.
    """

    columns: Any
    values: Any
    magnitude: Any
    infinity: Any


class SampledRows(NamedTuple):
    """All items, and the row numbers of the items in a sample.

    `items` is a Rows (p, d), and `norms` (p,) holds the norms of all items. `rows` (n,) holds the
    row numbers of the items in the sample.
    """

    items: Any
    norms: Any
    rows: Any


class RowPairs(NamedTuple):
    """Pairs of rows x[i] and y[i].

    `x` and `y` (n, d) are float64. `x_norms` (n,) holds the norms of the rows in x, and `y_norms`
    (n,) those of the rows in y.
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
        Position of the first competitor in each list of neighbours.
    complete : bool
        Whether the list of neighbours of each row contains all items except the row itself.
    levels : float64 array
        The conditions (see ``certificates``) for which certificates are tried, in ascending order.
    depth : int
        ``certificates.refined_certificate`` repeatedly halves the range of a norm ratio. Each piece
        of the range results from at most `depth` halvings.
    """

    first: Any
    complete: Any
    levels: Any
    depth: Any


class Attacks(NamedTuple):
    """The settings of ``attacks.attacked_radii``, which looks for rescalings that drop a neighbour.

    `n_targets` is the number of competitors that an attack tries to bring nearer to the row, one
    after another. `certified` (n, k) holds a condition for each neighbour: every rescaling up to
    this condition keeps the neighbour among the k nearest. Attacks on an edge try only levels above
    the certified condition of the edge. `levels` and `depth` are described in CertificateSearch.
    """

    n_targets: Any
    certified: Any
    levels: Any
    depth: Any


class BitRows(NamedTuple):
    """Rows of packed bits, and the norms of the rows.

    `words` (n, w) uint64 holds the bits of each row. The norm of a row is the square root of the
    number of 1 bits in the row. If the rows are items, `norms` has 8 entries more than `words` has
    rows.
    """

    words: Any
    norms: Any


class LabelCodes(NamedTuple):
    """The labels of m columns, represented by codes.

    `codes` (m,) int64 holds the code of the label of each column, and `sizes` (C,) holds the number
    of columns with each of C codes.
    """

    codes: Any
    sizes: Any


class LabelRanks(NamedTuple):
    """The outputs of label ranking for n queries.

    `auc` (n,) float64 and `precision` (n,) float64 hold the AUC and the average precision at R of
    each query (see ``label_ranks``). `voted` (n,) int64 holds the label code that is most frequent
    among the nearest columns of each query.
    """

    auc: Any
    precision: Any
    voted: Any


class ScoreMoments(NamedTuple):
    """The means (n,) and the standard deviations (n,) of the scores of n rows.

    Every standard deviation is positive.
    """

    means: Any
    deviations: Any


class ClusteredRows(NamedTuple):
    """Unit rows, sorted by cluster, and their levels, which determine the stratum of each pair.

    Attributes
    ----------
    rows, panels : float64 array (n, d), and the same rows packed by ``dot_tile.pack_rows``
    ends : int64 array (n,)
        For each row, the index at which its cluster ends: the index of the first row of the next
        cluster, or n for the last cluster.
    levels : float64 array (n,)
        The level of a pair is the sum of the levels of its rows.
    boundaries : float64 array (strata - 1,)
        The boundaries of the strata, in ascending order. The stratum of a pair is the number of
        boundaries below the level of the pair.
    """

    rows: Any
    panels: Any
    ends: Any
    levels: Any
    boundaries: Any


class Drawing(NamedTuple):
    """The settings of ``sampling.sample_rows``, which draws items.

    The two words of the random key are key_0 and key_1. If at least ``race_from`` items are to be
    drawn for a row, the exponential race draws all of them. If fewer than ``race_from`` items are
    to be drawn, they are drawn one after another, with up to ``max_draws`` draws. If these draws do
    not yield enough items, the exponential race draws the missing items.
    """

    key_0: Any
    key_1: Any
    race_from: Any
    max_draws: Any
