"""Kernels that were compiled when the wheel was built, in one shared library for each tier of CPUs.

A library holds the code of some signatures of some kernels, a table of these signatures, and the
digest of the sources from which it was compiled. A library is used if its digest equals the digest
of the installed sources and if the CPU has the instructions of the tier. If none of the usable
libraries contains the signature of a call, Numba compiles the kernel.

The libraries lie beside this file, or in the folder that the environment variable
``FASTCOS_NATIVE`` names. If ``FASTCOS_NATIVE`` is 0, no library is used. The libraries are also
ignored if an environment variable or a settings file of Numba changes the code that Numba
generates. With ``FASTCOS_REQUIRE_NATIVE=1``, a call that would compile a kernel raises an error;
the tests of the libraries set this environment variable.
"""

import ctypes
import functools
import json
import os
import struct
import sys
from pathlib import Path

import numpy as np

from .code_cache import HARMLESS_VARIABLES, exists, has_numba_file, sources_digest

# A tier is a group of CPUs with the same instructions. Each tier is mapped to a CPU name and to the
# CPU features for LLVM. The tier with the widest registers comes first.
_V3 = ("avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "popcnt", "sse4.2")
_V4 = (*_V3, "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl")
TIERS = {
    "x86-64-v4-amx": ("x86-64-v4", (*_V4, "avx512vnni", "amx-tile", "amx-int8")),
    "x86-64-v4-vnni": ("x86-64-v4", (*_V4, "avx512vnni")),
    "x86-64-v4": ("x86-64-v4", _V4),
    "x86-64-v3": ("x86-64-v3", _V3),
}
# The flags of a NumPy array: C order, Fortran order, aligned, writeable.
_C, _F, _ALIGNED, _WRITEABLE = 0x1, 0x2, 0x100, 0x400
# The types whose instances are passed to native code as arrays. Subclasses of ndarray other than
# memmap are not in this set, because they may behave differently.
_ARRAYS = frozenset((np.ndarray, np.memmap))
# The Python types that kernels accept in addition to arrays and NumPy numbers, each with its format
# character for the module `struct`.
_PYTHON = {
    "bool": (bool, "q"),
    "int": (int, "q"),
    "float": (float, "d"),
    "NoneType": (type(None), "q"),
}
# The format characters for the module `struct`, by the kind and the size of a NumPy number.
_FORMATS = {"i1": "b", "i2": "h", "i4": "i", "i8": "q", "u1": "B", "u2": "H", "u4": "I", "u8": "Q"}
_FORMATS |= {"f4": "f", "f8": "d", "b1": "?"}

# `recorder` is None except while native libraries are built. During a build, every call of compiled
# code calls recorder(kernel, arrays). From these calls, the build learns which signatures it must
# compile.
recorder = None


def describe(argument):
    """Return a description of the type of an argument, as detailed as Numba's own types."""
    if isinstance(argument, np.ndarray):
        flags = argument.flags
        order = "C" if flags.c_contiguous else "F" if flags.f_contiguous else "A"
        access = "w" if flags.writeable else "r"
        return f"{argument.dtype.str} {argument.ndim} {order} {access}"
    if isinstance(argument, tuple):
        return [type(argument).__name__, *map(describe, argument)]
    return type(argument).__name__


def tier():
    """Return the widest tier that this CPU supports and for which there is a library, or None."""
    return _libraries()[0].tier if _libraries() else None


def bind(kernel, *arrays):
    """Return a kernel's code for these argument types, and the arguments that follow lo and hi."""
    kinds, values = [], []
    _flatten(arrays, kinds, values)
    for code in _codes_of(kernel).get(tuple(kinds), ()):
        call = code.bind(arrays, values)
        if call is not None:
            return call, ()
    return kernel.bind_compiled(*arrays)


def check_allowed(kernel, arrays):
    """Raise an error if FASTCOS_REQUIRE_NATIVE is 1.

    This function is called before Numba provides the code of a kernel.
    """
    if os.environ.get("FASTCOS_REQUIRE_NATIVE") == "1":
        kinds = json.dumps([describe(argument) for argument in arrays])
        raise RuntimeError(f"{kernel_name(kernel)} must be in a native library, got {kinds}")


def holds(kernel):
    """Return whether a library contains any signature of a kernel."""
    return bool(_codes_of(kernel))


class _Library:
    """One shared library: its tier, its table of signatures and its functions."""

    def __init__(self, path):
        library = ctypes.CDLL(str(path))
        self.tier = path.stem
        self.is_usable = (
            _text(library, "fc_sources") == sources_digest() and library.fc_supported() == 1
        )
        if self.is_usable:
            self.library = library
            self.table = json.loads(_text(library, "fc_table"))
            self.call = library.fc_call
            self.call.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p]
            # PyDLL keeps the GIL, so no other thread changes the arrays during the call.
            self.pack = ctypes.PyDLL(str(path)).fc_pack
            pointer, size = ctypes.c_void_p, ctypes.c_int64
            self.pack.argtypes = [pointer, size, ctypes.c_char_p, size, pointer]


class _NativeCode:
    """The native code of one signature of a kernel."""

    def __init__(self, library, arguments, symbol):
        self._library = library
        self._address = ctypes.cast(getattr(library.library, symbol), ctypes.c_void_p).value
        self.kinds, numbers, formats, self._n_slots = [], [], [], 0
        self._read(arguments, numbers, formats)
        self._n_values = len(formats)
        self._arrays = (ctypes.c_int64 * len(numbers))(*numbers)
        self._values = struct.Struct("=" + "".join(formats))
        self._slots = ctypes.c_int64 * self._n_slots

    def _read(self, arguments, numbers, formats):
        for argument in arguments:
            if isinstance(argument, list):
                self.kinds.append(argument[0])
                self._read(argument[1:], numbers, formats)
                self.kinds.append(None)
                continue
            name, *shape = argument.split()
            if shape:
                dtype, n_dims, order, access = np.dtype(name), int(shape[0]), *shape[1:]
                mask = (_C if order == "C" else _C | _F) | _ALIGNED | _WRITEABLE
                flags = {"C": _C, "F": _F, "A": 0}[order] | _ALIGNED | _WRITEABLE * (access == "w")
                numbers += [dtype.num, dtype.itemsize, n_dims, mask, flags]
                self.kinds.append(np.ndarray)
                formats.append("q")
                self._n_slots += 5 + 2 * n_dims
            else:
                numbers += [-1, 0, 0, 0, 0]
                kind, code = _PYTHON.get(name) or _of_numpy(name)
                self.kinds.append(kind)
                formats.append(code)
                self._n_slots += 1

    def bind(self, arrays, values):
        slots = self._slots()
        try:
            packed = self._values.pack(*values)
        except struct.error:  # an integer has more than 64 bits
            return None
        pack, call, address = self._library.pack, self._library.call, self._address
        if not pack(self._arrays, self._n_values, packed, object.__basicsize__, slots):
            return None

        def run(lo, hi, arrays=arrays):  # the default argument keeps the arrays alive
            status = call(address, lo, hi, slots)
            if status == 1:
                raise MemoryError
            if status != 0:
                raise RuntimeError("a native kernel failed; please report it")

        return run


def _of_numpy(name):
    """Return the NumPy type with a given name, and its `struct` format with padding to 8 bytes."""
    dtype = np.dtype(name)
    return dtype.type, f"{_FORMATS[dtype.str[1:]]}{8 - dtype.itemsize}x"


def _flatten(arguments, kinds, values):
    """Append the types of the arguments to `kinds`, and their values to `values`.

    In `values`, an array is represented by the address of its Python object. A tuple is appended
    member by member.
    """
    for argument in arguments:
        kind = type(argument)
        if kind in _ARRAYS:
            kinds.append(np.ndarray)
            values.append(id(argument))
        elif issubclass(kind, tuple):
            kinds.append(kind.__name__)
            _flatten(argument, kinds, values)
            kinds.append(None)
        else:
            kinds.append(kind)
            values.append(0 if argument is None else argument)


@functools.cache
def _codes_of(kernel):
    """Return a dict from argument types to the native codes of a kernel, widest tier first."""
    codes = {}
    for library in _libraries():
        for arguments, symbol in library.table.get(kernel_name(kernel), ()):
            code = _NativeCode(library, arguments, symbol)
            codes.setdefault(tuple(code.kinds), []).append(code)
    return codes


def kernel_name(kernel):
    """Return the name that a kernel has in the tables of the libraries."""
    return f"{kernel.__module__.rpartition('.')[2]}.{kernel.__name__}"


@functools.cache
def _libraries():
    """Return the usable libraries, the widest tier first."""
    folder = os.environ.get("FASTCOS_NATIVE") or Path(__file__).parent
    if folder == "0" or _numba_differs():
        return ()
    paths = [Path(folder, f"{tier}.so") for tier in TIERS]
    libraries = [_Library(path.resolve()) for path in paths if exists(path)]
    return tuple(library for library in libraries if library.is_usable)


def _numba_differs():
    """Return whether a setting changes the code that Numba would generate."""
    variables = {name for name, value in os.environ.items() if name.startswith("NUMBA_") and value}
    harmless = HARMLESS_VARIABLES - {"NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES"}
    if variables - harmless or has_numba_file():
        return True
    config = getattr(sys.modules.get("numba"), "config", None)
    names = ("DISABLE_JIT", "BOUNDSCHECK", "CPU_NAME", "CPU_FEATURES")
    return any(getattr(config, name, None) for name in names)


def _text(library, name):
    return ctypes.string_at(ctypes.addressof(ctypes.c_char.in_dll(library, name))).decode()
