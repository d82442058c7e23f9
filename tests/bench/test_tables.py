"""Tables of ratios: the README shows what bench.tables wrote, with machine and versions."""

import json
from pathlib import Path

import pytest

from bench import tables, workloads

ROOT = Path(__file__).parents[2]
ROW = {
    "work": "search", "competitor": "faiss SkylakeX", "ours_s": 0.5, "competitor_s": 2.0,
    "ratio": 4.0, "correct": True, "target": 3.0,
}  # fmt: skip
PART = {"date": "2026-01-02", "cpu": "Some CPU", "threads": 2, "versions": {"numpy": "2.0"}}


def test_markdown_names_machine_versions_and_rows():
    wrong = ROW | {"competitor": "other", "correct": False, "target": None}
    text = tables.markdown({"dense": PART | {"rows": [ROW, wrong]}})
    assert "2026-01-02, Some CPU, 2 threads" in text
    assert "| search | faiss SkylakeX | 2 s | 500 ms | 4.00x | 3x |" in text
    assert "| search | other | wrong answer | 500 ms |  |  |" in text
    assert "numpy 2.0" in text


def run(**changes):
    """A document of pytest-benchmark: fastcos and faiss on one case, and a wrong answer."""
    group = "dense neighbours: SelfJoin 9 x 2"
    info = {"library": "fastcos", "peak_mib": 5.0, "percent_of_limit": 40.0, "limited_by": "tile"}
    theirs = {"library": "faiss", "core_type": "Haswell", "ours": 0.5, "ratio": 4.0}
    theirs |= {"target": 3.0, "peak_mib": 8.0}
    return {
        "benchmarks": [
            {"group": group, "stats": {"median": 0.4}, "extra_info": info},
            {"group": group, "stats": {"median": 2.0}, "extra_info": theirs | changes},
        ],
        "wrong_answers": [{"group": group, "library": "sklearn", "error": 3.0}],
    }


def test_rows_of_keeps_the_last_run_and_wrong_answers():
    rows = tables.rows_of([run(ratio=9.0), run()])["dense"]
    assert [(row["competitor"], row["ratio"]) for row in rows] == [
        ("faiss Haswell", 4.0), ("sklearn", 0.0),
    ]  # fmt: skip
    text = tables.markdown({"dense": PART | {"rows": rows}})
    assert "| SelfJoin 9 x 2 | faiss Haswell | 2 s, 8 MiB | 500 ms, 5 MiB, 40% of tile |" in text
    assert "| SelfJoin 9 x 2 | sklearn | wrong answer |" in text


def test_markdown_shows_measured_memory():
    text = tables.markdown({"dense": PART | {"rows": [ROW | {"peak_mib": 90.4}]}})
    assert "| 2 s | 500 ms, 90 MiB |" in text


def test_record_and_markdown_agree():
    if not tables.RECORD.exists():
        pytest.skip("no tables were made yet")
    record = json.loads(tables.RECORD.read_text("utf8"))
    assert tables.markdown(record) == tables.MARKDOWN.read_text("utf8")
    assert all(part["rows"] and part["versions"] for part in record.values())


def test_readme_shows_the_tables():
    readme = (ROOT / "README.md").read_text("utf8")
    if tables.BEGIN not in readme:
        pytest.skip("the README has no marks for the tables")
    shown = readme.split(tables.BEGIN)[1].split(tables.END)[0]
    record = json.loads(tables.RECORD.read_text("utf8"))
    assert shown == tables.short_markdown(record)


def test_short_markdown_has_best_competitors_and_lost_cases():
    case, name = next(iter(tables.README_ROWS.items()))
    few, lost = ROW | {"work": case}, ROW | {"work": "lost", "ratio": 0.5}
    wrong = {"competitor": "x", "correct": False}
    rows = [ROW, lost, few, few | {"competitor": "numpy", "ratio": 3.0}, few | wrong]
    text = tables.short_markdown({"dense": PART | {"rows": rows}})
    assert text.splitlines() == [
        "| case | library | its time | fastcos | ratio |",
        "|---|---|---:|---:|---:|",
        f"| {name} | numpy | 2 s | 500 ms | 3.00x |",
        "| lost | faiss SkylakeX | 2 s | 500 ms | 0.50x |",
        "",
        "2026-01-02, Some CPU, 2 threads.",
    ]


def test_markdown_starts_with_the_cases_we_lose():
    lost = ROW | {"work": "lost", "ratio": 0.5}
    lines = tables.markdown({"dense": PART | {"rows": [ROW, lost]}}).splitlines()
    assert lines[0] == "**Cases in which another library is faster: 1.**"
    assert lines[4] == "| lost | faiss SkylakeX | 2 s | 500 ms | 0.50x | 3x |"


def test_readme_rows_are_cases_of_the_workloads():
    known = {
        workloads.label(kind, case)
        for kind in workloads.WORKLOADS.values()
        for case in workloads.cases("large", kind)
    }
    assert set(tables.README_ROWS) <= known
