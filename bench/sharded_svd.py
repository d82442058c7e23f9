"""SVD of interactions in shards on disk: resident memory, and throughput relative to memory.

    python -m bench.sharded_svd [--users 4000000] [--items 50000] [--per-user 50] [--rank 32]

Writes a binary matrix of Zipf-distributed items in shards to a temporary folder, then computes its
SVD from the shards and from one CSR in memory, each in a process of its own, on two threads with a
warm page cache. Prints JSON: seconds of both, the ratio of their throughputs, their peak resident
memory in MiB, the largest residuals, the difference of the singular values, and whether the results
are bit-identical.
"""

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import scipy.sparse as sp

import fastcos
from bench.answers import resident_mib
from fastcos.linalg.shards import ShardWriter

THREADS = 2
# users per shard writer call: a block of 80 MB
USERS_PER_BLOCK = 200_000


def write_shards(path: Path, n: int, p: int, per_user: int) -> None:
    """Write users with per_user draws of items each; repeated draws count once."""
    generator = np.random.default_rng(0)
    chances = 1 / np.arange(1, p + 1) ** 0.8
    edges = np.cumsum(chances / chances.sum())
    with ShardWriter(path, np.arange(p)) as writer:
        for lo in range(0, n, USERS_PER_BLOCK):
            m = min(n - lo, USERS_PER_BLOCK)
            items = np.searchsorted(edges, generator.random((m, per_user)), side="right")
            items = np.sort(np.minimum(items, p - 1).astype(np.int32), axis=1)
            kept = np.ones(items.shape, bool)
            kept[:, 1:] = items[:, 1:] != items[:, :-1]
            indptr = np.concatenate([[0], np.cumsum(kept.sum(axis=1))])
            values = np.ones(int(indptr[-1]), np.float32)
            X = sp.csr_array((values, items[kept], indptr), shape=(m, p))
            writer.add(X, np.arange(lo, lo + m))


def solve(path: str, where: str, rank: int) -> dict[str, object]:
    """Compute one SVD in this process, after a warm-up."""
    fastcos.set_config(num_threads=THREADS)
    warm = sp.random_array((3000, 1500), density=0.05, rng=0, format="csr", dtype=np.float32)
    warm.data[:] = 1
    fastcos.randomized_svd(warm, rank)
    shards = fastcos.linalg.InteractionShards(path, verify=False)
    X = shards if where == "disk" else sp.vstack([rows for _, rows in shards.blocks()]).tocsr()
    start = time.perf_counter()
    found = fastcos.randomized_svd(X, rank, compute_u=False)
    seconds = time.perf_counter() - start
    return {
        "seconds": seconds, "peak_mib": resident_mib("VmHWM"),
        "nnz": shards.nnz, "s": found.s.tolist(),
        "residual": float(found.residuals.max()),
        "digest": hashlib.sha256(found.s.tobytes() + found.Vt.tobytes()).hexdigest(),
    }  # fmt: skip


def main() -> None:
    """Run both; print the report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=int, default=4_000_000)
    parser.add_argument("--items", type=int, default=50_000)
    parser.add_argument("--per-user", type=int, default=50)
    parser.add_argument("--rank", type=int, default=32)
    parser.add_argument("--child", nargs=2, metavar=("FOLDER", "WHERE"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        print(json.dumps(solve(*given.child, given.rank)))
        return
    runs = {}
    with tempfile.TemporaryDirectory() as folder:
        write_shards(Path(folder) / "x", given.users, given.items, given.per_user)
        for where in ("disk", "memory"):
            command = [sys.executable, "-m", "bench.sharded_svd", "--rank", str(given.rank)]
            command += ["--child", f"{folder}/x", where]
            output = subprocess.run(command, check=True, capture_output=True, text=True)
            runs[where] = json.loads(output.stdout)
    disk, memory = runs["disk"], runs["memory"]
    apart = np.abs(np.subtract(disk["s"], memory["s"])) / memory["s"][0]
    report = {
        "users": given.users, "items": given.items, "nnz": disk["nnz"], "rank": given.rank,
        "threads": THREADS,
        "seconds": {where: run["seconds"] for where, run in runs.items()},
        "throughput_of_in_memory": memory["seconds"] / disk["seconds"],
        "peak_mib": {where: run["peak_mib"] for where, run in runs.items()},
        "largest_residual": {where: run["residual"] for where, run in runs.items()},
        "singular_values_differ_by": float(apart.max()),
        "same_bits": disk["digest"] == memory["digest"],
    }  # fmt: skip
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
