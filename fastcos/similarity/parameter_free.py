"""A table of the measures without parameters, one row per measure.

A search compares a transformed query with transformed items by their cosine, their inner product or
their distance. Most measures from the literature differ from each other only in how they transform
the rows. A row of the table may contain one of two functions, ``transform`` or
``centre_and_scale``. The function ``transform`` transforms the rows. The function
``centre_and_scale`` computes a centre and a scale from the items; the measure then subtracts the
centre from each row, and multiplies the difference by the scale. The other files of this package
contain classes for the remaining measures. These are measures with parameters, measures that treat
queries and items differently, and measures that are not inner products.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fastcos import parallel
from fastcos.kernels import row_transforms
from fastcos.similarity.base import BaseMeasure, Invariances, MetricType, register
from fastcos.similarity.linear import Mapped
from fastcos.similarity.moments import mean_of, mean_squares_of
from fastcos.similarity.row_maps import as_contiguous, row_cuts
from fastcos.similarity.row_transforms import inverses, scaled_up_rows
from fastcos.validation import Floats, Rows


class MeasureRow(NamedTuple):
    """A measure without parameters.

    Attributes
    ----------
    name : str
        The name by which ``measure=`` finds the measure.
    text : str
        The documentation of the measure: formula, pitfalls and source.
    invariances : Invariances
        How changes of the embeddings affect the scores.
    raw_score : {"cosine", "dot", "euclidean"}
        How transformed rows are compared; with "euclidean", by minus the squared distance.
    transform : callable, optional
        Function that takes rows (n, d) and returns rows (n, d').
    centre_and_scale : callable, optional
        Function that takes the items (p, d) and returns a centre (d,) and a scale (d,).
    to_score : callable, optional
        Function that takes raw scores and returns scores. A higher raw score must never give a
        lower score.
    takes_sparse_rows : bool
        Whether rows may be sparse.
    """

    name: str
    text: str
    invariances: Invariances
    raw_score: MetricType = "cosine"
    transform: Callable[[Rows], Rows] | None = None
    centre_and_scale: Callable[[Rows], tuple[Floats, Floats]] | None = None
    to_score: Callable[[Floats], Floats] | None = None
    takes_sparse_rows: bool = False


def share_of_half_turn(cosines: Floats) -> Floats:
    """Return 1 - angle / π, where the cosine of the angle is the raw score."""
    return 1 - np.arccos(np.clip(cosines, -1, 1)) / np.pi


def negative_distances(negative_squares: Floats) -> Floats:
    """Convert negated squared distances to negated distances."""
    return -np.sqrt(-negative_squares)


def without_row_means(rows: Rows) -> Rows:
    """Return each row minus the mean of its entries, float64.

    Rows whose squares would underflow are multiplied by a power of two, which changes no cosine.
    """
    rows = scaled_up_rows(rows)
    centred: Floats = rows.astype(np.float64)
    centred -= centred.mean(axis=1, keepdims=True)
    centred[rows.max(axis=1) == rows.min(axis=1)] = 0
    return centred


def centred_ranks(rows: Rows) -> Rows:
    """Replace each entry by its rank in the row, minus the mean rank of the row.

    Equal entries of a row share the average of their ranks. float32 represents the results exactly.
    """
    ranks = parallel.unfilled(rows.shape, np.float32)
    parallel.run(row_transforms.rank_rows, row_cuts(rows, 64), as_contiguous(rows), ranks)
    return ranks


def mean_and_one(items: Rows) -> tuple[Floats, Floats]:
    """Return the mean row as the centre, and 1 as the scale of each column."""
    return mean_of(items), np.ones(items.shape[1])


def zero_and_inverse_norms(items: Rows) -> tuple[Floats, Floats]:
    """Return a centre of 0, and the scale of each column: 1 / norm, or 0 for a zero column."""
    centre = np.zeros(items.shape[1])
    return centre, inverses(np.sqrt(mean_squares_of(items, centre) * len(items)))


def mean_and_inverse_deviations(items: Rows) -> tuple[Floats, Floats]:
    """Return the mean row, and the scale of each column: 1 / deviation, or 0 if it is constant."""
    centre = mean_of(items)
    return centre, inverses(np.sqrt(mean_squares_of(items, centre)))


MEASURES = (
    MeasureRow(
        "cosine",
        """<x, y> / (|x| |y|); a zero row has no direction and scores 0 with every row.

        Pitfall: the value depends on the rescaling D of the columns. The losses of some models do
        not determine D. Source: arXiv:2403.05440.
        """,
        Invariances(s="y", r="y", R="y", D="-", G="-", t="-"),
        takes_sparse_rows=True,
    ),
    MeasureRow(
        "user_item_cosine",
        """Cosine of a user's row and an item's row.

        Pitfall: unlike the inner product of a user and an item, the value depends on the rescaling
        D. Source: arXiv:2403.05440, section 2.1.
        """,
        Invariances(s="y", r="y", R="y", D="-", G="-", t="-"),
    ),
    MeasureRow(
        "dot",
        """<x, y>, the inner product of two items.

        Pitfalls: the value depends on the rescaling D. Popular items have large norms and come
        first.
        """,
        Invariances(s="rank", r="-", R="y", D="-", G="-", t="-"),
        "dot",
        takes_sparse_rows=True,
    ),
    MeasureRow(
        "user_item_dot",
        """<user, item>, the score that a factorisation is trained to predict.

        This score stays the same if the items are multiplied by an invertible matrix G and the
        users are multiplied by the transposed inverse of G. No other elementary score has this
        property. Source: arXiv:2403.05440, section 2.
        """,
        Invariances(s="rank", r="-", R="y", D="y", G="y", t="rank"),
        "dot",
    ),
    MeasureRow(
        "angular",
        "1 - angle / π, which ranks like the cosine and is linear in the angle.",
        Invariances(s="y", r="y", R="y", D="-", G="-", t="-"),
        to_score=share_of_half_turn,
    ),
    MeasureRow(
        "neg_euclidean",
        """-|x - y|, minus the Euclidean distance, so that nearer rows score higher.

        For unit rows, the measure ranks items like the cosine. Distances are computed from the
        differences between the entries of the two rows, so that even the small distances between
        near duplicates are precise.
        """,
        Invariances(s="rank", r="-", R="y", D="-", G="-", t="y"),
        "euclidean",
        to_score=negative_distances,
    ),
    MeasureRow(
        "centered_cosine",
        """Cosine after the mean row is subtracted.

        A row that equals the mean becomes a zero row. If there is only one row, it is the mean, and
        becomes a zero row. Source: Mu and Viswanath arXiv:1702.01417.
        """,
        Invariances(s="y", r="-", R="y", D="-", G="-", t="y"),
        centre_and_scale=mean_and_one,
    ),
    MeasureRow(
        "unit_column_cosine",
        """Cosine after every column is divided by its norm; zero columns are dropped.

        Dividing by the norms of the columns undoes any rescaling D. For the items of ``LinearMF``,
        the result is the cosine under the rescaling "orthonormal". Pitfall: the value depends on
        the basis, so it is not invariant under rotation. Source: theorem 7 of this project.
        """,
        Invariances(s="y", r="-", R="-", D="y", G="-", t="-"),
        centre_and_scale=zero_and_inverse_norms,
    ),
    MeasureRow(
        "zscore_cosine",
        """Cosine after every column is centred and divided by its standard deviation.

        Constant columns are dropped. If there is only one row, it becomes a zero row. Pitfall: the
        value depends on the basis. Source: theorem 7 of this project.
        """,
        Invariances(s="y", r="-", R="-", D="y", G="-", t="y"),
        centre_and_scale=mean_and_inverse_deviations,
    ),
    MeasureRow(
        "layer_norm_cosine",
        """Cosine after each row's mean is subtracted: Pearson's correlation over the dimensions.

        Constant rows become zero rows. Pitfall: the value depends on the basis of the factors,
        which is arbitrary unless the model was trained with layer normalisation. Source: Ba et al.
        arXiv:1607.06450.
        """,
        Invariances(s="y", r="y", R="-", D="-", G="-", t="-"),
        transform=without_row_means,
    ),
    MeasureRow(
        "spearman_dims",
        """Spearman's rank correlation of two rows.

        Each entry is replaced by its rank in the row; the value is Pearson's correlation of the
        ranks. If entries are equal, each of them gets the mean of their ranks. Constant rows
        become zero rows. Pitfall: the value depends on the basis.
        """,
        Invariances(s="y", r="y", R="-", D="-", G="-", t="-"),
        transform=centred_ranks,
    ),
)


def measure_class(row: MeasureRow) -> type[BaseMeasure]:
    """Return the measure class for a row of the table."""
    members: dict[str, Any] = {
        "__module__": __name__,
        "__doc__": row.text,
        "name": row.name,
        "metric_type": row.raw_score,
        "invariances": row.invariances,
        "takes_sparse_rows": row.takes_sparse_rows,
    }
    transform, centre_and_scale, to_score = row.transform, row.centre_and_scale, row.to_score
    if transform is not None:
        members["encode_items"] = lambda self, B: transform(B)
    if to_score is not None:
        members["to_score"] = lambda self, raw, Q: to_score(raw)
    if centre_and_scale is not None:

        def _fit(self: Mapped, items: Rows, users: Rows | None) -> None:
            self.mean_, self.root_ = centre_and_scale(items)

        members["_fit"] = _fit
    base = BaseMeasure if centre_and_scale is None else Mapped
    return type(row.name.title().replace("_", ""), (base,), members)


for _row in MEASURES:
    _class = register(measure_class(_row))
    globals()[_class.__name__] = _class  # pickle finds the class of an object by its name
