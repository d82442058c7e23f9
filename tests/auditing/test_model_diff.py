"""The diff of equivalent models shows only a change of parametrisation; a real change is found."""

import numpy as np
import pytest

from fastcos.auditing.model_diff import diff_models
from fastcos.models.linear_mf import LinearMF
from fastcos.models.simulation import simulate_interactions
from tests.oracles.audit import neighbour_sets, random_map, random_rotation


def model(seed, n=150, p=300, d=6):
    rng = np.random.default_rng(seed)
    return rng, rng.standard_normal((n, d)), rng.standard_normal((p, d))


@pytest.mark.parametrize("condition", [1.0, 10.0, 1e3])
def test_an_equivalent_model_has_no_real_change(condition):
    rng, users, items = model(1)
    G = random_map(rng, 6, condition)
    difference = diff_models(
        items @ G, items, users=users @ np.linalg.inv(G).T, old_users=users, k=5
    )
    assert difference.overlap_after_linear_map == 1
    assert difference.query_metric_overlap == 1
    assert difference.prediction_change < 1e-10
    assert difference.condition == pytest.approx(condition, rel=1e-6)
    assert (difference.explained_new, difference.explained_old) == pytest.approx((1, 1))
    assert len(difference.most_changed) == 0
    assert (difference.overlap < 0.8) == (condition > 1)
    assert "and 0.0% because of a real change." in difference.verdict


def test_overlap_equals_brute_force():
    rng, _, items = model(2)
    other = items + 0.5 * rng.standard_normal(items.shape)
    both = neighbour_sets(items, 5) & neighbour_sets(other, 5)
    difference = diff_models(other, items, k=5)
    assert difference.overlap == pytest.approx(both.sum(axis=1).mean() / 5)
    assert difference.overlap_error == 0
    assert difference.overlap_after_linear_map < 0.8


def test_a_rescaling_is_distinguished_from_a_rotation():
    rng, _, items = model(3)
    D = np.array([1, 2, 4, 0.5, 1, 3])
    rescaled = diff_models(items * D, items, k=5)
    assert rescaled.overlap < 0.9
    assert rescaled.overlap_after_rescaling == 1
    turned = diff_models(items * D @ random_rotation(rng, 6), items, k=5)
    assert turned.overlap_after_rescaling < 0.9
    assert turned.overlap_after_linear_map == 1
    # A rotation changes no cosine, so the overlap is 1 even without a map. A rescaling of the
    # columns can only decrease this overlap.
    still = diff_models(items @ random_rotation(rng, 6), items, k=5)
    assert still.overlap == still.overlap_after_linear_map == still.unchanged == 1
    assert still.overlap_after_rescaling < 0.9


def test_most_changed_finds_moved_items():
    rng, _, items = model(4, p=400)
    moved = np.array([3, 50, 111, 399])
    new = items.copy()
    new[moved] = rng.standard_normal((4, 6))
    difference = diff_models(new @ random_map(rng, 6, 20.0), items, k=10)
    assert difference.overlap < 0.8
    assert difference.overlap_after_linear_map > 0.93
    assert set(moved) <= set(difference.most_changed[:6].tolist())
    assert 0.9 < difference.explained_new < 1


def test_fewer_dimensions_explain_less():
    _, _, items = model(5)
    difference = diff_models(items[:, :4], items, k=5)
    assert difference.overlap_after_rescaling is None
    assert difference.overlap_after_linear_map == 1
    assert difference.explained_new == pytest.approx(1)
    assert difference.explained_old < 0.8


def test_zero_rows_of_either_version_are_left_out():
    rng, _, items = model(6)
    new = items.copy()
    new[0], items[299], new[7] = 0, 0, rng.standard_normal(6)
    difference = diff_models(new, items, k=5)
    assert difference.n_items == 298
    assert difference.most_changed[0] == 7


def test_both_objectives_differ_by_a_rescaling():
    data = simulate_interactions(1500, 150, random_state=2)
    one = LinearMF(8, regularization=400.0).fit(data.X)
    two = LinearMF(8, objective="weight_decay", regularization=5.0).fit(data.X)
    sides = [m.item_embeddings().astype(np.float64) for m in (one, two)]
    difference = diff_models(sides[1], sides[0], k=5)
    # Both models are rescalings of the same matrix V.
    assert difference.overlap_after_rescaling > 0.999
    assert difference.overlap < 0.95
    again = diff_models(one.item_embeddings("balanced"), one.item_embeddings("data"), k=5)
    assert again.overlap_after_linear_map > 0.999


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"old_items": np.ones((9, 2))}, "old_items must have as many rows as items"),
        ({"old_users": np.ones((4, 5))}, "old_users must have as many columns as old_items"),
        ({"users": np.ones((4, 5))}, "users must have as many columns as items"),
        ({"k": 20}, "k must be a whole number from 1 to 19, got 20"),
        ({"old_items": np.zeros((20, 3))}, "items must have at least 11 rows .* zero, got 0"),
    ],
)
def test_errors_name_the_argument(arguments, message):
    items = np.random.default_rng(7).standard_normal((20, 3))
    with pytest.raises(ValueError, match=message):
        diff_models(items, **{"old_items": items, **arguments})


def test_each_overlap_is_that_of_its_map():
    """The overlap after a map shows how many neighbours the map loses.

    The map is fitted to the vectors. The fit does not consider the lists of neighbours, so the map
    may lose neighbours.
    """
    rng = np.random.default_rng(21)
    old = rng.standard_normal((300, 6)) * np.geomspace(1, 0.02, 6)
    new = old.copy()
    new[:3] += 40 * rng.standard_normal((3, 6))  # Three outliers are enough to bend the fitted map.
    difference = diff_models(new, old, k=5)
    G = np.linalg.lstsq(old, new, rcond=None)[0]

    def nearest(rows):
        units = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        scores = units @ units.T
        np.fill_diagonal(scores, -2)
        return np.argsort(-scores, axis=1)[:, :5]

    share = np.mean(
        [len({*a} & {*b}) / 5 for a, b in zip(nearest(old @ G), nearest(new), strict=True)]
    )
    assert difference.overlap_after_linear_map == pytest.approx(share, abs=1e-9)
    assert difference.overlap > share
    assert difference.unchanged == max(
        difference.overlap, difference.overlap_after_rescaling, share
    )
