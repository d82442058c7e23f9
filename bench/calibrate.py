"""How often is the gate wrong? `python -m bench.calibrate RECORD.jsonl --minutes 4`, repeatedly.

Arms take turns, each in a fresh process: this fastcos, the same again, and with every kernel
driver made to take 20% longer; in some rounds 10% longer, and twice as long, which tells what share
of a benchmark's time kernels have. Each round appends one line to the record, so a calibration can
be made in slices on a machine that is quiet at times, and on several cores at once.
`--report` judges what was recorded as the gate does, verdict after verdict: a first look at 10 to
30 pairs, and a second one at the next pairs where the first said slow. It also judges the A/A pairs
with 20% added to all of one side, in every benchmark.
"""

import argparse
import itertools
import json
import random
import sys
import time
from pathlib import Path

import numpy as np

from bench.gate import TURNS
from fastcos.gate import LEAST_PAIRS, MOST_PAIRS, interval
from fastcos.gate_processes import Command, in_turns

SUITE = Path(__file__).with_name("suite.py")
ARMS = {"plain": 0.0, "again": 0.0, "ten": 0.10, "twenty": 0.20, "double": 1.0}
EVERY = {"ten": 4, "double": 6}
TOLERANCE, CONFIDENCE = 0.10, 0.99
# of its time: what is injected arrives in a benchmark whose kernels have at least so much
KERNELS_SHARE = 0.9


def record(path, minutes, select):
    words = [sys.executable, "-P", str(SUITE), "--serve", "--select", select]
    sides = {arm: Command(words, {"BENCH_SLOWDOWN": str(share)}) for arm, share in ARMS.items()}
    stop = time.monotonic() + 60 * minutes
    done = len(path.read_text().splitlines()) if path.exists() else 0
    for number in itertools.count(done):
        if time.monotonic() > stop:
            return
        arms = [arm for arm in ARMS if number % EVERY.get(arm, 1) == 0]
        order = random.sample(arms, len(arms))
        found = in_turns([sides[arm] for arm in order], TURNS, ())
        with path.open("a") as file:
            file.write(json.dumps(dict(zip(order, found, strict=True))) + "\n")


def times_of(rounds, arm, name):
    """Seconds of plain and of arm, in the rounds that have both."""
    both = [one for one in rounds if arm in one and name in one["plain"]]
    return np.array([[one["plain"][name], one[arm][name]] for one in both]).T


def look(times, start):
    """Whether rounds from start on say slow, None where they end before they say; and how many."""
    for end in range(start + LEAST_PAIRS, start + MOST_PAIRS + 1, LEAST_PAIRS):
        plain, other = times[:, start:end]
        if len(plain) < end - start:
            return None, len(plain)
        low, middle, _ = interval(np.log(other / plain), CONFIDENCE, seed=start)
        if not low <= 1 + TOLERANCE < middle:
            break
    return bool(low > 1 + TOLERANCE), end - start


def verdicts(times):
    """Slow at the first look, and at both, over the rounds of one benchmark; None: they ended."""
    found, start = [], 0
    while True:
        first, first_rounds = look(times, start)
        if first_rounds < LEAST_PAIRS:
            return found
        again, rounds = look(times, start + first_rounds) if first else (first, 0)
        if rounds and rounds < LEAST_PAIRS:
            return found
        found.append((first, again))
        start += first_rounds + rounds


def report(path):
    rounds = [json.loads(line) for line in path.read_text().splitlines()]
    names = sorted({name for one in rounds for name in one["plain"]})
    times = {
        (arm, name): times_of(rounds, arm, name) for arm in ARMS if arm != "plain" for name in names
    }
    logs = {key: np.log(other / plain) for key, (plain, other) in times.items()}
    # an operation that spends half of its time outside of kernels gets half of what is injected
    share = {name: np.divide(*times["double", name].min(axis=1)[::-1]) - 1 for name in names}
    arrived = [name for name in names if share[name] >= KERNELS_SHARE]
    print(f"{len(rounds)} rounds, {len(names)} benchmarks; kernels have at least "
          f"{KERNELS_SHARE:.0%} of the time of {len(arrived)}\n")  # fmt: skip
    print("| injected | benchmarks | seen, median | comparisons | slow at first | failed | open |")
    print("|---|---|---:|---:|---:|---:|---:|")
    for label, arm, which, factor in (
        ("nothing", "again", names, 1.0),
        ("10% into the driver", "ten", arrived, 1.0),
        ("20% into the driver", "twenty", arrived, 1.0),
        ("10% added to A/A", "again", names, 1.1),
        ("20% added to A/A", "again", names, 1.2),
    ):
        added = np.array([[1.0], [factor]])
        judgements = [both for name in which for both in verdicts(added * times[arm, name])]
        if not judgements:
            continue
        unsaid = sum(both is None for _, both in judgements)
        flagged = sum(first is True for first, _ in judgements)
        failed = sum(both is True for _, both in judgements)
        seen = factor * np.exp(np.median(np.concatenate([logs[arm, name] for name in which])))
        n = len(judgements) - unsaid
        print(
            f"| {label} | {'all' if which is names else 'kernels'} | {seen - 1:+.1%} "
            f"| {n} | {flagged} | {failed} ({failed / n:.1%}) | {unsaid} |"
        )
    print("\n| benchmark | ms | share of kernels | 20% seen as | spread of A/A ratios |")
    print("|---|---:|---:|---:|---:|")
    for name in names:
        milliseconds = 1e3 * np.median(times["again", name][0])
        twenty = np.expm1(np.median(logs["twenty", name]))
        print(
            f"| `{name}` | {milliseconds:.3g} | {share[name]:.0%} | {twenty:+.1%} "
            f"| {np.std(logs['again', name]):.1%} |"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("record", type=Path)
    parser.add_argument("--minutes", type=float, default=4)
    parser.add_argument("--select", default="", metavar="REGEX")
    parser.add_argument("--report", action="store_true")
    given = parser.parse_args()
    if given.report:
        report(given.record)
    else:
        record(given.record, given.minutes, given.select)


if __name__ == "__main__":
    main()
