"""What goes into the search pipeline: fitted items, requests, thresholds."""

from typing import Any, NamedTuple, Protocol

from fastcos import validation
from fastcos.engine.packing import ExcludedItems, Integers
from fastcos.engine.segments import Segment
from fastcos.measures.base import Measure
from fastcos.neighbors.index_model import check_same_model

# share of the working memory for searching a segment that was read from disk; the rest is for the
# segment and the batch
MAPPED_SEARCH_SHARE = 0.25
# a cosine of float32 rows may exceed 1 by rounding
_LARGEST_COSINE = 1.001


class FittedItems(NamedTuple):
    """What a search reads of the items; never changed, only replaced as a whole.

    n_items counts positions, those of removed items included. mapped: memory-mapped rows (p, d)
    that every search reads in blocks, without segments.
    """

    measure: Measure
    n_items: int
    segments: tuple[Segment, ...]
    mapped: Any = None

    @property
    def n_live(self) -> int:
        """Items that can be found."""
        if self.mapped is not None:
            return self.n_items
        return sum(len(segment.numbers) for segment in self.segments)

    @property
    def rows(self) -> Any:
        """The rows as given where they are one array: those of a map, or of the first segment."""
        return self.segments[0].rows if self.mapped is None else self.mapped


class SearchRequest(NamedTuple):
    """A checked question: what every entry point hands to the pipeline.

    permitted: ascending positions of the items that may be found, None for all; lists (indptr,
    positions): those that each query may find, None for all; exclusions: of each query, None for
    nothing.
    """

    queries: Any
    k: int
    permitted: Integers | None
    exclusions: ExcludedItems | None
    min_score: float | None
    lists: tuple[Integers, Integers] | None = None


class Threshold(Protocol):
    """A threshold that knows its measure, such as ``fastcos.calibration.Calibration``."""

    @property
    def measure(self) -> str:
        """Name of the measure."""

    def threshold(self) -> float:
        """Return the least score of a pair."""


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
            raise ValueError(f"{name} must be at most 1 for cosine, got {value!r}")
        return score
    calibrated: Threshold = value  # type: ignore[assignment]
    if calibrated.measure != measure.name:
        raise ValueError(
            f"{name} must be calibrated for {measure.name}, got one for {calibrated.measure}"
        )
    parts = (getattr(value, "model", None), getattr(value, "model_version", None))
    check_same_model(name, model, "@".join(one for one in parts if one) or None)
    return float(calibrated.threshold())
