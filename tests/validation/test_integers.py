"""Sizes and offsets beyond 2^31 and 2^63 are handled correctly.

The tests lower these limits, so that small inputs exceed them.
"""

import dataclasses

import numpy as np
import pytest
import scipy.sparse as sp

import fastcos
from fastcos import metrics
from fastcos.io import ingest
from fastcos.linalg import operators, shards
from fastcos.models import cosine_training, simulation
from fastcos.models.simulation import simulate_interactions
from fastcos.search import cost_model, plan, sparse, sparse_rows, task_grid
from tests.oracles.compare import assert_same_bits


@pytest.fixture(scope="module")
def X():
    rng = np.random.default_rng(0)
    X = sp.random_array((400, 60), density=0.1, rng=rng, format="csr")
    X.data[:] = rng.integers(1, 5, X.nnz)
    return X


def same(result, expected):
    for one, other in zip(result, expected, strict=True):
        assert_same_bits(one, other)


def test_top_k_scores_all_pairs_beyond_the_filter(monkeypatch):
    rows = np.random.default_rng(0).standard_normal((700, 9)).astype(np.float32)
    expected = fastcos.top_k(rows, k=5)
    costs = dataclasses.replace(cost_model.COSTS, max_rows_for_tiles=699)
    monkeypatch.setattr(cost_model, "COSTS", costs)
    sizes = plan.SegmentSizes(700, 9, 700, n_distinct=700)
    machine = task_grid.Machine("avx2", 1, 2.0**30)
    assert plan.plan_search(sizes, plan.RequestSizes(700, 5), machine).method == "score_all"
    same(fastcos.top_k(rows, k=5), expected)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "limit"), [(sparse_rows, "LARGEST_INT32"), (sparse, "LARGEST_SUM")]
)
@pytest.mark.parametrize("measure", ["cosine", "dot"])
def test_sparse_top_k_with_wide_integers_is_the_same(X, measure, module, limit, monkeypatch):
    expected = fastcos.top_k(X, k=7, measure=measure)
    narrow = sparse_rows.SparseRows(X.shape, *parts(X), are_whole=True).by_row[1].dtype
    monkeypatch.setattr(module, limit, 3)
    if limit == "LARGEST_INT32":
        wide = sparse_rows.SparseRows(X.shape, *parts(X), are_whole=True).by_row[1].dtype
        assert (narrow, wide) == (np.int32, np.int64)
    same(fastcos.top_k(X, k=7, measure=measure), expected)


def parts(X):
    return (X.indptr.astype(np.int64), X.indices, X.data), None, 1


@pytest.mark.slow
def test_products_with_wide_integers_are_the_same(X, monkeypatch):
    Q = np.random.default_rng(0).standard_normal((60, 8))
    wide = X.copy()
    wide.indices, wide.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    calls = [
        lambda A: fastcos.matmul(A, Q), lambda A: fastcos.gram_matmul(A, Q),
        lambda A: fastcos.rmatmul(A, np.ones((400, 8))),
    ]  # fmt: skip
    expected = [call(X) for call in calls]
    monkeypatch.setattr(operators, "LARGEST_INT32", 3)
    same([call(X) for call in calls], expected)
    same([call(wide) for call in calls], expected)


def test_shards_with_wide_integers_are_the_same(X, tmp_path, monkeypatch):
    Q = np.random.default_rng(0).standard_normal((60, 8))
    narrow = shards.InteractionShards.write(tmp_path / "narrow", X, entries_per_shard=500)
    monkeypatch.setattr(shards, "LARGEST_INT32", 3)
    wide = shards.InteractionShards.write(tmp_path / "wide", X, entries_per_shard=500)
    assert {block.indices.dtype for _, block in wide.blocks()} == {np.dtype(np.int64)}
    np.testing.assert_array_equal(wide.whole().toarray(), X.toarray())
    for call in (fastcos.matmul, fastcos.gram_matmul):
        same([call(wide, Q), call(wide.whole(), Q)], [call(narrow, Q), call(X, Q)])


@pytest.mark.slow
def test_simulation_with_wide_integers_is_the_same(monkeypatch):
    narrow = simulate_interactions(n_users=300, n_items=50, random_state=4).X
    monkeypatch.setattr(simulation, "INT32_MAX", 3)
    wide = simulate_interactions(n_users=300, n_items=50, random_state=4).X
    assert (narrow.indices.dtype, wide.indices.dtype) == (np.int32, np.int64)
    np.testing.assert_array_equal(wide.indices, narrow.indices)
    np.testing.assert_array_equal(wide.indptr, narrow.indptr)


def test_more_ids_or_items_than_an_integer_are_refused(X, tmp_path, monkeypatch):
    table = tmp_path / "table.csv"
    table.write_text("user,item\n" + "".join(f"u{i},{i % 4}\n" for i in range(9)))
    monkeypatch.setattr(ingest, "MAX_IDS", 8)
    with pytest.raises(ValueError, match=r"distinct ids must be .* 8, got 9"):
        fastcos.io.ingest_interactions(table, tmp_path / "out")
    monkeypatch.setattr(cosine_training, "MAX_ITEMS", 59)
    with pytest.raises(ValueError, match=r"number of items must be .* 59, got 60"):
        fastcos.CosineMF(3, max_iter=1).fit(X)


def test_auc_counts_pairs_beyond_63_bits():
    # There are 3.5e9 x 3.5e9 pairs, so sums of ranks exceed 2^63 before they are divided.
    counts, near = np.array([[3_500_000_000, 0], [0, 3_500_000_000]]), np.zeros((2, 1), int)
    assert metrics.auc.auc_of_counts(counts, near)[0] == 1
