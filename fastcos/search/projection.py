"""Projections of packed items: whether to add one, onto which axes, and onto how many axes.

After a rotation onto their principal axes, rows of embeddings have most of their length along a
third of their columns. With a projection, the tiles multiply only these columns, and a bound drops
nearly all pairs of a query and a row (kernels.projection_filter). A sample of the items shows
whether a projection saves time.
"""

import atexit
import itertools
import math
import os
import threading
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastcos import parallel, validation
from fastcos.kernels import projection, records, tiles
from fastcos.kernels.simd.panel import N_STATISTICS, PANEL
from fastcos.parallel import memmap, readiness
from fastcos.parallel.blas import blas_lock
from fastcos.search import cost_model, plan
from fastcos.search.filters import no_exclusions
from fastcos.search.layout import tile_layout
from fastcos.search.packing import (
    PackedItems,
    RowScaling,
    aligned,
    pack_queries,
    packed_items,
    panel_layout,
    scale_and_shift,
)
from fastcos.similarity.encoded_rows import EncodedRows

Floats32 = npt.NDArray[np.float32]

# The value of largest_k with which a projection is used by all searches.
ANY_K = 2**24
# The seed of the first axes and of their rotation.
_SEED = 20261124


class Axes(NamedTuple):
    """The axes (p / 32, d, 32), eta (1,) and largest_k (2,) of kernels.records.Projection."""

    panels: Floats32
    eta: Floats32
    largest_k: Floats32


# The largest number of indexes whose projections are computed at the same time, because each
# computation keeps the rows of its index in memory. If as many projections are being computed, the
# calling thread computes the next projection itself.
_MAX_THREADS = 4


class Pending(NamedTuple):
    """A projection that a thread of this process is adding, and whether the thread has ended.

    The event is used instead of the thread's own state, because on Python 3.11 a thread whose join
    was interrupted counts as ended.
    """

    process: int
    ended: threading.Event

    def wait(self) -> None:
        """Wait for the thread, which a process that was forked after its start does not have."""
        if self.process == os.getpid():
            self.ended.wait()


# The threads that add projections, and whether the interpreter is exiting and the threads must end.
_threads: list[threading.Thread] = []
_is_ending = threading.Event()


class _Ended(Exception):
    """Raised in a thread that adds a projection, because the interpreter is exiting."""


def add_later(
    packed: PackedItems,
    items: EncodedRows,
    n_threads: int | None,
    store: Callable[[PackedItems], None],
) -> Pending | None:
    """Compute a projection in a thread, and call store with the result.

    The function returns None if no thread computes a projection. Searches need not wait for the
    projection: packing 60,000 rows of 768 columns takes 75 ms, and projecting them takes a further
    250 ms (Zen 4, two threads).
    """
    if not _may_pay(packed, items):
        return None
    dtype = memmap.from_bits(items.rows).dtype
    if readiness.use_numpy(dtype):
        readiness.request(dtype)
        return None

    pending = Pending(os.getpid(), threading.Event())

    def add() -> None:
        try:
            projected_items = add_or_warn(packed, items, n_threads, progress=_stop_at_end)
            if projected_items is not packed:
                store(projected_items)
        except _Ended:
            pass
        finally:
            pending.ended.set()

    thread = threading.Thread(target=add, name="fastcos-projection", daemon=True)
    _threads[:] = [other for other in _threads if other.is_alive()]
    if len(_threads) >= _MAX_THREADS:
        add()
        return None
    try:
        thread.start()
    except RuntimeError:  # no thread can be started, for example at exit
        return None
    _threads.append(thread)
    return pending


def _stop_at_end(done: int, total: int) -> None:
    if _is_ending.is_set():
        raise _Ended


@atexit.register
def _end() -> None:
    """Make sure that no thread runs kernels while the interpreter shuts down."""
    _is_ending.set()
    for thread in _threads:
        thread.join()


def add_or_warn(
    packed: PackedItems,
    items: EncodedRows,
    n_threads: int | None,
    progress: parallel.Progress | None = None,
) -> PackedItems:
    """Add a projection as add_projection does, but warn after an error, such as a lack of memory.

    Searches give the same results without a projection. An error in a helping thread would not be
    noticed, and in the calling thread, a search or fit must not fail because of such an error.
    """
    try:
        return add_projection(packed, items, n_threads, progress)
    except _Ended:
        raise
    except Exception as error:
        warnings.warn(
            "searches of an index will be slower, because its projection could not be made "
            f"({type(error).__name__}: {str(error)[:120]})",
            RuntimeWarning, stacklevel=2,
        )  # fmt: skip
        return packed


def _may_pay(packed: PackedItems, items: EncodedRows) -> bool:
    """Return whether there is no projection yet, and searches may be faster with one."""
    n, n_columns = len(packed.arrays.order), items.rows.shape[1]
    return packed.arrays.projection.words == 0 and plan.may_project(
        n, n_columns, packed.layout, tiles.AVAILABLE, cost_model.COSTS
    )


def add_projection(
    packed: PackedItems,
    items: EncodedRows,
    n_threads: int | None,
    progress: parallel.Progress | None = None,
) -> PackedItems:
    """Return packed items with the fastest projection, or without one if none saves time.

    The function takes O(m d p) time, so it is meant for items that many queries will search.
    """
    if not _may_pay(packed, items):
        return packed
    scaling = scale_and_shift(packed, items, n_threads)
    axes = _choose_axes(packed, items, scaling)
    if axes is None:
        return packed
    return with_axes(packed, items, scaling, axes, n_threads, progress)


def with_axes(
    packed: PackedItems,
    items: EncodedRows,
    scaling: RowScaling,
    axes: Axes,
    n_threads: int | None,
    progress: parallel.Progress | None = None,
) -> PackedItems:
    """Return packed items with a projection onto these axes."""
    arrays, layout = packed.arrays, packed.layout
    n_panels = len(arrays.statistics)
    words = tile_layout(layout.isa, len(axes.panels) * PANEL).words
    codes = aligned(n_panels * PANEL * words, np.int32)
    statistics = np.empty((n_panels, N_STATISTICS), np.float32)
    remainder_norms = np.empty(n_panels * PANEL, np.float32)
    blocks = parallel.row_blocks(n_panels, max(1, 8_000 // items.rows.shape[1]))
    parallel.run(
        projection.prepare_projected_panels, blocks,
        panel_layout(layout._replace(words=words), items.rows.shape[1]),
        records.ScaledRows(items.rows, scaling.factors, scaling.coefficients, scaling.shift),
        records.ItemPanels(
            arrays.order, arrays.packed, arrays.small_offsets, arrays.statistics
        ),
        axes.panels, axes.eta, records.ProjectedPanels(codes, statistics, remainder_norms),
        n_threads=n_threads, progress=progress,
    )  # fmt: skip
    packed_codes = arrays.packed
    if layout.isa != "amx":
        packed_codes = aligned(arrays.packed.size, np.int32)
        parallel.run(
            projection.arrange_by_item, blocks, layout.words, arrays.packed, packed_codes,
            n_threads=n_threads, progress=progress,
        )  # fmt: skip
    read_only = validation.read_only
    projection_record = records.Projection(
        axes.panels, read_only(codes), words, read_only(statistics),
        read_only(remainder_norms), axes.eta, axes.largest_k,
    )  # fmt: skip
    item_arrays = (
        arrays.order, packed_codes, arrays.small_offsets, arrays.statistics, arrays.shift,
    )  # fmt: skip
    return packed_items(
        packed.metric_type, layout, items, item_arrays, packed.units.unit, packed.units.offset_unit,
        projection=projection_record,
    )  # fmt: skip


def as_axes(V: npt.NDArray[Any], largest_k: npt.ArrayLike = (ANY_K, ANY_K)) -> Axes:
    """Return axes (d, p) in the form that kernels read, with a bound eta on rounding errors.

    The columns of V should be orthonormal; eta also bounds the effect of the deviation of V'V from
    the identity.
    """
    depth, p = V.shape
    n_panels = -(-p // PANEL)
    panels = np.zeros((depth, n_panels * PANEL), np.float32)
    panels[:, :p] = V
    axes_float64 = panels[:, :p].astype(np.float64)
    with blas_lock():
        # The Frobenius norm is at least the spectral norm.
        eps = float(np.linalg.norm(axes_float64.T @ axes_float64 - np.eye(p))) + 1e-12
    run = min(depth, projection.RUN) + depth // projection.RUN + 9
    rho = 1.1 * math.sqrt(p) * run * 2.0**-24
    # A bound on the relative rounding error of a sum of squares in float32, in 16 lanes.
    squares = (depth / 16 + 16) * 2.0**-22
    panels = panels.reshape(depth, n_panels, PANEL).swapaxes(0, 1)
    bound = 1.1 * (1 + eps) ** 2 * (3 * eps + 2 * rho) + squares
    eta = np.full(1, bound, np.float32) * np.float32(1.000001)
    arrays = np.ascontiguousarray(panels), eta, np.array(largest_k, np.float32)
    return Axes(*map(validation.read_only, arrays))


def principal_axes(sample: Floats32, p: int) -> Floats32:
    """Return p principal axes (d, p) of rows (m, d), the longest first, by subspace iteration."""
    rng = np.random.default_rng(_SEED)
    square = sample.T @ sample
    V = square @ rng.standard_normal((len(square), p), dtype=np.float32)
    V = np.linalg.qr(square @ np.linalg.qr(V)[0])[0]
    _, rotation = np.linalg.eigh(V.T @ (square @ V))
    return V @ rotation[:, ::-1]


def rotated(axes: Floats32) -> Floats32:
    """Return axes of the same space along which no coordinate of a row dominates."""
    p = axes.shape[1]
    rng = np.random.default_rng(_SEED + p)
    return axes @ np.linalg.qr(rng.standard_normal((p, p)))[0].astype(np.float32)


def _choose_axes(packed: PackedItems, items: EncodedRows, scaling: RowScaling) -> Axes | None:
    """Return the axes with which searches are fastest, or None for the full codes."""
    arrays, n = packed.arrays, len(packed.arrays.order)
    # Multiples of the golden ratio have no period in common with the items.
    steps = np.arange(min(cost_model.COSTS.projection_sample_rows, n))
    places = (steps * 0.6180339887498949 % 1.0 * n).astype(np.int64)
    numbers = arrays.order[places].astype(np.int64)
    sampled_items, factors = items.take(numbers), scaling.factors[numbers]
    rows = sampled_items.rows
    sample = (memmap.from_bits(rows) * factors[:, np.newaxis]).astype(np.float32)
    if len(scaling.shift):
        sample -= (scaling.coefficients[numbers, np.newaxis] * scaling.shift).astype(np.float32)
    query_places = slice(0, cost_model.COSTS.projection_sample_queries)
    encoded = sampled_items.take(query_places)
    if memmap.from_bits(rows) is not rows or rows.dtype == np.int8:  # queries are widened as well
        wide_rows = memmap.from_bits(encoded.rows).astype(np.float64)
        encoded = encoded._replace(rows=validation.read_only(wide_rows))
    exclusions = no_exclusions(len(encoded.rows))
    scaled_queries = pack_queries(packed, encoded, exclusions)
    ratios = scaled_queries.scaling.factors / np.where(
        factors[query_places] > 0, factors[query_places], 1.0
    )
    offsets = np.zeros(len(places), np.float32)
    if len(arrays.small_offsets):
        offsets = arrays.small_offsets[places]
    biases = scaled_queries.scaling.weights[:, np.newaxis] * offsets
    # The product is computed in float64, because for dot products with a query of small norm the
    # ratio may exceed the range of float32.
    queries = (sample[query_places] * ratios[:, np.newaxis]).astype(np.float32)
    # Forks wait for this lock, so no code that takes another lock may run under it. The number of
    # threads of BLAS belongs to the whole process and is not changed, because this code may run at
    # the same time as the user's code.
    with blas_lock():
        directions = _directions(sample, queries, biases, n)
    return None if directions is None else as_axes(*directions)


def _directions(
    sample: Floats32, queries: Floats32, biases: Floats32, n_items: int
) -> tuple[Floats32, list[int]] | None:
    """Return the axes (d, p) with which searches are fastest, and the largest k; or None.

    None is returned if searches are fastest with the full codes. The arguments are described in
    _remaining_shares.
    """
    costs, depth = cost_model.COSTS, sample.shape[1]
    if costs.projected_columns:
        n_axes = min(costs.projected_columns, depth)
        return rotated(principal_axes(sample, n_axes)), [ANY_K, ANY_K]
    widths = [p for p in costs.projection_widths if p <= costs.max_projected_share * depth]
    if not widths:
        return None
    if _effective_columns(sample[: costs.spread_sample_rows]) > costs.max_spread * depth:
        return None
    axes = principal_axes(sample, widths[-1])
    ks, ranks = zip(*costs.threshold_ranks, strict=True)
    counts = [max(1, round(rank * len(sample) / n_items)) for rank in ranks]
    shares = _remaining_shares(sample, queries, biases, axes, widths, counts)
    # A cost is the number of columns that a tile multiplies in the same time.
    pairs = (costs.pair_overhead_columns + costs.pair_cost_per_column * depth) * shares
    durations = np.array(widths)[:, np.newaxis] + costs.tile_overhead_columns + pairs
    usual = [ks.index(k) for k in costs.usual_k]
    best = int(np.argmin(durations[:, usual].mean(axis=1)))
    gains = (depth + costs.tile_overhead_columns) / durations[best]
    # With a larger k, the projection drops fewer pairs, so it saves less time.
    min_gains = costs.min_projection_gains
    max_k = [max([0, *itertools.compress(ks, gains >= gain)]) for gain in min_gains]
    if not any(max_k):
        return None
    return rotated(axes[:, : widths[best]]), max_k


def _effective_columns(rows: Floats32) -> float:
    """Return the effective number of columns of rows (m, d).

    The effective number is the square of the sum of the eigenvalues of the mean of row'row, divided
    by the sum of the squares of these eigenvalues. Products of different rows estimate the sum of
    squares without bias.
    """
    m = len(rows)
    products = rows @ rows.T
    squared_norms = np.diag(products)
    squares = (np.square(products).sum() - np.square(squared_norms).sum()) / (m * (m - 1))
    return float(squared_norms.mean() ** 2 / max(squares, 1e-30))


def _remaining_shares(
    sample: Floats32,
    queries: Floats32,
    biases: Floats32,
    axes: Floats32,
    widths: list[int],
    counts: list[int],
) -> npt.NDArray[np.float64]:
    """Return the share of pairs (widths, thresholds) that a projection does not drop.

    The queries (q, d) are the first rows of sample (m, d), scaled as queries. biases has the shape
    (q, m). counts holds the number of items of the sample that reach each threshold.
    """
    m = len(sample)
    scores = queries @ sample.T + biases
    query_numbers = np.arange(len(queries))
    scores[query_numbers, query_numbers] = -np.inf
    sorted_scores = np.sort(scores, axis=1)
    thresholds = [sorted_scores[:, m - count, None] for count in counts]
    u, w = sample @ axes, queries @ axes
    norms, query_norms = (np.sqrt(np.square(rows).sum(axis=1)) for rows in (sample, queries))
    bound = biases + cost_model.COSTS.code_error * query_norms[:, None] * norms
    shares, n_added = np.empty((len(widths), len(thresholds))), 0
    for row, p in enumerate(widths):
        bound += w[:, n_added:p] @ u[:, n_added:p].T
        remainders, query_remainders = (
            np.sqrt(np.maximum(0.0, np.square(size) - np.square(part[:, :p]).sum(axis=1)))
            for size, part in ((norms, u), (query_norms, w))
        )
        upper_bounds = bound + query_remainders[:, None] * remainders
        shares[row] = [(upper_bounds >= tau).mean() for tau in thresholds]
        n_added = p
    return shares
