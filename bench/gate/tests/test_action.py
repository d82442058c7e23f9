"""Tests of the shell script in action.yml.

The script calls a stand-in for Python, which records its arguments instead of running benchgate.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import toy_project

GATE = Path(__file__).parents[1]
# This script replaces `python` on the path. The script makes a fake environment. When the interpreter of this
# environment is called, it writes the arguments of the call to a file and exits with STATUS.
FAKE_PYTHON = """#!/bin/sh
case "$1" in
  -c) echo /project/python;;
  -m) mkdir -p "$3/bin"
      printf '%s\\n' '#!/bin/sh' 'test "$2" != pip || { echo "$@" > pip; exit 0; }' \\
        'for word in "$@"; do echo "$word"; done > words' 'exit $STATUS' > "$3/bin/python"
      chmod +x "$3/bin/python";;
esac
"""


def script():
    """Return the shell script with which action.yml runs the gate."""
    lines = (GATE / "action.yml").read_text("utf8").partition("- id: gate")[2]
    return "\n".join(line[8:] for line in lines.partition("run: |\n")[2].splitlines())


def run_action(folder, **variables):
    """Run the script in a folder; return its exit status and its output."""
    fakes = folder / "fakes"
    fakes.mkdir()
    (fakes / "python").write_text(FAKE_PYTHON)
    (fakes / "python").chmod(0o755)
    environment = toy_project.clean_environment() | {
        "BASE": "HEAD~1",
        "HEAD": "HEAD",
        "TESTS": "benchmarks -k work",
        "INSTALL": ".[test]",
        "TOLERANCE": "0.1",
        "THREADS": "1",
        "MINUTES": "30",
        "OPTIONS": "",
        "IS_ACCEPTED": "false",
        "FAIL_IF_NOT_COMPARED": "false",
        "STATUS": "0",
        "GITHUB_ACTION_PATH": str(GATE),
        "GITHUB_STEP_SUMMARY": str(folder / "summary.md"),
        "GITHUB_OUTPUT": str(folder / "output"),
        "RUNNER_TEMP": str(folder),
        "PATH": f"{fakes}{os.pathsep}{os.environ['PATH']}",
        **variables,
    }
    process = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", script()],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return process.returncode, process.stdout + process.stderr


needs_bash = pytest.mark.skipif(
    shutil.which("bash") is None or sys.platform == "win32", reason="the fake interpreter is a shell script"
)


@needs_bash
@pytest.mark.parametrize(
    ("status", "variables", "expected"),
    [
        ("0", {}, 0),
        ("1", {}, 1),
        ("2", {}, 2),
        ("3", {}, 0),
        ("3", {"FAIL_IF_NOT_COMPARED": "true"}, 3),
    ],
)
def test_exit_status_of_the_step(tmp_path, status, variables, expected):
    toy_project.project(tmp_path, {})
    exit_status, printed = run_action(tmp_path, STATUS=status, **variables)
    assert exit_status == expected, printed
    assert (tmp_path / "output").read_text() == f"status={status}\n"
    assert ("::warning" in printed) == (status == "3" and expected == 0)


@needs_bash
@pytest.mark.parametrize("is_accepted", ["true", "false"])
def test_arguments_of_the_command(tmp_path, is_accepted):
    toy_project.project(tmp_path, {})
    status, printed = run_action(tmp_path, IS_ACCEPTED=is_accepted, OPTIONS="--wall --json gate.json")
    assert status == 0, printed
    words = (tmp_path / "words").read_text().splitlines()
    commit = subprocess.run(["git", "rev-parse", "HEAD~1"], cwd=tmp_path, capture_output=True, text=True)
    assert words[:4] == ["-m", "benchgate", commit.stdout.strip(), "HEAD"]
    assert ("--accept" in words) == (is_accepted == "true")
    assert words[words.index("--install") + 1] == ".[test]"
    assert words[words.index("--python") + 1] == "/project/python"
    assert words[-6:] == ["--json", "gate.json", "--", "benchmarks", "-k", "work"]
    assert (tmp_path / "pip").read_text().split()[-1] == str(GATE)
