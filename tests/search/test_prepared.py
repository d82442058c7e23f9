"""Searches of few queries are exact before and after an index has prepared such searches."""

import numpy as np
import pytest

import fastcos
from tests.oracles import dense as dense_oracle

FORMS = {"cosine": "cosine", "dot": "dot", "neg_euclidean": "euclidean"}
RNG = np.random.default_rng(0)
ROWS = RNG.standard_normal((1000, 64)).astype(np.float32)


def assert_exact(result, queries, rows, k, form):
    columns, keys = dense_oracle.top_k(queries, rows, k, form, exclude_self=False)
    with np.errstate(over="ignore"):
        scores = (-np.sqrt(-keys) if form == "euclidean" else keys).astype(np.float32)
    np.testing.assert_array_equal(result.indices, columns)
    np.testing.assert_array_equal(result.scores, scores)


@pytest.mark.parametrize("measure", FORMS)
# With float32 rows and float64 queries ("fd"), searches compile kernels that no other default test
# needs.
@pytest.mark.parametrize("dtypes", ["ff", pytest.param("fd", marks=pytest.mark.slow), "df", "dd"])
@pytest.mark.parametrize(
    "n_queries", [1, 65, *(pytest.param(n, marks=pytest.mark.slow) for n in (5, 33, 64))]
)
def test_few_queries_are_exact(n_queries, dtypes, measure):
    rows, queries = ROWS.astype(dtypes[0]), RNG.standard_normal((n_queries, 64)).astype(dtypes[1])
    index = fastcos.SimilarityIndex(measure).fit(rows, ids=[f"item {i}" for i in range(1000)])
    for _ in range(2):  # the second search uses what the first one prepared
        result = index.search(queries, 7)
        assert_exact(result, queries, rows, 7, FORMS[measure])
        assert result.ids.tolist() == [[f"item {i}" for i in row] for row in result.indices]


@pytest.mark.parametrize("measure", FORMS)
@pytest.mark.parametrize(
    "scale", [0.0, 1e-38, 1e-30, 1e30, 1e38], ids=lambda scale: f"times {scale:g}"
)
def test_queries_that_are_not_ordinary_are_exact(scale, measure):
    queries = ROWS[:3] * np.float32([[1], [scale], [1]]) / np.float32(8)
    index = fastcos.SimilarityIndex(measure).fit(ROWS)
    for _ in range(2):
        assert_exact(index.search(queries, 5), queries, ROWS, 5, FORMS[measure])


@pytest.mark.parametrize("scale", [1e-200, 1e-120, 1e120])
def test_float64_queries_far_from_one_are_exact(scale):
    rows = ROWS.astype(np.float64)
    queries = scale * rows[:3]
    index = fastcos.SimilarityIndex().fit(rows)
    for _ in range(2):
        np.testing.assert_array_equal(
            index.search(queries, 5).indices, index.search(rows[:3], 5).indices
        )


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_query_that_is_not_finite_is_refused(bad):
    queries = ROWS[:3].copy()
    queries[1, 5] = bad
    index = fastcos.SimilarityIndex().fit(ROWS)
    for _ in range(2):
        with pytest.raises(
            ValueError, match="queries must be finite, got NaN or infinity in row 1"
        ):
            index.search(queries, 5)


def test_other_forms_of_queries_find_the_same():
    index = fastcos.SimilarityIndex().fit(ROWS)
    expected = [index.search(ROWS[:2], 5) for _ in range(2)][1]
    shifted = np.zeros(1 + ROWS[:2].nbytes, np.uint8)[1:].view(np.float32).reshape(2, 64)
    shifted[:] = ROWS[:2]
    for queries in (
        ROWS[:2].tolist(), np.asfortranarray(ROWS[:2]), ROWS[:2].astype(">f4"),
        ROWS[:2].astype(np.float64), shifted, np.repeat(ROWS[:2], 2, axis=1)[:, ::2],
    ):  # fmt: skip
        result = index.search(queries, 5)
        for one, other in zip(result, expected, strict=True):
            np.testing.assert_array_equal(one, other)
    one = index.search(ROWS[0], 5)
    np.testing.assert_array_equal(one.indices, expected.indices[:1])


@pytest.mark.parametrize("k", [0, -1, 1.5, "5", None, True])
def test_a_wrong_k_is_refused(k):
    index = fastcos.SimilarityIndex().fit(ROWS)
    index.search(ROWS[:1], 5)
    with pytest.raises((TypeError, ValueError), match="k must be a whole number"):
        index.search(ROWS[:1], k)


@pytest.mark.parametrize("n_threads", [True, 1.5, "1", [1], 0, -1])
def test_a_wrong_number_of_threads_is_refused_although_a_plan_is_kept(n_threads):
    index = fastcos.SimilarityIndex().fit(ROWS)
    for _ in range(2):
        index.search(ROWS[:1], 5, n_threads=1)
        with pytest.raises((TypeError, ValueError), match="n_threads must be a whole number"):
            index.search(ROWS[:1], 5, n_threads=n_threads)


def test_settings_of_threads_and_memory_hold_for_plans_that_are_kept():
    rows = RNG.standard_normal((2000, 16)).astype(np.float32)
    index = fastcos.SimilarityIndex().fit(rows)
    expected = index.search(rows[:64], 200)
    before = fastcos.get_config().working_memory
    fastcos.set_config(working_memory=0.01)
    try:
        with pytest.raises(ValueError, match="working_memory must be at least"):
            index.search(rows[:64], 200)
    finally:
        fastcos.set_config(working_memory=before)
    np.testing.assert_array_equal(index.search(rows[:64], 200).indices, expected.indices)


def test_an_index_that_changed_finds_what_is_in_it():
    index = fastcos.SimilarityIndex("dot").fit(ROWS)
    best = int(index.search(ROWS[:1], 1).ids[0, 0])
    index.remove([best])
    assert index.search(ROWS[:1], 1).ids[0, 0] != best
    index.add(100 * ROWS[:1], ids=[5000])
    assert index.search(ROWS[:1], 1).ids.tolist() == [[5000]]
    index.fit(ROWS[::-1])
    for _ in range(2):
        assert index.search(ROWS[:1], 1).ids.tolist() == [[999 - best]]


def test_many_neighbours_and_padding_are_exact():
    index = fastcos.SimilarityIndex().fit(ROWS)
    for k in (124, 125, 126, 999, 1000):
        for _ in range(2):
            assert_exact(index.search(ROWS[:2], k), ROWS[:2], ROWS, k, "cosine")
    assert (index.search(ROWS[:2], 1001).indices[:, -1] == -1).all()


@pytest.mark.parametrize(
    "n_threads", [2, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 5, 16))]
)
def test_bits_do_not_depend_on_threads(n_threads):
    rows = RNG.standard_normal((30_000, 48)).astype(np.float32)
    index = fastcos.SimilarityIndex("dot").fit(rows)
    for n in (1, 20):
        expected = index.search(rows[:n], 10, n_threads=1)
        result = index.search(rows[:n], 10, n_threads=n_threads)
        for one, other in zip(result, expected, strict=True):
            np.testing.assert_array_equal(one, other)
    with pytest.raises(ValueError, match="n_threads must be a whole number"):
        index.search(rows[:1], 10, n_threads=0)


@pytest.mark.parametrize("measure", FORMS)
def test_parts_and_removed_items_are_searched_alike(measure):
    rows = RNG.standard_normal((6000, 24)).astype(np.float32)
    index = fastcos.SimilarityIndex(measure).fit(rows[:5000])
    index.add(rows[5000:5900])
    index.add(rows[5900:])
    gone = RNG.permutation(6000)[:800]
    index.remove(gone)
    index.upsert(rows[:40] + 1, ids=np.setdiff1d(np.arange(6000), gone)[:40])
    live = index.ids_of(np.arange(6000))
    queries = RNG.standard_normal((9, 24)).astype(np.float32)
    for k in (1, 10, 600):
        result = [index.search(queries, k) for _ in range(2)][1]
        expected = index.search(queries, k, min_score=-1e9)  # with one step more
        for one, other in zip(result, expected, strict=True):
            np.testing.assert_array_equal(one, other)
        assert np.isin(result.ids, live[live >= 0]).all()


@pytest.mark.parametrize("n_parts", [1, 3])
@pytest.mark.parametrize("n_allowed", [700, 2000])
def test_a_mask_of_positions_that_were_partly_removed_is_exact(n_allowed, n_parts):
    rows = RNG.standard_normal((3000, 24)).astype(np.float32)
    index = fastcos.SimilarityIndex().fit(rows[: 3000 - 100 * (n_parts - 1)])
    for lo in range(len(index), 3000, 100):
        index.add(rows[lo : lo + 100])
    gone = RNG.permutation(3000)[:500]
    index.remove(gone)
    positions = np.sort(RNG.permutation(3000)[:n_allowed])
    mask = np.zeros(3000, np.bool_)
    mask[positions] = True
    live = np.setdiff1d(positions, gone)
    queries = RNG.standard_normal((3, 24)).astype(np.float32)
    columns = dense_oracle.top_k(queries, rows[live], 10, "cosine", exclude_self=False)[0]
    for allowed in (mask, positions, positions.tolist()):
        for _ in range(2):
            result = index.search(queries, 10, allowed=allowed)
            np.testing.assert_array_equal(result.indices, live[columns])
            np.testing.assert_array_equal(result.ids, live[columns])


def test_a_mask_that_allows_only_copies_of_rows_finds_them():
    rows = np.repeat(RNG.standard_normal((500, 24)).astype(np.float32), 3, axis=0)
    index, queries = fastcos.SimilarityIndex().fit(rows), ROWS[:2, :24].copy()
    index.search(queries, 10)  # this search packs one row of each group of duplicates
    mask = np.arange(len(rows)) % 3 > 0  # the first row of each group is not allowed
    allowed = np.flatnonzero(mask)
    columns = dense_oracle.top_k(queries, rows[mask], 10, "cosine", exclude_self=False)[0]
    for _ in range(2):
        result = index.search(queries, 10, allowed=mask)
        np.testing.assert_array_equal(result.indices, allowed[columns])


def test_a_wrong_mask_is_refused():
    index = fastcos.SimilarityIndex().fit(ROWS)
    index.search(ROWS[:1], 5)
    with pytest.raises(ValueError, match="allowed must"):
        index.search(ROWS[:1], 5, allowed=np.ones(999, np.bool_))
    with pytest.raises(ValueError, match="allowed must"):
        index.search(ROWS[:1], 5, allowed=np.array([0, 1000]))


@pytest.mark.slow
def test_more_searches_than_an_index_keeps_are_exact():
    index = fastcos.SimilarityIndex().fit(ROWS)
    for _ in range(2):
        for n in range(1, 33):
            for k in range(1, 11):
                result = index.search(ROWS[:n], k)
                np.testing.assert_array_equal(result.indices[:, 0], np.arange(n))
                assert result.ids.shape == (n, k)
