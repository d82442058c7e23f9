"""Competitors: how each library does the work that is timed, as its manual says.

Read by worker.py in the competitor's own process, which may lack fastcos: the top imports NumPy
only. TASKS has a function for every task and library. Of the arrays and parameters of a job
it prepares, untimed, what a user of the library would prepare once, and returns Calls.
"""

import importlib
import operator
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

# their speed depends on OPENBLAS_CORETYPE, which is read when they are loaded
USE_BLAS = {"faiss", "numpy", "sklearn", "implicit"}
# of FAISS Panorama: a query leaves an item after any eighth of its columns
PANORAMA_LEVELS = 8


class Calls(NamedTuple):
    """A call to time, and a function from its result to what is compared."""

    call: Any
    read: Any = lambda found: found


def n_threads():
    """Return the threads of a competitor: OMP_NUM_THREADS, else all cores."""
    return int(os.environ.get("OMP_NUM_THREADS") or os.cpu_count())


# search: an index of items (m, d), queries (n, d) or none for a self-join, to scores (n, k)


class Index(NamedTuple):
    """The items of a search in a library.

    find(queries, k) is what is timed; read makes indices and scores (n, k) of what it returns, best
    first; encode prepares queries, untimed.
    """

    find: Any
    read: Any = lambda found: found
    encode: Any = lambda queries: queries


def unit(rows):
    """Return rows of norm 1; zero rows stay zero."""
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-30)


def search(index_of, arrays, parameters, exact=True, **settings):
    """Search the index of a library: index_of(items, measure, **settings) returns its Index.

    In a self-join k + 1 are found, and the row itself is left out. The answer of a search that is
    not exact are its indices.
    """
    items, k, own = arrays["items"], parameters["k"], "queries" not in arrays
    index = index_of(items, parameters["measure"], **settings)
    queries = index.encode(arrays.get("queries", items))

    def read(raw):
        found = index.read(raw)
        return scores_of(*found, own) if exact else found[0]

    return Calls(lambda: index.find(queries, k + own), read)


def scores_of(indices, scores, own):
    """Return the scores (n, k), without those of a row and itself if own."""
    scores = np.asarray(scores, np.float32)
    if not own:
        return scores
    kept = indices != np.arange(len(indices))[:, None]
    kept[kept.all(axis=1), -1] = False
    return scores[kept].reshape(len(scores), -1)


def faiss_index(items, measure, factory="Flat"):
    """An index by the name of its factory.

    FASTCOS_FAISS_BLAS says from how many numbers (queries, in other versions) it multiplies by BLAS
    instead of row by row; 256 queries of 100,000 x 384 take 10 times as long without.
    """
    import faiss

    euclidean, d = measure == "neg_euclidean", items.shape[1]
    metric = faiss.METRIC_L2 if euclidean else faiss.METRIC_INNER_PRODUCT
    encode = unit if measure == "cosine" else np.ascontiguousarray
    if factory == "Panorama":
        index = faiss.IndexFlatIPPanorama(d, PANORAMA_LEVELS)
    else:
        index = faiss.index_factory(d, factory.format(half=d // 2), metric)
    if threshold := os.environ.get("FASTCOS_FAISS_BLAS"):
        faiss.cvar.distance_compute_blas_threshold = int(threshold)
    items = encode(items)
    index.train(items)
    index.add(items)

    def read(found):
        values, indices = found
        return indices, -np.sqrt(np.maximum(values, 0)) if euclidean else values

    return Index(index.search, read, encode)


def sklearn_index(items, measure):
    from sklearn.neighbors import NearestNeighbors

    cosine = measure == "cosine"
    model = NearestNeighbors(algorithm="brute", metric="cosine" if cosine else "euclidean")
    model.fit(items)
    return Index(model.kneighbors, lambda found: (found[1], 1 - found[0] if cosine else -found[0]))


def descending(indices, scores):
    """Return indices and scores (n, k), the best of every row first."""
    order = np.argsort(-scores, axis=1, kind="stable")
    return np.take_along_axis(indices, order, 1), np.take_along_axis(scores, order, 1)


def best_of_products(product):
    """Return the Index that multiplies blocks of unit queries, then selects by argpartition."""

    def best_of(products, k):
        best = np.argpartition(products, -k, axis=1)[:, -k:]
        return descending(best, np.take_along_axis(products, best, 1))

    def find(queries, k):
        blocks = (queries[at : at + 1024] for at in range(0, len(queries), 1024))
        found = [best_of(product(block), k) for block in blocks]
        return tuple(map(np.concatenate, zip(*found, strict=True)))

    return Index(find, encode=unit)


def numpy_index(items, measure):
    """Sgemm; cosine only."""
    items = unit(items)
    return best_of_products(lambda queries: queries @ items.T)


def numkong_index(items, measure):
    """Its packed product; cosine only."""
    import numkong

    packed = numkong.dots_pack(unit(items), dtype="float32")
    return best_of_products(lambda queries: np.asarray(numkong.dots_packed(queries, packed)))


def usearch_index(items, measure, encode=np.ascontiguousarray):
    """Exact search of the rows, or of their codes."""
    from usearch.index import MetricKind, search

    cosine, items = measure == "cosine", encode(items)
    kind = MetricKind.Cos if cosine else MetricKind.L2sq

    def find(queries, k):
        return k, search(items, queries, k, kind, exact=True, threads=n_threads())

    def read(found):
        k, matches = found
        away = matches.distances.reshape(-1, k)
        scores = 1 - away if cosine else -np.sqrt(np.maximum(away, 0))
        return matches.keys.astype(np.int64).reshape(-1, k), scores

    return Index(find, read, encode)


def int8_codes(rows):
    return np.rint(127 * unit(rows)).astype(np.int8)


def chunkdot_index(items, measure):
    """Cosine only."""
    from chunkdot import cosine_similarity_top_k

    def find(queries, k):
        other = {} if queries is items else {"embeddings_right": items}
        return k, cosine_similarity_top_k(queries, top_k=k, **other)

    def read(found):
        k, matrix = found
        return descending(matrix.indices.reshape(-1, k), matrix.data.reshape(-1, k))

    return Index(find, read)


def implicit_index(items, measure):
    """Cosine only."""
    from implicit.cpu.topk import topk

    items = unit(items)
    return Index(lambda queries, k: topk(items, queries, k), encode=unit)


def turbovec_index(items, measure, bits=4):
    """Cosine; its default of 4 bits, calibrated; threads are those of RAYON_NUM_THREADS."""
    os.environ.setdefault("RAYON_NUM_THREADS", str(n_threads()))
    from turbovec import TurboQuantIndex

    index, rows = TurboQuantIndex(dim=items.shape[1], bit_width=bits), unit(items)
    index.calibrate(rows[np.random.default_rng(0).permutation(len(rows))[:1024]])
    index.add(rows)
    index.prepare()
    return Index(
        lambda queries, k: index.search(queries, k=k), lambda found: (found[1], found[0]), unit
    )


# sparse: arrays data, indices, indptr of a CSR matrix X


def matrix(arrays, parameters):
    """Return the CSR matrix of a job."""
    from scipy.sparse import csr_array

    parts = arrays["data"], arrays["indices"], arrays["indptr"]
    return csr_array(parts, shape=parameters["shape"])


def scipy_dot():
    return operator.matmul


def mkl_dot():
    """Return the product of sparse_dot_mkl, which looks for pip's MKL in LD_LIBRARY_PATH only."""
    for library in Path(sys.prefix, "lib").glob("libmkl_rt.so*"):
        os.environ.setdefault("MKL_RT", str(library))
    from sparse_dot_mkl import dot_product_mkl

    return dot_product_mkl


def multiply(dot_of, arrays, parameters, transposed=None):
    """Multiply X A, or X'(X A) if it says how X is transposed, by the product of a library."""
    X, A, dot = matrix(arrays, parameters), arrays["A"], dot_of()
    if transposed is None:
        return Calls(lambda: dot(X, A))
    transpose = transposed(X)
    return Calls(lambda: dot(transpose, dot(X, A)))


# items: nearest items of every item, by cosine of the columns of X; to the k-th best scores


def sparse_dot_topn_items(arrays, parameters):
    from scipy.sparse import csr_matrix, diags_array
    from sparse_dot_topn import sp_matmul_topn

    wide, k = matrix(arrays, parameters).astype(np.float64), parameters["k"]
    lengths = np.sqrt(np.asarray(wide.multiply(wide).sum(axis=0)).ravel())
    units = wide @ diags_array(1 / np.where(lengths > 0, lengths, 1))
    # the faster of its two types on nearly all matrices of the tables
    columns = csr_matrix(units.astype(np.float32))
    rows = csr_matrix(columns.T.tocsr())
    return Calls(
        lambda: sp_matmul_topn(rows, columns, top_n=k + 1, n_threads=n_threads(), sort=True),
        lambda found: kth_best(found, k),
    )


def implicit_items(arrays, parameters):
    from implicit.nearest_neighbours import CosineRecommender
    from scipy.sparse import csr_matrix

    users, k = csr_matrix(matrix(arrays, parameters).astype(np.float64)), parameters["k"]
    model = CosineRecommender(K=k + 1, num_threads=n_threads())

    def call():
        model.fit(users, show_progress=False)
        return model.similarity

    return Calls(call, lambda found: kth_best(found, k))


def kth_best(found, k):
    """Return the k-th best score of every row, after the best: the row itself."""
    best = np.zeros(found.shape[0])
    for row, (a, b) in enumerate(zip(found.indptr, found.indptr[1:], strict=False)):
        best[row] = np.sort(found.data[a:b])[::-1][k] if b - a > k else 0
    return best


# svd: to s and Vt, side by side, (k, 1 + p). A library that misses the residual has a wrong answer.
# Settings: the fastest of a scan that reach 1e-2 on the decks and zipf; arpack stops by itself.
SKLEARN_SVD = {"n_iter": 7, "n_oversamples": 64, "random_state": 0, "flip_sign": False}


def truncated_svd(module, name, arrays, parameters, **setting):
    """Call a function of a module; a tolerance is that of the case at most."""
    function = getattr(importlib.import_module(module), name)
    X, k = matrix(arrays, parameters), parameters["k"]
    if "tol" in setting:
        setting["tol"] = min(parameters["tol"], setting["tol"])

    def read(found):
        s, Vt = found[-2:]
        return np.column_stack([s, Vt])[np.argsort(-s)]

    return Calls(lambda: function(X, k, **setting), read)


# rescoring: candidates (n, m) of queries (n, d) among items, to the k best scores (n, k); cosine


def numpy_rescoring(dtype, arrays, parameters):
    """A loop over the queries in a type."""
    items, candidates, k = arrays["items"], arrays["candidates"], parameters["k"]

    def call():
        scores = np.empty((len(arrays["queries"]), k))
        for best, query, listed in zip(scores, arrays["queries"], candidates, strict=True):
            rows, one = items[listed].astype(dtype, copy=False), query.astype(dtype, copy=False)
            found = rows @ one / np.sqrt(np.einsum("ij,ij->i", rows, rows) * (one @ one))
            best[:] = found[np.argsort(-found, kind="stable")[:k]]
        return scores

    return Calls(call)


TASKS = {
    "search": {
        "faiss": partial(search, faiss_index),
        "faiss Panorama": partial(search, faiss_index, factory="Panorama"),
        "numkong": partial(search, numkong_index),
        "sklearn": partial(search, sklearn_index),
        "numpy": partial(search, numpy_index),
        "usearch": partial(search, usearch_index),
        "chunkdot": partial(search, chunkdot_index),
        "implicit": partial(search, implicit_index),
    },
    "approximate search": {
        "faiss": partial(search, faiss_index, exact=False),
        "faiss SQ8": partial(search, faiss_index, exact=False, factory="SQ8"),
        "faiss SQ4": partial(search, faiss_index, exact=False, factory="SQ4"),
        "faiss PQ fast-scan": partial(search, faiss_index, exact=False, factory="PQ{half}x4fs"),
        "usearch int8": partial(search, usearch_index, exact=False, encode=int8_codes),
        "turbovec": partial(search, turbovec_index, exact=False),
        "turbovec 2 bits": partial(search, turbovec_index, exact=False, bits=2),
    },
    "rescoring": {
        "numpy float32": partial(numpy_rescoring, np.float32),
        "numpy float64": partial(numpy_rescoring, np.float64),
    },
    "product": {"scipy": partial(multiply, scipy_dot), "mkl": partial(multiply, mkl_dot)},
    # by a CSC view SciPy multiplies twice as fast as by the transpose in CSR, MKL 4 times as slowly
    "gram": {
        "scipy": partial(multiply, scipy_dot, transposed=lambda X: X.T),
        "mkl": partial(multiply, mkl_dot, transposed=lambda X: X.T.tocsr()),
    },
    "items": {"sparse_dot_topn": sparse_dot_topn_items, "implicit": implicit_items},
    "svd": {
        "scikit-learn": partial(
            truncated_svd, "sklearn.utils.extmath", "randomized_svd", **SKLEARN_SVD
        ),
        "arpack": partial(truncated_svd, "scipy.sparse.linalg", "svds", tol=1e-3, random_state=0),
        # its source needs the LAPACK of the system, and has no wheel
        "primme": partial(truncated_svd, "primme", "svds", tol=1e-3, return_stats=False),
    },
}
