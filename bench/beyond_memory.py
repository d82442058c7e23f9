"""Search of memory-mapped rows: resident memory, and throughput relative to rows in memory.

    python -m bench.beyond_memory [--rows 3000000] [--columns 256] [--queries 50000] [--memory 512]
    python -m bench.beyond_memory --audit --rows 300000 --memory 64  # an audit instead

Writes rows to a temporary file and searches them memory-mapped and in memory, in turns, each in a
process of its own, on two threads with a warm page cache. Prints JSON: seconds of both, the ratio
of their throughputs, their peak resident memory in MiB, and whether the results are bit-identical.
"""

import argparse
import hashlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import fastcos
from bench.worker import resident_mib

K, THREADS = 10, 2


def write_rows(path: Path, n: int, width: int, seed: int) -> None:
    """Write Gaussian rows whose columns have descending scales, in blocks."""
    rows = np.lib.format.open_memmap(path, "w+", np.float32, (n, width))
    generator = np.random.default_rng(seed)
    scales = np.arange(1, width + 1, dtype=np.float32) ** -0.25
    for lo in range(0, n, 100_000):
        some = generator.standard_normal((min(n, lo + 100_000) - lo, width), dtype=np.float32)
        rows[lo : lo + len(some)] = some * scales
    rows.flush()


def search(folder: Path, where: str, memory: float, *, audit: bool) -> dict[str, object]:
    """Run one search or audit in this process, after a warm-up."""
    fastcos.set_config(num_threads=THREADS, working_memory=memory)
    small = np.random.default_rng(0).standard_normal((3000, 16)).astype(np.float32)
    work = audit_bytes if audit else neighbor_bytes
    work(small, small)
    items = np.load(folder / "items.npy", mmap_mode="r" if where == "disk" else None)
    queries = np.load(folder / "queries.npy")
    start = time.perf_counter()
    found = work(queries, items)
    seconds = time.perf_counter() - start
    digest = hashlib.sha256(found).hexdigest()
    return {"seconds": seconds, "peak_mib": resident_mib("VmHWM"), "digest": digest}


def neighbor_bytes(queries: np.ndarray, items: np.ndarray) -> bytes:
    """Return the neighbours as bytes."""
    found = fastcos.top_k(queries, items, k=K)
    return found.indices.tobytes() + found.scores.tobytes()


def audit_bytes(_queries: np.ndarray, items: np.ndarray) -> bytes:
    """Return the audit report as bytes."""
    return json.dumps(fastcos.audit(items, k=K).to_dict()).encode()


def main() -> None:
    """Run both in turns; print the report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=3_000_000)
    parser.add_argument("--columns", type=int, default=256)
    parser.add_argument("--queries", type=int, default=50_000)
    parser.add_argument("--memory", type=float, default=512, help="working_memory in MiB")
    parser.add_argument("--audit", action="store_true", help="audit the rows instead")
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--child", nargs=2, metavar=("FOLDER", "WHERE"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        folder, where = given.child
        print(json.dumps(search(Path(folder), where, given.memory, audit=given.audit)))
        return
    runs: dict[str, list[dict[str, float]]] = {"disk": [], "memory": []}
    with tempfile.TemporaryDirectory() as folder:
        write_rows(Path(folder) / "items.npy", given.rows, given.columns, seed=0)
        write_rows(Path(folder) / "queries.npy", given.queries, given.columns, seed=1)
        for _ in range(given.turns):
            for where, done in runs.items():
                arguments = ["--child", folder, where, "--memory", str(given.memory)]
                arguments += ["--audit"] if given.audit else []
                command = [sys.executable, "-m", "bench.beyond_memory", *arguments]
                output = subprocess.run(command, check=True, capture_output=True, text=True)
                done.append(json.loads(output.stdout))
    medians = {
        where: statistics.median(run["seconds"] for run in done) for where, done in runs.items()
    }
    report = {
        "rows": given.rows, "columns": given.columns, "queries": given.queries, "k": K,
        "threads": THREADS, "seconds": medians,
        "throughput_of_in_memory": medians["memory"] / medians["disk"],
        "peak_mib": {where: max(run["peak_mib"] for run in done) for where, done in runs.items()},
        "same_bits": len({run["digest"] for done in runs.values() for run in done}) == 1,
    }  # fmt: skip
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
