"""A map from a new text encoder to the vectors of an old one, and how well it will do.

New queries can be searched in a corpus that the old encoder embedded, if a map fitted on some texts
that both encoders embedded takes them there. What that costs is predicted by cross-validation
before anything is embedded anew. Source: Drift-Adapter, arXiv:2509.23471.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fastcos import parallel, validation
from fastcos.metrics.list_overlap import jaccard_per_query
from fastcos.reports import Record, Section, Table, as_table
from fastcos.search.index import SimilarityIndex
from fastcos.similarity.row_maps import map_rows
from fastcos.similarity.row_transforms import unit_rows
from fastcos.validation import Floats, Integers

MAPS = ("orthogonal", "linear")
# parts of the sample that are left out in turn
_FOLDS = 10
# ridge of the linear map, as a share of the mean squared singular value of the sample
_RIDGE = 0.1
# two-sided 95 % quantile of the standard normal distribution
_NORMAL_95 = 1.959963984540054


@as_table
@dataclass(frozen=True)
class EncoderMap(Record):
    """A map from the vectors of a new encoder to those of an old one.

    Attributes
    ----------
    map : ndarray (d, d'), float64
        ``transform(rows)`` multiplies unit rows of the new encoder by it.
    kind : {"orthogonal", "linear"}
    n_sample, n_corpus, k : int
        Texts that the map was fitted on, texts of the old corpus, and neighbours per list.
    overlap : float
        Predicted share of the k nearest that a mapped new query and the old query have in common,
        both among the texts of the old corpus.
    overlap_low, overlap_high : float
        An interval of 95 % for it. Its upper end allows for the advantage of the final map, which
        is fitted on more texts than those of the cross-validation.
    """

    map: Floats
    kind: str
    n_sample: int
    n_corpus: int
    k: int
    overlap: float
    overlap_low: float
    overlap_high: float

    def transform(self, rows: Any) -> Floats:
        """Return unit rows of the new encoder in the old coordinates, (n, d') float64, unit norm.

        Parameters
        ----------
        rows : array_like (n, d)
            Vectors of the new encoder, of any norm.
        """
        new = validation.as_rows("rows", rows)
        validation.check_same_width("rows", new, "the map's input", self.map.T)
        return unit_rows(map_rows(unit_rows(new), self.map))

    @property
    def verdict(self) -> str:
        """The prediction in one sentence."""
        return (
            f"A mapped new query will share about {self.overlap:.0%} of its {self.k} nearest with "
            f"the old query (95 % interval {self.overlap_low:.1%} to {self.overlap_high:.1%})."
        )

    def sections(self) -> tuple[Section]:
        """The sample and the prediction."""
        facts: dict[str, float | str | None] = {
            "map": self.kind,
            "texts that it was fitted on": self.n_sample,
            "texts of the old corpus": self.n_corpus,
            "predicted overlap": self.overlap,
            "lower end of the interval": self.overlap_low,
            "upper end of the interval": self.overlap_high,
        }
        return (Section("New encoder mapped to the old one", facts=facts, verdict=self.verdict),)

    def table(self) -> Table:
        """The prediction, for ``repr``; the map is not printed."""
        (section,) = self.sections()
        rows = list(section.facts.items())
        return Table(section.title, ("what", "value"), rows, lead=self.verdict)


def map_encoder(
    new: Any,
    old_corpus: Any,
    rows: Any,
    *,
    kind: str = "orthogonal",
    k: int = 10,
    random_state: int | np.random.Generator = 0,
) -> EncoderMap:
    """Fit a map from a new encoder to an old one, and predict the overlap of their neighbours.

    The prediction is that of ten-fold cross-validation over the sample, each fold's texts searched
    in the whole old corpus. A count within the sample alone would be far too high, because small
    corpora are easy.

    Parameters
    ----------
    new : array_like (m, d)
        Vectors of the new encoder for a sample of the texts, m at least 100.
    old_corpus : array_like (p, d')
        Vectors of the old encoder for all texts, p > k.
    rows : array_like (m,), int
        Row number in old_corpus of each text of the sample, all different.
    kind : {"orthogonal", "linear"}
        The map. An orthogonal one has fewer degrees of freedom: for up to 2,000 texts it was better
        on the texts that we measured, and for 8,000 both were equal.
    k : int
        Neighbours per list.
    random_state : int or Generator
        Seed of the folds.

    Returns
    -------
    EncoderMap
        The map, and its predicted overlap with an interval.

    Raises
    ------
    ValueError
        Fewer than 100 texts; rows that repeat or are out of range; zero rows; NaN or infinity.

    See Also
    --------
    fastcos.align : the same for two trainings of one recommender.
    fastcos.auditing.diff_models : the overlap of two encoders that embedded the same texts.

    Notes
    -----
    The prediction holds for queries that are drawn as the sample was, and compares neighbours, not
    relevance. O(m p d') for the searches.

    Examples
    --------
    >>> import numpy as np
    >>> from fastcos.auditing import map_encoder
    >>> rng = np.random.default_rng(0)
    >>> old = rng.standard_normal((500, 8))
    >>> R = np.linalg.qr(rng.standard_normal((8, 8)))[0]
    >>> found = map_encoder(old[:200] @ R, old, np.arange(200), k=5)
    >>> found.overlap, bool(np.allclose(found.map, R.T))
    (1.0, True)
    """
    sample = validation.as_rows("new", new)
    corpus = validation.as_rows("old_corpus", old_corpus)
    validation.check_enough("new", len(sample), 100, "rows")
    positions = _as_positions(rows, len(sample), len(corpus))
    kind = validation.as_choice("kind", kind, MAPS)
    k = validation.as_count("k", k, high=len(corpus) - 1)
    generator = validation.as_generator("random_state", random_state)
    for name, given in (("new", sample), ("old_corpus", corpus)):
        if not given.any(axis=1).all():
            raise ValueError(f"{name} must have no zero row, got {int((~given.any(axis=1)).sum())}")
    source, target = unit_rows(sample), unit_rows(corpus[positions])
    index = SimilarityIndex().fit(corpus)
    own_lists = _nearest(index, corpus[positions], positions, k)
    shuffled = generator.permutation(len(source))
    mapped, half_mapped = np.empty_like(target), np.empty_like(target)
    # queries of one type with the rows of the index are faster
    single = corpus.dtype == np.float32
    for fold in np.array_split(shuffled, _FOLDS):
        others = shuffled[~np.isin(shuffled, fold)]
        mapped[fold] = source[fold] @ _fit(kind, source[others], target[others])
        half = generator.permutation(others)[: len(others) // 2]
        half_mapped[fold] = source[fold] @ _fit(kind, source[half], target[half])
    shares, half_shares = (
        _shares(
            _nearest(index, queries.astype(np.float32) if single else queries, positions, k),
            own_lists,
        )
        for queries in (mapped, half_mapped)
    )
    # what twice the texts gain bounds what the last tenth of them gains: an error that falls as
    # 1 / m gains a tenth of it, one that falls as its logarithm 15 %
    gain = max(float(shares.mean() - half_shares.mean()), 0.0)
    mean, half_width = float(shares.mean()), _NORMAL_95 * _standard_error(shares, shuffled)
    return EncoderMap(
        map=_fit(kind, source, target),
        kind=kind,
        n_sample=len(source),
        n_corpus=len(corpus),
        k=k,
        overlap=min(mean + gain / _FOLDS, 1.0),
        overlap_low=max(mean - half_width, 0.0),
        overlap_high=min(mean + gain * float(np.log2(_FOLDS / (_FOLDS - 1))) + half_width, 1.0),
    )


def _as_positions(rows: Any, length: int, n_corpus: int) -> Integers:
    """Return the row number of each text of the sample, in the order of the sample."""
    positions = np.asarray(rows)
    if positions.shape != (length,) or positions.dtype.kind not in "iu":
        rule = f"be whole numbers of shape ({length},), one per row of new"
        raise ValueError(f"rows must {rule}, got {positions.dtype} of shape {positions.shape}")
    if positions.min() < 0 or positions.max() >= n_corpus:
        worst = positions.min() if positions.min() < 0 else positions.max()
        rule = f"be at least 0 and less than {n_corpus}, the rows of old_corpus"
        raise ValueError(f"rows must {rule}, got {worst}")
    values, counts = np.unique(positions, return_counts=True)
    if counts.max() > 1:
        raise ValueError(f"rows must all be different, got {values[counts.argmax()]} twice")
    return positions.astype(np.int64)


def _fit(kind: str, source: Floats, target: Floats) -> Floats:
    """The orthogonal map, or the linear one of ridge regression, from source to target."""
    with parallel.blas_lock():
        crossed = source.T @ target
        if kind == "orthogonal":
            U, _, Vt = np.linalg.svd(crossed, full_matrices=False)
            return np.asarray(U @ Vt)
        gram = source.T @ source
        ridge = _RIDGE * np.trace(gram) / len(gram)
        return np.asarray(np.linalg.solve(gram + ridge * np.eye(len(gram)), crossed))


def _nearest(
    index: SimilarityIndex, queries: validation.Rows, positions: Integers, k: int
) -> Integers:
    """The k nearest of each query, without the row of its own text."""
    longer = index.search(queries, k + 1).indices
    own = longer == positions[:, np.newaxis]
    own[~own.any(axis=1), -1] = True
    return longer[~own].reshape(len(queries), k)


def _shares(first: Integers, second: Integers) -> Floats:
    """Share of each list that is in the other one too, from the Jaccard index."""
    jaccard = jaccard_per_query(first, second)
    return 2 * jaccard / (1 + jaccard)


def _standard_error(shares: Floats, shuffled: Integers) -> float:
    """Standard error of the mean share: over texts, or over folds where that is larger."""
    folds = [shares[fold].mean() for fold in np.array_split(shuffled, _FOLDS)]
    by_texts = shares.std(ddof=1) / np.sqrt(len(shares))
    return float(max(by_texts, np.std(folds, ddof=1) / np.sqrt(_FOLDS)))
