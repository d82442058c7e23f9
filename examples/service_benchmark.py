"""One service process under load, with the index of each library in turn.

    python -m examples.service_benchmark [ITEMS [COLUMNS]] > examples/service_benchmark.md

The application of retrieval_service.py (1,000,000 x 384 by default; cosine, k = 10) runs in a
process of its own, with all cores. The application answers requests that wait together by one
search, whatever the library. The items resemble text embeddings (bench/data.py): nearest neighbours
of independent numbers are hopeless for a graph. Clients of examples/load_test.py request the
neighbours of random items, over 1, 8 and 64 connections. Recall: share of the answers' items whose
exact score reaches the k-th best; of 500 answers, or as many as come in 30 s. hnswlib is built with
M = 16, ef_construction = 100, and searched with the least ef of a power of 2^(1/2) that reaches the
recall for 500 queries. Resident memory: of the process after the load, mapped files included. Needs
fastapi and uvicorn, and apsw for sqlite-vec; a library that is not installed is left out. Prints
Markdown. Half an hour on two cores, of which the graph takes ten minutes.
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
# The largest number of seconds in which answers are read.
READING = 30.0
PORT = 8765
URL = f"http://127.0.0.1:{PORT}"
BLOCK = 1 << 16  # the number of rows that are made at once


class Index(NamedTuple):
    """The index of a library: find(vectors, k) returns what read turns into indices and scores."""

    find: Callable
    read: Callable


def faiss_index(items, folder):
    """Return the exact index of FAISS."""
    import faiss

    # By default, FAISS 1.15 reads all items once per query, even for 64 queries. From four queries
    # on, matrix products are faster: 64 queries among 1,000,000 x 384 take 0.18 instead of 1.7 s.
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
    """The graph, searched with the least ef that reaches a recall."""
    import hnswlib

    path = folder / "hnswlib.bin"  # one graph serves both recalls
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
    """A vec0 table in a file; every core has its own connection."""
    import apsw  # its SQLite can load extensions; that of Python may not
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


# By name: the package, and a function that makes an index of items, with a folder for its files.
# fastcos opens the index that the service published.
LIBRARIES = {
    "fastcos": ("fastcos", None),
    "faiss": ("faiss-cpu", faiss_index),
    "usearch": ("usearch", usearch_index),
    "hnswlib-95": ("hnswlib", partial(hnswlib_index, least_recall=0.95)),
    "hnswlib-99": ("hnswlib", partial(hnswlib_index, least_recall=0.99)),
    "sqlite-vec": ("sqlite-vec", sqlite_vec_index),
}


def recall(found, items, chosen, best):
    """Return the share of found (n, K) whose score with items `chosen` reaches the K-th best."""
    queries, rows = items[chosen].astype(np.float64), items[found].astype(np.float64)
    lengths = np.linalg.norm(queries, axis=1)[:, None] * np.linalg.norm(rows, axis=2)
    scores = np.einsum("nd,nkd->nk", queries, rows) / lengths
    return (scores >= best[:, None] - 1e-6).mean()


def serve(library, folder):
    """Run the application with the index of a library, in the place of that of fastcos."""
    _, index_of = LIBRARIES[library]
    if index_of is not None:
        mapped = np.load(folder / "items.npy", mmap_mode="r")
        # The items are copied, because pages of a mapped file would count as resident memory.
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
    """Return the JSON that the service answers."""
    with urllib.request.urlopen(URL + path, timeout=60) as answer:
        return json.load(answer)


def is_ready():
    """Return whether the service answers; raise HTTPError if the service has a fault."""
    try:
        return get("/ready")
    except urllib.error.HTTPError as error:
        if error.code != 503:  # The service answers 503 until an index is loaded.
            raise
    except OSError:
        pass  # The process does not listen yet.
    return None


def measured(library, folder, seconds):
    """Return the rows of a library, one per load: start its process, load it, read its answers."""
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
    """Write items, the index of the service, and the k-th best scores of the chosen items."""
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
    parser.add_argument("--seconds", type=float, default=30.0, help="of each load")
    given = parser.parse_args()
    # With this setting, FAISS of pip is fastest on CPUs with AVX-512.
    os.environ["OPENBLAS_CORETYPE"] = "SkylakeX"
    cpu, versions = machine.vendor_name(machine.cpu(), fastcos.get_config().isa), {}
    for package, _ in LIBRARIES.values():
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    print(
        f"# One service under load, with the index of each library\n\n"
        f"In each request, a client asks the example service for the {K} nearest of "
        f"{given.items:,} rows of {given.columns} columns. The clients send requests for "
        f"{given.seconds:g} s over each number of connections. The service and its clients share "
        f'{os.cpu_count()} cores of {cpu}. The column "recall" shows the share of the returned '
        "items that are among the true nearest items, and the number of requests from which this "
        "share was computed. `python -m examples.service_benchmark` wrote this page on "
        f"{datetime.date.today()}, with these versions: "
        f"{', '.join(f'{name} {version}' for name, version in versions.items())}.\n"
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
