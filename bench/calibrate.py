"""How often is the gate wrong? `python -m bench.calibrate RECORD.jsonl --minutes 4`, repeatedly.

Three arms: this fastcos against itself, and against itself with the driver of kernels made slower
by so much that a whole benchmark takes 20% longer, or 10% longer (suite.SlowDriver); a few pairs of
a trial first tell how much of what is injected arrives in every benchmark. What is recorded is
pairs of processes, as the gate runs them; every benchmark of an arm is measured until the gate has
said its last word on it, so none is left out for being hard to tell. Each pair appends one line: a
calibration can be made in slices on a machine that is quiet at times, and on several cores at once.
`--report` hands what was recorded to the gate's own verdict; `--readme` keeps that.
"""

import argparse
import datetime
import json
import re
import sys
import time
from pathlib import Path

import numpy as np

from bench.gate import LEAST_PAIRS, Command, compare_pairs, taking_turns
from bench.gate.processes import TURNS
from bench.tables import cpu_name, versions

SUITE = Path(__file__).with_name("suite.py")
README = Path(__file__).with_name("README.md")
BEGIN, END = "<!-- begin bench.calibrate -->\n", "<!-- end bench.calibrate -->\n"
# injected, and how often the gate is asked about every benchmark
ARMS = {"nothing": (0.0, 2), "20%": (0.2, 2), "10%": (0.1, 1)}
# 10% is the tolerance, on which every comparison takes the most pairs: every so many benchmarks
EVERY = {"nothing": 1, "20%": 1, "10%": 8}
# pairs between two looks at what is still needed, and those of the trial
BATCH = 6
TRIAL, TRIAL_SHARE = "trial", 0.2


class Ended(Exception):
    """The record has no more pairs."""


class Replay:
    """The recorded pairs of one benchmark, as the gate asks for them."""

    def __init__(self, name, pairs):
        self.name, self.pairs, self.used = name, pairs, 0

    def __call__(self, _names):
        if self.used == len(self.pairs):
            raise Ended
        base, head = self.pairs[self.used]
        self.used += 1
        return {self.name: base}, {self.name: head}


def verdicts(name, pairs, most):
    """The gate's first verdicts, one after the other, and how many of the pairs they took."""
    found, replay, taken = [], Replay(name, pairs), 0
    while len(found) < most:
        try:
            found.append(compare_pairs(replay))
        except Ended:
            break
        taken = replay.used
    return found, taken


def pairs_of(lines, arm):
    """Pairs of every benchmark of an arm."""
    found = {}
    for line in lines:
        if line["injected"] == arm:
            for name, pair in line["pairs"].items():
                found.setdefault(name, []).append(pair)
    return found


def unfinished(lines, arm):
    """Benchmarks on which the gate has not said its last word."""
    pairs, most = pairs_of(lines, arm), ARMS[arm][1]
    names = sorted(arrived(lines) if ARMS[arm][0] else pairs_of(lines, TRIAL))
    names = names[:: EVERY[arm]]
    return [name for name in names if len(verdicts(name, pairs.get(name, []), most)[0]) < most]


def arrived(lines):
    """How much slower benchmarks were in the trial, where the driver has a part in them."""
    seen = {name: seen_in(pairs) for name, pairs in pairs_of(lines, TRIAL).items()}
    return {name: more for name, more in seen.items() if more > TRIAL_SHARE / 2}


def seen_in(pairs):
    """Median slow-down; what was meant, where the trial scatters too much to tell."""
    logs = [np.median(np.log(head) - np.log(base)) for base, head in pairs]
    clear = np.std(logs) / np.sqrt(len(logs)) < TRIAL_SHARE / 6
    return np.expm1(np.median(logs)) if clear else TRIAL_SHARE


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def measured(arm, lines, select):
    """What measures one pair of an arm."""
    words = [sys.executable, "-P", str(SUITE), "--serve", "--select", select]
    shares = TRIAL_SHARE
    if arm != TRIAL:
        shares = {name: ARMS[arm][0] * TRIAL_SHARE / more for name, more in arrived(lines).items()}
    slowed = shares if arm == TRIAL or ARMS[arm][0] else 0
    head = Command(words, {"BENCH_SLOWDOWN": json.dumps(slowed)})
    return taking_turns(Command(words), head, TURNS)


def record(path, minutes, select):
    """Pairs, one arm after the other, until the minutes are over or nothing is left to be said."""
    stop = time.monotonic() + 60 * minutes
    while True:
        lines = read(path)
        tried = sum(line["injected"] == TRIAL for line in lines)
        left = {TRIAL: []} if tried < BATCH else {arm: unfinished(lines, arm) for arm in ARMS}
        chosen = {
            arm: [name for name in names if re.search(select, name)] for arm, names in left.items()
        }
        arm = next((arm for arm in chosen if chosen[arm] or arm == TRIAL), None)
        if arm is None:
            print("bench.calibrate: nothing is left to be measured", file=sys.stderr)
            return
        pair = measured(arm, lines, select)
        for _ in range(BATCH):
            if time.monotonic() > stop:
                return
            base, head = pair(chosen[arm])
            if arm == TRIAL:  # where the driver has no part, head has left it out
                head = base | head
            both = {name: (base[name], head[name]) for name in base if name in head}
            line = {"injected": arm, "date": str(datetime.date.today()), "pairs": both}
            with path.open("a") as file:
                file.write(json.dumps(line) + "\n")


def report(lines):
    """Markdown: how often the gate failed, by arm, and what it saw."""
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
        # a look was taken, and the record ended before the verdict
        left = sum(
            len(some) < most and len(pairs[name]) - taken >= LEAST_PAIRS
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
    return [*rows, "", *spreads(lines)]


def spreads(lines):
    """Markdown: scatter of the pairs of equal code, over benchmarks."""
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


USED = ("fastcos", "numba", "numpy", "scipy")


def into_readme(text):
    """Put the record between its marks."""
    before, rest = README.read_text("utf8").split(BEGIN)
    README.write_text(f"{before}{BEGIN}{text}{END}{rest.split(END)[1]}", "utf8")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("record", type=Path)
    parser.add_argument("--minutes", type=float, default=4)
    parser.add_argument("--select", default="", metavar="REGEX")
    parser.add_argument("--report", action="store_true", help="judge what was recorded")
    parser.add_argument("--readme", action="store_true", help="and keep that in README.md")
    given = parser.parse_args()
    if given.report or given.readme:
        text = "\n".join(report(read(given.record)))
        print(text)
        if given.readme:
            into_readme(text)
    else:
        record(given.record, given.minutes, given.select)


if __name__ == "__main__":
    main()
