"""Euclidean row norms without underflow: rows of tiny float64 values are rescaled exactly.

A product with a power of two rounds nothing, and cosines do not depend on the length of a row.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastcos import parallel, validation
from fastcos.kernels import pair_scores

Floats = npt.NDArray[np.float64]

# squares of values below 2^-511 underflow; with 2^31 columns, so does a row of norm below 2^-480
_SMALLEST_SAFE_NORM = 2.0**-480
# multiplications of one block of rows: about 0.1 ms
_WORK_PER_BLOCK = 1_000_000


class RescaledRows(NamedTuple):
    """Rows, those of tiny norm multiplied by powers of two.

    Attributes
    ----------
    rows : ndarray (n, d)
        The given array where no row needs rescaling.
    norms : ndarray (n,), float64
        Norms of rows.
    exponents : ndarray (n,), int, or None
        rows[i] = given[i] * 2**exponents[i]; None where no row needs rescaling.
    """

    rows: validation.Rows
    norms: Floats
    exponents: npt.NDArray[np.intc] | None


def row_norms(rows: validation.Rows, n_threads: int | None = None) -> Floats:
    """Return the norms of rows, right for tiny values too; (n,)."""
    _, norms, exponents = rescale_tiny_rows(rows, n_threads)
    return norms if exponents is None else np.ldexp(norms, -exponents)


def rescale_tiny_rows(rows: validation.Rows, n_threads: int | None = None) -> RescaledRows:
    """Return rows whose squares are safe, for scale-invariant similarities."""
    norms = _norms(rows, n_threads)
    tiny = find_tiny(norms, rows.dtype)
    if tiny is None or not rows[tiny].any():
        return RescaledRows(rows, norms, None)
    exponents = np.zeros(len(rows), np.intc)
    exponents[tiny] = rescaling_exponents(np.abs(rows[tiny]).max(axis=1))
    rescaled = rows.copy()
    rescaled[tiny] = np.ldexp(rows[tiny], exponents[tiny, None])
    rescaled = validation.read_only(rescaled)
    return RescaledRows(rescaled, _norms(rescaled, n_threads), exponents)


def find_tiny(norms: Floats, dtype: npt.DTypeLike) -> npt.NDArray[np.bool_] | None:
    """Return which rows may need rescaling, zero rows among them; None where none does."""
    # float32 squares are summed in float64, which holds them
    if dtype != np.float64 or not norms.min() < _SMALLEST_SAFE_NORM:
        return None
    return np.asarray(norms < _SMALLEST_SAFE_NORM)


def rescaling_exponents(largest: npt.NDArray[Any]) -> npt.NDArray[np.intc]:
    """Return the exponents that bring each row's largest magnitude to [1/2, 1)."""
    exponents: npt.NDArray[np.intc] = -np.frexp(largest)[1]
    return exponents


def _norms(rows: validation.Rows, n_threads: int | None) -> Floats:
    norms = parallel.unfilled(len(rows), np.float64)
    blocks = parallel.row_blocks(len(rows), max(1, _WORK_PER_BLOCK // rows.shape[1]))
    arrays = validation.read_only(np.ascontiguousarray(rows)), norms
    parallel.run(pair_scores.row_norms, blocks, *arrays, n_threads=n_threads)
    return validation.read_only(norms)
