"""What searches return: lists of neighbours, padded to one length, and their forms as tables."""

import importlib
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastcos.reports import MAX_ROWS, Table, as_table

# neighbours of a query that repr shows
_LISTED = 5


class Lists:
    """Lists of neighbours in other libraries' tables: one row per neighbour, no padding."""

    __slots__ = ()

    def to_pandas(self, *, ids: Any = None, query_ids: Any = None) -> Any:
        """Return the lists as a pandas DataFrame: query, rank, neighbor, score.

        Parameters
        ----------
        ids : array_like (p,), optional
            Ids of the items. Default: those of the index, or their numbers.
        query_ids : array_like (n,), optional
            Ids of the queries. Default: their numbers.

        Returns
        -------
        pandas.DataFrame
            One row per neighbour; rank counts from 1.

        Raises
        ------
        ImportError
            pandas is not installed.
        ValueError
            Fewer ids than items or queries.

        Examples
        --------
        >>> import fastcos
        >>> found = fastcos.top_k([[1.0, 0.0], [0.0, 1.0], [3.0, 0.1]], k=1)
        >>> found.to_pandas(ids=["a", "b", "c"])["neighbor"].tolist()
        ['c', 'c', 'a']
        """
        return _as_frame("pandas", self._columns(ids, query_ids))

    def to_polars(self, *, ids: Any = None, query_ids: Any = None) -> Any:
        """Return the lists as a polars DataFrame.

        Parameters
        ----------
        ids, query_ids : array_like, optional
            As of :meth:`to_pandas`, as are the columns and the errors.

        Returns
        -------
        polars.DataFrame

        Examples
        --------
        >>> import fastcos
        >>> found = fastcos.top_k([[1.0, 0.0], [0.0, 1.0], [3.0, 0.1]], k=1)
        >>> found.to_polars()["neighbor"].to_list()
        [2, 2, 0]
        """
        return _as_frame("polars", self._columns(ids, query_ids))

    def to_arrow(self, *, ids: Any = None, query_ids: Any = None) -> Any:
        """Return the lists as an Arrow table.

        Parameters
        ----------
        ids, query_ids : array_like, optional
            As of :meth:`to_pandas`, as are the columns and the errors.

        Returns
        -------
        pyarrow.Table

        Examples
        --------
        >>> import fastcos
        >>> found = fastcos.top_k([[1.0, 0.0], [0.0, 1.0], [3.0, 0.1]], k=1)
        >>> found.to_arrow().column_names
        ['query', 'rank', 'neighbor', 'score']
        """
        return _as_frame("pyarrow", self._columns(ids, query_ids))

    def _columns(self, ids: Any, query_ids: Any) -> dict[str, npt.NDArray[Any]]:
        indices: npt.NDArray[np.int64] = self.indices  # type: ignore[attr-defined]  # of subclasses
        own = getattr(self, "ids", None)
        is_item = indices >= 0
        queries, items = np.nonzero(is_item)[0], indices[is_item]
        if ids is None and own is not None:
            neighbors = own[is_item]
        else:
            neighbors = _named("ids", ids, items, int(items.max(initial=-1)) + 1)
        return {
            "query": _named("query_ids", query_ids, queries, len(indices)),
            "rank": np.nonzero(is_item)[1] + 1,
            "neighbor": neighbors,
            "score": self.scores[is_item],  # type: ignore[attr-defined]  # of subclasses
        }


class _Neighbors(NamedTuple):
    indices: npt.NDArray[np.int64]
    scores: npt.NDArray[np.float32]


@as_table
class Neighbors(_Neighbors, Lists):
    """The neighbours of every query, best first.

    Attributes
    ----------
    indices : ndarray (n, k), int64
        Items by descending score; equal scores by lower index. -1 where fewer than k qualify.
    scores : ndarray (n, k), float32
        Their scores; -inf where fewer than k qualify. Infinite where float32 cannot hold a score.

    Examples
    --------
    >>> import fastcos
    >>> found = fastcos.top_k([[1.0, 0.0], [0.0, 1.0], [3.0, 0.1]], k=1)
    >>> found.indices.ravel().tolist()
    [2, 2, 0]
    """

    __slots__ = ()

    def table(self) -> Table:
        """The first lists, for ``repr``: items with their scores."""
        return _listed(self.indices, self.scores)


class _IndexNeighbors(NamedTuple):
    indices: npt.NDArray[np.int64]
    scores: npt.NDArray[np.float32]
    ids: npt.NDArray[Any]


@as_table
class IndexNeighbors(_IndexNeighbors, Lists):
    """The neighbours of every query in an index, best first.

    Attributes
    ----------
    indices : ndarray (n, k), int64
        Positions of items by descending score; equal scores by lower position. -1 where fewer than
        k qualify.
    scores : ndarray (n, k), float32
        Their scores; -inf where fewer than k qualify.
    ids : ndarray (n, k), int64 or str
        Their ids; -1 or "" where fewer than k qualify.
    """

    __slots__ = ()

    def table(self) -> Table:
        """The first lists, for ``repr``: ids with their scores."""
        return _listed(self.ids, self.scores)


def padded(found: Neighbors, k: int) -> Neighbors:
    """Return found with k columns; the new ones hold no item."""
    missing = int(k) - found.indices.shape[1]
    if not missing:
        return found
    indices = np.pad(found.indices, ((0, 0), (0, missing)), constant_values=-1)
    return Neighbors(indices, np.pad(found.scores, ((0, 0), (0, missing)), constant_values=-np.inf))


def no_neighbors(n: int) -> Neighbors:
    """Return the neighbours of n queries that may find nothing."""
    return Neighbors(np.empty((n, 0), np.int64), np.empty((n, 0), np.float32))


def _as_frame(library: str, columns: dict[str, npt.NDArray[Any]]) -> Any:
    """Return columns as a table of pandas, polars or pyarrow."""
    try:
        module = importlib.import_module(library)
    except ImportError:
        raise ImportError(f"this table needs {library}: pip install {library}") from None
    make = module.table if library == "pyarrow" else module.DataFrame
    return make(columns)


def _listed(names: npt.NDArray[Any], scores: npt.NDArray[np.float32]) -> Table:
    """Return the first lists of items (n, k), and their scores."""
    (n, k), shown = scores.shape, (slice(MAX_ROWS), slice(_LISTED))
    # padding is no neighbour
    n_found = int((scores > -np.inf).sum(axis=1).max(initial=0))
    rows = [
        (query, *(f"{item} ({x:.3f})" if x > -np.inf else "" for item, x in zip(*one, strict=True)))
        for query, one in enumerate(zip(names[shown].tolist(), scores[shown].tolist(), strict=True))
    ]
    left = [
        f"{count:,} more {what}"
        for count, what in ((n - MAX_ROWS, "queries"), (n_found - _LISTED, "neighbours of each"))
        if count > 0
    ]
    ranks = (str(rank) for rank in range(1, min(k, _LISTED) + 1))
    title = f"Neighbors of {n:,} queries, k = {k}: items (scores) by rank"
    return Table(title, ("query", *ranks), rows, ", ".join(left))


def _named(name: str, ids: Any, numbers: npt.NDArray[np.int64], least: int) -> npt.NDArray[Any]:
    """Return the ids of these numbers; the numbers themselves without ids."""
    if ids is None:
        return numbers
    array = np.asarray(ids)
    if array.ndim != 1 or len(array) < least:
        raise ValueError(f"{name} must be of at least {least} ids, got shape {array.shape}")
    return array[numbers]
