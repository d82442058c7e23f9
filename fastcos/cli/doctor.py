"""fastcos doctor: settings and limits of this machine."""

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
Print what decides speed on this machine and what a bug report needs: versions, cores, BLAS,
instruction set and caches; then what to change, if anything."""
EPILOG = """\
examples:
  fastcos doctor
  fastcos doctor --json > machine.json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    options.add_json(parser)


def run(given: argparse.Namespace) -> int:
    """Print the findings and the advice."""
    found = provenance.json_ready(findings())
    if given.json:
        print_json(found)
        return 0
    rows = [
        (name.replace("_", " "), _text(value)) for name, value in found.items() if name != "advice"
    ]
    print_table("this machine, as fastcos sees it", ["property", "value"], rows)
    for line in found["advice"] or ["nothing to change"]:
        print(line)
    return 0


def findings() -> dict[str, Any]:
    """Return all that decides speed or that a bug report needs."""
    import joblib
    import scipy.linalg  # noqa: F401  loads the BLAS that is to be reported
    from threadpoolctl import threadpool_info

    settings = config.get_config()
    directory = code_cache.cache_directory()
    found = {
        "versions": provenance.versions(),
        "processor": cpu.name(),
        "cores": os.cpu_count(),
        "cores_allowed": joblib.cpu_count(),  # by affinity and cgroup quota
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
        "search_runs": {
            dtype: readiness.explain(dtype) for dtype in ("float32", "float64", "float16", "int8")
        },
        "search_is_compiled": readiness.is_ready("float32"),
        "blas": [
            {key: library.get(key) for key in ("prefix", "version", "architecture", "num_threads")}
            for library in threadpool_info()
            if library["user_api"] == "blas"
        ],
    }
    return {**found, "advice": advice(found)}


def advice(found: dict[str, Any]) -> list[str]:
    """Return what to change, one line each."""
    threads, cores = found["threads"], found["cores_allowed"]
    isa, supported = found["instruction_set"], found["instruction_sets_supported"][0]
    lines = []
    if not found["numba_installed"]:
        lines.append(
            "Numba is not installed: what the wheel holds no native code of fails, such as "
            "training, audits and comparisons. pip install 'fastcos[compile]'."
        )
    elif not found["cache_writable"]:
        lines.append(
            f"{found['cache_directory']} cannot be written: every process compiles again. "
            "Set FASTCOS_CACHE_DIR to a writable folder."
        )
    elif not found["search_is_compiled"]:
        lines.append(
            "The search is not compiled yet, and runs in NumPy until it is: run fastcos warmup."
        )
    if threads > cores:
        lines.append(f"{threads} threads share {cores} cores: unset FASTCOS_N_THREADS.")
    if isa == "generic":
        lines.append(
            "No vector instructions are used (FASTCOS_ISA is generic): slow, same results."
        )
    elif isa != supported:
        lines.append(f"FASTCOS_ISA limits the kernels to {isa}; this processor has {supported}.")
    return lines


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {item}" for key, item in value.items())
    if isinstance(value, list):
        return "; ".join(map(_text, value))
    return str(value)
