"""asv and the gate import all files of bench/: optional packages are imported in functions."""

import ast
import sys
from pathlib import Path

import pytest

FILES = sorted((Path(__file__).parents[2] / "bench").glob("*.py"))
INSTALLED = {"numpy", "scipy", "sklearn", "rich", "fastcos", "asv_runner"}
ALLOWED = {"bench", "tests", *INSTALLED, *sys.stdlib_module_names}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_benchmark_imports_no_optional_package(path):
    for node in ast.parse(path.read_text("utf8")).body:
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names = [node.module]
        for name in names:
            assert name.split(".")[0] in ALLOWED, f"{path.name}:{node.lineno}: inside a function"
