"""Two versions of a model: which change of neighbours is mere parametrisation, and which is real.

A model that is trained again may come back with the same predictions in other coordinates. Its
cosines and its neighbours differ then, and nothing has happened. So the old items are first taken
into the coordinates of the new ones, by the best rescaling and by the best linear map; what still
differs is real.
"""

import functools
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastcos import metrics, validation
from fastcos.auditing import certificates, checks
from fastcos.auditing.canonical import query_metric
from fastcos.auditing.robustness import standard_error
from fastcos.metrics.list_overlap import jaccard_per_query
from fastcos.metrics.spectrum import triangle

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

# items whose lists are compared, rows of a product, and how many of the most changed are named
_LISTED_ROWS, _BLOCK, _MOST_CHANGED = 2000, 65_536, 20
# directions below this share of the largest are rounding of float32 factors
_ROUNDING = 1e-6


class VersionChange(NamedTuple):
    """How the neighbours of two versions of the same items agree.

    Attributes
    ----------
    n_items, n_listed, k : int
        Items, those whose lists were compared, and neighbours.
    kept : float
        Share of the k nearest of the new version that were so in the old one, mean over the listed
        items.
    after_rescaling : float or None
        The same once the old columns have the scales that fit the new ones best, and at least kept:
        no rescaling is one too. None where the widths differ.
    after_linear : float
        The same once the old items went through the linear map that fits the new ones best, and at
        least the two before. 1 where the new version is a linear image of the old one: what is
        missing from 1 is a real change.
    kept_error, linear_error : float
        Standard errors of kept and after_linear, over items.
    of_new, of_old : float
        Share of the sum of squares of the new items that is a linear image of the old ones, and of
        the old that is one of the new. of_old below of_new: the new version holds less.
    condition : float
        Of that linear map, on the directions that the old items fill: no Fisher z moved by more
        than its logarithm through the map alone.
    query_metric : float or None
        Share kept by the query metric of each version's own users, which no linear change touches;
        None without users of both.
    predictions : float or None
        Relative change of the predictions, in Frobenius norm; None unless both versions have the
        same number of users.
    most_changed : ndarray (m,), int64
        Listed items whose neighbours really changed most, most first; items that kept all theirs
        are not among them.
    """

    n_items: int
    n_listed: int
    k: int
    kept: float
    after_rescaling: float | None
    after_linear: float
    kept_error: float
    linear_error: float
    of_new: float
    of_old: float
    condition: float
    query_metric: float | None
    predictions: float | None
    most_changed: Integers

    @property
    def verdict(self) -> str:
        """The change in one sentence."""
        changed, real = 1 - self.kept, 1 - self.after_linear
        return (
            f"{changed:.1%} of the {self.k} nearest neighbours are not those of the old version: "
            f"{changed - real:.1%} by a mere linear change of coordinates, {real:.1%} really."
        )


def version_change(
    items: Any,
    old_items: Any,
    *,
    users: Any = None,
    old_users: Any = None,
    k: int = 10,
    seed: int = 0,
    n_threads: int | None = None,
) -> VersionChange:
    """Split the change of neighbours between two versions into parametrisation and real change.

    Parameters
    ----------
    items, old_items : array_like (p, d), (p, d')
        Item embeddings of the new and the old version; row i of both is the same item.
    users, old_users : array_like (n, d), (n', d'), optional
        User or query embeddings of the two versions. With both, neighbours by the query metric are
        compared as well, and with n = n' (the same users) predictions.
    k : int
        Neighbours per item.
    seed : int
        Seed of the draw of at most 2,000 items whose lists are compared.
    n_threads : int, optional
        Default: the setting ``num_threads``.

    Returns
    -------
    VersionChange
        kept, after_rescaling, after_linear and more; ``verdict`` says it in a sentence.

    Raises
    ------
    ValueError
        Another number of items; NaN or infinity; users of another width than their items; fewer
        than k + 1 items that are zero rows in neither version.

    Notes
    -----
    Least squares over all items that are zero in neither version. Neighbours are searched among
    those. The map has d' d free numbers: with few items for its size it explains too much.

    Examples
    --------
    >>> import numpy as np
    >>> from fastcos.auditing import version_change
    >>> rng = np.random.default_rng(0)
    >>> old = rng.standard_normal((300, 4))
    >>> found = version_change(old * [1, 2, 4, 8], old, k=5)
    >>> found.kept < 0.7, found.after_rescaling, found.after_linear
    (True, 1.0, 1.0)
    """
    new, old = validation.as_rows("items", items), validation.as_rows("old_items", old_items)
    validation.check_length("old_items", old, len(new), "items")
    k = validation.as_count("k", k, high=len(new) - 1)
    generator = validation.as_generator("seed", seed)
    queries = _as_users("users", users, new, "items")
    old_queries = _as_users("old_users", old_users, old, "old_items")
    directed = np.flatnonzero(new.any(axis=1) & old.any(axis=1))
    checks.as_many("items", len(directed), k + 1)
    new, old = new[directed], old[directed]
    listed = np.sort(generator.choice(len(new), min(_LISTED_ROWS, len(new)), replace=False))
    lists = functools.partial(_lists, k=k, listed=listed, n_threads=n_threads)

    linear, condition, of_new = _linear_image(old, new)
    of_old = _linear_image(new, old)[2]
    wanted = lists(new)
    before, after = _kept(lists(old), wanted), _kept(lists(linear), wanted)
    kept, mapped = float(before.mean()), float(after.mean())
    rescaled = None
    if old.shape[1] == new.shape[1]:
        rescaled = max(kept, metrics.overlap_at_k(lists(old * _best_scales(old, new)), wanted))
    by_users = predictions = None
    if queries is not None and old_queries is not None:
        by_users = metrics.overlap_at_k(
            lists(query_metric(queries).transform(new)),
            lists(query_metric(old_queries).transform(old)),
        )
        if len(queries) == len(old_queries):
            predictions = metrics.model_change(old_queries, old, queries, new).relative
    order = np.argsort(after, kind="stable")
    return VersionChange(
        n_items=len(new),
        n_listed=len(listed),
        k=k,
        kept=kept,
        after_rescaling=rescaled,
        after_linear=max(kept, rescaled or 0.0, mapped),
        kept_error=standard_error(before, len(new)),
        linear_error=standard_error(after, len(new)),
        of_new=of_new,
        of_old=of_old,
        condition=condition,
        query_metric=by_users,
        predictions=predictions,
        most_changed=directed[listed[order[after[order] < 1][:_MOST_CHANGED]]],
    )


def _lists(rows: Any, k: int, listed: Integers, n_threads: int | None) -> Integers:
    """The k nearest of each listed item among the others."""
    given = validation.as_rows("items", rows)
    side, _, _ = certificates.as_edges(given, k, 1.0, listed)
    return certificates.nearest(side, k, n_threads).indices


def _kept(first: Integers, second: Integers) -> Floats:
    """Share of each list that the other one holds too, from the Jaccard index."""
    jaccard = jaccard_per_query(first, second)
    return 2 * jaccard / (1 + jaccard)


def _as_users(name: str, given: Any, rows: validation.Rows, of: str) -> validation.Rows | None:
    if given is None:
        return None
    users = validation.as_rows(name, given)
    validation.check_same_width(name, users, of, rows)
    return users


def _linear_image(source: validation.Rows, target: validation.Rows) -> tuple[Floats, float, float]:
    """Source through the linear map that fits target best, its condition, and the share it fits."""
    # the triangle of (source, target) holds all that least squares needs
    corner = triangle(np.concatenate([source, target], axis=1, dtype=np.float64))
    d = source.shape[1]
    left, right = corner[:, :d], corner[:, d:]
    U, s, Vt = np.linalg.svd(left, full_matrices=False)
    kept = s > _ROUNDING * s[0]
    inner = U[:, kept].T @ right
    G = Vt[kept].T @ (inner / s[kept][:, np.newaxis])
    # of the map on the directions that source fills: both sides without the null space
    values = np.linalg.svd(Vt[kept] @ G, compute_uv=False)
    least = values[min(Vt[kept].shape[0], G.shape[1]) - 1]
    condition = float(values[0] / least) if least > 0 else float("inf")
    share = float(np.square(inner).sum() / np.square(right).sum())
    return _product(source, G), condition, min(share, 1.0)


def _product(rows: validation.Rows, G: Floats) -> Floats:
    """Rows @ G in float64, in blocks of rows."""
    out = np.empty((len(rows), G.shape[1]))
    for first in range(0, len(rows), _BLOCK):
        out[first : first + _BLOCK] = rows[first : first + _BLOCK].astype(np.float64) @ G
    return out


def _best_scales(old: validation.Rows, new: validation.Rows) -> Floats:
    """The scale of every old column that fits the new one best; 1 where there is none."""
    products = np.einsum("ij,ij->j", old, new, dtype=np.float64)
    squares = np.einsum("ij,ij->j", old, old, dtype=np.float64)
    scales = np.divide(products, squares, out=np.ones(len(squares)), where=squares > 0)
    return np.where(scales != 0, scales, 1.0)
