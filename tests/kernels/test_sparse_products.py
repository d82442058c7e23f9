"""Sparse products for all widths and types, both with vector IR and with plain loops."""

import mpmath
import numba
import numpy as np
import pytest
import scipy.sparse as sp

from fastcos.kernels import cpu, records, sparse
from tests.kernels.inputs import frozen

N, P = 37, 23


def csr(rng, index_dtype, value_dtype, density=0.3):
    dense = (rng.random((N, P)) < density) * rng.integers(-4, 5, (N, P))
    dense[5] = 0
    dense[:, 7] = 0
    if value_dtype is None:
        dense = (dense != 0).astype(np.int64)
    indptr = np.concatenate([[0], np.cumsum((dense != 0).sum(axis=1))])
    rows, columns = np.nonzero(dense)
    data = None if value_dtype is None else dense[rows, columns].astype(value_dtype)
    arrays = indptr.astype(np.int64), columns.astype(index_dtype), data
    for array in arrays:
        if array is not None:
            array.flags.writeable = False
    return arrays, dense.astype(np.float64)


def factor(rng, rows, width, dtype):
    values = rng.integers(-8, 9, (rows, width)).astype(dtype)
    values.flags.writeable = False
    return values


KINDS = [
    (np.int32, np.float32, np.float32),
    pytest.param(np.int32, None, np.float32, marks=pytest.mark.slow),
    pytest.param(np.int32, np.float32, np.float64, marks=pytest.mark.slow),
    pytest.param(np.int32, np.float64, np.float64, marks=pytest.mark.slow),
    pytest.param(np.int64, np.float32, np.float32, marks=pytest.mark.slow),
]
each_kind = pytest.mark.parametrize(("index", "value", "dtype"), KINDS)
# Without the compiler, there is no vector IR, so only the plain loops run.
BODIES = ["_plain"] if numba.config.DISABLE_JIT else ["", "_plain"]
# The plain loops serve the generic instruction set. In these tests, they would be compiled again
# for every type.
each_body = pytest.mark.parametrize(
    "body",
    [
        pytest.param(body, marks=pytest.mark.slow) if body and len(BODIES) > 1 else body
        for body in BODIES
    ],
)
vector_ir = pytest.mark.skipif(numba.config.DISABLE_JIT, reason="vector IR")
# A kernel divides the columns into panels of several widths. For some of these numbers of columns,
# all panels have the same width; for other numbers, the panels have several widths.
WIDTHS = [1, 2, 3, 4, 5, 8, 16, 32, 64, 125, 128]


@each_kind
@each_body
def test_matmul_rows_equals_the_dense_product(index, value, dtype, body):
    rng = np.random.default_rng(1)
    arrays, dense = csr(rng, index, value)
    for width in WIDTHS:
        A = factor(rng, P, width, dtype)
        Y = np.full((N, width), np.nan, dtype)
        getattr(sparse, f"matmul_rows{body}")(3, 30, records.Csr(*arrays), A, Y, False)
        np.testing.assert_array_equal(Y[3:30], dense[3:30] @ A)
        assert np.isnan(Y[:3]).all()
        assert np.isnan(Y[30:]).all()


@vector_ir
@each_kind
def test_matmul_rows_streamed_equals_the_dense_product(index, value, dtype):
    rng = np.random.default_rng(7)
    arrays, dense = csr(rng, index, value)
    for width in (64, 192):
        A = factor(rng, P, width, dtype)
        memory = np.full(N * width + 64, -7, dtype)
        skip = (-memory.ctypes.data % 64) // memory.itemsize
        Y = memory[skip : skip + N * width].reshape(N, width)
        sparse.matmul_rows(3, 30, records.Csr(*arrays), A, Y, True)
        np.testing.assert_array_equal(Y[3:30], dense[3:30] @ A)
        Y[3:30] = -7
        assert (memory == -7).all()


@pytest.mark.parametrize("dtype", [np.float32, pytest.param(np.float64, marks=pytest.mark.slow)])
@vector_ir
@pytest.mark.parametrize("fault", ["none", "index", "negative", "infinity", "nan"])
def test_validated_matmul_rows_rejects_invalid_rows(dtype, fault):
    rng = np.random.default_rng(4)
    X = sp.random_array((700, P), density=0.9, rng=rng, format="csr", dtype=dtype)
    X.data[:] = rng.integers(1, 9, X.nnz)
    indptr, indices, data = X.indptr.astype(np.int64), X.indices.astype(np.int32), X.data
    entry = indptr[500] + 3
    if fault in ("index", "negative"):
        indices[entry] = {"index": P, "negative": -1}[fault]
    elif fault != "none":
        data[entry] = {"infinity": -np.inf, "nan": np.nan}[fault]
    A = factor(rng, P, 20, dtype).copy()
    A[indices[entry] % P] = 0  # 0 * inf and 0 * nan are not finite either
    A.flags.writeable = False
    Y, is_rejected = np.full((700, 20), -7, dtype), np.full(700, 249, np.uint8)
    sparse.validated_matmul_rows(
        10, 690, records.Csr(*frozen(indptr, indices, data)), *frozen(indices.view(np.uint32)), A,
        Y, False, is_rejected.view(np.bool_),
    )  # fmt: skip
    rejected = is_rejected == 1
    assert rejected[500] == (fault != "none")
    assert rejected.sum() < 400  # other rows are multiplied
    assert (is_rejected[10:690] <= 1).all()
    assert (is_rejected[:10] == 249).all()
    assert (is_rejected[690:] == 249).all()
    assert (Y[:10] == -7).all()
    assert (Y[690:] == -7).all()
    valid = np.flatnonzero(is_rejected == 0)
    if fault in ("index", "negative"):
        np.testing.assert_array_equal(Y[rejected], -7)
    np.testing.assert_array_equal(Y[valid], X[valid] @ A)


@each_kind
@each_body
def test_rmatmul_and_gram_parts_sum_to_the_product(index, value, dtype, body):
    rng = np.random.default_rng(2)
    arrays, dense = csr(rng, index, value)
    cuts = np.array([0, 0, 11, 36, N])
    cuts.flags.writeable = False
    for width in WIDTHS:
        groups = 1 + np.unique([0, width - width // 3, width])
        groups.flags.writeable = False
        n_groups, widest = len(groups) - 1, groups[1] - groups[0]
        for name, operand, truth in (
            ("rmatmul_parts", factor(rng, N, width + 2, dtype), dense.T),
            ("gram_parts", factor(rng, P, width + 2, dtype), dense.T @ dense),
        ):
            call = getattr(sparse, name + body)
            Z = np.full((4 * n_groups, P, widest), np.nan, dtype)
            for task in range(len(Z)):
                call(task, task + 1, cuts, records.Csr(*arrays), operand, groups, False, Z)
            truth = truth @ operand[:, 1 : 1 + width]
            np.testing.assert_array_equal(joined(Z, n_groups).sum(0)[:, :width], truth)
            call(
                n_groups, 3 * n_groups, cuts, records.Csr(*arrays), operand, groups, True, Z
            )  # fmt: skip
            Z[n_groups : 3 * n_groups] /= 2
            np.testing.assert_array_equal(joined(Z, n_groups).sum(0)[:, :width], truth)


@vector_ir
@each_kind
def test_large_factors_are_prefetched_and_the_products_are_the_same(index, value, dtype):
    """Products are correct even if the kernels prefetch a large factor.

    Nothing is prefetched for the last rows of X, because fewer than 16 non-zeros follow these rows.
    """
    rng = np.random.default_rng(10)
    X = sp.random_array((300, 5_000), density=0.004, rng=rng, format="csr")
    X.data[:] = 1 if value is None else rng.integers(1, 5, X.nnz)
    data = None if value is None else X.data.astype(value)
    arrays = records.Csr(*frozen(X.indptr.astype(np.int64), X.indices.astype(index), data))
    A, B = (factor(rng, rows, 64, dtype) for rows in (5_000, 300))
    Y, Z = np.full((300, 64), np.nan, dtype), np.full((2, 1, 5_000, 64), np.nan, dtype)
    sparse.matmul_rows(0, 300, arrays, A, Y, False)
    np.testing.assert_array_equal(Y, X @ A)
    cuts, columns = frozen(np.array([0, 300]), np.array([0, 64]))
    sparse.rmatmul_parts(0, 1, cuts, arrays, B, columns, False, Z[0])
    sparse.gram_parts(0, 1, cuts, arrays, A, columns, False, Z[1])
    np.testing.assert_array_equal(Z[0, 0], X.T @ B)
    np.testing.assert_array_equal(Z[1, 0], X.T @ (X @ A))


def joined(Z, n_groups):
    """For each part, join the sums of its column groups; return an array (parts, p, w).

    The tasks of one part are adjacent, and each of them sums one group of columns.
    """
    parts = Z.reshape(-1, n_groups, *Z.shape[1:])
    return np.concatenate(list(parts.swapaxes(0, 1)), axis=2)


def test_add_parts_adds_to_some_columns():
    Z = np.random.default_rng(8).integers(-9, 9, (3, P, 5)).astype(np.float32)
    out = np.full((P, 8), np.nan, np.float32)
    out[:, 2:7] = 5
    sparse.add_parts(0, 10, *frozen(Z), 2, out)
    sparse.add_parts(10, P, *frozen(Z), 2, out)
    np.testing.assert_array_equal(out[:, 2:7], Z.sum(0) + 5)
    assert np.isnan(out[:, [0, 1, -1]]).all()


def test_join_columns_equals_concatenate():
    Z = np.random.default_rng(9).integers(-9, 9, (3, P, 5)).astype(np.float32)
    out = np.full((P, 13), np.nan, np.float32)
    columns = np.array([0, 5, 10, 13])
    sparse.join_columns(2, 10, *frozen(Z, columns), out)
    assert np.isnan(out[[0, 1, 10]]).all()
    sparse.join_columns(0, P, *frozen(Z, columns), out)
    np.testing.assert_array_equal(out, np.hstack(Z)[:, :13])


def in_order(pairs, dtype, are_fused=True):
    """Return the sum of products in order, by mpmath.

    A fused step rounds to dtype once; a step that is not fused rounds twice.
    """
    total = mpmath.mpf(0)
    with mpmath.workprec(np.finfo(dtype).nmant + 1):
        for x, a in pairs:
            x, a = mpmath.mpf(float(x)), mpmath.mpf(float(a))
            total = mpmath.fdot([(x, a), (total, 1)]) if are_fused else x * a + total
    return float(total)


@vector_ir
@pytest.mark.skipif(not cpu.has_instruction("fma"), reason="x86 before 2013 rounds twice")
@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (np.float32, np.float32),
        pytest.param(np.float32, np.float64, marks=pytest.mark.slow),
        pytest.param(np.float64, np.float64, marks=pytest.mark.slow),
    ],
)
def test_products_are_added_in_order_with_one_rounding(value, dtype):
    rng = np.random.default_rng(6)
    (indptr, indices, _), _ = csr(rng, np.int32, np.float32, density=0.8)
    data = rng.standard_normal(len(indices)).astype(value)
    A, cuts, whole = rng.standard_normal((P, 17)).astype(dtype), np.array([0, N]), np.array([0, 17])
    for array in (data, A, cuts, whole):
        array.flags.writeable = False
    rows = [slice(indptr[i], indptr[i + 1]) for i in range(N)]
    terms = [[list(zip(data[t], a[indices[t]], strict=True)) for a in A.T] for t in rows]
    XA = [[in_order(pairs, dtype) for pairs in row] for row in terms]
    assert [[in_order(pairs, dtype, are_fused=False) for pairs in row] for row in terms] != XA
    Y = np.full((N, 17), np.nan, dtype)
    X = records.Csr(indptr, indices, data)
    sparse.matmul_rows(0, N, X, A, Y, False)
    np.testing.assert_array_equal(Y, XA)
    Y.flags.writeable = False
    Z = np.full((2, 1, P, 17), np.nan, dtype)
    sparse.rmatmul_parts(0, 1, cuts, X, Y, whole, False, Z[0])
    sparse.gram_parts(0, 1, cuts, X, A, whole, False, Z[1])
    row_of = np.repeat(np.arange(N), np.diff(indptr))
    at = [np.flatnonzero(indices == j) for j in range(P)]
    XY = [[in_order(zip(data[t], y[row_of[t]], strict=True), dtype) for y in Y.T] for t in at]
    np.testing.assert_array_equal(Z[:, 0], [XY, XY])


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_products_have_the_bits_of_plain_loops(dtype):
    rng = np.random.default_rng(3)
    (indptr, indices, _), _ = csr(rng, np.int32, np.float32, density=0.8)
    data = rng.standard_normal(len(indices)).astype(dtype)
    A, B = (rng.standard_normal((m, 125)).astype(dtype) for m in (P, N))
    cuts, whole = np.array([0, N]), np.array([0, 125])
    for array in (data, A, B, cuts, whole):
        array.flags.writeable = False
    results = []
    for body in BODIES:
        Y, Z = np.empty((N, 125), dtype), np.empty((2, 1, P, 125), dtype)
        X = records.Csr(indptr, indices, data)
        getattr(sparse, f"matmul_rows{body}")(0, N, X, A, Y, False)
        getattr(sparse, f"gram_parts{body}")(0, 1, cuts, X, A, whole, False, Z[0])
        getattr(sparse, f"rmatmul_parts{body}")(0, 1, cuts, X, B, whole, False, Z[1])
        results.append((Y, Z))
    np.testing.assert_array_equal(results[0][0], results[-1][0])
    np.testing.assert_array_equal(results[0][1], results[-1][1])
