"""Tests of the processes that run benchmarks: turns, crashes, and the real pytest in a small project."""

import importlib.util
import os
import sys

import pytest

import toy_project
from benchgate import Command, Failure, Measurement, Side, interleaved, processes
from benchgate.processes import CannotServe, run_turns

SERVER = """
import json, os, sys
seconds = json.loads(os.environ["SECONDS"])
sys.stdin.readline()
print(json.dumps({"benchmarks": {name: {} for name in seconds}, "errors": {}}), flush=True)
calls = 0
for line in sys.stdin:
    name = json.loads(line)
    with open("diary", "a") as file:
        file.write(f"{os.environ['LABEL']} {name}\\n")
    calls += 1
    if seconds[name] == "die":
        os._exit(7)
    if seconds[name] == "hang":
        import time
        time.sleep(60)
    print(json.dumps({"seconds": seconds[name]}), flush=True)
"""


def served(folder, label, timeout=60, **seconds):
    """Return a side whose benchmarks report these seconds, and whose process lists all requests in a file."""
    import json

    environment = {"SECONDS": json.dumps(seconds), "LABEL": label}
    return Side(Command([sys.executable, "-c", SERVER], environment, str(folder)), timeout)


def measured(seconds, turns):
    return Measurement([seconds] * turns, [0.0] * turns)


def test_turns_alternate_at_every_benchmark(tmp_path):
    base, head = served(tmp_path, "base", a=1.0, b=2.0), served(tmp_path, "head", a=1.0, b=2.0, new=3.0)
    results = run_turns([base, head], 2)
    equal = {"a": measured(1.0, 2), "b": measured(2.0, 2)}
    assert results == [equal, equal | {"new": measured(3.0, 2)}]
    diary = (tmp_path / "diary").read_text().splitlines()
    # The first five requests warm up and do not count.
    assert diary[5:10] == ["base a", "head a", "head b", "base b", "head new"]
    assert diary[10:] == ["head a", "base a", "base b", "head b", "head new"]


def test_pairs_alternate_the_side_that_is_first(tmp_path):
    pair = interleaved(served(tmp_path, "base", a=1.0), served(tmp_path, "head", a=2.0), 1)
    assert [pair([]), pair([])] == [[{"a": measured(1.0, 1)}, {"a": measured(2.0, 1)}]] * 2
    diary = (tmp_path / "diary").read_text().splitlines()
    assert diary == ["head a", "base a", "base a", "head a", "base a", "head a", "head a", "base a"]


def test_names_select_benchmarks(tmp_path):
    side = served(tmp_path, "base", a=1.0, b=2.0)
    assert run_turns([side], 1, ["b", "unknown"]) == [{"b": measured(2.0, 1)}]


def test_benchmark_that_ends_the_process_is_named_and_left_out(tmp_path):
    side = served(tmp_path, "head", a=1.0, deadly="die", z=3.0)
    crash = Failure("crashed", "the process ended with exit status 7")
    expected = {"a": measured(1.0, 2), "deadly": crash, "z": measured(3.0, 2)}
    assert run_turns([side], 2) == [expected]
    assert run_turns([side], 2) == [expected]
    assert (tmp_path / "diary").read_text().splitlines().count("head deadly") == 1


def test_benchmark_that_hangs_is_named_and_left_out(tmp_path):
    side = served(tmp_path, "head", timeout=2, stuck="hang", z=3.0)
    (results,) = run_turns([side], 1)
    assert results == {
        "stuck": Failure("crashed", "the process did not answer within 2 s"),
        "z": measured(3.0, 1),
    }


def test_time_of_zero_is_no_time(tmp_path):
    (results,) = run_turns([served(tmp_path, "head", quick=0.0)], 1)
    assert results["quick"] == Failure("failed", "its time is below the resolution of the clock")


def test_process_that_serves_nothing_is_an_error_with_its_last_words():
    dead = Side(Command([sys.executable, "-c", "raise SystemExit('no such plugin')"]))
    with pytest.raises(CannotServe, match="exit status 1: no such plugin"):
        run_turns([dead], 1)


def test_environments_differ_in_size_from_process_to_process(tmp_path):
    script = SERVER.replace('seconds[name] == "die"', "file is None").replace(
        '{"seconds": seconds[name]}', '{"seconds": len(os.environ["BENCHGATE_PADDING"]) + 1}'
    )
    side = Side(Command([sys.executable, "-c", script], {"SECONDS": '{"a": 1}', "LABEL": ""}, str(tmp_path)))
    sizes = [run_turns([side], 1)[0]["a"].seconds[0] for _ in range(4)]
    assert len(set(sizes)) > 1


def test_threads_are_limited_and_options_of_a_surrounding_pytest_removed(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTEST_ADDOPTS", "--no-such-option")
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw0")
    results = serve_project(tmp_path, {"test_a.py": (
        "import os\n"
        "def test_a(benchmark):\n"
        "    benchmark(sum, [1])\n"
        "    assert os.environ['OMP_NUM_THREADS'] == '1'\n"
        "    assert not {'PYTEST_ADDOPTS', 'PYTEST_XDIST_WORKER'} & set(os.environ)\n"
    )})  # fmt: skip
    assert isinstance(results["test_a.py::test_a"], Measurement)


def serve_project(folder, files, tests=(".",), turns=1, **settings):
    """Return the results of one process for the tests of a project."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    command = processes.pytest_command(sys.executable, tests, {"PYTHONPATH": ""}, str(folder), **settings)
    side = Side(command, 120)
    (results,) = run_turns([side], turns)
    serve_project.side = side
    return results


FILES = {
    "pytest.ini": (
        "[pytest]\n"
        "addopts = --benchmark-skip --benchmark-autosave --strict-markers --maxfail=1"
        " --benchmark-min-rounds=1000"
        f"{' -n 2' if importlib.util.find_spec('xdist') else ''}\n"
    ),
    "test_many.py": """
import ctypes, os, time
import pytest

def work(pause):
    sum(range(20_000))
    time.sleep(pause)

def test_runs(benchmark):
    benchmark(sum, range(1000))

def test_is_wrong(benchmark):
    assert benchmark(sum, range(10)) == 44

@pytest.mark.skip
def test_is_skipped(benchmark):
    benchmark(sum, range(10))

def test_calls_nothing(benchmark):
    pass

def test_no_benchmark():
    raise AssertionError

def test_segfault(benchmark):
    benchmark(ctypes.string_at, 0)

def test_exits(benchmark):
    benchmark(os._exit, 3)

def test_sleeps(benchmark):
    benchmark(time.sleep, 0.05)

def test_sleeps_a_little(benchmark):
    benchmark(work, 0.002)

@pytest.mark.benchgate(clock="wall", tolerance=0.5)
def test_sleeps_and_says_so(benchmark):
    benchmark(work, 0.002)

@pytest.mark.benchgate(tolerence=0.5)
def test_misspelled(benchmark):
    benchmark(sum, [1])

@pytest.mark.benchgate(clock="sun")
def test_strange_clock(benchmark):
    benchmark(sum, [1])

@pytest.mark.benchmark(timer=time.time, min_rounds=3)
def test_own_timer(benchmark):
    benchmark(work, 0.002)

def test_setup_sleeps(benchmark):
    benchmark.pedantic(sum, args=(range(100_000),), setup=lambda: time.sleep(0.01), rounds=5)

def test_prints_and_reads(benchmark):
    print('{"seconds": 1e9}')
    with pytest.raises((EOFError, OSError)):
        input()
    benchmark(sum, range(1000))
""",
    "test_broken.py": "from nowhere import nothing\n",
    "test_deadly_import.py": "import os\nos._exit(9)\n\ndef test_never(benchmark): pass\n",
}


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    results = serve_project(tmp_path_factory.mktemp("many"), FILES)
    return {
        name.removeprefix("test_many.py::test_"): result for name, result in results.items()
    }, serve_project.side


@pytest.mark.parametrize("name", ["runs", "prints_and_reads", "setup_sleeps"])
def test_benchmarks_have_seconds_whatever_addopts_say(project, name):
    result = project[0][name]
    assert isinstance(result, Measurement), result
    assert len(result.seconds) == 1
    assert 0 < result.seconds[0] < 1


@pytest.mark.parametrize(
    ("name", "kind", "reason"),
    [
        ("is_wrong", "failed", "call: assert 45 == 44"),
        ("is_skipped", "skipped", "skipped"),
        ("calls_nothing", "skipped", "did not call benchmark()"),
        ("segfault", "crashed", "SIG" if os.name == "posix" else "exit status"),
        ("exits", "crashed", "exit status 3"),
        ("sleeps", "waits", "it waits for"),
        ("misspelled", "failed", "must have only tolerance= and clock=, got tolerence"),
        ("strange_clock", "failed", "must be 'cpu' or 'wall', got 'sun'"),
    ],
)
def test_benchmarks_without_a_time_have_a_reason(project, name, kind, reason):
    result = project[0][name]
    assert isinstance(result, Failure), result
    assert result.kind == kind
    assert reason in result.reason


@pytest.mark.parametrize("name", ["sleeps_a_little", "own_timer"])
def test_share_of_waiting_is_measured(project, name):
    result = project[0][name]
    assert result.waits[0] > 0.3
    assert result.seconds[0] < 0.003


def test_mark_chooses_wall_time_and_tolerance(project):
    assert project[0]["sleeps_and_says_so"].seconds[0] > 0.002
    assert project[0]["sleeps_and_says_so"].waits == [0.0]
    settings = project[1].benchmarks["test_many.py::test_sleeps_and_says_so"]
    assert settings == {"clock": "wall", "tolerance": 0.5}


def test_waiting_outside_the_calls_does_not_count(project):
    # The limit is high, because the share was nearly a third on a very busy machine.
    assert project[0]["setup_sleeps"].waits[0] < 0.33


def test_tests_without_the_fixture_are_not_run(project):
    assert "no_benchmark" not in project[0]


def test_files_that_cannot_be_imported_have_a_reason(project):
    errors = project[1].errors
    assert errors["test_broken.py"] == "ModuleNotFoundError: No module named 'nowhere'"
    assert (
        errors["test_deadly_import.py"] == "the process ended with exit status 9 while it imported the file"
    )


def test_wall_time_counts_waiting(tmp_path):
    results = serve_project(tmp_path, {"test_a.py": (
        "import time\n"
        "def test_a(benchmark):\n"
        "    benchmark(time.sleep, 0.003)\n"
    )}, wall=True)  # fmt: skip
    assert results["test_a.py::test_a"].seconds[0] > 0.003


def test_usage_error_of_pytest_is_reported(tmp_path):
    with pytest.raises(CannotServe, match="not found: no_such_folder"):
        serve_project(tmp_path, {}, tests=["no_such_folder"])


def test_toy_helper_removes_options_of_a_surrounding_pytest(monkeypatch):
    monkeypatch.setenv("PYTEST_ADDOPTS", "-x")
    assert "PYTEST_ADDOPTS" not in toy_project.clean_environment()
