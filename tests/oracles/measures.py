"""The dense float64 formula of every measure, implemented without any code of this project.

A formula takes the queries Q and the rows B, and returns the scores (n, p).
"""

import numpy as np
import scipy  # SciPy's submodules are imported only when used, as bench imports this module often


def norms(X):
    return np.array([np.sqrt(sum(float(x) ** 2 for x in row)) for row in X])


def unit(X):
    X = np.asarray(X, np.float64)
    length = norms(X)[:, None]
    return np.divide(X, length, out=np.zeros_like(X), where=length > 0)


def cosine(Q, B):
    return np.clip(unit(Q) @ unit(B).T, -1, 1)


def soft(Q, B, S):
    top = Q @ S @ B.T
    query_norms = np.sqrt(np.einsum("ij,jk,ik->i", Q, S, Q))
    right = np.sqrt(np.einsum("ij,jk,ik->i", B, S, B))
    return top / query_norms[:, None] / right


def euclidean(Q, B):
    return np.sqrt(np.square(Q[:, None, :] - B[None, :, :]).sum(axis=2))


def centred(Q, B):
    return cosine(Q - B.mean(axis=0), B - B.mean(axis=0))


def without_top(Q, B, r):
    mean = B.mean(axis=0)
    _, _, directions = np.linalg.svd(B - mean, full_matrices=False)
    for v in directions[:r]:
        Q, B = Q - np.outer((Q - mean) @ v, v), B - np.outer((B - mean) @ v, v)
    return cosine(Q - mean, B - mean)


def whitened(Q, B, centred=True, weights=None, centred_rows=True):
    shares = np.full(len(B), 1 / len(B)) if weights is None else weights / weights.sum()
    mean = shares @ B if centred else np.zeros(B.shape[1])
    S = np.linalg.inv((B - mean).T @ np.diag(shares) @ (B - mean))
    shift = mean if centred_rows else 0
    return soft(Q - shift, B - shift, S)


def pearson_over_dimensions(Q, B):
    return np.corrcoef(np.vstack([Q, B]))[: len(Q), len(Q) :]


def spearman(Q, B):
    return pearson_over_dimensions(scipy.stats.rankdata(Q, axis=1), scipy.stats.rankdata(B, axis=1))


def zscores(Q, B):
    mean, deviation = B.mean(axis=0), B.std(axis=0)
    return cosine((Q - mean) / deviation, (B - mean) / deviation)


def weights(AB):
    A, B = np.split(AB, 2, axis=1)
    W = A @ B.T
    return W / np.sqrt(np.outer(np.diag(W), np.diag(W)))


def scaled(Q, B, alpha):
    m = norms(B).mean()
    return alpha * cosine(Q, B) + (1 - alpha) * (norms(Q)[:, None] + norms(B)) / m


def augmented(Q, B, beta, normalized=False):
    m = norms(B).mean()
    Q = np.column_stack([unit(Q), beta * norms(Q) / m])
    B = np.column_stack([unit(B), beta * norms(B) / m])
    return cosine(Q, B) if normalized else Q @ B.T


def others(scores):
    """Return the scores of all items with all items, without the diagonal."""
    n = len(scores)
    return scores[~np.eye(n, dtype=bool)].reshape(n, n - 1)


def query_normalized(B):
    rest = others(cosine(B, B))
    return (cosine(B, B) - rest.mean(axis=1)[:, None]) / rest.std(axis=1)[:, None]


def query_normalized_apart(Q, B):
    c = cosine(Q, B)
    return (c - c.mean(axis=1, keepdims=True)) / c.std(axis=1, keepdims=True)


def mean_of_best(scores, k):
    return np.sort(scores, axis=1)[:, -k:].mean(axis=1)


def csls(B, k):
    r = mean_of_best(others(cosine(B, B)), k)
    return 2 * cosine(B, B) - r[:, None] - r


def csls_apart(Q, B, k, other):
    r_q = mean_of_best(cosine(Q, B), k)
    r_b = mean_of_best(cosine(B, other), k)
    return 2 * cosine(Q, B) - r_q[:, None] - r_b


def local_scaling(B, k):
    d = euclidean(unit(B), unit(B))
    s = np.sort(others(d), axis=1)[:, k - 1]
    return np.exp(-(d**2) / np.outer(s, s))


def dis_sim_local(B, k):
    d = euclidean(B, B)
    np.fill_diagonal(d, np.inf)
    centroids = np.array([B[np.argsort(row, kind="stable")[:k]].mean(axis=0) for row in d])
    own = np.square(B - centroids).sum(axis=1)
    return -(euclidean(B, B) ** 2 - own[:, None] - own)


def mutual_proximity(B):
    d = 1 - cosine(B, B)
    rest = others(d)
    law = scipy.stats.norm(rest.mean(axis=1), rest.std(axis=1))
    # Entry (i, j) of `mine` is the probability that the distance from row i to another row is
    # larger than d_ij.
    mine = np.array([law.sf(column) for column in d.T]).T
    return mine.T * mine


def norm_angle(Q, B, weight):
    return -(np.abs(norms(Q)[:, None] - norms(B)) + weight * np.arccos(cosine(Q, B)))


def recos(Q, B):
    scores = np.zeros((len(Q), len(B)))
    for i, x in enumerate(Q):
        for j, y in enumerate(B):
            top = sum(float(a) * float(b) for a, b in zip(x, y, strict=True))
            other = sorted(y.tolist(), reverse=top < 0)
            bottom = abs(sum(a * b for a, b in zip(sorted(x.tolist()), other, strict=True)))
            scores[i, j] = top / bottom if bottom > 0 else 0.0
    return scores


def word_rotator(x, y, V):
    """Solve the optimal transport between two bags of the vectors V as a linear programme."""
    size = norms(V)
    a, b = x * size / (x * size).sum(), y * size / (y * size).sum()
    cost = 1 - cosine(V, V)
    p = len(V)
    rows = np.kron(np.eye(p), np.ones(p))
    columns = np.kron(np.ones(p), np.eye(p))
    done = scipy.optimize.linprog(
        cost.ravel(), A_eq=np.vstack([rows, columns]), b_eq=np.concatenate([a, b])
    )
    return done.fun
