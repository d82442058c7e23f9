"""Products with sparse matrices (plain, centred or scaled) equal those with dense matrices."""

from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.linalg import aslinearoperator

from fastcos import config, gram_matmul, matmul, parallel, rmatmul, set_config
from fastcos.kernels import cpu
from fastcos.linalg import operators, partial_sums
from fastcos.parallel import buffer_pool

N, P = 90, 31


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def X(rng):
    X = sp.random_array((N, P), density=0.25, rng=rng, format="csr")
    X.data[:] = rng.integers(1, 6, X.nnz)
    return X.astype(np.float32)


@pytest.mark.parametrize("dtype", [np.float32, pytest.param(np.float64, marks=pytest.mark.slow)])
def test_matmul_errors_keep_the_documented_bound(rng, dtype):
    """If a row has m non-zeros, |Y - X A| is at most m u / (1 - m u) |X||A|."""
    X = sp.random_array((40, 300), density=0.1, rng=rng, format="csr", dtype=dtype)
    X.data[:] = rng.standard_normal(X.nnz)
    X = sp.vstack([X, sp.eye_array(3, 300, dtype=dtype, format="csr") * dtype(0.1)], format="csr")
    A = rng.standard_normal((300, 5)).astype(dtype)
    # In these sums, the terms cancel each other almost completely.
    A[:, 0] -= (np.linalg.pinv(X.toarray()[:10]) @ (X[:10] @ A[:, 0])).astype(dtype)
    product = matmul(X, A)
    for i in range(43):
        row = slice(X.indptr[i], X.indptr[i + 1])
        values = [Fraction(float(x)) for x in X.data[row]]
        mu = len(values) * Fraction(float(np.finfo(dtype).eps)) / 2
        for c in range(5):
            factors = [Fraction(float(a)) for a in A[X.indices[row], c]]
            terms = [x * a for x, a in zip(values, factors, strict=True)]
            error = abs(Fraction(float(product[i, c])) - sum(terms))
            assert error <= mu / (1 - mu) * sum(map(abs, terms))


@pytest.fixture
def kernels(monkeypatch):
    """Record which kernels run; return the list of their names."""
    names, run = [], parallel.run

    def recorded(kernel, *arguments, **options):
        names.append(kernel.__name__)
        run(kernel, *arguments, **options)

    monkeypatch.setattr(parallel, "run", recorded)
    return names


FUSED, CHECK = "validated_matmul_rows", "check_rows"


@pytest.mark.parametrize("dtype", [np.float32, pytest.param(np.float64, marks=pytest.mark.slow)])
def test_matmul_validates_a_matrix_on_the_way(X, rng, kernels, dtype):
    X.data[:] = rng.standard_normal(X.nnz)
    X, A = X.astype(dtype), rng.standard_normal((P, 70)).astype(dtype)
    truth = operators.as_operator(X).matmul(A)
    kernels.clear()
    for n_threads in (1, 3):
        np.testing.assert_array_equal(matmul(X, A, n_threads=n_threads), truth)
    assert operators.is_plain() or kernels == [FUSED, FUSED]


@pytest.mark.slow
@pytest.mark.skipif(buffer_pool.MADV_FREE is None, reason="no memory is reused")
def test_matmul_streams_into_a_freed_buffer(rng):
    n = 2**18
    X = sp.random_array((2**10, P), density=0.1, rng=rng, format="csr", dtype=np.float32)
    X = sp.vstack([X] * 2**8, format="csr")
    A = rng.standard_normal((P, 64)).astype(np.float32)
    buffer_pool.release()
    Y, is_streamed = operators.product_memory(n, A)
    assert not is_streamed
    first = matmul(X, A)
    del Y
    Y, is_streamed = operators.product_memory(n, A)
    assert is_streamed
    Y[:] = np.nan
    del Y
    np.testing.assert_array_equal(matmul(X, A), first)
    assert not operators.product_memory(n, A[:, :63])[1]
    buffer_pool.release()


def test_fused_matmul_adds_duplicates_in_stored_order(rng):
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
def test_fused_matmul_names_an_invalid_entry(X, kernels, entry, index, value, message):
    X.indices[entry], X.data[entry] = index, value
    with pytest.raises(ValueError, match=message):
        matmul(X, np.ones((P, 2), np.float32))
    assert kernels[-1] == CHECK


def test_fused_matmul_overflows_to_infinity(X, kernels):
    X.data[:] = 1
    X.data[:2] = np.finfo(np.float32).max
    product = matmul(X, np.full((P, 2), 2, np.float32))
    assert CHECK in kernels  # an infinite sum is checked by this kernel
    assert (product[0] == np.inf).all()
    np.testing.assert_array_equal(product[1:], X[1:] @ np.full((P, 2), 2))


def test_fused_matmul_refuses_a_wrong_shape(X):
    with pytest.raises(ValueError, match="A must have as many rows as X has columns"):
        matmul(X, np.ones((P + 1, 2), np.float32))


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "lil"])
@pytest.mark.parametrize(
    "dtype",
    # The other types are read as one of these two.
    [
        np.float32,
        *(pytest.param(t, marks=pytest.mark.slow) for t in (np.float64, np.int32, np.uint8)),
        bool,
    ],
)
def test_products_of_every_format_and_type(X, rng, form, dtype):
    X = X.astype(dtype).asformat(form)
    dense = X.toarray().astype(np.float64)
    A, Y = rng.integers(-3, 4, (P, 9)), rng.integers(-3, 4, (N, 9))
    np.testing.assert_array_equal(matmul(X, A), dense @ A)
    np.testing.assert_array_equal(rmatmul(X, Y), dense.T @ Y)
    np.testing.assert_array_equal(gram_matmul(X, A), dense.T @ dense @ A)


def test_products_have_the_wider_type(X):
    A = np.ones((P, 2), np.float32)
    assert matmul(X, A).dtype == rmatmul(X, np.ones((N, 2), np.float32)).dtype == np.float32
    assert matmul(X.astype(np.float64), A).dtype == np.float64
    assert gram_matmul(X, A.astype(np.float64)).dtype == np.float64
    assert matmul(X.astype(bool), A).dtype == np.float32


@pytest.mark.parametrize("kind", ["sparse", "dense", "operator"])
def test_products_are_centred_and_scaled(X, rng, kind):
    X = X.astype(np.float64)
    shifts = {
        "center": rng.standard_normal(P),
        "scale": rng.uniform(0.5, 2, P),
        "row_center": rng.standard_normal(N),
    }
    A, Y = rng.standard_normal((P, 5)), rng.standard_normal((N, 5))
    matrix = {"sparse": X, "dense": X.toarray(), "operator": aslinearoperator(X)}[kind]
    for names in (["center"], ["scale"], ["row_center"], ["center", "scale"], list(shifts)):
        chosen = {name: shifts[name] for name in names}
        truth = X.toarray()
        if "center" in names:
            truth = truth - shifts["center"]
        if "row_center" in names:
            truth = truth - shifts["row_center"][:, None]
        if "scale" in names:
            truth = truth / shifts["scale"]
        np.testing.assert_allclose(matmul(matrix, A, **chosen), truth @ A, atol=1e-11)
        np.testing.assert_allclose(rmatmul(matrix, Y, **chosen), truth.T @ Y, atol=1e-11)
        np.testing.assert_allclose(gram_matmul(matrix, A, **chosen), truth.T @ truth @ A, atol=1e-9)
        shifted = operators.as_operator(matrix, **chosen)
        np.testing.assert_allclose(shifted.gram(), truth.T @ truth, atol=1e-9)
        np.testing.assert_allclose(shifted.transposed().gram(), truth @ truth.T, atol=1e-9)


@pytest.mark.parametrize("second", ["", pytest.param("generic", marks=pytest.mark.slow)])
def test_bits_do_not_depend_on_threads_or_instruction_set(rng, second):
    X = sp.random_array((4000, 40), density=0.6, rng=rng, format="csr", dtype=np.float32)
    assert partial_sums.count(40, X.nnz) == 48
    A, Y = (rng.standard_normal((m, 83)).astype(np.float32) for m in (40, 4000))
    before = config.isa()
    results = []
    try:
        for isa in (before, second or before):
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


@pytest.fixture(scope="module")
def wide():
    """Return a matrix with very many columns.

    Products with this matrix are computed in pieces. Products with its transpose add the sums of
    two parts.
    """
    rng = np.random.default_rng(0)
    n, p, per_row = 29_000, 17_000, 60
    gaps = rng.integers(1, 2 * p // per_row - 1, (n, per_row))
    columns = np.cumsum(gaps, axis=1)
    is_inside = columns < p
    indptr = np.concatenate([[0], np.cumsum(is_inside.sum(axis=1))])
    indices = columns[is_inside].astype(np.int32)
    X = sp.csr_array((rng.standard_normal(len(indices)), indices, indptr), shape=(n, p))
    assert partial_sums.count(p, X.nnz) > 1
    return X


@pytest.fixture
def small_cache(monkeypatch):
    """Set a cache so small that the factors of `wide` are multiplied in pieces on any CPU."""
    monkeypatch.setattr(cpu, "fast_cache_bytes", lambda: 1 << 20)


@pytest.mark.slow
@pytest.mark.usefixtures("small_cache")
@pytest.mark.parametrize(
    ("dtype", "values"),
    [(dtype, values) for dtype in (np.float32, np.float64) for values in ("numbers", "ones")],
)
def test_products_in_pieces_have_the_same_bits(wide, rng, dtype, values):
    X = wide.astype(dtype)
    if values == "ones":
        X.data[:] = 1
    operator = operators.SparseOperator(X)
    Q = rng.standard_normal((X.shape[1], 70)).astype(dtype)
    product, gram = operator.matmul(Q), operator.gram_matmul(Q)
    if not operators.is_plain():  # The generic code uses neither pieces nor transposes.
        assert operators.rows_at_a_time(X.shape, X.nnz, Q) < X.shape[1]
        assert operator._transposes_pay(Q)
    # With so few columns, neither pieces nor transposes are needed.
    for columns in (slice(2, 5), slice(63, 67)):
        np.testing.assert_array_equal(product[:, columns], operator.matmul(Q[:, columns]))
        np.testing.assert_array_equal(gram[:, columns], operator.gram_matmul(Q[:, columns]))


@pytest.mark.slow
@pytest.mark.usefixtures("small_cache")
@pytest.mark.skipif(operators.is_plain(), reason="generic code makes no transposes")
@pytest.mark.parametrize("limit", ["offsets", "density", "memory"])
def test_gram_matmul_without_transposes_has_the_same_bits(wide, limit, monkeypatch):
    Q = np.ones((wide.shape[1], 64), np.float32)
    operator = operators.SparseOperator(wide.astype(np.float32))
    truth = operator.gram_matmul(Q)
    assert operator._transposes_pay(Q)
    largest = int(np.diff(wide.indptr[operator._block_rows[1]]).max())
    if limit == "offsets":
        monkeypatch.setattr(operators, "LARGEST_INT32", largest)
        assert operator._transposes_pay(Q)
        monkeypatch.setattr(operators, "LARGEST_INT32", largest - 1)
    elif limit == "density":
        monkeypatch.setattr(operators, "NNZ_PER_BLOCK_COLUMN", 1000)
    else:
        monkeypatch.setenv("FASTCOS_WORKING_MEMORY", str(wide.nnz * 6 / 2**20))
    assert not operator._transposes_pay(Q)
    np.testing.assert_array_equal(operator.gram_matmul(Q), truth)


@pytest.mark.slow
def test_gram_matmul_with_a_large_factor_has_the_same_bits(wide, monkeypatch):
    monkeypatch.setattr(operators, "NNZ_PER_PIECE", 1000)
    Q = np.ones((wide.shape[1], 64), np.float32)
    operator = operators.SparseOperator(wide.astype(np.float32))
    truth = operator.gram_matmul(Q)
    assert not operator._transposes_pay(Q)
    monkeypatch.setattr(operators, "UNCACHED_BYTES", Q.nbytes)
    assert operator._transposes_pay(Q) or operators.is_plain()
    np.testing.assert_array_equal(operator.gram_matmul(Q), truth)


@pytest.mark.parametrize(
    ("whole", "parts"), [(0, 1), (1, 1), (2, 2), (3, 4), (7, 4), (8, 8), (11, 8), (1000, 64)]
)
def test_partial_sums_count_suits_two_and_four_threads(whole, parts):
    assert partial_sums.count(10, whole * 10 * partial_sums.NNZ_PER_COLUMN + 9) == parts


def test_products_of_a_wide_matrix(rng):
    X = sp.random_array((20, 3000), density=0.01, rng=rng, format="csr")
    dense = X.toarray()
    Q, Y = rng.standard_normal((3000, 3)), rng.standard_normal((20, 3))
    np.testing.assert_allclose(gram_matmul(X, Q), dense.T @ (dense @ Q), atol=1e-12)
    np.testing.assert_allclose(rmatmul(X, Y), dense.T @ Y, atol=1e-12)


def test_gram_matmul_in_little_memory_has_the_same_bits(rng):
    X = sp.random_array((3000, 40), density=0.6, rng=rng, format="csr")
    Q = rng.standard_normal((40, 64))
    before = config.working_memory()
    truth = gram_matmul(X, Q)
    try:
        set_config(working_memory=0.04)
        assert partial_sums.at_once(64, 2**16, None) == 1
        np.testing.assert_array_equal(gram_matmul(X, Q), truth)
    finally:
        set_config(working_memory=before)


@pytest.mark.slow
def test_int64_indices_are_kept_where_needed(X, rng, monkeypatch):
    A = rng.integers(-9, 9, (P, 3)).astype(np.float32)
    wide = X.copy()
    wide.indices, wide.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    np.testing.assert_array_equal(matmul(wide, A), X @ A)
    monkeypatch.setattr(operators, "LARGEST_INT32", P - 1)
    assert operators.as_operator(wide)._arrays[1].dtype == np.int64
    np.testing.assert_array_equal(matmul(wide, A), X @ A)


def test_products_of_an_empty_matrix_are_zeros():
    X = sp.csr_array((4, 3), dtype=np.float32)
    assert (matmul(X, np.ones((3, 5))) == 0).all()
    assert (rmatmul(X, np.ones((4, 5))) == 0).all()
    assert (gram_matmul(X, np.ones((3, 5))) == 0).all()


def test_matmul_does_not_change_its_input(X):
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
def test_products_name_invalid_arguments(X, call, message):
    with pytest.raises(ValueError, match=message):
        call(X)
