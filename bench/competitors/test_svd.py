"""Truncated SVD at equal residual: `pytest bench/competitors/test_svd.py`. Takes an hour.

A rival's setting is the fastest that reaches the residual, at two core types of its BLAS; a triplet
above the residual, computed by SciPy in float64, makes the answer wrong. No party's first
call is timed: ours compiles in it.
"""

import pytest
import sparse_ratios

SEVEN = {"n_iter": 7, "n_oversamples": 64}
NINE = {"n_iter": 9, "n_oversamples": 64}
OPTIONS = {"tol": 1e-3}
NONE = (None, None)
# case: k, residual, rivals
CASES = {
    "decks k = 128 to 1e-2": (
        128, 1e-2,
        [
            ("scikit-learn", "scikit_learn", SEVEN, "", 8.0, 20.0),
            ("scikit-learn", "scikit_learn", SEVEN, "SkylakeX", 8.0, 20.0),
        ],
    ),
    "decks k = 128 to 1e-2, others": (
        128, 1e-2,
        [
            ("fbpca", "fbpca", SEVEN, "", *NONE),
            ("torch.svd_lowrank", "torch", SEVEN, "", *NONE),
            ("dask svd_compressed", "dask", SEVEN, "", *NONE),
        ],
    ),
    "decks k = 128 to 1e-4": (
        128, 1e-4,
        [
            ("svds", "arpack", OPTIONS, "", 3.0, 8.0),
            ("svds", "arpack", OPTIONS, "SkylakeX", 3.0, 8.0),
        ],
    ),
    "zipf k = 64 to 1e-2": (64, 1e-2, [("scikit-learn", "scikit_learn", NINE, "", 5.0, 15.0)]),
    "zipf k = 64 to 1e-4": (64, 1e-4, [("svds", "arpack", OPTIONS, "", 3.0, 8.0)]),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_ratio(case, matrix, tmp_path, capsys):
    k, residual, rivals = CASES[case]

    def agree(theirs, ours, setting):
        return max(theirs[0]["residual"], ours[0]["residual"]) <= residual

    job = {"task": "svd", "k": k, "matrix": matrix}
    setting = {"tol": residual}
    rows = sparse_ratios.compared(case, job, rivals, tmp_path, agree, our_setting=setting)
    sparse_ratios.kept(rows, capsys)
