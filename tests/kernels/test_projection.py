import numpy as np
import pytest

from fastcos.kernels import cpu, packing, projection, query_blocks, records, tiles
from fastcos.kernels.jit import kernel
from fastcos.kernels.simd import tile_scores
from fastcos.kernels.simd.hits import list_tile_hits_by_projection
from fastcos.kernels.simd.instruction_sets import INSTRUCTION_SETS
from fastcos.kernels.simd.panel import INVERSE_STEP, MAX_RESIDUAL, THRESHOLD
from tests.kernels.inputs import frozen, frozen_rows

# These tests compile kernels that only they call; tests/search/test_projection.py is not slow.
pytestmark = pytest.mark.slow

if not tiles.AVAILABLE:
    pytest.skip("vector IR", allow_module_level=True)

# Tests of all instruction sets except for the best one of this CPU are slow, because they compile
# code that no other test needs.
ISAS = [
    pytest.param(isa, marks=[pytest.mark.slow] * (isa != cpu.supported_isas()[0]))
    for isa in ("vnni", "avx2")
    if isa in cpu.supported_isas()
]
DEPTH, WORDS, AXES, PROJECTED_WORDS = 200, 50, 64, 16


def some_rows(n, depth, seed=0):
    return np.random.default_rng(seed).standard_normal((n, depth)).astype(np.float32)


def signs(depth):
    bits = np.random.default_rng(9).integers(0, 2, (2, max(depth, 16)))
    return (2.0 * bits - 1).astype(np.float32)


@kernel
def score(isa, panel, items, projection, block, hits):
    tile_scores.score_panel(
        isa, projection.packed, panel * 32 * projection.words, block.projected.packed, 0,
        projection.words,
        block.projected.corrections, 0, block.n_queries, block.scores,
    )  # fmt: skip
    return list_tile_hits_by_projection(
        block.scores, block.bound_terms, 0, block.projected.bound_terms, 0, projection.statistics,
        panel, items.row_of_slot.shape[0] - panel * 32, projection.remainder_norms, hits,
    )  # fmt: skip


def axes_of(V):
    panels = V.astype(np.float32).reshape(DEPTH, -1, 32).swapaxes(0, 1)
    return frozen(np.ascontiguousarray(panels), np.full(1, 1e-3, np.float32))


def with_projection(isa, X):
    """Return packed items of unit rows without a shift, and the axes of their prefixes."""
    n, panels = len(X), -(-len(X) // 32)
    V = np.linalg.qr(np.random.default_rng(3).standard_normal((DEPTH, AXES)))[0]
    order, none = np.arange(n, dtype=np.int32), np.zeros(0)
    factors = 1.0 / np.linalg.norm(X.astype(float), axis=1)
    codes = np.full(32 * panels * WORDS, 77, np.int32)
    statistics = np.full((panels, 5), np.nan, np.float32)
    scaled = records.ScaledRows(frozen_rows(X), *frozen(factors, factors, none))
    code, no_offsets = INSTRUCTION_SETS[isa], np.zeros(0, np.float32)
    layout = records.PanelLayout(code, WORDS, *frozen(signs(DEPTH)))
    packing.prepare_item_panels(
        0, -(-n // packing.CHUNK), layout, scaled, *frozen(none),
        records.ItemPanels(order, codes, no_offsets, statistics),
    )  # fmt: skip
    axes, eta = axes_of(V)
    short = np.full(32 * panels * PROJECTED_WORDS, 77, np.int32)
    own = np.full((panels, 5), np.nan, np.float32)
    rests = np.full(32 * panels, np.nan, np.float32)
    projection.prepare_projected_panels(
        0, panels, layout._replace(words=PROJECTED_WORDS), scaled,
        records.ItemPanels(*frozen(order, codes, no_offsets, statistics)), axes, eta,
        records.ProjectedPanels(short, own, rests),
    )  # fmt: skip
    by_item = np.empty_like(codes)
    projection.arrange_by_item(0, panels, WORDS, *frozen(codes), by_item)
    short, own, rests = frozen(short, own, rests)
    largest_k = frozen(np.full(2, 10, np.float32))
    projected = records.Projection(axes, short, PROJECTED_WORDS, own, rests, eta, *largest_k)
    # These arrays are made read-only, as in the library. tests/search/test_filter_bound.py can then
    # use the same compiled code of pack_block.
    order, by_item, statistics = frozen(order, by_item, statistics)
    factors, none = frozen(factors, none)
    items = records.Items(
        code, 0, frozen_rows(X), factors, none, order, by_item, WORDS, *frozen(no_offsets),
        statistics, *frozen(none, signs(DEPTH), tiles.configuration()),
        *frozen(np.zeros((0, 2), np.float32)), projected,
    )  # fmt: skip
    return items, V, codes


@pytest.mark.parametrize("isa", ISAS)
def test_prepare_projected_panels_bounds_what_is_left(isa):
    X = some_rows(150, DEPTH)
    items, V, codes = with_projection(isa, X)
    prefix, order = items.projection, items.row_of_slot
    unit = (X / np.linalg.norm(X.astype(float), axis=1, keepdims=True))[order]
    exact = unit @ V
    left = np.linalg.norm(unit - exact @ V.T, axis=1)
    assert (prefix.remainder_norms[:150] >= left).all()
    assert (prefix.remainder_norms[:150] <= left + 2e-3).all()
    assert not prefix.remainder_norms[150:].any()
    panels = len(prefix.statistics)
    short = prefix.packed.view(np.uint8).reshape(panels, 4, PROJECTED_WORDS, 8, 4).swapaxes(2, 3)
    back = (short.reshape(32 * panels, -1).astype(int) - 128)[:150].astype(float)
    back /= prefix.statistics[np.arange(150) // 32, INVERSE_STEP, None]
    errors = np.linalg.norm(exact - back, axis=1)
    assert (errors <= prefix.statistics[np.arange(150) // 32, MAX_RESIDUAL]).all()
    groups = codes.reshape(panels, 4, WORDS, 8).swapaxes(2, 3)
    np.testing.assert_array_equal(items.packed.reshape(groups.shape), groups)


def queries_of(Q):
    """Return queries that are scaled to unit length, without a shift or exclusions."""
    n = len(Q)
    norms, none, ones = np.linalg.norm(Q.astype(float), axis=1), np.zeros(0, np.int64), np.ones(n)
    norms, own, indptr = frozen(norms, np.full(n, -1), np.zeros(n + 1, np.int64))
    scaling = records.QueryScaling(1.0 / norms, 0 * ones, np.zeros(n, np.float32), ones, 0 * ones)
    filters = records.QueryFilters(own, indptr, *frozen(none), np.zeros(0, np.uint8))
    return records.Queries(frozen_rows(Q), norms, scaling, 0.0, 0.0, filters)


@pytest.mark.parametrize("isa", ISAS)
def test_queries_off_the_axes_get_no_prefixes(isa):
    # The items lie in the space of the axes. There are three panels of queries: the second one is
    # orthogonal to this space, and the other two lie in it.
    V = with_projection(isa, some_rows(32, DEPTH))[1]
    items = with_projection(isa, (some_rows(64, AXES) @ V.T).astype(np.float32))[0]
    along, across = some_rows(96, AXES, 1) @ V.T, some_rows(96, DEPTH, 2)
    across -= across @ V @ V.T
    Q = np.concatenate([along[:32], across[:32], along[32:50]]).astype(np.float32)
    queries = queries_of(Q)
    for n_projected, first in ((1, [0, 1, 1]), (3, [0, 1, 0]), (0, [1, 1, 1])):
        block = query_blocks.pack_block(0, len(Q), np.arange(len(Q)), queries, items, n_projected)
        assert block.projected.uses_full_codes.tolist() == first
        projection.project_queries(
            1, 3, 0, len(Q), np.arange(len(Q)), queries, items, block.packed,
            block.bound_terms, block.steps, block.projected,
        )  # fmt: skip
        assert block.projected.uses_full_codes.tolist() == [first[0], 1, 0]


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("n_queries", [3, 20, 32])
def test_no_pair_is_dropped_that_reaches_its_threshold(isa, n_queries):
    """The bounds are those of pack_block (pack_projected_queries) and prepare_projected_panels."""
    X, Q = some_rows(64, DEPTH), some_rows(n_queries, DEPTH, 1)
    Q[1] = X[5]
    items, *_ = with_projection(isa, X)
    queries, norms = queries_of(Q), np.linalg.norm(Q.astype(float), axis=1)
    code = INSTRUCTION_SETS[isa]
    block = query_blocks.pack_block(0, n_queries, np.arange(n_queries), queries, items, 1)
    exact = (Q / norms[:, None]) @ (X / np.linalg.norm(X.astype(float), axis=1)[:, None]).T
    exact = exact[:, items.row_of_slot]
    hits = np.empty(1024, np.int32)
    for share in (0.5, 0.9, 1.0):
        taus = np.quantile(exact, share, axis=1)
        block.bound_terms[0, THRESHOLD, :n_queries] = taus / block.steps[0, :n_queries]
        for panel in range(2):
            count = score(code, panel, items, items.projection, block, hits)
            found = {(hit >> 5, hit & 31) for hit in hits[:count]}
            part = exact[:, 32 * panel : 32 * panel + 32]
            expected = {(i, q) for q, i in np.argwhere(part >= taus[:, None])}
            assert expected <= found
            assert all(q < n_queries for _, q in found)
