"""Arrays of .npy and .npz files, with every declared size checked before memory is asked for."""

import lzma
import math
import os
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast

import numpy as np
import numpy.typing as npt

from fastcos import config
from fastcos.io.streams import LARGEST_RATIO, LARGEST_UNPROVEN
from fastcos.storage import FastcosFormatError

Array = npt.NDArray[Any]

DAMAGE = (
    EOFError,
    OSError,  # of seeking and bzip2; the file itself is open by then
    zlib.error,
    lzma.LZMAError,
    zipfile.BadZipFile,
    NotImplementedError,
    RuntimeError,
    ValueError,
    SyntaxError,
    TypeError,
    OverflowError,
    MemoryError,
    tokenize.TokenError,  # of a header whose brackets do not close
)

# mark and number of entries in the record that ends a zip archive
_END_OF_DIRECTORY = struct.Struct("<4s6xH10x")


def read_npz(path: Path) -> Mapping[str, Array]:
    """Return all arrays of an .npz file; nothing is unpickled, checksums are verified."""
    arrays = {}
    with path.open("rb") as file:
        try:
            with zipfile.ZipFile(file) as archive:
                _check_directory(file, len(archive.infolist()))
                for info in archive.infolist():
                    if info.file_size > max(LARGEST_UNPROVEN, LARGEST_RATIO * info.compress_size):
                        raise ValueError(f"{info.filename} expands more than {LARGEST_RATIO}-fold")
                    with archive.open(info) as member:
                        array = _read_npy(cast(BinaryIO, member), info.file_size)
                    arrays[info.filename.removesuffix(".npy")] = array
        except DAMAGE as error:
            raise _damaged(path, ".npz", error) from None
    return arrays


def _check_directory(file: BinaryIO, found: int) -> None:
    """Refuse an archive of which a damaged entry hides the next: the checksums do not see it."""
    file.seek(-_END_OF_DIRECTORY.size, os.SEEK_END)
    mark, declared = _END_OF_DIRECTORY.unpack(file.read(_END_OF_DIRECTORY.size))
    # a comment may follow it, and a number too large for its field stands elsewhere
    if mark == b"PK\x05\x06" and declared not in (found, 0xFFFF):
        raise ValueError(f"its directory declares {declared} arrays, {found} are there")


def read_npy(path: Path) -> Array:
    """Return the array of an .npy file; nothing is unpickled.

    One that is larger than the working memory is memory-mapped, read-only.
    """
    with path.open("rb") as file:
        try:
            size = path.stat().st_size
            if size <= config.working_memory() * 2**20:
                return _read_npy(file, size)
            shape, order, dtype = _header(file, size)
            return np.memmap(path, dtype, "r", file.tell(), shape, order)
        except DAMAGE as error:
            raise _damaged(path, ".npy", error) from None


def _header(file: BinaryIO, size: int) -> tuple[tuple[int, ...], Literal["C", "F"], Any]:
    """Shape, order and type of an array, whose bytes are all there."""
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        header = np.lib.format.read_array_header_1_0(file)
    elif version == (2, 0):
        header = np.lib.format.read_array_header_2_0(file)
    else:
        raise ValueError(f"version {version} of the .npy format")
    shape, in_fortran_order, dtype = header
    if dtype.hasobject:
        raise ValueError("it holds Python objects")
    declared = math.prod(shape) * dtype.itemsize
    there = size - file.tell()
    if declared != there:
        raise ValueError(f"its header declares {declared} bytes, {there} are there")
    return shape, "F" if in_fortran_order else "C", dtype


def _read_npy(file: BinaryIO, size: int) -> Array:
    shape, order, dtype = _header(file, size)
    declared = math.prod(shape) * dtype.itemsize
    array = np.empty(math.prod(shape), dtype=dtype)
    content = array.view(np.uint8) if declared else np.empty(0, np.uint8)
    filled = 0
    while filled < declared:
        block = file.read(min(declared - filled, 1 << 24))
        if not block:
            raise ValueError(f"{declared - filled} bytes are missing")
        content[filled : filled + len(block)] = np.frombuffer(block, np.uint8)
        filled += len(block)
    return array.reshape(shape, order=order)


def _damaged(path: Path, kind: str, error: BaseException) -> FastcosFormatError:
    what = (str(error) or type(error).__name__).partition("\n")[0]
    return FastcosFormatError(f"{path} must be a whole {kind} file of plain arrays: {what}")
