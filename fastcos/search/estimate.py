"""Estimate how many bytes a planned search reads, how much it computes, and how long it takes."""

import dataclasses
from dataclasses import dataclass
from typing import cast

import numpy as np

from fastcos.kernels.simd.panel import PANEL
from fastcos.search.cost_model import CostModel, read_seconds
from fastcos.search.layout import TileLayout
from fastcos.search.plan import RequestSizes, SearchPlan, SegmentSizes
from fastcos.search.task_grid import Machine, TaskGrid


@dataclass(frozen=True)
class Estimate:
    """The estimated work of a search, and the estimated time of each part of the work.

    Attributes
    ----------
    bytes_read : float
        The bytes of codes or rows that all threads together read. A byte that is read twice is
        counted twice.
    multiply_adds : float
        The number of multiply-adds in tiles or, for a search in NumPy, in matrix products.
    scored_pairs : float
        The number of (query, row) pairs that are scored in float64.
    memory : float
        The seconds for reading codes or rows.
    multiply : float
        The seconds for the multiply-adds. Reading and multiplying overlap in time.
    scores : float
        The seconds for scoring candidates in float64, and for selecting the best of them.
    packing : float
        The seconds for fitting the measure, and for encoding and packing rows.
    overhead : float
        The seconds for work that does not depend on the number of rows.
    """

    bytes_read: float = 0.0
    multiply_adds: float = 0.0
    scored_pairs: float = 0.0
    memory: float = 0.0
    multiply: float = 0.0
    scores: float = 0.0
    packing: float = 0.0
    overhead: float = 0.0

    @property
    def seconds(self) -> float:
        """The estimated time of the whole search in seconds."""
        return max(self.memory, self.multiply) + self.scores + self.packing + self.overhead

    def plus(self, other: "Estimate", times: float = 1.0) -> "Estimate":
        """Return the sum of this estimate and ``times`` times the estimate ``other``."""
        pairs = zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True)
        return Estimate(*(value + times * addend for value, addend in pairs))


def estimate_plan(
    plan: SearchPlan,
    segment: SegmentSizes,
    request: RequestSizes,
    machine: Machine,
    costs: CostModel,
    *,
    is_encoded: bool = False,
) -> Estimate:
    """Return the estimate for the search of one segment by this plan.

    The result depends only on the arguments. ``is_encoded`` says whether the rows were encoded
    before the search, so that the search takes no time to encode them. Packed rows were always
    encoded before.
    """
    if plan.method == "distinct" and plan.inner is not None:
        m = segment.n_distinct or 0
        distinct_rows = dataclasses.replace(segment, n_live=m, n_packed=m)
        return estimate_plan(
            plan.inner, distinct_rows, request, machine, costs, is_encoded=is_encoded
        )
    if plan.method == "repack" and plan.inner is not None:
        m = request.n_allowed or 0
        allowed_rows = dataclasses.replace(segment, n_live=m, n_packed=0, packed_for="")
        distinct_request = dataclasses.replace(request, n_allowed=None)
        return estimate_plan(
            plan.inner, allowed_rows, distinct_request, machine, costs, is_encoded=is_encoded
        )
    m = segment.n_live if request.n_allowed is None else request.n_allowed
    encoding = 0.0 if is_encoded else _encoding(segment, machine, costs)
    if plan.method in ("score_all", "numpy"):
        return _of_all_pairs(plan, m, segment, request, machine, costs, encoding)
    return _of_tiles(plan, segment, request, machine, costs, encoding)


def _of_all_pairs(
    plan: SearchPlan,
    m: int,
    segment: SegmentSizes,
    request: RequestSizes,
    machine: Machine,
    costs: CostModel,
    encoding: float,
) -> Estimate:
    """Return the estimate of a search by "score_all" or "numpy", which score every pair.

    m is the number of rows that the search compares with each query. ``encoding`` is the number of
    seconds for encoding the rows.
    """
    n, d = request.n_queries, segment.n_columns
    row_bytes = _row_bytes(segment)
    threads = _threads(plan.grid)
    if plan.method == "numpy":
        bytes_read = row_bytes * m * plan.grid.n_query_blocks
        return Estimate(
            bytes_read=bytes_read, multiply_adds=float(n) * m * d,
            memory=read_seconds(bytes_read, row_bytes * m, machine.n_threads, costs),
            multiply=n * m * d / (costs.numpy_multiply_adds_per_second * machine.n_threads),
            scores=n * m * costs.seconds_per_numpy_pair,
        )  # fmt: skip
    pairs = float(n) * m
    # Every row is read once for each block of queries.
    per_block = max(1, plan.grid.queries_per_block // plan.grid.n_ranges)
    bytes_read = row_bytes * m * -(-n // per_block)
    per_score = costs.seconds_per_score + costs.seconds_per_scored_column * d
    memory = read_seconds(bytes_read, row_bytes * m, threads, costs)
    return Estimate(
        bytes_read=bytes_read, scored_pairs=pairs, memory=memory,
        multiply=pairs * per_score / threads, scores=_selecting(request, threads, costs),
        packing=encoding,
    )  # fmt: skip


def _of_tiles(
    plan: SearchPlan,
    segment: SegmentSizes,
    request: RequestSizes,
    machine: Machine,
    costs: CostModel,
    encoding: float,
) -> Estimate:
    """Return the estimate for a search by tiles.

    A search by tiles reads all codes once per block of queries, and scores only the candidates in
    float64. ``encoding`` is the number of seconds for encoding the rows.
    """
    layout, grid = cast(TileLayout, plan.layout), plan.grid
    n, k, d = request.n_queries, request.k, segment.n_columns
    n_packed = segment.n_packed if segment.packed_for else segment.n_live
    n_panels, threads = -(-n_packed // PANEL), _threads(grid)
    words = float(layout.words)
    if plan.use_projection:
        # The projection rules out most rows. It is assumed that a share of share_after_projection
        # of the rows remains. Only the full codes of the remaining rows are compared.
        words = segment.projected_words + costs.share_after_projection * layout.words
    codes = n_panels * PANEL * 4 * words
    bytes_read = codes * grid.n_query_blocks
    # The number of pairs of panels that the search multiplies, as a share of all pairs.
    share = 1.0
    if plan.kernel == "self_join":
        # A self-join multiplies each pair of blocks once. Before that, it estimates the thresholds:
        # it samples some panels, and multiplies all rows by these panels.
        share = 0.5 + 1 / plan.sample.stride
        bytes_read *= share
    # Most kernels compare whole panels of 32 queries, so a panel that is only partly filled takes
    # as long as a full panel. The kernels for very few queries compare them one by one.
    is_one_by_one = plan.kernel in ("few_queries", "projected_queries")
    lanes = n if is_one_by_one else -(-n // PANEL) * PANEL
    per_word = 4 if layout.quantised else 1
    multiply_adds = share * lanes * n_panels * PANEL * words * per_word
    rates = costs.multiply_adds_per_second
    if is_one_by_one:
        rates = costs.single_multiply_adds_per_second
    multiply = multiply_adds / (dict(rates)[layout.isa] * threads)
    multiply += share * lanes * n_panels * costs.seconds_per_tile_lane / threads
    # Each range of panels collects its own candidates, so the number of scored pairs is
    # proportional to the number of ranges.
    scored = n * (costs.scored_pairs_per_neighbor * k + costs.scored_pairs_besides) * grid.n_ranges
    scored = min(scored, float(n) * n_packed)
    per_score = costs.seconds_per_candidate + costs.seconds_per_candidate_column * d
    scores = scored * per_score / threads + _selecting(request, threads, costs)
    packing = encoding
    if not segment.packed_for and plan.method == "packed":
        per_row = costs.seconds_per_packed_row + d * costs.seconds_per_packed_entry
        packing += n_packed * per_row / machine.n_threads
    return Estimate(
        bytes_read=bytes_read, multiply_adds=multiply_adds, scored_pairs=scored,
        memory=read_seconds(bytes_read, codes, threads, costs), multiply=multiply, scores=scores,
        packing=packing, overhead=costs.seconds_per_handover if threads > 1 else 0.0,
    )  # fmt: skip


def _row_bytes(segment: SegmentSizes) -> float:
    """Return the number of bytes of an original row."""
    name = "float16" if segment.row_type == "bfloat16" else segment.row_type
    return float(segment.n_columns * np.dtype(name).itemsize)


def _threads(grid: TaskGrid) -> int:
    """Return the number of threads that have at least one task."""
    return max(1, min(grid.n_threads, grid.n_query_blocks * grid.n_ranges))


def _encoding(segment: SegmentSizes, machine: Machine, costs: CostModel) -> float:
    """Return the seconds for fitting and computing norms; 0 if the rows are already packed."""
    if segment.packed_for:
        return 0.0
    size = _row_bytes(segment) * segment.n_rows
    return costs.seconds_per_fit + read_seconds(size, size, machine.n_threads, costs)


def _selecting(request: RequestSizes, n_threads: int, costs: CostModel) -> float:
    """Return the seconds for selecting and sorting the neighbours of all queries."""
    return costs.seconds_per_neighbor * request.n_queries * request.k / n_threads
