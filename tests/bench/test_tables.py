"""Tables of ratios: the README shows what bench.tables wrote, with machine and versions."""

import json
from pathlib import Path

import pytest

from bench import tables

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


def test_rows_of_pieces_keeps_the_last_run(tmp_path):
    path = tmp_path / "rows.json"
    path.write_text(json.dumps([ROW, ROW | {"competitor": "numpy"}, ROW | {"ratio": 5.0}]))
    assert [row["ratio"] for row in tables.rows_of_pieces(path)] == [5.0, 4.0]


def test_with_older_keeps_the_date_of_rows():
    before = {
        "date": "2026-01-01",
        "rows": [ROW, ROW | {"competitor": "numpy Haswell", "ratio": 2.0}],
    }
    rows = tables.with_older([ROW | {"competitor": "numpy", "ratio": 5.0}], before)
    assert [(row["competitor"], row["ratio"], row.get("date")) for row in rows] == [
        ("numpy", 5.0, None), ("faiss SkylakeX", 4.0, "2026-01-01"),
    ]  # fmt: skip
    text = tables.markdown({"dense": PART | {"rows": rows}})
    assert "2026-01-02; faiss 2026-01-01, Some CPU" in text
    assert tables.with_older(rows, {}) == rows


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
    assert shown == tables.markdown(record, complete=False)


def test_short_markdown_has_the_best_competitor_only():
    wrong = {"competitor": "x", "correct": False}
    rows = [ROW, ROW | {"competitor": "numpy", "ratio": 3.0}, ROW | wrong]
    text = tables.markdown({"dense": PART | {"rows": rows}}, complete=False)
    assert "| search | numpy |" in text
    assert "faiss" not in text
