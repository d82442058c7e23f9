"""The launch of a kernel for few queries: everything that a search needs except its queries.

If ``SearchPlan.launch_is_whole_search`` is True, a search for few queries is a single launch, and
the plan names the kernel. A launch calls the kernel once, or once per task if the plan has several
tasks. A task is a range of the rows or a block of queries. All arguments of the kernel except the
queries follow from the plan and from the packed rows. ``prepared`` stores each launch for later
searches of the same index; ``scan`` runs a launch only once.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fastcos import parallel, validation
from fastcos.kernels import few_queries, projected_queries, records, tile_top_k
from fastcos.kernels.few_queries import STATUS_NOT_ORDINARY
from fastcos.search.packing import PackedItems
from fastcos.search.plan import SearchPlan
from fastcos.search.rankings import Ranking, best_of_parts
from fastcos.search.task_grid import TaskGrid
from fastcos.similarity.encoded_rows import match_row_type
from fastcos.validation import Rows

# Some calls to ``tile_top_k.search_grid`` perform a whole search. The kernel itself then computes
# five things for the queries: norms, scaling, indices, thresholds and unproved thresholds. In their
# place, the caller passes the following empty arrays.
_NO_NORMS, _NO_NUMBERS = validation.read_only(np.empty(0)), np.empty(0, np.int64)
_NO_SCALING = records.QueryScaling(
    np.empty(0), np.empty(0), np.empty(0, np.float32), np.empty(0), np.empty(0)
)
_NO_THRESHOLDS, _NO_UNPROVED = np.empty(0, np.float32), np.empty((0, 0), np.float32)

_INT64 = np.dtype(np.int64)


@dataclass(slots=True)
class Launch:
    """A kernel for few queries, and all of its arguments except the queries.

    Attributes
    ----------
    kernel : callable
        ``few_queries.search_few_queries`` usually searches for one query. If a projection makes the
        search faster, the kernel is ``projected_queries.search_few_by_projection``. If the rows are
        packed as float32, or if comparing the queries as a block is faster than comparing them one
        by one, the kernel is ``tile_top_k.search_grid``.
    packed : PackedItems
        The packed rows that the kernel reads.
    settings : FewQuerySettings, ProjectedSettings or BlockSettings of kernels.records
        The plan, in the format that the kernel reads.
    filters : kernels.records.QueryFilters
        The rows that are allowed in the results.
    grid : TaskGrid
        The ranges of the rows, and the number of threads that search them.
    k : int
        The number of rows to find for each query.
    n_units : int
        The number of units of work, which are divided among the tasks. For the kernel that searches
        blocks of queries, a unit is a task of the grid; for every other kernel, a unit is a panel.
    blocks : ndarray or None
        The units at which the tasks begin and end (``parallel.row_blocks``). None stands for a
        single task, which runs in the calling thread.
    fits_all_options : bool
        Whether the launch is the same for any number of threads. It must also be the same for any
        working memory that is not unusually small. ``SearchPlan`` has the same field.
    entry : callable or None
        The compiled code of the kernel for the types of the arguments (``Kernel.entry``). It is
        looked up in the first run, and stored here for all later runs. None before the first run,
        and None if there are several tasks.
    """

    kernel: Any
    packed: PackedItems
    settings: Any
    filters: Any
    grid: TaskGrid
    k: int
    n_units: int
    blocks: parallel.Blocks | None
    fits_all_options: bool
    entry: Any = None

    def run(self, queries: Rows, progress: parallel.Progress | None = None) -> Ranking | None:
        """Return row numbers and raw scores (n, k) of the best rows for each query (n, d).

        The queries must be rows in C order. The kernel computes their norms. If the launch was made
        with ``check_norms``, the kernel also checks the norms. If a norm is zero, not finite or far
        from 1, the kernel writes a status in place of the first row number, and the method returns
        None.
        """
        packed, n_ranges = self.packed, self.grid.n_ranges
        queries = match_row_type(queries, packed.rows.dtype)
        shape = n_ranges, len(queries), self.k
        scores, row_numbers = np.empty(shape), np.empty(shape, _INT64)
        if self.kernel is tile_top_k.search_grid:
            arguments: tuple[Any, ...] = (
                packed.addresses,
                records.Queries(
                    records.rows_of(queries), _NO_NORMS, _NO_SCALING, 0.0, 0.0, self.filters
                ),
                _NO_NUMBERS, self.settings,
                records.SearchResults(_NO_THRESHOLDS, scores, row_numbers, _NO_UNPROVED),
            )  # fmt: skip
        else:
            query_bytes = records.bytes_of(queries)
            arguments = (
                packed.addresses, query_bytes, self.filters, self.settings, scores, row_numbers
            )  # fmt: skip
        if self.blocks is None:
            if self.entry is None:
                self.entry = self.kernel.entry(packed.layout.isa, arguments)
            self.entry(0, self.n_units, *arguments)
            if progress is not None:
                progress(self.n_units, self.n_units)
        else:
            parallel.run(
                self.kernel, self.blocks, *arguments, n_threads=self.grid.n_threads,
                progress=progress,
            )  # fmt: skip
        if row_numbers.item(0) == STATUS_NOT_ORDINARY:
            return None
        if n_ranges == 1:
            return row_numbers[0], scores[0]
        return best_of_parts(row_numbers.swapaxes(0, 1), scores.swapaxes(0, 1))


def launch_of(
    plan: SearchPlan, packed: PackedItems, filters: Any, k: int, *, check_norms: bool
) -> Launch:
    """Return the launch of a plan whose ``launch_is_whole_search`` is True.

    With ``check_norms``, the kernel checks the norms of the queries. ``check_norms`` must be True if
    the queries are not validated before the launch.
    """
    grid, sample, settings = plan.grid, plan.sample, None
    n_units, units_per_task = packed.n_panels, grid.panels_per_range
    if plan.kernel == "few_queries":
        kernel = few_queries.search_few_queries
        settings = records.FewQuerySettings(plan.first_rank, grid.panels_per_range, check_norms)
    elif plan.kernel == "projected_queries":
        kernel = projected_queries.search_few_by_projection
        settings = records.ProjectedSettings(
            plan.first_rank, grid.panels_per_range, check_norms, sample.stride, sample.rank
        )
    else:
        kernel = tile_top_k.search_grid
        settings = records.BlockSettings(
            grid.queries_per_block, grid.panels_per_range, grid.n_ranges, plan.capacity,
            sample.stride, sample.rank, plan.use_projection, is_whole_search=True,
            check_norms=check_norms,
        )  # fmt: skip
        n_units, units_per_task = grid.n_query_blocks * grid.n_ranges, 1
    blocks = None if grid.is_one_task else parallel.row_blocks(n_units, units_per_task)
    return Launch(
        kernel, packed, settings, filters, grid, k, n_units, blocks, plan.fits_all_options
    )
