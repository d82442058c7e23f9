"""Interactions in shards by the products that a Dask cluster computes, a task a shard."""

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from dask import config as dask_config
from distributed import Client, Future, as_completed, get_client, get_worker

from fastcos import config, storage, validation
from fastcos.linalg.sharded import TransposedOperator
from fastcos.linalg.shards import InteractionShards
from fastcos.linalg.sparse_operator import Matrix, SparseOperator

# of a worker's memory for what its tasks hold at once; the rest is Python, results, Dask
_SHARE_OF_A_WORKER = 0.5
# a column and a value of 8 bytes; sums of parts, as many as sparse_operator chooses; with fewer
# entries a column it builds X' instead
_BYTES_PER_ENTRY, _BYTES_OF_SUMS, _ENTRIES_PER_COLUMN = 12, 6, 96
# the graph carries Q (p, l) of a product, which a scattered copy could lose
_LARGE_GRAPH = {"distributed.admin.large-graph-warning-threshold": "4GiB"}


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

    def as_operator(self, n_threads: int | None) -> Any:
        """Products with X, a task per shard, on the workers' threads.

        Parameters
        ----------
        n_threads : int or None
            Not used.

        Returns
        -------
        Operator
        """
        largest = max(len(indices) for _, indices, _ in self._shards)
        return _ClusterOperator(self, self._client, largest)


class _ClusterOperator:
    """X by its products, each a task per shard and a tree of sums."""

    def __init__(self, X: InteractionShards, client: Client, largest_shard: int) -> None:
        self.shape, self.dtype = X.shape, X.dtype
        self._entries = largest_shard
        self._path, self._first_rows, self._client = str(X.path), X.first_rows, client

    def matmul(self, A: Matrix) -> Matrix:
        """Return X A."""
        futures = self._each("matmul", A)
        Y = np.empty((self.shape[0], A.shape[1]), np.result_type(self.dtype, A.dtype))
        firsts = dict(zip(futures, self._first_rows[:-1], strict=True))
        for future in as_completed(futures):
            rows = future.result()
            Y[firsts[future] : firsts[future] + len(rows)] = rows
        return Y

    def rmatmul(self, Y: Matrix) -> Matrix:
        """Return X'Y."""
        Z: Matrix = self._sum("rmatmul", Y)
        return Z

    def gram_matmul(self, Q: Matrix) -> Matrix:
        """Return X'(X Q)."""
        Z: Matrix = self._sum("gram_matmul", Q)
        return Z

    def gram(self) -> npt.NDArray[np.float64]:
        """Return X'X in float64."""
        total: npt.NDArray[np.float64] = self._sum("gram", None)
        return total

    def transposed(self) -> TransposedOperator:
        """Return X'."""
        return TransposedOperator(self)

    def _sum(self, product: str, factor: Matrix | None) -> Any:
        return in_a_tree(self._client, _added, self._each(product, factor)).result()

    def _each(self, product: str, factor: Matrix | None) -> list["Future[Any]"]:
        """One product of every shard. The factor is a task's result, which can be made again."""
        least, poorest = memory_of_poorest(self._client)
        needed = self._bytes_of_a_task(factor)
        if least < needed:
            raise ValueError(
                f"worker {poorest} must have {needed / 2**20:.0f} MiB a task for these products, "
                f"got {least / 2**20:.0f} (half of its memory limit by its threads): give it more "
                "memory or fewer threads, or write smaller shards"
            )
        with dask_config.set(_LARGE_GRAPH):
            held = self._client.submit(_as_it_is, factor, pure=False)
        return [
            self._client.submit(
                _product, self._path, number, product, held,
                self._first_rows[number] if product == "rmatmul" else 0, pure=False,
            )
            for number in range(len(self._first_rows) - 1)
        ]  # fmt: skip

    def _bytes_of_a_task(self, factor: Matrix | None) -> float:
        """A shard, X' of it where that is built, sums of its parts, the factor and the product."""
        p, entries = self.shape[1], self._entries
        copies = 1 if entries > _ENTRIES_PER_COLUMN * p else 2
        sums = min(_BYTES_OF_SUMS * entries, config.working_memory() * 2**20)
        products = 8 * p * p if factor is None else 2 * factor.nbytes
        return _BYTES_PER_ENTRY * copies * entries + sums + products


def in_a_tree(client: Client, combine: Any, parts: Sequence["Future[Any]"]) -> "Future[Any]":
    """Combine neighbours, then neighbouring results, and so on; an odd one out goes up."""
    while len(parts) > 1:
        pairs = [
            client.submit(combine, parts[i], parts[i + 1], pure=False)
            for i in range(0, len(parts) - 1, 2)
        ]
        parts = pairs + list(parts[2 * len(pairs) :])
    return parts[0]


def _added(some: Matrix, others: Matrix) -> Matrix:
    return some + others


def _as_it_is(value: Any) -> Any:
    return value


def _product(path: str, number: int, product: str, factor: Matrix | None, first: int) -> Matrix:
    """One product of one shard; runs on a worker. first: the shard's first row in the factor."""
    X = _shards(path).shard(number)
    operator = SparseOperator(X, threads_of_this_worker())
    if factor is None:
        return operator.gram()
    if product == "rmatmul":
        factor = factor[first : first + X.shape[0]]
    made: Matrix = getattr(operator, product)(validation.read_only(np.ascontiguousarray(factor)))
    return made


@functools.lru_cache(maxsize=4)
def _shards(path: str) -> InteractionShards:
    return InteractionShards(path, verify=False)


def threads_of_this_worker() -> int:
    """As many as the worker has, or the setting outside one; its tasks share one pool."""
    try:
        return int(get_worker().state.nthreads)
    except ValueError:
        return config.num_threads()


def use_threads_of_this_worker() -> None:
    """Make as many the setting of the process, where that is a worker's own."""
    try:
        worker = get_worker()
    except ValueError:
        return
    if worker.nanny is not None:
        config.set_config(num_threads=int(worker.state.nthreads))


def memory_of_poorest(client: Client) -> tuple[float, str]:
    """The fewest bytes that a worker has for a task, inf without limits; and its address."""
    workers = client.scheduler_info(n_workers=-1)["workers"]
    shares = {
        address: _SHARE_OF_A_WORKER * about["memory_limit"] / about["nthreads"]
        for address, about in workers.items()
        if about["memory_limit"]
    }
    poorest = min(shares, key=lambda address: shares[address], default="")
    return shares.get(poorest, math.inf), poorest
