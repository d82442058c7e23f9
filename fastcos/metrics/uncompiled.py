"""Ranks and histograms of pairs in NumPy, bit-identical to kernels that are not compiled yet.

These kernels take 2 to 4 s each to compile, and 1,000 rows take 0.1 s here. The seconds that a
process spends here count as those of :mod:`fastcos.search.numpy_search`: see ``readiness``.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from fastcos.kernels.pair_reductions import OFFSET
from fastcos.metrics.labelled import products
from fastcos.parallel import readiness
from fastcos.validation import Floats, Integers

# Seconds that NumPy takes for a pair of rows.
_SECONDS_PER_PAIR = 1e-7
# pairs of one block: arrays of 2 MiB
_PAIRS = 2**18


def use_numpy_for(kernel: Any, n_queries: int, n_items: int) -> bool:
    """Whether NumPy does the work of a kernel for so many pairs of rows; if so, its time counts."""
    return readiness.use_numpy_for(kernel, n_queries * n_items * _SECONDS_PER_PAIR)


def average_precisions_at_r(
    queries: Integers,
    rows: Floats,
    panels: Floats,
    codes: Integers,
    sizes: Integers,
    n_threads: int | None,
) -> Floats:
    """Average precision at R of queries (n,), as the kernel of this name computes it."""
    values = np.empty(len(queries))
    for part in _blocks(len(queries), len(rows)):
        own = queries[part]
        scores = np.clip(products(rows[own], panels, len(rows), n_threads), -1.0, 1.0)
        same = codes[_ranked(scores, own)] == codes[own][:, None]
        values[part] = _precisions(same, sizes[codes[own]] - 1)
    return values


def score_label_ranks(
    scores: Floats, owns: Integers, codes: Integers, sizes: Integers, k: int
) -> tuple[Floats, Floats, Integers]:
    """AUC, average precision at R and voted label of rows (n,), as the kernel of this name."""
    ranked = _ranked(scores, owns)
    own_codes = codes[owns]
    same = codes[ranked] == own_codes[:, None]
    relevant = sizes[own_codes] - 1
    others = ranked.shape[1] - relevant
    ordered = np.take_along_axis(scores, ranked, axis=1)
    # columns of other labels above the equal scores of each column, and down to their end
    begins = np.ones(same.shape, np.bool_)
    begins[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    ends = np.roll(begins, -1, axis=1)
    ends[:, -1] = True
    down_to = np.cumsum(~same, axis=1)
    above = np.maximum.accumulate(np.where(begins, down_to - ~same, 0), axis=1)
    down_to = np.where(ends, down_to, same.shape[1])
    down_to = np.minimum.accumulate(down_to[:, ::-1], axis=1)[:, ::-1]
    doubled = (same * (2 * others[:, None] - above - down_to)).sum(axis=1)
    best = codes[ranked[:, :k]]
    votes = (best[:, :, None] == best[:, None, :]).sum(axis=2)
    voted = best[np.arange(len(best)), votes.argmax(axis=1)]
    return doubled / (2.0 * relevant * others), _precisions(same, relevant), voted


def pair_histograms(
    rows: Floats,
    panels: Floats,
    ends: Integers,
    levels: Floats,
    boundaries: Floats,
    margin: float,
    counts: Integers,
    near: Integers,
    n_threads: int | None,
) -> None:
    """Add to counts (strata, 2, bins) and near (strata, 2, 1), as the kernel of this name does."""
    n, n_bins = len(rows), counts.shape[2]
    for part in _blocks(n, n):
        scores = products(rows[part], panels, n, n_threads)
        i, j = np.nonzero(np.arange(n) > np.arange(n)[part, None])
        place = (scores[i, j] + 1.0) * (0.5 * n_bins - 1.0) + OFFSET
        whole = place.astype(np.int64)
        i += part.start
        kind = 2 * np.searchsorted(boundaries, levels[i] + levels[j]) + (j < ends[i])
        bins = kind * n_bins + np.clip(whole, 0, n_bins - 1)
        counts += np.bincount(bins, minlength=counts.size).reshape(counts.shape)
        kind = kind[np.abs(place - whole - 0.5) > 0.5 - margin]
        near += np.bincount(kind, minlength=near.size).reshape(near.shape)


def _ranked(scores: Floats, owns: Integers) -> Integers:
    """Columns without own, by descending score, then lower column."""
    # NumPy's stable sort takes twice as long as its other one: rows with equal scores alone need it
    keys = -scores
    order = np.argsort(keys, axis=1)
    ordered = np.take_along_axis(keys, order, axis=1)
    is_tied = (ordered[:, 1:] == ordered[:, :-1]).any(axis=1)
    order[is_tied] = np.argsort(keys[is_tied], axis=1, kind="stable")
    return order[order != owns[:, None]].reshape(len(scores), -1)


def _precisions(same: npt.NDArray[np.bool_], relevant: Integers) -> Floats:
    """Average precision at R = relevant of ranked flags, summed in the order of the ranks."""
    same = same[:, : relevant.max()]
    precisions = np.cumsum(same, axis=1) / np.arange(1, same.shape[1] + 1)
    sums = np.cumsum(np.where(same, precisions, 0.0), axis=1)
    return sums[np.arange(len(sums)), relevant - 1] / relevant


def _blocks(n: int, n_columns: int) -> Iterator[slice]:
    """Yield slices of n rows, as long as their columns allow."""
    size = max(1, _PAIRS // n_columns)
    for first in range(0, n, size):
        yield slice(first, first + size)
