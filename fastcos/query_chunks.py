"""Neighbours of many queries, some at a time: transformed, searched, finished."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from fastcos import dense_neighbors as dense
from fastcos import threads
from fastcos.measure import Measure

Search = Callable[[dense.Side, dense.Exclusions, dense.Work], tuple[dense.Integers, dense.Floats]]


def in_chunks(
    measure: Measure,
    given: dense.Rows,
    exclusions: dense.Exclusions,
    k: int,
    min_score: float | None,
    work: dense.Work,
    find: Search,
    known: dense.Side | None = None,
) -> tuple[dense.Integers, npt.NDArray[np.float32]]:
    """Indices and scores of all queries; transformed rows and keys of some at a time.

    known: the transformed queries, where they are there already.
    """
    n, depth = given.shape
    indices = threads.poisoned((n, k), np.int64)
    scores = threads.poisoned((n, k), np.float32)
    chunk = max(1024, int(work.working_memory / 4 / (24 * k + 24 * depth + 128)))
    for first in range(0, n, chunk):
        last = min(n, first + chunk)
        told = work.progress
        if told is not None and n > chunk:
            told = _shifted(told, first, n)
        Q = given if first == 0 and last == n else given[first:last]
        columns, keys = find(
            dense.side(measure.queries(Q), None, work.n_threads, measure.form)
            if known is None
            else dense.Side(
                known.rows[first:last], known.norms[first:last], known.offsets[first:last]
            ),
            exclusions.of_rows(first, last),
            work._replace(progress=told),
        )
        found = measure.finish(keys, Q)
        if min_score is not None:
            low = found < min_score
            columns[low], found[low] = -1, -np.inf
        found[columns < 0] = -np.inf
        indices[first:last] = columns
        with np.errstate(over="ignore"):  # infinite beyond float32; the order is that of float64
            scores[first:last] = found
    return indices, scores


def _shifted(progress: threads.Progress, first: int, n: int) -> threads.Progress:
    return lambda done, total: progress(first + done, n)
