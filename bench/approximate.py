"""Exact search beside approximate scans: `python -m bench.approximate [ROWS COLUMNS K]`.

Prints a Markdown table: 1,000 queries on a prebuilt index, cosine, with the recall of the k best.
Rows have a descending spectrum, clusters and a common mean, as embeddings have, and queries the
same law. Medians of calls that alternate with ours, each library in its own process, FAISS Flat
with its fastest OPENBLAS_CORETYPE. Libraries that FASTCOS_COMPETITORS_PYTHON lacks are left out.
"""

import contextlib
import statistics
import sys

import numpy as np

import fastcos
from bench.clock import TURNS, seconds
from bench.libraries import TASKS
from bench.tables import cpu_name, versions
from bench.worker import Competitor, Missing, fastest

TASK, QUERIES = "approximate search", 1000
DEFAULTS = ("60000", "768", "10")


def embeddings(n, d, rng):
    """Return rows (n, d), float32."""
    spectrum = 1.0 / np.sqrt(np.arange(1.0, d + 1))
    centres = 0.7 * spectrum * rng.standard_normal((64, d))
    rows = centres[rng.integers(64, size=n)] + spectrum * rng.standard_normal((n, d))
    return (rows + 0.4 * np.sqrt(np.square(spectrum).mean())).astype(np.float32)


def recall(found, exact):
    """Return the share of the exact neighbours (n, k) that were found."""
    both = [len(np.intersect1d(*pair)) for pair in zip(found, exact, strict=True)]
    return statistics.fmean(both) / exact.shape[1]


def compare(n, d, k):
    """Print the table for n items of d columns."""
    rows = embeddings(n + QUERIES, d, np.random.default_rng(0))
    items, queries = np.ascontiguousarray(rows[:n]), np.ascontiguousarray(rows[n:])
    index = fastcos.SimilarityIndex().fit(items)
    exact = index.search(queries, k=k).indices
    print(f"{QUERIES:,} queries x {n:,} x {d}, k = {k}; {cpu_name()}; {versions()}\n")
    print("| scan | its time | fastcos | ratio | its recall |\n|---|---:|---:|---:|---:|")
    for library in TASKS[TASK]:
        with contextlib.suppress(Missing):
            arrays, parameters = {"items": items, "queries": queries}, {"k": k}
            is_flat = library == "faiss"  # the others spend no time in BLAS
            other = fastest(library, TASK, arrays, parameters) if is_flat else Competitor(library)
            try:
                share = recall(other.prepare(TASK, arrays, parameters)[0], exact)
                turns = [
                    (other.seconds(), seconds(lambda: index.search(queries, k=k)))
                    for _ in range(TURNS)
                ]
            finally:
                other.close()
            theirs, ours = (statistics.median(times) for times in zip(*turns, strict=True))
            ratio = statistics.median(a / b for a, b in turns)
            cells = f"{1e3 * theirs:.0f} ms | {1e3 * ours:.0f} ms | {ratio:.2f}x | {share:.3f}"
            print(f"| {library} {other.core_type} | {cells} |", flush=True)


if __name__ == "__main__":
    compare(*map(int, sys.argv[1:4] or DEFAULTS))
