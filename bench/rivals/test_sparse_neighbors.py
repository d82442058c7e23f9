"""Item-item cosine top-k against sparse_dot_topn and implicit: exact answers, all threads.

`pytest bench/rivals/test_sparse_neighbors.py`. The rivals are handed normalised, transposed
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


def agree(theirs, ours):
    return np.allclose(theirs[1], ours[1], atol=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_ratio(case, matrix, tmp_path, capsys):
    job = {"task": "items", "k": CASES[case], "matrix": matrix}
    rows = sparse_ratios.compared(case, job, RIVALS, tmp_path, agree)
    sparse_ratios.kept(rows, capsys)
