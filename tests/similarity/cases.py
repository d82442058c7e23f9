"""A small model, and the parameters and the formula of every measure."""

import numpy as np
import pytest

from fastcos import get_measure
from fastcos.similarity import UpperBounded
from fastcos.similarity.rescalings import rescalings
from tests.oracles import measures as oracles

N_USERS, N_ITEMS, D = 90, 70, 6


def model(seed=0):
    """Return users P and items B with uneven columns, uneven norms and means other than 0."""
    random = np.random.default_rng(seed)
    P = random.standard_normal((N_USERS, D)) * np.linspace(2, 0.5, D) + 0.3
    B = random.standard_normal((N_ITEMS, D)) * np.linspace(1, 3, D) + random.random(D)
    return P, B * random.uniform(0.5, 2, (N_ITEMS, 1))


class Spectrum:
    """The attributes of a fitted LinearMF that the measures read."""

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


# Each value contains two functions of (P, B). The first function returns the parameters of the
# measure, and the second function returns the scores. The items are also the queries.
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
        lambda P, B: np.corrcoef(B @ P.T),
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
# One measure of each kind. For all other measures, tests of rarer calls are slow, because a default
# test calls most functions with every measure.
OF_EACH_KIND = {
    "cosine", "dot", "neg_euclidean", "rescaled_cosine:identity", "whitened_cosine", "recos",
    "norm_angle_distance", "csls", "mutual_proximity", "weight_cosine", "query_metric_cosine",
    "user_item_dot",
}  # fmt: skip


def mostly_slow(names):
    """Return parameters of a test: all names except those in OF_EACH_KIND are slow."""
    return [
        pytest.param(name, marks=[pytest.mark.slow] * (name not in OF_EACH_KIND)) for name in names
    ]


def norms_of_columns(B):
    return np.sqrt((B**2).sum(axis=0))


def parameters(name, P, B):
    make = CASES[name][0]
    return {} if make is dict else make(P, B)


def sides(name, P, B):
    """For the model (P, B), return the queries and the rows that a measure compares."""
    if name == "weight_cosine":
        return (np.hstack([P[:N_ITEMS], B]),) * 2
    if name == "project_back_users":
        return P, P
    return (P, B) if name in USER_SIDE else (B, B)


def scores(name, P, B):
    """Return all scores of a measure for the model (P, B).

    Plain NumPy computes the scores from the encoded rows. If the measure has an upper bound, the
    measure itself computes the exact scores of all pairs.
    """
    queries, items = sides(name, P, B)
    fitted = get_measure(name, **parameters(name, P, B)).fit(items)
    if isinstance(fitted, UpperBounded):
        every = np.tile(np.arange(len(items)), (len(queries), 1))
        return fitted.to_score(fitted.rescore(queries, fitted.precompute(items), every), queries)
    encoded = fitted.encode_queries(queries), fitted.encode_items(items)
    X, Y = (np.asarray(rows, np.float64) for rows in encoded)
    bias = fitted.item_bias(items)
    if fitted.metric_type == "cosine":
        raw = oracles.cosine(X, Y)
    elif fitted.metric_type == "dot":
        raw = X @ Y.T + (0 if bias is None else bias)
    else:
        raw = -(oracles.euclidean(X, Y) ** 2)
    return fitted.to_score(raw, queries)


def positive_weights(P, B):
    """Return a model in which every W_ii = <a_i, b_i> is positive."""
    A = P[:N_ITEMS].copy()
    signs = np.sign((A * B).sum(axis=1))
    return np.vstack([A * signs[:, None], P[N_ITEMS:]]), B


def model_of(name, seed=0):
    P, B = model(seed)
    return positive_weights(P, B) if name == "weight_cosine" else (P, B)


def truth_of(name, P, B):
    """Return all scores of the measure for a model, by the formula."""
    if name == "weight_cosine":
        return oracles.weights(sides(name, P, B)[1])
    return CASES[name][1](P, B)


def off_diagonal(name, S):
    """Return the scores, without the diagonal if the queries are also the searched rows."""
    return S if name in {"user_item_dot", "user_item_cosine"} else oracles.others(S)


def uneven_rows(n, d, seed=0):
    """Return clusters of different densities, with hubs, duplicates and a zero row.

    The rows are multiplied by factors between 0.1 and 10.
    """
    random = np.random.default_rng(seed)
    centres = random.standard_normal((6, d))
    deviations = 10 ** random.uniform(-2, 0, (6, 1))
    of = random.integers(0, 6, n)
    rows = centres[of] + deviations[of] * random.standard_normal((n, d))
    rows *= 10 ** random.uniform(-1, 1, (n, 1))
    rows[[5, 17, 90]] = rows[40]
    rows[11] = 0
    return rows.astype(np.float32)


def transformed(cell, P, B, seed):
    """Return the changed model; `cell` names the change, like a field of `Invariances`."""
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
