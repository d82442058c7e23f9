"""The checks of the benchmarks refuse wrong answers."""

from types import SimpleNamespace

import numpy as np
import pytest

from bench import check, data
from tests.oracles import dense


def answer(queries, items=None, k=5, measure="cosine"):
    own = items is None
    indices, scores = dense.top_k(queries, queries if own else items, k, measure, exclude_self=own)
    if measure == "euclidean":  # The oracle returns negative squared distances.
        scores = -np.sqrt(-scores)
    return SimpleNamespace(indices=indices, scores=scores)


@pytest.mark.parametrize("measure", ["cosine", "dot", "euclidean"])
def test_neighbors_accepts_the_truth_and_nothing_else(measure):
    Q, X = data.gaussian(12, 6, seed=1), data.gaussian(90, 6)
    result = answer(Q, X, measure=measure)
    check.neighbors(result, Q, X, measure=measure)
    result.indices[[3]] = result.indices[3, [1, 0, 2, 3, 4]]
    with pytest.raises(AssertionError, match="the neighbours of a sample of rows"):
        check.neighbors(result, Q, X, measure=measure)


def test_neighbors_refuses_a_wrong_score():
    X = data.gaussian(90, 6)
    result = answer(X)
    check.neighbors(result, X)
    result.scores[0, 2] *= 1 + 1e-4
    with pytest.raises(AssertionError):
        check.neighbors(result, X)


def test_neighbors_refuses_an_excluded_pair():
    Q, X = data.gaussian(12, 6, seed=1), data.gaussian(90, 6)
    result, excluded = answer(Q, X), np.zeros((12, 90), bool)
    excluded[0, result.indices[0, 0]] = True
    with pytest.raises(AssertionError):
        check.neighbors(result, Q, X, excluded=excluded)


def test_wrong_neighbors_counts_wrong_repeated_and_missing_ones():
    Q, X = data.gaussian(4, 6, seed=1), data.gaussian(90, 6)
    indices = answer(Q, X).indices
    assert check.wrong_neighbors(indices[:, ::-1], Q, X).tolist() == [0, 0, 0, 0]
    indices[1, 4] = answer(Q, X, k=6).indices[1, 5]
    indices[2, 4] = indices[2, 0]
    indices[3, 1] = -1
    assert check.wrong_neighbors(indices, Q, X).tolist() == [0, 1, 1, 1]


def test_wrong_neighbors_allows_ties_in_any_order():
    X = np.repeat(data.gaussian(10, 6), 3, axis=0)
    best = dense.top_k(X[:4], X, 3, "cosine")[0]
    others = best // 3 * 3 + (best + 1) % 3
    assert check.wrong_neighbors(others, X[:4], X).sum() == 0


def test_residuals_are_small_for_singular_triplets_only():
    X = data.interactions(60, 30, 400)
    _, s, Vt = np.linalg.svd(X.toarray().astype(float))
    assert check.residuals(X, s[:3], Vt[:3]).max() < 1e-6
    assert check.residuals(X, s[:3] * 1.1, Vt[:3]).min() > 1e-2


def test_item_neighbors_equal_the_cosines_of_columns():
    X = data.interactions(60, 30, 400)
    columns = X.toarray().T.astype(float)
    at = np.array([0, 7, 29])
    _, scores = dense.top_k(columns[at], columns, 30, "cosine")
    expected = np.sort(np.nan_to_num(scores), axis=1)[:, ::-1]
    result = check.item_neighbors(X, at, 4)
    np.testing.assert_allclose(result, expected[:, 1:5], atol=1e-12)


def test_inputs_of_large_matrices_do_not_depend_on_the_number_of_users():
    few, many = (data.many_interactions(nnz, 100, 5) for nnz in (500, 2_000))
    assert few.shape == (100, 100)
    assert (many[:100] != few).nnz == 0
    assert few.has_sorted_indices
    assert few.nnz <= 500
