"""Float64 references for the benchmarks, written without any code of fastcos.

A benchmark calls one of these functions before it is timed. If the answer is wrong, the function
raises AssertionError with a message that tells the size of the error.
"""

import numpy as np

# The number of rows of an answer that are compared with the reference. The compared rows are spread
# evenly over all rows of the answer.
SAMPLE = 25
# The number of items that are converted to float64 at once. With 1,536 columns, this many items
# take 50 MB in float64.
BLOCK = 4096


def sample_of(n, size=SAMPLE):
    """Return up to `size` row numbers, spread evenly over n rows."""
    return np.linspace(0, n - 1, min(size, n)).astype(int)


def scores(queries, items, measure="cosine"):
    """Return the float64 scores (n, m) between queries (n, d) and items (m, d).

    measure is "cosine", "dot" or "euclidean"; "euclidean" gives the negative distance.
    """
    queries, result = queries.astype(np.float64), np.empty((len(queries), len(items)))
    query_norms = np.linalg.norm(queries, axis=1)
    for first in range(0, len(items), BLOCK):
        block = items[first : first + BLOCK].astype(np.float64)
        norms = np.linalg.norm(block, axis=1)
        # The items are multiplied by one query at a time, so that equal items get equal scores.
        for row, query, norm in zip(result, queries, query_norms, strict=True):
            part = row[first : first + BLOCK]
            if measure == "euclidean":
                part[:] = -np.linalg.norm(block - query, axis=1)
                continue
            part[:] = block @ query
            if measure == "cosine":
                np.divide(part, norms * norm, out=part, where=norms * norm > 0)
    return result


def wrong_neighbors(indices, queries, items, *, measure="cosine", tolerance=0.0, self_items=None):
    """Return the number of wrong neighbours of each query, as an array (n,).

    A neighbour is wrong in three cases: its float64 score is below the k-th best score by more than
    tolerance, it is repeated, or it is missing (a negative index). Neighbours with equal scores may
    therefore be listed in any order. indices has the shape (n, k). In a self-join, where a row is
    not its own neighbour, self_items holds the item number of each query.
    """
    all_scores = scores(queries, items, measure)
    if self_items is not None:
        all_scores[np.arange(len(queries)), self_items] = -np.inf
    k = indices.shape[1]
    kth = -np.partition(-all_scores, k - 1, axis=1)[:, k - 1 : k]
    valid = np.clip(indices, 0, len(items) - 1)
    neighbor_scores = np.take_along_axis(all_scores, valid, axis=1)
    wrong = (neighbor_scores < kth - tolerance) | (indices < 0)
    order = np.argsort(indices, axis=1, kind="stable")
    repeated = np.zeros_like(wrong)
    repeated[:, 1:] = np.diff(np.take_along_axis(indices, order, axis=1), axis=1) == 0
    np.put_along_axis(wrong, order, np.take_along_axis(wrong, order, axis=1) | repeated, axis=1)
    return wrong.sum(axis=1)


def neighbors(answer, queries, items=None, *, measure="cosine", excluded=None):
    """Check the neighbours, their order and their scores for a sample of the queries of an answer.

    If items is None, the answer is a self-join. excluded is a Boolean mask (n, m) of pairs that
    must not be returned.
    """
    at = sample_of(len(queries))
    reference = scores(queries[at], queries if items is None else items, measure)
    if items is None:
        reference[np.arange(len(at)), at] = -np.inf
    if excluded is not None:
        reference[excluded[at]] = -np.inf
    best = np.argsort(-reference, axis=1, kind="stable")[:, : answer.indices.shape[1]]
    np.testing.assert_array_equal(answer.indices[at], best, "the neighbours of a sample of rows")
    np.testing.assert_allclose(
        answer.scores[at], np.take_along_axis(reference, best, axis=1), rtol=1e-6, atol=1e-9
    )


def pairs_above(answer, X, min_score):
    """Check for a sample of rows that the answer lists all pairs with a cosine >= min_score."""
    at = sample_of(len(X))
    reference = scores(X[at], X)
    reference[np.arange(len(at)), at] = -np.inf
    for row, cosines in zip(at, reference, strict=True):
        indices = answer.indices[answer.indptr[row] : answer.indptr[row + 1]]
        expected = np.flatnonzero(cosines.astype(np.float32) >= np.float32(min_score))
        np.testing.assert_array_equal(np.sort(indices), expected, f"the pairs of row {row}")


def product(result, expected, tolerance=1e-5):
    """Check that no error of a product exceeds `tolerance` times the largest expected entry."""
    expected = np.asarray(expected, np.float64)
    error = np.abs(np.asarray(result) - expected).max() / max(np.abs(expected).max(), 1e-300)
    assert error <= tolerance, f"the error is {error:.3g} of the largest entry, above {tolerance:g}"


def residuals(X, s, Vt):
    """Return min(r / s, sqrt(r)) / s for every singular triplet, with r = |X'X v - s^2 v|.

    The returned number bounds the relative error of the singular value s.
    """
    V, s = np.asarray(Vt, np.float64).T, np.asarray(s, np.float64)
    V = V / np.linalg.norm(V, axis=0)
    # X has float32 entries, but SciPy computes the products in float64 because V is float64.
    r = np.linalg.norm(X.T @ (X @ V) - V * s**2, axis=0)
    return np.minimum(r / s, np.sqrt(r)) / s


def svd(result, X, tolerance):
    """Check that the residual of every singular triplet is at most tolerance."""
    largest = residuals(X, result.s, result.Vt).max()
    assert largest <= tolerance, f"the largest residual is {largest:.3g}, above {tolerance:g}"


def item_neighbors(X, at, k):
    """Return the k highest cosines of each sampled item with other items, in descending order.

    The items are the columns of X, and `at` contains the column numbers of the sampled items.
    """
    wide = X.astype(np.float64)
    norms = np.sqrt(np.asarray(wide.multiply(wide).sum(axis=0)).ravel())
    products = (wide.T @ wide[:, at].toarray()).T
    with np.errstate(invalid="ignore", divide="ignore"):
        cosines = np.nan_to_num(products / norms / norms[at][:, None])
    cosines[np.arange(len(at)), at] = -np.inf
    return -np.sort(-cosines, axis=1)[:, :k]
