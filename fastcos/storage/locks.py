"""Locks of directories, so that only one thread on one machine writes a directory at a time.

The lock of a directory is a POSIX record lock (``lockf``) on a file named ``.lock`` in the
directory. Network file systems pass record locks on to the server. The function ``flock`` is not
used, because on NFS, ``flock`` on a directory succeeds without excluding other machines. The holder
of a lock removes the lock file when it releases the lock. If the holder is killed, the operating
system releases the lock, but the lock file remains, and the next holder uses the same file.

A record lock belongs to a process, so it does not exclude other threads of the same process.
Moreover, if the process closes any descriptor of the lock file, it loses the record lock at once.
Therefore this process also keeps a lock in memory for each directory. At any time, at most one
thread of the process holds the lock in memory, and only this thread opens the lock file.

If a directory cannot be locked (on Windows, or on a file system without locks), a warning is
issued, once per reason. The writers of such a directory remove no file that another writer may
need.
If a directory cannot be locked, a writer holds a ``brief_lock`` while it checks and replaces the
header of the directory. A brief lock is a file that only one process at a time can create.
"""

import contextlib
import errno
import os
import socket
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

# The name of the file on which the lock of a directory is held.
LOCK_FILE = ".lock"
# The name of the file of a brief lock. If the file is older than _SECONDS_OF_BRIEF_LOCK, the
# process that created it must have been killed, and another process may remove the file.
BRIEF_LOCK_FILE = ".replacing"
_SECONDS_OF_BRIEF_LOCK = 30.0
# The error numbers with which lockf may fail if another process holds the lock. POSIX allows both.
_ERRORS_OF_HELD_LOCK = (errno.EACCES, errno.EAGAIN)


class LockedError(OSError):
    """Another process or thread holds the lock, or the calling thread itself already holds it."""


class _ThreadLock:
    """The lock of a directory within this process, and the id of the thread that owns the lock."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.owner: int | None = None


class _State:
    """One lock for each directory that this process has locked; keys are resolved paths."""

    def __init__(self) -> None:
        self.guard = threading.Lock()
        self.locks: weakref.WeakValueDictionary[str, _ThreadLock] = weakref.WeakValueDictionary()


_state = _State()
# Reasons why directories could not be locked. When the process warns about a reason, the reason is
# added to this set, so that the process does not warn about it again.
warned: set[str] = set()


def _after_fork_in_child() -> None:
    # If another thread of the parent held a lock in _state during the fork, no thread of the child
    # would ever release this lock, so the child gets a new _state. The record locks need no reset,
    # because a forked child does not inherit the record locks of its parent.
    global _state
    _state = _State()


if hasattr(os, "register_at_fork"):  # Windows lacks this function
    os.register_at_fork(after_in_child=_after_fork_in_child)


@contextlib.contextmanager
def lock_directory(
    directory: Path,
    *,
    wait: bool = True,
    moved_to: Path | None = None,
    on_wait: Callable[[str], None] | None = None,
) -> Iterator[bool]:
    """Hold the lock of a directory during the `with` block; yield whether it could be locked.

    `wait` says whether to wait if another process or thread holds the lock; with `wait=False`,
    LockedError is raised instead. `moved_to` is the path to which the `with` block may move the
    directory. Before this call waits, it calls `on_wait` once, with a text that names the holder of
    the lock. FileNotFoundError is raised if the directory does not exist.
    """
    state, name = _state, os.path.realpath(directory)
    with state.guard:
        among_threads = state.locks.setdefault(name, _ThreadLock())
    if not among_threads.lock.acquire(blocking=False):
        # Waiting would never end, because the thread would wait for itself.
        if among_threads.owner == threading.get_ident():
            raise LockedError(errno.EDEADLK, "this thread already holds the lock", str(directory))
        if not wait:
            reason = "another thread of this process holds the lock"
            raise LockedError(errno.EAGAIN, reason, str(directory))
        if on_wait is not None:
            on_wait("another thread of this process")
        among_threads.lock.acquire()
    among_threads.owner = threading.get_ident()
    try:
        descriptor, process = _lock_file(directory, wait, on_wait), os.getpid()
        try:
            yield descriptor is not None
        finally:
            # A child process that was forked within the with block holds no lock.
            if descriptor is not None and process == os.getpid():
                for folder in (directory, moved_to):
                    if folder is not None and _is_same(folder / LOCK_FILE, descriptor):
                        with contextlib.suppress(OSError):
                            (folder / LOCK_FILE).unlink()
            if descriptor is not None:
                os.close(descriptor)  # closing the descriptor releases the lock
    finally:
        among_threads.owner = None
        among_threads.lock.release()


@contextlib.contextmanager
def brief_lock(directory: Path) -> Iterator[None]:
    """For a few milliseconds, exclude other writers from a directory that cannot be locked.

    The lock is a file that this function creates and removes. A process that is killed within the
    ``with`` block leaves the file behind, so other processes ignore and remove a file that is older
    than 30 s. The ``with`` block must therefore take much less than 30 s.
    """
    path = directory / BRIEF_LOCK_FILE
    while True:
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            break
        except FileExistsError:
            with contextlib.suppress(OSError):  # the holder of the lock has just removed the file
                if time.time() - path.stat().st_mtime > _SECONDS_OF_BRIEF_LOCK:
                    path.unlink()
            time.sleep(0.01)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def _lock_file(directory: Path, wait: bool, on_wait: Callable[[str], None] | None) -> int | None:
    """Lock the lock file of a directory; return its descriptor, or None if locking fails."""
    path = directory / LOCK_FILE
    try:
        import fcntl
    except ImportError:  # Windows
        _warn(directory, "this system has no POSIX locks")
        return None
    while True:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o666)
        except (FileNotFoundError, NotADirectoryError):
            raise
        except OSError as error:
            _warn(directory, error.strerror)
            return None
        try:
            try:
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno not in _ERRORS_OF_HELD_LOCK:
                    raise
                if not wait:
                    reason = "another process holds the lock"
                    raise LockedError(error.errno, reason, str(path)) from None
                if on_wait is not None:
                    on_wait(_holder(descriptor))
                    on_wait = None
                fcntl.lockf(descriptor, fcntl.LOCK_EX)
        except LockedError:
            os.close(descriptor)
            raise
        except OSError as error:
            os.close(descriptor)
            _warn(directory, error.strerror)
            return None
        except BaseException:  # Ctrl-C during the wait
            os.close(descriptor)
            raise
        # While this process waited, the previous holder may have removed the file. A lock on a
        # removed file does not keep other processes out, so this process must open the file again.
        if _is_same(path, descriptor):
            # If the disk is full, the name of the holder cannot be written to the file, but the
            # lock is held nevertheless.
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, 0)
                holder = f"process {os.getpid()} on {socket.gethostname()}"
                os.pwrite(descriptor, holder.encode(), 0)
            return descriptor
        os.close(descriptor)


def _is_same(path: Path, descriptor: int) -> bool:
    """Return whether a path and an open descriptor lead to the same file."""
    try:
        path_status, file_status = path.stat(), os.fstat(descriptor)
    except OSError:
        return False
    return os.path.samestat(path_status, file_status)


def _holder(descriptor: int) -> str:
    """Return the name of the lock's holder, which the holder has written to the lock file.

    If the file contains no name, the result is "another process".
    """
    content = os.pread(descriptor, 200, 0).decode(errors="replace")
    return content if content.isprintable() and content else "another process"


def _warn(directory: Path, reason: object) -> None:
    """Warn that a directory cannot be locked, but only once for each reason."""
    if str(reason) not in warned:
        warned.add(str(reason))
        text = (
            f"{directory} cannot be locked ({reason}): make sure that no other process writes to "
            "it at the same time"
        )
        warnings.warn(text, stacklevel=2)
