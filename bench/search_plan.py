"""Crossovers of the search plan: `python -m bench.search_plan` prints each one as a table.

Every tuning constant of fastcos.engine and fastcos.neighbors.filter_refine that chooses between two
ways is shown with the times of both around it. Fresh random rows, two threads unless set otherwise;
medians of five calls, after one that compiles.
"""

import numpy as np
import scipy.sparse as sp

import fastcos
from bench.clock import milliseconds
from fastcos import config
from fastcos.engine import packing, scan
from fastcos.engine.segments import Segment
from fastcos.measures import get_measure

K = 10


def encoded(rows):
    return packing.encode_rows(rows, None, None, "cosine")


def options():
    return packing.ExecutionOptions(config.num_threads(), config.working_memory() * 2**20)


def show(title, header, rows):
    print(f"\n{title}\n| " + " | ".join(header) + " |\n|" + "---|" * len(header))
    for row in rows:
        cells = (f"{cell:.2f}" if isinstance(cell, float) else str(cell) for cell in row)
        print("| " + " | ".join(cells) + " |")


def packing_against_scoring(rng):
    """Score all pairs, multiply rows as given, or pack the items and let the tiles filter."""
    for d in (64, 128, 768, 1536):
        items = encoded(rng.standard_normal((12_800_000 // d, d), dtype=np.float32))
        numbers = np.arange(len(items.rows))
        table = []
        for n in (2, 4, 10, 20, 40, 80, 150, 300):
            queries = items.take(slice(0, n))
            nothing = packing.no_exclusions(n)

            def pack_and_search(queries=queries, nothing=nothing, items=items, numbers=numbers):
                packed = packing.pack_items("cosine", items, numbers, None)
                scan.search(packed, queries, nothing, K, options())

            def score(queries=queries, nothing=nothing, items=items, numbers=numbers):
                scan.score_all("cosine", items, numbers, queries, nothing, K, options())

            def search_as_given(queries=queries, nothing=nothing, items=items):
                unpacked = packing.unpacked_items("cosine", items)
                scan.search_unpacked(unpacked, queries, nothing, K, options())

            table.append((n, *map(milliseconds, (score, search_as_given, pack_and_search))))
        title = f"QUERIES_TO_PACK, QUERIES_AS_GIVEN: {len(items.rows):,} x {d}, ms"
        show(title, ("queries", "score all pairs", "rows as given", "pack and search"), table)


def few_queries(rng):
    """Packed items: up to 64 queries threads share the items, above it the queries."""
    for n_items in (8_000, 200_000):
        items = encoded(rng.standard_normal((n_items, 128), dtype=np.float32))
        packed = Segment("cosine", items, np.arange(n_items)).packed
        table = []
        for n in (1, 16, 48, 64, 65, 96, 128):
            queries, nothing = items.take(slice(0, n)), packing.no_exclusions(n)
            spent = milliseconds(
                lambda queries=queries, nothing=nothing, packed=packed: scan.search(
                    packed, queries, nothing, K, options()
                )
            )
            table.append((n, spent, spent / n))
        show(f"_FEW_QUERIES: {n_items:,} x 128", ("queries", "ms", "ms a query"), table)


def duplicates(rng):
    """Self-join of rows with copies: one row of each group, or every row."""
    table = []
    for copies in (1, 2, 3, 5, 20):
        distinct = rng.standard_normal((20_000 // copies, 64), dtype=np.float32)
        X = np.repeat(distinct, copies, axis=0)
        # one excluded pair, and copies are searched one by one
        excluded = sp.csr_array(([1.0], ([0], [1])), shape=(len(X), len(X)))
        grouped = milliseconds(lambda X=X: fastcos.top_k(X, k=K))
        separate = milliseconds(lambda X=X, e=excluded: fastcos.top_k(X, k=K, exclude=e))
        table.append((copies, grouped, separate))
    header = ("copies of each row", "top_k, ms", "one by one, ms")
    show("_ENOUGH_COPIES: self-join 20,000 x 64", header, table)


def extra_candidates(rng):
    """Share of queries that filter and refine ends after the first list."""
    X = rng.standard_normal((20_000, 64), dtype=np.float32)
    table = []
    for name in ("mutual_proximity", "recos", "norm_angle_distance"):
        measure = get_measure(name).fit(X)
        kind, Q = measure.metric_type, X[:1000]
        items = packing.encode_rows(measure.encode_items(X), measure.item_bias(X), None, kind)
        queries = packing.encode_rows(measure.encode_queries(Q), None, None, kind)
        packed = Segment(kind, items, np.arange(len(X))).packed
        itself = packing.no_exclusions(len(Q), own=True)
        precomputed, shares = measure.precompute(X), []
        for extra in (0, 6, 14, 30, 62):
            listed, raw = scan.search(packed, queries, itself, K + extra, options())
            exact = -np.sort(-measure.rescore(Q, precomputed, listed), axis=1)[:, K - 1]
            shares.append(float((exact > measure.upper_bound(Q, raw[:, -1])).mean()))
        table.append((name, *shares))
    title = "_EXTRA_CANDIDATES: share of queries done after the first list, 20,000 x 64, k = 10"
    show(title, ("measure", *(f"{extra} extra" for extra in (0, 6, 14, 30, 62))), table)


if __name__ == "__main__":
    for part in (packing_against_scoring, few_queries, duplicates, extra_candidates):
        part(np.random.default_rng(0))
