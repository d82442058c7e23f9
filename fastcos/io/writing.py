"""Files that appear whole or not at all."""

import csv
import errno
import json
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

PathLike = str | os.PathLike[str]


@contextmanager
def atomic_path(path: PathLike) -> Iterator[Path]:
    """A temporary path to write to, which takes the place of path once the block is done.

    The temporary file lies in the same directory and has the same suffix. At the end of the block
    it is flushed to the disk and renamed; if the block raises, it is removed and path stays as it
    was. A process that is killed leaves at most a hidden file behind. Through a symbolic link, the
    file that it points to is replaced.

    Parameters
    ----------
    path : str or path-like
        Where the file is to appear; its directory must exist.

    Yields
    ------
    pathlib.Path
        What the block must write.

    Raises
    ------
    OSError
        The directory does not exist or cannot be written to, path is no regular file, or the block
        wrote nothing.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     with atomic_path(f"{folder}/answer.txt") as temporary:
    ...         _ = temporary.write_text("42")
    ...         before = Path(f"{folder}/answer.txt").exists()
    ...     before, Path(f"{folder}/answer.txt").read_text()
    (False, '42')
    """
    target = Path(os.path.realpath(path))  # a link still, where links go round
    if (target.exists() or target.is_symlink()) and not target.is_file():
        raise OSError(f"path must be a regular file or a new one, got {path}")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"path must lie in an existing directory, got {path}")
    temporary = target.with_name(f".{target.stem[:80]}.{secrets.token_hex(8)}{target.suffix}")
    try:
        yield temporary
        _to_disk(temporary, os.O_RDWR)
        temporary.replace(target)
    except OSError as error:
        if error.filename not in (None, str(temporary)):
            raise
        # of a full disk: neither the system's error nor NumPy's, which has no number, names a file
        raise OSError(error.errno or errno.EIO, error.strerror or str(error), str(path)) from error
    finally:
        temporary.unlink(missing_ok=True)
    if os.name == "posix":  # Windows opens no directories
        _to_disk(target.parent, os.O_RDONLY)


def _to_disk(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_json(path: PathLike, value: Any) -> None:
    """Write value as indented JSON, atomically; NaN and infinity are refused.

    Parameters
    ----------
    path : str or path-like
    value : JSON-ready value
        See fastcos.storage.provenance.json_ready.

    Raises
    ------
    OSError
        See atomic_path.
    TypeError, ValueError
        The value has no JSON form.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     write_json(f"{folder}/a.json", {"k": 50})
    ...     print(Path(f"{folder}/a.json").read_text().strip())
    {
      "k": 50
    }
    """
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    with atomic_path(path) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


def write_text(path: PathLike, text: str) -> None:
    """Write text as UTF-8, atomically.

    Parameters
    ----------
    path : str or path-like
    text : str

    Raises
    ------
    OSError
        See atomic_path.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     write_text(f"{folder}/a.html", "<p>κ</p>")
    ...     print(Path(f"{folder}/a.html").read_text("utf8"))
    <p>κ</p>
    """
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_npy(path: PathLike, array: npt.NDArray[Any]) -> None:
    """Write one array as an .npy file, atomically.

    Parameters
    ----------
    path : str or path-like
    array : ndarray
        Of any type but object: nothing is pickled.

    Raises
    ------
    OSError
        See atomic_path.
    ValueError
        An array of objects.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     write_npy(f"{folder}/a.npy", np.arange(3))
    ...     np.load(f"{folder}/a.npy")
    array([0, 1, 2])
    """
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        np.save(file, array, allow_pickle=False)


def write_npz(path: PathLike, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Write arrays as an uncompressed .npz file, atomically.

    Parameters
    ----------
    path : str or path-like
    arrays : mapping of str to ndarray
        None of them of Python objects.

    Raises
    ------
    OSError
        See atomic_path.
    ValueError
        An array holds Python objects.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     write_npz(f"{folder}/a.npz", {"ids": np.arange(3)})
    ...     np.load(f"{folder}/a.npz")["ids"]
    array([0, 1, 2])
    """
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)


def write_csv(path: PathLike, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write a header and rows as UTF-8 csv, atomically.

    None becomes an empty field; floats are written with the digits that give them back exactly.

    Parameters
    ----------
    path : str or path-like
    header : sequence of str
    rows : iterable of sequences
        Each as long as header.

    Raises
    ------
    OSError
        See atomic_path.
    ValueError
        A row is longer or shorter than header.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     write_csv(f"{folder}/a.csv", ("name", "auc"), [("identity", 0.75), ("eq2", None)])
    ...     print(Path(f"{folder}/a.csv").read_text().strip())
    name,auc
    identity,0.75
    eq2,
    """
    with (
        atomic_path(path) as temporary,
        temporary.open("w", encoding="utf-8", newline="") as file,
    ):
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        for row in rows:
            if len(row) != len(header):
                raise ValueError(f"rows must have {len(header)} fields as header, got {len(row)}")
            writer.writerow(row)
