"""Digests of the results of many calls, which `python -m tests.native_calls` prints as JSON.

Compiled kernels, native kernels of every tier and interpreted kernels must give the same bits. If
the kernels are interpreted, a call is left out if it takes long, needs vector instructions, or
computes a product. (Interpreted products round every multiplication before the addition.)
"""

import functools
import hashlib
import itertools
import json
import tempfile
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from fastcos.kernels.jit import DISABLE_JIT
from fastcos.linalg import gram_matmul, matmul, randomized_svd, rmatmul, svd_residuals
from fastcos.parallel import readiness
from fastcos.search import SimilarityIndex, neighbors_above, similarity_blocks, top_k

MEASURES = ("cosine", "dot", "neg_euclidean")
DTYPES = ("float32", "float64")


def dense(dtype, n, d):
    """Return normally distributed rows; the first row and the last two rows are equal."""
    rows = np.random.default_rng(n).standard_normal((n, d)).astype(dtype)
    rows[-2:] = rows[0]
    return rows


def sparse(dtype, n, m, values):
    """Return sparse rows of ones, of whole numbers from 1 to 3, or of other numbers."""
    X = sp.random_array((n, m), density=0.1, format="csr", rng=n)
    whole = np.arange(X.nnz) % 3 + 1
    X.data = {"ones": np.ones(X.nnz), "whole": whole, "others": X.data}[values].astype(dtype)
    return X


def saved(items, queries):
    """Search an index and its saved copy with all queries, and the index with a single query."""
    index = SimilarityIndex().fit(items)
    with tempfile.TemporaryDirectory() as folder:
        index.save(Path(folder) / "index")
        loaded = SimilarityIndex.open(Path(folder) / "index")
        results = [
            index.search(queries, 7),
            loaded.search(queries, 7),
            index.search(queries[:1], 3),
        ]
    return [part for result in results for part in (result.indices, result.scores)]


def all_scores(items):
    return np.concatenate([scores for _, scores in similarity_blocks(items)])


def residuals(X):
    return svd_residuals(X, randomized_svd(X, 5, random_state=0))


def small_calls():
    """Yield a name and a call for each result that compiled and interpreted kernels can compute."""
    for dtype, measure in itertools.product(DTYPES, MEASURES):
        items, queries = dense(dtype, 500, 20), dense(dtype, 16, 20)
        pairs = sp.csr_array((np.ones(16), (np.arange(16), 30 * np.arange(16))), shape=(16, 500))
        name = f"{dtype} {measure}"
        own = functools.partial(top_k, k=4, measure=measure)
        search = functools.partial(top_k, queries, items, 7, measure=measure)
        yield f"{name} own", functools.partial(own, items[:100])
        yield f"{name} others", search
        yield f"{name} exclude", functools.partial(search, exclude=pairs)
        yield f"{name} allowed", functools.partial(search, allowed=range(7, 300, 3))
        yield f"{name} least", functools.partial(search, min_score=0.2)
        yield f"{name} one", functools.partial(top_k, queries[0], items, 7, measure=measure)


def large_calls():
    """Yield a name and a call for each result that only compiled kernels compute.

    With interpreted kernels, each of these calls would take hours, fail, or round differently.
    """
    for dtype, measure in itertools.product(DTYPES, MEASURES):
        items = dense(dtype, 3_000, 70)
        name = f"{dtype} {measure} large"
        least = {"cosine": 0.4, "dot": 40.0, "neg_euclidean": -9.0}[measure]
        yield f"{name} own", functools.partial(top_k, items, k=10, measure=measure)
        yield f"{name} one", functools.partial(top_k, items[5], items, 10, measure=measure)
        yield (
            f"{name} above",
            functools.partial(neighbors_above, items, min_score=least, measure=measure),
        )
    for dtype in DTYPES:
        X = sparse(dtype, 120, 60, "others")
        yield f"{dtype} matmul", functools.partial(matmul, X, dense(dtype, 60, 8))
        yield f"{dtype} rmatmul", functools.partial(rmatmul, X, dense(dtype, 120, 8))
        yield f"{dtype} gram", functools.partial(gram_matmul, X, dense(dtype, 60, 8))
        yield f"{dtype} blocks", functools.partial(all_scores, dense(dtype, 3_000, 70))
    yield "index", functools.partial(saved, dense("float32", 3_000, 70), dense("float32", 300, 70))
    for dtype, values in itertools.product(DTYPES, ("ones", "whole", "others")):
        X = sparse(dtype, 1_500, 400, values)
        for measure in ("cosine", "dot"):
            search = functools.partial(top_k, k=5, measure=measure)
            yield f"{dtype} sparse {values} {measure} own", functools.partial(search, X)
            yield f"{dtype} sparse {values} {measure} others", functools.partial(search, X[:9], X)
        wide = dense(dtype, 400, 32)
        yield f"{dtype} {values} matmul", functools.partial(matmul, X, wide)
        yield f"{dtype} {values} svd", functools.partial(randomized_svd, X, 5, random_state=0)
        yield f"{dtype} {values} residuals", functools.partial(residuals, X)


def parts(result):
    """Yield the arrays that a result contains."""
    if isinstance(result, np.ndarray):
        yield result
    elif sp.issparse(result):
        yield from (result.indptr, result.indices, result.data)
    elif isinstance(result, tuple | list):
        for part in result:
            yield from parts(part)
    else:
        yield np.asarray(result)


def digest(result):
    """Return a digest of the arrays of a result, including their types and shapes."""
    content = hashlib.sha256()
    for array in parts(result):
        assert array.dtype != object
        content.update(f"{array.dtype} {array.shape}".encode())
        content.update(np.ascontiguousarray(array).tobytes())
    return content.hexdigest()[:16]


if __name__ == "__main__":
    readiness.compile_at_once()  # kernels only
    table = itertools.chain(small_calls(), () if DISABLE_JIT else large_calls())
    print(json.dumps({name: digest(call()) for name, call in table}))
