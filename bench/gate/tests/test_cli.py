"""Tests of the command on a toy project in a git repository.

Most tests call the command in this process, which saves the seconds that a new process needs to import SciPy.
The options ``-m slow`` and ``-m long`` select further tests, which take longer.
"""

import functools
import json
import re
import shutil
import subprocess
import sys

import pytest

import toy_project
from benchgate import checkouts, cli, compare, interleaved


@pytest.fixture
def benchgate(monkeypatch, capsys):
    """Return a function that does the same as `toy_project.benchgate`, but in this process."""

    def run(folder, *words):
        monkeypatch.chdir(folder)
        status = cli.main(words)
        return status, *capsys.readouterr()

    return run


@pytest.fixture
def few_pairs(monkeypatch):
    """Let the first analysis use 3 pairs with 2 turns each, instead of 10 pairs with 6 turns each.

    Tests use this fixture if their verdicts do not depend on times, or if the slower code takes at least
    twice as long.
    """
    for module in (cli, compare):
        monkeypatch.setattr(module, "MIN_PAIRS", 3)
    monkeypatch.setattr(cli, "interleaved", functools.partial(interleaved, turns=2))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["a", "b"], "the following arguments are required"),
        (["a", "b", "--pairs", "3", "--", "t"], "--pairs must be at least 10, got 3"),
        (["a", "b", "--tolerance", "-1", "--", "t"], "must be a number of at least 0, got -1"),
        (["a", "b", "--tolerance", "nan", "--", "t"], "must be a number of at least 0, got nan"),
        (["a", "b", "--threads", "0", "--", "t"], "must be at least 1, got 0"),
        (["a", "b", "--minutes", "-2", "--", "t"], "must be a number of at least 0, got -2"),
        (["a", "b", "--env", "NAME", "--", "t"], "must be NAME=VALUE, got NAME"),
    ],
)
def test_invalid_arguments_are_refused(words, message, capsys):
    with pytest.raises(SystemExit) as raised:
        cli.main(words)
    assert raised.value.code == 2
    assert message in capsys.readouterr().err


def test_words_after_the_dashes_are_those_of_pytest():
    words = ["--wall", "--", "benchmarks", "-k", "a b", "--option"]
    for is_selftest, revisions in ((True, []), (False, ["main", "HEAD"])):
        options = cli.parse([*revisions, *words], is_selftest)
        assert options.tests == ["benchmarks", "-k", "a b", "--option"]
    assert cli.parse(["--revision", "main", *words], True).revision == "main"


def test_commit_that_does_not_exist_is_reported_in_markdown(tmp_path, benchgate):
    toy_project.project(tmp_path, {})
    status, out, err = benchgate(tmp_path, "nowhere", "HEAD", "--install", "", "--", "benchmarks")
    assert status == 2, err
    assert out.startswith("### Benchmarks: could not compare")
    assert "BASE must be a commit of this repository, got nowhere" in out


def test_folder_that_neither_commit_has_is_refused_before_installing(tmp_path, benchgate):
    toy_project.project(tmp_path, {})
    status, out, err = benchgate(tmp_path, "HEAD~1", "HEAD", "--install", "", "--", "nosuch")
    assert status == 2, err
    assert "TESTS must be files or folders of one of the commits, got nosuch" in out


def test_folder_outside_of_git_is_refused(tmp_path):
    status, out, err = toy_project.benchgate(tmp_path, "HEAD~1", "HEAD", "--install", "", "--", "benchmarks")
    assert status == 2, err
    assert "the working directory must be in a Git repository" in out


@pytest.mark.parametrize("path", ["/", "..", ".", "benchmarks/../.."])
def test_tests_outside_the_repository_are_refused(tmp_path, benchgate, path):
    toy_project.project(tmp_path / "toy", {})
    (tmp_path / "mine").write_text("kept")
    status, out, _ = benchgate(tmp_path / "toy", "HEAD~1", "HEAD", "--install", "", "--", path)
    assert status == 2
    assert "TESTS must be files or folders inside the repository" in out
    assert (tmp_path / "mine").read_text() == "kept"


def test_tests_of_head_replace_those_of_base_and_are_put_back(tmp_path, monkeypatch):
    change = {
        "benchmarks/test_new.py": "def test_new(benchmark): benchmark(sum, [1])\n",
        "benchmarks/test_toy.py": None,
        "conftest.py": "# of head\n",
    }
    root = toy_project.project(tmp_path, change)
    monkeypatch.chdir(root)
    base, head = (
        checkouts.Checkout(name, role, root) for name, role in (("HEAD~1", "base"), ("HEAD", "head"))
    )
    for checkout in (base, head):
        checkout.restore([])
    paths = checkouts.test_paths(["benchmarks", "-k", "new", "benchmarks::x"], base, head)
    assert paths == ["benchmarks"]
    checkouts.copy_tests(paths, head, base)
    assert [path.name for path in (base.sources / "benchmarks").iterdir()] == ["test_new.py"]
    assert (base.sources / "conftest.py").read_text() == "# of head\n"
    base.restore(paths)
    assert [path.name for path in (base.sources / "benchmarks").iterdir()] == ["test_toy.py"]


def test_only_the_newest_commits_stay_installed(tmp_path, monkeypatch):
    import os

    for number in range(7):
        folder = tmp_path / checkouts.FOLDER / f"base-{number}"
        folder.mkdir(parents=True)
        os.utime(folder, (number, number))
    checkouts.prune(tmp_path)
    assert sorted(path.name for path in (tmp_path / checkouts.FOLDER).iterdir()) == [
        f"base-{n}" for n in range(3, 7)
    ]


def test_progress_names_what_is_measured_and_how_long_it_takes(capsys, monkeypatch):
    clock = iter(range(0, 100, 2))
    monkeypatch.setattr(cli.time, "monotonic", lambda: next(clock))
    progress = cli.Progress()
    progress(1, 10, [], 1)
    progress(2, 10, [], 1)
    progress(11, 20, ["a", "b", "c", "d"], 2)
    assert capsys.readouterr().err.splitlines() == [
        "benchgate: pair 1 of 10, about 18 s left: all benchmarks",
        "benchgate: pair 2 of 10, about 16 s left: all benchmarks",
        "benchgate: second series, pair 11 of 20, about 18 s left: a, b, c and 1 more",
    ]


WORDS = (
    *("HEAD~1", "HEAD", "--install", "", "--python", sys.executable),
    # Without the other plugins of this environment, pytest starts faster.
    *("--env", "PYTEST_DISABLE_PLUGIN_AUTOLOAD=1"),
)
TESTS = ("--", "-p", "pytest_benchmark.plugin", "benchmarks")
# On a busy machine, the comparison of a benchmark that is equally fast in base and head needs up to 80 pairs
# at the default tolerance. The tests therefore use a larger tolerance.
LOOSE = ("--tolerance", "0.5")
SLOWER = "| **slower** | `benchmarks/test_toy.py::test_work` |"
SITUATIONS = {
    "equal": (0, "passed: 3 benchmarks compared, none slower"),
    "15 % slower": (1, SLOWER),
    "exception": (1, "- `benchmarks/test_toy.py::test_work` (lost): call: RuntimeError: boom"),
    "segfault": (1, "- `benchmarks/test_toy.py::test_work` (crashed): the process was ended by SIGSEGV"),
    "import error": (1, "- `benchmarks/test_toy.py`: ModuleNotFoundError: No module named 'a_module"),
    "new file and renamed benchmark": (
        0,
        "| only in head | `benchmarks/test_new.py::test_new` |",
        "- `benchmarks/test_toy.py::test_sort`",
    ),
    "sleeping benchmark": (3, "| waits | `benchmarks/test_toy.py::test_work` |"),
    "30 % slower, --benchmark-skip in addopts": (1, SLOWER),
}
# These situations need all pairs, because their verdicts depend on times that scatter. They also run the
# command in a process of its own.
MARKS = {
    "equal": pytest.mark.slow,
    "15 % slower": pytest.mark.long,
    "30 % slower, --benchmark-skip in addopts": pytest.mark.slow,
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=MARKS.get(name, ())) for name in SITUATIONS])
def test_situation_has_its_verdict_and_a_summary(tmp_path, request, name):
    if name in MARKS:
        benchgate = toy_project.benchgate
    else:
        request.getfixturevalue("few_pairs")
        benchgate = request.getfixturevalue("benchgate")
    toy_project.project(tmp_path, toy_project.CHANGES[name])
    files = "--summary", "summary.md", "--json", "gate.json"
    expected, *lines = SITUATIONS[name]
    options = (*TESTS, "-k", "work") if lines == [SLOWER] else (*LOOSE, *TESTS)
    status, out, err = benchgate(tmp_path, *WORDS, *files, *options)
    assert status == expected, out + err
    assert all(line in out for line in lines), out
    assert (tmp_path / "summary.md").read_text().strip() == out.strip()
    assert json.loads((tmp_path / "gate.json").read_text())["exit_status"] == expected


@pytest.mark.usefixtures("few_pairs")
def test_accepted_slowdown_passes(tmp_path, benchgate):
    toy_project.project(tmp_path, toy_project.SLOWER[1.0])
    status, out, _ = benchgate(tmp_path, *WORDS, "--accept", "*work", *TESTS, "-k", "work")
    assert status == 0, out
    assert "| slower, accepted | `benchmarks/test_toy.py::test_work` |" in out


@pytest.mark.usefixtures("few_pairs")
def test_sleeping_benchmark_is_slower_in_wall_time(tmp_path, benchgate):
    toy_project.project(tmp_path, toy_project.CHANGES["sleeping benchmark"])
    status, out, _ = benchgate(tmp_path, *WORDS, "--wall", *TESTS, "-k", "work")
    assert status == 1, out
    assert "| **slower** | `benchmarks/test_toy.py::test_work` |" in out


@pytest.mark.usefixtures("few_pairs")
def test_tests_of_base_can_be_used(tmp_path, benchgate):
    toy_project.project(tmp_path, {"benchmarks/test_toy.py": toy_project.TESTS.replace("sorted", "list")})
    words = (*WORDS, *LOOSE, "--tests-from", "base", *TESTS, "-k", "sort")
    status, out, _ = benchgate(tmp_path, *words)
    assert status == 0, out
    assert "none slower" in out


@pytest.mark.usefixtures("few_pairs")
def test_worktree_and_selftest(tmp_path, benchgate):
    toy_project.project(tmp_path, {})
    (tmp_path / "toy.py").write_text(toy_project.SLOWER[1.0]["toy.py"])
    words = "HEAD", "WORKTREE", *WORDS[2:]
    status, out, _ = benchgate(tmp_path, *words, *TESTS, "-k", "work")
    assert status == 1, out
    selftest = "selftest", *WORDS[2:], *LOOSE, "--minutes", "0", "--json", "record.json"
    status, out, err = benchgate(tmp_path, *selftest, *TESTS, "-k", "work")
    assert status == 0, err
    assert re.search(r"in [1-9]\d* comparisons? of equal code", out), out
    assert len(json.loads((tmp_path / "record.json").read_text())["log_ratios"]) == 1


@pytest.mark.slow
def test_package_installs_from_its_folder_into_an_empty_environment(tmp_path):
    # Installing the package needs a package index, like any installation.
    home = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", home], check=True)
    python = home / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    copy = tmp_path / "gate"  # a build writes files into the folder that it builds
    shutil.copytree(toy_project.SOURCE.parent, copy, ignore=shutil.ignore_patterns("build", "*.egg-info"))
    subprocess.run([python, "-m", "pip", "install", "-q", copy], check=True)
    process = subprocess.run([python, "-m", "pip", "list"], capture_output=True, text=True, check=True)
    assert not {"numba", "fastcos"} & set(process.stdout.split())
    process = subprocess.run(
        [home / "bin" / "benchgate", "--help"], capture_output=True, text=True, check=True
    )
    assert "Is HEAD slower than BASE?" in process.stdout


@pytest.mark.parametrize(
    ("change", "status", "words"),
    [
        ({"conftest.py": "import nowhere\n"}, 1, "- `all tests`: "),
        (
            {"benchmarks/test_new.py": "import nowhere\n", "benchmarks/test_toy.py": None},
            1,
            "test_new.py`: Mod",
        ),
        ({"benchmarks/test_toy.py": None}, 1, "file or directory not found: benchmarks"),
        ({"pytest.ini": "[pytest]\naddopts = --nonsense\n"}, 3, "unrecognized arguments: --nonsense"),
    ],
    ids=["conftest", "new file", "no tests", "both"],
)
def test_head_that_cannot_run_its_tests_fails_and_both_do_not(tmp_path, benchgate, change, status, words):
    toy_project.project(tmp_path, change)
    exit_status, out, err = benchgate(tmp_path, *WORDS, "--minutes", "0", *TESTS)
    assert exit_status == status, out + err
    assert words in out
