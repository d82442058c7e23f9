"""Options and processes of test_throughput.py, and its table beside pytest-benchmark's."""

import pytest

from bench.turns import lines
from bench.workloads import SETS, forget


def pytest_addoption(parser):
    group = parser.getgroup("fastcos")
    group.addoption("--cases", choices=SETS, default="quick", help="which cases of the workloads")
    group.addoption("--processes", type=int, default=3, help="of every library and case, in turn")


def pytest_configure(config):
    config.measured = {}


@pytest.fixture(autouse=True)
def free_memory(request):
    """Keep the inputs of the quick cases only: others take gigabytes."""
    yield
    if request.config.getoption("cases") == "large":
        forget()


def pytest_benchmark_update_machine_info(machine_info):
    from bench.markdown import cpu_name
    from bench.tables import versions
    from fastcos import get_config

    machine_info |= {
        "cpu_name": cpu_name(), "threads": get_config().num_threads, "isa": get_config().isa,
        "versions": versions(),
    }  # fmt: skip


def pytest_terminal_summary(terminalreporter, config):
    """Print time, throughput, percent of limit and ratio, by case."""
    for group, outcome in config.measured.items():
        terminalreporter.write_sep("-", group)
        for line in lines(outcome):
            terminalreporter.write_line(line)
