"""X A and X'(X Q) against SciPy and MKL: `pytest bench/rivals/test_products.py`.

MKL is loaded by sparse_dot_mkl; LD_LIBRARY_PATH must hold libmkl_rt.so.
"""

import numpy as np
import pytest

import fastcos
from fastcos.operators import as_operator


def scipy_product(X):
    return lambda A: X @ A


def mkl_product(X):
    mkl = pytest.importorskip("sparse_dot_mkl", exc_type=ImportError)
    return lambda A: mkl.dot_product_mkl(X, A)


def our_product(X):
    return lambda A: fastcos.matmul(X, A)


def our_prepared_product(X):
    return as_operator(X).matmul


def scipy_gram(X):
    transpose = X.T
    return lambda Q: transpose @ (X @ Q)


def mkl_gram(X):
    mkl = pytest.importorskip("sparse_dot_mkl", exc_type=ImportError)
    transpose = X.T
    return lambda Q: mkl.dot_product_mkl(transpose, mkl.dot_product_mkl(X, Q))


def our_gram(X):
    return lambda Q: fastcos.gram_matmul(X, Q)


def our_prepared_gram(X):
    return as_operator(X).gram_matmul


def run(benchmark, product, X, width, truth):
    A = np.random.default_rng(0).standard_normal((X.shape[1], width)).astype(np.float32)
    call = product(X)
    expected = truth(A)
    np.testing.assert_allclose(call(A), expected, atol=1e-4 * np.abs(expected).max())
    benchmark.pedantic(call, args=(A,), rounds=7, warmup_rounds=2)


@pytest.mark.parametrize("width", [64, 128])
@pytest.mark.parametrize("product", [scipy_product, mkl_product, our_product, our_prepared_product])
def test_product(benchmark, interactions, product, width):
    benchmark.group = f"X A, {interactions.shape[0]} rows, {width} columns"
    run(benchmark, product, interactions, width, lambda A: interactions @ A)


@pytest.mark.parametrize("width", [32, 64, 128])
@pytest.mark.parametrize("product", [scipy_gram, mkl_gram, our_gram, our_prepared_gram])
def test_gram_product(benchmark, interactions, product, width):
    benchmark.group = f"X'(X Q), {interactions.shape[0]} rows, {width} columns"
    run(benchmark, product, interactions, width, lambda A: interactions.T @ (interactions @ A))
