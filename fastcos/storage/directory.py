"""Write and read directories of arrays and JSON fields, and change their content atomically.

A directory contains ``header.json`` and one ``.npy`` file per array. The name of an array file
contains a hash of its content. The header names every file with its size and sha256. The header is
written last, and replaces the previous header in one step. Therefore a reader sees either all of
the previous content or all of the new content, even if the writer is killed. No file contains
pickled objects. Arrays are read through memory maps, and no file is changed in place, so the memory
maps stay valid while a writer saves new content.
"""

import contextlib
import errno
import glob
import hashlib
import io
import json
import math
import os
import platform
import re
import shutil
import stat
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from fastcos import validation
from fastcos.storage.locks import LOCK_FILE, brief_lock, lock_directory

# The version of the format of a directory. If a directory has a different version, `load_arrays`
# raises an error.
FORMAT_VERSION = 1
_HEADER = "header.json"
# The largest allowed size of a header in bytes. A header that is larger than this counts as
# damaged.
_LARGEST_HEADER = 1 << 26
# Patterns that match the names of array files and temporary files. A writer removes only files
# whose names match one of these patterns.
_ARRAY_FILE = re.compile(r"[^\W\d]\w*-[0-9a-f]{16}\.npy")
_UNIQUE = re.compile(r"\.[0-9a-f]{32}")

PathLike = str | os.PathLike[str]
Value = TypeVar("Value")


class StorageError(ValueError):
    """An error about a stored object, with a one-line message of at most 300 characters."""

    def __init__(self, message: object = "") -> None:
        super().__init__(validation.one_line(str(message)))


class FastcosFormatError(StorageError):
    """A stored object is damaged, or is not of the kind that the caller wants to open.

    Examples
    --------
    >>> import tempfile
    >>> from fastcos import SimilarityIndex
    >>> from fastcos.storage import FastcosFormatError
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     try:
    ...         SimilarityIndex.open(folder)
    ...     except FastcosFormatError:
    ...         print("not an index")
    not an index
    """


class OccupiedError(StorageError):
    """The target directory holds other content, which must not be overwritten."""


class Stored(NamedTuple):
    """The content of a directory.

    `arrays` maps the name of each array to a read-only memory map, and `files` maps the name of
    each array to the path of its file. `fields` contains the JSON fields. `checksum` is the sha256
    of the header, which contains the sha256 of every array.
    """

    arrays: dict[str, npt.NDArray[Any]]
    fields: dict[str, Any]
    checksum: str
    files: dict[str, Path]


def save_arrays(
    path: PathLike,
    kind: str,
    arrays: Mapping[str, npt.NDArray[Any]],
    fields: Mapping[str, Any],
    *,
    kept_arrays: Collection[str] = (),
    expected: str | None = None,
    check_replaced: Callable[[dict[str, Any]], None] | None = None,
) -> str:
    """Replace the content of the directory `path` by arrays and fields; return the checksum.

    Writing is atomic: the directory appears, or changes, in one step. If the directory can be
    locked (``locks``), only one process writes to it at a time, and other writers wait. Any number
    of processes may read the directory at the same time.

    `kind` is the type of the stored object, for example "LinearMF". `arrays` maps names to the
    arrays that are to be written; each name is a Python identifier. `kept_arrays` contains the
    names of arrays that are already in the directory and are not written again. `expected` is the
    checksum of the content that the caller has read. If the content has changed since the caller
    read it, OccupiedError is raised, so that no caller overwrites changes that it has not seen.
    While this writer holds the lock, it calls `check_replaced` with the fields that are now in the
    directory. `check_replaced` raises an error if these fields must not be replaced. If
    `check_replaced` is passed, an object that is already in the directory must have the type
    `kind`.
    """
    target = validation.as_path("path", path)
    while True:
        check_replaceable("path", target, _HEADER)
        if target.is_dir():
            with lock_directory(target) as is_locked:
                entries = {}
                if expected is not None:
                    entries = _read_unchanged(target, kind, expected)
                    entries = {name: entries[name] for name in kept_arrays}
                elif check_replaced is not None and (target / _HEADER).is_file():
                    check_replaced(_read_header(target, kind)[1]["fields"])
                return _write(target, kind, arrays, fields, entries, expected, is_locked)
        with temporary_directory(target) as temporary:
            checksum = _write(temporary, kind, arrays, fields, {}, None, is_locked=True)
            try:
                temporary.rename(target)
            except OSError as error:
                # If another process has created ``path`` in the meantime, the next round of this
                # loop waits for the lock of ``path``.
                if error.errno in (errno.ENOTEMPTY, errno.EEXIST) and target.is_dir():
                    continue
                raise
        sync_directory(target.parent)
        return checksum


def _read_unchanged(target: Path, kind: str, expected: str) -> dict[str, Any]:
    """Return the header entries of all arrays; raise OccupiedError if the checksum has changed."""
    header = _read_header(target, kind)[1]
    if header["sha256"] != expected:
        raise OccupiedError(
            f"path must not have changed since it was read or saved, got {str(target)!r}, which "
            "was changed by another writer. Read it again, and repeat your change"
        )
    entries: dict[str, Any] = header["arrays"]
    return entries


def read_fields(path: PathLike, kind: str) -> tuple[dict[str, Any], str]:
    """Return the fields and the checksum of the object that is stored at `path`.

    Only the header is read.
    """
    header = _read_header(Path(path), kind)[1]
    return header["fields"], header["sha256"]


@contextlib.contextmanager
def refuse_damage(path: PathLike) -> Iterator[None]:
    """Convert errors about values in the file `path` to a FastcosFormatError that names `path`.

    The values of a header must be checked even if its checksum is correct, because anybody can
    compute the checksum of a changed header. Errors that do not indicate damage are not converted:
    OSError, MemoryError, and errors that indicate a mistake in our code, such as AttributeError. If
    a mistake in our code were reported as damage, a user would look for a fault in an intact file.
    Therefore ``field`` checks the type of every value of a header before the value is used.
    """
    try:
        yield
    except FastcosFormatError:
        raise
    except (ValueError, LookupError, ArithmeticError, RecursionError) as error:
        reason = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise FastcosFormatError(f"{path} is damaged: {reason}") from error


def field(fields: Mapping[str, Any], name: str, kind: type[Value]) -> Value:
    """Return the field with this name; raise ValueError if its type is not `kind`.

    `kind` is one of the Python types to which JSON values are decoded.
    """
    value = fields.get(name)
    if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
        raise ValueError(f"{name} must be of type {kind.__name__}, got {value!r}")
    return value


def load_arrays(path: PathLike, kind: str, *, verify: bool = True) -> Stored:
    """Return the fields and arrays that ``save_arrays`` wrote; arrays are read-only memory maps.

    If ``verify`` is True, every file is read and compared with its checksum. If ``verify`` is
    False, only the header is read, and only the sizes of the array files are checked.
    FileNotFoundError is raised if the directory `path` does not exist. FastcosFormatError is raised
    if a file is missing, is truncated or fails a check, or if the object at `path` has the wrong
    kind or the wrong format version.
    """
    directory = validation.as_path("path", path)
    if not directory.exists():
        got = f"a directory that does not exist: {directory}"
        raise FileNotFoundError(validation.one_line(f"path must be a saved {kind}, got {got}"))
    content, header = _read_header(directory, kind)
    while True:
        try:
            entries = header["arrays"].items()
            arrays = {name: _read_array(directory, entry, verify) for name, entry in entries}
            files = {name: directory / entry["file"] for name, entry in entries}
            return Stored(arrays, header["fields"], header["sha256"], files)
        except FileNotFoundError as error:
            # A writer may have replaced the header after this call had read it, and may have
            # removed the files that the old header names. In this case, the files that the new
            # header names are read.
            newer, header = _read_header(directory, kind)
            if newer == content:
                raise FastcosFormatError(f"{error.filename} is missing") from None
            content = newer


def check_replaceable(name: str, path: Path, mark: str) -> None:
    """Raise an error unless `path` is new, an empty directory, or a directory with the file `mark`.

    A directory counts as empty if it contains only the lock file of a writer. `name` is the name of
    the argument in the error message.
    """
    if not next(parent for parent in path.absolute().parents if parent.exists()).is_dir():
        raise OccupiedError(f"{name} must be in a directory, got {str(path)!r} within a file")
    if path.exists() and not _is_empty(path) and not (path / mark).is_file():
        raise OccupiedError(
            f"{name} must be a new or an empty directory, or a directory that contains {mark}, got "
            f"{str(path)!r}"
        )


def check_new_directory(name: str, path: Path) -> None:
    """Raise an error if ``path`` exists, unless it is an empty directory."""
    if path.exists() and not _is_empty(path):
        raise OccupiedError(f"{name} must be a new or an empty directory, got {str(path)!r}")


def _is_empty(path: Path) -> bool:
    """Return whether `path` is a directory that is empty apart from the lock file of a writer."""
    return path.is_dir() and all(file.name == LOCK_FILE for file in path.iterdir())


@contextlib.contextmanager
def temporary_directory(target: Path) -> Iterator[Path]:
    """Yield a new directory beside `target`; at the end, remove it if it has not been renamed.

    The function first removes temporary directories that writers of the same target left behind
    when they were killed. The temporary directory of a running writer is locked, and is therefore
    not removed.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    for leftover in target.parent.glob(f".{glob.escape(target.name)}.*"):
        if _UNIQUE.fullmatch(leftover.name.removeprefix(f".{target.name}")) and leftover.is_dir():
            # An OSError means that another writer has locked `leftover` or has just removed it.
            with contextlib.suppress(OSError), lock_directory(leftover, wait=False) as is_locked:
                if is_locked:
                    shutil.rmtree(leftover, ignore_errors=True)
    with contextlib.ExitStack() as stack:
        while True:
            temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
            temporary.mkdir()
            try:
                stack.enter_context(lock_directory(temporary, moved_to=target))
                break
            except FileNotFoundError:  # another writer removed the directory before it was locked
                continue
        try:
            yield temporary
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def _write(
    directory: Path,
    kind: str,
    arrays: Mapping[str, npt.NDArray[Any]],
    fields: Mapping[str, Any],
    kept_entries: Mapping[str, Any],
    expected: str | None,
    is_locked: bool,
) -> str:
    """Write `arrays`, then a header that also lists `kept_entries`; return the header's checksum.

    `kept_entries` contains the header entries of arrays that are already in the directory and are
    not written again. When the header of the directory is replaced, the directory must still have
    the checksum `expected`. `is_locked` says whether this writer holds the directory's lock. A
    writer that does not hold the lock removes no file: another writer may be writing a new header
    that needs this file.
    """
    # If importlib.metadata were imported at the top of the file, importing fastcos.search would
    # take 20 ms longer.
    from importlib.metadata import version

    entries, old_files = dict(kept_entries), set(directory.iterdir())
    try:
        for name, array in arrays.items():
            entries[name] = _write_array(directory, name, array)
    # After an error, for example if the disk is full, the new files are removed. The names of the
    # new files are in no header, so nobody would read these files, and they would only waste disk
    # space.
    except BaseException:
        if is_locked:
            for file in directory.iterdir():
                if file not in old_files and _ARRAY_FILE.fullmatch(file.name):
                    file.unlink(missing_ok=True)
        raise
    header = {
        "format": "fastcos",
        "format_version": FORMAT_VERSION,
        "kind": kind,
        "versions": {
            "fastcos": version("fastcos"),
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
        "fields": dict(fields),
        "arrays": entries,
    }
    header["sha256"] = hashlib.sha256(_canonical(header)).hexdigest()
    text = json.dumps(header, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    sync_directory(directory)  # the files must reach the disk before the header that names them
    with contextlib.nullcontext() if is_locked else brief_lock(directory):
        if expected is not None and not is_locked:
            _read_unchanged(directory, kind, expected)
        replace_file(directory / _HEADER, [text.encode()])
    sync_directory(directory)
    if is_locked:
        _remove_unnamed(directory, {entry["file"] for entry in entries.values()})
    return str(header["sha256"])


def _remove_unnamed(directory: Path, current: Collection[str]) -> None:
    """Remove the array files and temporary files that are not in `current`.

    `current` contains the names of all files that the header names.
    """
    for file in directory.iterdir():
        is_of_fastcos = _ARRAY_FILE.fullmatch(file.name) or _UNIQUE.fullmatch(file.name)
        if is_of_fastcos and file.name not in current:
            # The save is complete at this point. If a file cannot be removed, for example on
            # Windows while a process has mapped it into memory, a later save removes it.
            with contextlib.suppress(OSError):
                file.unlink(missing_ok=True)


def _write_array(directory: Path, name: str, array: npt.NDArray[Any]) -> dict[str, Any]:
    """Write an array to a file whose name contains a hash of its content.

    The function returns the header entry of the array.
    """
    array = np.ascontiguousarray(array).reshape(np.shape(array))
    head = io.BytesIO()
    fields = {"descr": array.dtype.str, "fortran_order": False, "shape": array.shape}
    np.lib.format.write_array_header_1_0(head, fields)
    body = array.reshape(-1).view(np.uint8).data if array.size else memoryview(b"")
    digest = hashlib.sha256(head.getvalue())
    digest.update(body)
    file = f"{name}-{digest.hexdigest()[:16]}.npy"
    replace_file(directory / file, [head.getvalue(), body])
    return {
        "file": file,
        "shape": list(array.shape),
        "dtype": array.dtype.str,
        "bytes": head.tell() + body.nbytes,
        "sha256": digest.hexdigest(),
    }


def replace_file(path: Path, parts: Sequence[bytes | memoryview]) -> None:
    """Write `parts` to a temporary file, flush the file to the disk, and rename it to `path`."""
    temporary = path.with_name(f".{uuid.uuid4().hex}")
    try:
        with temporary.open("wb") as file:
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        # Errors from write and fsync do not name the file.
        if isinstance(error, OSError) and error.filename is None:
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


def sync_directory(directory: Path) -> None:
    """Flush the names of the files in a directory to the disk, so that renames survive a crash."""
    if os.name == "posix":  # Windows cannot open a directory
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _read_header(directory: Path, kind: str) -> tuple[bytes, dict[str, Any]]:
    """Return the header as bytes and as a dict.

    FastcosFormatError is raised if the header is damaged, or if the stored object is not of this
    kind.
    """
    path = directory / _HEADER
    try:
        with _open_regular(path) as file:
            content = file.read(_LARGEST_HEADER + 1)
    except (FileNotFoundError, NotADirectoryError):
        raise FastcosFormatError(
            f"path must be a saved {kind}, got {str(directory)!r}, which contains no {_HEADER}"
        ) from None
    if len(content) > _LARGEST_HEADER:
        raise FastcosFormatError(f"{path} is damaged: larger than {_LARGEST_HEADER} bytes")
    try:
        header = json.loads(content)
        digest = header.pop("sha256")
        stored_format, stored_version, stored_kind = (
            header[key] for key in ("format", "format_version", "kind")
        )
        fields, entries = header["fields"], header["arrays"]
        computed = hashlib.sha256(_canonical(header)).hexdigest()
    except (ValueError, LookupError, AttributeError, TypeError, RecursionError):
        raise FastcosFormatError(f"{path} is damaged: not a header of fastcos") from None
    if stored_format != "fastcos" or digest != computed:
        raise FastcosFormatError(f"{path} is damaged: its checksum differs")
    if stored_version != FORMAT_VERSION:
        raise FastcosFormatError(
            f"{path} must be of format version {FORMAT_VERSION}, got {stored_version}"
        )
    if stored_kind != kind:
        raise FastcosFormatError(f"path must be a saved {kind}, got a saved {stored_kind}")
    if not isinstance(fields, dict) or not isinstance(entries, dict):
        raise FastcosFormatError(f"{path} is damaged: fields and arrays must be objects")
    for name, entry in entries.items():
        _check_entry(path, name, entry)
    return content, header | {"sha256": digest}


def _check_entry(header: Path, name: str, entry: Any) -> None:
    """Raise an error if the header entry of the array `name` is invalid.

    An entry contains the name and the size of a file, and the shape and the type of the array in
    this file. The entry is invalid if the file is outside the directory, or if a file of this size
    cannot contain an array of this shape and type.
    """
    with refuse_damage(header):
        if not isinstance(entry, dict):
            raise ValueError(f"the entry of {name!r} must be an object, got {entry!r}")
        # An entry must name a file without a path, so that a header cannot refer to another
        # directory.
        if _ARRAY_FILE.fullmatch(field(entry, "file", str)) is None:
            raise FastcosFormatError(
                f"{header} is damaged: the file name of {name!r} must be one that save writes, got "
                f"{entry['file']!r}"
            )
        shape, size = field(entry, "shape", list), field(entry, "bytes", int)
        field(entry, "sha256", str)
        kind = _native_type(field(entry, "dtype", str))
        if kind is None or not all(type(n) is int and n >= 0 for n in (size, *shape)):
            raise FastcosFormatError(f"{header} is damaged: the entry of {name!r} is invalid")
        head = size - math.prod(shape) * kind.itemsize
        # In an .npy file of version 1.0, the numbers begin at a multiple of 64 bytes.
        if not 0 < head < 2**16 or head % 64:
            raise FastcosFormatError(
                f"{header} is damaged: {size} bytes cannot hold {name!r}, {kind} {tuple(shape)}"
            )


def _native_type(name: str) -> np.dtype[Any] | None:
    """Return the NumPy dtype with this name, or None if it cannot be used.

    A dtype is used only if it has the byte order of this machine and holds no Python objects.
    """
    try:
        kind = np.dtype(name)
    except (TypeError, ValueError):
        return None
    return kind if kind.isnative and not kind.hasobject else None


def _open_regular(path: Path) -> io.BufferedReader:
    """Open a regular file, or a link to a regular file; raise an error for pipes and devices.

    Pipes and devices are refused, because opening a pipe would wait for its writer, and reading
    some devices would never end.
    """

    def opener(name: str, flags: int) -> int:
        return os.open(name, flags | getattr(os, "O_NONBLOCK", 0))

    file = open(path, "rb", opener=opener)  # noqa: SIM115  the caller closes the file
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise FastcosFormatError(f"{path} must be a regular file, got a device, pipe or socket")
    return file


def _read_array(directory: Path, entry: Mapping[str, Any], verify: bool) -> npt.NDArray[Any]:
    """Return a memory map of the array that a checked header entry describes.

    The beginning of the .npy file is not parsed, because the header entry contains the same
    information.
    """
    path = directory / entry["file"]
    with _open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size != entry["bytes"]:
            raise FastcosFormatError(f"{path} is damaged: {size} bytes instead of {entry['bytes']}")
        if verify and hashlib.file_digest(file, "sha256").hexdigest() != entry["sha256"]:
            raise FastcosFormatError(f"{path} is damaged: its checksum differs")
        shape, kind = tuple(entry["shape"]), np.dtype(entry["dtype"])
        with refuse_damage(path):
            count = math.prod(shape) * kind.itemsize
            if count == 0:  # an empty array cannot be mapped
                return validation.read_only(np.empty(shape, kind))
            array = np.memmap(file, kind, "r", size - count, shape)
    return validation.read_only(array.view(np.ndarray))


def _canonical(header: Mapping[str, Any]) -> bytes:
    """Return the header as JSON bytes, from which the checksum of the header is computed."""
    return json.dumps(
        header, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
    ).encode()
