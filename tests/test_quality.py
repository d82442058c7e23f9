"""Models recover clusters, and searches find the exact neighbours of numerically hard rows.

One thread and two threads find the same neighbours.
"""

import functools

import numpy as np
import pytest
from scipy.stats import mode

import fastcos
from fastcos.models import presets
from tests.oracles import dense

pytestmark = pytest.mark.slow
K = 10
# For each D of the paper's table, the AUC over pairs of items. Rounding may change the last digits.
AREAS = {
    "identity": 0.921, "orthonormal": 0.783, "weights": 0.963, "balanced": 0.951,
    "smoothed": 0.949, "data": 0.940,
}  # fmt: skip


@functools.cache
def fitted(preset=None):
    """Return the clusters of a simulation of 4,000 users and 400 items, and a model of it."""
    options = {} if preset is None else {"preset": preset}
    simulated = fastcos.simulate_interactions(4_000, 400, random_state=0, **options)
    return simulated.item_cluster, fastcos.LinearMF(20, regularization=2_000.0).fit(simulated.X)


def recovery(preset, rescaling):
    """Return how well cosines recover clusters: AUC, MAP@R, and the accuracy of a majority vote."""
    labels, model = fitted(preset)
    items = model.item_embeddings(rescaling)
    near = labels[fastcos.top_k(items, k=K).indices]
    return (
        fastcos.metrics.pair_auc(items, labels).value,
        fastcos.metrics.map_at_r(items, labels).value,
        (mode(near, axis=1).mode == labels).mean(),
    )


@pytest.mark.parametrize("name", [rescaling.name for rescaling in fastcos.rescalings()])
def test_rescalings_recover_the_clusters_as_published(name):
    auc, map_at_r, accuracy = recovery(None, name)
    if name in AREAS:
        assert auc == pytest.approx(AREAS[name], abs=0.002)
    assert auc >= 0.5
    assert min(map_at_r, accuracy) >= 0.1


@pytest.mark.parametrize("preset", presets())
def test_presets_have_clusters_that_can_be_recovered(preset):
    auc, map_at_r, accuracy = recovery(preset, "balanced")
    assert auc >= 0.5
    assert min(map_at_r, accuracy) >= 0.1


MEASURES = ("cosine", "dot", "csls", "zscore_cosine", "whitened_cosine", "all_but_the_top")


@pytest.mark.parametrize("measure", MEASURES)
def test_neighbours_by_measures_are_of_one_cluster(measure):
    labels, model = fitted()
    result = fastcos.top_k(model.item_embeddings("balanced"), k=K, measure=measure)
    assert fastcos.metrics.neighbor_purity(result.indices, labels).value >= 0.1


def near_ties(rng):
    """Return rows whose cosines differ by at most 1.5e-8, so that all of them tie in float32."""
    return 1 + 1e-4 * rng.standard_normal((2_000, 48))


def huge_and_tiny(rng):
    return rng.standard_normal((2_000, 48)) * 10.0 ** rng.integers(-30, 30, (2_000, 1))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("rows", [near_ties, huge_and_tiny])
def test_hard_rows_have_their_exact_neighbours(rows, threads):
    X = rows(np.random.default_rng(0))
    truth, _ = dense.top_k(X, X, K, "cosine", exclude_self=True)
    np.testing.assert_array_equal(fastcos.top_k(X, k=K, n_threads=threads).indices, truth)
