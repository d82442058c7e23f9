"""Calibration by labelled pairs: error rates, and the probability that a pair is relevant."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fastcos import validation
from fastcos.auditing.calibration.distribution import as_scores
from fastcos.reports import Estimate, Figure, Record, Section, Table, as_table
from fastcos.validation import Floats

METHODS = ("isotonic", "platt")
# A prevalence is the share of relevant pairs among all pairs. The table of probabilities contains
# one column per prevalence in _PREVALENCES, and _ROWS rows.
_PREVALENCES = (0.5, 0.1, 0.01, 0.001)
_ROWS = 9


@as_table
@dataclass(frozen=True)
class LabelledCalibration(Record):
    """Error rates and probabilities, estimated from pairs that are labelled relevant or irrelevant.

    Attributes
    ----------
    method : {"isotonic", "platt"}
        The method that computed the probabilities.
    n_relevant, n_other : int
        Number of relevant pairs, and number of irrelevant pairs.
    auc : float
        Probability that a relevant pair has a higher score than an irrelevant pair.
    thresholds : ndarray (t,), float64
        Ascending thresholds, one for each point of the operating curve. A threshold accepts a pair
        if the score of the pair is not below the threshold.
    false_positive_rate, false_negative_rate : ndarray (t,), float64
        For each threshold, the share of the irrelevant pairs that the threshold accepts, and the
        share of the relevant pairs that the threshold rejects.
    knots, probabilities : ndarray (c,), float64
        For isotonic regression, ``knots`` contains ascending scores, and ``probabilities`` contains
        the probability of relevance at each of these scores. The probability is linear between two
        neighbouring knots, and constant below the first and above the last knot. For Platt scaling,
        ``probabilities`` contains the slope and the intercept of the log odds as a function of the
        score. For Platt scaling, ``knots`` contains the lowest and the highest score.
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
        """Two sentences that state the AUC of the scores and the number of labelled pairs."""
        return (
            "The probability that a relevant pair has a higher score than an irrelevant pair is "
            f"{self.auc:.3f}. This probability was estimated from {self.n_relevant:,} relevant and "
            f"{self.n_other:,} irrelevant pairs."
        )

    def sections(self) -> tuple[Section]:
        """Return the table of error rates and probabilities by threshold."""
        low, high = self.thresholds[0], self.thresholds[-1]
        thresholds = (low + np.arange(_ROWS) * (high - low) / (_ROWS - 1)).tolist()
        assumed = (f"if {share:g} relevant" for share in _PREVALENCES)
        header = ("threshold", "false positive", "false negative", *assumed)
        rows = [
            (threshold, *map(Estimate, self.error_rates(threshold)),
             *(float(self.probability(threshold, prevalence=share)) for share in _PREVALENCES))
            for threshold in thresholds
        ]  # fmt: skip
        title = (
            "Error rates of each threshold, and probability that a pair is relevant if its score "
            "equals the threshold"
        )
        label = (
            "Error rates by threshold. The false-positive rate is the share of irrelevant pairs "
            "that are accepted. The false-negative rate is the share of relevant pairs that are "
            "not accepted."
        )
        return (
            Section(
                "Labelled pairs",
                (
                    "The probability that a pair is relevant depends on the share of relevant "
                    "pairs among all pairs. Among the labelled pairs, this share is usually far "
                    f'higher. The column "if {_PREVALENCES[1]:g} relevant" shows the probability '
                    f"if the share of relevant pairs among all pairs is {_PREVALENCES[1]:g}. The "
                    f"method that estimated the probabilities is {self.method}.",
                ),
                [Table(title, header, rows)],
                figures=[Figure("operating_curve", self, 260, label)],
                verdict=self.verdict,
            ),
        )

    def error_rates(self, threshold: float) -> tuple[float, float]:
        """Return the false-positive and the false-negative rate of a threshold.

        A threshold accepts a pair if the score of the pair is not below the threshold.
        """
        threshold = validation.as_real("threshold", threshold)
        number = int(np.searchsorted(self.thresholds, threshold))
        if number == len(self.thresholds):  # No labelled pair reaches the threshold.
            return 0.0, 1.0
        return float(self.false_positive_rate[number]), float(self.false_negative_rate[number])

    def probability(self, scores: Any, *, prevalence: float | None = None) -> Floats:
        """Return, for each score, the probability that a pair with this score is relevant.

        For a score of -inf, which pads short lists, the returned probability is 0. ``prevalence``
        is the share of relevant pairs among the pairs whose scores you pass. The default prevalence
        is the share of relevant pairs among the labelled pairs, which is usually far higher than
        the share among all pairs.
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
            # By Bayes' rule, the odds that a pair is relevant are multiplied by (new prior odds) /
            # (prior odds among the labelled pairs).
            ratio = prevalence / (1 - prevalence) * self.n_other / self.n_relevant
            share = share * ratio / (share * ratio + (1 - share))
        return np.where(values == -np.inf, 0.0, share)


def calibrate_pairs(scores: Any, relevant: Any, *, method: str = "isotonic") -> LabelledCalibration:
    """Compute error rates by threshold, and probabilities of relevance, from labelled pairs.

    Parameters
    ----------
    scores : array_like (n,)
        Scores of the pairs.
    relevant : array_like (n,), bool or 0 and 1
        Whether each pair is relevant. At least one pair must be relevant and at least one
        irrelevant.
    method : {"isotonic", "platt"}
        The method for the probabilities: isotonic regression, or Platt's logistic curve. The
        logistic curve is more accurate for fewer than about a thousand labelled pairs
        (Niculescu-Mizil and Caruana 2005).

    Returns
    -------
    LabelledCalibration
        The error rates and the probabilities.

    Notes
    -----
    The function uses ``roc_curve`` of scikit-learn for the error rates. The probabilities come from
    ``IsotonicRegression``, or from ``LogisticRegression`` without a penalty. The logistic
    regression is fitted to Platt's smoothed targets (Platt 1999).

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
        raise ValueError(f"scores must have at least 2 entries, one per pair, got {len(values)}")
    labels = validation.as_vector("relevant", relevant, len(values))
    method = validation.as_choice("method", method, METHODS)
    if not np.isin(labels, (0, 1)).all() or len(np.unique(labels)) < 2:
        examples = ", ".join(f"{value:g}" for value in np.unique(labels)[:5])
        raise ValueError(f"relevant must hold both 0 and 1, and no other value, got {examples}")
    false_positive, true_positive, thresholds = roc_curve(labels, values, drop_intermediate=False)
    n_relevant = int(labels.sum())
    n_other = len(labels) - n_relevant
    if method == "isotonic":
        isotonic = IsotonicRegression(out_of_bounds="clip").fit(values, labels)
        knots, probabilities = isotonic.X_thresholds_, isotonic.y_thresholds_
    else:
        # Platt's targets have the same effect as two additional pairs: one relevant pair and one
        # irrelevant pair. The slope is therefore finite even if a threshold separates the relevant
        # from the irrelevant pairs. Each labelled pair is used twice: once as a relevant pair, and
        # once as an irrelevant pair. The weights of these two uses sum to 1.
        positive = np.where(labels == 1, (n_relevant + 1) / (n_relevant + 2), 1 / (n_other + 2))
        regression = LogisticRegression(C=np.inf, max_iter=1000).fit(
            np.tile(values, 2)[:, None],
            np.repeat((1, 0), len(values)),
            sample_weight=np.concatenate([positive, 1 - positive]),
        )
        knots = np.array([values.min(), values.max()])
        probabilities = np.array([regression.coef_[0, 0], regression.intercept_[0]])
    # The first threshold that roc_curve returns is above every score, so it is left out.
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
