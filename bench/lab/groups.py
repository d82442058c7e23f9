"""Search within groups, compared with one FAISS index per group: `python -m bench.lab.groups`.

    python -m bench.lab.groups                # both cases
    python -m bench.lab.groups tenants        # 2,000 queries, 30,000 x 384, 200 groups
    python -m bench.lab.groups join --rows 1000000 --groups 5000 --sigma 2

Every list of neighbours is checked. In the case `tenants`, the lists are compared with float64
scores by NumPy. In the case `join`, each list is compared with the list that FAISS finds for the
same row. If two lists differ, float64 scores decide which of them is right. Run the script on a
quiet machine.
"""

import argparse
import time
from collections.abc import Callable

import faiss
import numpy as np

import fastcos


def shortest(call: Callable[[], object], n: int) -> float:
    """Return the seconds of the shortest of n calls."""
    seconds = []
    for _ in range(n):
        started = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def cosines(rows: np.ndarray, query: np.ndarray) -> np.ndarray:
    """Return the float64 cosines of rows with a query."""
    wide, query = rows.astype(np.float64), query.astype(np.float64)
    return wide @ query / np.linalg.norm(wide, axis=1) / np.linalg.norm(query)


def compare_tenants() -> None:
    """Measure the time of 2,000 queries in one batch, and the time of a single query.

    Each query searches only its own group.
    """
    random = np.random.default_rng(0)
    rows = random.standard_normal((30_000, 384)).astype(np.float32)
    queries = random.standard_normal((2_000, 384)).astype(np.float32)
    tenants, query_tenants = (
        np.array([f"tenant {number}" for number in random.integers(0, 200, size)])
        for size in (len(rows), len(queries))
    )
    index = fastcos.SimilarityIndex().fit(rows, groups=tenants)
    nearest = index.search(queries, 10, groups=query_tenants).indices
    n_wrong = 0
    for query, tenant, neighbors in zip(queries, query_tenants, nearest, strict=True):
        members = np.flatnonzero(tenants == tenant)
        best = members[np.argsort(-cosines(rows[members], query), kind="stable")[:10]]
        n_wrong += not np.array_equal(best, neighbors)
    queries_of = {
        tenant: np.flatnonzero(query_tenants == tenant) for tenant in np.unique(query_tenants)
    }
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    indexes = {}
    for tenant in queries_of:
        indexes[tenant] = faiss.IndexFlatIP(384)
        indexes[tenant].add(np.ascontiguousarray(unit[tenants == tenant]))
    all_queries = shortest(lambda: index.search(queries, 10, groups=query_tenants), 7)
    one_query = shortest(lambda: index.search(queries[7], 10, groups=query_tenants[7]), 200)
    by_faiss = shortest(
        lambda: [indexes[tenant].search(queries[rows], 10) for tenant, rows in queries_of.items()],
        7,
    )
    print(f"lists that differ from NumPy: {n_wrong} of {len(queries):,}")
    print(f"one index: {len(queries):,} queries {all_queries:.4f} s, one {one_query * 1e3:.3f} ms")
    print(f"FAISS, an index per group: {len(queries):,} queries {by_faiss:.4f} s")


def compare_join(n: int, n_groups: int, sigma: float) -> None:
    """Measure the time of a self-join within groups, whose sizes are log-normal."""
    random = np.random.default_rng(1)
    weights = np.exp(sigma * random.standard_normal(n_groups))
    groups = random.choice(n_groups, n, p=weights / weights.sum())
    rows = random.standard_normal((n, 128), dtype=np.float32)
    sizes = np.bincount(groups, minlength=n_groups)
    print(f"sizes of groups: {sizes.min()} to {sizes.max():,}, median {np.median(sizes):.0f}")
    # The kernels of small groups and the kernels of larger groups are compiled before the timing.
    for first_groups in (groups[:20_000], groups[:20_000] % 20):
        fastcos.top_k(rows[:20_000], k=10, groups=first_groups)
    started = time.perf_counter()
    ours = fastcos.top_k(rows, k=10, groups=groups).indices
    seconds = time.perf_counter() - started
    started = time.perf_counter()
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    theirs = np.full((n, 11), -1)
    order, ends = np.argsort(groups, kind="stable"), np.cumsum(sizes)
    for members in np.split(order, ends[:-1]):
        if len(members):
            index = faiss.IndexFlatIP(128)
            index.add(unit[members])
            nearest = index.search(unit[members], min(11, len(members)))[1]
            theirs[members, : nearest.shape[1]] = members[nearest]
    faiss_seconds = time.perf_counter() - started
    # FAISS also finds the query row itself, so this line removes it.
    theirs[theirs == np.arange(n)[:, None]] = -1
    differing = np.flatnonzero((np.sort(theirs)[:, 1:] != np.sort(ours)).any(axis=1))
    n_wrong = 0
    for row in differing:
        candidates = np.setdiff1d(np.union1d(theirs[row], ours[row]), [-1])
        best = candidates[np.argsort(-cosines(rows[candidates], rows[row]), kind="stable")[:10]]
        n_wrong += set(best) != set(ours[row]) - {-1}
    print(f"fastcos {seconds:.2f} s, FAISS {faiss_seconds:.2f} s: {faiss_seconds / seconds:.2f}")
    print(f"lists that differ from FAISS: {len(differing)}, of which wrong by float64: {n_wrong}")


def main() -> None:
    """Run the case that the command line names, or both cases."""
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0])
    parser.add_argument("case", nargs="?", choices=("tenants", "join"))
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--groups", type=int, default=5_000)
    parser.add_argument("--sigma", type=float, default=2.0)
    arguments = parser.parse_args()
    if arguments.case != "join":
        compare_tenants()
    if arguments.case != "tenants":
        compare_join(arguments.rows, arguments.groups, arguments.sigma)


if __name__ == "__main__":
    main()
