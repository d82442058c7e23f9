"""Tests of `fastcos calibrate`: what it prints and writes, and how it fails."""

import csv
import json
import shlex
from pathlib import Path

import numpy as np
import pytest

from fastcos import calibrate
from fastcos.auditing import Calibration
from fastcos.cli.main import main


@pytest.fixture
def files(tmp_path):
    rng = np.random.default_rng(1)
    np.save(tmp_path / "items.npy", rng.standard_normal((120, 6)).astype(np.float32))
    np.save(tmp_path / "queries.npy", rng.standard_normal((30, 6)).astype(np.float32))
    pairs = rng.integers(0, 120, (40, 2))
    lines = [f"{a},{b},{number % 2}" for number, (a, b) in enumerate(pairs.tolist())]
    (tmp_path / "pairs.csv").write_text("\n".join(lines) + "\n")
    return tmp_path


def test_calibrate_prints_and_writes_the_same_result(files, capsys):
    out = files / "out"
    words = ["--score", "0.7", "--fpr", "0.01", "--labelled", str(files / "pairs.csv")]
    assert main(["calibrate", str(files / "items.npy"), *words, "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    loaded = Calibration.load(out / "calibration.json")
    assert loaded.verdict in printed
    assert loaded.reading(0.7) in printed
    assert f"{loaded.threshold(0.001):.3f}" in printed
    assert json.loads((out / "labelled.json").read_text())["n_relevant"] == 20
    assert "<title>Calibration of items.npy" in (out / "calibration.html").read_text()


@pytest.mark.slow
def test_commands_after_copies_calibrate_what_is_kept(files, capsys, monkeypatch):
    monkeypatch.chdir(files)
    rows = np.load("items.npy")
    ids = [f"film {number}" for number in range(360)]
    np.savez("copies.npz", vectors=np.repeat(rows, 3, axis=0), more=rows, ids=ids)
    Path("names.csv").write_text("item,name\n" + "".join(f"{one},the {one}\n" for one in ids))
    words = ["copies.npz", "--vector-column", "vectors", "--names", "names.csv", "--fpr", "0.001"]
    own = ["--score", "0.7", "--out", "first", "--sample", "0", "--seed", "3"]
    assert main(["calibrate", *words, *own]) == 0
    printed = capsys.readouterr().out
    refusal = "No threshold has a false-positive rate as low as 0.001: "
    assert printed.splitlines()[1].startswith(refusal)
    lines = printed.partition("next:\n")[2].splitlines()
    commands = [shlex.split(line.partition("  # ")[0])[1:] for line in lines]
    assert len(commands) == 2
    assert main(commands[0]) == 0
    assert Path("kept.txt").read_text().splitlines() == ids[::3]
    # An id that is on two lines counts once.
    Path("kept.txt").write_text("\n".join([*ids[::3], *ids[:90:3]]) + "\n")
    assert main(commands[1]) == 0
    calibrated, expected = Calibration.load("first/calibration.json"), calibrate(rows)
    assert calibrated.n_pairs == expected.n_pairs == 120 * 119
    assert calibrated.threshold(0.01) == expected.threshold(0.01)
    assert "0.7" in commands[1]
    assert commands[1][-6:] == own[2:]
    assert not Path("calibration").exists()
    # The suggested search uses the same items and the same id column.
    after = capsys.readouterr().out.partition("next:\n")[2]
    assert "copies.npz --vector-column vectors --names names.csv --calibration first/" in after


def test_only_refuses_ids_of_no_item(files, capsys):
    (files / "some.txt").write_text("3\n5\n121\n")
    words = [str(files / "items.npy"), "--only", str(files / "some.txt")]
    assert main(["calibrate", *words, "--out", str(files / "out")]) == 2
    assert "--only must hold ids of the items, got '121'" in capsys.readouterr().err
    for text, count in (("", 0), ("\n\n", 0), ("7\n", 1), ("7\n7\n", 1)):
        (files / "some.txt").write_text(text)
        assert main(["calibrate", *words, "--out", str(files / "out")]) == 2
        assert f"--only must contain at least 2 ids, got {count}\n" in capsys.readouterr().err


@pytest.mark.slow
def test_json_holds_the_result_of_queries(files, capsys):
    words = [str(files / "items.npy"), "--queries", str(files / "queries.npy"), "--json"]
    assert main(["calibrate", *words, "--sample", "0", "--out", str(files / "out")]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["calibration"]["n_pairs"] == 30 * 120
    assert document["parameters"]["measure"] == "cosine"


@pytest.mark.parametrize(
    ("words", "flag"),
    [
        (["--fpr", "0"], "--fpr"),
        (["--condition", "0.5"], "--condition"),
        (["--sample", "1"], "--sample"),
        (["--measure", "cosin"], "--measure"),
        (["--score", "nan"], "--score"),
        (["--method", "linear"], "--method"),
        (["--queries", "queries.npy", "--labelled", "pairs.csv"], "--labelled"),
        (["--labelled", "items.npy"], "items.npy"),
        (["--queries", "none.npy"], "none.npy"),
    ],
)
def test_wrong_calls_end_in_one_line_and_no_file(files, monkeypatch, capsys, words, flag):
    monkeypatch.chdir(files)
    assert main(["calibrate", "items.npy", *words, "--out", "out"]) == 2
    captured = capsys.readouterr()
    assert flag in captured.err
    assert captured.out == ""
    assert not (files / "out").exists()


def test_labels_other_than_0_and_1_are_refused(files, capsys):
    (files / "pairs.csv").write_text("1,2,0.5\n3,4,1\n")
    words = [str(files / "items.npy"), "--labelled", str(files / "pairs.csv")]
    assert main(["calibrate", *words, "--out", str(files / "out")]) == 2
    assert "--labelled must hold 1 or 0" in capsys.readouterr().err


def test_neighbors_have_p_values_and_a_rate(files, capsys):
    items = str(files / "items.npy")
    calibration = calibrate(np.load(files / "items.npy"))
    calibration.save(files / "c.json")
    words = ["neighbors", items, "--k", "119", "--calibration", str(files / "c.json")]
    out = str(files / "n.csv")
    assert main([*words, "--fpr", "0.01", "--out", out]) == 0
    lines = list(csv.DictReader((files / "n.csv").read_text().splitlines()))
    assert len(lines) == round(
        float(calibration.p_value(calibration.threshold(0.01))) * calibration.n_pairs
    )
    for line in lines:
        assert float(line["p_value"]) == calibration.p_value(float(line["score"])) <= 0.01
    for wrong in (["--fpr", "2"], ["--fpr", "0.1", "--min-score", "1"], ["--measure", "dot"]):
        assert main([*words, *wrong, "--out", out]) == 2
    assert main(["neighbors", items, "--fpr", "0.1", "--out", out]) == 2
    assert "--calibration" in capsys.readouterr().err
