"""Searches of few queries (kernels.few_queries) are exact.

They are exact even if the first items are not the best items.
"""

import dataclasses
import functools
import itertools

import numpy as np
import pytest

import fastcos
from fastcos import validation
from fastcos.kernels import tiles
from fastcos.search import cost_model, packing, plan, projection, task_grid
from fastcos.search.launch import launch_of
from fastcos.search.layout import tile_layout
from fastcos.similarity import encoded_rows, kernel_records
from tests.oracles import dense

if not tiles.AVAILABLE:
    pytest.skip("there are no tiles", allow_module_level=True)

FORMS = {"cosine": "cosine", "dot": "dot", "neg_euclidean": "euclidean"}


def random_rows(n, d, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d)).astype(np.float32)


def best_of_all(queries, rows, k, measure):
    return dense.top_k(queries, rows, k, FORMS[measure], exclude_self=False)[0]


def searching(made, packed, k):
    """Return a function that finds the neighbours of queries.

    The queries are read-only, as in every search, because Numba compiles the kernels anew for
    arrays that may be written.
    """
    launch = launch_of(made, packed, kernel_records.NO_FILTERS, k, check_norms=False)
    return lambda queries: launch.run(validation.read_only(queries))[0]


@pytest.mark.parametrize("measure", FORMS)
@pytest.mark.parametrize("k", [1, 10, 300])
def test_rows_that_nearly_agree_are_all_scored(measure, k):
    # The codes of these rows are all equal.
    rows = random_rows(1, 24) + np.float32(1e-4) * random_rows(3000, 24, 1)
    queries = random_rows(3, 24, 2)
    index = fastcos.SimilarityIndex(measure).fit(rows)
    for n in (1, 3):
        found = index.search(queries[:n], k)
        np.testing.assert_array_equal(found.indices, best_of_all(queries[:n], rows, k, measure))


@pytest.mark.parametrize("measure", FORMS)
@pytest.mark.parametrize("n_allowed", [100, 1000])
def test_only_the_rows_that_are_farthest_from_the_query_are_allowed(measure, n_allowed):
    rows, queries = random_rows(4000, 24), random_rows(2, 24, 1)
    order = best_of_all(queries[:1], rows, 4000, measure)[0]
    allowed = np.sort(order[-n_allowed:])
    index = fastcos.SimilarityIndex(measure).fit(rows)
    for n in (1, 2):
        found = index.search(queries[:n], 7, allowed=allowed)
        expected = allowed[best_of_all(queries[:n], rows[allowed], 7, measure)]
        np.testing.assert_array_equal(found.indices, expected)


@pytest.mark.parametrize("rank", [1, 2, 100])
@pytest.mark.parametrize("n_panels", [3, 32, 125])
def test_the_rank_of_the_first_threshold_does_not_change_the_result(rank, n_panels):
    rows, queries = random_rows(4000, 24), random_rows(3, 24, 1)
    encoded = encoded_rows.encode_rows(rows, None, 1, "cosine")
    packed = packing.pack_items("cosine", encoded, np.arange(len(rows)), 1)
    sizes = plan.SegmentSizes(4000, 24, 4000, packed_for=packed.layout.isa, n_packed=4000)
    machine = task_grid.Machine(packed.layout.isa, 1, 2.0**30)
    made = plan.plan_search(
        dataclasses.replace(sizes, n_distinct=4000), plan.RequestSizes(1, 9), machine
    )
    if made.kernel != "few_queries":
        pytest.skip("this instruction set compares queries in blocks")
    grid = dataclasses.replace(made.grid, panels_per_range=n_panels, n_ranges=-(-125 // n_panels))
    made = dataclasses.replace(made, first_rank=rank, grid=grid)
    found = searching(made, packed, 9)(queries)
    np.testing.assert_array_equal(found, best_of_all(queries, rows, 9, "cosine"))


# This test and those of prefixes are slow, because they alone compile search_few_by_projection.
@pytest.mark.slow
@pytest.mark.parametrize("sample_rank", [1, 3, 30])
def test_an_estimate_that_is_too_high_drops_no_neighbor(sample_rank):
    # The sample contains the query itself, so the first threshold is the score of the query.
    rows = random_rows(4096, 192) * np.geomspace(1, 0.01, 192).astype(np.float32)
    encoded = encoded_rows.encode_rows(rows, None, 1, "cosine")
    packed = packing.pack_items("cosine", encoded, np.arange(len(rows)), 1)
    scaling = packing.scale_and_shift(packed, encoded, 1)
    axes = projection.as_axes(np.eye(192, 64))
    packed = projection.with_axes(packed, encoded, scaling, axes, 1)
    sizes = plan.SegmentSizes(
        4096, 192, 4096, packed_for=packed.layout.isa, n_packed=4096, n_distinct=4096,
        projected_words=packed.arrays.projection.words, projection_max_k=(100.0, 100.0),
    )  # fmt: skip
    machine = task_grid.Machine(packed.layout.isa, 1, 2.0**30)
    made = plan.plan_search(sizes, plan.RequestSizes(1, 10), machine)
    if not tile_layout(packed.layout.isa, 192).quantised:
        pytest.skip("this instruction set compares queries in blocks")
    assert made.kernel == "projected_queries"
    made = dataclasses.replace(made, sample=task_grid.ThresholdSample(8, sample_rank))
    search = searching(made, packed, 10)
    slots = packed.arrays.row_of_slot.reshape(-1, 32)
    for query in (*slots[4], *slots[20], *slots[1]):
        found = search(rows[query : query + 1])
        np.testing.assert_array_equal(
            found, best_of_all(rows[query : query + 1], rows, 10, "cosine")
        )


@functools.cache
def rows_and_queries_among_them(measure):
    """Return packed rows, queries, and the nine neighbors of each query.

    Many queries are also rows. For such a query, the best score in the sample is the score of the
    query with itself.
    """
    rows = random_rows(4000, 24) * np.random.default_rng(2).uniform(0.5, 2, (4000, 1))
    rows = rows.astype(np.float32)
    queries = np.concatenate([rows[100:133], random_rows(27, 24, 1)])
    encoded = encoded_rows.encode_rows(rows, None, 1, FORMS[measure])
    packed = packing.pack_items(FORMS[measure], encoded, np.arange(len(rows)), 1)
    return packed, queries, best_of_all(queries, rows, 9, measure)


@pytest.mark.parametrize("measure", FORMS)
@pytest.mark.parametrize("sample", [(0, 0), (1, 1), (2, 1), (1, 11)])
@pytest.mark.parametrize(("n_panels", "n_blocks"), [(40, 1), (125, 2), (63, 4)])
def test_a_block_whose_guesses_are_too_high_is_searched_again(measure, sample, n_panels, n_blocks):
    packed, queries, neighbors = rows_and_queries_among_them(measure)
    per_block = -(-len(queries) // n_blocks)
    grid = task_grid.TaskGrid(per_block, n_blocks, n_panels, -(-125 // n_panels), 2)
    made = plan.SearchPlan(
        "packed", kernel="few_blocks", grid=grid, sample=task_grid.ThresholdSample(*sample),
        capacity=1024,
    )  # fmt: skip
    np.testing.assert_array_equal(searching(made, packed, 9)(queries), neighbors)


def test_a_block_with_a_query_of_zeros_or_of_extreme_norm_is_searched_with_more_care():
    rows, queries = (
        random_rows(n, 24, seed).astype(np.float64) for seed, n in enumerate((1000, 40))
    )
    index = fastcos.SimilarityIndex().fit(rows)
    for factor, place in itertools.product((0.0, 1e-150, 1e120), (7, 39)):
        queries[place] = factor * rows[3]
        # A thread normally needs a minimum number of bytes of work. With a minimum of 1 byte, two
        # threads take part, and each of them searches a block of queries.
        with cost_model.costs_replaced(min_bytes_per_thread=1):
            found = index.search(queries, 5, n_threads=2)
        np.testing.assert_array_equal(found.indices, best_of_all(queries, rows, 5, "cosine"))
        queries[place] = rows[3]
