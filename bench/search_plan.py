"""Crossovers of the search plan, and percent of peak: `python -m bench.search_plan` prints tables.

Every tuning constant of fastcos.engine and fastcos.neighbors.filter_refine that chooses between two
ways is shown with the times of both around it. Fresh random rows, two threads unless set otherwise;
medians of five calls, after one that compiles.
"""

from functools import partial

import numpy as np
import scipy.sparse as sp

import fastcos
from bench.clock import in_turns, milliseconds
from fastcos import config, parallel
from fastcos.engine import packing, scan
from fastcos.engine.segments import Segment
from fastcos.kernels import probes
from fastcos.measures import get_measure

K = 10
OPTIONS = packing.ExecutionOptions(config.num_threads(), config.working_memory() * 2**20)


def encoded(rng, n, d):
    """Return random rows as items, and packed."""
    rows = rng.standard_normal((n, d), dtype=np.float32)
    items = packing.encode_rows(rows, None, None, "cosine")
    return items, Segment("cosine", items, np.arange(n)).packed


def show(title, header, rows):
    print(f"\n{title}\n| " + " | ".join(header) + " |\n|" + "---|" * len(header))
    for row in rows:
        cells = (f"{cell:.2f}" if isinstance(cell, float) else str(cell) for cell in row)
        print("| " + " | ".join(cells) + " |")


def packing_against_scoring(rng):
    """Score all pairs, multiply rows as given, or pack the items and let the tiles filter."""
    for d in (64, 128, 768, 1536):
        items, _ = encoded(rng, 12_800_000 // d, d)
        numbers, table = np.arange(len(items.rows)), []
        unpacked = partial(packing.unpacked_items, "cosine", items)
        packed = partial(packing.pack_items, "cosine", items, numbers, None)
        for n in (2, 4, 10, 20, 40, 80, 150, 300):
            few = items.take(slice(0, n)), packing.no_exclusions(n), K, OPTIONS
            calls = (
                partial(scan.score_all, "cosine", items, numbers, *few),
                lambda few=few, unpacked=unpacked: scan.search_unpacked(unpacked(), *few),
                lambda few=few, packed=packed: scan.search(packed(), *few),
            )
            table.append((n, *map(milliseconds, calls)))
        title = f"QUERIES_TO_PACK, QUERIES_AS_GIVEN: {len(items.rows):,} x {d}, ms"
        show(title, ("queries", "score all pairs", "rows as given", "pack and search"), table)


def few_queries(rng):
    """Packed items: up to 64 queries threads share the items, above it the queries."""
    for n_items in (8_000, 200_000):
        items, packed = encoded(rng, n_items, 128)
        table = []
        for n in (1, 16, 48, 64, 65, 96, 128):
            few = items.take(slice(0, n)), packing.no_exclusions(n), K, OPTIONS
            spent = milliseconds(partial(scan.search, packed, *few))
            table.append((n, spent, spent / n))
        show(f"_FEW_QUERIES: {n_items:,} x 128", ("queries", "ms", "ms a query"), table)
    largest = scan._MOST_PANELS
    items, packed = encoded(rng, 1_000_000, 128)
    few = items.take(slice(0, 64)), packing.no_exclusions(64), K, OPTIONS
    table = []
    for panels in (512, 2048, 8192, 32768):
        scan._MOST_PANELS = panels
        table.append((panels, milliseconds(partial(scan.search, packed, *few))))
    scan._MOST_PANELS = largest
    show("_MOST_PANELS: 64 queries of 1,000,000 x 128", ("panels of a run", "ms"), table)


def duplicates(rng):
    """Self-join of rows with copies: one row of each group, or every row."""
    table = []
    for copies in (1, 2, 3, 5, 20):
        distinct = rng.standard_normal((20_000 // copies, 64), dtype=np.float32)
        join = partial(fastcos.top_k, np.repeat(distinct, copies, axis=0), k=K)
        n = len(distinct) * copies
        # one excluded pair, and copies are searched one by one
        excluded = sp.csr_array(([1.0], ([0], [1])), shape=(n, n))
        table.append((copies, milliseconds(join), milliseconds(partial(join, exclude=excluded))))
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
            listed, raw = scan.search(packed, queries, itself, K + extra, OPTIONS)
            exact = -np.sort(-measure.rescore(Q, precomputed, listed), axis=1)[:, K - 1]
            shares.append(float((exact > measure.upper_bound(Q, raw[:, -1])).mean()))
        table.append((name, *shares))
    title = "_EXTRA_CANDIDATES: share of queries done after the first list, 20,000 x 64, k = 10"
    show(title, ("measure", *(f"{extra} extra" for extra in (0, 6, 14, 30, 62))), table)


def percent_of_peak(rng):
    """Tiles alone, and whole searches, as percent of the multiply-adds that registers do."""
    n, n_queries, d = 60_000, 1000, 768
    items, packed = encoded(rng, n, d)
    queries, nothing = items.take(slice(0, n_queries)), packing.no_exclusions(n_queries)
    arrays, layout, code = packed.arrays, packed.layout, packed.kernel_code[0]
    done, sums = np.zeros(512), np.empty(len(arrays.statistics), np.float32)
    block = arrays.packed[: 256 * layout.words].copy()

    def multiply_in_registers():
        cuts = parallel.row_blocks(len(done), 16)
        arguments = arrays.isa_state, layout.empty_array(), done
        parallel.run(probes.multiply_registers, cuts, code, *arguments)

    def multiply_panels():
        cuts = parallel.row_blocks(len(sums), 64)
        arguments = arrays.packed, block, layout.words, arrays.isa_state, sums
        parallel.run(probes.multiply_panels, cuts, code, *arguments)

    calls = [multiply_in_registers, multiply_panels] + [
        partial(scan.search, packed, queries, nothing, k, OPTIONS) for k in (10, 100)
    ]
    spent = in_turns(*calls)
    whole = 1.0 * n_queries * n * d
    rates = np.array([done.sum(), 256.0 * n * d, whole, whole]) / spent
    names = ("registers", "tiles of packed rows", "search, k = 10", "search, k = 100")
    medians = np.median(rates, axis=0) / 1e9, np.median(100 * rates / rates[:, :1], axis=0)
    title = f"Percent of peak, {layout.isa}: {n_queries:,} queries x {n:,} x {d}"
    show(title, ("", "multiply-adds, 10^9/s", "percent"), zip(names, *medians, strict=True))


PARTS = (percent_of_peak, packing_against_scoring, few_queries, duplicates, extra_candidates)

if __name__ == "__main__":
    for part in PARTS:
        part(np.random.default_rng(0))
