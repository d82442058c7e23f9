import numpy as np
import pytest

from fastcos.kernels import packing
from fastcos.kernels.tiles import PANEL
from tests.kernels.inputs import frozen


def panel(depth, seed=0):
    return np.random.default_rng(seed).standard_normal((depth, PANEL)).astype(np.float32)


def signs(depth):
    return (2.0 * np.random.default_rng(9).integers(0, 2, (3, depth)) - 1).astype(np.float32)


@pytest.mark.parametrize("depth", [1, 2, 3, 5, 16, 50, 64, 100, 1000])
def test_rotate_panel_keeps_inner_products(depth):
    before, after = panel(depth), panel(depth)
    packing.rotate_panel(after, signs(depth))
    norm = np.linalg.norm(before, axis=0).max() ** 2
    exact, kept = (M.astype(float).T @ M.astype(float) for M in (before, after))
    # half of what SLACK allows
    assert np.abs(kept - exact).max() <= 2.0**-17 * norm


def test_rotate_panel_distributes_a_coordinate():
    one_hot = np.zeros((128, PANEL), np.float32)
    one_hot[7] = 1
    packing.rotate_panel(one_hot, signs(128))
    np.testing.assert_allclose(np.abs(one_hot), 128**-0.5, rtol=1e-6)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("size", [1.0, 1e-25, 0.0])
def test_measure_panel_bounds_rows(size, shared):
    X = panel(40) * np.float32(size)
    X[:, 3] = 0
    codes = X.copy()
    scales, norms, residuals = (np.full(PANEL, np.nan, np.float32) for _ in range(3))
    scales[0] = -1 if shared else 1
    packing.measure_panel(codes, scales, norms, residuals)
    assert (codes == np.rint(codes)).all()
    assert np.abs(codes).max() <= 127
    exact = X.astype(float)
    left = exact - codes.astype(float) * scales.astype(float)
    assert (np.linalg.norm(exact, axis=0) <= norms).all()
    assert (np.linalg.norm(left, axis=0) <= residuals).all()
    assert (residuals <= 1.01 * np.linalg.norm(left, axis=0) + 1e-17).all()
    if shared:
        assert (scales == scales[0]).all()


@pytest.mark.parametrize("shift", [np.zeros(0), np.linspace(-1, 2, 6)], ids=["none", "some"])
def test_prepare_item_panels_keeps_float_rows(shift):
    X = np.random.default_rng(0).standard_normal((40, 6))
    order, offsets = np.arange(40)[::-1].copy(), np.linspace(-1, 1, 40).astype(np.float32)
    out = np.full((64, 6), np.nan, np.float32)
    starts, statistics = np.full(64, -7, np.int32), np.full((2, 4), np.nan, np.float32)
    packing.prepare_item_panels(
        0, 2, *frozen(X, order), np.full(40, 0.5), *frozen(shift), offsets, *frozen(signs(6)),
        np.zeros((0, 64), np.int8), out, starts, statistics,
    )  # fmt: skip
    expected = 0.5 * X[::-1] - (shift if len(shift) else 0.0)
    np.testing.assert_array_equal(out[:40], expected.astype(np.float32))
    np.testing.assert_array_equal(out[40:], 0)
    norms = np.linalg.norm(expected, axis=1)
    assert norms[:32].max() <= statistics[0, 1] <= 1.001 * norms[:32].max()
    assert statistics[1, 3] >= offsets.max()
