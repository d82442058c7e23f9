"""Pairs next to a threshold, and the scores of given pairs, are compared with plain NumPy."""

import tracemalloc

import numpy as np
import pytest

from fastcos import calibrate
from fastcos.auditing import pairs_near, score_pairs


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1)[:, None]


def test_pairs_near_are_the_nearest_on_each_side():
    rows = np.random.default_rng(0).standard_normal((60, 5))
    result = pairs_near(rows, 0.4, n_each=3)
    scores = unit(rows) @ unit(rows).T
    np.testing.assert_allclose(scores[result.queries, result.items], result.scores, atol=1e-12)
    assert (result.scores[:3] >= 0.4).all()
    assert (result.scores[3:] < 0.4).all()
    assert (np.diff(result.scores) <= 0).all()
    every = scores[np.triu_indices(60, 1)]
    assert result.scores[2] == pytest.approx(every[every >= 0.4].min(), abs=1e-12)
    assert result.scores[3] == pytest.approx(every[every < 0.4].max(), abs=1e-12)


def test_pairs_near_of_queries_may_be_of_one_side():
    rows = np.random.default_rng(1).standard_normal((40, 5))
    result = pairs_near(rows, 2.0, rows[:7] + 1, n_each=4)
    assert len(result.scores) == 4
    assert result.queries.max() < 7


def test_score_pairs_equals_numpy():
    rng = np.random.default_rng(2)
    rows, pairs = rng.standard_normal((300, 4)), rng.integers(0, 300, (500, 2))
    expected = np.einsum("ij,ij->i", unit(rows)[pairs[:, 0]], unit(rows)[pairs[:, 1]])
    np.testing.assert_allclose(score_pairs(rows, pairs), expected, atol=1e-12)
    expected = np.einsum("ij,ij->i", rows[pairs[:, 0]], rows[pairs[:, 1]])
    np.testing.assert_allclose(score_pairs(rows, pairs, measure="dot"), expected, atol=1e-12)


@pytest.mark.parametrize("pairs", [[[0, 3]], [[-1, 0]], [[0.0, 1.0]], [0, 1]])
def test_score_pairs_refuses_wrong_pairs(pairs):
    with pytest.raises(ValueError, match="pairs"):
        score_pairs(np.eye(3), pairs)


@pytest.mark.parametrize(
    "call", [pytest.param(calibrate, marks=pytest.mark.slow), lambda rows: pairs_near(rows, 0.5)]
)
def test_blocks_of_pairs_fit_working_memory(monkeypatch, call):
    rows = np.random.default_rng(3).standard_normal((2500, 4))
    call(rows[:10])  # imports
    monkeypatch.setenv("FASTCOS_WORKING_MEMORY", "1")
    tracemalloc.start()
    try:
        call(rows)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # The limit allows for copies of the rows and for the bins. In an earlier version, blocks of 128
    # queries took 12 MiB.
    assert peak < 2**20 + 8 * rows.nbytes + 6 * 8 * 2**16
