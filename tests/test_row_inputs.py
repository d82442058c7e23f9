"""Every entry point reads rows of any type in any container, or raises an error with a remedy."""

import numpy as np
import pytest

import fastcos
from fastcos import metrics
from fastcos.auditing import cosine_interval
from fastcos.models import NormalizeRows, PopularityWeights, ShiftedPPMI, StandardizeColumns


class ArrowStream:
    """An object of another library that offers only Arrow's C data interface."""

    def __init__(self, values):
        self._values = values

    def __arrow_c_stream__(self, requested_schema=None):
        return self._values.__arrow_c_stream__(requested_schema)


class ArrowArray:
    def __init__(self, values):
        self._values = values

    def __arrow_c_array__(self, requested_schema=None):
        return self._values.__arrow_c_array__(requested_schema)


class Tensor:
    """A tensor of another library; the tensor offers only DLPack."""

    def __init__(self, values):
        self._values = values

    def __dlpack__(self, **arguments):
        return self._values.__dlpack__(**arguments)

    def __dlpack_device__(self):
        return self._values.__dlpack_device__()


class Elsewhere(Tensor):
    def __dlpack_device__(self):
        return (2, 0)  # a GPU

    def __dlpack__(self, **arguments):
        raise BufferError("not in main memory")


# All types represent these rows exactly. The rows have different directions, and no row or column
# is zero.
ROWS = np.array(
    [[1, 0, 2, 3], [0, 1, 3, 1], [2, 2, 0, 1], [3, 1, 1, 0], [1, 3, 2, 0], [0, 2, 1, 3]], "f8"
)
WORKS = {
    "float16": lambda: ROWS.astype("f2"),
    "float32": lambda: ROWS.astype("f4"),
    "float64": lambda: ROWS.copy(),
    "longdouble": lambda: ROWS.astype(np.longdouble),
    "big-endian": lambda: ROWS.astype(">f4"),
    "int8": lambda: ROWS.astype("i1"),
    "int16": lambda: ROWS.astype("i2"),
    "int64": lambda: ROWS.astype("i8"),
    "uint16": lambda: ROWS.astype("u2"),
    "uint64": lambda: ROWS.astype("u8"),
    "bfloat16": lambda: ROWS.astype(of("ml_dtypes").bfloat16),
    "float8_e4m3": lambda: ROWS.astype(of("ml_dtypes").float8_e4m3fn),
    "float8_e5m2": lambda: ROWS.astype(of("ml_dtypes").float8_e5m2),
    "int4": lambda: ROWS.astype(of("ml_dtypes").int4),
    "objects": lambda: ROWS.astype(object),
    "lists": lambda: ROWS.tolist(),
    "list of arrays": lambda: list(ROWS),
    "Fortran order": lambda: np.asfortranarray(ROWS),
    "every second column": lambda: np.repeat(ROWS, 2, axis=1)[:, ::2],
    "reversed": lambda: ROWS[::-1].copy()[::-1],
    "read-only": lambda: np.frombuffer(ROWS.tobytes()).reshape(ROWS.shape),
    "pandas frame": lambda: of("pandas").DataFrame(ROWS),
    "pandas frame of ints": lambda: of("pandas").DataFrame(ROWS.astype(int)),
    "pandas nullable": lambda: of("pandas").DataFrame(ROWS).astype("Float64"),
    "pandas column": lambda: of("pandas").DataFrame({"embedding": list(ROWS)})["embedding"],
    "pandas lists": lambda: of("pandas").Series(ROWS.tolist()),
    "polars frame": lambda: of("polars").DataFrame(ROWS),
    "polars lists": lambda: of("polars").Series(ROWS.tolist()),
    "polars arrays": lambda: of("polars").Series(ROWS),
    "arrow lists": lambda: of("pyarrow").array(ROWS.tolist()),
    "arrow chunks": lambda: of("pyarrow").chunked_array([ROWS[:2].tolist(), ROWS[2:].tolist()]),
    "arrow fixed lists": lambda: of("pyarrow").FixedSizeListArray.from_arrays(ROWS.ravel(), 4),
    "arrow slice": lambda: of("pyarrow").array([[9.0] * 4, *ROWS.tolist()])[1:],
    "arrow table": lambda: of("pyarrow").table(dict(zip("abcd", ROWS.T, strict=True))),
    "arrow capsule of a table": lambda: ArrowStream(WORKS["arrow table"]()),
    "arrow capsule of lists": lambda: ArrowArray(WORKS["arrow lists"]()),
    "dlpack": lambda: Tensor(ROWS.copy()),
    "torch": lambda: of("torch").tensor(ROWS),
    "torch bfloat16": lambda: of("torch").tensor(ROWS, dtype=of("torch").bfloat16),
    "torch float8": lambda: of("torch").tensor(ROWS).to(of("torch").float8_e4m3fn),
    "torch parameter": lambda: of("torch").nn.Parameter(of("torch").tensor(ROWS)),
    "torch embedding": lambda: of("torch").nn.Embedding.from_pretrained(as_tensor()).weight,
    "torch transposed": lambda: of("torch").tensor(ROWS.T.copy()).T,
    "list of tensors": lambda: list(of("torch").tensor(ROWS).bfloat16()),
}
# Inputs that are refused. The text in each entry is the part of the error message that names a
# remedy.
REFUSED = {
    "uint8": (lambda: ROWS.astype("u1"), "unpackbits"),
    "packed bits": (lambda: np.packbits(ROWS > 1, axis=1), "unpackbits"),
    "complex": (lambda: ROWS.astype(complex), "real|Complex"),
    "text": (lambda: ROWS.astype(str), "real numbers"),
    "bytes": (lambda: ROWS.astype("S3"), "real numbers"),
    "lists of text": (lambda: ROWS.astype(str).tolist(), "real numbers"),
    "dates": (lambda: ROWS.astype("i8").astype("M8[D]"), "real numbers"),
    "durations": (lambda: ROWS.astype("i8").astype("m8[s]"), "real numbers"),
    "records": (lambda: np.zeros((6, 4), [("a", "f4")]), "real numbers"),
    "objects with text": (lambda: mixed("1"), "number|to float"),
    "objects with None": (lambda: mixed(None), "number|NaN"),
    "masked": (lambda: np.ma.masked_equal(ROWS, 3), "filled"),
    "ragged": (lambda: [[1.0, 2.0], [3.0]], "one length|inhomogeneous"),
    "NaN": (lambda: np.where(ROWS == 3, np.nan, ROWS), "finite|NaN"),
    "pandas ids": (lambda: of("pandas").DataFrame(named("id")), "'id'"),
    "pandas pairs": (lambda: of("pandas").DataFrame(pairs("userId", "sku")), "read_interactions"),
    "pandas NA": (lambda: of("pandas").DataFrame({"a": [1, None], "b": [1, 2]}), "NaN|real"),
    "pandas text": (
        lambda: of("pandas").DataFrame({"a": ["x"] * 6, "b": range(6)}),
        "number|to float",
    ),
    "pandas vectors and text": (lambda: of("pandas").DataFrame(documents()), "pass only column 0"),
    "pandas column with None": (lambda: of("pandas").Series([None, *ROWS.tolist()]), "NoneType"),
    "pandas ragged": (lambda: of("pandas").Series([[1.0], [2.0, 3.0]]), "one length"),
    "polars ids": (lambda: of("polars").DataFrame(named("item_id")), "'item_id'"),
    "polars pairs": (lambda: of("polars").DataFrame(pairs("customer", "item")), "read_inter"),
    "arrow null": (lambda: of("pyarrow").array([None, *ROWS.tolist()]), "null in row 0"),
    "arrow ragged": (lambda: of("pyarrow").array([[1.0], [2.0, 3.0]]), "one length"),
    "arrow ids": (lambda: of("pyarrow").table(named("id")), "'id'"),
    "arrow capsule of ids": (lambda: ArrowStream(of("pyarrow").table(named("id"))), "'id'"),
    "dlpack of a GPU": (lambda: Elsewhere(ROWS), "main memory"),
    "torch uint8": (lambda: of("torch").tensor(ROWS.astype("u1")), "unpackbits"),
    "torch sparse": (lambda: of("torch").tensor(ROWS).to_sparse(), "to_dense"),
    "torch meta": (lambda: of("torch").empty((6, 4), device="meta"), "main memory"),
    "torch complex": (lambda: of("torch").tensor(ROWS.astype(complex)), "real|Complex"),
    "generator": (lambda: (row for row in ROWS), "number|dimensional|array"),
    "dictionary": (lambda: {"a": ROWS}, "number|dimensional"),
    "None": (lambda: None, "number|None|array"),
    "no columns": (lambda: np.ones((6, 0)), "column|feature"),
}
OTHER = np.random.default_rng(0).standard_normal((6, 4))
CLASSES = [0, 1, 0, 1, 0, 1]


def index(X):
    result = fastcos.SimilarityIndex().fit(X)
    result.add(X), result.upsert(X, range(6))
    return *result.search(X, 3), *result.search(OTHER, 3)


def above(X):
    return neighbors_dense(fastcos.neighbors_above(X, X, min_score=0.3))


def neighbors_dense(pairs):
    return pairs.toarray()


def transformed(model):
    return lambda X: dense(model.fit(X).transform(X))


def dense(X):
    return X.toarray() if hasattr(X, "toarray") else X


ENTRY_POINTS = {
    "top_k": lambda X: (*fastcos.top_k(X, k=3), *fastcos.top_k(OTHER, X, 3)),
    "SimilarityIndex": index,
    "neighbors_above": above,
    "similarity_blocks": lambda X: next(fastcos.similarity_blocks(X, X))[1],
    "NeighborsTransformer": transformed(fastcos.NeighborsTransformer(2)),
    "query_metric": lambda X: fastcos.query_metric(X).transform(X),
    "canonicalize": lambda X: np.abs(fastcos.canonicalize(X, X).items),
    "cosine_interval": lambda X: np.array(cosine_interval(X, OTHER, condition=2.0)[:2]),
    "certified_neighbors": lambda X: fastcos.certified_neighbors(X, condition=1.1, k=2).indices,
    "effective_rank": lambda X: np.array(metrics.effective_rank(X)),
    "pair_auc": lambda X: np.array(metrics.pair_auc(X, CLASSES).value),
    "LinearMF": lambda X: fastcos.LinearMF(2).fit(X).recommend(X, 2).scores,
    "CosineMF": lambda X: fastcos.CosineMF(2, max_iter=1).fit(X).transform(X),
    "NormalizeRows": transformed(NormalizeRows()),
    "StandardizeColumns": transformed(StandardizeColumns()),
    "PopularityWeights": transformed(PopularityWeights()),
    "ShiftedPPMI": transformed(ShiftedPPMI()),
    "matmul": lambda X: (fastcos.matmul(X, OTHER.T[:, :2]), fastcos.matmul(OTHER.T.copy(), X)),
    "gram_matmul": lambda X: fastcos.gram_matmul(X, OTHER[:4]),
    "randomized_svd": lambda X: fastcos.randomized_svd(X, 2).s,
}


def of(library):
    return pytest.importorskip(library, reason=f"{library} is not installed")


def as_tensor():
    return of("torch").tensor(ROWS)


def mixed(value):
    rows = ROWS.astype(object)
    rows[2, 1] = value
    return rows


def named(name):
    return {name: np.arange(6), **dict(zip("abcd", ROWS.T, strict=True))}


def pairs(user, item):
    return {user: np.arange(6), item: np.arange(6) % 3}


def documents():
    return {"embedding": list(ROWS), "text": ["word"] * 6}


def cells(table):
    """Yield the cells of a table, except those that need a library that is not installed."""
    for name, value in table.items():
        make, *rule = value if isinstance(value, tuple) else (value,)
        try:
            yield (name, make(), *rule)
        except pytest.skip.Exception:
            continue


# Searches of these types have their own kernels, which take 2 s per type to compile.
NARROW = {"float16", "int8", "int16", "bfloat16", "float8_e4m3", "float8_e5m2", "torch bfloat16"}
SEARCHES = ["top_k", "SimilarityIndex"]


@pytest.mark.parametrize(
    "entry",
    [pytest.param(name, marks=[pytest.mark.slow] * (name == "CosineMF")) for name in ENTRY_POINTS],
)
def test_entry_points_read_rows_exactly(entry):
    left_out = NARROW if entry in SEARCHES else {}
    assert_reads_exactly(entry, [name for name in WORKS if name not in left_out])


@pytest.mark.slow
@pytest.mark.parametrize("entry", SEARCHES)
def test_searches_read_narrow_rows_exactly(entry):
    assert_reads_exactly(entry, NARROW)


def assert_reads_exactly(entry, names):
    call = ENTRY_POINTS[entry]
    expected = call(ROWS)
    for name, X in cells({name: WORKS[name] for name in names}):
        result = call(X)
        for one, other in zip(as_tuple(result), as_tuple(expected), strict=True):
            np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5, err_msg=f"{entry} {name}")


@pytest.mark.parametrize("entry", ENTRY_POINTS)
def test_entry_points_refuse_what_would_mislead(entry):
    for name, X, rule in cells(REFUSED):
        with pytest.raises((TypeError, ValueError), match=rule) as caught:
            accepted(entry, ENTRY_POINTS[entry](X), name)
        if "data" not in str(caught.value):  # only scikit-learn's own messages have several lines
            assert "\n" not in str(caught.value), f"{entry} {name}"


def accepted(entry, _, name):
    pytest.fail(f"{entry} accepted {name}")


def as_tuple(result):
    return result if isinstance(result, tuple) else (result,)


def test_tables_of_vectors_are_read_or_name_the_column():
    pandas = pytest.importorskip("pandas", reason="pandas is no requirement")
    rows = np.random.default_rng(0).standard_normal((20, 4))
    frame = pandas.DataFrame({"name": [f"a{n}" for n in range(20)], "embedding": rows.tolist()})
    one = fastcos.top_k(frame[["embedding"]], k=3)
    np.testing.assert_array_equal(one.indices, fastcos.top_k(rows, k=3).indices)
    with pytest.raises(TypeError, match=r"\(pass only column 1, which holds vectors\)"):
        fastcos.top_k(frame, k=3)
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is an extra")
    ragged = [*rows[:7].tolist(), [1.0, 2.0], *rows[7:].tolist()]
    for column in (pandas.Series(ragged), arrow.chunked_array([ragged])):
        with pytest.raises(ValueError, match=r"got 4 numbers in row 0 and 2 in row 7"):
            fastcos.top_k(column, k=3)

    class LazyFrame:
        pass

    with pytest.raises(TypeError, match=r"must be a table .*, got a LazyFrame \(use .collect"):
        fastcos.top_k(LazyFrame(), k=3)
