"""Tests of `fastcos neighbors`: its inputs, and its table in every format."""

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
    """Return the rows of a table in any format, with all values as texts."""
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
    results = [int(row["neighbor"]) for row in rows]
    assert results == IDS[expected.indices].ravel().tolist()
    assert [row["neighbor_name"] for row in rows] == [f"[/b] no. {one}" for one in results]
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
    loaded = np.load("found.npz")
    np.testing.assert_array_equal(loaded["scores"] > 0, everything >= 0.8)
    np.testing.assert_array_equal(loaded["indices"] < 0, everything < 0.8)
    assert loaded["query_ids"].tolist() == [*"abcd"]
    neighbors("items.npz", "--min-score", "1", "--out", "none.csv")
    assert read(folder / "none.csv") == []


@pytest.mark.parametrize("source", ["implicit", "export", "items of export"])
def test_neighbors_reads_models_and_exports(folder, source):
    if source == "implicit":
        np.savez("als.npz", item_factors=ITEMS, user_factors=QUERIES)
        neighbors("als.npz", "--out", "found.csv")
        ids = np.arange(30)
    else:
        words = ["index", "export", "items.npz", "--users", "queries.npz", "--out", "served"]
        assert main([*words, "--form", "canonical"]) == 0
        name = "served" if source == "export" else "served/items.npy"
        neighbors(name, "--measure", "dot", "--out", "found.csv")
        ids = IDS
    rows = read(folder / "found.csv")
    assert [int(row["item"]) for row in rows[::K]] == ids.tolist()
    assert {int(row["neighbor"]) for row in rows} <= set(ids.tolist())


@pytest.mark.parametrize(
    "command",
    ["neighbors", *(pytest.param(name, marks=pytest.mark.slow) for name in ("audit", "compare"))],
)
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
    if command == "neighbors":  # the option applies to the items and to the queries
        (folder / "q.jsonl").write_text(json.dumps(rows[1]))
        files = ["v.jsonl", "--queries", "q.jsonl", "--out", "n.csv", "--k", "1"]
        assert main([command, *files, "--vector-column", "b"]) == 0
        cosines = ITEMS[:, :2] @ ITEMS[1, :2] / np.linalg.norm(ITEMS[:, :2], axis=1)
        assert (folder / "n.csv").read_text().split("\n")[1].split(",")[2] == str(
            IDS[np.argmax(cosines)]
        )
        first = (folder / "n.csv").read_text().split("\n")[1].split(",")[1:]
        # A .npy file has no columns, so the option does not apply to it.
        np.save("q.npy", ITEMS[1:2, :2])
        files[2] = "q.npy"
        assert main([command, *files, "--vector-column", "b"]) == 0
        assert (folder / "n.csv").read_text().split("\n")[1].split(",")[1:] == first


@pytest.mark.slow
def test_ids_of_an_implicit_model_come_from_a_file(folder, capsys):
    """Positions in a model are not matched with the ids in a table: row 1 may not be film 1."""
    np.savez("als.npz", item_factors=ITEMS, user_factors=QUERIES)
    ids = 7 * np.arange(30) + 1
    np.save("ids.npy", ids)
    lines = ["id,title,genre", *(f"{one},film {one},{'ab'[one % 2]}" for one in ids)]
    (folder / "kinds.csv").write_text("\n".join(lines))
    labels = ["--labels", "kinds.csv", "--label-column", "genre"]
    for words in (
        ["neighbors", "als.npz", "--show", "1", "--names", "kinds.csv"],
        ["audit", "als.npz", *labels, "--k", "3"],
        ["compare", "als.npz", *labels, "--measures", "dot"],
        ["calibrate", "als.npz", "--names", "kinds.csv"],
    ):
        command, *rest = words
        assert main([command, *rest]) == 2, words
        assert "must name rows by their numbers, 0 to 29" in capsys.readouterr().err
        assert main([command, *rest, "--ids", "ids.npy"]) in (0, 1), words
        capsys.readouterr()
    neighbors("als.npz", "--show", "8", "--names", "kinds.csv", "--ids", "ids.npy", "--json")
    first = json.loads(capsys.readouterr().out)[0]
    best = fastcos.top_k(ITEMS, k=1).indices[1, 0]
    assert (first["name"], first["neighbor"]) == ("film 8", ids[best])


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".txt"])
def test_ids_of_every_kind_of_file(folder, suffix, capsys):
    np.save("v.npy", ITEMS)
    named = [f"item {one}" for one in IDS]
    if suffix == ".npy":
        np.save("ids.npy", named)
    elif suffix == ".npz":
        np.savez("ids.npz", ids=named)
    else:
        Path("ids.txt").write_text("\n".join(named))
    neighbors("v.npy", "--show", "item 103", "--ids", f"ids{suffix}", "--json")
    assert json.loads(capsys.readouterr().out)[0]["item"] == "item 103"
    Path("bad.txt").write_text("\n".join([*named[:-1], named[3]]))
    assert main(["neighbors", "v.npy", "--ids", "bad.txt"]) == 2
    assert "ids must be distinct, got 'item 103' in rows 3 and 29" in capsys.readouterr().err


def test_show_prints_queries_and_texts_with_each_row_on_its_own(folder, capsys, monkeypatch):
    """At a width of 80 characters, each neighbour's id, text and score are still in one row."""
    records = [
        {"id": f"chunk-{one:05}", "text": f"what chunk {one} says " * 4, "embedding": row.tolist()}
        for one, row in zip(IDS.tolist(), ITEMS, strict=True)
    ]
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is an extra")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.Table.from_pylist(records), "chunks.parquet")
    words = ["chunks.parquet", "--show", "chunk-00103", "--text", "text"]
    neighbors(*words, "--json")
    document = json.loads(capsys.readouterr().out)
    assert all(row["neighbor_name"].startswith(f"what chunk {row['neighbor'][-3:]} says ")
               for row in document)  # fmt: skip
    monkeypatch.setattr("fastcos.cli.terminal.WIDTH_OF_FILES", 80)
    neighbors(*words)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    for row in document:
        assert any(row["neighbor"] in line and f"{row['score']:.3f}" in line for line in lines)
    neighbors("items.npz", "--queries", "queries.npz", "--show", "b", "--json")
    shown = json.loads(capsys.readouterr().out)
    expected = fastcos.top_k(QUERIES[1], ITEMS, K).indices[0]
    assert [(row["query"], row["neighbor"]) for row in shown] == [
        ("b", one) for one in IDS[expected]
    ]


def test_lists_go_to_stdout_as_csv(folder, capsys):
    neighbors("items.npz", "--queries", "queries.npz", "--min-score", "0.7", "--out", "-")
    out, err = capsys.readouterr()
    rows = list(csv.DictReader(out.splitlines()))
    indices = fastcos.top_k(QUERIES, ITEMS, K, min_score=0.7).indices
    assert [int(row["neighbor"]) for row in rows] == IDS[indices[indices >= 0]].tolist()
    assert f"wrote {len(rows)} neighbours for 4 queries (at most {K} per query)" in err


def test_ground_truth_reads_every_file_of_vectors(folder):
    neighbors("items.npz", "--queries", "queries.npz", "--out", "truth.npy")
    np.testing.assert_array_equal(np.load("truth.npy"), fastcos.top_k(QUERIES, ITEMS, K).indices)
