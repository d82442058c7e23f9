"""Runs a comparison: evaluates every candidate on one task, here or on workers, and ranks them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from fastcos.comparison.bootstrap import Evaluation, rank
from fastcos.comparison.candidates import (
    Candidate,
    Embeddings,
    select_candidates,
    under_rescalings,
)
from fastcos.comparison.leaderboard import Leaderboard
from fastcos.comparison.models import Fitted, Settings, Variant, fit_models
from fastcos.measures import Measure
from fastcos.measures.row_transforms import Floats


class Evaluator(Protocol):
    """Evaluates single items of work, in this process or where its copy is."""

    def evaluate(self, work: Any) -> Any:
        """The result of one item of work."""
        ...


# executor(evaluator, works) returns the results in the order of the works
Executor = Callable[[Evaluator, Sequence[Any]], Iterable[Any]]


def run_here(evaluator: Evaluator, works: Sequence[Any]) -> Iterable[Any]:
    """Evaluate one work after another in this process."""
    return map(evaluator.evaluate, works)


class Task(Protocol):
    """A task on which a candidate scores unit by unit."""

    def score(self, candidate: Candidate, embeddings: Embeddings) -> Any:
        """Scores of the units, arrays (n,)."""
        ...

    def evaluation(self, scores: Sequence[Any]) -> Evaluation:
        """The scores of all candidates, ready to be ranked."""
        ...


class CandidateEvaluator:
    """Scores candidates on a task, with the embeddings under each rescaling by name."""

    def __init__(self, task: Task, embeddings: Callable[[str], Embeddings]) -> None:
        self._task, self._embeddings = task, embeddings
        self._last: tuple[str, Embeddings] | None = None  # candidates of a rescaling are adjacent

    def evaluate(self, work: Candidate) -> Any:
        """Scores of a candidate, or the error that says why these rows cannot serve it."""
        if self._last is None or self._last[0] != work.rescaling:
            self._last = work.rescaling, self._embeddings(work.rescaling)
        try:
            return self._task.score(work, self._last[1])
        except ValueError as error:
            return error


def rank_results(
    task: Task,
    results: Iterable[tuple[Candidate, Any]],
    left_out: dict[str, str],
    random: np.random.Generator,
    *,
    chosen: bool,
) -> Leaderboard:
    """Rank the candidates by what ``CandidateEvaluator.evaluate`` returned.

    A measure that was not chosen by name and cannot be fitted to these rows is left out.
    """
    candidates: list[Candidate] = []
    scores: list[Any] = []
    for candidate, result in results:
        if not isinstance(result, ValueError):
            candidates.append(candidate)
            scores.append(result)
        elif chosen or not candidates:
            raise result
        else:
            left_out[str(candidate)] = str(result)
    return rank(task.evaluation(scores), candidates, left_out, random)


class ModelEmbeddings:
    """The embeddings of the models of one preprocessing, by name of the rescaling."""

    def __init__(
        self, fitted: Fitted, variants: Sequence[Variant], X: Any, popularity: Floats
    ) -> None:
        self._fitted, self._X, self._popularity = fitted, X, popularity
        self._variants = {variant.name: variant for variant in variants}

    def __call__(self, name: str) -> Embeddings:
        """The embeddings under a rescaling."""
        variant, fitted = self._variants[name], self._fitted
        return Embeddings(
            items=variant.embeddings(fitted.models),
            popularity=self._popularity,
            model=fitted.models[variant.objective],
            X=fitted.users,
            rescaling=variant.rescaling,
            weight_decay=fitted.weight_decay,
            bags=self._X,
        )


class ModelComparison:
    """Measures of the models of X under every rescaling, after every preprocessing."""

    def __init__(
        self,
        task: Task,
        X: Any,
        fitted: Fitted,
        variants: Sequence[Variant],
        preprocessings: Sequence[str],
        measures: Sequence[str | Measure] | None,
        *,
        with_users: bool,
    ) -> None:
        self._task, self._X, self._fitted = task, X, fitted
        # without the held-out interactions, which a model must not see
        self._popularity = np.bincount(X.indices, minlength=X.shape[1]).astype(np.float64)
        self._preprocessings, self._variants = preprocessings, variants
        self._chosen = measures is not None
        names = [variant.name for variant in variants]
        template = self._embeddings(fitted)(names[0])
        selected, self._left_out = select_candidates(measures, template, with_users=with_users)
        self._candidates = under_rescalings(selected, names)

    @property
    def n_candidates(self) -> int:
        """Number of candidates to evaluate."""
        return len(self._preprocessings) * len(self._candidates)

    def leaderboard(
        self,
        settings: Settings,
        random: np.random.Generator,
        tick: Callable[[], None],
        executor: Executor,
    ) -> Leaderboard:
        """Evaluate every candidate, and rank them; tick() after each."""
        results = self._results(settings, tick, executor)
        return rank_results(self._task, results, self._left_out, random, chosen=self._chosen)

    def _results(
        self, settings: Settings, tick: Callable[[], None], executor: Executor
    ) -> Iterator[tuple[Candidate, Any]]:
        for name in self._preprocessings:
            fitted = self._fitted if name == "none" else fit_models(self._X, settings, name)
            candidates = [replace(one, preprocessing=name) for one in self._candidates]
            evaluator = CandidateEvaluator(self._task, self._embeddings(fitted))
            for pair in zip(candidates, executor(evaluator, candidates), strict=True):
                yield pair
                tick()

    def _embeddings(self, fitted: Fitted) -> ModelEmbeddings:
        return ModelEmbeddings(fitted, self._variants, self._X, self._popularity)
