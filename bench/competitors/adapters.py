"""Adapters: how each library does the work that is timed.

Processes without fastcos read this file by its path, so the top imports NumPy only. An adapter
prepares, untimed, what a user of the library would prepare once, and returns the call to time.
"""

import os
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


def unit(rows: Any) -> Any:
    """Return rows of norm 1; zero rows stay zero."""
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-30)


class Search(NamedTuple):
    """One library's search.

    Attributes
    ----------
    prepare : callable
        From queries to the argument of call; not timed for a batch.
    call : callable
        The library's search; timed.
    read : callable
        From its result to indices and scores (n, k), best first.
    """

    prepare: Callable[[Any], Any]
    call: Callable[[Any], Any]
    read: Callable[[Any], tuple[Any, Any]]


def search(library: str, items: Any, k: int, measure: str, *, own: bool) -> Search:
    """Return the search of k neighbours among items.

    Parameters
    ----------
    library : str
        fastcos, fastcos_index, faiss, sklearn, numpy, usearch, chunkdot or implicit.
    items : ndarray (m, d), float32
    k : int
    measure : {"cosine", "neg_euclidean"}
    own : bool
        Self-join: the queries are the items, and no row is its own neighbour. fastcos_index
        ignores it.
    """
    if library.startswith("fastcos"):
        return _OURS[library](items, k, measure, own)
    found: Search = _COMPETITORS[library](items, k + own, measure)
    return found._replace(read=lambda raw: _without_self(*found.read(raw))) if own else found


def _without_self(indices: Any, scores: Any) -> tuple[Any, Any]:
    """Return k of k + 1 neighbours, without the row itself."""
    kept = indices != np.arange(len(indices))[:, None]
    kept[kept.all(axis=1), -1] = False
    shape = len(indices), indices.shape[1] - 1
    return indices[kept].reshape(shape), scores[kept].reshape(shape)


def _identity(rows: Any) -> Any:
    return rows


def _fastcos(items: Any, k: int, measure: str, own: bool) -> Search:
    from fastcos import top_k

    if own:
        return Search(_identity, lambda rows: top_k(rows, k=k, measure=measure), tuple)
    return Search(_identity, lambda rows: top_k(rows, items, k, measure=measure), tuple)


def _fastcos_index(items: Any, k: int, measure: str, own: bool) -> Search:
    from fastcos import SimilarityIndex

    index = SimilarityIndex(measure).fit(items)
    return Search(_identity, lambda rows: index.search(rows, k), tuple)


def _faiss(items: Any, k: int, measure: str) -> Search:
    import faiss

    kind = faiss.IndexFlatL2 if measure == "neg_euclidean" else faiss.IndexFlatIP
    prepare = unit if measure == "cosine" else _identity
    index = kind(items.shape[1])
    index.add(prepare(items))

    def read(found: Any) -> tuple[Any, Any]:
        values, indices = found
        if measure == "neg_euclidean":
            values = -np.sqrt(np.maximum(values, 0))
        return indices, values

    return Search(prepare, lambda rows: index.search(rows, k), read)


def _sklearn(items: Any, k: int, measure: str) -> Search:
    from sklearn.neighbors import NearestNeighbors

    metric = "cosine" if measure == "cosine" else "euclidean"
    model = NearestNeighbors(algorithm="brute", metric=metric).fit(items)

    def read(found: Any) -> tuple[Any, Any]:
        distances, indices = found
        return indices, (1 - distances if metric == "cosine" else -distances)

    return Search(_identity, lambda rows: model.kneighbors(rows, k), read)


def _numpy(items: Any, k: int, measure: str) -> Search:
    """Sgemm in blocks, then argpartition; cosine only."""
    searched = unit(items)

    def call(rows: Any) -> tuple[Any, Any]:
        indices, scores = np.empty((len(rows), k), np.int64), np.empty((len(rows), k), np.float32)
        for at in range(0, len(rows), 1024):
            products = rows[at : at + 1024] @ searched.T
            best = np.argpartition(products, -k, axis=1)[:, -k:]
            values = np.take_along_axis(products, best, 1)
            order = np.argsort(-values, axis=1, kind="stable")
            indices[at : at + 1024] = np.take_along_axis(best, order, 1)
            scores[at : at + 1024] = np.take_along_axis(values, order, 1)
        return indices, scores

    return Search(unit, call, _identity)


def _usearch(items: Any, k: int, measure: str) -> Search:
    from usearch.index import MetricKind, search as exact

    kind = MetricKind.Cos if measure == "cosine" else MetricKind.L2sq

    def read(found: Any) -> tuple[Any, Any]:
        distances = found.distances.reshape(-1, k)
        scores = 1 - distances if measure == "cosine" else -np.sqrt(np.maximum(distances, 0))
        return found.keys.astype(np.int64).reshape(-1, k), scores

    return Search(_identity, lambda rows: exact(items, rows, k, kind, exact=True), read)


def _chunkdot(items: Any, k: int, measure: str) -> Search:
    """Cosine only."""
    from chunkdot import cosine_similarity_top_k

    def read(found: Any) -> tuple[Any, Any]:
        values, indices = found.data.reshape(-1, k), found.indices.reshape(-1, k)
        order = np.argsort(-values, axis=1, kind="stable")
        return np.take_along_axis(indices, order, 1), np.take_along_axis(values, order, 1)

    def call(rows: Any) -> Any:
        other = {} if rows is items else {"embeddings_right": items}
        return cosine_similarity_top_k(rows, top_k=k, **other)

    return Search(_identity, call, read)


def _implicit(items: Any, k: int, measure: str) -> Search:
    """Cosine only."""
    from implicit.cpu.topk import topk

    searched = unit(items)
    return Search(unit, lambda rows: topk(searched, rows, k), _identity)


_OURS = {"fastcos": _fastcos, "fastcos_index": _fastcos_index}
_COMPETITORS = {
    "faiss": _faiss,
    "sklearn": _sklearn,
    "numpy": _numpy,
    "usearch": _usearch,
    "chunkdot": _chunkdot,
    "implicit": _implicit,
}


def product(library: str, X: Any) -> Callable[[Any], Any]:
    """Return A -> X A; library: fastcos, new_memory, prepared, scipy or mkl.

    new_memory is fastcos without the buffer of a freed result; prepared is fastcos on a matrix that
    was validated once.
    """
    if library == "scipy":
        return lambda A: X @ A
    if library == "mkl":
        from sparse_dot_mkl import dot_product_mkl

        return lambda A: dot_product_mkl(X, A)
    if library == "prepared":
        from fastcos.linalg.operators import as_operator

        return as_operator(X).matmul
    from fastcos import matmul

    if library == "new_memory":
        from fastcos.linalg.buffer_pool import release

        def call(A: Any) -> Any:
            release()
            return matmul(X, A)

        return call
    return lambda A: matmul(X, A)


def gram(library: str, X: Any) -> Callable[[Any], Any]:
    """Return Q -> X'(X Q); libraries as of product."""
    # a CSC view: SciPy multiplies by it twice as fast as by the transpose in CSR
    transpose = X.T
    if library == "scipy":
        return lambda Q: transpose @ (X @ Q)
    if library == "mkl":
        from sparse_dot_mkl import dot_product_mkl

        return lambda Q: dot_product_mkl(transpose, dot_product_mkl(X, Q))
    if library == "prepared":
        from fastcos.linalg.operators import as_operator

        return as_operator(X).gram_matmul
    from fastcos import gram_matmul

    return lambda Q: gram_matmul(X, Q)


class Items(NamedTuple):
    """One library's nearest items of every item, by cosine between the columns of X.

    Attributes
    ----------
    call : callable
        The search; timed. The competitors get normalised and transposed matrices.
    read : callable
        From its result to the k best scores of every item, without the item itself.
    """

    call: Callable[[], Any]
    read: Callable[[Any], Any]


def items(library: str, X: Any, k: int, dtype: str = "float32") -> Items:
    """Return the search of k neighbours of every item; dtype is for sparse_dot_topn only.

    Parameters
    ----------
    library : str
        fastcos, sparse_dot_topn or implicit.
    X : csr_array (n, p)
    k : int
    dtype : str
    """
    if library == "sparse_dot_topn":
        return _sparse_dot_topn(X, k, dtype)
    if library == "implicit":
        return _implicit_items(X, k)
    from fastcos import top_k

    return Items(lambda: top_k(X.T, k=k), lambda found: found.scores)


def _sparse_dot_topn(X: Any, k: int, dtype: str) -> Items:
    import scipy.sparse as sp
    from sparse_dot_topn import sp_matmul_topn

    wide = X.astype(np.float64)
    lengths = np.sqrt(np.asarray(wide.multiply(wide).sum(axis=0)).ravel())
    units = sp.csr_matrix(wide @ sp.diags_array(1 / np.where(lengths > 0, lengths, 1)))
    columns = units.astype(dtype)
    rows = sp.csr_matrix(columns.T.tocsr())
    return Items(
        lambda: sp_matmul_topn(rows, columns, top_n=k + 1, n_threads=n_threads(), sort=True),
        lambda found: _best_of_rows(found, k),
    )


def _implicit_items(X: Any, k: int) -> Items:
    import scipy.sparse as sp
    from implicit.nearest_neighbours import CosineRecommender

    users = sp.csr_matrix(X.astype(np.float64))
    model = CosineRecommender(K=k + 1, num_threads=n_threads())

    def call() -> Any:
        model.fit(users, show_progress=False)
        return model.similarity

    return Items(call, lambda found: _best_of_rows(found, k))


def _best_of_rows(found: Any, k: int) -> Any:
    """Return the k best scores of every row of a sparse result, after the best: the row itself."""
    best = np.zeros((found.shape[0], k + 1))
    for row, (a, b) in enumerate(zip(found.indptr, found.indptr[1:], strict=False)):
        best[row, : b - a] = np.sort(found.data[a:b])[::-1]
    return best[:, 1:]


def n_threads() -> int:
    """Return the threads of a competitor: OMP_NUM_THREADS, else all cores of this process."""
    limit = int(os.environ.get("OMP_NUM_THREADS", 0))
    if limit or not hasattr(os, "sched_getaffinity"):
        return limit or os.cpu_count() or 1
    return len(os.sched_getaffinity(0))
