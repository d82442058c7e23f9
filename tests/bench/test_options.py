"""The options of pytest-benchmark and its plugins have their documented effects on bench/."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEST = "bench/test_dense.py::test_index_search[1000-64-1]"
OTHER = "bench/test_dense.py::test_self_join[1000-64]"
QUICK = ("--benchmark-max-time=0.05", "--benchmark-min-rounds=5")

pytestmark = pytest.mark.slow
pytest.importorskip("pytest_benchmark")


def run(*options, tests=(TEST,), folder=None):
    """Run benchmarks in a new process, and return its output."""
    storage = [f"--benchmark-storage={folder}"] if folder else []
    command = [sys.executable, "-m", "pytest", *tests, "-p", "no:cacheprovider", *storage, *options]
    # In a worker of pytest-xdist, pytest-benchmark measures nothing.
    alone = {name: value for name, value in os.environ.items() if "PYTEST_XDIST" not in name}
    done = subprocess.run(command, cwd=ROOT, env=alone, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def measured(tmp_path, *options):
    """Run one benchmark; return its JSON document, and the benchmark's entry in this document."""
    run(*options, f"--benchmark-json={tmp_path / 'run.json'}")
    document = json.loads((tmp_path / "run.json").read_text())
    (benchmark,) = document["benchmarks"]
    return document, benchmark


def test_min_rounds_and_max_time_decide_the_rounds(tmp_path):
    _, few = measured(tmp_path, *QUICK)
    _, many = measured(tmp_path, "--benchmark-max-time=0.05", "--benchmark-min-rounds=3000")
    assert many["stats"]["rounds"] >= 3_000
    assert few["stats"]["rounds"] < 3_000


def test_warmup_calls_before_the_rounds(tmp_path):
    _, without = measured(tmp_path, *QUICK, "--benchmark-warmup=off")
    _, warm = measured(
        tmp_path, *QUICK, "--benchmark-warmup=on", "--benchmark-warmup-iterations=500"
    )
    assert not without["options"]["warmup"]
    assert warm["options"]["warmup"]


def test_timer_is_the_chosen_clock(tmp_path):
    _, scores = measured(tmp_path, *QUICK, "--benchmark-timer=time.process_time")
    assert scores["options"]["timer"] == "process_time"


def test_disabled_gc_is_passed_on(tmp_path):
    _, scores = measured(tmp_path, *QUICK, "--benchmark-disable-gc")
    assert scores["options"]["disable_gc"] is True


def test_document_has_the_machine_the_commit_and_plain_parameters(tmp_path):
    document, scores = measured(tmp_path, *QUICK)
    machine = document["machine_info"]
    assert {"cpu", "isa", "threads"} <= set(machine)
    assert len(document["commit_info"]["id"]) == 40
    assert scores["params"] == {"n": 1_000, "d": 64, "queries": 1}
    assert scores["group"] == "queries of a fitted index"


def test_cprofile_shows_functions_of_fastcos(tmp_path):
    _, scores = measured(tmp_path, *QUICK, "--benchmark-cprofile=cumtime")
    names = {one["function_name"] for one in scores["cprofile"]}
    assert any("fastcos" in name and "search" in name for name in names)


def test_autosaved_runs_are_compared_and_drawn(tmp_path):
    run(*QUICK, "--benchmark-autosave", folder=tmp_path)
    assert len(list(tmp_path.rglob("0001_*.json"))) == 1
    text = run(
        *QUICK, "--benchmark-compare", "--benchmark-compare-fail=median:100000%",
        f"--benchmark-histogram={tmp_path / 'drawn'}", folder=tmp_path,
    )  # fmt: skip
    assert "(0001_" in text
    assert "(NOW)" in text
    assert len(list(tmp_path.glob("drawn*.svg"))) == 1


def test_every_order_of_tests_runs_the_same_benchmarks(tmp_path):
    pytest.importorskip("pytest_randomly")
    for seed in (1, 2):
        text = run(*QUICK, f"--randomly-seed={seed}", tests=(OTHER, TEST))
        assert "2 passed" in text


def test_codspeed_measures_the_same_tests():
    pytest.importorskip("pytest_codspeed")
    text = run("--codspeed", "--codspeed-mode=walltime", "--codspeed-max-time=0.1")
    assert "1 benchmarked" in text
