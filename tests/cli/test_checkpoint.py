"""Long verbs go on where they were stopped, and their files are those of a run that was not."""

import errno
import json
import subprocess
import sys

import numpy as np
import pytest

from fastcos.cli.checkpoint import kept_beside
from fastcos.cli.main import main
from fastcos.neighbors import search
from fastcos.storage import checkpoint

fcntl = pytest.importorskip("fcntl")


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with items, where the search of 1,024 items is a block, and so is worth keeping."""
    monkeypatch.setattr(checkpoint, "_WORK_OF_A_THREAD", 1)
    items = np.random.default_rng(1).standard_normal((2500, 6)).astype(np.float32)
    np.save(tmp_path / "items.npy", items)
    return tmp_path


def search_of(place, out="out"):
    (place / out).mkdir(exist_ok=True)
    found = place / out / "found.npz"
    return main(["neighbors", str(place / "items.npy"), "--k", "5", "--out", str(found)])


def files_in(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def assert_finished(folder, expected):
    """The files of a search that was not stopped, and nothing beside them."""
    assert files_in(folder) == expected
    assert len(list(folder.iterdir())) == len(expected)


@pytest.fixture
def expected(place, monkeypatch):
    """The files of a search that keeps nothing."""
    with monkeypatch.context() as during:
        during.setattr(checkpoint, "_WORK_OF_A_THREAD", 1 << 41)
        during.setattr(checkpoint, "_write_run", None)
        assert search_of(place, out="whole") == 0
    return files_in(place / "whole")


def interrupt_in(monkeypatch, owner, name, calls):
    """Let Ctrl-C come at one of the next calls of a function."""
    made, left = getattr(owner, name), [calls]

    def interrupted(*given, **named):
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return made(*given, **named)

    monkeypatch.setattr(owner, name, interrupted)


def test_an_interrupted_search_is_resumed(place, expected, monkeypatch, capsys):
    with monkeypatch.context() as during:
        interrupt_in(during, checkpoint.ResumableRun, "write", 2)
        assert search_of(place) == 130
    kept = place / "out" / ".found.npz.partial"
    assert f"{kept} keeps what is finished; the same command goes on from there" in (
        capsys.readouterr().err
    )
    with monkeypatch.context() as during:
        interrupt_in(during, search.dense, "search", 1)  # of three blocks, two are there
        assert search_of(place) == 0
    assert f"going on with what is finished in {kept}" in capsys.readouterr().err
    assert_finished(place / "out", expected)


def test_a_search_of_other_items_starts_anew(place, expected, monkeypatch, capsys):
    before = np.load(place / "items.npy")
    np.save(place / "items.npy", before[::-1])
    with monkeypatch.context() as during:
        interrupt_in(during, checkpoint.ResumableRun, "write", 2)
        assert search_of(place) == 130
    np.save(place / "items.npy", before)
    assert search_of(place) == 0
    error = capsys.readouterr().err
    assert "beginning anew: " in error
    assert "of a run with another queries" in error
    assert_finished(place / "out", expected)


@pytest.mark.parametrize("left", ["neighbors/indices.npy", ".neighbors.partial/done.npy", "x"])
def test_what_a_kill_left_of_a_folder_that_was_being_removed_is_of_no_harm(place, expected, left):
    path = place / "out" / ".found.npz.partial" / left
    path.parent.mkdir(parents=True)
    path.write_bytes(b"half")
    assert search_of(place) == 0
    assert_finished(place / "out", expected)


def test_without_room_or_right_an_audit_goes_on_and_keeps_nothing(
    place, expected, monkeypatch, capsys
):
    def full(*given):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as during:
        during.setattr(checkpoint, "_reserve", full)
        assert search_of(place) == 0
    assert "what is finished is not kept: [Errno 28] No space left on device: " in (
        capsys.readouterr().err
    )
    assert_finished(place / "out", expected)


def test_a_disk_that_fills_up_meanwhile_is_told_with_the_file(place, expected, monkeypatch, capsys):
    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    write = checkpoint.ResumableRun.write
    with monkeypatch.context() as during:

        def filling(run, lo, **rows):
            if lo:
                during.setattr(checkpoint.os, "fsync", full)
            write(run, lo, **rows)

        during.setattr(checkpoint.ResumableRun, "write", filling)
        assert search_of(place) == 2
    told = capsys.readouterr().err.strip().splitlines()[-1]
    assert told.startswith(f"fastcos neighbors: {place / 'out' / '.found.npz.partial'}")
    assert told.endswith("indices.npy: no space left on device")
    assert search_of(place) == 0
    assert_finished(place / "out", expected)


def test_a_folder_that_another_process_works_in_is_left_alone(place, expected, capsys):
    kept = place / "out" / ".found.npz.partial"
    kept.mkdir(parents=True)
    with kept_beside(place / "out" / "found.npz", 2500**2 * 6) as held:
        assert held == kept
        assert search_of(place) == 0
        assert f"what is finished is not kept: another process works in {kept}" in (
            capsys.readouterr().err
        )
        assert kept.is_dir()
    assert_finished(place / "out", expected)


def test_neighbors_go_on_too(place, monkeypatch):
    asked = ["neighbors", str(place / "items.npy"), "--k", "3", "--out"]
    for suffix in ("csv", "npz"):
        whole, out = place / f"whole.{suffix}", place / f"out.{suffix}"
        with monkeypatch.context() as during:
            during.setattr(checkpoint, "_WORK_OF_A_THREAD", 1 << 41)
            assert main([*asked, str(whole)]) == 0
        with monkeypatch.context() as during:
            interrupt_in(during, checkpoint.ResumableRun, "write", 2)
            assert main([*asked, str(out)]) == 130
        assert not out.exists()
        with monkeypatch.context() as during:
            interrupt_in(during, search.dense, "search", 1)  # of three blocks, two are there
            assert main([*asked, str(out)]) == 0
        assert out.read_bytes() == whole.read_bytes()
    assert sorted(path.suffix for path in place.iterdir()) == [".csv", ".csv", ".npy"] + 2 * [
        ".npz"
    ]


def test_little_work_is_not_kept(tmp_path):
    with kept_beside(tmp_path / "out" / "found.npz", 300_000**2) as kept:
        assert kept is None
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(sys.platform == "win32", reason="kill -9")
def test_searches_that_are_killed_end_with_the_same_files():
    command = [sys.executable, "-m", "tests.robustness.killed_writers", "4", "long-neighbors"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    killed, ended, _ = json.loads(done.stdout)["long-neighbors"]
    assert killed >= 4
    assert ended >= 1
