"""``fastcos neighbors``: its inputs, and the table in every format."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

import fastcos
from fastcos.cli.main import main

ITEMS = np.random.default_rng(0).standard_normal((30, 5)).astype(np.float32)
QUERIES = np.random.default_rng(1).standard_normal((4, 5)).astype(np.float32)
IDS = np.arange(100, 130)
K = 3


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("items.npz", ids=IDS, vectors=ITEMS)
    np.savez("queries.npz", words=[*"abcd"], vectors=QUERIES)
    with Path("names.csv").open("w") as file:
        file.write("id,title\n" + "".join(f'{one},"[/b] no. {one}"\n' for one in IDS))
    return tmp_path


def neighbors(*words):
    assert main(["neighbors", *words, "--k", str(K)]) == 0


def read(path):
    """The rows of a table of any format, as texts."""
    if path.suffix == ".csv":
        with path.open(newline="") as file:
            return list(csv.DictReader(file))
    if path.suffix == ".json":
        rows = json.loads(path.read_text())
    else:
        rows = pytest.importorskip("pyarrow.parquet").read_table(path).to_pylist()
    return [{name: str(value) for name, value in row.items()} for row in rows]


@pytest.mark.parametrize("suffix", [".csv", ".json", ".parquet"])
def test_neighbors_of_queries_with_names(folder, suffix):
    if suffix == ".parquet":
        pytest.importorskip("pyarrow", reason="pyarrow is an extra")
    out = folder / f"found{suffix}"
    neighbors("items.npz", "--queries", "queries.npz", "--names", "names.csv", "--out", str(out))
    rows, expected = read(out), fastcos.top_k(QUERIES, ITEMS, K)
    assert list(rows[0]) == ["query", "rank", "neighbor", "neighbor_name", "score"]
    assert [row["query"] for row in rows[::K]] == [*"abcd"]
    found = [int(row["neighbor"]) for row in rows]
    assert found == IDS[expected.indices].ravel().tolist()
    assert [row["neighbor_name"] for row in rows] == [f"[/b] no. {one}" for one in found]
    np.testing.assert_allclose([float(row["score"]) for row in rows], expected.scores.ravel())


def test_neighbors_of_items_with_names(folder):
    neighbors("items.npz", "--names", "names.csv", "--out", "found.csv")
    row = read(folder / "found.csv")[0]
    assert list(row) == ["item", "name", "rank", "neighbor", "neighbor_name", "score"]
    assert row["name"] == "[/b] no. 100"


def test_show_prints_names_with_brackets(folder, capsys):
    neighbors("items.npz", "--show", "101", "--names", "names.csv")
    assert "[/b] no. 101" in capsys.readouterr().out


def test_min_score_leaves_out_lower_ones(folder):
    neighbors("items.npz", "--queries", "queries.npz", "--min-score", "0.8", "--out", "found.csv")
    everything = fastcos.top_k(QUERIES, ITEMS, K).scores
    rows = read(folder / "found.csv")
    assert 0 < len(rows) == (everything >= 0.8).sum()
    neighbors("items.npz", "--queries", "queries.npz", "--min-score", "0.8", "--out", "found.npz")
    found = np.load("found.npz")
    np.testing.assert_array_equal(found["scores"] > 0, everything >= 0.8)
    np.testing.assert_array_equal(found["indices"] < 0, everything < 0.8)
    assert found["query_ids"].tolist() == [*"abcd"]
    neighbors("items.npz", "--min-score", "1.5", "--out", "none.csv")
    assert read(folder / "none.csv") == []


@pytest.mark.parametrize("source", ["implicit", "export", "items of export"])
def test_neighbors_reads_models_and_exports(folder, source):
    if source == "implicit":
        np.savez("als.npz", item_factors=ITEMS, user_factors=QUERIES)
        neighbors("als.npz", "--out", "found.csv")
        ids = np.arange(30)
    else:
        words = ["export", "items.npz", "--users", "queries.npz", "--out", "served"]
        assert main([*words, "--form", "canonical"]) == 0
        name = "served" if source == "export" else "served/items.npy"
        neighbors(name, "--measure", "dot", "--out", "found.csv")
        ids = IDS
    rows = read(folder / "found.csv")
    assert [int(row["item"]) for row in rows[::K]] == ids.tolist()
    assert {int(row["neighbor"]) for row in rows} <= set(ids.tolist())


@pytest.mark.parametrize("command", ["neighbors", "audit", "compare"])
def test_commands_read_tables_of_vectors(folder, command):
    rows = [{"id": int(one), "text": "no", "a": v.tolist(), "b": v[:2].tolist()}
            for one, v in zip(IDS, ITEMS, strict=True)]  # fmt: skip
    (folder / "v.jsonl").write_text("\n".join(map(json.dumps, rows)))
    lines = ["id,kind", *(f"{one},{'even' if one % 2 == 0 else 'odd'}" for one in IDS)]
    (folder / "kinds.csv").write_text("\n".join(lines))
    words = {
        "neighbors": ["--show", "101"],
        "audit": ["--k", "3", "--out", "audited"],
        "compare": ["--labels", "kinds.csv", "--label-column", "kind", "--measures", "dot",
                    "--out", "compared"],
    }[command]  # fmt: skip
    assert main([command, "v.jsonl", *words]) == 2  # two columns of vectors
    assert main([command, "v.jsonl", "--vector-column", "a", *words]) in (0, 1)
