"""The number of wrong neighbours that each library returns for a set of hard rows.

The numbers show how exact a search in float32 is. The set has five families of rows, in which
rounding errors can change the order of the neighbours. Each family has 2,000 queries among 3,000
items with k = 100, so there are a million neighbours in total. A neighbour is wrong if its cosine
in float64 is smaller than the k-th best cosine, and the difference is larger than the rounding
error of float64. Neighbours with equal scores may therefore be listed in any order. Searches of the
hard set are not timed.
"""

import tempfile

import numpy as np

from bench import check
from bench.compare.worker import Failed, NotInstalledError, Worker, save_arguments

QUERIES, ITEMS, COLUMNS, K = 2_000, 3_000, 48, 100


def near_ties(rng, n):
    """Return rows whose cosines differ by less than 1e-7, the resolution of float32."""
    return 1 + 1e-4 * rng.standard_normal((n, COLUMNS))


def large_and_small(rng, n):
    """Return rows with norms from 6e-18 to 9e18; float32 can only just represent their squares."""
    return rng.standard_normal((n, COLUMNS)) * 10.0 ** rng.integers(-18, 19, (n, 1))


def common_mean(rng, n):
    """Return rows with a common direction that is a hundred times as large as their differences."""
    return 100 * np.ones(COLUMNS) + rng.standard_normal((n, COLUMNS))


def near_duplicates(rng, n):
    """Return inexact copies of fifty rows: each entry differs from its original by about 1e-6."""
    centres = np.random.default_rng(0).standard_normal((50, COLUMNS))
    return centres[rng.integers(0, 50, n)] + 1e-6 * rng.standard_normal((n, COLUMNS))


def one_large_column(rng, n):
    """Return rows whose first column is 10,000 times as large as the others, and has both signs."""
    rows = rng.standard_normal((n, COLUMNS))
    rows[:, 0] *= 1e4
    return rows


FAMILIES = (near_ties, large_and_small, common_mean, near_duplicates, one_large_column)


def wrong_neighbors(name, threads):
    """Return how many of a library's million neighbours are wrong, in total and in each family."""
    wrong = {}
    worker = Worker(name, threads)
    try:
        for seed, family in enumerate(FAMILIES):
            rng = np.random.default_rng(seed)
            queries, items = (family(rng, n).astype(np.float32) for n in (QUERIES, ITEMS))
            with tempfile.TemporaryDirectory() as folder:
                save_arguments(folder, {"items": items, "queries": queries, "k": K})
                indices = worker.prepare("search", folder).astype(np.int64)
            tolerance = (COLUMNS + 6) * 2.0**-52
            counts = check.wrong_neighbors(indices, queries, items, tolerance=tolerance)
            wrong[family.__name__] = int(counts.sum())
    except (Failed, NotInstalledError) as error:
        return {"absent": str(error)}
    finally:
        worker.close()
    return {"wrong": sum(wrong.values()), "of": QUERIES * K * len(FAMILIES), "by_family": wrong}
