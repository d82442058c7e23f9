"""Seeded inputs of the benchmarks; append to them, never change them: times must compare.

Inputs that take long are kept in .bench/ at the root of the clone.
"""

import functools
import tempfile
from pathlib import Path

import numpy as np
import scipy.sparse as sp

import fastcos

CACHE = Path(__file__).parents[1] / ".bench"
# users, items and interactions of the matrices by name
SHAPES = {
    "2,000 x 500": (2_000, 500, 40_000),
    "10,000 x 3,000": (10_000, 3_000, 400_000),
    "40,000 x 20,000": (40_000, 20_000, 800_000),
    "zipf": (140_000, 27_000, 18_000_000),
    "zipf_slice": (20_000, 27_000, 6_300_000),
    "ml-32m": (200_948, 84_432, 32_500_000),  # that of MovieLens-32M
}
# those that take long to make
KEPT = ("zipf", "zipf_slice", "ml-32m")


def shape_of(name):
    """Return the numbers of "20,000 x 128", or those of a name in SHAPES."""
    return SHAPES.get(name) or tuple(int(word.replace(",", "")) for word in name.split(" x "))


@functools.lru_cache(4)
def interactions(name):
    """Return a matrix: of SHAPES, of a file, or of "users x items x non-zeros"."""
    if Path(name).is_file():
        return fastcos.io.read_interactions(name).X.astype(np.float32)
    if name not in KEPT:
        return zipf_interactions(*shape_of(name))
    path = CACHE / f"{name}.npz"
    if not path.exists():
        CACHE.mkdir(exist_ok=True)
        X = zipf_slice() if name == "zipf_slice" else zipf_interactions(*SHAPES[name])
        sp.save_npz(path, X, compressed=False)
    return sp.csr_array(sp.load_npz(path))


def zipf_interactions(n_users, n_items, nnz):
    """Return binary float32 CSR with about nnz interactions: log-normal users, Zipfian items.

    Half of a user's draws follow the common order of popularity. The other half follow one of
    64 shifted orders, so that the matrix has structure. zipf takes 30 s.
    """
    rng = np.random.default_rng(0)
    activity = rng.lognormal(0.0, 1.1, n_users)
    # 9 % of the draws repeat an earlier one
    draws = np.maximum(1, activity * (1.094 * nnz / activity.sum())).astype(np.int64)
    draws = np.minimum(draws, n_items // 4)
    popularity = 1.0 / (np.arange(n_items) + 20.0)
    cumulative = np.cumsum(popularity / popularity.sum())
    users = np.repeat(np.arange(n_users), draws)
    ranks = np.searchsorted(cumulative, rng.random(len(users)), side="right").astype(np.int64)
    np.minimum(ranks, n_items - 1, out=ranks)
    shifts, taste = rng.integers(0, n_items, 64), rng.integers(0, 64, n_users)
    own = rng.random(len(users)) < 0.5
    ranks[own] = (ranks[own] * 7 + shifts[taste[users[own]]]) % n_items
    pairs = np.unique(users * n_items + rng.permutation(n_items)[ranks])
    counts = np.bincount(pairs // n_items, minlength=n_users)
    # int32 as in SciPy's own matrices: with an indptr of int64 SciPy would widen the indices, too
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    data, indices = np.ones(len(pairs), np.float32), (pairs % n_items).astype(np.int32)
    return sp.csr_array((data, indices, indptr), shape=(n_users, n_items))


def zipf_slice():
    """Return 20,000 users of zipf, 4,000 to 24,000 by activity; 6.3 M non-zeros."""
    X = interactions("zipf")
    order = np.argsort(-np.diff(X.indptr), kind="stable")
    return X[np.sort(order[4_000:24_000])]


def rows(name):
    """Return the rows of a file, or standard normal ones of "20,000 x 128"."""
    if Path(name).exists():
        return np.asarray(fastcos.io.read_vectors(name).vectors, np.float32)
    return gaussian(*shape_of(name))


@functools.lru_cache(8)
def gaussian(n, d, seed=0):
    """Return standard normal rows, float32."""
    return np.random.default_rng(seed).standard_normal((n, d), dtype=np.float32)


def clustered(n, d, rng):
    """Return rows of a descending spectrum, 64 clusters and a common mean, as embeddings have."""
    spectrum = 1.0 / np.sqrt(np.arange(1.0, d + 1))
    centres = 0.7 * spectrum * rng.standard_normal((64, d))
    rows = centres[rng.integers(64, size=n)] + spectrum * rng.standard_normal((n, d))
    return (rows + 0.4 * np.sqrt(np.square(spectrum).mean())).astype(np.float32)


# temporary ones, which are removed when this process ends
folders = []


def new_folder():
    """Return the path of a new temporary folder."""
    folders.append(tempfile.TemporaryDirectory())
    return Path(folders[-1].name)


def narrow(rows, name):
    """Return standard normal rows as a type by name, and as packed signs by "bits"."""
    if name == "bits":
        return np.packbits(rows > 0, axis=1)
    if name == "int8":
        return np.clip(np.rint(30 * rows), -127, 127).astype(np.int8)
    if name == "bfloat16":
        from ml_dtypes import bfloat16 as name
    return rows.astype(name)
