"""Limits of this machine: how fast it multiplies, reads, copies and gathers, for a given work.

A :class:`Work` says what a call must do. A :class:`Limit` measures how long this machine takes for
that at least, by one small probe per resource, as in a roofline. Measure the limit and the call in
turns: the clock of a shared machine drifts by more than the two differ.
"""

import functools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from threadpoolctl import ThreadpoolController

from fastcos import config, parallel, validation
from fastcos.engine.packing import tile_layout
from fastcos.kernels import probes, sparse, tiles
from fastcos.linalg import buffer_pool, operators

# seconds of one probe: a hundred times the start of a thread, and short beside a turn
_PROBE_SECONDS = 2e-3
# bytes that a probe of the bandwidth reads: a first-level cache, and twice the largest last level
_LEAST_BYTES, _MOST_BYTES = 2**16, 2**28
# probes of a roof
_ROOF_PROBES = 20
# values that one call of a bandwidth probe reads: 0.2 ms at 80 GB/s
_PASS_VALUES = 2**22
# rows of a table that a gather adds: the end of a sum is a small part
_GATHERED_ROWS = 2**10
# rows and columns of the matrices of the gemm probes: near their best rate, 10 ms at 100 GFLOP/s
_GEMM_SIZE = 768
# columns of the tile probe: packed as int8, a panel of items and one of queries take 16 kB
_TILE_DEPTH = 256
# blocks of products of the tile probe: 2 ms with AMX, at the rate of 512 blocks within 2 %
_TILE_BLOCKS = 16


class Work(NamedTuple):
    """What one call must do, by the plain method.

    Attributes
    ----------
    units : float
        What throughput counts: pairs, rows, non-zeros.
    multiply_adds : float
    arithmetic : {"tile", "float32", "float64"}
        Whose peak bounds the multiply-adds. tile: the register tile of the search, int8 where the
        CPU has it, on data in the first-level cache; float32 and float64: gemm.
    reads, writes : float
        Bytes that must move: inputs once, outputs once.
    gathers : float
        Rows that are read one by one from a table of float32.
    table : tuple of int
        Rows and columns of this table.
    order : ndarray of int32, optional
        Rows in the order of the gathers, or the start of it. Default: at random.
    """

    units: float
    multiply_adds: float = 0.0
    arithmetic: str = "float32"
    reads: float = 0.0
    writes: float = 0.0
    gathers: float = 0.0
    table: tuple[int, int] = (0, 0)
    order: npt.NDArray[np.int32] | None = None

    @property
    def bytes(self) -> float:
        """Bytes that must move."""
        return self.reads + self.writes


def search_work(n: int, m: int, d: int, k: int) -> Work:
    """Return the work of n queries among m items: float32 rows in, indices and scores out."""
    pairs = float(n) * m
    return Work(pairs, pairs * d, "tile", 4.0 * d * (n + m), 12.0 * n * k)


def bytes_of(X: Any) -> float:
    """Return the bytes of a CSR matrix."""
    return float(X.data.nbytes + X.indices.nbytes + X.indptr.nbytes)


def product_work(X: Any, columns: int) -> Work:
    """Return the work of X A for a CSR matrix X and so many columns of float32."""
    (n, p), nnz = X.shape, float(X.nnz)
    reads, writes = bytes_of(X) + 4.0 * p * columns, 4.0 * n * columns
    return Work(nnz, nnz * columns, "float32", reads, writes, nnz, (p, columns), X.indices)


def gram_work(X: Any, columns: int) -> Work:
    """Return the work of X'(X A): one pass over X, and two multiply-adds a non-zero and column."""
    one = product_work(X, columns)
    return one._replace(
        multiply_adds=2 * one.multiply_adds, writes=4.0 * X.shape[1] * columns,
        gathers=2 * one.gathers,
    )  # fmt: skip


def svd_work(X: Any, k: int) -> Work:
    """Return the work of two blocks of k columns: no truncated SVD needs fewer passes over X."""
    one = gram_work(X, k)
    return one._replace(
        multiply_adds=2 * one.multiply_adds, reads=2.0 * bytes_of(X), writes=0.0,
        gathers=2 * one.gathers,
    )  # fmt: skip


def roofs() -> tuple[dict[str, float], float]:
    """Measure the peaks in operations per second, and the bytes per second read from memory."""
    layout = tile_layout(config.isa(), _TILE_DEPTH)
    tile = f"{'int8' if layout.quantised else 'float32'} tile, {layout.isa}"
    rates: list[Callable[[], float]] = [
        _tile_rate, _gemm_rate("float32"), functools.partial(_read_rate, _MOST_BYTES // 4),
    ]  # fmt: skip
    # the best of several: the first compiles, and other work on the machine lowers a rate
    best = [max(rate() for _ in range(_ROOF_PROBES)) for rate in rates]
    return {tile: 2 * best[0], "float32 gemm": 2 * best[1]}, best[2]


class Limit:
    """The least seconds of a work on this machine.

    Parameters
    ----------
    work : Work

    Attributes
    ----------
    bound : str
        The resource that took longest in the last measurement; "none" for a work without any.
    """

    def __init__(self, work: Work) -> None:
        self.bound = "none"
        self._probes = _probes(work)
        self.seconds()  # compiles, and touches the memory

    def seconds(self) -> float:
        """Measure once: the longest of the work's resources, each at its rate of this moment."""
        found = {name: amount / rate() for name, (amount, rate) in self._probes.items()}
        if not found:
            return 0.0
        self.bound = max(found, key=lambda name: found[name])
        return found[self.bound]


# an amount, and a function that measures how much of it is done per second
_Probe = tuple[float, Callable[[], float]]


def _probes(work: Work) -> dict[str, _Probe]:
    probes: dict[str, _Probe] = {}
    if work.multiply_adds:
        rate = _tile_rate if work.arithmetic == "tile" else _gemm_rate(work.arithmetic)
        probes[work.arithmetic] = work.multiply_adds, rate
    size = int(min(max(work.reads, work.writes, _LEAST_BYTES), _MOST_BYTES)) // 4
    if work.reads > work.writes:
        probes["read"] = work.reads - work.writes, functools.partial(_read_rate, size)
    if work.writes:  # as many bytes are read beside it
        probes["copy"] = 2 * work.writes, functools.partial(_copy_rate, size)
    if work.gathers:
        table, order = _table(work.table), work.order
        if order is None:
            order = np.random.default_rng(0).integers(0, len(table), 2**18).astype(np.int32)
        probes["gather"] = work.gathers, functools.partial(_gather_rate, table, order[: 2**18])
    return probes


def _rate(amount: float, call: Callable[[], object]) -> float:
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


def _parts(n: int) -> Any:
    """Return the boundaries of one block per thread."""
    return parallel.row_blocks(n, -(-n // config.num_threads()))


def _ones(*shape: int) -> Any:
    """Return ones on whole huge pages: how many NumPy's array gets differs between processes."""
    values = buffer_pool.empty(shape, np.float32)
    values[:] = 1
    return values


@functools.cache
def _values(size: int) -> tuple[Any, Any]:
    return _ones(size), _ones(size)


@functools.lru_cache(1)
def _table(shape: tuple[int, int]) -> Any:
    return _ones(*shape)


def _memory_rate(kernel: Any, bytes_per_value: int, size: int) -> float:
    """Return bytes per second of reading or copying that many float32 values, on all threads."""
    # a call of few values costs more than its work
    passes = max(1, _PASS_VALUES // size)
    call = functools.partial(parallel.run, kernel, _parts(size), passes, *_values(size))
    return _rate(float(bytes_per_value * passes * size), call)


_read_rate = functools.partial(_memory_rate, probes.read_values, 4)
_copy_rate = functools.partial(_memory_rate, probes.copy_values, 8)


def _gather_rate(table: Any, order: Any) -> float:
    """Return rows per second of sums over rows of the table, in this order.

    By the kernel of X A, of a few long rows of ones: without the values, ends and results of rows.
    """
    ends = validation.read_only(np.append(np.arange(0, len(order), _GATHERED_ROWS), len(order)))
    sums = buffer_pool.empty((len(ends) - 1, table.shape[1]), np.float32)
    arrays = ends, validation.read_only(order), None, validation.read_only(table), sums, False
    kernel = operators.kernel_body(sparse, "matmul_rows")
    return _rate(len(order), lambda: parallel.run(kernel, _parts(len(sums)), *arrays))


def _gemm_rate(dtype: str) -> Callable[[], float]:
    """Return a function that measures multiply-adds per second of NumPy's matrix product.

    Each thread of the pool has a product of its own: the threads of OpenBLAS spin for 50 ms after
    theirs and would slow down what is measured next (X A with 64 columns: 9.2 instead of 5.5 ms).
    """
    n = config.num_threads()
    left, out = (
        np.ones((_GEMM_SIZE, _GEMM_SIZE), dtype),
        np.empty((n, _GEMM_SIZE, _GEMM_SIZE), dtype),
    )

    def multiply(lo: int, hi: int) -> None:
        for product in out[lo:hi]:
            np.matmul(left, left, out=product)

    def rate() -> float:
        with _blas().limit(limits=1, user_api="blas"):
            return _rate(n * float(_GEMM_SIZE**3), lambda: parallel.run(multiply, _parts(n)))

    return rate


@functools.cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()


def _tile_rate() -> float:
    """Return multiply-adds per second in the registers of this instruction set."""
    layout = tile_layout(config.isa(), _TILE_DEPTH)
    done = np.zeros(_TILE_BLOCKS)
    arrays = tiles.ISA_TUPLES[layout.isa], tiles.configuration(), layout.empty_array(), done
    run = functools.partial(parallel.run, probes.multiply_registers, _parts(len(done)), *arrays)
    run()
    return _rate(float(done.sum()), run)
