"""All metrics of fastcos.metrics, on labelled embeddings and on lists of neighbours."""

import functools

import numpy as np
import scipy.sparse as sp
from scipy.spatial import procrustes
from scipy.stats import skew
from sklearn.manifold import trustworthiness
from sklearn.metrics import roc_auc_score, silhouette_score

import fastcos
from bench import inputs
from bench.workloads import Work, Workload
from fastcos import metrics

# columns of the embeddings
WIDTH = 32
# metrics of all pairs of rows; the others need a matrix of column by column at most
OF_PAIRS = {"pair_auc", "map_at_r", "stratified_auc", "rsa", "trustworthiness"}


@functools.cache
def embeddings(n, width=WIDTH):
    """Return rows in ten clusters, their labels, and the rows with noise."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 10, n)
    rows = inputs.gaussian(n, width) + 1.5 * inputs.gaussian(10, width, seed=1)[labels]
    return rows, labels, rows + 0.5 * inputs.gaussian(n, width, seed=2)


def as_matrix(lists):
    """Return a sparse matrix with a row per list, 1 at its members."""
    n, k = lists.shape
    ones, indptr = np.ones(n * k, np.float32), np.arange(0, n * k + 1, k)
    return sp.csr_array((ones, lists.ravel(), indptr), shape=(n, n))


def cosines(rows):
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return np.clip(unit.astype(np.float64) @ unit.T, -1, 1)


def auc_truth(rows, labels):
    upper = np.triu_indices(len(rows), 1)
    return roc_auc_score((labels[:, None] == labels)[upper], cosines(rows)[upper])


def precision_truth(rows, labels):
    scores = cosines(rows)
    np.fill_diagonal(scores, -np.inf)
    values = []
    for row, label in zip(scores, labels, strict=True):
        relevant = labels[np.argsort(-row, kind="stable")] == label
        wanted = relevant.sum() - 1
        hits = relevant[:wanted]
        values.append((hits.cumsum() / np.arange(1, wanted + 1) * hits).sum() / wanted)
    return np.mean(values)


def overlap_truth(first, second):
    pairs = zip(first.tolist(), second.tolist(), strict=True)
    return np.mean([len({*a} & {*b}) / len(a) for a, b in pairs])


def jaccard_truth(first, second):
    pairs = zip(first.tolist(), second.tolist(), strict=True)
    return np.mean([len({*a} & {*b}) / len({*a} | {*b}) for a, b in pairs])


def centred(rows):
    return rows.astype(np.float64) - rows.mean(axis=0, dtype=np.float64)


def cka_truth(first, second):
    first, second = centred(first), centred(second)
    lengths = np.linalg.norm(first.T @ first) * np.linalg.norm(second.T @ second)
    return np.linalg.norm(first.T @ second) ** 2 / lengths


def cca_truth(first, second):
    bases = [np.linalg.qr(centred(rows))[0] for rows in (first, second)]
    return (np.linalg.svd(bases[0].T @ bases[1], compute_uv=False) ** 2).mean()


def rsa_truth(first, second):
    upper = np.triu_indices(len(first), 1)
    return np.corrcoef(cosines(first)[upper], cosines(second)[upper])[0, 1]


def trustworthiness_truth(first, second):
    return trustworthiness(
        *(rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (first, second))
    )


def within_truth(rows, labels):
    upper = np.triu_indices(len(rows), 1)
    return cosines(rows)[upper][(labels[:, None] == labels)[upper]].mean()


def mean_cosine_truth(rows):
    upper = np.triu_indices(len(rows), 1)
    return cosines(rows)[upper].mean()


def participation_truth(rows):
    squares = np.linalg.svd(rows.astype(np.float64), compute_uv=False) ** 2
    return squares.sum() ** 2 / (squares**2).sum()


def effective_rank_truth(rows):
    values = np.linalg.svd(rows.astype(np.float64), compute_uv=False)
    shares = values / values.sum()
    return np.exp(-(shares * np.log(shares)).sum())


class _Metric(Workload):
    """Metrics by name (OF), with references (TRUTHS) for up to SMALL items."""

    question = "metrics"
    quick = None
    OF, TRUTHS, SMALL = {}, {}, 300
    limit = 1e-4

    def make(self, metric, items):
        self.inputs, self.metric, self.n = self.inputs_of(items), self.OF[metric], items
        self.per_row = items if metric in OF_PAIRS else WIDTH
        self.truth = self.TRUTHS.get(metric) if items <= self.SMALL else None

    def call(self):
        return self.metric(*self.inputs)

    def error(self, answer):
        """Compare the first number of a record; without a reference it must be finite."""
        value = float(answer[0] if isinstance(answer, tuple) else answer)
        if self.truth is None:
            return 0.0 if np.isfinite(value) else np.inf
        return abs(self.truth(*self.inputs) - value)

    def work(self):
        reads = float(sum(np.asarray(array).nbytes for array in self.inputs))
        return Work(self.n, float(self.n) * self.per_row * WIDTH, reads=reads)


class Labelled(_Metric):
    """Metrics of cosines and labels."""

    OF = {
        "pair_auc": metrics.pair_auc,
        "map_at_r": metrics.map_at_r,
        "silhouette": metrics.silhouette,
        "within_between": metrics.within_between,
        "clustering_scores": metrics.clustering_scores,
        "stratified_auc": lambda rows, labels: metrics.stratified_auc(
            rows, labels, 1 + np.arange(len(rows))
        ),
    }
    TRUTHS = {
        "pair_auc": auc_truth,
        "map_at_r": precision_truth,
        "silhouette": lambda rows, labels: silhouette_score(rows, labels, metric="cosine"),
        "within_between": within_truth,
    }
    axes = {"metric": list(OF), "items": [300, 5_000]}

    def inputs_of(self, items):
        return embeddings(items)[:2]


class TwoEmbeddings(_Metric):
    """Metrics of two embeddings of the same items."""

    OF = {
        "cka": metrics.cka,
        "cca_similarity": metrics.cca_similarity,
        "procrustes": metrics.procrustes,
        "rsa": metrics.rsa,
        "trustworthiness": metrics.trustworthiness,
        "model_change": lambda first, second: metrics.model_change(first, first, second, second),
    }
    TRUTHS = {
        "cka": cka_truth,
        "cca_similarity": cca_truth,
        "procrustes": lambda first, second: procrustes(first, second)[2],
        "rsa": rsa_truth,
        "trustworthiness": trustworthiness_truth,
    }
    axes = {"metric": list(OF), "items": [300, 3_000]}

    def inputs_of(self, items):
        return embeddings(items)[::2]


class Lists(_Metric):
    """Metrics of lists of neighbours."""

    OF = {
        "jaccard_at_k": metrics.jaccard_at_k,
        "overlap_at_k": metrics.overlap_at_k,
        "rank_biased_overlap": metrics.rank_biased_overlap,
        "recall_at_k": lambda first, second: metrics.recall_at_k(first, as_matrix(second)),
        "ndcg_at_k": lambda first, second: metrics.ndcg_at_k(first, as_matrix(second)),
        "hubness": lambda first, second: metrics.hubness(first),
        "neighbor_purity": lambda first, second: metrics.neighbor_purity(
            first, np.arange(len(first)) % 7
        ),
    }
    TRUTHS = {
        "jaccard_at_k": jaccard_truth,
        "overlap_at_k": overlap_truth,
        "recall_at_k": overlap_truth,
        "hubness": lambda first, second: skew(np.bincount(first.ravel(), minlength=len(first))),
        "neighbor_purity": lambda first, second: np.mean(
            first % 7 == np.arange(len(first))[:, None] % 7
        ),
    }
    axes = {"metric": list(OF), "items": [300, 5_000]}

    def inputs_of(self, items):
        first, _, second = embeddings(items)
        return [fastcos.top_k(rows, k=20).indices for rows in (first, second)]


class Shape(_Metric):
    """Metrics of the spectrum of one matrix."""

    OF = {
        "effective_rank": metrics.effective_rank,
        "participation_ratio": metrics.participation_ratio,
        "isoscore": metrics.isoscore,
        "mean_cosine": metrics.mean_cosine,
        "popularity_bias": lambda rows: metrics.popularity_bias(
            rows, 1 + np.arange(len(rows)), (np.arange(len(rows))[:, None] + [1, 2]) % len(rows)
        ),
    }
    TRUTHS = {
        "effective_rank": effective_rank_truth,
        "participation_ratio": participation_truth,
        "mean_cosine": mean_cosine_truth,
    }
    axes = {"metric": list(OF), "items": [300, 20_000]}

    def inputs_of(self, items):
        return embeddings(items)[:1]
