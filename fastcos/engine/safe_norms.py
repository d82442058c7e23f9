"""Float64 rows too short for their squares, made longer for cosines, which do not see it."""

import numpy as np
import numpy.typing as npt

# squares of rows that are shorter lose digits in float64, or vanish
_SHORTEST = 2.0**-480


def are_short(norms: npt.NDArray[np.float64], dtype: npt.DTypeLike) -> npt.NDArray[np.bool_] | None:
    """Which rows may be too short, zero rows among them; None where there are none."""
    if dtype != np.float64 or not norms.min() < _SHORTEST:
        return None
    return np.asarray(norms < _SHORTEST)


def exponents(largest: npt.NDArray[np.float64]) -> npt.NDArray[np.intc]:
    """What to add to a row's binary exponents, given its largest size; scaling rounds nothing."""
    return -np.frexp(largest)[1]
