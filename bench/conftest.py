"""Options and processes of test_throughput.py, and its table beside pytest-benchmark's."""

import itertools
import statistics

import pytest

from bench.turns import BUSY, time_of, verdict
from bench.worker import OURS
from bench.workloads import SETS, forget


def pytest_addoption(parser):
    group = parser.getgroup("fastcos")
    group.addoption("--cases", choices=SETS, default="quick", help="which cases of the workloads")
    group.addoption("--processes", type=int, default=3, help="of every library and case, in turn")


def pytest_configure(config):
    config.measured = []


@pytest.fixture(autouse=True)
def free_memory(request):
    """Keep the inputs of the quick cases only: others take gigabytes."""
    yield
    if request.config.getoption("cases") == "large":
        forget()


def pytest_benchmark_update_machine_info(machine_info):
    from bench.tables import cpu_name, versions
    from fastcos import get_config

    config = get_config()
    machine_info |= {
        "cpu_name": cpu_name(),
        "threads": config.num_threads,
        "isa": config.isa,
        "versions": versions(),
    }


def pytest_terminal_summary(terminalreporter, config):
    """Print time, throughput, percent of limit and ratio, by case."""
    for group, members in itertools.groupby(config.measured, key=lambda row: row[0]):
        terminalreporter.write_sep("-", group)
        for _, outcome, info in members:
            facts, seconds = outcome.measured[OURS].facts, time_of(info["turns"])
            rates = (facts[name] / seconds / 1e9 for name in ("count", "bytes", "operations"))
            units, gb, gop = rates
            share = statistics.median(facts["percents"])
            ending = f"{share:4.0f}% of {facts['limited_by']}"
            if "ratio" in info:
                ratio, low, high = info["ratio"]
                ending = f"{ratio:7.2f} [{low:.2f}, {high:.2f}] x fastcos, {verdict(low, high)}"
                ending += f", {info['setting']}" if info["setting"] else ""
                ending += f", recall {info['recall']:.3f}" if "recall" in info else ""
            terminalreporter.write_line(
                f"{info['library']:18}{1e3 * seconds:11.3f} ms{1e3 * units:11.2f} M units/s"
                f"{gb:8.2f} GB/s{gop:9.1f} Gop/s  {ending}"
            )
        for library, why in (outcome.absent | outcome.wrong).items():
            terminalreporter.write_line(f"{library:18} {why}")
        if outcome.others is not None and outcome.others > BUSY:
            terminalreporter.write_line(f"busy: others used {outcome.others:.1f} cores")
