"""Every estimator works in pipelines and grid searches, with clones, data frames and joblib."""

import numpy as np
import pytest
import scipy.sparse as sp
from joblib import Parallel, delayed
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline, make_union

import fastcos

# Each entry contains an estimator, the name of one of its parameters, and two values of this
# parameter. If the estimator has no parameters, the name is None.
ESTIMATORS = [
    (fastcos.LinearMF(3, regularization=1.0), "regularization", [0.5, 20.0]),
    pytest.param(
        fastcos.CosineMF(3, max_iter=3, random_state=0),
        "n_components",
        [2, 4],
        marks=pytest.mark.slow,
    ),
    (fastcos.models.NormalizeRows(), None, []),
    (fastcos.models.PopularityWeights(), "column_power", [0.0, 1.0]),
    (fastcos.models.ShiftedPPMI(), "shift", [1.0, 5.0]),
    (fastcos.models.StandardizeColumns(), None, []),
    (fastcos.NeighborsTransformer(5), "n_neighbors", [3, 6]),
]
each = pytest.mark.parametrize(
    ("estimator", "parameter", "values"), ESTIMATORS, ids=lambda value: type(value).__name__
)


@pytest.fixture(scope="module")
def data():
    """Return interactions of two groups of users, each of which prefers its own items."""
    random = np.random.default_rng(0)
    y = np.repeat([0, 1], 30)
    likes = np.where(y[:, None] == np.arange(12) % 2, 2.0, 0.1)
    return random.poisson(likes).astype(np.float64) + np.eye(60, 12), y


def dense(X):
    return X.toarray() if sp.issparse(X) else np.asarray(X)


@each
def test_clone_copies_parameters_only(estimator, parameter, values, data):
    X, _ = data
    fitted = clone(estimator)
    if parameter:
        fitted.set_params(**{parameter: values[1]})
    fitted.fit(X)
    copy = clone(fitted)
    assert copy.get_params() == fitted.get_params()
    assert not [name for name in vars(copy) if name.endswith("_")]
    np.testing.assert_array_equal(dense(copy.fit(X).transform(X)), dense(fitted.transform(X)))


@pytest.mark.slow
@each
def test_grid_search_over_a_pipeline(estimator, parameter, values, data):
    X, y = data
    if isinstance(estimator, fastcos.NeighborsTransformer):
        # The transformer returns a graph of the distances to the training rows.
        last = KNeighborsClassifier(2, metric="precomputed")
    else:
        last = LogisticRegression()
    pipeline = make_pipeline(clone(estimator), last)
    name = f"{type(estimator).__name__.lower()}__{parameter}"
    if parameter is None:
        name, values = "logisticregression__C", [0.5, 1.0]
    search = GridSearchCV(pipeline, {name: values}, cv=3, error_score="raise").fit(X, y)
    assert search.best_params_[name] in values
    assert search.best_score_ > 0.8
    assert search.predict(X).shape == y.shape
    scores = cross_val_score(search.best_estimator_, X, y, cv=3, error_score="raise")
    np.testing.assert_allclose(scores.mean(), search.best_score_, rtol=1e-12)


@each
def test_feature_names_out_of_a_union(estimator, parameter, values, data):
    X, _ = data
    union = make_union(clone(estimator), clone(estimator)).fit(X)
    names = union.get_feature_names_out()
    assert len(set(names)) == len(names) == union.transform(X).shape[1]


@each
def test_set_output_makes_data_frames(estimator, parameter, values, data):
    pandas = pytest.importorskip("pandas")
    X, _ = data
    frame = pandas.DataFrame(X, columns=[f"item {j}" for j in range(X.shape[1])])
    plain = clone(estimator).fit(X).transform(X)
    transformer = clone(estimator).set_output(transform="pandas").fit(frame)
    assert transformer.feature_names_in_.tolist() == frame.columns.tolist()
    if sp.issparse(plain):
        with pytest.raises(ValueError, match="sparse"):
            transformer.transform(frame)
        return
    table = transformer.transform(frame)
    assert table.columns.tolist() == transformer.get_feature_names_out().tolist()
    assert table.index.equals(frame.index)
    np.testing.assert_array_equal(table.to_numpy(), plain)


@each
def test_joblib_threads_give_the_same_bits(estimator, parameter, values, data):
    X, _ = data
    expected = dense(clone(estimator).fit(X).transform(X))
    jobs = (delayed(fitted_transform)(clone(estimator), X) for _ in range(4))
    for result in Parallel(n_jobs=2, prefer="threads")(jobs):
        np.testing.assert_array_equal(dense(result), expected)


def fitted_transform(estimator, X):
    return estimator.fit(X).transform(X)


@pytest.mark.slow
def test_grid_search_processes_agree_with_one(data):
    X, y = data
    pipeline = make_pipeline(
        fastcos.models.StandardizeColumns(), fastcos.LinearMF(3), KMeans(2, n_init=1)
    )
    pipeline.set_params(kmeans__random_state=0)
    grid = {"linearmf__regularization": [0.5, 5.0]}
    results = [
        GridSearchCV(pipeline, grid, cv=2, n_jobs=n_jobs, error_score="raise").fit(X, y)
        for n_jobs in (None, 2)
    ]
    scores = [search.cv_results_["mean_test_score"] for search in results]
    # The rounding of k-means depends on its number of threads.
    np.testing.assert_allclose(scores[0], scores[1], rtol=1e-12)
