"""The function ``audit``, which draws samples of the items and runs all parts of an audit."""

from typing import Any, NamedTuple

import numpy as np

from fastcos import metrics, parallel, validation
from fastcos.auditing import certificates, neighbor_edges, variants
from fastcos.auditing.audit_records import (
    BALANCED_BY_COUNTS,
    DECAY,
    NOISE_BALANCED,
    RANKING,
    TRAINED_ON,
    VariantScores,
)
from fastcos.auditing.label_recovery import search_rescalings
from fastcos.auditing.neighbor_edges import ItemRows
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

# The following five constants are sizes of samples. Larger samples reduce the standard errors of an
# audit, and increase its run time. `python -m bench.lab.curves audit` compares the run time of an
# audit with the time of one top_k of all items.

# Number of items for which the audit computes certificates and attacks under rescalings.
_CERTIFIED_ROWS = 48
# Number of items whose neighbours in the audited embeddings are compared with their neighbours in
# the variants.
_LISTED_ROWS = 500
# Number of labelled items from which the AUC of the labels is computed.
_LABELLED_ROWS = 1000
# A test compares the labels of items with the labels of their neighbours. At most _QUERIES labelled
# items take part in the test.
_QUERIES = 20_000
# Number of items from which the sensitivity index is computed. The index is a mean over pairs. Each
# pair consists of one of these items and a neighbour of this item.
_INDEXED_ROWS = 2000
# The report compares two values: the sensitivity index in the basis of the model, and the mean of
# the sensitivity index over _RANDOM_BASES random bases.
_RANDOM_BASES = 3
# The sensitivity index is summed in parts of _ROWS_PER_PART rows. The number of rows in a part is
# fixed, so that the order of summation, and therefore the rounding, does not depend on the number
# of threads.
_ROWS_PER_PART = 128
# All norms count as equal if the largest norm is at most _EQUAL_NORMS times the smallest norm. This
# limit also accepts rows that were normalised in float16.
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
    weight_decay_on: str = "unknown",
    n_threads: int | None = None,
    working_memory: float | None = None,
    progress: parallel.Progress | None = None,
    random_state: int | np.random.Generator = 0,
) -> Audit:
    """Report how much the cosines of items depend on the parametrisation of their model.

    A rescaling is a diagonal matrix D with positive entries. If the users are multiplied by D and
    the items by the inverse of D, no dot product of a user and an item changes. The cosines of the
    items change, however, and therefore their nearest neighbours change as well. The report
    contains bounds on the share of neighbours that are still among the k nearest after a rescaling.
    The report also compares these neighbours with the neighbours in other parametrisations of the
    model, and recommends similarities that do not depend on D.

    The report assumes that the model uses the items only in dot products with users, queries or
    contexts, and that the loss does not determine the scale of the latent dimensions. The
    assumptions do not hold for models that were trained on the cosine, such as most sentence
    encoders. Vectors that are sums of items and contexts, such as the released GloVe vectors, also
    violate the assumptions. For vectors that violate the assumptions, the report shows how
    sensitive the neighbours are to a rescaling, but it does not show that the neighbours are
    arbitrary.

    Parameters
    ----------
    items : array_like (p, d), float32 or float64
        Item embeddings, with p > k. A zero row has no direction; the report states the number of
        zero rows and leaves them out.
    users : array_like (n, d), optional
        User or query embeddings of the same model. If users are passed, the audit also compares the
        neighbours in the audited items with two other lists: the neighbours in the balanced
        factors, and the neighbours by the query metric. The balanced factors and the query metric
        depend on the users.
    labels : array_like (p,), int or str, optional
        Label of each item, such as its category; None for an item without a label. The audit tests
        whether cosines recover the labels.
    popularity : array_like (p,), optional
        Popularity of each item, for example its number of users.
    activity : array_like (n,), optional
        Number of interactions of each user. If ``popularity`` and ``activity`` are passed, the
        audit recognises factors of a training like ALS-WR, in which the weight decay of each row is
        proportional to the row's number of interactions. If all observations have equal noise, many
        epochs of stochastic gradient descent lead to nearly the same form as ALS-WR.
    gradient_noise : GradientNoise, optional
        Gradient noise of the same items and users, from :func:`fastcos.auditing.gradient_noise`.
        With ``gradient_noise``, the audit recognises factors to which stochastic gradient descent
        has converged. The audit also predicts the number of epochs in which the distance of the
        factors from convergence falls to 1/e of its value.
    k : int
        Number of neighbours per item.
    condition : float
        The verdict is about rescalings D whose largest entry is at most ``condition`` times the
        smallest entry. The condition number of D is its largest entry divided by its smallest. The
        default of 1.2 is typical of two converged training runs of one model that differ only in
        their random seed. The rescaling between two training runs has a condition number of 2 to 30
        if the runs are short, or if their initial factors or optimisers differ
        (``docs/explanation/scale_of_dimensions.md``). The paper (section 2.2) names two special
        cases of D. In the simulation of the paper, the rescaling from one special case to the other
        has a condition number of 5. The rescaling from the original factors to either special case
        has a condition number of 2.2.
    trained_on : {"dot", "ranking", "cosine", "unknown"}
        The quantities on which the loss of the model depends: dot products ("dot"), differences of
        dot products ("ranking"), or cosines ("cosine"). The vectors alone do not show how the model
        was trained. Choose "ranking" for a loss that depends only on the differences between the
        dot products of one user with several items, such as BPR or a softmax over items. Choose
        "ranking" as well if the model trains a bias per user. If the same vector is added to all
        items, all scores of a user change by the same number. A ranking loss does not change in
        this case, because the number cancels in the differences of the scores. If the model trains
        a bias per user, a change of the user's bias can compensate for the change of the user's
        scores. If ``trained_on`` is "ranking", the audit also compares the items with centred
        items, from which the mean of the items has been subtracted. If ``trained_on`` is "ranking",
        the audit also centres the items before it computes the query metric.
    weight_decay_on : {"both", "not both", "unknown"}
        Pass "both" if the loss had weight decay on users and on items; the weights of the rows may
        be equal or unequal. Pass "not both" if the loss had no weight decay, or if it had weight
        decay only on users or only on items. Once training has converged, weight decay on both
        users and items has determined the scale of each dimension, as in Eq. 2 of the paper. If
        weight decay has determined the scale, a rescaling D increases the loss. After converged
        training with weight decay on users and items, the Gram matrices of users and items are
        equal. If ``users`` are passed, the audit checks whether the Gram matrices are equal. If the
        Gram matrices of users and items differ, the report says so and assumes that D is arbitrary.

    n_threads, working_memory
        As in :func:`fastcos.top_k`.
    progress : callable, optional
        Function that is called as progress(done, total) during the search for nearest neighbours.
        ``done`` and ``total`` are numbers of items.
    random_state : int or Generator
        Seed of the samples.

    Returns
    -------
    Audit
        The report. ``verdict`` summarises the report in a few sentences, and ``to_dict()`` returns
        the report as plain Python values.

    Raises
    ------
    ValueError
        Raised if an array contains NaN or infinity, or if fewer than k + 1 items are nonzero.
        Raised if users and items have different widths, or if the length of ``labels``,
        ``popularity``, ``activity`` or ``gradient_noise`` is wrong. Raised if ``k``, ``condition``,
        ``trained_on``, ``weight_decay_on`` or ``random_state`` is out of range.

    Notes
    -----
    An audit runs one search (``top_k``) for the neighbours of all items, and uses samples of the
    items for the parts that take longer:

    - Certificates and attacks under rescalings are computed for 48 items.
    - The neighbours of 500 items are compared with the neighbours of the same items in each
      variant. A variant is another parametrisation of the model, or a similarity that does not
      depend on D.
    - The AUC of the labels is computed from 1,000 items.
    - The sensitivity index is computed from the neighbours of 2,000 items.
    - The search for the worst rescaling uses 500 items, and the effect of this rescaling is
      measured on 1,000 other items.

    Memory-mapped items and users (``np.load(path, mmap_mode="r")``) are read in blocks that fit
    into ``working_memory``; the report is the same as for arrays in memory. In addition to the
    blocks of rows, an audit takes about ``30 * (k + 1)`` bytes of memory per item. An audit reads a
    memory-mapped file about 20 times.

    The rescalings are those of Steck, Ekanadham and Kallus, arXiv:2403.05440. The certificates are
    those of :func:`fastcos.certified_neighbors`.

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
    sample, k, condition = neighbor_edges.as_edges(
        items, k, condition, working_memory=working_memory, n_threads=n_threads
    )
    p, d = sample.items.shape
    codes = None if labels is None else validation.as_partial_labels("labels", labels, p)
    model = _as_model_context(sample, users, popularity, activity, gradient_noise)
    trained_on = validation.as_choice("trained_on", trained_on, TRAINED_ON)
    weight_decay_on = validation.as_choice("weight_decay_on", weight_decay_on, DECAY)
    generator = validation.as_generator("random_state", random_state)
    nonzero_rows = np.flatnonzero(sample.norms > 0)
    norms = sample.norms[nonzero_rows]
    validation.check_enough("items", len(nonzero_rows), k + 1, "rows that are not zero")

    neighbors = neighbor_edges.nearest_items(sample, min(k + 1, p - 1), progress=progress).indices
    linear = certificates.linear_radii(sample, neighbors, k)
    lists = validation.read_only(np.ascontiguousarray(neighbors[:, :k]))

    index_sample, certificate_sample, list_sample = (
        sample.subset(_sample_rows(nonzero_rows, max_rows, generator))
        for max_rows in (_INDEXED_ROWS, _CERTIFIED_ROWS, _LISTED_ROWS)
    )
    label_sample, label_fields = None, dict[str, Any](label_test=None, label_recovery=None)
    if codes is not None:
        names = label_permutation.label_names(labels)
        label_sample, label_fields = _study_labels(
            sample, lists, codes, names, condition, generator
        )
    sensitivity_fields = _study_sensitivity(index_sample, certificate_sample, lists, generator)
    variant_fields = _study_variants(
        list_sample, lists, model, label_sample, is_ranking=trained_on == RANKING
    )
    return Audit(
        n_items=p,
        n_dimensions=d,
        k=k,
        condition=condition,
        n_zero=p - len(nonzero_rows),
        n_duplicates=count_duplicates(sample.items),
        n_sampled=len(certificate_sample.rows),
        n_listed=len(list_sample.rows),
        trained_on=trained_on,
        weight_decay_on=weight_decay_on,
        equal_norms=bool(norms.max() <= _EQUAL_NORMS * norms.min()),
        robustness=robustness_curve(certificate_sample, linear, k, condition, generator),
        hubness=metrics.hubness(lists),
        popularity=(
            None
            if model.popularity is None
            else metrics.popularity_bias(sample.items, model.popularity, lists)
        ),
        mean_cosine=metrics.mean_cosine(sample.items).value,
        **sensitivity_fields,
        **variant_fields,
        **label_fields,
    )


class _ModelContext(NamedTuple):
    """The users of the audited model, the counts of interactions, and the gradient noise.

    ``popularity`` (p,) contains the number of interactions of each item, and ``activity`` (n,)
    contains the number of interactions of each user.
    """

    users: validation.Rows | None
    popularity: Floats | None
    activity: Floats | None
    noise: GradientNoise | None

    def row_weights(self) -> dict[str, tuple[Floats, Floats]]:
        """Return a dict from the name of each weighted form to its item weights and user weights.

        A weighted form is a parametrisation in which the weighted Gram matrices of items and users
        are equal.
        """
        weights = {}
        if self.popularity is not None and self.activity is not None:
            weights[BALANCED_BY_COUNTS] = self.popularity, self.activity
        if self.noise is not None:
            weights[NOISE_BALANCED] = self.noise.item_weights, self.noise.user_weights
        return weights


def _as_model_context(
    sample: ItemRows, users: Any, popularity: Any, activity: Any, noise: Any
) -> _ModelContext:
    """Validate the optional arguments: users, counts of interactions, and gradient noise."""
    p = len(sample.items)
    if users is not None:
        users = memmap.as_mapped_rows("users", users)
        validation.check_same_width("users", users, "items", sample.items)
    if popularity is not None:
        popularity = validation.as_vector("popularity", popularity, p)
    if activity is not None:
        if users is None or popularity is None:
            validation.check_none("activity", activity, "without users and popularity")
        activity = validation.as_vector("activity", activity, len(users))
    if noise is not None:
        _check_noise(noise, p, users)
    return _ModelContext(users, popularity, activity, noise)


@parallel.one_blas_thread()
def _study_variants(
    list_sample: ItemRows,
    lists: Integers,
    model: _ModelContext,
    label_sample: variants.Labelled | None,
    *,
    is_ranking: bool,
) -> dict[str, Any]:
    """Return the fields of Audit about parametrisations, invariant baselines and the spectrum."""
    users, noise = model.users, model.noise
    item_moments = moments_of(list_sample.items)
    user_moments = None if users is None else moments_of(users).second
    weighted = {
        name: (_weighted_gram(list_sample.items, item_weights), _weighted_gram(users, user_weights))
        for name, (item_weights, user_weights) in model.row_weights().items()
    }

    def score(variant: variants.Variant) -> VariantScores:
        return variants.score_variant(variant, list_sample, lists[list_sample.rows], label_sample)

    forms = tuple(
        map(score, variants.parametrizations(item_moments.second, user_moments, weighted))
    )
    if is_ranking:
        forms += (score(variants.centered_form(item_moments.mean)),)
    baselines = variants.invariant_baselines(item_moments, users, is_ranking=is_ranking)
    d = list_sample.items.shape[1]
    axis_lengths = variants.singular_values(item_moments.covariance)
    spectrum, total = np.diag(axis_lengths), np.square(axis_lengths).sum()
    return {
        "epochs_to_forget": None if noise is None else noise.epochs_to_forget,
        "parametrization": variants.recognize_parametrization(forms) if d > 1 else None,
        "given": score(variants.AS_GIVEN),
        "parametrizations": forms,
        "invariant_baselines": tuple(map(score, baselines)),
        "effective_rank": metrics.effective_rank(
            np.diag(variants.singular_values(item_moments.second))
        ),
        "isoscore": (metrics.participation_ratio(spectrum) - 1) / (d - 1) if d > 1 else None,
        "first_axis_share": float(axis_lengths[0] ** 2 / total) if total > 0 else None,
    }


def _weighted_gram(rows: Any, weights: Floats) -> Floats:
    """Return the weighted second moments of the rows.

    The weight of a row is its number of interactions or its gradient noise.
    """
    if weights.min() < 0 or weights.sum() == 0:
        rule = "contain numbers of interactions, which are not negative and not all 0"
        problem = f"the lowest {weights.min():g}" if weights.min() < 0 else "only zeros"
        raise ValueError(
            f"popularity and activity must {rule}, got {problem}. The audit needs these numbers to "
            "recognise ALS-WR"
        )
    return gram_of(rows, np.zeros(rows.shape[1]), weights / weights.sum())


def _check_noise(noise: Any, n_items: int, users: validation.Rows | None) -> None:
    """Raise ValueError if the gradient noise was computed for factors of other shapes."""
    validation.as_instance("gradient_noise", noise, GradientNoise, "from gradient_noise()")
    if users is None:
        validation.check_none("gradient_noise", noise, "without users")
    sides = (noise.item_weights, n_items), (noise.user_weights, len(users))  # type: ignore[arg-type]
    for weights, n_rows in sides:
        validation.as_vector("weights of gradient_noise", weights, n_rows)


def _sample_rows(rows: Integers, max_rows: int, generator: np.random.Generator) -> Integers:
    """Return a random sample of at most max_rows of the rows, in ascending order."""
    return np.sort(generator.choice(rows, min(max_rows, len(rows)), replace=False))


@parallel.one_blas_thread()
def _study_labels(
    sample: ItemRows,
    lists: Integers,
    codes: Integers,
    names: list[str],
    condition: float,
    generator: np.random.Generator,
) -> tuple[variants.Labelled, dict[str, Any]]:
    """Return labelled items, their labels, and the fields ``label_test`` and ``label_recovery``.

    The items are a sample of all labelled items. The field ``label_test`` contains a test of
    whether cosines recover the labels. The field ``label_recovery`` contains the range of the AUC
    that a search over rescalings finds.
    """
    codes = np.where(sample.norms > 0, codes, -1)  # Zero rows have no neighbours.
    labelled_rows = np.flatnonzero(codes >= 0)
    sample_rows = _sample_rows(labelled_rows, _LABELLED_ROWS, generator)
    if len(np.unique(codes[sample_rows])) == len(sample_rows):
        # The AUC needs pairs of items with the same label, so a second sample is drawn, only from
        # items whose label occurs more than once.
        shared_labels = np.flatnonzero(np.bincount(codes[labelled_rows]) > 1)
        sampled_labels = _sample_rows(shared_labels, _LABELLED_ROWS // 2, generator)
        has_sampled_label = np.isin(codes[labelled_rows], sampled_labels)
        sample_rows = _sample_rows(labelled_rows[has_sampled_label], _LABELLED_ROWS, generator)
    rows = memmap.take_rows("items", sample.items, sample_rows)
    recovery = search_rescalings(rows, codes[sample_rows], condition, generator, sample.n_threads)
    queries = labelled_rows[
        label_permutation.draw_per_label(codes[labelled_rows], _QUERIES, generator)
    ]
    units = unit_rows(rows)
    ranks = label_permutation.doubled_ranks(units @ units.T)
    ranking = label_permutation.Ranking(lists[queries], ranks)
    permutations = label_permutation.permute_labels(
        [ranking], queries, sample_rows, codes, names, generator, sample.n_threads
    )
    return (sample_rows, codes[sample_rows]), {
        "label_test": permutations.test,
        "label_recovery": recovery,
    }


def _study_sensitivity(
    index_sample: ItemRows,
    certificate_sample: ItemRows,
    lists: Integers,
    generator: np.random.Generator,
) -> dict[str, Any]:
    """Return the fields of Audit that describe the sensitivity index.

    The sensitivity index is computed from the edges of ``index_sample``. The function also computes
    the index in several random bases, and returns the mean of these results. For the random bases,
    the function uses the edges of ``certificate_sample``, which is smaller than ``index_sample``.
    """
    sensitivity, shares = sensitivity_index(index_sample, lists[index_sample.rows])
    random_basis_indices = [
        sensitivity_index(certificate_sample, lists[certificate_sample.rows], generator)[0]
        for _ in range(_RANDOM_BASES)
    ]
    return {
        "sensitivity": sensitivity,
        "random_basis_sensitivity": float(np.mean(random_basis_indices)),
        "dimension_shares": shares,
    }


@parallel.one_blas_thread()
def sensitivity_index(
    sample: ItemRows, lists: Integers, generator: np.random.Generator | None = None
) -> tuple[float, Floats]:
    """Return the mean total-variation index of the edges, and each dimension's share of the index.

    If a generator is passed, the items are first rotated to a random basis.
    """
    sample, lists = neighbor_edges.gather_items(sample, lists)
    if generator is not None:
        Q, R = np.linalg.qr(generator.standard_normal((sample.items.shape[1],) * 2))
        # If the signs of the columns of Q are chosen so that the diagonal of R is positive, Q is a
        # uniformly distributed orthogonal matrix (Mezzadri 2007).
        rotated = map_rows(sample.items, Q * np.sign(np.diag(R)))
        sample = sample._replace(items=validation.read_only(rotated))
    n, d = len(lists), sample.items.shape[1]
    boundaries = parallel.row_blocks(n, _ROWS_PER_PART)
    n_parts = len(boundaries) - 1
    indices = parallel.unfilled(lists.shape, np.float64)
    totals = parallel.unfilled((n_parts, d), np.float64)
    parallel.run(
        intervals.edge_indices, parallel.row_blocks(n_parts, 1), sample.arrays, lists,
        validation.read_only(boundaries), indices, totals,
        n_threads=sample.n_threads,
    )  # fmt: skip
    sums = totals.sum(axis=0)
    finite = np.isfinite(indices)
    mean = float(indices[finite].mean()) if finite.any() else 0.0
    return mean, sums / sums.sum() if sums.sum() > 0 else sums
