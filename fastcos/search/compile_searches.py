"""Compile all kernels that searches of dense rows need.

``fastcos warmup`` and the processes that ``fastcos.parallel.background`` starts use this module.
"""

import contextlib
import dataclasses
import os
import time

import numpy as np

from fastcos.kernels import code_cache
from fastcos.parallel import background, readiness
from fastcos.search import cost_model, packing, projection, scan, segments
from fastcos.search.filters import no_exclusions
from fastcos.search.launch import launch_of
from fastcos.search.options import ExecutionOptions
from fastcos.search.rankings import best_of_parts
from fastcos.search.task_grid import ThresholdSample
from fastcos.similarity import encoded_rows, kernel_records

# If another process is compiling the same kernels, this process waits at most this many seconds for
# it, and then compiles the kernels itself.
_SECONDS_OF_WAITING = 120.0
# The niceness of the compiling process is raised by this number, so that searches take precedence
# over compilation on a busy machine.
_NICENESS = 5
# To compile the kernels, the process searches an example with _ROWS rows and _COLUMNS columns. The
# example is just large enough for a search by tiles.
_ROWS, _COLUMNS = 512, 16


def compile_searches() -> None:
    """Compile the kernels for searches with few and many queries, and mark them as compiled."""
    readiness.compile_at_once()
    options = ExecutionOptions(1, 2.0**30)
    # A search subtracts a common direction from all rows if the mean of the rows is far from 0. The
    # mean of these rows is far from 0, so that the code for this subtraction is compiled, too.
    rows = 10 * (1.0 + np.random.default_rng(0).standard_normal((_ROWS, _COLUMNS)))
    # The same compiled code searches rows of every number type.
    items = encoded_rows.encode_rows(rows, None, 1, "cosine")
    segment = segments.Segment("cosine", items, np.arange(_ROWS, dtype=np.int64), 1)
    for n in (1, 2 * cost_model.COSTS.max_queries_sharing_rows):
        queries, exclusions = items.take(slice(n)), no_exclusions(n)
        segment.pack()
        request = scan.SegmentRequest(10, exclusions)
        columns, scores = scan.search_segment(segment, queries, request, options)
        best_of_parts(np.stack([columns] * 2, axis=1), np.stack([scores] * 2, axis=1))
    request = scan.SegmentRequest(10, no_exclusions(_ROWS, exclude_self=True))
    with cost_model.costs_replaced(
        min_columns_of_join=1, min_panels_of_joined_block=1, min_sample_stride_of_join=1,
        min_seconds_per_joined_neighbor=0.0,
    ):  # fmt: skip
        scan.search_segment(segment, segment.encoded, request, options)
    if segment.packed.layout.quantised:
        axes = projection.as_axes(np.eye(_COLUMNS, _COLUMNS // 2))
        scaling = packing.scale_and_shift(segment.packed, items, 1)
        projected_items = projection.with_axes(segment.packed, items, scaling, axes, 1)
        request = scan.SegmentRequest(10, no_exclusions(1))
        plan = scan.plan_segment(segment, 1, request, options)
        plan = dataclasses.replace(
            plan, kernel="projected_queries", use_projection=True, sample=ThresholdSample(2, 1)
        )
        query_rows = items.take(slice(1)).rows
        filters = kernel_records.NO_FILTERS
        launch_of(plan, projected_items, filters, 10, check_norms=False).run(query_rows)
    readiness.leave_mark()


def main() -> None:
    """Compile the kernels at low priority, unless another process compiles them.

    If another process has not compiled the kernels after ``_SECONDS_OF_WAITING``, this process
    compiles the kernels itself.
    """
    with contextlib.suppress(AttributeError, OSError):  # Windows has no niceness
        os.nice(_NICENESS)
    end = time.monotonic() + _SECONDS_OF_WAITING
    while not readiness.is_ready():
        with code_cache.sole_process(background.LOCK_NAME) as is_sole:
            # If the other process has not finished by ``end``, it may have been suspended, so this
            # process compiles the kernels itself.
            if is_sole or time.monotonic() > end:
                compile_searches()
                return
        time.sleep(0.5)
