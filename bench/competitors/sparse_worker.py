"""Run one library on one sparse task: `python sparse_worker.py JOB.json`.

The job names the task, the library and its setting, the .npy files of the CSR matrix and the file
of the answer. Prints JSON: the seconds of every call, the peak memory that a call added, in MiB,
and for an SVD the largest relative residual. adapters.py is read by path: this process may run in
an environment without fastcos.
"""

import json
import runpy
import sys
import time
from pathlib import Path

import numpy as np
import scipy.sparse as sp

ADAPTERS = runpy.run_path(str(Path(__file__).with_name("adapters.py")))
N_THREADS = ADAPTERS["n_threads"]()
# rows of an answer that are compared
MAX_ROWS = 1000


# truncated SVD: call() returns U, s, Vt


def svd_fastcos(X, k, **setting):
    import fastcos

    return lambda: fastcos.randomized_svd(X, k, **setting)[:3]


def svd_scikit_learn(X, k, **setting):
    from sklearn.utils.extmath import randomized_svd

    return lambda: randomized_svd(X, k, random_state=0, flip_sign=False, **setting)


def svd_arpack(X, k, **setting):
    from scipy.sparse.linalg import svds

    def call():
        U, s, Vt = svds(X, k, random_state=0, **setting)
        order = np.argsort(-s)
        return U[:, order], s[order], Vt[order]

    return call


def svd_fbpca(X, k, n_iter, n_oversamples):
    from fbpca import pca

    return lambda: pca(sp.csr_matrix(X), k, raw=True, n_iter=n_iter, l=k + n_oversamples)


def svd_torch(X, k, n_iter, n_oversamples):
    import torch

    torch.set_num_threads(N_THREADS)
    parts = (torch.from_numpy(np.asarray(part)) for part in (X.indptr, X.indices, X.data))
    tensor = torch.sparse_csr_tensor(*parts, size=X.shape)

    def call():
        U, s, V = torch.svd_lowrank(tensor, q=k + n_oversamples, niter=n_iter)
        return U[:, :k].numpy(), s[:k].numpy(), V[:, :k].numpy().T

    return call


def svd_dask(X, k, n_iter, n_oversamples):
    import dask.array
    from dask.array.linalg import svd_compressed

    rows = -(-X.shape[0] // (4 * N_THREADS))
    blocks = [sp.csr_matrix(X[lo : lo + rows]) for lo in range(0, X.shape[0], rows)]
    lazy = [dask.array.from_array(block, chunks=block.shape, asarray=False) for block in blocks]
    whole = dask.array.concatenate(lazy, axis=0)

    def call():
        # the default iterator never normalises: float32 overflows on the decks, LinAlgError
        found = svd_compressed(
            whole, k, "QR", n_power_iter=n_iter, n_oversamples=n_oversamples, seed=0
        )
        return dask.array.compute(*found, num_workers=N_THREADS)

    return call


SVDS = {
    "fastcos": svd_fastcos,
    "scikit_learn": svd_scikit_learn,
    "arpack": svd_arpack,
    "fbpca": svd_fbpca,
    "torch": svd_torch,
    "dask": svd_dask,
}


def largest_residual(X, s, Vt):
    """Return the largest of min(r / s, r^½) / s with r = |X'Xv - s²v|, in float64 by SciPy."""
    V, s = np.asarray(Vt, np.float64).T, np.asarray(s, np.float64)
    V = V / np.linalg.norm(V, axis=0)
    X = X.astype(np.float64)
    r = np.linalg.norm(X.T @ (X @ V) - V * s**2, axis=0)
    return float(np.max(np.minimum(r / s, np.sqrt(r)) / s))


def sample_rows(answer):
    return answer[:: max(1, len(answer) // MAX_ROWS)]


def prepared(job):
    """Return the call to time, and the function from its answer to what is compared."""
    parts = [np.load(file) for file in job["matrix"]]
    X = sp.csr_array(tuple(parts[:3]), shape=parts[3])
    task, library, k = job["task"], job["library"], job["k"]
    if task in ("product", "gram"):
        rng = np.random.default_rng(0)
        A = rng.standard_normal((X.shape[1], job["width"])).astype(np.float32)
        product = ADAPTERS[task](library, X)
        return lambda: product(A), sample_rows
    if task == "items":
        call, read = ADAPTERS["items"](library, X, k, **job["setting"])
        return call, lambda found: read(found)[:, -1]
    call = SVDS[library](X, k, **job["setting"])
    return call, lambda found: largest_residual(X, *found[1:])


def resident(field):
    """Return VmRSS or VmHWM of this process in MiB."""
    text = Path("/proc/self/status").read_text()
    return int(text.split(f"{field}:")[1].split()[0]) / 1024


if __name__ == "__main__":
    job = json.loads(Path(sys.argv[1]).read_text())
    call, reduce = prepared(job)
    seconds, found = [], None
    call()
    if "fastcos.linalg.buffer_pool" in sys.modules:
        sys.modules["fastcos.linalg.buffer_pool"].release()
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # resets the high-water mark
    stop = time.perf_counter() + job["seconds"]
    while not seconds or time.perf_counter() < stop:
        found = None
        started = time.perf_counter()
        found = call()
        seconds.append(time.perf_counter() - started)
    peak = resident("VmHWM") - before
    answer = reduce(found)
    residual = answer if job["task"] == "svd" else None
    np.save(job["answer"], answer)
    print(json.dumps({"seconds": seconds, "peak_mib": peak, "residual": residual}))
