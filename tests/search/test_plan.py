"""Plans depend only on sizes, so the tests include machines that we do not have."""

import dataclasses
import itertools

import numpy as np
import pytest

from fastcos import search
from fastcos.kernels.simd.instruction_sets import INSTRUCTION_SETS
from fastcos.kernels.simd.panel import PANEL
from fastcos.search import cost_model, plan, task_grid
from fastcos.search.layout import tile_layout

GIB = 2.0**30
THREADS = (1, 2, 3, 4, 8, 16, 32, 64, 128)
ROWS = (1, 31, 127, 128, 1000, 60_000, 1_000_000, 30_000_000)
# The default tests use three instruction sets: "amx" (tile registers), "avx2" (vectors of integers)
# and "generic" (rows are not quantised).
MACHINES = [
    pytest.param(isa, marks=[pytest.mark.slow] * (isa not in ("generic", "avx2", "amx")))
    for isa in INSTRUCTION_SETS
]
QUERIES = (1, 2, 4, 7, 8, 64, 65, 1000, 100_000)


def packed(n, d, isa, **changes):
    """Return the sizes of a packed segment without duplicates."""
    sizes = plan.SegmentSizes(n, d, n, packed_for=isa, n_packed=n, n_distinct=n)
    return dataclasses.replace(sizes, **changes)


def needed_bytes(d, k):
    """Return the smallest memory of a search with tiles: buffers for 3 queries, and one panel."""
    capacity = 2 ** (4 * k + 64).bit_length()
    return 3 * (36 * capacity + 24 * k) + PANEL * (4 * d + 64)


# Each row contains a search and the expected plan. The first six values describe the search: the
# instruction set, and the numbers of threads, rows, columns, queries and neighbours (k). The plan
# contains the kernel, the queries per block, the panels per range, the stride and the rank of the
# sample, and the candidates per query. For the kernels of few queries, the last number is
# first_rank.
TABLE = [
    ("amx", 16, 1_000, 64, 1, 10, ("few_queries", 1, 32, 0, 0, 12)),
    ("vnni", 2, 1_000, 64, 1, 10, ("few_queries", 1, 32, 0, 0, 12)),
    ("avx2", 1, 1_000, 64, 1, 10, ("few_queries", 1, 32, 0, 0, 12)),
    ("avx512", 128, 1_000, 64, 1, 10, ("few_blocks", 1, 32, 1, 12, 1024)),
    ("generic", 4, 1_000, 64, 1, 10, ("few_blocks", 1, 32, 1, 12, 1024)),
    ("avxvnni", 16, 1_000, 64, 1, 10, ("few_queries", 1, 32, 0, 0, 12)),
    ("amx", 16, 60_000, 768, 1, 10, ("few_queries", 1, 375, 0, 0, 15)),
    ("vnni", 2, 60_000, 768, 1, 10, ("few_queries", 1, 938, 0, 0, 15)),
    ("avx2", 1, 60_000, 768, 1, 10, ("few_queries", 1, 1875, 0, 0, 15)),
    ("avx512", 128, 60_000, 768, 1, 10, ("few_blocks", 1, 90, 2, 10, 1024)),
    ("generic", 4, 60_000, 768, 1, 10, ("few_blocks", 1, 469, 14, 4, 1024)),
    ("avxvnni", 16, 60_000, 768, 1, 10, ("few_queries", 1, 375, 0, 0, 15)),
    ("amx", 16, 1_000_000, 128, 1, 10, ("few_queries", 1, 2084, 0, 0, 15)),
    ("vnni", 2, 1_000_000, 128, 1, 10, ("few_queries", 1, 7813, 0, 0, 15)),
    ("avx2", 1, 1_000_000, 128, 1, 10, ("few_queries", 1, 7813, 0, 0, 15)),
    ("avx512", 128, 1_000_000, 128, 1, 10, ("few_blocks", 1, 513, 16, 4, 1024)),
    ("generic", 4, 1_000_000, 128, 1, 10, ("few_blocks", 1, 7813, 16, 4, 1024)),
    ("avxvnni", 16, 1_000_000, 128, 1, 10, ("few_queries", 1, 2084, 0, 0, 15)),
    ("amx", 16, 1_000_000, 128, 4, 10, ("few_blocks", 4, 2084, 16, 4, 1024)),
    ("vnni", 2, 1_000_000, 128, 4, 10, ("few_queries", 4, 1954, 0, 0, 15)),
    ("avx2", 1, 1_000_000, 128, 4, 10, ("few_queries", 4, 1954, 0, 0, 15)),
    ("avx512", 128, 1_000_000, 128, 4, 10, ("few_blocks", 4, 257, 8, 5, 1024)),
    ("generic", 4, 1_000_000, 128, 4, 10, ("few_blocks", 4, 7813, 16, 4, 1024)),
    ("avxvnni", 16, 1_000_000, 128, 4, 10, ("few_queries", 4, 1954, 0, 0, 15)),
    ("amx", 16, 1_000_000, 128, 64, 100, ("few_blocks", 64, 1954, 12, 16, 2048)),
    ("vnni", 2, 1_000_000, 128, 64, 100, ("few_blocks", 32, 31250, 16, 14, 2048)),
    ("avx2", 1, 1_000_000, 128, 64, 100, ("few_blocks", 64, 31250, 16, 14, 2048)),
    ("avx512", 128, 1_000_000, 128, 64, 100, ("few_blocks", 64, 245, 4, 28, 2048)),
    ("generic", 4, 1_000_000, 128, 64, 100, ("few_blocks", 64, 7813, 16, 14, 2048)),
    ("avxvnni", 16, 1_000_000, 128, 64, 100, ("few_blocks", 64, 1954, 12, 16, 2048)),
    ("amx", 16, 1_000_000, 384, 65, 10, ("query_blocks", 96, 3473, 16, 4, 1024)),
    ("vnni", 2, 1_000_000, 384, 65, 10, ("query_blocks", 33, 31250, 16, 4, 1024)),
    ("avx2", 1, 1_000_000, 384, 65, 10, ("query_blocks", 65, 31250, 16, 4, 1024)),
    ("avx512", 128, 1_000_000, 384, 65, 10, ("query_blocks", 96, 1009, 16, 4, 1024)),
    ("generic", 4, 1_000_000, 384, 65, 10, ("query_blocks", 96, 7813, 16, 4, 1024)),
    ("avxvnni", 16, 1_000_000, 384, 65, 10, ("query_blocks", 96, 1954, 16, 4, 1024)),
    ("amx", 16, 1_000_000, 384, 1_000, 10, ("query_blocks", 256, 7813, 16, 4, 1024)),
    ("vnni", 2, 1_000_000, 384, 1_000, 10, ("query_blocks", 256, 31250, 16, 4, 1024)),
    ("avx2", 1, 1_000_000, 384, 1_000, 10, ("query_blocks", 256, 31250, 16, 4, 1024)),
    ("avx512", 128, 1_000_000, 384, 1_000, 10, ("query_blocks", 256, 1645, 16, 4, 128)),
    ("generic", 4, 1_000_000, 384, 1_000, 10, ("query_blocks", 250, 31250, 16, 4, 1024)),
    ("avxvnni", 16, 1_000_000, 384, 1_000, 10, ("query_blocks", 63, 31250, 16, 4, 1024)),
    ("amx", 16, 100_000, 384, 1_000, 100, ("query_blocks", 160, 1563, 11, 17, 2048)),
    ("vnni", 2, 100_000, 384, 1_000, 100, ("query_blocks", 256, 3125, 15, 14, 2048)),
    ("avx2", 1, 100_000, 384, 1_000, 100, ("query_blocks", 256, 3125, 15, 14, 2048)),
    ("avx512", 128, 100_000, 384, 1_000, 100, ("query_blocks", 256, 165, 3, 32, 512)),
    ("generic", 4, 100_000, 384, 1_000, 100, ("query_blocks", 250, 3125, 15, 14, 2048)),
    ("avxvnni", 16, 100_000, 384, 1_000, 100, ("query_blocks", 63, 3125, 15, 14, 2048)),
    ("amx", 16, 40_000, 128, 40_000, 10, ("query_blocks", 256, 1250, 16, 4, 1024)),
    ("vnni", 2, 40_000, 128, 40_000, 10, ("query_blocks", 256, 1250, 16, 4, 1024)),
    ("avx2", 1, 40_000, 128, 40_000, 10, ("query_blocks", 256, 1250, 16, 4, 1024)),
    ("avx512", 128, 40_000, 128, 40_000, 10, ("query_blocks", 160, 1250, 16, 4, 128)),
    ("generic", 4, 40_000, 128, 40_000, 10, ("query_blocks", 224, 1250, 16, 4, 1024)),
    ("avxvnni", 16, 40_000, 128, 40_000, 10, ("query_blocks", 256, 1250, 16, 4, 1024)),
    ("amx", 16, 30_000, 1536, 30_000, 100, ("query_blocks", 480, 938, 8, 20, 2048)),
    ("vnni", 2, 30_000, 1536, 30_000, 100, ("query_blocks", 448, 938, 8, 20, 2048)),
    ("avx2", 1, 30_000, 1536, 30_000, 100, ("query_blocks", 448, 938, 8, 20, 2048)),
    ("avx512", 128, 30_000, 1536, 30_000, 100, ("query_blocks", 255, 938, 8, 20, 512)),
    ("generic", 4, 30_000, 1536, 30_000, 100, ("query_blocks", 448, 938, 8, 20, 2048)),
    ("avxvnni", 16, 30_000, 1536, 30_000, 100, ("query_blocks", 480, 938, 8, 20, 2048)),
]
# This table contains searches of rows with a projection, which speeds up searches for up to 50
# neighbours. An additional column says whether the search uses the projection.
PROJECTED_TABLE = [
    ("amx", 16, 60_000, 768, 1, 10, True, ("projected_queries", 1, 375, 16, 4, 15)),
    ("amx", 16, 60_000, 768, 1, 50, True, ("projected_queries", 1, 375, 7, 13, 51)),
    ("amx", 16, 60_000, 768, 1, 51, False, ("few_queries", 1, 375, 0, 0, 52)),
    ("amx", 16, 1_000, 768, 1, 50, True, ("projected_queries", 1, 32, 2, 15, 27)),
    ("amx", 16, 60_000, 768, 4, 10, False, ("few_blocks", 4, 375, 11, 5, 1024)),
    ("amx", 16, 60_000, 768, 16, 10, False, ("few_blocks", 16, 375, 11, 5, 1024)),
    ("amx", 16, 60_000, 768, 1_000, 10, False, ("query_blocks", 256, 469, 14, 4, 1024)),
    ("amx", 16, 60_000, 768, 1_000, 51, False, ("query_blocks", 160, 938, 12, 10, 1024)),
    ("vnni", 2, 60_000, 768, 1, 10, True, ("projected_queries", 1, 938, 16, 4, 15)),
    ("vnni", 2, 60_000, 768, 1, 50, True, ("projected_queries", 1, 938, 12, 10, 53)),
    ("vnni", 2, 60_000, 768, 1, 51, False, ("few_queries", 1, 938, 0, 0, 54)),
    ("vnni", 2, 1_000, 768, 1, 50, True, ("projected_queries", 1, 32, 2, 15, 27)),
    ("vnni", 2, 60_000, 768, 4, 10, True, ("projected_queries", 4, 938, 16, 4, 15)),
    ("vnni", 2, 60_000, 768, 16, 10, True, ("few_blocks", 16, 938, 16, 4, 1024)),
    ("vnni", 2, 60_000, 768, 1_000, 10, True, ("query_blocks", 500, 1875, 16, 4, 1024)),
    ("vnni", 2, 60_000, 768, 1_000, 51, False, ("query_blocks", 500, 1875, 16, 9, 1024)),
    ("avx2", 1, 60_000, 768, 1, 10, True, ("projected_queries", 1, 1875, 16, 4, 15)),
    ("avx2", 1, 60_000, 768, 1, 50, True, ("projected_queries", 1, 1875, 16, 9, 54)),
    ("avx2", 1, 60_000, 768, 1, 51, False, ("few_queries", 1, 1875, 0, 0, 55)),
    ("avx2", 1, 1_000, 768, 1, 50, True, ("projected_queries", 1, 32, 2, 15, 27)),
    ("avx2", 1, 60_000, 768, 4, 10, True, ("projected_queries", 4, 1875, 16, 4, 15)),
    ("avx2", 1, 60_000, 768, 16, 10, True, ("few_blocks", 16, 1875, 16, 4, 1024)),
    ("avx2", 1, 60_000, 768, 1_000, 10, True, ("query_blocks", 512, 1875, 16, 4, 1024)),
    ("avx2", 1, 60_000, 768, 1_000, 51, False, ("query_blocks", 512, 1875, 16, 9, 1024)),
    ("avxvnni", 16, 60_000, 768, 1, 10, True, ("projected_queries", 1, 375, 16, 4, 15)),
    ("avxvnni", 16, 60_000, 768, 1, 50, True, ("projected_queries", 1, 375, 7, 13, 51)),
    ("avxvnni", 16, 60_000, 768, 1, 51, False, ("few_queries", 1, 375, 0, 0, 52)),
    ("avxvnni", 16, 1_000, 768, 1, 50, True, ("projected_queries", 1, 32, 2, 15, 27)),
    ("avxvnni", 16, 60_000, 768, 4, 10, True, ("projected_queries", 4, 188, 11, 4, 14)),
    ("avxvnni", 16, 60_000, 768, 16, 10, True, ("few_blocks", 16, 118, 3, 8, 1024)),
    ("avxvnni", 16, 60_000, 768, 1_000, 10, True, ("query_blocks", 63, 1875, 16, 4, 1024)),
    ("avxvnni", 16, 60_000, 768, 1_000, 51, False, ("query_blocks", 63, 1875, 16, 9, 1024)),
]


def facts_of(made):
    """Return the fields that the tables contain, from a plan for packed rows."""
    grid, sample = made.grid, made.sample
    # Each kernel reads either first_rank or capacity, but not both.
    assert not (made.first_rank and made.capacity)
    candidates = made.first_rank or made.capacity
    return (
        made.kernel, grid.queries_per_block, grid.panels_per_range, sample.stride, sample.rank,
        candidates,
    )  # fmt: skip


@pytest.mark.parametrize(("isa", "n_threads", "n", "d", "n_queries", "k", "expected"), TABLE)
def test_a_table_of_sizes_and_machines(isa, n_threads, n, d, n_queries, k, expected):
    machine = task_grid.Machine(isa, n_threads, GIB)
    made = plan.plan_search(packed(n, d, isa), plan.RequestSizes(n_queries, k), machine)
    assert (made.method, made.use_projection) == ("packed", False)
    assert facts_of(made) == expected


@pytest.mark.parametrize(
    ("isa", "n_threads", "n", "d", "n_queries", "k", "use_projection", "expected"), PROJECTED_TABLE
)
def test_a_table_of_rows_with_a_projection(
    isa, n_threads, n, d, n_queries, k, use_projection, expected
):
    sizes = packed(n, d, isa, projected_words=24, projection_max_k=(50.0, 50.0))
    request, machine = plan.RequestSizes(n_queries, k), task_grid.Machine(isa, n_threads, GIB)
    made = plan.plan_search(sizes, request, machine)
    assert (made.method, made.use_projection) == ("packed", use_projection)
    assert facts_of(made) == expected


@pytest.mark.parametrize(
    "n_threads",
    [pytest.param(n, marks=[pytest.mark.slow] * (n != 1)) for n in THREADS],
)
@pytest.mark.parametrize("isa", MACHINES)
def test_plans_of_every_machine_are_complete(isa, n_threads):
    sizes = itertools.product(ROWS, (1, 384, 3072), QUERIES, (1, 10, 1000), (2.0**19, GIB))
    for n, d, n_queries, k, memory in sizes:
        machine = task_grid.Machine(isa, n_threads, memory)
        request = plan.RequestSizes(n_queries, k)
        is_one_by_one = task_grid.one_by_one_is_faster(
            tile_layout(isa, d), n_queries, -(-n // PANEL), cost_model.COSTS
        )
        if n >= max(128, 8 * k) and needed_bytes(d, k) > memory:
            if is_one_by_one:  # Single queries need less memory than a block.
                continue
            with pytest.raises(ValueError, match="working_memory must be at least"):
                plan.plan_search(packed(n, d, isa), request, machine)
            continue
        made = plan.plan_search(packed(n, d, isa), request, machine)
        grid = made.grid
        assert 1 <= grid.n_threads <= n_threads
        if made.method == "score_all":
            assert k > n / 8 or n < 128
            assert 0 < made.reasons[-1].find(":") < len(made.reasons[-1])
            continue
        assert made.method == "packed"
        assert made.launch_is_whole_search == (n_queries <= 64)
        has_no_memory = any("compared as a block" in reason for reason in made.reasons)
        assert (is_one_by_one and not has_no_memory) == (made.kernel == "few_queries")
        assert made.grid.n_threads == 1 or not made.fits_all_options
        assert made.layout == tile_layout(isa, d)
        n_panels = -(-n // PANEL)
        assert grid.queries_per_block * grid.n_query_blocks >= n_queries
        assert grid.queries_per_block * (grid.n_query_blocks - 1) < n_queries
        assert grid.panels_per_range * grid.n_ranges >= n_panels
        assert grid.panels_per_range * (grid.n_ranges - 1) < n_panels
        # A query finds k rows among its candidates, and its buffers fit into memory.
        if made.kernel == "few_queries":
            assert 1 <= made.first_rank <= grid.panels_per_range
            assert (made.sample, made.capacity) == (task_grid.NO_SAMPLE, 0)
        else:
            assert made.first_rank == 0
            assert made.capacity >= 4 * k
            assert made.capacity.bit_count() == 1
        assert made.buffer_bytes <= memory
        assert 0 <= made.sample.rank <= n_panels
        assert made.sample.stride <= n_panels


def test_equal_sizes_have_equal_plans_and_new_costs_have_new_ones():
    arguments = (
        packed(60_000, 768, "vnni"),
        plan.RequestSizes(1, 10),
        task_grid.Machine("vnni", 2, GIB),
    )
    made = plan.plan_search(*arguments)
    assert made is plan.plan_search(*arguments)
    with cost_model.costs_replaced(min_bytes_per_thread=2**40):
        assert plan.plan_search(*arguments).grid.n_ranges == 1
    assert made.grid.n_ranges == plan.plan_search(*arguments).grid.n_ranges == 2


def unpacked(n, d, **changes):
    return plan.SegmentSizes(n, d, n, **changes)


MACHINE = task_grid.Machine("vnni", 2, GIB)


@pytest.mark.parametrize(
    ("sizes", "request_", "machine", "method", "needs"),
    [
        # For few queries, packing saves no time, so the planner needs no property of the rows.
        (unpacked(1000, 64), (1, 10), {}, "score_all", None),
        (unpacked(1_000_000, 64), (3, 10), {}, "score_all", None),
        # With more queries, the search multiplies the rows without packing them, provided that
        # float32 does not overflow.
        (unpacked(1_000_000, 384), (16, 10), {}, "unpacked", "moderate_norms"),
        (unpacked(1_000_000, 384, has_moderate_norms=True), (16, 10), {}, "unpacked", None),
        (unpacked(1_000_000, 384, has_moderate_norms=True), (16, 10), {"isa": "amx"},
         "unpacked", None),
        (unpacked(1_000_000, 384, has_moderate_norms=False, n_distinct=1_000_000), (16, 10), {},
         "packed", None),
        (unpacked(1_000_000, 384, has_moderate_norms=True, n_distinct=1_000_000), (16, 10),
         {"isa": "avx2"}, "packed", None),
        (unpacked(1_000_000, 384, row_type="float64", n_distinct=1_000_000), (16, 10), {}, "packed",
         None),
        # Unless a filter distinguishes between copies of a row, duplicates are counted before the
        # rows are packed.
        (unpacked(1000, 64), (100, 10), {}, "distinct", "distinct_rows"),
        (unpacked(1000, 64, n_distinct=100), (100, 10), {}, "distinct", None),
        (unpacked(1000, 64, n_distinct=100), (100, 10, None, True), {}, "packed", None),
        (unpacked(1000, 64), (100, 10, None, True), {}, "packed", None),
        # These searches run while kernels are not compiled.
        (unpacked(1000, 64), (1, 10), {"is_compiled": False}, "numpy", "distinct_rows"),
        (unpacked(1000, 64, n_distinct=1000), (1, 10), {"is_compiled": False}, "numpy", None),
        (unpacked(1000, 64, n_distinct=10), (1, 10), {"is_compiled": False}, "score_all", None),
        (packed(1000, 64, "vnni"), (1, 10), {"is_compiled": False}, "packed", None),
        # Without a compiler, there are no tiles.
        (unpacked(1000, 64, n_distinct=1000), (100, 10), {"has_tiles": False}, "score_all", None),
        # These searches have a filter.
        (packed(100_000, 64, "vnni"), (1, 10, 1000), {}, "score_all", None),
        (packed(100_000, 64, "vnni"), (1, 10, 20_000), {}, "packed", None),
        (packed(100_000, 64, "vnni"), (1000, 10, 200), {}, "score_all", None),
        (packed(100_000, 64, "vnni"), (1000, 10, 20_000), {}, "repack", None),
        (packed(100_000, 64, "vnni"), (1000, 10, 90_000), {}, "packed", None),
        (packed(100_000, 64, "vnni"), (1000, 10, 50_000), {"working_memory": 2.0**22}, "packed",
         None),
        # These searches have a large k, or search a small segment of a larger index.
        (packed(1000, 64, "vnni"), (1, 126), {}, "score_all", None),
        (packed(1000, 64, "vnni", n_live_of_index=60_000), (1, 126), {}, "packed", None),
        (packed(1000, 64, "vnni", n_live_of_index=60_000), (65, 126), {}, "score_all", None),
        # These searches have a small index, or a mask that may allow fewer than k rows.
        (packed(64, 64, "vnni", n_live_of_index=64), (1, 8), {}, "packed", None),
        (packed(64, 64, "vnni", n_live_of_index=64), (1, 9), {}, "score_all", None),
        (packed(64, 64, "vnni"), (1, 8), {}, "score_all", None),
        (packed(1000, 64, "vnni", n_live_of_index=1000), (1, 50, 100), {}, "score_all", None),
    ],
)  # fmt: skip
def test_methods(sizes, request_, machine, method, needs):
    machine = dataclasses.replace(MACHINE, **machine)
    made = plan.plan_search(sizes, plan.RequestSizes(*request_), machine)
    assert (made.method, made.needs) == (method, needs)


@pytest.mark.parametrize(
    "isa",
    [pytest.param(isa, marks=[pytest.mark.slow] * (isa != "avx2")) for isa in INSTRUCTION_SETS],
)
def test_a_fixed_plan_is_that_of_every_number_of_threads_and_memory(isa):
    n_fixed = 0
    for n, d, n_queries, k in itertools.product(ROWS, (1, 64, 384), (1, 4, 64), (1, 10, 100)):
        request, sizes = plan.RequestSizes(n_queries, k), packed(n, d, isa)
        plans = {
            plan.plan_search(sizes, request, task_grid.Machine(isa, n_threads, memory))
            for n_threads in THREADS
            for memory in (cost_model.COSTS.max_unchecked_bytes, GIB)
        }
        fixed = [made for made in plans if made.fits_all_options]
        assert len(plans) == 1 or not fixed
        n_fixed += len(fixed)
    # Blocks of queries need buffers for every thread, so their plans depend on the number of
    # threads.
    assert n_fixed > 20 or not tile_layout(isa, 64).quantised


# With a mask, each segment of an index is searched separately.
@pytest.mark.parametrize(
    ("n_allowed", "n_live_of_index"),
    [(None, None), (None, 60_000), (1, None), (30, None), (200, None), (900, None)],
)
def test_a_single_launch_finds_k_rows_for_every_query(n_allowed, n_live_of_index):
    n_single = 0
    for n_live, n_queries, k in itertools.product((1000, 40), (1, 64, 65), (1, 5, 124, 126, 7500)):
        sizes = packed(1000, 64, "vnni", n_live=n_live, n_live_of_index=n_live_of_index)
        allowed = None if n_allowed is None else min(n_allowed, n_live)
        request = plan.RequestSizes(n_queries, k, allowed)
        made = plan.plan_search(sizes, request, MACHINE)
        if made.launch_is_whole_search:
            n_single += 1
            assert k <= (allowed or n_live_of_index or n_live)
    assert n_single or n_allowed in (1, 30)


@pytest.mark.parametrize(
    ("n_queries", "n_items", "needs_segments", "expected"),
    [
        (0, 10**6, False, ""),
        (5, 0, False, ""),
        (1, 1000, False, "is_small"),
        (1, 1000, True, "is_segment"),
        (6, 50_000, False, "is_small"),
        (100, 1000, False, "is_tiled"),
        (1000, 70, False, "is_small"),
        (10_000, 10_000, False, "is_tiled"),
        (1, 200_000, False, "is_segment"),
    ],
)
def test_groups_are_planned_by_their_work(n_queries, n_items, needs_segments, expected):
    sizes = np.array([n_queries, 1]), np.array([n_items, 1])
    made = plan.plan_groups(*sizes, 64, 10, needs_segments=needs_segments)
    ways = {field.name: bool(getattr(made, field.name)[0]) for field in dataclasses.fields(made)}
    assert [name for name, is_chosen in ways.items() if is_chosen] == [expected][: bool(expected)]


def test_groups_are_tiled_once_they_have_had_enough_queries():
    one, items = np.array([1]), np.array([50_000])
    for n_queries_so_far, is_tiled in ((7, False), (8, True)):
        so_far = np.array([n_queries_so_far])
        made = plan.plan_groups(one, items, 64, 10, n_queries_so_far=so_far)
        assert made.is_tiled.tolist() == [is_tiled]
        assert made.is_small.tolist() == [not is_tiled]
    without = plan.plan_groups(one, items, 64, 10, has_tiles=False, n_queries_so_far=so_far)
    assert without.is_small.all()


@pytest.mark.parametrize("n_queries", [6, 7, 8])
def test_groups_are_packed_for_as_many_queries_as_other_items(n_queries):
    sizes = plan.SegmentSizes(10_000, 128, 10_000, row_type="float64", n_distinct=10_000)
    made = plan.plan_search(sizes, plan.RequestSizes(n_queries, 10), MACHINE)
    groups = plan.plan_groups(np.array([n_queries]), np.array([10_000]), 128, 10)
    assert groups.is_tiled.tolist() == [made.method == "packed"] == [n_queries > 7]


def test_a_part_of_an_index_is_scanned_by_tiles_for_more_than_an_eighth_of_its_rows():
    request = plan.RequestSizes(1, 126)
    made = plan.plan_search(packed(1000, 64, "vnni", n_live_of_index=60_000), request, MACHINE)
    assert made.kernel == "few_queries"
    assert made.first_rank == 32


def test_deleted_rows_raise_the_rank_of_the_first_threshold():
    whole, deleted = (
        plan.plan_search(packed(100_000, 64, "vnni", n_live=n), plan.RequestSizes(100, 10), MACHINE)
        for n in (100_000, 25_000)
    )
    assert (whole.needed_rows, deleted.needed_rows) == (10, 40)
    assert deleted.sample.rank > whole.sample.rank


@pytest.mark.parametrize(
    "isa",
    [pytest.param(isa, marks=[pytest.mark.slow] * (isa != "avx2")) for isa in INSTRUCTION_SETS],
)
def test_blocks_have_queries_however_little_memory_suffices(isa):
    """Every block contains a query, even if the memory holds only three queries and one panel."""
    for n_queries, d, k in itertools.product((1, 2, 5, 31, 33, 200), (24, 384, 1536), (10, 100)):
        for memory in needed_bytes(d, k) * np.geomspace(1, 100, 30):
            machine = task_grid.Machine(isa, 2, float(memory))
            made = plan.plan_search(packed(800, d, isa), plan.RequestSizes(n_queries, k), machine)
            assert made.grid.queries_per_block >= 1
            assert made.buffer_bytes <= memory


def test_few_queries_for_many_neighbors_keep_to_the_working_memory():
    sizes, request = packed(1_000_000, 16, "vnni"), plan.RequestSizes(64, 100_000)
    with pytest.raises(ValueError, match=r"working_memory must be at least 6\d\.\d\d MiB for this"):
        plan.plan_search(sizes, request, task_grid.Machine("vnni", 2, 2.0**24))
    for memory in (2.0**26, 2.0**28, GIB):
        made = plan.plan_search(sizes, request, task_grid.Machine("vnni", 2, memory))
        assert made.buffer_bytes <= memory


def test_the_projection_serves_the_queries_that_gain():
    sizes = packed(60_000, 768, "vnni", projected_words=24, projection_max_k=(100.0, 10.0))
    for n, k, uses in ((1, 100, True), (1, 101, False), (1000, 10, True), (1000, 11, False)):
        made = plan.plan_search(sizes, plan.RequestSizes(n, k), MACHINE)
        assert made.use_projection == uses
        assert (made.kernel == "projected_queries") == (uses and n == 1)
    amx = dataclasses.replace(sizes, packed_for="amx")
    assert not plan.plan_search(amx, plan.RequestSizes(1000, 10), MACHINE).use_projection


@pytest.mark.parametrize("isa", ["amx", "vnni"])
@pytest.mark.parametrize("k", [10, 100])
def test_many_threads_divide_the_rows_so_that_codes_are_read_seldom(isa, k):
    sizes, request = packed(1_000_000, 384, isa), plan.RequestSizes(1000, k)
    grid = plan.plan_search(sizes, request, task_grid.Machine(isa, 16, GIB)).grid
    assert grid.n_query_blocks * grid.n_ranges >= 16
    # If the codes (384 MB) were read once for each of 16 blocks, the search would read 6.1 GB.
    assert 1_000_000 * 384 * grid.n_query_blocks <= 1.6e9


@pytest.mark.parametrize("isa", INSTRUCTION_SETS)
def test_few_threads_do_not_divide_the_rows_for_many_queries(isa):
    for n, d, n_queries, n_threads in itertools.product(ROWS, (64, 768), (65, 1000, 10**5), (1, 2)):
        request, machine = plan.RequestSizes(n_queries, 10), task_grid.Machine(isa, n_threads, GIB)
        made = plan.plan_search(packed(n, d, isa), request, machine)
        assert made.method == "score_all" or made.grid.n_ranges == 1


def test_rows_are_not_divided_where_the_results_of_ranges_exceed_the_memory():
    sizes, request = packed(1_000_000, 384, "vnni"), plan.RequestSizes(1000, 100)
    wide, narrow = (
        plan.plan_search(sizes, request, task_grid.Machine("vnni", 16, memory))
        for memory in (2.0**28, 2.0**26)
    )
    assert wide.grid.n_ranges > 1
    assert narrow.grid.n_ranges == 1
    assert wide.buffer_bytes <= 2.0**28
    assert narrow.buffer_bytes <= 2.0**26


def test_work_to_project_is_less_with_slower_tiles_and_few_neighbors():
    def work(isa, k):
        return plan.work_to_project(tile_layout(isa, 384), k, cost_model.COSTS)

    # A self-join of 30,000 x 384 rows computes this many products.
    join = 30_000 * 30_000 * 384
    assert work("avx2", 1) == work("avx2", 10) <= join < work("avx2", 100)
    for isa in ("amx", "vnni", "avxvnni"):
        for k in (1, 10, 100):
            assert work("avx2", k) <= work(isa, k) == work("vnni", 10)


def test_threads_search_as_many_groups_at_once_as_the_memory_allows():
    layout = tile_layout("vnni", 64)
    arguments = 100, 10, layout, 64, 40
    usual = plan.plan_group_panels(*arguments, task_grid.Machine("vnni", 8, GIB))
    assert (usual.kernel, usual.grid.n_threads, usual.grid.n_ranges) == ("query_blocks", 8, 1)
    little = dataclasses.replace(MACHINE, n_threads=8, working_memory=usual.buffer_bytes / 3)
    made = plan.plan_group_panels(*arguments, little)
    assert 1 <= made.grid.n_threads < 8
    assert made.buffer_bytes <= little.working_memory


@pytest.mark.parametrize("isa", INSTRUCTION_SETS)
@pytest.mark.parametrize("has_projection", [False, True])
def test_candidates_of_a_range_search_are_found_by_one_of_two_kernels(isa, has_projection):
    layout = tile_layout(isa, 384)
    facts = {"has_projection": has_projection, "has_tiles": True}
    one, many = (plan.plan_candidates(n, 60_000, layout, **facts) for n in (1, 1000))
    assert (one.kernel == "few_queries") == layout.quantised
    if one.kernel == "few_queries":
        assert one.use_projection == has_projection
    assert (many.kernel, many.queries_per_block) == ("query_blocks", 128)
    assert many.use_projection == (has_projection and isa != "amx")
    facts["has_tiles"] = False
    assert plan.plan_candidates(1, 60_000, layout, **facts).kernel is None


def test_few_excluded_ids_are_dropped_after_the_search():
    assert plan.drops_excluded_ids(64)
    assert not plan.drops_excluded_ids(65)


def test_the_example_on_the_page_of_the_package_is_planned_as_it_says():
    made = plan.plan_search(
        packed(1000, 64, "vnni", n_live_of_index=1000), plan.RequestSizes(1, 10), MACHINE
    )
    text = " ".join(search.__doc__.split())
    assert made.grid.is_one_task
    assert made.fits_all_options
    assert f'the method "{made.method}" and the kernel "{made.kernel}". A single task' in text
    assert (
        f"A single task searches all rows. The ``first_rank`` of the plan is {made.first_rank}"
        in text
    )
    assert f"the {made.first_rank}th largest of these 32 results is the first threshold" in text
