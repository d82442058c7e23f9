"""Calibrate scores: draws rows, counts the scores of their pairs, fits the tail."""

import hashlib
from typing import Any

import numpy as np

from fastcos import parallel, validation
from fastcos.auditing.calibration.distribution import EXTRAPOLATED, RATES
from fastcos.auditing.calibration.histogram import (
    Pairs,
    bins_of,
    count_rows,
    count_scores,
    independent_pairs,
)
from fastcos.auditing.calibration.rescaled import SAMPLE, threshold_range
from fastcos.auditing.calibration.result import Calibration
from fastcos.auditing.calibration.tail import fit_tail
from fastcos.parallel import memmap
from fastcos.search.model_check import as_model
from fastcos.similarity.base import Measure, get_measure
from fastcos.similarity.cosine_bounds import as_condition
from fastcos.similarity.row_transforms import count_duplicates
from fastcos.validation import Integers

# rows that are hashed at once
_HASHED_AT_ONCE = 8192


def calibrate(
    items: Any,
    queries: Any = None,
    *,
    measure: str | Measure = "cosine",
    fpr: float = 1e-4,
    sample: int | None = None,
    condition: float | None = None,
    model: str | None = None,
    progress: parallel.Progress | None = None,
    random_state: int | np.random.Generator = 0,
) -> Calibration:
    """The distribution of the scores of random pairs, which says what one score means.

    Every pair is scored in float64 and counted in one of 2^16 bins. Time O(n m d) twice, and three
    times for measures that are no plain cosines; memory O(bins + n + m) and a block of scores. The
    products use the threads of NumPy's BLAS.

    Give queries that are related to no item, or to few: what is related counts as random here.

    Parameters
    ----------
    items : array_like (m, d), float32 or float64; a memory map may be sampled
        Zero rows have no direction: they are counted and left out.
    queries : array_like (n, d), optional
        None: the items themselves; a row is then not paired with itself.
    measure : str or Measure
        As in :func:`fastcos.top_k`. It is fitted to the items that are scored.
    fpr : float
        False-positive rate of the verdict, and of ``threshold()``.
    sample : int, optional
        Rows drawn without replacement from each side. None: all rows, exactly. The error of a
        sample is that of ``rate_interval``.
    condition : float, optional
        Also search how far rescalings D of this condition move the threshold for the rate fpr,
        see :func:`fastcos.auditing.threshold_range`. For the cosine of items.
    model : str, optional
        Name and version of what made the rows, such as ``"minilm@2"``. It is kept with the result,
        and an index that has the name of another model refuses the calibration.
    progress : callable, optional
        Called as progress(done, total) with numbers of queries, over all passes.
    random_state : int or Generator
        Seed of the sample.

    Returns
    -------
    Calibration
        ``threshold(fpr)``, ``p_value(scores)``, ``expected_false``, ``false_discovery_rate``, and
        intervals.

    Raises
    ------
    ValueError
        NaN or infinity; rows of different width; fpr, sample, condition or random_state out of
        range; fewer than two items, or one with queries, that are not zero rows.

    Examples
    --------
    >>> import numpy as np
    >>> from fastcos import calibrate, top_k
    >>> rng = np.random.default_rng(0)
    >>> items, queries = rng.standard_normal((1000, 32)), rng.standard_normal((20, 32))
    >>> calibration = calibrate(items)
    >>> least = calibration.threshold(fpr=1e-3)
    >>> neighbors = top_k(queries, items, k=5, min_score=least)
    >>> bool((calibration.p_value(neighbors.scores)[neighbors.indices >= 0] <= 1e-3).all())
    True
    """
    validation.check_progress(progress)
    given = get_measure(measure)
    generator = validation.as_generator("random_state", random_state)
    fpr = validation.as_real("fpr", fpr, above=0, high=1)
    if sample is not None:
        sample = validation.as_count("sample", sample, low=2)
    if condition is not None:
        condition = as_condition("condition", condition)
        if given.name != "cosine" or queries is not None:
            raise ValueError("condition must be None but for cosines of items, got a number")
    model = as_model(model)
    X = memmap.as_mapped_rows("items", items)
    Q = X if queries is None else memmap.as_mapped_rows("queries", queries)
    validation.check_same_width("queries", Q, "items", X)
    some_items, zero = _drawn("items", X, sample, generator)
    some_queries = some_items
    if queries is not None:
        some_queries, more = _drawn("queries", Q, sample, generator)
        zero += more
    own = queries is None
    validation.check_enough("items", len(some_items), 1 + own, "rows that are not zero")
    validation.check_enough("queries", len(some_queries), 1, "rows that are not zero")
    validation.check_scorable("queries", some_queries, some_items)
    # in float64: what is counted is then the order of a search
    left, right = (np.asarray(side, np.float64) for side in (some_queries, some_items))
    pairs = Pairs(given.fit(validation.read_only(right)), left, right, own, progress)
    bins = bins_of(pairs)
    counts = count_scores(pairs, bins)
    above = np.append(np.cumsum(counts[::-1])[::-1], 0)
    # a level is an edge: the least one above which the rate is at most the promised one
    levels = np.array([bins.edges[np.argmax(above <= rate * pairs.total)] for rate in RATES])
    of_queries, of_items = count_rows(pairs, levels)
    moved = None
    if condition is not None:
        n_pairs = min(len(right), SAMPLE) * (min(len(right), SAMPLE) - 1) // 2
        moved = threshold_range(
            some_items, max(fpr, 1 / n_pairs), condition=condition, random_state=generator
        )
    return Calibration(
        measure=given.name,
        fpr=max(fpr, EXTRAPOLATED / pairs.total),
        low=bins.low,
        width=bins.width,
        counts=counts,
        n_queries=len(left),
        n_items=len(right),
        self_join=own,
        n_given=(len(Q), len(X)),
        n_zero=zero,
        n_duplicates=count_duplicates(validation.read_only(some_items)),
        levels=levels,
        query_counts=of_queries,
        independent=np.array(
            [independent_pairs(*row, own=own) for row in zip(of_queries, of_items, strict=True)]
        ),
        tail=fit_tail(bins.edges, counts),
        rescaling=moved,
        dataset=_digest(X, None if own else Q),
        model=model,
    )


def _drawn(
    name: str, rows: Any, sample: int | None, generator: np.random.Generator
) -> tuple[validation.Rows, int]:
    """Return a sample of the rows in order, without zero rows, and the number of zero rows."""
    numbers: Integers = np.arange(len(rows))
    if sample is not None and sample < len(rows):
        numbers = np.sort(generator.choice(len(rows), sample, replace=False))
    drawn = memmap.take_rows(name, rows, numbers)
    directed = drawn.any(axis=1)
    return drawn[directed], int((~directed).sum())


def _digest(items: Any, queries: Any) -> str:
    """SHA-256 of shape, type and values of both sides."""
    digest = hashlib.sha256()
    for name, side in (("items", items), ("queries", queries)):
        if side is not None:
            digest.update(f"{name} {side.shape} {side.dtype.str}".encode())
            for _, rows in memmap.iter_blocks(name, side, _HASHED_AT_ONCE):
                digest.update(np.ascontiguousarray(rows).data)
    return digest.hexdigest()
