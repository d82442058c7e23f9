"""A script: many calls of the thread driver in situations that break OpenMP and workqueue.

    python guard_calls.py CALLS SITUATION...

Prints one JSON line: what was wrong, what was warned of, and how many signals arrived. Every answer
is compared with NumPy's. Run by test_threads.py in processes of their own.
"""

import json
import os
import signal
import sys
import threading
import warnings

import numba
import numpy as np

from fastcos import threads

warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
ROWS = np.random.default_rng(0).random((2000, 20))
TRUTH = (ROWS * ROWS).sum(axis=1)
CUTS = threads.cuts_by_rows(len(ROWS), 100)
signals = []


@numba.njit(nogil=True)  # noqa: TID251  the script keeps nothing on disk
def squared_norms(lo, hi, rows, out):
    for i in range(lo, hi):
        total = 0.0
        for j in range(rows.shape[1]):
            total += rows[i, j] * rows[i, j]
        out[i] = total


def wrong(calls):
    """How many of calls are wrong."""
    count = 0
    for _ in range(calls):
        out = threads.poisoned(len(ROWS), np.float64)
        threads.run(squared_norms, CUTS, ROWS, out, n_threads=2)
        count += not np.allclose(out, TRUTH, rtol=1e-12, atol=0)
    return count


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
        signal.alarm(50)  # a hang must end in a failure
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
        bad = {"warm-up": wrong(3)}
        for situation in sys.argv[2:]:
            if situation in SITUATIONS:
                bad[situation] = SITUATIONS[situation](int(sys.argv[1]))
    told = [str(w.message) for w in caught if "prange" in str(w.message)]
    print(json.dumps({"wrong": bad, "warnings": told, "signals": signals}))
