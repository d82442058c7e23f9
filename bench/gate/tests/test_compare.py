"""Tests of the verdicts that compare_pairs returns for invented measurements."""

import itertools

import numpy as np
import pytest

from benchgate import Failure, Measurement, compare, compare_pairs
from invented_times import constant, noisy, sides


def statuses(verdict):
    return {outcome.name: outcome.status for outcome in verdict.outcomes}


def reasons(verdict):
    return {outcome.name: outcome.reason for outcome in verdict.outcomes}


def test_equal_sides_pass():
    means = {f"b{i}": 1e-3 * (i + 1) for i in range(20)}
    verdict = compare_pairs(sides(noisy(means, 1), noisy(means, 2)))
    assert verdict.exit_status == 0
    assert len(verdict.compared) == 20
    assert all(outcome.ratio.low <= outcome.ratio.ratio <= outcome.ratio.high for outcome in verdict.outcomes)


def test_only_the_slower_benchmark_is_measured_twice():
    base = noisy({"search": 1e-3, "fit": 2e-3}, 1)
    head = noisy({"search": 1.4e-3, "fit": 2e-3}, 2)
    verdict = compare_pairs(sides(base, head))
    assert statuses(verdict) == {"search": compare.SLOWER, "fit": compare.PASSED}
    assert verdict.exit_status == 1
    assert verdict.outcomes[0].ratio.ratio == pytest.approx(1.4, rel=0.05)
    assert base.requests == [()] * 10 + [("search",)] * 10


def test_slowdown_within_the_tolerance_passes():
    verdict = compare_pairs(sides(noisy({"s": 1.0}, 1), noisy({"s": 1.05}, 2)))
    assert statuses(verdict) == {"s": compare.PASSED}


def test_each_benchmark_can_have_its_own_tolerance():
    base, head = noisy({"a": 1.0, "b": 1.0}, 1), noisy({"a": 1.4, "b": 1.4}, 2)
    verdict = compare_pairs(sides(base, head), tolerances={"a": 0.6})
    assert statuses(verdict) == {"b": compare.SLOWER, "a": compare.PASSED}
    assert {outcome.name: round(outcome.tolerance, 3) for outcome in verdict.outcomes} == {"a": 0.6, "b": 0.1}


def test_suspects_of_one_series_are_cleared_by_the_next():
    verdict = compare_pairs(sides(constant(s=1.0), lambda names: {"s": 1.0 if names else 1.5}))
    (outcome,) = verdict.outcomes
    assert (outcome.status, outcome.first.ratio, outcome.ratio.ratio) == (compare.PASSED, 1.5, 1.0)
    assert verdict.exit_status == 0


def test_only_undecided_benchmarks_are_measured_further():
    requests, scattered = [], itertools.cycle([1.02, 1.30, 1.10, 1.18, 0.95])

    def head(names):
        requests.append(tuple(names))
        return {"open": next(scattered), "equal": 1.0}

    verdict = compare_pairs(sides(constant(open=1.0, equal=1.0), head))
    assert {outcome.name: outcome.ratio.pairs for outcome in verdict.outcomes} == {"open": 80, "equal": 10}
    assert requests == [()] * 10 + [("open",)] * 70
    assert statuses(verdict) == {"open": compare.UNDECIDED, "equal": compare.PASSED}
    assert verdict.exit_status == 0


def test_noisy_slowdown_is_decided_with_more_pairs():
    verdict = compare_pairs(sides(noisy({"s": 1.0}, 1, 0.10), noisy({"s": 1.22}, 2, 0.10)))
    (outcome,) = verdict.outcomes
    assert outcome.status == compare.SLOWER
    assert max(outcome.ratio.pairs, outcome.first.pairs) > 10


def test_drift_of_the_machine_cancels_within_a_pair():
    clock = iter(np.repeat(np.linspace(1, 3, 10), 2))

    def side(names):
        return {"s": next(clock)}

    (outcome,) = compare_pairs(sides(side, side)).outcomes
    assert (outcome.ratio.low, outcome.ratio.ratio, outcome.ratio.high) == (1.0, 1.0, 1.0)


FAILED, CRASHED = Failure("failed", "call: boom"), Failure("crashed", "ended by SIGSEGV")
SKIPPED, SLEEPS = Failure("skipped", "the test was skipped"), Failure("waits", "it waits", 0.9)


@pytest.mark.parametrize(
    ("base", "head", "status", "exit_status"),
    [
        (1.0, None, compare.LOST, 1),
        (1.0, FAILED, compare.LOST, 1),
        (1.0, SKIPPED, compare.LOST, 1),
        (1.0, CRASHED, compare.CRASHED, 1),
        (1.0, SLEEPS, compare.WAITS, 3),
        (None, 1.0, compare.NEW, 0),
        (FAILED, 1.0, compare.NEW, 0),
        (CRASHED, 1.0, compare.NEW, 0),
        (None, FAILED, compare.UNCOMPARABLE, 3),
        (None, CRASHED, compare.CRASHED, 1),
        (FAILED, FAILED, compare.UNCOMPARABLE, 3),
        (FAILED, CRASHED, compare.CRASHED, 1),
        (CRASHED, CRASHED, compare.UNCOMPARABLE, 3),
        (SKIPPED, SKIPPED, compare.SKIPPED, 0),
        (SLEEPS, SLEEPS, compare.WAITS, 3),
        (SLEEPS, 1.0, compare.WAITS, 3),
        (SLEEPS, FAILED, compare.LOST, 1),
        (SLEEPS, CRASHED, compare.CRASHED, 1),
        (FAILED, SLEEPS, compare.WAITS, 3),
    ],
)
def test_status_of_a_benchmark_without_two_times(base, head, status, exit_status):
    results = [{"equal": 1.0}, {"equal": 1.0}]
    for side, result in zip(results, (base, head), strict=True):
        if result is not None:
            side["s"] = result
    verdict = compare_pairs(sides(constant(**results[0]), constant(**results[1])))
    assert statuses(verdict) == {"s": status, "equal": compare.PASSED}
    assert verdict.exit_status == exit_status


@pytest.mark.parametrize("number", [5, 15])
def test_benchmark_that_fails_once_in_head_is_lost(number):
    # The times in head alternate between 1.0 and 1.2 seconds, so the interval of the ratio contains the
    # tolerance. The comparison therefore continues after its first 10 pairs.
    heads = [{"s": 1.1 + scatter} for scatter in np.tile([-0.1, 0.1], 40)]
    heads[number] = {"s": FAILED}
    heads = iter(heads)
    verdict = compare_pairs(sides(constant(s=1.0), lambda names: next(heads)))
    assert (statuses(verdict), reasons(verdict)) == ({"s": compare.LOST}, {"s": "call: boom"})


def test_benchmark_that_fails_once_in_base_is_not_heads_fault():
    bases = iter([{"s": 1.0}, {"s": FAILED}] + [{"s": 1.0}] * 8)
    verdict = compare_pairs(sides(lambda names: next(bases), constant(s=1.0)))
    assert statuses(verdict) == {"s": compare.UNCOMPARABLE}
    assert reasons(verdict) == {"s": "base: call: boom"}


@pytest.mark.parametrize("side", ["base", "head"])
def test_benchmark_that_waits_is_not_compared(side):
    times = {"base": 1.0, "head": 1.0} | {side: Measurement([1.0, 1.0, 1.0], [0.88, 0.0, 0.88])}
    times = {
        name: outcome if name == side else Measurement([1.0] * 3, [0.0] * 3)
        for name, outcome in times.items()
    }
    verdict = compare_pairs(sides(constant(s=times["base"], t=1.0), constant(s=times["head"], t=1.0)))
    assert statuses(verdict) == {"s": compare.WAITS, "t": compare.PASSED}
    assert reasons(verdict)["s"].startswith("waits 88% of the time")
    assert "--wall" in reasons(verdict)["s"]
    assert verdict.exit_status == 3


def test_benchmark_that_is_awake_nearly_always_is_compared():
    awake = Measurement([1.0], [0.05])
    verdict = compare_pairs(sides(constant(s=awake), constant(s=awake)))
    assert statuses(verdict) == {"s": compare.PASSED}


def test_slower_counts_more_than_a_benchmark_that_waits():
    verdict = compare_pairs(sides(constant(s=1.0, t=SLEEPS), constant(s=2.0, t=SLEEPS)))
    assert verdict.exit_status == 1


@pytest.mark.parametrize("pattern", ["*", "s*", "search"])
def test_accepted_slowdowns_and_losses_pass(pattern):
    pair = sides(constant(search=1.0, sort=1.0), constant(search=2.0))
    verdict = compare_pairs(pair, accepted=[pattern])
    assert statuses(verdict)["search"] == compare.ACCEPTED
    assert (statuses(verdict)["sort"] == compare.LOST_ACCEPTED) == (pattern != "search")
    assert verdict.exit_status == (1 if pattern == "search" else 0)


def test_crashes_cannot_be_accepted():
    verdict = compare_pairs(sides(constant(s=1.0), constant(s=CRASHED)), accepted=["*"])
    assert verdict.exit_status == 1


def test_nothing_to_compare_is_no_failure():
    assert compare_pairs(sides(constant(), constant())).exit_status == 3


def ticking(monkeypatch):
    """Let every reading of the clock take a second."""
    clock = itertools.count()
    monkeypatch.setattr(compare.time, "monotonic", lambda: next(clock))


def test_benchmarks_are_undecided_when_the_time_is_over(monkeypatch):
    ticking(monkeypatch)
    scattered = itertools.cycle([1.02, 1.30, 1.10, 1.18, 0.95])
    verdict = compare_pairs(sides(constant(s=1.0), lambda names: {"s": next(scattered)}), seconds=36)
    (outcome,) = verdict.outcomes
    assert outcome.status == compare.UNDECIDED
    assert 10 < outcome.ratio.pairs < 40


def test_suspects_without_a_second_series_are_not_failures(monkeypatch):
    ticking(monkeypatch)
    verdict = compare_pairs(sides(constant(s=1.0), constant(s=2.0)), seconds=17)
    assert statuses(verdict) == {"s": compare.UNCOMPARABLE}
    assert "no time for a second" in reasons(verdict)["s"]
    assert verdict.exit_status == 3


def test_time_for_fewer_than_ten_pairs_is_reported(monkeypatch):
    ticking(monkeypatch)
    verdict = compare_pairs(sides(constant(s=1.0), constant(s=1.0)), seconds=9)
    assert "but 10 are necessary" in reasons(verdict)["s"]
    assert verdict.exit_status == 3


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"pairs": 9}, "pairs must be at least 10, got 9"),
        ({"tolerance": -0.1}, "tolerance must be a number of at least 0, got -0.1"),
        ({"tolerance": float("nan")}, "tolerance must be a number of at least 0, got nan"),
        ({"tolerances": {"s": -1}}, "tolerance must be a number of at least 0, got -1"),
    ],
)
def test_invalid_settings_are_refused(setting, message):
    with pytest.raises(ValueError, match=message):
        compare_pairs(sides(constant(), constant()), **setting)


def test_benchmark_may_have_an_empty_name():
    verdict = compare_pairs(sides(constant(**{"": 1.0}), constant(**{"": 2.0})))
    assert statuses(verdict) == {"": compare.SLOWER}
