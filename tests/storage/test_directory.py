import itertools
import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from fastcos import storage
from fastcos.storage import FastcosFormatError, directory, load_arrays, save_arrays

ARRAYS = {
    "rows": np.arange(12.0).reshape(3, 4),
    "half": np.arange(5, dtype=np.float32),
    "counts": np.array([[1], [2]], dtype=np.int64),
    "names": np.array(["a", "bcd", "Ωß"]),
    "flags": np.array([True, False]),
    "number": np.array(2.5),
    "nothing": np.zeros((0, 3)),
}
FIELDS = {"λ": 1e4 / 3, "name": "weights", "list": [1, None, True], "nested": {"k": 50}}


@pytest.fixture
def saved(tmp_path):
    save_arrays(tmp_path / "model", "Example", ARRAYS, FIELDS)
    return tmp_path / "model"


def assert_same_arrays(arrays, expected):
    assert list(arrays) == list(expected)
    for name, array in expected.items():
        np.testing.assert_array_equal(arrays[name], array, strict=True)


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="locks of POSIX")
def test_of_two_writers_at_once_one_wins(tmp_path):
    arrays = [{"a": np.full(50, who), "b": np.full(50, -who)} for who in (1.0, 2.0)]
    save_arrays(tmp_path / "model", "Example", arrays[0], {})
    with ThreadPoolExecutor(2) as pool:
        for _ in range(30):
            saves = [pool.submit(save_arrays, tmp_path / "model", "Example", a, {}) for a in arrays]
            for save in saves:
                save.result()
            stored = load_arrays(tmp_path / "model", "Example").arrays
            np.testing.assert_array_equal(stored["a"], -stored["b"])


def test_load_arrays_returns_what_was_saved(saved):
    stored = load_arrays(saved, "Example")
    assert_same_arrays(stored.arrays, ARRAYS)
    assert stored.fields == FIELDS


def test_load_arrays_returns_read_only_maps(saved):
    array = load_arrays(saved, "Example").arrays["rows"]
    assert type(array) is np.ndarray
    assert not array.flags.writeable
    base = array
    while base is not None and not isinstance(base, np.memmap):
        base = base.base
    assert isinstance(base, np.memmap)


def test_save_arrays_saves_any_memory_layout(tmp_path):
    rows = np.arange(24.0).reshape(4, 6)
    layouts = {"fortran": np.asfortranarray(rows), "strided": rows[::2, ::-1], "swapped": rows.T}
    save_arrays(tmp_path / "m", "Example", layouts, {})
    assert_same_arrays(load_arrays(tmp_path / "m", "Example").arrays, layouts)


def test_header_describes_the_files(saved):
    header = json.loads((saved / "header.json").read_text("utf8"))
    assert header["format_version"] == 1
    assert header["kind"] == "Example"
    assert set(header["versions"]) == {"fastcos", "numpy", "python"}
    entry = header["arrays"]["rows"]
    assert (entry["shape"], entry["dtype"]) == ([3, 4], "<f8")
    assert np.load(saved / entry["file"], allow_pickle=False).tolist() == ARRAYS["rows"].tolist()


def test_save_arrays_keeps_other_files_and_open_maps(saved):
    (saved / "README.txt").write_text("mine")
    before = load_arrays(saved, "Example").arrays["rows"]
    save_arrays(saved, "Example", {"rows": np.ones((3, 4))}, {})
    np.testing.assert_array_equal(before, ARRAYS["rows"])
    assert_same_arrays(load_arrays(saved, "Example").arrays, {"rows": np.ones((3, 4))})
    assert (saved / "README.txt").read_text() == "mine"
    assert len(list(saved.glob("*.npy"))) == 1
    assert [path.name for path in saved.parent.iterdir()] == ["model"]


@pytest.mark.slow
def test_every_flipped_byte_is_found_or_harmless(saved):
    rng = np.random.default_rng(0)
    for file in sorted(saved.iterdir()):
        content = file.read_bytes()
        for at in rng.choice(len(content), min(len(content), 60), replace=False):
            broken = bytearray(content)
            broken[at] ^= 1 << int(rng.integers(8))
            file.write_bytes(broken)
            try:
                stored = load_arrays(saved, "Example")
            except FastcosFormatError:
                continue
            assert_same_arrays(stored.arrays, ARRAYS)
            assert stored.fields == FIELDS
        file.write_bytes(content)
    load_arrays(saved, "Example")


def test_every_truncation_is_found(saved):
    for file in sorted(saved.iterdir()):
        content = file.read_bytes()
        for length in np.unique(np.linspace(0, len(content) - 2, 20).astype(int)):
            file.write_bytes(content[:length])
            with pytest.raises(FastcosFormatError, match="damaged"):
                load_arrays(saved, "Example")
        file.unlink()
        with pytest.raises(FastcosFormatError, match=r"is missing|contains no header"):
            load_arrays(saved, "Example")
        file.write_bytes(content)


@pytest.mark.parametrize("text", ["", "[]", "null", "3", '{"sha256": 1}', "[" * 10**5, "\x00"])
def test_load_arrays_refuses_other_headers(saved, text):
    (saved / "header.json").write_text(text)
    with pytest.raises(FastcosFormatError, match="damaged: not a header of fastcos"):
        load_arrays(saved, "Example")


def test_load_arrays_names_kind_version_and_missing_path(saved, tmp_path, monkeypatch):
    with pytest.raises(FastcosFormatError, match="must be a saved LinearMF, got a saved Example"):
        load_arrays(saved, "LinearMF")
    with pytest.raises(FileNotFoundError, match="got a directory that does not exist"):
        load_arrays(tmp_path / "absent", "Example")
    (tmp_path / "empty").mkdir()
    with pytest.raises(
        FastcosFormatError, match=r"must be a saved Example, got .* contains no header"
    ):
        load_arrays(tmp_path / "empty", "Example")
    monkeypatch.setattr(directory, "FORMAT_VERSION", 2)
    with pytest.raises(FastcosFormatError, match="must be of format version 2, got 1"):
        load_arrays(saved, "Example")


def test_save_arrays_refuses_a_directory_of_something_else(tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    for name in ("thesis", "file"):
        with pytest.raises(
            ValueError,
            match="path must be a new or an empty directory, or a directory that contains header",
        ):
            save_arrays(tmp_path / name, "Example", ARRAYS, FIELDS)
    assert (tmp_path / "thesis" / "chapter.txt").read_text() == "mine"
    assert (tmp_path / "file").read_text() == "mine"


def test_save_arrays_refuses_objects_and_nan_fields(tmp_path):
    with pytest.raises((TypeError, ValueError)):
        save_arrays(tmp_path / "m", "Example", {"a": np.array([{}, 1], dtype=object)}, {})
    with pytest.raises(ValueError, match="JSON"):
        save_arrays(tmp_path / "m", "Example", {}, {"value": float("nan")})
    assert not list(tmp_path.iterdir())


def test_a_writer_killed_at_any_step_leaves_old_or_new(saved, monkeypatch):
    """A writer that is killed at any of its system calls leaves the old or the new arrays."""
    new = {**ARRAYS, "rows": np.ones((2, 2))}
    original = {"fsync": os.fsync, "replace": Path.replace, "unlink": Path.unlink}

    class Killed(BaseException):
        pass

    for last_step in itertools.count():
        steps = itertools.count()

        def counted(name, steps=steps, last_step=last_step):
            def call(*args, **options):
                if next(steps) >= last_step:
                    raise Killed
                return original[name](*args, **options)

            return call

        copy = saved.with_name(f"copy{last_step}")
        shutil.copytree(saved, copy)
        monkeypatch.setattr(os, "fsync", counted("fsync"))
        monkeypatch.setattr(Path, "replace", counted("replace"))
        monkeypatch.setattr(Path, "unlink", counted("unlink"))
        try:
            save_arrays(copy, "Example", new, {"version": 2})
            finished = True
        except Killed:
            finished = False
        monkeypatch.undo()
        stored = load_arrays(copy, "Example")
        if stored.fields == FIELDS:
            assert_same_arrays(stored.arrays, ARRAYS)
        else:
            assert stored.fields == {"version": 2}
            assert_same_arrays(stored.arrays, new)
        if finished:
            assert stored.fields == {"version": 2}
            break
        save_arrays(copy, "Example", new, {"version": 3})  # the next save removes the remains
        files = {entry["file"] for entry in _header(copy)["arrays"].values()} | {"header.json"}
        assert {path.name for path in copy.iterdir()} == files
    assert last_step > 10


def _header(directory):
    return json.loads((directory / "header.json").read_text("utf8"))


def test_a_new_directory_appears_in_one_step(tmp_path, monkeypatch):
    def full_disk(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="No space left"):
        save_arrays(tmp_path / "deep" / "model", "Example", ARRAYS, FIELDS)
    assert not list((tmp_path / "deep").iterdir())


def test_a_reader_overtaken_by_a_writer_reads_the_new(saved, monkeypatch):
    memmap = np.memmap
    calls = itertools.count()

    def overtaken(*arguments):
        mapped = memmap(*arguments)
        if next(calls) == 0:  # this save removes the files of the previous version
            save_arrays(saved, "Example", {"rows": np.ones(3)}, {"version": 2})
        return mapped

    monkeypatch.setattr(np, "memmap", overtaken)
    stored = load_arrays(saved, "Example")
    assert stored.fields == {"version": 2}
    assert_same_arrays(stored.arrays, {"rows": np.ones(3)})


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.parametrize("kind", ["model", "index", "json", "audit"])
def test_200_killed_writers_leave_old_or_new(kind):
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.robustness.killed_writers", "200", kind],
        capture_output=True,
        text=True,
        timeout=500,
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    old, new, _ = json.loads(done.stdout)[kind]
    assert old + new == 200
    assert min(old, new) > 0


def test_check_replaceable_accepts_empty_or_marked(tmp_path):
    storage.check_replaceable("out", tmp_path / "new", "header.json")
    storage.check_replaceable("out", tmp_path, "header.json")
    (tmp_path / "precious").touch()
    for path in (tmp_path, tmp_path / "precious"):
        with pytest.raises(
            ValueError,
            match=r"^out must be a new .* or a directory that contains header.json, got",
        ):
            storage.check_replaceable("out", path, "header.json")
    (tmp_path / "header.json").touch()
    storage.check_replaceable("out", tmp_path, "header.json")


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="locks of POSIX")
def test_writers_remove_what_killed_ones_left(tmp_path):
    code = (
        "import os, pathlib; from fastcos import storage\n"
        f"with storage.temporary_directory(pathlib.Path({str(tmp_path / 'new')!r})) as made:\n"
        "    (made / 'shard').write_text('half'); os.kill(os.getpid(), 9)"
    )
    for _ in range(2):
        subprocess.run([sys.executable, "-c", code], check=False)
        # Only the folder of the last killed process remains.
        assert len(list(tmp_path.iterdir())) == 1
    (tmp_path / ".new.backup").mkdir()  # not ours
    with storage.temporary_directory(tmp_path / "new") as living:
        with storage.temporary_directory(tmp_path / "new") as other:
            assert living != other
            assert living.is_dir()
        assert sorted(tmp_path.iterdir()) == sorted([living, tmp_path / ".new.backup"])
    assert [path.name for path in tmp_path.iterdir()] == [".new.backup"]


def test_save_arrays_keeps_named_arrays_unwritten(saved):
    before = load_arrays(saved, "Example")
    changed = {path.name: path.stat().st_mtime_ns for path in saved.glob("rows*.npy")}
    checksum = save_arrays(
        saved, "Example", {"new": np.ones(3)}, {}, kept_arrays=["rows"], expected=before.checksum
    )
    stored = load_arrays(saved, "Example")
    assert stored.checksum == checksum == directory.read_fields(saved, "Example")[1]
    assert_same_arrays(stored.arrays, {"rows": ARRAYS["rows"], "new": np.ones(3)})
    assert {path.name: path.stat().st_mtime_ns for path in saved.glob("rows*.npy")} == changed


def test_save_arrays_refuses_what_another_writer_changed(saved):
    before = load_arrays(saved, "Example").checksum
    save_arrays(saved, "Example", {"rows": np.ones(3)}, {"version": 2})
    with pytest.raises(
        ValueError, match=r"path must not have changed since it was read or saved, got .* changed"
    ):
        save_arrays(saved, "Example", {}, {}, kept_arrays=["rows"], expected=before)
    assert load_arrays(saved, "Example").fields == {"version": 2}
