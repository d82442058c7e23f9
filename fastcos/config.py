"""The settings of the process, which users change with environment variables or ``set_config``.

Two settings depend on modules of the package ``fastcos.kernels``: ``code_cache`` stores the
directory of compiled code, and ``cpu`` finds the instruction sets that this CPU supports. Neither
module is a kernel, so importing ``fastcos.config`` imports no kernel.
"""

import functools
import math
import os
import sys
from pathlib import Path
from typing import NamedTuple

from fastcos import validation
from fastcos.kernels import code_cache, cpu

# The two ways to run a kernel on several threads (see fastcos.parallel).
BACKENDS = ("pool", "prange")

# The default of the setting working_memory, in MiB; scikit-learn has the same default.
_WORKING_MEMORY = 1024.0


class Config(NamedTuple):
    """The settings of the process.

    Attributes
    ----------
    n_threads : int
        The number of threads that one call uses. Default: the number of CPUs that this process may
        use, according to its CPU affinity and the CPU quota of its container.
    backend : str
        How kernels run on several threads: "pool" or "prange", as in :func:`set_config`.
    isa : str
        The widest instruction set that kernels use.
    cache_dir : Path or None
        The directory in which compiled code is stored. None means that no directory could be
        determined, for example because there is no home directory; compiled code is then not
        stored.
    working_memory : float
        The memory in MiB that one call may use in addition to its inputs and outputs. Default: the
        setting ``working_memory`` of scikit-learn.
    """

    n_threads: int
    backend: str
    isa: str
    cache_dir: Path | None
    working_memory: float


# The values that were passed to set_config. A setting that was not passed to set_config has the
# value of its environment variable, or its default if the variable is not set.
overrides: dict[str, object] = {}


def set_config(
    *,
    n_threads: int | None = None,
    backend: str | None = None,
    isa: str | None = None,
    cache_dir: str | os.PathLike[str] | None = None,
    working_memory: float | None = None,
) -> None:
    """Change settings for all later calls in this process; omitted settings stay unchanged.

    Parameters
    ----------
    n_threads : int, optional
        The number of threads that one call uses, at least 1. Environment variable:
        ``FASTCOS_N_THREADS``.
    backend : {"pool", "prange"}, optional
        "pool" runs kernels on a thread pool of fastcos. "prange" runs each kernel in one parallel
        loop of Numba. OpenMP and TBB allow calls from several threads. If a trial shows that
        Numba's threading layer does not allow calls from several threads, kernels run on the pool
        even if ``backend`` is "prange". Environment variable: ``FASTCOS_BACKEND``.
    isa : {"amx", "vnni", "avx512", "avxvnni", "avx2", "generic"}, optional
        The widest instruction set that kernels use; the CPU must support it. Results are
        bit-for-bit identical for all instruction sets. Environment variable: ``FASTCOS_ISA``.
    cache_dir : path-like, optional
        The directory in which compiled code is stored. Environment variable:
        ``FASTCOS_CACHE_DIR``.
    working_memory : float, optional
        The memory in MiB that one call may use in addition to its inputs and outputs. Environment
        variable: ``FASTCOS_WORKING_MEMORY``.

    Raises
    ------
    ValueError
        If a value is invalid, or the CPU does not support the instruction set. A call that raises
        ValueError changes no setting.

    Examples
    --------
    >>> import fastcos
    >>> fastcos.set_config(n_threads=2)
    >>> fastcos.get_config().n_threads
    2
    """
    settings: dict[str, object] = {}
    if n_threads is not None:
        settings["n_threads"] = validation.as_thread_count("n_threads", n_threads)
    if backend is not None:
        settings["backend"] = validation.as_choice("backend", backend, BACKENDS)
    if isa is not None:
        settings["isa"] = _as_isa("isa", isa)
    if working_memory is not None:
        settings["working_memory"] = validation.as_real("working_memory", working_memory, above=0)
    if cache_dir is not None:
        code_cache.set_cache_directory(validation.as_path("cache_dir", cache_dir))
    # Settings are changed only after all arguments have been checked, so that a call with an
    # invalid value changes no setting.
    overrides.update(settings)


def get_config() -> Config:
    """Return the settings that calls in this process use.

    A value that was passed to :func:`set_config` takes precedence over the environment variable,
    and the environment variable takes precedence over the default.

    Returns
    -------
    Config
        A named tuple with all settings.

    Raises
    ------
    ValueError
        If the value of an environment variable is invalid.

    Examples
    --------
    >>> import fastcos
    >>> fastcos.get_config().backend
    'pool'
    """
    return Config(n_threads(), backend(), isa(), code_cache.cache_directory(), working_memory())


def n_threads() -> int:
    """Return the number of threads that one call uses."""
    setting = _setting("n_threads", "FASTCOS_N_THREADS")
    if setting is None:
        return min(_cpus_of_process(), _cached_quota(os.getpid()))
    return validation.as_thread_count(
        "FASTCOS_N_THREADS", validation.as_number("FASTCOS_N_THREADS", setting)
    )


def count_cpus(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Return the number of CPUs that this process may use.

    The result is the smaller of two numbers: the number of CPUs in the affinity mask of the
    process, and the CPU quota of its container, rounded up. `cgroup` is the directory that contains
    the limits of the container, in version 1 or version 2 of the cgroup file system. The package
    joblib computes the same number of CPUs, but importing joblib takes 0.2 s.
    """
    return min(_cpus_of_process(), _quota(cgroup))


def _cpus_of_process() -> int:
    """Return the number of CPUs in the affinity mask of this process.

    The number is not cached, because the affinity of a process may change at any time.
    """
    if hasattr(os, "sched_getaffinity"):  # macOS and Windows lack sched_getaffinity
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@functools.cache
def _cached_quota(pid: int) -> int:
    """Return the CPU quota of the container; each process reads the quota only once."""
    return _quota(Path("/sys/fs/cgroup"))


def _quota(cgroup: Path) -> int:
    """Return the CPU quota of the container as a number of CPUs, rounded up.

    The result is sys.maxsize if there is no quota.
    """
    try:
        if (cgroup / "cpu.max").exists():
            quota, period = (cgroup / "cpu.max").read_text().split()
        else:
            names = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
            quota, period = ((cgroup / "cpu" / name).read_text() for name in names)
        limit = math.ceil(int(quota) / int(period))
    except (OSError, ValueError, ZeroDivisionError):  # There is no quota, or its value is "max".
        return sys.maxsize
    return limit if limit > 0 else sys.maxsize


def backend() -> str:
    """Return how kernels run on several threads: "pool" or "prange"."""
    setting = _setting("backend", "FASTCOS_BACKEND") or "pool"
    return validation.as_choice("FASTCOS_BACKEND", setting, BACKENDS)


def isa() -> str:
    """Return the widest instruction set that kernels use."""
    setting = _setting("isa", "FASTCOS_ISA")
    return cpu.supported_isas()[0] if setting is None else _as_isa("FASTCOS_ISA", setting)


def working_memory() -> float:
    """Return the memory in MiB that one call may use in addition to its inputs and outputs."""
    setting = _setting("working_memory", "FASTCOS_WORKING_MEMORY")
    if setting is None:
        return _sklearn_working_memory()
    number = validation.as_number("FASTCOS_WORKING_MEMORY", setting)
    return validation.as_real("FASTCOS_WORKING_MEMORY", number, above=0)


def _sklearn_working_memory() -> float:
    """Return the setting ``working_memory`` of scikit-learn, in MiB.

    scikit-learn is not imported for this purpose, because its import takes 0.5 s.
    """
    if "sklearn" in sys.modules:
        from sklearn import get_config as sklearn_config

        return float(sklearn_config()["working_memory"])
    setting = os.environ.get("SKLEARN_WORKING_MEMORY")
    if setting is None:
        return _WORKING_MEMORY
    number = validation.as_number("SKLEARN_WORKING_MEMORY", setting)
    return validation.as_real("SKLEARN_WORKING_MEMORY", number, above=0)


def _setting(name: str, variable: str) -> object:
    return overrides.get(name, os.environ.get(variable) or None)


def _as_isa(name: str, value: object) -> str:
    choice = validation.as_choice(name, value, tuple(cpu.ISA_FEATURES))
    supported = cpu.supported_isas()
    if choice not in supported:
        rule = f"supported by this CPU ({', '.join(supported)})"
        raise ValueError(f"{name} must be {rule}, got {validation.format_value(choice)}")
    return choice
