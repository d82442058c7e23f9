"""Results are shown as small tables: as text in a terminal, and as HTML in a notebook."""

import dataclasses
import functools
import html
import re
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import fastcos
from fastcos import comparison, io
from fastcos.auditing.model_diff import ModelDiff
from fastcos.plots.html import audit_page
from fastcos.reports import Table
from fastcos.search import near_duplicates

ROWS = np.random.default_rng(0).standard_normal((30, 4))
NEIGHBORS = fastcos.Neighbors(
    np.array([[2, 1], [0, -1]]), np.array([[0.5, 0.25], [1, -np.inf]], np.float32)
)
X = sp.csr_array(np.eye(30, 6))
INTERVAL = comparison.leaderboard.BootstrapInterval(0.5, 0.4, 0.6)
COSINE = comparison.Candidate("cosine")
LEADERBOARD = comparison.Leaderboard(
    "which items have the label <b>", "MAP@R",
    [comparison.LeaderboardRow(COSINE, INTERVAL, INTERVAL, {})], COSINE,
    {"chance": 0.1}, 30, "items", True, COSINE, None, "Use cosine.", {},
)  # fmt: skip


# The audit must not run when this module is imported. Otherwise, every worker of pytest would wait
# until the kernels of the audit are compiled.
@functools.cache
def audited():
    return fastcos.audit(ROWS, k=2)


@functools.cache
def calibrated():
    return fastcos.calibrate(ROWS)


RESULTS = {
    "neighbors": NEIGHBORS,
    "many neighbors": fastcos.Neighbors(np.zeros((10**5, 9), int), np.zeros((10**5, 9), "f4")),
    "audit": audited,  # called by result
    "diff": ModelDiff(30, 30, 2, 0.5, None, 0.7, 0.7, 0.1, 0.1, 1, 1, 2, None, None, np.ones(2)),
    "leaderboard": LEADERBOARD,
    "comparison": comparison.Comparison(
        LEADERBOARD,
        [
            comparison.RescalingScores(
                name="eq2", formula="I", objective="weight_decay", shrinkage=None, spectrum=None,
                effective_rank=2.0, jaccard_at_10=0.5, zero_items=0,
            )
        ],
        [], {}, None, np.ones(3, int), {}, {},
    ),
    "svd": fastcos.SVD(None, np.ones(3), np.ones((3, 6)), np.zeros(3)),
    "factors": io.Factors(ROWS, None, np.arange(30), ("a note",)),
    "interactions": io.Interactions(X, np.arange(30), np.arange(6)),
}  # fmt: skip


def result(name):
    return audited() if name == "audit" else RESULTS[name]


class Balanced(HTMLParser):
    """Collects texts, and checks that every element is closed in the correct order."""

    def __init__(self):
        super().__init__()
        self.open, self.texts = [], []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


@pytest.mark.parametrize("name", RESULTS)
def test_result_fits_a_screen(name):
    lines = repr(result(name)).splitlines()
    assert 2 <= len(lines) <= 24
    assert all(len(line) <= 140 and line == line.rstrip() for line in lines)


@pytest.mark.parametrize("name", RESULTS)
def test_result_has_the_same_texts_as_html(name):
    page = Balanced()
    page.feed(result(name)._repr_html_())
    assert page.open == []
    words = re.findall(r"\w+", repr(result(name)))
    assert sorted(re.findall(r"\w+", " ".join(page.texts))) == sorted(words)


@pytest.mark.parametrize(
    ("call", "answer_of"),
    [
        (audited, lambda actual: actual.headline),
        (lambda: LEADERBOARD, lambda _: "Use cosine."),
        (calibrated, lambda actual: actual.verdict),
        (lambda: near_duplicates(ROWS, 0.9), lambda actual: actual.verdict),
    ],
    ids=["audit", "leaderboard", "calibration", "duplicates"],
)
def test_results_begin_with_the_answer(call, answer_of):
    actual = call()
    answer = answer_of(actual)
    assert " ".join(repr(actual).split()).startswith(answer)
    assert actual._repr_html_().startswith(f'<p>{html.escape(answer)}</p><div class="scroll"')


def test_neighbors_show_items_and_scores():
    assert repr(NEIGHBORS).splitlines() == [
        "Neighbors of 2 queries, k = 2: items (scores) by rank",
        "query  1          2",
        "    0  2 (0.500)  1 (0.250)",
        "    1  0 (1.000)",
    ]
    assert "99,990 more queries, 4 more neighbours" in repr(RESULTS["many neighbors"])


def test_text_table_aligns_numbers_to_the_right():
    table = Table("title", ("name", "n"), [("a", 5), ("bc", 123)], "more")
    assert table.text() == "title\nname    n\na       5\nbc    123\nmore"


def test_html_table_escapes_texts():
    table = Table("<b>", ("&",), [("<script>",)], "<i>")
    for text in ("<b>", "<script>", "<i>"):
        assert text not in table.html()
    assert "which items have the label &lt;b&gt;" in LEADERBOARD._repr_html_()


def test_neighbors_to_pandas_leaves_padding_out():
    frame = NEIGHBORS.to_pandas()
    assert frame.to_dict("list") == {
        "query": [0, 0, 1], "rank": [1, 2, 1], "neighbor": [2, 1, 0], "score": [0.5, 0.25, 1.0],
    }  # fmt: skip
    named = NEIGHBORS.to_pandas(ids=["a", "b", "c"], query_ids=pd.Index(["x", "y"]))
    assert named["neighbor"].tolist() == ["c", "b", "a"]
    assert named["query"].tolist() == ["x", "x", "y"]


@pytest.mark.parametrize("library", ["polars", "pyarrow"])
def test_neighbors_have_the_same_columns_in_every_library(library):
    pytest.importorskip(library, reason=f"{library} is an extra")

    def columns(neighbors, **options):
        if library == "pyarrow":
            return neighbors.to_arrow(**options).to_pydict()
        return neighbors.to_polars(**options).to_dict(as_series=False)

    ids = {"ids": ["a", "b", "c"]}
    assert columns(NEIGHBORS, **ids) == NEIGHBORS.to_pandas(**ids).to_dict("list")
    index = fastcos.SimilarityIndex().fit(np.eye(2), ids=["a", "b"])
    actual, named = index.search(np.eye(2), k=1), {"query_ids": ["x", "y"]}
    assert columns(actual, **named) == actual.to_pandas(**named).to_dict("list")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ({"ids": ["a", "b"]}, r"^ids must have at least 3 ids, got shape \(2,\)$"),
        ({"query_ids": ["a"]}, r"^query_ids must have at least 2 ids, got shape \(1,\)$"),
        ({"ids": 5}, r"^ids must have at least 3 ids, got shape \(\)$"),
    ],
)
def test_neighbors_to_pandas_refuses_too_few_ids(arguments, line):
    with pytest.raises(ValueError, match=line):
        NEIGHBORS.to_pandas(**arguments)


def test_audit_is_a_page():
    page = audit_page(audited(), name="a < b")
    assert page.lower().startswith("<!doctype html>")
    assert "a &lt; b" in page
    assert audited().verdict in html.unescape(page)


def test_tables_leave_records_as_they_are():
    assert fastcos.Neighbors(*NEIGHBORS) == NEIGHBORS
    assert dataclasses.replace(LEADERBOARD, unit="users").unit == "users"


def test_indexes_and_their_neighbors_show_ids():
    index = fastcos.SimilarityIndex()
    assert repr(index) == "SimilarityIndex(measure='cosine'), not fitted"
    index.fit(np.array([[1.0, 0.0], [0.0, 1.0], [3.0, 0.1]]), ids=["a", "b", "c"])
    assert repr(index) == "SimilarityIndex of 3 items x 2, by cosine"
    actual = index.search(np.array([[1.0, 0.0]]), k=2)
    assert "a (1.000)  c (0.999)" in repr(actual)
    frame = actual.to_pandas(query_ids=["q"])
    assert frame["neighbor"].tolist() == ["a", "c"]
    assert frame["query"].tolist() == ["q", "q"]
    assert actual.to_pandas(ids=["A", "B", "C"])["neighbor"].tolist() == ["A", "C"]


def test_neighbors_are_whole_in_a_notebook_and_padding_is_none():
    ids = [f"chunk-{number:05}-of-a-long-collection" for number in range(60)]
    rows = np.random.default_rng(0).standard_normal((60, 4)).astype(np.float32)
    index = fastcos.SimilarityIndex().fit(rows, ids)
    actual = index.search(rows[:2], k=50, allowed_ids=ids[:5])
    for one in actual.ids[:, :5].ravel():
        assert one in repr(actual)
        assert one in actual._repr_html_()
    assert "more neighbours" not in repr(actual)  # Of the 50 neighbours, 45 are padding.
    assert "more" not in repr(index.search(np.empty((0, 4), np.float32), k=10))
    assert "45 more neighbours of each" in repr(index.search(rows[:2], k=50))


def test_calibration_shows_its_thresholds_in_one_table():
    for text in (repr(calibrated()), calibrated()._repr_html_()):
        assert "99 % interval" in text
        assert "int64" not in text
    with pytest.raises((TypeError, ValueError)) as error:
        fastcos.top_k(ROWS, k=calibrated())
    assert "\n" not in str(error.value)
