"""What the CPU can do, as the code generator sees it."""

import ctypes
import functools
import platform
import sys

import numba
from llvmlite import binding

# what each instruction set needs, widest first; "generic" is the plain-Numba fallback
ISA_FEATURES = {
    "amx": ("avx512f", "avx512bw", "avx512vl", "amx-tile", "amx-int8"),
    "vnni": ("avx512f", "avx512bw", "avx512vl", "avx512vnni"),
    "avx512": ("avx512f", "avx512bw", "avx512vl"),
    "avx2": ("avx2", "fma"),
    "generic": (),
}


@functools.cache
def cpu_features():
    """Features that numba generates code for, honouring NUMBA_CPU_NAME and NUMBA_CPU_FEATURES.

    An intrinsic that the CPU lacks does not raise: code generation aborts the process. Ask first.
    """
    if numba.config.CPU_FEATURES is not None:
        return frozenset(f[1:] for f in numba.config.CPU_FEATURES.split(",") if f.startswith("+"))
    if numba.config.CPU_NAME not in (None, "host"):
        return frozenset()
    return frozenset(name for name, present in binding.get_host_cpu_features().items() if present)


@functools.cache
def multiplies_and_adds_at_once():
    """Whether there is an instruction for a b + c with one rounding: not on x86 before 2013."""
    is_x86 = platform.machine().lower() in ("x86_64", "amd64", "i386", "i686")
    return not is_x86 or "fma" in cpu_features()


@functools.cache
def supported_isas():
    """Instruction sets of ISA_FEATURES that this CPU has and may use, widest first."""
    return tuple(
        isa
        for isa, needs in ISA_FEATURES.items()
        if cpu_features().issuperset(needs) and (isa != "amx" or _tile_registers_granted())
    )


def _tile_registers_granted():
    """Ask Linux, once per process, to keep the 8 KiB of AMX tile registers for its threads.

    Threads and forked children inherit the grant. Without it the first tile instruction is SIGILL.
    """
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return False
    arch_prctl, request_permission, tile_data = 158, 0x1023, 18
    return ctypes.CDLL(None).syscall(arch_prctl, request_permission, tile_data) == 0


def name():
    """The CPU's name for the code generator."""
    return numba.config.CPU_NAME or binding.get_host_cpu_name()
