"""Cosines after the rows are centred, or their columns or entries made alike."""

import numpy as np

from fastcos import parallel, validation
from fastcos.kernels import row_transforms
from fastcos.similarity.base import Plain, invariances, register
from fastcos.similarity.linear import Mapped, spectrum
from fastcos.similarity.moments import gram_of, mean_of, mean_squares_of
from fastcos.similarity.row_maps import as_contiguous, row_cuts
from fastcos.similarity.row_transforms import inverses, scaled_up_rows
from fastcos.validation import Floats, Rows


@register
class CenteredCosine(Mapped):
    """Cosine after the mean row is subtracted.

    A row that equals the mean becomes a zero row; so does a single row.
    Source: Mu and Viswanath arXiv:1702.01417.
    """

    name = "centered_cosine"
    invariances = invariances("s=y r=- R=y D=- G=- t=y")

    def _fit(self, items: Rows, users: Rows | None) -> None:
        self.mean_ = mean_of(items)
        self.root_ = np.ones(items.shape[1])


@register
class AllButTheTop(Mapped):
    """Cosine of centred rows without their leading principal directions.

    Pitfall: about d/100 directions suit text; in collaborative filtering the first one is often
    popularity, and to remove it may help or hurt. Source: Mu and Viswanath arXiv:1702.01417.

    Parameters
    ----------
    n_directions : int, optional
        Directions removed, fewer than d. Default: d/100, at least 1; none of a single column.
    """

    name = "all_but_the_top"
    invariances = invariances("s=y r=- R=y D=- G=- t=y")

    def __init__(self, *, n_directions: int | None = None) -> None:
        if n_directions is not None:
            n_directions = validation.as_count("n_directions", n_directions, low=0)
        self.n_directions = n_directions

    def _fit(self, items: Rows, users: Rows | None) -> None:
        d = items.shape[1]
        usual = min(d - 1, max(1, round(d / 100)))
        removed = usual if self.n_directions is None else self.n_directions
        removed = validation.as_count("n_directions", removed, 0, d - 1)
        self.mean_ = mean_of(items)
        _, vectors = spectrum(gram_of(items, self.mean_))
        self.root_ = np.ascontiguousarray(vectors[:, removed:])


@register
class UnitColumnCosine(Mapped):
    """Cosine after every column is divided by its norm; zero columns are dropped.

    Undoes any rescaling D by construction: for the SVD form it is the rescaling "orthonormal".
    Pitfall: depends on the basis (not invariant under rotation). Source: theorem 7 of this project.
    """

    name = "unit_column_cosine"
    invariances = invariances("s=y r=- R=- D=y G=- t=-")

    def _fit(self, items: Rows, users: Rows | None) -> None:
        self.mean_ = np.zeros(items.shape[1])
        mean_squares = mean_squares_of(items, self.mean_)
        self.root_ = inverses(np.sqrt(mean_squares * len(items)))


@register
class ZScoreCosine(Mapped):
    """Cosine after every column is centred and divided by its standard deviation.

    Constant columns are dropped; a single row becomes a zero row. Pitfall: depends on the basis.
    Source: theorem 7 of this project.
    """

    name = "zscore_cosine"
    invariances = invariances("s=y r=- R=- D=y G=- t=y")

    def _fit(self, items: Rows, users: Rows | None) -> None:
        self.mean_ = mean_of(items)
        self.root_ = inverses(np.sqrt(mean_squares_of(items, self.mean_)))


@register
class LayerNormCosine(Plain):
    """Cosine after each row's mean is subtracted: Pearson's correlation over the dimensions.

    Constant rows become zero rows. Pitfall: depends on the arbitrary basis of the factors; as a
    device of training it is another matter. Source: Ba et al. arXiv:1607.06450.
    """

    name = "layer_norm_cosine"
    invariances = invariances("s=y r=y R=- D=- G=- t=-")

    def encode_items(self, B: Rows) -> Rows:
        """Return the rows minus their own mean, float64, scaled up where they would underflow."""
        B = scaled_up_rows(B)
        centred: Floats = B.astype(np.float64)
        centred -= centred.mean(axis=1, keepdims=True)
        centred[B.max(axis=1) == B.min(axis=1)] = 0
        return centred


@register
class SpearmanDims(Plain):
    """Pearson's correlation of the ranks of the entries over the dimensions.

    Equal entries share their mean rank; constant rows become zero rows. Pitfall: depends on the
    basis. Standard.
    """

    name = "spearman_dims"
    invariances = invariances("s=y r=y R=- D=- G=- t=-")

    def encode_items(self, B: Rows) -> Rows:
        """Return centred average ranks, float32: they are exact."""
        ranks = parallel.unfilled(B.shape, np.float32)
        parallel.run(row_transforms.rank_rows, row_cuts(B, 64), as_contiguous(B), ranks)
        return ranks
