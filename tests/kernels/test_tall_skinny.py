"""Tall-skinny products equal plain loops bit for bit; integer products also equal NumPy's."""

import numba
import numpy as np
import pytest

from fastcos.kernels import tall_skinny

BODIES = ["_plain"] if numba.config.DISABLE_JIT else ["", "_plain"]
# The plain loops serve the generic instruction set, and would be compiled in addition.
plain_loops = pytest.mark.slow


def read_only(array):
    array.flags.writeable = False
    return array


def random_integers(rng, shape, dtype):
    return rng.integers(-3, 4, shape).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, pytest.param(np.float64, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "body", [BODIES[0], *(pytest.param(body, marks=plain_loops) for body in BODIES[1:])]
)
@pytest.mark.parametrize("width", [1, 4, 16, 37])
def test_cross_and_add_product_equal_numpy(body, dtype, width):
    rng = np.random.default_rng(0)
    p, capacity, m = 613, 32, 24
    B, Z = random_integers(rng, (p, capacity), dtype), random_integers(rng, (p, width), dtype)
    cuts = np.array([0, 1, 300, 610])
    C = np.full((3, m, width), np.nan, dtype)
    cross = getattr(tall_skinny, f"cross_parts{body}")
    cross(1, 3, read_only(cuts), read_only(B), read_only(Z.copy()), C)
    assert np.isnan(C[0]).all()
    for part in (1, 2):
        rows = slice(cuts[part], cuts[part + 1])
        np.testing.assert_array_equal(C[part], B[rows, :m].T @ Z[rows])
    weights, sums = random_integers(rng, (m - 3, width), dtype), Z.copy()
    getattr(tall_skinny, f"add_product_rows{body}")(5, 590, B, read_only(weights), sums)
    np.testing.assert_array_equal(sums[5:590], (Z + B[:, : m - 3] @ weights)[5:590])
    np.testing.assert_array_equal(sums[:5], Z[:5])
    np.testing.assert_array_equal(sums[590:], Z[590:])


@plain_loops
def test_products_have_the_bits_of_plain_loops():
    rng = np.random.default_rng(1)
    B = read_only(rng.standard_normal((700, 16)).astype(np.float32))
    Z = read_only(rng.standard_normal((700, 19)).astype(np.float32))
    weights = read_only(rng.standard_normal((16, 19)).astype(np.float32))
    results = []
    for body in BODIES:
        C, sums = np.empty((1, 16, 19), np.float32), Z.copy()
        getattr(tall_skinny, f"cross_parts{body}")(0, 1, read_only(np.array([0, 700])), B, Z, C)
        getattr(tall_skinny, f"add_product_rows{body}")(0, 700, B, weights, sums)
        results.append((C, sums))
    for one, other in zip(results[0], results[-1], strict=True):
        np.testing.assert_array_equal(one, other)
