"""How many directions an embedding uses."""

from typing import Any

import numpy as np

from fastcos import validate
from fastcos.metrics.rows import CHUNK, Floats


def effective_rank(items: Any) -> float:
    """exp(-sum q ln q) of the shares q = sigma / sum of sigma of the singular values.

    From 1 (one direction) to k (all alike); 0 for a matrix of zeros. The rows are taken as given,
    not centred. It changes under a rescaling of the columns, although the model does not. O(p k k)
    time, O(k k) memory besides a chunk of rows; by orthogonal reductions, so that small singular
    values keep full precision.

    Parameters
    ----------
    items : array_like (p, k), float32 or float64
        One row per item.

    Returns
    -------
    float
        The effective rank.

    Raises
    ------
    ValueError
        Not two-dimensional, empty, NaN or infinite.

    Notes
    -----
    Source: Roy and Vetterli, EUSIPCO 2007; as RankMe in Garrido et al. 2023, arXiv:2210.02885.

    Examples
    --------
    >>> from fastcos.metrics import effective_rank
    >>> round(effective_rank([[2, 0, 0], [0, 2, 0]]), 12)
    2.0
    """
    sigma = singular_values(validate.as_rows("items", items))
    shares = sigma[sigma > 0] / max(sigma.sum(), np.finfo(np.float64).tiny)
    return float(np.exp(-(shares * np.log(shares)).sum())) if len(shares) else 0.0


def singular_values(rows: validate.Rows, centre: Floats | None = None) -> Floats:
    """Falling singular values of rows, less centre where given; one chunk of rows at a time."""
    corner: Floats = np.zeros((0, rows.shape[1]))
    for first in range(0, len(rows), CHUNK):
        chunk = rows[first : first + CHUNK].astype(np.float64)
        if centre is not None:
            chunk = chunk - centre
        corner = np.asarray(np.linalg.qr(np.concatenate([corner, chunk]), mode="r"))
    values: Floats = np.asarray(np.linalg.svd(corner, compute_uv=False))
    return values
