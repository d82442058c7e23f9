"""Wrong values of shared arguments lead to an error of one line that names the argument."""

import numpy as np
import pytest
import scipy.sparse as sp

import fastcos
from fastcos import comparison, io, metrics, search

ROWS = np.random.default_rng(0).standard_normal((20, 4))
COUNTS = np.random.default_rng(0).integers(0, 3, (30, 8)).astype(float)
TAKES_PROGRESS = {
    "top_k": lambda **arguments: fastcos.top_k(ROWS, k=2, **arguments),
    "top_k of sparse rows": lambda **arguments: fastcos.top_k(
        sp.csr_array(COUNTS), k=2, **arguments
    ),
    "search": lambda **arguments: fastcos.SimilarityIndex().fit(ROWS).search(ROWS, 2, **arguments),
    "neighbors_above": lambda **arguments: fastcos.neighbors_above(
        ROWS, min_score=0.5, **arguments
    ),
    "rerank": lambda **arguments: search.rerank(fastcos.top_k(ROWS, k=2), len, **arguments),
    "certified_neighbors": lambda **arguments: fastcos.certified_neighbors(ROWS, k=2, **arguments),
    "audit": lambda **arguments: fastcos.audit(ROWS, k=2, **arguments),
    "compare": lambda **arguments: fastcos.compare(COUNTS, **arguments),
    "compare_vectors": lambda **arguments: comparison.compare_vectors(
        ROWS, [0, 1] * 10, **arguments
    ),
    "simulate": lambda **arguments: fastcos.simulate_interactions(30, 8, n_clusters=2, **arguments),
    "randomized_svd": lambda **arguments: fastcos.randomized_svd(COUNTS, 2, **arguments),
    "LinearMF": lambda **arguments: fastcos.LinearMF(2).fit(COUNTS, **arguments),
    "CosineMF": lambda **arguments: fastcos.CosineMF(2).fit(COUNTS, **arguments),
    "recommend": lambda **arguments: (
        fastcos.LinearMF(2).fit(COUNTS).recommend(COUNTS, 2, **arguments)
    ),
    "read_interactions": lambda **arguments: io.read_interactions("ratings.csv", **arguments),
}
FLAGS = {
    "exclude_self": lambda flag: fastcos.top_k(ROWS, k=2, exclude_self=flag),
    "exclude_seen": lambda flag: (
        fastcos.LinearMF(2).fit(COUNTS).recommend(COUNTS, 2, exclude_seen=flag)
    ),
    "compute_u": lambda flag: fastcos.randomized_svd(COUNTS, 2, compute_u=flag),
    "centered": lambda flag: fastcos.query_metric(ROWS, centered=flag),
    "exact": lambda flag: metrics.pair_auc(ROWS, [0, 1] * 10, exact=flag),
    "header": lambda flag: io.read_interactions("ratings.csv", header=flag),
}


@pytest.mark.parametrize("entry", TAKES_PROGRESS)
def test_progress_must_be_callable(entry):
    with pytest.raises(TypeError, match=r"^progress must be callable or None, got 5$"):
        TAKES_PROGRESS[entry](progress=5)


@pytest.mark.parametrize("name", FLAGS)
@pytest.mark.parametrize("value", ["no", 1, object])
def test_flags_must_be_booleans(name, value):
    with pytest.raises(ValueError, match=rf"^{name} must be True or False, got"):
        FLAGS[name](value)


@pytest.mark.parametrize(
    "call",
    [
        lambda n: fastcos.top_k(ROWS, k=2, n_threads=n),
        lambda n: fastcos.top_k(sp.csr_array(COUNTS), k=2, n_threads=n),
        lambda n: fastcos.SimilarityIndex(n_threads=n).fit(ROWS),
        lambda n: fastcos.matmul(COUNTS, ROWS[:8], n_threads=n),
        lambda n: fastcos.simulate_interactions(30, 8, n_clusters=2, n_threads=n),
    ],
)
def test_n_threads_has_an_upper_bound(call):
    for value in (10**9, 4097):
        with pytest.raises(ValueError, match=r"^n_threads must be a whole number from 1 to 4096"):
            call(value)
    with pytest.raises(ValueError, match=r"^n_threads must be a whole number from 1 to 4096"):
        fastcos.set_config(n_threads=10**9)


def test_k_in_the_place_of_items_is_named():
    with pytest.raises(
        TypeError, match=r"items must be a matrix of rows, got the number 10\. .* pass k=10"
    ):
        fastcos.top_k(np.eye(20), 10)


@pytest.mark.parametrize("svd", [5, "svd", None, (), ROWS[0], {"U": 1}, (None, [1.0])])
def test_svd_residuals_refuses_other_objects(svd):
    with pytest.raises((TypeError, ValueError), match=r"^svd(\.s|\.Vt)? must "):
        fastcos.svd_residuals(COUNTS, svd)


@pytest.mark.parametrize("allowed", [[], [3], [3, 4], [0, 7, 19]])
@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("kind", ["dense", "sparse", "index"])
def test_fewer_allowed_items_than_k_are_padded(allowed, own, kind):
    allowed = np.array(allowed, int)
    if kind == "index":
        result = fastcos.SimilarityIndex().fit(ROWS).search(ROWS, 5, allowed=allowed)
        own = False
    else:
        rows = ROWS if kind == "dense" else sp.csr_array(ROWS)
        items = None if own else rows
        result = fastcos.top_k(rows, items, 5, allowed=allowed)
    assert result.indices.shape == result.scores.shape == (20, 5)
    units = ROWS / np.linalg.norm(ROWS, axis=1, keepdims=True)
    for query, (indices, scores) in enumerate(zip(result.indices, result.scores, strict=True)):
        candidates = [item for item in allowed.tolist() if not (own and item == query)]
        candidates.sort(key=lambda item: -units[item] @ units[query])
        assert indices.tolist() == candidates + [-1] * (5 - len(candidates))
        assert (scores[len(candidates) :] == -np.inf).all()
        assert np.isfinite(scores[: len(candidates)]).all()


def test_index_changes_refuse_repeated_ids():
    index = fastcos.SimilarityIndex().fit(ROWS)
    for change in (index.remove, lambda ids: index.upsert(ROWS[:3], ids)):
        with pytest.raises(ValueError, match=r"^ids must be distinct, got 0 more than once$"):
            change([0, 0, 1])
    assert index.n_items_ == 20
