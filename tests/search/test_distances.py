"""Small distances keep their precision in every function that returns distances."""

from fractions import Fraction

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsTransformer

from fastcos import NeighborsTransformer, neighbors_above, similarity_blocks, top_k
from fastcos.search.rerank import WordRotatorsScorer


def scores_of_blocks(Q, X, measure):
    return np.concatenate([scores for _, scores in similarity_blocks(Q, X, measure=measure)])


@pytest.mark.parametrize("angle", [1e-2, 1e-3, 1e-4, 1e-6, 1e-9])
def test_cosine_distances_of_near_rows_are_not_zero(angle):
    graph = NeighborsTransformer(1).fit_transform([[1.0, 0.0], [1.0, angle]]).toarray()
    truth = 2 * np.sin(np.arctan(angle) / 2) ** 2
    np.testing.assert_allclose(graph, [[0, truth], [truth, 0]], rtol=1e-6)
    if angle >= 1e-4:  # scikit-learn subtracts from 1
        X = [[1.0, 0.0], [1.0, angle]]
        theirs = KNeighborsTransformer(n_neighbors=1, metric="cosine").fit_transform(X).toarray()
        np.testing.assert_allclose(graph, theirs, atol=2e-16, rtol=1e-6)


@pytest.mark.parametrize("measure", ["cosine", "neg_euclidean"])
@pytest.mark.parametrize("mode", ["distance", "connectivity"])
def test_a_row_is_its_own_first_neighbor_among_copies(measure, mode):
    X = np.array([[1.0, 2.0]] * 5 + [[0.0, 0.0]] * 3 + [[2.0, 4.0]])
    transformer = NeighborsTransformer(2, measure=measure, mode=mode)
    graph = transformer.fit_transform(X)
    first = graph.indices.reshape(9, -1)[:, 0]
    np.testing.assert_array_equal(first, np.arange(9))
    values = graph.data.reshape(9, -1)
    if mode == "distance":
        assert (values[:, 0] == 0).all()
        assert (np.diff(values, axis=1) >= 0).all()
    np.testing.assert_array_equal(transformer.transform(X).toarray(), graph.toarray())
    other = transformer.transform(np.array([[5.0, 1.0]]))
    assert other.nnz == graph.nnz // 9


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("origin", [0.0, 1e3, 1e6])
def test_blocks_of_distances_have_the_bits_of_top_k(dtype, origin):
    X = (np.random.default_rng(0).standard_normal((60, 9)) + origin).astype(dtype)
    X[7] = X[3]
    whole = scores_of_blocks(X, X, "neg_euclidean")
    result = top_k(X, X, 60, measure="neg_euclidean")
    np.testing.assert_array_equal(np.take_along_axis(whole, result.indices, axis=1), result.scores)
    assert (whole.diagonal() == 0).all()
    assert whole[3, 7] == 0
    above = neighbors_above(X, X, min_score=-3.0, measure="neg_euclidean")
    np.testing.assert_array_equal(above.toarray(), np.where(whole >= -3, whole, 0))


def test_distances_of_huge_rows_are_right():
    X = np.array([[1e100, 0.0], [1e100, 0.0], [1e100, 1e30]])
    assert scores_of_blocks(X, X, "neg_euclidean")[0].tolist() == [0.0, 0.0, -np.float32(1e30)]
    graph = NeighborsTransformer(2, measure="neg_euclidean").fit_transform(X).toarray()
    np.testing.assert_allclose(graph[0], [0, 0, 1e30], rtol=1e-15)
    tiny = NeighborsTransformer(1, measure="neg_euclidean").fit_transform([[1e-200], [3e-200]])
    np.testing.assert_allclose(tiny.toarray(), [[0, 2e-200], [2e-200, 0]], rtol=1e-15)


def test_euclidean_distances_far_from_the_origin_are_those_of_exact_sums():
    X = np.random.default_rng(1).standard_normal((12, 4)) * 1e-3 + 1e8
    graph = NeighborsTransformer(11, measure="neg_euclidean").fit_transform(X).toarray()
    for i in range(12):
        for j in range(12):
            pairs = zip(X[i].tolist(), X[j].tolist(), strict=True)
            square = sum((Fraction(a) - Fraction(b)) ** 2 for a, b in pairs)
            np.testing.assert_allclose(graph[i, j], float(square) ** 0.5, rtol=1e-14)


def test_bags_of_nearly_equal_vectors_have_a_small_distance():
    scorer = WordRotatorsScorer([[1.0, 0.0], [1.0, 1e-6]], [[1, 0], [0, 1]])
    np.testing.assert_allclose(scorer(0, [1]), [-5e-13], rtol=1e-6)
