"""Alignment: mapping a retrained model to the coordinates of the old model.

The factors of two training runs of one model may differ by an invertible map of the latent space.
In this case, a vector of the old run cannot be compared with vectors of the new run. Alignment
makes the vectors of both runs comparable without changing a prediction. The algorithm first
computes the balanced factors of both models (``canonicalize``), which are unique up to a rotation.
The algorithm then rotates the new model, so that the new items come as near as possible to the old
items. The rotation is the solution of an orthogonal Procrustes problem.

Source: Zielnicki and Hsiao, arXiv:2508.07574; Schönemann, Psychometrika 31 (1966).
"""

import warnings
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fastcos import parallel, validation
from fastcos.reports import Record, Section, Table, as_table
from fastcos.search.index import SimilarityIndex
from fastcos.similarity.canonical import canonicalize
from fastcos.similarity.row_maps import map_rows
from fastcos.similarity.row_transforms import unit_rows
from fastcos.validation import Floats, Integers, Rows
from fastcos.validation.ids import as_ids

# The self-match rates are computed from the items that both versions contain. If there are more
# than _MAX_SEARCHED such items, a random sample of _MAX_SEARCHED of them is used.
_MAX_SEARCHED = 2000
# Old factors count as balanced if their users and items have nearly the same Gram matrix. The
# Frobenius norm of the difference must be at most _BALANCED times the norm of the users' Gram
# matrix.
_BALANCED = 1e-3
# For each item, the cosine between its old and its new vector is converted to Fisher's z. An item
# counts as moved if its z is more than _MOVED robust standard deviations below the median of all
# items.
_MOVED = 4.0
# For a normal distribution, the standard deviation is _NORMAL_MAD times the median absolute
# deviation.
_NORMAL_MAD = 1.4826
# If a cosine differs from 1 by less than _ROUNDING, the difference may be a rounding error.
_ROUNDING = 1e-12


@as_table
@dataclass(frozen=True)
class Alignment(Record):
    """A new model in the coordinates of an old model, and statistics of the change.

    Attributes
    ----------
    items : ndarray (p, w), float64
        The new items in the coordinates of ``old_items``. If the two versions have different
        numbers of columns, w is the larger of the two numbers.
    users : ndarray (n, w), float64, or None
        The new users in the coordinates of ``old_users``; None if no users were passed. The
        predictions ``users @ items.T`` are those of the new model, up to rounding errors.
    old_items, old_users : ndarray (p', w), (n', w), float64, or None
        The old model in the common coordinates. If ``old_vectors_valid`` is true, ``old_items`` and
        ``old_users`` are the input arrays, padded with zero columns to the width w. If
        ``old_vectors_valid`` is false, ``old_items`` and ``old_users`` are the balanced factors of
        the old model.
    map, user_map : ndarray (d, w), float64, or None
        The maps from the coordinates of the new model to the coordinates of the old model. If
        ``new_items`` and ``new_users`` are the inputs, ``items`` equals ``new_items @ map``, and
        ``users`` equals ``new_users @ user_map``. To map rows that the new model computes later,
        multiply item rows by ``map`` and user rows by ``user_map``.
    old_vectors_valid : bool
        Whether stored vectors of the old model remain comparable with the aligned vectors. If the
        old factors were not balanced, the stored vectors are no longer valid. Replace these stored
        vectors once, either with ``old_items`` and ``old_users`` or with the new vectors.
    shared, old_shared : ndarray (m,), int64
        Row numbers of the items that both versions contain. The row numbers in ``shared`` refer to
        ``items``, and the row numbers in ``old_shared`` refer to ``old_items``.
    n_new, n_removed : int
        Number of items that only the new version contains, and number of items that only the old
        version contains.
    residual : float
        Frobenius norm of the difference between the new and the old vectors of the shared items,
        divided by the Frobenius norm of the old vectors.
    drift : ndarray (m,), float64
        Norm of the difference between the new and the old vector of each shared item, divided by
        the mean norm of the old vectors.
    self_cosines : ndarray (m,), float64
        Cosine of each shared item with its old vector; 0 if either vector is zero.
    self_match_rate, self_match_rate_before : float, float or None
        An item matches itself if, of all new vectors, the item's own new vector has the highest
        cosine with the item's old vector. An item also matches itself if several new vectors tie
        for the highest cosine, and its own new vector is one of them. ``self_match_rate`` is the
        fraction of the shared items that match themselves after the alignment, and
        ``self_match_rate_before`` is this fraction before the alignment. The self-match rates are
        computed from at most 2,000 shared items. ``self_match_rate_before`` is None if the two
        versions have different numbers of columns.
    moved : ndarray, int64
        The shared items that changed much more than most shared items, as row numbers in ``items``.
        Let z be Fisher's z of the cosine between the old and the new vector of an item. An item is
        listed if its z is more than four robust standard deviations below the median z of the
        shared items. The item with the lowest cosine comes first.
    """

    items: Floats
    users: Floats | None
    old_items: Floats
    old_users: Floats | None
    map: Floats
    user_map: Floats | None
    old_vectors_valid: bool
    shared: Integers
    old_shared: Integers
    n_new: int
    n_removed: int
    residual: float
    drift: Floats
    self_cosines: Floats
    self_match_rate: float
    self_match_rate_before: float | None
    moved: Integers

    @property
    def verdict(self) -> str:
        """The self-match rate and the residual, in three or four sentences."""
        before = ""
        if self.self_match_rate_before is not None:
            share = f"{self.self_match_rate_before:.1%}"
            before = f" Before the alignment, {share} of the items matched themselves."
        return (
            f"{self.self_match_rate:.1%} of the items in both versions match themselves. An item "
            "matches itself if its own new vector is, of all new vectors, the nearest to its old "
            f"vector.{before} The relative residual of the alignment is {self.residual:.2g}."
        )

    def sections(self) -> tuple[Section]:
        """Return the section with the numbers of items and statistics of how the items changed."""
        facts: dict[str, float | str | None] = {
            "items in both versions": len(self.shared),
            "items only in the new version": self.n_new,
            "items only in the old version": self.n_removed,
            "residual after the rotation": self.residual,
            "median cosine of an item with its old vector": float(np.median(self.self_cosines)),
            "share of items that match themselves": self.self_match_rate,
            "share of items that matched themselves before the alignment": (
                self.self_match_rate_before
            ),
            "items that moved unusually far": len(self.moved),
            "stored vectors of the old version remain valid": (
                "yes" if self.old_vectors_valid else "no"
            ),
        }
        return (Section("Aligned to the old version", facts=facts, verdict=self.verdict),)

    def table(self) -> Table:
        """Return the statistics as a table, for ``repr``; the arrays are not printed."""
        (section,) = self.sections()
        rows = [(name, value) for name, value in section.facts.items()]
        return Table(section.title, ("quantity", "value"), rows, lead=self.verdict)


def align(
    items: Any,
    old_items: Any,
    *,
    users: Any = None,
    old_users: Any = None,
    ids: Any = None,
    old_ids: Any = None,
    random_state: int | np.random.Generator = 0,
) -> Alignment:
    """Map a retrained model to the coordinates of the old model, without changing a prediction.

    If users are passed, the function first computes the balanced factors of both models
    (:func:`fastcos.canonicalize`). The function then rotates the new model, so that the new items
    are as near as possible to the old items with the same ids. The rotation is applied to users and
    items, so it changes neither predictions nor cosines. If the old factors are already balanced,
    as after an earlier call, the function does not change them, and stored vectors of the old model
    remain valid.

    Without users, the function only rotates the new items, which preserves every inner product and
    every cosine of the items. Omit the users if the scale of the dimensions is not arbitrary. For
    example, the scale is not arbitrary if ``QueryMetric.transform`` returned the vectors, or if the
    model was trained on the cosine.

    Alignment makes the vectors of two versions comparable. The rotation does not make the neighbour
    lists of two versions more alike, because a rotation changes no cosine. To make the neighbour
    lists more alike, start the training of the new version from the factors of the old version.

    Parameters
    ----------
    items, old_items : array_like (p, d), (p', d')
        Item factors of the new and of the old version. The two versions may have different numbers
        of columns.
    users, old_users : array_like (n, d), (n', d'), optional
        User factors of the new and of the old version. Pass ``users`` and ``old_users`` together,
        or neither of them. The two versions may have different users.
    ids, old_ids : array_like (p,), (p',), int or str, optional
        Item ids of the new and the old version. Pass ``ids`` and ``old_ids`` together, or neither
        of them. Without ids, both versions must have the same number of items, and row i is the
        same item in both.
    random_state : int or Generator
        Seed of the random sample from which the two self-match rates are computed. The sample
        contains at most 2,000 shared items.

    Returns
    -------
    Alignment
        ``items`` and ``users`` in the old coordinates, the maps to these coordinates, and
        statistics of the change.

    Raises
    ------
    ValueError
        Raised if users or ids are passed for only one version, or if an array contains NaN or
        infinity. Also raised if the items cannot be matched: the versions share no id, an id occurs
        twice, or no ids are passed and the numbers of items differ.

    See Also
    --------
    fastcos.canonicalize : returns the balanced form of one model.
    fastcos.auditing.diff_models : measures how much of the change between two models is real.
    fastcos.metrics.procrustes : returns the distance after the best rotation, as one number.

    Notes
    -----
    The QR decompositions of users and items take O((n + p) d²) time. The function also computes an
    SVD of a d x d' matrix. The balanced factors depend on the set of items. If a third of the items
    are new, the field ``residual`` is therefore about 0.05 for two training runs of the same model.

    Examples
    --------
    >>> import numpy as np
    >>> import fastcos
    >>> rng = np.random.default_rng(0)
    >>> old = fastcos.canonicalize(rng.standard_normal((90, 4)), rng.standard_normal((70, 4)))
    >>> G = rng.standard_normal((4, 4))  # training again ends in other coordinates
    >>> users, items = old.users @ np.linalg.inv(G).T, old.items @ G
    >>> aligned = fastcos.align(items, old.items, users=users, old_users=old.users)
    >>> bool(np.allclose(aligned.items, old.items)), aligned.self_match_rate
    (True, 1.0)
    """
    new_items, previous_items = (
        validation.as_rows("items", items),
        validation.as_rows("old_items", old_items),
    )
    _check_both_versions("users", users, old_users)
    _check_both_versions("ids", ids, old_ids)
    generator = validation.as_generator("random_state", random_state)
    new_users = previous_users = None
    if users is not None:
        new_users = validation.as_rows("users", users)
        previous_users = validation.as_rows("old_users", old_users)
        validation.check_same_width("users", new_users, "items", new_items)
        validation.check_same_width("old_users", previous_users, "old_items", previous_items)
    shared, old_shared = _match(new_items, previous_items, new_users, previous_users, ids, old_ids)
    forms = _comparable_forms(new_items, previous_items, new_users, previous_users)
    rotation = _fit_rotation(forms.items[shared], forms.old_items[old_shared])
    # map_rows maps equal rows to bitwise equal rows, which a BLAS matrix product does not
    # guarantee.
    aligned_items = map_rows(forms.items, rotation)
    aligned_users = None if forms.users is None else map_rows(forms.users, rotation)
    old_vectors, new_vectors = forms.old_items[old_shared], aligned_items[shared]
    differences = np.linalg.norm(new_vectors - old_vectors, axis=1)
    norms = np.linalg.norm(old_vectors, axis=1)
    cosines = np.einsum("ij,ij->i", unit_rows(new_vectors), unit_rows(old_vectors))
    total_norm = float(np.linalg.norm(norms))
    n_searched = min(_MAX_SEARCHED, len(shared))
    sample = np.sort(generator.choice(len(shared), n_searched, replace=False))
    self_match_rate_before = None
    if new_items.shape[1] == previous_items.shape[1]:
        self_match_rate_before = _match_rate(
            new_items, shared[sample], previous_items[old_shared[sample]]
        )
    return Alignment(
        items=aligned_items,
        users=aligned_users,
        old_items=forms.old_items,
        old_users=forms.old_users,
        map=rotation[: new_items.shape[1]]
        if new_users is None
        else _fit_map(new_items, aligned_items),
        user_map=(
            None
            if new_users is None or aligned_users is None
            else _fit_map(new_users, aligned_users)
        ),
        old_vectors_valid=forms.old_vectors_valid,
        shared=shared,
        old_shared=old_shared,
        n_new=len(new_items) - len(shared),
        n_removed=len(previous_items) - len(shared),
        residual=float(np.linalg.norm(differences)) / total_norm if total_norm > 0 else 0.0,
        drift=differences / norms.mean() if total_norm > 0 else differences,
        self_cosines=np.clip(cosines, -1, 1),
        self_match_rate=_match_rate(aligned_items, shared[sample], old_vectors[sample]),
        self_match_rate_before=self_match_rate_before,
        moved=shared[_outliers(cosines, (norms > 0) & new_vectors.any(axis=1))],
    )


def _check_both_versions(name: str, value: Any, old_value: Any) -> None:
    """Raise ValueError if an argument is passed for only one of the two versions."""
    if (value is None) != (old_value is None):
        rule = "be given for both versions, or for neither"
        only = f"only old_{name}" if value is None else f"only {name}"
        raise ValueError(f"{name} and old_{name} must {rule}, got {only}")


class _Forms(NamedTuple):
    """The factors of both versions, as float64 arrays of equal width.

    If there are users, the factors are balanced. ``old_vectors_valid`` is true if the old factors
    are the input arrays; zero columns may have been appended to these arrays.
    """

    items: Floats
    users: Floats | None
    old_items: Floats
    old_users: Floats | None
    old_vectors_valid: bool


def _comparable_forms(
    items: Rows, old_items: Rows, users: Rows | None, old_users: Rows | None
) -> _Forms:
    """Return factors of both versions of a model.

    If the predictions agree, a rotation maps the factors of one version to the factors of the other
    version.
    """
    width = max(items.shape[1], old_items.shape[1])
    if users is None or old_users is None:
        rows, old_rows = (_pad(side.astype(np.float64), width) for side in (items, old_items))
        return _Forms(rows, None, old_rows, None, old_vectors_valid=True)
    new_factors = _balanced_factors(users, items)
    old_factors: tuple[Floats, Floats] = (
        old_users.astype(np.float64), old_items.astype(np.float64)
    )  # fmt: skip
    old_vectors_valid = _is_balanced(*old_factors)
    if not old_vectors_valid:
        old_factors = _balanced_factors(old_users, old_items)
    padded_users, padded_items = (_pad(side, width) for side in new_factors)
    padded_old_users, padded_old_items = (_pad(side, width) for side in old_factors)
    return _Forms(padded_items, padded_users, padded_old_items, padded_old_users, old_vectors_valid)


def _match(
    items: Rows, old_items: Rows, users: Rows | None, old_users: Rows | None, ids: Any, old_ids: Any
) -> tuple[Integers, Integers]:
    """Return the row numbers of the shared items in the new and in the old version.

    If the items cannot be matched, the function raises ValueError; the message contains a hint if
    users and items seem to be swapped.
    """
    if ids is None:
        if len(items) != len(old_items):
            swapped = (
                users is not None
                and old_users is not None
                and len(items) == len(old_users)
                and len(users) == len(old_items)
            )
            rule = f"have as many rows as old_items ({len(old_items)}), because no ids are given"
            hint = "; the users and the items of one version seem to be swapped" if swapped else ""
            raise ValueError(
                f"items must {rule}, got {len(items)}{hint or '; pass ids and old_ids'}"
            )
        all_rows = np.arange(len(items))
        return all_rows, all_rows
    new_ids = as_ids("ids", ids, len(items))
    previous_ids = as_ids("old_ids", old_ids, len(old_items))
    if (new_ids.dtype.kind == "U") != (previous_ids.dtype.kind == "U"):
        kinds = f"{new_ids.dtype} and {previous_ids.dtype}"
        raise ValueError(f"ids and old_ids must both be text or both be numbers, got {kinds}")
    _, rows, old_rows = np.intersect1d(new_ids, previous_ids, return_indices=True)
    if not len(rows):
        rule = f"contain at least one of the old_ids (such as {previous_ids[0]!r})"
        raise ValueError(
            f"ids must {rule}, got only ids that are not in old_ids (such as {new_ids[0]!r})"
        )
    order = np.argsort(rows)
    return rows[order].astype(np.int64), old_rows[order].astype(np.int64)


def _balanced_factors(users: Rows, items: Rows) -> tuple[Floats, Floats]:
    """Return the balanced factors of users and items.

    If the rank of the product of users and items is below the number of columns, some columns of
    the balanced factors are zero. ``canonicalize`` warns about zero columns; the warning is
    suppressed here, because zero columns do not affect an alignment.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        form = canonicalize(users, items)
    return form.users, form.items


def _is_balanced(users: Floats, items: Floats) -> bool:
    """Return whether users and items have the same Gram matrix.

    Balanced factors have equal Gram matrices. If balanced factors are rotated, their Gram matrices
    remain equal.
    """
    with parallel.blas_lock():
        user_gram, item_gram = users.T @ users, items.T @ items
    size = float(np.linalg.norm(user_gram))
    return float(np.linalg.norm(user_gram - item_gram)) <= _BALANCED * size


def _pad(rows: Floats, width: int) -> Floats:
    """Return the rows, padded with zeros to ``width`` columns."""
    return np.pad(rows, ((0, 0), (0, width - rows.shape[1])))


def _fit_rotation(new: Floats, old: Floats) -> Floats:
    """Return the orthogonal matrix R that minimises the Frobenius norm of ``new @ R - old``."""
    with parallel.blas_lock():
        U, _, Vt = np.linalg.svd(new.T @ old)
        rotation: Floats = U @ Vt
    return rotation


def _fit_map(source: Rows, image: Floats) -> Floats:
    """Return the matrix M that satisfies ``source @ M = image``.

    ``image`` must be a linear image of ``source``.
    """
    with parallel.blas_lock():
        return np.asarray(np.linalg.lstsq(source.astype(np.float64), image, rcond=None)[0])


def _match_rate(items: Rows, rows: Integers, queries: Rows) -> float:
    """Return the share of queries whose nearest item has the expected vector.

    The expected vector of query i is ``items[rows[i]]``.
    """
    if not items.any():
        return 0.0
    nearest_rows = SimilarityIndex().fit(items).search(queries, 1).indices[:, 0]
    is_match = (items[nearest_rows] == items[rows]).all(axis=1) & queries.any(axis=1)
    return float(is_match.mean())


def _outliers(cosines: Floats, is_directed: Any) -> Integers:
    """Return the positions of cosines far below the median, in ascending order of the cosine.

    ``is_directed`` (m,) is true for the pairs in which both vectors are nonzero; only the cosines
    of such pairs are compared.
    """
    z = np.arctanh(np.clip(cosines, -1 + _ROUNDING, 1 - _ROUNDING))
    if not is_directed.any():
        return np.zeros(0, np.int64)
    median = np.median(z[is_directed])
    deviation = _NORMAL_MAD * np.median(np.abs(z[is_directed] - median)) + _ROUNDING
    outliers = np.flatnonzero(is_directed & (z < median - _MOVED * deviation))
    return outliers[np.argsort(z[outliers], kind="stable")]
