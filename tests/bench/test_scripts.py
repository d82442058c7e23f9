"""The scripts of bench/ run on small inputs, and their certificates hold."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def output(*words):
    command = [sys.executable, "-m", *words]
    done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout


@pytest.mark.slow
def test_large_results_are_certified_and_bit_identical():
    words = ("--nnz", "60000", "--users", "3000", "--items", "400", "--rank", "8")
    lines = output("bench.large", *words, "--where", "disk", "memory").splitlines()
    found = [json.loads(line) for line in lines]
    names = [(one["operation"], one["where"]) for one in found]
    assert names == [
        (name, place) for name in ("gram", "svd", "items") for place in ("disk", "memory")
    ]
    for one in found:
        assert one["certificate"] < (1e-2 if one["operation"] == "svd" else 1e-5)
        assert one["nnz"] < 60_000
        assert one["seconds"] > 0
    for disk, memory in zip(found[::2], found[1::2], strict=True):
        assert disk["digest"] == memory["digest"]


@pytest.mark.slow
def test_large_search_is_exact_on_disk_and_on_workers():
    pytest.importorskip("dask.distributed")
    words = ("--rows", "3000", "--columns", "16", "--queries", "200", "--memory", "1")
    places = ("disk", "memory", "2-workers")
    lines = output("bench.large", *words, "--operations", "search", "--where", *places)
    found = [json.loads(line) for line in lines.splitlines()]
    assert [one["where"] for one in found] == list(places)
    assert [one["certificate"] for one in found] == [0, 0, 0]
    assert len({one["digest"] for one in found}) == 1


@pytest.mark.slow
def test_large_audits_have_equal_reports():
    words = (
        "--operations",
        "audit",
        "--rows",
        "900",
        "--columns",
        "8",
        "--where",
        "disk",
        "memory",
    )
    disk, memory = (json.loads(line) for line in output("bench.large", *words).splitlines())
    assert disk["digest"] == memory["digest"]


@pytest.mark.slow
def test_curves_measure_one_point():
    case = ["SelfJoin", {"rows": "500 x 16", "k": 5}, 1]
    found = json.loads(output("bench.curves", "--point", json.dumps(case)))
    assert found["seconds"] > 0
    assert found["percent"] > 0


@pytest.mark.slow
def test_roofline_prints_selected_cases():
    table = output("bench.roofline", "-k", "Selection", "--processes", "2").splitlines()
    assert [line.split(" | ")[0] for line in table[4:]] == ["| Selection candidates=100000 k=100"]
