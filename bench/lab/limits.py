"""Limits of this machine: how fast it multiplies, reads, copies and gathers, for a given work.

A :class:`Work` says what a call must do. A :class:`Limit` measures how long this machine takes for
that at least, by one small probe per resource, as in a roofline. Measure the limit and the call in
turns: the clock of a shared machine drifts by more than the two differ.
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

# The seconds of one probe: a hundred times as long as starting a thread, but short beside a turn.
_PROBE_SECONDS = 2e-3
# A probe of the bandwidth reads from as many bytes as fit a first-level cache, up to twice the
# largest last-level cache.
_LEAST_BYTES, _MOST_BYTES = 2**16, 2**28
# The number of probes of a roof.
_ROOF_PROBES = 20
# The number of values that one call of a bandwidth probe reads. They take 0.2 ms at 80 GB/s.
_PASS_VALUES = 2**22
# The number of rows that a gather adds. It is large, so that ending a sum hardly counts.
_GATHERED_ROWS = 2**10
# The rows and columns of the matrices of the gemm probes, which reach nearly the best rate. One
# product takes 10 ms at 100 GFLOP/s.
_GEMM_SIZE = 768
# The columns of the tile probe. Packed as int8, a panel of items and one of queries take 16 kB.
_TILE_DEPTH = 256
# The blocks of products of the tile probe. They take 2 ms with AMX, at a rate within 2 % of that of
# 512 blocks.
_TILE_BLOCKS = 16


class Work(NamedTuple):
    """What one call must do, by the plain method."""

    # The units that the throughput counts, such as pairs, rows or non-zeros.
    units: float
    multiply_adds: float = 0.0
    # The arithmetic whose peak rate bounds the multiply-adds. "float32" and "float64" are products
    # of matrices; "tile" is the inner loop of the search on data in the first-level cache, which
    # uses int8 if the CPU has such instructions.
    arithmetic: str = "float32"
    # Bytes that must be read and written: every input and every output once.
    reads: float = 0.0
    writes: float = 0.0
    # The number of rows that are read one by one from a float32 table, the shape of the table, and
    # the int32 row numbers in the order of the reads, or the first of them; by default random ones.
    gathers: float = 0.0
    table: tuple[int, int] = (0, 0)
    order: Any = None

    @property
    def bytes(self):
        """Bytes that must move."""
        return self.reads + self.writes


def search_work(n, m, d, k):
    """Return the work of n queries among m items: float32 rows in, indices and scores out."""
    pairs = float(n) * m
    return Work(pairs, pairs * d, "tile", 4.0 * d * (n + m), 12.0 * n * k)


def bytes_of(X):
    """Return the bytes of a CSR matrix."""
    return float(X.data.nbytes + X.indices.nbytes + X.indptr.nbytes)


def product_work(X, columns):
    """Return the work of X A for a CSR matrix X and so many columns of float32."""
    (n, p), nnz = X.shape, float(X.nnz)
    reads, writes = bytes_of(X) + 4.0 * p * columns, 4.0 * n * columns
    return Work(nnz, nnz * columns, "float32", reads, writes, nnz, (p, columns), X.indices)


def gram_work(X, columns):
    """Return the work of X'(X A): one pass over X, and two multiply-adds a non-zero and column."""
    one = product_work(X, columns)
    adds, gathers, writes = 2 * one.multiply_adds, 2 * one.gathers, 4.0 * X.shape[1] * columns
    return one._replace(multiply_adds=adds, gathers=gathers, writes=writes)


def svd_work(X, k):
    """Return the work of two blocks of k columns: no truncated SVD needs fewer passes over X."""
    one = gram_work(X, k)
    adds, gathers, reads = 2 * one.multiply_adds, 2 * one.gathers, 2.0 * bytes_of(X)
    return one._replace(multiply_adds=adds, gathers=gathers, reads=reads, writes=0.0)


def roofs():
    """Measure the peaks in operations per second, and the bytes per second read from memory."""
    layout = tile_layout(config.isa(), _TILE_DEPTH)
    tile = f"{'int8' if layout.quantised else 'float32'} tile, {layout.isa}"
    rates = _tile_rate, _gemm_rate("float32"), _memory_rate(probes.read_values, 4, _MOST_BYTES // 4)
    # The best of several probes counts: the first one compiles, and other work lowers a rate.
    best = [max(rate() for _ in range(_ROOF_PROBES)) for rate in rates]
    return {tile: 2 * best[0], "float32 gemm": 2 * best[1]}, best[2]


class Limit:
    """The least seconds of a work on this machine.

    bound is the resource that took longest in the last measurement; "none" for a work without any.
    """

    def __init__(self, work):
        self.bound = "none"
        # By resource: the amount that is needed, and a function that measures the rate per second.
        self.probes = probed = {}
        if work.multiply_adds:
            rate = _tile_rate if work.arithmetic == "tile" else _gemm_rate(work.arithmetic)
            probed[work.arithmetic] = work.multiply_adds, rate
        size = int(min(max(work.reads, work.writes, _LEAST_BYTES), _MOST_BYTES)) // 4
        if work.reads > work.writes:
            rate = _memory_rate(probes.read_values, 4, size)
            probed["read"] = work.reads - work.writes, rate
        if work.writes:  # the probe reads as many bytes as it writes
            probed["copy"] = 2 * work.writes, _memory_rate(probes.copy_values, 8, size)
        if work.gathers:
            probed["gather"] = work.gathers, _gather_rate(work.table, work.order)
        self.seconds()  # compiles the probes and touches their memory

    def seconds(self):
        """Measure once: the longest of the work's resources, each at its rate of this moment."""
        found = {name: amount / rate() for name, (amount, rate) in self.probes.items()}
        if not found:
            return 0.0
        self.bound = max(found, key=found.get)
        return found[self.bound]


def _rate(amount, call):
    """Return how much per second, of an amount per call: by the fastest of some calls.

    A call that is not timed fills the caches: whether data of an earlier probe are still in them
    changes the rate of gathers by a factor of 2.
    """
    call()
    least, started = np.inf, time.perf_counter()
    while True:
        before = time.perf_counter()
        call()
        ended = time.perf_counter()
        least = min(least, ended - before)
        if ended - started >= _PROBE_SECONDS:
            return amount / least


def _parts(n):
    """Return the boundaries of one block per thread."""
    return parallel.row_blocks(n, -(-n // config.n_threads()))


@functools.lru_cache(4)
def _ones(*shape):
    """Return ones on whole huge pages: how many NumPy's array gets differs between processes."""
    values = buffer_pool.empty(shape, np.float32)
    values[:] = 1
    return values


# Each returns a function that measures how much is done per second.


def _memory_rate(kernel, bytes_per_value, size):
    """Bytes of reading or copying that many float32 values, on all threads."""
    # With few values, the call would cost more than its work.
    passes = max(1, _PASS_VALUES // size)
    call = functools.partial(parallel.run, kernel, _parts(size), passes, *_ones(2, size))
    return functools.partial(_rate, float(bytes_per_value * passes * size), call)


def _gather_rate(shape, order):
    """Rows of sums over rows of a table, in this order.

    By the kernel of X A, of a few long rows of ones: without the values, ends and results of rows.
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
    """Multiply-adds of NumPy's matrix product.

    Each thread of the pool has a product of its own: those of OpenBLAS spin for 50 to 105 ms after
    theirs and would slow down what is measured next (X A with 64 columns: 9.2 instead of 5.5 ms).
    """
    n, left = config.n_threads(), np.ones((_GEMM_SIZE, _GEMM_SIZE), dtype)
    out = np.empty((n, *left.shape), dtype)

    def multiply(lo, hi):
        for product in out[lo:hi]:
            np.matmul(left, left, out=product)

    def rate():
        with _blas().limit(limits=1, user_api="blas"):
            return _rate(n * float(_GEMM_SIZE**3), lambda: parallel.run(multiply, _parts(n)))

    return rate


_blas = functools.cache(ThreadpoolController)


def _tile_rate():
    """Return multiply-adds per second in the registers of this instruction set."""
    layout = tile_layout(config.isa(), _TILE_DEPTH)
    done = np.zeros(_TILE_BLOCKS)
    arrays = INSTRUCTION_SETS[layout.isa], tiles.configuration(), layout.empty_array(), done
    run = functools.partial(parallel.run, probes.multiply_registers, _parts(len(done)), *arrays)
    run()
    return _rate(float(done.sum()), run)
