"""Sparse top-k, compared with dense arithmetic; kernels must not write outside their rows."""

import numba
import numpy as np
import pytest

from fastcos.kernels import sparse_top_k
from fastcos.kernels.simd import sums_above
from fastcos.kernels.sparse_top_k import CHUNK, STRIP, Items, Queries

D, M, K = 13, 300, 5


def frozen(array):
    array.flags.writeable = False
    return array


def csr(dense, dtype, index_dtype):
    indptr = np.concatenate([[0], np.cumsum((dense != 0).sum(axis=1))]).astype(np.int64)
    rows, columns = np.nonzero(dense)
    values = None if dtype is None else frozen(dense[rows, columns].astype(dtype))
    return frozen(indptr), frozen(columns.astype(index_dtype)), values


def random_rows(rng, n, is_binary):
    values = np.ones((n, D)) if is_binary else rng.integers(-3, 4, (n, D))
    dense = (rng.random((n, D)) < 0.3) * values
    dense[0] = 0
    return dense


def scores_of(Q, B, is_cosine):
    scores = Q.astype(np.float64) @ B.T
    if not is_cosine:
        return scores
    lengths = np.outer(np.linalg.norm(Q, axis=1), np.linalg.norm(B, axis=1))
    return np.clip(np.divide(scores, lengths, out=np.zeros_like(scores), where=lengths > 0), -1, 1)


@pytest.mark.parametrize(
    "dtype",
    [np.float64, *(pytest.param(dtype, marks=pytest.mark.slow) for dtype in (np.int16, None))],
)
def test_row_norms_equal_numpy(dtype):
    dense = random_rows(np.random.default_rng(0), 9, dtype is None)
    indptr, _, values = csr(dense, dtype, np.int32)
    norms = np.full(9, np.nan)
    sparse_top_k.row_norms(2, 7, indptr, values, norms)
    np.testing.assert_allclose(norms[2:7], np.linalg.norm(dense[2:7], axis=1), rtol=1e-15)
    assert np.isnan(norms[[0, 1, 7, 8]]).all()


@pytest.mark.parametrize("is_cosine", [True, False])
@pytest.mark.parametrize(
    "kind", ["real", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("binary", "whole"))]
)
# top_k returns scores of float32. The scores of float64 show the sums without the last rounding.
@pytest.mark.parametrize(
    "score_type", [np.float32, pytest.param(np.float64, marks=pytest.mark.slow)]
)
def test_best_rows_equals_dense_search(kind, is_cosine, score_type):
    rng = np.random.default_rng(1)
    Q, B = random_rows(rng, 8, kind == "binary"), random_rows(rng, M, kind == "binary")
    dtype, sum_type = {
        "binary": (None, np.int32), "whole": (np.int16, np.int32), "real": (np.float64, np.float64)
    }[kind]  # fmt: skip
    own = np.array([-1, 3, -1, 7, 8, -1, -1, 299])
    barred = rng.random((8, M)) < 0.1
    excluded = csr(barred.astype(float), None, np.int32)[:2]
    q_indptr, q_indices, q_values = csr(Q, dtype, np.int32)
    queries = Queries(
        q_indptr, q_indices, q_values, frozen(np.linalg.norm(Q, axis=1)), own, *excluded
    )
    norms = np.linalg.norm(B, axis=1)
    factors = np.zeros(-(-M // STRIP) * STRIP, np.float32 if sum_type == np.int32 else np.float64)
    factors[:M] = np.divide(1, norms, out=np.zeros(M), where=norms > 0) if is_cosine else 1
    items = Items(
        *csr(B.T, dtype, np.uint16), frozen(norms), factors, is_cosine,
        np.empty(0, sum_type),
    )  # fmt: skip
    scores, columns = np.full((8, K), np.nan, score_type), np.full((8, K), -7)
    sparse_top_k.best_rows(1, 7, queries, items, -np.inf, scores, columns)
    truth = scores_of(Q, B, is_cosine)
    truth[barred] = -np.inf
    truth[np.flatnonzero(own >= 0), own[own >= 0]] = -np.inf
    for i in range(1, 7):
        # Items with equal scores are ordered by their numbers. If two cosines of this test differ,
        # they differ by more than a rounding error.
        order = np.lexsort((np.arange(M), -np.round(truth[i], 12)))[:K]
        np.testing.assert_array_equal(columns[i], order)
        expected = truth[i, order].astype(score_type)
        np.testing.assert_allclose(scores[i], expected, rtol=1e-14, atol=1e-15)
    assert np.isnan(scores[[0, 7]]).all()
    assert (columns[[0, 7]] == -7).all()


@pytest.mark.slow
def test_best_rows_pads_short_results():
    rng = np.random.default_rng(2)
    Q, B = random_rows(rng, 2, True), random_rows(rng, 3, True)
    factors = np.zeros(STRIP, np.float32)
    factors[:3] = 1
    queries = Queries(
        *csr(Q, None, np.int32), frozen(np.ones(2)), np.array([-1, 1]),
        *csr(np.zeros((2, 3)), None, np.int32)[:2],
    )  # fmt: skip
    items = Items(
        *csr(B.T, None, np.uint16), frozen(np.ones(3)), factors, False,
        np.empty(0, np.int32),
    )  # fmt: skip
    scores, columns = np.full((2, K), np.nan), np.full((2, K), -7)
    sparse_top_k.best_rows(0, 2, queries, items, 0.0, scores, columns)
    assert columns[0].tolist() == [0, 1, 2, -1, -1]
    assert sorted(columns[1].tolist()) == [-1, -1, -1, 0, 2]
    assert np.isneginf(scores[0, 3:]).all()


BODIES = ["_plain"] if numba.config.DISABLE_JIT else ["_plain", ""]


# The code of best_rows contains these functions. Here they would be compiled separately.
@pytest.mark.parametrize(
    "body", [BODIES[0], *(pytest.param(body, marks=pytest.mark.slow) for body in BODIES[1:])]
)
@pytest.mark.parametrize(("sums", "factors"), [(np.int32, np.float32), (np.float64, np.float64)])
def test_reaching_and_largest_equal_numpy(body, sums, factors):
    rng = np.random.default_rng(3)
    total = rng.integers(-50, 50, STRIP).astype(sums)
    weights = rng.random(STRIP).astype(factors)
    scores = total.astype(factors) * weights
    reaching, largest = sums_above.sums_reaching, sums_above.largest_of_groups
    if body == "_plain":
        reaching, largest = sums_above._sums_reaching_plain, sums_above._largest_of_groups_plain
    if body == "":
        compiled = sparse_top_k.kernel(lambda s, at, f, b: reaching(s, at, f, b))
        grouped = sparse_top_k.kernel(lambda s, f, at, m, to: largest(s, f, at, m, to))
    else:
        compiled, grouped = reaching, largest
    bound = factors(10)
    for start in range(0, STRIP, CHUNK):
        word = int(compiled(total, start, weights, bound))
        bits = [bool(word >> j & 1) for j in range(CHUNK)]
        assert bits == (scores[start : start + CHUNK] >= bound).tolist()
    lanes = 64 // weights.itemsize
    maxima = np.full(2 * lanes, np.nan, factors)
    grouped(total, weights, 0, maxima, lanes)
    assert np.isnan(maxima[:lanes]).all()
    np.testing.assert_array_equal(
        maxima[lanes:], scores[: 16 * lanes].reshape(16, lanes).max(axis=0)
    )
