"""Search on a Dask cluster: the gain of a second worker, and the overhead of Dask.

    python -m bench.cluster_scaling [--rows 500000] [--columns 128] [--turns 2]

A self-join of rows in a file, in turns: in this process on one thread, on a cluster of one worker
with one thread, and on two such workers; the order alternates. Prints JSON: median seconds of each,
the gain of the second worker, the share of time that the cluster adds to one worker, and whether
the results are bit-identical.
"""

import argparse
import functools
import json
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

import fastcos
from bench.beyond_memory import K, write_rows


def on_cluster(folder: Path, workers: int) -> tuple[float, np.ndarray]:
    """Return seconds and indices; the workers compile and read the rows before."""
    # imported here: asv imports every file of this folder, and Dask is optional
    from dask.distributed import Client, LocalCluster

    from fastcos.distributed import cluster as distributed

    with (
        LocalCluster(
            n_workers=workers, threads_per_worker=1, dashboard_address=":0", memory_limit="4GiB"
        ) as cluster,
        Client(cluster) as client,
    ):
        client.run(warm, str(folder / "rows.npy"))
        start = time.perf_counter()
        with tempfile.TemporaryDirectory(dir=folder) as out:
            found = distributed.top_k(
                folder / "rows.npy", k=K, out=Path(out) / "found", client=client
            )
            seconds = time.perf_counter() - start
            return seconds, np.array(found.indices)


def in_this_process(folder: Path) -> tuple[float, np.ndarray]:
    """Return seconds and indices of one thread of this process."""
    warm(str(folder / "rows.npy"))
    start = time.perf_counter()
    rows = np.load(folder / "rows.npy", mmap_mode="r")
    found = fastcos.top_k(rows, k=K, n_threads=1)
    return time.perf_counter() - start, found.indices


def warm(file: str) -> float:
    """Compile the search and read the rows into the page cache."""
    small = np.random.default_rng(0).standard_normal((3000, 16)).astype(np.float32)
    fastcos.top_k(small, k=K)
    return float(sum(block.sum() for block in np.array_split(np.load(file, mmap_mode="r"), 64)))


def main() -> None:
    """Run all in turns; print the report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--columns", type=int, default=128)
    parser.add_argument("--turns", type=int, default=2)
    given = parser.parse_args()
    runs = {
        "here": in_this_process,
        "1 worker": functools.partial(on_cluster, workers=1),
        "2 workers": functools.partial(on_cluster, workers=2),
    }
    times: dict[str, list[float]] = {name: [] for name in runs}
    answers = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_rows(folder / "rows.npy", given.rows, given.columns, seed=0)
        for turn in range(given.turns):
            for which in list(runs) if turn % 2 == 0 else reversed(runs):
                took, indices = runs[which](folder)
                times[which].append(took)
                answers.append(indices)
    seconds = {which: statistics.median(some) for which, some in times.items()}
    report = {
        "rows": given.rows,
        "columns": given.columns,
        "k": K,
        "seconds": seconds,
        "all_seconds": times,
        "gain_of_a_second_worker": seconds["1 worker"] / seconds["2 workers"],
        "added_by_the_cluster": seconds["1 worker"] / seconds["here"] - 1,
        "pairs_per_second_of_a_core": given.rows**2 / seconds["here"],
        "same_bits": all(np.array_equal(answers[0], other) for other in answers),
    }
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
