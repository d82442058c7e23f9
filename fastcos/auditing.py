"""How arbitrary are these cosines? One card of numbers about item embeddings.

Predictions do not change when a rescaling D acts on users and D^-1 on items, but neighbours by
cosine do. The card says how many neighbours are certain to survive such rescalings and how many are
known not to, what other conventions would have shown instead, and what to compare instead.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastcos import alternatives, attacks, certificates, metrics, threads, validate, validate_audit
from fastcos.kernels import intervals

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

# conditions at which the card tells what survives, besides the one asked for
CONDITIONS = (1.02, 1.05, 1.1, 1.2, 1.5, 2.0)
# rows whose edges are certified and attacked under rescalings, whose lists are compared between
# embeddings, and whose pairs are scored against labels
_CERTIFIED_ROWS, _LISTED_ROWS, _LABELLED_ROWS = 48, 500, 2000
_RANDOM_BASES = 3
_ROWS_PER_PART = 2048


class Survival(NamedTuple):
    """What is known of the neighbours under every map of at most this condition.

    Attributes
    ----------
    condition : float
    certified_linear : float
        Share of all edges that survive every invertible map: a lower bound.
    certified : float
        Share of the sampled edges that survive every rescaling: a lower bound.
    survives_attack : float
        Share of the sampled edges for which no rescaling was found that loses them: an upper bound.
    """

    condition: float
    certified_linear: float
    certified: float
    survives_attack: float


class Comparison(NamedTuple):
    """Other embeddings of the same items against the given ones.

    Attributes
    ----------
    name, meaning : str
    condition : float or None
        Of the rescaling that leads there; None where it is not a rescaling.
    jaccard, overlap : float
        Jaccard of the k nearest with those given, and rank-biased overlap, mean over sampled items.
    rsa : float or None
        Correlation of the cosines of sampled items with those given; None where all are alike.
    hubness : float
        Skewness of how often an item is in the sampled lists.
    auc : float or None
        Probability that a pair with one label has a larger cosine than a pair with two.
    """

    name: str
    meaning: str
    condition: float | None
    jaccard: float
    overlap: float
    rsa: float | None
    hubness: float
    auc: float | None


@dataclass(frozen=True)
class Audit:
    """What of the cosines of one set of embeddings is a free choice, in numbers.

    Attributes
    ----------
    n_items, n_dimensions, k : int
    condition : float
        The condition of the verdict.
    n_zero : int
        Items that are zero rows: they have no direction and are left out of what follows.
    n_sampled : int
        Items whose edges were certified and attacked under rescalings.
    arbitrariness : float
        Mean total-variation index of the edges, 0 to 1: to first order a rescaling of condition κ
        moves Fisher's z of an edge by at most that times ln κ.
    random_basis : float
        The same for sampled edges in random orthogonal bases, mean: what any basis would show.
    dimensions : ndarray (d,)
        Share of each latent dimension in it; sums to 1.
    survival : tuple of Survival
        By rising condition.
    given : Comparison
        The given embeddings themselves.
    family : tuple of Comparison
        Rescalings of the given items that other conventions would have chosen.
    alternatives : tuple of Comparison
        Forms that no rescaling changes.
    hubness : metrics.Hubness
    popularity : metrics.PopularityBias or None
    mean_cosine, effective_rank : float
    isoscore : float or None
        None for one dimension.

    Examples
    --------
    >>> import numpy as np
    >>> from fastcos import audit
    >>> card = audit(np.random.default_rng(0).standard_normal((200, 6)), k=5)
    >>> len(card.dimensions), round(float(card.dimensions.sum()), 6)
    (6, 1.0)
    >>> [row.name for row in card.alternatives][:1] != []
    True
    """

    n_items: int
    n_dimensions: int
    k: int
    condition: float
    n_zero: int
    n_sampled: int
    arbitrariness: float
    random_basis: float
    dimensions: Floats
    survival: tuple[Survival, ...]
    given: Comparison
    family: tuple[Comparison, ...]
    alternatives: tuple[Comparison, ...]
    hubness: metrics.Hubness
    popularity: metrics.PopularityBias | None
    mean_cosine: float
    effective_rank: float
    isoscore: float | None

    @property
    def verdict(self) -> str:
        """The card in one sentence."""
        point = next(point for point in self.survival if point.condition == self.condition)
        low, high = sorted((point.certified, point.survives_attack))
        worst = min(self.family, key=lambda other: other.jaccard)
        return (
            f"Between {low:.0%} and {high:.0%} of the {self.k} nearest neighbours survive every "
            f"rescaling of condition {self.condition:g} that leaves predictions as they are; "
            f"{worst.name} ({worst.meaning}) shares {worst.jaccard:.0%} of the neighbours."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the card as plain Python values, with the verdict."""
        card = asdict(self)
        card["dimensions"] = self.dimensions.tolist()
        for name in ("given", "hubness", "popularity"):
            value = getattr(self, name)
            card[name] = None if value is None else value._asdict()
        for name in ("survival", "family", "alternatives"):
            card[name] = [row._asdict() for row in getattr(self, name)]
        return {"verdict": self.verdict, **card}


def audit(
    items: Any,
    users: Any = None,
    *,
    labels: Any = None,
    popularity: Any = None,
    k: int = 10,
    condition: float = 2.0,
    seed: int = 0,
    n_threads: int | None = None,
    progress: threads.Progress | None = None,
) -> Audit:
    """How much of what cosine says of these items is a choice that training never made.

    One ``top_k`` of all items, and samples of them for what costs more: 48 rows for certificates
    and attacks, 500 for lists, 2,000 for labels.

    Parameters
    ----------
    items : array_like (p, d), float32 or float64
        Item embeddings, p > k. Zero rows have no direction: counted and left out.
    users : array_like (n, d), optional
        User or query embeddings of the same model; they make the alternatives possible that look at
        predictions.
    labels : array_like (p,), int or str, optional
        Clusters of the items, to be recovered; None for an item without.
    popularity : array_like (p,), optional
        For example the number of users of every item.
    k : int
        Neighbours per item.
    condition : float
        Largest entry of D over its smallest, for the verdict. For scale: 2.3 is between the two
        cases of the paper's section 2.2 on its own simulation.
    seed : int
        Seed of the samples.
    n_threads : int, optional
        Default: the setting ``num_threads``.
    progress : callable, optional
        Called as progress(done, total) during the search of neighbours.

    Returns
    -------
    Audit
        The card; ``verdict`` says it in a sentence, ``to_dict()`` gives plain values.

    Raises
    ------
    ValueError
        NaN or infinity; users of another width; labels or popularity of another length; k,
        condition or seed out of range; fewer than k + 1 rows that are not zero.

    Notes
    -----
    Source: Steck, Ekanadham, Kallus, arXiv:2403.05440, for the freedom; the certificates are those
    of :func:`fastcos.certified_neighbors`.

    Examples
    --------
    >>> import numpy as np
    >>> from fastcos import audit
    >>> rng = np.random.default_rng(0)
    >>> card = audit(rng.standard_normal((300, 8)), k=5, condition=1.2)
    >>> card.n_items, 0 <= card.arbitrariness <= 1
    (300, True)
    >>> point = next(point for point in card.survival if point.condition == 1.2)
    >>> point.certified_linear <= 1 and point.certified <= point.survives_attack
    True
    """
    side, k, condition = certificates.as_edges(items, k, condition, None)
    p, d = side.items.shape
    queries = None if users is None else validate.as_rows("users", users)
    if queries is not None:
        validate.as_same_width("users", queries, "items", side.items)
    codes = None if labels is None else validate.as_partial_labels("labels", labels, p)
    counts = None if popularity is None else validate.as_vector("popularity", popularity, p)
    generator = validate.as_generator("seed", seed)
    directed = np.flatnonzero(side.norms > 0)
    validate_audit.as_many("items", len(directed), k + 1)

    found = certificates.nearest(side.items, side.rows, min(k + 1, p - 1), n_threads, progress)
    lists = validate.read_only(np.ascontiguousarray(found.indices[:, :k]))
    _, linear = certificates.linear_radii(side, found.indices, k, n_threads)
    index, shares = local_arbitrariness(side, lists, n_threads)
    sample = _draw(generator, directed, _CERTIFIED_ROWS)
    survival = _survival(side._replace(rows=sample), linear, k, condition, n_threads)
    judge = _Judge(side, lists, _draw(generator, directed, _LISTED_ROWS), codes, generator)
    own = alternatives.moments(side.items)
    others = None if queries is None else alternatives.moments(queries)
    as_given = alternatives.Variant("given", "the embeddings as they are", 1.0, side.items)
    spectrum = np.diag(alternatives.singular_values(own.second))
    centred = np.diag(alternatives.singular_values(own.covariance))
    return Audit(
        n_items=p,
        n_dimensions=d,
        k=k,
        condition=condition,
        n_zero=p - len(directed),
        n_sampled=len(sample),
        arbitrariness=index,
        random_basis=_in_random_bases(side, lists, sample, generator, n_threads),
        dimensions=shares,
        survival=survival,
        given=judge.compare(as_given, n_threads),
        family=judge.compare_all(alternatives.rescaled(side.items, own, others), n_threads),
        alternatives=judge.compare_all(alternatives.unfree(side.items, own, others), n_threads),
        hubness=metrics.hubness(lists),
        popularity=None if counts is None else metrics.popularity_bias(side.items, counts, lists),
        mean_cosine=metrics.mean_cosine(side.items).value,
        effective_rank=metrics.effective_rank(spectrum),
        isoscore=(metrics.participation_ratio(centred) - 1) / (d - 1) if d > 1 else None,
    )


def local_arbitrariness(
    side: certificates.Side, lists: Integers, n_threads: int | None = None
) -> tuple[float, Floats]:
    """Mean total-variation index of the edges, and the share of every dimension in it."""
    n, d = len(lists), side.items.shape[1]
    first_of = threads.cuts_by_rows(n, _ROWS_PER_PART)
    n_parts = len(first_of) - 1
    indices = threads.poisoned(lists.shape, np.float64)
    totals = threads.poisoned((n_parts, d), np.float64)
    threads.run(
        intervals.edge_indices, threads.cuts_by_rows(n_parts, 1), *side, lists,
        validate.read_only(first_of), indices, totals,
        n_threads=n_threads,
    )  # fmt: skip
    sums = totals.sum(axis=0)
    directed = np.isfinite(indices)
    mean = float(indices[directed].mean()) if directed.any() else 0.0
    return mean, sums / sums.sum() if sums.sum() > 0 else sums


def _draw(generator: np.random.Generator, rows: Integers, most: int) -> Integers:
    chosen = generator.choice(rows, min(most, len(rows)), replace=False)
    return validate.read_only(np.sort(chosen))


def _survival(
    side: certificates.Side, linear: Floats, k: int, condition: float, n_threads: int | None
) -> tuple[Survival, ...]:
    """The bracket over conditions up to the largest of CONDITIONS and the one asked for."""
    conditions = sorted({*CONDITIONS, condition})
    cap = conditions[-1]
    certain = certificates.rescaling_radii(side, k, cap, n_threads)
    certain = np.maximum(certain, linear[side.rows])
    listed = certificates.nearest(
        side.items, side.rows, min(len(side.items) - 1, k + attacks.N_LISTED), n_threads
    ).indices
    broken = attacks.attack(side, listed, certain, cap, n_threads).radius
    return tuple(
        Survival(kappa, *(_share(radius > kappa, radius) for radius in (linear, certain, broken)))
        for kappa in conditions
    )


def _share(claims: npt.NDArray[np.bool_], radius: Floats) -> float:
    edges = ~np.isnan(radius)
    return float(claims[edges].mean()) if edges.any() else 0.0


def _in_random_bases(
    side: certificates.Side,
    lists: Integers,
    rows: Integers,
    generator: np.random.Generator,
    n_threads: int | None,
) -> float:
    edges = np.column_stack([rows, lists[rows]])
    used, numbers = np.unique(edges, return_inverse=True)
    numbers = numbers.reshape(edges.shape)
    part = validate.read_only(np.ascontiguousarray(numbers[:, 1:]))
    values = []
    for _ in range(_RANDOM_BASES):
        turned = alternatives.in_random_basis(side.items[used], generator)
        rotated = certificates.Side(
            validate.read_only(turned),
            validate.read_only(side.norms[used]),
            validate.read_only(np.ascontiguousarray(numbers[:, 0])),
        )
        values.append(local_arbitrariness(rotated, part, n_threads)[0])
    return float(np.mean(values))


def _correlation(first: validate.Rows, second: validate.Rows) -> float | None:
    """Correlation over pairs of rows of the cosines in two embeddings."""
    try:
        return metrics.rsa(first, second).value
    except ValueError:
        return None


class _Judge:
    """Compares embeddings of the same items with the given ones, on samples of rows."""

    def __init__(
        self,
        side: certificates.Side,
        lists: Integers,
        rows: Integers,
        codes: Integers | None,
        generator: np.random.Generator,
    ) -> None:
        self.rows, self._items, self._lists = rows, side.items, lists[rows]
        self._labelled, self._codes = np.zeros(0, np.int64), codes
        if codes is not None:
            self._labelled = _draw(
                generator, np.flatnonzero((side.norms > 0) & (codes >= 0)), _LABELLED_ROWS
            )

    def compare(self, variant: alternatives.Variant, n_threads: int | None) -> Comparison:
        """Return how one variant differs."""
        k = self._lists.shape[1]
        searched, lists = variant.rows, self._lists
        if searched is not self._items:
            lists = certificates.nearest(searched, self.rows, k, n_threads).indices
        auc = None
        if self._codes is not None:
            labels = self._codes[self._labelled]
            auc = metrics.pair_auc(searched[self._labelled], labels, exact=False).value
        return Comparison(
            name=variant.name,
            meaning=variant.meaning,
            condition=variant.condition,
            jaccard=metrics.jaccard_at_k(lists, self._lists),
            overlap=metrics.rank_biased_overlap(lists, self._lists).value,
            rsa=_correlation(searched[self.rows], self._items[self.rows]),
            hubness=metrics.hubness(lists, n_items=len(self._items)).skewness,
            auc=auc,
        )

    def compare_all(
        self, variants: Iterable[alternatives.Variant], n_threads: int | None
    ) -> tuple[Comparison, ...]:
        """Return how each of them differs."""
        return tuple(self.compare(variant, n_threads) for variant in variants)
