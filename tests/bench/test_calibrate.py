"""Calibration of the gate: reports of records with known slow-downs."""

import numpy as np
import pytest

from bench import calibrate
from bench.gate.toy import seconds, slowed, spin

NAMES = ("a", "b")


def recorded(arm, ratio, pairs, seed, names=NAMES):
    """Lines of a record: six turns a pair, whose ratios scatter by 2%."""
    rng = np.random.default_rng(seed)
    return [
        {
            "injected": arm,
            "date": "2026-01-02",
            "pairs": {
                name: ([1.0] * 6, list(ratio * np.exp(0.02 * rng.standard_normal(6))))
                for name in names
            },
        }
        for _ in range(pairs)
    ]


@pytest.fixture(scope="module")
def lines():
    return [*recorded("nothing", 1.0, 90, 1), *recorded("30%", 1.3, 35, 2)]


def test_report_counts_failures_and_open_benchmarks(lines):
    text = "\n".join(calibrate.report(lines))
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]
    nothing, slower = (row for row in rows if row[:1] in (["nothing"], ["30%"]))
    # benchmarks, comparisons, slow at first, failed, undecided, left open
    counts = [", ".join(row[at] for at in (1, 3, 4, 5, 6, 8)) for row in (nothing, slower)]
    assert counts == ["2, 18, 0, **0 (0.0%)**, 0, 0", "2, 2, 2, **2 (100.0%)**, 0, 2"]
    assert slower[2] in {"+29.8%", "+29.9%", "+30.0%", "+30.1%", "+30.2%"}
    assert "2026-01-02" in text


def test_undecided_names_benchmarks_without_verdict(lines):
    assert calibrate.undecided(lines, "30%") == ["a", "b"]
    assert calibrate.undecided(lines + recorded("30%", 1.3, 5, 3, ["a"]), "30%") == ["b"]
    assert calibrate.undecided(lines, "nothing") == []
    new = recorded("nothing", 1.0, 1, 1, ["new"])
    assert calibrate.undecided(lines + new, "nothing") == ["new"]


@pytest.mark.slow  # it measures time: bounds that a third of noise does not reach
def test_slowed_call_takes_a_share_longer():
    def call():
        spin(100_000)

    ratios = [seconds(slowed(call, 2.0)) / seconds(call) for _ in range(3)]
    assert 2.0 < np.median(ratios) < 4.0
