"""References in float64, and peak memory, for every benchmark."""

import sys
import tracemalloc

import numpy as np

# rows whose neighbours are compared with a reference
CHECKED_ROWS = 25


def peak_bytes(operation):
    """Return the peak bytes of an operation without its inputs: NumPy arrays, Python objects."""
    memory = sys.modules.get("fastcos.linalg.buffer_pool")
    if memory:  # older versions have none
        memory.release()
    tracemalloc.start()
    try:
        operation()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def scores_of(query, items, measure):
    """Return the float64 scores of one query."""
    items, query = items.astype(np.float64), query.astype(np.float64)
    products = items @ query
    if measure == "dot":
        return products
    if measure == "neg_euclidean":
        return -np.sqrt(((items - query) ** 2).sum(axis=1))
    lengths = np.linalg.norm(items, axis=1) * np.linalg.norm(query)
    return np.divide(products, lengths, out=np.zeros_like(products), where=lengths > 0)


def wrong_rows(indices, queries, items=None, measure="cosine"):
    """Return how many of CHECKED_ROWS queries lack their exact neighbours in order."""
    own, wrong = items is None, 0
    items = queries if own else items
    for row in np.linspace(0, len(queries) - 1, min(CHECKED_ROWS, len(queries))).astype(int):
        scores = scores_of(queries[row], items, measure)
        if own:
            scores[row] = -np.inf
        wrong += not np.array_equal(
            np.argsort(-scores, kind="stable")[: indices.shape[1]], indices[row]
        )
    return wrong


def relative_error(found, truth):
    """Return the largest error as a share of the largest true value."""
    truth = np.asarray(truth, np.float64)
    return float(np.abs(np.asarray(found) - truth).max() / max(np.abs(truth).max(), 1e-300))


def residuals(X, s, Vt):
    """Return min(r / s, r^1/2) / s, r = |X'Xv - s^2 v|, of every triplet, in float64 by SciPy."""
    V, s = np.asarray(Vt, np.float64).T, np.asarray(s, np.float64)
    V = V / np.linalg.norm(V, axis=0)
    X = X.astype(np.float64)
    r = np.linalg.norm(X.T @ (X @ V) - V * s**2, axis=0)
    return np.minimum(r / s, np.sqrt(r)) / s


def largest_residual(X, s, Vt):
    """Return the largest of residuals."""
    return float(residuals(X, s, Vt).max())


def eigen_residual(X, s, Vt):
    """Return the largest |X'Xv - s^2 v| as a share of the largest eigenvalue of X'X."""
    wide, V = X.astype(np.float64), np.asarray(Vt, np.float64).T
    return np.linalg.norm(wide.T @ (wide @ V) - V * s**2, axis=0).max() / s[0] ** 2
