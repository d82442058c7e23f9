"""Reference implementations of the metrics, which do not use fastcos, and difficult inputs."""

import math

import numpy as np


def unit(items):
    out = []
    for row in np.asarray(items, dtype=float).tolist():
        length = math.sqrt(math.fsum(x * x for x in row))
        out.append([x / length if length else 0.0 for x in row])
    return np.array(out)


def cosines(items):
    """Return rounded cosines, so that rounding errors do not break ties."""
    rows = unit(items)
    return np.round(rows @ rows.T, 12)


def pair_scores(items, labels):
    """Return the cosines of all pairs of non-zero rows, and whether the two rows share a label."""
    keep = np.asarray(items).any(axis=1)
    table, labels = cosines(np.asarray(items)[keep]), np.asarray(labels)[keep]
    i, j = np.triu_indices(len(table), 1)
    return table[i, j], labels[i] == labels[j]


def auc(scores, same):
    """Return P(same > other) + P(same = other) / 2, by counting."""
    others = np.sort(scores[~same])
    wins = sum(np.searchsorted(others, scores[same], side).sum() for side in ("left", "right"))
    return wins / (2 * same.sum() * (~same).sum())


def ranked(line, own):
    """Return all rows except `own`, by descending score, then by index."""
    return sorted((j for j in range(len(line)) if j != own), key=lambda j: (-line[j], j))


def map_at_r(items, labels):
    table = cosines(items)
    values = []
    for i, row in enumerate(items):
        size = int(np.sum(labels == labels[i]))
        if size < 2 or not np.any(row):
            continue
        hits, total = 0, 0.0
        for rank, j in enumerate(ranked(table[i], i)[: size - 1], 1):
            if labels[j] == labels[i]:
                hits += 1
                total += hits / rank
        values.append(total / (size - 1))
    return float(np.mean(values))


def blobs(seed, n=60, d=7, n_labels=4, noise=1.5):
    """Return overlapping clusters in random order; one label is rarer than the others."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, n_labels, n)
    labels[labels == n_labels - 1] = np.where(
        random.random((labels == n_labels - 1).sum()) < 0.5, 0, n_labels - 1
    )
    centres = random.standard_normal((n_labels, d)) * 2
    return centres[labels] + noise * random.standard_normal((n, d)), labels


def signs(seed, n=50):
    """Return rows of 16 signs, and labels.

    The cosines of the rows are exact multiples of 1/8, so most cosines are equal to other cosines.
    """
    random = np.random.default_rng(seed)
    labels = random.integers(0, 3, n)
    rows = random.choice([-1.0, 1.0], (n, 16))
    rows[:, :3] = np.where(labels[:, None] == np.arange(3), 1.0, -1.0)
    return rows, labels


def small_integers(seed, n=48):
    """Return rows of -1, 0 and 1, with ties, duplicates, multiples and zero rows."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, 3, n)
    rows = random.integers(-1, 2, (n, 4)).astype(float)
    rows[::7] = 0
    rows[1::5] = 3 * rows[2]
    return rows, labels


def ranking_scores(recommended, relevant, k):
    """Return the scores of one user's list; `relevant` maps held-out items to their gains.

    A negative number in the list is not an item. The user has at least one held-out item.
    """
    is_hit = [item in relevant for item in recommended[:k]]
    ranks = [rank for rank, hit in enumerate(is_hit, 1) if hit]

    def dcg(gains):
        return math.fsum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains, 1))

    best = sorted(relevant.values(), reverse=True)[:k]
    gains = [relevant.get(item, 0.0) for item in recommended[:k]]
    return {
        "precision_at_k": len(ranks) / k,
        "recall_at_k": len(ranks) / min(k, len(relevant)),
        "hit_rate_at_k": float(bool(ranks)),
        "mrr_at_k": 1 / ranks[0] if ranks else 0.0,
        "map_at_k": math.fsum(n / rank for n, rank in enumerate(ranks, 1)) / len(relevant),
        "ndcg_at_k": dcg(is_hit) / dcg([1.0] * len(best)),
        "graded_ndcg": dcg(gains) / dcg(best),
    }
