"""Agreement of a clustering of the directions with the labels."""

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from fastcos import validation
from fastcos.metrics.labelled import labelled_rows, packed, products
from fastcos.validation import Floats, Integers

# passes of one start: planted clusters take 5 to 15 (tests/oracles/metrics.py), noise all of them
_MAX_ITERATIONS = 100


class ClusteringScores(NamedTuple):
    """Agreement of a clustering with the labels.

    Attributes
    ----------
    ari, ami : float
        Adjusted Rand index and adjusted mutual information: 0 on average for random clusters.
    n_left_out : int
        Zero rows.
    """

    ari: float
    ami: float
    n_left_out: int


def clustering_scores(
    items: Any,
    labels: Any,
    *,
    n_starts: int = 10,
    random_state: int = 0,
    n_threads: int | None = None,
) -> ClusteringScores:
    """ARI and AMI of a spherical k-means with as many clusters as labels.

    Scores the start with the largest sum of cosines to the centres. The scores depend on the
    clustering method and the seed: report them over seeds. scikit-learn's KMeans on unit rows
    maximises the sum of |S_c|^2 / n_c instead of |S_c|, and its bits depend on the number of
    threads; these do not. O(n_starts iterations p k C) time, O(p (k + C)) memory.

    Sources: Dhillon and Modha, Machine Learning 42 (2001); Hubert and Arabie 1985; Vinh, Epps and
    Bailey, JMLR 11 (2010). The scores are scikit-learn's.

    Parameters
    ----------
    items, labels, n_threads
        As in :func:`pair_auc`.
    n_starts : int
        Random starts (k-means++ on cosine distance).
    random_state : int or Generator
        Seed of the starts.

    Returns
    -------
    ClusteringScores

    Examples
    --------
    >>> from fastcos.metrics import clustering_scores
    >>> clustering_scores([[1, 0], [2, 0], [0, 1], [0, 3]], ["a", "a", "b", "b"]).ari
    1.0
    """
    from sklearn import metrics  # not at the top: its import takes 0.5 s

    n_starts = validation.as_count("n_starts", n_starts)
    random = validation.as_generator("random_state", random_state)
    grouped = labelled_rows(items, labels)
    # in input order: the starts depend on the rows, not on the names of the labels
    order = np.argsort(grouped.places)
    rows, truth = np.ascontiguousarray(grouped.rows[order]), grouped.codes[order]
    clusters = spherical_kmeans(
        rows, len(grouped.starts) - 1, n_starts=n_starts, random=random, n_threads=n_threads
    )
    return ClusteringScores(
        float(metrics.adjusted_rand_score(truth, clusters)),
        float(metrics.adjusted_mutual_info_score(truth, clusters)),
        grouped.n_left_out,
    )


def spherical_kmeans(
    rows: Floats,
    n_clusters: int,
    *,
    n_starts: int,
    random: np.random.Generator,
    n_threads: int | None = None,
) -> Integers:
    """Cluster of every unit row, from the start with the largest sum of cosines to the centres."""
    best_total, best = -np.inf, np.zeros(len(rows), np.int64)
    for _ in range(n_starts):
        centres = _far_rows(rows, n_clusters, random, n_threads)
        total, codes = _iterate(rows, centres, n_threads)
        if total > best_total:
            best_total, best = total, codes
    return best


def _far_rows(
    rows: Floats, n_clusters: int, random: np.random.Generator, n_threads: int | None
) -> Floats:
    """k-means++: draw each next centre by its cosine distance to the nearest centre so far."""
    chosen = [int(random.integers(len(rows)))]
    nearest = np.full(len(rows), np.inf)
    while len(chosen) < n_clusters:
        cosines = products(rows, packed(rows[chosen[-1:]]), 1, n_threads)[:, 0]
        np.minimum(nearest, np.maximum(1 - cosines, 0), out=nearest)
        cumulative = np.cumsum(nearest)
        drawn = np.searchsorted(cumulative, random.random() * cumulative[-1], side="right")
        chosen.append(int(min(drawn, len(rows) - 1)))
    return rows[chosen]


def _iterate(rows: Floats, centres: Floats, n_threads: int | None) -> tuple[float, Integers]:
    """Assign and average until no row moves; return the sum of cosines and the clusters."""
    codes = np.full(len(rows), -1)
    total = 0.0
    for _ in range(_MAX_ITERATIONS):
        cosines = products(rows, packed(centres), len(centres), n_threads)
        moved = cosines.argmax(axis=1)
        reached = cosines[np.arange(len(rows)), moved]
        total = float(reached.sum())
        if (moved == codes).all():
            break
        codes = moved
        centres = _centres(rows, codes, reached, centres)
    return total, codes.astype(np.int64)


def _centres(rows: Floats, codes: Any, reached: Floats, centres: Floats) -> Floats:
    """Directions of the clusters' sums; an empty cluster gets the row with the lowest cosine."""
    n = len(rows)
    members = sp.csc_array((np.ones(n), codes, np.arange(n + 1)), shape=(len(centres), n))
    sums = members @ rows
    norms = np.sqrt((sums * sums).sum(axis=1))
    moved = centres.copy()
    # a sum of zero has no direction: its centre stays
    non_zero = norms > 0
    moved[non_zero] = sums[non_zero] / norms[non_zero, None]
    empty = np.flatnonzero(np.bincount(codes, minlength=len(centres)) == 0)
    moved[empty] = rows[np.argsort(reached, kind="stable")[: len(empty)]]
    return moved
