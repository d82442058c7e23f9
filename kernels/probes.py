"""Probes of a machine: how fast it reads, copies and multiplies."""

import numpy as np

from . import tiles
from .jit import kernel, relaxed_kernel
from .simd import tile_scores
from .simd.instruction_sets import has_codes
from .simd.panel import PANEL


@relaxed_kernel
def read_values(lo, hi, passes, values, sums):
    """sums[lo] = the sum of values[lo:hi], so many times."""
    # counted from 0: an index that may be negative makes gathers of the loads, a sixth as fast
    part, total = values[lo:hi], np.float32(0)
    for _ in range(passes):
        for i in range(part.shape[0]):
            total += part[i]
        sums[lo] = total


@kernel
def copy_values(lo, hi, passes, values, copy):
    """copy[lo:hi] = values[lo:hi], so many times."""
    part, out = values[lo:hi], copy[lo:hi]
    for _ in range(passes):
        for i in range(part.shape[0]):
            out[i] = part[i]


@kernel
def multiply_registers(lo, hi, isa, registers, score_type, done):
    """Multiply and add in registers hi - lo times 4,096; done[lo] = number of multiply-adds.

    score_type: empty array of the type of packed rows. All factors are 1: the sums count.
    """
    factors = tiles.aligned_empty(PANEL * PANEL, score_type)
    sums = tiles.aligned_empty(PANEL * PANEL, score_type)
    factors[:] = 0x01010101 if has_codes(isa) else 1
    sums[:] = 0
    total = 0.0
    tile_scores.start_tiles(isa, registers)
    for _ in range(lo, hi):
        tile_scores.multiply_registers(isa, 4096, factors, sums)
        for i in range(sums.shape[0]):
            total += sums[i]
    tile_scores.end_tiles(isa)
    done[lo] = total
