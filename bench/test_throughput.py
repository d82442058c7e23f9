"""pytest-benchmark's views: every workload by fastcos, and by its competitors.

The libraries of a case that are selected are measured in one turn loop (turns.py), before the first
of its tests; each test hands the seconds of its library to pytest-benchmark.
"""

import functools
import itertools

import pytest

from bench import turns
from bench.worker import OURS, with_threads
from bench.workloads import WORKLOADS, WrongAnswer, cases, label, prepared, words
from fastcos import get_config

# the clock of pytest-benchmark advances by seconds that were measured before
clock = [0.0]


def pytest_generate_tests(metafunc):
    found, which = [], metafunc.config.getoption("cases")
    timing = {} if is_gate(metafunc.config) else {"timer": lambda: clock[0]}
    for kind in WORKLOADS.values():
        libraries = (OURS,) if is_gate(metafunc.config) else libraries_of(kind, which)
        for case, library in itertools.product(cases(which, kind), libraries):
            name = label(kind, case)
            mark = pytest.mark.benchmark(group=f"{kind.question}: {name}", **timing)
            # in the characters that -k takes: SelfJoin-20000x384-k10-faiss
            short = f"{name}-{library}".replace(" x ", "x").replace(" ", "-")
            short = short.replace(",", "").replace("=", "")
            found.append(pytest.param(kind, case, library, id=short, marks=mark))
    metafunc.parametrize(("kind", "case", "library"), found)


def libraries_of(kind, which):
    """Return fastcos and its competitors; in the set "roofline" fastcos on 1, 2, 4, ... threads."""
    if which != "roofline":
        return OURS, *kind.competitors
    most = get_config().num_threads
    return OURS, *(with_threads(2**i) for i in range(most.bit_length()) if 2**i < most)


def is_gate(config):
    """Return whether the gate runs the tests: fastcos only, and no limits."""
    return any(type(plugin).__name__ == "Server" for plugin in config.pluginmanager.get_plugins())


@functools.lru_cache(1)
def outcome(kind, case, libraries, processes, budget):
    """Return the Outcome of a case, measured once."""
    return turns.measure(kind, dict(case), libraries, processes, budget)


def selected(session, kind, case):
    """Return the libraries whose tests of a case were selected; fastcos is always measured."""
    params = [item.callspec.params for item in session.items if hasattr(item, "callspec")]
    found = [one["library"] for one in params if one.get("kind") is kind and one["case"] == case]
    return tuple(dict.fromkeys([OURS, *found]))


def test_throughput(kind, case, library, benchmark, request):
    config = request.config
    libraries = selected(request.session, kind, case)
    try:
        if is_gate(config) or (not benchmark.enabled and libraries == (OURS,)):
            benchmark(prepared(kind, case).call)
            return
        processes = config.getoption("processes") if benchmark.enabled else 1
        budget = float(config.getoption("benchmark_max_time")) * benchmark.enabled
        found = outcome(kind, tuple(case.items()), libraries, processes, budget)
    except ModuleNotFoundError as error:  # ml_dtypes, which has bfloat16
        pytest.skip(str(error))
    except WrongAnswer as error:
        pytest.fail(f"fastcos: {error}")
    if library in found.absent:
        pytest.skip(found.absent[library])
    info = found.measured[library] | {"library": library, "case": words(kind, case)}
    if library == OURS:
        info |= {"state": kind.state, "others": found.others, "absent": found.absent}
    benchmark.extra_info.update(info)
    replay = itertools.cycle(itertools.chain(*info["turns"]))

    def call():
        clock[0] += next(replay)

    benchmark.pedantic(call, rounds=sum(map(len, info["turns"])))
    if benchmark.enabled:
        config.measured[benchmark.group] = found
