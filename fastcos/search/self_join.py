"""Run a self-join: the queries are the rows of the segment, and each pair is multiplied once.

``plan._plan_self_join`` decides which searches use this method. If the norms of the rows then turn
out to differ too much (``norms_are_similar``), ``scan`` searches blocks of queries instead.
``kernels.self_join`` describes the stages of the kernel and proves its bound.
"""

import numpy as np
import numpy.typing as npt

from fastcos import parallel
from fastcos.kernels import query_blocks, records, self_join
from fastcos.kernels.candidate_buffers import Candidates
from fastcos.kernels.candidate_filter import NEVER
from fastcos.kernels.simd.panel import N_BOUND_TERMS, PANEL
from fastcos.search.options import ExecutionOptions
from fastcos.search.packing import Integers, PackedItems, aligned
from fastcos.search.plan import SearchPlan
from fastcos.search.rankings import Ranking

# The kernel compares the product of two rows with the thresholds of both rows. For these
# comparisons, the kernel computes numbers in float32. The numbers might overflow or underflow if
# the norms of the rows differ by more than this factor.
_LARGEST_RATIO_OF_NORMS = 1e6


def norms_are_similar(packed: PackedItems, scaled_queries: records.Queries) -> bool:
    """Return whether the norms of the rows are similar enough for the kernel of the self-join.

    The function compares the norms of the rows that are not zero, and the scale factors of all
    rows. If the scores are cosines, the norms do not matter, because rows are divided by their
    norms.
    """
    if packed.metric_type == "cosine":
        return True
    norms, slopes = scaled_queries.norms, scaled_queries.scaling.slopes
    is_similar = norms.max() <= _LARGEST_RATIO_OF_NORMS * norms.min(where=norms > 0, initial=np.inf)
    # ``is_similar`` ignores zero rows. However, zero rows are scaled as if their norm were 1, and
    # the norms of the other rows may differ greatly from 1. Therefore the slopes of all rows are
    # compared as well.
    return bool(is_similar and slopes.max() <= 2 * _LARGEST_RATIO_OF_NORMS * slopes.min())


def search_own_rows(
    plan: SearchPlan,
    packed: PackedItems,
    scaled_queries: records.Queries,
    thresholds: npt.NDArray[np.float32],
    ranking: Ranking,
    options: ExecutionOptions,
) -> Integers:
    """Find the neighbours of all packed rows, and write row numbers and raw scores to ``ranking``.

    ``scaled_queries`` contains all rows of the segment as queries, and ``thresholds`` (n,) contains
    their initial thresholds. The function returns the indices of the queries whose estimated
    threshold was too high. For these queries, the search must be repeated without an estimate.
    """
    grid, sample, items = plan.grid, plan.sample, packed.arrays
    (n, k), n_panels = ranking[0].shape, packed.n_panels
    unproved = np.empty(n, np.float32)
    results = records.SearchResults(thresholds, ranking[1], ranking[0], unproved)
    state = _empty_state(n, k, n_panels, items, plan.capacity)
    # ``self_join`` and ``tile_top_k`` call the same functions with this array. ``tile_top_k``
    # receives a writeable array, so this array is writeable, too. Numba would compile the functions
    # a second time for a read-only array.
    batch = items.row_of_slot.astype(np.int64)
    rounds = range(grid.n_query_blocks - 1)
    stages = [self_join.FIRST, *rounds, self_join.LAST]
    for n_done, stage in enumerate(stages):
        settings = records.SelfJoinSettings(
            stage, grid.n_query_blocks, grid.queries_per_block // PANEL, sample.stride, sample.rank
        )
        # In a round, a task compares two blocks.
        n_tasks = grid.n_query_blocks // (2 if stage in rounds else 1)
        parallel.run(
            self_join.search_self_join, parallel.row_blocks(n_tasks, 1), packed.addresses,
            scaled_queries, batch, settings, state, results,
            n_threads=grid.n_threads,
        )  # fmt: skip
        if options.progress is not None:
            options.progress((n_done + 1) * n // len(stages), n)
    return np.flatnonzero(unproved > -NEVER)


def _empty_state(
    n: int, k: int, n_panels: int, items: records.Items, capacity: int
) -> records.SelfJoinState:
    """Return the initial state of a self-join of n rows, which are packed as ``items``."""
    candidates = Candidates(
        entries=np.empty((n, capacity), np.int64),
        counts=np.zeros(n, np.int64),
        scores=np.empty((n, k)),
        rows=np.empty((n, k), np.int64),
        lengths=np.zeros(n, np.int64),
        kth_scores=np.full(n, -np.inf),
    )
    n_bound_terms = n_panels * N_BOUND_TERMS * PANEL
    n_remainders = n_panels * PANEL if items.isa.int16_words > 0 else 0
    return records.SelfJoinState(
        packed=aligned(n_panels * PANEL * items.words, np.int32),
        bound_terms=aligned(n_bound_terms, np.float32).reshape(n_panels, N_BOUND_TERMS, PANEL),
        steps=np.ones((n_panels, PANEL), np.float32),
        corrections=np.empty(n_panels * PANEL, np.int32),
        remainders=query_blocks.Remainders(
            codes=np.zeros(n_remainders * items.words, np.int32),
            corrections=np.zeros(n_remainders, np.int32),
            ratios=np.ones(n_remainders, np.float32),
        ),
        units=np.ones((n_panels, PANEL), np.float32),
        initial_thresholds=np.empty(n, np.float32),
        candidates=candidates,
    )
