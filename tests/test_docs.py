"""The docs are up to date: their examples run, and the reference lists all public names."""

import doctest
import importlib.util
import inspect
import itertools
import re
import runpy
import shlex
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp

import fastcos
from fastcos import metrics, plots
from fastcos.cli.main import COMMANDS as ALL_COMMANDS, build_parser, main
from fastcos.similarity import base

ROOT = Path(__file__).parents[1]
# This page consists of pieces of files, which test_the_example_of_a_new_kernel_runs joins.
NEW_KERNEL = "docs/dev/change_a_kernel.md"
PAGES = sorted(
    page
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))
    if ">>> " in page.read_text("utf8") and "_build" not in page.parts and page != ROOT / NEW_KERNEL
)
TEXTS = {
    str(page.relative_to(ROOT)): page.read_text("utf8")
    for page in (
        *ROOT.glob("*.md"),
        *(ROOT / ".github").glob("*.md"),
        *(ROOT / "bench").glob("*.md"),
        *(ROOT / "bench").glob("*/README.md"),
        *(ROOT / "docs").rglob("*.md"),
    )
    if not {"_build", "generated"} & set(page.parts)
}
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SCRIPTS = [
    (page, code)
    for page, text in TEXTS.items()
    for language, code in FENCED.findall(text)
    if language == "python" and ">>> " not in code
]
# Blocks with this text need a cluster, so tests/distributed/test_cluster.py runs them.
CLUSTER = "Client("
COMMANDS = sorted(
    {
        (page, re.sub(r"\s+#.*|\s+>\s.*", "", command))
        for page, text in TEXTS.items()
        for _, block in FENCED.findall(text)
        for command in re.findall(
            r"^(?:\$ )?(fastcos [a-z].*)$", re.sub(r"\\\n\s*", "", block), re.MULTILINE
        )
    }
)
NAMES = [name for name in fastcos.__all__ if not inspect.ismodule(getattr(fastcos, name))]
REFERENCE = "".join(
    page.read_text("utf8") for page in sorted((ROOT / "docs" / "reference").glob("*.md"))
)


# These pages compile kernels that no other default test needs, such as searches of float32 rows for
# float64 queries, the training of CosineMF, and matrices with 64-bit indices.
LONG_PAGES = {
    ROOT / "docs" / page
    for page in (
        "tutorial/simulated.md",
        "howto/audit.md",
        "howto/switch_model.md",
        "howto/decide.md",
        "howto/files.md",
        "howto/retrain.md",
        "reference/models.md",
    )
}


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=[pytest.mark.slow] * (page in LONG_PAGES)) for page in PAGES],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_page_examples_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # pages may write files, and register their own measures
    monkeypatch.setattr(base, "REGISTRY", dict(base.REGISTRY))
    outcome = doctest.testfile(
        str(page), module_relative=False, optionflags=doctest.ELLIPSIS, encoding="utf8"
    )
    assert outcome.attempted > 0
    assert outcome.failed == 0


def export_page(folder):
    """Return the variables that earlier examples of docs/howto/export.md define."""
    rows = np.random.default_rng(0).standard_normal((50, 8)).astype(np.float32)
    return {"np": np, "rows": rows, "queries": rows[:3]}


def movielens_page(folder):
    """Write ratings to a zip file, and fit a model to them; a command on the page does the same."""
    seen = fastcos.simulate_interactions(200, 40, random_state=0)
    lines = "".join(f"{u},{i},5\n" for u, i in zip(*seen.X.nonzero(), strict=True))
    with zipfile.ZipFile(folder / "ratings.csv.zip", "w") as archive:
        archive.writestr("ratings.csv", "userId,movieId,rating\n" + lines)
    assert main(["fit", "ratings.csv.zip", "--rank", "5", "--out", "films"]) == 0
    return {}


def scale_page(folder):
    """Items on disk."""
    np.save(folder / "items.npy", np.random.default_rng(0).standard_normal((300, 8)))
    queries = np.random.default_rng(1).standard_normal((20, 8))
    return {"np": np, "fastcos": fastcos, "queries": queries}


def serve_page(folder):
    """Return the variables of the page, such as a model like those of the package implicit."""
    random = np.random.default_rng(0)
    model = SimpleNamespace(
        item_factors=random.standard_normal((40, 6)), user_factors=random.standard_normal((30, 6))
    )
    item_ids = [318, *range(1000, 1039)]
    X = sp.csr_array(random.random((30, 40)) < 0.1)
    names = {"fastcos": fastcos, "model": model, "item_ids": item_ids, "X": X}
    return names | {"bought": [1003, 7]}


PREPARED = {
    "docs/howto/serve.md": serve_page,
    "docs/howto/export.md": export_page,
    "docs/tutorial/movielens.md": movielens_page,
    "docs/scale.md": scale_page,
}
# The code on these pages needs two versions of a program. The calls that these pages show are
# tested in bench/gate/tests/test_processes.py.
NOT_RUN = {"bench/gate/README.md", "bench/README.md"}


@pytest.mark.parametrize(
    ("page", "code"), SCRIPTS, ids=[f"{page}: {code.splitlines()[0]}" for page, code in SCRIPTS]
)
def test_page_script_runs(page, code, tmp_path, monkeypatch):
    if page in NOT_RUN | {NEW_KERNEL} or CLUSTER in code:
        compile(code, page, "exec")
        return
    for name in re.findall(r"^(?:import|from) (\w+)", code, re.MULTILINE):
        pytest.importorskip(name, reason=f"{page} needs {name}")
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "script.py"
    script.write_text(code, "utf8")
    names = PREPARED[page](tmp_path) if page in PREPARED else {}
    runpy.run_path(str(script), names, run_name="script")


NEW_FILES = dict(re.findall(r"^```python\n# (\S+)\n(.*?)^```$", TEXTS[NEW_KERNEL], re.M | re.S))


def cases(function):
    """Return the arguments of every case of a parametrized test."""
    marks = [mark for mark in getattr(function, "pytestmark", ()) if mark.name == "parametrize"]
    for values in itertools.product(*(mark.args[1] for mark in marks)):
        arguments = {}
        for mark, value in zip(marks, values, strict=True):
            names = (mark.args[0],) if isinstance(mark.args[0], str) else mark.args[0]
            arguments |= dict(zip(names, value if len(names) > 1 else (value,), strict=True))
        yield arguments


@pytest.mark.slow
def test_the_example_of_a_new_kernel_runs(tmp_path, monkeypatch):
    """The code blocks of the page on new kernels form modules whose tests and benchmark pass."""
    modules = {}
    for path in sorted(NEW_FILES, key=lambda path: path.startswith("tests/")):
        if path.startswith("bench/"):
            continue
        package, _, name = path.removesuffix(".py").replace("/", ".").rpartition(".")
        package = f"fastcos.{package}" if package == "kernels" else package
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(NEW_FILES[path], "utf8")
        spec = importlib.util.spec_from_file_location(f"{package}.{name}", file)
        modules[path] = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, spec.name, modules[path])
        monkeypatch.setattr(importlib.import_module(package), name, modules[path], raising=False)
        spec.loader.exec_module(modules[path])
        if package == "fastcos.metrics":
            counts_above = modules[path].counts_above
            monkeypatch.setattr(metrics, "counts_above", counts_above, raising=False)
            assert doctest.testmod(modules[path]) == (0, 2)
    tests = [
        function
        for path, module in modules.items()
        if path.startswith("tests/")
        for name, function in vars(module).items()
        if name.startswith("test_")
    ]
    assert len(tests) == 4
    for function in tests:
        for arguments in cases(function):
            function(**arguments)
    pytest.importorskip("pytest_benchmark", reason="the benchmark of the page needs it")
    names = dict(vars(importlib.import_module("bench.test_models")))
    exec(NEW_FILES["bench/test_models.py"], names)
    names["test_counts_above"](lambda function, *arguments: function(*arguments))


def test_calls_of_the_faiss_page_find_what_faiss_finds():
    faiss = pytest.importorskip("faiss")
    rows = np.random.default_rng(0).standard_normal((200, 8)).astype(np.float32)
    flat, index = faiss.IndexFlatIP(8), fastcos.SimilarityIndex("dot").fit(rows)
    flat.add(rows)
    _, indices = flat.search(rows[:5], 3)
    with pytest.raises(ValueError, match="too many values to unpack"):
        # Code that was written for FAISS expects two arrays: first the scores, then the indices.
        # fastcos returns the indices first. Code for FAISS must fail instead of confusing the
        # arrays. It fails because the result of a search has three parts.
        _, _ = index.search(rows[:5], 3)
    assert (index.search(rows[:5], 3).indices == indices).all()
    result, _ = fastcos.top_k(rows[:5], rows, 3, measure="dot")
    assert (result == indices).all()
    limits, _, within = flat.range_search(rows[:5], 4.0)
    theirs = [set(within[a:b].tolist()) for a, b in itertools.pairwise(limits)]
    near = fastcos.neighbors_above(rows[:5], rows, min_score=4.0, measure="dot")
    for lists in (index.radius(rows[:5], 4.0), near):
        pairs = itertools.pairwise(lists.indptr)
        assert [set(lists.indices[a:b].tolist()) for a, b in pairs] == theirs
    chosen = np.arange(0, 200, 3)
    selector = faiss.SearchParameters(sel=faiss.IDSelectorBatch(chosen))
    _, allowed = flat.search(rows[:5], 3, params=selector)
    assert (index.search(rows[:5], 3, allowed=chosen).indices == allowed).all()


@pytest.mark.parametrize(("page", "command"), COMMANDS)
def test_page_command_parses(page, command):
    words = shlex.split(command)[1:]
    if words[0] in ALL_COMMANDS and words[1:] != ["--help"]:
        assert build_parser(words).parse_args(words).command == words[0]


def test_pytest_commands_of_pages_select_tests():
    """In every pytest command on a page, the words after -k occur in the files of the tests."""
    offenders = []
    for page, text in TEXTS.items():
        for command in re.findall(r"`pytest ([^`]*)`", text):
            words = shlex.split(command)
            keys = words[words.index("-k") + 1].split(" or ") if "-k" in words else []
            files = [ROOT / word for word in words if ".py" in word]
            for word in words:  # A folder stands for all tests in it.
                files += (ROOT / word).rglob("*.py") if (ROOT / word).is_dir() else ()
            code = "".join(file.read_text("utf8") for file in files)
            offenders += [f"{page}: {command}" for key in keys if key not in code]
    assert not offenders


@pytest.mark.parametrize("script", [".ci/run", ".ci/lowest", ".ci/numba_versions"])
def test_ci_script_names_existing_files(script):
    text = (ROOT / script).read_text("utf8")
    for path in re.findall(r"\b(?:tests|bench|docs)/[\w./-]*\w", text):
        assert (ROOT / path).exists(), path


@pytest.mark.parametrize("page", TEXTS)
def test_page_names_existing_flags_and_files(page):
    parsers = next(
        action for action in build_parser(ALL_COMMANDS)._actions if action.dest == "command"
    ).choices
    for command in re.findall(r"`fastcos ([a-z]+ [^`]*--[^`]*)`", TEXTS[page]):
        name, *words = command.split()
        parser = parsers[name]
        if name == "index" and not words[0].startswith("-"):
            parser = next(one for one in parser._actions if one.dest == "verb").choices[words[0]]
        known = set(parser._option_string_actions)
        assert {word for word in words if word.startswith("--")} <= known, command
    for path in re.findall(r"\b((?:tests|bench|examples|fastcos)/[\w./-]+\.\w+)", TEXTS[page]):
        is_known = (ROOT / path).exists() or (page == NEW_KERNEL and path in NEW_FILES)
        assert is_known or "DATE/MACHINE" in path or "FILE" in path, path
    for link in re.findall(r"\]\((?!https?:)([^)#\s]+)", TEXTS[page]):
        assert (ROOT / page).parent.joinpath(link).exists(), link
    for module in re.findall(r"python -m ((?:tests|bench)[\w.]+)", TEXTS[page]):
        path = ROOT / module.replace(".", "/")
        assert path.with_suffix(".py").exists() or (path / "__main__.py").exists(), module


def headings(text):
    """Return the anchors that GitHub gives to the headings of a page."""
    titles = re.findall(r"^#+ (.*)$", FENCED.sub("", text), re.MULTILINE)
    plain = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title).lower() for title in titles)
    return {re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in plain}


@pytest.mark.parametrize("page", TEXTS)
def test_links_lead_to_headings(page):
    for link, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)#([^)\s]+)\)", TEXTS[page]):
        target = (ROOT / page).parent / link if link else ROOT / page
        if target.suffix == ".md":
            assert anchor in headings(target.read_text("utf8")), f"{link}#{anchor}"


def linked_pages(page):
    """Return the Markdown files that a page links."""
    links = re.findall(r"\]\((?!https?:)([^)#\s]+\.md)", page.read_text("utf8"))
    return {(page.parent / link).resolve() for link in links}


def test_pages_within_two_clicks_of_the_readme_are_readable_on_github():
    """GitHub would show directives of Sphinx as code, so these pages contain none."""
    first = linked_pages(ROOT / "README.md")
    second = set().union(*map(linked_pages, first))
    assert len(first) > 25
    assert len(first | second) > 40
    assert [page for page in first | second if "```{" in page.read_text("utf8")] == []


DISPLAYS = [(plots, name) for name in plots.__all__ if name.endswith("Display")]
# The examples of the metrics show the records that the metrics return. The records therefore need
# no examples of their own.
METRICS = [name for name in metrics.__all__ if inspect.isfunction(getattr(metrics, name))]


@pytest.mark.parametrize(
    ("module", "name"),
    [(fastcos, name) for name in NAMES] + [(metrics, name) for name in METRICS] + DISPLAYS,
)
def test_public_name_has_an_example(module, name):
    assert ">>> " in (inspect.getdoc(getattr(module, name)) or "")


def test_reference_has_each_public_name_once():
    names = [f"fastcos.{name}" for name in NAMES]
    names += [f"fastcos.metrics.{name}" for name in metrics.__all__]
    listed = re.findall(r"^\.\. auto\w+:: (\S+)$", REFERENCE, re.MULTILINE)
    counts = {name: listed.count(name) for name in names}
    wrong = {name: count for name, count in counts.items() if count != 1}
    assert not wrong, "each needs one directive, such as autofunction, in docs/reference/*.md"


def test_every_function_of_metrics_is_in_the_docstring_and_in_a_table():
    functions = [name for name in metrics.__all__ if inspect.isfunction(getattr(metrics, name))]
    assert len(functions) > 20
    missing = [name for name in functions if not re.search(rf"\b{name}\b", metrics.__doc__)]
    assert not missing, "add it to the docstring of fastcos/metrics/__init__.py"
    page = TEXTS["docs/reference/metrics.md"]
    assert not [name for name in functions if f"| `{name}` |" not in page]


def test_reference_has_all_displays():
    for module, name in DISPLAYS:
        assert f".. autoclass:: {module.__name__}.{name}\n" in REFERENCE


def test_reference_lists_all_commands():
    listed = re.findall(r"^\| `fastcos (\w+)` \|", TEXTS["docs/reference/index.md"], re.MULTILINE)
    assert listed == list(ALL_COMMANDS)


def test_proofs_name_tests_that_exist():
    named = re.findall(r"`(test_\w+)`", TEXTS["docs/explanation/proofs.md"])
    sources = "".join(path.read_text("utf8") for path in (ROOT / "tests").rglob("test_*.py"))
    assert len(named) > 25
    assert [name for name in named if f"\ndef {name}(" not in sources] == []


def test_moving_picture_shows_what_a_rescaling_changes():
    """This test computes Eq. 1 from the interactions, without the closed form of the loss."""
    animation = runpy.run_path(str(ROOT / "docs" / "animation.py"))
    data = fastcos.simulate_interactions(300, 60, random_state=0)
    model = animation["Model"](data, rank=8)
    X, strength, losses = data.X.toarray().astype(float), 150, []
    for place, _ in animation["STOPS"]:
        D = fastcos.Rescaling(*place)
        predicted = model.fitted.user_embeddings(X, D) @ model.items(D).T
        W = np.linalg.lstsq(X, predicted, rcond=None)[0]
        losses.append(np.square(X - predicted).sum() + strength * np.square(W).sum())
        assert model.loss(D) == pytest.approx(losses[0], rel=1e-6)
        assert model.predictions(D) == model.predictions(fastcos.Rescaling())
    assert losses == pytest.approx([losses[0]] * len(losses), rel=1e-6)
    assert len({model.auc(fastcos.Rescaling(*place)) for place, _ in animation["STOPS"]}) == 3


def test_figures_are_below_500_kb():
    paths = (ROOT / "docs").rglob("*.*")
    figures = [one for one in paths if one.suffix in (".png", ".gif") and "_build" not in one.parts]
    assert len(figures) > 5
    assert [path.name for path in figures if path.stat().st_size >= 500_000] == []
