"""Long verbs keep what they have finished, so that the same command goes on after a kill."""

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from fastcos.cli.terminal import say
from fastcos.storage import FastcosFormatError, OccupiedError, checkpoint

T = TypeVar("T")


@contextlib.contextmanager
def kept_beside(file: Path, products: int) -> Iterator[Path | None]:
    """A folder ``.NAME.partial`` beside a file that is made, for what is finished so far.

    It is removed when the block is done. After an error, an interrupt or a kill it stays, and the
    same command gets it again. None where so few products of entries are a block of a search or
    less, where nothing can be written, and where another process has the folder.
    """
    folder = file.with_name(f".{file.name}.partial")
    if products <= checkpoint.work_of_a_block():
        yield None
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = _locked(folder)
    except OSError as error:
        say(f"what is finished is not kept: {error}")
        yield None
        return
    try:
        if any(folder.iterdir()):
            say(f"going on with what is finished in {folder}")
        yield folder
        shutil.rmtree(folder, ignore_errors=True)
    except KeyboardInterrupt:
        if any(folder.iterdir()):
            say(f"{folder} keeps what is finished; the same command goes on from there")
        raise
    finally:
        os.close(lock)
        with contextlib.suppress(OSError):
            folder.rmdir()  # nothing was finished


def gone_on(kept: Path | None, work: Callable[[Path | None], T]) -> T:
    """Return work(kept): begun anew where what is kept is of no use, and not kept without room."""
    if kept is None:
        return work(None)
    try:
        try:
            return work(kept)
        except (OccupiedError, FastcosFormatError) as error:
            say(f"beginning anew: {error}")
            _empty(kept)
            return work(kept)
    except checkpoint.CannotBeginError as error:
        say(f"what is finished is not kept: {error}")
        _empty(kept)
    return work(None)


def _locked(folder: Path) -> int:
    """A descriptor of the folder that no other process has a lock on, as long as it is open."""
    if os.name != "posix":  # Windows opens no directories
        return os.open(os.devnull, os.O_RDONLY)
    import fcntl

    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise BlockingIOError(f"another process works in {folder}") from None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _empty(folder: Path) -> None:
    """Remove what a folder holds; the folder is locked and stays."""
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
