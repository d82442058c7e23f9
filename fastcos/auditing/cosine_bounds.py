"""How far one cosine can move: ranges over the rescalings that leave the model as it is.

A model's predictions do not change when a rescaling D (or any invertible G) acts on its users and
the inverse on its items, but cosines do. Without a bound on D nearly every cosine can take nearly
every value, so the ranges here are for max |d| / min |d| <= condition. In units of Fisher's
z = artanh(cosine) no cosine then moves by more than ln condition.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastcos import parallel, validation
from fastcos.auditing import checks
from fastcos.kernels import intervals, pair_scores

Floats = npt.NDArray[np.float64]
Values = Any  # a float for one pair, else (n,) float64


class Interval(NamedTuple):
    """The least and the greatest value of a cosine.

    Attributes
    ----------
    low, high : float, or ndarray (n,), float64
    """

    low: Values
    high: Values


class CosineInterval(NamedTuple):
    """The exact range of a cosine over a box of rescalings, and rescalings that attain its ends.

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
    """How fast rescalings move a cosine, in all and per latent dimension.

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
    """The cosines that a pair can be given by linear maps of at most this condition number.

    Exact: over all invertible G with condition(G) <= condition both ends are attained. In Fisher's
    z = artanh(cosine) the interval is z - ln condition to z + ln condition, whatever the vectors.

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

    Raises
    ------
    ValueError
        A cosine outside [-1, 1], a condition below 1.

    Notes
    -----
    Source: Wielandt's angle bound, and Bauer and Householder 1960, in the form of Fisher's z.

    Examples
    --------
    >>> from fastcos.auditing import fisher_z_interval
    >>> low, high = fisher_z_interval(0.8, 2.0)
    >>> round(low, 3), round(high, 3)
    (0.385, 0.946)
    """
    condition = checks.as_condition("condition", condition)
    given = checks.as_cosines("cosine", cosine)
    with np.errstate(divide="ignore"):
        z = np.arctanh(given)
    low, high = np.tanh(z - np.log(condition)), np.tanh(z + np.log(condition))
    return Interval(low, high) if np.ndim(cosine) else Interval(float(low[0]), float(high[0]))


def unbounded_range(x: Any, y: Any) -> Interval:
    """The range of a cosine over all rescalings, of whatever condition.

    Both signs among the products x_l y_l: -1 to 1, nothing is left. All positive: from
    2 sqrt(r s) / (r + s), r and s the extreme ratios y_l / x_l, or from 0 where a dimension is zero
    in one of the two only, to 1. All negative: mirrored. None: 0. Ends need not be attained.

    Parameters
    ----------
    x, y : array_like (d,), or (n, d)
        One pair, or n pairs row by row.

    Returns
    -------
    Interval
        low and high, float or (n,) float64; NaN for a pair with a zero row.

    Raises
    ------
    ValueError
        Different shapes; NaN or infinity.

    Notes
    -----
    Source: the lower end is the constant in the inequality of Cassels (Pólya and Szegő, Greub and
    Rheinboldt 1959).

    Examples
    --------
    >>> from fastcos.auditing import unbounded_range
    >>> unbounded_range([1.0, 2.0, -1.0], [2.0, 1.0, 1.0])
    Interval(low=-1.0, high=1.0)
    >>> unbounded_range([1.0, 1.0], [1.0, 4.0])
    Interval(low=0.8, high=1.0)
    """
    (a, b), single = checks.as_pairs(x=x, y=y)
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
    return Interval(_given_back(low, single), _given_back(high, single))


def cosine_interval(
    x: Any, y: Any, condition: float, *, n_threads: int | None = None
) -> CosineInterval:
    """The exact range of a cosine over all rescalings D with condition(D) <= condition.

    Narrower than fisher_z_interval, which also allows rotations. Time O(d²) a pair.

    Parameters
    ----------
    x, y : array_like (d,), or (n, d)
        One pair of item embeddings, or n pairs row by row. A zero row has no direction: NaN.
    condition : float
        Largest entry of D over its smallest, from 1 to 1e15.
    n_threads : int, optional
        Default: the setting ``num_threads``.

    Returns
    -------
    CosineInterval
        low, high and the D that attain them, as diagonals.

    Raises
    ------
    ValueError
        Different shapes; NaN or infinity; a condition below 1.

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
    >>> found = cosine_interval(x, y, 2.0)
    >>> round(found.low, 3), round(found.high, 3)
    (0.532, 0.948)
    >>> a, b = x / found.low_rescaling, y / found.low_rescaling
    >>> round(float(a @ b / np.linalg.norm(a) / np.linalg.norm(b)), 3)
    0.532
    """
    condition = checks.as_condition("condition", condition)
    (a, b), single = checks.as_pairs(x=x, y=y)
    n, d = a.shape
    ends, weights = parallel.unfilled((n, 2), np.float64), parallel.unfilled((n, 2, d), np.float64)
    cuts = parallel.row_blocks(n, max(1, 20_000_000 // (d * d + 50 * d)))
    norms = _norms(a), _norms(b)
    parallel.run(
        intervals.box_intervals, cuts, a, b, *norms, condition**2, ends, weights,
        n_threads=n_threads,
    )  # fmt: skip
    low, high = _given_back(ends[:, 0], single), _given_back(ends[:, 1], single)
    rescalings = weights**-0.5
    first, second = rescalings[:, 0], rescalings[:, 1]
    return CosineInterval(low, high, *((first[0], second[0]) if single else (first, second)))


def tv_index(x: Any, y: Any, *, n_threads: int | None = None) -> Sensitivity:
    """How strongly a cosine depends on the scale of single latent dimensions.

    The total-variation distance between the distributions of (x̂ + ŷ)² and (x̂ - ŷ)² over the
    dimensions. To first order a rescaling of condition κ moves Fisher's z by at most index ln κ,
    and contribution l is the derivative of z by ln w_l, w = D^-2. It depends on the basis.

    Parameters
    ----------
    x, y : array_like (d,), or (n, d)
        One pair, or n pairs row by row.
    n_threads : int, optional
        Default: the setting ``num_threads``.

    Returns
    -------
    Sensitivity
        index and contributions; 0 for collinear pairs, which no rescaling moves, NaN for a pair
        with a zero row.

    Raises
    ------
    ValueError
        Different shapes; NaN or infinity.

    Examples
    --------
    >>> from fastcos.auditing import tv_index
    >>> tv_index([1.0, 1.0], [1.0, -1.0]).index
    1.0
    >>> round(tv_index([1.0, 1.0, 1.0], [1.0, 1.0, 0.9]).index, 3)
    0.379
    """
    (a, b), single = checks.as_pairs(x=x, y=y)
    n, d = a.shape
    z, index = parallel.unfilled(n, np.float64), parallel.unfilled(n, np.float64)
    contributions = parallel.unfilled((n, d), np.float64)
    norms = _norms(a), _norms(b)
    cuts = parallel.row_blocks(n, max(1, 5_000_000 // d))
    parallel.run(
        intervals.pair_indices, cuts, a, b, *norms, z, index, contributions, n_threads=n_threads
    )
    empty = (norms[0] == 0) | (norms[1] == 0)
    index[empty], contributions[empty] = np.nan, np.nan
    return Sensitivity(_given_back(index, single), contributions[0] if single else contributions)


def rescaling_distance(first: Any, second: Any) -> float:
    """Hilbert's projective distance between two metrics: twice the most that Fisher's z can differ.

    For every pair of vectors, the z of its cosines in the two metrics differ by at most half of it.

    Parameters
    ----------
    first, second : array_like (d, d), or (d,)
        Symmetric positive definite metrics, or their diagonals. A map G of item embeddings induces
        GG'; a rescaling D of (A D, B D^-1) induces the diagonal D^-2 on items.

    Returns
    -------
    float
        ln of the largest over the smallest eigenvalue of first^-1 second; a common linear change of
        coordinates, and the scale of either, do not matter.

    Raises
    ------
    ValueError
        Different sizes; a metric that is not symmetric positive definite.

    Notes
    -----
    Source: Bushell 1973 for the metric. For a map G of condition number κ, d(I, GG') = 2 ln κ.

    Examples
    --------
    >>> from fastcos.auditing import rescaling_distance
    >>> D = [1.0, 2.0, 4.0]
    >>> round(rescaling_distance([1.0, 1.0, 1.0], [d**-2 for d in D]), 4)  # 2 ln 4
    2.7726
    """
    from scipy.linalg import eigh  # here, for it takes 0.1 s to import

    one = checks.as_metric("first", first)
    other = checks.as_metric("second", second, len(one))
    if one.ndim == 1 and other.ndim == 1:
        logs = np.log(other) - np.log(one)
    else:
        matrices = [np.diag(m) if m.ndim == 1 else m for m in (one, other)]
        logs = np.log(eigh(matrices[1], matrices[0], eigvals_only=True))
    return float(logs.max() - logs.min())


def _norms(rows: Floats) -> Floats:
    norms = parallel.unfilled(len(rows), np.float64)
    pair_scores.row_norms(0, len(rows), rows, norms)
    return validation.read_only(norms)


def _given_back(values: Floats, single: bool) -> Values:
    return float(values[0]) if single else values
