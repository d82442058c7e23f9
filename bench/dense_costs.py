"""Cost of dense exact top-k: curves, and a million rows beside the matrix product alone.

`python -m bench.dense_costs curves > curves.csv`: seconds of a self-join by rows, columns,
neighbours and threads; Gaussian rows, median of up to five calls.

`python -m bench.dense_costs million`: the self-join of 1,000,000 x 128 rows, k = 10, once, beside
sgemm of the same operations at its rate for blocks of 4,096 rows in this process (set
OPENBLAS_CORETYPE to its best value). JSON to stdout.
"""

import csv
import json
import statistics
import sys
import time

import numpy as np
from rich.console import Console
from rich.progress import Progress

import fastcos
from bench import inputs

# the parameter that varies: values of (rows, columns, neighbours, threads)
CURVES = {
    "rows": [(10_000 * 2**i, 64, 10, 2) for i in range(7)],
    "columns": [(20_000, 32 * 2**i, 10, 2) for i in range(6)],
    "neighbours": [(20_000, 128, k, 2) for k in (1, 3, 10, 30, 100, 300, 1000)],
    "threads": [(40_000, 128, 10, threads) for threads in (1, 2)],
}
MILLION, DEPTH = 1_000_000, 128


def seconds_of(call):
    """Return the median of up to five calls within 4 s."""
    taken = []
    while len(taken) < 5 and sum(taken) < 4:
        started = time.perf_counter()
        call()
        taken.append(time.perf_counter() - started)
    return statistics.median(taken)


def assert_exact(X, found, n_rows=20):
    """Compare the neighbours of some rows with float64."""
    norms = np.linalg.norm(X.astype(np.float64), axis=1)
    for i in np.linspace(0, len(X) - 1, n_rows).astype(int):
        cosines = X @ X[i].astype(np.float64) / (norms * norms[i])
        cosines[i] = -2
        order = np.argsort(-cosines, kind="stable")[: found.indices.shape[1]]
        np.testing.assert_array_equal(found.indices[i], order)


def curves():
    table = csv.writer(sys.stdout)
    table.writerow(["varies", "rows", "columns", "neighbours", "threads", "seconds", "ps_per_term"])
    fastcos.top_k(inputs.gaussian(2_000, 64), k=10)  # compiles
    for varies, points in CURVES.items():
        for n, d, k, n_threads in points:
            X = inputs.gaussian(n, d)
            assert_exact(X[:5_000], fastcos.top_k(X[:5_000], k=k))
            seconds = seconds_of(lambda X=X, k=k, t=n_threads: fastcos.top_k(X, k=k, n_threads=t))
            row = [
                varies,
                n,
                d,
                k,
                n_threads,
                f"{seconds:.4f}",
                f"{seconds / n / n / d * 1e12:.3f}",
            ]
            table.writerow(row)
            sys.stdout.flush()


def sgemm_rate(X):
    """Return multiply-adds per second of X's first rows times the others, in blocks."""
    block, out = X[:4096], np.empty((4096, 100_000), np.float32)
    items = X[:100_000].T
    np.matmul(block, items, out=out)
    seconds = seconds_of(lambda: np.matmul(block, items, out=out))
    return out.size * X.shape[1] / seconds


def million():
    X = inputs.gaussian(MILLION, DEPTH)
    fastcos.top_k(X[:2_000], k=10)
    rates = [sgemm_rate(X)]
    with Progress(console=Console(stderr=True)) as bar:
        task = bar.add_task("neighbours", total=MILLION)
        started = time.perf_counter()
        found = fastcos.top_k(X, k=10, progress=lambda done, _: bar.update(task, completed=done))
        seconds = time.perf_counter() - started
    rates.append(sgemm_rate(X))
    assert_exact(X, found)
    sgemm = MILLION * MILLION * DEPTH / max(rates)
    print(
        json.dumps(
            {
                "work": "self-join 1,000,000 x 128, k = 10", "competitor": "sgemm alone",
                "ratio": sgemm / seconds, "ours_s": seconds, "competitor_s": sgemm, "correct": True,
                "target": 1.0, "sgemm_gflops": 2e-9 * max(rates),
            }
        )
    )  # fmt: skip


if __name__ == "__main__":
    {"curves": curves, "million": million}[sys.argv[1]]()
