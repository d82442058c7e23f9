"""Neighbours of many queries, some at a time: transformed, searched, finished."""

from collections.abc import Callable
from typing import Any

import numpy as np

from fastcos import parallel
from fastcos.engine import scan as dense
from fastcos.engine.segments import Question, Scores, results_of
from fastcos.measures import Measure
from fastcos.storage.checkpoint import Results, rows_of_a_block

Search = Callable[[dense.Side, dense.Exclusions, dense.Work], tuple[dense.Integers, dense.Floats]]

# queries of a chunk, at least: threads share them
_FEWEST = 1024


def results_in_chunks(question: Question, work: dense.Work, out: Any = None) -> Results:
    """Where the neighbours go: transformed rows and keys of a chunk fit the working memory.

    Chunks that go to the directory out are short enough for a kill to cost little.
    """
    depth, k = question.queries.shape[1], question.k
    chunk = max(_FEWEST, int(work.working_memory / 4 / (24 * k + 24 * depth + 128)))
    if out is not None:
        of_a_row = question.searched.shape[0] * depth
        chunk = min(chunk, rows_of_a_block(of_a_row, least=_FEWEST))
    return results_of(question, chunk, out)


def in_chunks(
    question: Question,
    measure: Measure,
    work: dense.Work,
    find: Search,
    results: Results,
    known: dense.Side | None = None,
) -> tuple[dense.Integers, Scores]:
    """Indices and scores of all queries by a fitted measure.

    known: the transformed queries, where they are there already.
    """
    n = question.queries.shape[0]
    exclusions = question.exclusions or dense.no_exclusions(n, own=False)
    for first, last in results.left():
        Q = question.queries if last - first == n else question.queries[first:last]
        if known is None:
            side = dense.side(measure.queries(Q), None, work.n_threads, measure.form)
        else:
            some = slice(first, last)
            side = dense.Side(known.rows[some], known.norms[some], known.offsets[some])
        told = work.progress
        if told is not None and last - first < n:
            told = _shifted(told, first, last, n)
        excluded = exclusions.of_rows(first, last)
        columns, keys = find(side, excluded, work._replace(progress=told))
        found = measure.finish(keys, Q)
        if question.min_score is not None:
            low = found < question.min_score
            columns[low], found[low] = -1, -np.inf
        found[columns < 0] = -np.inf
        with np.errstate(over="ignore"):  # infinite beyond float32; the order is that of float64
            results.write(first, indices=columns, scores=found.astype(np.float32))
    done = results.finished()
    return done["indices"], done["scores"]


def _shifted(progress: parallel.Progress, first: int, last: int, n: int) -> parallel.Progress:
    return lambda done, total: progress(first + done * (last - first) // total, n)
