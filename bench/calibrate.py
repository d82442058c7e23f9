"""How often is the gate wrong? `python -m bench.calibrate RECORD.jsonl --minutes 4`, repeatedly.

Four arms run in turn, each in a fresh process: this fastcos, the same again, and with every kernel
driver made to take 10% and 20% longer; 10% in every second round. Each round appends one line to
the record, so that a calibration can be made in slices on a machine that is quiet at times.
`--report` judges what was recorded as the gate does: 10 pairs are a first look, the next 10 the
second look at what looked slow (and the first look of the next verdict).
"""

import argparse
import itertools
import json
import random
import sys
import time
from pathlib import Path

import numpy as np

from fastcos.gate import LEAST_PAIRS, command_measure, judged

SUITE = Path(__file__).with_name("suite.py")
ARMS = {"plain": 0.0, "again": 0.0, "ten": 0.10, "twenty": 0.20}
TOLERANCE, CONFIDENCE = 0.10, 0.99


def record(path, minutes, select):
    command = [sys.executable, "-P", str(SUITE), "--select", select]
    sides = {
        arm: command_measure(command, {"BENCH_SLOWDOWN": str(share)}) for arm, share in ARMS.items()
    }
    stop = time.monotonic() + 60 * minutes
    for number in itertools.count():
        if time.monotonic() > stop:
            return
        arms = [arm for arm in ARMS if arm != "ten" or number % 2 == 0]
        order = random.sample(arms, len(arms))
        times = {arm: sides[arm]([]) for arm in order}
        with path.open("a") as file:
            file.write(json.dumps(times) + "\n")


def verdicts(rounds, arm):
    """Flagged at the first look, and at both, for every benchmark and block of 10 rounds."""
    rounds = [one for one in rounds if arm in one]
    blocks = []
    for start in range(0, len(rounds) - LEAST_PAIRS + 1, LEAST_PAIRS):
        block = rounds[start : start + LEAST_PAIRS]
        found = [one["plain"] for one in block], [one[arm] for one in block]
        ratios = judged(found, LEAST_PAIRS, CONFIDENCE, seed=start)
        blocks.append({one.name: one.low > 1 + TOLERANCE for one in ratios})
    for first, second in zip(blocks, blocks[1:] + blocks[:1], strict=True):
        yield from ((slow, slow and second[name]) for name, slow in first.items())


def report(path):
    rounds = [json.loads(line) for line in path.read_text().splitlines()]
    names = sorted(rounds[0]["plain"])
    logs = {
        arm: {
            name: np.log([one[arm][name] / one["plain"][name] for one in rounds if arm in one])
            for name in names
        }
        for arm in ("again", "ten", "twenty")
    }
    print(f"{len(rounds)} rounds, {len(names)} benchmarks\n")
    print("| injected | seen, median | comparisons | slow at the first look | failed by the gate |")
    print("|---|---:|---:|---:|---:|")
    for arm, of_names in logs.items():
        judgements = list(verdicts(rounds, arm))
        flagged, failed = (sum(column) for column in zip(*judgements, strict=True))
        seen, n = np.median(np.concatenate([*of_names.values()])), len(judgements)
        print(
            f"| {ARMS[arm]:.0%} | {np.expm1(seen):+.1%} | {n} | {flagged} ({flagged / n:.1%}) "
            f"| {failed} ({failed / n:.1%}) |"
        )
    print("\n| benchmark | ms | 10% seen as | 20% seen as | spread of A/A ratios |")
    print("|---|---:|---:|---:|---:|")
    for name in names:
        milliseconds = 1e3 * np.median([one["plain"][name] for one in rounds])
        seen = [np.expm1(np.median(logs[arm][name])) for arm in ("ten", "twenty")]
        print(
            f"| `{name}` | {milliseconds:.3g} | {seen[0]:+.1%} | {seen[1]:+.1%} "
            f"| {np.std(logs['again'][name]):.1%} |"
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
