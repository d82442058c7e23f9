"""Checkpoints: arrays that are written block by block, so that an interrupted run can be resumed.

While a checkpoint is incomplete, its files lie in the directory ``.NAME.partial``, beside the
target directory NAME. There is one .npy file per array. The file ``run.json`` contains the request,
which is everything on which the result depends. The file ``done.npy`` contains a flag for every
block of rows. The flag of a block is set only once the rows of the block have reached the disk.
When all flags are set, the directory is renamed to NAME in one step. A later call with the same
request computes the blocks whose flags are not set. If the checkpoint is complete, the later call
returns at once.
"""

import contextlib
import errno
import functools
import json
import os
import shutil
import warnings
import weakref
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from tokenize import TokenError
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from fastcos import config, validation
from fastcos.storage.directory import (
    FastcosFormatError,
    OccupiedError,
    PathLike,
    check_replaceable,
    replace_file,
    sync_directory,
)
from fastcos.storage.locks import LOCK_FILE, lock_directory

# The number of multiplications that each thread performs between two writes. If a thread performs
# 130 billion multiplications per second, the time between two writes is about 17 s. If a run is
# killed, at most the work since the last write is lost.
WORK_PER_THREAD = 1 << 41
# _RUN is the name of the file that stores the request of a run. _DONE is the name of the array that
# stores one flag for each block.
_RUN = "run.json"
_DONE = "done"
# With these error numbers, the operating system reports that a file system cannot reserve space. On
# such a file system, a full disk causes an error only when a block is written.
_NO_RESERVATION = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)
Array = npt.NDArray[Any]
Shapes = Mapping[str, tuple[tuple[int, ...], npt.DTypeLike]]


def rows_per_block(work_per_row: int, minimum: int) -> int:
    """Return the number of rows that a run processes between two writes, at least `minimum`.

    `work_per_row` is the number of multiplications per row.
    """
    return max(minimum, WORK_PER_THREAD * config.n_threads() // work_per_row)


class CheckpointError(OSError):
    """A checkpoint could not be created, for example because the disk is full.

    All files that were created before the error have been removed.
    """


class Checkpoint:
    """A directory of arrays with n rows each; every block of rows is written once.

    `request` is a dict of JSON values that contains everything on which the result depends.
    OccupiedError is raised if the directory holds a run whose request differs from `request`, or an
    incomplete run of a different version of fastcos. `arrays` contains the shape and the dtype of
    each array; disk space for all arrays is reserved before the first block is written. `block` is
    the number of rows per block; a resumed run keeps the number with which it was started.

    Only one thread of one process writes a directory at a time. A second writer of the same
    directory issues a warning that names the first writer, and waits until the first writer has
    ended. The second writer then finds the complete result, or resumes the run. A checkpoint is a
    context manager. At the end of the `with` block, even after an error, the checkpoint releases
    its lock, so that the next writer can continue.
    """

    def __init__(
        self, path: PathLike, request: Mapping[str, Any], arrays: Shapes, block: int
    ) -> None:
        self.path = validation.as_path("out", path).absolute()
        self._partial = self.path.with_name(f".{self.path.name}.partial")
        check_replaceable("out", self.path, _RUN)
        self._names = tuple(arrays)
        self._n, self.block = next(iter(arrays.values()))[0][0], block
        self._lock = contextlib.ExitStack()
        # The lock is also released when this object is garbage-collected, for callers that do not
        # use the object as a context manager.
        self.close = weakref.finalize(self, self._lock.close)
        self.is_complete = False
        try:
            self._lock_or_find_complete(request)
            folder = self.path if self.is_complete else self._partial
            if (folder / _RUN).is_file():
                self._resume(folder, request, arrays)
            else:
                self._create(request, arrays)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _lock_or_find_complete(self, request: Mapping[str, Any]) -> None:
        """Set ``is_complete`` if the run is complete; otherwise lock the directory of the run.

        If another writer holds the lock, this call waits until the lock is free.
        """
        announce = functools.partial(_announce, self.path)
        while not (self.path / _RUN).is_file():
            try:
                self._partial.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise CheckpointError(error.errno, error.strerror, str(self._partial)) from error
            # Before this call waits for the lock, it compares its request with the request of the
            # stored run. If the requests differ, the call therefore fails at once.
            # FileNotFoundError means that there is no run yet, or that another writer has just
            # completed the run.
            with contextlib.suppress(FileNotFoundError):
                self._check_request(self._partial, request)
            try:
                lock = lock_directory(self._partial, moved_to=self.path, on_wait=announce)
                self._lock.enter_context(lock)
            # Another writer has removed the directory, or has completed the run and renamed the
            # directory.
            except FileNotFoundError:
                continue
            if not (self.path / _RUN).is_file():
                return
            # Another writer has completed the run. If this process called mkdir after the
            # completion, mkdir created an empty directory, which is removed here.
            if all(file.name == LOCK_FILE for file in self._partial.iterdir()):
                shutil.rmtree(self._partial, ignore_errors=True)
            self._lock.close()
        self.is_complete = True

    def missing(self) -> Iterator[tuple[int, int]]:
        """Yield the range (lo, hi) of the rows of every block that has not been written yet."""
        if self.is_complete:
            return
        done = _open_map(self._partial / f"{_DONE}.npy")
        for number in np.flatnonzero(done == 0).tolist():
            yield number * self.block, min(self._n, (number + 1) * self.block)

    def write(self, lo: int, **rows: Array) -> None:
        """Write the rows of the block that starts at row lo, and then set the flag of the block.

        `rows` maps the name of each array to the new rows of this array.
        """
        for name in self._names:
            _write_rows(self._partial / f"{name}.npy", lo, rows[name])
        _write_rows(self._partial / f"{_DONE}.npy", lo // self.block, np.ones(1, np.uint8))

    def finish(self) -> dict[str, Array]:
        """Rename the directory to its final name; return the arrays as memory maps."""
        if not self.is_complete:
            # A directory at this path contains at most a lock file, because the constructor has
            # called check_replaceable.
            if self.path.is_dir():
                (self.path / LOCK_FILE).unlink(missing_ok=True)
                self.path.rmdir()
            self._partial.rename(self.path)
            sync_directory(self.path.parent)
            self.is_complete = True
        (self.path / f"{_DONE}.npy").unlink(missing_ok=True)
        self.close()
        return {name: _open_map(self.path / f"{name}.npy") for name in self._names}

    def _resume(self, folder: Path, request: Mapping[str, Any], arrays: Shapes) -> None:
        """Check that `folder` holds a run with this request; use the block size of the stored run.

        FastcosFormatError is raised if `run.json`, or the header of an array, is damaged.
        """
        run = self._check_request(folder, request)
        rows, block = run.get("rows"), run.get("block")
        if type(rows) is not int or type(block) is not int or rows != self._n or block < 1:
            raise FastcosFormatError(
                f"{folder / _RUN} is damaged: {rows!r} rows in blocks of {block!r}"
            )
        self.block = block
        for name, (shape, dtype) in self._files(arrays).items():
            array = _open_map(folder / f"{name}.npy")
            if array.shape != shape or array.dtype != dtype or not array.flags.c_contiguous:
                raise FastcosFormatError(
                    f"{folder / name}.npy is damaged: it must be {np.dtype(dtype)} {shape}, got "
                    f"{array.dtype} {array.shape}"
                )

    def _check_request(self, folder: Path, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the content of `run.json`; raise an error if its request is not `request`."""
        text = (folder / _RUN).read_bytes()
        try:
            run = json.loads(text)
        except ValueError:
            run = None
        if not isinstance(run, dict) or not isinstance(run.get("request"), dict):
            raise FastcosFormatError(f"{folder / _RUN} is damaged")
        stored_request = {"fastcos": run.get("fastcos"), **run["request"]}
        code_version = {} if self.is_complete else {"fastcos": version("fastcos")}
        for key, value in (code_version | json.loads(json.dumps(dict(request)))).items():
            if stored_request.get(key) != value:
                raise OccupiedError(
                    "out must be a new directory or hold a run with the same arguments, got "
                    f"{str(folder)!r}, which holds a run with another {key}. To start again, "
                    "remove this directory"
                )
        return run

    def _create(self, request: Mapping[str, Any], arrays: Shapes) -> None:
        """Reserve space for all files, then write `run.json`; after an error, remove all files."""
        try:
            # Files in this directory are left over from a run that was killed before it could write
            # run.json.
            for file in self._partial.iterdir():
                if file.name != LOCK_FILE:
                    file.unlink()
            for name, (shape, dtype) in self._files(arrays).items():
                _reserve(self._partial / f"{name}.npy", shape, dtype)
            run = {
                "fastcos": version("fastcos"),
                "request": dict(request),
                "rows": self._n,
                "block": self.block,
            }
            replace_file(self._partial / _RUN, [(json.dumps(run, indent=1) + "\n").encode()])
            sync_directory(self._partial)
        except OSError as error:
            shutil.rmtree(self._partial, ignore_errors=True)
            raise CheckpointError(error.errno, error.strerror, str(self._partial)) from error

    def _files(self, arrays: Shapes) -> Shapes:
        """Return the shape and dtype of each array; include the flags if the run is incomplete."""
        flags = (-(-self._n // self.block),), np.uint8
        return arrays if self.is_complete else {**arrays, _DONE: flags}


def _announce(path: Path, holder: str) -> None:
    """Issue a warning that this call waits for the holder of the lock."""
    text = f"{holder} is writing to {str(path)!r} (out). This call waits until it has finished"
    warnings.warn(text, stacklevel=2)


def _reserve(file: Path, shape: tuple[int, ...], dtype: npt.DTypeLike) -> None:
    """Create an .npy file of zeros, and reserve its space on the disk."""
    np.lib.format.open_memmap(file, "w+", dtype, shape)
    with file.open("r+b") as file_object:
        if hasattr(os, "posix_fallocate"):
            try:
                os.posix_fallocate(file_object.fileno(), 0, file_object.seek(0, os.SEEK_END))
            except OSError as error:
                if error.errno not in _NO_RESERVATION:
                    raise
        os.fsync(file_object.fileno())


def _write_rows(file: Path, lo: int, rows: Array) -> None:
    """Overwrite the rows of an .npy file, starting at row ``lo``, and flush the file to the disk.

    A memory map is not used, because a write to a memory map kills the process if the disk is full.
    """
    try:
        with file.open("r+b") as file_object:
            np.lib.format.read_magic(file_object)
            _, _, dtype = np.lib.format.read_array_header_1_0(file_object)
            block = np.ascontiguousarray(rows, dtype)
            file_object.seek(lo * block[:1].nbytes, os.SEEK_CUR)
            file_object.write(block.data.cast("B"))
            file_object.flush()
            os.fsync(file_object.fileno())
    except OSError as error:  # errors from write and fsync do not name the file
        raise OSError(error.errno, error.strerror, str(file)) from None


def _open_map(file: Path) -> Any:
    try:
        return np.lib.format.open_memmap(file, "r")
    except (ValueError, OSError, EOFError, SyntaxError, TypeError, TokenError) as error:
        # NumPy parses the header of the file as Python code, so the text of the error may have
        # several lines.
        reason = str(error).partition("\n")[0]
        raise FastcosFormatError(f"{file} is damaged or missing: {reason}") from None
