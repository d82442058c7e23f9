"""Seeded inputs of the benchmarks; append to them, never change them: times must compare."""

from pathlib import Path

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import svds

DATA = Path(__file__).parents[2] / "shared" / "data"


def decks():
    """Return decks by cards, float32 CSR 385,215 x 17,192 with 12.0 M counts; None if missing."""
    path = DATA / "mtg" / "mtg_csr.npz"
    if not path.exists():
        return None
    parts = np.load(path)
    data, indices = parts["data"].astype(np.float32), parts["indices"].astype(np.int32)
    X = sp.csr_array((data, indices, parts["indptr"]), shape=tuple(parts["shape"]))
    X.eliminate_zeros()
    return X


def zipf_interactions(
    n_users=140_000, n_items=27_000, nnz=18_000_000, *, n_tastes=64, exponent=1.0, seed=0
):
    """Return binary float32 CSR with about nnz interactions: log-normal users, Zipfian items.

    Half of a user's draws follow the common order of popularity. The other half follow one of
    n_tastes shifted orders, so that the matrix has structure. 140,000 x 27,000 takes 30 s.
    """
    rng = np.random.default_rng(seed)
    activity = rng.lognormal(0.0, 1.1, n_users)
    # 9 % of the draws repeat an earlier one
    draws = np.maximum(1, activity * (1.094 * nnz / activity.sum())).astype(np.int64)
    draws = np.minimum(draws, n_items // 4)
    popularity = 1.0 / (np.arange(n_items) + 20.0) ** exponent
    cumulative = np.cumsum(popularity / popularity.sum())
    users = np.repeat(np.arange(n_users), draws)
    ranks = np.searchsorted(cumulative, rng.random(len(users)), side="right").astype(np.int64)
    np.minimum(ranks, n_items - 1, out=ranks)
    shifts, taste = rng.integers(0, n_items, n_tastes), rng.integers(0, n_tastes, n_users)
    own = rng.random(len(users)) < 0.5
    ranks[own] = (ranks[own] * 7 + shifts[taste[users[own]]]) % n_items
    pairs = np.unique(users * n_items + rng.permutation(n_items)[ranks])
    counts = np.bincount(pairs // n_items, minlength=n_users)
    indptr = np.concatenate([[0], np.cumsum(counts)])
    data, indices = np.ones(len(pairs), np.float32), (pairs % n_items).astype(np.int32)
    return sp.csr_array((data, indices, indptr), shape=(n_users, n_items))


def zipf_items(X):
    """Return items by 20,000 users, 4,000 to 24,000 by activity; 6.3 M non-zeros."""
    order = np.argsort(-np.diff(X.indptr), kind="stable")
    return X[np.sort(order[4_000:24_000])].T


def gaussian(n, d, seed=0):
    """Return standard normal rows, float32."""
    return np.random.default_rng(seed).standard_normal((n, d), dtype=np.float32)


def deck_embeddings(cache):
    """Return U S (60,000 of the decks) and V S (all cards) of a rank-128 SVD; None if missing.

    The directory cache keeps the two arrays: the SVD takes a minute.
    """
    files = [Path(cache) / f"{name}_128.npy" for name in ("decks", "cards")]
    if not all(file.exists() for file in files):
        X = decks()
        if X is None:
            return None
        U, s, Vt = svds(X, k=128, random_state=0)
        rows = np.sort(np.random.default_rng(0).choice(len(U), 60_000, replace=False))
        for file, embeddings in zip(files, (U[rows] * s, Vt.T * s), strict=True):
            np.save(file, np.ascontiguousarray(embeddings, np.float32))
    return tuple(np.load(file) for file in files)


def glove():
    """Return 8,347 GloVe vectors of 50 dimensions, float32; None if missing."""
    path = DATA / "glove50" / "glove50.npz"
    if not path.exists():
        return None
    parts = np.load(path)
    (name,) = (name for name in parts.files if parts[name].ndim == 2)
    return np.ascontiguousarray(parts[name], np.float32)
