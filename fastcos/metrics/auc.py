"""AUC over pairs of rows: do pairs of one cluster score higher than pairs of two clusters."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from fastcos import config, parallel, validation
from fastcos.kernels import pair_reductions, records
from fastcos.metrics.labelled import LabelledRows, labelled_rows, packed, products
from fastcos.validation import Floats, Integers

# bins of pair_auc; the interval is then at most 1e-3 wide (tests/metrics/test_recovery.py)
_N_BINS = 2**16
# bins of one stratum: ten strata take 2.6 MB a thread, with 2^16 bins they would take 10.5 MB
_N_STRATUM_BINS = 2**14
# pairs of one task, about 50 ms: Ctrl-C is handled between tasks
_PAIRS_PER_TASK = 10_000_000
# up to this number of pairs (2,896 rows) the cosines are sorted by default, about 0.5 s
_SORTED_PAIRS = 2**22
# rows whose cosines with all rows are computed at once
_ROWS = 192


class PairAUC(NamedTuple):
    """Area under the ROC curve over pairs.

    Attributes
    ----------
    value : float
        The AUC, or the middle of the interval.
    low, high : float
        The AUC lies in [low, high], rounding included; both equal value if it is exact.
    n_left_out : int
        Zero rows: they have no direction and are in no pair.
    """

    value: float
    low: float
    high: float
    n_left_out: int


def pair_auc(
    items: Any, labels: Any, *, exact: bool | None = None, n_threads: int | None = None
) -> PairAUC:
    """P(cosine of a same-label pair > that of a different-label pair) + half of P(equal).

    Over unordered pairs of different rows. Binned: every cosine is counted in one of 2^16 equal
    bins. Bins give the order of two cosines in different bins. ``low`` and ``high`` bound the open
    comparisons: those within a bin, and those of cosines whose rounding (at most (k + 8) 2^-51)
    may cross the edge of a bin. The half width is half of the sum over the bins of the product of
    the two shares in it.

    Exact: the cosines are sorted; those that differ by less than their rounding count as equal.
    O(p p k) time and O(p k) memory; exact also holds the p (p - 1) / 2 cosines. The same bits on
    any number of threads.

    Source: the Mann-Whitney statistic; Hanley and McNeil, Radiology 143 (1982).

    Parameters
    ----------
    items : array_like (p, k), float32 or float64
        One row per item.
    labels : array_like (p,), int or str
        The cluster of every item: at least two on non-zero rows, one of them on several.
    exact : bool, optional
        Sort the cosines instead of binning them: they must fit in the setting ``working_memory``.
        Default: True for at most 2^22 pairs that do.
    n_threads : int, optional
        Default: the setting ``n_threads``.

    Returns
    -------
    PairAUC

    Examples
    --------
    >>> from fastcos.metrics import pair_auc
    >>> pair_auc([[1, 0], [2, 0], [0, 1], [1, 1]], ["a", "a", "b", "b"])
    PairAUC(value=0.875, low=0.875, high=0.875, n_left_out=0)
    """
    grouped = labelled_rows(items, labels)
    n = len(grouped.rows)
    n_pairs = n * (n - 1) // 2
    # the scores, and a copy while they are sorted
    need, memory = 16 * n_pairs, config.working_memory()
    fits = need <= memory * 2**20
    if exact is None:
        exact = fits and n_pairs <= _SORTED_PAIRS
    if validation.as_flag("exact", exact):
        if not fits:
            rule = f"fit in the working memory of {memory:g} MiB"
            raise ValueError(f"exact=True must {rule}, got a need of {need / 2**20:.0f} MiB")
        same, other = _pair_scores(grouped, n_threads)
        value = _auc_of_scores(same, other, 2 * _rounding(grouped.rows))
        return PairAUC(value, value, value, grouped.n_left_out)
    counts, near = _histograms(grouped, np.zeros(n), np.empty(0), _N_BINS, n_threads)
    return PairAUC(*auc_of_counts(counts[0], near[0]), grouped.n_left_out)


def _histograms(
    grouped: LabelledRows, levels: Floats, boundaries: Floats, n_bins: int, n_threads: int | None
) -> tuple[Integers, Integers]:
    """Counts (strata, 2, bins) of the scores of all pairs, and of those near an edge.

    The strata of pairs are cut at the boundaries, ascending sums of the levels of two rows.
    """
    parts, rows = _n_parts(n_threads), validation.read_only(grouped.rows)
    counts = np.zeros((parts, len(boundaries) + 1, 2, n_bins), np.int64)
    near = np.zeros((*counts.shape[:3], 1), np.int64)
    clustered = records.ClusteredRows(
        rows, packed(rows, n_threads), _row_ends(grouped), validation.read_only(levels),
        validation.read_only(boundaries),
    )  # fmt: skip
    for begin, stop in _tasks(len(rows), parts):
        parallel.run(
            pair_reductions.pair_histograms, parallel.row_blocks(parts, 1), begin, stop, clustered,
            _margin_in_bins(rows, n_bins), counts, near,
            n_threads=n_threads,
        )  # fmt: skip
    return counts.sum(axis=0), near.sum(axis=0)


def auc_of_counts(counts: Integers, near: Integers) -> tuple[float, float, float]:
    """Middle, low and high AUC of two histograms (2, bins): different clusters, then the same.

    near (2, 1): scores that may belong to the next bin; each decides 1/n of its kind's comparisons.
    """
    other, same = counts
    below = np.concatenate([[0], np.cumsum(other)[:-1]])
    n_same, n_other = int(same.sum()), int(other.sum())
    total = n_same * n_other
    if total >= 2**63:  # as Python's integers
        same, below, other = (one.astype(object) for one in (same, below, other))
    wins, tied = int(same @ below), int(same @ other)
    moved = int(near[1, 0]) * n_other + int(near[0, 0]) * n_same
    low, high = max(0, wins - moved) / total, min(total, wins + tied + moved) / total
    return (2 * wins + tied) / (2 * total), low, high


def _margin_in_bins(rows: Floats, n_bins: int) -> float:
    """Bound on the error of a cosine's position, in bins: from its rounding and the position's."""
    return _rounding(rows) * n_bins / 2 + n_bins * 2.0**-51


def _rounding(rows: Floats) -> float:
    """Bound on a cosine's error: k roundings in each norm and in the product, 1 a division."""
    return float((rows.shape[1] + 8) * 2.0**-51)


def _row_ends(grouped: LabelledRows) -> Integers:
    """End of the cluster of every row."""
    return validation.read_only(grouped.starts[grouped.codes + 1])


def _tasks(n: int, parts: int) -> Iterator[tuple[int, int]]:
    """Strips of rows, begin to stop, that advance the histograms of all parts by one task each."""
    strips = -(-n // pair_reductions.STRIP)
    step = parts * max(1, _PAIRS_PER_TASK // (pair_reductions.STRIP * n))
    for begin in range(0, strips, step):
        yield begin, min(begin + step, strips)


def _n_parts(n_threads: int | None) -> int:
    """Number of histograms filled in parallel; counts are integers, so it does not change sums."""
    if n_threads is None:
        return 2 * config.n_threads()
    return 2 * validation.as_thread_count("n_threads", n_threads)


def _pair_scores(grouped: LabelledRows, n_threads: int | None) -> tuple[Floats, Floats]:
    """The cosines of all pairs of the same and of different clusters."""
    ends, n = _row_ends(grouped), len(grouped.rows)
    n_same, n_other = ends - np.arange(n) - 1, n - ends
    same = parallel.unfilled(int(n_same.sum()), np.float64)
    other = parallel.unfilled(int(n_other.sum()), np.float64)
    panels, s, o = packed(grouped.rows, n_threads), 0, 0
    for first in range(0, n, _ROWS):
        scores = products(grouped.rows[first : first + _ROWS], panels, n, n_threads)
        np.clip(scores, -1, 1, out=scores)
        for i, line in enumerate(scores, first):
            same[s : s + n_same[i]] = line[i + 1 : ends[i]]
            other[o : o + n_other[i]] = line[ends[i] :]
            s, o = s + n_same[i], o + n_other[i]
    return same, other


def _auc_of_scores(same: Floats, other: Floats, tolerance: float) -> float:
    same.sort()
    other.sort()
    doubled = 0
    for first in range(0, len(same), 2**20):
        chunk = same[first : first + 2**20]
        doubled += int(np.searchsorted(other, chunk - tolerance, "left").sum())
        doubled += int(np.searchsorted(other, chunk + tolerance, "right").sum())
    return float(doubled / (2 * len(same) * len(other)))


class StratifiedAUC(NamedTuple):
    """AUC among pairs of similar popularity, or of items of one stratum.

    Attributes
    ----------
    value : float
        Mean over strata, weighted by the number of comparisons #same x #different.
    low, high : float
        The value lies in [low, high].
    worst : float
        Smallest AUC of a stratum.
    strata : tuple of float
        AUC by stratum, rarest pairs first, or in the order of the sorted strata; NaN for a
        stratum with pairs of one kind only.
    n_left_out : int
        Zero rows, and items of popularity 0 or without a stratum.
    """

    value: float
    low: float
    high: float
    worst: float
    strata: tuple[float, ...]
    n_left_out: int


def stratified_auc(
    items: Any,
    labels: Any,
    popularity: Any = None,
    *,
    strata: Any = None,
    n_strata: int = 10,
    n_threads: int | None = None,
) -> StratifiedAUC:
    """pair_auc within strata of the pair's popularity, or within strata of items that are given.

    Popular pairs alone cannot decide the score. The strata are of the geometric mean of the pair's
    popularities and hold equally many pairs (deciles by default), except that pairs of equal
    popularity share a stratum. Binned as :func:`pair_auc`, in 2^14 bins. O(p p k) time, O(p k)
    memory.

    Given strata, such as the decade of a film or the language of a word, compare items of one
    stratum only: pairs of two strata cannot decide the score. Each stratum is one
    :func:`pair_auc`.

    Parameters
    ----------
    items, labels, n_threads
        As in :func:`pair_auc`.
    popularity : array_like (p,), numbers of at least 0, optional
        For example the number of users of every item. Either this or strata.
    strata : sequence (p,) of int or str, optional
        The stratum of every item; None leaves an item out.
    n_strata : int
        Number of strata of popularity, at most the number of items.

    Returns
    -------
    StratifiedAUC

    Examples
    --------
    >>> from fastcos.metrics import stratified_auc
    >>> items = [[1, 0], [3, 0.1], [0, 1], [0.1, 2], [1, 0.2], [0, 3]]
    >>> stratified_auc(items, [0, 0, 1, 1, 0, 1], [1, 2, 3, 4, 5, 6], n_strata=2).value
    1.0
    """
    rows = validation.as_rows("items", items)
    n_strata = validation.as_count("n_strata", n_strata, high=len(rows))
    codes = validation.as_labels("labels", labels, len(rows))
    if strata is not None:
        validation.check_none("popularity", popularity, "with strata")
        stratum_of = validation.as_partial_labels("strata", strata, len(rows))
        return _auc_within(rows, codes, stratum_of, n_threads)
    counted = validation.as_weights("popularity", popularity, len(rows))
    # neighbouring rows of a label are alike in popularity: the kernel then seldom changes stratum
    order = np.argsort(counted, kind="stable")
    counted = counted[order]
    grouped = labelled_rows(rows[order], codes[order], counted > 0)
    levels = np.log(counted[grouped.places])
    quantiles = _pair_quantiles(np.sort(levels), n_strata)
    counts, near = _histograms(grouped, levels, quantiles, _N_STRATUM_BINS, n_threads)
    sizes = counts.sum(axis=2)
    weights = sizes[:, 0].astype(np.float64) * sizes[:, 1]
    aucs = np.full((n_strata, 3), np.nan)
    for stratum in np.flatnonzero(weights):
        aucs[stratum] = auc_of_counts(counts[stratum], near[stratum])
    return _mean_auc(aucs, weights, grouped.n_left_out)


def _auc_within(
    rows: Any, codes: Integers, stratum_of: Integers, n_threads: int | None
) -> StratifiedAUC:
    """The AUC of the pairs within each stratum of items; -1 is no stratum."""
    used = (stratum_of >= 0) & rows.any(axis=1)
    n_strata = int(stratum_of.max(initial=-1)) + 1
    aucs, weights = np.full((n_strata, 3), np.nan), np.zeros(n_strata)
    for stratum in range(n_strata):
        inside = np.flatnonzero(used & (stratum_of == stratum))
        counts = np.unique(codes[inside], return_counts=True)[1].astype(np.float64)
        same = float((counts * (counts - 1) / 2).sum())
        weights[stratum] = same * (len(inside) * (len(inside) - 1) / 2 - same)
        if weights[stratum]:
            aucs[stratum] = pair_auc(rows[inside], codes[inside], n_threads=n_threads)[:3]
    return _mean_auc(aucs, weights, len(rows) - int(used.sum()))


def _mean_auc(aucs: Floats, weights: Floats, n_left_out: int) -> StratifiedAUC:
    """The mean AUC and bounds (strata, 3) of strata with weight."""
    both = np.flatnonzero(weights)
    validation.check_enough("labels", len(both), 1, "strata with pairs of both kinds")
    value, low, high = (weights[both, None] * aucs[both]).sum(axis=0) / weights.sum()
    worst, strata = float(aucs[both, 0].min()), tuple(aucs[:, 0].tolist())
    return StratifiedAUC(float(value), float(low), float(high), worst, strata, n_left_out)


def _pair_quantiles(levels: Floats, n_strata: int) -> Floats:
    """Upper ends of all strata but the last, as sums levels[i] + levels[j]; levels ascending."""
    n_pairs = len(levels) * (len(levels) - 1) // 2
    levels = validation.read_only(levels)
    cuts = []
    for stratum in range(1, n_strata):
        wanted = -(-stratum * n_pairs // n_strata)
        # bisection for the least float that the wanted number of sums do not exceed
        low, high = np.nextafter(2 * levels[0], -np.inf), 2 * levels[-1]
        while (middle := low + (high - low) / 2) not in (low, high):
            if pair_reductions.pairs_at_most(levels, middle) >= wanted:
                high = middle
            else:
                low = middle
        cuts.append(high)
    return validation.read_only(np.array(cuts, dtype=np.float64))
