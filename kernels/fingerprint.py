"""The fingerprint of a kernel: a digest of its code and of all code in this package that it uses.

The fingerprint is taken from the bytecode of the functions in memory, not from files. Comments and
line numbers therefore do not change a fingerprint. Fingerprints are also correct if the package is
in a zip file, has no source files or is part of a frozen program. The fingerprints of a running
process do not change when an upgrade replaces the files of the package.
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
    """Return the digest of a function and of all functions and constants that it uses."""
    parts, visited, stack = set(), set(), [function]
    while stack:
        definition = stack.pop()
        if definition not in visited:
            visited.add(definition)
            part, dependencies = _describe(definition)
            parts.add(part)
            stack.extend(dependencies)
    return hashlib.sha256("\n".join(sorted(parts)).encode()).hexdigest()


def module_fingerprint(name):
    """Load the code of a module without running it, and return the digest of this code."""
    code = importlib.util.find_spec(name).loader.get_code(name)
    return hashlib.sha256(repr(_code(code)).encode()).hexdigest()


@functools.cache
def _describe(definition):
    """Return a text that describes `definition`, and a tuple of the definitions that it uses.

    A kernel or an intrinsic is described by its flags and by the Python function from which it is
    made.
    """
    if inspect.isclass(definition):
        members = [value for value in vars(definition).values() if inspect.isfunction(value)]
        fields = getattr(definition, "_fields", ())
        return f"class {definition.__module__}.{definition.__qualname__} {fields}", tuple(members)
    function = inspect.unwrap(definition)
    cells = function.__closure__ or ()
    values = {
        **_globals(function, function.__code__),
        **{f"cell {i}": cell.cell_contents for i, cell in enumerate(cells)},
        **{f"default {i}": value for i, value in enumerate(function.__defaults__ or ())},
        **{f"keyword {name}": value for name, value in (function.__kwdefaults__ or {}).items()},
        **{f"flag {name}": value for name, value in getattr(definition, "flags", {}).items()},
    }
    dependencies, texts = [], []
    for name, value in sorted(values.items()):
        if _is_own(value):
            dependencies.append(value)
            texts.append((name, f"{value.__module__}.{value.__qualname__}"))
        else:
            texts.append((name, _text(value)))
    code = _code(function.__code__)
    return f"{function.__module__}.{function.__qualname__} {code} {texts}", tuple(dependencies)


def _globals(function, code):
    """Return the objects that `code` names: globals, and attributes of modules of this package."""
    names = _names(code)
    values = {name: function.__globals__[name] for name in names if name in function.__globals__}
    modules = [value for value in values.values() if _is_own_module(value)]
    for module in modules:
        for name in names:
            if name in vars(module):
                values[f"{module.__name__}.{name}"] = vars(module)[name]
    return values


def _names(code):
    """Return the names of the globals and attributes that a code object and its inner code use."""
    names, stack = set(), [code]
    while stack:
        part = stack.pop()
        names.update(part.co_names)
        stack += [constant for constant in part.co_consts if isinstance(constant, types.CodeType)]
    return names


def _is_own_module(value):
    return isinstance(value, types.ModuleType) and value.__name__.startswith(_PACKAGE)


def _is_own(value):
    """Return whether a value is a function, a kernel, an intrinsic or a class of this package."""
    is_decorated = type(value).__module__.startswith(_PACKAGE) and "__wrapped__" in vars(value)
    is_definition = is_decorated or isinstance(value, (types.FunctionType, type))
    return is_definition and str(value.__module__).startswith(_PACKAGE)


def _text(value):
    """Return a text that describes a constant and is the same in every process."""
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
    # An object whose class is defined in this package is a placeholder for a module of Numba or
    # llvmlite. For example, ``types`` in ``jit`` stands for the module ``numba.types``.
    if type(value).__module__.startswith(_PACKAGE):
        return type(value).__name__
    text = repr(value)
    return type(value).__name__ if " at 0x" in text else text


def _code(code):
    """Return those parts of a code object that affect the results of the code.

    The returned parts include neither the docstring nor the line numbers.
    """
    constants = list(code.co_consts)
    if constants and isinstance(constants[0], str):
        constants[0] = None  # leave out the docstring
    return (
        code.co_name, code.co_code.hex(), code.co_argcount, code.co_posonlyargcount,
        code.co_kwonlyargcount, code.co_flags, code.co_names, code.co_varnames, code.co_freevars,
        code.co_cellvars, [_text(constant) for constant in constants],
    )  # fmt: skip
