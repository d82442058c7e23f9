"""The audit recognises from the factors that both users and items had weight decay.

If `weight_decay_on` is not given, the audit advises the reader to find out whether users, items or
both had weight decay.
"""

import dataclasses

import numpy as np
import pytest

import fastcos


@pytest.fixture(scope="module")
def als_wr():
    """Return factors of ratings, and the number of ratings of each user and of each item.

    The weight decay of each user and of each item is proportional to its number of ratings. More
    than half of all possible ratings are missing.

    The factors have 4 dimensions. Alternating least squares minimises the squared error plus λ n_u
    |p_u|² + λ m_i |q_i|² (Zhou et al. 2008) until convergence.
    """
    rng = np.random.default_rng(0)
    n, p, d, decay = 60, 40, 4, 0.05
    ratings = rng.standard_normal((n, 3)) @ rng.standard_normal((3, p))
    is_rated = rng.random((n, p)) < rng.uniform(0.2, 1, (n, 1)) * rng.uniform(0.3, 1, p)
    P, Q = rng.standard_normal((n, d)), rng.standard_normal((p, d))

    def solve(rated, mask, others):
        products = (others[:, :, None] * others[:, None, :]).reshape(len(others), d * d)
        grams = (mask @ products).reshape(-1, d, d)
        grams += decay * mask.sum(axis=1)[:, None, None] * np.eye(d)
        return np.linalg.solve(grams, ((mask * rated) @ others)[..., None])[..., 0]

    for _ in range(3000):
        P = solve(ratings, is_rated, Q)
        Q = solve(ratings.T, is_rated.T, P)
    return P, Q, is_rated.sum(axis=1), is_rated.sum(axis=0)


@pytest.mark.slow
def test_weighted_decay_equals_weighted_grams(als_wr):
    P, Q, activity, popularity = als_wr
    left, right = (rows.T @ (counts[:, None] * rows) for rows, counts in
                   ((P, activity), (Q, popularity)))  # fmt: skip
    np.testing.assert_allclose(left, right, rtol=1e-4, atol=1e-4 * np.abs(left).max())


def test_audit_recognises_weighted_decay(als_wr):
    P, Q, activity, popularity = als_wr
    result = fastcos.audit(Q, P, popularity=popularity, activity=activity, k=3)
    assert result.parametrization == "balanced_by_counts"
    assert "is its number of interactions. Training with weight decay" in result.verdict
    assert not dataclasses.replace(result, weight_decay_on="both").is_free
    D = np.geomspace(1, 1.5, 4)
    other = fastcos.audit(Q / D, P * D, popularity=popularity, activity=activity, k=3)
    assert other.parametrization is None
    # Whatever the factors show, the first piece of advice is to find out whether users and items
    # both had weight decay.
    assert "--weight-decay-on" in other.advice[0]
    assert "Weight decay on both users and items would have determined the scale" in other.verdict
    row = next(one for one in other.parametrizations if one.name == "balanced_by_counts")
    assert row.condition == pytest.approx(1.5, rel=0.01)


def test_audit_says_what_balanced_factors_mean():
    rng = np.random.default_rng(1)
    form = fastcos.canonicalize(rng.standard_normal((80, 5)), rng.standard_normal((50, 5)))
    result = fastcos.audit(form.items, form.users, k=3, trained_on="dot")
    assert result.parametrization == "balanced"
    assert "users and items have the same Gram matrix. Training with" in result.verdict
    decided = fastcos.audit(
        form.items, form.users, k=3, trained_on="dot", weight_decay_on="not both"
    )
    # The argument weight_decay_on="not both" means that the users, the items, or both had no weight
    # decay. The scale was therefore chosen by the training algorithm, not by the loss.
    assert "weight decay on users and items" not in decided.verdict
    assert "gradient descent from small initial factors" in decided.verdict
    assert "The algorithm, not the loss, chose this scale of the dimensions" in decided.verdict
    assert "Training chose" not in decided.headline


@pytest.mark.parametrize("weight_decay_on", ["unknown", "both"])
def test_users_and_items_of_different_rank(weight_decay_on):
    rng = np.random.default_rng(0)
    users, items = rng.standard_normal((60, 4)), rng.standard_normal((50, 4))
    users[:, 3] = 0
    report = fastcos.audit(items, users, k=3, trained_on="dot", weight_decay_on=weight_decay_on)
    assert report.condition_to_balance == np.inf
    assert "users and items do not have the same rank" in report.verdict
    assert "condition inf" not in str(report)


def test_activity_needs_users_and_popularity(als_wr):
    P, Q, activity, popularity = als_wr
    with pytest.raises(ValueError, match="activity"):
        fastcos.audit(Q, popularity=popularity, activity=activity, k=3)
    with pytest.raises(ValueError, match="activity"):
        fastcos.audit(Q, P, activity=activity, k=3)
    with pytest.raises(ValueError, match="numbers of interactions"):
        fastcos.audit(Q, P, popularity=-popularity, activity=activity, k=3)


def test_audit_recognises_where_gradient_noise_balances():
    """The audit recognises the model that gradient noise has balanced.

    The items have three noise levels. A second model differs from the balanced model by a rescaling
    of condition 1.5, so the audit does not call it balanced.
    """
    rng = np.random.default_rng(2)
    P, Q = rng.standard_normal((80, 4)), rng.standard_normal((60, 4))
    slopes = rng.standard_normal((80, 60)) * np.repeat([0.2, 1.0, 3.0], 20)
    noise = fastcos.auditing.gradient_noise(Q, P, slopes, step=0.01)
    G = noise.balancing_map
    P, Q = P @ np.linalg.inv(G), Q @ G
    noise = fastcos.auditing.gradient_noise(Q, P, slopes, step=0.01)
    result = fastcos.audit(Q, P, gradient_noise=noise, k=3, trained_on="dot")
    assert result.parametrization == "noise_balanced"
    assert "computed from its gradient noise and its weight decay" in result.verdict
    assert result.epochs_to_forget == pytest.approx(noise.epochs_to_forget)
    assert f"After {noise.epochs_to_forget:,.3g} more epochs" in result.verdict
    plain = fastcos.audit(Q, P, k=3, trained_on="dot")
    assert plain.parametrization is None
    assert plain.epochs_to_forget is None
    D = np.geomspace(1, 1.5, 4)
    noise = fastcos.auditing.gradient_noise(Q / D, P * D, slopes, step=0.01)
    other = fastcos.audit(Q / D, P * D, gradient_noise=noise, k=3, trained_on="dot")
    assert other.parametrization is None
    row = next(one for one in other.parametrizations if one.name == "noise_balanced")
    assert row.condition == pytest.approx(1.5, rel=1e-6)


def test_gradient_noise_is_of_these_items_and_users(als_wr):
    P, Q, *_ = als_wr
    noise = fastcos.auditing.gradient_noise(Q, P, np.ones((60, 40)), step=0.1)
    with pytest.raises(ValueError, match="gradient_noise must be None without users"):
        fastcos.audit(Q, gradient_noise=noise, k=3)
    with pytest.raises(ValueError, match="weights of gradient_noise"):
        fastcos.audit(Q[:30], P, gradient_noise=noise, k=3)
    with pytest.raises(
        TypeError, match=r"gradient_noise must be from gradient_noise\(\), got float"
    ):
        fastcos.audit(Q, P, gradient_noise=0.1, k=3)
