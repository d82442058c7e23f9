"""Means and covariances of rows in memory or on disk, summed over blocks of rows."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from fastcos import parallel
from fastcos.parallel import memmap
from fastcos.validation import Floats, Rows

# Number of entries in a block of rows. A block takes 16 MiB in float64. The last bits of a sum over
# rows depend on the size of the blocks.
_ENTRIES_PER_BLOCK = 2**21
# Number of rows in one QR decomposition. The number is constant, so that sums are added in the same
# order for any number of threads.
_ROWS_PER_QR = 4096


def mean_of(rows: Rows, shares: Floats | None = None) -> Floats:
    """Return the mean row (d,) in float64; the mean of a constant column is exact.

    ``shares`` (n,) contains the weights of the rows, which sum to 1. By default, all weights are
    1/n.
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
    """Return the weighted mean (d, d) of xx' over all rows x = row - mean.

    ``shares`` (n,) contains the weights of the rows, which sum to 1. By default, all weights are
    1/n.
    """
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
        """The mean of xx' over the rows x."""
        return self.covariance + np.outer(self.mean, self.mean)


def moments_of(rows: Rows) -> Moments:
    """Return the moments of rows; two passes over the rows keep the covariance precise."""
    mean = mean_of(rows)
    return Moments(mean, gram_of(rows, mean))


def mean_squares_of(rows: Rows, mean: Floats) -> Floats:
    """Return the mean squared deviation of each column (d,) from its entry in ``mean``."""
    total = np.zeros(rows.shape[1])
    for _, block in blocks_of(rows):
        total += np.square(block - mean).sum(axis=0)
    return total / len(rows)


def blocks_of(rows: Rows) -> Iterator[tuple[int, Rows]]:
    """Yield blocks of rows, each with the number of its first row.

    The rows may be in memory or memory-mapped.
    """
    return memmap.iter_blocks("items", rows, max(1, _ENTRIES_PER_BLOCK // rows.shape[1]))


def triangle(rows: Rows, centre: Floats | None = None) -> Floats:
    """Return the triangular factor R of the QR decomposition of rows - centre.

    R has the shape (min(n, k), k) for n rows of width k. The rows are decomposed in chunks.
    """
    R: Floats = np.zeros((0, rows.shape[1]))
    # With several threads, OpenBLAS would start its threads for each of the small products of a QR
    # decomposition. On busy cores, this would make the decomposition 10 to 100 times as slow.
    with parallel.one_blas_thread():
        for first in range(0, len(rows), _ROWS_PER_QR):
            chunk = rows[first : first + _ROWS_PER_QR].astype(np.float64)
            if centre is not None:
                chunk -= centre
            with parallel.blas_lock():
                R = np.asarray(np.linalg.qr(np.concatenate([R, chunk]), mode="r"))
    return R
