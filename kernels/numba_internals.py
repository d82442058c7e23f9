"""The private names of Numba and llvmlite that this package uses, and what happens without them.

Numba documents no way to keep compiled code elsewhere than in its own cache, and none to compile a
function for its callers alone. This file is the only one that names what Numba may change without
notice. Each group has a fall-back, which is taken if a release of Numba lacks a name of the group;
results are the same by every fall-back.

=================== ============================================ ==================================
group               names                                        without them
=================== ============================================ ==================================
cache on disk       caching.FunctionCache, its _impl_class,      every process compiles what it
                    _index_key, _impl.rebuild and _cache_file;   calls, after one warning
                    CompileResultCacheImpl.reduce;
                    serialize.dumps; rtsys.initialize;
                    Dispatcher._cache
intermediate code   JITCodeLibrary._optimize_final_module,       kernels that kernels call are
                    _finalize_final_module, _final_module and    compiled as Numba does it: a
                    _finalized; Compiler.compile_extra,          first search takes twice the time
                    compile_result, flags.no_compile,
                    insert_user_function;
                    Dispatcher.add_overload, get_call_template
compiler lock       global_compiler_lock                         only this package's own lock is
                                                                 held at forks and compilations
turns               Dispatcher.compile, replaced                 processes that start together
                                                                 compile the same kernels
entries             CompileResult.entry_point                    calls look at the types of their
                                                                 arguments every time: 3 us each
target machine      Codegen._get_host_cpu_name and _tm_features  no native wheels can be built
typed pointers      PointerType.pointee of llvmlite.ir           none: pyproject.toml bounds Numba
                                                                 to releases that were tested
=================== ============================================ ==================================

Unlike private names, ``numba.extending``, ``numba.typeof``, ``Dispatcher.overloads`` and the types
of ``llvmlite.ir`` are documented.
"""

import contextlib
import functools
import importlib
import threading

import numba
from llvmlite import binding
from numba import types
from numba.core.compiler import Compiler
from numba.core.registry import cpu_target

from .code_cache import INNER, Files, warn
from .cpu import code_name, supported_tiers


def _optional(module, *names):
    """Return objects of a module of Numba, each None where this release does not have it."""
    try:
        found = importlib.import_module(module)
    except ImportError:
        return [None] * len(names)
    return [getattr(found, name, None) for name in names]


_FunctionCache, _CacheImplementation = _optional(
    "numba.core.caching", "FunctionCache", "CompileResultCacheImpl"
)
(_dumps,) = _optional("numba.core.serialize", "dumps")
(_runtime,) = _optional("numba.core.runtime", "rtsys")
(_Library,) = _optional("numba.core.codegen", "JITCodeLibrary")
(_compile_result,) = _optional("numba.core.compiler", "compile_result")
(_global_lock,) = _optional("numba.core.compiler_lock", "global_compiler_lock")

# Whether this release of Numba has the names of a group.
HAS_CACHE = (
    None not in (_FunctionCache, _CacheImplementation, _dumps)
    and hasattr(_FunctionCache, "_index_key")
    and hasattr(_CacheImplementation, "reduce")
    and hasattr(_runtime, "initialize")
)
HAS_INTERMEDIATE_CODE = (
    HAS_CACHE
    and _compile_result is not None
    and all(
        hasattr(_Library, step) for step in ("_optimize_final_module", "_finalize_final_module")
    )
)

# Numba's lock: whoever holds it is the only thread that compiles, in the whole process.
compiler_lock = threading.RLock() if _global_lock is None else _global_lock


def dispatcher_of(function, flags, turn):
    """Return Numba's dispatcher of a function whose code is kept in our files.

    turn(dispatcher, compile_here, signature) is called where Numba would compile a signature;
    compile_here(signature) loads its code or compiles it.
    """
    # kernels are not called from C: without that entry the first audit is 5 % faster
    dispatcher = numba.njit(nogil=True, no_cfunc_wrapper=True, **flags)(function)
    if HAS_CACHE:
        dispatcher._cache = _Cache(function)
    else:
        warn("compiles in every process", f"Numba {numba.__version__} has another cache")
    dispatcher.compile = functools.partial(turn, dispatcher, dispatcher.compile)
    return dispatcher


@contextlib.contextmanager
def turn_to_compile(dispatcher, signature):
    """Hold this process's turn to compile a signature; yield whether it must be compiled."""
    if not HAS_CACHE:
        yield True
        return
    with dispatcher._cache.turn(signature, dispatcher.targetctx) as must_compile:
        yield must_compile


def entry_of(dispatcher, arguments):
    """Return the compiled function for arguments of these types; it does not look at their types.

    Numba's dispatcher does, at every call, which takes 3 us for each named tuple. Arguments of
    other types would be read wrongly.
    """
    signature = tuple(map(numba.typeof, (0, 0, *arguments)))
    if signature not in dispatcher.overloads:
        dispatcher.compile(signature)
    return getattr(dispatcher.overloads[signature], "entry_point", None) or dispatcher


class _Locator:
    """Stub for Numba, which requests a path at decoration; Files finds it at every use."""

    def ensure_cache_path(self):
        pass

    def get_cache_path(self):
        return ""

    def get_source_stamp(self):
        return None

    def get_disambiguator(self):
        return None

    @classmethod
    def from_function(cls, py_func, py_file):
        return cls()


class _PickledFiles(Files):
    """Files as Numba uses them."""

    def save(self, key, data):
        super().save(key, _dumps(data))

    def flush(self):
        """Do nothing: stale files have another digest."""


class _Implementation(_CacheImplementation or object):
    _locator_classes = [_Locator]  # noqa: RUF012  defined by Numba

    def reduce(self, cres):
        # Numba's helpers raise errors by their environments, which no kernel lets happen; loading
        # them imports SciPy: 0.35 s of every process
        *parts, environments = super().reduce(cres)
        kept = (e for e in environments if e.globals["__name__"].startswith(__package__))
        return (*parts, tuple(kept))


class _Cache(_FunctionCache or object):
    """Cache of one function; errors become warnings."""

    _impl_class = _Implementation

    def __init__(self, function):
        super().__init__(function)
        self._cache_file = _PickledFiles(function)

    def load_overload(self, sig, target_context):
        """Return compiled code for a signature, or None with a warning if it is not usable."""
        try:
            # Loaded code calls the runtime. Numba refreshes the whole context here, which imports
            # its typing of NumPy, and SciPy: 0.85 s of every process. A compilation does so itself.
            _runtime.initialize(target_context)
            return self._load(sig, target_context)
        except Exception as error:  # a pickle can raise anything
            warn("compiles again", error)
            return None

    def _load(self, sig, target_context):
        for key in self._keys(sig, target_context):
            data = self._cache_file.load(key)
            if data is not None:
                return self._impl.rebuild(target_context, data)
        return None

    def _keys(self, sig, target_context):
        """Yield the key of code for this CPU, then of the tiers it belongs to, widest first.

        Code for another CPU gives the same bits: every tier has fused multiply-add, and what else
        differs is an argument, or within the code of one kernel and all that it calls.
        """
        target = target_context.codegen().magic_tuple()
        sig, _, rest = super()._index_key(sig, target_context.codegen())
        for cpu in (target[1:], *map(code_name, supported_tiers())):
            yield sig, (target[0], *cpu), rest, _record_fields(sig)

    def _index_key(self, sig, codegen):
        """Return the key under which Numba saves code: the first of _keys."""
        return (*super()._index_key(sig, codegen), _record_fields(sig))

    def turn(self, sig, target_context):
        """Hold the turn to compile a signature; see Files.turn."""
        return self._cache_file.turn(self._keys(sig, target_context))

    def save_overload(self, sig, data):
        """Save compiled code, or warn."""
        try:
            super().save_overload(sig, data)
        except Exception as error:
            warn("cannot keep compiled code", error)


def _record_fields(kinds):
    """Return the names of the fields of all records among types.

    Compiled code reads the fields of a record by their order, which the name of the type does not
    tell: two fields of one type that change places are another record.
    """
    names = []
    for kind in kinds:
        names += getattr(kind, "fields", ())
        if isinstance(kind, types.BaseTuple):
            names += _record_fields(kind.types)
    return tuple(names)


# A kernel that another one calls is kept as LLVM's intermediate code, which is optimised as part of
# its callers only. Numba would optimise it by itself, too, give it machine code and an entry from
# Python, and link the optimised code into its callers: the first search took twice the time.


def inner_dispatcher_of(function, flags):
    """Return the dispatcher of a function that other kernels call, or None: see the fall-back."""
    if not HAS_INTERMEDIATE_CODE:
        return None
    dispatcher = uncompiled(function, **flags)
    dispatcher._cache = _InnerCache(function)
    dispatcher.get_call_template = functools.partial(_call_template, dispatcher.get_call_template)
    return dispatcher


def uncompiled(function, **flags):
    """Return a dispatcher that ends with intermediate code, without an entry from Python or C."""
    no_entry = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    dispatcher = numba.njit(pipeline_class=_Inner, nogil=True, **no_entry, **flags)(function)
    dispatcher.add_overload = functools.partial(_add_overload, dispatcher)
    return dispatcher


def _add_overload(dispatcher, result):
    """Let kernels call a result; Numba would let Python call it, too."""
    dispatcher.overloads[result.signature.args] = result


def _call_template(template_of, arguments, keywords):
    """Type a call of a kernel by another one, with constants as numbers of their type.

    Numba would compile a called kernel again for every constant that it is given.
    """
    keywords = {name: types.unliteral(kind) for name, kind in keywords.items()}
    return template_of(tuple(map(types.unliteral, arguments)), keywords)


class _InnerLibrary(_Library or object):
    """Intermediate code of a kernel and of those that it calls; no machine code."""

    def _optimize_final_module(self):
        """Do nothing: its callers' libraries do it."""

    def _finalize_final_module(self):
        self._finalized = True


class _Inner(Compiler):
    """Numba's compiler up to the intermediate code."""

    def compile_extra(self, func):
        state = self.state
        state.flags.no_compile = True
        state.library = _InnerLibrary(state.targetctx.codegen(), func.__qualname__)
        # calls find the code by its entry, which must be hashable and of one signature
        result = super().compile_extra(func)._replace(entry_point=state.library)
        state.library.finalize()  # links the code of the kernels that it calls
        state.targetctx.insert_user_function(result.entry_point, result.fndesc, [state.library])
        return result


class _InnerImplementation(_Implementation):
    def reduce(self, cres):
        cres.fndesc.typemap = cres.fndesc.calltypes = None  # large, and not used again
        return cres.library.name, bitcode_of(cres), cres.fndesc, cres.signature

    def rebuild(self, target_context, payload):
        name, code, fndesc, signature = payload
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


class _InnerCache(_Cache):
    """Cache of the intermediate code of one function, for the next caller."""

    _impl_class = _InnerImplementation

    def __init__(self, function):
        super().__init__(function)
        self._cache_file = _PickledFiles(function, INNER)


def bitcode_of(compiled):
    """Return the intermediate code of a compiled signature."""
    return compiled.library._final_module.as_bitcode()


def target_machine():
    """Return LLVM's machine for the CPU that Numba compiles for, for code of a shared library."""
    codegen = cpu_target.target_context.codegen()
    return binding.Target.from_triple(binding.get_process_triple()).create_target_machine(
        cpu=codegen._get_host_cpu_name(),
        features=codegen._tm_features,
        opt=3,
        reloc="pic",  # of a shared library; Numba's own code is not
        codemodel="default",
    )
