"""Exact neighbours by measures that are no inner product: bound, re-score, certify, widen."""

from typing import Any

import numpy as np

from fastcos import dense_neighbors as dense
from fastcos import threads
from fastcos.guided_neighbors import best_of_lists
from fastcos.measure import Bounded

# candidates of the first search, and how many times more the next one asks for
_FIRST, _WIDER = 4, 4
_BYTES_PER_CANDIDATE = 128


def in_chunks(
    measure: Bounded,
    given: dense.Rows,
    searched: dense.Rows,
    exclusions: dense.Exclusions,
    k: int,
    most: int,
    min_score: float | None,
    work: dense.Work,
    find: Any,
) -> tuple[dense.Integers, Any]:
    """Indices and scores of all queries; find(side, exclusions, work, width) is the engine.

    The first search has 4 k candidates. A query is done when its k-th best score exceeds what the
    measure says is the most that anything else could have; the others are searched with 4 times as
    many, in the end with all: then the time is O(m) exact scores per query, and the memory stays
    working_memory.
    """
    n = len(given)
    indices = threads.poisoned((n, k), np.int64)
    scores = threads.poisoned((n, k), np.float32)
    facts = measure.facts(searched)
    left = np.arange(n, dtype=np.int64)
    width = min(most, max(_FIRST * k, k + 16))
    while len(left):
        uncertain = []
        chunk = max(1, int(work.working_memory / (_BYTES_PER_CANDIDATE * width)))
        for first in range(0, len(left), chunk):
            some = left[first : first + chunk]
            Q = given[some]
            sides = dense.side(measure.queries(Q), None, work.n_threads, measure.form)
            columns, loose = find(sides, exclusions.of(some), work, width)
            exact = measure.rescore(Q, facts, np.maximum(columns, 0))
            found, keys = best_of_lists(columns, exact, k, work)
            complete = (width >= most) | (columns[:, -1] < 0)
            sure = complete | (keys[:, -1] > measure.bound(Q, loose[:, -1]))
            final = measure.finish(keys, Q)
            if min_score is not None:
                low = final < min_score
                found[low], final[low] = -1, -np.inf
            final[found < 0] = -np.inf
            indices[some], scores[some] = found, final
            uncertain.append(some[~sure])
        left = np.concatenate(uncertain)
        width = min(most, _WIDER * width)
    return indices, scores
