"""Item-item cosine top-k against sparse_dot_topn and implicit: exact answers, all threads.

`pytest bench/competitors/test_sparse_neighbors.py`. The rivals are handed normalised, transposed
matrices, and that is not timed; ours starts from the transpose of the interactions.
"""

import numpy as np
import pytest
import sparse_ratios

CASES = {
    "decks top-10 of 17,192 items": 10,
    "decks top-100 of 17,192 items": 100,
    "zipf_slice top-10 of 27,000 items": 10,
    "zipf_slice top-100 of 27,000 items": 100,
}
# sparse_dot_topn's faster type depends on k
RIVALS = [
    ("sparse_dot_topn float32", "sparse_dot_topn", {"dtype": "float32"}, "", 3.0, 8.0),
    ("sparse_dot_topn float64", "sparse_dot_topn", {"dtype": "float64"}, "", 3.0, 8.0),
    ("implicit", "implicit", {}, "", 3.0, 8.0),
]


def agreement(matrix):
    """How far the k-th best scores of both may lie apart: 1e-5, or the rounding errors of float32.

    sparse_dot_topn adds float32 products in float32. Of an item with n entries a cosine is a sum of
    at most n products of two rounded factors, of which none is negative: the error is at most
    g = (n + 2) u / (1 - (n + 2) u) times the cosine (Higham 2002, Accuracy and Stability of
    Numerical Algorithms, section 3.1), and the k-th best score moves no further than a score. Seen:
    2.6e-4 where g is 1.2e-3.
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
def test_ratio(case, matrix, tmp_path, capsys):
    job = {"task": "items", "k": CASES[case], "matrix": matrix}
    rows = sparse_ratios.compared(case, job, RIVALS, tmp_path, agreement(matrix))
    sparse_ratios.kept(rows, capsys)
