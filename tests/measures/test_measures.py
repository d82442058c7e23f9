"""Every measure against its formula, its declared invariances cell by cell, and its gate."""

import csv
import inspect
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

import fastcos
from fastcos import get_measure, list_measures, top_k
from fastcos.engine import scan, seeds
from fastcos.kernels import tiles
from fastcos.measures import Bounded, Plain, hubness, register, summaries
from fastcos.measures.base import REGISTRY
from fastcos.measures.rescaling import Rescaling, rescalings
from fastcos.neighbors import filter_refine, ratio, search as neighbors
from tests.oracles import measures as oracles

LIST = Path(__file__).parents[1] / "data" / "measures.csv"
N_USERS, N_ITEMS, D = 90, 70, 6
SELF, APART = "self", "apart"


def model(seed=0):
    """Users P and items B that share no symmetry: uneven columns, norms and a mean."""
    random = np.random.default_rng(seed)
    P = random.standard_normal((N_USERS, D)) * np.linspace(2, 0.5, D) + 0.3
    B = random.standard_normal((N_ITEMS, D)) * np.linspace(1, 3, D) + random.random(D)
    return P, B * random.uniform(0.5, 2, (N_ITEMS, 1))


class Spectrum:
    """What a measure asks of a fitted LinearMF."""

    shrinkage_ = np.linspace(0.9, 0.4, D)
    singular_values_ = np.linspace(300.0, 80.0, D)


FEATURES = np.random.default_rng(3).standard_normal((D, 4))
POPULARITY = np.random.default_rng(4).pareto(2, N_ITEMS) + 0.1


def unit_features():
    F = oracles.unit(FEATURES)
    return F @ F.T


def eq2_rows(B):
    return B * np.sqrt(np.maximum(Spectrum.singular_values_ - 100, 0) / Spectrum.shrinkage_)


def rescaled(name):
    D = np.array([1.0] * len(Spectrum.shrinkage_))
    known = {"orthonormal": (0.5, 0), "weights": (-0.5, 0), "balanced": (0, -0.5)}
    known |= {"smoothed": (-0.5, -1), "data": (0.5, -1), "identity": (0, 0)}
    a, b = known[name]
    D = Spectrum.shrinkage_**a * Spectrum.singular_values_**b
    return lambda B: oracles.cosine(B / D, B / D)


def of_items(formula):
    return lambda P, B: formula(B)


# name: parameters from (P, B), and the scores of the queries from (P, B); queries are the items
CASES = {
    "cosine": (dict, of_items(lambda B: oracles.cosine(B, B))),
    "dot": (dict, of_items(lambda B: B @ B.T)),
    "angular": (dict, of_items(lambda B: 1 - np.arccos(oracles.cosine(B, B)) / np.pi)),
    "neg_euclidean": (dict, of_items(lambda B: -oracles.euclidean(B, B))),
    "user_item_dot": (dict, lambda P, B: P @ B.T),
    "user_item_cosine": (dict, lambda P, B: oracles.cosine(P, B)),
    "soft_cosine": (
        lambda P, B: {"features": FEATURES},
        of_items(lambda B: oracles.soft(B, B, unit_features())),
    ),
    "query_metric_cosine": (
        lambda P, B: {"other": P},
        lambda P, B: oracles.cosine((P @ B.T).T, (P @ B.T).T),
    ),
    "project_back_items": (
        lambda P, B: {"other": P},
        lambda P, B: oracles.cosine((P @ B.T).T, (P @ B.T).T),
    ),
    "project_back_users": (
        lambda P, B: {"other": B},
        lambda P, B: oracles.cosine(P @ B.T, P @ B.T),
    ),
    "centered_cosine": (dict, of_items(lambda B: oracles.centred(B, B))),
    "all_but_the_top": (
        lambda P, B: {"n_directions": 2},
        of_items(lambda B: oracles.without_top(B, B, 2)),
    ),
    "whitened_cosine": (dict, of_items(lambda B: oracles.whitened(B, B))),
    "ica_cosine": (dict, of_items(lambda B: oracles.whitened(B, B))),
    "popularity_whitened_cosine": (
        lambda P, B: {"popularity": POPULARITY},
        of_items(lambda B: oracles.whitened(B, B, weights=POPULARITY)),
    ),
    "causal_inner_product": (
        dict,
        of_items(lambda B: oracles.whitened(B, B, centred_rows=False)),
    ),
    "unit_column_cosine": (
        dict,
        of_items(lambda B: oracles.cosine(B / norms_of_columns(B), B / norms_of_columns(B))),
    ),
    "zscore_cosine": (dict, of_items(lambda B: oracles.zscores(B, B))),
    "layer_norm_cosine": (dict, of_items(lambda B: oracles.pearson_over_dimensions(B, B))),
    "spearman_dims": (dict, of_items(lambda B: oracles.spearman(B, B))),
    "radial_cosine": (
        lambda P, B: {"power": 0.4},
        of_items(
            lambda B: oracles.cosine(B, B) * np.outer(oracles.norms(B), oracles.norms(B)) ** 0.4
        ),
    ),
    "scaled_similarity": (
        lambda P, B: {"alpha": 0.7},
        of_items(lambda B: oracles.scaled(B, B, 0.7)),
    ),
    "feature_augmented": (
        lambda P, B: {"weight": 0.8},
        of_items(lambda B: oracles.augmented(B, B, 0.8)),
    ),
    "query_normalized": (dict, of_items(oracles.query_normalized)),
    "csls": (lambda P, B: {"n_neighbors": 5}, of_items(lambda B: oracles.csls(B, 5))),
    "local_scaling": (
        lambda P, B: {"n_neighbors": 4},
        of_items(lambda B: oracles.local_scaling(B, 4)),
    ),
    "dis_sim_local": (
        lambda P, B: {"n_neighbors": 5},
        of_items(lambda B: oracles.dis_sim_local(B, 5)),
    ),
    "mutual_proximity": (dict, of_items(oracles.mutual_proximity)),
    "norm_angle_distance": (
        lambda P, B: {"weight": 1.5},
        of_items(lambda B: oracles.norm_angle(B, B, 1.5)),
    ),
    "recos": (dict, of_items(lambda B: oracles.recos(B, B))),
    "rescaled_cosine": (dict, of_items(lambda B: oracles.cosine(B, B))),
    "eq2_cosine": (dict, of_items(lambda B: oracles.cosine(B, B))),
    "weight_cosine": (dict, of_items(oracles.weights)),
}
CASES |= {
    f"rescaled_cosine:{known.name}": (
        lambda P, B: {"model": Spectrum},
        of_items(rescaled(known.name)),
    )
    for known in rescalings()
}
BASES = [name for name in CASES if ":" not in name]
USER_SIDE = {"user_item_dot", "user_item_cosine", "project_back_users"}


def norms_of_columns(B):
    return np.sqrt((B**2).sum(axis=0))


def parameters(name, P, B):
    make = CASES[name][0]
    return {} if make is dict else make(P, B)


def sides(name, P, B):
    """Queries and searched rows of a measure for a model."""
    if name == "weight_cosine":
        return (np.hstack([P[:N_ITEMS], B]),) * 2
    if name == "project_back_users":
        return P, P
    return (P, B) if name in USER_SIDE else (B, B)


def scores(name, P, B):
    """All scores of the measure for a model, by its two maps in plain NumPy."""
    queries, items = sides(name, P, B)
    fitted = get_measure(name, **parameters(name, P, B)).fit(items)
    if isinstance(fitted, Bounded):
        every = np.tile(np.arange(len(items)), (len(queries), 1))
        return fitted.finish(fitted.rescore(queries, fitted.facts(items), every), queries)
    X, Y = (np.asarray(rows, np.float64) for rows in (fitted.queries(queries), fitted.items(items)))
    offsets = fitted.item_offsets(items)
    if fitted.form == "norm_angle":
        keys = oracles.norm_angle(X, Y, 1.0)
    elif fitted.form == "cosine":
        keys = oracles.cosine(X, Y)
    elif fitted.form == "dot":
        keys = X @ Y.T + (0 if offsets is None else offsets)
    else:
        keys = -(oracles.euclidean(X, Y) ** 2)
    return fitted.finish(keys, queries)


def positive_weights(P, B):
    """A model whose W_ii = <a_i, b_i> are positive."""
    A = P[:N_ITEMS].copy()
    signs = np.sign((A * B).sum(axis=1))
    return np.vstack([A * signs[:, None], P[N_ITEMS:]]), B


def model_of(name, seed=0):
    P, B = model(seed)
    return positive_weights(P, B) if name == "weight_cosine" else (P, B)


def off_diagonal(name, S):
    if name in {"user_item_dot", "user_item_cosine"}:
        return S
    return oracles.others(S)


@pytest.mark.parametrize("name", CASES)
def test_every_measure_is_its_formula(name):
    P, B = model_of(name)
    if name == "weight_cosine":
        truth = oracles.weights(np.hstack([P[:N_ITEMS], B]))
    else:
        truth = CASES[name][1](P, B)
    ours = scores(name, P, B)
    np.testing.assert_allclose(off_diagonal(name, ours), off_diagonal(name, truth), atol=1e-10)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", CASES)
def test_top_k_by_every_measure_is_the_best_of_all_scores(name, dtype):
    P, B = (rows.astype(dtype).astype(np.float64) for rows in model_of(name, 1))
    queries, items = sides(name, P, B)
    truth = oracles.weights(items) if name == "weight_cosine" else CASES[name][1](P, B)
    measure = get_measure(name, **parameters(name, P, B))
    itself = name not in {"user_item_dot", "user_item_cosine"}
    if itself:
        np.fill_diagonal(truth, -np.inf)
    found = top_k(
        queries.astype(dtype), None if itself else items.astype(dtype), 9, measure=measure
    )
    order = np.argsort(-truth, axis=1, kind="stable")[:, :9]
    np.testing.assert_array_equal(found.indices, order)
    best = np.take_along_axis(truth, order, axis=1)
    np.testing.assert_allclose(found.scores, best, rtol=1e-5, atol=1e-6)


def transformed(cell, P, B, seed):
    random = np.random.default_rng(seed)
    if cell == "s":
        return P, 3.7 * B
    if cell == "r":
        return P, B * random.uniform(0.2, 5, (len(B), 1))
    if cell == "t":
        return P, B + random.standard_normal(D) * 2
    if cell == "R":
        G = np.linalg.qr(random.standard_normal((D, D)))[0]
    elif cell == "D":
        G = np.diag(random.uniform(0.2, 5, D))
    else:
        G = random.standard_normal((D, D)) + 2 * np.eye(D)
    return P @ np.linalg.inv(G).T, B @ G


def same_order(before, after):
    return np.array_equal(np.argsort(-before, axis=1), np.argsort(-after, axis=1))


@pytest.mark.parametrize("cell", "srRDGt")
@pytest.mark.parametrize("name", BASES)
def test_a_cell_of_the_table_of_invariances(name, cell):
    claim = getattr(type(get_measure(name, **parameters(name, *model()))).invariances, cell)
    changed = []
    for seed in range(2):
        P, B = model_of(name, seed)
        before = off_diagonal(name, scores(name, P, B))
        P2, B2 = transformed(cell, P, B, seed)
        if name == "weight_cosine" and ((P2[:N_ITEMS] * B2).sum(axis=1) <= 0).any():
            P2, B2 = positive_weights(P2, B2)
        after = off_diagonal(name, scores(name, P2, B2))
        same = np.allclose(before, after, rtol=1e-7, atol=1e-7)
        if claim == "y":
            assert same
        elif claim == "rank":
            assert not same
            assert same_order(before, after)
        else:
            changed.append(not same and not same_order(before, after))
    assert claim in {"y", "rank"} or all(changed)


@pytest.mark.parametrize(
    ("parameter", "cells"),
    [
        ({"centered": False}, "s=y r=- R=y D=y G=y t=-"),
        ({"centered": True}, "s=y r=- R=y D=y G=y t=y"),
    ],
)
def test_whitening_centred_or_not_has_its_own_row(parameter, cells):
    for cell, claim in (pair.split("=") for pair in cells.split()):
        _, B = model()
        _, B2 = transformed(cell, *model(), 0)
        before, after = (
            oracles.cosine(fitted.items(rows), fitted.items(rows))
            for rows in (B, B2)
            for fitted in [get_measure("whitened_cosine", **parameter).fit(rows)]
        )
        assert np.allclose(before, after, atol=1e-7) == (claim == "y"), cell


def test_whitening_without_centring_is_its_formula():
    _, B = model()
    fitted = get_measure("whitened_cosine", centered=False).fit(B)
    truth = oracles.whitened(B, B, centred=False)
    np.testing.assert_allclose(oracles.cosine(fitted.items(B), fitted.items(B)), truth, atol=1e-10)


def test_whitening_of_leading_directions_is_pca():
    _, B = model()
    fitted = get_measure("whitened_cosine", n_components=3).fit(B)
    U = np.linalg.svd(B - B.mean(axis=0), full_matrices=False)[0][:, :3]
    np.testing.assert_allclose(
        oracles.cosine(fitted.items(B), fitted.items(B)), oracles.cosine(U, U), atol=1e-10
    )


def test_a_ridge_leads_from_whitening_to_the_centred_cosine():
    _, B = model()
    much = get_measure("whitened_cosine", ridge=1e9).fit(B).items(B)
    np.testing.assert_allclose(oracles.cosine(much, much), oracles.centred(B, B), atol=1e-6)


def test_the_query_metric_centred_is_the_correlation_of_predictions():
    P, B = model()
    rows = get_measure("query_metric_cosine", other=P, centered=True).fit(B).items(B)
    np.testing.assert_allclose(oracles.cosine(rows, rows), np.corrcoef(B @ P.T), atol=1e-10)


def test_the_other_side_may_be_given_to_fit():
    P, B = model()
    by_fit = get_measure("project_back_items").fit(B, P)
    by_parameter = get_measure("project_back_items", other=P).fit(B)
    np.testing.assert_array_equal(by_fit.items(B), by_parameter.items(B))


def test_eq2_of_a_model_keeps_the_effective_columns_only():
    _, B = model()
    fitted = get_measure("eq2_cosine", model=Spectrum, regularization=100).fit(B)
    rows = fitted.items(B)
    np.testing.assert_allclose(
        oracles.cosine(rows, rows), oracles.cosine(eq2_rows(B), eq2_rows(B)), atol=1e-12
    )
    assert not rows[:, Spectrum.singular_values_ <= 100].any()


def test_rescalings_agree_with_the_embeddings_of_the_model():
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


def test_feature_augmented_rows_may_be_normalised():
    _, B = model()
    fitted = get_measure("feature_augmented", weight=0.8, normalized=True).fit(B)
    np.testing.assert_allclose(
        fitted.items(B) @ fitted.items(B).T, oracles.augmented(B, B, 0.8, True), atol=1e-12
    )


@pytest.mark.parametrize(("power", "same"), [(0, "cosine"), (1, "dot")])
def test_radial_cosine_leads_from_the_cosine_to_the_inner_product(power, same):
    _, B = model()
    ours = top_k(B, k=5, measure=get_measure("radial_cosine", power=power))
    np.testing.assert_allclose(ours.scores, top_k(B, k=5, measure=same).scores, rtol=1e-6)


# --- learned weights


def planted_pairs(n=60, m=900):
    """Targets that are cosines under known weights of condition 2."""
    random = np.random.default_rng(2)
    B, w = random.standard_normal((n, D)), np.array([4.0, 1, 2, 1, 3, 1])
    pairs = random.integers(0, n, (m, 2))
    truth = oracles.soft(B, B, np.diag(w))[pairs[:, 0], pairs[:, 1]]
    return B, w, pairs, truth


def test_learned_weights_are_those_that_made_the_targets():
    B, w, pairs, truth = planted_pairs()
    fitted = get_measure("learned_diagonal", pairs=pairs, targets=truth, condition=5).fit(B)
    ours = fitted.root_**2
    np.testing.assert_allclose(ours / ours[1], w, rtol=1e-2)


@pytest.mark.parametrize("condition", [1, 1.3, 10])
def test_learned_weights_keep_their_condition_and_never_lose_to_the_cosine(condition):
    B, _, pairs, truth = planted_pairs()
    noisy = (truth + np.random.default_rng(0).standard_normal(len(truth)) > 0.5) * 1.0
    fitted = get_measure("learned_diagonal", pairs=pairs, targets=noisy, condition=condition).fit(B)
    assert fitted.root_.max() / fitted.root_.min() <= condition * (1 + 1e-12)
    i, j = pairs.T
    learned = oracles.cosine(fitted.items(B), fitted.items(B))[i, j]
    plain = oracles.cosine(B, B)[i, j]
    assert np.corrcoef(learned, noisy)[0, 1] >= np.corrcoef(plain, noisy)[0, 1] - 1e-12


# --- hubness: who is averaged


def test_csls_averages_over_the_other_side_where_it_is_given():
    P, B = model()
    measure = get_measure("csls", n_neighbors=4, other=P)
    found = top_k(P[:20], B, 6, measure=measure)
    truth = oracles.csls_apart(P[:20], B, 4, P)
    np.testing.assert_array_equal(found.indices, np.argsort(-truth, axis=1)[:, :6])
    np.testing.assert_allclose(found.scores, -np.sort(-truth, axis=1)[:, :6], atol=1e-6)


@pytest.mark.parametrize("name", ["csls", "local_scaling", "dis_sim_local", "query_normalized"])
def test_a_query_scores_the_same_alone_in_company_and_as_an_item(name):
    P, B = model()
    queries = np.vstack([P[:30], B[:30]])
    together = top_k(queries, B, 5, measure=name)
    for i in range(len(queries)):
        alone = top_k(queries[i : i + 1], B, 5, measure=name)
        np.testing.assert_array_equal(alone.indices[0], together.indices[i])
        np.testing.assert_array_equal(alone.scores[0], together.scores[i])
    itself = top_k(B, k=4, measure=name)
    np.testing.assert_array_equal(together.indices[30:, 1:], itself.indices[:30])
    np.testing.assert_array_equal(together.scores[30:, 1:], itself.scores[:30])


def test_local_scaling_of_duplicates_takes_the_smallest_positive_scale():
    rows = np.array([[1.0, 0], [1, 0], [1, 0], [1, 1], [0, 1], [-1, 2]])
    found = top_k(rows, k=2, measure=get_measure("local_scaling", n_neighbors=2))
    assert np.isfinite(found.scores).all()
    np.testing.assert_array_equal(found.indices[:3], [[1, 2], [0, 2], [0, 1]])
    np.testing.assert_array_equal(found.scores[:3], 1)


def test_query_normalized_with_one_item_or_equal_cosines_scores_zero():
    rows = np.array([[1.0, 0], [0, 1], [-1, 0], [0, -1]])
    assert (top_k(np.zeros((1, 2)), rows, 2, measure="query_normalized").scores == 0).all()
    only = top_k(rows[:1], rows[:1], 1, measure="query_normalized")
    assert only.scores.tolist() == [[0]]


def test_query_normalized_leaves_zero_rows_out_of_its_moments():
    _, B = model()
    with_zeros = np.vstack([B, np.zeros((5, D))])
    ours = top_k(B[:9], with_zeros, 7, measure="query_normalized")
    truth = top_k(B[:9], B, 7, measure="query_normalized")
    np.testing.assert_allclose(ours.scores, truth.scores, rtol=1e-6)


# --- bounds


def bags(seed, n, w=7):
    random = np.random.default_rng(seed)
    return random.poisson(0.6, (n, w)) * 1.0 + np.eye(w)[random.integers(0, w, n)]


@pytest.mark.parametrize("shape", ["even", "long", "spiky", "clusters"])
@pytest.mark.parametrize("name", ["mutual_proximity", "recos"])
def test_no_item_exceeds_the_bound_of_its_candidates_key(name, shape):
    random = np.random.default_rng(5)
    rows = random.standard_normal((300, 9))
    if shape == "long":
        rows *= random.pareto(1, (300, 1)) + 0.1
    elif shape == "spiky":
        rows **= 5
    elif shape == "clusters":
        rows = 0.1 * rows + rows[random.integers(0, 12, 300)]
    fitted = get_measure(name).fit(rows)
    X, Y = fitted.queries(rows), fitted.items(rows)
    loose = oracles.cosine(X, Y) if fitted.form == "cosine" else X @ Y.T
    every = np.tile(np.arange(300), (300, 1))
    exact = fitted.rescore(rows, fitted.facts(rows), every)
    for j in range(300):
        bound = fitted.bound(rows, loose[:, j])
        below = loose <= loose[:, j : j + 1]
        assert (np.where(below, exact, -np.inf).max(axis=1) <= bound).all()
    truth = np.argsort(-np.where(np.eye(300), -np.inf, exact), axis=1, kind="stable")
    np.testing.assert_array_equal(top_k(rows, k=8, measure=name).indices, truth[:, :8])


def test_word_rotators_distance_is_the_optimal_transport():
    V = np.random.default_rng(0).standard_normal((7, 4))
    X = bags(0, 12)
    measure = get_measure("word_rotators_distance", vectors=V)
    found = top_k(X, k=3, measure=measure)
    truth = -np.array([[oracles.word_rotator(x, y, V) for y in X] for x in X])
    np.fill_diagonal(truth, -np.inf)
    best = -np.sort(-truth, axis=1)[:, :3]
    np.testing.assert_allclose(found.scores, best, atol=1e-7)
    np.testing.assert_allclose(np.take_along_axis(truth, found.indices, axis=1), best, atol=1e-9)


def test_sparse_bags_have_the_neighbours_of_the_optimal_transport():
    random = np.random.default_rng(3)
    V = random.standard_normal((20, 5))
    X = np.where(random.random((24, 20)) < 0.1, random.integers(1, 4, (24, 20)), 0.0)
    X[np.arange(24), np.arange(24) % 20] += 1
    X[8, :3] = 1, 2, 3
    X[7], X[9] = 0, X[8]
    measure = get_measure("word_rotators_distance", vectors=V)
    found = top_k(scipy.sparse.csr_array(X), k=3, measure=measure)
    assert found.indices[8, 0] == 9
    for i in (0, 8, 15):
        assert X[i].any()
        truth = -np.array([oracles.word_rotator(X[i], y, V) if y.any() else 1.0 for y in X])
        truth[i] = -np.inf
        np.testing.assert_allclose(found.scores[i], -np.sort(-truth)[:3], atol=1e-7)
        np.testing.assert_allclose(truth[found.indices[i]], found.scores[i], atol=1e-7)
    some, allowed = scipy.sparse.csc_matrix(X[:2]), np.arange(0, 24, 2)
    dense = top_k(X[:2], X, 3, measure=measure, allowed=allowed)
    sparse = top_k(some, scipy.sparse.coo_array(X), 3, measure=measure, allowed=allowed)
    np.testing.assert_array_equal(sparse.indices, dense.indices)
    np.testing.assert_array_equal(sparse.scores, dense.scores)
    with pytest.raises(ValueError, match="weights of bags must be at least 0, got -1"):
        top_k(-scipy.sparse.eye_array(20), k=1, measure=measure)
    with pytest.raises(ValueError, match="bags must have as many columns as"):
        top_k(scipy.sparse.eye_array(19), k=1, measure=measure)


def test_word_rotators_distance_of_single_vectors_and_empty_bags():
    V = np.random.default_rng(0).standard_normal((5, 4))
    measure = get_measure("word_rotators_distance", vectors=V)
    found = top_k(np.eye(5), k=2, measure=measure)
    np.testing.assert_array_equal(found.indices, top_k(V, k=2).indices)
    np.testing.assert_allclose(found.scores, top_k(V, k=2).scores - 1, atol=1e-6)
    empty = top_k(np.zeros((1, 5)), np.eye(5), 3, measure=measure)
    assert empty.scores.tolist() == [[-1, -1, -1]]
    assert empty.indices.tolist() == [[0, 1, 2]]
    with pytest.raises(ValueError, match="weights of bags must be at least 0"):
        top_k(-np.eye(5), k=1, measure=measure)


def test_exclusions_masks_and_least_scores_hold_for_bounded_measures():
    _, B = model()
    random = np.random.default_rng(0)
    seen = scipy.sparse.csr_array(random.random((N_ITEMS, N_ITEMS)) < 0.3)
    allowed = np.flatnonzero(random.random(N_ITEMS) < 0.7)
    truth = oracles.recos(B, B)
    truth[np.arange(N_ITEMS), np.arange(N_ITEMS)] = -np.inf
    truth[seen.toarray()] = -np.inf
    truth[:, np.setdiff1d(np.arange(N_ITEMS), allowed)] = -np.inf
    truth[truth < 0.2] = -np.inf
    found = top_k(B, k=9, measure="recos", exclude=seen, allowed=allowed, min_score=0.2)
    order = np.argsort(-truth, axis=1, kind="stable")[:, :9]
    order[np.take_along_axis(truth, order, axis=1) == -np.inf] = -1
    np.testing.assert_array_equal(found.indices, order)


@pytest.mark.parametrize("name", ["mutual_proximity", "norm_angle_distance", "recos", "csls"])
def test_an_index_and_blocks_of_scores_agree_with_top_k(name):
    _, B = model()
    truth = top_k(B, B, 6, measure=name)
    index = fastcos.SimilarityIndex(name).fit(B)
    found = index.search(B, 6)
    np.testing.assert_array_equal(found.indices, truth.indices)
    np.testing.assert_array_equal(found.scores, truth.scores)
    for rows, block in fastcos.similarity_blocks(B, measure=name, block=11):
        best = -np.sort(-block, axis=1)[:, :6]
        np.testing.assert_allclose(best, truth.scores[rows], rtol=1e-5, atol=1e-6)
    index.remove([0, 5])
    left = index.search(B, 6)
    rest = np.delete(np.arange(N_ITEMS), [0, 5])
    again = top_k(B, B[rest], 6, measure=name)
    np.testing.assert_array_equal(left.indices, rest[again.indices])


def test_a_narrow_memory_changes_no_bounded_answer():
    _, B = model()
    wide = top_k(B, k=9, measure="mutual_proximity")
    narrow = top_k(B, k=9, measure="mutual_proximity", working_memory=0.3)
    np.testing.assert_array_equal(wide.indices, narrow.indices)
    np.testing.assert_array_equal(wide.scores, narrow.scores)


# --- neighbours that fit has met, and bands of similar norm


def uneven_rows(n, d, seed=0):
    """Clusters of all densities with hubs, norms from 0.1 to 10, duplicates and a zero row."""
    random = np.random.default_rng(seed)
    centres = random.standard_normal((6, d))
    spread = 10 ** random.uniform(-2, 0, (6, 1))
    of = random.integers(0, 6, n)
    rows = centres[of] + spread[of] * random.standard_normal((n, d))
    rows *= 10 ** random.uniform(-1, 1, (n, 1))
    rows[[5, 17, 90]] = rows[40]
    rows[11] = 0
    return rows.astype(np.float32)


def one_by_one(name, rows, k):
    """The best of all scores, from blocks that no search has pruned; ties by lower number."""
    fitted = get_measure(name).fit(rows)
    sides = [oracles.unit(part(rows)) for part in (fitted.queries, fitted.items)]
    if fitted.form == "dot":
        sides = [np.asarray(part(rows), np.float64) for part in (fitted.queries, fitted.items)]
    keys = sides[0] @ sides[1].T
    offsets = fitted.item_offsets(rows)
    keys = fitted.finish(keys + (0 if offsets is None else offsets), rows)
    np.fill_diagonal(keys, -np.inf)
    return -np.sort(-keys, axis=1)[:, :k]


@pytest.mark.parametrize("k", [3, 10, 40])
@pytest.mark.parametrize("name", ["csls", "local_scaling", "dis_sim_local"])
def test_neighbours_met_by_fit_leave_nobody_out(name, k):
    rows = uneven_rows(700, 12)
    found = top_k(rows, k=k, measure=name)
    np.testing.assert_allclose(found.scores, one_by_one(name, rows, k), rtol=2e-6, atol=1e-6)
    fitted = get_measure(name).fit(rows)
    met = fitted.candidates()
    every = np.full((len(rows), len(rows)), True)
    np.put_along_axis(every, met.columns, values=False, axis=1)
    every &= every.T
    np.fill_diagonal(every, False)
    keys = np.asarray(fitted.queries(rows), np.float64) @ np.asarray(fitted.items(rows)).T
    keys += fitted.item_offsets(rows)
    assert (np.where(every, keys, -np.inf) <= met.ceilings[:, None]).all()
    for of_rows, known, errors in (
        (keys, met.keys, met.errors[met.columns]),
        (keys.T, met.named_keys, met.errors[:, None]),
    ):
        assert (np.abs(np.take_along_axis(of_rows, met.columns, axis=1) - known) <= errors).all()


@pytest.mark.parametrize("off", [None, 0.0, 3.0, -3.0, np.nan])
@pytest.mark.parametrize("room", [-2, 0, 246])
@pytest.mark.parametrize("name", ["csls", "local_scaling", "dis_sim_local"])
def test_neighbours_met_by_fit_change_no_bit(name, room, off, monkeypatch):
    """Whatever the room is and bounds are said to be likely: too high, too low, of half of them.

    Against a search of the same rows that may not use them, for it must leave some out.
    """
    monkeypatch.setattr(seeds, "_ROOM", room)
    if off is not None:
        monkeypatch.setattr(seeds, "_SHOWN", 8)
        monkeypatch.setattr(seeds, "_TRIED", 4)
    likely, asked_for = seeds.likely_bounds, []

    def wrong(floors, *rest):
        bounds = likely(floors, *rest)
        asked_for.append(len(bounds))
        bounds[::2] += off * np.abs(bounds[::2])
        return np.where(np.isnan(bounds), -np.inf, bounds)

    monkeypatch.setattr(seeds, "likely_bounds", wrong)
    itself = scipy.sparse.eye_array(700, format="csr")
    for kind in (np.float32, np.float64):
        rows = uneven_rows(700, 12).astype(kind)
        found = top_k(rows, k=9, measure=name)
        apart = top_k(rows, rows, k=9, measure=name, exclude=itself)
        np.testing.assert_array_equal(found.indices, apart.indices)
        np.testing.assert_array_equal(found.scores, apart.scores)
    assert bool(asked_for) == (off is not None)


@pytest.mark.parametrize("off", [0.0, 0.5, -0.5, -np.inf])
@pytest.mark.parametrize("room", [1, 54, 200])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_distances_that_are_likely_change_no_bit(kind, room, off, monkeypatch):
    """Whatever the room is and bounds are said to be likely: against a search that has none."""
    likely, asked_for = seeds.likely_bounds, []

    def wrong(floors, *rest):
        bounds = likely(floors, *rest)
        asked_for.append(len(bounds))
        bounds[::2] += off * np.abs(bounds[::2])
        return np.where(np.isnan(bounds), -np.inf, bounds)

    random = np.random.default_rng(3)
    even = random.standard_normal((1200, 20))
    even[600:640] = even[:40]
    for rows in (even.astype(kind), uneven_rows(1200, 12).astype(kind)):
        expected = neighbors.nearest_by("euclidean", rows, None, 9)
        with monkeypatch.context() as patched:
            patched.setattr(seeds, "likely_bounds", wrong)
            for name, value in {"_MANY": 600, "_ALIKE": 9, "_SHOWN": 60, "_TRIED": 20}.items():
                patched.setattr(seeds, name, value)
            patched.setattr(seeds, "_NARROW_ROOM", room)
            found = neighbors.nearest_by("euclidean", rows, None, 9)
        np.testing.assert_array_equal(found[0], expected[0])
        np.testing.assert_array_equal(found[1], expected[1])
    assert asked_for == ([1140, 1140] if room >= 9 else [])


def test_engine_searches_few_rows_whose_norms_tell_how_near_their_neighbours_are(monkeypatch):
    """Of Gaussian rows it gets the shown and the few that miss; of clusters nearly all."""
    searched = []
    search = scan.search

    def told(prepared, queries, *rest, **options):
        searched.append(len(queries.rows))
        return search(prepared, queries, *rest, **options)

    monkeypatch.setattr(scan, "search", told)
    monkeypatch.setattr(seeds, "_MANY", 9000)
    random = np.random.default_rng(0)
    counts = []
    uneven = uneven_rows(9000, 12)
    for rows in (random.standard_normal((9000, 16)), oracles.unit(uneven), uneven):
        neighbors.nearest_by("euclidean", rows.astype(np.float32), None, 10)
        counts.append(sum(searched))
        searched.clear()
    if tiles.AVAILABLE:
        assert 300 < counts[0] < 1500
    assert counts[1] > 8000
    assert counts[2] == 9000


@pytest.mark.parametrize("name", ["csls", "local_scaling"])
def test_fit_keeps_few_neighbours_where_many_would_settle_little(name, monkeypatch):
    """Rows all around against rows at all angles to one; the answer is the same for any depth."""
    monkeypatch.setattr(hubness, "_MANY", 600)
    random = np.random.default_rng(0)
    even = random.standard_normal((900, 40)).astype(np.float32)
    uneven = (1 + 10 ** random.uniform(-2, 1, (900, 1)) * even).astype(np.float32)
    depths = []
    for rows in (even, uneven):
        depths.append(get_measure(name).fit(rows).candidates().columns.shape[1])
        found = top_k(rows, k=9, measure=name)
        with monkeypatch.context() as patched:
            patched.setattr(hubness, "_MANY", 10_000)
            wide = top_k(rows, k=9, measure=name)
        np.testing.assert_array_equal(found.indices, wide.indices)
        np.testing.assert_array_equal(found.scores, wide.scores)
    assert depths == [23, 10]
    assert get_measure(name, n_neighbors=30).fit(uneven).candidates().columns.shape[1] == 30


def test_bounds_are_likely_where_floors_fall_short_by_a_rule():
    """Rows of all sizes, a few outliers: nearly all reach their bounds, which are no lower."""
    random = np.random.default_rng(2)
    norms = 10 ** random.uniform(-3, 3, 2000)
    worth = norms**2 * random.uniform(-1, -0.5, 2000)
    found = 0.2 * norms**2 - 0.3 * worth
    noise = 0.01 * norms**2 * random.standard_normal(2000)
    floors = found - norms**2 * random.uniform(0, 2, 2000)
    found += np.abs(noise)
    found[::50] = floors[::50] + 5 * norms[::50] ** 2
    shown, asked = np.arange(0, 2000, 4), np.arange(1, 2000, 4)
    bounds = seeds.likely_bounds(floors, norms, worth, found, shown, asked)
    assert (bounds >= floors[asked]).all()
    missed = bounds > found[asked]
    assert missed.mean() < 0.06
    short = (found[asked] - bounds) / norms[asked] ** 2
    assert np.median(short) < 0.05


@pytest.mark.parametrize("bad", ["norms", "floors", "found"])
def test_bounds_that_no_rule_tells_are_the_floors(bad):
    given = {name: np.ones(40) for name in ("floors", "norms", "worth", "found")}
    given[bad][3] = {"norms": 1e200, "floors": -np.inf, "found": np.inf}[bad]
    bounds = seeds.likely_bounds(**given, shown=np.arange(20), asked=np.arange(20, 40))
    np.testing.assert_array_equal(bounds, np.ones(20))
    every = {name: np.zeros(40) for name in given}
    zero = seeds.likely_bounds(**every, shown=np.arange(20), asked=np.arange(20, 40))
    np.testing.assert_array_equal(zero, np.zeros(20))


def test_dis_sim_local_measures_rows_far_from_0_from_their_middle():
    """Most rows lie close together; a few large ones must not settle from where to measure."""
    random = np.random.default_rng(0)
    rows = random.standard_normal((400, 6))
    rows[::20] *= 1000
    for moved in (rows + 300, rows - random.uniform(1e4, 2e4, 6)):
        fitted = get_measure("dis_sim_local").fit(moved)
        norms = np.linalg.norm(fitted.items(moved), axis=1)
        assert np.median(norms) < 3 * np.median(np.linalg.norm(rows, axis=1))
        found, truth = (top_k(X, k=5, measure="dis_sim_local") for X in (moved, rows))
        np.testing.assert_allclose(found.scores, truth.scores, rtol=1e-5, atol=1e-6)


def test_dis_sim_local_of_rows_that_are_nearly_all_alike():
    rows = np.zeros((40, 3))
    rows[::9] = np.eye(5, 3) + 1
    for moved in (rows, np.zeros((40, 3)), rows + 7):
        assert np.isfinite(top_k(moved, k=3, measure="dis_sim_local").scores).all()


@pytest.mark.parametrize("memory", [0.5, None])
@pytest.mark.parametrize("name", ["mutual_proximity", "recos"])
def test_all_that_may_reach_the_best_are_scored_whatever_the_room(name, memory, monkeypatch):
    """Rows whose first candidates settle little, among them zero rows and duplicates."""
    rows = uneven_rows(700, 12) ** 3
    fitted = get_measure(name).fit(rows)
    exact = fitted.rescore(rows, fitted.facts(rows), np.tile(np.arange(700), (700, 1)))
    np.fill_diagonal(exact, -np.inf)
    truth = np.argsort(-exact, axis=1, kind="stable")[:, :9]
    for more, room in ((0, 3), (0, 64), (14, 64)):
        monkeypatch.setattr(filter_refine, "_MORE", more)
        monkeypatch.setattr(filter_refine, "_ROOM", room)
        found = top_k(rows, k=9, measure=name, working_memory=memory)
        np.testing.assert_array_equal(found.indices, truth)


@pytest.mark.parametrize("rows", [1, 8, 40])
@pytest.mark.parametrize("guess", ["as it is", 2.0, 0.9, -0.3, -np.inf])
def test_no_guess_of_a_floor_shows_in_the_answer(guess, rows, monkeypatch):
    given = uneven_rows(900, rows) ** 3
    fitted = get_measure("recos").fit(given)
    exact = fitted.rescore(given, fitted.facts(given), np.tile(np.arange(900), (900, 1)))
    np.fill_diagonal(exact, -np.inf)
    truth = np.argsort(-exact, axis=1, kind="stable")[:, :9]
    if guess != "as it is":
        kind = type(fitted)
        monkeypatch.setattr(kind, "likely", lambda self, floors, keys: np.full(len(keys), guess))
    for room, together in ((256, 4096), (5, 100)):
        monkeypatch.setattr(ratio, "_ROOM", room)
        monkeypatch.setattr(ratio, "_PER_THREAD", together)
        monkeypatch.setattr(ratio, "_FIRST", 2 * together)
        found = top_k(given, k=9, measure="recos")
        np.testing.assert_array_equal(found.indices, truth)
    some = np.arange(3, 900, 7)
    allowed = np.setdiff1d(np.arange(900), some)
    exact[:, some] = -np.inf
    truth = np.argsort(-exact[some], axis=1, kind="stable")[:, :9]
    found = top_k(given[some], given, k=9, measure="recos", allowed=allowed, working_memory=0.5)
    np.testing.assert_array_equal(found.indices, truth)


@pytest.mark.parametrize("d", [1, 2, 20, 60])
def test_what_reaches_a_floor_of_recos_has_the_least_sharp_key(d):
    rows = uneven_rows(300, d) ** 3
    fitted = get_measure("recos").fit(rows)
    exact = fitted.rescore(rows, fitted.facts(rows), np.tile(np.arange(300), (300, 1)))
    items = fitted.sharp_rows(rows)
    for rank in (0, 5, 100, 290):
        floors = -np.sort(-exact, axis=1)[:, rank]
        asked = fitted.sharp_queries(items, floors)
        keys = asked.rows.astype(float) @ items.rows.astype(float).T
        keys += asked.weights[:, None] * items.offsets
        assert (keys >= asked.least[:, None])[exact >= floors[:, None]].all()
        if d >= 20 and rank <= 5:  # and little else does, but others of a narrow cluster of 50
            assert np.median((keys >= asked.least[:, None]).sum(axis=1)) <= rank + 60


def test_neighbours_met_by_fit_are_not_used_where_some_may_not_be_found():
    rows = uneven_rows(300, 5)
    allowed = np.arange(0, 300, 3)
    found = top_k(rows, k=4, measure="csls", allowed=allowed)
    assert np.isin(found.indices, allowed).all()
    seen = scipy.sparse.csr_array(
        (np.ones(300), top_k(rows, k=1, measure="csls").indices.ravel(), np.arange(301)),
        shape=(300, 300),
    )
    without = top_k(rows, k=4, measure="csls", exclude=seen)
    assert not (without.indices == seen.indices[:, None]).any()


@pytest.mark.parametrize("weight", [0.05, 1.0, 30.0])
@pytest.mark.parametrize(("n", "d"), [(130, 1), (700, 3), (900, 40)])
def test_bands_of_similar_norm_leave_nobody_out(n, d, weight):
    rows = uneven_rows(n, d)
    measure = get_measure("norm_angle_distance", weight=weight)
    truth = oracles.norm_angle(rows, rows, weight)
    np.fill_diagonal(truth, -np.inf)
    best = -np.sort(-truth, axis=1)[:, :7]
    found = top_k(rows, k=7, measure=measure)
    np.testing.assert_allclose(found.scores, best, rtol=1e-6, atol=1e-6 * weight)
    np.testing.assert_allclose(
        np.take_along_axis(truth, found.indices, axis=1), best, rtol=1e-7, atol=1e-7 * weight
    )
    # the columns of equal rows rise
    for row in found.indices.tolist():
        same = [j for j in row if j in (5, 17, 40, 90)]
        assert same == sorted(same)
    for n_threads in (1, 3):
        again = top_k(rows, k=7, measure=measure, n_threads=n_threads)
        np.testing.assert_array_equal(again.indices, found.indices)
        np.testing.assert_array_equal(again.scores, found.scores)


def test_bands_of_similar_norm_keep_exclusions_and_masks():
    rows = uneven_rows(600, 8)
    queries = uneven_rows(120, 8, seed=1)
    random = np.random.default_rng(0)
    seen, allowed = random.random((120, 600)) < 0.2, random.random(600) < 0.6
    truth = oracles.norm_angle(queries, rows, 1.0)
    truth[seen], truth[:, ~allowed] = -np.inf, -np.inf
    given = {"allowed": allowed, "exclude": scipy.sparse.csr_array(seen)}
    best = -np.sort(-truth, axis=1)[:, :5]
    by_index = fastcos.SimilarityIndex("norm_angle_distance").fit(rows).search(queries, 5, **given)
    found = top_k(queries, rows, 5, measure="norm_angle_distance", **given)
    for scores in (found.scores, by_index.scores):
        np.testing.assert_allclose(scores, best, rtol=1e-6)


# --- degenerate rows


@pytest.mark.parametrize("name", BASES)
def test_zero_rows_and_duplicates_are_scored_without_a_warning(name):
    P, B = model_of(name)
    B[3], B[11] = B[4], B[4]
    P[3], P[11] = P[4], P[4]
    if name != "weight_cosine":
        B[7], P[7] = 0, 0
    queries, items = sides(name, P, B)
    found = top_k(queries, items, 6, measure=get_measure(name, **parameters(name, P, B)))
    assert np.isfinite(found.scores).all()
    assert (np.diff(found.scores, axis=1) <= 0).all()
    # duplicates tie: the lower number comes first
    for row in found.indices.tolist():
        places = [row.index(j) for j in (3, 4, 11) if j in row]
        assert places == sorted(places)


ONE_ROW = ["centered_cosine", "all_but_the_top", "zscore_cosine", "layer_norm_cosine", "cosine"]


@pytest.mark.parametrize("name", ONE_ROW)
def test_a_single_row_is_a_zero_row_once_centred(name):
    found = top_k(np.array([[1.0, 2.0, 2.5]]), np.array([[0.1, 0.2, 0.7]]), 1, measure=name)
    assert np.isfinite(found.scores).all()
    only = get_measure(name).fit(np.array([[0.1, 0.2, 0.7]])).items(np.array([[0.1, 0.2, 0.7]]))
    assert only.any() == (name in {"cosine", "layer_norm_cosine"})


@pytest.mark.parametrize("name", ["whitened_cosine", "zscore_cosine", "causal_inner_product"])
def test_constant_columns_are_dropped(name):
    _, B = model()
    extended = np.hstack([B, np.full((len(B), 2), 0.1)])
    ours = top_k(extended, k=5, measure=name)
    np.testing.assert_array_equal(ours.indices, top_k(B, k=5, measure=name).indices)


@pytest.mark.parametrize("name", ["centered_cosine", "zscore_cosine", "layer_norm_cosine"])
@pytest.mark.parametrize("value", [0.1, 1 / 3, 1e-20, 12345.678])
def test_rounding_is_not_taken_for_a_direction(name, value):
    rows = np.full((7, 5), value)
    assert not get_measure(name).fit(rows).items(rows).any()


def test_rows_in_the_null_space_of_a_metric_are_zero_rows():
    S = np.ones((3, 3))
    rows = np.array([[1.0, 2, 3], [0.1, 0.2, -0.3], [1e-3, 0, 0]])
    fitted = get_measure("soft_cosine", matrix=S).fit(rows)
    assert fitted.items(rows).any(axis=1).tolist() == [True, False, True]


# --- the gate

REFUSED = {
    ("soft_cosine", "S not PSD"): (
        {"matrix": [[1, 0.9, 0], [0.9, 1, 0.9], [0, 0.9, 1]]},
        r"matrix must be positive semidefinite, got the eigenvalue -0\.27",
    ),
    ("soft_cosine", "not symmetric"): ({"matrix": [[1, 0.5], [0, 1]]}, "must be symmetric"),
    ("soft_cosine", "not square"): ({"matrix": [[1.0, 0.5]]}, "must be square"),
    ("soft_cosine", "zero"): ({"matrix": np.zeros((2, 2))}, "must have a positive eigenvalue"),
    ("soft_cosine", "nothing"): (
        {},
        r'must be given, as in get_measure\("soft_cosine", matrix=\.\.\.\), got neither',
    ),
    ("scaled_similarity", "alpha"): ({"alpha": 1.1}, r"alpha must be .*<= 1.*got 1\.1"),
    ("scaled_similarity", "below"): ({"alpha": -0.1}, r"alpha must be .*>= 0.*got -0\.1"),
    ("radial_cosine", "power"): ({"power": -1}, "power must be .*>= 0"),
    ("norm_angle_distance", "weight"): ({"weight": 0}, "weight must be .*> 0.*got 0"),
    ("feature_augmented", "weight"): ({"weight": np.nan}, "weight must be a finite number"),
    ("csls", "K"): ({"n_neighbors": 0}, "n_neighbors must be a whole number"),
    ("all_but_the_top", "r"): ({"n_directions": 0.5}, "n_directions must be a whole number"),
    ("whitened_cosine", "ridge"): ({"ridge": -1}, "ridge must be"),
    ("whitened_cosine", "k"): ({"n_components": 0}, "n_components must be"),
    ("popularity_whitened_cosine", "none"): ({}, "popularity must be given"),
    ("learned_diagonal", "none"): ({}, "pairs must be given"),
    ("learned_diagonal", "shape"): ({"pairs": [1, 2]}, r"pairs must be whole numbers of shape"),
    ("learned_diagonal", "equal"): (
        {"pairs": [[0, 1], [1, 2]], "targets": [1, 1]},
        "targets must have two different values",
    ),
    ("learned_diagonal", "condition"): (
        {"pairs": [[0, 1], [1, 2]], "targets": [1, 0], "condition": 0.5},
        "condition must be .*>= 1",
    ),
    ("eq2_cosine", "lambda"): ({"regularization": -1}, "regularization must be"),
    ("query_metric_cosine", "other"): ({"other": [[np.inf]]}, "other must be finite"),
    ("rescaled_cosine", "name"): ({"rescaling": "none"}, "rescaling must be one of identity, "),
    ("rescaled_cosine", "alone"): ({"rescaling": Rescaling(0.5)}, "model must be given, as in get"),
}


@pytest.mark.parametrize("case", REFUSED, ids=" ".join)
def test_a_bad_parameter_is_refused(case):
    given, message = REFUSED[case]
    with pytest.raises(ValueError, match=message):
        get_measure(case[0], **given)


REFUSED_ON_FIT = {
    ("whitened_cosine", "more dimensions than rows"): ({}, (5, 9), "must vary in all 9 dimensions"),
    ("whitened_cosine", "a single row"): ({}, (1, 3), "items must differ from each other .* alike"),
    ("whitened_cosine", "too many components"): ({"n_components": 7}, (9, 3), "from 1 to 3, got 7"),
    ("causal_inner_product", "a single row"): ({}, (1, 3), "must differ from each other"),
    ("popularity_whitened_cosine", "length"): ({"popularity": [1.0]}, (9, 3), "of shape"),
    ("popularity_whitened_cosine", "negative"): (
        {"popularity": -np.ones(9)}, (9, 3), "at least 0 and not all 0",
    ),
    ("soft_cosine", "width"): ({"matrix": np.eye(4)}, (9, 3), "as many columns as matrix"),
    ("all_but_the_top", "all of them"): ({"n_directions": 3}, (9, 3), "from 0 to 2, got 3"),
    ("csls", "K"): ({"n_neighbors": 9}, (9, 3), r"n_neighbors must be at most .* \(8\), got 9"),
    ("project_back_items", "no other side"): ({}, (9, 3), "other must be given, as in get_measure"),
    ("query_metric_cosine", "width"): ({"other": np.ones((4, 2))}, (9, 3), "as many columns"),
    ("rescaled_cosine:data", "no model"): ({}, (9, 3), "model must be given"),
    ("rescaled_cosine", "width"): ({"rescaling": np.ones(2)}, (9, 3), r"of shape \(3,\)"),
    ("learned_diagonal", "numbers"): (
        {"pairs": [[0, 1], [1, 20]], "targets": [1, 0]},
        (9, 3),
        "pairs must be below 9",
    ),
    ("learned_diagonal", "zero rows"): (
        {"pairs": [[0, 1], [1, 2]], "targets": [1, 0]},
        (0, 9, 3),
        "pairs must be of rows that are not zero, got a zero row in every pair",
    ),
    ("weight_cosine", "odd"): ({}, (9, 3), "even number of columns"),
    ("weight_cosine", "negative"): ({}, (9, 4), "W_ii of the rows must be at least 0"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED_ON_FIT, ids=" ".join)
def test_items_that_a_measure_cannot_use_are_refused(case):
    given, (*zero, n, d), message = REFUSED_ON_FIT[case]
    rows = np.zeros((n, d)) if zero else np.random.default_rng(0).standard_normal((n, d))
    with pytest.raises(ValueError, match=message):
        top_k(rows, rows, 1, measure=get_measure(case[0], **given))


@pytest.mark.parametrize("name", ["eq2_cosine", "rescaled_cosine", "rescaled_cosine:data"])
@pytest.mark.parametrize(
    ("make", "came"),
    [
        (lambda: "x", "got str"),
        (lambda: np.ones(3), "got ndarray"),
        (lambda: fastcos.LinearMF(3), "got LinearMF without fit"),
        (lambda: fastcos.LinearMF(2, objective="weight_decay").fit(np.eye(3)), "'weight_decay'"),
    ],
)
def test_a_model_that_is_none_of_eq1_is_refused(name, make, came):
    with pytest.raises(TypeError, match=f"model must be a fitted LinearMF of the .*{came}"):
        get_measure(name, model=make())


def test_a_single_column_has_no_direction_to_remove():
    rows = np.array([[1.0], [2.0], [4.0], [-3.0]])
    found = top_k(rows, k=1, measure="all_but_the_top")
    truth = top_k(rows, k=1, measure="centered_cosine")
    np.testing.assert_array_equal(found.indices, truth.indices)


def test_a_measure_that_is_not_fitted_says_so():
    with pytest.raises(ValueError, match="must be fitted first, got WhitenedCosine"):
        get_measure("whitened_cosine").items(np.ones((2, 2)))


def test_rows_of_another_width_than_the_fitted_ones_are_refused():
    _, B = model()
    for name in ("whitened_cosine", "centered_cosine"):
        with pytest.raises(ValueError, match="as many columns as"):
            get_measure(name).fit(B).queries(B[:, :3])


# --- the family as a whole


@pytest.mark.parametrize("name", list_measures())
def test_a_measure_has_a_summary_and_says_what_it_needs(name):
    line = summaries()[name]
    assert 15 < len(line) <= 100
    assert line.endswith(".") or name == "sign_cosine"
    maker = getattr(REGISTRY[name], "func", REGISTRY[name])
    assert isinstance(maker.needs, str)
    assert set(maker.invariances) <= {"y", "rank", "-"}
    given = set(inspect.signature(maker).parameters)
    told = inspect.getdoc(maker).partition("Parameters\n-")[2]
    assert all(f"{parameter} : " in told for parameter in given - {"args", "kwargs"})


def test_every_measure_of_the_list_is_there_by_name():
    with LIST.open(encoding="utf8") as file:
        rows = [row for row in csv.DictReader(file) if row["kind"] == "measure"]
    names = {row["name"] for row in rows} - {"sts_score"}
    assert names <= set(list_measures())


@pytest.mark.parametrize("name", BASES)
def test_fit_leaves_the_measure_that_was_given_as_it_was(name):
    P, B = model_of(name)
    _, items = sides(name, P, B)
    measure = get_measure(name, **parameters(name, P, B))
    before = dict(vars(measure))
    first = measure.fit(items)
    kept = np.asarray(first.items(items)).copy()
    measure.fit(items[: len(items) // 2] * 2) if name != "popularity_whitened_cosine" else None
    assert vars(measure).keys() == before.keys()
    assert all(vars(measure)[key] is value for key, value in before.items())
    np.testing.assert_array_equal(first.items(items), kept)


def test_declared_invariances_are_those_of_the_list():
    with LIST.open(encoding="utf8") as file:
        rows = [row for row in csv.DictReader(file) if row["kind"] == "measure"]
    told = {}
    for row in rows:
        cells = row["invariances"].split()[:6]
        if all(len(pair.split("=")) == 2 for pair in cells) and len(cells) == 6:
            told[row["name"]] = dict(pair.rstrip(";").split("=") for pair in cells)
    assert len(told) > 30
    for name, cells in told.items():
        maker = getattr(REGISTRY[name], "func", REGISTRY[name])
        ours = maker.invariances._asdict()
        # "only along (1,..,1)" is a "-" with a remark
        differ = {cell for cell in cells if ours[cell] != cells[cell].replace("only", "-")}
        assert not differ, (name, ours, cells)


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(ValueError, match="measure must be one of all_but_the_top, angular"):
        get_measure("cosin")


def test_a_class_of_ones_own_is_found_by_its_name():
    @register
    class Reversed(Plain):
        """Cosine with the reversed item."""

        name = "reversed_for_a_test"

        def items(self, B):
            return B[:, ::-1].copy()

        def queries(self, Q):
            return Q

    try:
        found = top_k(
            np.array([[1.0, 0]]), np.array([[1.0, 0], [0, 1]]), 1, measure="reversed_for_a_test"
        )
        assert found.indices.tolist() == [[1]]
    finally:
        del REGISTRY["reversed_for_a_test"]


def own(**members):
    """An object of a measure class of one's own."""
    return type("Own", (Plain,), {"name": "own", **members})()


@pytest.mark.parametrize(
    ("measure", "error", "message"),
    [
        (
            own(items=lambda self, B: np.where(B[5] == B, np.nan, B)),
            ValueError,
            r"rows of a measure must be finite, got NaN or infinity in row 5 \(a zero row has no",
        ),
        (
            own(items=lambda self, B: B > 0),
            TypeError,
            r"rows of a measure must be float32 or float64, .* got bool of shape \(70, 6\)",
        ),
        (own(items=lambda self, B: B[:, 0]), TypeError, r"\(n, d\), got float64 of shape \(70,\)"),
        (own(items=lambda self, B: B.tolist()), TypeError, r"got list of shape \(70, 6\)"),
        (
            own(form="dot", item_offsets=lambda self, B: B[:3, 0]),
            ValueError,
            r"item_offsets of a measure must be float64 of shape \(70,\), got float64 of shape \(3",
        ),
        (
            own(form="dot", item_offsets=lambda self, B: np.where(B[:, 0] == B[4, 0], np.inf, 0.0)),
            ValueError,
            "item_offsets of a measure must be finite, got inf for row 4",
        ),
        (own(form="cosin"), ValueError, "form of own must be one of dot, cosine, .*, got 'cosin'"),
        (
            type("Nameless", (Plain,), {})(),
            TypeError,
            r"measure must be a name or a Measure \(name, form, .*got Nameless",
        ),
    ],
)
def test_what_a_measure_of_ones_own_must_not_return_is_refused(measure, error, message):
    _, B = model()
    for call in (
        lambda: top_k(B, k=3, measure=measure),
        lambda: fastcos.SimilarityIndex(measure).fit(B).search(B, 3),
    ):
        with pytest.raises(error, match=message):
            call()


def test_answers_have_the_same_bits_on_one_thread_and_many():
    rows = np.random.default_rng(0).standard_normal((700, 33)).astype(np.float32)
    before = fastcos.get_config().num_threads
    for name in ("whitened_cosine", "spearman_dims", "csls", "local_scaling", "layer_norm_cosine"):
        answers = []
        for n_threads in (1, 3):
            fastcos.set_config(num_threads=n_threads)
            answers.append(top_k(rows, k=5, measure=name))
        fastcos.set_config(num_threads=before)
        np.testing.assert_array_equal(answers[0].indices, answers[1].indices)
        np.testing.assert_array_equal(answers[0].scores, answers[1].scores)
