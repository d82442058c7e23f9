"""What prefixes save: python -m bench.prefixes [ROWS.npy ...], times with and without them.

Rows of seeded sets, and of files, the first 1,000 of which are the queries. The answers of both are
compared first.
"""

import argparse
import statistics
import time

import numpy as np

import fastcos
from fastcos.engine import prefixes

# queries and neighbours of the searches, and how often each is timed
CASES, TURNS = ((1, 10), (64, 10), (1000, 10), (1000, 100)), 9


def clustered(n, depth, seed=1):
    """Rows like those of a text model: 200 clusters, a common mean, a spectrum that decays."""
    rng = np.random.default_rng(seed)
    scales = 1 / np.sqrt(np.arange(1, depth + 1))
    rotation = np.linalg.qr(rng.standard_normal((depth, depth)))[0]
    centres = 0.7 * rng.standard_normal((200, depth)) * scales
    rows = centres[rng.integers(0, 200, n)] + 0.7 * rng.standard_normal((n, depth)) * scales
    return ((rows + 0.15 * rng.standard_normal(depth)) @ rotation).astype(np.float32)


def seeded_sets():
    """Names, items and queries of the sets that need no file."""
    for n, depth in ((60_000, 768), (30_000, 1536), (30_000, 384)):
        rows = clustered(n + 1000, depth)
        yield f"clustered {n:,} x {depth}", rows[1000:], rows[:1000]
    rows = clustered(60_000, 768)
    yield "clustered 60,000 x 768, queries of another kind", rows, clustered(1000, 768, 2)
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((31_000, 384), dtype=np.float32)
    yield "independent columns 30,000 x 384", rows[1000:], rows[:1000]


def fitted(items, forced):
    """Return an index, with prefixes if they are chosen, and the seconds that fit and they took."""
    prefixes.FORCED = forced
    start = time.perf_counter()
    index = fastcos.SimilarityIndex().fit(items)
    fit = time.perf_counter() - start
    for part in index._state.parts:
        part.segment.settle()
    return index, fit, time.perf_counter() - start


def compare(name, items, queries):
    """Print a row for every case."""
    fitted(items, None)  # compiles
    (plain, fit, _), (index, _, both) = fitted(items, 0), fitted(items, None)
    axes = 4 * index._state.parts[0].segment.packed_forms[0].arrays.prefix.words
    print(f"{name}: {axes or 'no'} axes; fit {1e3 * fit:.0f} ms, prefixes after {1e3 * both:.0f}")
    for n, k in CASES:
        some = np.ascontiguousarray(queries[:n])
        assert np.array_equal(plain.search(some, k).indices, index.search(some, k).indices)
        times = {False: [], True: []}
        for _ in range(TURNS if n > 1 else 20 * TURNS):
            for has_prefixes, searched in ((False, plain), (True, index)):
                start = time.perf_counter()
                searched.search(some, k)
                times[has_prefixes].append(time.perf_counter() - start)
        before, now = (1e3 * statistics.median(times[which]) for which in (False, True))
        print(f"  {n:5,} queries, k = {k:3}: {before:7.2f} -> {now:7.2f} ms, {before / now:.2f}x")


def main():
    """Compare all sets."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", metavar="ROWS.npy")
    for name, items, queries in seeded_sets():
        compare(name, items, queries)
    for file in parser.parse_args().files:
        rows = np.load(file).astype(np.float32)
        compare(file, np.ascontiguousarray(rows[1000:]), np.ascontiguousarray(rows[:1000]))


if __name__ == "__main__":
    main()
