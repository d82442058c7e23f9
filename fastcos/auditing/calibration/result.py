"""The result of a calibration: thresholds with intervals, and the meaning of a score in words."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fastcos import validation
from fastcos.auditing.calibration import files
from fastcos.auditing.calibration.distribution import OBSERVED, RATES, PairDistribution
from fastcos.auditing.calibration.threshold_range import ThresholdRange
from fastcos.reports import Figure, Section, Table, as_table
from fastcos.similarity.cosine_bounds import fisher_z_interval
from fastcos.storage import PathLike
from fastcos.validation import Floats, Integers

# The pairs above a threshold are not independent of each other. They therefore contain only as much
# information as a smaller number of independent pairs. The ratio of these two numbers of pairs says
# how many pairs count as one independent pair. A note warns the user if this ratio exceeds
# _CLUSTERED. Even for independent normal rows, the estimated ratio is 2 on average, because the
# bootstrap counts the noise of each pair twice.
_CLUSTERED = 4.0
# The expected number of pairs above a threshold is the false-positive rate times the number of
# pairs. In a self-join, (a, b) and (b, a) count as one pair here. An interval for a rate is
# computed only if the expected number is at least _MIN_EXPECTED_PAIRS. We tested 99 % intervals in
# experiments with 12 to 100 normal rows. If the expected number was below _MIN_EXPECTED_PAIRS, the
# intervals rarely contained the true rate.
_MIN_EXPECTED_PAIRS = 2
# A note calls the tail model unreliable if its Kolmogorov-Smirnov distance exceeds _POOR_FIT. If
# the Kolmogorov-Smirnov distance is 0.1, the probabilities that the tail model returns are wrong by
# about 10 %.
_POOR_FIT = 0.1
# The interval of a false-positive rate depends on how many pairs count as one independent pair.
# This number is measured at a higher rate, which is _RATE_FACTOR times the rate of the interval. On
# a logarithmic scale, _RATE_FACTOR is half of the distance between two adjacent rates in RATES.
# Without this factor, the intervals would be too narrow, as `tests.robustness.calibrated_rates
# held_out` shows.
_RATE_FACTOR = 10**0.5


def as_number(value: float) -> str:
    """Format a count as a whole number, or with two significant digits if it is below 100."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"


@as_table
@dataclass(frozen=True)
class Calibration(PairDistribution):
    """The distribution of the scores of random pairs, with methods that interpret single scores.

    A false positive is a random pair that reaches a threshold. A few of the random pairs are
    related, so the false-positive rate among unrelated pairs is even lower than the stated rate.

    Attributes
    ----------
    measure : str
        Name of the measure that computed the scores.
    fpr : float
        The false-positive rate to which the verdict refers.
    low, width : float
        Bin b contains the scores from ``low + b * width`` up to the next edge; the last bin
        includes its upper edge. A rounding error may move a score into the neighbouring bin. The
        rounding error is about (d + 8) 2^-52 times the scale of the score.
    counts : ndarray (65536,), int64
        Number of pairs in each bin.
    n_queries, n_items : int
        Number of queries and number of items that were scored, without zero rows.
    self_join : bool
        Whether the queries are the items; in this case, no row is paired with itself.
    n_given : tuple of int
        Number of queries and of items in the input, before sampling.
    n_zero : int
        Number of zero rows in the sample. Zero rows have no direction and are in no pair.
    n_duplicates : int
        Number of items whose row equals the row of an earlier item.
    levels : ndarray (6,), float64
        The levels, which are thresholds for the rates 1e-1 to 1e-6.
    query_counts : ndarray (6, n_queries), int64
        For each threshold in ``levels`` and each query: how many scores of the query reach the
        threshold.
    independent : ndarray (6,), float64
        The pairs above a threshold are not independent, because several of them contain the same
        row. For each threshold in ``levels``, ``independent`` contains the effective number of
        independent pairs: this many independent pairs would be as informative as the pairs above
        the threshold.
    tail : Tail or None
        Model of the highest scores; None if these scores are too similar for a model.
    rescaling : ThresholdRange or None
        The range over which rescalings D move the threshold; None if ``condition`` was not passed
        to ``calibrate``.
    dataset : str
        SHA-256 of the shape, type and values of the input.
    model : str or None
        Name and version of the model that computed the rows.
    """

    n_given: tuple[int, int]
    n_zero: int
    n_duplicates: int
    levels: Floats
    query_counts: Integers
    independent: Floats
    rescaling: ThresholdRange | None
    dataset: str
    model: str | None = None

    @property
    def carried_fpr(self) -> float:
        """The smallest rate for which an interval can be computed.

        At the rate ``carried_fpr``, the expected number of pairs above the threshold is two.
        """
        return min(_MIN_EXPECTED_PAIRS * (1 + self.self_join) / self.n_pairs, 1.0)

    def rate_interval(
        self, fpr: float, *, confidence: float = 0.95, held_out: bool = False
    ) -> tuple[float, float]:
        """Return an interval for the true rate of false positives at ``threshold(fpr)``.

        The pairs above the threshold are not independent, because several of them contain the same
        row. The interval is therefore computed from the number of independent pairs
        (``independent_pairs``), which is treated as a Poisson count. The interval assumes that rows
        are drawn independently from one population. The interval takes hubs into account, but it is
        too narrow if the rows contain one tight cluster; in this case, ``notes`` contains a
        warning.

        Parameters
        ----------
        fpr : float
            The rate, from ``carried_fpr`` to 1. Below ``carried_fpr``, no interval can be computed,
            because fewer than two pairs are expected above the threshold.
        confidence : float
            Coverage of the interval, between 0 and 1.
        held_out : bool
            If ``held_out`` is true, return an interval for the false-positive rate in a new sample
            with the same number of rows. If ``held_out`` is false, return an interval for the
            false-positive rate in the population from which the rows were drawn.

        Returns
        -------
        low, high : float
            Ends of the interval.
        """
        from scipy.stats import gamma, nbinom

        fpr = validation.as_real("fpr", fpr, low=self.carried_fpr * (1 - 1e-9), high=1)
        confidence = validation.as_real("confidence", confidence, above=0, below=1)
        count = self.independent_pairs(fpr)
        # With Jeffreys' prior, the posterior distribution of a Poisson mean is a gamma
        # distribution, and the predictive distribution of a new count is negative binomial.
        distribution = nbinom(count + 0.5, 0.5) if held_out else gamma(count + 0.5)
        low, high = distribution.interval(confidence)
        return min(float(low) / count * fpr, 1.0), min(float(high) / count * fpr, 1.0)

    def threshold_interval(self, fpr: float, *, confidence: float = 0.95) -> tuple[float, float]:
        """Return an interval for the threshold of a false-positive rate.

        :meth:`rate_interval` returns two rates. The thresholds for these two rates are the ends of
        the interval (Woodruff 1952).
        """
        rates = self.rate_interval(fpr, confidence=confidence)
        low, high = (max(rate, self.smallest_fpr) for rate in rates)
        return self.threshold(high), self.threshold(low)

    def independent_pairs(self, fpr: float) -> float:
        """Return the effective number of independent pairs among the pairs above a threshold.

        This many independent pairs would be as informative as the pairs above the threshold. The
        result is n / r. Here, n is the number of pairs above the threshold for the rate ``fpr``,
        and r is the number of pairs that count as one independent pair. The number r is computed
        from the pairs above a lower threshold. The false-positive rate of this lower threshold is
        about three times as high as ``fpr``. If r were computed from the pairs above the threshold
        for ``fpr`` itself, r would be too small whenever the sample contains no hub.
        """
        pairs = fpr * self.n_pairs / (1 + self.self_join)
        levels = np.flatnonzero(self.independent > 0)[::-1]
        if not len(levels):
            return pairs
        rates = self.p_value(self.levels[levels])
        ratios = rates * self.n_pairs / (1 + self.self_join) / self.independent[levels]
        ratio = np.exp(np.interp(np.log(_RATE_FACTOR * fpr), np.log(rates), np.log(ratios)))
        return pairs / max(float(ratio), 1.0)

    def rate_range(self, score: float, condition: float) -> tuple[float, float]:
        """Return bounds on the false-positive rate of a threshold after a linear map of the rows.

        The threshold is ``score``. The bounds hold after every linear map of the rows whose
        condition number is at most ``condition``. The condition number of a linear map is its
        largest singular value divided by its smallest. Rescalings D are linear maps, so the bounds
        also hold for rescalings. A map changes Fisher's z of the cosine of a pair by at most
        ln(condition). Therefore, a map can move a cosine across the threshold only if Fisher's z of
        the cosine differs from Fisher's z of ``score`` by at most ln(condition).
        """
        score = validation.as_real("score", score, low=-1, high=1)
        low, high = self.p_value(fisher_z_interval(score, condition)[::-1])
        return float(low), float(high)

    def table(self) -> Table:
        """Return the table that ``repr`` shows: the thresholds, introduced by the verdict."""
        return self.thresholds().tables[0]._replace(lead=self.verdict)

    def is_reachable(self, fpr: float) -> bool:
        """Return whether any score reaches the threshold for a false-positive rate.

        Several pairs may tie for the largest score, for example because the rows contain many
        duplicates. If the share of these pairs exceeds the rate, the result is False.
        """
        is_last = self._is_bounded or self.tail is None
        return not is_last or bool(self.threshold(fpr) <= self.edges[-1])

    @property
    def verdict(self) -> str:
        """Sentences about the threshold for ``fpr``, and about its range under rescalings."""
        if self.rescaling is None or not self.is_reachable(self.fpr):
            return self._of_one_rate()
        return f"{self._of_one_rate()} {self.rescaling.verdict}"

    def _of_one_rate(self) -> str:
        """Return the sentence about the threshold for the rate ``fpr``."""
        if not self.is_reachable(self.fpr):
            top = float(self.p_value(self.edges[-1]))
            return (
                f"No threshold has a false-positive rate as low as {self.fpr:g}: the largest "
                f"{self.measure} is {self.edges[-1]:.3f}, and a share of {top:.2g} of all random "
                "pairs reaches it. The usual reason is that some items are duplicates."
            )
        interval = "extrapolated by a model of the tail, without a confidence interval"
        if self.fpr >= self.carried_fpr:
            low, high = self.threshold_interval(self.fpr, confidence=0.99)
            interval = f"99 % interval {low:.3f} to {high:.3f}"
        return (
            f"One random pair in {1 / self.fpr:,.0f} has a {self.measure} of "
            f"{self.threshold():.3f} or more ({interval})."
        )

    def reading(self, score: float, *, n_items: int | None = None) -> str:
        """Return the meaning of a score in words, for a search among n_items (default: all items).

        The text begins with "This model does not determine" if the score is above the threshold
        under some rescalings D, and below the threshold under other rescalings.
        """
        score = validation.as_real("score", score)
        n_items = validation.as_count("n_items", self.n_given[1] if n_items is None else n_items)
        p = float(self.p_value(score))
        by_chance = float(self.expected_false(score, n_items=n_items))
        text = (
            f"A random pair has a {self.measure} of {score:g} or more with probability {p:.2g}. "
            f"Among {n_items:,} items, a query therefore finds {as_number(by_chance)} items with a "
            f"{self.measure} of {score:g} or more by chance."
        )
        if self.rescaling is None:
            return text
        low, high = self.rate_range(score, self.rescaling.condition)
        text += (
            " If a linear map stretches directions by factors between 1 and "
            f"{self.rescaling.condition:g}, a random pair has a {self.measure} of {score:g} or "
            f"more with a probability between {low:.2g} and {high:.2g}."
        )
        if not self.rescaling.spans(score):
            return text
        return (
            f"This model does not determine whether a {self.measure} of {score:g} reaches the "
            f"threshold for a false-positive rate of {self.rescaling.fpr:g}. Some rescalings with "
            f"factors between 1 and {self.rescaling.condition:g} move this threshold below "
            f"{score:g}, and others move it above {score:g}. {text}"
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """Warnings about duplicates, small rates, a poor tail model, and rows with high scores."""
        notes = []
        pairs = self.query_counts.sum(axis=1) / (1 + self.self_join)
        pairs_per_independent = np.divide(
            pairs, self.independent, out=np.zeros(len(RATES)), where=self.independent > 0
        )
        level = int(pairs_per_independent.argmax())
        if pairs_per_independent[level] > _CLUSTERED:
            counts = self.query_counts[level]
            busiest = np.sort(counts)[::-1][: max(1, len(counts) // 100)].sum() / counts.sum()
            low, high = np.quantile(counts, (0.05, 0.95)) / (self.n_items - self.self_join)
            notes.append(
                "The false-positive rate differs between queries. If the threshold is chosen so "
                f"that the mean rate is {RATES[level]:g}, the rates of 90 % of the queries lie "
                f"between {low:.2g} and {high:.2g}. The queries with the highest rates (1 % of all "
                f"queries, but at least one query) account for {busiest:.0%} of the pairs that "
                "reach this threshold. In the confidence intervals, "
                f"{pairs_per_independent[level]:,.0f} pairs therefore count only as one "
                "independent pair. The intervals may still be too narrow if some rows form one "
                "tight cluster. The measure query_normalized corrects for differences between "
                "queries."
            )
        if self.fpr < self.carried_fpr:
            notes.append(
                "The lowest rate that can be measured with "
                f"{self.n_pairs // (1 + self.self_join):,} pairs is {self.carried_fpr:.1g}. "
                "Thresholds for lower rates are "
                "extrapolated by a model of the tail, and have no confidence interval."
            )
        if self.n_duplicates:
            notes.append(
                f"{self.n_duplicates:,} of {self.n_items:,} items are duplicates of other items. "
                "Pairs of duplicates have the largest score, but they are not false positives. "
                "Remove the duplicates first: items[near_duplicates(items, "
                "0.9999).representatives]."
            )
        top = self.counts[-1] / self.n_pairs
        if top > self.smallest_fpr and self.counts[-1] >= OBSERVED:
            notes.append(
                f"A share of {top:.2g} of all pairs lies in the highest bin of the histogram. "
                f"Therefore, no threshold has a false-positive rate below {top:.2g}."
            )
        if self.tail is not None and self.tail.distance > _POOR_FIT:
            notes.append(
                f"Do not use rates below {OBSERVED / self.n_pairs:.1g}. The thresholds for "
                "such rates come from the model of the tail, and this model does not fit the "
                "highest scores. The Kolmogorov-Smirnov distance between "
                f"the model and the scores is {self.tail.distance:.2f}."
            )
        return tuple(notes)

    def sections(self) -> tuple[Section, ...]:
        """Return the sections of the report: distribution, thresholds, rescalings, explanations."""
        shares = "; ".join(
            f"a share of {rate:g} reaches {self.threshold(rate):.3f}" for rate in self.rates
        )
        model = (
            "No model of the tail was fitted, because the highest scores are too similar to each "
            "other."
        )
        if (tail := self.tail) is not None:
            model = (
                "If at least 100 pairs reach a score, these pairs are counted to obtain their "
                "share of all pairs. If fewer pairs reach a score, a model of the tail estimates "
                "the share. "
                "The model is a generalised Pareto distribution that was fitted to the "
                f"{tail.n_pairs:,} highest scores. The distribution starts at {tail.start:.3f}, "
                f"with shape {tail.shape:.2f} and scale {tail.scale:.3g}. The Kolmogorov-Smirnov "
                f"distance between the model and the observed distribution is {tail.distance:.3f}; "
                "a distance of 0 would mean that the two are equal."
            )
        distribution = Section(
            "How scores of random pairs are distributed",
            (
                f"The dashed line marks the threshold {self.threshold():.3f} for a rate of "
                f"{self.fpr:g}.",
                model,
            ),
            figures=[
                Figure("scores", self, 260, f"Histogram of random pairs by score: {shares}"),
                Figure("tail", self, 300, f"Share of random pairs that reach each score: {shares}"),
            ],
        )
        method = Section(
            "How to read this",
            (
                "Each stated rate is a share of all random pairs, and a few random pairs are "
                "related. Among unrelated pairs, the share that reaches the threshold is therefore "
                "at most the stated rate. If related pairs are rare, this share is nearly as high "
                "as the stated rate. "
                "The rates hold only for rows that come from the same source as the rows of "
                "this calibration. Calibrate again for another model, language or collection.",
                f"The scores are sorted into bins of width {self.width:.2g}, and the pairs in "
                "each bin are counted. The counts are exact, except that a rounding error may "
                "move a score across the edge of a bin. Several pairs contain the same row, so "
                "the pairs are not independent. To compute the intervals, we therefore estimate "
                "how many independent pairs would be as informative as these pairs. The estimate "
                "comes from a bootstrap of the rows.",
                f"Data: SHA-256 {self.dataset}.",
            ),
        )
        rescaling = () if self.rescaling is None else self.rescaling.sections()
        return (distribution, self.thresholds(), *rescaling, method)

    def thresholds(self) -> Section:
        """Return the table of thresholds by false-positive rate."""
        condition = None if self.rescaling is None else self.rescaling.condition
        n_items, rows = self.n_given[1], []
        for rate in self.rates:
            threshold, chance = self.threshold(rate), as_number(rate * n_items)
            interval = "-"
            if rate >= self.carried_fpr:
                low, high = self.threshold_interval(rate, confidence=0.99)
                interval = f"{_digits(low)} .. {_digits(high)}"
            cells = [f"{rate:g}", _digits(threshold), interval, chance]
            if not self.is_reachable(rate):
                cells[1:] = "not reachable", "-", "-"
                cells += [] if condition is None else ["-"]
            elif condition is not None:
                low_rate, high_rate = self.rate_range(min(threshold, 1.0), condition)
                cells.append(f"{low_rate:.1g} .. {high_rate:.1g}")
            rows.append(cells)
        header = ["rate", "threshold", "99 % interval", f"found by chance in {n_items:,} items"]
        if condition is not None:
            header.append(f"rate after a linear map (condition at most {condition:g})")
        title = (
            f"Thresholds of the {self.measure} by false-positive rate, from {self.n_pairs:,} pairs"
        )
        return Section(
            "Which threshold has which error rate?",
            (
                "The rate is the share of random pairs that reach the threshold. Random pairs "
                "that reach the threshold count as false positives. The rows are only a sample, "
                "so the threshold is uncertain; the 99 % interval shows how uncertain it is. The "
                f'column "found by chance in {n_items:,} items" shows, for one query, how many '
                "random items are expected to reach the threshold.",
            ),
            [Table(title, header, rows)],
            verdict=self._of_one_rate(),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain Python values.

        The list ``counts`` begins with the bin ``first_bin``, because empty bins at both ends of
        the histogram are left out.

        The dict contains an explanation of its fields, so that its JSON can be used without
        fastcos.
        """
        return files.document(self, super().to_dict())

    def save(self, path: PathLike) -> None:
        """Write the calibration to a JSON file, atomically, with one field per line."""
        files.write(path, self.to_dict())

    @classmethod
    def load(cls, path: PathLike) -> "Calibration":
        """Read a file that :meth:`save` wrote, or raise FastcosFormatError if it is invalid."""
        return files.read(path, cls)


def _digits(score: float) -> str:
    """Format a score with three decimals, or with five if three decimals would round it to 1."""
    return f"{min(score, 0.99999):.5f}" if 0.9995 <= score < 1 else f"{score:.3f}"
