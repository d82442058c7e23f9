"""``top_k``: what it is given is checked here, and the search is done by ``execute``."""

from typing import Any

import numpy as np

from fastcos import parallel, storage, validation
from fastcos.search.bits import BIT_MEASURES, bit_top_k
from fastcos.search.execute import execute
from fastcos.search.item_groups import ItemGroups, QueryGroups
from fastcos.search.options import ExecutionOptions, as_options
from fastcos.search.request import (
    SearchRequest,
    as_exclude_self,
    as_items,
    as_min_score,
    as_request,
)
from fastcos.search.results import Neighbors, padded
from fastcos.search.sources import fit_items
from fastcos.similarity.base import Measure, get_measure, require


def top_k(
    queries: Any,
    items: Any = None,
    k: int = 10,
    *,
    measure: str | Measure = "cosine",
    exclude_self: bool | None = None,
    allowed: Any = None,
    exclude: Any = None,
    min_score: float | None = None,
    groups: Any = None,
    query_groups: Any = None,
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
        One row per query. A zero row has no direction: its cosine with everything is 0. Any real
        type, exactly; also tensors in main memory, Arrow columns, and columns of vectors of a
        table. float32 and float64 are used as they are. float16, bfloat16, int8 and int16 are
        widened block by block, by measures with the capability ``append``.
    items : array_like (m, d), optional
        What is searched. None: the queries themselves.
    k : int
        Neighbours per query, from 1 to the number of items that a query may find.
    measure : str or Measure
        A name of ``fastcos.list_measures()``, or an object like them. For packed bits, uint8 rows
        of ``np.packbits(rows, axis=1)``: "hamming", minus the number of bits that differ, or
        "bit_cosine", the cosine of the rows of 0 and 1.
    exclude_self : bool, optional
        Whether query i must not find item i. Default: True if items is None, otherwise False. If
        items are given, use True only if they are the same rows as the queries, as in
        ``top_k(X, X, exclude_self=True)``; there must be as many items as queries.
    allowed : array_like or sparse (n, m), optional
        A mask (m,) or item numbers: only these can be found. The non-zeros of a sparse matrix, for
        dense rows: the items that each query may find, all of which are scored. Fewer than k of
        them: padded.
    exclude : sparse (n, m), optional
        Its non-zeros are pairs that must not be found, such as what a user has seen already. A
        query with fewer than k other items is padded.
    min_score : float or Calibration, optional
        Neighbours with a lower score are left out and padded. The returned scores decide, so the
        threshold is rounded to float32 like them.
    groups : array_like (m,), int or str, optional
        The group of each item, such as a tenant, a language or a blocking key: a query finds only
        items of its own group, and the search costs as much as that group. Fewer than k of them:
        padded. For dense rows, which are read into memory, and with allowed as a mask or item
        numbers.
    query_groups : array_like (n,), int or str, or one group for all queries, optional
        The group of each query. Required with groups and items.
    n_threads : int, optional
        Default: the setting ``n_threads``.
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
    if isinstance(items, int | np.integer):  # other libraries take k in this place
        raise TypeError(f"items must be rows, got {items}; for {items} neighbours give k={items}")
    if validation.any_sparse(queries, items):
        from fastcos.search.sparse import sparse_top_k

        validation.check_none("out", out, "for sparse rows")
        validation.check_none("groups", groups, "for sparse rows")
        options = as_options(n_threads, working_memory, progress)
        return sparse_top_k(
            queries, items, k, measure=measure, exclude_self=exclude_self, allowed=allowed,
            exclude=exclude, min_score=min_score, options=options,
        )  # fmt: skip
    if isinstance(measure, str) and measure in BIT_MEASURES:
        refused = {"allowed": allowed, "exclude": exclude, "groups": groups, "out": out}
        for name, value in refused.items():
            validation.check_none(name, value, "for packed bits")
        options = as_options(n_threads, working_memory, progress)
        return bit_top_k(
            queries, items, k, measure=measure, exclude_self=exclude_self, min_score=min_score,
            options=options,
        )  # fmt: skip
    unfitted = get_measure(measure)
    if min_score is not None:
        min_score = as_min_score(min_score, unfitted)
    if out is not None:
        require(unfitted, "blocks")
        validation.check_none("groups", groups, "with out")
    if groups is None:
        validation.check_none("query_groups", query_groups, "without groups")
    # A later call identifies the run that it resumes by the NumPy types of its rows.
    in_blocks, in_memory = out is None and groups is None, groups is not None
    Q = as_items(
        "queries", queries, unfitted, or_vector=items is not None, in_memory=in_memory,
        in_blocks=in_blocks,
    )  # fmt: skip
    X = Q
    if items is not None:
        X = as_items(
            "items", items, unfitted, in_memory=in_memory, in_blocks=in_blocks,
            is_measured=in_blocks,
        )  # fmt: skip
    options = as_options(n_threads, working_memory, progress)
    validation.check_same_width("items", X, "queries", Q)
    without_self = as_exclude_self(
        exclude_self, Q.shape[0], X.shape[0], has_items=items is not None
    )
    k = validation.as_neighbor_count(k, X.shape[0], without_itself=without_self)
    request = as_request(
        Q, X.shape[0], k, exclude_self=without_self, allowed=allowed, exclude=exclude,
        min_score=min_score,
        groups=None if groups is None else _as_groups(groups, query_groups, X, items, len(Q)),
    )  # fmt: skip
    if out is None or not request.k:
        neighbors = _fit_and_search(X, request, unfitted, options, None)
        return neighbors if request.k == k else padded(neighbors, k)
    validation.as_count("k", k, high=request.k)
    from fastcos.search.output_directory import results_in_directory

    with results_in_directory(request, X, unfitted, options, out) as results:
        if results.is_complete:
            return Neighbors(**results.finish())
        return _fit_and_search(X, request, unfitted, options, results)


def _as_groups(groups: Any, query_groups: Any, X: Any, items: Any, n_queries: int) -> QueryGroups:
    """Return the validated groups of the queries among those of the rows X.

    If ``items`` is None, the queries are the rows.
    """
    item_groups = ItemGroups.of(groups, len(X))
    if items is None:
        validation.check_none("query_groups", query_groups, "without items")
        return QueryGroups(item_groups, item_groups.codes)
    if query_groups is None:
        raise ValueError("query_groups must be given with groups and items, got None")
    return QueryGroups(item_groups, item_groups.find(query_groups, n_queries, "query_groups"))


def _fit_and_search(
    X: Any, request: SearchRequest, measure: Measure, options: ExecutionOptions, results: Any
) -> Neighbors:
    """Fit the measure to the items and answer a request; results: as of ``execute``."""
    fitted = fit_items(X, measure, options)  # raises for NaN, also if nothing is searched
    if request.k and request.allowed_positions is not None:
        # Pack only rows that may be found.
        allowed_items = fitted.restricted_to(request.allowed_positions)
        if allowed_items is not None:
            fitted, request = allowed_items, request._replace(allowed_positions=None)
    return execute(fitted, request, options, results)
