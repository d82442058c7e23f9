"""Products, truncated SVD and nearest items of sparse interactions.

pytest bench/test_sparse.py -k "gram or svd"
"""

import numpy as np
import pytest

import fastcos
from bench import check, data

SHAPE = (40_000, 20_000, 800_000)
columns = pytest.mark.parametrize("columns", [16, 64])


@columns
@pytest.mark.benchmark(group="sparse products")
def test_matmul(benchmark, columns):
    """Multiply X A."""
    X = data.interactions(*SHAPE)
    A = data.gaussian(X.shape[1], columns)
    at = check.sample_of(X.shape[0], 1_000)
    check.product(fastcos.matmul(X, A)[at], X[at] @ A.astype(np.float64))
    benchmark(fastcos.matmul, X, A)


@columns
@pytest.mark.benchmark(group="sparse products")
def test_rmatmul(benchmark, columns):
    """Multiply X'Y."""
    X = data.interactions(*SHAPE)
    Y = data.gaussian(X.shape[0], columns)
    check.product(fastcos.rmatmul(X, Y), X.T @ Y.astype(np.float64))
    benchmark(fastcos.rmatmul, X, Y)


@columns
@pytest.mark.benchmark(group="sparse products")
def test_gram_matmul(benchmark, columns):
    """Multiply X'(X A) in one pass over X."""
    X = data.interactions(*SHAPE)
    A = data.gaussian(X.shape[1], columns)
    check.product(fastcos.gram_matmul(X, A), X.T @ (X @ A.astype(np.float64)))
    benchmark(fastcos.gram_matmul, X, A)


@pytest.mark.parametrize("tolerance", [1e-2, 1e-4])
@pytest.mark.benchmark(group="truncated SVD to a residual")
def test_randomized_svd(benchmark, tolerance):
    X = data.interactions(10_000, 3_000, 400_000)
    check.svd(fastcos.randomized_svd(X, 16, tol=tolerance), X, tolerance)
    benchmark(fastcos.randomized_svd, X, 16, tol=tolerance)


@pytest.mark.parametrize("k", [10, 100])
@pytest.mark.benchmark(group="nearest items of every item")
def test_item_neighbors(benchmark, k):
    """Compare items by the users who interacted with them."""
    X = data.interactions(10_000, 3_000, 400_000)
    items, at = X.T.tocsr(), check.sample_of(X.shape[1], 200)
    expected = check.item_neighbors(X, at, k)
    np.testing.assert_allclose(fastcos.top_k(items, k=k).scores[at], expected, atol=1e-6)
    benchmark(fastcos.top_k, items, k=k)
