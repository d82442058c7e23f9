"""Moments of rows, which are in memory or memory-mapped; sums are over blocks of rows."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from fastcos import parallel
from fastcos.parallel import memmap
from fastcos.validation import Floats, Rows

# Number of entries in a block, 16 MiB in float64. The last bits of the sums depend on it.
_ENTRIES_PER_BLOCK = 2**21
# Number of rows in one QR decomposition. It is fixed, so that the order of the sums is fixed.
_ROWS_PER_QR = 4096


def mean_of(rows: Rows, shares: Floats | None = None) -> Floats:
    """Return the mean row (d,) in float64, exact for a constant column.

    shares (n,): weights of the rows, which sum to 1; equal weights by default.
    """
    mean = np.zeros(rows.shape[1])
    first, is_constant = rows[0], np.full(rows.shape[1], True)
    for lo, block in blocks_of(rows):
        if shares is None:
            mean += block.sum(axis=0, dtype=np.float64)
        else:
            with parallel.blas_lock():
                mean += shares[lo : lo + len(block)] @ block
        is_constant &= (block.max(axis=0) == first) & (block.min(axis=0) == first)
    if shares is None:
        mean /= len(rows)
    mean[is_constant] = first[is_constant]
    return mean


def gram_of(rows: Rows, mean: Floats, shares: Floats | None = None) -> Floats:
    """Return the sum over rows of share (default: 1/n) times the outer square of row - mean."""
    d = rows.shape[1]
    total = np.zeros((d, d))
    for lo, block in blocks_of(rows):
        centred = block - mean
        weights = 1 / len(rows) if shares is None else shares[lo : lo + len(block), None]
        weighted = centred * weights
        with parallel.blas_lock():
            total += centred.T @ weighted
    total += total.T
    return total / 2


class Moments(NamedTuple):
    """The mean (d,) and the covariance (d, d) of rows, float64."""

    mean: Floats
    covariance: Floats

    @property
    def second(self) -> Floats:
        """Mean outer product of the rows."""
        return self.covariance + np.outer(self.mean, self.mean)


def moments_of(rows: Rows) -> Moments:
    """Return the moments of rows. Two passes over the rows keep the digits of the covariance."""
    mean = mean_of(rows)
    return Moments(mean, gram_of(rows, mean))


def mean_squares_of(rows: Rows, mean: Floats) -> Floats:
    """Return the mean over rows of the squared entries of row - mean, (d,)."""
    total = np.zeros(rows.shape[1])
    for _, block in blocks_of(rows):
        total += np.square(block - mean).sum(axis=0)
    return total / len(rows)


def blocks_of(rows: Rows) -> Iterator[tuple[int, Rows]]:
    """Yield blocks of rows, in memory or memory-mapped, each with the number of its first row."""
    return memmap.iter_blocks("items", rows, max(1, _ENTRIES_PER_BLOCK // rows.shape[1]))


def triangle(rows: Rows, centre: Floats | None = None) -> Floats:
    """Return the triangular factor R of the QR decomposition of rows - centre, by chunks of rows.

    R has the shape (k, k), or fewer rows if there are fewer than k rows.
    """
    R: Floats = np.zeros((0, rows.shape[1]))
    # OpenBLAS would start its threads for each of the small products of a QR decomposition. On two
    # busy cores this takes 10 to 100 times as long (39,774 x 50: 2.3 s instead of 0.1 s).
    with parallel.one_blas_thread():
        for first in range(0, len(rows), _ROWS_PER_QR):
            chunk = rows[first : first + _ROWS_PER_QR].astype(np.float64)
            if centre is not None:
                chunk -= centre
            with parallel.blas_lock():
                R = np.asarray(np.linalg.qr(np.concatenate([R, chunk]), mode="r"))
    return R
