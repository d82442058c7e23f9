"""Recommendations are the best predictions, with what was seen left out."""

import numpy as np
import pytest
import scipy.sparse as sp

from fastcos import LinearMF
from fastcos.models import recommendation


@pytest.fixture(params=["csr", "dense"])
def X(request):
    rng = np.random.default_rng(0)
    X = sp.random_array((90, 40), density=0.2, rng=rng, format="csr")
    return X if request.param == "csr" else X.toarray()


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("objective", ["dropout", "weight_decay"])
def test_recommended_items_are_the_best_unseen_predictions(X, objective, center, monkeypatch):
    monkeypatch.setattr(recommendation, "_USERS_PER_BLOCK", 25)
    model = LinearMF(5, objective=objective, regularization=0.1, center=center).fit(X)
    predicted = model.user_embeddings(X) @ model.item_embeddings().T
    for exclude_seen in (True, False):
        scores = predicted.copy()
        if exclude_seen:
            scores[(X.toarray() if sp.issparse(X) else X) != 0] = -np.inf
        found = model.recommend(X, 7, exclude_seen=exclude_seen)
        np.testing.assert_array_equal(found.indices, np.argsort(-scores, axis=1)[:, :7])
        np.testing.assert_allclose(found.scores, -np.sort(-scores, axis=1)[:, :7], rtol=1e-5)


def test_a_user_who_has_seen_nearly_everything_gets_padding(X):
    X = sp.csr_array(X).toarray()
    X[3] = 1
    X[3, 8] = 0
    model = LinearMF(4, regularization=0.1).fit(X)
    found = model.recommend(X, 3)
    assert found.indices[3].tolist() == [8, -1, -1]
    assert np.isneginf(found.scores[3, 1:]).all()


def test_progress_counts_all_users(X, monkeypatch):
    monkeypatch.setattr(recommendation, "_USERS_PER_BLOCK", 25)
    seen = []
    model = LinearMF(4, regularization=0.1).fit(X)
    model.recommend(X, 3, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (90, 90)


def test_more_items_than_there_are_is_an_error(X):
    model = LinearMF(4, regularization=0.1).fit(X)
    with pytest.raises(ValueError, match="k must be a whole number from 1 to 40, got 41"):
        model.recommend(X, 41)
