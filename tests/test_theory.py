"""The paper's identities and closed forms, each with its condition and a counterexample.

The reference results are computed by dense float64 NumPy: the objectives by their definitions,
singular value decompositions by LAPACK, and matrix square roots by SciPy. Only the embeddings of
LinearMF are computed by fastcos.
"""

import itertools

import numpy as np
import pytest
from scipy.linalg import sqrtm
from scipy.optimize import minimize

from fastcos.models.linear_mf import AmbiguousSolutionWarning, LinearMF

NAMES = ("identity", "orthonormal", "weights", "balanced", "smoothed", "data")
EXPONENTS = {  # items V S^a Σ^b
    "identity": (0.5, 0),
    "orthonormal": (0, 0),
    "weights": (1, 0),
    "balanced": (0.5, 0.5),
    "smoothed": (1, 1),
    "data": (0, 1),
}


def random_interactions(n=40, p=9, seed=0):
    return np.random.default_rng(seed).normal(size=(n, p)) * np.linspace(3, 1, p)


def deficient_interactions(n=40, p=9, rank=5, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, rank)) @ rng.normal(size=(rank, p))


def rows_unit(R):
    lengths = np.linalg.norm(R, axis=1, keepdims=True)
    return np.divide(R, lengths, out=np.zeros_like(R), where=lengths > 1e-9 * lengths.max())


def cosines(R, other=None):
    return rows_unit(R) @ rows_unit(R if other is None else other).T


def correlations(gram):
    """Return the cosines of vectors, given their inner products."""
    lengths = np.sqrt(np.diag(gram))
    return gram / np.outer(lengths, lengths)


def objective_dropout(X, A, B, strength):
    return np.sum((X - X @ A @ B.T) ** 2) + strength * np.sum((A @ B.T) ** 2)


def objective_weight_decay(X, A, B, strength):
    decay = np.sum((X @ A) ** 2) + np.sum(B**2)
    return np.sum((X - X @ A @ B.T) ** 2) + strength * decay


OBJECTIVES = {"dropout": objective_dropout, "weight_decay": objective_weight_decay}


def solution(X, k, strength, objective="dropout", rescaling=None):
    """Return A and B of LinearMF."""
    model = LinearMF(k, objective=objective, regularization=strength).fit(X)
    return model.user_embeddings(np.eye(X.shape[1]), rescaling), model.item_embeddings(rescaling)


def embeddings(X, k, strength, rescaling=None):
    """Return the user and item embeddings of LinearMF for objective (1)."""
    model = LinearMF(k, regularization=strength).fit(X)
    return model.user_embeddings(X, rescaling), model.item_embeddings(rescaling)


def truth(X, k, strength):
    """Return U_k, σ, V_k and S, computed by LAPACK."""
    U, s, Vt = np.linalg.svd(X, full_matrices=False)
    s = np.where(s > 1e-10 * s[0], s, 0)[:k]
    return U[:, :k], s, Vt[:k].T, s**2 / (s**2 + strength)


# ----- closed forms


@pytest.mark.parametrize("strength", [0.0, 0.5, 30.0])
@pytest.mark.parametrize("k", [1, 4, 9])
def test_objective_1_is_solved_by_the_shrunk_projector(k, strength):
    X = random_interactions()
    _, _, V, S = truth(X, k, strength)
    A, B = solution(X, k, strength)
    np.testing.assert_allclose(A @ B.T, V @ np.diag(S) @ V.T, atol=1e-12)
    np.testing.assert_allclose(A, B, atol=1e-14)


@pytest.mark.parametrize("strength", [0.5, 12.0])
@pytest.mark.parametrize("k", [1, 4, 9])
def test_objective_2_is_solved_by_soft_thresholds(k, strength):
    X = random_interactions()
    U, s, V, _ = truth(X, k, strength)
    A, B = solution(X, k, strength, "weight_decay")
    root = np.sqrt(np.maximum(s - strength, 0))
    np.testing.assert_allclose(B @ B.T, V * root**2 @ V.T, atol=1e-11)
    np.testing.assert_allclose(X @ A @ B.T, U * root**2 @ V.T, atol=1e-11)
    np.testing.assert_allclose((X @ A).T @ X @ A, np.diag(root**2), atol=1e-11)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize(
    "X", [random_interactions(), deficient_interactions()], ids=["full", "low"]
)
@pytest.mark.parametrize(("k", "strength"), [(2, 3.0), (5, 0.1), (9, 20.0)])
def test_closed_forms_are_local_minima(objective, X, k, strength):
    rng = np.random.default_rng(k)
    value = OBJECTIVES[objective]
    A, B = solution(X, k, strength, objective)
    best = value(X, A, B, strength)
    for trial in range(100):
        size = 10.0 ** -(trial % 5)
        near = (A + size * rng.normal(size=A.shape), B + size * rng.normal(size=B.shape))
        assert value(X, *near, strength) >= best - 1e-9 * best


def fitted_by_descent(loss, gradients, shapes, seed):
    """Return a local minimum found by BFGS from a random start: its value and two matrices."""
    rng = np.random.default_rng(seed)
    split = int(np.prod(shapes[0]))

    def matrices(x):
        return x[:split].reshape(shapes[0]), x[split:].reshape(shapes[1])

    optimum = minimize(
        lambda x: loss(*matrices(x)),
        rng.normal(size=split + int(np.prod(shapes[1]))),
        jac=lambda x: np.concatenate([g.ravel() for g in gradients(*matrices(x))]),
        method="BFGS",
        options={"gtol": 1e-9, "maxiter": 5000},
    )
    return optimum.fun, *matrices(optimum.x)


def gradients_dropout(X, A, B, strength):
    residual = X @ A @ B.T - X
    slope = 2 * (X.T @ residual + strength * A @ B.T)
    return slope @ B, slope.T @ A


def gradients_weight_decay(X, A, B, strength):
    residual = X @ A @ B.T - X
    to_A = 2 * (X.T @ residual @ B + strength * X.T @ X @ A)
    return to_A, 2 * (residual.T @ X @ A + strength * B)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("strength", [0.3, pytest.param(2.0, marks=pytest.mark.slow)])
def test_gradient_descent_reaches_the_closed_form(objective, strength):
    X = random_interactions(n=8, p=4, seed=3)
    value = OBJECTIVES[objective]
    slopes = {"dropout": gradients_dropout, "weight_decay": gradients_weight_decay}[objective]
    best = value(X, *solution(X, 2, strength, objective), strength)
    reached = [
        fitted_by_descent(
            lambda A, B: value(X, A, B, strength),
            lambda A, B: slopes(X, A, B, strength),
            [(4, 2), (4, 2)],
            seed,
        )[0]
        for seed in range(8)
    ]
    assert min(reached) == pytest.approx(best, rel=1e-7)
    assert min(reached) >= best * (1 - 1e-12)


@pytest.mark.parametrize("k", [1, 4, 9])
@pytest.mark.parametrize("strength", [0.5, 12.0])
@pytest.mark.parametrize(
    "X", [random_interactions(), deficient_interactions()], ids=["full", "low"]
)
def test_minimum_values_equal_the_formulas(X, k, strength):
    s = np.linalg.svd(X, compute_uv=False)
    first = np.sum(s**2) - np.sum(s[:k] ** 4 / (s[:k] ** 2 + strength))
    in_basis = np.zeros(len(s), dtype=bool)
    in_basis[:k] = s[:k] > strength
    second = np.sum(2 * strength * s[in_basis] - strength**2) + np.sum(s[~in_basis] ** 2)
    A, B = solution(X, k, strength)
    assert objective_dropout(X, A, B, strength) == pytest.approx(first, rel=1e-11)
    A, B = solution(X, k, strength, "weight_decay")
    assert objective_weight_decay(X, A, B, strength) == pytest.approx(second, rel=1e-11)


def test_objective_2_equals_the_usual_factorisation():
    X, strength = random_interactions(n=6, p=4, seed=5), 1.0

    def loss(P, Q):
        return np.sum((X - P @ Q.T) ** 2) + strength * (np.sum(P**2) + np.sum(Q**2))

    def gradients(P, Q):
        residual = P @ Q.T - X
        return 2 * (residual @ Q + strength * P), 2 * (residual.T @ P + strength * Q)

    A, B = solution(X, 2, strength, "weight_decay")
    values, Ps, Qs = zip(
        *(fitted_by_descent(loss, gradients, [(6, 2), (4, 2)], seed) for seed in range(5)),
        strict=True,
    )
    best = int(np.argmin(values))
    assert values[best] == pytest.approx(objective_weight_decay(X, A, B, strength), rel=1e-8)
    np.testing.assert_allclose(cosines(Qs[best]), cosines(B), atol=1e-5)
    np.testing.assert_allclose(cosines(Ps[best]), cosines(X @ A), atol=1e-5)


def test_exact_dropout_weights_items_by_their_norm():
    rng = np.random.default_rng(1)
    X, W, rate = rng.normal(size=(5, 4)), rng.normal(size=(4, 4)), 0.3
    expected = 0.0
    for mask in itertools.product([0, 1], repeat=4):
        in_basis = np.array(mask)
        chance = np.prod(np.where(in_basis, 1 - rate, rate))
        expected += chance * np.sum((X - (X * in_basis / (1 - rate)) @ W) ** 2)
    norms = np.sum(X**2, axis=0)
    penalty = rate / (1 - rate) * np.sum(norms * np.sum(W**2, axis=1))
    assert expected == pytest.approx(np.sum((X - X @ W) ** 2) + penalty, rel=1e-12)
    uniform = rate / (1 - rate) * norms.mean() * np.sum(W**2)
    # The two penalties are equal only if all items have the same norm.
    assert penalty != pytest.approx(uniform, rel=1e-3)


# ----- what is unique and what is not


def test_ties_at_the_cut_leave_two_solutions_and_warn():
    X = np.diag([4.0, 2.0, 2.0, 1.0])
    text = r"last component and the next component have equal singular values \(2 and 2\)"
    with pytest.warns(AmbiguousSolutionWarning, match=text):
        A, B = solution(X, 2, 3.0)
    best = objective_dropout(X, A, B, 3.0)
    # Two directions have the same singular value. `other` contains the direction that B lacks.
    other = B[[0, 2, 1, 3]]
    assert not np.allclose(cosines(B), cosines(other))
    assert objective_dropout(X, other, other, 3.0) == pytest.approx(best, rel=1e-12)


@pytest.mark.parametrize(
    ("k", "objective", "strength"), [(3, "dropout", 3.0), (2, "weight_decay", 2.5)]
)
def test_ties_of_zero_columns_do_not_warn(k, objective, strength):
    LinearMF(k, objective=objective, regularization=strength).fit(np.diag([4.0, 2.0, 2.0, 1.0]))


def test_lambda_0_gives_the_projector_and_needs_full_rank():
    X = random_interactions()
    _, _, V, _ = truth(X, 4, 0)
    A, B = solution(X, 4, 0.0)
    np.testing.assert_allclose(A @ B.T, V @ V.T, atol=1e-12)
    X = deficient_interactions()
    A, B = solution(X, 5, 0.0)
    # The product of X and the vector `null` is 0. Adding `null` to all columns of A changes the
    # model, but not the fit of the model.
    null = np.linalg.svd(X)[2][-1]
    other = A + np.outer(null, np.ones(5))
    assert not np.allclose(other @ B.T, A @ B.T)
    assert objective_dropout(X, other, B, 0.0) == pytest.approx(
        objective_dropout(X, A, B, 0.0), abs=1e-9
    )


def test_objective_2_columns_below_the_threshold_are_zero():
    X = random_interactions()
    s = np.linalg.svd(X, compute_uv=False)
    model = LinearMF(9, objective="weight_decay", regularization=(s[3] + s[4]) / 2).fit(X)
    assert model.effective_rank_ == 4
    assert not model.item_embeddings()[:, 4:].any()
    assert not model.transform(X)[:, 4:].any()
    nothing = LinearMF(9, objective="weight_decay", regularization=s[0] * 1.01).fit(X)
    assert nothing.effective_rank_ == 0
    assert not nothing.item_embeddings().any()


def test_model_has_the_rank_of_the_data():
    X = deficient_interactions(rank=5)
    model = LinearMF(9, regularization=1.0).fit(X)
    assert model.effective_rank_ == 5
    A, B = solution(X, 9, 1.0)
    assert np.linalg.matrix_rank(A @ B.T, tol=1e-8) == 5


def test_regularization_scales_with_the_number_of_users():
    X = random_interactions()
    twice = np.vstack([X, X])
    for objective, factor in (("dropout", 2.0), ("weight_decay", np.sqrt(2.0))):
        A, B = solution(X, 4, 3.0, objective)
        A2, B2 = solution(twice, 4, 3.0 * factor, objective)
        np.testing.assert_allclose(A @ B.T, A2 @ B2.T, atol=1e-12)
        np.testing.assert_allclose(cosines(B), cosines(B2), atol=1e-12)


def test_knees_of_both_objectives_correspond():
    X = np.diag([200.0, 100.0, 50.0])
    first = LinearMF(3, regularization=1e4).fit(X)
    second = LinearMF(3, objective="weight_decay", regularization=100.0).fit(X)
    np.testing.assert_allclose(first.shrinkage_, [0.8, 0.5, 0.2])
    np.testing.assert_allclose(second.shrinkage_, [0.5, 0, 0])


# ----- invariance


def test_objective_1_allows_any_map_and_2_only_rotations():
    X, rng = random_interactions(), np.random.default_rng(2)
    G = rng.normal(size=(4, 4))
    D = np.diag([2.0, 1.0, 1.0, 1.0])
    R = np.linalg.qr(rng.normal(size=(4, 4)))[0]
    for objective, value in OBJECTIVES.items():
        A, B = solution(X, 4, 2.0, objective)
        best = value(X, A, B, 2.0)
        assert value(X, A @ R, B @ R, 2.0) == pytest.approx(best, rel=1e-12)
        for change in (G, D):
            changed = value(X, A @ np.linalg.inv(change).T, B @ change, 2.0)
            if objective == "dropout":
                assert changed == pytest.approx(best, rel=1e-11)
            else:
                assert changed > best * (1 + 1e-3)


def test_rotations_keep_cosines_and_rescalings_do_not():
    X = random_interactions()
    A, B = solution(X, 4, 2.0)
    P = X @ A
    R = np.linalg.qr(np.random.default_rng(3).normal(size=(4, 4)))[0]
    D = np.diag([3.0, 1.0, 1.0, 0.5])
    for users, items in ((P @ R, B @ R), (P @ -np.eye(4), B @ -np.eye(4))):
        np.testing.assert_allclose(cosines(items), cosines(B), atol=1e-12)
        np.testing.assert_allclose(cosines(users), cosines(P), atol=1e-12)
        np.testing.assert_allclose(cosines(users, items), cosines(P, B), atol=1e-12)
    users, items = P @ D, B @ np.linalg.inv(D)
    assert np.abs(cosines(items) - cosines(B)).max() > 0.1
    assert np.abs(cosines(users) - cosines(P)).max() > 0.1
    assert np.abs(cosines(users, items) - cosines(P, B)).max() > 0.1


@pytest.mark.parametrize(
    "X", [random_interactions(), deficient_interactions()], ids=["full", "low"]
)
@pytest.mark.parametrize("rescaling", [*NAMES, [3.0, 0.1, 1.0, 7.0, 1e-3, 1.0]], ids=str)
def test_rescalings_do_not_change_the_model(X, rescaling):
    users, items = embeddings(X, 6, 2.0)
    users_D, items_D = embeddings(X, 6, 2.0, rescaling)
    np.testing.assert_allclose(users_D @ items_D.T, users @ items.T, atol=1e-11)
    A, B = solution(X, 6, 2.0)
    A_D, B_D = solution(X, 6, 2.0, rescaling=rescaling)
    np.testing.assert_allclose(A_D @ B_D.T, A @ B.T, atol=1e-11)


def test_rescaled_cosines_equal_the_formulas_of_the_paper():
    X, D = random_interactions(), np.array([3.0, 0.1, 1.0, 7.0])
    A, B = solution(X, 4, 2.0)
    users, items = embeddings(X, 4, 2.0, D)
    item_item, user_user = B * D**-2 @ B.T, X @ A * D**2 @ (X @ A).T
    np.testing.assert_allclose(cosines(items), correlations(item_item), atol=1e-12)
    np.testing.assert_allclose(cosines(users), correlations(user_user), atol=1e-12)
    lengths = np.sqrt(np.outer(np.diag(user_user), np.diag(item_item)))
    np.testing.assert_allclose(cosines(users, items), X @ A @ B.T / lengths, atol=1e-12)


# ----- the two cases of the paper


def test_orthonormal_at_full_rank_gives_the_identity():
    X = random_interactions()
    _, items = embeddings(X, 9, 2.0, "orthonormal")
    np.testing.assert_allclose(cosines(items), np.eye(9), atol=1e-12)


def test_orthonormal_below_full_rank_is_the_projector():
    for X, k, rank in ((random_interactions(), 4, 4), (deficient_interactions(rank=5), 9, 5)):
        _, _, V, _ = truth(X, rank, 2.0)
        _, items = embeddings(X, k, 2.0, "orthonormal")
        np.testing.assert_allclose(cosines(items), correlations(V @ V.T), atol=1e-10)
        assert np.abs(cosines(items) - np.eye(9)).max() > 0.3


def ranking(scores):
    return np.argsort(-scores, axis=1, kind="stable")


def test_orthonormal_user_item_cosine_ranks_as_dot_product():
    X = random_interactions()
    users, items = embeddings(X, 9, 2.0, "orthonormal")
    A, B = solution(X, 9, 2.0)
    scores = X @ A @ B.T
    np.testing.assert_allclose(
        cosines(users, items), scores / np.linalg.norm(users, axis=1)[:, None], atol=1e-12
    )
    np.testing.assert_array_equal(ranking(cosines(users, items)), ranking(scores))


def test_orthonormal_below_full_rank_ranks_by_leverage():
    X = random_interactions(n=60, p=12)
    users, items = embeddings(X, 4, 2.0, "orthonormal")
    A, B = solution(X, 4, 2.0)
    scores = X @ A @ B.T
    V = truth(X, 4, 2.0)[2]
    expected = rows_unit(users) @ items.T / np.linalg.norm(V, axis=1)
    np.testing.assert_allclose(cosines(users, items), expected, atol=1e-12)
    same = (ranking(cosines(users, items)) == ranking(scores)).all(axis=1)
    assert same.mean() < 0.25
    equal_leverage = np.kron(np.diag([4.0, 3.0]), np.array([[1.0, 1.0], [1.0, -1.0]]))
    equal_leverage = equal_leverage[[0, 2]]  # The rank is 2 of 4, and every leverage score is 1/2.
    users, items = embeddings(equal_leverage, 2, 2.0, "orthonormal")
    np.testing.assert_allclose(
        cosines(users, items), np.sqrt(2) * rows_unit(users) @ items.T, atol=1e-12
    )


def test_weights_compares_users_by_raw_data_at_full_rank():
    X = random_interactions()
    users, items = embeddings(X, 9, 2.0, "weights")
    A, B = solution(X, 9, 2.0)
    W = A @ B.T
    np.testing.assert_allclose(cosines(users), cosines(X), atol=1e-12)
    expected = rows_unit(X) @ W / np.linalg.norm(W, axis=1)
    np.testing.assert_allclose(cosines(users, items), expected, atol=1e-12)


def test_weights_below_full_rank_compares_projected_users():
    X = random_interactions()
    V = truth(X, 4, 2.0)[2]
    users, items = embeddings(X, 4, 2.0, "weights")
    A, B = solution(X, 4, 2.0)
    W = A @ B.T
    projected = X @ V @ V.T
    np.testing.assert_allclose(cosines(users), cosines(projected), atol=1e-12)
    assert np.abs(cosines(users) - cosines(X)).max() > 0.1
    expected = rows_unit(projected) @ W / np.linalg.norm(W, axis=1)
    np.testing.assert_allclose(cosines(users, items), expected, atol=1e-12)


@pytest.mark.parametrize(
    "X", [random_interactions(), deficient_interactions()], ids=["full", "low"]
)
@pytest.mark.parametrize("k", [3, 9])
def test_weights_compares_items_by_rows_of_the_model(X, k):
    _, _, V, S = truth(X, k, 2.0)
    _, items = embeddings(X, k, 2.0, "weights")
    np.testing.assert_allclose(cosines(items), cosines(V * S @ V.T), atol=1e-9)


def test_ties_inside_do_not_change_powers_of_s_and_sigma():
    X = np.linalg.qr(np.random.default_rng(4).normal(size=(20, 6)))[0] * 5.0
    X[:, 0] *= 2
    U, s, V, S = truth(X, 6, 2.0)
    for name, (a, b) in EXPONENTS.items():
        users, items = embeddings(X, 6, 2.0, name)
        np.testing.assert_allclose(items @ items.T, V * (S**a * s**b) ** 2 @ V.T, atol=1e-10)
        np.testing.assert_allclose(
            users @ users.T, U * (S ** (1 - a) * s ** (1 - b)) ** 2 @ U.T, atol=1e-10
        )


# ----- the family


@pytest.mark.parametrize("k", [4, 9])
def test_rescalings_compare_the_documented_quantities(k):
    X, strength = random_interactions(), 2.0
    U, s, V, S = truth(X, k, strength)
    W = V * S @ V.T
    M = X @ W
    W_root = np.real(sqrtm(W)) if k == 9 else V * np.sqrt(S) @ V.T
    left, values, right = np.linalg.svd(M, full_matrices=False)
    compared = {
        "identity": (correlations(W), cosines(X @ W_root)),
        "orthonormal": (correlations(V @ V.T), cosines(M)),
        "weights": (cosines(W), cosines(X @ V @ V.T)),
        "balanced": (correlations(right.T * values @ right), correlations(left * values @ left.T)),
        "smoothed": (cosines(M.T), correlations(U @ U.T)),
        "data": (cosines((U * s @ V.T).T), cosines(U * S)),
    }
    for name, (item_item, user_user) in compared.items():
        users, items = embeddings(X, k, strength, name)
        np.testing.assert_allclose(cosines(items), item_item, atol=1e-10, err_msg=name)
        np.testing.assert_allclose(cosines(users), user_user, atol=1e-10, err_msg=name)


def test_only_balanced_equalises_column_norms():
    X = random_interactions()
    for name in NAMES:
        users, items = embeddings(X, 4, 2.0, name)
        same = np.allclose(np.linalg.norm(users, axis=0), np.linalg.norm(items, axis=0))
        assert same == (name == "balanced")


def test_no_rescaling_projects_back_on_both_sides():
    X = random_interactions()
    A, B = solution(X, 4, 2.0)
    M = X @ A @ B.T
    model = LinearMF(4, regularization=2.0).fit(X)
    s, S = model.singular_values_, model.shrinkage_
    for a, b in itertools.product([0, 0.5, 1], [-1, -0.5, 0, 0.5, 1]):
        D = S ** (0.5 - a) * s ** (-b)
        users_agree = np.allclose(cosines(model.user_embeddings(X, D)), cosines(M))
        items_agree = np.allclose(cosines(model.item_embeddings(D)), cosines(M.T))
        assert users_agree == ((a, b) == (0, 0))
        assert items_agree == ((a, b) == (1, 1))


def test_objective_2_is_a_rescaling_of_1_without_zeros():
    X = random_interactions()
    s = np.linalg.svd(X, compute_uv=False)[:4]
    _, items = embeddings(X, 4, 2.0)
    for strength, is_rescaling in ((s[3] / 2, True), ((s[2] + s[3]) / 2, False)):
        _, B = solution(X, 4, strength, "weight_decay")
        ratio = np.linalg.norm(B, axis=0) / np.linalg.norm(items, axis=0)
        # B is the item matrix of Eq. 1 times a diagonal matrix, which may be singular.
        np.testing.assert_allclose(B, items * ratio, atol=1e-10)
        assert (ratio > 0).all() == is_rescaling


def test_rescaling_distance_is_a_sum_of_log_ratios():
    X = random_interactions()
    _, s, _, S = truth(X, 5, 2.0)
    for (a, b), (a2, b2) in itertools.product(EXPONENTS.values(), repeat=2):
        logs = (a - a2) * np.log(S) + (b - b2) * np.log(s)
        one = [name for name, pair in EXPONENTS.items() if pair == (a, b)]
        two = [name for name, pair in EXPONENTS.items() if pair == (a2, b2)]
        _, items = embeddings(X, 5, 2.0, one[0])
        _, others = embeddings(X, 5, 2.0, two[0])
        ratio = np.linalg.norm(items, axis=0) / np.linalg.norm(others, axis=0)
        log_condition = np.log(ratio.max() / ratio.min())
        assert log_condition == pytest.approx(np.ptp(logs), abs=1e-10)
        if (a - a2) * (b - b2) >= 0:
            total = abs(a - a2) * np.log(S[0] / S[-1]) + abs(b - b2) * np.log(s[0] / s[-1])
            assert log_condition == pytest.approx(total, abs=1e-10)


# ----- Lemma B: balance


def test_weight_decay_balances_both_sides():
    X, rng = random_interactions(n=7, p=5, seed=6), np.random.default_rng(7)
    votes = np.sign(rng.normal(size=X.shape))
    decay_P, decay_Q = 0.4, 0.1

    def squares(Y):
        return np.sum((X - Y) ** 2), 2 * (Y - X)

    def logistic(Y):
        return np.sum(np.logaddexp(0, -votes * Y)), -votes / (1 + np.exp(votes * Y))

    for fit in (squares, logistic):

        def loss(P, Q, fit=fit):
            return fit(P @ Q.T)[0] + decay_P * np.sum(P**2) + decay_Q * np.sum(Q**2)

        def gradients(P, Q, fit=fit):
            slope = fit(P @ Q.T)[1]
            return slope @ Q + 2 * decay_P * P, slope.T @ P + 2 * decay_Q * Q

        _, P, Q = fitted_by_descent(loss, gradients, [(7, 2), (5, 2)], seed=8)
        assert np.abs(P).max() > 0.1
        np.testing.assert_allclose(decay_P * P.T @ P, decay_Q * Q.T @ Q, atol=1e-6)


def test_objective_2_is_balanced_and_objective_1_is_not():
    X = random_interactions()
    A, B = solution(X, 4, 2.0, "weight_decay")
    np.testing.assert_allclose((X @ A).T @ X @ A, B.T @ B, atol=1e-11)
    A, B = solution(X, 4, 2.0)
    assert not np.allclose((X @ A).T @ X @ A, B.T @ B, atol=0.1)


def normalised_gap(P, Q):
    """Return the distance between the two Gram matrices after scaling both to norm 1."""
    one, other = (side.T @ side for side in (P, Q))
    return np.linalg.norm(one / np.linalg.norm(one) - other / np.linalg.norm(other))


def test_decay_of_tower_weights_does_not_balance_embeddings():
    """Weight decay in the loss balances the weights of the last layers, but not the embeddings."""
    rng = np.random.default_rng(14)
    X = rng.normal(size=(12, 9)) @ np.diag(np.linspace(2, 0.2, 9))
    of_users = rng.normal(size=(12, 4)) * [4, 1, 1, 0.2]
    of_items = rng.normal(size=(9, 4)) * [0.3, 1, 2, 3]

    def loss(A, B):
        residual = of_users @ A @ (of_items @ B).T - X
        return np.sum(residual**2) + 0.5 * (np.sum(A**2) + np.sum(B**2))

    def gradients(A, B):
        residual = of_users @ A @ (of_items @ B).T - X
        to_A = of_users.T @ residual @ of_items @ B
        to_B = of_items.T @ residual.T @ of_users @ A
        return 2 * to_A + A, 2 * to_B + B

    _, A, B = fitted_by_descent(loss, gradients, [(4, 2), (4, 2)], seed=1)
    assert np.abs(A).max() > 0.05
    assert normalised_gap(A, B) < 1e-5
    assert normalised_gap(of_users @ A, of_items @ B) > 0.2


@pytest.mark.slow
@pytest.mark.parametrize(("decoupled", "balanced"), [(False, True), (True, False)])
def test_adam_balances_with_decay_in_the_loss_only(decoupled, balanced):
    rng = np.random.default_rng(15)
    X = rng.normal(size=(12, 9)) @ np.diag(np.linspace(2, 0.2, 9))
    sides = [rng.normal(size=(12, 3)) * [2, 1, 0.3], rng.normal(size=(9, 3)) * [0.3, 1, 2]]
    moments = [[np.zeros_like(side), np.zeros_like(side)] for side in sides]
    decay, n_steps = 0.3, 6000
    for step in range(1, n_steps + 1):
        rate = 0.02 * (1 - step / (n_steps + 1))
        residual = sides[0] @ sides[1].T - X
        slopes = residual @ sides[1], residual.T @ sides[0]
        for side, slope, (first, second) in zip(sides, slopes, moments, strict=True):
            if not decoupled:
                slope = slope + decay * side
            first += 0.1 * (slope - first)
            second += 0.001 * (slope**2 - second)
            direction = first / (1 - 0.9**step) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
            side -= rate * (direction + (0.01 * side if decoupled else 0))
    gap = normalised_gap(*sides)
    assert gap < 1e-3 if balanced else gap > 0.1


# ----- theorems 0, 1, 2 and the collapse


def test_theorem_0_factorisations_differ_by_one_matrix():
    X, rng = random_interactions(), np.random.default_rng(9)
    A, B = solution(X, 4, 2.0)
    W = A @ B.T
    left, values, right = np.linalg.svd(W)
    mix = rng.normal(size=(4, 4))
    A2, B2 = left[:, :4] * values[:4] @ np.linalg.inv(mix).T, right[:4].T @ mix
    np.testing.assert_allclose(A2 @ B2.T, W, atol=1e-12)
    G = np.linalg.lstsq(B, B2, rcond=None)[0]
    np.testing.assert_allclose(B @ G, B2, atol=1e-11)
    np.testing.assert_allclose(A @ np.linalg.inv(G).T, A2, atol=1e-11)


def test_theorem_0_fails_below_the_rank():
    X = deficient_interactions(rank=3)
    A, B = solution(X, 4, 2.0)
    other = B.copy()
    other[:, 3] = np.arange(9)  # any numbers would do, because column 3 of A is zero
    np.testing.assert_allclose(A @ other.T, A @ B.T, atol=1e-12)
    G = np.linalg.lstsq(B, other, rcond=None)[0]
    assert not np.allclose(B @ G, other, atol=1e-3)


def test_theorem_1_k_items_reach_any_correlations():
    X, rng = random_interactions(), np.random.default_rng(10)
    for k in (4, 9):
        A, B = solution(X, k, 2.0)
        root = rng.normal(size=(k, k))
        expected = correlations(root @ root.T)
        chosen = rng.permutation(9)[:k]
        G = np.linalg.solve(B[chosen], np.linalg.cholesky(expected))
        np.testing.assert_allclose(cosines((B @ G)[chosen]), expected, atol=1e-9)
        changed = (A @ np.linalg.inv(G).T) @ (B @ G).T
        np.testing.assert_allclose(changed, A @ B.T, atol=1e-9)


def test_theorem_1_keeps_collinear_items_collinear():
    X, rng = random_interactions(), np.random.default_rng(11)
    X[:, 1], X[:, 2] = 2 * X[:, 0], -X[:, 0]
    _, items = embeddings(X, 4, 2.0)
    for _ in range(20):
        changed = cosines(items @ rng.normal(size=(4, 4)))
        assert changed[0, 1] == pytest.approx(1, abs=1e-9)
        assert changed[0, 2] == pytest.approx(-1, abs=1e-9)


def test_theorem_2_mixed_signs_reach_every_cosine():
    rng = np.random.default_rng(12)
    x, y = np.array([1.0, 2.0, 3.0]), np.array([2.0, -1.0, 1.0])
    heavy = np.full(3, 1e-4)
    for position, end in ((0, 1), (1, -1)):
        weights = heavy.copy()
        weights[position] = 1e4
        assert cosines(np.array([x * weights, y * weights]))[0, 1] == pytest.approx(end, abs=1e-6)
    y = np.abs(y)
    ratios = y / x
    lowest = 2 * np.sqrt(ratios.min() * ratios.max()) / (ratios.min() + ratios.max())
    scales = np.exp(rng.normal(size=(2000, 3)) * 3)
    reached = [cosines(np.array([x * d, y * d]))[0, 1] for d in scales]
    assert min(reached) >= lowest - 1e-12
    weights = np.full(3, 1e-6)
    weights[[np.argmin(ratios), np.argmax(ratios)]] = (
        1 / np.sqrt(x * y)[[np.argmin(ratios), np.argmax(ratios)]]
    )
    assert cosines(np.array([x * weights, y * weights]))[0, 1] == pytest.approx(lowest, abs=1e-6)


def test_one_rescaling_collapses_all_cosines_to_one():
    X = (np.random.default_rng(13).random((80, 9)) < 0.4).astype(float)
    collapse = np.array([1e-5, 1.0, 1.0, 1.0])
    users, items = embeddings(X, 4, 2.0, collapse)
    assert cosines(items).min() > 1 - 1e-6
    plain_users, plain_items = embeddings(X, 4, 2.0)
    assert cosines(plain_items).min() < 0.9
    np.testing.assert_allclose(users @ items.T, plain_users @ plain_items.T, atol=1e-11)
    # The premise does not hold for an item without users, because the row of this item is zero.
    X[:, 3] = 0
    assert not cosines(embeddings(X, 4, 2.0, collapse)[1])[3].any()
    # The premise also fails if two groups of items have no users in common: no cosine between the
    # groups is then close to 1.
    X = np.kron(np.eye(2), X[:40, 4:8])
    assert cosines(embeddings(X, 4, 2.0, collapse)[1])[:4, 4:].max() < 0.9
