"""What the metrics share: unit rows, rows grouped by label, products in a fixed order."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastcos import parallel, validation
from fastcos.kernels import dot_tile
from fastcos.metrics import checks

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

# rows of one partial sum, and of one call of a kernel: fixed, so that sums have one order
CHUNK = 4096
STRIP = 96
# fewer rows than MANY are cut finer: a hundred would be one strip, and the work of one thread
MANY, FEW_ROWS = 16 * STRIP, 2 * dot_tile.ROWS


def unit_rows(rows: validation.Rows) -> Floats:
    """Return float64 rows of length 1, tiny and huge ones too; a zero row stays zero."""
    largest = np.maximum(rows.max(axis=1), -rows.min(axis=1)).astype(np.float64)
    _, exponents = np.frexp(largest)
    # powers of two: scaling by them rounds nothing away
    scales = np.ldexp(1.0, -np.clip(exponents, -1021, 1021))
    unit: Floats = rows * scales[:, None]
    lengths = np.sqrt(np.einsum("ij,ij->i", unit, unit))
    unit /= np.where(lengths > 0, lengths, 1.0)[:, None]
    return unit


def same_rows(
    name: str, first: Any, other_name: str, second: Any
) -> tuple[validation.Rows, validation.Rows]:
    """Settle two matrices with a row for every one of the same items."""
    X, Y = validation.as_rows(name, first), validation.as_rows(other_name, second)
    checks.as_same_length(other_name, len(Y), name, len(X))
    return X, Y


class LabelledRows(NamedTuple):
    """Non-zero unit rows sorted by label, equal labels in their given order.

    Attributes
    ----------
    rows : ndarray (n, d), float64
    codes : ndarray (n,), int64
        0 .. C-1, rising; every code occurs.
    starts : ndarray (C + 1,), int64
        Rows of code c are starts[c] .. starts[c+1].
    places : ndarray (n,), int64
        Their row numbers in the input.
    n_left_out : int
        Zero rows, and rows that are not kept.
    """

    rows: Floats
    codes: Integers
    starts: Integers
    places: Integers
    n_left_out: int


def labelled_rows(
    items: Any, labels: Any, kept: npt.NDArray[np.bool_] | None = None
) -> LabelledRows:
    """Settle items and labels; non-zero rows must have two labels at least, one of them shared."""
    given = validation.as_rows("items", items)
    codes = validation.as_labels("labels", labels, len(given))
    filled = given.any(axis=1)
    places = np.flatnonzero(filled if kept is None else filled & kept)
    codes = checks.as_shared_labels("labels", codes[places])
    order = np.argsort(codes, kind="stable")
    places, codes = places[order], codes[order]
    starts = np.searchsorted(codes, np.arange(codes[-1] + 2))
    return LabelledRows(
        unit_rows(given[places]), codes, starts.astype(np.int64), places, len(given) - len(places)
    )


def packed(rows: Floats, n_threads: int | None = None) -> Floats:
    """Return rows laid out in panels of 32 for the kernels."""
    n, d = rows.shape
    panels = parallel.unfilled((-(-n // dot_tile.COLUMNS), d, dot_tile.COLUMNS), np.float64)
    cuts = parallel.row_blocks(len(panels), 16)
    parallel.run(dot_tile.pack_rows, cuts, validation.read_only(rows), panels, n_threads=n_threads)
    return validation.read_only(panels)


def products(rows: Floats, panels: Floats, n_columns: int, n_threads: int | None = None) -> Floats:
    """Return rows times the n_columns packed rows, (n, n_columns); the same bits on any cut."""
    out = parallel.unfilled((len(rows), n_columns), np.float64)
    cuts = parallel.row_blocks(len(rows), STRIP if len(rows) > MANY else FEW_ROWS)
    rows = validation.read_only(np.ascontiguousarray(rows))
    parallel.run(dot_tile.products_rows, cuts, rows, panels, out, n_threads=n_threads)
    return out


def cross_products(X: Floats, Y: Floats) -> Floats:
    """Return X'Y (k1, k2): partial sums over chunks of rows, added in their order."""
    total = np.zeros((X.shape[1], Y.shape[1]))
    for first in range(0, len(X), CHUNK):
        chunk = slice(first, first + CHUNK)
        right = packed(np.ascontiguousarray(Y[chunk].T))
        total += products(X[chunk].T, right, Y.shape[1])
    return total
