"""Evaluation and ranking of all candidates for one task, in this process or by workers."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fastcos.comparison.bootstrap import rank
from fastcos.comparison.candidates import NO_MODEL, Candidate, Embeddings
from fastcos.comparison.examples import Example, find_example
from fastcos.comparison.leaderboard import Leaderboard
from fastcos.comparison.models import FittedModels, ModelVariant, Settings, fit_models
from fastcos.comparison.tasks.held_out import HeldOutTask
from fastcos.comparison.tasks.label_recovery import LabelTask
from fastcos.comparison.tasks.rated_pairs import PairTask
from fastcos.validation import Integers

Task = HeldOutTask | LabelTask | PairTask
# An executor(evaluator, jobs) returns evaluator.evaluate(job) for every job, in the order of the
# jobs.
Executor = Callable[[Any, Sequence[Any]], Iterable[Any]]
# The result for one candidate consists of two values. The first value contains the scores of the
# candidate, one for each unit of the task. The second value contains the neighbours of the example
# items.
CandidateScores = tuple[Any, Example | None]


def run_here(evaluator: Any, jobs: Sequence[Any]) -> Iterable[Any]:
    """Return an iterator that evaluates one job after another in this process."""
    return map(evaluator.evaluate, jobs)


class CandidateEvaluator:
    """Evaluates candidates on a task; each call of ``evaluate`` scores one candidate.

    - `embeddings`: a function that takes the name of a rescaling and returns the embeddings under
      this rescaling.
    - `examples`: the items whose neighbours are part of the result, or None.
    """

    def __init__(
        self, task: Task, embeddings: Callable[[str], Embeddings], examples: Integers | None
    ) -> None:
        self._task, self._embeddings, self._examples = task, embeddings, examples
        # All candidates under one rescaling are evaluated one after another. It is therefore enough
        # to cache the embeddings under the latest rescaling.
        self._cache: tuple[str, Embeddings] | None = None

    def evaluate(self, job: Candidate) -> CandidateScores | ValueError:
        """Return the scores of a candidate, or the error that its measure raises for the rows."""
        if self._cache is None or self._cache[0] != job.rescaling:
            self._cache = job.rescaling, self._embeddings(job.rescaling)
        embeddings, items = self._cache[1], self._examples
        try:
            scores = self._task.score(job, embeddings)
            return scores, None if items is None else find_example(job, embeddings, items)
        except ValueError as error:
            return error


def rank_results(
    task: Task,
    results: Iterable[tuple[Candidate, CandidateScores | ValueError]],
    left_out: dict[str, str],
    random: np.random.Generator,
    *,
    are_chosen: bool,
    examples: Integers | None,
) -> Leaderboard:
    """Return the leaderboard of candidates that ``CandidateEvaluator.evaluate`` has evaluated.

    `are_chosen` says whether the caller has chosen the measures. If so, and if the evaluation of a
    candidate has failed, the function raises the error of the evaluation. If the caller has not
    chosen the measures, a candidate whose evaluation has failed is left out.
    """
    candidates: list[Candidate] = []
    scores: list[Any] = []
    example_of: dict[Candidate, Example] = {}
    for candidate, result in results:
        if not isinstance(result, ValueError):
            candidate_scores, example = result
            candidates.append(candidate)
            scores.append(candidate_scores)
            if example is not None:
                example_of[candidate] = example
        elif are_chosen or not candidates:
            raise result
        else:
            left_out[str(candidate)] = str(result)
    leaderboard = rank(task.evaluation(scores), candidates, left_out, random)
    return replace(leaderboard, example_items=examples, examples=example_of)


class ModelEmbeddings:
    """Maps the name of a rescaling to the embeddings of a model under this rescaling."""

    def __init__(self, models: FittedModels, variants: Sequence[ModelVariant], X: Any) -> None:
        self._models = models
        self._popularity = np.bincount(X.indices, minlength=X.shape[1]).astype(np.float64)
        self._variants = {variant.name: variant for variant in variants}
        self._interactions = X

    def __call__(self, name: str) -> Embeddings:
        """Return the embeddings under a rescaling; for NO_MODEL, return the columns of X."""
        if name == NO_MODEL:
            columns = np.ascontiguousarray(self._interactions.T.toarray(), dtype=np.float32)
            return Embeddings(columns, self._popularity)
        variant, models = self._variants[name], self._models
        return Embeddings(
            items=variant.embeddings(models.by_objective),
            popularity=self._popularity,
            model=models.by_objective[variant.objective],
            X=models.users,
            rescaling=variant.rescaling,
            weight_decay=models.weight_decay,
        )


def evaluate_models(
    task: Task,
    X: Any,
    models: FittedModels,
    variants: Sequence[ModelVariant],
    settings: Settings,
    candidates: Iterable[Candidate],
    executor: Executor,
    examples: Integers | None,
) -> Iterator[tuple[Candidate, Any]]:
    """Yield every candidate with its scores, or with the error that its measure raises.

    `models` are the models that were fitted to X without preprocessing. Candidates with the same
    preprocessing must be consecutive, so that models are fitted only once per preprocessing.
    """
    for name, group in itertools.groupby(candidates, key=lambda candidate: candidate.preprocessing):
        group_models = models if name == "none" else fit_models(X, settings, name)
        evaluator = CandidateEvaluator(task, ModelEmbeddings(group_models, variants, X), examples)
        jobs = list(group)
        yield from zip(jobs, executor(evaluator, jobs), strict=True)
