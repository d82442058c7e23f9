"""Tests of ratios and of their intervals. The true ratio of the times in these tests is known."""

import numpy as np
import pytest

from benchgate import Ratio, intervals


@pytest.mark.parametrize(
    ("low", "high", "exceeds"), [(1.11, 1.3, True), (1.0, 1.10, False), (1.10, 1.2, None), (1.05, 1.15, None)]
)
def test_ratio_exceeds_a_limit_by_its_interval(low, high, exceeds):
    assert Ratio("s", 1.0, 1.0, 1.1, low, high, 10).exceeds(1.10) is exceeds


def test_estimate_ratio_takes_the_median_over_turns():
    # During the three turns, the machine becomes three times as slow, and another program disturbs
    # head once.
    base = [1.0, 2.0, 3.0]
    head = [1.2, 9.0, 3.6]
    ratio = intervals.estimate_ratio("s", [(base, head)] * 10)
    assert ratio.ratio == pytest.approx(1.2)
    assert (ratio.base, ratio.head, ratio.pairs) == (2.0, 3.6, 10)


def test_estimate_ratio_ignores_disturbed_pairs():
    pairs = [([1.0], [1.2])] * 8 + [([1.0], [50.0]), ([50.0], [1.0])]
    assert intervals.estimate_ratio("s", pairs).ratio == pytest.approx(1.2)


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("inf"), float("nan")])
def test_estimate_ratio_refuses_impossible_times(seconds):
    with pytest.raises(ValueError, match="seconds of s in head must be positive, got"):
        intervals.estimate_ratio("s", [([1.0], [seconds])] * 10)


@pytest.mark.parametrize(("draw", "most"), [("standard_normal", 0.99), ("standard_cauchy", 1.0)])
def test_bootstrap_interval_covers_the_true_ratio(draw, most):
    noise = getattr(np.random.default_rng(0), draw)((120, 10))
    ends = [intervals.bootstrap_interval(logs, 0.95) for logs in np.log(1.2) + 0.05 * noise]
    covered = np.mean([low <= 1.2 <= high for low, _, high in ends])
    assert 0.91 <= covered <= most  # 0.91 is 0.95 minus two standard deviations over 120 draws
