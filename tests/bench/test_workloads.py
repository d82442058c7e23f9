"""Every workload is defined once and has all its views; optional packages are imported late."""

import ast
import inspect
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import fastcos
from bench import inputs, libraries, limits, test_throughput as views, workloads
from bench.asv_suite import quality, starting, timed

BENCH = Path(__file__).parents[2] / "bench"
# pytest's and asv's views and the workloads are imported by everybody
FILES = [
    *(BENCH / "workloads").glob("*.py"),
    *(BENCH / "asv_suite").glob("*.py"),
    *(BENCH / name for name in ("inputs.py", "answers.py", "libraries.py", "worker.py")),
]
INSTALLED = {"numpy", "scipy", "sklearn", "rich", "fastcos"}
ALLOWED = {"bench", "tests", *INSTALLED, *sys.stdlib_module_names}
# public operations that no file of bench/ calls: they compute nothing, or a few lines of NumPy, or
# their time is that of a measured product or search, or of the caller's function
NOT_MEASURED = {
    "NeighborsTransformer", "calibrate", "canonicalize", "from_model", "get_measure",
    "list_measures", "query_metric", "rerank", "svd_residuals",
}  # fmt: skip


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_benchmark_imports_no_optional_package(path):
    for node in ast.parse(path.read_text("utf8")).body:
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names = [node.module]
        for name in names:
            assert name.split(".")[0] in ALLOWED, f"{path.name}:{node.lineno}: inside a function"


def collected(which):
    """Return the cases that the pytest-benchmark view makes of a set."""
    pytest.importorskip("pytest_benchmark", reason="its marker needs pytest-benchmark")
    found = []
    config = SimpleNamespace(
        getoption=lambda _: which, pluginmanager=SimpleNamespace(get_plugins=lambda: ())
    )
    views.pytest_generate_tests(
        SimpleNamespace(config=config, parametrize=lambda _, values: found.extend(values))
    )
    return found


def test_every_workload_has_all_views():
    in_pytest = {case.values[0] for which in workloads.SETS for case in collected(which)}
    assert len(workloads.WORKLOADS) > 30
    for name, kind in workloads.WORKLOADS.items():
        view = getattr(timed, name)
        assert view.kind is kind
        assert view.param_names == list(kind.axes)
        assert kind in in_pytest
        assert kind.name == name
        assert kind.question
        assert kind.said


def test_competitors_have_a_job_and_a_comparison():
    for kind in workloads.WORKLOADS.values():
        if kind.competitors:
            case = kind.make(**workloads.cases("regular", kind)[0])
            task, _, _ = case.job()
            assert set(kind.competitors) <= libraries.TASKS[task].keys()
            assert case.disagreement is not None


def test_series_have_names_in_words():
    classes = [kind for kind in vars(quality).values() if isinstance(kind, type)]
    classes += [getattr(timed, name) for name in workloads.WORKLOADS]
    methods = [method for kind in (starting, *classes) for method in vars(kind).values()]
    named = [one for one in methods if getattr(one, "__name__", "").startswith(("time", "track_"))]
    assert len(named) > 120
    assert all(": " in one.pretty_name and "_" not in one.pretty_name.replace("top_k", "")
               for one in named)  # fmt: skip


def test_series_show_the_source_of_their_workload():
    for kind in list(workloads.WORKLOADS.values())[::9]:
        view = getattr(timed, kind.name)
        assert view.time_call.pretty_source == inspect.getsource(kind.make)


def test_views_have_the_cases_of_the_workload():
    regular = collected("regular")
    for kind in workloads.WORKLOADS.values():
        ours = [
            case.values[1]
            for case in regular
            if case.values[0] is kind and case.values[2] == views.OURS
        ]
        assert ours == workloads.cases("regular", kind)
        assert len(ours) == np.prod([len(values) for values in kind.axes.values()])
    assert len({case.id for case in regular}) == len(regular)


def test_names_of_cases_can_be_selected():
    names = [case.id for which in workloads.SETS for case in collected(which)]
    assert "SelfJoin-20000x384-k10-faiss" in names
    # what an expression of -k may contain
    assert all(re.fullmatch(r"[\w:+.\[\]/-]+", name) for name in names)


def test_quick_cases_have_wide_rows():
    rows = {case.values[1].get("rows", "").rpartition(" ")[2] for case in collected("quick")}
    assert {"384", "768", "1536"} <= rows


@workloads.Workload("test", axes={"number": [1, 2]})
def Sum(number):
    """The sum of a number and 1."""
    return workloads.Case(
        lambda: number + ADDED["number"], lambda answer: abs(answer - number - 1),
        limits.Work(1, multiply_adds=1.0),
    )  # fmt: skip


# what Sum adds
ADDED = {"number": 1}
SUM = workloads.WORKLOADS.pop("Sum")


def test_prepared_refuses_wrong_answers(monkeypatch):
    monkeypatch.setitem(ADDED, "number", 2)
    with pytest.raises(workloads.WrongAnswer, match="error must be at most 0, got 1"):
        workloads.prepared(SUM, {"number": 1})
    monkeypatch.undo()
    assert workloads.prepared(SUM, {"number": 1}).call() == 2
    workloads.forget()


@pytest.mark.parametrize("name", ["SelfJoin", "Matmul", "Selection"])
def test_workload_rejects_a_wrong_answer(name):
    kind = workloads.WORKLOADS[name]
    small = {"rows": "500 x 16", "shape": "200 x 50 x 1000", "candidates": 500, "k": 5}
    workload = kind.make(**{axis: small.get(axis, 4) for axis in kind.axes})
    answer = workload.call()
    assert workload.error(answer) <= kind.limit
    if name == "SelfJoin":
        wrong = answer._replace(indices=answer.indices[:, ::-1])
    else:
        wrong = np.roll(answer, 1, axis=0)
    assert not workload.error(wrong) <= kind.limit


def test_search_rejects_every_kind_of_wrong_answer():
    workload = workloads.dense.SelfJoin(rows="300 x 8", k=5)
    indices, scores = workload.call()[:2]
    rows = inputs.rows("300 x 8")
    missed = np.argsort(-np.float64(rows @ rows.T), axis=1)[:, 9:14]
    itself = np.column_stack([np.arange(300), indices[:, 1:]])
    repeated = np.repeat(indices[:, :1], 5, axis=1)
    for wrong in (indices[:, ::-1], missed, itself, repeated, indices * 0 - 1):
        assert workload.error(SimpleNamespace(indices=wrong)) > 0
    answer = SimpleNamespace(scores=scores)
    assert workload.disagreement(scores * (1 + 2.0**-24), answer) <= 1
    for wrong in (scores[:, ::-1], scores + 1e-5, np.full_like(scores, np.nan)):
        assert not workload.disagreement(wrong, answer) <= 1


@pytest.mark.parametrize("kind", ["Matmul", "GramMatmul"])
def test_products_of_competitors_are_compared(kind):
    workload = workloads.WORKLOADS[kind].make(shape="200 x 50 x 1000", columns=4)
    task, arrays, parameters = workload.job()
    theirs, answer = libraries.TASKS[task]["scipy"](arrays, parameters).call(), workload.call()
    assert workload.disagreement(theirs, answer) <= 1
    theirs[3, 2] += 0.01 * abs(theirs).max()
    assert not workload.disagreement(theirs, answer) <= 1


def test_limit_names_the_slowest_resource():
    few = limits.Work(1, multiply_adds=1e3, reads=1e3)
    bound = {
        "float32": few._replace(multiply_adds=1e15),
        "float64": few._replace(multiply_adds=1e15, arithmetic="float64"),
        "tile": few._replace(multiply_adds=1e15, arithmetic="tile"),
        "read": few._replace(reads=1e15),
        "copy": few._replace(writes=1e15),
        "gather": few._replace(gathers=1e15, table=(1_000, 16)),
    }
    for name, work in bound.items():
        limit = limits.Limit(work)
        assert limit.bound == name
        assert limit.seconds() > 0
    assert limits.Limit(limits.Work(1)).seconds() == 0


def test_every_costly_operation_has_a_benchmark():
    sources = "".join(path.read_text("utf8") for path in BENCH.rglob("*.py"))
    operations = {
        name
        for name in fastcos.__all__
        if inspect.isfunction(thing := getattr(fastcos, name)) or hasattr(thing, "fit")
    }
    called = set(re.findall(r"\bfastcos\.(\w+)[(,]", sources))
    assert operations - called == NOT_MEASURED
