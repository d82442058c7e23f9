"""Atomic writing: a file is complete, or it is unchanged."""

import csv
import errno
import json
import os
import stat

import pytest

from fastcos import io


def test_atomic_path_keeps_the_old_file_on_errors(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")

    def interrupted():
        with io.atomic_path(path) as temporary:
            temporary.write_text("half")
            assert temporary.parent == tmp_path
            assert temporary.suffix == ".txt"
            assert path.read_text() == "old"
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [file.name for file in tmp_path.iterdir()] == ["a.txt"]
    assert path.read_text() == "old"


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_write_json_keeps_the_old_file_on_a_full_disk(tmp_path, monkeypatch, call):
    path = tmp_path / "a.json"
    path.write_text("old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, call, full)
    with pytest.raises(OSError, match="No space left"):
        io.write_json(path, {"a": 1})
    assert [file.name for file in tmp_path.iterdir()] == ["a.json"]
    assert path.read_text() == "old"


def test_write_json_sets_default_permissions(tmp_path):
    (tmp_path / "plain").write_text("")
    io.write_json(tmp_path / "a.json", 1)
    assert stat.S_IMODE((tmp_path / "a.json").stat().st_mode) == stat.S_IMODE(
        (tmp_path / "plain").stat().st_mode
    )


def test_write_json_follows_links(tmp_path):
    (tmp_path / "real.json").write_text("old")
    (tmp_path / "link.json").symlink_to(tmp_path / "real.json")
    io.write_json(tmp_path / "link.json", 7)
    assert (tmp_path / "link.json").is_symlink()
    assert json.loads((tmp_path / "real.json").read_text()) == 7


def test_write_json_refuses_invalid_paths(tmp_path):
    with pytest.raises(OSError, match="regular file"):
        io.write_json(tmp_path, 1)
    with pytest.raises(FileNotFoundError, match="existing directory"):
        io.write_json(tmp_path / "absent" / "a.json", 1)


def test_atomic_path_refuses_an_empty_block(tmp_path):
    with pytest.raises(FileNotFoundError), io.atomic_path(tmp_path / "a"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_write_json_refuses_values_without_json_form(tmp_path):
    for value in (float("nan"), {1, 2}):
        with pytest.raises((ValueError, TypeError)):
            io.write_json(tmp_path / "a.json", value)
    assert list(tmp_path.iterdir()) == []


def test_write_csv_round_trip(tmp_path):
    rows = [('é, "x"\n', 0.1 + 0.2), ("", None)]
    io.write_csv(tmp_path / "a.csv", ("name", "score"), rows)
    with (tmp_path / "a.csv").open(encoding="utf-8", newline="") as file:
        back = list(csv.reader(file))
    assert back == [["name", "score"], ['é, "x"\n', repr(0.1 + 0.2)], ["", ""]]
    with pytest.raises(ValueError, match="must have 2 fields"):
        io.write_csv(tmp_path / "a.csv", ("name", "score"), [(1,)])
    with (tmp_path / "a.csv").open(encoding="utf-8", newline="") as file:
        assert list(csv.reader(file)) == back


@pytest.mark.parametrize(
    ("error", "message"),
    [(OSError(errno.EFBIG, "File too large"), "File too large"),
     (OSError("1024 requested and 640 written"), "1024 requested and 640 written")],
)  # fmt: skip
def test_atomic_path_errors_name_the_file(tmp_path, error, message):
    with pytest.raises(OSError, match=message) as caught, io.atomic_path(tmp_path / "a.npy"):
        raise error
    assert caught.value.filename == str(tmp_path / "a.npy")
    assert caught.value.strerror == message
    with pytest.raises(FileNotFoundError) as other, io.atomic_path(tmp_path / "a.npy"):
        (tmp_path / "b").read_text()
    assert other.value.filename == str(tmp_path / "b")
    assert not list(tmp_path.iterdir())


def test_csv_for_spreadsheets_holds_no_formula(tmp_path):
    cells = ["=cmd|' /C calc'!A0", "+1", "-1+2", "@SUM(1)", "\t=1", " =1", "a=b", "", "'", -1.5, 3]
    for for_spreadsheets in (False, True):
        path = tmp_path / "a.csv"
        header = [str(number) for number in range(len(cells))]
        io.write_csv(path, header, [cells], for_spreadsheets=for_spreadsheets)
        with path.open(newline="") as file:
            read = list(csv.reader(file))[1]
        quoted = [f"'{cell}" for cell in cells[:6]] if for_spreadsheets else cells[:6]
        assert read == [*quoted, *map(str, cells[6:])]
    io.write_csv(path, ["name"], [["a\r=1"]], for_spreadsheets=True)
    assert path.read_text() == "name\na =1\n"
