"""One library on one sparse task in a process of its own: `python sparse_worker.py JOB.json`.

The job names the task, the library and its setting, the .npy files of the CSR matrix, and where the
answer goes. Prints JSON: the seconds of every call, the peak memory that a call added, in MiB, and
for an SVD the largest relative residual. Kept free of fastcos where a rival runs, and of rivals
where fastcos runs, so that each may live in an environment of its own.
"""

import json
import os
import sys
import time
from pathlib import Path

import numpy as np
import scipy.sparse as sp

CORES = len(os.sched_getaffinity(0))
# rows of an answer that are kept
KEPT = 1000


# X A and X'(X Q): call(A) gives the product


def matmul_ours(X):
    import fastcos

    return lambda A: fastcos.matmul(X, A)


def matmul_prepared(X):
    from fastcos.operators import as_operator

    return as_operator(X).matmul


def matmul_scipy(X):
    return lambda A: X @ A


def matmul_mkl(X):
    from sparse_dot_mkl import dot_product_mkl

    return lambda A: dot_product_mkl(X, A)


def gram_ours(X):
    import fastcos

    return lambda Q: fastcos.gram_matmul(X, Q)


def gram_prepared(X):
    from fastcos.operators import as_operator

    return as_operator(X).gram_matmul


def gram_scipy(X):
    transpose = X.T
    return lambda Q: transpose @ (X @ Q)


def gram_mkl(X):
    from sparse_dot_mkl import dot_product_mkl

    transpose = X.T
    return lambda Q: dot_product_mkl(transpose, dot_product_mkl(X, Q))


# nearest items of every item, by cosine between columns of X: call() gives the k-th best scores.
# The rivals are handed normalised and transposed matrices, and that is not timed


def kth_scores(answer, k):
    """The k-th best score besides itself, per row of a sparse answer."""
    rows = (answer.data[a:b] for a, b in zip(answer.indptr, answer.indptr[1:], strict=False))
    return np.array([np.sort(row)[::-1][k] if len(row) > k else 0.0 for row in rows])


def neighbors_ours(X, k):
    import fastcos

    return lambda: fastcos.top_k(X.T, k=k), lambda found: found.scores[:, -1]


def neighbors_sparse_dot_topn(X, k, dtype):
    from sparse_dot_topn import sp_matmul_topn

    items = X.T.tocsr().astype(dtype)
    lengths = np.sqrt(items.power(2).sum(axis=1))
    rows = sp.csr_matrix(sp.diags_array(1 / np.where(lengths > 0, lengths, 1)) @ items).astype(
        dtype
    )
    columns = sp.csr_matrix(rows.T.tocsr())
    # itself is the best one
    call = lambda: sp_matmul_topn(rows, columns, top_n=k + 1, n_threads=CORES, sort=True)  # noqa: E731
    return call, lambda found: kth_scores(found, k)


def neighbors_implicit(X, k):
    from implicit.nearest_neighbours import CosineRecommender

    users = sp.csr_matrix(X.astype(np.float64))
    model = CosineRecommender(K=k + 1, num_threads=CORES)
    call = lambda: (model.fit(users, show_progress=False), model.similarity)[1]  # noqa: E731
    return call, lambda found: kth_scores(found, k)


# truncated SVD: call() gives U, s, Vt


def svd_ours(X, k, **setting):
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

    torch.set_num_threads(CORES)
    parts = (torch.from_numpy(np.asarray(part)) for part in (X.indptr, X.indices, X.data))
    tensor = torch.sparse_csr_tensor(*parts, size=X.shape)

    def call():
        U, s, V = torch.svd_lowrank(tensor, q=k + n_oversamples, niter=n_iter)
        return U[:, :k].numpy(), s[:k].numpy(), V[:, :k].numpy().T

    return call


def svd_dask(X, k, n_iter, n_oversamples):
    import dask.array
    from dask.array.linalg import svd_compressed

    rows = -(-X.shape[0] // (4 * CORES))
    blocks = [sp.csr_matrix(X[lo : lo + rows]) for lo in range(0, X.shape[0], rows)]
    lazy = [dask.array.from_array(block, chunks=block.shape, asarray=False) for block in blocks]
    whole = dask.array.concatenate(lazy, axis=0)

    def call():
        found = svd_compressed(whole, k, n_power_iter=n_iter, n_oversamples=n_oversamples, seed=0)
        return dask.array.compute(*found, num_workers=CORES)

    return call


def largest_residual(X, s, Vt):
    """The largest of min(r / s, r^½) / s with r = |X'Xv - s²v|, in float64 by SciPy."""
    V, s = np.asarray(Vt, np.float64).T, np.asarray(s, np.float64)
    V = V / np.linalg.norm(V, axis=0)
    X = X.astype(np.float64)
    r = np.linalg.norm(X.T @ (X @ V) - V * s**2, axis=0)
    return float(np.max(np.minimum(r / s, np.sqrt(r)) / s))


def some_rows(answer):
    return answer[:: max(1, len(answer) // KEPT)]


def prepared(job):
    """The call to be timed, and what is kept of its answer."""
    parts = [np.load(file) for file in job["matrix"]]
    X = sp.csr_array(tuple(parts[:3]), shape=parts[3])
    make = globals()[f"{job['task']}_{job['library']}"]
    if job["task"] in ("matmul", "gram"):
        rng = np.random.default_rng(0)
        A = rng.standard_normal((X.shape[1], job["width"])).astype(np.float32)
        product = make(X)
        return lambda: product(A), some_rows
    if job["task"] == "neighbors":
        return make(X, job["k"], **job["setting"])
    return make(X, job["k"], **job["setting"]), lambda found: largest_residual(X, *found[1:])


def resident(field):
    """VmRSS or VmHWM of this process in MiB."""
    text = Path("/proc/self/status").read_text()
    return int(text.split(f"{field}:")[1].split()[0]) / 1024


if __name__ == "__main__":
    job = json.loads(Path(sys.argv[1]).read_text())
    call, kept = prepared(job)
    seconds, found = [], None
    if job["is_warmed"]:
        found = call()
    found = None
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts again
    stop = time.perf_counter() + job["seconds"]
    while not seconds or time.perf_counter() < stop:
        found = None
        started = time.perf_counter()
        found = call()
        seconds.append(time.perf_counter() - started)
    peak = resident("VmHWM") - before
    answer = kept(found)
    residual = answer if job["task"] == "svd" else None
    np.save(job["answer"], answer)
    print(json.dumps({"seconds": seconds, "peak_mib": peak, "residual": residual}))
