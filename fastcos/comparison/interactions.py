"""The function ``compare``, which recommends a similarity measure for the items of a model."""

import itertools
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from fastcos import config, validation
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
    FittedModels,
    ModelVariant,
    Settings,
    as_settings,
    fit_models,
    grid_variants,
    named_variants,
)
from fastcos.comparison.rescaling_table import RescalingEvaluator, score_rescalings
from fastcos.comparison.result import Comparison, RescalingScores
from fastcos.comparison.runner import (
    CandidateScores,
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
from fastcos.similarity.rescalings import Rescaling
from fastcos.validation import Integers

# Rescalings are scored on a sample of n items. Measures rank a larger sample, which contains
# RANKED_PER_SAMPLED * n items. Each of the ranked items has a label or has been seen by one of the
# evaluated users. For n = 2,000, the measures rank 10,000 items. Even a label of only 0.2 % of the
# items then occurs 20 times.
RANKED_PER_SAMPLED = 5
# The columns of X can be compared without a model. The comparison takes this number of bytes of
# memory per entry of X, whether the entry is zero or not. Each entry is stored twice in float32: in
# the matrix of all columns and in the matrix of the labelled columns. Each entry is also stored
# three times in float64: converted, normalised and packed. With the default working memory of 1
# GiB, the columns are therefore compared only if X has at most 2^25 entries.
BYTES_PER_COLUMN_ENTRY = 32


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
    grid: bool = True,
    n_sampled: int | None = None,
    n_examples: int = 0,
    budget: float | None = None,
    on_rescalings: Callable[[Sequence[RescalingScores]], None] | None = None,
    progress: Progress | None = None,
    random_state: int = 0,
    executor: Executor = run_here,
) -> Comparison:
    """Compare similarity measures under all rescalings of a model, and recommend one measure.

    If a model minimises Eq. 1, a rescaling D changes neither the predictions of the model nor its
    loss. If the scores of the cosine differ between rescalings, the cosine depends on D, and the
    loss does not determine D. The attributes ``named`` and ``grid`` of the result contain the
    scores of the cosine under every rescaling. The attribute ``leaderboard`` ranks all measures,
    with intervals, and recommends at most one of them.

    With labels, the task is to find items with the same label as a query item. Up to 1,000 labelled
    items are queries, distributed evenly over the labels. As in :func:`fastcos.audit`, permutations
    of the labels test whether the best candidate recovers the labels. A local test asks whether the
    ten nearest items have the label of the query. A global test asks whether pairs with the same
    label have higher scores than other pairs (AUC). Further tests examine each label separately.

    Without labels, the task is to predict a fifth of the interactions of each user from the user's
    other interactions; up to 5,000 users are evaluated. Each measure recommends items to the users.
    If the measure compares items with each other, each item that a user has seen votes for its 20
    nearest items. A vote for the item at rank r has the weight 1 / log2(1 + r). For the measures
    ``user_item_dot`` and ``user_item_cosine``, there are no votes: the items with the highest
    scores are recommended. For ``project_back_users``, the 20 nearest users vote for the items that
    they have seen. As a trivial answer, the most popular items are recommended to all users. A
    measure is recommended only if the best measure scores higher than this trivial answer.

    The baseline is the cosine under D = I, or the cosine of Eq. 2 if Eq. 2 is the only objective.
    The lead of the best candidate over the baseline is cross-fitted: each half of the queries
    chooses a candidate, and the other half measures the lead of this candidate. The intervals show
    only how much the scores would change with other queries, for the same data and the same models.
    If the data are drawn anew, the scores change by more than the intervals suggest. For example,
    if the simulation of the paper is repeated with another seed, an AUC changes by 0.03 to 0.06.

    Parameters
    ----------
    X : sparse matrix or array_like (n, p)
        Interactions of n users with p items. The entries may be any finite real numbers. An entry
        of 0 means that there was no interaction.
    labels : sequence (p,) of int or str, optional
        One label per item; None leaves an item out of the scores.
    n_components : int, optional
        Rank k of the model, from 1 to min(n, p). Default: 50, or min(n, p) if it is smaller.
    regularization : float, optional
        The regularisation strength λ of Eq. 1, on the scale of squared singular values. By default,
        λ is the square of singular value number k/5. For the simulation of the paper, this default
        is close to 10,000, the value in the paper.
    weight_decay : float, optional
        The regularisation strength λ of Eq. 2, on the scale of singular values. By default, λ is
        the square root of ``regularization``, so that both objectives begin to suppress directions
        at the same singular value. If this λ would make all columns of the embeddings zero, the
        default is half of the largest singular value instead.
    objective : {"both", "dropout", "weight_decay"}, default "both"
        The compared objectives: both, only Eq. 1 ("dropout"), or only Eq. 2 ("weight_decay").
    rescalings : sequence of str or Rescaling, optional
        The rescalings of Eq. 1. Default: all named rescalings.
    preprocessing : sequence of str, default ("none",)
        Transformations of X before the model is fitted: ``none``, ``standardize_columns``,
        ``center_columns``, ``center_rows``, ``double_center``, ``normalize_rows``, ``ips_columns``,
        ``ips_rows``, ``correspondence_scaling``, ``shifted_ppmi``. One model is fitted per
        transformation, and the leaderboard contains the measures of all these models.
    measures : sequence of str or Measure, or "default", optional
        The measures of the leaderboard; the cosine is always added. If you omit ``measures``, the
        comparison includes all measures for which X and the model provide the required data. The
        text "default" stands for twelve measures that rank the items in twelve different orders;
        each of these measures takes O(queries p k) time. If you omit ``measures`` or pass
        "default", the
        leaderboard also contains the cosine and the correlation of the columns of X, which need no
        model. These two measures are left out if ``32 * n * p`` bytes do not fit into the setting
        ``working_memory``. A measure that requires further data must be passed as an object, such
        as ``get_measure("soft_cosine", matrix=S)``.
    grid : bool, default True
        Whether to also score a grid of rescalings D = S^a Σ^b.
    n_sampled : int, optional
        Number of items that are sampled at random to score the rescalings. By default, no items are
        sampled: all items are used. With labels, the measures are scored by ranking
        ``5 * n_sampled`` labelled items. Without labels, the measures are scored on at least 500
        users, or on all users if there are fewer. If the first 500 users together have seen fewer
        than about ``5 * n_sampled`` items, more users are drawn, up to 5,000.
    n_examples : int, default 0
        Number of popular items that serve as examples. The leaderboard stores the neighbours that
        each example has under every candidate, so that
        :func:`fastcos.plots.html.leaderboard_page` can show these neighbours.
    budget : float, optional
        Time in seconds after which no further candidate is evaluated. The attribute ``left_out`` of
        the leaderboard lists the candidates that were not evaluated.
    on_rescalings : callable, optional
        Function that is called with the scores of the named rescalings before the measures are
        evaluated.
    progress : callable, optional
        Function that is called as progress(done, total). During the first factorisation, ``done``
        and ``total`` count columns, as in :meth:`fastcos.LinearMF.fit`. After the factorisation,
        ``done`` starts again from 0; from then on, ``done`` and ``total`` count rescalings and
        candidates.
    random_state : int, default 0
        Seed of everything that is random: the solver, the clustering for AMI and ARI, the choice of
        items and users, the held-out interactions, and the bootstrap.
    executor : callable, optional
        A function ``executor(evaluator, jobs)`` that returns ``evaluator.evaluate(job)`` for every
        job, in the order of the jobs. By default, the jobs run in this process, whereas
        :func:`fastcos.distributed.compare` runs its jobs on workers.

    Returns
    -------
    Comparison
        The scores of the rescalings, and the leaderboard of all measures.

    Raises
    ------
    ValueError
        An argument is invalid.

    Notes
    -----
    Fitting the model takes O(nnz k) time, and scoring a rescaling (AUC, MAP@R and neighbours) takes
    O(p² k) time. Evaluating a candidate takes O(queries p k) time with labels, and O(p² k) time
    without labels. If the method ``fit`` of the measure searches for neighbours, the evaluation
    also takes O(p² k) time. No p x p array is allocated. :func:`fastcos.set_config` sets the number
    of threads and the working memory. Source: Steck, Ekanadham, Kallus 2024 (arXiv:2403.05440),
    sections 2 and 4.

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
    start_time, are_chosen = time.monotonic(), measures not in (None, DEFAULT)
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
    preprocessings = _preprocessings(preprocessing)
    named = named_variants(rescalings, objective)
    grid_points = grid_variants(objective) if grid else []
    seeds = np.random.SeedSequence(settings.random_state).spawn(3)
    task_random, bootstrap_random, item_random = map(np.random.default_rng, seeds)
    sampled_items = None
    if n_sampled is not None and validation.as_count("n_sampled", n_sampled, 2) < p:
        sampled_items = np.sort(item_random.permutation(p)[:n_sampled])

    popularity = np.bincount(X.indices, minlength=p).astype(np.int64)
    models = fit_models(X, settings, progress=progress)
    names_of_labels = [] if codes is None else label_names(labels)
    n_ranked = None if n_sampled is None else RANKED_PER_SAMPLED * n_sampled
    task, training_X = _draw_task(X, codes, names_of_labels, popularity, n_ranked, task_random)
    examples = choose_examples(codes, popularity, n_examples) if n_examples else None
    candidates, left_out = _candidates(
        measures, models, named, X, preprocessings,
        with_users=codes is None, with_columns=not are_chosen,
    )  # fmt: skip
    jobs = list(dict.fromkeys(map(representative, candidates)))
    total, done = len(named) + len(grid_points) + len(jobs), itertools.count()

    def tick() -> None:
        if progress is not None:
            progress(next(done), total)

    tick()
    evaluator = RescalingEvaluator(
        models.by_objective, codes, popularity, settings.random_state, sampled_items
    )
    tables = score_rescalings(evaluator, named, grid_points, tick, executor)
    if on_rescalings is not None:
        on_rescalings(tables.named)
    task_models = models if training_X is X else fit_models(training_X, settings)
    results, remaining = _results_until(
        math.inf if budget is None else start_time + budget,
        candidates,
        evaluate_models(task, training_X, task_models, named, settings, jobs, executor, examples),
        tick,
    )
    left_out |= {str(candidate): f"more than {budget:g} s" for candidate in remaining}
    leaderboard = rank_results(
        task, results, left_out, bootstrap_random, are_chosen=are_chosen, examples=examples
    )
    return Comparison(
        leaderboard=leaderboard,
        **tables._asdict(),
        sampled=sampled_items,
        labels=codes,
        label_names=names_of_labels,
        popularity=popularity,
        parameters=_parameters(X, codes, settings, models, preprocessings, n_sampled),
        models=models.by_objective,
    )


def _draw_task(
    X: sp.csr_array,
    codes: Integers | None,
    names: Sequence[str],
    popularity: Integers,
    n_ranked: int | None,
    random: np.random.Generator,
) -> tuple[Task, sp.csr_array]:
    """Return the task for scoring the candidates, and the interactions for training the models.

    - `codes` (p,): the label codes of the items, or None if the task is to predict held-out
      interactions.
    - `names`: the names of the labels, indexed by label code.
    - `popularity` (p,): the number of users of each item; items without users are not ranked.
    - `n_ranked`: the approximate number of items to rank; None stands for all items.
    """
    if codes is None:
        held_out = HeldOutTask.split(X, random, n_items=n_ranked)
        return held_out, held_out.training_X
    return LabelTask(codes, popularity > 0, random, n_ranked, names=names), X


def _parameters(
    X: sp.csr_array,
    codes: Integers | None,
    settings: Settings,
    models: FittedModels,
    preprocessings: Sequence[str],
    n_sampled: int | None,
) -> dict[str, Any]:
    """Return a dict of the parameters with which the same comparison can be repeated."""
    return {
        "n_users": X.shape[0],
        "n_items": X.shape[1],
        "n_interactions": X.nnz,
        "n_labelled": None if codes is None else int((codes >= 0).sum()),
        **settings._asdict(),
        "regularization": models.regularization,
        "weight_decay": models.weight_decay,
        "preprocessing": preprocessings,
        "n_sampled": n_sampled,
    }


def _results_until(
    deadline: float,
    candidates: Sequence[Candidate],
    evaluations: Iterable[tuple[Candidate, CandidateScores | ValueError]],
    tick: Callable[[], None],
) -> tuple[list[tuple[Candidate, CandidateScores | ValueError]], list[Candidate]]:
    """Evaluate candidates until the deadline; return the results, and the remaining candidates.

    - `deadline`: the value of ``time.monotonic`` after which no further candidate is evaluated.
    - `evaluations`: an iterator of pairs (candidate, result). If the candidates are evaluated in
      this process, a candidate is evaluated only when the function requests the next pair.
      Candidates that rank the items in the same order share one evaluation.
    - `tick`: a function that is called after each evaluation.
    """
    results_by_candidate = {}
    for candidate, result in evaluations:
        results_by_candidate[candidate] = result
        tick()
        if time.monotonic() > deadline:
            break
    results, remaining = [], []
    for candidate in candidates:
        result_key = representative(candidate)
        if result_key in results_by_candidate:
            results.append((candidate, results_by_candidate[result_key]))
        else:
            remaining.append(candidate)
    return results, remaining


def _preprocessings(preprocessing: Sequence[str] | str) -> list[str]:
    """Return the names of the preprocessings without repetitions, starting with "none"."""
    if isinstance(preprocessing, str):
        preprocessing = [preprocessing]
    names = validation.as_list("preprocessing", preprocessing)
    names = [validation.as_choice("preprocessing", name, PREPROCESSINGS) for name in names]
    return list(dict.fromkeys(["none", *names]))


def _candidates(
    measures: Sequence[str | Measure] | str | None,
    models: FittedModels,
    named: Sequence[ModelVariant],
    X: Any,
    preprocessings: Sequence[str],
    *,
    with_users: bool,
    with_columns: bool,
) -> tuple[list[Candidate], dict[str, str]]:
    """Return a list of candidates, which starts with the cosine, and a dict of the other measures.

    A candidate is a measure with a rescaling: either the first rescaling, or a further rescaling
    that may change the scores of the measure. The list contains each of these candidates once per
    preprocessing. If `with_columns` is true, the measures that compare columns of X are also
    candidates; they need no model. The second result is a dict: its keys are the measures that are
    not candidates, and each value is the reason, which names the data or the amount of memory that
    the measure requires.
    """
    names = [variant.name for variant in named]
    embeddings = ModelEmbeddings(models, named, X)(names[0])
    measure_candidates, left_out = select_candidates(measures, embeddings, with_users=with_users)
    model_candidates = under_rescalings(measure_candidates, names)
    column_candidates = [Candidate(name, NO_MODEL) for name in OF_COLUMNS] if with_columns else []
    column_memory = X.shape[0] * X.shape[1] * BYTES_PER_COLUMN_ENTRY / 2**20
    if column_memory > config.working_memory():
        requirement = f"a working_memory of at least {math.ceil(column_memory)} MiB"
        left_out |= {str(candidate): requirement for candidate in column_candidates}
        column_candidates = []
    preprocessed_candidates = [
        replace(candidate, preprocessing=name)
        for name in preprocessings[1:]
        for candidate in model_candidates
    ]
    return [*model_candidates, *column_candidates, *preprocessed_candidates], left_out
