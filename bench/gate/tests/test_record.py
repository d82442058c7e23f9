"""Tests of the folder ``record``.

The numbers in the README of the folder must follow from the recorded files, and the toy project of the
folder must work.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchgate import selftest

RECORD = Path(__file__).parents[1] / "record"
README = (RECORD / "README.md").read_text("utf8")
sys.path.insert(0, str(RECORD))


@pytest.mark.parametrize("file", sorted(RECORD.glob("*-zen*.json")), ids=lambda file: file.stem)
def test_rows_of_the_table_follow_from_the_recorded_pairs(file):
    record = json.loads(file.read_text())["log_ratios"]
    first_row, *other_rows = README.partition(file.name)[2].splitlines()
    rows = [first_row, *(row for row in other_rows[: len(record) - 1] if row.startswith("| | |"))]
    for row in rows:
        injected, comparisons, slower = (cell.strip() for cell in row.split("|")[-4:-1])
        logs = record[injected.replace("+", "").replace(" ", "")]
        verdicts = [is_slower for ratios in logs.values() for is_slower in selftest.comparisons(ratios)]
        assert (len(verdicts), sum(verdicts)) == (int(comparisons), int(slower)), injected


def test_no_op_runs_have_all_passed():
    lines = [json.loads(line) for line in (RECORD / "2026-11-28-no-op.jsonl").read_text().splitlines()]
    assert len(lines) == 20
    assert {line["status"] for line in lines} == {0}
    assert sum(len(line["benchmarks"]) for line in lines) == 60


def test_bound_is_that_of_all_comparisons_of_equal_code():
    new, old = (
        int(number)
        for number in re.search(r"made (\d+) comparisons .*?and (\d+) on", README, re.DOTALL).groups()
    )
    (bound,) = re.findall(r"fewer than ([\d.]+) %", README)
    # The README states the bound rounded upwards.
    assert 0 <= float(bound) - 100 * selftest.upper_bound(0, new + old) < 0.1


def test_toy_is_slower_by_its_share(tmp_path):
    import toy

    toy.create(tmp_path / "toy", 0.15, ["loop", "sum"])
    repeats = []
    for commit in ("HEAD~1", "HEAD"):
        text = subprocess.run(
            ["git", "show", f"{commit}:calls.py"],
            cwd=tmp_path / "toy",
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        space = {}
        exec(text, space)
        repeats.append(space["REPEATS"])
        assert space["NAMES"] == ["loop", "sum"]
        space["run"]("sum")
    assert repeats == [20, 23]


def test_table_counts_benchmarks_and_runs():
    import compare_tools

    lines = [
        {
            "tool": "benchgate",
            "slowdown": slowdown,
            "slower": slower,
            "fails": bool(slower),
            "benchmarks": 4,
            "seconds": seconds,
        }
        for slowdown, slower, seconds in (
            (0.0, [], 8), (0.0, ["sum"], 10), (0.15, ["sum", "loop"], 5), (0.3, ["sum"], 70)
        )
    ]  # fmt: skip
    row = compare_tools.table(lines).splitlines()[2]
    assert row == "| benchgate | 1 of 8 | 1 of 2 | 9 | 2 of 4 | 1 of 4 | 70 |"


def test_readme_shows_the_table_of_the_raw_results():
    import compare_tools

    rows = compare_tools.table(compare_tools.read(RECORD / "2026-11-28-tools.jsonl")).splitlines()[2:]
    assert len(rows) == len(compare_tools.TOOLS)
    for tool, row in zip(compare_tools.TOOLS, rows, strict=True):
        cells = row.removeprefix(f"| {tool}")
        assert any(line.startswith(f"| {tool}") and line.endswith(cells) for line in README.splitlines()), row
