"""Dense vectors with their ids or words, from all formats of vectors."""

import mmap
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastcos.io.arrays import read_npy, read_npz, read_safetensors
from fastcos.io.parquet import read_vector_table
from fastcos.io.streams import open_bytes
from fastcos.storage import FastcosFormatError
from fastcos.storage.memmap import as_mapped_rows, iter_blocks

Array = npt.NDArray[Any]

# rows of a memory map that are validated at once
_ROWS = 8192
ID_NAMES = ("ids", "words", "names")
SUFFIXES = (".npy", ".npz", ".safetensors", ".parquet", ".pq", ".txt", ".vec", ".bin")


class Vectors(NamedTuple):
    """One vector per row.

    Attributes
    ----------
    vectors : ndarray (n, d), float32 or float64
        Finite, C-contiguous, read-only. An .npy file larger than the setting ``working_memory`` is
        memory-mapped and keeps its dtype.
    ids : ndarray (n,), int64 or str
        In row order; the positions 0 .. n-1 if the file has none.
    """

    vectors: Any
    ids: npt.NDArray[Any]


def holds_vectors(path: str | os.PathLike[str]) -> bool:
    """Return whether a file is .npy, or .npz with a 2-dimensional array, not a sparse matrix.

    Raises FastcosFormatError for a damaged .npz file.

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
    """Read dense vectors, and their words or ids if the file has them. Nothing is unpickled.

    Parameters
    ----------
    path : str or path-like
        .npy with a 2-dimensional array; .npz or .safetensors with one 2-dimensional array of
        numbers and, optionally (npz), a vector named ids, words or names; .parquet with a column of
        lists or one column per dimension, and optionally ids; .txt or .vec, word vectors of
        word2vec or GloVe (also gzipped); .bin, word2vec's binary format.

    Returns
    -------
    Vectors

    Raises
    ------
    FastcosFormatError
        Damaged; no or several such arrays; not finite; repeated ids, or another number of them.

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
        return _read_text_vectors(path)
    if kind == ".bin":
        return _read_binary_vectors(path)
    what = kind or "no suffix"
    if path.is_dir():
        what = "a folder that is not from fastcos fit; save item_embeddings() of a model as .npy"
    raise FastcosFormatError(
        f"{path} must be a file of vectors ({', '.join(SUFFIXES)}), got {what}"
    )


def as_vectors(path: Path, arrays: Mapping[str, Array]) -> Vectors:
    """Return the one 2-dimensional array of numbers, with its ids if there are any."""
    found = [array for array in arrays.values() if array.ndim == 2 and array.dtype.kind in "fiub"]
    if len(found) != 1:
        held = ", ".join(f"{name} {array.dtype} {array.shape}" for name, array in arrays.items())
        raise FastcosFormatError(
            f"{path} must hold one 2-dimensional array of numbers, got {held[:200] or 'nothing'}"
        )
    try:
        vectors = as_mapped_rows("vectors", found[0])
        for _ in iter_blocks("vectors", vectors, _ROWS):
            pass  # reading refuses values that are not finite
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
        raise FastcosFormatError(f"{path}: {named[0]} must be distinct, got repeated ones")
    return Vectors(vectors, ids)


def read_ids(path: str | os.PathLike[str], length: int) -> npt.NDArray[Any]:
    """Read the array ids of an .npz file that write_npz wrote.

    Raises FastcosFormatError if the file is damaged, or does not have length ids.
    """
    path = Path(path)
    ids = read_npz(path).get("ids")
    if ids is None or ids.shape != (length,):
        what = "none" if ids is None else f"shape {ids.shape}"
        raise FastcosFormatError(f"{path} must hold {length} ids, got {what}")
    return ids


def _read_text_vectors(path: Path) -> Mapping[str, Array]:
    """Read lines ``word number ... number``; word2vec's first line ``n d`` is optional.

    A word may have spaces: the last d fields are the numbers.
    """
    words, vectors, declared, width = [], [], None, 0
    with open_bytes(path) as lines:
        for number, line in enumerate(lines, 1):
            fields = line.split()
            if number == 1 and len(fields) == 2 and all(field.isdigit() for field in fields):
                declared, width = int(fields[0]), int(fields[1])
                continue
            if not fields:
                continue
            width = width or len(fields) - 1
            word, *entries = line.strip().rsplit(None, width)
            vector = None if len(entries) != width or not width else _numbers(entries)
            if vector is None:
                raise FastcosFormatError(
                    f"{path} must have a word and {max(width, 1)} numbers in every line, got "
                    f"{line[:40].decode(errors='replace').strip()!r} in line {number}"
                )
            words.append(word.decode(errors="backslashreplace"))
            vectors.append(vector)
    if not vectors or declared not in (None, len(vectors)):
        wanted = "at least one vector" if declared is None else f"{declared} vectors"
        raise FastcosFormatError(f"{path} must hold {wanted}, got {len(vectors)}")
    return {"words": np.array(words, np.str_), "vectors": np.stack(vectors)}


def _read_binary_vectors(path: Path) -> Mapping[str, Array]:
    """Read word2vec's binary format: ``n d`` and a line end, then word, space, d float32 each."""
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.readline(64)
        fields = head.split()
        if len(fields) != 2 or not all(field.isdigit() for field in fields):
            raise _not_binary(path, f"a first line {head[:30]!r}")
        n, d = int(fields[0]), int(fields[1])
        # a vector takes at least a letter, a space and the numbers
        if not n or not d or n * (4 * d + 2) > size:
            raise _not_binary(path, f"{size} bytes for {n} vectors of {d} numbers")
        words, vectors, at = [], np.empty((n, d), np.float32), len(head)
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            for row in range(n):
                space = content.find(b" ", at)
                end = space + 1 + 4 * d
                if space < 0 or end > size:
                    raise _not_binary(path, f"an end in vector {row + 1} of {n}")
                word = content[at:space].lstrip(b"\n")
                words.append(word.decode(errors="backslashreplace"))
                vectors[row] = np.frombuffer(content[space + 1 : end], "<f4")
                at = end
    return {"words": np.array(words, np.str_), "vectors": vectors}


def _numbers(fields: list[bytes]) -> Array | None:
    try:
        return np.array([float(field) for field in fields], np.float32)
    except ValueError:
        return None


def _not_binary(path: Path, came: str) -> FastcosFormatError:
    return FastcosFormatError(
        f"{path} must be a whole file in word2vec's binary format, got {came}"
    )
