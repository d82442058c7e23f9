"""Dense vectors and what they stand for."""

import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastcos.io.arrays import read_npy, read_npz
from fastcos.storage import FastcosFormatError
from fastcos.validate import Rows, as_rows

ID_NAMES = ("ids", "words", "names")


class Vectors(NamedTuple):
    """One vector a row.

    Attributes
    ----------
    vectors : ndarray (n, d), float32 or float64
        Finite, C-contiguous, read-only.
    ids : ndarray (n,), int64 or str
        In the order of the rows; the positions 0 .. n-1 where the file has none.
    """

    vectors: Rows
    ids: npt.NDArray[Any]


def read_vectors(path: str | os.PathLike[str]) -> Vectors:
    """Read dense vectors from .npy, or from .npz with their words or ids beside them.

    Parameters
    ----------
    path : str or path-like
        An .npy file of one 2-dimensional array; or an .npz file with one 2-dimensional array of
        numbers and perhaps one vector named ids, words or names.

    Returns
    -------
    Vectors

    Raises
    ------
    FastcosFormatError
        Damaged, no or several such arrays, not finite, ids of another number or repeated.
    OSError
        No such file.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/v.npz", words=np.array(["a", "b"]), vectors=np.eye(2))
    ...     vectors, ids = read_vectors(f"{folder}/v.npz")
    >>> vectors.shape, ids.tolist()
    ((2, 2), ['a', 'b'])
    """
    path = Path(path)
    kind = path.suffix.lower()
    if kind not in (".npy", ".npz"):
        raise FastcosFormatError(f"{path} must be an .npy or .npz file, got {kind or 'no suffix'}")
    arrays = {"vectors": read_npy(path)} if kind == ".npy" else read_npz(path)
    found = [array for array in arrays.values() if array.ndim == 2 and array.dtype.kind in "fiub"]
    if len(found) != 1:
        held = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
        raise FastcosFormatError(
            f"{path} must hold one 2-dimensional array of numbers, got {held[:200] or 'nothing'}"
        )
    try:
        vectors = as_rows("vectors", found[0])
    except ValueError as error:
        raise FastcosFormatError(f"{path}: {error}") from None
    named = [name for name in ID_NAMES if name in arrays]
    if not named:
        return Vectors(vectors, np.arange(len(vectors)))
    ids = arrays[named[0]]
    if len(named) > 1 or ids.shape != (len(vectors),) or ids.dtype.kind not in "iuU":
        raise FastcosFormatError(
            f"{path} must hold one id or word for each of {len(vectors)} vectors, got "
            f"{', '.join(named)} of shape {ids.shape}, dtype {ids.dtype}"
        )
    if len(np.unique(ids)) != len(ids):
        raise FastcosFormatError(f"{path}: {named[0]} must be distinct, got a repetition")
    return Vectors(vectors, ids)


def read_ids(path: str | os.PathLike[str], length: int) -> npt.NDArray[Any]:
    """Read the array ids of an .npz file that write_npz wrote.

    Parameters
    ----------
    path : str or path-like
    length : int
        How many there must be.

    Returns
    -------
    ndarray (length,), int64 or str

    Raises
    ------
    FastcosFormatError
        Damaged, without ids, or with another number of them.
    OSError
        No such file.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from fastcos.io import write_npz
    >>> with TemporaryDirectory() as folder:
    ...     write_npz(f"{folder}/items.npz", {"ids": np.array(["b", "a"])})
    ...     read_ids(f"{folder}/items.npz", 2).tolist()
    ['b', 'a']
    """
    path = Path(path)
    ids = read_npz(path).get("ids")
    if ids is None or ids.shape != (length,):
        what = "none" if ids is None else f"shape {ids.shape}"
        raise FastcosFormatError(f"{path} must hold {length} ids, got {what}")
    return ids
