"""The function ``threshold_range``, which finds how far rescalings can move a threshold."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fastcos import validation
from fastcos.reports import Record, Section, as_table
from fastcos.similarity.cosine_bounds import CONDITION, as_condition, fisher_z_interval, tv_index
from fastcos.similarity.row_transforms import unit_rows
from fastcos.validation import Floats

# Default number of sampled rows, which form about 500,000 pairs.
SAMPLE = 1000
# To choose the direction of a step towards a vertex, the search uses only some of the pairs: the
# _NEAR pairs whose cosines are nearest to the threshold.
_NEAR = 200
# Largest number of steps towards a vertex of the box that contains all allowed rescalings D. Steps
# after the third rarely move the threshold further, according to `tests.robustness.calibrated_rates
# rescaling`.
_VERTEX_STEPS = 8
# After the steps towards a vertex, Powell's method searches for the lowest and for the highest
# threshold. Each of these two searches evaluates at most this many rescalings D.
_TRIALS = 400
# If there are at most _FEW_COLUMNS columns, the algorithm DIRECT searches the whole box of allowed
# rescalings before Powell's method starts. DIRECT makes _GLOBAL_TRIALS evaluations per column.
# `tests.robustness.calibrated_rates rescaling` compares other values of _GLOBAL_TRIALS.
_FEW_COLUMNS = 3
_GLOBAL_TRIALS = 1000


@as_table
@dataclass(frozen=True)
class ThresholdRange(Record):
    """How far rescalings D move the threshold for one false-positive rate.

    Attributes
    ----------
    fpr, condition : float
        The false-positive rate, and the largest condition number of D.
    n_rows : int
        Number of rows that the search used. The thresholds refer to all pairs of these rows.
    given : float
        The threshold before any rescaling, computed from the pairs of the ``n_rows`` rows.
    low, high : float
        The lowest and the highest threshold that the search over D found.
    bound_low, bound_high : float
        Bounds on the threshold. The bounds hold after every linear map whose condition number is at
        most ``condition``. A rescaling D is a linear map, so the bounds also hold after every
        rescaling D within this limit.
    low_rescaling, high_rescaling : ndarray (d,), float64
        Diagonals of two rescalings D. The threshold of the rows ``rows / low_rescaling`` is
        ``low``, and the threshold of the rows ``rows / high_rescaling`` is ``high``. The entries of
        the diagonals lie between 1 / condition and 1.
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
        """The threshold and its range, in three sentences."""
        return (
            f"The threshold for a rate of {self.fpr:g} is {self.given:.3f}. Rescalings D of "
            f"condition {self.condition:g} move the threshold to values between {self.low:.3f} and "
            f"{self.high:.3f}. The threshold and its range were computed from the scores of all "
            f"pairs of {self.n_rows:,} items, without a model of the tail."
        )

    def sections(self) -> tuple[Section]:
        """Return the section that shows the range of the threshold."""
        return (
            Section(
                "How far a rescaling moves the threshold",
                (
                    "A rescaling D multiplies each latent dimension of the users by a number, and "
                    "divides the same dimension of the items by this number. Dot products of "
                    "users and items stay the same, but cosines change. Training has chosen D if "
                    "the model was trained on cosines, or if it was trained until convergence "
                    "with weight decay on users and items. If training has chosen D, the "
                    "threshold is not arbitrary, and the range shows only how sensitive the "
                    "threshold is to D.",
                    f"On the pairs of {self.n_rows:,} items, we searched for the rescalings that "
                    "move the threshold furthest down and furthest up. The search may have missed "
                    "a rescaling, so the true range is at least as wide as the range that the "
                    'search found. The entry "bounds on the threshold" shows two numbers. No '
                    f"linear map of condition {self.condition:g} or less moves the threshold "
                    "beyond these two numbers.",
                ),
                facts={
                    f"threshold for a rate of {self.fpr:.2g}, without a rescaling": self.given,
                    "lowest threshold found": self.low,
                    "highest threshold found": self.high,
                    "bounds on the threshold": f"{self.bound_low:.3f} .. {self.bound_high:.3f}",
                },
                verdict=self.verdict,
            ),
        )

    def spans(self, score: float) -> bool:
        """Return whether a score lies between the lowest and the highest threshold found."""
        return self.low <= validation.as_real("score", score) < self.high

    @classmethod
    def of(cls, values: dict[str, Any]) -> "ThresholdRange":
        """Return the ThresholdRange whose ``to_dict`` returned the dict ``values``."""
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
    """Search for the rescalings D with the lowest and the highest threshold for a given rate.

    The threshold for the rate ``fpr`` is a cosine; a share ``fpr`` of all pairs has this cosine or
    a higher one. Among all rescalings D with a condition number of at most ``condition``, the
    function searches for the one with the lowest threshold and for the one with the highest
    threshold. The search may miss the true extremes, so the true range of the threshold may be
    wider than the range that the search finds. The function also returns bounds on the threshold.
    These bounds hold for every linear map with a condition number of at most ``condition``.

    The search space is a box, which contains the logarithms of the diagonal entries of all allowed
    D. The search first makes steps towards vertices of the box, and then uses Powell's method. To
    choose the vertex for a step, the search computes derivatives of cosines. It computes these
    derivatives only for pairs whose cosine is near the threshold. If the items have at most 3
    columns, the algorithm DIRECT searches the whole box before these steps.

    Parameters
    ----------
    items : array_like (p, d), float32 or float64
        Item embeddings, of which at least two rows are not zero.
    fpr : float
        False-positive rate, from 1 / (number of pairs) to 1.
    condition : float
        Upper limit on the condition number of D, which is its largest entry divided by its
        smallest. The limit must be from 1 to 1e15.
    sample : int, optional
        Number of rows that are drawn without replacement; None for all rows. The time and the
        memory of the search grow with the square of the number of sampled rows.
    random_state : int or Generator
        Seed of the sample.

    Returns
    -------
    ThresholdRange
        The lowest and the highest threshold that the search found, and bounds on the threshold.

    Examples
    --------
    >>> import numpy as np
    >>> from fastcos.auditing import threshold_range
    >>> limits = threshold_range(np.random.default_rng(0).standard_normal((80, 4)), 0.01)
    >>> limits.bound_low <= limits.low < limits.given < limits.high <= limits.bound_high
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
    max_log_weight = 2 * np.log(condition)
    unscaled_threshold = pairs.threshold(np.zeros(unit.shape[1]))
    ends = []
    for sign in (-1.0, 1.0):
        # ``point`` contains the logarithms of the weights w = D^-2 of the columns. Each logarithm
        # lies between 0 and 2 ln(condition).
        best_threshold, point = unscaled_threshold, np.zeros(unit.shape[1])
        for _ in range(_VERTEX_STEPS):
            vertex = np.where(sign * pairs.derivatives(point) > 0, max_log_weight, 0.0)
            trials = [point + share * (vertex - point) for share in (1.0, 0.5, 0.25)]
            values = [pairs.threshold(trial) for trial in trials]
            number = int(np.argmax(sign * np.array(values)))
            if not sign * values[number] > sign * best_threshold:
                break
            best_threshold, point = values[number], trials[number]
        if condition > 1 and len(point) > 1:
            box = [(0.0, max_log_weight)] * len(point)

            def loss(logs: Floats, sign: float = sign) -> float:
                # Clip the cosine, so that Fisher's z is finite.
                cosine = np.clip(pairs.threshold(logs), -1 + 2.0**-52, 1 - 2.0**-52)
                return -sign * float(np.arctanh(cosine))

            if len(point) <= _FEW_COLUMNS:
                # Multiplying all entries of D by one number changes no cosine, so the smallest
                # weight can be fixed at 1. The column with the smallest weight is not known. The
                # code therefore tries every column in turn: it fixes the weight of this column at 1
                # and searches over the weights of the other columns.
                for column in range(len(point)):

                    def on_face(logs: Floats, column: int = column) -> float:
                        return loss(np.insert(logs, column, 0.0))

                    face = direct(on_face, box[1:], maxfun=_GLOBAL_TRIALS, locally_biased=False)
                    point = min(point, np.insert(face.x, column, 0.0), key=loss)
            limits = {"maxfev": _TRIALS, "xtol": 1e-4, "ftol": 1e-9}
            minimum = minimize(loss, point, method="Powell", bounds=box, options=limits)
            point = min(point, np.clip(minimum.x, 0.0, max_log_weight), key=loss)
            best_threshold = pairs.threshold(point)
        # D is scaled so that its largest entry is 1.
        ends.append((best_threshold, np.exp(-0.5 * (point - point.min()))))
    bounds = fisher_z_interval(min(max(unscaled_threshold, -1.0), 1.0), condition)
    (low, low_rescaling), (high, high_rescaling) = ends
    return ThresholdRange(
        fpr, condition, len(unit), unscaled_threshold, low, high, float(bounds.low),
        float(bounds.high), low_rescaling, high_rescaling,
    )  # fmt: skip


class _RankedPairs:
    """All pairs of unit rows, ranked by cosines that depend on the weights of the columns."""

    def __init__(self, unit: Floats, fpr: float) -> None:
        self._unit = unit
        self._pairs = np.triu_indices(len(unit), 1)
        n_pairs = len(self._pairs[0])
        fpr = validation.as_real("fpr", fpr, low=1 / n_pairs, high=1)
        # The factor 1 + 1e-9 compensates for the rounding error of the product fpr * n_pairs.
        self._rank = n_pairs - int(fpr * n_pairs * (1 + 1e-9))

    def threshold(self, logs: Floats) -> float:
        """Return the threshold of the cosines if the weights of the columns are exp(logs)."""
        return float(np.partition(self._cosines(logs), self._rank)[self._rank])

    def derivatives(self, logs: Floats) -> Floats:
        """Return the mean derivatives (d,) of Fisher's z with respect to ``logs``.

        The means are taken over the pairs whose cosines are near the threshold.
        """
        cosines = self._cosines(logs)
        n_near = min(_NEAR, len(cosines))
        first = min(max(self._rank - n_near // 2, 0), len(cosines) - n_near)
        order = np.argpartition(cosines, (first, first + n_near - 1))[first : first + n_near]
        first_rows, second_rows = (numbers[order] for numbers in self._pairs)
        weights = np.exp(0.5 * logs)
        sensitivity = tv_index(self._unit[first_rows] * weights, self._unit[second_rows] * weights)
        return sensitivity.contributions.mean(axis=0)

    def _cosines(self, logs: Floats) -> Floats:
        rows = self._unit * np.exp(0.5 * logs)
        rows /= np.sqrt(np.einsum("ij,ij->i", rows, rows))[:, None]
        return (rows @ rows.T)[self._pairs]
