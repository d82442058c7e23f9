"""Argument checks return valid values in one form, and refuse all other values.

The message of a refusal names the argument and the rule.
"""

import os
import re
import subprocess
import sys
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as hnp

from fastcos import validation

# numbers


@pytest.mark.parametrize("value", [3, 3.0, np.int8(3), np.uint64(3), np.float32(3), np.array(3)])
def test_as_count_accepts_any_whole_number(value):
    count = validation.as_count("k", value, 1, 3)
    assert count == 3
    assert type(count) is int


@pytest.mark.parametrize(
    "value",
    [0, 4, -1, 2.5, "2", True, np.True_, None, np.nan, np.inf, [2], 2j, 10**30],
)
def test_as_count_refuses_other_values(value):
    message = f"k must be a whole number from 1 to 3, got {value!r}"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        validation.as_count("k", value, 1, 3)


def test_messages_name_an_array_by_its_shape():
    for refuse in (validation.as_count, validation.as_real, validation.as_flag):
        with pytest.raises(ValueError, match=r", got an array of shape \(9, 9\)$"):
            refuse("k", np.ones((9, 9)))


def test_as_count_without_upper_bound():
    assert validation.as_count("n", 10**30) == 10**30
    assert validation.as_count("seed", 0, low=0) == 0
    with pytest.raises(ValueError, match=r"^n must be a whole number of at least 1, got 0$"):
        validation.as_count("n", 0)


@given(st.integers(-10, 10), st.integers(-10, 10), st.integers(-10, 10))
def test_as_count_accepts_exactly_its_range(value, low, high):
    if low <= value <= high:
        assert validation.as_count("n", value, low, high) == value
    else:
        with pytest.raises(ValueError, match=f"from {low} to {high}, got {value}"):
            validation.as_count("n", value, low, high)


@pytest.mark.parametrize(
    ("text", "number"), [("2", 2.0), (" 1e3 ", 1000.0), (4, 4.0), ("-0.5", -0.5)]
)
def test_as_number_reads_text(text, number):
    assert validation.as_number("N", text) == number


@pytest.mark.parametrize("text", ["", "two", "1,5", None, [1]])
def test_as_number_refuses_other_text(text):
    with pytest.raises(ValueError, match=rf"^N must be a number, got {re.escape(repr(text))}$"):
        validation.as_number("N", text)


@pytest.mark.parametrize(
    "value", [1, 1.0, np.float32(1), np.int8(1), np.array(1.0), Fraction(1), Decimal(1)]
)
def test_as_real_accepts_any_number(value):
    assert validation.as_real("x", value, low=1, above=0, high=1) == 1.0
    assert type(validation.as_real("x", value)) is float


@pytest.mark.parametrize(
    ("bounds", "rule", "value"),
    [
        ({}, "a finite number", np.nan),
        ({}, "a finite number", np.inf),
        ({}, "a finite number", -np.inf),
        ({}, "a finite number", "1"),
        ({}, "a finite number", b"1"),
        ({}, "a finite number", True),
        ({}, "a finite number", np.True_),
        ({}, "a finite number", None),
        ({}, "a finite number", 1j),
        ({}, "a finite number", 10**400),
        ({}, "a finite number", [1.0]),
        ({"low": 0}, "a finite number >= 0", -1e-300),
        ({"above": 0}, "a finite number > 0", 0),
        ({"high": 1}, "a finite number <= 1", 1.0000001),
        ({"low": 0, "high": 1}, "a finite number >= 0 and <= 1", 2),
        ({"above": 1, "high": 2.5}, "a finite number > 1 and <= 2.5", 1),
    ],
)
def test_as_real_refuses_values_out_of_bounds(bounds, rule, value):
    got = f"{value!r}" if not isinstance(value, int) else f"{value}"[:15]  # long ones are cut
    message = f"x must be {rule}, got {got}"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}") as caught:
        validation.as_real("x", value, **bounds)
    assert len(str(caught.value)) < 120


def test_as_real_accepts_closed_bounds():
    assert validation.as_real("x", 0, low=0) == 0
    assert validation.as_real("x", 1, high=1) == 1
    assert validation.as_real("x", 1e-300, above=0) == 1e-300


def test_as_choice_accepts_only_the_choices():
    assert validation.as_choice("kind", "a", ("a", "b")) == "a"
    for value in ("c", "", "A", None, 1, ["a"], np.nan):
        message = f"kind must be one of a, b, got {value!r}"
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            validation.as_choice("kind", value, ("a", "b"))


def test_as_flag_accepts_only_booleans():
    assert validation.as_flag("f", True) is True
    assert validation.as_flag("f", np.False_) is False
    for value in (0, 1, "yes", None):
        with pytest.raises(ValueError, match=f"^f must be True or False, got {value!r}$"):
            validation.as_flag("f", value)


def test_as_generator_takes_a_seed_or_a_generator():
    rng = np.random.default_rng(3)
    assert validation.as_generator("seed", rng) is rng
    assert validation.as_generator("seed", 3).random() == np.random.default_rng(3).random()
    for value in (-1, 1.5, None, "x", True):
        with pytest.raises(ValueError, match=r"^seed must be a whole number of at least 0, got"):
            validation.as_generator("seed", value)


# rows

TABLE = np.array([[1, 2, 3], [4, 5, 6]])
MASKED = "X must be an array without a mask, got a masked array (use .filled(value))"
UINT8 = (
    "X must not be uint8, which may be packed bits, got shape (2, 3). If the rows are "
    "numbers, convert them by .astype('float32'). If they are packed bits, pass them to top_k with "
    "measure='hamming', or unpack them by np.unpackbits(rows, axis=1)"
)
V2 = "X must hold real numbers, got dtype |V2 (bfloat16? give .view(ml_dtypes.bfloat16))"


def memory_mapped(tmp_path):
    np.save(tmp_path / "rows.npy", TABLE.astype("f4"))
    return np.load(tmp_path / "rows.npy", mmap_mode="r")


def locked(array):
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    ("X", "dtype"),
    [
        (TABLE.astype("f4"), np.float32),
        (TABLE.astype("f2"), np.float32),
        (TABLE.astype("f8"), np.float64),
        (TABLE.astype(np.longdouble), np.float64),
        (TABLE.astype("i1"), np.float64),
        (TABLE.astype("u8"), np.float64),
        (TABLE.astype(object), np.float64),
        ([*TABLE.astype("f4")], np.float32),
        (TABLE.astype(">f8"), np.float64),
        (TABLE.tolist(), np.float64),
        (tuple(map(tuple, TABLE)), np.float64),
        (np.asfortranarray(TABLE, "f4"), np.float32),
        (np.repeat(TABLE.astype("f4"), 2, axis=1)[:, ::2], np.float32),
        (TABLE.astype("f4")[::-1][::-1], np.float32),
        (TABLE.astype("f4").view(np.matrix), np.float32),
        (locked(TABLE.astype("f8")), np.float64),
    ],
)
def test_as_rows_converts_any_layout_and_type(X, dtype):
    rows = validation.as_rows("X", X)
    assert type(rows) is np.ndarray
    assert rows.dtype == dtype
    assert rows.dtype.isnative
    assert rows.flags.c_contiguous
    assert not rows.flags.writeable
    np.testing.assert_array_equal(rows, TABLE)


def test_as_rows_converts_booleans():
    np.testing.assert_array_equal(validation.as_rows("X", TABLE > 2), [[0, 0, 1], [1, 1, 1]])


def test_as_rows_does_not_copy_a_memory_map(tmp_path):
    X = memory_mapped(tmp_path)
    rows = validation.as_rows("X", X)
    assert np.shares_memory(rows, X)
    np.testing.assert_array_equal(rows, TABLE)


def test_as_rows_does_not_copy_or_lock_valid_rows():
    X = TABLE.astype("f4")
    rows = validation.as_rows("X", X)
    assert np.shares_memory(rows, X)
    assert X.flags.writeable


def test_as_rows_converts_to_dtype():
    assert validation.as_rows("X", TABLE.astype("f8"), dtype=np.float32).dtype == np.float32
    assert validation.as_rows("X", TABLE.astype("f4"), dtype=np.float64).dtype == np.float64


def test_as_rows_accepts_a_data_frame():
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    np.testing.assert_array_equal(validation.as_rows("X", pandas.DataFrame(TABLE)), TABLE)
    with pytest.raises(TypeError, match="X must hold real numbers, got dtype object with str"):
        validation.as_rows("X", pandas.DataFrame({"a": [1, 2], "b": ["x", "y"]}))


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.array(1.0), "X must be 2-dimensional (rows, columns), got shape ()"),
        ([1.0, 2.0], "X must be 2-dimensional (rows, columns), got shape (2,)"),
        (np.ones((1, 2, 3)), "X must be 2-dimensional (rows, columns), got shape (1, 2, 3)"),
        ([], "X must be 2-dimensional (rows, columns), got shape (0,)"),
        (np.ones((0, 3)), "X must have at least one row and one column, got (0, 3)"),
        (np.ones((3, 0)), "X must have at least one row and one column, got (3, 0)"),
        (
            [[1.0, 2.0], [3.0]],
            "X must have rows of one length, got 2 numbers in row 0 and 1 in row 1",
        ),
        (
            [[1.0, np.nan]],
            "X must be finite, got NaN or infinity in row 0 (counted from 0)",
        ),
        (
            np.where(np.arange(8)[:, None] == [3, 3], -np.inf, 1),
            "X must be finite, got NaN or infinity in row 3 (counted from 0)",
        ),
        (
            np.full((7, 2), np.inf, "f4"),
            "X must be finite, got NaN or infinity in rows 0, 1, 2, 3, 4 and 2 more "
            "(counted from 0)",
        ),
    ],
)
def test_as_rows_refuses_wrong_shapes_and_values(X, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        validation.as_rows("X", X)


class Unreadable:
    def __array__(self, *types, **options):
        raise ValueError("of two readings")


def objects(*rows):
    return np.fromiter(rows, object, len(rows))


@pytest.mark.parametrize(
    ("X", "end"),
    [
        ([np.array(1.0), [1, 2]], "shape, got () in row 0 and (2,) in row 1"),
        (["ab", [1, 2]], "shape, got () in row 0 and (2,) in row 1"),
        (objects(np.ones((2, 2)), np.ones(4)), "shape, got (2, 2) in row 0 and (4,) in row 1"),
        (objects([[1, 2, 3]], [1, 2, 3]), "shape, got (1, 3) in row 0 and (3,) in row 1"),
        (objects([1, 2], [3, 4], [5]), "length, got 2 numbers in row 0 and 1 in row 2"),
        ([[1, [2]], [3]], "length, got rows that differ"),
        (Unreadable(), "length, got rows that differ"),
    ],
)
def test_as_rows_refuses_rows_that_differ(X, end):
    with pytest.raises(ValueError, match=f"^X must have rows of one {re.escape(end)}$"):
        validation.as_rows("X", X)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (sp.csr_array(np.ones((2, 2))), "X must be a dense array, got a sparse matrix"),
        (np.ma.masked_less(TABLE, 3), MASKED),
        (TABLE.astype(complex), "X must hold real numbers, got dtype complex128"),
        (TABLE.astype("u1"), UINT8),
        ([["a", "b"]], "X must hold real numbers, got dtype <U1"),
        (TABLE.astype("M8[D]"), "X must hold real numbers, got dtype datetime64[D]"),
        (None, "X must hold real numbers, got dtype object with NoneType"),
        ({"a": 1}, "X must hold real numbers, got dtype object with dict"),
        ([[1, "a", None]], "X must hold real numbers, got dtype object with str"),
        (np.zeros((2, 2), "V2"), V2),
    ],
)
def test_as_rows_refuses_other_types(X, message):
    with pytest.raises(TypeError, match=f"^{re.escape(message)}$"):
        validation.as_rows("X", X)


def test_as_rows_refuses_values_too_large_for_dtype():
    with pytest.raises(ValueError, match="X must be finite"):
        validation.as_rows("X", [[1e300]], dtype=np.float32)
    with pytest.raises(ValueError, match="X must be finite"):
        validation.as_rows("X", np.array([[np.longdouble("1e4000")]]))


def test_as_rows_keeps_extreme_values():
    X = np.array([[np.finfo("f8").max, -np.finfo("f8").max, 5e-324, -0.0]])
    assert validation.as_rows("X", X).tobytes() == X.tobytes()


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(
    hnp.arrays(
        st.sampled_from([np.float16, np.float32, np.float64]),
        hnp.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=5),
    )
)
def test_as_rows_accepts_exactly_finite_rows(X):
    before = X.tobytes()
    if np.isfinite(X).all():
        np.testing.assert_array_equal(validation.as_rows("X", X), X)
    else:
        row = np.flatnonzero(~np.isfinite(X).all(axis=1))[0]
        with pytest.raises(ValueError, match=rf"in rows? {row}\b"):
            validation.as_rows("X", X)
    assert X.tobytes() == before


def test_check_same_width_and_check_length():
    rows = validation.as_rows("items", TABLE)
    validation.check_same_width("items", rows, "queries", np.ones((9, 3)))
    validation.check_length("A", rows, 2, "X has columns")
    with pytest.raises(
        ValueError, match=r"^items must have as many columns as queries \(4\), got 3$"
    ):
        validation.check_same_width("items", rows, "queries", np.ones((9, 4)))
    with pytest.raises(
        ValueError, match=r"^A must have as many rows as X has columns \(5\), got 2$"
    ):
        validation.check_length("A", rows, 5, "X has columns")


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_check_scorable_refuses_overflow(dtype):
    large = validation.as_rows("X", np.full((2, 4), np.finfo(dtype).max, dtype))
    small = validation.as_rows("X", np.ones((2, 4), dtype))
    validation.check_scorable("X", small, small)
    if dtype == np.float32:  # The products are computed in float64.
        validation.check_scorable("X", large, large)
        return
    for pair in ((large, small), (small, large), (-large, small)):
        with pytest.raises(
            ValueError, match=r"^X must have entries whose squares can be summed, got"
        ):
            validation.check_scorable("X", *pair)
    edge = np.full((1, 4), 1e150 / 4)
    validation.check_scorable("X", edge, edge)
    assert np.isfinite((edge * edge).sum())


# vectors and labels


def test_as_vector_converts_any_layout_and_type():
    for values in ([1, 2], (1.0, 2.0), np.array([1, 2], "i1"), np.array([1, 9, 2], "f4")[::2]):
        vector = validation.as_vector("v", values, 2)
        assert vector.dtype == np.float64
        assert not vector.flags.writeable
        np.testing.assert_array_equal(vector, [1, 2])


@pytest.mark.parametrize(
    ("values", "length", "message"),
    [
        ([1.0], 2, "v must be of shape (2,), got shape (1,)"),
        ([[1.0]], None, "v must be 1-dimensional, got shape (1, 1)"),
        (1.0, None, "v must be 1-dimensional, got shape ()"),
        ([0.0, np.nan], None, "v must be finite, got nan at position 1"),
        ([0.0, 1.0, -np.inf, np.nan], None, "v must be finite, got -inf at position 2"),
        (
            [[1.0], [1.0, 2.0]],
            None,
            "v must have rows of one length, got 1 numbers in row 0 and 2 in row 1",
        ),
    ],
)
def test_as_vector_refuses_wrong_shapes_and_values(values, length, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        validation.as_vector("v", values, length)


@pytest.mark.parametrize("values", [["a"], [1j], [None], np.ma.array([1.0], mask=[True])])
def test_as_vector_refuses_other_types(values):
    with pytest.raises(TypeError, match=r"^v must "):
        validation.as_vector("v", values)


def test_as_positive_diagonal_refuses_other_values():
    np.testing.assert_array_equal(validation.as_positive_diagonal("D", [1e-300, 2], 2), [1e-300, 2])
    for values, message in (
        ([1, 0], "D must be positive, got 0 at position 1"),
        ([-2, 0], "D must be positive, got -2 at position 0"),
        ([1, np.nan], "D must be finite, got nan at position 1"),
        ([1], r"D must be of shape \(2,\), got shape \(1,\)"),
    ):
        with pytest.raises(ValueError, match=f"^{message}$"):
            validation.as_positive_diagonal("D", values, 2)


def test_as_probabilities_sum_to_one():
    np.testing.assert_allclose(validation.as_probabilities("p", [1, 0, 3], 3), [0.25, 0, 0.75])
    np.testing.assert_allclose(validation.as_probabilities("p", [1e308, 1e308], 2), [0.5, 0.5])
    np.testing.assert_allclose(validation.as_probabilities("p", [0.2, 0.6], 2), [0.25, 0.75])
    for values in ([0, 0], [1, -1]):
        with pytest.raises(ValueError, match=r"^p must be at least 0 and not all 0, got"):
            validation.as_probabilities("p", values, 2)


@pytest.mark.parametrize(
    ("labels", "codes"),
    [
        ([30, 10, 30], [1, 0, 1]),
        (["b", "a", "b"], [1, 0, 1]),
        (np.array(["b", "a", "b"]), [1, 0, 1]),
        (np.array(["b", "a", "bb"], object), [1, 0, 2]),
        (np.array([10, 9, 2], object), [2, 1, 0]),
        ([np.int64(5), 4, np.int8(5)], [1, 0, 1]),
        (np.array([-1, 3, 3], "i1"), [0, 1, 1]),
        ([True, False, True], [1, 0, 1]),
        (("x", "x", "y"), [0, 0, 1]),
    ],
)
def test_as_labels_numbers_sorted_values(labels, codes):
    result = validation.as_labels("labels", labels, 3)
    assert result.dtype == np.int64
    assert not result.flags.writeable
    assert result.tolist() == codes


@pytest.mark.parametrize(
    "labels",
    [
        ["a", np.nan, "b"],
        ["a", 1, "b"],
        [1, "a", 2],
        ["a", None, "b"],
        [1.0, 2.0, 1.0],
        [1, 2.5, 1],
        np.array([1.0, 2.0, 1.0]),
        np.array([b"a", b"b", b"a"]),
        [(1,), (2,), 3],
    ],
)
def test_as_labels_refuses_other_types(labels):
    with pytest.raises(TypeError, match=r"^labels must hold integers or strings"):
        validation.as_labels("labels", labels, 3)


def test_as_labels_refuses_wrong_lengths_and_one_class():
    with pytest.raises(ValueError, match=r"^labels must be of shape \(3,\), got \(2,\)$"):
        validation.as_labels("labels", [1, 2], 3)
    with pytest.raises(ValueError, match=r"^labels must be of shape \(2,\), got \(2, 1\)$"):
        validation.as_labels("labels", [[1], [2]], 2)
    with pytest.raises(ValueError, match=r"^labels must have at least two different .*got 1$"):
        validation.as_labels("labels", ["a", "a"], 2)


def test_as_partial_labels_marks_missing_labels():
    assert validation.as_partial_labels("l", ["b", None, "a"], 3).tolist() == [1, -1, 0]
    assert validation.as_partial_labels("l", [None, 7, 5, 7], 4).tolist() == [-1, 1, 0, 1]
    with pytest.raises(ValueError, match=r"^l must have at least two different values, got 1$"):
        validation.as_partial_labels("l", ["b", None, "b"], 3)
    with pytest.raises(ValueError, match=r"^l must have at least two different values, got 0$"):
        validation.as_partial_labels("l", [None, None], 2)
    with pytest.raises(ValueError, match=r"^l must be of shape \(2,\), got \(1,\)$"):
        validation.as_partial_labels("l", ["a"], 2)
    with pytest.raises(TypeError, match=r"^l must hold integers or strings, or None .* in row 1$"):
        validation.as_partial_labels("l", ["a", float("nan"), "b", None], 4)


@pytest.mark.parametrize(
    ("items", "numbers"),
    [
        ([True, False, True], [0, 2]),
        ([2, 0, 2], [0, 2]),
        (np.array([2, 1], "u1"), [1, 2]),
        (np.zeros(3, bool), []),
    ],
)
def test_as_item_numbers_takes_mask_or_list(items, numbers):
    result = validation.as_item_numbers("allowed", items, 3)
    assert result.tolist() == numbers
    assert result.dtype == np.int64


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([True, False], r"allowed must be of shape \(3,\), got \(2,\)"),
        ([0, 3], "allowed must hold item numbers from 0 to 2, got 0 to 3"),
        ([-1, 0], "allowed must hold item numbers from 0 to 2, got -1 to 0"),
        (np.array([2**63], "u8"), "allowed must hold item numbers from 0 to 2, got"),
    ],
)
def test_as_item_numbers_refuses_numbers_out_of_range(items, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        validation.as_item_numbers("allowed", items, 3)


@pytest.mark.parametrize("items", [[0.0], [[0]], "01", 1])
def test_as_item_numbers_refuses_other_types(items):
    with pytest.raises(TypeError, match=r"^allowed must be a one-dimensional array, either"):
        validation.as_item_numbers("allowed", items, 3)


def test_as_item_numbers_refuses_a_mask_of_integers():
    for mask in (np.array([0, 1, 1], "u1"), [1, 0, 0]):
        with pytest.raises(TypeError, match=r"^allowed must be item numbers or a mask of booleans"):
            validation.as_item_numbers("allowed", mask, 3)
    assert validation.as_item_numbers("allowed", [0, 1, 1], 2).tolist() == [0, 1]


@pytest.mark.parametrize(
    "convert", [validation.as_item_numbers, validation.as_labels, validation.as_partial_labels]
)
def test_checks_of_vectors_refuse_masks(convert):
    with pytest.raises(TypeError, match=r"^v must be an array without a mask"):
        convert("v", np.ma.array([0, 1, 2], mask=[True, False, False]), 3)


# paths, instances, messages


def test_check_none_gives_the_reason():
    validation.check_none("users", None, "with measure cosine")
    with pytest.raises(ValueError, match=r"^users must be None with measure cosine, got 3$"):
        validation.check_none("users", 3, "with measure cosine")
    with pytest.raises(ValueError, match=r"got an array of shape \(100,\)$"):
        validation.check_none("users", np.ones(100), "here")


def test_as_path_takes_text_or_a_path():
    assert validation.as_path("p", "a") == validation.as_path("p", Path("a")) == Path("a")
    for value in ("", 3, None, b"a"):
        with pytest.raises(TypeError, match=f"^p must be a path, got {re.escape(repr(value))}$"):
            validation.as_path("p", value)


def test_as_instance_refuses_other_types():
    assert validation.as_instance("m", 3, int, "a number") == 3
    with pytest.raises(TypeError, match=r"^m must be a number, got str$"):
        validation.as_instance("m", "3", int, "a number")


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ([4], "row 4"),
        ([1, 2], "rows 1, 2"),
        ([1, 2, 3, 4, 5], "rows 1, 2, 3, 4, 5"),
        (range(6), "rows 0, 1, 2, 3, 4 and 1 more"),
    ],
)
def test_format_rows_names_five_rows(rows, text):
    assert validation.format_rows(np.array(rows)) == text


@pytest.mark.slow
@pytest.mark.long
def test_2000_malformed_arrays_are_refused_or_searched():
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-m", "tests.robustness.malformed_dense", "0", "2000"],
        capture_output=True,
        text=True,
        timeout=500,
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    refused, accepted = map(int, done.stdout.split())
    assert refused + accepted == 2000
    assert min(refused, accepted) > 400


def test_check_scorable_limit_depends_on_the_width():
    small = np.ones((2, 4), np.float32)
    for rows, other in (
        (0.2e150 * small.astype(float), small),
        (small, -0.2e150 * small.astype(float)),
    ):
        validation.check_scorable("x", rows, other)
        with pytest.raises(
            ValueError, match=r"x must have entries whose squares .* got one of 3e\+149"
        ):
            validation.check_scorable("x", 1.5 * rows.astype(float), 1.5 * other.astype(float))
    validation.check_scorable("x", 3e38 * small, small)


@pytest.mark.parametrize(("dtype", "limit"), [(np.float32, 1e12), (np.float64, 1e60)])
def test_check_squarable_refuses_magnitudes_beyond_both_limits(dtype, limit):
    for values in ([0.0, 0.0], [0.0, 1.0], [-limit / 2], [2 / limit]):
        validation.check_squarable("items", np.array(values, dtype))
    for values in ([1.0, -2 * limit], [0.0, 0.5 / limit]):
        with pytest.raises(ValueError, match=re.escape(f"between {1 / limit:g} and {limit:g}")):
            validation.check_squarable("items", np.array(values, dtype))


def test_only_a_matrix_is_taken_for_one_mask_per_query():
    with pytest.raises(
        TypeError, match=r"got dtype bool of shape \(2, 3\) \(for one mask per query"
    ):
        validation.as_item_numbers("allowed", np.ones((2, 3), bool), 3)
    with pytest.raises(TypeError, match=r"got dtype float64 of shape \(3,\)$"):
        validation.as_item_numbers("allowed", np.ones(3), 3)
    # Neither of the two arrays could be meant as one mask per query, so the message contains no
    # hint about such masks.
    for items in (np.ones((2, 3)), np.ones((1, 2, 3), bool)):
        with pytest.raises(TypeError, match=r"got dtype \w+ of shape \([\d, ]+\)$"):
            validation.as_item_numbers("allowed", items, 3)


@pytest.mark.parametrize("without_itself", [True, False])
def test_a_query_may_have_a_single_neighbour(without_itself):
    n_rows = 1 + without_itself
    assert validation.as_neighbor_count(1, n_rows, without_itself=without_itself) == 1
    with pytest.raises(ValueError, match=r"^k must be"):
        validation.as_neighbor_count(2, n_rows, without_itself=without_itself)


def test_a_single_row_has_no_neighbour_but_itself():
    with pytest.raises(ValueError, match="queries must have at least 2 rows"):
        validation.as_neighbor_count(1, 1, without_itself=True)


@pytest.mark.parametrize("values", [[], (), set(), np.empty(0), np.empty(0, bool)])
def test_empty_lists_are_empty(values):
    assert validation.is_empty_list(values)


@pytest.mark.parametrize("values", [None, [0], ("a",), {1}, np.empty((0, 2)), np.zeros(1), ""])
def test_other_values_are_no_empty_lists(values):
    assert not validation.is_empty_list(values)


@pytest.mark.parametrize("length", [10, 11, 12, 300])
def test_a_cut_text_has_its_length_and_both_ends(length):
    text = "".join(map(str, range(500)))
    cut = validation.cut(text, length)
    start, end = cut.split("...")
    assert len(cut) == length
    assert text.startswith(start)
    assert text.endswith(end)
    assert len(end) == (length - 3) // 3
    assert validation.cut(text[:length], length) == text[:length]
