"""The transpose of a CSR matrix equals SciPy's transpose for any number of threads."""

import numpy as np
import pytest
import scipy.sparse as sp

from fastcos import config, gram_matmul, parallel, set_config
from fastcos.linalg import operators
from fastcos.linalg.transpose import transposed


@pytest.fixture(scope="module")
def X():
    """Return a matrix with so many non-zeros that each thread gets a part.

    Most non-zeros are in a few rows and columns, and some rows and columns are empty.
    """
    rng = np.random.default_rng(0)
    rows, columns = rng.integers(0, 3_000, (2, 900_000)) * rng.random((2, 900_000))
    ones = np.ones(len(rows), np.float32)
    places = rows.astype(np.int32), columns.astype(np.int32)
    X = sp.coo_array((ones, places), shape=(4_000, 3_500)).tocsr()
    assert X.nnz > 600_000
    assert X.data.max() > 1
    return X


@pytest.mark.parametrize("n_threads", [1, 2, 3, None])
@pytest.mark.parametrize("has_data", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_transposed_equals_scipy(X, n_threads, has_data):
    data = X.data if has_data else None
    truth = X.T.tocsr()
    indptr, rows, values = transposed(
        X.indptr.astype(np.int64), X.indices, data, X.shape[1], np.int32, n_threads
    )
    np.testing.assert_array_equal(indptr, truth.indptr)
    np.testing.assert_array_equal(rows, truth.indices)
    assert (values is None) == (not has_data)
    if has_data:
        np.testing.assert_array_equal(values, truth.data)


@pytest.mark.slow
def test_several_threads_have_a_part_each(X, monkeypatch):
    parts, run = [], parallel.run

    def recorded(kernel, blocks, *arguments, **options):
        parts.append(len(blocks) - 1)
        run(kernel, blocks, *arguments, **options)

    monkeypatch.setattr(parallel, "run", recorded)
    transposed(X.indptr.astype(np.int64), X.indices, None, X.shape[1], np.int32, 2)
    assert parts == [2, 2]


@pytest.mark.parametrize("value", [0.5, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("width", [5, pytest.param(40, marks=pytest.mark.slow)])
def test_products_by_columns_or_a_transpose(X, value, width):
    """Products by columns and products by the transpose are both correct.

    If there are few non-zeros per column, a product is computed in one of two ways. Either the
    columns of the product are divided among the threads, or the threads multiply the rows of the
    transpose X'.
    """
    tall = sp.csr_array((np.full(X.nnz, value, np.float32), X.indices, X.indptr), shape=X.shape)
    wide = sp.hstack([tall, sp.csr_array((tall.shape[0], 30_000), dtype=np.float32)]).tocsr()
    assert len(operators.as_operator(wide)._part_rows) == 2
    rng = np.random.default_rng(1)
    integers = rng.integers(-3, 4, (wide.shape[0], width)).astype(np.float32)
    truth = wide.T @ integers.astype(np.float64)
    columns = np.eye(wide.shape[1], width, dtype=np.float32)
    gram_truth = wide.T @ wide[:, :width].toarray()
    for n_threads in (1, 2, 4):
        operator = operators.as_operator(wide, n_threads=n_threads)
        np.testing.assert_array_equal(operator.rmatmul(integers), truth)
        np.testing.assert_allclose(operator.gram_matmul(columns), gram_truth, rtol=1e-6)
        has_transpose = "_transpose" in vars(operator)
        assert has_transpose == (width == 40 and n_threads == 4)


def test_columns_and_a_transpose_give_the_same_bits(X):
    rng = np.random.default_rng(2)
    wide = sp.hstack([X, sp.csr_array((X.shape[0], 30_000), dtype=np.float32)]).tocsr()
    Y, Q = (rng.standard_normal((m, 40)).astype(np.float32) for m in wide.shape)
    by_columns, by_transpose = (operators.as_operator(wide, n_threads=m) for m in (2, 4))
    np.testing.assert_array_equal(by_columns.rmatmul(Y), by_transpose.rmatmul(Y))
    np.testing.assert_array_equal(by_columns.gram_matmul(Q), by_transpose.gram_matmul(Q))


def test_products_in_little_memory_have_the_same_bits(X):
    wide = sp.hstack([X, sp.csr_array((X.shape[0], 30_000), dtype=np.float32)]).tocsr()
    Q = np.random.default_rng(3).standard_normal((wide.shape[1], 20)).astype(np.float32)
    before = config.working_memory()
    truth = gram_matmul(wide, Q, n_threads=2)
    assert len(operators.as_operator(wide, n_threads=2)._column_groups(Q)) == 3
    try:
        set_config(working_memory=1)
        assert len(operators.as_operator(wide, n_threads=2)._column_groups(Q)) == 2
        np.testing.assert_array_equal(gram_matmul(wide, Q, n_threads=2), truth)
    finally:
        set_config(working_memory=before)
