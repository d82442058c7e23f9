"""Neighbours, a model and a comparison on a Dask cluster, from files that every worker sees.

    python examples/neighbors_on_a_cluster.py FOLDER [--scheduler tcp://HOST:8786]

FOLDER holds items.npy, a row per item, and ratings, which ``fastcos fit ratings.csv --shards
FOLDER/ratings`` has written; where they are missing, small ones are made. Without a scheduler: two
worker processes on this machine. Called again after a crash of this process, it resumes with the
missing neighbours. Needs ``pip install distributed``.
"""

import argparse
from pathlib import Path

import dask
import numpy as np
from distributed import Client, LocalCluster

import fastcos
from fastcos import distributed


def make_inputs(folder: Path) -> None:
    """Write what is missing: ratings in shards, and items embedded by a small model of them."""
    data = fastcos.simulate_interactions(2000, 300, random_state=0)
    if not (folder / "ratings").exists():
        fastcos.linalg.InteractionShards.write(folder / "ratings", data.X)
    if not (folder / "items.npy").exists():
        np.save(folder / "items.npy", fastcos.LinearMF(16).fit(data.X).item_embeddings())


def on_cluster(client: Client, folder: Path) -> None:
    """The neighbours of all items, a model of the ratings, and which measure suits it."""
    found = distributed.top_k(folder / "items.npy", k=10, out=folder / "neighbors", client=client)
    print(f"neighbours of {len(found.indices):,} items in {folder / 'neighbors'}")
    model = distributed.fit(fastcos.LinearMF(16), folder / "ratings", client=client)
    model.save(folder / "model.npz")
    print(f"model of rank {model.n_components} in {folder / 'model.npz'}")
    # A comparison needs X in the memory of every process, so it gets a sample of the users.
    shards = fastcos.linalg.InteractionShards(folder / "ratings", verify=False)
    found = distributed.compare(
        shards.shard(0), n_components=16, folder=folder, client=client,
        measures=["dot", "whitened_cosine", "csls"],
    )  # fmt: skip
    print(found.leaderboard.conclusion)


def main() -> None:
    """Parse, connect, run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--scheduler", help="address of one that runs already")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    make_inputs(given.folder)
    # If machines are often taken away, a task may lose more than three of them.
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
