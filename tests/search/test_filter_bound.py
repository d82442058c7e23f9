"""Each term of the candidate filter's bound (kernels.candidate_filter) is correct and needed.

In each test, only one term of the bound is large. Rows are rotated before they are quantised. In
the tests of the first two terms, one side (the queries or the items) has large rounding errors
after quantisation. The rows of the other side have no rounding errors; they point in the directions
of the large errors of the first side.
"""

import numpy as np
import pytest

from fastcos import set_config
from fastcos.kernels import cpu, query_blocks, tiles
from fastcos.kernels.jit import kernel
from fastcos.kernels.packing import SLACK
from fastcos.kernels.simd.instruction_sets import INSTRUCTION_SETS
from fastcos.kernels.simd.panel import CODE_NORM, RESIDUAL_NORM, UNREFINED_RESIDUAL_NORM
from fastcos.kernels.simd.tile_scores import end_tiles, score_panel, start_tiles
from fastcos.search import layout, packing
from fastcos.search.filters import no_exclusions
from fastcos.similarity import encoded_rows

# These tests compile kernels that only they call.
pytestmark = pytest.mark.slow

if not tiles.AVAILABLE:
    pytest.skip("vector IR", allow_module_level=True)


def packed_block(queries, items):
    """Return a block that contains all queries.

    The arrays have the same types as in tests/kernels/test_projection.py, so that both files use
    the same compiled code of pack_block.
    """
    n = queries.rows.data.shape[0]
    return query_blocks.pack_block(0, n, np.arange(n), queries, items, 1)


@kernel
def tile_scores(block, items):
    isa, m = items.isa, items.rows.data.shape[0]
    scores = np.empty((m // 32, 1024), items.packed.dtype)
    start_tiles(isa, items.tile_configuration)
    for p in range(m // 32):
        score_panel(
            isa, items.packed, p * block.size, block.packed, 0, items.words,
            block.corrections, 0, block.n_queries, scores[p],
        )  # fmt: skip
    end_tiles(isa)
    return scores


@kernel
def refined_scores(block, items):
    isa, m = items.isa, items.rows.data.shape[0]
    scores = np.empty((m // 32, 1024), items.packed.dtype)
    for p in range(m // 32):
        query_blocks.score_tile(isa, p, 0, items, block)
        for at in range(1024):  # all pairs are hits, ordered by query and item
            block.hits[at] = 32 * (at % 32) + at // 32
        query_blocks.refine_hits(p, 0, 1024, items, block)
        scores[p] = block.scores
    return scores


def unrotated(R, depth):
    """Return rows that a rotation by a Hadamard matrix turns into R (n, d).

    The depth d must be a power of two.
    """
    H = np.ones((1, 1))
    while len(H) < depth:
        H = np.block([[H, H], [H, -H]])
    signs = np.random.default_rng(packing._ROTATION_SEED).integers(0, 2, (2, depth))[0]
    return R @ H / np.sqrt(depth) * (2 * signs - 1)


def whole_steps(n, depth, seed, entries):
    """Return rows of whole numbers. Their norms are powers of two, so scaling does not round."""
    steps = np.zeros((n, depth))
    steps[:, : len(entries)] = entries
    return np.random.default_rng(seed).permuted(steps, axis=1)


def wrong_steps(n, depth, seed):
    """Return rows (n, d), in units of the quantisation step, and their rounding errors.

    Quantisation changes every entry by nearly half a step, except for the first entry of each row.
    In each pair of neighbouring entries, one entry becomes larger and the other becomes smaller.
    """
    rng = np.random.default_rng(seed)
    steps, signs = rng.integers(-100, 101, (n, depth)), rng.choice([-1, 1], (n, depth // 2))
    signs[:, 0] = 1
    errors = 0.49 * np.stack([signs, -signs], axis=2).reshape(n, depth)
    rows = steps + errors
    rows[:, 0], errors[:, 0] = 127, 0
    return rows, errors


def along(errors):
    """Return rows whose entries have the same signs as the given rounding errors.

    All entries are 127 or -127, so none is rounded. With AVX2, none is rounded because half of the
    codes in each group are positive: all codes are 31 or -31.
    """
    return np.where(errors >= 0, 127.0, -127.0)


def query_rounding(isa):
    queries, errors = wrong_steps(32, 64, 0)
    return unrotated(queries, 64), unrotated(along(errors), 64)


def item_rounding(isa):
    items, errors = wrong_steps(32, 64, 1)
    return unrotated(along(errors), 64), unrotated(items, 64)


def float32_rounding(isa):
    # With AVX2, the quantisation step is 1 if no other number in the group of the largest number
    # has the same sign.
    entries = (124, 22, 22, 6, 2) if isa == "avx2" else (64, 64, 64, 64)
    queries = unrotated(whole_steps(32, 64, 2, entries), 64)
    items = unrotated(whole_steps(32, 64, 3, (127, 15, 5, 2, 1)), 64)
    exact = items.astype(np.float32).astype(float)
    assert (exact == items).all()
    # The change is smaller than half of the last place of a float32, so it is lost when rows are
    # read.
    away = 0.49 * np.spacing(np.abs(items).astype(np.float32)).astype(float)
    return queries, items + np.sign(queries) * away


TERMS = {
    "query rounding": query_rounding,
    "item rounding": item_rounding,
    "slack": float32_rounding,
}

# Tests of all instruction sets except for the best one of this CPU are slow, because they compile
# code that no other test needs.
ISAS = [
    pytest.param(isa, marks=[pytest.mark.slow] * (isa != cpu.supported_isas()[0]))
    for isa in cpu.supported_isas()
    if layout.tile_layout(isa, 64).quantised
]


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dominant", TERMS)
def test_filter_bound_needs_every_term(dominant, isa):
    set_config(isa=isa)
    Q, X = TERMS[dominant](isa)
    items = encoded_rows.encode_rows(X, None, None, "dot")
    made = packing.pack_items("dot", items, np.arange(32), None)
    assert not len(made.arrays.shift)
    queries = packing.pack_queries(
        made, encoded_rows.encode_rows(Q, None, None, "dot"), no_exclusions(32),
    )  # fmt: skip
    block = packed_block(queries, made.arrays)
    scores = tile_scores(block, made.arrays)
    inverse, norm, residual = made.arrays.statistics[0, :3].astype(np.longdouble)
    bound_terms = block.bound_terms[0].astype(np.longdouble)
    query_residual, coded = bound_terms[UNREFINED_RESIDUAL_NORM], bound_terms[CODE_NORM]
    exact = (Q.astype(np.longdouble) @ X.T.astype(np.longdouble)) * queries.scaling.slopes[:, None]
    # For each query and each item, `error` contains the error of the score, in units of the query's
    # scale.
    value = exact[:, made.arrays.row_of_slot] / block.steps[0][:, None].astype(np.longdouble)
    error = np.abs(value - scores.reshape(32, 32).T / inverse)
    slack = np.longdouble(SLACK) / block.steps[0]
    terms = {
        "query rounding": (query_residual - slack) * norm,
        "item rounding": coded * residual,
        "slack": slack * norm,
    }
    bound = sum(terms.values())[:, None]
    assert (error <= bound).all()
    assert (error > bound - terms[dominant][:, None]).any()


REFINED_ISAS = [isa for isa in ISAS if INSTRUCTION_SETS[isa.values[0]].int16_words > 0]


def errors_and_bound(Q, X):
    """Return the errors of refined and of unrefined scores, and the bound on refined scores."""
    made = packing.pack_items(
        "dot", encoded_rows.encode_rows(X, None, None, "dot"), np.arange(len(X)), None
    )
    assert not len(made.arrays.shift)
    queries = packing.pack_queries(
        made, encoded_rows.encode_rows(Q, None, None, "dot"), no_exclusions(32),
    )  # fmt: skip
    block = packed_block(queries, made.arrays)
    unrefined = tile_scores(block, made.arrays)
    refined = refined_scores(block, made.arrays)  # changes the block
    inverse, norm, residual = made.arrays.statistics[:, :3].astype(np.longdouble).T
    bound_terms = block.bound_terms[0].astype(np.longdouble)
    exact = (Q.astype(np.longdouble) @ X.T.astype(np.longdouble)) * queries.scaling.slopes[:, None]
    value = exact[:, made.arrays.row_of_slot] / block.steps[0][:, None].astype(np.longdouble)

    def errors(scores):
        by_query = np.concatenate([tile.reshape(32, 32).T for tile in scores], axis=1)
        return np.abs(value - by_query / np.repeat(inverse, 32))

    bound = bound_terms[RESIDUAL_NORM][:, None] * np.repeat(norm, 32)
    bound = bound + bound_terms[CODE_NORM][:, None] * np.repeat(residual, 32)
    return errors(refined), errors(unrefined), bound


@pytest.mark.parametrize("isa", REFINED_ISAS)
@pytest.mark.parametrize("depth", [5, 64, 200, 768, 5000])
@pytest.mark.parametrize("size", [1e-20, 1.0, 1e20])
def test_refined_scores_are_within_their_bound(size, depth, isa):
    set_config(isa=isa)
    rng = np.random.default_rng(depth)
    X, Q = rng.standard_normal((64, depth)), rng.standard_normal((32, depth))
    X[1::4] = np.sign(X[1::4])
    Q[::4] = X[:32:4] + 0.01 * Q[::4]
    Q[1::4, 0] = 50.0
    Q[2] = 0.0
    refined, _, bound = errors_and_bound((size * Q).astype(np.float32), X.astype(np.float32))
    assert (refined <= bound).all()


@pytest.mark.parametrize("isa", REFINED_ISAS)
def test_refinement_removes_the_rounding_errors_of_queries(isa):
    set_config(isa=isa)
    refined, unrefined, bound = errors_and_bound(*query_rounding(isa))
    assert (refined <= bound).all()
    assert (unrefined > bound).any()
