"""Reductions over all pairs of rows: dot products, histograms and ranks."""

import numpy as np
import pytest

from fastcos import parallel, set_config
from fastcos.kernels import dot_tile, pair_reductions, records, row_argsort
from fastcos.kernels.jit import kernel
from tests.kernels.inputs import frozen
from tests.oracles import metrics as oracles

SIZES = [(1, 1), (5, 3), (6, 32), (7, 33), (31, 2), (97, 10), (200, 1)]


def packed(rows):
    panels = parallel.unfilled((-(-len(rows) // 32), rows.shape[1], 32), np.float64)
    dot_tile.pack_rows(0, len(panels), *frozen(rows), panels)
    return panels


def units(seed, n, d):
    return oracles.unit(np.random.default_rng(seed).standard_normal((n, d)))


@kernel
def dots(rows, columns, out):
    """Compute out[i, j] = rows[i] . columns[j]; the dimensions are summed from first to last."""
    for i in range(rows.shape[0]):
        for j in range(columns.shape[0]):
            total = 0.0
            for k in range(rows.shape[1]):
                total += rows[i, k] * columns[j, k]
            out[i, j] = total


@pytest.mark.parametrize(("n", "d"), SIZES)
def test_products_rows_has_the_bits_of_plain_loops(n, d):
    random = np.random.default_rng(1)
    rows, columns = (random.standard_normal((m, d)) * 1e3 for m in (n, n + 9))
    out, truth = (parallel.unfilled((n, n + 9), np.float64) for _ in range(2))
    for lo in range(0, n, 10):
        dot_tile.products_rows(lo, min(lo + 10, n), *frozen(rows, packed(columns)), out)
    dots(rows, columns, truth)
    assert out.tobytes() == truth.tobytes()


@pytest.mark.parametrize(("n", "d"), SIZES)
@pytest.mark.parametrize(("parts", "n_strata"), [(1, 1), (2, 1), (5, 1), (2, 3)])
def test_pair_histograms_count_every_pair_once(n, d, parts, n_strata):
    rows, n_bins = units(2, n, d), 64
    codes = np.sort(np.random.default_rng(0).integers(0, 3, n))
    ends = np.searchsorted(codes, codes, side="right")
    counts = np.zeros((parts, n_strata, 2, n_bins), np.int64)
    near = np.zeros((parts, n_strata, 2, 1), np.int64)
    levels = np.random.default_rng(3).integers(0, 5, n) / 2.0
    boundaries = np.array([1.0, 2.5])[: n_strata - 1]
    strips = -(-n // pair_reductions.STRIP)
    result = records.ClusteredRows(*frozen(rows, packed(rows), ends, levels, boundaries))
    for begin, stop in ((0, strips // 2), (strips // 2, strips)):
        pair_reductions.pair_histograms(0, parts, begin, stop, result, 1e-12, counts, near)
    i, j = np.triu_indices(n, 1)
    places = ((rows @ rows.T)[i, j] + 1) * (n_bins / 2 - 1) + pair_reductions.OFFSET
    same = (codes[i] == codes[j]).astype(int)
    strata = np.searchsorted(boundaries, levels[i] + levels[j], side="left")
    truth = np.zeros((n_strata, 2, n_bins), int)
    np.add.at(truth, (strata, same, np.floor(places).astype(int)), 1)
    np.testing.assert_array_equal(counts.sum(axis=0), truth)
    assert near.sum() == 0


def test_count_score_counts_scores_near_edges():
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
    # A score far outside [-1, 1] still falls into a bin of the histogram.
    pair_reductions.count_score(9.0, 0.02, histogram, near)
    assert histogram[7] >= 1


def test_rank_excess_excludes_self_and_breaks_ties():
    line = np.array([0.5, 1.0, 0.5, 0.5, -1.0])
    best = parallel.unfilled(3, np.int64)
    row_argsort.top_k_of_row(line, 1, 3, best)
    assert best.tolist() == [0, 2, 3]
    row_argsort.top_k_of_row(line, 0, 3, best)
    assert best.tolist() == [1, 2, 3]
    # Seen from row 1, the other rows have ranks 0, 2, 3 and 4.
    assert pair_reductions.rank_excess(line, 1, np.array([4])) == 3
    assert pair_reductions.rank_excess(line, 1, np.array([0])) == 0
    assert pair_reductions.rank_excess(line, 0, np.array([3])) == 2
    assert pair_reductions.rank_excess(line, 2, np.array([3])) == 2


def test_pairs_at_most_counts_sums():
    random = np.random.default_rng(0)
    (levels,) = frozen(np.sort(random.integers(0, 9, 40).astype(float)))
    i, j = np.triu_indices(40, 1)
    for bound in (-1.0, 0.0, 3.0, 8.0, 15.9, 16.0, 99.0):
        assert (
            pair_reductions.pairs_at_most(levels, bound) == (levels[i] + levels[j] <= bound).sum()
        )


@pytest.mark.slow
def test_products_rows_is_the_same_on_both_backends():
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
