"""The best of a line of scores in order."""

import numpy as np
import pytest

from fastcos import parallel
from fastcos.kernels import row_argsort
from tests.oracles import metrics as oracles


@pytest.mark.parametrize("spread", [1e-300, 1e-12, 1e-3, 1.0, 1e300])
def test_ranked_rows_are_by_falling_score_then_index(spread):
    # many equal scores, and many that differ by less than the kernel's first look sees
    line = -0.2 + spread * np.round(np.random.default_rng(3).random(300), 2)
    line[::3] = line[0]
    line[7], line[8] = 1.0, -1.0
    keys = parallel.unfilled((2, 300), np.int64)
    starts = parallel.unfilled((3, row_argsort.DIGITS), np.int64)
    for own in (0, 7, 8, 299):
        for k in (1, 2, 50, 298, 299):
            ranked = parallel.unfilled(300, np.int64)
            row_argsort.rank_row(line, own, k, keys, starts, ranked)
            assert ranked[:k].tolist() == oracles.ranked(line, own)[:k]


@pytest.mark.parametrize("odd", [-np.inf, np.inf, np.nan])
def test_what_is_not_finite_is_ranked_too(odd):
    """Infinite scores in their place; a line with what is no number loses no row."""
    line = np.round(np.random.default_rng(4).random(200), 1)
    line[[3, 50, 199]] = odd
    keys = parallel.unfilled((2, 200), np.int64)
    starts = parallel.unfilled((3, row_argsort.DIGITS), np.int64)
    ranked = parallel.unfilled(200, np.int64)
    row_argsort.rank_row(line, 0, 199, keys, starts, ranked)
    if np.isnan(odd):
        assert sorted(ranked[:199]) == list(range(1, 200))
    else:
        assert ranked[:199].tolist() == oracles.ranked(line, 0)
