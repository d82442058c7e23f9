"""Alignment: a retrained model in the coordinates of the old one, with the same predictions.

Two trainings of one model differ by an invertible map of the latent space, so that a vector of
yesterday means nothing among those of today. Of all factors of one product, the balanced ones are
unique up to a rotation (``canonicalize``). One more rotation, which solves an orthogonal Procrustes
problem, brings the new items nearest to the old ones: both models then have the same coordinates.

Source: Zielnicki and Hsiao, arXiv:2508.07574; Schönemann, Psychometrika 31 (1966).
"""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastcos import parallel, validation
from fastcos.reports import Record, Section, Table, as_table
from fastcos.search.ids import as_ids
from fastcos.search.index import SimilarityIndex
from fastcos.similarity.canonical import canonicalize
from fastcos.similarity.row_maps import map_rows
from fastcos.similarity.row_transforms import unit_rows
from fastcos.validation import Floats, Integers, Rows

# shared items whose old vectors are searched among the new ones
_SEARCHED = 2000
# relative difference of the Gram matrices below which old factors count as balanced already
_BALANCED = 1e-3
# deviations of Fisher's z, in robust standard deviations, beyond which an item has moved
_MOVED = 4.0
# median absolute deviation of a normal distribution times this is its standard deviation
_NORMAL_MAD = 1.4826
# cosines nearer to 1 differ by rounding
_ROUNDING = 1e-12


@as_table
@dataclass(frozen=True)
class Alignment(Record):
    """A new model in the coordinates of an old one.

    Attributes
    ----------
    items : ndarray (p, w), float64
        The new items in the coordinates of ``old_items``. w is the larger of both widths.
    users : ndarray (n, w), float64, or None
        The new users. ``users @ items.T`` are the predictions of the new model, to rounding.
    old_items, old_users : ndarray (p', w), (n', w), float64, or None
        The old model in these coordinates. They are the arrays as given, padded with zero columns
        to the width w, where ``kept_old`` is true; otherwise its balanced factors.
    map, user_map : ndarray (d, w), float64, or None
        ``items`` is the given items @ map, ``users`` the given users @ user_map: for rows that are
        computed later by the same model.
    kept_old : bool
        Whether the stored vectors of the old model stay valid. False if the old factors were not
        balanced: then store ``old_items`` and ``old_users`` once, or replace all vectors.
    shared, old_shared : ndarray (m,), int64
        Row numbers of the items that both versions have, in ``items`` and in ``old_items``.
    n_new, n_vanished : int
        Items of the new version alone, and of the old one alone.
    residual : float
        Frobenius norm of the difference of the shared items over that of the old ones.
    drift : ndarray (m,), float64
        Length of the difference of each shared item, over the mean norm of the old ones.
    self_cosines : ndarray (m,), float64
        Cosine of each shared item with its old vector; 0 where one of both is zero.
    finds_itself, finds_itself_as_given : float, float or None
        Share of at most 2,000 shared items whose old vector has the new vector of the same item as
        its nearest among all new items, by cosine; with the vectors as they were given, None if
        the widths differ. A row that equals it counts.
    moved : ndarray, int64
        Row numbers in ``items`` of shared items that changed much more than the others: Fisher's z
        of their cosine is more than four robust standard deviations below the median. The one that
        changed most comes first.
    """

    items: Floats
    users: Floats | None
    old_items: Floats
    old_users: Floats | None
    map: Floats
    user_map: Floats | None
    kept_old: bool
    shared: Integers
    old_shared: Integers
    n_new: int
    n_vanished: int
    residual: float
    drift: Floats
    self_cosines: Floats
    finds_itself: float
    finds_itself_as_given: float | None
    moved: Integers

    @property
    def verdict(self) -> str:
        """The result in one sentence."""
        before = ""
        if self.finds_itself_as_given is not None:
            before = f" ({self.finds_itself_as_given:.1%} before the alignment)"
        return (
            f"{self.finds_itself:.1%} of the shared items are nearest to their own old "
            f"vector{before}; the residual is {self.residual:.2g}."
        )

    def sections(self) -> tuple[Section]:
        """The counts and the change of the items."""
        facts: dict[str, float | str | None] = {
            "items in both versions": len(self.shared),
            "items of the new version alone": self.n_new,
            "items of the old version alone": self.n_vanished,
            "residual after the rotation": self.residual,
            "median cosine of an item with its old vector": float(np.median(self.self_cosines)),
            "items that find themselves": self.finds_itself,
            "the same with the vectors as given": self.finds_itself_as_given,
            "items that moved much more than the others": len(self.moved),
            "stored vectors of the old version stay valid": "yes" if self.kept_old else "no",
        }
        return (Section("Aligned to the old version", facts=facts, verdict=self.verdict),)

    def table(self) -> Table:
        """The counts and shares, for ``repr``; the arrays are not printed."""
        (section,) = self.sections()
        rows = [(name, value) for name, value in section.facts.items()]
        return Table(section.title, ("what", "value"), rows, lead=self.verdict)


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
    """Write a retrained model in the coordinates of the old one, without changing a prediction.

    With users, both models are first written in balanced form (:func:`fastcos.canonicalize`). Then
    one rotation brings the new items nearest to the old ones that have the same ids. It acts on
    both sides, so that predictions and cosines stay. Old factors that are balanced already, such
    as the result of an earlier call, are taken as they are, so that stored vectors stay valid.

    Without users, the rows are rotated as they are: every inner product and cosine of the items
    stays. That is right for vectors whose scale is fixed, such as those of
    ``QueryMetric.transform``, or of a model that was trained on the cosine.

    Alignment makes two versions comparable. It does not make the lists of neighbours more alike,
    since a rotation changes no cosine; a warm start of the training does.

    Parameters
    ----------
    items, old_items : array_like (p, d), (p', d')
        Item factors of the new and the old version. The widths may differ.
    users, old_users : array_like (n, d), (n', d'), optional
        User factors of the two versions, both or neither. The users need not be the same.
    ids, old_ids : array_like (p,), (p',), int or str, optional
        Ids of the items, both or neither. Without them row i is the same item in both versions,
        which must then have the same number of items.
    random_state : int or Generator
        Seed of the sample of at most 2,000 items that are searched.

    Returns
    -------
    Alignment
        ``items`` and ``users`` in the old coordinates, the maps to them, and what has changed.

    Raises
    ------
    ValueError
        Users of one version alone; no shared item; repeated ids; sides that are swapped, where
        their lengths or ids show it; NaN or infinity.

    See Also
    --------
    fastcos.canonicalize : the balanced form of one model.
    fastcos.auditing.diff_models : how much of a change is real.
    fastcos.metrics.procrustes : the distance after the best rotation, as one number.

    Notes
    -----
    QR decompositions of both sides and an SVD (d, d'): O((n + p) d²). Where singular values of the
    product are equal, the balanced form is unique up to a rotation only; the alignment fixes it.
    The catalogue is a part of the balance: if a third of the items are new, the residual of one
    and the same model is about 0.05.

    Examples
    --------
    >>> import numpy as np
    >>> import fastcos
    >>> rng = np.random.default_rng(0)
    >>> old = fastcos.canonicalize(rng.standard_normal((90, 4)), rng.standard_normal((70, 4)))
    >>> G = rng.standard_normal((4, 4))  # training again ends in other coordinates
    >>> users, items = old.users @ np.linalg.inv(G).T, old.items @ G
    >>> aligned = fastcos.align(items, old.items, users=users, old_users=old.users)
    >>> bool(np.allclose(aligned.items, old.items)), aligned.finds_itself
    (True, 1.0)
    """
    new, old = validation.as_rows("items", items), validation.as_rows("old_items", old_items)
    if (users is None) != (old_users is None):
        rule = "be given for both versions, or for neither"
        raise ValueError(f"users and old_users must {rule}, got {_given(users, 'users')}")
    if (ids is None) != (old_ids is None):
        rule = "be given for both versions, or for neither"
        raise ValueError(f"ids and old_ids must {rule}, got {_given(ids, 'ids')}")
    generator = validation.as_generator("random_state", random_state)
    new_users = previous_users = None
    if users is not None:
        new_users = validation.as_rows("users", users)
        previous_users = validation.as_rows("old_users", old_users)
        validation.check_same_width("users", new_users, "items", new)
        validation.check_same_width("old_users", previous_users, "old_items", old)
    shared, old_shared = _match(new, old, new_users, previous_users, ids, old_ids)
    kept_old = True
    form_items: Floats = new.astype(np.float64)
    base_items: Floats = old.astype(np.float64)
    form_users = base_users = None
    if new_users is not None and previous_users is not None:
        form_users, form_items = _balanced_factors(new_users, new)
        base_users = previous_users.astype(np.float64)
        kept_old = _is_balanced(base_users, base_items)
        if not kept_old:
            base_users, base_items = _balanced_factors(previous_users, old)
    width = max(form_items.shape[1], base_items.shape[1])
    form_items, base_items = _pad(form_items, width), _pad(base_items, width)
    rotation = _rotation(form_items[shared], base_items[old_shared])
    # map_rows keeps equal rows equal
    aligned = map_rows(form_items, rotation)
    aligned_users = None if form_users is None else map_rows(_pad(form_users, width), rotation)
    before, after = base_items[old_shared], aligned[shared]
    moves = np.linalg.norm(after - before, axis=1)
    norms = np.linalg.norm(before, axis=1)
    cosines = np.einsum("ij,ij->i", unit_rows(after), unit_rows(before))
    size = float(np.linalg.norm(norms))
    drawn = np.sort(generator.choice(len(shared), min(_SEARCHED, len(shared)), replace=False))
    as_given = None
    if new.shape[1] == old.shape[1]:
        as_given = _share_found(new, shared[drawn], old[old_shared[drawn]])
    return Alignment(
        items=aligned,
        users=aligned_users,
        old_items=base_items,
        old_users=None if base_users is None else _pad(base_users, width),
        map=rotation[: new.shape[1]] if new_users is None else _fitted_map(new, aligned),
        user_map=(
            None
            if new_users is None or aligned_users is None
            else _fitted_map(new_users, aligned_users)
        ),
        kept_old=kept_old,
        shared=shared,
        old_shared=old_shared,
        n_new=len(new) - len(shared),
        n_vanished=len(old) - len(shared),
        residual=float(np.linalg.norm(moves)) / size if size > 0 else 0.0,
        drift=moves / norms.mean() if size > 0 else moves,
        self_cosines=np.clip(cosines, -1, 1),
        finds_itself=_share_found(aligned, shared[drawn], before[drawn]),
        finds_itself_as_given=as_given,
        moved=shared[_outliers(cosines, (norms > 0) & after.any(axis=1))],
    )


def _given(value: Any, name: str) -> str:
    return f"only {name}" if value is not None else f"only old_{name}"


def _match(
    items: Rows, old_items: Rows, users: Rows | None, old_users: Rows | None, ids: Any, old_ids: Any
) -> tuple[Integers, Integers]:
    """Row numbers of the shared items in both versions; refuse sides that look swapped."""
    if ids is None:
        if len(items) != len(old_items):
            swapped = (
                users is not None
                and old_users is not None
                and len(items) == len(old_users)
                and len(users) == len(old_items)
            )
            rule = f"have as many rows as old_items ({len(old_items)}) where no ids are given"
            hint = "; users and items of one version are swapped" if swapped else ""
            raise ValueError(f"items must {rule}, got {len(items)}{hint or '; give ids, old_ids'}")
        everything = np.arange(len(items))
        return everything, everything
    new_ids = as_ids("ids", ids, len(items))
    previous_ids = as_ids("old_ids", old_ids, len(old_items))
    if (new_ids.dtype.kind == "U") != (previous_ids.dtype.kind == "U"):
        kinds = f"{new_ids.dtype} and {previous_ids.dtype}"
        raise ValueError(f"ids and old_ids must both be text or both be numbers, got {kinds}")
    _, rows, old_rows = np.intersect1d(new_ids, previous_ids, return_indices=True)
    if not len(rows):
        rule = f"share items with old_ids (such as {previous_ids[0]!r})"
        raise ValueError(f"ids must {rule}, got none of them (such as {new_ids[0]!r})")
    order = np.argsort(rows)
    return rows[order].astype(np.int64), old_rows[order].astype(np.int64)


def _balanced_factors(users: Rows, items: Rows) -> tuple[Floats, Floats]:
    """Users and items in balanced form; a lower rank leaves zero columns, which do no harm here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        form = canonicalize(users, items)
    return form.users, form.items


def _is_balanced(users: Floats, items: Floats) -> bool:
    """Whether both sides have the same Gram matrix: the balanced form up to a rotation."""
    with parallel.blas_lock():
        first, second = users.T @ users, items.T @ items
    size = float(np.linalg.norm(first))
    return float(np.linalg.norm(first - second)) <= _BALANCED * size


def _pad(rows: Floats, width: int) -> Floats:
    return np.pad(rows, ((0, 0), (0, width - rows.shape[1])))


def _rotation(new: Floats, old: Floats) -> Floats:
    """The orthogonal matrix R for which new R is nearest to old in Frobenius norm."""
    with parallel.blas_lock():
        U, _, Vt = np.linalg.svd(new.T @ old)
        rotation: Floats = U @ Vt
    return rotation


def _fitted_map(source: Rows, image: Floats) -> Floats:
    """The matrix for which source times it is image, which is a linear image of source."""
    with parallel.blas_lock():
        return np.asarray(np.linalg.lstsq(source.astype(np.float64), image, rcond=None)[0])


def _share_found(items: Rows, rows: Integers, queries: Rows) -> float:
    """Share of queries whose nearest item is the row of their number, or one that equals it."""
    if not items.any():
        return 0.0
    nearest = SimilarityIndex().fit(items).search(queries, 1).indices[:, 0]
    same = (items[nearest] == items[rows]).all(axis=1) & queries.any(axis=1)
    return float(same.mean())


def _outliers(cosines: Floats, directed: Any) -> Integers:
    """Positions of cosines far below the median, the lowest first."""
    z = np.arctanh(np.clip(cosines, -1 + _ROUNDING, 1 - _ROUNDING))
    if not directed.any():
        return np.zeros(0, np.int64)
    centre = np.median(z[directed])
    spread = _NORMAL_MAD * np.median(np.abs(z[directed] - centre)) + _ROUNDING
    far = np.flatnonzero(directed & (z < centre - _MOVED * spread))
    return far[np.argsort(z[far], kind="stable")]
