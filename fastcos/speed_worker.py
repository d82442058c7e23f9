"""One library at one job in a process of its own: ``python -P speed_worker.py JOB.json``.

Started by fastcos.speed, never imported by it: BLAS chooses its kernels when it is loaded, so every
library gets a process for every choice. Stands alone, so that rivals may live in an environment
without fastcos. Prints seconds per call and the most bytes that the process held, and writes the
answer to the file that the job names.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np


def _unit(rows: Any) -> Any:
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-30)


def search_fastcos(rows: Any, k: int) -> Any:
    """Return a function from queries (None: the rows themselves) to item numbers."""
    from fastcos import SimilarityIndex, top_k

    index = SimilarityIndex().fit(rows)
    return lambda queries: (
        (top_k(rows, k=k) if queries is None else index.search(queries, k)).indices
    )


def search_numpy(rows: Any, k: int) -> Any:
    """Sgemm in blocks, then argpartition."""
    unit = _unit(rows)

    def call(queries: Any) -> Any:
        own = queries is None
        left = unit if own else _unit(queries)
        found = np.empty((len(left), k), np.int64)
        for at in range(0, len(left), 1024):
            scores = left[at : at + 1024] @ unit.T
            if own:
                scores[np.arange(len(scores)), at + np.arange(len(scores))] = -np.inf
            best = np.argpartition(scores, -k, axis=1)[:, -k:]
            order = np.argsort(-np.take_along_axis(scores, best, 1), axis=1, kind="stable")
            found[at : at + 1024] = np.take_along_axis(best, order, 1)
        return found

    return call


def _without_self(found: Any, k: int) -> Any:
    """Of k + 1 neighbours, the k that are not the row itself."""
    kept = found != np.arange(len(found))[:, None]
    kept[kept.all(axis=1), -1] = False
    return found[kept].reshape(len(found), k)


def search_faiss(rows: Any, k: int) -> Any:
    """IndexFlatIP on unit rows."""
    import faiss

    unit = _unit(rows)
    index = faiss.IndexFlatIP(rows.shape[1])
    index.add(unit)

    def call(queries: Any) -> Any:
        if queries is None:
            return _without_self(index.search(unit, k + 1)[1], k)
        return index.search(_unit(queries), k)[1]

    return call


def search_sklearn(rows: Any, k: int) -> Any:
    """NearestNeighbors, brute force."""
    from sklearn.neighbors import NearestNeighbors

    model = NearestNeighbors(n_neighbors=k, algorithm="brute", metric="cosine").fit(rows)
    return lambda queries: model.kneighbors(queries, return_distance=False)


def search_usearch(rows: Any, k: int) -> Any:
    """Exact search of usearch."""
    from usearch.index import MetricKind, search

    def call(queries: Any) -> Any:
        own = queries is None
        left = rows if own else queries
        found = search(rows, left, k + own, MetricKind.Cos, exact=True).keys.astype(np.int64)
        found = found.reshape(len(left), k + own)
        return _without_self(found, k) if own else found

    return call


def product_fastcos(X: Any, A: Any) -> Any:
    """X A, with what fastcos prepares once."""
    from fastcos import matmul

    return lambda: matmul(X, A)


def product_scipy(X: Any, A: Any) -> Any:
    """X A."""
    return lambda: X @ A


def product_mkl(X: Any, A: Any) -> Any:
    """X A."""
    import sparse_dot_mkl

    return lambda: sparse_dot_mkl.dot_product_mkl(X, A)


def gram_fastcos(X: Any, A: Any) -> Any:
    """X'(X A)."""
    from fastcos import gram_matmul

    return lambda: gram_matmul(X, A)


def gram_scipy(X: Any, A: Any) -> Any:
    """X'(X A), the transpose made before."""
    transpose = X.T.tocsr()
    return lambda: transpose @ (X @ A)


def gram_mkl(X: Any, A: Any) -> Any:
    """X'(X A) in two calls."""
    import sparse_dot_mkl

    transpose = X.T.tocsr()
    multiply = sparse_dot_mkl.dot_product_mkl
    return lambda: multiply(transpose, multiply(X, A))


def items_fastcos(X: Any, k: int) -> Any:
    """Neighbours of the columns of X: their best scores."""
    from fastcos import top_k

    items = X.T.tocsr()
    return lambda: top_k(items, k=k).scores


def items_sparse_dot_topn(X: Any, k: int) -> Any:
    """sp_matmul_topn on unit columns; the best score is the item's own."""
    import scipy.sparse as sp
    from sparse_dot_topn import sp_matmul_topn

    lengths = np.sqrt(np.asarray(X.multiply(X).sum(axis=0)).ravel())
    units = sp.csr_matrix(X @ sp.diags_array(1 / np.where(lengths > 0, lengths, 1)))
    rows, columns = sp.csr_matrix(units.T.tocsr()), units

    def call() -> Any:
        found = sp_matmul_topn(rows, columns, top_n=k + 1, n_threads=-1, sort=True)
        best = np.zeros((found.shape[0], k + 1), np.float32)
        for row, (a, b) in enumerate(zip(found.indptr, found.indptr[1:], strict=False)):
            best[row, : b - a] = np.sort(found.data[a:b])[::-1]
        return best[:, 1:]

    return call


def sgemm_numpy(side: int, _: int) -> Any:
    """Square product of float32 matrices."""
    rng = np.random.default_rng(0)
    left, right = (rng.standard_normal((side, side), dtype=np.float32) for _ in range(2))
    return lambda: (left @ right)[:1]


def _resident_peak() -> int:
    status = Path("/proc/self/status")
    if status.exists():  # Linux's ru_maxrss remembers the process that started this one
        (line,) = (line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return 1024 * int(line.split()[1])
    try:
        import resource
    except ModuleNotFoundError:  # Windows
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak) * (1 if sys.platform == "darwin" else 1024)


def _timed(call: Any, seconds: float, least: int = 3) -> tuple[list[float], Any]:
    """Seconds of the calls after one that warms up, and the answer of the last one."""
    answer = call()
    taken: list[float] = []
    stop = time.perf_counter() + seconds
    while len(taken) < least or time.perf_counter() < stop:
        started = time.perf_counter()
        answer = call()
        taken.append(time.perf_counter() - started)
    return taken, answer


def main(path: str) -> None:
    """Run the job and print what it took."""
    job = json.loads(Path(path).read_text("utf8"))
    inputs = dict(np.load(job["inputs"])) if job["inputs"] else {}
    if "indptr" in inputs:
        import scipy.sparse as sp

        parts = (inputs["data"], inputs["indices"], inputs["indptr"])
        inputs["rows"] = sp.csr_matrix(parts, shape=tuple(inputs["shape"]))
    prepare = globals()[f"{job['work']}_{job['library']}"]
    call = prepare(inputs.get("rows", job["size"]), inputs.get("A", job["k"]))
    result: dict[str, Any] = {}
    if job["work"] == "search":
        result["seconds"], answer = _timed(lambda: call(None), job["seconds"])
        result["peak_bytes"] = _resident_peak()
        queries = [row[None].copy() for row in inputs["queries"]]
        for query in queries[:20]:
            call(query)
        result["latencies"] = []
        stop = time.perf_counter() + job["seconds"]
        for query in queries:
            started = time.perf_counter()
            call(query)
            result["latencies"].append(time.perf_counter() - started)
            if time.perf_counter() > stop:
                break
    else:
        result["seconds"], answer = _timed(call, job["seconds"])
        result["peak_bytes"] = _resident_peak()
    np.save(job["answer"], np.asarray(answer))
    print(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1])
