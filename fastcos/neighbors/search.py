"""Exact top-k: the one pipeline under ``top_k``, ``SimilarityIndex`` and out-of-core search."""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from fastcos import config, parallel, storage, validation
from fastcos.engine import segments
from fastcos.engine.packing import (
    EncodedRows,
    ExcludedItems,
    ExecutionOptions,
    Floats,
    Integers,
    encode_rows,
    no_exclusions,
)
from fastcos.engine.segments import Segment
from fastcos.measures.base import (
    Measure,
    Plain,
    UpperBounded,
    encode_items,
    get_measure,
    require,
)
from fastcos.neighbors.types import (
    MAPPED_SEARCH_SHARE,
    FittedItems,
    Neighbors,
    SearchRequest,
    no_neighbors,
    padded,
)

# bytes of a query in a batch beside its columns and results: norms, bias, lanes, candidates
_BYTES_PER_QUERY = 128
# queries of a batch at least, so that every thread has some
_LEAST_BATCH = 1024
# share of the working memory for a batch's encoded rows and results
_BATCH_SHARE = 0.25


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
    and never held as a whole, by measures with the capability ``blocks``.

    Parameters
    ----------
    queries : array_like (n, d), or (d,) where items are given; or sparse
        One row per query. A zero row has no direction: its cosine with everything is 0. float32
        and float64 are used as they are, other real types are converted exactly; also tensors in
        main memory, Arrow columns, and columns of vectors of a table.
    items : array_like (m, d), optional
        What is searched. None: the queries themselves.
    k : int
        Neighbours per query, from 1 to the number of items that a query may find.
    measure : str or Measure
        A name of ``fastcos.list_measures()``, or an object like them.
    exclude_self : bool
        With items=None, whether a row is kept from being its own neighbour.
    allowed : array_like, optional
        A mask (m,) or item numbers: only these can be found. Fewer than k of them: padded.
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
        A new directory, written batch by batch: indices.npy, scores.npy and run.json. The same call
        after an interrupt or a crash resumes there; what is returned are memory maps. For measures
        with the capability ``blocks``.

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
    >>> from fastcos import top_k
    >>> found = top_k(np.array([[1.0, 0.0], [1.0, 0.2], [0.0, 1.0]]), k=1)
    >>> found.indices.ravel().tolist()
    [1, 0, 1]
    """
    exclude_self = validation.as_flag("exclude_self", exclude_self)
    if validation.is_sparse(queries) or validation.is_sparse(items):
        from fastcos.neighbors.sparse import sparse_top_k

        validation.check_none("out", out, "for sparse rows")
        as_options(n_threads, working_memory, progress)
        return sparse_top_k(
            queries, items, k, measure=measure, exclude_self=exclude_self, allowed=allowed,
            exclude=exclude, min_score=min_score, n_threads=n_threads, progress=progress,
        )  # fmt: skip
    given = get_measure(measure)
    if out is not None:
        require(given, "blocks")
    Q = as_items("queries", queries, given, or_vector=items is not None)
    X = Q if items is None else as_items("items", items, given)
    options = as_options(n_threads, working_memory, progress)
    request = as_request(
        Q, X, k, own=items is None and exclude_self, allowed=allowed, exclude=exclude,
        min_score=min_score,
    )  # fmt: skip
    if not request.k:
        return padded(no_neighbors(len(Q)), k)
    results = None
    if out is not None:
        validation.as_count("k", k, high=request.k)
        from fastcos.neighbors.out_of_core import results_in_directory

        results = results_in_directory(request, X, given, options, out)
        if results.is_complete:
            return Neighbors(**results.finish())
    fitted = fit_items(X, given, options.n_threads)
    if fitted.segment is not None and request.permitted is not None:
        # pack only what may be found
        fitted = fitted._replace(segment=fitted.segment.only(request.permitted))
        request = request._replace(permitted=None)
    return padded(search(fitted, request, options, results), k)


def as_items(name: str, X: Any, measure: Measure, *, or_vector: bool = False) -> Any:
    """Return X as checked rows; memory-mapped ones are left on disk if the measure allows it."""
    if isinstance(X, np.memmap) and X.ndim > 1:
        from fastcos.measures.base import capabilities
        from fastcos.storage.memmap import as_mapped_rows

        if capabilities(measure).blocks:
            return as_mapped_rows(name, X)
    return validation.as_rows(name, X, or_vector=or_vector)


def as_options(
    n_threads: int | None, working_memory: float | None, progress: parallel.Progress | None = None
) -> ExecutionOptions:
    """Settle how a call may use the machine."""
    validation.check_progress(progress)
    size = config.num_threads()
    if n_threads is not None:
        size = validation.as_thread_count("n_threads", n_threads)
    if working_memory is None:
        working_memory = config.working_memory()
    memory = validation.as_real("working_memory", working_memory, above=0)
    return ExecutionOptions(size, memory * 2**20, progress)


def as_request(
    Q: Any,
    X: Any,
    k: int,
    *,
    own: bool = False,
    live: Integers | None = None,
    allowed: Any = None,
    exclude: Any = None,
    min_score: float | None = None,
) -> SearchRequest:
    """Check the arguments of a search of the items X, of which only `live` ones can be found.

    own: query i is item i and must not find itself.
    """
    n, n_items = Q.shape[0], X.shape[0]
    if live is None:
        validation.check_same_width("items", X, "queries", Q)
    else:
        validation.check_same_width("queries", Q, "the items of the index", X)
    permitted = None
    k = validation.as_neighbor_count(k, n_items if live is None else len(live), without_itself=own)
    if allowed is not None:
        permitted = validation.as_item_numbers("allowed", allowed, n_items)
        if live is not None:
            permitted = np.intersect1d(permitted, live, assume_unique=True)
        k = min(k, len(permitted))  # the caller pads
    exclusions = no_exclusions(n, own=own) if own else None
    if exclude is not None:
        from fastcos.linalg.csr import as_interactions

        pairs = as_interactions("exclude", exclude)
        validation.check_shape("exclude", pairs.shape, (n, n_items))
        itself = no_exclusions(n, own=own).own
        arrays = itself, pairs.indptr.astype(np.int64), pairs.indices.astype(np.int64)
        exclusions = ExcludedItems(*map(validation.read_only, arrays))
    if min_score is not None:
        min_score = validation.as_real("min_score", min_score)
    return SearchRequest(Q, k, permitted, exclusions, min_score)


def fit_items(
    X: Any, measure: Measure, n_threads: int | None, numbers: Integers | None = None
) -> FittedItems:
    """Fit the measure to the items of these numbers (all if None) and encode them."""
    live = X if numbers is None or len(numbers) == len(X) else X[numbers]
    fitted = measure.fit(live)
    if isinstance(X, np.memmap):
        return FittedItems(X, fitted, None)
    if numbers is None:
        numbers = np.arange(len(X), dtype=np.int64)
    encoded = encode_items(fitted, X, n_threads)
    return FittedItems(X, fitted, Segment(fitted.metric_type, encoded, numbers, n_threads))


def search(
    items: FittedItems, request: SearchRequest, options: ExecutionOptions, results: Any = None
) -> Neighbors:
    """Answer a request: every batch of queries meets every segment, and is finished once.

    results: where batches go instead of memory, see storage.checkpoint.
    """
    n, k = request.queries.shape[0], request.k
    batches: Iterator[tuple[int, int]]
    if results is None:
        indices, scores = parallel.unfilled((n, k), np.int64), parallel.unfilled((n, k), np.float32)
        size = batch_size(items, request, options)
        batches = iter([(lo, min(n, lo + size)) for lo in range(0, n, size)])
    else:
        batches = results.missing()
    for lo, hi in batches:
        Q = read_batch(request.queries, lo, hi)
        columns, raw = best_of_items(items, request, Q, lo, options)
        found, found_scores = finish(items.measure, Q, columns, raw, request.min_score)
        if results is None:
            indices[lo:hi], scores[lo:hi] = found, found_scores
        else:
            results.write(lo, indices=found, scores=found_scores)
    return Neighbors(indices, scores) if results is None else Neighbors(**results.finish())


def batch_size(items: FittedItems, request: SearchRequest, options: ExecutionOptions) -> int:
    """Queries whose encoded rows and results fit their share of the working memory."""
    if isinstance(items.rows, np.memmap) or isinstance(request.queries, np.memmap):
        from fastcos.neighbors.out_of_core import block_sizes

        return block_sizes(items.rows, request, items.measure, options).queries
    depth = request.queries.shape[1]
    bytes_per_query = 24 * request.k + 24 * depth + _BYTES_PER_QUERY
    return max(_LEAST_BATCH, int(_BATCH_SHARE * options.working_memory / bytes_per_query))


def read_batch(queries: Any, lo: int, hi: int) -> validation.Rows:
    """Return queries [lo, hi) as checked rows."""
    if isinstance(queries, np.memmap):
        from fastcos.storage.memmap import read_rows

        return read_rows("queries", queries, lo, hi)
    Q: validation.Rows = queries if hi - lo == len(queries) else queries[lo:hi]
    return Q


def best_of_items(
    items: FittedItems,
    request: SearchRequest,
    Q: validation.Rows,
    first: int,
    options: ExecutionOptions,
    within: range | None = None,
) -> tuple[Integers, Floats]:
    """Columns and raw scores (m, k) of the best items for the queries Q, numbered from first.

    within: search these items only; all if None. Each segment is searched by one of two strategies,
    the inner-product scan or filter and refine, and starts from the k-th best of those before it.
    """
    measure, k, n = items.measure, request.k, request.queries.shape[0]
    validation.check_scorable("queries", Q, Q)
    exclusions = no_exclusions(len(Q))
    if request.exclusions is not None:
        exclusions = request.exclusions.of_range(first, first + len(Q))
    queries = _encoded_queries(items, request, Q, first, options)
    report = _query_progress(options.progress, first, first + len(Q), n)
    memory = options.working_memory * (1 if items.segment is not None else MAPPED_SEARCH_SHARE)
    # segments that are read hold only permitted items
    permitted = request.permitted if items.segment is not None else None
    best: tuple[Integers, Floats] | None = None
    for segment, rows, share in _segments(items, request, options, within):
        start, stop = segment.first, segment.first + len(segment.encoded.rows)
        here = exclusions
        if (start, stop) != (0, len(items.rows)):
            here = segments.exclusions_within(exclusions, start, stop)
        limited = ExecutionOptions(
            options.n_threads, memory, None if report is None else report(share)
        )
        if isinstance(measure, UpperBounded):
            from fastcos.neighbors.filter_refine import filter_and_refine

            find: segments.Search = functools.partial(
                filter_and_refine, measure, segment, rows, Q, permitted=permitted, best=best
            )
        else:
            thresholds = None if best is None else best[1][:, -1]
            find = segment.plan(len(Q), here, permitted, thresholds)
        found = find(queries, here, k, limited)
        if start:
            found[0][found[0] >= 0] += start
        best = found if best is None else segments.merge(best, found, options.n_threads)
    if best is None:
        return np.full((len(Q), k), -1, np.int64), np.full((len(Q), k), -np.inf)
    return best


def finish(
    measure: Measure,
    Q: validation.Rows,
    columns: Integers,
    raw: Floats,
    min_score: float | None,
) -> tuple[Integers, npt.NDArray[np.float32]]:
    """Turn columns and raw scores of the queries Q into results: the only place that does."""
    scores = measure.to_score(raw, Q)
    if min_score is not None:
        columns = np.where(scores < min_score, -1, columns)
    scores = np.where(columns < 0, -np.inf, scores)
    with np.errstate(over="ignore"):  # infinite beyond float32; the order is that of float64
        return columns, scores.astype(np.float32)


def _encoded_queries(
    items: FittedItems,
    request: SearchRequest,
    Q: validation.Rows,
    first: int,
    options: ExecutionOptions,
) -> EncodedRows:
    """Encode the queries; where they are the items, encoded alike, take those."""
    measure, segment = items.measure, items.segment
    alike = getattr(type(measure), "encode_queries", None) is Plain.encode_queries
    if segment is not None and request.queries is items.rows and alike:
        if len(Q) == len(items.rows):
            return segment.encoded
        return segment.encoded.take(slice(first, first + len(Q)))
    return encode_rows(measure.encode_queries(Q), None, options.n_threads, measure.metric_type)


def _segments(
    items: FittedItems, request: SearchRequest, options: ExecutionOptions, within: range | None
) -> Iterator[tuple[Segment, validation.Rows, tuple[float, float]]]:
    """Yield each segment, its rows as given, and which share of all items it is."""
    if items.segment is not None:
        yield items.segment, items.rows, (0.0, 1.0)
        return
    from fastcos.neighbors.out_of_core import read_segments

    yield from read_segments(items, request, options, within)


def _query_progress(
    progress: parallel.Progress | None, first: int, last: int, n: int
) -> Callable[[tuple[float, float]], parallel.Progress] | None:
    """Report a share of a segment, itself a share of all items, as a number of n queries."""
    if progress is None:
        return None
    most = first

    def of_segment(share: tuple[float, float]) -> parallel.Progress:
        start, stop = share

        def report(done: int, total: int) -> None:
            nonlocal most
            part = start + (stop - start) * done / total
            # some queries are searched twice
            most = max(most, first + int(part * (last - first)))
            progress(most, n)

        return report

    return of_segment
