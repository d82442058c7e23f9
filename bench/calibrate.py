"""How often is the gate wrong? `python -m bench.calibrate RECORD.jsonl --minutes 4`, repeatedly.

Four arms run in turn, each in a fresh process: this fastcos, the same again, and with every kernel
driver made to take 10% and 20% longer. Each round appends one line to the record, so that a
calibration can be made in slices on a machine that is quiet at times. `--report` judges what was
recorded as the gate does: blocks of 10 rounds, first look and second look.
"""

import argparse
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
    while time.monotonic() < stop:
        order = random.sample(list(ARMS), len(ARMS))
        times = {arm: sides[arm]([]) for arm in order}
        with path.open("a") as file:
            file.write(json.dumps(times) + "\n")


def looks(rounds, arm):
    """Of every block of 10 rounds, the ratios of arm to plain."""
    for start in range(0, len(rounds) - LEAST_PAIRS + 1, LEAST_PAIRS):
        block = rounds[start : start + LEAST_PAIRS]
        found = [one["plain"] for one in block], [one[arm] for one in block]
        yield {one.name: one for one in judged(found, LEAST_PAIRS, CONFIDENCE, seed=start)}


def report(path):
    rounds = [json.loads(line) for line in path.read_text().splitlines()]
    print(f"{len(rounds)} rounds, {len(rounds[0]['plain'])} benchmarks")
    print("| injected | comparisons | seen (median) | flagged at first | failed by the gate |")
    print("|---|---:|---:|---:|---:|")
    for arm in ("again", "ten", "twenty"):
        blocks = list(looks(rounds, arm))
        # a verdict takes a first look, and a second at what looked slow
        verdicts = [
            (first[name].low > 1 + TOLERANCE, second[name].low > 1 + TOLERANCE)
            for first, second in zip(blocks[::2], blocks[1::2], strict=False)
            for name in first
        ]
        flagged = sum(one for one, _ in verdicts)
        failed = sum(one and other for one, other in verdicts)
        seen = np.median([ratio.ratio for block in blocks for ratio in block.values()])
        n = len(verdicts)
        print(
            f"| {ARMS[arm]:.0%} | {n} | {seen - 1:+.1%} | {flagged} ({flagged / n:.1%}) "
            f"| {failed} ({failed / n:.1%}) |"
        )
    names = sorted(rounds[0]["plain"])
    print("\n| benchmark | seconds | 10% seen as | 20% seen as | spread of A/A ratios |")
    print("|---|---:|---:|---:|---:|")
    for name in names:
        of = {arm: np.array([one[arm][name] for one in rounds]) for arm in ARMS}
        ratios = {arm: of[arm] / of["plain"] for arm in ARMS}
        spread = np.std(np.log(ratios["again"]))
        print(
            f"| `{name}` | {np.median(of['plain']):.2e} | {np.median(ratios['ten']) - 1:+.1%} "
            f"| {np.median(ratios['twenty']) - 1:+.1%} | {spread:.1%} |"
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
