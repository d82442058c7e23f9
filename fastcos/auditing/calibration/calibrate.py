"""The function ``calibrate``, which computes the distribution of the scores of random pairs."""

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
from fastcos.auditing.calibration.result import Calibration
from fastcos.auditing.calibration.tail import fit_tail
from fastcos.auditing.calibration.threshold_range import SAMPLE, threshold_range
from fastcos.parallel import memmap
from fastcos.search.model_check import as_model
from fastcos.similarity.base import Measure, get_measure
from fastcos.similarity.cosine_bounds import as_condition
from fastcos.similarity.row_transforms import count_duplicates
from fastcos.validation import Integers

# Number of rows that are hashed at a time.
_ROWS_PER_HASH = 8192


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
    """Compute the distribution of the scores of random pairs, from which thresholds are derived.

    The function scores every pair of a query and an item in float64, and counts the scores in 2^16
    bins. The function makes two passes over all pairs, or three passes for measures that are not
    cosines. For n queries and m items, a pass takes O(n m d) time. The function needs memory for a
    float64 copy of the sampled rows, for O(bins + n + m) counts, and for a block of scores. The
    matrix products use the threads of NumPy's BLAS.

    Every pair of a query and an item counts as a random pair. Therefore, pass queries that are
    related to few items or to no items.

    Parameters
    ----------
    items : array_like (m, d), float32 or float64
        Item embeddings, in memory or memory-mapped. Zero rows have no direction and are left out;
        the attribute ``n_zero`` of the result is the number of zero rows.
    queries : array_like (n, d), optional
        Query embeddings. By default, the items are also the queries, and no row is paired with
        itself.
    measure : str or Measure
        As in :func:`fastcos.top_k`. The measure is fitted to the sampled items.
    fpr : float
        The false-positive rate to which the verdict of the result refers. The method ``threshold``
        of the result uses this rate by default. A rate below the ``smallest_fpr`` of the result is
        replaced by ``smallest_fpr``, and the field ``fpr`` contains the rate that was used.
    sample : int, optional
        Number of items that are drawn without replacement. If ``queries`` is passed, the same
        number of queries is drawn as well. Default: all rows. The method ``rate_interval`` of the
        result returns an interval that accounts for the sampling.
    condition : float, optional
        If ``condition`` is passed, the function also computes how far rescalings D can move the
        threshold for the rate ``fpr`` (:func:`fastcos.auditing.threshold_range`). The condition
        number of these rescalings is at most ``condition``. You can pass ``condition`` only with
        the measure "cosine" and without ``queries``.
    model : str, optional
        Name and version of the model that computed the rows, such as ``"minilm@2"``. The name of
        the model is stored with the result. An index may also store the name of its model. Such an
        index can be searched only with a calibration of the same model.
    progress : callable, optional
        Function that is called as progress(done, total), where both arguments are numbers of
        queries. A query is counted once per pass.
    random_state : int or Generator
        Seed of the sample.

    Returns
    -------
    Calibration
        The distribution of the scores, with methods such as ``threshold(fpr)``,
        ``p_value(scores)``, ``expected_false`` and ``false_discovery_rate``. Other methods return
        intervals.

    Raises
    ------
    ValueError
        Raised if an array contains NaN or infinity, or if queries and items have different widths.
        Raised if ``fpr``, ``sample``, ``condition`` or ``random_state`` is out of range. Raised if
        too few rows are nonzero. Without ``queries``, at least two items must be nonzero. With
        ``queries``, at least one item and at least one query must be nonzero.

    Examples
    --------
    >>> import numpy as np
    >>> from fastcos import calibrate, top_k
    >>> rng = np.random.default_rng(0)
    >>> items, queries = rng.standard_normal((1000, 32)), rng.standard_normal((20, 32))
    >>> calibration = calibrate(items)
    >>> threshold = calibration.threshold(fpr=1e-3)
    >>> neighbors = top_k(queries, items, k=5, min_score=threshold)
    >>> bool((calibration.p_value(neighbors.scores)[neighbors.indices >= 0] <= 1e-3).all())
    True
    """
    validation.check_progress(progress)
    unfitted = get_measure(measure)
    generator = validation.as_generator("random_state", random_state)
    fpr = validation.as_real("fpr", fpr, above=0, high=1)
    if sample is not None:
        sample = validation.as_count("sample", sample, low=2)
    if condition is not None:
        condition = as_condition("condition", condition)
        if unfitted.name != "cosine" or queries is not None:
            case = "queries" if queries is not None else f"the measure {unfitted.name!r}"
            raise ValueError(f"condition must be None with {case}, got a number")
    model = as_model(model)
    X = memmap.as_mapped_rows("items", items)
    Q = X if queries is None else memmap.as_mapped_rows("queries", queries)
    validation.check_same_width("queries", Q, "items", X)
    item_sample, n_zero = _sample_rows("items", X, sample, generator)
    query_sample = item_sample
    if queries is not None:
        query_sample, n_zero_queries = _sample_rows("queries", Q, sample, generator)
        n_zero += n_zero_queries
    self_join = queries is None
    validation.check_enough("items", len(item_sample), 1 + self_join, "rows that are not zero")
    validation.check_enough("queries", len(query_sample), 1, "rows that are not zero")
    validation.check_scorable("queries", query_sample, item_sample)
    # Searches rank items by float64 scores, so calibration counts float64 scores, too.
    query_rows, item_rows = (np.asarray(rows, np.float64) for rows in (query_sample, item_sample))
    fitted = unfitted.fit(validation.read_only(item_rows))
    pairs = Pairs(fitted, query_rows, item_rows, self_join, progress)
    bins = bins_of(pairs)
    counts = count_scores(pairs, bins)
    above = np.append(np.cumsum(counts[::-1])[::-1], 0)
    # For each bin edge, consider the share of pairs with a score at or above the edge. The level
    # for a rate is the lowest bin edge for which this share is at most the rate.
    levels = np.array([bins.edges[np.argmax(above <= rate * pairs.total)] for rate in RATES])
    query_counts, item_counts = count_rows(pairs, levels)
    rescaling = None
    if condition is not None:
        n_pairs = min(len(item_rows), SAMPLE) * (min(len(item_rows), SAMPLE) - 1) // 2
        rescaling = threshold_range(
            item_sample, max(fpr, 1 / n_pairs), condition=condition, random_state=generator
        )
    return Calibration(
        measure=unfitted.name,
        fpr=max(fpr, EXTRAPOLATED / pairs.total),
        low=bins.low,
        width=bins.width,
        counts=counts,
        n_queries=len(query_rows),
        n_items=len(item_rows),
        self_join=self_join,
        n_given=(len(Q), len(X)),
        n_zero=n_zero,
        n_duplicates=count_duplicates(validation.read_only(item_sample)),
        levels=levels,
        query_counts=query_counts,
        independent=np.array(
            [
                independent_pairs(*counts_of_rows, self_join=self_join)
                for counts_of_rows in zip(query_counts, item_counts, strict=True)
            ]
        ),
        tail=fit_tail(bins.edges, counts),
        rescaling=rescaling,
        dataset=_digest(X, None if self_join else Q),
        model=model,
    )


def _sample_rows(
    name: str, rows: Any, sample: int | None, generator: np.random.Generator
) -> tuple[validation.Rows, int]:
    """Draw a sample of the rows; return its nonzero rows and the number of its zero rows."""
    numbers: Integers = np.arange(len(rows))
    if sample is not None and sample < len(rows):
        numbers = np.sort(generator.choice(len(rows), sample, replace=False))
    sampled_rows = memmap.take_rows(name, rows, numbers)
    is_nonzero = sampled_rows.any(axis=1)
    return sampled_rows[is_nonzero], int((~is_nonzero).sum())


def _digest(items: Any, queries: Any) -> str:
    """Return the SHA-256 of the shapes, types and values of items and queries."""
    digest = hashlib.sha256()
    for name, rows in (("items", items), ("queries", queries)):
        if rows is not None:
            digest.update(f"{name} {rows.shape} {rows.dtype.str}".encode())
            for _, block in memmap.iter_blocks(name, rows, _ROWS_PER_HASH):
                digest.update(np.ascontiguousarray(block).data)
    return digest.hexdigest()
