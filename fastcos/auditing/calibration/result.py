"""The result of a calibration: intervals over rows, and what a score means in words."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fastcos import validation
from fastcos.auditing.calibration import files
from fastcos.auditing.calibration.distribution import OBSERVED, RATES, PairDistribution
from fastcos.auditing.calibration.rescaled import ThresholdRange
from fastcos.reports import Figure, Section, Table, as_table
from fastcos.similarity.cosine_bounds import fisher_z_interval
from fastcos.storage import PathLike
from fastcos.validation import Floats, Integers

# pairs that count as one independent pair from which the notes report it; of independent normal
# rows 2 do, because the bootstrap counts the noise of pairs twice
_CLUSTERED = 4.0
# pairs that must be expected above a threshold for an interval of its rate. Of 12 to 100 normal
# rows, intervals of 99 % hold from there on, and hold in 2 to 22 of 60 for lower rates
_CARRIED = 2
# Kolmogorov-Smirnov distance from which the notes call the tail model unreliable: its exponential
# part is then wrong by about this share
_POOR_FIT = 0.1
# at this multiple of a rate the ratio of pairs to independent ones is read: halfway to the next
# level. At 1, 94 of 100 intervals of 99 % held for words at 1e-4
# (tests.robustness.calibrated_rates held_out)
_BORROWED = 10**0.5


def as_number(value: float) -> str:
    """Format a count or an expected count: at least two digits, never 2e+03."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"


@as_table
@dataclass(frozen=True)
class Calibration(PairDistribution):
    """The distribution of the scores of random pairs, and what follows for one score.

    A false positive is a random pair that reaches a threshold. Random pairs hold a few related
    ones, so that the false-positive rate of unrelated pairs is lower still.

    Attributes
    ----------
    measure : str
    fpr : float
        The rate of the verdict.
    low, width : float
        Bin b holds scores from low + b width up to the next edge; the last one holds its upper
        edge too. A score is rounded by about (d + 8) 2^-52 of its scale: one that is this near to
        an edge may be in the next bin.
    counts : ndarray (65536,), int64
        Pairs in each bin.
    n_queries, n_items : int
        Rows that were scored, without zero rows.
    self_join : bool
        Whether the queries are the items; then no row is paired with itself.
    n_given : tuple of int
        Queries and items that were given; more than were scored where rows were sampled.
    n_zero : int
        Zero rows among those drawn; they have no direction and are in no pair.
    n_duplicates : int
        Items whose row is a duplicate of another.
    levels : ndarray (6,), float64
        Thresholds for 1e-1 to 1e-6, one power of ten each.
    query_counts : ndarray (6, n_queries), int64
        Scores of each query that reach each of the levels.
    independent : ndarray (6,), float64
        How many independent pairs would determine the rate as well as the pairs above each
        level, which share rows.
    tail : Tail or None
        None where the tail has no spread.
    rescaling : ThresholdRange or None
        How far rescalings move the threshold; None unless a condition was given.
    dataset : str
        SHA-256 of shape, type and values of the rows given.
    model : str or None
        Name and version of what made the rows, as given.
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
        """The smallest rate with an interval: two of these pairs are expected to reach it."""
        return min(_CARRIED * (1 + self.self_join) / self.n_pairs, 1.0)

    def rate_interval(
        self, fpr: float, *, confidence: float = 0.95, held_out: bool = False
    ) -> tuple[float, float]:
        """Interval of the true false-positive rate of ``threshold(fpr)``, over rows drawn again.

        Pairs share rows, so that they count as fewer independent ones: the interval is that of a
        Poisson count of that number. It assumes rows drawn independently from one population, and
        allows for hubs, not for one tight cluster: see ``notes``.

        Parameters
        ----------
        fpr : float
            From ``carried_fpr`` to 1: below it fewer than two pairs are expected.
        confidence : float
            Between 0 and 1.
        held_out : bool
            Interval of the rate observed on as many new rows, instead of the true rate.

        Returns
        -------
        low, high : float
        """
        from scipy.stats import gamma, nbinom

        fpr = validation.as_real("fpr", fpr, low=self.carried_fpr * (1 - 1e-9), high=1)
        confidence = validation.as_real("confidence", confidence, above=0, below=1)
        count = self.independent_pairs(fpr)
        # the posterior of a Poisson mean by Jeffreys' prior, and what it predicts
        law = nbinom(count + 0.5, 0.5) if held_out else gamma(count + 0.5)
        low, high = law.interval(confidence)
        return min(float(low) / count * fpr, 1.0), min(float(high) / count * fpr, 1.0)

    def threshold_interval(self, fpr: float, *, confidence: float = 0.95) -> tuple[float, float]:
        """Interval of the threshold for this rate, over rows drawn again.

        The thresholds of both ends of :meth:`rate_interval` (Woodruff 1952).
        """
        rates = self.rate_interval(fpr, confidence=confidence)
        low, high = (max(rate, self.smallest_fpr) for rate in rates)
        return self.threshold(high), self.threshold(low)

    def independent_pairs(self, fpr: float) -> float:
        """How many independent pairs would determine this rate as well.

        The pairs above the threshold, over how many of them count as one. That ratio is the one at
        about 3 times the rate: at the rate itself it is too small in just those samples that
        lack a hub by chance.
        """
        pairs = fpr * self.n_pairs / (1 + self.self_join)
        known = np.flatnonzero(self.independent > 0)[::-1]
        if not len(known):
            return pairs
        rates = self.p_value(self.levels[known])
        ratios = rates * self.n_pairs / (1 + self.self_join) / self.independent[known]
        ratio = np.exp(np.interp(np.log(_BORROWED * fpr), np.log(rates), np.log(ratios)))
        return pairs / max(float(ratio), 1.0)

    def rate_range(self, score: float, condition: float) -> tuple[float, float]:
        """Bounds on the false-positive rate of a cosine over all linear maps of a condition.

        Rescalings D are among these maps. A map moves Fisher's z of each pair by at most
        ln condition, the ratio of its extreme singular values. Hence pairs that it moves above the
        score had a z of at most that much less.
        """
        score = validation.as_real("score", score, low=-1, high=1)
        low, high = self.p_value(fisher_z_interval(score, condition)[::-1])
        return float(low), float(high)

    def table(self) -> Table:
        """Thresholds by rate, for ``repr``, below the verdict."""
        return self.thresholds().tables[0]._replace(lead=self.verdict)

    def is_reachable(self, fpr: float) -> bool:
        """Whether a score exists that random pairs reach with at most this probability.

        Not where more pairs than that have the largest score, as duplicates do.
        """
        is_last = self._is_bounded or self.tail is None
        return not is_last or bool(self.threshold(fpr) <= self.edges[-1])

    @property
    def verdict(self) -> str:
        """The threshold for the rate fpr, and how far rescalings move it."""
        if self.rescaling is None or not self.is_reachable(self.fpr):
            return self._of_one_rate()
        return f"{self._of_one_rate()} {self.rescaling.verdict}"

    def _of_one_rate(self) -> str:
        """The threshold for the rate fpr in a sentence."""
        if not self.is_reachable(self.fpr):
            top = float(self.p_value(self.edges[-1]))
            return (
                f"No threshold has a rate of {self.fpr:g}: {top:.2g} of all random pairs have the "
                f"largest {self.measure}, {self.edges[-1]:.3f}, as duplicates do."
            )
        interval = "beyond the pairs: by a model of the tail, without an interval"
        if self.fpr >= self.carried_fpr:
            low, high = self.threshold_interval(self.fpr, confidence=0.99)
            interval = f"99 % interval {low:.3f} to {high:.3f}"
        return (
            f"One random pair in {1 / self.fpr:,.0f} has a {self.measure} of "
            f"{self.threshold():.3f} or more ({interval})."
        )

    def reading(self, score: float, *, n_items: int | None = None) -> str:
        """Return in words what one score means, for a search of n_items (default: all given).

        The first words say if rescalings D put the score on either side of the threshold.
        """
        score = validation.as_real("score", score)
        n_items = validation.as_count("n_items", self.n_given[1] if n_items is None else n_items)
        p = float(self.p_value(score))
        by_chance = float(self.expected_false(score, n_items=n_items))
        text = (
            f"A {self.measure} of {score:g} or more has probability {p:.2g} for a random pair; "
            f"in {n_items:,} items a query finds {as_number(by_chance)} such by chance."
        )
        if self.rescaling is None:
            return text
        low, high = self.rate_range(score, self.rescaling.condition)
        text += (
            f" A linear map that stretches directions by factors between 1 and "
            f"{self.rescaling.condition:g} moves this probability to between {low:.2g} and "
            f"{high:.2g}."
        )
        if not self.rescaling.spans(score):
            return text
        return (
            f"Undecided: rescaling the dimensions by factors between 1 and "
            f"{self.rescaling.condition:g} puts {score:g} on either side of the threshold for a "
            f"rate of {self.rescaling.fpr:g}. {text}"
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """Caveats: duplicates, rows that share the high scores, the fit of the tail."""
        notes = []
        pairs = self.query_counts.sum(axis=1) / (1 + self.self_join)
        shared = np.divide(
            pairs, self.independent, out=np.zeros(len(RATES)), where=self.independent > 0
        )
        level = int(shared.argmax())
        if shared[level] > _CLUSTERED:
            counts = self.query_counts[level]
            busiest = np.sort(counts)[::-1][: max(1, len(counts) // 100)].sum() / counts.sum()
            low, high = np.quantile(counts, (0.05, 0.95)) / (self.n_items - self.self_join)
            notes.append(
                f"Queries differ at a rate of {RATES[level]:g}: the busiest 1 % have {busiest:.0%} "
                f"of the pairs, and the rate of a single query is from {low:.2g} to {high:.2g} "
                f"(5 % to 95 % of the queries). {shared[level]:,.0f} pairs count as one "
                "independent pair. The intervals allow for hubs, not for one tight cluster; the "
                "measure query_normalized corrects for each query."
            )
        if self.fpr < self.carried_fpr:
            notes.append(
                f"{self.n_pairs // (1 + self.self_join):,} pairs carry rates from "
                f"{self.carried_fpr:.1g} on. Thresholds of lower rates come from a model of the "
                "tail and have no interval."
            )
        if self.n_duplicates:
            notes.append(
                f"{self.n_duplicates:,} of {self.n_items:,} items are duplicates of others. Their "
                "pairs have the largest score and are no false positives. Remove duplicates first: "
                "items[near_duplicates(items, 0.9999).representatives]."
            )
        top = self.counts[-1] / self.n_pairs
        if top > self.smallest_fpr and self.counts[-1] >= OBSERVED:
            notes.append(
                f"A share of {top:.2g} of all pairs is in the last bin: no threshold within the "
                "range has a lower rate."
            )
        if self.tail is not None and self.tail.distance > _POOR_FIT:
            notes.append(
                f"The tail model does not fit (distance {self.tail.distance:.2f}): do not use "
                f"rates below {OBSERVED / self.n_pairs:.1g}."
            )
        return tuple(notes)

    def sections(self) -> tuple[Section, ...]:
        """The distribution, thresholds by rate, the range over rescalings, method."""
        shares = "; ".join(f"{self.threshold(rate):.3f} or more: {rate:g}" for rate in self.rates)
        model = "The tail has no spread: there is no model of it."
        if (tail := self.tail) is not None:
            model = (
                "Where fewer than 100 pairs are left, a generalised Pareto distribution continues "
                f"the {tail.n_pairs:,} highest scores: shape {tail.shape:.2f}, scale "
                f"{tail.scale:.3g}, from {tail.start:.3f} on. Its largest distance to them "
                f"(Kolmogorov-Smirnov) is {tail.distance:.3f}."
            )
        distribution = Section(
            "How scores of random pairs are distributed",
            (
                f"Scores of random pairs. The dashed line is the threshold {self.threshold():.3f} "
                f"for a rate of {self.fpr:g}.",
                model,
            ),
            figures=[
                Figure("scores", self, 260, f"Histogram of the scores of random pairs; {shares}"),
                Figure("tail", self, 300, f"Probability of a score or more: {shares}"),
            ],
        )
        method = Section(
            "How to read this",
            (
                "Random pairs hold a few related ones. The rate among unrelated pairs is therefore "
                "at most the one given, and nearly it where related pairs are rare. The rates hold "
                "for rows from the same source as these: calibrate again for another model, "
                "language or collection.",
                f"Scores are counted exactly in bins of width {self.width:.2g}; a score within "
                "rounding of an edge may be in the next bin. Pairs share rows, so that the "
                "intervals count them as fewer independent ones, as a bootstrap of the rows does.",
                f"Data: SHA-256 {self.dataset}.",
            ),
        )
        moved = () if self.rescaling is None else self.rescaling.sections()
        return (distribution, self.thresholds(), *moved, method)

    def thresholds(self) -> Section:
        """Thresholds by false-positive rate."""
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
                least, most = self.rate_range(min(threshold, 1.0), condition)
                cells.append(f"{least:.1g} .. {most:.1g}")
            rows.append(cells)
        header = ["rate", "threshold", "99 % interval", f"by chance in {n_items:,} items"]
        if condition is not None:
            header.append(f"rate, linear maps up to {condition:g}")
        title = f"Thresholds of the {self.measure} by false-positive rate, {self.n_pairs:,} pairs"
        return Section(
            "What threshold for what error?",
            (
                "A false positive is a random pair that reaches the threshold. The interval is "
                "over rows drawn again. By chance: how many items a query finds so.",
            ),
            [Table(title, header, rows)],
            verdict=self._of_one_rate(),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain values; of the counts, those from first_bin to the last one.

        The dict says how to read it, so that JSON of it can be used without fastcos.
        """
        return files.document(self, super().to_dict())

    def save(self, path: PathLike) -> None:
        """Write the result to this path as a JSON file, atomically; one line a field."""
        files.write(path, self.to_dict())

    @classmethod
    def load(cls, path: PathLike) -> "Calibration":
        """Read a file of :meth:`save`; FastcosFormatError for another file, or a damaged one."""
        return files.read(path, cls)


def _digits(score: float) -> str:
    """Format a score: three decimals, or five just below 1, so that it does not look like 1."""
    return f"{min(score, 0.99999):.5f}" if 0.9995 <= score < 1 else f"{score:.3f}"
