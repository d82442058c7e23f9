"""Public operations return bit-identical results; exceptions are listed with their reasons."""

import dataclasses
import functools
import inspect

import numpy as np
import pytest
import scipy.sparse as sp

import fastcos
import fastcos.comparison
import fastcos.models
from fastcos import metrics

# Each setting contains a number of threads and a working memory in MiB. The first setting gives the
# expected bits.
SETTINGS = [(1, 1024.0), (2, 1024.0), (3, 4.0), (8, 64.0)]

NOT_PROMISED = {
    "similarity_blocks": "a matrix product of BLAS: its last bits depend on the block",
    "STSScorer": "the scores are those of another library's model",
    "InteractionShards": "sums over rows depend on where the shards were cut",
}
NO_ARITHMETIC = {
    "explain_top_k", "from_model", "get_config", "get_measure", "list_measures", "presets",
    "read_interactions", "rescalings", "set_config",
}  # fmt: skip
PACKAGES = (
    fastcos, fastcos.auditing, fastcos.comparison, fastcos.models,
    fastcos.linalg, fastcos.search,
)  # fmt: skip


class Data:
    """Inputs that are small, but consist of many blocks."""

    def __init__(self) -> None:
        random = np.random.default_rng(0)
        self.simulation = fastcos.simulate_interactions(600, 150, random_state=1, n_threads=1)
        self.X = self.simulation.X.astype(np.float32)
        # Because of rounding, the order of the terms can change a sum of real numbers, but not a
        # sum of ones. The ones are therefore replaced by random numbers.
        self.ratings = self.X.astype(np.float64)
        self.ratings.data[:] = np.random.default_rng(1).standard_normal(self.ratings.nnz)
        self.labels = self.simulation.item_cluster
        self.counts = np.asarray(self.X.sum(axis=0)).ravel()
        self.items = random.standard_normal((150, 12)) + self.labels[:, None]
        self.other = self.items + 0.3 * random.standard_normal(self.items.shape)
        self.users = random.standard_normal((90, 12))
        self.rows = random.standard_normal((900, 24)).astype(np.float32)
        self.neighbors = fastcos.top_k(self.items, k=6, n_threads=1).indices
        self.others = fastcos.top_k(self.other, k=6, n_threads=1).indices
        self.left = random.standard_normal((600, 5)).astype(np.float32)
        self.right = random.standard_normal((150, 5)).astype(np.float32)
        self.svd = fastcos.randomized_svd(self.X, 4, n_threads=1)


@functools.cache
def data():
    return Data()


def searches(d):
    return [
        fastcos.top_k(d.rows, k=7, measure=measure)
        for measure in ("cosine", "dot", "neg_euclidean", "norm_angle", "csls")
        if measure in fastcos.list_measures()
    ] + [
        fastcos.top_k(d.rows[:3], d.rows, 7),
        fastcos.top_k(d.ratings, k=5),
        fastcos.top_k(d.ratings[:40], d.ratings, 5, measure="dot"),
    ]


PROMISED = {
    "top_k": searches,
    "neighbors_above": lambda d: fastcos.neighbors_above(d.rows, min_score=0.3),
    "SimilarityIndex": lambda d: fastcos.SimilarityIndex().fit(d.rows).search(d.rows[:50], 5),
    "community_detection": lambda d: fastcos.search.community_detection(d.rows, 0.6, 3),
    "near_duplicates": lambda d: fastcos.search.near_duplicates(d.rows, 0.6),
    "rescore": lambda d: fastcos.search.rescore(
        d.rows[:40], d.rows, fastcos.top_k(d.rows, k=9).indices[:40], 5
    ),
    "semantic_search": lambda d: fastcos.search.semantic_search(d.rows[:40], d.rows),
    "calibrate": lambda d: fastcos.calibrate(d.items),
    "calibrate_pairs": lambda d: fastcos.auditing.calibrate_pairs(d.items[:, 0], d.labels == 0),
    "pairs_near": lambda d: fastcos.auditing.pairs_near(d.items, 0.5),
    "score_pairs": lambda d: fastcos.auditing.score_pairs(d.items, lists_of_two(d)),
    "threshold_range": lambda d: fastcos.auditing.threshold_range(d.items[:40], 0.01),
    "NeighborsTransformer": lambda d: fastcos.NeighborsTransformer(4).fit_transform(d.rows),
    "matmul": lambda d: fastcos.matmul(d.X, d.right, center=d.counts / 600),
    "rmatmul": lambda d: fastcos.rmatmul(d.X, d.left),
    "gram_matmul": lambda d: fastcos.gram_matmul(d.X, d.right, scale=1 + d.counts),
    "randomized_svd": lambda d: fastcos.randomized_svd(d.X, 4),
    "svd_residuals": lambda d: fastcos.svd_residuals(d.X, d.svd),
    "LinearMF": lambda d: fitted(fastcos.LinearMF(4, regularization=10.0), d.X),
    "CosineMF": lambda d: fitted(fastcos.CosineMF(4, max_iter=3, random_state=0), d.X),
    "NormalizeRows": lambda d: fastcos.models.NormalizeRows().fit_transform(d.X),
    "PopularityWeights": lambda d: fastcos.models.PopularityWeights().fit_transform(d.X),
    "ShiftedPPMI": lambda d: fastcos.models.ShiftedPPMI().fit_transform(d.X),
    "StandardizeColumns": lambda d: fastcos.models.StandardizeColumns().fit_transform(d.X),
    "simulate_interactions": lambda d: fastcos.simulate_interactions(900, 120, random_state=3),
    "certified_neighbors": lambda d: fastcos.certified_neighbors(d.items, 5),
    "vertex_attack": lambda d: fastcos.auditing.vertex_attack(d.items, 5, rows=range(20)),
    "worst_rescaling": lambda d: fastcos.auditing.worst_rescaling(
        d.items[:40], condition=1.2, k=5, random_state=0
    ),
    "cosine_interval": lambda d: fastcos.auditing.cosine_interval(d.items, d.other, 3.0),
    "tv_index": lambda d: fastcos.auditing.tv_index(d.items, d.other),
    "fisher_z_interval": lambda d: fastcos.auditing.fisher_z_interval(np.linspace(-1, 1, 99), 2.0),
    "unbounded_range": lambda d: fastcos.auditing.unbounded_range(d.items, d.other),
    "rescaling_distance": lambda d: fastcos.auditing.rescaling_distance(
        np.eye(3), np.diag([1.0, 2, 3])
    ),
    "canonicalize": lambda d: fastcos.canonicalize(d.users, d.items),
    "query_metric": lambda d: fastcos.query_metric(d.users),
    "gradient_noise": lambda d: fastcos.auditing.gradient_noise(
        d.items, d.users, np.ones((len(d.users), len(d.items))), step=0.1
    ),
    "label_recovery_range": lambda d: fastcos.auditing.label_recovery_range(d.items, d.labels),
    "rerank": lambda d: fastcos.rerank(
        fastcos.top_k(d.items, k=6), lambda q, columns: -np.asarray(columns)
    ),
    "audit": lambda d: fastcos.audit(d.items, d.users, labels=d.labels, k=5),
    "align": lambda d: fastcos.align(d.items, d.other, random_state=0),
    "map_encoder": lambda d: fastcos.auditing.map_encoder(
        d.other, d.items, np.arange(len(d.items)), k=5
    ),
    "diff_models": lambda d: fastcos.auditing.diff_models(d.items, d.other, k=5),
    "compare": lambda d: fastcos.compare(
        d.X, d.labels, n_components=4, regularization=10.0, weight_decay=10.0
    ),
    "choose_rank": lambda d: fastcos.comparison.choose_rank(d.X, ranks=[2, 5]),
    "compare_vectors": lambda d: fastcos.compare_vectors(
        d.items, d.labels, measures=["cosine", "dot"]
    ),
    "metrics.cca_similarity": lambda d: metrics.cca_similarity(d.items, d.other),
    "metrics.cka": lambda d: metrics.cka(d.items, d.other),
    "metrics.clustering_scores": lambda d: metrics.clustering_scores(d.items, d.labels),
    "metrics.effective_rank": lambda d: metrics.effective_rank(d.items),
    "metrics.hit_rate_at_k": lambda d: metrics.hit_rate_at_k(d.neighbors, held_out(d)),
    "metrics.hubness": lambda d: metrics.hubness(d.neighbors),
    "metrics.isoscore": lambda d: metrics.isoscore(d.items),
    "metrics.jaccard_at_k": lambda d: metrics.jaccard_at_k(d.neighbors, d.others),
    "metrics.map_at_k": lambda d: metrics.map_at_k(d.neighbors, held_out(d)),
    "metrics.map_at_r": lambda d: metrics.map_at_r(d.items, d.labels),
    "metrics.mean_cosine": lambda d: metrics.mean_cosine(d.items),
    "metrics.model_change": lambda d: metrics.model_change(d.users, d.items, d.users, d.other),
    "metrics.mrr_at_k": lambda d: metrics.mrr_at_k(d.neighbors, held_out(d)),
    "metrics.ndcg_at_k": lambda d: metrics.ndcg_at_k(d.neighbors, held_out(d)),
    "metrics.neighbor_purity": lambda d: metrics.neighbor_purity(d.neighbors, d.labels),
    "metrics.overlap_at_k": lambda d: metrics.overlap_at_k(d.neighbors, d.others),
    "metrics.pair_auc": lambda d: metrics.pair_auc(d.items, d.labels),
    "metrics.participation_ratio": lambda d: metrics.participation_ratio(d.items),
    "metrics.popularity_bias": lambda d: metrics.popularity_bias(d.items, d.counts, d.neighbors),
    "metrics.precision_at_k": lambda d: metrics.precision_at_k(d.neighbors, held_out(d)),
    "metrics.procrustes": lambda d: metrics.procrustes(d.items, d.other),
    "metrics.rank_biased_overlap": lambda d: metrics.rank_biased_overlap(d.neighbors, d.others),
    "metrics.recall_at_k": lambda d: metrics.recall_at_k(d.neighbors, held_out(d)),
    "metrics.rsa": lambda d: metrics.rsa(d.items, d.other),
    "metrics.silhouette": lambda d: metrics.silhouette(d.items, d.labels),
    "metrics.stratified_auc": lambda d: metrics.stratified_auc(d.items, d.labels, d.counts),
    "metrics.trustworthiness": lambda d: metrics.trustworthiness(d.rows, d.rows[:, :5]),
    "metrics.within_between": lambda d: metrics.within_between(d.items, d.labels),
}


def lists_of_two(d):
    return np.column_stack([np.arange(len(d.items)), d.neighbors[:, 0]])


def held_out(d):
    return sp.csr_array(d.labels[:, None] == d.labels[None, :]).astype(np.float32)


def fitted(estimator, X):
    return estimator.fit(X), estimator.transform(X)


def bits(value):
    """Return all numbers in a result, at any depth, as bytes."""
    if isinstance(value, np.ndarray):
        kind = value.tolist() if value.dtype == object else np.ascontiguousarray(value).tobytes()
        return (value.dtype.str, value.shape, repr(kind) if value.dtype == object else kind)
    if sp.issparse(value):
        return tuple(map(bits, (value.data, value.indices, value.indptr)))
    if isinstance(value, (float, np.floating)):
        return np.float64(value).tobytes()
    if isinstance(value, dict):
        return tuple((str(key), bits(part)) for key, part in value.items())
    if isinstance(value, (tuple, list)):
        return tuple(map(bits, value))
    if dataclasses.is_dataclass(value):
        return tuple(bits(getattr(value, field.name)) for field in dataclasses.fields(value))
    if hasattr(value, "get_params"):
        return bits({k: v for k, v in vars(value).items() if k.endswith("_")})
    return repr(value)


def test_public_names_are_promised_or_have_a_reason():
    public = {f"metrics.{name}": getattr(metrics, name) for name in metrics.__all__}
    for package in PACKAGES:
        public |= {name: getattr(package, name) for name in package.__all__}
    computing = {
        name for name, thing in public.items() if inspect.isfunction(thing) or hasattr(thing, "fit")
    }
    listed = [*PROMISED, *NOT_PROMISED, *NO_ARITHMETIC]
    assert len(listed) == len(set(listed))
    assert computing <= set(listed), "add it to PROMISED above, with a call on small inputs"
    assert set(listed) <= set(public)


@pytest.mark.filterwarnings("ignore::fastcos.models.AmbiguousSolutionWarning")
@pytest.mark.parametrize(
    "operation",
    [
        pytest.param(name, marks=pytest.mark.slow)
        if name in {"audit", "compare", "CosineMF", "rmatmul"}
        else name
        for name in PROMISED
    ],
)
@pytest.mark.parametrize(
    "others",
    [SETTINGS[2:3], pytest.param(SETTINGS[1::2], marks=pytest.mark.slow)],
    ids=["three threads", "two and eight threads"],
)
def test_bits_do_not_depend_on_threads_and_memory(operation, others, monkeypatch):
    results = []
    for n_threads, memory in (SETTINGS[0], *others):
        monkeypatch.setattr(fastcos.config, "overrides", {})
        fastcos.set_config(n_threads=n_threads, working_memory=memory)
        results.append(bits(PROMISED[operation](data())))
    assert len(repr(results[0])) > 10
    for other in results[1:]:
        assert other == results[0]
