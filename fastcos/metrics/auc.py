"""Whether pairs of the same cluster score higher than pairs of different clusters."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from fastcos import config, parallel, validation
from fastcos.kernels import pair_reductions
from fastcos.metrics import checks
from fastcos.metrics.labelled import Floats, Integers, LabelledRows, labelled_rows, packed

N_BINS = 2**16
# pairs in a block, some 50 ms: a block that has begun must end before Ctrl-C is answered
_PAIRS_PER_BLOCK = 10_000_000
# pairs that are sorted rather than binned where nobody asked
_FEW_PAIRS = 2**22


class PairAUC(NamedTuple):
    """Area under the ROC curve over pairs.

    Attributes
    ----------
    value : float
        The AUC, or the middle of the interval.
    low, high : float
        The AUC lies in [low, high], rounding included; both are value where it is exact.
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
    bins. Two cosines in different bins are in the order of their bins; low and high settle all that
    is open one way: two cosines in one bin, and a cosine so near to a bin's edge that its rounding
    (at most (k + 8) 2^-51) may have put it on the wrong side. The half width is half of the sum
    over the bins of the product of the two shares in it.

    Exact: the cosines are sorted; those that differ by less than their rounding count as equal.
    O(p p k) time and O(p k) memory; exact also holds the p (p - 1) / 2 cosines. The same bits on
    any number of threads.

    Parameters
    ----------
    items : array_like (p, k), float32 or float64
        One row per item.
    labels : array_like (p,), int or str
        The cluster of every item.
    exact : bool, optional
        Sort the cosines instead of binning them; refused where they need more than the working
        memory. Default: where there are at most 2^22 pairs, and their cosines fit.
    n_threads : int, optional
        Default: the setting.

    Returns
    -------
    PairAUC
        (value, low, high, n_left_out).

    Raises
    ------
    ValueError
        Fewer than two labels among non-zero rows, or none that is shared; labels of another length.

    Notes
    -----
    Source: the Mann-Whitney statistic; Hanley and McNeil, Radiology 143 (1982).

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
    if exact is None:
        exact = n_pairs <= _FEW_PAIRS and need <= memory * 2**20
    if exact:
        checks.as_fitting("exact=True", need, memory)
        same, other = _pair_scores(grouped, n_threads)
        value = _auc_of_scores(same, other, 2 * _rounding(grouped.rows))
        return PairAUC(value, value, value, grouped.n_left_out)
    counts, near = _histograms(grouped, n_threads)
    return PairAUC(*auc_of_counts(counts, near), grouped.n_left_out)


def auc_of_counts(counts: Integers, near: Integers) -> tuple[float, float, float]:
    """Middle, low and high AUC of two histograms (2, bins): different clusters, then the same.

    near (2, 1) scores may belong to the next bin: each decides 1/n of its kind's comparisons.
    """
    other, same = counts
    below = np.concatenate([[0], np.cumsum(other)[:-1]])
    n_same, n_other = int(same.sum()), int(other.sum())
    total = n_same * n_other
    if total < 2**63:
        wins, tied = int(same @ below), int(same @ other)
    else:
        used = np.flatnonzero(same)
        wins = sum(int(same[b]) * int(below[b]) for b in used)
        tied = sum(int(same[b]) * int(other[b]) for b in used)
    moved = int(near[1, 0]) * n_other + int(near[0, 0]) * n_same
    low, high = max(0, wins - moved) / total, min(total, wins + tied + moved) / total
    return (2 * wins + tied) / (2 * total), low, high


def margin_in_bins(rows: Floats, n_bins: int) -> float:
    """How far a cosine's place may be from the truth: the cosine's rounding, and the place's."""
    return _rounding(rows) * n_bins / 2 + n_bins * 2.0**-51


def _rounding(rows: Floats) -> float:
    """Bound on a cosine's error: k roundings in each length and in the product, 1 a division."""
    return float((rows.shape[1] + 8) * 2.0**-51)


def row_ends(grouped: LabelledRows) -> Integers:
    """Where the cluster of every row ends."""
    return validation.read_only(grouped.starts[grouped.codes + 1])


def _histograms(grouped: LabelledRows, n_threads: int | None) -> tuple[Integers, Integers]:
    """Counts (2, bins) of the pairs of different and of the same cluster, and those near edges."""
    parts = n_parts(n_threads)
    counts, near = np.zeros((parts, 2, N_BINS), np.int64), np.zeros((parts, 2, 1), np.int64)
    rows = validation.read_only(grouped.rows)
    panels, ends = packed(rows, n_threads), row_ends(grouped)
    for begin, stop in rounds(len(rows), parts):
        parallel.run(
            pair_reductions.pair_histograms,
            parallel.row_blocks(parts, 1),
            begin,
            stop,
            rows,
            panels,
            ends,
            margin_in_bins(rows, N_BINS),
            counts,
            near,
            n_threads=n_threads,
        )
    return counts.sum(axis=0), near.sum(axis=0)


def rounds(n: int, parts: int) -> Iterator[tuple[int, int]]:
    """Strips of rows, begin to stop, that fill the histograms of all parts one block further."""
    strips = -(-n // pair_reductions.STRIP)
    step = parts * max(1, _PAIRS_PER_BLOCK // (pair_reductions.STRIP * n))
    for begin in range(0, strips, step):
        yield begin, min(begin + step, strips)


def n_parts(n_threads: int | None) -> int:
    """Histograms to fill side by side: whole numbers, so how many does not change their sum."""
    return 2 * (config.num_threads() if n_threads is None else n_threads)


def _pair_scores(grouped: LabelledRows, n_threads: int | None) -> tuple[Floats, Floats]:
    """The cosines of all pairs of the same and of different clusters."""
    rows, ends = validation.read_only(grouped.rows), row_ends(grouped)
    n = len(rows)
    n_same, n_other = ends - np.arange(n) - 1, n - ends
    same = parallel.unfilled(int(n_same.sum()), np.float64)
    other = parallel.unfilled(int(n_other.sum()), np.float64)
    parallel.run(
        pair_reductions.write_pair_scores,
        parallel.row_blocks(n, 48),
        rows,
        packed(rows, n_threads),
        ends,
        np.cumsum(n_same) - n_same,
        np.cumsum(n_other) - n_other,
        same,
        other,
        n_threads=n_threads,
    )
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
