"""Did a change make it slower? Two commands compared in interleaved pairs of fresh processes.

Not imported by anything else of the package: it is for continuous integration, here (bench/gate.py)
and in projects that embed the kernels and want to hold the speed of their own service.

One process is one sample: where threads lie differs between processes far more than between calls.
So each pair of fresh processes gives one ratio per benchmark, drift of the machine cancels within a
pair (most where both live at once and take turns), and the verdict rests on an interval of the
ratios' median.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fastcos import validate
from fastcos.gate_processes import Command, Measure, Pair, Seconds, as_measure, in_turns, one_by_one

LEAST_PAIRS, MOST_PAIRS = 10, 30
_RESAMPLES = 9_999


@dataclass(frozen=True)
class Ratio:
    """How many times the time of base one benchmark takes in head.

    Attributes
    ----------
    name : str
    base, head : float
        Median seconds.
    ratio : float
        Median of the ratios of the pairs; above 1 is slower.
    low, high : float
        Bootstrap interval of it.
    pairs : int
    """

    name: str
    base: float
    head: float
    ratio: float
    low: float
    high: float
    pairs: int


@dataclass(frozen=True)
class Verdict:
    """The outcome of a comparison.

    Attributes
    ----------
    ratios : tuple of Ratio
        Every benchmark that both sides ran, in every pair; the slowest first.
    suspects : tuple of Ratio
        The second look at those whose interval lay above the tolerance.
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
        """Benchmarks that are slower by more than the tolerance, at both looks."""
        return tuple(ratio for ratio in self.suspects if ratio.low > 1 + self.tolerance)

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
        return f"Speed: passed, none of {len(self.ratios)} benchmarks is slower"

    def _notes(self) -> list[str]:
        lines = [
            f"Ratio: head / base, median of pairs of fresh processes, {self.confidence:.0%} "
            f"bootstrap interval. Slower: the interval lies above {1 + self.tolerance:.2f}, twice.",
            "",
        ]
        lines += [f"- did not run: `{name}`" for name in self.missing]
        lines += [f"- only in head: `{name}`" for name in self.new]
        if self.suspects:
            lines += ["Looked at twice; the second look:", "", *_table(self.suspects), ""]
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
    does so again when it alone is measured anew. Where the ratio lies above and its interval does
    not, as many pairs more are measured of it alone, up to 30 or a little more.

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
        machine; the fastest answer of each counts. Costs them memory at the same time.
    pairs : int, default 10
        Pairs of processes at a time; at least 10: an interval of fewer ratios means little.
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
    Source of the design and of what shared machines do: bench/README.md, with the measured rates of
    false alarms and of missed slow-downs.

    Examples
    --------
    >>> from fastcos.gate import compare_speed
    >>> verdict = compare_speed(lambda names: {"search": 1.0}, lambda names: {"search": 1.5})
    >>> verdict.passed, verdict.slower[0].ratio
    (False, 1.5)
    """
    pairs = validate.as_count("pairs", pairs, low=LEAST_PAIRS)
    tolerance = validate.as_real("tolerance", tolerance, low=0)
    confidence = validate.as_real("confidence", confidence, above=0, high=0.9999)
    pair = _pair(base, head, turns)

    def look(names: Sequence[str]) -> _Look:
        return _look(pair, names, pairs, tolerance, confidence, seed, progress)

    ratios, first = look([])
    doubtful = [ratio.name for ratio in ratios if ratio.low > 1 + tolerance]
    suspects = look(doubtful)[0] if doubtful else ()
    ran = {ratio.name for ratio in ratios}
    of_base, of_head = ({name for times in side for name in times} for side in first)
    lost = of_base - ran | (set(doubtful) - {ratio.name for ratio in suspects})
    return Verdict(
        ratios,
        suspects,
        tuple(sorted(lost)),
        tuple(sorted(of_head - of_base)),
        tolerance,
        confidence,
    )


_Look = tuple[tuple[Ratio, ...], tuple[list[Seconds], list[Seconds]]]


def _look(
    pair: Pair,
    names: Sequence[str],
    pairs: int,
    tolerance: float,
    confidence: float,
    seed: int,
    progress: Callable[[int, int], object] | None,
) -> _Look:
    """Ratios, the slowest first, and all that was measured."""
    found: tuple[list[Seconds], list[Seconds]] = ([], [])
    ratios: dict[str, Ratio] = {}
    asked = list(names)
    while True:
        more = run_pairs(pair, pairs, asked, progress=progress)
        for side, times in zip(found, more, strict=True):
            side += times
        ratios |= {ratio.name: ratio for ratio in judged(found, confidence, seed)}
        asked = undecided(ratios.values(), tolerance)
        if not asked:
            return tuple(sorted(ratios.values(), key=lambda ratio: -ratio.ratio)), found


def undecided(ratios: Iterable[Ratio], tolerance: float) -> list[str]:
    """Names of those that seem slower, of too few pairs to say so.

    Parameters
    ----------
    ratios : iterable of Ratio
    tolerance : float

    Returns
    -------
    list of str
    """
    return [
        one.name
        for one in ratios
        if one.low <= 1 + tolerance < one.ratio and one.pairs < MOST_PAIRS
    ]


def _pair(base: Measure | Sequence[str], head: Measure | Sequence[str], turns: int | None) -> Pair:
    """How one pair is measured."""
    sides = as_measure(base), as_measure(head)
    if turns is None:
        return one_by_one(*sides)
    turns = validate.as_count("turns", turns, low=1)
    rule = "a command where turns are taken"
    commands = [
        validate.as_instance(name, side, Command, rule)
        for name, side in zip(("base", "head"), sides, strict=True)
    ]

    def pair(names: Sequence[str]) -> tuple[Seconds, Seconds]:
        first, second = in_turns(commands, turns, names)
        return first, second

    return pair


def run_pairs(
    pair: Pair,
    pairs: int,
    names: Sequence[str] = (),
    *,
    progress: Callable[[int, int], object] | None = None,
) -> tuple[list[Seconds], list[Seconds]]:
    """Measure base and head that often.

    Parameters
    ----------
    pair : callable
        From names to the times of base and of head.
    pairs : int
    names : sequence of str
        What to measure; nothing means all.
    progress : callable(done, total), optional

    Returns
    -------
    tuple of two lists of dict
        Of base and of head, in the order of the pairs.
    """
    found: tuple[list[Seconds], list[Seconds]] = ([], [])
    for number in range(pairs):
        for side, times in zip(found, pair(names), strict=True):
            side.append(times)
        if progress is not None:
            progress(number + 1, pairs)
    return found


def judged(
    found: tuple[list[Seconds], list[Seconds]], confidence: float, seed: int
) -> tuple[Ratio, ...]:
    """Return the ratio and its interval for every benchmark that ran in all pairs, slowest first.

    Parameters
    ----------
    found : tuple of two lists of dict
        What :func:`run_pairs` returns.
    confidence : float
    seed : int

    Returns
    -------
    tuple of Ratio
    """
    in_all = set.intersection(*(set(times) for side in found for times in side))
    ratios = []
    for name in sorted(in_all):
        base, head = (np.array([times[name] for times in side]) for side in found)
        for label, seconds in (("base", base), ("head", head)):
            validate.as_real(f"seconds of {name} in {label}", float(seconds.min()), above=0)
        low, middle, high = interval(np.log(head / base), confidence, seed)
        medians = float(np.median(base)), float(np.median(head))
        ratios.append(Ratio(name, *medians, middle, low, high, len(base)))
    return tuple(sorted(ratios, key=lambda ratio: -ratio.ratio))


def interval(
    logs: npt.NDArray[np.float64], confidence: float, seed: int
) -> tuple[float, float, float]:
    """Return low end, median and high end of ratios given by their logarithms.

    Of 10 ratios the 99% interval of the bootstrap covers the true median 95 to 96 times in 100: the
    tolerance and the second look, not this interval alone, make false alarms rare.

    Parameters
    ----------
    logs : ndarray (pairs,), float64
    confidence : float
    seed : int

    Returns
    -------
    tuple of float
    """
    from scipy.stats import bootstrap  # here, for it takes long to import

    ends: Any = bootstrap(
        (logs,),
        np.median,
        confidence_level=confidence,
        n_resamples=_RESAMPLES,
        method="percentile",
        random_state=np.random.default_rng(seed),
    ).confidence_interval
    low, middle, high = np.exp([ends.low, np.median(logs), ends.high])
    return float(low), float(middle), float(high)


def _table(ratios: Sequence[Ratio]) -> list[str]:
    lines = ["| benchmark | base | head | ratio | interval |", "|---|---:|---:|---:|---:|"]
    for one in ratios:
        lines.append(
            f"| `{one.name}` | {_milliseconds(one.base)} | {_milliseconds(one.head)} "
            f"| {one.ratio:.3f} | {one.low:.3f} to {one.high:.3f} |"
        )
    return lines


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms"
