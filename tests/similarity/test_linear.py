"""Measures that are the cosine of linearly transformed rows: whitening, metrics, rescalings."""

import numpy as np
import pytest

import fastcos
from fastcos import get_measure, query_metric, top_k
from fastcos.similarity.rescalings import rescalings
from tests.oracles import measures as oracles
from tests.similarity.cases import D, Spectrum, eq2_rows, model, transformed


@pytest.mark.parametrize(
    ("parameter", "cells"),
    [
        ({"centered": False}, "s=y r=- R=y D=y G=y t=-"),
        ({"centered": True}, "s=y r=- R=y D=y G=y t=y"),
    ],
)
def test_whitened_cosine_invariances_by_centring(parameter, cells):
    for cell, claim in (pair.split("=") for pair in cells.split()):
        _, B = model()
        _, B2 = transformed(cell, *model(), 0)
        before, after = (
            oracles.cosine(fitted.encode_items(rows), fitted.encode_items(rows))
            for rows in (B, B2)
            for fitted in [get_measure("whitened_cosine", **parameter).fit(rows)]
        )
        assert np.allclose(before, after, atol=1e-7) == (claim == "y"), cell


def test_whitened_cosine_uncentred_is_its_formula():
    _, B = model()
    fitted = get_measure("whitened_cosine", centered=False).fit(B)
    truth = oracles.whitened(B, B, centred=False)
    np.testing.assert_allclose(
        oracles.cosine(fitted.encode_items(B), fitted.encode_items(B)), truth, atol=1e-10
    )


def test_whitened_cosine_of_leading_directions_is_pca():
    _, B = model()
    fitted = get_measure("whitened_cosine", n_components=3).fit(B)
    U = np.linalg.svd(B - B.mean(axis=0), full_matrices=False)[0][:, :3]
    np.testing.assert_allclose(
        oracles.cosine(fitted.encode_items(B), fitted.encode_items(B)),
        oracles.cosine(U, U),
        atol=1e-10,
    )


def test_whitened_cosine_with_large_ridge_is_centred_cosine():
    _, B = model()
    much = get_measure("whitened_cosine", ridge=1e9).fit(B).encode_items(B)
    np.testing.assert_allclose(oracles.cosine(much, much), oracles.centred(B, B), atol=1e-6)


def test_query_metric_is_correlation_of_predictions():
    P, B = model()
    P = P + 0.5
    rows = get_measure("query_metric_cosine", other=P).fit(B).encode_items(B)
    np.testing.assert_allclose(oracles.cosine(rows, rows), np.corrcoef(B @ P.T), atol=1e-10)
    same = query_metric(P).transform(B)
    np.testing.assert_allclose(oracles.cosine(same, same), np.corrcoef(B @ P.T), atol=1e-10)
    plain = get_measure("query_metric_cosine", other=P, centered=False).fit(B).encode_items(B)
    assert np.abs(oracles.cosine(plain, plain) - np.corrcoef(B @ P.T)).max() > 0.1


def test_fit_accepts_the_other_side():
    P, B = model()
    by_fit = get_measure("project_back_items").fit(B, P)
    by_parameter = get_measure("project_back_items", other=P).fit(B)
    np.testing.assert_array_equal(by_fit.encode_items(B), by_parameter.encode_items(B))


def test_eq2_cosine_keeps_only_effective_columns():
    _, B = model()
    fitted = get_measure("eq2_cosine", model=Spectrum, regularization=100).fit(B)
    rows = fitted.encode_items(B)
    np.testing.assert_allclose(
        oracles.cosine(rows, rows), oracles.cosine(eq2_rows(B), eq2_rows(B)), atol=1e-12
    )
    assert not rows[:, Spectrum.singular_values_ <= 100].any()


def test_rescaled_cosine_agrees_with_model_embeddings():
    X = np.random.default_rng(0).random((60, 12)) * 20
    fitted = fastcos.LinearMF(5, regularization=50.0).fit(X)
    for known in rescalings():
        direct = top_k(fitted.item_embeddings(known.name), k=3)
        measure = get_measure(f"rescaled_cosine:{known.name}", model=fitted)
        np.testing.assert_array_equal(
            top_k(fitted.item_embeddings(), k=3, measure=measure).indices, direct.indices
        )
    weight_decay = fitted.reregularized("weight_decay", 10.0)
    by_measure = get_measure("eq2_cosine", model=fitted, regularization=10.0)
    np.testing.assert_array_equal(
        top_k(fitted.item_embeddings(), k=3, measure=by_measure).indices,
        top_k(weight_decay.item_embeddings(), k=3, measure="eq2_cosine").indices,
    )


def test_feature_augmented_normalized_is_its_formula():
    _, B = model()
    fitted = get_measure("feature_augmented", weight=0.8, normalized=True).fit(B)
    np.testing.assert_allclose(
        fitted.encode_items(B) @ fitted.encode_items(B).T,
        oracles.augmented(B, B, 0.8, True),
        atol=1e-12,
    )


@pytest.mark.parametrize(("power", "same"), [(0, "cosine"), (1, "dot")])
def test_radial_cosine_spans_cosine_to_dot(power, same):
    _, B = model()
    ours = top_k(B, k=5, measure=get_measure("radial_cosine", power=power))
    np.testing.assert_allclose(ours.scores, top_k(B, k=5, measure=same).scores, rtol=1e-6)


def planted_pairs(n=60, m=900):
    """Return rows, known weights, pairs of rows, and targets: the cosines under these weights."""
    random = np.random.default_rng(2)
    B, w = random.standard_normal((n, D)), np.array([4.0, 1, 2, 1, 3, 1])
    pairs = random.integers(0, n, (m, 2))
    truth = oracles.soft(B, B, np.diag(w))[pairs[:, 0], pairs[:, 1]]
    return B, w, pairs, truth


def test_learned_diagonal_recovers_planted_weights():
    B, w, pairs, truth = planted_pairs()
    fitted = get_measure("learned_diagonal", pairs=pairs, targets=truth, condition=5).fit(B)
    ours = fitted.root_**2
    np.testing.assert_allclose(ours / ours[1], w, rtol=1e-2)


@pytest.mark.parametrize("condition", [1, 1.3, 10])
def test_learned_diagonal_obeys_condition_and_beats_cosine(condition):
    B, _, pairs, truth = planted_pairs()
    noisy = (truth + np.random.default_rng(0).standard_normal(len(truth)) > 0.5) * 1.0
    fitted = get_measure("learned_diagonal", pairs=pairs, targets=noisy, condition=condition).fit(B)
    assert fitted.root_.max() / fitted.root_.min() <= condition * (1 + 1e-12)
    i, j = pairs.T
    learned = oracles.cosine(fitted.encode_items(B), fitted.encode_items(B))[i, j]
    plain = oracles.cosine(B, B)[i, j]
    assert np.corrcoef(learned, noisy)[0, 1] >= np.corrcoef(plain, noisy)[0, 1] - 1e-12


@pytest.mark.parametrize(
    "name",
    ["centered_cosine", "all_but_the_top", "zscore_cosine", "layer_norm_cosine", "cosine"],
)
def test_single_row_becomes_zero_once_centred(name):
    row = np.array([[0.1, 0.2, 0.7]])
    result = top_k(np.array([[1.0, 2.0, 2.5]]), row, 1, measure=name)
    assert np.isfinite(result.scores).all()
    assert get_measure(name).fit(row).encode_items(row).any() == (
        name in {"cosine", "layer_norm_cosine"}
    )


@pytest.mark.parametrize("name", ["whitened_cosine", "zscore_cosine", "causal_inner_product"])
def test_constant_columns_are_dropped(name):
    _, B = model()
    extended = np.hstack([B, np.full((len(B), 2), 0.1)])
    ours = top_k(extended, k=5, measure=name)
    np.testing.assert_array_equal(ours.indices, top_k(B, k=5, measure=name).indices)


@pytest.mark.parametrize("name", ["centered_cosine", "zscore_cosine", "layer_norm_cosine"])
@pytest.mark.parametrize("value", [0.1, 1 / 3, 1e-20, 12345.678])
def test_duplicates_become_zero_rows_despite_rounding(name, value):
    rows = np.full((7, 5), value)
    assert not get_measure(name).fit(rows).encode_items(rows).any()


def test_soft_cosine_null_space_rows_become_zero():
    S = np.ones((3, 3))
    rows = np.array([[1.0, 2, 3], [0.1, 0.2, -0.3], [1e-3, 0, 0]])
    fitted = get_measure("soft_cosine", matrix=S).fit(rows)
    assert fitted.encode_items(rows).any(axis=1).tolist() == [True, False, True]


@pytest.mark.parametrize("name", ["eq2_cosine", "rescaled_cosine", "rescaled_cosine:data"])
@pytest.mark.parametrize(
    ("make", "came"),
    [
        (lambda: "x", "got str"),
        (lambda: np.ones(3), "got ndarray"),
        (lambda: fastcos.LinearMF(3), "got LinearMF without fit"),
        (
            lambda: fastcos.LinearMF(2, objective="weight_decay").fit(np.diag([3, 2, 1])),
            "'weight_decay'",
        ),
    ],
)
def test_model_not_of_eq1_is_refused(name, make, came):
    with pytest.raises(TypeError, match=f"model must be a fitted LinearMF of the .*{came}"):
        get_measure(name, model=make())


def test_all_but_the_top_of_one_column_only_centres():
    rows = np.array([[1.0], [2.0], [4.0], [-3.0]])
    result = top_k(rows, k=1, measure="all_but_the_top")
    truth = top_k(rows, k=1, measure="centered_cosine")
    np.testing.assert_array_equal(result.indices, truth.indices)


def test_unfitted_measure_is_refused():
    with pytest.raises(ValueError, match="whitened_cosine must be fitted"):
        get_measure("whitened_cosine").encode_items(np.ones((2, 2)))


def test_rows_of_other_width_than_fitted_are_refused():
    _, B = model()
    for name in ("whitened_cosine", "centered_cosine"):
        with pytest.raises(ValueError, match="as many columns as"):
            get_measure(name).fit(B).encode_queries(B[:, :3])
