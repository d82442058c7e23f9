"""A search with a threshold compares the threshold with the scores that the search returns."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings, strategies as st

from fastcos import SimilarityIndex, neighbors_above, top_k
from fastcos.search import near_duplicates

MEASURES = ["cosine", "dot", "neg_euclidean", "angular", "csls", "norm_angle_distance"]
TYPES = [np.float32, np.float64]


def rows(seed, n, d, dtype, scale):
    """Return rows of whole numbers with repeated rows, so that many scores are equal or close."""
    random = np.random.default_rng(seed)
    X = random.integers(-3, 4, (n, d)).astype(np.float64) * scale
    X[n // 2 :: 3] = X[: len(X[n // 2 :: 3])]
    X[X.any(axis=1) == 0, 0] = scale
    return X.astype(dtype)


def top_k_pairs(neighbors):
    query, rank = np.nonzero(neighbors.indices >= 0)
    return set(zip(query.tolist(), neighbors.indices[query, rank].tolist(), strict=True))


def csr_pairs(pairs):
    query = np.repeat(np.arange(pairs.shape[0]), np.diff(pairs.indptr))
    return set(zip(query.tolist(), pairs.indices.tolist(), strict=True))


def test_exact_copies_reach_a_cosine_of_one():
    X = np.random.default_rng(0).standard_normal((300, 5)).astype(np.float32)
    pairs = np.concatenate([X, X])
    result = top_k(X, X, 1, min_score=1.0)
    np.testing.assert_array_equal(result.indices[:, 0], np.arange(300))
    assert (result.scores == 1).all()
    above = neighbors_above(X, X, min_score=1.0)
    np.testing.assert_array_equal(above.diagonal(), np.ones(300))
    assert near_duplicates(pairs, 1.0).labels.tolist() == [*range(300), *range(300)]
    index = SimilarityIndex().fit(pairs)
    assert len(index.near_duplicates(1.0).pairs) == 300
    assert (index.search(X, 2, min_score=1.0).indices >= 0).all()
    assert (np.diff(index.radius(X, 1.0).indptr) == 2).all()


@pytest.mark.parametrize(
    "measure",
    [pytest.param(name, marks=[pytest.mark.slow] * (name != "cosine")) for name in MEASURES],
)
@settings(max_examples=16, deadline=None)
@given(
    seed=st.integers(0, 10_000), dtype=st.sampled_from(TYPES),
    scale=st.sampled_from([1.0, 0.1, 1e-8, 1e12]), rank=st.integers(0, 5),
)  # fmt: skip
def test_a_returned_score_as_threshold_loses_no_pair(measure, seed, dtype, scale, rank):
    X = rows(seed, 40, 4, dtype, scale)
    Q, k = X[:12], 40
    every = top_k(Q, X, k, measure=measure)
    threshold = float(every.scores[seed % 12, rank])
    expected = {
        (query, item)
        for query, (items, scores) in enumerate(zip(every.indices, every.scores, strict=True))
        for item, score in zip(items.tolist(), scores, strict=True)
        if score >= np.float32(threshold)
    }
    assert top_k_pairs(top_k(Q, X, k, measure=measure, min_score=threshold)) == expected
    index = SimilarityIndex(measure).fit(X)
    assert top_k_pairs(index.search(Q, k, min_score=threshold)) == expected
    assert csr_pairs(neighbors_above(Q, X, min_score=threshold, measure=measure)) == expected
    assert csr_pairs(index.radius(Q, threshold)) == expected


@pytest.mark.parametrize("measure", ["cosine", pytest.param("dot", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "scale",
    # The scale 1 runs the code for whole numbers.
    [3e-5, *(pytest.param(rest, marks=pytest.mark.slow) for rest in (0.1, 1))],
)
@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_sparse_thresholds_lose_no_pair(measure, scale, seed):
    X = sp.csr_array(np.maximum(rows(seed, 30, 6, np.float64, 1.0), 0) * scale)
    every = top_k(X, X, 30, measure=measure)
    positive = every.scores[every.scores > 0]
    if not len(positive):
        return
    threshold = float(positive[seed % len(positive)])
    is_above = every.scores >= np.float32(threshold)
    query, rank = np.nonzero(is_above)
    expected = set(zip(query.tolist(), every.indices[query, rank].tolist(), strict=True))
    assert top_k_pairs(top_k(X, X, 30, measure=measure, min_score=threshold)) == expected
    assert csr_pairs(neighbors_above(X, X, min_score=threshold, measure=measure)) == expected


@pytest.mark.parametrize("measure", ["hamming", pytest.param("bit_cosine", marks=pytest.mark.slow)])
def test_thresholds_of_bits_lose_no_pair(measure):
    bits = np.random.default_rng(1).integers(0, 256, (50, 3)).astype(np.uint8)
    every = top_k(bits, bits, 50, measure=measure)
    for threshold in np.unique(every.scores):
        result = top_k(bits, bits, 50, measure=measure, min_score=float(threshold))
        np.testing.assert_array_equal(result.indices >= 0, every.scores >= threshold)


def test_memory_mapped_rows_have_the_same_pairs(tmp_path):
    X = rows(3, 3000, 8, np.float32, 0.1)
    np.save(tmp_path / "rows.npy", X)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    scores = top_k(X[:50], X, 20).scores
    threshold = float(scores[7, 11])
    result = top_k(mapped[:50], mapped, 20, min_score=threshold, working_memory=0.5)
    np.testing.assert_array_equal(result.indices >= 0, scores >= np.float32(threshold))


def test_a_score_below_the_threshold_by_one_float32_is_left_out():
    result = top_k([[1.0, 2.0]], [[1.0, 2.0], [1.0, 2.001]], 2)
    above = float(np.nextafter(result.scores[0, 1], np.float32(2)))
    assert top_k([[1.0, 2.0]], [[1.0, 2.0], [1.0, 2.001]], 2, min_score=above).indices[0, 1] == -1
