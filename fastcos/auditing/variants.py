"""Variants of item embeddings: other parametrisations of a model, and invariant baselines.

Factors of one product differ by an invertible map of the latent space. A loss of dot products does
not choose it; algorithms and software do: the factors of a truncated SVD, of LSA and of weight
decay are three parametrisations of one model. An invariant baseline is a similarity that no map
changes.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from fastcos import metrics, validation
from fastcos.auditing import edges
from fastcos.auditing.records import (
    BALANCED,
    BALANCED_BY_COUNTS,
    NOISE_BALANCED,
    VariantScores,
)
from fastcos.metrics.list_overlap import jaccard_per_query
from fastcos.parallel import memmap
from fastcos.search.index import SimilarityIndex
from fastcos.similarity import Plain
from fastcos.similarity.canonical import metric_factor
from fastcos.similarity.moments import Moments
from fastcos.similarity.row_maps import map_rows
from fastcos.validation import Floats, Integers

Map = Callable[[validation.Rows], validation.Rows]
Labelled = tuple[Integers, Integers]  # rows with a label, and their labels

# the power of s² in a parametrisation, and what it is
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
# forms whose two sides have equal weighted Gram matrices, and what they are
_WEIGHTED_FORMS = {
    BALANCED_BY_COUNTS: (
        "the same, each row by its number of interactions: decay as in ALS-WR, or long SGD with "
        "equal noise"
    ),
    NOISE_BALANCED: "the same, each row by its gradient noise and decay: where SGD comes to rest",
}


class Variant(Plain):
    """Item embeddings derived from the given ones, and the cosine of their rows as a measure.

    meaning: what the cosines compare. condition: of the map from the given items; None if it is not
    invertible, or no map of the model. transform: maps rows of the items to rows of the same type;
    None: the identity.
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


def parametrizations(
    own: Floats, users: Floats | None, weighted: Mapping[str, tuple[Floats, Floats]] | None = None
) -> Iterator[Variant]:
    """The items in the parametrisations of common software, from any factors of the same product.

    With the singular value decomposition U s V' of the product: V s^½, V, and V s. Full second
    moments give them in every basis of the factors; norms of columns would only in that of the SVD.
    The items alone give V, up to a rotation. own, users (d, d): second moments; weighted: those of
    items and users with weighted rows, by the name of the form that makes them equal (Lemma B for
    ALS-WR, Theorem 9 for gradient noise).
    """
    values, vectors = _eigen(own)
    root, inverse = vectors * values**0.5, vectors * values**-0.5
    squares, basis = np.ones(len(values)), np.eye(len(values))
    if users is not None:
        # of the product, up to a factor: s² and V in the basis of the columns of inverse
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


def invariant_baselines(own: Moments, users: validation.Rows | None) -> Iterator[Variant]:
    """Embeddings that no rescaling of the model changes, to the accuracy of a report.

    Whitening uses the items alone; the query metric uses the users too.
    """
    if users is not None:
        metric = metric_factor(users)
        if metric.shape[1]:
            meaning = "correlation over users of predicted scores"
            yield Variant("query_metric", meaning, None, _center_and_map(metric))
    values, vectors = _eigen(own.covariance)
    if len(values):
        whitening = _center_and_map(vectors * values**-0.5, own.mean)
        yield Variant("whitened", "directions of the items, equally weighted", None, whitening)


def recognize_parametrization(forms: Sequence[VariantScores]) -> str | None:
    """The parametrisation that the given items already have, if it is one of these forms.

    By the condition of the map to it, which bounds the change of every cosine (Theorem 3). One
    column has no parametrisation.
    """
    near = [(form.condition, form.name) for form in forms if form.is_given]
    return min(near)[1] if near else None


def score_variant(
    variant: Variant, sample: edges.ItemRows, lists: Integers, labelled: Labelled | None
) -> VariantScores:
    """Compare a variant with the given embeddings.

    lists (m, k): the k nearest of the sampled rows in the given embeddings.
    """
    own = memmap.take_rows("items", sample.items, sample.rows)
    neighbors = lists
    if variant.transform is not None:
        index = SimilarityIndex(variant, n_threads=sample.n_threads).fit(sample.items, copy=False)
        neighbors = edges.nearest_items(sample, lists.shape[1], index=index).indices
    auc = None
    if labelled is not None:
        rows = variant.encode_items(memmap.take_rows("items", sample.items, labelled[0]))
        auc = metrics.pair_auc(rows, labelled[1], exact=False).value
    try:
        rsa = metrics.rsa(variant.encode_items(own), own).value
    except ValueError:  # all cosines are equal
        rsa = None
    shared = jaccard_per_query(neighbors, lists)
    kept = metrics.overlap_at_k(neighbors, lists)
    return VariantScores(
        name=variant.name,
        meaning=variant.meaning,
        condition=variant.condition,
        jaccard=float(shared.mean()),
        neighbors_kept=kept,
        overlap=metrics.rank_biased_overlap(neighbors, lists).value,
        jaccard_error=edges.standard_error(shared, len(sample.items)),
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
    """The map to (rows - mean) factor, computed in float64, in the type of the rows.

    Equal rows stay equal, so that their ties have one order in all variants.
    """

    def transform(rows: validation.Rows) -> validation.Rows:
        mapped = map_rows(rows, factor, mean)
        return mapped.astype(np.float32) if rows.dtype == np.float32 else mapped

    return transform


def _eigen(second: Floats) -> tuple[Floats, Any]:
    """Eigenvalues above the rounding of the largest, and their eigenvectors."""
    values, vectors = np.linalg.eigh(second)
    kept = values > np.finfo(np.float64).eps * len(values) * max(values[-1], 0.0)
    return values[kept], vectors[:, kept]
