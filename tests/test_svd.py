"""The SVD's certificate is true, whatever the matrix; LAPACK in float64 is the truth."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from fastcos import svd


def with_spectrum(n, p, s, seed):
    rng = np.random.default_rng(seed)
    U = np.linalg.qr(rng.standard_normal((n, len(s))))[0]
    V = np.linalg.qr(rng.standard_normal((p, len(s))))[0]
    return (U * s) @ V.T


def spectrum(kind, r, rng):
    if kind == "flat":
        return 1 + 0.2 * rng.random(r)
    if kind == "decaying":
        return 1 / np.arange(1, r + 1) ** rng.uniform(0.3, 2)
    if kind == "clustered":
        return np.repeat(
            [9.0, 3.0, 1.0], [r // 8, r // 4, r - r // 8 - r // 4]
        ) + 1e-3 * rng.random(r)
    if kind == "rank_deficient":
        return np.where(np.arange(r) < r // 3, 5 * rng.random(r), 0)
    return np.repeat(rng.choice([1.0, 2.0, 3.0, 4.0], size=-(-r // 40)), 40)[:r]


KINDS = ["flat", "decaying", "clustered", "rank_deficient", "tied"]


def assert_certificate_is_true(X, found):
    """Every value lies within its bound of the one that LAPACK has at its place."""
    truth = np.linalg.svd(np.asarray(X, np.float64), compute_uv=False)[: len(found.s)]
    reference = np.where(found.s > 0, found.s, truth[0])
    # 1e-14: LAPACK's own error
    assert (np.abs(found.s - truth) <= found.residuals * reference + 1e-14 * truth[0]).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(40))
def test_certificate_is_true_on_two_hundred_matrices(kind, seed):
    rng = np.random.default_rng([KINDS.index(kind), seed])
    side = int(rng.integers(240, 420))
    n, p = (side + 150, side) if seed % 2 else (side, side + 150)
    X = with_spectrum(n, p, -np.sort(-spectrum(kind, side, rng)), seed)
    X = X.astype(np.float32 if seed % 4 < 2 else np.float64)
    k = int(rng.integers(1, 10)) if seed % 8 else side
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = svd.randomized_svd(X, k, tol=10.0 ** -rng.integers(1, 5), seed=seed)
    assert_certificate_is_true(X, found)
    np.testing.assert_allclose(found.residuals, svd.svd_residuals(X, found), atol=1e-6)
