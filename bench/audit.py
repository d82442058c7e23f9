"""Auditing: intervals, certificates, attacks, canonical forms, audit and compare."""

import numpy as np

import fastcos
from bench import answers, inputs
from bench.metrics import embeddings


class Pairs(answers.Situation):
    """Ranges of the cosines of pairs of rows under a box of rescalings."""

    params = [[1, 1_000]]
    param_names = ["pairs"]
    condition = 2.0

    @answers.once
    def setup(self, pairs):
        self.x, self.y = inputs.gaussian(pairs, 32), inputs.gaussian(pairs, 32, seed=1)
        x, y = self.x.astype(np.float64), self.y.astype(np.float64)
        self.cosines = (x * y).sum(1) / np.linalg.norm(x, axis=1) / np.linalg.norm(y, axis=1)
        found = self.time_cosine_interval()
        scaled = x / found.high_rescaling, y / found.high_rescaling
        lengths = np.prod([np.linalg.norm(rows, axis=1) for rows in scaled], axis=0)
        attained = abs((scaled[0] * scaled[1]).sum(1) / lengths - found.high).max()
        # the box is a subset of all linear maps of that condition
        wide = self.time_fisher_z_interval()
        outside = max((found.high - wide.high).max(), (wide.low - found.low).max(), 0)
        self.error = answers.at_most(1e-9, float(attained + outside))
        answers.at_most(
            1e-9,
            abs(abs(self.time_tv_index().contributions).sum(1) - self.time_tv_index().index).max(),
        )

    def time_cosine_interval(self, *_):
        return fastcos.auditing.cosine_interval(self.x, self.y, self.condition)

    def time_fisher_z_interval(self, *_):
        return fastcos.auditing.fisher_z_interval(self.cosines, self.condition)

    def time_unbounded_range(self, *_):
        return fastcos.auditing.unbounded_range(self.x, self.y)

    def time_tv_index(self, *_):
        return fastcos.auditing.tv_index(self.x, self.y)

    def track_error(self, *_):
        return self.error

    track_error.unit = "cosine"


class Edges(answers.Situation):
    """Certified neighbours, and attacks on neighbours."""

    params = [["linear", "rescaling"]]
    param_names = ["family"]

    @answers.once
    def setup(self, family):
        self.rows, self.family = inputs.gaussian(200, 16), family
        certified, attack = self.time_certified_neighbors(), self.time_vertex_attack()
        wrong = answers.wrong_rows(certified.indices, self.rows)
        # a certified radius is a lower bound of an attack's
        wrong += int((certified.radius > attack.radius * (1 + 1e-9)).sum())
        self.wrong = answers.at_most(0, wrong)

    def time_certified_neighbors(self, *_):
        return fastcos.certified_neighbors(self.rows, 10, 2.0, family=self.family)

    def time_vertex_attack(self, *_):
        return fastcos.auditing.vertex_attack(self.rows, 10, 2.0)

    def track_wrong_edges(self, *_):
        return self.wrong

    track_wrong_edges.unit = "edges"


class CanonicalForms(answers.Situation):
    """Forms that do not depend on D."""

    @answers.once
    def setup(self):
        self.users, self.items = inputs.gaussian(2_000, 32), inputs.gaussian(500, 32, seed=1)
        self.metrics = [np.cov(rows.T) for rows in (self.users, self.items)]
        found = self.time_canonicalize()
        product = self.users.astype(np.float64) @ self.items.T
        self.error = answers.at_most(
            1e-9, answers.relative_error(found.users @ found.items.T, product)
        )
        answers.at_most(
            1e-5,
            answers.relative_error(
                self.time_query_metric().metric, np.cov(self.users.T, bias=True)
            ),
        )

    def time_canonicalize(self):
        return fastcos.canonicalize(self.users, self.items)

    def time_query_metric(self):
        return fastcos.query_metric(self.users)

    def time_rescaling_distance(self):
        return fastcos.auditing.rescaling_distance(*self.metrics)

    def track_error(self):
        return self.error

    track_error.unit = "share of the largest score"


class EndToEnd(answers.Situation):
    """audit and compare as a whole."""

    repeat = (5, 10, 2.0)

    @answers.once
    def setup(self):
        self.rows, self.labels, _ = embeddings(300)
        self.X = fastcos.simulate_interactions(2_000, 200, random_state=0)
        report, table = self.time_audit(), self.time_compare()
        self.sensitivity = report.sensitivity
        recovered, diff = self.time_label_recovery_range(), self.time_diff_models()
        ordered = recovered.low <= recovered.given <= recovered.high
        answers.at_most(0, float(not (ordered and diff.overlap_after_linear_map == 1)))
        scores = [row.pair_auc for row in table.named]
        answers.at_most(0, float(not (0 <= self.sensitivity <= 1 and max(scores) > 0.8)))

    def time_audit(self):
        return fastcos.audit(self.rows, labels=self.labels)

    def time_label_recovery_range(self):
        return fastcos.auditing.label_recovery_range(self.rows, self.labels)

    def time_diff_models(self):
        return fastcos.auditing.diff_models(self.rows[:, ::-1], self.rows)

    def time_compare_vectors(self):
        return fastcos.compare_vectors(self.rows, self.labels, measures=["dot"])

    def time_compare(self):
        return fastcos.compare(self.X.X, self.X.item_cluster, n_components=8)

    def track_sensitivity(self):
        return self.sensitivity

    track_sensitivity.unit = "share"
