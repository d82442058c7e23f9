"""The audit of item embeddings: draws samples, calls the parts of the package, makes the report."""

from typing import Any

import numpy as np

from fastcos import metrics, parallel, validation
from fastcos.auditing import certificates, edges, variants
from fastcos.auditing.edges import ItemRows
from fastcos.auditing.label_recovery import search_rescalings
from fastcos.auditing.records import (
    BALANCED_BY_COUNTS,
    DECAY,
    NOISE_BALANCED,
    TRAINED_ON,
    VariantScores,
)
from fastcos.auditing.report import Audit
from fastcos.auditing.robustness import robustness_curve
from fastcos.kernels import intervals
from fastcos.metrics import label_permutation
from fastcos.metrics.labelled import unit_rows
from fastcos.parallel import memmap
from fastcos.similarity.cosine_bounds import CONDITION
from fastcos.similarity.gradient_noise import GradientNoise
from fastcos.similarity.moments import gram_of, moments_of
from fastcos.similarity.row_maps import map_rows
from fastcos.similarity.row_transforms import count_duplicates
from fastcos.validation import Floats, Integers

# The cost of an audit against one top_k of all items: python -m bench.lab.curves audit.
# items whose edges are certified and attacked under rescalings
_CERTIFIED_ROWS = 48
# items whose lists of neighbours are compared between variants
_LISTED_ROWS = 500
# items whose pairs are scored against labels
_LABELLED_ROWS = 1000
# queries of the labels' test among neighbours
_QUERIES = 20_000
# items whose edges give the sensitivity index
_INDEXED_ROWS = 2000
# random bases whose mean index is the level of an average basis
_RANDOM_BASES = 3
# rows of a partial sum of the index: fixed, so that sums do not depend on threads
_ROWS_PER_PART = 128
# ratio of the largest norm to the smallest that counts as equal: rows normalised in float16
_EQUAL_NORMS = 1.002


def audit(
    items: Any,
    users: Any = None,
    *,
    labels: Any = None,
    popularity: Any = None,
    activity: Any = None,
    gradient_noise: GradientNoise | None = None,
    k: int = 10,
    condition: float = CONDITION,
    trained_on: str = "unknown",
    weight_decay: str = "unknown",
    n_threads: int | None = None,
    working_memory: float | None = None,
    progress: parallel.Progress | None = None,
    random_state: int | np.random.Generator = 0,
) -> Audit:
    """Report how far the cosines of these items depend on the parametrisation of their model.

    Dot products do not change when a rescaling D acts on the users and its inverse on the items.
    Neighbours by cosine do. The report bounds the share of neighbours that survive such rescalings,
    compares other parametrisations, and recommends what to compare instead.

    The premise is a model that uses the items only in dot products with another, free side. It
    fails for models that were trained on the cosine, such as most sentence encoders, and for
    vectors that are sums of both sides, such as the released GloVe vectors. D is then not free, and
    the report shows sensitivity, not arbitrariness.

    One ``top_k`` of all items, and samples for the costlier parts: 48 items for certificates and
    attacks under rescalings, 500 for lists, 500 and 1,000 others for the worst rescaling, 1,000 for
    labels, 2,000 for the sensitivity index.

    Memory-mapped items and users (``np.load(path, mmap_mode="r")``) are read in blocks that fit
    ``working_memory``, with the same numbers. An audit takes about 30 (k + 1) bytes per item more,
    and reads the file about 20 times.

    Source: Steck, Ekanadham, Kallus, arXiv:2403.05440, for the rescalings; the certificates are
    those of :func:`fastcos.certified_neighbors`.

    Parameters
    ----------
    items : array_like (p, d), float32 or float64
        Item embeddings, p > k. Zero rows have no direction: they are counted and left out.
    users : array_like (n, d), optional
        User or query embeddings of the same model, for the variants that depend on predictions.
    labels : array_like (p,), int or str, optional
        Clusters of the items, for label recovery; None for an item without a label.
    popularity : array_like (p,), optional
        For example the number of users of each item.
    activity : array_like (n,), optional
        Number of interactions of each user. With popularity, factors whose weight decay was
        weighted by such counts, as in ALS-WR, are recognised, and so are those of a long stochastic
        gradient descent whose observations are equally noisy.
    gradient_noise : GradientNoise, optional
        Of the same items and users, by :func:`fastcos.auditing.gradient_noise`. Factors at which
        stochastic gradient descent has come to rest are then recognised, and the report says how
        many epochs it takes to get there.
    k : int
        Neighbours per item.
    condition : float
        Largest entry of D over its smallest, for the verdict. The default covers two seeds of one
        recipe that has come to rest; few epochs, other starts and other optimisers differ by 2 to
        30 (``docs/explanation/scale_of_dimensions.md``). Parametrisations in use are further apart,
        too: on the paper's simulation 2.2 from the usual factors to either case of its section
        2.2, and 5 between the two.
    trained_on : {"dot", "cosine", "unknown"}
        What the loss of the model used. The vectors alone do not show it.
    weight_decay : {"both", "not both", "unknown"}
        Whether the loss had weight decay on users and on items, weighted or not. At convergence it
        has then chosen the scale of each dimension, as in Eq. 2 of the paper, and D is not free.
        With users the report checks it: where the two sides do not balance, it says so, and treats
        D as free.
    n_threads, working_memory
        As in :func:`fastcos.top_k`.
    progress : callable, optional
        Called as progress(done, total) during the search of neighbours.
    random_state : int or Generator
        Seed of the samples.

    Returns
    -------
    Audit
        The report; ``verdict`` is its summary in a sentence, ``to_dict()`` gives plain values.

    Raises
    ------
    ValueError
        NaN or infinity; users of another width; labels, counts or noise of another length; k,
        condition, trained_on or random_state out of range; fewer than k + 1 rows that are not zero.

    Examples
    --------
    >>> import numpy as np
    >>> from fastcos import audit
    >>> rng = np.random.default_rng(0)
    >>> report = audit(rng.standard_normal((300, 8)), k=5, condition=1.2)
    >>> report.n_items, 0 <= report.sensitivity <= 1
    (300, True)
    >>> point = report.at_condition
    >>> point.certified_linear <= 1 and point.certified <= point.unbroken
    True
    """
    validation.check_progress(progress)
    sample, k, condition = edges.as_edges(
        items, k, condition, working_memory=working_memory, n_threads=n_threads
    )
    p, d = sample.items.shape
    if users is not None:
        users = memmap.as_mapped_rows("users", users)
        validation.check_same_width("users", users, "items", sample.items)
    codes = None if labels is None else validation.as_partial_labels("labels", labels, p)
    if popularity is not None:
        popularity = validation.as_vector("popularity", popularity, p)
    if activity is not None:
        if users is None or popularity is None:
            validation.check_none("activity", activity, "without users and popularity")
        activity = validation.as_vector("activity", activity, len(users))
    if gradient_noise is not None:
        _check_noise(gradient_noise, p, users)
    trained_on = validation.as_choice("trained_on", trained_on, TRAINED_ON)
    weight_decay = validation.as_choice("weight_decay", weight_decay, DECAY)
    generator = validation.as_generator("random_state", random_state)
    directed = np.flatnonzero(sample.norms > 0)
    norms = sample.norms[directed]
    validation.check_enough("items", len(directed), k + 1, "rows that are not zero")

    longer = edges.nearest_items(sample, min(k + 1, p - 1), progress=progress).indices
    linear = certificates.linear_radii(sample, longer, k)
    lists = validation.read_only(np.ascontiguousarray(longer[:, :k]))

    indexed, certified, listed = (
        sample.subset(_draw(directed, most, generator))
        for most in (_INDEXED_ROWS, _CERTIFIED_ROWS, _LISTED_ROWS)
    )
    labelled, about_labels = None, dict[str, Any](label_test=None, label_recovery=None)
    if codes is not None:
        names = label_permutation.label_names(labels)
        labelled, about_labels = _study_labels(sample, lists, codes, names, condition, generator)
    sensitivity, shares = sensitivity_index(indexed, lists[indexed.rows])
    in_random_bases = [
        sensitivity_index(certified, lists[certified.rows], generator)[0]
        for _ in range(_RANDOM_BASES)
    ]
    about_variants = _study_variants(
        listed, lists, users, popularity, activity, gradient_noise, labelled
    )
    return Audit(
        n_items=p,
        n_dimensions=d,
        k=k,
        condition=condition,
        n_zero=p - len(directed),
        n_duplicates=count_duplicates(sample.items),
        n_sampled=len(certified.rows),
        n_listed=len(listed.rows),
        trained_on=trained_on,
        weight_decay=weight_decay,
        equal_norms=bool(norms.max() <= _EQUAL_NORMS * norms.min()),
        sensitivity=sensitivity,
        random_basis_sensitivity=float(np.mean(in_random_bases)),
        dimension_shares=shares,
        robustness=robustness_curve(certified, linear, k, condition, generator),
        hubness=metrics.hubness(lists),
        popularity=(
            None if popularity is None else metrics.popularity_bias(sample.items, popularity, lists)
        ),
        mean_cosine=metrics.mean_cosine(sample.items).value,
        **about_variants,
        **about_labels,
    )


@parallel.one_blas_thread()
def _study_variants(
    listed: ItemRows,
    lists: Integers,
    users: validation.Rows | None,
    popularity: Floats | None,
    activity: Floats | None,
    noise: GradientNoise | None,
    labelled: variants.Labelled | None,
) -> dict[str, Any]:
    """What an Audit says of other parametrisations, of invariant baselines and of the spectrum."""
    own, second, weights = moments_of(listed.items), None, {}
    if users is not None:
        second = moments_of(users).second
        if popularity is not None and activity is not None:
            weights[BALANCED_BY_COUNTS] = popularity, activity
        if noise is not None:
            weights[NOISE_BALANCED] = noise.item_weights, noise.user_weights
    weighted = {
        name: (_weighted_gram(listed.items, of_items), _weighted_gram(users, of_users))
        for name, (of_items, of_users) in weights.items()
    }

    def score(variant: variants.Variant) -> VariantScores:
        return variants.score_variant(variant, listed, lists[listed.rows], labelled)

    forms = tuple(map(score, variants.parametrizations(own.second, second, weighted)))
    d = listed.items.shape[1]
    lengths = variants.singular_values(own.covariance)
    centred, total = np.diag(lengths), np.square(lengths).sum()
    return {
        "epochs_to_forget": None if noise is None else noise.epochs_to_forget,
        "parametrization": variants.recognize_parametrization(forms) if d > 1 else None,
        "given": score(variants.AS_GIVEN),
        "parametrizations": forms,
        "invariant_baselines": tuple(map(score, variants.invariant_baselines(own, users))),
        "effective_rank": metrics.effective_rank(np.diag(variants.singular_values(own.second))),
        "isoscore": (metrics.participation_ratio(centred) - 1) / (d - 1) if d > 1 else None,
        "first_axis_share": float(lengths[0] ** 2 / total) if total > 0 else None,
    }


def _weighted_gram(rows: Any, weights: Floats) -> Floats:
    """Second moments of rows, each with a weight, such as its count."""
    if weights.min() < 0 or weights.sum() == 0:
        raise ValueError("popularity and activity must be counts to recognise ALS-WR, got others")
    return gram_of(rows, np.zeros(rows.shape[1]), weights / weights.sum())


def _check_noise(noise: Any, n_items: int, users: validation.Rows | None) -> None:
    """Refuse gradient noise of other factors."""
    validation.as_instance("gradient_noise", noise, GradientNoise, "from gradient_noise()")
    if users is None:
        validation.check_none("gradient_noise", noise, "without users")
    sides = (noise.item_weights, n_items), (noise.user_weights, len(users))  # type: ignore[arg-type]
    for weights, n_rows in sides:
        validation.as_vector("weights of gradient_noise", weights, n_rows)


def _draw(rows: Integers, most: int, generator: np.random.Generator) -> Integers:
    """At most that many of the rows, ascending."""
    return np.sort(generator.choice(rows, min(most, len(rows)), replace=False))


@parallel.one_blas_thread()
def _study_labels(
    sample: ItemRows,
    lists: Integers,
    codes: Integers,
    names: list[str],
    condition: float,
    generator: np.random.Generator,
) -> tuple[variants.Labelled, dict[str, Any]]:
    """Items for the AUC of labels; whether these are recovered, and their AUC under rescalings."""
    codes = np.where(sample.norms > 0, codes, -1)  # zero rows have no neighbours
    given = np.flatnonzero(codes >= 0)
    units = _draw(given, _LABELLED_ROWS, generator)
    if len(np.unique(codes[units])) == len(units):  # labels of few rows: whole ones instead
        labels_of_many = np.flatnonzero(np.bincount(codes[given]) > 1)
        chosen = _draw(labels_of_many, _LABELLED_ROWS // 2, generator)
        units = _draw(given[np.isin(codes[given], chosen)], _LABELLED_ROWS, generator)
    rows = memmap.take_rows("items", sample.items, units)
    recovery = search_rescalings(rows, codes[units], condition, generator, sample.n_threads)
    queries = given[label_permutation.draw_per_label(codes[given], _QUERIES, generator)]
    scaled = unit_rows(rows)
    ranks = label_permutation.doubled_ranks(scaled @ scaled.T)
    ranking = label_permutation.Ranking(lists[queries], ranks)
    best = label_permutation.permute_labels(
        [ranking], queries, units, codes, names, generator, sample.n_threads
    )
    return (units, codes[units]), {"label_test": best.test, "label_recovery": recovery}


@parallel.one_blas_thread()
def sensitivity_index(
    sample: ItemRows, lists: Integers, generator: np.random.Generator | None = None
) -> tuple[float, Floats]:
    """Mean total-variation index of the edges, and the share of each dimension in it.

    With a generator, in a random basis.
    """
    sample, lists = edges.gather_items(sample, lists)
    if generator is not None:
        Q, R = np.linalg.qr(generator.standard_normal((sample.items.shape[1],) * 2))
        # with these signs the rotation is uniformly distributed
        rotated = map_rows(sample.items, Q * np.sign(np.diag(R)))
        sample = sample._replace(items=validation.read_only(rotated))
    n, d = len(lists), sample.items.shape[1]
    boundaries = parallel.row_blocks(n, _ROWS_PER_PART)
    n_parts = len(boundaries) - 1
    indices = parallel.unfilled(lists.shape, np.float64)
    totals = parallel.unfilled((n_parts, d), np.float64)
    parallel.run(
        intervals.edge_indices, parallel.row_blocks(n_parts, 1), *sample.arrays, lists,
        validation.read_only(boundaries), indices, totals,
        n_threads=sample.n_threads,
    )  # fmt: skip
    sums = totals.sum(axis=0)
    finite = np.isfinite(indices)
    mean = float(indices[finite].mean()) if finite.any() else 0.0
    return mean, sums / sums.sum() if sums.sum() > 0 else sums
