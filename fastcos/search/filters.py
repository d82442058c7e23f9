"""Filters of a search: exclude (query, item) pairs from the results, or allow only some items.

An index search may filter items by position or by id; ``as_filters`` combines both kinds into
filters by position. ``ExcludedItems`` and ``AllowedRows`` filter the rows of one segment by row
number. ``kernel_filters`` converts ``ExcludedItems`` and ``AllowedRows`` to the record that kernels
read.
"""

import itertools
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from fastcos import parallel, validation
from fastcos.search.plan import drops_excluded_ids
from fastcos.search.results import Neighbors
from fastcos.similarity import kernel_records
from fastcos.validation import Integers
from fastcos.validation.ids import Ids, as_ids


class ExcludedItems(NamedTuple):
    """The items that each query must not find.

    Items are identified by their positions in an index, or by their row numbers in a segment.

    Attributes
    ----------
    self_rows : ndarray (n,), int64
        The position (or row number) of the query's own item, for each query; the entry is -1 if
        there is no such item. A query must not find its own item.
    indptr, indices : ndarray (n + 1,) and (e,), int64
        Besides its own item, query i must not find the items
        ``indices[indptr[i] : indptr[i + 1]]``.
    """

    self_rows: Integers
    indptr: Integers
    indices: Integers

    def of_range(self, first: int, last: int) -> "ExcludedItems":
        """Return the excluded items of the queries ``first`` to ``last - 1``."""
        return ExcludedItems(
            self.self_rows[first:last], self.indptr[first : last + 1], self.indices
        )

    def take(self, queries: slice | Integers) -> "ExcludedItems":
        """Return the excluded items of the queries in ``queries``, in this order."""
        if isinstance(queries, slice):
            return self.of_range(queries.start, queries.stop)
        starts, ends = self.indptr[queries], self.indptr[queries + 1]
        indptr = np.concatenate([[0], np.cumsum(ends - starts)]).astype(np.int64)
        entries = np.arange(indptr[-1]) + np.repeat(starts - indptr[:-1], ends - starts)
        return ExcludedItems(self.self_rows[queries], indptr, self.indices[entries])


def no_exclusions(n: int, *, exclude_self: bool = False) -> ExcludedItems:
    """Return ExcludedItems for n queries; each query excludes only itself, or nothing.

    If ``exclude_self`` is True, query i excludes item i; otherwise, no query excludes an item.
    """
    self_rows = np.arange(n, dtype=np.int64) if exclude_self else np.full(n, -1, np.int64)
    return ExcludedItems(self_rows, np.zeros(n + 1, np.int64), np.zeros(0, np.int64))


class AllowedRows:
    """The rows of a segment that are allowed in the results.

    Attributes
    ----------
    mask : ndarray (p,), uint8
        1 for each allowed row, and 0 for every other row.
    count : int
        The number of allowed rows.
    row_numbers : ndarray (count,), int64
        The row numbers of the allowed rows in ascending order, computed at first use.
    """

    def __init__(self, mask: npt.NDArray[np.uint8], row_numbers: Integers | None = None) -> None:
        self.mask = mask
        if row_numbers is not None:
            self.row_numbers = validation.read_only(row_numbers)
        self.count = int(np.count_nonzero(mask)) if row_numbers is None else len(row_numbers)

    @parallel.lazy_attribute
    def row_numbers(self) -> Integers:
        """The row numbers of the allowed rows in ascending order."""
        return validation.read_only(np.flatnonzero(self.mask))


def allow_rows(row_numbers: Integers, n_rows: int) -> AllowedRows:
    """Return AllowedRows for `n_rows` rows, of which only the rows in ``row_numbers`` are allowed.

    ``row_numbers`` must be in ascending order.
    """
    mask = np.zeros(n_rows, np.uint8)
    mask[row_numbers] = 1
    return AllowedRows(mask, row_numbers)


def kernel_filters(exclusions: ExcludedItems, allowed: AllowedRows | None = None) -> Any:
    """Return the record that kernels read: the excluded items of each query, and the allowed rows.

    ``allowed=None`` allows all rows.
    """
    mask = kernel_records.ALL_ALLOWED if allowed is None else allowed.mask
    return kernel_records.query_filters(
        exclusions.self_rows, exclusions.indptr, exclusions.indices, mask
    )


# --- The filters of a call: masks, positions, sparse matrices of pairs, and ids ---


def as_pairs(name: str, matrix: Any, shape: tuple[int, int]) -> tuple[Integers, Integers]:
    """Return the positions of the non-zeros in each row of a sparse matrix of queries x items.

    The result is (indptr, positions), as in a CSR matrix.
    """
    from fastcos.linalg.csr import as_interactions

    pairs = as_interactions(name, matrix)
    validation.check_shape(name, pairs.shape, shape)
    return pairs.indptr.astype(np.int64), pairs.indices.astype(np.int64)


def lists_without_pairs(
    lists: tuple[Integers, Integers], exclusions: ExcludedItems, n_items: int
) -> tuple[Integers, Integers]:
    """Remove the items that a query must not find from the list of this query."""
    indptr, positions = lists
    queries = np.arange(len(indptr) - 1)
    pairs = np.repeat(queries, np.diff(indptr)) * n_items + positions
    excluded = np.repeat(queries, np.diff(exclusions.indptr)) * n_items + exclusions.indices
    self_pairs = (queries * n_items + exclusions.self_rows)[exclusions.self_rows >= 0]
    is_kept = ~np.isin(pairs, np.concatenate([excluded, self_pairs]))
    return np.concatenate([[0], np.cumsum(is_kept)])[indptr], positions[is_kept]


class PositionsOfIds(Protocol):
    """An object that can look up positions by id, such as ``index_state.IndexState``."""

    @property
    def n_positions(self) -> int:
        """The number of positions, including those of removed items."""

    def find_positions(self, ids: Ids) -> Integers:
        """Return the position of each id, or -1 if the id is unknown."""


@dataclass(frozen=True)
class SearchFilters:
    """The items that the queries of a search are allowed to find.

    If a field is None, or if ``dropped`` is empty, the field does not restrict the search.

    Attributes
    ----------
    allowed : mask, positions or None
        The items that all queries are allowed to find.
    lists : tuple of (indptr, positions), or None
        A separate list of allowed items for each query: query i may find the items at
        ``positions[indptr[i]:indptr[i + 1]]``.
    exclude : sparse matrix or None
        A matrix of queries x positions, whose non-zeros are the pairs that must not be found.
    dropped : ndarray (m,)
        A few positions that no query may find. The search itself may still find these positions:
        the caller searches for m additional neighbours, and ``drop_positions`` then removes the
        dropped positions from the result.
    """

    allowed: Any
    lists: tuple[Integers, Integers] | None
    exclude: Any
    dropped: Integers

    @property
    def differ_by_query(self) -> bool:
        """Whether the items that may be found depend on the query."""
        return self.lists is not None or self.exclude is not None


def as_filters(
    state: PositionsOfIds,
    n_queries: int,
    *,
    allowed: Any,
    exclude: Any,
    allowed_ids: Any,
    exclude_ids: Any,
) -> SearchFilters:
    """Combine all filters of one search, by position and by id, into SearchFilters.

    The arguments are those of ``SimilarityIndex.search``. If a sparse matrix was made before items
    were added, it has fewer columns than the index has positions. Such a matrix has no entries for
    the new items: ``exclude`` does not exclude them, and ``allowed`` does not allow them. Ids that
    are not in the index have no effect.
    """
    n_positions = state.n_positions
    _refuse_ids("allowed", allowed, "positions", is_refused_as_list=False)
    _refuse_ids(
        "exclude", exclude, "a sparse matrix of queries x positions", is_refused_as_list=True
    )
    allowed, exclude = _with_columns(allowed, n_positions), _with_columns(exclude, n_positions)
    lists, dropped = None, np.zeros(0, np.int64)
    if allowed_ids is not None:
        validation.check_none("allowed", allowed, "with allowed_ids")
        positions = _positions_of_ids("allowed_ids", allowed_ids, state, n_queries)
        if isinstance(positions, tuple):
            lists = positions
        else:
            allowed = positions
    if exclude_ids is not None:
        positions = _positions_of_ids("exclude_ids", exclude_ids, state, n_queries)
        if isinstance(positions, tuple):
            exclude = _with_pairs(exclude, positions, n_positions)
        elif drops_excluded_ids(len(positions)):
            dropped = positions
        elif lists is None and not validation.is_sparse(allowed):
            mask = np.ones(n_positions, np.bool_)
            if allowed is not None:
                mask &= validation.as_item_mask("allowed", allowed, n_positions)
            mask[positions] = False
            allowed = mask
        else:
            if lists is None:
                lists = as_pairs("allowed", allowed, (n_queries, n_positions))
                allowed = None
            lists = _lists_without(lists, positions)
    return SearchFilters(allowed, lists, exclude, dropped)


def _lists_without(
    lists: tuple[Integers, Integers], positions: Integers
) -> tuple[Integers, Integers]:
    """Remove the items at these positions from the list of allowed items of each query."""
    indptr, items = lists
    is_kept = ~np.isin(items, positions)
    return np.concatenate([[0], np.cumsum(is_kept)])[indptr], items[is_kept]


def drop_positions(neighbors: Neighbors, positions: Integers, k: int) -> Neighbors:
    """Drop the neighbours at these positions, and return the k best remaining neighbours.

    If fewer than k neighbours of a query remain, the result is padded.
    """
    if not len(positions):
        return neighbors
    is_dropped = np.isin(neighbors.indices, positions)
    indices = np.where(is_dropped, -1, neighbors.indices)
    scores = np.where(is_dropped, np.float32(-np.inf), neighbors.scores)
    # The stable sort moves the padding to the end of each row, and does not change the order of the
    # neighbours.
    order = np.argsort(indices < 0, axis=1, kind="stable")[:, :k]
    return Neighbors(*(np.take_along_axis(array, order, axis=1) for array in (indices, scores)))


def _refuse_ids(name: str, value: Any, rule: str, *, is_refused_as_list: bool) -> None:
    """Raise TypeError if `value` is a list of ids; positions and sparse matrices are accepted.

    A list of strings is always a list of ids. A list of numbers counts as a list of ids only if
    ``is_refused_as_list`` is True.
    """
    if not isinstance(value, list) or validation.is_empty_list(value):
        return
    array = np.asarray(value)
    if array.dtype.kind == "U" or (is_refused_as_list and array.ndim == 1):
        value_text = validation.format_value(value)
        raise TypeError(f"{name} must be {rule} (pass ids as {name}_ids), got {value_text}")


def _positions_of_ids(
    name: str, ids: Any, state: PositionsOfIds, n_queries: int
) -> Integers | tuple[Integers, Integers]:
    """Return the positions of these ids in ascending order, as one array for all queries.

    If ``ids`` contains a separate list for each query, the result is a tuple (indptr, positions)
    with the ascending positions of each list.
    """
    values = list(ids) if isinstance(ids, (set, frozenset, dict)) else ids
    is_nested = isinstance(values, (list, tuple)) and any(
        value is None or isinstance(value, (list, tuple, set, frozenset, dict, np.ndarray))
        for value in values
    )
    if not is_nested:
        positions = _find_positions(name, values, state)
        return validation.distinct_numbers(positions[positions >= 0], state.n_positions)
    if len(values) != n_queries:
        raise ValueError(
            f"{name} must have a list for each of {n_queries} queries, got {len(values)}"
        )
    return _positions_of_lists(name, values, state)


def _positions_of_lists(name: str, values: Any, state: PositionsOfIds) -> tuple[Integers, Integers]:
    """Return indptr (n + 1,) and, for each of n lists, the positions of its ids in ascending order.

    A list object that several queries share is converted only once, and an id that occurs in
    several lists is looked up only once.
    """
    number_of_list: dict[int, int] = {}
    list_of_query = [number_of_list.setdefault(id(value), len(number_of_list)) for value in values]
    distinct_lists = [
        [] if value is None else value.tolist() if isinstance(value, np.ndarray) else list(value)
        for value in dict(zip(list_of_query, values, strict=True)).values()
    ]
    ids = list(itertools.chain.from_iterable(distinct_lists))
    n_lists, n_positions = len(distinct_lists), max(1, state.n_positions)
    positions = _find_repeated_positions(name, ids, state)
    # Each (list, position) pair is encoded as one number, so that sorting these numbers sorts the
    # positions of every list.
    list_of_id = np.repeat(np.arange(n_lists), [len(one_list) for one_list in distinct_lists])
    pairs = np.sort((list_of_id * n_positions + positions)[positions >= 0])
    pairs = pairs[np.append(True, pairs[1:] != pairs[:-1])[: len(pairs)]]
    indptr = np.searchsorted(pairs, np.arange(n_lists + 1) * n_positions).astype(np.int64)
    positions = pairs % n_positions
    if n_lists == len(values):
        return indptr, positions
    counts = np.diff(indptr)[list_of_query]
    query_indptr = np.concatenate([[0], np.cumsum(counts)])
    offsets = np.repeat(indptr[list_of_query] - query_indptr[:-1], counts)
    return query_indptr, positions[np.arange(query_indptr[-1]) + offsets]


def _find_repeated_positions(name: str, ids: list[Any], state: PositionsOfIds) -> Integers:
    """Return the positions (m,) of ids, or -1 for unknown ids; repeated ids are looked up once."""
    # A dict would treat 1, True and 1.0 as the same key.
    if set(map(type, ids)) not in ({str}, {int}):
        return _find_positions(name, ids, state)
    distinct_ids = list(dict.fromkeys(ids))
    positions = _find_positions(name, distinct_ids, state)
    position_of = dict(zip(distinct_ids, positions.tolist(), strict=True))
    return np.fromiter(map(position_of.__getitem__, ids), np.int64, len(ids))


def _find_positions(name: str, ids: Any, state: PositionsOfIds) -> Integers:
    """Return the positions (m,) of ids, or -1 for unknown ids."""
    try:
        return state.find_positions(as_ids(name, ids, distinct=False))
    except TypeError as error:
        raise TypeError(str(error).replace("ids", name, 1)) from None


def _with_pairs(exclude: Any, pairs: tuple[Integers, Integers], n_positions: int) -> Any:
    """Add (query, position) pairs to ``exclude``, a sparse matrix of queries x positions.

    ``pairs`` is a tuple (indptr, positions), as in a CSR matrix. If ``exclude`` is None, the result
    contains only ``pairs``.
    """
    import scipy.sparse as sp

    indptr, positions = pairs
    ones = np.ones(len(positions), np.float32)
    matrix = sp.csr_array((ones, positions, indptr), shape=(len(indptr) - 1, n_positions))
    if exclude is None or validation.is_empty_list(exclude):
        return matrix
    return exclude + matrix


def _with_columns(matrix: Any, n_columns: int) -> Any:
    """Append empty columns to a sparse matrix, so that the result has ``n_columns`` columns."""
    if not validation.is_sparse(matrix) or matrix.shape[1] >= n_columns:
        return matrix
    import scipy.sparse as sp

    rows = sp.csr_array(matrix)
    return sp.csr_array((rows.data, rows.indices, rows.indptr), shape=(rows.shape[0], n_columns))
