"""Each timed probe really does all the work that it is meant to time."""

import numpy as np
import pytest

from fastcos.kernels import cpu, probes, tiles
from fastcos.kernels.simd.instruction_sets import INSTRUCTION_SETS


def test_read_values_sums_its_block():
    values, sums = np.arange(10, dtype=np.float32), np.zeros(10, np.float32)
    probes.read_values(2, 5, 2, values, sums)
    assert sums[2] == 2 * (2 + 3 + 4)
    assert not sums[np.arange(10) != 2].any()


def test_copy_values_copies_its_block():
    values, copy = np.arange(10, dtype=np.float32), np.zeros(10, np.float32)
    probes.copy_values(2, 5, 1, values, copy)
    np.testing.assert_array_equal(copy, [0, 0, 2, 3, 4, 0, 0, 0, 0, 0])


@pytest.mark.slow
@pytest.mark.skipif(not tiles.AVAILABLE, reason="vector IR needs the compiler")
def test_multiply_registers_counts_multiply_adds():
    done, like = np.zeros(3), np.empty(0, np.float32)
    isa = INSTRUCTION_SETS["generic"]
    probes.multiply_registers(1, 3, isa, tiles.configuration(), like, done)
    # The probe multiplies 4 items by 8 queries at once.
    np.testing.assert_array_equal(done, [0, 2 * 4096 * 4 * 8, 0])


@pytest.mark.slow
@pytest.mark.skipif(not tiles.AVAILABLE, reason="vector IR needs the compiler")
@pytest.mark.parametrize(
    ("isa", "at_once"),
    [("vnni", 16 * 16 * 4), ("avx2", 4 * 8 * 16), ("amx", 4 * 16 * 16 * 64)],
)
def test_multiply_registers_counts_those_of_int8(isa, at_once):
    if isa not in cpu.supported_isas():
        pytest.skip(f"this CPU has no {isa}")
    done, like = np.zeros(1), np.empty(0, np.int32)
    arrays = INSTRUCTION_SETS[isa], tiles.configuration(), like, done
    probes.multiply_registers(0, 2, *arrays)
    assert done[0] == 2 * 4096 * at_once
