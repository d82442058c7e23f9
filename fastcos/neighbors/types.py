"""What goes into the search pipeline, and what comes out."""

import importlib
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from fastcos import validation
from fastcos.engine.packing import ExcludedItems, Integers
from fastcos.engine.segments import Segment
from fastcos.measures.base import Measure
from fastcos.neighbors.index_model import check_same_model
from fastcos.reports.table import MAX_ROWS, Table, as_table

# share of the working memory for searching a segment that was read from disk; the rest is for the
# segment and the batch
MAPPED_SEARCH_SHARE = 0.25
# a cosine of float32 rows may exceed 1 by rounding
_LARGEST_COSINE = 1.001
# neighbours of a query that repr shows
_LISTED = 5


@as_table
class Neighbors(NamedTuple):
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

    indices: npt.NDArray[np.int64]
    scores: npt.NDArray[np.float32]

    def table(self) -> Table:
        """The first lists, for ``repr``: items with their scores."""
        return listed(self.indices, self.scores)

    def to_pandas(self, *, ids: Any = None, query_ids: Any = None) -> Any:
        """Return the lists as a pandas DataFrame: query, rank, neighbor, score. No padding.

        Parameters
        ----------
        ids : array_like (p,), optional
            Ids of the items. Default: their numbers.
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
        return as_frame("pandas", self._columns(ids, query_ids))

    def to_polars(self, *, ids: Any = None, query_ids: Any = None) -> Any:
        """Return the lists as a polars DataFrame, as :meth:`to_pandas` does.

        Parameters
        ----------
        ids, query_ids : array_like, optional
            As of :meth:`to_pandas`.

        Returns
        -------
        polars.DataFrame

        Raises
        ------
        ImportError
            polars is not installed.
        ValueError
            Fewer ids than items or queries.

        Examples
        --------
        >>> import fastcos
        >>> found = fastcos.top_k([[1.0, 0.0], [0.0, 1.0], [3.0, 0.1]], k=1)
        >>> found.to_polars()["neighbor"].to_list()
        [2, 2, 0]
        """
        return as_frame("polars", self._columns(ids, query_ids))

    def to_arrow(self, *, ids: Any = None, query_ids: Any = None) -> Any:
        """Return the lists as an Arrow table, as :meth:`to_pandas` does.

        Parameters
        ----------
        ids, query_ids : array_like, optional
            As of :meth:`to_pandas`.

        Returns
        -------
        pyarrow.Table

        Raises
        ------
        ImportError
            pyarrow is not installed.
        ValueError
            Fewer ids than items or queries.

        Examples
        --------
        >>> import fastcos
        >>> found = fastcos.top_k([[1.0, 0.0], [0.0, 1.0], [3.0, 0.1]], k=1)
        >>> found.to_arrow().column_names
        ['query', 'rank', 'neighbor', 'score']
        """
        return as_frame("pyarrow", self._columns(ids, query_ids))

    def _columns(self, ids: Any, query_ids: Any) -> dict[str, npt.NDArray[Any]]:
        queries, columns = np.nonzero(self.indices >= 0)
        items = self.indices[queries, columns]
        return {
            "query": _named("query_ids", query_ids, queries, len(self.indices)),
            "rank": columns + 1,
            "neighbor": _named("ids", ids, items, int(items.max(initial=-1)) + 1),
            "score": self.scores[queries, columns],
        }


def as_frame(library: str, columns: dict[str, npt.NDArray[Any]]) -> Any:
    """Return columns as a table of pandas, polars or pyarrow."""
    try:
        module = importlib.import_module(library)
    except ImportError:
        raise ImportError(f"this table needs {library}: pip install {library}") from None
    make = module.table if library == "pyarrow" else module.DataFrame
    return make(columns)


def listed(names: npt.NDArray[Any], scores: npt.NDArray[np.float32]) -> Table:
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
    found: npt.NDArray[Any] = array[numbers]
    return found


class FittedItems(NamedTuple):
    """What a search reads of the items; never changed, only replaced as a whole.

    n_items counts positions, those of removed items included. mapped: memory-mapped rows (p, d)
    that every search reads in blocks, without segments.
    """

    measure: Measure
    n_items: int
    segments: tuple[Segment, ...]
    mapped: Any = None

    @property
    def n_live(self) -> int:
        """Items that can be found."""
        if self.mapped is not None:
            return self.n_items
        return sum(len(segment.numbers) for segment in self.segments)

    @property
    def rows(self) -> Any:
        """The rows as given where they are one array: those of a map, or of the first segment."""
        return self.segments[0].rows if self.mapped is None else self.mapped


class SearchRequest(NamedTuple):
    """A checked question: what every entry point hands to the pipeline.

    permitted: ascending positions of the items that may be found, None for all; lists (indptr,
    positions): those that each query may find, None for all; exclusions: of each query, None for
    nothing.
    """

    queries: Any
    k: int
    permitted: Integers | None
    exclusions: ExcludedItems | None
    min_score: float | None
    lists: tuple[Integers, Integers] | None = None


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


class Threshold(Protocol):
    """A threshold that knows its measure, such as ``fastcos.calibration.Calibration``."""

    @property
    def measure(self) -> str:
        """Name of the measure."""

    def threshold(self) -> float:
        """Return the least score of a pair."""


def as_min_score(value: Any, measure: Measure, model: str | None = None) -> Any:
    """Return the threshold of a calibration of the same measure; anything else as it is."""
    if callable(getattr(value, "threshold", None)):
        return as_threshold("min_score", value, measure, model)
    return value


def as_threshold(name: str, value: object, measure: Measure, model: str | None = None) -> float:
    """Return a score as it is, and the score of a calibration of the same measure and model."""
    if not callable(getattr(value, "threshold", None)):
        score = validation.as_real(name, value)
        if measure.name == "cosine" and score > _LARGEST_COSINE:
            raise ValueError(f"{name} must be at most 1 for cosine, got {value!r}")
        return score
    calibrated: Threshold = value  # type: ignore[assignment]
    if calibrated.measure != measure.name:
        raise ValueError(
            f"{name} must be calibrated for {measure.name}, got one for {calibrated.measure}"
        )
    parts = (getattr(value, "model", None), getattr(value, "model_version", None))
    check_same_model(name, model, "@".join(one for one in parts if one) or None)
    return float(calibrated.threshold())
