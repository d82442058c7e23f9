"""Permutation tests of labels: over all pairs, among neighbours, and of single classes."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import scipy.stats

from fastcos.auditing.records import SIGNIFICANT, ClassTest, LabelTest
from fastcos.validation import Integers, Rows

# permutations of the labels: the least p-value is 1 / 400, below that of a test
_PERMUTATIONS = 399
# items whose lists are counted; more add time, and no power that matters
_COUNTED_ROWS = 20_000


def permute_labels(
    units: Rows,
    codes_of_units: Integers,
    lists: Integers,
    codes: Integers,
    names: Sequence[str],
    generator: np.random.Generator,
) -> LabelTest:
    """Test labels against permutations among the labelled items.

    units (m, d): rows of a sample, not zero, with codes_of_units (m,), for the pairs. lists (p, k):
    nearest items of all; codes (p,): label numbers, -1 for none, which stay where they are; names
    of the labels by number.
    """
    auc, auc_p = _pairs(units, codes_of_units, generator)
    labelled = np.flatnonzero(codes >= 0)
    sizes = np.bincount(codes[labelled], minlength=len(names))
    rows = labelled
    if len(rows) > _COUNTED_ROWS:
        rows = np.sort(generator.choice(rows, _COUNTED_ROWS, replace=False))
    near = lists[rows]
    known = codes[near] >= 0
    shares = np.empty((_PERMUTATIONS + 1, len(names)))
    permuted = codes.copy()
    for number in range(_PERMUTATIONS + 1):
        if number:
            permuted[labelled] = generator.permutation(codes[labelled])
        own = permuted[rows]
        same = ((permuted[near] == own[:, None]) & known).sum(axis=1)
        found = np.bincount(own, same, len(names))
        shares[number] = found / np.maximum(np.bincount(own, known.sum(axis=1), len(names)), 1)
    tested = sizes > 1
    kept = shares[:, tested]
    means = kept.mean(axis=1)
    deviations = (kept - kept.mean(axis=0)) / np.maximum(kept.std(axis=0), 1e-12)
    largest = deviations.max(axis=1)
    classes = []
    for place, label in enumerate(np.flatnonzero(tested).tolist()):
        p = _p_value(deviations[0, place], largest[1:])
        if p <= SIGNIFICANT:
            chance = float(kept[1:, place].mean())
            classes.append(
                ClassTest(names[label], int(sizes[label]), float(kept[0, place]), chance, p)
            )
    classes.sort(key=lambda one: -one.precision / max(one.chance, 1e-9))
    return LabelTest(
        auc=auc,
        auc_p=auc_p,
        precision=float(means[0]),
        chance=float(means[1:].mean()),
        precision_p=_p_value(means[0], means[1:]),
        classes=tuple(classes),
        n_items=len(labelled),
        n_classes=int((sizes > 0).sum()),
        n_tested=int(tested.sum()),
    )


def _p_value(value: float, permuted: npt.NDArray[np.float64]) -> float:
    """Share of permutations at least as large, the given labels among them."""
    return float((1 + (permuted >= value - 1e-12).sum()) / (1 + len(permuted)))


def _pairs(units: Rows, codes: Integers, generator: np.random.Generator) -> tuple[float, float]:
    """AUC of pairs of one label against pairs of two, mean over classes; its p-value."""
    rows = units.astype(np.float64)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    scores = rows @ rows.T
    n = len(rows)
    np.fill_diagonal(scores, -np.inf)
    # an item's place in the order of another's scores, from 0 to n - 2
    ranks = scipy.stats.rankdata(scores, axis=1) - 2
    _, places, sizes = np.unique(codes, return_inverse=True, return_counts=True)
    values = np.empty(_PERMUTATIONS + 1)
    n_same, n_other = sizes - 1.0, n - sizes.astype(float)
    able = (n_same > 0) & (n_other > 0)
    if not able.any():
        return 0.5, 1.0
    np.fill_diagonal(ranks, 0)
    ranks = ranks.astype(np.float32)
    for number in range(_PERMUTATIONS + 1):
        # of one class: the sum of places of its items in the lists of its items
        members = sp.csr_array((np.ones(n, np.float32), places, np.arange(n + 1)))
        own = (members.T @ ranks.T)[places, np.arange(n)]
        sums = np.bincount(places, own, len(sizes))
        lowest = sizes * n_same * (n_same - 1) / 2
        with np.errstate(divide="ignore", invalid="ignore"):
            aucs = (sums - lowest) / (sizes * n_same * n_other)
        values[number] = aucs[able].mean()
        places = generator.permutation(places)
    return float(values[0]), _p_value(values[0], values[1:])
