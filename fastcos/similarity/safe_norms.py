"""Scaling of float64 rows whose squares would underflow; scaling a row changes no cosine."""

import numpy as np
import numpy.typing as npt

from fastcos.validation import Floats

# If the norm of a row is smaller than this number, the squares of its entries lose digits in
# float64 or underflow to 0.
MIN_NORM = 2.0**-480


def find_small(norms: Floats) -> npt.NDArray[np.intp]:
    """Return the row numbers of the rows whose squares may underflow, including zero rows."""
    return np.flatnonzero(norms < MIN_NORM)


def exponents_for(largest: Floats) -> npt.NDArray[np.intc]:
    """Return, for each row, the exponent e for which ½ <= 2^e * ``largest`` < 1.

    ``largest`` (n,) contains the largest magnitude of each row. The exponent is 0 for a magnitude
    of 0.
    """
    return -np.frexp(largest)[1]


def scale_up(rows: Floats, norms: Floats) -> tuple[Floats, npt.NDArray[np.intc]] | None:
    """Multiply small rows by powers of 2; return all rows, and the exponents (n,) of the powers.

    Return None if no row has to be scaled. Multiplying by a power of 2 does not round.
    """
    small = find_small(norms)
    largest = np.abs(rows[small]).max(axis=1, initial=0)
    if not largest.any():
        return None
    exponents = np.zeros(len(rows), np.intc)
    exponents[small] = exponents_for(largest)
    return np.ldexp(rows, exponents[:, None]), exponents
