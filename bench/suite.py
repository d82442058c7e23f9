"""The suite in this process: `python -P bench/suite.py` prints JSON.

{benchmark: seconds of the fastest call of several passes}, for what interferes with a call only
adds to it, and does so for a while; or with --tracks {benchmark: value}. On one thread the seconds
are of CPU time: a machine that runs other work adds little to them. What fails is told on stderr
and left out. The installed fastcos is measured, whatever checkout this file lies in; asv's own
discovery and timing do the work, with less time for each benchmark than asv takes.
"""

import argparse
import contextlib
import itertools
import json
import math
import os
import re
import sys
import time
from pathlib import Path

from asv_runner.discovery import disc_benchmarks, update_sys_path

HERE = Path(__file__).parent
SKIPPED = object()


class Passes:
    """What asv reads of a benchmark, for one of many processes."""

    passes = 3
    repeat = (1, 30, 0.02)
    min_run_count = 1
    warmup_time = 0


class Quick:
    """Each benchmark once: does it run, and is its answer right?"""

    passes = 1
    repeat = 1
    warmup_time = 0


def clock():
    """CPU time on one thread, where the system counts it finely; else the time that passes."""
    from fastcos import config

    fine = time.get_clock_info("process_time").resolution <= 1e-6
    return time.process_time if fine and config.num_threads() == 1 else time.perf_counter


def slow_down(share, now):
    """Let everything that runs compiled code take this share longer, in the driver of kernels.

    For the calibration of the gate. It is here and not in the package, so no user can meet it.
    """
    from fastcos import threads

    plain = threads.run

    def run(*arguments, **named):
        started = now()
        plain(*arguments, **named)
        end = now()
        end += share * (end - started)
        while now() < end:
            pass

    threads.run = run


def named(benchmark):
    """Every set of parameters: the index and asv's name for it."""
    for index, values in enumerate(itertools.product(*benchmark.params)):
        yield index, benchmark.name + (f"({', '.join(values)})" if values else "")


def measured(kinds, wanted, sampling):
    """Name and result of every benchmark of these kinds whose name passes; None where it failed.

    Pass by pass: what is slow for a second then meets one pass of a benchmark only.
    """
    update_sys_path(str(HERE))
    every = disc_benchmarks(str(HERE), ignore_import_errors=True)
    of_kind = [benchmark for benchmark in every if benchmark.type in kinds]
    for benchmark in of_kind:
        benchmark._attr_sources.insert(0, sampling)
    for benchmark in of_kind * sampling.passes:
        cache = None
        for index, name in named(benchmark):
            if not wanted(name):
                continue
            if benchmark.params:
                benchmark.set_param_idx(index)
            try:
                if benchmark.setup_cache_key is not None and cache is None:
                    cache = benchmark.do_setup_cache()
                benchmark.set_cache(cache)
                benchmark._redo_setup_next = False
                result = SKIPPED if benchmark.do_setup() else benchmark.do_run()
            except Exception as error:
                print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr)
                result = None
            finally:
                with contextlib.suppress(Exception):
                    benchmark.do_teardown()
            if result is not SKIPPED:
                yield name, result


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="only these benchmarks, by full name")
    parser.add_argument("--select", default="", metavar="REGEX", help="only names that match")
    parser.add_argument("--quick", action="store_true", help="one call each")
    parser.add_argument("--tracks", action="store_true", help="what is tracked instead of times")
    given = parser.parse_args()
    share = float(os.environ.get("BENCH_SLOWDOWN", "0"))
    Passes.timer = Quick.timer = clock()
    if share:
        slow_down(share, clock())
    chosen, pattern = set(given.names), re.compile(given.select)

    def wanted(name):
        return (not chosen or name in chosen) and pattern.search(name)

    kinds = {"track"} if given.tracks else {"time"}
    sampling = Quick if given.quick or given.tracks else Passes
    found, failed = {}, set()
    # what a benchmark prints is no result
    with contextlib.redirect_stdout(sys.stderr):
        for name, result in measured(kinds, wanted, sampling):
            if result is None:
                failed.add(name)
            elif given.tracks:
                found[name] = result
            else:
                found[name] = min(found.get(name, math.inf), *result["samples"])
    found = {name: value for name, value in found.items() if name not in failed}
    json.dump(found, sys.stdout, indent=0)


if __name__ == "__main__":
    main()
