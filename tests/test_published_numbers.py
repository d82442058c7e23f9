"""Published numbers are not much older than the code that they describe."""

import csv
import re
import runpy
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "docs" / "renew.py"
renew = runpy.run_path(str(SCRIPT))
PUBLISHED = renew["PUBLISHED"]


def commits_to(*paths):
    """Return the commits that changed the paths, newest first; in an archive, there are none."""
    words = ("git", "-C", str(ROOT), "rev-list", "HEAD", "--", *paths)
    return subprocess.run(words, capture_output=True, check=False, text=True).stdout.split()


@pytest.fixture
def run(capsys):
    """Return a function that runs docs/renew.py, and returns its status, output and errors."""

    def call(*words):
        try:
            status = renew["main"](list(words))
        except SystemExit as error:
            status = error.code
        printed = capsys.readouterr()
        return SimpleNamespace(returncode=status, stdout=printed.out, stderr=printed.err)

    return call


def record(folder, name, commit):
    """Write a record: one number gets the given commit, and all others get the commit HEAD."""
    head = subprocess.run(("git", "-C", str(ROOT), "rev-parse", "HEAD"), capture_output=True,
                          check=False, text=True).stdout.strip()  # fmt: skip
    with (ROOT / "docs" / "renewed.csv").open(encoding="utf8", newline="") as file:
        lines = list(csv.DictReader(file))
    for line in lines:
        line["commit"] = commit if line["name"] == name else head
    path = folder / "renewed.csv"
    with path.open("w", encoding="utf8", newline="") as file:
        writer = csv.DictWriter(file, list(lines[0]))
        writer.writeheader()
        writer.writerows(lines)
    return path


@pytest.mark.slow  # it compares the syntax trees of some hundred commits
def test_published_numbers_are_not_too_old(run):
    answer = run("--check")
    assert answer.returncode == 0, answer.stdout + answer.stderr


@pytest.mark.slow  # as above
def test_check_fails_on_a_number_that_is_too_old(tmp_path, run):
    name = "roofline"
    one = PUBLISHED[name]
    commits = commits_to(*one.code)
    if len(commits) < 1.5 * one.most_commits:
        pytest.skip("this clone lacks the history")
    answer = run("--check", "--record", str(record(tmp_path, name, commits[-1])))
    assert answer.returncode == 1
    (line,) = answer.stdout.splitlines()
    assert f"more than {one.most_commits} commits changed {one.code[0]}" in line
    assert line.endswith(f"run python docs/renew.py {name}")


@pytest.mark.slow  # as above
@pytest.mark.parametrize("says_so", [True, False])
def test_check_accepts_old_numbers_only_if_their_page_says_so(tmp_path, run, monkeypatch, says_so):
    one, page = PUBLISHED["roofline"], tmp_path / "page.md"
    commits = commits_to(*one.code)
    if len(commits) < 1.5 * one.most_commits:
        pytest.skip("this clone lacks the history")
    monkeypatch.setitem(PUBLISHED, "roofline", one._replace(shown_in=str(page)))
    path = record(tmp_path, "roofline", commits[-1])
    state = renew["state"](renew["renewals"](path)["roofline"])
    sentence = "Since then, more than 200 commits have\nchanged the kernels."
    page.write_text(f"{sentence}\n\nWe measured it once ({state}). {sentence if says_so else ''}")
    answer = run("--check", "--record", str(path))
    assert answer.returncode == (0 if says_so else 1)
    assert ("the pages say so" in answer.stdout) == says_so


@pytest.mark.slow
def test_an_unknown_commit_is_reported_and_passes(tmp_path, run, monkeypatch):
    # This test does not check how old the comparison `speed` is. If there are more commits than
    # most_commits, the script compares the files of all these commits, which takes seconds. This
    # line therefore raises most_commits.
    monkeypatch.setitem(PUBLISHED, "speed", PUBLISHED["speed"]._replace(most_commits=10**6))
    answer = run("--check", "--record", str(record(tmp_path, "roofline", "0" * 40)))
    assert answer.returncode == 0
    assert "this clone lacks commits" in answer.stdout


def test_record_names_everything_that_is_published():
    with (ROOT / "docs" / "renewed.csv").open(encoding="utf8", newline="") as file:
        assert [line["name"] for line in csv.DictReader(file)] == list(PUBLISHED)


@pytest.mark.slow
def test_commits_of_the_record_are_in_the_history():
    """After a rebase, a commit of the old branch is lost, so the age of its numbers is unknown."""
    if not commits_to("docs"):
        pytest.skip("this is no clone")
    with (ROOT / "docs" / "renewed.csv").open(encoding="utf8", newline="") as file:
        commits = {line["commit"] for line in csv.DictReader(file)}
    words = ("git", "-C", str(ROOT), "merge-base", "--is-ancestor")
    answers = {
        commit: subprocess.run((*words, commit, "HEAD"), capture_output=True, check=False)
        for commit in commits
    }
    if any(b"shallow" in answer.stderr or answer.returncode > 1 for answer in answers.values()):
        pytest.skip("this clone lacks the history")
    assert [commit for commit, answer in answers.items() if answer.returncode] == []


# These pages quote numbers from another page, to which they link. The linked page names the date
# and the commit.
QUOTING = {("service", "README.md"), ("gate", "README.md"), ("gate", "bench/gate/README.md")}


@pytest.mark.parametrize("name", PUBLISHED)
def test_pages_name_the_date_and_the_commit_of_their_numbers(name):
    last = renew["renewals"](renew["RECORD"])[name]
    for page in renew["pages"](PUBLISHED[name]):
        if (name, str(page.relative_to(ROOT))) not in QUOTING:
            text = " ".join(page.read_text("utf8").split())
            # A program writes the tables of bench/results, and shortens the name of the commit.
            assert (last.commit[:10] if name == "speed" else renew["state"](last)) in text, page


def test_a_renewal_changes_the_date_and_the_commit_on_the_pages(tmp_path, run, monkeypatch):
    page, before = tmp_path / "page.md", "We ran it (2026-01-02, commit 0123456789)."
    page.write_text(before)
    one = PUBLISHED["animation"]._replace(shown_in=str(page), commands=("python -c pass",),
                                               code=("LICENSE",))  # fmt: skip
    monkeypatch.setitem(PUBLISHED, "animation", one)
    path = record(tmp_path, "animation", "0123456789" + 30 * "0")
    path.write_text(re.sub(r"(0123456789\d+),[\d-]+", r"\1,2026-01-02", path.read_text()))
    assert run("animation", "--record", str(path)).returncode == 0
    after = page.read_text()
    last = renew["renewals"](path)["animation"]
    assert after == f"We ran it ({last.date}, commit {last.commit[:10]})." != before


@pytest.mark.slow
def test_list_shows_command_time_and_age(run):
    answer = run("--list")
    assert answer.returncode == 0, answer.stderr
    for name, one in PUBLISHED.items():
        assert f"\n{name}: {one.shown_in}\n" in f"\n{answer.stdout}"
    assert answer.stdout.count("    made at ") == len(PUBLISHED)
    assert "    python docs/animation.py\n    0.5 minutes\n" in answer.stdout


def test_pages_commands_and_code_that_are_listed_exist():
    for one in PUBLISHED.values():
        pages = [word.rstrip(",:") for word in one.shown_in.split() if "/" in word or ".md" in word]
        scripts = [
            word for command in one.commands for word in command.split() if word.endswith(".py")
        ]
        modules = [
            command.split()[2].replace(".", "/")
            for command in one.commands
            if command.startswith("python -m bench") or command.startswith("python -m tests")
        ]
        for path in (*pages, *scripts, *one.code):
            assert (ROOT / path).exists(), path
        for path in modules:
            assert (ROOT / f"{path}.py").exists() or (ROOT / path / "__main__.py").exists(), path


def test_every_picture_of_the_documentation_is_renewed_by_a_command():
    shown = " ".join(one.shown_in for one in PUBLISHED.values())
    for path in (ROOT / "docs" / "figures").iterdir():
        assert path.name in shown or path.stem in shown.split("docs/figures:")[1], path.name


def test_data_sets_are_required_before_anything_runs(run):
    answer = run("figures", "audit")
    assert answer.returncode == 2
    assert "audit needs --data, the folder of the data sets" in answer.stderr


def test_unknown_names_are_refused(run):
    answer = run("figure")
    assert answer.returncode == 2
    assert "name must be one of speed, roofline" in answer.stderr
    assert answer.stderr.strip().endswith("got figure")
