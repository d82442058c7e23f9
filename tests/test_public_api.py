"""Every public name is listed, has examples, and documents all its parameters."""

import ast
import inspect
import re
from importlib import metadata
from pathlib import Path

import pytest

import fastcos

ROOT = Path(__file__).parents[1]


def is_public(thing):
    return not inspect.ismodule(thing)


NAMES = sorted(fastcos.__all__)
THINGS = {name: getattr(fastcos, name) for name in NAMES}
FUNCTIONS = [name for name in NAMES if inspect.isfunction(THINGS[name])]
CLASSES = [name for name in NAMES if inspect.isclass(THINGS[name])]
RECORDS = [name for name in CLASSES if hasattr(THINGS[name], "_fields")]
ESTIMATORS = [name for name in CLASSES if hasattr(THINGS[name], "fit")]
METHODS = [
    f"{name}.{method}"
    for name in CLASSES
    for method, function in vars(THINGS[name]).items()
    if not method.startswith("_") and inspect.isfunction(getattr(function, "__func__", function))
]


def sections(doc):
    return set(re.findall(r"^([A-Z][a-z]+)\n-{3,}$", doc, flags=re.MULTILINE))


def documented(doc, section):
    """Return the names that a section of a numpydoc docstring explains."""
    body = re.split(rf"^{section}\n-+\n", doc, flags=re.MULTILINE)
    if len(body) < 2:
        return set()
    text = re.split(r"^[A-Z][a-z]+\n-{3,}\n", body[1], flags=re.MULTILINE)[0]
    # One line may name several parameters: "center, scale : array_like".
    heads = re.findall(r"^([\w*, ]+?)(?: :.*)?$", text, flags=re.MULTILINE)
    return {name.strip("* ") for head in heads for name in head.split(",")}


def parameters(function):
    names = set(inspect.signature(function).parameters)
    return names - {"self", "cls", "y"}  # scikit-learn requires the parameter y


def test_all_lists_each_name_once():
    assert len(NAMES) == len(set(NAMES))
    assert all(not name.startswith("_") for name in NAMES)


def test_all_lists_what_type_checkers_see():
    tree = ast.parse((ROOT / "fastcos" / "__init__.py").read_text("utf8"))
    seen = {
        alias.asname
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen - {None} == set(NAMES)


def test_package_has_no_other_public_name():
    public = {
        name
        for name, thing in vars(fastcos).items()
        if not name.startswith("_") and not inspect.ismodule(thing)
    }
    # what __init__ itself needs
    assert public - set(NAMES) <= {"Any", "TYPE_CHECKING", "import_module"}


def test_dir_lists_public_names():
    assert set(dir(fastcos)) >= set(NAMES)


def test_version_is_that_of_the_installed_package():
    assert fastcos.__version__ == metadata.version("fastcos")


def test_unknown_name_raises_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'no_such_name'"):
        _ = fastcos.no_such_name


def test_star_import_binds_all_names():
    names = {}
    exec("from fastcos import *", names)
    assert set(NAMES) <= set(names)


@pytest.mark.parametrize("name", NAMES)
def test_public_name_has_a_summary_line(name):
    doc = inspect.getdoc(THINGS[name]) or ""
    assert len(doc.splitlines()[0]) > 10
    assert doc.splitlines()[0].endswith(".")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function_docstring_is_complete(name):
    function = THINGS[name]
    doc = inspect.getdoc(function) or ""
    assert parameters(function) <= documented(doc, "Parameters")
    result = {"Returns", "Raises", "Examples"} | ({"Parameters"} if parameters(function) else set())
    if inspect.signature(function).return_annotation in (None, "None"):
        result.discard("Returns")
    # A function without parameters has no values to refuse.
    if not parameters(function):
        result.discard("Raises")
    assert result <= sections(doc)
    assert ">>> " in doc


@pytest.mark.parametrize("name", RECORDS)
def test_record_docstring_lists_all_fields(name):
    doc = inspect.getdoc(THINGS[name]) or ""
    assert set(THINGS[name]._fields) <= documented(doc, "Attributes") | documented(
        doc, "Parameters"
    )


@pytest.mark.parametrize("name", ESTIMATORS)
def test_estimator_docstring_is_complete(name):
    doc = inspect.getdoc(THINGS[name]) or ""
    assert parameters(THINGS[name]) <= documented(doc, "Parameters")
    fitted = documented(doc, "Attributes")
    assert any(attribute.endswith("_") for attribute in fitted)
    assert ">>> " in doc


@pytest.mark.parametrize("name", METHODS)
def test_method_docstring_names_its_parameters(name):
    owner, _, method = name.partition(".")
    function = getattr(THINGS[owner], method)
    doc = inspect.getdoc(function) or ""
    assert doc, f"{name} has no docstring"
    named = documented(doc, "Parameters") or set(re.findall(r"\w+", doc))
    assert parameters(function) <= named | {"copy", "deep"}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_arguments_after_data_are_keyword_only(name):
    kinds = [p.kind for p in inspect.signature(THINGS[name]).parameters.values()]
    assert kinds.count(inspect.Parameter.POSITIONAL_OR_KEYWORD) <= 3
