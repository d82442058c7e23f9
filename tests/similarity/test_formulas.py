"""Every entry point agrees with each measure's formula, and the declared invariances hold."""

import numpy as np
import pytest
import scipy.sparse as sp

import fastcos
from fastcos import SimilarityIndex, get_measure, neighbors_above, similarity_blocks, top_k
from tests.similarity.cases import (
    BASES,
    CASES,
    N_ITEMS,
    model,
    model_of,
    mostly_slow,
    off_diagonal,
    parameters,
    positive_weights,
    scores,
    sides,
    transformed,
    truth_of,
)

TWO_SIDES = {"user_item_dot", "user_item_cosine"}


def test_every_measure_has_a_formula():
    # learned_diagonal learns its weights, and test_linear.py tests it on planted weights.
    without = set(fastcos.list_measures()) - set(CASES) - {"learned_diagonal"}
    assert not without, "add its formula to tests/oracles/measures.py and to CASES in cases.py"


@pytest.mark.parametrize("name", CASES)
def test_encoded_rows_score_by_the_formula(name):
    P, B = model_of(name)
    ours, truth = scores(name, P, B), truth_of(name, P, B)
    np.testing.assert_allclose(off_diagonal(name, ours), off_diagonal(name, truth), atol=1e-10)


@pytest.mark.parametrize("dtype", [pytest.param(np.float32, marks=pytest.mark.slow), np.float64])
@pytest.mark.parametrize("name", CASES)
def test_top_k_finds_the_best_by_the_formula(name, dtype):
    P, B = (rows.astype(dtype).astype(np.float64) for rows in model_of(name, 1))
    queries, items = (rows.astype(dtype) for rows in sides(name, P, B))
    truth = truth_of(name, P, B)
    if name not in TWO_SIDES:
        items = None
        np.fill_diagonal(truth, -np.inf)
    result = top_k(queries, items, 9, measure=get_measure(name, **parameters(name, P, B)))
    assert_best(result, truth, 9)


def assert_best(result, truth, k):
    """Check the order of the k best scores; only scores that differ by rounding may be swapped."""
    order = np.argsort(-truth, axis=1, kind="stable")[:, :k]
    best = np.take_along_axis(truth, order, axis=1)
    assert ((result.indices >= 0) == (best > -np.inf)).all()
    assert all(len(set(row[row >= 0])) == (row >= 0).sum() for row in result.indices)
    at_indices = np.where(
        result.indices < 0, -np.inf, np.take_along_axis(truth, result.indices, axis=1)
    )
    np.testing.assert_allclose(at_indices, best, rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(result.scores, best, rtol=1e-5, atol=1e-6)


def threshold_between(truth, share):
    """Return the middle of a gap between two neighbouring scores.

    Among the gaps near the quantile `share` of all scores, the function chooses the widest gap.
    """
    ascending = np.unique(truth[np.isfinite(truth)])
    at = int(share * len(ascending))
    gaps = np.diff(ascending[at : at + 20])
    first = at + int(gaps.argmax())
    return (ascending[first] + ascending[first + 1]) / 2


@pytest.mark.parametrize("name", CASES)
def test_every_entry_point_scores_by_the_formula(name, tmp_path):
    P, B = model_of(name, 1)
    queries, items = sides(name, P, B)
    truth = truth_of(name, P, B)
    measure = get_measure(name, **parameters(name, P, B))
    assert_best(top_k(queries[:3], items, 9, measure=measure), truth[:3], 9)
    index = SimilarityIndex(measure).fit(items)
    assert_best(index.search(queries[:2], 9), truth[:2], 9)
    assert_best(index.search(queries, 9), truth, 9)
    if measure.capabilities.blocks:
        np.save(tmp_path / "items.npy", items)
        mapped = np.load(tmp_path / "items.npy", mmap_mode="r")
        assert_best(top_k(queries, mapped, 9, measure=measure), truth, 9)
    for rows, block in similarity_blocks(queries, items, measure=measure, block=11):
        np.testing.assert_allclose(block, truth[rows], rtol=1e-5, atol=1e-6)
    least = threshold_between(truth, 0.9)
    pairs = neighbors_above(queries, items, min_score=least, measure=measure)
    expected = np.where(truth >= least, truth, 0)
    np.testing.assert_allclose(pairs.toarray(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", mostly_slow(CASES))
def test_filters_and_min_score_hold_for_every_measure(name):
    P, B = model_of(name, 1)
    queries, items = sides(name, P, B)
    truth = truth_of(name, P, B)
    random = np.random.default_rng(0)
    seen = random.random(truth.shape) < 0.3
    allowed = np.flatnonzero(random.random(len(items)) < 0.7)
    truth[seen] = -np.inf
    truth[:, np.setdiff1d(np.arange(len(items)), allowed)] = -np.inf
    least = threshold_between(truth, 0.8)
    truth[truth < least] = -np.inf
    filters = {"exclude": sp.csr_array(seen), "allowed": allowed, "min_score": least}
    measure = get_measure(name, **parameters(name, P, B))
    by_index = SimilarityIndex(measure).fit(items).search(queries, 9, **filters)
    for result in (top_k(queries, items, 9, measure=measure, **filters), by_index):
        assert_best(result, truth, 9)


@pytest.mark.parametrize("name", CASES)
def test_zero_rows_and_duplicates_have_finite_ordered_scores(name):
    P, B = model_of(name)
    B[3], B[11] = B[4], B[4]
    P[3], P[11] = P[4], P[4]
    if name != "weight_cosine":
        B[7], P[7] = 0, 0
    queries, items = sides(name, P, B)
    measure = get_measure(name, **parameters(name, P, B))
    for n in (len(queries), 6):
        result = top_k(queries[:n], items, 6, measure=measure)
        assert np.isfinite(result.scores).all()
        assert (np.diff(result.scores, axis=1) <= 0).all()
        # Duplicates have equal scores, so the lower number comes first.
        for row in result.indices.tolist():
            places = [row.index(j) for j in (3, 4, 11) if j in row]
            assert places == sorted(places)


@pytest.mark.parametrize("name", BASES)
def test_scores_are_bit_identical_on_any_number_of_threads(name):
    P, B = model_of(name)
    queries, items = sides(name, P, B)
    queries = np.concatenate([queries * (1 + step) for step in range(5)])
    measure = get_measure(name, **parameters(name, P, B))
    results = []
    for n_threads in (1, 3):
        fastcos.set_config(n_threads=n_threads)
        results.append(top_k(queries, items, 5, measure=measure))
    np.testing.assert_array_equal(results[0].indices, results[1].indices)
    np.testing.assert_array_equal(results[0].scores, results[1].scores)


@pytest.mark.parametrize("name", BASES)
def test_fit_returns_a_copy_and_changes_nothing(name):
    P, B = model_of(name)
    _, items = sides(name, P, B)
    measure = get_measure(name, **parameters(name, P, B))
    before = dict(vars(measure))
    first = measure.fit(items)
    encoded = np.asarray(first.encode_items(items)).copy()
    if name != "popularity_whitened_cosine":
        measure.fit(items[: len(items) // 2] * 2)
    assert vars(measure).keys() == before.keys()
    assert all(vars(measure)[key] is value for key, value in before.items())
    np.testing.assert_array_equal(first.encode_items(items), encoded)


def same_order(before, after):
    return np.array_equal(np.argsort(-before, axis=1), np.argsort(-after, axis=1))


@pytest.mark.parametrize(
    "cell", [pytest.param(c, marks=[pytest.mark.slow] * (c in "rRGt")) for c in "srRDGt"]
)
@pytest.mark.parametrize("name", BASES)
def test_declared_invariances_hold(name, cell):
    claim = getattr(type(get_measure(name, **parameters(name, *model()))).invariances, cell)
    changed = []
    for seed in range(2):
        P, B = model_of(name, seed)
        before = off_diagonal(name, scores(name, P, B))
        P2, B2 = transformed(cell, P, B, seed)
        if name == "weight_cosine" and ((P2[:N_ITEMS] * B2).sum(axis=1) <= 0).any():
            P2, B2 = positive_weights(P2, B2)
        after = off_diagonal(name, scores(name, P2, B2))
        same = np.allclose(before, after, rtol=1e-7, atol=1e-7)
        if claim == "y":
            assert same
        elif claim == "rank":
            assert not same
            assert same_order(before, after)
        else:
            changed.append(not same and not same_order(before, after))
    assert claim in {"y", "rank"} or all(changed)
