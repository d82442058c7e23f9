"""Float64 rows whose squares would underflow, scaled up by powers of two for the cosine."""

import numpy as np
import numpy.typing as npt

# squares of rows with a smaller norm lose digits in float64, or vanish
_LEAST_NORM = 2.0**-480

Floats = npt.NDArray[np.float64]


def may_underflow(norms: Floats) -> bool:
    """Return whether the squares of a row with one of these norms may underflow; 0 counts."""
    return bool((norms < _LEAST_NORM).any())


def exponents_to_scale(norms: Floats, largest: Floats) -> npt.NDArray[np.intc] | None:
    """Return the power of two (n,) for each row, 0 for rows that keep theirs; None if all do.

    norms (n,) as measured; largest (n,): the largest magnitude of each row.
    """
    small = norms < _LEAST_NORM
    if not (small & (largest > 0)).any():
        return None
    return np.where(small, -np.frexp(largest)[1], 0).astype(np.intc)


def scale_up(rows: Floats, norms: Floats) -> tuple[Floats, npt.NDArray[np.intc]] | None:
    """Return float64 rows whose squares keep their digits, and the powers of two; None if all do.

    Scaling by a power of two rounds nothing.
    """
    if not may_underflow(norms):
        return None
    exponents = exponents_to_scale(norms, np.abs(rows).max(axis=1))
    if exponents is None:
        return None
    return np.ldexp(rows, exponents[:, None]), exponents
