"""Measure the shortest time in which this machine could do the work of a call.

A :class:`Work` states how many operations and bytes a call needs. As in the roofline model, a
:class:`Limit` measures the shortest possible time of this work on this machine. A limit runs one
short probe for each resource: multiplication, reading, copying and gathering. The speed of a shared
machine changes over time, often by more than the difference between the time of a call and its
limit. Measure the limit and the call alternately for this reason.
"""

import functools
import time
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import ThreadpoolController

from fastcos import config, parallel, validation
from fastcos.kernels import probes, records, sparse, tiles
from fastcos.kernels.simd.instruction_sets import INSTRUCTION_SETS
from fastcos.linalg import operators
from fastcos.parallel import buffer_pool
from fastcos.search.layout import tile_layout

# The seconds that a probe takes. A probe is a hundred times as long as the start of a thread, but
# much shorter than a turn (a series of timed calls).
_PROBE_SECONDS = 2e-3
# The smallest and the largest number of bytes that a probe of the bandwidth reads. _MIN_PROBE_BYTES
# bytes fit in a first-level cache. _MAX_PROBE_BYTES is twice the size of the largest last-level
# cache.
_MIN_PROBE_BYTES, _MAX_PROBE_BYTES = 2**16, 2**28
# The number of probes per resource. The highest rate of these probes counts as the peak rate of the
# machine.
_ROOF_PROBES = 20
# The number of values that one call of a bandwidth probe reads. These values take 0.2 ms at 80
# GB/s.
_PASS_VALUES = 2**22
# The number of rows that a gather adds. With this number of rows, the time for storing the sum at
# the end is negligible.
_GATHERED_ROWS = 2**10
# The number of rows and columns of the matrices that the gemm probes multiply. Matrices of this
# size are multiplied at nearly the highest rate. One product takes 10 ms at 100 GFLOP/s.
_GEMM_SIZE = 768
# The tile probe multiplies panels that have this number of columns. A panel of items and a panel of
# queries with this number of columns together take 16 kB if they are packed as int8.
_TILE_DEPTH = 256
# The number of blocks that the tile probe multiplies. With AMX, multiplying this number of blocks
# takes 2 ms. If the probe multiplies 512 blocks instead of _TILE_BLOCKS, the measured rate changes
# by at most 2 %.
_TILE_BLOCKS = 16


class Work(NamedTuple):
    """The operations and bytes that one call needs by the plain method, which takes no shortcut."""

    # The number of units of work, such as pairs, rows or non-zeros. The throughput is this number
    # divided by the time.
    units: float
    multiply_adds: float = 0.0
    # The kind of arithmetic. The peak rate of this kind limits the speed of the multiply-adds. The
    # kinds "float32" and "float64" stand for matrix products in these types. The kind "tile" stands
    # for the inner loop of the search on data in the first-level cache; this loop uses int8 if the
    # CPU has instructions for int8.
    arithmetic: str = "float32"
    # The numbers of bytes that the call reads and writes if it reads every input once and writes
    # every output once.
    reads: float = 0.0
    writes: float = 0.0
    # `gathers` is the number of rows that are read one by one from a float32 table, and `table` is
    # the shape of this table. `order` contains row numbers as int32, in the order in which the rows
    # are read; it need not contain all of them. If `order` is None, the probe reads random rows.
    gathers: float = 0.0
    table: tuple[int, int] = (0, 0)
    order: Any = None

    @property
    def bytes(self):
        """The number of bytes that are read or written."""
        return self.reads + self.writes


def search_work(n, m, d, k):
    """Return the work of a search: n queries, m items and d columns of float32, k results each."""
    pairs = float(n) * m
    return Work(pairs, pairs * d, "tile", 4.0 * d * (n + m), 12.0 * n * k)


def bytes_of(X):
    """Return the bytes of the three arrays of a CSR matrix."""
    return float(X.data.nbytes + X.indices.nbytes + X.indptr.nbytes)


def product_work(X, columns):
    """Return the work of X A, for a CSR matrix X and a float32 matrix A with `columns` columns."""
    (n, p), nnz = X.shape, float(X.nnz)
    reads, writes = bytes_of(X) + 4.0 * p * columns, 4.0 * n * columns
    return Work(nnz, nnz * columns, "float32", reads, writes, nnz, (p, columns), X.indices)


def gram_work(X, columns):
    """Return the work of X'(X A), computed in one pass over X.

    Each non-zero of X takes two multiply-adds for each column of A.
    """
    product = product_work(X, columns)
    adds, gathers, writes = (
        2 * product.multiply_adds,
        2 * product.gathers,
        4.0 * X.shape[1] * columns,
    )
    return product._replace(multiply_adds=adds, gathers=gathers, writes=writes)


def svd_work(X, k):
    """Return the work of two products, in which X'X is multiplied by a block of k columns.

    Every truncated SVD needs at least these two passes over X.
    """
    gram = gram_work(X, k)
    adds, gathers, reads = 2 * gram.multiply_adds, 2 * gram.gathers, 2.0 * bytes_of(X)
    return gram._replace(multiply_adds=adds, gathers=gathers, reads=reads, writes=0.0)


def roofs():
    """Return the peak rates: arithmetic operations per second, and bytes read per second."""
    layout = tile_layout(config.isa(), _TILE_DEPTH)
    tile = f"{'int8' if layout.quantised else 'float32'} tile, {layout.isa}"
    read_rate = _memory_rate(probes.read_values, 4, _MAX_PROBE_BYTES // 4)
    rates = _tile_rate, _gemm_rate("float32"), read_rate
    # Each rate is probed several times, and the highest result counts, because some probes are too
    # slow. The first probe also compiles its kernel, and other work on the machine may slow down
    # any probe.
    best = [max(rate() for _ in range(_ROOF_PROBES)) for rate in rates]
    return {tile: 2 * best[0], "float32 gemm": 2 * best[1]}, best[2]


class Limit:
    """The shortest time, in seconds, in which this machine could do a :class:`Work`.

    bound is the resource that took longest in the latest measurement. If the Work needs no
    resource, bound is "none".
    """

    def __init__(self, work):
        self.bound = "none"
        # For each resource, `probes` contains the amount that the Work needs, and a function that
        # measures which amount this machine handles per second.
        self.probes = probes_by_resource = {}
        if work.multiply_adds:
            rate = _tile_rate if work.arithmetic == "tile" else _gemm_rate(work.arithmetic)
            probes_by_resource[work.arithmetic] = work.multiply_adds, rate
        size = int(min(max(work.reads, work.writes, _MIN_PROBE_BYTES), _MAX_PROBE_BYTES)) // 4
        if work.reads > work.writes:
            rate = _memory_rate(probes.read_values, 4, size)
            probes_by_resource["read"] = work.reads - work.writes, rate
        if work.writes:  # the probe of copying reads as many bytes as it writes
            probes_by_resource["copy"] = 2 * work.writes, _memory_rate(probes.copy_values, 8, size)
        if work.gathers:
            probes_by_resource["gather"] = work.gathers, _gather_rate(work.table, work.order)
        self.seconds()  # compiles the probes and touches their memory

    def seconds(self):
        """Measure the rates of all resources again; return the time of the slowest resource."""
        seconds = {name: amount / rate() for name, (amount, rate) in self.probes.items()}
        if not seconds:
            return 0.0
        self.bound = max(seconds, key=seconds.get)
        return seconds[self.bound]


def _rate(amount, call):
    """Return the rate of a call: the amount that the call handles, divided by its shortest time.

    The first call only fills the caches, and is not timed. Without this call, the rate of gathers
    could differ by a factor of 2, because data of an earlier probe may still be in the caches.
    """
    call()
    shortest, started = np.inf, time.perf_counter()
    while True:
        before = time.perf_counter()
        call()
        ended = time.perf_counter()
        shortest = min(shortest, ended - before)
        if ended - started >= _PROBE_SECONDS:
            return amount / shortest


def _parts(n):
    """Return the boundaries of one block per thread."""
    return parallel.row_blocks(n, -(-n // config.n_threads()))


@functools.lru_cache(4)
def _ones(*shape):
    """Return an array of ones on huge pages.

    An ordinary NumPy array lies only partly on huge pages. This part differs from process to
    process, so the time for reading the array differs, too.
    """
    values = buffer_pool.empty(shape, np.float32)
    values[:] = 1
    return values


# Each of the following functions returns another function, which measures a rate per second.


def _memory_rate(kernel, bytes_per_value, size):
    """Return a function that measures the bytes per second of a kernel that reads or copies.

    The kernel works on arrays of `size` float32 values, on all threads.
    """
    # If the arrays contain few values, one pass over them takes less time than the call of the
    # kernel itself. Several passes are therefore made in one call.
    passes = max(1, _PASS_VALUES // size)
    call = functools.partial(parallel.run, kernel, _parts(size), passes, *_ones(2, size))
    return functools.partial(_rate, float(bytes_per_value * passes * size), call)


def _gather_rate(shape, order):
    """Return a function that measures how many rows of a table are added per second in this order.

    The rows are added by the kernel that computes X A. The matrix X has a few long rows, whose
    entries are all 1 and are not stored.
    """
    table = _ones(*shape)
    if order is None:
        order = np.random.default_rng(0).integers(0, len(table), 2**18).astype(np.int32)
    order = validation.read_only(order[: 2**18])
    ends = validation.read_only(np.append(np.arange(0, len(order), _GATHERED_ROWS), len(order)))
    sums = buffer_pool.empty((len(ends) - 1, table.shape[1]), np.float32)
    arrays = records.Csr(ends, order, None), validation.read_only(table), sums, False
    kernel = operators.kernel_body(sparse, "matmul_rows")
    call = functools.partial(parallel.run, kernel, _parts(len(sums)), *arrays)
    return functools.partial(_rate, len(order), call)


def _gemm_rate(dtype):
    """Return a function that measures multiply-adds per second of NumPy's matrix product.

    Each thread of the pool computes a separate product with OpenBLAS limited to one thread. Threads
    of OpenBLAS spin for 50 to 105 ms after a product and would slow down the next measurement.
    """
    n, matrix = config.n_threads(), np.ones((_GEMM_SIZE, _GEMM_SIZE), dtype)
    out = np.empty((n, *matrix.shape), dtype)

    def multiply(lo, hi):
        for product in out[lo:hi]:
            np.matmul(matrix, matrix, out=product)

    def rate():
        with _blas().limit(limits=1, user_api="blas"):
            return _rate(n * float(_GEMM_SIZE**3), lambda: parallel.run(multiply, _parts(n)))

    return rate


_blas = functools.cache(ThreadpoolController)


def _tile_rate():
    """Return the multiply-adds per second of the tile probe, with the instruction set in use."""
    layout = tile_layout(config.isa(), _TILE_DEPTH)
    multiply_adds = np.zeros(_TILE_BLOCKS)
    arrays = (
        INSTRUCTION_SETS[layout.isa],
        tiles.configuration(),
        layout.empty_array(),
        multiply_adds,
    )
    run = functools.partial(
        parallel.run, probes.multiply_registers, _parts(len(multiply_adds)), *arrays
    )
    run()
    return _rate(float(multiply_adds.sum()), run)
