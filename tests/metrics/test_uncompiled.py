"""Ranks and histograms in NumPy: the bits of the kernels."""

import numpy as np
import pytest

from fastcos import parallel
from fastcos.kernels import label_ranks
from fastcos.metrics import map_at_r, stratified_auc, uncompiled
from fastcos.validation import read_only


def spoilt_rows(n, depth):
    """Rows with ties, equal and opposite rows and a zero row; small integers in half of them."""
    rng = np.random.default_rng(n)
    rows = rng.standard_normal((n, depth))
    rows[::2] = rng.integers(-1, 2, rows[::2].shape)
    rows[1], rows[3], rows[5] = 0, 2 * rows[7], -rows[7]
    return rows, rng.integers(0, 4, n), rng.integers(1, 20, n)


def with_kernels(monkeypatch, function, *arguments, **options):
    with monkeypatch.context() as patched:
        patched.setattr(uncompiled, "use_numpy_for", lambda *_: False)
        return function(*arguments, **options)


def in_numpy(monkeypatch, function, *arguments, **options):
    with monkeypatch.context() as patched:
        patched.setattr(uncompiled, "use_numpy_for", lambda *_: True)
        return function(*arguments, **options)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "depth"), [(12, 1), (37, 33), (600, 5)])
def test_metrics_in_numpy_have_the_bits_of_the_kernels(monkeypatch, n, depth):
    rows, labels, popularity = spoilt_rows(n, depth)
    for metric, arguments in ((map_at_r, ()), (stratified_auc, (popularity,))):
        expected = with_kernels(monkeypatch, metric, rows, labels, *arguments)
        found = in_numpy(monkeypatch, metric, rows, labels, *arguments)
        assert np.hstack(found).tobytes() == np.hstack(expected).tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("m", [6, 40, 150])
def test_label_ranks_in_numpy_have_the_bits_of_the_kernel(m):
    rng = np.random.default_rng(m)
    codes = read_only(np.concatenate([rng.integers(0, 3, m - 3), [0, 1, 2]]))
    sizes = read_only(np.bincount(codes))
    owns = read_only(np.flatnonzero(sizes[codes] > 1))
    k = min(10, m - 1)
    for scores in (rng.standard_normal((len(owns), m)), rng.integers(0, 4, (len(owns), m)) / 3):
        scores[0] = 0.25
        auc, precision = (parallel.unfilled(len(owns), np.float64) for _ in range(2))
        voted = parallel.unfilled(len(owns), np.int64)
        label_ranks.score_label_ranks(
            0, len(owns), read_only(scores), owns, codes, sizes, k, auc, precision, voted
        )
        found = uncompiled.score_label_ranks(scores, owns, codes, sizes, k)
        for values, expected in zip(found, (auc, precision, voted), strict=True):
            assert values.tobytes() == expected.tobytes()
