"""Compare how five tools judge the same slowdowns: ``python compare_tools.py results.jsonl --minutes 9``.

The tools take turns. In each turn, the script creates the toy project, and one tool compares its two commits.
The second commit has the same code as the first one, or its code is 15 % or 30 % slower. A line of
results.jsonl holds the verdicts of one tool on four benchmarks. Without --minutes the command prints a table
of all lines in the file.

The script needs an environment with benchgate, pytest-benchmark, benchmatrix, pytest-codspeed, asv and
virtualenv. For all tools, the limit is a slowdown of 10 %. All other settings are the defaults of the tools,
except for some settings that shorten a run:

- pytest-benchmark: ``--benchmark-compare-fail=median:10%``, one process per commit;
- asv: ``asv continuous --factor 1.1``, 2 rounds, 5 to 10 samples per round;
- benchmatrix: ``collect-paired`` with its default number of pairs and 0.1 s per benchmark, then
  ``compare --paired --threshold 10%``. With ``--fail-on-regression``, a run also fails if a benchmark is
  "inconclusive";
- pytest-codspeed: only its wall-time instrument is used. It measures each benchmark for 1 s after 0.2 s of
  warm-up, in one process per commit. Only CodSpeed's service can compare two such results, and this service
  is not available here. The script therefore compares the medians itself. It uses the default threshold of
  the service, 10 %.
"""

import argparse
import contextlib
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import toy

NAMES = ("loop", "sorted", "json", "sum")
ARMS = (0.0, 0.15, 0.0, 0.30)


def run(folder, *words):
    """Run a program of this environment in a folder, and return its output."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    process = subprocess.run(
        words, cwd=folder, env=os.environ | {"PATH": path}, capture_output=True, text=True, check=False
    )
    return process.stdout + process.stderr


def names_in(text):
    """Return the benchmarks that a text names in brackets or quotes."""
    return sorted({name for name in NAMES if re.search(rf"\[{name}\]|'{name}'", text)})


def benchgate(base, head):
    """Return the benchmarks that benchgate reports as slower, and whether benchgate exits with status 1."""
    run(head, "benchgate", "HEAD~1", "HEAD", "--install", "", "--json", "gate.json", "--", "benchmarks")
    result = json.loads((head / "gate.json").read_text())
    slower = names_in(
        " ".join(benchmark["name"] for benchmark in result["benchmarks"] if benchmark["status"] == "slower")
    )
    return slower, result["exit_status"] == 1


def compare_fail(base, head):
    """Return the benchmarks for which pytest-benchmark fails."""
    storage = f"--benchmark-storage={head / 'saved'}"
    run(base, "python", "-m", "pytest", "-q", storage, "--benchmark-save=base", "benchmarks")
    fail = ("--benchmark-compare=0001", "--benchmark-compare-fail=median:10%")
    printed = run(head, "python", "-m", "pytest", "-q", storage, *fail, "benchmarks")
    slower = names_in("\n".join(line for line in printed.splitlines() if "PercentageRegressionCheck" in line))
    return slower, bool(slower)


def asv(base, head):
    """Return the benchmarks that asv continuous reports as slower."""
    run(head, "asv", "machine", "--yes")
    attributes = ("-a", "rounds=2", "-a", "repeat=(5,10,0.3)")
    printed = run(head, "asv", "continuous", "--factor", "1.1", *attributes, "HEAD~1", "HEAD")
    assert "100.00%" in printed, printed
    slower = names_in("\n".join(line for line in printed.splitlines() if line.startswith("| +")))
    return slower, bool(slower)


def benchmatrix(base, head):
    """Return the benchmarks that regressed, and whether --fail-on-regression fails."""
    pytest = ("python", "-m", "pytest", "-q", "--benchmark-only", "--benchmark-max-time=0.1", "matrix")
    folders = ("--output", "pairs", "--baseline-cwd", str(base), "--candidate-cwd", str(head))
    run(head, "benchmatrix", "collect-paired", *folders, "--", *pytest, ":::", *pytest)
    printed = run(
        head, "benchmatrix", "compare", "pairs", "--paired", "--threshold", "10%", "--format", "json"
    )
    result = json.loads(printed[printed.index("{") :])
    slower = [
        comparison["case_name"]
        for comparison in result["comparisons"]
        if comparison["regression"] == "regressed"
    ]
    return sorted(slower), not result["comparison_passed"]


def codspeed(base, head):
    """Return the benchmarks whose medians by pytest-codspeed differ by more than 10 %."""
    medians = []
    for folder in (base, head):
        options = ("--codspeed-mode", "walltime", "--codspeed-max-time", "1", "--codspeed-warmup-time", "0.2")
        run(folder, "python", "-m", "pytest", "-q", "--codspeed", *options, "benchmarks")
        (file,) = (folder / ".codspeed").glob("*.json")
        medians.append({
            name: benchmark["stats"]["median_ns"]
            for benchmark in json.loads(file.read_text())["benchmarks"]
            for name in names_in(benchmark["name"])
        })  # fmt: skip
    slower = [name for name in sorted(medians[0]) if medians[1][name] > 1.1 * medians[0][name]]
    return slower, bool(slower)


TOOLS = {
    "benchgate": benchgate,
    "pytest-benchmark, `--benchmark-compare-fail`": compare_fail,
    "`asv continuous`": asv,
    "benchmatrix": benchmatrix,
    "pytest-codspeed, wall time": codspeed,
}


def measure(path, minutes):
    """Let the tools make comparisons while time remains; append a line to the file after each comparison."""
    stop = time.monotonic() + 60 * minutes
    lines = read(path)
    while True:
        count = defaultdict(int)
        for line in lines:
            count[line["tool"]] += 1
        tool = min(TOOLS, key=lambda name: count[name])
        slowdown = ARMS[count[tool] % len(ARMS)]
        with tempfile.TemporaryDirectory() as scratch:
            head, base = Path(scratch) / "head", Path(scratch) / "base"
            toy.create(head, slowdown, NAMES)
            toy.git(head, "worktree", "add", str(base), "HEAD~1")
            started = time.monotonic()
            try:
                slower, fails = TOOLS[tool](base, head)
            except Exception as error:  # a failure of the tool is recorded, but not counted as a result
                slower, fails = f"{type(error).__name__}: {error}"[:300], None
            seconds = time.monotonic() - started
        line = {
            "tool": tool,
            "slowdown": slowdown,
            "slower": slower,
            "fails": fails,
            "benchmarks": len(NAMES),
            "seconds": round(seconds, 1),
            "load": round(os.getloadavg()[0], 1),
            "date": time.strftime("%Y-%m-%d"),
        }
        lines.append(line)
        with path.open("a") as file:
            file.write(json.dumps(line) + "\n")
        if time.monotonic() + max(earlier_line["seconds"] for earlier_line in lines) > stop:
            return


def read(path):
    """Return the lines of a file of results."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def table(lines):
    """Return the table of all results as Markdown."""
    rows = [
        "| tool | equal code: reported as slower | equal code: runs that fail | equal code: seconds "
        "| +15 %: reported | +30 %: reported | +30 %: seconds |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for tool in TOOLS:
        tool_lines = [line for line in lines if line["tool"] == tool and line["fails"] is not None]
        cells = []
        for arm in sorted(set(ARMS)):
            comparisons = [line for line in tool_lines if line["slowdown"] == arm]
            slower, total = (sum(counts) for counts in zip(*(
                (len(line["slower"]), line["benchmarks"]) for line in comparisons
            ), strict=True)) if comparisons else (0, 0)  # fmt: skip
            cells.append(f"{slower} of {total}" if total else "not run")
            if arm == 0:
                fails = sum(line["fails"] for line in comparisons)
                cells.append(f"{fails} of {len(comparisons)}" if total else "not run")
            # A run may take longer if there is a slow-down, because some tools then measure again. The table
            # therefore lists the duration of a run without a slow-down, and the duration of a run with the
            # largest slow-down.
            if arm in (0, max(ARMS)):
                seconds = [line["seconds"] for line in comparisons]
                cells.append(f"{statistics.median(seconds):.0f}" if seconds else "")
        rows.append(f"| {' | '.join([tool, *cells])} |")
    return "\n".join(rows)


def main():
    """Measure, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("--minutes", type=float, default=0.0)
    options = parser.parse_args()
    if options.minutes:
        with contextlib.suppress(KeyboardInterrupt):
            measure(options.results, options.minutes)
    print(table(read(options.results)))


if __name__ == "__main__":
    main()
