"""Effective dimensions, isotropy and mean cosine of one embedding."""

from typing import Any

import numpy as np

from fastcos import parallel, validation
from fastcos.metrics.labelled import CHUNK, Score, unit_rows
from fastcos.parallel import memmap
from fastcos.similarity.moments import triangle
from fastcos.validation import Floats


def effective_rank(items: Any) -> float:
    """Return the effective rank: the exponential of the entropy of the singular values.

    The effective rank is exp(-Σ q ln q), where q is each singular value divided by the sum of all
    singular values.

    The effective rank is 1 if all rows are collinear and k if all singular values are equal;
    otherwise, it lies between 1 and k. The effective rank of a matrix of zeros is 0. The rows are
    not centred. A rescaling of the columns usually changes the effective rank, although it does not
    change the predictions of a model of Eq. 1. The function takes O(p k k) time, and O(k k) memory
    besides a chunk of rows. The function uses QR decompositions, which preserve the precision of
    small singular values.

    Source: Roy and Vetterli, EUSIPCO 2007. Garrido et al. 2023, arXiv:2210.02885, call the
    effective rank RankMe.

    Parameters
    ----------
    items : array_like (p, k), float32 or float64
        One row per item.

    Examples
    --------
    >>> from fastcos.metrics import effective_rank
    >>> round(effective_rank([[2, 0, 0], [0, 2, 0]]), 12)
    2.0
    """
    sigma = singular_values(_scaled_up(validation.as_rows("items", items)))
    shares = sigma[sigma > 0] / max(sigma.sum(), np.finfo(np.float64).tiny)
    return float(np.exp(-(shares * np.log(shares)).sum())) if len(shares) else 0.0


def participation_ratio(items: Any) -> float:
    """Return the participation ratio (Σ σ²)² / Σ σ⁴ of the singular values σ.

    The participation ratio lies between 1 and k, and is 0 for a matrix of zeros. The rows are not
    centred. A rescaling of the columns usually changes the participation ratio. The function takes
    O(p k k) time.

    Parameters
    ----------
    items
        As in :func:`effective_rank`.

    Examples
    --------
    >>> from fastcos.metrics import participation_ratio
    >>> round(participation_ratio([[2, 0, 0], [0, 2, 0]]), 12)
    2.0
    """
    return _participation(singular_values(_scaled_up(validation.as_rows("items", items))))


def isoscore(items: Any) -> float:
    """Return IsoScore, (PR - 1) / (k - 1), where PR is the participation ratio of the centred rows.

    IsoScore is 1 if the variances in all directions are equal, and 0 if the rows vary in at most
    one direction. A rescaling of the columns usually changes IsoScore. The function takes O(p k k)
    time.

    Source: Rudman et al. 2022, arXiv:2108.07344. The algorithm in this article gives the same
    result as this function.

    Parameters
    ----------
    items
        As in :func:`effective_rank`, with at least two columns.

    Examples
    --------
    >>> from fastcos.metrics import isoscore
    >>> round(isoscore([[1, 0], [-1, 0], [0, 1], [0, -1]]), 12)
    1.0
    """
    rows = validation.as_rows("items", items)
    validation.check_enough("items", rows.shape[1], 2, "columns")
    scaled = _scaled_up(rows)
    ratio = _participation(singular_values(scaled, scaled.mean(axis=0, dtype=np.float64)))
    return float(max(ratio - 1, 0.0) / (rows.shape[1] - 1))


def mean_cosine(items: Any) -> Score:
    """Return the mean cosine of all pairs of rows, (|sum of unit rows|^2 - n) / (n (n - 1)).

    The result is exact and takes O(p k) time. A rescaling of the columns usually changes the mean
    cosine.

    Source: Ethayarajh, EMNLP 2019, arXiv:1909.00512, where the mean cosine is a measure of
    anisotropy.

    Parameters
    ----------
    items
        As in :func:`effective_rank`, with at least two non-zero rows.

    Returns
    -------
    Score
        The mean cosine of the non-zero rows, from -1 to 1.

    Examples
    --------
    >>> from fastcos.metrics import mean_cosine
    >>> mean_cosine([[1, 0], [2, 0], [0, 0]])
    Score(value=1.0, n_left_out=1)
    """
    rows = memmap.as_mapped_rows("items", items)
    resultant, n_non_zero = np.zeros(rows.shape[1]), 0
    for _, chunk in memmap.iter_blocks("items", rows, CHUNK):
        n_non_zero += int(chunk.any(axis=1).sum())
        resultant += unit_rows(chunk).sum(axis=0)
    n = validation.check_enough("items", n_non_zero, 2, "non-zero rows")
    total = float(np.square(resultant).sum())
    return Score((total - n) / (n * (n - 1)), len(rows) - n)


def _participation(sigma: Floats) -> float:
    if sigma[0] == 0:
        return 0.0
    squares = np.square(sigma / sigma[0])
    return float(squares.sum() ** 2 / np.square(squares).sum())


def _scaled_up(rows: validation.Rows) -> validation.Rows:
    """Return the rows, multiplied by a power of two if all entries are tiny.

    Without this factor, LAPACK would lose digits. Multiplying by a power of two is exact.
    """
    largest = float(np.abs(rows).max())
    if rows.dtype == np.float32 or largest > 1e-150 or largest == 0:
        return rows
    return np.ldexp(rows, -int(np.frexp(largest)[1]))


def singular_values(rows: validation.Rows, centre: Floats | None = None) -> Floats:
    """Return the singular values of `rows`, or of `rows - centre`, in descending order."""
    R = triangle(rows, centre)
    with parallel.blas_lock():
        return np.asarray(np.linalg.svd(R, compute_uv=False))
