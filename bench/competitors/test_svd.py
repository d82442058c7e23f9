"""Truncated SVD at equal residual: `pytest -n 0 bench/competitors/test_svd.py`. Takes an hour.

A competitor's setting is the fastest that reaches the residual, with two core types of its BLAS. An
answer is wrong if a triplet is above the residual, computed by SciPy in float64. The first SVD call
of every library is not timed: fastcos compiles in it.
"""

import pytest

from bench.competitors.harness import Competitor, compare, report

SEVEN = {"n_iter": 7, "n_oversamples": 64}
NINE = {"n_iter": 9, "n_oversamples": 64}
ARPACK = {"tol": 1e-3}
# case: k, residual, competitors
CASES = {
    "decks k = 128 to 1e-2": (
        128, 1e-2,
        [
            Competitor("scikit_learn", 8.0, SEVEN, label="scikit-learn"),
            Competitor("scikit_learn", 8.0, SEVEN, "SkylakeX", label="scikit-learn"),
        ],
    ),
    "decks k = 128 to 1e-2, others": (
        128, 1e-2,
        [
            Competitor("fbpca", None, SEVEN),
            Competitor("torch", None, SEVEN, label="torch.svd_lowrank"),
            Competitor("dask", None, SEVEN, label="dask svd_compressed"),
        ],
    ),
    "decks k = 128 to 1e-4": (
        128, 1e-4,
        [
            Competitor("arpack", 3.0, ARPACK, label="svds"),
            Competitor("arpack", 3.0, ARPACK, "SkylakeX", label="svds"),
        ],
    ),
    "zipf k = 64 to 1e-2": (
        64, 1e-2, [Competitor("scikit_learn", 5.0, NINE, label="scikit-learn")]
    ),
    "zipf k = 64 to 1e-4": (64, 1e-4, [Competitor("arpack", 3.0, ARPACK, label="svds")]),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_svd_ratio(case, matrix, tmp_path, capsys):
    k, residual, competitors = CASES[case]

    def agree(theirs, ours, setting):
        return max(theirs[0]["residual"], ours[0]["residual"]) <= residual

    job = {"task": "svd", "k": k, "matrix": matrix, "width": None, "seconds": 1.0}
    rows = compare(
        "sparse_worker.py", case, job, competitors, tmp_path, agree, setting={"tol": residual}
    )
    report(rows, capsys)
