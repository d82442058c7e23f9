"""Lets every candidate answer one question, and ranks the answers."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from fastcos.comparison.candidates import Candidate, Embeddings, Entrant, entrants, field
from fastcos.comparison.models import Fitted, Settings, fit_models
from fastcos.comparison.ranking import Question, rank
from fastcos.comparison.rescaled import Variant
from fastcos.comparison.standings import Standings
from fastcos.measure import Measure
from fastcos.measure.rows import Floats


class Asker(Protocol):
    """A question that a candidate answers unit by unit."""

    def answer(self, entrant: Entrant, embeddings: Embeddings) -> Any:
        """Scores of the units, (n,) each."""
        ...

    def question(self, answers: Sequence[Any]) -> Question:
        """What the standings need to know, from the answers of all candidates."""
        ...


class Entries:
    """Candidates and their answers, as they come in.

    A measure that was not chosen by name and cannot be fitted to these rows is left out.
    """

    def __init__(self, asker: Asker, left_out: dict[str, str], *, chosen: bool) -> None:
        self._asker, self._left_out, self._chosen = asker, left_out, chosen
        self._candidates: list[Candidate] = []
        self._answers: list[Any] = []

    def judge(self, candidate: Candidate, entrant: Entrant, embeddings: Embeddings) -> None:
        """Take the answer of one candidate."""
        try:
            answer = self._asker.answer(entrant, embeddings)
        except ValueError as error:
            if self._chosen or not self._candidates:
                raise
            self._left_out[str(candidate)] = str(error)
            return
        self._candidates.append(candidate)
        self._answers.append(answer)

    def standings(self, random: np.random.Generator) -> Standings:
        """Rank what came in."""
        question = self._asker.question(self._answers)
        return rank(question, self._candidates, self._left_out, random)


class Contest:
    """Measures of a model's items, under every rescaling, after every preprocessing."""

    def __init__(
        self,
        asker: Asker,
        fitted: Fitted,
        variants: Sequence[Variant],
        steps: Sequence[str],
        measures: Sequence[str | Measure] | None,
        popularity: Floats,
        *,
        with_users: bool,
    ) -> None:
        self._fitted, self._popularity = fitted, popularity
        self._steps, self._variants = steps, {variant.name: variant for variant in variants}
        template = self._embeddings(fitted, variants[0])
        taking_part, left_out = entrants(measures, template, with_users=with_users)
        self._field = list(field(taking_part, list(self._variants)))
        self._entries = Entries(asker, left_out, chosen=measures is not None)

    @property
    def n_candidates(self) -> int:
        """How many there are to judge."""
        return len(self._steps) * sum(len(some) for _, some in self._field)

    def standings(
        self, X: Any, settings: Settings, random: np.random.Generator, tick: Callable[[], None]
    ) -> Standings:
        """Judge every candidate of models of X, and rank them."""
        for step in self._steps:
            fitted = self._fitted if step == "none" else fit_models(X, settings, step)
            for name, some in self._field:
                embeddings = self._embeddings(fitted, self._variants[name])
                for entrant in some:
                    candidate = Candidate(entrant.name, name, step)
                    self._entries.judge(candidate, entrant, embeddings)
                    tick()
        return self._entries.standings(random)

    def _embeddings(self, fitted: Fitted, variant: Variant) -> Embeddings:
        return Embeddings(
            items=variant.embeddings(fitted.models),
            popularity=self._popularity,
            model=fitted.models[variant.objective],
            X=fitted.users,
            rescaling=variant.rescaling,
        )
