"""Rows whose numbers take one or two bytes give the same results as float64 rows.

The results are bit-identical, and no float64 copy of the rows is made.
"""

import tracemalloc

import numpy as np
import pytest

from fastcos import SimilarityIndex, top_k
from fastcos.search import rescore
from tests.oracles import dense as dense_oracle

TYPES = ["float16", "int8", "int16", "bool", "bfloat16", "float8_e4m3fn"]


def rows_of(name, n, d, seed=0):
    values = 9 * np.random.default_rng(seed).standard_normal((n, d))
    if name == "bool":
        return values > 0
    if name in ("bfloat16", "float8_e4m3fn"):
        return values.astype(getattr(pytest.importorskip("ml_dtypes"), name))
    return values.astype(name)


@pytest.mark.parametrize("name", TYPES)
def test_narrow_rows_have_the_neighbors_of_float64(name):
    X, Q = rows_of(name, 500, 24), rows_of(name, 30, 24, seed=1)
    # The blocks have 64 rows or more.
    result = top_k(Q, X, 7, working_memory=0.1)
    assert_exact(result, *dense_oracle.top_k(Q, X, 7, "cosine"))
    result = top_k(X[:90], k=5, measure="dot")
    assert_exact(result, *dense_oracle.top_k(X[:90], X[:90], 5, "dot", exclude_self=True))
    lists = np.arange(30)[:, None] * 11 + np.arange(40)
    excluded = np.ones((30, 500), bool)
    np.put_along_axis(excluded, lists, False, axis=1)
    result = rescore(Q, X, lists, 5)
    assert_exact(result, *dense_oracle.top_k(Q, X, 5, "cosine", excluded=excluded))


def assert_exact(result, indices, scores):
    np.testing.assert_array_equal(result.indices, indices)
    np.testing.assert_array_equal(result.scores, scores.astype(np.float32))


@pytest.mark.slow
def test_narrow_rows_are_not_copied_as_a_whole():
    X = rows_of("int8", 60_000, 256)
    top_k(X[:9], X[:300], 3)
    tracemalloc.start()
    try:
        top_k(X[:9], X, 3, working_memory=4)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # The limit is less than the memory that the codes of all rows would take. A float32 copy of the
    # rows would take four times as much memory as the limit.
    assert peak < X.nbytes


def test_narrow_rows_with_nan_are_refused():
    X = rows_of("float16", 200, 8)
    X[150, 3] = np.nan
    with pytest.raises(ValueError, match=r"^items.*must be finite, got NaN or infinity"):
        top_k(X[:5], X, 3)
    with pytest.raises(ValueError, match=r"got \(0, 8\)$"):
        top_k(X[:5], X[:0], 3)


# With a cold cache, the kernels of each type take two minutes to compile, so CI tests one type, and
# the others are tested by hand.
@pytest.mark.parametrize(
    "name",
    [
        pytest.param("int8", marks=pytest.mark.slow),
        pytest.param("float16", marks=pytest.mark.long),
        pytest.param("bfloat16", marks=pytest.mark.long),
    ],
)
def test_index_keeps_narrow_rows(name, tmp_path):
    X, Q = rows_of(name, 9000, 40), rows_of(name, 200, 40, seed=1)
    index = SimilarityIndex().fit(X)
    assert_exact(index.search(Q, 7), *dense_oracle.top_k(Q, X, 7, "cosine"))
    index.remove(np.arange(100, 400))
    index.add(Q[:150])
    index.upsert(Q[150:], np.arange(50))
    X = np.concatenate([Q[150:], X[50:100], X[400:], Q[:150]])
    positions = np.r_[0:100, 400:9150]
    result, scores = dense_oracle.top_k(Q, X, 7, "cosine")
    index.save(tmp_path / "index")
    for one in (index, SimilarityIndex.open(tmp_path / "index", verify=True)):
        assert one.memory_.rows == X.nbytes + 350 * X[0].nbytes
        assert_exact(one.search(Q, 7), positions[result], scores)
        near = one.radius(Q, 0.5)
        expected = dense_oracle.keys(Q, X, "cosine") >= 0.5
        np.testing.assert_array_equal(near[:, positions].toarray() > 0, expected)
        exact = one.rescore(Q, positions[result][:, ::-1], 7)
        assert_exact(exact, positions[result], scores)
        assert not exact.missing.any()


@pytest.mark.long
def test_large_narrow_rows_make_no_wide_copy():
    X = rows_of("int8", 100_000, 128)
    own = X[99_000:]
    Q = own.astype(np.float32)
    SimilarityIndex().fit(X[:9000]).search(own, 3)
    for call, bound in (
        (lambda: SimilarityIndex().fit(X, copy=False).search(own, 3), 2),
        # The index copies the rows as int8. The bound is therefore 3 instead of 2.
        (lambda: SimilarityIndex().fit(X).search(own, 3), 3),
        (lambda: top_k(own, X, 3), 2),
    ):
        tracemalloc.start()
        try:
            result = call()
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        # Memory is needed for codes of one byte per number, for 28 bytes per item, and for blocks.
        # float32 copies of the rows would take four times as much memory as X.
        assert peak < bound * X.nbytes
        expected = top_k(Q, X.astype(np.float32), 3)
        assert_exact(result, *expected)
    joined = top_k(X, k=2)
    expected = top_k(X.astype(np.float32), k=2)
    assert_exact(joined, *expected)


# A full panel of these rows is searched without packing. Compiling the kernels for this search
# takes 35 s.
@pytest.mark.slow
@pytest.mark.parametrize("n_items", [8, pytest.param(40, marks=pytest.mark.long)])
@pytest.mark.parametrize("dtype", [np.int8, np.float16])
def test_narrow_rows_of_many_columns_are_searched(dtype, n_items):
    rng = np.random.default_rng(0)
    X = rng.integers(-3, 4, (n_items, 70_000)).astype(dtype)
    result = top_k(X, X, 3, measure="dot", working_memory=4096)
    assert_exact(result, *dense_oracle.top_k(X, X, 3, "dot"))


@pytest.mark.slow  # The index packs rows of this type, for which it compiles kernels.
def test_index_refuses_narrow_rows_with_nan():
    X = rows_of("float16", 200, 8)
    X[150, 3] = np.nan
    with pytest.raises(ValueError, match=r"^items.*must be finite, got NaN or infinity"):
        SimilarityIndex().fit(X)
    index = SimilarityIndex().fit(X[:100])
    with pytest.raises(ValueError, match=r"^items.*must be finite, got NaN or infinity"):
        index.add(X)
    assert index.n_items_ == index.n_positions_ == 100
