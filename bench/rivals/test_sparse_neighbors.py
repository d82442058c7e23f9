"""Item-item cosine top-k against sparse_dot_topn and implicit: exact answers, all threads.

`pytest bench/rivals/test_sparse_neighbors.py`. The rivals are handed normalised, transposed
matrices, and that is not timed; ours starts from the transpose of the interactions.
"""

import numpy as np
import pytest
import scipy.sparse as sp

import fastcos
from bench import inputs


@pytest.fixture(params=["decks", "zipf"], scope="module")
def items(request):
    X = request.getfixturevalue(request.param)
    return X.T if request.param == "decks" else inputs.zipf_items(X)


def sparse_dot_topn(items, k):
    library = pytest.importorskip("sparse_dot_topn")
    rows = sp.csr_matrix(items.tocsr())
    lengths = np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1)).ravel())
    rows = sp.csr_matrix(sp.diags_array(1 / np.where(lengths > 0, lengths, 1)) @ rows)
    columns = sp.csr_matrix(rows.T.tocsr())
    # itself is the best one
    return lambda: library.sp_matmul_topn(rows, columns, top_n=k + 1, n_threads=-1, sort=True)


def implicit(items, k):
    nearest = pytest.importorskip("implicit.nearest_neighbours")
    users = sp.csr_matrix(items.T.tocsr().astype(np.float64))
    model = nearest.CosineRecommender(K=k + 1)
    return lambda: (model.fit(users, show_progress=False), model.similarity)[1]


def ours(items, k):
    return lambda: fastcos.top_k(items, k=k)


def kth_scores(answer, k):
    """The k-th best score besides itself, per row."""
    if isinstance(answer, fastcos.Neighbors):
        return answer.scores[:, -1]
    rows = [answer.data[a:b] for a, b in zip(answer.indptr, answer.indptr[1:], strict=False)]
    return np.array([np.sort(row)[::-1][k] if len(row) > k else 0.0 for row in rows])


@pytest.mark.parametrize("k", [10, 100])
@pytest.mark.parametrize("library", [sparse_dot_topn, implicit, ours])
def test_top_k(benchmark, items, k, library):
    benchmark.group = f"cosine top-{k} of {items.shape[0]} items x {items.shape[1]} users"
    call = library(items, k)
    answer = benchmark.pedantic(call, rounds=2, warmup_rounds=1)
    truth = fastcos.top_k(items, k=k).scores[:, -1]
    np.testing.assert_allclose(kth_scores(answer, k), truth, atol=1e-5)
