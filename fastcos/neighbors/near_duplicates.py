"""Groups of items that are nearly the same."""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastcos import validation
from fastcos.measures.base import Measure
from fastcos.neighbors.radius import neighbors_above
from fastcos.neighbors.types import Threshold

if TYPE_CHECKING:
    import scipy.sparse as sp


class NearDuplicates(NamedTuple):
    """Groups of items, numbered by their first members.

    Attributes
    ----------
    labels : ndarray (m,), int64
        Group of each item; an item without a near duplicate is a group of its own.
    representatives : ndarray (g,), int64
        The lowest member of each group: ``items[representatives]`` holds one item of each.

    Examples
    --------
    >>> from fastcos.neighbors import near_duplicates
    >>> near_duplicates([[1.0, 0.0], [0.0, 1.0], [2.0, 0.1]], 0.9).representatives.tolist()
    [0, 1]
    """

    labels: npt.NDArray[np.int64]
    representatives: npt.NDArray[np.int64]


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
        labels (m,) int64 and representatives (g,) int64.

    Raises
    ------
    ValueError
        More pairs than working_memory holds, NaN or infinity.

    Examples
    --------
    >>> from fastcos.neighbors import near_duplicates
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

    # a score of 0 connects, too
    pairs.data[:] = 1.0
    components = connected_components(pairs, directed=False)[1]
    _, first, labels = np.unique(components, return_index=True, return_inverse=True)
    order = np.argsort(first)
    number = np.empty(len(order), np.int64)
    number[order] = np.arange(len(order))
    return NearDuplicates(number[labels], first[order].astype(np.int64))
