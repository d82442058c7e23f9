"""Performance regression gate: verdicts on times with known ratios."""

import itertools
import json
import subprocess
import sys

import numpy as np
import pytest

from bench import gate
from bench.gate import intervals, processes


def compare(base, head, **settings):
    """Compare two functions from names of benchmarks to seconds, one turn a pair."""

    def pair(names):
        sides = base(names), head(names)
        return [{name: [seconds] for name, seconds in side.items()} for side in sides]

    return gate.compare_pairs(pair, **settings)


def constant(**seconds):
    """Return a side whose benchmarks always take so long."""
    return lambda names: seconds


def noisy(means, seed, scale=0.02):
    """Return a side with log-normal times around means."""
    rng = np.random.default_rng(seed)
    requests = []

    def measure(names):
        requests.append(tuple(names))
        return {
            name: mean * np.exp(scale * rng.standard_normal())
            for name, mean in means.items()
            if not names or name in names
        }

    measure.requests = requests
    return measure


def test_compare_pairs_passes_equal_sides():
    means = {f"b{i}": 1e-3 * (i + 1) for i in range(20)}
    verdict = compare(noisy(means, 1), noisy(means, 2))
    assert verdict.passed
    assert len(verdict.ratios) == 20
    assert all(one.low <= one.ratio <= one.high for one in verdict.ratios)


def test_compare_pairs_repeats_only_the_slower_benchmark():
    base = noisy({"search": 1e-3, "fit": 2e-3}, 1)
    head = noisy({"search": 1.4e-3, "fit": 2e-3}, 2)
    verdict = compare(base, head)
    assert not verdict.passed
    assert [one.name for one in verdict.slower] == ["search"]
    assert verdict.slower[0].ratio == pytest.approx(1.4, rel=0.05)
    assert set(base.requests) == {(), ("search",)}
    assert base.requests.count(("search",)) == 10


def test_compare_pairs_passes_within_tolerance():
    verdict = compare(noisy({"search": 1.0}, 1), noisy({"search": 1.05}, 2))
    assert verdict.passed
    assert not verdict.suspects


def test_compare_pairs_passes_unconfirmed_suspects():
    def head(names):
        return {"search": 1.5 if not names else 1.0}

    verdict = compare(constant(search=1.0), head)
    assert verdict.suspects
    assert verdict.passed


def test_compare_pairs_measures_only_undecided_further():
    requests, scattered = [], itertools.cycle([1.02, 1.30, 1.10, 1.18, 0.95])

    def head(names):
        requests.append(tuple(names))
        return {
            name: next(scattered) if name == "open" else 1.0 for name in names or ("open", "equal")
        }

    verdict = compare(constant(open=1.0, equal=1.0), head)
    assert {one.name: one.pairs for one in verdict.ratios} == {"open": 80, "equal": 10}
    assert requests == [()] * 10 + [("open",)] * 70
    assert verdict.passed
    assert [one.name for one in verdict.undecided] == ["open"]
    assert "passed, 2 benchmarks compared, 1 undecided" in verdict.markdown()
    assert "- `open`, " in verdict.markdown()


def test_compare_pairs_decides_with_more_pairs():
    verdict = compare(noisy({"s": 1.0}, 1, 0.10), noisy({"s": 1.22}, 2, 0.10))
    assert [one.name for one in verdict.slower] == ["s"]
    assert max(verdict.ratios[0].pairs, verdict.suspects[0].pairs) > 10
    assert not verdict.undecided


def test_compare_pairs_reports_undecided_second_series():
    pairs_run = itertools.count()

    def head(names):
        return {"s": 1.5 if next(pairs_run) < 10 else (1.0, 1.2)[next(pairs_run) % 4 // 2]}

    verdict = compare(constant(s=1.0), head)
    assert verdict.passed
    assert [(one.name, one.pairs) for one in verdict.undecided] == [("s", 80)]


@pytest.mark.parametrize(
    ("low", "high", "exceeds"), [(1.11, 1.3, True), (1.0, 1.10, False), (1.10, 1.2, None)]
)
def test_ratio_exceeds_by_its_interval(low, high, exceeds):
    assert intervals.Ratio("s", 1.0, 1.0, 1.1, low, high, 10).exceeds(1.10) is exceeds


def test_estimate_ratio_takes_the_median_over_turns():
    # the machine gets three times slower, and head is disturbed once
    base = [1.0, 2.0, 3.0]
    head = [1.2, 9.0, 3.6]
    ratio = intervals.estimate_ratio("s", [(base, head)] * 10)
    assert ratio.ratio == pytest.approx(1.2)
    assert (ratio.base, ratio.head, ratio.pairs) == (2.0, 3.6, 10)


def test_estimate_ratio_ignores_disturbed_pairs():
    pairs = [([1.0], [1.2])] * 8 + [([1.0], [50.0]), ([50.0], [1.0])]
    assert intervals.estimate_ratio("s", pairs).ratio == pytest.approx(1.2)


def test_compare_pairs_cancels_drift_within_a_pair():
    clock = iter(np.repeat(np.linspace(1, 3, 10), 2))

    def side(names):
        return {"search": next(clock)}

    verdict = compare(side, side)
    assert verdict.ratios[0].ratio == 1.0
    assert (verdict.ratios[0].low, verdict.ratios[0].high) == (1.0, 1.0)


def test_compare_pairs_fails_without_benchmarks():
    verdict = compare(constant(), constant())
    assert not verdict.passed
    assert "no benchmark ran" in verdict.markdown()


def test_compare_pairs_fails_for_missing_not_for_new():
    verdict = compare(constant(kept=1.0, lost=1.0), constant(kept=1.0, new=1.0))
    assert not verdict.passed
    assert (verdict.missing, verdict.new) == (["lost"], ["new"])
    assert "Base ran these, head did not:\n\n- `lost`" in verdict.markdown()
    assert "failed, 1 benchmarks compared, 1 of base did not run" in verdict.markdown()


@pytest.mark.parametrize("run", [5, 15])
def test_compare_pairs_fails_if_a_turn_is_lost(run):
    # the interval contains the tolerance, so that 20 pairs are measured; one lacks a turn
    heads = [[1.1 + scatter, 1.1 + scatter] for scatter in np.tile([-0.1, 0.1], 40)]
    heads[run].pop()
    pairs = iter([({"s": [1.0, 1.0]}, {"s": head}) for head in heads])
    verdict = gate.compare_pairs(lambda names: next(pairs))
    assert (verdict.missing, verdict.ratios) == (["s"], [])
    assert not verdict.passed


@pytest.mark.parametrize(
    ("draw", "most"),
    [("standard_normal", 0.99), pytest.param("standard_cauchy", 1.0, marks=pytest.mark.slow)],
)
def test_bootstrap_interval_has_its_coverage(draw, most):
    noise = getattr(np.random.default_rng(0), draw)((120, 10))
    ends = [intervals.bootstrap_interval(logs, 0.95) for logs in np.log(1.2) + 0.05 * noise]
    covered = np.mean([low <= 1.2 <= high for low, _, high in ends])
    assert 0.91 <= covered <= most  # 0.95 less two deviations of 120 draws


SERVER = """
import json, os, sys
names = json.loads(os.environ["NAMES"])
for turn, line in enumerate(sys.stdin):
    with open("diary", "a") as file:
        file.write(f"{sorted(names)} {json.loads(line)}\\n")
    # a disturbed first answer
    found = {name: (1 + 8 * (turn == 0)) * len(name) for name in json.loads(line) or names}
    print(json.dumps(found), flush=True)
"""


def serving(folder, *names):
    """Return a command that serves names by their length and writes requests into a diary."""
    return gate.Command([sys.executable, "-c", SERVER], {"NAMES": json.dumps(names)}, str(folder))


def test_run_interleaved_alternates_at_every_benchmark(tmp_path):
    base, head = serving(tmp_path, "a", "b"), serving(tmp_path, "a", "b", "new")
    found = processes.run_interleaved([base, head], 2, [])
    equal = {"a": [1.0, 1.0], "b": [1.0, 1.0]}  # without the disturbed first pass
    assert found == [equal, equal | {"new": [3.0, 3.0]}]
    diary = (tmp_path / "diary").read_text().splitlines()
    first, second = ["a", "b"], ["a", "b", "new"]
    assert diary[2:6] == [f"{first} ['a']", f"{second} ['a']", f"{second} ['b']", f"{first} ['b']"]
    assert diary[7:9] == [f"{second} ['a']", f"{first} ['a']"]


def test_interleaved_changes_the_side_started_first(tmp_path):
    pair = processes.interleaved(serving(tmp_path, "a"), serving(tmp_path, "a", "bb"), 1)
    assert [pair([]), pair([])] == [[{"a": [1.0]}, {"a": [1.0], "bb": [2.0]}]] * 2
    diary = (tmp_path / "diary").read_text().splitlines()
    base, head = "['a'] []", "['a', 'bb'] []"
    assert [line for line in diary if line.endswith(" []")] == [base, head, head, base]


def test_compare_pairs_runs_servers(tmp_path):
    base = serving(tmp_path, "a", "b")
    verdict = gate.compare_pairs(processes.interleaved(base, base, 1))
    assert verdict.passed
    assert [one.ratio for one in verdict.ratios] == [1.0, 1.0]
    assert len((tmp_path / "diary").read_text().splitlines()) == 10 * 2 * 3


def test_run_interleaved_fails_if_a_server_ends(tmp_path):
    dead = gate.Command([sys.executable, "-c", "raise SystemExit(3)"])
    with pytest.raises(subprocess.CalledProcessError, match="exit status 3"):
        processes.run_interleaved([serving(tmp_path, "a"), dead], 1, [])


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"pairs": 9}, "pairs must be at least 10, got 9"),
        ({"tolerance": -0.1}, "tolerance must be at least 0, got -0.1"),
    ],
)
def test_compare_pairs_refuses_invalid_settings(setting, message):
    with pytest.raises(ValueError, match=message):
        compare(constant(), constant(), **setting)


def test_compare_pairs_refuses_times_of_zero():
    side = noisy({"search": 0.0}, 0)
    with pytest.raises(ValueError, match="seconds of search in base must be positive"):
        compare(side, side)


def test_verdict_markdown_has_a_table():
    verdict = compare(constant(s=1e-3), constant(s=2e-3))
    lines = verdict.markdown().splitlines()
    assert lines[0] == "### Speed: failed, 1 benchmarks compared, 1 slower"
    assert "| `s` | 1 ms | 2 ms | 2.000 | 2.000 to 2.000 | 10 |" in lines


def test_verdict_markdown_is_valid_where_it_has_lists():
    markdown_it = pytest.importorskip("markdown_it", reason="it renders the summary")
    scattered = itertools.cycle([1.02, 1.30, 1.10, 1.18, 0.95])

    def pair(names):
        base = {"slow": [1.0], "open": [1.0], "lost": [1.0], "bad": [1.0], "equal": [1.0]}
        head = {"slow": [2.0], "open": [next(scattered)], "equal": [1.0], "new": [1.0]}
        head["bad"] = "call: AssertionError: a | wrong answer"
        sides = base, head
        return [
            {name: one for name, one in side.items() if not names or name in names}
            for side in sides
        ]

    verdict = gate.compare_pairs(pair)
    html = markdown_it.MarkdownIt("commonmark").enable("table").render(verdict.markdown())
    assert html.count("<table>") == 2  # the second and the first series
    assert html.count("<ul>") == 4  # missing, without a time, new, undecided
    assert "| " not in html.replace("a | wrong answer", "")
    assert "<h3>Speed: failed, 3 benchmarks compared, 1 slower, 2 of base did not run" in html
    assert "<code>bad</code>: call: AssertionError: a | wrong answer" in html


def test_wrong_answers_of_both_sides_are_in_the_headline():
    def pair(names):
        return [{"a": [1.0], "bad": "call: wrong"}, {"a": [1.0], "bad": "call: wrong"}]

    verdict = gate.compare_pairs(pair)
    assert verdict.markdown().startswith("### Speed: passed, 1 benchmarks compared, 1 without a ti")
    assert "- `bad`: call: wrong" in verdict.markdown()


def test_time_that_is_over_leaves_benchmarks_undecided(monkeypatch):
    clock = itertools.count()
    monkeypatch.setattr(gate.compare.time, "monotonic", lambda: next(clock))
    scattered = itertools.cycle([1.02, 1.30, 1.10, 1.18, 0.95])

    def head(names):
        return {"open": next(scattered)}

    verdict = compare(constant(open=1.0), head, seconds=36)
    assert (
        verdict.ratios[0].pairs == 22
    )  # of 24 readings of the clock, one is the start, one ends a series
    assert [one.name for one in verdict.undecided] == ["open"]


def test_suspects_without_a_second_series_are_undecided(monkeypatch):
    clock = itertools.count()
    monkeypatch.setattr(gate.compare.time, "monotonic", lambda: next(clock))
    verdict = compare(constant(s=1.0), constant(s=2.0), seconds=17)
    assert (verdict.slower, verdict.unconfirmed) == ([], ["s"])
    assert [one.name for one in verdict.undecided] == ["s"]


def test_time_for_fewer_than_ten_pairs_is_an_error(monkeypatch):
    clock = itertools.count()
    monkeypatch.setattr(gate.compare.time, "monotonic", lambda: next(clock))
    with pytest.raises(ValueError, match="time must suffice for 10 pairs, got"):
        compare(constant(s=1.0), constant(s=1.0), seconds=9)


TESTS = """
import time

def test_waits(benchmark):
    benchmark(time.sleep, 0.005)

def test_runs(benchmark):
    benchmark(sum, range(1000))

def test_is_wrong(benchmark):
    assert benchmark(sum, range(10)) == 44
"""


@pytest.mark.slow
def test_benchmarks_that_wait_are_refused_and_wrong_ones_have_a_reason(tmp_path, monkeypatch):
    pytest.importorskip("pytest_benchmark")
    # pytest-benchmark measures nothing in a worker of xdist, which this process may be
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    (tmp_path / "test_some.py").write_text(TESTS)
    command = processes.serving(sys.executable, ["test_some.py"], 1, {}, str(tmp_path))
    (found,) = processes.run_interleaved([command], 1, [])
    assert "it waits for" in found["test_some.py::test_waits"]
    assert found["test_some.py::test_is_wrong"].startswith("call: assert 45 == 44")
    (seconds,) = found["test_some.py::test_runs"]
    assert 0 < seconds < 1
