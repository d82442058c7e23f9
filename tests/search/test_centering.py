"""Centring before quantisation: exact results, the number of scored items, and rounding."""

import numpy as np
import pytest

import fastcos
from fastcos.search import packing
from fastcos.search.filters import no_exclusions
from fastcos.search.options import ExecutionOptions
from fastcos.search.range_candidates import find_candidates
from fastcos.search.top_k import top_k
from fastcos.similarity import encoded_rows
from tests.oracles import dense as dense_oracle
from tests.oracles.compare import assert_same_bits
from tests.oracles.dense_families import FAMILIES, clustered, gaussian


def clustered_float64(n, d):
    """Return float64 rows, half of which have similar directions.

    In float32, many of these directions are equal or nearly equal.
    """
    rng = np.random.default_rng(8)
    X = rng.standard_normal((n, d))
    centre, away = X[0].copy(), 10.0 ** rng.uniform(-15, -1, (n, 1))
    X[::2] = ((centre + away * rng.standard_normal((n, d))) * rng.uniform(1e-3, 1e3, (n, 1)))[::2]
    return X


CLUSTERS = [clustered, pytest.param(clustered_float64, marks=pytest.mark.slow)]
each_cluster = pytest.mark.parametrize("cluster", CLUSTERS, ids=lambda cluster: cluster.__name__)


def packed(X, metric_type="cosine"):
    encoded = encoded_rows.encode_rows(X, None, None, metric_type)
    return packing.pack_items(metric_type, encoded, np.arange(len(X)), None), encoded


def centre_of(X, metric_type="cosine"):
    return packed(X, metric_type)[0].arrays.shift


@pytest.mark.parametrize("n", [256, 700, 5000])
@each_cluster
def test_clustered_rows_are_centred_at_a_unit_vector(cluster, n):
    X = cluster(n, 24)
    shift = centre_of(X)
    assert np.isclose(np.linalg.norm(shift), 1, rtol=1e-15)
    near = X[::2][X[::2].any(axis=1)].astype(float)
    distances = np.linalg.norm(near / np.linalg.norm(near, axis=1)[:, None] - shift, axis=1)
    assert np.median(distances) < 2e-3


@pytest.mark.parametrize("d", [8, 64, 128])
def test_rows_without_a_common_direction_are_not_shifted(d):
    assert len(centre_of(gaussian(4000, d))) == 0
    assert len(centre_of(gaussian(255, d) + np.float32(2))) == 0


@pytest.mark.parametrize("metric_type", ["dot", "cosine"])
def test_rows_are_shifted_along_their_mean(metric_type):
    X = gaussian(4000, 64) + np.float32(2)
    shift = centre_of(X, metric_type)
    assert np.isclose(np.linalg.norm(shift), 1, rtol=1e-15)
    assert np.abs(shift - 1 / 8).max() < 0.02


@pytest.mark.parametrize("metric_type", ["dot", "euclidean"])
def test_rows_of_many_lengths_are_not_shifted(metric_type):
    assert len(centre_of(clustered(700, 24), metric_type)) == 0


@each_cluster
@pytest.mark.parametrize(
    ("n", "d", "k"),
    [
        pytest.param(1500, 40, 1, marks=pytest.mark.slow),
        (1500, 40, 30),
        pytest.param(900, 131, 10, marks=pytest.mark.slow),
    ],
)
def test_neighbours_in_a_cluster_match_the_oracle(cluster, n, d, k):
    X = cluster(n, d)
    result = top_k(X, k=k)
    columns, keys = dense_oracle.top_k(X, X, k, "cosine", exclude_self=True)
    np.testing.assert_array_equal(result.indices, columns)
    np.testing.assert_array_equal(result.scores, keys.astype(np.float32))
    is_allowed = np.arange(n) % 3 > 0
    result = top_k(X, k=k, allowed=is_allowed)
    columns, _ = dense_oracle.top_k(X, X, k, "cosine", exclude_self=True, allowed=is_allowed)
    np.testing.assert_array_equal(result.indices, columns)


@each_cluster
def test_queries_from_elsewhere_match_the_oracle(cluster):
    X = cluster(1500, 40)
    for Q in (
        gaussian(300, 40),
        cluster(300, 40),
        -X[:200],
        np.zeros((90, 40), np.float32),
        X[:30],
    ):
        result = top_k(Q, X, 12)
        columns, keys = dense_oracle.top_k(Q, X, 12, "cosine")
        np.testing.assert_array_equal(result.indices, columns)
        np.testing.assert_array_equal(result.scores, keys.astype(np.float32))


@each_cluster
def test_few_queries_of_a_large_cluster_are_exact(cluster):
    X = cluster(17_000, 8)
    index = fastcos.SimilarityIndex().fit(X)
    Q = X[50:80]
    result = index.search(Q, 10)
    columns, keys = dense_oracle.top_k(Q, X, 10, "cosine")
    np.testing.assert_array_equal(result.indices, columns)
    np.testing.assert_array_equal(result.scores, keys.astype(np.float32))


@each_cluster
def test_threads_and_blocks_give_the_same_bits(cluster):
    X = cluster(1200, 36)
    expected = top_k(X, k=20)
    # A small working memory leads to small blocks.
    for n_threads, memory in ((1, 64), (3, 0.6), (8, 1.7)):
        result = top_k(X, k=20, n_threads=n_threads, working_memory=memory)
        assert_same_bits(result.indices, expected.indices)
        assert_same_bits(result.scores, expected.scores)


@each_cluster
def test_saved_indexes_keep_their_centre(cluster, tmp_path):
    X = cluster(1500, 40)
    index = fastcos.SimilarityIndex().fit(X)
    index.save(tmp_path / "index")
    loaded = fastcos.SimilarityIndex.open(tmp_path / "index")
    expected, result = index.search(X, 9), loaded.search(X, 9)
    assert_same_bits(result.indices, expected.indices)
    assert_same_bits(result.scores, expected.scores)
    np.testing.assert_array_equal(expected.indices, dense_oracle.top_k(X, X, 9, "cosine")[0])


@each_cluster
def test_range_search_in_a_cluster_is_complete(cluster):
    X = cluster(700, 30)
    for least in (0.3, 0.999, 1 - 1e-9):
        is_match = fastcos.neighbors_above(X, min_score=least, working_memory=100).toarray() != 0
        keys = dense_oracle.keys(X, X, "cosine")
        np.fill_diagonal(keys, -1)
        np.testing.assert_array_equal(is_match, keys.astype(np.float32) >= np.float32(least))


def n_candidates(segment, encoded, thresholds):
    """Return how many items the filter keeps for each query.

    `thresholds` contains the k-th best raw score of each query.
    """
    nothing = no_exclusions(len(thresholds), exclude_self=True)
    options = ExecutionOptions(2, 2.0**30)
    starts, columns = np.zeros(len(thresholds) + 1, np.int64), np.zeros(0, np.int64)
    return find_candidates(segment, encoded, nothing, thresholds, starts, columns, options)


@pytest.mark.slow
def test_centring_drops_what_plain_cosines_could_not():
    rng = np.random.default_rng(3)
    away = 10.0 ** rng.uniform(-4, -1, (3000, 1)) * rng.standard_normal((3000, 12))
    X = np.where(np.arange(3000)[:, None] % 4 > 0, 1.0 + away, rng.standard_normal((3000, 12)))
    units = X / np.linalg.norm(X, axis=1, keepdims=True)
    raw = dense_oracle.top_k(units, units, 10, "cosine", exclude_self=True)[1]
    thresholds = raw[:, -1] - 1e-12
    # For unit rows, Euclidean distances give the same order as cosines. fastcos computes Euclidean
    # distances without centring the rows. A Euclidean search therefore shows how many candidates
    # the filter keeps if the rows are not centred.
    centred = n_candidates(*packed(units), thresholds)
    plain = n_candidates(*packed(units, "euclidean"), 2 * thresholds - 2 - 1e-12)
    assert (centred >= 10).all()
    assert centred.mean() < 0.1 * plain.mean()


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.__name__)
@pytest.mark.parametrize("n", [400])
def test_centred_scores_are_cosines_within_their_rounding(family, n):
    X = np.concatenate([family(n, 40), clustered(n, 40)]).astype(np.float64)
    segment, encoded = packed(X)
    centre = segment.arrays.shift
    if not len(centre):
        pytest.skip("this family is not centred")
    queries = packing.pack_queries(segment, encoded, no_exclusions(len(X)))
    norms = np.where(encoded.norms > 0, encoded.norms, 1.0)
    centred = (encoded.rows / norms[:, None] - centre).astype(np.longdouble)
    bias = centred @ centre.astype(np.longdouble)
    raw = centred[:50] @ centred.T + bias - queries.scaling.intercepts[:50, None]
    truth = dense_oracle.keys(encoded.rows[:50], encoded.rows, "cosine")
    assert np.abs(raw - truth).max() < queries.shift_error
