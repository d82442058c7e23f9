"""A table is read in the same way, whatever its file format and the program that wrote it.

If a column is not valid, the error names this column in every format.

The tests build random tables from columns whose correct contents are known. The expected results
therefore share no code with the readers. To also run the slow tests, which read more tables::

    pytest -n 0 tests/io/test_same_table.py -m "slow or not slow"
"""

import csv
import datetime
import decimal
import json

import numpy as np
import pytest

from fastcos.io import FastcosFormatError, read_vectors

pandas = pytest.importorskip("pandas")
polars = pytest.importorskip("polars")
arrow = pytest.importorskip("pyarrow", reason="pyarrow is an extra")

AWKWARD = [
    "nan", "NA", "null", "None", "true", "1", "01", "1.0", "-0", "1e5", "a,b", "a;b", "a\tb",
    'say "hi"', "two\nlines", "x\r\ny", "naïve", "日本", "🦆", "[1, 2", "=1+1", "'", "a::b", "#c",
    "\\N", "0x1F", "+7", "x" * 490,
]  # fmt: skip
REFUSED = "refused"  # the expected result if readers must refuse the ids or numbers


class Made:
    """A column: its name, its type for writers, its cells, and what readers must return."""

    def __init__(self, name, kind, cells, expected):
        self.name, self.kind, self.cells, self.expected = name, kind, cells, expected


# --- columns whose correct contents are known ---


def eighths(rng, n):
    return (rng.integers(-80, 80, n) / 8).tolist()


def distinct(rng, n, low=0, high=10_000):
    return (low + rng.permutation(high - low)[:n]).tolist()


def words(rng, n):
    """Return n different texts, of which at least one is not a number."""
    first = f"w{rng.integers(99)}"
    return [first, *(f"{AWKWARD[j % len(AWKWARD)]}{'' if j < len(AWKWARD) else j}"
                     for j in distinct(rng, n - 1, 0, max(n, 60)))]  # fmt: skip


def with_one(rng, cells, odd):
    """Return the cells, but with `odd` in the place of the first, the last or a random cell."""
    place = int(rng.choice([0, len(cells) - 1, rng.integers(len(cells))]))
    return [*cells[:place], odd, *cells[place + 1 :]]


def make_ids(rng, n):
    """Return a column of ids, or None.

    Readers recognise the column of ids by its name, or as the only column that contains texts.
    """
    name = str(rng.choice(["id", "item_id", "movieId", "Item ID", "ISBN"]))
    numbers = distinct(rng, n)
    padded = [f"{one:05}" for one in numbers[:-1]] + ["7"]
    days = [datetime.date(2024, 1, 1) + datetime.timedelta(one) for one in numbers]
    columns = {
        "whole": Made(name, "int", numbers, numbers),
        "large": Made(name, "int", [2**53 + 1 + one for one in numbers], None),
        "negative": Made(name, "int", [-1 - one for one in numbers], None),
        "unsigned": Made(name, "uint", [2**63 + one for one in numbers],
                         [str(2**63 + one) for one in numbers]),
        "texts": Made(name, "text", words(rng, n), None),
        "title": Made("title", "text", [f"of {word}" for word in words(rng, n)], None),
        "numerals": Made(name, "text", list(map(str, numbers)), numbers),
        "zeros": Made(name, "text", padded, padded if n > 1 else [7]),
        "category": Made(name, "category", words(rng, n), None),
        "whole floats": Made(name, "float", list(map(float, numbers)), numbers),
        "dates": Made(name, "date", days, [str(day) for day in days]),
        "fractions": Made(name, "float", [one + 0.5 for one in numbers], REFUSED),
        "decimals": Made(name, "decimal", [decimal.Decimal(f"{one}.25") for one in numbers],
                         REFUSED),
        "times": Made(name, "time", [datetime.time(one % 24) for one in numbers], REFUSED),
        "timestamps": Made(name, "timestamp", [datetime.datetime(2024, 1, 1, 5, one % 60)
                                               for one in numbers], REFUSED),
        "durations": Made(name, "duration", [datetime.timedelta(one) for one in numbers], REFUSED),
        "bytes": Made(name, "bytes", [b"k%d" % one for one in numbers],
                      [f"k{one}" for one in numbers]),
        "broken bytes": Made(name, "bytes", [b"\xff%d" % one for one in numbers], REFUSED),
        "booleans": Made(name, "bool", [True] * n, REFUSED),
        "lacking": Made(name, "int", with_one(rng, numbers, None), REFUSED),
        "lacking text": Made(name, "text", with_one(rng, words(rng, n), None), REFUSED),
        "empty text": Made(name, "text", with_one(rng, words(rng, n), " "), REFUSED),
        "nan": Made(name, "text", with_one(rng, [*map(str, numbers)], "NaN") if n > 1 else [""],
                    REFUSED),
        "null": Made(name, "null", [None] * n, REFUSED),
        "long": Made(name, "text", with_one(rng, words(rng, n), "y" * 501), REFUSED),
        "twice": Made(name, "int", [*numbers[:-1], numbers[0]], REFUSED if n > 1 else numbers),
        "none": None,
    }  # fmt: skip
    column = columns[str(rng.choice(list(columns)))]
    if column is not None and column.expected is None:
        column.expected = column.cells
    return column


def make_lists(rng, n):
    width = int(rng.integers(1, 4))
    rows = [eighths(rng, width) for _ in range(n)]
    variant = str(rng.choice(["float", "float", "float", "int", "ragged", "null", "inside", "nan"]))
    name = str(rng.choice(["embedding", "v", 'an "odd", name', "0"]))
    if variant == "int":
        rows = [[int(value) for value in row] for row in rows]
        return [Made(name, "lists", rows, rows)]
    odd = {"ragged": [*rows[0], 1.0], "null": None, "inside": [None] * width,
           "nan": [float("nan")] * width}  # fmt: skip
    if variant == "float" or (variant == "ragged" and n == 1):
        return [Made(name, "lists", rows, rows)]
    return [Made(name, "lists", with_one(rng, rows, odd[variant]), REFUSED)]


def make_numbers(rng, n):
    """Return at least two columns of numbers, one of which may be broken."""
    width = int(rng.integers(2, 5))
    names = [*"xyzt"[:width]] if rng.random() < 0.5 else [str(j) for j in range(width)]
    tables = []
    for name in names:
        values, whole = eighths(rng, n), rng.integers(-9, 9, n).tolist()
        truths = (rng.random(n) < 0.5).tolist()
        columns = [
            Made(name, "float", values, values),
            Made(name, "float32", values, values),
            Made(name, "int", whole, whole),
            Made(name, "nullable", whole, whole),
            Made(name, "bool", truths, [float(one) for one in truths]),
            Made(name, "text", list(map(str, values)), values),
            Made(name, "decimal", [decimal.Decimal(f"{one:.3f}") for one in values], values),
        ]
        tables.append(columns[int(rng.integers(len(columns)))])
    if rng.random() < 0.4:
        place = int(rng.integers(width))
        name, values = names[place], eighths(rng, n)
        texts = list(map(str, values))
        broken = [
            Made(name, "float", with_one(rng, values, None), REFUSED),
            Made(name, "float", with_one(rng, values, float("nan")), REFUSED),
            Made(name, "float", with_one(rng, values, float("inf")), REFUSED),
            Made(name, "nullable", with_one(rng, [3] * n, None), REFUSED),
            Made(name, "bool", with_one(rng, [True] * n, None), REFUSED),
            Made(name, "null", [None] * n, REFUSED),
        ]
        if n > 1:
            broken += [
                Made(name, "text", with_one(rng, texts, odd), REFUSED)
                for odd in ("NA", "x", "", "1_0", "true", "1,5", "[1]", "٣")
            ]
        tables[place] = broken[int(rng.integers(len(broken)))]
    return tables


def make_table(seed):
    """Return columns, and the expected result of reading them.

    If the columns are valid, the result consists of ids and rows. Otherwise, it contains the names
    of the columns that an error may name.
    """
    rng = np.random.default_rng([57, seed])
    n = int(rng.choice([1, 2, 3, 5, 5, 700]))
    ids = make_ids(rng, n)
    has_lists = rng.random() < 0.5
    vectors = make_lists(rng, n) if has_lists else make_numbers(rng, n)
    extras = []
    if ids is not None and ids.name != "title":
        notes = [f"of {word}" for word in words(rng, n)]
        choices = [Made("note", "text", with_one(rng, notes, None) if n > 1 else notes, None)]
        if not has_lists and n > 1:  # the column "mixed" could be a broken column of numbers
            choices.append(Made("mixed", "text", with_one(rng, notes, "5"), REFUSED))
        if has_lists:
            choices += [
                Made("year", "int", rng.integers(1900, 2000, n).tolist(), None),
                Made("share", "float", with_one(rng, eighths(rng, n), None), None),
                Made("seen", "bool", (rng.random(n) < 0.5).tolist(), None),
                Made("blank", "null", [None] * n, None),
                Made("tags", "tags", [["a", "b"]] * n, None),
            ]
        else:
            choices.append(Made("tags", "tags", [["a"]] * n, None))
        extras = [one for one in choices if rng.random() < 0.3]
    roles = [*([ids] if ids else []), *vectors, *extras]
    refused = [one.name for one in roles if one.expected is REFUSED]
    if refused:  # the error may name a blank column instead
        refused += [one.name for one in extras if one.cells == [None] * n]
    columns = [*([ids] if ids else []), *vectors, *extras]
    columns = [columns[place] for place in rng.permutation(len(columns))]
    # Columns that are named 0, 1, 2, ... must stay in order.
    if not has_lists and vectors[0].name == "0":
        in_order = iter(vectors)
        columns = [next(in_order) if one in vectors else one for one in columns]
    if refused:
        return columns, (REFUSED, refused)
    if has_lists:
        rows = vectors[0].expected
    else:
        in_order = [one for one in columns if one in vectors]
        rows = [list(map(float, row)) for row in zip(*(c.expected for c in in_order), strict=True)]
    return columns, (ids.expected if ids else list(range(n)), rows)


# --- writers ---

# In text formats, each writer spells these types differently.
TYPED_ONLY = {"time", "timestamp", "duration", "bytes"}
PANDAS = {"int": "int64", "uint": "uint64", "float": "float64", "float32": "float32",
          "nullable": "Int64", "category": "category"}  # fmt: skip


def pandas_frame(columns):
    series = {}
    for one in columns:
        kind = PANDAS.get(one.kind, "object")
        if kind == "int64" and None in one.cells:
            kind = "Int64"
        series[one.name] = pandas.Series(one.cells, dtype=kind)
    return pandas.DataFrame(series)


def polars_frame(columns):
    types = {"int": polars.Int64, "uint": polars.UInt64, "float": polars.Float64,
             "float32": polars.Float32, "nullable": polars.Int64, "text": polars.String,
             "category": polars.Categorical, "bool": polars.Boolean, "null": polars.Null,
             "lists": polars.List(polars.Float64), "tags": polars.List(polars.String),
             "decimal": polars.Decimal(12, 3), "bytes": polars.Binary}  # fmt: skip
    series = []
    for one in columns:
        kind = types.get(one.kind)
        if one.kind == "lists" and all(isinstance(v, int) for row in one.cells for v in row or []):
            kind = polars.List(polars.Int64)
        series.append(polars.Series(one.name, one.cells, dtype=kind, strict=False))
    return polars.DataFrame(series)


def arrow_table(columns, texts=None):
    types = {"int": arrow.int64(), "uint": arrow.uint64(), "float": arrow.float64(),
             "float32": arrow.float32(), "nullable": arrow.int32(), "text": texts or arrow.string(),
             "category": arrow.dictionary(arrow.int32(), arrow.string()), "bool": arrow.bool_(),
             "null": arrow.null(), "lists": arrow.list_(arrow.float32()),
             "tags": arrow.list_(arrow.string()), "decimal": arrow.decimal128(12, 3),
             "bytes": arrow.binary()}  # fmt: skip
    arrays = [arrow.array(one.cells, types.get(one.kind)) for one in columns]
    return arrow.table(arrays, names=[one.name for one in columns])


def as_field(cell):
    if cell is None:
        return ""
    return json.dumps(cell) if isinstance(cell, list) else cell


def write_text(path, columns, encoding="utf-8", **dialect):
    with path.open("w", newline="", encoding=encoding) as file:
        writer = csv.writer(file, **dialect)
        writer.writerow([one.name for one in columns])
        writer.writerows(zip(*(map(as_field, one.cells) for one in columns), strict=True))


def write_json(path, columns, omit=False):
    never = {one.name for one in columns if one.cells == [None] * len(one.cells)}
    lines = []
    for row in zip(*(one.cells for one in columns), strict=True):
        record = dict(zip([one.name for one in columns], row, strict=True))
        if omit:  # leave out blank cells
            record = {n: cell for n, cell in record.items() if cell is not None or n in never}
        lines.append(json.dumps(record, default=str, ensure_ascii=omit))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8-sig")


def write_stream(path, columns):
    table = arrow_table(columns, arrow.string_view())
    with arrow.ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table)


def write_npz(path, columns):
    arrays = {}
    for one in columns:
        kind = PANDAS.get(one.kind)
        kind = {"Int64": "int64", "category": None}.get(kind, kind)
        arrays[one.name] = np.array(one.cells, "datetime64[D]" if one.kind == "date" else kind)
    np.savez(path, **arrays)


def frame_csv(path, columns, **arguments):
    pandas_frame(columns).to_csv(path, **arguments)


def frame_jsonl(path, columns):
    pandas_frame(columns).to_json(path, orient="records", lines=True, double_precision=15)


def lacks(*kinds):
    """Return a function that returns True if none of the columns has one of these types."""
    return lambda columns: not {one.kind for one in columns} & {*kinds}


def is_arrays(columns):
    cells = [cell for one in columns for cell in one.cells]
    odd = {"decimal", "null", "tags", "time", "timestamp", "duration", "bytes"}
    widths = {len(cell) for cell in cells if isinstance(cell, list)}
    inner = [value for cell in cells if isinstance(cell, list) for value in cell]
    names = [one.name for one in columns]  # NumPy's names of files
    return (lacks(*odd)(columns) and None not in cells and len(widths) < 2 and None not in inner
            and not any("/" in name for name in names))  # fmt: skip


def simple_names(columns):
    has_comma = any("," in one.name for one in columns)
    return lacks(*TYPED_ONLY)(columns) and not has_comma and len(columns) > 1


ANY_TEXT = lacks(*TYPED_ONLY)
WRITERS = {
    "plain.csv": (write_text, ANY_TEXT),
    "mark.csv": (lambda p, c: write_text(p, c, "utf-8-sig", lineterminator="\n"), ANY_TEXT),
    "utf16.tsv": (lambda p, c: write_text(p, c, "utf-16", delimiter="\t"), ANY_TEXT),
    "quoted.tsv": (
        lambda p, c: write_text(p, c, delimiter="\t", quoting=csv.QUOTE_ALL), ANY_TEXT
    ),
    "semicolon.csv": (lambda p, c: write_text(p, c, delimiter=";"), simple_names),
    "pandas.csv": (lambda p, c: frame_csv(p, c, index=False), ANY_TEXT),
    "index.csv": (frame_csv, ANY_TEXT),
    "pandas.tsv": (lambda p, c: frame_csv(p, c, index=False, sep="\t"), ANY_TEXT),
    "pandas.csv.gz": (lambda p, c: frame_csv(p, c, index=False), ANY_TEXT),
    "pandas.csv.zip": (lambda p, c: frame_csv(p, c, index=False), ANY_TEXT),
    "polars.csv": (lambda p, c: polars_frame(c).write_csv(p), lacks(*TYPED_ONLY, "lists", "tags")),
    "plain.jsonl": (write_json, ANY_TEXT),
    "omitted.jsonl": (lambda p, c: write_json(p, c, omit=True), ANY_TEXT),
    "pandas.jsonl": (frame_jsonl, lacks(*TYPED_ONLY, "date")),
    "polars.ndjson": (lambda p, c: polars_frame(c).write_ndjson(p), lacks(*TYPED_ONLY)),
    "pandas.parquet": (lambda p, c: pandas_frame(c).to_parquet(p), lacks()),
    "polars.parquet": (lambda p, c: polars_frame(c).write_parquet(p), lacks()),
    "pandas.feather": (lambda p, c: pandas_frame(c).to_feather(p), lacks()),
    "polars.arrow": (lambda p, c: polars_frame(c).write_ipc(p), lacks()),
    "arrow.feather": (
        lambda p, c: arrow.feather.write_feather(arrow_table(c, arrow.large_string()), p), lacks()
    ),
    "stream.arrow": (write_stream, lacks()),
    "arrays.npz": (write_npz, is_arrays),
}  # fmt: skip


def reading_of(path):
    try:
        vectors, ids = read_vectors(path)
    except FastcosFormatError as error:
        message = str(error)
        assert "\n" not in message
        assert len(message.replace(str(path), "FILE")) <= 300
        return REFUSED, message
    return ids.tolist(), np.asarray(vectors, np.float64).tolist()


def check(folder, seeds):
    import pyarrow.feather  # noqa: F401 # an attribute of arrow

    n_answers = n_files = 0
    for seed in seeds:
        columns, expected = make_table(seed)
        n_answers += expected[0] is not REFUSED
        for name, (write, fits) in WRITERS.items():
            if not fits(columns):
                continue
            path = folder / f"{seed}-{name}"
            write(path, columns)
            n_files += 1
            result = reading_of(path)
            path.unlink()
            case = f"table {seed} as {name}: {[(c.name, c.kind, c.cells[:6]) for c in columns]}"
            if expected[0] is REFUSED:
                assert result[0] is REFUSED, (case, result)
                named = [repr(column) for column in expected[1]]
                assert any(column in result[1] for column in (*named, *expected[1])), (case, result)
            else:
                assert result == expected, case
    return n_answers, n_files


def test_one_table_has_one_answer_in_every_format(tmp_path):
    n_answers, n_files = check(tmp_path, range(30))
    assert 8 <= n_answers <= 25
    assert n_files >= 300


@pytest.mark.slow
def test_200_tables_have_one_answer_in_every_format(tmp_path):
    n_answers, n_files = check(tmp_path, range(200))
    assert 50 <= n_answers <= 150
    assert n_files >= 2000
