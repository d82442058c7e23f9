"""The helpers that compare results accept correct results, and reject wrong ones."""

import numpy as np
import pytest

from tests.oracles.compare import assert_same_bits, assert_same_neighbours

TRUTH = np.array([[0.9, 0.5, 0.5, 0.1, -0.3], [0.2, 0.8, 0.4, 0.4, 0.0]])
COLUMNS = np.array([[0, 1, 2], [1, 2, 3]])
SCORES = np.take_along_axis(TRUTH, COLUMNS, axis=1)


def test_same_neighbours_accepts_any_order_of_ties():
    assert_same_neighbours(COLUMNS, SCORES, TRUTH)
    assert_same_neighbours(COLUMNS[:, [0, 2, 1]], SCORES, TRUTH)
    assert_same_neighbours(COLUMNS[:, :1], SCORES[:, :1], TRUTH)
    assert_same_neighbours(COLUMNS, SCORES.astype(np.float32), TRUTH)


def test_same_neighbours_accepts_a_tie_at_the_cut():
    assert_same_neighbours([[0, 2], [1, 3]], SCORES[:, :2], TRUTH)


def test_same_neighbours_skips_excluded_pairs():
    truth = TRUTH.copy()
    truth[0, 0] = truth[1, 1] = -np.inf
    assert_same_neighbours([[1, 2], [2, 3]], [[0.5, 0.5], [0.4, 0.4]], truth)
    with pytest.raises(AssertionError):
        assert_same_neighbours([[0, 1], [1, 2]], [[0.9, 0.5], [0.8, 0.4]], truth)


def with_entry(array, value, at=(0, 1)):
    other = array.copy()
    other[at] = value
    return other


@pytest.mark.parametrize(
    ("columns", "scores"),
    [
        pytest.param(COLUMNS[:, ::-1], SCORES, id="order reversed"),
        pytest.param(COLUMNS[:, ::-1], SCORES[:, ::-1], id="order reversed with its scores"),
        pytest.param(with_entry(COLUMNS, 3), SCORES, id="missed neighbour"),
        pytest.param(with_entry(COLUMNS, 3), with_entry(SCORES, 0.1), id="missed, score honest"),
        pytest.param(with_entry(COLUMNS, 2), SCORES, id="repeated column"),
        pytest.param(with_entry(COLUMNS, -1), SCORES, id="padding"),
        pytest.param(with_entry(COLUMNS, -4), SCORES, id="negative column of the right item"),
        pytest.param(with_entry(COLUMNS, 5), SCORES, id="column out of range"),
        pytest.param(COLUMNS, with_entry(SCORES, 0.51), id="wrong score"),
        pytest.param(COLUMNS, with_entry(SCORES, np.nan), id="NaN"),
        pytest.param(COLUMNS, with_entry(SCORES, -np.inf), id="minus infinity"),
        pytest.param(COLUMNS[::-1], SCORES[::-1], id="rows swapped"),
        pytest.param(COLUMNS[:1], SCORES[:1], id="row missing"),
        pytest.param(COLUMNS, SCORES[:, :2], id="score missing"),
    ],
)
def test_same_neighbours_rejects_wrong_results(columns, scores):
    with pytest.raises((AssertionError, ValueError)):
        assert_same_neighbours(columns, scores, TRUTH)


def test_same_neighbours_rejects_swaps_beyond_rtol():
    truth = np.array([[0.5, 0.5 + 1e-4, 0.1]])
    assert_same_neighbours([[0, 1]], [[0.5, 0.5]], truth, rtol=1e-3)
    with pytest.raises(AssertionError):
        assert_same_neighbours([[0, 1]], [[0.5, 0.5 + 1e-4]], truth)


def test_same_bits_accepts_nan():
    assert_same_bits(np.array([np.nan, 1.0]), np.array([np.nan, 1.0]), np.array([np.nan, 1.0]))


@pytest.mark.parametrize(
    "other",
    [
        np.array([0.0, 1.0], np.float32),
        np.array([-0.0, 1.0]),
        np.array([0.0, np.nextafter(1.0, 2.0)]),
        np.array([[0.0, 1.0]]),
        np.array([0.0]),
    ],
)
def test_same_bits_rejects_other_bits(other):
    with pytest.raises(AssertionError):
        assert_same_bits(np.array([0.0, 1.0]), other)
