"""The features of the CPU and the instruction sets that compiled kernels may use."""

import contextlib
import ctypes
import functools
import hashlib
import platform
import sys
from pathlib import Path

from . import native
from .code_cache import has_compiler

# The CPU features that each instruction set requires. The instruction set with the widest registers
# comes first. Code for "generic" runs on every CPU.
ISA_FEATURES = {
    "amx": ("avx512f", "avx512bw", "avx512vl", "amx-tile", "amx-int8"),
    "vnni": ("avx512f", "avx512bw", "avx512vl", "avx512vnni"),
    "avx512": ("avx512f", "avx512bw", "avx512vl"),
    "avxvnni": ("avx2", "fma", "avxvnni"),
    "avx2": ("avx2", "fma"),
    "generic": (),
}


@functools.cache
def cpu_features():
    """Return the CPU features that kernels may use.

    The environment variables NUMBA_CPU_NAME and NUMBA_CPU_FEATURES restrict the features that are
    returned.

    If fastcos was installed with native libraries, the result is the set of features of the widest
    tier that this CPU supports. Callers check the features before they choose an intrinsic, because
    the process would abort if code were generated for an instruction that the CPU lacks.
    """
    tier = native.tier()
    if tier is not None:
        return frozenset(native.TIERS[tier][1])
    if not has_compiler():
        return frozenset()
    import numba  # imported here, because processes that use native code do not need Numba
    from llvmlite import binding

    if numba.config.CPU_FEATURES is not None:
        return frozenset(f[1:] for f in numba.config.CPU_FEATURES.split(",") if f.startswith("+"))
    if numba.config.CPU_NAME not in (None, "host"):
        return frozenset()
    return frozenset(name for name, present in binding.get_host_cpu_features().items() if present)


@functools.cache
def has_instruction(feature):
    """Return whether this CPU has the instruction `feature`.

    The feature is either fma (computes a b + c with one rounding) or f16c (converts float16 to
    float32). Intel introduced f16c in 2012 and fma in 2013. A CPU that is not x86 is assumed to
    have both fma and f16c.
    """
    is_x86 = platform.machine().lower() in ("x86_64", "amd64", "i386", "i686")
    return not is_x86 or feature in cpu_features()


@functools.cache
def fast_cache_bytes():
    """Return the largest size, in bytes, of a table whose rows can be read quickly in any order.

    Each group of up to eight cores of an AMD CPU shares a third-level cache of 16 MiB or more. The
    third-level cache of an AMD CPU answers nearly as fast as its second-level cache. The
    third-level cache of Intel's servers is shared by all cores, and is slower than the third-level
    cache of an AMD CPU. On Intel's servers, a table can therefore be read quickly only if it fits
    in half of a second-level cache of 2 MiB.
    """
    try:
        is_amd = "AuthenticAMD" in Path("/proc/cpuinfo").read_text()
    except OSError:
        is_amd = False
    return 1 << 24 if is_amd else 1 << 20


@functools.cache
def supported_isas():
    """Return the instruction sets that the CPU and the system support, the widest first."""
    return tuple(
        isa
        for isa, needs in ISA_FEATURES.items()
        if cpu_features().issuperset(needs) and (isa != "amx" or _tile_registers_granted())
    )


def supported_tiers():
    """Return the tiers of native.TIERS that the CPU and the system support, the widest first."""
    return tuple(
        tier
        for tier, (_, features) in native.TIERS.items()
        if cpu_features().issuperset(features)
        and ("amx-int8" not in features or "amx" in supported_isas())
    )


def code_name(tier):
    """Return the CPU name and features of a tier, in the format of Numba's environment variables.

    The environment variables of Numba are NUMBA_CPU_NAME and NUMBA_CPU_FEATURES.
    """
    cpu_name, features = native.TIERS[tier]
    return cpu_name, ",".join(f"+{feature}" for feature in features)


def _tile_registers_granted():
    """Ask Linux for permission to use the AMX tile registers; return whether it is granted.

    Linux must save the AMX tile registers (8 KiB per thread) when it switches threads. A process
    may therefore use the tile registers only after Linux has granted permission. The threads and
    forked children of a process inherit its permission to use the tile registers. Without
    permission, the first tile instruction raises SIGILL.
    """
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return False
    arch_prctl, request_permission, tile_data = 158, 0x1023, 18
    return ctypes.CDLL(None).syscall(arch_prctl, request_permission, tile_data) == 0


@functools.cache
def model():
    """Return a short digest of the description of this CPU, without importing Numba."""
    text = platform.machine() + platform.processor()
    with contextlib.suppress(OSError):  # only Linux has /proc/cpuinfo
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        beginnings = ("model name", "flags", "Features", "CPU part")
        text += "\n".join(sorted({line for line in lines if line.startswith(beginnings)}))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def name():
    """Return LLVM's name for this CPU, or the name of its tier if Numba is missing."""
    if not has_compiler():
        return native.tier() or platform.machine()
    import numba
    from llvmlite import binding

    return numba.config.CPU_NAME or binding.get_host_cpu_name()
