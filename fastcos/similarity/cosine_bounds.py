"""Ranges of a cosine over the rescalings that leave a model's predictions unchanged.

If the users of a model are multiplied by a diagonal matrix D, and the items are multiplied by the
inverse of D, the predictions stay the same but the cosines change. The predictions also stay the
same if D is replaced by any invertible matrix G. If D may be any diagonal matrix, the cosine of
nearly any two items can take nearly any value. The functions of this module therefore compute
ranges over all D whose condition number is at most the argument ``condition``. The condition number
of D is max |d| / min |d|. A rescaling D changes Fisher's z = artanh(cosine) by at most the
logarithm of the condition number of D. The proofs are in docs/explanation/proofs.md.
"""

from typing import Any, NamedTuple

import numpy as np

from fastcos import parallel, validation
from fastcos.kernels import intervals, records
from fastcos.similarity.encoded_rows import row_norms
from fastcos.validation import Floats

Values = Any  # a float for one pair, an array (n,) of float64 for n pairs

# The default condition number of a rescaling. The condition number is the largest entry of the
# rescaling divided by its smallest entry. If a model is trained to convergence twice, with two
# random seeds, the two results differ by a rescaling whose condition number is about 1.2
# (docs/explanation/scale_of_dimensions.md). A neighbour is certified at a condition number c if it
# certainly survives every rescaling with a condition number of at most c. The certified share at c
# is the share of neighbours that are certified at c. At a condition number of 1.2, the certified
# share distinguishes well between the nine embeddings in docs/howto/audit.md. It ranges from 4 %
# for isotropic noise to 76 % for a model of Eq. 2 of the paper. The nine shares differ more at this
# condition number than at any other. At a condition number of 2, only one of these nine embeddings
# has a certified share above 20 %.
CONDITION = 1.2
# The largest condition number that is accepted. The weights of the dimensions in a cosine can be as
# large as the square of the condition number. For weights above 1e30, float64 sums would not be
# precise enough.
LARGEST_CONDITION = 1e15


class Interval(NamedTuple):
    """The smallest and the largest value of a cosine.

    Attributes
    ----------
    low, high : float, or ndarray (n,), float64
    """

    low: Values
    high: Values


class CosineInterval(NamedTuple):
    """The exact range of a cosine over rescalings, and the rescalings that attain its ends.

    Attributes
    ----------
    low, high : float, or ndarray (n,), float64
        The ends of the range. Both ends are NaN for a pair with a zero row, because a zero row has
        no direction.
    low_rescaling, high_rescaling : ndarray (d,), or (n, d), float64
        The diagonals of two rescalings: the cosine of x / D and y / D is ``low`` for
        D = ``low_rescaling`` and ``high`` for D = ``high_rescaling``. The entries of the diagonals
        lie between 1 / condition and 1.
    """

    low: Values
    high: Values
    low_rescaling: Floats
    high_rescaling: Floats


class Sensitivity(NamedTuple):
    """The sensitivity of a cosine to rescalings, in total and for each latent dimension.

    Attributes
    ----------
    index : float, or ndarray (n,), float64
        The sensitivity index, from 0 to 1. If the sensitivity index is 0, the cosine is constant to
        first order under small rescalings.
    contributions : ndarray (d,), or (n, d), float64
        The contribution of each dimension to the sensitivity. Contributions may be positive or
        negative. All contributions sum to 0, and their absolute values sum to the sensitivity
        index.
    """

    index: Values
    contributions: Floats


def fisher_z_interval(cosine: Any, condition: float) -> Interval:
    """Return the range of a cosine over all linear maps G whose condition number is limited.

    The range is exact: each end of the range is the cosine under some invertible matrix G with a
    condition number of at most ``condition``. Let z = artanh(cosine) be Fisher's z of the given
    cosine. For every pair of vectors with this cosine, the range of Fisher's z extends from z -
    ln(``condition``) to z + ln(``condition``).

    Source: Wielandt's angle bound, and Bauer and Householder 1960, restated for Fisher's z.

    Parameters
    ----------
    cosine : float or array_like (n,)
        The cosine, from -1 to 1.
    condition : float
        The largest allowed condition number of G, at least 1. The condition number is the largest
        singular value of G divided by the smallest.

    Returns
    -------
    Interval
        ``low`` and ``high``, float or (n,) float64.

    Examples
    --------
    >>> from fastcos.auditing import fisher_z_interval
    >>> low, high = fisher_z_interval(0.8, 2.0)
    >>> round(low, 3), round(high, 3)
    (0.385, 0.946)
    """
    condition = as_condition("condition", condition)
    values = validation.as_vector("cosine", np.atleast_1d(cosine))
    # Cosines of float32 rows may exceed 1 by rounding, so a small excess is clipped.
    outside = np.flatnonzero(np.abs(values) > 1 + 1e-6)
    if len(outside):
        first = int(outside[0])
        raise ValueError(f"cosine must be from -1 to 1, got {values[first]!r} at position {first}")
    with np.errstate(divide="ignore"):
        z = np.arctanh(np.clip(values, -1.0, 1.0))
    low, high = np.tanh(z - np.log(condition)), np.tanh(z + np.log(condition))
    return Interval(low, high) if np.ndim(cosine) else Interval(float(low[0]), float(high[0]))


def unbounded_range(x: Any, y: Any) -> Interval:
    """Return the range of a cosine over all rescalings, whatever their condition numbers are.

    Let x_l and y_l be the entries of x and y in dimension l. The range depends on the signs of the
    products x_l y_l:

    - If some products are positive and some are negative, the range is -1 to 1.
    - If some products are positive and none is negative, the upper end of the range is 1. The lower
      end is 0 if, in some dimension, one of x_l and y_l is zero and the other is not. Otherwise,
      let r be the smallest ratio y_l / x_l over the dimensions with nonzero entries, and let s be
      the largest of these ratios. The lower end is then 2 sqrt(r s) / (r + s).
    - If some products are negative and none is positive, let a be the lower end and b the upper end
      of the range for the vectors x and -y. The range for x and y is then -b to -a.
    - If all products are zero, the cosine is always 0.

    A cosine can come arbitrarily close to an end of the range, but need not reach it.

    Source: the lower end is the constant in Cassels' inequality. The same inequality is also named
    after Pólya and Szegő, and after Greub and Rheinboldt (1959).

    Parameters
    ----------
    x, y : array_like (d,), or (n, d)
        Two vectors, or two arrays of n rows each. Row i of x and row i of y form a pair.

    Returns
    -------
    Interval
        ``low`` and ``high``, float or (n,) float64; NaN for a pair with a zero row.

    Examples
    --------
    >>> from fastcos.auditing import unbounded_range
    >>> unbounded_range([1.0, 2.0, -1.0], [2.0, 1.0, 1.0])
    Interval(low=-1.0, high=1.0)
    >>> unbounded_range([1.0, 1.0], [1.0, 4.0])
    Interval(low=0.8, high=1.0)
    """
    (a, b), is_single = _as_pairs(x, y)
    signs = np.sign(a) * np.sign(b)
    has_positive, has_negative = (signs > 0).any(axis=1), (signs < 0).any(axis=1)
    has_one_sided_zero = ((a == 0) != (b == 0)).any(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        log_ratios = np.where(signs != 0, np.log(np.abs(b)) - np.log(np.abs(a)), np.nan)
    span = np.fmax.reduce(log_ratios, axis=1) - np.fmin.reduce(log_ratios, axis=1)
    # Let the ratios |b / a| of the entries range from r to s. The inner end of the interval is
    # 2 sqrt(r s) / (r + s). With span = log(s / r), this equals 1 / cosh(span / 2).
    inner_end = np.where(has_one_sided_zero, 0.0, 1.0 / np.cosh(0.5 * np.nan_to_num(span)))
    low = np.where(has_negative, -1.0, np.where(has_positive, inner_end, 0.0))
    high = np.where(has_positive, 1.0, np.where(has_negative, 0.0 - inner_end, 0.0))
    is_undefined = ~a.any(axis=1) | ~b.any(axis=1)
    low[is_undefined], high[is_undefined] = np.nan, np.nan
    return Interval(_float_or_array(low, is_single), _float_or_array(high, is_single))


def cosine_interval(
    x: Any, y: Any, condition: float, *, n_threads: int | None = None
) -> CosineInterval:
    """Return the exact range of a cosine over all rescalings D with a bounded condition number.

    The range over rescalings is never wider than the range of :func:`fisher_z_interval`, which
    allows all linear maps with a condition number of at most ``condition``. Computing the range
    takes O(d²) time per pair.

    Parameters
    ----------
    x, y
        As in :func:`unbounded_range`.
    condition : float
        The largest allowed condition number of D, from 1 to 1e15. The condition number is the
        largest entry of D divided by the smallest.
    n_threads : int, optional
        As in :func:`fastcos.top_k`.

    Returns
    -------
    CosineInterval
        ``low`` and ``high``, and the diagonals of two rescalings D that attain ``low`` and
        ``high``.

    Notes
    -----
    In the cosine of x / D and y / D, the weights of the dimensions are w = D^-2. If the largest
    cosine is positive, it is attained by weights with only two different values: every weight is
    either the smallest or the largest allowed value. In every dimension with the largest weight,
    the product x_l y_l of the entries of x and y is positive. If the dimensions with a positive
    product are sorted by y_l / x_l, the dimensions with the largest weight are adjacent.

    If the smallest cosine is not negative, it is computed from linear-fractional programmes, one
    for every value of a positive parameter t. Each programme has a minimum. The smallest cosine is
    the largest of these minima, over all values of t (Sion 1958, Dinkelbach 1967).

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
    (a, b), is_single = _as_pairs(x, y)
    n, d = a.shape
    ends, weights = parallel.unfilled((n, 2), np.float64), parallel.unfilled((n, 2, d), np.float64)
    # A block of 20 million operations takes milliseconds, so the time for scheduling the blocks is
    # negligible.
    blocks = parallel.row_blocks(n, max(1, 20_000_000 // (d * d + 50 * d)))
    norms = row_norms(a, n_threads), row_norms(b, n_threads)
    parallel.run(
        intervals.box_intervals, blocks, records.RowPairs(a, b, *norms), condition**2, ends,
        weights,
        n_threads=n_threads,
    )  # fmt: skip
    low, high = _float_or_array(ends[:, 0], is_single), _float_or_array(ends[:, 1], is_single)
    rescalings = weights**-0.5
    low_D, high_D = rescalings[:, 0], rescalings[:, 1]
    return CosineInterval(low, high, *((low_D[0], high_D[0]) if is_single else (low_D, high_D)))


def tv_index(x: Any, y: Any, *, n_threads: int | None = None) -> Sensitivity:
    """Measure how strongly a cosine depends on the scales of the latent dimensions.

    Let x̂ and ŷ be x and y scaled to unit norm. The sensitivity index is the total-variation
    distance between two probability distributions over the dimensions. The first distribution
    consists of the entries of (x̂ + ŷ)², divided by their sum. The second distribution consists of
    the entries of (x̂ - ŷ)², divided by their sum. To first order, a rescaling D with the condition
    number κ changes Fisher's z = artanh(cosine) by at most the sensitivity index times ln κ. The
    contribution of dimension l is the derivative of z with respect to ln w_l, where w = D^-2 are
    the weights of the dimensions in the cosine. The sensitivity index and the contributions depend
    on the basis of the embeddings.

    Parameters
    ----------
    x, y, n_threads
        As in :func:`cosine_interval`.

    Returns
    -------
    Sensitivity
        index and contributions. The sensitivity index and the contributions are 0 for collinear
        pairs, because no rescaling changes the cosine of a collinear pair. For a pair with a zero
        row, the sensitivity index and the contributions are NaN.

    Examples
    --------
    >>> from fastcos.auditing import tv_index
    >>> tv_index([1.0, 1.0], [1.0, -1.0]).index
    1.0
    >>> round(tv_index([1.0, 1.0, 1.0], [1.0, 1.0, 0.9]).index, 3)
    0.379
    """
    (a, b), is_single = _as_pairs(x, y)
    n, d = a.shape
    z, index = parallel.unfilled(n, np.float64), parallel.unfilled(n, np.float64)
    contributions = parallel.unfilled((n, d), np.float64)
    norms = row_norms(a, n_threads), row_norms(b, n_threads)
    blocks = parallel.row_blocks(n, max(1, 5_000_000 // d))
    parallel.run(
        intervals.pair_indices, blocks, records.RowPairs(a, b, *norms), z, index, contributions,
        n_threads=n_threads,
    )  # fmt: skip
    is_undefined = (norms[0] == 0) | (norms[1] == 0)
    index[is_undefined], contributions[is_undefined] = np.nan, np.nan
    return Sensitivity(
        _float_or_array(index, is_single), contributions[0] if is_single else contributions
    )


def rescaling_distance(first: Any, second: Any) -> float:
    """Return Hilbert's projective distance between two metrics.

    The cosine of two vectors depends on the metric. If one metric is replaced by the other,
    Fisher's z = artanh(cosine) changes by at most half of Hilbert's distance between the metrics.
    For a map G with the condition number κ, the distance between the metrics I and GG' is 2 ln κ.

    Source: Bushell 1973.

    Parameters
    ----------
    first, second : array_like (d, d), or (d,)
        Symmetric positive definite metrics, or the diagonals of diagonal metrics. If the items B
        are mapped to B G, the metric is GG'. If the items are rescaled to B D^-1, the metric is
        D^-2.

    Returns
    -------
    float
        Let M be the matrix ``inv(first) @ second``. The distance is the logarithm of the ratio of
        the largest to the smallest eigenvalue of M. The distance does not change if both metrics
        undergo the same linear change of coordinates, or if one metric is multiplied by a positive
        number.

    Examples
    --------
    >>> from fastcos.auditing import rescaling_distance
    >>> D = [1.0, 2.0, 4.0]
    >>> round(rescaling_distance([1.0, 1.0, 1.0], [d**-2 for d in D]), 4)  # 2 ln 4
    2.7726
    """
    from scipy.linalg import eigh  # Importing scipy.linalg takes 0.1 s, so it is deferred.

    first = _as_metric("first", first)
    second = _as_metric("second", second, len(first))
    if first.ndim == 1 and second.ndim == 1:
        log_eigenvalues = np.log(second) - np.log(first)
    else:
        matrices = [np.diag(m) if m.ndim == 1 else m for m in (first, second)]
        log_eigenvalues = np.log(eigh(matrices[1], matrices[0], eigvals_only=True))
    return float(log_eigenvalues.max() - log_eigenvalues.min())


def as_condition(name: str, condition: Any) -> float:
    """Return a condition number as a float; raise ValueError unless 1 <= condition <= 1e15."""
    return validation.as_real(name, condition, low=1, high=LARGEST_CONDITION)


def _as_pairs(x: Any, y: Any) -> tuple[list[Floats], bool]:
    """Return x and y as float64 matrices (n, d), and whether both arguments are vectors (d,).

    Each row is divided by its largest absolute entry, so that squares of entries neither overflow
    nor underflow. Dividing a row by a positive number changes no cosine.
    """
    sides = {"x": validation.as_array("x", x), "y": validation.as_array("y", y)}
    is_single = all(side.ndim == 1 for side in sides.values())
    rows = [
        validation.as_rows(name, side, dtype=np.float64, or_vector=is_single)
        for name, side in sides.items()
    ]
    validation.check_same_width("y", rows[1], "x", rows[0])
    validation.check_length("y", rows[1], len(rows[0]), "x")
    largest = [np.abs(side).max(axis=1, keepdims=True) for side in rows]
    scaled = [
        validation.read_only(np.asarray(side / np.where(entry > 0, entry, 1.0), np.float64))
        for side, entry in zip(rows, largest, strict=True)
    ]
    return scaled, is_single


def _as_metric(name: str, metric: Any, size: int | None = None) -> Floats:
    """Return the metric as a positive definite matrix (d, d), or as its diagonal (d,)."""
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


def _float_or_array(values: Floats, is_single: bool) -> Values:
    return float(values[0]) if is_single else values
