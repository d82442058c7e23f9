"""Runs a comparison: evaluates every candidate on one task, here or on workers, and ranks them."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from fastcos.comparison.bootstrap import Evaluation, rank
from fastcos.comparison.candidates import Candidate, Embeddings
from fastcos.comparison.leaderboard import Leaderboard
from fastcos.comparison.models import Fitted, ModelVariant, Settings, fit_models


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

    def __init__(self, fitted: Fitted, variants: Sequence[ModelVariant], X: Any) -> None:
        self._fitted = fitted
        self._popularity = np.bincount(X.indices, minlength=X.shape[1]).astype(np.float64)
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
        )


def evaluate_models(
    task: Task,
    X: Any,
    fitted: Fitted,
    variants: Sequence[ModelVariant],
    settings: Settings,
    candidates: Iterable[Candidate],
    executor: Executor,
) -> Iterator[tuple[Candidate, Any]]:
    """Evaluate candidates of the models of X; adjacent ones share models of their preprocessing."""
    for name, group in itertools.groupby(candidates, key=lambda one: one.preprocessing):
        of_name = fitted if name == "none" else fit_models(X, settings, name)
        evaluator = CandidateEvaluator(task, ModelEmbeddings(of_name, variants, X))
        works = list(group)
        yield from zip(works, executor(evaluator, works), strict=True)
