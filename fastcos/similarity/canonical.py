"""Canonical forms: factors and a metric that do not depend on the parametrisation of a model.

A model with users P and items Q predicts P Q'. For every invertible matrix G, the model with users
P G^-T and items Q G makes the same predictions. ``canonicalize`` returns the same factors for all
models with the same predictions. ``query_metric`` derives an inner product of items from the users.
This inner product of two items has the same value in all models with the same predictions.
"""

import warnings
from typing import Any, NamedTuple

import numpy as np

from fastcos import parallel, validation
from fastcos.reports import as_table
from fastcos.similarity.moments import mean_of, triangle
from fastcos.similarity.row_maps import first_copies, map_rows
from fastcos.validation import Floats, Rows


@as_table
class CanonicalFactors(NamedTuple):
    """The balanced factors of the product ``users @ items.T``.

    Attributes
    ----------
    users : ndarray (n, k), float64
    items : ndarray (p, k), float64
        The columns of ``users`` are orthogonal, and so are the columns of ``items``. Column j of
        ``users`` and column j of ``items`` each have the squared norm ``singular_values[j]``.
    singular_values : ndarray (k,), float64
        Singular values of the product, descending. The singular values beyond the rank of the
        product are 0.
    """

    users: Floats
    items: Floats
    singular_values: Floats


@as_table
class QueryMetric(NamedTuple):
    """The inner product x'Cy of items x and y, where C is computed from users or queries.

    Attributes
    ----------
    metric : ndarray (k, k), float64
        The matrix C, which is the covariance of the users. If ``centered`` is false, C is the
        matrix E[uu'] of the second moments of the users u.
    factor : ndarray (k, r), float64
        A matrix L for which LL' = C. The number r of its columns is the rank of C.
    """

    metric: Floats
    factor: Floats

    def transform(self, items: Any) -> Rows:
        """Return ``items @ L``, (p, r), in the dtype of ``items``.

        Any index that compares rows by their cosine can search the result. The inner product of two
        rows of the result is x'Cy for the corresponding items x and y. An item in the null space of
        C becomes a zero row.
        """
        rows = validation.as_rows("items", items)
        validation.check_same_width("items", rows, "metric", self.metric)
        transformed = map_rows(rows, self.factor)
        largest = float(np.abs(transformed).max(initial=0.0))
        if largest > float(np.finfo(rows.dtype).max):
            rule = f"be so small that their products with the metric do not overflow {rows.dtype}"
            got = f"a product of {largest:g}. Scale the items down, or pass them as float64"
            raise ValueError(f"items must {rule}, got {got}")
        return transformed.astype(np.float32) if rows.dtype == np.float32 else transformed


def canonicalize(users: Any, items: Any) -> CanonicalFactors:
    """Return the balanced factors of a model, which depend only on the predictions of the model.

    Of all factors of ``users @ items.T``, the balanced factors have the smallest norm. Training
    with the same weight decay on every user and every item converges to the balanced factors if
    gradient noise is small. Gradient descent from small initial factors also ends near the balanced
    factors. In each column of the items, the entry with the largest magnitude is positive. If
    several singular values are equal, the columns of the factors that belong to these singular
    values are determined only up to a rotation among themselves.

    Parameters
    ----------
    users : array_like (n, k)
    items : array_like (p, k)
        Factors of the model in any parametrisation. The result is float64.

    Returns
    -------
    CanonicalFactors
        ``users``, ``items`` and ``singular_values``. If the product has a rank below k, the columns
        beyond the rank are zero, and a UserWarning is issued.

    Raises
    ------
    ValueError
        users and items have different widths, or contain NaN or infinity.

    Notes
    -----
    The function computes two QR decompositions and the SVD of a k x k matrix, in O((n + p) k²)
    time. The relative error of the result is the machine precision times the condition number of
    the factors.

    Examples
    --------
    >>> import numpy as np
    >>> from fastcos import canonicalize
    >>> P, Q = np.array([[1.0, 2.0], [0.0, 1.0], [2.0, 0.0]]), np.array([[1.0, 1.0], [0.0, 3.0]])
    >>> D = np.diag([5.0, 0.2])
    >>> factors, rescaled = canonicalize(P, Q), canonicalize(P @ D, Q @ np.linalg.inv(D))
    >>> bool(np.allclose(factors.items, rescaled.items)), factors.singular_values.round(3)
    (True, array([7.457, 1.844]))
    """
    users, items = validation.as_array("users", users), validation.as_array("items", items)
    P: Floats = validation.as_rows("users", users, dtype=np.float64).astype(np.float64, copy=False)
    Q: Floats = validation.as_rows("items", items, dtype=np.float64).astype(np.float64, copy=False)
    validation.check_same_width("items", Q, "users", P)
    k = P.shape[1]
    # The columns of users and items are first scaled to similar norms, so that no product overflows
    # or underflows. The scales are powers of two, so that the scaling does not round.
    balance = np.exp2(np.round(0.5 * np.log2(_column_norms(P)) - 0.5 * np.log2(_column_norms(Q))))
    with parallel.blas_lock():
        Q_users, R_users = np.linalg.qr(P / balance)
        Q_items, R_items = np.linalg.qr(Q * balance)
        U, s, Vt = np.linalg.svd(R_users @ R_items.T)
    # A singular value does not count towards the rank if it may be only a rounding error of the
    # inputs.
    scale = np.linalg.norm(P / balance, axis=0) @ np.linalg.norm(Q * balance, axis=0)
    input_dtypes = [side.dtype for side in (users, items) if side.dtype.kind == "f"]
    eps = max(np.finfo(dtype).eps for dtype in (np.dtype(np.float64), *input_dtypes))
    rank = int((s > eps * scale).sum())
    values = np.append(s[:rank], np.zeros(k - rank))
    if rank < k:
        warnings.warn(
            f"users @ items.T has rank {rank}: {k - rank} of {k} columns are zero", stacklevel=2
        )
    canonical_users, canonical_items = np.zeros(P.shape), np.zeros(Q.shape)
    with parallel.blas_lock():
        canonical_users[:, :rank] = Q_users @ (U[:, :rank] * np.sqrt(s[:rank]))
        canonical_items[:, :rank] = Q_items @ (Vt[:rank].T * np.sqrt(s[:rank]))
    # The QR decompositions may round equal rows differently. Each row gets the result of the first
    # row that equals it, so that the scores of equal rows are equal.
    for input_rows, canonical_rows in ((P, canonical_users), (Q, canonical_items)):
        first = first_copies(input_rows)
        if first is not None:
            canonical_rows[:] = canonical_rows[first]
    largest = np.abs(canonical_items).argmax(axis=0)
    signs = np.where(canonical_items[largest, np.arange(k)] < 0, -1.0, 1.0)
    return CanonicalFactors(canonical_users * signs, canonical_items * signs, values)


def query_metric(
    users: Any,
    *,
    centered: bool = True,
    sample: int | None = None,
    random_state: int | np.random.Generator = 0,
) -> QueryMetric:
    """Return an inner product that compares items, computed from the users or from queries.

    After ``transform``, the cosine of two items is the correlation of their predicted scores over
    all users. If ``centered`` is False, the cosine after ``transform`` is the cosine of the
    predicted scores, not their correlation. The cosine after ``transform`` does not depend on the
    norms of the items or on invertible maps of the factors. The query metric exists for every model
    (such as a dual encoder) whose scores are dot products of users and items, or of queries and
    items. The query metric contains only C and its factor L, not the users.

    Some losses, such as BPR or a softmax over items, only compare items with each other. Adding the
    same vector to all items does not change such a loss (theorem 10 in docs/explanation/proofs.md),
    but it changes the cosines after ``transform``. After training with such a loss, search the
    transformed items with the measure "centered_cosine".

    Parameters
    ----------
    users : array_like (n, k)
        User embeddings, or embeddings of queries.
    centered : bool
        If True, C is the covariance of the users; if False, C is the matrix of their second
        moments. The covariance leaves out the mean of the users, which mostly points in the
        direction of popularity.
    sample : int, optional
        Number of users that are drawn without replacement to estimate C. Default: all users.
    random_state : int or Generator
        Seed of the sample.

    Returns
    -------
    QueryMetric
        ``metric``, ``factor`` and ``transform(items)``.

    Raises
    ------
    ValueError
        ``users`` contains NaN, infinity or entries whose squares overflow; or ``sample`` is larger
        than n.

    Notes
    -----
    The factor is computed by a QR decomposition of the users in blocks of rows, in O(n k²) time.
    The QR decomposition is more precise than a factorisation of the Gram matrix, because the
    condition number of the Gram matrix is the square of the condition number of the users.

    If C is estimated from a sample, let Ĉ be the estimate, and let ε = ||C^-½ Ĉ C^-½ - I|| be its
    relative error. If ε < 1, the sample changes Fisher's z = artanh(cosine) of any pair of items by
    at most ½ ln((1 + ε) / (1 - ε)).

    Examples
    --------
    >>> import numpy as np
    >>> from fastcos import query_metric
    >>> rng = np.random.default_rng(0)
    >>> users, items = rng.standard_normal((50, 3)), rng.standard_normal((4, 3))
    >>> rows = query_metric(users).transform(items)
    >>> rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    >>> bool(np.allclose(rows @ rows.T, np.corrcoef(items @ users.T)))
    True
    """
    centered = validation.as_flag("centered", centered)
    P = validation.as_rows("users", users)
    validation.check_scorable("users", P, P)
    n = len(P)
    sampled_rows: Any = slice(None)
    generator = validation.as_generator("random_state", random_state)
    if sample is not None:
        sample = validation.as_count("sample", sample, high=n)
        sampled_rows = np.sort(generator.choice(n, sample, replace=False))
    factor = metric_factor(P[sampled_rows], centered=centered)
    with parallel.blas_lock():
        return QueryMetric(factor @ factor.T, factor)


def metric_factor(users: Rows, *, centered: bool = True) -> Floats:
    """Return a factor L (k, r) of the covariance or of the second moments of the users.

    If ``centered`` is true, LL' is the covariance; otherwise, LL' is the matrix of second moments.
    The number r is the rank of LL', up to float64 rounding errors. Memory-mapped users are read in
    blocks.
    """
    n, k = users.shape
    R = triangle(users, mean_of(users) if centered else None)
    with parallel.blas_lock():
        _, s, Vt = np.linalg.svd(R / np.sqrt(n), full_matrices=False)
    is_nonzero = s > np.finfo(np.float64).eps * max(n, k) * s.max(initial=0.0)
    return np.ascontiguousarray(Vt[is_nonzero].T * s[is_nonzero])


def _column_norms(rows: Floats) -> Floats:
    """Return the norm of each column, or 1 for a zero column."""
    largest = np.abs(rows).max(axis=0)
    largest = np.where(largest > 0, largest, 1.0)
    norms: Floats = largest * np.linalg.norm(rows / largest, axis=0)
    return np.where(norms > 0, norms, 1.0)
