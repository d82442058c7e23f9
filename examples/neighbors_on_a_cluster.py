"""Find neighbours, fit a model and compare measures on a Dask cluster with a shared folder.

    python examples/neighbors_on_a_cluster.py FOLDER [--scheduler tcp://HOST:8786]

FOLDER contains the file items.npy, with one row per item, and the folder ratings, as written by
``fastcos fit ratings.csv --shards FOLDER/ratings``. If one of these inputs is missing, the script
writes a small example. Without --scheduler, it starts two worker processes on this machine. If the
script is stopped and started again, it computes only the neighbours that are still missing. The
script requires ``pip install distributed``.
"""

import argparse
from pathlib import Path

import dask
import numpy as np
from distributed import Client, LocalCluster

import fastcos
from fastcos import distributed


def make_inputs(folder: Path) -> None:
    """Write example inputs if they are missing: ratings in shards, and items of a small model."""
    data = fastcos.simulate_interactions(2000, 300, random_state=0)
    if not (folder / "ratings").exists():
        fastcos.linalg.InteractionShards.write(folder / "ratings", data.X)
    if not (folder / "items.npy").exists():
        np.save(folder / "items.npy", fastcos.LinearMF(16).fit(data.X).item_embeddings())


def on_cluster(client: Client, folder: Path) -> None:
    """Find the neighbours of all items, fit a model of the ratings, and compare measures."""
    found = distributed.top_k(folder / "items.npy", k=10, out=folder / "neighbors", client=client)
    print(f"wrote the neighbours of {len(found.indices):,} items to {folder / 'neighbors'}")
    model = distributed.fit(fastcos.LinearMF(16), folder / "ratings", client=client)
    model.save(folder / "model.npz")
    print(f"wrote a model of rank {model.n_components} to {folder / 'model.npz'}")
    # A comparison needs X in the memory of every process, so it uses only the users of one shard.
    shards = fastcos.linalg.InteractionShards(folder / "ratings", verify=False)
    found = distributed.compare(
        shards.shard(0), n_components=16, folder=folder, client=client,
        measures=["dot", "whitened_cosine", "csls"],
    )  # fmt: skip
    print(found.leaderboard.conclusion)


def main() -> None:
    """Connect to the cluster, or start one, and run the example."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--scheduler", help="address of a Dask scheduler (default: start two workers)"
    )
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    make_inputs(given.folder)
    # On preemptible machines, a task may lose more than three workers, which is the default limit.
    dask.config.set({"distributed.scheduler.allowed-failures": 20})
    if given.scheduler:
        with Client(given.scheduler) as client:
            on_cluster(client, given.folder)
        return
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        on_cluster(client, given.folder)


if __name__ == "__main__":
    main()
