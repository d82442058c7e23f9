"""The same answers on a Dask cluster (``pip install 'fastcos[dask]'``).

Inputs are files that every worker sees under the same path; a task is told a path and a range of
rows, maps them, and returns small arrays. Nothing large is scattered, so that a worker that dies
takes nothing with it. Blocks are cut by the data and merged in a fixed tree: ``top_k`` has the bits
of :func:`fastcos.top_k`, and products have the same on any number of workers; an SVD agrees with
that of one machine within its certificate.

A worker's tasks share one pool of as many threads as the worker has. Its dashboard, performance
reports and annotations are Dask's own; nothing here schedules.
"""

import functools
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import numpy.typing as npt
from distributed import Client, as_completed, get_client

from fastcos import config, parallel, storage, validation
from fastcos.comparison import Comparison, interactions
from fastcos.comparison.runner import Evaluator
from fastcos.distributed.operator import (
    ClusterShards,
    in_a_tree,
    memory_of_poorest,
    threads_of_this_worker,
    use_threads_of_this_worker,
)
from fastcos.engine.packing import ExecutionOptions, no_exclusions
from fastcos.engine.segments import merge
from fastcos.linalg.operators import Matrix
from fastcos.linalg.svd import SVD, randomized_svd as svd_of
from fastcos.measures import Measure, Plain, get_measure
from fastcos.models.linear_mf import LinearMF
from fastcos.neighbors.out_of_core import fingerprint
from fastcos.neighbors.search import (
    FittedItems,
    Neighbors,
    SearchRequest,
    batch_size,
    best_of_items,
    finish,
    read_batch,
)
from fastcos.storage import memmap
from fastcos.storage.checkpoint import Checkpoint

# the cuts of a search follow from its size alone: tasks of some seconds, and not too many for Dask.
# A task reads and packs its items anew, so what that costs falls with its number of queries; and
# finds the best k of them alone, which costs a query as much as 100,000 more items. Measured by
# bench.cluster_scaling: 2^18 items a task take 1.20 of the time of one search; of two workers, four
# long tasks made 1.43 of one, eight 1.75 and 1.83
QUERIES_PER_TASK, FEWEST_BLOCKS = 1 << 17, 8
FEWEST_ITEMS, MOST_TASKS = 1 << 19, 1 << 15

Pairs = tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]


def top_k(
    queries: storage.PathLike,
    items: storage.PathLike | None = None,
    k: int = 10,
    *,
    out: storage.PathLike,
    measure: str = "cosine",
    exclude_self: bool = True,
    client: Client | None = None,
    working_memory: float | None = None,
    progress: parallel.Progress | None = None,
) -> Neighbors:
    """The k items most similar to every query, as :func:`fastcos.top_k` finds them, bit for bit.

    Parameters
    ----------
    queries : path-like
        A .npy file (n, d) that every worker can read under this path.
    items : path-like, optional
        What is searched, (m, d). None: the queries themselves.
    k : int
        From 1 to the number of items.
    out : path-like
        A new directory of this process: indices.npy, scores.npy and run.json, written as blocks of
        queries come in. The same call after a crash goes on with the blocks that are missing.
    measure : str
        One that learns nothing from the items.
    exclude_self : bool
        With items=None, whether a row is kept from being its own neighbour.
    client : distributed.Client, optional
        Default: the current one.
    working_memory : float, optional
        MiB for one task. Default: the setting ``working_memory``, or what half of the smallest
        worker's memory leaves each of its threads, if that is less.
    progress : callable, optional
        Called as progress(done, total) with numbers of queries.

    Returns
    -------
    Neighbors
        Memory maps of what is in out.

    Raises
    ------
    ValueError
        As of :func:`fastcos.top_k`; a working_memory that a worker does not have.
    distributed.KilledWorker
        A task has outlived more workers than Dask's ``allowed-failures``.

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
    memory = _memory_of_a_task(client, working_memory)
    search = _Search.of(queries, items, k, measure, exclude_self, memory)
    items_on_disk, request = search.opened()
    n, m = len(request.queries), len(items_on_disk.rows)
    run = Checkpoint(
        out,
        fingerprint(request, items_on_disk.rows, items_on_disk.measure)
        | {"exclude_self": search.own},
        {"indices": ((n, k), np.int64), "scores": ((n, k), np.float32)},
        search.queries_per_task(),
    )
    step = items_per_task(-(-n // run.block), m)
    ranges = [(lo, min(m, lo + step)) for lo in range(0, m, step)]
    blocks = {}
    for lo, hi in run.missing():
        parts = [client.submit(search.best, lo, hi, *some, pure=False) for some in ranges]
        best = in_a_tree(client, _merged, parts)
        blocks[client.submit(search.finished, lo, hi, best, pure=False)] = (lo, hi)
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
    path: storage.PathLike, Q: npt.ArrayLike, *, client: Client | None = None
) -> Matrix:
    """Return X'(X Q) for interactions in shards, each shard a task.

    Parameters
    ----------
    path : path-like
        Of :class:`fastcos.linalg.InteractionShards`, the same for every worker.
    Q : array_like (p, l), float32 or float64
    client : distributed.Client, optional
        Default: the current one.

    Returns
    -------
    ndarray (p, l)
        The shards' products, added in a fixed tree: the same bits on any number of workers; against
        :func:`fastcos.gram_matmul`, which adds other parts of the rows, they differ by rounding.

    Raises
    ------
    ValueError
        Q does not fit X.
    """
    from fastcos.linalg.products import gram_matmul as gram_matmul_of

    return gram_matmul_of(ClusterShards(path, client), Q)


def randomized_svd(
    path: storage.PathLike, n_components: int, *, client: Client | None = None, **options: Any
) -> SVD:
    """Truncated SVD of interactions in shards; every product is a task per shard.

    Parameters
    ----------
    path : path-like
        Of :class:`fastcos.linalg.InteractionShards`, the same for every worker.
    n_components : int
        k.
    client : distributed.Client, optional
        Default: the current one.
    **options
        As in :func:`fastcos.randomized_svd`.

    Returns
    -------
    SVD
        With the certificate of every triplet.

    Raises
    ------
    ValueError
        An argument is not valid.
    """
    return svd_of(ClusterShards(path, client), n_components, **options)


def fit(
    model: LinearMF,
    path: storage.PathLike,
    *,
    client: Client | None = None,
    progress: parallel.Progress | None = None,
) -> LinearMF:
    """Fit a LinearMF to interactions in shards; every product is a task per shard.

    Parameters
    ----------
    model : LinearMF
    path : path-like
        Of :class:`fastcos.linalg.InteractionShards`, the same for every worker.
    client : distributed.Client, optional
        Default: the current one.
    progress : callable, optional
        As in :meth:`fastcos.LinearMF.fit`.

    Returns
    -------
    LinearMF
        model, fitted.

    Raises
    ------
    ValueError
        An argument is not valid.
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
    process fits the models; what the cells need is written to a file that every worker reads once,
    so that a worker must have memory for X and the models.

    Parameters
    ----------
    X, labels
        As in :func:`fastcos.compare`.
    folder : path-like
        A directory that every worker sees under this path; a temporary one in it is used.
    client : distributed.Client, optional
        Default: the current one.
    **options
        As in :func:`fastcos.compare`.

    Returns
    -------
    Comparison

    Raises
    ------
    ValueError
        An argument breaks its rule.
    """
    on = get_client() if client is None else client
    where = validation.as_path("folder", folder).absolute()
    with tempfile.TemporaryDirectory(prefix=".comparison.", dir=where) as scratch:
        executor = functools.partial(_on_workers, on, Path(scratch))
        return interactions.compare(X, labels, executor=executor, **options)


def _on_workers(
    client: Client, folder: Path, evaluator: Evaluator, works: Sequence[Any]
) -> Iterator[Any]:
    """Evaluate the works by copies of the evaluator that the workers read from the folder."""
    file = folder / uuid.uuid4().hex
    joblib.dump(evaluator, file)
    futures = [client.submit(_evaluate, str(file), work, pure=False) for work in works]
    for future in futures:
        yield future.result()
    file.unlink()


def _evaluate(file: str, work: Any) -> Any:
    """The result of one work; runs on a worker."""
    use_threads_of_this_worker()
    return _evaluator(file).evaluate(work)


@functools.lru_cache(maxsize=1)
def _evaluator(file: str) -> Evaluator:
    evaluator: Evaluator = joblib.load(file)
    return evaluator


class _Search:
    """A search as tasks see it: paths and numbers, no arrays."""

    def __init__(
        self, queries: str, items: str | None, k: int, measure: str, own: bool, memory: float
    ) -> None:
        self._queries, self._items, self._k = queries, items, k
        self._measure, self.own, self._memory = measure, own, memory

    @classmethod
    def of(
        cls, queries: Any, items: Any, k: Any, measure: Any, exclude_self: Any, memory: float
    ) -> "_Search":
        """Check the arguments of top_k."""
        name = validation.as_instance("measure", measure, str, "a name")
        if _learns(get_measure(name)):
            raise ValueError(
                "measure must learn nothing from the items on a cluster (such as cosine, dot, "
                f"neg_euclidean, angular), got {name!r}"
            )
        itself = items is None and validation.as_flag("exclude_self", exclude_self)
        searched = _opened("items" if items is not None else "queries", items or queries)
        k = validation.as_count("k", k, high=len(searched) - itself)
        validation.check_same_width("items", searched, "queries", _opened("queries", queries))
        paths = [
            None if path is None else str(validation.as_path("path", path).absolute())
            for path in (queries, items)
        ]
        return cls(str(paths[0]), paths[1], k, name, itself, memory)

    def opened(self) -> tuple[FittedItems, SearchRequest]:
        """Return the items and the request, of maps of the files."""
        queries = _opened("queries", self._queries)
        items = queries if self._items is None else _opened("items", self._items)
        measure = get_measure(self._measure)
        return FittedItems(items, measure, None), SearchRequest(queries, self._k, None, None, None)

    def queries_per_task(self) -> int:
        """Return the queries of a task, as many as fit its memory."""
        items, request = self.opened()
        fits = batch_size(items, request, self._options())
        return min(fits, queries_per_task(len(request.queries)))

    def best(self, lo: int, hi: int, first: int, last: int) -> Pairs:
        """Columns and raw scores of queries [lo, hi) among items [first, last); on a worker."""
        items, request = self.opened()
        Q = read_batch(request.queries, lo, hi)
        if self.own:
            exclusions = no_exclusions(len(request.queries), own=True)
            request = request._replace(exclusions=exclusions)
        return best_of_items(items, request, Q, lo, self._options(), range(first, last))

    def finished(self, lo: int, hi: int, best: Pairs) -> Any:
        """Indices and scores of queries [lo, hi); runs on a worker."""
        items, request = self.opened()
        return finish(items.measure, read_batch(request.queries, lo, hi), *best, None)

    def _options(self) -> ExecutionOptions:
        return ExecutionOptions(threads_of_this_worker(), self._memory)


def queries_per_task(n_queries: int) -> int:
    """Queries of a task, about the same number in each."""
    blocks = max(FEWEST_BLOCKS, -(-n_queries // QUERIES_PER_TASK))
    return -(-n_queries // blocks)


def items_per_task(n_blocks: int, n_items: int) -> int:
    """Items that a task searches for one of so many blocks of queries."""
    most_ranges = max(1, MOST_TASKS // n_blocks)
    return max(FEWEST_ITEMS, -(-n_items // most_ranges))


def _merged(some: Pairs, others: Pairs) -> Pairs:
    return merge(some, others, threads_of_this_worker())


def _opened(name: str, path: Any) -> Any:
    file = validation.as_path(name, path)
    return memmap.as_mapped_rows(name, np.load(file, mmap_mode="r", allow_pickle=False))


def _learns(measure: Measure) -> bool:
    return getattr(type(measure), "_fit", None) is not Plain._fit


def _memory_of_a_task(client: Client, given: float | None) -> float:
    """Bytes for one task, which every worker must have for as many tasks as it has threads."""
    wanted = config.working_memory() if given is None else given
    memory = validation.as_real("working_memory", wanted, above=0) * 2**20
    least, poorest = memory_of_poorest(client)
    if given is None:
        return min(memory, least)
    if memory > least:
        raise ValueError(
            f"working_memory must be at most {least / 2**20:.0f} MiB a task for worker {poorest} "
            f"(half of its memory limit by its threads), got {memory / 2**20:.0f}"
        )
    return memory
