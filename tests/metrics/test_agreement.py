"""Tests of the agreement of two lists of neighbours, and of two embeddings."""

import math

import numpy as np
import pytest
import scipy.linalg
import scipy.spatial
import scipy.stats
from sklearn.manifold import trustworthiness as sklearn_trustworthiness

from fastcos import metrics, top_k
from fastcos.metrics import alignment
from tests.oracles import metrics as oracles


def random_lists(seed, n=30, k=6, n_items=12):
    random = np.random.default_rng(seed)
    return np.array([random.permutation(n_items)[:k] for _ in range(n)])


def embeddings(seed, n=60, shared=3):
    random = np.random.default_rng(seed)
    common = random.standard_normal((n, shared))
    X = common @ random.standard_normal((shared, 5)) + 0.5 * random.standard_normal((n, 5)) + 1
    Y = common @ random.standard_normal((shared, 8)) + 0.5 * random.standard_normal((n, 8)) - 2
    return X, Y


A, B = random_lists(0), random_lists(1)
X, Y = embeddings(0)
SYMMETRIC = [metrics.rsa, metrics.cka, metrics.cca_similarity, metrics.procrustes]
UNDER_ROTATION = [metrics.rsa, metrics.cka, metrics.cca_similarity, metrics.procrustes]


def value(result):
    return getattr(result, "value", result)


@pytest.mark.parametrize("k", [1, 3, 6])
def test_jaccard_and_overlap_equal_set_formulas(k):
    both = [(set(a[:k]), set(b[:k])) for a, b in zip(A.tolist(), B.tolist(), strict=True)]
    jaccard = np.mean([len(a & b) / len(a | b) for a, b in both])
    overlap = np.mean([len(a & b) / k for a, b in both])
    assert metrics.jaccard_at_k(A, B, k=k) == pytest.approx(jaccard, abs=1e-15)
    assert metrics.overlap_at_k(A, B, k=k) == pytest.approx(overlap, abs=1e-15)
    assert metrics.jaccard_at_k(A, A[:, ::-1]) == metrics.overlap_at_k(A, A) == 1


@pytest.mark.parametrize("q", [0.2, 0.9, 0.99])
def test_rank_biased_overlap_equals_its_definition(q):
    result = metrics.rank_biased_overlap(A, B, persistence=q)
    truth = []
    for a, b in zip(A.tolist(), B.tolist(), strict=True):
        overlap = [len(set(a[:d]) & set(b[:d])) for d in range(1, 7)]
        total = (1 - q) / q * sum(x / d * q**d for d, x in enumerate(overlap, 1))
        truth.append(overlap[-1] / 6 * q**6 + total)
    assert result.value == pytest.approx(np.mean(truth), abs=1e-14)
    assert metrics.rank_biased_overlap(A, A, persistence=q).value == pytest.approx(1, abs=1e-14)


@pytest.mark.parametrize("b", [[1, 5, 0, 6], [5, 6, 1, 0], [5, 6, 7, 2]])
def test_rank_biased_overlap_residual_bounds_unseen_ranks(b):
    q, depth = 0.8, 400
    a = [0, 1, 2, 3]

    def series(left, right):
        overlap = [len(set(left[:d]) & set(right[:d])) for d in range(1, depth)]
        return (1 - q) / q * sum(x / d * q**d for d, x in enumerate(overlap, 1))

    worst = series(a + list(range(1000, 1000 + depth)), b + list(range(5000, 5000 + depth)))
    rest = list(range(10, 1000))
    # In the best case, each list continues with the items that so far only the other list contains.
    # From then on, the two lists are equal.
    best = series(
        [*a, *(j for j in b if j not in a), *rest], [*b, *(j for j in a if j not in b), *rest]
    )
    result = metrics.rank_biased_overlap([a], [b], persistence=q)
    assert result.residual == pytest.approx(best - worst, abs=1e-9)
    assert worst <= result.value <= best


def test_rank_biased_overlap_checks_persistence():
    assert metrics.rank_biased_overlap(A, A, persistence=1 - 2.0**-53).value == pytest.approx(1)
    for persistence in (0, 1, 1.5):
        with pytest.raises(ValueError, match="persistence must be"):
            metrics.rank_biased_overlap(A, A, persistence=persistence)


@pytest.mark.slow
def test_list_overlap_is_independent_of_blocks():
    of_lists = (
        metrics.jaccard_at_k, metrics.overlap_at_k, metrics.rank_biased_overlap,
    )  # fmt: skip
    # The 540,000 item numbers fill more than one block.
    many = [np.tile(lists, (3000, 1)) for lists in (A, B)]
    for metric in of_lists:
        assert metric(*many) == pytest.approx(metric(A, B), abs=1e-12)


@pytest.mark.parametrize(
    "metric",
    [
        metrics.jaccard_at_k,
        metrics.overlap_at_k,
        metrics.rank_biased_overlap,
    ],
)
def test_list_overlap_refuses_invalid_lists(metric):
    with pytest.raises(
        ValueError, match=r"second must have the same shape as first, which is \(1, 2\), got"
    ):
        metric([[1, 2]], [[1, 2], [3, 4]])
    with pytest.raises(
        ValueError, match="first must not repeat an item in a list, got repetitions in row 0"
    ):
        metric([[1, 1]], [[1, 2]])
    with pytest.raises(ValueError, match="second must hold item numbers of at least -1, got -2"):
        metric([[1, 2]], [[1, -2]])
    with pytest.raises(ValueError, match="k must be a whole number from 1 to 2, got 3"):
        metric([[1, 2]], [[1, 2]], k=3)
    with pytest.raises(ValueError, match="first must be a two-dimensional array of integers"):
        metric([[1.5, 2]], [[1, 2]])


def off_diagonal(items):
    table = oracles.cosines(items)
    return table[np.triu_indices(len(table), 1)]


def test_rsa_equals_correlation_of_pairwise_cosines():
    truth = np.corrcoef(off_diagonal(X), off_diagonal(Y))[0, 1]
    result = metrics.rsa(X, Y)
    assert result.value == pytest.approx(truth, abs=1e-11)
    assert result.low == result.value == result.high
    assert metrics.rsa(X, X * 3).value == pytest.approx(1, abs=1e-12)


def test_rsa_leaves_zero_rows_out():
    changed, other = X.copy(), Y.copy()
    changed[3], other[5] = 0, 0
    keep = np.delete(np.arange(len(X)), [3, 5])
    result = metrics.rsa(changed, other)
    assert result.n_left_out == 2
    assert result.value == pytest.approx(metrics.rsa(X[keep], Y[keep]).value, abs=1e-14)


def test_rsa_spearman_equals_scipy():
    truth = scipy.stats.spearmanr(off_diagonal(X), off_diagonal(Y)).statistic
    result = metrics.rsa(X, Y, method="spearman")
    assert result.value == pytest.approx(truth, abs=1e-12)
    assert result.low == result.value == result.high


def test_rsa_spearman_interval_covers_the_truth():
    truth = metrics.rsa(X, Y, method="spearman").value
    held = 0
    for seed in range(40):
        result = metrics.rsa(X, Y, method="spearman", n_pairs=1000, random_state=seed)
        assert result.low < result.value < result.high
        held += result.low <= truth <= result.high
    assert held >= 34


@pytest.mark.parametrize("n_pairs", [4, 30, 1000])
def test_rsa_spearman_interval_equals_bonett_wright(n_pairs):
    result = metrics.rsa(X, Y, method="spearman", n_pairs=n_pairs, random_state=3)
    z, half = np.arctanh(result.value), scipy.stats.norm.ppf(0.975)
    half *= np.sqrt((1 + result.value**2 / 2) / (n_pairs - 3))
    assert (result.low, result.high) == pytest.approx((np.tanh(z - half), np.tanh(z + half)))


def test_rsa_spearman_samples_only_if_more_pairs():
    all_pairs = metrics.rsa(X, Y, method="spearman", n_pairs=60 * 59 // 2)
    assert all_pairs == metrics.rsa(X, Y, method="spearman")
    sample = metrics.rsa(X, Y, method="spearman", n_pairs=60 * 59 // 2 - 1)
    assert sample.low < sample.value < sample.high
    assert sample.value != all_pairs.value
    with pytest.raises(ValueError, match="n_pairs must be a whole number of at least 4, got 3"):
        metrics.rsa(X, Y, method="spearman", n_pairs=3)


def test_rsa_spearman_draws_all_pairs_uniformly():
    drawn = np.zeros((9, 9), int)

    for seed in range(600):
        np.add.at(drawn, alignment._pairs(9, 30, np.random.default_rng(seed)), 1)
    assert not np.diag(drawn).any()
    # The 600 x 30 draws choose each of the 72 ordered pairs 250 times on average.
    assert scipy.stats.chisquare(drawn[~np.eye(9, dtype=bool)]).pvalue > 1e-3


def test_rsa_spearman_of_equal_order_has_no_width():
    with np.errstate(all="raise"):
        assert metrics.rsa(X, X * 3, method="spearman", n_pairs=50) == (1, 1, 1, 0)


def test_agreement_stays_within_bounds_despite_rounding():
    for seed in range(40):
        random = np.random.default_rng(seed)
        Z = random.standard_normal((7, 3))
        for metric in (metrics.cka, metrics.cca_similarity):
            assert 1 - 1e-12 < metric(Z, Z) <= 1
        assert 0 <= metrics.procrustes(Z, Z) < 1e-12
        assert 1 - 1e-12 < metrics.rsa(Z, Z).value <= 1
        # The cosines have opposite signs, because the Gram matrices are I + E and I - E.
        E = 0.1 * np.triu(random.standard_normal((5, 5)), 1)
        with_, against = (np.linalg.cholesky(np.eye(5) + sign * (E + E.T)) for sign in (1, -1))
        assert -1 <= metrics.rsa(with_, against).value < -1 + 1e-12


def test_agreement_requires_three_items():
    assert metrics.rsa(X[:3], 2 * X[:3]).value == pytest.approx(1)
    assert metrics.trustworthiness(X[:3], 2 * X[:3], k=1) == (1, 1, 0)
    for metric in (metrics.rsa, metrics.trustworthiness):
        with pytest.raises(
            ValueError, match="must have at least 3 items whose rows are non-zero in both"
        ):
            metric(X[:2], Y[:2])


def test_cka_equals_kernel_formula():
    n = len(X)
    centring = np.eye(n) - 1 / n
    K, L = (centring @ Z @ Z.T @ centring for Z in (X, Y))
    truth = np.sum(K * L) / np.sqrt(np.sum(K * K) * np.sum(L * L))
    assert metrics.cka(X, Y) == pytest.approx(truth, abs=1e-12)


@pytest.mark.parametrize("scale", [1, 1e-5])
def test_cca_similarity_equals_subspace_angles(scale):
    columns = X * np.array([1, 1, scale, 1, 1])
    angles = scipy.linalg.subspace_angles(X - X.mean(axis=0), Y - Y.mean(axis=0))
    truth = np.mean(np.cos(angles) ** 2)
    assert metrics.cca_similarity(columns, Y) == pytest.approx(truth, abs=1e-9)


def test_cca_similarity_ignores_columns_of_zero_rank():
    doubled = np.concatenate([X, X[:, :2], np.ones((len(X), 1)), 0 * X[:, :1]], axis=1)
    assert metrics.cca_similarity(doubled, Y) == pytest.approx(metrics.cca_similarity(X, Y))
    assert metrics.cca_similarity(doubled, X) == pytest.approx(1)


def test_cca_similarity_of_one_direction_is_r_squared():
    line = np.outer(X[:, 0], [1, 2, -3])
    design = np.column_stack([np.ones(len(Y)), Y])
    residual = X[:, 0] - design @ np.linalg.lstsq(design, X[:, 0], rcond=None)[0]
    truth = 1 - residual.var() / X[:, 0].var()
    assert metrics.cca_similarity(line, Y) == pytest.approx(truth, abs=1e-9)


def test_procrustes_equals_scipy():
    assert metrics.procrustes(X, Y[:, :5]) == pytest.approx(
        scipy.spatial.procrustes(X, Y[:, :5])[2]
    )
    padded = np.concatenate([X, np.zeros((len(X), 3))], axis=1)
    assert metrics.procrustes(X, Y) == pytest.approx(scipy.spatial.procrustes(padded, Y)[2])


@pytest.mark.parametrize("metric", UNDER_ROTATION, ids=lambda metric: metric.__name__)
def test_agreement_ignores_rotation_and_scale(metric):
    rotation = np.linalg.qr(np.random.default_rng(0).standard_normal((5, 5)))[0]
    truth = value(metric(X, Y))
    assert value(metric(1e200 * (X @ rotation), 1e-200 * Y)) == pytest.approx(truth, abs=1e-9)
    assert value(metric(Y, X)) == pytest.approx(truth, abs=1e-9)
    if metric is not metrics.rsa:
        assert value(metric(X + 5, Y)) == pytest.approx(truth, abs=1e-9)


def test_only_cca_similarity_ignores_a_rescaling():
    scales = np.array([1, 2, 4, 8, 50.0])
    for metric in SYMMETRIC:
        change = abs(value(metric(X * scales, Y)) - value(metric(X, Y)))
        assert (change < 1e-9) == (metric is metrics.cca_similarity), metric.__name__


@pytest.mark.parametrize("metric", SYMMETRIC, ids=lambda metric: metric.__name__)
def test_agreement_refuses_incomparable_embeddings(metric):
    with pytest.raises(ValueError, match=r"second must be as long as first \(3\), got 2"):
        metric(np.eye(3), np.eye(2))
    with pytest.raises(ValueError, match=r"second must have different (rows|cosines), got"):
        metric(np.arange(8.0).reshape(4, 2), np.full((4, 2), 0.1))
    with pytest.raises(ValueError, match=r"first must have different (rows|cosines), got"):
        metric(np.full((4, 2), 0.1), np.arange(8.0).reshape(4, 2))


def test_spearman_of_cosines_that_are_all_alike_is_refused():
    alike, other = np.full((4, 2), 0.5), [[1, 0], [0, 1], [1, 1], [1, 2]]
    for name, pair in (("first", (alike, other)), ("second", (other, alike))):
        with pytest.raises(ValueError, match=f"{name} must have different cosines, got"):
            metrics.rsa(*pair, method="spearman")


def test_model_change_refuses_mismatched_factors():
    wide, narrow = np.ones((3, 4)), np.ones((3, 2))
    with pytest.raises(ValueError, match="first_items must have as many columns as first_users"):
        metrics.model_change(wide, narrow, wide, wide)
    with pytest.raises(ValueError, match="second_items must have as many columns as second_users"):
        metrics.model_change(wide, wide, narrow, wide)


def test_model_change_equals_dense_norm():
    random = np.random.default_rng(4)
    P1, Q1 = random.standard_normal((30, 4)), random.standard_normal((20, 4))
    P2, Q2 = random.standard_normal((30, 6)), random.standard_normal((20, 6))
    result = metrics.model_change(P1, Q1, P2, Q2)
    assert result.value == pytest.approx(np.linalg.norm(P1 @ Q1.T - P2 @ Q2.T))
    assert result.relative == pytest.approx(result.value / np.linalg.norm(P1 @ Q1.T))
    G = random.standard_normal((4, 4))
    # Both models make the same predictions, so the true change is 0. The computed change must be no
    # larger than a rounding error. The square root of a rounding error would be much larger.
    assert metrics.model_change(P1, Q1, P1 @ G, Q1 @ np.linalg.inv(G).T).relative < 1e-13


def test_model_change_of_zero_models():
    zero, one = np.zeros((3, 2)), np.ones((3, 2))
    assert metrics.model_change(zero, zero, zero, zero) == (0, 0)
    assert metrics.model_change(zero, zero, one, one) == (pytest.approx(6), math.inf)


@pytest.mark.parametrize("k", [1, 5, 12])
def test_trustworthiness_equals_scikit_learn(k):
    U, V = oracles.unit(X), oracles.unit(Y)
    trust = metrics.trustworthiness(X, Y, k=k)
    assert trust.trustworthiness == pytest.approx(
        sklearn_trustworthiness(U, V, n_neighbors=k), abs=1e-12
    )
    assert trust.continuity == pytest.approx(
        sklearn_trustworthiness(V, U, n_neighbors=k), abs=1e-12
    )


@pytest.mark.parametrize("n", [7, 8])
def test_trustworthiness_requires_k_below_half(n):
    assert metrics.trustworthiness(X[:n], X[:n], k=3) == (1, 1, 0)
    with pytest.raises(ValueError, match="k must be a whole number from 1 to 3, got 4"):
        metrics.trustworthiness(X[:n], X[:n], k=4)


def test_trustworthiness_ranks_ties_by_index():
    rows, _ = oracles.signs(1, n=40)
    other, _ = oracles.signs(2, n=40)
    rows[5] = 0
    keep = np.delete(np.arange(40), 5)
    tables = [oracles.cosines(Z[keep]) for Z in (rows, other)]
    k, n, orders = 4, 39, []
    for table in tables:
        orders.append([oracles.ranked(table[i], i) for i in range(n)])
    worst = n * k * (2 * n - 3 * k - 1)

    def score(truth, seen):
        excess = sum(max(truth[i].index(j) + 1 - k, 0) for i in range(n) for j in seen[i][:k])
        return 1 - 2 * excess / worst

    trust = metrics.trustworthiness(rows, other, k=k)
    assert trust == pytest.approx((score(*orders), score(*orders[::-1]), 1), abs=1e-14)


@pytest.mark.parametrize("n_threads", [2, 3, 8])
def test_trustworthiness_is_bit_identical_over_threads(n_threads):
    P, Q = embeddings(3, n=300)
    assert metrics.trustworthiness(P, Q, n_threads=n_threads) == metrics.trustworthiness(
        P, Q, n_threads=1
    )


def test_padding_of_lists_is_no_item():
    exact = np.array([[1, 2, 3, 4], [5, 6, 7, 8], [1, 2, -1, -1], [-1, -1, -1, -1], [1, 2, 3, 4]])
    result = np.array([[1, 2, -1, -1], [-1, -1, 5, 6], [2, 1, -1, -1], [-1, -1, -1, -1], [-1] * 4])
    overlaps, jaccards = [0.5, 0.5, 1.0, 1.0, 0.0], [0.5, 0.5, 1.0, 1.0, 0.0]
    assert metrics.overlap_at_k(exact, result) == pytest.approx(np.mean(overlaps))
    assert metrics.jaccard_at_k(exact, result) == pytest.approx(np.mean(jaccards))
    for lists, other, overlap in zip(exact, result, overlaps, strict=True):
        assert metrics.overlap_at_k([lists], [other]) == overlap
        assert metrics.overlap_at_k([other], [lists]) == overlap
    assert metrics.rank_biased_overlap(exact[4:], result[4:]).value == 0
    assert 0 < metrics.rank_biased_overlap(exact[:1], result[:1]).value < 1


def test_recall_of_filtered_answers_is_that_of_their_items():
    X = np.random.default_rng(0).standard_normal((60, 5))
    exact = top_k(X, k=10, min_score=0.5).indices
    assert (exact == -1).any()
    assert metrics.overlap_at_k(exact, exact) == 1
