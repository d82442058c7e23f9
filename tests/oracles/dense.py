"""The true results of dense searches.

The keys of all pairs are computed by the documented sums, and sorted by NumPy.
"""

import itertools

import numpy as np

# Number of products per block. The products of a block take 1 MiB, and fit into the caches of a
# core.
BLOCK = 2**17


def _lane_sums(terms):
    """Sum over the first axis in 16 lanes, add the lanes, and add the remaining terms one by one.

    To add the lanes, one half of them is added to the other half until only one lane is left.
    """
    depth = len(terms)
    whole = depth - depth % 16
    lanes = np.zeros((16, *terms.shape[1:]))
    for start in range(0, whole, 16):
        lanes += terms[start : start + 16]
    for half in (8, 4, 2, 1):
        lanes = lanes[:half] + lanes[half : 2 * half]
    total = lanes[0]
    for j in range(whole, depth):
        total = total + terms[j]
    return total


def keys(queries, items, form):
    """Return keys (n, p) in float64; for "euclidean", a key is minus the squared distance."""
    queries, items = (np.ascontiguousarray(rows.T, np.float64) for rows in (queries, items))
    (depth, n), p = queries.shape, items.shape[1]
    truth = np.empty((n, p))
    step = max(1, BLOCK // max(1, depth))
    for i, lo in itertools.product(range(n), range(0, p, step)):
        query, block = queries[:, i : i + 1], items[:, lo : lo + step]
        if form == "euclidean":
            truth[i, lo : lo + step] = -_lane_sums((query - block) ** 2)
        else:
            truth[i, lo : lo + step] = _lane_sums(query * block)
    if form == "cosine":
        norms = np.sqrt(_lane_sums(queries**2))[:, None] * np.sqrt(_lane_sums(items**2))[None]
        truth = np.divide(truth, norms, out=np.zeros_like(truth), where=norms > 0)
        truth = np.clip(truth, -1.0, 1.0)
    return truth


def top_k(queries, items, k, form, exclude_self=False, excluded=None, allowed=None):
    """Return indices and keys (n, k) by descending key, then by index, padded by -1 and -inf."""
    truth = keys(queries, items, form)
    if exclude_self:
        np.fill_diagonal(truth, -np.inf)
    if excluded is not None:
        truth[excluded] = -np.inf
    if allowed is not None:
        truth[:, ~allowed] = -np.inf
    order = np.stack([_best_first(row, k) for row in truth])
    best = np.take_along_axis(truth, order, axis=1)
    return np.where(best > -np.inf, order, -1), best


def _best_first(row, k):
    """Return the columns of the k highest keys, in descending order of the keys.

    Only keys that are at least as high as the k-th highest key are sorted.
    """
    candidates = np.arange(len(row))
    if k < len(row):
        candidates = np.flatnonzero(row >= np.partition(row, len(row) - k)[len(row) - k])
    return candidates[np.argsort(-row[candidates], kind="stable")[:k]]
