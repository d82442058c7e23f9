"""Exact item-item cosine top-k: `pytest -n 0 bench/competitors/test_sparse_neighbors.py`.

Against sparse_dot_topn and implicit on all threads. The competitors get normalised, transposed
matrices, untimed; fastcos starts from the transpose of the interactions.
"""

import numpy as np
import pytest

from bench.competitors import harness

# case: k
CASES = {
    "decks top-10 of 17,192 items": 10,
    "decks top-100 of 17,192 items": 100,
    "zipf_slice top-10 of 27,000 items": 10,
    "zipf_slice top-100 of 27,000 items": 100,
}
# the faster type of sparse_dot_topn depends on k
COMPETITORS = [
    harness.Competitor("sparse_dot_topn", 3.0, {"dtype": dtype}, label=f"sparse_dot_topn {dtype}")
    for dtype in ("float32", "float64")
] + [harness.Competitor("implicit", 3.0)]


def agreement(matrix):
    """Return a function that compares k-th best scores: to 1e-5, plus rounding in float32.

    sparse_dot_topn sums float32 products in float32. The cosine of an item with n entries is a sum
    of at most n non-negative products of two rounded factors. Its error is at most
    g = (n + 2) u / (1 - (n + 2) u) times the cosine (Higham 2002, Accuracy and Stability of
    Numerical Algorithms, section 3.1), and the k-th best score moves no further than a score.
    """
    _, indices, _, shape = (np.load(file) for file in matrix)
    terms = np.bincount(indices, minlength=shape[1]) + 2
    roundings = terms * np.finfo(np.float32).eps / 2

    def agree(theirs, ours, setting):
        is_rounded = setting.get("dtype") == "float32"
        bound = 1e-5 + (roundings / (1 - roundings) if is_rounded else 0)
        return bool((np.abs(theirs[1] - ours[1]) <= bound).all())

    return agree


@pytest.mark.parametrize("case", CASES)
def test_sparse_neighbors_ratio(case, matrix, tmp_path, capsys):
    job = {"task": "items", "k": CASES[case], "matrix": matrix, "width": None, "seconds": 1.0}
    agree = agreement(matrix)
    rows = harness.compare("sparse_worker.py", case, job, COMPETITORS, tmp_path, agree)
    harness.report(rows, capsys)
