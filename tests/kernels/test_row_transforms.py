"""Row transforms, scores of lists of candidates, and distances to centroids."""

import numpy as np
import pytest
import scipy.stats

from fastcos import parallel
from fastcos.kernels import pair_scores, records, row_transforms
from tests.kernels.inputs import frozen, frozen_rows
from tests.oracles import measures as oracles

SHAPES = [(1, 1, 1), (3, 5, 2), (4, 7, 7), (9, 33, 12), (23, 16, 17)]


def cut(kernel, n, *arrays):
    """Call the kernel for row ranges of different sizes; the last array is its output."""
    *inputs, out = arrays
    for lo, hi in zip([0, 1, n // 2], [min(1, n), max(1, n // 2), n], strict=True):
        if lo < hi:
            kernel(lo, hi, *frozen(*inputs), out)


@pytest.mark.parametrize(("n", "d", "r"), SHAPES)
@pytest.mark.parametrize("dtype", [np.float32, pytest.param(np.float64, marks=pytest.mark.slow)])
def test_map_rows_equals_the_product_in_any_blocks(n, d, r, dtype):
    random = np.random.default_rng(0)
    rows = random.standard_normal((n, d)).astype(dtype)
    mean, root = random.standard_normal(d), random.standard_normal((d, r))
    largest = float(np.linalg.norm(root, 2))
    out, whole = (parallel.unfilled((n, r), np.float64) for _ in range(2))
    cut(row_transforms.map_rows, n, rows, mean, root, largest, out)
    row_transforms.map_rows(0, n, *frozen(rows, mean, root), largest, whole)
    assert out.tobytes() == whole.tobytes()
    np.testing.assert_allclose(out, (rows - mean) @ root, atol=1e-12)


def test_map_rows_maps_rounding_to_zero():
    rows = np.array([[0.1, 0.2], [0.3, 0.3], [1.0, 1.0 + 1e-9]])
    root = np.array([[1.0], [-1.0]])
    out = parallel.unfilled((3, 1), np.float64)
    row_transforms.map_rows(0, 3, *frozen(rows, np.zeros(2), root), np.sqrt(2), out)
    assert (out[:, 0] != 0).tolist() == [True, False, True]
    near = np.array([0.1, 0.2 * (1 + 1e-16)])
    row_transforms.map_rows(0, 3, *frozen(rows, near, root), np.sqrt(2), out)
    assert out[0] == 0


@pytest.mark.parametrize("dtype", [np.float64, pytest.param(np.float32, marks=pytest.mark.slow)])
def test_rank_rows_equals_scipy(dtype):
    rows = np.random.default_rng(0).integers(-3, 3, (31, 13)).astype(dtype)
    out = parallel.unfilled(rows.shape, np.float32)
    cut(row_transforms.rank_rows, 31, rows, out)
    np.testing.assert_array_equal(out, scipy.stats.rankdata(rows, axis=1) - 7)


def test_unit_rows_have_the_given_norms():
    rows = np.random.default_rng(0).standard_normal((9, 5))
    rows[4] = 0
    norms, powers = np.linalg.norm(rows, axis=1), np.arange(9.0)
    out = parallel.unfilled((9, 5), np.float64)
    cut(row_transforms.unit_rows, 9, rows, norms, powers, out)
    truth = np.arange(9.0)
    truth[4] = 0
    np.testing.assert_allclose(np.linalg.norm(out, axis=1), truth, atol=1e-12)


def test_list_scores_equal_numpy():
    random = np.random.default_rng(0)
    Q, B = random.standard_normal((7, 19)), random.standard_normal((11, 19))
    columns = random.integers(0, 11, (7, 4))
    q, b = np.linalg.norm(Q, axis=1), np.linalg.norm(B, axis=1)
    scores, offsets = parallel.unfilled((7, 4), np.float64), random.standard_normal(11)
    truths = {
        pair_scores.DOT: Q @ B.T + offsets,
        pair_scores.COSINE: (Q @ B.T) / np.outer(q, b),
        pair_scores.EUCLIDEAN: -np.square(Q[:, None] - B).sum(axis=2),
    }
    for metric_type, truth in truths.items():
        scoring = records.PairScoring(
            metric_type, frozen_rows(Q), *frozen(q), frozen_rows(B), *frozen(b, offsets)
        )
        cut(row_transforms.list_scores, 7, scoring, columns, scores)
        np.testing.assert_allclose(scores, np.take_along_axis(truth, columns, axis=1), rtol=1e-12)


def some_rows(kind):
    random = np.random.default_rng(3)
    rows = random.standard_normal((60, 9)) ** (5 if kind == "spiky" else 1)
    rows[7], rows[20], rows[33] = 0, rows[4], 3 * rows[4]
    rows[41] = -rows[4]
    return rows.astype(np.float32) if kind == "float32" else rows


@pytest.mark.parametrize("kind", ["even", "spiky", pytest.param("float32", marks=pytest.mark.slow)])
def test_recos_rows_equals_sorted_python_lists(kind):
    rows = some_rows(kind)
    columns = np.random.default_rng(0).integers(-1, 60, (60, 25))
    scores, ordered = np.full((60, 25), np.nan), np.sort(rows, axis=1)
    row_transforms.recos_rows(2, 60, *frozen(rows, ordered, rows, ordered, columns), scores)
    truth = np.take_along_axis(oracles.recos(rows, rows), np.maximum(columns, 0), axis=1)
    truth[columns < 0] = -np.inf
    np.testing.assert_allclose(scores[2:], truth[2:], rtol=1e-12, atol=1e-15)
    assert np.isnan(scores[:2]).all()


def test_centroid_distances_equal_numpy():
    random = np.random.default_rng(0)
    rows, items = random.standard_normal((6, 5)), random.standard_normal((9, 5))
    columns = random.integers(0, 9, (6, 3))
    out = parallel.unfilled(6, np.float64)
    cut(row_transforms.centroid_distances, 6, rows, items, columns, out)
    np.testing.assert_allclose(out, np.square(rows - items[columns].mean(axis=1)).sum(axis=1))


@pytest.mark.parametrize(("values", "d"), [(5, 6), (4, 3), (2, 12)])
def test_fingerprint_rows_distinguishes_rows(values, d):
    random = np.random.default_rng(0)
    rows = (random.integers(0, values, (1500, d)) - 1).astype(np.float32)
    rows[3], rows[9] = -0.0, 0.0
    out, wide = (parallel.unfilled(1500, np.uint64) for _ in range(2))
    cut(row_transforms.fingerprint_rows, 1500, rows, out)
    row_transforms.fingerprint_rows(0, 1500, *frozen(rows.astype(np.float64)), wide)
    assert out.tobytes() == wide.tobytes()
    assert len(np.unique(out)) == len(np.unique(rows + np.float32(0), axis=0))
    assert out[3] == out[9]
