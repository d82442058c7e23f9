import numpy as np
import pytest
import scipy.sparse as sp

from fastcos import SimilarityIndex, calibrate, neighbors_above, similarity_blocks
from fastcos.search import near_duplicates
from fastcos.similarity import BaseMeasure
from tests.oracles import dense as dense_oracle


def gaussian(n, d, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d)).astype(np.float32)


@pytest.mark.parametrize(
    ("measure", "threshold"), [("cosine", 0.4), ("dot", 9.0), ("neg_euclidean", -4.0)]
)
def test_all_pairs_above_a_score_are_found_and_no_other(measure, threshold):
    Q, B = gaussian(130, 16), gaussian(700, 16, seed=1)
    form = "euclidean" if measure == "neg_euclidean" else measure
    truth = dense_oracle.keys(Q, B, form)
    truth = -np.sqrt(-truth) if form == "euclidean" else truth
    result = neighbors_above(Q, B, min_score=threshold, measure=measure)
    rows, columns = np.nonzero(truth >= threshold)
    assert 50 < len(rows) < 20_000
    np.testing.assert_array_equal(np.repeat(np.arange(130), np.diff(result.indptr)), rows)
    np.testing.assert_array_equal(result.indices, columns)
    np.testing.assert_array_equal(result.data, truth[rows, columns].astype(np.float32))


@pytest.mark.parametrize("measure", ["cosine", "dot", "neg_euclidean"])
@pytest.mark.parametrize("n_queries", [1, 3, 8])
def test_few_queries_find_all_allowed_items_above_a_score(measure, n_queries):
    # The items fill two runs of panels and part of a third run. The highest threshold finds only
    # few items, and the lowest threshold finds nearly all items.
    queries, items = gaussian(n_queries, 24), gaussian(2100, 24, seed=1)
    allowed = np.random.default_rng(2).random(2100) < 0.7
    form = "euclidean" if measure == "neg_euclidean" else measure
    truth = dense_oracle.keys(queries, items, form)
    truth = -np.sqrt(-truth) if form == "euclidean" else truth
    index = SimilarityIndex(measure).fit(items)
    for share in (0.001, 0.1, 0.99):
        threshold = float(np.quantile(truth, 1 - share))
        for mask in (None, allowed):
            found = index.radius(queries, threshold, allowed=mask)
            expected = truth.astype(np.float32) >= np.float32(threshold)
            expected &= True if mask is None else mask
            rows, columns = np.nonzero(expected)
            np.testing.assert_array_equal(
                np.repeat(np.arange(n_queries), np.diff(found.indptr)), rows
            )
            np.testing.assert_array_equal(found.indices, columns)
            np.testing.assert_array_equal(found.data, truth[rows, columns].astype(np.float32))


@pytest.mark.slow
@pytest.mark.parametrize("n_divisions", [12, 60])
def test_any_division_of_the_queries_finds_the_same_pairs(n_divisions):
    # The pairs of all queries are counted together. If there is little memory, however, the search
    # lists the pairs of only a few queries at a time, or of a single query. The candidates of such
    # a batch must fit into the memory, and no pair may be missed.
    queries, items = gaussian(100, 64), gaussian(20_000, 64, seed=1)
    keys = dense_oracle.keys(queries, items, "cosine")
    expected = keys.astype(np.float32) >= np.float32(0.35)
    n_searches = 0
    for working_memory in np.geomspace(0.01, 1.0, n_divisions):
        try:
            found = neighbors_above(queries, items, min_score=0.35, working_memory=working_memory)
        except ValueError:
            assert n_searches == 0
            continue
        np.testing.assert_array_equal(found.toarray() != 0, expected)
        n_searches += 1
    assert n_searches > n_divisions / 6


def test_scores_equal_to_the_threshold_are_included():
    X = np.repeat(np.eye(3), 50, axis=0)
    result = neighbors_above(X, min_score=1.0)
    assert result.nnz == 3 * 50 * 49
    assert neighbors_above(X, min_score=1.0 + 1e-15).nnz == 3 * 50 * 49  # the same float32 number
    assert neighbors_above(X, min_score=float(np.nextafter(np.float32(1), np.float32(2)))).nnz == 0
    assert neighbors_above(X, min_score=-1.0).nnz == 150 * 149


def test_an_answer_beyond_working_memory_is_refused():
    with pytest.raises(ValueError, match=r"working_memory must be at least 11\.\d\d MiB for this"):
        neighbors_above(np.ones((1000, 8)), min_score=0.5, working_memory=10)


def test_pairs_do_not_depend_on_working_memory():
    X = gaussian(600, 8)
    index = SimilarityIndex().fit(X[:300])
    index.add(X[300:])
    index.remove(np.arange(0, 600, 7))
    for measure, threshold in (("cosine", 0.6), ("norm_angle_distance", -1.2)):
        whole = neighbors_above(X, min_score=threshold, measure=measure)
        parts = neighbors_above(X, min_score=threshold, measure=measure, working_memory=1.5)
        assert whole.nnz > 1000
        for name in ("data", "indices", "indptr"):
            np.testing.assert_array_equal(getattr(parts, name), getattr(whole, name))
    whole, parts = index.radius(X, 0.6), index.radius(X, 0.6, working_memory=0.7)
    assert (whole != parts).nnz == 0


class Shifted(BaseMeasure):
    name = "shifted"
    metric_type = "dot"

    def item_bias(self, B):
        return np.linspace(-3, 3, len(B))

    def to_score(self, raw, Q):
        return np.arctan(raw) + Q[:, :1]


def test_a_custom_measure_is_inverted_for_each_query():
    Q, B = gaussian(60, 8), gaussian(300, 8, seed=1)
    keys = dense_oracle.keys(Q, B, "dot") + np.linspace(-3, 3, 300)
    truth = np.arctan(keys) + Q[:, :1]
    result = neighbors_above(Q, B, min_score=1.2, measure=Shifted())
    np.testing.assert_array_equal(result.toarray() != 0, truth >= 1.2)


@pytest.mark.parametrize("measure", ["cosine", "dot", "neg_euclidean"])
@pytest.mark.parametrize("block", [None, 1, 7, 100])
def test_blocks_together_are_the_matrix_of_scores(measure, block):
    X = gaussian(50, 9)
    X[3] = 0
    form = "euclidean" if measure == "neg_euclidean" else measure
    truth = dense_oracle.keys(X, X, form)
    truth = -np.sqrt(-truth) if form == "euclidean" else truth
    blocks = list(similarity_blocks(X, measure=measure, block=block))
    assert [rows.start for rows, _ in blocks] == list(range(0, 50, block or 50))
    whole = np.concatenate([scores for _, scores in blocks])
    assert whole.dtype == np.float32
    np.testing.assert_allclose(whole, truth, atol=4e-3 if form == "euclidean" else 2e-5)


def test_a_block_of_no_rows_is_refused_at_once():
    with pytest.raises(ValueError, match="block must be a whole number of at least 1, got 0"):
        similarity_blocks(np.ones((3, 2)), block=0)


@pytest.mark.parametrize(
    "measure",
    ["mutual_proximity", "norm_angle_distance", pytest.param("recos", marks=pytest.mark.slow)],
)
@pytest.mark.parametrize(
    "share", [0.2, *(pytest.param(rest, marks=pytest.mark.slow) for rest in (0.001, 0.9))]
)
def test_range_search_by_an_upper_bound_is_complete(measure, share):
    X = gaussian(400, 6)
    X[7], X[11:14] = 0, X[3]
    Q = X[:50]
    whole = np.concatenate([block for _, block in similarity_blocks(Q, X, measure=measure)])
    threshold = np.float64(np.quantile(whole, 1 - share))
    # Scores in blocks are float32, so scores near the threshold are left out.
    sure = np.abs(whole - threshold) > 1e-6
    pairs = neighbors_above(Q, X, min_score=threshold, measure=measure).tocoo()
    result = np.zeros(whole.shape, bool)  # A found score may be 0, so a mask marks the found pairs.
    result[pairs.coords] = True
    np.testing.assert_array_equal(result[sure], (whole >= threshold)[sure])


def test_pairs_by_norm_and_angle_are_those_of_all_scores():
    rows = np.random.default_rng(0).standard_normal((300, 6)).astype(np.float32)
    norms = np.linalg.norm(rows.astype(float), axis=1)
    cosines = (rows.astype(float) @ rows.T) / np.outer(norms, norms)
    truth = -(np.abs(norms[:, None] - norms) + np.arccos(np.clip(cosines, -1, 1)))
    np.fill_diagonal(truth, -np.inf)
    result = neighbors_above(rows, min_score=-1.1, measure="norm_angle_distance")
    np.testing.assert_array_equal(result.toarray() != 0, truth >= -1.1)


@pytest.mark.parametrize(
    "measure", ["cosine", "neg_euclidean", pytest.param("csls", marks=pytest.mark.slow)]
)
def test_index_radius_finds_all_pairs_of_what_is_left(measure):
    random = np.random.default_rng(0)
    rows, queries = random.integers(-2, 3, (400, 6)) + 0.5, random.integers(-2, 3, (30, 6)) + 0.5
    index = SimilarityIndex(measure).fit(rows[:300], [f"{i}" for i in range(300)])
    index.add(rows[300:], [f"{i}" for i in range(300, 400)])
    gone = np.arange(0, 400, 5)
    index.remove([f"{i}" for i in gone])
    live = np.setdiff1d(np.arange(400), gone)
    threshold = {"cosine": 0.5, "neg_euclidean": -4.0, "csls": 0.0}[measure]
    expected = neighbors_above(queries, rows[live], min_score=threshold, measure=measure)
    result = index.radius(queries, threshold)
    assert result.shape == (30, 400)
    assert expected.nnz > 100
    np.testing.assert_array_equal(result.indices, live[expected.indices])
    np.testing.assert_array_equal(result.indptr, expected.indptr)
    np.testing.assert_array_equal(result.data, expected.data)
    assert index.ids_of(result.indices).tolist() == [f"{i}" for i in result.indices]
    allowed = np.arange(400) % 2 == 0
    filtered = index.radius(queries, threshold, allowed=allowed)
    assert (filtered != result * allowed).nnz == 0
    assert index.radius(np.empty((0, 6)), 0.5).shape == (0, 400)


def test_near_duplicates_are_components_of_similar_pairs():
    random = np.random.default_rng(1)
    rows = random.standard_normal((120, 8))
    rows[60:] = rows[random.integers(60, size=60)] * random.uniform(1, 2, (60, 1))
    rows += 0.02 * random.standard_normal(rows.shape)
    units = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    linked = units @ units.T >= 0.99
    # Each row repeatedly takes the lowest number among the rows that are linked to it, until all
    # rows of a group have the same number.
    expected = np.arange(120)
    for _ in range(120):
        expected = np.where(linked, expected[None], 120).min(axis=1)
    duplicates = near_duplicates(rows, 0.99)
    np.testing.assert_array_equal(duplicates.representatives[duplicates.labels], expected)
    np.testing.assert_array_equal(duplicates.representatives, np.unique(expected))
    assert 1 < len(duplicates.representatives) < 120


def test_thresholds_may_be_calibrations():
    X = gaussian(700, 16, seed=1)
    rate = calibrate(X, fpr=1e-3)
    # The test itself counts the pairs that reach the threshold. This count does not use the code of
    # the calibration.
    cosines = dense_oracle.keys(X, X, "cosine")
    is_near = (cosines >= rate.threshold(1e-3)) & ~np.eye(700, dtype=bool)
    assert 0 < is_near.sum() <= 1e-3 * 700 * 699
    result = neighbors_above(X, min_score=rate)
    np.testing.assert_array_equal(result.indices, np.nonzero(is_near)[1])
    index = SimilarityIndex().fit(X)
    np.testing.assert_array_equal(
        index.radius(X, rate).indices, index.radius(X, rate.threshold(1e-3)).indices
    )
    labels = near_duplicates(X, rate).labels
    first, second = np.nonzero(is_near)
    assert (labels[first] == labels[second]).all()
    assert len(np.unique(labels)) < 700


def test_calibrations_of_another_measure_are_refused():
    X = gaussian(40, 4)
    with pytest.raises(ValueError, match="min_score must be calibrated for dot, got a calibration"):
        neighbors_above(X, min_score=calibrate(X), measure="dot")
    with pytest.raises(ValueError, match="min_score must be a"):
        neighbors_above(X, min_score="0.5")


@pytest.mark.parametrize(("measure", "threshold"), [("cosine", 0.5), ("dot", 3.0)])
def test_sparse_rows_have_the_pairs_of_dense_rows(measure, threshold):
    random = np.random.default_rng(3)
    X = random.integers(0, 3, (120, 25)) * (random.random((120, 25)) < 0.2)
    X[7] = 0
    Q, rows = sp.csr_array(X[:40].astype(float)), sp.csr_array(X)
    products = (X @ X.T).astype(float)
    scores = products
    if measure == "cosine":
        norms = np.sqrt(products.diagonal())
        scores = np.divide(products, np.outer(norms, norms), out=products * 0, where=products > 0)
    itself = np.eye(120, dtype=bool)
    for memory in (None, 0.3):
        result = neighbors_above(rows, min_score=threshold, measure=measure, working_memory=memory)
        expected = np.where((scores.astype(np.float32) >= threshold) & ~itself, scores, 0)
        np.testing.assert_allclose(result.toarray(), expected, rtol=1e-6)
        result = neighbors_above(
            Q, rows, min_score=threshold, measure=measure, working_memory=memory
        )
        expected = np.where(scores.astype(np.float32) >= threshold, scores, 0)[:40]
        np.testing.assert_allclose(result.toarray(), expected, rtol=1e-6)
    for wrong, message in (
        ({"min_score": 0.0}, "min_score must be above 0 for sparse rows, got 0"),
        ({"measure": "angular"}, "measure must be one of cosine, dot, got 'angular'"),
        ({"items": rows[:, :20]}, "items must have as many columns as queries"),
        ({"working_memory": 1e-4}, "working_memory must be at least"),
    ):
        call = {"min_score": threshold, "items": None, "measure": measure} | wrong
        with pytest.raises((TypeError, ValueError), match=f"^{message}"):
            neighbors_above(rows, **call)


def test_index_near_duplicates_are_those_of_its_items():
    random = np.random.default_rng(4)
    X = random.standard_normal((200, 6)).astype(np.float32)
    X[100:150] = X[:50] + 0.05 * random.standard_normal((50, 6), dtype=np.float32)
    index = SimilarityIndex().fit(X[:120])
    index.add(X[120:])
    gone = np.arange(0, 200, 9)
    index.remove(gone)
    live = np.setdiff1d(np.arange(200), gone)
    expected = near_duplicates(X[live], 0.98)
    duplicates = index.near_duplicates(0.98)
    np.testing.assert_array_equal(duplicates.labels[live], expected.labels)
    assert (duplicates.labels[gone] == -1).all()
    np.testing.assert_array_equal(duplicates.representatives, live[expected.representatives])
    assert len(duplicates.representatives) < len(live)
    index.remove(live)
    assert len(index.near_duplicates(0.5).representatives) == 0
    for wrong in ("near", np.nan, None):
        with pytest.raises(ValueError, match=r"^min_score must be a finite number"):
            index.near_duplicates(wrong)
