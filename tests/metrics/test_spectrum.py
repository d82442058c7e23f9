"""Tests of the spectrum of an embedding, hubness, popularity bias and strata of popularity."""

import math

import numpy as np
import pytest
import scipy.stats
from sklearn.metrics import roc_auc_score

from fastcos import metrics
from fastcos.metrics import auc
from tests.oracles import metrics as oracles

OF_SPECTRUM = [metrics.effective_rank, metrics.participation_ratio, metrics.isoscore]
RANDOM = np.random.default_rng(0)
ROWS = RANDOM.standard_normal((90, 6)) * [9, 5, 3, 1, 0.1, 0.01] + [1, 0, 0, 2, 0, 0]


def singular_values(items):
    return np.linalg.svd(items, compute_uv=False)


@pytest.mark.parametrize("rows", [ROWS, ROWS[:4], np.tile(ROWS, (60, 1))], ids=len)
def test_ranks_equal_singular_value_formulas(rows):
    sigma = singular_values(rows)
    shares = sigma / sigma.sum()
    assert metrics.effective_rank(rows) == pytest.approx(
        math.exp(scipy.stats.entropy(shares)), rel=1e-12
    )
    truth = np.sum(sigma**2) ** 2 / np.sum(sigma**4)
    assert metrics.participation_ratio(rows) == pytest.approx(truth, rel=1e-12)


def test_effective_rank_counts_equal_directions():
    rows = np.zeros((50, 9))
    rows[:, :4] = np.linalg.qr(RANDOM.standard_normal((50, 4)))[0] * 7
    assert metrics.effective_rank(rows) == pytest.approx(4, abs=1e-9)
    assert metrics.participation_ratio(rows) == pytest.approx(4, abs=1e-9)
    assert metrics.effective_rank(np.zeros((5, 3))) == metrics.participation_ratio(np.zeros((5, 3)))
    assert metrics.effective_rank(np.zeros((5, 3))) == 0


def test_ranks_of_rows_along_one_axis_are_one():
    assert metrics.participation_ratio([[1, 0], [2, 0]]) == 1
    assert metrics.effective_rank([[1, 0], [2, 0]]) == 1
    assert metrics.participation_ratio([[3.0], [4.0]]) == 1


def published_isoscore(items):
    """Compute IsoScore step by step, by algorithm 1 of Rudman et al. (2022)."""
    n = items.shape[1]
    principal = np.linalg.eigvalsh(np.cov(items.T))
    normalised = principal * math.sqrt(n) / np.linalg.norm(principal)
    defect = np.linalg.norm(normalised - 1) / math.sqrt(2 * (n - math.sqrt(n)))
    used = (n - defect**2 * (n - math.sqrt(n))) ** 2 / n**2
    return (n * used - 1) / (n - 1)


def test_isoscore_equals_published_algorithm():
    assert metrics.isoscore(ROWS) == pytest.approx(published_isoscore(ROWS), rel=1e-10)
    assert metrics.isoscore(np.ones((4, 3))) == 0
    with pytest.raises(ValueError, match="items must have at least 2 columns, got 1"):
        metrics.isoscore([[1], [2]])


@pytest.mark.parametrize("metric", OF_SPECTRUM, ids=lambda metric: metric.__name__)
def test_spectrum_ignores_rotation_but_not_rescaling(metric):
    rotation = np.linalg.qr(RANDOM.standard_normal((6, 6)))[0]
    truth = metric(ROWS)
    assert metric(1e150 * ROWS @ rotation) == pytest.approx(truth, rel=1e-9)
    assert metric(ROWS.astype(np.float32)) == pytest.approx(truth, rel=1e-5)
    assert abs(metric(ROWS * [1, 2, 4, 8, 16, 32]) - truth) > 1e-3


@pytest.mark.parametrize("make", [oracles.blobs, oracles.small_integers, oracles.signs])
def test_mean_cosine_equals_mean_over_pairs(make):
    items, labels = make(3)
    scores, _ = oracles.pair_scores(items, labels)
    result = metrics.mean_cosine(items)
    assert result.value == pytest.approx(scores.mean(), abs=1e-12)
    assert result.n_left_out == (~items.any(axis=1)).sum()
    with pytest.raises(ValueError, match="items must have at least 2 non-zero rows, got 1"):
        metrics.mean_cosine([[1, 2], [0, 0]])


def test_mean_cosine_of_extreme_magnitudes():
    rows = [[1e-300, -1e300], [-1e300, 1e-300], [1e-320, 0]]
    # Except for rounding errors, each of the three rows lies on an axis. The cosines of the three
    # pairs are 0, 0 and -1.
    assert metrics.mean_cosine(rows).value == pytest.approx(-1 / 3)


def lists_of(n, k, n_items, seed=0):
    random = np.random.default_rng(seed)
    weights = random.pareto(1.0, n_items) + 0.01
    weights /= weights.sum()
    return np.array([random.choice(n_items, k, replace=False, p=weights) for _ in range(n)])


def test_hubness_equals_formulas_of_list_counts():
    lists = lists_of(80, 5, 80)
    counts = np.array([(lists == j).sum() for j in range(80)])
    hubness_scores = metrics.hubness(lists)
    assert hubness_scores.skewness == pytest.approx(scipy.stats.skew(counts), abs=1e-12)
    assert hubness_scores.robin_hood == pytest.approx(
        np.abs(counts - 5).sum() / 2 / (80 * 5), abs=1e-15
    )
    assert hubness_scores.antihub_share == np.mean(counts == 0)
    assert metrics.hubness(lists[:, :2]) == metrics.hubness(lists, k=2)
    assert metrics.hubness(np.roll(np.arange(6), 1)[:, None]) == (0, 0, 0)
    assert (
        metrics.hubness(lists, n_items=160).antihub_share == (hubness_scores.antihub_share + 1) / 2
    )
    with pytest.raises(ValueError, match="neighbors must hold item numbers from -1 to 9, got"):
        metrics.hubness(lists, n_items=10)


def test_popularity_bias_equals_plain_correlations():
    random = np.random.default_rng(5)
    counts = random.integers(0, 50, 70).astype(float)
    counts[0] = 0
    items = random.standard_normal((70, 4)) + np.log1p(counts)[:, None]
    items[9] = 0
    lists = lists_of(70, 4, 70)
    bias = metrics.popularity_bias(items, counts, lists)
    keep = items.any(axis=1) & (counts > 0)
    logs = np.log(counts[keep])
    table = oracles.cosines(items[keep])
    cosines = (table.sum(axis=1) - 1) / (keep.sum() - 1)
    listed = np.bincount(lists.ravel(), minlength=70)
    assert bias.n_left_out == 70 - keep.sum()
    assert bias.cosine_correlation == pytest.approx(np.corrcoef(logs, cosines)[0, 1])
    lengths = np.linalg.norm(items[keep], axis=1)
    assert bias.norm_correlation == pytest.approx(np.corrcoef(logs, lengths)[0, 1])
    assert bias.hubness_correlation == pytest.approx(np.corrcoef(logs, listed[keep])[0, 1])
    assert bias.lift == pytest.approx(counts[lists].mean() / counts.mean())
    differences = np.abs(listed[:, None] - listed).mean()
    assert bias.gini == pytest.approx(differences / 2 / listed.mean())
    order = np.argsort(counts[keep], kind="stable")
    assert bias.decile_cosines[0] == pytest.approx(cosines[order[: -(-keep.sum() // 10)]].mean())
    assert np.isnan(metrics.popularity_bias(items, np.ones(70), lists).norm_correlation)


def test_popularity_bias_ignores_scale():
    counts = np.arange(1, 11)
    items = 1e-9 * np.stack([np.log(counts), np.ones(10)], axis=1)
    bias = metrics.popularity_bias(items, counts, lists_of(10, 3, 10))
    assert bias.norm_correlation > 0.9
    # Because of rounding, the norms of unit rows differ slightly.
    unit = oracles.unit(np.random.default_rng(0).standard_normal((10, 7)))
    assert np.isnan(metrics.popularity_bias(unit, counts, lists_of(10, 3, 10)).norm_correlation)
    for alike in (np.ones((10, 2)), np.full((10, 3), 0.1)):
        bias = metrics.popularity_bias(alike, counts, lists_of(10, 3, 10))
        assert np.isnan([bias.norm_correlation, bias.cosine_correlation]).all()
    with pytest.raises(
        ValueError, match="items must have at least 10 non-zero rows of popular items"
    ):
        metrics.popularity_bias(items[:9], counts[:9], lists_of(9, 3, 9))


def stratified_truth(items, labels, popularity, n_strata):
    keep = np.flatnonzero(items.any(axis=1) & (popularity > 0))
    scores, same = oracles.pair_scores(items[keep], labels[keep])
    i, j = np.triu_indices(len(keep), 1)
    logs = np.log(popularity[keep])
    sums = logs[i] + logs[j]
    ordered = np.sort(sums)
    cuts = [ordered[math.ceil(s * len(sums) / n_strata) - 1] for s in range(1, n_strata)]
    strata = sum((sums > cut).astype(int) for cut in cuts) + np.zeros(len(sums))
    aucs, weights = [], []
    for stratum in range(n_strata):
        inside = strata == stratum
        kinds = same[inside].sum(), (~same[inside]).sum()
        weights.append(kinds[0] * kinds[1])
        aucs.append(roc_auc_score(same[inside], scores[inside]) if all(kinds) else np.nan)
    return np.array(aucs), np.array(weights)


@pytest.mark.parametrize(
    "levels", [[0, 4, 5], [0, 1, 5], [4, 5, 6], [-6, -5, -4], [2, 2, 2, 2], [2, 2, 5]]
)
@pytest.mark.parametrize("n_strata", [1, 2, 3, 5])
def test_pair_quantiles_equal_order_statistics(levels, n_strata):
    levels = np.array(levels, float)
    sums = np.sort((levels[:, None] + levels)[np.triu_indices(len(levels), 1)])
    ends = [sums[math.ceil(s * len(sums) / n_strata) - 1] for s in range(1, n_strata)]
    np.testing.assert_array_equal(auc._pair_quantiles(levels, n_strata), ends)


@pytest.mark.parametrize("n_strata", [1, 4, 10])
@pytest.mark.parametrize("make", [oracles.blobs, oracles.small_integers])
def test_stratified_auc_equals_weighted_auc_of_strata(make, n_strata):
    items, labels = make(8, n=90)
    popularity = np.random.default_rng(0).integers(0, 9, 90).astype(float)
    aucs, weights = stratified_truth(items, labels, popularity, n_strata)
    result = metrics.stratified_auc(items, labels, popularity, n_strata=n_strata)
    np.testing.assert_allclose(result.strata, aucs, atol=2e-3)
    value = np.nansum(aucs * weights) / weights.sum()
    assert result.low - 1e-12 <= value <= result.high + 1e-12
    assert result.value == pytest.approx(value, abs=1e-3)
    assert result.worst == np.nanmin(result.strata)
    assert result.n_left_out == np.sum(~items.any(axis=1) | (popularity == 0))


def test_stratified_auc_of_one_stratum_is_pair_auc():
    items, labels = oracles.blobs(9)
    result = metrics.stratified_auc(items, labels, np.ones(60), n_strata=10)
    exact = metrics.pair_auc(items, labels).value
    # All pairs are equally popular, so one stratum contains them all.
    assert result.low <= exact <= result.high
    assert np.isnan(result.strata).sum() == 9


@pytest.mark.parametrize("n_threads", [2, 3, 8])
def test_stratified_auc_is_bit_identical_over_threads(n_threads):
    items, labels = oracles.blobs(7, n=300, d=20)
    popularity = np.arange(300) % 17 + 1
    one = metrics.stratified_auc(items, labels, popularity, n_threads=1)
    assert metrics.stratified_auc(items, labels, popularity, n_threads=n_threads) == one


def test_stratified_auc_refuses_strata_of_one_kind():
    with pytest.raises(ValueError, match="labels must have at least 1 stratum that contains"):
        metrics.stratified_auc([[1, 0], [1, 1], [0, 1]], [0, 0, 1], [1, 1, 100], n_strata=3)


def test_stratified_auc_refuses_invalid_popularity():
    items, labels = oracles.blobs(0)
    for popularity in (np.zeros(60), -np.ones(60)):
        with pytest.raises(ValueError, match="popularity must be at least 0 and not all 0"):
            metrics.stratified_auc(items, labels, popularity)
