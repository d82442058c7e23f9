"""compare: the paper's question on any interactions, with every alternative beside it."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fastcos import validation
from fastcos.comparison.evaluator import Over, here
from fastcos.comparison.models import PREPROCESSINGS, Settings, fit_models
from fastcos.comparison.rescaled import grid_variants, named_variants, score_rescalings
from fastcos.comparison.result import Comparison
from fastcos.comparison.runner import Contest
from fastcos.comparison.tasks.held_out import HeldOutQuestion
from fastcos.comparison.tasks.recovery import LabelQuestion
from fastcos.linalg.csr import as_interactions
from fastcos.measures import Measure
from fastcos.measures.rescaling import Rescaling
from fastcos.parallel import Progress

OBJECTIVES = {
    "both": ("dropout", "weight_decay"),
    "dropout": ("dropout",),
    "weight_decay": ("weight_decay",),
}


def compare(
    X: Any,
    labels: Any = None,
    *,
    n_components: int = 50,
    regularization: float | None = None,
    weight_decay: float | None = None,
    objective: str = "both",
    rescalings: Sequence[str | Rescaling] | None = None,
    measures: Sequence[str | Measure] | None = None,
    preprocessing: Sequence[str] = ("none",),
    seed: int = 0,
    progress: Progress | None = None,
    over: Over = here,
) -> Comparison:
    """Which similarity to use for these items: every measure under every rescaling of one model.

    All rescalings of objective (1) are the same model: the same predictions, the same loss. Where
    the scores differ between them, cosine similarity says what nobody trained. ``named`` and
    ``grid`` of the result are that table; ``standings`` ranks all measures, with intervals, and
    says in one sentence which to use, or that none is any good.

    With labels the question of the standings is how items find others of their label: 1,000 items
    are asked, among all labelled ones. The labels count as recovered if the votes of the ten
    nearest name them better than the commonest label would, and same-label items score higher
    more often than not, both by the best candidate and beyond chance.

    Without labels it is what users do next: a fifth of every user's interactions is held out, the
    model sees the rest, and every item that a user has seen votes for its 20 nearest, by 1 / log2
    of 1 + rank; 2,000 users are asked. Of ``user_item_dot`` and ``user_item_cosine`` the best
    scores count; by ``project_back_users`` the 20 nearest users vote for what they have seen. A
    measure must beat what is most popular.

    Whether the best candidate's lead over the plain cosine (D = I, or Eq. 2 where that is all) is
    more than chance is told by a choice on one half of the asked that is judged on the other half,
    and the reverse.

    Parameters
    ----------
    X : sparse matrix or array_like (n, p)
        Interactions of n users with p items, any finite real numbers. Zeros count as none.
    labels : sequence (p,) of int or str, optional
        One label per item; None for an item to be left out of the scores.
    n_components : int, default 50
        Rank k of the model, from 1 to min(n, p).
    regularization : float, optional
        λ of Eq. 1, compared with squared singular values. Default: the square of the singular
        value number k/5, which is about what the paper chose for its data (10,000).
    weight_decay : float, optional
        λ of Eq. 2, compared with singular values. Default: the square root of regularization, which
        puts the knee of both objectives at the same singular value; half of the largest singular
        value where that would leave no column.
    objective : {"both", "dropout", "weight_decay"}, default "both"
        Which of Eq. 1 and Eq. 2 to compare.
    rescalings : sequence of str or Rescaling, optional
        Default: every named one. The grid of exponents is scored in any case.
    measures : sequence of str or Measure, optional
        The measures of the standings, to which the cosine is added. Default: all that the model can
        serve; a measure that needs more takes part as an object, such as
        ``get_measure("soft_cosine", matrix=S)``. ``word_rotators_distance`` takes part only where
        it is named: with labels items are bags of the users, without users are bags of the items,
        and every pair that is scored is a linear programme of milliseconds.
    preprocessing : sequence of str, default ("none",)
        What to do to X before the model, of ``none``, ``standardize_columns``, ``center_columns``,
        ``center_rows``, ``double_center``, ``normalize_rows``, ``ips_columns``, ``ips_rows``,
        ``correspondence_scaling``, ``shifted_ppmi``: every one trains models of its own for the
        standings.
    seed : int, default 0
        For the solver, the clustering behind AMI and ARI, what is asked or held out, the bootstrap.
    progress : callable, optional
        progress(done, total), in columns of the factorisations as :meth:`fastcos.LinearMF.fit`
        tells them, then, from 0 again, in numbers of embeddings and candidates.
    over : callable, optional
        over(judge, cells) answers every cell by judge.answer(cell), in their order, wherever it
        likes: :func:`fastcos.distributed.compare` does so on workers. Default: here.

    Returns
    -------
    Comparison

    Raises
    ------
    ValueError
        An argument breaks its rule.

    Notes
    -----
    Time O(nnz k) for the model, O(p² k) per rescaling for AUC, MAP@R and neighbours, and O(asked p
    k) per candidate (O(p² k) without labels, and for measures that look for neighbours
    themselves); no p x p array is held.
    Source: Steck, Ekanadham, Kallus 2024 (arXiv:2403.05440), sections 2 and 4.

    Examples
    --------
    >>> import fastcos
    >>> data = fastcos.simulate_interactions(2000, 200, random_state=1)
    >>> comparison = fastcos.compare(
    ...     data.X, data.item_cluster, n_components=20, measures=["dot", "whitened_cosine"]
    ... )
    >>> comparison.auc_range() > 0.1
    True
    >>> comparison.standings.answers
    True
    """
    X = as_interactions("X", X)
    n, p = X.shape
    settings = _settings(min(n, p), n_components, objective, regularization, weight_decay, seed)
    codes = None if labels is None else validation.as_partial_labels("labels", labels, p)
    steps = _steps(preprocessing)
    used = OBJECTIVES[settings.objective]
    named = [variant for variant in named_variants(rescalings) if variant.objective in used]
    grid = [variant for variant in grid_variants() if variant.objective in used]
    asking, resampling = map(np.random.default_rng, np.random.SeedSequence(settings.seed).spawn(2))
    popularity = np.bincount(X.indices, minlength=p).astype(np.int64)
    fitted = fit_models(X, settings, progress=progress)
    if codes is None:
        held_out = HeldOutQuestion(X, asking)
        known, of_known = held_out.known, fit_models(held_out.known, settings, progress=progress)
        contest = Contest(held_out, known, of_known, named, steps, measures, with_users=True)
    else:
        by_label = LabelQuestion(codes, popularity > 0, asking)
        contest = Contest(by_label, X, fitted, named, steps, measures, with_users=False)
    tick = _counter(progress, len(named) + len(grid) + contest.n_candidates)
    tables = score_rescalings(
        fitted.models, named, grid, codes, popularity, settings.seed, tick, over
    )
    return Comparison(
        standings=contest.standings(settings, resampling, tick, over),
        **tables._asdict(),
        labels=codes,
        popularity=popularity,
        parameters={
            "n_users": n,
            "n_items": p,
            "n_interactions": X.nnz,
            "n_labelled": None if codes is None else int((codes >= 0).sum()),
            **settings._asdict(),
            "regularization": fitted.regularization,
            "weight_decay": fitted.weight_decay,
            "preprocessing": steps,
        },
        models=fitted.models,
    )


def _settings(
    most: int,
    n_components: int,
    objective: str,
    regularization: float | None,
    weight_decay: float | None,
    seed: int,
) -> Settings:
    if regularization is not None:
        regularization = validation.as_real("regularization", regularization, low=0)
    if weight_decay is not None:
        weight_decay = validation.as_real("weight_decay", weight_decay, low=0)
    return Settings(
        n_components=validation.as_count("n_components", n_components, high=most),
        objective=validation.as_choice("objective", objective, OBJECTIVES),
        regularization=regularization,
        weight_decay=weight_decay,
        seed=validation.as_count("seed", seed, low=0),
    )


def _steps(chosen: Sequence[str]) -> list[str]:
    """The chosen preprocessings after "none", which the baseline is of."""
    names = [chosen] if isinstance(chosen, str) else chosen
    known = [validation.as_choice("preprocessing", name, PREPROCESSINGS) for name in names]
    return list(dict.fromkeys(["none", *known]))


def _counter(progress: Progress | None, total: int) -> Callable[[], None]:
    done = 0
    if progress is not None:
        progress(done, total)

    def tick() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, total)

    return tick
