"""Every metric of fastcos.metrics, on labelled embeddings and on lists of neighbours."""

import functools

import numpy as np
import scipy.sparse as sp
from sklearn.manifold import trustworthiness
from sklearn.metrics import roc_auc_score, silhouette_score

import fastcos
from bench import answers, inputs
from fastcos import metrics


@functools.cache
def embeddings(n):
    """Rows in ten clusters, their labels, and the same rows disturbed."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 10, n)
    rows = inputs.gaussian(n, 32) + 1.5 * inputs.gaussian(10, 32, seed=1)[labels]
    return rows, labels, rows + 0.5 * inputs.gaussian(n, 32, seed=2)


def first_number(result):
    """Of a record of scores, the one that it is about."""
    return float(result[0] if isinstance(result, tuple) else result)


def as_matrix(lists):
    """One row per list, 1 at its members."""
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


class Labelled(answers.Situation):
    """Do the labels show in the cosines? 300 rows are checked against scikit-learn or NumPy."""

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
    }
    params = [list(OF), [300, 5_000]]
    param_names = ["metric", "items"]

    @answers.once
    def setup(self, metric, items):
        self.rows, self.labels, _ = embeddings(items)
        self.metric = self.OF[metric]
        self.value = first_number(self.time_metric())
        truth = self.TRUTHS.get(metric)
        checked = truth is not None and items <= 300
        error = abs(truth(self.rows, self.labels) - self.value) if checked else 0.0
        answers.at_most(1e-4, error + (0.0 if np.isfinite(self.value) else np.nan))

    def time_metric(self, *_):
        return self.metric(self.rows, self.labels)

    def track_value(self, *_):
        return self.value

    track_value.unit = "score"

    def track_peak_bytes(self, *_):
        return answers.peak_bytes(self.time_metric)

    track_peak_bytes.unit = "bytes"


class TwoEmbeddings(answers.Situation):
    """How far apart are two embeddings of the same items?"""

    OF = {
        "cka": metrics.cka,
        "cca_similarity": metrics.cca_similarity,
        "procrustes": metrics.procrustes,
        "rsa": metrics.rsa,
        "trustworthiness": metrics.trustworthiness,
        "model_change": lambda first, second: metrics.model_change(first, first, second, second),
    }
    params = [list(OF), [300, 3_000]]
    param_names = ["metric", "items"]

    @answers.once
    def setup(self, metric, items):
        self.first, _, self.second = embeddings(items)
        self.metric = self.OF[metric]
        self.value = first_number(self.time_metric())
        truth = self.value
        if metric == "trustworthiness":
            unit = [X / np.linalg.norm(X, axis=1, keepdims=True) for X in (self.first, self.second)]
            truth = trustworthiness(*unit)
        answers.at_most(1e-4, abs(truth - self.value))

    def time_metric(self, *_):
        return self.metric(self.first, self.second)

    def track_value(self, *_):
        return self.value

    track_value.unit = "score"


class Lists(answers.Situation):
    """Metrics of lists of neighbours."""

    OF = {
        "jaccard_at_k": metrics.jaccard_at_k,
        "overlap_at_k": metrics.overlap_at_k,
        "kendall_distance": metrics.kendall_distance,
        "rank_biased_overlap": metrics.rank_biased_overlap,
        "recall_at_k": lambda first, second: metrics.recall_at_k(first, as_matrix(second)),
        "ndcg_at_k": lambda first, second: metrics.ndcg_at_k(first, as_matrix(second)),
        "hubness": lambda first, second: metrics.hubness(first),
        "neighbor_purity": lambda first, second: metrics.neighbor_purity(
            first, np.arange(len(first)) % 7
        ),
    }
    params = [list(OF), [300, 5_000]]
    param_names = ["metric", "items"]

    @answers.once
    def setup(self, metric, items):
        first, _, second = embeddings(items)
        self.first, self.second = (fastcos.top_k(rows, k=20).indices for rows in (first, second))
        self.metric = self.OF[metric]
        self.value = truth = first_number(self.time_metric())
        if metric == "jaccard_at_k":
            pairs = zip(self.first.tolist(), self.second.tolist(), strict=True)
            truth = np.mean([len({*a} & {*b}) / len({*a} | {*b}) for a, b in pairs])
        answers.at_most(1e-9, abs(truth - self.value))

    def time_metric(self, *_):
        return self.metric(self.first, self.second)

    def track_value(self, *_):
        return self.value

    track_value.unit = "score"


class Shape(answers.Situation):
    """Metrics of one cloud of rows."""

    OF = {
        "effective_rank": metrics.effective_rank,
        "participation_ratio": metrics.participation_ratio,
        "isoscore": metrics.isoscore,
        "mean_cosine": metrics.mean_cosine,
        "popularity_bias": lambda rows: metrics.popularity_bias(
            rows, 1 + np.arange(len(rows)), (np.arange(len(rows))[:, None] + [1, 2]) % len(rows)
        ),
    }
    params = [list(OF), [300, 20_000]]
    param_names = ["metric", "items"]

    @answers.once
    def setup(self, metric, items):
        self.rows, _, _ = embeddings(items)
        self.metric = self.OF[metric]
        self.value = truth = first_number(self.time_metric())
        if metric == "mean_cosine":
            unit = self.rows / np.linalg.norm(self.rows, axis=1, keepdims=True)
            total = unit.sum(axis=0, dtype=np.float64)
            truth = (total @ total - items) / (items * (items - 1))
        answers.at_most(1e-4, abs(truth - self.value))

    def time_metric(self, *_):
        return self.metric(self.rows)

    def track_value(self, *_):
        return self.value

    track_value.unit = "score"
