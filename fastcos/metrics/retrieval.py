"""Retrieval metrics of neighbour lists with labels, and of recommendations of held-out items."""

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
    """Return MAP@R: each item has an average precision at R, and MAP@R is the mean over all items.

    The average precision at R judges the neighbour list of one item. R is the number of other items
    that have the label of this item. The average precision at R is (1/R) Σ_{i <= R} rel(i) P(i).

    The list of every item ranks all other rows by descending cosine and, for equal cosines, by
    ascending row number. The cosine of a zero row is 0. The relevance rel(i) is 1 if the row at
    rank i has the label of the item, and 0 otherwise. P(i) is the mean of rel(1), ..., rel(i). The
    sum over ranks is divided by R, not by the number of relevant rows among the first R ranks. The
    function takes O(p p k) time and O(p k) memory. Results are bit-for-bit identical for any number
    of threads.

    Source: Musgrave, Belongie and Lim, ECCV 2020, arXiv:2003.08505, section 3.2.

    Parameters
    ----------
    items, labels, n_threads
        As in :func:`pair_auc`.

    Returns
    -------
    Score
        The MAP@R, from 0 to 1. Zero rows, and rows whose label occurs on no other row, are left out
        of the mean.

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
    """The precision at k of neighbour lists, and the precision of random neighbours.

    Attributes
    ----------
    value : float
        Share of neighbours that have the label of the query, as a mean over queries.
    baseline : float
        The value that random neighbours would have: the share of ordered pairs of items that have
        the same label.
    """

    value: float
    baseline: float


def neighbor_purity(
    neighbors: Any, labels: Any, *, query_labels: Any = None, k: int | None = None
) -> NeighborPurity:
    """Return the precision at k: the share of the k nearest items that have the label of the query.

    For embeddings with clear clusters, the precision at k is usually near 1; :func:`map_at_r` then
    shows the differences between embeddings better.

    Parameters
    ----------
    neighbors : array_like (n, K), int
        Items by descending score, as ``top_k`` returns them. Short lists are padded with -1, which
        counts as a neighbour without a label and therefore lowers the precision.
    labels : array_like (p,), int or str
        The label of every item.
    query_labels : array_like (n,), int or str, optional
        For every list, the label of its query. By default, the queries are the items, in the same
        order.
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
    """Return, for each query label, its position among the sorted distinct labels of the items."""
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
    """Return the mean precision over users: the share of held-out items among the k recommended.

    The number of hits is always divided by k, even if the list contains fewer than k items, or if
    fewer than k items were held out.

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
    """Return the mean recall over users: hits / min(k, number of held-out items of the user).

    A hit is a held-out item among the k recommended items. Because the divisor is at most k, the
    recall can be 1 even if a user has more than k held-out items. Other libraries divide by the
    number of held-out items; if a user has more than k held-out items, their recall is therefore
    always below 1.

    Parameters
    ----------
    recommended : array_like (n, K), int
        Recommended items for every user, in descending order of relevance. Short lists are padded
        with -1, which is never a hit but occupies a rank.
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
    """Return the share of users for whom at least one of the k recommended items was held out.

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
    """Return the mean reciprocal rank: the mean over users of 1 / (rank of the first hit).

    A hit is a recommended item that was held out. The reciprocal rank of a user is 0 if none of the
    k recommended items is a hit.

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
    """Return the mean average precision (MAP) at k: the mean over users of (1/R) Σ P(i).

    A hit is a held-out item that was recommended at a rank i <= k. The sum Σ P(i) runs over the
    ranks i of the hits, and P(i) is the share of hits among the first i items. The divisor R is the
    number of all held-out items of the user, as in trec_eval and ranx. The variant that Kaggle uses
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
    """Return the mean over users of the normalised discounted cumulative gain (NDCG) at k.

    The NDCG of a user is Σ_{i <= k} gain(i) / log2(i + 1), divided by the largest possible value of
    this sum.

    The NDCG lies between 0 and 1. In the formula, gain(i) is the gain of the item at rank i. The
    gain of a held-out item is 1 or, if ``graded`` is true, its value in ``held_out``; the gain of
    every other item is 0. The sum of the discounted gains is largest if the list starts with the
    held-out items of the user in descending order of their gains.

    Source: Järvelin and Kekäläinen, ACM TOIS 20 (2002). To use the gains 2^value - 1 of Burges et
    al. (ICML 2005), pass 2^value - 1 as the values of ``held_out``.

    Parameters
    ----------
    recommended, held_out, k
        As in :func:`recall_at_k`.
    graded : bool, default False
        Whether the gains are the values of ``held_out``. If ``graded`` is true, these values must
        be greater than 0.

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
    """Return the recall (n,) of every user.

    A 1 in `hits` (n, k) marks a recommended item that was held out. The recall of a user without
    held-out items is 0.
    """
    n_reachable = np.clip(np.diff(held_out.indptr), 1, hits.shape[1])
    return hits.sum(axis=1) / n_reachable


def ndcgs_at_k(gains: Floats, held_out: sp.csr_array, *, graded: bool = False) -> Floats:
    """Return the NDCG (n,) of every user; `gains` (n, k) are the gains of the recommended items.

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

    The gain of a held-out item is 1 or, if `graded` is true, its value in `held_out`. Short lists
    in `recommended` are padded with -1.
    """
    n, p = held_out.shape
    users = np.repeat(np.arange(n), np.diff(held_out.indptr))
    keys = users * np.int64(p) + held_out.indices
    order = np.argsort(keys, kind="stable")
    # searchsorted is faster than np.isin. The last key is larger than every other key, so every
    # position that searchsorted returns is valid.
    keys = np.append(keys[order], np.iinfo(np.int64).max)
    gains = np.append(_gains_by_item(held_out, graded)[order], 0.0)
    list_keys = np.where(recommended >= 0, np.arange(n)[:, None] * np.int64(p) + recommended, -1)
    positions = np.searchsorted(keys, list_keys)
    return np.where(keys[positions] == list_keys, gains[positions], 0.0)


def _gains_by_item(held_out: sp.csr_array, graded: bool) -> Floats:
    """Return the gain of every stored entry of ``held_out``, in the order of the entries."""
    return held_out.data.astype(np.float64) if graded else np.ones(held_out.nnz)


def _mean_over_users(scores: Floats, held_out: sp.csr_array) -> float:
    """Return the mean of the scores (n,) over the users who have held-out items."""
    return float(scores[np.diff(held_out.indptr) > 0].mean())


def _hits(recommended: Any, held_out: Any, k: int | None) -> tuple[Floats, sp.csr_array]:
    """Return the matrix of hits (n, k) and the held-out matrix; a hit has the entry 1."""
    lists, held_out_csr = _validated(recommended, held_out, k)
    return gains_of(lists, held_out_csr), held_out_csr


def _validated(recommended: Any, held_out: Any, k: int | None) -> tuple[Integers, sp.csr_array]:
    matrix = as_interactions("held_out", held_out)
    lists = as_neighbor_lists("recommended", recommended, k, n_items=matrix.shape[1], padded=True)
    check_same_length("recommended", len(lists), "held_out", matrix.shape[0])
    validation.check_enough("held_out", int(matrix.nnz > 0), 1, "interaction")
    return lists, matrix
