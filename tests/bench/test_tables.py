"""The table of the README is what bench.tables wrote, and says what was measured."""

import importlib.util
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tables():
    specification = importlib.util.spec_from_file_location("tables", ROOT / "bench" / "tables.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


ROW = {
    "work": "search", "rival": "faiss SkylakeX", "ours_s": 0.5, "rival_s": 2.0, "ratio": 4.0,
    "correct": True, "at_least": 3.0, "aim": 6.0,
}  # fmt: skip
PART = {"date": "2026-01-02", "cpu": "Some CPU", "threads": 2, "versions": {"numpy": "2.0"}}


def test_the_markdown_names_machine_versions_and_every_row(tables):
    wrong = ROW | {"rival": "other", "correct": False, "at_least": None}
    text = tables.markdown({"dense": PART | {"rows": [ROW, wrong]}})
    assert "2026-01-02, Some CPU, 2 threads" in text
    assert "| search | faiss SkylakeX | 2 s | 500 ms | 4.00x | 3x |" in text
    assert "| search | other | wrong answer | 500 ms |  |  |" in text
    assert "numpy 2.0" in text


def test_a_piece_that_was_run_again_counts_once(tables, tmp_path):
    path = tmp_path / "rows.json"
    path.write_text(json.dumps([ROW, ROW | {"rival": "numpy"}, ROW | {"ratio": 5.0}]))
    assert [row["ratio"] for row in tables.rows_of_pieces(path)] == [5.0, 4.0]


def test_rows_that_were_not_run_again_keep_their_date(tables):
    before = {"date": "2026-01-01", "rows": [ROW, ROW | {"rival": "numpy Haswell", "ratio": 2.0}]}
    rows = tables.with_older([ROW | {"rival": "numpy", "ratio": 5.0}], before)
    assert [(row["rival"], row["ratio"], row.get("date")) for row in rows] == [
        ("numpy", 5.0, None), ("faiss SkylakeX", 4.0, "2026-01-01"),
    ]  # fmt: skip
    text = tables.markdown({"dense": PART | {"rows": rows}})
    assert "2026-01-02; faiss 2026-01-01, Some CPU" in text
    assert tables.with_older(rows, {}) == rows


def test_memory_stands_beside_the_time_where_it_is_known(tables):
    text = tables.markdown({"dense": PART | {"rows": [ROW | {"peak_mib": 90.4}]}})
    assert "| 2 s | 500 ms, 90 MiB |" in text


def test_the_record_and_the_markdown_agree(tables):
    if not tables.RECORD.exists():
        pytest.skip("no tables were made yet")
    record = json.loads(tables.RECORD.read_text("utf8"))
    assert tables.markdown(record) == tables.MARKDOWN.read_text("utf8")
    assert all(part["rows"] and part["versions"] for part in record.values())


def test_the_readme_shows_the_tables(tables):
    readme = (ROOT / "README.md").read_text("utf8")
    if tables.BEGIN not in readme:
        pytest.skip("the README has no marks for the tables")
    shown = readme.split(tables.BEGIN)[1].split(tables.END)[0]
    record = json.loads(tables.RECORD.read_text("utf8"))
    assert shown == tables.markdown(record, everyone=False)


def test_the_short_table_has_the_best_rival_alone(tables):
    rows = [ROW, ROW | {"rival": "numpy", "ratio": 3.0}, ROW | {"rival": "x", "correct": False}]
    text = tables.markdown({"dense": PART | {"rows": rows}}, everyone=False)
    assert "| search | numpy |" in text
    assert "faiss" not in text
