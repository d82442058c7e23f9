"""fastcos doctor: what fastcos sees of this machine."""

import argparse
import os
from pathlib import Path
from typing import Any

from fastcos import config, report
from fastcos.cli.terminal import print_json
from fastcos.kernels import code_cache, cpu

CGROUP_FILES = ("/sys/fs/cgroup/cpu.max", "/sys/fs/cgroup/cpu/cpu.cfs_quota_us")


def add_parser(verbs: Any) -> None:
    """Add the verb."""
    text = "print versions, cores, quota, BLAS, instruction set and caches as JSON"
    parser = verbs.add_parser(
        "doctor", help=text, description=text, epilog="example: fastcos doctor"
    )
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Print what fastcos sees."""
    print_json(report.json_ready(findings()))
    return 0


def findings() -> dict[str, Any]:
    """Return everything that decides speed or that a bug report needs."""
    import scipy.linalg  # noqa: F401  its BLAS is one of those to be told
    from threadpoolctl import threadpool_info

    settings = config.get_config()
    directory = code_cache.cache_directory() / code_cache.sources_digest()
    return {
        "versions": report.versions(),
        "processor": cpu.name(),
        "cores": os.cpu_count(),
        "cores_allowed": _allowed_cores(),
        "cgroup_quota": _cgroup_quota(),
        "threads": settings.num_threads,
        "backend": settings.backend,
        "instruction_set": settings.isa,
        "instruction_sets_supported": cpu.supported_isas(),
        "working_memory_MiB": settings.working_memory,
        "cache_directory": str(directory),
        "cache_writable": _writable(directory),
        "compiled_signatures_cached": sum(1 for _ in directory.rglob("*-*")),
        "blas": [
            {key: library.get(key) for key in ("prefix", "version", "architecture", "num_threads")}
            for library in threadpool_info()
            if library["user_api"] == "blas"
        ],
    }


def _allowed_cores() -> int | None:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def _cgroup_quota() -> str | None:
    for name in CGROUP_FILES:
        try:
            return Path(name).read_text().strip()
        except OSError:
            continue
    return None


def _writable(directory: Path) -> bool:
    existing = next(path for path in (directory, *directory.parents) if path.exists())
    return os.access(existing, os.W_OK)
