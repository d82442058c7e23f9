"""Metrics over all pairs of rows, and over lists of neighbours; each with its reference."""

import numpy as np

import fastcos
from bench import inputs
from bench.workloads import Work, Workload
from tests.oracles import metrics as oracles

# neighbours of a list
K = 20


def embeddings(n, width=32):
    """Return rows in ten clusters, and their labels."""
    labels = np.random.default_rng(0).integers(0, 10, n)
    rows = inputs.gaussian(n, width) + 1.5 * inputs.gaussian(10, width, seed=1)[labels]
    return rows, labels


# scikit-learn and what else takes long to import is imported where it is used: every process of asv
# would spend a second on it


def pair_auc(rows, labels):
    from sklearn.metrics import roc_auc_score

    scores, same = oracles.pair_scores(rows, labels)
    return roc_auc_score(same, scores)


def silhouette(rows, labels):
    from sklearn.metrics import silhouette_score

    return silhouette_score(rows, labels, metric="cosine")


def hubness(lists):
    from scipy.stats import skew

    return skew(np.bincount(lists.ravel(), minlength=len(lists)))


def stratified_auc(rows, labels, popularity):
    """Return the mean AUC of ten strata of pairs, weighted by their pairs of both kinds."""
    from sklearn.metrics import roc_auc_score

    scores, same = oracles.pair_scores(rows, labels)
    i, j = np.triu_indices(len(rows), 1)
    levels = np.log(popularity[i]) + np.log(popularity[j])
    stratum_of = np.digitize(levels, np.quantile(levels, np.arange(0.1, 0.95, 0.1)), right=True)
    strata = [stratum_of == stratum for stratum in range(10)]
    weights = [same[stratum].sum() * (~same[stratum]).sum() for stratum in strata]
    return np.average([roc_auc_score(same[s], scores[s]) for s in strata], weights=weights)


def rsa(rows, noisy):
    """Return the correlation of the cosines of all pairs."""
    upper = np.triu_indices(len(rows), 1)
    return np.corrcoef(oracles.cosines(rows)[upper], oracles.cosines(noisy)[upper])[0, 1]


def trustworthiness(*rows):
    """Return scikit-learn's, by distances of unit rows."""
    from sklearn import manifold

    return manifold.trustworthiness(*map(oracles.unit, rows))


def overlaps(first, second):
    """Return how many members two lists share, by depth."""
    pairs = list(zip(first.tolist(), second.tolist(), strict=True))
    return np.array([[len({*a[:d]} & {*b[:d]}) for d in range(1, K + 1)] for a, b in pairs])


def rank_biased_overlap(first, second, q=0.9):
    """Return the mean of equation 30 of Webber, Moffat and Zobel (2010)."""
    depths = np.arange(1, K + 1)
    shares = overlaps(first, second) / depths
    return (shares[:, -1] * q**K + (1 - q) / q * (shares * q**depths).sum(axis=1)).mean()


# metric to its inputs, attributes of the workload, and its reference
METRICS = {
    "pair_auc": ("rows labels", pair_auc),
    "stratified_auc": ("rows labels popularity", stratified_auc),
    "map_at_r": ("rows labels", oracles.map_at_r),
    "silhouette": ("rows labels", silhouette),
    "rsa": ("rows noisy", rsa),
    "trustworthiness": ("rows noisy", trustworthiness),
    "overlap_at_k": ("lists noisy_lists", lambda *both: overlaps(*both)[:, -1].mean() / K),
    "rank_biased_overlap": ("lists noisy_lists", rank_biased_overlap),
    "hubness": ("lists", hubness),
}


class Metric(Workload):
    """A metric, of whose record the first number is compared."""

    question = "metrics"
    axes = {"metric": list(METRICS), "items": [1_000]}
    roofline = {"metric": ["pair_auc", "map_at_r"]}
    limit = 1e-4

    def make(self, metric, items):
        rows, labels = embeddings(items)
        noisy = rows + 0.5 * inputs.gaussian(*rows.shape, seed=2)
        made = {
            "rows": lambda: rows,
            "labels": lambda: labels,
            "noisy": lambda: noisy,
            "lists": lambda: fastcos.top_k(rows, k=K).indices,
            "noisy_lists": lambda: fastcos.top_k(noisy, k=K).indices,
            "popularity": lambda: np.arange(1, items + 1),
        }
        names, self.reference = METRICS[metric]
        self.metric = getattr(fastcos.metrics, metric)
        self.inputs, self.of_lists = [made[name]() for name in names.split()], "lists" in names

    def call(self):
        return self.metric(*self.inputs)

    def error(self, answer):
        value = answer[0] if isinstance(answer, tuple) else answer
        return abs(self.reference(*self.inputs) - value)

    def work(self):
        """Count the inner products of all pairs of rows; of lists, their bytes."""
        n, columns = self.inputs[0].shape
        adds = 0.0 if self.of_lists else float(n) * n * columns
        return Work(n, adds, reads=float(sum(array.nbytes for array in self.inputs)))
