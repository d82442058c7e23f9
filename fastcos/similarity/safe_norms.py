"""Float64 rows whose squares would underflow, scaled up by powers of two for the cosine."""

import numpy as np
import numpy.typing as npt

from fastcos.validation import Floats

# squares of rows with a smaller norm lose digits in float64, or vanish
LEAST_NORM = 2.0**-480


def find_small(norms: Floats) -> npt.NDArray[np.intp]:
    """Return the numbers of the rows whose squares may underflow, zero rows among them."""
    return np.flatnonzero(norms < LEAST_NORM)


def exponents_for(largest: Floats) -> npt.NDArray[np.intc]:
    """Return the power of two that brings each largest magnitude near 1, 0 for 0."""
    return -np.frexp(largest)[1]


def scale_up(rows: Floats, norms: Floats) -> tuple[Floats, npt.NDArray[np.intc]] | None:
    """Return float64 rows whose squares keep their digits, and the powers of two; None if all do.

    Scaling by a power of two rounds nothing.
    """
    small = find_small(norms)
    largest = np.abs(rows[small]).max(axis=1, initial=0)
    if not largest.any():
        return None
    exponents = np.zeros(len(rows), np.intc)
    exponents[small] = exponents_for(largest)
    return np.ldexp(rows, exponents[:, None]), exponents
