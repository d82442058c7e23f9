import numpy as np
import pytest

from fastcos.kernels import cpu, packing, tiles
from fastcos.kernels.jit import kernel

if not tiles.AVAILABLE:
    pytest.skip("vector IR", allow_module_level=True)


@kernel
def one_panel(isa, items, stride, queries, depth, starts, state, scores):
    tiles.start_tiles(isa, state)
    tiles.score_panel(isa, items, 0, stride, queries, 0, depth, starts, 0, scores)
    tiles.end_tiles(isa)


@kernel
def which_pass(scores, lanes, statistics, n_items, hits, largest):
    tiles.largest_scores(scores, largest)
    return tiles.passing(scores, lanes, 0, statistics, 0, n_items, hits)


def codes(depth, seed):
    rng = np.random.default_rng(seed)
    found = rng.integers(-127, 128, (32, depth))
    found[0], found[1] = 127, -127
    return found


@pytest.mark.parametrize("isa", ["amx", "vnni"])
@pytest.mark.parametrize("depth", [1, 4, 5, 63, 64, 65, 300])
def test_score_panel_int8_is_exact(isa, depth):
    if isa not in cpu.supported_isas():
        pytest.skip(f"this CPU has no {isa}")
    items, queries = codes(depth, 0), codes(depth, 1)
    steps = -(-depth // 64)
    padded = np.zeros((32, 64 * steps), np.int8)
    padded[:, :depth] = items
    packed = np.full(2048 * steps, 249, np.uint8)
    packing.pack_query_codes(queries.T.astype(np.float32), isa == "vnni", packed)
    scores = np.full(1024, -7, np.int32)
    one_panel(
        tiles.ISA_TUPLES[isa], padded.reshape(-1), 64 * steps, packed,
        -(-depth // 4) if isa == "vnni" else steps, (-128 * items.sum(1)).astype(np.int32),
        tiles.configuration(), scores,
    )  # fmt: skip
    np.testing.assert_array_equal(scores.reshape(32, 32), items @ queries.T)


@pytest.mark.parametrize("isa", ["avx512", "avx2", "generic"])
@pytest.mark.parametrize("depth", [1, 5, 64, 301])
def test_score_panel_float32_is_within_its_bound(isa, depth):
    if isa not in cpu.supported_isas():
        pytest.skip(f"this CPU has no {isa}")
    rng = np.random.default_rng(0)
    items, queries = rng.standard_normal((2, 32, depth)).astype(np.float32)
    packed, scores = np.full(32 * depth, np.nan, np.float32), np.full(1024, np.nan, np.float32)
    packing.pack_query_floats(queries.T.copy(), packed)
    one_panel(
        tiles.ISA_TUPLES[isa], items.reshape(-1), depth, packed, depth, np.zeros(32, np.int32),
        tiles.configuration(), scores,
    )  # fmt: skip
    exact = items.astype(float) @ queries.astype(float).T
    norms = np.linalg.norm(items.astype(float), axis=1)[:, None]
    bound = (depth + 8) * 2.0**-24 * norms * np.linalg.norm(queries.astype(float), axis=1)
    assert (np.abs(scores.reshape(32, 32) - exact) <= bound).all()


@pytest.mark.parametrize("n_items", [1, 19, 32])
@pytest.mark.parametrize("kind", [np.int32, np.float32])
@pytest.mark.parametrize("threshold", [-1e12, -50.0, 90.5, 99.0, 99.5, 1e12, 3e38])
def test_passing_equals_the_threshold_rule(kind, threshold, n_items):
    scores = np.random.default_rng(0).integers(-100, 100, 1024).astype(kind)
    lanes = np.zeros((4, 32), np.float32)
    lanes[0] = threshold
    lanes[0, 5] = 3e38
    lanes[1], lanes[2], lanes[3] = 0.25, 0.5, 2.0
    statistics = np.array([2.0, 4.0, 6.0, 0.5], np.float32)
    hits, largest = np.full(1024, -7, np.int32), np.full(32, np.nan, np.float32)
    found = which_pass(scores, lanes.reshape(-1), statistics, n_items, hits, largest)
    table = scores.reshape(32, 32)
    np.testing.assert_array_equal(largest, table.max(axis=0))
    least = (lanes[0].astype(float) - 0.25 * 4 - 0.5 * 6 - 2 * 0.5) * 2
    must = table >= least
    may = table >= np.clip(least, -1e9, 1e9) - 2 if kind is np.int32 else must
    assert (np.diff(hits[:found]) > 0).all()
    passed = np.zeros(1024, bool)
    passed[hits[:found]] = True
    passed = passed.reshape(32, 32)
    assert not passed[n_items:].any()
    assert (passed >= must)[:n_items].all()
    assert (passed <= may).all()
