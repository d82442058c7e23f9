"""Time, memory and certificate of each library for interaction matrices of up to 1e9 non-zeros.

One call takes seconds to hours, so every process makes only one call. Before this call, a short
call on the first 5,000 rows loads kernels and starts threads. The time and the memory of the
preparation, for example of a transposed copy, are reported as well. The certificate is the float64
error of sampled results, as in the other tasks.
"""

import random
import tempfile
from pathlib import Path

import numpy as np

from bench import check, data, machine
from bench.compare import tasks
from bench.compare.worker import Failed, NotInstalledError, Worker, save_arguments

RANK = 16
# The matrix is written to this folder and not to /tmp, because /tmp may lie in memory. Git ignores
# this folder.
SCRATCH = machine.ROOT / ".bench"
TITLES = {
    "gram": f"X'(X A), {tasks.COLUMNS} columns",
    "svd": f"{RANK} singular triplets to a residual of {tasks.SVD_TOLERANCE}",
    "sparse_join": f"nearest items of every item by cosine, k = {tasks.K}",
}
CERTIFICATES = {
    "gram": "largest error of 5 columns, as a share of the largest entry",
    "svd": "largest residual",
    "sparse_join": "largest error of the cosines of 20 items",
}


def arguments_of(operation, X):
    """Return the arguments of an operation on a matrix."""
    return {
        "gram": {"X": X, "A": data.gaussian(X.shape[1], tasks.COLUMNS)},
        "svd": {"X": X, "k": RANK, "tolerance": tasks.SVD_TOLERANCE},
        "sparse_join": {"X": X, "k": tasks.K},
    }[operation]


def certifier(operation, X, A=None, k=None, tolerance=None):
    """Return a function that computes the certificate of an answer, which is its float64 error."""
    if operation == "gram":
        expected = X.T @ (X @ A[:, :5].astype(np.float64))
        return lambda Y: float(abs(Y[:, :5] - expected).max() / abs(expected).max())
    if operation == "svd":
        return lambda triplets: float(check.residuals(X, triplets[:, 0], triplets[:, 1:]).max())
    at = np.argsort(-np.bincount(X.indices, minlength=X.shape[1]))[:2_000:100]
    expected = np.maximum(check.item_neighbors(X, at, k), 0)
    return lambda scores: float(abs(scores[at] - expected).max())


def measure(operation, X, source, descriptions, processes, threads):
    """Measure one operation; return the facts about each call of each library.

    The facts include the time, the memory and the certificate of the call.
    """
    names = [name for name, facts in descriptions.items() if operation in facts["operations"]]
    arguments = arguments_of(operation, X)
    labels = {name: {"name": descriptions[name]["name"]} for name in names}
    results = {name: label | {"calls": []} for name, label in labels.items()}
    certificate = certifier(operation, **arguments)
    SCRATCH.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=SCRATCH) as folder:
        save_arguments(folder, arguments)
        for _ in range(processes):
            for name in random.sample(names, len(names)):
                setting = descriptions[name]["settings"][0]
                worker = Worker(name, threads, setting)
                try:
                    facts = worker.request(do="once", operation=operation, folder=folder)
                    answer = Path(folder, f"{worker.process.pid}.answer.npy")
                    facts["certificate"] = certificate(np.load(answer))
                    answer.unlink()
                    del facts["cpu_seconds"]
                    results[name]["calls"].append(facts)
                    print(f"  {line_of(descriptions[name]['name'], facts)}", flush=True)
                except (Failed, NotInstalledError) as error:
                    results[name] = labels[name] | {"absent": str(error)}
                    names = [other for other in names if other != name]
                finally:
                    worker.close()
    title = f"{TITLES[operation]}, {source}"
    return {"title": title, "certificate": CERTIFICATES[operation], "libraries": results}


def line_of(name, facts):
    """Return one line of text about one call."""
    return (
        f"{name:16} {facts['seconds']:10.2f} s, prepared in {facts['preparation_seconds']:.2f} s, "
        f"{facts['added_mib']:,.0f} MiB in addition to the matrix, error {facts['certificate']:.2g}"
    )
