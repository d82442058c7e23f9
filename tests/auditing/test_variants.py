"""Tests of variants and canonical forms: which results depend on the parametrisation."""

import numpy as np
import pytest

import fastcos
from fastcos.auditing.variants import invariant_baselines, parametrizations
from fastcos.models.linear_mf import LinearMF
from fastcos.models.simulation import simulate_interactions
from fastcos.similarity.canonical import canonicalize, query_metric
from fastcos.similarity.moments import moments_of
from tests.oracles.audit import cosine_matrix


def variants(items, users=None):
    own = moments_of(items)
    others = None if users is None else moments_of(users)
    results = [
        *parametrizations(own.second, others and others.second),
        *invariant_baselines(own, users),
    ]
    return {variant.name: cosine_matrix(variant.encode_items(items)) for variant in results}


def test_item_variants_ignore_spectrum_and_shrinkage():
    rng = np.random.default_rng(1)
    V = np.linalg.qr(rng.standard_normal((40, 5)))[0]
    one, other = V * [9, 5, 3, 2, 1], V * [2.0, 1.9, 1.5, 1.4, 0.3]
    assert np.abs(cosine_matrix(one) - cosine_matrix(other)).max() > 0.1
    first, second = variants(one), variants(other)
    for name in ("items_orthonormal", "whitened"):
        np.testing.assert_allclose(first[name], second[name], atol=1e-10)


def test_user_variants_ignore_the_parametrisation():
    rng = np.random.default_rng(2)
    V = np.linalg.qr(rng.standard_normal((40, 5)))[0]
    U = np.linalg.qr(rng.standard_normal((60, 5)))[0]
    s, t, D = np.array([9.0, 5, 3, 2, 1]), np.array([2, 1.9, 1.5, 1.4, 0.3]), np.arange(1.0, 6)
    one, same, other = (
        variants(items, users) for items, users in ((V * s, U), (V * s / D, U * D), (V * t, U))
    )
    for name in ("query_metric", "users_orthonormal", "balanced", "whitened"):
        np.testing.assert_allclose(one[name], same[name], atol=1e-10)
    for name in ("query_metric", "users_orthonormal", "balanced"):
        assert np.abs(one[name] - other[name]).max() > 0.1


def test_parametrizations_hold_in_any_basis():
    """The parametrisations are correct in any basis.

    The expected cosines are computed from an SVD. In the basis of the SVD, the norms of the columns
    are enough to balance the factors. The test also shows that they are not enough in another
    basis.
    """
    rng = np.random.default_rng(9)
    P, Q = rng.standard_normal((80, 6)) @ rng.standard_normal((6, 6)), rng.standard_normal((50, 6))
    _, s, Vt = np.linalg.svd(P @ Q.T, full_matrices=False)
    V, s = Vt[:6].T, s[:6]
    candidates = variants(Q, P)
    predictions = (P @ Q.T).T
    for name, truth in (
        ("items_orthonormal", V),
        ("balanced", V * np.sqrt(s)),
        ("balanced", canonicalize(P, Q).items),
        ("users_orthonormal", V * s),
        ("users_orthonormal", predictions),
        ("query_metric", predictions - predictions.mean(axis=1, keepdims=True)),
    ):
        np.testing.assert_allclose(candidates[name], cosine_matrix(truth), atol=1e-9)
    lengths = np.linalg.norm(P, axis=0) / np.linalg.norm(Q, axis=0)
    by_columns = cosine_matrix(Q * np.sqrt(lengths))
    assert np.abs(by_columns - candidates["balanced"]).max() > 0.3


def test_condition_is_that_of_the_map_from_the_items():
    rng = np.random.default_rng(10)
    V = np.linalg.qr(rng.standard_normal((40, 4)))[0]
    U = np.linalg.qr(rng.standard_normal((60, 4)))[0]
    s, D = np.array([8.0, 4, 2, 1]), np.array([1.0, 3, 1, 1])
    R = np.linalg.qr(rng.standard_normal((4, 4)))[0]
    own, others = moments_of((V * np.sqrt(s) / D) @ R), moments_of((U * np.sqrt(s) * D) @ R)
    results = {one.name: one.condition for one in parametrizations(own.second, others.second)}
    scales = {"balanced": D, "items_orthonormal": D / s**0.5, "users_orthonormal": D * s**0.5}
    for name, scale in scales.items():
        assert results[name] == pytest.approx(scale.max() / scale.min())
    constant = moments_of(np.ones((5, 4)))
    singular = {one.name: one.condition for one in parametrizations(own.second, constant.second)}
    assert singular["users_orthonormal"] is None
    assert singular["balanced"] is None


@pytest.mark.parametrize("rescaling", ["identity", "weights", "data"])
def test_uncentred_query_metric_is_smoothed_rescaling(rescaling):
    data = simulate_interactions(600, 80, random_state=3)
    model = LinearMF(12, regularization=50.0).fit(data.X)
    users = model.user_embeddings(data.X, rescaling).astype(np.float64)
    items = model.item_embeddings(rescaling).astype(np.float64)
    result = cosine_matrix(query_metric(users, centered=False).transform(items))
    smoothed = model.item_embeddings("smoothed").astype(np.float64)
    np.testing.assert_allclose(result, cosine_matrix(smoothed), atol=1e-5)


def test_canonical_form_is_the_balanced_rescaling():
    data = simulate_interactions(600, 80, random_state=4)
    model = LinearMF(6, regularization=50.0).fit(data.X)
    forms = [
        canonicalize(
            model.user_embeddings(data.X, name).astype(np.float64),
            model.item_embeddings(name).astype(np.float64),
        )
        for name in ("identity", "orthonormal", "data")
    ]
    for form in forms[1:]:
        np.testing.assert_allclose(form.singular_values, forms[0].singular_values, rtol=1e-5)
    # The items of the balanced model are S^½ Σ^½ V'.
    balanced = model.item_embeddings("balanced").astype(np.float64)
    np.testing.assert_allclose(cosine_matrix(forms[0].items), cosine_matrix(balanced), atol=1e-4)


def test_one_rescaling_makes_all_items_similar():
    data = simulate_interactions(1000, 120, random_state=5)
    used = np.flatnonzero(np.bincount(data.X.indices, minlength=120))
    items = LinearMF(8, regularization=100.0).fit(data.X).item_embeddings().astype(np.float64)
    D = np.ones(8)
    D[0] = 1e-5
    assert cosine_matrix(items[used]).min() < 0.5
    assert cosine_matrix(items[used] / D).min() > 1 - 1e-6


def repeated_rows():
    """Return users and items. There are only 40 distinct items, so ties decide most lists."""
    rng = np.random.default_rng(11)
    distinct = rng.standard_normal((40, 7)).astype(np.float32)
    items = distinct[np.sort(rng.integers(0, 40, 480))]
    return items, rng.standard_normal((60, 7)).astype(np.float32)


@pytest.mark.slow
def test_variants_keep_equal_rows_equal_in_any_block():
    items, users = repeated_rows()
    own, others = moments_of(items), moments_of(users)
    results = [*parametrizations(own.second, others.second), *invariant_baselines(own, users)]
    assert len(results) == 5
    n_distinct = len(np.unique(items, axis=0))
    for variant in results:
        whole = variant.encode_items(items)
        assert len(np.unique(whole, axis=0)) == n_distinct, variant.name
        for size in (1, 3, 101):
            parts = [
                variant.encode_items(items[lo : lo + size]) for lo in range(0, len(items), size)
            ]
            np.testing.assert_array_equal(np.concatenate(parts), whole, err_msg=variant.name)


@pytest.mark.slow
def test_audit_of_repeated_rows_ignores_their_order():
    """The order of repeated rows does not change the shares that an audit reports.

    The audit lists the neighbours of all rows, not of a random sample. Only the order of tied rows
    could therefore change a share.
    """
    items, users = repeated_rows()
    order = np.random.default_rng(12).permutation(len(items))
    first, second = (fastcos.audit(rows, users, k=5) for rows in (items, items[order]))
    for one, other in zip(
        (*first.parametrizations, *first.invariant_baselines),
        (*second.parametrizations, *second.invariant_baselines),
        strict=True,
    ):
        assert one.jaccard == pytest.approx(other.jaccard, abs=1e-12), one.name
        assert one.jaccard > 0.9  # In every variant, an item's copies are its nearest neighbours.
        assert one.neighbors_kept == pytest.approx(other.neighbors_kept, abs=1e-12)


def test_neighbors_kept_is_the_share_that_both_lists_hold():
    items, users = repeated_rows()
    items = np.unique(items, axis=0)
    report = fastcos.audit(items, users, k=4)
    units = items / np.linalg.norm(items, axis=1, keepdims=True)
    metric = np.cov(users.astype(np.float64).T)
    mapped = items @ np.linalg.cholesky(metric)
    mapped /= np.linalg.norm(mapped, axis=1, keepdims=True)
    shares = []
    for i in range(len(items)):
        lists = []
        for rows in (units, mapped):
            scores = rows @ rows[i]
            scores[i] = -2
            lists.append(set(np.argsort(-scores)[:4].tolist()))
        shares.append(len(lists[0] & lists[1]) / 4)
    (result,) = [one for one in report.invariant_baselines if one.name == "query_metric"]
    assert result.neighbors_kept == pytest.approx(np.mean(shares), abs=1e-12)


def test_canonical_forms_keep_equal_rows_equal():
    items, users = repeated_rows()
    n_distinct = len(np.unique(items, axis=0))
    assert len(np.unique(canonicalize(users, items).items, axis=0)) == n_distinct
    assert len(np.unique(canonicalize(items, users).users, axis=0)) == n_distinct
    metric = query_metric(users)
    assert len(np.unique(metric.transform(items), axis=0)) == n_distinct
    alone = np.concatenate([metric.transform(items[i : i + 1]) for i in range(len(items))])
    np.testing.assert_array_equal(alone, metric.transform(items))
