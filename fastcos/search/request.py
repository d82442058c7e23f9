"""What goes into the search pipeline: fitted items, requests, thresholds."""

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from fastcos import validation
from fastcos.search.index_model import check_same_model
from fastcos.search.packing import ExcludedItems, ExecutionOptions, PermittedItems
from fastcos.search.segments import Segment
from fastcos.similarity.base import Measure
from fastcos.validation import Integers

# a cosine of float32 rows may exceed 1 by rounding
_LARGEST_COSINE = 1.001


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


class Searched(NamedTuple):
    """A segment that a search meets, and the memory in bytes for searching it.

    permitted: its items that may be found, None for all; share: where it starts and ends, as shares
    of all items.
    """

    segment: Segment
    permitted: PermittedItems | None
    share: tuple[float, float]
    memory: float


class FittedItems(NamedTuple):
    """What a search reads of the items; never changed, only replaced as a whole.

    Here they are in memory, encoded: the segments of an index or of one call. ``MappedItems`` stay
    where they are, and every search reads the rows given in blocks (out_of_core). The measure is
    fitted; n_items counts positions, those of removed items included.
    """

    measure: Measure
    n_items: int
    segments: tuple[Segment, ...]
    given: Any = None

    @property
    def n_live(self) -> int:
        """Items that can be found."""
        return sum(len(segment.numbers) for segment in self.segments)

    @property
    def rows(self) -> Any:
        """The rows as given where they are one array: of the first segment."""
        return self.segments[0].rows

    def only(self, positions: Integers) -> "FittedItems | None":
        """Return the items of one segment, these alone to be packed; None if none is packed."""
        return FittedItems(self.measure, self.n_items, (self.segments[0].only(positions),))

    def read_segments(
        self, request: SearchRequest, options: ExecutionOptions, within: range | None
    ) -> Iterator[Searched]:
        """Yield segments that are read; none of items in memory. within: these items only."""
        return iter(())

    def read_blocks(
        self, positions: Integers, options: ExecutionOptions
    ) -> Iterator["FittedItems"]:
        """Yield items in memory, among them all at these positions, a block at a time."""
        yield self

    def read_listed(self, positions: Integers, options: ExecutionOptions) -> "FittedItems":
        """Return items in memory, among them all at these positions."""
        return self


class Threshold(Protocol):
    """A threshold that knows its measure, such as ``fastcos.auditing.Calibration``."""

    @property
    def measure(self) -> str:
        """Name of the measure."""

    def threshold(self) -> float:
        """Return the least score of a pair."""


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
