"""Tests of `fastcos neighbors` for benchmarks: their files, exact neighbours, recall with ties."""

import json

import numpy as np
import pytest

from fastcos.cli.main import main
from fastcos.io import FastcosFormatError, ann_files
from tests.oracles import dense as dense_oracle

RANDOM = np.random.default_rng(0)
# With small integers, many scores tie.
ITEMS = RANDOM.integers(-2, 3, (200, 6)).astype(np.float32)
QUERIES = RANDOM.integers(-2, 3, (15, 6)).astype(np.float32)
TRUTH = dense_oracle.top_k(QUERIES, ITEMS, 5, "dot")[0]


def write_vecs(path, rows):
    width = np.full((len(rows), 1), rows.shape[1], "<i4")
    kind = "<f4" if rows.dtype.kind == "f" else "<i4"
    path.write_bytes(np.hstack([width, rows.astype(kind).view("<i4")]).tobytes())


def write_bin(path, rows):
    kind = "<f4" if rows.dtype.kind == "f" else "<i4"
    path.write_bytes(np.array(rows.shape, "<i4").tobytes() + rows.astype(kind).tobytes())


WRITERS = {"vecs": write_vecs, "bin": write_bin}


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, rows in (("items", ITEMS), ("queries", QUERIES)):
        np.save(f"{name}.npy", rows)
        for kind, write in WRITERS.items():
            write(tmp_path / f"{name}.f{kind}", rows)
    return tmp_path


@pytest.mark.parametrize("kind", ["fvecs", "fbin", "npy"])
def test_ground_truth_writes_exact_neighbors(files, kind):
    out = {"fvecs": "truth.ivecs", "fbin": "truth.ibin", "npy": "truth.npy"}[kind]
    words = [
        f"items.{kind}",
        "--queries",
        f"queries.{kind}",
        "--k",
        "5",
        "--measure",
        "dot",
        "--out",
        out,
    ]
    assert main(["neighbors", *words]) == 0
    if kind == "npy":
        np.testing.assert_array_equal(np.load("truth.npy"), TRUTH)
        return
    WRITERS[kind[1:]](files / "expected", TRUTH)
    assert (files / out).read_bytes() == (files / "expected").read_bytes()


@pytest.mark.parametrize(
    ("source", "queries", "words"),
    [
        ("items.fbin", "queries.npy", "--vector-column a"),
        ("items.fbin", "queries.npy", "--id-column a"),
        ("items.fbin", "queries.fbin", "--vector-column a"),
        ("items.npy", "queries.npy", "--vector-column a"),
        ("items.npy", "queries.npy", "--ids ids.txt"),
    ],
)
def test_ground_truth_refuses_columns_of_no_file(files, capsys, source, queries, words):
    words = words.split()
    assert main(["neighbors", source, "--queries", queries, *words, "--out", "t.ibin"]) == 2
    assert f"{words[0]} must be left out " in capsys.readouterr().err
    assert not (files / "t.ibin").exists()


def test_ground_truth_reads_a_column_of_the_items_alone(files):
    np.savez("both.npz", a=ITEMS, b=ITEMS[::-1])
    words = ["--vector-column", "a", "--k", "5", "--measure", "dot", "--out", "truth.npy"]
    assert main(["neighbors", "both.npz", "--queries", "queries.npy", *words]) == 0
    np.testing.assert_array_equal(np.load("truth.npy"), TRUTH)


def test_ground_truth_maps_hdf5_and_writes_it(files, capsys):
    h5py = pytest.importorskip("h5py")
    with h5py.File("both.hdf5", "w") as opened:
        opened["train"] = ITEMS
        opened.create_dataset("test", data=QUERIES, chunks=(4, 3), compression="gzip")
        opened["neighbors"] = TRUTH
    words = ["both.hdf5", "--queries", "both.hdf5", "--k", "5", "--measure", "dot"]
    assert main(["neighbors", *words, "--out", "truth.h5", "--result", "both.hdf5"]) == 0
    assert "recall@5 of " in (out := capsys.readouterr().out)
    assert out.endswith(" is 1.0000.\n")
    with h5py.File("truth.h5") as opened:
        np.testing.assert_array_equal(opened["neighbors"], TRUTH)
    mapped = ann_files.read_vectors("ITEMS", "both.hdf5", "train")
    assert isinstance(mapped, np.memmap)
    np.testing.assert_array_equal(mapped, ITEMS)


def test_hdf5_without_rows_of_numbers_is_refused(tmp_path):
    h5py = pytest.importorskip("h5py")
    path = tmp_path / "v.hdf5"
    with h5py.File(path, "w") as opened:
        opened["line"], opened["cube"] = np.ones(3), np.ones((2, 2, 2))
        opened["empty"], opened["flags"] = np.ones((0, 3)), np.ones((2, 2), bool)
        opened.create_group("group")
    for name in ("line", "cube", "empty", "flags", "group"):
        with pytest.raises(FastcosFormatError, match=rf"rows \(n, d\) of numbers in '{name}'"):
            ann_files.read_vectors("ITEMS", path, name)


@pytest.mark.parametrize("kind", ["vecs", "bin"])
def test_a_file_may_hold_a_single_number(tmp_path, kind):
    one = np.full((1, 1), 0.5, np.float32)
    WRITERS[kind](tmp_path / f"v.f{kind}", one)
    rows = ann_files.read_vectors("ITEMS", tmp_path / f"v.f{kind}", "train")
    np.testing.assert_array_equal(rows, one)


def test_vectors_of_an_unknown_format_are_refused(tmp_path):
    path = tmp_path / "items.ivecs"
    write_vecs(path, TRUTH)
    with pytest.raises(ValueError, match=r"the suffix of ITEMS must be one of \.fvecs, \.fbin"):
        ann_files.read_vectors("ITEMS", path, "train")


def test_recall_counts_ties_and_repeated_numbers_once(files, capsys):
    keys = dense_oracle.keys(QUERIES, ITEMS, "dot")
    # Among items with equal scores, `other` prefers the highest item numbers, and TRUTH prefers the
    # lowest item numbers. Both lists are correct.
    order = np.argsort(-keys[:, ::-1], axis=1, kind="stable")[:, :5]
    other = keys.shape[1] - 1 - order
    assert (other != TRUTH).any()
    wrong = np.argsort(keys, axis=1)[:, :5]
    repeated = np.repeat(TRUTH[:, :1], 5, axis=1)
    for result, expected in ((other, 1.0), (wrong, 0.0), (repeated, 0.2), (TRUTH[:, ::-1], 1.0)):
        write_vecs(files / "found.ivecs", np.ascontiguousarray(result, "<i4"))
        words = ["items.fbin", "--queries", "queries.fvecs", "--k", "5", "--measure", "dot"]
        assert main(["neighbors", *words, "--result", "found.ivecs", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["recall"] == pytest.approx(expected)
    assert main(["neighbors", *words, "--result", "found.ivecs"]) == 0
    assert "recall@5 of " in (out := capsys.readouterr().out)
    assert out.endswith(" is 1.0000.\n")


def test_recall_of_a_table_is_by_id(files, capsys):
    for name, rows in (("items", ITEMS), ("queries", QUERIES)):
        ids = [f"{name}-{7 * number + 3}" for number in range(len(rows))]
        lines = [
            json.dumps({"id": one, "v": row.tolist()}) for one, row in zip(ids, rows, strict=True)
        ]
        (files / f"{name}.jsonl").write_text("\n".join(lines))
    words = ["neighbors", "items.jsonl", "--queries", "queries.jsonl", "--k", "5"]
    words += ["--measure", "dot"]
    assert main([*words, "--out", "found.csv"]) == 0
    capsys.readouterr()
    assert main([*words, "--result", "found.csv"]) == 0
    assert "recall@5 of " in (out := capsys.readouterr().out)
    assert out.endswith(" is 1.0000.\n")
    lines = (files / "found.csv").read_text().splitlines()
    (files / "found.csv").write_text("\n".join([lines[0], *lines[2:]]))  # without the nearest
    assert main([*words, "--result", "found.csv", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["recall"] == pytest.approx(74 / 75)
    (files / "found.csv").write_text("\n".join([*lines, "queries-3,6,other,0"]))
    assert main([*words, "--result", "found.csv"]) == 2
    assert "--result must hold only ids from SOURCE and from --queries" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "start"),
    [
        (["--out", "truth.npy", "--names", "n.csv"], "--names must be left out for benchmark"),
        (
            ["--out", "truth.csv", "--result", "few.npy"],
            "the suffix of --out must be one of .ivecs, .ibin, .npy",
        ),
        (["--out", "truth.npy", "--k", "0"], "--k must be a whole number from 1 to 200, got 0"),
        (["--out", "truth.npy", "--measure", "cosin"], "--measure must be"),
        (["--result", "items.npy"], "items.npy must hold rows (n, k) of whole numbers, got"),
        (["--result", "few.npy"], "--result must have at least 10 neighbours for each of 15"),
        (["--result", "far.npy"], "--result must hold item numbers from 0 to 199, or -1"),
        (["--result", "cut.ivecs"], "cut.ivecs is damaged: all rows must have 5 entries"),
        (["--result", "cut.ibin"], "cut.ibin is damaged: 15 rows of 5 are 308 bytes, not 307"),
        (["--result", "none.ivecs"], "none.ivecs: no such file"),
        (["--result", "truth.h5"], "truth.h5 must have a data set 'neighbors', got train"),
        (["--result", "cut.hdf5"], "cut.hdf5 is damaged: "),
        (["--result", "none.hdf5"], "none.hdf5: no such file"),
        (["--result", "empty.ibin"], "empty.ibin is damaged: it must begin with sizes above 0"),
    ],
)
def test_wrong_files_end_in_one_line_and_write_nothing(files, capsys, words, start):
    np.save("few.npy", TRUTH)
    np.save("far.npy", np.tile(np.arange(195, 205), (15, 1)))
    for kind, write in WRITERS.items():
        write(files / f"cut.i{kind}", TRUTH.astype("<i4"))
        content = (files / f"cut.i{kind}").read_bytes()
        (files / f"cut.i{kind}").write_bytes(content[:-1])
    (files / "empty.ibin").write_bytes(b"")
    if any(".h" in word for word in words):
        with pytest.importorskip("h5py").File("truth.h5", "w") as opened:
            opened["train"] = ITEMS
        (files / "cut.hdf5").write_bytes((files / "truth.h5").read_bytes()[:999])
    before = sorted(files.iterdir())
    assert main(["neighbors", "items.npy", "--queries", "queries.npy", *words]) == 2
    assert capsys.readouterr().err.startswith(f"fastcos neighbors: {start}")
    assert sorted(files.iterdir()) == before
