"""The transpose of a CSR matrix equals SciPy's, on any number of threads."""

import numpy as np
import pytest
import scipy.sparse as sp

from fastcos import gram_matmul, parallel, rmatmul
from fastcos.linalg import operators
from fastcos.linalg.transpose import transposed


@pytest.fixture(scope="module")
def X():
    """Enough non-zeros for a part per thread, mostly in a few rows and columns, and empty ones."""
    rng = np.random.default_rng(0)
    rows, columns = rng.integers(0, 3_000, (2, 900_000)) * rng.random((2, 900_000))
    ones = np.ones(len(rows), np.float32)
    X = sp.coo_array((ones, (rows.astype(int), columns.astype(int))), shape=(4_000, 3_500)).tocsr()
    assert X.nnz > 600_000
    assert X.data.max() > 1
    return X


@pytest.mark.parametrize("n_threads", [1, 2, 3, None])
@pytest.mark.parametrize("has_data", [True, False])
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


def test_several_threads_have_a_part_each(X, monkeypatch):
    parts, run = [], parallel.run

    def recorded(kernel, blocks, *arguments, **options):
        parts.append(len(blocks) - 1)
        run(kernel, blocks, *arguments, **options)

    monkeypatch.setattr(parallel, "run", recorded)
    transposed(X.indptr.astype(np.int64), X.indices, None, X.shape[1], np.int32, 2)
    assert parts == [2, 2]


@pytest.mark.parametrize("value", [1, 0.5])
def test_products_by_a_transpose(X, value):
    """Few non-zeros per column: X' is built, with ones and with values."""
    tall = sp.csr_array((np.full(X.nnz, value, np.float32), X.indices, X.indptr), shape=X.shape)
    wide = sp.hstack([tall, sp.csr_array((tall.shape[0], 30_000), dtype=np.float32)]).tocsr()
    assert len(operators.as_operator(wide)._part_rows) == 2
    integers = np.random.default_rng(1).integers(-3, 4, (wide.shape[0], 5)).astype(np.float32)
    truth = wide.T @ integers.astype(np.float64)
    for n_threads in (1, 2):
        product = rmatmul(wide, integers, n_threads=n_threads)
        np.testing.assert_array_equal(product, truth)
        columns = np.eye(wide.shape[1], 4, dtype=np.float32)
        gram = gram_matmul(wide, columns, n_threads=n_threads)
        np.testing.assert_allclose(gram, wide.T @ wide[:, :4].toarray(), rtol=1e-6)
