"""Readers of sparse matrices in .npz and Matrix Market files."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from fastcos.io.arrays import read_npz
from fastcos.io.errors import damage_refused
from fastcos.io.streams import open_bytes
from fastcos.linalg.csr import as_interactions
from fastcos.storage import FastcosFormatError

# Empty rows and columns take memory, but they take no space in a file. A tiny file with many empty
# rows could make the reader allocate a large amount of memory. Therefore neither the number of rows
# nor the number of columns may exceed _FREE_SIDE + _SIDE_PER_ENTRY * (number of entries).
_FREE_SIDE = 1_000_000
_SIDE_PER_ENTRY = 64


def read_npz_matrix(path: Path) -> sp.csr_array:
    """Read a sparse matrix from an .npz file, for example one that scipy.sparse.save_npz wrote.

    The layouts csr, csc and coo of save_npz are supported.
    """
    arrays = read_npz(path)
    layout = arrays["format"].item() if "format" in arrays else b"csr"
    layout = layout.decode("ascii", "replace") if isinstance(layout, bytes) else layout
    parts = {"csr": ("indptr", "indices"), "csc": ("indptr", "indices"), "coo": ("row", "col")}
    if layout not in parts:
        raise FastcosFormatError(f"{path} must hold a csr, csc or coo matrix, got {layout!r}")
    required = ("shape", "data", *parts[layout])
    missing = [name for name in required if name not in arrays]
    if missing:
        present = ", ".join(arrays) or "nothing"
        got = f"{present[:200]} without {', '.join(missing)}"
        raise FastcosFormatError(f"{path} must hold arrays {', '.join(required)}, got {got}")
    shape, data, first, second = (arrays[name] for name in required)
    if shape.shape != (2,) or shape.dtype.kind not in "iu" or shape.min() < 1:
        raise FastcosFormatError(f"{path}: shape must be two integers >= 1, got {shape}")
    for name, array in zip(required[1:], (data, first, second), strict=True):
        if array.ndim != 1 or array.dtype.kind not in ("fiub" if name == "data" else "iu"):
            got = f"{array.dtype} of shape {array.shape}"
            raise FastcosFormatError(f"{path}: {name} must be a vector of numbers, got {got}")
    size = (int(shape[0]), int(shape[1]))
    check_size(path, size, len(data))
    try:
        if layout == "coo":
            return as_interactions("matrix", sp.coo_array((data, (first, second)), shape=size))
        kind = sp.csr_array if layout == "csr" else sp.csc_array
        return as_interactions("matrix", kind((data, second, first), shape=size))
    except (ValueError, TypeError) as error:
        raise FastcosFormatError(f"{path}: {error}") from None


def read_mtx_matrix(path: Path) -> sp.csr_array:
    """Read a Matrix Market file, which may be compressed; entries without a value become 1."""
    from scipy.io import mminfo, mmread  # deferred, because the import takes 0.1 s

    with open_bytes(path) as stream:
        content = stream.read()
    # The reader of SciPy crashes if the file contains the byte "\0", or if the last line has no
    # line end.
    if not content.endswith(b"\n"):
        content += b"\n"
    damage = (ValueError, TypeError, OverflowError, RuntimeError)
    with damage_refused(path, "a Matrix Market file", damage):
        if b"\0" in content:
            raise ValueError("the text must not contain NUL bytes")
        rows, columns, entries, layout, field, _ = mminfo(io.BytesIO(content))
        if field not in ("real", "double", "integer", "unsigned-integer", "pattern"):
            raise ValueError(f"entries must be real, got {field}")
        # The shortest entry is "1 1\n" in a sparse matrix, and "1\n" in a dense matrix.
        shortest = 4 if layout == "coordinate" else 2
        if entries * shortest > len(content) + shortest:
            raise ValueError(
                f"the header declares {entries} entries, too many for {len(content)} bytes"
            )
        check_size(path, (rows, columns), entries)
        matrix: Any = mmread(io.BytesIO(content), spmatrix=False)
        return as_interactions("matrix", matrix)


def check_size(path: Path, shape: tuple[int, int], entries: int) -> None:
    """Raise FastcosFormatError if a declared shape is too large for the number of entries."""
    limit = _FREE_SIDE + _SIDE_PER_ENTRY * entries
    if min(shape) < 1 or max(shape) > limit:
        raise FastcosFormatError(
            f"{path}: a matrix with {entries} entries must have 1 to {limit} rows and 1 to {limit} "
            f"columns, got {shape}"
        )


def as_float32_if_exact(X: sp.csr_array) -> sp.csr_array:
    """Return X with float32 values if the conversion is exact; otherwise, return X unchanged."""
    data = X.data
    if data.dtype == np.float64:
        with np.errstate(over="ignore"):
            narrowed = data.astype(np.float32)
        if (narrowed == data).all():
            return sp.csr_array((narrowed, X.indices, X.indptr), shape=X.shape)
    return X
