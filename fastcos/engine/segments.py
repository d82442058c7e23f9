"""Exact neighbours among rows that need not fit memory: blocks of queries by blocks of items."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastcos import parallel, validation
from fastcos.engine import scan as dense
from fastcos.kernels import exhaustive_top_k
from fastcos.measures import Measure, Plain, get_measure
from fastcos.measures.base import learns_in_blocks
from fastcos.storage import memmap
from fastcos.storage.checkpoint import Results, ResultsInMemory, ResumableRun, rows_of_a_block

Scores = npt.NDArray[np.float32]

# shares of the working memory for the queries' rows and results at most, and for both them and a
# block of items; as many items again are prepared for every block of queries as queries are packed
# for every block of items, so where there are many of both the blocks are about even
_QUERIES_SHARE, _SHARE_OF_BOTH = 0.4, 0.75
# norms, offsets, and what the search keeps of a row; codes and mapped rows, per column
_BYTES_PER_ROW, _BYTES_PER_CODE, _BYTES_PER_MAPPED_ENTRY = 160, 2, 16
# columns and keys of a query: the best so far, those of the block, and the best of both
_BYTES_PER_NEIGHBOR = 48
# queries whose neighbours are put side by side at once
_MERGED_AT_ONCE = 4096
# queries of a block that is kept, at least: every block reads all items anew
_FEWEST_QUERIES = 1 << 17
# blocks of items begin at multiples: a map that multiplies so many rows at a time has the same bits
# in a block as in the whole
ROWS_OF_A_MAP = 4096


class Question(NamedTuple):
    """What is asked, and of whom; arrays may lie on disk.

    searched: the items; candidates: rising numbers of those that may be found, None for all.
    exclusions: of all queries; None where the caller of best_among has them.
    """

    queries: Any
    searched: Any
    k: int
    measure: str | Measure
    candidates: dense.Integers | None
    exclusions: dense.Exclusions | None
    min_score: float | None


def can_stream(measure: str | Measure) -> bool:
    """Whether items can be searched by the measure in blocks."""
    return learns_in_blocks(get_measure(measure))


def results_of(question: Question, block: int, out: Any) -> Results:
    """Where the neighbours go, block queries at a time: to memory, or to the directory out."""
    n, k = question.queries.shape[0], question.k
    arrays = {"indices": ((n, k), np.int64), "scores": ((n, k), np.float32)}
    if out is None:
        return ResultsInMemory(arrays, block)
    measure = get_measure(question.measure)
    validation.as_measure_of_blocks("measure", not learns_in_blocks(measure), measure.name)
    return ResumableRun(out, asked(question, measure), arrays, block)


def streamed_top_k(question: Question, work: dense.Work, out: Any) -> tuple[dense.Integers, Scores]:
    """Indices and scores (n, k) as top_k has them; in the directory out if that is given.

    A measure that learns reads the items once more, before all others.
    """
    measure = get_measure(question.measure)
    validation.as_measure_of_blocks("measure", not learns_in_blocks(measure), measure.name)
    block, _, _ = blocks_that_fit(question, measure, work)
    if out is not None:
        of_a_row = len(question.searched) * question.searched.shape[1]
        block = min(block, rows_of_a_block(of_a_row, least=_FEWEST_QUERIES))
    results = results_of(question, block, out)
    if not results.is_complete:
        measure = measure.fit(question.searched)
    return _search_in_blocks(question, measure, work, results)


def search_in_blocks(
    question: Question, measure: Measure, work: dense.Work
) -> tuple[dense.Integers, Scores]:
    """The same by a fitted measure, in memory."""
    block, _, _ = blocks_that_fit(question, measure, work)
    return _search_in_blocks(question, measure, work, results_of(question, block, None))


def _search_in_blocks(
    question: Question, measure: Measure, work: dense.Work, results: Results
) -> tuple[dense.Integers, Scores]:
    """Every block of queries reads the items once, in blocks; one block of each is in memory.

    The keys are float64 scores of the given rows, so cutting them into blocks changes no bit.
    """
    n = len(question.queries)
    _, items_block, work = blocks_that_fit(question, measure, work)
    for lo, hi in results.left():
        told = _told(work.progress, lo, hi, n)
        columns, scores = _block_of_queries(question, measure, lo, hi, items_block, work, told)
        results.write(lo, indices=columns, scores=scores)
    found = results.finished()
    return found["indices"], found["scores"]


def blocks_that_fit(
    question: Question, measure: Measure, work: dense.Work
) -> tuple[int, int, dense.Work]:
    """Queries and items of a block, and what the search of a block may use."""
    memory = work.working_memory
    per_query = _bytes_per_row(measure, "queries", question.queries)
    per_query += _BYTES_PER_NEIGHBOR * question.k
    per_item = _bytes_per_row(measure, "items", question.searched)
    n, m = len(question.queries), len(question.searched)
    block = memmap.rows_that_fit(memory, _QUERIES_SHARE, per_query, n)
    items_share = _SHARE_OF_BOTH - block * per_query / memory
    items_block = memmap.rows_that_fit(memory, items_share, per_item, m)
    items_block -= items_block % ROWS_OF_A_MAP if items_block > ROWS_OF_A_MAP else 0
    rest = (1 - _SHARE_OF_BOTH) * memory
    return block, items_block, work._replace(working_memory=rest)


def _bytes_per_row(measure: Measure, side: str, X: Any) -> int:
    """Memory of a row of one side of a block, with its mapped copy if the map makes one."""
    entry = max(4, X.dtype.itemsize) + _BYTES_PER_CODE
    kind = type(measure)
    maps = {getattr(kind, "items", None), getattr(kind, side, None)}
    if not maps <= {Plain.items, Plain.queries}:
        entry += _BYTES_PER_MAPPED_ENTRY
    return int(entry * X.shape[1] + _BYTES_PER_ROW)


def _block_of_queries(
    question: Question,
    measure: Measure,
    lo: int,
    hi: int,
    items_block: int,
    work: dense.Work,
    told: Callable[[float], object],
) -> tuple[dense.Integers, Scores]:
    """Neighbours of queries [lo, hi) among all items."""
    Q = memmap.read_rows("queries", question.queries, lo, hi)
    items = range(len(question.searched))
    exclusions = question.exclusions or dense.no_exclusions(len(question.queries), own=False)
    exclusions = exclusions.of_rows(lo, hi)
    columns, keys = best_among(question, measure, Q, exclusions, items, items_block, work, told)
    return finished(question, measure, Q, columns, keys)


def best_among(
    question: Question,
    measure: Measure,
    Q: validation.Rows,
    exclusions: dense.Exclusions,
    items: range,
    items_block: int,
    work: dense.Work,
    told: Callable[[float], object],
) -> tuple[dense.Integers, dense.Floats]:
    """Columns and keys (m, k) of the best of some items for the queries Q (m, d)."""
    validation.check_scorable("queries", Q, Q)
    queries = dense.side(measure.queries(Q), None, work.n_threads, measure.form)
    k = question.k
    best_columns = np.full((len(Q), k), -1, np.int64)
    best_keys = np.full((len(Q), k), -np.inf)
    for first, last, candidates in _blocks_with(question.candidates, items, items_block):
        B = memmap.read_rows("items", question.searched, first, last, work.n_threads)
        validation.check_scorable("items", B, B)
        side = dense.side(measure.items(B), measure.item_offsets(B), work.n_threads, measure.form)
        columns, keys = _search(
            measure.form, side, candidates - first, queries, _among(exclusions, first, last),
            k, work._replace(progress=_share(told, first, last, len(items))),
            best_keys[:, -1],
        )  # fmt: skip
        columns[columns >= 0] += first
        best_columns, best_keys = merged((best_columns, best_keys), (columns, keys), work)
    return best_columns, best_keys


def finished(
    question: Question,
    measure: Measure,
    Q: validation.Rows,
    columns: dense.Integers,
    keys: dense.Floats,
) -> tuple[dense.Integers, Scores]:
    """Indices and scores of the queries Q from the columns and keys of their neighbours."""
    scores = measure.finish(keys, Q)
    columns = columns.copy()
    if question.min_score is not None:
        columns[scores < question.min_score] = -1
    scores[columns < 0] = -np.inf
    with np.errstate(over="ignore"):  # infinite beyond float32, as top_k's
        return columns, scores.astype(np.float32)


def _search(
    form: str,
    items: dense.Side,
    candidates: dense.Integers,
    queries: dense.Side,
    exclusions: dense.Exclusions,
    k: int,
    work: dense.Work,
    floors: dense.Floats,
) -> tuple[dense.Integers, dense.Floats]:
    """Columns and keys of a block's best k candidates at or above the floors, padded."""
    candidates = validation.read_only(candidates)
    if len(queries.rows) <= dense.SCORES_PER_PACKING:
        return dense.score_all(form, items, candidates, queries, exclusions, k, work)
    prepared = dense.prepare(form, items, candidates, work.n_threads)
    return dense.search(prepared, queries, exclusions, k, work, floors=floors)


Found = tuple[dense.Integers, dense.Floats]


def merged(some: Found, others: Found, work: dense.Work) -> Found:
    """Columns and keys (m, k) of the k best of both."""
    columns = parallel.unfilled(some[0].shape, np.int64)
    keys = parallel.unfilled(some[0].shape, np.float64)
    cuts = parallel.row_blocks(len(columns), _MERGED_AT_ONCE)
    parallel.run(_merge_rows, cuts, some, others, columns, keys, n_threads=work.n_threads)
    return columns, keys


def _merge_rows(
    lo: int, hi: int, some: Found, others: Found, columns: dense.Integers, keys: dense.Floats
) -> None:
    both_columns, both_keys = (
        validation.read_only(np.stack([one[lo:hi], other[lo:hi]], axis=1))
        for one, other in zip(some, others, strict=True)
    )
    exhaustive_top_k.merge_rows(0, hi - lo, both_keys, both_columns, keys[lo:hi], columns[lo:hi])


def _blocks_with(
    candidates: dense.Integers | None, items: range, block: int
) -> Iterator[tuple[int, int, dense.Integers]]:
    """Blocks [first, last) of items that have candidates, with these."""
    for first in range(items.start, items.stop, block):
        last = min(items.stop, first + block)
        if candidates is None:
            some = np.arange(first, last, dtype=np.int64)
        else:
            some = candidates[slice(*np.searchsorted(candidates, [first, last]))]
        if len(some):
            yield first, last, some


def _among(exclusions: dense.Exclusions, first: int, last: int) -> dense.Exclusions:
    """Exclusions that lie in a block of items, as numbers within it."""
    inside = (exclusions.own >= first) & (exclusions.own < last)
    own = np.where(inside, exclusions.own - first, -1)
    start, end = exclusions.indptr[0], exclusions.indptr[-1]
    indices = exclusions.indices[start:end]
    kept = (indices >= first) & (indices < last)
    counts = np.concatenate([[0], np.cumsum(kept)])
    indptr = counts[exclusions.indptr - start].astype(np.int64)
    return dense.Exclusions(*map(validation.read_only, (own, indptr, indices[kept] - first)))


def asked(question: Question, measure: Measure) -> dict[str, Any]:
    """All that the result depends on."""
    import joblib  # here, for it takes 0.2 s; its hash sees every bit of a measure's arrays

    same = question.queries is question.searched
    return {
        "queries": memmap.fingerprint(question.queries),
        "items": "the queries" if same else memmap.fingerprint(question.searched),
        "k": question.k,
        "measure": [measure.name, joblib.hash(vars(measure))],
        "candidates": _identities(question.candidates),
        "exclusions": _identities(*(question.exclusions or ())),
        "min_score": question.min_score,
    }


def _identities(*arrays: npt.NDArray[Any] | None) -> list[Any]:
    return [array if array is None else memmap.fingerprint(array) for array in arrays]


def _told(
    progress: parallel.Progress | None, lo: int, hi: int, n: int
) -> Callable[[float], object]:
    """Tell of a share of queries [lo, hi) as a number of queries; some are searched twice."""
    most = 0.0

    def tell(share: float) -> None:
        nonlocal most
        most = max(most, share)
        if progress is not None:
            progress(lo + int(most * (hi - lo)), n)

    return tell


def _share(
    told: Callable[[float], object], first: int, last: int, n_items: int
) -> parallel.Progress:
    """Progress of a block of items as a share of a block of queries."""
    return lambda done, total: told((first + (last - first) * done / total) / n_items)
