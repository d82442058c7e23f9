"""Variants of item embeddings: other parametrisations of a model, and invariant baselines.

Two pairs of factors with the same product differ by an invertible map of the latent space. A loss
that depends only on dot products does not determine this map; the algorithm and the software
determine it. For example, a
truncated SVD, LSA, and training with weight decay on both sides write the factors of one product in
three different forms. An invariant baseline is a similarity that no such map changes.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from fastcos import metrics, validation
from fastcos.auditing import edges
from fastcos.auditing.records import (
    BALANCED,
    BALANCED_BY_COUNTS,
    CENTERED,
    NOISE_BALANCED,
    VariantScores,
)
from fastcos.metrics.list_overlap import jaccard_per_query
from fastcos.parallel import memmap
from fastcos.search.index import SimilarityIndex
from fastcos.similarity import BaseMeasure
from fastcos.similarity.canonical import metric_factor
from fastcos.similarity.moments import Moments
from fastcos.similarity.row_maps import map_rows
from fastcos.validation import Floats, Integers

Map = Callable[[validation.Rows], validation.Rows]
Labelled = tuple[Integers, Integers]  # rows with a label, and their labels

# For each parametrisation, the power of s² in its items and a description.
_FORMS = {
    BALANCED: (
        0.25, "both sides have the same Gram matrix, as after weight decay on both or a small start"
    ),
    "items_orthonormal": (
        0.0, "directions of the items, equally weighted: components of a truncated SVD"
    ),
    "users_orthonormal": (
        0.5, "columns of predictions: LSA, PureSVD of RecTools, the paper's remedy for items"
    ),
}  # fmt: skip
# Descriptions of the forms whose two sides have equal weighted Gram matrices.
_WEIGHTED_FORMS = {
    BALANCED_BY_COUNTS: (
        "both sides have the same Gram matrix when each row is weighted by its number of "
        "interactions, as after decay in ALS-WR or after long SGD with equal noise"
    ),
    NOISE_BALANCED: (
        "both sides have the same Gram matrix when each row is weighted by its gradient noise and "
        "decay, as where SGD comes to rest"
    ),
}


class Variant(BaseMeasure):
    """A measure: the cosine of item embeddings that are derived from the audited items.

    name: name of the variant.
    meaning: a description of the rows whose cosines are compared.
    condition: condition of the map from the audited items to the variant; None if the map is not
        invertible, or if it is not a map of the model.
    transform: maps rows of the items to rows of the variant, of the same type; None is the
        identity.
    """

    def __init__(
        self, name: str, meaning: str, condition: float | None, transform: Map | None
    ) -> None:
        self.name = name  # type: ignore[misc]  # other measures have a class attribute, name
        self.meaning, self.condition, self.transform = meaning, condition, transform

    def encode_items(self, B: validation.Rows) -> validation.Rows:
        """Return the rows of the variant for rows of the items."""
        return B if self.transform is None else self.transform(B)


AS_GIVEN = Variant("given", "the audited embeddings", 1.0, None)


def parametrizations(
    items: Floats, users: Floats | None, weighted: Mapping[str, tuple[Floats, Floats]] | None = None
) -> Iterator[Variant]:
    """The items in the parametrisations of common software, from any factors of the same product.

    With the singular value decomposition U s V' of the product, these are V s^½, V, and V s. The
    full second moments determine them in every basis of the factors; the norms of the columns would
    do so only in the basis of the SVD. Without users, the items alone determine V up to a rotation.

    items, users (d, d): second moments of the two sides. weighted: second moments of the two sides
    with weighted rows, by the name of the form in which they are equal (Lemma B for ALS-WR,
    Theorem 9 for gradient noise).
    """
    values, vectors = _eigen(items)
    root, inverse = vectors * values**0.5, vectors * values**-0.5
    squares, basis = np.ones(len(values)), np.eye(len(values))
    if users is not None:
        # Up to a common factor, these are s² of the product, and V in the basis of the columns of
        # inverse.
        squares, basis = np.linalg.eigh(root.T @ users @ root)
    for name, (power, meaning) in _FORMS.items():
        if users is None and power > 0:
            continue
        factor = inverse @ (basis * np.maximum(squares, 0.0) ** power)
        condition = _condition(vectors.T @ factor)
        yield Variant(name, meaning, condition, _center_and_map(factor))
    for name, moments in (weighted or {}).items():
        balanced = next(parametrizations(*moments))
        yield Variant(name, _WEIGHTED_FORMS[name], balanced.condition, balanced.transform)


def centered_form(mean: Floats) -> Variant:
    """The items minus their mean: the same model if its loss only compares items (Theorem 10)."""
    meaning = "the items minus their mean, as after equal weight decay on all items"
    return Variant(CENTERED, meaning, None, _center_and_map(np.eye(len(mean)), mean))


def invariant_baselines(
    items: Moments, users: validation.Rows | None, *, is_ranking: bool = False
) -> Iterator[Variant]:
    """Embeddings that no rescaling of the model changes, to the accuracy of a report.

    Whitening needs only the moments of the items; the query metric also needs the users. If
    is_ranking, a vector that all items gain does not change them either (Theorem 10).
    """
    if users is not None:
        metric = metric_factor(users)
        if metric.shape[1]:
            meaning = "correlation over users of predicted scores"
            if is_ranking:
                meaning += ", after each user's mean score is subtracted"
            transform = _center_and_map(metric, items.mean if is_ranking else None)
            yield Variant("query_metric", meaning, None, transform)
    values, vectors = _eigen(items.covariance)
    if len(values):
        whitening = _center_and_map(vectors * values**-0.5, items.mean)
        yield Variant("whitened", "directions of the items, equally weighted", None, whitening)


def recognize_parametrization(forms: Sequence[VariantScores]) -> str | None:
    """Name of the form that the audited items already have; None if they have none of the forms.

    If the items have several forms, return the form with the lowest condition of the map to the
    form. The condition bounds the change of every cosine (Theorem 3).
    """
    matches = [(form.condition, form.name) for form in forms if form.is_given]
    return min(matches)[1] if matches else None


def score_variant(
    variant: Variant, sample: edges.ItemRows, lists: Integers, labelled: Labelled | None
) -> VariantScores:
    """Compare a variant with the audited embeddings.

    lists (m, k) contains the k nearest neighbours of the sampled rows in the audited embeddings.
    """
    audited_rows = memmap.take_rows("items", sample.items, sample.rows)
    neighbors = lists
    if variant.transform is not None:
        index = SimilarityIndex(variant, n_threads=sample.n_threads).fit(sample.items, copy=False)
        neighbors = edges.nearest_items(sample, lists.shape[1], index=index).indices
    auc = None
    if labelled is not None:
        rows = variant.encode_items(memmap.take_rows("items", sample.items, labelled[0]))
        auc = metrics.pair_auc(rows, labelled[1], exact=False).value
    try:
        rsa = metrics.rsa(variant.encode_items(audited_rows), audited_rows).value
    except ValueError:  # all cosines are equal
        rsa = None
    jaccard = jaccard_per_query(neighbors, lists)
    return VariantScores(
        name=variant.name,
        meaning=variant.meaning,
        condition=variant.condition,
        jaccard=float(jaccard.mean()),
        neighbors_kept=metrics.overlap_at_k(neighbors, lists),
        overlap=metrics.rank_biased_overlap(neighbors, lists).value,
        jaccard_error=edges.standard_error(jaccard, len(sample.items)),
        rsa=rsa,
        hubness=metrics.hubness(neighbors, n_items=len(sample.items)).skewness,
        auc=auc,
    )


def singular_values(second: Floats) -> Floats:
    """Singular values of rows with these second moments, descending, up to a common factor."""
    return np.sqrt(np.maximum(np.linalg.eigvalsh(second)[::-1], 0.0))


def _condition(factor: Floats) -> float | None:
    """Largest over smallest singular value; None if the map is not invertible."""
    sizes = np.linalg.svd(factor, compute_uv=False)
    invertible = sizes[-1] > np.finfo(np.float64).eps ** 0.5 * len(sizes) * sizes[0]
    return float(sizes[0] / sizes[-1]) if invertible else None


def _center_and_map(factor: Floats, mean: Floats | None = None) -> Map:
    """Return a function that computes (rows - mean) factor in float64, in the type of the rows.

    Equal rows have equal images, so that ties between them are in the same order in all variants.
    """

    def transform(rows: validation.Rows) -> validation.Rows:
        mapped = map_rows(rows, factor, mean)
        return mapped.astype(np.float32) if rows.dtype == np.float32 else mapped

    return transform


def _eigen(second: Floats) -> tuple[Floats, Any]:
    """Eigenvalues that exceed the rounding error of the largest, and their eigenvectors."""
    values, vectors = np.linalg.eigh(second)
    is_nonzero = values > np.finfo(np.float64).eps * len(values) * max(values[-1], 0.0)
    return values[is_nonzero], vectors[:, is_nonzero]
