import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from fastcos import Neighbors, top_k
from fastcos.search.rerank import STSScorer, WordRotatorsScorer, rerank
from tests.oracles import measures as oracles


def random_neighbors(n=20, k=7, seed=0):
    return top_k(np.random.default_rng(seed).normal(size=(n, 4)), k=k)


def test_neighbours_come_in_the_order_of_the_scorer():
    neighbors, table = random_neighbors(), np.random.default_rng(1).normal(size=(20, 20))
    indices, scores = rerank(neighbors, lambda query, items: table[query, items])
    for query in range(20):
        expected = sorted(neighbors.indices[query], key=lambda item: -table[query, item])
        assert indices[query].tolist() == expected
        np.testing.assert_array_equal(scores[query], table[query, expected].astype(np.float32))
    assert indices.dtype == np.int64
    assert scores.dtype == np.float32


def test_rerank_breaks_ties_by_lower_index():
    neighbors = random_neighbors()
    indices, _ = rerank(neighbors, lambda query, items: np.zeros(len(items)))
    np.testing.assert_array_equal(indices, np.sort(neighbors.indices, axis=1))
    # float32 cannot represent the differences between these scores.
    indices, scores = rerank(neighbors, lambda query, items: 1 + 1e-12 * np.asarray(items))
    np.testing.assert_array_equal(indices, -np.sort(-neighbors.indices, axis=1))
    assert (scores == 1).all()


def test_padding_is_no_candidate_and_inputs_stay_as_they_are():
    indices = np.array([[4, -1, 2], [-1, -1, -1]])
    neighbors = Neighbors(indices, np.zeros((2, 3), np.float32))
    seen = []

    def scorer(query, items):
        seen.append((query, list(items)))
        return items

    reranked = rerank(neighbors, scorer)
    assert seen == [(0, [2, 4])]
    assert reranked.indices.tolist() == [[4, 2, -1], [-1, -1, -1]]
    assert reranked.scores.tolist() == [[4, 2, -np.inf], [-np.inf] * 3]
    assert indices.tolist() == [[4, -1, 2], [-1, -1, -1]]


@pytest.mark.parametrize(
    ("scorer", "rule"),
    [
        (lambda query, items: [1.0], r"scores of scorer must be of shape \(7,\)"),
        (lambda query, items: np.full(len(items), np.nan), "scores of scorer must be finite"),
        (lambda query, items: ["a"] * len(items), "scores of scorer must hold real numbers"),
    ],
)
def test_bad_scores_are_refused(scorer, rule):
    with pytest.raises((ValueError, TypeError), match=rule):
        rerank(random_neighbors(), scorer)


def test_only_neighbors_are_reranked():
    with pytest.raises(TypeError, match="neighbors must be what top_k returns, got ndarray"):
        rerank(np.zeros((2, 2)), lambda query, items: items)


def test_progress_is_seen_by_query():
    seen = []
    rerank(random_neighbors(n=9), lambda query, items: items, progress=lambda *at: seen.append(at))
    assert seen == [(i, 9) for i in range(1, 10)]


class Overlap:
    def predict(self, pairs):
        return [[len(set(a) & set(b))] for a, b in pairs]


def test_an_sts_scorer_pairs_texts_of_queries_and_items():
    scorer = STSScorer(Overlap(), ["abc", "xyz"], ["a", "ab", "xa"])
    assert scorer(0, np.array([0, 1, 2])).tolist() == [1, 2, 1]
    assert scorer(1, [2, 0]).tolist() == [1, 0]
    neighbors = Neighbors(np.array([[0, 1], [0, 2]]), np.zeros((2, 2), np.float32))
    assert rerank(neighbors, scorer).indices.tolist() == [[1, 0], [2, 0]]


def test_a_model_must_be_a_folder_that_is_there(tmp_path):
    with pytest.raises(FileNotFoundError, match="model must be a folder on this machine"):
        STSScorer(tmp_path / "absent", ["a"])
    with pytest.raises(TypeError, match="model must be a path, got 3"):
        STSScorer(3, ["a"])


def test_a_cross_encoder_scores_pairs(tmp_path, monkeypatch):
    # transformers would mistake the folder kernels/ of this repository for the package `kernels`.
    elsewhere = [path for path in sys.path if Path(path).resolve() != Path(__file__).parents[2]]
    monkeypatch.setattr(sys, "path", elsewhere)
    pytest.importorskip("sentence_transformers", reason="needs sentence-transformers")
    from sentence_transformers import CrossEncoder
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizer

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "red", "blue", "car", "tree"]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    BertTokenizer(str(tmp_path / "vocab.txt")).save_pretrained(tmp_path)
    config = BertConfig(
        vocab_size=len(words), hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=8, num_labels=1,
    )  # fmt: skip
    BertForSequenceClassification(config).save_pretrained(tmp_path)
    texts = ["red car", "blue car", "tree"]
    scorer = STSScorer(tmp_path, texts)
    expected = CrossEncoder(str(tmp_path)).predict([("red car", "blue car"), ("red car", "tree")])
    np.testing.assert_allclose(scorer(0, [1, 2]), expected, rtol=1e-6)
    neighbors = Neighbors(np.array([[1, 2]]), np.zeros((1, 2), np.float32))
    assert rerank(neighbors, scorer).scores[0, 0] == np.float32(max(expected))


def bags(seed, n, w=7):
    """Return n bags; each row contains the counts of w vectors in one bag.

    Bag 0 contains only one vector, bag 1 contains every vector of bag 3 twice as often, and bag 2
    is a copy of bag 3.
    """
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 4, (n, w)).astype(float)
    X[0], X[1], X[2] = np.eye(w)[3], 2 * X[3], X[3]
    return X


def vectors_of_bags():
    V = np.random.default_rng(5).standard_normal((7, 4))
    V[6] = 3 * V[5]
    return V


def test_word_rotators_scores_are_optimal_transport():
    V, X = vectors_of_bags(), bags(0, 12)
    scorer = WordRotatorsScorer(V, X)
    result = np.array([scorer(i, np.arange(12)) for i in range(12)])
    truth = -np.array([[oracles.word_rotator(x, y, V) for y in X] for x in X])
    np.testing.assert_allclose(result, truth, atol=1e-9)
    # Multiplying a bag of words by a number does not change its distances to other bags. The
    # directions give a lower bound of the distance.
    np.testing.assert_array_equal(result[1], result[2])
    D = scorer.directions()
    bound = -0.5 * np.square(D[:, None] - D).sum(axis=2)
    assert (result <= bound + 1e-9).all()


def test_word_rotators_scorer_takes_sparse_and_empty_bags():
    V, Q, X = vectors_of_bags(), bags(1, 5), bags(2, 9)
    X[4] = 0
    dense = WordRotatorsScorer(V, Q, X)
    scarce = WordRotatorsScorer(V, sp.csr_array(Q), sp.csc_array(X))
    for query in range(5):
        result = dense(query, np.arange(9))
        np.testing.assert_array_equal(result, scarce(query, np.arange(9)))
        assert result[4] == -1
    candidates = top_k(dense.directions(), dense.directions(of_items=True), 9, measure="dot")
    order = rerank(candidates, dense).indices[0]
    np.testing.assert_array_equal(order, np.argsort(-dense(0, np.arange(9)), kind="stable"))


def test_word_rotators_scorer_refuses_wrong_bags():
    V = vectors_of_bags()
    with pytest.raises(ValueError, match="query_bags must be finite and >= 0, got -1"):
        WordRotatorsScorer(V, -np.eye(7))
    with pytest.raises(ValueError, match="item_bags must have as many columns as"):
        WordRotatorsScorer(V, np.eye(7), np.eye(6))
    with pytest.raises(ValueError, match="vectors must be finite"):
        WordRotatorsScorer(V * np.nan, np.eye(7))
