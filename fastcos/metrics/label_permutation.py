"""Permutation tests of labels: over all pairs, among neighbours, and of single labels."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.stats
from scipy.special import gammaln

from fastcos import parallel, validation
from fastcos.kernels import label_permutations as kernels
from fastcos.reports import Record, Section, Table
from fastcos.validation import Floats, Integers

# p-value of each of three tests of the labels: together 0.5 % of shuffled labels pass
SIGNIFICANT = 0.005 / 3
# permutations of the labels: the least p-value, 1 / 600, is that of a test
_PERMUTATIONS = 599
# an AUC below that is called weak, however significant: pairs of a few near groups alone give it
WEAK_AUC = 0.55
# labels of items in the permutations that are in memory at once: 64 MiB
_ENTRIES = 2**24


def check_testable(sizes: Integers) -> None:
    """Refuse labels, sizes items of each, without the permutations for a p-value of SIGNIFICANT."""
    n, least = int(sizes.sum()), round(1 / SIGNIFICANT)
    # logarithm; an exchange of two labels of one size leaves every statistic as it is
    equal = np.unique(sizes[sizes > 0], return_counts=True)[1]
    distinct = gammaln(n + 1) - gammaln(sizes + 1).sum() - gammaln(equal + 1).sum()
    if distinct < np.log(least):
        rule = f"have at least {least} permutations of different outcome for a test"
        got = f"{np.exp(distinct):.0f} of {n} items: label more items"
        raise ValueError(f"labels must {rule}, got {got}")


class Ranking(NamedTuple):
    """What one similarity says of the queries and of a sample of units.

    lists (n, k): nearest items of each query; -1 for one without a label. ranks (m, m): those of
    :func:`doubled_ranks` for the units.
    """

    lists: Integers
    ranks: npt.NDArray[np.signedinteger[Any]]


@dataclass(frozen=True)
class LabelTest(Record):
    """Whether a similarity recovers labels, by permutations of the labels among the items.

    Attributes
    ----------
    auc, auc_p : float
        AUC over pairs, labels weighted equally, and its p-value: recovery over the whole space.
    precision, chance, precision_p : float
        Share of the labelled neighbours with the item's label, mean over labels; its mean over
        permutations; its p-value: recovery among neighbours.
    classes : tuple of ClassTest
        The labels that are shown to be recovered, by descending lift.
    n_items, n_classes : int
    n_tested : int
        Labels of two or more items.
    """

    auc: float
    auc_p: float
    precision: float
    chance: float
    precision_p: float
    classes: tuple["ClassTest", ...]
    n_items: int
    n_classes: int
    n_tested: int

    @property
    def shown(self) -> bool:
        """Whether a test shows recovery: of the whole space, of neighbours, or of a label."""
        return min(self.auc_p, self.precision_p) <= SIGNIFICANT or bool(self.classes)

    @property
    def verdict(self) -> str:
        """Which tests show recovery."""
        weakly = "weakly " if self.auc < WEAK_AUC else ""
        globally = f"{weakly}over all pairs (AUC {self.auc:.2f}, chance 0.50)"
        locally = f"among neighbours (precision {self.precision:.2f}, chance {self.chance:.2f})"
        tests = (locally, self.precision_p), (globally, self.auc_p)
        shown = [text for text, p in tests if p <= SIGNIFICANT]
        names = ", ".join(one.label for one in self.classes[:3])
        if shown:
            # the means may rest on few labels
            single = f" By themselves {len(self.classes)} of {self.n_tested} labels are: {names}"
            more = ", ..." if len(self.classes) > 3 else "."
            partly = f"{single}{more}" if 0 < len(self.classes) < self.n_tested else ""
            return f"The labels are recovered {' and '.join(shown)}.{partly}"
        if self.classes:
            return f"Only some labels are shown to be recovered among neighbours: {names}."
        return (
            "It is not shown that these cosines recover the labels, neither over all pairs "
            f"(AUC {self.auc:.2f}) nor among neighbours ({self.precision:.2f}, chance "
            f"{self.chance:.2f})."
        )

    def sections(self) -> tuple[Section]:
        """The tests, and the recovered labels."""
        rows = [
            (one.label, one.n_items, one.precision, one.chance, f"{one.p:.2g}")
            for one in self.classes
        ]
        header = ("label", "items", "precision", "chance", "p")
        return (
            Section(
                "Are the labels recovered?",
                (
                    f"Labels of {self.n_items:,} items in {self.n_classes:,} classes were permuted "
                    f"among the items. A test shows recovery at p of {SIGNIFICANT:.2g} or less; "
                    "p of a class is for all classes together. Where none does, recovery is not "
                    "shown: few items of a label can hide it.",
                ),
                [Table("Classes recovered among neighbours", header, rows)] if rows else [],
                {
                    "AUC, classes equal": self.auc,
                    "its p": self.auc_p,
                    "precision among neighbours": self.precision,
                    "its chance level": self.chance,
                    "its p, neighbours": self.precision_p,
                },
                verdict=self.verdict,
            ),
        )


@dataclass(frozen=True)
class ClassTest(Record):
    """One label among neighbours.

    Attributes
    ----------
    label : str
    n_items : int
    precision, chance : float
        Share of the label among labelled neighbours of its items, and its mean over permutations.
    p : float
        Of the largest of all labels' deviations in a permutation.
    """

    label: str
    n_items: int
    precision: float
    chance: float
    p: float


class BestTest(NamedTuple):
    """The test of several similarities: each value is of the one that deviates most.

    of_pairs, of_neighbors, of_classes: the similarities of ``auc``, ``precision`` and ``classes``,
    by number.
    """

    test: LabelTest
    of_pairs: int
    of_neighbors: int
    of_classes: tuple[int, ...]


def label_names(labels: Any) -> list[str]:
    """Labels by the number that validation gives them: their sorted order."""
    values = np.asarray(labels, object).tolist()
    return [str(one) for one in sorted({one for one in values if one is not None and one == one})]


def draw_per_label(codes: Integers, most: int, generator: np.random.Generator) -> Integers:
    """Places of at most that many items, ascending: as many of each label as there are."""
    order = generator.permutation(len(codes))
    first = np.argsort(number_within_label(codes[order]), kind="stable")
    return np.sort(order[first[:most]])


def number_within_label(codes: Integers) -> Integers:
    """How many items before each one have its label."""
    sizes, number = np.bincount(codes), np.empty(len(codes), np.int64)
    starts = np.repeat(np.cumsum(sizes) - sizes, sizes)
    number[np.argsort(codes, kind="stable")] = np.arange(len(codes)) - starts
    return number


def doubled_ranks(scores: Floats) -> npt.NDArray[np.signedinteger[Any]]:
    """Twice the place of each unit in the ascending scores (m, m) of the others; own place is 0.

    Equal scores share the mean of their places. Scores of a unit with itself are overwritten.
    """
    np.fill_diagonal(scores, -np.inf)
    doubled = 2 * (scipy.stats.rankdata(scores, axis=1) - 2)
    np.fill_diagonal(doubled, 0)
    return doubled.astype(np.int16 if 2 * len(scores) < 2**15 else np.int32)


def permute_labels(
    rankings: Sequence[Ranking],
    queries: Integers,
    units: Integers,
    codes: Integers,
    names: Sequence[str],
    generator: np.random.Generator,
    n_threads: int | None = None,
) -> BestTest:
    """Test labels against permutations of them among the items, for the best of some similarities.

    queries (n,) and units (m,): item numbers, ascending, of lists and ranks; both may depend on the
    labels, because labels are permuted among the queries, among the other items, and among the
    units. codes (p,): label numbers, -1 for an item without a label, which stays so; names by
    number. A value of a similarity counts by its deviation from its mean over the permutations, in
    standard deviations; p-values are of the largest over all similarities, and over all labels.
    """
    labelled = np.flatnonzero(codes >= 0)
    sizes = np.bincount(codes[labelled], minlength=len(names))
    tested = np.flatnonzero(sizes > 1)
    permuted = np.stack(list(_permutations(codes[units], len(units), generator)))
    aucs = np.stack([_aucs(one.ranks, permuted, n_threads) for one in rankings])
    shares = _shares(rankings, queries, codes, len(names), generator, n_threads)[..., tested]
    means = shares.mean(axis=2)
    pairs, neighbors, single = map(_deviations, (aucs, means, shares))
    largest = single.max(axis=0, initial=-np.inf)
    most = largest.max(axis=1, initial=-np.inf)
    best_of_label = single[:, 0].argmax(axis=0)
    classes = []
    for place, label in enumerate(tested.tolist()):
        p = _p_value(largest[0, place], most)
        if p <= SIGNIFICANT:
            own = shares[best_of_label[place], :, place]
            chance = float(own[1:].mean())
            recovered = ClassTest(names[label], int(sizes[label]), float(own[0]), chance, p)
            classes.append((recovered, int(best_of_label[place])))
    classes.sort(key=lambda one: -one[0].precision / max(one[0].chance, 1e-9))
    of_pairs, of_neighbors = int(pairs[:, 0].argmax()), int(neighbors[:, 0].argmax())
    test = LabelTest(
        auc=float(aucs[of_pairs, 0]),
        auc_p=_p_value(pairs[of_pairs, 0], pairs.max(axis=0)),
        precision=float(means[of_neighbors, 0]),
        chance=float(means[of_neighbors, 1:].mean()),
        precision_p=_p_value(neighbors[of_neighbors, 0], neighbors.max(axis=0)),
        classes=tuple(recovered for recovered, _ in classes),
        n_items=len(labelled),
        n_classes=int((sizes > 0).sum()),
        n_tested=len(tested),
    )
    return BestTest(test, of_pairs, of_neighbors, tuple(number for _, number in classes))


def _permutations(codes: Integers, n: int, generator: np.random.Generator) -> Iterator[Integers]:
    """The labels as given, then permutations of the first n and of the others among themselves."""
    codes = codes.astype(np.int32)
    yield codes
    for _ in range(_PERMUTATIONS):
        yield np.concatenate([generator.permutation(codes[:n]), generator.permutation(codes[n:])])


def _shares(
    rankings: Sequence[Ranking],
    queries: Integers,
    codes: Integers,
    n_labels: int,
    generator: np.random.Generator,
    n_threads: int | None,
) -> Floats:
    """Share of its label among the neighbours of a label's queries, (rankings, permutations, C)."""
    listed = np.unique(np.concatenate([one.lists.ravel() for one in rankings]))
    others = np.setdiff1d(listed[listed >= 0], queries)
    items = np.concatenate([queries, others[codes[others] >= 0]])
    places = np.full(len(codes) + 1, -1)  # the last for an item that is not there
    places[items] = np.arange(len(items))
    lists = [validation.read_only(places[one.lists]) for one in rankings]
    shares = np.zeros((len(rankings), _PERMUTATIONS + 1, n_labels))
    drawn = _permutations(codes[items], len(queries), generator)
    step = max(1, _ENTRIES // len(items))
    for lo in range(0, _PERMUTATIONS + 1, step):
        n = min(step, _PERMUTATIONS + 1 - lo)
        permuted = validation.read_only(np.stack([next(drawn) for _ in range(n)]))
        for number, own in enumerate(lists):
            same, known = (parallel.unfilled((n, n_labels), np.int64) for _ in range(2))
            parallel.run(
                kernels.count_same, parallel.row_blocks(n, 8), permuted, own, same, known,
                n_threads=n_threads,
            )  # fmt: skip
            shares[number, lo : lo + n] = same / np.maximum(known, 1)
    return shares


def _aucs(
    ranks: npt.NDArray[np.signedinteger[Any]], permuted: Integers, n_threads: int | None
) -> Floats:
    """AUC of pairs of one label against pairs of two, mean over labels, of each permutation."""
    n, sizes = len(ranks), np.bincount(permuted[0])
    n_same, n_other = sizes - 1.0, n - sizes.astype(float)
    able = (n_same > 0) & (n_other > 0)
    if not able.any():
        return np.full(len(permuted), 0.5)
    sums = parallel.unfilled((len(permuted), len(sizes)), np.int64)
    parallel.run(
        kernels.sum_ranks, parallel.row_blocks(len(permuted), 8), validation.read_only(permuted),
        validation.read_only(ranks), sums, n_threads=n_threads,
    )  # fmt: skip
    lowest = sizes * n_same * (n_same - 1) / 2
    aucs = (sums / 2 - lowest)[:, able] / (sizes * n_same * n_other)[able]
    return aucs.mean(axis=1)


def _deviations(values: Floats) -> Floats:
    """Differences from the mean over permutations, axis 1, in standard deviations."""
    spread = np.maximum(values.std(axis=1, keepdims=True), 1e-12)
    return (values - values.mean(axis=1, keepdims=True)) / spread


def _p_value(value: float, permuted: Floats) -> float:
    """Share of permutations at least as large, the given labels among them."""
    return float((permuted >= value - 1e-9).sum() / len(permuted))
