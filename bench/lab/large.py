"""Time and memory of operations on data larger than memory: on disk, in memory, on a cluster.

    python -m bench.lab.large --nnz 1e9                                # gram, svd, items
    python -m bench.lab.large --nnz 2e8 --users 4000000 --items 50000 --rank 32 --where disk memory
    python -m bench.lab.large --operations search audit --rows 3000000 --where disk memory
    python -m bench.lab.large --operations search --where disk 1-worker 2-workers --turns 2
    python -m bench.lab.large --data ratings.csv --folder large      # your own interactions

The script first prints how much disk, memory and time the run takes. It then writes seeded data to
the current folder, and removes them at the end. With --folder, the data stay in that folder, and
the same command resumes after the last result.

There are two kinds of data. Three operations use a binary matrix of Zipf-distributed items in
shards: `gram` computes X'(X Q), `svd` computes an SVD, and `items` finds the nearest items of every
item. Two operations use dense rows: `search` finds the neighbours of other rows, and `audit` audits
the rows. Each operation runs in a new process, with the data on disk or in memory. A search can
also run on a local Dask cluster whose workers have one thread.

Each answer is checked: sampled columns, items or queries are computed again in float64, and an SVD
is checked by its certificate. On standard output, each line is a JSON object with the seconds, the
non-zeros or pairs per second, the peak resident memory of the process in MiB, the certificate, and
a digest of the bits of the answer. At the end, the script writes a table of these results to
stderr.
"""

import argparse
import contextlib
import hashlib
import importlib
import itertools
import json
import os
import shutil
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from rich.console import Console
from rich.progress import track

import fastcos
from bench import check, data
from bench.compare.worker import resident_mib
from bench.lab.markdown import table
from bench.lab.timing import in_new_process
from fastcos.linalg.shards import ENTRIES_PER_SHARD, InteractionShards, shard_writer

K = 10
ERRORS = Console(stderr=True)
# The number of interactions that are drawn for one block of users. Generating a block takes half a
# gigabyte of memory.
DRAWS_PER_BLOCK = 1 << 24
# The popularity of items falls as 1 / rank^EXPONENT.
EXPONENT = 0.8
# The bytes per non-zero. On disk, a non-zero takes 4 bytes for its column. In memory, a non-zero
# takes 8 bytes: 4 for its column and 4 for its float32 value. The operation `items` holds the rows
# and their transpose in memory, which takes 18 bytes per non-zero.
DISK_BYTES, MEMORY_BYTES, ITEMS_BYTES = 4, 8, 18
# SECONDS contains the time that an operation takes per unit of work. For the operations on
# interactions, the unit is a non-zero; these times were measured with 1e9 non-zeros and 64 columns.
# For the other operations, the unit is a pair of rows with 256 columns. WRITING is the seconds per
# non-zero for writing shards (docs/dev/benchmarks.md, "A billion non-zeros").
SECONDS = {"gram": 1.1e-7, "svd": 5.3e-7, "items": 2.9e-7, "search": 5e-10, "audit": 1e-9}
WRITING = 3e-7
# The number of items or columns whose answers are computed again in float64.
CHECKED = 5
# The number of dense rows that are made at once.
ROWS_PER_BLOCK = 100_000


def write_shards(path, n, p, nnz):
    """Write the interactions of n users with p items, about nnz interactions in total.

    The same number of items is drawn for every user. If an item is drawn several times for a user,
    it counts once. Each block is drawn with a separate seed, so a shard does not depend on the
    shards before it.
    """
    per_user = max(1, round(nnz / n))
    chances = 1 / np.arange(1, p + 1) ** EXPONENT
    edges = np.cumsum(chances / chances.sum())
    users = max(1, DRAWS_PER_BLOCK // per_user)
    with shard_writer(path, np.arange(p)) as writer:
        for lo in track(range(0, n, users), "writing shards", console=ERRORS):
            m, generator = min(n - lo, users), np.random.default_rng([0, lo // users])
            items = np.searchsorted(edges, generator.random(m * per_user), side="right")
            items = np.minimum(items, p - 1).astype(np.int32)
            indptr = np.arange(0, len(items) + 1, per_user)
            X = sp.csr_array((np.ones(len(items), np.float32), items, indptr), shape=(m, p))
            X.sum_duplicates()
            X.data[:] = 1
            writer.add(X, np.arange(lo, lo + m))


def write_rows(path, n, d, seed):
    """Write Gaussian rows whose columns have descending scales."""
    rng, rows = np.random.default_rng(seed), np.lib.format.open_memmap(path, "w+", "f4", (n, d))
    scales = np.arange(1, d + 1, dtype=np.float32) ** -0.25
    for lo in track(range(0, n, ROWS_PER_BLOCK), f"writing {path.name}", console=ERRORS):
        block = rows[lo : lo + ROWS_PER_BLOCK]
        block[:] = rng.standard_normal(block.shape, dtype=np.float32) * scales
    rows.flush()


# Each of the following functions checks an answer. The function returns the certificate of the
# answer, and the bytes whose digest the script prints.


def check_gram(shards, Q, product):
    """Return the largest relative error in CHECKED columns, and the bytes of the whole product."""
    truth = np.zeros((len(Q), CHECKED))
    for _, rows in shards.blocks():
        rows64 = rows.astype(np.float64)
        truth += rows64.T @ (rows64 @ Q[:, :CHECKED])
    return float(abs(product[:, :CHECKED] - truth).max() / abs(truth).max()), product.tobytes()


def check_svd(shards, Q, svd):
    """Return the largest residual of the SVD, and the bytes of the factors s and Vt."""
    return float(svd.residuals.max()), svd.s.tobytes() + svd.Vt.tobytes()


def check_items(shards, Q, neighbors):
    """Return the largest error of the cosines of CHECKED items, and the bytes of all indices."""
    counts = shards.column_sums
    sample = np.argsort(-counts)[: CHECKED * 100 : 100]
    sums = np.zeros((len(counts), len(sample)))
    for _, rows in shards.blocks():
        sums += (rows.T @ rows[:, sample]).toarray()
    lengths = np.sqrt(np.where(counts > 0, counts, 1))
    cosines = sums / lengths[:, None] / lengths[sample]
    cosines[sample, np.arange(len(sample))] = -np.inf
    best = -np.sort(-cosines, axis=0)[:K].T
    return float(abs(neighbors.scores[sample] - best).max()), neighbors.indices.tobytes()


def check_search(queries, items, neighbors):
    """Return how many sampled queries have wrong neighbours, and the bytes of the whole answer."""
    indices, scores = np.array(neighbors.indices), np.array(neighbors.scores)
    at = check.sample_of(len(queries))
    wrong = check.wrong_neighbors(indices[at], queries[at], items)
    return int((wrong > 0).sum()), indices.tobytes() + scores.tobytes()


def check_audit(queries, items, report):
    return None, json.dumps(report.to_dict()).encode()


# For each operation, the timed function and the function that checks its answer. The functions in
# SPARSE take a matrix and Q; the functions in DENSE take queries and items.
SPARSE = {
    "gram": (fastcos.gram_matmul, check_gram),
    "svd": (lambda X, Q: fastcos.randomized_svd(X, Q.shape[1], compute_u=False), check_svd),
    "items": (lambda X, Q: fastcos.top_k(X.T, k=K), check_items),
}
DENSE = {
    "search": (lambda queries, items: fastcos.top_k(queries, items, K), check_search),
    "audit": (lambda queries, items: fastcos.audit(items, k=K), check_audit),
}


# The functions on_interactions and on_rows prepare an operation. They return the timed call, the
# function that checks the answer of the call, the sizes of the data, the name of the unit of work,
# and the number of units.


def on_interactions(options, name, where, stack):
    """Prepare an operation on interactions in shards, or on a CSR in memory."""
    call, check = SPARSE[name]
    shards = InteractionShards(options.folder / "shards", verify=False)
    (n, p), X = shards.shape, shards
    Q = np.random.default_rng(0).standard_normal((p, options.rank)).astype(np.float32)
    call(next(shards.blocks(0, min(n, 5_000)))[1], Q)  # compiles the kernels
    if where == "memory" or name == "items":
        X = sp.vstack([rows for _, rows in shards.blocks()]).tocsr()
    size = {"users": n, "items": p, "nnz": shards.nnz, "rank": options.rank}
    return partial(call, X, Q), partial(check, shards, Q), size, "non_zeros", shards.nnz


def on_rows(options, name, where, stack):
    """Prepare an operation on dense rows, by this process or by workers on this machine."""
    call, check = DENSE[name]
    files = [options.folder / name for name in ("queries.npy", "items.npy")]
    queries = np.load(files[0])
    items = np.load(files[1], mmap_mode=None if where == "memory" else "r")
    rows = data.gaussian(3_000, 16)
    call(rows, rows)  # compiles the kernels
    call = partial(call, queries, items)
    if "worker" in where:
        from dask.distributed import Client, LocalCluster

        settings = {"threads_per_worker": 1, "dashboard_address": ":0", "memory_limit": "4GiB"}
        client = Client(LocalCluster(n_workers=int(where[0]), **settings))
        stack.callback(client.shutdown)
        # A worker that has imported bench.lab compiles its kernels at once.
        client.run(importlib.import_module, "bench.lab")
        client.run(fastcos.top_k, rows, rows, K)
        out = Path(tempfile.mkdtemp(dir=options.folder), "found")
        call = partial(fastcos.distributed.top_k, *files, K, out=out, client=client)
    (n, d), m = queries.shape, len(items)
    size = {"queries": n, "rows": m, "columns": d}
    return call, partial(check, queries, items), size, "pairs", n * m


# The places where an operation can run. Only searches can run on the workers of a local cluster.
PLACES = ("disk", "memory", "1-worker", "2-workers")
# The defaults of options that are numbers. By default, there is one user per 50 non-zeros. The rank
# is both the rank of the SVD and the number of columns of Q.
NUMBERS = {
    "users": None, "items": 50_000, "rank": 64, "rows": 3_000_000, "columns": 256,
    "queries": 50_000, "turns": 1,
}  # fmt: skip


def run(options, name, where):
    """Run and check an operation once in this process, and return the result to print."""
    fastcos.set_config(working_memory=options.memory)
    with contextlib.ExitStack() as stack:
        prepare = on_interactions if name in SPARSE else on_rows
        call, check, size, unit, work = prepare(options, name, where, stack)
        start = time.perf_counter()
        answer = call()
        seconds, peak = time.perf_counter() - start, resident_mib("VmHWM")
        certificate, content = check(answer)
    return {"operation": name, "where": where, **size} | {
        "threads": fastcos.get_config().n_threads, "seconds": seconds,
        f"{unit}_per_second": work / seconds, "peak_mib": peak, "certificate": certificate,
        "digest": hashlib.sha256(content).hexdigest(),
    }  # fmt: skip


def needs(options):
    """Return the bytes of disk and the bytes of memory that the operations need."""
    disk, memory, in_memory = 0, 0, "memory" in options.where
    if SPARSE.keys() & options.operations:
        disk += options.nnz * DISK_BYTES
        bytes_kept = ITEMS_BYTES if "items" in options.operations else in_memory * MEMORY_BYTES
        memory = max(
            options.nnz * bytes_kept, ENTRIES_PER_SHARD * 18 + 12 * options.items * options.rank
        )
    if DENSE.keys() & options.operations:
        rows, queries = 4 * options.columns * options.rows, 4 * options.columns * options.queries
        disk += rows + queries
        memory = max(memory, in_memory * rows + queries + 2**20 * options.memory)
    return disk, memory


def minutes(options):
    """Return the estimated minutes of the operations, based on the rates in SECONDS for 2 cores."""
    per_unit = SECONDS | {"svd": SECONDS["svd"] * options.rank / 64}
    units = {"search": options.queries * options.rows, "audit": options.rows**2}
    seconds = sum(per_unit[name] * units.get(name, options.nnz) for name in options.operations)
    writing = WRITING * options.nnz * bool(SPARSE.keys() & options.operations)
    return (seconds * len(options.where) * options.turns + writing) / 60


def table_of(results):
    """Return the table of all results."""
    columns = "operation", "where", "seconds", "per second", "peak MiB", "certificate"
    rows = []
    for result in results:
        (rate,) = (value for name, value in result.items() if name.endswith("_per_second"))
        seconds = result["operation"], result["where"], result["seconds"]
        rows.append((*seconds, rate, result["peak_mib"], result["certificate"]))
    return "\n".join(table("llrrrr", columns, rows))


def write_inputs(options):
    """Write the inputs that are missing in the folder.

    If the shards can be opened, they are complete, and are not written again.
    """
    if SPARSE.keys() & options.operations:
        path = options.folder / "shards"
        try:
            InteractionShards(path, verify=False)
        except (OSError, ValueError):
            shutil.rmtree(path, ignore_errors=True)
            if options.data:
                fastcos.io.ingest_interactions(options.data, path)
            else:
                write_shards(path, options.users, options.items, options.nnz)
    if DENSE.keys() & options.operations:
        for seed, (name, n) in enumerate((("items", options.rows), ("queries", options.queries))):
            if not (options.folder / f"{name}.npy").exists():
                write_rows(options.folder / f"{name}.part", n, options.columns, seed)
                (options.folder / f"{name}.part").rename(options.folder / f"{name}.npy")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--operations", nargs="+", choices=SPARSE | DENSE, default=list(SPARSE))
    parser.add_argument("--where", nargs="+", choices=PLACES, default=["disk"])
    parser.add_argument("--nnz", type=float, default=1e8)
    parser.add_argument("--data", type=Path, help="interactions as fastcos compare reads them")
    parser.add_argument("--folder", type=Path, help="where data and results stay, to resume")
    parser.add_argument("--memory", type=float, help="working_memory in MiB (default: as set)")
    for name, number in NUMBERS.items():
        parser.add_argument(f"--{name}", type=int, default=number, help="default: %(default)s")
    options = parser.parse_args()
    if any("worker" in where for where in options.where) and options.operations != ["search"]:
        parser.error("--where with workers takes --operations search")
    options.memory = options.memory or fastcos.get_config().working_memory
    if options.data:  # a line of the file has about 16 bytes
        options.nnz = options.data.stat().st_size / 16
    options.nnz, options.users = int(options.nnz), options.users or max(1, int(options.nnz) // 50)
    disk, memory = needs(options)
    free = shutil.disk_usage(Path.cwd()).free
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    ERRORS.print(
        f"{disk / 1e9:.1f} GB of disk ({free / 1e9:.0f} free), {memory / 1e9:.1f} GB of memory "
        f"({total / 1e9:.0f} here), about {minutes(options):.0f} minutes"
    )
    if memory > total or disk > free:
        parser.exit(1, "bench.lab.large: too large for this machine\n")
    with contextlib.ExitStack() as stack:
        if options.folder is None:
            options.folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=Path.cwd())))
        options.folder.mkdir(exist_ok=True)
        write_inputs(options)
        record, results = options.folder / "results.jsonl", []
        if record.exists():
            results = [json.loads(line) for line in record.read_text().splitlines()]
        runs = list(itertools.product(range(options.turns), options.operations, options.where))
        for _, name, where in runs[len(results) :]:
            results.append(in_new_process(run, options, name, where))
            with record.open("a") as file:
                file.write(json.dumps(results[-1]) + "\n")
            print(json.dumps(results[-1]), flush=True)
    print(f"\n{table_of(results)}", file=sys.stderr)


if __name__ == "__main__":
    main()
