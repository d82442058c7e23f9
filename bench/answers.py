"""References in float64 for every benchmark."""

import pkgutil

import numpy as np

# rows whose neighbours are compared with a reference
CHECKED_ROWS = 25
# items that are converted to float64 at once: 50 MB of 1,536 columns
BLOCK = 4096


def reference(name):
    """Return the function of this name, "sklearn.metrics:roc_auc_score", imported when called.

    Most processes of a benchmark never call it, and scikit-learn takes a second to import.
    """
    return lambda *given, **options: pkgutil.resolve_name(name)(*given, **options)


def scores_of(queries, items, measure):
    """Return the float64 scores of a few queries among all items."""
    queries, scores = queries.astype(np.float64), np.empty((len(queries), len(items)))
    for at in range(0, len(items), BLOCK):
        block = items[at : at + BLOCK].astype(np.float64)
        norms = np.linalg.norm(block, axis=1)
        # one product at a time: duplicates have equal scores
        for row, query in zip(scores[:, at : at + BLOCK], queries, strict=True):
            if measure == "neg_euclidean":
                row[:] = -np.sqrt(((block - query) ** 2).sum(axis=1))
                continue
            row[:] = block @ query
            if measure == "cosine":
                lengths = norms * np.linalg.norm(query)
                np.divide(row, lengths, out=row, where=lengths > 0)
    return scores


def wrong_rows(indices, queries, items=None, measure="cosine", ties=0.0):
    """Return how many of CHECKED_ROWS queries lack their exact neighbours in order.

    Neighbours whose float64 scores differ by at most ties may be swapped.
    """
    rows = np.linspace(0, len(queries) - 1, min(CHECKED_ROWS, len(queries))).astype(int)
    scores = scores_of(queries[rows], queries if items is None else items, measure)
    if items is None:
        scores[np.arange(len(rows)), rows] = -np.inf
    best = np.argsort(-scores, axis=1, kind="stable")[:, : indices.shape[1]]
    wrong = best != indices[rows]
    if ties:
        truth, found = (np.take_along_axis(scores, one, axis=1) for one in (best, indices[rows]))
        repeated = np.diff(np.sort(indices[rows], axis=1), axis=1) == 0
        wrong &= ~(abs(truth - found) <= ties) | repeated.any(axis=1, keepdims=True)
    return int(wrong.any(axis=1).sum())


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
