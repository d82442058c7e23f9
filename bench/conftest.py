"""Options and processes of test_throughput.py, and its table beside pytest-benchmark's."""

import itertools

import pytest

from bench.libraries import USE_BLAS
from bench.worker import Competitor, fastest
from bench.workloads import SETS, forget

# queries of a trial of core types
TRIAL_QUERIES = 500


def pytest_addoption(parser):
    group = parser.getgroup("fastcos")
    group.addoption("--cases", choices=SETS, default="quick", help="which cases of the workloads")


def pytest_configure(config):
    config.measured, config.wrong = [], []


@pytest.fixture(scope="session")
def workers():
    """Return a function: the process of a library, with the fastest core type of its BLAS."""
    known = {}

    def worker(library, workload):
        if library not in known:
            if library in USE_BLAS:
                task, arrays, parameters = workload.job()
                queries = arrays["items"][:TRIAL_QUERIES]
                known[library] = fastest(library, task, arrays | {"queries": queries}, parameters)
            else:
                known[library] = Competitor(library)
        return known[library]

    yield worker
    for one in known.values():
        one.close()


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


def pytest_benchmark_update_json(config, output_json):
    output_json["wrong_answers"] = config.wrong


def pytest_terminal_summary(terminalreporter, config):
    """Print throughput and percent of limit, by group; fastcos first."""
    rows = sorted(config.measured, key=lambda row: (row[0], row[2]["library"] != "fastcos", row[1]))
    for group, members in itertools.groupby(rows, key=lambda row: row[0]):
        terminalreporter.write_sep("-", group)
        for _, median, info in members:
            ratio = f"{info['ratio']:7.2f} x fastcos" if "ratio" in info else ""
            ratio += f", recall {info['recall']:.3f}" if "recall" in info else ""
            share = (
                f"{info['percent_of_limit']:4.0f}% of {info['limited_by']}"
                if "percent_of_limit" in info
                else ""
            )
            terminalreporter.write_line(
                f"{info['library']:16}{1e3 * median:11.3f} ms"
                f"{info['throughput'] / 1e6:11.2f} M {info['unit']}/s{info['GB/s']:8.2f} GB/s"
                f"{info['Gop/s']:9.1f} Gop/s  {share}{ratio}"
            )
    for one in config.wrong:
        terminalreporter.write_line(f"wrong answer: {one['library']}, {one['group']}")
