"""What pytest-benchmark writes beside the times: the CPU, its instruction set, and the threads."""

from bench import machine


def pytest_report_header():
    """Say why the first run is slow."""
    return f"fastcos: {machine.description()}; the first run on a machine compiles for minutes"


def pytest_configure():
    """Time the compiled kernels, not the slower code that stands in until they are compiled."""
    from fastcos.parallel import readiness

    readiness.compile_at_once()


def pytest_benchmark_update_machine_info(machine_info):
    """Add to the JSON document what decides the speed of fastcos.

    pytest-benchmark writes the commit itself. Within the facts about the machine it would make
    every comparison of two commits warn that the machines differ.
    """
    facts = machine.facts()
    names = {"cpu": "cpu_name", "isa": "isa", "threads": "threads", "cores": "cores", "os": "os"}
    machine_info |= {name: facts[fact] for fact, name in names.items()}
