"""The loop of ann-benchmarks: `python bench/ann_benchmarks/harness.py DATASET.hdf5 [--batch]`.

DATASET has its HDF5 layout: train (n, d), test (m, d), neighbors (m, 100), distances (m, 100) and
the attribute distance. The constructor and its arguments come from config.yml. Prints JSON: recall
by distances (ties count, as there), queries per second, seconds to build.
"""

import argparse
import importlib.util
import json
import time
from pathlib import Path

import h5py
import numpy as np
import yaml

HERE = Path(__file__).parent
# tolerance of ann-benchmarks on the distance of the k-th neighbour
EPSILON = 1e-3


def algorithm(distance):
    """Return the configured object, constructed as ann-benchmarks does."""
    (entry,) = yaml.safe_load((HERE / "config.yml").read_text())["float"]["any"]
    specification = importlib.util.spec_from_file_location("module", HERE / "module.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    arguments = [distance if word == "@metric" else word for word in entry["base_args"]]
    return getattr(module, entry["constructor"])(*arguments)


def distances(queries, items, numbers, distance):
    """Return float64 distances of every query to the items found."""
    found = items[numbers].astype(np.float64)
    queries = queries.astype(np.float64)[:, None]
    if distance == "euclidean":
        return np.linalg.norm(found - queries, axis=2)
    lengths = np.linalg.norm(found, axis=2) * np.linalg.norm(queries, axis=2)
    return 1 - (found * queries).sum(axis=2) / lengths


def run(path, k=10, batch=False):
    """Build, query, and compute the recall."""
    with h5py.File(path) as file:
        items, queries = file["train"][:], file["test"][:]
        truth, distance = file["distances"][:, :k], file.attrs["distance"]
    searcher = algorithm(distance)
    started = time.perf_counter()
    searcher.fit(items)
    built = time.perf_counter() - started
    searcher.query(queries[0], k)
    started = time.perf_counter()
    if batch:
        searcher.batch_query(queries, k)
        numbers = searcher.get_batch_results()
    else:
        numbers = np.array([searcher.query(query, k) for query in queries])
    seconds = time.perf_counter() - started
    near_enough = distances(queries, items, numbers, distance) <= truth[:, -1:] + EPSILON
    return {
        "algorithm": str(searcher),
        "recall": float(near_enough.mean()),
        "queries_per_second": len(queries) / seconds,
        "build_seconds": built,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dataset")
    parser.add_argument("--k", type=int, default=10)
    parser.add_argument("--batch", action="store_true")
    given = parser.parse_args()
    print(json.dumps(run(given.dataset, given.k, given.batch), indent=2))
