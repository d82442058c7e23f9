"""Kinds of rows, told apart here alone: in memory, memory-mapped, and narrow.

Memory-mapped rows are read in blocks, and so are narrow ones, of one or two bytes a number, which
are widened by block. Kernels read int8, float16 and bfloat16 as they are. Numba has neither type of
two bytes: float16 is handed over as uint16 and bfloat16 as int16, and the kernels widen numbers in
registers (:mod:`fastcos.kernels.pair_scores`).
"""

import contextlib
import hashlib
import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt

from fastcos import parallel, validation

# rows of a block at least: with fewer, a search spends its time between blocks
_MIN_ROWS = 64
# scattered rows that are copied before their pages are released: the system maps up to 16 pages
# around each
_TAKEN_AT_ONCE = 256
# bytes of a map that one thread copies before it releases their pages
_COPIED_AT_ONCE = 1 << 22
# type of the bits of narrow rows that kernels read, by the name of the type of numbers
_BITS = {"int8": np.int8, "float16": np.uint16, "bfloat16": np.int16}


def is_narrow(X: Any) -> bool:
    """Whether X is an array in memory whose type of one or two bytes float32 holds exactly."""
    if type(X) is not np.ndarray:  # a map or a masked array
        return False
    return X.ndim == 2 and X.dtype.itemsize <= 2 and np.can_cast(X.dtype, np.float32)


def is_on_disk(X: Any) -> TypeGuard[np.memmap[Any, Any]]:
    """Whether X is a map of a file, or a view of one; copies of such a map are in memory.

    NumPy keeps the type memmap for what ``copy`` and ``astype`` return.
    """
    return isinstance(X, np.memmap) and _map_of(X) is not None


def is_read_in_blocks(X: Any) -> bool:
    """Whether a search reads X block by block."""
    return is_on_disk(X) or is_narrow(X)


def as_mapped_rows(
    name: str,
    X: Any,
    *,
    on_disk: bool = True,
    narrow: bool = True,
    or_vector: bool = False,
    is_measured: bool = False,
) -> Any:
    """Return X as valid rows; of what is read in blocks only shape and type are checked.

    on_disk, narrow: whether rows of a map, and narrow ones, are left as they are. is_measured: as
    in validation.as_rows.
    """
    if is_on_disk(X):
        is_left = on_disk and X.ndim > 1
    else:
        if isinstance(X, np.memmap):  # a copy of a map
            X = X.view(np.ndarray)
        X = validation.as_shared_array(X) if narrow and not validation.is_float_array(X) else X
        is_left = narrow and is_narrow(X)
    if not is_left:
        return validation.as_rows(name, X, or_vector=or_vector, is_measured=is_measured)
    # a whole array of ml_dtypes would be widened
    validation.as_row_shape(name, X[:1] if is_narrow(X) and X.size else X)
    return X


def has_kernels(X: Any) -> bool:
    """Whether the kernels read the rows X as they are, though they are narrow."""
    return is_narrow(X) and X.dtype.name in _BITS


def as_kept(name: str, X: Any) -> Any:
    """Return rows as an index keeps them: narrow ones that no kernel reads are widened."""
    if not is_narrow(X):
        return X
    if not has_kernels(X):
        return validation.as_rows(name, X)
    return validation.read_only(np.ascontiguousarray(X))


def may_be_shared(rows: npt.NDArray[Any], given: Any) -> bool:
    """Whether rows in memory may be the memory of what they were made from, and change with it."""
    if isinstance(given, (list, tuple)):
        return False
    # a table or a tensor does not tell which memory its arrays share
    return not isinstance(given, np.ndarray) or np.may_share_memory(rows, given)


def as_bits(X: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return narrow rows as the kernels take them, others as they are."""
    if not has_kernels(X):
        return X
    native = np.ascontiguousarray(X, X.dtype.newbyteorder("="))
    return validation.read_only(native.view(_BITS[X.dtype.name]))


def from_bits(rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the numbers that rows of the kernels stand for."""
    if rows.dtype == np.uint16:
        return rows.view(np.float16)
    if rows.dtype == np.int16:
        from ml_dtypes import bfloat16  # who made such rows has it

        return rows.view(bfloat16)
    return rows


def widened(name: str, X: Any) -> Any:
    """Return narrow rows in float32, others as they are."""
    return validation.as_rows(name, X, dtype=np.float32) if is_narrow(X) else X


def read_rows(name: str, X: Any, lo: int, hi: int, n_threads: int | None = 1) -> validation.Rows:
    """Return rows [lo, hi) of X as valid rows; those of a map are copied and their pages released.

    Meanwhile the system reads as many further rows ahead. Narrow rows are widened. Other rows in
    memory are valid already.
    """
    if is_narrow(X):
        return validation.as_rows(f"{name}[{lo}:{hi}]", X[lo:hi], dtype=np.float32)
    if not is_on_disk(X):
        return X[lo:hi]
    read_ahead(X[hi : 2 * hi - lo])
    rows = np.empty((hi - lo, X.shape[1]), X.dtype)
    blocks = parallel.row_blocks(len(rows), max(1, _COPIED_AT_ONCE // (X.shape[1] * X.itemsize)))
    parallel.run(_copy, blocks, X[lo:hi], rows, n_threads=n_threads)
    return validation.as_rows(f"{name}[{lo}:{hi}]", rows)


def iter_blocks(name: str, X: Any, block: int) -> Iterator[tuple[int, validation.Rows]]:
    """Yield the number of the first row, and the valid rows, of every block of X."""
    for lo in range(0, len(X), block):
        yield lo, read_rows(name, X, lo, min(len(X), lo + block))


def take_rows(
    name: str, X: Any, numbers: npt.NDArray[np.integer[Any]], n_threads: int | None = 1
) -> validation.Rows:
    """Return the rows of these numbers, of which there may be none, as valid rows in memory."""
    if not len(numbers) and (is_narrow(X) or is_on_disk(X)):
        return validation.read_only(np.empty((0, X.shape[1]), np.float32))
    if is_narrow(X):
        return validation.as_rows(name, X[numbers], dtype=np.float32)
    if not is_on_disk(X):
        return validation.read_only(X[numbers])
    rows = np.empty((len(numbers), X.shape[1]), X.dtype)
    order = np.argsort(numbers, kind="stable")

    def take(lo: int, hi: int, X: npt.NDArray[Any]) -> None:
        """Copy the rows that are number lo to hi in the order of the file."""
        places = order[lo:hi]
        first, last = numbers[places[0]], numbers[places[-1]]
        rows[places] = X[numbers[places]]
        _release_copied(X[first : last + 1])

    blocks = parallel.row_blocks(len(order), _TAKEN_AT_ONCE)
    parallel.run(take, blocks, X, n_threads=n_threads)
    return validation.as_rows(name, rows)


def _copy(lo: int, hi: int, X: npt.NDArray[Any], rows: npt.NDArray[Any]) -> None:
    """Copy rows [lo, hi) of a map."""
    np.copyto(rows[lo:hi], X[lo:hi])
    _release_copied(X[lo:hi])


def _release_copied(X: Any) -> None:
    # an unpickled map is in memory, and pages of a private copy may have been written
    if is_on_disk(X) and X.mode != "c":
        release(X)


def release(X: npt.NDArray[Any]) -> None:
    """Release the pages of a shared map; the next access reads them again."""
    _advise(X, "MADV_DONTNEED")


def read_ahead(X: npt.NDArray[Any]) -> None:
    """Let the system read the pages of a map into its cache, in the background."""
    _advise(X, "MADV_WILLNEED")


def rows_at_once(X: Any, memory: float, bytes_per_row: float) -> int:
    """Return how many rows of X to hold at once: of a map as many as fit memory, else all."""
    if not is_on_disk(X):
        return len(X)
    return max(1, min(len(X), int(memory / bytes_per_row)))


def rows_that_fit(memory: float, share: float, bytes_per_row: float, n: int) -> int:
    """Return how many of n rows fit a share of the memory, in bytes; at least _MIN_ROWS must."""
    validation.check_memory("working_memory", memory, bytes_per_row * min(n, _MIN_ROWS) / share)
    return min(n, int(share * memory / bytes_per_row))


def fingerprint(X: npt.NDArray[Any]) -> dict[str, Any]:
    """Return what identifies X in a later run.

    File, size and time of change for a memory map, else a checksum of the values.
    """
    about = {"shape": list(X.shape), "dtype": X.dtype.str}
    if is_on_disk(X) and X.filename is not None:
        file = Path(X.filename)
        facts = file.stat()
        place = {"offset": X.offset + _start_in_map(X), "strides": list(X.strides)}
        return about | place | {
            "file": str(file), "bytes": facts.st_size, "changed": facts.st_mtime_ns
        }  # fmt: skip
    values = np.ascontiguousarray(X).reshape(-1).view(np.uint8)
    return about | {"sha256": hashlib.sha256(values.data).hexdigest()}


def _map_of(X: npt.NDArray[Any]) -> mmap.mmap | None:
    base: Any = X
    while isinstance(base, np.ndarray):
        base = base.base
    return base if isinstance(base, mmap.mmap) else None


def _advise(X: npt.NDArray[Any], name: str) -> None:
    """Give the advice of this name on the pages of X; do nothing where there is no map.

    An advice changes no result, so systems without it (Windows) or file systems that refuse it are
    no error.
    """
    mapped, advice = _map_of(X), getattr(mmap, name, None)
    if mapped is None or advice is None or not X.size or not X.flags.c_contiguous:
        return
    first = _start_in_map(X)
    start = first // mmap.PAGESIZE * mmap.PAGESIZE
    with contextlib.suppress(OSError):
        mapped.madvise(advice, start, first + X.nbytes - start)


def _start_in_map(X: npt.NDArray[Any]) -> int:
    """Bytes from the start of the map to the first entry of X."""
    whole = np.frombuffer(_map_of(X) or b"", np.uint8)
    return int(X.ctypes.data - whole.ctypes.data)
