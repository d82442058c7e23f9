"""Retrieval: neighbours with the label of the query, recommended items that were held out."""

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
    """Mean over items of (1/R) sum over ranks i <= R of rel(i) P(i), with R = n_c - 1.

    Every item's list ranks all other rows by descending cosine, equal cosines by lower row; zero
    rows have cosine 0. rel(i) is 1 if rank i has the item's label; P(i) is the mean of rel up to i.
    The denominator is R, not the number of hits. O(p p k) time, O(p k) memory. The same bits on any
    number of threads.

    Source: Musgrave, Belongie and Lim, ECCV 2020, arXiv:2003.08505, section 3.2.

    Parameters
    ----------
    items, labels, n_threads
        As in :func:`pair_auc`.

    Returns
    -------
    Score
        The value is in [0, 1]. Left out: zero rows, and the only rows of their label.

    Examples
    --------
    >>> from fastcos.metrics import map_at_r
    >>> map_at_r([[1, 0], [2, 0], [0, 1], [0, 3], [1, 1]], ["a", "a", "b", "b", "b"])
    Score(value=0.8, n_left_out=0)
    """
    given = validation.as_rows("items", items)
    codes = validation.as_labels("labels", labels, len(given))
    filled = given.any(axis=1)
    as_shared_labels(codes[filled])
    sizes = np.bincount(codes)
    queries = np.flatnonzero(filled & (sizes[codes] > 1))
    rows = validation.read_only(unit_rows(given))
    panels, counts = packed(rows, n_threads), validation.read_only(sizes.astype(np.int64))
    precisions = parallel.unfilled(len(queries), np.float64)
    parallel.run(
        pair_reductions.average_precisions_at_r, parallel.row_blocks(len(queries), 48),
        validation.read_only(queries), rows, panels, codes, counts, precisions,
        n_threads=n_threads,
    )  # fmt: skip
    return Score(float(precisions.mean()), len(given) - len(queries))


class NeighborPurity(NamedTuple):
    """Precision at k.

    Attributes
    ----------
    value : float
        Mean share of neighbours with the label of the query.
    baseline : float
        Chance level: the share of ordered pairs with one label.
    """

    value: float
    baseline: float


def neighbor_purity(
    neighbors: Any, labels: Any, *, query_labels: Any = None, k: int | None = None
) -> NeighborPurity:
    """Share of same-label items among the k nearest: precision at k.

    It is near 1 for most embeddings with clusters; :func:`map_at_r` then differs more.

    Parameters
    ----------
    neighbors : array_like (n, K), int
        Items by descending score, as ``top_k`` returns them.
    labels : array_like (p,), int or str
        The cluster of every item.
    query_labels : array_like (n,), int or str, optional
        The clusters of the lists' queries. Default: the queries are the items in their order.
    k : int, optional
        Only the first k columns. Default: all.

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
    lists = as_neighbor_lists("neighbors", neighbors, k, n_items=len(codes))
    if query_labels is None:
        check_same_length("labels", len(codes), "neighbors", len(lists))
        queries = codes
    else:
        queries = _codes_of(query_labels, np.asarray(labels), len(lists))
    sizes = np.bincount(codes).astype(np.float64)
    baseline = (sizes * (sizes - 1)).sum() / (len(codes) * (len(codes) - 1.0))
    return NeighborPurity(float((codes[lists] == queries[:, None]).mean()), float(baseline))


def _codes_of(query_labels: Any, known: npt.NDArray[Any], length: int) -> Integers:
    """Return labels (length,) as the codes that as_labels gives to known."""
    array = np.asarray(query_labels)
    validation.check_shape("query_labels", array.shape, (length,))
    if known.dtype.kind == "O":
        known, array = known.astype(str), array.astype(str)
    values = np.unique(known)
    codes = np.minimum(np.searchsorted(values, array), len(values) - 1)
    unknown = np.flatnonzero(values[codes] != array)
    if len(unknown):
        first = array[unknown].tolist()[0]
        raise ValueError(
            f"query_labels must be among the labels, got {validation.format_value(first)}"
        )
    return codes.astype(np.int64)


def recall_at_k(recommended: Any, held_out: Any, *, k: int | None = None) -> float:
    """Mean share, over users, of held-out items among the k recommended, of k if more: 0 to 1.

    Parameters
    ----------
    recommended : array_like (n, K), int
        Items for every user, best first; -1 for none.
    held_out : sparse (n, p)
        The non-zeros of a row are the relevant items. Users without any do not count.
    k : int, optional
        Only the first k columns. Default: all.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> from fastcos.metrics import recall_at_k
    >>> recall_at_k([[0, 2], [1, 0]], sp.csr_array(np.array([[0, 0, 1], [0, 1, 1]])))
    0.75
    """
    return float(np.nanmean(recalls_at_k(*_validated(recommended, held_out, k))))


def ndcg_at_k(recommended: Any, held_out: Any, *, k: int | None = None) -> float:
    """Mean over users of sum over hits at rank i of 1 / log2(i + 1), over the largest possible sum.

    From 0 to 1. Source: Järvelin and Kekäläinen, ACM TOIS 20 (2002), with gains of 0 and 1.

    Parameters
    ----------
    recommended, held_out, k
        As in :func:`recall_at_k`.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> from fastcos.metrics import ndcg_at_k
    >>> round(ndcg_at_k([[0, 2], [1, 2]], sp.csr_array(np.array([[0, 0, 1], [0, 1, 1]]))), 3)
    0.815
    """
    return float(np.nanmean(ndcgs_at_k(*_validated(recommended, held_out, k))))


def recalls_at_k(hits: Floats, n_held: Floats) -> Floats:
    """Recall of every user, (n,); hits (n, k) of 0 and 1; NaN without held-out items."""
    most = np.where(n_held > 0, np.minimum(n_held, hits.shape[1]), np.nan)
    return hits.sum(axis=1) / most


def ndcgs_at_k(hits: Floats, n_held: Floats) -> Floats:
    """NDCG of every user, (n,); NaN without held-out items."""
    gains = 1 / np.log2(np.arange(2, hits.shape[1] + 2))
    ideal = np.concatenate([[np.nan], np.cumsum(gains)])
    most = np.minimum(n_held, hits.shape[1]).astype(np.int64)
    return (hits * gains).sum(axis=1) / ideal[most]


def hits_of(recommended: Any, held_out: sp.csr_array) -> tuple[Floats, Floats]:
    """1 for each recommended item (n, k) that was held out, and their number by user, (n,)."""
    n, p = held_out.shape
    users = np.repeat(np.arange(n), np.diff(held_out.indptr))
    # by bisection, np.isin takes 4 times as long; -1 is no item, 2^63 - 1 beyond them all
    wanted = np.append(np.sort(users * np.int64(p) + held_out.indices), np.iinfo(np.int64).max)
    given = np.where(recommended >= 0, np.arange(n)[:, None] * np.int64(p) + recommended, -1)
    hits = (wanted[np.searchsorted(wanted, given)] == given).astype(np.float64)
    return hits, np.diff(held_out.indptr).astype(np.float64)


def _validated(recommended: Any, held_out: Any, k: int | None) -> tuple[Floats, Floats]:
    matrix = as_interactions("held_out", held_out)
    lists = as_neighbor_lists("recommended", recommended, k, n_items=matrix.shape[1], padded=True)
    check_same_length("recommended", len(lists), "held_out", matrix.shape[0])
    validation.check_enough("held_out", int(matrix.nnz > 0), 1, "interaction")
    return hits_of(lists, matrix)
