"""Results that are written block by block, so that a run that was cut off can go on.

While a run lasts, its arrays lie beside the target, in ``.NAME.partial``: one .npy file an array,
``run.json`` with what was asked, and ``done.npy`` with a flag for every block. A flag is set only
once the block's rows have reached the disk. When all are set, the directory takes its name in one
step. The same run started again goes on from the flags, and returns at once if it is complete.
"""

import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fastcos import validate
from fastcos.storage import FastcosFormatError, PathLike

_RUN, _DONE = "run.json", "done.npy"
Array = npt.NDArray[Any]


class ResumableRun:
    """Arrays of n rows that are written to a directory in blocks, each block once.

    Parameters
    ----------
    path : path-like
        What is made: a directory of one .npy file per array and run.json.
    asked : mapping of str to JSON values
        All that the result depends on. A run of the same path that asked for something else is
        refused.
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
    """

    def __init__(
        self,
        path: PathLike,
        asked: Mapping[str, Any],
        arrays: Mapping[str, tuple[tuple[int, ...], npt.DTypeLike]],
        block: int,
    ) -> None:
        self.path = validate.as_path("out", path).absolute()
        self._partial = self.path.with_name(f".{self.path.name}.partial")
        validate.as_replaceable("out", self.path, _RUN)
        self._names = tuple(arrays)
        asked = json.loads(json.dumps(dict(asked)))
        self.is_complete = (self.path / _RUN).is_file()
        folder = self.path if self.is_complete else self._partial
        if (folder / _RUN).is_file():
            self._n, self.block = _known_run(folder, asked)
        else:
            self._n, self.block = next(iter(arrays.values()))[0][0], block
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
            whole = _opened(self._partial / f"{name}.npy", "r+")
            whole[lo : lo + len(rows[name])] = rows[name]
            whole.flush()
        done = _opened(self._partial / _DONE, "r+")
        done[lo // self.block] = 1
        done.flush()

    def finished(self) -> dict[str, Array]:
        """Give the directory its name, if it has not got it; return its arrays, memory-mapped."""
        if not self.is_complete:
            if self.path.is_dir():
                self.path.rmdir()  # as_replaceable has seen that it is empty
            self._partial.rename(self.path)
            self.is_complete = True
        (self.path / _DONE).unlink(missing_ok=True)
        return {name: _opened(self.path / f"{name}.npy", "r") for name in self._names}

    def _begin(
        self,
        asked: Mapping[str, Any],
        arrays: Mapping[str, tuple[tuple[int, ...], npt.DTypeLike]],
    ) -> None:
        if self._partial.exists():
            shutil.rmtree(self._partial)  # killed before run.json was there: nothing was done
        self._partial.mkdir(parents=True)
        for name, (shape, dtype) in arrays.items():
            np.lib.format.open_memmap(self._partial / f"{name}.npy", "w+", dtype, shape).flush()
        flags = np.lib.format.open_memmap(
            self._partial / _DONE, "w+", np.uint8, (-(-self._n // self.block),)
        )
        flags.flush()
        text = json.dumps({"asked": asked, "rows": self._n, "block": self.block}, indent=1)
        temporary = self._partial / f".{_RUN}"
        temporary.write_text(text + "\n", encoding="utf8")
        temporary.replace(self._partial / _RUN)


def _known_run(folder: Path, asked: Mapping[str, Any]) -> tuple[int, int]:
    """Rows and rows of a block of a run that asked for the same."""
    try:
        run = json.loads((folder / _RUN).read_text(encoding="utf8"))
        before, rows, block = dict(run["asked"]), int(run["rows"]), int(run["block"])
    except (ValueError, LookupError, TypeError):
        raise FastcosFormatError(f"{folder / _RUN} is damaged") from None
    validate.as_same_run("out", folder, before, asked)
    return rows, block


def _opened(file: Path, mode: Literal["r", "r+"]) -> Any:
    try:
        return np.lib.format.open_memmap(file, mode)
    except (ValueError, OSError, EOFError) as error:
        raise FastcosFormatError(f"{file} is damaged or missing: {error}") from None
