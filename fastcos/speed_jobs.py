"""The work that fastcos.speed times, each kind with its cost and with float64's answer."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from fastcos import validation

Array = npt.NDArray[Any]

COLUMNS = 64
CHECKED_ROWS = 50
N_QUERIES = 1_000


def float32_error(d: int) -> float:
    """How far the product of two unit rows may be off in float32, whatever the order of its sums.

    d terms added, and both rows normalised: (d + 2 (d / 2 + 3)) roundings of 2^-24.
    """
    return (2 * d + 6) * 2.0**-24


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
    is_close : callable
        From an answer to whether float32 explains what is not.
    """

    work: str
    inputs: dict[str, Any]
    k: int
    operations: float
    moved_bytes: float
    pairs: float
    check: Callable[[Array], float]
    is_close: Callable[[Array], bool]


def search_job(rows: Array, k: int) -> Job:
    """Neighbours of every row among the others, and single queries."""
    n, d = rows.shape
    k = validation.as_count("k", k, high=n - 1)
    queries = rows[np.linspace(0, n - 1, min(n, N_QUERIES)).astype(int)]
    checked = np.linspace(0, n - 1, min(n, CHECKED_ROWS)).astype(int)
    wide = rows.astype(np.float64)
    lengths = np.linalg.norm(wide, axis=1)
    truth, best = np.empty((len(checked), k), np.int64), np.empty((len(checked), k))
    for at, row in enumerate(checked):
        scale = lengths * lengths[row]
        scores = np.divide(wide @ wide[row], scale, out=np.zeros(n), where=scale > 0)
        scores[row] = -np.inf
        truth[at] = np.argsort(-scores, kind="stable")[:k]
        best[at] = scores[truth[at]]

    def check(answer: Array) -> float:
        return float((answer[checked] == truth).all(axis=1).mean())

    def is_close(answer: Array) -> bool:
        found = answer[checked]
        one_each = all(len(set(row)) == k for row in found.tolist())
        in_range = found.min() >= 0 and found.max() < n and not (found == checked[:, None]).any()
        if not (one_each and in_range):
            return False
        products = np.einsum("ikd,id->ik", wide[found], wide[checked])
        scale = lengths[found] * lengths[checked][:, None]
        cosines = np.divide(products, scale, out=np.zeros_like(products), where=scale > 0)
        # the item and the one it replaced may both be off
        return bool(abs(cosines - best).max() <= 2 * float32_error(d))

    moved = 4.0 * n * d + 12.0 * n * k
    inputs = {"rows": rows, "queries": queries}
    return Job("search", inputs, k, 2.0 * n * n * d, moved, float(n) * n, check, is_close)


def sparse_jobs(X: Any, k: int) -> list[Job]:
    """X A, X'(X A), and the neighbours of the items."""
    X = sp.csr_array(X, dtype=np.float32)
    n, p = X.shape
    k = validation.as_count("k", k, high=p - 1)
    A = np.random.default_rng(0).standard_normal((p, COLUMNS)).astype(np.float32)
    matrix = {
        "data": X.data, "indices": X.indices, "indptr": X.indptr, "shape": np.array(X.shape)
    }  # fmt: skip
    wide = X.astype(np.float64)
    product = wide @ A

    # roundings of a float32 sum of m terms add up like a random walk; 4 standard deviations
    counts = np.diff(X.indptr), np.bincount(X.indices, minlength=p)
    walk = 4 * 2.0**-24 * np.sqrt(max(int(count.max(initial=1)) for count in counts))

    def is_within(truth: Array) -> Callable[[Array], bool]:
        return lambda answer: bool(abs(answer - truth).max() <= 2 * walk * abs(truth).max())

    columns = np.linspace(0, p - 1, min(p, CHECKED_ROWS)).astype(int)
    lengths = np.sqrt(np.asarray(wide.multiply(wide).sum(axis=0)).ravel())
    scale = np.where(lengths > 0, lengths, 1)
    cosines = (wide.T @ wide[:, columns].toarray()) / scale[:, None] / scale[columns]
    cosines[columns, np.arange(len(columns))] = -np.inf
    best = -np.sort(-cosines, axis=0)[:k].T

    def same_scores(answer: Array) -> float:
        return float((abs(answer[columns] - best).max(axis=1) <= 1e-6).mean())

    def close_scores(answer: Array) -> bool:
        return bool(abs(answer[columns] - best).max() <= 1e-6 + walk)

    products = is_within(product), is_within(wide.T @ product)

    read = 8.0 * X.nnz + 8.0 * n
    operations = 2.0 * X.nnz * COLUMNS
    met = float((counts[0].astype(np.float64) ** 2).sum())
    given = {**matrix, "A": A}
    return [
        Job("product", given, k, operations, read + 4.0 * COLUMNS * (n + p),
             float(X.nnz), _as_share(products[0]), products[0]),
        Job("gram", given, k, 2 * operations, read + 8.0 * COLUMNS * p,
             2.0 * X.nnz, _as_share(products[1]), products[1]),
        Job("items", matrix, k, 2 * met, read + 12.0 * p * k, float(p) * p, same_scores,
            close_scores),
    ]  # fmt: skip


def _as_share(is_right: Callable[[Array], bool]) -> Callable[[Array], float]:
    return lambda answer: float(is_right(answer))
