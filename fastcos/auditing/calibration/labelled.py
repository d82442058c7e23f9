"""Calibration by labelled pairs: both error rates, and the probability that a pair is relevant."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fastcos import validation
from fastcos.auditing.calibration.distribution import as_scores
from fastcos.reports import Estimate, Figure, Record, Section, Table, as_table
from fastcos.validation import Floats

METHODS = ("isotonic", "platt")
# prevalences of the table of probabilities, from one relevant pair in a thousand; its rows
_PREVALENCES = (0.5, 0.1, 0.01, 0.001)
_ROWS = 9


@as_table
@dataclass(frozen=True)
class LabelledCalibration(Record):
    """Error rates and probabilities from pairs that are known to be relevant or not.

    Attributes
    ----------
    method : {"isotonic", "platt"}
    n_relevant, n_other : int
        Labelled pairs of both kinds.
    auc : float
        Probability that a relevant pair has a higher score than another one.
    thresholds : ndarray (t,), float64
        Ascending scores of the operating curve; at each, pairs of at least this score are accepted.
    false_positive_rate, false_negative_rate : ndarray (t,), float64
        Share of the other pairs that are accepted, and of the relevant ones that are not.
    knots, probabilities : ndarray (c,), float64
        The calibrated probability at ascending scores: linear in between and constant beyond for
        isotonic regression. For Platt scaling slope and intercept of the log odds.

    """

    method: str
    n_relevant: int
    n_other: int
    auc: float
    thresholds: Floats
    false_positive_rate: Floats
    false_negative_rate: Floats
    knots: Floats
    probabilities: Floats

    @property
    def verdict(self) -> str:
        """How well the scores separate the two kinds."""
        return (
            f"{self.n_relevant:,} pairs are labelled relevant and {self.n_other:,} not; a relevant "
            f"one has the higher score with probability {self.auc:.3f}."
        )

    def sections(self) -> tuple[Section]:
        """Error rates and probabilities by threshold."""
        low, high = self.thresholds[0], self.thresholds[-1]
        thresholds = (low + np.arange(_ROWS) * (high - low) / (_ROWS - 1)).tolist()
        header = ("threshold", "false positive", "false negative")
        rows = [
            (threshold, *map(Estimate, self.error_rates(threshold)),
             *(float(self.probability(threshold, prevalence=share)) for share in _PREVALENCES))
            for threshold in thresholds
        ]  # fmt: skip
        title = "Error rates, and the probability of being relevant if this share of all pairs is"
        label = (
            "Share of the pairs that are not relevant and accepted, and of the relevant ones that "
            "are not accepted, by threshold"
        )
        return (
            Section(
                "Labelled pairs",
                (
                    f"The probability that a pair is relevant ({self.method}) depends on the share "
                    "of relevant pairs where it comes from, which is usually far lower than among "
                    "labelled ones.",
                ),
                [Table(title, (*header, *(f"if {share:g}" for share in _PREVALENCES)), rows)],
                figures=[Figure("operating_curve", self, 260, label)],
                verdict=self.verdict,
            ),
        )

    def error_rates(self, threshold: float) -> tuple[float, float]:
        """Shares of false positives and false negatives if scores from this threshold on count."""
        threshold = validation.as_real("threshold", threshold)
        at = int(np.searchsorted(self.thresholds, threshold))
        if at == len(self.thresholds):  # beyond every score
            return 0.0, 1.0
        return float(self.false_positive_rate[at]), float(self.false_negative_rate[at])

    def probability(self, scores: Any, *, prevalence: float | None = None) -> Floats:
        """The probability that pairs with these scores, of any shape, are relevant.

        0 for the padding -inf. prevalence: share of relevant pairs where the scores come from.
        Default: that of the labelled pairs, which is usually far higher than among all pairs.
        """
        values = as_scores(scores)
        if self.method == "isotonic":
            share = np.interp(values, self.knots, self.probabilities)
        else:
            from scipy.special import expit

            slope, intercept = self.probabilities
            share = expit(slope * values + intercept)
        if prevalence is not None:
            prevalence = validation.as_real("prevalence", prevalence, above=0, below=1)
            # Bayes' rule: the odds change by the ratio of the prior odds
            ratio = prevalence / (1 - prevalence) * self.n_other / self.n_relevant
            share = share * ratio / (share * ratio + (1 - share))
        return np.where(values == -np.inf, 0.0, share)


def calibrate_pairs(scores: Any, relevant: Any, *, method: str = "isotonic") -> LabelledCalibration:
    """Error rates by threshold, and probabilities, from labelled pairs.

    Parameters
    ----------
    scores : array_like (n,)
        Scores of pairs.
    relevant : array_like (n,), bool or 0 and 1
        Whether each pair is relevant; both kinds must occur.
    method : {"isotonic", "platt"}
        Isotonic regression, or a logistic curve for few pairs. Labelled pairs below about a
        thousand favour the curve (Niculescu-Mizil and Caruana 2005).

    Returns
    -------
    LabelledCalibration

    Notes
    -----
    By scikit-learn: ``roc_curve``, ``IsotonicRegression``, and logistic regression without a
    penalty on Platt's smoothed targets (Platt 1999).

    Examples
    --------
    >>> from fastcos.auditing import calibrate_pairs
    >>> labelled = calibrate_pairs([0.9, 0.8, 0.3, 0.7, 0.2, 0.1], [1, 1, 1, 0, 0, 0])
    >>> round(labelled.auc, 3), labelled.probability([0.15, 0.85]).tolist()
    (0.889, [0.0, 1.0])
    >>> false_positive, false_negative = labelled.error_rates(0.75)
    >>> round(false_positive, 3), round(false_negative, 3)
    (0.0, 0.333)
    """
    from sklearn.isotonic import IsotonicRegression
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score, roc_curve

    values = validation.as_vector("scores", scores)
    if len(values) < 2:
        raise ValueError(f"scores must be of at least 2 pairs, got {len(values)}")
    labels = validation.as_vector("relevant", relevant, len(values))
    method = validation.as_choice("method", method, METHODS)
    if not np.isin(labels, (0, 1)).all() or len(np.unique(labels)) < 2:
        raise ValueError("relevant must hold both 0 and 1 and nothing else, got other values")
    false_positive, true_positive, thresholds = roc_curve(labels, values, drop_intermediate=False)
    n_relevant = int(labels.sum())
    n_other = len(labels) - n_relevant
    if method == "isotonic":
        fitted = IsotonicRegression(out_of_bounds="clip").fit(values, labels)
        knots, probabilities = fitted.X_thresholds_, fitted.y_thresholds_
    else:
        # Platt's targets: as if one more pair of each kind had been seen, so that separable
        # labels have a finite curve. Each pair is both kinds, by weight
        positive = np.where(labels == 1, (n_relevant + 1) / (n_relevant + 2), 1 / (n_other + 2))
        regression = LogisticRegression(C=np.inf, max_iter=1000).fit(
            np.tile(values, 2)[:, None],
            np.repeat((1, 0), len(values)),
            sample_weight=np.concatenate([positive, 1 - positive]),
        )
        knots = np.array([values.min(), values.max()])
        probabilities = np.array([regression.coef_[0, 0], regression.intercept_[0]])
    # the curve's first threshold is above every score
    ascending = slice(None, 0, -1)
    return LabelledCalibration(
        method=method,
        n_relevant=n_relevant,
        n_other=n_other,
        auc=float(roc_auc_score(labels, values)),
        thresholds=np.asarray(thresholds[ascending], np.float64),
        false_positive_rate=np.asarray(false_positive[ascending], np.float64),
        false_negative_rate=1.0 - np.asarray(true_positive[ascending], np.float64),
        knots=np.asarray(knots, np.float64),
        probabilities=np.asarray(probabilities, np.float64),
    )
