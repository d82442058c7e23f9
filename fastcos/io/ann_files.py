"""Vectors and neighbours in the files of benchmarks for approximate search.

::

    .fvecs  .ivecs   of each row: int32 width, then float32 or int32   (TEXMEX)
    .fbin   .ibin    int32 rows, int32 width, then all rows             (Big ANN Benchmarks)
    .npy             an array of NumPy

All are little-endian. Vectors are memory-mapped: a search reads them in blocks.
"""

import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fastcos.io.writing import atomic_path
from fastcos.storage import FastcosFormatError
from fastcos.validation import as_choice, as_path

VECTOR_SUFFIXES = (".fvecs", ".fbin", ".npy")
NEIGHBOR_SUFFIXES = (".ivecs", ".ibin", ".npy")
# bytes of the rows and the width at the start of a .fbin or .ibin file
_HEADER_BYTES = 8

PathLike = str | os.PathLike[str]


def read_vectors(name: str, path: PathLike) -> Any:
    """Return the vectors (n, d) of a file as a memory map."""
    file = as_path(name, path)
    as_choice(f"the suffix of {name}", file.suffix, VECTOR_SUFFIXES)
    return _read(file, np.dtype("<f4"))


def read_neighbors(name: str, path: PathLike) -> Any:
    """Return the neighbours (n, k) of a file as a memory map of whole numbers."""
    file = as_path(name, path)
    as_choice(f"the suffix of {name}", file.suffix, NEIGHBOR_SUFFIXES)
    found = _read(file, np.dtype("<i4"))
    if found.dtype.kind not in "iu":
        raise FastcosFormatError(f"{file} must hold whole numbers, got dtype {found.dtype}")
    return found


def write_neighbors(path: PathLike, indices: npt.NDArray[np.int64]) -> None:
    """Write neighbours (n, k); whole or not at all. -1 stands for none."""
    file = Path(path)
    as_choice("the suffix of --out", file.suffix, NEIGHBOR_SUFFIXES)
    if file.suffix != ".npy" and indices.max(initial=0) >= 2**31:
        raise ValueError(f"--out must be .npy for more than 2^31 items, got {path}")
    n, k = indices.shape
    with atomic_path(path) as temporary, temporary.open("wb") as opened:
        if file.suffix == ".npy":
            np.lib.format.write_array(opened, indices, allow_pickle=False)
        elif file.suffix == ".ivecs":
            width = np.full((n, 1), k)
            opened.write(np.hstack([width, indices]).astype("<i4").tobytes())
        else:
            opened.write(np.array([n, k], "<i4").tobytes())
            opened.write(indices.astype("<i4").tobytes())


def _read(file: Path, dtype: np.dtype[Any]) -> Any:
    """Map a file of rows; its size must be that of its header."""
    if file.suffix == ".npy":
        try:
            rows = np.load(file, mmap_mode="r", allow_pickle=False)
        except (ValueError, EOFError) as error:
            what = str(error).partition("\n")[0]
            raise FastcosFormatError(f"{file} is damaged: {what}") from None
        if rows.ndim != 2 or 0 in rows.shape:
            raise FastcosFormatError(f"{file} must hold rows (n, d), got shape {rows.shape}")
        return rows
    size = file.stat().st_size
    head = np.fromfile(file, "<i4", 2).tolist()
    if len(head) < 2 or min(head[: 2 if file.suffix.endswith("bin") else 1]) < 1:
        raise FastcosFormatError(f"{file} is damaged: it must begin with sizes above 0, got {head}")
    if file.suffix.endswith("bin"):
        n, width = head
        if size != _HEADER_BYTES + 4 * n * width:
            raise FastcosFormatError(
                f"{file} is damaged: {n} rows of {width} are {_HEADER_BYTES + 4 * n * width} "
                f"bytes, not {size}"
            )
        return np.memmap(file, dtype, "r", _HEADER_BYTES, (n, width))
    width = head[0]
    n, rest = divmod(size, 4 * (width + 1))
    widths = None if rest else np.memmap(file, "<i4", "r", shape=(n, width + 1))[:, 0]
    if widths is None or (widths != width).any():
        raise FastcosFormatError(f"{file} is damaged: all rows must have {width} entries")
    return np.memmap(file, dtype, "r", shape=(n, width + 1))[:, 1:]
