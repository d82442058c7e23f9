"""Compare the speed of two commands in interleaved pairs of fresh processes.

A pair of fresh processes is one sample, because the placement of threads and pages differs between
processes. Both processes are alive and take turns, so that drift of the machine cancels within a
turn. The ratio of a pair is the median over its turns; the verdict rests on an interval of the mean
over pairs.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from .intervals import Ratio, estimate_ratio
from .processes import Command, Measure, Pair, alternating, interleaved

# fewer ratios have no useful interval
MIN_PAIRS = 10
# undecided benchmarks are measured further, each time twice as often: 10, 20, 40 and 80 pairs
ANALYSES = 4


@dataclass(frozen=True)
class Verdict:
    """The outcome of a comparison.

    Attributes
    ----------
    ratios : tuple of Ratio
        Every benchmark that both sides ran in every pair; the slowest first.
    suspects : tuple of Ratio
        The second series, of the benchmarks whose interval was above the tolerance.
    missing : tuple of str
        Benchmarks that base ran and head did not, or not in every pair.
    new : tuple of str
        Benchmarks that only head ran.
    tolerance, confidence : float
    """

    ratios: tuple[Ratio, ...]
    suspects: tuple[Ratio, ...]
    missing: tuple[str, ...]
    new: tuple[str, ...]
    tolerance: float
    confidence: float

    @property
    def slower(self) -> tuple[Ratio, ...]:
        """Benchmarks that are slower by more than the tolerance, in both series."""
        return tuple(one for one in self.suspects if one.exceeds(1 + self.tolerance))

    @property
    def undecided(self) -> tuple[Ratio, ...]:
        """Benchmarks whose last interval contains the tolerance, after the most pairs."""
        last = {one.name: one for one in (*self.ratios, *self.suspects)}
        return tuple(one for one in last.values() if one.exceeds(1 + self.tolerance) is None)

    @property
    def passed(self) -> bool:
        """Whether benchmarks ran, none is missing and none is slower."""
        return bool(self.ratios) and not self.missing and not self.slower

    def markdown(self) -> str:
        """Return a summary for a pull request."""
        limit = f"{1 + self.tolerance:.2f}"
        lines = [
            f"### {self._headline()}",
            "",
            f"Ratio: head / base, trimmed mean of pairs of fresh processes, {self.confidence:.0%} "
            f"bootstrap interval. Slower: the interval is above {limit} in two series.",
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

    def _headline(self) -> str:
        if not self.ratios:
            return "Speed: failed, no benchmark ran on both sides"
        if self.slower:
            return f"Speed: failed, {len(self.slower)} of {len(self.ratios)} benchmarks are slower"
        if self.missing:
            return f"Speed: failed, {len(self.missing)} benchmarks of base did not run"
        undecided = f", {len(self.undecided)} undecided" if self.undecided else ""
        return f"Speed: passed, none of {len(self.ratios)} benchmarks is slower{undecided}"


def compare_speed(
    base: Measure | Sequence[str],
    head: Measure | Sequence[str],
    *,
    turns: int | None = None,
    pairs: int = MIN_PAIRS,
    tolerance: float = 0.10,
    confidence: float = 0.99,
    random_state: int = 0,
    progress: Callable[[int, int], object] | None = None,
) -> Verdict:
    """Compare the times of two commands in pairs of runs.

    A benchmark is slower only if the interval of its ratio is above 1 + tolerance, and is so again
    when it alone is measured a second time. While the interval contains 1 + tolerance, the
    benchmark alone is measured further, up to 8 times as many pairs. After that it is undecided,
    which is reported and is not a failure.

    Parameters
    ----------
    base, head : sequence of str, or callable
        A command that prints one JSON object, benchmark name to seconds, at the end of stdout. It
        is started anew for every sample, with the names to measure as further arguments (none:
        all). A :class:`Command` may set environment variables too. A callable maps names to such a
        dict.
    turns : int, optional
        The commands are servers: each reads lines from stdin, a JSON array of names each ([]: all),
        and answers with one line of JSON until its stdin ends. Base and head of a pair then run at
        once and take this many turns at every benchmark; the ratio of a pair is the median over its
        turns. Needs the memory of both at once.
    pairs : int, default 10
        Pairs of processes in the first analysis; at least 10.
    tolerance : float, default 0.10
        How much slower head may be.
    confidence : float, default 0.99
        Of the bootstrap interval.
    random_state : int
        Seed of the bootstrap.
    progress : callable(done, total), optional
        Called after every pair.

    Returns
    -------
    Verdict
        ``passed``, ``ratios`` and ``markdown()``. A comparison without benchmarks does not pass.

    Raises
    ------
    ValueError
        pairs, tolerance or confidence is out of range, or a time is not positive.
    TypeError
        turns is given with a callable that is not a Command.
    subprocess.CalledProcessError
        A command failed.

    Notes
    -----
    A benchmark within the tolerance is analysed after 10, 20, 40 and 80 pairs. Its 99% interval is
    above the tolerance with a probability of at most 4 times 0.5%; in both series, 0.04%.

    Measured rates of false alarms and of missed slow-downs: docs/dev/benchmarks.md.

    Examples
    --------
    >>> from bench.gate import compare_speed
    >>> verdict = compare_speed(lambda names: {"search": 1.0}, lambda names: {"search": 1.5})
    >>> verdict.passed, verdict.slower[0].ratio
    (False, 1.5)
    """
    if pairs < MIN_PAIRS:
        raise ValueError(f"pairs must be at least {MIN_PAIRS}, got {pairs}")
    if not tolerance >= 0:
        raise ValueError(f"tolerance must be at least 0, got {tolerance}")
    if not 0 < confidence <= 0.9999:
        raise ValueError(f"confidence must be above 0 and at most 0.9999, got {confidence}")
    sides = [side if callable(side) else Command(side) for side in (base, head)]
    if turns is None:
        pair = alternating(*sides)
    else:
        if turns < 1:
            raise ValueError(f"turns must be at least 1, got {turns}")
        for name, side in zip(("base", "head"), sides, strict=True):
            if not isinstance(side, Command):
                raise TypeError(f"{name} must be a command if turns is given, got {side!r}")
        pair = interleaved(*sides, turns)
    return compare_pairs(pair, pairs, tolerance, confidence, random_state, progress)


def compare_pairs(
    pair: Pair,
    pairs: int = MIN_PAIRS,
    tolerance: float = 0.10,
    confidence: float = 0.99,
    random_state: int = 0,
    progress: Callable[[int, int], object] | None = None,
) -> Verdict:
    """Compare times that a function measures or has recorded, as :func:`compare_speed` does."""
    limit = 1 + tolerance
    estimate = partial(estimate_ratio, confidence=confidence, random_state=random_state)
    first, second = (_Series(pair, pairs, progress) for _ in range(2))
    first.run([], estimate, limit)
    suspects = [name for name, one in first.ratios.items() if one.exceeds(limit)]
    if suspects:
        second.run(suspects, estimate, limit)
    return Verdict(
        _slowest_first(first.ratios),
        _slowest_first(second.ratios),
        tuple(sorted(first.missing | second.missing)),
        tuple(sorted(first.new)),
        tolerance,
        confidence,
    )


class _Series:
    """Pairs of processes until every benchmark is decided or the last analysis is done."""

    def __init__(
        self, pair: Pair, pairs: int, progress: Callable[[int, int], object] | None
    ) -> None:
        self.ratios: dict[str, Ratio] = {}
        self.missing: set[str] = set()
        self.new: set[str] = set()
        self._pair, self._pairs, self._progress = pair, pairs, progress
        self._times: dict[str, list[tuple[list[float], list[float]]]] = defaultdict(list)

    def run(self, names: list[str], estimate: Callable[..., Ratio], limit: float) -> None:
        """Measure these benchmarks, or all; then only those whose interval contains the limit."""
        done = 0
        for _ in range(ANALYSES):
            more = done or self._pairs
            known = self._measure(names, more)
            done += more
            self.missing |= {name for name in known if len(self._times[name]) < done}
            self.ratios |= {
                name: estimate(name, self._times[name]) for name in known - self.missing
            }
            for name in self.missing & self.ratios.keys():
                del self.ratios[name]
            names = sorted(name for name, one in self.ratios.items() if one.exceeds(limit) is None)
            if not names:
                break

    def _measure(self, names: list[str], pairs: int) -> set[str]:
        """Run that many pairs; return the benchmarks that both sides should have run in each."""
        known = set(names)
        for number in range(pairs):
            base, head = self._pair(names)
            for name in base.keys() & head.keys():
                if len(base[name]) == len(head[name]):
                    self._times[name].append((base[name], head[name]))
            if not names:
                known |= base.keys()
                self.new |= head.keys()
            if self._progress is not None:
                self._progress(number + 1, pairs)
        self.new -= known
        return known


def _slowest_first(ratios: dict[str, Ratio]) -> tuple[Ratio, ...]:
    return tuple(sorted(ratios.values(), key=lambda one: (-one.ratio, one.name)))


def _table(ratios: Sequence[Ratio]) -> list[str]:
    lines = [
        "| benchmark | base | head | ratio | interval | pairs |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for one in ratios:
        lines.append(
            f"| `{one.name}` | {1e3 * one.base:.3g} ms | {1e3 * one.head:.3g} ms "
            f"| {one.ratio:.3f} | {one.low:.3f} to {one.high:.3f} | {one.pairs} |"
        )
    return lines
