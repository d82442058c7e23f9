"""A script: forks children while other threads are in the middle of a search or a product.

    python -m tests.robustness.busy_forks [--children 200] [OPERATION ...]

Two threads repeat an operation on fresh inputs, so they encode, pack and search again and again.
Meanwhile, the main thread forks children, each of which calls the operation once. A child must
return the same answer as the parent within HANG seconds. In the operations "prefixes...", a thread
of each index also computes the prefixes of the items (see kernels/projection.py). The script prints
one line per operation, and exits with status 1 if a child hung, failed or returned a wrong answer.
"""

import argparse
import dataclasses
import os
import pickle
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import fastcos
from fastcos import search
from fastcos.parallel import readiness
from fastcos.search import cost_model

HANG = 20  # seconds
RNG = np.random.default_rng(0)
ROWS = RNG.standard_normal((1500, 48)).astype(np.float32)
QUERIES = ROWS[:50]
SPARSE = sp.csr_array(np.where(RNG.random((1500, 60)) < 0.1, 1.0, 0.0))
LISTS = RNG.integers(0, len(ROWS), (len(QUERIES), 20))
BAGS = sp.csr_array(np.where(RNG.random((1500, 60)) < 0.05, 1.0, 0.0))
SCORER = search.WordRotatorsScorer(ROWS[:60], BAGS[:8], BAGS)
# A thread adds a projection to an index. WIDE_ROWS contains the rows of this index, and AXES is the
# number of axes of the projection.
WIDE_ROWS = RNG.standard_normal((4200, 192)).astype(np.float32)
AXES = 64


def index(items: Any = ROWS) -> search.SimilarityIndex:
    return fastcos.SimilarityIndex().fit(items)


def changed_index() -> Any:
    result = index()
    result.add(QUERIES)
    result.remove([3])
    return result.search(QUERIES, 5)


def saved_index() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        index().save(Path(folder) / "index")
        return fastcos.SimilarityIndex.open(Path(folder) / "index").search(QUERIES, 5)


def wide_index() -> Any:
    return index(WIDE_ROWS).search(WIDE_ROWS[:80], 5)


def changed_wide_index() -> Any:
    result = index(WIDE_ROWS)
    result.remove([3])  # waits for the projection
    result.add(WIDE_ROWS[:4100] + 1)
    return result.search(WIDE_ROWS[:80], 5)


def saved_wide_index() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        index(WIDE_ROWS).save(Path(folder) / "index")
        opened = fastcos.SimilarityIndex.open(Path(folder) / "index")
        return opened.search(WIDE_ROWS[:80], 5)


def pickled_wide_index() -> Any:
    copy = pickle.loads(pickle.dumps(index(WIDE_ROWS)))
    return copy.search(WIDE_ROWS[:80], 5)


def with_output() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        result = fastcos.top_k(QUERIES, ROWS, 5, out=Path(folder) / "found")
        return [np.array(array) for array in result]


def fitted(model: Any) -> Any:
    return model.fit(SPARSE).recommend(SPARSE[:50], 3)


# The searches cover every kind of data: dense, narrow and sparse rows, and bits. They cover every
# kind of request: top k, range searches and lists. They also cover every kind of measure: those
# that need one product, mapped rows or statistics of neighbours, and others.
MEASURES = (
    "cosine", "dot", "neg_euclidean", "csls", "recos", "mutual_proximity", "local_scaling",
    "whitened_cosine", "spearman_dims", "layer_norm_cosine", "centered_cosine",
    "norm_angle_distance", "all_but_the_top", "zscore_cosine",
)  # fmt: skip
OPERATIONS: dict[str, Callable[[], Any]] = {
    f"top_k_{measure}": partial(fastcos.top_k, QUERIES, ROWS, 5, measure=measure)
    for measure in MEASURES
} | {
    "top_k_self": lambda: fastcos.top_k(ROWS, k=5),
    "top_k_int8": lambda: fastcos.top_k(QUERIES, (ROWS * 20).astype(np.int8), 5, measure="dot"),
    "top_k_float16": lambda: fastcos.top_k(QUERIES, ROWS.astype(np.float16), 5),
    "top_k_allowed": lambda: fastcos.top_k(QUERIES, ROWS, 5, allowed=ALLOWED),
    "top_k_sparse": lambda: fastcos.top_k(SPARSE, k=5),
    "top_k_out": with_output,
    "neighbors_above": lambda: fastcos.neighbors_above(QUERIES, ROWS, min_score=0.3),
    "neighbors_above_sparse": lambda: fastcos.neighbors_above(SPARSE, min_score=0.7),
    "community_detection": lambda: search.community_detection(ROWS, 0.9),
    "near_duplicates": lambda: search.near_duplicates(ROWS, 0.9),
    "similarity_blocks": lambda: list(search.similarity_blocks(QUERIES, ROWS)),
    "rescore": lambda: search.rescore(QUERIES, ROWS, LISTS, 5),
    "rescore_csls": lambda: search.rescore(QUERIES, ROWS, LISTS, 5, measure="csls"),
    "rerank": lambda: search.rerank(fastcos.top_k(QUERIES[:8], ROWS, 5), SCORER),
    "semantic_search": lambda: search.semantic_search(QUERIES, ROWS, top_k=5),
    "index": lambda: index().search(QUERIES, 5),
    "index_radius": lambda: index().radius(QUERIES, 0.3),
    "index_near_duplicates": lambda: index().near_duplicates(0.9),
    "index_rescore": lambda: index().rescore(QUERIES, LISTS, 5),
    "changed_index": changed_index,
    "saved_index": saved_index,
    "prefixes": wide_index,
    "prefixes_changed": changed_wide_index,
    "prefixes_saved": saved_wide_index,
    "prefixes_pickled": pickled_wide_index,
    "transformer": lambda: fastcos.NeighborsTransformer(5).fit_transform(ROWS),
    "recommend": lambda: fitted(fastcos.LinearMF(4)),
    "recommend_cosine": lambda: fitted(fastcos.CosineMF(4, max_iter=1, random_state=0)),
    "matmul": lambda: fastcos.matmul(SPARSE, RIGHT),
    "gram_matmul": lambda: fastcos.gram_matmul(SPARSE, RIGHT),
    "svd": lambda: fastcos.randomized_svd(SPARSE, 3),
    "svd_dense": lambda: fastcos.randomized_svd(ROWS, 3),
    "svd_centred": lambda: fastcos.randomized_svd(SPARSE, 3, center=np.full(60, 0.1)),
    "svd_lanczos": lambda: fastcos.randomized_svd(WIDE, 3),
    "cka": lambda: fastcos.metrics.cka(ROWS, ROWS[:, ::-1]),
    "procrustes": lambda: fastcos.metrics.procrustes(ROWS, ROWS[::-1]),
}
RIGHT = RNG.standard_normal((60, 16))
ALLOWED = sp.csr_array(RNG.random((len(QUERIES), len(ROWS))) < 0.5)
WIDE = sp.random_array((1500, 600), density=0.02, rng=RNG, format="csr")


def digest(result: Any) -> bytes:
    """Return the bytes of an array, of a sparse matrix, or of a list or tuple of such values."""
    if isinstance(result, np.ndarray):
        return result.tobytes()
    if sp.issparse(result):
        return digest([result.indptr, result.indices, result.data])
    if isinstance(result, (list, tuple)):
        return b"".join(map(digest, result))
    return repr(result).encode()


def faults(operation: str, children: int) -> tuple[int, int]:
    """Fork children while two threads work; return the numbers of hung and of wrong children."""
    call = OPERATIONS[operation]
    n_axes = AXES if operation.startswith("prefixes") else None
    cost_model.COSTS = dataclasses.replace(cost_model.COSTS, projected_columns=n_axes)
    expected = digest(call())
    stop = threading.Event()

    def repeat() -> None:
        while not stop.is_set():
            call()

    threads = [threading.Thread(target=repeat, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    waits = np.random.default_rng(1).uniform(0.0, 0.02, children)
    hung = wrong = 0
    try:
        for wait in waits:
            time.sleep(wait)
            status = forked(lambda: digest(call()) == expected)
            hung += status is None
            wrong += status not in (None, 0)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    return hung, wrong


def forked(call: Callable[[], bool]) -> int | None:
    """Fork a child that makes the call; return its exit status, or None if it had to be killed."""
    child = os.fork()
    if child == 0:
        status = 2
        try:
            status = 0 if call() else 1
        finally:
            os._exit(status)
    until = time.monotonic() + HANG
    while time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.001)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("operations", nargs="*", metavar="OPERATION")
    parser.add_argument("--children", type=int, default=200)
    options = parser.parse_args()
    warnings.filterwarnings("ignore", ".*multi-threaded.*fork", DeprecationWarning)
    # A child that compiled kernels would take longer than HANG.
    readiness.state.compile_at_once = True
    total = 0
    for operation in options.operations or OPERATIONS:
        start = time.monotonic()
        hung, wrong = faults(operation, options.children)
        total += hung + wrong
        seconds = time.monotonic() - start
        print(f"{operation:24} {hung} hung, {wrong} wrong of {options.children}, {seconds:.0f} s",
              flush=True)  # fmt: skip
    return int(total > 0)


if __name__ == "__main__":
    sys.exit(main())
