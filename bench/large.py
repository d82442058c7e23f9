"""Large interaction matrices: `python -m bench.large --nnz 1e9`; time, memory and certificate.

    python -m bench.large --nnz 2e8 --users 4000000 --items 50000 --rank 32 --where disk memory
    python -m bench.large --folder SHARDS --operations svd          # shards of `fastcos ingest`

Writes a seeded binary matrix of Zipf-distributed items in shards, after it has said how much disk
and memory that takes, and runs X'(X Q), an SVD and the nearest items of every item. Each runs in a
process of its own, from the shards or from one CSR in memory, and its answer is checked: sampled
columns in float64, the SVD's certificate, sampled items in float64. Prints one JSON object a line:
seconds, non-zeros per second, peak resident MiB, certificate and a digest of the bits.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import scipy.sparse as sp

import fastcos
from bench import answers
from bench.worker import resident_mib
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
            progress(min(lo + users, n), n)


class Gram:
    """X'(X Q)."""

    def __init__(self, p, rank):
        self.Q = np.random.default_rng(0).standard_normal((p, rank)).astype(np.float32)

    def call(self, X):
        return fastcos.gram_matmul(X, self.Q[: X.shape[1]])

    def certificate(self, found, shards):
        """Return the largest relative error of some columns, and the bytes of the answer."""
        truth = np.zeros((shards.shape[1], CHECKED))
        for _, rows in shards.blocks():
            wide = rows.astype(np.float64)
            truth += wide.T @ (wide @ self.Q[:, :CHECKED])
        return answers.relative_error(found[:, :CHECKED], truth), found.tobytes()


class TruncatedSVD:
    """randomized_svd."""

    def __init__(self, p, rank):
        self.rank = rank

    def call(self, X):
        return fastcos.randomized_svd(X, self.rank, compute_u=False)

    def certificate(self, found, shards):
        """Return the largest residual, and the bytes of the singular values and vectors."""
        return float(found.residuals.max()), found.s.tobytes() + found.Vt.tobytes()


class ItemNeighbors:
    """The nearest items of every item, by their users; of a CSR in memory."""

    def __init__(self, p, rank):
        pass

    def call(self, X):
        return fastcos.top_k(X.T, k=K)

    def certificate(self, found, shards):
        """Return the largest error of the cosines of some items, and the bytes of the indices."""
        counts = shards.column_sums
        chosen = np.argsort(-counts)[: CHECKED * 100 : 100]
        sums = np.zeros((shards.shape[1], len(chosen)))
        for _, rows in shards.blocks():
            sums += (rows.T @ rows[:, chosen]).toarray()
        lengths = np.sqrt(np.where(counts > 0, counts, 1))
        cosines = sums / lengths[:, None] / lengths[chosen]
        cosines[chosen, np.arange(len(chosen))] = -np.inf
        best = -np.sort(-cosines, axis=0)[:K].T
        return float(abs(found.scores[chosen] - best).max()), found.indices.tobytes()


OPERATIONS = {"gram": Gram, "svd": TruncatedSVD, "items": ItemNeighbors}


def run(path, name, where, rank):
    """Run an operation once in this process, after a warm-up on few users."""
    shards = fastcos.linalg.InteractionShards(path, verify=False)
    n, p = shards.shape
    operation = OPERATIONS[name](p, rank)
    _, few = next(shards.blocks(0, min(n, 5_000)))
    operation.call(few)
    X = shards
    if where == "memory" or name == "items":
        X = sp.vstack([rows for _, rows in shards.blocks()]).tocsr()
    start = time.perf_counter()
    found = operation.call(X)
    seconds, peak = time.perf_counter() - start, resident_mib("VmHWM")
    certificate, content = operation.certificate(found, shards)
    return {
        "operation": name, "where": where, "users": n, "items": p, "nnz": shards.nnz,
        "rank": rank, "threads": fastcos.get_config().num_threads, "seconds": seconds,
        "non_zeros_per_second": shards.nnz / seconds, "peak_mib": peak,
        "certificate": certificate, "digest": hashlib.sha256(content).hexdigest(),
    }  # fmt: skip


def needs(nnz, p, rank, operations):
    """Return the bytes of disk and of memory that this takes."""
    memory = ENTRIES_PER_SHARD * 18 + 12 * p * rank
    if "items" in operations:
        memory = max(memory, nnz * ITEMS_BYTES)
    return nnz * DISK_BYTES, memory


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nnz", type=float, default=1e8)
    parser.add_argument("--users", type=int, help="default: one per 50 non-zeros")
    parser.add_argument("--items", type=int, default=50_000)
    parser.add_argument("--rank", type=int, default=64, help="columns of Q and of the SVD")
    parser.add_argument("--operations", nargs="+", choices=OPERATIONS, default=list(OPERATIONS))
    parser.add_argument("--where", nargs="+", choices=("disk", "memory"), default=["disk"])
    parser.add_argument("--folder", type=Path, help="shards to use, or to write and keep")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        print(json.dumps(run(given.folder, *given.child, given.rank)))
        return
    nnz, users = int(given.nnz), given.users or max(1, int(given.nnz) // 50)
    disk, memory = needs(nnz, given.items, given.rank, given.operations)
    memory = max(memory, nnz * MEMORY_BYTES) if "memory" in given.where else memory
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as temporary:
        path = given.folder or Path(temporary, "shards")
        free = shutil.disk_usage(Path(temporary)).free
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        print(
            f"{users:,} x {given.items:,}, {nnz:,} non-zeros: {disk / 1e9:.1f} GB of disk "
            f"({free / 1e9:.0f} free), {memory / 1e9:.1f} GB of memory ({total / 1e9:.0f} here)",
            file=sys.stderr,
        )
        if memory > total or (not path.exists() and disk > free):
            parser.exit(1, "bench.large: too large for this machine\n")
        if not path.exists():
            from rich.console import Console
            from rich.progress import Progress

            with Progress(console=Console(stderr=True)) as bar:
                task = bar.add_task("writing shards", total=users)
                write_shards(
                    path, users, given.items, nnz,
                    lambda done, _: bar.update(task, completed=done),
                )  # fmt: skip
        for operation in given.operations:
            for where in given.where:
                command = [sys.executable, "-m", "bench.large", "--folder", str(path)]
                command += ["--rank", str(given.rank), "--child", operation, where]
                done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
                print(done.stdout, end="", flush=True)


if __name__ == "__main__":
    main()
