"""Label recovery: the range of its AUC over rescalings that are chosen for or against it."""

from typing import Any

import numpy as np
import numpy.typing as npt

from fastcos import metrics, validation
from fastcos.auditing.records import LabelRecovery
from fastcos.metrics.labelled import unit_rows
from fastcos.similarity.cosine_bounds import CONDITION, as_condition
from fastcos.validation import Floats

# items of the search; each step takes O(m² d)
_SEARCHED_ITEMS = 300
# evaluations of the AUC in one search
_STEPS = 16
# bins of the cosines in the search; the result is evaluated with 2^16
_BINS = 256


def label_recovery_range(
    items: Any,
    labels: Any,
    condition: float = CONDITION,
    *,
    n_threads: int | None = None,
    random_state: int | np.random.Generator = 0,
) -> LabelRecovery:
    """The lowest and highest pairwise AUC of labels found over rescalings of this condition.

    A search, not a bound: the true range is at least as wide. Both D are searched on a random
    sample, half of the items but at most 300, and evaluated on the other items.

    Parameters
    ----------
    items : array_like (p, d), float32 or float64
        Item embeddings. Zero rows are left out.
    labels : array_like (p,), int or str
        Cluster of each item; None for an item without a label, which is left out.
    condition : float
        Largest entry of D over its smallest, at most.
    n_threads : int, optional
        As in :func:`fastcos.top_k`.
    random_state : int or Generator
        Seed of the sample.

    Returns
    -------
    LabelRecovery

    Notes
    -----
    Gradient ascent of the AUC in ln w, w = D^-2, in the box of that condition. A pair of one label
    is weighted with the density of the other pairs at its cosine, and vice versa. A step takes
    O(m² d) for m = 300 items.

    Examples
    --------
    >>> import numpy as np
    >>> from fastcos.auditing import label_recovery_range
    >>> rng = np.random.default_rng(0)
    >>> labels = np.arange(200) % 2
    >>> items = rng.standard_normal((200, 4))
    >>> items[:, 0] += 2 * labels - 1
    >>> recovery = label_recovery_range(items, labels, 3.0)
    >>> recovery.low < recovery.given < recovery.high
    True
    >>> int(recovery.high_rescaling.argmin())  # the dimension of the labels has the largest weight
    0
    """
    rows = validation.as_rows("items", items)
    condition = as_condition("condition", condition)
    codes = validation.as_partial_labels("labels", labels, len(rows))
    generator = validation.as_generator("random_state", random_state)
    kept = np.flatnonzero(rows.any(axis=1) & (codes >= 0))
    return search_rescalings(rows[kept], codes[kept], condition, generator, n_threads)


def search_rescalings(
    rows: validation.Rows,
    codes: npt.NDArray[np.int64],
    condition: float,
    generator: np.random.Generator,
    n_threads: int | None = None,
) -> LabelRecovery:
    """Search the range for rows that are not zero and all have a label."""
    order = generator.permutation(len(rows))
    n_searched = min(_SEARCHED_ITEMS, len(rows) // 2)
    drawn, others = np.sort(order[:n_searched]), np.sort(order[n_searched:])
    if not _has_both_pairs(codes[drawn]) or not _has_both_pairs(codes[others]):
        # too few items of a label to hold some out: only the given embeddings are evaluated
        drawn, others = np.arange(0), np.arange(len(rows))
    X = unit_rows(rows[drawn]) if len(drawn) else rows[drawn].astype(np.float64)
    pairs = np.triu_indices(len(drawn), 1)
    same = codes[drawn][pairs[0]] == codes[drawn][pairs[1]]

    def auc(D: Floats) -> float:
        rescaled = (rows[others] / D).astype(rows.dtype)
        return metrics.pair_auc(rescaled, codes[others], exact=False, n_threads=n_threads).value

    identity = np.ones(rows.shape[1])
    ends = [(auc(identity), identity)]
    if len(drawn):
        for sign in (1.0, -1.0):
            D = _ascend(X, pairs, same, sign, 2 * np.log(condition))
            ends.append((auc(D), D))
    (low, low_D), (high, high_D) = (pick(ends, key=lambda end: end[0]) for pick in (min, max))
    return LabelRecovery(condition, len(others), ends[0][0], low, high, low_D, high_D)


def _has_both_pairs(codes: npt.NDArray[np.int64]) -> bool:
    """Whether there are pairs with the same label and pairs with different ones."""
    return 1 < len(np.unique(codes)) < len(codes)


def _ascend(
    X: Floats,
    pairs: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]],
    same: npt.NDArray[np.bool_],
    sign: float,
    width: float,
) -> Floats:
    """The D with the largest sign * AUC of a gradient ascent, ln w from 0 to width."""
    log_w = np.full(X.shape[1], width / 2)
    best, best_value, step = log_w, -np.inf, width / 2
    for _ in range(_STEPS):
        U = X * np.exp(log_w / 2)
        U /= np.linalg.norm(U, axis=1, keepdims=True)
        C = U @ U.T
        value, slopes = _auc_and_slopes(C[pairs], same)
        if sign * value > best_value:
            best, best_value = log_w, sign * value
            A = np.zeros_like(C)
            A[pairs] = slopes
            A += A.T
            # the derivative of c by ln w_l is u_l v_l - c (u_l² + v_l²) / 2; summed with weights A
            gradient = sign * (np.einsum("il,il->l", U, A @ U) - (A * C).sum(axis=1) @ np.square(U))
        else:
            step /= 2
        largest = np.abs(gradient).max()
        if largest == 0 or step < 1e-3 * width or width == 0:
            break
        log_w = np.clip(best + 2 * step * gradient / largest, 0, width)
    return np.exp((best.min() - best) / 2)


def _auc_and_slopes(scores: Floats, same: npt.NDArray[np.bool_]) -> tuple[float, Floats]:
    """AUC of binned scores, and its derivative by each score."""
    places = np.clip(((scores + 1) * (_BINS / 2)).astype(np.int64), 0, _BINS - 1)
    counts = [np.bincount(places[kind], minlength=_BINS) for kind in (~same, same)]
    other, own = (count / count.sum() for count in counts)
    auc = float(own @ (np.cumsum(other) - other / 2))
    # densities over three bins: those of single bins are too noisy for a gradient
    other, own = (np.convolve(share, np.ones(3) / 3, mode="same") for share in (other, own))
    slopes = np.where(same, other[places] / same.sum(), -own[places] / (~same).sum())
    return auc, slopes
