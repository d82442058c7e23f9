"""A script: breaks sparse matrices at random, and passes them to `as_interactions`.

    python malformed_sparse.py SEED CASES FORMAT...

Every case must return the correct matrix (according to plain loops), or raise a ValueError or
TypeError that names the argument. The input must not change. Tests start this script as a separate
process, because a crash would end the process; stderr names the current case. The script prints how
many cases were refused and accepted.
"""

import faulthandler
import math
import sys
import warnings
from collections import defaultdict

import numpy as np
import scipy.sparse as sp

from fastcos.linalg.csr import as_interactions

faulthandler.enable()
warnings.simplefilter("ignore")  # about SciPy's diagonals
BAD_INDICES = (-1, -7, -(2**31), 2**30, 2**31 - 1)


# The reference: plain loops compute the entries of a matrix. The result is None if the arrays do
# not form a matrix.


def meaning(X):
    entries = defaultdict(list)
    try:
        for row, column, value in ENTRIES[X.format](X):
            if not (0 <= row < X.shape[0] and 0 <= column < X.shape[1]):
                return None
            entries[row, column].append(float(value))
        sums = {at: math.fsum(values) for at, values in entries.items()}
    except (IndexError, ValueError, TypeError, OverflowError):
        return None
    if not all(math.isfinite(value) for value in sums.values()):
        return None
    return {at: value for at, value in sums.items() if value}


def csr_entries(X):
    yield from compressed_entries(X, X.shape[0])


def csc_entries(X):
    for column, row, value in compressed_entries(X, X.shape[1]):
        yield row, column, value


def bsr_entries(X):
    height, width = X.data.shape[1:]
    for row, column, block in compressed_entries(X, X.shape[0] // height):
        for i in range(height):
            for j in range(width):
                if not 0 <= column < X.shape[1] // width:
                    raise IndexError
                yield row * height + i, column * width + j, block[i, j]


def compressed_entries(X, n):
    indptr = X.indptr.tolist()
    if len(indptr) != n + 1 or indptr[0] != 0 or any(map(int.__gt__, indptr[:-1], indptr[1:])):
        raise ValueError
    for row in range(n):
        for t in range(indptr[row], indptr[row + 1]):
            yield row, int(X.indices[t]), X.data[t]


def coo_entries(X):
    yield from zip(X.coords[0].tolist(), X.coords[1].tolist(), X.data.tolist(), strict=True)


def lil_entries(X):
    for row, (columns, values) in enumerate(zip(X.rows, X.data, strict=True)):
        for column, value in zip(columns, values, strict=True):
            yield row, column, X.dtype.type(value)


def dok_entries(X):
    for (row, column), value in X._dict.items():
        yield row, column, X.dtype.type(value)


def dia_entries(X):
    if len(set(X.offsets.tolist())) < len(X.offsets):
        raise ValueError
    for offset, values in zip(X.offsets.tolist(), X.data, strict=True):
        for column, value in enumerate(values.tolist()):
            if 0 <= column - offset < X.shape[0] and column < X.shape[1]:
                yield column - offset, column, value


ENTRIES = {
    name: globals()[f"{name}_entries"] for name in ("csr", "csc", "bsr", "coo", "lil", "dok", "dia")
}


# what breaks them


def replaced(array, at, value):
    other = array.astype(np.int64 if array.dtype.itemsize < 4 else array.dtype)
    if len(other):
        other[at % len(other)] = np.int64(value).astype(other.dtype)
    return other


def break_indices(X, rng):
    value = rng.choice([*BAD_INDICES, *X.shape, max(X.shape) + 3])
    X.indices = replaced(X.indices, rng.integers(1000), value)


def break_indptr(X, rng):
    value = rng.choice([-1, 0, 1, 5, len(X.indices), len(X.indices) + 1, 2**31 - 1])
    X.indptr = replaced(X.indptr, rng.integers(1000), value)


def break_first_indptr(X, rng):
    X.indptr = replaced(X.indptr, 0, rng.choice([-1, 1]))


def break_last_indptr(X, rng):
    X.indptr = replaced(X.indptr, -1, rng.choice([0, len(X.indices) + 1, 2**31 - 1]))


def cut_indptr(X, rng):
    X.indptr = X.indptr[:-1] if rng.random() < 0.5 else np.append(X.indptr, X.indptr[-1])


def cut_data(X, rng):
    X.data = X.data[: len(X.data) // 2]


def cut_indices(X, rng):
    X.indices = X.indices[: len(X.indices) // 2]


def add_trailing_data(X, rng):
    X.indices = np.append(X.indices, np.full(3, -9).astype(X.indices.dtype))
    X.data = np.concatenate([X.data, np.full((3, *X.data.shape[1:]), 99, X.data.dtype)])


def unsort(X, rng):
    X.indices = X.indices[::-1].copy()
    X.has_sorted_indices = True  # a stale flag


def duplicate(X, rng):
    if len(X.indices):
        X.indices = np.full_like(X.indices, X.indices[0])
    X.has_canonical_format = True


def change_types(X, rng):
    X.indices = X.indices.astype(rng.choice(["i8", "i2", "u4", ">i4", "f8", "u8"]))
    X.indptr = X.indptr.astype(rng.choice(["i8", "i4", "u8", ">i8", "f4"]))


def stride(X, rng):
    X.indices = np.repeat(X.indices, 2)[::2]
    X.data = np.repeat(X.data, 2, axis=0)[::2]


def break_values(X, rng):
    if X.data.dtype.kind == "f":
        values = X.data.copy()
        values.flat[rng.integers(max(1, values.size)) :][:1] = rng.choice(
            [np.nan, np.inf, -np.inf, 0, -0.0, 5e-324]
        )
        X.data = values


def overflow(X, rng):
    if X.data.dtype.kind == "f":
        X.data = np.full_like(X.data, np.finfo(X.data.dtype).max)


def break_coordinates(X, rng):
    axis = int(rng.integers(2))
    coordinates = list(X.coords)
    value = rng.choice([*BAD_INDICES, X.shape[axis]])
    coordinates[axis] = replaced(coordinates[axis], rng.integers(1000), value)
    X.coords = tuple(coordinates)


def cut_coordinates(X, rng):
    X.coords = (X.coords[0][: len(X.coords[0]) // 2], X.coords[1])


def repeat_coordinates(X, rng):
    X.coords = tuple(np.zeros_like(c) for c in X.coords)
    X.has_canonical_format = True


def break_list(X, rng):
    X.rows[rng.integers(X.shape[0])].append(int(rng.choice([*BAD_INDICES, X.shape[1], 0])))
    if rng.random() < 0.7:
        X.data[rng.integers(X.shape[0])].append(2.0)


def drop_value(X, rng):
    row = X.data[rng.integers(X.shape[0])]
    if row:
        row.pop()


def break_key(X, rng):
    column = int(rng.choice([-1, 2**30, X.shape[1]]))
    X._dict[(int(rng.integers(X.shape[0])), column)] = 1.0


def break_row_key(X, rng):
    X._dict[(int(rng.choice([-3, 2**30, X.shape[0]])), 0)] = 1.0


def break_offsets(X, rng):
    X.offsets = replaced(X.offsets, rng.integers(1000), rng.choice([*BAD_INDICES, *X.offsets, 40]))


def cut_offsets(X, rng):
    X.offsets = X.offsets[:-1]


def cut_diagonals(X, rng):
    X.data = X.data[:, : X.data.shape[1] // 2]


COMPRESSED = (
    break_indices, break_indptr, break_first_indptr, break_last_indptr, cut_indptr, cut_data,
    cut_indices, add_trailing_data, unsort, duplicate, change_types, stride, break_values, overflow,
)  # fmt: skip
BREAKERS = {
    "csr": COMPRESSED,
    "csc": COMPRESSED,
    "bsr": COMPRESSED,
    "coo": (break_coordinates, cut_coordinates, repeat_coordinates, cut_data, break_values),
    "lil": (break_list, drop_value),
    "dok": (break_key, break_row_key),
    "dia": (break_offsets, cut_offsets, cut_diagonals, break_values),
}


def drawn(rng, form):
    shape = (2 * int(rng.integers(1, 8)), 2 * int(rng.integers(1, 8)))
    dense = rng.integers(-3, 4, shape) * (rng.random(shape) < rng.choice([0.0, 0.2, 0.9]))
    X = sp.csr_array(dense.astype(rng.choice(["f4", "f8", "i8", "i1", "?"])))
    X = sp.bsr_array(X, blocksize=(2, 2)) if form == "bsr" else X.asformat(form)
    return getattr(sp, f"{form}_matrix")(X) if rng.random() < 0.5 else X


def fields_of(X):
    """Return a dict from the name of each array of X to the content of the array as text."""
    names = ("indptr", "indices", "data", "coords", "offsets", "rows", "_dict")
    return {n: repr(np.asarray(getattr(X, n), object).tolist()) for n in names if hasattr(X, n)}


def try_case(rng, form):
    X = drawn(rng, form)
    for breaker in rng.choice(np.array(BREAKERS[form], object), rng.integers(0, 3)):
        breaker(X, rng)
        print(form, breaker.__name__, file=sys.stderr, flush=True)
    before, truth = fields_of(X), meaning(X)
    refusal = None
    try:
        clean = as_interactions("X", X)
    except (ValueError, TypeError) as error:
        refusal = str(error)
    if refusal is None:
        assert truth is not None, f"accepted: {before}"
        check(clean, truth, X.shape)
    else:
        assert refusal.startswith("X"), refusal
        assert " must " in refusal, refusal
        # A sum may be too large for float32 although it fits into float64.
        excused = "hold integers" in refusal or "be finite" in refusal
        assert truth is None or excused, (refusal, before)
    assert fields_of(X) == before, "the input has changed"
    return refusal is None


def check(clean, truth, shape):
    assert clean.shape == shape
    assert clean.dtype in (np.float32, np.float64)
    assert clean.indices.dtype in (np.int32, np.int64)
    results = {}
    for row in range(shape[0]):
        at = range(clean.indptr[row], clean.indptr[row + 1])
        columns = [int(clean.indices[t]) for t in at]
        assert columns == sorted(set(columns)), "not sorted or not unique"
        results |= {(row, int(clean.indices[t])): float(clean.data[t]) for t in at}
    assert set(results) == set(truth), (results, truth)
    assert all(math.isclose(results[at], truth[at], rel_tol=1e-6) for at in truth)


if __name__ == "__main__":
    seed, cases, forms = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    accepted = 0
    for case in range(cases):
        print("case", case, file=sys.stderr, flush=True)
        accepted += try_case(np.random.default_rng([seed, case]), forms[case % len(forms)])
    print(cases - accepted, accepted)
