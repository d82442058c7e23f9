"""Atomic directories of arrays and JSON fields.

A directory holds ``header.json`` and one ``.npy`` file per array, named after its content. The
header is written last and replaced in one step, and it names every file with its size and sha256.
So a reader sees all of the old content or all of the new, also when the writer is killed. Nothing
is pickled. Arrays are read through memory maps, and no file is changed in place, so maps stay valid
while the directory is written again.
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

# version of the directory's layout, which load_arrays requires
FORMAT_VERSION = 1
_HEADER = "header.json"
# bytes of a header at most: a larger file is not read
_LARGEST_HEADER = 1 << 26
# names of files that a writer makes, and may remove
_ARRAY_FILE = re.compile(r"[^\W\d]\w*-[0-9a-f]{16}\.npy")
_UNIQUE = re.compile(r"\.[0-9a-f]{32}")

PathLike = str | os.PathLike[str]
Value = TypeVar("Value")


class StorageError(ValueError):
    """An error about files, whose message is one line of at most 300 characters."""

    def __init__(self, message: object = "") -> None:
        super().__init__(validation.one_line(str(message)))


class FastcosFormatError(StorageError):
    """A stored object is damaged, or is of another kind.

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
    """The target directory holds something else."""


class Stored(NamedTuple):
    """What a directory holds: its arrays are read-only memory maps.

    The checksum is of the header, and so of all content; files are those of the arrays.
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
    kept: Collection[str] = (),
    expected: str | None = None,
    check_replaced: Callable[[dict[str, Any]], None] | None = None,
) -> str:
    """Write arrays and fields to the directory path, replacing what was saved there before.

    Atomic: path appears, or changes, in one step. Writers wait for each other, where directories
    can be locked (``locks``); any number of processes may read meanwhile. Returns the checksum of
    what path holds now. kind says what is stored, for example "LinearMF". Names of arrays are
    Python identifiers. kept: names of arrays that path holds already and that stay as they are.
    expected: the checksum that path must have, so that no writer overwrites what it has not read.
    check_replaced is called with the fields that path holds, under the lock of writers, and raises
    an error where they must not be replaced; path must then hold the same kind, or nothing.
    """
    target = validation.as_path("path", path)
    while True:
        check_replaceable("path", target, _HEADER)
        if target.is_dir():
            with lock_directory(target) as is_locked:
                entries = {}
                if expected is not None:
                    entries = _read_unchanged(target, kind, expected)
                    entries = {name: entries[name] for name in kept}
                elif check_replaced is not None and (target / _HEADER).is_file():
                    check_replaced(_read_header(target, kind)[1]["fields"])
                return _write(target, kind, arrays, fields, entries, expected, is_locked)
        with temporary_directory(target) as temporary:
            checksum = _write(temporary, kind, arrays, fields, {}, None, is_locked=True)
            try:
                temporary.rename(target)
            except OSError as error:
                # another process has saved there meanwhile, and is now waited for
                if error.errno in (errno.ENOTEMPTY, errno.EEXIST) and target.is_dir():
                    continue
                raise
        sync_directory(target.parent)
        return checksum


def _read_unchanged(target: Path, kind: str, expected: str) -> dict[str, Any]:
    """Return the entries of the arrays of a directory, which must have the expected checksum."""
    header = _read_header(target, kind)[1]
    if header["sha256"] != expected:
        raise OccupiedError(
            f"path must be as it was read or saved last, got {str(target)!r} changed by another "
            "writer; read it again, and repeat the change"
        )
    entries: dict[str, Any] = header["arrays"]
    return entries


def read_fields(path: PathLike, kind: str) -> tuple[dict[str, Any], str]:
    """Return the fields and the checksum of what path holds, from its header alone."""
    header = _read_header(Path(path), kind)[1]
    return header["fields"], header["sha256"]


@contextlib.contextmanager
def refuse_damage(path: PathLike) -> Iterator[None]:
    """Make an error about a value that is read from path a FastcosFormatError that names it.

    A header may hold anything, also with a right checksum: it is no signature. Errors of the
    system and of memory stay what they are, and so do those by which Python reports a mistake in
    the code, such as AttributeError: reported as damage, they would send a user to look for a fault
    in a good file. So the types of what a file holds are checked before it is used (``field``).
    """
    try:
        yield
    except FastcosFormatError:
        raise
    except (ValueError, LookupError, ArithmeticError, RecursionError) as error:
        what = f"{type(error).__name__}: {error}".partition("\n")[0]
        raise FastcosFormatError(f"{path} is damaged: {what}") from error


def field(fields: Mapping[str, Any], name: str, kind: type[Value]) -> Value:
    """Return the field of this name, which must be of a type of JSON; ValueError otherwise."""
    value = fields.get(name)
    if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
        raise ValueError(f"{name} must be of type {kind.__name__}, got {value!r}")
    return value


def load_arrays(path: PathLike, kind: str, *, verify: bool = True) -> Stored:
    """Return what save_arrays wrote: its fields, and its arrays as read-only memory maps.

    Every byte is verified; with verify=False sizes and types alone, and nothing but headers is
    read. FileNotFoundError where there is no directory path, FastcosFormatError where a file is
    missing, cut short or changed, or path holds another kind or a newer format.
    """
    directory = validation.as_path("path", path)
    if not directory.exists():
        rule = f"be a saved {kind}, got no such directory: {directory}"
        raise FileNotFoundError(validation.one_line(f"path must {rule}"))
    content, header = _read_header(directory, kind)
    while True:
        try:
            entries = header["arrays"].items()
            arrays = {name: _read_array(directory, entry, verify) for name, entry in entries}
            files = {name: directory / entry["file"] for name, entry in entries}
            return Stored(arrays, header["fields"], header["sha256"], files)
        except FileNotFoundError as error:
            # a writer may have replaced the header and removed the files of the previous one
            newer, header = _read_header(directory, kind)
            if newer == content:
                raise FastcosFormatError(f"{error.filename} is missing") from None
            content = newer


def check_replaceable(name: str, path: Path, mark: str) -> None:
    """Refuse a path that exists, unless it is a directory that is empty or holds the file mark."""
    if not next(parent for parent in path.absolute().parents if parent.exists()).is_dir():
        raise OccupiedError(f"{name} must be in a directory, got {str(path)!r} within a file")
    if path.exists() and not _is_empty(path) and not (path / mark).is_file():
        raise OccupiedError(
            f"{name} must be a new directory or one with a {mark}, got {str(path)!r}"
        )


def check_new_directory(name: str, path: Path) -> None:
    """Refuse a path that exists, unless it is an empty directory."""
    if path.exists() and not _is_empty(path):
        raise OccupiedError(f"{name} must be a new or an empty directory, got {str(path)!r}")


def _is_empty(path: Path) -> bool:
    """Whether a path is a directory that holds nothing but the lock of a writer."""
    return path.is_dir() and all(file.name == LOCK_FILE for file in path.iterdir())


@contextlib.contextmanager
def temporary_directory(target: Path) -> Iterator[Path]:
    """Yield a new directory beside target, which is removed at the end unless it was renamed.

    First removes those that killed writers of target left: a living writer holds a lock on its own.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    for left in target.parent.glob(f".{glob.escape(target.name)}.*"):
        if _UNIQUE.fullmatch(left.name.removeprefix(f".{target.name}")) and left.is_dir():
            # OSError: another process or thread writes there, or has just removed it
            with contextlib.suppress(OSError), lock_directory(left, wait=False) as is_locked:
                if is_locked:
                    shutil.rmtree(left, ignore_errors=True)
    with contextlib.ExitStack() as stack:
        while True:
            made = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
            made.mkdir()
            try:
                stack.enter_context(lock_directory(made, moved_to=target))
                break
            except FileNotFoundError:  # removed by another writer before it was locked
                continue
        try:
            yield made
        finally:
            shutil.rmtree(made, ignore_errors=True)


def _write(
    directory: Path,
    kind: str,
    arrays: Mapping[str, npt.NDArray[Any]],
    fields: Mapping[str, Any],
    kept: Mapping[str, Any],
    expected: str | None,
    is_locked: bool,
) -> str:
    """Write arrays and a header that names them and those that are kept; return its checksum.

    expected: the checksum that the directory must still have when its header is replaced. Without
    the lock of the directory no file is removed: another writer's next header may name it.
    """
    from importlib.metadata import version  # 20 ms of every import of a search otherwise

    entries, before = dict(kept), set(directory.iterdir())
    try:
        for name, array in arrays.items():
            entries[name] = _write_array(directory, name, array)
    except BaseException:  # a full disk: what is there takes space, and nothing names it
        if is_locked:
            for file in directory.iterdir():
                if file not in before and _ARRAY_FILE.fullmatch(file.name):
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
    sync_directory(directory)  # the files that the header names must not come after it
    with contextlib.nullcontext() if is_locked else brief_lock(directory):
        if expected is not None and not is_locked:
            _read_unchanged(directory, kind, expected)
        replace_file(directory / _HEADER, [text.encode()])
    sync_directory(directory)
    if is_locked:
        _remove_unnamed(directory, {entry["file"] for entry in entries.values()})
    return str(header["sha256"])


def _remove_unnamed(directory: Path, current: Collection[str]) -> None:
    """Remove the files that earlier saves wrote and that the header does not name any more."""
    for file in directory.iterdir():
        is_ours = _ARRAY_FILE.fullmatch(file.name) or _UNIQUE.fullmatch(file.name)
        if is_ours and file.name not in current:
            # the save is complete: a file that cannot be removed, such as one that Windows has
            # mapped, is left to the next one
            with contextlib.suppress(OSError):
                file.unlink(missing_ok=True)


def _write_array(directory: Path, name: str, array: npt.NDArray[Any]) -> dict[str, Any]:
    """Write one array under a name that follows from its content; return its header entry."""
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
    """Write a file under a temporary name, flush it to the disk, then rename it."""
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
        if isinstance(error, OSError) and error.filename is None:  # of write and fsync
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


def sync_directory(directory: Path) -> None:
    """Flush the entries of a directory to the disk."""
    if os.name == "posix":  # Windows opens no directories
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _read_header(directory: Path, kind: str) -> tuple[bytes, dict[str, Any]]:
    """Return the header as bytes and as JSON, if it is whole and of this kind."""
    path = directory / _HEADER
    try:
        with _open_regular(path) as file:
            content = file.read(_LARGEST_HEADER + 1)
    except (FileNotFoundError, NotADirectoryError):
        raise FastcosFormatError(f"path must be a saved {kind}, got no header {path}") from None
    if len(content) > _LARGEST_HEADER:
        raise FastcosFormatError(f"{path} is damaged: larger than {_LARGEST_HEADER} bytes")
    try:
        header = json.loads(content)
        digest = header.pop("sha256")
        form, found_version, found_kind = (
            header[key] for key in ("format", "format_version", "kind")
        )
        fields, entries = header["fields"], header["arrays"]
        computed = hashlib.sha256(_canonical(header)).hexdigest()
    except (ValueError, LookupError, AttributeError, TypeError, RecursionError):
        raise FastcosFormatError(f"{path} is damaged: not a header of fastcos") from None
    if form != "fastcos" or digest != computed:
        raise FastcosFormatError(f"{path} is damaged: its checksum differs")
    if found_version != FORMAT_VERSION:
        raise FastcosFormatError(
            f"{path} must be of format version {FORMAT_VERSION}, got {found_version}"
        )
    if found_kind != kind:
        raise FastcosFormatError(f"path must be a saved {kind}, got a saved {found_kind}")
    if not isinstance(fields, dict) or not isinstance(entries, dict):
        raise FastcosFormatError(f"{path} is damaged: fields and arrays must be objects")
    for name, entry in entries.items():
        _check_entry(path, name, entry)
    return content, header | {"sha256": digest}


def _check_entry(header: Path, name: str, entry: Any) -> None:
    """Refuse an entry of an array whose file is outside the directory, or cannot hold it."""
    with refuse_damage(header):
        if not isinstance(entry, dict):
            raise ValueError(f"the entry of {name!r} must be an object, got {entry!r}")
        # a plain name: the header is no reason to read another folder
        if _ARRAY_FILE.fullmatch(field(entry, "file", str)) is None:
            raise FastcosFormatError(
                f"{header} is damaged: file of {name!r} must be a name that save writes, got "
                f"{entry['file']!r}"
            )
        shape, size = field(entry, "shape", list), field(entry, "bytes", int)
        field(entry, "sha256", str)
        kind = _native_type(field(entry, "dtype", str))
        if kind is None or not all(type(n) is int and n >= 0 for n in (size, *shape)):
            raise FastcosFormatError(f"{header} is damaged: the entry of {name!r} is no array's")
        head = size - math.prod(shape) * kind.itemsize
        # the head of an .npy file of version 1.0 ends at a multiple of 64 bytes
        if not 0 < head < 2**16 or head % 64:
            raise FastcosFormatError(
                f"{header} is damaged: {size} bytes cannot hold {name!r}, {kind} {tuple(shape)}"
            )


def _native_type(name: str) -> np.dtype[Any] | None:
    """Return the type of numbers or texts of this name, None where there is none."""
    try:
        kind = np.dtype(name)
    except (TypeError, ValueError):
        return None
    return kind if kind.isnative and not kind.hasobject else None


def _open_regular(path: Path) -> io.BufferedReader:
    """Open a regular file, or a link to one: a pipe would be waited for, some devices never end."""

    def opener(name: str, flags: int) -> int:
        return os.open(name, flags | getattr(os, "O_NONBLOCK", 0))

    file = open(path, "rb", opener=opener)  # noqa: SIM115  the caller closes it
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise FastcosFormatError(f"{path} must be a regular file, got a device, pipe or socket")
    return file


def _read_array(directory: Path, entry: Mapping[str, Any], verify: bool) -> npt.NDArray[Any]:
    """Map the array of a checked entry. The head of its file is not read: the entry says it all."""
    path = directory / entry["file"]
    with _open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size != entry["bytes"]:
            raise FastcosFormatError(f"{path} is damaged: {size} bytes, not {entry['bytes']}")
        if verify and hashlib.file_digest(file, "sha256").hexdigest() != entry["sha256"]:
            raise FastcosFormatError(f"{path} is damaged: its checksum differs")
        shape, kind = tuple(entry["shape"]), np.dtype(entry["dtype"])
        with refuse_damage(path):
            count = math.prod(shape) * kind.itemsize
            if count == 0:  # nothing to map
                return validation.read_only(np.empty(shape, kind))
            array = np.memmap(file, kind, "r", size - count, shape)
    return validation.read_only(array.view(np.ndarray))


def _canonical(header: Mapping[str, Any]) -> bytes:
    return json.dumps(
        header, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
    ).encode()
