"""Settings of this process; each can also be set by an environment variable."""

import functools
import math
import os
import sys
from pathlib import Path
from typing import NamedTuple

from fastcos import validation
from fastcos.kernels import code_cache, cpu

# drivers of kernels: see fastcos.parallel
BACKENDS = ("pool", "prange")

# MiB: scikit-learn's default
_WORKING_MEMORY = 1024.0


class Config(NamedTuple):
    """The settings in force.

    Attributes
    ----------
    n_threads : int
        Threads of one call. Default: the CPUs this process may use (affinity and cgroup quota).
    backend : str
        "pool" or "prange".
    isa : str
        Widest instruction set that kernels use.
    cache_dir : Path or None
        Directory of compiled code. None where there is no home directory: then nothing is kept.
    working_memory : float
        MiB that one call may use besides its inputs and outputs. Default: scikit-learn's.
    """

    n_threads: int
    backend: str
    isa: str
    cache_dir: Path | None
    working_memory: float


# what set_config was called with; cleared, the environment and the defaults are in force
overrides: dict[str, object] = {}


def set_config(
    *,
    n_threads: int | None = None,
    backend: str | None = None,
    isa: str | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    working_memory: float | None = None,
) -> None:
    """Set what later calls in this process use; an argument left out stays as it is.

    Parameters
    ----------
    n_threads : int, optional
        At least 1. Variable: ``FASTCOS_N_THREADS``.
    backend : {"pool", "prange"}, optional
        "prange" drives the kernels by one OpenMP or TBB loop, if a trial shows that it is safe.
        Variable: ``FASTCOS_BACKEND``.
    isa : {"amx", "vnni", "avx512", "avxvnni", "avx2", "generic"}, optional
        Widest instruction set to use; the CPU must have it. Results are bit-identical.
        Variable: ``FASTCOS_ISA``.
    cache_dir : path-like, optional
        Directory for compiled code. Variable: ``FASTCOS_CACHE_DIR``.
    working_memory : float, optional
        MiB beyond inputs and outputs that one call may use. Variable: ``FASTCOS_WORKING_MEMORY``.

    Raises
    ------
    ValueError
        A value is not valid, or the CPU lacks the instruction set.

    Examples
    --------
    >>> import fastcos
    >>> fastcos.set_config(n_threads=2)
    >>> fastcos.get_config().n_threads
    2
    """
    given: dict[str, object] = {}
    if n_threads is not None:
        given["n_threads"] = validation.as_thread_count("n_threads", n_threads)
    if backend is not None:
        given["backend"] = validation.as_choice("backend", backend, BACKENDS)
    if isa is not None:
        given["isa"] = _as_isa("isa", isa)
    if working_memory is not None:
        given["working_memory"] = validation.as_real("working_memory", working_memory, above=0)
    if cache_dir is not None:
        code_cache.set_cache_directory(validation.as_path("cache_dir", cache_dir))
    overrides.update(given)  # all or nothing


def get_config() -> Config:
    """Return the settings in force: set_config first, then the environment, then the defaults.

    Returns
    -------
    Config
        A named tuple.

    Raises
    ------
    ValueError
        The value of an environment variable is not valid.

    Examples
    --------
    >>> import fastcos
    >>> fastcos.get_config().backend
    'pool'
    """
    return Config(n_threads(), backend(), isa(), code_cache.cache_directory(), working_memory())


def n_threads() -> int:
    """Threads of one call."""
    given = _setting("n_threads", "FASTCOS_N_THREADS")
    if given is None:
        return min(_cpus_of_process(), _cached_quota(os.getpid()))
    return validation.as_thread_count(
        "FASTCOS_N_THREADS", validation.as_number("FASTCOS_N_THREADS", given)
    )


def count_cpus(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """CPUs that this process may use: the lower of its affinity and the quota of its container.

    cgroup: the directory of the container's limits, version 2 or 1. A part of a CPU counts as one.
    As joblib counts, whose import takes 0.2 s.
    """
    return min(_cpus_of_process(), _quota(cgroup))


def _cpus_of_process() -> int:
    """Return how many CPUs the affinity allows, which may change at any time."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS and Windows
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@functools.cache
def _cached_quota(pid: int) -> int:
    """Return the quota of the container of this process, pid: to read its files takes 50 us."""
    return _quota(Path("/sys/fs/cgroup"))


def _quota(cgroup: Path) -> int:
    """Return how many CPUs the container allows, rounded up; very many where there is no limit."""
    try:
        if (cgroup / "cpu.max").exists():
            quota, period = (cgroup / "cpu.max").read_text().split()
        else:
            names = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
            quota, period = ((cgroup / "cpu" / name).read_text() for name in names)
        limit = math.ceil(int(quota) / int(period))
    except (OSError, ValueError, ZeroDivisionError):  # no quota, or "max" for none
        return sys.maxsize
    return limit if limit > 0 else sys.maxsize


def backend() -> str:
    """Driver of the kernels."""
    given = _setting("backend", "FASTCOS_BACKEND") or "pool"
    return validation.as_choice("FASTCOS_BACKEND", given, BACKENDS)


def isa() -> str:
    """Widest instruction set in use."""
    given = _setting("isa", "FASTCOS_ISA")
    return cpu.supported_isas()[0] if given is None else _as_isa("FASTCOS_ISA", given)


def working_memory() -> float:
    """MiB that one call may use besides its inputs and outputs."""
    given = _setting("working_memory", "FASTCOS_WORKING_MEMORY")
    if given is None:
        return _sklearn_working_memory()
    number = validation.as_number("FASTCOS_WORKING_MEMORY", given)
    return validation.as_real("FASTCOS_WORKING_MEMORY", number, above=0)


def _sklearn_working_memory() -> float:
    """Return scikit-learn's setting, without importing scikit-learn: that takes 0.5 s."""
    if "sklearn" in sys.modules:
        from sklearn import get_config as sklearn_config

        return float(sklearn_config()["working_memory"])
    given = os.environ.get("SKLEARN_WORKING_MEMORY")
    if given is None:
        return _WORKING_MEMORY
    number = validation.as_number("SKLEARN_WORKING_MEMORY", given)
    return validation.as_real("SKLEARN_WORKING_MEMORY", number, above=0)


def _setting(name: str, variable: str) -> object:
    return overrides.get(name, os.environ.get(variable) or None)


def _as_isa(name: str, value: object) -> str:
    known = validation.as_choice(name, value, tuple(cpu.ISA_FEATURES))
    supported = cpu.supported_isas()
    if known not in supported:
        rule = f"supported by this CPU ({', '.join(supported)})"
        raise ValueError(f"{name} must be {rule}, got {validation.format_value(known)}")
    return known
