"""Runs a comparison: evaluates every candidate on one task, here or on workers, and ranks them."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fastcos.comparison.bootstrap import rank
from fastcos.comparison.candidates import NO_MODEL, Candidate, Embeddings
from fastcos.comparison.examples import Example, find_example
from fastcos.comparison.leaderboard import Leaderboard
from fastcos.comparison.models import Fitted, ModelVariant, Settings, fit_models
from fastcos.comparison.tasks.held_out import HeldOutTask
from fastcos.comparison.tasks.label_recovery import LabelTask
from fastcos.comparison.tasks.rated_pairs import PairTask
from fastcos.validation import Integers

Task = HeldOutTask | LabelTask | PairTask
# executor(evaluator, works) returns evaluator.evaluate(work) of every work, in their order
Executor = Callable[[Any, Sequence[Any]], Iterable[Any]]
# scores of a candidate on the units of a task, and its neighbours of example items
Evaluated = tuple[Any, Example | None]


def run_here(evaluator: Any, works: Sequence[Any]) -> Iterable[Any]:
    """Evaluate one work after another in this process."""
    return map(evaluator.evaluate, works)


class CandidateEvaluator:
    """Scores candidates on a task, with the embeddings under each rescaling by name.

    examples: items whose neighbours by each candidate are kept.
    """

    def __init__(
        self, task: Task, embeddings: Callable[[str], Embeddings], examples: Integers | None
    ) -> None:
        self._task, self._embeddings, self._examples = task, embeddings, examples
        self._last: tuple[str, Embeddings] | None = None  # candidates of a rescaling are adjacent

    def evaluate(self, work: Candidate) -> Evaluated | ValueError:
        """Scores of a candidate, or the error that says why these rows cannot serve it."""
        if self._last is None or self._last[0] != work.rescaling:
            self._last = work.rescaling, self._embeddings(work.rescaling)
        embeddings, items = self._last[1], self._examples
        try:
            scores = self._task.score(work, embeddings)
            return scores, None if items is None else find_example(work, embeddings, items)
        except ValueError as error:
            return error


def rank_results(
    task: Task,
    results: Iterable[tuple[Candidate, Evaluated | ValueError]],
    left_out: dict[str, str],
    random: np.random.Generator,
    *,
    chosen: bool,
    examples: Integers | None,
) -> Leaderboard:
    """Rank the candidates by what ``CandidateEvaluator.evaluate`` returned.

    A measure that was not chosen by name and cannot be fitted to these rows is left out.
    """
    candidates: list[Candidate] = []
    scores: list[Any] = []
    shown: dict[Candidate, Example] = {}
    for candidate, result in results:
        if not isinstance(result, ValueError):
            own, example = result
            candidates.append(candidate)
            scores.append(own)
            if example is not None:
                shown[candidate] = example
        elif chosen or not candidates:
            raise result
        else:
            left_out[str(candidate)] = str(result)
    ranked = rank(task.evaluation(scores), candidates, left_out, random)
    return replace(ranked, example_items=examples, examples=shown)


class ModelEmbeddings:
    """The embeddings of the models of one preprocessing, by name of the rescaling."""

    def __init__(self, fitted: Fitted, variants: Sequence[ModelVariant], X: Any) -> None:
        self._fitted = fitted
        self._popularity = np.bincount(X.indices, minlength=X.shape[1]).astype(np.float64)
        self._variants = {variant.name: variant for variant in variants}
        self._interactions = X

    def __call__(self, name: str) -> Embeddings:
        """The embeddings under a rescaling, or the columns of the interactions for no model."""
        if name == NO_MODEL:
            columns = np.ascontiguousarray(self._interactions.T.toarray(), dtype=np.float32)
            return Embeddings(columns, self._popularity)
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
    examples: Integers | None,
) -> Iterator[tuple[Candidate, Any]]:
    """Evaluate candidates of the models of X; adjacent ones share models of their preprocessing."""
    for name, group in itertools.groupby(candidates, key=lambda one: one.preprocessing):
        of_name = fitted if name == "none" else fit_models(X, settings, name)
        evaluator = CandidateEvaluator(task, ModelEmbeddings(of_name, variants, X), examples)
        works = list(group)
        yield from zip(works, executor(evaluator, works), strict=True)
