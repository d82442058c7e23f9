"""The structure of the source code: imports have no cycles, and lead only to lower layers."""

import ast
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests import sources

ROOT = Path(__file__).parents[1]
KERNELS = sorted((ROOT / "kernels").rglob("*.py"))
PACKAGE = [
    path
    for path in sorted((ROOT / "fastcos").rglob("*.py"))
    if "kernels" not in path.relative_to(ROOT).parts
]


def nodes(path, *kinds):
    return sources.nodes(sources.parsed(path), *kinds)


def drawn_layers():
    """Return the level of each package in the drawing of ARCHITECTURE.md, whose last line is 1."""
    drawing = (ROOT / "ARCHITECTURE.md").read_text("utf8").split("```")[1]
    lines = [line.split() for line in drawing.strip().splitlines()]
    assert [int(level) for level, *_ in lines] == list(range(len(lines), 0, -1))
    return {package: int(level) for level, *packages in lines for package in packages}


# Packages with the same level may not import each other.
LEVEL_OF = drawn_layers()
# Only this module may import from a higher layer. The search is built on measures, but a measure
# that learns from neighbours calls the search.
EXCEPTIONS = {("fastcos.similarity.knn_stats", "search")}
BELOW_KERNELS = {"numpy", "numba", "llvmlite", *sys.stdlib_module_names}


def module_of(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


# setup.py runs this file, and no module imports it.
SCRIPTS = {ROOT / "kernels" / "build.py"}
MODULES = {module_of(path): path for path in PACKAGE}
MODULES |= {f"fastcos.{module_of(path)}": path for path in KERNELS}


def imported(path):
    """Yield the modules of fastcos that a file imports.

    These modules include imports inside functions, and the modules of `imported_by_string`.
    """
    yield from imported_by_string(path)
    for node in nodes(path, ast.Import, ast.ImportFrom):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif node.level:  # only kernels use relative imports
            names = [f"fastcos.kernels.{node.module or alias.name}" for alias in node.names]
        else:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            while name not in MODULES and "." in name:
                name = name.rpartition(".")[0]
            if name in MODULES:
                yield name


def imported_by_string(path):
    """Yield the modules of fastcos that a file may import by a name in a string.

    If the file uses import_module or __import__, the function yields all modules whose names are
    strings in the file. Otherwise, it yields no module.
    """
    names = {node.id for node in nodes(path, ast.Name)}
    names |= {node.attr for node in nodes(path, ast.Attribute)}
    if path in SCRIPTS or not names & {"import_module", "__import__"}:
        return
    for node in nodes(path, ast.Constant):
        # The string "fastcos" alone is the name of the program.
        if isinstance(node.value, str) and node.value in MODULES.keys() - {"fastcos"}:
            yield node.value


def test_imports_of_every_form_are_read(tmp_path):
    source = tmp_path / "forms.py"
    source.write_text(
        "import fastcos.cli\ndef f():\n    from fastcos.linalg.csr import Csr\n"
        "    from fastcos import search\n"
    )
    assert sorted(imported(source)) == ["fastcos.cli", "fastcos.linalg.csr", "fastcos.search"]
    source = tmp_path / "module.py"
    source.write_text('import importlib\nNAME = "fastcos.cli"\nimportlib.import_module(NAME)\n')
    assert list(imported(source)) == ["fastcos.cli"]
    other = tmp_path / "other.py"
    other.write_text('NAME = "fastcos.cli"\n')
    assert list(imported(other)) == []


def test_imports_have_no_cycle():
    graph = {
        module: set(imported(path)) - {module, "fastcos"}
        for module, path in MODULES.items()
        if module != "fastcos"
    }
    try:
        tuple(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_imports_point_down():
    offenders = []
    for path in PACKAGE:
        if path == ROOT / "fastcos" / "__init__.py":
            continue
        own = module_of(path).split(".")[1]
        for module in imported(path):
            # For the module fastcos.search.plan, for example, `used` is "search". If a file imports
            # a name from the public fastcos/__init__.py, `used` is an empty string. The empty
            # string is not in LEVEL_OF, so the test reports such an import.
            used = module.partition(".")[2].partition(".")[0]
            if (module_of(path), used) in EXCEPTIONS:
                continue
            if used != own and not LEVEL_OF.get(used, max(LEVEL_OF.values())) < LEVEL_OF[own]:
                offenders.append(f"{path.relative_to(ROOT)} imports {module}")
    assert not offenders, "\n".join(offenders)


def test_kernels_import_nothing_from_above():
    offenders = []
    for path in KERNELS:
        for node in nodes(path, ast.Import, ast.ImportFrom):
            if isinstance(node, ast.Import):
                names = {alias.name.split(".")[0] for alias in node.names}
            else:
                names = set() if node.level else {node.module.split(".")[0]}
            if not names <= BELOW_KERNELS:
                offenders.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert not offenders, "import other kernels as `from .jit import kernel`: " + " ".join(
        offenders
    )


# A search, a product or an SVD imports these packages. The packages import other libraries only
# inside functions (see the docstring of the module fastcos).
LIGHT = (
    "reports", "validation", "config", "parallel", "storage", "linalg", "similarity", "search",
)  # fmt: skip
ALLOWED_AT_TOP = {"numpy", "fastcos", *sys.stdlib_module_names}
# The classes in these files inherit from classes of scikit-learn.
SKLEARN_CLASSES = {"fastcos/search/transformer.py"}


def test_light_packages_import_numpy_alone_at_the_top():
    offenders = []
    for path in PACKAGE:
        name = str(path.relative_to(ROOT))
        if module_of(path) != "fastcos" and module_of(path).split(".")[1] not in LIGHT:
            continue
        for node in sources.parsed(path).body:
            if isinstance(node, ast.Import):
                names = {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                names = {node.module.split(".")[0]}
            else:
                continue
            if name not in SKLEARN_CLASSES and not names <= ALLOWED_AT_TOP:
                offenders.append(f"{name}:{node.lineno}")
    assert not offenders, "\n".join(offenders)


def test_no_attribute_is_made_under_a_lock():
    # On Python 3.11, functools.cached_property uses a lock, which a forked child may inherit while
    # it is held.
    offenders = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in (*PACKAGE, *KERNELS)
        for node in nodes(path, ast.Attribute, ast.ImportFrom)
        if "cached_property"
        in (getattr(node, "attr", ""), *(a.name for a in getattr(node, "names", ())))
    ]
    assert not offenders, "use parallel.lazy_attribute: " + ", ".join(offenders)


@pytest.mark.slow
def test_tests_patch_no_private_names():
    offenders = []
    for path in sorted((ROOT / "tests").rglob("*.py")):
        if "setattr(" not in path.read_text("utf8"):
            continue
        for call in nodes(path, ast.Call):
            if not isinstance(call.func, ast.Attribute) or call.func.attr != "setattr":
                continue
            # The call has the form setattr(module, "_NAME", value) or setattr("module._NAME",
            # value).
            names = [arg.value for arg in call.args[:2] if isinstance(arg, ast.Constant)]
            last = [name.rpartition(".")[2] for name in names if isinstance(name, str)]
            if any(name.startswith("_") and not name.startswith("__") for name in last):
                offenders.append(f"{path.relative_to(ROOT)}:{call.lineno}")
    assert not offenders, "\n".join(offenders)


def test_top_level_has_few_modules_besides_packages():
    modules = {path.stem for path in (ROOT / "fastcos").glob("*.py")} - {"__init__", "config"}
    assert len(modules) <= 3, modules
