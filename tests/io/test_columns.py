"""Columns that other programs have written are either read or refused.

If a column is refused, the error message states the name of the column, the row and the type.
"""

import datetime
import decimal
import functools
import gzip
import json

import numpy as np
import pytest

from fastcos.cli.main import main
from fastcos.io import (
    read_factors,
    read_ids,
    read_interactions,
    read_labels,
    read_names,
    read_vectors,
)
from tests.io import refusals
from tests.io.refusals import write

ROWS = [[0.5, 1.5], [2.0, -1.0]]


def vectors_of(path, **arguments):
    vectors, ids = read_vectors(path, **arguments)
    return ids.tolist(), np.asarray(vectors, np.float64).tolist()


refused = functools.partial(refusals.refused, reader=read_vectors)


# --- ids of every Arrow type ---


def arrow_files(folder, arrow, table):
    """Write the table as Parquet, Arrow file and Arrow stream; yield the path of each file.

    If Parquet does not support a type of the table, no Parquet file is written.
    """
    from pyarrow import parquet

    paths = [folder / name for name in ("t.parquet", "t.feather", "t.arrow")]
    for path in paths:
        if path.suffix == ".parquet":
            try:
                parquet.write_table(table, path)
            except (arrow.ArrowNotImplementedError, arrow.ArrowInvalid):
                continue
        else:
            new = arrow.ipc.new_stream if path.suffix == ".arrow" else arrow.ipc.new_file
            with new(path, table.schema) as writer:
                writer.write_table(table)
        yield path


@pytest.mark.parametrize("has_lists", [True, False])
@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        ("string_view", ["a", "b"], ["a", "b"]),
        ("large_string", ["a", "b"], ["a", "b"]),
        ("string", ["7", "9"], [7, 9]),
        ("binary", [b"a", b"b"], ["a", "b"]),
        ("binary_view", [b"a", b"b"], ["a", "b"]),
        ("uint64", [2**63, 5], [str(2**63), "5"]),
        ("int8", [-1, 5], [-1, 5]),
        ("float64", [7.0, 9.0], [7, 9]),
        ("float16", [np.float16(7), np.float16(9)], [7, 9]),
        ("decimal", [decimal.Decimal("7.00"), decimal.Decimal("9.00")], [7, 9]),
        ("date32", [datetime.date(2026, 1, 2), datetime.date(2026, 1, 3)],
         ["2026-01-02", "2026-01-03"]),
        ("dictionary", ["a", "b"], ["a", "b"]),
        ("run_end_encoded", ["a", "b"], ["a", "b"]),
        ("float64", [7.5, 9.0], "got the decimal number '7.5' (row 1)"),
        ("float64", [2.0**53, 9.0], "written with a decimal point, got '9007199254740992"),
        ("binary", [b"\xff", b"b"], "got binary data that is not UTF-8 (row 1)"),
        ("fixed_size_binary", [b"\0" * 16, b"\1" * 16], "got fixed_size_binary[16]"),
        ("time64", [datetime.time(1), datetime.time(2)], "got time64[us] (row 1)"),
        ("timestamp", [datetime.datetime(2026, 1, 2), datetime.datetime(2026, 1, 3)],
         "got timestamp[us, tz=Europe/Paris] (row 1)"),
        ("duration", [datetime.timedelta(1), datetime.timedelta(2)], "got duration[us] (row 1)"),
        ("bool_", [True, False], "got booleans"),
        ("null", [None, None], "must have an id in every row, got a blank (rows 1, 2)"),
        ("struct", [{"a": 1}, {"a": 2}], "got struct<a: int64> (row 1)"),
        ("list", [["a"], ["b"]], "got a list (row 1)"),
        ("int64", [None, 5], "must have an id in every row, got a blank (row 1)"),
        ("string", ["a", None], "must have an id in every row, got a blank (row 2)"),
        ("string", ["a", "a"], "id must be distinct, got 'a' in rows 0 and 1"),
    ],
)  # fmt: skip
def test_ids_of_every_arrow_type(tmp_path, kind, values, expected, has_lists):
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is an extra")
    types = {
        "decimal": lambda: arrow.decimal128(9, 2),
        "dictionary": lambda: arrow.dictionary(arrow.int8(), arrow.string()),
        "run_end_encoded": lambda: arrow.run_end_encoded(arrow.int32(), arrow.string()),
        "fixed_size_binary": lambda: arrow.binary(16),
        "time64": lambda: arrow.time64("us"),
        "timestamp": lambda: arrow.timestamp("us", "Europe/Paris"),
        "duration": lambda: arrow.duration("us"),
        "struct": lambda: arrow.struct([("a", arrow.int64())]),
        "list": lambda: arrow.list_(arrow.string()),
    }
    kind = types.get(kind, getattr(arrow, kind, None))()
    if isinstance(kind, arrow.RunEndEncodedType):
        ids = arrow.array(values).cast(arrow.string())
        ids = arrow.RunEndEncodedArray.from_arrays(arrow.array([1, 2], arrow.int32()), ids)
    else:
        ids = arrow.array(values, kind)
    columns = {"v": ROWS} if has_lists else {"x": [0.5, 2.0], "y": [1.5, -1.0]}
    paths = list(arrow_files(tmp_path, arrow, arrow.table({"id": ids, **columns})))
    assert paths
    for path in paths:
        for arguments in ({}, {"id_column": "id"}):
            if isinstance(expected, list):
                assert vectors_of(path, **arguments) == (expected, ROWS)
            else:
                refused(path, "id", expected, **arguments)
        assert vectors_of(path, id_column="") == ([0, 1], ROWS)


def test_vectors_of_every_arrow_type(tmp_path):
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is an extra")
    whole = [[1, 2], [3, 4]]
    types = [
        arrow.list_(arrow.float16()),
        arrow.list_(arrow.int8()),
        arrow.large_list(arrow.float64()),
        arrow.list_(arrow.float32(), 2),
        arrow.list_(arrow.decimal128(5, 1)),
    ]
    for kind in types:
        table = arrow.table(
            {"v": arrow.array(whole, arrow.list_(arrow.int64())).cast(kind)}
            if kind != types[-1]
            else {"v": arrow.array([[decimal.Decimal(one) for one in row] for row in whole], kind)}
        )
        for path in arrow_files(tmp_path, arrow, table):
            assert vectors_of(path) == ([0, 1], whole), kind
    tensors = arrow.ExtensionArray.from_storage(
        arrow.fixed_shape_tensor(arrow.float32(), [2]),
        arrow.array(whole, arrow.list_(arrow.float32(), 2)),
    )
    for path in arrow_files(tmp_path, arrow, arrow.table({"v": tensors})):
        assert vectors_of(path) == ([0, 1], whole)


@pytest.mark.parametrize(
    "other",
    [
        [1, -3],
        [True, False],
        [decimal.Decimal("1.5"), decimal.Decimal("2.5")],
        ["1.5", "-2"],
    ],
    ids=str,
)
def test_numbers_of_every_type_are_dimensions(tmp_path, other):
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is an extra")
    numbers = [float(one) for one in other]
    table = arrow.table({"id": ["a", "b"], "x": [0.5, 1.5], "y": other})
    for path in arrow_files(tmp_path, arrow, table):
        assert vectors_of(path) == (["a", "b"], [[0.5, numbers[0]], [1.5, numbers[1]]])
        assert read_vectors(path).columns == {"vectors": ("x", "y"), "ids": "id", "unused": ()}
    path = write(tmp_path / "t.csv", f"id,x,y\na,0.5,{other[0]}\nb,1.5,{other[1]}\n")
    assert vectors_of(path) == (["a", "b"], [[0.5, numbers[0]], [1.5, numbers[1]]])


# --- blanks, and cells of another kind ---


@pytest.mark.parametrize(
    "row", [*(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2, 3)), 600]
)
@pytest.mark.parametrize("odd", ["", "NA", "nan", "NULL", "-", "x", "1,5", "inf", "1e999", "[1]"])
def test_a_broken_cell_in_any_row_is_refused(tmp_path, row, odd):
    cells = [["k" + str(n), str(n), f"{n}.5"] for n in range(600)]
    cells[row - 1][2] = odd
    fragments = ("column 'y' must have", "in every row", repr(odd)[:20] if odd else "a blank")
    lines = ["\t".join(line) for line in [["id", "x", "y"], *cells]]
    refused(write(tmp_path / "t.tsv", "\n".join(lines)), *fragments, f"(row {row + 1})")
    lines = [json.dumps(dict(zip(("id", "x", "y"), line, strict=True))) for line in cells]
    refused(write(tmp_path / "t.jsonl", "\n".join(lines)), *fragments, f"(row {row})")
    if not odd:
        lines[row - 1] = json.dumps({"id": "k", "x": 5})
        refused(write(tmp_path / "t.jsonl", "\n".join(lines)), *fragments, f"(row {row})")


def test_lists_that_are_no_json_are_refused(tmp_path):
    for text in (
        "[0.1 0.2]",
        "0.1 0.2",
        "(0.1, 0.2)",
        "{0.1,0.2}",
        "[0.1, nan]",
        "0.1|0.2",
        "array([0.1, 0.2], dtype=float32)",
        "[0.1 0.2 ... 0.3]",
        "[ 1.  2.\n 3.]",
        "[nan]",
        "[None, None]",
    ):
        path = write(tmp_path / "t.csv", f'id,n,embedding\n1,11,"{text}"\n2,5,"{text}"\n')
        refused(path, "column 'embedding'", text[:4], "[0.5, 1]", "(rows ")
    path = write(tmp_path / "t.csv", 'id,n,embedding\n1,11,"[0.1, 0.2]"\n2,5,"[0.3, 0.4]"\n')
    assert vectors_of(path) == ([1, 2], [[0.1, 0.2], [0.3, 0.4]])
    assert read_vectors(path).columns["unused"] == ("n",)


@pytest.mark.parametrize("cell", ["5%", "$5", "5 €", "\u22125", "1,000", "0x1F", "0,5"])
def test_numbers_with_units_are_no_texts(tmp_path, cell):
    path = write(tmp_path / "t.csv", f'id,x,y\na,1,"{cell}"\nb,2,"{cell}"\n')
    refused(path, "column 'y' must have a number in every row", repr(cell), "(rows 2, 3)")


def test_other_delimiters_are_refused(tmp_path):
    for text in ("id|x|y\n1|1|2\n", "id x y\n1 1 2\n"):
        refused(write(tmp_path / "t.csv", text), "columns separated by tab, comma", "one column")
    refused(write(tmp_path / "t.csv", "sep=;\nid;x\n1;2\n"), "column 'sep='")


def test_lists_of_another_length_or_type_are_refused(tmp_path):
    for cells, *fragments in (
        ([[1, 2], [3]], "lists of one length", "got 1 numbers in row 2 (2 in row 1)"),
        ([[1, 2], None], "a list of numbers in every row", "a blank (row 2)"),
        ([None, [1, 2]], "a list of numbers in every row", "a blank (row 1)"),
        ([[1, 2], [1, None]], "a list of numbers in every row", "(row 2)"),
        ([[1, 2], ["1", "2"]], "a list of numbers in every row", "(row 2)"),
        ([[1, 2], [[1], [2]]], "a list of numbers in every row", "(row 2)"),
        ([[1, 2], []], "a list of numbers in every row", "(row 2)"),
        ([[1, 2], 5], "a list of numbers in every row", "(row 2)"),
        ([[1, 2], "x"], "a list of numbers in every row", "(row 2)"),
        ([[1, 2], [10**400, 2]], "a list of numbers in every row", "(row 2)"),
    ):
        lines = "".join(json.dumps({"v": cell, "n": 1}) + "\n" for cell in cells)
        refused(write(tmp_path / "t.jsonl", lines), "column 'v'", *fragments)
        lines = "".join(f'"{json.dumps(cell) if cell else ""}",1\n' for cell in cells)
        path = write(tmp_path / "t.csv", "v,n\n" + lines.replace('["1", "2"]', '[""1"", ""2""]')
                     .replace('""x""', "x"))  # fmt: skip
        refused(path, "column 'v'")


def test_a_column_that_is_twice_is_refused(tmp_path):
    refused(write(tmp_path / "t.csv", "id,x,x\na,1,2\n"), "name every column once, got 'x' twice")
    refused(write(tmp_path / "t.jsonl", '{"x": 1, "x": 2}\n'), "the same key twice")
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is an extra")
    table = arrow.table([[1, 2], [3, 4], [5, 6]], names=["id", "x", "x"])
    for path in arrow_files(tmp_path, arrow, table):
        refused(path, "'x' twice")


def test_several_columns_that_may_be_ids_are_refused(tmp_path):
    text = 'code,name,v\n7,a,"[1, 2]"\n9,b,"[3, 4]"\n'
    refused(write(tmp_path / "t.csv", text), "id_column must be given", "pass ''", "code, name")
    assert vectors_of(tmp_path / "t.csv", id_column="name")[0] == ["a", "b"]
    assert vectors_of(tmp_path / "t.csv", id_column="")[0] == [0, 1]
    # If there is only one column besides the vectors, it contains the ids, whatever its name is.
    text = 'code,v\n7,"[1, 2]"\n9,"[3, 4]"\n'
    assert vectors_of(write(tmp_path / "t.csv", text))[0] == [7, 9]
    text = 'day,v\n2026-01-02,"[1, 2]"\n2026-01-03,"[3, 4]"\n'
    assert vectors_of(write(tmp_path / "t.csv", text))[0] == ["2026-01-02", "2026-01-03"]


def test_a_text_with_numbers_among_dimensions_is_refused(tmp_path):
    path = write(tmp_path / "t.csv", "sku,x,y\n22423,1,2\n84029E,3,4\n")
    assert vectors_of(path) == (["22423", "84029E"], [[1, 2], [3, 4]])  # named as an id
    path = write(tmp_path / "t.csv", "article name,kind,x\nA,22423,1\nB,84029E,3\n")
    refused(path, "column 'kind'", "'84029E' (row 3)", "id_column='kind'")
    assert vectors_of(path, id_column="kind") == (["22423", "84029E"], [[1], [3]])


# --- headers, byte order marks and delimiters ---


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("id,0,1\na,5,6\n", (["a"], [[5, 6]])),  # what pandas writes
        (",0,1\na,5,6\nb,7,8\n", (["a", "b"], [[5, 6], [7, 8]])),
        (",0,1\n0,5,6\n1,7,8\n", ([0, 1], [[5, 6], [7, 8]])),
        (",0,1\n4,5,6\n2,7,8\n", ([4, 2], [[5, 6], [7, 8]])),
        ('"","V1","V2"\n"1",5,6\n"2",7,8\n', ([1, 2], [[5, 6], [7, 8]])),  # what R writes
        (",id,0,1\n0,a,5,6\n1,b,7,8\n", (["a", "b"], [[5, 6], [7, 8]])),
        ("index,x,y\n0,5,6\n1,7,8\n", ([0, 1], [[5, 6], [7, 8]])),
        ("index,x,y\n4,5,6\n2,7,8\n", ([4, 2], [[5, 6], [7, 8]])),
        ("index,x\n0.5,6\n1.5,8\n", ([0, 1], [[0.5, 6], [1.5, 8]])),
        ("Unnamed: 0,x,y\na,5,6\nb,7,8\n", (["a", "b"], [[5, 6], [7, 8]])),
        ("0,1\n5,6\n", ([0], [[5, 6]])),
        ("title,0,1\na,5,6\n", (["a"], [[5, 6]])),
        ("x,y\n5,6\n", ([0], [[5, 6]])),
        ("id,x,y\n1,5,6\n", ([1], [[5, 6]])),
        ("word,x1,x2\nthe,5,6\n", (["the"], [[5, 6]])),
        ('id,2020\na,"[5, 6]"\n', (["a"], [[5, 6]])),
        # first lines that are not a header
        ("the,0.5,6\nof,7,8\n", (["the", "of"], [[0.5, 6], [7, 8]])),
        ("the,5,5\nof,7,8\n", (["the", "of"], [[5, 5], [7, 8]])),
        ("0.5,6\n7,8\n", ([0, 1], [[0.5, 6], [7, 8]])),
        ("-5,6\n7,8\n", ([0, 1], [[-5, 6], [7, 8]])),
        ('a,"[5, 6]"\nb,"[7, 8]"\n', (["a", "b"], [[5, 6], [7, 8]])),
        # NumPy's savetxt writes numbers in this form.
        ("1.0e+00,2.0e+00\n3.0e+00,4.0e+00\n", ([0, 1], [[1, 2], [3, 4]])),
        # These first lines could be headers or rows.
        ("a,5,6\nb,7,8\n", "got 'a, 5, 6': add a header line"),
        ("country,1990,1995\nFR,5,6\n", "got 'country, 1990, 1995': add a header line"),
        ("id,0.25,0.5\na,5,6\n", "add a header line"),
        ("5,6\n7,8\n", "add a header line"),
        ("0\n5\n", "add a header line"),
    ],
)  # fmt: skip
def test_a_header_is_never_guessed_away(tmp_path, text, expected):
    quoted = text if "[" in text else text.replace(",", ";")
    for name, content in (
        ("t.csv", text),
        ("t.csv", "\ufeff" + text),
        ("t.csv", text.replace("\n", "\r\n")),
        ("t.csv", text.encode("utf-16")),
        ("t.tsv", text.replace(",", "\t") if "[" not in text else text.replace(",\"", "\t\"")
         .replace("id,2020", "id\t2020")),
        ("t.csv", quoted),
    ):  # fmt: skip
        path = write(tmp_path / name, content)
        if isinstance(expected, str):
            refused(path, "line 1", expected)
        else:
            assert vectors_of(path) == expected


def test_a_file_without_rows_is_refused(tmp_path):
    for name in ("t.csv", "t.tsv", "t.jsonl"):
        for text in ("", "\n", "\ufeff"):
            refused(write(tmp_path / name, text), name, "got")
    for text in ("id,x,y\n", "id,x,y", "x\n", "id,v\n\n\n"):
        refused(write(tmp_path / "t.csv", text), "at least one row")
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is an extra")
    table = arrow.table({"v": arrow.array([], arrow.list_(arrow.float32()))})
    for path in arrow_files(tmp_path, arrow, table):
        refused(path, "at least one row")


def test_byte_order_marks_are_followed_everywhere(tmp_path):
    for encoding in ("utf-8-sig", "utf-16", "utf-32"):
        for name, text, expected in (
            ("t.txt", "100 5 6\n200 7 8\n", ([100, 200], [[5, 6], [7, 8]])),
            ("t.vec", "2 2\n100 5 6\n200 7 8\n", ([100, 200], [[5, 6], [7, 8]])),
            ("t.csv", "id,x,y\n100,5,6\n200,7,8\n", ([100, 200], [[5, 6], [7, 8]])),
            ("t.jsonl", '{"id": 100, "v": [5, 6]}\n{"id": 200, "v": [7, 8]}\n',
             ([100, 200], [[5, 6], [7, 8]])),
        ):  # fmt: skip
            assert vectors_of(write(tmp_path / name, text.encode(encoding))) == expected
            packed = write(tmp_path / f"{name}.gz", gzip.compress(text.encode(encoding)))
            assert vectors_of(packed) == expected
        for text in ("100\n200\n", "100\r\n200\r\n\r\n", "100\n200"):
            path = write(tmp_path / "ids.txt", text.encode(encoding))
            assert read_ids(path).tolist() == read_ids(path, 2).tolist() == [100, 200]
        labels = write(tmp_path / "labels.csv", "item,kind\n100,a\n200,b\n".encode(encoding))
        assert read_labels(labels, [100, 200], column="kind").labels.tolist() == [0, 1]


def test_a_matrix_of_text_is_no_word_vectors(tmp_path):
    np.savetxt(tmp_path / "t.txt", ROWS)
    refused(tmp_path / "t.txt", "column 'word'", "the decimal number '5.0")


def test_words_are_ids_as_in_tables(tmp_path):
    path = write(tmp_path / "t.txt", "nan 1 2\nnull 3 4\n1 5 6\nof 7 8\n")
    assert vectors_of(path)[0] == ["nan", "null", "1", "of"]
    assert read_vectors(path).columns == {"vectors": ("numbers",), "ids": "word", "unused": ()}
    refused(write(tmp_path / "t.txt", "7 1 2\nnan 3 4\n"), "an id in every row, got 'nan' (row 2)")


# --- arrays ---


def test_named_arrays_are_columns_of_a_table(tmp_path):
    def saved(**arrays):
        np.savez(tmp_path / "t.npz", **arrays)
        return tmp_path / "t.npz"

    assert vectors_of(saved(item_id=[7, 9], x=[0.5, 2], y=[1.5, -1])) == ([7, 9], ROWS)
    assert vectors_of(saved(v=ROWS, ids=[b"a", b"b"])) == (["a", "b"], ROWS)
    assert vectors_of(saved(v=ROWS, words=["7", "9"])) == ([7, 9], ROWS)
    assert vectors_of(saved(v=np.array(ROWS, ">f4"), ids=np.array([7, 9], ">i8"))) == ([7, 9], ROWS)
    assert vectors_of(saved(v=ROWS, ids=[7.0, 9.0])) == ([7, 9], ROWS)
    path = saved(v=ROWS, n=3, year=[1990, 1991], kinds=["a", "b"])
    assert vectors_of(path, id_column="year") == ([1990, 1991], ROWS)
    refused(saved(v=ROWS, ids=[7.5, 9.0]), "column 'ids'", "'7.5'")
    refused(saved(v=ROWS, ids=[True, False]), "column 'ids'", "booleans")
    refused(saved(v=ROWS, ids=[7.0, np.nan]), "column 'ids'", "'nan'")
    refused(saved(v=ROWS, ids=[1, 2, 3]), "arrays of 2 rows each, got ids of shape (3,)")
    refused(saved(v=ROWS, ids=np.array([0, 1], "datetime64[s]")), "'ids'", "datetime64[s]")
    refused(saved(v=[[1, 2j], [3, 4]]), "must hold")
    assert vectors_of(saved(v=np.array(ROWS) > 1)) == ([0, 1], [[0, 1], [1, 0]])


def test_files_of_ids_are_typed_by_all_of_their_cells(tmp_path):
    for text, expected in (
        ("1\n2\n", [1, 2]),
        ("1\n02\n", ["1", "02"]),
        (" 1\n2 \n", [1, 2]),
        ("1.0\n2.0\n", [1, 2]),
        ("a b\nc\td\n", ["a b", "c\td"]),
        ("nan\nb\n", ["nan", "b"]),
        ("\ufeffa\nb\n\n\n", ["a", "b"]),
        ("a\x85c\r\nb\u2028d\r\n", ["a\x85c", "b\u2028d"]),
    ):
        assert read_ids(write(tmp_path / "ids.txt", text), 2).tolist() == expected
    for text, fragment in (
        ("1\n\n2\n", "an id in every line, got a blank (row 2)"),
        ("1\nNA\n", "an id in every row, got 'NA' (row 2)"),
        ("1\n2.5\n", "the decimal number '2.5' (row 2)"),
        ("a\n" + "b" * 501, "at most 500 characters, got 501 (row 2)"),
        ("a\nb\0\n", "zero byte"),
        (b"a\nb\xff\n", "UTF-8"),
        ("1\n1\n", "distinct"),
    ):
        refused(write(tmp_path / "ids.txt", text), fragment, reader=read_ids, length=2)
    assert read_ids(write(tmp_path / "ids.txt", "7\n\n9\n7\n")).tolist() == [7, 9]
    for name, text in (
        ("ids.csv", "id\n7\n9\n"),
        ("ids.csv", "title,movieId\na,7\nb,9\n"),
        ("ids.csv", "x\n7\n9\n"),
        ("ids.jsonl", '{"id": 7}\n{"id": "9"}\n'),
        ("ids.tsv", "a\tid\n1\t7\n1\t9\n"),
    ):
        assert read_ids(write(tmp_path / name, text), 2).tolist() == [7, 9]
    for text in ("the\nof\n", "x,y\n1,2\n", "id,item\n1,2\n"):
        refused(write(tmp_path / "ids.csv", text), "must", "id", reader=read_ids)
    for values, expected in (([7, 9], [7, 9]), (["7", "x"], ["7", "x"]), ([7.0, 9.0], [7, 9])):
        np.save(tmp_path / "ids.npy", values)
        assert read_ids(tmp_path / "ids.npy", 2).tolist() == expected
    for values in ([7.5, 9], [True, False], [[1], [2]], [np.nan, 1]):
        np.save(tmp_path / "ids.npy", values)
        refused(tmp_path / "ids.npy", "ids", reader=read_ids, length=2)


# --- interactions, labels and names ---


INTERACTIONS = {"user": ["u1", "u2", "u1"], "item": [7, 9, 9], "value": [1.5, 2.0, 1.0]}


def tables(folder, columns):
    """Yield the same table as CSV, TSV, JSON lines and Parquet."""
    names, rows = list(columns), list(zip(*columns.values(), strict=True))
    for suffix, mark in ((".csv", ","), (".tsv", "\t")):
        lines = [
            mark.join("" if one is None else str(one) for one in row) for row in [names, *rows]
        ]
        yield write(folder / f"t{suffix}", "\n".join(lines))
    lines = [json.dumps(dict(zip(names, row, strict=True))) for row in rows]
    yield write(folder / "t.jsonl", "\n".join(lines))
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is an extra")
    yield from arrow_files(folder, arrow, arrow.table(columns))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, [[1.5, 1.0], [0, 2.0]]),
        ({"item": [7.0, 9.0, 9.0]}, [[1.5, 1.0], [0, 2.0]]),
        ({"item": ["7", "9", "9"]}, [[1.5, 1.0], [0, 2.0]]),
        ({"value": ["1.5", "2", "1e0"]}, [[1.5, 1.0], [0, 2.0]]),
        ({"value": [True, True, False]}, [[1.0, 0], [0, 1.0]]),
        ({"note": [None, "x", None]}, [[1.5, 1.0], [0, 2.0]]),
        ({"item": [7.5, 9.0, 9.0]}, "column 'item' must hold whole numbers or texts"),
        ({"item": [7, None, 9]}, "column 'item' must have an id in every row"),
        ({"user": [True, False, True]}, "column 'user' must hold whole numbers or texts"),
        ({"user": [None, "a", "b"]}, "column 'user' must have an id in every row"),
        ({"value": [None, 2.0, 1.0]}, "column 'value' must hold finite numbers, got a blank"),
        ({"value": ["1", "x", "1"]}, "column 'value' must hold finite numbers, got 'x'"),
        ({"value": ["1", "true", "1"]}, "column 'value' must hold either numbers or booleans"),
        ({"value": [float("inf"), 2.0, 1.0]}, "column 'value' must hold finite numbers"),
        ({"value": [float("nan"), 2.0, 1.0]}, "column 'value' must hold finite numbers"),
    ],
    ids=str,
)
def test_interactions_are_the_same_in_every_format(tmp_path, change, expected):
    for path in tables(tmp_path, INTERACTIONS | change):
        if isinstance(expected, str):
            refused(path, expected, reader=read_interactions)
            continue
        X, users, items = read_interactions(path)
        assert (users.tolist(), items.tolist()) == (["u1", "u2"], [7, 9])
        assert X.toarray().tolist() == expected


@pytest.mark.parametrize(
    ("cells", "classes", "labels"),
    [
        (["a", None, "b", "a"], ["a", "b"], [0, -1, 1, 0]),
        ([1, None, 2, 1], ["1", "2"], [0, -1, 1, 0]),
        ([1.0, None, 2.0, 1.0], ["1", "2"], [0, -1, 1, 0]),
        ([0.5, None, 2.0, 0.5], ["0.5", "2.0"], [0, -1, 1, 0]),
        ([True, None, False, True], ["False", "True"], [1, -1, 0, 1]),
    ],
    ids=str,
)
def test_labels_are_the_same_in_every_format(tmp_path, cells, classes, labels):
    columns = {"item": [3, 5, 7, 9], "kind": cells, "name": ["x", None, "y", "z"]}
    for path in tables(tmp_path, columns):
        result = read_labels(path, [3, 5, 7, 9], column="kind")
        assert (result.classes.tolist(), result.labels.tolist()) == (classes, labels)
        assert result.columns == {"items": "item", "labels": "kind", "names": "name"}
        assert read_names(path, [9, 5]).tolist() == ["z", "5"]


def test_items_without_ids_among_labels_are_unknown(tmp_path):
    for path in tables(tmp_path, {"item": [3.0, None, 5.0], "kind": ["a", "b", "c"]}):
        labels = read_labels(path, [3, 5], column="kind")
        assert (labels.labels.tolist(), labels.n_unknown) == ([0, 1], 1)


# --- commands ---


def test_commands_keep_all_columns_of_a_file_of_vectors(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    rows = np.column_stack([rng.standard_normal((30, 3)), np.ones(30)]).astype(np.float32)
    np.save("items.npy", rows)
    assert read_factors("items.npy").items.shape == (30, 4)
    assert main(["index", "build", "items.npy", "store"]) == 0
    assert (
        main(
            ["index", "search", "store", "--queries", "items.npy", "--k", "3", "--out", "found.npz"]
        )
        == 0
    )
    with np.load("found.npz") as result:
        cosines = rows @ rows.T / np.outer(*[np.linalg.norm(rows, axis=1)] * 2)
        np.testing.assert_allclose(result["scores"][:, 0], 1, atol=1e-6)
        best = np.sort(cosines, axis=1)[:, :-4:-1]
        np.testing.assert_allclose(result["scores"], best, atol=1e-5)


def test_commands_read_files_without_a_header(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    lines = [f"{u}::{i}::{r}::978300760\n" for u, i, r in random.integers(1, 20, (200, 3))]
    write(tmp_path / "ratings.dat", "".join(lines))
    words = ["fit", "ratings.dat", "--user", "1", "--item", "2", "--value", "3", "--rank", "3"]
    assert main([*words, "--no-header", "--out", "m"]) == 0
    assert "'1' for users, '2' for items, '3' for values" in capsys.readouterr().err
    assert main([*words, "--out", "n"]) == 2
    assert "--no-header" in capsys.readouterr().err
    lines = [
        json.dumps({"user": u, "item": i}) + "\n"
        for u, i in random.integers(1, 20, (200, 2)).tolist()
    ]
    write(tmp_path / "seen.jsonl", "".join(lines))
    assert main(["fit", "seen.jsonl", "--rank", "3", "--out", "o"]) == 0
    assert "'item' for items, every interaction has the value 1" in capsys.readouterr().err


def test_commands_name_the_columns_that_they_read(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    lines = [f"k{n},{n},{n * n},note\n" for n in range(5)]
    write(tmp_path / "t.csv", "id,x,y,text\n" + "".join(lines))
    named = "columns of t.csv: vectors from 'x', 'y'; ids from 'id'; 'text' not used"
    for words in (
        ["neighbors", "t.csv", "--k", "2"],
        ["index", "build", "t.csv", "store"],
        ["index", "search", "store", "--queries", "t.csv", "--k", "2"],
    ):
        assert main(words) == 0
        assert named in capsys.readouterr().err


# --- ids in columns whose names do not say so ---


def test_whole_numbers_beside_vectors_are_ids_also_if_some_are_texts(tmp_path):
    rows = [{"key": key, "v": row} for key, row in zip((12, "7"), ROWS, strict=True)]
    path = write(tmp_path / "v.jsonl", "\n".join(map(json.dumps, rows)))
    assert vectors_of(path) == ([12, 7], ROWS)


def test_numbers_with_decimals_and_gaps_are_no_ids(tmp_path):
    cells = zip(("a", "b"), (0.5, None), ROWS, strict=True)
    rows = [{"key": key, "weight": weight, "v": row} for key, weight, row in cells]
    path = write(tmp_path / "v.jsonl", "\n".join(map(json.dumps, rows)))
    assert vectors_of(path) == (["a", "b"], ROWS)
