"""Canonical factors and the query metric do not depend on the parametrisation of a model."""

import numpy as np
import pytest
from scipy.linalg import qr

from fastcos.similarity.canonical import canonicalize, query_metric
from tests.oracles.audit import cosine_matrix, random_map


def factors(seed, n=60, p=40, k=8):
    """Return a generator, balanced factors of a model, and their distinct singular values."""
    rng = np.random.default_rng(seed)
    U, V = (qr(rng.standard_normal((m, k)), mode="economic")[0] for m in (n, p))
    s = np.linspace(12, 1, k)
    return rng, U * np.sqrt(s), V * np.sqrt(s), s


def reparametrised(rng, P, Q, condition):
    G = random_map(rng, P.shape[1], condition)
    return P @ np.linalg.inv(G).T, Q @ G


@pytest.mark.parametrize(
    "condition", [*(pytest.param(one, marks=pytest.mark.slow) for one in (1.5, 100.0)), 1e4]
)
def test_equivalent_factors_have_one_canonical_form(condition):
    for seed in range(50):
        rng, P, Q, s = factors(seed)
        one, other = canonicalize(P, Q), canonicalize(*reparametrised(rng, P, Q, condition))
        np.testing.assert_allclose(other.items, one.items, atol=1e-10)
        np.testing.assert_allclose(other.users, one.users, atol=1e-10)
        np.testing.assert_allclose(one.singular_values, s, rtol=1e-12)


def test_canonical_factors_are_balanced():
    rng, P, Q, _ = factors(1)
    P, Q = reparametrised(rng, P, Q, 50.0)
    canonical = canonicalize(P, Q)
    np.testing.assert_allclose(canonical.users @ canonical.items.T, P @ Q.T, atol=1e-11)
    for side in (canonical.users, canonical.items):
        np.testing.assert_allclose(side.T @ side, np.diag(canonical.singular_values), atol=1e-12)
    least = 2 * np.linalg.svd(P @ Q.T, compute_uv=False).sum()
    assert (canonical.users**2).sum() + (canonical.items**2).sum() == pytest.approx(least)
    largest = np.abs(canonical.items).argmax(axis=0)
    assert (canonical.items[largest, np.arange(8)] > 0).all()


def test_canonical_form_is_the_svd_of_the_product():
    rng = np.random.default_rng(2)
    P, Q = rng.standard_normal((9, 3)), rng.standard_normal((7, 3))
    _, s, Vt = np.linalg.svd(P @ Q.T)
    canonical = canonicalize(P, Q)
    np.testing.assert_allclose(
        np.abs(canonical.items), np.abs(Vt[:3].T * np.sqrt(s[:3])), atol=1e-12
    )


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_canonicalize_ignores_extreme_column_scales(scale):
    _, P, Q, _ = factors(3)
    D = np.array([1, scale, 1, 1, 1 / scale, 1, 1, 1])
    one, other = canonicalize(P, Q), canonicalize(P / D, Q * D)
    np.testing.assert_allclose(other.items, one.items, atol=1e-12)


def test_columns_beyond_the_rank_are_zero_with_a_warning():
    rng, P, Q, _ = factors(4)
    Q = Q.copy()
    Q[:, 6] = Q[:, 2] - Q[:, 5]
    P[:, 0] = 0
    with pytest.warns(UserWarning, match="rank 6: 2 of 8 columns are zero"):
        canonical = canonicalize(*reparametrised(rng, P, Q, 1e3))
    assert (canonical.items[:, 6:] == 0).all()
    assert (canonical.users[:, 6:] == 0).all()
    assert (canonical.singular_values[6:] == 0).all()
    np.testing.assert_allclose(canonical.users @ canonical.items.T, P @ Q.T, atol=1e-10)


def test_canonicalize_takes_few_rows_and_zero_factors():
    P, Q = np.ones((2, 5)), np.arange(15.0).reshape(3, 5)
    with pytest.warns(UserWarning, match="rank 1"):
        canonical = canonicalize(P, Q)
    np.testing.assert_allclose(canonical.users @ canonical.items.T, P @ Q.T, atol=1e-12)
    with pytest.warns(UserWarning, match="rank 0"):
        assert not canonicalize(np.zeros((4, 2)), np.ones((3, 2))).items.any()


def test_float32_noise_does_not_add_rank():
    rng, P, Q, _ = factors(5)
    Q[:, 7] = 0
    P, Q = (side.astype(np.float32) for side in reparametrised(rng, P, Q, 10.0))
    with pytest.warns(UserWarning, match="rank 7"):
        canonicalize(P, Q)


@pytest.mark.parametrize("centered", [True, False])
@pytest.mark.parametrize("condition", [2.0, 1e4])
def test_query_metric_ignores_reparametrisation(centered, condition):
    for seed in range(20):
        rng, P, Q, _ = factors(seed)
        P = P + 0.3
        P2, Q2 = reparametrised(rng, P, Q, condition)
        one = cosine_matrix(query_metric(P, centered=centered).transform(Q))
        other = cosine_matrix(query_metric(P2, centered=centered).transform(Q2))
        np.testing.assert_allclose(other, one, atol=1e-10)


def test_query_metric_cosine_is_correlation_of_scores():
    _, P, Q, _ = factors(6)
    metric = query_metric(P)
    scores = Q @ P.T
    np.testing.assert_allclose(cosine_matrix(metric.transform(Q)), np.corrcoef(scores), atol=1e-12)
    np.testing.assert_allclose(metric.metric, np.cov(P.T, bias=True), atol=1e-14)
    plain = query_metric(P, centered=False)
    np.testing.assert_allclose(cosine_matrix(plain.transform(Q)), cosine_matrix(scores), atol=1e-12)
    np.testing.assert_allclose(plain.factor @ plain.factor.T, P.T @ P / len(P), atol=1e-14)


def test_query_metric_ignores_item_norms():
    rng, P, Q, _ = factors(7)
    metric = query_metric(P)
    one = cosine_matrix(metric.transform(Q))
    other = cosine_matrix(metric.transform(Q * rng.uniform(0.1, 9, (len(Q), 1))))
    np.testing.assert_allclose(other, one, atol=1e-13)


def test_a_singular_metric_has_fewer_dimensions():
    _, P, Q, _ = factors(8)
    P[:, 3] = P[:, 1]
    Q[0] = 0
    Q[0, 3], Q[0, 1] = 1.0, -1.0
    metric = query_metric(P)
    assert metric.factor.shape == (8, 7)
    np.testing.assert_allclose(metric.transform(Q)[0], 0, atol=1e-14)
    few = query_metric(P[:3])
    assert few.factor.shape == (8, 2)
    assert query_metric(P[:1]).factor.shape == (8, 0)


def test_query_metric_of_many_users_is_the_covariance():
    # The 70,000 users form two blocks, because a block has 65,536 users.
    rng = np.random.default_rng(9)
    users = (rng.standard_normal((70_000, 6)) * np.arange(1, 7) + 2).astype(np.float32)
    whole = query_metric(users)
    np.testing.assert_allclose(whole.metric, np.cov(users.T.astype(float), bias=True), atol=1e-10)
    sampled = query_metric(users, sample=4000, random_state=3)
    assert not np.array_equal(sampled.metric, whole.metric)
    again = query_metric(users, sample=4000, random_state=3)
    np.testing.assert_array_equal(sampled.metric, again.metric)
    np.testing.assert_allclose(sampled.metric, whole.metric, atol=2)
    assert whole.transform(users[:4]).dtype == np.float32


def test_query_metric_of_float32_beyond_its_range_is_refused():
    users = (np.random.default_rng(0).standard_normal((40, 5)) * 1e30).astype(np.float32)
    with pytest.raises(ValueError, match=r"items must be so small that .* do not overflow float32"):
        query_metric(users).transform(users)
    assert np.isfinite(query_metric(users).transform(users.astype(np.float64))).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: canonicalize(np.ones((2, 3)), np.ones((2, 4))), "items must have as many columns"),
        (lambda: query_metric(np.ones((2, 3)), sample=5), "sample must be a whole number from 1"),
        (lambda: query_metric(np.ones((2, 3))).transform(np.ones((2, 2))), "items must have as"),
    ],
)
def test_errors_name_the_argument(call, message):
    with pytest.raises(ValueError, match=message):
        call()
