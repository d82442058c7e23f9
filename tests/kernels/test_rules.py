"""What every kernel must hold to, checked by reading the source."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
KERNELS = sorted((ROOT / "kernels").glob("*.py"))
PACKAGE = [path for path in sorted((ROOT / "fastcos").rglob("*.py")) if "kernels" not in path.parts]
COMPILERS = {"njit", "jit", "vectorize", "guvectorize", "generated_jit", "stencil", "cfunc"}
FLAGS = {"fastmath", "parallel", "nogil", "boundscheck", "error_model", "cache", "locals"}
INFRASTRUCTURE = {"__init__.py", "jit.py", "code_cache.py", "cpu.py"}


def name_of(path):
    return str(path.relative_to(ROOT))


def nodes(tree, *kinds):
    return [node for node in ast.walk(tree) if isinstance(node, kinds)]


def parsed(path):
    return ast.parse(path.read_text("utf8"))


each_kernel_file = pytest.mark.parametrize("path", KERNELS, ids=name_of)
each_file = pytest.mark.parametrize("path", KERNELS + PACKAGE, ids=name_of)


@each_file
def test_only_the_jit_module_chooses_compiler_flags(path):
    if path.name == "jit.py":
        return
    tree = parsed(path)
    used = {node.attr for node in nodes(tree, ast.Attribute)}
    used |= {alias.name for node in nodes(tree, ast.ImportFrom) for alias in node.names}
    assert not used & COMPILERS
    decorators = [
        call
        for function in nodes(tree, ast.FunctionDef)
        for call in function.decorator_list
        if isinstance(call, ast.Call)
    ]
    flags = {keyword.arg for call in decorators for keyword in call.keywords}
    assert not flags & FLAGS


@each_file
def test_only_the_jit_module_names_prange(path):
    if path.name != "jit.py":
        tree = parsed(path)
        names = {node.id for node in nodes(tree, ast.Name)}
        names |= {node.attr for node in nodes(tree, ast.Attribute)}
        assert "prange" not in names


@each_kernel_file
def test_kernels_never_raise(path):
    if path.name in INFRASTRUCTURE:
        return
    compiled = [
        function
        for function in nodes(parsed(path), ast.FunctionDef)
        if any("kernel" in ast.unparse(decorator) for decorator in function.decorator_list)
    ]
    lines = [node.lineno for f in compiled for node in nodes(f, ast.Raise, ast.Assert)]
    assert not lines, f"{path.name}:{lines} raises: under prange the error would be lost"


@each_kernel_file
def test_no_kernel_calls_itself(path):
    """Numba cannot always link such code again from the disk; LLVM then ends the process."""
    for function in nodes(parsed(path), ast.FunctionDef):
        called = {
            node.func.id for node in nodes(function, ast.Call) if isinstance(node.func, ast.Name)
        }
        assert function.name not in called, f"{path.name}:{function.lineno} {function.name}"


@each_file
def test_nothing_is_settled_by_assert(path):
    lines = [node.lineno for node in nodes(parsed(path), ast.Assert)]
    assert not lines, f"{name_of(path)}:{lines}: python -O drops asserts"


def decorated_kernels(path):
    """Names of the functions of a file that a decorator of jit.py compiles."""
    return {
        function.name
        for function in nodes(parsed(path), ast.FunctionDef)
        for decorator in function.decorator_list
        if ast.unparse(decorator) in {"kernel", "screen_kernel"}
    }


PRIVATE_KERNELS = {
    name for path in KERNELS for name in decorated_kernels(path) if name.startswith("_")
}
PYTHON = [
    *PACKAGE,
    *sorted((ROOT / "tests").rglob("*.py")),
    *sorted((ROOT / "bench").rglob("*.py")),
]


@pytest.mark.parametrize("path", PYTHON, ids=name_of)
def test_kernels_without_an_entry_from_python_are_called_by_kernels_only(path):
    """jit.py spares a kernel called _name its entry from Python: a call from there is a crash."""
    own = {name for name in decorated_kernels(path) if name.startswith("_")}
    calls = nodes(parsed(path), ast.Call)
    called = {ast.unparse(call.func).rpartition(".")[2] for call in calls}
    imported_ones = {
        alias.name
        for node in nodes(parsed(path), ast.ImportFrom)
        for alias in node.names
        if (node.module or "").startswith("fastcos.kernels")
    }
    of_kernels = {
        node.attr for node in nodes(parsed(path), ast.Attribute) if node.attr in PRIVATE_KERNELS
    }
    assert not own & called
    assert not PRIVATE_KERNELS & imported_ones
    assert not of_kernels, "a private kernel, or a method of the same name: rename one"
