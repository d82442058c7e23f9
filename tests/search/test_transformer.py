import numpy as np
import pytest
from sklearn.cluster import DBSCAN
from sklearn.neighbors import KNeighborsClassifier, KNeighborsTransformer
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from fastcos import NeighborsTransformer


@parametrize_with_checks([NeighborsTransformer()])
def test_scikit_learn_accepts_the_estimator(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks([NeighborsTransformer(1, mode="connectivity")])
def test_scikit_learn_accepts_the_estimator_of_connections(estimator, check):
    check(estimator)


@pytest.mark.parametrize("mode", ["distance", "connectivity"])
@pytest.mark.parametrize(("ours", "theirs"), [("cosine", "cosine"), ("neg_euclidean", "euclidean")])
def test_the_graph_is_that_of_kneighbors_transformer(mode, ours, theirs):
    rng = np.random.default_rng(0)
    X, Z = rng.standard_normal((200, 7)), rng.standard_normal((20, 7))
    mine = NeighborsTransformer(5, mode=mode, measure=ours).fit(X)
    other = KNeighborsTransformer(n_neighbors=5, mode=mode, metric=theirs, algorithm="brute").fit(X)
    for rows in (X, Z):
        result, expected = mine.transform(rows), other.transform(rows)
        assert (result.nnz, result.dtype) == (expected.nnz, expected.dtype)
        np.testing.assert_allclose(result.toarray(), expected.toarray(), atol=2e-6)


# In scikit-learn 1.6, DBSCAN adds the diagonal itself, and then warns that rows are not sorted.
@pytest.mark.filterwarnings("ignore:Precomputed sparse input was not sorted")
def test_graph_serves_estimators_with_precomputed_distances():
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(5, 0.3, (60, 4)), rng.normal(-5, 0.3, (60, 4))])
    y = np.repeat([0, 1], 60)
    classifier = make_pipeline(
        NeighborsTransformer(8), KNeighborsClassifier(8, metric="precomputed")
    ).fit(X, y)
    assert classifier.score(X, y) == 1
    graph = NeighborsTransformer(20).fit_transform(X)
    # A row may be missing from the neighbour lists of all other rows. DBSCAN can reach such a row
    # only if, for every edge, the graph also contains the reverse edge.
    graph = graph.maximum(graph.T)
    labels = DBSCAN(eps=0.6, metric="precomputed").fit_predict(graph)
    assert len(set(labels[:60])) == len(set(labels[60:])) == 1


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_neighbors": 0}, "n_neighbors must be a whole number of at least 1, got 0"),
        ({"mode": "x"}, "mode must be one of distance, connectivity, got 'x'"),
        ({"measure": "dot"}, "measure must be one of cosine, neg_euclidean, got 'dot'"),
    ],
)
def test_bad_parameters_are_refused_by_name(parameters, message):
    with pytest.raises(ValueError, match=message):
        NeighborsTransformer(**parameters).fit(np.ones((4, 2)))
