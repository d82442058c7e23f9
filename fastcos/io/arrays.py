"""Arrays of .npy, .npz and .safetensors files; declared sizes are validated before allocation."""

import math
import os
import struct
import tokenize
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast

import numpy as np
import numpy.typing as npt

from fastcos import config
from fastcos.io import streams
from fastcos.storage import FastcosFormatError

Array = npt.NDArray[Any]

# errors of NumPy and of the decompression for damaged files
_DAMAGE = (
    *streams.DAMAGE,
    ValueError,
    SyntaxError,
    TypeError,
    OverflowError,
    MemoryError,
    tokenize.TokenError,  # a header without a closing bracket
)

# signature and number of entries in the last record of a zip archive
_END_OF_DIRECTORY = struct.Struct("<4s6xH10x")


def read_npz(path: Path) -> Mapping[str, Array]:
    """Return all arrays of an .npz file; nothing is unpickled, checksums are verified."""
    arrays = {}
    with path.open("rb") as file:
        try:
            with zipfile.ZipFile(file) as archive:
                _check_directory(file, len(archive.infolist()))
                expanded = sum(info.file_size for info in archive.infolist())
                if expanded > streams.largest_size(path.stat().st_size):
                    raise ValueError(
                        f"it expands more than {streams.LARGEST_RATIO}-fold, to {expanded:,} bytes"
                    )
                for info in archive.infolist():
                    if info.filename.removesuffix(".npy") in arrays:
                        raise ValueError(f"it holds {info.filename!r} twice")
                    with archive.open(info) as member:
                        array = _read_npy(cast(BinaryIO, member), info.file_size)
                    arrays[info.filename.removesuffix(".npy")] = array
        except _DAMAGE as error:
            raise _damaged(path, ".npz", error) from None
    return arrays


def read_npy(path: Path) -> Array:
    """Return the array of an .npy file; nothing is unpickled.

    An array larger than the setting ``working_memory`` is memory-mapped, read-only.
    """
    with path.open("rb") as file:
        try:
            size = path.stat().st_size
            if size <= config.working_memory() * 2**20:
                return _read_npy(file, size)
            shape, order, dtype = _header(file, size)
            return np.memmap(path, dtype, "r", file.tell(), shape, order)
        except _DAMAGE as error:
            raise _damaged(path, ".npy", error) from None


def read_safetensors(path: Path) -> Mapping[str, npt.NDArray[Any]]:
    """Return all arrays of a safetensors file."""
    try:
        from safetensors import SafetensorError, deserialize, safe_open
    except ImportError:
        raise FastcosFormatError(
            f"{path}: safetensors files need safetensors: pip install safetensors"
        ) from None
    arrays: dict[str, npt.NDArray[Any]] = {}
    raw: dict[str, Any] = {}
    try:
        with safe_open(path, framework="numpy") as file:
            kinds = {name: file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118
            for name, kind in kinds.items():
                if kind != "BF16" and not kind.startswith(("F8", "F6", "F4")):
                    arrays[name] = np.asarray(file.get_tensor(name))
        if "BF16" in kinds.values():
            raw = dict(deserialize(path.read_bytes()))
    except (SafetensorError, AttributeError, TypeError, ValueError) as error:
        what = str(error).partition("\n")[0]
        raise FastcosFormatError(f"{path} must be a whole safetensors file: {what}") from None
    for name in kinds.keys() - arrays.keys():
        if kinds[name] != "BF16":
            raise FastcosFormatError(
                f"{path}: {name} must be of floats of 16 bits or more, or of integers, got "
                f"{kinds[name]} (save it as float16)"
            )
        # the upper half of a float32
        bits = np.frombuffer(raw[name]["data"], "<u2").astype(np.uint32) << 16
        arrays[name] = bits.view(np.float32).reshape(raw[name]["shape"])
    return arrays


def _check_directory(file: BinaryIO, found: int) -> None:
    """Refuse an archive with a damaged entry that hides the next one, unseen by checksums."""
    file.seek(-_END_OF_DIRECTORY.size, os.SEEK_END)
    mark, declared = _END_OF_DIRECTORY.unpack(file.read(_END_OF_DIRECTORY.size))
    # a comment may follow the record; 0xFFFF refers to another record
    if mark == b"PK\x05\x06" and declared not in (found, 0xFFFF):
        raise ValueError(f"its directory declares {declared} arrays, got {found}")


def _header(file: BinaryIO, size: int) -> tuple[tuple[int, ...], Literal["C", "F"], Any]:
    """Shape, order and dtype of an array; refuses a file of another size."""
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
    present = size - file.tell()
    if declared != present:
        raise ValueError(f"its header declares {declared} bytes, got {present}")
    return shape, "F" if in_fortran_order else "C", dtype


def _read_npy(file: BinaryIO, size: int) -> Array:
    _header(file, size)
    file.seek(0)
    return np.lib.format.read_array(file, allow_pickle=False)


def _damaged(path: Path, kind: str, error: BaseException) -> FastcosFormatError:
    what = (str(error) or type(error).__name__).partition("\n")[0]
    return FastcosFormatError(f"{path} must be a whole {kind} file of plain arrays: {what}")
