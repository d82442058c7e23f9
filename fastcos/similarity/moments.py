"""Moments of rows: sums over all of them, in blocks, in memory or memory-mapped."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from fastcos import parallel
from fastcos.parallel import memmap
from fastcos.validation import Floats, Rows

# numbers of a partial sum over rows, 16 MiB in float64; sums depend on it, in their last bits
_NUMBERS_PER_SUM = 2**21
# rows of one QR decomposition; fixed, so that the factor has one order of sums
_ROWS_PER_QR = 4096


def mean_of(rows: Rows, shares: Floats | None = None) -> Floats:
    """Return the mean row in float64, by shares (n,) that sum to 1; exact for a constant column."""
    mean = np.zeros(rows.shape[1])
    first, same = rows[0], np.full(rows.shape[1], True)
    for lo, block in blocks_of(rows):
        if shares is None:
            mean += block.sum(axis=0, dtype=np.float64)
        else:
            with parallel.blas_lock():
                mean += shares[lo : lo + len(block)] @ block
        same &= (block.max(axis=0) == first) & (block.min(axis=0) == first)
    if shares is None:
        mean /= len(rows)
    mean[same] = first[same]
    return mean


def gram_of(rows: Rows, mean: Floats, shares: Floats | None = None) -> Floats:
    """Return the sum over rows of share (default 1/n) times the outer square of row - mean."""
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
    """Mean (d,) and covariance (d, d) of rows, float64."""

    mean: Floats
    covariance: Floats

    @property
    def second(self) -> Floats:
        """Mean outer product of the rows."""
        return self.covariance + np.outer(self.mean, self.mean)


def moments_of(rows: Rows) -> Moments:
    """Return the moments of rows, in two passes: the covariance keeps its digits."""
    mean = mean_of(rows)
    return Moments(mean, gram_of(rows, mean))


def mean_squares_of(rows: Rows, mean: Floats) -> Floats:
    """Return the mean over rows of the squared entries of row - mean, (d,)."""
    total = np.zeros(rows.shape[1])
    for _, block in blocks_of(rows):
        total += np.square(block - mean).sum(axis=0)
    return total / len(rows)


def blocks_of(rows: Rows) -> Iterator[tuple[int, Rows]]:
    """Yield the number of the first row, and the rows, of blocks in memory or on disk."""
    return memmap.iter_blocks("items", rows, max(1, _NUMBERS_PER_SUM // rows.shape[1]))


def triangle(rows: Rows, centre: Floats | None = None) -> Floats:
    """Return R of rows = Q R, (at most k, k), by QR of one chunk of rows after another."""
    corner: Floats = np.zeros((0, rows.shape[1]))
    # OpenBLAS starts its threads for each of the small products of a QR, which takes 10 to 100
    # times as long on two busy cores (39,774 x 50: 2.3 s and 0.1 s)
    with parallel.one_blas_thread():
        for first in range(0, len(rows), _ROWS_PER_QR):
            chunk = rows[first : first + _ROWS_PER_QR].astype(np.float64)
            if centre is not None:
                chunk -= centre
            with parallel.blas_lock():
                corner = np.asarray(np.linalg.qr(np.concatenate([corner, chunk]), mode="r"))
    return corner
