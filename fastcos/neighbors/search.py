"""Exact nearest neighbours by any measure that reduces to inner products."""

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from fastcos import config, parallel, storage, validation
from fastcos.engine import duplicates, query_batches, scan as dense, seeds
from fastcos.engine.segments import Question, can_stream, streamed_top_k
from fastcos.linalg.csr import as_interactions
from fastcos.measures import Bounded, Guided, Measure, Plain, get_measure
from fastcos.neighbors import filter_refine, ratio
from fastcos.neighbors.sparse import sparse_top_k
from fastcos.storage import memmap

# columns and keys (n, k) of the nearest k of some rows, by their numbers
Finder = Callable[[dense.Integers, int], tuple[dense.Integers, dense.Floats]]


class Neighbors(NamedTuple):
    """The neighbours of every query, best first.

    Attributes
    ----------
    indices : ndarray (n, k), int64
        Items by falling score; equal scores by lower index. -1 where fewer than k qualify.
    scores : ndarray (n, k), float32
        Their scores; -inf where fewer than k qualify. Infinite where float32 cannot hold a score.

    Examples
    --------
    >>> import fastcos
    >>> found = fastcos.top_k([[1.0, 0.0], [0.0, 1.0], [3.0, 0.1]], k=1)
    >>> found.indices.ravel().tolist()
    [2, 2, 0]
    """

    indices: npt.NDArray[np.int64]
    scores: npt.NDArray[np.float32]


def top_k(
    queries: Any,
    items: Any = None,
    k: int = 10,
    *,
    measure: str | Measure = "cosine",
    exclude_self: bool = True,
    allowed: Any = None,
    exclude: Any = None,
    min_score: float | None = None,
    n_threads: int | None = None,
    working_memory: float | None = None,
    progress: parallel.Progress | None = None,
    out: storage.PathLike | None = None,
) -> Neighbors:
    """The k items most similar to every query.

    Exact: the order is that of the float64 scores of the given rows, the same bits for any number
    of threads, block size, instruction set and driver. Time O(n m d); no n x m matrix is held.
    Memory-mapped rows (``np.load(path, mmap_mode="r")``) are read in blocks that fit working_memory
    and never held as a whole, by measures that need no search before.

    Parameters
    ----------
    queries : array_like (n, d), float32 or float64; or sparse
        One row per query. A zero row has no direction: its cosine with everything is 0.
    items : array_like (m, d), optional
        What is searched. None: the queries themselves.
    k : int
        Neighbours per query, from 1 to the number of items that a query may find.
    measure : str or Measure
        A name of ``fastcos.list_measures()``, or an object like them.
    exclude_self : bool
        With items=None, whether a row is kept from being its own neighbour.
    allowed : array_like, optional
        A mask (m,) or item numbers: only these can be found.
    exclude : sparse (n, m), optional
        Its non-zeros are pairs that must not be found, such as what a user has seen already. A
        query with fewer than k other items is padded.
    min_score : float, optional
        Neighbours with a lower score are left out and padded.
    n_threads : int, optional
        Default: the setting ``num_threads``.
    working_memory : float, optional
        MiB for buffers besides inputs and outputs. Default: the setting ``working_memory``.
    progress : callable, optional
        Called as progress(done, total) with numbers of queries.
    out : path-like, optional
        A new directory, written block by block: indices.npy, scores.npy and run.json. The same call
        after an interrupt or a crash goes on where that stopped; what is returned are memory maps.
        For measures that see one row at a time, or means and moments of all before.

    Returns
    -------
    Neighbors
        indices (n, k) int64 and scores (n, k) float32.

    Raises
    ------
    ValueError
        NaN or infinity, k out of range, rows of different width, item numbers out of range, an out
        that holds something else.
    TypeError
        Rows that are not numbers.

    Examples
    --------
    >>> import numpy as np
    >>> from fastcos.neighbors import top_k
    >>> found = top_k(np.array([[1.0, 0.0], [1.0, 0.2], [0.0, 1.0]]), k=1)
    >>> found.indices.ravel().tolist()
    [1, 0, 1]
    """
    sparse = sp.issparse(queries) or sp.issparse(items)
    of_bags = sparse and getattr(measure, "of_bags", False)
    if sparse:
        validation.check_none("out", out, "for sparse rows")
    if sparse and not of_bags:
        indices, scores = sparse_top_k(
            queries, items, k, measure=measure, exclude_self=exclude_self, allowed=allowed,
            exclude=exclude, min_score=min_score, n_threads=n_threads, progress=progress,
        )  # fmt: skip
        return Neighbors(indices, scores)
    on_disk = memmap.is_memmap(queries) or memmap.is_memmap(items)
    streams = on_disk and (out is not None or can_stream(measure))
    as_rows: Any = memmap.as_mapped_rows if streams else validation.as_rows
    as_rows = as_interactions if of_bags else as_rows
    given = as_rows("queries", queries)
    searched = given if items is None else as_rows("items", items)
    validation.check_same_width("items", searched, "queries", given)
    own = items is None and exclude_self
    n, n_items = given.shape[0], searched.shape[0]
    candidates = np.arange(n_items, dtype=np.int64)
    if allowed is not None:
        candidates = validation.as_item_numbers("allowed", allowed, n_items)
    k = validation.as_neighbor_count(k, len(candidates), without_itself=own)
    exclusions = as_exclusions(exclude, n, n_items, own)
    work = as_work(n_threads, working_memory, progress)
    if min_score is not None:
        min_score = validation.as_real("min_score", min_score)
    some = None if allowed is None else candidates
    question = Question(given, searched, k, measure, some, exclusions, min_score)
    if streams:
        return Neighbors(*streamed_top_k(question, work, out))
    if not of_bags:
        validation.check_scorable("queries", given, searched)
    restricted = allowed is not None or exclude is not None
    guided = own and not restricted
    return Neighbors(*_top_k_in_memory(question, work, out, guided=guided, restricted=restricted))


def _top_k_in_memory(
    question: Question, work: dense.Work, out: Any, *, guided: bool, restricted: bool
) -> tuple[dense.Integers, npt.NDArray[np.float32]]:
    """Indices and scores (n, k) of rows in memory; in the directory out if that is given.

    guided: all items may find all others, so what a measure has met in its fit may help;
    restricted: queries may not find some items besides themselves.
    """
    results = None if out is None else query_batches.results_in_chunks(question, work, out)
    if results is not None and results.is_complete:
        found = results.finished()
        return found["indices"], found["scores"]
    searched, k, n_threads = question.searched, question.k, work.n_threads
    candidates = question.candidates
    if candidates is None:
        candidates = np.arange(searched.shape[0], dtype=np.int64)
    fitted: Any = get_measure(question.measure).fit(searched)
    n = question.queries.shape[0]
    exclusions = question.exclusions or dense.no_exclusions(n, own=False)
    asked = filter_refine.Asked(question.queries, exclusions, k)
    if ratio.serves(fitted, n):
        return ratio.search(fitted, asked, searched, candidates, question.min_score, work)
    items = dense.side(
        fitted.items(searched), fitted.item_offsets(searched), n_threads, fitted.form
    )
    guide = fitted if guided and isinstance(fitted, Guided) else None
    find = _engine(fitted.form, items, candidates, k, n, restricted, guide, n_threads)
    # one map for both sides: the queries are mapped already
    same = question.queries is searched and getattr(type(fitted), "queries", None) is Plain.queries
    known = items if same else None
    if isinstance(fitted, Bounded):
        engine = filter_refine.Engine(
            find,
            lambda: dense.prepare(fitted.form, items, candidates, n_threads),
            len(candidates) - bool((exclusions.own >= 0).any()),
            known=known,
        )
        return filter_refine.in_chunks(fitted, asked, searched, question.min_score, work, engine)
    if results is None:
        results = query_batches.results_in_chunks(question, work)
    return query_batches.in_chunks(question, fitted, work, find, results, known)


def _engine(
    form: str,
    items: dense.Side,
    candidates: dense.Integers,
    k: int,
    n_queries: int,
    restricted: bool,
    guide: Guided | None,
    n_threads: int | None,
    *,
    likely: bool = False,
) -> Any:
    """The way to search the candidates that is fastest for so many queries.

    restricted: whether queries may not find some items besides themselves; guide: the measure,
    where its fit may have met the neighbours of these queries; likely: whether the queries are the
    items, whose norms may tell how near their neighbours are.
    """
    if n_queries <= dense.SCORES_PER_PACKING:
        return lambda side, out, work, k=k: dense.score_all(
            form, items, candidates, side, out, k, work
        )
    groups = None if restricted else duplicates.grouped(items)
    if groups is not None:
        distinct = dense.prepare(form, items, groups.first, n_threads)
        return lambda side, out, work, k=k: duplicates.search(
            distinct, groups, side, out.own, k, work
        )
    listed = None if guide is None else guide.candidates()
    if listed is not None:
        mutual = seeds.mutual_lists(listed, n_threads)
        prepare = functools.cache(lambda: dense.prepare(form, items, candidates, n_threads))
        return lambda side, out, work, k=k: seeds.search(
            form, items, prepare, mutual, side, out, k, work
        )
    prepared = dense.prepare(form, items, candidates, n_threads)
    if likely:
        return lambda side, out, work, k=k: seeds.search_likely(prepared, side, out, k, work)
    return lambda side, out, work, k=k: dense.search(prepared, side, out, k, work)


def nearest_by(
    form: str,
    queries: dense.Rows,
    items: dense.Rows | None,
    k: int,
    depth: Callable[[Finder], int] | None = None,
) -> tuple[dense.Integers, dense.Floats]:
    """Columns and float64 keys (n, k) by a form, for measures; items=None: among themselves.

    depth: says from the neighbours of some queries how many are to be found instead of k.
    """
    n, own = len(queries), items is None
    side = dense.side(queries, None, None, form)
    other = side if items is None else dense.side(items, None, None, form)
    every = np.arange(len(other.rows), dtype=np.int64)
    find = _engine(form, other, every, k, n, False, None, None, likely=own and form == "euclidean")
    exclusions, work = dense.no_exclusions(n, own=own), as_work(None, None, None)
    if depth is not None:
        k = depth(lambda some, k: find(side.of(some), exclusions.of(some), work, k=k))
    columns, keys = find(side, exclusions, work, k=k)
    return columns, keys


def as_exclusions(exclude: Any, n: int, n_items: int, own: bool) -> dense.Exclusions:
    """Settle what each of n queries may not find: itself if own, and the non-zeros of exclude."""
    everything = dense.no_exclusions(n, own=own)
    if exclude is None:
        return everything
    matrix = as_interactions("exclude", exclude)
    validation.check_shape("exclude", matrix.shape, (n, n_items))
    pairs = matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64)
    return dense.Exclusions(everything.own, *map(validation.read_only, pairs))


def as_work(
    n_threads: int | None, working_memory: float | None, progress: parallel.Progress | None
) -> dense.Work:
    """Settle how a call may use the machine."""
    if n_threads is not None:
        n_threads = validation.as_count("n_threads", n_threads)
    if working_memory is None:
        working_memory = config.working_memory()
    size = validation.as_real("working_memory", working_memory, above=0)
    return dense.Work(n_threads, size * 2**20, progress)


def similarity_blocks(
    queries: Any,
    items: Any = None,
    *,
    measure: str | Measure = "cosine",
    block: int | None = None,
    working_memory: float | None = None,
) -> Iterator[tuple[slice, npt.NDArray[np.float32]]]:
    """Scores of every query with every item, some rows at a time.

    A float32 (float64 for float64 rows) matrix product of the transformed rows: within rounding of
    the scores of :func:`top_k`, not the same bits. Time O(n m d), memory one block.

    Parameters
    ----------
    queries : array_like (n, d), float32 or float64
        One row per query.
    items : array_like (m, d), optional
        None: the queries themselves.
    measure : str or Measure
        As in :func:`top_k`.
    block : int, optional
        Rows of a block. Default: as many as fit working_memory.
    working_memory : float, optional
        MiB for a block. Default: the setting ``working_memory``.

    Returns
    -------
    iterator of (slice, ndarray (rows, m), float32)
        Which queries a block belongs to, and their scores with all items.

    Raises
    ------
    ValueError
        NaN or infinity, rows of different width, a block of no rows.

    Examples
    --------
    >>> import numpy as np
    >>> from fastcos.neighbors import similarity_blocks
    >>> X = np.array([[3.0, 4.0], [4.0, 3.0], [0.0, 1.0]])
    >>> for rows, scores in similarity_blocks(X, X[:2]):
    ...     print(rows.stop, scores.astype(float).round(2).tolist())
    3 [[1.0, 0.96], [0.96, 1.0], [0.8, 0.6]]
    """
    given = validation.as_rows("queries", queries)
    searched = given if items is None else validation.as_rows("items", items)
    validation.check_same_width("items", searched, "queries", given)
    validation.check_scorable("queries", given, searched)
    if block is None:
        fits = as_work(None, working_memory, None).working_memory / (32 * len(searched))
        block = max(1, min(len(given), int(fits)))
    block = validation.as_count("block", block)
    fitted = get_measure(measure).fit(searched)
    return _blocks(fitted, given, searched, block)


def _blocks(
    measure: Measure, given: validation.Rows, searched: validation.Rows, block: int
) -> Iterator[tuple[slice, npt.NDArray[np.float32]]]:
    if isinstance(measure, Bounded):
        facts, every = measure.facts(searched), np.arange(len(searched))
        for first in range(0, len(given), block):
            Q = given[first : first + block]
            exact = measure.rescore(Q, facts, np.tile(every, (len(Q), 1)))
            yield slice(first, first + len(Q)), measure.finish(exact, Q).astype(np.float32)
        return
    offsets = measure.item_offsets(searched)
    right = dense.side(measure.items(searched), offsets, None, measure.form)
    of_directions = measure.form in ("cosine", "norm_angle")
    if of_directions:
        right = right._replace(rows=_unit(right))
    for first in range(0, len(given), block):
        Q = given[first : first + block]
        left = dense.side(measure.queries(Q), None, None, measure.form)
        if of_directions:
            left = left._replace(rows=_unit(left))
        keys = left.rows @ right.rows.T
        if of_directions:
            np.clip(keys, -1, 1, out=keys)
        if measure.form == "norm_angle":
            keys = -np.arccos(keys) - np.abs(left.norms[:, None] - right.norms)
        elif measure.form == "euclidean":
            keys = 2.0 * keys - left.norms[:, None] ** 2 - right.norms**2
            np.minimum(keys, 0.0, out=keys)
        elif offsets is not None:
            keys = keys + offsets
        scores = measure.finish(keys.astype(np.float64, copy=False), Q)
        yield slice(first, first + len(Q)), scores.astype(np.float32)


def _unit(side: dense.Side) -> validation.Rows:
    norms = np.where(side.norms > 0, side.norms, 1.0)[:, None]
    # in float64, also where norms are below the range of float32
    return np.divide(side.rows, norms, out=np.empty_like(side.rows), casting="same_kind")
