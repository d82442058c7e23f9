"""The scores of recommendation lists are the same as in a Python loop, ranx and scikit-learn.

The scores measure how well the lists recover the held-out items.
"""

import functools

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.metrics import average_precision_score, ndcg_score

from fastcos import metrics
from tests.oracles import metrics as oracle

SCORES = {
    "precision_at_k": metrics.precision_at_k,
    "recall_at_k": metrics.recall_at_k,
    "hit_rate_at_k": metrics.hit_rate_at_k,
    "mrr_at_k": metrics.mrr_at_k,
    "map_at_k": metrics.map_at_k,
    "ndcg_at_k": metrics.ndcg_at_k,
    "graded_ndcg": lambda *args, k: metrics.ndcg_at_k(*args, k=k, graded=True),
}
# The names of these scores in the package ranx. The recall is left out, because ranx and fastcos
# divide it by different numbers.
RANX = {
    "precision_at_k": "precision", "hit_rate_at_k": "hit_rate", "mrr_at_k": "mrr",
    "map_at_k": "map", "graded_ndcg": "ndcg",
}  # fmt: skip


def random_case(seed):
    """Return recommendation lists, graded held-out items, and k.

    The lists may contain -1 at any place, and some users may have no held-out items.
    """
    random = np.random.default_rng(seed)
    n, p = random.integers(1, 8), random.integers(2, 20)
    held = random.integers(1, 6, (n, p)) * (random.random((n, p)) < random.uniform(0.05, 0.6))
    held[0, random.integers(p)] = 3
    lists = np.stack([random.permutation(p) for _ in range(n)])[:, : random.integers(1, p + 1)]
    lists[random.random(lists.shape) < random.choice([0, 0.3, 1], p=[0.5, 0.45, 0.05])] = -1
    return lists, sp.csr_array(held.astype(float)), int(random.integers(1, lists.shape[1] + 1))


def users_of(held):
    """Return a pair for each user with held-out items: the user, and the gains of these items."""
    rows = held.toarray()
    return [(u, {int(i): row[i] for i in np.flatnonzero(row)}) for u, row in enumerate(rows)
            if row.any()]  # fmt: skip


@functools.cache
def scores_of_a_loop(seed):
    """Return all scores of each user of a random case."""
    lists, held, k = random_case(seed)
    return [oracle.ranking_scores(lists[u].tolist(), own, k) for u, own in users_of(held)]


@pytest.mark.parametrize("name", SCORES)
def test_ranking_scores_equal_a_loop(name):
    for seed in range(80):
        lists, held, k = random_case(seed)
        truth = np.mean([scores[name] for scores in scores_of_a_loop(seed)])
        assert SCORES[name](lists, held, k=k) == pytest.approx(truth, abs=1e-12), seed


@pytest.mark.filterwarnings("ignore")  # ranx compiles with warnings
def test_ranking_scores_equal_ranx():
    ranx = pytest.importorskip("ranx")
    for seed in range(200):
        lists, held, k = random_case(seed)
        relevant = {str(u): {str(i): int(gain) for i, gain in own.items()}
                    for u, own in users_of(held)}  # fmt: skip
        run = {
            user: {str(item) if item >= 0 else f"none {rank}": float(-rank)
                   for rank, item in enumerate(lists[int(user)])}
            for user in relevant
        }  # fmt: skip
        theirs = ranx.evaluate(
            ranx.Qrels(relevant), ranx.Run(run), [f"{name}@{k}" for name in RANX.values()]
        )
        for name, of_ranx in RANX.items():
            ours = SCORES[name](lists, held, k=k)
            assert ours == pytest.approx(theirs[f"{of_ranx}@{k}"], abs=1e-12), (seed, name)


@pytest.mark.parametrize("seeds", [range(40), pytest.param(range(40, 200), marks=pytest.mark.slow)])
def test_ranking_scores_of_all_items_equal_scikit_learn(seeds):
    for seed in seeds:
        random = np.random.default_rng(seed)
        p, k = random.integers(2, 20), int(random.integers(1, 12))
        held = random.integers(1, 6, (4, p)) * (random.random((4, p)) < 0.3)
        held[:, 0] = 1
        lists = np.stack([random.permutation(p) for _ in range(4)])
        scores = np.empty((4, p))
        np.put_along_axis(scores, lists, -np.arange(p)[None], axis=1)
        sparse, k = sp.csr_array(held.astype(float)), min(k, p)
        graded = metrics.ndcg_at_k(lists, sparse, k=k, graded=True)
        assert graded == pytest.approx(ndcg_score(held, scores, k=k), abs=1e-12)
        precisions = [average_precision_score(a > 0, b) for a, b in zip(held, scores, strict=True)]
        assert metrics.map_at_k(lists, sparse) == pytest.approx(np.mean(precisions), abs=1e-12)


def test_item_minus_one_finds_nothing():
    held = sp.csr_array(np.array([[1.0, 0.0], [0.0, 1.0]]))
    for score in SCORES.values():
        assert score([[-1, -1], [-1, -1]], held, k=2) == 0
    # it occupies its rank
    assert metrics.mrr_at_k([[-1, 0], [1, -1]], held) == 0.75
    purity = metrics.neighbor_purity([[1, -1], [0, -1], [-1, -1]], ["a", "a", "b"])
    assert purity.value == 2 / 6
    assert metrics.hubness([[1, -1], [1, -1]]) == metrics.hubness([[1], [1]])
    with pytest.raises(ValueError, match="neighbors must have at least 1 item, got 0"):
        metrics.hubness([[-1], [-1]])


def test_graded_gains_must_be_positive():
    with pytest.raises(ValueError, match="held_out must hold gains greater than 0"):
        metrics.ndcg_at_k([[0]], sp.csr_array(np.array([[1.0, -2.0]])), graded=True)
    # The signs of the values do not matter if gains are not graded.
    assert metrics.ndcg_at_k([[1]], sp.csr_array(np.array([[1.0, -2.0]]))) == 1


def test_ndcg_does_not_depend_on_the_unit_of_gains():
    lists, held, k = random_case(3)
    score = metrics.ndcg_at_k(lists, held, k=k, graded=True)
    for unit in (1e-3, 1e3):
        scaled = metrics.ndcg_at_k(lists, held * unit, k=k, graded=True)
        assert scaled == pytest.approx(score, abs=1e-12)


def test_users_without_held_out_items_are_skipped():
    held = sp.csr_array(np.array([[0.0, 0.0], [0.0, 1.0]]))
    with np.errstate(all="raise"):
        for score in SCORES.values():
            assert score([[0], [1]], held, k=1) == 1
    with pytest.raises(ValueError, match="held_out must have at least 1 interaction, got 0"):
        metrics.recall_at_k([[0], [1]], sp.csr_array((2, 2)))


def test_ranking_scores_refuse_lists_of_other_users_or_items():
    held = sp.csr_array(np.array([[1.0, 0.0], [0.0, 1.0]]))
    with pytest.raises(ValueError, match="recommended must hold item numbers from -1 to 1, got 2"):
        metrics.recall_at_k([[2], [1]], held)
    with pytest.raises(ValueError, match="recommended must be as long as held_out"):
        metrics.ndcg_at_k([[1]], held)
