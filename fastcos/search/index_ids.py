"""Ids in an index: where they are, and searches that speak of ids in place of positions."""

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastcos import validation
from fastcos.parallel import memmap
from fastcos.search.ids import Ids, are_strings, as_ids, shown
from fastcos.search.index_parts import IndexPart, MappedPart
from fastcos.validation import Integers

# ids that a search finds and drops afterwards: its lists are longer by so many. More are masked
# beforehand, in O(items)
_MOST_DROPPED = 64


class Found(NamedTuple):
    """Which of some ids are in which part, with their numbers there."""

    places: list[npt.NDArray[np.intp]]
    numbers: list[Integers]


def find(state: Any, ids: Ids) -> Found:
    """Find ids in every part; they must be of the type of those in the index."""
    places, numbers = [], []
    parts = state.parts_with_ids
    if parts and len(ids) and are_strings(ids) != state.has_names:
        rule = "strings" if state.has_names else "whole numbers"
        raise TypeError(f"ids must be {rule} as those of the index, got {shown(ids[0])}")
    for part in parts:
        some, found = part.find(ids) if len(ids) else (np.zeros(0, np.int64), np.zeros(0, bool))
        places.append(np.flatnonzero(found))
        numbers.append(some[found])
    return Found(places, numbers)


def find_all(state: Any, ids: Ids) -> Found:
    """Find ids; each must be in the index."""
    found, missing = find(state, ids), np.ones(len(ids), np.bool_)
    for places in found.places:
        missing[places] = False
    if missing.any():
        raise ValueError(f"ids must be in the index, got {shown(ids[missing][0])}")
    return found


def check_none(ids: Ids, found: Found) -> None:
    """Refuse ids that are in the index."""
    known = [place for places in found.places for place in places[:1]]
    if known:
        got = shown(ids[min(known)])
        raise ValueError(f"ids must be new to the index (use upsert), got {got}")


def check_are_positions(parts: Sequence[IndexPart]) -> None:
    """Refuse new items without ids where those of the index have ids of their own."""
    for part in parts:
        last = len(part.ids.values) - 1
        one = part.ids.values[last].item()
        if one != part.segment.positions_of(np.array([last]))[0]:
            rule = f"given as for the items of the index ({validation.format_value(one)})"
            raise TypeError(f"ids must be {rule}, got None")


def positions_in(parts: Sequence[IndexPart | MappedPart], found: Found, n: int) -> Integers:
    """Return the positions (n,) of what was found, -1 for the rest."""
    positions = np.full(n, -1, np.int64)
    for part, places, numbers in zip(parts, found.places, found.numbers, strict=True):
        positions[places] = part.positions_of(numbers)
    return positions


class Filters(NamedTuple):
    """What the queries of a search may find.

    allowed: a mask, or positions, of the items that every query may find; lists (indptr,
    positions): those that each query may find; exclude: a sparse matrix of what each query may not
    find; dropped (m,): positions that no query may find, which the caller takes out of lists that
    are longer by m. Each of the first three is None where it does not restrict the search.
    """

    allowed: Any
    lists: tuple[Integers, Integers] | None
    exclude: Any
    dropped: Integers


def filters(
    state: Any, n: int, allowed: Any, exclude: Any, allowed_ids: Any, exclude_ids: Any,
    *, may_drop: bool,
) -> Filters:  # fmt: skip
    """Return what n queries may find by the arguments of a search; may_drop: see Filters.

    A matrix that was made before items were added has fewer columns than there are positions:
    it says nothing of the new ones. Ids that are not in the index have no effect.
    """
    n_items = state.fitted.n_items
    for name, value in (("allowed", allowed), ("exclude", exclude)):
        kind = getattr(np.asarray(value), "dtype", None) if isinstance(value, list) else None
        if kind is None or validation.is_empty_list(value):
            continue
        if kind.kind == "U" or (name == "exclude" and np.ndim(value) == 1):
            rule = "a sparse matrix of queries x positions" if name == "exclude" else "positions"
            got = validation.format_value(value)
            raise TypeError(f"{name} must be {rule} (give ids as {name}_ids), got {got}")
    allowed, exclude = (_widened(one, n_items) for one in (allowed, exclude))
    lists, dropped = None, np.zeros(0, np.int64)
    if allowed_ids is not None:
        validation.check_none("allowed", allowed, "with allowed_ids")
        named = _positions_by_id("allowed_ids", allowed_ids, state, n)
        allowed, lists = (None, named) if isinstance(named, tuple) else (named, None)
    if exclude_ids is not None:
        gone = _positions_by_id("exclude_ids", exclude_ids, state, n)
        if isinstance(gone, tuple):
            exclude = _with_pairs(exclude, gone, n_items)
        elif may_drop and len(gone) <= _MOST_DROPPED:
            dropped = gone
        elif lists is None and not validation.is_sparse(allowed):
            mask = np.ones(n_items, np.bool_)
            if allowed is not None:
                mask &= validation.as_item_mask("allowed", allowed, n_items)
            mask[gone] = False
            allowed = mask
        else:
            ends = np.arange(n + 1, dtype=np.int64) * len(gone)
            exclude = _with_pairs(exclude, (ends, np.tile(gone, n)), n_items)
    return Filters(allowed, lists, exclude, dropped)


def without(found: Any, dropped: Integers, k: int) -> Any:
    """Return the neighbours with the first k columns of every query that are not dropped."""
    if not len(dropped):
        return found
    # a stable order: those that stay keep theirs
    order = np.argsort(np.isin(found.indices, dropped), axis=1, kind="stable")[:, :k]
    return type(found)(*(np.take_along_axis(one, order, axis=1) for one in found))


def _positions_by_id(
    name: str, given: Any, state: Any, n: int
) -> Integers | tuple[Integers, Integers]:
    """Return the ascending positions of ids for all queries, or lists of them for each query."""
    values = list(given) if isinstance(given, (set, frozenset, dict)) else given
    is_nested = isinstance(values, (list, tuple)) and any(
        one is None or isinstance(one, (list, tuple, set, frozenset, dict, np.ndarray))
        for one in values
    )
    if not is_nested:
        positions = _known(name, values, state)
        return validation.distinct_numbers(positions[positions >= 0], state.fitted.n_items)
    if len(values) != n:
        raise ValueError(f"{name} must have a list for each of {n} queries, got {len(values)}")
    return _positions_of_lists(name, values, state)


def _positions_of_lists(name: str, values: Any, state: Any) -> tuple[Integers, Integers]:
    """Return indptr (n + 1,) and the ascending positions of the ids of each of n lists.

    A list that several queries share is looked up once, and so is an id of several lists.
    """
    numbers: dict[int, int] = {}
    which = [numbers.setdefault(id(one), len(numbers)) for one in values]
    distinct = dict(zip(which, values, strict=True)).values()
    lists = [
        [] if one is None else one.tolist() if isinstance(one, np.ndarray) else list(one)
        for one in distinct
    ]
    ids = list(itertools.chain.from_iterable(lists))
    positions, n_items = _known_of_many(name, ids, state), state.fitted.n_items
    keys = np.repeat(np.arange(len(lists)), [len(one) for one in lists]) * n_items + positions
    keys = np.sort(keys[positions >= 0])
    keys = keys[np.append(True, keys[1:] != keys[:-1])[: len(keys)]]
    ends = np.searchsorted(keys, np.arange(len(lists) + 1) * n_items)
    indptr, positions = ends.astype(np.int64), keys % max(1, n_items)
    if len(lists) == len(values):
        return indptr, positions
    counts = np.diff(indptr)[which]
    repeated = np.concatenate([[0], np.cumsum(counts)])
    places = np.arange(repeated[-1]) + np.repeat(indptr[which] - repeated[:-1], counts)
    return repeated, positions[places]


def _known_of_many(name: str, ids: list[Any], state: Any) -> Integers:
    """Return the positions (m,) of ids, many of which occur several times; -1 for others."""
    if set(map(type, ids)) not in ({str}, {int}):  # 1, True and 1.0 would be one key
        return _known(name, ids, state)
    distinct = list(dict.fromkeys(ids))
    position_of = dict(zip(distinct, _known(name, distinct, state).tolist(), strict=True))
    return np.fromiter(map(position_of.__getitem__, ids), np.int64, len(ids))


def _known(name: str, ids: Any, state: Any) -> Integers:
    """Return the positions (m,) of ids, -1 for those that are not in the index."""
    wanted = as_ids(name, ids, distinct=False)
    try:
        found = find(state, wanted)
    except TypeError as error:
        raise TypeError(str(error).replace("ids", name, 1)) from None
    return positions_in(state.parts_with_ids, found, len(wanted))


def _with_pairs(exclude: Any, lists: tuple[Integers, Integers], n_items: int) -> Any:
    """Return a sparse matrix, if any, with the positions of lists added to its non-zeros."""
    import scipy.sparse as sp

    indptr, positions = lists
    ones = np.ones(len(positions), np.float32)
    pairs = sp.csr_array((ones, positions, indptr), shape=(len(indptr) - 1, n_items))
    if exclude is None or validation.is_empty_list(exclude):
        return pairs
    return exclude + pairs


def _widened(matrix: Any, n_items: int) -> Any:
    """Return a sparse matrix with at least n_items columns; anything else as it is."""
    if not validation.is_sparse(matrix) or matrix.shape[1] >= n_items:
        return matrix
    import scipy.sparse as sp

    rows = sp.csr_array(matrix)
    return sp.csr_array((rows.data, rows.indices, rows.indptr), shape=(rows.shape[0], n_items))


class ById:
    """What an index does by id; a part of ``SimilarityIndex``."""

    if TYPE_CHECKING:
        search: Any
        ids_of: Any
        _state: Any

        def _current(self) -> Any:
            """Return the state."""

    def __len__(self) -> int:
        """Items that can be found; 0 before ``fit``."""
        return 0 if self._state is None else self._state.fitted.n_live

    def __contains__(self, id: Any) -> bool:
        """Whether an item has this id."""
        state = self._current()
        try:
            found = find(state, as_ids("id", [id]))
        except (TypeError, ValueError):  # no id, or of another type than those of the index
            return False
        return any(len(places) for places in found.places)

    @property
    def ids(self) -> Ids:
        """The ids of all items that can be found, by position."""
        state = self._current()
        return state.ids_at(state.live_positions())

    def vectors_of(self, ids: Any) -> npt.NDArray[Any]:
        """Return the rows of items as they were given last. O(m d).

        Parameters
        ----------
        ids : array_like (m,), int64 or str as those of the index
            All in the index.

        Returns
        -------
        ndarray (m, d), float32 or float64
            In the order of ids.

        Raises
        ------
        ValueError
            An id is not in the index.
        """
        return self._rows_of(ids)[0]

    def similar(
        self,
        ids: Any,
        k: int = 10,
        *,
        allowed_ids: Any = None,
        exclude_ids: Any = None,
        min_score: float | None = None,
        n_threads: int | None = None,
    ) -> Any:
        """The k items most similar to each of these items, without itself.

        Parameters
        ----------
        ids : array_like (m,), int64 or str as those of the index; or one id
            All in the index.
        k, allowed_ids, exclude_ids, min_score, n_threads
            As in :meth:`search`.

        Returns
        -------
        IndexNeighbors
            indices (m, k) int64, scores (m, k) float32 and ids (m, k).

        Raises
        ------
        ValueError
            An id is not in the index.

        Examples
        --------
        >>> import fastcos
        >>> index = fastcos.SimilarityIndex().fit([[1.0, 0.0], [1.0, 0.2], [0.0, 1.0]], [7, 8, 9])
        >>> index.similar(7, k=1).ids.tolist()
        [[8]]
        >>> index.similar([7, 9], k=1, exclude_ids=[[8], []]).ids.tolist()
        [[9], [8]]
        """
        k = validation.as_count("k", k)
        rows, positions = self._rows_of([ids] if np.ndim(ids) == 0 else ids)
        # one more, because an item is a neighbour of itself, which a plain search need not exclude
        found = self.search(
            rows, k + 1, allowed_ids=allowed_ids, exclude_ids=exclude_ids, min_score=min_score,
            n_threads=n_threads,
        )  # fmt: skip
        is_own = found.indices == positions[:, None]
        left_out = np.where(is_own.any(axis=1), is_own.argmax(axis=1), k)
        kept = np.arange(k + 1) != left_out[:, None]
        return type(found)(*(one[kept].reshape(len(rows), k) for one in found))

    def _rows_of(self, ids: Any) -> tuple[npt.NDArray[Any], Integers]:
        """Return the rows of items, and their positions."""
        state, wanted = self._current(), as_ids("ids", ids, distinct=False)
        found = find_all(state, wanted)
        rows = [
            memmap.take_rows("items", part.rows, numbers)
            for part, numbers in zip(state.parts_with_ids, found.numbers, strict=True)
        ]
        kind = np.result_type(np.float32, *(one.dtype for one in rows))
        vectors = np.empty((len(wanted), state.width), kind)
        for places, some in zip(found.places, rows, strict=True):
            vectors[places] = some
        return vectors, positions_in(state.parts_with_ids, found, len(wanted))
