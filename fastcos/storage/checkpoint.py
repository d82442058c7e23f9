"""Checkpoints: arrays that are written block by block, so that an interrupted run can be resumed.

Until it is complete, a Checkpoint lies beside its target, in ``.NAME.partial``: one .npy file per
array, ``run.json`` with the request, and ``done.npy`` with a flag for every block. A flag is set
only once the block's rows have reached the disk. When all are set, the directory gets its name in
one step. The same run started again continues after the flags, or returns at once if complete.
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

# products of entries per thread in the search of a block: 17 s on a core of 130 GFLOP/s, which is
# what a kill costs
WORK_PER_THREAD = 1 << 41
# files beside the arrays: the request, and the flags of blocks
_RUN = "run.json"
_DONE = "done"
# errors of a file system that reserves no space: a full disk is then found while writing
_NO_RESERVATION = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)
Array = npt.NDArray[Any]
Shapes = Mapping[str, tuple[tuple[int, ...], npt.DTypeLike]]


def rows_per_block(work_per_row: int, least: int) -> int:
    """Return the rows that are searched between two writes, at least least."""
    return max(least, WORK_PER_THREAD * config.n_threads() // work_per_row)


class CheckpointError(OSError):
    """A checkpoint cannot be created: no space, or no right to write; nothing was left behind."""


class Checkpoint:
    """Arrays of n rows in a directory, each block of rows written once.

    request: all that the result depends on, as JSON values. A directory of another request is
    refused; an incomplete one of another version of fastcos, too. arrays: shape and dtype of each;
    their space is reserved up front. A resumed run keeps the size of block that it started with.

    One process or thread writes a directory at a time. Another one with the same path waits, says
    so in a warning that names the first, and then finds the complete result or resumes. A context
    manager: the block's end lets the next one go on, also after an error.
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
        # also called when the object is collected: nobody need use it as a context manager
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
        """Hold the lock of the folder of an incomplete run, or find that the run is complete."""
        announce = functools.partial(_announce, self.path)
        while not (self.path / _RUN).is_file():
            try:
                self._partial.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise CheckpointError(error.errno, error.strerror, str(self._partial)) from error
            with contextlib.suppress(FileNotFoundError):  # there is none, or it ends now
                self._check_request(self._partial, request)  # before this waits for another one
            try:
                lock = lock_directory(self._partial, moved_to=self.path, on_wait=announce)
                self._lock.enter_context(lock)
            except FileNotFoundError:  # the run was completed, or its folder removed
                continue
            if not (self.path / _RUN).is_file():
                return
            # completed after the loop had looked, and before this made the folder anew
            if all(file.name == LOCK_FILE for file in self._partial.iterdir()):
                shutil.rmtree(self._partial, ignore_errors=True)
            self._lock.close()
        self.is_complete = True

    def missing(self) -> Iterator[tuple[int, int]]:
        """Yield the blocks [lo, hi) that are not written yet."""
        if self.is_complete:
            return
        done = _open_map(self._partial / f"{_DONE}.npy")
        for number in np.flatnonzero(done == 0).tolist():
            yield number * self.block, min(self._n, (number + 1) * self.block)

    def write(self, lo: int, **rows: Array) -> None:
        """Write the rows of the block that starts at lo, then its flag."""
        for name in self._names:
            _write_rows(self._partial / f"{name}.npy", lo, rows[name])
        _write_rows(self._partial / f"{_DONE}.npy", lo // self.block, np.ones(1, np.uint8))

    def finish(self) -> dict[str, Array]:
        """Give the directory its name; return its arrays, memory-mapped."""
        if not self.is_complete:
            if self.path.is_dir():  # empty, as check_replaceable has seen, but for a lock's file
                (self.path / LOCK_FILE).unlink(missing_ok=True)
                self.path.rmdir()
            self._partial.rename(self.path)
            sync_directory(self.path.parent)
            self.is_complete = True
        (self.path / f"{_DONE}.npy").unlink(missing_ok=True)
        self.close()
        return {name: _open_map(self.path / f"{name}.npy") for name in self._names}

    def _resume(self, folder: Path, request: Mapping[str, Any], arrays: Shapes) -> None:
        """Check that the directory is of the same request, and that its files are whole."""
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
        """Return what run.json of a folder holds, which must be of the same request."""
        text = (folder / _RUN).read_bytes()
        try:
            run = json.loads(text)
        except ValueError:
            run = None
        if not isinstance(run, dict) or not isinstance(run.get("request"), dict):
            raise FastcosFormatError(f"{folder / _RUN} is damaged")
        before = {"fastcos": run.get("fastcos"), **run["request"]}
        now = {} if self.is_complete else {"fastcos": version("fastcos")}
        for key, value in (now | json.loads(json.dumps(dict(request)))).items():
            if before.get(key) != value:
                raise OccupiedError(
                    "out must be a new directory or hold a run of the same request, got "
                    f"{str(folder)!r} of a run with another {key}; remove it to start anew"
                )
        return run

    def _create(self, request: Mapping[str, Any], arrays: Shapes) -> None:
        """Reserve all files, then write run.json; leave nothing where that fails."""
        try:
            for file in self._partial.iterdir():  # of a run that was killed before run.json
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
        """Return the arrays with the flags of blocks, which a complete run does not have."""
        flags = (-(-self._n // self.block),), np.uint8
        return arrays if self.is_complete else {**arrays, _DONE: flags}


def _announce(path: Path, holder: str) -> None:
    """Say for whom a call waits."""
    warnings.warn(f"{holder} writes out={str(path)!r}: this call waits for its end", stacklevel=2)


def _reserve(file: Path, shape: tuple[int, ...], dtype: npt.DTypeLike) -> None:
    """Make an .npy file of zeros whose space on the disk is reserved."""
    np.lib.format.open_memmap(file, "w+", dtype, shape)
    with file.open("r+b") as opened:
        if hasattr(os, "posix_fallocate"):
            try:
                os.posix_fallocate(opened.fileno(), 0, opened.seek(0, os.SEEK_END))
            except OSError as error:
                if error.errno not in _NO_RESERVATION:
                    raise
        os.fsync(opened.fileno())


def _write_rows(file: Path, lo: int, rows: Array) -> None:
    """Write rows from number lo on to an .npy file, and to the disk.

    Not through a map: a disk that has become full would end the process there.
    """
    try:
        with file.open("r+b") as opened:
            np.lib.format.read_magic(opened)
            _, _, dtype = np.lib.format.read_array_header_1_0(opened)
            block = np.ascontiguousarray(rows, dtype)
            opened.seek(lo * block[:1].nbytes, os.SEEK_CUR)
            opened.write(block.data.cast("B"))
            opened.flush()
            os.fsync(opened.fileno())
    except OSError as error:  # of write and fsync, which do not name the file
        raise OSError(error.errno, error.strerror, str(file)) from None


def _open_map(file: Path) -> Any:
    try:
        return np.lib.format.open_memmap(file, "r")
    except (ValueError, OSError, EOFError, SyntaxError, TypeError, TokenError) as error:
        what = str(error).partition("\n")[0]  # NumPy parses the header's text as Python
        raise FastcosFormatError(f"{file} is damaged or missing: {what}") from None
