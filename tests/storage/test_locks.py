"""Only one writer saves at a time.

Without locks, a warning appears, and no writer destroys data.
"""

import errno
import multiprocessing
import os
import subprocess
import sys
import threading
import time
import warnings

import numpy as np
import pytest

import fastcos
from fastcos import storage
from fastcos.parallel import memmap
from fastcos.storage import locks
from fastcos.storage.locks import LockedError, lock_directory

posix = pytest.mark.skipif(os.name != "posix", reason="locks of POSIX")
ROWS = np.random.default_rng(0).standard_normal((3_000, 16)).astype(np.float32)
# Other processes run this code, which holds the lock of a directory until standard input ends.
HOLD = (
    "import pathlib, sys; from fastcos.storage.locks import lock_directory\n"
    "with lock_directory(pathlib.Path(sys.argv[1])):\n"
    "    print('held', flush=True); sys.stdin.read()"
)


@pytest.fixture
def holder(tmp_path):
    """Start another process, which holds the lock of tmp_path."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout.readline() == b"held\n"
        yield process
        process.kill()


@posix
def test_another_process_is_named_and_waited_for(tmp_path, holder):
    with pytest.raises(LockedError), lock_directory(tmp_path, wait=False):
        pass
    named, entered = [], threading.Event()

    def enter():
        with lock_directory(tmp_path, on_wait=named.append) as is_locked:
            assert is_locked
            entered.set()

    thread = threading.Thread(target=enter)
    thread.start()
    assert not entered.wait(0.3)
    holder.stdin.close()
    thread.join(20)
    assert entered.is_set()
    assert len(named) == 1
    assert f"process {holder.pid} on " in named[0]
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@posix
def test_the_lock_of_a_killed_process_is_free(tmp_path, holder):
    holder.kill()
    holder.wait()
    assert [file.name for file in tmp_path.iterdir()] == [locks.LOCK_FILE]
    with lock_directory(tmp_path, wait=False) as is_locked:
        assert is_locked
    assert not list(tmp_path.iterdir())


@posix
def test_threads_of_one_process_exclude_each_other(tmp_path):
    inside, most = 0, 0

    def enter():
        nonlocal inside, most
        for _ in range(30):
            with lock_directory(tmp_path):
                inside += 1
                most = max(most, inside)
                time.sleep(0.0005)
                inside -= 1

    threads = [threading.Thread(target=enter) for _ in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert most == 1


@posix
def test_a_forked_child_neither_holds_nor_frees_the_lock(tmp_path):
    with lock_directory(tmp_path):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                with lock_directory(tmp_path, wait=False):
                    code = 2
            except LockedError:
                code = 0
            os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert (tmp_path / locks.LOCK_FILE).exists()


@posix
def test_a_thread_does_not_wait_for_itself(tmp_path):
    def ask_again(*_):
        fastcos.top_k(ROWS, k=3, out=tmp_path / "out")

    with pytest.raises(LockedError, match="this thread already holds the lock"):
        fastcos.top_k(ROWS, k=3, out=tmp_path / "out", progress=ask_again)


def refuse_locks(monkeypatch):
    import fcntl

    def lockf(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "lockf", lockf)
    monkeypatch.setattr(locks, "warned", set())


def lack_locks(monkeypatch):
    monkeypatch.setitem(sys.modules, "fcntl", None)  # as on Windows
    monkeypatch.setattr(locks, "warned", set())


@pytest.mark.slow
@posix
@pytest.mark.parametrize(
    "break_locks", [pytest.param(refuse_locks, marks=pytest.mark.slow), lack_locks]
)
def test_writers_without_locks_are_warned_once_and_destroy_nothing(
    tmp_path, monkeypatch, break_locks
):
    storage.save_arrays(tmp_path / "x", "Example", {"a": ROWS, "b": ROWS}, {})
    first = storage.load_arrays(tmp_path / "x", "Example").checksum
    break_locks(monkeypatch)
    with pytest.warns(
        UserWarning, match=r"cannot be locked \(.*\): make sure that no other process"
    ):
        second = storage.save_arrays(
            tmp_path / "x", "Example", {"a": ROWS[1:]}, {}, kept_arrays=["b"], expected=first
        )
    names = {file.name for file in (tmp_path / "x").iterdir()}
    # other processes may still need the old file
    assert len([name for name in names if name.startswith("a-")]) == 2
    monkeypatch.setattr(storage.directory, "replace_file", delayed_by_another(tmp_path, second))
    with pytest.raises(ValueError, match="changed by another writer"):
        storage.save_arrays(tmp_path / "x", "Example", {"a": ROWS[2:]}, {}, expected=second)
    monkeypatch.undo()
    stored = storage.load_arrays(tmp_path / "x", "Example", verify=True)
    assert len(stored.arrays["a"]) == len(ROWS) - 3
    storage.save_arrays(tmp_path / "x", "Example", {"a": ROWS}, {}, expected=stored.checksum)
    assert len(list((tmp_path / "x").glob("*.npy"))) == 1


def test_a_brief_lock_is_held_by_one_and_outlives_no_killed_one(tmp_path):
    file, order = tmp_path / locks.BRIEF_LOCK_FILE, []

    def enter():
        with locks.brief_lock(tmp_path):
            order.append("other")

    with locks.brief_lock(tmp_path):
        thread = threading.Thread(target=enter)
        thread.start()
        time.sleep(0.05)
        order.append("first")
    thread.join()
    assert order == ["first", "other"]
    file.touch()
    os.utime(file, (1, 1))  # of a killed process
    enter()
    assert not list(tmp_path.iterdir())


def delayed_by_another(tmp_path, expected):
    """Return a function that writes a file.

    Before the function writes for the first time, another process saves to the same directory.
    """
    replace_file, calls = storage.directory.replace_file, []
    code = (
        "import sys, numpy as np; from fastcos import storage\n"
        "storage.save_arrays(sys.argv[1], 'Example', {'a': np.ones((2997, 16))}, {},"
        " kept_arrays=['b'], expected=sys.argv[2])"
    )

    def replace(path, parts):
        if not calls:
            calls.append(path)
            subprocess.run([sys.executable, "-c", code, str(tmp_path / "x"), expected], check=True)
        replace_file(path, parts)

    return replace


def save_first(targets, number, barrier, results):
    for target in targets:
        barrier.wait()
        try:
            arrays = {"a": np.full(50_000, number)}
            storage.save_arrays(target, "Example", arrays, {"number": number})
            results.put("saved")
        except Exception as error:
            results.put(repr(error))


def importing_once():
    """Return a context whose processes are forks of a process that has imported this module."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    return context


@pytest.mark.slow
@posix
def test_processes_that_save_a_new_directory_at_once_all_succeed(tmp_path):
    context = importing_once()
    barrier, results = context.Barrier(3), context.Queue()
    targets = [tmp_path / f"new{trial}" for trial in range(6)]
    started = [
        context.Process(target=save_first, args=(targets, number, barrier, results))
        for number in range(3)
    ]
    [process.start() for process in started]
    assert [results.get(timeout=60) for _ in range(18)] == ["saved"] * 18
    [process.join() for process in started]
    for target in targets:
        stored = storage.load_arrays(target, "Example")
        assert (stored.arrays["a"] == stored.fields["number"]).all()


def search_to(out, delay, results):
    from fastcos.search import output_directory

    output_directory.rows_per_block = lambda work, minimum: 64  # A long run has many blocks.
    time.sleep(delay)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            result = fastcos.top_k(ROWS, k=3, out=out)
            results.put((int(result.indices.sum()), [str(one.message) for one in said]))
        except Exception as error:
            results.put((repr(error), []))


@pytest.mark.slow
@posix
def test_processes_with_the_same_out_all_get_the_result(tmp_path):
    """Two processes start at the same time, and a third one starts while they are writing."""
    expected = int(fastcos.top_k(ROWS, k=3).indices.sum())
    context = importing_once()
    results = context.Queue()
    started = [
        context.Process(target=search_to, args=(tmp_path / "out", delay, results))
        for delay in (0.0, 0.0, 0.2)
    ]
    [process.start() for process in started]
    result = [results.get(timeout=100) for _ in started]
    [process.join() for process in started]
    assert [total for total, _ in result] == [expected] * 3
    for text in (text for _, said in result for text in said):
        assert "This call waits until it has finished" in text
    assert [file.name for file in tmp_path.iterdir()] == ["out"]


@posix
def test_threads_with_the_same_out_all_get_the_result(tmp_path):
    expected, results = fastcos.top_k(ROWS, k=3), []

    def search():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            results.append(fastcos.top_k(ROWS, k=3, out=tmp_path / "out"))

    threads = [threading.Thread(target=search) for _ in range(3)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert len(results) == 3
    for one in results:
        np.testing.assert_array_equal(one.indices, expected.indices)


@posix
def test_another_request_is_refused_without_waiting(tmp_path):
    def ask_again(*_):
        with pytest.raises(
            ValueError, match=r"holds a run with another k\. To start again, remove"
        ):
            fastcos.top_k(ROWS, k=4, out=tmp_path / "out")
        raise KeyError

    with pytest.raises(KeyError):
        fastcos.top_k(ROWS, k=3, out=tmp_path / "out", progress=ask_again)
    assert fastcos.top_k(ROWS, k=3, out=tmp_path / "out").indices.shape == (3_000, 3)


def test_a_system_without_advice_on_memory_maps_is_no_error(tmp_path, monkeypatch):
    import mmap

    index = fastcos.SimilarityIndex().fit(ROWS)
    index.save(tmp_path / "index")
    np.save(tmp_path / "rows.npy", ROWS)
    for name in ("MADV_DONTNEED", "MADV_WILLNEED"):
        monkeypatch.delattr(mmap, name, raising=False)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    expected = fastcos.top_k(ROWS, k=3).indices
    np.testing.assert_array_equal(fastcos.top_k(mapped, k=3).indices, expected)
    opened = fastcos.SimilarityIndex.open(tmp_path / "index")
    np.testing.assert_array_equal(
        opened.search(ROWS[:5], 3).indices, index.search(ROWS[:5], 3).indices
    )
    memmap.release(mapped)


@pytest.mark.parametrize("error", [AttributeError, NameError, ImportError, TypeError])
def test_mistakes_of_the_code_are_not_reported_as_damage(tmp_path, error):
    with pytest.raises(error, match="our mistake"), storage.refuse_damage(tmp_path):
        raise error("our mistake")


@pytest.mark.parametrize("error", [ValueError, KeyError, IndexError, OverflowError])
def test_errors_about_values_are_reported_as_damage(tmp_path, error):
    with (
        pytest.raises(storage.FastcosFormatError, match=r"is damaged: .*what it held"),
        storage.refuse_damage(tmp_path),
    ):
        raise error("what it held")


def test_files_that_cannot_be_removed_do_not_fail_a_save(tmp_path, monkeypatch):
    """On Windows, a file that is memory-mapped cannot be removed."""
    from pathlib import Path

    index = fastcos.SimilarityIndex().fit(ROWS)
    index.save(tmp_path / "index")
    reader = fastcos.SimilarityIndex.open(tmp_path / "index")
    unlink = Path.unlink

    def refuse(self, missing_ok=False):
        if self.suffix == ".npy":
            raise PermissionError(errno.EACCES, "a section is mapped", str(self))
        unlink(self, missing_ok=missing_ok)

    index.upsert(2 * ROWS[::-1], ids=np.arange(len(ROWS)))
    monkeypatch.setattr(Path, "unlink", refuse)
    index.save(tmp_path / "index")
    index.add(ROWS[:1])
    index.save(tmp_path / "index")
    monkeypatch.undo()
    assert reader.refresh()
    assert fastcos.SimilarityIndex.open(tmp_path / "index", verify=True).n_items_ == 3_001
