"""The first minute on a machine without compiled code: `python -m bench.lab.first_minute`.

Prints a Markdown table. Each line is one process with an empty cache, which searches an index by 1,
16 and 256 queries in turns, until compiled code answers or the time is over. Every call is compared
with plain NumPy on the same rows: a matrix product (after a conversion to float32, where the rows
are float16 or int8), scaled to cosines, argpartition, and a sort of the k best. NumPy is timed
before, and once more beside every tenth call; medians count.

    python -m bench.lab.first_minute --sizes 20000x128 --types float16 int8 --background off

With --background off the process compiles itself after some searching; that call is listed apart.
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
# rows that are generated or converted at once
ROWS_PER_BLOCK = 100_000


def rows_of(n, d, dtype, seed):
    """Return Gaussian rows of a type, which is made block by block."""
    random = np.random.default_rng(seed)
    rows = np.empty((n, d), dtype)
    for lo in range(0, n, ROWS_PER_BLOCK):
        block = random.standard_normal((min(ROWS_PER_BLOCK, n - lo), d), dtype=np.float32)
        rows[lo : lo + len(block)] = (
            np.rint(30 * block).clip(-127, 127) if dtype == "int8" else block
        )
    return rows


def search_in_numpy(rows, inverse_norms, queries):
    """Return the k nearest rows of every query by their cosines, as a user of NumPy would."""
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


def measure(size, dtype, limit):
    """Search until compiled code answers, or for some seconds; return what a line prints."""
    import fastcos
    from fastcos.kernels import jit
    from fastcos.parallel import readiness

    readiness.state.compile_at_once = False  # as in a program; the other scripts compile first
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
    in_numpy = {count: [seconds(plain[count]) for _ in range(3)] for count in QUERIES}
    index = fastcos.SimilarityIndex()
    fit_seconds = seconds(partial(index.fit, rows))
    calls = {count: [] for count in QUERIES}
    compiling, is_right = 0.0, True
    started = time.monotonic()
    is_over = False
    while not is_over:
        # one round more after the switch: the first calls of compiled code count, too
        is_over = readiness.is_ready(dtype) or time.monotonic() > started + limit
        for count in QUERIES:
            before, spent = jit.seconds_compiling(), time.perf_counter()
            found = index.search(queries[count], K)
            spent = time.perf_counter() - spent
            if jit.seconds_compiling() - before > 1:  # this process compiled
                compiling += spent
            else:
                calls[count].append(spent)
            if len(calls[count]) % 10 == 1:
                in_numpy[count].append(seconds(plain[count]))
                _, cosines = plain[count]()
                is_right &= bool(np.abs(cosines - found.scores).max() < 1e-4)
    until_compiled = time.monotonic() - started if readiness.is_ready(dtype) else None
    warm = {
        count: [seconds(partial(index.search, queries[count], K)) for _ in range(5)]
        for count in QUERIES
    }
    line = {"fit": fit_seconds, "until_compiled": until_compiled, "compiling": compiling or None}
    for count in QUERIES:
        base = float(np.median(in_numpy[count]))
        ratios = np.array(calls[count]) / base
        line[str(count)] = {
            "numpy_ms": 1e3 * base, "calls": len(ratios), "median": float(np.median(ratios)),
            "p95": float(np.quantile(ratios, 0.95)), "max": float(ratios.max()),
            "longest_s": max(calls[count]), "warm_ms": 1e3 * float(np.median(warm[count])),
        }  # fmt: skip
    return {**line, "is_right": is_right}


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
                    done = subprocess.run(
                        [sys.executable, "-m", "bench.lab.first_minute", *words], check=True,
                        env={**os.environ, **variables}, stdout=subprocess.PIPE, text=True,
                    )  # fmt: skip
                found = json.loads(done.stdout)
                for count in QUERIES:
                    one = found[str(count)]
                    yield (
                        size, dtype, setting, count, one["numpy_ms"], one["calls"], one["median"],
                        one["p95"], one["max"], one["longest_s"], one["warm_ms"],
                        found["until_compiled"], found["compiling"], str(found["is_right"]),
                    )  # fmt: skip


def main():
    """Print the table, or what one process measures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sizes", nargs="+", default=SIZES)
    parser.add_argument("--types", nargs="+", default=TYPES, choices=TYPES)
    parser.add_argument("--background", nargs="+", default=("on", "off"), choices=("on", "off"))
    parser.add_argument("--seconds", type=float, default=120.0, help="the longest search of a line")
    parser.add_argument("--one", nargs=3, metavar=("SIZE", "TYPE", "SECONDS"))
    given = parser.parse_args()
    if given.one:
        size, dtype, limit = given.one
        print(json.dumps(measure(size, dtype, float(limit))))
        return
    header = (
        "rows", "type", "background", "queries", "plain NumPy, ms", "calls", "median ratio",
        "95 % ratio", "largest ratio", "longest call, s", "compiled, ms",
        "s until compiled", "s of the call that compiled", "right",
    )  # fmt: skip
    print_table(
        "lll" + "r" * 11, header, lines(given.sizes, given.types, given.background, given.seconds)
    )


if __name__ == "__main__":
    main()
