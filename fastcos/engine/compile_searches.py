"""Compile what searches of one type of rows need: python -m fastcos.engine.compile_searches DTYPE.

Runs at low priority, one process at a time on a machine; see ``background``.
"""

import contextlib
import os
import sys

import numpy as np

from fastcos.engine import packing, prefixes, scan, segments, uncompiled
from fastcos.kernels import code_cache

# added to the niceness: a service that searches meanwhile keeps nine tenths of a core
_NICENESS = 10
# rows and columns of the searches that are compiled: few, but so many that tiles search them
_ROWS, _COLUMNS = 512, 16


def compile_searches(dtype: str) -> None:
    """Compile searches of rows of a dtype: of few queries first, then of many."""
    uncompiled.work_left = 0
    options, few = packing.ExecutionOptions(1, 2.0**30), scan.FEW_QUERIES
    # with a common direction, which is taken out before packing
    rows = 1.0 + np.random.default_rng(0).standard_normal((_ROWS, _COLUMNS))
    items = packing.encode_rows(rows.astype(dtype), None, 1, "cosine")
    segment = segments.Segment("cosine", items, np.arange(_ROWS, dtype=np.int64), 1)
    for n in (1, 2 * few):
        queries, nothing = items.take(slice(n)), packing.no_exclusions(n)
        segment.pack()
        columns, scores = segment.plan(n, nothing)(queries, nothing, 10, options)
        scan.best_of_parts(np.stack([columns] * 2, axis=1), np.stack([scores] * 2, axis=1))
    if segment.packed.layout.quantised:
        axes = prefixes.as_axes(np.eye(_COLUMNS, _COLUMNS // 2))
        scaling = packing.scale_and_shift(segment.packed, items, 1)
        prefixes.with_axes(segment.packed, items, scaling, axes, 1)


def main(dtype: str) -> None:
    """Compile at low priority, unless another process on this machine does."""
    with contextlib.suppress(AttributeError, OSError):  # Windows has no niceness
        os.nice(_NICENESS)
    with code_cache.sole_process("background") as is_sole:
        if is_sole:
            compile_searches(dtype)


if __name__ == "__main__":
    main(sys.argv[1])
