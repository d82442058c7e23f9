"""Quality tracked like speed: recovery of the simulation's clusters, exactness, identical bits.

These numbers change only if the answers change. bench/test_quality.py compares them with the
thresholds.
"""

import numpy as np
from scipy.stats import mode

import fastcos
from bench import answers, inputs
from fastcos.datasets import presets

N_NEIGHBORS = 10
# pairwise AUC under every D of the paper's table; rounding changes the last digits
AREAS = {
    "identity": 0.921, "orthonormal": 0.783, "weights": 0.963, "balanced": 0.951,
    "smoothed": 0.949, "data": 0.940,
}  # fmt: skip
AREAS_DRIFT = 0.002


def series(unit, name):
    """Set the unit and the name of a tracked number."""

    def decorate(method):
        method.unit, method.pretty_name = unit, f"quality: {name}"
        return method

    return decorate


def fitted(**preset):
    """Return the clusters of a fixed simulation of 4,000 users and 400 items, and its model."""
    data = fastcos.simulate_interactions(4_000, 400, random_state=0, **preset)
    return data.item_cluster, fastcos.LinearMF(20, regularization=2_000.0).fit(data.X)


def recovery(simulated, rescaling):
    """Return how well cosines of items recover their clusters: AUC, MAP@R, accuracy."""
    labels, model = simulated
    items = model.item_embeddings(rescaling)
    near = labels[fastcos.top_k(items, k=N_NEIGHBORS).indices]
    accuracy = (mode(near, axis=1).mode == labels).mean()
    auc = fastcos.metrics.pair_auc(items, labels).value
    return auc, fastcos.metrics.map_at_r(items, labels).value, float(accuracy)


class Rescalings:
    """Clusters recovered by the cosines of one model under every named D."""

    params = [[rescaling.name for rescaling in fastcos.rescalings()]]
    param_names = ["rescaling"]

    def setup_cache(self):
        """Measure once for all series; asv has a process for every number."""
        simulated = fitted()
        return {name: recovery(simulated, name) for name in self.params[0]}

    @series("AUC", "AUC of pairs of items of one cluster and of two")
    def track_pair_auc(self, found, name):
        return found[name][0]

    @series("MAP@R", "MAP@R of the other items of a cluster")
    def track_map_at_r(self, found, name):
        return found[name][1]

    @series("share", "items whose neighbours mostly are of their cluster")
    def track_knn_accuracy(self, found, name):
        return found[name][2]


class Presets(Rescalings):
    """The same under one D, for every preset of the simulation."""

    params = [list(presets())]
    param_names = ["preset"]

    def setup_cache(self):
        return {name: recovery(fitted(preset=name), "balanced") for name in self.params[0]}


class Measures:
    """One D, several measures: purity of the neighbours."""

    params = [["cosine", "dot", "csls", "zscore_cosine", "whitened_cosine", "all_but_the_top"]]
    param_names = ["measure"]

    def setup_cache(self):
        labels, model = fitted()
        return labels, model.item_embeddings("balanced")

    @series("share", "neighbours of the same cluster, by measure")
    def track_neighbor_purity(self, simulated, measure):
        labels, items = simulated
        found = fastcos.top_k(items, k=N_NEIGHBORS, measure=measure)
        return fastcos.metrics.neighbor_purity(found.indices, labels).value


class Exactness:
    """Share of rows with their exact neighbours in order, on numerically hard rows."""

    params = [["gaussian", "near ties", "huge and tiny", "duplicates"], [1, 2]]
    param_names = ["rows", "threads"]

    @series("share", "rows with their exact neighbours in order")
    def track_exact_share(self, rows, threads):
        rng = np.random.default_rng(0)
        X = rng.standard_normal((40 if rows == "duplicates" else 2_000, 48))
        if rows == "near ties":
            # all cosines are within 1.5e-8: one tie in float32. The smallest gap that decides a
            # checked row is 3.3e-13, 28 times the float64 error; closer rows have no known order
            X = 1 + 1e-4 * X
        elif rows == "huge and tiny":
            X *= 10.0 ** rng.integers(-30, 30, (2_000, 1))
        elif rows == "duplicates":
            X = X[rng.integers(0, 40, 2_000)]
        found = fastcos.top_k(X, k=N_NEIGHBORS, n_threads=threads).indices
        # duplicates have equal scores: their order is by index
        if rows == "duplicates":
            return float((np.diff(found[:, :5], axis=1) > 0).all(axis=1).mean())
        return 1 - answers.wrong_rows(found, X) / answers.CHECKED_ROWS


class SameBits:
    """Whether one and two threads give bit-identical results."""

    params = [["top_k", "gram_matmul", "randomized_svd"]]
    param_names = ["operation"]

    @series("1 is the same", "identical bits on one and two threads")
    def track_same_bits(self, operation):
        X, rows = inputs.interactions("2,000 x 500"), inputs.gaussian(2_000, 48)
        call = {
            "top_k": lambda n: fastcos.top_k(rows, k=20, n_threads=n).scores,
            "gram_matmul": lambda n: fastcos.gram_matmul(X, inputs.gaussian(500, 16), n_threads=n),
            "randomized_svd": lambda n: fastcos.randomized_svd(X, 8, n_threads=n).Vt,
        }[operation]
        return float(call(1).tobytes() == call(2).tobytes())


def threshold(name, value):
    """Return the least and the largest correct number, by series and its first parameter."""
    if name == "track_pair_auc":  # chance at least; as in the paper where it has a number
        area = AREAS.get(value)
        return (0.5, 1.0) if area is None else (area - AREAS_DRIFT, area + AREAS_DRIFT)
    if name in ("track_exact_share", "track_same_bits"):
        return 1.0, 1.0
    return 0.1, 1.0
