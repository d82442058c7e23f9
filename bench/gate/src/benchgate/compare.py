"""Measure two commits until every benchmark has a verdict.

One sample is a pair of fresh processes, because the placement of threads and memory differs between
processes. A benchmark that seems to be slower is measured again in a second, independent series of
pairs. The verdict on a benchmark is "slower" if its interval lies above the tolerance in both series.
The README states the error rates of this procedure.
"""

import fnmatch
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from .intervals import Ratio, estimate_ratio
from .processes import Failure, Measurement

# The smallest allowed number of pairs in the first analysis. An interval that is computed from
# fewer pairs is too inaccurate.
MIN_PAIRS = 10
# The number of analyses. If the confidence interval of a benchmark contains the tolerance, the benchmark is
# measured further, until it has twice as many pairs. With 10 pairs in the first analysis, the analyses use
# 10, 20, 40 and 80 pairs.
ANALYSES = 4
# A benchmark may wait for at most this share of its time, in base and in head. Waiting does not count as CPU
# time, so a slow-down that consists of waiting would be missed. The limit keeps such a slow-down small. The
# worst case is a benchmark that does not wait in base but waits for 10 % of its time in head. Its wall time
# is then 1 / (1 - 0.1) = 1.11 times as long in head as in base.
MAX_WAITING = 0.10

PASSED, SLOWER, ACCEPTED, UNDECIDED = "not slower", "slower", "slower, accepted", "undecided"
LOST, CRASHED, LOST_ACCEPTED = "lost", "crashed", "lost, accepted"
WAITS, UNCOMPARABLE, NEW, SKIPPED = "waits", "not compared", "only in head", "skipped"
FAILING = (SLOWER, LOST, CRASHED)
# The possible verdicts on a benchmark. The rows of a summary are in this order.
STATUSES = (
    CRASHED, LOST, SLOWER, ACCEPTED, LOST_ACCEPTED, WAITS, UNCOMPARABLE, UNDECIDED, NEW, PASSED, SKIPPED,
)  # fmt: skip


class Outcome(NamedTuple):
    """The verdict on one benchmark."""

    name: str
    status: str  # one of STATUSES
    tolerance: float
    reason: str = ""
    ratio: Ratio | None = None  # the ratio in the last series in which the benchmark was measured
    first: Ratio | None = None  # the ratio in the first series, if a second one followed; otherwise None


class Verdict(NamedTuple):
    """The outcome of a comparison.

    - ``broken``: the test files that only base can import, each with the reason why head fails to import it.
    - ``uncollected``: the test files that neither commit can import, each with the reason.
    - ``removed``: names of benchmarks that the tests of base contain but the tests of head do not.
    - ``failure``: the reason if nothing could be compared, otherwise an empty text.
    """

    outcomes: list[Outcome]
    tolerance: float
    broken: Mapping[str, str] = MappingProxyType({})
    uncollected: Mapping[str, str] = MappingProxyType({})
    removed: Sequence[str] = ()
    failure: str = ""

    def named(self, *statuses):
        """Return the names of the benchmarks with one of these statuses."""
        return [outcome.name for outcome in self.outcomes if outcome.status in statuses]

    @property
    def compared(self):
        """The outcomes of those benchmarks for which a ratio was computed."""
        return [outcome for outcome in self.outcomes if outcome.ratio]

    @property
    def exit_status(self):
        """0: passed. 1: slower, lost or crashed. 3: something could not be compared."""
        if self.broken or self.named(*FAILING):
            return 1
        if self.failure or self.uncollected or self.named(WAITS, UNCOMPARABLE) or not self.compared:
            return 3
        return 0


class Series:
    """A series of pairs of processes, with the measurements of every benchmark in these pairs."""

    def __init__(self):
        self.done = 0
        self.requested = defaultdict(int)  # for each name, the number of requested pairs; None: all names
        # For each name, a list with the seconds of base and the seconds of head in every pair.
        self.pairs = defaultdict(list)
        # For each name, a list with one value per pair of processes: the share of its time that the benchmark
        # spent waiting. For base and for head, the median of this share over the turns is computed. The list
        # contains the larger of the two medians.
        self.waits = defaultdict(list)
        self.ran = [set(), set()]  # for base, and for head, the names that have been measured
        self.failures = [{}, {}]  # for base, and for head, the first Failure of each benchmark

    def add(self, names, base, head):
        """Add the results of one pair of processes, which measured the benchmarks ``names``.

        If ``names`` is empty, the pair measured all benchmarks.
        """
        self.done += 1
        for name in names or [None]:
            self.requested[name] += 1
        for results, failures, ran in zip((base, head), self.failures, self.ran, strict=True):
            for name, result in results.items():
                if isinstance(result, Failure):
                    failures.setdefault(name, result)
                elif result.seconds:
                    ran.add(name)
        for name in base.keys() & head.keys():
            sides = base[name], head[name]
            if all(isinstance(side, Measurement) and side.seconds for side in sides):
                self.pairs[name].append((base[name].seconds, head[name].seconds))
                self.waits[name].append(max(np.median(side.waits) for side in sides))

    @property
    def names(self):
        """The names of all benchmarks that were run or requested."""
        return set().union(*self.ran, *self.failures)

    def obstacle(self, name):
        """Return None if a benchmark can have a ratio; otherwise, return its status and the reason."""
        in_base, in_head = (
            failures.get(name) or Failure("ran" if name in ran else "absent", "")
            for failures, ran in zip(self.failures, self.ran, strict=True)
        )
        kinds = in_base.kind, in_head.kind
        if kinds == ("ran", "ran"):
            requested = self.requested[None] + self.requested[name]
            if len(self.pairs[name]) < requested:
                return LOST, f"both ran it in {len(self.pairs[name])} of {requested} pairs only"
            share = float(np.median(self.waits[name]))
            return (WAITS, waiting_reason(share)) if share > MAX_WAITING else None
        if in_base.kind == in_head.kind == "skipped":
            return SKIPPED, in_head.reason
        if in_head.kind == "crashed" and in_base.kind != "crashed":
            return CRASHED, in_head.reason
        if in_head.kind == "ran" and in_base.kind != "waits":
            # If the benchmark ran in some processes of base and failed in others, it cannot be
            # compared.
            status = UNCOMPARABLE if name in self.ran[0] else NEW
            return status, f"base: {in_base.reason}" if in_base.reason else ""
        if in_base.kind in ("ran", "waits") and in_head.kind in ("failed", "skipped", "absent"):
            return LOST, in_head.reason or "head's tests do not contain it"
        if "waits" in kinds:
            return WAITS, waiting_reason(max(in_base.share, in_head.share))
        return (
            UNCOMPARABLE,
            f"head: {in_head.reason}; base: {in_base.reason or 'does not contain it'}",
        )


def waiting_reason(share):
    """Return a text that states how much of its time a benchmark waits, and that gives advice."""
    return (
        f"waits {share:.0%} of the time, which CPU time does not count: use `--wall`, or "
        '`@pytest.mark.benchgate(clock="wall")`'
    )


def compare_pairs(
    pair,
    pairs=MIN_PAIRS,
    tolerance=0.10,
    tolerances=None,
    accepted=(),
    seconds=np.inf,
    progress=None,
):
    """Compare two commits: measure pairs of processes until every benchmark has a verdict.

    Parameters
    ----------
    pair : callable(names)
        Measures the benchmarks with these names in one pair of fresh processes; an empty list stands
        for all benchmarks. Returns two dicts, one for base and one for head. Each dict maps the name of a
        benchmark to a :class:`Measurement` or a :class:`Failure`; see :func:`benchgate.interleaved`.
    pairs : int
        The number of pairs in the first analysis, at least 10.
    tolerance : float
        The share by which head may be slower than base: 0.1 is 10 %.
    tolerances : mapping, optional
        Maps the names of some benchmarks to tolerances that replace ``tolerance`` for these benchmarks.
    accepted : sequence of str
        Shell-style patterns. If the name of a benchmark matches one of the patterns, the benchmark may be
        slower or lost.
    seconds : float
        The time for all pairs. Benchmarks that seem to be slower are measured again in a second series, so
        the first series may use only two thirds of the time. A benchmark without a verdict at the end of this
        time is "not compared" if there were too few pairs, and "undecided" otherwise.
    progress : callable(done, total, names, series), optional
        Called after every pair. ``names`` lists the measured benchmarks, and is empty if all were measured.

    Returns
    -------
    Verdict
    """
    if pairs < MIN_PAIRS:
        raise ValueError(f"pairs must be at least {MIN_PAIRS}, got {pairs}")
    for value in (tolerance, *(tolerances or {}).values()):
        if not 0 <= value < np.inf:
            raise ValueError(f"tolerance must be a number of at least 0, got {value}")
    started = time.monotonic()
    limits = defaultdict(lambda: 1 + tolerance)
    limits.update({name: 1 + value for name, value in (tolerances or {}).items()})

    def measure(names, stop, number):
        return _measure(names, stop, pair, pairs, limits, progress, number)

    series, ratios = measure([], started + seconds * 2 / 3, 1)
    suspects = sorted(name for name, ratio in ratios.items() if ratio.exceeds(limits[name]))
    second_series, ratios_again = measure(suspects, started + seconds, 2) if suspects else (None, {})
    outcomes = []
    for name in series.names:
        first_ratio, second_ratio = ratios.get(name), ratios_again.get(name)
        status, reason = series.obstacle(name) or (None, "")
        if status is None and name in suspects and second_ratio is None:
            no_time = UNCOMPARABLE, "slower in the first series; there was no time for a second one"
            status, reason = (second_series.done and second_series.obstacle(name)) or no_time
        elif status is None and first_ratio is None:
            status = UNCOMPARABLE
            reason = f"there was time for {series.done} pairs, but {MIN_PAIRS} are necessary"
        ratio = second_ratio or first_ratio if status is None else None
        if status is None:
            status = {None: UNDECIDED, True: SLOWER, False: PASSED}[ratio.exceeds(limits[name])]
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in accepted):
            status = {SLOWER: ACCEPTED, LOST: LOST_ACCEPTED}.get(status, status)
        earlier_ratio = first_ratio if ratio is not None and ratio is second_ratio else None
        outcomes.append(Outcome(name, status, limits[name] - 1, reason, ratio, earlier_ratio))
    outcomes.sort(key=_rank)
    return Verdict(outcomes, tolerance)


def _rank(outcome):
    return (
        STATUSES.index(outcome.status),
        -(outcome.ratio.ratio if outcome.ratio else 0),
        outcome.name,
    )


def _measure(names, stop, pair, pairs, limits, progress, number):
    """Measure benchmarks until each has a verdict.

    Stop earlier if the last of the four analyses is done, or if the time is over.
    Return the :class:`Series`, and a dict with the ratio of each benchmark that has one.
    """
    series, ratios, measured_names = Series(), {}, names
    for _ in range(ANALYSES):
        total = (series.done or pairs) + series.done
        while series.done < total and time.monotonic() <= stop:
            series.add(measured_names, *pair(measured_names))
            if progress:
                progress(series.done, total, measured_names, number)
        if series.done < MIN_PAIRS:
            break
        open_names = measured_names or series.names
        for name in open_names:
            ratios.pop(name, None)
            if series.obstacle(name) is None:
                ratios[name] = estimate_ratio(name, series.pairs[name])
        measured_names = sorted(
            name for name in open_names if name in ratios and ratios[name].exceeds(limits[name]) is None
        )
        if not measured_names or time.monotonic() > stop:
            break
    return series, ratios
