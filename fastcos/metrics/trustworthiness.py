"""Whether an embedding keeps the neighbourhoods of another."""

from typing import Any, NamedTuple

import numpy as np

from fastcos import parallel, validation
from fastcos.kernels import pair_reductions
from fastcos.metrics import checks
from fastcos.metrics.labelled import packed, same_rows, unit_rows


class Trustworthiness(NamedTuple):
    """How well neighbourhoods are kept.

    Attributes
    ----------
    trustworthiness : float
        1 where no neighbour in the embedding is new; in [0, 1].
    continuity : float
        1 where no neighbour of the original is lost; in [0, 1].
    n_left_out : int
        Items with a zero row in either.
    """

    trustworthiness: float
    continuity: float
    n_left_out: int


def trustworthiness(
    original: Any, embedding: Any, *, k: int = 5, n_threads: int | None = None
) -> Trustworthiness:
    """1 - 2 / (n k (2n - 3k - 1)) sum over i and j in U_k(i) of (r(i, j) - k).

    U_k(i) are the k nearest of i in the embedding that are not among its k nearest in the original,
    r(i, j) is the rank of j among i's neighbours in the original; continuity is the same with the
    two swapped. Neighbours by cosine, in both; equal cosines by lower row.

    O(n n k) time, O(n) memory per thread besides copies of the inputs; the same bits on any number
    of threads.

    Parameters
    ----------
    original, embedding : array_like (p, k1), (p, k2), float32 or float64
        One row per item, the same items.
    k : int
        Neighbours; less than half of the items that are left.
    n_threads : int, optional
        Default: the setting.

    Returns
    -------
    Trustworthiness
        (trustworthiness, continuity, n_left_out).

    Raises
    ------
    ValueError
        Different numbers of rows, fewer than three non-zero rows, k of half of them or more.

    Notes
    -----
    Source: Venna and Kaski, ICANN 2001.

    Examples
    --------
    >>> from fastcos.metrics import trustworthiness
    >>> items = [[1, 0], [1, 1], [0, 1], [-1, 2], [-1, 0], [3, -1]]
    >>> trustworthiness(items, [[2 * x, 2 * y] for x, y in items], k=2)
    Trustworthiness(trustworthiness=1.0, continuity=1.0, n_left_out=0)
    """
    X, Y = same_rows("original", original, "embedding", embedding)
    kept = X.any(axis=1) & Y.any(axis=1)
    n = checks.as_enough("original", int(kept.sum()), 3, "rows that are zero in neither")
    k = validation.as_count("k", k, 1, (n - 1) // 2)
    A, B = (validation.read_only(unit_rows(rows[kept])) for rows in (X, Y))
    excess = parallel.unfilled((n, 2), np.int64)
    parallel.run(
        pair_reductions.rank_excess_rows,
        parallel.row_blocks(n, 48),
        A,
        packed(A, n_threads),
        B,
        packed(B, n_threads),
        k,
        excess,
        n_threads=n_threads,
    )
    new, lost = excess.sum(axis=0).tolist()
    worst = n * k * (2 * n - 3 * k - 1)
    return Trustworthiness(1 - 2 * new / worst, 1 - 2 * lost / worst, len(X) - n)
