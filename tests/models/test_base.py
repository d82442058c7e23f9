"""Recommendations are the items with the largest scores, except items that the user has seen."""

import numpy as np
import pytest
import scipy.sparse as sp

from fastcos import CosineMF, LinearMF

# This many copies of the users fill more than one block, which holds 65,536 users.
COPIES = 800


@pytest.fixture(params=["csr", "dense"])
def X(request):
    rng = np.random.default_rng(0)
    X = sp.random_array((90, 40), density=0.2, rng=rng, format="csr")
    return X if request.param == "csr" else X.toarray()


def expected(model, X, k, exclude_seen):
    users, items = model.scoring_embeddings(X)
    scores = users.astype(np.float64) @ items.T.astype(np.float64)
    if exclude_seen:
        scores[(X.toarray() if sp.issparse(X) else X) != 0] = -np.inf
    return np.argsort(-scores, axis=1)[:, :k], -np.sort(-scores, axis=1)[:, :k]


def assert_best_scores(model, X, k):
    for exclude_seen in (True, False):
        indices, scores = expected(model, X, k, exclude_seen)
        recommendations = model.recommend(X, k, exclude_seen=exclude_seen)
        np.testing.assert_array_equal(recommendations.indices, indices)
        np.testing.assert_allclose(recommendations.scores, scores, rtol=1e-5)


@pytest.mark.parametrize("model", [LinearMF(2), CosineMF(2)])
def test_rows_with_nan_are_refused_in_one_line(model):
    X = np.ones((6, 4))
    X[2, 1] = np.nan
    with pytest.raises(ValueError, match=r"^X must be finite, got NaN or infinity in row 2[^\n]*$"):
        model.fit(X)


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("objective", ["dropout", "weight_decay"])
def test_linear_mf_recommends_the_largest_scores(X, objective, center):
    model = LinearMF(5, objective=objective, regularization=0.1, center=center).fit(X)
    predicted = model.user_embeddings(X) @ model.item_embeddings().T
    users, items = model.scoring_embeddings(X)
    np.testing.assert_array_equal(users @ items.T, predicted)
    assert_best_scores(model, X, 7)


@pytest.mark.slow
@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_cosine_mf_recommends_the_largest_scores(X, similarity):
    model = CosineMF(5, similarity=similarity, max_iter=2).fit(X)
    predicted = model.user_embeddings(X) @ model.components_ / 0.25 + model.item_bias_
    users, items = model.scoring_embeddings(X)
    np.testing.assert_allclose(users @ items.T, predicted, atol=1e-4)
    assert_best_scores(model, X, 7)


def test_recommend_is_independent_of_blocks_of_users():
    X = sp.random_array((90, 40), density=0.2, rng=np.random.default_rng(0), format="csr")
    model = LinearMF(5, regularization=0.1).fit(X)
    recommendations = model.recommend(X, 3)
    calls = []
    many = model.recommend(
        sp.vstack([X] * COPIES, format="csr"), 3, progress=lambda *call: calls.append(call)
    )
    np.testing.assert_array_equal(many.indices, np.tile(recommendations.indices, (COPIES, 1)))
    np.testing.assert_array_equal(many.scores, np.tile(recommendations.scores, (COPIES, 1)))
    assert calls == sorted(calls)
    assert calls[-1] == (90 * COPIES, 90 * COPIES)


@pytest.mark.parametrize(
    "model",
    [LinearMF(3), pytest.param(CosineMF(3, max_iter=1), marks=pytest.mark.slow)],
    ids=["linear", "cosine"],
)
def test_recommend_takes_data_frames(model):
    pandas = pytest.importorskip("pandas")
    X = np.random.default_rng(0).poisson(1.0, (30, 8)).astype(np.float64)
    frame = pandas.DataFrame(X, columns=[f"item {j}" for j in range(8)])
    recommendations = model.fit(frame).recommend(frame, 2)  # no warning about feature names
    np.testing.assert_array_equal(recommendations.indices, model.fit(X).recommend(X, 2).indices)


def test_recommend_pads_users_with_few_unseen_items(X):
    X = sp.csr_array(X).toarray()
    X[3] = 1
    X[3, 8] = 0
    model = LinearMF(4, regularization=0.1).fit(X)
    recommendations = model.recommend(X, 3)
    assert recommendations.indices[3].tolist() == [8, -1, -1]
    assert np.isneginf(recommendations.scores[3, 1:]).all()


def test_recommend_refuses_more_items_than_exist(X):
    model = LinearMF(4, regularization=0.1).fit(X)
    with pytest.raises(ValueError, match=r"k must be .* from 1 to 40, got 41"):
        model.recommend(X, 41)
