"""One service process under load, by ours and others: `python -m bench.service [n_items [d]]`.

The application of examples/retrieval_service.py with the index of each library in turn (1,000,000 x
384 by default; cosine, k = 10), in a process of its own, with all cores. The application answers
requests that wait together by one search, whatever the library. The items are clustered, as
embeddings are (bench.inputs): nearest neighbours of independent numbers are hopeless for a graph.
Clients of examples/load_test.py request the neighbours of random items, over 1, 8 and 64
connections. Recall: share of the answers' items whose exact score reaches the k-th best; of 500
answers, or as many as come in 30 s. hnswlib is built with M = 16, ef_construction = 100, and
searched with the least ef of a power of 2^(1/2) that reaches the recall for 500 queries. Resident
memory: of the process after the load, mapped files included. Needs fastapi and uvicorn, and apsw
for sqlite-vec; a library that is not installed is left out. Writes bench/service.md.

With --folder, items, truth, the graph of hnswlib and the table of sqlite-vec of an earlier call are
used again. --make makes these and ends: for hnswlib half an hour, which other work may share.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bench.inputs import clustered
from bench.libraries import Index, faiss_index, unit, usearch_index
from bench.tables import cpu_name, versions_of
from bench.worker import resident_mib

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

# the package of each library
LIBRARIES = {
    "fastcos": "fastcos", "faiss": "faiss-cpu", "usearch": "usearch", "hnswlib-95": "hnswlib",
    "hnswlib-99": "hnswlib", "sqlite-vec": "sqlite-vec",
}  # fmt: skip
RECALLS = {"hnswlib-95": 0.95, "hnswlib-99": 0.99}
CONNECTIONS, K, CHOSEN = (1, 8, 64), 10, 500
# seconds in which answers are read, at most, and how many are read in any case
READING, LEAST_READ = 30.0, 20
PORT = 8765
TABLE = Path(__file__).with_suffix(".md")
BLOCK = 1 << 16  # rows that are made or added at once


class Found(NamedTuple):
    """What an index of the service answers."""

    indices: np.ndarray
    scores: np.ndarray

    @property
    def ids(self):
        """The ids that retrieval_service.make gives."""
        return self.indices.astype(str)


class Served:
    """The index of a library, as the application calls it."""

    def __init__(self, index, n_items):
        self.index, self.n_items_ = index, n_items

    def search(self, vectors, k, n_threads):
        found = self.index.find(self.index.encode(vectors), k)
        return Found(*self.index.read(found))


def hnswlib_index(items, folder, recall):
    """The graph, searched with the least ef that reaches a recall."""
    import hnswlib

    path = folder / "hnswlib.bin"  # one graph serves both recalls
    graph = hnswlib.Index("cosine", items.shape[1])
    if path.exists():
        graph.load_index(str(path))
    else:
        graph.init_index(len(items), M=16, ef_construction=100)
        for first in range(0, len(items), BLOCK):
            graph.add_items(items[first : first + BLOCK])
        part = path.with_suffix(".part")
        graph.save_index(str(part))
        part.replace(path)
    truth, chosen = np.load(folder / "truth.npy"), np.load(folder / "chosen.npy")
    index = Index(graph.knn_query, lambda found: (found[0].astype(np.int64), 1 - found[1]))
    for power in range(7, 27):
        graph.set_ef(int(2 ** (power / 2)))
        indices, _ = index.read(index.find(np.array(items[chosen]), K + 1))
        if share_of_scores(indices, items, chosen, truth) >= recall:
            return index
    raise SystemExit(f"hnswlib does not reach recall {recall}")


def sqlite_vec_index(items, folder, recall):
    """A vec0 table in a file; every core has its own connection."""
    import apsw  # a SQLite that loads extensions, which that of Python may not do
    import sqlite_vec

    local, cores = threading.local(), ThreadPoolExecutor(os.cpu_count())

    def connect():
        if not hasattr(local, "database"):
            local.database = apsw.Connection(str(folder / "sqlite.db"))
            local.database.enable_load_extension(True)
            local.database.load_extension(sqlite_vec.loadable_path())
        return local.database

    columns = f"e float[{items.shape[1]}] distance_metric=cosine"
    with connect() as database:  # a transaction: the table is whole or absent
        if not list(database.execute("select 1 from sqlite_master where name = 'v'")):
            database.execute(f"create virtual table v using vec0({columns})")
            rows = ((i, np.asarray(row).tobytes()) for i, row in enumerate(items))
            database.executemany("insert into v(rowid, e) values (?, ?)", rows)
    query = "select rowid, distance from v where e match ? and k = ? order by distance"

    def find(vectors, k):
        neighbors = lambda row: connect().execute(query, (row.tobytes(), k)).fetchall()  # noqa: E731
        return np.array(list(cores.map(neighbors, vectors)))

    return Index(find, lambda found: (found[..., 0].astype(np.int64), 1 - found[..., 1]))


# from the items, the folder of files and a recall
INDEXES = {
    "faiss": lambda items, folder, recall: faiss_index(items, "cosine"),
    "usearch": lambda items, folder, recall: usearch_index(np.array(items), "cosine"),
    "hnswlib-95": hnswlib_index,
    "hnswlib-99": hnswlib_index,
    "sqlite-vec": sqlite_vec_index,
}


def share_of_scores(indices, items, chosen, truth):
    """Recall of neighbours of items `chosen`, themselves left out; truth: k-th best score."""
    hits = 0
    for row, item, least in zip(indices, chosen, truth, strict=True):
        others = [other for other in row if other != item][:K]
        rows = unit(items[[item, *others]].astype(np.float64))
        hits += (rows[1:] @ rows[0] >= least - 1e-6).sum()
    return hits / (K * len(chosen))


def serve(library, folder):
    """Run the application with the index of a library."""
    import retrieval_service
    import uvicorn

    if library != "fastcos":
        items = np.load(folder / "current" / "items.npy", mmap_mode="r")
        ids = np.load(folder / "current" / "ids.npy").tolist()
        index = INDEXES[library](items, folder, RECALLS.get(library, 1.0))
        numbers = {name: number for number, name in enumerate(ids)}
        batches = retrieval_service.Batches(Served(index, len(items)))
        retrieval_service.loaded = lambda _: retrieval_service.Retrieval(batches, items, numbers)
    application = retrieval_service.service(folder)
    uvicorn.run(application, port=PORT, log_level="error", access_log=False)


def get(path):
    with urllib.request.urlopen(f"http://127.0.0.1:{PORT}{path}", timeout=60) as answer:
        return json.load(answer)


def measured(library, folder, seconds):
    """Return the row of a library: start its process, load it, read its answers."""
    import load_test

    items = np.load(folder / "current" / "items.npy", mmap_mode="r")
    command = [sys.executable, "-m", "bench.service", "--serve", library, "--folder", str(folder)]
    # the fastest of pip's FAISS on CPUs with AVX-512
    environment = os.environ | {"OPENBLAS_CORETYPE": "SkylakeX"}
    process = subprocess.Popen(command, env=environment)
    try:
        while True:
            try:
                get("/ready")
                break
            except OSError:
                if process.poll() is not None:
                    raise SystemExit(f"{library} did not start") from None
                time.sleep(0.5)
        cells, url = [], f"http://127.0.0.1:{PORT}"
        for connections in CONNECTIONS:
            asyncio.run(load_test.load(url, len(items), connections, seconds / 10))
            found = asyncio.run(load_test.load(url, len(items), connections, seconds))
            names = ("p50 ms", "p99 ms", "requests per second")
            cells.append(" / ".join(f"{found[name]:.1f}" for name in names))
        resident = resident_mib("VmRSS", process.pid)
        chosen, truth = np.load(folder / "chosen.npy"), np.load(folder / "truth.npy")
        indices, until = [], time.monotonic() + READING
        while len(indices) < len(chosen) and (
            len(indices) < LEAST_READ or time.monotonic() < until
        ):
            answer = get(f"/items/{chosen[len(indices)]}/similar?k={K}")
            indices.append([int(one["id"]) for one in answer])
        n = len(indices)
        recall = share_of_scores(indices, items, chosen[:n], truth[:n])
        return f"| {library} | {' | '.join(cells)} | {resident:,.0f} | {recall:.4f} of {n} |"
    finally:
        process.terminate()
        process.wait()


def make(folder, n_items, dimensions):
    """Write items, the index of the service, and the k-th best scores of the chosen items."""
    import retrieval_service

    import fastcos

    if not (folder / "current").exists():
        random, items = np.random.default_rng(0), np.empty((n_items, dimensions), np.float32)
        for first in range(0, n_items, BLOCK):
            part = items[first : first + BLOCK]
            part[:] = clustered(len(part), dimensions, random)
        retrieval_service.publish(folder, items, np.arange(n_items).astype(str))
    items = np.load(folder / "current" / "items.npy", mmap_mode="r")
    if items.shape != (n_items, dimensions):
        raise SystemExit(f"{folder} holds {items.shape[0]} x {items.shape[1]} items")
    if not (folder / "truth.npy").exists():
        chosen = np.random.default_rng(1).choice(n_items, min(CHOSEN, n_items), replace=False)
        np.save(folder / "chosen.npy", chosen)
        # an item itself is the first
        found = fastcos.top_k(np.array(items[chosen]), items, K + 1)
        np.save(folder / "truth.npy", found.scores[:, -1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("items", type=int, nargs="?", default=1_000_000)
    parser.add_argument("dimensions", type=int, nargs="?", default=384)
    parser.add_argument("--seconds", type=float, default=30.0, help="of each load")
    parser.add_argument("--libraries", nargs="+", default=LIBRARIES, choices=LIBRARIES)
    parser.add_argument("--serve", choices=LIBRARIES, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help="where the files go (default: a temporary one)")
    parser.add_argument(
        "--make", action="store_true", help="write the files into --folder, and end"
    )
    given = parser.parse_args()
    if given.serve is not None:
        serve(given.serve, given.folder)
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        make(folder, given.items, given.dimensions)
        versions = versions_of(dict.fromkeys(LIBRARIES.values()))
        libraries = [name for name in given.libraries if LIBRARIES[name] in versions]
        if given.make:
            items = np.load(folder / "current" / "items.npy", mmap_mode="r")
            for library in {"hnswlib-95", "sqlite-vec"}.intersection(libraries):
                INDEXES[library](items, folder, 0.0)
            return
        used = dict.fromkeys(LIBRARIES[name] for name in libraries)
        lines = [
            f"{given.items:,} x {given.dimensions}, k = {K}, {given.seconds:g} s a load; "
            f"{cpu_name()}, {os.cpu_count()} cores, which the clients share; "
            f"{', '.join(f'{name} {versions[name]}' for name in used)}.",
            "",
            "| library "
            + " ".join(f"| {n} connections: p50 / p99 ms / requests a second" for n in CONNECTIONS)
            + " | resident, MiB | recall |",
            "|---|" + "---:|" * (len(CONNECTIONS) + 2),
        ]
        print("\n".join(lines), flush=True)
        for library in libraries:
            lines.append(measured(library, folder, given.seconds))
            print(lines[-1], flush=True)
            if libraries == list(LIBRARIES):
                TABLE.write_text("\n".join([*lines, ""]), "utf8")


if __name__ == "__main__":
    main()
