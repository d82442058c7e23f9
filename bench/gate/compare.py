"""Verdict on the speed of two sides, from times in interleaved pairs of fresh processes.

A pair of fresh processes is one sample, because the placement of threads and pages differs between
processes. The procedure and its error rates: bench/README.md and docs/dev/benchmarks.md of fastcos.
"""

import time
from collections import defaultdict
from typing import NamedTuple

import numpy as np

from .intervals import CONFIDENCE, Ratio, estimate_ratio

# fewer ratios have no useful interval
MIN_PAIRS = 10
# undecided benchmarks are measured further, each time twice as often: 10, 20, 40 and 80 pairs
ANALYSES = 4


class Verdict(NamedTuple):
    """The outcome of a comparison."""

    ratios: list[Ratio]  # benchmarks that both sides ran in every pair; the slowest first
    suspects: list[Ratio]  # the second series, of those whose interval was above the tolerance
    missing: list[str]  # benchmarks that base ran and head did not, or not in every pair
    new: list[str]  # benchmarks that only head ran
    tolerance: float
    reasons: dict[str, str]  # why a benchmark has no time: a wrong answer, or the gate refuses it
    unconfirmed: list[str]  # suspects that the time was too short to measure again

    @property
    def slower(self):
        """Benchmarks that are slower by more than the tolerance, in both series."""
        return [one for one in self.suspects if one.exceeds(1 + self.tolerance)]

    @property
    def undecided(self):
        """Benchmarks whose last interval contains the tolerance, after the most pairs."""
        last = {one.name: one for one in (*self.ratios, *self.suspects)}
        return [
            one
            for one in last.values()
            if one.exceeds(1 + self.tolerance) is None or one.name in self.unconfirmed
        ]

    @property
    def passed(self):
        """Whether benchmarks ran, none is missing and none is slower."""
        return bool(self.ratios) and not self.missing and not self.slower

    def markdown(self):
        """Return a summary for a pull request."""
        lists = {
            "Base ran these, head did not:": [f"`{name}`" for name in self.missing],
            "No time, because:": [f"`{name}`: {why}" for name, why in sorted(self.reasons.items())],
            "Only in head:": [f"`{name}`" for name in self.new],
            "Undecided:": [
                f"`{one.name}`, {one.low:.3f} to {one.high:.3f} after {one.pairs} pairs"
                for one in self.undecided
            ],
        }
        blocks = [
            f"### Speed: {self._headline()}",
            f"Ratio: head / base, trimmed mean of pairs of fresh processes, {CONFIDENCE:.0%} "
            f"bootstrap interval. Slower: the interval is above {1 + self.tolerance:.2f} in two "
            "series.",
        ]
        for title, entries in lists.items():
            blocks += [title, "\n".join(f"- {one}" for one in entries)] if entries else []
        if self.suspects:
            blocks += ["Second series, of the suspects:", _table(self.suspects), "First series:"]
        blocks += [_table(self.ratios)] if self.ratios else []
        # a table needs an empty line before it
        return "\n\n".join(blocks)

    def _headline(self):
        others = self.reasons.keys() - self.missing
        counts = {
            "slower": self.slower,
            "of base did not run": self.missing,
            "without a time": others,
            "undecided": self.undecided,
        }
        parts = [f"{len(found)} {words}" for words, found in counts.items() if found]
        if not self.ratios:
            return ", ".join(["failed, no benchmark ran on both sides", *parts])
        found = f"{'passed' if self.passed else 'failed'}, {len(self.ratios)} benchmarks compared"
        return ", ".join([found, *(parts or ["none slower"])])


def _table(ratios):
    rows = (
        f"| `{one.name}` | {1e3 * one.base:.3g} ms | {1e3 * one.head:.3g} ms "
        f"| {one.ratio:.3f} | {one.low:.3f} to {one.high:.3f} | {one.pairs} |"
        for one in ratios
    )
    header = "| benchmark | base | head | ratio | interval | pairs |"
    return "\n".join([header, "|---|---:|---:|---:|---:|---:|", *rows])


def compare_pairs(pair, pairs=MIN_PAIRS, tolerance=0.10, progress=None, seconds=np.inf):
    """Compare two sides by as many pairs as the verdict needs.

    Parameters
    ----------
    pair : callable(names)
        Measures these benchmarks, or all ([]), in one pair of processes. Returns a dict each of
        base and of head: benchmark to the seconds of its turns, or to the reason why it has none.
    pairs : int
        Pairs in the first analysis.
    tolerance : float
        How much slower head may be.
    progress : callable(done, total), optional
        Called after every pair.
    seconds : float
        Time of all pairs, of which the first series has two thirds. What is not decided then is
        reported as undecided.

    Returns
    -------
    Verdict
    """
    if pairs < MIN_PAIRS:
        raise ValueError(f"pairs must be at least {MIN_PAIRS}, got {pairs}")
    if not tolerance >= 0:
        raise ValueError(f"tolerance must be at least 0, got {tolerance}")
    start, reasons = time.monotonic(), {}
    given = pair, reasons, pairs, 1 + tolerance, progress
    ratios, missing, new = _series([], start + seconds * 2 / 3, *given)
    suspects = [one.name for one in ratios if one.exceeds(1 + tolerance)]
    again, lost, _ = _series(suspects, start + seconds, *given) if suspects else ([], [], [])
    measured = {one.name for one in again} | set(lost)
    unconfirmed = [name for name in suspects if name not in measured]
    return Verdict(ratios, again, sorted(missing + lost), new, tolerance, reasons, unconfirmed)


def _series(names, stop, pair, reasons, pairs, limit, progress):
    """Measure benchmarks, or all ([]), until each is decided, or analyses or the time are over.

    Returns the ratios, the slowest first, and the names of missing and of new benchmarks.
    """
    times, ratios, done = defaultdict(list), {}, 0
    known, new = set(names), set()
    for _ in range(ANALYSES):
        more = done or pairs
        for number in range(more):
            if time.monotonic() > stop:
                break
            base, head = sides = [{}, {}]
            for side, found in zip(sides, pair(names), strict=True):
                for name, one in found.items():
                    (reasons if isinstance(one, str) else side)[name] = one
            for name in base.keys() & head.keys():
                if len(base[name]) == len(head[name]):
                    times[name].append((base[name], head[name]))
            if not names:
                known |= base.keys()
                new |= head.keys()
            if progress:
                progress(number + 1, more)
            done += 1
        if done < MIN_PAIRS:
            if names:  # the second series: its benchmarks stay unconfirmed
                return [], [], []
            raise ValueError(f"time must suffice for {MIN_PAIRS} pairs, got {done}")
        for name in names or known:
            ratios.pop(name, None)
            if len(times[name]) == done:
                ratios[name] = estimate_ratio(name, times[name])
        names = sorted(name for name, one in ratios.items() if one.exceeds(limit) is None)
        if not names or time.monotonic() > stop:
            break
    slowest = sorted(ratios.values(), key=lambda one: (-one.ratio, one.name))
    return slowest, sorted(known - ratios.keys()), sorted(new - known)
