"""Auditing: an interval metric of pairs, certificates, attacks, audit and compare."""

import numpy as np

import fastcos
from bench import answers, inputs
from bench.limits import Work
from bench.workloads import Workload
from bench.workloads.metrics import embeddings

K, CONDITION = 10, 2.0


class TVIndex(Workload):
    """How strongly cosines of pairs depend on the scale of single dimensions."""

    question = "audit of pairs"
    unit = "pairs"
    limit = 1e-9

    def make(self):
        self.pairs = inputs.gaussian(1_000, 32), inputs.gaussian(1_000, 32, seed=1)

    def call(self):
        return fastcos.auditing.tv_index(*self.pairs)

    def error(self, answer):
        """Compare with the total variation between the squares of sums and of differences."""
        x, y = (rows.astype(np.float64) for rows in self.pairs)
        x, y = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (x, y))
        p, q = (rows**2 / (rows**2).sum(axis=1, keepdims=True) for rows in (x + y, x - y))
        return abs(answer.index - abs(p - q).sum(axis=1) / 2).max()

    def work(self):
        n, d = self.pairs[0].shape
        return Work(n, float(n) * d, "float64", reads=8.0 * n * d)


class CertifiedNeighbors(Workload):
    """Edges of a neighbour graph under a family of maps."""

    question = "audit of neighbours"
    unit = "edges"
    axes = {"family": ["linear", "rescaling"]}
    roofline = {"family": ["linear"]}

    def make(self, family):
        self.rows, self.family = inputs.gaussian(200, 16), family

    def call(self):
        return fastcos.certified_neighbors(self.rows, K, CONDITION, family=self.family)

    def error(self, answer):
        return answers.wrong_rows(answer.indices, self.rows)

    def work(self):
        n, d = self.rows.shape
        return Work(n * K, float(n) * n * d, "float64", reads=4.0 * n * d)


class VertexAttack(CertifiedNeighbors):
    """Attacks on the edges of a neighbour graph."""

    axes = {"family": ["rescaling"]}
    roofline = None

    def call(self):
        return fastcos.auditing.vertex_attack(self.rows, K, CONDITION)

    def error(self, answer):
        """A certified radius is a lower bound of an attack's."""
        return (super().call().radius > answer.radius * (1 + 1e-9)).sum()


class Audit(Workload):
    """Audit of rows with labels."""

    question = "audit and compare"
    axes = {"items": [300], "columns": [32]}
    roofline = {"items": [2_000]}

    def make(self, items, columns):
        self.rows, self.labels = embeddings(items, columns)

    def call(self):
        return fastcos.audit(self.rows, labels=self.labels)

    def error(self, answer):
        found = fastcos.certified_neighbors(self.rows, answer.k, answer.condition)
        agree = answer.at_condition.certified_linear == found.certified.mean()
        return float(not (agree and 0 <= answer.sensitivity <= 1))

    def work(self):
        n, d = self.rows.shape
        return Work(n, float(n) * n * d, reads=4.0 * n * d)


class CompareVectors(Audit):
    """Comparison of two measures on rows with labels."""

    roofline = None

    def call(self):
        return fastcos.compare_vectors(self.rows, self.labels, measures=["dot"])

    def error(self, answer):
        scores = [row.score for row in answer.rows]
        return float(not all(score.low <= score.value <= score.high for score in scores))


class Compare(Workload):
    """Comparison of rescalings and measures on interactions with labels."""

    question = "audit and compare"
    unit = "non-zeros"

    def make(self):
        self.data = fastcos.simulate_interactions(2_000, 200, random_state=0)

    def call(self):
        return fastcos.compare(self.data.X, self.data.item_cluster, n_components=8)

    def error(self, answer):
        return float(not max(row.pair_auc for row in answer.named) > 0.8)

    def work(self):
        X = self.data.X
        return Work(X.nnz, 8.0 * X.nnz, reads=8.0 * X.nnz)
