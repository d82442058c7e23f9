"""The Action's own script on a toy project: slow-downs and wrong answers, injected in a commit."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

GATE = Path(__file__).parents[2] / "bench" / "gate"
TURNS = 40_000
MODULE = """
def work():
    total = 0
    for i in range({turns}):
        total += i
    for i in range({extra}):
        i += i
    return total{error}
"""
TESTS = f"""
from toy import work


def test_work(benchmark):
    assert benchmark(work) == sum(range({TURNS}))


def test_constant(benchmark):
    benchmark(lambda: sum(range(20_000)))
"""


def git(folder, *words):
    settings = ["-c", "user.name=t", "-c", "user.email=t@t", "-c", "init.defaultBranch=main"]
    subprocess.run(["git", *settings, *words], cwd=folder, check=True, capture_output=True)


def script():
    """Return the shell script of the step of action.yml that runs the gate."""
    lines = (GATE / "action.yml").read_text("utf8").partition("- id: gate")[2]
    return "\n".join(line[8:] for line in lines.partition("run: |\n")[2].splitlines())


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(
    ("head", "status", "words"),
    [
        ({}, 0, "passed, 2 benchmarks compared, none slower"),
        ({"more": 1.15}, 1, "failed, 2 benchmarks compared, 1 slower"),
        ({"more": 1.30}, 1, "failed, 2 benchmarks compared, 1 slower"),
        ({"error": " + 1"}, 1, "failed, 1 benchmarks compared, 1 of base did not run"),
    ],
    ids=["equal", "15 % slower", "30 % slower", "wrong answer"],
)
def test_action_decides_for_a_toy_project(tmp_path, head, status, words):
    pytest.importorskip("pytest_benchmark")
    more = head.get("more", 1.0)
    tests = tmp_path / "benchmarks"
    tests.mkdir()
    (tests / "test_toy.py").write_text(TESTS)
    git(tmp_path, "init")
    for extra, error in ((0, ""), (round((more - 1) * TURNS), head.get("error", ""))):
        text = MODULE.format(turns=TURNS, extra=extra, error=error)
        (tmp_path / "toy.py").write_text(text)
        git(tmp_path, "add", "-A")
        git(tmp_path, "commit", "--allow-empty", "-m", "toy")
    environment = os.environ | {
        "BASE": "HEAD~1", "HEAD": "HEAD", "TESTS": "benchmarks", "INSTALL": "", "THREADS": "1",
        "TOLERANCE": "0.1", "MINUTES": "30", "GITHUB_ACTION_PATH": str(GATE), "PYTHONPATH": "",
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }  # fmt: skip
    done = subprocess.run(["bash", "-c", script()], cwd=tmp_path, env=environment, check=False)
    summary = (tmp_path / "summary.md").read_text()
    assert done.returncode == status, summary
    assert words in summary
    assert "minutes" in summary
