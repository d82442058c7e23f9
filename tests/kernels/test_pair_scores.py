import numpy as np
import pytest

from fastcos.kernels import pair_scores
from fastcos.kernels.jit import kernel
from fastcos.kernels.simd import pair_products
from tests.kernels.inputs import frozen


@kernel
def both(x, y, depth, out):
    out[0] = pair_products.product(x, 1, y, 2, depth)
    out[1] = pair_products.squared_distance(x, 1, y, 2, depth)


@pytest.mark.parametrize("types", [(np.float32, np.float32), (np.float64, np.float32)])
def test_product_has_the_bits_of_plain_loops(types):
    rng = np.random.default_rng(0)
    for depth in (1, 2, 15, 16, 17, 31, 32, 33, 130):
        x, y = (rng.standard_normal(depth + 2).astype(kind) for kind in types)
        out = np.full(2, np.nan)
        both(x, y, depth, out)
        assert out[0] == pair_products._product_plain(x, 1, y, 2, depth)
        assert out[1] == pair_products._squared_distance_plain(x, 1, y, 2, depth)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["int8", "uint8", "float16", "bfloat16"])
def test_product_of_narrow_rows_is_that_of_float32(kind):
    # all numbers of the type, in the lanes of a vector and behind the last whole one
    if kind == "bfloat16":
        kind = pytest.importorskip("ml_dtypes").bfloat16
    kind = np.dtype(kind)
    values = np.arange(2 ** (8 * kind.itemsize)).astype(f"u{kind.itemsize}").view(kind)
    values = values[np.isfinite(values.astype(np.float32))]
    bits = {"float16": np.uint16, "bfloat16": np.int16}.get(kind.name, kind)
    for depth in (16, 17):
        X = np.zeros((len(values), depth), kind)
        X[:, -1] = values
        Q = np.eye(depth, dtype=np.float32)[-1:]
        scores, columns = np.full(len(X), np.nan), np.arange(len(X))
        pair_scores.score_pairs(
            pair_scores.DOT, *frozen(Q), 0, 1.0,
            *frozen(X.view(bits), np.ones(len(X)), np.zeros(0)), columns, len(X), scores,
        )  # fmt: skip
        np.testing.assert_array_equal(scores, values.astype(np.float64))


def test_row_norms_equal_numpy():
    X = np.random.default_rng(0).standard_normal((20, 37)).astype(np.float32)
    norms = np.full(20, np.nan)
    pair_scores.row_norms(3, 20, *frozen(X), norms)
    np.testing.assert_allclose(norms[3:], np.linalg.norm(X[3:].astype(float), axis=1), rtol=1e-15)
    assert np.isnan(norms[:3]).all()


def test_score_pairs_equal_each_metric():
    X = np.array([[3.0, 4.0], [0.0, 0.0], [6.0, 8.0], [-3.0, -4.0]])
    norms, offsets = np.array([5.0, 0.0, 10.0, 5.0]), np.array([0.0, 1.0, 2.0, 3.0])
    columns = np.array([3, 2, 1, 0])
    expected = {
        pair_scores.DOT: [-22.0, 52.0, 1.0, 25.0],
        pair_scores.COSINE: [-1.0, 1.0, 0.0, 1.0],
        pair_scores.EUCLIDEAN: [-100.0, -25.0, -25.0, 0.0],
    }
    for metric_type, result in expected.items():
        scores = np.full(5, np.nan)
        pair_scores.score_pairs(
            metric_type, *frozen(X), 0, 5.0, *frozen(X, norms, offsets), columns, 4, scores
        )
        np.testing.assert_array_equal(scores[:4], result)
        assert np.isnan(scores[4])


@pytest.mark.parametrize("types", [(np.float32, np.float32), (np.float64, np.float64)])
@pytest.mark.parametrize("metric_type", [pair_scores.DOT, pair_scores.EUCLIDEAN])
def test_pairs_have_the_bits_of_plain_loops(types, metric_type):
    # from 128 columns on two pairs are multiplied at a time: odd counts, one pair and none
    rng = np.random.default_rng(1)
    plain = {
        pair_scores.DOT: lambda *row: pair_products._product_plain(*row),
        pair_scores.EUCLIDEAN: lambda *row: -pair_products._squared_distance_plain(*row),
    }[metric_type]
    sizes = ((1, 1), (17, 2), (33, 0), (40, 7), (128, 1), (130, 7), (133, 2), (144, 0), (150, 3))
    for depth, count in sizes:
        Q, X = (rng.standard_normal((9, depth)).astype(kind) for kind in types)
        norms, none = np.ones(9), np.zeros(0)
        numbers, columns = rng.integers(0, 9, count), rng.integers(0, 9, count)
        expected = [
            plain(Q.ravel(), q * depth, X.ravel(), x * depth, depth)
            for q, x in zip(numbers, columns, strict=True)
        ]
        scores, order = np.full(count + 1, np.nan), rng.permutation(count).astype(np.int32)
        pair_scores.score_pairs_by_item(
            metric_type, numbers, columns, order, *frozen(Q, norms, X, norms, none), scores
        )
        np.testing.assert_array_equal(scores, [*expected, np.nan])
        for query in range(9):
            pair_scores.score_pairs(
                metric_type, *frozen(Q), query, 1.0, *frozen(X, norms, none), columns, count, scores
            )
            one = numbers == query
            np.testing.assert_array_equal(scores[:-1][one], np.array(expected)[one])
            assert np.isnan(scores[-1])
