"""The results of searches: the neighbours of each query with their scores, also as tables."""

import importlib
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastcos.reports import MAX_ROWS, Table, as_table
from fastcos.similarity.base import Measure
from fastcos.validation import Floats, Integers, Rows

# The largest number of neighbours per query that repr shows.
_MAX_LISTED = 5


class NeighborTables:
    """Methods that convert neighbours to tables of other libraries, with one row per neighbour.

    Subclasses have the attributes ``indices`` and ``scores``.
    """

    __slots__ = ()

    def to_pandas(self, *, ids: Any = None, query_ids: Any = None) -> Any:
        """Return a DataFrame with the columns ``query``, ``rank``, ``neighbor`` and ``score``.

        Parameters
        ----------
        ids : array_like (p,), optional
            The ids of the items. Default: the ids of the index, or the item numbers if there is no
            index.
        query_ids : array_like (n,), optional
            The ids of the queries. Default: the row numbers of the queries.

        Returns
        -------
        pandas.DataFrame
            One row per neighbour. The best neighbour has rank 1.

        Raises
        ------
        ImportError
            pandas is not installed.
        ValueError
            ``ids`` has fewer entries than there are items, or ``query_ids`` has fewer entries than
            there are queries.

        Examples
        --------
        >>> import fastcos
        >>> neighbors = fastcos.top_k([[1.0, 0.0], [0.0, 1.0], [3.0, 0.1]], k=1)
        >>> neighbors.to_pandas(ids=["a", "b", "c"])["neighbor"].tolist()
        ['c', 'c', 'a']
        """
        return _as_frame("pandas", self._columns(ids, query_ids))

    def to_polars(self, *, ids: Any = None, query_ids: Any = None) -> Any:
        """Return the neighbours as a polars DataFrame, with the same columns as :meth:`to_pandas`.

        Parameters
        ----------
        ids, query_ids : array_like, optional
            The same arguments as in :meth:`to_pandas`.

        Returns
        -------
        polars.DataFrame

        Examples
        --------
        >>> import fastcos
        >>> neighbors = fastcos.top_k([[1.0, 0.0], [0.0, 1.0], [3.0, 0.1]], k=1)
        >>> neighbors.to_polars()["neighbor"].to_list()
        [2, 2, 0]
        """
        return _as_frame("polars", self._columns(ids, query_ids))

    def to_arrow(self, *, ids: Any = None, query_ids: Any = None) -> Any:
        """Return the neighbours as an Arrow table, with the same columns as :meth:`to_pandas`.

        Parameters
        ----------
        ids, query_ids : array_like, optional
            The same arguments as in :meth:`to_pandas`.

        Returns
        -------
        pyarrow.Table

        Examples
        --------
        >>> import fastcos
        >>> neighbors = fastcos.top_k([[1.0, 0.0], [0.0, 1.0], [3.0, 0.1]], k=1)
        >>> neighbors.to_arrow().column_names
        ['query', 'rank', 'neighbor', 'score']
        """
        return _as_frame("pyarrow", self._columns(ids, query_ids))

    def _columns(self, ids: Any, query_ids: Any) -> dict[str, npt.NDArray[Any]]:
        indices: npt.NDArray[np.int64] = self.indices  # type: ignore[attr-defined]
        index_ids = getattr(self, "ids", None)
        is_item = indices >= 0
        queries, items = np.nonzero(is_item)[0], indices[is_item]
        if ids is None and index_ids is not None:
            neighbors = index_ids[is_item]
        else:
            neighbors = _ids_of("ids", ids, items, int(items.max(initial=-1)) + 1)
        return {
            "query": _ids_of("query_ids", query_ids, queries, len(indices)),
            "rank": np.nonzero(is_item)[1] + 1,
            "neighbor": neighbors,
            "score": self.scores[is_item],  # type: ignore[attr-defined]
        }


class _Neighbors(NamedTuple):
    indices: npt.NDArray[np.int64]
    scores: npt.NDArray[np.float32]


@as_table
class Neighbors(_Neighbors, NeighborTables):
    """The neighbours of each query, best first.

    Attributes
    ----------
    indices : ndarray (n, k), int64
        Item numbers by descending score. The order is that of the float64 scores, before they are
        rounded to float32; items with equal float64 scores are ordered by item number. If a query
        has fewer than k neighbours, the remaining entries are -1.
    scores : ndarray (n, k), float32
        The scores of the neighbours; -inf in entries without a neighbour. A score that is too large
        for float32 is infinite.

    Examples
    --------
    >>> import fastcos
    >>> neighbors = fastcos.top_k([[1.0, 0.0], [0.0, 1.0], [3.0, 0.1]], k=1)
    >>> neighbors.indices.ravel().tolist()
    [2, 2, 0]
    """

    __slots__ = ()

    def table(self) -> Table:
        """The table that ``repr`` shows: the neighbours of the first queries."""
        return _table_of(self.indices, self.scores)


class _IndexNeighbors(NamedTuple):
    indices: npt.NDArray[np.int64]
    scores: npt.NDArray[np.float32]
    ids: npt.NDArray[Any]


@as_table
class IndexNeighbors(_IndexNeighbors, NeighborTables):
    """The neighbours of each query in an index, best first.

    Attributes
    ----------
    indices : ndarray (n, k), int64
        Positions of items by descending score. The order is that of the float64 scores, before they
        are rounded to float32; items with equal float64 scores are ordered by position. If a query
        has fewer than k neighbours, the remaining entries are -1.
    scores : ndarray (n, k), float32
        The scores of the neighbours; -inf in entries without a neighbour.
    ids : ndarray (n, k), int64 or str
        The ids of the neighbours; -1 or "" in entries without a neighbour.
    """

    __slots__ = ()

    def table(self) -> Table:
        """The table that ``repr`` shows: the neighbours of the first queries."""
        return _table_of(self.ids, self.scores)


def neighbors_of(
    measure: Measure,
    Q: Rows,
    positions: Integers,
    raw_scores: Floats,
    min_score: float | None,
) -> Neighbors:
    """Convert the positions and raw scores (n, k) of neighbours to ``Neighbors``."""
    scores = rounded_scores(measure.to_score(raw_scores, Q))
    if min_score is not None:
        positions = np.where(scores < rounded_scores(min_score), -1, positions)
    if positions.min(initial=0) < 0:
        scores = np.where(positions < 0, np.float32(-np.inf), scores)
    return Neighbors(positions, scores)


def rounded_scores(scores: Any) -> npt.NDArray[np.float32]:
    """Return scores in float32, as searches return them; scores that are too large become infinite.

    This function also rounds thresholds to float32, before they are compared with scores. Therefore
    a pair qualifies if and only if its returned score is at least the rounded threshold. In
    particular, if a user passes a returned score as a threshold, the pairs with this score qualify.
    """
    with np.errstate(over="ignore"):
        return np.asarray(scores).astype(np.float32)


def padded(neighbors: Neighbors, k: int) -> Neighbors:
    """Return the neighbours with columns of padding appended, so that there are k columns."""
    padding = (0, 0), (0, int(k) - neighbors.indices.shape[1])
    if not padding[1][1]:
        return neighbors
    indices = np.pad(neighbors.indices, padding, constant_values=-1)
    return Neighbors(indices, np.pad(neighbors.scores, padding, constant_values=-np.inf))


def _as_frame(library: str, columns: dict[str, npt.NDArray[Any]]) -> Any:
    """Return the columns as a table of pandas, polars or pyarrow, depending on ``library``."""
    try:
        module = importlib.import_module(library)
    except ImportError:
        raise ImportError(f"this table needs {library}: pip install {library}") from None
    make = module.table if library == "pyarrow" else module.DataFrame
    return make(columns)


def _table_of(names: npt.NDArray[Any], scores: npt.NDArray[np.float32]) -> Table:
    """Return a table of the first neighbours of the first queries.

    ``names`` (n, k) contains the names of the neighbours in the table: their ids or item numbers.
    """
    n, k = scores.shape
    is_neighbor = scores > -np.inf
    n_neighbors = int(is_neighbor.sum(axis=1).max(initial=0))
    first_names = names[:MAX_ROWS, :_MAX_LISTED].tolist()
    first_scores = scores[:MAX_ROWS, :_MAX_LISTED].tolist()
    rows: list[tuple[Any, ...]] = []
    for query in range(len(first_names)):
        pairs = zip(first_names[query], first_scores[query], strict=True)
        cells = [f"{name} ({score:.3f})" if score > -np.inf else "" for name, score in pairs]
        rows.append((query, *cells))
    counts = (n - MAX_ROWS, "queries"), (n_neighbors - _MAX_LISTED, "neighbours of each")
    more = ", ".join(f"{count:,} more {unit}" for count, unit in counts if count > 0)
    ranks = (str(rank) for rank in range(1, min(k, _MAX_LISTED) + 1))
    queries = "1 query" if n == 1 else f"{n:,} queries"
    title = f"Neighbors of {queries}, k = {k}: items (scores) by rank"
    return Table(title, ("query", *ranks), rows, more)


def _ids_of(
    name: str, ids: Any, numbers: npt.NDArray[np.int64], min_length: int
) -> npt.NDArray[Any]:
    """Return the ids that belong to these numbers, or the numbers if there are no ids."""
    if ids is None:
        return numbers
    array = np.asarray(ids)
    if array.ndim != 1 or len(array) < min_length:
        raise ValueError(f"{name} must have at least {min_length} ids, got shape {array.shape}")
    return array[numbers]
