"""Retrieval metrics: neighbours with the same label, and held-out items in recommendations."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from fastcos import parallel, validation
from fastcos.kernels import pair_reductions
from fastcos.linalg.csr import as_interactions
from fastcos.metrics.labelled import (
    Score,
    as_neighbor_lists,
    as_shared_labels,
    check_same_length,
    packed,
    unit_rows,
)
from fastcos.validation import Floats, Integers


def map_at_r(items: Any, labels: Any, *, n_threads: int | None = None) -> Score:
    """Mean over items of (1/R) Σ_{i <= R} rel(i) P(i), where R other items have the same label.

    The list of every item ranks all other rows by descending cosine and, for equal cosines, by
    ascending row number; the cosine of a zero row is 0. rel(i) is 1 if the row at rank i has the
    label of the item, and otherwise 0; P(i) is the mean of rel over the first i ranks. The
    denominator is R, not the number of hits. The function takes O(p p k) time and O(p k) memory.
    Results are bit-for-bit identical for any number of threads.

    Source: Musgrave, Belongie and Lim, ECCV 2020, arXiv:2003.08505, section 3.2.

    Parameters
    ----------
    items, labels, n_threads
        As in :func:`pair_auc`.

    Returns
    -------
    Score
        The value is from 0 to 1. Zero rows, and rows whose label no other row has, are not used as
        queries.

    Examples
    --------
    >>> from fastcos.metrics import map_at_r
    >>> map_at_r([[1, 0], [2, 0], [0, 1], [0, 3], [1, 1]], ["a", "a", "b", "b", "b"])
    Score(value=0.8, n_left_out=0)
    """
    item_rows = validation.as_rows("items", items)
    codes = validation.as_labels("labels", labels, len(item_rows))
    is_nonzero = item_rows.any(axis=1)
    as_shared_labels(codes[is_nonzero])
    sizes = np.bincount(codes)
    queries = np.flatnonzero(is_nonzero & (sizes[codes] > 1))
    rows = validation.read_only(unit_rows(item_rows))
    panels, counts = packed(rows, n_threads), validation.read_only(sizes.astype(np.int64))
    precisions = parallel.unfilled(len(queries), np.float64)
    parallel.run(
        pair_reductions.average_precisions_at_r, parallel.row_blocks(len(queries), 48),
        validation.read_only(queries), rows, panels, codes, counts, precisions,
        n_threads=n_threads,
    )  # fmt: skip
    return Score(float(precisions.mean()), len(item_rows) - len(queries))


class NeighborPurity(NamedTuple):
    """Precision at k of neighbour lists, and the precision of random neighbours for comparison.

    Attributes
    ----------
    value : float
        Mean over queries of the share of neighbours with the label of the query.
    baseline : float
        The value that random neighbours would have: the share of ordered pairs of items that have
        the same label.
    """

    value: float
    baseline: float


def neighbor_purity(
    neighbors: Any, labels: Any, *, query_labels: Any = None, k: int | None = None
) -> NeighborPurity:
    """Precision at k: the share of the k nearest items that have the label of the query.

    For most embeddings with clear clusters, the share is near 1; in this case, :func:`map_at_r`
    shows the differences between embeddings better.

    Parameters
    ----------
    neighbors : array_like (n, K), int
        Items by descending score, as ``top_k`` returns them. -1 pads short lists and counts as a
        neighbour without a label, so that short lists lower the precision.
    labels : array_like (p,), int or str
        The label of every item.
    query_labels : array_like (n,), int or str, optional
        The label of the query of every list. Default: the queries are the items, in their order.
    k : int, optional
        Number of columns to use. Default: all.

    Returns
    -------
    NeighborPurity

    Examples
    --------
    >>> from fastcos.metrics import neighbor_purity
    >>> neighbor_purity([[1], [0], [1], [2]], ["a", "a", "b", "b"])
    NeighborPurity(value=0.75, baseline=0.3333333333333333)
    """
    codes = validation.as_labels("labels", labels, np.size(labels))
    lists = as_neighbor_lists("neighbors", neighbors, k, n_items=len(codes), padded=True)
    if query_labels is None:
        check_same_length("labels", len(codes), "neighbors", len(lists))
        queries = codes
    else:
        queries = _codes_of(query_labels, np.asarray(labels), len(lists))
    sizes = np.bincount(codes).astype(np.float64)
    baseline = (sizes * (sizes - 1)).sum() / (len(codes) * (len(codes) - 1.0))
    is_same = (codes[lists] == queries[:, None]) & (lists >= 0)
    return NeighborPurity(float(is_same.mean()), float(baseline))


def _codes_of(query_labels: Any, item_labels: npt.NDArray[Any], length: int) -> Integers:
    """Return the codes of query labels (length,), numbered as as_labels numbers item_labels."""
    array = np.asarray(query_labels)
    validation.check_shape("query_labels", array.shape, (length,))
    if item_labels.dtype.kind == "O":
        item_labels, array = item_labels.astype(str), array.astype(str)
    values = np.unique(item_labels)
    codes = np.minimum(np.searchsorted(values, array), len(values) - 1)
    unknown = np.flatnonzero(values[codes] != array)
    if len(unknown):
        first = array[unknown].tolist()[0]
        raise ValueError(
            f"query_labels must be among the labels, got {validation.format_value(first)}"
        )
    return codes.astype(np.int64)


def precision_at_k(recommended: Any, held_out: Any, *, k: int | None = None) -> float:
    """Mean over users of the share of the k recommended items that were held out, from 0 to 1.

    The denominator is k, even if a list contains fewer items or fewer items were held out.

    Parameters
    ----------
    recommended, held_out, k
        As in :func:`recall_at_k`.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> from fastcos.metrics import precision_at_k
    >>> precision_at_k([[0, 2], [1, 0]], sp.csr_array(np.array([[0, 0, 1], [0, 1, 1]])))
    0.5
    """
    hits, held_out_csr = _hits(recommended, held_out, k)
    return _mean_over_users(hits.mean(axis=1), held_out_csr)


def recall_at_k(recommended: Any, held_out: Any, *, k: int | None = None) -> float:
    """Mean over users of hits / min(k, number of held-out items), from 0 to 1.

    A hit is a held-out item among the k recommended items. Because of the minimum, the recall can
    reach 1 for a user with more than k held-out items. Other libraries divide by the number of
    held-out items, so that the recall of such a user is always below 1.

    Parameters
    ----------
    recommended : array_like (n, K), int
        Items for every user, in descending order of relevance. -1 pads short lists; it is never a
        hit, but it occupies a rank.
    held_out : sparse (n, p)
        The non-zeros of a row are the relevant items of a user. Users without relevant items are
        left out of the mean.
    k : int, optional
        Number of columns to use. Default: all.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> from fastcos.metrics import recall_at_k
    >>> recall_at_k([[0, 2], [1, 0]], sp.csr_array(np.array([[0, 0, 1], [0, 1, 1]])))
    0.75
    """
    hits, held_out_csr = _hits(recommended, held_out, k)
    return _mean_over_users(recalls_at_k(hits, held_out_csr), held_out_csr)


def hit_rate_at_k(recommended: Any, held_out: Any, *, k: int | None = None) -> float:
    """Share of users with at least one held-out item among the k recommended items.

    Parameters
    ----------
    recommended, held_out, k
        As in :func:`recall_at_k`.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> from fastcos.metrics import hit_rate_at_k
    >>> hit_rate_at_k([[0, 1], [1, 0]], sp.csr_array(np.array([[0, 0, 1], [0, 1, 1]])))
    0.5
    """
    hits, held_out_csr = _hits(recommended, held_out, k)
    return _mean_over_users(hits.max(axis=1), held_out_csr)


def mrr_at_k(recommended: Any, held_out: Any, *, k: int | None = None) -> float:
    """Mean reciprocal rank (MRR): mean over users of 1 / rank of the first held-out item.

    The reciprocal rank of a user is 0 if none of the k recommended items was held out.

    Source: Voorhees, TREC-8 (1999).

    Parameters
    ----------
    recommended, held_out, k
        As in :func:`recall_at_k`.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> from fastcos.metrics import mrr_at_k
    >>> mrr_at_k([[0, 2], [1, 0]], sp.csr_array(np.array([[0, 0, 1], [0, 1, 1]])))
    0.75
    """
    hits, held_out_csr = _hits(recommended, held_out, k)
    reciprocal_ranks = 1 / np.arange(1, hits.shape[1] + 1)
    return _mean_over_users((hits * reciprocal_ranks).max(axis=1), held_out_csr)


def map_at_k(recommended: Any, held_out: Any, *, k: int | None = None) -> float:
    """Mean average precision (MAP): mean over users of (1/R) Σ P(i) over hits at ranks i <= k.

    A hit is a held-out item of the user, and P(i) is the share of hits among the first i items. R
    is the number of all held-out items of the user, as in trec_eval and ranx; Kaggle's variant
    divides by min(k, R).

    Source: Buckley and Voorhees, SIGIR 2000.

    Parameters
    ----------
    recommended, held_out, k
        As in :func:`recall_at_k`.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> from fastcos.metrics import map_at_k
    >>> map_at_k([[0, 2], [1, 0]], sp.csr_array(np.array([[0, 0, 1], [0, 1, 1]])))
    0.5
    """
    hits, held_out_csr = _hits(recommended, held_out, k)
    precisions = np.cumsum(hits, axis=1) / np.arange(1, hits.shape[1] + 1)
    n_held = np.maximum(np.diff(held_out_csr.indptr), 1)
    return _mean_over_users((hits * precisions).sum(axis=1) / n_held, held_out_csr)


def ndcg_at_k(
    recommended: Any, held_out: Any, *, k: int | None = None, graded: bool = False
) -> float:
    """NDCG: mean over users of Σ_{i <= k} gain(i) / log2(i + 1), divided by its largest value.

    NDCG lies between 0 and 1. gain(i) is the gain of the item at rank i. The gain of a held-out
    item is 1 or, if graded is true, its value in held_out; the gain of every other item is 0. The
    sum of a user is largest if the list starts with the held-out items in the order of their gains.

    Source: Järvelin and Kekäläinen, ACM TOIS 20 (2002). For the gains 2^value - 1 of Burges et al.
    (ICML 2005), pass these gains as the values.

    Parameters
    ----------
    recommended, held_out, k
        As in :func:`recall_at_k`.
    graded : bool, default False
        Whether the values of held_out, which must then be greater than 0, are the gains.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> from fastcos.metrics import ndcg_at_k
    >>> held_out = sp.csr_array(np.array([[0, 0, 1], [0, 1, 5]]))
    >>> round(ndcg_at_k([[0, 2], [1, 2]], held_out), 3)
    0.815
    >>> round(ndcg_at_k([[0, 2], [1, 2]], held_out, graded=True), 3)
    0.684
    """
    lists, held_out_csr = _validated(recommended, held_out, k)
    if validation.as_flag("graded", graded) and held_out_csr.data.min() < 0:
        rule = "hold gains greater than 0 if graded=True"
        raise ValueError(f"held_out must {rule}, got {held_out_csr.data.min():g}")
    gains = gains_of(lists, held_out_csr, graded=graded)
    return _mean_over_users(ndcgs_at_k(gains, held_out_csr, graded=graded), held_out_csr)


def recalls_at_k(hits: Floats, held_out: sp.csr_array) -> Floats:
    """Return the recall (n,) of every user, from hits (n, k) of 0 and 1.

    The recall of a user without held-out items is 0.
    """
    n_reachable = np.clip(np.diff(held_out.indptr), 1, hits.shape[1])
    return hits.sum(axis=1) / n_reachable


def ndcgs_at_k(gains: Floats, held_out: sp.csr_array, *, graded: bool = False) -> Floats:
    """Return the NDCG (n,) of every user, from gains (n, k).

    The NDCG of a user without held-out items is 0.
    """
    n, k = gains.shape
    discounts = 1 / np.log2(np.arange(2, k + 2))
    users = np.repeat(np.arange(n), np.diff(held_out.indptr))
    best_gains = _gains_by_item(held_out, graded)
    if graded:
        best_gains = best_gains[np.lexsort((-best_gains, users))]
    ranks = np.arange(len(users)) - held_out.indptr[users]
    is_reachable = ranks < k
    ideal = np.bincount(
        users[is_reachable],
        best_gains[is_reachable] * discounts[ranks[is_reachable]],
        minlength=n,
    )
    sums: Floats = (gains * discounts).sum(axis=1)
    return np.divide(sums, ideal, out=np.zeros(n), where=ideal > 0)


def gains_of(recommended: Integers, held_out: sp.csr_array, *, graded: bool = False) -> Floats:
    """Return the gain of each recommended item (n, k), which is 0 unless the item was held out.

    The gain of a held-out item is 1, or its value in held_out if graded is true. -1 in
    `recommended` marks an empty place.
    """
    n, p = held_out.shape
    users = np.repeat(np.arange(n), np.diff(held_out.indptr))
    keys = users * np.int64(p) + held_out.indices
    order = np.argsort(keys, kind="stable")
    # searchsorted is faster than np.isin. The appended key is larger than every other key, so that
    # every position is valid.
    keys = np.append(keys[order], np.iinfo(np.int64).max)
    gains = np.append(_gains_by_item(held_out, graded)[order], 0.0)
    list_keys = np.where(recommended >= 0, np.arange(n)[:, None] * np.int64(p) + recommended, -1)
    positions = np.searchsorted(keys, list_keys)
    return np.where(keys[positions] == list_keys, gains[positions], 0.0)


def _gains_by_item(held_out: sp.csr_array, graded: bool) -> Floats:
    """Return the gain of every stored entry of held_out, in the order of the entries."""
    return held_out.data.astype(np.float64) if graded else np.ones(held_out.nnz)


def _mean_over_users(scores: Floats, held_out: sp.csr_array) -> float:
    """Return the mean score (n,) of the users with held-out items."""
    return float(scores[np.diff(held_out.indptr) > 0].mean())


def _hits(recommended: Any, held_out: Any, k: int | None) -> tuple[Floats, sp.csr_array]:
    """Return the hits (n, k), 1 for held-out items and 0 for other items, and held_out as CSR."""
    lists, held_out_csr = _validated(recommended, held_out, k)
    return gains_of(lists, held_out_csr), held_out_csr


def _validated(recommended: Any, held_out: Any, k: int | None) -> tuple[Integers, sp.csr_array]:
    matrix = as_interactions("held_out", held_out)
    lists = as_neighbor_lists("recommended", recommended, k, n_items=matrix.shape[1], padded=True)
    check_same_length("recommended", len(lists), "held_out", matrix.shape[0])
    validation.check_enough("held_out", int(matrix.nnz > 0), 1, "interaction")
    return lists, matrix
