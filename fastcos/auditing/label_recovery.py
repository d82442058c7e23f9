"""The range of the AUC of labels under rescalings, found by a search."""

from typing import Any

import numpy as np
import numpy.typing as npt

from fastcos import metrics, validation
from fastcos.auditing.audit_records import LabelRecovery
from fastcos.metrics.labelled import unit_rows
from fastcos.similarity.cosine_bounds import CONDITION, as_condition
from fastcos.validation import Floats

# Number m of labelled items on which the search evaluates rescalings. Each step of the search takes
# O(m² d) time for items with d dimensions.
_SEARCHED_ITEMS = 300
# Number of evaluations of the AUC in one search.
_STEPS = 16
# Number of bins for the cosines during the search; the AUCs in the result are computed with 2^16
# bins.
_BINS = 256


def label_recovery_range(
    items: Any,
    labels: Any,
    condition: float = CONDITION,
    *,
    n_threads: int | None = None,
    random_state: int | np.random.Generator = 0,
) -> LabelRecovery:
    """Search for the rescalings D with the lowest and the highest pairwise AUC of labels.

    The pairwise AUC is the probability that two items with the same label have a larger cosine than
    two items with different labels. The result comes from a search and is not a bound: the true
    range of the AUC is at least as wide. The search evaluates rescalings on a random sample of the
    items. The sample contains half of the items, but at most 300 items. The AUCs in the result are
    computed on the items outside the sample.

    Parameters
    ----------
    items : array_like (p, d), float32 or float64
        Item embeddings. Zero rows are left out.
    labels : array_like (p,), int or str
        Label of each item. Items with the label None are left out.
    condition : float
        Upper limit on the condition number of D, which is its largest entry divided by its
        smallest.
    n_threads : int, optional
        As in :func:`fastcos.top_k`.
    random_state : int or Generator
        Seed of the sample.

    Returns
    -------
    LabelRecovery

    Notes
    -----
    Each search maximises or minimises the AUC by gradient steps in ln w, where w = D^-2. All steps
    stay within the bounds that ``condition`` allows. The gradient of the AUC is a weighted sum of
    the gradients of the cosines of all pairs. Let f be the density of the cosines of pairs with the
    same label, and let g be the density of the cosines of pairs with different labels. Let n be the
    number of pairs with the same label, and let N be the number of pairs with different labels. A
    pair with the cosine c has the weight g(c) / n if its two labels are equal, and the weight -f(c)
    / N if its two labels differ. A step takes O(m² d) time for m sampled items with d dimensions.

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
    labelled_rows = np.flatnonzero(rows.any(axis=1) & (codes >= 0))
    return search_rescalings(
        rows[labelled_rows], codes[labelled_rows], condition, generator, n_threads
    )


def search_rescalings(
    rows: validation.Rows,
    codes: npt.NDArray[np.int64],
    condition: float,
    generator: np.random.Generator,
    n_threads: int | None = None,
) -> LabelRecovery:
    """Return the lowest and the highest AUC that a search over rescalings finds.

    Every row must be nonzero, and every row must have a label.
    """
    order = generator.permutation(len(rows))
    n_searched = min(_SEARCHED_ITEMS, len(rows) // 2)
    search_rows, test_rows = np.sort(order[:n_searched]), np.sort(order[n_searched:])
    if not _has_both_kinds_of_pairs(codes[search_rows]) or not _has_both_kinds_of_pairs(
        codes[test_rows]
    ):
        # The search sample and the test sample must each contain pairs with the same label and
        # pairs with different labels. If one of the samples lacks pairs of one kind, no search is
        # run, and the audited embeddings are evaluated on all items.
        search_rows, test_rows = np.arange(0), np.arange(len(rows))
    X = unit_rows(rows[search_rows]) if len(search_rows) else rows[search_rows].astype(np.float64)
    pairs = np.triu_indices(len(search_rows), 1)
    is_same = codes[search_rows][pairs[0]] == codes[search_rows][pairs[1]]

    def auc(D: Floats) -> float:
        rescaled = (rows[test_rows] / D).astype(rows.dtype)
        return metrics.pair_auc(rescaled, codes[test_rows], exact=False, n_threads=n_threads).value

    identity = np.ones(rows.shape[1])
    candidates = [(auc(identity), identity)]
    if len(search_rows):
        for sign in (1.0, -1.0):
            D = _ascend(X, pairs, is_same, sign, 2 * np.log(condition))
            candidates.append((auc(D), D))
    low, low_D = min(candidates, key=lambda pair: pair[0])
    high, high_D = max(candidates, key=lambda pair: pair[0])
    return LabelRecovery(condition, len(test_rows), candidates[0][0], low, high, low_D, high_D)


def _has_both_kinds_of_pairs(codes: npt.NDArray[np.int64]) -> bool:
    """Return whether there are both pairs with equal labels and pairs with different labels."""
    return 1 < len(np.unique(codes)) < len(codes)


def _ascend(
    X: Floats,
    pairs: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]],
    is_same: npt.NDArray[np.bool_],
    sign: float,
    width: float,
) -> Floats:
    """Return the best rescaling D that gradient ascent on sign * AUC finds.

    The ascent changes ln w, where w = D^-2. Each entry of ln w lies between 0 and ``width``.
    """
    log_w = np.full(X.shape[1], width / 2)
    best_log_w, best_value, step = log_w, -np.inf, width / 2
    for _ in range(_STEPS):
        U = X * np.exp(log_w / 2)
        U /= np.linalg.norm(U, axis=1, keepdims=True)
        C = U @ U.T
        value, slopes = _auc_and_slopes(C[pairs], is_same)
        if sign * value > best_value:
            best_log_w, best_value = log_w, sign * value
            A = np.zeros_like(C)
            A[pairs] = slopes
            A += A.T
            # Let c be the cosine of the unit rows u and v. The derivative of c with respect to ln
            # w_l is u_l v_l - c (u_l² + v_l²) / 2. The gradient of the AUC is a weighted sum of the
            # derivatives of all pairs. The weights are the entries of A.
            gradient = sign * (np.einsum("il,il->l", U, A @ U) - (A * C).sum(axis=1) @ np.square(U))
        else:
            step /= 2
        largest = np.abs(gradient).max()
        if largest == 0 or step < 1e-3 * width or width == 0:
            break
        log_w = np.clip(best_log_w + 2 * step * gradient / largest, 0, width)
    return np.exp((best_log_w.min() - best_log_w) / 2)


def _auc_and_slopes(scores: Floats, is_same: npt.NDArray[np.bool_]) -> tuple[float, Floats]:
    """Return the AUC of binned scores, and the derivative of the AUC with respect to each score."""
    bins = np.clip(((scores + 1) * (_BINS / 2)).astype(np.int64), 0, _BINS - 1)
    different_density, same_density = (
        np.bincount(bins[pairs], minlength=_BINS) / pairs.sum() for pairs in (~is_same, is_same)
    )
    auc = float(same_density @ (np.cumsum(different_density) - different_density / 2))
    # The density in a single bin is too noisy for a gradient, so each density is averaged over
    # three neighbouring bins.
    different_density, same_density = (
        np.convolve(density, np.ones(3) / 3, mode="same")
        for density in (different_density, same_density)
    )
    slopes = np.where(
        is_same, different_density[bins] / is_same.sum(), -same_density[bins] / (~is_same).sum()
    )
    return auc, slopes
