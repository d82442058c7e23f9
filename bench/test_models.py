"""Models, weightings, metrics, audits and readers.

pytest bench/test_models.py -k metric
"""

import warnings
from functools import partial

import numpy as np
import pytest
from scipy import stats
from sklearn import manifold, metrics as sklearn_metrics, preprocessing

import fastcos
from bench import check, data

SMALL = (2_000, 500, 40_000)


@pytest.mark.benchmark(group="models")
def test_linear_mf_fit(benchmark):
    X = data.interactions(40_000, 20_000, 800_000)
    model = fastcos.LinearMF(16, regularization=10.0)
    fit = partial(fit_quietly, model, X)
    fit()
    assert check.residuals(X, model.singular_values_, model.components_).max() < 0.1
    benchmark(fit)


def fit_quietly(model, X):
    """Fit a model, and ignore the warning that its solution is ambiguous."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fastcos.models.AmbiguousSolutionWarning)
        return model.fit(X)


@pytest.mark.benchmark(group="models")
def test_cosine_mf_fit(benchmark):
    X = data.interactions(*SMALL)
    model = fastcos.CosineMF(16, max_iter=5, validation_fraction=0.0).fit(X)
    scores = model.user_embeddings(X) @ model.item_embeddings().T
    assert scores[X.toarray() > 0].mean() > scores.mean() + 0.02
    benchmark(model.fit, X)


@pytest.mark.benchmark(group="models")
def test_recommend(benchmark):
    X = data.interactions(*SMALL)
    model = fastcos.LinearMF(16, regularization=10.0).fit(X)
    Vt = model.components_.astype(np.float64)
    scores = (X @ Vt.T * model.shrinkage_) @ Vt
    scores[X.toarray() > 0] = -np.inf
    best = -np.sort(-scores, axis=1)[:, :10]
    found = np.take_along_axis(scores, model.recommend(X, 10).indices, axis=1)
    np.testing.assert_allclose(found, best, atol=1e-5 * best.max())
    benchmark(model.recommend, X, 10)


WEIGHTINGS = {
    "NormalizeRows": preprocessing.normalize,
    "StandardizeColumns": partial(preprocessing.scale, with_mean=False),
    "PopularityWeights": partial(preprocessing.normalize, axis=0),
}


@pytest.mark.parametrize("name", WEIGHTINGS)
@pytest.mark.benchmark(group="weightings of interactions")
def test_weighting(benchmark, name):
    X = data.interactions(*SMALL)
    transformer = getattr(fastcos.models, name)()
    expected = WEIGHTINGS[name](X.astype(np.float64))
    np.testing.assert_allclose(
        transformer.fit_transform(X).toarray(), expected.toarray(), atol=1e-5
    )
    benchmark(transformer.fit_transform, X)


def pair_auc(rows, labels):
    unit = preprocessing.normalize(rows.astype(np.float64))
    upper = np.triu_indices(len(rows), 1)
    return sklearn_metrics.roc_auc_score((labels[:, None] == labels)[upper], (unit @ unit.T)[upper])


def noisy(rows):
    return rows + 0.5 * data.gaussian(*rows.shape, seed=2)


def rsa(rows, transformed):
    upper = np.triu_indices(len(rows), 1)
    cosines = [preprocessing.normalize(array.astype(np.float64)) for array in (rows, transformed)]
    return np.corrcoef(*((unit @ unit.T)[upper] for unit in cosines))[0, 1]


def trustworthiness(rows, transformed):
    return manifold.trustworthiness(*map(preprocessing.normalize, (rows, transformed)))


METRICS = {
    "pair_auc": pair_auc,
    "silhouette": partial(sklearn_metrics.silhouette_score, metric="cosine"),
    "rsa": rsa,
    "trustworthiness": trustworthiness,
}


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.benchmark(group="metrics over all pairs")
def test_metric(benchmark, name):
    rows, labels = data.labelled(1_000, 32)
    other = labels if name in ("pair_auc", "silhouette") else noisy(rows)
    metric = getattr(fastcos.metrics, name)
    value = metric(rows, other)
    value = value[0] if isinstance(value, tuple) else value
    assert value == pytest.approx(METRICS[name](rows, other), abs=1e-4)
    benchmark(metric, rows, other)


@pytest.mark.benchmark(group="metrics over all pairs")
def test_hubness(benchmark):
    lists = fastcos.top_k(data.gaussian(1_000, 32), k=20).indices
    counts = np.bincount(lists.ravel(), minlength=len(lists))
    assert fastcos.metrics.hubness(lists)[0] == pytest.approx(stats.skew(counts), abs=1e-4)
    benchmark(fastcos.metrics.hubness, lists)


@pytest.mark.benchmark(group="audits")
def test_certified_neighbors(benchmark):
    X = data.gaussian(200, 16)
    neighbors = fastcos.certified_neighbors(X, 10, 2.0)
    assert not check.wrong_neighbors(neighbors.indices, X, X, self_items=np.arange(len(X))).any()
    benchmark(fastcos.certified_neighbors, X, 10, 2.0)


@pytest.mark.benchmark(group="audits")
def test_audit(benchmark):
    rows, labels = data.labelled(300, 32)
    report = fastcos.audit(rows, labels=labels)
    certified = fastcos.certified_neighbors(rows, report.k, report.condition).certified
    assert report.at_condition.certified_linear == certified.mean()
    benchmark(fastcos.audit, rows, labels=labels)


@pytest.mark.benchmark(group="audits")
def test_compare(benchmark):
    """Compare rescalings and measures on simulated interactions."""
    simulated = fastcos.simulate_interactions(2_000, 200, random_state=0)
    compare = partial(fastcos.compare, simulated.X, simulated.item_cluster, n_components=8)
    assert max(row.pair_auc for row in compare().named) > 0.8
    benchmark(compare)


@pytest.mark.benchmark(group="interactions")
def test_simulate_interactions(benchmark):
    simulate = partial(fastcos.simulate_interactions, 20_000, 1_000, random_state=0)
    X = simulate().X
    assert X.has_canonical_format
    assert (X.data == 1).all()
    benchmark(simulate)


@pytest.mark.benchmark(group="interactions")
def test_read_interactions(benchmark, tmp_path):
    """Read a CSV file of 40,000 lines."""
    X, path = data.interactions(*SMALL), tmp_path / "interactions.csv"
    lines = np.stack([*X.nonzero(), X.data], axis=1).astype(int)
    np.savetxt(path, lines, "%d", ",", header="user,item,value", comments="")
    assert fastcos.read_interactions(path).X.nnz == X.nnz
    benchmark(fastcos.read_interactions, path)
