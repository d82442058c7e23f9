"""Verdict on the speed of two sides, from times in interleaved pairs of fresh processes.

A pair of fresh processes is one sample, because the placement of threads and pages differs between
processes. The procedure and its error rates: bench/README.md and docs/dev/benchmarks.md of fastcos.
"""

from collections import defaultdict
from typing import NamedTuple

from .intervals import CONFIDENCE, Ratio, estimate_ratio

# fewer ratios have no useful interval
MIN_PAIRS = 10
# undecided benchmarks are measured further, each time twice as often: 10, 20, 40 and 80 pairs
ANALYSES = 4


class Verdict(NamedTuple):
    """The outcome of a comparison."""

    # every benchmark that both sides ran in every pair; the slowest first
    ratios: list[Ratio]
    # the second series, of the benchmarks whose interval was above the tolerance
    suspects: list[Ratio]
    # benchmarks that base ran and head did not, or not in every pair
    missing: list[str]
    # benchmarks that only head ran
    new: list[str]
    tolerance: float

    @property
    def slower(self):
        """Benchmarks that are slower by more than the tolerance, in both series."""
        return [one for one in self.suspects if one.exceeds(1 + self.tolerance)]

    @property
    def undecided(self):
        """Benchmarks whose last interval contains the tolerance, after the most pairs."""
        last = {one.name: one for one in (*self.ratios, *self.suspects)}
        return [one for one in last.values() if one.exceeds(1 + self.tolerance) is None]

    @property
    def passed(self):
        """Whether benchmarks ran, none is missing and none is slower."""
        return bool(self.ratios) and not self.missing and not self.slower

    def markdown(self):
        """Return a summary for a pull request."""
        lines = [
            f"### Speed: {self._headline()}",
            "",
            f"Ratio: head / base, trimmed mean of pairs of fresh processes, {CONFIDENCE:.0%} "
            f"bootstrap interval. Slower: the interval is above {1 + self.tolerance:.2f} in two "
            "series.",
            "",
        ]
        lines += [f"- did not run: `{name}`" for name in self.missing]
        lines += [f"- only in head: `{name}`" for name in self.new]
        lines += [
            f"- undecided: `{one.name}`, {one.low:.3f} to {one.high:.3f} after {one.pairs} pairs"
            for one in self.undecided
        ]
        if self.suspects:
            lines += ["Second series:", "", *_table(self.suspects), ""]
        return "\n".join(lines + _table(self.ratios))

    def _headline(self):
        if not self.ratios:
            return "failed, no benchmark ran on both sides"
        if self.slower:
            return f"failed, {len(self.slower)} of {len(self.ratios)} benchmarks are slower"
        if self.missing:
            return f"failed, {len(self.missing)} benchmarks of base did not run"
        undecided = f", {len(self.undecided)} undecided" if self.undecided else ""
        return f"passed, none of {len(self.ratios)} benchmarks is slower{undecided}"


def _table(ratios):
    return [
        "| benchmark | base | head | ratio | interval | pairs |",
        "|---|---:|---:|---:|---:|---:|",
    ] + [
        f"| `{one.name}` | {1e3 * one.base:.3g} ms | {1e3 * one.head:.3g} ms "
        f"| {one.ratio:.3f} | {one.low:.3f} to {one.high:.3f} | {one.pairs} |"
        for one in ratios
    ]


def compare_pairs(pair, pairs=MIN_PAIRS, tolerance=0.10, progress=None):
    """Compare two sides by as many pairs as the verdict needs.

    Parameters
    ----------
    pair : callable(names)
        Measures these benchmarks, or all ([]), in one pair of processes. Returns a dict each of
        base and of head: benchmark to the seconds of its turns.
    pairs : int
        Pairs in the first analysis.
    tolerance : float
        How much slower head may be.
    progress : callable(done, total), optional
        Called after every pair.

    Returns
    -------
    Verdict
    """
    if pairs < MIN_PAIRS:
        raise ValueError(f"pairs must be at least {MIN_PAIRS}, got {pairs}")
    if not tolerance >= 0:
        raise ValueError(f"tolerance must be at least 0, got {tolerance}")
    ratios, missing, new = _series(pair, [], pairs, 1 + tolerance, progress)
    suspects = [one.name for one in ratios if one.exceeds(1 + tolerance)]
    again, lost = [], []
    if suspects:
        again, lost, _ = _series(pair, suspects, pairs, 1 + tolerance, progress)
    return Verdict(ratios, again, sorted(missing + lost), new, tolerance)


def _series(pair, names, pairs, limit, progress):
    """Measure benchmarks, or all ([]), until each is decided or the last analysis is done.

    Returns the ratios, the slowest first, and the names of missing and of new benchmarks.
    """
    times, ratios, done = defaultdict(list), {}, 0
    known, new = set(names), set()
    for _ in range(ANALYSES):
        more = done or pairs
        for number in range(more):
            base, head = pair(names)
            for name in base.keys() & head.keys():
                if len(base[name]) == len(head[name]):
                    times[name].append((base[name], head[name]))
            if not names:
                known |= base.keys()
                new |= head.keys()
            if progress:
                progress(number + 1, more)
        done += more
        for name in names or known:
            ratios.pop(name, None)
            if len(times[name]) == done:
                ratios[name] = estimate_ratio(name, times[name])
        names = sorted(name for name, one in ratios.items() if one.exceeds(limit) is None)
        if not names:
            break
    slowest = sorted(ratios.values(), key=lambda one: (-one.ratio, one.name))
    return slowest, sorted(known - ratios.keys()), sorted(new - known)
