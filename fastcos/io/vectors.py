"""Dense vectors and what they stand for."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastcos.io.arrays import read_npy, read_npz
from fastcos.io.tensors import read_safetensors
from fastcos.io.vector_tables import read_vector_table
from fastcos.io.word_vectors import read_binary_vectors, read_text_vectors
from fastcos.storage import FastcosFormatError
from fastcos.storage.memmap import as_mapped_rows, iter_blocks

Array = npt.NDArray[Any]

# rows of a memory map
_CHECKED_AT_ONCE = 8192
ID_NAMES = ("ids", "words", "names")
SUFFIXES = (".npy", ".npz", ".safetensors", ".parquet", ".pq", ".txt", ".vec", ".bin")


class Vectors(NamedTuple):
    """One vector a row.

    Attributes
    ----------
    vectors : ndarray (n, d), float32 or float64
        Finite, C-contiguous, read-only. Of an .npy file larger than the setting ``working_memory``:
        memory-mapped, of the file's type.
    ids : ndarray (n,), int64 or str
        In the order of the rows; the positions 0 .. n-1 where the file has none.
    """

    vectors: Any
    ids: npt.NDArray[Any]


def holds_vectors(path: str | os.PathLike[str]) -> bool:
    """Whether a file is .npy, or an .npz with a 2-dimensional array: vectors, no sparse matrix.

    Parameters
    ----------
    path : str or path-like

    Returns
    -------
    bool

    Raises
    ------
    FastcosFormatError
        A damaged .npz file.
    OSError
        No such .npz file.

    Examples
    --------
    >>> from fastcos.io import holds_vectors
    >>> holds_vectors("vectors.npy"), holds_vectors("ratings.csv")
    (True, False)
    """
    path = Path(path)
    kind = path.suffix.lower()
    return kind == ".npy" or (
        kind == ".npz" and any(array.ndim == 2 for array in read_npz(path).values())
    )


def read_vectors(path: str | os.PathLike[str]) -> Vectors:
    """Read dense vectors, with their words or ids where the file has them. Nothing is unpickled.

    Parameters
    ----------
    path : str or path-like
        An .npy file of one 2-dimensional array; .npz or .safetensors with one 2-dimensional array
        of numbers and perhaps (npz) one vector named ids, words or names; .parquet with a column of
        lists or one column a dimension, and perhaps one of ids; .txt or .vec, word vectors as
        word2vec and GloVe write them (also gzipped), or .bin, word2vec's binary format.

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
    return as_vectors(path, read_arrays(path))


def read_arrays(path: Path) -> Mapping[str, Array]:
    """Return the arrays of a file of vectors, by its suffix."""
    kind = path.suffix.lower()
    if kind == ".gz":
        kind = Path(path.stem).suffix.lower()
    if kind == ".npy":
        return {"vectors": read_npy(path)}
    if kind == ".npz":
        return read_npz(path)
    if kind == ".safetensors":
        return read_safetensors(path)
    if kind in (".parquet", ".pq"):
        return read_vector_table(path)
    if kind in (".txt", ".vec"):
        words, vectors = read_text_vectors(path)
        return {"words": words, "vectors": vectors}
    if kind == ".bin":
        words, vectors = read_binary_vectors(path)
        return {"words": words, "vectors": vectors}
    what = kind or "no suffix"
    if path.is_dir():
        what = "a folder that fastcos fit did not write; save item_embeddings() of a model as .npy"
    raise FastcosFormatError(
        f"{path} must be a file of vectors ({', '.join(SUFFIXES)}), got {what}"
    )


def as_vectors(path: Path, arrays: Mapping[str, Array]) -> Vectors:
    """Return the one 2-dimensional array of numbers, with ids where there are some."""
    found = [array for array in arrays.values() if array.ndim == 2 and array.dtype.kind in "fiub"]
    if len(found) != 1:
        held = ", ".join(f"{name} {array.dtype} {array.shape}" for name, array in arrays.items())
        raise FastcosFormatError(
            f"{path} must hold one 2-dimensional array of numbers, got {held[:200] or 'nothing'}"
        )
    try:
        vectors = as_mapped_rows("vectors", found[0])
        for _ in iter_blocks("vectors", vectors, _CHECKED_AT_ONCE):
            pass  # what is not finite is told as it is read
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
