"""Kernels that measure how fast a machine reads, copies and multiplies."""

import numpy as np

from . import tiles
from .jit import kernel, relaxed_kernel
from .simd import tile_scores
from .simd.instruction_sets import has_codes
from .simd.panel import PANEL


@relaxed_kernel
def read_values(lo, hi, passes, values, sums):
    """Read values[lo:hi] `passes` times, and write the sum over all passes to sums[lo]."""
    # The loop counts from 0, so the compiler knows that no index is negative and uses plain loads.
    # If the loop counted from lo to hi, the compiler would use gather instructions, and reading
    # would take six times as long.
    part, total = values[lo:hi], np.float32(0)
    for _ in range(passes):
        for i in range(part.shape[0]):
            total += part[i]
        sums[lo] = total


@kernel
def copy_values(lo, hi, passes, values, copy):
    """Copy values[lo:hi] to copy[lo:hi] `passes` times."""
    part, out = values[lo:hi], copy[lo:hi]
    for _ in range(passes):
        for i in range(part.shape[0]):
            out[i] = part[i]


@kernel
def multiply_registers(lo, hi, isa, registers, score_type, multiply_adds):
    """For each integer from lo to hi, perform 4,096 rounds of multiply-adds in registers.

    The number of multiply-adds is written to multiply_adds[lo]. All factors are 1, so that the sum
    of all products is the number of multiply-adds. `isa` is the instruction set, and `registers` is
    the configuration of the tile registers. `score_type` is an empty int32 or float32 array; packed
    rows and scores have the type of this array.
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
    multiply_adds[lo] = total
