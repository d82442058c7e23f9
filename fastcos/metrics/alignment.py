"""How much two embeddings of the same items agree, or two models of the same data."""

from typing import Any, NamedTuple

import numpy as np

from fastcos import validation
from fastcos.metrics import checks
from fastcos.metrics.labelled import Floats, cross_products, same_rows
from fastcos.metrics.spectrum import means, triangle

# what rounding leaves of a variance that is 0, relative to the squares
_ROUNDING = 1e-13


def cka(first: Any, second: Any) -> float:
    """Linear centred kernel alignment: |Y'X|^2 / (|X'X| |Y'Y|) of the centred rows.

    Unchanged by rotations, translations and one scale of either; changes under a rescaling of the
    columns. O(p k k) time.

    Parameters
    ----------
    first, second : array_like (p, k1), (p, k2), float32 or float64
        One row per item, the same items.

    Returns
    -------
    float
        In [0, 1].

    Raises
    ------
    ValueError
        Different numbers of rows, or rows that are all equal.

    Notes
    -----
    Source: Kornblith et al., ICML 2019, arXiv:1905.00414, section 3.

    Examples
    --------
    >>> from fastcos.metrics import cka
    >>> items = [[1, 0], [1, 1], [0, 1], [-1, 2]]
    >>> round(cka(items, [[3 - 2 * y, 2 * x] for x, y in items]), 12)
    1.0
    """
    X, Y = _centred(first, second)
    norms = np.linalg.norm(cross_products(X, X)) * np.linalg.norm(cross_products(Y, Y))
    return float(min(np.square(cross_products(X, Y)).sum() / norms, 1.0))


def cca_similarity(first: Any, second: Any) -> float:
    """Mean squared canonical correlation: |Qx'Qy|^2 / r, orthonormal bases of centred columns.

    r is the smaller of the two ranks, so it is 1 where one embedding is a linear function of the
    other. Unchanged by any invertible linear map and translation of either, so by every rescaling:
    it says whether two embeddings hold the same, not whether their cosines agree. O(p k k) time.

    Parameters
    ----------
    first, second : array_like (p, k1), (p, k2), float32 or float64
        One row per item, the same items; more rows than columns, or it is trivially near 1.

    Returns
    -------
    float
        In [0, 1].

    Raises
    ------
    ValueError
        Different numbers of rows, or rows that are all equal.

    Notes
    -----
    Source: Hotelling, Biometrika 28 (1936); Kornblith et al. 2019, arXiv:1905.00414, table 1.

    Examples
    --------
    >>> from fastcos.metrics import cca_similarity
    >>> items = [[1, 0], [1, 1], [0, 1], [-1, 2]]
    >>> round(cca_similarity(items, [[100 * x, y] for x, y in items]), 12)
    1.0
    """
    X, Y = _centred(first, second)
    Q, R = _basis(X), _basis(Y)
    value = np.square(cross_products(Q, R)).sum() / min(Q.shape[1], R.shape[1])
    return float(min(value, 1.0))


def procrustes(first: Any, second: Any) -> float:
    """Disparity after the best translation, scale and rotation: 1 - |X'Y|_*^2, centred, unit norm.

    0 where one embedding is the other moved, turned, mirrored and scaled; columns may differ in
    number. It changes under a rescaling of the columns. O(p k k) time.

    Parameters
    ----------
    first, second : array_like (p, k1), (p, k2), float32 or float64
        One row per item, the same items.

    Returns
    -------
    float
        In [0, 1].

    Raises
    ------
    ValueError
        Different numbers of rows, or rows that are all equal.

    Notes
    -----
    Source: Schönemann, Psychometrika 31 (1966); scipy.spatial.procrustes.

    Examples
    --------
    >>> from fastcos.metrics import procrustes
    >>> items = [[1, 0], [1, 1], [0, 1], [-1, 2]]
    >>> round(procrustes(items, [[3 - 2 * y, 2 * x] for x, y in items]), 12)
    0.0
    """
    X, Y = _centred(first, second)
    nuclear = np.linalg.svd(cross_products(X, Y), compute_uv=False).sum()
    nuclear /= np.linalg.norm(X) * np.linalg.norm(Y)
    return float(max(1 - nuclear * nuclear, 0.0))


class ModelChange(NamedTuple):
    """Distance of two models' predictions.

    Attributes
    ----------
    value : float
        Frobenius norm of the difference.
    relative : float
        The same over the norm of the first model's predictions; infinite if those are 0.
    """

    value: float
    relative: float


def model_change(
    first_users: Any, first_items: Any, second_users: Any, second_items: Any
) -> ModelChange:
    """|P1 Q1' - P2 Q2'|, the difference of two models' predictions, without an n x p matrix.

    Unchanged by every rescaling, and by every invertible map of the factors that leaves a model as
    it is: if it is about 0, all differences of the factors are such maps. From the triangles of
    (P1, -P2) and (Q1, Q2), so that the rounding is relative to the predictions, not to their
    squares. O((n + p) k k) time.

    Parameters
    ----------
    first_users, second_users : array_like (n, k1), (n, k2), float32 or float64
        User factors of the two models.
    first_items, second_items : array_like (p, k1), (p, k2), float32 or float64
        Item factors of the two models.

    Returns
    -------
    ModelChange
        (value, relative).

    Raises
    ------
    ValueError
        Numbers of rows or columns that do not fit together.

    Examples
    --------
    >>> from fastcos.metrics import model_change
    >>> model_change([[1, 2]], [[3, 4]], [[2, 4]], [[1.5, 2]])
    ModelChange(value=0.0, relative=0.0)
    """
    P1, P2 = same_rows("first_users", first_users, "second_users", second_users)
    Q1, Q2 = same_rows("first_items", first_items, "second_items", second_items)
    validation.check_same_width("first_items", Q1, "first_users", P1)
    validation.check_same_width("second_items", Q2, "second_users", P2)
    users = triangle(np.concatenate([P1, -P2.astype(np.float64)], axis=1))
    items = triangle(np.concatenate([Q1, Q2.astype(np.float64)], axis=1))
    value = _size_of(users @ items.T)
    k = P1.shape[1]
    size = _size_of(users[:, :k] @ items[:, :k].T)
    return ModelChange(value, value / size if size else (np.inf if value else 0.0))


def _size_of(matrix: Floats) -> float:
    """Frobenius norm, of entries whose squares overflow or vanish too."""
    largest = float(np.abs(matrix).max())
    return largest * float(np.linalg.norm(matrix / largest)) if largest else 0.0


def _centred(first: Any, second: Any) -> tuple[Floats, Floats]:
    """Both embeddings less their means, divided by a power of two near their largest entry."""
    centred = []
    for name, rows in zip(
        ("first", "second"), same_rows("first", first, "second", second), strict=True
    ):
        largest = float(np.abs(rows).max())
        moved: Floats = np.ldexp(rows.astype(np.float64), -int(np.frexp(largest)[1]))
        moved -= means(moved)
        checks.as_varying(name, bool(np.abs(moved).max() > _ROUNDING), "rows")
        centred.append(moved)
    return centred[0], centred[1]


def _basis(rows: Floats) -> Floats:
    """Orthonormal basis of the columns; directions within rounding of 0 are not in it."""
    Q, sigma, _ = np.linalg.svd(rows, full_matrices=False)
    kept: Floats = Q[:, sigma > sigma[0] * max(rows.shape) * np.finfo(np.float64).eps]
    return kept
