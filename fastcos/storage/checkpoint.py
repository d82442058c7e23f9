"""Results that are written part by part, so that a run that was cut off can go on.

A ResumableRun fills arrays block by block. While it lasts they lie beside the target, in
``.NAME.partial``: one .npy file an array, ``run.json`` with what was asked, and ``done.npy`` with a
flag for every block. A flag is set only once the block's rows have reached the disk. When all are
set, the directory takes its name in one step. The same run started again goes on from the flags,
and returns at once if it is complete. ResumableParts keep small values by name, in the ``run.json``
of a directory that may hold such runs too.
"""

import contextlib
import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from tokenize import TokenError
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from fastcos import config, parallel, validation
from fastcos.storage import (
    FastcosFormatError,
    OccupiedError,
    PathLike,
    check_replaceable,
    sync_directory,
)

_RUN, _DONE = "run.json", "done.npy"
# products of entries that a thread has of a block: 17 s, which is what a kill costs
_WORK_OF_A_THREAD = 1 << 41
# of a file system that reserves no space: writing tells later whether there is any
_NO_RESERVATION = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)
Array = npt.NDArray[Any]
Shapes = Mapping[str, tuple[tuple[int, ...], npt.DTypeLike]]


def work_of_a_block() -> int:
    """Products of entries in the search of a block, for as many threads as are set."""
    return _WORK_OF_A_THREAD * config.num_threads()


def rows_of_a_block(work_of_a_row: int, least: int) -> int:
    """Rows that are searched between two writings, but not fewer than least."""
    return max(least, work_of_a_block() // work_of_a_row)


class CannotBeginError(OSError):
    """There is no place, no right or no room to write to; nothing was done."""


class Results(Protocol):
    """Arrays of n rows that are filled block by block."""

    is_complete: bool

    def left(self) -> Iterator[tuple[int, int]]:
        """Blocks [lo, hi) that are not filled."""
        ...

    def write(self, lo: int, **rows: Array) -> None:
        """Fill the block that starts at lo."""
        ...

    def finished(self) -> dict[str, Array]:
        """The arrays, once all blocks are filled."""
        ...


class ResultsInMemory:
    """Arrays of n rows in memory: what Results are where nothing is to be kept."""

    is_complete = False

    def __init__(self, arrays: Shapes, block: int) -> None:
        self._arrays = {name: parallel.unfilled(*of) for name, of in arrays.items()}
        self._block = block

    def left(self) -> Iterator[tuple[int, int]]:
        """All blocks [lo, hi)."""
        n = len(next(iter(self._arrays.values())))
        for lo in range(0, n, self._block):
            yield lo, min(n, lo + self._block)

    def write(self, lo: int, **rows: Array) -> None:
        """Fill the block that starts at lo."""
        for name, some in rows.items():
            self._arrays[name][lo : lo + len(some)] = some

    def finished(self) -> dict[str, Array]:
        """The arrays."""
        return self._arrays


class ResumableRun:
    """Arrays of n rows that are written to a directory in blocks, each block once.

    Parameters
    ----------
    path : path-like
        What is made: a directory of one .npy file per array and run.json.
    asked : mapping of str to JSON values
        All that the result depends on. A run of the same path that asked for something else is
        refused; one that is not complete and was begun by another version of fastcos, too.
    arrays : mapping of str to (shape, dtype)
        Arrays to be written; the first dimension is cut into blocks.
    block : int
        Rows of a block. A run that goes on keeps the blocks it began with.

    Attributes
    ----------
    path : pathlib.Path
    block : int
        Rows of a block, in force.
    is_complete : bool

    Raises
    ------
    CannotBeginError
        A disk that is full or cannot be written: the space of all arrays is taken up front.
    """

    def __init__(
        self, path: PathLike, asked: Mapping[str, Any], arrays: Shapes, block: int
    ) -> None:
        self.path = validation.as_path("out", path).absolute()
        self._partial = self.path.with_name(f".{self.path.name}.partial")
        check_replaceable("out", self.path, _RUN)
        self._names = tuple(arrays)
        self.is_complete = (self.path / _RUN).is_file()
        folder = self.path if self.is_complete else self._partial
        if (folder / _RUN).is_file():
            run = _known_run(folder, asked, of_any_version=self.is_complete)
            self._n, self.block = _size_of(run, folder, arrays)
            self._check(folder, arrays)
        else:
            self._n, self.block = next(iter(arrays.values()))[0][0], block
            if self._partial.exists():
                shutil.rmtree(self._partial)  # killed before run.json was there: nothing was done
            with _beginning(self._partial):
                self._begin(asked, arrays)

    def left(self) -> Iterator[tuple[int, int]]:
        """Blocks [lo, hi) that no earlier run has finished."""
        if self.is_complete:
            return
        done = _opened(self._partial / _DONE, "r")
        for number in np.flatnonzero(done == 0).tolist():
            yield number * self.block, min(self._n, (number + 1) * self.block)

    def write(self, lo: int, **rows: Array) -> None:
        """Keep the rows of the block that starts at lo, and then say so."""
        for name in self._names:
            _write_rows(self._partial / f"{name}.npy", lo, rows[name])
        _write_rows(self._partial / _DONE, lo // self.block, np.ones(1, np.uint8))

    def finished(self) -> dict[str, Array]:
        """Give the directory its name, if it has not got it; return its arrays, memory-mapped."""
        if not self.is_complete:
            if self.path.is_dir():
                self.path.rmdir()  # check_replaceable has seen that it is empty
            self._partial.rename(self.path)
            sync_directory(self.path.parent)
            self.is_complete = True
        (self.path / _DONE).unlink(missing_ok=True)
        return {name: _opened(self.path / f"{name}.npy", "r") for name in self._names}

    def _check(self, folder: Path, arrays: Shapes) -> None:
        """See that every file holds the array it should: rows are written after its header."""
        kept = dict(arrays)
        if not self.is_complete:
            kept[_DONE.removesuffix(".npy")] = (self._n_blocks(),), np.uint8
        for name, (shape, dtype) in kept.items():
            array = _opened(folder / f"{name}.npy", "r")
            if array.shape != shape or array.dtype != dtype or not array.flags.c_contiguous:
                raise FastcosFormatError(
                    f"{folder / name}.npy is damaged: it must be {np.dtype(dtype)} {shape}, got "
                    f"{array.dtype} {array.shape}"
                )

    def _n_blocks(self) -> int:
        return -(-self._n // self.block)

    def _begin(self, asked: Mapping[str, Any], arrays: Shapes) -> None:
        self._partial.mkdir(parents=True)
        for name, (shape, dtype) in arrays.items():
            _reserve(self._partial / f"{name}.npy", shape, dtype)
        _reserve(self._partial / _DONE, (self._n_blocks(),), np.uint8)
        _write_run(self._partial, asked, rows=self._n, block=self.block)


class ResumableParts:
    """Small values by name in the run.json of a directory, each kept once it is made.

    Parameters
    ----------
    path : path-like or None
        The directory, a new one or one that was begun so; None: nothing is kept.
    asked : mapping of str to JSON values
        All that the values depend on. A directory of another version of fastcos, or whose run asked
        for something else, is refused.

    Raises
    ------
    CannotBeginError
        A disk that is full or cannot be written.
    """

    def __init__(self, path: PathLike | None, asked: Mapping[str, Any]) -> None:
        self._path = None if path is None else validation.as_path("out", path).absolute()
        self._asked = asked
        self._made: dict[str, Any] = {}
        if self._path is None:
            return
        with _beginning(self._path):
            (self._path / f".{_RUN}").unlink(missing_ok=True)  # of one killed as it began
        check_replaceable("out", self._path, _RUN)
        if (self._path / _RUN).is_file():
            self._made = dict(_known_run(self._path, asked)["parts"])
        else:
            with _beginning(self._path):
                self._path.mkdir(parents=True, exist_ok=True)
                _write_run(self._path, asked, parts={})

    def folder(self, name: str) -> Path | None:
        """Where a part lies that is a run of its own; None where nothing is kept."""
        return None if self._path is None else self._path / name

    def part(self, name: str, make: Callable[[], Any]) -> Any:
        """Return what was kept by this name, or else what make returns: JSON values."""
        if name not in self._made:
            self._made[name] = make()
            if self._path is not None:
                _write_run(self._path, self._asked, parts=self._made)
        return self._made[name]


@contextlib.contextmanager
def _beginning(folder: Path) -> Iterator[None]:
    """Leave nothing new where a run cannot begin, and tell why."""
    is_new = not folder.exists()
    try:
        yield
    except OSError as error:
        if is_new:
            shutil.rmtree(folder, ignore_errors=True)
        raise CannotBeginError(error.errno, error.strerror, str(folder)) from error


def _write_run(folder: Path, asked: Mapping[str, Any], **facts: Any) -> None:
    """Replace run.json in one step."""
    facts = {"fastcos": version("fastcos"), "asked": dict(asked), **facts}
    temporary = folder / f".{_RUN}"
    with _named(temporary), temporary.open("w", encoding="utf8") as file:
        file.write(json.dumps(facts, indent=1) + "\n")
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(folder / _RUN)
    sync_directory(folder)


def _known_run(
    folder: Path, asked: Mapping[str, Any], *, of_any_version: bool = False
) -> dict[str, Any]:
    """What run.json holds, of a run that asked for the same."""
    try:
        run = json.loads((folder / _RUN).read_text(encoding="utf8"))
        before = {"fastcos": run.get("fastcos"), **run["asked"]}
        missing = not ("parts" in run or {"rows", "block"} <= run.keys())
    except (ValueError, LookupError, TypeError, AttributeError):
        missing = True
    if missing:
        raise FastcosFormatError(f"{folder / _RUN} is damaged")
    now = {} if of_any_version else {"fastcos": version("fastcos")}
    for key, value in (now | json.loads(json.dumps(dict(asked)))).items():
        if before.get(key) != value:
            raise OccupiedError(
                f"out must be a new directory or hold a run that asked for the same, got "
                f"{str(folder)!r} of a run with another {key}; remove it to start anew"
            )
    return dict(run)


def _size_of(run: Mapping[str, Any], folder: Path, arrays: Shapes) -> tuple[int, int]:
    """Rows, and rows of a block, of a kept run."""
    n = next(iter(arrays.values()))[0][0]
    rows, block = run["rows"], run["block"]
    if type(rows) is not int or type(block) is not int or rows != n or block < 1:
        raise FastcosFormatError(
            f"{folder / _RUN} is damaged: {rows!r} rows in blocks of {block!r}"
        )
    return rows, block


def _reserve(file: Path, shape: tuple[int, ...], dtype: npt.DTypeLike) -> None:
    """Make an .npy file of zeros whose space on the disk is taken."""
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

    Through no map: a disk that has become full would end the process there.
    """
    with _named(file), file.open("r+b") as opened:
        np.lib.format.read_magic(opened)
        _, _, dtype = np.lib.format.read_array_header_1_0(opened)
        kept = np.ascontiguousarray(rows, dtype)
        opened.seek(lo * kept[:1].nbytes, os.SEEK_CUR)
        opened.write(kept.data.cast("B"))
        opened.flush()
        os.fsync(opened.fileno())


@contextlib.contextmanager
def _named(file: Path) -> Iterator[None]:
    """Let errors of the system tell the file."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(file)) from None


def _opened(file: Path, mode: Literal["r", "r+"]) -> Any:
    try:
        return np.lib.format.open_memmap(file, mode)
    except (ValueError, OSError, EOFError, SyntaxError, TypeError, TokenError) as error:
        what = str(error).partition("\n")[0]  # the last three are of a header's text
        raise FastcosFormatError(f"{file} is damaged or missing: {what}") from None
