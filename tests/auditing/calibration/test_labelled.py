"""Tests of the error rates and probabilities of labelled pairs.

The error rates must equal the shares of wrong pairs that a test counts. The probabilities must
agree with their definitions.
"""

import numpy as np
import pytest

from fastcos.auditing import calibrate_pairs


def labelled(n=400, seed=0):
    rng = np.random.default_rng(seed)
    relevant = rng.random(n) < 0.3
    return np.round(rng.normal(0.3 + 0.3 * relevant, 0.15), 2), relevant


def test_error_rates_equal_counts_at_any_threshold():
    scores, relevant = labelled()
    calibration = calibrate_pairs(scores, relevant)
    for threshold in (-1, 0.295, 0.3, 0.5, float(scores.max()), 2):
        accepted = scores >= threshold
        assert calibration.error_rates(threshold) == pytest.approx(
            (accepted[~relevant].mean(), (~accepted[relevant]).mean())
        )


def test_auc_counts_pairs_and_half_of_ties():
    scores, relevant = labelled(60)
    yes, no = scores[relevant][:, None], scores[~relevant][None]
    expected = ((yes > no) + 0.5 * (yes == no)).mean()
    assert calibrate_pairs(scores, relevant).auc == pytest.approx(expected)


@pytest.mark.parametrize("method", ["isotonic", "platt"])
def test_probabilities_ascend_and_average_to_the_share(method):
    scores, relevant = labelled()
    calibration = calibrate_pairs(scores, relevant, method=method)
    p = calibration.probability(np.linspace(-1, 2, 300))
    assert (np.diff(p) >= 0).all()
    assert p.min() >= 0
    assert p.max() <= 1
    # The mean of the estimated probabilities equals the mean of the labels. With Platt's method,
    # these two means are equal only approximately.
    assert calibration.probability(scores).mean() == pytest.approx(relevant.mean(), abs=0.01)
    assert calibration.probability([[-np.inf]]).tolist() == [[0.0]]


def test_platt_curve_recovers_a_logistic_law():
    rng = np.random.default_rng(0)
    scores = rng.uniform(-1, 1, 20_000)
    relevant = rng.random(20_000) < 1 / (1 + np.exp(-(4 * scores - 1)))
    slope, intercept = calibrate_pairs(scores, relevant, method="platt").probabilities
    assert slope == pytest.approx(4, rel=0.05)
    assert intercept == pytest.approx(-1, abs=0.1)


def test_platt_curve_is_finite_for_separable_labels():
    calibration = calibrate_pairs([0.1, 0.2, 0.8, 0.9], [0, 0, 1, 1], method="platt")
    assert 0 < calibration.probability(0.1) < 0.5 < calibration.probability(0.9) < 1


def test_prevalence_changes_the_odds_by_one_ratio():
    scores, relevant = labelled()
    calibration = calibrate_pairs(scores, relevant, method="platt")
    p, rare = calibration.probability(0.5), calibration.probability(0.5, prevalence=0.001)
    prior = relevant.mean() / (1 - relevant.mean())
    assert rare / (1 - rare) == pytest.approx(p / (1 - p) * (0.001 / 0.999) / prior)


@pytest.mark.parametrize(
    ("scores", "relevant", "method", "name"),
    [
        ([0.1, 0.2], [1, 1], "isotonic", "relevant"),
        ([0.1, 0.2], [0, 2], "isotonic", "relevant"),
        ([0.1, 0.2], [0, 1, 1], "isotonic", "relevant"),
        ([0.1, np.nan], [0, 1], "isotonic", "scores"),
        ([0.1, 0.2], [0, 1], "linear", "method"),
    ],
)
def test_calibrate_pairs_refuses_wrong_arguments(scores, relevant, method, name):
    with pytest.raises(ValueError, match=name):
        calibrate_pairs(scores, relevant, method=method)


def test_probability_refuses_wrong_arguments():
    calibration = calibrate_pairs([0.1, 0.2, 0.3], [0, 1, 1])
    with pytest.raises(ValueError, match="scores"):
        calibration.probability(np.nan)
    for prevalence in (0, 1):
        with pytest.raises(ValueError, match="prevalence"):
            calibration.probability(0.2, prevalence=prevalence)
