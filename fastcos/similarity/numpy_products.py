"""Inner products of rows in NumPy, with the same bits as in the kernels of ``pair_scores``."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from fastcos.validation import Floats

# kernels.pair_scores adds up the products of the entries of two rows in this many partial sums.
_LANES = 16
# Number of entries in a slice of rows. A slice is so small that the products of its entries stay in
# the cache.
_ENTRIES_PER_SCORING = 1 << 17


def row_products(x: npt.NDArray[Any], y: npt.NDArray[Any]) -> Floats:
    """Return, for each i, the inner product of rows x[i] and y[i], summed as in ``pair_scores``."""
    depth = x.shape[1]
    whole = depth - depth % _LANES
    lanes = np.zeros((len(x), _LANES))
    for j in range(0, whole, _LANES):
        lanes += np.multiply(x[:, j : j + _LANES], y[:, j : j + _LANES], dtype=np.float64)
    while lanes.shape[1] > 1:
        half = lanes.shape[1] // 2
        lanes = lanes[:, :half] + lanes[:, half:]
    total: Floats = lanes[:, 0].copy()
    for j in range(whole, depth):
        total += np.multiply(x[:, j], y[:, j], dtype=np.float64)
    return total


def row_norms_in_numpy(rows: npt.NDArray[Any]) -> Floats:
    """Return the Euclidean norms (n,) of rows."""
    norms = np.empty(len(rows))
    for part in slices(len(rows), rows.shape[1]):
        norms[part] = np.sqrt(row_products(rows[part], rows[part]))
    return norms


def slices(n: int, depth: int, entries: int = _ENTRIES_PER_SCORING) -> Iterator[slice]:
    """Cut n rows of width ``depth`` into slices of about ``entries`` numbers each."""
    size = max(1, entries // depth)
    for lo in range(0, n, size):
        yield slice(lo, lo + size)
