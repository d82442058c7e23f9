"""Locks of directories: one writer at a time, among the threads and processes of all machines.

The lock of a directory is held on a regular file in it, ``.lock``, by POSIX record locks
(``lockf``), which network file systems pass on to the server. ``flock`` on the directory itself,
by contrast, succeeds on NFS without excluding other machines. The holder removes the file when it
ends, so that a directory at rest holds nothing but its content; a killed holder leaves the file,
but not the lock, and the next holder takes the file over.

Record locks belong to a process: they do not exclude its threads, and a process loses them as soon
as it closes any descriptor of the file. Therefore each directory also has a lock of this process,
and only its holder opens the file.

Where no lock can be had (Windows, a file system without locks), a warning says so once. Writers
then remove nothing that another writer may need, and check and replace what they change while they
hold a file that only one of them can create (``brief_lock``).
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

# name of the file on which the lock of its directory is held
LOCK_FILE = ".lock"
# name of the file of a brief lock, and the seconds after which its maker must have been killed
BRIEF_LOCK_FILE = ".replacing"
_SECONDS_OF_BRIEF_LOCK = 30.0
# what lockf raises where another process holds the lock: either, by POSIX
_HELD = (errno.EACCES, errno.EAGAIN)


class LockedError(OSError):
    """Another process or thread holds the lock, or this thread does already."""


class _ThreadLock:
    """The lock of a directory among the threads of one process, and the thread that holds it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.owner: int | None = None


class _State:
    """The locks of one process, by directory."""

    def __init__(self) -> None:
        self.guard = threading.Lock()
        self.locks: weakref.WeakValueDictionary[str, _ThreadLock] = weakref.WeakValueDictionary()


_state = _State()
# reasons for which this process had no lock, each of which is said once
warned: set[str] = set()


def _after_fork_in_child() -> None:
    # threads of the parent may have held its locks; record locks are not inherited
    global _state
    _state = _State()


if hasattr(os, "register_at_fork"):  # Windows has none
    os.register_at_fork(after_in_child=_after_fork_in_child)


@contextlib.contextmanager
def lock_directory(
    directory: Path,
    *,
    wait: bool = True,
    moved_to: Path | None = None,
    on_wait: Callable[[str], None] | None = None,
) -> Iterator[bool]:
    """Hold the lock of a directory; yield whether there is one.

    wait: whether to wait for another holder instead of raising LockedError. moved_to: where the
    directory may be when the block ends. on_wait(holder) is called once before this waits for
    another process or thread, with words that name it. FileNotFoundError where the directory does
    not exist.
    """
    state, name = _state, os.path.realpath(directory)
    with state.guard:
        among_threads = state.locks.setdefault(name, _ThreadLock())
    if not among_threads.lock.acquire(blocking=False):
        if among_threads.owner == threading.get_ident():  # it would wait for itself
            raise LockedError(errno.EDEADLK, "this thread is writing", str(directory))
        if not wait:
            raise LockedError(errno.EAGAIN, "another thread of this process writes", str(directory))
        if on_wait is not None:
            on_wait("another thread of this process")
        among_threads.lock.acquire()
    among_threads.owner = threading.get_ident()
    try:
        descriptor, process = _lock_file(directory, wait, on_wait), os.getpid()
        try:
            yield descriptor is not None
        finally:
            # a process that was forked within the block holds no lock
            if descriptor is not None and process == os.getpid():
                for place in (directory, moved_to):
                    if place is not None and _is_same(place / LOCK_FILE, descriptor):
                        with contextlib.suppress(OSError):
                            (place / LOCK_FILE).unlink()
            if descriptor is not None:
                os.close(descriptor)  # and with it the lock
    finally:
        among_threads.owner = None
        among_threads.lock.release()


@contextlib.contextmanager
def brief_lock(directory: Path) -> Iterator[None]:
    """Hold a directory for some milliseconds, also where it has no lock.

    The file that this creates is left by a process that is killed within the block. Therefore it
    counts for a short time only, and this is no substitute for lock_directory.
    """
    path = directory / BRIEF_LOCK_FILE
    while True:
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            break
        except FileExistsError:
            with contextlib.suppress(OSError):  # it ends now
                if time.time() - path.stat().st_mtime > _SECONDS_OF_BRIEF_LOCK:
                    path.unlink()
            time.sleep(0.01)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def _lock_file(directory: Path, wait: bool, on_wait: Callable[[str], None] | None) -> int | None:
    """Return a descriptor of the locked file of a directory, None where no lock can be had."""
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
                if error.errno not in _HELD:
                    raise
                if not wait:
                    raise LockedError(error.errno, "another process writes", str(path)) from None
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
        except BaseException:  # Ctrl-C while waiting
            os.close(descriptor)
            raise
        # the holder before removes the file at its end: the lock of a removed file excludes nobody
        if _is_same(path, descriptor):
            with contextlib.suppress(OSError):  # a full disk: others then wait for a nameless one
                os.ftruncate(descriptor, 0)
                who = f"process {os.getpid()} on {socket.gethostname()}"
                os.pwrite(descriptor, who.encode(), 0)
            return descriptor
        os.close(descriptor)


def _is_same(path: Path, descriptor: int) -> bool:
    """Whether a path names the file of a descriptor."""
    try:
        named, opened = path.stat(), os.fstat(descriptor)
    except OSError:
        return False
    return os.path.samestat(named, opened)


def _holder(descriptor: int) -> str:
    """Return words that name the holder of a lock, from its file."""
    content = os.pread(descriptor, 200, 0).decode(errors="replace")
    return content if content.isprintable() and content else "another process"


def _warn(directory: Path, why: object) -> None:
    """Warn once that writers are not kept apart."""
    if str(why) not in warned:
        warned.add(str(why))
        text = f"{directory} cannot be locked ({why}): let no other process write there meanwhile"
        warnings.warn(text, stacklevel=2)
