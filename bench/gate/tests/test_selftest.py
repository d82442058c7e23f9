"""The self-test counts false alarms, and finds the smallest slow-down that is caught.

The tests use invented records, so the scatter of the ratios is known.
"""

import numpy as np
import pytest

from benchgate import Measurement, selftest
from invented_times import constant, noisy, sides


def normal(pairs, scatter, seed=0):
    return list(scatter * np.random.default_rng(seed).standard_normal(pairs))


def test_record_has_the_logarithm_of_every_pair():
    sleepy = Measurement([1.0], [0.9])
    pair = sides(constant(a=1.0, b=2.0, c=sleepy), constant(a=1.1, b=2.0, c=sleepy))
    logs, reasons = selftest.record(pair, 0)
    assert logs == {"a": [pytest.approx(np.log(1.1), abs=1e-5)] * 10, "b": [0.0] * 10}
    assert reasons.keys() == {"c"}
    assert "waits 90% of the time" in reasons["c"]


def test_interrupt_ends_the_record_and_keeps_it():
    calls = iter(range(12))

    def pair(names):
        if next(calls) == 11:
            raise KeyboardInterrupt
        return {"a": Measurement([1.0], [0.0])}, {"a": Measurement([1.0], [0.0])}

    logs, _ = selftest.record(pair, 1e9)
    assert logs == {"a": [0.0] * 11}


def test_report_of_nothing_has_no_comparisons():
    report = selftest.report({}, 0.10, {"a": "it | failed"})
    assert (report["comparisons"], report["upper_bound"]) == (0, 1.0)
    assert "- `a` was not measured: it \\| failed" in selftest.markdown(report)


def test_record_passes_through_the_comparison_block_by_block():
    equal = normal(45, 0.01)
    assert selftest.comparisons(equal) == [False] * 4
    # A comparison that reports a slow-down has measured two series of ten pairs each, which are 20 pairs. The
    # 45 pairs are therefore enough for two comparisons.
    assert selftest.comparisons(equal, slowdown=0.3) == [True] * 2


def test_a_record_of_a_biased_machine_has_false_alarms():
    report = selftest.report({"a": list(0.3 + np.array(normal(40, 0.01)))}, 0.10)
    assert (report["comparisons"], report["false_alarms"], report["upper_bound"]) == (2, 2, 1.0)


def test_caught_slowdown_grows_with_the_scatter():
    precise, typical, noisy = (
        selftest.caught_slowdown(normal(100, scatter), 0.10) for scatter in (0.005, 0.08, 30.0)
    )
    assert precise == 0.12
    assert 0.12 < typical <= 0.4
    assert noisy is None


@pytest.mark.parametrize(
    ("alarms", "total", "bound"), [(0, 200, 0.01487), (0, 108, 0.02736), (1, 200, 0.0235)]
)
def test_upper_bound_is_that_of_clopper_and_pearson(alarms, total, bound):
    assert selftest.upper_bound(alarms, total) == pytest.approx(bound, rel=0.01)
    if alarms == 0:
        assert selftest.upper_bound(alarms, total) == pytest.approx(1 - 0.05 ** (1 / total))


def test_report_states_the_answer_first():
    pair = sides(noisy({"a|b": 1.0}, 1), noisy({"a|b": 1.0}, 2))
    report = selftest.report(selftest.record(pair, 0)[0], 0.10)
    text = selftest.markdown(report, "footer")
    assert text.startswith("### Self-test: 0 false alarms in 1 comparison of equal code")
    assert "| `a\\|b` | 0 | 1 |" in text
    assert "footer" in text
