"""The samples of every algorithm have the right distribution.

The tests compare the samples with an enumeration of all sets, and with samples from NumPy.
"""

from itertools import combinations, pairwise, permutations

import numpy as np
import pytest
import scipy.stats

from fastcos.kernels import records
from fastcos.kernels.sampling import Clusters, sample_rows
from tests.kernels.inputs import frozen

NEVER = 10**9
ALGORITHMS = {
    "repeated draws": {"race_from": NEVER, "max_draws": NEVER},
    "race": {"race_from": 0},
    "race after 2 draws": {"race_from": NEVER, "max_draws": 2},
    "race after 5 draws": {"race_from": NEVER, "max_draws": 5},
}
each_algorithm = pytest.mark.parametrize(
    "algorithm",
    [
        pytest.param(settings, id=name, marks=[pytest.mark.slow] * ("after" in name))
        for name, settings in ALGORITHMS.items()
    ],
)


def sampled(
    preference, item_cluster, popularity, n_wanted, *, key=(1, 2), cuts=None, race_from=NEVER,
    max_draws=NEVER,
):  # fmt: skip
    """Use loops to prepare the inputs of the kernel; return the rows of items that it samples."""
    preference = np.array(preference, np.float64)
    n_clusters = preference.shape[1]
    members = [[i for i, own in enumerate(item_cluster) if own == c] for c in range(n_clusters)]
    starts = np.cumsum([0, *map(len, members)])
    item_at = np.concatenate([np.array(own, np.int64) for own in members])
    cumulative = np.concatenate([np.cumsum([popularity[i] for i in own]) for own in members])
    with np.errstate(divide="ignore"):
        log_weight = np.log([popularity[i] for i in item_at])
    indptr = np.concatenate([[0], np.cumsum(n_wanted)]).astype(np.int64)
    indices = np.full(indptr[-1], -7, np.int32)
    preference, indptr = frozen(preference, indptr)
    clusters = frozen(starts, item_at, cumulative, log_weight)
    cuts = [0, len(n_wanted)] if cuts is None else cuts
    for lo, hi in pairwise(cuts):
        drawing = records.Drawing(*key, race_from, max_draws)
        sample_rows(lo, hi, preference, Clusters(*clusters), drawing, indptr, indices)
    return np.split(indices, indptr[1:-1])


def chance_of_sets(weights, k):
    """Return the probability of each set of k items under successive draws, by enumeration."""
    chances = {}
    for chosen in combinations(range(len(weights)), k):
        chances[chosen] = 0.0
        for order in permutations(chosen):
            remaining, chance = sum(weights), 1.0
            for item in order:
                chance *= weights[item] / remaining
                remaining -= weights[item]
            chances[chosen] += chance
    return chances


def p_value_of_sets(rows, chances):
    came = dict.fromkeys(chances, 0)
    for row in rows:
        came[tuple(row.tolist())] += 1
    expected = np.array(list(chances.values()))
    counts = np.array(list(came.values()))
    assert (counts[expected == 0] == 0).all()
    possible = expected > 0
    return scipy.stats.chisquare(
        counts[possible], expected[possible] / expected.sum() * len(rows)
    ).pvalue


CASES = [
    # preference, clusters, popularities, k
    ([1.0], [0, 0, 0, 0], [8.0, 4.0, 2.0, 1.0], 1),
    ([1.0], [0, 0, 0, 0], [8.0, 4.0, 2.0, 1.0], 3),
    ([0.7, 0.0, 0.3], [0, 2, 0, 2, 0], [1.0, 0.2, 0.5, 1.0, 0.1], 2),
    ([0.2, 0.7, 0.1], [2, 1, 0, 1, 0, 1], [1.0, 0.5, 3.0, 1.0, 0.7, 0.2], 3),
    ([0.5, 0.5], [1, 0, 1, 0, 1], [0.0, 1.0, 2.0, 3.0, 4.0], 3),
    ([0.0, 1.0], [1, 0, 1, 1, 1], [5.0, 9.0, 2.0, 3.0, 1.0], 2),
]


@each_algorithm
@pytest.mark.parametrize(
    "case",
    [pytest.param(n, marks=[pytest.mark.slow] * (n not in (1, 3))) for n in range(len(CASES))],
)
def test_sample_rows_has_the_exact_distribution(algorithm, case):
    preference, cluster, popularity, k = CASES[case]
    n = 20_000
    rows = sampled(
        np.tile(preference, (n, 1)), cluster, popularity, np.full(n, k), key=(case, 7), **algorithm
    )
    weights = [preference[c] * w for c, w in zip(cluster, popularity, strict=True)]
    assert p_value_of_sets(rows, chance_of_sets(weights, k)) > 1e-3


@pytest.mark.parametrize("wrong", ["sharper weights", "no clusters", "equal chances"])
def test_p_value_of_sets_rejects_other_distributions(wrong):
    preference, cluster, popularity, k = CASES[3]
    rows = sampled(np.tile(preference, (20_000, 1)), cluster, popularity, np.full(20_000, k))
    weights = np.array([preference[c] * w for c, w in zip(cluster, popularity, strict=True)])
    weights = {
        "sharper weights": weights**1.1,
        "no clusters": np.array(popularity),
        "equal chances": np.ones(6),
    }[wrong]
    assert p_value_of_sets(rows, chance_of_sets(weights.tolist(), k)) < 1e-6


@each_algorithm
def test_sample_rows_draws_rows_independently(algorithm):
    rows = sampled(
        np.ones((20_000, 1)), [0] * 4, [4.0, 3.0, 2.0, 1.0], np.ones(20_000, int), **algorithm
    )
    item = np.concatenate(rows)
    table = np.zeros((4, 4))
    np.add.at(table, (item[0::2], item[1::2]), 1)
    assert scipy.stats.chi2_contingency(table).pvalue > 1e-3


@pytest.mark.slow  # test_sample_rows_has_the_exact_distribution covers each algorithm
@each_algorithm
def test_sample_rows_equals_numpy_choice(algorithm):
    random = np.random.default_rng(5)
    p, k, n = 40, 12, 4000
    cluster = random.integers(3, size=p)
    popularity = np.arange(1, p + 1) ** -1.2
    preference = np.array([0.6, 0.3, 0.1])
    rows = np.stack(
        sampled(np.tile(preference, (n, 1)), cluster, popularity, np.full(n, k), **algorithm)
    )
    chance = preference[cluster] * popularity
    chance /= chance.sum()
    truth = np.stack([random.choice(p, k, replace=False, p=chance) for _ in range(n)])
    ours, theirs = (
        np.zeros((n, p)) + (chosen[:, :, None] == np.arange(p)).any(axis=1)
        for chosen in (rows, truth)
    )
    for left, right in (
        (ours.mean(axis=0), theirs.mean(axis=0)),
        (ours.T @ ours / n, theirs.T @ theirs / n),
    ):
        share = (left + right) / 2
        deviation = np.sqrt(2 * share * (1 - share) / n)
        assert (np.abs(left - right) <= 5 * deviation + 1e-9).all()


@each_algorithm
def test_sample_rows_returns_sorted_distinct_items(algorithm):
    random = np.random.default_rng(0)
    n, p = 300, 50
    n_items = random.integers(0, p + 1, size=n)
    n_items[:3] = 0, p, 1
    rows = sampled(
        random.dirichlet(np.ones(4), n),
        random.integers(4, size=p),
        random.uniform(0.1, 1, p),
        n_items,
        **algorithm,
    )
    for row, size in zip(rows, n_items, strict=True):
        assert len(row) == size
        assert (np.diff(row) > 0).all()
        assert size == 0 or (row[0] >= 0 and row[-1] < p)


def test_sample_rows_clears_marks_between_rows():
    # The kernel marks each item that it draws for a row. If it draws only 1 or 2 of the 40 items,
    # it sorts the drawn items. If it draws more items, it collects the marked items in ascending
    # order. Both methods must clear the marks.
    n_items = np.tile([1, 2, 3, 40, 2, 0, 1], 100)
    rows = sampled(np.ones((700, 1)), [0] * 40, np.ones(40), n_items)
    alone = [
        sampled(np.ones((700, 1)), [0] * 40, np.ones(40), n_items, cuts=[i, i + 1])[i]
        for i in range(0, 700, 23)
    ]
    for row, twin in zip(rows[::23], alone, strict=True):
        np.testing.assert_array_equal(row, twin)


@each_algorithm
def test_sample_rows_is_independent_of_blocks(algorithm):
    random = np.random.default_rng(1)
    n, p = 60, 30
    arguments = (
        random.dirichlet(np.ones(3), n),
        random.integers(3, size=p),
        random.uniform(size=p),
        random.integers(0, p, size=n),
    )
    whole = np.concatenate(sampled(*arguments, **algorithm))
    for cuts in (range(n + 1), [0, 7, 8, 40, n]):
        np.testing.assert_array_equal(
            np.concatenate(sampled(*arguments, cuts=cuts, **algorithm)), whole
        )


def test_sample_rows_writes_its_rows_only():
    rows = sampled(np.ones((6, 1)), [0] * 9, np.ones(9), np.full(6, 4), cuts=[2, 4])
    for i, row in enumerate(rows):
        assert (row == -7).all() == (i not in (2, 3))


def test_sample_rows_takes_all_items_of_extreme_weights():
    popularity = np.array([1e160, 1.0, 0.0, 1e-160, 1e-160])
    rows = sampled([[1.0, 1e-300]] * 20, [0, 0, 0, 0, 1], popularity, np.full(20, 4), max_draws=50)
    assert all(row.tolist() == [0, 1, 3, 4] for row in rows)


def test_sample_rows_is_exact_beside_extreme_weights():
    n = 20_000
    rows = sampled(
        np.ones((n, 1)), [0] * 4, [1e160, 3e-160, 2e-160, 1e-160], np.full(n, 2), max_draws=4
    )
    assert all(row[0] == 0 for row in rows)
    second = np.bincount([row[1] for row in rows], minlength=4)[1:]
    assert scipy.stats.chisquare(second, np.array([3, 2, 1]) / 6 * n).pvalue > 1e-3


def test_sample_rows_depends_on_key_and_row():
    arguments = (np.ones((200, 1)), [0] * 50, np.ones(50), np.full(200, 5))
    first, again, other, third = (
        np.stack(sampled(*arguments, key=key)) for key in ((1, 2), (1, 2), (2, 1), (1, 3))
    )
    np.testing.assert_array_equal(first, again)
    assert len({row.tobytes() for row in np.concatenate([first, other, third])}) > 590
