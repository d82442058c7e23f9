"""The gate's verdict on times whose answer is known."""

import itertools
import json
import subprocess
import sys

import numpy as np
import pytest

from bench import gate
from bench.gate import intervals, processes


def noisy(means, seed, spread=0.02):
    """A side whose times scatter log-normally about means."""
    rng = np.random.default_rng(seed)
    asked = []

    def measure(names):
        asked.append(tuple(names))
        return {
            name: mean * np.exp(spread * rng.standard_normal())
            for name, mean in means.items()
            if not names or name in names
        }

    measure.asked = asked
    return measure


def test_equal_sides_pass():
    means = {f"b{i}": 1e-3 * (i + 1) for i in range(20)}
    verdict = gate.compare_speed(noisy(means, 1), noisy(means, 2))
    assert verdict.passed
    assert len(verdict.ratios) == 20
    assert all(one.low <= one.ratio <= one.high for one in verdict.ratios)


def test_a_slower_benchmark_fails_and_only_it_is_measured_again():
    base = noisy({"search": 1e-3, "fit": 2e-3}, 1)
    head = noisy({"search": 1.4e-3, "fit": 2e-3}, 2)
    verdict = gate.compare_speed(base, head)
    assert not verdict.passed
    assert [one.name for one in verdict.slower] == ["search"]
    assert verdict.slower[0].ratio == pytest.approx(1.4, rel=0.05)
    assert set(base.asked) == {(), ("search",)}
    assert base.asked.count(("search",)) == 10


def test_a_slow_down_within_the_tolerance_passes():
    verdict = gate.compare_speed(noisy({"search": 1.0}, 1), noisy({"search": 1.05}, 2))
    assert verdict.passed
    assert not verdict.suspects


def test_a_first_look_that_is_not_confirmed_passes():
    calls = []

    def head(names):
        calls.append(names)
        return {"search": 1.5 if not names else 1.0}

    verdict = gate.compare_speed(lambda names: {"search": 1.0}, head)
    assert verdict.suspects
    assert verdict.passed


def test_what_ten_pairs_leave_open_is_measured_further_and_alone():
    asked, scattered = [], itertools.cycle([1.02, 1.30, 1.10, 1.18, 0.95])

    def head(names):
        asked.append(tuple(names))
        return {
            name: next(scattered) if name == "open" else 1.0 for name in names or ("open", "equal")
        }

    verdict = gate.compare_speed(lambda names: {"open": 1.0, "equal": 1.0}, head)
    assert {one.name: one.pairs for one in verdict.ratios} == {"open": 80, "equal": 10}
    assert asked == [()] * 10 + [("open",)] * 70
    assert verdict.passed
    assert [one.name for one in verdict.undecided] == ["open"]
    assert "passed, none of 2 benchmarks is slower, 1 undecided" in verdict.markdown()
    assert "- undecided: `open`" in verdict.markdown()


def test_what_more_pairs_decide_is_not_undecided():
    verdict = gate.compare_speed(noisy({"s": 1.0}, 1, 0.10), noisy({"s": 1.22}, 2, 0.10))
    assert [one.name for one in verdict.slower] == ["s"]
    assert max(verdict.ratios[0].pairs, verdict.suspects[0].pairs) > 10
    assert not verdict.undecided


def test_a_second_series_that_stays_open_is_undecided():
    pairs_run = itertools.count()

    def head(names):
        return {"s": 1.5 if next(pairs_run) < 10 else (1.0, 1.2)[next(pairs_run) % 4 // 2]}

    verdict = gate.compare_speed(lambda names: {"s": 1.0}, head)
    assert verdict.passed
    assert [(one.name, one.pairs) for one in verdict.undecided] == [("s", 80)]


@pytest.mark.parametrize(
    ("low", "high", "exceeds"), [(1.11, 1.3, True), (1.0, 1.10, False), (1.10, 1.2, None)]
)
def test_an_interval_exceeds_the_limit_or_not_or_holds_it(low, high, exceeds):
    assert intervals.Ratio("s", 1.0, 1.0, 1.1, low, high, 10).exceeds(1.10) is exceeds


def test_the_ratio_of_a_pair_is_the_median_over_its_turns():
    # the machine gets three times slower, and head is disturbed once
    base = [1.0, 2.0, 3.0]
    head = [1.2, 9.0, 3.6]
    ratio = intervals.judged("s", [(base, head)] * 10, 0.99, 0)
    assert ratio.ratio == pytest.approx(1.2)
    assert (ratio.base, ratio.head, ratio.pairs) == (2.0, 3.6, 10)


def test_pairs_that_were_disturbed_do_not_count():
    pairs = [([1.0], [1.2])] * 8 + [([1.0], [50.0]), ([50.0], [1.0])]
    assert intervals.judged("s", pairs, 0.99, 0).ratio == pytest.approx(1.2)


def test_drift_of_the_machine_cancels_within_a_pair():
    clock = iter(np.repeat(np.linspace(1, 3, 10), 2))

    def side(factor):
        return lambda names: {"search": factor * next(clock)}

    verdict = gate.compare_speed(side(1.0), side(1.0))
    assert verdict.ratios[0].ratio == 1.0
    assert (verdict.ratios[0].low, verdict.ratios[0].high) == (1.0, 1.0)


def test_the_sides_take_turns_at_going_first():
    order = []

    def side(name):
        return lambda names: order.append(name) or {"search": 1.0}

    pair = processes.one_by_one(side("base"), side("head"))
    assert [pair([]) for _ in range(4)] == [({"search": [1.0]}, {"search": [1.0]})] * 4
    assert order == ["base", "head", "head", "base"] * 2


def test_nothing_measured_is_a_failure():
    verdict = gate.compare_speed(lambda names: {}, lambda names: {})
    assert not verdict.passed
    assert "no benchmark ran" in verdict.markdown()


def test_a_benchmark_that_head_lost_is_a_failure_and_a_new_one_is_not():
    verdict = gate.compare_speed(
        lambda names: {"kept": 1.0, "lost": 1.0}, lambda names: {"kept": 1.0, "new": 1.0}
    )
    assert not verdict.passed
    assert (verdict.missing, verdict.new) == (("lost",), ("new",))
    assert "did not run: `lost`" in verdict.markdown()


@pytest.mark.parametrize(("draw", "most"), [("standard_normal", 0.99), ("standard_cauchy", 1.0)])
def test_the_interval_covers_the_true_ratio_as_often_as_it_says(draw, most):
    noise = getattr(np.random.default_rng(0), draw)((120, 10))
    ends = [intervals.interval(logs, 0.95, 0) for logs in np.log(1.2) + 0.05 * noise]
    covered = np.mean([low <= 1.2 <= high for low, _, high in ends])
    assert 0.91 <= covered <= most  # 0.95 less two deviations of 120 draws


def test_commands_are_run_in_processes_of_their_own(tmp_path):
    script = tmp_path / "bench.py"
    script.write_text(
        "import json, sys\nprint('talk')\nprint(json.dumps({n: 2.0 for n in sys.argv[1:] or 'ab'}))"
    )
    measure = processes.as_measure([sys.executable, str(script)])
    assert measure([]) == {"a": 2.0, "b": 2.0}
    assert measure(["a"]) == {"a": 2.0}
    with pytest.raises(subprocess.CalledProcessError):
        processes.as_measure([sys.executable, "-c", "raise SystemExit(3)"])([])


def test_a_command_sees_the_variables_it_is_given():
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
        file.write(f"{label} {names}\\n")
    # a first answer that was disturbed
    print(json.dumps({name: (1 + 8 * (turn == 0)) * len(name) for name in names}), flush=True)
"""


def serving(tmp_path, names):
    script = tmp_path / "server.py"
    script.write_text(SERVER)
    return processes.Command(
        [sys.executable, str(script), json.dumps(names), str(tmp_path / "diary")]
    )


def test_commands_that_serve_take_turns_at_every_benchmark(tmp_path):
    base, head = serving(tmp_path, ["a", "b"]), serving(tmp_path, ["a", "b", "new"])
    found = processes.in_turns([base, head], 2, [])
    equal = {"a": [1.0, 1.0], "b": [1.0, 1.0]}  # the first pass, which was disturbed, is gone
    assert found == [equal, equal | {"new": [3.0, 3.0]}]
    diary = (tmp_path / "diary").read_text().splitlines()
    first, second = '["a", "b"]', '["a", "b", "new"]'
    assert diary[2:6] == [f"{first} ['a']", f"{second} ['a']", f"{second} ['b']", f"{first} ['b']"]
    assert diary[7:9] == [f"{second} ['a']", f"{first} ['a']"]


def test_the_side_that_is_started_first_changes(monkeypatch):
    started = []

    def in_turns(commands, turns, _names):
        started.append(commands)
        return [{"s": [float(len(command.words))] * turns} for command in commands]

    monkeypatch.setattr(processes, "in_turns", in_turns)
    base, head = processes.Command(["x"]), processes.Command(["x", "y"])
    pair = processes.taking_turns(base, head, 2)
    assert [pair([]), pair([])] == [({"s": [1.0, 1.0]}, {"s": [2.0, 2.0]})] * 2
    assert started == [[base, head], [head, base]]


def test_the_gate_asks_servers_for_suspects_alone(tmp_path):
    base = serving(tmp_path, ["a", "b"])
    verdict = gate.compare_speed(base, base, turns=1)
    assert verdict.passed
    assert [one.ratio for one in verdict.ratios] == [1.0, 1.0]
    assert len((tmp_path / "diary").read_text().splitlines()) == 10 * 2 * 3


def test_a_server_that_dies_is_a_failed_command(tmp_path):
    dead = processes.Command([sys.executable, "-c", "raise SystemExit(3)"])
    with pytest.raises(subprocess.CalledProcessError, match="exit status 3"):
        processes.in_turns([serving(tmp_path, ["a"]), dead], 1, [])


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"turns": 0}, "turns must be a whole number of at least 1, got 0"),
        ({"pairs": 9}, "pairs must be a whole number of at least 10, got 9"),
        ({"tolerance": -0.1}, "tolerance must be a finite number >= 0, got -0.1"),
        ({"confidence": 1}, "confidence must be a finite number > 0 and <= 0.9999, got 1"),
    ],
)
def test_settings_that_mean_nothing_are_refused(setting, message):
    with pytest.raises(ValueError, match=message):
        gate.compare_speed(lambda names: {}, lambda names: {}, **setting)


def test_functions_take_no_turns():
    with pytest.raises(TypeError, match="base must be a command where turns are taken, got funct"):
        gate.compare_speed(lambda names: {}, lambda names: {}, turns=1)


def test_times_of_zero_are_refused():
    side = noisy({"search": 0.0}, 0)
    with pytest.raises(ValueError, match="seconds of search in base must be a finite number > 0"):
        gate.compare_speed(side, side)


def test_the_summary_is_a_markdown_table():
    verdict = gate.compare_speed(lambda names: {"s": 1e-3}, lambda names: {"s": 2e-3})
    lines = verdict.markdown().splitlines()
    assert lines[0].startswith("### Speed: failed, 1 of 1")
    assert "| `s` | 1 ms | 2 ms | 2.000 | 2.000 to 2.000 | 10 |" in lines
