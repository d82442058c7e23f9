"""What is compared: measures of the embeddings of one model, under every rescaling."""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastcos import validate, validate_measures
from fastcos.factorization import LinearMF
from fastcos.measure import Measure, get_measure, measures
from fastcos.measure.base import Invariances, Plain, learns_in_blocks, registered
from fastcos.validate import Rows, as_rows

EQ2 = "eq2"
BASELINE = "cosine"
# a user's row against an item's: no similarity of two items
USER_ITEM = ("user_item_dot", "user_item_cosine")
# users' rows among themselves
USER_USER = ("project_back_users",)
# the cosine under a rescaling: another candidate's rows already
_NOT_BY_DEFAULT = ("eq2_cosine", "rescaled_cosine")
_HALVES = "rows [a_i, b_i]"
# what embeddings can give, by what a measure's class says it needs
_SOURCES = {"other": "users", "popularity": "popularity", "model": "model"}


class Candidate(NamedTuple):
    """A measure of the rows that a model gives.

    Attributes
    ----------
    measure : str
    rescaling : str
        Name or formula of D; "eq2" for the second objective; "" for given vectors. A measure that
        no D changes stands once, under the first.
    preprocessing : str
        What was done to the interactions before the model; "none" for nothing.
    """

    measure: str
    rescaling: str = ""
    preprocessing: str = "none"

    def __str__(self) -> str:
        text = self.measure + (f" under {self.rescaling}" if self.rescaling else "")
        return text if self.preprocessing == "none" else f"{text} after {self.preprocessing}"


@dataclass(frozen=True)
class Embeddings:
    """The rows that measures are fitted to, and what else some measures need.

    Attributes
    ----------
    items : ndarray (p, d)
    popularity : ndarray (p,), float64, or None
    model : LinearMF or None
    X : csr_array (n, p), or None
        What the rows of the model's users are made of.
    rescaling : Rescaling or None
    weight_decay : float or None
        λ of Eq. 2; None for the model's default.
    """

    items: Rows
    popularity: npt.NDArray[np.float64] | None = None
    model: LinearMF | None = None
    X: Any = None
    rescaling: Any = None
    weight_decay: float | None = None

    @functools.cached_property
    def users(self) -> Rows | None:
        """Embeddings of the users, (n, d)."""
        if self.model is None:
            return None
        return self.model.user_embeddings(self.X, self.rescaling)

    @property
    def has_eq1(self) -> bool:
        """Whether the model is one of Eq. 1, which still has every D to choose."""
        return self.model is not None and self.model.objective == "dropout"

    def can_meet(self, needs: str) -> bool:
        """Whether a measure with these needs can be fitted."""
        if needs == "popularity":
            return self.popularity is not None
        if needs == "model":
            return self.has_eq1
        return needs in ("", EQ2) or (self.model is not None and needs in ("other", _HALVES))


@dataclass(frozen=True)
class Entrant:
    """A measure that takes part.

    Attributes
    ----------
    name : str
    make : callable
        What makes the measure from the parameters that it needs.
    needs : str
        As its class says.
    free_of_rescaling : bool
        No D changes its scores.
    """

    name: str
    make: Callable[..., Measure]
    needs: str
    free_of_rescaling: bool

    def rows(self, embeddings: Embeddings) -> Rows:
        """The items as the measure takes them; the users, of a measure of users."""
        if self.name in USER_USER:
            return as_rows("users", embeddings.users)
        if self.needs == _HALVES:  # A = B in the symmetric form
            return as_rows("items", np.hstack([embeddings.items, embeddings.items]))
        if self.needs in ("model", EQ2) and embeddings.model is not None:
            return embeddings.model.item_embeddings()
        return embeddings.items

    def measure(self, embeddings: Embeddings) -> Measure:
        """The measure with what the embeddings give it, not fitted."""
        if self.name in USER_USER and self.needs:
            return self.make(other=embeddings.items)
        model, decay = embeddings.model, embeddings.weight_decay
        if self.needs == EQ2 and model is not None and embeddings.has_eq1:
            decay = model.default_regularization("weight_decay") if decay is None else decay
            return self.make(model=model, regularization=decay)
        if self.needs in _SOURCES:
            return self.make(**{self.needs: getattr(embeddings, _SOURCES[self.needs])})
        return self.make()


def entrants(
    chosen: Sequence[str | Measure] | None,
    embeddings: Embeddings,
    *,
    with_users: bool = False,
    argument: str = "measures",
) -> tuple[list[Entrant], dict[str, str]]:
    """The measures that take part, the plain cosine first; and what others need, by name.

    None chooses all that the embeddings can meet; a chosen one that they cannot is refused. Scores
    of users, with items or with each other, take part with_users only.
    """
    of_users = (*USER_ITEM, *USER_USER)
    if chosen is None:
        excluded = _NOT_BY_DEFAULT if with_users else (*_NOT_BY_DEFAULT, *of_users)
        every = [name for name in measures() if name.partition(":")[0] not in excluded]
        asked = [_entrant(name) for name in every]
    else:
        asked = [_entrant(one) for one in chosen]
        for one in asked:
            if not with_users and one.name in of_users:
                validate_measures.as_of_items(argument, one.name)
    left_out = {one.name: one.needs for one in asked if not embeddings.can_meet(one.needs)}
    if chosen is not None:
        for name, needs in left_out.items():
            validate_measures.as_met(argument, name, needs)
    taking_part = {one.name: one for one in [_entrant(BASELINE), *asked]}
    return [one for one in taking_part.values() if one.name not in left_out], left_out


def readable_in_blocks(
    taking_part: Sequence[Entrant], embeddings: Embeddings, *, chosen: bool
) -> tuple[list[Entrant], dict[str, str]]:
    """Those of the measures that rows on disk can serve; and what the others need, by name.

    A chosen one that needs the rows in memory is refused.
    """
    served, left_out = [], {}
    for one in taking_part:
        if learns_in_blocks(one.measure(embeddings)):
            served.append(one)
        else:
            validate.as_measure_of_blocks("measures", chosen, one.name)
            left_out[one.name] = "rows in memory"
    return served, left_out


def _entrant(choice: str | Measure) -> Entrant:
    if isinstance(choice, str):
        known: Mapping[str, Any] = registered()
        maker = known[validate.as_choice("measures", choice, sorted(known))]
        kind, name, needs = getattr(maker, "func", maker), choice, ""
        needs = {"rescaled_cosine": "", "eq2_cosine": EQ2}.get(choice, kind.needs)
    else:
        made = get_measure(choice)
        maker, kind, name = (lambda: made), type(made), made.name
        needs = _HALVES if getattr(kind, "needs", "") == _HALVES else ""
    changes: Invariances = getattr(kind, "invariances", Plain.invariances)
    once = changes.D == "y" or needs in ("model", EQ2)
    return Entrant(name, maker, needs, once)


def field(
    taking_part: Sequence[Entrant], rescalings: Sequence[str]
) -> Iterator[tuple[str, list[Entrant]]]:
    """Every rescaling, and the measures to judge under it: once where D changes nothing."""
    for place, rescaling in enumerate(rescalings):
        some = [one for one in taking_part if not one.free_of_rescaling or place == 0]
        if rescaling == EQ2 and place:  # another model, whose rows no D of the first gives
            some = [one for one in taking_part if one.needs != "model"]
        yield rescaling, some
