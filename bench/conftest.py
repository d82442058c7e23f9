"""The facts that pytest-benchmark stores with the times: CPU, instruction set and threads."""

from bench import machine


def pytest_report_header():
    """Return a line which says that the first run on a machine is slow."""
    return f"fastcos: {machine.description()}; the first run on a machine compiles for minutes"


def pytest_configure():
    """Let calls wait for compiled kernels, so that no benchmark times the slower NumPy code."""
    from fastcos.parallel import readiness

    readiness.compile_at_once()


def pytest_benchmark_update_machine_info(machine_info):
    """Add the facts that decide the speed of fastcos to the JSON document.

    The commit is not added, because pytest-benchmark writes it to another part of the document. A
    commit among the facts about the machine would even do harm: pytest-benchmark would take two
    commits for two machines, and would warn whenever they are compared.
    """
    facts = machine.facts()
    names = {"cpu": "cpu_name", "isa": "isa", "threads": "threads", "cores": "cores", "os": "os"}
    machine_info |= {name: facts[fact] for fact, name in names.items()}
