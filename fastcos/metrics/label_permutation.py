"""Permutation tests of whether a similarity recovers labels.

There are three tests: a test over all pairs of items, a test among nearest neighbours, and a test
of single labels.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fastcos import parallel, validation
from fastcos.kernels import label_permutations as kernels
from fastcos.reports import Record, Section, Table
from fastcos.validation import Floats, Integers

# Each of the three tests is significant if its p-value is at most SIGNIFICANT. For shuffled labels,
# the probability that at least one of the tests is significant is therefore at most 0.5 %.
SIGNIFICANT = 0.005 / 3
# Number of permutations of the labels. The smallest possible p-value, 1 / 600, is significant.
_PERMUTATIONS = 599
# Even a few groups of similar items can make an AUC below WEAK_AUC significant. Such an AUC is
# therefore called weak.
WEAK_AUC = 0.55
# Number of permuted label codes that are in memory at a time; 2^24 codes take 64 MiB.
MAX_ENTRIES = 2**24


def check_testable(sizes: Integers) -> None:
    """Raise ValueError if the labels have too few permutations for a significant p-value.

    `sizes` contains the number of items with each label.
    """
    from scipy.special import gammaln  # Importing scipy.special takes 0.2 s, so it is deferred.

    n, n_required = int(sizes.sum()), round(1 / SIGNIFICANT)
    # Compute the logarithm of the number of permutations with different results. If two labels have
    # the same number of items, exchanging these labels changes no statistic.
    labels_per_size = np.unique(sizes[sizes > 0], return_counts=True)[1]
    log_distinct = gammaln(n + 1) - gammaln(sizes + 1).sum() - gammaln(labels_per_size + 1).sum()
    if log_distinct < np.log(n_required):
        rule = f"have at least {n_required} distinct permutations"
        got = f"{np.exp(log_distinct):.0f} with {n} labelled items. Label more items"
        raise ValueError(f"labels must {rule}, got {got}")


class Ranking(NamedTuple):
    """The nearest items by one similarity, and the ranks of the scores within a sample of items.

    - `lists` (n, k): the indices of the nearest items of each query, where -1 replaces an item
      without a label.
    - `ranks` (m, m): the result of :func:`doubled_ranks` for the units, a sample of m items.
    """

    lists: Integers
    ranks: npt.NDArray[np.signedinteger[Any]]


@dataclass(frozen=True)
class LabelTest(Record):
    """The results of permutation tests of whether a similarity recovers labels.

    Attributes
    ----------
    auc, auc_p : float
        Result of the test over all pairs of items. ``auc`` is the AUC, in which all labels have the
        same weight, and ``auc_p`` is the p-value of ``auc``.
    precision, chance, precision_p : float
        Result of the test among nearest neighbours. ``precision`` is the mean precision of all
        labels. The precision of a label is the share of same-label neighbours among all labelled
        neighbours of the items with this label. ``chance`` is the mean of ``precision`` over the
        permutations of the labels, and ``precision_p`` is the p-value of ``precision``.
    classes : tuple of ClassTest
        The labels whose recovery is significant, in descending order of ``precision / chance``.
    n_items, n_classes : int
        Number of labelled items, and number of different labels.
    n_tested : int
        Number of labels with at least two items.
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
        """Whether at least one of the three tests of label recovery is significant."""
        return min(self.auc_p, self.precision_p) <= SIGNIFICANT or bool(self.classes)

    @property
    def verdict(self) -> str:
        """The result of the permutation tests in one or two sentences."""
        strength = "weakly " if self.auc < WEAK_AUC else ""
        pair_test = f"{strength}over all pairs (AUC {self.auc:.2f}, chance 0.50)"
        neighbor_test = (
            f"among neighbours (precision {self.precision:.2f}, chance {self.chance:.2f})"
        )
        tests = (neighbor_test, self.precision_p), (pair_test, self.auc_p)
        significant_tests = [text for text, p in tests if p <= SIGNIFICANT]
        names = ", ".join(class_test.label for class_test in self.classes[:3])
        if significant_tests:
            # A few labels may determine the mean over all labels. Each label is therefore also
            # tested by itself, and the conclusion names the labels that are recovered in these
            # tests.
            sentence = (
                f" If each label is tested by itself, {len(self.classes)} of {self.n_tested} "
                f"labels are recovered: {names}"
            )
            end = ", ..." if len(self.classes) > 3 else "."
            single_labels = f"{sentence}{end}" if 0 < len(self.classes) < self.n_tested else ""
            return f"The labels are recovered {' and '.join(significant_tests)}.{single_labels}"
        if self.classes:
            return f"Only some labels are significantly recovered among neighbours: {names}."
        return (
            "The test does not show that the cosines recover the labels. Over all pairs, the AUC "
            f"is {self.auc:.2f}, and chance level is 0.50. Among neighbours, the precision is "
            f"{self.precision:.2f}, and chance level is {self.chance:.2f}."
        )

    def sections(self) -> tuple[Section]:
        """Return a report section with the test results and a table of the recovered labels."""
        rows = [
            (test.label, test.n_items, test.precision, test.chance, f"{test.p:.2g}")
            for test in self.classes
        ]
        header = ("label", "items", "precision", "chance", "p")
        return (
            Section(
                "Are the labels recovered?",
                (
                    f"The test compares the labels of {self.n_items:,} items in "
                    f"{self.n_classes:,} classes with random permutations of these labels. If the "
                    f"p-value of a test is at most {SIGNIFICANT:.2g}, the test shows that the "
                    "cosines recover the labels. "
                    "The p-value of a class is corrected for the number of classes. The cosines "
                    "may recover the labels even if no test shows this, because a test with too "
                    "few items cannot show it.",
                ),
                [Table("Classes recovered among neighbours", header, rows)] if rows else [],
                {
                    "AUC, mean over classes": self.auc,
                    "p-value of the AUC": self.auc_p,
                    "precision among neighbours": self.precision,
                    "precision by chance": self.chance,
                    "p-value of the precision": self.precision_p,
                },
                verdict=self.verdict,
            ),
        )


@dataclass(frozen=True)
class ClassTest(Record):
    """The result for a single label: a test of whether neighbours recover this label.

    Attributes
    ----------
    label : str
        The label.
    n_items : int
        Number of items with the label.
    precision, chance : float
        ``precision`` is the share of same-label neighbours among all labelled neighbours of the
        items with this label. ``chance`` is the mean of ``precision`` over the permutations of the
        labels.
    p : float
        p-value, corrected for the number of labels. The deviation of a label is (v - μ) / σ, where
        v is the precision of the label, and μ and σ are the mean and the standard deviation of its
        precision over the permutations. The true labels also count as a permutation. Each
        permutation yields one deviation per label. For each permutation, let M be the largest of
        the deviations of all labels. The observed deviation is the deviation of this label under
        the true labels. The p-value is the share of permutations whose M is at least the observed
        deviation.
    """

    label: str
    n_items: int
    precision: float
    chance: float
    p: float


class BestTest(NamedTuple):
    """The results of permutation tests; each test is for the best of several similarities.

    The deviation of a similarity is (v - μ) / σ, where v is its value for the true labels, and μ
    and σ are the mean and the standard deviation of its values over the permutations. The best
    similarity in a test is the one with the largest deviation. The similarity with the index
    ``of_pairs`` has the value ``auc``, and the similarity with the index ``of_neighbors`` has the
    value ``precision``. For each label in ``classes``, ``of_classes`` contains the index of the
    similarity that is best in the test of this label.
    """

    test: LabelTest
    of_pairs: int
    of_neighbors: int
    of_classes: tuple[int, ...]


def label_names(labels: Any) -> list[str]:
    """Return the names of the labels, in the order of the label codes."""
    values = np.asarray(labels, object).tolist()
    distinct = {value for value in values if value is not None and value == value}
    return [str(label) for label in sorted(distinct)]


def draw_per_label(codes: Integers, max_items: int, generator: np.random.Generator) -> Integers:
    """Draw up to max_items items, one from each label in turn; return their ascending positions."""
    order = generator.permutation(len(codes))
    first = np.argsort(number_within_label(codes[order]), kind="stable")
    return np.sort(order[first[:max_items]])


def number_within_label(codes: Integers) -> Integers:
    """Return, for each item, how many items before it have the same label."""
    sizes, number = np.bincount(codes), np.empty(len(codes), np.int64)
    starts = np.repeat(np.cumsum(sizes) - sizes, sizes)
    number[np.argsort(codes, kind="stable")] = np.arange(len(codes)) - starts
    return number


def doubled_ranks(scores: Floats) -> npt.NDArray[np.signedinteger[Any]]:
    """Rank each row of `scores` (m, m) in ascending order, and return the ranks times two.

    The diagonal of `scores`, which contains the scores of items with themselves, is overwritten.
    The ranks on the diagonal are 0. Equal scores have the same rank: the mean of the places that
    they occupy in ascending order. The mean of several places may end in .5, so the ranks are
    doubled to make them integers.
    """
    from scipy.stats import rankdata  # Importing scipy.stats takes 0.7 s, so it is deferred.

    np.fill_diagonal(scores, -np.inf)
    twice_ranks = 2 * (rankdata(scores, axis=1) - 2)
    np.fill_diagonal(twice_ranks, 0)
    return twice_ranks.astype(np.int16 if 2 * len(scores) < 2**15 else np.int32)


def permute_labels(
    rankings: Sequence[Ranking],
    queries: Integers,
    units: Integers,
    codes: Integers,
    names: Sequence[str],
    generator: np.random.Generator,
    n_threads: int | None = None,
) -> BestTest:
    """Test by permutations whether the best similarity recovers the labels; return the results.

    - `rankings`: one ``Ranking`` (neighbour lists and ranks) per similarity.
    - `queries` (n,): the ascending indices of the items that have neighbour lists.
    - `units` (m,): the ascending indices of the items that have ranks. The labels of three groups
      are permuted separately: the queries, the other listed items, and the units. The caller may
      therefore choose the queries and the units by their labels.
    - `codes` (p,): the label code of each item. An item without a label has the code -1 in all
      permutations.
    - `names`: the names of the labels, indexed by label code.

    Let v be the value of a similarity, and let μ and σ be the mean and the standard deviation of
    the similarity's values over the permutations. The deviation of v is (v - μ) / σ. The best
    similarity is the one with the largest deviation for the true labels. Each permutation yields
    one deviation per similarity; in the test of single labels, each permutation yields one
    deviation per similarity and label. The p-value of an observed deviation is the share of
    permutations whose largest deviation is at least as large as the observed one.
    """
    labelled_items = np.flatnonzero(codes >= 0)
    sizes = np.bincount(codes[labelled_items], minlength=len(names))
    tested_labels = np.flatnonzero(sizes > 1)
    permuted_codes = np.stack(list(_permutations(codes[units], len(units), generator)))
    aucs = np.stack([_aucs(ranking.ranks, permuted_codes, n_threads) for ranking in rankings])
    shares = _shares(rankings, queries, codes, len(names), generator, n_threads)[..., tested_labels]
    means = shares.mean(axis=2)
    pairs, neighbors, by_label = map(_deviations, (aucs, means, shares))
    largest = by_label.max(axis=0, initial=-np.inf)
    largest_of_all = largest.max(axis=1, initial=-np.inf)
    best_of_label = by_label[:, 0].argmax(axis=0)
    classes = []
    for number, label in enumerate(tested_labels.tolist()):
        p = _p_value(largest[0, number], largest_of_all)
        if p <= SIGNIFICANT:
            label_shares = shares[best_of_label[number], :, number]
            precision, chance = float(label_shares[0]), float(label_shares[1:].mean())
            class_test = ClassTest(names[label], int(sizes[label]), precision, chance, p)
            classes.append((class_test, int(best_of_label[number])))
    classes.sort(key=lambda pair: -pair[0].precision / max(pair[0].chance, 1e-9))
    of_pairs, of_neighbors = int(pairs[:, 0].argmax()), int(neighbors[:, 0].argmax())
    test = LabelTest(
        auc=float(aucs[of_pairs, 0]),
        auc_p=_p_value(pairs[of_pairs, 0], pairs.max(axis=0)),
        precision=float(means[of_neighbors, 0]),
        chance=float(means[of_neighbors, 1:].mean()),
        precision_p=_p_value(neighbors[of_neighbors, 0], neighbors.max(axis=0)),
        classes=tuple(class_test for class_test, _ in classes),
        n_items=len(labelled_items),
        n_classes=int((sizes > 0).sum()),
        n_tested=len(tested_labels),
    )
    return BestTest(test, of_pairs, of_neighbors, tuple(number for _, number in classes))


def _permutations(codes: Integers, n: int, generator: np.random.Generator) -> Iterator[Integers]:
    """Yield the label codes, followed by _PERMUTATIONS random permutations of the label codes.

    The codes of the first n items and the codes of the other items are permuted separately.
    """
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
    """For the queries with each label, return the share of neighbours that have the same label.

    Neighbours without a label are not counted. The shape of the result is (rankings, permutations,
    labels).
    """
    listed_items = np.unique(np.concatenate([ranking.lists.ravel() for ranking in rankings]))
    other_items = np.setdiff1d(listed_items[listed_items >= 0], queries)
    items = np.concatenate([queries, other_items[codes[other_items] >= 0]])
    positions = np.full(len(codes) + 1, -1)  # The last entry maps the index -1 to -1.
    positions[items] = np.arange(len(items))
    lists = [validation.read_only(positions[ranking.lists]) for ranking in rankings]
    shares = np.zeros((len(rankings), _PERMUTATIONS + 1, n_labels))
    permutations = _permutations(codes[items], len(queries), generator)
    step = max(1, MAX_ENTRIES // len(items))
    for lo in range(0, _PERMUTATIONS + 1, step):
        n = min(step, _PERMUTATIONS + 1 - lo)
        permuted_codes = validation.read_only(np.stack([next(permutations) for _ in range(n)]))
        for number, neighbors in enumerate(lists):
            n_same, n_labelled = (parallel.unfilled((n, n_labels), np.int64) for _ in range(2))
            parallel.run(
                kernels.count_same, parallel.row_blocks(n, 8), permuted_codes, neighbors, n_same,
                n_labelled,
                n_threads=n_threads,
            )  # fmt: skip
            shares[number, lo : lo + n] = n_same / np.maximum(n_labelled, 1)
    return shares


def _aucs(
    ranks: npt.NDArray[np.signedinteger[Any]], permuted: Integers, n_threads: int | None
) -> Floats:
    """Return, for each permutation, the AUC that compares same-label pairs with other pairs.

    The AUC is a mean over labels; a label is left out if it has no same-label pairs, or no pairs
    with other labels.
    """
    n, sizes = len(ranks), np.bincount(permuted[0])
    n_same, n_other = sizes - 1.0, n - sizes.astype(float)
    has_both = (n_same > 0) & (n_other > 0)
    if not has_both.any():
        return np.full(len(permuted), 0.5)
    sums = parallel.unfilled((len(permuted), len(sizes)), np.int64)
    parallel.run(
        kernels.sum_ranks, parallel.row_blocks(len(permuted), 8), validation.read_only(permuted),
        validation.read_only(ranks), sums, n_threads=n_threads,
    )  # fmt: skip
    lowest = sizes * n_same * (n_same - 1) / 2
    aucs = (sums / 2 - lowest)[:, has_both] / (sizes * n_same * n_other)[has_both]
    return aucs.mean(axis=1)


def _deviations(values: Floats) -> Floats:
    """Return (v - mean) / standard deviation for each value v; both are computed over axis 1."""
    spread = np.maximum(values.std(axis=1, keepdims=True), 1e-12)
    return (values - values.mean(axis=1, keepdims=True)) / spread


def _p_value(value: float, permuted: Floats) -> float:
    """Return the p-value: the share of the permutations whose value is at least `value`.

    The first entry of `permuted` is the value for the true labels; the true labels also count as a
    permutation.
    """
    return float((permuted >= value - 1e-9).sum() / len(permuted))
