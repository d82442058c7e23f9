"""Search, products, SVD and comparison on a Dask cluster (``pip install distributed``).

The inputs are files that every worker can read under the same path. A task receives a path and a
range of rows, maps these rows into memory, and returns small arrays. No input data is ever sent to
a worker, so no input data is lost if a worker dies. The sizes of the tasks depend only on the size
of the data. The results of the tasks are combined in a tree that is the same for any number of
workers::

    top_k            a task per block of queries and range of items -> best k of each task, merged
                     in a tree -> Checkpoint
    gram_matmul, randomized_svd, fit
                     ClusterShards: a task per shard computes a product; the products are added in
                     a tree
    compare          this process fits the models; a task per cell evaluates it

The results of ``top_k`` are bit-for-bit identical to those of :func:`fastcos.top_k`. Products are
bit-for-bit identical for any number of workers. The residuals of an SVD certify a bound on its
error. Therefore the SVD on a cluster and the SVD on one machine differ by at most the sum of their
two error bounds. All tasks that run on a worker share one pool with as many threads as the worker
has. Dask schedules the tasks and provides a dashboard and performance reports.
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
from fastcos.search.execute import read_batch
from fastcos.search.filters import no_exclusions
from fastcos.search.options import ExecutionOptions
from fastcos.search.output_directory import fingerprint
from fastcos.search.rankings import merge
from fastcos.search.request import SearchRequest, as_exclude_self
from fastcos.search.results import Neighbors, neighbors_of
from fastcos.search.segment_search import search_segments
from fastcos.search.sources import MappedItems
from fastcos.similarity import BaseMeasure, get_measure
from fastcos.storage.checkpoint import Checkpoint
from fastcos.validation import Floats

__all__ = ["compare", "fit", "gram_matmul", "randomized_svd", "top_k"]

# A task of top_k searches a range of items for a block of queries. The sizes of the tasks of top_k
# depend only on the numbers of queries and items, and on the four constants below. A task takes a
# few seconds on local workers (python -m bench.lab.large).

# The largest number of queries in a block. A task reads and packs its items once for all queries of
# its block, so larger blocks save work.
QUERIES_PER_TASK = 1 << 17
# The smallest number of blocks of queries. With too few blocks, the work cannot be divided evenly.
# With four blocks, two workers are only 1.43 times as fast as one worker. With eight blocks, two
# workers are 1.75 to 1.83 times as fast as one worker.
MIN_BLOCKS = 8
# The smallest number of items in a task of top_k. Each task compares its queries with one range of
# items. Every additional range increases the time of a query by about the time for scoring 100,000
# items. With 2^18 items per task, all tasks of a search together took 1.20 times as long as one
# search of all items.
MIN_ITEMS = 1 << 19
# The largest number of tasks. The number is limited because the scheduler of Dask takes about 1 ms
# per task.
MAX_TASKS = 1 << 15

# Load the evaluator of a comparison from a file. The evaluator contains the data and the models.
# Each worker keeps the last evaluator in memory for its next tasks.
_load = functools.lru_cache(maxsize=1)(joblib.load)
Pairs = tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]
# All tasks that run on a worker may together use this share of the worker's memory limit. The rest
# of the memory is left for Python, Dask and the results of tasks.
_TASKS_SHARE = 0.5
# The number of bytes per stored entry in a sparse matrix: 4 for its column, and 8 for its value.
_BYTES_PER_ENTRY = 12
# The number of bytes that partial sums take per stored entry of a sparse matrix X. A partial sum
# takes 256 bytes per column of X. To compute the number of partial sums, divide the average number
# of entries per column by partial_sums.NNZ_PER_COLUMN.
_SUM_BYTES_PER_ENTRY = 6
# If X has fewer stored entries per column than this number, SparseOperator may build the transpose
# of X instead of computing partial sums.
_ENTRIES_PER_COLUMN = 96
# The factor Q (p, l) is part of the task graph. If Q were only in the memory of one worker, the
# death of this worker would lose Q. A task graph that contains Q may be so large that Dask would
# warn of its size by default, so the limit for the warning is raised.
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
    """Return the k items most similar to each query, computed by the workers of a Dask cluster.

    The results are bit-for-bit identical to those of :func:`fastcos.top_k`. The returned arrays are
    memory maps of the files in ``out``.

    Parameters
    ----------
    queries, items : path-like
        The .npy files of the queries (n, d) and the items (m, d), which every worker must be able
        to read under these paths. If ``items`` is omitted, the queries are also the items.
    k, exclude_self, progress
        As in :func:`fastcos.top_k`.
    measure : str
        The name of a measure that learns nothing from the items, such as "cosine" or "dot".
    working_memory : float, optional
        The memory in MiB that one task may use. For every worker with n threads and the memory
        limit M, ``working_memory`` must be at most M / (2 n). The default is the setting
        ``working_memory``, reduced to the smallest limit M / (2 n) of a worker if necessary.
    out : path-like
        A new directory, to which this process writes indices.npy, scores.npy and run.json, block by
        block. If a call is interrupted, repeating the call computes only the missing blocks.
    client : distributed.Client, optional
        The client of the cluster; by default the current client of Dask.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from distributed import Client
    >>> from fastcos import distributed
    >>> folder = tempfile.mkdtemp()
    >>> np.save(f"{folder}/items.npy", np.array([[1.0, 0.0], [1.0, 0.2], [0.0, 1.0]]))
    >>> with Client(processes=False, dashboard_address=":0") as client:
    ...     neighbors = distributed.top_k(f"{folder}/items.npy", k=1, out=f"{folder}/neighbors")
    >>> np.array(neighbors.indices).ravel().tolist()
    [1, 0, 1]
    """
    client = get_client() if client is None else client
    memory = _memory_per_task(client, working_memory)
    search = _check_search(queries, items, k, measure, exclude_self, memory)
    fitted, query_rows = search.open()
    n, m = len(query_rows), fitted.n_items
    with Checkpoint(
        out,
        fingerprint(fitted.rows, query_rows, SearchRequest(search.k), fitted.measure)
        | {"exclude_self": search.exclude_self},
        {"indices": ((n, k), np.int64), "scores": ((n, k), np.float32)},
        min(fitted.batch_size(query_rows, search.k, search.options()), queries_per_task(n)),
    ) as run:
        step = items_per_task(-(-n // run.block), m)
        ranges = [(lo, min(m, lo + step)) for lo in range(0, m, step)]
        blocks = {}
        for lo, hi in run.missing():
            parts = [client.submit(search.best_of, lo, hi, *span, pure=False) for span in ranges]
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
    """Return X'(X Q) for interactions X in shards; each task multiplies one shard.

    ``path`` is a folder of :class:`fastcos.linalg.InteractionShards` that every worker can read
    under this path. The other arguments are those of :func:`fastcos.gram_matmul`. The result is
    bit-for-bit identical for any number of workers, because the products of the shards are always
    added in the same order. This result and the result of :func:`fastcos.gram_matmul` differ by
    rounding errors, because the two functions divide the rows of X into different blocks.
    """
    shards = ClusterShards(path, client)
    return products.gram_matmul(shards, Q, center=center, row_center=row_center)


def randomized_svd(
    path: storage.PathLike, n_components: int, *, client: Client | None = None, **options: Any
) -> SVD:
    """Return a truncated SVD of interactions in shards, computed by the workers of a Dask cluster.

    Every product with the matrix is divided into one task per shard. ``path`` has the same meaning
    as in :func:`gram_matmul`. ``options`` are the keyword arguments of
    :func:`fastcos.randomized_svd` except ``scale``.
    """
    return svd.randomized_svd(ClusterShards(path, client), n_components, **options)


def fit(
    model: LinearMF,
    path: storage.PathLike,
    *,
    progress: parallel.Progress | None = None,
    client: Client | None = None,
) -> LinearMF:
    """Fit a LinearMF to interactions in shards on a Dask cluster, and return the fitted model.

    Every product with the matrix of interactions is divided into one task per shard. ``path`` has
    the same meaning as in :func:`gram_matmul`, and ``progress`` has the same meaning as in
    :meth:`fastcos.LinearMF.fit`.
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
    """Return the comparison that :func:`fastcos.compare` computes, with one task per cell.

    A cell is either a candidate of the leaderboard, or one of the rescalings in the fields
    ``named`` and ``grid`` of the result. The calling process fits the models, and writes the data
    and the models to files. Every worker reads each file once and keeps the contents, so every
    worker needs enough memory for X and the models. ``folder`` is a directory that every worker can
    read under this path. The function creates a temporary directory in ``folder``. The other
    arguments are those of :func:`fastcos.compare`.
    """
    client = get_client() if client is None else client
    shared_folder = validation.as_path("folder", folder).absolute()
    with tempfile.TemporaryDirectory(prefix=".comparison.", dir=shared_folder) as scratch:
        executor = functools.partial(_on_workers, client, Path(scratch))
        return interactions.compare(X, labels, executor=executor, **options)


def _on_workers(
    client: Client, folder: Path, evaluator: Any, cells: Sequence[Any]
) -> Iterator[Any]:
    """Yield the results in the order of the cells; workers read the evaluator from ``folder``."""
    file = folder / uuid.uuid4().hex
    joblib.dump(evaluator, file)
    futures = [client.submit(_evaluate, str(file), cell, pure=False) for cell in cells]
    for future in futures:
        yield future.result()
    file.unlink()


def _evaluate(file: str, cell: Any) -> Any:
    """Evaluate one cell with the evaluator that `file` contains; this function runs on a worker."""
    use_threads_of_this_worker()
    return _load(file).evaluate(cell)


class _Search(NamedTuple):
    """A search as it is sent to each task, with paths of files instead of arrays."""

    queries: str
    items: str | None
    k: int
    measure: str
    exclude_self: bool
    memory: float

    def open(self) -> tuple[MappedItems, Any]:
        """Return the items and the queries, whose rows are memory maps of the files."""
        queries = _open_rows("queries", self.queries)
        items = queries if self.items is None else _open_rows("items", self.items)
        return MappedItems(get_measure(self.measure), items), queries

    def options(self) -> ExecutionOptions:
        """Return the number of threads and the memory that a task may use on this worker."""
        return ExecutionOptions(threads_of_this_worker(), self.memory)

    def best_of(self, lo: int, hi: int, first: int, last: int) -> Pairs:
        """Return the k best items in [first, last) for queries [lo, hi), with raw scores.

        This method runs on a worker.
        """
        items, queries = self.open()
        exclusions = no_exclusions(len(queries), exclude_self=True) if self.exclude_self else None
        request, options = SearchRequest(self.k, exclusions=exclusions), self.options()
        batch = read_batch(items, queries, request, slice(lo, hi), lo, options.n_threads)
        return search_segments(items, batch, request, options, range(first, last))

    def finish(self, lo: int, hi: int, best: Pairs) -> Any:
        """Return the final indices and scores for queries [lo, hi).

        ``best`` contains the best items of the queries with their raw scores, merged over all
        ranges of items. This method runs on a worker.
        """
        items, queries = self.open()
        rows = memmap.read_rows("queries", queries, lo, hi)
        return neighbors_of(items.measure, rows, *best, None)


def _check_search(
    queries: Any, items: Any, k: Any, measure: Any, exclude_self: Any, memory: float
) -> _Search:
    name = validation.as_instance("measure", measure, str, "a name")
    if getattr(type(get_measure(name)), "_fit", None) is not BaseMeasure._fit:
        raise ValueError(
            "measure must be one that learns nothing from the items, got "
            f"{validation.format_value(name)}. A search on a cluster supports measures such as "
            "cosine, dot, neg_euclidean and angular"
        )
    item_rows = _open_rows("items" if items is not None else "queries", items or queries)
    n_queries = len(_open_rows("queries", queries))
    exclude_self = as_exclude_self(
        exclude_self, n_queries, len(item_rows), has_items=items is not None
    )
    k = validation.as_count("k", k, high=len(item_rows) - exclude_self)
    validation.check_same_width("items", item_rows, "queries", _open_rows("queries", queries))
    paths = [None if path is None else str(Path(path).absolute()) for path in (queries, items)]
    return _Search(str(paths[0]), paths[1], k, name, exclude_self, memory)


def queries_per_task(n_queries: int) -> int:
    """Return the number of queries per block; only the last block of a search may be smaller."""
    blocks = max(MIN_BLOCKS, -(-n_queries // QUERIES_PER_TASK))
    return -(-n_queries // blocks)


def items_per_task(n_blocks: int, n_items: int) -> int:
    """Return the number of items per task if the queries are divided into n_blocks blocks."""
    return max(MIN_ITEMS, -(-n_items // max(1, MAX_TASKS // n_blocks)))


def _merge(left: Pairs, right: Pairs) -> Pairs:
    return merge(left, right, threads_of_this_worker())


def _open_rows(name: str, path: Any) -> Any:
    file = validation.as_path(name, path)
    # Only one thread of a worker reads the header of a file at a time. NumPy parses the header with
    # the module ast, which may raise SystemError in Python 3.11 if two threads use it at the same
    # time (https://github.com/python/cpython/issues/106905).
    with parallel.attribute_lock(_open_rows, "np.load"):
        rows = np.load(file, mmap_mode="r", allow_pickle=False)
    return memmap.as_mapped_rows(name, rows)


def _memory_per_task(client: Client, working_memory: float | None) -> float:
    """Return the number of bytes that one task may use.

    `working_memory` is the argument of ``top_k``, in MiB. If `working_memory` is None, the result
    is the smaller of two numbers: the setting ``working_memory``, and the smallest memory per task
    among the workers.
    """
    mebibytes = config.working_memory() if working_memory is None else working_memory
    memory = validation.as_real("working_memory", mebibytes, above=0) * 2**20
    limit, worker = smallest_worker(client)
    if working_memory is None:
        return min(memory, limit)
    if memory > limit:
        raise ValueError(
            f"working_memory must be at most {limit / 2**20:.0f} MiB per task for worker {worker}, "
            f"got {memory / 2**20:.0f} MiB. This limit is half of the worker's memory limit, "
            "divided by its number of threads"
        )
    return memory


class ClusterShards(InteractionShards):
    """InteractionShards whose products are computed by the workers of a cluster.

    Parameters
    ----------
    path : path-like
        The folder of the shards, which every worker must be able to read under this path.
    client : distributed.Client, optional
        The client of the cluster; by default the current client of Dask.
    """

    def __init__(self, path: storage.PathLike, client: Client | None = None) -> None:
        super().__init__(path, verify=False)
        self._client = get_client() if client is None else client

    def _as_operator(self, n_threads: int | None) -> Operator:
        """Return an operator that computes each product with one task per shard.

        n_threads has no effect: the workers use all of their threads.
        """
        largest = max(len(indices) for _, indices, _ in self._shards)
        return _ClusterOperator(self, self._client, largest)


class _ClusterOperator(Operator):
    """An operator whose products are computed on the workers, with one task per shard."""

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
        """Submit one task per shard, and return the futures of their products.

        ``product`` is the name of a method of SparseOperator, and ``factor`` is the argument of the
        method. A separate task returns the factor. If the worker that holds the factor dies, Dask
        can therefore run this task again.
        """
        limit, worker = smallest_worker(self._client)
        task_bytes = self._bytes_of_a_task(factor)
        if limit < task_bytes:
            raise ValueError(
                f"worker {worker} must have {task_bytes / 2**20:.0f} MiB per task for these "
                f"products, got {limit / 2**20:.0f} MiB. A task can use half of the memory limit "
                "of its worker, divided by the number of threads of the worker. Give the worker "
                "more memory or fewer threads, or write smaller shards"
            )
        with dask_config.set(_LARGE_GRAPH):
            factor_future = self._client.submit(_identity, factor, pure=False)
        return [
            self._client.submit(
                _product, self._path, number, product, factor_future,
                self._first_rows[number] if product == "rmatmul" else 0, pure=False,
            )
            for number in range(len(self._first_rows) - 1)
        ]  # fmt: skip

    def _bytes_of_a_task(self, factor: Matrix | None) -> float:
        """Return the number of bytes that a task for the largest shard uses.

        The task holds the shard, the partial sums, the factor and the product. If SparseOperator
        builds the transpose of the shard, the task also holds the transpose.
        """
        p, entries = self.shape[1], self._entries
        copies = 1 if entries > _ENTRIES_PER_COLUMN * p else 2
        sums = min(_SUM_BYTES_PER_ENTRY * entries, config.working_memory() * 2**20)
        products = 8 * p * p if factor is None else 2 * factor.nbytes
        return _BYTES_PER_ENTRY * copies * entries + sums + products


def reduce_in_tree(client: Client, combine: Any, parts: Sequence["Future[Any]"]) -> "Future[Any]":
    """Combine the parts in pairs, level by level, until a single result is left.

    The function ``combine`` is called on the workers with the results of two futures. If a level of
    the tree has an odd number of parts, the last part is passed on to the next level unchanged.
    """
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
    """Return the product of a shard with ``factor``; this function runs on a worker.

    ``product`` is the name of a method of SparseOperator. If ``product`` is "rmatmul", ``factor``
    has one row for every row of the whole matrix. The first row of the shard is row ``first`` of
    the whole matrix.
    """
    X = _open_shards(path, verify=False).shard(number)
    shard = SparseOperator(X, threads_of_this_worker())
    if factor is None:
        return shard.gram()
    if product == "rmatmul":
        factor = factor[first : first + X.shape[0]]
    return getattr(shard, product)(validation.read_only(np.ascontiguousarray(factor)))


def threads_of_this_worker() -> int:
    """Return the number of threads of this worker; outside a worker, the setting n_threads."""
    try:
        return int(get_worker().state.nthreads)
    except ValueError:
        return config.n_threads()


def use_threads_of_this_worker() -> None:
    """Set n_threads to the number of threads of the Dask worker for which this process was started.

    If this process was not started for a worker, the setting stays unchanged. This is the case, for
    example, if the worker is a thread in the process of the client.
    """
    try:
        worker = get_worker()
    except ValueError:
        return
    if worker.nanny is not None:
        config.set_config(n_threads=int(worker.state.nthreads))


def smallest_worker(client: Client) -> tuple[float, str]:
    """Find the worker with the least memory per task; return this memory and the worker's address.

    Each thread of a worker runs one task at a time. A worker with n threads and the memory limit M
    therefore has M / (2 n) bytes per task. The result is infinite if no worker has a memory limit.
    """
    workers = client.scheduler_info(n_workers=-1)["workers"]
    shares = {
        address: _TASKS_SHARE * worker["memory_limit"] / worker["nthreads"]
        for address, worker in workers.items()
        if worker["memory_limit"]
    }
    smallest = min(shares, key=lambda address: shares[address], default="")
    return shares.get(smallest, math.inf), smallest
