"""The pages say what the code does: their examples run, and no public name is missing."""

import doctest
import inspect
import re
from pathlib import Path

import pytest

import fastcos
from fastcos import displays, metrics, plots
from fastcos.cli.main import VERBS
from fastcos.measure import base

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    page
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))
    if ">>> " in page.read_text("utf8") and "_build" not in page.parts
)
NAMES = [name for name in fastcos.__all__ if not inspect.ismodule(getattr(fastcos, name))]
REFERENCE = "".join(
    page.read_text("utf8") for page in sorted((ROOT / "docs" / "reference").glob("*.md"))
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_examples_of_a_page_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # pages may write files, and register measures of their own
    monkeypatch.setattr(base, "_MAKERS", dict(base._MAKERS))
    found = doctest.testfile(
        str(page), module_relative=False, optionflags=doctest.ELLIPSIS, encoding="utf8"
    )
    assert found.attempted > 0
    assert found.failed == 0


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_has_an_example_that_runs(name):
    assert ">>> " in (inspect.getdoc(getattr(fastcos, name)) or "")


@pytest.mark.parametrize(
    ("module", "name"),
    [("fastcos", name) for name in NAMES] + [("fastcos.metrics", name) for name in metrics.__all__],
)
def test_a_public_name_stands_in_the_reference_once(module, name):
    assert len(re.findall(rf"^\.\. auto\w+:: {module}\.{name}$", REFERENCE, re.MULTILINE)) == 1


def test_every_display_stands_in_the_reference():
    for module in (plots, displays):
        for name, thing in vars(module).items():
            if name.endswith("Display") and inspect.isclass(thing):
                assert f".. autoclass:: {module.__name__}.{name}\n" in REFERENCE


def test_the_readme_tells_every_verb():
    told = re.findall(
        r"^\| `fastcos (\w+)` \|", (ROOT / "README.md").read_text("utf8"), re.MULTILINE
    )
    assert told == list(VERBS)
