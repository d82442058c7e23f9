"""The first minute on a machine without compiled code: `python -m bench.lab.first_minute`.

The script prints a Markdown table. Each line of the table is measured by one process with an empty
cache. The process searches an index with 1, 16 and 256 queries in turn, until compiled code answers
or the time limit is reached. Right before every search of the index, the script searches for the
same queries in plain NumPy: it converts rows of float16 or int8 to float32, computes a matrix
product, divides by the norms, and calls argpartition and a sort. The ratio of a search is its time
divided by the median time of three NumPy searches. These three searches are the NumPy searches for
the same queries that ran nearest in time to the search of the index. The table shows ratios,
because other processes, such as the compiling process, delay the index and NumPy alike.

    python -m bench.lab.first_minute --sizes 20000x128 --types float16 int8 --background off

Two kinds of searches are listed separately: the first search of the process, which imports modules,
and the first searches by compiled code, which load the code and pack the rows. With --background
off, the first search of compiled code also compiles the kernels.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from functools import partial

import numpy as np

from bench.lab.markdown import print_table
from bench.lab.timing import seconds

K = 10
QUERIES = (1, 16, 256)
SIZES = ("20000x128", "300000x384", "1000000x384")
TYPES = ("float32", "float64", "float16", "int8")
# The number of rows that are generated or converted at once.
ROWS_PER_BLOCK = 100_000


def rows_of(n, d, dtype, seed):
    """Return Gaussian rows of a dtype, which are generated block by block."""
    random = np.random.default_rng(seed)
    rows = np.empty((n, d), dtype)
    for lo in range(0, n, ROWS_PER_BLOCK):
        block = random.standard_normal((min(ROWS_PER_BLOCK, n - lo), d), dtype=np.float32)
        rows[lo : lo + len(block)] = (
            np.rint(30 * block).clip(-127, 127) if dtype == "int8" else block
        )
    return rows


def search_in_numpy(rows, inverse_norms, queries):
    """Find the K nearest rows of every query by cosine, as a user of NumPy would program it."""
    kind = np.float64 if rows.dtype == np.float64 else np.float32
    queries = queries.astype(kind)
    queries /= np.linalg.norm(queries, axis=1)[:, None]
    scores = np.empty((len(queries), len(rows)), kind)
    for lo in range(0, len(rows), ROWS_PER_BLOCK):
        block = rows[lo : lo + ROWS_PER_BLOCK].astype(kind, copy=False)
        np.matmul(queries, block.T, out=scores[:, lo : lo + len(block)])
    scores *= inverse_norms.astype(kind)
    best = np.argpartition(scores, -K, axis=1)[:, -K:]
    values = np.take_along_axis(scores, best, axis=1)
    order = np.argsort(-values, axis=1)
    return np.take_along_axis(best, order, axis=1), np.take_along_axis(values, order, axis=1)


def ratios_to_numpy(calls, in_numpy):
    """Divide the time of each call by the median time of the NumPy calls that ran around it."""
    near = [in_numpy[max(0, i - 1) : i + 2] for i in range(len(calls))]
    return np.array(calls) / np.array([np.median(times) for times in near])


def measure(size, dtype, limit):
    """Measure one line of the table; stop when compiled code answers, or after `limit` seconds."""
    import fastcos
    from fastcos.parallel import readiness

    # In a user's program, fastcos searches in NumPy until its kernels are compiled. The import of
    # bench.lab has set the option compile_at_once, so this line resets the option.
    readiness.state.compile_at_once = False
    n, d = map(int, size.split("x"))
    rows = rows_of(n, d, dtype, 0)
    squares = np.concatenate(
        [
            np.square(rows[lo : lo + ROWS_PER_BLOCK], dtype=np.float64).sum(axis=1)
            for lo in range(0, n, ROWS_PER_BLOCK)
        ]
    )
    queries = {count: rows_of(count, d, dtype, 1) for count in QUERIES}
    plain = {
        count: partial(search_in_numpy, rows, 1 / np.sqrt(squares), queries[count])
        for count in QUERIES
    }
    # The first use of new memory is slow, because the system clears its pages. NumPy is therefore
    # called once before it is timed.
    for count in QUERIES:
        plain[count]()
    index = fastcos.SimilarityIndex().fit(rows)
    first = seconds(partial(index.search, queries[1], K))
    calls, in_numpy = ({count: [] for count in QUERIES} for _ in range(2))
    switch, started = {}, time.monotonic()
    while len(switch) < len(QUERIES) and time.monotonic() < started + limit:
        for count in QUERIES:
            in_numpy[count].append(seconds(plain[count]))
            spent = time.perf_counter()
            neighbors = index.search(queries[count], K)
            spent = time.perf_counter() - spent
            if readiness.state.is_ready:  # compiled code has answered this search
                switch.setdefault(count, spent)
            else:
                calls[count].append(spent)
    until_compiled = time.monotonic() - started if switch else None
    is_right = True
    for count in QUERIES:
        _, cosines = plain[count]()
        neighbors = index.search(queries[count], K)
        is_right &= bool(np.abs(cosines - neighbors.scores).max() < 1e-4)
    warm = {
        count: [seconds(partial(index.search, queries[count], K)) for _ in range(5)]
        for count in QUERIES
    }
    line = {"first_s": first, "until_compiled": until_compiled, "is_right": is_right}
    for count in QUERIES:
        ratios = ratios_to_numpy(calls[count], in_numpy[count])
        line[str(count)] = {
            "numpy_ms": 1e3 * float(np.median(in_numpy[count])), "calls": len(ratios),
            "median": float(np.median(ratios)), "p95": float(np.quantile(ratios, 0.95)),
            "max": float(ratios.max()), "switch_s": switch.get(count),
            "warm_ms": 1e3 * float(np.median(warm[count])) if switch else None,
        }  # fmt: skip
    return line


def lines(sizes, types, background, limit):
    """Yield the lines of the table."""
    for size in sizes:
        for dtype in types:
            for setting in background:
                with tempfile.TemporaryDirectory() as cache:
                    variables = {
                        "FASTCOS_CACHE_DIR": cache, "FASTCOS_NATIVE": "0",
                        "FASTCOS_BACKGROUND": "0" if setting == "off" else "1",
                    }  # fmt: skip
                    words = ["--one", size, dtype, str(limit)]
                    process = subprocess.run(
                        [sys.executable, "-m", "bench.lab.first_minute", *words], check=True,
                        env={**os.environ, **variables}, stdout=subprocess.PIPE, text=True,
                    )  # fmt: skip
                line = json.loads(process.stdout)
                for count in QUERIES:
                    numbers = line[str(count)]
                    yield (
                        size, dtype, setting, count, numbers["numpy_ms"], numbers["calls"],
                        numbers["median"], numbers["p95"], numbers["max"],
                        line["first_s"] if count == 1 else None,
                        numbers["switch_s"], line["until_compiled"], numbers["warm_ms"],
                        str(line["is_right"]),
                    )  # fmt: skip


def main():
    """Print the table; with --one, print the measurement of one process as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sizes", nargs="+", default=SIZES)
    parser.add_argument("--types", nargs="+", default=TYPES, choices=TYPES)
    parser.add_argument("--background", nargs="+", default=("on", "off"), choices=("on", "off"))
    parser.add_argument("--seconds", type=float, default=120.0, help="the longest search of a line")
    parser.add_argument("--one", nargs=3, metavar=("SIZE", "TYPE", "SECONDS"))
    options = parser.parse_args()
    if options.one:
        size, dtype, limit = options.one
        print(json.dumps(measure(size, dtype, float(limit))))
        return
    header = (
        "rows", "type", "background", "queries", "plain NumPy, ms", "calls", "median ratio",
        "95th percentile of the ratio", "largest ratio", "first call of the process, s",
        "first compiled call, s", "seconds until compiled", "compiled, ms", "results are right",
    )  # fmt: skip
    print_table(
        "lll" + "r" * 11,
        header,
        lines(options.sizes, options.types, options.background, options.seconds),
    )


if __name__ == "__main__":
    main()
