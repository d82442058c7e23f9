"""as_interactions turns any format into one canonical CSR, and refuses malformed matrices."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings, strategies as st

from fastcos.linalg.csr import as_interactions, csr_arrays

ROOT = Path(__file__).parents[2]
FORMATS = ["csr", "csc", "coo", "lil", "dok", "dia", "bsr"]


def matrix(data, indices, indptr, shape):
    """Return a CSR matrix whose arrays SciPy has not checked."""
    X = sp.csr_array(shape)
    X.data, X.indices, X.indptr = np.array(data), np.array(indices), np.array(indptr)
    return X


def valid():
    return matrix([1.0, 2.0, 3.0], [0, 2, 1], [0, 2, 3], (2, 3))


# valid matrices


@pytest.mark.filterwarnings("ignore:Constructing a DIA")
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("kind", ["array", pytest.param("matrix", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "dtype",
    ["f4", "f8", "i8", "?", *(pytest.param(t, marks=pytest.mark.slow) for t in ("i1", "u1", "i4"))],
)
def test_as_interactions_converts_every_format_and_type(form, kind, dtype):
    rng = np.random.default_rng(0)
    dense = (rng.integers(0, 4, (6, 8)) * (rng.random((6, 8)) < 0.4)).astype(dtype)
    dense[2], dense[:, 3] = 0, 0
    X = getattr(sp, f"{form}_{kind}")(dense)
    clean = as_interactions("X", X)
    assert isinstance(clean, sp.csr_array)
    assert clean.dtype == (np.float64 if dtype == "f8" else np.float32)
    assert clean.has_canonical_format
    assert clean.nnz == np.count_nonzero(dense)
    np.testing.assert_array_equal(clean.toarray(), dense)


def test_as_interactions_drops_zeros_of_dense_rows():
    clean = as_interactions("X", [[0.0, 1.5, -0.0], [0.0, 0.0, -2.0]])
    assert clean.nnz == 2
    np.testing.assert_array_equal(clean.toarray(), [[0, 1.5, 0], [0, 0, -2]])


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_as_interactions_sums_duplicates_in_any_order(data):
    n, p = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 6))
    entry = st.tuples(st.integers(0, n - 1), st.integers(0, p - 1), st.integers(-2, 2))
    entries = sorted(data.draw(st.lists(entry, max_size=25)), key=lambda entry: entry[0])
    truth = np.zeros((n, p))
    for row, column, value in entries:
        truth[row, column] += value
    indptr = np.searchsorted([row for row, _, _ in entries], np.arange(n + 1))
    X = matrix(
        np.array([v for _, _, v in entries], data.draw(st.sampled_from(["f4", "f8", "i8"]))),
        np.array([c for _, c, _ in entries], data.draw(st.sampled_from(["i4", "i8"]))),
        indptr,
        (n, p),
    )
    clean = as_interactions("X", X)
    np.testing.assert_array_equal(clean.toarray(), truth)
    assert clean.nnz == np.count_nonzero(truth)
    for i in range(n):
        columns = clean.indices[clean.indptr[i] : clean.indptr[i + 1]]
        assert (np.diff(columns) > 0).all()


def test_as_interactions_ignores_stale_flags():
    X = matrix([1.0, 2.0, 4.0], [1, 1, 0], [0, 3], (1, 2))
    X.has_canonical_format = True
    np.testing.assert_array_equal(as_interactions("X", X).toarray(), [[4, 3]])
    assert X.nnz == 3


def test_as_interactions_drops_entries_that_cancel():
    assert as_interactions("X", matrix([1.0, -1.0], [0, 0], [0, 2], (1, 2))).nnz == 0


def test_as_interactions_ignores_data_beyond_the_last_row():
    X = matrix([1.0, np.nan], [0, 99], [0, 1], (1, 2))
    np.testing.assert_array_equal(as_interactions("X", X).toarray(), [[1, 0]])
    assert len(X.data) == 2


@pytest.mark.parametrize("form", ["csr", "coo", "csc"])
def test_as_interactions_sums_integers_without_overflow(form):
    X = sp.coo_array((np.array([100, 100], np.int8), ([0, 0], [1, 1])), shape=(1, 2))
    if form != "coo":
        X = getattr(sp, f"{form}_array")(X.shape, dtype=np.int8)
        X.data, X.indices = (
            np.array([100, 100], np.int8),
            np.array([1, 1] if form == "csr" else [0, 0]),
        )
        X.indptr = np.array([0, 2] if form == "csr" else [0, 0, 2])
    assert as_interactions("X", X).toarray().tolist() == [[0.0, 200.0]]


def test_as_interactions_makes_integers_exact_floats():
    for value, dtype in ((2**24, np.float32), (-(2**24), np.float32), (2**24 + 1, np.float64)):
        clean = as_interactions("X", sp.csr_array([[value, 1]]))
        assert clean.dtype == dtype
        assert clean[0, 0] == value
    summed = as_interactions("X", matrix([2**24, 1], [0, 0], [0, 2], (1, 2)))
    assert summed.dtype == np.float64
    assert summed[0, 0] == 2**24 + 1


def test_as_interactions_converts_float16_and_longdouble():
    X = valid()
    X.data = X.data.astype(np.float16)
    assert as_interactions("X", X).dtype == np.float32
    X.data = X.data.astype(np.longdouble)
    assert as_interactions("X", X).dtype == np.float64


@pytest.mark.parametrize("index", ["i1", "i2", "i4", "i8", "u2", "u4", "u8", ">i4", ">i8"])
def test_as_interactions_reads_indices_of_any_integer_type(index):
    X = valid()
    X.indices, X.indptr = X.indices.astype(index), X.indptr.astype(index)
    clean = as_interactions("X", X)
    assert clean.indices.dtype in (np.int32, np.int64)
    np.testing.assert_array_equal(clean.toarray(), [[1, 0, 2], [0, 3, 0]])


@pytest.mark.parametrize("kind", [sp.csr_array, sp.csr_matrix])
def test_as_interactions_int64_equals_int32_indices(kind):
    X = kind(np.eye(3))
    wide = kind(np.eye(3))
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
    a, b = csr_arrays(as_interactions("X", X)), csr_arrays(as_interactions("X", wide))
    for left, right in zip(a, b, strict=True):
        np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize("form", FORMATS)
def test_as_interactions_does_not_change_its_input(form):
    dense = np.array([[1.0, 0, 2, 0], [0, 0, 0, 0], [3, 0, 0, 4], [0, 5, 0, 0]])
    X = getattr(sp, f"{form}_array")(dense)
    if form in ("csr", "csc", "bsr"):
        # SciPy's check_format would cut off this extra entry.
        X.indices = np.append(X.indices, X.indices[:1])
        X.data = np.concatenate([X.data, X.data[:1]])
    names = [n for n in ("indptr", "indices", "data", "row", "col", "offsets") if hasattr(X, n)]
    before = {name: np.array(getattr(X, name)) for name in names}
    held = {name: getattr(X, name) for name in names if form != "dok"}
    clean = as_interactions("X", X)
    for name in names if form != "dok" else []:
        np.testing.assert_array_equal(getattr(X, name), before[name])
        assert getattr(X, name) is held[name] or form in ("coo", "lil")
    np.testing.assert_array_equal(clean.toarray(), dense)


def test_csr_arrays_are_read_only_and_contiguous():
    X = valid()
    for name in ("data", "indices", "indptr"):
        array = getattr(X, name)
        array.flags.writeable = False
    for array in csr_arrays(as_interactions("X", X)):
        assert not array.flags.writeable
        assert array.flags.c_contiguous
    unsorted = matrix([1.0, 2.0], [1, 0], [0, 2], (1, 2))
    unsorted.data.flags.writeable = unsorted.indices.flags.writeable = False
    np.testing.assert_array_equal(as_interactions("X", unsorted).toarray(), [[2, 1]])


def test_as_interactions_does_not_copy_canonical_floats():
    X = sp.csr_array(np.eye(4))
    clean = as_interactions("X", X)
    assert np.shares_memory(clean.data, X.data)
    assert np.shares_memory(clean.indices, X.indices)


def test_as_interactions_makes_strided_arrays_contiguous():
    X = valid()
    X.indices, X.data = np.repeat(X.indices, 2)[::2], np.repeat(X.data, 2)[::2]
    for array in csr_arrays(as_interactions("X", X)):
        assert array.flags.c_contiguous


def test_as_interactions_keeps_zeros_on_request():
    X = matrix([1.0, 0.0], [0, 1], [0, 2], (1, 2))
    assert as_interactions("X", X).nnz == 1
    assert as_interactions("X", X, keep_zeros=True).nnz == 2
    assert X.nnz == 2


def test_as_interactions_checks_every_block():
    # The 2.5 million entries fill more than one block, and one of them is broken.
    n, width = 50_000, 50
    X = matrix(
        np.ones(n * width, np.float32),
        np.tile(np.arange(width, dtype=np.int32), n),
        np.arange(0, n * width + 1, width),
        (n, width),
    )
    assert as_interactions("X", X).nnz == n * width
    X.data[-3] = np.inf
    with pytest.raises(ValueError, match=r"X must be finite, got inf in row 49999, column 47"):
        as_interactions("X", X)


# malformed matrices


def changed(**fields):
    X = valid()
    for name, array in fields.items():
        setattr(X, name, np.array(array))
    return X


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (
            changed(indices=[0, 3, 1]),
            "column indices from 0 to 2, got index 3 in row 0, position 1",
        ),
        (
            changed(indices=[0, 2, -1]),
            "column indices from 0 to 2, got index -1 in row 1, position 2",
        ),
        (changed(indices=[2**40, 2, 1]), f"from 0 to 2, got index {2**40} in row 0"),
        (
            changed(data=[1, np.nan, 3]),
            r"X must be finite, got nan in row 0, column 2 \(at fault: row 0\)",
        ),
        (changed(data=[1.0, 2.0, -np.inf]), "X must be finite, got -inf in row 1, column 1"),
        (changed(indptr=[0, 2]), r"X.indptr must be of shape \(3,\), got \(2,\)"),
        (changed(indptr=[0, 2, 3, 3]), r"X.indptr must be of shape \(3,\), got \(4,\)"),
        (changed(indptr=[1, 2, 3]), "X.indptr must start at 0, got 1"),
        (changed(indptr=[-1, 2, 3]), "X.indptr must start at 0, got -1"),
        (
            changed(indptr=[0, 4, 3]),
            "indptr must not descend, got a smaller value after position 1",
        ),
        (
            changed(indptr=[0, -1, 3]),
            "indptr must not descend, got a smaller value after position 0",
        ),
        (
            changed(indptr=[0, 2, 4]),
            r"end above the length of indices \(3\) or of data \(3\), got 4",
        ),
        (changed(indptr=[0, 2, 2**62]), "X.indptr must not end above the length"),
        (
            changed(data=[1.0, 2.0]),
            r"end above the length of indices \(3\) or of data \(2\), got 3",
        ),
        (changed(indices=[0, 1]), r"end above the length of indices \(2\) or of data \(3\), got 3"),
        (changed(data=np.ones((3, 2))), "X.indices must be 1-dimensional|X.data must"),
        (changed(data=[3e38, 3e38, 1], indices=[0, 0, 1]), None),
        (sp.csr_array((0, 3)), r"X must have at least one row and one column, got \(0, 3\)"),
        (sp.csc_array((3, 0)), r"X must have at least one row and one column, got \(3, 0\)"),
        (sp.coo_array(np.ones(3)), r"X must be 2-dimensional \(users, items\), got shape \(3,\)"),
        (np.array([[1.0, np.nan]]), "X must be finite, got NaN or infinity in row 0"),
    ],
)
def test_as_interactions_names_field_and_position(X, message):
    if message is None:  # The number is finite in float64, but too large for float32.
        assert as_interactions("X", X).nnz == 2
        X.data = X.data.astype(np.float32)
        message = "X must be finite, got inf in row 0, column 0"
    with pytest.raises(ValueError, match=message):
        as_interactions("X", X)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (changed(data=[1j, 2, 3]), "X must hold real numbers, got dtype complex128"),
        (changed(data=np.array([1, "a", 3], object)), "X must hold real numbers, got dtype object"),
        (changed(indices=[0.0, 2.0, 1.0]), "X.indices must hold integers, got dtype float64"),
        (changed(indptr=[0.0, 2.0, 3.0]), "X.indptr must hold integers, got dtype float64"),
        ("text", "X must hold real numbers"),
        (None, "X must hold real numbers"),
    ],
)
def test_as_interactions_refuses_other_types(X, message):
    with pytest.raises(TypeError, match=message):
        as_interactions("X", X)


def test_as_interactions_names_five_invalid_rows():
    X = sp.csr_array(np.ones((9, 2)))
    X.data[2:] = np.nan
    with pytest.raises(
        ValueError, match=r"got nan in row 1, column 0 \(at fault: rows 1, 2, 3, 4, 5 and 3 more\)"
    ):
        as_interactions("X", X)


def test_as_interactions_names_the_argument():
    with pytest.raises(ValueError, match=r"^exclude\.indptr must start at 0"):
        as_interactions("exclude", changed(indptr=[1, 2, 3]))


def test_as_interactions_names_fields_of_other_formats():
    csc = sp.csc_array(np.eye(3))
    csc.indices = np.array([0, 1, 3])
    coo = sp.coo_array(np.eye(3))
    coo.coords = (coo.coords[0], np.array([0, -1, 2]))
    lil = sp.lil_array(np.eye(3))
    lil.data[1].append(5.0)
    dia = sp.dia_array(np.eye(3))
    dia.offsets = np.array([0, 1])
    twice = sp.dia_array((np.ones((2, 3)), [0, 1]), shape=(3, 3))
    twice.offsets = np.array([1, 1])
    bsr = sp.bsr_array(np.eye(4), blocksize=(2, 2))
    bsr.indices = np.array([0, 2])
    for X, message in (
        (csc, "X.indices must be from 0 to 2, got 3 at position 2"),
        (coo, "X.col must be from 0 to 2, got -1 at position 1"),
        (lil, "X.rows and .data must have lists of the same lengths"),
        (dia, r"X.offsets must contain 1 whole numbers, one per row of data"),
        (twice, r"X.offsets must differ from each other, got \[1, 1\]"),
        (bsr, "X.indices must be from 0 to 1, got 2 at position 1"),
    ):
        with pytest.raises(ValueError, match=message):
            as_interactions("X", X)


@pytest.mark.parametrize("outside", [-(2**31), -3, 3, 2**31 - 1])
def test_as_interactions_ignores_diagonals_outside(outside):
    X = sp.dia_array((np.ones((2, 3)), [0, 1]), shape=(3, 3))
    X.offsets = np.array([0, outside], np.int32)
    np.testing.assert_array_equal(as_interactions("X", X).toarray(), np.eye(3))


# random matrices


def crash_free_cases(seed, cases, *forms):
    done = subprocess.run(
        [sys.executable, "-m", "tests.robustness.malformed_sparse", str(seed), str(cases), *forms],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    refused, accepted = map(int, done.stdout.split())
    assert min(refused, accepted) > cases / 10
    return refused + accepted


@pytest.mark.slow
def test_400_malformed_matrices_do_not_crash():
    assert crash_free_cases(0, 400, *FORMATS) == 400


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, 11))
def test_20_000_malformed_matrices_do_not_crash(seed):
    assert crash_free_cases(seed, 1000, "csr") + crash_free_cases(seed, 1000, *FORMATS) == 2000


@pytest.mark.parametrize("field", ["row", "col"])
def test_as_interactions_refuses_missing_coordinates(field):
    X = sp.coo_array(np.eye(4))
    coordinates = [X.row[:-1], X.col] if field == "row" else [X.row, X.col[:-1]]
    X.coords = tuple(coordinates)
    with pytest.raises(ValueError, match=rf"X\.{field} must be as long as data \(4\), got 3"):
        as_interactions("X", X)
