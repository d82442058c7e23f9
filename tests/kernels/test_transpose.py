"""The transpose in parts against SciPy's."""

import numpy as np
import pytest
import scipy.sparse as sp

from fastcos.linalg import transpose


@pytest.mark.parametrize("shape", [(1, 1), (1, 40), (40, 1), (300, 17), (17, 300)])
@pytest.mark.parametrize("data", ["ones", "values"])
@pytest.mark.parametrize("parts", [1, 5])
def test_transposed_rows_are_sorted_and_equal_scipys(monkeypatch, shape, data, parts):
    monkeypatch.setattr(transpose, "_MOST_PARTS", parts)
    monkeypatch.setattr(transpose, "_NNZ_PER_COLUMN", 1)
    X = sp.random_array(shape, density=0.3, rng=np.random.default_rng(0), format="csr")
    X.sort_indices()
    given = X.data if data == "values" else None
    indptr, rows, values = transpose.transposed(
        X.indptr.astype(np.int64), X.indices, given, shape[1], np.uint16
    )
    truth = X.T.tocsr()
    truth.sort_indices()
    np.testing.assert_array_equal(indptr, truth.indptr)
    np.testing.assert_array_equal(rows, truth.indices)
    assert rows.dtype == np.uint16
    if given is None:
        assert values is None
    else:
        np.testing.assert_array_equal(values, truth.data)
