"""What is public is listed, documented parameter by parameter, and shown at work."""

import inspect
import re
import subprocess
import sys
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
    """Names that a section of a numpydoc docstring explains."""
    body = re.split(rf"^{section}\n-+\n", doc, flags=re.MULTILINE)
    if len(body) < 2:
        return set()
    text = re.split(r"^[A-Z][a-z]+\n-{3,}\n", body[1], flags=re.MULTILINE)[0]
    # one line may name several: "center, scale : array_like"
    heads = re.findall(r"^([\w*, ]+?)(?: :.*)?$", text, flags=re.MULTILINE)
    return {name.strip("* ") for head in heads for name in head.split(",")}


def parameters(function):
    names = set(inspect.signature(function).parameters)
    return names - {"self", "cls", "y"}  # y is there for scikit-learn's sake


def test_every_listed_name_can_be_had_and_only_once():
    assert len(NAMES) == len(set(NAMES))
    assert all(not name.startswith("_") for name in NAMES)


def test_all_lists_what_the_type_checkers_see():
    source = (ROOT / "fastcos" / "__init__.py").read_text("utf8")
    seen = set(re.findall(r"^\s+from fastcos\S* import \w+ as (\w+)$", source, flags=re.MULTILINE))
    assert seen == set(NAMES)


def test_nothing_else_is_public():
    public = {
        name
        for name, thing in vars(fastcos).items()
        if not name.startswith("_") and not inspect.ismodule(thing)
    }
    # what __init__ itself needs
    assert public - set(NAMES) <= {"Any", "TYPE_CHECKING", "import_module"}


def test_dir_shows_the_public_names():
    assert set(dir(fastcos)) >= set(NAMES)


def test_the_version_is_that_of_the_installed_package():
    assert fastcos.__version__ == metadata.version("fastcos")


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'no_such_name'"):
        _ = fastcos.no_such_name


def test_a_star_import_brings_every_name():
    code = (
        "from fastcos import *; import fastcos; print(all(n in globals() for n in fastcos.__all__))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
        timeout=60,
    )
    assert done.stdout.strip() == "True"


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_says_what_it_is(name):
    doc = inspect.getdoc(THINGS[name]) or ""
    assert len(doc.splitlines()[0]) > 10
    assert doc.splitlines()[0].endswith(".")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_documents_every_parameter_and_has_every_section(name):
    function = THINGS[name]
    doc = inspect.getdoc(function) or ""
    assert parameters(function) <= documented(doc, "Parameters")
    wanted = {"Returns", "Raises", "Examples"} | ({"Parameters"} if parameters(function) else set())
    if inspect.signature(function).return_annotation in (None, "None"):
        wanted.discard("Returns")
    # a function without arguments has nothing to refuse
    if not parameters(function):
        wanted.discard("Raises")
    assert wanted <= sections(doc)
    assert ">>> " in doc


@pytest.mark.parametrize("name", RECORDS)
def test_a_record_documents_every_field(name):
    doc = inspect.getdoc(THINGS[name]) or ""
    assert set(THINGS[name]._fields) <= documented(doc, "Attributes") | documented(
        doc, "Parameters"
    )


@pytest.mark.parametrize("name", ESTIMATORS)
def test_an_estimator_documents_its_parameters_and_what_it_fits(name):
    doc = inspect.getdoc(THINGS[name]) or ""
    assert parameters(THINGS[name]) <= documented(doc, "Parameters")
    fitted = documented(doc, "Attributes")
    assert any(attribute.endswith("_") for attribute in fitted)
    assert ">>> " in doc


@pytest.mark.parametrize("name", METHODS)
def test_a_method_says_what_it_does_with_its_parameters(name):
    owner, _, method = name.partition(".")
    function = getattr(THINGS[owner], method)
    doc = inspect.getdoc(function) or ""
    assert doc, f"{name} has no docstring"
    told = documented(doc, "Parameters") or set(re.findall(r"\w+", doc))
    assert parameters(function) <= told | {"copy", "deep"}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_follows_the_data_is_keyword_only(name):
    kinds = [p.kind for p in inspect.signature(THINGS[name]).parameters.values()]
    assert kinds.count(inspect.Parameter.POSITIONAL_OR_KEYWORD) <= 3
