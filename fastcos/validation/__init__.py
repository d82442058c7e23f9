"""Convert valid arguments of public functions, and raise a one-line error for invalid arguments.

A public function converts its arguments once, on entry. The converted arguments have the form that
kernels require, so no other function scans or converts them again::

    argument -> containers.as_array -> as_rows, as_vector -> C order, float32 or float64, finite
                    |                      |
                    +----------------------+-> ValueError or TypeError:
                                               "<argument> must <rule>, got <value>"

A function whose name begins with `as_` returns the converted argument. A function whose name begins
with `check_` raises an error if the argument is invalid. This module contains only the checks that
several modules need. A rule that applies to the arguments of only one function is checked by this
function. Sparse matrices are checked by :func:`fastcos.linalg.csr.as_interactions`. Rows on disk
are checked by :mod:`fastcos.parallel.memmap`, block by block, when they are read.
"""

import contextlib
import difflib
import math
import operator
import os
import reprlib
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from fastcos.validation import containers
from fastcos.validation.containers import (
    as_array as as_array,
    as_shared_array as as_shared_array,
    format_rows as format_rows,
    from_arrow as from_arrow,
    from_container as from_container,
    is_sparse as is_sparse,
)

# An error message has at most LONGEST_MESSAGE characters, and shows a value in at most
# LONGEST_VALUE characters.
LONGEST_MESSAGE, LONGEST_VALUE = 300, 80
# An error message shows at most this many values of a list.
_MAX_SHOWN_VALUES = 4
# The largest number of threads that a call accepts. No machine has this many CPUs, but a process
# can start this many threads.
MAX_THREADS = 4096
# If the number of items is more than _ITEMS_PER_SORTED_NUMBER times the length of the list,
# distinct_numbers sorts the list. Otherwise, it marks the numbers in a mask of all items. Filling a
# mask of 30,000 items takes about as long as sorting 500 numbers.
_ITEMS_PER_SORTED_NUMBER = 64
# The minimum and the maximum are computed for this many numbers at a time. 2^18 float64 numbers
# take 2 MiB and stay in a cache.
_PIECE = 1 << 18
# If an array has fewer numbers than this, it takes less time to compute the sum of the numbers than
# to compute their minimum and maximum.
_FEW_NUMBERS = 1 << 15

Rows = npt.NDArray[np.float32] | npt.NDArray[np.float64]
Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Array = TypeVar("Array", bound=npt.NDArray[Any] | None)
Kind = TypeVar("Kind")


class _Shortener(reprlib.Repr):
    """Formats a value of any size as a short text, without reading all of a long list."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = LONGEST_VALUE
        self.maxlist = self.maxtuple = self.maxset = self.maxfrozenset = self.maxdict = 4
        self.maxlevel, self.maxlong = 3, 40

    def repr_instance(self, x: Any, level: int) -> str:
        shape = getattr(x, "shape", None)
        text = "" if isinstance(x, np.ndarray) else _safe_repr(x)
        if isinstance(shape, tuple) and (not text or "\n" in text or len(text) > LONGEST_VALUE):
            kind = "an array" if isinstance(x, np.ndarray) else f"a {type(x).__name__}"
            return f"{kind} of shape {shape}"
        return f"a {type(x).__name__}" if "\n" in text else cut(text, LONGEST_VALUE)


def _safe_repr(value: Any) -> str:
    try:
        return repr(value)
    except Exception:  # the __repr__ of another library's class may raise any error
        return f"a {type(value).__name__}"


def format_value(value: Any) -> str:
    """Return ``value`` as one short line for an error message; an array is shown as its shape."""
    try:
        text = _Shortener().repr(value)
    # The __repr__ of another library's class may raise any error, and Python refuses to print an
    # integer with very many digits.
    except Exception:
        text = f"a {type(value).__name__}"
    if isinstance(value, (list, tuple, set, frozenset, dict)) and len(value) > _MAX_SHOWN_VALUES:
        text = f"{text} of length {len(value)}"
    return one_line(text, LONGEST_VALUE + 40)


def cut(text: str, length: int) -> str:
    """Return ``text``; if it has more than `length` characters, "..." replaces its middle."""
    if len(text) <= length:
        return text
    end = (length - 3) // 3
    return f"{text[: length - 3 - end]}...{text[-end:]}"


def one_line(message: str, length: int = LONGEST_MESSAGE) -> str:
    """Return an error message as one line of at most `length` characters."""
    return cut(" ".join(message[: 100 * length].split()), length) if message else message


def as_count(name: str, value: Any, low: int = 1, high: int | None = None) -> int:
    """Return ``value`` as an int; raise ValueError unless it is whole and in [low, high]."""
    count = None
    if isinstance(value, (float, np.floating)):
        count = int(value) if float(value).is_integer() else None
    elif not isinstance(value, (bool, np.bool_)):
        with contextlib.suppress(TypeError):
            count = operator.index(value)
    if count is None or count < low or (high is not None and count > high):
        bounds = f"from {low} to {high}" if high is not None else f"of at least {low}"
        raise ValueError(f"{name} must be a whole number {bounds}, got {format_value(value)}")
    return count


def as_thread_count(name: str, value: Any) -> int:
    """Return ``value`` as an int; raise ValueError unless it is from 1 to ``MAX_THREADS``."""
    return as_count(name, value, high=MAX_THREADS)


def check_progress(progress: Any) -> None:
    """Raise TypeError if ``progress`` is neither None nor callable.

    Public functions call this function before they start to compute.
    """
    if progress is not None and not callable(progress):
        raise TypeError(f"progress must be callable or None, got {format_value(progress)}")


def check_callable(name: str, function: Any) -> None:
    """Raise TypeError if ``function`` is not callable."""
    if not callable(function):
        raise TypeError(f"{name} must be callable, got {format_value(function)}")


def check_text(name: str, value: Any) -> None:
    """Raise TypeError unless ``value`` is None or a string that is not empty."""
    if value is not None and not (isinstance(value, str) and value):
        raise TypeError(f"{name} must be a string or None, got {format_value(value)}")


def as_list(name: str, values: Any) -> list[Any]:
    """Return an iterable as a list; raise TypeError for a string, bytes or a mapping."""
    if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
        raise TypeError(f"{name} must be a list, got {format_value(values)}")
    return list(values)


def as_number(name: str, text: Any) -> float:
    """Convert text from an environment variable or the command line to a float."""
    try:
        return float(text)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a number, got {format_value(text)}") from None


def as_neighbor_count(k: Any, n_rows: int, *, without_itself: bool) -> int:
    """Return k as an int; raise ValueError unless 1 <= k <= the largest number of neighbours.

    A query can have n_rows neighbours, or n_rows - 1 if without_itself is True.
    """
    if n_rows - without_itself < 1:
        raise ValueError(f"queries must have at least 2 rows when exclude_self=True, got {n_rows}")
    return as_count("k", k, high=n_rows - without_itself)


def as_real(
    name: str,
    value: Any,
    *,
    low: float | None = None,
    above: float | None = None,
    high: float | None = None,
    below: float | None = None,
) -> float:
    """Return ``value`` as a finite float; raise ValueError if it is outside the bounds.

    The bounds are ``value >= low``, ``value > above``, ``value <= high`` and ``value < below``. If
    a bound is None, it does not limit the value.
    """
    bounds = (
        (">=", low, operator.ge), (">", above, operator.gt), ("<=", high, operator.le),
        ("<", below, operator.lt),
    )  # fmt: skip
    number, rules, fits = math.nan, [], True
    # Strings such as "0.5" are excluded here, because float() would convert them.
    if not isinstance(value, (bool, np.bool_, str, bytes)):
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            number = float(value)
    for sign, bound, holds in bounds:
        if bound is not None:
            rules.append(f"{sign} {bound:g}")
            fits &= holds(number, bound)
    if not (fits and math.isfinite(number)):
        rule = " ".join(["a finite number", " and ".join(rules)]).strip()
        raise ValueError(f"{name} must be {rule}, got {format_value(value)}")
    return number


def as_choice(name: str, value: Any, choices: Collection[str]) -> str:
    """Return ``value`` if it is one of ``choices``; else raise ValueError and list the choices."""
    if not isinstance(value, str) or value not in choices:
        got = f"{format_value(value)}{did_you_mean(value, choices)}"
        room = LONGEST_MESSAGE - len(f"{name} must be one of , got {got}")
        raise ValueError(f"{name} must be one of {listed(choices, room)}, got {got}")
    return value


def listed(choices: Collection[str], room: int) -> str:
    """Join ``choices`` with commas; the resulting text has at most `room` characters.

    If there is no room for all choices, the text ends with the total number of choices.
    """
    names, omission = list(choices), ""
    while len(", ".join(names)) + len(omission) > room and len(names) > 1:
        names.pop()
        omission = f", ... ({len(choices)} names)"
    return ", ".join(names) + omission


def did_you_mean(value: Any, choices: Collection[str]) -> str:
    """Return " (did you mean 'x'?)", where x is the choice whose spelling is closest to ``value``.

    If no choice has a similar spelling, the result is "".
    """
    matches = difflib.get_close_matches(value, choices, 1) if isinstance(value, str) else []
    return f" (did you mean {matches[0]!r}?)" if matches else ""


def is_float_array(X: Any) -> bool:
    """Return whether X is a float32 or float64 NumPy array that is not memory-mapped."""
    return type(X) is np.ndarray and X.dtype.char in "fd"


def any_sparse(*arguments: Any) -> bool:
    """Return whether at least one of the arguments is a sparse matrix."""
    return any(
        containers.is_sparse(argument)
        for argument in arguments
        if argument is not None and not isinstance(argument, np.ndarray)
    )


def as_rows(
    name: str,
    X: Any,
    *,
    dtype: npt.DTypeLike | None = None,
    or_vector: bool = False,
    is_measured: bool = False,
) -> Rows:
    """Return X as C-contiguous, finite, read-only rows (n, d), float32 or float64, n and d >= 1.

    By default, float16, bfloat16 and float8 are converted to float32, and integers and booleans are
    converted to float64. If the argument `dtype` is np.float32 or np.float64, all rows are
    converted to this type. X is copied only if its memory order or its type must change. Rows of
    uint8 raise TypeError, because sentence-transformers and FAISS pack eight bits into one uint8
    number. `or_vector` says whether a vector (d,) is accepted as one row. With is_measured=True,
    the function does not look for NaN and infinity in float32 rows. The caller must then check that
    the norms of all rows are finite: a row with NaN or infinity has a norm of NaN or infinity.
    """
    array = as_row_shape(name, X, or_vector=or_vector)
    if dtype is None:
        fits_float32 = array.dtype in (np.float32, np.float16)
        dtype = np.float32 if fits_float32 else np.float64
    rows = _convert(array, dtype)
    if not (is_measured and rows.dtype == np.float32) and not _are_finite(rows):
        invalid = np.flatnonzero(~np.isfinite(rows).all(axis=1))
        got = f"NaN or infinity in {format_rows(invalid)} (counted from 0)"
        raise ValueError(f"{name} must be finite, got {got}")
    return read_only(rows)


def _are_finite(rows: Rows) -> bool:
    # For a few rows, it takes less time to compute the sum than to compute the minimum and the
    # maximum. If the sum is finite, all numbers are finite. If the sum is not finite, the minimum
    # and the maximum decide, because the sum of finite numbers may overflow.
    if rows.size < _FEW_NUMBERS:
        with np.errstate(all="ignore"):
            if math.isfinite(rows.sum()):
                return True
    # If there is a NaN, the minimum and the maximum are NaN. NumPy computes the minimum of many
    # numbers four times as fast as their sum. The maximum is then computed from the same numbers in
    # a cache.
    flat = rows.reshape(-1)
    pieces = (flat[first : first + _PIECE] for first in range(0, len(flat), _PIECE))
    return all(math.isfinite(piece.min()) and math.isfinite(piece.max()) for piece in pieces)


def as_row_shape(name: str, X: Any, *, or_vector: bool = False) -> npt.NDArray[Any]:
    """Return X as an array (n, d) of real numbers, n and d >= 1; NaN and infinity are allowed."""
    array = X if is_float_array(X) else containers.as_array(name, X)
    if or_vector and array.ndim == 1:
        array = array[np.newaxis]
    if array.dtype == np.uint8:
        raise TypeError(
            f"{name} must not be uint8, which may be packed bits, got shape {array.shape}. If the "
            "rows are numbers, convert them by .astype('float32'). If they are packed bits, pass "
            "them to top_k with measure='hamming', or unpack them by np.unpackbits(rows, axis=1)"
        )
    if array.ndim != 2:
        raise ValueError(f"{name} must be 2-dimensional (rows, columns), got shape {array.shape}")
    if 0 in array.shape:
        raise ValueError(f"{name} must have at least one row and one column, got {array.shape}")
    return array


def estimator_rows(estimator: Any, X: Any, *, reset: bool) -> Rows:
    """Return X converted by ``as_rows``, and set or check the estimator's feature attributes.

    The feature attributes are ``n_features_in_`` and ``feature_names_in_``, as in scikit-learn.
    With reset=True, the function sets the feature attributes; otherwise, it compares X with them.
    """
    from sklearn.utils.validation import validate_data

    array = containers.from_container("X", X)
    if len(getattr(array, "shape", (0, 0))) == 1:  # X may be a table column that holds vectors
        array = containers.as_array("X", array)
    elif hasattr(array, "columns"):  # scikit-learn's error would not name the invalid column
        containers.as_array("X", array)
    # as_rows looks for NaN itself, because scikit-learn's error message about NaN has five lines.
    dense = validate_data(
        estimator, array, reset=reset, dtype=(np.float64, np.float32), ensure_all_finite=False
    )
    # Unlike scikit-learn, as_row_shape raises an error for text, dates and uint8.
    as_row_shape("X", array)
    return as_rows("X", dense)


def _convert(array: npt.NDArray[Any], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return ``array`` in C order and of this dtype; numbers that are too large become infinite."""
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(array, dtype=dtype)


def check_same_width(name: str, rows: Any, other_name: str, other: Any) -> None:
    """Raise ValueError if ``rows`` and ``other`` have different numbers of columns."""
    check_width(name, rows, other_name, other.shape[1])


def check_width(name: str, rows: Any, other_name: str, width: int) -> None:
    """Raise ValueError unless `rows` has ``width`` columns.

    ``width`` is the number of columns of another argument, whose name is `other_name`.
    """
    if rows.shape[1] != width:
        rule = f"have as many columns as {other_name} ({width})"
        raise ValueError(f"{name} must {rule}, got {rows.shape[1]}")


def check_length(name: str, rows: Rows, length: int, of: str) -> None:
    """Raise ValueError if the number of rows is not ``length``.

    `of` is the name of the argument or object that has `length` rows; the error message contains
    this name.
    """
    if len(rows) != length:
        raise ValueError(f"{name} must have as many rows as {of} ({length}), got {len(rows)}")


def check_enough(name: str, count: int, minimum: int, unit: str) -> int:
    """Return ``count``; raise ValueError if it is below ``minimum``.

    `count` is the size of the argument, and `unit` is a noun for what is counted, such as "rows".
    """
    if count < minimum:
        raise ValueError(f"{name} must have at least {minimum} {unit}, got {count}")
    return count


def as_vector(name: str, values: Any, length: int | None = None) -> npt.NDArray[np.float64]:
    """Return ``values`` as a finite, read-only float64 vector (length,).

    If ``length`` is None, the vector may have any length.
    """
    array = containers.as_array(name, values)
    if array.ndim != 1 or (length is not None and len(array) != length):
        rule = "1-dimensional" if length is None else f"of shape ({length},)"
        raise ValueError(f"{name} must be {rule}, got shape {array.shape}")
    vector = _convert(array, np.float64)
    if not np.isfinite(vector).all():
        position = int(np.flatnonzero(~np.isfinite(vector))[0])
        raise ValueError(f"{name} must be finite, got {vector[position]} at position {position}")
    return read_only(vector)


def as_positive_diagonal(name: str, values: Any, length: int) -> npt.NDArray[np.float64]:
    """Return a diagonal as a float64 vector (length,); all its entries must be positive."""
    diagonal = as_vector(name, values, length)
    if not (diagonal > 0).all():
        position = int(np.flatnonzero(~(diagonal > 0))[0])
        got = f"{diagonal[position]:g} at position {position}"
        raise ValueError(f"{name} must be positive, got {got}")
    return diagonal


def as_weights(name: str, values: Any, length: int) -> npt.NDArray[np.float64]:
    """Return ``values`` as float64 weights (length,), checked to be at least 0 and not all 0."""
    weights = as_vector(name, values, length)
    if weights.min() < 0 or not weights.max() > 0:
        got = f"values from {weights.min():g} to {weights.max():g}"
        raise ValueError(f"{name} must be at least 0 and not all 0, got {got}")
    return weights


def as_probabilities(name: str, values: Any, length: int) -> npt.NDArray[np.float64]:
    """Divide the weights `values` by their sum; return the shares as a float64 array (length,)."""
    shares = as_weights(name, values, length)
    shares = shares / shares.max()
    return read_only(shares / shares.sum())


def as_labels(name: str, labels: Any, length: int) -> npt.NDArray[np.int64]:
    """Return an int64 code for each of ``length`` labels; equal labels have equal codes.

    All labels must be integers, or all must be strings. Let C be the number of distinct labels,
    which must be at least 2. The codes are whole numbers from 0 to C-1, in the order of the sorted
    distinct labels.
    """
    labels = containers.from_container(name, labels)
    # A list is read as Python objects, because NumPy would convert ["a", 1, nan] to three strings.
    array = np.asarray(labels, dtype=None if hasattr(labels, "dtype") else object)
    if array.shape != (length,):
        raise ValueError(f"{name} must be of shape ({length},), got {array.shape}")
    if array.dtype.kind == "O":
        kind = str if len(array) and isinstance(array[0], str) else (int, np.integer)
        invalid = [value for value in array if not isinstance(value, kind)]
        if invalid and is_missing(invalid[0]):
            row = next(row for row, value in enumerate(array) if is_missing(value))
            raise TypeError(
                f"{name} must hold integers or strings in every row, got "
                f"{format_value(invalid[0])} in row {row}. Leave out rows without a label"
            )
        if invalid:
            raise TypeError(
                f"{name} must hold integers or strings, not both, got {format_value(invalid[0])}"
            )
        array = np.array(array.tolist()) if len(array) else np.zeros(0, np.int64)
    if array.dtype.kind not in "iubU":
        raise TypeError(f"{name} must hold integers or strings, got dtype {array.dtype}")
    values, codes = np.unique(array, return_inverse=True)
    if len(values) < 2:
        raise ValueError(f"{name} must have at least two different values, got {len(values)}")
    return read_only(codes.astype(np.int64))


def is_missing(value: Any) -> bool:
    """Return whether a value is None, NaN, or one of the pandas values NA and NaT."""
    is_nan = isinstance(value, (float, np.floating)) and value != value
    return value is None or is_nan or type(value).__name__ in ("NAType", "NaTType")


def as_partial_labels(name: str, labels: Any, length: int) -> npt.NDArray[np.int64]:
    """Return the int64 codes (length,) of the labels; some labels may be None.

    The code of None is -1. The other labels have the codes that ``as_labels`` gives to them.
    """
    array = np.asarray(containers.from_container(name, labels), dtype=object)
    if array.shape != (length,):
        raise ValueError(f"{name} must be of shape ({length},), got {array.shape}")
    is_labelled = np.array([value is not None for value in array])
    for row, value in enumerate(array):
        if value is not None and is_missing(value):
            rule = "integers or strings, or None for no label"
            raise TypeError(f"{name} must hold {rule}, got {format_value(value)} in row {row}")
    codes = np.full(length, -1, np.int64)
    codes[is_labelled] = as_labels(name, array[is_labelled].tolist(), int(is_labelled.sum()))
    return read_only(codes)


def as_generator(name: str, seed: Any) -> np.random.Generator:
    """Return `seed` if it is a random generator, or else a new generator with this seed."""
    if isinstance(seed, np.random.Generator):
        return seed
    return np.random.default_rng(as_count(name, seed, low=0))


def as_flag(name: str, value: Any) -> bool:
    """Return ``value`` as a bool; raise ValueError if it is neither True nor False."""
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{name} must be True or False, got {format_value(value)}")
    return bool(value)


def check_none(name: str, value: Any, reason: str) -> None:
    """Raise ValueError if ``value`` is not None.

    The error message is "<name> must be None <reason>"; the reason may be "with allowed_ids".
    """
    if value is not None:
        # The message tells a user of the command line to leave out an option, and a user of Python
        # to pass None.
        absent = "left out" if name.startswith("--") else "None"
        raise ValueError(f"{name} must be {absent} {reason}, got {format_value(value)}")


def as_path(name: str, value: Any) -> Path:
    """Return ``value`` as a Path; raise TypeError unless it is a path or a non-empty string."""
    if not isinstance(value, (str, os.PathLike)) or not str(value):
        raise TypeError(f"{name} must be a path, got {format_value(value)}")
    return Path(value)


def as_instance(name: str, value: Any, kind: type[Kind], rule: str) -> Kind:
    """Return ``value`` if it is an instance of ``kind``; otherwise raise TypeError.

    ``rule`` describes ``kind`` in the error message "<name> must be <rule>".
    """
    if not isinstance(value, kind):
        got = "None" if value is None else type(value).__name__
        raise TypeError(f"{name} must be {rule}, got {got}")
    return value


def largest_magnitude(values: npt.NDArray[Any]) -> float:
    """Return the largest absolute value, or 0 for an empty array, without copying the array."""
    return float(max(values.max(), -values.min())) if values.size else 0.0


def check_scorable(name: str, rows: Rows, other: Rows, width: int | None = None) -> None:
    """Raise ValueError if norms or inner products of two sets of rows could overflow float64.

    If `rows` and `other` are the stored values of two sparse matrices, `width` is the number of
    columns of the matrices.
    """
    for side in (rows, other):
        # The sum of the products of float32 numbers cannot overflow float64.
        largest = largest_magnitude(side) if side.dtype == np.float64 else 0.0
        if largest > 1e150 / (width or side.shape[1]):
            rule = "have entries whose squares can be summed"
            raise ValueError(f"{name} must {rule}, got one of {largest:g}")


def check_squarable(name: str, values: npt.NDArray[Any]) -> None:
    """Raise ValueError if the Gram matrix of `values`, or its square, could overflow or underflow.

    The largest allowed magnitude is lower for float32 values than for float64 values.
    """
    limit = 1e12 if values.dtype == np.float32 else 1e60
    largest = largest_magnitude(values)
    if largest > limit or 0 < largest < 1 / limit:
        rule = f"contain numbers whose largest magnitude is between {1 / limit:g} and {limit:g}"
        raise ValueError(
            f"{name} must {rule}, got {largest:g}. Multiply {name} by a suitable number"
        )


def as_item_numbers(name: str, items: Any, n_items: int) -> npt.NDArray[np.int64]:
    """Return the distinct item numbers in a list or in a mask (n_items,).

    The item numbers are int64, in ascending order.
    """
    array = _as_mask_or_numbers(name, items, n_items)
    if array.dtype.kind == "b":
        return np.flatnonzero(array).astype(np.int64, copy=False)
    return distinct_numbers(array, n_items)


def as_item_mask(name: str, items: Any, n_items: int) -> npt.NDArray[np.bool_]:
    """Return a mask of booleans (n_items,), from a mask or from a list of item numbers."""
    array = _as_mask_or_numbers(name, items, n_items)
    if array.dtype.kind == "b":
        return array
    mask = np.zeros(n_items, np.bool_)
    mask[array] = True
    return mask


def _as_mask_or_numbers(name: str, items: Any, n_items: int) -> npt.NDArray[Any]:
    """Return ``items`` as an array: either a boolean mask (n_items,) or item numbers."""
    array = np.asarray(containers.from_container(name, items))
    if is_empty_list(array) and array.dtype.kind != "b":  # NumPy converts an empty list to float64
        return np.empty(0, np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iub":
        got = f"dtype {array.dtype} of shape {array.shape}"
        if array.ndim == 2 and array.dtype.kind in "iub":  # each row may be the mask of a query
            got += " (for one mask per query, use scipy.sparse.csr_array(mask))"
        rule = "a one-dimensional array, either a mask of booleans or item numbers"
        raise TypeError(f"{name} must be {rule}, got {got}")
    if array.dtype.kind == "b":
        if len(array) != n_items:
            raise ValueError(f"{name} must be of shape ({n_items},), got {array.shape}")
        return array
    smallest, largest = int(array.min()), int(array.max())
    if smallest < 0 or largest >= n_items:
        got = f"{smallest} to {largest}"
        raise ValueError(f"{name} must hold item numbers from 0 to {n_items - 1}, got {got}")
    if n_items > 2 and len(array) == n_items and (smallest, largest) == (0, 1):
        got = f"zeros and ones of dtype {array.dtype} (for a mask, use .astype(bool))"
        raise TypeError(f"{name} must be item numbers or a mask of booleans, got {got}")
    return array


def is_empty_list(values: Any) -> bool:
    """Return whether ``values`` is an empty list, tuple or set, or an array of shape (0,)."""
    shape = getattr(values, "shape", None)
    if shape is None:
        return isinstance(values, (list, tuple, set, frozenset)) and not len(values)
    return tuple(shape) == (0,)


def distinct_numbers(numbers: npt.NDArray[Any], n_items: int) -> npt.NDArray[np.int64]:
    """Return the distinct values of ``numbers`` in ascending order, as int64.

    All numbers must be from 0 to n_items - 1.
    """
    if len(numbers) * _ITEMS_PER_SORTED_NUMBER < n_items:
        return np.unique(numbers).astype(np.int64)
    is_listed = np.zeros(n_items, np.bool_)
    is_listed[numbers] = True
    return np.flatnonzero(is_listed).astype(np.int64, copy=False)


def check_memory(name: str, limit: float, needed: float) -> None:
    """Raise ValueError if a call needs more memory than `limit`.

    `name` is the name of the argument that sets the limit. `limit` and `needed` are in bytes; the
    error message shows MiB.
    """
    if limit < needed:
        rule = f"at least {needed / 2**20:.2f} MiB for this call"
        raise ValueError(f"{name} must be {rule}, got {limit / 2**20:.2f}")


def check_shape(name: str, shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    """Raise ValueError if the shape of an argument is not the expected shape."""
    if tuple(shape) != expected:
        raise ValueError(f"{name} must be of shape {expected}, got {tuple(shape)}")


def check_fitted(name: str, state: Kind | None) -> Kind:
    """Return the state that ``fit`` has computed; raise ValueError if it is None."""
    if state is None:
        raise ValueError(
            f"{name} must be fitted before it is used, got one that is not fitted: call fit first"
        )
    return state


def read_only(array: Array) -> Array:
    """Return a read-only view of ``array``, or None if ``array`` is None.

    Input arrays are passed to kernels as read-only views for two reasons: kernels are compiled only
    for read-only inputs, and fastcos cannot change the caller's array by mistake.
    """
    if array is None:
        return array
    view = array.view()
    view.setflags(write=False)
    return view
