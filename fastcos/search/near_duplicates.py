"""Groups of items that are nearly the same."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastcos import validation
from fastcos.reports import MAX_ROWS, Table, as_table
from fastcos.search.radius import neighbors_above
from fastcos.search.request import Threshold
from fastcos.similarity.base import Measure

if TYPE_CHECKING:
    import scipy.sparse as sp


@as_table
class NearDuplicates(NamedTuple):
    """Groups of items, numbered by their first members, and the pairs that connect them.

    Attributes
    ----------
    labels : ndarray (m,), int64
        Group of each item; an item without a near duplicate is a group of its own.
    representatives : ndarray (g,), int64
        The lowest member of each group: ``items[representatives]`` holds one item of each.
    pairs : ndarray (n, 2), int64
        The pairs that reach the threshold, the lower item first; by descending score.
    scores : ndarray (n,), float32
        Of the pairs.

    Examples
    --------
    >>> from fastcos.search import near_duplicates
    >>> found = near_duplicates([[1.0, 0.0], [0.0, 1.0], [2.0, 0.1]], 0.9)
    >>> found.representatives.tolist(), found.pairs.tolist()
    ([0, 1], [[0, 2]])
    >>> found.verdict.partition(" (")[0]
    '1 of 3 items are near-duplicates of others'
    """

    labels: npt.NDArray[np.int64]
    representatives: npt.NDArray[np.int64]
    pairs: npt.NDArray[np.int64]
    scores: npt.NDArray[np.float32]

    @property
    def verdict(self) -> str:
        """How many items are near-duplicates, and what would be kept, in two sentences."""
        n, kept = int((self.labels >= 0).sum()), len(self.representatives)
        n_groups = len(np.unique(self.labels[self.pairs[:, 0]]))
        return (
            f"{n - kept:,} of {n:,} items are near-duplicates of others (pairs: "
            f"{len(self.pairs):,}, groups: {n_groups:,}). Keeping the first of each group leaves "
            f"{kept:,}."
        )

    def table(self) -> Table:
        """The best pairs, for ``repr``, below the verdict."""
        rows = [
            (float(score), first, second, group)
            for score, first, second, group, *_ in self.rows()[:MAX_ROWS]
        ]
        left = len(self.pairs) - MAX_ROWS
        header = ("score", "first", "second", "group")
        more = f"{left:,} more pairs" if left > 0 else ""
        return Table("pairs by descending score", header, rows, more, lead=self.verdict)

    def rows(self, ids: Any = None, texts: Any = None) -> list[tuple[Any, ...]]:
        """The pairs to review: score, both items, their group, which item of it is kept; texts.

        Parameters
        ----------
        ids, texts : array_like (p,), optional
            Ids in place of the numbers of the items, and a text for each item.

        Returns
        -------
        list of tuple
            By descending score.
        """
        names = np.arange(len(self.labels)) if ids is None else np.asarray(ids)
        said = None if texts is None else np.asarray(texts)
        first, second = self.pairs.T
        group = self.labels[first]
        columns = [self.scores, names[first], names[second], group]
        columns.append(names[self.representatives[group]])
        columns += [] if said is None else [said[first], said[second]]
        return list(zip(*(column.tolist() for column in columns), strict=True))


def near_duplicates(
    items: Any,
    threshold: float | Threshold,
    *,
    measure: str | Measure = "cosine",
    n_threads: int | None = None,
    working_memory: float | None = None,
) -> NearDuplicates:
    """Connected components of the pairs with a score of at least threshold. Time 2 O(m^2 d).

    Two members of a group need not be similar themselves: a chain of similar items connects them.
    Of an index that exists: :meth:`fastcos.SimilarityIndex.near_duplicates`.

    Parameters
    ----------
    items : array_like (m, d)
        One row per item.
    threshold : float or Calibration
        Score from which two items are connected, as in :func:`fastcos.neighbors_above`.
    measure, n_threads, working_memory
        As in :func:`fastcos.neighbors_above`.

    Returns
    -------
    NearDuplicates
        Groups, and the pairs with their scores.

    Raises
    ------
    ValueError
        More pairs than working_memory holds, NaN or infinity.

    Examples
    --------
    >>> from fastcos.search import near_duplicates
    >>> near_duplicates([[1.0, 0.0], [0.0, 1.0], [2.0, 0.1]], 0.9).labels.tolist()
    [0, 1, 0]
    """
    X = validation.as_rows("items", items)
    pairs = neighbors_above(
        X, threshold, measure=measure, n_threads=n_threads, working_memory=working_memory
    )
    return connected(pairs)


def connected(pairs: "sp.csr_array") -> NearDuplicates:
    """Return the connected components of pairs (m, m) of items."""
    from scipy.sparse.csgraph import connected_components

    upper = pairs.tocoo()
    is_first = upper.row < upper.col
    ends = np.stack([upper.row[is_first], upper.col[is_first]], axis=1).astype(np.int64)
    scores = upper.data[is_first]
    best = np.argsort(-scores, kind="stable")
    # a score of 0 connects, too
    pairs.data[:] = 1.0
    components = connected_components(pairs, directed=False)[1]
    _, first, labels = np.unique(components, return_index=True, return_inverse=True)
    order = np.argsort(first)
    number = np.empty(len(order), np.int64)
    number[order] = np.arange(len(order))
    return NearDuplicates(number[labels], first[order].astype(np.int64), ends[best], scores[best])
