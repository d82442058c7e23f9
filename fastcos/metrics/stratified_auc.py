"""Whether pairs of the same cluster score higher among pairs of like popularity."""

from typing import Any, NamedTuple

import numpy as np

from fastcos import parallel, validation
from fastcos.kernels import pair_reductions
from fastcos.metrics import checks
from fastcos.metrics.auc import auc_of_counts, margin_in_bins, n_parts, rounds, row_ends
from fastcos.metrics.labelled import Floats, Integers, labelled_rows, packed

_STRATUM_BINS = 2**14


class StratifiedAUC(NamedTuple):
    """AUC among pairs of like popularity.

    Attributes
    ----------
    value : float
        Mean over strata, weighted by the number of comparisons #same x #different.
    low, high : float
        The value lies in [low, high].
    worst : float
        Smallest of strata.
    strata : tuple of float
        AUC by stratum, rarest pairs first; NaN where a stratum has pairs of one kind only.
    n_left_out : int
        Zero rows and items of popularity 0.
    """

    value: float
    low: float
    high: float
    worst: float
    strata: tuple[float, ...]
    n_left_out: int


def stratified_auc(
    items: Any, labels: Any, popularity: Any, *, n_strata: int = 10, n_threads: int | None = None
) -> StratifiedAUC:
    """pair_auc within strata of the geometric mean of the pair's popularities.

    Popular pairs cannot decide it alone. The strata hold equally many pairs (deciles by default),
    except that pairs of equal popularity share a stratum. Binned as pair_auc, in 2^14 bins.
    O(p p k) time, O(p k) memory.

    Parameters
    ----------
    items : array_like (p, k), float32 or float64
        One row per item.
    labels : array_like (p,), int or str
        The cluster of every item.
    popularity : array_like (p,), numbers of at least 0
        For example the number of users of every item.
    n_strata : int
        How many.
    n_threads : int, optional
        Default: the setting.

    Returns
    -------
    StratifiedAUC
        (value, low, high, worst, strata, n_left_out).

    Raises
    ------
    ValueError
        As pair_auc; negative popularity; no stratum with pairs of both kinds.

    Examples
    --------
    >>> from fastcos.metrics import stratified_auc
    >>> items = [[1, 0], [3, 0.1], [0, 1], [0.1, 2], [1, 0.2], [0, 3]]
    >>> stratified_auc(items, [0, 0, 1, 1, 0, 1], [1, 2, 3, 4, 5, 6], n_strata=2).value
    1.0
    """
    n_strata = validation.as_count("n_strata", n_strata)
    rows = validation.as_rows("items", items)
    counted = checks.as_nonnegative("popularity", popularity, len(rows))
    codes = validation.as_labels("labels", labels, len(rows))
    # neighbouring rows of a label are alike in popularity: the kernel then seldom changes stratum
    order = np.argsort(counted, kind="stable")
    counted = counted[order]
    grouped = labelled_rows(rows[order], codes[order], counted > 0)
    levels = validation.read_only(np.log(counted[grouped.places]))
    parts = n_parts(n_threads)
    counts = np.zeros((parts, n_strata, 2, _STRATUM_BINS), np.int64)
    near = np.zeros((parts, n_strata, 2, 1), np.int64)
    unit = validation.read_only(grouped.rows)
    panels, ends = packed(unit, n_threads), row_ends(grouped)
    quantiles = _pair_quantiles(np.sort(levels), n_strata)
    for begin, stop in rounds(len(unit), parts):
        parallel.run(
            pair_reductions.stratified_pair_histograms,
            parallel.row_blocks(parts, 1),
            begin,
            stop,
            unit,
            panels,
            ends,
            levels,
            quantiles,
            margin_in_bins(unit, _STRATUM_BINS),
            counts,
            near,
            n_threads=n_threads,
        )
    return _over_strata(counts.sum(axis=0), near.sum(axis=0), grouped.n_left_out)


def _over_strata(counts: Integers, near: Integers, n_left_out: int) -> StratifiedAUC:
    sizes = counts.sum(axis=2)
    weights = sizes[:, 0].astype(np.float64) * sizes[:, 1]
    both = np.flatnonzero(weights)
    checks.as_enough("labels", len(both), 1, "strata with pairs of both kinds")
    aucs = np.full((len(counts), 3), np.nan)
    for stratum in both:
        aucs[stratum] = auc_of_counts(counts[stratum], near[stratum])
    value, low, high = (weights[both, None] * aucs[both]).sum(axis=0) / weights.sum()
    strata = tuple(aucs[:, 0].tolist())
    return StratifiedAUC(
        float(value), float(low), float(high), float(aucs[both, 0].min()), strata, n_left_out
    )


def _pair_quantiles(levels: Floats, n_strata: int) -> Floats:
    """The sums levels[i] + levels[j], i < j, that end the strata but the last; levels rising."""
    n_pairs = len(levels) * (len(levels) - 1) // 2
    levels = validation.read_only(levels)
    cuts = []
    for stratum in range(1, n_strata):
        wanted = -(-stratum * n_pairs // n_strata)
        # the smallest float that so many sums do not pass, by halving
        low, high = np.nextafter(2 * levels[0], -np.inf), 2 * levels[-1]
        while (middle := low + (high - low) / 2) not in (low, high):
            if pair_reductions.pairs_at_most(levels, middle) >= wanted:
                high = middle
            else:
                low = middle
        cuts.append(high)
    return validation.read_only(np.array(cuts, dtype=np.float64))
