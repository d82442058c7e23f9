"""Tests of choose_rank on data whose rank is known."""

import numpy as np
import pytest

from fastcos import simulate_interactions
from fastcos.comparison import choose_rank
from fastcos.comparison.rank import largest_gap, shuffled_users


@pytest.fixture(scope="module")
def simulation():
    return simulate_interactions(1500, 150, preset="zipf_pareto_focused", random_state=2)


def test_choose_rank_finds_the_clusters(simulation):
    choice = choose_rank(simulation.X)
    assert choice.by_gap in (5, 6)
    assert 4 <= choice.by_parallel_analysis <= 9
    assert choice.by_held_out in choice.ranks
    assert choice.ndcg_error[choice.ndcg.argmax()] == 0
    assert (np.diff(choice.singular_values) <= 0).all()


def test_choose_rank_finds_no_signal_in_noise(simulation):
    noise = shuffled_users(simulation.X, np.random.default_rng(0))
    assert (noise.sum(axis=0) == simulation.X.sum(axis=0)).all()
    assert (noise.data == 1).all()
    assert abs(noise - simulation.X).sum() > 0
    # Each item has as many users in the noise as it has in X. The first direction of the noise
    # therefore reflects the popularity of the items, as the first direction of X does.
    assert choose_rank(noise, ranks=[2, 5, 20]).by_parallel_analysis <= 4


def test_largest_gap_leaves_popularity_out():
    assert largest_gap(np.array([100.0, 9, 8, 7, 2, 1.9])) == 4
    assert largest_gap(np.array([5.0, 1])) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"ranks": [1]}, "ranks must be a whole number from 2 to 20, got 1"),
        ({"ranks": []}, "ranks must have at least one rank"),
        ({"regularization": -1}, "regularization must be a finite number >= 0, got -1"),
        ({"random_state": -1}, "random_state must be"),
    ],
)
def test_choose_rank_refuses_wrong_arguments(arguments, message):
    X = np.random.default_rng(0).random((30, 20)) < 0.3
    with pytest.raises(ValueError, match=message):
        choose_rank(X.astype(float), **arguments)
