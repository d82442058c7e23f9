"""Ids in an index: where they are, and searches that speak of ids in place of positions."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastcos import validation
from fastcos.neighbors.ids import Ids, are_strings, as_ids, shown
from fastcos.neighbors.index_parts import IndexPart, MappedPart
from fastcos.storage import memmap
from fastcos.validation import Integers


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
            raise TypeError(f"ids must be given as for the items of the index ({one!r}), got None")


def positions_in(parts: Sequence[IndexPart | MappedPart], found: Found, n: int) -> Integers:
    """Return the positions (n,) of what was found, -1 for the rest."""
    positions = np.full(n, -1, np.int64)
    for part, places, numbers in zip(parts, found.places, found.numbers, strict=True):
        positions[places] = part.positions_of(numbers)
    return positions


def filters(
    state: Any, n: int, allowed: Any, exclude: Any, allowed_ids: Any, exclude_ids: Any
) -> tuple[Any, Any]:
    """Return the arguments allowed and exclude of a search of n queries, with those by id.

    A matrix that was made before items were added has fewer columns than there are positions:
    it says nothing of the new ones. Ids that are not in the index have no effect.
    """
    n_items = state.fitted.n_items
    for name, value in (("allowed", allowed), ("exclude", exclude)):
        kind = getattr(np.asarray(value), "dtype", None) if isinstance(value, list) else None
        if kind is not None and (kind.kind == "U" or (name == "exclude" and np.ndim(value) == 1)):
            rule = "a sparse matrix of queries x positions" if name == "exclude" else "positions"
            raise TypeError(f"{name} must be {rule} (give ids as {name}_ids), got {value[:3]!r}")
    allowed, exclude = (_widened(one, n_items) for one in (allowed, exclude))
    if allowed_ids is not None:
        validation.check_none("allowed", allowed, "with allowed_ids")
        lists = _positions_of_lists("allowed_ids", allowed_ids, state, n)
        allowed = lists if isinstance(lists, np.ndarray) else _matrix(lists, n_items)
    if exclude_ids is not None:
        lists = _positions_of_lists("exclude_ids", exclude_ids, state, n)
        gone = _matrix([lists] * n if isinstance(lists, np.ndarray) else lists, n_items)
        exclude = gone if exclude is None else exclude + gone
    return allowed, exclude


def _positions_of_lists(name: str, given: Any, state: Any, n: int) -> Integers | list[Integers]:
    """Return the positions of ids for all queries, or of a list of ids for each query."""
    values = list(given) if isinstance(given, (set, frozenset, dict)) else given
    is_nested = isinstance(values, (list, tuple)) and any(
        one is None or isinstance(one, (list, tuple, set, frozenset, np.ndarray)) for one in values
    )
    if not is_nested:
        return _known(name, values, state)
    if len(values) != n:
        raise ValueError(f"{name} must have a list for each of {n} queries, got {len(values)}")
    lists = [[] if one is None else list(one) for one in values]
    flat = [one for ids in lists for one in ids]
    positions = _known(name, flat, state, keep=True)
    ends = np.cumsum([len(one) for one in lists])
    return [part[part >= 0] for part in np.split(positions, ends[:-1])]


def _known(name: str, ids: Any, state: Any, *, keep: bool = False) -> Integers:
    """Return the positions of those ids that are in the index; keep: -1 for the others."""
    wanted = as_ids(name, ids, distinct=False)
    try:
        found = find(state, wanted)
    except TypeError as error:
        raise TypeError(str(error).replace("ids", name, 1)) from None
    positions = positions_in(state.parts_with_ids, found, len(wanted))
    return positions if keep else np.unique(positions[positions >= 0])


def _matrix(lists: list[Integers], n_items: int) -> Any:
    """Return lists of positions as a sparse matrix."""
    import scipy.sparse as sp

    rows = np.repeat(np.arange(len(lists)), [len(one) for one in lists])
    columns = np.concatenate([np.zeros(0, np.int64), *lists])
    ones = np.ones(len(columns), np.float32)
    return sp.csr_array((ones, (rows, columns)), shape=(len(lists), n_items))


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
