"""The launch of a kernel for few queries: everything that a search needs except its queries.

If ``SearchPlan.launch_is_whole_search`` is True, a search for few queries is a single launch, and
the plan names the kernel. A launch calls the kernel once, or once per task if the plan has several
tasks. A task compares all queries, or a block of queries, with a range of the rows. All arguments
of the kernel except the queries follow from the plan and from the packed rows. ``prepared`` stores
each launch for later searches of the same index; ``scan`` runs a launch only once.

``launch_of`` makes a launch during the first search; a repeated search needs only ``Launch``. The
kernel of a search of one query is usually ``few_queries.search_few_queries``.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fastcos import parallel, validation
from fastcos.kernels import few_queries, projected_queries, records, tile_top_k
from fastcos.kernels.few_queries import STATUS_NOT_ORDINARY
from fastcos.search.packing import PackedItems
from fastcos.search.plan import SearchPlan
from fastcos.search.rankings import Ranking, best_of_parts
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
        For one query, the kernel is usually ``few_queries.search_few_queries``. If a projection
        makes the search faster, the kernel is ``projected_queries.search_few_by_projection``. If
        the rows are packed as float32, or if comparing the queries as a block is faster than
        comparing them one by one, the kernel is ``tile_top_k.search_grid``.
    packed : PackedItems
        The packed rows that the kernel reads.
    settings : named tuple
        The numbers of the plan that the kernel needs. ``launch_of`` chooses the type of the tuple,
        and only the kernel reads it.
    filters : kernels.records.QueryFilters
        The rows that are allowed in the results.
    k : int
        The number of rows to find for each query.
    n_ranges : int
        The number of ranges into which the rows are divided. The kernel finds the k best rows of
        each range, and ``run`` merges them.
    n_units : int
        The number of units of work, which are divided among the tasks. A unit is a panel of 32
        packed rows; for the kernel that searches blocks of queries, a unit is a task.
    blocks : ndarray or None
        The units at which the tasks begin and end (``parallel.row_blocks``). None stands for a
        single task, which runs in the calling thread. A search of one query has a single task if
        there are at most 262,144 rows, and if their codes take less than about 16 MB.
    n_threads : int
        The number of threads that run the tasks.
    fits_all_options : bool
        Whether the launch is the same for any number of threads. It must also be the same for any
        working memory that is not unusually small. ``SearchPlan`` has the same field.
    code : callable or None
        The compiled code of the kernel, which the first run finds and later runs call. None before
        the first run, and None if there are several tasks. ``Kernel.call`` would find the code at
        every run, which would take about 1 us longer. If the kernels were compiled when the wheel
        was built, ``code`` is a Python method that finds the native code at every run.
    """

    kernel: Any
    packed: PackedItems
    settings: Any
    filters: Any
    k: int
    n_ranges: int
    n_units: int
    blocks: parallel.Blocks | None
    n_threads: int
    fits_all_options: bool
    code: Any = None

    def run(self, queries: Rows, progress: parallel.Progress | None = None) -> Ranking | None:
        """Return row numbers and raw scores (n, k) of the best rows for each query (n, d).

        The queries must be rows in C order. The kernel computes their norms. If the launch was made
        with ``check_norms``, the kernel also checks the norms. If a norm is zero, not finite or
        extreme (``query_encoding.are_ordinary``), the kernel writes a status in place of the first
        row number, and the method returns None.
        """
        packed, n_ranges = self.packed, self.n_ranges
        queries = match_row_type(queries, packed.rows.dtype)
        shape = n_ranges, len(queries), self.k
        scores, row_numbers = np.empty(shape), np.empty(shape, _INT64)
        arguments: tuple[Any, ...]
        if self.kernel is tile_top_k.search_grid:
            arguments = self._arguments_of_search_grid(queries, scores, row_numbers)
        else:
            query_bytes = records.bytes_of(queries)
            arguments = (
                packed.addresses, query_bytes, self.filters, self.settings, scores, row_numbers
            )  # fmt: skip
        if self.blocks is None:
            if self.code is None:
                # The types of the arguments depend only on the instruction set.
                self.code = self.kernel.code_for(packed.layout.isa, arguments)
            self.code(0, self.n_units, *arguments)
            if progress is not None:
                progress(self.n_units, self.n_units)
        else:
            parallel.run(
                self.kernel, self.blocks, *arguments, n_threads=self.n_threads, progress=progress
            )
        if row_numbers.item(0) == STATUS_NOT_ORDINARY:
            return None
        if n_ranges == 1:
            return row_numbers[0], scores[0]
        return best_of_parts(row_numbers.swapaxes(0, 1), scores.swapaxes(0, 1))

    def _arguments_of_search_grid(
        self, queries: Rows, scores: npt.NDArray[Any], row_numbers: npt.NDArray[Any]
    ) -> tuple[Any, ...]:
        """Return the arguments of ``tile_top_k.search_grid``, which takes records of its own."""
        query_record = records.Queries(
            records.rows_of(queries), _NO_NORMS, _NO_SCALING, 0.0, 0.0, self.filters
        )
        results = records.SearchResults(_NO_THRESHOLDS, scores, row_numbers, _NO_UNPROVED)
        return self.packed.addresses, query_record, _NO_NUMBERS, self.settings, results


def launch_of(
    plan: SearchPlan, packed: PackedItems, filters: Any, k: int, *, check_norms: bool
) -> Launch:
    """Return the launch of a plan whose ``launch_is_whole_search`` is True.

    With ``check_norms``, the kernel checks the norms of the queries. If no caller has validated the
    queries, ``check_norms`` must be True.
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
        kernel, packed, settings, filters, k, grid.n_ranges, n_units, blocks, grid.n_threads,
        plan.fits_all_options,
    )  # fmt: skip
