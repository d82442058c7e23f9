"""One class per workload: seconds, throughput, percent of the machine's limit."""

import functools
import hashlib
import inspect

from bench.workloads import WORKLOADS, in_turns, prepared

# seconds of the turns of call and limit: one call at least
BUDGET = 0.5


class _View:
    """How asv samples every workload.

    The placement of threads and pages differs between processes, so several are used. asv needs
    more than 6 samples per side to distinguish two commits.
    """

    rounds = 4
    repeat = (10, 40, 1.0)
    warmup_time = 0.3

    def setup(self, *values):
        # once per process and case, although asv calls it before every sample
        self.workload = prepared(self.kind, dict(zip(self.param_names, values, strict=True)))

    def time_call(self, *_):
        self.workload.call()

    def track_throughput(self, *_):
        return self.workload.work().units / in_turns(self.workload, BUDGET)[0]

    def track_percent_of_limit(self, *_):
        return in_turns(self.workload, BUDGET)[1]

    track_percent_of_limit.unit = "percent"


# workloads share their bases
source_of = functools.cache(inspect.getsource)


def view(name, kind):
    """Return the class that asv finds; its version changes with the source of the workload."""
    lineage = [one for one in kind.__mro__ if one.__module__.startswith("bench.")]
    source = "".join(map(source_of, lineage))
    return type(name, (_View,), {
        "kind": kind,
        "params": [list(values) for values in kind.axes.values()],
        "param_names": list(kind.axes),
        "version": hashlib.sha256(source.encode()).hexdigest(),
        "unit": f"{kind.unit}/s",  # of track_throughput: the others have their own
        "__doc__": kind.__doc__,
    })  # fmt: skip


globals().update({name: view(name, kind) for name, kind in WORKLOADS.items()})
