"""The functions that read interactions, labels and vectors agree with a loop over CSV cells."""

import contextlib
import csv
import functools
import gzip
import json
import os
import subprocess
import sys
import zipfile
from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp
from hypothesis import given, settings, strategies as st

from fastcos import io
from fastcos.storage import FastcosFormatError
from tests.io import refusals
from tests.robustness.damaged_files import FORMATS

ROOT = Path(__file__).parents[2]
ROWS = "user,item,value\n10,b,1\n9,a,2.5\n10,a,-1\n"
DENSE = [[2.5, 0.0], [-1.0, 1.0]]


def written(folder, name, text):
    return refusals.write(Path(folder) / name, text)


def zipped(folder, name, members):
    path = Path(folder) / name
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, text in members.items():
            archive.writestr(member, text)
    return path


refused = functools.partial(refusals.refused, reader=io.read_interactions)


def as_read(data):
    return data.user_ids.tolist(), data.item_ids.tolist(), data.X.toarray().tolist()


@pytest.mark.parametrize(
    "text",
    [
        ROWS,
        ROWS.replace("\n", "\r\n"),
        ROWS.replace("\n", "\r"),
        "\ufeff" + ROWS,
        ROWS.replace(",", "\t"),
        ROWS.replace(",", ";"),
        ROWS.replace(",", "::"),
        ROWS.encode("utf-16"),
        ROWS.replace(",", "\t").encode("utf-32"),
        ROWS.rstrip("\n"),
        ROWS + "\n\n",
        'user,item,value\n"10","b","1"\n9,a,2.50\n10,"a",-1e0\n',
        "value,item,note,user\n1,b,x,10\n2.5,a,,9\n-1,a,y,10\n",
    ],
)
def test_read_interactions_of_every_dialect(tmp_path, text):
    expected = [9, 10], ["a", "b"], DENSE
    assert as_read(io.read_interactions(written(tmp_path, "r.csv", text))) == expected
    content = text if isinstance(text, bytes) else text.encode()
    packed = written(tmp_path, "r.csv.gz", gzip.compress(content))
    assert as_read(io.read_interactions(packed)) == expected
    folder = {"d/": "", "__MACOSX/d/r.csv": "?", "d/r.csv": text}
    assert as_read(io.read_interactions(zipped(tmp_path, "r.zip", folder))) == expected


def test_columns_are_recognised_by_unique_names(tmp_path):
    path = written(tmp_path, "r.csv", "User_ID,movieId,item,quantity,rating\n1,2,3,4,5\n")
    refused(path, "item must be given", "movieId, item")
    refused(path, "value must be given", "quantity, rating", item="item")
    refused(path, "user must name one column", "got 'nobody'", user="nobody")
    refused(path, "different columns", item="User_ID", value="rating")
    X, users, items = io.read_interactions(path, item="movieId", value="rating")
    assert (users.tolist(), items.tolist(), X.toarray().tolist()) == ([1], [2], [[5.0]])
    assert io.read_interactions(path, item="item", value="").X.toarray().tolist() == [[1.0]]
    path = written(tmp_path, "s.csv", "who,what\n1,2\n")
    refused(path, "user must be given", "who, what")
    refused(written(tmp_path, "d.csv", "user,item,item\n1,2,3\n"), "item must be given")


def test_header_false_names_columns_by_position(tmp_path):
    path = written(tmp_path, "u.data", "196\t242\t3\t881250949\n186\t302\t3\t891717742\n")
    refused(path, "line 1 must name the columns", "196, 242, 3", "header=False (--no-header)")
    refused(path, "line 1 must name the columns", user="196", item="242", value="3")
    X, users, items = io.read_interactions(path, user="1", item="2", value="3", header=False)
    assert (users.tolist(), items.tolist()) == ([186, 196], [242, 302])
    assert X.toarray().tolist() == [[0, 3], [3, 0]]
    broken = written(tmp_path, "v.data", "1\tx\t3\t4\n1\tx\t?\t4\n")
    refused(broken, "(row 2)", user="1", item="2", value="3", header=False)


def test_ids_with_leading_zeros_are_strings(tmp_path):
    path = written(tmp_path, "r.csv", "user,item\n007,10\n7,9\n10,9\n")
    data = io.read_interactions(path)
    assert data.user_ids.tolist() == ["007", "10", "7"]
    assert data.item_ids.tolist() == [9, 10]
    for odd in ("-0", "+7", "1_0", "\u0667", str(2**63)):
        path = written(tmp_path, "r.csv", f"user,item\n{odd},1\n3,2\n")
        assert set(io.read_interactions(path).user_ids.tolist()) == {odd, "3"}


def test_whole_numbers_have_one_spelling_as_ids(tmp_path):
    for spelling in (" 7", "7 ", "7.0", "7.000"):
        path = written(tmp_path, "r.csv", f"user,item\n{spelling},1\n3,2\n")
        assert io.read_interactions(path).user_ids.tolist() == [3, 7]
        refused(
            written(tmp_path, "r.csv", f"user,item\n{spelling},1\n7,2\n"),
            "must always write an id in the same way", "(rows 2, 3)",
        )  # fmt: skip
    for decimal in ("7.5", "1e3", "70.10"):
        path = written(tmp_path, "r.csv", f"user,item\n3,1\n{decimal},1\n")
        refused(path, "whole numbers or texts", decimal, "(row 3)")
        path = written(tmp_path, "r.csv", f"user,item\nV3,1\n{decimal},1\n")
        assert io.read_interactions(path).user_ids.tolist() == sorted(["V3", decimal])


def test_blank_words_are_blanks_among_numbers_alone(tmp_path):
    for word in ("nan", "NaN", "NA", "null", "None", "inf", "-Infinity", ""):
        path = written(tmp_path, "r.csv", f"user,item\n3,1\n{word},2\n")
        refused(path, "column 'user' must have an id in every row", "(row 3)")
        if word:
            path = written(tmp_path, "r.csv", f"user,item\nann,1\n{word},2\n")
            assert set(io.read_interactions(path).user_ids.tolist()) == {"ann", word}


def test_quotes_in_tab_separated_files_are_those_of_csv(tmp_path):
    text = 'user\titem\n1\t"a ""b"""\n2\t"c\td"\n3\t5" disk\n'
    path = written(tmp_path, "r.tsv", text)
    assert io.read_interactions(path).item_ids.tolist() == ['5" disk', 'a "b"', "c\td"]
    path = written(tmp_path, "r.tsv", 'user\titem\n1\t"a" b\n2\t"\n')
    refused(path, "line 2", "quotes=False")
    assert io.read_interactions(path, quotes=False).item_ids.tolist() == ['"', '"a" b']


def test_double_colons_of_movielens_are_a_delimiter(tmp_path):
    path = written(tmp_path, "ratings.dat", '1::a "b"::5::978300760\n2::x:y::3::978302109\n')
    named = {"user": "1", "item": "2", "value": "3"}
    data = io.read_interactions(path, header=False, **named)
    assert as_read(data) == ([1, 2], ['a "b"', "x:y"], [[5, 0], [0, 3]])
    assert as_read(io.read_interactions(path, header=False, delimiter="::", **named)) == (
        as_read(data)
    )
    refused(path, "user must be given")
    with pytest.raises(ValueError, match="delimiter must be one character or '::', got"):
        io.read_interactions(path, delimiter=":::")
    refused(written(tmp_path, "r.dat", "user::item\n1::a\x1fb\n"), "control character U+001F")


def test_the_columns_that_were_read_are_named(tmp_path):
    path = written(tmp_path, "r.csv", "who,Item ID,rating,note\n1,2,3,x\n")
    data = io.read_interactions(path, user="who")
    assert data.columns == {"users": "who", "items": "Item ID", "values": "rating"}
    assert io.read_interactions(path, user="who", value="").columns["values"] is None


@pytest.mark.parametrize(
    ("policy", "expected"), [("sum", 3.5), ("last", 0.5), ("max", 2.0)], ids=str
)
def test_duplicates_follow_the_policy(tmp_path, policy, expected):
    path = written(tmp_path, "r.csv", "user,item,value\n1,1,1\n1,1,2\n2,1,9\n1,1,.5\n")
    X = io.read_interactions(path, duplicates=policy).X
    assert X.toarray().tolist() == [[expected], [9.0]]
    refused(path, "once", "(rows 3, 5)", duplicates="error")
    with pytest.raises(ValueError, match="duplicates must be one of sum, last, max"):
        io.read_interactions(path, duplicates="x")


def test_text_values_are_refused_with_file_and_rows(tmp_path):
    lines = ["user,item,value", *(f"{i},{i % 7},1" for i in range(5000))]
    lines[1233] = "5,6,many"
    path = written(tmp_path, "r.csv", "\n".join(lines))
    refused(path, "r.csv", "column 'value' must hold finite numbers, got 'many' (row 1234)")
    for at in (1300, 2000, 3000, 4000, 4500):
        lines[at - 1] = "5,6,"
    path = written(tmp_path, "r.csv", "\n".join(lines))
    refused(path, "got 'many' (rows 1234, 1300, 2000, 3000, 4000 and 1 more)")


@pytest.mark.parametrize("value", ["", "nan", "NaN", "inf", "-inf", "1e999", "1_0", "null", "1 2"])
def test_non_finite_values_are_refused(tmp_path, value):
    path = written(tmp_path, "r.csv", f"user,item,value\n1,1,1\n1,2,{value}\n")
    refused(path, "finite", repr(value) if value else "a blank", "(row 3)")


@pytest.mark.parametrize(
    ("text", "fragments"),
    [
        ("", ["header line", "empty"]),
        ("\n1,2\n", ["header line"]),
        ("user,item\n", ["at least one row"]),
        ("user,item\n\n\n", ["at least one row"]),
        ("user item\n1 2\n", ["one column in line 1"]),
        ("user,item\n1,2\n3\n4,5,6\n", ["2 fields in every row, got 1 (rows 3, 4)"]),
        ("user,item\n1,2\n\n,3\n  ,4\n", ["column 'user' must have an id", "(row 4)"]),
        ('user,item\n1,"a\n2,b\n', ["line 3", "unexpected end"]),
        ('user,item\n1,"a"b\n', ["line 2"]),
        (b"user,item\n1,2\n1,caf\xe9\n", ["column 'item' must be UTF-8", "(row 3)"]),
        (b"user,item\n1,a\0\n1,a\n", ["zero byte", "(row 2)"]),
        ("user,item\n1,2\n".encode("utf-16-le"), ["zero byte in line 1"]),
        ("user,item\n1,2\n".encode("utf-16")[:-1], ["utf-16 text"]),
        ("user,item\n1," + "x" * 501 + "\n", ["at most 500", "(row 2)"]),
        ('user,item\n1,"two\nlines"\n,3\n', ["(row 4)"]),
        ('user,item,value\n"a\r\nb",1,1\n\n1,2,x\n', ["'x' (row 5)"]),
    ],
)
def test_unsuitable_text_is_refused_with_its_line(tmp_path, text, fragments):
    refused(written(tmp_path, "r.csv", text), "r.csv", *fragments)


def test_invalid_utf8_is_ignored_in_columns_not_read(tmp_path):
    path = written(tmp_path, "r.csv", b"user,item,comment\n1,2,caf\xe9\n")
    assert io.read_interactions(path).X.nnz == 1


@pytest.mark.slow
def test_endless_lines_and_decompression_bombs_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("fastcos.io.streams.LONGEST_LINE", 1 << 19)
    monkeypatch.setattr("fastcos.io.streams.LARGEST_FREE_TEXT", 1 << 20)
    path = written(tmp_path, "r.csv.gz", gzip.compress(b"user,item\n" + b"x" * (1 << 20)))
    refused(path, "line of more than")
    path = written(tmp_path, "r.csv.gz", gzip.compress(b"user,item\n" + b"1,2\n" * (1 << 19)))
    refused(path, "expand")
    path = zipped(tmp_path, "r.zip", {"r.csv": b"user,item\n" + b"1,2\n" * (1 << 19)})
    refused(path, "expand")


def test_parquet_bombs_are_refused(tmp_path, monkeypatch):
    arrow, parquet = (pytest.importorskip(name) for name in ("pyarrow", "pyarrow.parquet"))
    path = tmp_path / "r.parquet"
    parquet.write_table(arrow.table({"user": [1] * 10**6, "item": [2] * 10**6}), path)
    assert path.stat().st_size < 10_000
    assert io.read_interactions(path).X.nnz == 1
    monkeypatch.setattr("fastcos.io.streams.LARGEST_FREE_SIZE", 1 << 20)
    refused(path, " or to 100 times its size on disk, whichever is larger", "got 0.0 GiB")


@pytest.mark.parametrize("name", ["r.csv", "r.jsonl", "r.parquet"])
def test_progress_is_checked_before_the_file_is_opened(tmp_path, name):
    with pytest.raises(TypeError, match="progress must be callable or None, got True"):
        io.read_interactions(tmp_path / name, progress=True)


@pytest.mark.parametrize("code", [0xD800, 0xDBFF, 0xDC00, 0xDC7F, 0xDD00, 0xDFFF])
def test_half_a_character_of_json_is_refused(tmp_path, code):
    path = written(tmp_path, "r.jsonl", f'{{"user": "a\\u{code:04x}", "item": 1}}')
    refused(path, "column 'user' must be UTF-8 text")


@pytest.mark.parametrize("byte", [0x80, 0xBF, 0xFF])
def test_a_byte_that_is_not_utf_8_is_refused_and_shown(tmp_path, byte):
    path = written(tmp_path, "r.csv", b"user,item\na" + bytes([byte]) + b",1\n")
    refused(path, "column 'user' must be UTF-8 text", f"a\\x{byte:02x}")


@pytest.mark.slow
def test_progress_counts_stored_bytes(tmp_path):
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 10**9, (8_000, 2)).tolist()
    text = "user,item,note\n" + "".join(f"{u},{i},{rng.bytes(99).hex()}\n" for u, i in rows)
    plain = written(tmp_path, "r.csv", text)
    packed = written(tmp_path, "r.csv.gz", gzip.compress(text.encode()))
    members = zipped(tmp_path, "r.zip", {"large": "x" * 10**6, "r.csv": text})
    with zipfile.ZipFile(members) as archive:
        size = archive.getinfo("r.csv").compress_size
    sizes = {plain: plain.stat().st_size, packed: packed.stat().st_size, members: size}
    for path, size in sizes.items():
        calls = []
        member = "r.csv" if path == members else None
        io.read_interactions(path, member=member, progress=lambda *call, to=calls: to.append(call))
        done, totals = zip(*calls, strict=True)
        assert list(done) == sorted(done)
        assert len(set(done)) > 3
        assert set(totals) == {size} == {done[-1]}


def test_member_must_name_one_of_several_files(tmp_path):
    path = zipped(tmp_path, "r.zip", {"d/a.csv": ROWS, "README": "hello"})
    refused(path, "member must name one file", "d/a.csv, README", "got None")
    refused(path, "got 'b.csv'", member="b.csv")
    assert io.read_interactions(path, member="a.csv").X.toarray().tolist() == DENSE
    assert io.read_interactions(path, member="d/a.csv").X.toarray().tolist() == DENSE
    refused(zipped(tmp_path, "e.zip", {}), "it is empty")
    refused(written(tmp_path, "r.csv", ROWS), "member must be None", member="a.csv")
    with pytest.raises(FileNotFoundError):
        io.read_interactions(tmp_path / "absent.csv")


# All formats spell these ids in the same way. The strategy st.characters() would draw the same
# characters, but takes a second to compute a table of Unicode.
codes = st.one_of(st.integers(1, 0x7F), st.integers(1, 0xD7FF), st.integers(0xE000, 0x10FFFF))
ids = st.text(codes.map(chr), min_size=1, max_size=6).map("x{}".format)
numbers = st.integers(-(10**20), 10**20).map(str)
cells = st.tuples(st.one_of(ids, numbers), st.one_of(ids, numbers), st.integers(-8, 8))


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(st.lists(cells, min_size=1, max_size=30), st.randoms(use_true_random=False))
def test_read_interactions_inverts_csv_in_any_row_order(rows, random):
    truth = defaultdict(float)
    for user, item, value in rows:
        truth[user, item] += value
    shuffled = random.sample(rows, len(rows))
    with TemporaryDirectory() as folder:
        results = []
        for order in (rows, shuffled):
            path = Path(folder) / "r.csv"
            with path.open("w", newline="", encoding="utf-8") as file:
                csv.writer(file).writerows([("user", "item", "value"), *order])
            results.append(as_read(io.read_interactions(path)))
    assert results[0] == results[1]
    users, items, X = results[0]
    assert sorted(map(str, users)) == sorted({row[0] for row in rows})
    assert users == sorted(users)
    assert items == sorted(items)
    for i, user in enumerate(users):
        for j, item in enumerate(items):
            assert X[i][j] == truth.get((str(user), str(item)), 0.0)


def test_sums_do_not_depend_on_row_order(tmp_path):
    values = [0.1, 0.2, 0.3, 1e16, -1e16, 0.7]
    results = set()
    for shift in range(6):
        rows = "".join(f"1,1,{v}\n" for v in values[shift:] + values[:shift])
        X = io.read_interactions(written(tmp_path, "r.csv", "user,item,value\n" + rows)).X
        results.add(float(X.data[0]))
    assert len(results) == 1


def test_values_are_float32_only_if_exact(tmp_path):
    for value, dtype in (("0.5", np.float32), ("0.1", np.float64), ("1e300", np.float64)):
        path = written(tmp_path, "r.csv", f"user,item,value\n1,1,{value}\n")
        X = io.read_interactions(path).X
        assert X.dtype == dtype
        assert X.data[0] == float(value)


def test_zero_values_keep_their_rows_and_columns(tmp_path):
    X = io.read_interactions(written(tmp_path, "r.csv", "user,item,value\n1,1,0\n2,2,1\n")).X
    assert (X.shape, X.nnz) == ((2, 2), 1)


@pytest.mark.parametrize("layout", ["csr", "csc", "coo"])
def test_scipy_npz_and_matrix_market_files_are_read(tmp_path, layout):
    X = sp.random_array((30, 20), density=0.2, rng=np.random.default_rng(0), format=layout)
    sp.save_npz(tmp_path / "x.npz", X)
    scipy.io.mmwrite(tmp_path / "x.mtx", X, precision=17)
    written(tmp_path, "x.mtx.gz", gzip.compress((tmp_path / "x.mtx").read_bytes()))
    for name in ("x.npz", "x.mtx", "x.mtx.gz"):
        data = io.read_interactions(tmp_path / name)
        np.testing.assert_array_equal(data.X.toarray(), X.toarray())
        assert data.user_ids.tolist() == list(range(30))
        assert data.item_ids.tolist() == list(range(20))
    with pytest.raises(ValueError, match="user must be None for a matrix file"):
        io.read_interactions(tmp_path / "x.npz", user="a")


def test_inconsistent_declarations_are_refused(tmp_path):
    head = "%%MatrixMarket matrix coordinate real general\n"
    for size in ("99999999999 5 1", "5 5 99999999999", "5 5 2"):
        refused(written(tmp_path, "x.mtx", f"{head}{size}\n1 1 1.0\n"), "x.mtx")
    refused(written(tmp_path, "x.mtx", f"{head}2 2 1\n3 1 1.0\n"), "x.mtx")
    refused(written(tmp_path, "x.mtx", f"{head}2 2 1\n1 1 nan\n"), "finite")
    refused(
        written(tmp_path, "x.mtx", head.replace("real", "complex") + "1 1 1\n1 1 1 1\n"), "real"
    )
    # these crash SciPy's reader
    refused(written(tmp_path, "x.mtx", f"{head}2 2 1\n1 1 1\0\n"), "not contain NUL bytes")
    crooked = written(tmp_path, "x.mtx", f"{head}2 2 1\n1 1 1 7")
    assert io.read_interactions(crooked).X.toarray().tolist() == [[1, 0], [0, 0]]
    plain = {"indptr": [0, 1, 2], "indices": [0, 1], "data": [1, 1], "shape": [2, 2]}
    wrong = [
        {"shape": [2, 10**12]},
        {"shape": [10**12, 2]},
        {"shape": [3, 2]},
        {"shape": [2.0, 2.0]},
        {"indices": [0, 5]},
        {"indices": [0, -1]},
        {"indices": [0.0, 1.0]},
        {"indptr": [0, 2, 1]},
        {"indptr": [0, 1, 9]},
        {"data": [1.0, np.nan]},
        {"data": ["a", "b"]},
        {"format": "dia"},
    ]
    for change in wrong:
        np.savez(tmp_path / "x.npz", **(plain | change))
        refused(tmp_path / "x.npz", "x.npz")
    np.savez(tmp_path / "x.npz", indptr=[0, 1])
    refused(tmp_path / "x.npz", "without shape, data, indices")
    np.savez(tmp_path / "x.npz", **plain, extra=np.array([{}], dtype=object))
    refused(tmp_path / "x.npz", "Python objects")


def test_damaged_files_are_refused_or_read_correctly(tmp_path):
    rng = np.random.default_rng(3)
    text = "user,item,value\n" + "".join(f"{i % 91},{i % 53},{i % 5 + 1}\n" for i in range(3000))
    X = io.read_interactions(written(tmp_path, "t.csv", text)).X
    sp.save_npz(tmp_path / "t.npz", X)
    sp.save_npz(tmp_path / "stored.npz", X, compressed=False)
    np.save(tmp_path / "t.npy", X.toarray())
    originals = {
        "t.csv.gz": gzip.compress(text.encode()),
        "t.zip": zipped(tmp_path, "t.zip", {"t.csv": text}).read_bytes(),
        "t.npz": (tmp_path / "t.npz").read_bytes(),
        "stored.npz": (tmp_path / "stored.npz").read_bytes(),
    }
    for name, whole in originals.items():
        damaged = [whole[: len(whole) * part // 32] for part in range(32)]
        for at in rng.integers(0, len(whole), 30):
            flipped = bytearray(whole)
            flipped[at] ^= 1 << int(rng.integers(8))
            damaged.append(bytes(flipped))
        for content in damaged:
            path = written(tmp_path, name, content)
            with contextlib.suppress(FastcosFormatError):
                interactions = io.read_interactions(path)
                np.testing.assert_array_equal(interactions.X.toarray(), X.toarray())
    whole = (tmp_path / "t.npy").read_bytes()
    for part in range(32):
        refused(
            written(tmp_path, "u.npy", whole[: len(whole) * part // 32]), reader=io.read_vectors
        )
    refused(written(tmp_path, "u.npy", whole + b"x"), reader=io.read_vectors)


def survived(seed, cases, *formats):
    done = subprocess.run(
        [sys.executable, "-m", "tests.robustness.damaged_files", str(seed), str(cases), *formats],
        capture_output=True,
        text=True,
        timeout=500,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits the address space by /proc")
def test_randomly_damaged_files_do_not_crash():
    result = survived(0, 30, "npy", "npz", "mtx", "csv.gz", "half a search")
    assert all(sum(counts) == 30 and counts[0] > 3 for counts in result.values())


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="limits the address space by /proc")
@pytest.mark.parametrize("form", FORMATS)
def test_2000_damaged_files_of_every_format_do_not_crash(form):
    if "parquet" in form or "arrow" in form:
        pytest.importorskip("pyarrow", reason="pyarrow is an extra")
    if form == "safetensors":
        pytest.importorskip("safetensors", reason="safetensors is an extra")
    assert sum(survived(1, 2000, form)[form]) == 2000


def test_parquet_without_pyarrow_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    refused(written(tmp_path, "r.parquet", b"PAR1"), "pip install pyarrow")


def test_column_names_that_are_not_utf8_are_refused(tmp_path):
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is an extra")
    table = arrow.table({"user": [1, 2], "item": [3, 4]})
    path = tmp_path / "r.arrow"
    with arrow.ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table)
    path.write_bytes(path.read_bytes().replace(b"item", b"it\xff\xff"))
    refused(path, "must be a complete Parquet or Arrow file")


def test_parquet_equals_text(tmp_path):
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is an extra")
    from pyarrow import parquet

    columns = {"user": [10, 9, 10], "item": ["b", "a", "a"], "value": [1.0, 2.5, -1.0]}
    path = tmp_path / "r.parquet"
    for user in (arrow.int64(), arrow.float64(), arrow.string()):
        values = columns | {"user": arrow.array(columns["user"]).cast(user)}
        parquet.write_table(arrow.table(values), path)
        assert as_read(io.read_interactions(path)) == ([9, 10], ["a", "b"], DENSE)
    parquet.write_table(arrow.table(columns | {"value": [1.0, None, 2.0]}), path)
    refused(path, "column 'value' must hold finite numbers, got a blank (row 2)")
    parquet.write_table(arrow.table(columns | {"value": [1.0, 2.0, np.nan]}), path)
    refused(path, "finite", "(row 3)")
    parquet.write_table(arrow.table(columns | {"user": [1.5, 2.0, 3.0]}), path)
    refused(path, "whole numbers", "(row 1)")
    parquet.write_table(arrow.table(columns | {"value": ["1", "2", "3"]}), path)
    assert io.read_interactions(path).X.data.tolist() == [2, 3, 1]  # as in CSV
    parquet.write_table(arrow.table(columns | {"value": ["1", "2", "x"]}), path)
    refused(path, "column 'value' must hold finite numbers, got 'x' (row 3)")
    whole = path.read_bytes()
    for part in range(0, 16):
        refused(written(tmp_path, "u.parquet", whole[: len(whole) * part // 16]), "Parquet")


def test_read_vectors_returns_ids(tmp_path):
    rows = np.arange(6, dtype=np.float32).reshape(3, 2)
    np.save(tmp_path / "v.npy", np.asfortranarray(rows))
    vectors, positions = io.read_vectors(tmp_path / "v.npy")
    np.testing.assert_array_equal(vectors, rows)
    assert positions.tolist() == [0, 1, 2]
    np.savez_compressed(tmp_path / "v.npz", words=["x", "y", "z"], vectors=rows)
    vectors, words = io.read_vectors(tmp_path / "v.npz")
    np.testing.assert_array_equal(vectors, rows)
    assert words.tolist() == ["x", "y", "z"]
    wrong = [
        {"vectors": rows, "words": ["x", "y"]},
        {"vectors": rows, "words": ["x", "y", "x"]},
        {"vectors": rows, "words": [0.5, 1, 2]},
        {"vectors": rows, "others": rows},
        {"vectors": rows * np.nan},
        {"words": ["x"]},
        {"vectors": np.empty((0, 3))},
    ]
    for arrays in wrong:
        np.savez(tmp_path / "v.npz", **arrays)
        refused(tmp_path / "v.npz", "v.npz", reader=io.read_vectors)
    refused(written(tmp_path, "v.xls", "1 2"), "a file of vectors", reader=io.read_vectors)
