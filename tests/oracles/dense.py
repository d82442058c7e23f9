"""The slow truth of the dense searches: keys by their documented sums, sorted as a whole."""

import numpy as np


def _lane_sums(terms):
    """Sums over the last axis in 16 lanes, lanes added by halves, the rest one by one."""
    depth = terms.shape[-1]
    whole = depth - depth % 16
    lanes = np.zeros((*terms.shape[:-1], 16))
    for start in range(0, whole, 16):
        lanes = lanes + terms[..., start : start + 16]
    for half in (8, 4, 2, 1):
        lanes = lanes[..., :half] + lanes[..., half : 2 * half]
    total = lanes[..., 0]
    for j in range(whole, depth):
        total = total + terms[..., j]
    return total


def keys(queries, items, form):
    """Float64 keys (n, p); "euclidean" is minus the squared distance."""
    queries, items = queries.astype(np.float64), items.astype(np.float64)
    if form == "euclidean":
        return -np.array([_lane_sums((row - items) ** 2) for row in queries])
    products = np.array([_lane_sums(row * items) for row in queries])
    if form == "dot":
        return products
    norms = np.sqrt(_lane_sums(queries**2))[:, None] * np.sqrt(_lane_sums(items**2))[None]
    cosines = np.divide(products, norms, out=np.zeros_like(products), where=norms > 0)
    return np.clip(cosines, -1.0, 1.0)


def top_k(queries, items, k, form, exclude_self=False, excluded=None, allowed=None):
    """Indices and keys (n, k): descending key, equal keys by lower index; padded by -1 and -inf."""
    truth = keys(queries, items, form)
    if exclude_self:
        np.fill_diagonal(truth, -np.inf)
    if excluded is not None:
        truth[excluded] = -np.inf
    if allowed is not None:
        truth[:, ~allowed] = -np.inf
    order = np.argsort(-truth, axis=1, kind="stable")[:, :k]
    best = np.take_along_axis(truth, order, axis=1)
    return np.where(best > -np.inf, order, -1), best
