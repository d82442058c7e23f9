"""Candidates: measures of the rows that a model gives under a rescaling, or of given rows."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fastcos import parallel, validation
from fastcos.models.linear_mf import LinearMF
from fastcos.similarity import Measure, get_measure, list_measures
from fastcos.similarity.base import REGISTRY, Invariances, Plain, check_known
from fastcos.similarity.serialization import label_of, parameters_of
from fastcos.validation import Rows, as_rows

# the name of the second objective among the rescalings, and what its measure requires
EQ2 = "eq2"
# stands for a rescaling where the rows are the columns of the interactions themselves: no model
NO_MODEL = "no model"
# cosine and Pearson's correlation of those columns
OF_COLUMNS = ("cosine", "layer_norm_cosine")
BASELINE = "cosine"
# a dozen that differ, and of which none searches neighbours to be fitted
DEFAULT = "default"
DEFAULT_MEASURES = frozenset((
    BASELINE, "dot", "neg_euclidean", "centered_cosine", "zscore_cosine", "all_but_the_top",
    "layer_norm_cosine", "whitened_cosine", "query_metric_cosine", "project_back_items",
    "user_item_dot", "project_back_users",
))  # fmt: skip
# score a user's row against an item's: no similarity of two items
USER_ITEM = ("user_item_dot", "user_item_cosine")
# compare users' rows with each other
USER_USER = ("project_back_users",)
# the cosine under a rescaling: equal to the candidate "cosine" under that rescaling
_DUPLICATES = ("eq2_cosine", "rescaled_cosine")
# same order of the items for every query as another measure, by construction: monotone in its
# score, or a rotation of its rows; the rows of weight_cosine are [b_i, b_i] here
_EQUAL = {
    "angular": "cosine",
    "query_normalized": "cosine",
    "weight_cosine": "cosine",
    "ica_cosine": "whitened_cosine",
}
# what these measures require where there is a model; without one they take the rows as they are
_OPTIONAL_MODEL = {"rescaled_cosine": "", "rescaled_cosine:identity": "", "eq2_cosine": EQ2}
# requirements of measure classes that embeddings meet
_OTHER_SIDE = "other"
_TWO_HALVES = "rows [a_i, b_i]"


@dataclass(frozen=True)
class Embeddings:
    """The rows (p, d) that measures are fitted to, and what else some measures require.

    X (n, p): interactions from which the model makes its users' rows; given_users (n, d): those
    rows where there is no model. weight_decay: λ of Eq. 2; None for the model's default.
    """

    items: Rows
    popularity: npt.NDArray[np.float64] | None = None
    model: LinearMF | None = None
    X: Any = None
    rescaling: Any = None
    weight_decay: float | None = None
    given_users: Rows | None = None

    @parallel.lazy_attribute
    def users(self) -> Rows | None:
        """Embeddings of the users, (n, d)."""
        if self.model is None:
            return self.given_users
        return self.model.user_embeddings(self.X, self.rescaling)

    @property
    def has_eq1(self) -> bool:
        """Whether the model is one of Eq. 1, for which every D is possible."""
        return self.model is not None and self.model.objective == "dropout"

    def provide(self, requirement: str) -> bool:
        """Whether they have what a measure requires."""
        return {
            "": True,
            EQ2: True,
            "popularity": self.popularity is not None,
            "model": self.has_eq1,
            _OTHER_SIDE: self.model is not None or self.given_users is not None,
            _TWO_HALVES: self.model is not None,
        }.get(requirement, False)


@dataclass(frozen=True)
class Candidate:
    """A measure of the rows that a model gives; equal to another by its first three fields.

    Attributes
    ----------
    measure : str
        Its name; for an object also the parameters that are not its class's defaults, such as
        ``csls:n_neighbors=5``.
    rescaling : str
        Name or formula of D; "eq2" for the second objective; "no model" for the columns of the
        interactions, of which layer_norm_cosine is Pearson's correlation; "" for given vectors.
        A measure that is invariant to D has one candidate, under the first rescaling.
    preprocessing : str
        Preprocessing of the interactions before the model; "none" for none.
    source : str or Measure
        The registered name or the object that the measure is made from. Default: ``measure``.
    """

    measure: str
    rescaling: str = ""
    preprocessing: str = "none"
    source: str | Measure | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        joint = " with " if self.rescaling == NO_MODEL else " under "
        return self.measure + (f"{joint}{self.embeddings}" if self.embeddings else "")

    @property
    def embeddings(self) -> str:
        """The rescaling and the preprocessing, in words."""
        has_d = self.rescaling not in ("", NO_MODEL, EQ2)
        text = "any D" if has_d and not self.depends_on_rescaling else self.rescaling
        return text if self.preprocessing == "none" else f"{text} after {self.preprocessing}"

    def to_dict(self) -> dict[str, str]:
        """The measure, the rescaling and the preprocessing by name."""
        return {name: getattr(self, name) for name in ("measure", "rescaling", "preprocessing")}

    @property
    def _source(self) -> str | Measure:
        return self.measure if self.source is None else self.source

    @property
    def name(self) -> str:
        """The registered name of the measure."""
        return self._source if isinstance(self._source, str) else self._source.name

    @property
    def compares_users(self) -> bool:
        """Whether the rows are users, not items."""
        return self.name in USER_USER

    @property
    def requires(self) -> str:
        """What the measure requires besides the rows, in its class's words; "" for nothing."""
        if isinstance(self._source, str):
            return _OPTIONAL_MODEL.get(self.name, str(self._class.needs))
        needs = str(getattr(self._class, "needs", ""))
        # an object may already hold the other side; the other requirements it must hold
        missing = needs == _OTHER_SIDE and getattr(self._source, _OTHER_SIDE, None) is None
        return needs if missing or needs == _TWO_HALVES else ""

    @property
    def depends_on_rescaling(self) -> bool:
        """Whether D changes the scores."""
        changes: Invariances = getattr(self._class, "invariances", Plain.invariances)
        return not (changes.D == "y" or self.requires in ("model", EQ2))

    @property
    def _class(self) -> Any:
        if isinstance(self._source, str):
            return getattr(REGISTRY[self.name], "func", REGISTRY[self.name])
        return type(self._source)

    def rows(self, embeddings: Embeddings) -> Rows:
        """The rows of the items, or of the users, in the form that the measure takes."""
        if self.compares_users and embeddings.users is not None:
            return as_rows("users", embeddings.users)
        if embeddings.model is not None:
            if self.requires == _TWO_HALVES:  # A = B in the symmetric form
                return as_rows("items", np.hstack([embeddings.items, embeddings.items]))
            if self.requires in ("model", EQ2):
                return embeddings.model.item_embeddings()
        return embeddings.items

    def make(self, embeddings: Embeddings) -> Measure:
        """The measure with its requirements from the embeddings, not fitted."""
        given = self._arguments(embeddings)
        if isinstance(self._source, str):
            return REGISTRY[self.name](**given)
        if not given:
            return self._source
        return type(self._source)(**parameters_of(self._source) | given)

    def _arguments(self, embeddings: Embeddings) -> dict[str, Any]:
        model, requirement = embeddings.model, self.requires
        if requirement == EQ2 and model is not None and embeddings.has_eq1:
            decay = embeddings.weight_decay
            decay = model.default_regularization("weight_decay") if decay is None else decay
            return {"model": model, "regularization": decay}
        if requirement == _OTHER_SIDE:
            return {requirement: embeddings.items if self.compares_users else embeddings.users}
        if requirement in ("popularity", "model"):
            return {requirement: getattr(embeddings, requirement)}
        return {}


def select_candidates(
    chosen: Sequence[str | Measure] | str | None,
    embeddings: Embeddings,
    *,
    with_users: bool = False,
    argument: str = "measures",
) -> tuple[list[Candidate], dict[str, str]]:
    """The chosen measures, the plain cosine first; and the requirements of measures left out.

    None chooses all that the embeddings can serve, "default" a dozen of them; a chosen measure
    that they cannot serve is refused. Measures of users, with items or with each other, need
    ``with_users``; given rows without a model may be users or items.
    """
    left_out: dict[str, str] = {}
    if chosen is None or chosen == DEFAULT:
        of_users = () if with_users else (*USER_ITEM, *USER_USER)
        names = [one for one in list_measures() if one.partition(":")[0] not in _DUPLICATES]
        if chosen == DEFAULT:
            names = [one for one in names if one in DEFAULT_MEASURES]
        selected = [_candidate(name) for name in names if name not in of_users]
        missing = [one for one in selected if not embeddings.provide(one.requires)]
        left_out = {one.measure: one.requires for one in missing}
    else:
        selected = [_candidate(one, argument) for one in validation.as_list(argument, chosen)]
        for one in selected:
            _check_served(argument, one, embeddings, with_users)
        objects = [one.measure for one in selected if not isinstance(one.source, str)]
        if twice := next((label for label in objects if objects.count(label) > 1), None):
            rule = "differ by name or by a numeric parameter"
            raise ValueError(f"{argument} must {rule}, got {twice} twice")
    by_label = {one.measure: one for one in [_candidate(BASELINE), *selected]}
    return [one for label, one in by_label.items() if label not in left_out], left_out


def _check_served(argument: str, one: Candidate, embeddings: Embeddings, with_users: bool) -> None:
    """Refuse a chosen measure that these rows cannot serve."""
    only_rows = embeddings.model is None and not one.requires
    if not with_users and (one.name in USER_ITEM or (one.name in USER_USER and not only_rows)):
        got = f"{one.name}, a measure of users (compare evaluates it on held-out interactions)"
        raise ValueError(f"{argument} must compare items with each other here, got {got}")
    # the caller says that given rows are two halves
    given_halves = one.requires == _TWO_HALVES and embeddings.model is None
    if not embeddings.provide(one.requires) and not given_halves:
        parameter = one.requires.split()[0]
        source = "FOLDER" if parameter == "model" else "FILE"
        example = f'get_measure("{one.name}", {parameter}=...)'
        if argument.startswith("--"):
            example = f"{one.name}:{parameter}={source}"
        raise ValueError(f"measure {one.name!r} requires {one.requires} ({example})")


def _candidate(choice: str | Measure, argument: str = "measures") -> Candidate:
    if isinstance(choice, str):
        check_known(argument, choice)
        return Candidate(choice, source=choice)
    try:
        made = get_measure(choice)
    except TypeError as error:
        raise TypeError(str(error).replace("measure", argument, 1)) from None
    return Candidate(label_of(made), source=made)


def representative(candidate: Candidate) -> Candidate:
    """The candidate whose scores are those of this one, by construction."""
    name = candidate.source
    if not isinstance(name, str) or name not in _EQUAL:
        return candidate
    return replace(candidate, measure=_EQUAL[name], source=_EQUAL[name])


def under_rescalings(candidates: Sequence[Candidate], rescalings: Sequence[str]) -> list[Candidate]:
    """The candidates under each rescaling; those that are invariant to D under the first only.

    Eq. 2 is another model, whose rows no D of the first gives, so that invariant measures are
    evaluated under it too, unless they require the model of Eq. 1.
    """
    return [
        replace(one, rescaling=rescaling)
        for place, rescaling in enumerate(rescalings)
        for one in candidates
        if place == 0 or (one.requires != "model" if rescaling == EQ2 else one.depends_on_rescaling)
    ]
