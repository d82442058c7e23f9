"""A script: many calls of the thread driver in situations that break OpenMP and workqueue.

    python guard_calls.py CALLS SITUATION... [public]

Prints one JSON line: what was wrong, what was warned of, and how many signals arrived. A call is
that of a kernel, compared with NumPy; with `public`, those of top_k, matmul, randomized_svd and
pair_auc, compared with what one thread gave. Run by test_threads.py in processes of their own.
"""

import json
import os
import signal
import sys
import threading
import warnings

import numba
import numpy as np
import scipy.sparse as sp

import fastcos
from fastcos import metrics, threads

warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
ROWS = np.random.default_rng(0).random((2000, 20))
TRUTH = (ROWS * ROWS).sum(axis=1)
CUTS = threads.cuts_by_rows(len(ROWS), 100)
signals = []
PUBLIC = []  # what the operations must answer, if they are asked


@numba.njit(nogil=True)  # noqa: TID251  the script keeps nothing on disk
def squared_norms(lo, hi, rows, out):
    for i in range(lo, hi):
        total = 0.0
        for j in range(rows.shape[1]):
            total += rows[i, j] * rows[i, j]
        out[i] = total


def kernel_is_right():
    out = threads.poisoned(len(ROWS), np.float64)
    threads.run(squared_norms, CUTS, ROWS, out, n_threads=2)
    return np.allclose(out, TRUTH, rtol=1e-12, atol=0)


def public_answers(n_threads):
    """Bytes of what four operations answer; blocks are small enough for several threads."""
    items, labels = ROWS[:700].astype(np.float32), np.arange(700) % 3
    sparse = sp.csr_array(np.where(ROWS > 0.8, ROWS, 0.0))
    svd = fastcos.randomized_svd(sparse, 3, n_threads=n_threads)
    found = [
        *fastcos.top_k(items, k=5, n_threads=n_threads),
        fastcos.matmul(sparse, ROWS[:20, :8], n_threads=n_threads),
        *(svd.U, svd.s, svd.Vt),
        np.array(metrics.pair_auc(items, labels, n_threads=n_threads).value),
    ]
    return [array.tobytes() for array in found]


def public_is_right():
    return public_answers(2) == PUBLIC


def wrong(calls):
    """How many of calls are wrong."""
    is_right = public_is_right if PUBLIC else kernel_is_right
    return sum(not is_right() for _ in range(calls))


def wrong_from_threads(calls, n_threads):
    found = []
    callers = [
        threading.Thread(target=lambda: found.append(wrong(-(-calls // n_threads))))
        for _ in range(n_threads)
    ]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    return sum(found) + (n_threads - len(found)) * calls


def wrong_in_child(calls, generations):
    child = os.fork()
    if child == 0:
        signal.alarm(500 if PUBLIC else 50)  # a hang must end in a failure
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            bad = wrong(calls) + (wrong_in_child(calls, generations - 1) if generations > 1 else 0)
        several = len([w for w in caught if "prange" in str(w.message)]) > 1
        os._exit(min(bad + several, 255))
    status = os.waitpid(child, 0)[1]
    return os.waitstatus_to_exitcode(status)


SITUATIONS = {
    "alone": wrong,
    "4-threads": lambda calls: wrong_from_threads(calls, 4),
    "8-threads": lambda calls: wrong_from_threads(calls, 8),
    "fork": lambda calls: wrong_in_child(calls, 1),
    "double-fork": lambda calls: wrong_in_child(calls, 2),
}

if __name__ == "__main__":
    for number in (signal.SIGTERM, signal.SIGABRT):
        if f"{number.name}-handler" in sys.argv:
            signal.signal(number, lambda number, frame: signals.append(int(number)))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if "public" in sys.argv:
            PUBLIC += public_answers(1)
        bad = {"warm-up": wrong(3)}
        for situation in sys.argv[2:]:
            if situation in SITUATIONS:
                bad[situation] = SITUATIONS[situation](int(sys.argv[1]))
    told = [str(w.message) for w in caught if "prange" in str(w.message)]
    print(json.dumps({"wrong": bad, "warnings": told, "signals": signals}))
