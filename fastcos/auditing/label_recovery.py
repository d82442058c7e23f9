"""How far the recovery of labels moves when a rescaling is chosen for it, or against it."""

from typing import Any

import numpy as np
import numpy.typing as npt

from fastcos import metrics, validation
from fastcos.auditing import checks
from fastcos.auditing.report import Floats, Recovery

# items on which a rescaling is searched, evaluations of a search, bins of its scores
_SEARCHED_ITEMS, _STEPS, _BINS = 300, 16, 256


def recovery_range(items: Any, labels: Any, condition: float = 2.0, *, seed: int = 0) -> Recovery:
    """The least and the greatest pairwise AUC of labels found over rescalings of this condition.

    A search, not a bound: the true range is at least as wide. Both D are searched on at most 300
    items drawn at random and judged on all of them.

    Parameters
    ----------
    items : array_like (p, d), float32 or float64
        Item embeddings. Zero rows are left out.
    labels : array_like (p,), int or str
        Cluster of every item; None for an item without, which is left out.
    condition : float
        Largest entry of D over its smallest, at most.
    seed : int
        Seed of the draw.

    Returns
    -------
    Recovery
        condition, n_items, given, low, high, low_rescaling, high_rescaling.

    Raises
    ------
    ValueError
        NaN or infinity; labels of another length, or fewer than two of them; a condition below 1.

    Notes
    -----
    Gradient ascent of the AUC in ln w, w = D^-2, in the box of that condition: a same-label pair
    counts with the density of the other pairs at its cosine, and the other way about. O(m² d) a
    step, m = 300.

    Examples
    --------
    >>> import numpy as np
    >>> from fastcos.auditing import recovery_range
    >>> rng = np.random.default_rng(0)
    >>> labels = np.arange(200) % 2
    >>> items = rng.standard_normal((200, 4))
    >>> items[:, 0] += 2 * labels - 1
    >>> found = recovery_range(items, labels, 3.0)
    >>> found.low < found.given < found.high
    True
    >>> int(found.high_rescaling.argmin())  # the dimension that knows the labels weighs most
    0
    """
    rows = validation.as_rows("items", items)
    condition = checks.as_condition("condition", condition)
    codes = validation.as_partial_labels("labels", labels, len(rows))
    generator = validation.as_generator("seed", seed)
    kept = np.flatnonzero(rows.any(axis=1) & (codes >= 0))
    return searched_range(rows[kept], codes[kept], condition, generator)


def searched_range(
    rows: validation.Rows,
    codes: npt.NDArray[np.int64],
    condition: float,
    generator: np.random.Generator,
) -> Recovery:
    """The same for rows that are not zero and all have a label."""
    drawn = np.sort(generator.choice(len(rows), min(_SEARCHED_ITEMS, len(rows)), replace=False))
    X = rows[drawn].astype(np.float64)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    first, second = np.triu_indices(len(drawn), 1)
    same = codes[drawn][first] == codes[drawn][second]

    def judged(D: Floats) -> float:
        return metrics.pair_auc((rows / D).astype(rows.dtype), codes, exact=False).value

    still = np.ones(rows.shape[1])
    ends = [(judged(still), still)]
    if same.any() and not same.all():
        for sign in (1.0, -1.0):
            D = _searched(X, (first, second), same, sign, 2 * np.log(condition))
            ends.append((judged(D), D))
    (low, low_D), (high, high_D) = (pick(ends, key=lambda end: end[0]) for pick in (min, max))
    return Recovery(condition, len(rows), ends[0][0], low, high, low_D, high_D)


def _searched(
    X: Floats,
    pairs: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]],
    same: npt.NDArray[np.bool_],
    sign: float,
    width: float,
) -> Floats:
    """D with the largest sign * AUC met on the way up, ln w from 0 to width."""
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
            # of c by ln w_l: u_l v_l - c (u_l² + v_l²) / 2, summed with weights A
            gradient = sign * (np.einsum("il,il->l", U, A @ U) - (A * C).sum(axis=1) @ np.square(U))
        else:
            step /= 2
        largest = np.abs(gradient).max()
        if largest == 0 or step < 1e-3 * width or width == 0:
            break
        log_w = np.clip(best + 2 * step * gradient / largest, 0, width)
    D: Floats = np.exp((best.min() - best) / 2)
    return D


def _auc_and_slopes(scores: Floats, same: npt.NDArray[np.bool_]) -> tuple[float, Floats]:
    """AUC of scores in bins, and its derivative by every score."""
    places = np.clip(((scores + 1) * (_BINS / 2)).astype(np.int64), 0, _BINS - 1)
    counts = [np.bincount(places[kind], minlength=_BINS) for kind in (~same, same)]
    other, own = (count / count.sum() for count in counts)
    auc = float(own @ (np.cumsum(other) - other / 2))
    # densities over three bins: single ones are too ragged to climb
    other, own = (np.convolve(share, np.ones(3) / 3, mode="same") for share in (other, own))
    slopes = np.where(same, other[places] / same.sum(), -own[places] / (~same).sum())
    return auc, slopes
