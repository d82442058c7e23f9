"""The fingerprint of a kernel: a digest of its own code and of everything of this package it uses.

It is taken from the bytecode of the functions in memory, not from files. So it does not change with
comments or line numbers, it is right for packages in a zip file, without sources or within a frozen
program, and a process keeps its fingerprints when an upgrade replaces the files under it.
"""

import functools
import hashlib
import importlib.util
import inspect
import types

import numpy as np

_PACKAGE = __package__


@functools.cache
def fingerprint(function):
    """Return the digest of a function and of the functions and constants that it reaches."""
    parts, seen, stack = set(), set(), [function]
    while stack:
        thing = stack.pop()
        if thing not in seen:
            seen.add(thing)
            part, used = _describe(thing)
            parts.add(part)
            stack.extend(used)
    return hashlib.sha256("\n".join(sorted(parts)).encode()).hexdigest()


def module_fingerprint(name):
    """Return the digest of a module's code, as its loader has it; nothing of it is run."""
    code = importlib.util.find_spec(name).loader.get_code(name)
    return hashlib.sha256(repr(_code(code)).encode()).hexdigest()


@functools.cache
def _describe(thing):
    """Return a text that changes with a function or class, and what else it uses.

    Kernels and intrinsics are described by the function that they decorate and by their flags.
    """
    if inspect.isclass(thing):
        members = [value for value in vars(thing).values() if inspect.isfunction(value)]
        fields = getattr(thing, "_fields", ())
        return f"class {thing.__module__}.{thing.__qualname__} {fields}", tuple(members)
    function = inspect.unwrap(thing)
    cells = function.__closure__ or ()
    values = {
        **_globals(function, function.__code__),
        **{f"cell {i}": cell.cell_contents for i, cell in enumerate(cells)},
        **{f"default {i}": value for i, value in enumerate(function.__defaults__ or ())},
        **{f"keyword {name}": value for name, value in (function.__kwdefaults__ or {}).items()},
        **{f"flag {name}": value for name, value in getattr(thing, "flags", {}).items()},
    }
    used, texts = [], []
    for name, value in sorted(values.items()):
        if _is_own(value):
            used.append(value)
            texts.append((name, f"{value.__module__}.{value.__qualname__}"))
        else:
            texts.append((name, _text(value)))
    code = _code(function.__code__)
    return f"{function.__module__}.{function.__qualname__} {code} {texts}", tuple(used)


def _globals(function, code):
    """Return the globals that code names, and what it names in other modules of this package."""
    names = _names(code)
    found = {name: function.__globals__[name] for name in names if name in function.__globals__}
    modules = [value for value in found.values() if _is_own_module(value)]
    for module in modules:
        for name in names:
            if name in vars(module):
                found[f"{module.__name__}.{name}"] = vars(module)[name]
    return found


def _names(code):
    """Return the names of globals and attributes in code and in the functions that it defines."""
    names, stack = set(), [code]
    while stack:
        part = stack.pop()
        names.update(part.co_names)
        stack += [one for one in part.co_consts if isinstance(one, types.CodeType)]
    return names


def _is_own_module(value):
    return isinstance(value, types.ModuleType) and value.__name__.startswith(_PACKAGE)


def _is_own(value):
    """Return whether a value is a function, a kernel, an intrinsic or a class of this package."""
    is_decorated = type(value).__module__.startswith(_PACKAGE) and "__wrapped__" in vars(value)
    is_definition = is_decorated or isinstance(value, (types.FunctionType, type))
    return is_definition and str(value.__module__).startswith(_PACKAGE)


def _text(value):
    """Return a text for a constant that is the same in every process."""
    if isinstance(value, dict):
        return str(sorted((_text(key), _text(item)) for key, item in value.items()))
    if isinstance(value, (set, frozenset)):
        return str(sorted(map(_text, value)))
    if isinstance(value, (list, tuple)):
        return f"{type(value).__name__} {list(map(_text, value))}"
    if isinstance(value, types.CodeType):
        return str(_code(value))
    if isinstance(value, (np.ndarray, np.generic)):
        return f"{value.dtype} {value.shape} {value.tobytes().hex()}"
    if isinstance(value, (types.ModuleType, types.FunctionType, type)):
        return f"{getattr(value, '__module__', '')}.{value.__name__}"
    if type(value).__module__.startswith(_PACKAGE):  # of Numba, not imported yet
        return type(value).__name__
    text = repr(value)
    return type(value).__name__ if " at 0x" in text else text


def _code(code):
    """Return the parts of a code object that decide its behaviour, without docstring and lines."""
    constants = list(code.co_consts)
    if constants and isinstance(constants[0], str):
        constants[0] = None  # leave out the docstring
    return (
        code.co_name, code.co_code.hex(), code.co_argcount, code.co_posonlyargcount,
        code.co_kwonlyargcount, code.co_flags, code.co_names, code.co_varnames, code.co_freevars,
        code.co_cellvars, [_text(constant) for constant in constants],
    )  # fmt: skip
