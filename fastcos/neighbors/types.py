"""What goes into the search pipeline, and what comes out."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastcos.engine.packing import ExcludedItems, Integers
from fastcos.engine.segments import Segment
from fastcos.measures.base import Measure

# share of the working memory for searching a segment that was read from disk; the rest is for the
# segment and the batch
MAPPED_SEARCH_SHARE = 0.25


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
