"""Tests of `fastcos index`, which writes the directory that SimilarityIndex opens."""

import csv
import json
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest

from fastcos import SimilarityIndex
from fastcos.cli.main import COMMANDS, main

RANDOM = np.random.default_rng(0)
ROWS = RANDOM.standard_normal((60, 6)).astype(np.float32)
IDS = 5 * np.arange(60) + 7


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.savez("items.npz", ids=IDS[:50], vectors=ROWS[:50])
    np.savez("more.npz", ids=IDS[45:], vectors=ROWS[45:] + 1)
    assert main(["index", "build", "items.npz", "shop"]) == 0
    return tmp_path


def table(path="neighbors.csv"):
    with Path(path).open(newline="") as file:
        return list(csv.DictReader(file))


def lists(rows, first):
    """Return a dictionary from each value of the column `first` to the ids of its neighbours."""
    results = {}
    for row in rows:
        results.setdefault(row[first], []).append(int(row["neighbor"]))
    return results


def test_there_are_at_most_ten_commands():
    assert len(COMMANDS) <= 10


@pytest.mark.slow
def test_next_commands_come_last_and_run(folder, capsys, monkeypatch):
    """Standard output and standard error are one stream, as on a terminal."""
    random = np.random.default_rng(0)
    pairs = np.argwhere(random.random((80, 40)) < 0.3)
    Path("seen.csv").write_text("user,item\n" + "".join(f"{u},{i}\n" for u, i in pairs.tolist()))
    monkeypatch.setattr("sys.stderr", sys.stdout)
    calls = [
        "fit seen.csv --rank 4 --out model",
        "audit model --out audited",
        "calibrate model --fpr 0.01",
        "index export model --out served",
        "index build model another",
    ]
    for line in calls:
        assert main(line.split()) == 0
        commands = capsys.readouterr().out.partition("\nnext:\n")[2].splitlines()
        assert commands, line
        for one in commands:
            program, *words = shlex.split(one.partition("  # ")[0])
            assert one.startswith("  ")
            if program != "python":  # that of FAISS
                assert main(words) == 0
        capsys.readouterr()


def test_index_is_built_changed_and_searched_from_the_shell(folder, capsys):
    assert main(["index", "add", "shop", "more.npz", "--json"]) == 0
    expected = {"index": "shop", "items": 60, "added": 10, "replaced": 5}
    assert json.loads(capsys.readouterr().out) == expected
    assert main(["index", "remove", "shop", str(IDS[0]), str(IDS[59])]) == 0
    Path("gone.txt").write_text(f"{IDS[1]}\n{IDS[2]}\n")
    assert main(["index", "remove", "shop", "--ids", "gone.txt"]) == 0
    assert main(["index", "search", "shop", "--k", "4"]) == 0
    vectors = np.concatenate([ROWS[:45], ROWS[45:] + 1])[3:59]
    same = SimilarityIndex().fit(vectors, IDS[3:59])
    truth = same.similar(IDS[3:59], 4).ids
    assert lists(table(), "item") == {
        str(one): row for one, row in zip(IDS[3:59], truth.tolist(), strict=True)
    }
    opened = SimilarityIndex.open("shop")
    assert opened.ids.tolist() == IDS[3:59].tolist()


def test_ids_in_a_text_may_have_spaces(folder):
    np.savez("films.npz", ids=[f"film {n}" for n in range(9)], vectors=ROWS[:9])
    assert main(["index", "build", "films.npz", "films"]) == 0
    Path("gone.txt").write_text("film 1\r\nfilm 8\n\nfilm 1")
    assert main(["index", "remove", "films", "--ids", "gone.txt"]) == 0
    remaining_ids = [f"film {n}" for n in (0, 2, 3, 4, 5, 6, 7)]
    assert SimilarityIndex.open("films").ids.tolist() == remaining_ids
    Path("some.txt").write_text("film 3\nfilm 5\n")
    assert main(["index", "search", "films", "--k", "2", "--only", "some.txt"]) == 0
    assert {row["neighbor"] for row in table()} == {"film 3", "film 5"}


@pytest.mark.parametrize(
    ("words", "flag"),
    [
        ("--queries q.npy --vector-column nonsense", "--vector-column"),
        ("--queries q.npy --id-column zzz", "--id-column"),
        ("--vector-column nonsense", "--vector-column"),
        ("--id-column zzz", "--id-column"),
        ("--queries q.npy --ids ids.txt", "--ids"),
    ],
)
def test_index_search_refuses_columns_of_no_file(folder, capsys, words, flag):
    np.save("q.npy", ROWS[:3])
    assert main(["index", "search", "shop", *words.split()]) == 2
    assert f"{flag} must be left out " in capsys.readouterr().err


def test_index_search_excludes_pairs_and_allows_some(folder):
    queries = RANDOM.standard_normal((3, 6)).astype(np.float32)
    np.savez("users.npz", ids=["ann", "bob", "eve"], vectors=queries)
    bought = {"ann": IDS[:40:2].tolist(), "eve": [IDS[3].item(), 999_999]}
    lines = [f"{user},{item}" for user, items in bought.items() for item in items]
    Path("bought.csv").write_text("user,item\n" + "\n".join(lines) + "\n")
    Path("some.txt").write_text("\n".join(map(str, IDS[:25])))
    words = ["index", "search", "shop", "--queries", "users.npz", "--k", "5"]
    assert main([*words, "--exclude", "bought.csv", "--only", "some.txt"]) == 0
    index = SimilarityIndex().fit(ROWS[:50], IDS[:50])
    for user, row in zip(("ann", "bob", "eve"), queries, strict=True):
        gone = bought.get(user, [])
        truth = index.search(row, 5, allowed_ids=IDS[:25], exclude_ids=gone).ids[0]
        assert lists(table(), "query")[user] == truth[truth >= 0].tolist()


def test_index_search_shows_names(folder, capsys):
    names = "".join(f"{one},film {one}\n" for one in IDS)
    Path("names.csv").write_text("id,title\n" + names)
    words = ["--show", str(IDS[4]), "--names", "names.csv", "--k", "2"]
    assert main(["index", "search", "shop", *words, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in rows] == [f"film {IDS[4]}"] * 2
    assert rows[0]["neighbor_name"] == f"film {rows[0]['neighbor']}"
    assert main(["neighbors", "shop"]) == 2
    assert "got a saved index, which `fastcos index search` and" in capsys.readouterr().err


def test_index_add_needs_ids_of_the_kind_of_the_index(folder, capsys):
    np.save("bare.npy", ROWS[:3])
    assert main(["index", "add", "shop", "bare.npy"]) == 2
    assert (
        "--ids must be passed, got None: the items of the index have ids" in capsys.readouterr().err
    )
    Path("ids.txt").write_text("7\n8\n9\n")
    assert main(["index", "add", "shop", "bare.npy", "--ids", "ids.txt"]) == 0
    assert len(SimilarityIndex.open("shop")) == 52


@pytest.mark.parametrize("source", ["file", "index"])
def test_duplicates_are_listed_with_texts_and_what_is_kept(folder, source, capsys):
    rows = ROWS.copy()
    rows[10] = rows[3] * 2
    rows[11] = rows[3] + 1e-3
    rows[40] = rows[20]
    if source == "file":
        np.savez("chunks.npz", ids=IDS, vectors=rows)
    else:
        SimilarityIndex().fit(rows, IDS).save("chunks.npz")
    lines = "".join(f"{one},what {one} says\n" for one in IDS)
    Path("texts.csv").write_text("id,text\n" + lines)
    words = ["index", "duplicates", "chunks.npz", "--min-score", "0.999", "--kept", "kept.txt"]
    assert main([*words, "--names", "texts.csv", "--text", "text"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("3 of 60 items are near-duplicates of others (pairs: 4, groups: 2).")
    assert f"what {IDS[40]} says" in out
    result = table("duplicates.csv")
    pairs = {(int(row["first"]), int(row["second"])): int(row["kept"]) for row in result}
    a, b, c = IDS[[3, 10, 11]]
    assert pairs == {(a, b): a, (a, c): a, (b, c): a, (IDS[20], IDS[40]): IDS[20]}
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    at = {one: row for row, one in enumerate(IDS.tolist())}
    for row in result:
        first, second = at[int(row["first"])], at[int(row["second"])]
        assert float(row["score"]) == pytest.approx(unit[first] @ unit[second], abs=1e-5)
        assert row["second_text"] == f"what {row['second']} says"
    remaining_ids = [int(one) for one in Path("kept.txt").read_text().split()]
    assert remaining_ids == [one for one in IDS if one not in (b, c, IDS[40])]


def test_duplicates_by_rate_use_the_calibrated_threshold(folder, capsys):
    rows = RANDOM.standard_normal((300, 6))
    rows[7] = rows[5]
    np.save("rows.npy", rows)
    assert main(["index", "duplicates", "rows.npy", "--fpr", "0.01", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["pairs"] <= 0.011 * 300 * 299 / 2
    scores = [float(row["score"]) for row in table("duplicates.csv")]
    assert scores[0] == pytest.approx(1)
    assert min(scores) >= document["threshold"]


def test_a_search_is_explained(folder, capsys):
    capsys.readouterr()
    assert main(["index", "explain", "shop", "--queries", "7", "--k", "3"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("7 queries x 50 items x 6 columns, k = 3")
    assert "the float64 score of every pair" in text
    assert main(["index", "explain", "shop", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["n_queries"], document["method"]) == (50, "score_all")
    assert document["seconds"] > 0
    assert main(["index", "explain", "shop", "--queries", "0"]) == 2
    assert "n_queries must be a whole number" in capsys.readouterr().err
