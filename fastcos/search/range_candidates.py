"""Find items whose raw scores may reach a threshold, by the bounds that tiles compute."""

import itertools

import numpy as np

from fastcos import parallel
from fastcos.kernels import range_search, records, tiles
from fastcos.search.filters import AllowedRows, ExcludedItems
from fastcos.search.options import ExecutionOptions
from fastcos.search.packing import PackedItems, pack_queries
from fastcos.search.plan import plan_candidates
from fastcos.similarity.encoded_rows import EncodedRows
from fastcos.validation import Floats, Integers


def find_candidates(
    packed: PackedItems,
    queries: EncodedRows,
    exclusions: ExcludedItems,
    thresholds: Floats,
    starts: Integers,
    columns: Integers,
    options: ExecutionOptions,
    allowed_rows: AllowedRows | None = None,
    n_planned: int | None = None,
) -> Integers:
    """For each query, count and list the items whose raw scores may reach the query's threshold.

    ``thresholds`` (n,) contains one raw score per query. The function returns the number of
    candidates (n,) of each query. The candidates of a query include every item whose raw score
    reaches the threshold, and may include other items. If a query is passed together with other
    queries, it may have different candidates, because the kernel may stop using projected codes for
    a whole block of queries. The candidates of query i are written to
    ``columns[starts[i] : starts[i + 1]]``, in any order; candidates for which this slice has no
    room are only counted. ``starts`` has the shape (n + 1,). The kernel is chosen for ``n_planned``
    queries, or for n queries if ``n_planned`` is None. Different kernels may list different
    candidates. If a caller divides its queries among several calls, it passes the same
    ``n_planned`` to each call, so that all calls use the same kernel. ``allowed_rows`` contains the
    rows that are allowed in the results; None allows all packed items. The tiles perform O(n m d)
    operations.
    """
    n = len(thresholds)
    plan = plan_candidates(
        n if n_planned is None else n_planned, len(packed.arrays.row_of_slot), packed.layout,
        has_projection=packed.arrays.projection.words > 0, has_tiles=tiles.AVAILABLE,
    )  # fmt: skip
    if plan.kernel is None:
        return _all_allowed_items(packed, exclusions, starts, columns, allowed_rows)
    counts = parallel.unfilled(n, np.int64)
    scaled_queries = pack_queries(packed, queries, exclusions, allowed_rows)
    lists = records.CandidateLists(starts, counts, columns)
    blocks = parallel.row_blocks(n, plan.queries_per_block)
    if plan.kernel == "few_queries":
        parallel.run(
            range_search.list_candidates_of_few, blocks, packed.arrays, scaled_queries, thresholds,
            lists, progress=options.progress,
        )  # fmt: skip
    else:
        parallel.run(
            range_search.list_candidates, blocks, packed.arrays, scaled_queries,
            np.arange(n, dtype=np.int64), thresholds, plan.use_projection, lists,
            n_threads=options.n_threads, progress=options.progress,
        )  # fmt: skip
    return counts


def _all_allowed_items(
    packed: PackedItems,
    exclusions: ExcludedItems,
    starts: Integers,
    columns: Integers,
    allowed_rows: AllowedRows | None,
) -> Integers:
    """Count and list all items that each query is allowed to find, without computing any scores.

    The arguments and the result are those of ``find_candidates``.
    """
    row_numbers = packed.row_numbers if allowed_rows is None else allowed_rows.row_numbers
    counts = np.empty(len(starts) - 1, np.int64)
    for i, (start, end) in enumerate(itertools.pairwise(starts)):
        excluded = exclusions.indices[exclusions.indptr[i] : exclusions.indptr[i + 1]]
        candidates = row_numbers[
            (row_numbers != exclusions.self_rows[i]) & ~np.isin(row_numbers, excluded)
        ]
        counts[i] = len(candidates)
        listed = candidates[: end - start]
        columns[start : start + len(listed)] = listed
    return counts
