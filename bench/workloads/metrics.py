"""All metrics of fastcos.metrics, on labelled embeddings and on lists of neighbours."""

import functools

import numpy as np
import scipy.sparse as sp
from scipy.spatial import procrustes
from scipy.stats import entropy, skew
from sklearn.manifold import trustworthiness
from sklearn.metrics import silhouette_score

import fastcos
from bench import inputs
from bench.workloads import Work, Workload
from fastcos import metrics
from tests.oracles import metrics as oracles

# columns of the embeddings
WIDTH = 32
# metric to its arguments: names of attributes of Data
ARGUMENTS = {
    "pair_auc": "rows labels",
    "map_at_r": "rows labels",
    "silhouette": "rows labels",
    "within_between": "rows labels",
    "clustering_scores": "rows labels",
    "stratified_auc": "rows labels popularity",
    "cka": "rows noisy",
    "cca_similarity": "rows noisy",
    "procrustes": "rows noisy",
    "rsa": "rows noisy",
    "trustworthiness": "rows noisy",
    "model_change": "rows rows noisy noisy",
    "jaccard_at_k": "lists noisy_lists",
    "overlap_at_k": "lists noisy_lists",
    "rank_biased_overlap": "lists noisy_lists",
    "recall_at_k": "lists relevant",
    "ndcg_at_k": "lists relevant",
    "hubness": "lists",
    "neighbor_purity": "lists labels",
    "effective_rank": "rows",
    "participation_ratio": "rows",
    "isoscore": "rows",
    "mean_cosine": "rows",
    "popularity_bias": "rows popularity successors",
}
# metrics of all pairs of rows; the others need a matrix of column by column at most
OF_PAIRS = {"pair_auc", "map_at_r", "stratified_auc", "rsa", "trustworthiness"}


@functools.cache
def embeddings(n, width=WIDTH):
    """Return rows in ten clusters, their labels, and the rows with noise."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 10, n)
    rows = inputs.gaussian(n, width) + 1.5 * inputs.gaussian(10, width, seed=1)[labels]
    return rows, labels, rows + 0.5 * inputs.gaussian(n, width, seed=2)


class Data:
    """Embeddings and what is made of them."""

    def __init__(self, n):
        self.rows, self.labels, self.noisy = embeddings(n)
        self.lists, self.noisy_lists = (
            fastcos.top_k(rows, k=20).indices for rows in (self.rows, self.noisy)
        )
        indptr = np.arange(0, self.noisy_lists.size + 1, 20)
        ones = np.ones(self.noisy_lists.size, np.float32)
        self.relevant = sp.csr_array((ones, self.noisy_lists.ravel(), indptr), shape=(n, n))
        self.popularity = 1 + np.arange(n)
        self.successors = (np.arange(n)[:, None] + [1, 2]) % n


def share_of_lists(divisor):
    """Return the reference of the mean share of two lists' members that are in both."""

    def mean(first, second):
        pairs = zip(map(set, first.tolist()), map(set, second.tolist()), strict=True)
        return np.mean([len(a & b) / len(divisor(a, b)) for a, b in pairs])

    return mean


def centred(*matrices):
    return [rows.astype(np.float64) - rows.mean(axis=0, dtype=np.float64) for rows in matrices]


def cka(rows, noisy):
    first, second = centred(rows, noisy)
    lengths = np.linalg.norm(first.T @ first) * np.linalg.norm(second.T @ second)
    return np.linalg.norm(first.T @ second) ** 2 / lengths


def cca(rows, noisy):
    first, second = (np.linalg.qr(some)[0] for some in centred(rows, noisy))
    return (np.linalg.svd(first.T @ second, compute_uv=False) ** 2).mean()


def pair_cosines(rows):
    """Return the cosines of all pairs of rows."""
    return oracles.cosines(rows)[np.triu_indices(len(rows), 1)]


def within(rows, labels):
    scores, same = oracles.pair_scores(rows, labels)
    return scores[same].mean()


def spectrum(rows):
    return np.linalg.svd(rows.astype(np.float64), compute_uv=False)


def participation(rows):
    squares = spectrum(rows) ** 2
    return squares.sum() ** 2 / (squares**2).sum()


# references; the first number of a record is compared
TRUTHS = {
    "pair_auc": lambda rows, labels: oracles.auc(*oracles.pair_scores(rows, labels)),
    "map_at_r": oracles.map_at_r,
    "silhouette": functools.partial(silhouette_score, metric="cosine"),
    "within_between": within,
    "cka": cka,
    "cca_similarity": cca,
    "procrustes": lambda rows, noisy: procrustes(rows, noisy)[2],
    "rsa": lambda rows, noisy: np.corrcoef(pair_cosines(rows), pair_cosines(noisy))[0, 1],
    "trustworthiness": lambda rows, noisy: trustworthiness(oracles.unit(rows), oracles.unit(noisy)),
    "jaccard_at_k": share_of_lists(set.union),
    "overlap_at_k": share_of_lists(lambda a, b: a),
    "recall_at_k": lambda lists, relevant: share_of_lists(lambda a, b: b)(
        lists, relevant.indices.reshape(len(lists), -1)
    ),
    "hubness": lambda lists: skew(np.bincount(lists.ravel(), minlength=len(lists))),
    "neighbor_purity": lambda lists, labels: np.mean(labels[lists] == labels[:, None]),
    "effective_rank": lambda rows: np.exp(entropy(spectrum(rows))),
    "participation_ratio": participation,
    "mean_cosine": lambda rows: pair_cosines(rows).mean(),
}


class Metric(Workload):
    """Every metric by name, compared with its reference for up to SMALL items."""

    question = "metrics"
    axes = {"metric": list(ARGUMENTS), "items": [300, 3_000]}
    quick = None
    SMALL = 300
    limit = 1e-4

    def make(self, metric, items):
        data = Data(items)
        self.metric, self.n = getattr(metrics, metric), items
        self.inputs = [getattr(data, name) for name in ARGUMENTS[metric].split()]
        self.per_row = items if metric in OF_PAIRS else WIDTH
        self.truth = TRUTHS.get(metric) if items <= self.SMALL else None

    def call(self):
        return self.metric(*self.inputs)

    def error(self, answer):
        """Without a reference the value must be finite."""
        value = float(answer[0] if isinstance(answer, tuple) else answer)
        if self.truth is None:
            return 0.0 if np.isfinite(value) else np.inf
        return abs(self.truth(*self.inputs) - value)

    def work(self):
        reads = float(sum(array.data.nbytes for array in self.inputs))
        return Work(self.n, float(self.n) * self.per_row * WIDTH, reads=reads)
