"""Recos of candidate lists."""

import numpy as np
import pytest

from fastcos.kernels import ordered_rows, pair_scores
from fastcos.kernels.jit import kernel
from tests.kernels.inputs import frozen
from tests.oracles import measures as oracles


@kernel
def rough(x, y, depth, out):
    out[0] = pair_scores.rough_product(x, 1, y, 2, depth)


@pytest.mark.parametrize("depth", [1, 15, 16, 17, 130])
def test_rough_products_are_those_of_float64_within_their_bound(depth):
    random = np.random.default_rng(depth)
    x, y = (random.standard_normal(depth + 2).astype(np.float32) for _ in range(2))
    out = np.full(1, np.nan)
    rough(x, y, depth, out)
    a, b = x[1 : depth + 1].astype(float), y[2:].astype(float)
    error = depth * 2.0**-24 * np.linalg.norm(a) * np.linalg.norm(b)
    assert abs(out[0] - a @ b) <= error
    assert out[0] != 0


def some_rows(kind):
    random = np.random.default_rng(3)
    rows = random.standard_normal((60, 9)) ** (5 if kind == "spiky" else 1)
    rows[7], rows[20], rows[33] = 0, rows[4], 3 * rows[4]
    rows[41] = -rows[4]
    return rows.astype(np.float32) if kind == "float32" else rows


@pytest.mark.parametrize("kind", ["even", "spiky", "float32"])
def test_recos_rows_equals_sorted_python_lists(kind):
    rows = some_rows(kind)
    columns = np.random.default_rng(0).integers(-1, 60, (60, 25))
    keys, ordered = np.full((60, 25), np.nan), np.sort(rows, axis=1)
    ordered_rows.recos_rows(2, 60, *frozen(rows, ordered, rows, ordered, columns), keys)
    truth = np.take_along_axis(oracles.recos(rows, rows), np.maximum(columns, 0), axis=1)
    truth[columns < 0] = -np.inf
    np.testing.assert_allclose(keys[2:], truth[2:], rtol=1e-12, atol=1e-15)
    assert np.isnan(keys[:2]).all()


@pytest.mark.parametrize("directions", [1, 3, 9])
@pytest.mark.parametrize("kind", ["even", "spiky"])
def test_narrowed_lists_keep_the_best_and_what_equals_the_last_of_them(kind, directions):
    rows, k = some_rows(kind), 5
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    units = (rows / np.where(norms > 0, norms, 1)).astype(np.float32)
    rising = np.sort(units, axis=1)
    _, space = np.linalg.eigh((rising.T @ rising).astype(float))
    inside = np.ascontiguousarray(rising @ space[:, ::-1][:, :directions], dtype=np.float32)
    sharp, offsets = np.empty((60, 9 + directions), np.float32), np.empty(60)
    ordered_rows.sharp_rows(0, 60, 1e-5, *frozen(units, inside), sharp, offsets)
    every = np.tile(np.arange(60), (60, 1))
    columns, counts = every.copy(), np.full(60, 60)
    counts[3] = 4
    given = frozen(sharp, offsets, sharp, offsets)
    ordered_rows.narrow_recos_lists(0, 60, k, 9, 1e-5, *given, counts, columns)
    truth = oracles.recos(rows, rows)
    assert counts[3] == 4
    for i in np.delete(np.arange(60), 3):
        kept = columns[i, : counts[i]]
        assert (np.diff(kept) > 0).all()
        worst = np.sort(truth[i])[-k]
        assert np.isin(np.flatnonzero(truth[i] >= worst - 1e-12), kept).all()
    # a zero row ties with all; the others lose most
    assert np.median(counts) < (30 if directions > 1 else 60)
