"""Slow reference code for cosines in changing metrics, by NumPy and SciPy alone."""

import itertools

import numpy as np
from scipy.optimize import minimize


def cosine(x, y, w=None):
    w = np.ones(len(x)) if w is None else w
    return float((w * x) @ y / np.sqrt(((w * x) @ x) * ((w * y) @ y)))


def vertices(d, K):
    return np.array(list(itertools.product([1.0, K], repeat=d)))


def cosines_at(x, y, weights):
    """Return the cosines of one pair, one for every row of weights."""
    return (weights @ (x * y)) / np.sqrt((weights @ (x * x)) * (weights @ (y * y)))


def minimise_over_box(f, d, K, rng, starts=4):
    """Return the smallest value that L-BFGS-B finds for f(w), with w in [1, K]^d."""
    L = np.log(K)
    points = [np.full(d, L / 2), *rng.uniform(0, L, (starts, d)), *(L * rng.integers(0, 2, (2, d)))]
    return min(
        minimize(lambda u: f(np.exp(u)), u, bounds=[(0, L)] * d, method="L-BFGS-B").fun
        for u in points
    )


def cosine_matrix(rows):
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    unit = rows / np.where(norms > 0, norms, 1)
    return np.clip(unit @ unit.T, -1, 1)


def neighbour_sets(rows, k):
    """Return mask[i, j]: whether j is among the k nearest of i; ties go to the lower index."""
    scores = cosine_matrix(rows)
    np.fill_diagonal(scores, -np.inf)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    mask = np.zeros(scores.shape, bool)
    np.put_along_axis(mask, order, True, axis=1)
    return mask


def random_rotation(rng, d):
    Q, R = np.linalg.qr(rng.standard_normal((d, d)))
    return Q * np.sign(np.diag(R))


def random_map(rng, d, condition):
    """Return an invertible matrix whose singular values fill [1, condition]."""
    values = np.exp(rng.uniform(0, np.log(condition), d))
    values[0], values[-1] = 1, condition
    return (random_rotation(rng, d) * values) @ random_rotation(rng, d).T
