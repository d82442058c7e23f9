"""Seeded inputs of the benchmarks.

Add functions here, but do not change the result of an existing function: the times of two commits
can be compared only if both commits worked on the same numbers.
"""

import functools

import numpy as np
import scipy.sparse as sp


@functools.cache
def gaussian(n, d, seed=0):
    """Return n independent standard normal rows of d columns, float32.

    These rows are the hardest input for bounds and filters, because all columns matter equally.
    """
    return np.random.default_rng(seed).standard_normal((n, d), dtype=np.float32)


@functools.lru_cache(4)
def embeddings(n, d, seed=0):
    """Return n rows that resemble text embeddings, float32.

    The rows have 64 clusters, a common mean and a spectrum that decays as 1 / sqrt(column).
    """
    rng = np.random.default_rng(seed)
    spectrum = 1.0 / np.sqrt(np.arange(1.0, d + 1))
    centres = 0.7 * spectrum * np.random.default_rng(0).standard_normal((64, d))
    rows = centres[rng.integers(64, size=n)] + spectrum * rng.standard_normal((n, d))
    return (rows + 0.4 * np.sqrt(np.square(spectrum).mean())).astype(np.float32)


@functools.cache
def labelled(n, d):
    """Return n rows in ten clusters, and the number of the cluster of every row."""
    labels = np.random.default_rng(0).integers(0, 10, n)
    return gaussian(n, d) + 1.5 * gaussian(10, d, seed=1)[labels], labels


def narrow(rows, dtype):
    """Return rows as float16, as int8, or as packed signs ("bits")."""
    if dtype == "bits":
        return np.packbits(rows > 0, axis=1)
    if dtype == "int8":
        return np.clip(np.rint(30 * rows), -127, 127).astype(np.int8)
    return rows.astype(dtype)


@functools.lru_cache(2)
def interactions(n_users, n_items, nnz):
    """Return a binary float32 CSR matrix (n_users, n_items) with about nnz non-zeros.

    The activity of users is log-normal, and the popularity of items follows Zipf's law. Half of a
    user's draws follow an order of popularity that is the same for all users. The other half of the
    user's draws follow an order that depends on the user; there are 64 such orders. The matrix
    therefore has structure in addition to the popularity of items. Drawing 18 million non-zeros
    takes half a minute.
    """
    rng = np.random.default_rng(0)
    activity = rng.lognormal(0.0, 1.1, n_users)
    # About 9 % of the draws repeat an earlier draw of the same user, so more draws are made.
    draws = np.maximum(1, activity * (1.094 * nnz / activity.sum())).astype(np.int64)
    draws = np.minimum(draws, n_items // 4)
    popularity = 1.0 / (np.arange(n_items) + 20.0)
    cumulative = np.cumsum(popularity / popularity.sum())
    users = np.repeat(np.arange(n_users), draws)
    ranks = np.searchsorted(cumulative, rng.random(len(users)), side="right").astype(np.int64)
    np.minimum(ranks, n_items - 1, out=ranks)
    shifts, taste = rng.integers(0, n_items, 64), rng.integers(0, 64, n_users)
    shifted = rng.random(len(users)) < 0.5
    ranks[shifted] = (ranks[shifted] * 7 + shifts[taste[users[shifted]]]) % n_items
    pairs = np.unique(users * n_items + rng.permutation(n_items)[ranks])
    counts = np.bincount(pairs // n_items, minlength=n_users)
    # indptr is int32, as in matrices that SciPy creates. If indptr were int64, SciPy would convert
    # the indices to int64.
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    values, indices = np.ones(len(pairs), np.float32), (pairs % n_items).astype(np.int32)
    return sp.csr_array((values, indices, indptr), shape=(n_users, n_items))


def many_interactions(nnz, n_items=50_000, per_user=50, seed=0):
    """Return a binary float32 CSR matrix of up to 1e9 non-zeros, drawn block by block.

    Every user draws per_user items, whose popularity falls as 1 / rank^0.8. If a user draws an item
    repeatedly, the item counts only once, so the matrix contains about 97 % of nnz non-zeros.
    Drawing 1e8 non-zeros takes half a minute and 1.6 GB of memory.
    """
    n_users = max(1, round(nnz / per_user))
    chances = 1 / np.arange(1, n_items + 1) ** 0.8
    edges = np.cumsum(chances / chances.sum())
    columns, counts = [], []
    users_per_block = max(1, 2**24 // per_user)
    for number, first in enumerate(range(0, n_users, users_per_block)):
        n = min(users_per_block, n_users - first)
        draws = np.random.default_rng([seed, number]).random(n * per_user, dtype=np.float32)
        items = np.searchsorted(edges.astype(np.float32), draws, side="right").astype(np.int32)
        items = np.minimum(items, n_items - 1).reshape(n, per_user)
        items.sort(axis=1)
        is_new = np.ones(items.shape, bool)
        is_new[:, 1:] = np.diff(items, axis=1) > 0
        columns.append(items[is_new])
        counts.append(is_new.sum(axis=1))
    indices = np.concatenate(columns)
    ends = np.cumsum(np.concatenate(counts))
    indptr = np.concatenate([[0], ends]).astype(np.int32 if len(indices) < 2**31 else np.int64)
    values = np.ones(len(indices), np.float32)
    return sp.csr_array((values, indices, indptr), shape=(n_users, n_items))
