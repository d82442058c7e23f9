"""Self-joins that multiply each pair of rows only once find the exact neighbours."""

import itertools

import numpy as np
import pytest

import fastcos
from fastcos import parallel
from fastcos.kernels import cpu, self_join, tiles
from fastcos.kernels.simd.panel import PANEL
from fastcos.search import cost_model, plan, projection, task_grid
from tests.oracles import dense
from tests.oracles.dense_families import FAMILIES, FORMS, each_family_and_measure

if not tiles.AVAILABLE:
    pytest.skip("there are no tiles", allow_module_level=True)

# SETS contains the instruction sets of this machine that multiply codes without tile registers.
# Tests of all of them except for the best one are slow, because they compile kernels that no other
# test needs.
BEST = cpu.supported_isas()[0]
SETS = [
    # avxvnni and vnni use the same tiles, but the registers of avxvnni are half as wide.
    pytest.param(
        isa, marks=[pytest.mark.long if isa == "avxvnni" else pytest.mark.slow] * (isa != BEST)
    )
    for isa in cpu.supported_isas()
    if isa in ("avx2", "avxvnni", "vnni")
]
# With these settings of the cost model, more rounds of a self-join cost no additional time. Even a
# few hundred rows are therefore divided into many blocks.
SMALL_BLOCKS = {
    "min_panels_of_joined_block": 0, "panels_of_joined_block": 2, "min_sample_stride_of_join": 1,
    "min_columns_of_join": 1, "min_seconds_per_joined_neighbor": 0.0, "projected_columns": 0,
    "min_work_to_project": 0,
}  # fmt: skip


@pytest.fixture
def joins(monkeypatch):
    """Yield a list to which every stage of a self-join appends its settings."""
    stages, run = [], parallel.run

    def noted(kernel, blocks, *arguments, **options):
        if kernel is self_join.search_self_join:
            stages.append(arguments[3])
        run(kernel, blocks, *arguments, **options)

    monkeypatch.setattr(parallel, "run", noted)
    with cost_model.costs_replaced(**SMALL_BLOCKS):
        yield stages


def check(X, k, measure="cosine", **options):
    result = fastcos.top_k(X, k=k, measure=measure, **options)
    own = options.get("exclude_self", True)
    truth, _ = dense.top_k(X, X, k, FORMS[measure], exclude_self=own)
    np.testing.assert_array_equal(result.indices, truth)


@pytest.mark.parametrize("isa", SETS)
@each_family_and_measure
def test_neighbors_are_exact(joins, family, measure, isa):
    X = family(417, 40).astype(np.float32)
    fastcos.set_config(isa=isa)
    for n_threads, k in ((1, 3), (3, 20)):
        check(X, k, measure, n_threads=n_threads)
    # The kernel for self-joins must run for the first family. In some of the other families, many
    # rows are equal, or the norms of the rows differ too much. Such rows are searched without this
    # kernel.
    assert joins or family is not FAMILIES[0]


@pytest.mark.slow
@pytest.mark.parametrize("isa", SETS[:1])
@pytest.mark.parametrize("n_threads", [1, 2, 5])
@pytest.mark.parametrize("n", [128, 129, 300, 1025])
def test_sizes_around_panels_and_blocks(joins, n, n_threads, isa):
    X = np.random.default_rng(n).standard_normal((n, 24)).astype(np.float32)
    fastcos.set_config(isa=isa)
    check(X, 7, n_threads=n_threads)
    check(X, 7, n_threads=n_threads, exclude_self=False)
    assert {settings.stage for settings in joins} >= {self_join.FIRST, 0, self_join.LAST}


def test_every_pair_of_blocks_meets_once():
    opponents = getattr(self_join.opponents, "py_func", self_join.opponents)
    for n_blocks in range(2, 40, 2):
        met = []
        for round_number in range(n_blocks - 1):
            pairs = [opponents(task, round_number, n_blocks) for task in range(n_blocks // 2)]
            assert sorted(itertools.chain(*pairs)) == list(range(n_blocks))
            met += pairs
        assert sorted(met) == list(itertools.combinations(range(n_blocks), 2))


@pytest.mark.slow
@pytest.mark.parametrize("isa", SETS[:1])
@pytest.mark.parametrize(
    ("dtype", "scales"),
    [
        (np.float32, (1e-30, 1.0, 1e30)),
        (np.float64, (1e-100, 1e100)),
    ],
)
@pytest.mark.parametrize("measure", FORMS)
def test_rows_of_very_different_norms(joins, measure, dtype, scales, isa):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 20)) * 10.0 ** rng.uniform(-2, 2, (300, 1))
    X[[3, 50, 299]] = 0.0
    fastcos.set_config(isa=isa)
    for scale in scales:
        check((X * scale).astype(dtype), 5, measure, n_threads=2)
    # If the ratio of norms exceeds the range of float32, another method searches the rows.
    n_joins = len(joins)
    X = X * 10.0 ** rng.uniform(-25, 25, (300, 1))
    check(X.astype(dtype), 5, measure, n_threads=2)
    assert (len(joins) > n_joins) == (measure == "cosine")


@pytest.mark.slow
@pytest.mark.parametrize("isa", SETS[:1])
@pytest.mark.parametrize("measure", FORMS)
def test_rows_with_a_common_direction(joins, measure, isa):
    rng = np.random.default_rng(1)
    X = (rng.standard_normal((700, 32)) + 3.0 * rng.standard_normal(32)).astype(np.float32)
    fastcos.set_config(isa=isa)
    check(X, 10, measure, n_threads=2)
    assert joins


@pytest.mark.slow
@pytest.mark.parametrize("isa", SETS[:1])
def test_rows_whose_projection_helps_only_for_a_smaller_k(joins, monkeypatch, isa):
    monkeypatch.setattr(projection, "ANY_K", 1.0)
    rng = np.random.default_rng(5)
    X = (rng.standard_normal((700, 8)) @ rng.standard_normal((8, 64))).astype(np.float32)
    fastcos.set_config(isa=isa)
    with cost_model.costs_replaced(**SMALL_BLOCKS | {"projected_columns": 16}):
        check(X, 10, n_threads=2)
        assert joins
        n_joins = len(joins)
        check(X, 1, n_threads=2)
    assert len(joins) == n_joins


@pytest.mark.slow
@pytest.mark.parametrize("isa", SETS[:1])
def test_too_high_estimates_are_repaired(joins, isa):
    # A sample of the panels yields an estimate of each row's threshold. For some of these rows, the
    # sample happens to contain unusually many of the row's neighbours, so the estimate is too high.
    rng = np.random.default_rng(2)
    X = rng.standard_normal((2000, 16)).astype(np.float32)
    X[::97] = X[0] + 0.01 * rng.standard_normal((len(X[::97]), 16))
    fastcos.set_config(isa=isa)
    check(X, 19, n_threads=2)
    assert joins


@pytest.mark.slow
@pytest.mark.parametrize("isa", SETS[:1])
def test_bits_are_those_of_other_searches(joins, isa):
    X = np.random.default_rng(3).standard_normal((900, 30)).astype(np.float32)
    fastcos.set_config(isa=isa)
    once = fastcos.top_k(X, k=9, n_threads=2)
    assert joins
    twice = fastcos.top_k(X, X.copy(), k=9, exclude_self=True, n_threads=2)
    np.testing.assert_array_equal(once.indices, twice.indices)
    np.testing.assert_array_equal(once.scores, twice.scores)


@pytest.mark.slow
@pytest.mark.parametrize("isa", SETS[:1])
def test_progress_ends_with_all_queries(joins, isa):
    X, seen = np.random.default_rng(4).standard_normal((500, 16)).astype(np.float32), []
    fastcos.set_config(isa=isa)
    fastcos.top_k(X, k=3, progress=lambda done, total: seen.append((done, total)))
    assert joins
    assert seen == sorted(seen)
    assert seen[-1] == (500, 500)


def plan_of(n, isa="avx2", n_threads=2, k=10, memory=2.0**30, **changes):
    sizes = plan.SegmentSizes(n, 384, n, packed_for=isa, n_packed=n, n_distinct=n)
    request = plan.RequestSizes(n, k, is_self_join=True)
    for name, value in changes.items():
        if hasattr(sizes, name):
            sizes = sizes.__class__(**{**sizes.__dict__, name: value})
        else:
            request = request.__class__(**{**request.__dict__, name: value})
    machine = task_grid.Machine(isa, n_threads, memory)
    return plan.plan_search(sizes, request, machine)


@pytest.mark.parametrize("isa", ["avx2", "avxvnni", "vnni"])
@pytest.mark.parametrize("n_threads", [1, 2, 16])
def test_plan_of_a_self_join(isa, n_threads):
    made = plan_of(100_000, isa, n_threads)
    assert made.kernel == "self_join"
    assert made.grid.n_query_blocks % (2 * n_threads) == 0
    assert made.grid.n_query_blocks * made.grid.queries_per_block >= 100_000
    assert 0 < made.buffer_bytes <= 2.0**30
    # This projection would help only if k were smaller.
    assert plan_of(100_000, isa, n_threads, projected_words=24).grid == made.grid


@pytest.mark.parametrize(
    "changes",
    [
        {"isa": "amx"}, {"isa": "generic"}, {"isa": "avx512"}, {"n": 1000}, {"n_threads": 128},
        {"n": 30_000, "isa": "vnni", "k": 100},
        {"memory": 2.0**24}, {"n_live": 99_999}, {"n_distinct": 5_000},
        {"is_self_join": False}, {"n_allowed": 99_000},
        {"projected_words": 24, "projection_max_k": (50.0, 50.0)},
    ],
    ids=str,
)  # fmt: skip
def test_other_searches_multiply_each_pair_twice(changes):
    made = plan_of(**{"n": 100_000, **changes})
    assert "self_join" not in (made.kernel, made.inner and made.inner.kernel)


def test_buffers_of_a_self_join_contain_the_candidates_that_are_scored_together():
    few, many = (plan_of(100_000, k=100, n_threads=n_threads) for n_threads in (2, 16))
    # In the last stage, each of the 14 additional threads lists all candidates of several panels.
    n_candidates = self_join.PANELS_AT_ONCE * PANEL * (many.capacity - 1)
    assert many.buffer_bytes - few.buffer_bytes >= 14 * 28 * n_candidates


def test_explain_knows_self_joins():
    sizes = {"n_threads": 2, "isa": "avx2", "working_memory": 1024}
    explained = fastcos.explain_top_k(100_000, 100_000, 384, is_self_join=True, **sizes)
    twice = fastcos.explain_top_k(100_000, 100_000, 384, **sizes)
    assert explained.plans[0].kernel == "self_join"
    assert "each pair of blocks is compared once" in str(explained)
    assert explained.estimate.multiply_adds < 0.6 * twice.estimate.multiply_adds
    with pytest.raises(
        ValueError, match="n_queries must equal n_items in a self-join, got 5 and 6"
    ):
        fastcos.explain_top_k(5, 6, 3, k=2, is_self_join=True)
