"""Tests of CosineMF: training, embeddings, refused arguments, saved models."""

import json

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.stats
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from fastcos import set_config
from fastcos.metrics import pair_auc
from fastcos.models.cosine_mf import CosineMF
from fastcos.models.cosine_training import (
    draw_items,
    log_popularity,
    negative_sampling_distribution,
    split_held_out,
)
from fastcos.models.simulation import simulate_interactions
from fastcos.storage import FastcosFormatError

# The tests that train CosineMF are slow, because compiling the training takes 5 s.
pytestmark = pytest.mark.slow


@parametrize_with_checks(
    [
        CosineMF(),
        CosineMF(
            3, similarity="dot", loss="negative_sampling", norm_penalty=0.1, max_iter=2,
            propensity_exponent=0.5, n_negatives=7, validation_fraction=0.0,
        ),
    ]
)  # fmt: skip
def test_cosine_mf_follows_scikit_learn(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def simulation():
    return simulate_interactions(400, 80, n_clusters=4, random_state=3)


def test_cosine_mf_is_bit_identical_over_threads(simulation):
    models = []
    try:
        for n_threads in (1, 2, 3):
            set_config(n_threads=n_threads)
            models.append(CosineMF(12, batch_size=37, max_iter=3).fit(simulation.X))
    finally:
        set_config(n_threads=2)
    for model in models[1:]:
        for name in ("components_", "encoder_", "item_bias_", "loss_curve_", "validation_curve_"):
            np.testing.assert_array_equal(getattr(model, name), getattr(models[0], name))
    other = CosineMF(12, batch_size=37, max_iter=3, random_state=1).fit(simulation.X)
    assert not np.array_equal(other.components_, models[0].components_)


def test_cosine_mf_random_state_takes_a_generator(simulation):
    first, second = (
        CosineMF(3, max_iter=1, random_state=np.random.default_rng(5)).fit(simulation.X)
        for _ in range(2)
    )
    np.testing.assert_array_equal(first.components_, second.components_)
    with pytest.raises(ValueError, match="random_state must be a"):
        first.save("unused")


@pytest.mark.parametrize("loss", ["info_nce", "negative_sampling"])
@pytest.mark.parametrize("similarity", ["cosine", "layer_norm", "dot"])
def test_cosine_mf_decreases_its_loss(simulation, similarity, loss):
    model = CosineMF(8, similarity=similarity, loss=loss, max_iter=6).fit(simulation.X)
    assert model.loss_curve_[-1] < 0.97 * model.loss_curve_[0]
    assert model.validation_curve_[-1] < model.validation_curve_[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.long) for seed in (2, 3, 4))]
)
def test_cosine_mf_recovery_depends_on_the_temperature(seed):
    """At one temperature, the cosine recovers the clusters better than the dot product does.

    Compared with this temperature, another temperature gives the cosine a lower held-out loss, but
    a worse recovery of the clusters.
    """
    X, cluster, *_ = simulate_interactions(1000, 200, random_state=seed)

    def fitted(similarity, temperature):
        model = CosineMF(30, similarity=similarity, temperature=temperature).fit(X)
        return pair_auc(model.item_embeddings(), cluster).value, model.validation_curve_.min()

    (cosine, loss), (low, low_loss) = fitted("cosine", 0.25), fitted("cosine", 0.07)
    (dot, _), (tuned, _) = fitted("dot", 0.25), fitted("dot", 2.0)
    assert cosine > dot
    assert tuned > cosine - 0.01
    # Early stopping minimises the held-out loss. The model with the lower held-out loss recovers
    # the clusters less well.
    assert low < cosine - 0.05
    assert low_loss < loss


def test_cosine_mf_users_and_items_are_unit_rows(simulation):
    X = simulation.X
    model = CosineMF(6, max_iter=2).fit(X)
    P = X.toarray().astype(np.float64) @ model.encoder_
    expected = P / np.linalg.norm(P, axis=1, keepdims=True)
    for matrix in (X, X.toarray(), X.tocoo(), 3 * X, X.astype(np.float64)):
        np.testing.assert_allclose(model.transform(matrix), expected, atol=2e-6)
    np.testing.assert_allclose(np.linalg.norm(model.item_embeddings(), axis=1), 1, atol=1e-6)
    np.testing.assert_array_equal(model.item_embeddings(), model.components_.T)
    users, items = model.scoring_embeddings(X)
    scores = expected @ model.components_ / 0.25 + model.item_bias_
    np.testing.assert_allclose(users @ items.T, scores, atol=1e-4)


def test_cosine_mf_dot_users_are_scaled_by_x(simulation):
    X = simulation.X.toarray().astype(np.float64)
    model = CosineMF(6, similarity="dot", max_iter=2).fit(X)
    expected = X @ model.encoder_ / np.linalg.norm(X, axis=1, keepdims=True)
    np.testing.assert_allclose(model.transform(X), expected, atol=1e-6)
    assert np.ptp(np.linalg.norm(model.item_embeddings(), axis=1)) > 0.1


def test_cosine_mf_layer_norm_rows_sum_to_zero(simulation):
    model = CosineMF(6, similarity="layer_norm", max_iter=3).fit(simulation.X)
    np.testing.assert_allclose(model.components_.sum(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(model.transform(simulation.X).sum(axis=1), 0, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(model.components_, axis=0), 1, atol=1e-6)


def test_cosine_mf_empty_users_and_items_are_zero_rows():
    X = simulate_interactions(80, 30, n_clusters=2, random_state=1).X.toarray()
    X[[0, 40, 79]] = 0
    X[:, [0, 7, 29]] = 0
    for similarity in ("cosine", "layer_norm", "dot"):
        model = CosineMF(4, similarity=similarity, norm_penalty=0.01, max_iter=3).fit(X)
        users, items = model.transform(X), model.item_embeddings()
        assert np.isfinite(users).all()
        assert np.flatnonzero(~users.any(axis=1)).tolist() == [0, 40, 79]
        assert np.flatnonzero(~items.any(axis=1)).tolist() == [0, 7, 29]
        assert not model.encoder_[[0, 7, 29]].any()
        assert (model.item_bias_[[0, 7, 29]] == model.item_bias_.min()).all()


@pytest.mark.parametrize("X", [[[1.0]], [[0, 2.0], [0, 1.0]], np.ones((4, 3)), np.eye(3)], ids=str)
def test_cosine_mf_of_degenerate_data_is_finite(X):
    model = CosineMF(2, max_iter=2).fit(np.array(X))
    for array in (model.components_, model.encoder_, model.item_bias_, model.transform(X)):
        assert np.isfinite(array).all()


def test_cosine_mf_ignores_scales_of_x_and_its_rows(simulation):
    X = simulation.X.astype(np.float64)
    model = CosineMF(5, max_iter=2).fit(X)
    np.testing.assert_array_equal(CosineMF(5, max_iter=2).fit(8 * X).encoder_, model.encoder_)
    rows = sp.diags_array(np.arange(1.0, 401)) @ X
    np.testing.assert_allclose(model.transform(rows), model.transform(X), atol=1e-6)


def test_cosine_mf_propensities_favour_rare_items(simulation):
    X = simulation.X
    models = [CosineMF(5, propensity_exponent=g, max_iter=3).fit(X) for g in (0.0, 1.0)]
    popularity = log_popularity(X)
    slopes = [np.polyfit(popularity, model.item_bias_, 1)[0] for model in models]
    assert slopes[1] < slopes[0] - 0.3


def test_cosine_mf_without_item_bias_learns_none(simulation):
    X = simulation.X
    counts = np.bincount(X.indices, minlength=X.shape[1])
    for loss in ("info_nce", "negative_sampling"):
        parameters = {"similarity": "dot", "loss": loss, "max_iter": 2, "validation_fraction": 0}
        without = CosineMF(5, item_bias=False, **parameters).fit(X)
        # If the model learns no bias, item_bias_ still corrects for how often each item is drawn as
        # a negative.
        expected = 0.75 * np.log(counts[counts > 0])
        np.testing.assert_allclose(without.item_bias_[counts > 0], expected, rtol=1e-6)
        learned = CosineMF(5, **parameters).fit(X).item_bias_[counts > 0]
        assert np.ptp(learned - expected) > 0.5
    with pytest.raises(ValueError, match="item_bias must be"):
        CosineMF(item_bias=2).fit(X)


def test_cosine_mf_norm_penalty_pulls_norms_to_one(simulation):
    far, near = (
        np.abs(np.linalg.norm(model.item_embeddings(), axis=1) - 1).mean()
        for penalty in (0.0, 1e4)
        for model in [CosineMF(5, similarity="dot", norm_penalty=penalty).fit(simulation.X)]
    )
    assert near < 0.3 * far


@pytest.mark.parametrize("exponent", [0.0, 0.75, 1.0])
def test_draw_items_follows_the_negative_law(exponent):
    counts = np.array([5, 0, 80, 1, 300, 0, 20])
    law = negative_sampling_distribution(
        np.log(np.maximum(counts, 1e-300)) + np.where(counts, 0, -np.inf), exponent
    )
    truth = np.where(counts > 0, counts.astype(float) ** exponent, 0)
    np.testing.assert_allclose(law, truth / truth.sum(), rtol=1e-12)
    items, drawn = draw_items(np.random.default_rng(0), np.cumsum(law), 20_000)
    assert set(items) == {0, 2, 3, 4, 6}
    expected = 20_000 * law[items]
    assert scipy.stats.chisquare(drawn, expected * drawn.sum() / expected.sum()).pvalue > 1e-3


def test_split_held_out_takes_a_share_of_every_user(simulation):
    X = simulation.X
    known, held = split_held_out(X, 0.2, np.random.default_rng(0))
    np.testing.assert_array_equal((known + held).toarray(), X.toarray())
    assert not known.multiply(held).nnz
    n, out = np.diff(X.indptr), np.diff(held.indptr)
    # The last interaction of an item is never held out, so the held-out share of a user may be less
    # than 0.2.
    assert (np.abs(out - 0.2 * n)[n > 1] <= 3).all()
    assert abs(held.nnz / X.nnz - 0.2) < 0.02
    assert (np.diff(known.indptr)[n > 0] > 0).all()
    assert (np.bincount(known.indices, minlength=80) > 0).all()
    assert not split_held_out(sp.csr_array(np.eye(4)), 0.5, np.random.default_rng(0))[1].nnz


def test_cosine_mf_stops_early_at_the_best_pass():
    rng = np.random.default_rng(0)
    X = (rng.random((150, 60)) < 0.1).astype(
        float
    )  # For noise, the held-out loss soon stops decreasing.
    model = CosineMF(20, temperature=0.05, validation_fraction=0.2, max_iter=40).fit(X)
    curve = model.validation_curve_
    assert model.n_iter_ == np.flatnonzero(curve == curve.min())[-1] + 1
    assert len(curve) == len(model.loss_curve_) == model.n_iter_ + 3 < 40
    again = clone(model).set_params(max_iter=model.n_iter_).fit(X)
    np.testing.assert_array_equal(again.components_, model.components_)
    unstopped = clone(model).set_params(validation_fraction=0.0, max_iter=5).fit(X)
    assert unstopped.n_iter_ == 5
    assert len(unstopped.validation_curve_) == 0


def test_cosine_mf_progress_counts_passes(simulation):
    calls = []
    CosineMF(3, max_iter=3).fit(simulation.X, progress=lambda *call: calls.append(call))
    assert calls == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize(
    ("parameter", "value", "rule"),
    [
        ("n_components", 0, "n_components must be a whole number from 1 to 65536"),
        ("similarity", "l2", "similarity must be one of cosine, layer_norm, dot"),
        ("loss", "mse", "loss must be one of info_nce, negative_sampling"),
        ("temperature", 0, "temperature must be a finite number >= 0.01"),
        ("n_negatives", 2.5, "n_negatives must be a whole number"),
        ("negative_exponent", -1, "negative_exponent must be a finite number >= 0"),
        ("propensity_exponent", np.nan, "propensity_exponent must be a finite number >= 0"),
        ("norm_penalty", -0.1, "norm_penalty must be a finite number >= 0"),
        ("learning_rate", 0, "learning_rate must be a finite number > 0"),
        ("batch_size", 0, "batch_size must be a whole number"),
        ("max_iter", 0, "max_iter must be a whole number"),
        ("validation_fraction", 0.9, "validation_fraction must be a finite number >= 0 and <= 0.5"),
        ("n_iter_no_change", None, "n_iter_no_change must be a whole number"),
        ("random_state", -1, "random_state must be a whole number of at least 0"),
    ],
)
def test_cosine_mf_refuses_invalid_parameters(parameter, value, rule):
    with pytest.raises(ValueError, match=rule):
        CosineMF(**{parameter: value}).fit(np.eye(3))


def test_cosine_mf_refuses_invalid_interactions():
    with pytest.raises(ValueError, match="interactions in X must be a whole number of at least 1"):
        CosineMF().fit(np.zeros((3, 4)))
    with pytest.raises(ValueError, match="Negative values in data"):
        CosineMF().fit(sp.csr_array(-np.eye(3)))
    with pytest.raises(ValueError, match="n_components must be a whole number from 2 to 65536"):
        CosineMF(1, similarity="layer_norm").fit(np.eye(3))


def test_cosine_mf_save_and_load(simulation, tmp_path):
    model = CosineMF(4, similarity="dot", temperature=0.5, max_iter=2).fit(simulation.X)
    model.save(tmp_path / "model")
    loaded = CosineMF.load(tmp_path / "model")
    assert loaded.get_params() == model.get_params()
    assert loaded.n_iter_ == model.n_iter_
    for name in ("components_", "encoder_", "item_bias_", "loss_curve_", "validation_curve_"):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(model, name))
    np.testing.assert_array_equal(loaded.transform(simulation.X), model.transform(simulation.X))
    header = tmp_path / "model" / "header.json"
    header.write_text(json.dumps(json.loads(header.read_text()) | {"kind": "LinearMF"}))
    with pytest.raises(FastcosFormatError, match="checksum differs"):
        CosineMF.load(tmp_path / "model")
