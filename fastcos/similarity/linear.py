"""Cosine measures that subtract a mean from each row and then multiply the row by a matrix."""

from typing import Any

import numpy as np

from fastcos import parallel, validation
from fastcos.similarity.base import REGISTRY, BaseMeasure, Invariances, register
from fastcos.similarity.canonical import metric_factor
from fastcos.similarity.moments import gram_of, mean_of
from fastcos.similarity.row_maps import map_rows
from fastcos.similarity.row_transforms import scaled_up_rows, unit_rows
from fastcos.validation import Floats, Integers, Rows

# Eigenvalues below this share of the largest eigenvalue are rounding errors.
_RANK_TOLERANCE = 1e-12


class Mapped(BaseMeasure):
    """Cosine of the mapped rows ``(row - mean_) root_``.

    ``_fit`` sets ``mean_`` (d,) and ``root_`` (d, r); a diagonal ``root_`` has the shape (d,).
    """

    fits_in_blocks = True
    mean_: Floats
    root_: Floats

    def encode_items(self, B: Rows) -> Rows:
        """Return (B - mean) root, (p, r) float64.

        Rows that would be 0 in exact arithmetic are set to 0. If the mean is 0, rows whose squares
        would underflow are scaled up, which changes no cosine.
        """
        root = validation.check_fitted(self.name, getattr(self, "root_", None))
        mean = self.mean_
        validation.check_same_width("rows", B, "the fitted items", mean[None])
        if not mean.any():
            B = scaled_up_rows(B)
        if root.ndim == 1:
            encoded: Floats = B.astype(np.float64)
            if mean.any():
                is_rounding = np.abs(encoded - mean) <= 1e-14 * (np.abs(encoded) + np.abs(mean))
                encoded -= mean
                encoded[is_rounding] = 0
            encoded *= root
            return encoded
        return map_rows(B, root, mean)


def spectrum(S: Floats) -> tuple[Floats, Floats]:
    """Return the descending eigenvalues of a symmetric matrix, and its eigenvectors as columns."""
    with parallel.blas_lock():
        values, vectors = np.linalg.eigh(S)
    return values[::-1].copy(), np.ascontiguousarray(vectors[:, ::-1])


def root_of(S: Floats) -> Floats:
    """Return a matrix L (d, r) with S = L L', where S is positive semidefinite of rank r >= 1.

    An eigenvalue counts as zero if it is below 1e-12 times the largest eigenvalue. The function
    raises ValueError if an eigenvalue is clearly negative.
    """
    values, vectors = spectrum(S)
    if not values[0] > 0:
        raise ValueError(
            f"matrix must have a positive eigenvalue, got the largest eigenvalue {values[0]:g}"
        )
    if values[-1] < -_RANK_TOLERANCE * values[0] * len(values):
        raise ValueError(f"matrix must be positive semidefinite, got the eigenvalue {values[-1]:g}")
    is_nonzero = values > _RANK_TOLERANCE * values[0]
    return np.ascontiguousarray(vectors[:, is_nonzero] * np.sqrt(values[is_nonzero]))


def require_parameter(name: str, value: Any, measure: str) -> Any:
    """Return the value of a parameter that a measure requires; raise ValueError if it is None."""
    if value is None:
        example = f'get_measure("{measure}", {name}=...)'
        raise ValueError(f"{name} must be given, as in {example}, got None")
    return value


@register
class SoftCosine(Mapped):
    """x'S y / sqrt(x'S x y'S y), where S is a matrix of similarities of the columns.

    Pitfall: S must be positive semidefinite, because x'S x may otherwise be negative. The matrix
    [[1,.9,0],[.9,1,.9],[0,.9,1]], for example, is not positive semidefinite. Rows in the null space
    of S become zero rows. Source: Sidorov et al. 2014, doi:10.13053/CyS-18-3-2043.

    Parameters
    ----------
    matrix : array_like (d, d), optional
        S, symmetric and positive semidefinite.
    features : array_like (d, m), optional
        A feature vector of m numbers for each column, as an alternative to ``matrix``. S is the
        matrix of the cosines of the feature vectors.
    """

    name = "soft_cosine"
    needs = "matrix or features"
    invariances = Invariances(s="y", r="y", R="-", D="-", G="-", t="-")

    def __init__(self, matrix: Any = None, *, features: Any = None) -> None:
        if (matrix is None) == (features is None):
            got = "neither" if matrix is None else "both"
            example = 'get_measure("soft_cosine", matrix=...)'
            raise ValueError(f"either matrix or features must be given, as in {example}, got {got}")
        if features is not None:
            units = unit_rows(validation.as_rows("features", features))
            with parallel.blas_lock():
                matrix = units @ units.T
        S = validation.as_rows("matrix", matrix, dtype=np.float64)
        if S.shape[0] != S.shape[1]:
            raise ValueError(f"matrix must be square, got shape {S.shape}")
        asymmetry, largest = float(np.abs(S - S.T).max()), float(np.abs(S).max())
        if asymmetry > 1e-6 * largest:
            raise ValueError(f"matrix must be symmetric, got entries that differ by {asymmetry:g}")
        self.matrix = validation.read_only((S + S.T) / 2)
        self.features = None  # A saved soft cosine needs only the matrix, not the features.
        self.root_ = root_of(self.matrix)
        self.mean_ = np.zeros(len(self.matrix))

    def _fit(self, items: Rows, users: Rows | None) -> None:
        validation.check_same_width("items", items, "matrix", self.matrix)


class _OtherSide(Mapped):
    """Soft cosine of the items of a model, with a matrix S that is computed from the users.

    S is the covariance or the matrix of second moments of the users. If the compared rows are
    users, S is computed from the items.
    """

    needs = "other"
    invariances = Invariances(s="y", r="y", R="y", D="y", G="y", t="-")
    centered: bool = False

    def __init__(self, other: Any = None) -> None:
        self.other = None if other is None else validation.as_rows("other", other)

    def _fit(self, items: Rows, users: Rows | None) -> None:
        other: Rows = require_parameter("other", self.other if users is None else users, self.name)
        validation.check_same_width("other", other, "items", items)
        self.mean_ = np.zeros(items.shape[1])
        self.root_ = metric_factor(other, centered=self.centered)
        if not self.root_.shape[1]:
            raise ValueError(
                "other must have a moment matrix with a positive eigenvalue, got a zero matrix"
            )


@register
class QueryMetricCosine(_OtherSide):
    """Correlation of two items' predicted scores over all users: soft cosine with S = Cov(u).

    The value is the correlation of two columns of the predictions M = XAB'. The value stays the
    same if the model is reparametrised, or if each item is multiplied by a positive number.
    ``fastcos.query_metric`` also computes the matrix S of this measure. Pitfall: the measure needs
    many users; a direction in which the users do not differ is lost. Source: theorem 8 of this
    project.

    Parameters
    ----------
    other : array_like (n, d), optional
        User embeddings. You can also pass the user embeddings to ``fit``.
    centered : bool, default True
        If False, S is E[uu'] instead of Cov(u), and the measure equals ``project_back_items``.
    """

    name = "query_metric_cosine"

    def __init__(self, other: Any = None, *, centered: bool = True) -> None:
        super().__init__(other)
        self.centered = validation.as_flag("centered", centered)


@register
class ProjectBackItems(_OtherSide):
    """Cosine of columns of M = XAB', computed in k dimensions: soft cosine with S = P'P, P = XA.

    The measure compares two items by the predictions of the model for all users. As a remedy, the
    paper (arXiv:2403.05440, section 3) proposes to compare two users by the predictions of the
    model for all items; ``project_back_items`` applies the same remedy to items.

    Parameters
    ----------
    other : array_like (n, d), optional
        User embeddings P. You can also pass the user embeddings to ``fit``.
    """

    name = "project_back_items"


@register
class ProjectBackUsers(_OtherSide):
    """Cosine of rows of M = XAB', computed in k dimensions: soft cosine of users with S = B'B.

    Section 3 of the paper (arXiv:2403.05440) proposes the measure ``project_back_users`` as a
    remedy for arbitrary cosines. The rows that are searched are users; the argument ``other``
    contains the items. The matrix M (n, p) of all predictions is never formed.

    Parameters
    ----------
    other : array_like (p, d), optional
        Item embeddings B. You can also pass the item embeddings to ``fit``.
    """

    name = "project_back_users"
    invariances = Invariances(s="y", r="-", R="y", D="y", G="y", t="-")


@register
class AllButTheTop(Mapped):
    """Cosine of centred rows without their leading principal directions.

    Pitfall: the default number of removed directions is about d/100, which was proposed for
    embeddings of text. In collaborative filtering, the first direction is often popularity, and
    removing it may help or hurt. Source: Mu and Viswanath arXiv:1702.01417.

    Parameters
    ----------
    n_directions : int, optional
        Number of directions to remove, less than d. By default, d/100 directions are removed, but
        at least 1; for d = 1, none is removed.
    """

    name = "all_but_the_top"
    invariances = Invariances(s="y", r="-", R="y", D="-", G="-", t="y")

    def __init__(self, *, n_directions: int | None = None) -> None:
        if n_directions is not None:
            n_directions = validation.as_count("n_directions", n_directions, low=0)
        self.n_directions = n_directions

    def _fit(self, items: Rows, users: Rows | None) -> None:
        d = items.shape[1]
        n_directions = self.n_directions
        if n_directions is None:
            n_directions = min(d - 1, max(1, round(d / 100)))
        n_directions = validation.as_count("n_directions", n_directions, 0, d - 1)
        self.mean_ = mean_of(items)
        _, vectors = spectrum(gram_of(items, self.mean_))
        self.root_ = np.ascontiguousarray(vectors[:, n_directions:])


class _Whitened(Mapped):
    """Cosine in the metric of the inverse second moments of the items."""

    invariances = Invariances(s="y", r="-", R="y", D="y", G="y", t="y")

    def __init__(self, *, n_components: int | None = None, ridge: float = 0.0) -> None:
        if n_components is not None:
            n_components = validation.as_count("n_components", n_components)
        self.n_components = n_components
        self.ridge = validation.as_real("ridge", ridge, low=0)

    def _whiten(self, moment: Floats) -> None:
        """Set ``root_`` to L (d, r), where LL' is the inverse of moment + ridge * m * I.

        Constant columns of the items are dropped. Let C be the submatrix of `moment` for the
        remaining columns. The number m is the mean eigenvalue of C. C must have full rank, unless
        ``ridge`` is positive or only the leading ``n_components`` directions are used.
        """
        varying_columns = np.flatnonzero(np.diag(moment) > 0)
        values, vectors = spectrum(moment[np.ix_(varying_columns, varying_columns)])
        n_directions = len(varying_columns)
        if self.n_components is not None:
            n_directions = validation.as_count(
                "n_components", self.n_components, 1, max(1, n_directions)
            )
        largest = values[0] if len(values) else 0.0
        rank = int((values > _RANK_TOLERANCE * largest).sum())
        if self.ridge == 0 and rank < 1:
            raise ValueError(
                "items must differ from each other before they can be whitened, got identical rows"
            )
        if self.ridge == 0 and rank < n_directions:
            rule = f"vary in all {n_directions} dimensions before they can be whitened"
            got = f"{rank}: pass more rows, a smaller n_components, or a positive ridge"
            raise ValueError(f"items must {rule}, got {got}")
        values = np.maximum(values, 0) + self.ridge * values.mean()
        self.root_ = np.zeros((len(moment), n_directions))
        self.root_[varying_columns] = vectors[:, :n_directions] / np.sqrt(values[:n_directions])


@register
class WhitenedCosine(_Whitened):
    """Cosine of (x - mean) Cov^-1/2; without centring, cosine of x (B'B)^-1/2.

    Pitfalls: if the rows are not centred, and the number of dimensions equals the number of items
    (k = p), the cosine of any two different items is 0 (case 1 of the paper). Directions with small
    singular values get large weights. To avoid this, use only the ``n_components`` leading
    directions, or add a ridge. With a ridge, the measure is no longer invariant to rescalings D of
    the columns. If the rows are centred, and you neither use fewer directions nor add a ridge,
    there must be more rows than dimensions. Constant columns are dropped. Sources: Su et al.
    arXiv:2103.15316; Huang et al. arXiv:2104.01767.

    Parameters
    ----------
    centered : bool, default True
        Whether the mean of the items is subtracted from the rows.
    n_components : int, optional
        Number of leading directions to use. Default: all.
    ridge : float, default 0
        This number times the mean eigenvalue is added to every eigenvalue.
    """

    name = "whitened_cosine"

    def __init__(
        self, *, centered: bool = True, n_components: int | None = None, ridge: float = 0.0
    ) -> None:
        super().__init__(n_components=n_components, ridge=ridge)
        self.centered = validation.as_flag("centered", centered)

    def _fit(self, items: Rows, users: Rows | None) -> None:
        self.mean_ = mean_of(items) if self.centered else np.zeros(items.shape[1])
        self._whiten(gram_of(items, self.mean_))


# Independent component analysis (ICA) rotates whitened rows. A rotation changes no cosine, so
# "ica_cosine" is a second name of WhitenedCosine. (Yamagiwa et al., arXiv:2406.10984, also split
# the cosine into one part per axis; WhitenedCosine does not.)
REGISTRY["ica_cosine"] = WhitenedCosine


@register
class PopularityWhitenedCosine(_Whitened):
    """Cosine after whitening with the popularity-weighted mean and covariance (Zipfian whitening).

    This measure has the same pitfalls as ``whitened_cosine``. Source: Yokoi et al.
    arXiv:2411.00680.

    Parameters
    ----------
    popularity : array_like (p,), optional
        The popularity of each item, as counts or as shares, at least 0. Required.
    n_components : int, optional
    ridge : float, default 0
        As in ``whitened_cosine``.
    """

    name = "popularity_whitened_cosine"
    needs = "popularity"

    def __init__(
        self, popularity: Any = None, *, n_components: int | None = None, ridge: float = 0.0
    ) -> None:
        super().__init__(n_components=n_components, ridge=ridge)
        popularity = require_parameter("popularity", popularity, self.name)
        self.popularity = validation.as_vector("popularity", popularity)

    def _fit(self, items: Rows, users: Rows | None) -> None:
        shares = validation.as_probabilities("popularity", self.popularity, len(items))
        self.mean_ = mean_of(items, shares)
        self._whiten(gram_of(items, self.mean_, shares))


@register
class CausalInnerProduct(_Whitened):
    """x'Cov^-1 y / sqrt(x'Cov^-1 x y'Cov^-1 y), where x and y are not centred.

    Pitfall: the covariance must have full rank, so there must be more rows than dimensions;
    constant columns are dropped. Source: Park et al. arXiv:2311.03658.

    Parameters
    ----------
    n_components : int, optional
    ridge : float, default 0
        As in ``whitened_cosine``.
    """

    name = "causal_inner_product"
    invariances = Invariances(s="y", r="-", R="y", D="y", G="y", t="-")

    def _fit(self, items: Rows, users: Rows | None) -> None:
        self.mean_ = np.zeros(items.shape[1])
        self._whiten(gram_of(items, mean_of(items)))


def as_pairs(name: str, pairs: Any, n_items: int | None = None, min_pairs: int = 2) -> Integers:
    """Return pairs of item numbers as an int64 array (m, 2).

    The function raises ValueError if there are fewer than ``min_pairs`` pairs, or if an item number
    is invalid.
    """
    array = np.asarray(pairs)
    is_integer = array.dtype.kind in "iu"
    if array.ndim != 2 or array.shape[1] != 2 or len(array) < min_pairs or not is_integer:
        rule = f"be whole numbers of shape (m, 2), m >= {min_pairs}"
        raise ValueError(f"{name} must {rule}, got {array.dtype} of shape {array.shape}")
    if array.min(initial=0) < 0:
        raise ValueError(f"{name} must be at least 0, got {array.min()}")
    if n_items is not None and array.max(initial=-1) >= n_items:
        raise ValueError(f"{name} must be below {n_items}, the number of items, got {array.max()}")
    return validation.read_only(array.astype(np.int64))


def check_varied(name: str, values: Floats) -> None:
    """Raise ValueError if all values are equal."""
    if values.min() == values.max():
        raise ValueError(f"{name} must have two different values, got only {values[0]:g}")


@register
class LearnedDiagonal(Mapped):
    """Σ w x y / sqrt(Σ w x² Σ w y²), where the column weights w are fitted to labelled pairs.

    The weights maximise the correlation between the values of the measure and the targets. The
    weights w stand for a rescaling D = w^-½ with a condition number of at most κ, so the largest
    weight is at most κ² times the smallest weight. The optimisation starts from equal weights, for
    which the measure is the plain cosine, and ends in a local maximum of the correlation. On the
    fitted pairs, the correlation is never lower than with the plain cosine. Pitfalls: the measure
    fits d numbers, so pass many more pairs than columns, and evaluate the measure on other pairs.
    The measure depends on the basis of the embeddings. Source: this project; the idea of a learned
    similarity is from Herbold, arXiv:2309.12697.

    Parameters
    ----------
    pairs : array_like (m, 2), int, optional
        The row numbers of the two items of each pair. Required.
    targets : array_like (m,), optional
        The similarity of each pair, on any scale: for example, 0 for dissimilar pairs and 1 for
        similar pairs. Required.
    condition : float, default 10
        κ, the largest allowed condition number of the rescaling D; at least 1.
    """

    name = "learned_diagonal"
    needs = "pairs and targets"
    invariances = Invariances(s="y", r="y", R="-", D="-", G="-", t="-")

    def __init__(self, pairs: Any = None, targets: Any = None, *, condition: float = 10.0) -> None:
        self.pairs = as_pairs("pairs", require_parameter("pairs", pairs, self.name))
        targets = require_parameter("targets", targets, self.name)
        self.targets = validation.as_vector("targets", targets, len(self.pairs))
        check_varied("targets", self.targets)
        self.condition = validation.as_real("condition", condition, low=1)

    def _fit(self, items: Rows, users: Rows | None) -> None:
        """Fit the logarithms of the weights by L-BFGS-B."""
        from scipy.optimize import minimize

        pairs = as_pairs("pairs", self.pairs, len(items))
        x, y = (unit_rows(items[pairs[:, side]]) for side in (0, 1))
        is_directed = x.any(axis=1) & y.any(axis=1)
        if not is_directed.any():
            raise ValueError(
                "pairs must contain at least one pair without a zero row, got a zero row in every "
                "pair"
            )
        moments = (x * y)[is_directed], (x * x)[is_directed], (y * y)[is_directed]
        targets = self.targets[is_directed] - self.targets[is_directed].mean()
        limit, start = np.log(self.condition), np.zeros(items.shape[1])
        bounds = [(-limit, limit)] * len(start)
        result = minimize(_loss, start, (*moments, targets), "L-BFGS-B", jac=True, bounds=bounds)
        is_better = result.fun < _loss(start, *moments, targets)[0]
        self.mean_ = np.zeros(len(start))
        self.root_ = np.exp((result.x if is_better else start) / 2)


def _loss(
    logs: Floats, xy: Floats, xx: Floats, yy: Floats, targets: Floats
) -> tuple[float, Floats]:
    """Return -c and its gradient; c is the correlation of weighted cosines and centred targets.

    ``logs`` (d,) contains the logarithms of the weights. If x and y are the rows of pair i, row i
    of ``xy`` (m, d) is x * y, row i of ``xx`` is x * x, and row i of ``yy`` is y * y.
    """
    w = np.exp(logs)
    with parallel.blas_lock():
        a, b = xx @ w, yy @ w
        norms = np.sqrt(a * b)
        cosines = (xy @ w) / norms
        centred = cosines - cosines.mean()
        norm, target_norm = np.linalg.norm(centred), np.linalg.norm(targets)
        if norm <= 1e-12 or target_norm == 0:
            return 0.0, np.zeros(len(w))
        correlation = float(centred @ targets / (norm * target_norm))
        slope = targets / (norm * target_norm) - correlation * centred / norm**2
        gradient = (slope / norms) @ xy - 0.5 * (
            (slope * cosines / a) @ xx + (slope * cosines / b) @ yy
        )
    return -correlation, -gradient * w
