"""Argument checks: convert what can be converted, refuse the rest with one line.

A public function converts its arguments once, on entry. What passes has the one form that kernels
take, so nothing below scans or converts it again::

    argument -> containers.as_array -> as_rows, as_vector -> C order, float32 or float64, finite
                    |                      |
                    +----------------------+-> ValueError or TypeError:
                                               "<argument> must <rule>, got <value>"

`as_x` returns the converted argument, `check_x` returns nothing and refuses. Only checks that
several modules share are here; a rule of one function is checked in that function. Sparse matrices
are checked by :func:`fastcos.linalg.csr.as_interactions`, rows on disk by
:mod:`fastcos.parallel.memmap`, which read them in blocks.
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

# letters of an error message, and of a value in it
LONGEST_MESSAGE, LONGEST_VALUE = 300, 80
# values of a list that a message shows
_FEW_VALUES = 4
# threads of a call: more than any machine has CPUs, fewer than a process can start
MAX_THREADS = 4096
# item numbers are sorted where they are fewer than this share of the items, and marked in a mask of
# all items otherwise: a mask of 30,000 items takes 15 us, and to sort 500 numbers as long
_SORTED_SHARE = 64

Rows = npt.NDArray[np.float32] | npt.NDArray[np.float64]
Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Array = TypeVar("Array", bound=npt.NDArray[Any] | None)
Kind = TypeVar("Kind")


class _Shortener(reprlib.Repr):
    """Represents values of any size in a few letters, without visiting all of a long list."""

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
    except Exception:  # of a class that is not ours
        return f"a {type(value).__name__}"


def format_value(value: Any) -> str:
    """Return value as a short text for a message, in one line: an array or a table by its shape."""
    try:
        text = _Shortener().repr(value)
    except Exception:  # a class that is not ours, or an integer of more digits than Python prints
        text = f"a {type(value).__name__}"
    if isinstance(value, (list, tuple, set, frozenset, dict)) and len(value) > _FEW_VALUES:
        text = f"{text} of length {len(value)}"
    return one_line(text, LONGEST_VALUE + 40)


def cut(text: str, length: int) -> str:
    """Return text of at most this length, with "..." in place of what is left out of its middle."""
    if len(text) <= length:
        return text
    end = (length - 3) // 3
    return f"{text[: length - 3 - end]}...{text[-end:]}"


def one_line(message: str, length: int = LONGEST_MESSAGE) -> str:
    """Return a message as one line of at most this length: what errors say, whatever the input."""
    return cut(" ".join(message[: 100 * length].split()), length) if message else message


def as_count(name: str, value: Any, low: int = 1, high: int | None = None) -> int:
    """Return value as a whole number from low to high."""
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
    """Return value as a number of threads."""
    return as_count(name, value, high=MAX_THREADS)


def check_progress(progress: Any) -> None:
    """Refuse what cannot be called as progress(done, total), before any work."""
    if progress is not None and not callable(progress):
        raise TypeError(f"progress must be callable or None, got {format_value(progress)}")


def check_callable(name: str, function: Any) -> None:
    """Refuse what cannot be called, before any work."""
    if not callable(function):
        raise TypeError(f"{name} must be callable, got {format_value(function)}")


def check_text(name: str, value: Any) -> None:
    """Refuse anything but None and non-empty text."""
    if value is not None and not (isinstance(value, str) and value):
        raise TypeError(f"{name} must be a text or None, got {format_value(value)}")


def as_list(name: str, values: Any) -> list[Any]:
    """Return an iterable as a list; refuse text and mappings."""
    if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
        raise TypeError(f"{name} must be a list, got {format_value(values)}")
    return list(values)


def as_number(name: str, text: Any) -> float:
    """Return text from the environment or the command line as a number."""
    try:
        return float(text)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a number, got {format_value(text)}") from None


def as_neighbor_count(k: Any, n_rows: int, *, without_itself: bool) -> int:
    """Return k, from 1 to the number of rows that a query can have as neighbours."""
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
    """Return value as a finite number >= low, > above, <= high and < below."""
    bounds = (
        (">=", low, operator.ge), (">", above, operator.gt), ("<=", high, operator.le),
        ("<", below, operator.lt),
    )  # fmt: skip
    number, rules, fits = math.nan, [], True
    # text may read as a number
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
    """Return value if it is one of choices."""
    if not isinstance(value, str) or value not in choices:
        got = f"{format_value(value)}{did_you_mean(value, choices)}"
        room = LONGEST_MESSAGE - len(f"{name} must be one of , got {got}")
        raise ValueError(f"{name} must be one of {listed(choices, room)}, got {got}")
    return value


def listed(choices: Collection[str], room: int) -> str:
    """Return choices in a list of at most this many letters, which says how many it leaves out."""
    names, rest = list(choices), ""
    while len(", ".join(names)) + len(rest) > room and len(names) > 1:
        names.pop()
        rest = f", ... ({len(choices)} names)"
    return ", ".join(names) + rest


def did_you_mean(value: Any, choices: Collection[str]) -> str:
    """The end of a message: the choice with the most similar spelling, if any."""
    found = difflib.get_close_matches(value, choices, 1) if isinstance(value, str) else []
    return f" (did you mean {found[0]!r}?)" if found else ""


def is_float_array(X: Any) -> bool:
    """Whether X is an array in memory of float32 or float64, as as_rows returns it."""
    return type(X) is np.ndarray and X.dtype.char in "fd"


def any_sparse(*arguments: Any) -> bool:
    """Whether one of the arguments is sparse."""
    return any(
        containers.is_sparse(one)
        for one in arguments
        if one is not None and not isinstance(one, np.ndarray)
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

    float16, bfloat16 and float8 become float32; integers and booleans become float64; dtype forces
    one of the two. Copies only where order or type differ. uint8 is refused: it is also how
    sentence-transformers and FAISS pack bits, eight dimensions to a number. or_vector: one vector
    (d,) is one row. is_measured: the norms of float32 rows, which follow, will show NaN.
    """
    array = as_row_shape(name, X, or_vector=or_vector)
    if dtype is None:
        small = array.dtype in (np.float32, np.float16)
        dtype = np.float32 if small else np.float64
    rows = _converted(array, dtype)
    if not (is_measured and rows.dtype == np.float32) and not _are_finite(rows):
        broken = np.flatnonzero(~np.isfinite(rows).all(axis=1))
        got = f"NaN or infinity in {format_rows(broken)} (counted from 0)"
        raise ValueError(f"{name} must be finite, got {got}")
    return read_only(rows)


def _are_finite(rows: Rows) -> bool:
    with np.errstate(all="ignore"):
        total = rows.sum()
    # one pass over the rows; the sum of finite ones may overflow
    return bool(np.isfinite(total) or (np.isfinite(rows.min()) and np.isfinite(rows.max())))


def as_row_shape(name: str, X: Any, *, or_vector: bool = False) -> npt.NDArray[Any]:
    """Return X as an array (n, d) of real numbers, n and d >= 1; its values are not read."""
    array = X if is_float_array(X) else containers.as_array(name, X)
    if or_vector and array.ndim == 1:
        array = array[np.newaxis]
    if array.dtype == np.uint8:
        raise TypeError(
            f"{name} must not be uint8, which may be packed bits, got shape {array.shape}: give "
            ".astype('float32'), or packed bits to top_k with measure='hamming' (elsewhere "
            "np.unpackbits(rows, axis=1))"
        )
    if array.ndim != 2:
        raise ValueError(f"{name} must be 2-dimensional (rows, columns), got shape {array.shape}")
    if 0 in array.shape:
        raise ValueError(f"{name} must have at least one row and one column, got {array.shape}")
    return array


def estimator_rows(estimator: Any, X: Any, *, reset: bool) -> Rows:
    """Return dense rows X as as_rows does; set or check the estimator's features."""
    from sklearn.utils.validation import validate_data

    given = containers.from_container("X", X)
    if len(getattr(given, "shape", (0, 0))) == 1:  # perhaps a column of vectors
        given = containers.as_array("X", given)
    elif hasattr(given, "columns"):  # scikit-learn's message would not say which column is wrong
        containers.as_array("X", given)
    # values are checked by as_rows: scikit-learn's message of NaN has five lines
    dense = validate_data(
        estimator, given, reset=reset, dtype=(np.float64, np.float32), ensure_all_finite=False
    )
    as_row_shape("X", given)  # scikit-learn reads text, dates and packed bits as numbers
    return as_rows("X", dense)


def _converted(array: npt.NDArray[Any], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return array in C order and of dtype; values too large for dtype become infinite."""
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(array, dtype=dtype)


def check_same_width(name: str, rows: Any, other_name: str, other: Any) -> None:
    """Refuse rows whose width differs from that of other; both have a shape."""
    if rows.shape[1] != other.shape[1]:
        rule = f"have as many columns as {other_name} ({other.shape[1]})"
        raise ValueError(f"{name} must {rule}, got {rows.shape[1]}")


def check_length(name: str, rows: Rows, length: int, of: str) -> None:
    """Refuse rows whose number is not length."""
    if len(rows) != length:
        raise ValueError(f"{name} must have as many rows as {of} ({length}), got {len(rows)}")


def check_enough(name: str, count: int, least: int, what: str) -> int:
    """Return count if it is at least least."""
    if count < least:
        raise ValueError(f"{name} must have at least {least} {what}, got {count}")
    return count


def as_vector(name: str, values: Any, length: int | None = None) -> npt.NDArray[np.float64]:
    """Return values as a finite, read-only float64 vector of the given length."""
    array = containers.as_array(name, values)
    if array.ndim != 1 or (length is not None and len(array) != length):
        wanted = "1-dimensional" if length is None else f"of shape ({length},)"
        raise ValueError(f"{name} must be {wanted}, got shape {array.shape}")
    vector = _converted(array, np.float64)
    if not np.isfinite(vector).all():
        at = int(np.flatnonzero(~np.isfinite(vector))[0])
        raise ValueError(f"{name} must be finite, got {vector[at]} at position {at}")
    return read_only(vector)


def as_positive_diagonal(name: str, values: Any, length: int) -> npt.NDArray[np.float64]:
    """Return values as the diagonal of an invertible D with positive entries, (length,) float64."""
    diagonal = as_vector(name, values, length)
    if not (diagonal > 0).all():
        at = int(np.flatnonzero(~(diagonal > 0))[0])
        raise ValueError(f"{name} must be positive, got {diagonal[at]:g} at position {at}")
    return diagonal


def as_weights(name: str, values: Any, length: int) -> npt.NDArray[np.float64]:
    """Return values that are not negative, and not all 0, as a vector (length,) float64."""
    weights = as_vector(name, values, length)
    if weights.min() < 0 or not weights.max() > 0:
        got = f"values from {weights.min():g} to {weights.max():g}"
        raise ValueError(f"{name} must be at least 0 and not all 0, got {got}")
    return weights


def as_probabilities(name: str, values: Any, length: int) -> npt.NDArray[np.float64]:
    """Return the values of as_weights divided by their sum, (length,) float64."""
    shares = as_weights(name, values, length)
    shares = shares / shares.max()
    return read_only(shares / shares.sum())


def as_labels(name: str, labels: Any, length: int) -> npt.NDArray[np.int64]:
    """Return labels as whole numbers 0 .. C-1 by sorted value, (length,) int64.

    Labels may be integers or strings, not both; at least two different ones.
    """
    labels = containers.from_container(name, labels)
    # as objects: NumPy would turn ["a", 1, nan] into three strings
    array = np.asarray(labels, dtype=None if hasattr(labels, "dtype") else object)
    if array.shape != (length,):
        raise ValueError(f"{name} must be of shape ({length},), got {array.shape}")
    if array.dtype.kind == "O":
        kind = str if len(array) and isinstance(array[0], str) else (int, np.integer)
        odd = [value for value in array if not isinstance(value, kind)]
        if odd and is_missing(odd[0]):
            at = next(row for row, value in enumerate(array) if is_missing(value))
            raise TypeError(
                f"{name} must hold integers or strings in every row, got {format_value(odd[0])} in "
                f"row {at} (leave out rows without a label)"
            )
        if odd:
            raise TypeError(
                f"{name} must hold integers or strings, not both, got {format_value(odd[0])}"
            )
        array = np.array(array.tolist()) if len(array) else np.zeros(0, np.int64)
    if array.dtype.kind not in "iubU":
        raise TypeError(f"{name} must hold integers or strings, got dtype {array.dtype}")
    values, codes = np.unique(array, return_inverse=True)
    if len(values) < 2:
        raise ValueError(f"{name} must have at least two different values, got {len(values)}")
    return read_only(codes.astype(np.int64))


def is_missing(value: Any) -> bool:
    """Whether a value is None, NaN, or the NA or NaT of pandas."""
    is_nan = isinstance(value, (float, np.floating)) and value != value
    return value is None or is_nan or type(value).__name__ in ("NAType", "NaTType")


def as_partial_labels(name: str, labels: Any, length: int) -> npt.NDArray[np.int64]:
    """Return the codes of as_labels, and -1 where the label is None; (length,) int64."""
    array = np.asarray(containers.from_container(name, labels), dtype=object)
    if array.shape != (length,):
        raise ValueError(f"{name} must be of shape ({length},), got {array.shape}")
    given = np.array([value is not None for value in array])
    for row, value in enumerate(array):
        if value is not None and is_missing(value):
            rule = "integers or strings, or None for no label"
            raise TypeError(f"{name} must hold {rule}, got {format_value(value)} in row {row}")
    codes = np.full(length, -1, np.int64)
    codes[given] = as_labels(name, array[given].tolist(), int(given.sum()))
    return read_only(codes)


def as_generator(name: str, seed: Any) -> np.random.Generator:
    """Return seed if it is a generator, else a new one seeded by that whole number."""
    if isinstance(seed, np.random.Generator):
        return seed
    return np.random.default_rng(as_count(name, seed, low=0))


def as_flag(name: str, value: Any) -> bool:
    """Return value if it is True or False."""
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{name} must be True or False, got {format_value(value)}")
    return bool(value)


def check_none(name: str, value: Any, reason: str) -> None:
    """Refuse any value but None; reason completes the message."""
    if value is not None:
        # a command's flag is left out, a function's argument is None
        absent = "left out" if name.startswith("--") else "None"
        raise ValueError(f"{name} must be {absent} {reason}, got {format_value(value)}")


def as_path(name: str, value: Any) -> Path:
    """Return value as a path that is not empty."""
    if not isinstance(value, (str, os.PathLike)) or not str(value):
        raise TypeError(f"{name} must be a path, got {format_value(value)}")
    return Path(value)


def as_instance(name: str, value: Any, kind: type[Kind], rule: str) -> Kind:
    """Return value if it is an instance of kind; rule says what that is in words."""
    if not isinstance(value, kind):
        found = "None" if value is None else type(value).__name__
        raise TypeError(f"{name} must be {rule}, got {found}")
    return value


def largest_magnitude(values: npt.NDArray[Any]) -> float:
    """Return the largest absolute value, 0 of an empty array, without a copy of the values."""
    return float(max(values.max(), -values.min())) if values.size else 0.0


def check_scorable(name: str, rows: Rows, other: Rows, width: int | None = None) -> None:
    """Refuse rows whose float64 inner products with other's, or their norms, would overflow.

    width: columns of the rows, where these are the values of sparse ones.
    """
    for side in (rows, other):
        # float32 cannot overflow a float64 sum
        largest = largest_magnitude(side) if side.dtype == np.float64 else 0.0
        if largest > 1e150 / (width or side.shape[1]):
            rule = "have entries whose squares can be summed"
            raise ValueError(f"{name} must {rule}, got one of {largest:g}")


def check_squarable(name: str, values: npt.NDArray[Any]) -> None:
    """Refuse values whose Gram matrix, or its squares in float64, would overflow or underflow."""
    limit = 1e12 if values.dtype == np.float32 else 1e60
    largest = largest_magnitude(values)
    if largest > limit or 0 < largest < 1 / limit:
        rule = f"have its largest magnitude from {1 / limit:g} to {limit:g} (scale it)"
        raise ValueError(f"{name} must {rule}, got {largest:g}")


def as_item_numbers(name: str, items: Any, n_items: int) -> npt.NDArray[np.int64]:
    """Return a mask (n_items,) or a list of item numbers as ascending item numbers, int64."""
    array = _as_mask_or_numbers(name, items, n_items)
    if array.dtype.kind == "b":
        return np.flatnonzero(array).astype(np.int64, copy=False)
    return distinct_numbers(array, n_items)


def as_item_mask(name: str, items: Any, n_items: int) -> npt.NDArray[np.bool_]:
    """Return a mask or a list of item numbers as a mask (n_items,)."""
    array = _as_mask_or_numbers(name, items, n_items)
    if array.dtype.kind == "b":
        return array
    mask = np.zeros(n_items, np.bool_)
    mask[array] = True
    return mask


def _as_mask_or_numbers(name: str, items: Any, n_items: int) -> npt.NDArray[Any]:
    """Return a mask of booleans (n_items,), or item numbers in any order."""
    array = np.asarray(containers.from_container(name, items))
    if is_empty_list(array) and array.dtype.kind != "b":  # NumPy makes float64 of []
        return np.empty(0, np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iub":
        got = f"dtype {array.dtype} of shape {array.shape}"
        if array.ndim == 2 and array.dtype.kind in "iub":  # a mask for each query
            got += " (for each query its own: scipy.sparse.csr_array(mask))"
        raise TypeError(f"{name} must be a mask or item numbers of one dimension, got {got}")
    if array.dtype.kind == "b":
        if len(array) != n_items:
            raise ValueError(f"{name} must be of shape ({n_items},), got {array.shape}")
        return array
    least, largest = int(array.min()), int(array.max())
    if least < 0 or largest >= n_items:
        got = f"{least} to {largest}"
        raise ValueError(f"{name} must hold item numbers from 0 to {n_items - 1}, got {got}")
    if n_items > 2 and len(array) == n_items and (least, largest) == (0, 1):
        got = f"zeros and ones of dtype {array.dtype} (use .astype(bool))"
        raise TypeError(f"{name} must be a mask of booleans or item numbers, got {got}")
    return array


def is_empty_list(values: Any) -> bool:
    """Whether values are a list or a one-dimensional array without entries, which is not None."""
    shape = getattr(values, "shape", None)
    if shape is None:
        return isinstance(values, (list, tuple, set, frozenset)) and not len(values)
    return tuple(shape) == (0,)


def distinct_numbers(numbers: npt.NDArray[Any], n_items: int) -> npt.NDArray[np.int64]:
    """Return the distinct ones of numbers from 0 to n_items - 1, ascending, int64."""
    if len(numbers) * _SORTED_SHARE < n_items:
        return np.unique(numbers).astype(np.int64)
    is_listed = np.zeros(n_items, np.bool_)
    is_listed[numbers] = True
    return np.flatnonzero(is_listed).astype(np.int64, copy=False)


def check_memory(name: str, given: float, needed: float) -> None:
    """Refuse less memory than needed; both in bytes."""
    if given < needed:
        rule = f"at least {needed / 2**20:.2f} MiB here"
        raise ValueError(f"{name} must be {rule}, got {given / 2**20:.2f}")


def check_shape(name: str, shape: tuple[int, ...], wanted: tuple[int, ...]) -> None:
    """Refuse an array of another shape."""
    if tuple(shape) != wanted:
        raise ValueError(f"{name} must be of shape {wanted}, got {tuple(shape)}")


def check_fitted(name: str, state: Kind | None) -> Kind:
    """Return state, which fit sets; refuse None."""
    if state is None:
        raise ValueError(f"{name} must be fitted before it is used, got one without items")
    return state


def read_only(array: Array) -> Array:
    """Return a read-only view, None for None: one compiled signature, and inputs stay as given."""
    if array is None:
        return array
    view = array.view()
    view.flags.writeable = False
    return view
