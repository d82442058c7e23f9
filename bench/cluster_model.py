"""Model of the time that a cluster needs, from the rates of one core.

`python -m bench.cluster_model` prints the numbers of the table in docs/dev/scale.md. In the model a
task reads its rows once and computes at the rate of one core times the worker's threads. Reading
and computing overlap; communication and scheduling are added. BYTES_PER_SECOND and SECONDS_PER_TASK
are assumptions.
"""

import argparse
import json
import time

import numpy as np
import scipy.sparse as sp

import fastcos
from bench.beyond_memory import K

COLUMNS = 128
# items of the SVD; above some 170,000 a shard has so few entries per column that every pass
# transposes it
ITEMS = 100_000
# columns of a block of the iteration
RANK = 64
# passes over X
PASSES = 20
# assumed: of a worker, from storage and over the network
BYTES_PER_SECOND = 1e9
# assumed: of Dask's scheduler
SECONDS_PER_TASK = 1e-3


def core_rates() -> dict[str, float]:
    """Return pairs per second of a search with 128 columns, and multiply-adds of X'(X Q)."""
    rng = np.random.default_rng(0)
    items = rng.standard_normal((100_000, COLUMNS)).astype(np.float32)
    fastcos.top_k(items[:4000], items, k=K, n_threads=1)
    start = time.perf_counter()
    fastcos.top_k(items[:40_000], items, k=K, n_threads=1)
    pairs = 40_000 * 100_000 / (time.perf_counter() - start)
    X = sp.random_array((200_000, 20_000), density=5e-3, rng=0, format="csr", dtype=np.float32)
    Q = rng.standard_normal((20_000, RANK)).astype(np.float32)
    fastcos.gram_matmul(X, Q, n_threads=1)
    start = time.perf_counter()
    fastcos.gram_matmul(X, Q, n_threads=1)
    products = 2 * X.nnz * RANK / (time.perf_counter() - start)
    return {"pairs_per_second": pairs, "multiplications_per_second": products}


def search(n: int, m: int, rates: dict[str, float], workers: int, cores: int) -> dict[str, float]:
    """Return time, tasks, bytes and memory of n queries among m items."""
    from fastcos.distributed import cluster

    block = cluster.queries_per_task(n)
    blocks = -(-n // block)
    step = min(m, cluster.items_per_task(blocks, m))
    ranges = -(-m // step)
    tasks = blocks * ranges
    # running top k, 16 bytes each, between workers; the result to the client
    sent = 16 * n * K * (ranges - 1) / workers + 12 * n * K
    return {
        "tasks": tasks,
        "seconds_a_task": block * step / rates["pairs_per_second"],
        "gibibytes_of_a_worker": cores * 1.0 + 1.0,
    } | _times(
        n * m / (rates["pairs_per_second"] * workers * cores),
        tasks * (step + block) * 4 * COLUMNS / workers, sent, 2 * tasks,
    )  # fmt: skip


def factorisation(nnz: int, rates: dict[str, float], workers: int, cores: int) -> dict[str, float]:
    """Return the same for an SVD of a binary matrix: one float32 product per pass."""
    from fastcos.linalg.shards import ENTRIES_PER_SHARD

    shards = -(-nnz // ENTRIES_PER_SHARD)
    product = 4 * ITEMS * RANK
    # the factor to every worker; the partial sums that are on another worker than their sum
    sent = PASSES * product * (1 + shards / workers)
    return {
        "tasks": 2 * shards * PASSES,
        "seconds_a_task": 2 * ENTRIES_PER_SHARD * RANK / rates["multiplications_per_second"],
        "gibibytes_of_a_worker": cores * (ENTRIES_PER_SHARD * 18 + 2 * product) / 2**30,
    } | _times(
        PASSES * 2 * nnz * RANK / (rates["multiplications_per_second"] * workers * cores),
        PASSES * nnz * 4 / workers, sent, 2 * shards * PASSES,
    )  # fmt: skip


def _times(computing: float, read: float, sent: float, tasks: int) -> dict[str, float]:
    """Return seconds of each part, of the bytes of the busiest worker, and of the whole."""
    reading, sending = read / BYTES_PER_SECOND, sent / BYTES_PER_SECOND
    scheduling = tasks * SECONDS_PER_TASK
    return {
        "gigabytes_read_by_a_worker": read / 1e9,
        "gigabytes_sent": sent / 1e9,
        "seconds_computing": computing,
        "seconds_reading": reading,
        "seconds_sending": sending,
        "seconds_scheduling": scheduling,
        "minutes": (max(computing, reading, scheduling) + sending) / 60,
    }


def main() -> None:
    """Print the numbers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=64)
    parser.add_argument("--cores", type=int, default=16, help="of a worker")
    given = parser.parse_args()
    rates = core_rates()
    size = given.workers, given.cores
    report = {
        "rates_of_a_core": rates,
        "assumed": {
            "bytes_per_second_of_a_worker": BYTES_PER_SECOND,
            "seconds_per_task_of_the_scheduler": SECONDS_PER_TASK,
        },
        "workers": given.workers,
        "cores_of_a_worker": given.cores,
        "neighbours of 100 M items x 128": search(10**8, 10**8, rates, *size),
        f"SVD of rank {RANK} of 10 G ones of {ITEMS:,} items, {PASSES} passes": factorisation(
            10**10, rates, *size
        ),
    }
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
