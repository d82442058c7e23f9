"""Partial argsort of one row of scores."""

import numpy as np
import pytest

from fastcos import parallel
from fastcos.kernels import row_argsort
from tests.oracles import metrics as oracles


# This function alone takes 4 s to compile; the default tests cover it through the metrics that
# sort.
@pytest.mark.slow
@pytest.mark.parametrize("scale", [1e-300, 1e-12, 1e-3, 1.0, 1e300])
def test_argsort_row_sorts_by_score_then_column(scale):
    # Many scores are equal, and many differ by less than one level of the radix sort.
    scores = -0.2 + scale * np.round(np.random.default_rng(3).random(300), 2)
    scores[::3] = scores[0]
    scores[7], scores[8] = 1.0, -1.0
    keys = parallel.unfilled((2, 300), np.int64)
    starts = parallel.unfilled((3, row_argsort.DIGITS), np.int64)
    for own in (0, 7, 8, 299):
        for k in (1, 2, 50, 298, 299):
            ranked = parallel.unfilled(300, np.int64)
            row_argsort.argsort_row(scores, own, k, keys, starts, ranked)
            assert ranked[:k].tolist() == oracles.ranked(scores, own)[:k]


@pytest.mark.slow
@pytest.mark.parametrize("odd", [-np.inf, np.inf, np.nan])
def test_argsort_row_handles_non_finite_scores(odd):
    """Infinite scores are ranked, and a row with NaN still contains every column."""
    scores = np.round(np.random.default_rng(4).random(200), 1)
    scores[[3, 50, 199]] = odd
    keys = parallel.unfilled((2, 200), np.int64)
    starts = parallel.unfilled((3, row_argsort.DIGITS), np.int64)
    ranked = parallel.unfilled(200, np.int64)
    row_argsort.argsort_row(scores, 0, 199, keys, starts, ranked)
    if np.isnan(odd):
        assert sorted(ranked[:199]) == list(range(1, 200))
    else:
        assert ranked[:199].tolist() == oracles.ranked(scores, 0)
