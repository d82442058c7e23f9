"""Truncated SVD at equal residual: `pytest bench/rivals/test_svd.py`. Slow: rivals take minutes.

A rival's setting is the fastest that reaches the residual; the largest relative residual of its
triplets is checked, and told as extra_info, before the time counts.
"""

import numpy as np
import pytest
from scipy.sparse.linalg import svds
from sklearn.utils.extmath import randomized_svd

import fastcos


def scikit_learn(X, k, n_iter, n_oversamples):
    return randomized_svd(
        X, k, n_iter=n_iter, n_oversamples=n_oversamples, random_state=0, flip_sign=False
    )


def arpack(X, k, tol):
    U, s, Vt = svds(X, k, tol=tol, random_state=0)
    order = np.argsort(-s)
    return U[:, order], s[order], Vt[order]


def fbpca(X, k, n_iter, n_oversamples):
    return pytest.importorskip("fbpca").pca(X, k, raw=True, n_iter=n_iter, l=k + n_oversamples)


def torch(X, k, n_iter, n_oversamples):
    torch = pytest.importorskip("torch")
    parts = (torch.from_numpy(np.asarray(part)) for part in (X.indptr, X.indices, X.data))
    tensor = torch.sparse_csr_tensor(*parts, size=X.shape)
    U, s, V = torch.svd_lowrank(tensor, q=k + n_oversamples, niter=n_iter)
    return U[:, :k].numpy(), s[:k].numpy(), V[:, :k].numpy().T


def ours(X, k, tol):
    return fastcos.randomized_svd(X, k, tol=tol)


CASES = [
    ("decks", 128, 1e-2, ours, {"tol": 1e-2}),
    ("decks", 128, 1e-2, scikit_learn, {"n_iter": 7, "n_oversamples": 64}),
    ("decks", 128, 1e-2, fbpca, {"n_iter": 7, "n_oversamples": 64}),
    ("decks", 128, 1e-2, torch, {"n_iter": 7, "n_oversamples": 64}),
    ("decks", 128, 1e-4, ours, {"tol": 1e-4}),
    ("decks", 128, 1e-4, arpack, {"tol": 1e-3}),
    ("zipf", 64, 1e-2, ours, {"tol": 1e-2}),
    ("zipf", 64, 1e-2, scikit_learn, {"n_iter": 9, "n_oversamples": 64}),
    ("zipf", 64, 1e-4, ours, {"tol": 1e-4}),
    ("zipf", 64, 1e-4, arpack, {"tol": 1e-3}),
]


@pytest.mark.parametrize(
    ("name", "k", "residual", "solver", "setting"),
    CASES,
    ids=[f"{name}-{k}-{residual:g}-{solver.__name__}" for name, k, residual, solver, _ in CASES],
)
def test_svd(benchmark, request, name, k, residual, solver, setting):
    X = request.getfixturevalue(name)
    benchmark.group = f"SVD of {name}, k = {k}, residual {residual:g}"
    rounds = 3 if solver is ours else 1
    found = benchmark.pedantic(
        solver, args=(X, k), kwargs=setting, rounds=rounds, warmup_rounds=int(solver is ours)
    )
    reached = fastcos.svd_residuals(X, tuple(np.asarray(part) for part in found[:3])).max()
    benchmark.extra_info["residual"] = reached
    assert reached <= residual, f"reached {reached:.1e}"
