"""Auditing: an interval metric of pairs, certificates, attacks, audit and compare."""

from functools import partial

import numpy as np

import fastcos
from bench import answers, inputs
from bench.limits import Work
from bench.workloads import Case, Workload
from bench.workloads.metrics import embeddings

K, CONDITION = 10, 2.0


@Workload("audit of pairs", unit="pairs", limit=1e-9)
def TVIndex():
    """How strongly cosines of pairs depend on the scale of single dimensions."""
    n, d = 1_000, 32
    pairs = inputs.gaussian(n, d), inputs.gaussian(n, d, seed=1)

    def error(answer):
        """Compare with the total variation between the squares of sums and of differences."""
        x, y = (rows.astype(np.float64) for rows in pairs)
        x, y = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (x, y))
        p, q = (rows**2 / (rows**2).sum(axis=1, keepdims=True) for rows in (x + y, x - y))
        return abs(answer.index - abs(p - q).sum(axis=1) / 2).max()

    work = Work(n, float(n) * d, "float64", reads=8.0 * n * d)
    return Case(partial(fastcos.auditing.tv_index, *pairs), error, work)


@Workload(
    "audit of neighbours", unit="edges", axes={"family": ["linear", "rescaling"]},
    roofline={"family": ["linear"]},
)  # fmt: skip
def CertifiedNeighbors(family):
    """Edges of a neighbour graph under a family of maps."""
    n, d = 200, 16
    rows = inputs.gaussian(n, d)
    return Case(
        partial(fastcos.certified_neighbors, rows, K, CONDITION, family=family),
        lambda answer: answers.wrong_rows(answer.indices, rows),
        Work(n * K, float(n) * n * d, "float64", reads=4.0 * n * d),
    )


@Workload("audit of neighbours", unit="edges", axes={"family": ["rescaling"]})
def VertexAttack(family):
    """Attacks on the edges of a neighbour graph."""
    certified, rows = CertifiedNeighbors(family), inputs.gaussian(200, 16)
    return certified._replace(
        call=partial(fastcos.auditing.vertex_attack, rows, K, CONDITION),
        # a certified radius is a lower bound of an attack's
        error=lambda answer: (certified.call().radius > answer.radius * (1 + 1e-9)).sum(),
    )


AUDITED = {"items": [300], "columns": [32]}


def pairs_work(n, d):
    """Return the work of the products of all pairs of rows."""
    return Work(n, float(n) ** 2 * d, reads=4.0 * n * d)


@Workload("audit and compare", axes=AUDITED, roofline={"items": [2_000]})
def Audit(items, columns):
    """Audit of rows with labels."""
    rows, labels = embeddings(items, columns)

    def error(answer):
        found = fastcos.certified_neighbors(rows, answer.k, answer.condition)
        agree = answer.at_condition.certified_linear == found.certified.mean()
        return float(not (agree and 0 <= answer.sensitivity <= 1))

    call = partial(fastcos.audit, rows, labels=labels)
    return Case(call, error, pairs_work(items, columns))


@Workload("audit and compare", axes=AUDITED)
def CompareVectors(items, columns):
    """Comparison of two measures on rows with labels."""
    rows, labels = embeddings(items, columns)

    def error(answer):
        scores = [row.score for row in answer.rows]
        return float(not all(score.low <= score.value <= score.high for score in scores))

    call = partial(fastcos.compare_vectors, rows, labels, measures=["dot"])
    return Case(call, error, pairs_work(items, columns))


@Workload("audit and compare", unit="non-zeros")
def Compare():
    """Comparison of rescalings and measures on interactions with labels."""
    data = fastcos.simulate_interactions(2_000, 200, random_state=0)
    return Case(
        partial(fastcos.compare, data.X, data.item_cluster, n_components=8),
        lambda answer: float(not max(row.pair_auc for row in answer.named) > 0.8),
        Work(data.X.nnz, 8.0 * data.X.nnz, reads=8.0 * data.X.nnz),
    )
