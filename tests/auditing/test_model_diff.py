"""A retrained but equivalent model raises no alarm; a changed one does, and is told apart."""

import numpy as np
import pytest

from fastcos.auditing.model_diff import version_change
from fastcos.datasets.simulation import simulate_interactions
from fastcos.models.linear_mf import LinearMF
from tests.oracles.audit import neighbour_sets, random_map, random_rotation


def model(seed, n=150, p=300, d=6):
    rng = np.random.default_rng(seed)
    return rng, rng.standard_normal((n, d)), rng.standard_normal((p, d))


@pytest.mark.parametrize("condition", [1.0, 10.0, 1e3])
def test_an_equivalent_model_has_no_real_change(condition):
    rng, users, items = model(1)
    G = random_map(rng, 6, condition)
    found = version_change(items @ G, items, users=users @ np.linalg.inv(G).T, old_users=users, k=5)
    assert found.after_linear == 1
    assert found.query_metric == 1
    assert found.predictions < 1e-10
    assert found.condition == pytest.approx(condition, rel=1e-6)
    assert (found.of_new, found.of_old) == pytest.approx((1, 1))
    assert len(found.most_changed) == 0
    assert (found.kept < 0.8) == (condition > 1)
    assert ", 0.0% really" in found.verdict


def test_the_share_kept_is_that_of_brute_force():
    rng, _, items = model(2)
    other = items + 0.5 * rng.standard_normal(items.shape)
    both = neighbour_sets(items, 5) & neighbour_sets(other, 5)
    found = version_change(other, items, k=5)
    assert found.kept == pytest.approx(both.sum(axis=1).mean() / 5)
    assert found.kept_error == 0
    assert found.after_linear < 0.8


def test_a_rescaling_is_told_from_a_rotation():
    rng, _, items = model(3)
    D = np.array([1, 2, 4, 0.5, 1, 3])
    rescaled = version_change(items * D, items, k=5)
    assert rescaled.kept < 0.9
    assert rescaled.after_rescaling == 1
    turned = version_change(items * D @ random_rotation(rng, 6), items, k=5)
    assert turned.after_rescaling < 0.9
    assert turned.after_linear == 1
    # a rotation changes no cosine: the best scales would be worse than none
    still = version_change(items @ random_rotation(rng, 6), items, k=5)
    assert still.kept == still.after_rescaling == still.after_linear == 1


def test_items_that_moved_are_named_although_all_are_reparametrised():
    rng, _, items = model(4, p=400)
    moved = np.array([3, 50, 111, 399])
    new = items.copy()
    new[moved] = rng.standard_normal((4, 6))
    found = version_change(new @ random_map(rng, 6, 20.0), items, k=10)
    assert found.kept < 0.8
    assert found.after_linear > 0.93
    assert set(moved) <= set(found.most_changed[:6].tolist())
    assert 0.9 < found.of_new < 1


def test_a_version_with_fewer_dimensions_holds_less():
    _, _, items = model(5)
    found = version_change(items[:, :4], items, k=5)
    assert found.after_rescaling is None
    assert found.after_linear == 1
    assert found.of_new == pytest.approx(1)
    assert found.of_old < 0.8


def test_zero_rows_of_either_version_are_left_out_and_numbers_stay():
    rng, _, items = model(6)
    new = items.copy()
    new[0], items[299], new[7] = 0, 0, rng.standard_normal(6)
    found = version_change(new, items, k=5)
    assert found.n_items == 298
    assert found.most_changed[0] == 7


def test_the_two_objectives_on_the_same_data_differ_by_less_than_their_neighbours_do():
    data = simulate_interactions(1500, 150, random_state=2)
    one = LinearMF(8, regularization=400.0).fit(data.X)
    two = LinearMF(8, objective="weight_decay", regularization=5.0).fit(data.X)
    sides = [m.item_embeddings().astype(np.float64) for m in (one, two)]
    found = version_change(sides[1], sides[0], k=5)
    # both are rescalings of one V
    assert found.after_rescaling > 0.999
    assert found.kept < 0.95
    again = version_change(one.item_embeddings("balanced"), one.item_embeddings("data"), k=5)
    assert again.after_linear > 0.999


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"old_items": np.ones((9, 2))}, "old_items must have as many rows as items"),
        ({"old_users": np.ones((4, 5))}, "old_users must have as many columns as old_items"),
        ({"users": np.ones((4, 5))}, "users must have as many columns as items"),
        ({"k": 20}, "k must be a whole number from 1 to 19, got 20"),
        ({"old_items": np.zeros((20, 3))}, "items must have 11 rows that are not zero, got 0"),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    items = np.random.default_rng(7).standard_normal((20, 3))
    with pytest.raises(ValueError, match=message):
        version_change(items, **{"old_items": items, **arguments})
