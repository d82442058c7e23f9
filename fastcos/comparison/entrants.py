"""The measures that take part, each with what the embeddings must give it."""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastcos import validation
from fastcos.comparison.candidates import EQ2, Embeddings
from fastcos.measures import Measure, checks, get_measure, list_measures
from fastcos.measures.base import Invariances, Plain, capabilities, registered
from fastcos.measures.serialization import label_of, parameters_of
from fastcos.validation import Rows, as_rows

BASELINE = "cosine"
# a user's row against an item's: no similarity of two items
USER_ITEM = ("user_item_dot", "user_item_cosine")
# users' rows among themselves
USER_USER = ("project_back_users",)
# bags of the vectors of the other side: of users, or of items where users are asked
BAGS = ("word_rotators_distance",)
# the cosine under a rescaling: another candidate's rows already
_NOT_BY_DEFAULT = ("eq2_cosine", "rescaled_cosine")
# what these need where there is a model; without one they take the rows as they are
_OF_ROWS_TOO = {"rescaled_cosine": "", "rescaled_cosine:identity": "", "eq2_cosine": EQ2}
_TOO_LONG = "a linear programme a pair: only where it is named"
_HALVES = "rows [a_i, b_i]"
_OTHER, _VECTORS = "other", "vectors"
# what embeddings can give, by what a measure's class says it needs
_SOURCES = {_OTHER: "users", "popularity": "popularity", "model": "model"}


@dataclass(frozen=True)
class Entrant:
    """A measure that takes part.

    Attributes
    ----------
    name : str
        Of the measure.
    label : str
        What tables call it: the name, and parameters that are not the defaults.
    make : callable
        What makes the measure from the parameters that it needs.
    needs : str
        What it must be given: as its class says; "" for nothing.
    free_of_rescaling : bool
        No D changes its scores.
    of_users : bool
        It compares users with each other.
    """

    name: str
    label: str
    make: Callable[..., Measure]
    needs: str
    free_of_rescaling: bool
    of_users: bool

    def can_meet(self, embeddings: Embeddings) -> bool:
        """Whether the embeddings can give what the measure needs."""
        if self.needs == "popularity":
            return embeddings.popularity is not None
        if self.needs == "model":
            return embeddings.has_eq1
        if self.needs == _VECTORS:
            return embeddings.bags is not None
        if self.needs in (_OTHER, _HALVES):
            return embeddings.model is not None
        return self.needs in ("", EQ2)

    def rows(self, embeddings: Embeddings) -> Rows:
        """The items as the measure takes them; the users, of a measure of users."""
        if self.name in BAGS and embeddings.bags is not None:
            bags: Any = embeddings.bags if self.of_users else embeddings.bags_of_users
            return bags  # type: ignore[no-any-return]  # sparse rows, which only bags may be
        if embeddings.model is not None:
            if self.of_users:
                return as_rows("users", embeddings.users)
            if self.needs == _HALVES:  # A = B in the symmetric form
                return as_rows("items", np.hstack([embeddings.items, embeddings.items]))
            if self.needs in ("model", EQ2):
                return embeddings.model.item_embeddings()
        return embeddings.items

    def measure(self, embeddings: Embeddings) -> Measure:
        """The measure with what the embeddings give it, not fitted."""
        model, decay = embeddings.model, embeddings.weight_decay
        if self.needs == EQ2 and model is not None and embeddings.has_eq1:
            decay = model.default_regularization("weight_decay") if decay is None else decay
            return self.make(model=model, regularization=decay)
        if self.needs in (_OTHER, _VECTORS):
            return self.make(
                **{self.needs: embeddings.items if self.of_users else embeddings.users}
            )
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
    """The measures that take part, the plain cosine first; and what others need, by label.

    None chooses all that the embeddings can meet; a chosen one that they cannot is refused. Scores
    of users, with items or with each other, take part with_users only; but rows that are just given
    may be anybody's.
    """
    if chosen is None:
        of_users = () if with_users else (*USER_ITEM, *USER_USER)
        names = [one for one in list_measures() if one.partition(":")[0] not in _NOT_BY_DEFAULT]
        asked = [_entrant(name, with_users) for name in names if name not in of_users]
        left_out = {one.label: one.needs for one in asked if not one.can_meet(embeddings)}
        left_out |= {one.label: _TOO_LONG for one in asked if one.name in BAGS and one.needs}
    else:
        asked = [_entrant(one, with_users) for one in chosen]
        left_out = {}
        for one in asked:
            _refuse_unmet(argument, one, embeddings, with_users)
        checks.as_told_apart(argument, [one.label for one in asked], chosen)
    taking_part = {one.label: one for one in [_entrant(BASELINE, with_users), *asked]}
    return [one for one in taking_part.values() if one.label not in left_out], left_out


def _refuse_unmet(argument: str, one: Entrant, embeddings: Embeddings, with_users: bool) -> None:
    """Refuse a chosen measure that these rows cannot serve."""
    just_rows = embeddings.model is None and not one.needs
    if not with_users and (one.name in USER_ITEM or (one.name in USER_USER and not just_rows)):
        checks.as_of_items(argument, one.name)
    # given rows that were chosen to be two halves are what they are
    if not one.can_meet(embeddings) and not (one.needs == _HALVES and embeddings.model is None):
        checks.as_met(argument, one.name, one.needs)


def readable_in_blocks(
    taking_part: Sequence[Entrant], embeddings: Embeddings, *, chosen: bool
) -> tuple[list[Entrant], dict[str, str]]:
    """Those of the measures that rows on disk can serve; and what the others need, by label.

    A chosen one that needs the rows in memory is refused.
    """
    served, left_out = [], {}
    for one in taking_part:
        if capabilities(one.measure(embeddings)).blocks:
            served.append(one)
        else:
            validation.as_measure_of_blocks("measures", chosen, one.name)
            left_out[one.label] = "rows in memory"
    return served, left_out


def _entrant(choice: str | Measure, with_users: bool) -> Entrant:
    make: Any
    if isinstance(choice, str):
        known: Mapping[str, Any] = registered()
        make = known[validation.as_choice("measures", choice, sorted(known))]
        kind, name, label = getattr(make, "func", make), choice, choice
        needs = _OF_ROWS_TOO.get(choice, kind.needs)
    else:
        made = get_measure(choice)
        kind, name, label = type(made), made.name, label_of(made)
        needs = _needs_of(made)
        make = functools.partial(_remade, made) if needs == _OTHER else lambda: made
    changes: Invariances = getattr(kind, "invariances", Plain.invariances)
    once = changes.D == "y" or needs in ("model", EQ2) or (name in BAGS and not needs)
    of_users = name in USER_USER or (name in BAGS and with_users)
    return Entrant(name, label, make, needs, once, of_users)


def _needs_of(made: Measure) -> str:
    """What an object still needs: the other side of a model may also be given to fit."""
    needs = str(getattr(type(made), "needs", ""))
    if needs == _HALVES or (needs == _OTHER and getattr(made, _OTHER, None) is None):
        return needs
    return ""


def _remade(made: Measure, **given: Any) -> Measure:
    again: Measure = type(made)(**{**parameters_of(made), **given})
    return again


def field(
    taking_part: Sequence[Entrant], rescalings: Sequence[str]
) -> Iterator[tuple[str, list[Entrant]]]:
    """Every rescaling, and the measures to judge under it: once where D changes nothing."""
    for place, rescaling in enumerate(rescalings):
        some = [one for one in taking_part if not one.free_of_rescaling or place == 0]
        if rescaling == EQ2 and place:  # another model, whose rows no D of the first gives
            some = [one for one in taking_part if one.needs != "model"]
        yield rescaling, some
