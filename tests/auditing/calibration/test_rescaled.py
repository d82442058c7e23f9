"""Tests of the range of a threshold over rescalings.

The tests compare the range with an enumeration of rescalings D, with random rescalings, and with
the bound.
"""

import numpy as np
import pytest

from fastcos import calibrate
from fastcos.auditing import threshold_range


def threshold_of(rows, rate):
    X = rows / np.linalg.norm(rows, axis=1)[:, None]
    scores = np.sort((X @ X.T)[np.triu_indices(len(X), 1)])
    return scores[-int(rate * len(scores) * (1 + 1e-9))]


def every_diagonal(condition, d, steps):
    """Yield every D on a logarithmic grid from 1 to `condition`.

    The smallest entry of each D is 1, because a common factor of all entries changes no cosine.
    """
    line = np.linspace(0, np.log(condition), steps)
    for fixed in range(d):
        for rest in np.stack(np.meshgrid(*[line] * (d - 1)), -1).reshape(-1, d - 1):
            yield np.exp(np.insert(rest, fixed, 0.0))


@pytest.mark.parametrize(("d", "steps"), [(2, 800), pytest.param(3, 40, marks=pytest.mark.slow)])
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_range_equals_the_extremes_of_all_rescalings(d, steps, seed):
    rows = np.random.default_rng(seed).standard_normal((6, d))
    bounds = threshold_range(rows, 0.2, condition=2.0)
    seen = [threshold_of(rows / D, 0.2) for D in every_diagonal(2.0, d, steps)]
    # The rescalings with the lowest and the highest threshold may lie between the points of the
    # grid, at most about one step from the nearest point. The range that the search finds must
    # therefore contain the thresholds of all rescalings on the grid, but may be only slightly
    # wider.
    assert bounds.low == pytest.approx(min(seen), abs=0.02)
    assert bounds.high == pytest.approx(max(seen), abs=0.02)
    assert bounds.low <= min(seen) + 1e-3
    assert bounds.high >= max(seen) - 1e-3


def test_range_of_one_pair_is_the_exact_interval():
    from fastcos.auditing import cosine_interval

    x, y = np.random.default_rng(3).standard_normal((2, 5))
    exact = cosine_interval(x, y, 1.5)
    bounds = threshold_range([x, y], 1.0, condition=1.5)
    assert bounds.low == pytest.approx(exact.low, abs=1e-3)
    assert bounds.high == pytest.approx(exact.high, abs=1e-3)


def test_range_contains_random_rescalings_and_is_attained():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((60, 6)) * [3, 2, 1, 1, 1, 1]
    bounds = threshold_range(rows, 0.01, condition=1.5)
    assert bounds.bound_low <= bounds.low < bounds.given < bounds.high <= bounds.bound_high
    assert threshold_of(rows / bounds.low_rescaling, 0.01) == pytest.approx(bounds.low, abs=1e-12)
    assert threshold_of(rows / bounds.high_rescaling, 0.01) == pytest.approx(bounds.high, abs=1e-12)
    for D in (bounds.low_rescaling, bounds.high_rescaling):
        assert D.max() == 1
        assert D.min() >= 1 / 1.5 - 1e-12
    for _ in range(1000):
        D = np.exp(rng.uniform(0, np.log(1.5), 6))
        assert bounds.low <= threshold_of(rows / D, 0.01) <= bounds.high


def test_range_of_condition_one_is_a_point():
    rows = np.random.default_rng(1).standard_normal((20, 4))
    bounds = threshold_range(rows, 0.1, condition=1.0)
    assert bounds.low == bounds.given == bounds.high
    assert not bounds.spans(0.5)


def test_reading_begins_with_what_rescalings_leave_open():
    rows = np.random.default_rng(2).standard_normal((40, 4))
    calibration = calibrate(rows, condition=1.3, fpr=0.01)
    assert (
        f"between {calibration.rescaling.low:.3f} and {calibration.rescaling.high:.3f}"
        in calibration.verdict
    )
    middle = (calibration.rescaling.low + calibration.rescaling.high) / 2
    assert calibration.reading(middle).startswith("This model does not determine")
    assert not calibration.reading(-0.5).startswith("This model does not determine")


def test_rates_bound_what_a_linear_map_does():
    rng = np.random.default_rng(4)
    rows, condition = rng.standard_normal((80, 4)), 1.4
    calibration = calibrate(rows)
    low, high = calibration.rate_range(0.7, condition)
    for _ in range(50):
        U, _ = np.linalg.qr(rng.standard_normal((4, 4)))
        V, _ = np.linalg.qr(rng.standard_normal((4, 4)))
        G = U * np.exp(rng.uniform(0, np.log(condition), 4)) @ V
        X = rows @ G
        X /= np.linalg.norm(X, axis=1)[:, None]
        rate = ((X @ X.T)[np.triu_indices(80, 1)] >= 0.7).mean()
        # The calibration counts whole bins of scores, so the rates may differ by 1e-3.
        assert low - 1e-3 <= rate <= high + 1e-3


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"fpr": 0}, "fpr"),
        ({"fpr": 2}, "fpr"),
        ({"fpr": 1e-6}, "fpr"),
        ({"fpr": 0.1, "condition": 0.9}, "condition"),
        ({"fpr": 0.1, "sample": 1}, "sample"),
    ],
)
def test_range_refuses_wrong_arguments(arguments, name):
    with pytest.raises(ValueError, match=name):
        threshold_range(np.eye(6), **arguments)
