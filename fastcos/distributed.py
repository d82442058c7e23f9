"""Search, products, SVD and comparison on a Dask cluster (``pip install distributed``).

Inputs are files that every worker sees under the same path. A task gets a path and a range of rows,
maps them, and returns small arrays. Large arrays are not scattered, so a worker that dies loses no
data. Blocks follow from the size of the data and are merged in a fixed tree::

    top_k            blocks of queries x ranges of items -> best k, merged in a tree -> Checkpoint
    gram_matmul, randomized_svd, fit
                     ClusterShards -> a product per shard, added in a tree
    compare          this process fits the models; workers evaluate the cells

``top_k`` is bit-identical to :func:`fastcos.top_k`. Products are bit-identical on any number of
workers, and an SVD agrees with that of one machine within its certificate. A worker's tasks share
one pool of as many threads as the worker has. Dashboard, reports and scheduling are Dask's.
"""

import functools
import math
import operator
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import joblib
import numpy as np
import numpy.typing as npt
from dask import config as dask_config
from distributed import Client, Future, as_completed, get_client, get_worker

from fastcos import config, parallel, storage, validation
from fastcos.comparison import Comparison, interactions
from fastcos.linalg import products, svd
from fastcos.linalg.operators import Matrix, Operator, SparseOperator
from fastcos.linalg.shards import InteractionShards
from fastcos.linalg.svd import SVD
from fastcos.models.linear_mf import LinearMF
from fastcos.parallel import memmap
from fastcos.search.execute import batch_size, best_of_items, finish
from fastcos.search.output_directory import fingerprint
from fastcos.search.packing import ExecutionOptions, no_exclusions
from fastcos.search.request import SearchRequest, as_exclude_self
from fastcos.search.results import Neighbors
from fastcos.search.segments import merge
from fastcos.search.sources import MappedItems
from fastcos.similarity import BaseMeasure, get_measure
from fastcos.storage.checkpoint import Checkpoint
from fastcos.validation import Floats

__all__ = ["compare", "fit", "gram_matmul", "randomized_svd", "top_k"]

# Sizes of tasks follow from the size of the search alone: some seconds a task, measured by
# bench.lab.large on local workers. A task reads and packs its items, which all its queries share.
# queries of a task at most
QUERIES_PER_TASK = 1 << 17
# blocks of queries at least: two workers make 1.43 times the speed of one with four tasks, 1.75
# and 1.83 with eight
MIN_BLOCKS = 8
# items of a task at least: a top k of its own costs a query as much as 100,000 more items, and 2^18
# items a task take 1.20 of the time of one search
MIN_ITEMS = 1 << 19
# tasks at most: Dask's scheduler takes about 1 ms for each
MAX_TASKS = 1 << 15

# a worker keeps the evaluator of its last comparison
_load = functools.lru_cache(maxsize=1)(joblib.load)
Pairs = tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]
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


def top_k(
    queries: storage.PathLike,
    items: storage.PathLike | None = None,
    k: int = 10,
    *,
    measure: str = "cosine",
    exclude_self: bool | None = None,
    working_memory: float | None = None,
    progress: parallel.Progress | None = None,
    out: storage.PathLike,
    client: Client | None = None,
) -> Neighbors:
    """The k items most similar to every query, bit-identical to :func:`fastcos.top_k`.

    Returns memory maps of the arrays in out.

    Parameters
    ----------
    queries, items : path-like
        .npy files (n, d) and (m, d) that every worker can read under these paths. items=None: the
        queries themselves.
    k, exclude_self, progress
        As in :func:`fastcos.top_k`.
    measure : str
        Name of a measure whose fit learns nothing from the items.
    working_memory : float, optional
        MiB for one task. Default: the setting ``working_memory``, or half of the smallest worker's
        memory limit divided by its threads, if that is less; ValueError for more.
    out : path-like
        A new directory of this process: indices.npy, scores.npy and run.json, written block by
        block. The same call after a crash resumes with the missing blocks.
    client : distributed.Client, optional
        Default: the current one.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from distributed import Client
    >>> from fastcos import distributed
    >>> folder = tempfile.mkdtemp()
    >>> np.save(f"{folder}/items.npy", np.array([[1.0, 0.0], [1.0, 0.2], [0.0, 1.0]]))
    >>> with Client(processes=False, dashboard_address=":0") as client:
    ...     found = distributed.top_k(f"{folder}/items.npy", k=1, out=f"{folder}/neighbors")
    >>> np.array(found.indices).ravel().tolist()
    [1, 0, 1]
    """
    client = get_client() if client is None else client
    memory = _memory_per_task(client, working_memory)
    search = _check_search(queries, items, k, measure, exclude_self, memory)
    fitted, request = search.open()
    n, m = len(request.queries), fitted.n_items
    with Checkpoint(
        out,
        {**fingerprint(request, fitted.rows, fitted.measure), "exclude_self": search.exclude_self},
        {"indices": ((n, k), np.int64), "scores": ((n, k), np.float32)},
        min(batch_size(fitted, request, search.options()), queries_per_task(n)),
    ) as run:
        step = items_per_task(-(-n // run.block), m)
        ranges = [(lo, min(m, lo + step)) for lo in range(0, m, step)]
        blocks = {}
        for lo, hi in run.missing():
            parts = [client.submit(search.best_of, lo, hi, *some, pure=False) for some in ranges]
            best = reduce_in_tree(client, _merge, parts)
            blocks[client.submit(search.finish, lo, hi, best, pure=False)] = (lo, hi)
        done = n - sum(hi - lo for lo, hi in blocks.values())
        for future in as_completed(list(blocks)):
            lo, hi = blocks.pop(future)
            indices, scores = future.result()
            run.write(lo, indices=indices, scores=scores)
            done += hi - lo
            if progress is not None:
                progress(done, n)
        arrays = run.finish()
    return Neighbors(arrays["indices"], arrays["scores"])


def gram_matmul(
    path: storage.PathLike,
    Q: npt.ArrayLike,
    *,
    center: npt.ArrayLike | None = None,
    row_center: npt.ArrayLike | None = None,
    client: Client | None = None,
) -> Matrix:
    """Return X'(X Q) for interactions in shards, each shard a task.

    path: of :class:`fastcos.linalg.InteractionShards`, the same for every worker. The others are as
    in :func:`fastcos.gram_matmul`. The shards' products are added in a fixed tree: bit-identical on
    any number of workers. They differ by rounding from :func:`fastcos.gram_matmul`, which adds
    other parts of the rows.
    """
    shards = ClusterShards(path, client)
    return products.gram_matmul(shards, Q, center=center, row_center=row_center)


def randomized_svd(
    path: storage.PathLike, n_components: int, *, client: Client | None = None, **options: Any
) -> SVD:
    """Truncated SVD of interactions in shards; every product is a task per shard.

    path as in :func:`gram_matmul`, options as in :func:`fastcos.randomized_svd`, but for scale.
    """
    return svd.randomized_svd(ClusterShards(path, client), n_components, **options)


def fit(
    model: LinearMF,
    path: storage.PathLike,
    *,
    progress: parallel.Progress | None = None,
    client: Client | None = None,
) -> LinearMF:
    """Fit a LinearMF to interactions in shards, and return it; every product is a task per shard.

    path as in :func:`gram_matmul`, progress as in :meth:`fastcos.LinearMF.fit`.
    """
    return model.fit(ClusterShards(path, client), progress=progress)


def compare(
    X: Any,
    labels: Any = None,
    *,
    folder: storage.PathLike,
    client: Client | None = None,
    **options: Any,
) -> Comparison:
    """Which similarity to use, as :func:`fastcos.compare` finds it; every cell is a task.

    A cell is a measure under a rescaling after a preprocessing, or a row of the paper's table. This
    process fits the models and writes the data of the cells to a file that every worker reads once.
    A worker needs memory for X and the models. folder: a directory that every worker sees under
    this path, in which a temporary one is made.
    """
    client = get_client() if client is None else client
    where = validation.as_path("folder", folder).absolute()
    with tempfile.TemporaryDirectory(prefix=".comparison.", dir=where) as scratch:
        executor = functools.partial(_on_workers, client, Path(scratch))
        return interactions.compare(X, labels, executor=executor, **options)


def _on_workers(
    client: Client, folder: Path, evaluator: Any, works: Sequence[Any]
) -> Iterator[Any]:
    """Evaluate the works by copies of the evaluator that the workers read from the folder."""
    file = folder / uuid.uuid4().hex
    joblib.dump(evaluator, file)
    futures = [client.submit(_evaluate, str(file), work, pure=False) for work in works]
    for future in futures:
        yield future.result()
    file.unlink()


def _evaluate(file: str, work: Any) -> Any:
    """Return the result of one work; runs on a worker."""
    use_threads_of_this_worker()
    return _load(file).evaluate(work)


class _Search(NamedTuple):
    """A search as tasks see it: paths and numbers, no arrays."""

    queries: str
    items: str | None
    k: int
    measure: str
    exclude_self: bool
    memory: float

    def open(self) -> tuple[MappedItems, SearchRequest]:
        """Return the items and the request, with maps of the files."""
        queries = _open_rows("queries", self.queries)
        items = queries if self.items is None else _open_rows("items", self.items)
        request = SearchRequest(queries, self.k, None, None, None)
        return MappedItems(get_measure(self.measure), items), request

    def options(self) -> ExecutionOptions:
        """Return threads and memory of the worker that calls."""
        return ExecutionOptions(threads_of_this_worker(), self.memory)

    def best_of(self, lo: int, hi: int, first: int, last: int) -> Pairs:
        """Columns and raw scores of queries [lo, hi) among items [first, last); on a worker."""
        items, request = self.open()
        Q = memmap.read_rows("queries", request.queries, lo, hi)
        if self.exclude_self:
            exclusions = no_exclusions(len(request.queries), own=True)
            request = request._replace(exclusions=exclusions)
        return best_of_items(items, request, Q, lo, self.options(), range(first, last))

    def finish(self, lo: int, hi: int, best: Pairs) -> Any:
        """Indices and scores of queries [lo, hi); on a worker."""
        items, request = self.open()
        return finish(
            items.measure, memmap.read_rows("queries", request.queries, lo, hi), *best, None
        )


def _check_search(
    queries: Any, items: Any, k: Any, measure: Any, exclude_self: Any, memory: float
) -> _Search:
    name = validation.as_instance("measure", measure, str, "a name")
    if getattr(type(get_measure(name)), "_fit", None) is not BaseMeasure._fit:
        raise ValueError(
            "measure must learn nothing from the items on a cluster (such as cosine, dot, "
            f"neg_euclidean, angular), got {validation.format_value(name)}"
        )
    searched = _open_rows("items" if items is not None else "queries", items or queries)
    n_queries = len(_open_rows("queries", queries))
    exclude_self = as_exclude_self(
        exclude_self, n_queries, len(searched), has_items=items is not None
    )
    k = validation.as_count("k", k, high=len(searched) - exclude_self)
    validation.check_same_width("items", searched, "queries", _open_rows("queries", queries))
    paths = [None if path is None else str(Path(path).absolute()) for path in (queries, items)]
    return _Search(str(paths[0]), paths[1], k, name, exclude_self, memory)


def queries_per_task(n_queries: int) -> int:
    """Return the queries of a task, about the same number in each."""
    blocks = max(MIN_BLOCKS, -(-n_queries // QUERIES_PER_TASK))
    return -(-n_queries // blocks)


def items_per_task(n_blocks: int, n_items: int) -> int:
    """Return the items that a task searches for one of n_blocks blocks of queries."""
    return max(MIN_ITEMS, -(-n_items // max(1, MAX_TASKS // n_blocks)))


def _merge(left: Pairs, right: Pairs) -> Pairs:
    return merge(left, right, threads_of_this_worker())


def _open_rows(name: str, path: Any) -> Any:
    file = validation.as_path(name, path)
    return memmap.as_mapped_rows(name, np.load(file, mmap_mode="r", allow_pickle=False))


def _memory_per_task(client: Client, given: float | None) -> float:
    """Return the bytes for a task; every worker must have them for as many tasks as threads."""
    wanted = config.working_memory() if given is None else given
    memory = validation.as_real("working_memory", wanted, above=0) * 2**20
    least, worker = smallest_worker(client)
    if given is None:
        return min(memory, least)
    if memory > least:
        raise ValueError(
            f"working_memory must be at most {least / 2**20:.0f} MiB a task for worker {worker} "
            f"(half of its memory limit by its threads), got {memory / 2**20:.0f}"
        )
    return memory


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
        return config.n_threads()


def use_threads_of_this_worker() -> None:
    """Set the worker's number of threads for its process, unless the worker is inside another."""
    try:
        worker = get_worker()
    except ValueError:
        return
    if worker.nanny is not None:
        config.set_config(n_threads=int(worker.state.nthreads))


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
