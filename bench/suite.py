"""The suite in this process: `python -P bench/suite.py` prints JSON.

{benchmark: median seconds of a call}, the median of several passes; or with --tracks {benchmark:
value}. With --serve it stays, and times what it is asked for (bench.gate). On one thread the
seconds are of CPU time: a machine that runs other work adds little to them. What fails is told on
stderr and left out. The installed fastcos is measured, whatever checkout this file lies in; asv's
own discovery and set-up are used, with less time for each benchmark than asv takes.
"""

import argparse
import contextlib
import functools
import gc
import itertools
import json
import os
import re
import statistics
import sys
import time
from pathlib import Path

from asv_runner.benchmarks.time import TimeBenchmark
from asv_runner.discovery import disc_benchmarks, update_sys_path

HERE = Path(__file__).parent
SKIPPED = object()
_caches = {}


# of one visit: what the calls may take in all, and how many there are
SECONDS, MOST_CALLS, PASSES = 0.02, 40, 3


class Quick:
    """What asv reads of a benchmark: one call. Does it run, and is its answer right?"""

    repeat = 1
    warmup_time = 0


def clock():
    """CPU time on one thread, where the system counts it finely; else the time that passes."""
    from fastcos import config

    fine = time.get_clock_info("process_time").resolution <= 1e-6
    return time.process_time if fine and config.num_threads() == 1 else time.perf_counter


def spin(turns):
    for _ in range(turns):
        pass


class SlowDriver:
    """The driver of kernels, made slower until a whole benchmark takes about a share longer.

    shares: one for all, or a dict of what some benchmarks need for that; the others take no part.
    For the calibration of the gate. It is here and not in the package, so no user can meet it. What
    it adds are empty loops, not a wait for a clock: to ask for CPU time is a system call, and many
    of them slow down what comes after.
    """

    # of a benchmark's time, in the driver: what is left for what is slowed down elsewhere
    LEAST_PART = 0.05
    # in which the driver's part is measured, after as many that warm up
    CALLS = 10

    def __init__(self, shares, now):
        from fastcos import parallel

        self.shares, self.now, self.plain = shares, now, parallel.run
        self.added = self.spent = 0.0
        self.known = {}
        self.turns_per_second = statistics.median(
            20_000 / self.seconds(spin, 20_000) for _ in range(100)
        )
        parallel.run = self.run

    def seconds(self, call, *arguments, **named):
        started = self.now()
        call(*arguments, **named)
        return self.now() - started

    def run(self, *arguments, **named):
        taken = self.seconds(self.plain, *arguments, **named)
        self.spent += taken
        spin(int(self.added * taken * self.turns_per_second))

    def part(self, call):
        """Of the time of some calls, what the driver takes."""
        self.added = self.spent = 0.0
        taken = sum(self.seconds(call) for _ in range(self.CALLS))
        return self.spent / taken

    def tune(self, name, call):
        """Add for call what makes all of it take the share longer; whether the driver can."""
        if name not in self.known:
            share = self.shares.get(name, 0) if isinstance(self.shares, dict) else self.shares
            self.part(call)
            part = self.part(call)
            self.known[name] = share / part if part >= self.LEAST_PART else 0.0
        self.added = self.known[name]
        return self.added > 0


def named(benchmark):
    """Every set of parameters: the index and asv's name for it."""
    for index, values in enumerate(itertools.product(*benchmark.params)):
        yield index, benchmark.name + (f"({', '.join(values)})" if values else "")


def every(kinds, wanted):
    """Name, benchmark and index of its parameters, of these kinds and where the name passes."""
    update_sys_path(str(HERE))
    for benchmark in disc_benchmarks(str(HERE), ignore_import_errors=True):
        if benchmark.type in kinds:
            benchmark._attr_sources.insert(0, Quick)
            for index, name in named(benchmark):
                if wanted(name):
                    yield name, benchmark, index


def attempt(name, benchmark, index, action):
    """What action(benchmark) returns after its set-up; SKIPPED, or None where it failed."""
    if benchmark.params:
        benchmark.set_param_idx(index)
    try:
        key = benchmark.setup_cache_key
        if key is not None and key not in _caches:
            _caches[key] = benchmark.do_setup_cache()
        benchmark.set_cache(_caches.get(key))
        benchmark._redo_setup_next = False
        return SKIPPED if benchmark.do_setup() else action(benchmark)
    except Exception as error:
        print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr)
    finally:
        with contextlib.suppress(Exception):
            benchmark.do_teardown()


def measured(kinds, wanted):
    """Name and asv's result of every benchmark, called once; None where it failed."""
    for name, benchmark, index in every(kinds, wanted):
        result = attempt(name, benchmark, index, lambda benchmark: benchmark.do_run())
        if result is not SKIPPED:
            yield name, result


class Times:
    """Benchmarks that can be timed again and again; each is set up when it is first asked for."""

    def __init__(self, wanted, now, driver=None):
        self.now, self.driver = now, driver
        self.known = {
            name: (benchmark, index)
            for name, benchmark, index in every({"time"}, wanted)
            # timeraw_ starts processes, which have a clock of their own
            if type(benchmark) is TimeBenchmark
        }

    def __call__(self, names):
        """Median seconds of some calls; what fails, or does not apply, is left out."""
        found = {
            name: attempt(name, *self.known[name], functools.partial(self.median_call, name))
            for name in names
        }
        return {name: found[name] for name in names if found[name] not in (None, SKIPPED)}

    def median_call(self, name, benchmark):
        call = functools.partial(benchmark.func, *benchmark._current_params)
        if self.driver and not self.driver.tune(name, call):
            return SKIPPED
        now, taken = self.now, []
        gc.disable()
        try:
            while sum(taken) < SECONDS and len(taken) < MOST_CALLS:
                started = now()
                call()
                taken.append(now() - started)
        finally:
            gc.enable()
        return statistics.median(taken)


def serve(times):
    """Answer lines of names with lines of times, until there are no more."""
    out = sys.stdout
    with contextlib.redirect_stdout(sys.stderr):  # what a benchmark prints is no answer
        for line in sys.stdin:
            names = json.loads(line) or times.known
            found = times([name for name in names if name in times.known])
            print(json.dumps(found), file=out, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="only these benchmarks, by full name")
    parser.add_argument("--select", default="", metavar="REGEX", help="only names that match")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--quick", action="store_true", help="one call each")
    how.add_argument("--serve", action="store_true", help="answer lines of names on stdin")
    how.add_argument("--tracks", action="store_true", help="what is tracked instead of times")
    given = parser.parse_args()
    shares, now = json.loads(os.environ.get("BENCH_SLOWDOWN", "0")), clock()
    driver = SlowDriver(shares, now) if shares else None
    chosen, pattern = set(given.names), re.compile(given.select)

    def wanted(name):
        return (not chosen or name in chosen) and pattern.search(name)

    if given.serve:
        serve(Times(wanted, now, driver))
        return
    with contextlib.redirect_stdout(sys.stderr):
        if given.tracks:
            found = {
                name: value for name, value in measured({"track"}, wanted) if value is not None
            }
        else:
            times = Times(wanted, now, driver)
            passes = [times(times.known) for _ in range(1 if given.quick else PASSES)]
            found = {
                name: statistics.median(seconds[name] for seconds in passes)
                for name in passes[0]
                if all(name in seconds for seconds in passes)
            }
    json.dump(found, sys.stdout, indent=0)


if __name__ == "__main__":
    main()
