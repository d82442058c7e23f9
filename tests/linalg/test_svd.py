"""The certificate of the SVD is true for any matrix.

The tests compare the certificate with the singular values that LAPACK computes in float64.
"""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.linalg import aslinearoperator
from sklearn.exceptions import ConvergenceWarning

from fastcos import randomized_svd, svd_residuals
from fastcos.linalg import block_lanczos, svd
from fastcos.linalg.svd import direct_svd


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
        few, more = r // 8, r // 4
        return np.repeat([9.0, 3.0, 1.0], [few, more, r - few - more]) + 1e-3 * rng.random(r)
    if kind == "rank_deficient":
        return np.where(np.arange(r) < r // 3, 5 * rng.random(r), 0)
    return np.repeat(rng.choice([1.0, 2.0, 3.0, 4.0], size=-(-r // 40)), 40)[:r]


KINDS = ["flat", "decaying", "clustered", "rank_deficient", "tied"]


def with_rank(X, k):
    U, s, Vt = np.linalg.svd(X, full_matrices=False)
    return (U[:, :k] * s[:k]) @ Vt[:k]


def assert_certificate_is_true(X, result, tol):
    """Check that a singular value lies within each bound, and that no large value is missing."""
    truth = np.linalg.svd(np.asarray(X, np.float64), compute_uv=False)
    reference = np.where(result.s > 0, result.s, truth[0])
    nearest = np.abs(result.s[:, None] - truth).min(axis=1)
    # The term 1e-14 covers LAPACK's own error.
    assert (nearest <= result.residuals * reference + 1e-14 * truth[0]).all()
    if result.residuals.max() <= tol:
        assert (result.s >= truth[: len(result.s)] * (1 - 2 * tol) - 1e-7 * truth[0]).all()


def sparse_matrix(n=700, p=400, seed=0, dtype=np.float32):
    rng = np.random.default_rng(seed)
    taste = sp.random_array((n, 12), density=0.2, rng=rng) @ sp.random_array(
        (12, p), density=0.2, rng=rng
    )
    return sp.csr_array(taste + sp.random_array((n, p), density=0.02, rng=rng)).astype(dtype)


# The first four seeds include both shapes, both types, and a matrix of which all singular values
# are computed.
SEEDS = [1, 2, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (0, *range(3, 40)))]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", SEEDS)
def test_certificates_of_200_matrices_are_true(kind, seed, monkeypatch):
    # With a small basis, iterations and restarts happen even in small matrices.
    monkeypatch.setattr(block_lanczos, "block_width", lambda k: 4)
    rng = np.random.default_rng([KINDS.index(kind), seed])
    side = int(rng.integers(100, 140))
    n, p = (side + 60, side) if seed % 2 else (side, side + 60)
    X = with_spectrum(n, p, -np.sort(-spectrum(kind, side, rng)), seed)
    X = X.astype(np.float32 if seed % 4 < 2 else np.float64)
    k = int(rng.integers(1, 10)) if seed % 8 else side
    tol = 10.0 ** -rng.integers(1, 5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        result = randomized_svd(X, k, tol=tol, random_state=seed)
    assert_certificate_is_true(X, result, tol)
    np.testing.assert_allclose(result.residuals, svd_residuals(X, result), atol=1e-6)


@pytest.mark.parametrize(
    "tol", [*(pytest.param(tol, marks=pytest.mark.slow) for tol in (1e-1, 1e-3)), 1e-9]
)
@pytest.mark.parametrize("wide", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_randomized_svd_meets_the_tolerance(tol, wide):
    X = sparse_matrix()
    X = sp.csr_array(X.T) if wide else X
    result = randomized_svd(X, 12, tol=tol)
    assert result.residuals.max() <= tol
    assert_certificate_is_true(X.toarray(), result, tol)
    assert result.U.shape == (X.shape[0], 12)
    assert result.Vt.shape == (12, X.shape[1])
    for vectors in (result.U.T, result.Vt):
        np.testing.assert_allclose(vectors @ vectors.T, np.eye(12), atol=max(1e-5, 3 * tol))
    rebuilt = (result.U * result.s) @ result.Vt
    best = with_rank(X.toarray(), 12)
    assert np.linalg.norm(rebuilt - best) <= 3 * max(tol, 1e-5) * np.linalg.norm(best)


def test_randomized_svd_uses_float64_where_tol_needs_it():
    X = sparse_matrix()
    assert randomized_svd(X, 5, tol=1e-2).Vt.dtype == np.float32
    assert randomized_svd(X, 5, tol=1e-9).Vt.dtype == np.float64
    assert randomized_svd(X.astype(np.float64), 5, tol=1e-2).Vt.dtype == np.float64


@pytest.mark.slow
def test_randomized_svd_warns_after_max_iter():
    X = np.random.default_rng(0).standard_normal((2000, 700))
    with pytest.warns(ConvergenceWarning, match=r"stopped at a relative residual of \d\.\de-\d+"):
        result = randomized_svd(X, 20, tol=1e-8, max_iter=4)
    assert result.residuals.max() > 1e-8
    assert_certificate_is_true(X, result, 1e-8)


@pytest.mark.slow
def test_randomized_svd_converges_after_restarts(monkeypatch):
    monkeypatch.setattr(block_lanczos, "largest_basis", lambda k: k + 48)
    restarts = []
    restart = block_lanczos._Basis.restart
    monkeypatch.setattr(
        block_lanczos._Basis, "restart", lambda *a: (restarts.append(1), restart(*a))[1]
    )
    X = with_spectrum(500, 300, np.linspace(2, 1, 300) ** 4, seed=0)
    result = randomized_svd(X, 6, tol=1e-5)
    assert len(restarts) > 2
    assert result.residuals.max() <= 1e-5
    assert_certificate_is_true(X, result, 1e-5)


@pytest.mark.parametrize(
    "k", [9, *(pytest.param(n, marks=pytest.mark.slow) for n in (4, 5, 8, 12))]
)
def test_randomized_svd_finds_more_ties_than_a_block(k, monkeypatch):
    monkeypatch.setattr(block_lanczos, "block_width", lambda k: 4)
    s = np.concatenate([np.full(9, 5.0), np.linspace(2, 1, 191)])
    X = with_spectrum(300, 200, s, seed=1)
    result = randomized_svd(X, k, tol=1e-6)
    np.testing.assert_allclose(result.s, s[:k], rtol=1e-9)


@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (9, 1), (30, 7), (7, 30), (40, 40)])
@pytest.mark.parametrize("solver", [randomized_svd, direct_svd])
def test_all_triplets_reconstruct_small_matrices(shape, solver):
    X = sp.random_array(shape, density=0.6, rng=np.random.default_rng(3), format="csr")
    result = solver(X, min(shape), compute_u=True)
    np.testing.assert_allclose((result.U * result.s) @ result.Vt, X.toarray(), atol=1e-7)
    for vectors in (result.U.T, result.Vt):
        np.testing.assert_allclose(vectors @ vectors.T, np.eye(min(shape)), atol=1e-9)


def test_randomized_svd_of_an_all_zero_matrix():
    result = randomized_svd(sp.csr_array((30, 10)), 4)
    assert (result.s == 0).all()
    assert (result.residuals == 0).all()
    np.testing.assert_allclose(result.U.T @ result.U, np.eye(4), atol=1e-12)
    np.testing.assert_allclose(result.Vt @ result.Vt.T, np.eye(4), atol=1e-12)


def test_randomized_svd_of_all_kinds_of_input_agrees():
    X = sparse_matrix(dtype=np.float64)
    truth = np.linalg.svd(X.toarray())
    for matrix in (X, X.tocsc(), X.toarray(), aslinearoperator(X)):
        result = randomized_svd(matrix, 6, tol=1e-8)
        np.testing.assert_allclose(result.s, truth[1][:6], rtol=1e-10)
        np.testing.assert_allclose(np.abs(result.Vt @ truth[2][:6].T), np.eye(6), atol=1e-6)


def test_randomized_svd_of_a_centred_and_scaled_matrix():
    X = sparse_matrix(dtype=np.float64)
    dense = X.toarray()
    mean, deviation = dense.mean(axis=0), dense.std(axis=0) + 0.1
    truth = np.linalg.svd((dense - mean) / deviation, compute_uv=False)[:5]
    arguments = {"center": mean, "scale": deviation}
    result = randomized_svd(X, 5, tol=1e-7, **arguments)
    np.testing.assert_allclose(result.s, truth, rtol=1e-9)
    assert svd_residuals(X, result, **arguments, n_threads=1).max() <= 1e-7
    assert svd_residuals(X, result).max() > 1e-3


def test_direct_svd_by_lanczos_equals_the_dense_one(monkeypatch):
    X = sparse_matrix(dtype=np.float64)
    dense = direct_svd(X, 8)
    monkeypatch.setattr(svd, "DENSE_SIDE", 100)
    iterated = direct_svd(X, 8)
    np.testing.assert_allclose(iterated.s, dense.s, rtol=1e-12)
    np.testing.assert_allclose(iterated.Vt, dense.Vt, atol=1e-8)
    assert iterated.residuals.max() < 1e-9


def test_largest_entries_of_right_vectors_are_positive():
    Vt = randomized_svd(sparse_matrix(), 10).Vt
    assert (Vt[np.arange(10), np.abs(Vt).argmax(axis=1)] > 0).all()


def test_randomized_svd_repeats_and_can_omit_u():
    X = sparse_matrix()
    first, second = (randomized_svd(X, 7, random_state=5) for _ in range(2))
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b)
    without = randomized_svd(X, 7, random_state=5, compute_u=False)
    assert without.U is None
    np.testing.assert_array_equal(without.Vt, first.Vt)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_randomized_svd_bits_do_not_depend_on_threads(dtype):
    X = sparse_matrix(n=2000, p=1000, dtype=dtype)
    alone, together = (randomized_svd(X, 9, n_threads=n) for n in (1, 5))
    for a, b in zip(alone, together, strict=True):
        np.testing.assert_array_equal(a, b)


def test_randomized_svd_finds_a_value_of_high_multiplicity(monkeypatch):
    """randomized_svd finds a singular value of high multiplicity.

    The widened blocks contain long columns, and also short columns that consist only of rounding
    errors.
    """
    monkeypatch.setattr(block_lanczos, "block_width", lambda k: 4)
    X = with_spectrum(178, 118, np.repeat([4.0, 2.0], [40, 78]), seed=22)
    result = randomized_svd(X, 7, tol=1e-7)
    assert result.residuals.max() <= 1e-7
    np.testing.assert_allclose(result.s, 4, rtol=1e-12)


def test_svd_residuals_detect_wrong_values_and_vectors():
    X = sparse_matrix(dtype=np.float64).toarray()
    U, s, Vt = np.linalg.svd(X, full_matrices=False)
    good = svd_residuals(X, (U[:, :4], s[:4], Vt[:4]))
    assert good.max() < 1e-12
    assert svd_residuals(X, (None, s[:4] * 1.01, Vt[:4])).min() > 1e-2
    turned = Vt[:4] + 0.1 * Vt[4:8]
    assert svd_residuals(X, (None, s[:4], turned)).min() > 1e-2
    assert np.isinf(svd_residuals(X, (None, s[:1], 0 * Vt[:1]))).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_components": 0}, "n_components must be a whole number from 1 to 30"),
        ({"n_components": 31}, "n_components must be a whole number from 1 to 30"),
        ({"n_components": 3, "tol": 0}, "tol must be a finite number > 0"),
        ({"n_components": 3, "max_iter": 0}, "max_iter must be a whole number"),
        ({"n_components": 3, "center": np.ones(3)}, "center must be of shape"),
    ],
)
def test_randomized_svd_names_invalid_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        randomized_svd(np.ones((40, 30)), **arguments)


@pytest.mark.slow
def test_randomized_svd_of_a_steep_spectrum():
    """As in market baskets, the 50th value is 1e-4 of the first, and the tail decays slowly."""
    rng = np.random.default_rng(0)
    values = np.concatenate([[4e5], np.linspace(60, 30, 49), np.linspace(29.8, 5, 550)])
    U = np.linalg.qr(rng.standard_normal((900, 600)))[0]
    V = np.linalg.qr(rng.standard_normal((2400, 600)))[0]
    X = (U * values) @ V.T
    result = randomized_svd(X, 50, tol=1e-3)
    assert result.residuals.max() <= 1e-3
    np.testing.assert_allclose(result.s, values[:50], rtol=1e-6)


@pytest.mark.parametrize(
    ("tol", "solver"), [(1e-2, randomized_svd), (1e-9, randomized_svd), (None, direct_svd)]
)
def test_svd_progress_ends_at_its_total(tol, solver, monkeypatch):
    monkeypatch.setattr(svd, "DENSE_SIDE", 100)
    X, calls = sparse_matrix(), []
    # float32 cannot reach a residual of 1e-9, so the iteration restarts in float64.
    options = {} if tol is None else {"tol": tol}
    result = solver(X, 5, **options, progress=lambda *at: calls.append(at))
    np.testing.assert_array_equal(result.Vt, solver(X, 5, **options).Vt)
    done, totals = np.array(calls).T
    assert done[0] == 0
    assert (done[:-1] < totals[:-1]).all()
    assert done[-1] == totals[-1] == done[-2] + 5  # the certificate's own
    passes = np.diff(done[:-1])
    assert set(passes[passes > 0]) == {block_lanczos.block_width(5)}
    assert (passes == 0).sum() == (tol == 1e-9)


def test_svd_progress_of_a_dense_solution():
    calls = []
    randomized_svd(np.eye(30), 20, progress=lambda *at: calls.append(at))
    assert calls == [(20, 20)]


def test_svd_progress_extrapolates_the_total():
    calls = []
    report = block_lanczos.SVDProgress(lambda *at: calls.append(at), 10)
    report.start(1e-6, 100)
    before = block_lanczos.largest_basis(10) + 10
    report.add(32)
    report.check(1e-1)
    report.add(32)
    # The last 32 columns divided the error by 10. The error must still be divided by 10^4, so the
    # report expects 4 x 32 more columns.
    report.check(1e-2)
    report.add(1)
    report.check(1.0)  # The error did not decrease, so no rate can be estimated.
    report.add(1000)
    after = 64 + 4 * 32 + 10
    assert calls == [(0, before), (32, before), (64, before), (65, after), (1065, 1075)]
    report.start(1e-6, 2)  # This starts another iteration, which has two blocks.
    assert calls[-1] == (1065, 1065 + 2 * block_lanczos.block_width(10) + 10)
    report.certified()
    assert calls[-1] == (1075, 1075)


def test_svd_residuals_certify_no_value_that_is_wrong_or_negative():
    X = np.diag([3.0, 2, 1])
    with pytest.raises(ValueError, match=r"svd\.s must be at least 0, got -9"):
        svd_residuals(X, (None, -np.array([9.0, 9, 9]), np.eye(3)))
    assert np.isinf(svd_residuals(X, (None, np.zeros(3), np.eye(3)))).all()
    assert (svd_residuals(np.zeros((3, 3)), (None, np.zeros(3), np.eye(3))) == 0).all()


def test_svd_residuals_certify_repeated_triplets_once():
    X = np.diag([3.0, 2, 1])
    same = svd_residuals(X, (None, np.array([3.0, 3, 3]), np.eye(3)[[0, 0, 0]]))
    assert same[0] < 1e-15
    assert np.isinf(same[1:]).all()
    turned = np.array([[1, 0, 0], [0.9999, np.sqrt(1 - 0.9999**2), 0], [0, 0, 1]])
    residuals = svd_residuals(X, (None, np.array([3.0, 3, 1]), turned))
    alone = svd_residuals(X, (None, np.array([3.0]), turned[1:2]))[0]
    assert residuals[0] == residuals[2] == 0
    assert residuals[1] > 50 * alone


@pytest.mark.parametrize("exponent", [-130, -100, -80, 80, 100, 130])
def test_svd_residuals_do_not_depend_on_the_scale(exponent):
    X, scale = np.diag([3.0, 2, 1]), 10.0**exponent
    wrong = np.array([3.0, 2, 1]) * 1.5
    expected = svd_residuals(X, (None, wrong, np.eye(3)))
    residuals = svd_residuals(X * scale, (None, wrong * scale, np.eye(3)))
    np.testing.assert_allclose(residuals, expected, rtol=1e-12)


@pytest.mark.parametrize("scale", [1e-170, 1e-160, 1e150])
def test_svd_refuses_magnitudes_whose_squares_float64_does_not_hold(scale):
    X = np.diag([3.0, 2, 1]) * scale
    with pytest.raises(ValueError, match="X must contain numbers whose largest magnitude"):
        randomized_svd(X, 2)
    with pytest.raises(ValueError, match="largest magnitude"):
        svd_residuals(X, (None, np.array([3.0, 2, 1]) * scale, np.eye(3)))


@pytest.mark.parametrize(
    "scale", [1e-22, *(pytest.param(rest, marks=pytest.mark.slow) for rest in (1e-20, 1e19, 1e30))]
)
def test_svd_of_float32_of_any_magnitude(scale):
    X = (np.random.default_rng(0).standard_normal((400, 400)) * scale).astype(np.float32)
    expected = np.linalg.svd(X.astype(np.float64), compute_uv=False)[0]
    np.testing.assert_allclose(randomized_svd(X, 1).s, [expected], rtol=1e-6)
