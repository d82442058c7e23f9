"""Products of sparse and dense matrices, plain, centred and scaled, against dense arithmetic."""

from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.linalg import aslinearoperator

from fastcos import config, gram_matmul, matmul, rmatmul, set_config
from fastcos.linalg import (
    buffer_pool,
    fused_validation,
    operators,
    partial_sums,
    products,
    sparse_operator,
)

N, P = 90, 31


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def X(rng):
    X = sp.random_array((N, P), density=0.25, rng=rng, format="csr")
    X.data[:] = rng.integers(1, 6, X.nnz)
    return X.astype(np.float32)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_errors_keep_the_bound_of_as_many_roundings_as_non_zeros(rng, dtype):
    """Against exact sums: |Y - X A| <= m u / (1 - m u) |X||A| with m non-zeros in a row."""
    X = sp.random_array((40, 300), density=0.1, rng=rng, format="csr", dtype=dtype)
    X.data[:] = rng.standard_normal(X.nnz)
    X = sp.vstack([X, sp.eye_array(3, 300, dtype=dtype, format="csr") * dtype(0.1)], format="csr")
    A = rng.standard_normal((300, 5)).astype(dtype)
    # sums of which almost nothing is left
    A[:, 0] -= (np.linalg.pinv(X.toarray()[:10]) @ (X[:10] @ A[:, 0])).astype(dtype)
    found = matmul(X, A)
    for i in range(43):
        row = slice(X.indptr[i], X.indptr[i + 1])
        values = [Fraction(float(x)) for x in X.data[row]]
        mu = len(values) * Fraction(float(np.finfo(dtype).eps)) / 2
        for c in range(5):
            factors = [Fraction(float(a)) for a in A[X.indices[row], c]]
            terms = [x * a for x, a in zip(values, factors, strict=True)]
            error = abs(Fraction(float(found[i, c])) - sum(terms))
            assert error <= mu / (1 - mu) * sum(map(abs, terms))


@pytest.fixture
def unread(monkeypatch):
    """Has every X multiplied while it is checked; the calls that ended so."""
    ended = []

    def told(*arguments):
        ended.append(fused_validation.unread_matmul(*arguments))
        return ended[-1]

    monkeypatch.setattr(fused_validation, "_NNZ", 0)
    monkeypatch.setattr(products, "unread_matmul", told)
    return ended


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_large_matrix_is_checked_while_it_is_multiplied(X, rng, unread, dtype):
    X.data[:] = rng.standard_normal(X.nnz)
    X, A = X.astype(dtype), rng.standard_normal((P, 70)).astype(dtype)
    truth = operators.as_operator(X).matmul(A)
    for n_threads in (1, 3):
        np.testing.assert_array_equal(matmul(X, A, n_threads=n_threads), truth)
    assert all((product is None) == sparse_operator.is_plain() for product in unread)
    assert len(unread) == 2


@pytest.mark.skipif(buffer_pool._FREE_FOR_THE_TAKING is None, reason="no memory is reused")
@pytest.mark.parametrize("way", ["read", "unread"])
def test_a_result_in_used_memory_is_written_past_the_caches_with_the_same_bits(
    rng, monkeypatch, way
):
    monkeypatch.setattr(sparse_operator, "_STREAMED_BYTES", 2**22)
    monkeypatch.setattr(fused_validation, "_NNZ", 0 if way == "unread" else 2**20)
    X = sp.random_array((2**16, P), density=0.1, rng=rng, format="csr", dtype=np.float32)
    A = rng.standard_normal((P, 64)).astype(np.float32)
    buffer_pool.release()
    Y, is_streamed = sparse_operator.product_memory(2**16, A)
    assert not is_streamed
    first = matmul(X, A)
    del Y
    Y, is_streamed = sparse_operator.product_memory(2**16, A)
    assert is_streamed
    Y[:] = np.nan
    del Y
    np.testing.assert_array_equal(matmul(X, A), first)
    assert not sparse_operator.product_memory(2**16, A[:, :63])[1]
    buffer_pool.release()


def test_duplicates_and_any_order_of_a_large_matrix_count_as_they_are_stored(rng, unread):
    indices = np.array([3, 1, 3, 0], np.int32)
    X = sp.csr_array((np.float32([1, 2, 4, 0]), indices, [0, 3, 3, 4]), shape=(3, 5))
    A = rng.integers(-9, 9, (5, 6)).astype(np.float32)
    truth = np.array([5 * A[3] + 2 * A[1], 0 * A[0], 0 * A[0]])
    np.testing.assert_array_equal(matmul(X, A), truth)
    assert indices.tolist() == [3, 1, 3, 0]


@pytest.mark.parametrize(
    ("entry", "index", "value", "message"),
    [
        (7, P, 1, rf"X must have column indices from 0 to {P - 1}, got index {P} in row"),
        (7, -1, 1, f"X must have column indices from 0 to {P - 1}, got index -1 in row"),
        (-1, 0, np.nan, "X must be finite, got nan in row"),
        (0, 0, -np.inf, "X must be finite, got -inf in row"),
    ],
)
def test_a_fault_in_a_large_matrix_is_named(X, unread, entry, index, value, message):
    X.indices[entry], X.data[entry] = index, value
    with pytest.raises(ValueError, match=message):
        matmul(X, np.ones((P, 2), np.float32))
    assert unread == [None]


def test_a_sum_of_a_large_matrix_that_overflows_is_infinite(X, unread):
    X.data[:] = 1
    X.data[:2] = np.finfo(np.float32).max
    found = matmul(X, np.full((P, 2), 2, np.float32))
    assert unread == [None]
    assert (found[0] == np.inf).all()
    np.testing.assert_array_equal(found[1:], X[1:] @ np.full((P, 2), 2))


def test_a_shape_that_a_large_matrix_does_not_fit_is_named(X, unread):
    with pytest.raises(ValueError, match="A must have as many rows as X has columns"):
        matmul(X, np.ones((P + 1, 2), np.float32))


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "lil"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.uint8, bool])
def test_every_format_and_type_gives_the_dense_product(X, rng, form, dtype):
    X = X.astype(dtype).asformat(form)
    dense = X.toarray().astype(np.float64)
    A, Y = rng.integers(-3, 4, (P, 9)), rng.integers(-3, 4, (N, 9))
    np.testing.assert_array_equal(matmul(X, A), dense @ A)
    np.testing.assert_array_equal(rmatmul(X, Y), dense.T @ Y)
    np.testing.assert_array_equal(gram_matmul(X, A), dense.T @ dense @ A)


def test_the_result_has_the_wider_type(X):
    A = np.ones((P, 2), np.float32)
    assert matmul(X, A).dtype == rmatmul(X, np.ones((N, 2), np.float32)).dtype == np.float32
    assert matmul(X.astype(np.float64), A).dtype == np.float64
    assert gram_matmul(X, A.astype(np.float64)).dtype == np.float64
    assert matmul(X.astype(bool), A).dtype == np.float32


@pytest.mark.parametrize("kind", ["sparse", "dense", "operator"])
def test_centre_and_scale_are_those_of_the_dense_matrix(X, rng, kind):
    X = X.astype(np.float64)
    shifts = {
        "center": rng.standard_normal(P),
        "scale": rng.uniform(0.5, 2, P),
        "row_center": rng.standard_normal(N),
    }
    A, Y = rng.standard_normal((P, 5)), rng.standard_normal((N, 5))
    given = {"sparse": X, "dense": X.toarray(), "operator": aslinearoperator(X)}[kind]
    for names in (["center"], ["scale"], ["row_center"], ["center", "scale"], list(shifts)):
        chosen = {name: shifts[name] for name in names}
        truth = X.toarray()
        if "center" in names:
            truth = truth - shifts["center"]
        if "row_center" in names:
            truth = truth - shifts["row_center"][:, None]
        if "scale" in names:
            truth = truth / shifts["scale"]
        np.testing.assert_allclose(matmul(given, A, **chosen), truth @ A, atol=1e-11)
        np.testing.assert_allclose(rmatmul(given, Y, **chosen), truth.T @ Y, atol=1e-11)
        np.testing.assert_allclose(gram_matmul(given, A, **chosen), truth.T @ truth @ A, atol=1e-9)
        shifted = operators.as_operator(given, **chosen)
        np.testing.assert_allclose(shifted.gram(), truth.T @ truth, atol=1e-9)
        np.testing.assert_allclose(shifted.transposed().gram(), truth @ truth.T, atol=1e-9)


def test_bits_do_not_depend_on_threads_or_instruction_set(rng, monkeypatch):
    monkeypatch.setattr(partial_sums, "_NNZ_PER_COLUMN", 1)
    X = sp.random_array((4000, 40), density=0.2, rng=rng, format="csr", dtype=np.float32)
    A, Y = (rng.standard_normal((m, 83)).astype(np.float32) for m in (40, 4000))
    before = config.isa()
    results = []
    try:
        for isa in (before, "generic"):
            set_config(isa=isa)
            for n_threads in (1, 2, 3):
                results.append(
                    (
                        matmul(X, A, n_threads=n_threads),
                        rmatmul(X, Y, n_threads=n_threads),
                        gram_matmul(X, A, n_threads=n_threads),
                    )
                )
    finally:
        set_config(isa=before)
    for other in results[1:]:
        for ours, theirs in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        (np.float32, "numbers"),
        pytest.param(np.float32, "ones", marks=pytest.mark.slow),
        pytest.param(np.float64, "numbers", marks=pytest.mark.slow),
        pytest.param(np.float64, "ones", marks=pytest.mark.slow),
    ],
)
def test_blocks_and_pieces_have_the_bits_of_whole_rows(rng, monkeypatch, dtype, values):
    monkeypatch.setattr(partial_sums, "_NNZ_PER_COLUMN", 30)
    X = sp.random_array((9000, 700), density=0.02, rng=rng, format="csr", dtype=dtype)
    if values == "ones":
        X.data[:] = 1
    operator = sparse_operator.SparseOperator(X)
    factors = [rng.standard_normal((700, width)).astype(dtype) for width in (7, 33, 150)]
    whole = [(operator.matmul(Q), operator.gram_matmul(Q)) for Q in factors]
    monkeypatch.setattr(sparse_operator, "_CACHED_BYTES", 2**12)
    monkeypatch.setattr(sparse_operator, "_NNZ_PER_PIECE", 0.1)
    monkeypatch.setattr(sparse_operator, "_COLUMNS_TO_PAY", 0)
    assert operator._item_rows(factors[0]) < 700
    assert operator._transposes_pay(factors[0])
    for Q, truth in zip(factors, whole, strict=True):
        np.testing.assert_array_equal(operator.matmul(Q), truth[0])
        np.testing.assert_array_equal(operator.gram_matmul(Q), truth[1])


def test_blocks_give_way_where_their_numbers_or_the_memory_would_not_do(rng, monkeypatch):
    X = sp.random_array((9000, 700), density=0.02, rng=rng, format="csr", dtype=np.float32)
    Q = np.ones((700, 64), np.float32)
    monkeypatch.setattr(sparse_operator, "_CACHED_BYTES", 2**14)
    monkeypatch.setattr(sparse_operator, "_NNZ_PER_PIECE", 0.1)
    monkeypatch.setattr(sparse_operator, "_COLUMNS_TO_PAY", 0)
    operator = sparse_operator.SparseOperator(X)
    truth = operator.gram_matmul(Q)
    assert operator._transposes_pay(Q)
    largest = int(np.diff(X.indptr[operator._block_cuts[1]]).max())
    for name, limit in (
        ("_LARGEST_INT32", largest - 1),
        ("_NNZ_PER_COLUMN_OF_A_BLOCK", 1000),
        ("_working_bytes", lambda: X.nnz * 6),
    ):
        with monkeypatch.context() as limited:
            limited.setattr(sparse_operator, name, limit)
            assert not operator._transposes_pay(Q)
            np.testing.assert_array_equal(operator.gram_matmul(Q), truth)
    monkeypatch.setattr(sparse_operator, "_LARGEST_INT32", largest)
    assert operator._transposes_pay(Q)


@pytest.mark.parametrize(
    ("whole", "parts"), [(0, 1), (1, 1), (2, 2), (3, 4), (7, 4), (8, 8), (11, 8), (1000, 64)]
)
def test_parts_are_shared_evenly_by_two_and_four_threads(whole, parts):
    assert partial_sums.count(10, whole * 10 * partial_sums._NNZ_PER_COLUMN + 9) == parts


def test_a_wide_matrix_goes_through_its_transpose(rng):
    X = sp.random_array((20, 3000), density=0.01, rng=rng, format="csr")
    dense = X.toarray()
    Q, Y = rng.standard_normal((3000, 3)), rng.standard_normal((20, 3))
    np.testing.assert_allclose(gram_matmul(X, Q), dense.T @ (dense @ Q), atol=1e-12)
    np.testing.assert_allclose(rmatmul(X, Y), dense.T @ Y, atol=1e-12)


def test_little_memory_means_fewer_sums_at_once_and_the_same_bits(rng, monkeypatch):
    monkeypatch.setattr(partial_sums, "_NNZ_PER_COLUMN", 1)
    X = sp.random_array((3000, 40), density=0.2, rng=rng, format="csr")
    Q = rng.standard_normal((40, 64))
    before = config.working_memory()
    truth = gram_matmul(X, Q)
    try:
        set_config(working_memory=0.04)
        assert partial_sums.at_once(64, 2**16, None) == 1
        np.testing.assert_array_equal(gram_matmul(X, Q), truth)
    finally:
        set_config(working_memory=before)


def test_wide_indices_are_kept_where_columns_need_them(X, rng, monkeypatch):
    A = rng.integers(-9, 9, (P, 3)).astype(np.float32)
    wide = X.copy()
    wide.indices, wide.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    np.testing.assert_array_equal(matmul(wide, A), X @ A)
    monkeypatch.setattr(sparse_operator, "_LARGEST_INT32", P - 1)
    assert operators.as_operator(wide)._arrays[1].dtype == np.int64
    np.testing.assert_array_equal(matmul(wide, A), X @ A)


def test_empty_rows_columns_and_matrices_give_zeros():
    X = sp.csr_array((4, 3), dtype=np.float32)
    assert (matmul(X, np.ones((3, 5))) == 0).all()
    assert (rmatmul(X, np.ones((4, 5))) == 0).all()
    assert (gram_matmul(X, np.ones((3, 5))) == 0).all()


def test_the_matrix_is_left_as_it_was(X):
    X.data[3] = 0
    X.indices[:2] = X.indices[:2][::-1]
    X.has_sorted_indices = X.has_canonical_format = False
    copies = X.indptr.copy(), X.indices.copy(), X.data.copy()
    dense = X.toarray()
    np.testing.assert_array_equal(matmul(X, np.eye(P)), dense)
    for array, copy in zip((X.indptr, X.indices, X.data), copies, strict=True):
        np.testing.assert_array_equal(array, copy)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda X: matmul(X, np.ones((P + 1, 2))), "A must have as many rows as X has columns"),
        (lambda X: rmatmul(X, np.ones((N + 1, 2))), "Y must have as many rows as X has rows"),
        (lambda X: gram_matmul(X, np.full((P, 1), np.nan)), "Q must be finite"),
        (lambda X: matmul(X, np.ones((P, 1)), center=np.ones(N)), "center must be of shape"),
        (lambda X: matmul(X, np.ones((P, 1)), scale=np.zeros(P)), "scale must be positive"),
        (lambda X: matmul(X, np.ones((P, 1)), n_threads=0), "n_threads must be a whole number"),
    ],
)
def test_bad_arguments_are_named(X, call, message):
    with pytest.raises(ValueError, match=message):
        call(X)
