"""The interface of measures, their base class, and the registry of measures by name."""

import copy
import inspect
import warnings
import weakref
from collections.abc import Callable
from typing import (
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    Protocol,
    Self,
    TypeGuard,
    get_args,
    runtime_checkable,
)

import numpy as np
import numpy.typing as npt

from fastcos import validation
from fastcos.parallel import memmap
from fastcos.validation import Floats, Rows

MetricType = Literal["dot", "cosine", "euclidean"]

_MEMBERS = ("name", "metric_type", "fit", "encode_queries", "encode_items", "item_bias", "to_score")


@runtime_checkable
class Measure(Protocol):
    """A similarity measure whose scores are computed from raw scores of encoded rows.

    A search encodes a query q as the row ``x = encode_queries(q)``, and an item b as the row ``y =
    encode_items(b)``. The search computes a float64 raw score of x and y, and ranks the items for q
    by this raw score. The raw score depends on ``metric_type``:

    - For "dot", the raw score is x·y + ``item_bias(b)``.
    - For "cosine", the raw score is x·y / (|x| |y|), or 0 if x or y is a zero row.
    - For "euclidean", the raw score is -|x - y|².

    ``to_score`` converts raw scores to the scores that the search returns. For each query,
    ``to_score`` must not decrease: an item with a higher raw score must not get a lower score.

    Attributes
    ----------
    name : str
        The name under which every ``measure=`` argument finds the class.
    metric_type : {"dot", "cosine", "euclidean"}
        The operation that computes the raw score of a pair of encoded rows.
    """

    name: ClassVar[str]
    metric_type: ClassVar[MetricType]

    def fit(self, items: Rows, users: Rows | None = None) -> Self:
        """Return a measure fitted to the items, and to the users if they are not None."""

    def encode_queries(self, Q: Rows) -> Rows:
        """Return the encoded queries phi(q), (n, d'), of the queries Q (n, d)."""

    def encode_items(self, B: Rows) -> Rows:
        """Return the encoded items psi(b), (p, d'), of the items B (p, d)."""

    def item_bias(self, B: Rows) -> Floats | None:
        """Return the bias of each item, (p,) float64, or None.

        The bias of an item is added to the inner product of every query with this item. None stands
        for a bias of 0 for every item.
        """

    def to_score(self, raw: Floats, Q: Rows) -> Floats:
        """Convert raw scores (n, k) of queries Q (n, d) to the scores (n, k) in the result."""


@runtime_checkable
class UpperBounded(Measure, Protocol):
    """A measure whose scores have upper bounds that a search can compute from raw scores.

    A search selects candidates by the raw scores of encoded rows, and ``rescore`` ranks the
    candidates by their exact scores (filter and refine). The search for a query ends when
    ``upper_bound`` shows that no remaining item can score higher than the k-th best item found so
    far. The search passes the scores from ``rescore`` to ``to_score``, which converts them to the
    scores in the result.
    """

    def precompute(self, B: Rows) -> Any:
        """Return the data that ``rescore`` needs about the items B (p, d).

        A search may call ``precompute`` several times, for example once for each segment and each
        batch of queries.
        """

    def rescore(self, Q: Rows, precomputed: Any, columns: npt.NDArray[np.int64]) -> Floats:
        """Return the exact raw scores (n, k) of each query with its candidates.

        Query i is row i of Q (n, d). Row i of ``columns`` (n, k) contains the item numbers of the
        candidates of query i. Row i of the result contains the scores of query i with these
        candidates. ``precomputed`` is the result of ``precompute``.
        """

    def upper_bound(self, Q: Rows, raw: Floats) -> Floats:
        """Return upper bounds (n,) on the scores of items with raw scores of at most ``raw`` (n,).

        Query i is row i of Q (n, d). If the raw score of query i with an item is at most
        ``raw[i]``, the score of query i with this item is at most the i-th upper bound in the
        result. For each query, the bound must not decrease as the raw score increases.
        """


class Capabilities(NamedTuple):
    """The operations that a search or an index supports with a measure.

    Attributes
    ----------
    blocks : bool
        Whether items may be memory-mapped and read in blocks, and whether results may be written to
        a directory (``out=``).
    sparse : bool
        Whether the items and the queries may be sparse matrices.
    save : bool
        Whether an index with this measure can be saved. An index can be saved if its measure is
        registered by name.
    append : bool
        Whether an index can add and remove items without changing the other items. A measure with
        this capability learns nothing from the items and uses their rows unchanged.
    """

    blocks: bool
    sparse: bool
    save: bool
    append: bool


def capabilities(measure: Any) -> Capabilities:
    """Return the capabilities of a measure, whether or not it is an instance of BaseMeasure."""
    kind = type(measure)
    fits_nothing = _inherits(kind, "_fit")
    return Capabilities(
        blocks=fits_nothing or getattr(kind, "fits_in_blocks", False),
        sparse=getattr(kind, "takes_sparse_rows", False),
        save=measure.name in REGISTRY,
        append=_inherits(kind, *_FOR_APPEND),
    )


# A measure has the capability ``append`` if its class overrides none of the following methods of
# BaseMeasure.
_FOR_APPEND = ("_fit", "fit", "encode_items", "item_bias")
# The classes of measures for which warn_of_slow_changes has already issued its warning.
_slow_classes: weakref.WeakSet[type[Any]] = weakref.WeakSet()


def warn_of_slow_changes(measure: Any) -> None:
    """Warn if a measure from outside of fastcos lacks the capability ``append``.

    The warning is issued once per class. A class lacks the capability ``append`` if it overrides
    one of the methods in ``_FOR_APPEND``. fastcos cannot know what an override does, so the class
    lacks the capability even if its override only writes to a log.
    """
    kind = type(measure)
    is_of_fastcos = kind.__module__.partition(".")[0] == "fastcos"
    if is_of_fastcos or kind in _slow_classes or capabilities(measure).append:
        return
    _slow_classes.add(kind)
    overridden = [method for method in _FOR_APPEND if not _inherits(kind, method)]
    text = (
        "after every change, this index fits the measure and packs all items again, because "
        f"{kind.__name__} overrides {' and '.join(overridden)}. Without these overrides, the index "
        "would process only the changed items."
    )
    warnings.warn(text, stacklevel=6)


def is_upper_bounded(measure: Any) -> TypeGuard[UpperBounded]:
    """Return whether a measure implements UpperBounded.

    The function does not call isinstance, which would take 20 microseconds.
    """
    kind = type(measure)
    return all(hasattr(kind, name) for name in ("precompute", "rescore", "upper_bound"))


def _inherits(kind: type[Any], *methods: str) -> bool:
    """Return whether a class inherits all of ``methods`` from BaseMeasure and overrides none."""
    return all(getattr(kind, method, None) is getattr(BaseMeasure, method) for method in methods)


def require(measure: Any, capability: str, argument: str = "measure") -> None:
    """Raise ValueError if a measure lacks the capability with this name."""
    if not getattr(capabilities(measure), capability):
        raise ValueError(
            f"{argument} must have the capability {capability!r}, got {measure.name}, which lacks "
            "this capability"
        )


class Invariances(NamedTuple):
    """Which of six changes to the embeddings leave a measure's scores unchanged.

    There is one attribute for each change of the embeddings; the description of the attribute
    states the change. The value "y" means that the change does not alter the scores. The value
    "rank" means that the change may alter the scores, but not the order of the scores. The value
    "-" means that the change may alter the order of the scores.

    Attributes
    ----------
    s : str
        All rows are multiplied by the same positive number.
    r : str
        Each row is multiplied by its own positive number.
    R : str
        The users and the items of a model are rotated in the same way.
    D : str
        The columns of the users are multiplied by positive numbers, and the columns of the items
        are divided by the same numbers.
    G : str
        For an invertible matrix G, the users P and the items B of a model become P G'^-1 and B G.
    t : str
        The same vector is added to all rows.
    """

    s: str
    r: str
    R: str
    D: str
    G: str
    t: str


class BaseMeasure:
    """The base class of measures; an instance computes the cosine of the unchanged rows.

    A subclass overrides the methods in which its measure differs from the cosine.
    """

    name: ClassVar[str]
    metric_type: ClassVar[MetricType] = "cosine"
    invariances: ClassVar[Invariances] = Invariances(s="y", r="y", R="y", D="-", G="-", t="-")
    needs: ClassVar[str] = ""
    # Whether _fit accepts memory-mapped rows and reads such rows in blocks.
    fits_in_blocks: ClassVar[bool] = False
    takes_sparse_rows: ClassVar[bool] = False

    @property
    def capabilities(self) -> Capabilities:
        """The operations that a search or an index supports with the measure."""
        return capabilities(self)

    def fit(self, items: Rows, users: Rows | None = None) -> Self:
        """Return a copy fitted to the items and users, or ``self`` if there is nothing to fit."""
        if type(self)._fit is BaseMeasure._fit:
            return self
        as_rows = memmap.as_mapped_rows if self.fits_in_blocks else validation.as_rows
        items = as_rows("items", items)
        if users is not None:
            users = validation.as_rows("users", users)
        fitted = copy.copy(self)
        fitted._fit(items, users)
        return fitted

    def _fit(self, items: Rows, users: Rows | None) -> None:
        """Set the attributes that the measure learns from the items; the cosine learns nothing."""

    def encode_queries(self, Q: Rows) -> Rows:
        """Return the queries, encoded in the same way as the items."""
        return self.encode_items(Q)

    def encode_items(self, B: Rows) -> Rows:
        """Return the rows unchanged."""
        return B

    def item_bias(self, B: Rows) -> Floats | None:
        """Return None, because the cosine has no bias."""
        return None

    def to_score(self, raw: Floats, Q: Rows) -> Floats:
        """Return the raw scores unchanged."""
        return raw


# This dictionary maps the name of each measure to its class, or to a function that returns the
# measure. To unregister a measure, delete its entry.
REGISTRY: dict[str, Callable[..., Any]] = {}
# Scores from the literature that no measure can compute, because they do not compare two vectors.
# The dictionary maps the name of each score to the call that computes this score.
_SCORERS = {
    "sts_score": "rerank(neighbors, STSScorer(model, texts))",
    "word_rotators_distance": "rerank(neighbors, WordRotatorsScorer(vectors, bags))",
}

# Each key is the name of a measure in another library. Its value is the measure of fastcos that
# ranks neighbours in the same order as that measure.
_OTHER_NAMES = {
    "l2": "neg_euclidean", "euclidean": "neg_euclidean", "sqeuclidean": "neg_euclidean",
    "l2_distance": "neg_euclidean", "metric_l2": "neg_euclidean", "ip": "dot",
    "inner_product": "dot", "innerproduct": "dot", "metric_inner_product": "dot",
    "dot_product": "dot", "dotproduct": "dot", "cos": "cosine", "cosinesimil": "cosine",
    "cosine_similarity": "cosine", "cosine_distance": "cosine", "angle": "angular",
}  # fmt: skip


def register(measure: type[Any]) -> type[Any]:
    """Class decorator that registers a measure by its name."""
    if not isinstance(getattr(measure, "name", None), str):
        got = validation.format_value(measure)
        raise TypeError(f"measure must be a class with a name, got {got}")
    REGISTRY[measure.name] = measure
    return measure


def list_measures() -> tuple[str, ...]:
    """Return the names of all measures, sorted.

    Returns
    -------
    tuple of str

    Examples
    --------
    >>> from fastcos import list_measures
    >>> "cosine" in list_measures()
    True
    """
    return tuple(sorted(REGISTRY))


def check_known(argument: str, name: str) -> None:
    """Raise ValueError if no measure has this name, and suggest a similar name."""
    if name in _SCORERS and name not in REGISTRY:
        raise ValueError(f"{argument} must compare vectors, got {name!r}: use {_SCORERS[name]}")
    if name in REGISTRY:
        return
    if (synonym := _OTHER_NAMES.get(name.strip().lower().replace("-", "_"))) in REGISTRY:
        got = f"{validation.format_value(name)} (did you mean {validation.format_value(synonym)}?)"
        raise ValueError(f"{argument} must be the name of a measure, got {got}")
    validation.as_choice(argument, name, list_measures())


def get_measure(measure: str | Measure, **parameters: Any) -> Measure:
    """Return the measure with this name and these parameters; return a measure object unchanged.

    Parameters
    ----------
    measure : str or Measure
        One of ``list_measures()``, or an object with the members of ``Measure``.
    **parameters
        Keyword arguments of the class of the measure.

    Returns
    -------
    Measure
        The measure, which is not fitted yet.

    Raises
    ------
    ValueError
        No measure has this name.
    TypeError
        The argument is neither a name nor a measure.

    Examples
    --------
    >>> from fastcos import get_measure
    >>> get_measure("cosine").metric_type
    'cosine'
    """
    if isinstance(measure, str):
        check_known("measure", measure)
        return REGISTRY[measure](**parameters)
    # It takes 28 microseconds to check whether an object implements the protocol Measure. An
    # instance of BaseMeasure inherits every member of the protocol except for the member ``name``.
    # It is therefore enough to check whether the instance has a name.
    if not (isinstance(measure, BaseMeasure) and hasattr(measure, "name")):
        rule = f"a name or a Measure ({', '.join(_MEMBERS)})"
        if hasattr(measure, "transform") and hasattr(measure, "factor"):  # a QueryMetric
            rule = "get_measure('query_metric_cosine', other=users), or another measure"
        elif hasattr(measure, "shape"):
            rule = "a name or a Measure (pass rows to its method fit)"
        validation.as_instance("measure", measure, Measure, rule)  # type: ignore[type-abstract]
    kinds = get_args(MetricType)
    validation.as_choice(f"metric_type of {measure.name}", measure.metric_type, kinds)
    return measure


def summaries() -> dict[str, str]:
    """Return the one-line description of every measure, as help texts and tables print it.

    Returns
    -------
    dict of str
        A dictionary that maps the name of each measure to its description, sorted by name.

    Examples
    --------
    >>> from fastcos.similarity import summaries
    >>> summaries()["csls"]
    '2 cosine - r(x) - r(y), where r is the mean cosine of a row with its K nearest rows.'
    """
    lines = {}
    for name in list_measures():
        factory = getattr(REGISTRY[name], "func", REGISTRY[name])
        lines[name] = (inspect.getdoc(factory) or name).splitlines()[0]
    return lines
