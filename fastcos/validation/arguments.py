"""The gate: every argument is settled here (CSR in validate_csr), and only there is it refused.

A message has three parts: the argument, the rule, what came. Everything that a kernel receives has
passed: C order, float32 or float64, finite, sizes checked, CSR canonical, read-only.
"""

import math
import operator
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

Rows = npt.NDArray[np.float32] | npt.NDArray[np.float64]
Array = TypeVar("Array", bound=npt.NDArray[Any])
Kind = TypeVar("Kind")


def format_value(value: Any) -> str:
    """What came, for a message: arrays by their shape."""
    return f"an array of shape {value.shape}" if isinstance(value, np.ndarray) else repr(value)


def as_count(name: str, value: Any, low: int = 1, high: int | None = None) -> int:
    """Return value as a whole number from low to high."""
    try:
        if isinstance(value, (bool, np.bool_)):
            raise TypeError
        count = operator.index(value)
    except TypeError:
        if not (isinstance(value, (float, np.floating)) and float(value).is_integer()):
            raise _bad_count(name, value, low, high) from None
        count = int(value)
    if count < low or (high is not None and count > high):
        raise _bad_count(name, value, low, high)
    return count


def _bad_count(name: str, value: Any, low: int, high: int | None) -> ValueError:
    bounds = f"from {low} to {high}" if high is not None else f"of at least {low}"
    return ValueError(f"{name} must be a whole number {bounds}, got {format_value(value)}")


def as_number(name: str, text: Any) -> float:
    """Return text, as it stands in the environment or a file, as a number."""
    try:
        return float(text)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a number, got {text!r}") from None


def as_neighbor_count(k: Any, n_rows: int, *, without_itself: bool) -> int:
    """Return k, how many of n_rows rows to find for each query, without itself if so."""
    if n_rows - without_itself < 1:
        raise ValueError(
            "rows must be two at least where a row is not its own neighbour (give "
            f"exclude_self=False, or items), got {n_rows}"
        )
    return as_count("k", k, high=n_rows - without_itself)


def as_real(
    name: str,
    value: Any,
    *,
    low: float | None = None,
    above: float | None = None,
    high: float | None = None,
) -> float:
    """Return value as a finite number, at least low, greater than above, at most high."""
    rules = [
        f"{sign} {bound:g}"
        for sign, bound in ((">=", low), (">", above), ("<=", high))
        if bound is not None
    ]
    rule = " ".join(["a finite number", " and ".join(rules)]).strip()
    if isinstance(value, (bool, np.bool_, str, bytes)):
        raise ValueError(f"{name} must be {rule}, got {format_value(value)}")
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{name} must be {rule}, got {format_value(value)}") from None
    fits = (
        math.isfinite(number)
        and (low is None or number >= low)
        and (above is None or number > above)
        and (high is None or number <= high)
    )
    if not fits:
        raise ValueError(f"{name} must be {rule}, got {format_value(value)}")
    return number


def as_choice(name: str, value: Any, choices: Collection[str]) -> str:
    """Return value if it is one of choices."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, got {format_value(value)}")
    return value


def as_supported(name: str, value: str, supported: Collection[str], by: str) -> str:
    """Return value if it is one of those that this machine can run."""
    if value not in supported:
        raise ValueError(
            f"{name} must be supported by {by} ({', '.join(supported)}), got {value!r}"
        )
    return value


def as_rows(name: str, X: Any, *, dtype: npt.DTypeLike | None = None) -> Rows:
    """Return X as C-contiguous, finite, read-only rows (n, d), float32 or float64, n and d >= 1.

    float16 becomes float32; integers and booleans become float64; dtype forces one of the two.
    Copies only where order or type differ.
    """
    array = as_row_shape(name, X)
    if dtype is None:
        small = array.dtype in (np.float32, np.float16)
        dtype = np.float32 if small else np.float64
    rows = _converted(array, dtype)
    if not (np.isfinite(rows.min()) and np.isfinite(rows.max())):
        broken = np.flatnonzero(~np.isfinite(rows).all(axis=1))
        raise ValueError(
            f"{name} must be finite, got NaN or infinity in {format_rows(broken)} (counted from 0)"
        )
    return read_only(rows)


def as_row_shape(name: str, X: Any) -> npt.NDArray[Any]:
    """Return X as an array (n, d) of real numbers, n and d >= 1, without reading any of them."""
    array = _as_real_array(name, X)
    if array.ndim != 2:
        raise ValueError(f"{name} must be 2-dimensional (rows, columns), got shape {array.shape}")
    if 0 in array.shape:
        raise ValueError(f"{name} must have at least one row and one column, got {array.shape}")
    return array


def _as_real_array(name: str, values: Any) -> npt.NDArray[Any]:
    """Return values as an array of real numbers, of any shape."""
    if sp.issparse(values):
        raise TypeError(f"{name} must be a dense array, got a sparse matrix")
    if isinstance(values, np.ma.MaskedArray):
        raise TypeError(f"{name} must be an array without a mask, got a masked array")
    try:
        array = np.asarray(values)
    except ValueError:  # NumPy's message would not name the argument
        raise ValueError(f"{name} must have rows of one length, got rows that differ") from None
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name} must hold real numbers, got dtype {array.dtype}")
    return array


def _converted(array: npt.NDArray[Any], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return array in C order and of dtype; what is too large becomes infinite, silently."""
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(array, dtype=dtype)


def check_same_width(name: str, rows: Any, other_name: str, other: Any) -> None:
    """Refuse rows whose width differs from that of other; both have a shape."""
    if rows.shape[1] != other.shape[1]:
        raise ValueError(
            f"{name} must have as many columns as {other_name} ({other.shape[1]}), "
            f"got {rows.shape[1]}"
        )


def check_length(name: str, rows: Rows, length: int, of: str) -> None:
    """Refuse rows that are not as many as what they are multiplied with."""
    if len(rows) != length:
        raise ValueError(f"{name} must have as many rows as {of} ({length}), got {len(rows)}")


def as_vector(name: str, values: Any, length: int | None = None) -> npt.NDArray[np.float64]:
    """Return values as a finite, read-only float64 vector of the given length."""
    array = _as_real_array(name, values)
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


def as_shares(name: str, values: Any, length: int) -> npt.NDArray[np.float64]:
    """Return non-negative values, not all 0, divided by their sum, (length,) float64."""
    shares = as_vector(name, values, length)
    if shares.min() < 0 or not shares.max() > 0:
        raise ValueError(f"{name} must be at least 0 and not all 0, got {shares.tolist()}")
    shares = shares / shares.max()
    return read_only(shares / shares.sum())


def as_labels(name: str, labels: Any, length: int) -> npt.NDArray[np.int64]:
    """Return labels as whole numbers 0 .. C-1 by sorted value, (length,) int64.

    Labels may be integers or strings, not both; at least two different ones.
    """
    # as objects, for NumPy would turn ["a", 1, nan] into three strings
    array = np.asarray(labels, dtype=None if hasattr(labels, "dtype") else object)
    if array.shape != (length,):
        raise ValueError(f"{name} must be of shape ({length},), got {array.shape}")
    if array.dtype.kind == "O":
        kind = str if len(array) and isinstance(array[0], str) else (int, np.integer)
        odd = [value for value in array if not isinstance(value, kind)]
        if odd:
            raise TypeError(f"{name} must hold integers or strings, not both, got {odd[0]!r}")
        array = np.array(array.tolist()) if len(array) else np.zeros(0, np.int64)
    if array.dtype.kind not in "iubU":
        raise TypeError(f"{name} must hold integers or strings, got dtype {array.dtype}")
    values, codes = np.unique(array, return_inverse=True)
    if len(values) < 2:
        raise ValueError(f"{name} must have at least two different values, got {len(values)}")
    return read_only(codes.astype(np.int64))


def as_partial_labels(name: str, labels: Any, length: int) -> npt.NDArray[np.int64]:
    """Return labels as as_labels does, and -1 where the label is None."""
    array = np.asarray(labels, dtype=object)
    if array.shape != (length,):
        raise ValueError(f"{name} must be of shape ({length},), got {array.shape}")
    given = np.array([value is not None for value in array])
    codes = np.full(length, -1, np.int64)
    codes[given] = as_labels(name, array[given].tolist(), int(given.sum()))
    return read_only(codes)


def as_known_id(name: str, text: str, ids: npt.NDArray[Any]) -> int:
    """Return the position of the id that is written like text."""
    found = np.flatnonzero(ids.astype(str) == text)
    if len(found) == 0:
        raise ValueError(f"{name} must be an id of the items, such as {ids[0]}, got {text!r}")
    return int(found[0])


def as_generator(name: str, seed: Any) -> np.random.Generator:
    """Return a generator seeded by a whole number, or the generator that came."""
    if isinstance(seed, np.random.Generator):
        return seed
    return np.random.default_rng(as_count(name, seed, low=0))


def as_flag(name: str, value: Any) -> bool:
    """Return value if it is True or False."""
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{name} must be True or False, got {format_value(value)}")
    return bool(value)


def check_none(name: str, value: Any, reason: str) -> None:
    """Refuse any value, for the reason given."""
    if value is not None:
        # a flag is left out, an argument of a function is None
        absent = "left out" if name.startswith("--") else "None"
        raise ValueError(f"{name} must be {absent} {reason}, got {format_value(value)}")


def as_asked(name: str, values: Collection[Any], reason: str) -> None:
    """Refuse none at all where one is needed."""
    if not values:
        raise ValueError(f"{name} must be given {reason}, got none")


def as_path(name: str, value: Any) -> Path:
    """Return value as a path that is not empty."""
    if not isinstance(value, (str, os.PathLike)) or not str(value):
        raise TypeError(f"{name} must be a path, got {format_value(value)}")
    return Path(value)


class OccupiedError(ValueError):
    """A directory holds something else than what is to be written to it."""


def as_known_items(name: str, path: Any, n_known: int, ids: npt.NDArray[Any]) -> None:
    """Refuse a file of which no item is among the ids."""
    if not n_known:
        raise ValueError(
            f"{name} must hold interactions with items of the model (such as {ids[0]}), got none "
            f"in {path}"
        )


def check_replaceable(name: str, path: Path, mark: str) -> None:
    """Refuse a path that exists, unless it is a directory that is empty or holds the file mark."""
    empty = path.is_dir() and next(path.iterdir(), None) is None
    if path.exists() and not empty and not (path / mark).is_file():
        raise OccupiedError(
            f"{name} must be a new directory or one with a {mark}, got {str(path)!r}"
        )


def check_new_directory(name: str, path: Path) -> None:
    """Refuse a path that exists, unless it is an empty directory."""
    if path.exists() and not (path.is_dir() and next(path.iterdir(), None) is None):
        raise ValueError(f"{name} must be a new or an empty directory, got {str(path)!r}")


def as_output_directory(name: str, value: Any) -> Path:
    """Return value as the path of a directory that files can be written to, now or once made."""
    path = as_path(name, value)
    nearest = next(place for place in (path, *path.absolute().parents) if place.exists())
    if not nearest.is_dir():
        raise ValueError(f"{name} must be a directory, got {str(path)!r}: {nearest} is a file")
    if not os.access(nearest, os.W_OK):
        raise ValueError(
            f"{name} must be a directory that can be written, got {str(path)!r}: no right to write "
            f"to {nearest}"
        )
    return path


def as_output_file(name: str, value: Any) -> Path:
    """Return value as the path of a regular file, there or new, in a directory as above."""
    path = as_path(name, value)
    target = Path(os.path.realpath(path))  # a link still, where links go round
    if (target.exists() or target.is_symlink()) and not target.is_file():
        raise ValueError(f"{name} must be a regular file or a new one, got {str(path)!r}")
    as_output_directory(f"the folder of {name}", target.parent)
    return path


def as_same_run(name: str, path: Path, before: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
    """Refuse to go on with a run that asked for something else."""
    for key, value in asked.items():
        if before.get(key) != value:
            raise OccupiedError(
                f"{name} must be a new directory or hold a run that asked for the same, got "
                f"{str(path)!r} of a run with another {key}; remove it to start anew"
            )


def as_measure_of_blocks(name: str, refused: bool, measure: str) -> None:
    """Refuse a measure that looks for neighbours, or for extremes, before the search."""
    if refused:
        raise ValueError(
            f"{name} must see one row at a time, or means and moments of all, where rows are read "
            f"in blocks (cosine, dot, whitened_cosine and the like), got {measure!r}"
        )


def as_measure_of_tasks(name: str, learns: bool, measure: str) -> None:
    """Refuse a measure that learns from all items where a task sees only some of them."""
    if learns:
        raise ValueError(
            f"{name} must learn nothing from the items on a cluster (cosine, dot, neg_euclidean, "
            f"angular and the like), got {measure!r}"
        )


def as_instance(name: str, value: Any, kind: type[Kind], rule: str) -> Kind:
    """Return value if it is an instance of kind; rule says what that is in words."""
    if not isinstance(value, kind):
        came = "None" if value is None else type(value).__name__
        raise TypeError(f"{name} must be {rule}, got {came}")
    return value


def check_scorable(name: str, rows: Rows, other: Rows) -> None:
    """Refuse rows whose float64 inner products with other's, or their norms, would overflow."""
    for some in (rows, other):
        # float32 cannot overflow a float64 sum
        largest = float(max(some.max(), -some.min())) if some.dtype == np.float64 else 0.0
        if largest > 1e150 / some.shape[1]:
            raise ValueError(
                f"{name} must have entries whose squares can be summed, got one of {largest:g}"
            )


def as_float32(name: str, values: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Return values as contiguous float32, which holds no number beyond 3.4e38."""
    largest = float(max(values.max(), -values.min())) if values.size else 0.0
    if not largest <= float(np.finfo(np.float32).max):
        raise ValueError(f"{name} must fit in float32 (scale the input), got {largest:g}")
    return np.ascontiguousarray(values, np.float32)


def check_squarable(name: str, values: npt.NDArray[Any]) -> None:
    """Refuse values whose Gram matrix, or its squares in float64, would overflow or vanish."""
    limit = 1e12 if values.dtype == np.float32 else 1e60
    largest = float(max(values.max(), -values.min())) if values.size else 0.0
    if largest > limit or 0 < largest < 1 / limit:
        raise ValueError(
            f"{name} must have its largest magnitude from {1 / limit:g} to {limit:g} (scale it), "
            f"got {largest:g}"
        )


def as_item_numbers(name: str, items: Any, n_items: int) -> npt.NDArray[np.int64]:
    """Return a mask (n_items,) or a list of item numbers as rising item numbers, int64."""
    array = np.asarray(items)
    if array.ndim != 1 or array.dtype.kind not in "iub":
        raise TypeError(
            f"{name} must be a mask or item numbers of one dimension, got dtype {array.dtype} "
            f"of shape {array.shape}"
        )
    if array.dtype.kind == "b":
        if len(array) != n_items:
            raise ValueError(f"{name} must be of shape ({n_items},), got {array.shape}")
        return np.flatnonzero(array).astype(np.int64)
    if len(array) and (int(array.min()) < 0 or int(array.max()) >= n_items):
        raise ValueError(
            f"{name} must hold item numbers from 0 to {n_items - 1}, got "
            f"{int(array.min())} to {int(array.max())}"
        )
    return np.unique(array).astype(np.int64)


def check_memory(name: str, given: float, needed: float) -> None:
    """Refuse an amount of memory, in bytes, that is less than what is needed."""
    if given < needed:
        raise ValueError(
            f"{name} must be at least {needed / 2**20:.2f} MiB here, got {given / 2**20:.2f}"
        )


def as_share_of_worker(name: str, given: float, most: float, worker: str) -> None:
    """Refuse bytes for a task that a worker of a cluster does not have."""
    if given > most:
        raise ValueError(
            f"{name} must be at most {most / 2**20:.0f} MiB a task for worker {worker} (half of "
            f"its memory limit by its threads), got {given / 2**20:.0f}"
        )


def as_memory_of_worker(worker: str, given: float, needed: float) -> None:
    """Refuse work for a cluster of which a worker has too little memory."""
    if given < needed:
        raise ValueError(
            f"worker {worker} must have {needed / 2**20:.0f} MiB a task for these products, got "
            f"{given / 2**20:.0f} (half of its memory limit by its threads): give it more memory "
            "or fewer threads, or write smaller shards"
        )


def check_shape(name: str, shape: tuple[int, ...], wanted: tuple[int, ...]) -> None:
    """Refuse an array of another shape."""
    if tuple(shape) != wanted:
        raise ValueError(f"{name} must be of shape {wanted}, got {tuple(shape)}")


def check_fitted(name: str, state: Kind | None) -> Kind:
    """Return what fit left, if it was called."""
    if state is None:
        raise ValueError(f"{name} must be fitted before it is used, got one without items")
    return state


def read_only(array: Array) -> Array:
    """Return a view that cannot be written to: one compiled signature, and inputs stay as given."""
    view = array.view()
    view.flags.writeable = False
    return view


def format_rows(rows: npt.NDArray[Any]) -> str:
    """Name the first five rows and count the rest."""
    listed = ", ".join(str(row) for row in rows[:5])
    more = f" and {len(rows) - 5} more" if len(rows) > 5 else ""
    return f"{'row' if len(rows) == 1 else 'rows'} {listed}{more}"
