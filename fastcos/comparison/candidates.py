"""Candidates of a comparison: similarity measures for a model, or for other vectors."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fastcos import parallel, validation
from fastcos.similarity import Measure, get_measure, list_measures
from fastcos.similarity.base import REGISTRY, BaseMeasure, Invariances, check_known
from fastcos.similarity.scoring_embeddings import ScoringEmbeddings
from fastcos.similarity.serialization import label_of, parameters_of
from fastcos.validation import Rows, as_rows

if TYPE_CHECKING:
    from fastcos.models.linear_mf import LinearMF

# In a list of rescalings, EQ2 stands for the second objective (Eq. 2). In _OPTIONAL_MODEL, EQ2
# marks the measure "eq2_cosine".
EQ2 = "eq2"
# Some measures compare the columns of the interactions and need no model. For these measures,
# NO_MODEL replaces the name of the rescaling.
NO_MODEL = "no model"
# The measures that compare columns of the interactions: the cosine and the Pearson correlation.
OF_COLUMNS = ("cosine", "layer_norm_cosine")
BASELINE = "cosine"
# The twelve default measures. No two default measures rank the items in the same order, and the
# method ``fit`` of a default measure never searches for neighbours.
DEFAULT = "default"
DEFAULT_MEASURES = frozenset((
    BASELINE, "dot", "neg_euclidean", "centered_cosine", "zscore_cosine", "all_but_the_top",
    "layer_norm_cosine", "whitened_cosine", "query_metric_cosine", "project_back_items",
    "user_item_dot", "project_back_users",
))  # fmt: skip
# The measures that compare a row of a user with a row of an item.
USER_ITEM = ("user_item_dot", "user_item_cosine")
# The measures that compare rows of users with each other.
USER_USER = ("project_back_users",)
# By default, these measures are not candidates. Each of these measures equals the plain cosine
# under one of the rescalings. The scores of these measures would only repeat the scores of this
# cosine.
_DUPLICATES = ("eq2_cosine", "rescaled_cosine")
# _EQUAL maps a measure to another measure that ranks the items in the same order for every query.
# For each query, the measures "angular" and "query_normalized" are increasing functions of the
# cosine. The measure "ica_cosine" differs from "whitened_cosine" only by a rotation. The measure
# "weight_cosine" compares rows [a_i, b_i]. A comparison passes rows [b_i, b_i] to "weight_cosine",
# and for such rows, this measure equals the cosine.
_EQUAL = {
    "angular": "cosine",
    "query_normalized": "cosine",
    "weight_cosine": "cosine",
    "ica_cosine": "whitened_cosine",
}
# The keys are measures for which a model is optional: without a model, they compare the unchanged
# rows. The attribute ``needs`` of a measure names the data that the measure requires. For the
# measures in _OPTIONAL_MODEL, a comparison ignores ``needs`` and uses the values of this dict.
_OPTIONAL_MODEL = {"rescaled_cosine": "", "rescaled_cosine:identity": "", "eq2_cosine": EQ2}
# The attribute ``needs`` of a measure names the data that the measure requires. The code below
# compares ``needs`` with these two values.
_OTHER_SIDE = "other"
_TWO_HALVES = "rows [a_i, b_i]"
# The leaderboard uses these words to describe the data that a measure requires.
_IN_WORDS = {_OTHER_SIDE: "users, the other side of the model"}


@dataclass(frozen=True)
class Embeddings:
    """The rows to which measures are fitted, and further data that some measures require.

    - `items` (p, d): the embeddings of the items.
    - `popularity` (p,): the number of users of each item.
    - `model`: the model that has learnt the embeddings, or None.
    - `X` (n, p): the interactions from which the model computes the embeddings of its users.
    - `rescaling`: the rescaling D that has been applied to the embeddings.
    - `weight_decay`: the regularisation strength λ of Eq. 2, or None for the default of the model.
    - `user_rows` (n, d): the embeddings of the users if there is no model.
    - `scoring`: for a model with biases, the rows of users and items whose inner products are the
      scores of the model. For a model without biases, `scoring` is None, because the scores are the
      inner products of `user_rows` and `items`.
    """

    items: Rows
    popularity: npt.NDArray[np.float64] | None = None
    model: "LinearMF | None" = None
    X: Any = None
    rescaling: Any = None
    weight_decay: float | None = None
    user_rows: Rows | None = None
    scoring: ScoringEmbeddings | None = None

    @parallel.lazy_attribute
    def users(self) -> Rows | None:
        """The embeddings of the users, (n, d)."""
        if self.model is None:
            return self.user_rows
        return self.model.user_embeddings(self.X, self.rescaling)

    @property
    def has_eq1(self) -> bool:
        """Whether the model minimises Eq. 1, so that every rescaling D is possible."""
        return self.model is not None and self.model.objective == "dropout"

    def provide(self, requirement: str) -> bool:
        """Return whether the embeddings contain the data that a measure requires."""
        return {
            "": True,
            EQ2: True,
            "popularity": self.popularity is not None,
            "model": self.has_eq1,
            _OTHER_SIDE: self.model is not None or self.user_rows is not None,
            _TWO_HALVES: self.model is not None,
        }.get(requirement, False)


@dataclass(frozen=True)
class Candidate:
    """A similarity measure, a rescaling D and a preprocessing, which are evaluated together.

    Two candidates are equal if all their fields except ``source`` are equal.

    Attributes
    ----------
    measure : str
        Name of the measure. If the measure was passed as an object, the name includes the
        parameters that differ from the defaults of its class, such as ``csls:n_neighbors=5``.
    rescaling : str
        For a model of Eq. 1, the name or the formula of D; for a model of Eq. 2, "eq2". If the
        measure compares the columns of the interactions, ``rescaling`` is "no model". For vectors
        without a model, ``rescaling`` is "". If the scores of a measure do not depend on D, the
        measure is a candidate only under the first rescaling. If the columns of the interactions
        are compared, the measure ``layer_norm_cosine`` equals Pearson's correlation.
    preprocessing : str
        Preprocessing of the interactions before the model is fitted, or "none".
    source : str or Measure
        The registered name or the object from which the measure is created. Default: ``measure``.
    """

    measure: str
    rescaling: str = ""
    preprocessing: str = "none"
    source: str | Measure | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        preposition = "with" if self.rescaling == NO_MODEL else "under"
        return self.measure + (f" {preposition} {self.embeddings}" if self.embeddings else "")

    @property
    def embeddings(self) -> str:
        """The rescaling and the preprocessing, in words."""
        has_d = self.rescaling not in ("", NO_MODEL, EQ2)
        text = "any D" if has_d and not self.depends_on_rescaling else self.rescaling
        return text if self.preprocessing == "none" else f"{text} after {self.preprocessing}"

    def to_dict(self) -> dict[str, str]:
        """Return the names of the measure, the rescaling and the preprocessing."""
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
        """Whether the measure compares users with each other instead of comparing items."""
        return self.name in USER_USER

    @property
    def compares_items(self) -> bool:
        """Whether the measure compares items with each other."""
        return self.name not in (*USER_ITEM, *USER_USER)

    @property
    def requires(self) -> str:
        """The data that the measure requires besides the rows, such as "popularity"; may be ""."""
        if isinstance(self._source, str):
            return _OPTIONAL_MODEL.get(self.name, str(self._class.needs))
        needs = str(getattr(self._class, "needs", ""))
        # A measure object must already contain all data that it requires. Only the users may be
        # missing (the argument ``other`` of the measure).
        is_missing = needs == _OTHER_SIDE and getattr(self._source, _OTHER_SIDE, None) is None
        return needs if is_missing or needs == _TWO_HALVES else ""

    @property
    def depends_on_rescaling(self) -> bool:
        """Whether a rescaling D changes the scores."""
        invariances: Invariances = getattr(self._class, "invariances", BaseMeasure.invariances)
        return not (invariances.D == "y" or self.requires in ("model", EQ2))

    @property
    def _class(self) -> Any:
        if isinstance(self._source, str):
            return getattr(REGISTRY[self.name], "func", REGISTRY[self.name])
        return type(self._source)

    def rows(self, embeddings: Embeddings) -> Rows:
        """Return the rows to compare: users for a measure in ``USER_USER``, and items otherwise."""
        if self.compares_users and embeddings.users is not None:
            return as_rows("users", embeddings.users)
        if embeddings.model is not None:
            if self.requires == _TWO_HALVES:  # In the symmetric solution of Eq. 1, A equals B.
                return as_rows("items", np.hstack([embeddings.items, embeddings.items]))
            if self.requires in ("model", EQ2):
                return embeddings.model.item_embeddings()
        return embeddings.items

    def make(self, embeddings: Embeddings) -> Measure:
        """Return the unfitted measure, with the data that it requires from the embeddings."""
        arguments = self._arguments(embeddings)
        if isinstance(self._source, str):
            return REGISTRY[self.name](**arguments)
        if not arguments:
            return self._source
        return type(self._source)(**parameters_of(self._source) | arguments)

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
    measures: Sequence[str | Measure] | str | None,
    embeddings: Embeddings,
    *,
    with_users: bool = False,
    argument: str = "measures",
) -> tuple[list[Candidate], dict[str, str]]:
    """Return a list of candidates, which starts with the cosine, and a dict of the other measures.

    If `measures` is a list, the measures in the list are compared. If the embeddings lack data that
    a measure in the list requires, the function raises an error. If `measures` is "default", the
    twelve measures in ``DEFAULT_MEASURES`` are compared. If `measures` is None, all measures are
    compared except the measures in ``_DUPLICATES``. If `measures` is None or "default", the
    function leaves out every measure for which the embeddings lack required data. The second result
    is a dict: its keys are the measures that are left out, and each value describes the data that
    the measure requires.

    If `with_users` is false, the function leaves out the measures that compare users, and raises an
    error if one of them is in the list. There is one exception: without a model, the vectors may be
    users, so the list may contain a measure that compares users with each other. Such a measure
    must be an object, and the items must have been passed as its argument ``other`` when it was
    created.
    """
    left_out: dict[str, str] = {}
    if measures is None or measures == DEFAULT:
        user_measures = () if with_users else (*USER_ITEM, *USER_USER)
        names = [name for name in list_measures() if name.partition(":")[0] not in _DUPLICATES]
        if measures == DEFAULT:
            names = [name for name in names if name in DEFAULT_MEASURES]
        candidates = [_candidate(name) for name in names if name not in user_measures]
        left_out = {
            candidate.measure: _IN_WORDS.get(candidate.requires, candidate.requires)
            for candidate in candidates
            if not embeddings.provide(candidate.requires)
        }
    else:
        candidates = [
            _candidate(choice, argument) for choice in validation.as_list(argument, measures)
        ]
        for candidate in candidates:
            _check_requirements(argument, candidate, embeddings, with_users)
        labels = [
            candidate.measure for candidate in candidates if not isinstance(candidate.source, str)
        ]
        if repeated := next((label for label in labels if labels.count(label) > 1), None):
            rule = "differ by name or by a numeric parameter"
            raise ValueError(f"{argument} must {rule}, got {repeated} twice")
    by_label = {candidate.measure: candidate for candidate in [_candidate(BASELINE), *candidates]}
    return [candidate for label, candidate in by_label.items() if label not in left_out], left_out


def _check_requirements(
    argument: str, candidate: Candidate, embeddings: Embeddings, with_users: bool
) -> None:
    """Raise ValueError if the embeddings lack the data that a chosen measure requires."""
    name, requirement = candidate.name, candidate.requires
    only_rows = embeddings.model is None and not requirement
    if not with_users and (name in USER_ITEM or (name in USER_USER and not only_rows)):
        got = (
            f"{name}, which scores users. To evaluate {name}, pass held-out interactions to "
            "fastcos.compare"
        )
        raise ValueError(f"{argument} must compare items with each other, got {got}")
    # Without a model, a caller may choose a measure that requires rows [a_i, b_i]. The measure then
    # reads each row of the caller as two vectors a_i and b_i of equal width.
    are_two_halves = requirement == _TWO_HALVES and embeddings.model is None
    if not embeddings.provide(requirement) and not are_two_halves:
        parameter = requirement.split()[0]
        source = "FOLDER" if parameter == "model" else "FILE"
        example = f'get_measure("{name}", {parameter}=...)'
        if argument.startswith("--"):
            example = f"{name}:{parameter}={source}"
        raise ValueError(f"measure {name!r} requires {requirement} ({example})")


def _candidate(choice: str | Measure, argument: str = "measures") -> Candidate:
    if isinstance(choice, str):
        check_known(argument, choice)
        return Candidate(choice, source=choice)
    try:
        measure = get_measure(choice)
    except TypeError as error:
        raise TypeError(str(error).replace("measure", argument, 1)) from None
    return Candidate(label_of(measure), source=measure)


def representative(candidate: Candidate) -> Candidate:
    """Return the candidate that is evaluated in place of `candidate`.

    Both candidates rank the items in the same order, so only one of them is evaluated. If no other
    candidate ranks the items in the same order as `candidate`, the result is `candidate` itself.
    """
    name = candidate.source
    if not isinstance(name, str) or name not in _EQUAL:
        return candidate
    return replace(candidate, measure=_EQUAL[name], source=_EQUAL[name])


def under_rescalings(candidates: Sequence[Candidate], rescalings: Sequence[str]) -> list[Candidate]:
    """Return each candidate under every rescaling that may change its scores.

    A measure whose scores do not depend on the rescaling is evaluated only under the first
    rescaling. The solution of Eq. 2 is another model, and not a rescaled solution of Eq. 1.
    Measures are therefore evaluated on the solution of Eq. 2 as well, except the measures that
    require a model of Eq. 1.
    """
    return [
        replace(candidate, rescaling=rescaling)
        for number, rescaling in enumerate(rescalings)
        for candidate in candidates
        if number == 0
        or (candidate.requires != "model" if rescaling == EQ2 else candidate.depends_on_rescaling)
    ]
