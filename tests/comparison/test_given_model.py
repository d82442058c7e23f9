"""compare_vectors uses held-out interactions to judge a model that was trained elsewhere."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp

import fastcos
from fastcos.comparison import Candidate
from tests.oracles.metrics import ranking_scores

N_USERS, N_ITEMS, DEPTH = 700, 60, 6


@pytest.fixture(scope="module")
def data():
    """Return four fifths of some interactions, the held-out fifth, and the vectors of a model.

    The interactions depend on taste and popularity. The model is fitted only to the four fifths
    that are not held out.
    """
    random = np.random.default_rng(0)
    taste, kind = random.integers(0, 3, N_USERS), random.integers(0, 3, N_ITEMS)
    popularity = 0.7 * random.random(N_ITEMS) ** 2 + 0.05
    likes = np.where(taste[:, None] == kind, 1.0, 0.2)
    touched = random.random((N_USERS, N_ITEMS)) < likes * popularity
    is_held = random.random(touched.shape) < 0.2
    seen, held = (sp.csr_array((touched & one).astype(float)) for one in (~is_held, is_held))
    model = fastcos.LinearMF(DEPTH, regularization=20.0).fit(seen)
    return seen, held, model.item_embeddings(), model.user_embeddings(seen)


def ndcg_by_scores(scores, seen, held):
    """Recommend the unseen items with the best scores (n, p); return mean NDCG@20 and recall@20."""
    masked = np.where(seen.toarray() != 0, -np.inf, scores)
    results = []
    for line, own, row in zip(masked, seen.toarray() != 0, held.toarray(), strict=True):
        relevant = {int(i): 1.0 for i in np.flatnonzero(row)}
        if relevant:
            order = np.argsort(-line, kind="stable")[:20]
            results.append(ranking_scores([i if not own[i] else -1 for i in order], relevant, 20))
    return [np.mean([one[name] for one in results]) for name in ("ndcg_at_k", "recall_at_k")]


def test_a_given_model_is_judged_by_what_it_has_not_seen(data):
    seen, held, items, users = data
    board = fastcos.compare_vectors(
        items, users=users, interactions=seen, held_out=held,
        measures=["query_metric_cosine", "dot", "user_item_dot"],
    )  # fmt: skip
    assert board.score == "NDCG@20"
    assert board.n_units == np.count_nonzero(np.diff(held.indptr))
    popularity = np.tile((seen.toarray() != 0).sum(axis=0), (len(users), 1))
    for name, scores in (("user_item_dot", users @ items.T), ("most popular items", popularity)):
        row = board.row(Candidate(name))
        ndcg, recall = ndcg_by_scores(scores.astype(np.float64), seen, held)
        assert row.score.value == pytest.approx(ndcg, abs=1e-12), name
        assert row.other_scores["recall@20"] == pytest.approx(recall, abs=1e-12), name
    assert {row.candidate.measure for row in board.rows} == {
        "cosine", "dot", "query_metric_cosine", "user_item_dot", "most popular items",
    }  # fmt: skip
    level = board.row(Candidate("most popular items")).score.value
    assert board.chance_level == {"NDCG@20": level}
    assert (
        f"only if its NDCG@20 is higher than {level:.3f}, the NDCG@20 of the most popular items."
        in board.conclusion
    )


@pytest.mark.slow
def test_the_best_measure_of_items_is_named_apart(data):
    seen, held, items, users = data
    board = fastcos.compare_vectors(
        items, users=users, interactions=seen, held_out=held,
        measures=["user_item_dot", "neg_euclidean"],
    )  # fmt: skip
    assert board.recommended == Candidate("user_item_dot")
    assert board.best_of_items in (Candidate("cosine"), Candidate("neg_euclidean"))
    assert f" To find similar items, use {board.best_of_items}: NDCG@20 " in board.conclusion
    of_items = fastcos.compare_vectors(items, interactions=seen, held_out=held, measures=["dot"])
    assert of_items.best_of_items is None
    assert "To find similar items" not in of_items.conclusion


@pytest.mark.slow
def test_biases_count_in_the_scores_of_users_and_items(data):
    seen, held, items, users = data
    biases = np.log(1.0 + (seen.toarray() != 0).sum(axis=0))
    model = SimpleNamespace(
        item_embeddings=items, user_embeddings=users, item_biases=biases,
        user_biases=np.zeros(len(users)),
    )  # fmt: skip
    with warnings.catch_warnings(action="ignore"):
        factors = fastcos.from_model(model)
    arguments = {"interactions": seen, "held_out": held, "measures": ["user_item_dot", "dot"]}
    board = fastcos.compare_vectors(factors, **arguments)
    truth = ndcg_by_scores(users @ items.T + biases, seen, held)[0]
    assert board.row(Candidate("user_item_dot")).score.value == pytest.approx(truth, abs=1e-12)
    # Similarities of items are computed without biases.
    plain = fastcos.compare_vectors(items, users=users, **arguments)
    assert board.row(Candidate("dot")).score == plain.row(Candidate("dot")).score


def test_users_make_measures_of_items_possible_with_labels(data):
    _, _, items, users = data
    labels = np.arange(N_ITEMS) % 3
    alone = fastcos.compare_vectors(items, labels, measures="default")
    both = fastcos.compare_vectors(items, labels, users=users, measures="default")
    assert alone.left_out["query_metric_cosine"] == "users, the other side of the model"
    assert "query_metric_cosine" in {row.candidate.measure for row in both.rows}
    assert "user_item_dot" not in {row.candidate.measure for row in both.rows}


def test_users_without_interactions_get_no_votes(data):
    seen, held, items, users = data
    bare = seen.toarray()
    bare[:50] = 0
    board = fastcos.compare_vectors(
        items, users=users, interactions=bare, held_out=held, measures=["user_item_dot"]
    )
    assert board.n_units == np.count_nonzero(np.diff(held.indptr))


def test_wrong_calls_with_held_out_are_refused(data):
    seen, held, items, users = data
    for arguments, line in (
        ({"held_out": held}, "interactions must be given if held_out is given, got None"),
        ({"interactions": seen}, "one of labels, pairs and held_out must be given, got none"),
        ({"labels": [0, 1] * 30, "interactions": seen}, "interactions must be None without held"),
        ({"labels": [0, 1] * 30, "held_out": held}, "one of .* must be given, got labels and held"),
        ({"held_out": held[:, :5], "interactions": seen}, "held_out must be of shape"),
        ({"held_out": held, "interactions": seen[:5]}, "interactions must be of shape"),
        ({"held_out": held, "interactions": seen, "users": users[:9]}, "held_out must be of shape"),
        ({"held_out": held, "interactions": seen, "users": users[:, :3]}, "users must have"),
        ({"held_out": seen * 0, "interactions": seen}, "held_out must have at least 2 users"),
        ({"held_out": held, "interactions": seen, "measures": ["user_item_dot"]}, "measures must"),
    ):
        with pytest.raises(ValueError, match=f"^{line}"):
            fastcos.compare_vectors(items, **arguments)
