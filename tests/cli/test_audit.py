"""Tests of `fastcos audit`: what it prints and writes, and how it fails."""

import contextlib
import html
import json
import shlex
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO

import numpy as np
import pytest

from fastcos import LinearMF, canonicalize, simulate_interactions
from fastcos.cli.main import build_parser
from fastcos.cli.model_folder import write_model_folder

AGAIN = (
    "audit items.npy --k 5 --condition 1.1 --against other.npy --fail-under "
    "certified=0.999,unchanged=.9 --out failed --users users.npy"
)
EXPORT = "index export items.npy --users users.npy --out served"


def run(*arguments):
    options = build_parser(["audit"]).parse_args(["audit", *map(str, arguments)])
    return options.run(options)


def written(folder):
    rng = np.random.default_rng(1)
    np.save(folder / "items.npy", rng.standard_normal((120, 6)).astype(np.float32))
    np.save(folder / "users.npy", rng.standard_normal((80, 6)))
    np.save(folder / "other.npy", rng.standard_normal((120, 6)))
    lines = [f"{i},{'abc'[i % 3]}" for i in range(100)]
    (folder / "labels.csv").write_text("item,kind\n" + "\n".join(lines) + "\n")
    return folder


@pytest.fixture
def files(tmp_path):
    return written(tmp_path)


@pytest.fixture(scope="module")
def audited(tmp_path_factory):
    """Return a folder, and the printed outputs of three audits.

    The first audit prints JSON, the second one also has users, and the third one fails because a
    result is below its threshold.
    """
    folder = written(tmp_path_factory.mktemp("audited"))
    calls = {
        "json": ("--condition", 1.1, "--fail-under", "certified=0.01,jaccard=0.01", "--json",
                 "--explore", "page.html"),
        "users": ("--users", "users.npy", "--labels", "labels.csv", "--label-column", "kind"),
        "failed": ("--condition", 1.1, "--fail-under", "certified=0.999,unchanged=.9", "--against",
                   "other.npy"),
    }  # fmt: skip
    printed = {}
    with contextlib.chdir(folder):
        for name, words in calls.items():
            with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
                status = run("items.npy", "--k", 5, *words, "--out", name)
            assert status == (name == "failed")
            printed[name] = out.getvalue(), err.getvalue()
    return folder, printed


def test_audit_prints_and_writes_the_same_report(audited):
    folder, printed = audited
    written = json.loads((folder / "users" / "audit.json").read_text())
    assert written["audit"]["verdict"] in printed["users"][0]
    assert written["audit"]["n_items"] == 120
    assert written["audit"]["given"]["auc"] is not None
    for row in (
        *written["audit"]["parametrizations"],
        *written["audit"]["invariant_baselines"],
    ):
        assert row["name"] in printed["users"][0]


@pytest.mark.parametrize(("name", "command"), [("failed", AGAIN), ("users", EXPORT)])
def test_audit_ends_with_commands_that_parse(audited, name, command):
    printed = audited[1][name][0]
    # No shares of other models are printed for comparison, because shares depend on the number of
    # items.
    assert "for comparison" not in printed
    commands = [
        shlex.split(line.partition("  # ")[0])
        for line in printed.partition("next:\n")[2].splitlines()
        if line.startswith("  fastcos ")
    ]
    assert commands[0][1:] == command.split()
    for _, *words in commands:
        assert build_parser(words).parse_args(words).command == words[0]


def test_json_on_stdout_is_the_file(audited):
    folder, printed = audited
    assert json.loads(printed["json"][0]) == json.loads((folder / "json/audit.json").read_text())


def test_fail_under_prints_the_reason_and_exits_with_1(audited):
    printed, messages = audited[1]["failed"]
    assert "--fail-under failed: the share 'certified' is 0." in messages
    assert "--fail-under failed: the share 'unchanged' is 0." in messages
    assert "largest real change are " in printed
    assert "failed" not in audited[1]["json"][1]


@pytest.mark.parametrize("limit", ["certified", "certified=2", "speed=1", "jaccard=x"])
def test_fail_under_refuses_wrong_limits(files, limit):
    with pytest.raises(ValueError, match=r"--fail-under (\w+ )?must be"):
        run(files / "items.npy", "--fail-under", limit)


def test_page_is_written_beside_the_numbers(audited):
    folder = audited[0] / "json"
    page = (folder / "audit.html").read_text("utf8")
    assert page.startswith("<!DOCTYPE html>")
    verdict = json.loads((folder / "audit.json").read_text())["audit"]["verdict"]
    assert verdict in html.unescape(page)
    assert "items.npy" in page


@pytest.mark.slow
def test_fail_under_unchanged_ignores_a_change_of_basis(files, capsys):
    items = np.load(files / "items.npy").astype(np.float64)
    rng = np.random.default_rng(2)
    np.save(files / "same.npy", items @ rng.standard_normal((6, 6)))
    common = (files / "items.npy", "--k", 5, "--out", files / "out", "--fail-under", "unchanged=.9")
    assert run(*common, "--against", files / "same.npy") == 0
    diff = json.loads((files / "out" / "audit.json").read_text())["diff"]
    assert diff["overlap_after_linear_map"] == 1
    assert diff["overlap"] < 0.9
    assert diff["verdict"] in capsys.readouterr().out


@pytest.mark.slow
def test_only_items_of_both_versions_are_compared(files, capsys):
    items = np.load(files / "items.npy")
    names = np.array([f"i{n}" for n in range(120)])
    np.savez(files / "new.npz", ids=names, vectors=items)
    np.savez(files / "old.npz", ids=names[::-1][:100], vectors=items[::-1][:100])
    arguments = (files / "new.npz", "--against", files / "old.npz", "--k", 5)
    assert run(*arguments, "--out", files / "out") == 0
    assert "100 items are in both versions" in capsys.readouterr().err
    diff = json.loads((files / "out" / "audit.json").read_text())["diff"]
    assert (diff["n_items"], diff["overlap"]) == (100, 1)


@pytest.mark.slow
def test_popularity_and_a_saved_model_are_read(files, capsys):
    items, users = np.load(files / "items.npy"), np.load(files / "users.npy")
    ones = np.ones((120, 1))
    model = {
        "item_factors": np.hstack([items, ones * 3]),
        "user_factors": np.hstack([users, ones[:80]]),
    }
    np.savez(files / "model.npz", **model)
    (files / "counts.csv").write_text("item,count\n" + "".join(f"{i},{i + 1}\n" for i in range(90)))
    arguments = (files / "model.npz", "--popularity", files / "counts.csv", "--k", 5)
    assert run(*arguments, "--out", files / "out") == 0
    captured = capsys.readouterr()
    assert "removed the bias column of the items (BPR)" in captured.err
    assert "90 items; 30 items are missing from the file" in captured.err
    assert "correlation of popularity and norm" in captured.out
    report = json.loads((files / "out" / "audit.json").read_text())["audit"]
    assert report["n_dimensions"] == 6
    assert report["popularity"]["n_left_out"] == 30


def test_fail_under_unchanged_requires_an_old_version(files):
    with pytest.raises(TypeError, match="--against must be given for --fail-under unchanged"):
        run(files / "items.npy", "--fail-under", "unchanged=0.5")
    with pytest.raises(ValueError, match="--old-users must be left out without --against"):
        run(files / "items.npy", "--old-users", files / "users.npy", "--out", files / "out")


def test_audit_explore_writes_a_page_of_named_items(files, audited):
    text = (audited[0] / "page.html").read_text("utf8")
    assert "The page shows all 120 items." in text
    assert "because all three need the embeddings of the users" in text
    (files / "names.txt").write_text("3\n5\n\nabsent\n119\n")
    page = files / "page.html"
    arguments = (files / "items.npy", "--k", 5, "--out", files / "out", "--explore", page)
    assert run(*arguments, "--users", files / "users.npy", "--explore-items",
               files / "names.txt") == 0  # fmt: skip
    text = page.read_text("utf8")
    assert "The page shows the 3 selected items of 120." in text
    assert "because all three need the embeddings of the users" not in text


@pytest.mark.slow
def test_audit_explore_of_a_model_shows_the_most_popular_first(tmp_path):
    data = simulate_interactions(200, 60, random_state=1)
    model = LinearMF(6).fit(data.X)
    write_model_folder(tmp_path / "model", model, data.X, np.array([f"id {i}" for i in range(60)]))
    page = tmp_path / "page.html"
    assert run(tmp_path / "model", "--k", 5, "--out", tmp_path / "out", "--explore", page) == 0
    counts = data.X.sum(axis=0)
    assert f'"names":["id {np.argmax(counts)}"' in page.read_text("utf8")


@pytest.mark.slow
def test_audit_explore_with_wrong_input_is_one_line(files, capsys):
    np.save(files / "one.npy", np.ones((1, 4)))
    np.save(files / "nan.npy", np.full((20, 4), np.nan))
    (files / "empty.txt").write_text("absent\n")
    out = ("--out", files / "out")
    for arguments, message in (
        ((files / "one.npy", "--explore", files / "p.html"), "at least 2 rows, got 1"),
        ((files / "nan.npy", "--explore", files / "p.html"), "must be finite"),
        ((files / "items.npy", "--explore", files), "--explore must be a regular file"),
        ((files / "items.npy", "--explore-items", files / "empty.txt"), "without --explore"),
        ((files / "items.npy", "--explore", files / "p.html", "--explore-items",
          files / "empty.txt"), "--explore-items must contain ids of items in"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message) as raised:
            run(*arguments, *out)
        assert "\n" not in str(raised.value)
    assert not (files / "p.html").exists()


@pytest.mark.slow
def test_claimed_decay_is_compared_with_the_factors(files, capsys):
    """The audit checks whether the factors agree with the option `--weight-decay-on both`.

    Random factors are not balanced, so they do not agree with the option. The factors that
    `canonicalize` returns are balanced, so they agree with the option.
    """
    items, users = (np.load(files / f"{side}.npy") for side in ("items", "users"))
    form = canonicalize(users, items)
    np.save(files / "balanced_items.npy", form.items)
    np.save(files / "balanced_users.npy", form.users)
    printed = []
    for prefix in ("", "balanced_"):
        paths = (files / f"{prefix}items.npy", "--users", files / f"{prefix}users.npy")
        run(*paths, "--k", 5, "--weight-decay-on", "both", "--out", files / "out")
        printed.append(" ".join(capsys.readouterr().out.split()))
    assert "Train for more iterations and audit again" in printed[0]
    assert "four possible explanations. (1) Training has not converged" in printed[0]
    assert "chose the scale" not in printed[0]
    assert "because weight decay on users and items chose the scale of the dimensions" in printed[1]
    assert "A linear map of condition 1.00 is enough to make them equal" in printed[1]
