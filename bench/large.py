"""Data beyond memory: time, memory and check of each operation, on disk, in memory, on a cluster.

    python -m bench.large --nnz 1e9                                # gram, svd, items
    python -m bench.large --nnz 2e8 --users 4000000 --items 50000 --rank 32 --where disk memory
    python -m bench.large --operations svd --folder SHARDS         # shards of `fastcos ingest`
    python -m bench.large --operations search audit --rows 3000000 --where disk memory
    python -m bench.large --operations search --where disk 1-worker 2-workers --turns 2

After it has said how much disk and memory that takes, it writes seeded data: a binary matrix of
Zipf-distributed items in shards (gram: X'(X Q), svd, items: the nearest items of every item), or
dense rows (search: neighbours of other rows, audit). Each operation runs in a process of its own:
from disk, from memory, a search also on a local Dask cluster whose workers have one thread. Its
answer is checked: sampled columns in float64, the SVD's certificate, sampled items and queries in
float64. Prints one JSON object a line: seconds, non-zeros or pairs per second, peak resident MiB of
the process, certificate and a digest of the bits.
"""

import argparse
import contextlib
import hashlib
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import scipy.sparse as sp

import fastcos
from bench import answers, inputs
from bench.worker import in_new_process, resident_mib
from fastcos.linalg.shards import ENTRIES_PER_SHARD, ShardWriter

K = 10
# draws of a block of users: 0.3 GB while it is made
DRAWS_PER_BLOCK = 1 << 24
# exponent of the popularity of items
EXPONENT = 0.8
# bytes of a non-zero: its column on disk; column and float32 value in memory, where neighbours of
# items need the rows and their transpose
DISK_BYTES, MEMORY_BYTES, ITEMS_BYTES = 4, 8, 18
# items, and columns, whose answers are computed again in float64
CHECKED = 5
# dense rows that are made at once
ROWS_PER_BLOCK = 100_000


def write_shards(path, n, p, nnz, progress):
    """Write n users with about nnz non-zeros, equally many draws a user; repeats count once.

    The draws of every block have a seed of their own: a shard does not depend on those before it.
    """
    per_user = max(1, round(nnz / n))
    chances = 1 / np.arange(1, p + 1) ** EXPONENT
    edges = np.cumsum(chances / chances.sum())
    users = max(1, DRAWS_PER_BLOCK // per_user)
    with ShardWriter(path, np.arange(p)) as writer:
        for number, lo in enumerate(range(0, n, users)):
            m, generator = min(n - lo, users), np.random.default_rng([0, number])
            items = np.searchsorted(edges, generator.random((m, per_user)), side="right")
            items = np.sort(np.minimum(items, p - 1).astype(np.int32), axis=1)
            kept = np.ones(items.shape, bool)
            kept[:, 1:] = items[:, 1:] != items[:, :-1]
            indptr = np.concatenate([[0], np.cumsum(kept.sum(axis=1))])
            X = sp.csr_array((np.ones(indptr[-1], np.float32), items[kept], indptr), shape=(m, p))
            writer.add(X, np.arange(lo, lo + m))
            progress(min(lo + users, n))


def write_rows(path, n, d, seed):
    """Write Gaussian rows whose columns have descending scales."""
    rng, rows = np.random.default_rng(seed), np.lib.format.open_memmap(path, "w+", "f4", (n, d))
    scales = np.arange(1, d + 1, dtype=np.float32) ** -0.25
    for lo in range(0, n, ROWS_PER_BLOCK):
        some = rows[lo : lo + ROWS_PER_BLOCK]
        some[:] = rng.standard_normal(some.shape, dtype=np.float32) * scales
    rows.flush()


class _Interactions:
    """An operation on interactions in shards."""

    needs_memory = False

    def __init__(self, given, where):
        self.shards = fastcos.linalg.InteractionShards(given.folder, verify=False)
        (n, p), nnz = self.shards.shape, self.shards.nnz
        self.size = {"users": n, "items": p, "nnz": nnz, "rank": given.rank}
        self.rate, self.rank = ("non_zeros_per_second", nnz), given.rank
        self.Q = np.random.default_rng(0).standard_normal((p, given.rank)).astype(np.float32)
        _, few = next(self.shards.blocks(0, min(n, 5_000)))
        self.of(few)  # compiles
        self.X = self.shards
        if where == "memory" or self.needs_memory:
            self.X = sp.vstack([rows for _, rows in self.shards.blocks()]).tocsr()

    def call(self):
        return self.of(self.X)


class Gram(_Interactions):
    """X'(X Q)."""

    def of(self, X):
        return fastcos.gram_matmul(X, self.Q)

    def certificate(self, found):
        """Return the largest relative error of some columns, and the bytes of the answer."""
        truth = np.zeros((self.shards.shape[1], CHECKED))
        for _, rows in self.shards.blocks():
            wide = rows.astype(np.float64)
            truth += wide.T @ (wide @ self.Q[:, :CHECKED])
        return answers.relative_error(found[:, :CHECKED], truth), found.tobytes()


class TruncatedSVD(_Interactions):
    """randomized_svd."""

    def of(self, X):
        return fastcos.randomized_svd(X, self.rank, compute_u=False)

    def certificate(self, found):
        """Return the largest residual, and the bytes of the singular values and vectors."""
        return float(found.residuals.max()), found.s.tobytes() + found.Vt.tobytes()


class ItemNeighbors(_Interactions):
    """The nearest items of every item, by their users; of a CSR in memory."""

    needs_memory = True

    def of(self, X):
        return fastcos.top_k(X.T, k=K)

    def certificate(self, found):
        """Return the largest error of the cosines of some items, and the bytes of the indices."""
        counts = self.shards.column_sums
        chosen = np.argsort(-counts)[: CHECKED * 100 : 100]
        sums = np.zeros((self.shards.shape[1], len(chosen)))
        for _, rows in self.shards.blocks():
            sums += (rows.T @ rows[:, chosen]).toarray()
        lengths = np.sqrt(np.where(counts > 0, counts, 1))
        cosines = sums / lengths[:, None] / lengths[chosen]
        cosines[chosen, np.arange(len(chosen))] = -np.inf
        best = -np.sort(-cosines, axis=0)[:K].T
        return float(abs(found.scores[chosen] - best).max()), found.indices.tobytes()


class Search:
    """Neighbours of dense queries among the rows of a file, here or on a cluster."""

    def __init__(self, given, where):
        self.files = [given.folder / name for name in ("queries.npy", "items.npy")]
        self.workers = int(where.split("-")[0]) if "worker" in where else 0
        self.queries = np.load(self.files[0])
        self.items = np.load(self.files[1], mmap_mode=None if where == "memory" else "r")
        (n, d), m = self.queries.shape, len(self.items)
        self.size, self.rate = {"queries": n, "rows": m, "columns": d}, ("pairs_per_second", n * m)
        self.of(*[inputs.gaussian(3_000, 16)] * 2)  # compiles
        self.started = contextlib.ExitStack()
        if self.workers:
            self.start_workers()

    def of(self, queries, items):
        return fastcos.top_k(queries, items, K)

    def start_workers(self):
        """Start the workers, which compile, and read the rows into the page cache."""
        from dask.distributed import Client, LocalCluster

        own = {"threads_per_worker": 1, "dashboard_address": ":0", "memory_limit": "4GiB"}
        cluster = self.started.enter_context(LocalCluster(n_workers=self.workers, **own))
        self.client = self.started.enter_context(Client(cluster))
        self.client.run(warm, str(self.files[1]))
        self.out = self.started.enter_context(tempfile.TemporaryDirectory())

    def call(self):
        if not self.workers:
            return self.of(self.queries, self.items)
        from fastcos.distributed import cluster

        return cluster.top_k(*self.files, K, out=Path(self.out, "found"), client=self.client)

    def certificate(self, found):
        """Return how many sampled queries lack their neighbours, and the bytes of the answer."""
        with self.started:
            indices, scores = np.array(found.indices), np.array(found.scores)
        wrong = answers.wrong_rows(indices, self.queries, self.items)
        return wrong, indices.tobytes() + scores.tobytes()


class Audit(Search):
    """An audit of the rows of a file."""

    def of(self, queries, items):
        return fastcos.audit(items, k=K)

    def certificate(self, found):
        """Return no certificate, and the bytes of the report."""
        return None, json.dumps(found.to_dict()).encode()


def warm(file):
    """Compile a search and read a file."""
    fastcos.top_k(*[inputs.gaussian(3_000, 16)] * 2, K)
    for block in np.array_split(np.load(file, mmap_mode="r"), 64):
        block.sum()


OPERATIONS = {
    "gram": Gram, "svd": TruncatedSVD, "items": ItemNeighbors, "search": Search, "audit": Audit,
}  # fmt: skip
DENSE = {"search", "audit"}
# on a local cluster, searches only
PLACES = ("disk", "memory", "1-worker", "2-workers")


def run(given, name, where):
    """Run an operation once in this process."""
    fastcos.set_config(working_memory=given.memory)
    operation = OPERATIONS[name](given, where)
    start = time.perf_counter()
    found = operation.call()
    seconds, peak = time.perf_counter() - start, resident_mib("VmHWM")
    certificate, content = operation.certificate(found)
    rate, count = operation.rate
    return {"operation": name, "where": where, **operation.size} | {
        "threads": fastcos.get_config().num_threads, "seconds": seconds, rate: count / seconds,
        "peak_mib": peak, "certificate": certificate, "digest": hashlib.sha256(content).hexdigest(),
    }  # fmt: skip


def needs(given):
    """Return the bytes of disk and of memory that this takes."""
    disk = memory = 0
    if not DENSE.issuperset(given.operations):
        disk = given.nnz * DISK_BYTES
        memory = ENTRIES_PER_SHARD * 18 + 12 * given.items * given.rank
        if "memory" in given.where:
            memory = max(memory, given.nnz * MEMORY_BYTES)
        if "items" in given.operations:
            memory = max(memory, given.nnz * ITEMS_BYTES)
    if DENSE.intersection(given.operations):
        rows, queries = (4 * given.columns * n for n in (given.rows, given.queries))
        disk += rows + queries
        kept = rows if "memory" in given.where else 0
        memory = max(memory, kept + queries + 2**20 * given.memory)
    return disk, memory


def write(given):
    """Write the data that the operations need and the folder lacks."""
    from rich.console import Console
    from rich.progress import Progress

    if not given.folder.exists() and not DENSE.issuperset(given.operations):
        with Progress(console=Console(stderr=True)) as bar:
            task = bar.add_task("writing shards", total=given.users)
            write_shards(
                given.folder, given.users, given.items, given.nnz,
                lambda done: bar.update(task, completed=done),
            )  # fmt: skip
    given.folder.mkdir(exist_ok=True)
    for seed, (name, n) in enumerate({"items": given.rows, "queries": given.queries}.items()):
        file = given.folder / f"{name}.npy"
        if DENSE.intersection(given.operations) and not file.exists():
            write_rows(file, n, given.columns, seed)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--operations", nargs="+", choices=OPERATIONS, default=["gram", "svd", "items"]
    )
    parser.add_argument("--where", nargs="+", choices=PLACES, default=["disk"])
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="data to use, or to write and keep")
    parser.add_argument("--nnz", type=float, default=1e8)
    parser.add_argument("--users", type=int, help="default: one per 50 non-zeros")
    parser.add_argument("--items", type=int, default=50_000)
    parser.add_argument("--rank", type=int, default=64, help="columns of Q and of the SVD")
    parser.add_argument("--rows", type=int, default=3_000_000, help="dense rows")
    parser.add_argument("--columns", type=int, default=256)
    parser.add_argument("--queries", type=int, default=50_000)
    parser.add_argument("--memory", type=float, help="working_memory in MiB (default: as set)")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        print(json.dumps(run(given, *given.child)))
        return
    if any("worker" in where for where in given.where) and given.operations != ["search"]:
        parser.error("--where with workers takes --operations search")
    given.memory = given.memory or fastcos.get_config().working_memory
    given.nnz, given.users = int(given.nnz), given.users or max(1, int(given.nnz) // 50)
    disk, memory = needs(given)
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as temporary:
        given.folder = given.folder or Path(temporary, "data")
        free = shutil.disk_usage(temporary).free
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        print(
            f"{disk / 1e9:.1f} GB of disk ({free / 1e9:.0f} free), {memory / 1e9:.1f} GB of memory "
            f"({total / 1e9:.0f} here)",
            file=sys.stderr,
        )
        if memory > total or (not given.folder.exists() and disk > free):
            parser.exit(1, "bench.large: too large for this machine\n")
        write(given)
        words = ["--folder", given.folder, "--rank", given.rank, "--memory", given.memory]
        for _ in range(given.turns):
            for name in given.operations:
                for where in given.where:
                    found = in_new_process("bench.large", *words, "--child", name, where)
                    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
