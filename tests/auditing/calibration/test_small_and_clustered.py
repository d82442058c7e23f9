"""If rows are few or clustered, a confidence interval is valid, or a note warns about it.

If a rate is too low for an interval, `rate_interval` refuses it, and a note says so.
"""

import numpy as np
import pytest
from scipy.special import betainc

from fastcos import calibrate


def true_rate(cosine, d):
    """Return the probability that the cosine of two normal rows (d columns) is >= `cosine`."""
    half = 0.5 * betainc((d - 1) / 2, 0.5, 1 - cosine**2)
    return half if cosine >= 0 else 1 - half


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n", "n_seeds"),
    [
        (12, 20),
        (30, 60),
        *(pytest.param(n, 60, marks=pytest.mark.long) for n in (12, 50, 100)),
    ],
)
def test_intervals_of_few_rows_hold_or_are_refused_or_noted(n, n_seeds):
    random = (np.random.default_rng(seed) for seed in range(n_seeds))
    calibrations = [calibrate(rng.standard_normal((n, 8))) for rng in random]
    for fpr in (1e-1, 1e-2, 1e-3, 1e-4):
        good = 0
        for result in calibrations:
            if fpr < result.carried_fpr:
                with pytest.raises(ValueError, match="fpr must be a finite number >= "):
                    result.rate_interval(fpr)
                good += any("have no confidence interval" in note for note in result.notes)
                continue
            low, high = result.rate_interval(fpr, confidence=0.99)
            good += low <= true_rate(result.threshold(fpr), 8) <= high or bool(result.notes)
        assert good >= 0.95 * n_seeds, fpr


@pytest.mark.slow
def test_thresholds_of_few_rows_have_their_rates():
    """The tail model must not be fitted to all 870 ordered pairs of rows, not even with a note."""
    rates = []
    for seed in range(40):
        calibration = calibrate(np.random.default_rng(seed).standard_normal((30, 8)))
        rates.append(true_rate(calibration.threshold(0.1), 8))
    assert 0.09 < np.mean(rates) < 0.11


def test_verdict_of_few_rows_names_no_interval():
    calibration = calibrate(np.random.default_rng(0).standard_normal((12, 8)))
    assert "without a confidence interval" in calibration.verdict
    assert calibration.carried_fpr == pytest.approx(2 / 66)
    rows = {row[0]: row[2] for row in calibration.thresholds().tables[0].rows}
    assert rows["0.001"] == "-"
    assert ".." in rows["0.1"]


def mixture(rng, n, share):
    """Return normal rows; on average, the share `share` of them belongs to one tight cluster."""
    rows = rng.standard_normal((n, 32))
    inside = rng.random(n) < share
    centre = np.random.default_rng(99).standard_normal(32) * 2
    rows[inside] = centre + 0.5 * rng.standard_normal((int(inside.sum()), 32))
    return rows


@pytest.mark.parametrize(
    "share",
    [pytest.param(0.02, marks=pytest.mark.long), pytest.param(0.1, marks=pytest.mark.slow)],
)
def test_intervals_of_a_planted_cluster_hold_or_are_noted(share):
    rng = np.random.default_rng(7)
    sides = [mixture(rng, 10**6, share) for _ in range(2)]
    lengths = [np.linalg.norm(side, axis=1) for side in sides]
    cosines = np.sort(np.einsum("ij,ij->i", *sides) / lengths[0] / lengths[1])
    good = dict.fromkeys((1e-1, 1e-2, 1e-3, 1e-4), 0)
    for seed in range(100):
        calibration = calibrate(mixture(np.random.default_rng(1000 + seed), 500, share))
        cluster_note = "narrow if some rows form one tight cluster"
        noted = any(cluster_note in note for note in calibration.notes)
        for fpr in good:
            low, high = calibration.rate_interval(fpr, confidence=0.99)
            rate = 1 - np.searchsorted(cosines, calibration.threshold(fpr)) / len(cosines)
            good[fpr] += noted or low <= rate <= high
    assert min(good.values()) >= 95, good


@pytest.mark.slow
def test_independent_rows_are_not_called_clustered():
    noted = 0
    for seed in range(20):
        calibration = calibrate(np.random.default_rng(seed).standard_normal((400, 32)))
        noted += any("as one independent pair" in note for note in calibration.notes)
    assert noted <= 1
