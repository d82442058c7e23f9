"""The search in NumPy returns the same bits as the kernels, whatever the sizes of the blocks."""

import numpy as np
import pytest

from fastcos.search import numpy_search, scan
from fastcos.search.filters import ExcludedItems, no_exclusions
from fastcos.search.options import ExecutionOptions
from fastcos.search.task_grid import ONE_TASK
from fastcos.similarity.encoded_rows import encode_rows, row_norms
from fastcos.similarity.numpy_products import row_norms_in_numpy
from fastcos.validation import read_only

OPTIONS = ExecutionOptions(1, 2.0**30)
METRIC_TYPES = ["cosine", "dot", "euclidean"]


def assert_same_bits(metric_type, items, queries, k, *, numbers=None, exclusions=None, bias=None):
    """Compare the NumPy search with the kernel that scores every pair."""
    items, queries = (read_only(np.ascontiguousarray(rows)) for rows in (items, queries))
    right = encode_rows(items, bias if metric_type == "dot" else None, 1, metric_type)
    encoded_queries = encode_rows(queries, None, 1, metric_type)
    numbers = read_only(np.arange(len(items)) if numbers is None else numbers)
    exclusions = no_exclusions(len(queries)) if exclusions is None else exclusions
    arguments = metric_type, right, numbers, encoded_queries, exclusions, k
    expected = scan.score_all(*arguments, OPTIONS, ONE_TASK)
    for pairs_per_block in (1 << 22, 13 * len(queries)):
        result = numpy_search.search(*arguments, pairs_per_block=pairs_per_block)
        np.testing.assert_array_equal(result[0], expected[0])
        assert result[1].tobytes() == expected[1].tobytes()


@pytest.mark.parametrize("dtype", ["float32", pytest.param("float64", marks=pytest.mark.slow)])
@pytest.mark.parametrize("metric_type", METRIC_TYPES)
def test_search_has_the_bits_of_the_kernels(metric_type, dtype):
    rng = np.random.default_rng(0)
    for depth in (1, 15, 16, 33):
        X = rng.standard_normal((60, depth)).astype(dtype)
        X[5], X[7], X[11] = 0, X[9], 2 * X[9]
        bias = rng.standard_normal(60)
        own = no_exclusions(60, exclude_self=True)
        assert_same_bits(metric_type, X, X, 4, exclusions=own, bias=bias)
        assert_same_bits(metric_type, X, X[3:7], 60, bias=bias)
        # many ties
        small = rng.integers(-1, 2, (60, depth)).astype(dtype)
        assert_same_bits(metric_type, small, small, 7, exclusions=own)


@pytest.mark.parametrize("metric_type", METRIC_TYPES)
def test_search_obeys_filters(metric_type):
    rng = np.random.default_rng(1)
    X = rng.standard_normal((50, 20)).astype(np.float32)
    lists = [np.sort(rng.choice(50, rng.integers(0, 50), replace=False)) for _ in X]
    lists[3] = np.arange(50)  # nothing is left
    indptr = np.cumsum([0, *map(len, lists)]).astype(np.int64)
    own = np.where(rng.random(50) < 0.5, np.arange(50), -1)
    exclusions = ExcludedItems(*map(read_only, (own, indptr, np.concatenate(lists))))
    numbers = np.sort(rng.choice(50, 20, replace=False))
    assert_same_bits(metric_type, X, X, 5, exclusions=exclusions)
    assert_same_bits(metric_type, X, X, 20, exclusions=exclusions, numbers=numbers)
    # queries 10 .. 30 of those
    excluded = exclusions.of_range(10, 30)
    assert_same_bits(metric_type, X, X[10:30], 5, exclusions=excluded, numbers=numbers)


@pytest.mark.parametrize("metric_type", METRIC_TYPES)
def test_search_separates_scores_that_differ_by_rounding(metric_type):
    rng = np.random.default_rng(2)
    for offset in (0.0, 1e6):
        X = np.repeat(rng.standard_normal((4, 37)), 30, axis=0) + offset
        X *= 1 + rng.integers(-3, 4, X.shape) * 2.0**-52
        assert_same_bits(metric_type, X, X, 5, bias=1e3 + np.zeros(len(X)))


@pytest.mark.parametrize("metric_type", METRIC_TYPES)
@pytest.mark.parametrize(
    "exponents", [(-170, -150), (100, 150), (-150, 150), (-300, -290)], ids=str
)
def test_search_of_rows_that_underflow_or_overflow(metric_type, exponents):
    rng = np.random.default_rng(3)
    X = rng.standard_normal((60, 9)) * 10.0 ** rng.integers(*exponents, (60, 1))
    if metric_type == "dot":
        X[:3] = rng.standard_normal((3, 9)) * 10.0**150
    bias = np.array([0.0, 10.0 ** exponents[0]] * 30)
    assert_same_bits(metric_type, X, X, 6, bias=bias)


@pytest.mark.parametrize("dtype", ["float32", pytest.param("float64", marks=pytest.mark.slow)])
def test_row_norms_has_the_bits_of_the_kernel(dtype):
    rng = np.random.default_rng(4)
    for shape in ((300, 7), (5, 1), (3, 16), (40, 5000), (2, 200_001)):
        X = read_only((rng.standard_normal(shape) * 1e3).astype(dtype))
        assert row_norms_in_numpy(X).tobytes() == row_norms(X).tobytes()


@pytest.mark.parametrize(
    "metric_type",
    [METRIC_TYPES[0], *(pytest.param(n, marks=pytest.mark.slow) for n in METRIC_TYPES[1:])],
)
def test_search_of_rows_that_float32_cannot_tell_apart(metric_type):
    rng = np.random.default_rng(5)
    # These rows are so far from the origin that float32 scores cannot tell them apart, although
    # float64 scores can.
    X = (1000 + rng.standard_normal((4000, 8))).astype(np.float32)
    assert_same_bits(metric_type, X, X[:5], 3)
    # These norms are outside the safe range of float32, but inside that of float64.
    X = (rng.standard_normal((300, 8)) * 10.0 ** rng.integers(-20, 18, (300, 1))).astype(np.float32)
    assert_same_bits(metric_type, X, X[:20], 3)


@pytest.mark.parametrize("dtype", ["float16", pytest.param("int8", marks=pytest.mark.slow)])
@pytest.mark.parametrize("metric_type", METRIC_TYPES)
def test_search_of_low_precision_rows(metric_type, dtype):
    rng = np.random.default_rng(6)
    X = (5 * rng.standard_normal((80, 21))).astype(dtype)
    queries = read_only(rng.standard_normal((30, 21)))
    right, encoded_queries = (
        encode_rows(rows, None, 1, metric_type) for rows in (read_only(X), queries)
    )
    arguments = no_exclusions(30), 4
    numbers = read_only(np.arange(80))
    expected = scan.score_all(
        metric_type, right, numbers, encoded_queries, *arguments, OPTIONS, ONE_TASK
    )
    result = numpy_search.search(
        metric_type,
        right._replace(rows=X),
        numbers,
        encoded_queries,
        *arguments,
        pairs_per_block=300,
    )
    np.testing.assert_array_equal(result[0], expected[0])
    assert result[1].tobytes() == expected[1].tobytes()
