"""Statistics of the columns of a sparse matrix, a dense matrix or InteractionShards."""

from typing import Any

import numpy as np
import numpy.typing as npt

from fastcos.linalg.products import rmatmul
from fastcos.linalg.shards import InteractionShards
from fastcos.validation import is_sparse


def values(X: Any) -> npt.NDArray[Any]:
    """Return an array whose minimum and maximum equal those of the values stored in X."""
    if isinstance(X, InteractionShards):
        return np.concatenate([X.column_lows, X.column_highs])
    return X.data if is_sparse(X) else X


def are_empty(X: Any, center: bool) -> npt.NDArray[np.bool_]:
    """Return a mask (p,) of the zero columns or, if `center` is true, of the constant columns."""
    if isinstance(X, InteractionShards):
        low, high = X.column_lows, X.column_highs
        return np.equal(low, high) if center else np.equal(low, 0) & np.equal(high, 0)
    if center:
        low, high = X.min(axis=0), X.max(axis=0)
        if is_sparse(X):
            low, high = low.toarray().ravel(), high.toarray().ravel()
        return np.asarray(low == high)
    if is_sparse(X):
        return np.asarray(np.bincount(X.indices, minlength=X.shape[1]) == 0)
    return ~X.any(axis=0)


def means(X: Any) -> npt.NDArray[np.float64]:
    """Return the means (p,) of the columns in float64."""
    if isinstance(X, InteractionShards):
        return np.asarray(X.column_sums / X.shape[0])
    return np.asarray(rmatmul(X, np.ones((X.shape[0], 1)))[:, 0] / X.shape[0], np.float64)
