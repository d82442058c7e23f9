"""Did a change make it slower? Two commands compared in interleaved pairs of fresh processes.

Not imported by anything else of the package: it is for continuous integration, here (bench/gate.py)
and in projects that embed the kernels and want to hold the speed of their own service.

A pair of fresh processes is one sample: where threads and pages lie differs between processes.
Where both live at once and take turns, drift of the machine cancels within a turn; the pair's ratio
is the median of its turns', and the verdict rests on an interval of the pairs' mean.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from bench.gate.intervals import Ratio, judged
from bench.gate.processes import Command, Measure, Pair, as_measure, one_by_one, taking_turns
from fastcos import validation

LEAST_PAIRS = 10
# what is open is measured further, twice as long every time: after 10, 20, 40 and 80 pairs
LOOKS = 4


@dataclass(frozen=True)
class Verdict:
    """The outcome of a comparison.

    Attributes
    ----------
    ratios : tuple of Ratio
        Every benchmark that both sides ran, in every pair; the slowest first.
    suspects : tuple of Ratio
        The second series, of those whose interval lay above the tolerance.
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
        """Benchmarks of which the last interval holds the tolerance, after the most pairs."""
        last = {one.name: one for one in (*self.ratios, *self.suspects)}
        return tuple(one for one in last.values() if one.exceeds(1 + self.tolerance) is None)

    @property
    def passed(self) -> bool:
        """Whether something ran, nothing was lost, and nothing is slower."""
        return bool(self.ratios) and not self.missing and not self.slower

    def markdown(self) -> str:
        """Return a summary for a pull request."""
        return "\n".join([f"### {self._headline()}", "", *self._notes(), *_table(self.ratios)])

    def _headline(self) -> str:
        if not self.ratios:
            return "Speed: failed, no benchmark ran on both sides"
        if self.slower:
            return f"Speed: failed, {len(self.slower)} of {len(self.ratios)} benchmarks are slower"
        if self.missing:
            return f"Speed: failed, {len(self.missing)} benchmarks of base did not run"
        not_known = f", {len(self.undecided)} undecided" if self.undecided else ""
        return f"Speed: passed, none of {len(self.ratios)} benchmarks is slower{not_known}"

    def _notes(self) -> list[str]:
        limit = f"{1 + self.tolerance:.2f}"
        lines = [
            f"Ratio: head / base, trimmed mean of pairs of fresh processes, {self.confidence:.0%} "
            f"bootstrap interval. Slower: the interval lies above {limit}, twice.",
            "",
        ]
        lines += [f"- did not run: `{name}`" for name in self.missing]
        lines += [f"- only in head: `{name}`" for name in self.new]
        lines += [
            f"- undecided: `{one.name}`, {one.low:.3f} to {one.high:.3f} after {one.pairs} pairs"
            for one in self.undecided
        ]
        if self.suspects:
            lines += ["Measured anew:", "", *_table(self.suspects), ""]
        return lines


def compare_speed(
    base: Measure | Sequence[str],
    head: Measure | Sequence[str],
    *,
    turns: int | None = None,
    pairs: int = LEAST_PAIRS,
    tolerance: float = 0.10,
    confidence: float = 0.99,
    seed: int = 0,
    progress: Callable[[int, int], object] | None = None,
) -> Verdict:
    """Compare the times of two commands, each pair of runs side by side.

    A benchmark counts as slower only if the interval of its ratio lies above 1 + tolerance, and
    does so again when it alone is measured anew. While its interval holds 1 + tolerance it is
    measured further, it alone, until there are 8 times as many pairs; then it is undecided, which
    is told and is no failure.

    Parameters
    ----------
    base, head : sequence of str, or callable
        A command that prints one JSON object, benchmark name to seconds, as the last thing on
        stdout; it is started anew for every sample, with the names to measure as further arguments
        (none: all). Or a ``gate_processes.Command``, which has variables too; or a function from
        the names to such a dict.
    turns : int, optional
        The commands serve: each reads lines from stdin, a JSON array of names each ([]: all), and
        answers with one line of JSON, until its stdin ends. Base and head of a pair then live at
        once and take so many turns at every benchmark, so that both meet the same moments of a busy
        machine; a pair's ratio is the median of its turns'. Costs both their memory at once.
    pairs : int, default 10
        Pairs of processes at first; at least 10: an interval of fewer ratios means little.
    tolerance : float, default 0.10
        How much slower head may be.
    confidence : float, default 0.99
        Of the bootstrap interval.
    seed : int
        Of the bootstrap.
    progress : callable(done, total), optional
        Called after every pair.

    Returns
    -------
    Verdict
        ``passed``, ``ratios`` and ``markdown()``. Nothing measured is not passed.

    Raises
    ------
    ValueError
        Fewer pairs, or a tolerance or confidence out of range; times that are not positive.
    TypeError
        A function where turns are taken.
    subprocess.CalledProcessError
        A command failed.

    Notes
    -----
    A benchmark within the tolerance is judged after 10, 20, 40 and 80 pairs, so that the 99%
    interval lies above at most 4 times 0.5%; in both series, at most 0.04%.

    Source of the design and of what shared machines do: bench/README.md, with the measured rates of
    false alarms and of missed slow-downs.

    Examples
    --------
    >>> from bench.gate import compare_speed
    >>> verdict = compare_speed(lambda names: {"search": 1.0}, lambda names: {"search": 1.5})
    >>> verdict.passed, verdict.slower[0].ratio
    (False, 1.5)
    """
    pairs = validation.as_count("pairs", pairs, low=LEAST_PAIRS)
    tolerance = validation.as_real("tolerance", tolerance, low=0)
    confidence = validation.as_real("confidence", confidence, above=0, high=0.9999)
    pair = _pair(base, head, turns)
    return compare_pairs(pair, pairs, tolerance, confidence, seed, progress)


def compare_pairs(
    pair: Pair,
    pairs: int = LEAST_PAIRS,
    tolerance: float = 0.10,
    confidence: float = 0.99,
    seed: int = 0,
    progress: Callable[[int, int], object] | None = None,
) -> Verdict:
    """Compare what a function measures, or has measured before; see :func:`compare_speed`.

    Parameters
    ----------
    pair : callable
        From names to the turns of base and of head.
    pairs, tolerance, confidence, seed, progress

    Returns
    -------
    Verdict
    """
    limit = 1 + tolerance
    judge = partial(judged, confidence=confidence, seed=seed)
    first, again = (_Series(pair, pairs, progress) for _ in range(2))
    first.run([], judge, limit)
    doubtful = [name for name, one in first.ratios.items() if one.exceeds(limit)]
    if doubtful:
        again.run(doubtful, judge, limit)
    return Verdict(
        _slowest_first(first.ratios),
        _slowest_first(again.ratios),
        tuple(sorted(first.lost | again.lost)),
        tuple(sorted(first.new)),
        tolerance,
        confidence,
    )


class _Series:
    """Pairs of processes until every benchmark is decided, or was measured often enough."""

    def __init__(
        self, pair: Pair, pairs: int, progress: Callable[[int, int], object] | None
    ) -> None:
        self.ratios: dict[str, Ratio] = {}
        self.lost: set[str] = set()
        self.new: set[str] = set()
        self._pair, self._pairs, self._progress = pair, pairs, progress
        self._times: dict[str, list[tuple[list[float], list[float]]]] = defaultdict(list)

    def run(self, names: Sequence[str], judge: Callable[..., Ratio], limit: float) -> None:
        """Measure these, or all; then what its interval leaves open, further and alone."""
        asked, done = list(names), 0
        for _ in range(LOOKS):
            more = done or self._pairs
            known = self._measure(asked, more)
            done += more
            self.lost |= {name for name in known if len(self._times[name]) < done}
            self.ratios |= {name: judge(name, self._times[name]) for name in known - self.lost}
            for name in self.lost & self.ratios.keys():
                del self.ratios[name]
            asked = sorted(name for name, one in self.ratios.items() if one.exceeds(limit) is None)
            if not asked:
                break

    def _measure(self, asked: list[str], pairs: int) -> set[str]:
        """Run so many pairs; return what both should have run in each."""
        known = set(asked)
        for number in range(pairs):
            base, head = self._pair(asked)
            for name in base.keys() & head.keys():
                if len(base[name]) == len(head[name]):
                    self._times[name].append((base[name], head[name]))
            if not asked:
                known |= base.keys()
                self.new |= head.keys()
            if self._progress is not None:
                self._progress(number + 1, pairs)
        self.new -= known
        return known


def _slowest_first(ratios: dict[str, Ratio]) -> tuple[Ratio, ...]:
    return tuple(sorted(ratios.values(), key=lambda one: (-one.ratio, one.name)))


def _pair(base: Measure | Sequence[str], head: Measure | Sequence[str], turns: int | None) -> Pair:
    """How one pair is measured."""
    sides = as_measure(base), as_measure(head)
    if turns is None:
        return one_by_one(*sides)
    turns = validation.as_count("turns", turns, low=1)
    rule = "a command where turns are taken"
    commands = [
        validation.as_instance(name, side, Command, rule)
        for name, side in zip(("base", "head"), sides, strict=True)
    ]
    return taking_turns(commands[0], commands[1], turns)


def _table(ratios: Sequence[Ratio]) -> list[str]:
    lines = [
        "| benchmark | base | head | ratio | interval | pairs |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for one in ratios:
        lines.append(
            f"| `{one.name}` | {_milliseconds(one.base)} | {_milliseconds(one.head)} "
            f"| {one.ratio:.3f} | {one.low:.3f} to {one.high:.3f} | {one.pairs} |"
        )
    return lines


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms"
