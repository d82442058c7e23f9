"""Results are exact even if tasks on different panels share damaged thresholds."""

import threading

import numpy as np
import pytest

import fastcos
from fastcos import parallel
from fastcos.kernels import tile_top_k, tiles
from fastcos.search import cost_model
from tests.oracles import dense
from tests.oracles.dense_families import FORMS, each_family_and_measure

if not tiles.AVAILABLE:
    pytest.skip("there are no tiles", allow_module_level=True)

# With these settings of the cost model, reading the rows seems to take very long. The rows are
# therefore divided among the threads, whatever the number of queries is.
DIVIDED = {
    "cached_bytes": 0.0, "bytes_per_second": 1e3, "bytes_per_second_of_thread": 1e3,
    "max_queries_sharing_rows": 0,
}  # fmt: skip


@pytest.fixture
def grids(monkeypatch):
    """Make searches divide the rows among threads, for any number of queries.

    Yield a list; each pass of a search appends its grid to this list.
    """
    results, run = [], parallel.run

    def noted(kernel, blocks, *arguments, **options):
        if kernel is tile_top_k.search_grid:
            results.append(arguments[3])
        run(kernel, blocks, *arguments, **options)

    monkeypatch.setattr(parallel, "run", noted)
    with cost_model.costs_replaced(**DIVIDED):
        yield results


def check(index, queries, rows, k, measure, **options):
    result = index.search(queries, k, **options)
    truth, _ = dense.top_k(queries, rows, k, FORMS[measure], exclude_self=False)
    np.testing.assert_array_equal(result.indices, truth)
    return result


@each_family_and_measure
def test_neighbors_are_exact_for_any_number_of_threads(grids, family, measure):
    rows = family(1500, 40).astype(np.float32)
    index = fastcos.SimilarityIndex(measure).fit(rows)
    expected = check(index, rows[:130], rows, 9, measure, n_threads=1)
    assert all(grid.n_ranges == 1 for grid in grids)
    grids.clear()
    for n_threads in (3, 16):
        result = check(index, rows[:130], rows, 9, measure, n_threads=n_threads)
        np.testing.assert_array_equal(result.scores, expected.scores)
    # If the rows form few groups of duplicates, the search scores every pair, and uses no grids.
    assert not grids or any(grid.n_ranges > 1 for grid in grids)


def delay(thresholds, random):
    """Reset some thresholds, as if tasks had written their values late or never."""
    thresholds[random.integers(len(thresholds), size=len(thresholds) // 2)] = -3e38


def tear(thresholds, random):
    """Replace one half of the bytes of some thresholds by bytes of other thresholds.

    A task could read such a mixture if only one half of a threshold had been stored.
    """
    halves = thresholds.view(np.uint16)
    halves[random.integers(len(halves), size=4)] = halves[random.integers(len(halves), size=4)]


def damage(thresholds, random):
    """Overwrite some thresholds with numbers that are not valid thresholds."""
    places = random.integers(len(thresholds), size=4)
    wrong = np.array([np.nan, np.inf, 3e38, 1e3, 0.9, -np.inf, 1e-38], np.float32)
    thresholds[places] = random.choice(wrong, 4)


# All measures share the code that compares thresholds. In the fast tests, each disturbance is
# therefore tested with only one measure.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("disturb", "measure"),
    [
        pytest.param(
            disturb, measure, id=f"{disturb.__name__}-{measure}",
            marks=[pytest.mark.slow] * ((disturb, measure) != (tear, "dot")),
        )
        for disturb in (delay, tear, damage)
        for measure in FORMS
    ],
)  # fmt: skip
def test_neighbors_are_exact_where_updates_are_disturbed(monkeypatch, disturb, measure):
    random = np.random.default_rng(3)
    rows = random.standard_normal((12_000, 24)).astype(np.float32)
    queries = np.concatenate([rows[:60], random.standard_normal((200, 24)).astype(np.float32)])
    index, run, passes = fastcos.SimilarityIndex(measure).fit(rows), parallel.run, []

    def disturbed(kernel, blocks, *arguments, **options):
        if kernel is not tile_top_k.search_grid:
            return run(kernel, blocks, *arguments, **options)
        grid, thresholds, ended = arguments[3], arguments[4].thresholds, threading.Event()
        passes.append(grid)

        def write():
            while not ended.is_set():
                disturb(thresholds, random)

        # Each task reads the thresholds that other tasks write. The test disturbs these thresholds
        # before the tasks start, and while the tasks run.
        if grid.n_ranges > 1:
            disturb(thresholds, random)
        writer = threading.Thread(target=write)
        if grid.n_ranges > 1:
            writer.start()
        try:
            return run(kernel, blocks, *arguments, **options)
        finally:
            ended.set()
            if grid.n_ranges > 1:
                writer.join()

    monkeypatch.setattr(parallel, "run", disturbed)
    truth, _ = dense.top_k(queries, rows, 5, FORMS[measure], exclude_self=False)
    with cost_model.costs_replaced(**DIVIDED):
        for n_threads in (3, 8):
            for _ in range(3):
                result = index.search(queries, 5, n_threads=n_threads)
                np.testing.assert_array_equal(result.indices, truth)
    assert max(grid.n_ranges for grid in passes) > 1
    if disturb is damage:  # the searches noticed the damage, and searched again
        assert len(passes) > 6


def test_thresholds_that_are_too_high_before_the_first_task_cost_another_pass(monkeypatch):
    rows = np.random.default_rng(4).standard_normal((5000, 24)).astype(np.float32)
    index, run, passes = fastcos.SimilarityIndex().fit(rows), parallel.run, []

    def raised(kernel, blocks, *arguments, **options):
        if kernel is tile_top_k.search_grid:
            passes.append(arguments[3].n_ranges)
            if len(passes) <= 2:
                arguments[4].thresholds[:] = 2.0
        run(kernel, blocks, *arguments, **options)

    monkeypatch.setattr(parallel, "run", raised)
    truth, _ = dense.top_k(rows[:100], rows, 5, "cosine", exclude_self=False)
    with cost_model.costs_replaced(**DIVIDED):
        result = index.search(rows[:100], 5, n_threads=4)
    np.testing.assert_array_equal(result.indices, truth)
    assert passes[0] > 1
    assert passes[1] > 1
    assert passes[2:] == [1]


def test_little_memory_divides_no_rows(grids):
    rows = np.random.default_rng(5).standard_normal((3000, 24)).astype(np.float32)
    index = fastcos.SimilarityIndex().fit(rows)
    check(index, rows[:300], rows, 20, "cosine", n_threads=4, working_memory=0.3)
    assert all(grid.n_ranges == 1 for grid in grids)
