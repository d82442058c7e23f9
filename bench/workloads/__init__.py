"""Every workload, once: asv, pytest-benchmark, the gate and the tables are views of WORKLOADS.

A workload is a function that makes the seeded input of a case and returns the Case: its call, the
check of an answer, its work. Workload, its decorator, has the cases to measure. prepared(kind,
case) has checked the answer: WrongAnswer is raised before anything is timed. Modules: dense,
sparse, models, metrics, auditing.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from bench import clock, inputs
from bench.limits import Limit, Work

WORKLOADS = {}
# tables: the cases that bench/tables.md publishes, which any machine can make; roofline: every
# parallel kernel, on 1, 2, 4, ... threads
SETS = ("quick", "regular", "large", "tables", "roofline")


class WrongAnswer(AssertionError):
    """The operation to be timed returns a wrong answer."""


class Case(NamedTuple):
    """One input of a workload; job and what follows it are for competitors."""

    call: Callable  # returns the answer; this is timed
    error: Callable  # answer to how wrong it is; compared with float64
    work: Work  # of one call
    job: Callable | None = None  # returns the task of libraries.py, its arrays and its parameters
    # their answer and ours to how far theirs is from ours, as a share of what is allowed
    disagreement: Callable | None = None
    facts: Callable = lambda theirs, answer: {}  # what else is said of theirs, by name


@dataclasses.dataclass(eq=False)
class Workload:
    """One operation, and the cases in which it is measured; a decorator of what makes the Case."""

    question: str  # the heading under which results are compared
    name: str = ""  # default: that of the function
    said: str = ""  # the operation in words; default: those of the function
    unit: str = "rows"  # what the work counts
    # parameters of make, and their values: the cases are their product
    axes: dict[str, list[Any]] = dataclasses.field(default_factory=dict)
    # values that replace those of axes in these sets; None: no case
    quick: dict | None = None
    large: dict | None = None
    tables: dict | None = None
    roofline: dict | None = None
    phrase: str = ""  # the case in words, with the names of axes in braces; see words
    # warm: calls follow each other as in a loop; rested: each comes after a pause
    state: str = "warm"
    limit: float = 0.0  # largest error of a correct answer
    competitors: tuple[str, ...] = ()  # libraries that do the same; see libraries.py

    def __call__(self, make):
        """Register a function of parameters, which makes the Case; not timed."""
        self.make = make
        self.name = self.name or make.__name__
        self.said = self.said or make.__doc__.split("\n")[0].rstrip(".")
        WORKLOADS[self.name] = self
        return make


def cases(which, kind):
    """Return the cases of a workload, dicts of parameters, in one of SETS."""
    given = {} if which == "regular" else getattr(kind, which)
    if given is None:
        return []
    axes = kind.axes | given
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


def label(kind, case):
    """Return the name of a case: what every view and table calls it."""
    parameters = (f"{name}={value}" if isinstance(value, int) else str(value)
                  for name, value in case.items())  # fmt: skip
    return " ".join([kind.name, *parameters])


def words(kind, case):
    """Return a case as people say it: one query, 10,000 rows x 64, k = 10, in a loop."""
    if not kind.phrase:
        return ", ".join([kind.said, *label(kind, case).split(" ", 1)[1:]])
    given = {"said": kind.said} | {
        name: f"{value:,}" if isinstance(value, int) else str(value).replace(" x ", " rows x ")
        for name, value in case.items()
    }
    if "queries" in case:
        given["queries"] = "one query" if case["queries"] == 1 else f"{case['queries']:,} queries"
    if "shape" in case:
        n, p, nnz = inputs.shape_of(case["shape"])
        given["shape"] = f"{n:,} users x {p:,} items, {nnz / 1e6:.2g} M non-zeros"
    ending = ", after a pause" if kind.state == "rested" else ", in a loop"
    return kind.phrase.format(**given) + (ending if case.get("queries", 99) <= 16 else "")


@functools.cache
def _prepared(kind, parameters):
    case = kind.make(**dict(parameters))
    error = float(case.error(case.call()))
    if not error <= kind.limit:
        raise WrongAnswer(f"error must be at most {kind.limit:g}, got {error:g}")
    return case


def prepared(kind, parameters):
    """Return the Case of parameters, made and checked once per process."""
    return _prepared(kind, tuple(parameters.items()))


# frees the inputs of all prepared workloads
forget = _prepared.cache_clear


def in_turns(case, budget=4.0, most=50):
    """Return median seconds, the percent of the limit, and what the limit is.

    Limit and call are measured in turns, as many as fit into the seconds of the budget. The percent
    is of their lower quartiles: the quarter of the turns that other work on the machine left alone.
    """
    limit, turns = Limit(case.work), []
    while len(turns) < most and sum(spent for _, spent in turns) < budget:
        turns.append((limit.seconds(), clock.seconds(case.call)))
    least, spent = np.quantile(turns, 0.25, axis=0)
    return float(np.median(turns, axis=0)[1]), float(100 * least / spent), limit.bound


from bench.workloads import auditing, dense, metrics, models, sparse  # noqa: E402, F401
