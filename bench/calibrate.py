"""Error rates of the gate: `python -m bench.calibrate RECORD.jsonl --minutes 4`, repeatedly.

The arms: gate/toy.py against itself, and against itself with calls that take 5 to 30% longer
(BENCH_SLOWDOWN). The record, docs/dev/gate_record.jsonl, holds pairs of
processes as the gate runs them, one line each, so that slices of different hours and cores add up.
Every benchmark of an arm is measured until the gate has decided it. `--docs`
passes the record to the gate's own code, and writes the error rates into docs/dev/benchmarks.md.
"""

import argparse
import contextlib
import datetime
import json
import os
import sys
import time
from collections import defaultdict
from pathlib import Path

import numpy as np

from bench.gate import MIN_PAIRS, compare_pairs
from bench.gate.intervals import log_ratios
from bench.gate.processes import interleaved, serving
from bench.markdown import cpu_name, replace_between, table, versions_of

BENCH = Path(__file__).parent
DOCS = Path(__file__).parents[1] / "docs" / "dev" / "benchmarks.md"
BEGIN, END = "<!-- begin bench.calibrate -->\n", "<!-- end bench.calibrate -->\n"
# pairs between two checks of what is undecided
BATCH = 6
# a toy project, which starts quickly; the options and fixtures of bench/ do not apply
TESTS = [BENCH / "gate" / "toy.py", "--noconftest", "-c", os.devnull]
# slow-down, verdicts per benchmark, and one benchmark of how many is measured: at the tolerance,
# 10%, each comparison takes the most pairs
ARMS = {
    "nothing": (0.0, 9, 1), "30%": (0.3, 2, 1), "15%": (0.15, 2, 1), "5%": (0.05, 2, 1),
    "10%": (0.1, 1, 3),
}  # fmt: skip


def verdicts(pairs, arm):
    """Return the gate's first verdicts on a benchmark, from its recorded pairs."""
    recorded, found = iter([({"": base}, {"": head}) for base, head in pairs]), []
    with contextlib.suppress(StopIteration):  # the record has no more pairs
        while len(found) < ARMS[arm][1]:
            found.append(compare_pairs(lambda names: next(recorded)))
    return found


def pairs_used(verdict):
    return sum(one.pairs for one in (*verdict.ratios, *verdict.suspects))


def pairs_of(lines, arm):
    """Return the pairs of every benchmark of an arm."""
    found = defaultdict(list)
    for line in lines:
        if line["injected"] == arm:
            for name, pair in line["pairs"].items():
                found[name].append(pair)
    return found


def undecided(lines, arm):
    """Return the benchmarks without all their verdicts."""
    pairs, (_, most, stride) = pairs_of(lines, arm), ARMS[arm]
    names = sorted(pairs_of(lines, "nothing"))[::stride]
    return [name for name in names if len(verdicts(pairs[name], arm)) < most]


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def record(path, minutes):
    """Measure pairs, one arm after the other, until the time is over or all is decided."""
    stop = time.monotonic() + 60 * minutes
    while True:
        lines = read(path)
        left = ((arm, names) for arm in ARMS if (names := undecided(lines, arm)))
        # the names are those of the first pairs
        arm, names = next(left, (None, [])) if lines else ("nothing", [])
        if arm is None:
            print("bench.calibrate: nothing is left to measure", file=sys.stderr)
            return
        pair = interleaved(*(
            serving(sys.executable, TESTS, 1, {"BENCH_SLOWDOWN": str(slowdown)})
            for slowdown in (0, ARMS[arm][0])
        ))  # fmt: skip
        for _ in range(BATCH):
            if time.monotonic() > stop:
                return
            base, head = pair(names)
            both = {
                name: [[float(f"{one:.4g}") for one in side[name]] for side in (base, head)]
                for name in base
                if name in head
            }
            line = {"injected": arm, "date": str(datetime.date.today()), "pairs": both}
            with path.open("a") as file:
                file.write(json.dumps(line) + "\n")


def report(lines):
    """Return Markdown: failures of the gate and observed slow-downs, by arm, and their scatter."""
    header = (
        "injected", "benchmarks", "seen", "comparisons", "slow at first", "**failed**", "undecided",
        "pairs", "left open",
    )  # fmt: skip
    rows = []
    for arm, (_, most, _) in ARMS.items():
        pairs = pairs_of(lines, arm)
        found = {name: verdicts(pairs[name], arm) for name in pairs}
        every = [verdict for some in found.values() for verdict in some]
        if not every:
            continue
        # analysed at least once, without a verdict when the record ended
        left = sum(
            len(some) < most and len(pairs[name]) - sum(map(pairs_used, some)) >= MIN_PAIRS
            for name, some in found.items()
        )
        failed = sum(bool(verdict.slower) for verdict in every)
        rows.append((
            arm, len(found), f"{np.median([v.ratios[0].ratio for v in every]) - 1:+.1%}",
            len(every), sum(bool(v.suspects) for v in every),
            f"**{failed} ({failed / len(every):.1%})**", sum(bool(v.undecided) for v in every),
            round(np.mean([pairs_used(v) for v in every])), left,
        ))  # fmt: skip
    deviations = [np.std(log_ratios(some)) for some in pairs_of(lines, "nothing").values()]
    low, middle, high = np.quantile(deviations, [0, 0.5, 1])
    dates = [line["date"] for line in lines]
    machine = [
        f"{len(lines)} pairs of processes", " to ".join(sorted({min(dates), max(dates)})),
        cpu_name(), *map(" ".join, versions_of(("fastcos", "numba", "numpy", "scipy")).items()),
    ]  # fmt: skip
    scatter = (
        f"Ratios of equal code scatter by {middle:.1%} from pair to pair ({low:.1%} to {high:.1%}, "
        f"by benchmark). {', '.join(machine)}."
    )
    return [*table("lrrrrrrrr", header, rows), "", scatter, ""]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("record", type=Path)
    parser.add_argument("--minutes", type=float, default=4)
    parser.add_argument("--docs", action="store_true", help="write the error rates into the docs")
    given = parser.parse_args()
    if not given.docs:
        record(given.record, given.minutes)
    elif lines := read(given.record):
        replace_between(DOCS, BEGIN, END, "\n".join(report(lines)))
    else:
        parser.error(f"RECORD must hold pairs, got {given.record}")


if __name__ == "__main__":
    main()
