"""Count wrong neighbours of dense rows, and print them as JSON.

    python -m tests.robustness.dense_exactness [CASES [SEED]]

A case is a pair of a query and k. If the k neighbours of a query are correct and in the correct
order, the cases with the same query and a smaller k are also correct. The rows come from families
on which upper bounds work badly. The number of rows is close to a multiple of a block size. The
entries are float32 or float64 numbers in either byte order, and their magnitudes are ordinary or
extreme. The entry point, the number of threads, the working memory, the instruction set and the
batches of queries are drawn at random for each call. A random half of the calls uses a projection
onto 24 axes. Another random half of the calls, which is chosen independently, divides the rows
among tasks. A random half of the self-joins multiplies each pair of rows only once, in small
blocks. The reference sorts the float64 scores of all pairs.
"""

import json
import sys
import tempfile
from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np
import scipy.sparse as sp

import fastcos
from fastcos.kernels import cpu
from fastcos.search import cost_model
from tests.oracles import dense
from tests.oracles.dense_families import FAMILIES

# The measures, and their names in the reference.
MEASURES = {"cosine": "cosine", "dot": "dot", "neg_euclidean": "euclidean"}
# The numbers of rows are close to multiples of the blocks, which have 32 to 256 rows.
ROWS = (1, 2, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 300, 511, 512, 513, 800, 1500)
# These numbers of columns are typical of embeddings, or close to whole vectors of the CPU. Other
# numbers, up to 149, are drawn at random.
WIDTHS = (1, 63, 64, 384, 1000, 1536, 3072)
NEIGHBOURS = (1, 2, 5, 10, 50, 100)
# Values of working_memory in MiB. The smallest value leads to blocks of one row, and the largest
# value leads to one block of all rows.
MEMORIES = (0.001, 0.01, 0.1, 1.0, 64.0)
# Rows are multiplied by powers of two up to these exponents.
_LARGEST_EXPONENTS = {"f": 110, "d": 400}
ENTRY_POINTS = ("top_k", "mapped top_k", "index", "changed index", "mapped index")


def draw_case(rng):
    """Return the family, its rows in random order, a measure, k, and whether it is a self-join."""
    family, n = rng.choice(FAMILIES), int(rng.choice(ROWS))
    d = int(rng.choice(WIDTHS) if rng.random() < 0.25 else rng.integers(1, 150))
    own = n > 1 and bool(rng.integers(2))
    most = n - own
    # Complete lists of neighbours are long, so they are chosen rarely: in 5 % of the cases that
    # have at most 129 rows, and in no other case. Without this rule, most cases would ask for
    # complete lists.
    complete = n <= 129 and rng.random() < 0.05
    k = most if complete else min(most, int(rng.choice(NEIGHBOURS)))
    X = family(n, d)[rng.permutation(n)].astype(rng.choice([np.float32, np.float64]))
    # float64 can just hold the squares of these magnitudes, and float32 cannot
    if rng.random() < 0.25:
        most = _LARGEST_EXPONENTS[X.dtype.char]
        scaled = np.ldexp(X, int(rng.integers(-most, most)))
        X = scaled if np.isfinite(scaled).all() else X
    if rng.random() < 0.25:
        X = X.astype(X.dtype.newbyteorder(">"))
    return family.__name__, X, str(rng.choice(list(MEASURES))), k, own


def changed_index(rng, X, measure):
    """Return an index of the rows of X that was changed several times.

    The function also returns the position of each row of X in the index, and the total number of
    positions in the index. The index was fitted, extended, and changed by remove and upsert. The
    removed items are copies of rows of X, so a search that does not skip them returns removed items
    instead of neighbours.
    """
    n = len(X)
    total = n + int(rng.integers(1, n + 2))
    numbers = np.sort(rng.choice(total, n, replace=False))
    is_late = rng.random(n) < 0.3  # These rows are inserted by upsert.
    rows = X[rng.integers(n, size=total)]
    rows[numbers[~is_late]] = X[~is_late]
    first, second = np.sort(rng.integers(1, total + 1, size=2))
    index = fastcos.SimilarityIndex(measure).fit(rows[:first])
    for part in (rows[first:second], rows[second:]):
        if len(part):
            index.add(part)
    index.remove(rng.permutation(np.setdiff1d(np.arange(total), numbers)))
    late = rng.permutation(np.flatnonzero(is_late))
    if len(late):
        index.upsert(X[late], numbers[late])
    return index, numbers, total


def in_little_memory(rng, call):
    """Call with a random working_memory, and double this memory until the call succeeds."""
    memory = float(rng.choice(MEMORIES))
    while True:
        try:
            return call(working_memory=memory).indices
        except ValueError as error:
            if "working_memory" not in str(error):
                raise
            memory *= 2


def neighbors_by(entry_point, rng, X, k, measure, own, folder):
    """Return the indices of the neighbours of all rows, found through an entry point."""
    fastcos.set_config(isa=str(rng.choice(cpu.supported_isas())))
    options = {"k": k, "n_threads": int(rng.choice([1, 2, 3, 8]))}
    items, n, total, numbers = X, len(X), len(X), np.arange(len(X))
    if entry_point.startswith("mapped"):
        np.save(folder / "rows.npy", X)
        items = np.load(folder / "rows.npy", mmap_mode="r")
    if entry_point.endswith("top_k"):
        search = partial(fastcos.top_k, measure=measure, **options)
        if own:
            return in_little_memory(rng, partial(search, items))
        search = partial(search, items=items)
    else:
        if entry_point == "changed index":
            index, numbers, total = changed_index(rng, X, measure)
        else:
            index = fastcos.SimilarityIndex(measure).fit(items)
        if items is X and rng.random() < 0.25:  # Rows in a memory map cannot be saved.
            index.save(folder / "index")
            index = fastcos.SimilarityIndex.open(folder / "index")
        search = partial(index.search, **options)
    itself = sp.csr_array((np.ones(n), (np.arange(n), numbers)), shape=(n, total))
    cut, results = int(rng.integers(n + 1)), []
    for lo, hi in ((0, cut), (cut, n)):
        if lo < hi:
            exclude = itself[lo:hi] if own else None
            results.append(in_little_memory(rng, partial(search, X[lo:hi], exclude=exclude)))
    # Map positions in the index to rows; padding and removed items become -1.
    positions = np.full(total + 1, -1)
    positions[numbers] = np.arange(n)
    return positions[np.concatenate(results)]


def count_errors(n_cases, random_state=0):
    """Count cases and wrong cases: in total, for each family, and for each entry point."""
    rng, cases, wrong = np.random.default_rng(random_state), Counter(), Counter()
    while cases["all"] < n_cases:
        n_axes = int(rng.choice([0, 24]))
        family, X, measure, k, own = draw_case(rng)
        entry_point = str(rng.choice(ENTRY_POINTS))
        truth, _ = dense.top_k(X, X, k, MEASURES[measure], exclude_self=own)
        # With these settings of the cost model, small inputs are searched in the same ways as large
        # ones.
        costs = {"projected_columns": n_axes, "min_work_to_project": 0, "min_work_unpacked": 0}
        if rng.random() < 0.5:  # also divides the rows among tasks that share thresholds
            costs |= {"cached_bytes": 0.0, "bytes_per_second": 1e3, "max_queries_sharing_rows": 0}
        if rng.random() < 0.5:
            per_block = int(rng.choice([1, 2, 5, 64]))
            costs |= {"min_panels_of_joined_block": 0, "panels_of_joined_block": per_block}
            costs |= {"min_sample_stride_of_join": 1, "min_columns_of_join": 1}
            costs |= {"min_seconds_per_joined_neighbor": 0.0}
        with cost_model.costs_replaced(**costs), tempfile.TemporaryDirectory() as folder:
            result = neighbors_by(entry_point, rng, X, k, measure, own, Path(folder))
        errors = int(np.cumsum(result != truth, axis=1).astype(bool).sum())
        for name in ("all", family, entry_point):
            cases[name] += result.size
            wrong[name] += errors
    totals = {"cases": cases.pop("all"), "wrong": wrong.pop("all")}
    return totals | {"cases_by_name": dict(cases), "wrong_by_name": dict(+wrong)}


if __name__ == "__main__":
    counts = count_errors(*map(int, sys.argv[1:] or ["1000000"]))
    print(json.dumps(counts))
    sys.exit(bool(counts["wrong"]))
