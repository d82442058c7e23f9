"""Range search: every pair of rows whose score reaches a threshold, as a sparse matrix."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fastcos import parallel, validation
from fastcos.kernels import exhaustive_top_k
from fastcos.search import scan
from fastcos.search.lists import score_by_measure
from fastcos.search.packing import (
    ExcludedItems,
    ExecutionOptions,
    PackedItems,
    PermittedItems,
    no_exclusions,
)
from fastcos.search.range_candidates import find_candidates
from fastcos.search.request import Threshold, as_threshold, rounded_scores
from fastcos.search.segments import exclusions_within
from fastcos.search.sources import ItemSource, fit_items
from fastcos.search.top_k import as_options
from fastcos.similarity.base import Measure, get_measure, is_upper_bounded
from fastcos.similarity.encoded_rows import METRIC_TYPES, EncodedRows, encode_rows
from fastcos.validation import Floats, Integers

if TYPE_CHECKING:
    import scipy.sparse as sp

# a candidate's column and raw score, and the pair's column and score
_BYTES_PER_PAIR = 8 + 8 + 4 + 8
# candidates scored at once by one thread
_PAIRS_PER_BLOCK = 100_000
# rows whose scores are finished at once
_FINISHED_ROWS = 256


def neighbors_above(
    queries: Any,
    threshold: float | Threshold,
    items: Any = None,
    *,
    measure: str | Measure = "cosine",
    n_threads: int | None = None,
    working_memory: float | None = None,
    progress: parallel.Progress | None = None,
) -> sp.csr_array:
    """All pairs with a score of at least threshold.

    Exact: a pair counts if its returned score is at least the threshold, both in float32.
    Pairs are counted before anything is allocated. Time 2 O(n m d).

    Parameters
    ----------
    queries : array_like (n, d), or (d,) where items are given; or sparse
        One row per query, as for :func:`fastcos.top_k`. Sparse rows: by cosine or dot, and for
        thresholds above 0.
    threshold : float or Calibration
        Least score of a pair. Of a :class:`fastcos.auditing.Calibration` of this measure: its
        threshold for its false-positive rate ``fpr``.
    items : array_like (m, d), optional
        None: the queries themselves; a row is then not paired with itself.
    measure : str or Measure
        As in :func:`fastcos.top_k`.
    n_threads : int, optional
        Default: the setting ``n_threads``.
    working_memory : float, optional
        MiB that the answer may take while it is made. Default: the setting ``working_memory``.
    progress : callable, optional
        Called as progress(done, total) with numbers of queries, once while counting and once more.

    Returns
    -------
    csr_array (n, m), float32
        The scores; columns ascend within a row. A pair of score 0 is kept as an explicit zero.

    Raises
    ------
    ValueError
        More pairs than working_memory holds, NaN or infinity, rows of different width, a
        calibration of another measure.

    Examples
    --------
    >>> import numpy as np
    >>> from fastcos import calibrate, neighbors_above
    >>> X = np.array([[3.0, 4.0], [4.0, 3.0], [0.0, 1.0]])
    >>> neighbors_above(X, 0.9).toarray().astype(float).round(2).tolist()
    [[0.0, 0.96, 0.0], [0.96, 0.0, 0.0], [0.0, 0.0, 0.0]]

    At most one random pair in a hundred:

    >>> items = np.random.default_rng(0).standard_normal((200, 8))
    >>> neighbors_above(items, calibrate(items, fpr=0.01)).nnz / (200 * 199) <= 0.01
    True
    """
    if validation.any_sparse(queries, items):
        from fastcos.search.sparse import sparse_neighbors_above

        options = as_options(n_threads, working_memory, progress)
        return sparse_neighbors_above(queries, threshold, items, measure=measure, options=options)
    Q = validation.as_rows("queries", queries, or_vector=items is not None)
    X = Q if items is None else validation.as_rows("items", items)
    validation.check_same_width("items", X, "queries", Q)
    validation.check_scorable("queries", Q, X)
    given = get_measure(measure)
    least = as_threshold("threshold", threshold, given)
    options = as_options(n_threads, working_memory, progress)
    fitted = fit_items(X, given, options)
    return pairs_above(fitted, Q, least, no_exclusions(len(Q), own=items is None), options)


def pairs_above(
    items: ItemSource,
    Q: validation.Rows,
    least: float,
    exclusions: ExcludedItems,
    options: ExecutionOptions,
    permitted: Integers | None = None,
) -> sp.csr_array:
    """All pairs of queries and positions with a score of at least `least`, of every segment.

    permitted: ascending positions of the items that may be found, None for all.
    """
    measure, n = items.measure, len(Q)
    kind = measure.metric_type
    queries = encode_rows(measure.encode_queries(Q), None, options.n_threads, kind)
    threshold = rounded_scores(least)

    def qualifies(raw: Floats) -> npt.NDArray[np.bool_]:
        return rounded_scores(measure.to_score(raw[:, None], Q)[:, 0]) >= threshold

    exact = _least_raw_scores(qualifies, n, kind)
    thresholds = exact
    if is_upper_bounded(measure):
        thresholds = _least_raw_scores(lambda raw: measure.upper_bound(Q, raw) >= exact, n, kind)
    found = [(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))]
    for segment in items.segments:
        here = exclusions
        if len(segment.encoded.rows) < items.n_items:
            here = exclusions_within(exclusions, segment)
        some = segment.permit(permitted)
        if some is not None and not len(some.numbers):
            continue
        left = scan.as_wide(queries, segment.encoded.rows)
        starts, columns = _candidates(segment.packed, left, here, thresholds, options, some)
        if is_upper_bounded(measure):
            raw = score_by_measure(measure, segment.rows, Q, starts, columns)
            query = np.repeat(np.arange(n), np.diff(starts))
            kept = np.flatnonzero(raw >= exact[query])
            query = query[kept]
        else:
            counts, raw = np.diff(starts), parallel.unfilled(len(columns), np.float64)
            parallel.run(
                exhaustive_top_k.keep_above, parallel.work_blocks(starts, _PAIRS_PER_BLOCK),
                METRIC_TYPES[kind], left.rows, left.norms, *segment.encoded, thresholds,
                starts[:-1], counts, columns, raw,
                n_threads=options.n_threads,
            )  # fmt: skip
            query, before = np.repeat(np.arange(n), counts), np.cumsum(counts) - counts
            kept = np.repeat(starts[:-1] - before, counts) + np.arange(counts.sum())
        found.append((query, segment.positions_of(columns[kept]), raw[kept]))
        options = options._replace(
            working_memory=options.working_memory - _BYTES_PER_PAIR * len(kept)
        )
    rows, positions, raw = map(np.concatenate, zip(*found, strict=True))
    order = np.lexsort((positions, rows))
    rows, positions, raw = rows[order], positions[order], raw[order]
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=n))])
    import scipy.sparse as sp

    scores = _finished(measure, Q, indptr, raw)
    return sp.csr_array((scores, positions, indptr), shape=(n, items.n_items))


def _finished(
    measure: Measure, Q: validation.Rows, indptr: Integers, raw: Floats
) -> npt.NDArray[np.float32]:
    """Return the scores of pairs from their raw scores; indptr (n + 1,) as in CSR."""
    scores, counts = np.empty(len(raw), np.float32), np.diff(indptr)
    for first in range(0, len(Q), _FINISHED_ROWS):
        last = min(first + _FINISHED_ROWS, len(Q))
        part = slice(indptr[first], indptr[last])
        listed = np.arange(counts[first:last].max()) < counts[first:last, None]
        padded = np.full(listed.shape, -np.inf)
        padded[listed] = raw[part]
        with np.errstate(all="ignore"):  # of the padding
            scores[part] = measure.to_score(padded, Q[first:last])[listed]
    return scores


def _least_raw_scores(
    qualifies: Callable[[Floats], npt.NDArray[np.bool_]], n: int, metric_type: str
) -> Floats:
    """Least raw score (n,) of each query that qualifies, inf where none does.

    qualifies(raw) (n,) never turns from true to false where raw scores increase.
    """
    largest = np.finfo(np.float64).max
    low, high = np.full(n, -largest), np.full(n, 0.0 if metric_type == "euclidean" else largest)
    with np.errstate(all="ignore"):
        high_is_enough, low_is_enough = qualifies(high.copy()), qualifies(low.copy())
        # halve the whole numbers that stand for the floats: 64 steps reach neighbours
        low_code, high_code = _ordered(low), _ordered(high)
        for _ in range(64):
            middle = (low_code >> 1) + (high_code >> 1) + (low_code & high_code & 1)
            enough = qualifies(_as_floats(middle))
            high_code = np.where(enough, middle, high_code)
            low_code = np.where(enough, low_code, middle)
    found = np.where(low_is_enough, low, _as_floats(high_code))
    return np.ascontiguousarray(np.where(high_is_enough, found, np.inf))


def _ordered(values: Floats) -> npt.NDArray[np.int64]:
    """Whole numbers in the order of the floats."""
    bits = values.view(np.int64)
    return np.where(bits < 0, np.int64(-(2**63)) - bits, bits)


def _as_floats(codes: npt.NDArray[np.int64]) -> Floats:
    bits = np.where(codes < 0, np.int64(-(2**63)) - codes, codes)
    return np.ascontiguousarray(bits).view(np.float64)


def _candidates(
    packed: PackedItems,
    queries: EncodedRows,
    exclusions: ExcludedItems,
    thresholds: Floats,
    options: ExecutionOptions,
    permitted: PermittedItems | None,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Starts (n + 1,) and columns of all pairs that may qualify: counted, then kept."""
    n = len(thresholds)
    starts, columns = np.zeros(n + 1, np.int64), np.zeros(0, np.int64)
    find = functools.partial(find_candidates, packed, queries, exclusions, thresholds)
    counts = find(0, starts[:-1], columns, options, permitted)
    np.cumsum(counts, out=starts[1:])
    needed = float(starts[-1] * _BYTES_PER_PAIR)
    validation.check_memory("working_memory", options.working_memory, needed)
    columns = parallel.unfilled(int(starts[-1]), np.int64)
    find(len(packed.arrays.rows), starts[:-1], columns, options, permitted)
    return starts, columns
