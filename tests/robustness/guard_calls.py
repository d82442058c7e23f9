"""A script: repeats public operations in situations in which OpenMP or workqueue fails.

    python -m tests.robustness.guard_calls CALLS SITUATION... [handlers]

The process first runs a parallel Numba loop as a user would write it; this loop starts Numba's
threading layer. The process then runs every operation. After that, it calls each operation CALLS
times in each situation. The process compares the answers of one thread with NumPy. All other
answers must be bit-identical to the answers of one thread. The script prints one JSON line: the
number of calls and of wrong answers per operation, the warnings, and the signals that arrived. The
script guard_matrix.py runs this script in new processes.
"""

import hashlib
import json
import multiprocessing
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numba
import numpy as np
import scipy.sparse as sp

import fastcos
from fastcos import metrics, parallel
from fastcos.linalg import operators

HANG = 500  # In seconds; a child that takes longer is killed, and all its calls count as wrong.
ROWS = np.random.default_rng(0).random((2000, 20))
ITEMS, LABELS = ROWS[:400].astype(np.float32), np.arange(400) % 3
SPARSE = sp.csr_array(np.where(ROWS > 0.8, ROWS, 0.0))
RIGHT = ROWS[:20, :8]
signals: list[int] = []
# Without this setting, a product of this size would be one block, which the calling thread runs.
operators.WORK_PER_BLOCK = 1 << 14


@numba.njit(nogil=True)  # noqa: TID251  the script keeps nothing on disk
def squared_norms(lo, hi, rows, out):  # type: ignore[no-untyped-def]
    for i in range(lo, hi):
        total = 0.0
        for j in range(rows.shape[1]):
            total += rows[i, j] * rows[i, j]
        out[i] = total


@numba.njit(parallel=True)  # noqa: TID251  user code, as it may stand beside fastcos
def total_of_user(rows):  # type: ignore[no-untyped-def]
    out = np.zeros(len(rows))
    for i in numba.prange(len(rows)):
        out[i] = rows[i].sum()
    return out.sum()


# operations


def kernel(n_threads: int) -> list[Any]:
    out = parallel.unfilled(len(ROWS), np.float64)
    parallel.run(squared_norms, parallel.row_blocks(len(ROWS), 100), ROWS, out, n_threads=n_threads)
    return [out]


def top_k(n_threads: int) -> list[Any]:
    return list(fastcos.top_k(ITEMS, k=5, n_threads=n_threads))


def matmul(n_threads: int) -> list[Any]:
    return [fastcos.matmul(SPARSE, RIGHT, n_threads=n_threads)]


def svd(n_threads: int) -> list[Any]:
    result = fastcos.randomized_svd(SPARSE, 3, n_threads=n_threads)
    return [result.s, result.U, result.Vt]


def scores(n_threads: int) -> list[Any]:
    of_labels = metrics.pair_auc, metrics.map_at_r, metrics.silhouette
    return [np.array(score(ITEMS, LABELS, n_threads=n_threads).value) for score in of_labels]


OPERATIONS: dict[str, Callable[[int], list[Any]]] = {
    "kernel": kernel, "top_k": top_k, "matmul": matmul, "svd": svd, "metrics": scores,
}  # fmt: skip


def bits(operation: str, n_threads: int) -> str:
    result = b"".join(array.tobytes() for array in OPERATIONS[operation](n_threads))
    return hashlib.sha256(result).hexdigest()


def confirm_one_thread() -> None:
    """Compare the answers of one thread with NumPy.

    All other answers are compared with the answers of one thread.
    """
    np.testing.assert_allclose(kernel(1)[0], (ROWS * ROWS).sum(axis=1), rtol=1e-12)
    np.testing.assert_allclose(matmul(1)[0], SPARSE.toarray() @ RIGHT, rtol=1e-12)
    values = np.linalg.svd(SPARSE.toarray(), compute_uv=False)[:3]
    np.testing.assert_allclose(svd(1)[0], values, rtol=1e-9)
    unit = ITEMS / np.linalg.norm(ITEMS.astype(float), axis=1, keepdims=True)
    cosines = unit @ unit.T
    np.fill_diagonal(cosines, -2)
    order = np.argsort(-cosines, axis=1, kind="stable")
    np.testing.assert_array_equal(top_k(1)[0], order[:, :5])
    pairs = np.triu_indices(len(ITEMS), 1)
    same = (LABELS[:, None] == LABELS)[pairs]
    higher = cosines[pairs][same, None] > cosines[pairs][~same]
    np.testing.assert_allclose(scores(1)[0], higher.mean(), rtol=1e-9)


def blocks_of(operation: str) -> int:
    """Return the largest number of blocks in a run of an operation; one block needs no pool."""
    results, run = [], parallel.run
    parallel.run = lambda of, cuts, *rest, **more: (  # type: ignore[assignment]
        results.append(len(cuts) - 1), run(of, cuts, *rest, **more),
    )[1]  # fmt: skip
    try:
        OPERATIONS[operation](2)
    finally:
        parallel.run = run
    return max(results)


# situations


def wrong(calls: int, expected: dict[str, str]) -> dict[str, int]:
    """Call all operations in turn, `calls` times; return the wrong answers per operation."""
    results = dict.fromkeys(expected, 0)
    for _ in range(calls):
        for operation, answer in expected.items():
            results[operation] += bits(operation, 2) != answer
    return results


def added(counts: list[dict[str, int]]) -> dict[str, int]:
    return {name: sum(one[name] for one in counts) for name in OPERATIONS}


def in_threads(calls: int, expected: dict[str, str], n_threads: int = 8) -> dict[str, int]:
    counts: list[dict[str, int]] = []
    callers = [
        threading.Thread(target=lambda: counts.append(wrong(-(-calls // n_threads), expected)))
        for _ in range(n_threads)
    ]
    for caller in callers:
        caller.start()
    while threading.current_thread() is threading.main_thread() and callers[0].is_alive():
        total_of_user(ROWS)  # Numba's workqueue layer allows only one thread at a time
    for caller in callers:
        caller.join()
    lost = dict.fromkeys(expected, (n_threads - len(counts)) * calls)
    return added([*counts, lost])


def in_child(calls: int, expected: dict[str, str], generations: int = 1) -> dict[str, int]:
    """Return the results of a child or grandchild; if a process dies, all calls count as wrong."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(HANG)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            if generations > 1:
                results = in_child(calls, expected, generations - 1)
            else:
                results = wrong(calls, expected)
        if len([w for w in caught if "prange" in str(w.message)]) > 1:
            results = dict.fromkeys(expected, calls)  # one warning is enough
        os.write(writer, json.dumps(results).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as file:
        answer = file.read()
    os.waitpid(child, 0)
    return json.loads(answer) if answer else dict.fromkeys(expected, calls)


def in_processes(calls: int, expected: dict[str, str], method: str) -> dict[str, int]:
    context = multiprocessing.get_context(method)
    with ProcessPoolExecutor(2, context, install_handlers, (sys.argv[2:],)) as pool:
        return added(list(pool.map(wrong, [-(-calls // 2)] * 2, [expected] * 2)))


def in_dask_workers(calls: int, expected: dict[str, str]) -> dict[str, int]:
    import dask
    from distributed import Client, LocalCluster

    # If a worker dies, Dask must raise an error at once, and not try again.
    dask.config.set({"distributed.scheduler.allowed-failures": 0})
    with (
        LocalCluster(n_workers=2, threads_per_worker=4, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        tasks = [client.submit(wrong, -(-calls // 8), expected, pure=False) for _ in range(8)]
        return added(client.gather(tasks))


SITUATIONS: dict[str, Callable[[int, dict[str, str]], dict[str, int]]] = {
    "8-threads": in_threads,
    "fork": in_child,
    "double-fork": lambda calls, expected: in_child(calls, expected, 2),
    "multiprocessing-fork": lambda calls, expected: in_processes(calls, expected, "fork"),
    "multiprocessing-spawn": lambda calls, expected: in_processes(calls, expected, "spawn"),
    "dask": in_dask_workers,
}


def install_handlers(words: list[str]) -> None:
    """Install signal handlers that only note the signal, like the handlers of servers.

    Such handlers mislead Numba's guards.
    """
    if "handlers" in words:
        for number in (signal.SIGTERM, signal.SIGABRT):
            signal.signal(number, lambda number, frame: signals.append(int(number)))


def warmed() -> dict[str, str]:
    """In this process, run a user's loop, then every operation; return the expected answers."""
    np.testing.assert_allclose(total_of_user(ROWS), ROWS.sum())
    assert numba.threading_layer() == os.environ.get("NUMBA_THREADING_LAYER", "omp")
    confirm_one_thread()
    for operation in OPERATIONS:
        assert blocks_of(operation) > 1, operation
    expected = {operation: bits(operation, 1) for operation in OPERATIONS}
    assert not any(wrong(3, expected).values()), "of the calls before the situation"
    return expected


if __name__ == "__main__":
    calls, situations = int(sys.argv[1]), [word for word in sys.argv[2:] if word in SITUATIONS]
    install_handlers(sys.argv[2:])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        expected = warmed()
        wrong_ones = added([SITUATIONS[situation](calls, expected) for situation in situations])
    messages = [str(w.message) for w in caught if "prange" in str(w.message)]
    calls *= len(situations)
    print(
        json.dumps({"calls": calls, "wrong": wrong_ones, "warnings": messages, "signals": signals})
    )
