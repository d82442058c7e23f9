"""Compare the estimates of `explain` with measured times: `python -m bench.lab.explain`.

The script prints a table of twenty searches, from one query among 1,000 rows to a self-join. Some
searches use random rows, and other searches use rows that resemble text embeddings.
docs/dev/costs.md contains a copy of the table. The estimates use the rates in the fields of
``fastcos.search.cost_model.CostModel``. The script takes a minute on two cores.
"""

import sys
from functools import partial

import numpy as np

import fastcos
from bench.data import gaussian
from bench.lab.markdown import print_table
from bench.lab.search_plan import clustered
from bench.lab.timing import in_turns

# The number of timed calls of a long search, and of a short search.
TURNS, SHORT_TURNS = 7, 200


def searches_of(index, rows, n, k, allowed=None):
    """Return the explanation of a search of an index, and a function that runs the search."""
    explained = index.explain(n, k, allowed=allowed)
    return explained, partial(index.search, rows[:n].copy(), k, allowed=allowed)


def cases():
    """Yield for each case its name, the explanation, and a function that runs the search."""
    for make, shapes in ((gaussian, ((1_000, 64), (10_000, 384), (200_000, 128))),):
        for n, d in shapes:
            rows = make(n, d)
            index = fastcos.SimilarityIndex().fit(rows)
            yield f"index {n:,} x {d}, 1 query", *searches_of(index, rows, 1, 10)
            if n == 1_000:
                yield f"index {n:,} x {d}, 16 queries", *searches_of(index, rows, 16, 10)
            if n == 10_000:
                yield f"index {n:,} x {d}, 1 query, k = 1,000", *searches_of(index, rows, 1, 1000)
                yield f"index {n:,} x {d}, 1 query, k = 5,000", *searches_of(index, rows, 1, 5000)
            if n == 200_000:
                yield f"index {n:,} x {d}, 64 queries", *searches_of(index, rows, 64, 10)
                yield f"index {n:,} x {d}, 1,000 queries", *searches_of(index, rows, 1000, 10)
    rows = clustered(60_000, 768)
    index = fastcos.SimilarityIndex().fit(rows)
    index.search(rows[:1], 10)
    index._state.parts[0].segment.wait_for_projection()
    half = np.arange(len(rows)) % 2 == 0
    name = "index of text 60,000 x 768"
    for n, k in ((1, 10), (16, 10), (1000, 10), (1000, 100)):
        yield f"{name}, {n:,} queries, k = {k}", *searches_of(index, rows, n, k)
    yield f"{name}, 1 query, half of the rows allowed", *searches_of(index, rows, 1, 10, half)
    yield f"{name}, 1 query, 100 rows allowed", *searches_of(index, rows, 1, 10, np.arange(100))
    rows = gaussian(60_000, 384)
    for n in (1, 16, 200):
        explained = fastcos.explain_top_k(n, len(rows), 384)
        call = partial(fastcos.top_k, rows[:n].copy(), rows, exclude_self=False)
        yield f"top_k 60,000 x 384, {n} queries", explained, call
    for n, d in ((2_000, 64), (10_000, 128), (20_000, 384)):
        rows = gaussian(n, d)
        yield (
            f"self-join {n:,} x {d}",
            fastcos.explain_top_k(n, n, d, is_self_join=True),
            partial(fastcos.top_k, rows),
        )


def main():
    rows, within = [], 0
    for name, explained, call in cases():
        measured = float(
            np.median(in_turns(call, turns=TURNS if explained.seconds > 1e-3 else SHORT_TURNS))
        )
        ratio = explained.seconds / measured
        within += 0.5 <= ratio <= 2.0
        rows.append((name, explained.method, 1e3 * explained.seconds, 1e3 * measured, ratio))
    print_table("llrrr", ("search", "method", "estimate, ms", "measured, ms", "ratio"), rows)
    print(f"\n{within} of {len(rows)} estimates are within a factor of 2 of the measured time.")
    return 0 if within >= 0.85 * len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
