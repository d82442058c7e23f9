"""Recall and NDCG of recommended items against held-out ones."""

from typing import Any

import numpy as np
import scipy.sparse as sp

from fastcos.linalg.csr import as_interactions
from fastcos.metrics import checks
from fastcos.metrics.labelled import Floats


def recall_at_k(recommended: Any, held_out: Any, *, k: int | None = None) -> float:
    """Mean over users of the share of held-out items among the k recommended, of k if more.

    Parameters
    ----------
    recommended : array_like (n, K), int
        Items for every user, best first; -1 for none.
    held_out : sparse (n, p)
        The non-zeros of a row are the relevant items. Users without any do not count.
    k : int, optional
        Only the first k columns. Default: all.

    Returns
    -------
    float
        In [0, 1].

    Raises
    ------
    ValueError
        Another number of users; item numbers out of range; no held-out items at all.

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

    Parameters
    ----------
    recommended, held_out, k
        As in :func:`recall_at_k`.

    Returns
    -------
    float
        In [0, 1].

    Raises
    ------
    ValueError
        As in :func:`recall_at_k`.

    Notes
    -----
    Source: Järvelin and Kekäläinen, ACM TOIS 20 (2002), with gains of 0 and 1.

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
    recalls: Floats = hits.sum(axis=1) / most
    return recalls


def ndcgs_at_k(hits: Floats, n_held: Floats) -> Floats:
    """NDCG of every user, (n,); NaN without held-out items."""
    gains = 1 / np.log2(np.arange(2, hits.shape[1] + 2))
    ideal = np.concatenate([[np.nan], np.cumsum(gains)])
    most = np.minimum(n_held, hits.shape[1]).astype(np.int64)
    ndcgs: Floats = (hits * gains).sum(axis=1) / ideal[most]
    return ndcgs


def hits_of(recommended: Any, held_out: sp.csr_array) -> tuple[Floats, Floats]:
    """1 for each recommended item (n, k) that was held out, and their number by user, (n,)."""
    n, p = held_out.shape
    users = np.repeat(np.arange(n), np.diff(held_out.indptr))
    wanted = users * np.int64(p) + held_out.indices
    given = np.where(recommended >= 0, np.arange(n)[:, None] * np.int64(p) + recommended, -1)
    hits = np.isin(given, wanted).astype(np.float64)
    return hits, np.diff(held_out.indptr).astype(np.float64)


def _validated(recommended: Any, held_out: Any, k: int | None) -> tuple[Floats, Floats]:
    matrix = as_interactions("held_out", held_out)
    lists = checks.as_neighbor_lists(
        "recommended", recommended, k, n_items=matrix.shape[1], padded=True
    )
    checks.check_same_length("recommended", len(lists), "held_out", matrix.shape[0])
    checks.check_enough("held_out", int(matrix.nnz > 0), 1, "interaction")
    return hits_of(lists, matrix)
