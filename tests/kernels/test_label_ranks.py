"""Scores by label ranks, and the votes of items and of users, are the same as in plain Python."""

import numpy as np
import pytest

from fastcos import parallel
from fastcos.kernels import knn_vote, label_ranks, records
from tests.kernels.inputs import frozen


def score_table(seed, n, m, levels):
    """Return scores with `levels` different values; if there are few levels, many are equal."""
    return np.random.default_rng(seed).integers(0, levels, (n, m)).astype(np.float64)


def by_loops(line, own, codes, k):
    """Use loops to return the AUC, the average precision at R, and the label that wins the vote.

    If two columns have equal scores, the column with the lower number ranks first.
    """
    others = [j for j in range(len(line)) if j != own]
    ranked = sorted(others, key=lambda j: (-line[j], j))
    same = [j for j in others if codes[j] == codes[own]]
    rest = [j for j in others if codes[j] != codes[own]]
    wins = sum((line[i] > line[j]) + 0.5 * (line[i] == line[j]) for i in same for j in rest)
    hits, total = 0, 0.0
    for rank, j in enumerate(ranked[: len(same)], 1):
        if codes[j] == codes[own]:
            hits += 1
            total += hits / rank
    votes = [codes[j] for j in ranked[:k]]
    voted = max(votes, key=lambda code: (votes.count(code), -votes.index(code)))
    return wins / (len(same) * len(rest)), total / len(same), voted


@pytest.mark.parametrize("levels", [2, 5, 10_000])
@pytest.mark.parametrize(
    ("m", "n_codes", "k"),
    [(4, 2, 1), (23, 3, 5), pytest.param(60, 4, 10, marks=pytest.mark.slow)],
)
def test_score_label_ranks_equals_definition(levels, m, n_codes, k):
    codes = np.arange(m) % n_codes
    np.random.default_rng(m).shuffle(codes)
    owns = np.arange(m)
    table = score_table(levels, m, m, levels)
    auc, precision = parallel.unfilled(m, np.float64), parallel.unfilled(m, np.float64)
    voted = parallel.unfilled(m, np.int64)
    sizes = np.bincount(codes)
    labels = records.LabelCodes(*frozen(codes, sizes))
    ranks = records.LabelRanks(auc, precision, voted)
    label_ranks.score_label_ranks(0, m, *frozen(table, owns), labels, k, ranks)
    truth = [by_loops(table[i], i, codes, k) for i in range(m)]
    np.testing.assert_allclose(auc, [one[0] for one in truth], rtol=1e-13)
    np.testing.assert_allclose(precision, [one[1] for one in truth], rtol=1e-13)
    assert voted.tolist() == [one[2] for one in truth]


@pytest.mark.parametrize("k", [1, 3, 7])
def test_recommend_by_items_equals_dictionary(k):
    random = np.random.default_rng(k)
    p, width = 12, 4
    neighbors = np.stack([random.permutation(p)[:width] for _ in range(p)])
    neighbors[3, 2:] = -1
    weights = np.array([8.0, 4.0, 2.0, 1.0])
    seen = random.random((9, p)) < 0.3
    seen[0] = True
    indptr = np.concatenate([[0], np.cumsum(seen.sum(axis=1))])
    indices = (np.flatnonzero(seen.ravel()) % p).astype(np.int32)
    best = parallel.unfilled((9, k), np.int64)
    items_of_users = records.Csr(*frozen(indptr, indices), None)
    knn_vote.recommend_by_items(0, 9, items_of_users, *frozen(neighbors, weights), best)
    for u in range(9):
        votes = dict.fromkeys(range(p), 0.0)
        for item in np.flatnonzero(seen[u]):
            for rank in range(width):
                if neighbors[item, rank] >= 0:
                    votes[neighbors[item, rank]] += weights[rank]
        assert best[u].tolist() == most_voted(votes, seen[u], k)


def most_voted(votes, seen, k):
    expected = sorted(
        (j for j in votes if votes[j] > 0 and not seen[j]), key=lambda j: (-votes[j], j)
    )
    return expected[:k] + [-1] * (k - len(expected))


@pytest.mark.parametrize("k", [1, 3, 7])
def test_recommend_by_users_equals_dictionary(k):
    random = np.random.default_rng(k)
    n, p = 9, 12
    seen = random.random((n, p)) < 0.3
    users = np.array([0, 4, 5])
    neighbors = np.stack([random.permutation(n)[:4] for _ in users])
    neighbors[1, 2:] = -1
    weights = np.array([8.0, 4.0, 2.0, 1.0])
    indptr = np.concatenate([[0], np.cumsum(seen.sum(axis=1))])
    indices = (np.flatnonzero(seen.ravel()) % p).astype(np.int32)
    best = parallel.unfilled((3, k), np.int64)
    items_of_users = records.Csr(*frozen(indptr, indices), None)
    inputs = (*frozen(users, neighbors, weights), items_of_users)
    knn_vote.recommend_by_users(0, 3, *inputs, p, best)
    for q, user in enumerate(users):
        votes = dict.fromkeys(range(p), 0.0)
        for weight, other in zip(weights, neighbors[q], strict=True):
            for item in np.flatnonzero(seen[other]) if other >= 0 else ():
                votes[item] += weight
        assert best[q].tolist() == most_voted(votes, seen[user], k)
