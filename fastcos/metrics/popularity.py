"""Whether cosines, lengths and lists follow popularity."""

from typing import Any, NamedTuple

import numpy as np

from fastcos import validation
from fastcos.metrics import checks
from fastcos.metrics.hubness import occurrences
from fastcos.metrics.labelled import CHUNK, Floats, unit_rows
from fastcos.storage import memmap

# values that differ by less, relative to the largest, differ by rounding
_ROUNDING = 1e-13


class PopularityBias(NamedTuple):
    """What goes with popularity.

    Attributes
    ----------
    cosine_correlation : float
        Correlation over items of log popularity with the mean cosine to all others.
    norm_correlation : float
        Of log popularity with the length of the row.
    hubness_correlation : float
        Of log popularity with the number of lists the item is in. Every correlation is NaN where
        either side is the same for all items, within 1e-13 of the largest.
    decile_cosines : tuple of 10 float
        Mean cosine to all other items, by decile of popularity, rarest first.
    lift : float
        Mean popularity of the listed items over that of all items.
    gini : float
        Gini coefficient of the number of lists an item is in: 0 all alike, near 1 all in one.
    n_left_out : int
        Zero rows and items of popularity 0: in lift and gini only.
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
    """Correlations of popularity with cosines, lengths and hubness; lift and Gini of the lists.

    All but the lists' part is exact in O(p k): the mean cosine of a row is its product with the sum
    of the unit rows.

    Parameters
    ----------
    items : array_like (p, k), float32 or float64
        One row per item.
    popularity : array_like (p,), numbers of at least 0
        For example the number of users of every item.
    neighbors : array_like (n, K), int
        Items by falling score, as top_k returns them, numbers from 0 to p - 1.
    k : int, optional
        Only the first k columns of neighbors. Default: all.

    Returns
    -------
    PopularityBias
        (cosine_correlation, norm_correlation, hubness_correlation, decile_cosines, lift, gini,
        n_left_out).

    Raises
    ------
    ValueError
        Fewer than ten non-zero rows of popularity above 0; negative popularity; lists with numbers
        out of range.

    Notes
    -----
    Source: Zhou et al., ACL 2022, arXiv:2205.05092, for frequency and cosine.

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
    counts = checks.as_nonnegative("popularity", popularity, len(rows))
    listed = occurrences(neighbors, len(rows), k).astype(np.float64)
    resultant, directed = np.zeros(rows.shape[1]), np.empty(len(rows), np.bool_)
    lengths, cosines = np.empty(len(rows)), np.empty(len(rows))
    for lo, chunk in memmap.iter_blocks("items", rows, CHUNK):
        part = slice(lo, lo + len(chunk))
        directed[part] = chunk.any(axis=1)
        lengths[part] = _lengths(chunk)
        resultant += unit_rows(chunk)[counts[part] > 0].sum(axis=0)
    kept = directed & (counts > 0)
    n = checks.as_enough("items", int(kept.sum()), 10, "popular rows that are not zero")
    for lo, chunk in memmap.iter_blocks("items", rows, CHUNK):
        cosines[lo : lo + len(chunk)] = (unit_rows(chunk) * resultant).sum(axis=1)
    logs, cosines, lengths = np.log(counts[kept]), (cosines[kept] - 1) / (n - 1), lengths[kept]
    order = np.argsort(logs, kind="stable")
    return PopularityBias(
        _correlation(logs, cosines),
        _correlation(logs, lengths),
        _correlation(logs, listed[kept]),
        tuple(float(decile.mean()) for decile in np.array_split(cosines[order], 10)),
        float((listed * counts).sum() / listed.sum() / counts.mean()),
        _gini(listed),
        len(rows) - n,
    )


def _lengths(rows: validation.Rows) -> Floats:
    """Euclidean lengths, of rows whose squares vanish too."""
    largest = np.abs(rows).max(axis=1).astype(np.float64)
    exponents = np.frexp(largest)[1]
    longer = np.ldexp(rows.astype(np.float64), -exponents[:, None])
    lengths: Floats = np.ldexp(np.sqrt(np.square(longer).sum(axis=1)), exponents)
    return lengths


def _correlation(x: Floats, y: Floats) -> float:
    if any(np.ptp(values) <= _ROUNDING * np.abs(values).max() for values in (x, y)):
        return float("nan")
    # by powers of two: squares neither overflow nor vanish
    x, y = (np.ldexp(values, -np.frexp(np.abs(values).max())[1]) for values in (x, y))
    x, y = x - x.mean(), y - y.mean()
    return float((x * y).sum() / np.sqrt((x * x).sum() * (y * y).sum()))


def _gini(values: Floats) -> float:
    """Mean absolute difference of two items over twice the mean."""
    n = len(values)
    weights = 2 * np.arange(1, n + 1) - n - 1
    return float((weights * np.sort(values)).sum() / (n * values.sum()))
