"""Tests of the recovery of labels: AUC over pairs, retrieval, silhouettes and contrast."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score, silhouette_score

from fastcos import metrics, set_config
from fastcos.kernels import pair_reductions
from fastcos.metrics import auc
from tests.oracles import metrics as oracles

INPUTS = [
    oracles.blobs(0),
    oracles.blobs(1, n=200, d=40),
    oracles.blobs(2, n=33, d=1),
    oracles.small_integers(0),
    oracles.signs(0),
]
each_input = pytest.mark.parametrize(
    ("items", "labels"), INPUTS, ids=["blobs", "wide", "one dimension", "small integers", "signs"]
)
LABELLED = [
    metrics.pair_auc,
    metrics.map_at_r,
    metrics.silhouette,
    metrics.within_between,
    metrics.clustering_scores,
]


@each_input
def test_pair_auc_exact_equals_roc_auc(items, labels):
    scores, same = oracles.pair_scores(items, labels)
    result = metrics.pair_auc(items, labels)
    assert result.value == pytest.approx(roc_auc_score(same, scores), abs=1e-12)
    assert result.value == pytest.approx(oracles.auc(scores, same), abs=1e-15)
    assert result.low == result.value == result.high
    assert result.n_left_out == np.sum(~items.any(axis=1))


@each_input
def test_pair_auc_interval_contains_the_exact_value(items, labels):
    exact = metrics.pair_auc(items, labels, exact=True).value
    binned = metrics.pair_auc(items, labels, exact=False)
    assert binned.low <= exact <= binned.high
    assert binned.value == pytest.approx(exact, abs=1e-4)


def test_pair_auc_interval_is_as_narrow_as_the_bins():
    items, labels = oracles.blobs(3, n=400, d=20)
    binned = metrics.pair_auc(items, labels, exact=False)
    assert 0 < binned.high - binned.low < 1e-3
    # Without ties, the interval has a positive width only because some of the compared scores lie
    # in the same bin.
    scores, same = oracles.pair_scores(items, labels)
    places = np.floor((scores + 1) * (2**15 - 1) + pair_reductions.OFFSET).astype(int)
    f, g = (np.bincount(places[kind], minlength=2**16) / kind.sum() for kind in (same, ~same))
    assert binned.high - binned.low == pytest.approx((f * g).sum(), rel=1e-9)


def test_pair_auc_counts_ties_half():
    items, labels = np.repeat(np.eye(4), 5, axis=0), np.arange(20) % 4
    scores, same = oracles.pair_scores(items, labels)
    binned = metrics.pair_auc(items, labels, exact=False)
    assert binned.value == pytest.approx(roc_auc_score(same, scores), abs=1e-15)
    assert binned.low < binned.value < binned.high


def test_auc_of_counts_widens_by_scores_near_edges():
    counts = np.zeros((2, 8), np.int64)
    counts[0, 3], counts[1, 4] = 10, 20
    near = np.array([[0], [0]])
    assert auc.auc_of_counts(counts, near) == (1.0, 1.0, 1.0)
    assert auc.auc_of_counts(counts, np.array([[1], [2]])) == (1.0, pytest.approx(0.8), 1.0)


def test_pair_auc_widens_only_for_scores_near_an_edge():
    # The cosine of rows 0 and 1 lies on the edge between two bins. The other two cosines are far
    # below this edge.
    edge = (60_000 - pair_reductions.OFFSET) / (2**15 - 1) - 1
    items = [[1, 0], [edge, np.sqrt(1 - edge * edge)], [-1, 0.3]]
    assert metrics.pair_auc(items, [0, 0, 1], exact=False) == (1.0, 0.0, 1.0, 0)
    items[1] = [edge + 1e-9, np.sqrt(1 - (edge + 1e-9) ** 2)]
    assert metrics.pair_auc(items, [0, 0, 1], exact=False) == (1.0, 1.0, 1.0, 0)


def test_auc_of_counts_low_is_never_negative():
    counts = np.array([[0, 0, 2], [1, 0, 0]])
    assert auc.auc_of_counts(counts, np.array([[0], [1]]))[:2] == (0.0, 0.0)


@pytest.mark.slow
def test_pair_auc_sorts_up_to_the_documented_size():
    # 2,896 rows have 4,191,960 pairs, and the limit for sorting is 2^22 = 4,194,304 pairs.
    items, labels = oracles.blobs(3, n=2897)
    exact = metrics.pair_auc(items[:-1], labels[:-1])
    assert exact.low == exact.high
    binned = metrics.pair_auc(items, labels)
    assert binned.low < binned.high


@pytest.mark.slow
def test_pair_auc_is_independent_of_tasks():
    n = 3_000  # with this many rows, there are too many pairs to sort
    items, labels = oracles.blobs(3, n=n, d=2)
    popularity = np.arange(n) % 17 + 1
    one, eight = (metrics.pair_auc(items, labels, n_threads=count) for count in (1, 8))
    assert one == eight
    one, eight = (
        metrics.stratified_auc(items, labels, popularity, n_threads=count) for count in (1, 8)
    )
    assert one == eight


@pytest.mark.slow
def test_auc_of_scores_counts_more_than_a_million():
    # The scores in `same` are 1, 2, ..., and the scores in `other` are 0.5, 1.5, ... If a score in
    # `same` is i, exactly i scores in `other` are therefore lower.
    n = 2**21 + 3
    same, other = np.arange(1.0, n + 1), np.arange(n) + 0.5
    np.random.default_rng(0).shuffle(same)
    assert auc._auc_of_scores(same, other, 1e-9) == (n + 1) / (2 * n)


def test_pair_auc_exact_needs_two_copies_of_scores():
    items, labels = oracles.blobs(0, n=400)
    set_config(working_memory=16 * 400 * 399 / 2 / 2**20)
    assert metrics.pair_auc(items, labels, exact=True).value > 0.5
    set_config(working_memory=(16 * 400 * 399 / 2 - 1) / 2**20)
    with pytest.raises(ValueError, match="exact=True must fit in the working memory"):
        metrics.pair_auc(items, labels, exact=True)


def test_pair_auc_exact_is_refused_beyond_memory():
    items, labels = oracles.blobs(0, n=400)
    set_config(working_memory=1.0)
    try:
        with pytest.raises(ValueError, match=r"working memory of 1 MiB, got 1 MiB of cosines"):
            metrics.pair_auc(items, labels, exact=True)
        # By default, the cosines are binned if sorting them needs too much memory.
        result = metrics.pair_auc(items, labels)
    finally:
        set_config(working_memory=1024.0)
    assert result == metrics.pair_auc(items, labels, exact=False)


@each_input
def test_map_at_r_equals_the_loop(items, labels):
    precision = metrics.map_at_r(items, labels)
    sizes = np.bincount(labels)[labels]
    # With four columns, cosines that are equal in theory differ in float64.
    if items.shape[1] != 4:
        assert precision.value == pytest.approx(oracles.map_at_r(items, labels), abs=1e-12)
    assert precision.n_left_out == np.sum(~items.any(axis=1) | (sizes < 2))


def test_map_at_r_divides_by_r_and_breaks_ties_by_index():
    items = np.ones((4, 2))
    # Queries 0, 1 and 2 rank a wrong row first, and only query 3 ranks a row of its label first.
    assert metrics.map_at_r(items, ["a", "b", "b", "a"]).value == 0.25
    # Queries 0 and 2 have a wrong row at rank 1 and a right row at rank 2. Their precision at rank
    # 2 is 1/2, so their score is 1/2 divided by R = 2. Query 3 has a right row at rank 1 and a
    # wrong row at rank 2. Its precision at rank 1 is 1, so its score is 1 divided by R = 2.
    items = np.array([[1, 0.0], [0.9, 0.1], [0.8, 0.2], [0, 1.0]])
    precision = metrics.map_at_r(items, ["a", "b", "a", "a"])
    assert precision == (pytest.approx(oracles.map_at_r(items, np.array([0, 1, 0, 0]))), 1)
    assert precision.value == pytest.approx((0.25 + 0.25 + 0.5) / 3)


def test_map_at_r_ranks_zero_rows_by_cosine_zero():
    items = np.array([[1, 0.0], [0, 0.0], [-1, 0.0], [-1, 0.0]])
    # Seen from row 0, the zero row ranks before the opposite rows.
    assert metrics.map_at_r(items, ["a", "a", "b", "b"]) == (1.0, 1)


@each_input
def test_silhouette_equals_scikit_learn(items, labels):
    keep = items.any(axis=1)
    truth = silhouette_score(oracles.unit(items[keep]), labels[keep], metric="cosine")
    assert metrics.silhouette(items, labels).value == pytest.approx(truth, abs=1e-12)


def test_silhouette_of_pairs_equals_scikit_learn():
    items, _ = oracles.blobs(4, n=40)
    labels = np.arange(40) // 2
    truth = silhouette_score(oracles.unit(items), labels, metric="cosine")
    assert metrics.silhouette(items, labels).value == pytest.approx(truth, abs=1e-12)


@pytest.mark.slow
def test_silhouette_is_independent_of_blocks():
    # The rows fill more than one block. All copies of a row have the same distances to the other
    # rows.
    items, labels = oracles.blobs(4, n=1500, d=3)
    many, many_labels = np.tile(items, (3, 1)), np.tile(labels, 3)
    truth = silhouette_score(oracles.unit(many), many_labels, metric="cosine")
    assert metrics.silhouette(many, many_labels).value == pytest.approx(truth, abs=1e-12)


def test_silhouette_of_single_rows_is_zero():
    items = np.array([[1.0, 2], [3, 6], [5, 10], [7, 14], [2, 1]])
    assert metrics.silhouette(items[:4], [0, 0, 1, 1]).value == 0
    truth = silhouette_score(items, [0, 0, 0, 1, 2], metric="cosine")
    assert metrics.silhouette(items, [0, 0, 0, 1, 2]).value == pytest.approx(truth, abs=1e-12)


@each_input
def test_within_between_equals_means_over_pairs(items, labels):
    scores, same = oracles.pair_scores(items, labels)
    result = metrics.within_between(items, labels)
    deviation = np.sqrt((scores[same].var() + scores[~same].var()) / 2)
    assert result.within == pytest.approx(scores[same].mean(), abs=1e-12)
    assert result.between == pytest.approx(scores[~same].mean(), abs=1e-12)
    assert result.contrast == pytest.approx((result.within - result.between) / deviation, rel=1e-9)


def test_within_between_contrast_without_variance():
    assert metrics.within_between(np.repeat(np.eye(2), 2, axis=0), [0, 0, 1, 1]).contrast == np.inf
    assert metrics.within_between(np.ones((4, 3)), [0, 0, 1, 1]).contrast == 0


@pytest.mark.parametrize("metric", LABELLED, ids=lambda metric: metric.__name__)
def test_recovery_ignores_norms_rotation_and_label_names(metric):
    items, labels = oracles.blobs(6, n=80, d=6)
    truth = metric(items, labels)
    random = np.random.default_rng(0)
    rotation = np.linalg.qr(random.standard_normal((6, 6)))[0]
    changed = (items * 2.0 ** random.integers(-30, 30, 80)[:, None]) @ rotation
    # The names of the labels have the same order as their numbers.
    assert metric(changed, [f"label {c}" for c in labels]) == pytest.approx(truth, abs=1e-9)
    assert metric(items.astype(np.float32), labels) == pytest.approx(truth, abs=1e-4)


@pytest.mark.parametrize("metric", LABELLED, ids=lambda metric: metric.__name__)
def test_recovery_changes_under_a_rescaling(metric):
    items, labels = oracles.blobs(6, n=80, d=6)
    assert metric(items * [1, 1, 1, 30, 30, 30], labels) != metric(items, labels)


@pytest.mark.parametrize("metric", LABELLED, ids=lambda metric: metric.__name__)
@pytest.mark.parametrize(
    ("labels", "rule"),
    [
        ([0, 0, 0, 0], "labels must have at least two different values"),
        ([0, 1, 2, 3], "labels must have at least two different values on non-zero rows"),
        ([0, 0, 0, 1], "labels must have at least two different values on non-zero rows"),
        ([0, 0, 1], r"labels must be of shape \(4,\), got \(3,\)"),
    ],
)
def test_recovery_refuses_labels_without_both_kinds(metric, labels, rule):
    with pytest.raises(ValueError, match=rule):
        metric([[1, 0], [1, 1], [2, 1], [0, 0]], labels)


@pytest.mark.slow
@pytest.mark.parametrize("n_threads", [2, 3, 8])
def test_recovery_is_bit_identical_over_threads(n_threads):
    items, labels = oracles.blobs(7, n=700, d=20)
    for metric in (
        metrics.pair_auc,
        metrics.map_at_r,
        metrics.silhouette,
        metrics.clustering_scores,
    ):
        assert metric(items, labels, n_threads=n_threads) == metric(items, labels, n_threads=1)
    for exact in (True, False):
        many = metrics.pair_auc(items, labels, exact=exact, n_threads=n_threads)
        assert many == metrics.pair_auc(items, labels, exact=exact, n_threads=1)


def test_neighbor_purity_equals_share_of_equal_labels():
    random = np.random.default_rng(0)
    labels = random.integers(0, 3, 40)
    lists = np.array([random.permutation(40)[:6] for _ in range(40)])
    truth = np.mean([[labels[j] == labels[i] for j in lists[i, :4]] for i in range(40)])
    purity = metrics.neighbor_purity(lists, labels, k=4)
    assert purity.value == truth
    table = labels[:, None] == labels
    assert purity.baseline == pytest.approx((table.sum() - 40) / (40 * 39))
    rows = [3, 5, 8]
    part = metrics.neighbor_purity(lists[rows], labels, k=4, query_labels=labels[rows])
    assert part.value == np.mean(labels[lists[rows, :4]] == labels[rows][:, None])


def test_neighbor_purity_refuses_invalid_lists():
    with pytest.raises(ValueError, match="neighbors must hold item numbers from -1 to 2, got 3"):
        metrics.neighbor_purity([[1], [2], [3]], [0, 0, 1])
    with pytest.raises(ValueError, match=r"labels must be as long as neighbors \(2\), got 3"):
        metrics.neighbor_purity([[1], [2]], [0, 0, 1])
    with pytest.raises(ValueError, match="query_labels must be among the labels, got 7"):
        metrics.neighbor_purity([[1], [2]], [0, 0, 1], query_labels=[0, 7])


def test_auc_of_counts_is_exact_beyond_63_bits():
    near = np.zeros((2, 1), np.int64)
    for scale in (1, 10, 2**30, 2**31):
        counts = np.array([[3, 1, 0, 4], [1, 0, 5, 2]], np.int64) * scale
        other, same = ([int(c) for c in row] for row in counts)
        twice = sum(
            same[a] * other[b] * (2 * (a > b) + (a == b)) for a in range(4) for b in range(4)
        )
        value, low, high = auc.auc_of_counts(counts, near)
        assert value == twice / (2 * sum(same) * sum(other))
        assert low <= value <= high
    # These products of counts need between 63 and 64 bits.
    counts = np.array([[3_500_000_000, 0], [0, 3_500_000_000]])
    assert auc.auc_of_counts(counts, near) == (1.0, 1.0, 1.0)
