"""How far rescalings of the columns, which no prediction shows, move a threshold."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fastcos import validation
from fastcos.reports import Record, Section, as_table
from fastcos.similarity.cosine_bounds import CONDITION, as_condition, fisher_z_interval, tv_index
from fastcos.similarity.row_transforms import unit_rows
from fastcos.validation import Floats

# rows whose pairs are searched: 500,000 pairs, 20 ms for each D of 64 columns
SAMPLE = 1000
# pairs next to the threshold whose derivatives say where it moves
_NEAR = 200
# steps to a vertex of the box; they seldom help after the third
# (tests.robustness.calibrated_rates rescaling)
_VERTEX_STEPS = 8
# values of D that Powell's method may try for each end, after the steps
_TRIALS = 400
# most columns for which DIRECT searches the whole box first, and its values of D for each column
# (tests.robustness.calibrated_rates rescaling)
_FEW_COLUMNS = 3
_GLOBAL_TRIALS = 1000


@as_table
@dataclass(frozen=True)
class ThresholdRange(Record):
    """Thresholds of one false-positive rate over the rescalings D of at most a condition.

    Attributes
    ----------
    fpr, condition : float
    n_rows : int
        Rows whose pairs were searched.
    given : float
        The threshold of these pairs as given.
    low, high : float
        The least and the greatest threshold found by a search over D, each attained.
    bound_low, bound_high : float
        No linear map of the condition moves the threshold beyond these, hence no D.
    low_rescaling, high_rescaling : ndarray (d,), float64
        Diagonals of the D that attain low and high, for rows / D; from 1 / condition to 1.
    """

    fpr: float
    condition: float
    n_rows: int
    given: float
    low: float
    high: float
    bound_low: float
    bound_high: float
    low_rescaling: Floats
    high_rescaling: Floats

    @property
    def verdict(self) -> str:
        """The range in a sentence."""
        return (
            f"Rescalings D of condition {self.condition:g} move the threshold for a rate of "
            f"{self.fpr:g} from {self.given:.3f} to between {self.low:.3f} and {self.high:.3f} "
            f"(pairs of {self.n_rows:,} items)."
        )

    def sections(self) -> tuple[Section]:
        """The range of the threshold."""
        return (
            Section(
                "How far a rescaling moves the threshold",
                (
                    "D multiplies the latent dimensions of one side of a model and divides those "
                    "of the other: no dot product changes, and cosines do. Training on cosines, or "
                    "weight decay on both sides, chooses D: then the range is sensitivity.",
                    f"Both ends were found by search on the pairs of {self.n_rows:,} items, so the "
                    "true range is at least as wide. No linear map of the condition moves the "
                    "threshold beyond the bounds.",
                ),
                facts={
                    f"threshold as given, rate {self.fpr:.2g}": self.given,
                    "least threshold found": self.low,
                    "greatest threshold found": self.high,
                    "bounds of the threshold": f"{self.bound_low:.3f} .. {self.bound_high:.3f}",
                },
                verdict=self.verdict,
            ),
        )

    def spans(self, score: float) -> bool:
        """Whether D decides on which side of the threshold this score is."""
        return self.low <= validation.as_real("score", score) < self.high

    @classmethod
    def of(cls, values: dict[str, Any]) -> "ThresholdRange":
        """Return the range whose ``to_dict`` this is."""
        ends = ("low_rescaling", "high_rescaling")
        return cls(**values | {name: np.array(values[name], np.float64) for name in ends})


def threshold_range(
    items: Any,
    fpr: float,
    *,
    condition: float = CONDITION,
    sample: int | None = SAMPLE,
    random_state: int | np.random.Generator = 0,
) -> ThresholdRange:
    """How far rescalings D of at most this condition move the cosine threshold of a rate.

    The threshold is the least cosine of the share fpr of all pairs of rows. A search finds D that
    move it far down and up: steps to the vertex of the box of D that the derivatives of the pairs
    near the threshold point to, then Powell's method; for at most 3 columns, DIRECT first searches
    the whole box. So the ends are attained, and the true range is at least as wide. The bounds hold
    for every linear map of the condition.

    Parameters
    ----------
    items : array_like (p, d), float32 or float64
        At least two rows that are not zero.
    fpr : float
        From 1 over the number of pairs to 1.
    condition : float
        Largest entry of D over its smallest, from 1 to 1e15.
    sample : int, optional
        Rows drawn without replacement. None: all; time and memory grow with their square.
    random_state : int or Generator

    Returns
    -------
    ThresholdRange

    Examples
    --------
    >>> import numpy as np
    >>> from fastcos.auditing import threshold_range
    >>> moved = threshold_range(np.random.default_rng(0).standard_normal((80, 4)), 0.01)
    >>> moved.bound_low <= moved.low < moved.given < moved.high <= moved.bound_high
    True
    """
    from scipy.optimize import direct, minimize

    condition = as_condition("condition", condition)
    generator = validation.as_generator("random_state", random_state)
    rows = validation.as_rows("items", items)
    rows = rows[rows.any(axis=1)]
    validation.check_enough("items", len(rows), 2, "rows that are not zero")
    if sample is not None:
        sample = validation.as_count("sample", sample, low=2)
        rows = rows[np.sort(generator.choice(len(rows), min(sample, len(rows)), replace=False))]
    unit = unit_rows(rows)
    pairs = _RankedPairs(unit, fpr)
    largest = 2 * np.log(condition)
    given = pairs.threshold(np.zeros(unit.shape[1]))
    ends = []
    for sign in (-1.0, 1.0):
        best, at = given, np.zeros(unit.shape[1])
        for _ in range(_VERTEX_STEPS):
            # the weights w = D^-2 by their logarithms, in a box from 0 to ln condition^2
            vertex = np.where(sign * pairs.derivatives(at) > 0, largest, 0.0)
            tried = [at + share * (vertex - at) for share in (1.0, 0.5, 0.25)]
            values = [pairs.threshold(point) for point in tried]
            number = int(np.argmax(sign * np.array(values)))
            if not sign * values[number] > sign * best:
                break
            best, at = values[number], tried[number]
        if condition > 1 and len(at) > 1:
            box = [(0.0, largest)] * len(at)

            def loss(logs: Floats, sign: float = sign) -> float:
                # Fisher's z, kept finite
                inside = np.clip(pairs.threshold(logs), -1 + 2.0**-52, 1 - 2.0**-52)
                return -sign * float(np.arctanh(inside))

            if len(at) <= _FEW_COLUMNS:
                # up to the scale of D one of its weights is the least: a face of the box each
                for column in range(len(at)):

                    def on_face(logs: Floats, column: int = column) -> float:
                        return loss(np.insert(logs, column, 0.0))

                    face = direct(on_face, box[1:], maxfun=_GLOBAL_TRIALS, locally_biased=False)
                    at = min(at, np.insert(face.x, column, 0.0), key=loss)
            limits = {"maxfev": _TRIALS, "xtol": 1e-4, "ftol": 1e-9}
            minimum = minimize(loss, at, method="Powell", bounds=box, options=limits)
            at = min(at, np.clip(minimum.x, 0.0, largest), key=loss)
            best = pairs.threshold(at)
        # D up to its scale: its largest entry is 1
        ends.append((best, np.exp(-0.5 * (at - at.min()))))
    bounds = fisher_z_interval(min(max(given, -1.0), 1.0), condition)
    (low, low_rescaling), (high, high_rescaling) = ends
    return ThresholdRange(
        fpr, condition, len(unit), given, low, high, float(bounds.low), float(bounds.high),
        low_rescaling, high_rescaling,
    )  # fmt: skip


class _RankedPairs:
    """All pairs of unit rows, ranked by cosine under weights of the columns."""

    def __init__(self, unit: Floats, fpr: float) -> None:
        self._unit = unit
        self._pairs = np.triu_indices(len(unit), 1)
        n_pairs = len(self._pairs[0])
        fpr = validation.as_real("fpr", fpr, low=1 / n_pairs, high=1)
        # 1e-9 forgives the rounding of fpr times the pairs
        self._rank = n_pairs - int(fpr * n_pairs * (1 + 1e-9))

    def threshold(self, logs: Floats) -> float:
        """Return the cosine of that rank, by weights exp(logs)."""
        return float(np.partition(self._cosines(logs), self._rank)[self._rank])

    def derivatives(self, logs: Floats) -> Floats:
        """Mean derivatives of Fisher's z by logs, of the pairs near that rank."""
        cosines = self._cosines(logs)
        near = min(_NEAR, len(cosines))
        first = min(max(self._rank - near // 2, 0), len(cosines) - near)
        order = np.argpartition(cosines, (first, first + near - 1))[first : first + near]
        left, right = (side[order] for side in self._pairs)
        weights = np.exp(0.5 * logs)
        sensitivity = tv_index(self._unit[left] * weights, self._unit[right] * weights)
        return sensitivity.contributions.mean(axis=0)

    def _cosines(self, logs: Floats) -> Floats:
        rows = self._unit * np.exp(0.5 * logs)
        rows /= np.sqrt(np.einsum("ij,ij->i", rows, rows))[:, None]
        return (rows @ rows.T)[self._pairs]
