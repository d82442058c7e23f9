"""Performance regression gate: verdicts on times with known ratios."""

import itertools
import json
import subprocess
import sys

import numpy as np
import pytest

from bench import gate
from bench.gate import intervals, processes


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


def test_compare_speed_passes_equal_sides():
    means = {f"b{i}": 1e-3 * (i + 1) for i in range(20)}
    verdict = gate.compare_speed(noisy(means, 1), noisy(means, 2))
    assert verdict.passed
    assert len(verdict.ratios) == 20
    assert all(one.low <= one.ratio <= one.high for one in verdict.ratios)


def test_compare_speed_repeats_only_the_slower_benchmark():
    base = noisy({"search": 1e-3, "fit": 2e-3}, 1)
    head = noisy({"search": 1.4e-3, "fit": 2e-3}, 2)
    verdict = gate.compare_speed(base, head)
    assert not verdict.passed
    assert [one.name for one in verdict.slower] == ["search"]
    assert verdict.slower[0].ratio == pytest.approx(1.4, rel=0.05)
    assert set(base.requests) == {(), ("search",)}
    assert base.requests.count(("search",)) == 10


def test_compare_speed_passes_within_tolerance():
    verdict = gate.compare_speed(noisy({"search": 1.0}, 1), noisy({"search": 1.05}, 2))
    assert verdict.passed
    assert not verdict.suspects


def test_compare_speed_passes_unconfirmed_suspects():
    calls = []

    def head(names):
        calls.append(names)
        return {"search": 1.5 if not names else 1.0}

    verdict = gate.compare_speed(lambda names: {"search": 1.0}, head)
    assert verdict.suspects
    assert verdict.passed


def test_compare_speed_measures_only_undecided_further():
    requests, scattered = [], itertools.cycle([1.02, 1.30, 1.10, 1.18, 0.95])

    def head(names):
        requests.append(tuple(names))
        return {
            name: next(scattered) if name == "open" else 1.0 for name in names or ("open", "equal")
        }

    verdict = gate.compare_speed(lambda names: {"open": 1.0, "equal": 1.0}, head)
    assert {one.name: one.pairs for one in verdict.ratios} == {"open": 80, "equal": 10}
    assert requests == [()] * 10 + [("open",)] * 70
    assert verdict.passed
    assert [one.name for one in verdict.undecided] == ["open"]
    assert "passed, none of 2 benchmarks is slower, 1 undecided" in verdict.markdown()
    assert "- undecided: `open`" in verdict.markdown()


def test_compare_speed_decides_with_more_pairs():
    verdict = gate.compare_speed(noisy({"s": 1.0}, 1, 0.10), noisy({"s": 1.22}, 2, 0.10))
    assert [one.name for one in verdict.slower] == ["s"]
    assert max(verdict.ratios[0].pairs, verdict.suspects[0].pairs) > 10
    assert not verdict.undecided


def test_compare_speed_reports_undecided_second_series():
    pairs_run = itertools.count()

    def head(names):
        return {"s": 1.5 if next(pairs_run) < 10 else (1.0, 1.2)[next(pairs_run) % 4 // 2]}

    verdict = gate.compare_speed(lambda names: {"s": 1.0}, head)
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
    ratio = intervals.estimate_ratio("s", [(base, head)] * 10, 0.99, 0)
    assert ratio.ratio == pytest.approx(1.2)
    assert (ratio.base, ratio.head, ratio.pairs) == (2.0, 3.6, 10)


def test_estimate_ratio_ignores_disturbed_pairs():
    pairs = [([1.0], [1.2])] * 8 + [([1.0], [50.0]), ([50.0], [1.0])]
    assert intervals.estimate_ratio("s", pairs, 0.99, 0).ratio == pytest.approx(1.2)


def test_compare_speed_cancels_drift_within_a_pair():
    clock = iter(np.repeat(np.linspace(1, 3, 10), 2))

    def side(factor):
        return lambda names: {"search": factor * next(clock)}

    verdict = gate.compare_speed(side(1.0), side(1.0))
    assert verdict.ratios[0].ratio == 1.0
    assert (verdict.ratios[0].low, verdict.ratios[0].high) == (1.0, 1.0)


def test_alternating_changes_the_first_side():
    order = []

    def side(name):
        return lambda names: order.append(name) or {"search": 1.0}

    pair = processes.alternating(side("base"), side("head"))
    assert [pair([]) for _ in range(4)] == [({"search": [1.0]}, {"search": [1.0]})] * 4
    assert order == ["base", "head", "head", "base"] * 2


def test_compare_speed_fails_without_benchmarks():
    verdict = gate.compare_speed(lambda names: {}, lambda names: {})
    assert not verdict.passed
    assert "no benchmark ran" in verdict.markdown()


def test_compare_speed_fails_for_missing_not_for_new():
    verdict = gate.compare_speed(
        lambda names: {"kept": 1.0, "lost": 1.0}, lambda names: {"kept": 1.0, "new": 1.0}
    )
    assert not verdict.passed
    assert (verdict.missing, verdict.new) == (("lost",), ("new",))
    assert "did not run: `lost`" in verdict.markdown()


@pytest.mark.parametrize(
    ("draw", "most"),
    [("standard_normal", 0.99), pytest.param("standard_cauchy", 1.0, marks=pytest.mark.slow)],
)
def test_bootstrap_interval_has_its_coverage(draw, most):
    noise = getattr(np.random.default_rng(0), draw)((120, 10))
    ends = [intervals.bootstrap_interval(logs, 0.95, 0) for logs in np.log(1.2) + 0.05 * noise]
    covered = np.mean([low <= 1.2 <= high for low, _, high in ends])
    assert 0.91 <= covered <= most  # 0.95 less two deviations of 120 draws


def test_command_runs_in_a_process(tmp_path):
    script = tmp_path / "bench.py"
    script.write_text(
        "import json, sys\nprint('talk')\nprint(json.dumps({n: 2.0 for n in sys.argv[1:] or 'ab'}))"
    )
    measure = processes.Command([sys.executable, str(script)])
    assert measure([]) == {"a": 2.0, "b": 2.0}
    assert measure(["a"]) == {"a": 2.0}
    with pytest.raises(subprocess.CalledProcessError):
        processes.Command([sys.executable, "-c", "raise SystemExit(3)"])([])


def test_command_passes_its_environment():
    code = "import json, os; print(json.dumps({os.environ['GATE_NAME']: 1.0}))"
    measure = processes.Command([sys.executable, "-c", code], {"GATE_NAME": "x"})
    assert measure([]) == {"x": 1.0}


SERVER = """
import json, sys, time
from pathlib import Path
label, diary = sys.argv[1:]
for turn, line in enumerate(sys.stdin):
    names = json.loads(line) or json.loads(label)
    with open(diary, "a") as file:
        file.write(f"{label} {json.loads(line)}\\n")
    # a disturbed first answer
    print(json.dumps({name: (1 + 8 * (turn == 0)) * len(name) for name in names}), flush=True)
"""


def serving(tmp_path, names):
    script = tmp_path / "server.py"
    script.write_text(SERVER)
    return processes.Command(
        [sys.executable, str(script), json.dumps(names), str(tmp_path / "diary")]
    )


def test_run_interleaved_alternates_at_every_benchmark(tmp_path):
    base, head = serving(tmp_path, ["a", "b"]), serving(tmp_path, ["a", "b", "new"])
    found = processes.run_interleaved([base, head], 2, [])
    equal = {"a": [1.0, 1.0], "b": [1.0, 1.0]}  # without the disturbed first pass
    assert found == [equal, equal | {"new": [3.0, 3.0]}]
    diary = (tmp_path / "diary").read_text().splitlines()
    first, second = '["a", "b"]', '["a", "b", "new"]'
    assert diary[2:6] == [f"{first} ['a']", f"{second} ['a']", f"{second} ['b']", f"{first} ['b']"]
    assert diary[7:9] == [f"{second} ['a']", f"{first} ['a']"]


def test_interleaved_changes_the_side_started_first(tmp_path):
    pair = processes.interleaved(serving(tmp_path, ["a"]), serving(tmp_path, ["a", "bb"]), 1)
    assert [pair([]), pair([])] == [({"a": [1.0]}, {"a": [1.0], "bb": [2.0]})] * 2
    warm_up = [
        line for line in (tmp_path / "diary").read_text().splitlines() if line.endswith(" []")
    ]
    base, head = '["a"] []', '["a", "bb"] []'
    assert warm_up == [base, head, head, base]


def test_compare_speed_runs_servers(tmp_path):
    base = serving(tmp_path, ["a", "b"])
    verdict = gate.compare_speed(base, base, turns=1)
    assert verdict.passed
    assert [one.ratio for one in verdict.ratios] == [1.0, 1.0]
    assert len((tmp_path / "diary").read_text().splitlines()) == 10 * 2 * 3


def test_run_interleaved_fails_if_a_server_ends(tmp_path):
    dead = processes.Command([sys.executable, "-c", "raise SystemExit(3)"])
    with pytest.raises(subprocess.CalledProcessError, match="exit status 3"):
        processes.run_interleaved([serving(tmp_path, ["a"]), dead], 1, [])


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"turns": 0}, "turns must be at least 1, got 0"),
        ({"pairs": 9}, "pairs must be at least 10, got 9"),
        ({"tolerance": -0.1}, "tolerance must be at least 0, got -0.1"),
        ({"confidence": 1}, "confidence must be above 0 and at most 0.9999, got 1"),
    ],
)
def test_compare_speed_refuses_invalid_settings(setting, message):
    with pytest.raises(ValueError, match=message):
        gate.compare_speed(lambda names: {}, lambda names: {}, **setting)


def test_compare_speed_refuses_turns_of_callables():
    with pytest.raises(TypeError, match="base must be a command if turns is given, got <func"):
        gate.compare_speed(lambda names: {}, lambda names: {}, turns=1)


def test_compare_speed_refuses_times_of_zero():
    side = noisy({"search": 0.0}, 0)
    with pytest.raises(ValueError, match="seconds of search in base must be positive"):
        gate.compare_speed(side, side)


def test_verdict_markdown_has_a_table():
    verdict = gate.compare_speed(lambda names: {"s": 1e-3}, lambda names: {"s": 2e-3})
    lines = verdict.markdown().splitlines()
    assert lines[0].startswith("### Speed: failed, 1 of 1")
    assert "| `s` | 1 ms | 2 ms | 2.000 | 2.000 to 2.000 | 10 |" in lines
