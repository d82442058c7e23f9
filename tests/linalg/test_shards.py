"""Shards hold the same matrix, give bit-identical products, and report damage."""

import shutil
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp

import fastcos
from fastcos import parallel, storage
from fastcos.linalg import partial_sums
from fastcos.linalg.operators import as_operator
from fastcos.linalg.shards import InteractionShards, ShardedOperator, shard_rows
from tests.oracles.compare import assert_same_bits


@pytest.fixture(scope="module", params=["counts", pytest.param("binary", marks=pytest.mark.slow)])
def matrix(request):
    rng = np.random.default_rng(0)
    X = sp.random_array((700, 60), density=0.15, rng=rng, format="csr", dtype=np.float32)
    X.data[:] = 1 if request.param == "binary" else rng.integers(1, 9, X.nnz)
    X = X.tolil()
    X[:, 7] = 0  # One item and two users have no interactions.
    X[[0, 500]] = 0
    return sp.csr_array(X.tocsr())


@pytest.fixture
def shards(matrix, tmp_path):
    return InteractionShards.write(tmp_path / "x", matrix, entries_per_shard=900)


def test_shards_hold_the_matrix(matrix, shards):
    assert len(shards) == 7 or len(shards) == 6
    assert (shards.shape, shards.nnz, shards.dtype) == (matrix.shape, matrix.nnz, np.float32)
    whole = sp.vstack([block for _, block in shards.blocks()])
    np.testing.assert_array_equal(whole.toarray(), matrix.toarray())
    assert [first for first, _ in shards.blocks()] == shards.first_rows[:-1]
    np.testing.assert_array_equal(shards.whole().toarray(), matrix.toarray())
    np.testing.assert_array_equal(shards.user_ids, np.arange(700))


def test_shards_keep_ids(matrix, tmp_path):
    users, items = np.array([f"u{i}" for i in range(700)]), np.arange(60) * 3
    shards = InteractionShards.write(tmp_path / "x", matrix, user_ids=users, item_ids=items)
    assert len(shards) == 1
    np.testing.assert_array_equal(shards.user_ids, users)
    np.testing.assert_array_equal(shards.item_ids, items)


def test_shards_of_ones_have_no_data(matrix, shards):
    files = {file.name.partition("-")[0] for file in (shards.path / "00000").glob("*.npy")}
    binary = (matrix.data == 1).all()
    assert files == ({"indptr", "indices"} if binary else {"indptr", "indices", "data"})


@pytest.mark.parametrize("held", [0, pytest.param(10**6, marks=pytest.mark.slow)])
def test_products_of_shards(matrix, shards, held, monkeypatch):
    monkeypatch.setattr(fastcos.linalg.shards, "ENTRIES_HELD", held)
    rng = np.random.default_rng(1)
    A, Y = rng.standard_normal((60, 5)), rng.standard_normal((700, 5))
    X = matrix.toarray().astype(np.float64)
    np.testing.assert_allclose(fastcos.matmul(shards, A), X @ A, atol=1e-10)
    np.testing.assert_allclose(fastcos.rmatmul(shards, Y), X.T @ Y, atol=1e-10)
    np.testing.assert_allclose(fastcos.gram_matmul(shards, A), X.T @ (X @ A), atol=1e-9)
    mean = X.mean(axis=0)
    product = fastcos.matmul(shards, A, center=mean)
    np.testing.assert_allclose(product, (X - mean) @ A, atol=1e-10)
    operator = as_operator(shards)
    np.testing.assert_allclose(operator.gram(), X.T @ X, atol=1e-9)
    other = operator.transposed()
    np.testing.assert_allclose(other.matmul(Y), X.T @ Y, atol=1e-10)
    np.testing.assert_allclose(other.rmatmul(A), X @ A, atol=1e-10)
    np.testing.assert_allclose(other.gram(), X @ X.T, atol=1e-9)
    assert (other.transposed() is operator) == (held == 0)


def test_products_in_memory_have_the_bits_of_one_csr(matrix, shards):
    rng = np.random.default_rng(2)
    for dtype in (np.float32, np.float64):
        Q, Y = (rng.standard_normal((n, 20)).astype(dtype) for n in (60, 700))
        for n_threads in (1, 2, 3, 8):
            options = {"n_threads": n_threads}
            for product, factor in (("matmul", Q), ("rmatmul", Y), ("gram_matmul", Q)):
                product = getattr(fastcos, product)
                assert_same_bits(product(shards, factor, **options), product(matrix, factor))
    svd, expected = fastcos.randomized_svd(shards, 4), fastcos.randomized_svd(matrix, 4)
    for one, other in zip(svd, expected, strict=True):
        assert_same_bits(one, other)


def products_of(X, factors, n_threads):
    """Yield X Q, X'Y and X'(X Q) for every pair of factors, and finally X'X."""
    options = {"n_threads": n_threads}
    for Q, Y in factors:
        yield fastcos.matmul(X, Q, **options)
        yield fastcos.rmatmul(X, Y, **options)
        yield fastcos.gram_matmul(X, Q, **options)
    yield as_operator(X, n_threads=n_threads).gram()


# A part must have at least per_column non-zeros per column. The three values of per_column lead to
# 24 parts, 7 parts and a single part.
@pytest.mark.parametrize(
    "per_column", [4, *(pytest.param(n, marks=pytest.mark.slow) for n in (15, 48))]
)
@pytest.mark.parametrize("entries", [pytest.param(400, marks=pytest.mark.slow), 10**6])
def test_products_out_of_core_have_the_bits_of_one_csr(
    matrix, per_column, entries, tmp_path, monkeypatch
):
    monkeypatch.setattr(partial_sums, "NNZ_PER_COLUMN", per_column)
    rng = np.random.default_rng(3)
    shapes = [(1, np.float64), (5, np.float32), (83, np.float32), (83, np.float64)]
    factors = [
        [rng.standard_normal((n, width)).astype(dtype) for n in matrix.shape[::-1]]
        for width, dtype in shapes
    ]
    expected = list(products_of(matrix, factors, 2))
    shards = InteractionShards.write(tmp_path / "x", matrix, entries_per_shard=entries)
    monkeypatch.setattr(fastcos.linalg.shards, "ENTRIES_HELD", 0)
    assert isinstance(as_operator(shards), ShardedOperator)
    for n_threads in (1, 7):
        for result, truth in zip(products_of(shards, factors, n_threads), expected, strict=True):
            assert_same_bits(result, truth)


@pytest.mark.slow
def test_work_is_divided_at_the_rows_at_which_one_csr_divides_it(matrix, shards):
    # A part may begin at any of these entries.
    targets = np.arange(1, matrix.nnz + len(matrix.indptr) - 1)
    expected = parallel.rows_at_work(matrix.indptr, targets)
    np.testing.assert_array_equal(shards._rows_at_work(targets), expected)


def test_products_in_little_memory_have_the_same_bits(matrix, shards, monkeypatch):
    monkeypatch.setattr(partial_sums, "NNZ_PER_COLUMN", 4)
    monkeypatch.setattr(fastcos.linalg.shards, "ENTRIES_HELD", 0)
    Q = np.random.default_rng(3).standard_normal((60, 83))
    expected = fastcos.gram_matmul(matrix, Q)
    assert partial_sums.at_once(24, Q.nbytes, 2) == 12
    before = fastcos.get_config().working_memory
    try:
        fastcos.set_config(working_memory=0.1)
        assert partial_sums.at_once(24, Q.nbytes, 2) == 2
        assert_same_bits(fastcos.gram_matmul(shards, Q), expected)
    finally:
        fastcos.set_config(working_memory=before)


@pytest.mark.parametrize(
    "users", [7, *(pytest.param(n, marks=pytest.mark.slow) for n in (6, 8, 31))]
)
def test_rows_longer_than_parts_are_not_split(users, tmp_path, monkeypatch):
    monkeypatch.setattr(partial_sums, "NNZ_PER_COLUMN", 1)
    monkeypatch.setattr(fastcos.linalg.shards, "ENTRIES_HELD", 0)
    rng = np.random.default_rng(users)
    X = sp.random_array((users, 5), density=0.9, rng=rng, format="lil")
    X[users // 2 : users - 2] = 0
    X = sp.csr_array(X.tocsr())
    Q, Y = rng.standard_normal((5, 3)), rng.standard_normal((users, 3))
    shards = InteractionShards.write(tmp_path / "x", X, entries_per_shard=1)
    for result, truth in zip(
        products_of(shards, [(Q, Y)], 2), products_of(X, [(Q, Y)], 2), strict=True
    ):
        assert_same_bits(result, truth)


@pytest.mark.parametrize("center", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_svd_and_model_out_of_core_have_the_same_bits(matrix, shards, center, monkeypatch):
    monkeypatch.setattr(partial_sums, "NNZ_PER_COLUMN", 4)
    settings = {"n_components": 5, "regularization": 10.0, "center": center}
    expected = fastcos.LinearMF(**settings).fit(matrix)
    triplets = fastcos.randomized_svd(matrix, 4, tol=1e-6)
    monkeypatch.setattr(fastcos.linalg.shards, "ENTRIES_HELD", 0)
    for one, other in zip(fastcos.randomized_svd(shards, 4, tol=1e-6), triplets, strict=True):
        assert_same_bits(one, other)
    result = fastcos.LinearMF(**settings).fit(shards)
    assert_same_bits(result.components_, expected.components_)
    assert_same_bits(result.transform(shards), expected.transform(matrix))


@pytest.mark.parametrize(
    ("lo", "hi"),
    [
        (200, 650),
        *(
            pytest.param(*ends, marks=pytest.mark.slow)
            for ends in ((0, 700), (3, 4), (100, 101), (698, 700))
        ),
    ],
)
def test_blocks_are_not_copied(matrix, shards, lo, hi):
    bounds = list(enumerate(pairwise(shards.first_rows)))
    places = [(number, max(lo, b)) for number, (b, e) in bounds if max(lo, b) < min(hi, e)]
    result = list(shards.blocks(lo, hi))
    assert [first for first, _ in result] == [first for _, first in places]
    rows = np.vstack([np.empty((0, 60)), *(X.toarray() for _, X in result)])
    np.testing.assert_array_equal(rows, matrix[lo:hi].toarray())
    for (_, X), (number, _) in zip(result, places, strict=True):
        assert np.shares_memory(X.indices, shards.shard(number).indices)


def test_shard_rows_split_between_rows():
    indptr = np.array([0, 0, 5, 5, 6, 30, 31])
    assert shard_rows(indptr, 6) == [0, 4, 5, 6]
    assert shard_rows(indptr, 100) == [0, 6]
    assert shard_rows(np.array([0, 0]), 3) == [0, 1]


def test_damaged_shards_are_refused(shards, tmp_path):
    file = next((shards.path / "00002").glob("indices-*.npy"))
    content = bytearray(file.read_bytes())
    content[-3] ^= 64
    file.write_bytes(content)
    with pytest.raises(storage.FastcosFormatError, match="checksum differs"):
        InteractionShards(shards.path)
    file.write_bytes(content[:-8])
    with pytest.raises(storage.FastcosFormatError, match=r"is damaged: \d+ bytes instead of"):
        InteractionShards(shards.path, verify=False)
    file.unlink()
    with pytest.raises(storage.FastcosFormatError, match="is missing"):
        InteractionShards(shards.path)


@pytest.mark.parametrize(
    ("name", "at", "value"),
    [
        ("indices", 3, 60),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (("indices", 5, -1), ("indptr", 2, -4), ("indptr", 1, 2**30))
        ),
    ],
)
def test_shards_opened_without_checksums_index_within_bounds(shards, name, at, value):
    file = next((shards.path / "00002").glob(f"{name}-*.npy"))
    array = np.load(file, mmap_mode="r+")
    array[at] = value
    array.flush()
    with pytest.raises(storage.FastcosFormatError, match="00002 is damaged"):
        InteractionShards(shards.path, verify=False).whole()
    with pytest.raises(storage.FastcosFormatError, match="00002 is damaged"):
        list(InteractionShards(shards.path, verify=False).blocks())


def test_a_shard_of_another_matrix_is_refused(shards, tmp_path):
    other = sp.random_array((40, 90), density=0.5, rng=np.random.default_rng(3), format="csr")
    InteractionShards.write(tmp_path / "y", other)
    shutil.rmtree(shards.path / "00001")
    shutil.copytree(tmp_path / "y" / "00000", shards.path / "00001")
    with pytest.raises(ValueError, match=r"indices|shard 1"):
        InteractionShards(shards.path)


def test_write_refuses_invalid_arguments(matrix, shards, tmp_path):
    with pytest.raises(ValueError, match="path must be a new or an empty directory"):
        InteractionShards.write(shards.path, matrix)
    with pytest.raises(ValueError, match=r"item_ids must be of shape \(60,\), got \(2,\)"):
        InteractionShards.write(tmp_path / "z", matrix, item_ids=[1, 2])
    with pytest.raises(ValueError, match="entries_per_shard must be"):
        InteractionShards.write(tmp_path / "z", matrix, entries_per_shard=0)
    with pytest.raises(ValueError, match="scale must be None for interactions in shards"):
        fastcos.matmul(shards, np.ones((60, 1)), scale=np.ones(60))
    with pytest.raises(FileNotFoundError):
        InteractionShards(tmp_path / "z")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x"]


def test_a_failed_write_leaves_nothing(matrix, tmp_path, monkeypatch):
    def full(*_arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(storage, "save_arrays", full)
    with pytest.raises(OSError, match="No space left"):
        InteractionShards.write(tmp_path / "x", matrix)
    assert not list(tmp_path.iterdir())
