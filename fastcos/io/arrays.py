"""Readers of .npy, .npz and .safetensors files; sizes are validated before memory is allocated."""

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
from fastcos.io.errors import damage_refused, import_for
from fastcos.storage import FastcosFormatError

Array = npt.NDArray[Any]

# Exceptions that NumPy and the decompression raise for damaged files.
_DAMAGE = (
    *streams.DAMAGE,
    ValueError,
    SyntaxError,
    TypeError,
    OverflowError,
    MemoryError,
    tokenize.TokenError,  # NumPy raises TokenError for a header without a closing bracket.
)

# Two parts of the last record of a zip archive are read: the signature of the record, and the
# number of entries of the archive.
_END_OF_DIRECTORY = struct.Struct("<4s6xH10x")


def read_npz(path: Path) -> Mapping[str, Array]:
    """Read all arrays of an .npz file and verify their checksums; nothing is unpickled."""
    arrays = {}
    with (
        path.open("rb") as file,
        damage_refused(path, "a complete .npz file of plain arrays", _DAMAGE),
        zipfile.ZipFile(file) as archive,
    ):
        _check_directory(file, len(archive.infolist()))
        expanded = sum(info.file_size for info in archive.infolist())
        if expanded > streams.largest_size(path.stat().st_size):
            raise ValueError(
                f"it expands more than {streams.LARGEST_RATIO}-fold, to {expanded:,} bytes"
            )
        for info in archive.infolist():
            name = info.filename.removesuffix(".npy")
            if name in arrays:
                raise ValueError(f"it holds {info.filename!r} twice")
            with archive.open(info) as member:
                arrays[name] = _read_npy(cast(BinaryIO, member), info.file_size)
    return arrays


def read_npy(path: Path) -> Array:
    """Read the array of an .npy file; nothing is unpickled.

    An array larger than the setting ``working_memory`` is memory-mapped, read-only.
    """
    rule = "a complete .npy file of plain arrays"
    with path.open("rb") as file, damage_refused(path, rule, _DAMAGE):
        size = path.stat().st_size
        if size <= config.working_memory() * 2**20:
            return _read_npy(file, size)
        shape, order, dtype = _header(file, size)
        return np.memmap(path, dtype, "r", file.tell(), shape, order)


def read_safetensors(path: Path) -> Mapping[str, npt.NDArray[Any]]:
    """Return all arrays of a safetensors file."""
    safetensors = import_for(path, "safetensors files need", "safetensors")
    arrays: dict[str, npt.NDArray[Any]] = {}
    raw: dict[str, Any] = {}
    damage = (safetensors.SafetensorError, AttributeError, TypeError, ValueError)
    with damage_refused(path, "a complete safetensors file", damage):
        with safetensors.safe_open(path, framework="numpy") as file:
            kinds = {name: file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118
            for name, kind in kinds.items():
                if kind != "BF16" and not kind.startswith(("F8", "F6", "F4")):
                    arrays[name] = np.asarray(file.get_tensor(name))
        if "BF16" in kinds.values():
            raw = dict(safetensors.deserialize(path.read_bytes()))
    for name in kinds.keys() - arrays.keys():
        if kinds[name] != "BF16":
            rule = "of floats of 16 bits or more, or of integers"
            got = f"{kinds[name]} (save it as float16)"
            raise FastcosFormatError(f"{path}: {name} must be {rule}, got {got}")
        # A bfloat16 consists of the upper 16 bits of a float32.
        bits = np.frombuffer(raw[name]["data"], "<u2").astype(np.uint32) << 16
        arrays[name] = bits.view(np.float32).reshape(raw[name]["shape"])
    return arrays


def _check_directory(file: BinaryIO, n_entries: int) -> None:
    """Raise ValueError if the last record of an archive declares a wrong number of entries.

    If the record of an entry is damaged, a reader may overlook the next entry. Checksums do not
    detect this damage.
    """
    file.seek(-_END_OF_DIRECTORY.size, os.SEEK_END)
    signature, declared = _END_OF_DIRECTORY.unpack(file.read(_END_OF_DIRECTORY.size))
    # If a comment follows the last record of the zip archive, the signature does not match, and the
    # number of entries is not checked. The value 0xFFFF is a placeholder: another record then
    # contains the number of entries.
    if signature == b"PK\x05\x06" and declared not in (n_entries, 0xFFFF):
        raise ValueError(f"its directory declares {declared} arrays, got {n_entries}")


def _header(file: BinaryIO, size: int) -> tuple[tuple[int, ...], Literal["C", "F"], Any]:
    """Read the shape, order and dtype of an array; raise ValueError for a wrong size."""
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
