"""The result of a calibration: what a score means, as probabilities, thresholds and intervals."""

import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from fastcos import io, validation
from fastcos.calibration.histogram import COSINE_BINS, N_BINS, Bins
from fastcos.calibration.rescaled import ThresholdRange
from fastcos.calibration.tail import Tail
from fastcos.reports.record import Record
from fastcos.rescaling.cosine_bounds import fisher_z_interval
from fastcos.storage import FastcosFormatError, PathLike
from fastcos.validation import Floats, Integers

# rates at which the counts of each row are kept
RATES = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
# pairs above a score from which their share is used as it is; with fewer, the tail model: a share
# of 100 independent pairs has a standard error of 10 %
_OBSERVED = 100
# how far below one pair the tail model is used: two powers of ten
EXTRAPOLATED = 0.01
# the rate of the notes on rows
_NOTED_RATE = 1e-4
# pairs that count as one independent pair from which the notes report it; of independent normal
# rows 2 do, because the bootstrap counts the noise of pairs twice
_CLUSTERED = 5.0
# Kolmogorov-Smirnov distance from which the notes call the tail model unreliable: its exponential
# part is then wrong by about this share
_POOR_FIT = 0.1
# at this multiple of a rate the ratio of pairs to independent ones is read: halfway to the next
# level. At 1, 94 of 100 intervals of 99 % held for words at 1e-4
# (tests.robustness.calibrated_rates held_out)
_BORROWED = 10**0.5
_FORMAT = "fastcos calibration, version 1"
_READING = (
    "counts[i] pairs have a score from low + (first_bin + i) * width up to the next edge; the "
    "share of random pairs at or above an edge is the sum of the counts from there on, over "
    "n_pairs. Above tail.start, where fewer than 100 pairs are left: tail.share * (1 + tail.shape "
    "* (score - tail.start) / tail.scale) ** (-1 / tail.shape)."
)


@dataclass(frozen=True)
class Calibration(Record):
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
    model, model_version : str or None
        As given.

    Examples
    --------
    >>> import numpy as np
    >>> from fastcos import calibrate
    >>> found = calibrate(np.random.default_rng(0).standard_normal((500, 16)))
    >>> round(found.threshold(0.01), 2)
    0.56
    >>> float(found.p_value(found.threshold(0.01)).round(4))
    0.01
    """

    measure: str
    fpr: float
    low: float
    width: float
    counts: Integers
    n_queries: int
    n_items: int
    self_join: bool
    n_given: tuple[int, int]
    n_zero: int
    n_duplicates: int
    levels: Floats
    query_counts: Integers
    independent: Floats
    tail: Tail | None
    rescaling: ThresholdRange | None
    dataset: str
    model: str | None = None
    model_version: str | None = None

    @property
    def n_pairs(self) -> int:
        """Number of pairs in the distribution."""
        return self.n_queries * (self.n_items - self.self_join)

    @property
    def edges(self) -> Floats:
        """Edges of the bins, (65537,) float64."""
        return Bins(self.low, self.width).edges

    @property
    def pairs_above(self) -> Integers:
        """Number of pairs at or above each edge, (65537,) int64."""
        return np.append(np.cumsum(self.counts[::-1])[::-1], 0)

    @property
    def smallest_fpr(self) -> float:
        """The smallest false-positive rate for which a threshold is given: 0.01 over the pairs."""
        return EXTRAPOLATED / self.n_pairs

    @property
    def rates(self) -> tuple[float, ...]:
        """The rates of ``RATES`` for which a threshold is given."""
        return tuple(rate for rate in RATES if rate >= self.smallest_fpr)

    def threshold(self, fpr: float | None = None) -> float:
        """The least score that a random pair reaches with at most this probability.

        Parameters
        ----------
        fpr : float, optional
            False-positive rate, from ``smallest_fpr`` to 1. Default: the attribute fpr.

        Returns
        -------
        float
            An edge of a bin where at least 100 pairs are above it, else a score of the tail model.
            If more pairs than that have the largest score: the next larger float.

        Raises
        ------
        ValueError
            fpr out of range.
        """
        fpr = self.fpr if fpr is None else fpr
        fpr = validation.as_real("fpr", fpr, low=self.smallest_fpr, high=1)
        allowed, above = fpr * self.n_pairs, self.pairs_above
        # 1e-9 forgives the rounding of fpr times the pairs
        edges = self.edges
        edges[-1] = np.nextafter(edges[-1], np.inf)  # the last bin holds its upper edge
        allowed *= 1 + 1e-9
        if self.tail is None:
            return float(edges[np.argmax(above <= allowed)])
        first = int(np.argmax(above <= max(allowed, _OBSERVED)))
        if allowed >= _OBSERVED <= above[first]:
            return float(edges[first])
        found = max(self.tail.threshold(fpr), float(edges[first]))
        return min(found, float(edges[-1])) if self._is_bounded else found

    @property
    def _is_bounded(self) -> bool:
        """Whether no score can be beyond the last edge."""
        return Bins(self.low, self.width) == COSINE_BINS

    def p_value(self, scores: Any) -> Floats:
        """The probability that a random pair has a score at least as high.

        Parameters
        ----------
        scores : float or array_like, any shape
            Such as ``top_k(...).scores``. -inf, the padding of a search, has probability 1.

        Returns
        -------
        ndarray, float64
            Of the shape of scores, at least ``smallest_fpr``. Of the lower edge of the score's
            bin while at least 100 pairs are above it, then of the tail model.

        Raises
        ------
        ValueError
            NaN.
        """
        values = np.asarray(scores, np.float64)
        if np.isnan(values).any():
            raise ValueError("scores must not be NaN, got one")
        above = self.pairs_above
        counts = above[Bins(self.low, self.width).of(values)]
        counts = np.where(values > self.edges[-1], 0, counts)
        p = counts / self.n_pairs
        rare = counts < _OBSERVED
        if self.tail is None:
            p = (counts + 1) / (self.n_pairs + 1)
        elif rare.any():
            least = above[above >= _OBSERVED].min(initial=self.n_pairs) / self.n_pairs
            start = np.maximum(values, self.tail.start)
            # beyond the highest of N scores a further one is with probability 1 / (N + 1)
            least = np.where(counts == 0, min(least, 1 / (self.n_pairs + 1)), least)
            p = np.where(rare, np.minimum(self.tail.p_value(start), least), p)
        if self._is_bounded:
            p = np.where(values > self.edges[-1], 0.0, p)
        return np.maximum(p, self.smallest_fpr)

    def expected_false(self, scores: Any, *, n_items: int, n_queries: int = 1) -> Floats:
        """The number of random pairs expected at or above a score: the E-value of a search.

        Parameters
        ----------
        scores : float or array_like
        n_items, n_queries : int
            Items searched, and queries that search them.

        Returns
        -------
        ndarray, float64
            n_queries n_items p_value(scores), of the shape of scores.

        Notes
        -----
        Source: the E-value of sequence search, Karlin and Altschul 1990.
        """
        n_items = validation.as_count("n_items", n_items)
        n_queries = validation.as_count("n_queries", n_queries)
        return n_queries * n_items * self.p_value(scores)

    def false_discovery_rate(self, scores: Any, *, n_items: int) -> Floats:
        """Benjamini-Hochberg adjusted p-values of the neighbours of a set of queries.

        Accept neighbours of at most q: then the share of random pairs among those accepted is at
        most q on average. The tests are all pairs of a query and an item, also those that the
        lists leave out, which are the lower scores. The calibration must be of pairs that are not
        related, such as other queries of which nothing is relevant: a pair that is part of the
        calibration adds itself to the expected number.

        Parameters
        ----------
        scores : array_like (n, k)
            Scores of n queries' neighbours, such as ``top_k(...).scores``.
        n_items : int
            Items that each query could find.

        Returns
        -------
        ndarray (n, k), float64
            From 0 to 1; 1 for padding.

        Raises
        ------
        ValueError
            scores that are not two-dimensional, NaN.

        Notes
        -----
        Source: Benjamini and Hochberg 1995, by ``scipy.stats.false_discovery_control``.
        """
        from scipy.stats import false_discovery_control

        values = np.asarray(scores, np.float64)
        if values.ndim != 2 or not values.size:
            raise ValueError(f"scores must be of shape (n, k), got {values.shape}")
        n_items = validation.as_count("n_items", n_items, low=values.shape[1])
        # p times the tests over the listed: what SciPy then multiplies by listed over rank. 1 for
        # more, which any rank leaves at 1
        p = np.minimum(self.p_value(values) * (n_items / values.shape[1]), 1.0)
        adjusted: Floats = false_discovery_control(p.ravel()).reshape(values.shape)
        return adjusted

    def rate_interval(
        self, fpr: float, *, confidence: float = 0.95, held_out: bool = False
    ) -> tuple[float, float]:
        """Interval of the true false-positive rate of ``threshold(fpr)``, over rows drawn again.

        Pairs share rows, so that they count as fewer independent ones: the interval is that of a
        Poisson count of so many. It assumes rows drawn independently from one population.

        Parameters
        ----------
        fpr : float
            As in :meth:`threshold`.
        confidence : float
            Between 0 and 1.
        held_out : bool
            Interval of the rate observed on as many new rows, instead of the true rate.

        Returns
        -------
        low, high : float
        """
        from scipy.stats import gamma, nbinom

        fpr = validation.as_real("fpr", fpr, low=self.smallest_fpr, high=1)
        confidence = validation.as_real("confidence", confidence, above=0)
        if confidence >= 1:
            raise ValueError(f"confidence must be below 1, got {confidence!r}")
        count = self.independent_pairs(fpr)
        # the posterior of a Poisson mean by Jeffreys' prior, and what it predicts
        law = nbinom(count + 0.5, 0.5) if held_out else gamma(count + 0.5)
        low, high = law.interval(confidence)
        return min(float(low) / count * fpr, 1.0), min(float(high) / count * fpr, 1.0)

    def threshold_interval(self, fpr: float, *, confidence: float = 0.95) -> tuple[float, float]:
        """Interval of the threshold for this rate, over rows drawn again.

        The thresholds of both ends of :meth:`rate_interval` (Woodruff 1952).
        """
        low, high = self.rate_interval(fpr, confidence=confidence)
        return self.threshold(max(high, self.smallest_fpr)), self.threshold(
            max(low, self.smallest_fpr)
        )

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
        ln condition. Hence the pairs that it moves above the score were above the score less that.

        Parameters
        ----------
        score : float
            From -1 to 1.
        condition : float
            Largest singular value of the map over its smallest, at least 1.

        Returns
        -------
        low, high : float
        """
        score = validation.as_real("score", score, low=-1, high=1)
        low, high = self.p_value(fisher_z_interval(score, condition)[::-1])
        return float(low), float(high)

    @property
    def verdict(self) -> str:
        """The threshold for the rate fpr in a sentence, after what makes it undecided."""
        low, high = self.threshold_interval(self.fpr, confidence=0.99)
        text = (
            f"One random pair in {1 / self.fpr:,.0f} has a {self.measure} of "
            f"{self.threshold():.3f} or more (99 % interval {low:.3f} to {high:.3f})."
        )
        return text if self.rescaling is None else f"{text} {self.rescaling.verdict}"

    def reading(self, score: float, *, n_items: int | None = None) -> str:
        """Return in words what one score means, for a search of n_items (default: all given).

        The first words say if rescalings D put the score on either side of the threshold.

        Parameters
        ----------
        score : float
        n_items : int, optional

        Returns
        -------
        str
        """
        score = validation.as_real("score", score)
        n_items = validation.as_count("n_items", self.n_given[1] if n_items is None else n_items)
        p = float(self.p_value(score))
        found = float(self.expected_false(score, n_items=n_items))
        text = (
            f"A {self.measure} of {score:g} or more has probability {p:.2g} for a random pair; "
            f"in {n_items:,} items a query finds {found:.2g} such by chance."
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
        """Where the promise is weak: duplicates, rows that share the high scores, the tail."""
        found = []
        level = max((i for i, count in enumerate(self.independent) if count > 0), default=0)
        level = min(level, RATES.index(_NOTED_RATE))
        counts, total = self.query_counts[level], int(self.query_counts[level].sum())
        if total and self.independent[level] > 0:
            pairs = total / (1 + self.self_join)
            shared = pairs / self.independent[level]
            busiest = np.sort(counts)[::-1][: max(1, len(counts) // 100)].sum() / total
            if shared > _CLUSTERED:
                low, high = np.quantile(counts, (0.05, 0.95)) / (self.n_items - self.self_join)
                found.append(
                    f"Rows are not exchangeable at a rate of {RATES[level]:g}: hubs or clusters "
                    f"share the high scores, and {shared:,.0f} pairs count as one "
                    f"independent pair. The busiest 1 % of the queries have {busiest:.0%} of "
                    f"them; the rate of a single query is from {low:.2g} to {high:.2g} (5 % to "
                    "95 % of the queries). The measure query_normalized corrects for each query."
                )
        if self.n_duplicates:
            found.append(
                f"{self.n_duplicates:,} of {self.n_items:,} items are duplicates of others. Their "
                "pairs have the largest score and are no false positives. Remove duplicates first: "
                "items[near_duplicates(items, 0.9999).representatives]."
            )
        top = self.counts[-1] / self.n_pairs
        if top > self.smallest_fpr and self.counts[-1] >= _OBSERVED:
            found.append(
                f"A share of {top:.2g} of all pairs is in the last bin: no threshold within the "
                "range has a lower rate."
            )
        if self.tail is not None and self.tail.distance > _POOR_FIT:
            found.append(
                f"The tail model does not fit (distance {self.tail.distance:.2f}): do not use "
                f"rates below {_OBSERVED / self.n_pairs:.1g}."
            )
        return tuple(found)

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain values; of the counts, those from first_bin to the last one.

        The dict says how to read it, so that JSON of it can be used without fastcos.
        """
        used = np.flatnonzero(self.counts)
        first, last = int(used[0]), int(used[-1]) + 1
        values = super().to_dict()
        return {
            "format": _FORMAT,
            "reading": _READING,
            "verdict": self.verdict,
            "notes": list(self.notes),
            "n_pairs": self.n_pairs,
            "first_bin": first,
            **values,
            "counts": self.counts[first:last].tolist(),
        }

    def save(self, path: PathLike) -> None:
        """Write the result as a JSON file, atomically; one line a field.

        Parameters
        ----------
        path : path-like
        """
        lines = (
            f"{json.dumps(key)}: {json.dumps(value, allow_nan=False, ensure_ascii=False)}"
            for key, value in self.to_dict().items()
        )
        io.write_text(path, "{\n" + ",\n".join(lines) + "\n}\n")

    @classmethod
    def load(cls, path: PathLike) -> "Calibration":
        """Read a file of :meth:`save`.

        Parameters
        ----------
        path : path-like

        Returns
        -------
        Calibration

        Raises
        ------
        FastcosFormatError
            The file is not such a file, or is damaged.
        """
        try:
            document = json.loads(Path(path).read_text("utf8"))
            if document["format"] != _FORMAT:
                raise ValueError(f"format must be {_FORMAT!r}, got {document['format']!r}")
            counts, first = np.zeros(N_BINS, np.int64), int(document["first_bin"])
            counts[first : first + len(document["counts"])] = document["counts"]
            values = {field.name: document[field.name] for field in fields(cls)}
            tail, rescaling = values["tail"], values["rescaling"]
            values |= {
                "counts": counts,
                "n_given": tuple(values["n_given"]),
                "levels": np.array(values["levels"], np.float64),
                "query_counts": np.array(values["query_counts"], np.int64),
                "independent": np.array(values["independent"], np.float64),
                "tail": None if tail is None else Tail(**tail),
                "rescaling": None if rescaling is None else ThresholdRange.of(rescaling),
            }
            found = cls(**values)
            if counts.min() < 0 or counts.sum() != found.n_pairs:
                raise ValueError(f"counts must sum to {found.n_pairs}, got {counts.sum()}")
        except (KeyError, TypeError, ValueError) as error:
            raise FastcosFormatError(f"{path} is no calibration: {error}") from None
        return found
