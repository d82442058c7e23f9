"""The private names of Numba and llvmlite that this package uses, with fall-backs for some of them.

Numba's documentation does not say how to store compiled code outside of Numba's own cache. The
documentation also does not say how to compile a function that only other compiled functions call.
Names that Numba or llvmlite may change without notice are used only in this file; the one exception
is a name in ``simd/emit.py``.

The first list below contains four groups of names. Each group has a fall-back, which gives the same
results. If a release of Numba lacks a name, this package uses the fall-back of the name's group.
``tests/kernels/test_numba_internals.py`` renames each of these names within Numba and checks the
results.

- Cache on disk: Dispatcher._cache; CompileResult._reduce and _rebuild; JITCPUCodegen.magic_tuple;
  CodeLibrary.has_dynamic_globals; serialize.dumps; rtsys.initialize. With the fall-back, no code is
  stored: each process warns once, and compiles all the code that it calls.
- Intermediate code: JITCodeLibrary._optimize_final_module, _finalize_final_module, _final_module
  and _finalized; Compiler.compile_extra, compile_result, flags.no_compile, insert_user_function;
  Dispatcher.add_overload, get_call_template. With the fall-back, Numba uses its usual way to
  compile the kernels that other kernels call. A first search then takes twice as long.
- Compiler lock: global_compiler_lock. During forks and compilations, the fall-back holds only a
  lock of this package, and not Numba's lock.
- Entries: CompileResult.entry_point. The fall-back checks the types of the arguments at every call,
  which takes 3 us for each named tuple.

The names in the second list below have no fall-back, because Numba offers no substitute for them.
Therefore, pyproject.toml restricts Numba to the releases that ``.ci/numba_versions`` tests. A
weekly job tries the newest release.

- Intrinsics: cpu_target.typing_context with its methods refresh and resolve_value_type;
  types.Dispatcher. An intrinsic may be newer than the last refresh of the typing context.
- Calls of code: active_code_library, call_internal; call_conv; get_pointer_to_function;
  serialize_using_bitcode. Native wheels and the backend prange call kernels by address. The default
  backend, a thread pool, does not call kernels by address.
- Turns of processes: Dispatcher.compile. This file replaces the method. If several processes start
  together, each kernel is therefore compiled by only one of them.
- Typed pointers: PointerType.pointee of llvmlite.ir, in simd/emit.py. Vector operations read the
  type of the elements from the type of a pointer.

``numba.extending``, ``numba.typeof``, custom pipelines and the types of ``llvmlite.ir`` are
documented.
"""

import contextlib
import functools
import importlib
import threading

import numba
from llvmlite import binding
from numba import types
from numba.core import cgutils
from numba.core.registry import cpu_target

from .code_cache import INNER, Files, warn
from .cpu import code_name, supported_tiers


def _optional(module, *names):
    """Return the named objects of a module of Numba, or None for each name that is missing."""
    try:
        content = importlib.import_module(module)
    except ImportError:
        return [None] * len(names)
    return [getattr(content, name, None) for name in names]


def _have(owner, *names):
    """Return whether an object has an attribute for each of the `names`."""
    return all(hasattr(owner, name) for name in names)


(_dumps,) = _optional("numba.core.serialize", "dumps")
(_runtime,) = _optional("numba.core.runtime", "rtsys")
(_Context,) = _optional("numba.core.cpu", "CPUContext")
(_Dispatcher,) = _optional("numba.core.dispatcher", "Dispatcher")
(_global_lock,) = _optional("numba.core.compiler_lock", "global_compiler_lock")
_Codegen, _AnyLibrary, _Library = _optional(
    "numba.core.codegen", "JITCPUCodegen", "CodeLibrary", "JITCodeLibrary"
)
_Compiler, _CompileResult, _compile_result, _Flags = _optional(
    "numba.core.compiler", "Compiler", "CompileResult", "compile_result", "Flags"
)


def _has_place_for_cache():
    """Return whether Numba's dispatchers have the attribute _cache, which this package replaces."""
    return _have(numba.njit(lambda: None), "_cache")


def _has_steps_of_libraries():
    """Return whether Numba's class for compiled code has the methods that _InnerLibrary replaces.

    Only instances of the class have the attribute _final_module. The function therefore tests
    whether the name _final_module occurs in the code of the method get_function.
    """
    steps = ("_optimize_final_module", "_finalize_final_module", "_finalized", "get_function")
    return _have(_Library, *steps) and "_final_module" in _Library.get_function.__code__.co_names


# Some internal names exist only in some releases of Numba. Each constant HAS_... stands for one
# part of this module. The constant is true if the installed release has all internal names that
# this part needs.
HAS_CACHE = (
    _dumps is not None
    and _have(_runtime, "initialize")
    and _have(_CompileResult, "_reduce", "_rebuild")
    and _have(_AnyLibrary, "has_dynamic_globals")
    and _have(_Codegen, "magic_tuple")
    and _has_place_for_cache()
)
HAS_INTERMEDIATE_CODE = (
    HAS_CACHE
    and _compile_result is not None
    and _has_steps_of_libraries()
    and _have(_Compiler, "compile_extra")
    and _have(_Flags, "no_compile")
    and _have(_Dispatcher, "add_overload", "get_call_template")
    and _have(_Context, "insert_user_function")
)

# Kernels run without the GIL. As in NumPy, a division by zero raises no error. If the operands are
# floats, or if the operator is /, the result is infinity or NaN. If the operands are integers and
# the operator is // or %, the result is 0. With Numba's other error model, a division by zero would
# raise an error. LLVM cannot vectorise a loop that an error may end.
_OPTIONS = {"nogil": True, "error_model": "numpy"}

# Numba's lock. In the whole process, only the thread that holds this lock compiles.
compiler_lock = threading.RLock() if _global_lock is None else _global_lock


def dispatcher_of(function, flags, turn):
    """Return Numba's dispatcher of a function; the code is stored in the files of `code_cache`.

    When Numba is about to compile a signature, it calls turn(dispatcher, compile_here, signature)
    instead. The function compile_here(signature) loads the code of the signature or compiles it.
    """
    # No kernel is called from C, so no C wrapper is compiled. The first audit compiles kernels, and
    # it is 5 % faster without C wrappers.
    dispatcher = numba.njit(no_cfunc_wrapper=True, **_OPTIONS, **flags)(function)
    if HAS_CACHE:
        dispatcher._cache = _Cache(Files(function))
    else:
        warn("compiles in every process", f"Numba {numba.__version__} has another cache")
    dispatcher.compile = functools.partial(turn, dispatcher, dispatcher.compile)
    return dispatcher


@contextlib.contextmanager
def turn_to_compile(dispatcher, signature):
    """Yield True if a signature must be compiled, and False if its code is in the cache.

    A signature that must be compiled is locked during the `with` block. Without a cache, every
    signature must be compiled, and no signature is locked.
    """
    if not HAS_CACHE:
        yield True
        return
    with dispatcher._cache.turn(signature, dispatcher.targetctx) as must_compile:
        yield must_compile


def code_without_type_checks(dispatcher, arguments):
    """Return the compiled code for the types of these arguments; the code does not check types.

    Numba's dispatcher checks the types at every call, which takes 3 us for each named tuple. The
    compiled code would misread arguments of types for which it was not compiled.
    """
    signature = tuple(map(numba.typeof, (0, 0, *arguments)))
    if signature not in dispatcher.overloads:
        dispatcher.compile(signature)
    return getattr(dispatcher.overloads[signature], "entry_point", None) or dispatcher


class _Cache:
    """A replacement for a dispatcher's cache; it keeps code in the files of `code_cache`.

    Numba's dispatchers call load_overload, save_overload and flush. An error while code is loaded
    or saved becomes a warning.
    """

    def __init__(self, files):
        self._files = files

    def load_overload(self, signature, target_context):
        """Return the stored code of a signature, or None; warn if the stored code is unusable."""
        try:
            # Loaded code calls Numba's runtime, so the runtime is initialised. Numba's own cache
            # would call ``target_context.refresh()`` at this point. This call would import SciPy
            # and Numba's types for NumPy, which takes 0.85 s in every process. If Numba compiles a
            # kernel, it refreshes the context itself.
            _runtime.initialize(target_context)
            for key in _keys(signature, target_context):
                content = self._files.load(key)
                if content is not None:
                    return self._rebuild(target_context, content)
        except Exception as error:  # a damaged pickle can raise any error
            warn("compiles again", error)
        return None

    def save_overload(self, signature, compiled):
        """Save compiled code under the first key of a signature; warn if saving fails."""
        try:
            if compiled.library.has_dynamic_globals:  # the code contains addresses of this process
                return
            key = next(_keys(signature, compiled.target_context))
            self._files.save(key, _dumps(self._reduce(compiled)))
        except Exception as error:
            warn("cannot keep compiled code", error)

    def flush(self):
        """Do nothing, because the names of files with outdated code are never looked up."""

    def turn(self, signature, target_context):
        """Lock a signature during a `with` block if it must be compiled (see Files.turn)."""
        return self._files.turn(_keys(signature, target_context))

    def _reduce(self, compiled):
        """Reduce compiled code to tuples that can be pickled; ``_rebuild`` restores the code."""
        # The environments of Numba's helper functions are left out. Numba needs the environments of
        # helper functions only to raise errors, and kernels never raise errors. Loading the
        # environments would import SciPy, which takes 0.35 s in every process.
        *parts, environments = compiled._reduce()
        own = (e for e in environments if e.globals["__name__"].startswith(__package__))
        return (*parts, tuple(own))

    def _rebuild(self, target_context, content):
        return _CompileResult._rebuild(target_context, *content)


def _keys(signature, target_context):
    """Yield the keys under which the code of a signature may be stored.

    The first key stands for this CPU. Each of the other keys stands for a tier that this CPU
    supports; the keys begin with the widest tier.

    Code that was compiled for another CPU gives the same bits, because every tier has fused
    multiply-add. No other CPU feature changes a result, because a kernel that depends on a feature
    receives the feature as an argument. The only exception is ``dot_tile``: its code depends on the
    width of the registers, but its results do not.
    """
    triple, *cpu = target_context.codegen().magic_tuple()
    for name in (cpu, *map(code_name, supported_tiers())):
        yield signature, (triple, *name), _record_fields(signature)


def _record_fields(kinds):
    """Return the field names of all record types in `kinds`, a tuple of types.

    Compiled code reads the fields of a record by their order, but the name of the type does not
    contain the order. If two fields of the same type were swapped, stored code would therefore read
    the wrong fields. To prevent this, the field names are a part of the key.
    """
    names = []
    for kind in kinds:
        names += getattr(kind, "fields", ())
        if isinstance(kind, types.BaseTuple):
            names += _record_fields(kind.types)
    return tuple(names)


# A kernel that other kernels call is stored as LLVM's intermediate code. This code is optimised
# only as part of the kernels that call it. Numba itself would optimise the called kernel
# separately, and compile it to machine code with an entry for Python. It would also link the
# optimised code into the callers. With this additional work, the first search would take twice as
# long.


def inner_dispatcher_of(function, flags):
    """Return the dispatcher of a function that kernels call, or None if Numba cannot make one."""
    if not HAS_INTERMEDIATE_CODE:
        return None
    dispatcher = uncompiled(function, **flags)
    dispatcher._cache = _InnerCache(Files(function, INNER))
    dispatcher.get_call_template = functools.partial(_call_template, dispatcher.get_call_template)
    return dispatcher


def uncompiled(function, **flags):
    """Return a dispatcher that produces only intermediate code, and no entries for Python or C."""
    no_entry = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    dispatcher = numba.njit(pipeline_class=_Inner, **no_entry, **_OPTIONS, **flags)(function)
    dispatcher.add_overload = functools.partial(_add_overload, dispatcher)
    return dispatcher


def _add_overload(dispatcher, result):
    """Register compiled code for calls from kernels, but not for calls from Python.

    Numba's own method registers the code for both kinds of calls.
    """
    dispatcher.overloads[result.signature.args] = result


def _call_template(template_of, arguments, keywords):
    """Choose the argument types for a call between kernels; constants are typed like variables.

    If every constant had its own type, Numba would compile a kernel again for each constant that a
    caller passes.
    """
    keywords = {name: types.unliteral(kind) for name, kind in keywords.items()}
    return template_of(tuple(map(types.unliteral, arguments)), keywords)


class _InnerLibrary(_Library or object):
    """A library of the intermediate code of a kernel and its callees; it holds no machine code."""

    def _optimize_final_module(self):
        """Do nothing, because intermediate code is optimised later, as part of its callers."""

    def _finalize_final_module(self):
        self._finalized = True


class _Inner(_Compiler or object):
    """A variant of Numba's compiler that stops after it has produced the intermediate code."""

    def compile_extra(self, func):
        state = self.state
        state.flags.no_compile = True
        state.library = _InnerLibrary(state.targetctx.codegen(), func.__qualname__)
        # Numba looks up the code of a call under `entry_point`, which must be hashable and must
        # differ between signatures.
        result = super().compile_extra(func)._replace(entry_point=state.library)
        state.library.finalize()  # links the code of the kernels that this kernel calls
        state.targetctx.insert_user_function(state.library, result.fndesc, [state.library])
        return result


class _InnerCache(_Cache):
    """A cache of the intermediate code of one function, for kernels that call the function."""

    def _reduce(self, compiled):
        # typemap and calltypes are large, and they are not needed after the compilation.
        compiled.fndesc.typemap = compiled.fndesc.calltypes = None
        return compiled.library.name, bitcode_of(compiled), compiled.fndesc, compiled.signature

    def _rebuild(self, target_context, content):
        name, code, fndesc, signature = content
        library = _InnerLibrary(target_context.codegen(), name)
        library._final_module = binding.parse_bitcode(code)
        library._finalized = True
        return _compile_result(
            typing_context=target_context.typing_context,
            target_context=target_context,
            library=library,
            entry_point=library,
            fndesc=fndesc,
            signature=signature,
            objectmode=False,
        )


def bitcode_of(compiled):
    """Return the intermediate code of a compiled signature."""
    return compiled.library.serialize_using_bitcode()[2]


def type_of_dispatcher(dispatcher):
    """Return Numba's type of a kernel that other kernels call."""
    return types.Dispatcher(dispatcher)


def type_of_intrinsic(intrinsic):
    """Return Numba's type of an intrinsic that kernels call."""
    context = cpu_target.typing_context
    context.refresh()  # the intrinsic may be newer than the context's last refresh
    return context.resolve_value_type(intrinsic)


def address_of(function, signature):
    """Return the address of a signature's code; the address is valid while the function exists."""
    function.compile(signature)
    compiled = function.overloads[signature]
    return compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name)


def emit_call(context, builder, compiled, values):
    """Emit a call to the intermediate code that was compiled for a signature."""
    context.active_code_library.add_linking_library(compiled.library)
    context.call_internal(builder, compiled.fndesc, compiled.signature, values)


def emit_call_at(context, builder, address, signature, values):
    """Emit code that calls the function at an address and, if the call fails, returns the error."""
    convention = context.call_conv
    function_type = convention.get_function_type(types.none, signature).as_pointer()
    function = builder.inttoptr(address, function_type)
    status, _ = convention.call_function(builder, function, types.none, signature, values)
    with cgutils.if_unlikely(builder, status.is_error):
        convention.return_status_propagate(builder, status)
