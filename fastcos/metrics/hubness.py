"""Hubness and popularity bias: whether a few items, or popular items, fill the neighbour lists."""

from typing import Any, NamedTuple

import numpy as np

from fastcos import validation
from fastcos.metrics.labelled import CHUNK, as_neighbor_lists, unit_rows
from fastcos.parallel import memmap
from fastcos.similarity.row_transforms import norms_of
from fastcos.validation import Floats, Integers

# Values count as equal if they differ by at most _ROUNDING times the largest value.
_ROUNDING = 1e-13


class Hubness(NamedTuple):
    """The distribution of N_k over the items; N_k is the number of lists that contain an item.

    Attributes
    ----------
    skewness : float
        Third standardised moment of N_k, which is 0 if N_k is the same for all items.
    robin_hood : float
        Share of the list entries that would have to be replaced to make N_k the same for all items.
    antihub_share : float
        Share of the items that are in no neighbour list.
    """

    skewness: float
    robin_hood: float
    antihub_share: float


def hubness(neighbors: Any, *, n_items: int | None = None, k: int | None = None) -> Hubness:
    """Return how unevenly neighbour lists use the items: skewness, Robin Hood index, antihubs.

    Sources: Radovanović, Nanopoulos and Ivanović, JMLR 11 (2010); Feldbauer and Flexer, Knowledge
    and Information Systems 59 (2019).

    Parameters
    ----------
    neighbors : array_like (n, K), int
        Items by descending score, as ``top_k`` returns them; -1 pads short lists.
    n_items : int, optional
        Number of items. By default, n_items is the number n of lists, as if every item were a
        query.
    k : int, optional
        Number of columns to use. Default: all.

    Returns
    -------
    Hubness

    Examples
    --------
    >>> from fastcos.metrics import hubness
    >>> hubness([[1], [2], [3], [0]])
    Hubness(skewness=0.0, robin_hood=0.0, antihub_share=0.0)
    >>> hubness([[1], [0], [0], [0]]).antihub_share
    0.5
    """
    counts = occurrences(neighbors, n_items, k).astype(np.float64)
    deviations = counts - counts.mean()
    variance = np.square(deviations).mean()
    return Hubness(
        float((deviations**3).mean() / variance**1.5) if np.ptp(counts) else 0.0,
        float(np.abs(deviations).sum() / (2 * counts.sum())),
        float((counts == 0).mean()),
    )


def occurrences(neighbors: Any, n_items: int | None, k: int | None = None) -> Integers:
    """Return the number of lists that contain each item, (p,) int64."""
    array = validation.as_array("neighbors", neighbors)
    n_lists = array.shape[0] if array.ndim else 0  # as_neighbor_lists raises an error for a scalar.
    size = n_lists if n_items is None else validation.as_count("n_items", n_items)
    lists = as_neighbor_lists("neighbors", array, k, n_items=size, padded=True)
    items = lists[lists >= 0]
    validation.check_enough("neighbors", len(items), 1, "item")
    return np.bincount(items, minlength=size).astype(np.int64)


class PopularityBias(NamedTuple):
    """The correlation of the popularity of items with their cosines, norms and hubness.

    Attributes
    ----------
    cosine_correlation : float
        Correlation of the log popularity of an item with its mean cosine to all other items.
    norm_correlation : float
        Correlation of the log popularity of an item with the norm of its row.
    hubness_correlation : float
        Correlation of the log popularity of an item with the number of lists that contain it. A
        correlation is NaN if one of its two quantities is constant or nearly constant: the quantity
        varies by at most 1e-13 times its largest absolute value.
    decile_cosines : tuple of 10 float
        Ten mean cosines, one for each decile of popularity. Every item of a decile has a mean
        cosine to all other items, and the value of the decile is the mean of these numbers over its
        items. The least popular decile comes first.
    lift : float
        Mean popularity over all entries of the lists, divided by the mean popularity of all items.
    gini : float
        For each item, the lists that contain the item are counted; ``gini`` is the Gini coefficient
        of these counts. The Gini coefficient is 0 if all items are in the same number of lists, and
        near 1 if a few items fill all lists.
    n_left_out : int
        Number of items that have a zero row or the popularity 0; these items affect only ``lift``
        and ``gini``.
    """

    cosine_correlation: float
    norm_correlation: float
    hubness_correlation: float
    decile_cosines: tuple[float, ...]
    lift: float
    gini: float
    n_left_out: int


def popularity_bias(
    items: Any, popularity: Any, neighbors: Any, *, k: int | None = None
) -> PopularityBias:
    """Return how strongly cosines, norms and neighbour lists depend on the popularity of items.

    The result is exact. The function takes O(p k) time and reads the lists once. The mean cosine of
    a row with all other rows follows from the inner product of the row with the sum of all unit
    rows.

    Source: Zhou et al., ACL 2022, arXiv:2205.05092, who relate the frequency of words to cosines.

    Parameters
    ----------
    items : array_like (p, k), float32 or float64
        One row per item. At least ten rows must be non-zero and have a popularity above 0.
    popularity : array_like (p,), numbers of at least 0
        Popularity of every item, for example its number of users.

    neighbors, k
        As in :func:`hubness`.

    Returns
    -------
    PopularityBias

    Examples
    --------
    >>> import numpy as np
    >>> from fastcos.metrics import popularity_bias
    >>> count = np.arange(1, 21)
    >>> items = np.stack([np.log(count), np.ones(20)], axis=1)
    >>> bias = popularity_bias(items, count, np.full((20, 1), 19))
    >>> round(bias.norm_correlation, 2), round(bias.lift, 2), round(bias.gini, 2)
    (0.99, 1.9, 0.95)
    """
    rows = memmap.as_mapped_rows("items", items)
    counts = validation.as_weights("popularity", popularity, len(rows))
    list_counts = occurrences(neighbors, len(rows), k).astype(np.float64)
    resultant, non_zero = np.zeros(rows.shape[1]), np.empty(len(rows), np.bool_)
    norms, cosines = np.empty(len(rows)), np.empty(len(rows))
    for lo, chunk in memmap.iter_blocks("items", rows, CHUNK):
        part = slice(lo, lo + len(chunk))
        non_zero[part] = chunk.any(axis=1)
        norms[part] = norms_of(chunk)
        resultant += unit_rows(chunk)[counts[part] > 0].sum(axis=0)
    is_used = non_zero & (counts > 0)
    n = validation.check_enough("items", int(is_used.sum()), 10, "non-zero rows of popular items")
    for lo, chunk in memmap.iter_blocks("items", rows, CHUNK):
        cosines[lo : lo + len(chunk)] = (unit_rows(chunk) * resultant).sum(axis=1)
    logs, cosines = np.log(counts[is_used]), (cosines[is_used] - 1) / (n - 1)
    order = np.argsort(logs, kind="stable")
    ranks = 2 * np.arange(1, len(list_counts) + 1) - len(list_counts) - 1
    return PopularityBias(
        _correlation(logs, cosines),
        _correlation(logs, norms[is_used]),
        _correlation(logs, list_counts[is_used]),
        tuple(float(decile.mean()) for decile in np.array_split(cosines[order], 10)),
        float((list_counts * counts).sum() / list_counts.sum() / counts.mean()),
        # The Gini coefficient is the mean absolute difference between the counts of two items,
        # divided by twice the mean count.
        float((ranks * np.sort(list_counts)).sum() / (len(list_counts) * list_counts.sum())),
        len(rows) - n,
    )


def _correlation(x: Floats, y: Floats) -> float:
    if any(np.ptp(values) <= _ROUNDING * np.abs(values).max() for values in (x, y)):
        return float("nan")
    # The vectors x and y are scaled by powers of two, so that squares neither overflow nor
    # underflow.
    x, y = (np.ldexp(values, -np.frexp(np.abs(values).max())[1]) for values in (x, y))
    x, y = x - x.mean(), y - y.mean()
    return float((x * y).sum() / np.sqrt((x * x).sum() * (y * y).sum()))
