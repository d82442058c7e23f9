"""Shards made in one pass over a table contain the same matrix and ids as the whole table."""

import gzip

import numpy as np
import pytest

from fastcos import storage
from fastcos.cli.main import main
from fastcos.io import ingest_interactions, read_interactions
from fastcos.linalg.shards import InteractionShards
from fastcos.models.linear_mf import LinearMF


def table(folder, n=3000, users=200, items=50, texts=True):
    rng = np.random.default_rng(0)
    user, item = rng.integers(0, users, n), rng.integers(0, items, n)
    value = rng.integers(1, 20, n) / 4
    name = (lambda i: f"u{i}") if texts else str
    lines = [f"{name(u)},{i},{v}" for u, i, v in zip(user, item, value, strict=True)]
    path = folder / "ratings.csv"
    path.write_text("user,movieId,rating\n" + "\n".join(lines) + "\n")
    return path


def assert_same(shards, data):
    assert shards.shape == data.X.shape
    result = np.vstack([rows.toarray() for _, rows in shards.blocks()])
    np.testing.assert_array_equal(result, data.X.toarray())
    np.testing.assert_array_equal(shards.user_ids, data.user_ids)
    np.testing.assert_array_equal(shards.item_ids, data.item_ids)
    assert shards.dtype == data.X.dtype


@pytest.mark.parametrize("texts", [True, False])
@pytest.mark.parametrize(
    "duplicates",
    ["sum", *(pytest.param(name, marks=pytest.mark.slow) for name in ("last", "max"))],
)
def test_ingest_equals_read_interactions(tmp_path, texts, duplicates):
    path = table(tmp_path, texts=texts)
    shards = ingest_interactions(path, tmp_path / "x", duplicates=duplicates, entries_per_shard=400)
    assert len(shards) > 5
    assert_same(shards, read_interactions(path, duplicates=duplicates))
    assert_same(InteractionShards(tmp_path / "x"), read_interactions(path, duplicates=duplicates))
    assert sorted(file.name for file in tmp_path.iterdir()) == ["ratings.csv", "x"]


def test_ingest_in_several_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr("fastcos.io.ingest.RECORDS_PER_BLOCK", 100)
    path, calls = table(tmp_path), []
    shards = ingest_interactions(
        path, tmp_path / "x", entries_per_shard=700, progress=lambda *call: calls.append(call)
    )
    assert_same(shards, read_interactions(path))
    size, start = path.stat().st_size, calls.index((0, 3000))
    for part, total in ((calls[:start], size), (calls[start:], 3000)):
        assert part == sorted(part)
        assert part[-1] == (total, total)
        assert {number for _, number in part} == {total}


def test_ingest_compressed_text_without_values(tmp_path):
    path = tmp_path / "seen.tsv.gz"
    path.write_bytes(gzip.compress(b"customer\tproduct\nann\t7\nbob\t7\nbob\t9\n"))
    shards = ingest_interactions(path, tmp_path / "x")
    assert_same(shards, read_interactions(path))
    assert shards.user_ids.tolist() == ["ann", "bob"]


def test_ingest_keeps_float64_values(tmp_path):
    path = tmp_path / "seen.csv"
    path.write_text("user,item,value\na,1,0.1\nb,1,2\nb,2,3\n")
    shards = ingest_interactions(path, tmp_path / "x", entries_per_shard=1)
    assert_same(shards, read_interactions(path))
    assert shards.dtype == np.float64


def test_ingest_parquet(tmp_path, monkeypatch):
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is an extra")
    from pyarrow import parquet

    monkeypatch.setattr("fastcos.io.parquet.ROWS_PER_CHUNK", 300)
    rng = np.random.default_rng(0)
    columns = {"user": rng.integers(0, 90, 2000), "item": rng.integers(0, 20, 2000)}
    path = tmp_path / "seen.parquet"
    parquet.write_table(arrow.table(columns), path)
    shards = ingest_interactions(path, tmp_path / "x", entries_per_shard=500)
    assert_same(shards, read_interactions(path))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("user,item,value\n", "must have at least one row"),
        ("user,item,value\na,1,2\nb,,3\n", "column 'item' must have an id in every row"),
        ("user,item,value\na,1,2\nb,2,x\n", r"finite numbers, got 'x' \(row 3"),
        ("user,item,value\na,1,2\nb,2\n", "must have 3 fields in every row"),
        ("user,value\na,1\n", "item must be given"),
        ("user,item\n" + "u" * 501 + ",1\n", "ids of at most 500 characters"),
    ],
)
def test_ingest_refuses_unsuitable_tables(tmp_path, text, message):
    path = tmp_path / "seen.csv"
    path.write_text(text)
    with pytest.raises(storage.FastcosFormatError, match=message):
        ingest_interactions(path, tmp_path / "x")
    assert [file.name for file in tmp_path.iterdir()] == ["seen.csv"]


def test_ingest_refuses_an_occupied_directory(tmp_path):
    path = table(tmp_path)
    with pytest.raises(ValueError, match="out must be a new or an empty directory"):
        ingest_interactions(path, tmp_path)
    with pytest.raises(ValueError, match="duplicates must be one of sum, last, max"):
        ingest_interactions(path, tmp_path / "x", duplicates="error")


def test_ingest_and_fit_commands(tmp_path, capsys):
    path = table(tmp_path)
    shards = ["--shards", str(tmp_path / "x")]
    assert main(["fit", str(path), *shards, "--rank", "5", "--out", str(tmp_path / "l")]) == 0
    assert main(["fit", str(tmp_path / "x"), "--rank", "5", "--out", str(tmp_path / "m")]) == 0
    assert main(["fit", str(path), "--rank", "5", "--out", str(tmp_path / "n")]) == 0
    result, expected = (LinearMF.load(tmp_path / name / "model") for name in "mn")
    np.testing.assert_allclose(result.singular_values_, expected.singular_values_, rtol=1e-6)
    np.testing.assert_allclose(result.components_, expected.components_, atol=1e-5)
    assert main(["fit", str(tmp_path / "x"), "--user", "u", "--out", str(tmp_path / "o")]) == 2
    assert "--user must be left out for a folder of shards" in capsys.readouterr().err


def test_ingest_reports_a_full_disk_as_such(tmp_path):
    resource = pytest.importorskip("resource", reason="limits of POSIX")
    source = table(tmp_path)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))  # bytes of a file
    try:
        with pytest.raises(OSError, match="File too large"):
            ingest_interactions(source, tmp_path / "x")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [file.name for file in tmp_path.iterdir()] == [source.name]
