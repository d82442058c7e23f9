"""Kernels over all pairs: tiles, histograms, precision, ranks."""

import numpy as np
import pytest

from fastcos import parallel, set_config
from fastcos.kernels import candidate_lists, dot_tile, pair_reductions, row_argsort
from tests.oracles import metrics as oracles

SIZES = [(1, 1), (5, 3), (6, 32), (7, 33), (31, 2), (97, 10), (200, 1)]


def packed(rows):
    panels = parallel.unfilled((-(-len(rows) // 32), rows.shape[1], 32), np.float64)
    dot_tile.pack_rows(0, len(panels), rows, panels)
    return panels


def units(seed, n, d):
    return oracles.unit(np.random.default_rng(seed).standard_normal((n, d)))


@pytest.mark.parametrize(("n", "d"), SIZES)
def test_tiles_have_the_bits_of_the_plain_loop(n, d):
    rows = np.random.default_rng(0).standard_normal((n, d)) * 1e3
    panels = packed(rows)
    for panel in range(len(panels)):
        for first in range(0, n, 6):
            fast, plain = (parallel.unfilled((6, 32), np.float64) for _ in range(2))
            dot_tile.dot_tile(rows, first, panels, panel, fast)
            dot_tile.dot_tile_plain(rows, first, panels, panel, plain)
            assert fast.tobytes() == plain.tobytes()


@pytest.mark.parametrize(("n", "d"), SIZES)
def test_products_are_dot_products_in_order(n, d):
    random = np.random.default_rng(1)
    rows, columns = random.standard_normal((n, d)), random.standard_normal((n + 9, d))
    out = parallel.unfilled((n, n + 9), np.float64)
    for lo in range(0, n, 10):
        dot_tile.products_rows(lo, min(lo + 10, n), rows, packed(columns), out)
    for i, j in ((0, 0), (n - 1, n + 8), (n // 2, n)):
        total = 0.0
        for x, y in zip(rows[i].tolist(), columns[j].tolist(), strict=True):
            total += x * y
        assert out[i, j] == total
    np.testing.assert_allclose(out, rows @ columns.T, atol=1e-12)


@pytest.mark.parametrize(("n", "d"), SIZES)
@pytest.mark.parametrize("parts", [1, 2, 5])
def test_histograms_hold_every_pair_once_in_its_bin(n, d, parts):
    rows, n_bins = units(2, n, d), 64
    codes = np.sort(np.random.default_rng(0).integers(0, 3, n))
    ends = np.searchsorted(codes, codes, side="right")
    counts, near = np.zeros((parts, 2, n_bins), np.int64), np.zeros((parts, 2, 1), np.int64)
    strips, panels = -(-n // pair_reductions.STRIP), packed(rows)
    for begin, stop in ((0, strips // 2), (strips // 2, strips)):
        pair_reductions.pair_histograms(
            0, parts, begin, stop, rows, panels, ends, 1e-12, counts, near
        )
    i, j = np.triu_indices(n, 1)
    places = ((rows @ rows.T)[i, j] + 1) * (n_bins / 2 - 1) + pair_reductions.OFFSET
    same = (codes[i] == codes[j]).astype(int)
    truth = np.zeros((2, n_bins), int)
    np.add.at(truth, (same, np.floor(places).astype(int)), 1)
    np.testing.assert_array_equal(counts.sum(axis=0), truth)
    assert near.sum() == 0


def test_scores_within_the_margin_of_an_edge_are_counted_as_near():
    histogram, near = np.zeros(8, np.int64), np.zeros(1, np.int64)
    width = 1 / 3
    for score in (
        -1.0,
        1.0,
        0.0,
        (1 - pair_reductions.OFFSET) * width - 1,
        (1.01 - pair_reductions.OFFSET) * width - 1,
    ):
        pair_reductions.count_score(score, 0.02, histogram, near)
    assert histogram.sum() == 5
    assert near[0] == 2
    # far beyond [-1, 1] is still inside
    pair_reductions.count_score(9.0, 0.02, histogram, near)
    assert histogram[7] >= 1


def test_rank_excess_ignores_the_row_itself_and_breaks_ties_by_index():
    line = np.array([0.5, 1.0, 0.5, 0.5, -1.0])
    best = parallel.unfilled(3, np.int64)
    row_argsort.best_of_line(line, 1, 3, best)
    assert best.tolist() == [0, 2, 3]
    row_argsort.best_of_line(line, 0, 3, best)
    assert best.tolist() == [1, 2, 3]
    # from row 1: ranks 0, 2, 3, 4
    assert pair_reductions.rank_excess(line, 1, np.array([4])) == 3
    assert pair_reductions.rank_excess(line, 1, np.array([0])) == 0
    assert pair_reductions.rank_excess(line, 0, np.array([3])) == 2
    assert pair_reductions.rank_excess(line, 2, np.array([3])) == 2


def test_pairs_at_most_counts_sums():
    random = np.random.default_rng(0)
    levels = np.sort(random.integers(0, 9, 40).astype(float))
    i, j = np.triu_indices(40, 1)
    for bound in (-1.0, 0.0, 3.0, 8.0, 15.9, 16.0, 99.0):
        assert (
            pair_reductions.pairs_at_most(levels, bound) == (levels[i] + levels[j] <= bound).sum()
        )


def test_kendall_of_permutations_counts_inversions():
    places = np.array([[0, 1, 2], [2, 1, 0], [-1, -1, -1], [1, -1, 0]])
    doubled = parallel.unfilled(4, np.int64)
    candidate_lists.doubled_kendall_rows(0, 4, places, doubled)
    # last: a b c against c a x: a-c decided differently, b-c too, x-b, a-x not, c-x not: 3 + 0
    assert doubled.tolist() == [0, 6, 2 * 9 + 6, 2 * 3]


def test_both_drivers_give_the_same_bits():
    rows = units(5, 300, 12)
    panels = packed(rows)
    outs = []
    for backend in ("pool", "prange"):
        set_config(backend=backend)
        try:
            out = parallel.unfilled((300, 300), np.float64)
            cuts = parallel.row_blocks(300, 7)
            parallel.run(dot_tile.products_rows, cuts, rows, panels, out, n_threads=2)
            outs.append(out)
        finally:
            set_config(backend="pool")
    assert outs[0].tobytes() == outs[1].tobytes()
