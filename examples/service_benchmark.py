"""Measure the example service under load, once with the index of each library.

    python -m examples.service_benchmark [ITEMS [COLUMNS]] > examples/service_benchmark.md

The script prints a Markdown page. For each library, it runs the application of retrieval_service.py
in a new process, which can use all cores. By default, the index contains 1,000,000 rows of 384
columns, and is searched by the cosine with k = 10. With every library, the application answers all
waiting requests by one search. The items resemble text embeddings (bench/data.py). Rows of
independent numbers would be unsuitable, because a graph index cannot find their nearest neighbours.
Clients of examples/load_test.py request the neighbours of random items over 1, 8 and 64
connections.

- The recall is the share of returned items whose exact score is at least the k-th best. It is
  measured on 500 answers, or on as many answers as the service returns in 30 s.
- hnswlib is built with M = 16 and ef_construction = 100. Its parameter ef is the smallest power of
  2^(1/2) with which 500 queries reach the required recall.
- The resident memory is the memory of the process after the load test, including mapped files.

The script requires fastapi and uvicorn, and apsw for sqlite-vec; it leaves out libraries that are
not installed. It takes half an hour on two cores, including ten minutes to build the graph.
"""

import argparse
import asyncio
import contextlib
import datetime
import json
import multiprocessing
import os
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import uvicorn

import fastcos
from bench import data, machine
from bench.compare.rows import unit
from bench.compare.worker import resident_mib
from bench.lab.markdown import print_table
from examples import load_test, retrieval_service

CONNECTIONS, K, CHOSEN = (1, 8, 64), 10, 500
# To compute the recall, the script reads answers for at most this many seconds.
READING = 30.0
PORT = 8765
URL = f"http://127.0.0.1:{PORT}"
BLOCK = 1 << 16  # the number of rows that are generated at a time


class Index(NamedTuple):
    """The index of a library; read(find(vectors, k)) returns indices and scores."""

    find: Callable
    read: Callable


def faiss_index(items, folder):
    """Return the exact index of FAISS."""
    import faiss

    # By default, FAISS 1.15 reads all items once per query, even for 64 queries. For four or more
    # queries, matrix products are faster: for 64 queries among 1,000,000 items of 384 columns, they
    # take 0.18 s instead of 1.7 s.
    faiss.cvar.distance_compute_blas_threshold = 4
    index = faiss.IndexFlatIP(items.shape[1])
    index.add(unit(items))
    return Index(lambda rows, k: index.search(unit(rows), k), lambda found: (found[1], found[0]))


def usearch_index(items, folder):
    """Return the exact search of USearch."""
    from usearch.index import MetricKind, search

    def find(rows, k):
        threads = os.cpu_count()
        return k, search(items, rows, k, MetricKind.Cos, exact=True, threads=threads)

    def read(result):
        k, matches = result
        shape = (-1, k)
        return matches.keys.astype(np.int64).reshape(shape), 1 - matches.distances.reshape(shape)

    return Index(find, read)


def hnswlib_index(items, folder, least_recall):
    """Return the graph of hnswlib; its searches use the smallest ef that reaches the recall."""
    import hnswlib

    path = folder / "hnswlib.bin"  # both recall targets use this graph
    graph = hnswlib.Index("cosine", items.shape[1])
    if path.exists():
        graph.load_index(str(path))
    else:
        graph.init_index(len(items), M=16, ef_construction=100)
        graph.add_items(items)
        graph.save_index(str(path))
    chosen, best = np.load(folder / "truth.npz").values()
    for power in range(7, 27):
        graph.set_ef(int(2 ** (power / 2)))
        indices, _ = graph.knn_query(items[chosen], K + 1)
        others = [row[row != item][:K] for row, item in zip(indices, chosen, strict=True)]
        if recall(np.array(others, np.int64), items, chosen, best) >= least_recall:
            return Index(graph.knn_query, lambda found: (found[0], 1 - found[1]))
    raise SystemExit(f"hnswlib does not reach recall {least_recall}")


def sqlite_vec_index(items, folder):
    """Return an index in a file (vec0 of sqlite-vec); each core opens its own connection."""
    import apsw  # in contrast to sqlite3 in Python, apsw can always load extensions
    import sqlite_vec

    local = threading.local()

    def connect():
        local.database = apsw.Connection(str(folder / "sqlite.db"))
        local.database.enable_load_extension(True)
        local.database.load_extension(sqlite_vec.loadable_path())

    def neighbors(row, k):
        query = "select rowid, distance from v where e match ? and k = ? order by distance"
        return local.database.execute(query, (row.tobytes(), k)).fetchall()

    connect()
    with local.database:  # all rows in one transaction
        columns = f"e float[{items.shape[1]}] distance_metric=cosine"
        local.database.execute(f"create virtual table v using vec0({columns})")
        rows = ((i, row.tobytes()) for i, row in enumerate(items))
        local.database.executemany("insert into v(rowid, e) values (?, ?)", rows)
    cores = ThreadPoolExecutor(os.cpu_count(), initializer=connect)
    return Index(
        lambda vectors, k: np.array(list(cores.map(partial(neighbors, k=k), vectors))),
        lambda found: (found[..., 0].astype(np.int64), 1 - found[..., 1]),
    )


# Each value contains the name of a package, and a function that builds an index of items and writes
# the files of the index to a folder. For fastcos, the function is None, because fastcos opens the
# index that the service has published.
LIBRARIES = {
    "fastcos": ("fastcos", None),
    "faiss": ("faiss-cpu", faiss_index),
    "usearch": ("usearch", usearch_index),
    "hnswlib-95": ("hnswlib", partial(hnswlib_index, least_recall=0.95)),
    "hnswlib-99": ("hnswlib", partial(hnswlib_index, least_recall=0.99)),
    "sqlite-vec": ("sqlite-vec", sqlite_vec_index),
}


def recall(found, items, chosen, best):
    """Return the share of found items whose exact score is at least the K-th best score.

    found: the numbers of the items that were found, (n, K). best: the K-th best scores, (n,).
    """
    queries, rows = items[chosen].astype(np.float64), items[found].astype(np.float64)
    lengths = np.linalg.norm(queries, axis=1)[:, None] * np.linalg.norm(rows, axis=2)
    scores = np.einsum("nd,nkd->nk", queries, rows) / lengths
    return (scores >= best[:, None] - 1e-6).mean()


def serve(library, folder):
    """Run the application with the index of a library instead of the index of fastcos."""
    _, index_of = LIBRARIES[library]
    if index_of is not None:
        mapped = np.load(folder / "items.npy", mmap_mode="r")
        # Pages of a mapped file would count as resident memory, so the items are copied first.
        index = index_of(np.array(mapped), folder)

        def search(vectors, k, n_threads):
            indices, scores = index.read(index.find(vectors, k))
            return SimpleNamespace(ids=indices, scores=scores)

        batches = retrieval_service.Batches(SimpleNamespace(
            search=search, n_items_=len(mapped), vectors_of=mapped.__getitem__, ids_of=np.array,
            model=None,
        ))  # fmt: skip
        retrieval_service.loaded = lambda *_: batches
    application = retrieval_service.service(folder)
    uvicorn.run(application, port=PORT, log_level="error", access_log=False)


def get(path):
    """Return the JSON answer of the service."""
    with urllib.request.urlopen(URL + path, timeout=60) as answer:
        return json.load(answer)


def is_ready():
    """Return the answer of /ready, or None if the service is not ready yet.

    Raise HTTPError if the service fails.
    """
    try:
        return get("/ready")
    except urllib.error.HTTPError as error:
        if error.code != 503:  # The service answers 503 until an index is loaded.
            raise
    except OSError:
        pass  # The process does not accept connections yet.
    return None


def measured(library, folder, seconds):
    """Run the service with a library; return one row of the table per number of connections."""
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(library, folder))
    process.start()
    try:
        while not is_ready():
            if not process.is_alive():
                raise SystemExit(f"{library} did not start")
            time.sleep(0.5)
        items, rows = np.load(folder / "items.npy", mmap_mode="r"), []
        for connections in CONNECTIONS:
            asyncio.run(load_test.load(URL, len(items), connections, seconds / 10))
            found = asyncio.run(load_test.load(URL, len(items), connections, seconds))
            names = ("p50 ms", "p99 ms", "requests per second")
            rows.append([library, connections, *(f"{found[name]:.1f}" for name in names)])
        resident = f"{resident_mib('VmRSS', process.pid):,.0f}"
        chosen, best = np.load(folder / "truth.npz").values()
        indices, until = [], time.monotonic() + READING
        for item in chosen:
            indices.append([int(one["id"]) for one in get(f"/items/{item}/similar?k={K}")])
            if time.monotonic() > until:
                break
        n = len(indices)
        share = f"{recall(np.array(indices), items, chosen[:n], best[:n]):.4f} of {n}"
        return [[*row, share, resident] for row in rows]
    finally:
        process.terminate()
        process.join()


def make(folder, n, d):
    """Write the items, the index of the service, and the k-th best scores of chosen items."""
    items = np.empty((n, d), np.float32)
    for first in range(0, n, BLOCK):
        items[first : first + BLOCK] = data.embeddings(min(BLOCK, n - first), d, seed=first)
    np.save(folder / "items.npy", items)
    retrieval_service.publish(folder, items, np.arange(n))
    chosen = np.random.default_rng(1).choice(n, CHOSEN, replace=False)
    # The first neighbour is the item itself.
    best = fastcos.top_k(items[chosen], items, K + 1).scores[:, -1]
    np.savez(folder / "truth.npz", chosen=chosen, best=best)


def main():
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("items", type=int, nargs="?", default=1_000_000)
    parser.add_argument("columns", type=int, nargs="?", default=384)
    parser.add_argument(
        "--seconds",
        type=float,
        default=30.0,
        help="duration of the load for each number of connections",
    )
    given = parser.parse_args()
    # On CPUs with AVX-512, the FAISS that pip installs is fastest with this setting.
    os.environ["OPENBLAS_CORETYPE"] = "SkylakeX"
    cpu, versions = machine.vendor_name(machine.cpu(), fastcos.get_config().isa), {}
    for package, _ in LIBRARIES.values():
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    print(
        f"# One service under load, with the index of each library\n\n"
        f"In each request, a client asks the example service for the {K} nearest of "
        f"{given.items:,} rows of {given.columns} columns. For each number of connections, the "
        f"clients send requests for {given.seconds:g} s. The service and its clients share "
        f"{os.cpu_count()} cores of {cpu}. The recall is the share of the returned items that "
        'are among the true nearest items. The column "recall" of the table also states how '
        "many requests were used to compute the recall. "
        "`python -m examples.service_benchmark` wrote this page "
        f"({datetime.date.today()}, commit {(machine.commit()[0] or 'unknown')[:10]}), with "
        f"these versions: {', '.join(f'{name} {version}' for name, version in versions.items())}.\n"
    )
    header = (
        "library", "connections", "median, ms", "99th percentile, ms", "requests per second",
        "recall", "resident memory, MiB",
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        make(folder, given.items, given.columns)
        here = (name for name, (package, _) in LIBRARIES.items() if package in versions)
        rows = (row for name in here for row in measured(name, folder, given.seconds))
        print_table("l" + "r" * (len(header) - 1), header, rows)


if __name__ == "__main__":
    main()
