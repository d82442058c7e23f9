"""compare: which similarity to use for the items of interactions."""

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fastcos import validation
from fastcos.comparison.candidates import (
    DEFAULT,
    NO_MODEL,
    OF_COLUMNS,
    Candidate,
    representative,
    select_candidates,
    under_rescalings,
)
from fastcos.comparison.examples import choose_examples
from fastcos.comparison.models import (
    PREPROCESSINGS,
    Fitted,
    ModelVariant,
    as_settings,
    fit_models,
    grid_variants,
    named_variants,
)
from fastcos.comparison.rescaled import RescalingEvaluator, score_rescalings
from fastcos.comparison.result import Comparison, RescalingScores
from fastcos.comparison.runner import (
    Executor,
    ModelEmbeddings,
    Task,
    evaluate_models,
    rank_results,
    run_here,
)
from fastcos.comparison.tasks.held_out import HeldOutTask
from fastcos.comparison.tasks.label_recovery import LabelTask
from fastcos.linalg.csr import as_interactions
from fastcos.metrics.label_permutation import label_names
from fastcos.parallel import Progress
from fastcos.similarity import Measure
from fastcos.similarity.diagonal import Rescaling

# labelled items that are ranked, or seen by the evaluated users, for each sampled one: 10,000 for
# the 2,000 of the command, so that a label of 2 in a thousand items still has 20
RANKED_PER_SAMPLED = 5
# entries of X with which its columns are compared without a model: 128 MiB as float32
MOST_ENTRIES = 2**25


def compare(
    X: Any,
    labels: Any = None,
    *,
    n_components: int | None = None,
    regularization: float | None = None,
    weight_decay: float | None = None,
    objective: str = "both",
    rescalings: Sequence[str | Rescaling] | None = None,
    preprocessing: Sequence[str] = ("none",),
    measures: Sequence[str | Measure] | str | None = None,
    strata: Any = None,
    grid: bool = True,
    n_sampled: int | None = None,
    n_examples: int = 0,
    budget: float | None = None,
    on_rescalings: Callable[[Sequence[RescalingScores]], None] | None = None,
    progress: Progress | None = None,
    random_state: int = 0,
    executor: Executor = run_here,
) -> Comparison:
    """Which similarity to use for these items: every measure under every rescaling of one model.

    All rescalings of objective (1) are the same model: the same predictions, the same loss. Where
    their scores differ, cosine similarity depends on a choice that training does not make.
    ``named`` and ``grid`` of the result are that table. ``leaderboard`` ranks all measures, with
    intervals, and recommends one, or none.

    With labels the task is to find items of the same label, for up to 1,000 labelled queries, as
    many of each label as there are. Permutations of the labels test, as in :func:`fastcos.audit`,
    whether the best candidate recovers them locally (the ten nearest have the query's label),
    globally (AUC of same-label items), or a label by itself.

    Without labels the task is to predict a fifth of every user's interactions from the rest, for
    up to 5,000 users. Each item that a user has seen votes for its 20 nearest, weighted by
    1 / log2(1 + rank). ``user_item_dot`` and ``user_item_cosine`` recommend their best-scored
    items; under ``project_back_users`` the 20 nearest users vote. A measure must beat the most
    popular items.

    The lead of the best candidate over the plain cosine (D = I, or Eq. 2 if it is the only
    objective) is cross-fitted: each half of the queries chooses a candidate, the other half
    measures its lead. Intervals are over queries, for this data and these models. Other draws of
    the data move scores more: on the paper's simulation an AUC by 0.03 to 0.06.

    Parameters
    ----------
    X : sparse matrix or array_like (n, p)
        Interactions of n users with p items, any finite real numbers. Zeros count as none.
    labels : sequence (p,) of int or str, optional
        One label per item; None leaves an item out of the scores.
    n_components : int, optional
        Rank k of the model, from 1 to min(n, p). Default: 50, or min(n, p) if that is less.
    regularization : float, optional
        λ of Eq. 1, on the scale of squared singular values. Default: the square of the singular
        value number k/5, close to the paper's choice for its data (10,000).
    weight_decay : float, optional
        λ of Eq. 2, on the scale of singular values. Default: the square root of regularization,
        which puts the knee of both objectives at the same singular value; half of the largest
        singular value if that leaves no column.
    objective : {"both", "dropout", "weight_decay"}, default "both"
        Which of Eq. 1 and Eq. 2 to compare.
    rescalings : sequence of str or Rescaling, optional
        Default: every named one.
    preprocessing : sequence of str, default ("none",)
        Transformations of X before the model, of ``none``, ``standardize_columns``,
        ``center_columns``, ``center_rows``, ``double_center``, ``normalize_rows``, ``ips_columns``,
        ``ips_rows``, ``correspondence_scaling``, ``shifted_ppmi``. The leaderboard has models of
        each.
    measures : sequence of str or Measure, or "default", optional
        The measures of the leaderboard, to which the cosine is added. Unless they are chosen,
        cosine and correlation of the columns of X, without a model, are compared too. Default: all
        that the model can serve; "default" are a dozen of them that differ and take O(queries p k).
        One that requires more is given as an object: ``get_measure("soft_cosine", matrix=S)``.
    strata : sequence (p,) of int or str, optional
        The stratum of every item, such as its decade or language: ``stratified_auc`` is then over
        pairs of one stratum. None leaves an item out of that score. Default: by popularity.
    grid : bool, default True
        Whether to score the grid of exponents too.
    n_sampled : int, optional
        Score the rescalings by the neighbours and the labels of this many items, drawn at random.
        Rank five times as many labelled items by each measure, or draw users until they have seen
        five times as many items, but at least 500 users. Default: all.
    n_examples : int, default 0
        Keep the neighbours of this many popular items by every candidate of the leaderboard, for
        :func:`fastcos.plots.html.leaderboard_page`.
    budget : float, optional
        Seconds after which no further candidate is evaluated; those are ``left_out``.
    on_rescalings : callable, optional
        Called with the scores of the named rescalings, before the measures are evaluated.
    progress : callable, optional
        progress(done, total), in columns of the factorisations as in :meth:`fastcos.LinearMF.fit`,
        then, from 0 again, in embeddings and candidates.
    random_state : int, default 0
        Seed of the solver, the clustering behind AMI and ARI, the choice of queries or held-out
        interactions, and the bootstrap.
    executor : callable, optional
        executor(evaluator, works) returns evaluator.evaluate(work) of every work, in their order.
        :func:`fastcos.distributed.compare` evaluates on workers. Default: this process.

    Returns
    -------
    Comparison

    Raises
    ------
    ValueError
        An argument breaks its rule.

    Notes
    -----
    Time O(nnz k) for the model, O(p² k) per rescaling for AUC, MAP@R and neighbours, and
    O(queries p k) per candidate (O(p² k) without labels, and for measures that search neighbours
    in fit); no p x p array is held. Threads and memory are those of :func:`fastcos.set_config`.
    Source: Steck, Ekanadham, Kallus 2024 (arXiv:2403.05440), sections 2 and 4.

    Examples
    --------
    >>> import fastcos
    >>> data = fastcos.simulate_interactions(2000, 200, random_state=1)
    >>> comparison = fastcos.compare(
    ...     data.X, data.item_cluster, n_components=20, measures=["dot", "whitened_cosine"]
    ... )
    >>> comparison.auc_range() > 0.1, comparison.leaderboard.beats_chance
    (True, True)
    >>> comparison.named[0].name, comparison.item_embeddings(comparison.named[0]).shape
    ('identity', (200, 20))
    """
    started, chosen = time.monotonic(), measures not in (None, DEFAULT)
    validation.check_progress(progress)
    validation.check_callable("executor", executor)
    if on_rescalings is not None:
        validation.check_callable("on_rescalings", on_rescalings)
    grid = validation.as_flag("grid", grid)
    n_examples = validation.as_count("n_examples", n_examples, low=0)
    if budget is not None:
        budget = validation.as_real("budget", budget, above=0)
    X = as_interactions("X", X)
    p = X.shape[1]
    settings = as_settings(
        X.shape, n_components, objective, regularization, weight_decay, random_state
    )
    codes = None if labels is None else validation.as_partial_labels("labels", labels, p)
    if strata is not None:
        if codes is None:
            validation.check_none("strata", strata, "without labels")
        strata = validation.as_partial_labels("strata", strata, p)
    preprocessings = _preprocessings(preprocessing)
    named, on_grid = named_variants(rescalings, objective), grid_variants(objective) if grid else []
    seeds = np.random.SeedSequence(settings.random_state).spawn(3)
    sampling, resampling, drawing = map(np.random.default_rng, seeds)
    sampled = None
    if n_sampled is not None and validation.as_count("n_sampled", n_sampled, 2) < p:
        sampled = np.sort(drawing.permutation(p)[:n_sampled])

    popularity = np.bincount(X.indices, minlength=p).astype(np.int64)
    fitted = fit_models(X, settings, progress=progress)
    ranked = None if n_sampled is None else RANKED_PER_SAMPLED * n_sampled
    names_of_labels = [] if codes is None else label_names(labels)
    if codes is None:
        task: Task = (held_out := HeldOutTask(X, sampling, n_items=ranked))
        seen = held_out.rest
    else:
        task, seen = LabelTask(codes, popularity > 0, sampling, ranked, names=names_of_labels), X
    examples = choose_examples(codes, popularity, n_examples) if n_examples else None
    candidates, left_out = _candidates(
        measures, fitted, named, X, preprocessings,
        with_users=codes is None, with_columns=not chosen,
    )  # fmt: skip
    works = list(dict.fromkeys(map(representative, candidates)))
    total, done = len(named) + len(on_grid) + len(works), itertools.count()

    def tick() -> None:
        if progress is not None:
            progress(next(done), total)

    tick()
    evaluator = RescalingEvaluator(
        fitted.models, codes, strata, popularity, settings.random_state, sampled
    )
    tables = score_rescalings(evaluator, named, on_grid, tick, executor)
    if on_rescalings is not None:
        on_rescalings(tables.named)
    of_seen = fitted if seen is X else fit_models(seen, settings)
    scores = {}
    for work, result in evaluate_models(
        task, seen, of_seen, named, settings, works, executor, examples
    ):
        scores[work] = result
        tick()
        if budget is not None and time.monotonic() - started > budget:
            break
    outcomes = {one: scores.get(representative(one)) for one in candidates}
    results = [(one, result) for one, result in outcomes.items() if result is not None]
    left_out |= {
        str(one): f"more than {budget:g} s" for one, result in outcomes.items() if result is None
    }
    return Comparison(
        leaderboard=rank_results(
            task, results, left_out, resampling, chosen=chosen, examples=examples
        ),
        **tables._asdict(),
        sampled=sampled,
        labels=codes,
        label_names=names_of_labels,
        popularity=popularity,
        parameters={
            "n_users": X.shape[0],
            "n_items": p,
            "n_interactions": X.nnz,
            "n_labelled": None if codes is None else int((codes >= 0).sum()),
            **settings._asdict(),
            "regularization": fitted.regularization,
            "weight_decay": fitted.weight_decay,
            "preprocessing": preprocessings,
            "n_sampled": n_sampled,
        },
        models=fitted.models,
    )


def _preprocessings(chosen: Sequence[str] | str) -> list[str]:
    """The chosen names, each once; the baseline is of "none", which comes first."""
    listed = [chosen] if isinstance(chosen, str) else validation.as_list("preprocessing", chosen)
    known = [validation.as_choice("preprocessing", name, PREPROCESSINGS) for name in listed]
    return list(dict.fromkeys(["none", *known]))


def _candidates(
    measures: Sequence[str | Measure] | str | None,
    fitted: Fitted,
    named: Sequence[ModelVariant],
    X: Any,
    preprocessings: Sequence[str],
    *,
    with_users: bool,
    with_columns: bool,
) -> tuple[list[Candidate], dict[str, str]]:
    """The measures under every rescaling, without a model, and after every preprocessing.

    The plain cosine is first. Second come those left out, and why.
    """
    names = [variant.name for variant in named]
    embeddings = ModelEmbeddings(fitted, named, X)(names[0])
    selected, left_out = select_candidates(measures, embeddings, with_users=with_users)
    of_models = under_rescalings(selected, names)
    of_columns = [Candidate(name, NO_MODEL) for name in OF_COLUMNS] if with_columns else []
    if of_columns and X.shape[0] * X.shape[1] > MOST_ENTRIES:
        of_columns = []
        left_out["cosine with no model"] = f"at most {MOST_ENTRIES:,} entries of X"
    preprocessed = [
        replace(one, preprocessing=name) for name in preprocessings[1:] for one in of_models
    ]
    return [*of_models, *of_columns, *preprocessed], left_out
