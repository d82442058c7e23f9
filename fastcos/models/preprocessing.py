"""Transformers that scale interactions or convert them to co-occurrences before training.

All transformers of this module keep X sparse and follow the conventions of scikit-learn: ``fit``
learns parameters from X, and ``transform`` applies these parameters to the same rows or to other
rows. Subtracting means would make X dense, so :class:`StandardizeColumns` only scales the columns.
To subtract the means without making X dense, pass them as ``center=`` to :func:`fastcos.matmul` or
to the SVD.
"""

import itertools
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, check_non_negative

from fastcos import config, parallel, validation
from fastcos.linalg import column_stats
from fastcos.linalg.products import matmul
from fastcos.models.base import SparseInputMixin
from fastcos.validation import Floats

# Number of bytes that each entry of X'X takes while X'X is converted to PPMI. During the
# conversion, memory contains each entry in CSR form and in coordinate form, and also intermediate
# results.
_BYTES_PER_PRODUCT = 64


class Biases(NamedTuple):
    """The vectors ``row_center`` (n,) and ``center`` (p,): arguments of ``matmul`` and the SVD.

    If ``row_center`` and ``center`` are passed, ``matmul`` and the SVD use the matrix X -
    row_center 1' - 1 center' instead of X.
    """

    row_center: Floats | None
    center: Floats | None


def biases(X: Any, rows: bool = True, columns: bool = True) -> Biases:
    """Return the row means and the column means of a validated matrix or of InteractionShards.

    The call ``matmul(X, A, **biases(X)._asdict())`` subtracts the means without making X dense.
    Subtracting both the row means r and the column means m is called double centring. In the matrix
    X - r 1' - 1 m' + μ, where μ is the overall mean, every row and every column sums to 0. If the
    function returns both row means and column means, the overall mean has been subtracted from each
    returned column mean. Otherwise, the overall mean would be subtracted from X twice. Source:
    arXiv:2403.05440, footnote 1.

    Examples
    --------
    >>> import numpy as np
    >>> from fastcos.models.preprocessing import biases
    >>> X = np.array([[1.0, 3.0], [5.0, 7.0]])
    >>> r, m = biases(X)
    >>> (X - r[:, None] - m).tolist()
    [[0.0, 0.0], [0.0, 0.0]]
    """
    row_means = column_means = None
    if rows:
        sums = matmul(X, np.ones((X.shape[1], 1)))[:, 0]
        row_means = np.asarray(sums / X.shape[1], np.float64)
    if columns:
        column_means = column_stats.means(X)
    if column_means is not None and rows:
        column_means = column_means - column_means.mean()
    return Biases(row_means, column_means)


class _Transformer(
    SparseInputMixin,
    OneToOneFeatureMixin,  # type: ignore[misc]  # scikit-learn ships no types
    TransformerMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
):
    """Base class of the transformers in this module."""


def _scaled(X: Any, rows: Floats | None = None, columns: Floats | None = None) -> Any:
    """Return diag(rows) X diag(columns) in the type of X; the result is sparse if X is sparse."""
    if not sp.issparse(X):
        out = X.astype(np.float64)
        if rows is not None:
            out *= rows[:, None]
        if columns is not None:
            out *= columns
        return out.astype(X.dtype)
    data = X.data.astype(np.float64)
    if rows is not None:
        data *= np.repeat(rows, np.diff(X.indptr))
    if columns is not None:
        data *= columns[X.indices]
    return sp.csr_array((data.astype(X.dtype), X.indices, X.indptr), shape=X.shape)


def _power(values: Floats, exponent: float) -> Floats:
    """Return each value raised to the power ``exponent``, or 0 if the value is 0."""
    positive = values > 0
    return np.where(positive, np.where(positive, values, 1.0) ** exponent, 0.0)


class StandardizeColumns(_Transformer):
    """Transformer that divides each column by its standard deviation, and stores the column means.

    The standardised matrix is (X - 1 mean') diag(1 / sd). To keep X sparse, ``transform`` does not
    subtract the means: it returns X diag(1 / sd). To subtract the means, pass
    ``center=transformer.center_`` to ``matmul`` and to the SVD, or use ``LinearMF(center=True)``. A
    constant column of X becomes a zero column.

    Attributes
    ----------
    mean_, scale_ : ndarray (p,), float64
        Means and standard deviations of the columns of X.
    center_ : ndarray (p,), float64
        Means of the scaled columns.
    n_features_in_ : int

    Notes
    -----
    Source: arXiv:2403.05440, section 3.

    Examples
    --------
    >>> import numpy as np
    >>> from fastcos.models.preprocessing import StandardizeColumns
    >>> scaler = StandardizeColumns()
    >>> scaler.fit_transform(np.array([[1.0, 5.0], [3.0, 5.0]])).tolist()
    [[1.0, 0.0], [3.0, 0.0]]
    >>> scaler.center_.tolist()
    [2.0, 0.0]
    """

    def fit(self, X: Any, y: Any = None) -> "StandardizeColumns":
        """Learn the means and the standard deviations of the columns of X (n, p)."""
        X = self._as_matrix(X, reset=True)
        n, p = X.shape
        self.mean_ = X.sum(axis=0, dtype=np.float64) / n
        squares = np.zeros(p)
        if sp.issparse(X):
            # Sum the squared deviations from the column mean. The first sum contains the non-zeros;
            # the zeros are added afterwards.
            deviations = np.square(X.data - self.mean_[X.indices])
            squares = np.bincount(X.indices, deviations, p)
            n_zeros = n - np.bincount(X.indices, minlength=p)
            squares += n_zeros * np.square(self.mean_)
        else:
            for lo in range(0, n, 4096):
                squares += np.square(X[lo : lo + 4096] - self.mean_).sum(axis=0)
        self.scale_ = np.sqrt(squares / n)
        # The computed standard deviation of a constant column is a rounding error, so set it to 0.
        self.scale_[self.scale_ <= 1e-14 * np.abs(self.mean_)] = 0
        self.center_ = self.mean_ * _power(self.scale_, -1.0)
        return self

    def transform(self, X: Any) -> Any:
        """Return the rows X (m, p), with each column divided by its standard deviation."""
        check_is_fitted(self)
        return _scaled(self._as_matrix(X, reset=False), columns=_power(self.scale_, -1.0))

    def inverse_transform(self, X: Any) -> Any:
        """Return the rows X (m, p), with each column multiplied by its standard deviation.

        A column that was constant in ``fit`` becomes zero.
        """
        check_is_fitted(self)
        return _scaled(self._as_matrix(X, reset=False), columns=self.scale_)


class NormalizeRows(_Transformer):
    """Transformer that divides every row by its Euclidean norm; zero rows stay zero.

    Attributes
    ----------
    n_features_in_ : int

    Notes
    -----
    Normalising the rows before training changes the model that is trained. Normalising the vectors
    after training has no effect if the vectors are compared by the cosine, which normalises them
    anyway. Source: arXiv:2403.05440, section 3.

    Examples
    --------
    >>> import numpy as np
    >>> from fastcos.models.preprocessing import NormalizeRows
    >>> NormalizeRows().fit_transform(np.array([[3.0, 4.0]])).round(12).tolist()
    [[0.6, 0.8]]
    """

    def fit(self, X: Any, y: Any = None) -> "NormalizeRows":
        """Store the number of columns of X (n, p); nothing else is learnt."""
        self._as_matrix(X, reset=True)
        return self

    def transform(self, X: Any) -> Any:
        """Return the rows X (m, p), each divided by its norm."""
        check_is_fitted(self, "n_features_in_")
        X = self._as_matrix(X, reset=False)
        largest = np.asarray(abs(X).max(axis=1).toarray() if sp.issparse(X) else abs(X).max(axis=1))
        largest = largest.ravel().astype(np.float64)
        # Scale the rows by powers of 2, so that their squares neither overflow nor underflow. Each
        # power of 2 is split into two factors, because a single factor may overflow.
        half, remainder = np.divmod(-np.frexp(largest)[1], 2)
        X = _scaled(_scaled(X, rows=np.exp2(half)), rows=np.exp2(half + remainder))
        return _scaled(X, rows=_power((X * X).sum(axis=1, dtype=np.float64), -0.5))


class PopularityWeights(_Transformer):
    """Transformer that weights users by their activity and items by their popularity.

    The result is diag(activity^-row_power) X diag(popularity^-column_power).

    The weights are inverse propensity scores, with the exponent ``column_power`` for the items and
    the exponent ``row_power`` for the users. If both exponents are ½, the result is the matrix of
    correspondence analysis, whose largest singular value is 1. The popularity of an item is the
    column sum of |X| in ``fit``, and the activity of a user is the row sum of |X| in ``transform``.
    A row or a column with a sum of 0 gets the weight 0.

    Parameters
    ----------
    column_power : float, default 0.5
        Exponent of the popularities; a negative exponent favours popular items. Do not confuse
        ``column_power`` with the exponent 3/4 of word2vec, which belongs to the distribution of
        negative samples (``negative_exponent`` in ``CosineMF``).
    row_power : float, default 0
        Exponent of the activities of the users.

    Attributes
    ----------
    popularity_ : ndarray (p,), float64
        Column sums of |X| for the matrix X that was passed to ``fit``.
    n_features_in_ : int

    Notes
    -----
    Sources: arXiv:2403.05440, section 3; Schnabel et al., arXiv:1602.05352, for propensities;
    Greenacre 1984, for correspondence analysis; Mikolov et al., arXiv:1310.4546, for the exponent
    3/4 of word2vec.

    Examples
    --------
    >>> import numpy as np
    >>> from fastcos.models.preprocessing import PopularityWeights
    >>> X = np.array([[1.0, 1.0], [3.0, 0.0]])
    >>> PopularityWeights(column_power=0.5).fit_transform(X).tolist()
    [[0.5, 1.0], [1.5, 0.0]]
    """

    def __init__(self, column_power: float = 0.5, row_power: float = 0.0) -> None:
        self.column_power = column_power
        self.row_power = row_power

    def fit(self, X: Any, y: Any = None) -> "PopularityWeights":
        """Learn the popularities of the items, which are the columns of X (n, p)."""
        X = self._as_matrix(X, reset=True)
        validation.as_real("column_power", self.column_power)
        validation.as_real("row_power", self.row_power)
        self.popularity_ = abs(X).sum(axis=0, dtype=np.float64)
        return self

    def transform(self, X: Any) -> Any:
        """Return the rows X (m, p), weighted by activity of users and popularity of items."""
        check_is_fitted(self)
        X = self._as_matrix(X, reset=False)
        columns, rows = _power(self.popularity_, -self.column_power), None
        if self.row_power:
            rows = _power(abs(X).sum(axis=1, dtype=np.float64), -self.row_power)
        return _scaled(X, rows, columns)


class ShiftedPPMI(_Transformer):
    """Transformer that multiplies X by the shifted positive pointwise mutual information (PPMI).

    The co-occurrence count #(i,j) of the items i and j is Σ x_i x_j over the rows of X. If X is
    binary, #(i,j) is the number of rows that contain both items. The count #(i) of an item i is the
    sum of #(i,j) over all other items j. The shifted PPMI of the items i and j is max(0, ln(#(i,j)
    Σ_c #(c)^β / (#(i) #(j)^β)) - ln shift), where the sum is over all items c.

    ``fit`` computes the shifted PPMI of every pair of different items, and stores the values in
    ``ppmi_``. ``ppmi_`` is a CSR matrix (p, p), which is symmetric only for β = 1. ``transform``
    returns the product of X and ``ppmi_``. The SVD of ``ppmi_`` approximates skip-gram with
    negative sampling. The factors of skip-gram generally differ from the factors of this SVD,
    because skip-gram does not replace negative values by 0, and because the loss of skip-gram is
    weighted.

    Parameters
    ----------
    smoothing : float, default 0.75
        Exponent β of the counts of context items, from 0 to 1.
    shift : float, default 1
        The number of negative samples in skip-gram, at least 1. If the shift is 1, ``ppmi_``
        contains the PPMI without a shift, because ln 1 = 0.

    Attributes
    ----------
    ppmi_ : csr_array (p, p), float64
        The shifted PPMI of every pair of different items.
    n_features_in_ : int
        Number p of columns.

    Notes
    -----
    The transformer needs memory for the non-zeros of ppmi_, and at most ``working_memory`` for
    blocks of rows of X'X. A negative entry in X raises ValueError. Sources: Levy and Goldberg, NIPS
    2014; Levy, Goldberg and Dagan, doi:10.1162/tacl_a_00134.

    Examples
    --------
    >>> import numpy as np
    >>> from fastcos.models.preprocessing import ShiftedPPMI
    >>> X = np.array([[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 1.0]])
    >>> ShiftedPPMI(smoothing=1.0).fit(X).ppmi_.toarray().round(2)[0].tolist()
    [0.0, 1.1, 0.0, 0.0]
    """

    def __init__(self, smoothing: float = 0.75, shift: float = 1.0) -> None:
        self.smoothing = smoothing
        self.shift = shift

    def fit(self, X: Any, y: Any = None) -> "ShiftedPPMI":
        """Compute the attribute ``ppmi_`` from X (n, p)."""
        X = self._as_matrix(X, reset=True)
        smoothing = validation.as_real("smoothing", self.smoothing, low=0, high=1)
        shift = np.log(validation.as_real("shift", self.shift, low=1))
        X = sp.csr_array(X, dtype=np.float64)
        check_non_negative(X, "ShiftedPPMI")
        columns, lengths = sp.csr_array(X.T), np.diff(X.indptr)
        # The counts #(i) are the row sums of the co-occurrence matrix without its diagonal.
        totals = columns @ (X @ np.ones(X.shape[1])) - (X * X).sum(axis=0)
        contexts = _power(totals, smoothing)
        with np.errstate(divide="ignore"):
            row_terms, column_terms = np.log(totals), np.log(contexts)
        constant = np.log(contexts.sum()) - shift if contexts.any() else 0.0
        work = np.bincount(X.indices, np.repeat(lengths, lengths), X.shape[1]).astype(np.int64)
        block_entries = int(config.working_memory() * 2**20 / _BYTES_PER_PRODUCT)
        cuts = parallel.work_blocks(np.append(0, np.cumsum(work)), block_entries)
        blocks = []
        for lo, hi in itertools.pairwise(cuts.tolist()):
            counts = sp.coo_array(columns[lo:hi] @ X)
            i, j = counts.coords
            is_pair = (i + lo != j) & (counts.data > 0)
            i, j = i[is_pair], j[is_pair]
            values = np.log(counts.data[is_pair]) - row_terms[i + lo] - column_terms[j] + constant
            is_positive = values > 0
            entries = (values[is_positive], (i[is_positive], j[is_positive]))
            blocks.append(sp.csr_array(entries, shape=(hi - lo, X.shape[1])))
        self.ppmi_ = sp.csr_array(sp.vstack(blocks, format="csr"))
        return self

    def transform(self, X: Any) -> Any:
        """Return the product of the rows X (m, p) and the matrix ``ppmi_``."""
        check_is_fitted(self)
        X = self._as_matrix(X, reset=False)
        return (X @ self.ppmi_).astype(X.dtype)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        return tags
