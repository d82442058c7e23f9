"""The work that fastcos.speed times, each kind with its cost and with float64's answer."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from fastcos import validate

Array = npt.NDArray[Any]

COLUMNS = 64
CHECKED_ROWS = 50
N_QUERIES = 1_000


class Job(NamedTuple):
    """A kind of work.

    Attributes
    ----------
    work : str
        search, product, gram or items.
    inputs : dict of str to ndarray
        What the worker reads.
    k : int
    operations, moved_bytes, pairs : float
        Of one call of the plain method: 2 a multiply-add; bytes of inputs and outputs; pairs of
        rows, or rows of A added up.
    check : callable
        From an answer to the share of it that is right.
    """

    work: str
    inputs: dict[str, Any]
    k: int
    operations: float
    moved_bytes: float
    pairs: float
    check: Callable[[Array], float]


def search_job(rows: Array, k: int) -> Job:
    """Neighbours of every row among the others, and single queries."""
    n, d = rows.shape
    k = validate.as_count("k", k, high=n - 1)
    queries = rows[np.linspace(0, n - 1, min(n, N_QUERIES)).astype(int)]
    checked = np.linspace(0, n - 1, min(n, CHECKED_ROWS)).astype(int)
    wide = rows.astype(np.float64)
    lengths = np.linalg.norm(wide, axis=1)
    truth = np.empty((len(checked), k), np.int64)
    for at, row in enumerate(checked):
        scale = lengths * lengths[row]
        scores = np.divide(wide @ wide[row], scale, out=np.zeros(n), where=scale > 0)
        scores[row] = -np.inf
        truth[at] = np.argsort(-scores, kind="stable")[:k]

    def check(answer: Array) -> float:
        return float((answer[checked] == truth).all(axis=1).mean())

    moved = 4.0 * n * d + 12.0 * n * k
    inputs = {"rows": rows, "queries": queries}
    return Job("search", inputs, k, 2.0 * n * n * d, moved, float(n) * n, check)


def sparse_jobs(X: Any, k: int) -> list[Job]:
    """X A, X'(X A), and the neighbours of the items."""
    X = sp.csr_array(X, dtype=np.float32)
    n, p = X.shape
    k = validate.as_count("k", k, high=p - 1)
    A = np.random.default_rng(0).standard_normal((p, COLUMNS)).astype(np.float32)
    matrix = {
        "data": X.data, "indices": X.indices, "indptr": X.indptr, "shape": np.array(X.shape)
    }  # fmt: skip
    wide = X.astype(np.float64)
    product = wide @ A

    def close_to(truth: Array) -> Callable[[Array], float]:
        return lambda answer: float(abs(answer - truth).max() <= 1e-4 * abs(truth).max())

    columns = np.linspace(0, p - 1, min(p, CHECKED_ROWS)).astype(int)
    lengths = np.sqrt(np.asarray(wide.multiply(wide).sum(axis=0)).ravel())
    scale = np.where(lengths > 0, lengths, 1)
    cosines = (wide.T @ wide[:, columns].toarray()) / scale[:, None] / scale[columns]
    cosines[columns, np.arange(len(columns))] = -np.inf
    best = -np.sort(-cosines, axis=0)[:k].T

    def same_scores(answer: Array) -> float:
        return float((abs(answer[columns] - best).max(axis=1) <= 1e-5).mean())

    read = 8.0 * X.nnz + 8.0 * n
    operations = 2.0 * X.nnz * COLUMNS
    counts = np.diff(X.indptr).astype(np.float64)
    met = float((counts**2).sum())
    given = {**matrix, "A": A}
    return [
        Job("product", given, k, operations, read + 4.0 * COLUMNS * (n + p),
             float(X.nnz), close_to(product)),
        Job("gram", given, k, 2 * operations, read + 8.0 * COLUMNS * p,
             2.0 * X.nnz, close_to(wide.T @ product)),
        Job("items", matrix, k, 2 * met, read + 12.0 * p * k, float(p) * p, same_scores),
    ]  # fmt: skip
