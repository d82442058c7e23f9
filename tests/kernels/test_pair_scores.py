import numpy as np
import pytest

from fastcos.kernels import packing, pair_scores, records
from fastcos.kernels.jit import kernel
from fastcos.kernels.simd import pair_products, row_products
from tests.kernels.inputs import frozen, frozen_rows

# Each entry holds the array type of the queries, the array type of the items, and the number type
# that the bits of the items represent.
PAIRS = [
    ("f4", "f4", "f4"), ("f8", "f8", "f8"), ("f8", "f4", "f4"), ("f8", "u2", "f2"),
    ("f8", "i2", "bfloat16"), ("f8", "i1", "i1"),
]  # fmt: skip


def some_rows(n, depth, kind, numbers):
    """Return rows of the array type `kind`, and the same rows as float64 numbers.

    The bits of the rows represent numbers of the type `numbers`.
    """
    rows = 5 * np.random.default_rng(n + depth).standard_normal((n, depth))
    if numbers == "bfloat16":  # a bfloat16 is the upper half of a float32
        bits = rows.astype("f4").view("u4") & 0xFFFF0000
        return (bits >> 16).astype("u2").view("i2"), bits.view("f4").astype("f8")
    rows = rows.astype(numbers)
    return rows.view(kind), rows.astype("f8")


def lane_sum(terms):
    """Return the sum, added in the order that the module pair_scores documents."""
    whole = len(terms) // 16 * 16
    lanes = np.zeros(16)
    for first in range(0, whole, 16):
        lanes += terms[first : first + 16]
    while len(lanes) > 1:
        lanes = lanes[: len(lanes) // 2] + lanes[len(lanes) // 2 :]
    total = lanes[0]
    for term in terms[whole:]:
        total += term
    return total


@kernel
def all_operations(x, y, same, out):
    out[0] = row_products.row_product(x, 1, y, 2)
    out[1] = row_products.row_distance(x, 1, y, 2)
    out[2], out[3] = row_products.two_row_products(x, (1, 0), y, (3, 2, 0, 1))
    out[4], out[5] = row_products.two_row_distances(x, (1, 0), y, (3, 2, 0, 1))
    out[6] = row_products.row_square(y, 3)
    out[7], out[8] = row_products.square_and_product(same, 1, 0, same, 2)


# This test is slow, because it compiles the operations separately. The default tests of score_pairs
# and score_pairs_by_item cover them.
@pytest.mark.slow
@pytest.mark.parametrize(("query_type", "item_type", "numbers"), PAIRS)
def test_operations_on_rows_have_the_bits_of_lanes(query_type, item_type, numbers):
    for depth in (1, 2, 15, 16, 17, 31, 32, 33, 130):
        X, x = some_rows(2, depth, query_type, query_type)
        Y, y = some_rows(4, depth, item_type, numbers)
        Z, z = some_rows(3, depth, query_type, query_type)
        out = np.full(9, np.nan)
        all_operations(*map(frozen_rows, (X, Y, Z)), out)
        expected = [
            x[1] * y[2], (x[1] - y[2]) ** 2, x[1] * y[3], x[0] * y[2], (x[1] - y[3]) ** 2,
            (x[0] - y[2]) ** 2, y[3] * y[3], z[1] * z[1], z[1] * z[2],
        ]  # fmt: skip
        np.testing.assert_array_equal(out, [lane_sum(terms) for terms in expected])


@kernel
def load(rows, shift, out):
    packing.load_row(rows, 1, 0.7, -0.3, shift, out)


@pytest.mark.parametrize(("kind", "numbers"), sorted({pair[1:] for pair in PAIRS}))
def test_load_row_rounds_once(kind, numbers):
    for depth in (1, 15, 16, 40):
        X, x = some_rows(2, depth, kind, numbers)
        for shift in (np.zeros(0), np.linspace(-1, 2, depth)):
            out = np.full(depth + 9, np.nan, np.float32)
            load(frozen_rows(X), *frozen(shift), out)
            expected = 0.7 * x[1] - (-0.3 * shift if len(shift) else 0.0)
            np.testing.assert_array_equal(out, [*expected.astype(np.float32), *np.zeros(9)])


def test_rows_of_an_array_are_its_bytes():
    column = np.arange(5.0)[:, None]  # The stride along the last axis is 0.
    assert column.flags.c_contiguous
    for array in (column, np.arange(6, dtype="f4").reshape(2, 3), np.zeros((0, 3))):
        rows = records.rows_of(array)
        assert rows.data.tobytes() == array.tobytes()
        assert rows.data.shape == (len(array), array.shape[1] * array.itemsize)
        assert rows.n_columns == array.shape[1]
        assert not array.size or np.may_share_memory(rows.data, array)


@kernel
def product(x, y, depth, out):
    out[0] = pair_products.product(x, 1, y, 2, depth)


@pytest.mark.parametrize(
    "types",
    [(np.float32, np.float32), pytest.param((np.float64, np.float32), marks=pytest.mark.slow)],
)
def test_product_has_the_bits_of_plain_loops(types):
    rng = np.random.default_rng(0)
    for depth in (1, 2, 15, 16, 17, 31, 32, 33, 130):
        x, y = (rng.standard_normal(depth + 2).astype(kind) for kind in types)
        out = np.full(1, np.nan)
        product(x, y, depth, out)
        assert out[0] == pair_products._product_plain(x, 1, y, 2, depth)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["int8", "float16", "bfloat16"])
def test_product_of_narrow_rows_is_that_of_float32(kind):
    # The last column of the rows contains all finite numbers of the type. With 16 columns, the last
    # column is part of a whole vector. With 17 columns, the last column remains after the last
    # whole vector.
    if kind == "bfloat16":
        kind = pytest.importorskip("ml_dtypes").bfloat16
    kind = np.dtype(kind)
    values = np.arange(2 ** (8 * kind.itemsize)).astype(f"u{kind.itemsize}").view(kind)
    values = values[np.isfinite(values.astype(np.float32))]
    bits = {"float16": np.uint16, "bfloat16": np.int16}.get(kind.name, kind)
    for depth in (16, 17):
        X = np.zeros((len(values), depth), kind)
        X[:, -1] = values
        Q = np.eye(depth)[-1:]
        scores, columns = np.full(len(X), np.nan), np.arange(len(X))
        pair_scores.score_pairs(
            pair_scores.DOT, frozen_rows(Q), 0, 1.0, frozen_rows(X.view(bits)),
            *frozen(np.ones(len(X)), np.zeros(0)), columns, len(X), scores,
        )  # fmt: skip
        np.testing.assert_array_equal(scores, values.astype(np.float64))


def test_row_norms_equal_numpy():
    X = np.random.default_rng(0).standard_normal((20, 37)).astype(np.float32)
    norms = np.full(20, np.nan)
    pair_scores.row_norms(3, 20, frozen_rows(X), norms)
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
            metric_type,
            frozen_rows(X),
            0,
            5.0,
            frozen_rows(X),
            *frozen(norms, offsets),
            columns,
            4,
            scores,
        )
        np.testing.assert_array_equal(scores[:4], result)
        assert np.isnan(scores[4])


@pytest.mark.parametrize("types", [(np.float32, np.float32), (np.float64, np.float64)])
@pytest.mark.parametrize("metric_type", [pair_scores.DOT, pair_scores.EUCLIDEAN])
def test_pairs_have_the_bits_of_plain_loops(types, metric_type):
    # The kernel multiplies two pairs at a time. The test therefore includes odd numbers of pairs, a
    # single pair, and no pair.
    rng = np.random.default_rng(1)
    plain = {
        pair_scores.DOT: lambda x, y: lane_sum(x * y),
        pair_scores.EUCLIDEAN: lambda x, y: -lane_sum((x - y) ** 2),
    }[metric_type]
    sizes = ((1, 1), (17, 2), (33, 0), (40, 7), (128, 1), (130, 7), (133, 2), (144, 0), (150, 3))
    for depth, count in sizes:
        Q, X = (rng.standard_normal((9, depth)).astype(kind) for kind in types)
        norms, none = np.ones(9), np.zeros(0)
        numbers, columns = rng.integers(0, 9, count), rng.integers(0, 9, count)
        expected = [
            plain(Q[q].astype(float), X[x].astype(float))
            for q, x in zip(numbers, columns, strict=True)
        ]
        scores, order = np.full(count + 1, np.nan), rng.permutation(count).astype(np.int32)
        pair_scores.score_pairs_by_item(
            metric_type,
            numbers,
            columns,
            order,
            frozen_rows(Q),
            *frozen(norms),
            frozen_rows(X),
            *frozen(norms, none),
            scores,
        )
        np.testing.assert_array_equal(scores, [*expected, np.nan])
        for query in range(9):
            pair_scores.score_pairs(
                metric_type,
                frozen_rows(Q),
                query,
                1.0,
                frozen_rows(X),
                *frozen(norms, none),
                columns,
                count,
                scores,
            )
            one = numbers == query
            np.testing.assert_array_equal(scores[:-1][one], np.array(expected)[one])
            assert np.isnan(scores[-1])
