"""Rules for all kernels, which are checked in the source of the kernels.

Each test lists all functions that break its rule.
"""

import ast
import functools
import re
import tomllib
from pathlib import Path

import pytest

from tests import sources
from tests.sources import nodes

ROOT = Path(__file__).parents[2]
COMPILERS = {"njit", "jit", "vectorize", "guvectorize", "generated_jit", "stencil", "cfunc"}
FLAGS = {"fastmath", "parallel", "nogil", "boundscheck", "error_model", "cache", "locals"}
DECORATORS = {"kernel", "borrowing_kernel", "relaxed_kernel"}
INFRASTRUCTURE = {
    "__init__", "build", "code_cache", "compiler", "cpu", "fingerprint", "jit", "native",
    "numba_internals",
}  # fmt: skip
COMPILE = {"kernels/jit.py", "kernels/compiler.py", "kernels/numba_internals.py"}


@functools.cache
def parsed(*patterns):
    """Return the syntax trees of all files that match a pattern, by path in the repository."""
    paths = [path for pattern in patterns for path in sorted(ROOT.glob(pattern))]
    names = {path.relative_to(ROOT).as_posix(): path for path in paths}
    return {name: sources.parsed(path) for name, path in names.items()}


def kernels():
    return parsed("kernels/**/*.py")


def package():
    return parsed("fastcos/**/*.py")


def everywhere():
    return kernels() | package()


def without_jit():
    return {name: tree for name, tree in everywhere().items() if name not in COMPILE}


def compiled(tree):
    """Return those functions of a file that have one of the compiling decorators of jit.py."""
    return [
        function
        for function in nodes(tree, ast.FunctionDef)
        if DECORATORS & {getattr(decorator, "id", "") for decorator in function.decorator_list}
    ]


# These kernels have no tests of their own; the listed tests of their callers cover them.
TESTED_BY_CALLERS = {
    "average_precisions_at_r": "tests/metrics/test_labelled.py",
    "climb": "tests/auditing/test_worst_rescaling.py",
    "count_lost_by_row": "tests/auditing/test_worst_rescaling.py",
    "list_candidates": "tests/search/test_search.py",
    "list_candidates_of_few": "tests/search/test_range_search.py",
    "nearest_bits": "tests/search/test_bits.py",
    "pack_block": "tests/search/test_filter_bound.py",
    "rank_excess_rows": "tests/metrics/test_agreement.py",
    "scale_queries": "tests/search/test_search.py",
    "search_block": "tests/search/test_search.py",
    "search_grid": "tests/search/test_search.py",
    "search_few_by_projection": "tests/search/test_few_queries.py",
    "search_few_queries": "tests/search/test_few_queries.py",
    "search_self_join": "tests/search/test_self_join.py",
    "shift_products": "tests/search/test_centering.py",
}


def test_every_rows_kernel_has_a_test():
    tests = "".join(path.read_text("utf8") for path in (ROOT / "tests/kernels").glob("*.py"))
    rows_kernels = {
        function.name
        for tree in kernels().values()
        for function in compiled(tree)
        if [argument.arg for argument in function.args.args[:2]] == ["lo", "hi"]
        # NAME_plain computes the results of the kernel NAME without vector instructions.
        and not function.name.startswith("_")
        and not function.name.endswith("_plain")
    }
    untested = {name for name in rows_kernels if not re.search(rf"\b{name}\b", tests)}
    assert untested <= set(TESTED_BY_CALLERS), "write tests/kernels/test_FILE.py for them"
    for path in TESTED_BY_CALLERS.values():
        assert (ROOT / path).is_file(), path


def test_the_table_of_the_package_names_every_module():
    for package in ("kernels", "kernels/simd"):
        table = ast.get_docstring(kernels()[f"{package}/__init__.py"])
        files = [Path(name) for name in kernels()]
        modules = {file.stem for file in files if file.parent == Path(package)} - {"__init__"}
        assert not {name for name in modules if not re.search(rf"\b{name}\b", table)}


def test_only_simd_writes_llvm_ir():
    offenders = {
        name: names
        for name, tree in kernels().items()
        if not name.startswith("kernels/simd/") and Path(name).stem not in INFRASTRUCTURE
        for names in [{alias.name for node in nodes(tree, ast.ImportFrom) for alias in node.names}]
        if names & {"ir", "cgutils", "intrinsic", "intrinsic_of"}
    }
    assert not offenders, "add a file to kernels/simd"


def test_files_are_read():
    assert len(kernels()) > 30
    assert len(package()) > 100
    assert sum(len(compiled(tree)) for tree in kernels().values()) > 150


def test_compiler_flags_are_set_in_jit_only():
    offenders = {}
    for name, tree in without_jit().items():
        used = {node.attr for node in nodes(tree, ast.Attribute)}
        used |= {alias.name for node in nodes(tree, ast.ImportFrom) for alias in node.names}
        decorators = [
            call
            for function in nodes(tree, ast.FunctionDef)
            for call in function.decorator_list
            if isinstance(call, ast.Call)
        ]
        flags = {keyword.arg for call in decorators for keyword in call.keywords}
        offenders[name] = used & COMPILERS | flags & FLAGS
    found = {name: names for name, names in offenders.items() if names}
    assert not found, f"import decorators as `from .jit import kernel`, without flags: {found}"


def test_prange_is_named_in_jit_only():
    offenders = [
        name
        for name, tree in without_jit().items()
        if "prange" in {node.id for node in nodes(tree, ast.Name)}
        or "prange" in {node.attr for node in nodes(tree, ast.Attribute)}
    ]
    assert not offenders


def test_kernels_never_raise():
    offenders = [
        f"{name}:{node.lineno}"
        for name, tree in kernels().items()
        if Path(name).stem not in INFRASTRUCTURE
        for function in compiled(tree)
        for node in nodes(function, ast.Raise, ast.Assert)
    ]
    assert not offenders, "under prange the error would be lost"


def test_kernels_do_not_recurse():
    """No kernel calls itself, because Numba cannot always link cached recursive code again.

    If linking fails, LLVM ends the process.
    """
    offenders = [
        f"{name}:{function.lineno} {function.name}"
        for name, tree in kernels().items()
        if Path(name).stem not in INFRASTRUCTURE
        for function in nodes(tree, ast.FunctionDef)
        for node in nodes(function, ast.Call)
        if isinstance(node.func, ast.Name) and node.func.id == function.name
    ]
    assert not offenders


def test_package_has_no_assert():
    offenders = [
        f"{name}:{node.lineno}"
        for name, tree in everywhere().items()
        for node in nodes(tree, ast.Assert)
    ]
    assert not offenders, "python -O drops asserts"


@pytest.mark.slow
def test_private_kernels_are_called_by_kernels_only():
    """Python never calls a kernel named _name; without an entry point, the call would crash."""
    private = {
        function.name
        for tree in kernels().values()
        for function in compiled(tree)
        if function.name.startswith("_")
    }
    # Only files that contain a kernel, or the name of a private kernel, are parsed.
    is_relevant = re.compile(rf"@({'|'.join(DECORATORS)})\b|\b({'|'.join(private)})\b").search
    users = [
        path.relative_to(ROOT).as_posix()
        for folder in ("fastcos", "tests", "bench")
        for path in (ROOT / folder).rglob("*.py")
        if is_relevant(path.read_text("utf8"))
    ]
    assert len(users) > 10
    offenders = {}
    for name, tree in parsed(*users).items():
        own = {function.name for function in compiled(tree) if function.name.startswith("_")}
        by_kernels = {call for function in compiled(tree) for call in nodes(function, ast.Call)}
        called = {
            call.func.attr if isinstance(call.func, ast.Attribute) else call.func.id
            for call in set(nodes(tree, ast.Call)) - by_kernels
            if isinstance(call.func, ast.Attribute | ast.Name)
        }
        imported = {
            alias.name
            for node in nodes(tree, ast.ImportFrom)
            for alias in node.names
            if (node.module or "").startswith("fastcos.kernels")
        }
        # An attribute with the name of a private kernel may be a method. If so, rename the method
        # or the kernel.
        attributes = {node.attr for node in nodes(tree, ast.Attribute)}
        offenders[name] = own & called | private & (imported | attributes)
    assert not {name: found for name, found in offenders.items() if found}


# These undocumented names of Numba and llvmlite are listed in kernels/numba_internals.py.
PRIVATE_MODULES = {
    "caching", "codegen", "compiler", "compiler_lock", "cpu", "dispatcher", "registry", "runtime",
    "serialize",
}  # fmt: skip
PRIVATE_NAMES = {
    "_cache", "_final_module", "_finalize_final_module", "_finalized", "_optimize_final_module",
    "_rebuild", "_reduce", "active_code_library", "add_overload", "call_conv", "call_internal",
    "compile_extra", "compile_result", "entry_point", "get_call_template",
    "get_pointer_to_function", "has_dynamic_globals", "insert_user_function", "magic_tuple",
    "no_compile", "pointee", "resolve_value_type", "serialize_using_bitcode",
}  # fmt: skip


def test_private_names_of_numba_are_in_one_file():
    offenders = {}
    for name, tree in kernels().items():
        if Path(name).stem != "numba_internals":
            modules = {node.module for node in nodes(tree, ast.ImportFrom) if node.level == 0}
            used = {f"numba.core.{module}" for module in PRIVATE_MODULES} & modules
            attributes = {node.attr for node in nodes(tree, ast.Attribute)} & PRIVATE_NAMES
            offenders[name] = used | attributes
    # The function element_type must read the attribute `pointee` of pointers.
    offenders["kernels/simd/emit.py"] -= {"pointee"}
    found = {name: names for name, names in offenders.items() if names}
    assert not found, "move it to kernels/numba_internals.py, with its reason and a fall-back"


def test_every_private_name_of_numba_is_listed_with_its_reason():
    listed = ast.get_docstring(kernels()["kernels/numba_internals.py"])
    assert not {name for name in PRIVATE_NAMES if not re.search(rf"\b{name}\b", listed)}


def test_the_bounds_of_numba_are_those_that_are_tested():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf8"))["project"]
    bounds = {text for text in project["dependencies"] if text.startswith("numba>")}
    assert bounds == set(project["optional-dependencies"]["compile"])
    oldest, end = re.fullmatch(r"numba>=(\S+),<(\S+)", *bounds).groups()
    script = (ROOT / ".ci" / "numba_versions").read_text("utf8")
    lowest, newest = re.search(r"versions=\((\d\S+) (\S+)\)", script).groups()
    minor = int(end.rpartition(".")[2]) - 1
    assert lowest.startswith(f"{oldest}.")
    assert newest.startswith(f"{end.rpartition('.')[0]}.{minor}.")


def test_kernels_that_python_calls_take_at_most_8_arguments():
    """Callers would easily confuse more than 8 arguments.

    Kernels with more inputs take named tuples, which are defined in kernels/records.py.
    """
    called = "".join(path.read_text("utf8") for path in (ROOT / "fastcos").rglob("*.py"))
    offenders = [
        f"{name}: {function.name} takes {len(function.args.args)}"
        for name, tree in kernels().items()
        for function in compiled(tree)
        if len(function.args.args) > 8
        and not function.name.startswith("_")
        and [argument.arg for argument in function.args.args[:2]] == ["lo", "hi"]
        and re.search(rf"\b\w+\.{function.name}\b|\b{function.name},", called)
    ]
    assert not offenders
