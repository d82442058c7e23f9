"""Model diff: how much of the change between two versions of a model is only a change of basis.

If a model is trained again, it may make the same predictions with embeddings that are expressed in
different coordinates. The cosines and the neighbours of the items may differ although the
predictions of the model have not changed. ``diff_models`` therefore maps the old items to the
coordinates of the new items: once by the best rescaling, and once by the best linear map. After the
rescaling, and again after the linear map, the function compares the neighbours of the mapped old
items with the neighbours of the new items. If neighbours still differ after the mapping, the
difference is a real change of the model.
"""

from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from fastcos import metrics, validation
from fastcos.auditing import neighbor_edges
from fastcos.metrics.list_overlap import overlap_per_query
from fastcos.reports import Estimate, Record, Section, Table, as_table
from fastcos.similarity.canonical import query_metric
from fastcos.similarity.moments import triangle
from fastcos.similarity.row_maps import map_rows
from fastcos.validation import Floats, Integers

# Number of items whose lists of neighbours are compared. With 2,000 items, the standard error of a
# mean overlap is at most 0.012.
_LISTED_ROWS = 2000
# Two-sided 95 % quantile of the standard normal distribution.
_NORMAL_95 = NormalDist().inv_cdf(0.975)
# Largest number of items in most_changed.
_MOST_CHANGED = 20
# Singular values below _ROUNDING times the largest singular value count as 0, because they are
# rounding errors of float32 factors.
_ROUNDING = 1e-6


@as_table
@dataclass(frozen=True)
class ModelDiff(Record):
    """Overlap of the neighbours of the same items in two versions of a model.

    Attributes
    ----------
    n_items, n_listed, k : int
        Number of items, number of listed items, and number of neighbours per list. The listed items
        are those whose neighbour lists were compared.
    overlap : float
        Share of the k nearest neighbours in the new version that are also among the k nearest in
        the old version; mean over the listed items.
    overlap_after_rescaling : float or None
        The overlap after a rescaling of the old items. The rescaling multiplies each column of the
        old items by a factor, so that the column is as near as possible to the same column of the
        new items. ``overlap_after_rescaling`` is None if the two versions have different numbers of
        columns.
    overlap_after_linear_map : float
        The overlap after the old items have been mapped to the new items by the best linear map.
        ``overlap_after_linear_map`` is 1 if the new items are a linear image of the old items. The
        map is fitted to vectors and not to lists of neighbours, so ``overlap_after_linear_map`` may
        be lower than ``overlap``.
    unchanged : float
        The largest of ``overlap``, ``overlap_after_rescaling`` and ``overlap_after_linear_map``.
        The share of neighbours whose change cannot be explained by a change of basis is
        1 - ``unchanged``.
    overlap_error, linear_error : float
        Standard errors of ``overlap`` and ``overlap_after_linear_map``, which are means over items.
    explained_new : float
        Share of the squared norm of the new items that is explained by the best linear map of the
        old items. The share is 1 if the map reproduces the new items exactly.
    explained_old : float
        Share of the squared norm of the old items that is explained by the best linear map of the
        new items. If ``explained_old`` is lower than ``explained_new``, the new version contains
        less information than the old version.
    condition : float
        Condition number of the linear map, restricted to the subspace that the old items span. The
        linear map changes Fisher's z of a cosine by at most ln(``condition``).
    query_metric_overlap : float or None
        Overlap of the neighbours if the items of each version are compared by the query metric of
        this version; None if the users of a version were not passed. A change of basis does not
        change the query metric of a version.
    prediction_change : float or None
        Relative change of the predictions in Frobenius norm. ``prediction_change`` is None if the
        users of a version were not passed, or if the two versions have different numbers of users.
    most_changed : ndarray (m,), int64
        Row numbers of the listed items whose neighbours in the two versions differ most after the
        linear map. The items are in descending order of the difference. Items with equal lists in
        both versions are left out.
    """

    n_items: int
    n_listed: int
    k: int
    overlap: float
    overlap_after_rescaling: float | None
    overlap_after_linear_map: float
    unchanged: float
    overlap_error: float
    linear_error: float
    explained_new: float
    explained_old: float
    condition: float
    query_metric_overlap: float | None
    prediction_change: float | None
    most_changed: Integers

    @property
    def verdict(self) -> str:
        """The share of changed neighbours, in two sentences.

        The verdict contains an interval if only a sample of the items was compared.
        """
        changed, real, half = 1 - self.overlap, 1 - self.unchanged, _NORMAL_95 * self.overlap_error
        interval = ""
        if half > 0:
            interval = f" (95 % interval {max(0, changed - half):.1%} to {changed + half:.1%})"
        return (
            f"{changed:.1%} of the {self.k} nearest neighbours were not among the {self.k} nearest "
            f"in the old version{interval}. The differences have two causes: {changed - real:.1%} "
            f"of the neighbours differ because of a linear change of basis, and {real:.1%} because "
            "of a real change."
        )

    def sections(self) -> tuple[Section]:
        """Return the section with the overlaps and the statistics of the linear map."""
        rows = [
            ("unchanged", self.overlap, self.overlap_error),
            ("columns rescaled to fit", self.overlap_after_rescaling, 0.0),
            ("mapped linearly to fit", self.overlap_after_linear_map, self.linear_error),
            ("query metric of each version", self.query_metric_overlap, 0.0),
        ]
        estimates = [
            (name, Estimate(share, error)) for name, share, error in rows if share is not None
        ]
        title = (
            f"Share of the {self.k} nearest neighbours that are also among the {self.k} nearest "
            f"in the old version, averaged over {self.n_listed:,} items"
        )
        facts = {
            "how well a linear map of the old items reproduces the new items (share of the squared "
            "norm)": self.explained_new,
            "how well a linear map of the new items reproduces the old items (share of the squared "
            "norm)": self.explained_old,
            "condition of the linear map from the old to the new items": self.condition,
            "relative change of the predictions": self.prediction_change,
        }
        table = Table(title, ("old version", "overlap"), estimates)
        return (Section("Compared with the old version", (), [table], facts, verdict=self.verdict),)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain Python values, with the verdict."""
        return {"verdict": self.verdict, **super().to_dict()}


def diff_models(
    items: Any,
    old_items: Any,
    *,
    users: Any = None,
    old_users: Any = None,
    k: int = 10,
    n_threads: int | None = None,
    random_state: int | np.random.Generator = 0,
) -> ModelDiff:
    """Measure how far a change of basis explains that the neighbours differ between two versions.

    Parameters
    ----------
    items, old_items : array_like (p, d), (p, d')
        Item embeddings of the new and the old version; row i of both is the same item.
    users, old_users : array_like (n, d), (n', d'), optional
        User or query embeddings of the two versions. If ``users`` and ``old_users`` are passed, the
        function also compares two further lists of neighbours per item. One of these lists is
        computed with the query metric of the new version, and the other list with the query metric
        of the old version. If both versions have the same number of users, the function also
        compares the predictions. In this case, row i of ``users`` and row i of ``old_users`` must
        be the same user.
    k : int
        Number of neighbours per item.
    n_threads : int, optional
        As in :func:`fastcos.top_k`.
    random_state : int or Generator
        Seed for drawing the items whose lists are compared; at most 2,000 items are drawn.

    Returns
    -------
    ModelDiff
        The overlaps and the statistics of the linear map; ``verdict`` summarises the result in a
        sentence.

    Notes
    -----
    The rescaling and the linear map are fitted by least squares to all items that are nonzero in
    both versions. Items that are zero in either version are left out of the neighbour lists. The
    arrays are read into memory as a whole. A linear map from d' to d columns has d' x d parameters,
    so it overfits if there are few items.

    Examples
    --------
    >>> import numpy as np
    >>> from fastcos.auditing import diff_models
    >>> rng = np.random.default_rng(0)
    >>> old = rng.standard_normal((300, 4))
    >>> diff = diff_models(old * [1, 2, 4, 8], old, k=5)
    >>> diff.overlap < 0.7, diff.overlap_after_rescaling, diff.overlap_after_linear_map
    (True, 1.0, 1.0)
    """
    new_rows, old_rows = (
        validation.as_rows("items", items),
        validation.as_rows("old_items", old_items),
    )
    validation.check_length("old_items", old_rows, len(new_rows), "items")
    k = validation.as_count("k", k, high=len(new_rows) - 1)
    generator = validation.as_generator("random_state", random_state)
    if users is not None:
        users = validation.as_rows("users", users)
        validation.check_same_width("users", users, "items", new_rows)
    if old_users is not None:
        old_users = validation.as_rows("old_users", old_users)
        validation.check_same_width("old_users", old_users, "old_items", old_rows)
    nonzero_rows = np.flatnonzero(new_rows.any(axis=1) & old_rows.any(axis=1))
    validation.check_enough("items", len(nonzero_rows), k + 1, "rows that are not zero")
    new_rows, old_rows = new_rows[nonzero_rows], old_rows[nonzero_rows]
    listed_rows = np.sort(
        generator.choice(len(new_rows), min(_LISTED_ROWS, len(new_rows)), replace=False)
    )

    def lists(rows: Any) -> Integers:
        """Return the k nearest neighbours of each listed item."""
        sample, _, _ = neighbor_edges.as_edges(rows, k, 1.0, listed_rows, n_threads=n_threads)
        return neighbor_edges.nearest_items(sample, k).indices

    mapped_rows, condition, explained_new = _fit_linear_map(old_rows, new_rows)
    explained_old = _fit_linear_map(new_rows, old_rows)[2]
    new_lists = lists(new_rows)
    overlaps = overlap_per_query(lists(old_rows), new_lists)
    mapped_overlaps = overlap_per_query(lists(mapped_rows), new_lists)
    overlap = float(overlaps.mean())
    rescaled_overlap = metric_overlap = prediction_change = None
    if old_rows.shape[1] == new_rows.shape[1]:
        rescaled_overlap = metrics.overlap_at_k(
            lists(old_rows * _fit_scales(old_rows, new_rows)), new_lists
        )
    if users is not None and old_users is not None:
        metric_overlap = metrics.overlap_at_k(
            lists(query_metric(users).transform(new_rows)),
            lists(query_metric(old_users).transform(old_rows)),
        )
        if len(users) == len(old_users):
            prediction_change = metrics.model_change(old_users, old_rows, users, new_rows).relative
    order = np.argsort(mapped_overlaps, kind="stable")
    return ModelDiff(
        n_items=len(new_rows),
        n_listed=len(listed_rows),
        k=k,
        overlap=overlap,
        overlap_after_rescaling=rescaled_overlap,
        overlap_after_linear_map=float(mapped_overlaps.mean()),
        unchanged=max(overlap, rescaled_overlap or 0.0, float(mapped_overlaps.mean())),
        overlap_error=neighbor_edges.standard_error(overlaps, len(new_rows)),
        linear_error=neighbor_edges.standard_error(mapped_overlaps, len(new_rows)),
        explained_new=explained_new,
        explained_old=explained_old,
        condition=condition,
        query_metric_overlap=metric_overlap,
        prediction_change=prediction_change,
        most_changed=nonzero_rows[listed_rows[order[mapped_overlaps[order] < 1][:_MOST_CHANGED]]],
    )


def _fit_linear_map(
    source: validation.Rows, target: validation.Rows
) -> tuple[Floats, float, float]:
    """Fit a linear map from ``source`` to ``target`` by least squares.

    Return the image of ``source`` under the map, the condition number of the map, and the R² of the
    map. R² is the share of the squared norm of ``target`` that the map explains.
    """
    # The least squares solution can be computed from the triangular factor of (source, target).
    R = triangle(np.concatenate([source, target], axis=1, dtype=np.float64))
    d = source.shape[1]
    R_source, R_target = R[:, :d], R[:, d:]
    U, s, Vt = np.linalg.svd(R_source, full_matrices=False)
    is_nonzero = s > _ROUNDING * s[0]
    U, s, Vt = U[:, is_nonzero], s[is_nonzero], Vt[is_nonzero]
    inner = U.T @ R_target
    G = Vt.T @ (inner / s[:, np.newaxis])
    # The map is 0 on all directions that are orthogonal to the source rows. The condition number of
    # the map is therefore computed only on the span of the source rows.
    values = np.linalg.svd(Vt @ G, compute_uv=False)
    smallest = values[min(Vt.shape[0], G.shape[1]) - 1]
    condition = float(values[0] / smallest) if smallest > 0 else float("inf")
    share = float(np.square(inner).sum() / np.square(R_target).sum())
    return map_rows(source, G), condition, min(share, 1.0)


def _fit_scales(old: validation.Rows, new: validation.Rows) -> Floats:
    """For each column, return the factor that best scales the old column to match the new column.

    If an old column is zero or orthogonal to the new column, its factor is 1.
    """
    products = np.einsum("ij,ij->j", old, new, dtype=np.float64)
    squares = np.einsum("ij,ij->j", old, old, dtype=np.float64)
    scales = np.divide(products, squares, out=np.ones(len(squares)), where=squares > 0)
    return np.where(scales != 0, scales, 1.0)
