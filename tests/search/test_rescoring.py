"""Tests of the exact scores of candidates, and of their certificate.

The certificate is an upper bound on the number of nearest neighbours that are missing from the
candidates.
"""

import numpy as np
import pytest

from fastcos import SimilarityIndex, top_k
from fastcos.search import rescore, semantic_search
from tests.oracles import dense as dense_oracle
from tests.oracles.compare import assert_same_bits


def gaussian(n, d=20, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal((n, d)).astype(dtype)


ITEMS, QUERIES = gaussian(700), gaussian(40, seed=1)
LISTS = np.random.default_rng(2).integers(-1, 700, (40, 60))
EVERYTHING = np.tile(np.arange(700), (40, 1))


@pytest.mark.parametrize(
    "measure",
    ["cosine", "dot", "neg_euclidean", "csls", pytest.param("recos", marks=pytest.mark.slow)],
)
def test_rescore_of_all_items_gives_the_bits_of_top_k(measure):
    result = rescore(QUERIES, ITEMS, EVERYTHING, 9, measure=measure)
    expected = top_k(QUERIES, ITEMS, 9, measure=measure)
    np.testing.assert_array_equal(result.indices, expected.indices)
    assert_same_bits(result.scores, expected.scores)
    assert result.missing is None


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_rescore_orders_candidates_by_exact_score(dtype):
    items = ITEMS.astype(dtype)
    allowed = np.zeros((40, 700), bool)
    for query, row in enumerate(LISTS):
        allowed[query, row[row >= 0]] = True
    columns, keys = dense_oracle.top_k(QUERIES, items, 50, "cosine", excluded=~allowed)
    result = rescore(QUERIES, items, LISTS, 50)
    np.testing.assert_array_equal(result.indices, columns)
    np.testing.assert_allclose(result.scores[columns >= 0], keys[columns >= 0], rtol=1e-6)
    assert np.isneginf(result.scores[columns < 0]).all()
    assert result.missing is None  # without bounds, nothing is known about the other items
    unbounded = rescore(QUERIES, items, LISTS, 50, upper_bounds=np.full(40, np.inf))
    assert (unbounded.missing == 50).all()


def test_rescore_reads_listed_rows_alone(tmp_path):
    items = ITEMS.copy()
    unlisted = np.setdiff1d(np.arange(700), LISTS)[:3]
    lists = LISTS.copy()
    lists[np.isin(lists, [5, 9])] = 0
    items[[5, 9, *unlisted]] = np.nan
    expected = rescore(QUERIES, ITEMS, lists, 5)
    np.save(tmp_path / "items.npy", items)
    mapped = np.load(tmp_path / "items.npy", mmap_mode="r")
    for rows in (items, mapped, np.asfortranarray(items)):
        result = rescore(QUERIES, rows, lists, 5, working_memory=0.05)
        assert_same_bits(result.scores, expected.scores)
        lists[3, 3] = 9
        with pytest.raises(ValueError, match=r"^items must be finite"):
            rescore(QUERIES, rows, lists, 5)
        lists[3, 3] = 0


def test_rescore_keeps_the_digits_of_tiny_rows():
    tiny = ITEMS.astype(np.float64) * 1e-200
    result, expected = rescore(QUERIES, tiny, LISTS, 5), rescore(QUERIES, ITEMS, LISTS, 5)
    np.testing.assert_array_equal(result.indices, expected.indices)


@pytest.mark.slow
def test_certificate_is_right_in_10000_cases_and_not_vacuous():
    random = np.random.default_rng(5)
    certain = whole = 0
    for seed in range(100):
        # The numbers are integers, so that some scores equal each other, and some scores equal a
        # bound.
        items = random.integers(-3, 4, (60, 6)) + 0.0
        queries = random.integers(-3, 4, (100, 6)) + 0.0
        truth = dense_oracle.keys(queries, items, "dot")
        # Each list contains the items with the best inexact scores. Usually, many of the truly best
        # items are among them.
        rough = truth + random.normal(0, random.choice([0.0, 1.0, 6.0]), truth.shape)
        lists = np.argsort(-rough, axis=1)[:, : int(random.integers(5, 40))]
        remaining = truth.copy()
        np.put_along_axis(remaining, lists, -np.inf, axis=1)
        bounds = remaining.max(axis=1) + random.choice([0.0, 0.5], 100)
        k = 5
        result = rescore(queries, items, lists, k, measure="dot", upper_bounds=bounds)
        best = dense_oracle.top_k(queries, items, k, "dot")[0]
        absent = (~(best[:, :, None] == result.indices[:, None]).any(axis=2)).sum(axis=1)
        assert (absent <= result.missing).all(), seed
        certain += (result.missing == 0).sum()
        # Every valid bound of a query is at least the best true score of the items outside the
        # query's list. With this score as the bound, as many queries as possible are certified.
        kth = np.sort(truth, axis=1)[:, -k]
        whole += ((absent == 0) & (remaining.max(axis=1) < kth)).sum()
    assert 2000 < certain <= whole
    assert certain > 0.8 * whole


def test_index_rescore_knows_what_is_missing():
    index = SimilarityIndex().fit(ITEMS[:500])
    index.add(ITEMS[500:])
    index.remove(np.arange(0, 700, 10))
    is_live = np.arange(700) % 10 > 0
    truth = dense_oracle.top_k(QUERIES, ITEMS, 6, "cosine", allowed=is_live)[0]
    lists = LISTS.copy()
    lists[:20, :5] = truth[:20, :5]
    lists[20:30, :6] = truth[20:30]
    result = index.rescore(QUERIES, lists, 6)
    absent = [len(set(best) - set(row)) for best, row in zip(truth, lists, strict=True)]
    assert result.missing.tolist() == absent
    assert absent[20:30] == [0] * 10
    np.testing.assert_array_equal(result.indices[20:30], truth[20:30])
    assert not np.isin(result.indices, np.arange(0, 700, 10)).any()


@pytest.mark.parametrize(("function", "measure"), [("cos_sim", "cosine"), ("dot_score", "dot")])
def test_semantic_search_has_the_results_of_top_k(function, measure):
    expected = top_k(QUERIES, ITEMS, 4, measure=measure)

    def score(a, b):
        """A function that has the same name as a function of sentence-transformers."""

    score.__name__ = function
    for score_function in (function, score):
        result = semantic_search(QUERIES, ITEMS, top_k=4, score_function=score_function)
        assert [[one["corpus_id"] for one in row] for row in result] == expected.indices.tolist()
        assert [[one["score"] for one in row] for row in result] == expected.scores.tolist()
    assert len(semantic_search(QUERIES[0], ITEMS[:3])[0]) == 3


def test_semantic_search_agrees_with_sentence_transformers():
    util = pytest.importorskip("sentence_transformers.util", reason="needs sentence-transformers")
    theirs = util.semantic_search(QUERIES, ITEMS, top_k=4)
    ours = semantic_search(QUERIES, ITEMS, top_k=4, score_function=util.cos_sim)
    for one, other in zip(ours, theirs, strict=True):
        assert [hit["corpus_id"] for hit in one] == [hit["corpus_id"] for hit in other]
        np.testing.assert_allclose(
            [hit["score"] for hit in one], [hit["score"] for hit in other], rtol=1e-5
        )


@pytest.mark.parametrize(
    "name",
    [
        "centered_cosine", "zscore_cosine", "unit_column_cosine", "whitened_cosine",
        "scaled_similarity", "norm_angle_distance",
        # It compiles a kernel for float32.
        pytest.param("spearman_dims", marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_rescore_of_mapped_items_by_measures_that_learn(tmp_path, name):
    rows = np.random.default_rng(0).standard_normal((9000, 12)).astype(np.float32)
    np.save(tmp_path / "rows.npy", rows)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    lists = np.random.default_rng(1).integers(0, len(rows), (20, 30))
    expected = rescore(rows[:20], rows, lists, 5, measure=name)
    result = rescore(rows[:20], mapped, lists, 5, measure=name)
    assert result.indices.min() >= 0
    np.testing.assert_array_equal(result.indices, expected.indices)
    np.testing.assert_allclose(result.scores, expected.scores, rtol=1e-6)


@pytest.mark.parametrize(
    ("candidates", "error", "message"),
    [
        (np.arange(5), ValueError, r"must be of shape \(5, c\) with c of at least 1, got \(5,\)"),
        (np.zeros((4, 3), int), ValueError, r"must be of shape \(5, c\) .*, got \(4, 3\)"),
        (np.zeros((5, 0), int), ValueError, r"must be of shape \(5, c\) .*, got \(5, 0\)"),
        (np.zeros((5, 2)), TypeError, "must hold whole numbers, got dtype float64"),
        (
            np.full((5, 2), 30),
            ValueError,
            "numbers from 0 to 29, or -1 as padding, got numbers from 30 to 30",
        ),
        (
            np.full((5, 2), -2),
            ValueError,
            "numbers from 0 to 29, or -1 as padding, got numbers from -2 to -2",
        ),
    ],
)
def test_candidates_of_another_shape_type_or_range_are_refused(candidates, error, message):
    with pytest.raises(error, match=f"^candidates {message}$|^candidates .*{message}$"):
        rescore(gaussian(5), gaussian(30), candidates, 2)
