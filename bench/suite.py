"""Run the suite in this process: `python -P bench/suite.py` prints JSON.

The output is {benchmark: median seconds of a call}, the median of several passes; with --tracks it
is {benchmark: value}. With --serve the process answers requests of bench.gate. One thread is timed
in CPU time, to which other work on the machine adds little. Failed benchmarks are reported on
stderr and left out. The installed fastcos is measured, not the checkout of this file. Discovery and
set-up are asv's, with less time per benchmark.
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


# of one turn at a benchmark
SECONDS = 0.02
MAX_CALLS = 40
# without --serve; the median of 3 ignores one disturbance
PASSES = 3


class Quick:
    """asv attributes for a single call: does the benchmark run, is its answer correct."""

    repeat = 1
    warmup_time = 0


def clock():
    """Return the clock: CPU time on one thread if its resolution is fine, else wall time."""
    from fastcos import config

    fine = time.get_clock_info("process_time").resolution <= 1e-6
    return time.process_time if fine and config.num_threads() == 1 else time.perf_counter


def spin(turns):
    for _ in range(turns):
        pass


class SlowDriver:
    """A kernel driver that is slowed down until a whole benchmark takes about a share longer.

    For bench.calibrate. shares is one number, or a dict of the numbers for some benchmarks; the
    others are skipped. The driver adds empty loops: reading the CPU clock is a system call, and
    many of them slow down the code that follows.
    """

    # least share of the driver in a benchmark's time: below it the added loops scatter too much
    MIN_PART = 0.05
    # to measure that share, after as many warm-up calls
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
        """Return the share of the driver in the time of some calls."""
        self.added = self.spent = 0.0
        taken = sum(self.seconds(call) for _ in range(self.CALLS))
        return self.spent / taken

    def tune(self, name, call):
        """Set the slow-down for a call; return whether the driver takes part in it."""
        if name not in self.known:
            share = self.shares.get(name, 0) if isinstance(self.shares, dict) else self.shares
            self.part(call)
            part = self.part(call)
            self.known[name] = share / part if part >= self.MIN_PART else 0.0
        self.added = self.known[name]
        return self.added > 0


def named(benchmark):
    """Yield the index of every set of parameters and asv's name for it."""
    for index, values in enumerate(itertools.product(*benchmark.params)):
        yield index, benchmark.name + (f"({', '.join(values)})" if values else "")


def every(kinds, wanted):
    """Yield name, benchmark and parameter index of the wanted benchmarks of these kinds."""
    update_sys_path(str(HERE))
    for benchmark in disc_benchmarks(str(HERE), ignore_import_errors=True):
        if benchmark.type in kinds:
            benchmark._attr_sources.insert(0, Quick)
            for index, name in named(benchmark):
                if wanted(name):
                    yield name, benchmark, index


def attempt(name, benchmark, index, action):
    """Return action(benchmark) after the set-up; SKIPPED, or None if it failed."""
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
    """Yield name and asv's result of every benchmark, called once; None if it failed."""
    for name, benchmark, index in every(kinds, wanted):
        result = attempt(name, benchmark, index, lambda benchmark: benchmark.do_run())
        if result is not SKIPPED:
            yield name, result


class Times:
    """Benchmarks that are timed repeatedly; each is set up at its first request."""

    def __init__(self, wanted, now, driver=None):
        self.now, self.driver = now, driver
        self.known = {
            name: (benchmark, index)
            for name, benchmark, index in every({"time"}, wanted)
            # timeraw_ starts processes, whose CPU time this clock lacks
            if type(benchmark) is TimeBenchmark
        }

    def __call__(self, names):
        """Return the median seconds of some calls, without benchmarks that fail or are skipped."""
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
            while sum(taken) < SECONDS and len(taken) < MAX_CALLS:
                started = now()
                call()
                taken.append(now() - started)
        finally:
            gc.enable()
        return statistics.median(taken)


def serve(times):
    """Answer each line of names with a line of times, until stdin ends."""
    out = sys.stdout
    with contextlib.redirect_stdout(sys.stderr):  # benchmarks may print
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
    how.add_argument("--tracks", action="store_true", help="tracked values instead of times")
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
