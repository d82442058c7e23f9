"""Interactions in shards by the products that a Dask cluster computes, a task a shard."""

import functools
import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
from dask import config as dask_config
from distributed import Client, Future, as_completed, get_client, get_worker

from fastcos import config, storage, validation
from fastcos.linalg.operators import Matrix, Operator, SparseOperator
from fastcos.linalg.shards import InteractionShards
from fastcos.validation import Floats

# share of a worker's memory for what its tasks hold at once; Python, results and Dask take the rest
_TASKS_SHARE = 0.5
# bytes of an entry: a column of 4 and a value of 8
_BYTES_PER_ENTRY = 12
# bytes per entry of the sums of parts: a panel's row of 256 by partial_sums.NNZ_PER_COLUMN
_SUM_BYTES_PER_ENTRY = 6
# entries per column below which there is one part, and SparseOperator builds X' instead
_ENTRIES_PER_COLUMN = 96
# the graph carries the factor Q (p, l), because a scattered copy is lost with its worker
_LARGE_GRAPH = {"distributed.admin.large-graph-warning-threshold": "4GiB"}
_open_shards = functools.lru_cache(maxsize=4)(InteractionShards)


class ClusterShards(InteractionShards):
    """InteractionShards whose products are computed by the workers of a cluster.

    Parameters
    ----------
    path : path-like
        The same for every worker.
    client : distributed.Client, optional
        Default: the current one.
    """

    def __init__(self, path: storage.PathLike, client: Client | None = None) -> None:
        super().__init__(path, verify=False)
        self._client = get_client() if client is None else client

    def _as_operator(self, n_threads: int | None) -> Operator:
        """Return X as an operator: a task per shard, on all threads of the workers."""
        largest = max(len(indices) for _, indices, _ in self._shards)
        return _ClusterOperator(self, self._client, largest)


class _ClusterOperator(Operator):
    """Products as a task per shard and a tree of sums."""

    def __init__(self, X: InteractionShards, client: Client, largest_shard: int) -> None:
        self.shape, self.dtype = X.shape, X.dtype
        self._entries = largest_shard
        self._path, self._first_rows, self._client = str(X.path), X.first_rows, client

    def matmul(self, A: Matrix) -> Matrix:
        futures = self._each("matmul", A)
        Y = np.empty((self.shape[0], A.shape[1]), np.result_type(self.dtype, A.dtype))
        firsts = dict(zip(futures, self._first_rows[:-1], strict=True))
        for future in as_completed(futures):
            rows = future.result()
            Y[firsts[future] : firsts[future] + len(rows)] = rows
        return Y

    def rmatmul(self, Y: Matrix) -> Matrix:
        return self._sum("rmatmul", Y)

    def gram_matmul(self, Q: Matrix) -> Matrix:
        return self._sum("gram_matmul", Q)

    def gram(self) -> Floats:
        return self._sum("gram", None)

    def _sum(self, product: str, factor: Matrix | None) -> Floats:
        total = reduce_in_tree(self._client, operator.add, self._each(product, factor))
        return total.result()

    def _each(self, product: str, factor: Matrix | None) -> list["Future[Any]"]:
        """Submit one product per shard. The factor is a task's result, so Dask can recompute it."""
        least, worker = smallest_worker(self._client)
        needed = self._bytes_of_a_task(factor)
        if least < needed:
            raise ValueError(
                f"worker {worker} must have {needed / 2**20:.0f} MiB a task for these products, "
                f"got {least / 2**20:.0f} (half of its memory limit by its threads): give it more "
                "memory or fewer threads, or write smaller shards"
            )
        with dask_config.set(_LARGE_GRAPH):
            held = self._client.submit(_identity, factor, pure=False)
        return [
            self._client.submit(
                _product, self._path, number, product, held,
                self._first_rows[number] if product == "rmatmul" else 0, pure=False,
            )
            for number in range(len(self._first_rows) - 1)
        ]  # fmt: skip

    def _bytes_of_a_task(self, factor: Matrix | None) -> float:
        """A shard, its transpose where that is built, sums of parts, the factor and the product."""
        p, entries = self.shape[1], self._entries
        copies = 1 if entries > _ENTRIES_PER_COLUMN * p else 2
        sums = min(_SUM_BYTES_PER_ENTRY * entries, config.working_memory() * 2**20)
        products = 8 * p * p if factor is None else 2 * factor.nbytes
        return _BYTES_PER_ENTRY * copies * entries + sums + products


def reduce_in_tree(client: Client, combine: Any, parts: Sequence["Future[Any]"]) -> "Future[Any]":
    """Combine adjacent parts, then adjacent results, and so on; an odd last one moves up."""
    while len(parts) > 1:
        pairs = [
            client.submit(combine, parts[i], parts[i + 1], pure=False)
            for i in range(0, len(parts) - 1, 2)
        ]
        parts = pairs + list(parts[2 * len(pairs) :])
    return parts[0]


def _identity(value: Any) -> Any:
    return value


def _product(path: str, number: int, product: str, factor: Matrix | None, first: int) -> Matrix:
    """Compute one product of one shard, on a worker. first: the shard's first row in the factor."""
    X = _open_shards(path, verify=False).shard(number)
    shard = SparseOperator(X, threads_of_this_worker())
    if factor is None:
        return shard.gram()
    if product == "rmatmul":
        factor = factor[first : first + X.shape[0]]
    return getattr(shard, product)(validation.read_only(np.ascontiguousarray(factor)))


def threads_of_this_worker() -> int:
    """Return the worker's number of threads, outside one the setting; its tasks share one pool."""
    try:
        return int(get_worker().state.nthreads)
    except ValueError:
        return config.num_threads()


def use_threads_of_this_worker() -> None:
    """Set the worker's number of threads for its process, unless the worker is inside another."""
    try:
        worker = get_worker()
    except ValueError:
        return
    if worker.nanny is not None:
        config.set_config(num_threads=int(worker.state.nthreads))


def smallest_worker(client: Client) -> tuple[float, str]:
    """Return the fewest bytes that a worker has for a task, inf without limits; and its address."""
    workers = client.scheduler_info(n_workers=-1)["workers"]
    shares = {
        address: _TASKS_SHARE * about["memory_limit"] / about["nthreads"]
        for address, about in workers.items()
        if about["memory_limit"]
    }
    smallest = min(shares, key=lambda address: shares[address], default="")
    return shares.get(smallest, math.inf), smallest
