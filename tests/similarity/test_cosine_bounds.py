"""No random rescaling exceeds a bound on cosines, and constructed rescalings attain the bounds."""

import numpy as np
import pytest

from fastcos.similarity.cosine_bounds import (
    cosine_interval,
    fisher_z_interval,
    rescaling_distance,
    tv_index,
    unbounded_range,
)
from tests.oracles.audit import (
    cosine,
    cosines_at,
    minimise_over_box,
    random_map,
    random_rotation,
    vertices,
)


def random_pair(rng, d, kind):
    """Return a pair of vectors of one of five kinds.

    The kinds are Gaussian, equal signs, small integers, nearly collinear, and opposite signs.
    """
    x, y = rng.standard_normal((2, d))
    if kind == 1:
        y = np.abs(y) * np.sign(x)
    elif kind == 2:
        x, y = rng.integers(-2, 3, (2, d)).astype(float)
        x[0], y[-1] = 1.0, 1.0
    elif kind == 3:
        y = x * np.exp(rng.normal(0, 0.3, d))
    elif kind == 4:
        y = -np.abs(y) * np.sign(x)
    return x, y


def pairs(seed, n, largest=10):
    rng = np.random.default_rng(seed)
    for number in range(n):
        d = int(rng.integers(1, largest + 1))
        yield rng, *random_pair(rng, d, number % 5), float(np.exp(rng.uniform(0.01, 4)))


@pytest.mark.parametrize(
    "n", [400, pytest.param(10_000, marks=[pytest.mark.slow, pytest.mark.long])]
)
def test_cosine_interval_equals_all_corners(n):
    for _, x, y, condition in pairs(1, n):
        interval = cosine_interval(x, y, condition)
        corners = cosines_at(x, y, vertices(len(x), condition**2))
        if corners.max() > 0:
            assert interval.high == pytest.approx(min(corners.max(), 1), abs=1e-12)
        if corners.min() < 0:
            assert interval.low == pytest.approx(max(corners.min(), -1), abs=1e-12)
        assert interval.low <= corners.min() + 1e-12
        assert interval.high >= corners.max() - 1e-12


@pytest.mark.slow
@pytest.mark.parametrize(
    "n", [400, pytest.param(10_000, marks=[pytest.mark.slow, pytest.mark.long])]
)
def test_cosine_interval_rescalings_attain_both_ends(n):
    for _, x, y, condition in pairs(2, n, 40):
        interval = cosine_interval(x, y, condition)
        for D, end in (
            (interval.low_rescaling, interval.low),
            (interval.high_rescaling, interval.high),
        ):
            assert D.max() / D.min() <= condition * (1 + 1e-14)
            assert cosine(x / D, y / D) == pytest.approx(end, abs=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("n", [20, pytest.param(1000, marks=pytest.mark.long)])
def test_cosine_interval_bounds_a_numerical_minimiser(n):
    reached = 0
    for rng, x, y, condition in pairs(3, n, 7):
        low = cosine_interval(x, y, condition).low
        best = minimise_over_box(lambda w: cosine(x, y, w), len(x), condition**2, rng)  # noqa: B023
        assert low <= best + 1e-9
        reached += best <= low + 1e-7
    assert reached > 0.9 * n


@pytest.mark.slow
def test_intervals_are_nested():
    for rng, x, y, condition in pairs(4, 200, 30):
        inner, outer = cosine_interval(x, y, condition), cosine_interval(x, y, 1.5 * condition)
        bound = fisher_z_interval(cosine(x, y), condition)
        everything = unbounded_range(x, y)
        w = np.exp(rng.uniform(0, 2 * np.log(condition), (200, len(x))))
        drawn = cosines_at(x, y, w)
        assert outer.low - 1e-12 <= inner.low <= drawn.min() + 1e-12
        assert outer.high + 1e-12 >= inner.high >= drawn.max() - 1e-12
        assert bound.low - 1e-9 <= inner.low <= inner.high <= bound.high + 1e-9
        assert everything.low - 1e-12 <= inner.low <= inner.high <= everything.high + 1e-12


def test_cosine_interval_symmetries():
    rng = np.random.default_rng(5)
    x, y = rng.standard_normal((2, 20, 9))
    stacked = cosine_interval(x, y, 1.7)
    for i in range(20):
        one = cosine_interval(x[i], y[i], 1.7)
        assert (one.low, one.high) == (stacked.low[i], stacked.high[i])
        np.testing.assert_array_equal(one.low_rescaling, stacked.low_rescaling[i])
        other = cosine_interval(1e200 * y[i], 1e-200 * x[i], 1.7)
        assert (other.low, other.high) == pytest.approx((one.low, one.high), abs=1e-13)
        mirrored = cosine_interval(x[i], -y[i], 1.7)
        assert (-mirrored.high, -mirrored.low) == pytest.approx((one.low, one.high), abs=1e-13)


def test_condition_one_and_collinear_pairs_have_no_range():
    x = np.array([0.3, -2.0, 0.7])
    still = cosine_interval(x, [1.0, 1.0, 0.0], 1.0)
    assert still.low == pytest.approx(cosine(x, np.array([1.0, 1.0, 0.0])), abs=1e-15)
    assert still.high == pytest.approx(still.low, abs=1e-15)
    for factor, value in ((3.0, 1.0), (-0.1, -1.0)):
        collinear = cosine_interval(x, factor * x, 100.0)
        assert (collinear.low, collinear.high) == pytest.approx((value, value), abs=1e-14)
        assert tv_index(x, factor * x).index == 0
    one = cosine_interval([2.0], [-3.0], 5.0)
    assert (one.low, one.high) == (-1.0, -1.0)


def test_zero_rows_have_nan():
    x = np.array([[1.0, 2.0], [0.0, 0.0]])
    y = np.array([[0.0, 0.0], [1.0, 1.0]])
    interval = cosine_interval(x, y, 2.0)
    assert np.isnan([*interval.low, *interval.high]).all()
    assert np.isnan([*unbounded_range(x, y).low, *tv_index(x, y).index]).all()


def test_unbounded_range_holds_and_is_approached():
    rng = np.random.default_rng(6)
    for kind in range(5):
        for _ in range(20):
            d = int(rng.integers(2, 8))
            x, y = random_pair(rng, d, kind)
            low, high = unbounded_range(x, y)
            drawn = cosines_at(x, y, np.exp(rng.uniform(-12, 12, (500, d))))
            assert low - 1e-12 <= drawn.min()
            assert drawn.max() <= high + 1e-12
            near = two_position_cosines(x, y)
            assert near.min() <= low + 1e-3
            assert near.max() >= high - 1e-3


def two_position_cosines(x, y):
    """Return cosines for weights that are almost 0 (1e-14), except for one or two."""
    d, values = len(x), []
    for i in range(d):
        for j in range(d):
            weights = np.full((401, d), 1e-14)
            weights[:, i] = 1.0
            if j != i:
                weights[:, j] = np.exp(np.linspace(-9, 9, 401))
            used = np.isfinite(c := cosines_at(x, y, weights)) & (np.abs(c) <= 1 + 1e-9)
            values.extend(c[used])
    return np.array(values)


def batched_z(M, x, y):
    """Return Fisher's z of pairs (n, d) in metrics (n, d, d)."""
    xy, xx, yy = (np.einsum("ni,nij,nj->n", a, M, b) for a, b in ((x, y), (x, x), (y, y)))
    return np.arctanh(np.clip(xy / np.sqrt(xx * yy), -1 + 1e-15, 1 - 1e-15))


def random_metrics(rng, n, d, log_spread):
    A = np.linalg.qr(rng.standard_normal((n, d, d)))[0]
    values = np.exp(log_spread * rng.standard_normal((n, d)))
    return np.einsum("nij,nj,nkj->nik", A, values, A)


@pytest.mark.slow
@pytest.mark.parametrize("n", [2_000, pytest.param(8_000, marks=pytest.mark.slow)])
def test_metrics_move_fisher_z_by_at_most_half_the_distance(n):
    rng = np.random.default_rng(7)
    violations, tightest = 0, 0.0
    for d in (2, 3, 5, 8):
        first, second = (random_metrics(rng, n // 4, d, 0.7) for _ in range(2))
        x, y = rng.standard_normal((2, n // 4, d))
        moved = np.abs(batched_z(first, x, y) - batched_z(second, x, y))
        half = 0.5 * np.array(
            [rescaling_distance(a, b) for a, b in zip(first, second, strict=True)]
        )
        violations += int((moved > half * (1 + 1e-9) + 1e-9).sum())
        tightest = max(tightest, float((moved / half).max()))
    assert violations == 0
    assert tightest > 0.99


def test_fisher_z_interval_is_attained_at_both_ends():
    rng = np.random.default_rng(8)
    for _ in range(100):
        d, condition = int(rng.integers(2, 7)), float(np.exp(rng.uniform(0, 2)))
        x, y = rng.standard_normal((2, d))
        x, y = x / np.linalg.norm(x), y / np.linalg.norm(y)
        plus, minus = (v / np.linalg.norm(v) for v in (x + y, x - y))
        low, high = fisher_z_interval(float(x @ y), condition)
        for grown, end in ((minus, low), (plus, high)):
            G = np.eye(d) + (condition - 1) * np.outer(grown, grown)
            assert cosine(x @ G, y @ G) == pytest.approx(end, abs=1e-12)


def test_fisher_z_interval_holds_under_random_maps():
    rng = np.random.default_rng(9)
    x, y = rng.standard_normal((2, 200, 5))
    cosines = np.array([cosine(a, b) for a, b in zip(x, y, strict=True)])
    interval = fisher_z_interval(cosines, 3.0)
    for _ in range(50):
        G = random_map(rng, 5, 3.0)
        moved = np.array([cosine(a @ G, b @ G) for a, b in zip(x, y, strict=True)])
        assert (interval.low - 1e-12 <= moved).all()
        assert (moved <= interval.high + 1e-12).all()
    assert fisher_z_interval(1.0, 9.0) == (1.0, 1.0)
    assert fisher_z_interval(-1.0, 9.0) == (-1.0, -1.0)


def test_user_item_cosines_move_by_at_most_the_condition():
    rng = np.random.default_rng(10)
    for _ in range(500):
        d, condition = int(rng.integers(2, 7)), float(np.exp(rng.uniform(0, 2)))
        u, b, G = *rng.standard_normal((2, d)), random_map(rng, d, condition)
        before, after = cosine(u, b), cosine(u @ np.linalg.inv(G).T, b @ G)
        assert abs(np.log(after / before)) <= np.log(condition) + 1e-9


def test_rescaling_distance_of_powers_of_the_spectrum():
    s = np.array([9.0, 4.0, 1.5])
    assert rescaling_distance(s**0, s ** (2 * 0.5)) == pytest.approx(2 * 0.5 * np.log(6))
    rng = np.random.default_rng(11)
    A = random_map(rng, 3, 5.0)
    one, other = A @ A.T, np.diag(s)
    assert rescaling_distance(one, s) == pytest.approx(rescaling_distance(s, one))
    T = rng.standard_normal((3, 3))
    moved = rescaling_distance(T @ one @ T.T, 7 * T @ other @ T.T)
    assert moved == pytest.approx(rescaling_distance(one, s))


def test_tv_contributions_are_derivatives_of_fisher_z():
    rng = np.random.default_rng(12)
    for _ in range(100):
        d = int(rng.integers(2, 9))
        x, y = rng.standard_normal((2, d))
        result, step = tv_index(x, y), 1e-5
        for j in range(d):
            up, down = np.ones(d), np.ones(d)
            up[j], down[j] = np.exp(step), np.exp(-step)
            change = np.arctanh(cosine(x, y, up)) - np.arctanh(cosine(x, y, down))
            assert result.contributions[j] == pytest.approx(change / (2 * step), abs=1e-7)
        assert result.contributions.sum() == pytest.approx(0, abs=1e-14)
        assert result.index == pytest.approx(np.abs(result.contributions).sum(), abs=1e-14)
        assert 0 <= result.index <= 1


def test_tv_index_depends_on_the_basis():
    rng = np.random.default_rng(13)
    x, y = rng.standard_normal((2, 6))
    R = random_rotation(rng, 6)
    assert abs(tv_index(x, y).index - tv_index(x @ R, y @ R).index) > 0.01


def test_cosine_sign_changes_are_bounded_by_the_products():
    rng = np.random.default_rng(14)
    for _ in range(300):
        d = int(rng.integers(2, 7))
        x, y, s = *rng.standard_normal((2, d)), np.sort(np.exp(rng.uniform(0, 3, d)))
        c = cosines_at(x, y, s ** np.linspace(-20, 20, 400)[:, np.newaxis])
        changes = int((np.diff(np.sign(c)) != 0).sum())
        assert changes <= int((np.diff(np.sign(x * y)) != 0).sum())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: cosine_interval([1.0], [1.0, 2.0], 2), "y must have as many columns as x"),
        (lambda: cosine_interval([1.0], [1.0], 0.9), "condition must be a finite number >= 1"),
        (lambda: cosine_interval([1.0], [np.nan], 2), "y must be finite"),
        (lambda: cosine_interval(np.ones((2, 2)), np.ones((3, 2)), 2), "y must have as many rows"),
        (lambda: fisher_z_interval([0.0, 1.5], 2), "cosine must be from -1 to 1"),
        (lambda: rescaling_distance([1.0, -1.0], [1.0, 1.0]), "first must be positive"),
        (lambda: rescaling_distance(np.eye(2), np.eye(3)), r"second must be of shape \(2, 2\)"),
        (
            lambda: rescaling_distance([[1.0, 2.0], [2.0, 1.0]], np.eye(2)),
            "first must be symmetric",
        ),
    ],
)
def test_errors_name_the_argument(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_results_are_bit_identical_for_any_threads():
    rng = np.random.default_rng(15)
    x, y = rng.standard_normal((2, 3000, 64))
    one, all_of_them = (cosine_interval(x, y, 2.0, n_threads=n) for n in (1, 4))
    for a, b in zip(one, all_of_them, strict=True):
        np.testing.assert_array_equal(a, b)
    for a, b in zip(tv_index(x, y, n_threads=1), tv_index(x, y, n_threads=4), strict=True):
        np.testing.assert_array_equal(a, b)


def test_cosines_above_one_by_float32_rounding_are_clipped():
    cosines = [-1 - 1e-7, 1 + 9e-7, 0.5]
    interval = fisher_z_interval(cosines, 1.0)
    np.testing.assert_allclose(interval.low, [-1, 1, 0.5], rtol=1e-15)
    with pytest.raises(
        ValueError, match=r"cosine must be from -1 to 1, got .*1\.1.* at position 2"
    ):
        fisher_z_interval([0, 1, 1.1, 2], 2.0)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_a_metric_is_symmetric_up_to_rounding(scale):
    rng = np.random.default_rng(0)
    A = rng.standard_normal((5, 9))
    symmetric = scale * (A @ A.T)
    rounded = symmetric * (1 + 1e-13 * rng.standard_normal((5, 5)))
    assert rescaling_distance(rounded, symmetric) < 1e-9
    asymmetric = symmetric.copy()
    asymmetric[0, 1] += 1e-8 * np.abs(symmetric).max()
    with pytest.raises(ValueError, match="first must be symmetric and positive definite"):
        rescaling_distance(asymmetric, symmetric)


def test_a_metric_is_positive_in_each_direction():
    for lowest in (0.0, -0.25):
        with pytest.raises(ValueError, match=f"got a smallest eigenvalue of {lowest:g}"):
            rescaling_distance(np.diag([3.0, lowest, 2.0]), np.eye(3))
    with pytest.raises(
        ValueError, match=r"second must be of shape \(3, 3\) or \(3,\), got \(2, 2\)"
    ):
        rescaling_distance([1.0, 1.0, 1.0], np.eye(2))
    with pytest.raises(ValueError, match="second must"):
        rescaling_distance([1.0, 1.0, 1.0], [1.0, 2.0])
