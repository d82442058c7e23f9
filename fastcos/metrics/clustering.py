"""Agreement of labels with the clusters that spherical k-means finds."""

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from fastcos import validation
from fastcos.metrics.labelled import labelled_rows, packed, products
from fastcos.validation import Floats, Integers

# Largest number of passes over the rows in one run of k-means, which begins at a random start. For
# well separated clusters, k-means converges after 5 to 15 passes.
_MAX_ITERATIONS = 100


class ClusteringScores(NamedTuple):
    """The agreement of a clustering with the labels.

    Attributes
    ----------
    ari, ami : float
        Adjusted Rand index (ARI) and adjusted mutual information (AMI), each of which is 0 on
        average for random clusters.
    n_left_out : int
        Number of zero rows.
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
    """Return how well the labels agree with clusters of spherical k-means (ARI and AMI).

    The number of clusters is the number of labels. The function runs spherical k-means from several
    random starts. It keeps the clustering with the largest sum of cosines between the rows and the
    centres of their clusters, and compares this clustering with the labels. The scores depend on
    the clustering method and on the seed, so report the scores of several seeds. Spherical k-means
    maximises the sum of |S_c| over the clusters, where S_c is the sum of the n_c unit rows of
    cluster c. For unit rows, the class ``KMeans`` of scikit-learn maximises another sum, the sum of
    |S_c|^2 / n_c. The rounding errors of ``KMeans`` also depend on the number of threads. The
    results of this function are bit-for-bit identical for any number of threads. For C clusters,
    the function takes O(n_starts iterations p k C) time and O(p (k + C)) memory.

    Sources: Dhillon and Modha, Machine Learning 42 (2001); Hubert and Arabie 1985; Vinh, Epps and
    Bailey, JMLR 11 (2010). ARI and AMI are computed by scikit-learn.

    Parameters
    ----------
    items, labels, n_threads
        As in :func:`pair_auc`.
    n_starts : int
        Number of random starts (k-means++ on cosine distance).
    random_state : int or Generator
        Seed of the random starts.

    Returns
    -------
    ClusteringScores

    Examples
    --------
    >>> from fastcos.metrics import clustering_scores
    >>> clustering_scores([[1, 0], [2, 0], [0, 1], [0, 3]], ["a", "a", "b", "b"]).ari
    1.0
    """
    from sklearn import metrics  # scikit-learn is imported here, because its import takes 0.5 s

    n_starts = validation.as_count("n_starts", n_starts)
    random = validation.as_generator("random_state", random_state)
    grouped = labelled_rows(items, labels)
    # The rows are clustered in the order of the input, so that the random starts do not depend on
    # the names of the labels.
    order = np.argsort(grouped.row_numbers)
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
    """Cluster unit rows by spherical k-means, and return the cluster number of every row.

    The function clusters the rows n_starts times, each time from a random start. It returns the
    clustering with the largest sum of cosines between the rows and the centres of their clusters.
    """
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
    """Draw some of the rows by k-means++, and return them as the initial centres.

    The probability of drawing a row is proportional to the row's cosine distance from the nearest
    of the centres that have already been drawn.
    """
    centres = [int(random.integers(len(rows)))]
    nearest = np.full(len(rows), np.inf)
    while len(centres) < n_clusters:
        cosines = products(rows, packed(rows[centres[-1:]]), 1, n_threads)[:, 0]
        np.minimum(nearest, np.maximum(1 - cosines, 0), out=nearest)
        cumulative = np.cumsum(nearest)
        number = np.searchsorted(cumulative, random.random() * cumulative[-1], side="right")
        centres.append(int(min(number, len(rows) - 1)))
    return rows[centres]


def _iterate(rows: Floats, centres: Floats, n_threads: int | None) -> tuple[float, Integers]:
    """Alternate between assigning rows to centres and computing new centres.

    The function stops when no row changes its cluster, or after _MAX_ITERATIONS passes. It returns
    the sum of the cosines between the rows and their centres, and the cluster of every row.
    """
    codes = np.full(len(rows), -1)
    total = 0.0
    for _ in range(_MAX_ITERATIONS):
        cosines = products(rows, packed(centres), len(centres), n_threads)
        new_codes = cosines.argmax(axis=1)
        centre_cosines = cosines[np.arange(len(rows)), new_codes]
        total = float(centre_cosines.sum())
        if (new_codes == codes).all():
            break
        codes = new_codes
        centres = _centres(rows, codes, centre_cosines, centres)
    return total, codes.astype(np.int64)


def _centres(rows: Floats, codes: Any, centre_cosines: Floats, centres: Floats) -> Floats:
    """Return the new centre of every cluster, which is the normalised sum of its rows.

    `centre_cosines` (n,) contains the cosine between each row and the centre of its cluster. The
    rows with the lowest cosines to their centres become the centres of empty clusters.
    """
    n = len(rows)
    members = sp.csc_array((np.ones(n), codes, np.arange(n + 1)), shape=(len(centres), n))
    sums = members @ rows
    norms = np.sqrt((sums * sums).sum(axis=1))
    new_centres = centres.copy()
    # If the rows of a cluster add up to zero, their sum has no direction, so the centre of the
    # cluster does not change.
    is_nonzero = norms > 0
    new_centres[is_nonzero] = sums[is_nonzero] / norms[is_nonzero, None]
    empty_clusters = np.flatnonzero(np.bincount(codes, minlength=len(centres)) == 0)
    far_rows = np.argsort(centre_cosines, kind="stable")[: len(empty_clusters)]
    new_centres[empty_clusters] = rows[far_rows]
    return new_centres
