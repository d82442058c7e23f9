"""Sparse matrices in .npz and Matrix Market files."""

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

# empty rows and columns take memory but no bytes of the file: the limit of a side is
# _FREE_SIDE + _SIDE_PER_ENTRY times the number of entries
_FREE_SIDE = 1_000_000
_SIDE_PER_ENTRY = 64


def read_npz_matrix(path: Path) -> sp.csr_array:
    """Return the matrix of a scipy.sparse.save_npz file, or of arrays indptr, indices, data, shape.

    save_npz's csr, csc and coo layouts are read.
    """
    arrays = read_npz(path)
    layout = arrays["format"].item() if "format" in arrays else b"csr"
    layout = layout.decode("ascii", "replace") if isinstance(layout, bytes) else layout
    parts = {"csr": ("indptr", "indices"), "csc": ("indptr", "indices"), "coo": ("row", "col")}
    if layout not in parts:
        raise FastcosFormatError(f"{path} must hold a csr, csc or coo matrix, got {layout!r}")
    wanted = ("shape", "data", *parts[layout])
    missing = [name for name in wanted if name not in arrays]
    if missing:
        held = ", ".join(arrays) or "nothing"
        got = f"{held[:200]} without {', '.join(missing)}"
        raise FastcosFormatError(f"{path} must hold arrays {', '.join(wanted)}, got {got}")
    shape, data, first, second = (arrays[name] for name in wanted)
    if shape.shape != (2,) or shape.dtype.kind not in "iu" or shape.min() < 1:
        raise FastcosFormatError(f"{path}: shape must be two integers >= 1, got {shape}")
    for name, array in zip(wanted[1:], (data, first, second), strict=True):
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
    """Return the matrix of a Matrix Market file, plain or compressed; a pattern's entries are 1."""
    from scipy.io import mminfo, mmread  # deferred: the import takes 0.1 s

    with open_bytes(path) as stream:
        content = stream.read()
    # SciPy's reader crashes on zero bytes and on a missing end of the last line
    if not content.endswith(b"\n"):
        content += b"\n"
    damage = (ValueError, TypeError, OverflowError, RuntimeError)
    with damage_refused(path, "a Matrix Market file", damage):
        if b"\0" in content:
            raise ValueError("text must hold no zero bytes")
        rows, columns, entries, layout, field, _ = mminfo(io.BytesIO(content))
        if field not in ("real", "double", "integer", "unsigned-integer", "pattern"):
            raise ValueError(f"entries must be real, got {field}")
        # "1 1\n" is the shortest entry of a sparse matrix, "1\n" that of a dense one
        shortest = 4 if layout == "coordinate" else 2
        if entries * shortest > len(content) + shortest:
            raise ValueError(f"{entries} entries are declared in {len(content)} bytes")
        check_size(path, (rows, columns), entries)
        matrix: Any = mmread(io.BytesIO(content), spmatrix=False)
        return as_interactions("matrix", matrix)


def check_size(path: Path, shape: tuple[int, int], entries: int) -> None:
    """Refuse a declared shape that is too large for the number of entries."""
    most = _FREE_SIDE + _SIDE_PER_ENTRY * entries
    if min(shape) < 1 or max(shape) > most:
        raise FastcosFormatError(
            f"{path}: shape must be from 1 to {most} a side for {entries} entries, got {shape}"
        )


def as_small(X: sp.csr_array) -> sp.csr_array:
    """Return X with float32 values if they are exact, else X."""
    data = X.data
    if data.dtype == np.float64:
        with np.errstate(over="ignore"):
            small = data.astype(np.float32)
        if (small == data).all():
            return sp.csr_array((small, X.indices, X.indptr), shape=X.shape)
    return X
