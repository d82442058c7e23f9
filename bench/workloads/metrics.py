"""Metrics over all pairs of rows, and over lists of neighbours; each with its reference."""

from functools import partial

import numpy as np

import fastcos
from bench import inputs
from bench.answers import reference
from bench.limits import Work
from bench.workloads import Case, Workload
from tests.oracles import metrics as oracles

# neighbours of a list
K = 20
roc_auc_score = reference("sklearn.metrics:roc_auc_score")
silhouette_score = reference("sklearn.metrics:silhouette_score")
trustworthiness = reference("sklearn.manifold:trustworthiness")
skew = reference("scipy.stats:skew")


def embeddings(n, width=32):
    """Return rows in ten clusters, and their labels."""
    labels = np.random.default_rng(0).integers(0, 10, n)
    rows = inputs.gaussian(n, width) + 1.5 * inputs.gaussian(10, width, seed=1)[labels]
    return rows, labels


def stratified_auc(rows, labels, popularity):
    """Return the mean AUC of ten strata of pairs, weighted by their pairs of both kinds."""
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
    "pair_auc": (
        "rows labels", lambda *labelled: roc_auc_score(*oracles.pair_scores(*labelled)[::-1]),
    ),
    "stratified_auc": ("rows labels popularity", stratified_auc),
    "map_at_r": ("rows labels", oracles.map_at_r),
    "silhouette": ("rows labels", partial(silhouette_score, metric="cosine")),
    "rsa": ("rows noisy", rsa),
    "trustworthiness": ("rows noisy", lambda *both: trustworthiness(*map(oracles.unit, both))),
    "overlap_at_k": ("lists noisy_lists", lambda *both: overlaps(*both)[:, -1].mean() / K),
    "rank_biased_overlap": ("lists noisy_lists", rank_biased_overlap),
    "hubness": ("lists", lambda lists: skew(np.bincount(lists.ravel(), minlength=len(lists)))),
}  # fmt: skip


@Workload(
    "metrics", axes={"metric": list(METRICS), "items": [1_000]},
    roofline={"metric": ["pair_auc", "map_at_r"]}, limit=1e-4,
)  # fmt: skip
def Metric(metric, items):
    """A metric, of whose record the first number is compared."""
    rows, labels = embeddings(items)
    noisy, popularity = rows + 0.5 * inputs.gaussian(*rows.shape, seed=2), np.arange(items) + 1
    made = {"rows": rows, "labels": labels, "noisy": noisy, "popularity": popularity}
    names, reference = METRICS[metric]
    of_lists = "lists" in names
    if of_lists:
        made["lists"], made["noisy_lists"] = (
            fastcos.top_k(some, k=K).indices for some in (rows, noisy)
        )
    given = [made[name] for name in names.split()]

    def error(answer):
        return abs(reference(*given) - (answer[0] if isinstance(answer, tuple) else answer))

    # of rows the inner products of all pairs, of lists their bytes
    adds = 0.0 if of_lists else float(items) ** 2 * rows.shape[1]
    work = Work(items, adds, reads=float(sum(array.nbytes for array in given)))
    return Case(partial(getattr(fastcos.metrics, metric), *given), error, work)
