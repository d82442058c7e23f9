"""Variants of item embeddings: other parametrisations of a model, and invariant baselines.

Factors of one product differ by how they share the scale of the latent dimensions. A rescaled
variant gives the columns the scales of another parametrisation. An invariant baseline has the same
cosines for every rescaling of the model.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastcos import metrics, validation
from fastcos.auditing import certificates
from fastcos.auditing.report import BALANCED, Floats, Parametrization, VariantScores
from fastcos.auditing.robustness import standard_error
from fastcos.engine.segments import SEGMENT_MULTIPLE
from fastcos.measures import Plain
from fastcos.metrics.list_overlap import jaccard_per_query
from fastcos.neighbors.index import SimilarityIndex
from fastcos.storage import memmap

Integers = npt.NDArray[np.int64]
Map = Callable[[validation.Rows], validation.Rows]
Labelled = tuple[Integers, Integers]  # rows with a label, and their labels

# rows converted to float64 at once: 8 MiB of 128 columns
_BLOCK = 8192
# Frobenius distance of unit Gram matrices that count as equal: the tolerance of gradient training
# and of a randomized SVD
_TOLERANCE = 0.02
_PARAMETRIZATIONS = {
    BALANCED: "both sides have the same Gram matrix: weight decay on both sides (Eq. 2), or "
    "canonical factors",
    "items orthonormal": "the users carry the spectrum: the components of a truncated SVD",
    "users orthonormal": "the items carry the spectrum: as in LSA and PureSVD",
}


class Moments(NamedTuple):
    """Mean (d,) and mean outer product (d, d) of the rows of one side, float64."""

    mean: Floats
    second: Floats

    @property
    def covariance(self) -> Floats:
        """Second moments of the centred rows."""
        return self.second - np.outer(self.mean, self.mean)

    @property
    def column_sizes(self) -> Floats:
        """Root mean square of each column; 1 for a zero column."""
        sizes = np.sqrt(np.diag(self.second))
        return np.where(sizes > 0, sizes, 1.0)


class Variant(Plain):
    """Item embeddings derived from the given ones, and the cosine of their rows as a measure.

    meaning: what the cosines compare. condition: of the rescaling from the given items; None if it
    is no rescaling. transform: maps rows of the items to rows of the same type; None: the identity.
    """

    def __init__(
        self, name: str, meaning: str, condition: float | None, transform: Map | None
    ) -> None:
        self.name = name  # type: ignore[misc]  # the name of other measures is that of the class
        self.meaning, self.condition, self.transform = meaning, condition, transform

    def encode_items(self, B: validation.Rows) -> validation.Rows:
        """Return the rows of the variant for rows of the items."""
        return B if self.transform is None else self.transform(B)


AS_GIVEN = Variant("given", "the embeddings as given", 1.0, None)


def moments(rows: Any) -> Moments:
    """Mean and mean outer product of the rows, in float64, in blocks of rows."""
    n, d = rows.shape
    total, second = np.zeros(d), np.zeros((d, d))
    for _, some in memmap.iter_blocks("rows", rows, _BLOCK):
        block = some.astype(np.float64)
        total += block.sum(axis=0)
        second += block.T @ block
    return Moments(total / n, second / n)


def rescaled_variants(own: Moments, users: Moments | None) -> Iterator[Variant]:
    """The given items under the column scales of other parametrisations.

    A column that is zero on either side keeps its scale.
    """
    sizes = own.column_sizes
    scales = {
        "half_columns": ("columns divided by the root of their norm", sizes**-0.5),
        "unit_columns": ("columns of equal norm, as after whitening", 1 / sizes),
    }
    if users is not None:
        other = users.column_sizes
        scales["balanced"] = ("columns as long as the users': weight decay", np.sqrt(other / sizes))
        scales["weighted"] = ("columns times the users': columns of predictions", other)
    for name, (meaning, scale) in scales.items():
        condition = float(scale.max() / scale.min())
        yield Variant(name, meaning, condition, _scale_columns(scale))


def invariant_baselines(own: Moments, users: Moments | None) -> Iterator[Variant]:
    """Embeddings that no rescaling of the model changes, to the accuracy of a report.

    Whitening uses the items alone; the query metric and project-back use the users too.
    """
    if users is not None:
        for name, metric, meaning in (
            ("query_metric", users.covariance, "correlation over users of predicted scores"),
            ("project_back", users.second, "columns of predictions: the paper's remedy, for items"),
        ):
            values, vectors = _eigen(metric)
            if len(values):
                zero = np.zeros(len(vectors))
                yield Variant(name, meaning, None, _center_and_map(zero, vectors * values**0.5))
    values, vectors = _eigen(own.covariance)
    if len(values):
        whitening = _center_and_map(own.mean, vectors * values**-0.5)
        yield Variant("whitened", "directions of the items, equally weighted", None, whitening)


def recognize_parametrization(items: Moments, users: Moments | None) -> Parametrization | None:
    """Recognise how the two sides share the spectrum; None if they do it in no usual way.

    A truncated SVD returns orthonormal columns on one side. Weight decay on both sides makes both
    Gram matrices equal. One column has no parametrisation.
    """
    d = len(items.second)
    if d < 2:
        return None

    def equal(first: Floats, second: Floats) -> bool:
        sizes = [np.linalg.norm(gram) or 1.0 for gram in (first, second)]
        return bool(np.linalg.norm(first / sizes[0] - second / sizes[1]) < _TOLERANCE)

    name = None
    if users is not None and equal(items.second, users.second):
        name = BALANCED
    elif users is not None and equal(users.second, np.eye(d)):
        name = "users orthonormal"
    elif equal(items.second, np.eye(d)):
        name = "items orthonormal"
    return None if name is None else Parametrization(name, _PARAMETRIZATIONS[name])


def score_variant(
    variant: Variant,
    sample: certificates.ItemRows,
    lists: Integers,
    labelled: Labelled | None,
    n_threads: int | None = None,
) -> VariantScores:
    """Compare a variant with the given embeddings.

    lists (m, k): the k nearest of the sampled rows in the given embeddings.
    """
    own = memmap.take_rows("items", sample.items, sample.rows)
    found = lists
    if variant.transform is not None:
        index = SimilarityIndex(variant, n_threads=n_threads).fit(sample.items)
        found = certificates.nearest(sample, lists.shape[1], n_threads, index=index).indices
    auc = None
    if labelled is not None:
        rows = variant.encode_items(memmap.take_rows("items", sample.items, labelled[0]))
        auc = metrics.pair_auc(rows, labelled[1], exact=False).value
    try:
        rsa = metrics.rsa(variant.encode_items(own), own).value
    except ValueError:  # all cosines are equal
        rsa = None
    shared = jaccard_per_query(found, lists)
    return VariantScores(
        name=variant.name,
        meaning=variant.meaning,
        condition=variant.condition,
        jaccard=float(shared.mean()),
        overlap=metrics.rank_biased_overlap(found, lists).value,
        jaccard_error=standard_error(shared, len(sample.items)),
        rsa=rsa,
        hubness=metrics.hubness(found, n_items=len(sample.items)).skewness,
        auc=auc,
    )


def singular_values(second: Floats) -> Floats:
    """Singular values of rows with these second moments, descending, up to a common factor."""
    values: Floats = np.sqrt(np.maximum(np.linalg.eigvalsh(second)[::-1], 0.0))
    return values


def _scale_columns(scale: Floats) -> Map:
    return lambda rows: rows * scale.astype(rows.dtype)


def _center_and_map(mean: Floats, factor: Floats) -> Map:
    """The map to (rows - mean) factor, in the type of the rows and in blocks of them."""

    def transform(rows: validation.Rows) -> validation.Rows:
        left, right = mean.astype(rows.dtype), factor.astype(rows.dtype)
        out = np.empty((len(rows), factor.shape[1]), rows.dtype)
        for lo in range(0, len(rows), SEGMENT_MULTIPLE):
            some: Any = rows[lo : lo + SEGMENT_MULTIPLE]
            np.matmul(some - left if mean.any() else some, right, out=out[lo : lo + len(some)])
        return out

    return transform


def _eigen(second: Floats) -> tuple[Floats, Any]:
    """Eigenvalues above the rounding of the largest, and their eigenvectors."""
    values, vectors = np.linalg.eigh(second)
    kept = values > np.finfo(np.float64).eps * len(values) * max(values[-1], 0.0)
    return values[kept], vectors[:, kept]
