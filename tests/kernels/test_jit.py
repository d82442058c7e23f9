"""Kernels raise no errors, and the parallel loop passes arguments of every type to them."""

from typing import NamedTuple

import numba
import numpy as np
import pytest

from fastcos.kernels.compiler import prange_driver
from fastcos.kernels.jit import kernel

pytestmark = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="nothing is compiled")


class Weights(NamedTuple):
    rows: np.ndarray
    scale: float


@kernel
def weigh(lo, hi, weights, offsets, first, shifted, out):
    """A kernel whose arguments are a named tuple, a nested tuple, a number and a flag."""
    (low, high), empty = offsets
    for i in range(lo, hi):
        out[i] = weights.rows[i] * weights.scale + low[i] - high[i] + first + len(empty)
        if shifted:
            out[i] += 0.5


@kernel
def doubled(lo, hi, values, out):
    for i in range(lo, hi):
        out[i] = values[i] * 2


@kernel
def halved(lo, hi, values, out):
    for i in range(lo, hi):
        out[i] = values[i] / 2


@kernel
def reciprocal(value):
    return 1.0 / value


@kernel
def inverted(lo, hi, values, out, quotients, remainders):
    for i in range(lo, hi):
        out[i] = 1.0 / values[i] + reciprocal(values[i])
        divisor = int(values[i] == 2.0)
        quotients[i], remainders[i] = 7 // divisor, 7 % divisor


CUTS = np.array([0, 3, 4, 40], np.int64)


def driven(rows_kernel, *arguments):
    done, out = np.zeros(len(CUTS) - 1, np.uint8), np.full(40, np.nan)
    prange_driver(rows_kernel)(CUTS, done, *arguments, out)
    assert done.all()
    return out


def test_division_by_zero_raises_no_error():
    out, quotients, remainders = np.empty(4), np.empty(4, np.int64), np.empty(4, np.int64)
    inverted(0, 4, np.array([0.0, -0.0, 2.0, np.inf]), out, quotients, remainders)
    assert out.tolist() == [np.inf, -np.inf, 1.0, 0.0]
    assert quotients.tolist() == [0, 0, 7, 0]
    assert remainders.tolist() == [0, 0, 0, 0]


# A separate loop is compiled for each combination of types.
@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shifted", [False, True])
def test_prange_driver_passes_arguments_of_every_type(dtype, shifted):
    rows, low, high = np.random.default_rng(0).random((3, 40)).astype(dtype)
    result = driven(weigh, Weights(rows, 3.0), ((low, high[::1]), ()), 7, shifted)
    np.testing.assert_allclose(result, rows * 3.0 + low - high + 7 + 0.5 * shifted, rtol=1e-6)


@pytest.mark.slow
def test_prange_driver_passes_views():
    values = np.arange(80.0)
    frozen = values[:40].view()
    frozen.flags.writeable = False
    np.testing.assert_array_equal(driven(doubled, frozen), np.arange(40) * 2)
    np.testing.assert_array_equal(driven(doubled, values[::2]), np.arange(40) * 4)


@pytest.mark.slow
def test_prange_driver_distinguishes_kernels():
    values = np.arange(40.0)
    for _ in range(2):
        np.testing.assert_array_equal(driven(doubled, values), values * 2)
        np.testing.assert_array_equal(driven(halved, values), values / 2)


@pytest.mark.slow
def test_prange_driver_compiles_no_second_kernel():
    values = np.arange(40.0)
    doubled(0, 40, values, np.empty(40))
    before = list(doubled.overloads)
    driven(doubled, values)
    assert list(doubled.overloads) == before


@pytest.mark.skipif(not numba.config.BOUNDSCHECK, reason="only bounds checks raise")
def test_prange_driver_marks_failed_blocks():
    done = np.zeros(len(CUTS) - 1, np.uint8)
    prange_driver(doubled)(CUTS, done, np.arange(39.0), np.empty(40))
    assert done.tolist() == [1, 1, 0]
