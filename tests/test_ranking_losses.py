"""A ranking loss does not change if one vector is added to all items (Theorem 10).

A ranking loss only compares the scores that one user gives to different items. The tests implement
the losses and the steps of gradient descent in plain NumPy.
"""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_expit, log_softmax

import fastcos

N_USERS, N_ITEMS, K = 12, 9, 3


def model(seed=0):
    rng = np.random.default_rng(seed)
    chosen = rng.integers(0, N_ITEMS, N_USERS)
    return rng.normal(size=(N_USERS, K)), rng.normal(size=(N_ITEMS, K)), chosen


def bpr(S, chosen):
    """The BPR loss (Rendle et al. 2009), with all other items as negatives."""
    differences = S[np.arange(len(S)), chosen][:, None] - S
    return -log_expit(differences).sum()


def hinge(S, chosen):
    differences = S[np.arange(len(S)), chosen][:, None] - S
    return np.maximum(0, 1 - differences).sum()


def softmax(S, chosen):
    return -log_softmax(S, axis=1)[np.arange(len(S)), chosen].sum()


def sampled_softmax(S, chosen):
    """A softmax over four sampled negatives, corrected by the logarithms of their probabilities."""
    rng = np.random.default_rng(7)
    log_shares = np.log(rng.dirichlet(np.ones(S.shape[1])))
    total = 0.0
    for scores, item in zip(S, chosen, strict=True):
        candidates = [item, *rng.choice(S.shape[1], 4, replace=False)]
        total -= log_softmax(scores[candidates] - log_shares[candidates])[0]
    return total


def in_batch_softmax(S, chosen):
    """The InfoNCE loss from users to items, with the other items of the batch as negatives."""
    return -np.trace(log_softmax(S[:, chosen] / 0.3, axis=1))


def softmax_with_item_biases(S, chosen):
    return softmax(S + np.linspace(-1, 1, S.shape[1]), chosen)


def in_batch_softmax_of_both_directions(S, chosen):
    first = np.unique(chosen, return_index=True)[1]
    square = S[np.ix_(first, chosen[first])]
    return -np.trace(log_softmax(square, axis=1)) - np.trace(log_softmax(square, axis=0))


def logistic(S, chosen):
    """The loss of word2vec with negative sampling; all items but the chosen one are negatives."""
    signs = np.full(S.shape, -1.0)
    signs[np.arange(len(S)), chosen] = 1
    return -log_expit(signs * S).sum()


def squared_error(S, chosen):
    return np.square(S - np.eye(S.shape[1])[chosen]).sum()


COMPARISONS = (
    bpr, hinge, softmax, sampled_softmax, in_batch_softmax, softmax_with_item_biases
)  # fmt: skip
OTHERS = (in_batch_softmax_of_both_directions, logistic, squared_error)


def cosines(Q):
    units = Q / np.linalg.norm(Q, axis=1, keepdims=True)
    return units @ units.T


# ----- Theorem 10a: what a ranking loss leaves free


@pytest.mark.parametrize("loss", COMPARISONS)
def test_comparisons_of_items_ignore_a_vector_that_all_items_gain(loss):
    P, Q, chosen = model()
    c = np.array([3.0, -2.0, 1.0])
    assert loss(P @ (Q + c).T, chosen) == pytest.approx(loss(P @ Q.T, chosen), rel=1e-12)


@pytest.mark.parametrize("loss", OTHERS)
def test_losses_of_single_scores_and_of_both_directions_do_not_ignore_it(loss):
    P, Q, chosen = model()
    c = np.array([3.0, -2.0, 1.0])
    assert abs(loss(P @ (Q + c).T, chosen) / loss(P @ Q.T, chosen) - 1) > 0.01


def test_both_directions_ignore_it_if_it_gives_all_users_one_score():
    P, Q, chosen = model()
    P[:, 0] = 1
    c = np.array([5.0, 0.0, 0.0])
    loss = in_batch_softmax_of_both_directions
    assert loss(P @ (Q + c).T, chosen) == pytest.approx(loss(P @ Q.T, chosen), rel=1e-12)


def test_theorem_10_models_with_equal_differences_differ_by_one_affine_map():
    P, Q, _ = model()
    # Construct a second model in which the scores of any two items differ by the same amount as in
    # the first model. Its factors come from a singular value decomposition of these differences.
    scores = P @ Q.T
    shifted = scores + np.random.default_rng(1).normal(size=(N_USERS, 1)) - scores[:, [4]]
    U, s, Vt = np.linalg.svd(shifted - shifted.mean(axis=1, keepdims=True))
    P2, Q2 = U[:, :K] * s[:K], Vt[:K].T + np.array([0.3, 0.1, -2.0])
    design = np.column_stack([Q, np.ones(N_ITEMS)])
    affine, _, rank, _ = np.linalg.lstsq(design, Q2, rcond=None)
    assert rank == K + 1  # one solution only
    G, c = affine[:K], affine[K]
    np.testing.assert_allclose(Q @ G + c, Q2, atol=1e-10)
    np.testing.assert_allclose(P @ np.linalg.inv(G).T, P2, atol=1e-10)


def test_theorem_10_with_item_biases_a_vector_is_also_free_for_the_users():
    P, Q, chosen = model(10)
    b, a = np.linspace(-1, 1, N_ITEMS), np.array([5.0, -3.0, 2.0])
    for loss in COMPARISONS:
        moved = loss((P + a) @ Q.T + (b - Q @ a), chosen)
        assert moved == pytest.approx(loss(P @ Q.T + b, chosen), rel=1e-12)
    # Construct a second model in which the scores of any two items differ by the same amount as in
    # the first model. The columns of its user matrix P2 are random combinations of K + 1 vectors.
    # Together with the vector of ones, the columns of P2 span the same space as the columns of
    # `differences`.
    rng = np.random.default_rng(11)
    differences = P @ (Q - Q.mean(axis=0)).T + (b - b.mean())
    columns = np.linalg.svd(differences)[0][:, : K + 1]
    P2 = columns @ rng.normal(size=(K + 1, K)) + rng.normal(size=K)
    P2_and_one = np.column_stack([P2, np.ones(N_USERS)])
    solution = np.linalg.lstsq(P2_and_one, differences, rcond=None)[0]
    np.testing.assert_allclose(P2_and_one @ solution, differences, atol=1e-10)
    Q2 = solution[:K].T + np.array([0.3, 0.1, -2.0])
    # Multiplying the items of the first model by a matrix G and adding a vector c yields the items
    # of the second model. Multiplying the users of the first model by the transposed inverse of G
    # and adding another vector yields the users of the second model.
    affine, _, rank, _ = np.linalg.lstsq(np.column_stack([Q, np.ones(N_ITEMS)]), Q2, rcond=None)
    assert rank == K + 1
    G, c = affine[:K], affine[K]
    np.testing.assert_allclose(Q @ G + c, Q2, atol=1e-10)
    between_users = P2 - P @ np.linalg.inv(G).T
    np.testing.assert_allclose(between_users, np.tile(between_users[0], (N_USERS, 1)), atol=1e-10)
    assert np.linalg.norm(between_users[0]) > 0.1
    covariances = [Q @ np.cov(P.T) @ Q.T, Q2 @ np.cov(P2.T) @ Q2.T]
    centring = np.eye(N_ITEMS) - 1 / N_ITEMS
    np.testing.assert_allclose(*(centring @ C @ centring for C in covariances), atol=1e-9)


def test_theorem_10_the_query_metric_uses_the_covariance_because_users_may_be_moved():
    P, Q, _ = model(12)
    moved = P + np.array([50.0, -30.0, 20.0])
    covariance, second_moments = (
        [
            cosines(fastcos.query_metric(users, centered=centered).transform(Q))
            for users in (P, moved)
        ]
        for centered in (True, False)
    )
    np.testing.assert_allclose(*covariance, atol=1e-9)
    assert abs(second_moments[0] - second_moments[1]).max() > 0.1
    one, other = (
        next(
            row
            for row in fastcos.audit(Q, users, k=3, trained_on="ranking").invariant_baselines
            if row.name == "query_metric"
        )
        for users in (P, moved)
    )
    assert one.neighbors_kept == other.neighbors_kept
    assert one.rsa == pytest.approx(other.rsa, abs=1e-9)


@pytest.mark.parametrize("loss", [logistic, squared_error])
def test_theorem_10_a_bias_per_user_frees_the_vector_for_every_loss(loss):
    P, Q, chosen = model(13)
    item_biases, user_biases = np.linspace(-1, 1, N_ITEMS), np.linspace(1, 2, N_USERS)
    c = np.array([3.0, -2.0, 1.0])
    # fastcos reads the scores from these attributes of a LightFM model.
    models = [
        SimpleNamespace(
            item_embeddings=items, user_embeddings=P, item_biases=item_biases, user_biases=biases
        )
        for items, biases in ((Q, user_biases), (Q + c, user_biases - P @ c))
    ]
    with pytest.warns(UserWarning, match="biases"):
        factors = [fastcos.from_model(each) for each in models]
    losses = []
    for each in factors:
        users, items = each.scoring_embeddings()
        losses.append(loss(users @ items.T, chosen))
    assert losses[0] == pytest.approx(losses[1], rel=1e-12)
    # Without biases, the loss changes if c is added to all items.
    assert abs(loss(P @ (Q + c).T, chosen) / loss(P @ Q.T, chosen) - 1) > 0.01
    rows = [fastcos.query_metric(each.users).transform(each.items) for each in factors]
    assert abs(cosines(rows[0]) - cosines(rows[1])).max() > 0.1
    centred = [cosines(X - X.mean(axis=0)) for X in rows]
    np.testing.assert_allclose(*centred, atol=1e-9)


# ----- Theorem 10b: what the free vector does to cosines, and what it does not change


def test_theorem_10_a_vector_gives_two_items_every_cosine():
    _, Q, _ = model(2)
    half = (Q[0] - Q[1]) / 2
    middle = (Q[0] + Q[1]) / 2
    across = np.cross(half, [1.0, 2.0, 0.5])
    across *= np.linalg.norm(half) / np.linalg.norm(across)
    for cosine in (-0.99, -0.3, 0.0, 0.5, 0.99):
        c = across * np.sqrt((1 + cosine) / (1 - cosine)) - middle
        assert cosines(Q[:2] + c)[0, 1] == pytest.approx(cosine, abs=1e-12)
    for position, end in ((0, -1), (0.9, -1), (1.1, 1), (5, 1)):
        assert cosines(Q[:2] + position * half - middle)[0, 1] == pytest.approx(end, abs=1e-12)


def test_theorem_10_a_long_vector_brings_all_cosines_to_one():
    _, Q, _ = model(3)
    lowest = [cosines(Q + t * np.array([1.0, 0.0, 0.0])).min() for t in (0, 10, 1e3, 1e6)]
    assert lowest[0] < -0.5
    assert lowest[1] < lowest[2] < lowest[3]
    assert lowest[3] > 1 - 1e-10


def test_centred_query_metric_ignores_affine_maps_and_the_plain_one_does_not():
    P, Q, _ = model(4)
    rng = np.random.default_rng(5)
    G, c = rng.normal(size=(K, K)), 2 * rng.normal(size=K)
    models = [(P, Q), (P @ np.linalg.inv(G).T, Q @ G + c)]
    rows = [fastcos.query_metric(users).transform(items) for users, items in models]
    given, plain, centred = (
        [np.sort(fastcos.top_k(X, k=N_ITEMS - 1, measure=measure).scores) for X in both]
        for both, measure in (
            ([Q for _, Q in models], "cosine"), (rows, "cosine"), (rows, "centered_cosine")
        )
    )  # fmt: skip
    assert abs(given[0] - given[1]).max() > 0.1
    assert abs(plain[0] - plain[1]).max() > 0.1
    np.testing.assert_allclose(*centred, atol=1e-9)
    # Subtract the mean score of each user from the scores of this user. For every two items,
    # `expected` then contains the correlation of their scores over all users.
    scores = P @ Q.T
    expected = np.corrcoef((scores - scores.mean(axis=1, keepdims=True)).T)
    expected = np.sort(expected[~np.eye(N_ITEMS, dtype=bool)].reshape(N_ITEMS, -1))
    np.testing.assert_allclose(centred[0], np.sort(expected), atol=1e-9)
    # For each user, take the difference between the scores of two items. The distance between the
    # two items is the standard deviation of these differences. A standard deviation does not change
    # if a mean is subtracted.
    deviations = (scores[:, :, None] - scores[:, None, :]).std(axis=0)
    for X in rows:
        distances = np.linalg.norm(X[:, None] - X[None], axis=2)
        np.testing.assert_allclose(distances, deviations, atol=1e-9)


def test_canonical_factors_of_centred_items_ignore_affine_maps():
    P, Q, _ = model(6)
    rng = np.random.default_rng(7)
    G, c = rng.normal(size=(K, K)), rng.normal(size=K)
    P2, Q2 = P @ np.linalg.inv(G).T, Q @ G + c
    one, other = (fastcos.canonicalize(U, V - V.mean(axis=0)).items for U, V in ((P, Q), (P2, Q2)))
    np.testing.assert_allclose(one, other, atol=1e-9)
    plain, moved = (fastcos.canonicalize(U, V).items for U, V in ((P, Q), (P2, Q2)))
    assert abs(cosines(plain) - cosines(moved)).max() > 0.1


# ----- Theorem 10c: what training does to the free vector


def train_by_pairs(seed, *, pointwise=False, adam=False):
    """Train by gradient descent on pairs of items.

    Return the sum of all items before the training, and the sum of all items after it.
    """
    P, Q, chosen = model(seed)
    rng = np.random.default_rng(seed)
    start, moments, squares = Q.copy(), np.zeros_like(Q), np.zeros_like(Q)
    for step in range(1, 3001):
        u, j = rng.integers(N_USERS), rng.integers(N_ITEMS)
        i = chosen[u]
        slope_i = -1 / (1 + np.exp(P[u] @ (Q[i] if pointwise else Q[i] - Q[j])))
        slope_j = 1 / (1 + np.exp(-P[u] @ Q[j])) if pointwise else -slope_i
        gradient = np.zeros_like(Q)
        gradient[i] += slope_i * P[u]
        gradient[j] += slope_j * P[u]
        user_step = slope_i * Q[i] + slope_j * Q[j]
        if adam:
            moments += 0.1 * (gradient - moments)
            squares += 0.001 * (gradient**2 - squares)
            gradient = moments / (1 - 0.9**step) / (np.sqrt(squares / (1 - 0.999**step)) + 1e-8)
        Q = Q - 0.02 * gradient
        P[u] -= 0.02 * user_step
    assert abs(Q - start).max() > 0.3
    return start.sum(axis=0), Q.sum(axis=0)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_gradient_descent_on_comparisons_keeps_the_sum_of_the_items(seeds):
    for seed in range(seeds):
        np.testing.assert_allclose(*train_by_pairs(seed), atol=1e-11)
        for other in ({"pointwise": True}, {"adam": True}):
            before, after = train_by_pairs(seed, **other)
            assert abs(before - after).max() > 0.1


@pytest.mark.slow
@pytest.mark.parametrize("loss", [bpr, softmax])
@pytest.mark.parametrize("decay", [np.full(N_ITEMS, 0.3), np.geomspace(0.05, 1, N_ITEMS)])
def test_decay_on_items_centres_their_weighted_mean(loss, decay):
    P, Q, chosen = model(8)
    P /= 2

    def objective(parameters):
        U, V = np.split(parameters, [P.size])
        U, V = U.reshape(P.shape), V.reshape(Q.shape)
        penalty = 0.1 * np.square(U).sum() + (decay[:, None] * np.square(V)).sum()
        return loss(U @ V.T, chosen) + penalty

    result = minimize(objective, np.concatenate([P.ravel(), Q.ravel() + 1]))
    items = result.x[P.size :].reshape(Q.shape)
    size = np.linalg.norm(items)
    assert size > 0.5
    assert np.linalg.norm(decay @ items) < 1e-3 * size
    if np.ptp(decay) > 0:
        assert np.linalg.norm(items.mean(axis=0)) > 0.02 * size


def test_decay_on_users_alone_leaves_the_vector_free():
    P, Q, chosen = model(9)

    def objective(items):
        return bpr(P @ items.T, chosen) + 0.3 * np.square(P).sum()

    assert objective(Q + 4.0) == pytest.approx(objective(Q), rel=1e-12)
