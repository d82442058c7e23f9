"""Summaries in Markdown and JSON."""

import json

import pytest

from benchgate import Failure, compare, compare_pairs, summary
from invented_times import constant, sides


@pytest.fixture
def verdict():
    base = {"slow": 1.0, "equal": 1.0, "bad[a|b]": 1.0, "gone": 1.0, "cleared": 1.0}
    head = {"slow": 2.0, "equal": 1.0, "bad[a|b]": Failure("failed", "call: a | b\nwrong"), "new": 1.0}
    pair = sides(constant(**base), lambda names: head | {"cleared": 1.0 if names else 1.5})
    verdict = compare_pairs(pair)
    return verdict._replace(broken={"test_x.py": "ImportError: x"}, removed=["old"])


def test_headline_counts_each_kind(verdict):
    text = summary.headline(verdict)
    assert text.startswith(
        "failed: 3 benchmarks compared, 1 slower, 2 lost, 1 only in head, 1 file that head"
    )


def test_markdown_has_one_table_with_a_row_for_each_benchmark(verdict):
    text = summary.markdown(verdict, "footer")
    shown = text.partition("<details>")[0]
    rows = [line for line in shown.splitlines() if line.startswith("| ")]
    assert shown.count("|---|") == 1
    assert len(rows) == 1 + 6
    assert all(len(row.replace("\\|", "").split("|")) == 9 for row in rows)
    assert "| **slower** | `slow` | 1 s | 2 s | 2.000 | 2.000 to 2.000 | 10 |" in rows
    assert "- `bad[a\\|b]` (lost): call: a \\| b wrong" in shown
    assert "- `test_x.py`: ImportError: x" in shown
    assert "- `old`" in shown
    assert "footer" in text


def test_cleared_suspects_are_folded(verdict):
    details = summary.markdown(verdict).partition("<details>")[2].partition("</details>")[0]
    assert "| not slower | `cleared` | 1 s | 1.5 s | 1.500" in details


def test_json_has_every_benchmark_and_the_exit_status(verdict):
    result = json.loads(json.dumps(summary.as_json(verdict, {"date": "2026-01-02"})))
    assert (result["exit_status"], result["date"], len(result["benchmarks"])) == (1, "2026-01-02", 6)
    (slow,) = [benchmark for benchmark in result["benchmarks"] if benchmark["name"] == "slow"]
    assert (slow["status"], slow["ratio"], slow["pairs"]) == ("slower", 2.0, 10)


def test_failure_of_the_whole_comparison_has_its_reason():
    text = summary.markdown(compare.Verdict([], 0.1, failure="pip failed"))
    assert text.startswith("### Benchmarks: could not compare: no benchmark was compared")
    assert "Nothing could be compared: pip failed" in text


@pytest.mark.parametrize(
    ("seconds", "text"), [(2.5, "2.5 s"), (0.0123, "12.3 ms"), (4.2e-5, "42 us"), (3e-9, "3 ns")]
)
def test_duration_has_a_readable_unit(seconds, text):
    assert summary.duration(seconds) == text
