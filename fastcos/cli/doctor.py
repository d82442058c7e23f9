"""The command ``fastcos doctor``, which prints settings of this machine and possible problems."""

import argparse
import os
from typing import Any

from fastcos import config
from fastcos.cli import options
from fastcos.cli.terminal import print_json, print_table
from fastcos.kernels import code_cache, cpu, native
from fastcos.parallel import readiness
from fastcos.storage import provenance

DESCRIPTION = """\
Print the versions, cores, BLAS, instruction set and caches of this machine. These properties
affect the speed of fastcos, so include them in a bug report. If settings should be changed, the
command prints the recommended changes first."""
EPILOG = """\
examples:
  fastcos doctor
  fastcos doctor --json > machine.json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    options.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Print the advice and the properties of the machine."""
    properties = provenance.json_ready(machine_properties())
    if args.json:
        print_json(properties)
        return 0
    for line in properties["advice"] or ["No problem found: there is nothing to change."]:
        print(line)
    rows = [
        (name.replace("_", " "), _text(value))
        for name, value in properties.items()
        if name != "advice"
    ]
    print_table("this machine, as fastcos sees it", ["property", "value"], rows)
    return 0


def machine_properties() -> dict[str, Any]:
    """Return the properties that affect the speed or belong in a bug report.

    The entry "advice" lists the recommended changes.
    """
    import scipy.linalg  # noqa: F401  loads the BLAS of SciPy, so that threadpool_info lists it
    from threadpoolctl import threadpool_info

    settings = config.get_config()
    directory = code_cache.cache_directory()
    properties = {
        "versions": provenance.versions(),
        "processor": cpu.name(),
        "cores": os.cpu_count(),
        "cores_allowed": config.count_cpus(),  # limited by the CPU affinity and the cgroup quota
        "threads": settings.n_threads,
        "backend": settings.backend,
        "instruction_set": settings.isa,
        "instruction_sets_supported": cpu.supported_isas(),
        "working_memory_MiB": settings.working_memory,
        "cache_directory": "none"
        if directory is None
        else str(directory / code_cache.code_digest()),
        "cache_writable": code_cache.is_writable(),
        "native_code": native.tier() or "none",
        "numba_installed": code_cache.has_compiler(),
        "compiled_signatures_cached": len(code_cache.signatures()),
        "search_runs": readiness.explain(),
        "search_is_compiled": readiness.is_ready(),
        "blas": [
            {key: library.get(key) for key in ("prefix", "version", "architecture", "num_threads")}
            for library in threadpool_info()
            if library["user_api"] == "blas"
        ],
    }
    return {**properties, "advice": advice(properties)}


def advice(properties: dict[str, Any]) -> list[str]:
    """Return the recommended changes, one line per change."""
    threads, cores = properties["threads"], properties["cores_allowed"]
    isa, supported = properties["instruction_set"], properties["instruction_sets_supported"][0]
    lines = []
    if not properties["numba_installed"]:
        lines.append(
            "Numba is not installed, so every operation that needs to compile code fails, such as "
            "training, audits and comparisons: run pip install 'fastcos[compile]'."
        )
    elif not properties["cache_writable"]:
        lines.append(
            f"{properties['cache_directory']} cannot be written, so every process compiles the "
            "kernels again: set FASTCOS_CACHE_DIR to a writable folder."
        )
    elif not properties["search_is_compiled"]:
        lines.append(
            "The kernels of the search are not compiled yet, so searches run in NumPy and are "
            "slower: run fastcos warmup."
        )
    if threads > cores:
        lines.append(f"{threads} threads share {cores} cores: unset FASTCOS_N_THREADS.")
    if isa == "generic":
        lines.append(
            "FASTCOS_ISA is generic, so the kernels use no vector instructions: they return the "
            "same results, but are slower."
        )
    elif isa != supported:
        lines.append(
            f"FASTCOS_ISA limits the kernels to {isa}, although this processor supports "
            f"{supported}."
        )
    return lines


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {item}" for key, item in value.items())
    if isinstance(value, list):
        return "; ".join(map(_text, value))
    return str(value)
