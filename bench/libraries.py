"""Competitors: how each library does the work that is timed, as its manual says.

Read by worker.py in the competitor's own process, which may lack fastcos: the top imports NumPy and
SciPy only. Every function prepares, untimed, what a user of the library would prepare once, and
returns Calls.
"""

import os
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

# their speed depends on OPENBLAS_CORETYPE, which is read when they are loaded
USE_BLAS = {"faiss", "numpy", "sklearn"}


class Calls(NamedTuple):
    """A call to time, and a function from its result to what is compared."""

    call: Any
    read: Any = lambda found: found


def prepare(task, library, arrays, parameters):
    """Return the Calls of a library for a task; ImportError if it is not installed."""
    return TASKS[task][library](arrays, parameters)


def n_threads():
    """Return the threads of a competitor: OMP_NUM_THREADS, else all cores of this process."""
    limit = int(os.environ.get("OMP_NUM_THREADS", 0))
    if limit or not hasattr(os, "sched_getaffinity"):
        return limit or os.cpu_count() or 1
    return len(os.sched_getaffinity(0))


# search: from items (m, d), queries (n, d) or none for a self-join, to scores (n, k)


def unit(rows):
    """Return rows of norm 1; zero rows stay zero."""
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-30)


def searcher(search):
    """Return prepare for a library: search(items, queries, k, measure) returns Calls.

    read returns indices and scores. In a self-join k + 1 are found, and the row itself is left out.
    """

    def prepare_search(arrays, parameters):
        items, k, measure = arrays["items"], parameters["k"], parameters["measure"]
        own = "queries" not in arrays
        found = search(items, arrays.get("queries", items), k + own, measure)
        return Calls(found.call, lambda raw: scores_of(*found.read(raw), own))

    return prepare_search


def scores_of(indices, scores, own):
    """Return the scores (n, k), without those of a row and itself if own."""
    scores = np.asarray(scores, np.float32)
    if not own:
        return scores
    kept = indices != np.arange(len(indices))[:, None]
    kept[kept.all(axis=1), -1] = False
    return scores[kept].reshape(len(scores), -1)


def faiss_for(queries):
    """Return the module faiss, which multiplies these queries by its fastest means.

    FAISS 1.15 multiplies row by row up to 128,000 numbers in all queries, without BLAS: 256 queries
    of 100,000 x 384 took 10 times as long, and a trial of BLAS settings compared nothing. Here BLAS
    was faster from 4 queries on, with 384 and 768 columns. Other versions count queries.
    """
    import faiss

    faiss.cvar.distance_compute_blas_threshold = 1 if len(queries) >= 4 else 2**31 - 1
    return faiss


def faiss_search(items, queries, k, measure):
    faiss = faiss_for(queries)
    prepared = unit if measure == "cosine" else np.ascontiguousarray
    index = (faiss.IndexFlatL2 if measure == "neg_euclidean" else faiss.IndexFlatIP)(items.shape[1])
    index.add(prepared(items))
    queries = prepared(queries)

    def read(found):
        values, indices = found
        values = -np.sqrt(np.maximum(values, 0)) if measure == "neg_euclidean" else values
        return indices, values

    return Calls(lambda: index.search(queries, k), read)


def sklearn_search(items, queries, k, measure):
    from sklearn.neighbors import NearestNeighbors

    cosine = measure == "cosine"
    model = NearestNeighbors(algorithm="brute", metric="cosine" if cosine else "euclidean")
    model.fit(items)
    read = lambda found: (found[1], 1 - found[0] if cosine else -found[0])  # noqa: E731
    return Calls(lambda: model.kneighbors(queries, k), read)


def numpy_search(items, queries, k, measure):
    """Sgemm in blocks, then argpartition; cosine only."""
    items, queries = unit(items), unit(queries)

    def call():
        shape = len(queries), k
        indices, scores = np.empty(shape, np.int64), np.empty(shape, np.float32)
        for at in range(0, len(queries), 1024):
            products = queries[at : at + 1024] @ items.T
            best = np.argpartition(products, -k, axis=1)[:, -k:]
            values = np.take_along_axis(products, best, 1)
            order = np.argsort(-values, axis=1, kind="stable")
            indices[at : at + 1024] = np.take_along_axis(best, order, 1)
            scores[at : at + 1024] = np.take_along_axis(values, order, 1)
        return indices, scores

    return Calls(call)


def usearch_search(items, queries, k, measure):
    from usearch.index import MetricKind, search

    kind = MetricKind.Cos if measure == "cosine" else MetricKind.L2sq

    def read(found):
        away = found.distances.reshape(-1, k)
        scores = 1 - away if measure == "cosine" else -np.sqrt(np.maximum(away, 0))
        return found.keys.astype(np.int64).reshape(-1, k), scores

    return Calls(lambda: search(items, queries, k, kind, exact=True), read)


def chunkdot_search(items, queries, k, measure):
    """Cosine only."""
    from chunkdot import cosine_similarity_top_k

    other = {} if queries is items else {"embeddings_right": items}

    def read(found):
        values, indices = found.data.reshape(-1, k), found.indices.reshape(-1, k)
        order = np.argsort(-values, axis=1, kind="stable")
        return np.take_along_axis(indices, order, 1), np.take_along_axis(values, order, 1)

    return Calls(lambda: cosine_similarity_top_k(queries, top_k=k, **other), read)


def implicit_search(items, queries, k, measure):
    """Cosine only."""
    from implicit.cpu.topk import topk

    items, queries = unit(items), unit(queries)
    return Calls(lambda: topk(items, queries, k))


# sparse: arrays data, indices, indptr of a CSR matrix X


def matrix(arrays, parameters):
    """Return the CSR matrix of a job."""
    parts = arrays["data"], arrays["indices"], arrays["indptr"]
    return sp.csr_array(parts, shape=parameters["shape"])


def scipy_product(arrays, parameters):
    X, A = matrix(arrays, parameters), arrays["A"]
    return Calls(lambda: X @ A)


def mkl_dot():
    """Return the product of sparse_dot_mkl, which looks for pip's MKL in LD_LIBRARY_PATH only."""
    for library in Path(sys.prefix, "lib").glob("libmkl_rt.so*"):
        os.environ.setdefault("MKL_RT", str(library))
    from sparse_dot_mkl import dot_product_mkl

    return dot_product_mkl


def mkl_product(arrays, parameters):
    X, A, dot = matrix(arrays, parameters), arrays["A"], mkl_dot()
    return Calls(lambda: dot(X, A))


def scipy_gram(arrays, parameters):
    X, A = matrix(arrays, parameters), arrays["A"]
    # a CSC view: SciPy multiplies by it twice as fast as by the transpose in CSR
    transpose = X.T
    return Calls(lambda: transpose @ (X @ A))


def mkl_gram(arrays, parameters):
    X, A, dot = matrix(arrays, parameters), arrays["A"], mkl_dot()
    # in CSR, for MKL multiplies by a CSC view in 4 times the time
    transpose = X.T.tocsr()
    return Calls(lambda: dot(transpose, dot(X, A)))


# items: nearest items of every item, by cosine of the columns of X; to the k-th best scores


def sparse_dot_topn_items(arrays, parameters):
    from sparse_dot_topn import sp_matmul_topn

    wide, k = matrix(arrays, parameters).astype(np.float64), parameters["k"]
    lengths = np.sqrt(np.asarray(wide.multiply(wide).sum(axis=0)).ravel())
    units = wide @ sp.diags_array(1 / np.where(lengths > 0, lengths, 1))
    # the faster of its two types on nearly all matrices of the tables
    columns = sp.csr_matrix(units.astype(np.float32))
    rows = sp.csr_matrix(columns.T.tocsr())
    return Calls(
        lambda: sp_matmul_topn(rows, columns, top_n=k + 1, n_threads=n_threads(), sort=True),
        lambda found: kth_best(found, k),
    )


def implicit_items(arrays, parameters):
    from implicit.nearest_neighbours import CosineRecommender

    users, k = sp.csr_matrix(matrix(arrays, parameters).astype(np.float64)), parameters["k"]
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


# svd: to s and Vt, side by side. Settings: the fastest of a scan that reach 1e-2 on the decks and
# zipf; arpack stops by itself. A library that misses the residual has a wrong answer.
SVD_SETTING = {"n_iter": 7, "n_oversamples": 64}


def singular(found):
    """Return s and Vt side by side, (k, 1 + p)."""
    s, Vt = found[-2:]
    return np.column_stack([s, Vt])


def sklearn_svd(arrays, parameters):
    from sklearn.utils.extmath import randomized_svd

    X, k = matrix(arrays, parameters), parameters["k"]
    setting = SVD_SETTING | {"random_state": 0, "flip_sign": False}
    return Calls(lambda: randomized_svd(X, k, **setting), singular)


def arpack_svd(arrays, parameters):
    from scipy.sparse.linalg import svds

    X, k, tol = matrix(arrays, parameters), parameters["k"], min(parameters["tol"], 1e-3)

    def call():
        U, s, Vt = svds(X, k, tol=tol, random_state=0)
        order = np.argsort(-s)
        return U[:, order], s[order], Vt[order]

    return Calls(call, singular)


# approximate search: a prebuilt index of items (m, d), queries (n, d), to indices (n, k); cosine


def faiss_scan(factory):
    """Return prepare for an index of FAISS by the name of its factory."""

    def prepare_scan(arrays, parameters):
        items, queries, k = unit(arrays["items"]), unit(arrays["queries"]), parameters["k"]
        faiss = faiss_for(queries)
        name = factory.format(half=items.shape[1] // 2)
        index = faiss.index_factory(items.shape[1], name, faiss.METRIC_INNER_PRODUCT)
        index.train(items)
        index.add(items)
        return Calls(lambda: index.search(queries, k), lambda found: found[1])

    return prepare_scan


def usearch_scan(arrays, parameters):
    """Rows of norm 1 as int8, all compared."""
    from usearch.index import MetricKind, search

    items, queries = (
        np.rint(127 * unit(arrays[name])).astype(np.int8) for name in ("items", "queries")
    )
    k, threads = parameters["k"], n_threads()
    return Calls(
        lambda: search(items, queries, k, MetricKind.Cos, exact=True, threads=threads),
        lambda found: found.keys.astype(np.int64).reshape(-1, k),
    )


def turbovec_scan(arrays, parameters):
    """Its default of 4 bits; threads are those of RAYON_NUM_THREADS."""
    os.environ.setdefault("RAYON_NUM_THREADS", str(n_threads()))
    from turbovec import TurboQuantIndex

    items, queries, k = unit(arrays["items"]), unit(arrays["queries"]), parameters["k"]
    index = TurboQuantIndex(dim=items.shape[1], bit_width=4)
    index.add(items)
    return Calls(lambda: index.search(queries, k=k), lambda found: found[1])


# rescoring: candidates (n, m) of queries (n, d) among items, to the k best scores (n, k); cosine


def numpy_rescoring(dtype):
    """Return prepare for a loop over the queries in a type."""

    def prepare_loop(arrays, parameters):
        items, k = arrays["items"], parameters["k"]

        def call():
            scores = np.empty((len(arrays["queries"]), k))
            for best, query, listed in zip(
                scores, arrays["queries"], arrays["candidates"], strict=True
            ):
                rows, one = items[listed].astype(dtype, copy=False), query.astype(dtype, copy=False)
                found = rows @ one / np.sqrt(np.einsum("ij,ij->i", rows, rows) * (one @ one))
                best[:] = found[np.argsort(-found, kind="stable")[:k]]
            return scores

        return Calls(call)

    return prepare_loop


TASKS = {
    "search": {
        "faiss": searcher(faiss_search),
        "sklearn": searcher(sklearn_search),
        "numpy": searcher(numpy_search),
        "usearch": searcher(usearch_search),
        "chunkdot": searcher(chunkdot_search),
        "implicit": searcher(implicit_search),
    },
    "approximate search": {
        "faiss": faiss_scan("Flat"),
        "faiss SQ8": faiss_scan("SQ8"),
        "faiss SQ4": faiss_scan("SQ4"),
        "faiss PQ fast-scan": faiss_scan("PQ{half}x4fs"),
        "usearch int8": usearch_scan,
        "turbovec": turbovec_scan,
    },
    "rescoring": {
        "numpy float32": numpy_rescoring(np.float32),
        "numpy float64": numpy_rescoring(np.float64),
    },
    "product": {"scipy": scipy_product, "mkl": mkl_product},
    "gram": {"scipy": scipy_gram, "mkl": mkl_gram},
    "items": {"sparse_dot_topn": sparse_dot_topn_items, "implicit": implicit_items},
    "svd": {"scikit-learn": sklearn_svd, "arpack": arpack_svd},
}
