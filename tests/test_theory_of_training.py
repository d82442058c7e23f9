"""Theorem 9 and Lemma C predict the final scale of the dimensions, and the time to reach it.

The reference results are computed by loops in dense float64 NumPy. Only the last section tests
fastcos itself.
"""

import itertools

import numpy as np
import pytest
import scipy.integrate
import scipy.linalg
import scipy.optimize
import scipy.sparse as sp

from fastcos.auditing import gradient_noise


def condition(M):
    """Return κ of a map G with GG' = M: κ = √(λ_max / λ_min), where λ are the eigenvalues of M."""
    values = np.linalg.eigvalsh(M)
    return np.sqrt(values[-1] / values[0])


def canonical(P, Q):
    """Return balanced factors (users, items) of PQ', and the matrix G for which Q = items G."""
    left, singular, right = np.linalg.svd(P @ Q.T, full_matrices=False)
    k = P.shape[1]
    root = np.sqrt(singular[:k])
    items = right[:k].T * root
    return left[:, :k] * root, items, np.linalg.lstsq(items, Q, rcond=None)[0]


def condition_to_balance(P, Q):
    return np.linalg.cond(canonical(P, Q)[2])


def random_spd(rng, k, spread=1.0):
    values, turn = np.exp(spread * rng.normal(size=k)), np.linalg.qr(rng.normal(size=(k, k)))[0]
    return turn * values @ turn.T


# ----- the exact identity


SLOPES = {
    "squared": lambda scores, X: scores - X,
    "logistic": lambda scores, X: 1 / (1 + np.exp(-scores)) - (X > 0),
    "Poisson": lambda scores, X: np.exp(scores) - np.abs(X),
}


def row_decays(name, batch, generator):
    """Return a decay per user and per item; the rows of a side have equal or different decays."""
    n, p = batch.shape
    if name == "of observed rows":
        return 0.3 * batch.any(axis=1), 0.1 * batch.any(axis=0)
    if name == "random by row":
        return generator.uniform(0, 0.5, n), generator.uniform(0, 0.5, p)
    on_users, on_items = {"none": (0, 0), "users": (0.3, 0), "both": (0.2, 0.2)}[name]
    return np.full(n, on_users), np.full(p, on_items)


@pytest.mark.parametrize("decay", ["none", "users", "both", "random by row", "of observed rows"])
@pytest.mark.parametrize("share", [1.0, 0.3, 0.0])
@pytest.mark.parametrize("loss", SLOPES)
def test_one_step_changes_the_balance_by_the_squared_gradients(loss, share, decay):
    """The equation of Theorem 9a holds up to 1e-10, relative to the norms of the Gram matrices.

    The steps are large, and a batch may consist of only one pair.
    """
    rng = np.random.default_rng(0)
    n, p, k, step = 30, 20, 4, 0.05
    P, Q, X = rng.normal(size=(n, k)), rng.normal(size=(p, k)), rng.normal(size=(n, p))
    batch = rng.random((n, p)) < share
    batch[3, 5] = True
    F = batch * SLOPES[loss](P @ Q.T, X)
    user_gradient, item_gradient = F @ Q, F.T @ P
    user_decay, item_decay = (row[:, None] for row in row_decays(decay, batch, rng))
    P_next = P - step * (user_gradient + user_decay * P)
    Q_next = Q - step * (item_gradient + item_decay * Q)
    after = P_next.T @ P_next - Q_next.T @ Q_next
    decayed_P, decayed_Q = (1 - step * user_decay) * P, (1 - step * item_decay) * Q
    first_order = decayed_P.T @ decayed_P - decayed_Q.T @ decayed_Q
    squares = user_gradient.T @ user_gradient - item_gradient.T @ item_gradient
    crossed = P.T @ (user_decay * user_gradient) - Q.T @ (item_decay * item_gradient)
    expected = first_order + step**2 * (squares + crossed + crossed.T)
    scale = np.linalg.norm(P_next.T @ P_next) + np.linalg.norm(Q_next.T @ Q_next)
    assert np.linalg.norm(after - expected) < 1e-10 * scale
    # The second-order term is large enough for this test to notice it.
    assert np.linalg.norm(after - first_order) > 1e-8 * scale


@pytest.mark.slow
def test_full_batches_keep_the_balance_of_the_start_and_small_starts_balance():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(30, 3)) * [6, 4, 3] @ rng.normal(size=(3, 20))
    results = {}
    for size in (0.01, 1.0):
        P, Q = size * rng.normal(size=(30, 3)) * [2, 1, 0.5], size * rng.normal(size=(20, 3))
        start = P.T @ P - Q.T @ Q
        for _ in range(6000):
            F = P @ Q.T - X
            P, Q = P - 5e-4 * F @ Q, Q - 5e-4 * F.T @ P
        assert np.linalg.norm(P @ Q.T - X) < 1e-3 * np.linalg.norm(X)
        drift = P.T @ P - Q.T @ Q - start
        assert np.linalg.norm(drift) < 0.05 * np.linalg.norm(P.T @ P)
        results[size] = condition_to_balance(P, Q)
    assert results[0.01] < 1.05
    assert results[1.0] > 1.15


# ----- the equilibrium


@pytest.mark.slow
def test_two_noise_matrices_balance_at_one_metric_only():
    """M A M = B has one positive definite solution M: a general solver finds no other."""
    rng = np.random.default_rng(2)
    for _ in range(5):
        A, B = random_spd(rng, 3), random_spd(rng, 3)
        root = scipy.linalg.sqrtm(A).real
        inverse = np.linalg.inv(root)
        mean = inverse @ scipy.linalg.sqrtm(root @ B @ root).real @ inverse
        np.testing.assert_allclose(mean @ A @ mean, B, rtol=1e-9, atol=1e-11)
        n_roots = 0
        for _ in range(20):
            half = scipy.optimize.root(
                lambda L, A=A, B=B: (
                    L.reshape(3, 3) @ L.reshape(3, 3).T @ A @ L.reshape(3, 3) @ L.reshape(3, 3).T
                    - B
                ).ravel(),
                np.linalg.cholesky(random_spd(rng, 3)).ravel(),
                method="lm",
            )
            M = half.x.reshape(3, 3) @ half.x.reshape(3, 3).T
            if np.abs(M @ A @ M - B).max() < 1e-9 and np.linalg.eigvalsh(M)[0] > 1e-6:
                n_roots += 1
                np.testing.assert_allclose(M, mean, rtol=1e-5, atol=1e-7)
        assert n_roots > 5


def test_a_root_that_is_not_positive_definite_is_another():
    """M A M = B has another solution, which has other signs and is not positive definite."""
    A, B = np.diag([1.0, 2.0]), np.diag([4.0, 3.0])
    mean = np.diag(np.sqrt(np.diag(B) / np.diag(A)))
    other = mean * [1, -1]
    np.testing.assert_allclose(other @ A @ other, B)
    assert np.abs(other - mean).max() > 1


# ----- stochastic gradient descent


def descended(P, Q, X, users, items, step, decay, epochs, rng):
    """Minimise half of the squared error by gradient descent on one observation at a time."""
    P, Q = P.copy(), Q.copy()
    for _ in range(epochs):
        for t in rng.permutation(len(users)):
            u, i = users[t], items[t]
            residual = P[u] @ Q[i] - X[u, i]
            P[u], Q[i] = (
                P[u] - step * (residual * Q[i] + decay * P[u]),
                Q[i] - step * (residual * P[u] + decay * Q[i]),
            )
    return P, Q


def weights_of(residuals, step, decay):
    """Return, for users and items: step * sum of squared residuals + 2 * decay * visits."""
    n, p = residuals.shape
    return (
        step * (residuals**2).sum(axis=1) + 2 * decay * p,
        step * (residuals**2).sum(axis=0) + 2 * decay * n,
    )


def rest(P, Q, X, step, decay):
    """Return κ of the map from the final to the predicted scale; SciPy computes matrix roots."""
    users, items, G = canonical(P, Q)
    of_users, of_items = weights_of(P @ Q.T - X, step, decay)
    A, B = (items.T * of_items) @ items, (users.T * of_users) @ users
    root = scipy.linalg.sqrtm(A).real
    inverse = np.linalg.inv(root)
    M = inverse @ scipy.linalg.sqrtm(root @ B @ root).real @ inverse
    ratios = scipy.linalg.eigh(M, G @ G.T, eigvals_only=True)
    return np.sqrt(ratios[-1] / ratios[0])


@pytest.fixture(scope="module")
def two_noise_levels():
    """Return data of two dimensions; the items of each dimension have their own noise level."""
    rng = np.random.default_rng(3)
    n, p = 40, 30
    V = np.zeros((p, 2))
    V[:15, 0], V[15:, 1] = rng.normal(size=15), rng.normal(size=15)
    signal = 1.5 * rng.normal(size=(n, 2)) @ V.T
    X = signal + np.where(np.arange(p) < 15, 0.2, 1.0) * rng.normal(size=(n, p))
    users, items = np.divmod(np.arange(n * p), p)
    return X, users, items


@pytest.mark.slow
@pytest.mark.parametrize(("decay", "least"), [(0.0, 1.4), (0.01, 1.15)])
def test_sgd_forgets_its_start_and_rests_where_predicted(two_noise_levels, decay, least):
    """From two different starts, SGD ends at the D that Theorem 9 predicts.

    This D is not the balanced form, even if both users and items have weight decay.
    """
    X, users, items = two_noise_levels
    step, ends = 0.04, []
    for D in (np.array([2.0, 0.5]), np.array([0.5, 2.0])):
        rng = np.random.default_rng(4)
        P, Q = 0.5 * rng.normal(size=(40, 2)) * D, 0.5 * rng.normal(size=(30, 2)) / D
        ends.append(descended(P, Q, X, users, items, step, decay, 100 if decay else 250, rng))
    for P, Q in ends:
        assert rest(P, Q, X, step, decay) < 1.1
        # The fourth premise of Lemma B is that the gradient noise is small. The noise of this
        # training is not small, so the model is not balanced.
        assert condition_to_balance(P, Q) > least


@pytest.mark.slow
def test_decay_that_exceeds_the_noise_balances(two_noise_levels):
    X, users, items = two_noise_levels
    rng = np.random.default_rng(5)
    P, Q = rng.normal(size=(40, 2)), 0.3 * rng.normal(size=(30, 2))
    # The product of the step and the residual variance is at most 0.003. Twice the decay is 0.2, so
    # the decay is much larger than the noise.
    P, Q = descended(P, Q, X, users, items, 0.003, 0.1, 100, rng)
    assert condition_to_balance(P, Q) < 1.05


@pytest.mark.slow
def test_forgetting_takes_the_predicted_epochs():
    """With equal noise v, ln κ decays by (2η²v + 4ηλ) / (n + p) per observation."""
    rng = np.random.default_rng(6)
    n, p, step, decay = 40, 30, 0.02, 0.01
    X = 3 * rng.normal(size=(n, 2)) @ rng.normal(size=(2, p)) + rng.normal(size=(n, p))
    users, items = np.divmod(np.arange(n * p), p)
    P, Q = descended(
        rng.normal(size=(n, 2)), rng.normal(size=(p, 2)), X, users, items, step, decay, 60, rng
    )
    v = np.mean((P @ Q.T - X) ** 2)
    predicted = (n + p) / (n * p * (2 * step**2 * v + 4 * step * decay))
    D = np.array([1.5, 1 / 1.5])
    starts = [(P, Q), (P * D, Q / D)]
    logs = []
    for _ in range(round(2 * predicted)):
        seed = rng.integers(2**31)
        starts = [
            descended(*start, X, users, items, step, decay, 1, np.random.default_rng(seed))
            for start in starts
        ]
        G = np.linalg.lstsq(starts[0][1], starts[1][1], rcond=None)[0]
        logs.append(np.log(np.linalg.cond(G)))
    measured = 1 + int(np.argmax(np.array(logs) < np.log(2.25) / np.e))
    assert predicted / 1.5 < measured < predicted * 1.5


def relaxed(P, Q, X):
    """Minimise half of the squared error of all pairs by gradient flow; return the last factors."""
    split = P.size

    def flow(_, flat):
        users, items = flat[:split].reshape(P.shape), flat[split:].reshape(Q.shape)
        F = users @ items.T - X
        return -np.concatenate([(F @ items).ravel(), (F.T @ users).ravel()])

    start = np.concatenate([P.ravel(), Q.ravel()])
    end = scipy.integrate.solve_ivp(flow, (0, 400), start, "LSODA", rtol=1e-12, atol=1e-14).y[:, -1]
    return end[:split].reshape(P.shape), end[split:].reshape(Q.shape)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "size"),
    [(0, 0.1), (1, 0.3), (2, 0.5)],
)
def test_steps_of_an_epoch_move_the_scale_nearly_without_turning(seed, size):
    """In an epoch, the symmetric part of the change of G agrees with Theorem 9c within 5 %.

    Theorem 9c assumes that the change of G is symmetric. The test starts each step from the fitted
    factors. After the step, gradient flow brings the predictions back to the fitted predictions.
    The test takes each step with both signs, which cancels the first-order terms.
    """
    rng = np.random.default_rng(seed)
    n, p, step = 6, 5, 1e-3
    X = rng.normal(size=(n, 2)) * [3, 1.5] @ rng.normal(size=(2, p))
    X += np.where(np.arange(p) < p // 2, 0.3, 1.5) * rng.normal(size=(n, p))
    U, singular, Vt = np.linalg.svd(X)
    P, Q = U[:, :2] * np.sqrt(singular[:2]), Vt[:2].T * np.sqrt(singular[:2])
    G = np.eye(2) + size * rng.normal(size=(2, 2))
    P, Q = relaxed(P @ np.linalg.inv(G).T, Q @ G, X)
    residuals, change = P @ Q.T - X, np.zeros((2, 2))
    for u, i, sign in itertools.product(range(n), range(p), (step, -step)):
        P_next, Q_next = P.copy(), Q.copy()
        P_next[u] -= sign * residuals[u, i] * Q[i]
        Q_next[i] -= sign * residuals[u, i] * P[u]
        _, Q_next = relaxed(P_next, Q_next, X)
        change += (np.linalg.lstsq(Q, Q_next, rcond=None)[0] - np.eye(2)) / (2 * step**2)
    squares = residuals**2
    excess = (Q.T * squares.sum(axis=0)) @ Q - (P.T * squares.sum(axis=1)) @ P
    S = scipy.linalg.solve_continuous_lyapunov(P.T @ P + Q.T @ Q, -excess)
    assert np.linalg.norm((change + change.T) / 2 - S) < 0.05 * np.linalg.norm(S)


# ----- Lemma C: alternating least squares


def sweep(P, Q, X, on_users, on_items):
    eye = np.eye(Q.shape[1])
    P = X @ Q @ np.linalg.inv(Q.T @ Q + on_users * eye)
    return P, X.T @ P @ np.linalg.inv(P.T @ P + on_items * eye)


def test_als_without_decay_keeps_the_rescaling_of_its_start_for_ever():
    rng = np.random.default_rng(7)
    X, Q = rng.normal(size=(25, 15)), rng.normal(size=(15, 3))
    G = rng.normal(size=(3, 3))
    ends = []
    for start in (Q, Q @ G):
        side = start
        for _ in range(300):
            P, side = sweep(None, side, X, 0.0, 0.0)
        ends.append((P, side))
    (P, items), (P_other, other) = ends
    np.testing.assert_allclose(other, items @ G, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(P_other @ other.T, P @ items.T, atol=1e-8)


def observed_sweep(Q, X, observed):
    """Fit the observed entries in one sweep: first fit all users, and then fit all items."""
    P = np.array([np.linalg.lstsq(Q[seen], row[seen], rcond=None)[0]
                  for row, seen in zip(X, observed, strict=True)])  # fmt: skip
    items = [np.linalg.lstsq(P[seen], column[seen], rcond=None)[0]
             for column, seen in zip(X.T, observed.T, strict=True)]  # fmt: skip
    return P, np.array(items)


def test_als_of_observed_entries_keeps_the_rescaling_of_its_start_too():
    rng = np.random.default_rng(7)
    X, Q, G = rng.normal(size=(25, 15)), rng.normal(size=(15, 3)), rng.normal(size=(3, 3))
    observed = rng.random(X.shape) < 0.7
    items, other = Q, Q @ G
    for _ in range(20):
        P, items = observed_sweep(items, X, observed)
        other_P, other = observed_sweep(other, X, observed)
    np.testing.assert_allclose(other, items @ G, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(other_P @ other.T, P @ items.T, atol=1e-8)


def test_als_with_decay_on_both_balances_only_in_the_limit():
    """With decay on both sides, ALS balances a model in the limit of many sweeps, but not in five.

    Lemma B describes the limit. The test starts from unbalanced factors.
    """
    rng = np.random.default_rng(13)
    X, Q = rng.normal(size=(25, 15)), rng.normal(size=(15, 3)) * [4.0, 1.0, 0.25]
    conditions = []
    for sweeps in (5, 2000):
        items = Q
        for _ in range(sweeps):
            P, items = sweep(None, items, X, 0.3, 0.3)
        conditions.append(condition_to_balance(P, items))
    assert conditions[0] > 1.3
    assert conditions[1] < 1.001


@pytest.mark.slow
def test_als_with_decay_on_users_adds_twice_the_decay_to_the_metric_of_items():
    """A sweep changes the items Q = VT to V(T + λT⁻ᵀ), so their columns become orthonormal.

    More precisely, the columns become orthogonal, and their norms become equal. V contains the
    right singular vectors of the data.
    """
    rng = np.random.default_rng(8)
    U, V = (np.linalg.qr(rng.normal(size=(n, 3)))[0] for n in (25, 15))
    X = U * [9.0, 4.0, 2.0] @ V.T
    T, decay = rng.normal(size=(3, 3)) + 3 * np.eye(3), 0.7
    Q = V @ T
    for _ in range(50):
        _, Q = sweep(None, Q, X, decay, 0.0)
        T = T + decay * np.linalg.inv(T).T
        np.testing.assert_allclose(Q, V @ T, rtol=1e-8, atol=1e-8)
    before = np.linalg.cond(Q)
    for _ in range(5000):
        _, Q = sweep(None, Q, X, decay, 0.0)
    assert np.linalg.cond(Q) < 1.02 < before


@pytest.mark.slow
def test_als_with_decay_on_users_ends_orthonormal_for_data_of_full_rank():
    """Lemma C(b) assumes data of rank k, but also describes the result for data of full rank."""
    rng = np.random.default_rng(14)
    X, Q = rng.normal(size=(25, 15)), rng.normal(size=(15, 3)) * [4.0, 1.0, 0.25]
    conditions = []
    for _ in range(3):
        for _ in range(2000):
            _, Q = sweep(None, Q, X, 0.7, 0.0)
        conditions.append(np.linalg.cond(Q))
    excess = np.array(conditions) - 1
    assert excess[2] < 0.03
    # The condition number minus 1 is inversely proportional to the number of sweeps.
    np.testing.assert_allclose(excess * [1, 2, 3], excess[0], rtol=0.05)


@pytest.mark.slow
def test_gradient_descent_with_decay_on_users_goes_to_the_balanced_form_instead():
    """This loss has no minimum. For a dimension of norm b, b⁴ grows by 4λσ² per unit of time."""
    rng = np.random.default_rng(8)
    U, V = (np.linalg.qr(rng.normal(size=(n, 3)))[0] for n in (25, 15))
    singular, decay, step = np.array([9.0, 4.0, 2.0]), 0.05, 5e-3
    X = U * singular @ V.T
    start = np.array([1.0, 3.0, 1.5])
    P, Q = U * singular / start, V * start
    for _ in range(40_000):
        F = P @ Q.T - X
        P, Q = P - step * (F @ Q + decay * P), Q - step * F.T @ P
    grown = (start**4 + 4 * decay * singular**2 * 40_000 * step) ** 0.25
    np.testing.assert_allclose(np.linalg.norm(Q, axis=0), grown, rtol=0.1)
    assert condition_to_balance(P, Q) < 1.1 < condition_to_balance(U * singular / start, V * start)
    assert np.linalg.cond(Q) > 1.5


# ----- Eq. 1 of the paper, as it is written


def gradient_of_eq1(X, A, B, strength):
    """Return the gradient of ½(‖X - XAB'‖² + λ‖AB'‖²) with respect to AB'."""
    W = A @ B.T
    return X.T @ (X @ W - X) + strength * W


@pytest.mark.slow
def test_eq1_by_full_batches_from_a_small_start_is_d_equal_to_one():
    rng = np.random.default_rng(9)
    turn = np.linalg.qr(rng.normal(size=(6, 6)))[0]
    X = rng.normal(size=(40, 6)) / np.sqrt(40) * np.linspace(2, 0.7, 6) @ turn
    strength, k, ends = 0.3, 3, {}
    for size in (1e-3, 1.0):
        A, B = size * rng.normal(size=(6, k)) * [2, 1, 0.5], size * rng.normal(size=(6, k))
        for _ in range(60_000):
            slope = gradient_of_eq1(X, A, B, strength)
            A, B = A - 0.02 * slope @ B, B - 0.02 * slope.T @ A
        ends[size] = A, B
    values, V = np.linalg.eigh(X.T @ X)
    S = values[-k:] / (values[-k:] + strength)
    expected = V[:, -k:] * np.sqrt(S)
    for A, B in ends.values():
        np.testing.assert_allclose(A @ B.T, expected @ expected.T, atol=2e-3)
    A, B = ends[1e-3]
    np.testing.assert_allclose(B @ B.T, expected @ expected.T, atol=0.01)
    np.testing.assert_allclose(A @ A.T, expected @ expected.T, atol=0.01)
    large = ends[1.0][1]
    assert np.abs(large @ large.T - expected @ expected.T).max() > 0.05


@pytest.mark.slow
def test_eq1_by_sgd_over_users_rests_where_its_noise_balances():
    """From both starts, SGD comes to rest where the squared gradients of A and B have equal sums.

    At this point, D is not I. The gradient of one user with respect to AB' is xr' + λ/n AB', with
    r = BA'x - x.
    """
    rng = np.random.default_rng(10)
    n, p, k, strength = 300, 12, 2, 600.0
    signal = rng.normal(size=(n, k)) * [3.0, 1.2] @ np.linalg.qr(rng.normal(size=(p, k)))[0].T
    X = signal + 0.8 * rng.normal(size=(n, p))
    right = np.linalg.svd(X, full_matrices=False)[2][:k].T

    def slope(x, A, B):
        W = A @ B.T
        return np.outer(x, x @ W - x) + strength / n * W

    metrics = []
    for D in (np.array([0.5, 0.5]), np.array([0.3, 0.8])):
        A, B = right * D, right / D
        on_A, on_B = np.zeros((k, k)), np.zeros((k, k))
        for epoch in range(300):
            for u in rng.permutation(n):
                F = slope(X[u], A, B)
                to_A, to_B = F @ B, F.T @ A
                A, B = A - 3e-3 * to_A, B - 3e-3 * to_B
                if epoch >= 200:
                    on_A, on_B = on_A + to_A.T @ to_A, on_B + to_B.T @ to_B
        assert condition_ratio(on_A, on_B) < 1.1
        assert np.trace(on_A) == pytest.approx(np.trace(on_B), rel=0.1)
        metrics.append(B.T @ B)
        assert condition_to_balance(A, B) > 1.2
    assert condition_ratio(*metrics) < 1.15


def condition_ratio(one, other):
    """Return √(λ_max / λ_min), where λ are the generalised eigenvalues of the two matrices."""
    ratios = scipy.linalg.eigh(one, other, eigvals_only=True)
    return np.sqrt(ratios[-1] / ratios[0])


# ----- gradient_noise of fastcos, compared with its definition


@pytest.fixture(scope="module")
def sparse_model():
    rng = np.random.default_rng(11)
    P, Q = rng.normal(size=(50, 3)) * [3, 1, 1], rng.normal(size=(35, 3)) * [1, 2, 0.5]
    seen = rng.random((50, 35)) < 0.3
    users, items = seen.nonzero()
    slopes = sp.coo_array((rng.normal(size=len(users)) * (1 + items % 3), (users, items)), (50, 35))
    return P, Q, slopes


def test_weights_and_balance_are_those_of_the_definition(sparse_model):
    P, Q, slopes = sparse_model
    step, decays = 0.02, (0.01, 0.03)  # of items, of users
    noise = gradient_noise(Q, P, slopes, step=step, weight_decay=decays)
    of_users, of_items = np.zeros(50), np.zeros(35)
    for u, i, slope in zip(*slopes.coords, slopes.data, strict=True):
        of_users[u] += step * slope**2 + 2 * decays[1]
        of_items[i] += step * slope**2 + 2 * decays[0]
    np.testing.assert_allclose(noise.user_weights, of_users)
    np.testing.assert_allclose(noise.item_weights, of_items)
    G = noise.balancing_map
    items, users = Q @ G, P @ np.linalg.inv(G).T
    np.testing.assert_allclose(users @ items.T, P @ Q.T, atol=1e-12)
    left, right = (items.T * of_items) @ items, (users.T * of_users) @ users
    np.testing.assert_allclose(left, right, rtol=1e-9, atol=1e-9 * np.abs(left).max())
    assert noise.condition == pytest.approx(np.linalg.cond(G))


def test_rest_is_the_same_for_every_parametrisation(sparse_model):
    P, Q, slopes = sparse_model
    G = np.random.default_rng(12).normal(size=(3, 3))
    one = gradient_noise(Q, P, slopes, step=0.1)
    other = gradient_noise(Q @ G, P @ np.linalg.inv(G).T, slopes, step=0.1)
    rows, other_rows = Q @ one.balancing_map, Q @ G @ other.balancing_map
    np.testing.assert_allclose(rows @ rows.T, other_rows @ other_rows.T, atol=1e-9)


def test_dense_slopes_are_observations_of_all_pairs(sparse_model):
    P, Q, slopes = sparse_model
    dense = gradient_noise(Q, P, slopes.toarray(), step=0.1, weight_decay=0.5)
    rows, columns = np.divmod(np.arange(50 * 35), 35)
    values = slopes.toarray().ravel()
    # Stored zeros count as observations.
    stored = gradient_noise(
        Q, P, sp.coo_array((values, (rows, columns)), (50, 35)), step=0.1, weight_decay=0.5
    )
    np.testing.assert_allclose(dense.item_weights, stored.item_weights)
    assert dense.epochs_to_forget == pytest.approx(stored.epochs_to_forget)
    few = gradient_noise(Q, P, slopes, step=0.1, weight_decay=0.5)
    assert few.epochs_to_forget > dense.epochs_to_forget


def test_epochs_to_forget_follow_the_flow_of_the_metric(sparse_model):
    """In epochs_to_forget epochs, a numerical flow comes e times as close to its point of rest.

    The flow changes the factors to QG and PG⁻ᵀ, whose product stays the same. The distance is the
    logarithm of the condition of the map from the current factors to the factors at the point of
    rest.
    """
    P, Q, slopes = sparse_model
    step = 0.01
    noise = gradient_noise(Q, P, slopes, step=step, weight_decay=0.02)

    def velocity(_, flat):
        G = flat.reshape(3, 3)
        items, users = Q @ G, P @ np.linalg.inv(G).T
        excess = (items.T * noise.item_weights) @ items - (users.T * noise.user_weights) @ users
        total = items.T @ items + users.T @ users
        # S is the solution of SC + CS = -step * excess, where C is `total`. This equation is a
        # linear system in the entries of S.
        eye = np.eye(3)
        S = np.linalg.solve(np.kron(eye, total) + np.kron(total, eye), -step * excess.ravel())
        return (G @ S.reshape(3, 3)).ravel()

    times = np.linspace(0, noise.epochs_to_forget, 3)
    path = scipy.integrate.solve_ivp(
        velocity, times[[0, -1]], np.eye(3).ravel(), t_eval=times, rtol=1e-8, atol=1e-10
    )
    logs = []
    for flat in path.y.T:
        here = np.linalg.solve(flat.reshape(3, 3), noise.balancing_map)
        logs.append(np.log(np.linalg.cond(here)))
    assert logs[-1] == pytest.approx(logs[0] / np.e, rel=0.01)


def test_at_rest_the_slowest_direction_counts(sparse_model):
    P, Q, slopes = sparse_model
    step = 0.01
    noise = gradient_noise(Q, P, slopes, step=step)
    G = noise.balancing_map
    P, Q = P @ np.linalg.inv(G).T, Q @ G
    epochs = gradient_noise(Q, P, slopes, step=step).epochs_to_forget
    weighted = (Q.T * noise.item_weights) @ Q + (P.T * noise.user_weights) @ P
    values = scipy.linalg.eigh(weighted, Q.T @ Q + P.T @ P, eigvals_only=True)
    assert epochs == pytest.approx(1 / (step * values[0]), rel=1e-3)
    # A model that is close to rest takes at most 1.1 times as many epochs to forget its start as
    # the model at rest takes.
    for seed in range(5):
        near = np.eye(3) + 0.05 * np.random.default_rng(seed).normal(size=(3, 3))
        moved = gradient_noise(Q @ near, P @ np.linalg.inv(near).T, slopes, step=step)
        assert moved.epochs_to_forget < 1.1 * epochs


def test_extreme_magnitudes_change_the_time_alone(sparse_model):
    P, Q, slopes = sparse_model
    one = gradient_noise(Q, P, slopes, step=0.1, weight_decay=0.5)
    for size in (1e-50, 1e50):
        other = gradient_noise(Q * size, P / size, slopes, step=0.1, weight_decay=0.5)
        assert other.condition == pytest.approx(one.condition, rel=1e-6)
    for step, size in ((1e-40, 1e40), (1e40, 1e-40)):
        other = gradient_noise(Q, P, slopes * size, step=0.1 * step, weight_decay=0.5 * size)
        assert np.isfinite(other.condition)
        assert other.epochs_to_forget > 0


def test_small_steps_take_longer_and_smaller_noise_too(sparse_model):
    P, Q, slopes = sparse_model
    times = [
        gradient_noise(Q, P, factor * slopes, step=step).epochs_to_forget
        for step, factor in ((0.1, 1.0), (0.05, 1.0), (0.1, 0.5))
    ]
    np.testing.assert_allclose(np.array(times) / times[0], [1, 4, 4], rtol=1e-3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"step": 0.0}, "step must be a finite number > 0"),
        ({"weight_decay": -0.1}, "weight_decay must be a finite number >= 0"),
        ({"weight_decay": (0.1, 0.1, 0.1)}, "weight_decay must be one number, or two"),
        ({"weight_decay": "much"}, "weight_decay must be"),
        ({"slopes": np.zeros((35, 50))}, r"slopes must be of shape \(50, 35\)"),
        ({"slopes": sp.coo_array((35, 50))}, r"slopes must be of shape \(50, 35\)"),
        ({"slopes": np.full((50, 35), np.nan)}, "slopes must be finite"),
        ({"slopes": np.zeros((50, 35))}, "got 0 of 3 dimensions"),
        ({"slopes": sp.coo_array((50, 35))}, "neither the noise nor weight_decay changes"),
        ({"slopes": np.eye(50, 35) * (np.arange(35) == 3)}, "got 1 of 3 dimensions"),
        ({"items": np.ones((35, 3))}, "items must have 3 linearly independent columns, got 1"),
        ({"users": np.ones((50, 2))}, "users"),
    ],
)
def test_wrong_arguments_are_refused(sparse_model, change, message):
    P, Q, slopes = sparse_model
    call = {"items": Q, "users": P, "slopes": slopes, "step": 0.1} | change
    items, users, slopes = (call.pop(name) for name in ("items", "users", "slopes"))
    with pytest.raises(ValueError, match=message):
        gradient_noise(items, users, slopes, **call)
