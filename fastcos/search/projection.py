"""Add a projection to packed items: decide whether it saves time, and choose its axes.

If rows of embeddings are rotated to their principal axes, most of their squared norm is in the
first third of the coordinates. A projection stores the first coordinates of every row as short
codes. With a projection, the tiles multiply the short codes first. The products give upper bounds
on the scores, which rule out nearly all pairs of a query and a row (``kernels.projection_filter``).
The full codes are multiplied only for the remaining pairs. A sample of the items shows whether a
projection saves time.
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

# If largest_k has this value, searches use the projection for any k.
ANY_K = 2**24
# The seed of the random starting vectors from which axes are computed, and of the random rotations
# of axes.
_SEED = 20261124


class Axes(NamedTuple):
    """The axes of a projection, in the format of the fields of ``kernels.records.Projection``.

    ``panels`` (p / 32, d, 32) contains the p axes. ``eta`` (1,) bounds the relative rounding errors
    of projected rows. ``largest_k[0]`` is the largest k for which a search with few queries uses
    the projection. ``largest_k[1]`` is the largest k for which a search with many queries uses the
    projection.
    """

    panels: Floats32
    eta: Floats32
    largest_k: Floats32


# At most this many threads compute projections at the same time, because each thread keeps the rows
# of an index in memory. While this many threads are running, no further thread is started. A caller
# that needs another projection then computes the projection in its own thread.
_MAX_THREADS = 4


class Pending(NamedTuple):
    """A projection that a thread is computing.

    ``process`` is the id of the process that started the thread, and the event ``ended`` is set
    when the thread has finished. ``Thread.is_alive`` cannot replace the event: on Python 3.11, this
    method returns False if a call to ``join`` was interrupted.
    """

    process: int
    ended: threading.Event

    def wait(self) -> None:
        """Wait until the thread has finished; in a forked child process, do not wait.

        The thread does not exist in a process that was forked after the thread was started.
        """
        if self.process == os.getpid():
            self.ended.wait()


# The threads that compute projections, and an event that tells these threads to end when the
# interpreter exits.
_threads: list[threading.Thread] = []
_is_ending = threading.Event()


class _Ended(Exception):
    """Raised in a thread that is still computing a projection when the interpreter exits."""


def add_later(
    packed: PackedItems,
    items: EncodedRows,
    n_threads: int | None,
    store: Callable[[PackedItems], None],
) -> Pending | None:
    """Start a thread that adds a projection to packed items and calls ``store`` with the result.

    The function returns the pending projection, or None if no thread was started. Until the thread
    has finished, searches run without the projection. The projection is computed in a thread so
    that the first searches do not wait for it. Packing 60,000 rows of 768 columns takes 75 ms, and
    projecting these rows takes another 250 ms (AMD Zen 4, two threads).
    """
    if not _may_pay(packed, items):
        return None
    if readiness.use_numpy():
        readiness.request()
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
    """End the threads that compute projections, so that no kernel runs during the shutdown."""
    _is_ending.set()
    for thread in _threads:
        thread.join()


def add_or_warn(
    packed: PackedItems,
    items: EncodedRows,
    n_threads: int | None,
    progress: parallel.Progress | None = None,
) -> PackedItems:
    """Return the result of ``add_projection``; if it fails, warn and return the packed items.

    If a projection cannot be computed, for example for lack of memory, the search or the ``fit``
    must succeed nevertheless. Without a projection, searches return the same results but take
    longer.
    """
    try:
        return add_projection(packed, items, n_threads, progress)
    except _Ended:
        raise
    except Exception as error:
        warnings.warn(
            "searches of an index will be slower, because its projection could not be computed "
            f"({type(error).__name__}: {str(error)[:120]})",
            RuntimeWarning, stacklevel=2,
        )  # fmt: skip
        return packed


def _may_pay(packed: PackedItems, items: EncodedRows) -> bool:
    """Return whether the items have no projection yet and a projection might save time."""
    n, n_columns = len(packed.arrays.row_of_slot), items.rows.shape[1]
    return packed.arrays.projection.words == 0 and plan.may_project(
        n, n_columns, packed.layout, tiles.AVAILABLE, cost_model.COSTS
    )


def add_projection(
    packed: PackedItems,
    items: EncodedRows,
    n_threads: int | None,
    progress: parallel.Progress | None = None,
) -> PackedItems:
    """Return packed items with the projection that makes searches fastest.

    If no projection saves time, the packed items are returned unchanged. The function takes
    O(m d p) time for m items and p axes, so it is meant for items that are searched by many
    queries.
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
        records.ScaledRows(
            records.rows_of(items.rows), scaling.factors, scaling.coefficients, scaling.shift
        ),
        records.ItemPanels(
            arrays.row_of_slot, arrays.packed, arrays.small_offsets, arrays.statistics
        ),
        axes.panels, axes.eta, records.ProjectedPanels(codes, statistics, remainder_norms),
        n_threads=n_threads, progress=progress,
    )  # fmt: skip
    packed_codes = arrays.packed
    if layout.is_by_item(has_projection=True) and not layout.is_by_item(has_projection=False):
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
        arrays.row_of_slot, packed_codes, arrays.small_offsets, arrays.statistics, arrays.shift,
    )  # fmt: skip
    return packed_items(
        packed.metric_type, layout, items, item_arrays, packed.units.unit, packed.units.offset_unit,
        projection=projection_record,
    )  # fmt: skip


def as_axes(V: npt.NDArray[Any], largest_k: npt.ArrayLike = (ANY_K, ANY_K)) -> Axes:
    """Convert p axes, the columns of V (d, p), to the format that kernels read.

    The columns of V should be orthonormal. The bound ``eta`` covers the rounding errors of
    projected rows, and the effect of the difference between V'V and the identity.
    """
    depth, p = V.shape
    n_panels = -(-p // PANEL)
    panels = np.zeros((depth, n_panels * PANEL), np.float32)
    panels[:, :p] = V
    axes_float64 = panels[:, :p].astype(np.float64)
    with blas_lock():
        # eps must be at least the spectral norm of V'V - I. The Frobenius norm is never smaller
        # than the spectral norm.
        eps = float(np.linalg.norm(axes_float64.T @ axes_float64 - np.eye(p))) + 1e-12
    run = min(depth, projection.RUN) + depth // projection.RUN + 9
    rho = 1.1 * math.sqrt(p) * run * 2.0**-24
    # A bound on the relative rounding error of a sum of squares in float32, if each of 16 lanes
    # computes a part of the sum.
    squares = (depth / 16 + 16) * 2.0**-22
    panels = panels.reshape(depth, n_panels, PANEL).swapaxes(0, 1)
    bound = 1.1 * (1 + eps) ** 2 * (3 * eps + 2 * rho) + squares
    eta = np.full(1, bound, np.float32) * np.float32(1.000001)
    arrays = np.ascontiguousarray(panels), eta, np.array(largest_k, np.float32)
    return Axes(*map(validation.read_only, arrays))


def principal_axes(sample: Floats32, p: int) -> Floats32:
    """Return the p leading principal axes (d, p) of rows (m, d), computed by subspace iteration.

    The axis along which the rows have the largest sum of squares comes first.
    """
    rng = np.random.default_rng(_SEED)
    square = sample.T @ sample
    V = square @ rng.standard_normal((len(square), p), dtype=np.float32)
    V = np.linalg.qr(square @ np.linalg.qr(V)[0])[0]
    _, rotation = np.linalg.eigh(V.T @ (square @ V))
    return V @ rotation[:, ::-1]


def rotated(axes: Floats32) -> Floats32:
    """Rotate the axes (d, p) at random within the subspace that they span, and return them.

    Along principal axes, the first coordinates of a row would be much larger than the others, so
    the int8 codes of the row would have larger rounding errors.
    """
    p = axes.shape[1]
    rng = np.random.default_rng(_SEED + p)
    return axes @ np.linalg.qr(rng.standard_normal((p, p)))[0].astype(np.float32)


def _choose_axes(packed: PackedItems, items: EncodedRows, scaling: RowScaling) -> Axes | None:
    """Return the axes with which searches are fastest, or None if no projection saves time."""
    arrays, n = packed.arrays, len(packed.arrays.row_of_slot)
    # Let f be (i * golden ratio) mod 1. Sampled item i is at place f * n in the list of n items.
    # The places are spread over the whole list, but the distances between them vary. Even if
    # similar items recur at regular distances, the sample does not consist mainly of similar items.
    steps = np.arange(min(cost_model.COSTS.projection_sample_rows, n))
    places = (steps * 0.6180339887498949 % 1.0 * n).astype(np.int64)
    numbers = arrays.row_of_slot[places].astype(np.int64)
    sampled_items, factors = items.take(numbers), scaling.factors[numbers]
    rows = sampled_items.rows
    sample = (memmap.from_bits(rows) * factors[:, np.newaxis]).astype(np.float32)
    if len(scaling.shift):
        sample -= (scaling.coefficients[numbers, np.newaxis] * scaling.shift).astype(np.float32)
    query_places = slice(0, cost_model.COSTS.projection_sample_queries)
    encoded = sampled_items.take(query_places)
    # Low-precision rows that serve as queries are converted to float64, like the queries of a
    # search.
    if memmap.from_bits(rows) is not rows or rows.dtype == np.int8:
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
    weighted_offsets = scaled_queries.scaling.weights[:, np.newaxis] * offsets
    # A ratio may exceed the range of float32 if the measure is dot and the norm of a query is
    # small. The products are therefore computed in float64, and then converted to float32.
    queries = (sample[query_places] * ratios[:, np.newaxis]).astype(np.float32)
    # Before the process forks, the forking thread waits for the lock of BLAS. The thread that
    # computes the projection must therefore not wait for another lock while it holds the lock of
    # BLAS. BLAS may use several threads here: limiting the number of its threads would affect the
    # whole process, and thus the user's code.
    with blas_lock():
        directions = _directions(sample, queries, weighted_offsets, n)
    return None if directions is None else as_axes(*directions)


def _directions(
    sample: Floats32, queries: Floats32, weighted_offsets: Floats32, n_items: int
) -> tuple[Floats32, list[int]] | None:
    """Return the axes (d, p) that make searches fastest, and the field ``largest_k`` of ``Axes``.

    The function returns None if searches are fastest without a projection. ``n_items`` is the
    number of items from which ``sample`` was drawn. The other arguments are described in
    ``_remaining_shares``.
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
    # There may be fewer items than the largest rank, so a count is at most the size of the sample.
    counts = [min(len(sample), max(1, round(rank * len(sample) / n_items))) for rank in ranks]
    shares = _remaining_shares(sample, queries, weighted_offsets, axes, widths, counts)
    # The unit of all costs is the time that a tile needs to multiply one column.
    pairs = (costs.pair_overhead_columns + costs.pair_cost_per_column * depth) * shares
    durations = np.array(widths)[:, np.newaxis] + costs.tile_overhead_columns + pairs
    usual = [ks.index(k) for k in costs.usual_k]
    best = int(np.argmin(durations[:, usual].mean(axis=1)))
    gains = (depth + costs.tile_overhead_columns) / durations[best]
    # With a larger k, the projection rules out fewer pairs, so it saves less time.
    min_gains = costs.min_projection_gains
    max_k = [max([0, *itertools.compress(ks, gains >= gain)]) for gain in min_gains]
    if not any(max_k):
        return None
    return rotated(axes[:, : widths[best]]), max_k


def _effective_columns(rows: Floats32) -> float:
    """Return the effective number of columns of rows (m, d).

    Let C be the mean of row'row over all rows. The effective number of columns is the square of the
    sum of the eigenvalues of C, divided by the sum of their squares. The sum of the squares is
    estimated by the mean squared inner product of two different rows; this estimate is unbiased.
    """
    m = len(rows)
    products = rows @ rows.T
    squared_norms = np.diag(products)
    squares = (np.square(products).sum() - np.square(squared_norms).sum()) / (m * (m - 1))
    return float(squared_norms.mean() ** 2 / max(squares, 1e-30))


def _remaining_shares(
    sample: Floats32,
    queries: Floats32,
    weighted_offsets: Floats32,
    axes: Floats32,
    widths: list[int],
    counts: list[int],
) -> npt.NDArray[np.float64]:
    """Return the share of (query, row) pairs that each projection cannot rule out.

    The result has one row for each number of axes in ``widths``, and one column for each number in
    ``counts``. ``sample`` (m, d) contains rows of the items. ``queries`` (q, d) contains the first
    q rows of ``sample``, with the scaling that a search applies to queries. ``weighted_offsets``
    (q, m) contains one number for each pair, which is added to the inner product of the pair. For
    each number c in ``counts``, the threshold of a query is the c-th best score of this query in
    ``sample``.
    """
    m = len(sample)
    scores = queries @ sample.T + weighted_offsets
    query_numbers = np.arange(len(queries))
    scores[query_numbers, query_numbers] = -np.inf
    sorted_scores = np.sort(scores, axis=1)
    thresholds = [sorted_scores[:, m - count, None] for count in counts]
    u, w = sample @ axes, queries @ axes
    norms, query_norms = (np.sqrt(np.square(rows).sum(axis=1)) for rows in (sample, queries))
    bound = weighted_offsets + cost_model.COSTS.code_error * query_norms[:, None] * norms
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
