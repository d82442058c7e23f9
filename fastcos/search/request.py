"""What is asked of a search: requests, and thresholds of scores."""

from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from fastcos import validation
from fastcos.search.model_check import check_same_model
from fastcos.search.packing import ExcludedItems
from fastcos.similarity.base import Measure
from fastcos.validation import Integers

# a cosine of float32 rows may exceed 1 by rounding
_LARGEST_COSINE = 1.001


class SearchRequest(NamedTuple):
    """A checked question: what every entry point hands to ``execute``.

    Attributes
    ----------
    queries : array (n, d)
        Rows in memory, in a memory map, or of a low-precision type.
    k : int
    allowed_positions : ndarray or None
        Ascending positions of the items that may be found; None for all.
    exclusions : ExcludedItems or None
        Positions that each query may not find; None for nothing.
    min_score : float or None
    lists : tuple of ndarray (indptr, positions), or None
        The items that each query may find; None for all.
    """

    queries: Any
    k: int
    allowed_positions: Integers | None
    exclusions: ExcludedItems | None
    min_score: float | None
    lists: tuple[Integers, Integers] | None = None


class Threshold(Protocol):
    """A threshold that knows its measure, such as ``fastcos.auditing.Calibration``."""

    @property
    def measure(self) -> str:
        """Name of the measure."""

    def threshold(self) -> float:
        """Return the least score of a pair."""


def as_exclude_self(exclude_self: Any, n_queries: int, n_items: int, *, has_items: bool) -> bool:
    """Return whether query i must not find item i; None: if the queries are the items."""
    if exclude_self is None:
        return not has_items
    exclude_self = validation.as_flag("exclude_self", exclude_self)
    if exclude_self and has_items and n_queries != n_items:
        raise ValueError(
            f"exclude_self must be False if the number of items is not that of the queries "
            f"({n_queries}), got True for {n_items} items"
        )
    return exclude_self


def rounded_scores(scores: Any) -> npt.NDArray[np.float32]:
    """Return scores as searches return them, in float32: infinite beyond its range.

    A threshold is compared with the returned scores, and it is rounded like them. So a pair counts
    if a comparison of the returned score says so, and a score that was returned once and is given
    as a threshold loses no pair.
    """
    with np.errstate(over="ignore"):
        return np.asarray(scores).astype(np.float32)


def as_min_score(value: Any, measure: Measure, model: str | None = None) -> Any:
    """Return the threshold of a calibration of the same measure; anything else as it is."""
    if callable(getattr(value, "threshold", None)):
        return as_threshold("min_score", value, measure, model)
    return value


def as_threshold(name: str, value: object, measure: Measure, model: str | None = None) -> float:
    """Return a score as it is, and the score of a calibration of the same measure and model."""
    if not callable(getattr(value, "threshold", None)):
        score = validation.as_real(name, value)
        if measure.name == "cosine" and score > _LARGEST_COSINE:
            raise ValueError(
                f"{name} must be at most 1 for cosine, got {validation.format_value(value)}"
            )
        return score
    calibrated: Threshold = value  # type: ignore[assignment]
    if calibrated.measure != measure.name:
        raise ValueError(
            f"{name} must be calibrated for {measure.name}, got one for {calibrated.measure}"
        )
    check_same_model(name, model, getattr(value, "model", None))
    return float(calibrated.threshold())
