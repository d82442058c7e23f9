"""The range of the AUC of labels over rescalings, compared with all corners of the box."""

import numpy as np
import pytest

from fastcos.auditing.label_recovery import label_recovery_range
from fastcos.metrics import pair_auc
from tests.oracles.audit import vertices


def planted(seed, n=240, d=6, informed=2):
    """Return items and labels; only the first dimensions of the items depend on the labels."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, n)
    items = rng.standard_normal((n, d))
    items[:, :informed] += 1.5 * rng.standard_normal((3, informed))[labels]
    return items, labels


@pytest.mark.parametrize("seed", [0, *(pytest.param(s, marks=pytest.mark.slow) for s in (1, 2, 3))])
def test_label_recovery_is_near_the_best_corner(seed):
    items, labels = planted(seed, n=620, d=5)  # the search sees 300
    bounds = label_recovery_range(items, labels, 2.5)
    corners = [pair_auc(items * np.sqrt(w), labels).value for w in vertices(5, 2.5**2)]
    low, high = (
        pair_auc(items / D, labels).value for D in (bounds.low_rescaling, bounds.high_rescaling)
    )
    assert high > max(corners) - 0.01
    assert low < min(corners) + 0.01
    assert bounds.high - bounds.low > 0.02


@pytest.mark.slow
def test_rescalings_attain_both_ends():
    items, labels = planted(5, n=3000)
    bounds = label_recovery_range(items, labels, 3.0)
    for D, auc in ((bounds.low_rescaling, bounds.low), (bounds.high_rescaling, bounds.high)):
        assert D.max() / D.min() <= 3 * (1 + 1e-12)
        # The search used only a tenth of the items, but the AUC of all items is about the same.
        assert pair_auc(items / D, labels).value == pytest.approx(auc, abs=0.01)
    assert pair_auc(items, labels).value == pytest.approx(bounds.given, abs=0.01)
    assert bounds.low <= bounds.given <= bounds.high


def test_weights_find_the_dimensions_of_the_labels():
    # Taken alone, each of the two informative dimensions has an AUC of 0.7.
    items, labels = planted(7, n=600)
    weights = label_recovery_range(items, labels, 10.0).high_rescaling ** -2.0
    assert weights[:2].min() > 5 * weights[2:].max()


def test_condition_one_has_no_range():
    items, labels = planted(7)
    still = label_recovery_range(items, labels, 1.0)
    assert still.low == still.given == still.high
    partial = [None if i % 2 else int(label) for i, label in enumerate(labels)]
    items[0] = 0
    bounds = label_recovery_range(items, partial, 2.0)
    assert bounds.n_items == 60


def test_labels_of_searched_items_are_held_out():
    """The best D separates random labels of the searched items, but not of the held-out items.

    The items have 40 dimensions. 60 of the 120 items are searched, and the other 60 are held out.
    """
    gains, in_sample = [], []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        items, labels = rng.standard_normal((120, 40)), rng.integers(0, 2, 120)
        bounds = label_recovery_range(items, labels, 8.0, random_state=seed)
        gains.append(bounds.high - bounds.given)
        searched = np.random.default_rng(seed).permutation(120)[:60]
        D = bounds.high_rescaling
        in_sample.append(
            pair_auc(items[searched] / D, labels[searched]).value
            - pair_auc(items[searched], labels[searched]).value
        )
    assert max(in_sample) > 0.03
    assert np.mean(gains) < 0.02


def test_labels_too_rare_to_hold_out_give_no_range():
    items = np.random.default_rng(10).standard_normal((20, 3))
    bounds = label_recovery_range(items, [*range(18), 0, 1])
    assert bounds.low == bounds.given == bounds.high
    assert bounds.n_items == 20


def test_random_labels_stay_at_chance_level():
    rng = np.random.default_rng(8)
    items, labels = rng.standard_normal((3000, 12)), rng.integers(0, 4, 3000)
    bounds = label_recovery_range(items, labels, 2.0)
    assert abs(bounds.low - 0.5) < 0.01
    assert abs(bounds.high - 0.5) < 0.01


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"labels": [0, 1]}, "labels must be of shape"),
        ({"labels": [1] * 20}, "labels must have at least two different values"),
        ({"labels": [0, 1] * 10, "condition": 0.5}, "condition must be a finite number >= 1"),
    ],
)
def test_errors_name_the_argument(arguments, message):
    with pytest.raises(ValueError, match=message):
        label_recovery_range(np.random.default_rng(9).standard_normal((20, 3)), **arguments)
