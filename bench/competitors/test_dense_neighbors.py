"""Exact dense top-k: `pytest -n 0 bench/competitors/test_dense_neighbors.py`.

Each competitor runs with the fastest of CORE_TYPES, found in a trial on up to 2,000 of the queries.
The scores of all answers are compared; those of fastcos with float64 too.
"""

import statistics

import numpy as np
import pytest

from bench import inputs
from bench.competitors import harness

WORKER = "dense_worker.py"
# values of OPENBLAS_CORETYPE; "" and names that OpenBLAS does not know leave the choice to it
CORE_TYPES = ("", "SkylakeX", "SapphireRapids", "Haswell")
# libraries with a BLAS of their own
USE_BLAS = {"faiss", "numpy", "sklearn"}
# usearch scores pair by pair: minutes for a self-join of many rows
SLOW = {"usearch"}

# case: k, measure, ours, {library: target}
CASES = {
    "gaussian 40,000 x 128, k = 10": (10, "cosine", "fastcos", {"faiss": 3.0}),
    "gaussian 40,000 x 128, k = 100": (100, "cosine", "fastcos", {"faiss": 2.5}),
    "decks 60,000 x 128, k = 10": (10, "cosine", "fastcos", {"faiss": 2.5}),
    "decks 60,000 x 128, k = 100": (100, "cosine", "fastcos", {"faiss": 2.5}),
    "10,000 queries x 200,000 x 64, k = 10": (10, "cosine", "fastcos", {"faiss": 2.0}),
    "cards 17,192 x 128, k = 10": (10, "cosine", "fastcos", {"faiss": 2.0}),
    "glove 8,347 x 50, k = 10": (10, "cosine", "fastcos", {"faiss": 2.0}),
    "1 query x 1,000,000 x 128, k = 10": (
        10, "cosine", "fastcos_index", {"faiss": 2.5, "usearch": 2.5}
    ),
    "euclidean 20,000 x 64, k = 10": (
        10, "neg_euclidean", "fastcos", {"sklearn": 4.0, "faiss": 2.0}
    ),
}  # fmt: skip
# without a target: they know the measure and answer within minutes
OTHERS = {"cosine": ("numpy", "sklearn", "chunkdot", "implicit", "usearch"), "neg_euclidean": ()}


def float32_error(d):
    """Return the largest error of a float32 cosine, whatever the order of summation.

    The product of d columns takes d roundings of 2^-24, each of the two norms d / 2 + 3.
    """
    return (2 * d + 6) * 2.0**-24


@pytest.fixture(scope="session")
def cache(request):
    return request.config.cache.mkdir("dense_inputs")


def rows_of(case, cache):
    """Return queries and items of a case; items are None for a self-join."""
    if case.startswith(("decks", "cards")):
        both = inputs.deck_embeddings(cache)
        return (None if both is None else both[case.startswith("cards")]), None
    if case.startswith("glove"):
        return inputs.glove(), None
    if case.startswith("10,000"):
        return inputs.gaussian(10_000, 64, seed=1), inputs.gaussian(200_000, 64)
    if case.startswith("1 query"):
        return inputs.gaussian(1, 128, seed=1), inputs.gaussian(1_000_000, 128)
    if case.startswith("euclidean"):
        return inputs.gaussian(20_000, 64), None
    return inputs.gaussian(40_000, 128), None


def targets_of(case):
    """Return the libraries of a case with their targets, None for no target."""
    _, measure, _, targets = CASES[case]
    libraries = dict.fromkeys(OTHERS[measure]) | targets
    large = case.startswith(("gaussian", "decks", "10,000"))
    return {name: libraries[name] for name in libraries if not (large and name in SLOW)}


def best_core_type(library, job, folder):
    """Return the fastest core type of a competitor; "" if it is not installed."""
    if library not in USE_BLAS:
        return ""
    seconds = {}
    for core_type in CORE_TYPES:
        found = harness.run(WORKER, job | {"trial": True}, library, folder, core_type=core_type)
        if found is None:
            return ""
        seconds[core_type] = statistics.median(found[0]["seconds"])
    return min(seconds, key=seconds.get)


def assert_exact(scores, queries, items, k, measure):
    """Compare the scores of some queries with float64."""
    own = items is None
    items = (queries if own else items).astype(np.float64)
    for i in np.linspace(0, len(queries) - 1, 50).astype(int):
        row = queries[i].astype(np.float64)
        if measure == "cosine":
            norms = np.linalg.norm(items, axis=1) * np.linalg.norm(row)
            truth = np.divide(items @ row, norms, out=np.zeros(len(items)), where=norms > 0)
        else:
            truth = -np.sqrt(((items - row) ** 2).sum(axis=1))
        truth = np.delete(truth, i) if own else truth
        np.testing.assert_allclose(scores[i], np.sort(truth)[::-1][:k], rtol=1e-6, atol=1e-7)


def scores_agree(theirs, ours, queries, items, measure):
    """Return whether scores differ by at most the rounding errors of float32."""
    if measure == "cosine":
        return bool(abs(theirs - ours).max() <= float32_error(queries.shape[1]))
    # x^2 + y^2 - 2xy cancels: the error is relative to the largest norm
    given = [rows for rows in (queries, items) if rows is not None]
    longest = max(float(np.linalg.norm(rows, axis=1).max()) for rows in given)
    off = abs(np.square(theirs, dtype=np.float64) - np.square(ours, dtype=np.float64)).max()
    return bool(off <= float32_error(queries.shape[1]) * (2 * longest) ** 2)


@pytest.mark.parametrize("case", CASES)
def test_dense_neighbors_ratio(case, cache, tmp_path, capsys):
    k, measure, library, _ = CASES[case]
    queries, items = rows_of(case, cache)
    if queries is None:
        pytest.skip("the data set is not installed")
    files = {"queries": queries} | ({} if items is None else {"items": items})
    for name, rows in files.items():
        np.save(tmp_path / f"{name}.npy", rows)
    job = {
        "queries": str(tmp_path / "queries.npy"),
        "items": None if items is None else str(tmp_path / "items.npy"),
        "k": k, "measure": measure, "seconds": 0.5, "trial": False,
    }  # fmt: skip
    competitors = [
        harness.Competitor(name, target, core_type=best_core_type(name, job, tmp_path))
        for name, target in targets_of(case).items()
    ]
    rows = harness.compare(
        WORKER, case, job, competitors, tmp_path, ours=library,
        agree=lambda theirs, ours, _: scores_agree(theirs[1], ours[1], queries, items, measure),
        check=lambda scores: assert_exact(scores, queries, items, k, measure),
    )  # fmt: skip
    harness.report(rows, capsys)
