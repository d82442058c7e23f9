"""Lets every candidate answer one question, and ranks the answers."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from fastcos.comparison.bootstrap import Question, rank
from fastcos.comparison.candidates import Candidate, Embeddings
from fastcos.comparison.entrants import Entrant, entrants, field
from fastcos.comparison.evaluator import Over
from fastcos.comparison.leaderboard import Standings
from fastcos.comparison.models import Fitted, Settings, fit_models
from fastcos.comparison.rescaled import Variant
from fastcos.measures import Measure
from fastcos.measures.row_transforms import Floats


class Asker(Protocol):
    """A question that a candidate answers unit by unit."""

    def answer(self, entrant: Entrant, embeddings: Embeddings) -> Any:
        """Scores of the units, (n,) each."""
        ...

    def question(self, answers: Sequence[Any]) -> Question:
        """What the standings need to know, from the answers of all candidates."""
        ...


def answer_of(asker: Asker, entrant: Entrant, embeddings: Embeddings) -> Any:
    """An entrant's answer, or the error that says why these rows cannot serve it."""
    try:
        return asker.answer(entrant, embeddings)
    except ValueError as error:
        return error


class Entries:
    """Candidates and their answers, as they come in.

    A measure that was not chosen by name and cannot be fitted to these rows is left out.
    """

    def __init__(self, asker: Asker, left_out: dict[str, str], *, chosen: bool) -> None:
        self._asker, self._left_out, self._chosen = asker, left_out, chosen
        self._candidates: list[Candidate] = []
        self._answers: list[Any] = []

    def take(self, candidate: Candidate, answer: Any) -> None:
        """Take what answer_of said of one candidate."""
        if isinstance(answer, ValueError):
            if self._chosen or not self._candidates:
                raise answer
            self._left_out[str(candidate)] = str(answer)
            return
        self._candidates.append(candidate)
        self._answers.append(answer)

    def standings(self, random: np.random.Generator) -> Standings:
        """Rank what came in."""
        question = self._asker.question(self._answers)
        return rank(question, self._candidates, self._left_out, random)


class _ModelJudge:
    """Answers cells (name of a rescaling, entrant) from the models of one preprocessing."""

    def __init__(
        self,
        asker: Asker,
        fitted: Fitted,
        variants: dict[str, Variant],
        bags: Any,
        popularity: Floats,
    ) -> None:
        self._asker, self._fitted = asker, fitted
        self._variants, self._bags, self._popularity = variants, bags, popularity
        self._last: tuple[str, Embeddings] | None = None

    def answer(self, cell: tuple[str, Entrant]) -> Any:
        """The answer of one measure under one rescaling."""
        name, entrant = cell
        return answer_of(self._asker, entrant, self.embeddings(name))

    def embeddings(self, name: str) -> Embeddings:
        """The rows under a rescaling; those asked for last are kept."""
        last = self._last
        if last is None or last[0] != name:
            variant, fitted = self._variants[name], self._fitted
            last = self._last = (
                name,
                Embeddings(
                    items=variant.embeddings(fitted.models),
                    popularity=self._popularity,
                    model=fitted.models[variant.objective],
                    X=fitted.users,
                    rescaling=variant.rescaling,
                    weight_decay=fitted.weight_decay,
                    bags=self._bags,
                ),
            )
        return last[1]


class Contest:
    """Measures of the items of models of X, under every rescaling, after every preprocessing."""

    def __init__(
        self,
        asker: Asker,
        X: Any,
        fitted: Fitted,
        variants: Sequence[Variant],
        steps: Sequence[str],
        measures: Sequence[str | Measure] | None,
        *,
        with_users: bool,
    ) -> None:
        self._asker, self._X, self._fitted = asker, X, fitted
        # of what a model may see: not of what is held out
        self._popularity = np.bincount(X.indices, minlength=X.shape[1]).astype(np.float64)
        self._steps, self._variants = steps, {variant.name: variant for variant in variants}
        template = self._judge(fitted).embeddings(variants[0].name)
        taking_part, left_out = entrants(measures, template, with_users=with_users)
        self._field = list(field(taking_part, list(self._variants)))
        self._entries = Entries(asker, left_out, chosen=measures is not None)

    @property
    def n_candidates(self) -> int:
        """How many there are to judge."""
        return len(self._steps) * sum(len(some) for _, some in self._field)

    def standings(
        self,
        settings: Settings,
        random: np.random.Generator,
        tick: Callable[[], None],
        over: Over,
    ) -> Standings:
        """Judge every candidate, and rank them."""
        cells = [(name, entrant) for name, some in self._field for entrant in some]
        for step in self._steps:
            fitted = self._fitted if step == "none" else fit_models(self._X, settings, step)
            answers = over(self._judge(fitted), cells)
            for (name, entrant), answer in zip(cells, answers, strict=True):
                self._entries.take(Candidate(entrant.label, name, step), answer)
                tick()
        return self._entries.standings(random)

    def _judge(self, fitted: Fitted) -> _ModelJudge:
        return _ModelJudge(self._asker, fitted, self._variants, self._X, self._popularity)
