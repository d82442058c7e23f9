"""Variants of item embeddings: other parametrisations of a model, and invariant baselines.

Many pairs of user and item factors make the same predictions; an invertible map of the latent space
converts one pair into another. If the loss depends only on dot products, all these pairs of factors
have the same loss. The training algorithm and the software therefore choose one of these pairs. For
example, a truncated SVD returns one pair, LSA returns a second one, and training with weight decay
on users and items returns a third one. An invariant baseline is a similarity that no invertible map
of the latent space changes.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from fastcos import metrics, validation
from fastcos.auditing import neighbor_edges
from fastcos.auditing.audit_records import (
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
Labelled = tuple[Integers, Integers]  # row numbers, and the label code of each row

# Let U s V' be the singular value decomposition of the predictions. The item embeddings are V
# (s²)^power, and each parametrisation has its own exponent (power). For each parametrisation,
# _FORMS contains the exponent and a description of the embeddings.
_FORMS = {
    BALANCED: (
        0.25,
        "users and items have the same Gram matrix. Training leads to this form if users and items "
        "have weight decay, or if the initial factors are small",
    ),
    "items_orthonormal": (
        0.0,
        "the columns of the items are orthonormal, as in the components of a truncated SVD",
    ),
    "users_orthonormal": (
        0.5,
        "the columns of the users are orthonormal, so the cosine of two items equals the cosine of "
        "their predicted scores over all users. Three methods return this form: LSA, the PureSVD "
        "of RecTools, and the paper's remedy for items",
    ),
}
# Descriptions of the weighted forms of a model. In a weighted form, users and items have the same
# weighted Gram matrix.
_WEIGHTED_FORMS = {
    BALANCED_BY_COUNTS: (
        "users and items have the same weighted Gram matrix, where the weight of a row is its "
        "number of interactions. The weight decay of ALS-WR leads to this form. If all "
        "interactions have equal gradient noise, many epochs of SGD also lead to this form"
    ),
    NOISE_BALANCED: (
        "users and items have the same weighted Gram matrix, where the weight of a row is computed "
        "from its gradient noise and its weight decay. SGD converges to this form"
    ),
}


class Variant(BaseMeasure):
    """A similarity measure: the cosine of rows that are derived from the audited items.

    - ``name``: The name of the variant.
    - ``meaning``: A description of the rows of the variant.
    - ``condition``: The condition number of the map from the audited items to the variant. None if
      the map is not invertible, or if the variant is not a parametrisation of the model.
    - ``transform``: A function that maps rows of the items to rows of the variant, and preserves
      the dtype of the rows. None if the rows of the variant are the audited rows.
    """

    def __init__(
        self, name: str, meaning: str, condition: float | None, transform: Map | None
    ) -> None:
        self.name = name  # type: ignore[misc]  # name is a class attribute of other measures
        self.meaning, self.condition, self.transform = meaning, condition, transform

    def encode_items(self, B: validation.Rows) -> validation.Rows:
        """Convert rows of the items to the corresponding rows of the variant."""
        return B if self.transform is None else self.transform(B)


AS_GIVEN = Variant("given", "the audited embeddings", 1.0, None)


def parametrizations(
    items: Floats, users: Floats | None, weighted: Mapping[str, tuple[Floats, Floats]] | None = None
) -> Iterator[Variant]:
    """Yield the items in the parametrisations that common software returns.

    If U s V' is the singular value decomposition of the predictions, common software returns the
    items V s^½, V or V s. The function computes V s^½, V and V s from the second moments of
    ``users`` and ``items``. Any factorisation of the same predictions gives the same result. If
    ``users`` is None, the function yields only V, up to a rotation.

    - ``items``, ``users`` (d, d): The second moments of the items and of the users.
    - ``weighted``: A dict whose keys are the names of weighted forms. Each value is a pair: the
      weighted second moments of the items, and the weighted second moments of the users. A weighted
      form is a parametrisation in which these two matrices are equal. Lemma B of
      docs/explanation/theorems.md shows this for ALS-WR, and Theorem 9 for gradient noise.
    """
    values, vectors = _eigen(items)
    root, inverse = vectors * values**0.5, vectors * values**-0.5
    squares, basis = np.ones(len(values)), np.eye(len(values))
    if users is not None:
        # ``squares`` contains the squared singular values s² of the predictions, all multiplied by
        # the same number. The matrix ``inverse @ basis`` maps the items to V.
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
    """Return the variant that subtracts the mean of the items from each item.

    If the loss depends only on differences between items, it does not change when the mean of the
    items is subtracted from each item (Theorem 10 of docs/explanation/theorems.md).
    """
    meaning = (
        "the mean of the items is subtracted from each item. Training with a ranking loss leads to "
        "this form if all items have equal weight decay"
    )
    return Variant(CENTERED, meaning, None, _center_and_map(np.eye(len(mean)), mean))


def invariant_baselines(
    items: Moments, users: validation.Rows | None, *, is_ranking: bool = False
) -> Iterator[Variant]:
    """Yield the variants whose cosines do not depend on the parametrisation of the model.

    Whitening needs only the moments of the items; the query metric needs the users. If
    ``is_ranking`` is true, the mean of the items is subtracted before the query metric is applied.
    After this subtraction, a vector that is added to all items does not change the cosines of the
    query metric (Theorem 10 of docs/explanation/theorems.md).
    """
    if users is not None:
        metric = metric_factor(users)
        if metric.shape[1]:
            meaning = (
                "the model predicts a score for every user and item; the cosine of two items is "
                "the correlation of their scores over all users"
            )
            if is_ranking:
                meaning += ", after the mean score of each user is subtracted"
            transform = _center_and_map(metric, items.mean if is_ranking else None)
            yield Variant("query_metric", meaning, None, transform)
    values, vectors = _eigen(items.covariance)
    if len(values):
        whitening = _center_and_map(vectors * values**-0.5, items.mean)
        meaning = "the items after whitening, which gives all directions the same weight"
        yield Variant("whitened", meaning, None, whitening)


def recognize_parametrization(forms: Sequence[VariantScores]) -> str | None:
    """Return the name of the parametrisation that the audited items already have, or None.

    If the items match several parametrisations, the function returns the nearest of them. The
    nearest parametrisation is the one that the map with the lowest condition number reaches from
    the audited items. The condition number of a map bounds the change of every cosine (Theorem 3 of
    docs/explanation/theorems.md).
    """
    matches = [(form.condition, form.name) for form in forms if form.is_given]
    return min(matches)[1] if matches else None


def score_variant(
    variant: Variant, sample: neighbor_edges.ItemRows, lists: Integers, labelled: Labelled | None
) -> VariantScores:
    """Compare the cosines and neighbours of a variant with those of the audited items.

    ``lists`` (m, k) contains the k nearest neighbours of the sampled rows in the audited
    embeddings.
    """
    audited_rows = memmap.take_rows("items", sample.items, sample.rows)
    neighbors = lists
    if variant.transform is not None:
        index = SimilarityIndex(variant, n_threads=sample.n_threads).fit(sample.items, copy=False)
        neighbors = neighbor_edges.nearest_items(sample, lists.shape[1], index=index).indices
    auc = None
    if labelled is not None:
        rows = variant.encode_items(memmap.take_rows("items", sample.items, labelled[0]))
        auc = metrics.pair_auc(rows, labelled[1], exact=False).value
    try:
        rsa = metrics.rsa(variant.encode_items(audited_rows), audited_rows).value
    except ValueError:  # If all cosines are equal, the correlation is undefined.
        rsa = None
    jaccard = jaccard_per_query(neighbors, lists)
    return VariantScores(
        name=variant.name,
        meaning=variant.meaning,
        condition=variant.condition,
        jaccard=float(jaccard.mean()),
        neighbors_kept=metrics.overlap_at_k(neighbors, lists),
        overlap=metrics.rank_biased_overlap(neighbors, lists).value,
        jaccard_error=neighbor_edges.standard_error(jaccard, len(sample.items)),
        rsa=rsa,
        hubness=metrics.hubness(neighbors, n_items=len(sample.items)).skewness,
        auc=auc,
    )


def singular_values(second: Floats) -> Floats:
    """Compute the singular values of a matrix, up to a common factor, from its second moments.

    The singular values are in descending order.
    """
    return np.sqrt(np.maximum(np.linalg.eigvalsh(second)[::-1], 0.0))


def _condition(factor: Floats) -> float | None:
    """Return the condition number of a square matrix; None if the matrix is not invertible."""
    values = np.linalg.svd(factor, compute_uv=False)
    is_invertible = values[-1] > np.finfo(np.float64).eps ** 0.5 * len(values) * values[0]
    return float(values[0] / values[-1]) if is_invertible else None


def _center_and_map(factor: Floats, mean: Floats | None = None) -> Map:
    """Return a function that computes ``(rows - mean) @ factor`` in float64.

    The returned function maps float32 rows to float32 rows, and equal rows to equal rows. Equal
    rows are therefore ranked in the same order in all variants.
    """

    def transform(rows: validation.Rows) -> validation.Rows:
        mapped = map_rows(rows, factor, mean)
        return mapped.astype(np.float32) if rows.dtype == np.float32 else mapped

    return transform


def _eigen(second: Floats) -> tuple[Floats, Any]:
    """Return the eigenvalues that are larger than rounding errors, with their eigenvectors."""
    values, vectors = np.linalg.eigh(second)
    is_nonzero = values > np.finfo(np.float64).eps * len(values) * max(values[-1], 0.0)
    return values[is_nonzero], vectors[:, is_nonzero]
