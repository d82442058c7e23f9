"""Commands never confuse ids from a file with positions, whatever the values of the ids are."""

import ast
import csv
import re
from pathlib import Path

import numpy as np
import pytest

import fastcos
from fastcos import SimilarityIndex, io
from fastcos.cli.main import COMMANDS, build_parser, main
from tests import sources

RANDOM = np.random.default_rng(0)
ROWS = RANDOM.standard_normal((10, 4))
NEW = RANDOM.standard_normal((3, 4))


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def as_npz(ids, rows):
    np.savez("given.npz", ids=np.array(ids), vectors=rows)
    return ["given.npz"]


def as_csv(ids, rows):
    lines = [",".join(map(str, (one, *row))) for one, row in zip(ids, rows.tolist(), strict=True)]
    Path("given.csv").write_text("id,a,b,c,d\n" + "\n".join(lines) + "\n")
    return ["given.csv"]


def as_parquet(ids, rows):
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(arrow.table({"id": ids, "vector": rows.tolist()}), "given.parquet")
    return ["given.parquet"]


def as_two_files(ids, rows):
    np.save("given.npy", rows)
    np.save("ids.npy", np.array(ids))
    return ["given.npy", "--ids", "ids.npy"]


def as_export(ids, rows):
    """Run `fastcos index export`, which writes a folder.

    The folder contains the ids even if they are 0, 1, 2.
    """
    np.savez("pair.npz", items=rows, users=np.eye(4), ids=np.array(ids))
    assert main(["index", "export", "pair.npz", "--form", "canonical", "--out", "served"]) == 0
    return ["served"]


# Each case is a pair of a format and an order of ids. The default tests use three orders in the
# format CSV, and only the order 9, 0, 4 in the other formats. All remaining cases are slow tests.
@pytest.mark.parametrize(
    ("write", "ids"),
    [
        pytest.param(
            write,
            ids,
            marks=[pytest.mark.slow]
            * (ids[0] != 9 or write not in (as_csv, as_two_files, as_export)),
        )
        for write in (as_npz, as_csv, as_parquet, as_two_files, as_export)
        for ids in ([0, 1, 2], [2, 1, 0], [0, 2, 1], [3, 4, 5], [1, 2, 3], [9, 0, 4])
    ],
)
def test_index_add_replaces_the_items_with_these_ids(write, ids, capsys):
    # One index has positions, and one has ids that look like positions.
    for build in (["rows.npy"], ["rows.npz"]):
        np.save("rows.npy", ROWS)
        np.savez("rows.npz", ids=np.arange(10), vectors=ROWS)
        index = f"index-{build[0][-3:]}"
        assert main(["index", "build", *build, index]) == 0
        capsys.readouterr()
        assert main(["index", "add", index, *write(ids, NEW)]) == 0
        assert "items added: 0, replaced: 3" in capsys.readouterr().err
        opened = SimilarityIndex.open(index)
        assert sorted(opened.ids.tolist()) == list(range(10))
        unit = NEW / np.linalg.norm(NEW, axis=1, keepdims=True)
        rows = opened.vectors_of(ids)
        if write is not as_export:  # which has another basis
            np.testing.assert_allclose(rows, NEW, rtol=1e-6)
            assert opened.search(unit, k=1).ids[:, 0].tolist() == ids
        others = np.setdiff1d(np.arange(10), ids)
        np.testing.assert_allclose(opened.vectors_of(others), ROWS[others], rtol=1e-6)


def test_index_add_without_ids_appends_positions(capsys):
    np.save("rows.npy", ROWS)
    np.save("new.npy", NEW)
    assert main(["index", "build", "rows.npy", "positions"]) == 0
    assert main(["index", "add", "positions", "new.npy"]) == 0
    assert SimilarityIndex.open("positions").ids.tolist() == list(range(13))
    np.savez("own.npz", ids=np.arange(10) + 5, vectors=ROWS)
    assert main(["index", "build", "own.npz", "own"]) == 0
    assert main(["index", "add", "own", "new.npy"]) == 2
    assert (
        "ids must be passed, got None: the items of the index have ids" in capsys.readouterr().err
    )


def test_files_say_whether_they_have_ids():
    for write in (as_npz, as_csv, as_parquet):
        (path,) = write([0, 1, 2], NEW)
        assert io.read_vectors(path).has_ids
        assert io.read_factors(path).has_ids
    np.save("rows.npy", ROWS)
    assert not io.read_vectors("rows.npy").has_ids
    assert not io.read_factors("rows.npy").has_ids
    as_two_files([0, 1, 2], NEW)
    assert io.read_factors("given.npy", ids="ids.npy").has_ids


def neighbors_table(path="neighbors.csv"):
    with Path(path).open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("name", ["chunk_id", "key", None])
def test_text_is_of_the_column_of_ids_that_the_vectors_have(name, capsys):
    """The column of ids may have any name; without such a column, the ids are the row numbers."""
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    keys = [f"k{n}" for n in RANDOM.permutation(10)]
    words = [f"words {n}" for n in range(10)]
    columns = {"text": words, "embedding": np.repeat(ROWS[:5], 2, axis=0).tolist()}
    if name is not None:
        columns = {name: keys} | columns
    parquet.write_table(arrow.table(columns), "chunks.parquet")
    ids = keys if name is not None else [str(n) for n in range(10)]
    id_options = ["--id-column", name if name else ""]
    options = [id_options] if name in ("key", None) else [[], id_options]
    for more in options:
        of_text = ["chunks.parquet", "--text", "text", *more]
        assert main(["index", "duplicates", *of_text, "--min-score", "0.999"]) == 0
        for row in neighbors_table("duplicates.csv"):
            for side in ("first", "second"):
                assert row[f"{side}_text"] == words[ids.index(row[side])]
        assert main(["neighbors", *of_text, "--k", "3"]) == 0
        for row in neighbors_table():
            assert row["neighbor_name"] == words[ids.index(row["neighbor"])]
            assert row["name"] == words[ids.index(row["item"])]


def test_wrong_names_are_refused_before_the_work(capsys):
    np.savez("rows.npz", ids=np.arange(10), vectors=ROWS)
    Path("names.csv").write_text("key,label\n1,a\n2,b\n")
    assert main(["index", "build", "rows.npz", "shop"]) == 0
    calls = {
        ("index", "duplicates", "rows.npz", "--min-score", ".5", "--text", "t"): "--text",
        ("index", "duplicates", "rows.npz", "--min-score", ".5", "--names", "names.csv"): "--names",
        ("neighbors", "rows.npz", "--names", "names.csv"): "--names must have one column of ids of",
        ("index", "search", "shop", "--text", "t"): "--text must be a column of the table of",
        ("calibrate", "rows.npz", "--names", "names.csv"): "--names must have one column of ids",
        ("audit", "rows.npz", "--popularity", "names.csv"): "--popularity must have one column of",
    }
    for words, message in calls.items():
        capsys.readouterr()
        assert main([*words]) == 2, words
        error = capsys.readouterr().err
        assert message in error
        assert "--item " not in error
        assert not list(Path().glob("*duplicates.csv"))


@pytest.mark.slow
def test_numbers_that_begin_at_1_are_warned_about(capsys):
    np.save("rows.npy", RANDOM.standard_normal((100, 4)))
    table = "".join(f"{n},name {n},{'ab'[n % 2]}\n" for n in range(1, 100))
    Path("names.csv").write_text("item,name,kind\n" + table)
    np.savez("als.npz", item_factors=ROWS, user_factors=RANDOM.standard_normal((20, 4)))
    Path("seen.csv").write_text("user,item\n" + "".join(f"{u},{u % 9 + 1}\n" for u in range(1, 20)))
    for words, n_warnings in (
        (["neighbors", "rows.npy", "--names", "names.csv"], 1),
        (["audit", "rows.npy", "--labels", "names.csv", "--label-column", "kind"], 1),
        (["recommend", "als.npz", "seen.csv"], 2),
    ):
        capsys.readouterr()
        assert main(words) == 0
        error = capsys.readouterr().err
        assert error.count("but not row number 0. fastcos assumes") == n_warnings
    Path("ids.txt").write_text("".join(f"{n}\n" for n in range(1, 101)))
    capsys.readouterr()
    assert main(["neighbors", "rows.npy", "--ids", "ids.txt", "--names", "names.csv"]) == 0
    assert "not row number 0" not in capsys.readouterr().err
    with pytest.warns(UserWarning, match="not row number 0"):
        io.read_names("names.csv", np.arange(100))


def test_recommend_names_the_option_for_users(capsys):
    np.savez("als.npz", item_factors=ROWS, user_factors=RANDOM.standard_normal((20, 4)))
    Path("items.txt").write_text("".join(f"{n + 5}\n" for n in range(10)))
    Path("seen.csv").write_text("user,item\n610,5\n611,6\n")
    assert main(["recommend", "als.npz", "seen.csv", "--ids", "items.txt"]) == 2
    assert "if no ids are given (--user-ids FILE), got '610'" in capsys.readouterr().err


def parsers():
    """Return a dictionary from each command or subcommand (a tuple of words) to its options."""
    results = {}

    def walk(parser, words):
        results[words] = set(parser._option_string_actions)
        for action in parser._actions:
            for name, one in (
                (getattr(action, "choices", None) or {}).items()
                if isinstance(getattr(action, "choices", None), dict)
                else ()
            ):
                walk(one, (*words, name))

    walk(build_parser(COMMANDS), ())
    return results


@pytest.mark.slow
def test_options_in_messages_exist():
    """The texts in the library's source mention only options that exist.

    In the file of a command, a text mentions only options of this command. A text that also names
    another command may mention options of all commands.
    """
    known = parsers()
    everywhere = set().union(*known.values())
    wrong = []
    for file in sorted(Path(fastcos.__file__).parent.rglob("*.py")):
        own = [options for words, options in known.items() if words[:1] == (file.stem,)]
        is_command = file.parent.name == "cli" and file.stem in COMMANDS
        for text in texts_in(file):
            options = re.findall(r"(?<![\w(-])--[a-z][a-z-]*[a-z](?![\w-])", text)
            # The output may suggest another command, and a text without spaces may be a part of
            # this suggestion.
            is_part = " " not in text
            of_others = is_part or any(f"fastcos {one}" in text for one in COMMANDS)
            allowed = set().union(*own) if is_command and not of_others else everywhere
            wrong += [(file.name, one, text[:90]) for one in options if one not in allowed]
    assert not wrong


def texts_in(file):
    """Yield the texts of a file; in an f-string, NAME replaces each inserted value."""
    parts = set()
    tree = sources.parsed(file)
    for node in sources.nodes(tree, ast.JoinedStr):
        parts |= set(map(id, node.values))
        pieces = [getattr(one, "value", "") for one in node.values]
        yield "".join(one if isinstance(one, str) else "NAME" for one in pieces)
    for node in sources.nodes(tree, ast.Constant):
        if isinstance(node.value, str) and id(node) not in parts:
            yield node.value
