"""Find groups of items that are near-duplicates of each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastcos import validation
from fastcos.parallel import memmap
from fastcos.reports import MAX_ROWS, Table, as_table
from fastcos.search.filters import no_exclusions
from fastcos.search.index_parts import Contents
from fastcos.search.options import ExecutionOptions, as_options
from fastcos.search.range_search import pairs_above
from fastcos.search.request import Threshold, as_threshold
from fastcos.search.sources import ItemSource, fit_items
from fastcos.similarity.base import Measure, get_measure

if TYPE_CHECKING:
    import scipy.sparse as sp

# The bytes that a pair takes while SciPy finds the connected components. SciPy converts the matrix
# of pairs to float64 and transposes it.
_BYTES_PER_CONNECTION = 48


@as_table
class NearDuplicates(NamedTuple):
    """Groups of items that are connected by pairs with high scores, and the pairs themselves.

    The groups are in the order of their first members.

    Attributes
    ----------
    labels : ndarray (m,), int64
        The group number of each item. An item without a near-duplicate forms a group by itself.
    representatives : ndarray (g,), int64
        The first member of each group. ``items[representatives]`` therefore contains one item per
        group.
    pairs : ndarray (n, 2), int64
        The pairs of items whose score is at least ``min_score``, by descending score. The first
        item of a pair has the lower item number.
    scores : ndarray (n,), float32
        The score of each pair.

    Examples
    --------
    >>> from fastcos.search import near_duplicates
    >>> groups = near_duplicates([[1.0, 0.0], [0.0, 1.0], [2.0, 0.1]], 0.9)
    >>> groups.representatives.tolist(), groups.pairs.tolist()
    ([0, 1], [[0, 2]])
    >>> groups.verdict.partition(" (")[0]
    '1 of 3 items are near-duplicates of others'
    """

    labels: npt.NDArray[np.int64]
    representatives: npt.NDArray[np.int64]
    pairs: npt.NDArray[np.int64]
    scores: npt.NDArray[np.float32]

    @property
    def verdict(self) -> str:
        """Two sentences: how many items are near-duplicates, and how many are not."""
        n_items, n_groups = int((self.labels >= 0).sum()), len(self.representatives)
        n_shared = len(np.unique(self.labels[self.pairs[:, 0]]))
        return (
            f"{n_items - n_groups:,} of {n_items:,} items are near-duplicates of others (pairs: "
            f"{len(self.pairs):,}, groups: {n_shared:,}). If only the first item of each "
            f"group is kept, {n_groups:,} items remain."
        )

    def table(self) -> Table:
        """The pairs with the highest scores as a table, which ``repr`` shows below the verdict."""
        rows = [
            (float(score), first, second, group)
            for score, first, second, group, *_ in self.rows()[:MAX_ROWS]
        ]
        n_more = len(self.pairs) - MAX_ROWS
        header = ("score", "first", "second", "group")
        note = f"{n_more:,} more pairs" if n_more > 0 else ""
        return Table("pairs by descending score", header, rows, note, lead=self.verdict)

    def rows(self, ids: Any = None, texts: Any = None) -> list[tuple[Any, ...]]:
        """Return the pairs for review, by descending score.

        Parameters
        ----------
        ids : array_like (p,), optional
            The id of each item. Default: the item numbers.
        texts : array_like (p,), optional
            The text of each item.

        Returns
        -------
        list of tuple
            For each pair: its score, its two items, their group number, the representative of their
            group and, if ``texts`` is passed, the texts of the two items.
        """
        names = np.arange(len(self.labels)) if ids is None else np.asarray(ids)
        item_texts = None if texts is None else np.asarray(texts)
        first, second = self.pairs.T
        group = self.labels[first]
        columns = [self.scores, names[first], names[second], group]
        columns.append(names[self.representatives[group]])
        if item_texts is not None:
            columns += [item_texts[first], item_texts[second]]
        return list(zip(*(column.tolist() for column in columns), strict=True))


def near_duplicates(
    items: Any,
    min_score: float | Threshold,
    *,
    measure: str | Measure = "cosine",
    n_threads: int | None = None,
    working_memory: float | None = None,
) -> NearDuplicates:
    """Group the items that are connected by pairs with a score of at least `min_score`.

    Two members of a group need not be similar to each other, because a chain of similar items may
    connect them. Counting the pairs takes O(m^2 d) time. In the worst case, scoring the pairs takes
    about as long as counting them. If the items are already in an index, use
    :meth:`fastcos.SimilarityIndex.near_duplicates`.

    Parameters
    ----------
    items : array_like (m, d)
        One row per item.
    min_score : float or Calibration
        The smallest score that connects two items, as in :func:`fastcos.neighbors_above`.
    measure, n_threads, working_memory
        The same arguments as in :func:`fastcos.neighbors_above`.

    Returns
    -------
    NearDuplicates
        The groups, and the pairs with their scores.

    Raises
    ------
    ValueError
        The pairs do not fit into `working_memory`, or the rows contain NaN or infinity.

    Examples
    --------
    >>> from fastcos.search import near_duplicates
    >>> near_duplicates([[1.0, 0.0], [0.0, 1.0], [2.0, 0.1]], 0.9).labels.tolist()
    [0, 1, 0]
    """
    X = validation.as_rows("items", items)
    unfitted_measure = get_measure(measure)
    threshold = as_threshold("min_score", min_score, unfitted_measure)
    options = as_options(n_threads, working_memory)
    validation.check_scorable("items", X, X)
    exclusions = no_exclusions(len(X), exclude_self=True)
    pairs = pairs_above(
        fit_items(X, unfitted_measure, options), X, threshold, exclusions, options,
        bytes_per_pair=_BYTES_PER_CONNECTION,
    )  # fmt: skip
    return connected_items(pairs)


def connected_contents(
    items: ItemSource, contents: Contents, threshold: float, options: ExecutionOptions
) -> NearDuplicates:
    """Return the near-duplicates among the items of an index; items are identified by position.

    ``contents`` holds the items that were not removed. For a removed item, the label is -1.
    """
    rows = memmap.read_rows("items", contents.rows, 0, len(contents.rows))
    exclusions = no_exclusions(len(rows))
    self_excluded = exclusions._replace(self_rows=contents.positions)
    pairs = pairs_above(
        items, rows, threshold, self_excluded, options, bytes_per_pair=_BYTES_PER_CONNECTION
    )
    if len(rows) < items.n_items:
        pairs = pairs[:, contents.positions]
    groups = connected_items(pairs)
    labels = np.full(items.n_items, -1, np.int64)
    labels[contents.positions] = groups.labels
    return NearDuplicates(
        labels,
        contents.positions[groups.representatives],
        contents.positions[groups.pairs],
        groups.scores,
    )


def connected_items(pairs: sp.csr_array) -> NearDuplicates:
    """Return the groups of items that are connected by the pairs in a sparse matrix (m, m).

    The values of the matrix are the scores of the pairs, and the function overwrites them.
    """
    from scipy.sparse.csgraph import connected_components

    entries = pairs.tocoo()
    is_first = entries.row < entries.col
    ends = np.stack([entries.row[is_first], entries.col[is_first]], axis=1).astype(np.int64)
    scores = entries.data[is_first]
    best_first = np.argsort(-scores, kind="stable")
    # The two items of a pair must be connected even if their score is 0, but SciPy treats an entry
    # with the value 0 as missing. All scores are therefore replaced by 1.
    pairs.data[:] = 1.0
    components = connected_components(pairs, directed=False)[1]
    _, first_items, labels = np.unique(components, return_index=True, return_inverse=True)
    # Groups are numbered in the order of their first items.
    order = np.argsort(first_items)
    number_of_group = np.empty(len(order), np.int64)
    number_of_group[order] = np.arange(len(order))
    representatives = first_items[order].astype(np.int64)
    return NearDuplicates(
        number_of_group[labels], representatives, ends[best_first], scores[best_first]
    )


def no_near_duplicates(n_positions: int) -> NearDuplicates:
    """Return the empty result for an index that contains no items."""
    return NearDuplicates(
        np.full(n_positions, -1, np.int64), np.zeros(0, np.int64), np.zeros((0, 2), np.int64),
        np.zeros(0, np.float32),
    )  # fmt: skip
