"""Whether a few items are in most lists of neighbours."""

from typing import Any, NamedTuple

import numpy as np

from fastcos import validation
from fastcos.metrics import checks
from fastcos.metrics.labelled import Floats, Integers


class Hubness(NamedTuple):
    """How unevenly N_k, the number of lists that an item is in, is spread.

    Attributes
    ----------
    skewness : float
        Third standardised moment; 0 where all are alike.
    robin_hood : float
        Share of the list entries that would have to move for all N_k to be equal.
    antihub_share : float
        Share of items that are in no list.
    """

    skewness: float
    robin_hood: float
    antihub_share: float


def hubness(neighbors: Any, *, n_items: int | None = None, k: int | None = None) -> Hubness:
    """Skewness, Robin Hood index and antihub share of the number of lists an item is in.

    Parameters
    ----------
    neighbors : array_like (n, K), int
        Items by falling score, as top_k returns them.
    n_items : int, optional
        Number of items. Default: n, neighbours among the queries themselves.
    k : int, optional
        Only the first k columns. Default: all.

    Returns
    -------
    Hubness
        (skewness, robin_hood, antihub_share).

    Raises
    ------
    ValueError
        Lists with numbers out of range or with an item twice in a list.

    Notes
    -----
    Sources: Radovanović, Nanopoulos and Ivanović, JMLR 11 (2010); Feldbauer and Flexer, Knowl. Inf.
    Syst. 59 (2019).

    Examples
    --------
    >>> from fastcos.metrics import hubness
    >>> hubness([[1], [2], [3], [0]])
    Hubness(skewness=0.0, robin_hood=0.0, antihub_share=0.0)
    >>> hubness([[1], [0], [0], [0]]).antihub_share
    0.5
    """
    counts = occurrences(neighbors, n_items, k).astype(np.float64)
    mean = counts.mean()
    return Hubness(
        _skewness(counts),
        float(np.abs(counts - mean).sum() / (2 * counts.sum())),
        float((counts == 0).mean()),
    )


def occurrences(neighbors: Any, n_items: int | None, k: int | None = None) -> Integers:
    """In how many lists every item is, (p,) int64."""
    array = np.asarray(neighbors)
    size = len(array) if n_items is None else validation.as_count("n_items", n_items)
    lists = checks.as_neighbor_lists("neighbors", array, k, n_items=size)
    counts: Integers = np.bincount(lists.ravel(), minlength=size).astype(np.int64)
    return counts


def _skewness(values: Floats) -> float:
    if np.ptp(values) == 0:
        return 0.0
    deviations = values - values.mean()
    spread = np.square(deviations).mean()
    return float((deviations**3).mean() / spread**1.5)
