"""A toy project of twelve benchmarks, whose second commit is slower by a known share.

``python toy.py FOLDER 0.15`` creates the project. In the first commit, a benchmark repeats one operation 20
times. In the second commit, it repeats the operation 23 times, so it takes exactly 15 % more time than in
the first commit.
"""

import json
import subprocess
import sys
from pathlib import Path

REPEATS = 20
NAMES = [
    "loop",
    "sorted",
    "set",
    "join",
    "sum",
    "dict",
    "json",
    "regex",
    "zlib",
    "sha256",
    "mean",
    "comprehension",
]
CALLS = '''"""Operations of the standard library, each repeated."""

import hashlib
import json
import re
import statistics
import zlib

REPEATS = {repeats}
NAMES = {names}
WORDS = [f"word {{number % 977}}" for number in range(2_000)]
TEXT = " ".join(WORDS)
NUMBERS = [(number * 7919) % 10_007 / 7 for number in range(2_000)]
RECORDS = [{{"id": number, "name": word}} for number, word in enumerate(WORDS[:100])]


def loop():
    total = 0
    for number in range(1_000):
        total += number * number
    return total


OPERATIONS = {{
    "loop": loop,
    "sorted": lambda: sorted(WORDS),
    "set": lambda: set(WORDS),
    "join": lambda: " ".join(WORDS),
    "sum": lambda: sum(NUMBERS),
    "dict": lambda: dict(zip(WORDS, NUMBERS)),
    "json": lambda: json.dumps(RECORDS),
    "regex": lambda: re.findall(r"\\bword 1\\d", TEXT),
    "zlib": lambda: zlib.compress(TEXT.encode()[:4_000]),
    "sha256": lambda: hashlib.sha256(TEXT.encode()).digest(),
    "mean": lambda: statistics.fmean(NUMBERS),
    "comprehension": lambda: [number * 2 for number in NUMBERS if number > 500],
}}


def run(name):
    operation = OPERATIONS[name]
    for _ in range(REPEATS):
        operation()
'''
TESTS = '''"""The benchmarks, for pytest-benchmark, benchgate and pytest-codspeed."""

import pytest

import calls


@pytest.mark.parametrize("name", calls.NAMES)
def test_call(benchmark, name):
    benchmark(calls.run, name)
'''
ASV = '''"""The same benchmarks, for asv."""

import calls


class Calls:
    params = calls.NAMES

    def time_call(self, name):
        calls.run(name)
'''
MATRIX = '''"""The same benchmarks, for benchmatrix."""

from benchmatrix import BenchmarkCase, make_benchmark_test

import calls

cases = [BenchmarkCase.from_values(name, name) for name in calls.NAMES]
test_calls = make_benchmark_test({"run": calls.run}, cases, metrics=["single_call_latency"])
'''
PROJECT = """\
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "toy"
version = "1.0"

[tool.setuptools]
py-modules = ["calls"]
"""
ASV_SETTINGS = {
    "version": 1,
    "project": "toy",
    "repo": ".",
    "branches": ["main"],
    "environment_type": "virtualenv",
    "benchmark_dir": "asv_benchmarks",
    "env_dir": ".asv/env",
    "results_dir": ".asv/results",
}


def git(folder, *words):
    """Run git in a folder, with a fixed author and branch, so that git needs no configuration."""
    author = ["-c", "user.name=toy", "-c", "user.email=toy@localhost", "-c", "init.defaultBranch=main"]
    subprocess.run(["git", *author, *words], cwd=folder, check=True, capture_output=True)


def create(folder, slowdown, names=NAMES):
    """Create the project with two commits, HEAD~1 and HEAD. HEAD is slower by the share ``slowdown``."""
    folder.mkdir(parents=True)
    files = {
        "benchmarks/test_calls.py": TESTS,
        "asv_benchmarks/__init__.py": "",
        "asv_benchmarks/calls_asv.py": ASV,
        "matrix/test_matrix.py": MATRIX,
        "pyproject.toml": PROJECT,
        "asv.conf.json": json.dumps(ASV_SETTINGS),
        "conftest.py": "",  # lets pytest import the module calls from this folder
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    git(folder, "init")
    for repeats in (REPEATS, round(REPEATS * (1 + slowdown))):
        (folder / "calls.py").write_text(CALLS.format(repeats=repeats, names=list(names)))
        git(folder, "add", "-A")
        git(folder, "commit", "--allow-empty", "-m", f"{repeats} repetitions")


if __name__ == "__main__":
    create(Path(sys.argv[1]), float(sys.argv[2]))
