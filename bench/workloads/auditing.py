"""Auditing: intervals, certificates, attacks, canonical forms, audit and compare."""

import numpy as np

import fastcos
from bench import answers, inputs
from bench.workloads import Work, Workload
from bench.workloads.metrics import embeddings

CONDITION = 2.0


class _Pairs(Workload):
    """Ranges of the cosines of pairs of rows under rescalings."""

    question = "audit of pairs"
    unit = "pairs"
    axes = {"pairs": [1, 1_000]}
    quick = None
    limit = 1e-9

    def make(self, pairs):
        self.x, self.y = inputs.gaussian(pairs, 32), inputs.gaussian(pairs, 32, seed=1)
        x, y = self.x.astype(np.float64), self.y.astype(np.float64)
        self.cosines = cosine_of(x, y)

    def work(self):
        n = len(self.x)
        return Work(n, n * 32.0, "float64", reads=8.0 * 32 * n)


def cosine_of(x, y):
    """Return the cosines of pairs of rows."""
    return (x * y).sum(1) / np.linalg.norm(x, axis=1) / np.linalg.norm(y, axis=1)


class CosineInterval(_Pairs):
    def call(self):
        return fastcos.auditing.cosine_interval(self.x, self.y, CONDITION)

    def error(self, answer):
        """The ends are attained, and are within those of all linear maps of that condition."""
        scaled = [rows.astype(np.float64) / answer.high_rescaling for rows in (self.x, self.y)]
        wide = fastcos.auditing.fisher_z_interval(self.cosines, CONDITION)
        outside = max((answer.high - wide.high).max(), (wide.low - answer.low).max(), 0)
        return abs(cosine_of(*scaled) - answer.high).max() + outside


class FisherZInterval(_Pairs):
    def call(self):
        return fastcos.auditing.fisher_z_interval(self.cosines, CONDITION)

    def error(self, answer):
        """Compare with tanh(artanh(cosine) +- ln condition)."""
        shifted = [np.tanh(np.arctanh(self.cosines) + sign * np.log(CONDITION)) for sign in (-1, 1)]
        return max(abs(answer.low - shifted[0]).max(), abs(answer.high - shifted[1]).max())


class UnboundedRange(_Pairs):
    def call(self):
        return fastcos.auditing.unbounded_range(self.x, self.y)

    def error(self, answer):
        """The products of 32 normal coordinates have both signs: the range is -1 to 1."""
        return abs(answer.high - 1).max() + abs(answer.low + 1).max()


class TVIndex(_Pairs):
    def call(self):
        return fastcos.auditing.tv_index(self.x, self.y)

    def error(self, answer):
        return abs(abs(answer.contributions).sum(1) - answer.index).max()


class _Edges(Workload):
    """Edges of a neighbour graph under a family of maps."""

    question = "audit of neighbours"
    unit = "edges"
    axes = {"family": ["linear", "rescaling"]}
    quick = None

    def make(self, family):
        self.rows, self.family = inputs.gaussian(200, 16), family

    def work(self):
        n, d = self.rows.shape
        return Work(n * 10, float(n) * n * d, "float64", reads=4.0 * n * d)

    def certified(self):
        return fastcos.certified_neighbors(self.rows, 10, CONDITION, family=self.family)


class CertifiedNeighbors(_Edges):
    def call(self):
        return self.certified()

    def error(self, answer):
        return answers.wrong_rows(answer.indices, self.rows)


class VertexAttack(_Edges):
    def call(self):
        return fastcos.auditing.vertex_attack(self.rows, 10, CONDITION)

    def error(self, answer):
        """A certified radius is a lower bound of an attack's."""
        return (self.certified().radius > answer.radius * (1 + 1e-9)).sum()


class _Embeddings(Workload):
    """Users and items of one model."""

    question = "canonical forms"
    quick = None
    limit = 1e-5

    def make(self):
        self.users, self.items = inputs.gaussian(2_000, 32), inputs.gaussian(500, 32, seed=1)

    def work(self):
        n, d = self.users.shape
        return Work(n, float(n) * d * d, "float64", reads=4.0 * n * d)


class Canonicalize(_Embeddings):
    limit = 1e-9

    def call(self):
        return fastcos.canonicalize(self.users, self.items)

    def error(self, answer):
        product = self.users.astype(np.float64) @ self.items.T
        return answers.relative_error(answer.users @ answer.items.T, product)


class QueryMetric(_Embeddings):
    def call(self):
        return fastcos.query_metric(self.users)

    def error(self, answer):
        return answers.relative_error(answer.metric, np.cov(self.users.T, bias=True))


class RescalingDistance(_Embeddings):
    limit = 1e-6

    def make(self):
        super().make()
        self.metrics = [np.cov(rows.T) for rows in (self.users, self.items)]

    def call(self):
        return fastcos.auditing.rescaling_distance(*self.metrics)

    def error(self, answer):
        """Compare with the eigenvalues of first^-1 second."""
        values = np.linalg.eigvals(np.linalg.solve(*self.metrics)).real
        return abs(answer - np.log(values.max() / values.min()))

    def work(self):
        return Work(1, 32.0**3, "float64", reads=16.0 * 32 * 32)


class _EndToEnd(Workload):
    """audit and compare as a whole."""

    question = "audit and compare"
    quick = None

    def make(self):
        self.rows, self.labels, _ = embeddings(300)

    def work(self):
        n, d = self.rows.shape
        return Work(n, float(n) * n * d, reads=4.0 * n * d)


class Audit(_EndToEnd):
    axes = {"items": [300], "columns": [32]}

    def make(self, items, columns):
        self.rows, self.labels, _ = embeddings(items, columns)

    def call(self):
        return fastcos.audit(self.rows, labels=self.labels)

    def error(self, answer):
        found = fastcos.certified_neighbors(self.rows, answer.k, answer.condition)
        agree = answer.at_condition.certified_linear == found.certified.mean()
        return float(not (agree and 0 <= answer.sensitivity <= 1))


class LabelRecoveryRange(_EndToEnd):
    def call(self):
        return fastcos.auditing.label_recovery_range(self.rows, self.labels)

    def error(self, answer):
        return float(not answer.low <= answer.given <= answer.high)


class DiffModels(_EndToEnd):
    def call(self):
        return fastcos.auditing.diff_models(self.rows[:, ::-1], self.rows)

    def error(self, answer):
        return abs(answer.overlap_after_linear_map - 1)


class CompareVectors(_EndToEnd):
    def call(self):
        return fastcos.compare_vectors(self.rows, self.labels, measures=["dot"])

    def error(self, answer):
        return float(
            not all(row.score.low <= row.score.value <= row.score.high for row in answer.rows)
        )


class Compare(_EndToEnd):
    def make(self):
        self.data = fastcos.simulate_interactions(2_000, 200, random_state=0)

    def call(self):
        return fastcos.compare(self.data.X, self.data.item_cluster, n_components=8)

    def error(self, answer):
        return float(not max(row.pair_auc for row in answer.named) > 0.8)

    def work(self):
        X = self.data.X
        return Work(X.nnz, 8.0 * X.nnz, reads=8.0 * X.nnz)
