"""A script: limits the address space, and runs public operations on inputs of three sizes.

    python -m tests.robustness.memory_limits [operation ...]

Each call may use this much memory in addition to the memory that the process already holds: four
times the size of its inputs, plus the size of its outputs, plus working_memory (16 MiB here), plus
64 MiB. At the three sizes, a float32 matrix of all pairs would take 0.1, 0.4 and 1.6 GB, which
exceeds this limit. For each operation, the script prints a JSON line with the sizes at which the
operation stayed within the limit. It exits with status 1 if an operation exceeded the limit at any
size. It only runs on Linux.
"""

import json
import resource
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import fastcos
from fastcos import metrics

SIZES = 5_000, 10_000, 20_000
WORKING_MEMORY = 16.0
MIB = 2**20
FOLDER = tempfile.TemporaryDirectory()


def rows(n: int) -> Any:
    return np.random.default_rng(0).standard_normal((n, 24), dtype=np.float32)


def sparse(n: int) -> Any:
    random = np.random.default_rng(0)
    X = sp.csr_array((n, n // 4), dtype=np.float32)
    X.indptr = np.arange(0, 12 * n + 1, 12)
    starts = random.integers(0, n // 4 - 60, (n, 1))
    X.indices = (starts + np.sort(random.permuted(np.tile(np.arange(60), (n, 1)), axis=1)[:, :12])
                 ).ravel()  # fmt: skip
    X.data = random.random(12 * n, dtype=np.float32)
    return X


def labels(n: int) -> Any:
    return np.arange(n) % 7


def lists(n: int) -> Any:
    return (np.arange(n)[:, None] + np.arange(1, 11)) % n


def relevant(n: int) -> Any:
    return sp.csr_array((np.ones(n), (np.arange(n), (np.arange(n) + 3) % n)), (n, n))


def table(n: int) -> Any:
    """Return the path and the content of a file with 12 n pairs.

    The content is returned so that `size_of` counts its bytes as the size of the input.
    """
    path = Path(FOLDER.name) / f"{n}.csv"
    X = sparse(n).tocoo()
    np.savetxt(path, np.column_stack(X.coords), "%d", ",", header="user,item", comments="")
    return path, path.read_bytes()


def ingested(path: Path, content: bytes) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        return fastcos.io.ingest_interactions(path, Path(folder) / "shards").shape


# Each entry contains a function that makes inputs of a given size, and a function that calls the
# operation.
OPERATIONS: dict[str, tuple[Callable[[int], tuple[Any, ...]], Callable[..., Any]]] = {
    "top_k": (lambda n: (rows(n),), lambda X: fastcos.top_k(X, k=10)),
    "top_k, euclidean": (
        lambda n: (rows(n),), lambda X: fastcos.top_k(X, k=10, measure="neg_euclidean"),
    ),
    "top_k, sparse": (lambda n: (sparse(n),), lambda X: fastcos.top_k(X, k=10)),
    "top_k, csls": (lambda n: (rows(n),), lambda X: fastcos.top_k(X, k=10, measure="csls")),
    "neighbors_above": (lambda n: (rows(n),), lambda X: fastcos.neighbors_above(X, min_score=0.9)),
    "similarity_blocks": (
        lambda n: (rows(n),), lambda X: [None for _ in fastcos.similarity_blocks(X)],
    ),
    "SimilarityIndex": (
        lambda n: (rows(n),), lambda X: fastcos.SimilarityIndex().fit(X).search(X, 10),
    ),
    "community_detection": (
        lambda n: (rows(n),), lambda X: fastcos.search.community_detection(X, 0.9),
    ),
    "near_duplicates": (
        lambda n: (rows(n),), lambda X: fastcos.search.near_duplicates(X, 0.9),
    ),
    "rescore": (
        lambda n: (rows(n), lists(n)), lambda X, near: fastcos.search.rescore(X, X, near, 5),
    ),
    "semantic_search": (
        lambda n: (rows(n),), lambda X: fastcos.search.semantic_search(X[:100], X),
    ),
    "calibrate": (lambda n: (rows(n),), lambda X: fastcos.calibrate(X)),
    "calibrate_pairs": (
        lambda n: (rows(n)[:, 0], labels(n) == 0), fastcos.auditing.calibrate_pairs,
    ),
    "pairs_near": (lambda n: (rows(n),), lambda X: fastcos.auditing.pairs_near(X, 0.5)),
    "score_pairs": (lambda n: (rows(n), lists(n)[:, :2]), fastcos.auditing.score_pairs),
    "threshold_range": (
        lambda n: (rows(n),), lambda X: fastcos.auditing.threshold_range(X, 0.001),
    ),
    "NeighborsTransformer": (
        lambda n: (rows(n),), lambda X: fastcos.NeighborsTransformer(10).fit_transform(X),
    ),
    "matmul": (lambda n: (sparse(n), rows(n // 4)), fastcos.matmul),
    "rmatmul": (lambda n: (sparse(n), rows(n)), fastcos.rmatmul),
    "gram_matmul": (lambda n: (sparse(n), rows(n // 4)), fastcos.gram_matmul),
    "randomized_svd": (
        lambda n: (sparse(n),), lambda X: fastcos.randomized_svd(X, 8, tol=0.1),
    ),
    "LinearMF": (
        lambda n: (sparse(n),), lambda X: fastcos.LinearMF(8, regularization=1.0, tol=0.1).fit(X),
    ),
    "CosineMF": (
        lambda n: (sparse(n),), lambda X: fastcos.CosineMF(8, max_iter=1, random_state=0).fit(X),
    ),
    "ShiftedPPMI": (
        lambda n: (sparse(n),), lambda X: fastcos.models.ShiftedPPMI().fit_transform(X),
    ),
    "choose_rank": (
        lambda n: (sparse(n),), lambda X: fastcos.comparison.choose_rank(X, ranks=[2, 5]),
    ),
    "certified_neighbors": (
        lambda n: (rows(n),), lambda X: fastcos.certified_neighbors(X, 5, rows=range(50)),
    ),
    "vertex_attack": (
        lambda n: (rows(n),), lambda X: fastcos.auditing.vertex_attack(X, 5, rows=range(5)),
    ),
    "worst_rescaling": (
        lambda n: (rows(n)[:300],),
        lambda X: fastcos.auditing.worst_rescaling(X, 5, n_starts=1),
    ),
    "cosine_interval": (
        lambda n: (rows(n), rows(n)), lambda *x: fastcos.auditing.cosine_interval(*x, 2),
    ),
    "tv_index": (lambda n: (rows(n), rows(n)), fastcos.auditing.tv_index),
    "query_metric": (lambda n: (rows(n),), fastcos.query_metric),
    "canonicalize": (lambda n: (rows(n), rows(n // 2)), fastcos.canonicalize),
    "svd_residuals": (
        lambda n: (sparse(n), fastcos.randomized_svd(sparse(n), 8, tol=0.1)), fastcos.svd_residuals,
    ),
    "NormalizeRows": (
        lambda n: (sparse(n),), lambda X: fastcos.models.NormalizeRows().fit_transform(X),
    ),
    "PopularityWeights": (
        lambda n: (sparse(n),), lambda X: fastcos.models.PopularityWeights().fit_transform(X),
    ),
    "StandardizeColumns": (
        lambda n: (sparse(n),), lambda X: fastcos.models.StandardizeColumns().fit_transform(X),
    ),
    "simulate_interactions": (
        lambda n: (n,), lambda n: fastcos.simulate_interactions(n, 500, random_state=0),
    ),
    "read_interactions": (table, lambda path, content: fastcos.read_interactions(path)),
    "ingest_interactions": (table, ingested),
    "unbounded_range": (lambda n: (rows(n), rows(n)), fastcos.auditing.unbounded_range),
    "fisher_z_interval": (
        lambda n: (rows(n)[:, 0],), lambda x: fastcos.auditing.fisher_z_interval(np.tanh(x), 2.0),
    ),
    "label_recovery_range": (lambda n: (rows(n), labels(n)), fastcos.auditing.label_recovery_range),
    "rerank": (
        lambda n: (fastcos.Neighbors(lists(n), rows(n)[:, :10]),),
        lambda neighbors: fastcos.rerank(neighbors, lambda query, columns: -np.asarray(columns)),
    ),
    "diff_models": (lambda n: (rows(n), rows(n)), fastcos.auditing.diff_models),
    "align": (lambda n: (rows(n), rows(n)), fastcos.align),
    "map_encoder": (
        lambda n: (rows(n), rows(n), np.arange(n)), fastcos.auditing.map_encoder,
    ),
    "gradient_noise": (
        lambda n: (rows(n), rows(60), np.ones((60, n))),
        lambda items, users, errors: fastcos.auditing.gradient_noise(
            items, users, errors, step=0.1
        ),
    ),
    "audit": (
        lambda n: (rows(n), rows(n // 2), labels(n)),
        lambda items, users, of: fastcos.audit(items, users, labels=of),
    ),
    "compare_vectors": (
        lambda n: (rows(n), labels(n)),
        lambda *x: fastcos.compare_vectors(*x, measures=["cosine", "dot"]),
    ),
    "compare": (
        lambda n: (sparse(n), labels(n // 4)),
        lambda *x: fastcos.compare(*x, n_components=4, regularization=1.0, weight_decay=1.0),
    ),
    "metrics.pair_auc": (
        lambda n: (rows(n), labels(n)), lambda *x: metrics.pair_auc(*x, exact=False),
    ),
    "metrics.map_at_r": (lambda n: (rows(n), labels(n)), metrics.map_at_r),
    "metrics.silhouette": (lambda n: (rows(n), labels(n)), metrics.silhouette),
    "metrics.within_between": (lambda n: (rows(n), labels(n)), metrics.within_between),
    "metrics.mean_cosine": (lambda n: (rows(n),), metrics.mean_cosine),
    "metrics.effective_rank": (lambda n: (rows(n),), metrics.effective_rank),
    "metrics.trustworthiness": (lambda n: (rows(n), rows(n)[:, :8]), metrics.trustworthiness),
    "metrics.rsa": (lambda n: (rows(n), rows(n)), metrics.rsa),
    "metrics.cka": (lambda n: (rows(n), rows(n)), metrics.cka),
    "metrics.procrustes": (lambda n: (rows(n), rows(n)), metrics.procrustes),
    "metrics.hubness": (lambda n: (lists(n),), metrics.hubness),
    "metrics.cca_similarity": (lambda n: (rows(n), rows(n)), metrics.cca_similarity),
    "metrics.clustering_scores": (lambda n: (rows(n), labels(n)), metrics.clustering_scores),
    "metrics.isoscore": (lambda n: (rows(n),), metrics.isoscore),
    "metrics.jaccard_at_k": (lambda n: (lists(n), lists(n)), metrics.jaccard_at_k),
    "metrics.model_change": (
        lambda n: (rows(n), rows(n), rows(n), rows(n)[:, ::-1]), metrics.model_change,
    ),
    "metrics.hit_rate_at_k": (lambda n: (lists(n), relevant(n)), metrics.hit_rate_at_k),
    "metrics.map_at_k": (lambda n: (lists(n), relevant(n)), metrics.map_at_k),
    "metrics.mrr_at_k": (lambda n: (lists(n), relevant(n)), metrics.mrr_at_k),
    "metrics.ndcg_at_k": (lambda n: (lists(n), relevant(n)), metrics.ndcg_at_k),
    "metrics.neighbor_purity": (lambda n: (lists(n), labels(n)), metrics.neighbor_purity),
    "metrics.overlap_at_k": (lambda n: (lists(n), lists(n)), metrics.overlap_at_k),
    "metrics.participation_ratio": (lambda n: (rows(n),), metrics.participation_ratio),
    "metrics.popularity_bias": (
        lambda n: (rows(n), np.arange(n), lists(n)), metrics.popularity_bias,
    ),
    "metrics.precision_at_k": (lambda n: (lists(n), relevant(n)), metrics.precision_at_k),
    "metrics.rank_biased_overlap": (lambda n: (lists(n), lists(n)), metrics.rank_biased_overlap),
    "metrics.recall_at_k": (lambda n: (lists(n), relevant(n)), metrics.recall_at_k),
    "metrics.stratified_auc": (
        lambda n: (rows(n), labels(n), np.arange(n)), metrics.stratified_auc,
    ),
}  # fmt: skip


def size_of(value: Any) -> int:
    """Return the number of bytes of the arrays in a value."""
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, bytes):
        return len(value)
    if sp.issparse(value):
        return value.data.nbytes + value.indices.nbytes + value.indptr.nbytes
    if isinstance(value, (tuple, list)):
        return sum(map(size_of, value))
    return sum(map(size_of, vars(value).values())) if hasattr(value, "get_params") else 0


def held() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def fits(name: str, n: int) -> bool:
    """Return whether a call with inputs of size n stays within the memory limit.

    To set the limit, the function estimates the size of the outputs: it makes a call with inputs of
    size n / 10, and multiplies the size of the outputs of this call by ten.
    """
    make, call = OPERATIONS[name]
    outputs = size_of(call(*make(n // 10))) * 10
    inputs = make(n)
    allowed = held() + 4 * size_of(inputs) + outputs + int((WORKING_MEMORY + 64) * MIB)
    resource.setrlimit(resource.RLIMIT_AS, (allowed, resource.RLIM_INFINITY))
    try:
        call(*inputs)
    except MemoryError:
        return False
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
    return True


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    fastcos.set_config(n_threads=2, working_memory=WORKING_MEMORY)
    failed = 0
    for name in sys.argv[1:] or OPERATIONS:
        sizes = [n for n in SIZES if fits(name, n)]
        print(json.dumps({name: sizes}), flush=True)
        failed += len(sizes) < len(SIZES)
    sys.exit(failed > 0)
