"""Rows of estimators: scikit-learn's checks and messages, and those of every other entry point."""

from typing import Any

import numpy as np

from fastcos.validation.arguments import Rows, as_row_shape, as_rows
from fastcos.validation.containers import as_array, from_container


def estimator_rows(estimator: Any, X: Any, *, reset: bool) -> Rows:
    """Return dense rows X as as_rows does; set or check the estimator's features."""
    from sklearn.utils.validation import validate_data

    given = from_container("X", X)
    if len(getattr(given, "shape", (0, 0))) == 1:  # perhaps a column of vectors
        given = as_array("X", given)
    elif hasattr(given, "columns"):  # scikit-learn's message would not say which column is wrong
        as_array("X", given)
    # values are checked by as_rows: scikit-learn's message of NaN has five lines
    dense = validate_data(
        estimator, given, reset=reset, dtype=(np.float64, np.float32), ensure_all_finite=False
    )
    as_row_shape("X", given)  # scikit-learn reads text, dates and packed bits as numbers
    return as_rows("X", dense)
