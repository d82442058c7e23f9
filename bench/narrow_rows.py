"""Searches of rows of two bytes, one byte and one bit: `python -m bench.narrow_rows [n_items]`.

1,000 queries of 768 columns among 100,000 items, k = 10, each type in a new process: top_k, and an
index, whose search reads rows as given. Time: median of five calls, after one that compiles. Peak:
bytes that a call allocates at most, by tracemalloc, beside the rows and relative to them; of the
index while it is made and searched once, its codes included. The neighbours are compared with those
of the same numbers in float64 (bits: of unpacked rows by BLAS).
"""

import subprocess
import sys
import tracemalloc

import numpy as np

from bench.clock import milliseconds
from fastcos import SimilarityIndex, top_k

TYPES = ("float32", "float16", "bfloat16", "int8", "bits")
QUERIES, COLUMNS, K = 1000, 768, 10


def rows(name, n, seed):
    values = np.random.default_rng(seed).standard_normal((n, COLUMNS), dtype=np.float32)
    if name == "bits":
        return np.packbits(values > 0, axis=1)
    if name == "int8":
        return np.clip(np.rint(30 * values), -127, 127).astype(np.int8)
    if name == "bfloat16":
        from ml_dtypes import bfloat16

        return values.astype(bfloat16)
    return values.astype(name)


def expected(queries, items, name):
    if name != "bits":
        return top_k(queries.astype(np.float64), items.astype(np.float64), K).indices
    signs = 2.0 * np.unpackbits(items, axis=1).astype(np.float32) - 1
    scores = (2.0 * np.unpackbits(queries, axis=1).astype(np.float32) - 1) @ signs.T
    return np.argsort(-scores, axis=1, kind="stable")[:, :K]


def peak_of(call):
    """What a call returns, and the bytes that it allocates at most."""
    tracemalloc.start()
    try:
        return call(), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def measure(name, n_items):
    items, queries = rows(name, n_items, 0), rows(name, QUERIES, 1)
    truth = expected(queries, items, name)

    def show(what, call, found, peak):
        wrong = int((found.indices != truth).any(axis=1).sum())
        cells = name, what, items.nbytes >> 20, round(milliseconds(call)), peak >> 20
        print(
            f"| {' | '.join(map(str, cells))} | {peak / items.nbytes:.2f} | {wrong} |", flush=True
        )

    def call():
        return top_k(queries, items, K, measure="hamming" if name == "bits" else "cosine")

    call()
    show("top_k", call, *peak_of(call))
    if name == "bits":  # an index has none
        return
    SimilarityIndex().fit(items).search(queries, K)

    def made():
        index = SimilarityIndex().fit(items)
        return index, index.search(queries, K)

    (index, found), peak = peak_of(made)
    show("index", lambda: index.search(queries, K), found, peak)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        measure(sys.argv[1], int(sys.argv[2]))
    else:
        n_items = sys.argv[1] if len(sys.argv) > 1 else "100000"
        print("| type | | rows, MiB | ms | peak, MiB | peak / rows | wrong queries |")
        print("|---|---|---:|---:|---:|---:|---:|", flush=True)
        for name in TYPES:
            command = [sys.executable, "-m", "bench.narrow_rows", name, n_items]
            subprocess.run(command, check=True)
