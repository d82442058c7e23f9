"""Standard errors of means over sampled items."""

import numpy as np

from fastcos.validation import Floats


def standard_error(values: Floats, population: int) -> float:
    """Standard error of the mean of a sample drawn without replacement; 0 for all of them."""
    n = len(values)
    if n < 2 or n >= population:
        return 0.0
    return float(values.std(ddof=1) * np.sqrt((1 - n / population) / n))
