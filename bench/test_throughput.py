"""pytest-benchmark's views: every workload by fastcos, and by its competitors.

    pytest bench --benchmark-only                             # the quick cases
    pytest bench --benchmark-only --cases regular -k SelfJoin
    pytest bench --benchmark-disable -k fastcos               # do they run, are the answers right

fastcos is timed in turns with the limit of the machine, a competitor in turns with fastcos: percent
and ratio are medians over the turns.
"""

import functools
import math
import os
import statistics
import time
import timeit

import pytest

from bench import clock
from bench.inputs import MissingData
from bench.worker import Missing, peak_of
from bench.workloads import WORKLOADS, Limit, WrongAnswer, cases, label, prepared

OURS = "fastcos"
# seconds of a call that is not repeated --benchmark-min-rounds times
LONG = 5.0
# rounds of the shortest calls
MOST_ROUNDS = 500


class Timer:
    """The timer of the competitors: it advances by the seconds that their process reports."""

    now = 0.0

    def __call__(self):
        return self.now


timer = Timer()


def pytest_generate_tests(metafunc):
    found = []
    for kind in WORKLOADS.values():
        for case in cases(metafunc.config.getoption("cases"), kind):
            name = label(kind, case)
            others = () if is_gate(metafunc.config) else kind.competitors
            for library in (OURS, *others):
                marks = {"group": f"{kind.question}: {name}"}
                marks |= {} if library == OURS else {"timer": timer}
                found.append(pytest.param(
                    kind, case, library, id=identifier(f"{name}-{library}"),
                    marks=pytest.mark.benchmark(**marks),
                ))  # fmt: skip
    metafunc.parametrize(("kind", "case", "library"), found)


def identifier(name):
    """Return a name in the characters that -k takes: SelfJoin-20000x384-k10."""
    return name.replace(" x ", "x").replace(",", "").replace("=", "").replace(" ", "-")


def is_gate(config):
    """Return whether the gate runs the tests: fastcos only, and no limits."""
    return any(type(plugin).__name__ == "Server" for plugin in config.pluginmanager.get_plugins())


def rounds(config, seconds):
    """Return how many turns of so many seconds fit into --benchmark-max-time."""
    least = config.getoption("benchmark_min_rounds") if seconds < LONG else 1
    most = float(config.getoption("benchmark_max_time"))
    return min(MOST_ROUNDS, max(least, math.ceil(most / seconds)))


def run(benchmark, config, call, beside):
    """Benchmark a call; return the seconds of what ran before every round, and of the rounds."""
    others = []
    beside()
    benchmark.pedantic(
        call,
        setup=lambda: others.append(beside()),
        rounds=rounds(config, beside() + clock.seconds(call)),
    )
    return others, benchmark.stats.stats.data if benchmark.enabled else []


@functools.cache
def slowed(call, share):
    """Return a call that takes a share longer: bench.calibrate measures the gate with it.

    It spins by counting: to read the CPU clock in every call would slow down short ones by more.
    """
    count = 20_000
    count = int(count * share * cpu_seconds(call) / cpu_seconds(lambda: spin(count)))

    def slower():
        call()
        spin(count)

    return slower


def spin(count):
    for _ in range(count):
        pass


def cpu_seconds(call):
    """Return the mean CPU seconds of as many calls as take 0.2 s."""
    number, seconds = timeit.Timer(call, timer=time.process_time).autorange()
    return seconds / number


def ours(workload, config, benchmark):
    """Benchmark fastcos; return the facts about it."""
    if is_gate(config):
        share = float(os.environ.get("BENCH_SLOWDOWN", "0"))
        call = slowed(workload.call, share) if share else workload.call
        run(benchmark, config, call, lambda: 0.0)
        return {}
    limit = Limit(workload.work())
    others, seconds = run(benchmark, config, workload.call, limit.seconds)
    shares = [100 * least / spent for least, spent in zip(others, seconds, strict=False)]
    return {
        "error": workload.measured_error,
        "peak_mib": peak_of(workload.call)[1],
        "percent_of_limit": statistics.median(shares or [0]),
        "limited_by": limit.bound,
    }


def competitor(workload, config, benchmark, worker):
    """Benchmark a competitor whose answer is right; return the facts about it."""
    theirs, peak = worker.prepare(*workload.job())
    answer = workload.call()
    error = float(workload.disagreement(theirs, answer))
    if not error <= 1:
        config.wrong.append({"group": benchmark.group, "library": worker.library, "error": error})
        pytest.skip(f"wrong answer: {error:.3g} times the error that float32 explains")

    def call():
        timer.now += worker.seconds()

    others, seconds = run(benchmark, config, call, lambda: clock.seconds(workload.call))
    ratios = [spent / least for least, spent in zip(others, seconds, strict=False)]
    return workload.facts(theirs, answer) | {
        "error_allowed_share": error,
        "peak_mib": peak,
        "core_type": worker.core_type,
        "ours": statistics.median(others),
        "ratio": statistics.median(ratios or [0]),
    }


def test_throughput(kind, case, library, benchmark, request, workers):
    config = request.config
    try:
        workload = prepared(kind, case)
        if library == OURS:
            info = ours(workload, config, benchmark)
        else:
            worker = workers(library, workload)
            info = competitor(workload, config, benchmark, worker)
            info["target"] = kind.competitors[library]
    except (MissingData, Missing) as error:
        pytest.skip(str(error))
    except WrongAnswer as error:
        pytest.fail(f"fastcos: {error}")
    work = workload.work()
    info |= {"library": library, "unit": kind.unit, "count": work.units, "bytes": work.bytes}
    info["operations"] = 2 * work.multiply_adds
    if benchmark.enabled:
        median = statistics.median(benchmark.stats.stats.data)
        info["throughput"] = work.units / median
        info["GB/s"], info["Gop/s"] = work.bytes / median / 1e9, info["operations"] / median / 1e9
        config.measured.append((benchmark.group, median, info))
    benchmark.extra_info.update(info)
