"""The function ``top_k`` validates its arguments; the module ``execute`` runs the search."""

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
    as_input_rows,
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
    """Return the k items that are most similar to each query.

    The result is exact: items are ordered by scores that are computed in float64 from the original
    rows. The results are bit-for-bit identical for any number of threads, block size, instruction
    set and thread backend. A search takes O(n m d) time and stores no n x m matrix. If the measure
    has the capability ``blocks``, memory-mapped rows (``np.load(path, mmap_mode="r")``) are read in
    blocks that fit ``working_memory``.

    Parameters
    ----------
    queries : array_like (n, d), or (d,) if items are given; or sparse
        One row per query. A zero row has no direction, so its cosine with every row is 0. Rows may
        be of any real type, and their numbers are used exactly. The rows may also be tensors in
        main memory, Arrow columns, or table columns that hold vectors. float32 and float64 rows are
        not converted. If the measure has the capability ``append``, rows of float16, bfloat16, int8
        and int16 are converted to float32 block by block, and never as a whole.
    items : array_like (m, d), optional
        The rows that are searched. By default, the queries are compared with each other.
    k : int
        The number of neighbours per query, from 1 to the number of items that a query can find.
    measure : str or Measure
        A name from ``fastcos.list_measures()``, or a Measure. Two measures are for packed bits (the
        uint8 rows of ``np.packbits(rows, axis=1)``). "hamming" is minus the number of bits that
        differ, and "bit_cosine" is the cosine of the rows of zeros and ones.
    exclude_self : bool, optional
        Whether item i is left out of the results of query i. Default: True if ``items`` is None,
        otherwise False. If you pass items, use True only if the items are the same rows as the
        queries, as in ``top_k(X, X, exclude_self=True)``. With ``exclude_self=True``, the number of
        items must equal the number of queries.
    allowed : array_like or sparse (n, m), optional
        The items that can be found, as a mask (m,) or as item numbers. For dense rows, ``allowed``
        may also be a sparse matrix: the non-zeros of row i are the items that query i is allowed to
        find. The search scores all of these items. If a query is allowed to find fewer than k
        items, its neighbours are padded.
    exclude : sparse (n, m), optional
        A matrix whose non-zeros are pairs that must not be found, such as items that a user has
        already seen. If fewer than k items remain for a query, its neighbours are padded.
    min_score : float or Calibration, optional
        Neighbours with a lower score are replaced by padding. ``min_score`` is rounded to float32
        before it is compared with the returned scores, which are float32.
    groups : array_like (m,), int or str, optional
        The group of each item, such as a tenant, a language or a blocking key. A query finds only
        items of its own group, and its search takes as long as if there were no other groups. If
        the group of a query has fewer than k items, the neighbours of the query are padded. If
        ``groups`` is passed, all rows must be dense and are read into memory, and ``allowed`` must
        be a mask or item numbers.
    query_groups : array_like (n,), int or str, or one group for all queries, optional
        The group of each query. This argument is required if you pass both ``groups`` and
        ``items``.
    n_threads : int, optional
        The number of threads. Default: the setting ``n_threads``.
    working_memory : float, optional
        The memory in MiB that the search may use in addition to its inputs and outputs. Default:
        the setting ``working_memory``.
    progress : callable, optional
        Called as ``progress(done, total)``, where both arguments count queries.
    out : path-like, optional
        A new directory to which the results are written batch by batch: ``indices.npy``,
        ``scores.npy`` and ``run.json``. If the search is interrupted, or the process crashes, the
        same call resumes the search. If you pass ``out``, the returned arrays are memory maps, and
        the measure must have the capability ``blocks``.

    Returns
    -------
    Neighbors
        indices (n, k) int64 and scores (n, k) float32.

    Raises
    ------
    ValueError
        The rows contain NaN or infinity; queries and items have different numbers of columns; k is
        out of range; or an item number is out of range. The error is also raised if the directory
        ``out`` contains anything but results of the same call.
    TypeError
        The rows contain something other than numbers.

    Examples
    --------
    >>> import numpy as np
    >>> from fastcos import top_k
    >>> neighbors = top_k(np.array([[1.0, 0.0], [1.0, 0.2], [0.0, 1.0]]), k=1)
    >>> neighbors.indices.ravel().tolist()
    [1, 0, 1]
    """
    if isinstance(items, int | np.integer):  # in other libraries, k is the second argument
        raise TypeError(
            f"items must be a matrix of rows, got the number {items}. To find {items} neighbours "
            f"per query, pass k={items}"
        )
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
    unfitted_measure = get_measure(measure)
    if min_score is not None:
        min_score = as_min_score(min_score, unfitted_measure)
    if out is not None:
        require(unfitted_measure, "blocks")
        validation.check_none("groups", groups, "with out")
    if groups is None:
        validation.check_none("query_groups", query_groups, "without groups")
    # If results are written to a directory, low-precision rows are converted to float32
    # immediately. A later call resumes the run only if it has the same fingerprint, and the
    # fingerprint depends on the type of the rows.
    in_blocks, in_memory = out is None and groups is None, groups is not None
    Q = as_input_rows(
        "queries", queries, unfitted_measure, or_vector=items is not None, in_memory=in_memory,
        in_blocks=in_blocks,
    )  # fmt: skip
    X = Q
    if items is not None:
        X = as_input_rows(
            "items", items, unfitted_measure, in_memory=in_memory, in_blocks=in_blocks,
            is_measured=in_blocks,
        )  # fmt: skip
    options = as_options(n_threads, working_memory, progress)
    validation.check_same_width("items", X, "queries", Q)
    without_self = as_exclude_self(
        exclude_self, Q.shape[0], X.shape[0], has_items=items is not None
    )
    k = validation.as_neighbor_count(k, X.shape[0], without_itself=without_self)
    request = as_request(
        k, len(Q), len(X), exclude_self=without_self, allowed=allowed, exclude=exclude,
        min_score=min_score,
        groups=None if groups is None else _as_groups(groups, query_groups, X, items, len(Q)),
    )  # fmt: skip
    if out is None or not request.k:
        neighbors = _fit_and_search(X, Q, request, unfitted_measure, options, None)
        return neighbors if request.k == k else padded(neighbors, k)
    validation.as_count("k", k, high=request.k)
    from fastcos.search.output_directory import results_in_directory

    with results_in_directory(X, Q, request, unfitted_measure, options, out) as results:
        if results.is_complete:
            return Neighbors(**results.finish())
        return _fit_and_search(X, Q, request, unfitted_measure, options, results)


def _as_groups(groups: Any, query_groups: Any, X: Any, items: Any, n_queries: int) -> QueryGroups:
    """Return the validated groups of the items X, and the group of each query.

    If ``items`` is None, the queries are the items.
    """
    item_groups = ItemGroups.of(groups, len(X))
    if items is None:
        validation.check_none("query_groups", query_groups, "without items")
        return QueryGroups(item_groups, item_groups.codes)
    if query_groups is None:
        raise ValueError("query_groups must be given with groups and items, got None")
    codes = item_groups.find(query_groups, n_queries, "query_groups")
    return QueryGroups(item_groups, codes)


def _fit_and_search(
    X: Any, queries: Any, request: SearchRequest, measure: Measure, options: ExecutionOptions,
    results: Any,
) -> Neighbors:  # fmt: skip
    """Fit the measure to the items X, and return the neighbours that each query asks for.

    ``results`` is passed on to ``execute.execute``, whose docstring describes this argument.
    """
    # fit_items also finds NaN, so that an error is raised even if there is nothing to search.
    fitted_items = fit_items(X, measure, options)
    if request.k and request.allowed_positions is not None:
        # The items are restricted to the allowed rows, so that no other rows are packed.
        allowed_items = fitted_items.restricted_to(request.allowed_positions)
        if allowed_items is not None:
            fitted_items, request = allowed_items, request._replace(allowed_positions=None)
    return execute(fitted_items, queries, request, options, results)
