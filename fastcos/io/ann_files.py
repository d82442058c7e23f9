"""Vectors and neighbours in the file formats of benchmarks for approximate search.

::

    .fvecs  .ivecs   of each row: int32 width, then float32 or int32   (TEXMEX)
    .fbin   .ibin    int32 rows, int32 width, then all rows             (Big ANN Benchmarks)
    .npy             an array of NumPy                                  (only for neighbours)
    .hdf5   .h5      items "train", queries "test", neighbours "neighbors"  (ann-benchmarks)

All formats except HDF5 are little-endian. Vectors are memory-mapped, so that a search reads them in
blocks. HDF5 needs h5py; a data set that is compressed or stored in chunks is read as a whole.
"""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fastcos.io.arrays import read_npy
from fastcos.io.errors import import_for
from fastcos.storage import FastcosFormatError, PathLike
from fastcos.storage.atomic_files import atomic_path
from fastcos.validation import as_choice, as_path

_HDF5 = (".hdf5", ".h5")
VECTOR_SUFFIXES = (".fvecs", ".fbin", *_HDF5)
NEIGHBOR_SUFFIXES = (".ivecs", ".ibin", ".npy", *_HDF5)
# Bytes of the header of a .fbin or .ibin file: the number of rows and the width.
_HEADER_BYTES = 8


def read_vectors(name: str, path: PathLike, dataset: str) -> Any:
    """Return the vectors (n, d) of a file (HDF5: of the data set `dataset`) as a memory map."""
    file = as_path(name, path)
    as_choice(f"the suffix of {name}", file.suffix, VECTOR_SUFFIXES)
    return _read(file, np.dtype("<f4"), dataset)


def read_neighbors(name: str, path: PathLike) -> Any:
    """Return the neighbours (n, k) of a file as a memory map of whole numbers."""
    file = as_path(name, path)
    as_choice(f"the suffix of {name}", file.suffix, NEIGHBOR_SUFFIXES)
    is_npy = file.suffix == ".npy"
    rows = read_npy(file) if is_npy else _read(file, np.dtype("<i4"), "neighbors")
    if rows.dtype.kind not in "iu" or rows.ndim != 2 or 0 in rows.shape:
        got = f"dtype {rows.dtype}, shape {rows.shape}"
        raise FastcosFormatError(f"{file} must hold rows (n, k) of whole numbers, got {got}")
    return rows


def write_neighbors(path: PathLike, indices: npt.NDArray[np.int64]) -> None:
    """Write neighbours (n, k) atomically; -1 pads short lists."""
    file = Path(path)
    as_choice("the suffix of --out", file.suffix, NEIGHBOR_SUFFIXES)
    if file.suffix in (".ivecs", ".ibin") and indices.max(initial=0) >= 2**31:
        raise ValueError(f"--out must be .npy for more than 2^31 items, got {path}")
    n, k = indices.shape
    if file.suffix in _HDF5:
        with atomic_path(path) as temporary, _open_hdf5(temporary, "w") as file_object:
            file_object["neighbors"] = indices
        return
    with atomic_path(path) as temporary, temporary.open("wb") as file_object:
        if file.suffix == ".npy":
            np.lib.format.write_array(file_object, indices, allow_pickle=False)
        elif file.suffix == ".ivecs":
            width = np.full((n, 1), k)
            file_object.write(np.hstack([width, indices]).astype("<i4").tobytes())
        else:
            file_object.write(np.array([n, k], "<i4").tobytes())
            file_object.write(indices.astype("<i4").tobytes())


def _open_hdf5(path: Path, mode: str) -> Any:
    return import_for(path, "HDF5 needs", "h5py").File(path, mode)


def _read_hdf5(file: Path, name: str) -> Any:
    """Map a data set of an HDF5 file into memory, or read the data set if it is chunked."""
    with file.open("rb"):  # If the file is missing, open raises an OSError that names the file.
        pass
    try:
        with _open_hdf5(file, "r") as opened:
            if name not in opened:
                names = ", ".join(sorted(opened)) or "none"
                raise FastcosFormatError(f"{file} must have a data set {name!r}, got {names}")
            data = opened[name]
            shape = getattr(data, "shape", ())
            if len(shape) != 2 or 0 in shape or data.dtype.kind not in "iuf":
                raise FastcosFormatError(
                    f"{file} must hold rows (n, d) of numbers in {name!r}, got {data}"
                )
            offset = data.id.get_offset()
            if offset is None or data.external is not None:
                return data[:]
            return np.memmap(file, data.dtype, "r", offset, shape)
    except OSError as error:
        reason = str(error).partition("\n")[0]
        raise FastcosFormatError(f"{file} is damaged: {reason}") from None


def _read(file: Path, dtype: np.dtype[Any], dataset: str) -> Any:
    """Map a file of rows into memory; raise FastcosFormatError if its size is wrong."""
    if file.suffix in _HDF5:
        return _read_hdf5(file, dataset)
    size = file.stat().st_size
    head = np.fromfile(file, "<i4", 2).tolist()
    if len(head) < 2 or min(head[: 2 if file.suffix.endswith("bin") else 1]) < 1:
        raise FastcosFormatError(f"{file} is damaged: it must begin with sizes above 0, got {head}")
    if file.suffix.endswith("bin"):
        n, width = head
        expected_size = _HEADER_BYTES + 4 * n * width
        if size != expected_size:
            reason = f"{n} rows of {width} are {expected_size} bytes, not {size}"
            raise FastcosFormatError(f"{file} is damaged: {reason}")
        return np.memmap(file, dtype, "r", _HEADER_BYTES, (n, width))
    width = head[0]
    n, remainder = divmod(size, 4 * (width + 1))
    widths = None if remainder else np.memmap(file, "<i4", "r", shape=(n, width + 1))[:, 0]
    if widths is None or (widths != width).any():
        raise FastcosFormatError(f"{file} is damaged: all rows must have {width} entries")
    return np.memmap(file, dtype, "r", shape=(n, width + 1))[:, 1:]
