"""AUC over pairs of rows: whether same-label pairs have larger cosines than other pairs.

The following modules also compute AUCs, but of other pairs or for other purposes:

- ``metrics.label_permutation`` computes, for each permutation of the labels, the AUC over the pairs
  of a sample of items. The AUC of ``metrics.label_permutation`` is computed from ranks, and gives
  all labels the same weight.
- ``comparison.tasks.label_recovery`` computes one AUC per query from the ranking of all other
  items. The kernel ``label_ranks.auc_of_ranked`` computes this AUC; a pair of equal scores counts
  one half.
- ``auditing.label_recovery`` counts the cosines in 256 bins, and computes an AUC from these counts.
  ``auditing.label_recovery`` also computes the derivative of the AUC with respect to each cosine,
  uses the derivatives in a gradient ascent, and calls ``pair_auc`` at the end of the ascent.
- ``auditing.calibration.labelled`` calls scikit-learn's ``roc_auc_score`` for pairs that the caller
  has labelled.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from fastcos import config, parallel, validation
from fastcos.kernels import pair_reductions, records
from fastcos.metrics.labelled import LabelledRows, labelled_rows, packed, products
from fastcos.validation import Floats, Integers

# Number of bins for the cosines in pair_auc. If the cosines are spread evenly over at least 1,000
# bins, the interval of the AUC is at most 1e-3 wide.
_N_BINS = 2**16
# Number of bins for the cosines in each stratum. The bins of ten strata take 2.6 MB per thread.
_N_STRATUM_BINS = 2**14
# Number of pairs in a task. A task takes about 50 ms, and Ctrl-C is handled between tasks.
_PAIRS_PER_TASK = 10_000_000
# By default, the cosines of all pairs are sorted if there are at most this many pairs. 2,896 rows
# have slightly fewer pairs than this limit.
_SORTED_PAIRS = 2**22
# The cosines of this number of rows with all rows are computed at a time.
_ROWS = 192


class PairAUC(NamedTuple):
    """Area under the ROC curve (AUC) over pairs of rows.

    Attributes
    ----------
    value : float
        The AUC. If only an interval is known, ``value`` is the middle of the interval.
    low, high : float
        Ends of an interval that certainly contains the AUC; the interval accounts for rounding
        errors. If the AUC was computed exactly, ``low`` and ``high`` equal ``value``.
    n_left_out : int
        Number of zero rows, which have no direction and are in no pair.
    """

    value: float
    low: float
    high: float
    n_left_out: int


def pair_auc(
    items: Any, labels: Any, *, exact: bool | None = None, n_threads: int | None = None
) -> PairAUC:
    """Return the probability (AUC) that a same-label pair has a larger cosine than another pair.

    The AUC is P(cosine of a same-label pair > cosine of a different-label pair), plus half of the
    probability that the two cosines are equal.

    The pairs are unordered pairs of different rows. If ``exact`` is false, the function counts the
    cosines in 2^16 bins of equal width. If two cosines lie in different bins, the cosine in the
    higher bin counts as larger. A comparison of two cosines is undecided if both lie in the same
    bin. A comparison is also undecided if one of the two cosines may have moved into a neighbouring
    bin because of a rounding error. The rounding error of a cosine is at most (k + 8) 2^-51.
    ``low`` is the AUC that results if, in every undecided comparison, the same-label pair has the
    lower cosine. ``high`` is the AUC that results if, in every undecided comparison, the same-label
    pair has the higher cosine. Let a be a bin's share of the same-label pairs, and let b be its
    share of the different-label pairs. Apart from rounding errors, the comparisons in this bin make
    the interval from ``low`` to ``high`` wider by a times b.

    If ``exact`` is true, the cosines are sorted, and cosines that differ by at most their rounding
    errors count as equal. The function takes O(p p k) time and O(p k) memory. If ``exact`` is true,
    the function also needs memory for the p (p - 1) / 2 cosines. Results are bit-for-bit identical
    for any number of threads.

    Source: the Mann-Whitney statistic; Hanley and McNeil, Radiology 143 (1982).

    Parameters
    ----------
    items : array_like (p, k), float32 or float64
        One row per item.
    labels : array_like (p,), int or str
        The cluster of every item. The non-zero rows must have at least two different labels, and at
        least two of these rows must have the same label.
    exact : bool, optional
        Whether to sort the cosines instead of counting them in bins. Sorting needs memory for two
        copies of all cosines. The two copies must not exceed the setting ``working_memory``.
        Default: True if there are at most 2^22 pairs and the two copies fit.
    n_threads : int, optional
        Number of threads. Default: the setting ``n_threads``.

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
    # The exact AUC is computed by sorting the cosines, so memory is needed for the cosines and for
    # a copy of them.
    n_bytes, memory = 16 * n_pairs, config.working_memory()
    fits = n_bytes <= memory * 2**20
    if exact is None:
        exact = fits and n_pairs <= _SORTED_PAIRS
    if validation.as_flag("exact", exact):
        if not fits:
            rule = f"fit in the working memory of {memory:g} MiB"
            got = f"{n_bytes / 2**20:.0f} MiB of cosines and copies"
            raise ValueError(f"exact=True must {rule}, got {got}")
        same_scores, other_scores = _pair_scores(grouped, n_threads)
        value = _auc_of_scores(same_scores, other_scores, 2 * _rounding(grouped.rows))
        return PairAUC(value, value, value, grouped.n_left_out)
    counts, near = _histograms(grouped, np.zeros(n), np.empty(0), _N_BINS, n_threads)
    return PairAUC(*auc_of_counts(counts[0], near[0]), grouped.n_left_out)


def _histograms(
    grouped: LabelledRows, levels: Floats, boundaries: Floats, n_bins: int, n_threads: int | None
) -> tuple[Integers, Integers]:
    """Return two arrays: histograms of pair cosines, and counts of the cosines near bin edges.

    The shape of the histograms is (strata, 2, bins).

    `levels` (n,) contains a number for each row, and the level of a pair is the sum of the levels
    of its two rows. The level of a pair determines its stratum; `boundaries` contains the ascending
    levels that separate the strata.
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
    """Return the middle and the two ends of an interval that contains the AUC.

    ``counts[0]`` (bins,) is the histogram of the cosines of pairs with different labels, and
    ``counts[1]`` is the histogram of the cosines of pairs with the same label. For each histogram,
    `near` (2, 1) counts the cosines that may belong to a neighbouring bin. If a histogram contains
    n cosines, each cosine affects 1/n of the comparisons.
    """
    other_counts, same_counts = counts
    below = np.concatenate([[0], np.cumsum(other_counts)[:-1]])
    n_same, n_other = int(same_counts.sum()), int(other_counts.sum())
    total = n_same * n_other
    if total >= 2**63:  # Python integers, unlike int64, do not overflow.
        same_counts, below, other_counts = (
            array.astype(object) for array in (same_counts, below, other_counts)
        )
    wins, ties = int(same_counts @ below), int(same_counts @ other_counts)
    uncertain = int(near[1, 0]) * n_other + int(near[0, 0]) * n_same
    low, high = max(0, wins - uncertain) / total, min(total, wins + ties + uncertain) / total
    return (2 * wins + ties) / (2 * total), low, high


def _margin_in_bins(rows: Floats, n_bins: int) -> float:
    """Return a bound on the rounding error of a cosine, in units of the bin width.

    The bound is the sum of two terms: a bound on the error of the cosine itself, and a bound on the
    error of converting the cosine into a position in the histogram.
    """
    return _rounding(rows) * n_bins / 2 + n_bins * 2.0**-51


def _rounding(rows: Floats) -> float:
    """Return a bound on the rounding error of a cosine.

    For rows of k columns, the two norms and the inner product have up to k rounding errors each,
    and each division has one rounding error.
    """
    return float((rows.shape[1] + 8) * 2.0**-51)


def _row_ends(grouped: LabelledRows) -> Integers:
    """For every row, return the index after the last row that has the label of this row.

    The rows are sorted by label.
    """
    return validation.read_only(grouped.starts[grouped.codes + 1])


def _tasks(n: int, parts: int) -> Iterator[tuple[int, int]]:
    """Yield ranges (begin, stop) of strips (blocks of rows); `parts` tasks share each range."""
    strips = -(-n // pair_reductions.STRIP)
    step = parts * max(1, _PAIRS_PER_TASK // (pair_reductions.STRIP * n))
    for begin in range(0, strips, step):
        yield begin, min(begin + step, strips)


def _n_parts(n_threads: int | None) -> int:
    """Return the number of histograms that the threads fill in parallel.

    The caller adds up these histograms. Their sum does not depend on the number of histograms,
    because all entries are integers.
    """
    if n_threads is None:
        return 2 * config.n_threads()
    return 2 * validation.as_thread_count("n_threads", n_threads)


def _pair_scores(grouped: LabelledRows, n_threads: int | None) -> tuple[Floats, Floats]:
    """Return the cosines of all same-label pairs, and the cosines of all other pairs."""
    ends, n = _row_ends(grouped), len(grouped.rows)
    n_same, n_other = ends - np.arange(n) - 1, n - ends
    same_scores = parallel.unfilled(int(n_same.sum()), np.float64)
    other_scores = parallel.unfilled(int(n_other.sum()), np.float64)
    panels, s, o = packed(grouped.rows, n_threads), 0, 0
    for first in range(0, n, _ROWS):
        scores = products(grouped.rows[first : first + _ROWS], panels, n, n_threads)
        np.clip(scores, -1, 1, out=scores)
        for i, line in enumerate(scores, first):
            same_scores[s : s + n_same[i]] = line[i + 1 : ends[i]]
            other_scores[o : o + n_other[i]] = line[ends[i] :]
            s, o = s + n_same[i], o + n_other[i]
    return same_scores, other_scores


def _auc_of_scores(same_scores: Floats, other_scores: Floats, tolerance: float) -> float:
    same_scores.sort()
    other_scores.sort()
    twice_wins = 0
    for first in range(0, len(same_scores), 2**20):
        chunk = same_scores[first : first + 2**20]
        twice_wins += int(np.searchsorted(other_scores, chunk - tolerance, "left").sum())
        twice_wins += int(np.searchsorted(other_scores, chunk + tolerance, "right").sum())
    return float(twice_wins / (2 * len(same_scores) * len(other_scores)))


class StratifiedAUC(NamedTuple):
    """The AUC within strata of pairs; all pairs of a stratum have a similar popularity.

    Attributes
    ----------
    value : float
        Mean of the AUC over strata. The weight of a stratum is its number of comparisons: the
        number of same-label pairs times the number of different-label pairs.
    low, high : float
        Ends of an interval that certainly contains the mean AUC.
    worst : float
        Smallest AUC of any stratum.
    strata : tuple of float
        AUC of each stratum, starting with the least popular pairs. The AUC is NaN for a stratum
        without same-label pairs or without different-label pairs.
    n_left_out : int
        Number of items whose row is zero or whose popularity is 0.
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
    popularity: Any,
    *,
    n_strata: int = 10,
    n_threads: int | None = None,
) -> StratifiedAUC:
    """Divide the pairs into strata of similar popularity; return the AUC within the strata.

    The strata prevent a few popular items from dominating the score. The popularity of a pair is
    the geometric mean of the popularities of its two items. By default, the strata are deciles of
    the pairs. All strata contain the same number of pairs, unless pairs have equal popularity: such
    pairs are always in the same stratum. Cosines are counted in 2^14 bins; :func:`pair_auc`
    describes the AUC and the resulting interval. The function takes O(p p k) time and O(p k)
    memory.

    Parameters
    ----------
    items, labels, n_threads
        As in :func:`pair_auc`.
    popularity : array_like (p,), numbers of at least 0
        Popularity of every item, for example its number of users.
    n_strata : int
        Number of strata, at most the number of items.

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
    weights_of_items = validation.as_weights("popularity", popularity, len(rows))
    # Sort the items by popularity, so that consecutive pairs in the kernel are usually in the same
    # stratum.
    order = np.argsort(weights_of_items, kind="stable")
    weights_of_items = weights_of_items[order]
    grouped = labelled_rows(rows[order], codes[order], weights_of_items > 0)
    levels = np.log(weights_of_items[grouped.row_numbers])
    quantiles = _pair_quantiles(np.sort(levels), n_strata)
    counts, near = _histograms(grouped, levels, quantiles, _N_STRATUM_BINS, n_threads)
    sizes = counts.sum(axis=2)
    weights = sizes[:, 0].astype(np.float64) * sizes[:, 1]
    aucs = np.full((n_strata, 3), np.nan)
    for stratum in np.flatnonzero(weights):
        aucs[stratum] = auc_of_counts(counts[stratum], near[stratum])
    return _mean_auc(aucs, weights, grouped.n_left_out)


def _mean_auc(aucs: Floats, weights: Floats, n_left_out: int) -> StratifiedAUC:
    """Return the StratifiedAUC whose value is the weighted mean of the AUCs of the strata.

    `aucs` (strata, 3) contains the AUC of each stratum and the two ends of its interval. Strata
    with the weight 0, whose AUC is undefined, are left out of the mean.
    """
    valid = np.flatnonzero(weights)
    unit = "stratum that contains pairs with equal labels and pairs with different labels"
    validation.check_enough("labels", len(valid), 1, unit)
    value, low, high = (weights[valid, None] * aucs[valid]).sum(axis=0) / weights.sum()
    worst, strata = float(aucs[valid, 0].min()), tuple(aucs[:, 0].tolist())
    return StratifiedAUC(float(value), float(low), float(high), worst, strata, n_left_out)


def _pair_quantiles(levels: Floats, n_strata: int) -> Floats:
    """For each stratum except the last one, return the largest level of a pair in the stratum.

    `levels` (n,) contains the ascending levels of the rows. The level of a pair is the sum of the
    levels of its two rows.
    """
    n_pairs = len(levels) * (len(levels) - 1) // 2
    levels = validation.read_only(levels)
    cuts = []
    for stratum in range(1, n_strata):
        n_below = -(-stratum * n_pairs // n_strata)
        # Bisection finds the smallest float x for which at least n_below pairs have a level of at
        # most x.
        low, high = np.nextafter(2 * levels[0], -np.inf), 2 * levels[-1]
        while (middle := low + (high - low) / 2) not in (low, high):
            if pair_reductions.pairs_at_most(levels, middle) >= n_below:
                high = middle
            else:
                low = middle
        cuts.append(high)
    return validation.read_only(np.array(cuts, dtype=np.float64))
