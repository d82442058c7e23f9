"""Error rates of the gate: `python -m bench.calibrate RECORD.jsonl --minutes 4`, repeatedly.

Three arms: this fastcos against itself, and against itself with calls that take 20% or 10% longer
(BENCH_SLOWDOWN, in test_throughput.py). The record holds pairs of processes as the gate runs them,
one line each, so that slices of different hours and cores add up. Every benchmark of an arm is
measured until the gate has decided it. `--report` passes the record to the gate's own code;
`--docs` writes the result into docs/dev/benchmarks.md.
"""

import argparse
import datetime
import json
import sys
import time
from pathlib import Path

import numpy as np

from bench.gate import MIN_PAIRS, Command, compare_pairs, interleaved
from bench.gate.__main__ import THREADS
from bench.tables import cpu_name, replace_between, versions

BENCH = Path(__file__).parent
DOCS = Path(__file__).parents[1] / "docs" / "dev" / "benchmarks.md"
BEGIN, END = "<!-- begin bench.calibrate -->\n", "<!-- end bench.calibrate -->\n"
# injected slow-down, and verdicts per benchmark
ARMS = {"nothing": (0.0, 2), "20%": (0.2, 2), "10%": (0.1, 1)}
# at the tolerance, 10%, each comparison takes the most pairs: one benchmark of this many
STRIDE = {"nothing": 1, "20%": 1, "10%": 8}
# pairs between two checks of what is undecided
BATCH = 6
# packages whose versions the report names
USED = ("fastcos", "numba", "numpy", "scipy")


class RecordEnded(Exception):
    """The record has no more pairs."""


class Replay:
    """The recorded pairs of one benchmark, one per call of the gate."""

    def __init__(self, name, pairs):
        self.name, self.pairs, self.used = name, pairs, 0

    def __call__(self, _names):
        if self.used == len(self.pairs):
            raise RecordEnded
        base, head = self.pairs[self.used]
        self.used += 1
        return {self.name: base}, {self.name: head}


def verdicts(name, pairs, most):
    """Return the gate's first verdicts and how many pairs they took."""
    found, replay, taken = [], Replay(name, pairs), 0
    while len(found) < most:
        try:
            found.append(compare_pairs(replay))
        except RecordEnded:
            break
        taken = replay.used
    return found, taken


def pairs_of(lines, arm):
    """Return the pairs of every benchmark of an arm."""
    found = {}
    for line in lines:
        if line["injected"] == arm:
            for name, pair in line["pairs"].items():
                found.setdefault(name, []).append(pair)
    return found


def undecided(lines, arm):
    """Return the benchmarks without all their verdicts."""
    pairs, most = pairs_of(lines, arm), ARMS[arm][1]
    names = sorted(pairs_of(lines, "nothing"))[:: STRIDE[arm]]
    return [name for name in names if len(verdicts(name, pairs.get(name, []), most)[0]) < most]


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def pair_of(arm, select):
    """Return the function that measures one pair of an arm."""
    serve = [sys.executable, str(BENCH / "gate" / "serve.py"), "--cpu", str(BENCH)]
    argv = [*serve, "--cases", "regular", *(["-k", select] if select else [])]
    one_thread = dict.fromkeys(THREADS, "1")
    head = Command(argv, one_thread | {"BENCH_SLOWDOWN": str(ARMS[arm][0])})
    return interleaved(Command(argv, one_thread), head)


def record(path, minutes, select):
    """Measure pairs, one arm after the other, until the time is over or all is decided."""
    stop = time.monotonic() + 60 * minutes
    while True:
        lines = read(path)
        # the names are those of the first pairs
        left = {arm: undecided(lines, arm) for arm in ARMS} if lines else {"nothing": []}
        arm = next((arm for arm in left if left[arm] or not lines), None)
        if arm is None:
            print("bench.calibrate: nothing is left to measure", file=sys.stderr)
            return
        pair = pair_of(arm, select)
        for _ in range(BATCH):
            if time.monotonic() > stop:
                return
            base, head = pair(left[arm])
            both = {name: (base[name], head[name]) for name in base if name in head}
            line = {"injected": arm, "date": str(datetime.date.today()), "pairs": both}
            with path.open("a") as file:
                file.write(json.dumps(line) + "\n")


def report(lines):
    """Return Markdown: failures of the gate and observed slow-downs, by arm."""
    rows = [
        "| injected | benchmarks | seen | comparisons | slow at first | **failed** | undecided "
        "| pairs | left open |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for arm, (_, most) in ARMS.items():
        pairs = pairs_of(lines, arm)
        found = {name: verdicts(name, pairs[name], most) for name in pairs}
        every = [verdict for some, _ in found.values() for verdict in some]
        if not every:
            continue
        # analysed at least once, without a verdict when the record ended
        left = sum(
            len(some) < most and len(pairs[name]) - taken >= MIN_PAIRS
            for name, (some, taken) in found.items()
        )
        failed = sum(bool(verdict.slower) for verdict in every)
        used = [sum(one.pairs for one in (*v.ratios, *v.suspects)) for v in every]
        rows.append(
            f"| {arm} | {len(found)} | {np.median([v.ratios[0].ratio for v in every]) - 1:+.1%} "
            f"| {len(every)} | {sum(bool(v.suspects) for v in every)} "
            f"| **{failed} ({failed / len(every):.1%})** | {sum(bool(v.undecided) for v in every)} "
            f"| {np.mean(used):.0f} | {left} |"
        )
    return [*rows, "", *scatter(lines)]


def scatter(lines):
    """Return Markdown: scatter of the ratios of equal code, over benchmarks."""
    pairs = pairs_of(lines, "nothing").values()
    logs = [[np.median(np.log(head) - np.log(base)) for base, head in some] for some in pairs]
    low, middle, high = np.quantile([np.std(some) for some in logs], [0, 0.5, 1])
    dates = sorted({line["date"] for line in lines})
    used = ", ".join(f"{name} {number}" for name, number in versions().items() if name in USED)
    return [
        f"Ratios of equal code scatter by {middle:.1%} from pair to pair ({low:.1%} to {high:.1%}, "
        f"by benchmark). {len(lines)} pairs of processes, {' to '.join(dict.fromkeys(dates))}, "
        f"{cpu_name()}, {used}.",
        "",
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("record", type=Path)
    parser.add_argument("--minutes", type=float, default=4)
    parser.add_argument("--select", default="", metavar="EXPRESSION", help="-k of pytest")
    parser.add_argument("--report", action="store_true", help="print the error rates of the record")
    parser.add_argument("--docs", action="store_true", help="and write them into the docs")
    given = parser.parse_args()
    if given.report or given.docs:
        if not read(given.record):
            parser.error(f"RECORD must hold pairs, got {given.record}")
        text = "\n".join(report(read(given.record)))
        print(text)
        if given.docs:
            replace_between(DOCS, BEGIN, END, text)
    else:
        record(given.record, given.minutes, given.select)


if __name__ == "__main__":
    main()
