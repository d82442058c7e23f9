import numpy as np
import pytest

from fastcos.kernels import cpu, packing, query_encoding, records, tiles
from fastcos.kernels.jit import kernel
from fastcos.kernels.simd.instruction_sets import INSTRUCTION_SETS
from fastcos.kernels.simd.quantise import measure_row, quantise_row
from tests.kernels.inputs import frozen, frozen_rows

if not tiles.AVAILABLE:
    pytest.skip("vector IR", allow_module_level=True)


@kernel
def rotate(x, width, signs):
    packing.rotate_row(x, width, signs)


@kernel
def quantise(x, scale, codes, out):
    return quantise_row(x, scale, np.float32(1.0) / scale, codes, out)


def some_rows(n, depth, seed=0):
    return np.random.default_rng(seed).standard_normal((n, depth)).astype(np.float32)


def signs(depth):
    bits = np.random.default_rng(9).integers(0, 2, (2, max(depth, 16)))
    return (2.0 * bits - 1).astype(np.float32)


def rotated(X):
    depth = X.shape[1]
    padded = np.zeros((len(X), -(-depth // 16) * 16), np.float32)
    padded[:, :depth] = X
    for row in padded:
        rotate(row, max(depth, 16), *frozen(signs(depth)))
    return padded


@pytest.mark.parametrize("depth", [1, 5, 16, 17, 31, 32, 50, 64, 100, 384, 1000])
def test_rotate_row_keeps_inner_products(depth):
    before = some_rows(20, depth)
    after = rotated(before)
    assert not after[:, max(depth, 16) :].any()
    exact, kept = (M.astype(float) @ M.astype(float).T for M in (before, after))
    # The error is at most a third of what SLACK allows.
    assert np.abs(kept - exact).max() <= float(packing.SLACK) / 3 * np.diag(exact).max()


@pytest.mark.parametrize("depth", [128, 129, 200])
def test_rotate_row_distributes_a_coordinate(depth):
    one_hot = np.zeros((2, depth), np.float32)
    one_hot[0, 7] = one_hot[1, -1] = 1
    # One transform of a row with a single 1 yields entries of ±1 / sqrt(128). A second transform
    # adds such entries with random signs.
    assert np.abs(rotated(one_hot)).max() <= (1 if depth == 128 else 4) * 128**-0.5 * 1.000001


def test_quantise_row_returns_sums():
    x = some_rows(1, 64)[0]
    largest = np.zeros(2, np.float32)
    codes, scale = np.full(64, 99, np.int8), np.float32(np.abs(x).max() / 127)
    total = quantise(x, scale, codes, largest)
    np.testing.assert_array_equal(codes, np.rint(x / scale))
    assert np.abs(codes).max() == 127
    assert total == codes.sum()
    left = x.astype(float) - codes * float(scale)
    np.testing.assert_allclose(largest[0], (left**2).sum(), rtol=1e-4)


@kernel
def quantise_query(x, added_words, codes, measured):
    measure_row(x, measured)
    step = query_encoding.query_step(x, measured[0], added_words)
    quantise_row(x, step, np.float32(1.0) / step, codes, measured)
    return step


def queries_near_the_limits():
    """Return rows of 48 columns whose codes come close to their limits.

    Some rows are random, and others have one large number, equal numbers, tiny numbers or zeros.
    """
    X = some_rows(300, 48)
    X[1::6] *= np.random.default_rng(2).integers(0, 2, (50, 48))
    X[2::6, 5] = 10.0
    # In each group of four numbers, three are rounded up by 0.4, and one is rounded down by 0.2.
    X[3::12] = np.tile([30.6, 30.6, 30.6, 30.6, 30.6, 34.2, 30.6, 34.2], 6)
    # In each group of eight numbers, seven are rounded up by 0.4, and one is rounded down by 0.2.
    X[9::12] = np.tile([15.6] * 13 + [14.2, 15.6, 14.2], 3)
    X[4::6] = np.where(X[4::6] > 0, 1.0, -1.0)
    X[5] = 0.0
    X[11] *= np.float32(1e-32)
    return X


@pytest.mark.parametrize("added_words", [0, 2, 4])
def test_query_step_makes_codes_fit(added_words):
    most_in_group, codes, measured = 0, np.empty(48, np.int8), np.empty(2, np.float32)
    for x in queries_near_the_limits():
        step = quantise_query(x, added_words, codes, measured)
        wide = codes.astype(int)
        np.testing.assert_array_equal(wide, np.rint(x * (np.float32(1) / step)))
        assert np.abs(wide).max() <= 127
        # AVX2 multiplies each code of a group by a number of at most 255, and adds the products of
        # a group as int16 numbers. The codes of one sign may therefore sum to at most 128;
        # otherwise, the sum of the products could overflow.
        words = max(1, added_words)
        groups = wide.reshape(-1, words, 2, 2).swapaxes(1, 2).reshape(-1, 2 * words)
        sums = np.maximum(groups, 0).sum(1), np.maximum(-groups, 0).sum(1)
        most_in_group = max(most_in_group, *map(np.max, sums))
        if np.abs(x).max() > 1e-30:
            # The quantisation step cannot be smaller, because a limit is reached: the magnitude of
            # a code is 127 or, with AVX2, one of the sums is almost 128. Rounding changes a sum by
            # at most added_words.
            limit = 128 - 2 * added_words
            assert np.abs(wide).max() == 127 or (added_words > 0 and np.max(sums) >= limit)
    assert 127 <= most_in_group <= 128 if added_words > 0 else most_in_group > 128


# Tests of all instruction sets except for the best one of this CPU are slow, because they compile
# code that no other test needs.
ISAS = [
    pytest.param(isa, marks=[pytest.mark.slow] * (isa != cpu.supported_isas()[0]))
    for isa in ("amx", "vnni", "avx2", "avx512")
]
WORDS = {"amx": 16, "vnni": 10, "avx2": 10, "avx512": 40}


def packed(isa, X, factor, shift, offsets):
    """Pack the rows X for an instruction set; return the packed rows and all other outputs.

    The packed rows contain codes or floats, in the order of their positions in the panels.
    """
    n, depth = X.shape
    words, panels = WORDS[isa], -(-n // 32)
    order = np.arange(n, dtype=np.int32)[::-1].copy()
    coefficients = np.linspace(-1, 2, n)
    kind = np.float32 if isa == "avx512" else np.int32
    out = np.full(32 * panels * words, 77, kind)
    small, statistics = np.full(n, np.nan, np.float32), np.full((panels, 5), np.nan, np.float32)
    packing.prepare_item_panels(
        0, -(-n // packing.CHUNK),
        records.PanelLayout(INSTRUCTION_SETS[isa], words, *frozen(signs(depth))),
        records.ScaledRows(frozen_rows(X), *frozen(np.full(n, factor), coefficients, shift)),
        *frozen(offsets),
        records.ItemPanels(order, out, small, statistics),
    )  # fmt: skip
    scaled = factor * X.astype(float)
    if len(shift):
        scaled -= coefficients[:, None] * shift
    if isa == "amx":
        codes = out.view(np.int8).reshape(panels * words // 16, 32, 64)
        rows = codes.reshape(panels, -1, 32, 64).swapaxes(1, 2).reshape(32 * panels, -1)
    elif isa in ("vnni", "avx2"):
        codes = out.view(np.uint8).reshape(panels, 4, words, 8, 4).swapaxes(2, 3)
        rows = codes.reshape(32 * panels, -1).astype(int) - 128
    else:
        rows = out.reshape(32 * panels, words)
    return rows, order, small, statistics, scaled


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("shift", [np.zeros(0), np.linspace(-1, 2, 40)], ids=["none", "some"])
@pytest.mark.parametrize("size", [1.0, 1e-25, 0.0])
def test_prepare_item_panels_bounds_rows(isa, shift, size):
    X = some_rows(300, 40) * np.float32(size)
    X[3] = 0
    offsets = np.random.default_rng(1).standard_normal(300)
    rows, order, small, statistics, scaled = packed(isa, X, 0.5, shift, offsets)
    # chunks keep their rows
    for first in range(0, 300, packing.CHUNK):
        expected = np.arange(300)[::-1][first : first + packing.CHUNK]
        assert sorted(order[first : first + packing.CHUNK]) == sorted(expected)
    np.testing.assert_array_equal(small, offsets[order].astype(np.float32))
    floats = np.zeros((len(rows), 40))
    floats[:300] = scaled.astype(np.float32)[order]
    target = floats if isa == "avx512" else rotated(floats.astype(np.float32))[:, :40]
    scales = 1.0 / statistics[np.arange(len(rows)) // 32, 0].astype(float)
    back = rows[:, :40] * scales[:, None]
    left = np.linalg.norm(target.astype(float) - back, axis=1)
    norms, exact = (np.linalg.norm(M.astype(float), axis=1) for M in (target, floats))
    for p, (_, norm, residual, most, least) in enumerate(statistics):
        here = slice(32 * p, min(32 * p + 32, 300))
        assert exact[here].max() * (1 - 1e-6) <= norms[here].max() <= norm
        assert left[here].max() <= residual if isa != "avx512" else residual == 0
        assert norm <= 1.001 * norms[here].max() + 1e-17
        assert residual <= 1.001 * left[here].max() + 1e-17
        assert least < small[here].min()
        assert small[here].max() < most
    if isa != "avx512":
        assert np.abs(rows[:300]).max() <= 127
        assert not rows[:300, 40:].any()
