"""Quality tracked like speed: recovery of the simulation's clusters, and exactness.

These numbers change only if the answers change.
"""

import numpy as np

import fastcos
from bench import answers, inputs
from fastcos import metrics

RESCALINGS = [rescaling.name for rescaling in fastcos.rescalings()]
MEASURES = ["cosine", "dot", "csls", "zscore_cosine", "whitened_cosine", "all_but_the_top"]
N_NEIGHBORS = 10


def simulation():
    """Return a fixed simulation of 4,000 users and 400 items, and its model of Eq. 1."""
    data = fastcos.simulate_interactions(4_000, 400, random_state=0)
    return data, fastcos.LinearMF(20, regularization=2_000.0).fit(data.X)


class Rescalings:
    """One model under every named D."""

    params = [RESCALINGS]
    param_names = ["rescaling"]

    def setup_cache(self):
        data, model = simulation()
        return {name: model.item_embeddings(name) for name in RESCALINGS}, data.item_cluster

    def track_pair_auc(self, cached, rescaling):
        return metrics.pair_auc(cached[0][rescaling], cached[1]).value

    track_pair_auc.unit = "AUC"

    def track_map_at_r(self, cached, rescaling):
        return metrics.map_at_r(cached[0][rescaling], cached[1]).value

    track_map_at_r.unit = "MAP@R"


class Measures:
    """One D, several measures: purity of the neighbours."""

    params = [MEASURES]
    param_names = ["measure"]

    def setup_cache(self):
        data, model = simulation()
        return model.item_embeddings("balanced"), data.item_cluster

    def track_neighbor_purity(self, cached, measure):
        items, labels = cached
        found = fastcos.top_k(items, k=N_NEIGHBORS, measure=measure)
        return metrics.neighbor_purity(found.indices, labels).value

    track_neighbor_purity.unit = "share"


class Exactness:
    """Share of rows with their exact neighbours in order, on numerically hard rows."""

    ROWS = {
        "gaussian": lambda rng: rng.standard_normal((2_000, 48)),
        # all cosines are within 1.5e-8: one tie in float32. The smallest gap that decides a
        # checked row is 3.3e-13, 28 times the float64 error; closer rows have no known order
        "near ties": lambda rng: 1 + 1e-4 * rng.standard_normal((2_000, 48)),
        "huge and tiny": lambda rng: (
            rng.standard_normal((2_000, 48)) * 10.0 ** rng.integers(-30, 30, (2_000, 1))
        ),
        "duplicates": lambda rng: rng.standard_normal((40, 48))[rng.integers(0, 40, 2_000)],
    }
    params = [list(ROWS), [1, 2]]
    param_names = ["rows", "threads"]

    def track_exact_share(self, rows, threads):
        X = self.ROWS[rows](np.random.default_rng(0))
        found = fastcos.top_k(X, k=N_NEIGHBORS, n_threads=threads).indices
        checked = min(answers.CHECKED_ROWS, len(X))
        # duplicates have equal scores: their order is by index
        if rows == "duplicates":
            return float((np.diff(found[:, :5], axis=1) > 0).all(axis=1).mean())
        return 1 - answers.wrong_rows(found, X) / checked

    track_exact_share.unit = "share"


class SameBits:
    """Whether one and two threads give bit-identical results."""

    params = [["top_k", "gram_matmul", "randomized_svd"]]
    param_names = ["operation"]

    def track_same_bits(self, operation):
        X = inputs.zipf_interactions(2_000, 500, 40_000)
        rows, Q = inputs.gaussian(2_000, 48), inputs.gaussian(500, 16)
        call = {
            "top_k": lambda n: fastcos.top_k(rows, k=20, n_threads=n).scores,
            "gram_matmul": lambda n: fastcos.gram_matmul(X, Q, n_threads=n),
            "randomized_svd": lambda n: fastcos.randomized_svd(X, 8, n_threads=n).Vt,
        }[operation]
        return float(np.array_equal(call(1), call(2)))

    track_same_bits.unit = "1 is the same"
