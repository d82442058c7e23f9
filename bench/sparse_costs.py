"""Cost of sparse operations by non-zeros, k and threads: `python -m bench.sparse_costs`.

Every line is one run in a process of its own: median seconds, and the peak memory that a call
added, as JSON. Uses the decks, or Zipfian interactions of the same shape if they are missing.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import fastcos
from bench import inputs
from bench.answers import resident_mib
from fastcos.linalg import buffer_pool

USERS, ITEMS, NNZ = 385_215, 17_192, 12_000_000
CALLS = 3
# the parameter that varies, and its values; the others stay at BASE
BASE = {"share": 1.0, "k": 64, "threads": len(os.sched_getaffinity(0))}
AXES = {
    "share": [0.25, 0.5, 1.0],
    "k": [16, 64, 128],
    "threads": sorted({1, BASE["threads"]}),
}
TASKS = {
    "gram_matmul": lambda X, k, threads: fastcos.gram_matmul(
        X, X[:k].T.toarray(), n_threads=threads
    ),
    "randomized_svd": lambda X, k, threads: fastcos.randomized_svd(X, k, n_threads=threads),
    "top_k": lambda X, k, threads: fastcos.top_k(X.T, k=k, n_threads=threads),
}


def measure(task, share, k, threads):
    """Return one line of the table, measured in this process."""
    X = inputs.decks()
    if X is None:
        X = inputs.zipf_interactions(USERS, ITEMS, NNZ)
    X = X[: int(share * X.shape[0])]
    call = TASKS[task]
    call(X, k, threads)
    buffer_pool.release()
    before = resident_mib("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # resets the high-water mark
    seconds = []
    for _ in range(CALLS):
        started = time.perf_counter()
        call(X, k, threads)
        seconds.append(time.perf_counter() - started)
    return {
        "task": task, "nnz": int(X.nnz), "k": k, "threads": threads,
        "seconds": round(statistics.median(seconds), 4),
        "peak_mib": round(resident_mib("VmHWM") - before),
    }  # fmt: skip


def main():
    for task in TASKS:
        for axis, values in AXES.items():
            for value in values:
                given = BASE | {axis: value}
                if given == BASE and axis != "share":
                    continue  # measured on the first axis
                job = json.dumps([task, *given.values()])
                subprocess.run([sys.executable, "-m", "bench.sparse_costs", job], check=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(measure(*json.loads(sys.argv[1]))), flush=True)
    else:
        main()
