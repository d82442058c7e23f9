"""Measure thresholds of the search plan: `python -m bench.lab.search_plan [ROWS.npy ...]`.

To choose between two methods, the planner of a search compares a quantity, such as the number of
queries, with a threshold. The thresholds are fields of ``fastcos.search.cost_model.CostModel``. For
several thresholds, the script prints a table. The table shows the times of both methods, for
quantities below and above the threshold. The rows are random, and searches run on two threads
unless a table says otherwise. Times are medians of five calls, after a first call that compiles the
kernels. If files are given, the table of the projection also shows times for the rows of these
files. The first 1,000 rows of a file are the queries. The script takes several minutes.
"""

import sys
from functools import partial

import numpy as np
import scipy.sparse as sp

import fastcos
from bench.data import gaussian
from bench.lab.markdown import print_table
from bench.lab.timing import in_turns, milliseconds, seconds
from fastcos import config
from fastcos.search import cost_model, scan
from fastcos.search.filters import no_exclusions
from fastcos.search.options import ExecutionOptions
from fastcos.search.segments import Segment
from fastcos.similarity import encoded_rows, get_measure

K = 10
# For each search with a projection, the number of queries and the number of neighbours.
PROJECTION_CASES = ((1, 10), (64, 10), (1000, 10), (1000, 100))
OPTIONS = ExecutionOptions(config.n_threads(), config.working_memory() * 2**20)


def encoded(n, d):
    """Return encoded random rows, and a segment that contains the same rows in packed form."""
    items = encoded_rows.encode_rows(gaussian(n, d), None, None, "cosine")
    segment = Segment("cosine", items, np.arange(n))
    segment.duplicates = None
    assert segment.packed is not None
    return items, segment


def searching(segment, items, n, options=OPTIONS, **costs):
    """Return a function that searches a segment with the first n items as queries.

    The planner uses the values in ``costs`` instead of those of the cost model.
    """
    queries, request = items.take(slice(0, n)), scan.SegmentRequest(K, no_exclusions(n))

    def search():
        with cost_model.costs_replaced(**costs):
            scan.search_segment(segment, queries, request, options)

    return search


def show(title, header, rows):
    print(f"\n{title}\n")
    print_table("r" * len(header), header, rows)


def packing_against_scoring(d):
    """Print the times of three methods: score all pairs, multiply unpacked rows, pack the items."""
    n_items = 12_800_000 // d
    items, _ = encoded(n_items, d)
    numbers = np.arange(n_items)
    # Each of these settings makes the planner choose one method, whatever the number of queries is.
    never = {"min_queries_unpacked": 1, "max_queries_unpacked": 0}
    always = {"min_queries_unpacked": 1, "max_queries_unpacked": 10**6, "min_work_unpacked": 0}
    costs_by_method = (
        never | {"scores_per_packed_row": 10**6},
        always | {"scores_per_packed_row": 0},
        never | {"scores_per_packed_row": 0},
    )
    table = []
    for n in (2, 4, 10, 20, 40, 80, 150, 300):
        queries = items.take(slice(0, n))
        request = scan.SegmentRequest(K, no_exclusions(n))

        def search(costs, queries=queries, request=request):
            with cost_model.costs_replaced(**costs):
                scan.search_segment(Segment("cosine", items, numbers), queries, request, OPTIONS)

        table.append((n, *(milliseconds(partial(search, costs)) for costs in costs_by_method)))
    title = f"scores_per_packed_row, queries_unpacked: {n_items:,} x {d}, ms"
    show(title, ("queries", "score all pairs", "multiply unpacked rows", "pack and search"), table)


def few_queries(n_items):
    """Print the times of searches of packed items for various numbers of queries.

    With two threads and up to 32 queries, each thread searches a part of the items for all queries.
    With more queries, each thread searches all items for a part of the queries.
    """
    items, segment = encoded(n_items, 128)
    counts = 1, 16, 48, 64, 65, 96, 128
    times = {n: milliseconds(searching(segment, items, n)) for n in counts}
    table = ((n, ms, ms / n) for n, ms in times.items())
    show(f"max_queries_sharing_rows: {n_items:,} x 128", ("queries", "ms", "ms a query"), table)


def threads_of_few_queries():
    """Print the times of few queries on one thread, and on two threads that share the items."""
    table = []
    for n_items, n in ((4_000, 1), (8_000, 1), (16_000, 1), (32_000, 1), (4_000, 16), (16_000, 16)):
        items, segment = encoded(n_items, 128)
        settings = (OPTIONS._replace(n_threads=m) for m in (1, 2))
        times = [
            milliseconds(searching(segment, items, n, options, min_bytes_per_thread=1))
            for options in settings
        ]
        table.append((f"{n_items:,}", n, *(1000 * ms for ms in times)))
    show("min_bytes_per_thread: rows of 128 columns, us", ("rows", "queries", "one", "two"), table)


def panels_of_a_run():
    items, segment = encoded(1_000_000, 128)
    table = (
        (n, milliseconds(searching(segment, items, 64, max_panels_per_range=n)))
        for n in (512, 2048, 8192, 32768)
    )
    title = "max_panels_per_range: 64 queries of 1,000,000 x 128"
    show(title, ("panels of a range", "ms"), table)


def duplicates():
    """Print the times of two kinds of self-joins, for rows that have copies.

    The first kind of self-join makes one search for all copies of a row. The second kind makes a
    separate search for each copy.
    """
    table = []
    for copies in (1, 2, 3, 5, 20):
        rows = np.repeat(gaussian(20_000 // copies, 64), copies, axis=0)
        join = partial(fastcos.top_k, rows, k=K)
        # To make the second search handle the copies one by one, a pair of rows is excluded.
        excluded = sp.csr_array(([1.0], ([0], [1])), shape=(len(rows), len(rows)))
        table.append((copies, milliseconds(join), milliseconds(partial(join, exclude=excluded))))
    header = ("copies of each row", "top_k, ms", "one by one, ms")
    show("min_average_copies: self-join 20,000 x 64", header, table)


def extra_candidates():
    """Print the share of queries that need only their first list of candidates."""
    X, extras, table = gaussian(20_000, 64), (0, 6, 14, 30, 62), []
    for name in ("mutual_proximity", "recos", "norm_angle_distance"):
        measure = get_measure(name).fit(X)
        kind, Q = measure.metric_type, X[:1000]
        items = encoded_rows.encode_rows(measure.encode_items(X), measure.item_bias(X), None, kind)
        encoded_queries = encoded_rows.encode_rows(measure.encode_queries(Q), None, None, kind)
        segment = Segment(kind, items, np.arange(len(X)))
        precomputed, shares = measure.precompute(X), []
        for extra in extras:
            listed, raw = scan.nearest(
                encoded_queries, segment, K + extra, OPTIONS, exclude_self=True
            )
            exact = -np.sort(-measure.rescore(Q, precomputed, listed), axis=1)[:, K - 1]
            shares.append(float((exact > measure.upper_bound(Q, raw[:, -1])).mean()))
        table.append((name, *shares))
    title = "extra_candidates: share of queries done after the first list, 20,000 x 64, k = 10"
    show(title, ("measure", *(f"{extra} extra" for extra in extras)), table)


def clustered(n, d, seed=1):
    """Return rows that resemble text embeddings: 200 clusters, a mean and a decaying spectrum."""
    rng = np.random.default_rng(seed)
    scales = 1 / np.sqrt(np.arange(1, d + 1))
    rotation = np.linalg.qr(rng.standard_normal((d, d)))[0]
    centres = 0.7 * rng.standard_normal((200, d)) * scales
    rows = centres[rng.integers(0, 200, n)] + 0.7 * rng.standard_normal((n, d)) * scales
    return ((rows + 0.15 * rng.standard_normal(d)) @ rotation).astype(np.float32)


def without_and_with_projection(files):
    """Print the times of an index without and with the projection, and check for equal answers."""
    shapes = (60_000, 768), (30_000, 1536), (30_000, 384)
    sets = {f"clustered {n:,} x {d}": partial(clustered, n + 1000, d) for n, d in shapes} | {
        "clustered 60,000 x 768, queries of another kind":
            lambda: np.concatenate([clustered(1000, 768, seed=2), clustered(60_000, 768)]),
        "independent columns 30,000 x 384": partial(gaussian, 31_000, 384),
    } | {file: partial(np.load, file) for file in files}  # fmt: skip

    def fitted(forced):
        with cost_model.costs_replaced(projected_columns=forced):
            index = fastcos.SimilarityIndex().fit(items)
            for part in index._state.parts:
                part.segment.wait_for_projection()
        return index

    table = []
    for name, make in sets.items():
        queries, items = np.split(make().astype(np.float32, copy=False), [1000])
        fitted(None)  # compiles the kernels
        plain, index, cells = fitted(0), fitted(None), []
        fits = [seconds(partial(fitted, forced)) for forced in (0, None)]
        for n, k in PROJECTION_CASES:
            searches = [partial(index.search, queries[:n], k) for index in (plain, index)]
            assert np.array_equal(*(search().indices for search in searches))
            times = 1e3 * np.median(in_turns(*searches, turns=9 if n > 1 else 180), axis=0)
            cells.append("{:.2f}, {:.2f}".format(*times))
        axes = 4 * index._state.parts[0].segment.packed_forms[0].arrays.projection.words
        table.append((name, axes, f"{fits[0]:.2f} s, {fits[1]:.2f} s", *cells))
    header = (f"{n:,} queries, k = {k}" for n, k in PROJECTION_CASES)
    show("Without and with prefixes, ms", ("rows", "axes", "fit", *header), table)


def self_joins():
    """Print the times of self-joins by three methods.

    The first method multiplies each pair of rows once. The second method and the third method
    multiply each pair twice, once for each row of the pair. The third method also uses a projection
    if it helps.
    """
    once = {"min_columns_of_join": 1, "min_sample_stride_of_join": 1, "projected_columns": 0}
    once["min_seconds_per_joined_neighbor"] = 0.0
    twice = {"min_columns_of_join": 10**6, "projected_columns": 0}
    projected = {"min_columns_of_join": 10**6, "min_work_to_project": 0}
    sets = [("independent", gaussian, n, d) for n, d in ((4_000, 64), (10_000, 128))]
    sets += [("independent", gaussian, n, d) for n, d in ((30_000, 384), (20_000, 1536))]
    sets += [("clustered", clustered, n, d) for n, d in ((30_000, 384), (40_000, 768))]
    table = []
    for kind, make, n, d in sets:
        rows = make(n, d)
        for k in (10, 100):

            def join(costs, rows=rows, k=k):
                with cost_model.costs_replaced(**costs):
                    fastcos.top_k(rows, k=k)

            times = in_turns(*(partial(join, costs) for costs in (once, twice, projected)))
            ratio = np.median(times[:, 1] / times[:, 0])
            table.append((f"{n:,} x {d}, {kind}", k, *(1e3 * np.median(times, axis=0)), ratio))
    title = f"self-joins ({config.isa()}), ms"
    projected_header = "each pair twice, with a projection if it helps"
    methods = ("each pair once", "each pair twice", projected_header)
    header = ("rows", "k", *methods, "twice / once")
    show(title, header, table)


def candidates_of_self_joins():
    """Print the times of self-joins whose buffers have space for 2, 4, 8 or 16 k + 64 candidates.

    The times are relative to the time with space for 4 k + 64 candidates.
    """
    sizes, table = (2, 4, 8, 16), []
    for kind, make in (("independent", gaussian), ("clustered", clustered)):
        rows = make(30_000, 384)

        def join(size, rows=rows):
            with cost_model.costs_replaced(candidates_per_joined_neighbor=size):
                fastcos.top_k(rows, k=100)

        times = in_turns(*(partial(join, size) for size in sizes))
        table.append((kind, *np.median(times / times[:, 1:2], axis=0)))
    title = f"candidates_per_joined_neighbor: self-join 30,000 x 384, k = 100 ({config.isa()})"
    show(title, ("rows", *(f"{size} k + 64" for size in sizes)), table)


if __name__ == "__main__":
    for columns in (64, 128, 768, 1536):
        packing_against_scoring(columns)
    for n in (8_000, 200_000):
        few_queries(n)
    threads_of_few_queries()
    panels_of_a_run()
    duplicates()
    extra_candidates()
    self_joins()
    candidates_of_self_joins()
    without_and_with_projection(sys.argv[1:])
