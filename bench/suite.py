"""One pass over the suite in this process: `python -P bench/suite.py` prints JSON.

{benchmark: seconds of the fastest call}, for what interferes with a call only adds to it; or with
--tracks {benchmark: value}. What fails is told on stderr and left out. The installed fastcos is
measured, whatever checkout this file lies in; asv's own discovery and timing do the work, with less
time for each benchmark than asv takes.
"""

import argparse
import contextlib
import itertools
import json
import os
import re
import sys
import time
from pathlib import Path

from asv_runner.discovery import disc_benchmarks, update_sys_path

HERE = Path(__file__).parent
SKIPPED = object()


class OnePass:
    """What asv reads of a benchmark, for one of many processes."""

    repeat = (5, 40, 0.04)
    warmup_time = 0.01


class Quick:
    """Each benchmark once: does it run, and is its answer right?"""

    repeat = 1
    warmup_time = 0


def slow_down(share):
    """Let everything that runs compiled code take this share longer, in the driver of kernels.

    For the calibration of the gate. It is here and not in the package, so no user can meet it.
    """
    from fastcos import threads

    plain = threads.run

    def run(*arguments, **named):
        started = time.perf_counter()
        plain(*arguments, **named)
        end = time.perf_counter()
        end += share * (end - started)
        while time.perf_counter() < end:
            pass

    threads.run = run


def named(benchmark):
    """Every set of parameters: the index and asv's name for it."""
    for index, values in enumerate(itertools.product(*benchmark.params)):
        yield index, benchmark.name + (f"({', '.join(values)})" if values else "")


def measured(kinds, wanted, sampling):
    """Name and result of every benchmark of these kinds whose name passes; None where it failed."""
    update_sys_path(str(HERE))
    for benchmark in disc_benchmarks(str(HERE), ignore_import_errors=True):
        if benchmark.type not in kinds:
            continue
        cache = None
        for index, name in named(benchmark):
            if not wanted(name):
                continue
            benchmark._attr_sources.insert(0, sampling)
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
    if share:
        slow_down(share)
    chosen, pattern = set(given.names), re.compile(given.select)

    def wanted(name):
        return (not chosen or name in chosen) and pattern.search(name)

    kinds = {"track"} if given.tracks else {"time"}
    # what a benchmark prints is no result
    with contextlib.redirect_stdout(sys.stderr):
        every = measured(kinds, wanted, Quick if given.quick else OnePass)
        found = {name: result for name, result in every if result is not None}
    if not given.tracks:
        found = {name: min(result["samples"]) for name, result in found.items()}
    json.dump(found, sys.stdout, indent=0)


if __name__ == "__main__":
    main()
