"""The verb audit: what it prints and writes, and how it fails."""

import json

import numpy as np
import pytest

from fastcos.cli.main import whole_parser


def run(*arguments):
    given = whole_parser(["audit"]).parse_args(["audit", *map(str, arguments)])
    return given.run(given)


@pytest.fixture
def files(tmp_path):
    rng = np.random.default_rng(1)
    np.save(tmp_path / "items.npy", rng.standard_normal((120, 6)).astype(np.float32))
    np.save(tmp_path / "users.npy", rng.standard_normal((80, 6)))
    lines = [f"{i},{'abc'[i % 3]}" for i in range(100)]
    (tmp_path / "labels.csv").write_text("item,kind\n" + "\n".join(lines) + "\n")
    return tmp_path


def test_audit_prints_a_card_and_writes_what_it_printed(files, capsys):
    arguments = (files / "items.npy", "--users", files / "users.npy", "--k", 5)
    labels = ("--labels", files / "labels.csv", "--label-column", "kind")
    assert run(*arguments, *labels, "--out", files / "out") == 0
    printed = capsys.readouterr().out
    written = json.loads((files / "out" / "audit.json").read_text())
    assert written["audit"]["verdict"] in printed
    assert written["audit"]["n_items"] == 120
    assert written["audit"]["given"]["auc"] is not None
    for row in (*written["audit"]["family"], *written["audit"]["alternatives"]):
        assert row["name"] in printed


def test_json_on_stdout_is_the_file(files, capsys):
    assert run(files / "items.npy", "--k", 5, "--out", files / "out", "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((files / "out" / "audit.json").read_text())


def test_fail_under_tells_the_reason_and_exits_with_one(files, capsys):
    common = (files / "items.npy", "--k", 5, "--condition", 1.1, "--out", files / "out")
    assert run(*common, "--fail-under", "certified=0.01,jaccard=0.01") == 0
    assert run(*common, "--fail-under", "certified=0.999") == 1
    assert "failed: certified is 0." in capsys.readouterr().err


@pytest.mark.parametrize("limit", ["certified", "certified=2", "speed=1", "jaccard=x"])
def test_limits_that_make_no_sense_are_refused(files, limit):
    with pytest.raises(ValueError, match="--fail-under must be"):
        run(files / "items.npy", "--fail-under", limit)
