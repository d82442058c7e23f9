"""Tables of fastcos and its competitors: consistent, complete, and never overwritten by default."""

import json
import math
import sys
from pathlib import Path

import pytest

from bench import tables, turns, workloads

ROOT = Path(__file__).parents[2]
GROUP = "dense neighbours: SelfJoin 9 x 2"
MACHINE = {"cpu_name": "Some CPU", "threads": 2, "versions": {"numpy": "2.0", "faiss-cpu": "9.9"}}
FACTS = {"case": "neighbours of all 9 rows x 2", "state": "warm", "others": 0.0, "operations": 8.0}
FACTS |= {"bytes": 4.0}
FACTS |= {"percents": [40.0], "limited_by": "tile", "absent": {}}


def entry(library, seconds, group=GROUP, **facts):
    """A benchmark of three processes with three turns each."""
    times = [[seconds * share] * 3 for share in (0.98, 1.0, 1.03)]
    return {"group": group, "extra_info": FACTS | {"library": library, "turns": times} | facts}


def run(*entries, **machine):
    """A document of pytest-benchmark."""
    document = {"benchmarks": list(entries), "datetime": "2026-01-02"}
    return document | {"machine_info": MACHINE | machine}


def row(group=GROUP, **facts):
    fast = entry("faiss", 2.0, group, setting="AVX-512 kernels", **facts)
    (found,) = tables.rows_of(run(entry("fastcos", 0.5, group, **facts), fast))
    return found


def consistent(record):
    """Every ratio is the quotient of its two times, within its interval."""
    for case in record:
        for one in case["competitors"]:
            quotient = one["seconds"] / case["fastcos"]["seconds"]
            assert one["ratio"] == pytest.approx(quotient, rel=1e-9), case["case"]
            assert one["low"] <= quotient <= one["high"], case["case"]


def test_rows_have_one_time_of_fastcos_and_consistent_ratios():
    found = row()
    assert found["fastcos"]["seconds"] == pytest.approx(0.5 * (0.98 * 1.03) ** (1 / 3))
    assert found["competitors"][0]["ratio"] == pytest.approx(4)
    consistent([found])
    broken = found | {"competitors": [found["competitors"][0] | {"ratio": 5.0}]}
    with pytest.raises(AssertionError):
        consistent([broken])


def test_published_tables_are_consistent():
    record = json.loads(tables.RECORD.read_text("utf8"))
    consistent(record)
    assert tables.markdown(record) == tables.MARKDOWN.read_text("utf8")


def test_best_competitor_is_the_fastest_exact_one():
    ours, slow = entry("fastcos", 0.5), entry("numpy", 3.0)
    fast, rough = entry("faiss", 2.0), entry("turbovec", 0.1, recall=0.9)
    (found,) = tables.rows_of(run(ours, slow, fast, rough))
    assert tables.best_of(found)["library"] == "faiss"
    assert "recall 0.900" in tables.markdown([found])


@pytest.mark.parametrize(
    ("theirs", "word"), [([2.0, 2.2], "faster"), ([0.4, 0.5], "slower"), ([0.8, 1.3], "undecided")]
)
def test_verdict_is_undecided_where_the_interval_contains_1(theirs, word):
    ratio, low, high = turns.ratio_of(theirs * 3, [1.0] * 6)
    assert ratio == pytest.approx(math.prod(theirs) ** 0.5)
    assert turns.verdict(low, high) == word


def test_interval_of_processes_is_that_of_student():
    _, low, high = turns.ratio_of([1.0, 1.1, 1.3], [1.0] * 3)
    # t of 2 degrees of freedom, 95%: 4.303; the logarithms have standard deviation 0.1321
    assert math.log(high / low) / 2 == pytest.approx(4.303 * 0.1331 / 3**0.5, rel=0.01)


def test_markdown_says_what_is_absent_wrong_and_busy():
    absent = {"primme": "primme is not installed", "sklearn": "3 times the error"}
    text = tables.markdown([row(absent=absent, others=1.2)])
    assert "- primme: primme is not installed" in text
    assert "- sklearn: 3 times the error" in text
    assert "neighbours of all 9 rows x 2 (busy machine)" in text
    assert "faiss 9.9, AVX-512 kernels" in text
    assert "2026-01-02, Some CPU, 2 threads" in text


def test_a_case_without_competitors_has_a_row_with_the_reason():
    (found,) = tables.rows_of(run(entry("fastcos", 0.5, absent={"mkl": "mkl is not installed"})))
    assert "| mkl is not installed |" in tables.markdown([found])


def test_merged_replaces_the_same_case_of_the_same_cpu():
    one, other = row(), row("dense neighbours: other")
    foreign, new = row() | {"cpu": "Other CPU"}, row(operations=9.0)
    assert tables.merged([one, other, foreign], [new]) == [new, other, foreign]


def test_scaling_has_rows_of_its_own():
    one, faiss = entry("fastcos on 1 thread", 0.9), entry("faiss", 2.0)
    found = tables.rows_of(run(entry("fastcos", 0.5), one, faiss))
    assert [case["question"] for case in found] == [tables.KERNELS, "dense neighbours"]
    text = tables.markdown(found)
    assert "| fastcos on 1 thread | 903 ms (882 to 927) | 1.80 | 1.80 to 1.80 | 90% |" in text
    assert "Of 1 cases fastcos is slower in 0" in text


def test_a_run_without_competitors_replaces_no_row():
    assert tables.rows_of(run(entry("fastcos", 0.5))) == []


def call(monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["tables", *map(str, words)])
    assert tables.main() == 0


def test_tables_write_only_where_requested_and_lose_no_row(tmp_path, monkeypatch, capsys):
    before = tables.RECORD.read_text("utf8"), (ROOT / "README.md").read_text("utf8")
    for name, group in (("one", GROUP), ("two", "dense neighbours: other")):
        document = run(entry("fastcos", 0.5, group), entry("faiss", 2.0, group))
        (tmp_path / name).write_text(json.dumps(document), "utf8")
    call(monkeypatch, tmp_path / "one")
    assert "Some CPU" in capsys.readouterr().out
    out = tmp_path / "out"
    for _ in range(2):
        call(monkeypatch, tmp_path / "one", "--out", out)
        call(monkeypatch, tmp_path / "two", "--out", out)
        assert len(json.loads((out / "tables.json").read_text("utf8"))) == 2
    assert before == (tables.RECORD.read_text("utf8"), (ROOT / "README.md").read_text("utf8"))


def test_readme_shows_the_tables():
    readme = (ROOT / "README.md").read_text("utf8")
    shown = readme.split(tables.BEGIN)[1].split(tables.END)[0]
    assert shown == tables.short_markdown(json.loads(tables.RECORD.read_text("utf8")))


def test_readme_rows_are_those_with_the_least_and_the_most_work():
    some = [row(f"dense neighbours: {n}", operations=n) for n in (3.0, 1.0, 2.0)]
    some.append(row("dense neighbours: rested", operations=0.5, state="rested"))
    assert tables.readme_rows(some) == [some[1], some[0]]
    assert 2 * len(tables.README_PARTS) <= 12


def test_figure_is_drawn(tmp_path):
    tables.draw([row()], tmp_path / "speed.png")
    assert (tmp_path / "speed.png").read_bytes().startswith(b"\x89PNG")


def test_cases_of_the_tables_are_said_in_words():
    for kind in workloads.WORKLOADS.values():
        for case in workloads.cases("tables", kind):
            assert kind.question in tables.PARTS
            said = workloads.words(kind, case)
            assert kind.name not in said
            assert "=" not in said.replace("k = ", "")


def test_words_of_a_case():
    kind, case = workloads.WORKLOADS["SmallSearch"], {"queries": 1, "items": "10,000 x 64", "k": 10}
    assert workloads.words(kind, case) == "one query, 10,000 rows x 64, k = 10, in a loop"
    rested = workloads.words(workloads.WORKLOADS["RestedSearch"], case)
    assert rested == "one query, 10,000 rows x 64, k = 10, after a pause"
