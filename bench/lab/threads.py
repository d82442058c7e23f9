"""Time fastcos and FAISS with various numbers of threads: `python -m bench.lab.threads`.

The script prints a table with one row per kind of work, and one column per number of threads: 1, 2,
4, ... up to the number of cores. FAISS has two methods of multiplication, and the time of the
faster one counts. Before the timing, the script compares the neighbours of FAISS with the
neighbours of fastcos. docs/dev/benchmarks.md contains a copy of the table, from which
docs/figures.py draws docs/figures/threads.png. The script takes three minutes on two cores; run it
on a quiet machine.
"""

import itertools
import os
from functools import partial

import faiss
import numpy as np

import fastcos
from bench import data
from bench.lab.markdown import print_table
from bench.lab.timing import in_turns

K = 10
# The numbers of queries, items and columns of each search.
SEARCHES = ((1, 100_000, 384), (1_000, 100_000, 384), (16, 1_000_000, 128))
# FAISS uses BLAS for its products if a batch has at least this many queries. Every batch of this
# script has fewer queries than the first threshold, so FAISS does not use BLAS with this threshold.
# With the second threshold, FAISS always uses BLAS.
BLAS_THRESHOLDS = (2**30, 1)


def thread_counts():
    """Return 1, 2, 4, ... up to the number of cores."""
    cores = os.cpu_count() or 1
    return [2**power for power in range(cores.bit_length()) if 2**power <= cores]


def milliseconds(call):
    """Return the median milliseconds of a call, after a call that warms up the caches."""
    return 1e3 * float(np.median(in_turns(call)))


def faiss_milliseconds(index, queries, n_threads):
    """Return the milliseconds of a FAISS search, with the faster method of multiplication."""
    faiss.omp_set_num_threads(n_threads)
    times = []
    for threshold in BLAS_THRESHOLDS:
        faiss.cvar.distance_compute_blas_threshold = threshold
        times.append(milliseconds(partial(index.search, queries, K)))
    return min(times)


def search_rows(counts):
    """Yield two rows of the table for every search: the times of fastcos and the times of FAISS."""
    for n_queries, n, d in SEARCHES:
        rows = data.gaussian(n, d)
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        queries = data.gaussian(n_queries, d, seed=1)
        index, faiss_index = fastcos.SimilarityIndex("dot").fit(rows), faiss.IndexFlatIP(d)
        faiss_index.add(rows)
        _, expected = faiss_index.search(queries, K)
        differing = (index.search(queries, K).indices != expected).mean()
        if differing > 1e-3:  # a few neighbours differ, because FAISS rounds scores to float32
            raise SystemExit(f"{differing:.1%} of the neighbours differ from those of FAISS")
        name = f"{n_queries:,} {'query' if n_queries == 1 else 'queries'}, {n:,} x {d}"
        times = [milliseconds(partial(index.search, queries, K, n_threads=c)) for c in counts]
        yield f"{name}: fastcos", *times
        yield (
            f"{name}: FAISS",
            *(faiss_milliseconds(faiss_index, queries, count) for count in counts),
        )


def other_rows(counts):
    """For each of three operations that FAISS does not have, yield a row of the table."""
    rows = data.gaussian(30_000, 384)
    sparse_rows = data.interactions(20_000, 5_000, 400_000)
    X, A = data.interactions(100_000, 20_000, 3_200_000), data.gaussian(20_000, 64)
    for name, call in (
        ("`top_k(X)` of 30,000 x 384", partial(fastcos.top_k, rows)),
        ("sparse `top_k` of 20,000 rows", partial(fastcos.top_k, sparse_rows)),
        ("X A, 3.2 million non-zeros, 64 columns", partial(fastcos.matmul, X, A)),
    ):
        yield name, *(milliseconds(partial(call, n_threads=count)) for count in counts)


def main():
    counts = thread_counts()
    first_count, *other_counts = counts
    header = ("milliseconds", f"{first_count} thread", *map(str, other_counts))
    rows = itertools.chain(search_rows(counts), other_rows(counts))
    print_table("l" + "r" * len(counts), header, rows)


if __name__ == "__main__":
    main()
