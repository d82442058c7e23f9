"""One class per workload: seconds, throughput, percent of the machine's limit."""

import hashlib
import inspect
import statistics
import tempfile
import time
from pathlib import Path

from bench.worker import PAUSE, turn
from bench.workloads import WORKLOADS, in_turns, prepared

# seconds of the turns of a tracked number, one at least, and the most turns for the throughput
BUDGET, TURNS = 0.25, 5


class _View:
    """How asv samples every workload.

    The placement of threads and pages differs between processes, so several are used. asv needs
    more than 6 samples per side to distinguish two commits.
    """

    rounds = 4
    repeat = (10, 40, 1.0)
    warmup_time = 0.3

    def setup(self, *values):
        # asv removes this folder, and ends its processes without what removes temporary ones
        tempfile.tempdir = str(Path.cwd())
        # once per process and case, although asv calls it before every sample
        self.workload = prepared(self.kind, dict(zip(self.param_names, values, strict=True)))
        if self.kind.state == "rested":
            time.sleep(PAUSE)


def view(kind):
    """Return the class that asv finds; its version changes with the source of the workload."""

    def time_call(self, *_):
        self.workload.call()

    def track_throughput(self, *_):
        spent = []
        while len(spent) < TURNS and sum(spent) < BUDGET:
            spent.append(turn(self.workload.call, "warm"))
        return self.workload.work.units / statistics.median(spent)

    def track_percent_of_limit(self, *_):
        return in_turns(self.workload, BUDGET)[1]

    source = inspect.getsource(kind.make)
    attributes = {
        "kind": kind,
        "params": [list(values) for values in kind.axes.values()],
        "param_names": list(kind.axes),
        "version": hashlib.sha256(source.encode()).hexdigest(),
        "__doc__": kind.said,
    }
    units = {
        time_call: ("seconds", "time"),
        track_throughput: (f"{kind.unit}/s", "throughput"),
        track_percent_of_limit: ("percent", "percent of the machine's limit"),
    }
    if kind.state == "rested":  # one call after every pause
        attributes |= {"number": 1, "warmup_time": 0}
        units = {time_call: units[time_call]}
    for method, (unit, words) in units.items():
        method.unit, method.pretty_name = unit, f"{kind.question}: {kind.said} ({words})"
        method.pretty_source = source  # what the page shows as code
        attributes[method.__name__] = method
    return type(kind.name, (_View,), attributes)


globals().update({name: view(kind) for name, kind in WORKLOADS.items()})
