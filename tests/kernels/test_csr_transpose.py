"""The transposition of CSR arrays in parts, compared with SciPy."""

import numpy as np
import pytest
import scipy.sparse as sp

from fastcos.kernels import csr, records
from tests.kernels.inputs import frozen


@pytest.mark.parametrize("shape", [(1, 1), (1, 40), (40, 1), (300, 17), (17, 300)])
@pytest.mark.parametrize("has_data", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize("n_parts", [1, 5])
def test_transpose_parts_equals_scipy(shape, has_data, n_parts):
    X = sp.random_array(shape, density=0.3, rng=np.random.default_rng(0), format="csr")
    X.sort_indices()
    cuts = np.linspace(0, shape[0], n_parts + 1).astype(np.int64)
    arrays = frozen(cuts, X.indptr.astype(np.int64), X.indices)
    counts = np.full((n_parts, shape[1]), -7)
    csr.count_columns(0, n_parts, *arrays, counts)
    truth = X.T.tocsr()
    truth.sort_indices()
    assert counts.sum(axis=0).tolist() == np.diff(truth.indptr).tolist()
    positions = np.cumsum(counts, axis=0) - counts + truth.indptr[:-1]
    rows, values = np.full(X.nnz, 249, np.uint16), np.full(X.nnz, np.nan)
    data, out = (*frozen(X.data), values) if has_data else (None, None)
    for part in reversed(range(n_parts)):
        source = records.Csr(*arrays[1:], data)
        csr.transpose_parts(part, part + 1, arrays[0], source, positions, rows, out)
    np.testing.assert_array_equal(rows, truth.indices)
    if has_data:
        np.testing.assert_array_equal(values, truth.data)
