"""If rows are not packed, a search returns the same results as float64 scores of all pairs."""

import numpy as np
import pytest
import scipy.sparse as sp

import fastcos
from fastcos import config
from fastcos.kernels import tiles
from fastcos.search import cost_model, scan
from fastcos.search.filters import no_exclusions
from fastcos.search.options import ExecutionOptions
from fastcos.search.segments import Segment
from fastcos.similarity import encoded_rows
from tests.oracles import dense as dense_oracle
from tests.oracles.compare import assert_same_bits
from tests.oracles.dense_families import FAMILIES, gaussian

if not tiles.AVAILABLE:
    pytest.skip("vector IR", allow_module_level=True)

# These tests use kernels that compile for half a minute.
pytestmark = pytest.mark.slow
KINDS = ("cosine", "dot", "euclidean")


def segment_of(items, kind, bias=None):
    encoded = encoded_rows.encode_rows(items, bias, None, kind)
    return Segment(kind, encoded, np.arange(len(items)))


def searched(items, queries, kind, k=10, n_threads=2, memory=2.0**28, bias=None):
    """Return the method of the plan, the row numbers and the scores."""
    segment, encoded = (
        segment_of(items, kind, bias),
        encoded_rows.encode_rows(queries, None, None, kind),
    )
    options = ExecutionOptions(n_threads, memory)
    request = scan.SegmentRequest(k, no_exclusions(len(queries)))
    with cost_model.costs_replaced(min_work_unpacked=0):
        method = scan.plan_segment(segment, len(queries), request, options).method
        return method, *scan.search_segment(segment, encoded, request, options)


def found_among(*arguments, **options):
    method, columns, scores = searched(*arguments, **options)
    assert method == "unpacked" or config.isa() in ("avx2", "avxvnni")
    return columns, scores


@pytest.mark.parametrize(("n", "d"), [(160, 1), (801, 63), (1000, 200)])
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.__name__)
def test_unpacked_rows_are_searched_exactly(family, n, d):
    X = family(n, d).astype(np.float32)
    queries = np.concatenate([X[:20], gaussian(20, d, 9).astype(np.float32), np.zeros_like(X[:1])])
    for kind in KINDS:
        _, columns, scores = searched(X, queries, kind)
        expected, keys = dense_oracle.top_k(queries, X, 10, kind)
        np.testing.assert_array_equal(columns, expected)
        np.testing.assert_array_equal(scores, keys)


@pytest.mark.parametrize("n", [1, 31])
def test_rows_without_a_full_panel_are_packed(n):
    X = gaussian(n, 8).astype(np.float32)
    assert searched(X, X[:1].repeat(9, axis=0), "cosine", k=1)[0] != "unpacked"


def test_unpacked_rows_take_an_item_bias():
    X, bias = gaussian(500, 24).astype(np.float32), np.random.default_rng(1).normal(0, 9, 500)
    columns, scores = found_among(X, X[:40], "dot", bias=bias)
    keys = dense_oracle.keys(X[:40], X, "dot") + bias
    order = np.argsort(-keys, axis=1, kind="stable")[:, :10]
    np.testing.assert_array_equal(columns, order)
    np.testing.assert_array_equal(scores, np.take_along_axis(keys, order, 1))


def test_threads_and_little_memory_change_no_bit():
    X = gaussian(20_000, 16).astype(np.float32)
    expected = found_among(X, X[:70], "cosine", n_threads=1)
    # CPUs without AVX-512 pack these rows, and a search of packed rows needs more memory.
    is_packed = searched(X, X[:70], "cosine")[0] == "packed"
    little_memory = 20_000.0 if is_packed else 1000.0
    for options in ({"n_threads": 3}, {"n_threads": 8}, {"memory": little_memory}):
        result = searched(X, X[:70], "cosine", **options)[1:]
        for part, other in zip(result, expected, strict=True):
            assert_same_bits(part, other)


def test_rows_beyond_float32_products_are_not_taken():
    X = gaussian(200, 8).astype(np.float32)
    assert searched(X.astype(np.float64), X[:9], "cosine")[0] == "packed"
    for factor in (1e20, 1e-15):
        assert searched(np.float32(factor) * X, X[:9], "cosine")[0] == "packed"


def test_top_k_of_few_queries_equals_the_index():
    rng = np.random.default_rng(2)
    X = rng.standard_normal((20_003, 256), dtype=np.float32)
    queries = np.concatenate([X[:30], rng.standard_normal((50, 256), dtype=np.float32)])
    pairs = sp.random(80, len(X), 0.01, "csr", random_state=0)
    for measure in ("cosine", "neg_euclidean"):
        index = fastcos.SimilarityIndex(measure).fit(X)
        for exclude in (None, pairs):
            result = fastcos.top_k(queries, X, 12, measure=measure, exclude=exclude)
            expected = index.search(queries, 12, exclude=exclude)
            assert_same_bits(result.indices, expected.indices)
            assert_same_bits(result.scores, expected.scores)
