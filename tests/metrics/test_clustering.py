"""Spherical k-means: its starting centres, its steps, and how its clusters agree with labels."""

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

from fastcos import metrics
from fastcos.metrics import clustering
from tests.oracles import metrics as oracles


def test_clustering_scores_find_planted_directions():
    random = np.random.default_rng(0)
    labels = np.repeat(np.arange(5), 40)
    rows = np.eye(5, 12)[labels] + 0.1 * random.standard_normal((200, 12))
    rows *= random.lognormal(0, 2, 200)[:, None]
    rows[7] = 0
    scores = metrics.clustering_scores(rows, labels)
    assert (scores.ari, scores.n_left_out) == (1.0, 1)
    assert scores.ami == pytest.approx(1.0)


def test_clustering_scores_of_noise_are_near_zero():
    random = np.random.default_rng(1)
    scores = metrics.clustering_scores(random.standard_normal((300, 8)), random.integers(0, 4, 300))
    assert abs(scores.ari) < 0.03
    assert abs(scores.ami) < 0.03


def test_spherical_kmeans_matches_scikit_learn_objective():
    items, _ = oracles.blobs(5, n=300, d=10, n_labels=6)
    rows = oracles.unit(items)

    def objective(codes):
        return sum(np.linalg.norm(rows[codes == c].sum(axis=0)) for c in np.unique(codes))

    ours = clustering.spherical_kmeans(rows, 6, n_starts=10, random=np.random.default_rng(0))
    theirs = KMeans(6, n_init=10, random_state=0).fit_predict(rows)
    assert objective(ours) >= objective(theirs) * (1 - 1e-3)
    assert adjusted_rand_score(ours, theirs) > 0.7


def test_far_rows_cover_all_directions():
    rows = np.repeat(np.eye(6), 50, axis=0)
    for seed in range(5):
        starts = clustering._far_rows(rows, 6, np.random.default_rng(seed), None)
        np.testing.assert_array_equal(np.sort(starts.argmax(axis=1)), np.arange(6))


def test_clustering_scores_with_surplus_clusters():
    items = np.repeat(np.eye(2), 6, axis=0)
    scores = metrics.clustering_scores(items, [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5])
    assert -1 <= scores.ari <= 1


class Draws:
    """A random generator that returns the integer 0, and floats from a given list."""

    def __init__(self, *draws):
        self.draws = list(draws)

    def integers(self, n):
        return 0

    def random(self):
        return self.draws.pop(0)


@pytest.mark.parametrize(
    ("draw", "row"),
    [(0.0, 2), (0.24, 2), (0.26, 3), (0.74, 3), (0.76, 5), (0.999999, 5), (1.0, 5)],
)
def test_far_rows_are_drawn_by_distance(draw, row):
    # The distances to row 0 are 0, 0, 1, 2, 0 and 1.
    rows = np.array([[1.0, 0], [1, 0], [0, 1], [-1, 0], [1, 0], [0, -1]])
    starts = clustering._far_rows(rows, 2, Draws(draw), None)
    np.testing.assert_array_equal(starts, rows[[0, row]])


def test_spherical_kmeans_refills_an_empty_cluster():
    rows = oracles.unit([[1, 0], [1, 0.1], [1, -0.2], [0.3, 1]])
    total, codes = clustering._iterate(rows, np.array([[-1.0, 0], [1, 0]]), None)
    np.testing.assert_array_equal(codes, [1, 1, 1, 0])
    assert total == pytest.approx(1 + np.linalg.norm(rows[:3].sum(axis=0)))


def test_centres_stay_if_their_rows_cancel():
    rows = np.array([[1.0, 0], [-1, 0], [0, 1]])
    centres = np.array([[0.6, 0.8], [0.8, 0.6]])
    codes, reached = np.array([0, 0, 1]), np.array([0.6, -0.6, 0.6])
    with np.errstate(all="raise"):
        moved = clustering._centres(rows, codes, reached, centres)
    np.testing.assert_array_equal(moved, [[0.6, 0.8], [0, 1]])
    # The rows of one cluster may add up to a vector that is shorter than a row.
    rows = oracles.unit([[1, 0.1], [-1, 0.1]])
    moved = clustering._centres(rows, np.zeros(2, int), reached[:2], centres[:1])
    np.testing.assert_allclose(moved, [[0, 1]], atol=1e-12)
