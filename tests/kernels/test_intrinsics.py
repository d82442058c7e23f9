"""Compiled intrinsics return the same results as their plain-Python versions."""

import math

import numba
import numpy as np
import pytest

from fastcos.kernels import cpu
from fastcos.kernels.jit import kernel
from fastcos.kernels.simd import arithmetic, memory

pytestmark = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="nothing is compiled")


@kernel
def read(array, start):
    return memory.load_64_bits(array, start)


@kernel
def lowest(word):
    return arithmetic.lowest_bit(word)


@kernel
def fused(a, b, c):
    return arithmetic.multiply_add(a, b, c)


@pytest.mark.parametrize("dtype", [np.uint16, np.int32])
def test_load_64_bits_reads_from_any_element(dtype):
    array = np.arange(11, dtype=dtype) * 1000 + 17
    for start in range(11 - 8 // array.itemsize + 1):
        expected = np.frombuffer(array[start:].tobytes()[:8], np.uint64)[0]
        assert read(array, start) == expected
        assert memory._load_64_bits_plain(array, start) == expected


def test_lowest_bit_of_every_position():
    for bit in range(64):
        assert lowest(np.uint64(1 << bit)) == bit
        assert lowest(np.uint64((1 << 63) | (1 << bit))) == bit


@pytest.mark.skipif(not cpu.has_instruction("fma"), reason="x86 before 2013 rounds twice")
def test_multiply_add_rounds_once():
    x = 1 + 2.0**-30
    assert fused(x, x, -(1 + 2.0**-29)) == 2.0**-60
    assert arithmetic._multiply_add_plain(x, x, -(1 + 2.0**-29)) == 0.0
    assert math.isnan(fused(x, math.nan, 1.0))
