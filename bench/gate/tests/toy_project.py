"""A toy project with three benchmarks and two commits. The second commit makes one of several changes."""

import os
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src"
TURNS = 20_000
MODULE = """
def work():
    total = 0
    for i in range({turns}):
        total += i
    return total
"""
TESTS = """
import toy


def test_work(benchmark):
    assert benchmark(toy.work) >= 0


def test_sum(benchmark):
    benchmark(sum, range(10_000))


def test_sort(benchmark):
    benchmark(sorted, list(range(5_000)))
"""
# The changes of a second commit: the new text of each file, or None to delete it.
SLOWER = {share: {"toy.py": MODULE.format(turns=round(TURNS * (1 + share)))} for share in (0.15, 0.30, 1.0)}
CHANGES = {
    "equal": {},
    "15 % slower": SLOWER[0.15],
    "exception": {"toy.py": "def work():\n    raise RuntimeError('boom')\n"},
    "segfault": {"toy.py": "import ctypes\ndef work():\n    ctypes.string_at(0)\n"},
    "import error": {"toy.py": "import a_module_that_does_not_exist\n"},
    "new file and renamed benchmark": {
        "toy.py": MODULE.format(turns=TURNS) + "\n\ndef new():\n    return 1\n",
        "benchmarks/test_new.py": (
            "from toy import new\n\n\ndef test_new(benchmark):\n    assert benchmark(new) == 1\n"
        ),
        "benchmarks/test_toy.py": TESTS.replace("test_sort", "test_order"),
    },
    "sleeping benchmark": {
        "toy.py": MODULE.format(turns=TURNS).replace(
            "def work():\n", "import time\n\ndef work():\n    time.sleep(0.005)\n"
        )
    },
    "30 % slower, --benchmark-skip in addopts": {
        "pytest.ini": "[pytest]\naddopts = --benchmark-skip\n",
        **SLOWER[0.30],
    },
}


def git(folder, *words):
    settings = ["-c", "user.name=t", "-c", "user.email=t@t", "-c", "init.defaultBranch=main"]
    subprocess.run(["git", *settings, *words], cwd=folder, check=True, capture_output=True)


def commit(folder, files):
    """Write or delete files of a repository, and commit the change."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink() if text is None else path.write_text(text)
    git(folder, "add", "-A")
    git(folder, "commit", "--allow-empty", "-m", "toy")


def project(folder, change):
    """Create the toy project in a folder, with two commits; the second commit makes the change."""
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init")
    first = {"toy.py": MODULE.format(turns=TURNS), "benchmarks/test_toy.py": TESTS}
    if "pytest.ini" in change:
        first["pytest.ini"] = change["pytest.ini"]
    commit(folder, first)
    commit(folder, change)
    return folder


def clean_environment():
    """Return the environment of this process, without the variables that pytest and coverage have set."""
    variables = {name: text for name, text in os.environ.items() if not name.startswith(("PYTEST_", "COV_"))}
    return variables | {"PYTHONPATH": str(SOURCE)}


def benchgate(folder, *words):
    """Run the command in a project; return its exit status, its standard output and its standard error."""
    process = subprocess.run(
        [sys.executable, "-m", "benchgate", *words],
        cwd=folder,
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    return process.returncode, process.stdout, process.stderr
