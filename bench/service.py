"""One service process under load, by ours and others: `python -m bench.service [n_items [d]]`.

The application of examples/retrieval_service.py with the index of each library in turn (1,000,000 x
384 by default; clustered items, cosine, k = 10; one thread a request), in a process of its own.
Clients of examples/load_test.py request the neighbours of random items, over 1, 8 and 64
connections. Recall: share of 500 answers' items whose exact score reaches the k-th best. hnswlib is
built with M = 16, ef_construction = 100 and searched with the least ef of a power of 2^(1/2) that
reaches the recall. Resident memory: of the process after the load, mapped files included.
Needs fastapi and uvicorn, and apsw for sqlite-vec; a library that is not installed is left out.
With --folder, items, truth and the graph of hnswlib of an earlier call are used again.
"""

import argparse
import asyncio
import importlib
import json
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bench.libraries import unit

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

LIBRARIES = ("fastcos", "faiss", "usearch", "hnswlib-95", "hnswlib-99", "sqlite-vec")
MODULES = {"hnswlib-95": "hnswlib", "hnswlib-99": "hnswlib", "sqlite-vec": "sqlite_vec"}
CONNECTIONS, K, CHOSEN = (1, 8, 64), 10, 500
PORT = 8765


class Found(NamedTuple):
    """What an index of the service answers."""

    indices: np.ndarray
    scores: np.ndarray

    @property
    def ids(self):
        """The ids that retrieval_service.make gives."""
        return self.indices.astype(str)


class Faiss:
    """IndexFlatIP of unit rows."""

    def __init__(self, items, folder, recall):
        import faiss

        faiss.omp_set_num_threads(1)
        self.index, self.n_items_ = faiss.IndexFlatIP(items.shape[1]), len(items)
        for first in range(0, len(items), 1 << 16):
            self.index.add(unit(items[first : first + (1 << 16)]).astype(np.float32))

    def search(self, vectors, k, n_threads):
        scores, indices = self.index.search(unit(vectors), k)
        return Found(indices, scores)


class Usearch:
    """Exact search of the rows."""

    def __init__(self, items, folder, recall):
        from usearch.index import MetricKind, search

        self.items, self.n_items_ = np.array(items), len(items)
        self.find = lambda vectors, k: search(
            self.items, vectors, k, MetricKind.Cos, exact=True, threads=1
        )

    def search(self, vectors, k, n_threads):
        found = self.find(vectors, k)
        shape = len(vectors), k
        return Found(found.keys.astype(np.int64).reshape(shape), 1 - found.distances.reshape(shape))


class Hnswlib:
    """The graph, searched with the least ef that reaches a recall."""

    def __init__(self, items, folder, recall):
        import hnswlib

        path = folder / "hnswlib.bin"  # one graph serves both recalls
        self.index, self.n_items_ = hnswlib.Index("cosine", items.shape[1]), len(items)
        if path.exists():
            self.index.load_index(str(path))
        else:
            self.index.init_index(len(items), M=16, ef_construction=100)
            for first in range(0, len(items), 1 << 16):
                self.index.add_items(items[first : first + (1 << 16)])
            self.index.save_index(str(path))
        self.index.set_num_threads(1)
        truth, chosen = np.load(folder / "truth.npy"), np.load(folder / "chosen.npy")
        for power in range(7, 27):
            self.index.set_ef(int(2 ** (power / 2)))
            found = self.search(np.array(items[chosen]), K + 1, 1)
            if share_of_scores(found.indices, items, chosen, truth) >= recall:
                return
        raise SystemExit(f"hnswlib does not reach recall {recall}")

    def search(self, vectors, k, n_threads):
        indices, distances = self.index.knn_query(vectors, k)
        return Found(indices.astype(np.int64), 1 - distances)


class SqliteVec:
    """A vec0 table in a file; every thread has its own connection."""

    def __init__(self, items, folder, recall):
        self.path, self.n_items_, self.local = folder / "sqlite.db", len(items), threading.local()
        if self.path.exists():
            return
        database, width = self.connect(), items.shape[1]
        database.execute(
            f"create virtual table v using vec0(e float[{width}] distance_metric=cosine)"
        )
        with database:
            rows = ((i, np.asarray(row).tobytes()) for i, row in enumerate(items))
            database.executemany("insert into v(rowid, e) values (?, ?)", rows)

    def connect(self):
        import apsw  # a SQLite that loads extensions, which that of Python may not do
        import sqlite_vec

        if not hasattr(self.local, "database"):
            database = apsw.Connection(str(self.path))
            database.enable_load_extension(True)
            database.load_extension(sqlite_vec.loadable_path())
            self.local.database = database
        return self.local.database

    def search(self, vectors, k, n_threads):
        query = "select rowid, distance from v where e match ? and k = ? order by distance"
        rows = [self.connect().execute(query, (row.tobytes(), k)).fetchall() for row in vectors]
        found = np.array(rows)
        return Found(found[..., 0].astype(np.int64), 1 - found[..., 1])


INDEXES = {"faiss": Faiss, "usearch": Usearch, "sqlite-vec": SqliteVec}


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
        made = INDEXES.get(library, Hnswlib)(
            items, folder, int(library[-2:]) / 100 if "-9" in library else 1.0
        )
        numbers = {name: number for number, name in enumerate(ids)}
        retrieval_service.loaded = lambda _: retrieval_service.Retrieval(made, items, numbers)
    application = retrieval_service.service(folder)
    uvicorn.run(application, port=PORT, log_level="error", access_log=False)


def get(path):
    with urllib.request.urlopen(f"http://127.0.0.1:{PORT}{path}", timeout=60) as answer:
        return json.load(answer)


def measured(library, folder, seconds):
    """Print the row of a library: start its process, load it, read its answers."""
    import load_test

    items = np.load(folder / "current" / "items.npy", mmap_mode="r")
    command = [sys.executable, "-m", "bench.service", "--serve", library, "--folder", str(folder)]
    process = subprocess.Popen(command)
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
        status = Path(f"/proc/{process.pid}/status").read_text().split("\n")
        (resident,) = (int(line.split()[1]) >> 10 for line in status if line.startswith("VmRSS"))
        chosen, truth = np.load(folder / "chosen.npy"), np.load(folder / "truth.npy")
        answers = [get(f"/items/{item}/similar?k={K}") for item in chosen]
        indices = [[int(one["id"]) for one in answer] for answer in answers]
        recall = share_of_scores(indices, items, chosen, truth)
        print(f"| {library} | {' | '.join(cells)} | {resident} | {recall:.4f} |", flush=True)
    finally:
        process.terminate()
        process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("items", type=int, nargs="?", default=1_000_000)
    parser.add_argument("dimensions", type=int, nargs="?", default=384)
    parser.add_argument("--seconds", type=float, default=30.0, help="of each load")
    parser.add_argument("--libraries", nargs="+", default=LIBRARIES, choices=LIBRARIES)
    parser.add_argument("--serve", choices=LIBRARIES, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help="where the files go (default: a temporary one)")
    given = parser.parse_args()
    if given.serve is not None:
        serve(given.serve, given.folder)
        return
    import retrieval_service

    import fastcos

    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        if not (folder / "truth.npy").exists():
            retrieval_service.make(folder, given.items, given.dimensions)
        items = np.load(folder / "current" / "items.npy", mmap_mode="r")
        chosen = np.random.default_rng(1).choice(len(items), min(CHOSEN, len(items)), replace=False)
        # an item itself is the first
        truth = fastcos.top_k(np.array(items[chosen]), items, K + 1).scores[:, -1]
        np.save(folder / "chosen.npy", chosen)
        np.save(folder / "truth.npy", truth)
        print(f"{given.items:,} x {given.dimensions}, k = {K}; p50 ms / p99 ms / requests a second")
        heads = [f"{connections} connections" for connections in CONNECTIONS]
        print(f"| library | {' | '.join(heads)} | resident, MiB | recall |")
        print("|---|" + "---|" * len(heads) + "---:|---:|", flush=True)
        for library in given.libraries:
            try:
                importlib.import_module(MODULES.get(library, library))
            except ImportError:
                print(f"{library} is not installed", file=sys.stderr)
                continue
            measured(library, folder, given.seconds)


if __name__ == "__main__":
    main()
