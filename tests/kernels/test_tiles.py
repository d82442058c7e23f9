import numpy as np
import pytest

from fastcos.kernels import cpu, tiles
from fastcos.kernels.jit import kernel
from fastcos.kernels.simd import tile_scores
from fastcos.kernels.simd.hits import largest_scores, list_reaching, list_tile_hits
from fastcos.kernels.simd.instruction_sets import INSTRUCTION_SETS
from fastcos.kernels.simd.panel import (
    CODE_NORM,
    N_BOUND_TERMS,
    OFFSET_WEIGHT,
    THRESHOLD,
    UNREFINED_RESIDUAL_NORM,
)

if not tiles.AVAILABLE:
    pytest.skip("vector IR", allow_module_level=True)


@kernel
def one_panel(isa, items, queries, words, starts, state, used, scores):
    tile_scores.start_tiles(isa, state)
    tile_scores.score_panel(isa, items, 0, queries, 0, words, starts, 0, used, scores)
    tile_scores.end_tiles(isa)


@kernel
def which_pass(scores, bound_terms, statistics, n_items, hits, largest):
    largest_scores(scores, largest)
    return list_tile_hits(scores, bound_terms, 0, statistics, 0, n_items, hits)


@kernel
def one_run(isa, by_item, items, step, words, codes, correction, products, largest_products):
    if by_item:
        tile_scores.multiply_run_by_item(
            isa, items, 0, step, 2, words, codes, 0, correction, products, largest_products
        )
    else:
        tile_scores.multiply_run(
            isa, items, 0, step, 2, words, codes, 0, correction, products, largest_products
        )


@kernel
def reaching(scores, least, n_items, hits):
    return list_reaching(scores, 32, least, n_items, hits, 1)


def codes(depth, seed):
    rng = np.random.default_rng(seed)
    found = rng.integers(-127, 128, (32, depth))
    found[0], found[1] = 127, -127
    return found


def query_codes(isa, depth, seed, added_words):
    """Return codes of queries.

    For AVX2, the products of `added_words` words are added in int16, and the sums come close to the
    limits of int16. Some queries have codes of only one sign, and others have codes of both signs.
    """
    if isa != "avx2":
        return codes(depth, seed)
    rng, n_steps = np.random.default_rng(seed), -(-depth // (4 * added_words))
    # A step consists of `added_words` words, and each word has 2 halves of 2 codes. `shares` has
    # four axes: the queries, the steps, the halves, and the codes whose products are added. These
    # codes are in the same half of each word of the step.
    shares = rng.dirichlet(np.full(2 * added_words, 0.5), (32, n_steps, 2))
    groups = np.minimum(rng.multinomial(128, shares), 127) * rng.choice([-1, 1], shares.shape)
    groups[0], groups[1] = np.abs(groups[0]), -np.abs(groups[1])
    found = groups.reshape(32, n_steps, 2, added_words, 2).swapaxes(2, 3).reshape(32, -1)
    return found[:, :depth]


def laid_out(isa, items, queries):
    """Return items and queries in the layouts that ``simd.panel`` describes."""
    amx = isa == "amx"
    width = -(-items.shape[1] // (64 if amx else 8)) * (64 if amx else 8)
    left, right = np.zeros((2, 32, width), np.int8)
    left[:, : items.shape[1]], right[:, : items.shape[1]] = items, queries
    if amx:
        left = left.reshape(32, -1, 64).transpose(1, 0, 2)
        right = right.reshape(2, 16, -1, 16, 4).transpose(2, 0, 3, 1, 4)
    else:
        left = (left.astype(int) + 128).astype(np.uint8).reshape(4, 8, -1, 4).transpose(0, 2, 1, 3)
        right = right.reshape(32, -1, 4).transpose(1, 0, 2)
    words = (np.frombuffer(side.tobytes(), np.int32).copy() for side in (left, right))
    return *words, width // 4


def coded_cases(*isas):
    """Return pairs of an instruction set and a number of columns.

    The tests with the largest number of columns take long, so they are slow tests.
    """
    many = tiles.MAX_CODED_COLUMNS
    return [
        pytest.param(isa, depth, marks=[pytest.mark.slow] * (depth == many))
        for isa in isas
        for depth in (1, 4, 5, 63, 64, 65, 300, many)
    ]  # fmt: skip


@pytest.mark.parametrize(("isa", "depth"), coded_cases("amx", "vnni", "avxvnni", "avx2"))
def test_score_panel_int8_is_exact(isa, depth):
    if isa not in cpu.supported_isas():
        pytest.skip(f"this CPU has no {isa}")
    items, queries = codes(depth, 0), query_codes(isa, depth, 1, added_words=4)
    packed, query_panel, words = laid_out(isa, items, queries)
    for used in (1, 3, 4, 5, 16, 17, 32):
        scores = np.full(1024, -7, np.int32)
        one_panel(
            INSTRUCTION_SETS[isa], packed, query_panel, words,
            (-128 * queries.sum(1)).astype(np.int32), tiles.configuration(), used, scores,
        )  # fmt: skip
        found = scores.reshape(32, 32)
        expected = (items @ queries.T)[:, :used]
        np.testing.assert_array_equal(found[:, :used], expected, err_msg=f"{used} queries")


@pytest.mark.parametrize(("isa", "depth"), coded_cases("vnni", "avxvnni", "avx2"))
@pytest.mark.parametrize("by_item", [False, True])
def test_multiply_run_is_exact(isa, depth, by_item):
    """A run multiplies two panels, and skips the panel between them."""
    if isa not in cpu.supported_isas():
        pytest.skip(f"this CPU has no {isa}")
    queries = query_codes(isa, depth, 1, added_words=2)
    panels, (_, query_panel, words) = [], laid_out(isa, codes(depth, 0), queries)
    for seed in (0, 7, 2):
        packed, _, _ = laid_out(isa, codes(depth, seed), queries)
        if by_item:
            packed = packed.reshape(4, words, 8).transpose(0, 2, 1).reshape(-1)
        panels.append(packed)
    query = query_panel.reshape(words, 32)[:, 3].copy()
    spread = query if by_item else np.repeat(query, 8)
    products, largest_products = np.full(64, -7, np.int32), np.full(2, -7, np.int32)
    one_run(
        INSTRUCTION_SETS[isa], by_item, np.concatenate(panels), 64 * words, words, spread,
        np.int32(-128 * queries[3].sum()), products, largest_products,
    )  # fmt: skip
    exact = [codes(depth, seed) @ queries[3] for seed in (0, 2)]
    np.testing.assert_array_equal(products.reshape(2, 32), exact)
    np.testing.assert_array_equal(largest_products, np.max(exact, axis=1))


@pytest.mark.parametrize("n_items", [1, 8, 31, 32, 100])
@pytest.mark.parametrize("least", [-1e12, -50.0, 0.5, 99.0, 99.5, 1e12, 3e38])
def test_list_reaching_equals_its_rule(least, n_items):
    scores = np.random.default_rng(0).integers(-100, 100, 64).astype(np.int32)
    hits = np.full(64, -7, np.int32)
    found = reaching(scores, np.float32(least), n_items, hits)
    expected = 32 + np.flatnonzero(scores[32:][:n_items] >= least)
    np.testing.assert_array_equal(hits[1 : 1 + found], expected)
    assert hits[0] == -7
    assert hits[1 + found] == -7


@pytest.mark.slow  # other code of one_panel is compiled for float32
@pytest.mark.parametrize("isa", ["avx512", "generic"])
@pytest.mark.parametrize("depth", [1, 5, 64, 301])
def test_score_panel_float32_is_within_its_bound(isa, depth):
    if isa not in cpu.supported_isas():
        pytest.skip(f"this CPU has no {isa}")
    rng = np.random.default_rng(0)
    items, queries = rng.standard_normal((2, 32, depth)).astype(np.float32)
    scores = np.full(1024, np.nan, np.float32)
    one_panel(
        INSTRUCTION_SETS[isa], items.reshape(-1), queries.T.reshape(-1).copy(), depth,
        np.zeros(32, np.int32), tiles.configuration(), 32, scores,
    )  # fmt: skip
    exact = items.astype(float) @ queries.astype(float).T
    norms = np.linalg.norm(items.astype(float), axis=1)[:, None]
    bound = (depth + 8) * 2.0**-24 * norms * np.linalg.norm(queries.astype(float), axis=1)
    assert (np.abs(scores.reshape(32, 32) - exact) <= bound).all()


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("threshold", [-1e12, -5e8, 5e8, 1e12])
def test_list_tile_hits_does_not_overflow(sign, threshold):
    scores = np.full(1024, sign * 127**2 * tiles.MAX_CODED_COLUMNS, np.int32)
    bound_terms = np.zeros((N_BOUND_TERMS, 32), np.float32)
    bound_terms[THRESHOLD] = threshold
    hits, largest = np.zeros(1024, np.int32), np.zeros(32, np.float32)
    statistics = np.array([1, 0, 0, 0, 0], np.float32)
    found = which_pass(scores, bound_terms.reshape(-1), statistics, 32, hits, largest)
    assert found == 1024 * (scores[0] >= threshold)


@pytest.mark.parametrize("n_items", [1, 19, 32])
@pytest.mark.parametrize("kind", [np.int32, pytest.param(np.float32, marks=pytest.mark.slow)])
@pytest.mark.parametrize("threshold", [-1e12, -50.0, 90.5, 99.0, 99.5, 1e12, 3e38])
def test_list_tile_hits_equals_the_threshold_rule(kind, threshold, n_items):
    scores = np.random.default_rng(0).integers(-100, 100, 1024).astype(kind)
    bound_terms = np.zeros((N_BOUND_TERMS, 32), np.float32)
    bound_terms[THRESHOLD] = threshold
    bound_terms[THRESHOLD, 5] = 3e38
    bound_terms[UNREFINED_RESIDUAL_NORM], bound_terms[CODE_NORM] = 0.25, 0.5
    bound_terms[OFFSET_WEIGHT, ::2], bound_terms[OFFSET_WEIGHT, 1::2] = 2.0, -3.0
    statistics = np.array([2.0, 4.0, 6.0, 0.5, -0.25], np.float32)
    hits, largest = np.full(1024, -7, np.int32), np.full(32, np.nan, np.float32)
    found = which_pass(scores, bound_terms.reshape(-1), statistics, n_items, hits, largest)
    table = scores.reshape(32, 32)
    np.testing.assert_array_equal(largest, table.max(axis=0))
    offsets = np.where(bound_terms[OFFSET_WEIGHT] > 0, 2.0 * 0.5, -3.0 * -0.25)
    least = (bound_terms[THRESHOLD].astype(float) - 0.25 * 4 - 0.5 * 6 - offsets) * 2
    must = table >= least
    may = table >= np.clip(least, -1e9, 1e9) - 2 if kind is np.int32 else must
    # The hits are sorted by query, and then by item.
    assert (np.diff(hits[:found] % 32 * 32 + hits[:found] // 32) > 0).all()
    passed = np.zeros(1024, bool)
    passed[hits[:found]] = True
    passed = passed.reshape(32, 32)
    assert not passed[n_items:].any()
    assert (passed >= must)[:n_items].all()
    assert (passed <= may).all()
