"""Functions that the metrics share: validation, unit rows, grouping by label, and products."""

import contextlib
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastcos import parallel, validation
from fastcos.kernels import dot_tile
from fastcos.kernels.simd.dot_tile import COLUMNS, ROWS
from fastcos.validation import Floats, Integers

# Number of rows in a partial sum. The number of rows is fixed, so that the order of summation, and
# therefore the rounding, does not depend on the number of threads.
CHUNK = 4096
# Smallest number of rows in a task if there are more than _MANY_ROWS rows.
_STRIP = 96
# Smallest number of rows in a task if there are at most _MANY_ROWS rows. With tasks of this size,
# even a hundred rows are divided among several threads.
_SHORT_STRIP = 2 * ROWS
_MANY_ROWS = 16 * _STRIP
# Smallest number of multiplications in a task, so that a task takes at least about 0.1 ms. Passing
# a task to a thread takes 0.03 ms, so a task must take much longer than that to be worth passing.
_MIN_WORK = 2**21


def as_shared_labels(codes: Integers) -> Integers:
    """Return the label codes of non-zero rows, renumbered from 0 without gaps.

    Raise ValueError if all rows have the same label, or if no two rows have the same label.
    """
    values, renumbered = np.unique(codes, return_inverse=True)
    if not 2 <= len(values) < len(codes):
        rule = (
            "have at least two different values on non-zero rows, and one of these values must "
            "occur at least twice"
        )
        got = f"{len(values)} different values on {len(codes)} rows"
        raise ValueError(f"labels must {rule}, got {got}")
    return validation.read_only(renumbered.astype(np.int64))


def as_neighbor_lists(
    name: str, indices: Any, k: Any = None, *, n_items: int | None = None, padded: bool = False
) -> Integers:
    """Return the first k columns of the neighbour lists (n, K) as int64, after validation.

    Raise ValueError if a list repeats an item, or if a list contains -1 although `padded` is false.
    """
    is_text = False
    with contextlib.suppress(ValueError):  # as_array refuses lists of different lengths
        is_text = np.asarray(indices).dtype.kind in "UT"
    if is_text:
        got = "texts. Pass positions, such as the .indices of a search, and not ids"
        raise TypeError(f"{name} must hold item numbers, got {got}")
    array = validation.as_array(name, indices)
    if array.dtype.kind not in "iu" or array.ndim != 2 or 0 in array.shape:
        rule = "be a two-dimensional array of integers (lists, items)"
        raise ValueError(f"{name} must {rule}, got shape {array.shape} of {array.dtype}")
    k = array.shape[1] if k is None else validation.as_count("k", k, 1, array.shape[1])
    lists = np.ascontiguousarray(array[:, :k], dtype=np.int64)
    lowest = -1 if padded else 0
    if lists.min() < lowest or (n_items is not None and lists.max() >= n_items):
        bounds = f"of at least {lowest}" if n_items is None else f"from {lowest} to {n_items - 1}"
        invalid = lists.min() if lists.min() < lowest else lists.max()
        raise ValueError(f"{name} must hold item numbers {bounds}, got {invalid}")
    ordered = np.sort(lists, axis=1)
    is_repeated = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)
    rows_with_repeats = np.flatnonzero(is_repeated.any(axis=1))
    if len(rows_with_repeats):
        rows = validation.format_rows(rows_with_repeats)
        raise ValueError(f"{name} must not repeat an item in a list, got repetitions in {rows}")
    return validation.read_only(lists)


def check_same_length(name: str, length: int, other_name: str, other_length: int) -> None:
    """Raise ValueError if the lengths of two arguments differ."""
    if length != other_length:
        raise ValueError(f"{name} must be as long as {other_name} ({other_length}), got {length}")


def check_varying(name: str, varies: bool, values: str) -> None:
    """Raise ValueError if the data do not vary, because their correlation is then undefined."""
    if not varies:
        raise ValueError(f"{name} must have different {values}, got {values} that are all equal")


def unit_rows(rows: validation.Rows) -> Floats:
    """Return the rows divided by their norms, in float64; a zero row stays zero.

    Squares of tiny and huge entries do not underflow or overflow.
    """
    largest = np.maximum(rows.max(axis=1), -rows.min(axis=1)).astype(np.float64)
    _, exponents = np.frexp(largest)
    # Multiplying by powers of two does not round, and it keeps the squares from overflowing.
    scales = np.ldexp(1.0, -np.clip(exponents, -1021, 1021))
    unit: Floats = rows * scales[:, None]
    norms = np.sqrt(np.einsum("ij,ij->i", unit, unit))
    unit /= np.where(norms > 0, norms, 1.0)[:, None]
    return unit


def same_rows(
    name: str, first: Any, other_name: str, second: Any
) -> tuple[validation.Rows, validation.Rows]:
    """Return two validated matrices, after checking that they have the same number of rows."""
    X, Y = validation.as_rows(name, first), validation.as_rows(other_name, second)
    check_same_length(other_name, len(Y), name, len(X))
    return X, Y


class Score(NamedTuple):
    """The result of a metric whose score is a single number.

    Attributes
    ----------
    value : float
        The score.
    n_left_out : int
        Number of rows that were left out because the score cannot use them, such as zero rows.
    """

    value: float
    n_left_out: int


class LabelledRows(NamedTuple):
    """Non-zero unit rows, sorted by label and then by input order.

    - `rows` (n, d): the unit rows.
    - `codes` (n,): the label codes of the rows; they are in ascending order. With C labels, all
      codes from 0 to C - 1 occur.
    - `starts` (C + 1,): ``rows[starts[c] : starts[c + 1]]`` are the rows with the label code c.
    - `row_numbers` (n,): the indices of the unit rows in the input.
    - `n_left_out`: the number of input rows that are zero or that the mask excludes.
    """

    rows: Floats
    codes: Integers
    starts: Integers
    row_numbers: Integers
    n_left_out: int


def labelled_rows(
    items: Any, labels: Any, mask: npt.NDArray[np.bool_] | None = None
) -> LabelledRows:
    """Return the non-zero rows of the items, divided by their norms and sorted by label.

    Raise ValueError if all rows have the same label, or if no label occurs on more than one row. If
    `mask` (p,) is not None, only the rows whose entry in `mask` is true are used.
    """
    rows = validation.as_rows("items", items)
    codes = validation.as_labels("labels", labels, len(rows))
    is_nonzero = rows.any(axis=1)
    row_numbers = np.flatnonzero(is_nonzero if mask is None else is_nonzero & mask)
    codes = as_shared_labels(codes[row_numbers])
    order = np.argsort(codes, kind="stable")
    row_numbers, codes = row_numbers[order], codes[order]
    starts = np.searchsorted(codes, np.arange(codes[-1] + 2))
    return LabelledRows(
        unit_rows(rows[row_numbers]), codes, starts.astype(np.int64), row_numbers,
        len(rows) - len(row_numbers),
    )  # fmt: skip


def packed(rows: Floats, n_threads: int | None = None) -> Floats:
    """Return the rows packed into panels of 32 rows, which is the layout that kernels read."""
    n, d = rows.shape
    panels = parallel.unfilled((-(-n // COLUMNS), d, COLUMNS), np.float64)
    cuts = parallel.row_blocks(len(panels), 16)
    parallel.run(dot_tile.pack_rows, cuts, validation.read_only(rows), panels, n_threads=n_threads)
    return validation.read_only(panels)


def products(rows: Floats, panels: Floats, n_columns: int, n_threads: int | None = None) -> Floats:
    """Return the inner products (n, n_columns) between `rows` and the rows packed in `panels`.

    The rounding errors of a product depend only on the two rows, not on how the work is divided
    into tasks.
    """
    out = parallel.unfilled((len(rows), n_columns), np.float64)
    strip = _STRIP if len(rows) > _MANY_ROWS else _SHORT_STRIP
    cuts = parallel.row_blocks(len(rows), max(strip, _MIN_WORK // max(1, panels.size)))
    rows = validation.read_only(np.ascontiguousarray(rows))
    parallel.run(dot_tile.products_rows, cuts, rows, panels, out, n_threads=n_threads)
    return out


def cross_products(X: Floats, Y: Floats) -> Floats:
    """Return X'Y (k1, k2), summed over chunks of rows in the order of the rows."""
    total = np.zeros((X.shape[1], Y.shape[1]))
    for first in range(0, len(X), CHUNK):
        chunk = slice(first, first + CHUNK)
        panels = packed(np.ascontiguousarray(Y[chunk].T))
        total += products(X[chunk].T, panels, Y.shape[1])
    return total
