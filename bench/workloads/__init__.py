"""Every workload, once: asv, pytest-benchmark, the gate and the tables are views of these classes.

An instance is one case. prepared(kind, case) has checked its answer: WrongAnswer is raised before
anything is timed. Modules: dense, sparse, models, metrics, auditing; a new workload is a subclass
of Workload in one of them.
"""

import functools
import itertools

import numpy as np

from bench import clock, inputs
from bench.limits import Limit

WORKLOADS = {}
# tables: the cases that bench/tables.md publishes, which any machine can make; roofline: every
# parallel kernel, on 1, 2, 4, ... threads
SETS = ("quick", "regular", "large", "tables", "roofline")


class WrongAnswer(AssertionError):
    """The operation to be timed returns a wrong answer."""


class Workload:
    """One operation on one input; a class whose name starts with _ is a base of others.

    A subclass defines question, the heading under which results are compared, and

    make(**case)            make the seeded input; not timed
    call()                  return the answer; this is timed
    error(answer)           return how wrong an answer is; compared with float64
    work()                  return the Work of one call

    and for competitors

    job()                   return their task, its arrays and its parameters
    disagreement(theirs, answer)
                            return how far theirs is from ours, as a share of what is allowed
    """

    # what the work counts
    unit = "rows"
    # parameters of make, and their values: the cases are their product
    axes = {}
    # values that replace those of axes in these sets; None: no case
    quick = large = tables = roofline = None
    # the case in words, with the names of axes in braces; see words
    phrase = ""
    # warm: calls follow each other as in a loop; rested: each comes after a pause
    state = "warm"
    # largest error of a correct answer
    limit = 0.0
    # libraries that do the same; see libraries.py
    competitors = ()

    def __init_subclass__(cls):
        if not cls.__name__.startswith("_"):
            WORKLOADS[cls.__name__] = cls

    def __init__(self, **case):
        self.make(**case)

    def facts(self, theirs, answer):
        """Return what else is said of a competitor's answer, by name."""
        return {}


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
    return " ".join([kind.__name__, *parameters])


def said(kind):
    """Return the first sentence of a workload's description."""
    return kind.__doc__.split("\n")[0].rstrip(".")


def words(kind, case):
    """Return a case as people say it: one query, 10,000 rows x 64, k = 10, in a loop."""
    if not kind.phrase:
        return ", ".join([said(kind), *label(kind, case).split(" ", 1)[1:]])
    given = {"said": said(kind)} | {
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
def _prepared(kind, case):
    workload = kind(**dict(case))
    error = float(workload.error(workload.call()))
    if not error <= kind.limit:
        raise WrongAnswer(f"error must be at most {kind.limit:g}, got {error:g}")
    workload.measured_error = error
    return workload


def prepared(kind, case):
    """Return the workload of a case, made and checked once per process."""
    return _prepared(kind, tuple(case.items()))


def forget():
    """Free the inputs of all prepared workloads."""
    _prepared.cache_clear()


def in_turns(workload, budget=4.0, most=50):
    """Return median seconds, the percent of the limit, and what the limit is.

    Limit and call are measured in turns, as many as fit into the seconds of the budget. The percent
    is of their lower quartiles: the quarter of the turns that other work on the machine left alone.
    """
    limit, turns = Limit(workload.work()), []
    while len(turns) < most and sum(spent for _, spent in turns) < budget:
        turns.append((limit.seconds(), clock.seconds(workload.call)))
    least, spent = np.quantile(turns, 0.25, axis=0)
    return float(np.median(turns, axis=0)[1]), float(100 * least / spent), limit.bound


from bench.workloads import auditing, dense, metrics, models, sparse  # noqa: E402, F401
