"""Files of vectors and models by other libraries are read whole; damaged files are refused."""

import contextlib
import csv
import gzip
import json
import struct
import zipfile

import numpy as np
import pytest

from fastcos.io import (
    FastcosFormatError,
    common_rows,
    holds_vectors,
    read_factors,
    read_interactions,
    read_popularity,
    read_vectors,
)
from fastcos.io.factors import strip_biases

WORDS = ["the", "naïve", "a/b"]
VECTORS = np.array([[0.5, -1.25, 3.0], [1e-3, 2.0, 0.0], [7.0, 8.0, -9.5]], np.float32)


def text_lines():
    return [" ".join([w, *map(repr, v.tolist())]) for w, v in zip(WORDS, VECTORS, strict=True)]


def binary(n=3, d=3, words=WORDS, between=b"\n"):
    rows = [w.encode() + b" " + struct.pack("<3f", *v) for w, v in zip(words, VECTORS, strict=True)]
    return f"{n} {d}\n".encode() + between.join(rows) + between


def check(path):
    table = read_vectors(path)
    np.testing.assert_array_equal(table.vectors, VECTORS)
    assert table.ids.tolist() == WORDS
    assert table.vectors.dtype == np.float32


def test_text_vectors_with_and_without_a_first_line(tmp_path):
    for name, head in (("glove.txt", []), ("w2v.vec", ["3 3"])):
        (tmp_path / name).write_text("\n".join([*head, *text_lines()]) + "\n", "utf8")
        check(tmp_path / name)
    with gzip.open(tmp_path / "w2v.vec.gz", "wt", encoding="utf8") as file:
        file.write("\n".join(["3 3", *text_lines()]))
    check(tmp_path / "w2v.vec.gz")


def test_text_vectors_allow_spaces_in_words(tmp_path):
    (tmp_path / "v.txt").write_text("a 1 2 3\n. . . 4 5 6\n")
    # The id in the first line contains no space. The first line therefore shows the number of
    # columns of numbers.
    assert read_vectors(tmp_path / "v.txt").ids.tolist() == ["a", ". . ."]


@pytest.mark.parametrize("between", [b"\n", b""])
def test_binary_vectors(tmp_path, between):
    (tmp_path / "v.bin").write_bytes(binary(between=between))
    check(tmp_path / "v.bin")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("v.txt", b"the 1 2\nof 3\n", r"a word and 2 numbers in every line, got 'of 3' in line 2"),
        ("v.txt", b"the 1 x\n", "a word and 2 numbers in every line, got 'the 1 x' in line 1"),
        ("v.txt", b"the 1 nan\n", "vectors must be finite"),
        ("v.vec", b"2 2\nthe 1 2\n", "must hold 2 vectors, got 1"),
        ("v.vec", b"-5 -3\nthe 1 2\n", "counts of at most 18 digits in line 1, got '-5 -3'"),
        ("v.vec", b"", "must hold at least one vector, got 0"),
        ("v.txt", b"the 1 2\nthe 3 4\n", "words must be distinct, got 'the' again in line 2"),
        ("v.txt", b"the 1 2_0\n", "a word and 2 numbers in every line"),
        ("v.txt", b"9" * 5000 + b" 3\n", "must declare counts of at most 18 digits in line 1"),
        ("v.txt", b"9" * 18 + b" " + b"9" * 18 + b"\na 1\n", "a word and 9+ numbers in every"),
        ("v.txt", b"a" * 2**23 + b" 1 2\n", "words of at most 500 characters, got 8388608"),
        ("v.bin", b"1 1\n" + b"a" * 9000 + b" 0000\n", "words of at most 500 characters, got 9000"),
        ("v.pt", b"PK", r"a pickle \(.pt\), which may run code"),
        ("v.bin", b"hello\n", r"binary format of word2vec, got a first line b'hello"),
        (
            "v.bin",
            binary()[:-9],
            "binary format of word2vec, got a file that contains only 2 complete vectors",
        ),
        ("v.bin", b"999999999999 300\n", "bytes for 999999999999 vectors"),
        ("v.xyz", b"", "must be a file of vectors"),
    ],
)
def test_word_vectors_refuse_damaged_files(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(FastcosFormatError, match=message) as caught:
        read_vectors(tmp_path / name)
    assert "\n" not in str(caught.value)


def test_vectors_in_parquet(tmp_path):
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is an extra")
    from pyarrow import parquet

    flat = arrow.array(VECTORS.ravel())
    columns = {
        "list": arrow.array(VECTORS.tolist(), arrow.list_(arrow.float32())),
        "fixed": arrow.FixedSizeListArray.from_arrays(flat, 3),
    }
    for column in columns.values():
        parquet.write_table(arrow.table({"word": WORDS, "vector": column}), tmp_path / "v.parquet")
        check(tmp_path / "v.parquet")
    wide = {"id": [5, 6, 7], **{f"d{j}": VECTORS[:, j] for j in range(3)}}
    parquet.write_table(arrow.table(wide), tmp_path / "wide.parquet")
    result = read_vectors(tmp_path / "wide.parquet")
    np.testing.assert_array_equal(result.vectors, VECTORS)
    assert result.ids.tolist() == [5, 6, 7]
    ragged = arrow.table({"vector": [[1.0], [1.0, 2.0]]})
    for table, message in (
        (ragged, "lists of one length"),
        (arrow.table({"word": WORDS}), "one column of lists of numbers"),
    ):
        parquet.write_table(table, tmp_path / "bad.parquet")
        with pytest.raises(FastcosFormatError, match=message):
            read_vectors(tmp_path / "bad.parquet")


def test_vectors_in_safetensors(tmp_path):
    numpy_files = pytest.importorskip("safetensors.numpy", reason="safetensors is an extra")
    numpy_files.save_file({"weight": VECTORS}, tmp_path / "v.safetensors")
    np.testing.assert_array_equal(read_vectors(tmp_path / "v.safetensors").vectors, VECTORS)
    pair = {"items": VECTORS, "users": VECTORS[:2]}
    numpy_files.save_file(pair, tmp_path / "pair.safetensors")
    assert read_factors(tmp_path / "pair.safetensors").users.shape == (2, 3)
    (tmp_path / "v.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0{broken}")
    with pytest.raises(FastcosFormatError, match="must be a complete safetensors file"):
        read_vectors(tmp_path / "v.safetensors")


def documents(embedding):
    """Return a table for a search over texts: ids, vectors and texts. Two texts are equal."""
    return {"id": [7, 5, 6], "text": ["one", "one", "two"], "embedding": embedding}


def write_table(path, columns):
    """Write the columns to a file, in the format that the suffix of its path names."""
    if path.suffix == ".jsonl":
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        path.write_text("\n".join(map(json.dumps, rows)) + "\n")
    elif path.suffix == ".csv":
        with path.open("w", newline="") as file:
            lines = csv.writer(file)
            lines.writerows([columns, *zip(*columns.values(), strict=True)])
    else:
        arrow = pytest.importorskip("pyarrow", reason="pyarrow is an extra")
        table = arrow.table(columns)
        if path.suffix == ".parquet":
            from pyarrow.parquet import write_table

            write_table(table, path)
            return
        kind = arrow.ipc.new_stream if path.suffix == ".arrow" else arrow.ipc.new_file
        with kind(path, table.schema) as writer:
            writer.write_table(table)


@pytest.mark.parametrize("suffix", [".parquet", ".arrow", ".feather", ".jsonl", ".csv"])
def test_tables_of_texts_and_vectors(tmp_path, suffix):
    path = tmp_path / f"documents{suffix}"
    write_table(path, documents(VECTORS.tolist()))
    assert holds_vectors(path)
    table = read_vectors(path)
    np.testing.assert_array_equal(table.vectors, VECTORS)
    assert table.ids.tolist() == [7, 5, 6]
    np.testing.assert_array_equal(read_factors(path).items, VECTORS)
    with pytest.raises(FastcosFormatError, match=r"text must be distinct|ids must be distinct"):
        read_vectors(path, id_column="text")
    assert read_vectors(path, id_column="").ids.tolist() == [0, 1, 2]
    write_table(
        path, {**documents(VECTORS.tolist()), "title": [[1.0, 2.0], [3.0, 4.0], [5.0, 7.0]]}
    )
    with pytest.raises(
        FastcosFormatError, match=r"vector_column must be given for .*: there are several"
    ):
        read_vectors(path)
    chosen = read_vectors(path, vector_column="title", id_column="id").vectors
    np.testing.assert_array_equal(chosen, [[1, 2], [3, 4], [5, 7]])
    for wrong in ({"vector_column": "text"}, {"id_column": "key"}):
        with pytest.raises(FastcosFormatError, match=f"{next(iter(wrong))} must"):
            read_vectors(path, **{"vector_column": "title", **wrong})
    ragged = [[1.0, 2.0], [3.0], [4.0, 5.0]]
    write_table(path, documents(ragged))
    with pytest.raises(FastcosFormatError, match=r"of one length|2 numbers in every row"):
        read_vectors(path)


def test_csv_of_one_number_per_column(tmp_path):
    rows = np.column_stack([VECTORS, VECTORS, VECTORS]).astype(np.float64)
    path = tmp_path / "v.csv"
    np.savetxt(path, rows, delimiter=",")
    np.testing.assert_array_equal(read_vectors(path).vectors, rows)
    assert holds_vectors(path)
    header = ",".join(["item_id", *(f"d{j}" for j in range(9))])
    np.savetxt(path, np.column_stack([[30, 10, 20], rows]), delimiter=",", header=header,
               comments="", fmt="%.17g")  # fmt: skip
    table = read_vectors(path)
    np.testing.assert_array_equal(table.vectors, rows)
    assert table.ids.tolist() == [30, 10, 20]
    path.write_text("user,item,rating\n1,2,3\n4,5,6\n")
    assert not holds_vectors(path)
    with pytest.raises(FastcosFormatError, match="a row per vector, got a table of users and"):
        read_vectors(path)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[1, 2]", "a JSON object in every line, got list in line 2"),
        ("{broken", "a JSON object in every line"),
        (
            '{"id": 1, "v": [1, "x"]}',
            "column 'v' must have a list of numbers in every row, got .* \\(row 2",
        ),
        ('{"id": 1, "v": [1, null]}', "a list of numbers in every row, got .*None"),
        ('{"id": 1, "v": [1, 1e999]}', "must hold finite numbers, got inf"),
        ('{"id": 1, "v": [1, NaN]}', "must hold finite numbers, got nan"),
        ('{"id": 1}', "column 'v' must have a list of numbers in every row, got a blank"),
        ('{"id": null, "v": [1, 2]}', "column 'id' must have an id in every row, got a blank"),
        ('{"id": 0, "v": [1, 2]}', "must be distinct"),
        ("[" * 100_000, "a JSON object in every line"),
    ],
)
def test_jsonl_refuses_damaged_lines(tmp_path, line, message):
    (tmp_path / "v.jsonl").write_text('{"id": 0, "v": [1, 2]}\n' + line + "\n")
    with pytest.raises(FastcosFormatError, match=message):
        read_vectors(tmp_path / "v.jsonl")


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_one_of_several_arrays_by_name(tmp_path, suffix):
    path, arrays = tmp_path / f"two{suffix}", {"user": VECTORS[:2], "item": VECTORS}
    if suffix == ".npz":
        np.savez(path, key=np.array(["a", "b", "c"]), **arrays)
        assert read_vectors(path, vector_column="item", id_column="key").ids.tolist() == [*"abc"]
    else:
        numpy_files = pytest.importorskip("safetensors.numpy", reason="safetensors is an extra")
        numpy_files.save_file(arrays, path)
    with pytest.raises(FastcosFormatError, match=r"vector_column must be given for .*user"):
        read_vectors(path)
    np.testing.assert_array_equal(read_vectors(path, vector_column="item").vectors, VECTORS)
    assert read_factors(path, vector_column="user").items.shape == (2, 3)
    with pytest.raises(FastcosFormatError, match="vector_column must name an array"):
        read_vectors(path, vector_column="query")


def test_small_floats_in_safetensors(tmp_path):
    pytest.importorskip("safetensors", reason="safetensors is an extra")
    path, words = tmp_path / "v.safetensors", (VECTORS.view(np.uint32) >> 16).astype("<u2")
    for kind, data in (("BF16", words.tobytes()), ("F8_E4M3", bytes(9)), ("F4", bytes(5))):
        shape = [3, 3] if kind != "F4" else [2, 5]
        tensor = {"dtype": kind, "shape": shape, "data_offsets": [0, len(data)]}
        header = json.dumps({"w": tensor}).encode()
        path.write_bytes(len(header).to_bytes(8, "little") + header + data)
        if kind == "BF16":
            expected = (words.astype(np.uint32) << 16).view(np.float32)
            np.testing.assert_array_equal(read_vectors(path).vectors, expected)
            continue
        with pytest.raises(FastcosFormatError, match=rf"got {kind} \(save it as float16\)"):
            read_vectors(path)


@pytest.mark.long
def test_npz_of_many_bombs_is_refused(tmp_path):
    """Each array alone expands to less than the limit, but both together exceed it."""
    with zipfile.ZipFile(tmp_path / "v.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("a", "b"):
            with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                for _ in range(10):
                    file.write(bytes(2**26))
    with pytest.raises(FastcosFormatError, match="expands more than 100-fold, to 1,3"):
        read_vectors(tmp_path / "v.npz")


def test_vectors_of_an_export_keep_their_ids(tmp_path):
    np.save(tmp_path / "items.npy", VECTORS)
    np.save(tmp_path / "ids.npy", np.array([30, 10, 20]))
    assert read_vectors(tmp_path / "items.npy").ids.tolist() == [0, 1, 2]
    (tmp_path / "export.json").write_text("{}")
    for path in (tmp_path, tmp_path / "items.npy"):
        assert read_vectors(path).ids.tolist() == [30, 10, 20]
        assert read_factors(path).ids.tolist() == [30, 10, 20]


def trained(kind, n=30, p=20, d=4):
    """Return factors with the columns that the package implicit appends.

    Item 5 has no interactions, so its row is 0. If `kind` is "lmf", the row of user 3 is also 0.
    """
    rng = np.random.default_rng(1)
    users, items = rng.standard_normal((n, d)), rng.standard_normal((p, d))
    bias, ones = rng.standard_normal((max(n, p), 1)), np.ones((max(n, p), 1))
    if kind == "bpr":
        users, items = np.hstack([users, ones[:n]]), np.hstack([items, bias[:p]])
    elif kind == "lmf":
        users = np.hstack([users, ones[:n], bias[:n]])
        items = np.hstack([items, bias[:p], ones[:p]])
        users[3] = 0
    items[5] = 0
    return items.astype(np.float32), users.astype(np.float32)


@pytest.mark.parametrize(("kind", "note"), [("als", ()), ("bpr", "BPR"), ("lmf", "logistic")])
def test_read_factors_strips_biases_of_implicit(tmp_path, kind, note):
    items, users = trained(kind)
    np.savez(tmp_path / "m.npz", user_factors=users, item_factors=items, factors=4, dtype="float32")
    warned = (
        contextlib.nullcontext() if kind == "als" else pytest.warns(UserWarning, match="biases")
    )
    with warned:
        factors = read_factors(tmp_path / "m.npz")
    np.testing.assert_array_equal(factors.items, items[:, :4])
    np.testing.assert_array_equal(factors.users, users[:, :4])
    assert (not factors.notes) if not note else note in factors.notes[0]
    # Only the biases change the predictions.
    if kind == "bpr":
        difference = users @ items.T - factors.users @ factors.items.T
        np.testing.assert_allclose(difference, np.tile(items[:, 4], (30, 1)), atol=1e-5)


def test_read_factors_strips_biases_of_two_files(tmp_path):
    items, users = trained("bpr")
    np.save(tmp_path / "items.npy", items)
    np.save(tmp_path / "users.npy", users)
    with pytest.warns(UserWarning, match="biases"):
        factors = read_factors(tmp_path / "items.npy", tmp_path / "users.npy")
    assert factors.items.shape == (20, 4)
    assert factors.scoring_embeddings().items.shape == (20, 5)
    # The last column of the items contains biases. Only the constant last column of the users shows
    # that these numbers are biases. Without the users, the last column of the items is therefore
    # kept like every other column.
    assert read_factors(tmp_path / "items.npy").items.shape == (20, 5)
    logistic, users = trained("lmf")
    np.save(tmp_path / "items.npy", logistic)
    np.save(tmp_path / "users.npy", users)
    with pytest.warns(UserWarning, match="biases"):
        factors = read_factors(tmp_path / "items.npy", tmp_path / "users.npy")
    assert factors.items.shape == (20, 4)


def test_read_factors_keeps_a_column_of_ones_of_one_matrix(tmp_path):
    rows = np.column_stack([np.arange(12.0).reshape(4, 3), np.ones(4)])
    np.save(tmp_path / "items.npy", rows)
    np.savez(tmp_path / "items.npz", rows)
    for name in ("items.npy", "items.npz"):
        factors = read_factors(tmp_path / name)
        np.testing.assert_array_equal(factors.items, rows)
        assert factors.notes == ()


def test_files_of_vectors_are_known_by_their_suffix_and_exports_by_their_files(tmp_path):
    for suffix in (".npy", ".safetensors", ".vec", ".bin"):
        assert holds_vectors(tmp_path / f"v{suffix}") is True
    assert holds_vectors(tmp_path) is False
    for name in ("items.npy", "export.json"):
        assert holds_vectors(tmp_path) is False
        (tmp_path / name).touch()
    assert holds_vectors(tmp_path) is True


def test_binary_vectors_of_one_letter_and_no_line_end_are_the_smallest(tmp_path):
    rows = b"".join(b"%c " % letter + struct.pack("<f", 0.5) for letter in b"abcdef")
    (tmp_path / "v.bin").write_bytes(b"6 1\n" + rows)
    table = read_vectors(tmp_path / "v.bin")
    assert table.ids.tolist() == list("abcdef")
    np.testing.assert_array_equal(table.vectors, np.full((6, 1), 0.5))
    (tmp_path / "v.bin").write_bytes(b"6 1\n" + rows[:-1])
    with pytest.raises(FastcosFormatError):
        read_vectors(tmp_path / "v.bin")


def test_strip_biases_leaves_at_least_one_column():
    """The narrowest model of BPR has one factor and a bias."""
    factor, bias, ones = np.full((4, 1), 0.5), np.full((4, 1), 0.25), np.ones((4, 1))
    items, users, (note,) = strip_biases(np.hstack([factor, bias]), np.hstack([2 * factor, ones]))
    np.testing.assert_array_equal(items, factor)
    np.testing.assert_array_equal(users, 2 * factor)
    assert "BPR" in note
    items, users, (note,) = strip_biases(
        np.hstack([factor, bias, ones]), np.hstack([2 * factor, ones, bias])
    )
    np.testing.assert_array_equal(items, factor)
    np.testing.assert_array_equal(users, 2 * factor)
    assert "logistic" in note


def test_strip_biases_keeps_ordinary_columns():
    rng = np.random.default_rng(2)
    items, users = rng.standard_normal((9, 3)), rng.standard_normal((7, 3))
    assert strip_biases(items, users) == (items, users, ())
    assert strip_biases(np.ones((4, 1)), np.ones((3, 1)))[2] == ()
    assert strip_biases(np.zeros((4, 3)), np.zeros((3, 3)))[2] == ()


def test_read_factors_transposes_components(tmp_path):
    from sklearn.decomposition import TruncatedSVD

    X = np.random.default_rng(3).random((40, 15))
    svd = TruncatedSVD(4, algorithm="arpack").fit(X)
    np.savez(
        tmp_path / "svd.npz", components_=svd.components_, singular_values_=svd.singular_values_
    )
    np.save(tmp_path / "users.npy", svd.transform(X))
    factors = read_factors(tmp_path / "svd.npz", tmp_path / "users.npy")
    assert factors.items.shape == (15, 4)
    assert "the items are components_.T" in factors.notes[0]
    np.testing.assert_allclose(factors.users @ factors.items.T, svd.transform(X) @ svd.components_)


def test_read_factors_refuses_conflicting_users(tmp_path):
    items, users = trained("als")
    np.savez(tmp_path / "m.npz", user_factors=users, item_factors=items)
    np.save(tmp_path / "users.npy", users[:, :3])
    np.save(tmp_path / "items.npy", items)
    with pytest.raises(ValueError, match="users must be None if"):
        read_factors(tmp_path / "m.npz", tmp_path / "users.npy")
    with pytest.raises(ValueError, match="users must have as many columns as items"):
        read_factors(tmp_path / "items.npy", tmp_path / "users.npy")


def test_common_rows_match_by_id():
    def rows(ids, old):
        return [part.tolist() for part in common_rows("new", np.array(ids), "old", np.array(old))]

    assert rows(["b", "a", "c"], ["c", "x", "b"]) == [[0, 2], [2, 0]]
    assert rows([7, 5], [5, 6, 7]) == [[0, 1], [2, 0]]
    assert rows([0, 1, 2], [0, 1, 2]) == [[0, 1, 2], [0, 1, 2]]
    with pytest.raises(FastcosFormatError, match=r"old must hold as many items as new \(3\), beca"):
        rows([0, 1, 2], [0, 1])
    with pytest.raises(FastcosFormatError, match="old must hold items of new"):
        rows(["a"], ["b"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("item,count\na,1\na,2\n", "must have one row per item"),
        ("item,count\na,-1\n", "must hold numbers of at least 0, got -1"),
        ("item,count\nz,1\n", "must contain at least one of the items"),
        ("item,colour\na,1\n", "column must be given"),
        ("item,count\na,many\n", "count"),
    ],
)
def test_read_popularity_refuses_wrong_tables(tmp_path, text, message):
    (tmp_path / "p.csv").write_text(text)
    with pytest.raises(FastcosFormatError, match=message):
        read_popularity(tmp_path / "p.csv", ["a", "b"])


def test_read_popularity_matches_by_id(tmp_path):
    (tmp_path / "p.csv").write_text("item,popularity\nb,3\nx,9\n")
    popularity = read_popularity(tmp_path / "p.csv", ["a", "b"])
    assert (popularity.values.tolist(), popularity.n_missing, popularity.n_unknown) == (
        [0, 3],
        1,
        1,
    )


def test_npz_with_an_array_twice_is_refused(tmp_path):
    path = tmp_path / "v.npz"
    np.savez(path, vectors=np.eye(3))
    np.save(tmp_path / "vectors.npy", np.zeros((3, 3)))
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.write(tmp_path / "vectors.npy", "vectors.npy")
    with pytest.raises(FastcosFormatError, match="it holds 'vectors"):
        read_vectors(path)


def test_npz_with_a_hidden_array_is_refused(tmp_path):
    path = tmp_path / "v.npz"
    np.savez(path, vectors=np.eye(3), ids=["a", "b", "c"])
    content = bytearray(path.read_bytes())
    entry = content.index(b"PK\x01\x02")
    after = content.index(b"PK\x01\x02", entry + 1)
    # Increase the stored length of the first entry's comment, so that the comment includes the
    # second entry.
    content[entry + 32 : entry + 34] = (content.index(b"PK\x05\x06") - after).to_bytes(2, "little")
    path.write_bytes(content)
    with pytest.raises(FastcosFormatError, match="directory declares 2 arrays, got 1"):
        read_vectors(path)


def test_parquet_texts_must_be_utf8(tmp_path):
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is an extra")
    from pyarrow import parquet

    sizes, letters = np.array([0, 1, 2], np.int32).tobytes(), b"\xb2a"
    buffers = [None, arrow.py_buffer(sizes), arrow.py_buffer(letters)]
    broken = arrow.Array.from_buffers(arrow.string(), 2, buffers)
    columns = {"item": broken, "vector": arrow.array([[1.0], [2.0]])}
    parquet.write_table(arrow.table(columns), tmp_path / "v.parquet")
    with pytest.raises(FastcosFormatError, match="'item' must be UTF-8 text"):
        read_vectors(tmp_path / "v.parquet")
    columns = {"user": arrow.array([1, 2]), "item": broken}
    parquet.write_table(arrow.table(columns), tmp_path / "r.parquet")
    with pytest.raises(FastcosFormatError, match=r"'item' must be UTF-8 text"):
        read_interactions(tmp_path / "r.parquet")


def test_parquet_names_the_row_of_another_length(tmp_path):
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is an extra")
    parquet = pytest.importorskip("pyarrow.parquet")
    for lists, message in (
        ([[1.0, 2.0], [3.0, 4.0], [5.0]], "got 1 numbers in row 3 (2 in row 1)"),
        ([[1.0, 2.0], None, [5.0, 6.0]], "got a blank (row 2)"),
        ([[], [1.0], [2.0]], "a list of numbers in every row, got [] (row 1)"),
    ):
        parquet.write_table(arrow.table({"v": lists}), tmp_path / "v.parquet")
        with pytest.raises(FastcosFormatError) as error:
            read_vectors(tmp_path / "v.parquet")
        assert message in str(error.value)
