"""In a block of rows, a sparse product equals the dense product; other rows do not change."""

import itertools

import numba
import numpy as np
import pytest
import scipy.sparse as sp

from fastcos.kernels import records, sparse_blocks
from tests.kernels.inputs import frozen

N, P = 5000, 37
CUTS = np.array([0, 1, 2000, 4048, N])
# Only products with factors that exceed the cache call these kernels. Compiling them takes 2 s.
pytestmark = [
    pytest.mark.skipif(numba.config.DISABLE_JIT, reason="vector IR"), pytest.mark.slow,
]  # fmt: skip


def random_matrix(index_dtype, value_dtype):
    rng = np.random.default_rng(4)
    dense = (rng.random((N, P)) < 0.2) * rng.integers(1, 4, (N, P))
    dense[2100], dense[:, 5] = 0, 0
    if value_dtype is None:
        dense = (dense != 0).astype(np.int64)
    X = sp.csr_array(dense)
    data = None if value_dtype is None else X.data.astype(value_dtype)
    arrays = records.Csr(X.indptr.astype(np.int64), X.indices.astype(index_dtype), data)
    for array in (*arrays, CUTS):
        if array is not None:
            array.flags.writeable = False
    return dense, arrays


def transposed(arrays):
    blocks = len(CUTS) - 1
    starts = np.full((blocks, P + 1), -7, np.int32)
    rows = np.full(len(arrays[1]), 249, np.uint16)
    values = None if arrays[2] is None else np.full(len(rows), np.nan, arrays[2].dtype)
    for block in (1, 0, 3, 2):
        outputs = sparse_blocks.Transposes(CUTS, starts, rows, values)
        sparse_blocks.transpose_blocks(block, block + 1, arrays, outputs)
    return sparse_blocks.Transposes(CUTS, *frozen(starts, rows, values))


KINDS = [
    (np.int32, np.float32, np.float32),
    pytest.param(np.int32, None, np.float32, marks=pytest.mark.slow),
    pytest.param(np.int32, np.float64, np.float64, marks=pytest.mark.slow),
]
each_kind = pytest.mark.parametrize(("index", "value", "dtype"), KINDS)


@pytest.mark.parametrize("value", [np.float32, pytest.param(None, marks=pytest.mark.slow)])
def test_transpose_blocks_equals_scipy(value):
    dense, arrays = random_matrix(np.int32, value)
    blocks = transposed(arrays)
    for b, (lo, hi) in enumerate(itertools.pairwise(CUTS)):
        truth = sp.csr_array(dense[lo:hi].T)
        at = slice(arrays[0][lo], arrays[0][hi])
        np.testing.assert_array_equal(blocks.starts[b], truth.indptr)
        np.testing.assert_array_equal(blocks.rows[at], truth.indices)
        if value is not None:
            np.testing.assert_array_equal(blocks.values[at], truth.data)


@each_kind
@pytest.mark.parametrize("item_rows", [P, 10, 1])
def test_matmul_blocks_equals_the_dense_product(index, value, dtype, item_rows):
    dense, arrays = random_matrix(index, value)
    for padded, width in ((64, 64), (32, 30), (16, 1)):
        panel = np.random.default_rng(5).integers(-8, 9, (P, padded)).astype(dtype)
        panel.flags.writeable = False
        Y = np.full((N, width + 2), np.nan, dtype)
        sparse_blocks.matmul_blocks(3, N - 5, arrays, panel, item_rows, 1, width, Y)
        np.testing.assert_array_equal(Y[3:-5, 1:-1], dense[3:-5] @ panel[:, :width])
        assert np.isnan(Y[[0, 1, 2, -5, -1]]).all()
        assert np.isnan(Y[:, [0, -1]]).all()


@each_kind
@pytest.mark.parametrize("item_rows", [P, 10])
def test_gram_blocks_equals_the_dense_product(index, value, dtype, item_rows):
    dense, arrays = random_matrix(index, value)
    first_blocks = np.array([0, 1, 1, 4])
    first_blocks.flags.writeable = False
    for padded in sparse_blocks.WIDTHS:
        panel = np.random.default_rng(6).integers(-8, 9, (P, padded)).astype(dtype)
        panel.flags.writeable = False
        Z = np.full((3, P, padded), np.nan, dtype)
        arguments = first_blocks, transposed(arrays), arrays, panel, item_rows, Z
        sparse_blocks.gram_blocks(1, 3, *arguments)
        assert np.isnan(Z[0]).all()
        sparse_blocks.gram_blocks(0, 1, *arguments)
        for part, rows in enumerate((slice(0, 1), slice(0, 0), slice(1, N))):
            X = dense[rows].astype(np.float64)
            np.testing.assert_array_equal(Z[part], X.T @ (X @ panel))
