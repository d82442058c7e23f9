"""``community_detection`` of sentence-transformers, with exact cosines and without torch."""

from typing import Any

import numpy as np

from fastcos import validation
from fastcos.search.range_search import neighbors_above
from fastcos.search.request import Threshold, as_threshold
from fastcos.similarity.base import get_measure


def community_detection(
    embeddings: Any,
    threshold: float | Threshold = 0.75,
    min_community_size: int = 10,
    batch_size: int = 1024,
    show_progress_bar: bool = False,
) -> list[list[int]]:
    """Find disjoint groups of similar rows, like ``community_detection`` of sentence-transformers.

    The function forms communities from neighbourhoods. The neighbourhood of a row consists of all
    rows whose cosine with this row is at least ``threshold``; the row itself is the centre of the
    neighbourhood. The neighbourhoods are considered in turn, the largest first. A neighbourhood is
    skipped if an earlier community already contains its centre. A neighbourhood that is not skipped
    forms a new community, without the rows that belong to an earlier community. A new community
    with fewer than ``min_community_size`` members is dropped. Every member of a community is
    similar to the centre of the community. Communities differ from the groups of
    :func:`fastcos.search.near_duplicates`: two rows of such a group may be connected only by a
    chain of similar rows.

    The result is exact: cosines are computed in float64 from the original embeddings and compared
    in float32. The function computes all cosines twice, which takes O(m^2 d) time.

    Source: sentence-transformers 6.2.

    Parameters
    ----------
    embeddings : array_like (m, d)
        One row per item. The embeddings may also be tensors in main memory or lists of vectors.
    threshold : float or Calibration, default 0.75
        Two rows are similar if their cosine is at least this number. If you pass a Calibration, the
        threshold of the calibration is used, as in :func:`fastcos.neighbors_above`.
    min_community_size : int, default 10
        The smallest number of members of a community; smaller communities are left out.
    batch_size, show_progress_bar
        These arguments are accepted for compatibility with sentence-transformers and have no
        effect. The setting ``working_memory`` determines how many rows are compared at once.

    Returns
    -------
    list of list of int
        The row numbers of the members of each community. The largest community comes first, and
        communities of equal size are in the order in which they were formed. The first member of a
        community is its centre. The other members are ordered by descending cosine with the centre,
        and members with equal cosines by ascending row number.

    Raises
    ------
    ValueError
        There are more pairs of similar rows than fit into ``working_memory``, or the rows contain
        NaN or infinity.

    Examples
    --------
    >>> from fastcos.search import community_detection
    >>> rows = [[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.8, 0.3], [0.1, 1.0]]
    >>> community_detection(rows, 0.9, min_community_size=2)
    [[0, 1, 3], [2, 4]]
    """
    X = validation.as_rows("embeddings", embeddings)
    min_size = validation.as_count("min_community_size", min_community_size)
    validation.as_count("batch_size", batch_size)
    validation.as_flag("show_progress_bar", show_progress_bar)
    min_cosine = as_threshold("threshold", threshold, get_measure("cosine"))
    pairs = neighbors_above(X, min_score=min_cosine)
    rows = np.repeat(np.arange(len(X)), np.diff(pairs.indptr))
    # Every nonzero row is in its own neighbourhood. The cosine of a zero row with itself is 0, so a
    # zero row is in its own neighbourhood only if min_cosine is at most 0.
    with_itself = np.flatnonzero(X.any(axis=1) | (min_cosine <= 0))
    rows = np.concatenate([with_itself, rows])
    members = np.concatenate([with_itself, pairs.indices])
    scores = np.concatenate([np.full(len(with_itself), np.inf), pairs.data])
    members = members[np.lexsort((members, -scores, rows))]
    sizes = np.bincount(rows, minlength=len(X))
    starts = np.concatenate([[0], np.cumsum(sizes)])
    is_free = np.ones(len(X), np.bool_)
    communities = []
    for center in np.argsort(-sizes, kind="stable").tolist():
        if sizes[center] < min_size:
            break
        if not is_free[center]:
            continue
        candidates = members[starts[center] : starts[center + 1]]
        community = candidates[is_free[candidates]]
        if len(community) >= min_size:
            communities.append(community.tolist())
            is_free[community] = False
    return sorted(communities, key=len, reverse=True)
