"""Convert memory-mapped rows and rows of low precision to validated rows in memory.

This module, and no other module, distinguishes three kinds of rows:

* Mapped rows lie in a memory-mapped file, which is read block by block.
* Narrow rows are rows in memory with one or two bytes per number, for example int8 or float16. If
  kernels cannot read a narrow type directly, the rows are converted to float32 block by block.
* All other rows are float32 or float64 rows in memory, which need no conversion.

Kernels can read the narrow types int8, float16 and bfloat16. Rows of float16 are stored as uint16,
and rows of bfloat16 are stored as int16. The function ``kernels.records.rows_of`` infers the
original type from the stored type: it reads uint16 as float16, and int16 as bfloat16. The kernels
convert the numbers in registers.
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

# The smallest number of rows that are read as one block. The overhead of reading a smaller block
# would be larger than the time to search it.
_MIN_ROWS = 64
# take_rows copies this many scattered rows of a memory map before it releases their pages. For each
# row, the operating system maps up to 16 pages of memory. The number of rows is small, so that
# these pages do not take much memory.
_ROWS_PER_RELEASE = 256
# A thread copies about this number of bytes of a memory map at a time. After each copy, the thread
# releases the pages that contain the copied bytes.
_BYTES_PER_RELEASE = 1 << 22
# The names of the narrow types (with one or two bytes per number) that kernels can read. Rows of a
# narrow type are stored as a view of integers. _BITS maps the name of a narrow type to the type of
# these integers.
_BITS = {"int8": np.int8, "float16": np.uint16, "bfloat16": np.int16}


def is_narrow(X: Any) -> bool:
    """Return whether X is a matrix in memory whose numbers have one or two bytes.

    float32 must also be able to represent these numbers exactly.
    """
    if type(X) is not np.ndarray:  # X is a map or a masked array
        return False
    return X.ndim == 2 and X.dtype.itemsize <= 2 and np.can_cast(X.dtype, np.float32)


def is_on_disk(X: Any) -> TypeGuard[np.memmap[Any, Any]]:
    """Return whether X is a memory-mapped file or a view of one.

    Not every np.memmap is a mapped file: the methods ``copy`` and ``astype`` of an np.memmap return
    an array in memory that also has the type np.memmap.
    """
    return isinstance(X, np.memmap) and _map_of(X) is not None


def is_read_in_blocks(X: Any) -> bool:
    """Return whether X must be read block by block, because its rows are mapped or narrow."""
    return is_on_disk(X) or is_narrow(X)


def as_mapped_rows(
    name: str,
    X: Any,
    *,
    on_disk: bool = True,
    narrow: bool = True,
    widen: bool = False,
    or_vector: bool = False,
    is_measured: bool = False,
) -> Any:
    """Return X as validated rows, or return X unchanged if the caller reads X block by block.

    If X is returned unchanged, only its shape and its type are checked. `on_disk` says whether the
    caller reads mapped rows block by block. Narrow rows are rows whose numbers have one or two
    bytes; `narrow` says whether the caller reads narrow rows block by block. If `narrow` and
    `widen` are both True, all narrow rows are converted to float32 at once. If `narrow` is False,
    `widen` has no effect, and `validation.as_rows` converts narrow rows. `or_vector` and
    `is_measured` are passed on to `validation.as_rows`.
    """
    dtype, first_rows = None, X
    if is_on_disk(X):
        is_unchanged = on_disk and X.ndim > 1
    else:
        if isinstance(X, np.memmap):  # an in-memory copy of a memory map
            X = X.view(np.ndarray)
        X = validation.as_shared_array(X) if narrow and not validation.is_float_array(X) else X
        is_unchanged = narrow and is_narrow(X)
        if is_unchanged and widen:
            is_unchanged, dtype = False, np.float32
        elif is_unchanged and X.size:
            # as_row_shape would convert all rows to float32 if their type comes from ml_dtypes,
            # such as bfloat16. Therefore only the first row is passed to as_row_shape.
            first_rows = X[:1]
    if not is_unchanged:
        return validation.as_rows(
            name, X, dtype=dtype, or_vector=or_vector, is_measured=is_measured
        )
    validation.as_row_shape(name, first_rows)
    return X


def has_kernels(X: Any) -> bool:
    """Return whether X consists of int8, float16 or bfloat16 rows, which kernels read directly."""
    return is_narrow(X) and X.dtype.name in _BITS


def as_stored(name: str, X: Any) -> Any:
    """Return the rows in the type in which an index stores them.

    If kernels cannot read a type with one or two bytes per number, rows of this type are converted
    to float32.
    """
    if not is_narrow(X):
        return X
    if not has_kernels(X):
        return validation.as_rows(name, X)
    return validation.read_only(np.ascontiguousarray(X))


def may_be_shared(rows: npt.NDArray[Any], source: Any) -> bool:
    """Return whether `rows` and `source` may share memory.

    If `rows` and `source` share memory, changing `source` changes `rows`.
    """
    if isinstance(source, (list, tuple)):
        return False
    # NumPy cannot tell whether a table or a tensor shares memory with the rows.
    return not isinstance(source, np.ndarray) or np.may_share_memory(rows, source)


def as_bits(X: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return int8, float16 or bfloat16 rows in the type that kernels receive.

    No number is converted: the result is a view of the bits of X. All other rows are returned
    unchanged.
    """
    if not has_kernels(X):
        return X
    native_rows = np.ascontiguousarray(X, X.dtype.newbyteorder("="))
    return validation.read_only(native_rows.view(_BITS[X.dtype.name]))


def from_bits(rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Undo `as_bits`: return a view of the same bits in the original type."""
    if rows.dtype == np.uint16:
        return rows.view(np.float16)
    if rows.dtype == np.int16:
        # The rows were bfloat16 before as_bits converted them, so ml_dtypes must be installed.
        from ml_dtypes import bfloat16

        return rows.view(bfloat16)
    return rows


def read_rows(name: str, X: Any, lo: int, hi: int, n_threads: int | None = 1) -> validation.Rows:
    """Return the rows [lo, hi) of X, validated and in memory.

    Mapped rows are copied, and their pages are then released. Meanwhile, the operating system reads
    the next hi - lo rows of the file into the page cache. Narrow rows are converted to float32.
    Rows that are neither mapped nor narrow have already been validated, and are in memory.
    """
    if not is_read_in_blocks(X):
        return X[lo:hi]
    rows, dtype = X[lo:hi], None if is_on_disk(X) else np.float32
    if is_on_disk(X):
        rows = _copied_rows(X, lo, hi, n_threads)
    return validation.as_rows(f"{name}[{lo}:{hi}]", rows, dtype=dtype)


def _copied_rows(X: npt.NDArray[Any], lo: int, hi: int, n_threads: int | None) -> npt.NDArray[Any]:
    """Copy rows [lo, hi) of a map; meanwhile, the operating system reads the next rows."""
    read_ahead(X[hi : 2 * hi - lo])
    rows = np.empty((hi - lo, X.shape[1]), X.dtype)
    blocks = parallel.row_blocks(len(rows), max(1, _BYTES_PER_RELEASE // (X.shape[1] * X.itemsize)))
    parallel.run(_copy, blocks, X[lo:hi], rows, n_threads=n_threads)
    return rows


def iter_blocks(name: str, X: Any, block: int) -> Iterator[tuple[int, validation.Rows]]:
    """Yield the blocks of X as validated rows, each with the number of its first row."""
    for lo in range(0, len(X), block):
        yield lo, read_rows(name, X, lo, min(len(X), lo + block))


def take_rows(
    name: str, X: Any, numbers: npt.NDArray[np.integer[Any]], n_threads: int | None = 1
) -> validation.Rows:
    """Return the rows X[numbers], validated and in memory; `numbers` may be empty."""
    if not len(numbers) and (is_narrow(X) or is_on_disk(X)):
        return validation.read_only(np.empty((0, X.shape[1]), np.float32))
    if is_narrow(X):
        return validation.as_rows(name, X[numbers], dtype=np.float32)
    if not is_on_disk(X):
        return validation.read_only(X[numbers])
    rows = np.empty((len(numbers), X.shape[1]), X.dtype)
    order = np.argsort(numbers, kind="stable")

    def take(lo: int, hi: int, X: npt.NDArray[Any]) -> None:
        """Copy rows of X to `rows[order[lo:hi]]`, in ascending order of the row numbers in X."""
        positions = order[lo:hi]
        first, last = numbers[positions[0]], numbers[positions[-1]]
        rows[positions] = X[numbers[positions]]
        _release_copied(X[first : last + 1])

    blocks = parallel.row_blocks(len(order), _ROWS_PER_RELEASE)
    parallel.run(take, blocks, X, n_threads=n_threads)
    return validation.as_rows(name, rows)


def _copy(lo: int, hi: int, X: npt.NDArray[Any], rows: npt.NDArray[Any]) -> None:
    """Copy rows [lo, hi) of the map X to `rows`, and release their pages."""
    np.copyto(rows[lo:hi], X[lo:hi])
    _release_copied(X[lo:hi])


def _release_copied(X: Any) -> None:
    # X may be an array in memory instead of a memory map on disk, for example after a memory map
    # was pickled. If X is a copy-on-write map (mode "c"), releasing a page would discard what the
    # caller has written to it.
    if is_on_disk(X) and X.mode != "c":
        release(X)


def release(X: npt.NDArray[Any]) -> None:
    """Release the memory pages of a map; the next access reads them from the file again."""
    _advise(X, "MADV_DONTNEED")


def read_ahead(X: npt.NDArray[Any]) -> None:
    """Ask the operating system to load a memory map into the page cache, in the background."""
    _advise(X, "MADV_WILLNEED")


def rows_at_once(X: Any, memory: float, bytes_per_row: float) -> int:
    """Return how many rows of X to process at once.

    If X is mapped, the result is the number of rows that fit into `memory` (in bytes); otherwise,
    the result is the number of all rows.
    """
    if not is_on_disk(X):
        return len(X)
    return max(1, min(len(X), int(memory / bytes_per_row)))


def rows_that_fit(memory: float, share: float, bytes_per_row: float, n: int) -> int:
    """Return how many of n rows fit into `share` * `memory` bytes.

    ValueError is raised if fewer than ``min(n, _MIN_ROWS)`` rows fit.
    """
    validation.check_memory("working_memory", memory, bytes_per_row * min(n, _MIN_ROWS) / share)
    return min(n, int(share * memory / bytes_per_row))


def fingerprint(X: npt.NDArray[Any]) -> dict[str, Any]:
    """Return a description of X, from which a later run can tell whether X has changed.

    If X is a memory map, the function returns the shape and the type of X, the place of X in its
    file, and the path, the size and the modification time of the file. If X is an array in memory,
    the function returns the shape, the type and a checksum of X.
    """
    layout = {"shape": list(X.shape), "dtype": X.dtype.str}
    if is_on_disk(X) and X.filename is not None:
        file = Path(X.filename)
        status = file.stat()
        position = {"offset": X.offset + _start_in_map(X), "strides": list(X.strides)}
        return layout | position | {
            "file": str(file), "bytes": status.st_size, "changed": status.st_mtime_ns
        }  # fmt: skip
    values = np.ascontiguousarray(X).reshape(-1).view(np.uint8)
    return layout | {"sha256": hashlib.sha256(values.data).hexdigest()}


def _map_of(X: npt.NDArray[Any]) -> mmap.mmap | None:
    base: Any = X
    while isinstance(base, np.ndarray):
        base = base.base
    return base if isinstance(base, mmap.mmap) else None


def _advise(X: npt.NDArray[Any], name: str) -> None:
    """If X is a memory map, call madvise for its pages; `name` is the name of the advice.

    Advice changes no result, so this function raises no error if the operating system (for example
    Windows) or the file system does not support the advice.
    """
    file_map, advice = _map_of(X), getattr(mmap, name, None)
    if file_map is None or advice is None or not X.size or not X.flags.c_contiguous:
        return
    first = _start_in_map(X)
    start = first // mmap.PAGESIZE * mmap.PAGESIZE
    with contextlib.suppress(OSError):
        file_map.madvise(advice, start, first + X.nbytes - start)


def _start_in_map(X: npt.NDArray[Any]) -> int:
    """Return the number of bytes from the start of the memory map to the first entry of X."""
    map_bytes = np.frombuffer(_map_of(X) or b"", np.uint8)
    return int(X.ctypes.data - map_bytes.ctypes.data)
