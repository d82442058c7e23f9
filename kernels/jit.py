"""The decorators of the kernels; they import Numba only to compile a kernel or to load its code.

A wheel with native code needs neither Numba nor llvmlite: see ``native``.
"""

import functools
import gc
import importlib
import logging  # noqa: F401  a fork takes its lock after those below, which its import may wait for
import os
import sys
import threading
import time

from . import native
from .code_cache import Files, has_compiler, numba_setting

# The fastmath flags of relaxed kernels. With these flags, NaN and infinity keep their meaning.
RELAXED_FLAGS = {"contract", "reassoc", "nsz"}
# Another process may save the compiled code of a kernel. This process looks for the code on disk,
# and waits at least this many seconds before it looks again, because each look takes 60 us.
_SECONDS_BETWEEN_LOOKS = 1.0
# True if kernels run as plain Python functions.
DISABLE_JIT = numba_setting("DISABLE_JIT")


class _Module:
    """A module of Numba, imported when one of its names is first used."""

    def __init__(self, name):
        self._name = name

    def __getattr__(self, attribute):
        return getattr(importlib.import_module(self._name), attribute)


types, cgutils = _Module("numba.types"), _Module("numba.core.cgutils")


class _Absent:
    """A stand-in for a missing llvmlite: every attribute and every call returns the stand-in."""

    def __getattr__(self, _):
        return self

    def __call__(self, *_):
        return self


ir = importlib.import_module("llvmlite.ir") if has_compiler() else _Absent()


# `_imported` is the module `compiler`, or None if it has not been imported yet. `_importing` is the
# lock that is held during the import.
_imported, _importing = None, threading.RLock()


def _before_fork():
    # A fork waits until no kernel is being compiled, because the child would inherit held locks and
    # unfinished code.
    _importing.acquire()
    if _imported is not None:
        _imported.hold()


def _after_fork():
    if _imported is not None:
        _imported.release()
    _importing.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork
    )


def _compiler():
    """Import the module that needs Numba, and return it."""
    global _imported
    if _imported is None:
        with _importing:
            if _imported is None:
                _imported = _import_compiler()
    return _imported


def _import_compiler():
    was_enabled = gc.isenabled()
    gc.disable()  # garbage collections would take 0.07 s, and find no garbage
    try:
        from . import compiler  # PyInstaller finds this import statement

        return compiler
    except ModuleNotFoundError as error:
        if has_compiler():
            raise
        text = "a kernel is compiled by Numba, which is missing: pip install 'fastcos[compile]'"
        raise ImportError(text) from error
    finally:
        if was_enabled:
            gc.enable()


class Intrinsic:
    """A function that kernels call and that emits LLVM IR; see numba.extending.intrinsic."""

    def __init__(self, function):
        functools.update_wrapper(self, function)
        self._function, self._made = function, None

    @property
    def _numba_type_(self):
        with _compiler().lock:
            if self._made is None:
                self._made = _compiler().intrinsic(self._function)
        return _compiler().type_of_intrinsic(self._made)

    def __call__(self, *_):
        """Raise NotImplementedError, because this intrinsic has no plain Python version."""
        raise NotImplementedError(f"{self.__name__} is called by kernels only")


intrinsic = Intrinsic


def intrinsic_of(plain):
    """Return a decorator: it makes an intrinsic or, if compilation is disabled, returns `plain`."""
    return (lambda _: plain) if DISABLE_JIT else Intrinsic


class Kernel:
    """A compiled function; its code comes from the wheel if possible, and otherwise from Numba."""

    def __init__(self, function, **flags):
        functools.update_wrapper(self, function)
        self.py_func, self.flags = function, flags
        self._dispatcher, self._for_kernels = None, None
        self._code_by_types = {}
        self._is_ready, self._next_look = False, 0.0

    @property
    def dispatcher(self):
        """Return Numba's dispatcher, which compiles code or loads it from the cache when called."""
        if self._dispatcher is None:
            native.check_allowed(self, ())
            with _compiler().lock:
                if self._dispatcher is None:
                    self._dispatcher = _compiler().compiled(self.py_func, self.flags)
        return self._dispatcher

    @property
    def for_kernels(self):
        """Return the dispatcher that links this kernel's code into the kernels that call it."""
        if self._for_kernels is None:
            with _compiler().lock:
                if self._for_kernels is None:
                    self._for_kernels = _compiler().compiled_for_kernels(self.py_func, self.flags)
        return self._for_kernels

    @property
    def _numba_type_(self):
        return _compiler().type_of_dispatcher(self.for_kernels)

    def bind(self, *arrays):
        """Return the code for the types of `arrays`, and the arguments that follow lo and hi.

        The first call chooses between native code and Numba's code. It chooses native code if a
        library contains this kernel for at least one signature.
        """
        is_native = native.holds(self)
        self.bind = functools.partial(native.bind, self) if is_native else self.bind_compiled
        return self.bind(*arrays)

    def bind_for_blocks(self, *arrays):
        """Do the work of `bind`, but return code that does not check the argument types."""
        function, arguments = self.bind(*arrays)
        if function is self._dispatcher:
            function = _compiler().code_without_type_checks(function, arguments)
        return function, arguments

    def bind_compiled(self, *arrays):
        """Return Numba's dispatcher and `arrays`; a dispatcher loads or compiles code on a call."""
        if native.recorder is not None:
            native.recorder(self, arrays)
        if self._dispatcher is None:
            native.check_allowed(self, arrays)
        return self.dispatcher, arrays

    def code_for(self, type_key, arrays):
        """Return the kernel's code for arrays of these types: a function of lo, hi and the arrays.

        `type_key` is any hashable value that stands for the types of the arrays. Calls with equal
        keys must pass arrays of equal types, because Numba's code is looked up only once, and does
        not check the types. Native code is looked up whenever the function is called.
        """
        code = self._code_by_types.get(type_key)
        if code is None:
            if native.holds(self):
                code = self._call_native
            else:
                dispatcher, _ = self.bind_compiled(*arrays)
                code = _compiler().code_without_type_checks(dispatcher, arrays)
            self._code_by_types[type_key] = code
        return code

    def call(self, type_key, lo, hi, *arrays):
        """Run the kernel from lo to hi, with the code that ``code_for`` returns."""
        self.code_for(type_key, arrays)(lo, hi, *arrays)

    def _call_native(self, lo, hi, *arrays):
        function, bound = native.bind(self, *arrays)
        function(lo, hi, *bound)

    def is_ready(self):
        """Return whether compiled code of the kernel is in the wheel, this process or the cache.

        The method reads the disk at most once per second, and never again after it has returned
        True.
        """
        if self._is_ready:
            return True
        dispatcher = self._dispatcher
        if native.holds(self) or (dispatcher is not None and dispatcher.overloads):
            self._is_ready = True
        elif time.monotonic() >= self._next_look:
            self._is_ready = Files(self.py_func).exist()
            self._next_look = time.monotonic() + _SECONDS_BETWEEN_LOOKS
        return self._is_ready

    def __call__(self, *arguments):
        """Run the code that Numba compiled for this kernel, even if there is native code."""
        return self.dispatcher(*arguments)

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.dispatcher, name)  # `inspect_asm`, for example

    def __reduce__(self):
        return self.__qualname__  # like a function, a kernel is pickled by its name


def is_ready(function):
    """Return whether a function can be called without a compilation.

    The code of such a function is in the wheel or has been compiled before.
    """
    return not isinstance(function, Kernel) or function.is_ready()


def seconds_compiling():
    """Return the seconds that this process has spent compiling kernels."""
    compiler = sys.modules.get(f"{__package__}.compiler")
    return compiler.stopwatch.seconds if compiler else 0.0


def kernel(function):
    """Compile a kernel without reordering operations, so that results are equal on all CPUs."""
    return function if DISABLE_JIT else Kernel(function, _nrt=True)


def borrowing_kernel(function):
    """Compile a kernel without counting references to arrays; it must not create any array.

    If references were counted, every access to a member of a tuple would execute atomic
    instructions. In a self-join of 2,000 rows with 64 columns, counting references would take 38 %
    of the time.
    """
    return function if DISABLE_JIT else Kernel(function, _nrt=False)


def inlined_kernel(function):
    """Compile a kernel that is inlined into its callers and counts no references to arrays.

    Each call passes every member of a tuple as a separate argument. Without inlining, a call that
    passes queries, items and buffers would push 150 words on the stack. Such a call would take
    longer than the work of a short kernel.
    """
    return function if DISABLE_JIT else Kernel(function, _nrt=False, forceinline=True)


def relaxed_kernel(function):
    """Compile a kernel whose float operations may be fused and reordered.

    Such kernels are used for training, and for choosing candidates.
    """
    return function if DISABLE_JIT else Kernel(function, _nrt=True, fastmath=RELAXED_FLAGS)
