"""Ranges of a cosine over the rescalings that leave a model's predictions unchanged.

Predictions do not change when a rescaling D (or any invertible G) acts on the users and its inverse
on the items. Cosines do. Without a bound on D nearly every cosine can take nearly every value.
Therefore the ranges are over all D with max |d| / min |d| <= condition. Such a D moves Fisher's
z = artanh(cosine) by at most ln condition.
"""

from typing import Any, NamedTuple

import numpy as np

from fastcos import parallel, validation
from fastcos.kernels import intervals, records
from fastcos.similarity.encoded_rows import row_norms
from fastcos.validation import Floats

Values = Any  # a float for one pair, else (n,) float64

# The default condition of a rescaling. Two seeds of one recipe that has come to rest differ by no
# more (docs/explanation/scale_of_dimensions.md). At 1.2 the certified shares of the nine embeddings
# of docs/howto/audit.md spread most (4 % of noise to 76 % of Eq. 2); at 2 one is above 20 %.
CONDITION = 1.2
# float64 holds neither the weights of a larger condition, which are its square, nor their products
LARGEST_CONDITION = 1e15


class Interval(NamedTuple):
    """The least and the greatest value of a cosine.

    Attributes
    ----------
    low, high : float, or ndarray (n,), float64
    """

    low: Values
    high: Values


class CosineInterval(NamedTuple):
    """The exact range of a cosine over a box of rescalings, and rescalings that attain both ends.

    Attributes
    ----------
    low, high : float, or ndarray (n,), float64
        NaN for a pair with a zero row, which has no direction.
    low_rescaling, high_rescaling : ndarray (d,), or (n, d), float64
        Diagonals of D: ``cosine(x / D, y / D)`` is that end. From 1 / condition to 1.
    """

    low: Values
    high: Values
    low_rescaling: Floats
    high_rescaling: Floats


class Sensitivity(NamedTuple):
    """How fast rescalings move a cosine, in total and per latent dimension.

    Attributes
    ----------
    index : float, or ndarray (n,), float64
        From 0 (no rescaling moves it) to 1.
    contributions : ndarray (d,), or (n, d), float64
        Signed; they sum to 0 and their absolute values to the index.
    """

    index: Values
    contributions: Floats


def fisher_z_interval(cosine: Any, condition: float) -> Interval:
    """The range of a cosine over all linear maps of at most this condition number.

    Exact: some invertible G with condition(G) <= condition attains each end. In Fisher's
    z = artanh(cosine) the range is z - ln condition to z + ln condition, for any pair of vectors.

    Source: Wielandt's angle bound, and Bauer and Householder 1960, in the form of Fisher's z.

    Parameters
    ----------
    cosine : float or array_like (n,)
        From -1 to 1.
    condition : float
        Largest singular value of G over its smallest, at least 1.

    Returns
    -------
    Interval
        low and high, float or (n,) float64.

    Examples
    --------
    >>> from fastcos.auditing import fisher_z_interval
    >>> low, high = fisher_z_interval(0.8, 2.0)
    >>> round(low, 3), round(high, 3)
    (0.385, 0.946)
    """
    condition = as_condition("condition", condition)
    values = validation.as_vector("cosine", np.atleast_1d(cosine))
    # float32 products exceed 1 by rounding
    outside = np.flatnonzero(np.abs(values) > 1 + 1e-6)
    if len(outside):
        first = int(outside[0])
        raise ValueError(f"cosine must be from -1 to 1, got {values[first]!r} at position {first}")
    with np.errstate(divide="ignore"):
        z = np.arctanh(np.clip(values, -1.0, 1.0))
    low, high = np.tanh(z - np.log(condition)), np.tanh(z + np.log(condition))
    return Interval(low, high) if np.ndim(cosine) else Interval(float(low[0]), float(high[0]))


def unbounded_range(x: Any, y: Any) -> Interval:
    """The range of a cosine over all rescalings of any condition.

    If the products x_l y_l have both signs, the range is -1 to 1. If all are positive, it is from
    2 sqrt(r s) / (r + s) to 1, with r and s the extreme ratios y_l / x_l. It is from 0 if a
    dimension is zero in only one of x and y. If all are negative, it is mirrored. If all are zero,
    it is 0. Ends need not be attained.

    Source: the lower end is the constant in the inequality of Cassels (Pólya and Szegő, Greub and
    Rheinboldt 1959).

    Parameters
    ----------
    x, y : array_like (d,), or (n, d)
        One pair, or n pairs row by row.

    Returns
    -------
    Interval
        low and high, float or (n,) float64; NaN for a pair with a zero row.

    Examples
    --------
    >>> from fastcos.auditing import unbounded_range
    >>> unbounded_range([1.0, 2.0, -1.0], [2.0, 1.0, 1.0])
    Interval(low=-1.0, high=1.0)
    >>> unbounded_range([1.0, 1.0], [1.0, 4.0])
    Interval(low=0.8, high=1.0)
    """
    (a, b), single = _as_pairs(x, y)
    signs = np.sign(a) * np.sign(b)
    positive, negative = (signs > 0).any(axis=1), (signs < 0).any(axis=1)
    lonely = ((a == 0) != (b == 0)).any(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.where(signs != 0, np.log(np.abs(b)) - np.log(np.abs(a)), np.nan)
    span = np.fmax.reduce(logs, axis=1) - np.fmin.reduce(logs, axis=1)
    # 2 sqrt(r s) / (r + s) of the two extreme ratios
    inner = np.where(lonely, 0.0, 1.0 / np.cosh(0.5 * np.nan_to_num(span)))
    low = np.where(negative, -1.0, np.where(positive, inner, 0.0))
    high = np.where(positive, 1.0, np.where(negative, 0.0 - inner, 0.0))
    empty = ~a.any(axis=1) | ~b.any(axis=1)
    low[empty], high[empty] = np.nan, np.nan
    return Interval(_float_or_array(low, single), _float_or_array(high, single))


def cosine_interval(
    x: Any, y: Any, condition: float, *, n_threads: int | None = None
) -> CosineInterval:
    """The exact range of a cosine over all rescalings D with condition(D) <= condition.

    Narrower than :func:`fisher_z_interval`, which also allows rotations. Time O(d²) per pair.

    Parameters
    ----------
    x, y
        As in :func:`unbounded_range`.
    condition : float
        Largest entry of D over its smallest, from 1 to 1e15.
    n_threads : int, optional
        As in :func:`fastcos.top_k`.

    Returns
    -------
    CosineInterval
        low and high, and the diagonals of the D that attain them.

    Notes
    -----
    A positive maximum is at a vertex of the box, where the large weights form a run of the
    dimensions with x_l y_l > 0 in the order of y_l / x_l; a non-negative minimum is a maximum over
    one number of linear-fractional programmes (Sion 1958, Dinkelbach 1967).

    Examples
    --------
    >>> import numpy as np
    >>> from fastcos.auditing import cosine_interval
    >>> x, y = np.array([1.0, 0.5, -0.2]), np.array([0.9, 0.1, 0.3])
    >>> interval = cosine_interval(x, y, 2.0)
    >>> round(interval.low, 3), round(interval.high, 3)
    (0.532, 0.948)
    >>> a, b = x / interval.low_rescaling, y / interval.low_rescaling
    >>> round(float(a @ b / np.linalg.norm(a) / np.linalg.norm(b)), 3)
    0.532
    """
    condition = as_condition("condition", condition)
    (a, b), single = _as_pairs(x, y)
    n, d = a.shape
    ends, weights = parallel.unfilled((n, 2), np.float64), parallel.unfilled((n, 2, d), np.float64)
    # 20 million operations a block: milliseconds, so scheduling costs little
    blocks = parallel.row_blocks(n, max(1, 20_000_000 // (d * d + 50 * d)))
    norms = row_norms(a, n_threads), row_norms(b, n_threads)
    parallel.run(
        intervals.box_intervals, blocks, records.RowPairs(a, b, *norms), condition**2, ends,
        weights,
        n_threads=n_threads,
    )  # fmt: skip
    low, high = _float_or_array(ends[:, 0], single), _float_or_array(ends[:, 1], single)
    rescalings = weights**-0.5
    first, second = rescalings[:, 0], rescalings[:, 1]
    return CosineInterval(low, high, *((first[0], second[0]) if single else (first, second)))


def tv_index(x: Any, y: Any, *, n_threads: int | None = None) -> Sensitivity:
    """How strongly a cosine depends on the scale of single latent dimensions.

    The index is the total-variation distance between the distributions of (x̂ + ŷ)² and (x̂ - ŷ)²
    over the dimensions. To first order a rescaling of condition κ moves Fisher's z by at most
    index ln κ. Contribution l is the derivative of z by ln w_l, with w = D^-2. Both depend on the
    basis.

    Parameters
    ----------
    x, y, n_threads
        As in :func:`cosine_interval`.

    Returns
    -------
    Sensitivity
        index and contributions. Collinear pairs have 0, since no rescaling moves them. Pairs with
        a zero row have NaN.

    Examples
    --------
    >>> from fastcos.auditing import tv_index
    >>> tv_index([1.0, 1.0], [1.0, -1.0]).index
    1.0
    >>> round(tv_index([1.0, 1.0, 1.0], [1.0, 1.0, 0.9]).index, 3)
    0.379
    """
    (a, b), single = _as_pairs(x, y)
    n, d = a.shape
    z, index = parallel.unfilled(n, np.float64), parallel.unfilled(n, np.float64)
    contributions = parallel.unfilled((n, d), np.float64)
    norms = row_norms(a, n_threads), row_norms(b, n_threads)
    blocks = parallel.row_blocks(n, max(1, 5_000_000 // d))
    parallel.run(
        intervals.pair_indices, blocks, records.RowPairs(a, b, *norms), z, index, contributions,
        n_threads=n_threads,
    )  # fmt: skip
    empty = (norms[0] == 0) | (norms[1] == 0)
    index[empty], contributions[empty] = np.nan, np.nan
    return Sensitivity(
        _float_or_array(index, single), contributions[0] if single else contributions
    )


def rescaling_distance(first: Any, second: Any) -> float:
    """Hilbert's projective distance between two metrics.

    For every pair of vectors, Fisher's z of its cosines in the two metrics differ by at most half
    of the distance.

    Source: Bushell 1973 for the metric. For a map G of condition number κ, d(I, GG') = 2 ln κ.

    Parameters
    ----------
    first, second : array_like (d, d), or (d,)
        Symmetric positive definite metrics, or their diagonals. A map G of item embeddings induces
        GG'; a rescaling D of (A D, B D^-1) induces the diagonal D^-2 on items.

    Returns
    -------
    float
        ln of the largest over the smallest eigenvalue of first^-1 second. A common linear change of
        coordinates and the scale of either metric do not change it.

    Examples
    --------
    >>> from fastcos.auditing import rescaling_distance
    >>> D = [1.0, 2.0, 4.0]
    >>> round(rescaling_distance([1.0, 1.0, 1.0], [d**-2 for d in D]), 4)  # 2 ln 4
    2.7726
    """
    from scipy.linalg import eigh  # deferred: the import takes 0.1 s

    one = _as_metric("first", first)
    other = _as_metric("second", second, len(one))
    if one.ndim == 1 and other.ndim == 1:
        logs = np.log(other) - np.log(one)
    else:
        matrices = [np.diag(m) if m.ndim == 1 else m for m in (one, other)]
        logs = np.log(eigh(matrices[1], matrices[0], eigvals_only=True))
    return float(logs.max() - logs.min())


def as_condition(name: str, condition: Any) -> float:
    """Return condition as a condition number, from 1 to LARGEST_CONDITION."""
    return validation.as_real(name, condition, low=1, high=LARGEST_CONDITION)


def _as_pairs(x: Any, y: Any) -> tuple[list[Floats], bool]:
    """Return two vectors (d,) or matrices (n, d) as rows, and whether they were vectors.

    Each row is divided by its largest absolute entry: the cosine is scale-invariant, and squares
    then neither overflow nor underflow.
    """
    sides = {"x": validation.as_array("x", x), "y": validation.as_array("y", y)}
    single = all(side.ndim == 1 for side in sides.values())
    rows = [
        validation.as_rows(name, side, dtype=np.float64, or_vector=single)
        for name, side in sides.items()
    ]
    validation.check_same_width("y", rows[1], "x", rows[0])
    validation.check_length("y", rows[1], len(rows[0]), "x")
    sizes = [np.abs(side).max(axis=1, keepdims=True) for side in rows]
    scaled = [
        validation.read_only(np.asarray(side / np.where(size > 0, size, 1.0), np.float64))
        for side, size in zip(rows, sizes, strict=True)
    ]
    return scaled, single


def _as_metric(name: str, metric: Any, size: int | None = None) -> Floats:
    """Return a symmetric positive definite matrix (d, d), or the diagonal of one as (d,)."""
    if np.ndim(metric) == 1:
        length = max(1, np.size(metric)) if size is None else size
        return validation.as_positive_diagonal(name, metric, length)
    matrix: Floats = validation.as_rows(name, metric, dtype=np.float64).astype(np.float64)
    d = len(matrix) if size is None else size
    if matrix.shape != (d, d):
        raise ValueError(f"{name} must be of shape ({d}, {d}) or ({d},), got {matrix.shape}")
    values = np.linalg.eigvalsh(matrix)
    asymmetry = np.abs(matrix - matrix.T).max()
    if asymmetry > 1e-10 * np.abs(matrix).max() or not values[0] > 0:
        got = f"a smallest eigenvalue of {values[0]:g}"
        raise ValueError(f"{name} must be symmetric and positive definite, got {got}")
    return matrix


def _float_or_array(values: Floats, single: bool) -> Values:
    return float(values[0]) if single else values
