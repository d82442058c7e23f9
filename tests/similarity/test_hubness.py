"""Measures that reduce hubness have the neighbours of their formulas, even for degenerate rows."""

import numpy as np
import pytest
import scipy.sparse as sp

from fastcos import get_measure, top_k
from tests.oracles import measures as oracles
from tests.similarity.cases import D, model, uneven_rows


def test_csls_averages_over_the_given_other_side():
    P, B = model()
    measure = get_measure("csls", n_neighbors=4, other=P)
    result = top_k(P[:20], B, 6, measure=measure)
    truth = oracles.csls_apart(P[:20], B, 4, P)
    np.testing.assert_array_equal(result.indices, np.argsort(-truth, axis=1)[:, :6])
    np.testing.assert_allclose(result.scores, -np.sort(-truth, axis=1)[:, :6], atol=1e-6)


@pytest.mark.parametrize(
    "name",
    [
        "csls",
        *(
            pytest.param(rest, marks=pytest.mark.slow)
            for rest in ("local_scaling", "dis_sim_local", "query_normalized")
        ),
    ],
)
def test_query_scores_do_not_depend_on_the_batch(name):
    P, B = model()
    queries = np.vstack([P[:30], B[:30]])
    together = top_k(queries, B, 5, measure=name)
    for i in range(len(queries)):
        alone = top_k(queries[i : i + 1], B, 5, measure=name)
        np.testing.assert_array_equal(alone.indices[0], together.indices[i])
        np.testing.assert_array_equal(alone.scores[0], together.scores[i])
    itself = top_k(B, k=4, measure=name)
    np.testing.assert_array_equal(together.indices[30:, 1:], itself.indices[:30])
    np.testing.assert_array_equal(together.scores[30:, 1:], itself.scores[:30])


def test_local_scaling_of_duplicates_uses_least_scale():
    rows = np.array([[1.0, 0], [1, 0], [1, 0], [1, 1], [0, 1], [-1, 2]])
    result = top_k(rows, k=2, measure=get_measure("local_scaling", n_neighbors=2))
    assert np.isfinite(result.scores).all()
    np.testing.assert_array_equal(result.indices[:3], [[1, 2], [0, 2], [0, 1]])
    np.testing.assert_array_equal(result.scores[:3], 1)


def test_query_normalized_without_variance_scores_zero():
    rows = np.array([[1.0, 0], [0, 1], [-1, 0], [0, -1]])
    assert (top_k(np.zeros((1, 2)), rows, 2, measure="query_normalized").scores == 0).all()
    only = top_k(rows[:1], rows[:1], 1, measure="query_normalized")
    assert only.scores.tolist() == [[0]]


def test_query_normalized_ignores_zero_rows_in_moments():
    _, B = model()
    with_zeros = np.vstack([B, np.zeros((5, D))])
    ours = top_k(B[:9], with_zeros, 7, measure="query_normalized")
    truth = top_k(B[:9], B, 7, measure="query_normalized")
    np.testing.assert_allclose(ours.scores, truth.scores, rtol=1e-6)


def test_dis_sim_local_centres_rows_far_from_zero():
    """Most rows lie close together, and a few large rows must not determine the centre."""
    random = np.random.default_rng(0)
    rows = random.standard_normal((400, 6))
    rows[::20] *= 1000
    for moved in (rows + 300, rows - random.uniform(1e4, 2e4, 6)):
        fitted = get_measure("dis_sim_local").fit(moved)
        norms = np.linalg.norm(fitted.encode_items(moved), axis=1)
        assert np.median(norms) < 3 * np.median(np.linalg.norm(rows, axis=1))
        result, truth = (top_k(X, k=5, measure="dis_sim_local") for X in (moved, rows))
        np.testing.assert_allclose(result.scores, truth.scores, rtol=1e-5, atol=1e-6)


def test_dis_sim_local_of_duplicates_is_finite():
    rows = np.zeros((40, 3))
    rows[::9] = np.eye(5, 3) + 1
    for moved in (rows, np.zeros((40, 3)), rows + 7):
        assert np.isfinite(top_k(moved, k=3, measure="dis_sim_local").scores).all()


@pytest.mark.parametrize("k", [pytest.param(3, marks=pytest.mark.slow), 40])
@pytest.mark.parametrize(
    ("name", "formula", "n_neighbors"),
    [
        ("csls", oracles.csls, 10),
        pytest.param("local_scaling", oracles.local_scaling, 7, marks=pytest.mark.slow),
        pytest.param("dis_sim_local", oracles.dis_sim_local, 10, marks=pytest.mark.slow),
    ],
)
def test_clusters_and_hubs_have_the_neighbours_of_the_formula(name, formula, n_neighbors, k):
    rows = uneven_rows(700, 12)
    rows[11] = -rows[12]  # zero rows do not lie on the unit sphere
    truth = formula(rows.astype(np.float64), n_neighbors)
    np.fill_diagonal(truth, -np.inf)
    best = -np.sort(-truth, axis=1)[:, :k]
    for kind in (np.float32, np.float64):
        result = top_k(rows.astype(kind), k=k, measure=name)
        np.testing.assert_allclose(result.scores, best, rtol=2e-6, atol=1e-6)
        at_indices = np.take_along_axis(truth, result.indices, axis=1)
        np.testing.assert_allclose(at_indices, best, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    "name", ["csls", "local_scaling", pytest.param("dis_sim_local", marks=pytest.mark.slow)]
)
def test_self_join_equals_search_of_the_same_rows_apart(name):
    rows = uneven_rows(700, 12)
    joined = top_k(rows, k=9, measure=name)
    apart = top_k(rows.copy(), rows, k=9, measure=name, exclude=sp.eye_array(700, format="csr"))
    np.testing.assert_array_equal(joined.indices, apart.indices)
    np.testing.assert_array_equal(joined.scores, apart.scores)


@pytest.mark.parametrize(
    "name", ["csls", "local_scaling", pytest.param("dis_sim_local", marks=pytest.mark.slow)]
)
def test_n_neighbors_uses_all_other_items_at_most(name):
    rows = uneven_rows(100, 5)
    assert np.isfinite(top_k(rows, k=3, measure=get_measure(name, n_neighbors=99)).scores).all()
    with pytest.raises(ValueError, match=r"n_neighbors must be at most .* \(99\), got 100"):
        top_k(rows, k=3, measure=get_measure(name, n_neighbors=100))
