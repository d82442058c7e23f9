"""Inverted lists, compared with NumPy; kernels must not write outside their rows."""

import numpy as np
import pytest

from fastcos.kernels import inverted_lists, records

LENGTHS = [0, 1, 2, 3, 4, 5, 7, 8, 9, 31, 64, 70]
M = 80


def frozen(array):
    array.flags.writeable = False
    return array


def lists(rng, lengths=LENGTHS):
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    items = np.concatenate([np.sort(rng.permutation(M)[:length]) for length in lengths])
    return frozen(indptr), items, rng.integers(-32767, 32768, len(items)).astype(np.int16)


def packed(items, values):
    return frozen((values.astype(np.int32) << 16) | items.astype(np.int32))


# Numba compiles separate code for each layout. The two layouts of the default tests cover sums of
# integers and of real numbers.
@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    ["packed", "real", "ones", "wide ones", "apart"],
)
def test_add_lists_accumulates_every_layout(kind):
    rng = np.random.default_rng(0)
    indptr, items, item_values = lists(rng)
    columns = frozen(rng.permutation(np.repeat(np.arange(len(LENGTHS)), 3)).astype(np.int32))
    values = frozen(rng.integers(-300, 300, len(columns)).astype(np.int16))
    # The value of each entry of a list.
    entry = np.ones(len(items), np.int64) if "ones" in kind else item_values.astype(np.int64)
    dtype, narrow = np.int32, frozen(items.astype(np.uint16))
    queries, of_items, stored_values = values, narrow, frozen(item_values)
    if kind == "real":
        dtype, queries, stored_values = np.float64, frozen(values / 8), frozen(item_values / 4)
    elif kind == "packed":
        of_items, stored_values = packed(items, item_values), None
    elif "ones" in kind:
        queries, stored_values = None, None
        of_items = frozen(items.astype(np.int32)) if kind == "wide ones" else narrow
    first, last = 2, len(columns) - 1
    sums = np.full(M, 5, dtype)
    inverted_lists.add_lists(first, last, columns, queries, indptr, of_items, stored_values, sums)
    expected = np.full(M, 5, np.float64)
    for t in range(first, last):
        at = slice(indptr[columns[t]], indptr[columns[t] + 1])
        factor = 1 if queries is None else queries[t]
        expected[items[at]] += float(factor) * entry[at] / (4 if kind == "real" else 1)
    np.testing.assert_array_equal(sums, expected)


@pytest.mark.parametrize(
    ("value", "is_whole"),
    [(3, True), (-32767, True), (32767, True), (32768, False), (-32768, False), (2.5, False),
     (1e30, False)],
)  # fmt: skip
def test_find_whole_rows_finds_int16_rows(value, is_whole):
    indptr = frozen(np.array([0, 2, 2, 5, 6]))
    data = frozen(np.array([1, 2, 4, value, 7, 0.5], np.float32))
    result = np.full(4, not is_whole)
    inverted_lists.find_whole_rows(1, 3, indptr, data, result)
    assert result.tolist() == [not is_whole, is_whole, is_whole, not is_whole]


@pytest.mark.slow
@pytest.mark.parametrize("has_values", [True, False])
def test_take_rows_permutes_rows(has_values):
    rng = np.random.default_rng(1)
    indptr, items, values = lists(rng, LENGTHS * 3)
    n = len(indptr) - 1
    order = frozen(rng.permutation(n))
    taken_indptr = frozen(np.concatenate([[0], np.cumsum(np.diff(indptr)[order])]))
    taken = np.full(len(items), 249, np.uint16)
    halves = np.full((len(items), 2), -7, np.int16)
    data = frozen(values.astype(np.float32)) if has_values else None
    lo, hi = 3, n - 2
    inverted_lists.take_rows(
        lo, hi, order, records.Csr(indptr, frozen(items.astype(np.int32)), data),
        records.Csr(taken_indptr, taken, halves[:, 1] if has_values else None),
    )  # fmt: skip
    inside = slice(taken_indptr[lo], taken_indptr[hi])
    rows = [slice(indptr[i], indptr[i + 1]) for i in order[lo:hi]]
    np.testing.assert_array_equal(taken[inside], np.concatenate([items[row] for row in rows]))
    expected = np.full(len(items), -7)
    if has_values:
        expected[inside] = np.concatenate([values[row] for row in rows])
    np.testing.assert_array_equal(halves[:, 1], expected)
    assert (halves[:, 0] == -7).all()
    assert (taken[: inside.start] == 249).all()
    assert (taken[inside.stop :] == 249).all()
