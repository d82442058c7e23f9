"""Tests of leaderboards: the scores of candidates on tasks, their intervals, and conclusions."""

import math

import numpy as np
import pytest
import scipy.stats
from sklearn.metrics import roc_auc_score

from fastcos import (
    LinearMF,
    compare,
    compare_vectors,
    get_measure,
    list_measures,
    metrics,
    set_config,
    top_k,
)
from fastcos.comparison import Candidate, bootstrap, scoring
from fastcos.comparison.candidates import Embeddings, select_candidates
from fastcos.comparison.tasks import rated_pairs
from fastcos.comparison.tasks.held_out import HeldOutTask
from fastcos.comparison.tasks.label_recovery import LabelTask
from fastcos.similarity import BaseMeasure, register
from fastcos.similarity.base import REGISTRY
from fastcos.similarity.row_transforms import pair_scores
from tests.comparison.test_compare import clustered_interactions
from tests.oracles import metrics as oracles


def blobs(n=120, d=6, n_labels=4, spread=1.0, seed=0):
    """Return labelled rows around centres; all are far from the origin, so centring helps."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, n_labels, n)
    centres = random.standard_normal((n_labels, d))
    return centres[labels] + spread * random.standard_normal((n, d)) + 4, labels


def every_candidate(rows):
    result, _ = select_candidates(None, Embeddings(rows))
    return result


@pytest.mark.parametrize("candidate", every_candidate(blobs()[0]), ids=lambda one: one.name)
def test_scoring_matches_top_k(candidate):
    rows, _ = blobs(40)
    result = top_k(rows, k=39, measure=candidate.make(Embeddings(rows)))
    fitted = candidate.make(Embeddings(rows)).fit(rows)
    every = np.arange(40)
    table = np.concatenate(
        [block for _, block in scoring.raw_score_blocks(fitted, rows, every, every)]
    )
    ranked = np.take_along_axis(table, result.indices, axis=1)
    steps = ranked[:, 1:] - ranked[:, :-1]
    # Rounding may exchange items with equal raw scores.
    assert steps.max() <= 1e-9 * np.abs(table).max()
    pairs = np.stack([np.arange(40), result.indices[:, 5]], axis=1)
    scores = pair_scores(fitted, rows, pairs)
    np.testing.assert_allclose(scores, result.scores[:, 5], rtol=1e-5, atol=1e-6)


def test_label_task_matches_map_at_r_and_scikit_learn():
    rows, labels = blobs()
    question = LabelTask(labels, np.full(len(rows), True), np.random.default_rng(0))
    [cosine] = [one for one in every_candidate(rows) if one.name == "cosine"]
    result = question.score(cosine, Embeddings(rows))
    assert question.queries.tolist() == list(range(len(rows)))
    assert result.map_at_r.mean() == pytest.approx(metrics.map_at_r(rows, labels).value)
    unit = rows / np.linalg.norm(rows, axis=1)[:, None]
    for i in (0, 7, 60):
        others = np.arange(len(rows)) != i
        truth = roc_auc_score(labels[others] == labels[i], (unit @ unit[i])[others])
        assert result.auc[i] == pytest.approx(truth, abs=1e-12)


def test_weighted_spearman_matches_scipy_on_repeats():
    random = np.random.default_rng(0)
    x, y = random.integers(0, 9, 60).astype(float), random.standard_normal(60)
    y += 0.2 * x
    weights = random.integers(0, 4, (5, 60)).astype(float)
    groups = [rated_pairs.tie_groups(values) for values in (x, y, -x, np.ones(60))]
    result = rated_pairs.weighted_spearman(groups[0], groups[1:], weights)
    for row, repeats in zip(result, weights.astype(int), strict=True):
        again = np.repeat(np.arange(60), repeats)
        truth = scipy.stats.spearmanr(x[again], y[again]).statistic
        assert row == pytest.approx([truth, -1, 0], abs=1e-12)


def test_correlations_of_ratings_do_not_depend_on_blocks_of_samples(monkeypatch):
    random = np.random.default_rng(0)
    scores = [rated_pairs.tie_groups(random.integers(0, 9, 60)) for _ in range(3)]
    task = rated_pairs.PairTask(random.integers(0, 20, (60, 2)), random.random(60))
    weights = random.integers(0, 4, (50, 60)).astype(float)
    expected = task.evaluation(scores).estimate(weights, [0, 2])
    for entries in (1, 1000, 3000):
        monkeypatch.setattr(rated_pairs, "MAX_ENTRIES", entries)
        result = task.evaluation(scores).estimate(weights, [0, 2])
        np.testing.assert_array_equal(result, expected)


def evaluation_of(values, chance):
    estimate = bootstrap.mean_estimate(values)
    trivial = bootstrap.mean_estimate(chance[None])
    return bootstrap.Evaluation(
        "what", "units", values.shape[1], "score", estimate, "No measure does", trivial
    )


def ranked(values, chance):
    candidates = [Candidate(f"m{c}") for c in range(len(values))]
    evaluation = evaluation_of(values, chance)
    return bootstrap.rank(evaluation, candidates, {}, np.random.default_rng(0))


def test_rank_intervals_match_scipy_bootstrap():
    random = np.random.default_rng(1)
    base = random.random(300)
    values = np.stack([base, base + 0.1 * random.standard_normal(300) + 0.02])
    result = ranked(values, np.zeros(300)).row(Candidate("m1"))
    for interval, sample in ((result.score, values[1]), (result.gain, values[1] - values[0])):
        truth = scipy.stats.bootstrap(
            (sample,), np.mean, n_resamples=4000, method="percentile", rng=0
        ).confidence_interval
        width = truth.high - truth.low
        assert interval.value == pytest.approx(sample.mean())
        assert interval.low == pytest.approx(truth.low, abs=0.1 * width)
        assert interval.high == pytest.approx(truth.high, abs=0.1 * width)


@pytest.mark.slow
def test_rank_does_not_recommend_the_luckiest_of_many():
    wrong = 0
    for seed in range(20):
        values = np.random.default_rng(seed).standard_normal((20, 100)) + 5
        result = ranked(values, np.zeros(100))
        # By chance, the best of the 20 candidates looks better than the baseline.
        assert result.rows[0].gain.value > 0
        wrong += result.recommended != result.baseline
    assert wrong <= 3


@pytest.mark.slow
def test_rank_finds_a_real_lead_and_tests_chance():
    random = np.random.default_rng(2)
    values = random.standard_normal((5, 400))
    values[3] += 1
    result = ranked(values, np.full(400, -0.5))
    assert result.recommended == Candidate("m3")
    assert result.gain.low > 0
    assert result.conclusion.startswith("Use m3: score ")
    none = ranked(values - 2, np.zeros(400))
    assert not none.beats_chance
    assert none.recommended is None
    assert none.conclusion.startswith("No measure does. The best of 5 candidates has score -1.")
    assert " for m3, compared with 0.000 by chance (the lead is " in none.conclusion


def test_label_task_of_some_items_ranks_no_others():
    rng = np.random.default_rng(4)
    rows, labels = rng.standard_normal((90, 4)), rng.integers(0, 3, 90)
    sample = LabelTask(labels, np.full(90, True), rng, 30)
    assert len(sample.queries) == 30
    others = ~np.isin(np.arange(90), sample.queries)
    same = LabelTask(np.where(others, -1, labels), np.full(90, True), rng)
    result, expected = (
        task.score(Candidate("cosine"), Embeddings(rows)) for task in (sample, same)
    )
    for one, other in zip(result[:-1], expected[:-1], strict=True):
        np.testing.assert_array_equal(one, other)
    for one, other in zip(result.ranking, expected.ranking, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
def test_label_task_draws_queries_per_label_and_weights_them():
    rng = np.random.default_rng(4)
    # Of the 2,400 items, 100 have label 1.
    rows, labels = rng.standard_normal((2400, 4)), np.arange(2400) % 24 // 23
    task = LabelTask(labels, np.full(2400, True), rng)
    assert np.bincount(labels[task.queries]).tolist() == [900, 100]
    result = task.score(Candidate("cosine"), Embeddings(rows))
    mean = task.evaluation([result]).estimate(np.ones((1, 1000)), [0])[0, 0]
    of_label = [result.map_at_r[labels[task.queries] == label].mean() for label in (0, 1)]
    assert mean == pytest.approx((2300 * of_label[0] + 100 * of_label[1]) / 2400)


def test_label_task_precision_counts_ties_in_part():
    random = np.random.default_rng(4)
    rows, labels = blobs(60)
    rows[20:40] = rows[5]  # these items are equally near to each other and to any other item
    task = LabelTask(labels, np.full(60, True), random)
    [cosine] = [one for one in every_candidate(rows) if one.name == "cosine"]
    result = task.score(cosine, Embeddings(rows)).precision
    unit = rows / np.linalg.norm(rows, axis=1)[:, None]
    for i in (0, 5, 22, 59):
        shares = []
        for _ in range(400):  # ties in random order
            scores = np.round(unit @ unit[i], 9) + 1e-10 * random.random(60)
            scores[i] = -2
            shares.append((labels[np.argsort(-scores)[:10]] == labels[i]).mean())
        assert result[i] == pytest.approx(np.mean(shares), abs=0.02)


@pytest.mark.slow
def test_rare_labels_are_recovered_per_class():
    """A rare label can count as recovered even if it never wins a vote of ten neighbours.

    Here, the rare label belongs to 2 % of the items, which are close to each other.
    """
    random = np.random.default_rng(5)
    rows = random.standard_normal((600, 16))
    rare = np.arange(600) < 12
    rows[rare] += 1.2 * random.standard_normal(16)
    labels = np.where(rare, "rare", "other")
    comparison = compare_vectors(rows, labels, measures=["dot"])
    assert comparison.beats_chance
    assert "better than by chance locally (precision@10 per class" in comparison.conclusion
    assert comparison.rows[0].other_scores["accuracy"] < 0.99
    base = (11 / 599 + 587 / 599) / 2
    assert comparison.chance_level["precision@10 per class"] == pytest.approx(base, abs=0.01)


@pytest.mark.slow
def test_labels_of_scattered_groups_are_recovered_locally():
    """Labels of scattered groups are recovered among neighbours.

    Each label has 30 groups, so two items of one label are on average no closer than two items of
    different labels.
    """
    random = np.random.default_rng(6)
    groups = np.arange(1200) % 60
    labels = groups % 2
    centres = random.standard_normal((60, 8))
    rows = 3 * centres[groups] + 0.5 * random.standard_normal((1200, 8))
    comparison = compare_vectors(rows, labels, measures=["cosine"])
    assert comparison.beats_chance
    sentence = comparison.conclusion.partition(". The labels are recovered better than by chance ")[
        2
    ]
    assert comparison.rows[0].other_scores["P@10"] > 0.9
    assert abs(comparison.rows[0].other_scores["AUC"] - 0.5) < 0.05
    assert sentence.startswith("locally (precision@10 per class 0.9")


@pytest.mark.long
def test_shuffled_labels_are_rarely_accepted():
    accepted = 0
    for seed in range(100):
        random = np.random.default_rng(seed)
        rows, _ = blobs(500, d=10, seed=seed)
        sizes = ([10, 490], [20, 480], [125] * 4)[seed % 3]
        labels = random.permutation(np.repeat(np.arange(len(sizes)), sizes))
        accepted += compare_vectors(rows, labels, measures=["dot", "centered_cosine"]).beats_chance
    # At a level of 0.5 %, one test in 200 is significant by chance, on average.
    assert accepted <= 2


@pytest.mark.slow
def test_compare_vectors_recommends_centring():
    rows, labels = blobs()
    comparison = compare_vectors(rows, labels)
    assert comparison.beats_chance
    assert comparison.recommended is not None
    assert comparison.row(Candidate("centered_cosine")).gain.low > 0
    elsewhere = ("rescaled_cosine", "eq2_cosine", "user_item", "project_back_users")
    names = {row.candidate.measure for row in comparison.rows} | set(comparison.left_out)
    assert names == {name for name in list_measures() if not name.startswith(elsewhere)}


@pytest.mark.slow
def test_compare_vectors_rejects_shuffled_labels():
    rows, labels = blobs()
    shuffled = np.random.default_rng(0).permutation(labels)
    comparison = compare_vectors(rows, shuffled)
    assert not comparison.beats_chance
    assert comparison.recommended is None
    assert comparison.conclusion.startswith("No measure recovers these labels significantly ")


@pytest.mark.slow
def test_compare_vectors_finds_the_measure_of_ratings():
    rows, _ = blobs(200, d=8)
    random = np.random.default_rng(0)
    pairs = random.integers(0, 200, (500, 2))
    centred = rows - rows.mean(axis=0)
    centred /= np.linalg.norm(centred, axis=1)[:, None]
    ratings = (centred[pairs[:, 0]] * centred[pairs[:, 1]]).sum(axis=1)
    comparison = compare_vectors(rows, pairs=(pairs, ratings))
    assert comparison.rows[0].candidate.measure in ("centered_cosine", "zscore_cosine")
    assert comparison.row(Candidate("centered_cosine")).score.value == pytest.approx(1.0)
    nothing = compare_vectors(rows, pairs=(pairs, random.permutation(ratings)), measures=["dot"])
    assert nothing.conclusion.startswith("No measure agrees with these ratings")


@pytest.mark.slow
def test_compare_without_labels_ranks_by_ndcg():
    X, _ = clustered_interactions(600, 80)
    chosen = ["dot", "whitened_cosine", "user_item_dot"]
    arguments = {"n_components": 6, "measures": chosen, "grid": False}
    leaderboard = compare(X, **arguments).leaderboard
    assert leaderboard.score == "NDCG@20"
    names = {row.candidate.measure for row in leaderboard.rows}
    assert names == {"cosine", "most popular items", *chosen}
    assert leaderboard.n_units > 500
    assert 0 < leaderboard.chance_level["NDCG@20"] < 1
    assert leaderboard.rows == compare(X, **arguments).leaderboard.rows


def test_held_out_task_hides_interactions():
    X, _ = clustered_interactions(600, 80)
    known = HeldOutTask.split(X, np.random.default_rng(0)).training_X
    assert 0.7 * X.nnz < known.nnz < 0.9 * X.nnz
    assert (X - known).min() == 0  # The known interactions are part of X.


@pytest.mark.slow
def test_compare_counts_popularity_without_held_out():
    X, clusters = clustered_interactions()
    counted = []

    class Counting(BaseMeasure):
        """A measure whose constructor records the popularities that it receives."""

        name = "counting_for_a_test"
        needs = "popularity"

        def __init__(self, popularity=None):
            counted.append(popularity)

    register(Counting)
    try:
        for labels in (None, clusters):
            compare(X, labels, n_components=6, objective="dropout", rescalings=["identity"],
                    measures=["counting_for_a_test"], grid=False)  # fmt: skip
    finally:
        del REGISTRY["counting_for_a_test"]
    assert 0.7 * X.nnz < counted[0].sum() < 0.9 * X.nnz
    assert counted[-1].sum() == X.nnz


@pytest.mark.slow
def test_compare_evaluates_user_item_scores_once():
    X, _ = clustered_interactions(600, 80)
    comparison = compare(X, n_components=6, measures=["user_item_dot"], grid=False)
    rows = [r for r in comparison.leaderboard.rows if r.candidate.measure == "user_item_dot"]
    assert sorted(row.candidate.rescaling for row in rows) == ["eq2", "identity"]


def test_held_out_task_votes_of_users_match_numpy():
    """The held-out scores of project_back_users are the same as those of plain NumPy code."""
    X, _ = clustered_interactions(150, 40)
    question = HeldOutTask.split(X, np.random.default_rng(0))
    model = LinearMF(6, random_state=0).fit(question.training_X)
    embeddings = Embeddings(model.item_embeddings(), model=model, X=question.training_X)
    _, candidate = select_candidates(["project_back_users"], embeddings, with_users=True)[0]
    result = question.score(candidate, embeddings)
    predicted = model.user_embeddings(question.training_X) @ model.item_embeddings().T
    norms = np.linalg.norm(predicted, axis=1)[:, None]
    predicted /= np.where(norms > 0, norms, 1)
    alike, known = predicted @ predicted.T, question.training_X.toarray()
    held = X.toarray() - known
    for place, user in enumerate(question.users):
        others = [v for v in np.argsort(-alike[user], kind="stable") if v != user][:20]
        votes = sum(known[v] / np.log2(2 + rank) for rank, v in enumerate(others))
        votes[known[user] > 0] = -1
        best = [j for j in np.argsort(-votes, kind="stable")[:20] if votes[j] > 0]
        hits = held[user, best].sum() / min(20, held[user].sum())
        assert result.recall[place] == pytest.approx(hits)


@pytest.mark.slow
def test_compare_without_labels_takes_all_measures():
    X, _ = clustered_interactions(300, 40)
    leaderboard = compare(
        X, n_components=6, rescalings=["identity"], objective="dropout", grid=False
    ).leaderboard
    names = {row.candidate.measure for row in leaderboard.rows} | set(leaderboard.left_out)
    measures = {name for name in list_measures() if not name.startswith(("rescaled", "eq2"))}
    assert names == {*measures, "most popular items"}
    assert set(leaderboard.left_out) == {"learned_diagonal", "soft_cosine"}


@pytest.mark.parametrize("name", ["project_back_users", "user_item_dot", "user_item_cosine"])
def test_compare_by_labels_refuses_measures_of_users(name):
    X, clusters = clustered_interactions()
    message = f"measures must compare items with each other, got {name}, which scores users"
    with pytest.raises(ValueError, match=message):
        compare(X, clusters, n_components=6, measures=[name])
    with pytest.raises(ValueError, match=message):
        compare_vectors(*blobs(), measures=[name])


@pytest.mark.slow
def test_compare_evaluates_each_rescaling_once():
    X, clusters = clustered_interactions()
    leaderboard = compare(
        X, clusters, n_components=6, measures=["csls", "whitened_cosine"], grid=False
    ).leaderboard
    under = {}
    for row in leaderboard.rows:
        under.setdefault(row.candidate.measure, set()).add(row.candidate.rescaling)
    assert len(under["csls"]) == len(under["cosine"]) == 7
    assert under["whitened_cosine"] == {"identity", "eq2"}
    assert leaderboard.baseline == Candidate("cosine", "identity")


@pytest.mark.slow
def test_compare_eq2_cosine_is_the_cosine_under_eq2():
    X, clusters = clustered_interactions()
    leaderboard = compare(
        X, clusters, n_components=6, measures=["eq2_cosine"], grid=False
    ).leaderboard
    scores = {row.candidate: row.score.value for row in leaderboard.rows}
    of_eq2 = scores[Candidate("cosine", "eq2")]
    assert scores[Candidate("eq2_cosine", "identity")] == pytest.approx(of_eq2, abs=1e-6)
    assert scores[Candidate("eq2_cosine", "eq2")] == pytest.approx(of_eq2, abs=1e-6)
    assert abs(of_eq2 - scores[leaderboard.baseline]) > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("labelled", [True, False])
def test_compare_without_a_model_compares_columns(labelled):
    X, clusters = clustered_interactions()
    X.data = np.random.default_rng(0).uniform(1, 2, X.nnz)  # cosines without ties
    comparison = compare(
        X, clusters if labelled else None, n_components=6, measures="default",
        rescalings=["identity"], grid=False,
    )  # fmt: skip
    rows = {row.candidate.measure: row for row in comparison.leaderboard.rows
            if row.candidate.rescaling == "no model"}  # fmt: skip
    assert set(rows) == {"cosine", "layer_norm_cosine"}
    assert str(rows["cosine"].candidate) == "cosine with no model"
    if not labelled:
        return
    columns = X.toarray().T
    seen = columns.any(axis=1)
    for name, scores in (
        ("cosine", lambda C: C @ C.T / np.outer(*[np.linalg.norm(C, axis=1)] * 2)),
        ("layer_norm_cosine", np.corrcoef),
    ):
        table = scores(columns[seen].astype(np.float64))
        aucs = []
        for i, own in enumerate(clusters[seen]):
            others = np.arange(seen.sum()) != i
            aucs.append(oracles.auc(table[i, others], clusters[seen][others] == own))
        assert rows[name].other_scores["AUC"] == pytest.approx(np.mean(aucs), abs=1e-6)
    assert not any(
        row.candidate.rescaling == "no model"
        for row in compare(
            X, clusters, n_components=6, measures=["dot"], rescalings=["identity"]
        ).leaderboard.rows
    )


@pytest.mark.slow
def test_columns_that_exceed_the_working_memory_are_left_out():
    X, clusters = clustered_interactions()
    enough = 32 * X.shape[0] * X.shape[1] / 2**20
    names = {"cosine with no model", "layer_norm_cosine with no model"}
    for memory, is_enough in ((enough, True), (0.99 * enough, False)):
        set_config(working_memory=memory)
        leaderboard = compare(
            X, clusters, n_components=6, measures="default", rescalings=["identity"], grid=False
        ).leaderboard
        compared = {str(row.candidate) for row in leaderboard.rows}
        assert names & compared == (names if is_enough else set())
        reasons = {name: leaderboard.left_out[name] for name in names & {*leaderboard.left_out}}
        reason = f"a working_memory of at least {math.ceil(enough)} MiB"
        assert reasons == ({} if is_enough else dict.fromkeys(names, reason))


@pytest.mark.slow
def test_compare_fits_a_model_per_preprocessing():
    X, clusters = clustered_interactions()
    steps = ["standardize_columns", "center_rows", "double_center", "ips_columns", "shifted_ppmi"]
    leaderboard = compare(
        X, clusters, n_components=6, measures=["cosine"], preprocessing=steps, grid=False
    ).leaderboard
    assert {row.candidate.preprocessing for row in leaderboard.rows} == {"none", *steps}
    assert len({round(row.score.value, 12) for row in leaderboard.rows}) > 20


@pytest.mark.slow
def test_compare_takes_measure_objects():
    X, clusters = clustered_interactions()
    S = get_measure("soft_cosine", matrix=np.diag([4.0, 3, 2, 1, 1, 1]))
    leaderboard = compare(X, clusters, n_components=6, measures=[S], grid=False).leaderboard
    assert {row.candidate.measure for row in leaderboard.rows} == {"cosine", "soft_cosine"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"labels": None}, "one of labels, pairs and held_out must be given, got none"),
        ({"measures": ["cos"]}, "measures must be the name of a measure, got 'cos'"),
        ({"measures": ["soft_cosine"]}, "measure 'soft_cosine' requires matrix or features"),
        ({"labels": [0] * 120}, "labels must have at least two different values"),
        ({"labels": None, "pairs": ([[0, 500], [1, 2]], [1, 2])}, "pairs must be below 120"),
        ({"labels": None, "pairs": ([[0, 5], [1, 2]], [1, 1])}, "ratings must have two different"),
        ({"random_state": -1}, "random_state must be a whole number of at least 0, got -1"),
    ],
)
def test_compare_vectors_refuses_wrong_arguments(arguments, message):
    rows, labels = blobs()
    with pytest.raises(ValueError, match=message):
        compare_vectors(rows, **{"labels": labels, **arguments})


@pytest.mark.parametrize(("n", "outcomes"), [(3, 3), (4, 3), (10, 126), (12, 462)])
def test_compare_refuses_labels_too_few_for_a_test(n, outcomes):
    """Labels must have enough distinct permutations for a test.

    If two equally frequent labels are exchanged, the same items share a label as before, so this is
    no new permutation. For example, two labels with 6 items each have 924 permutations, of which
    only 462 are distinct.
    """
    rows, few = blobs()[0], np.full(120, -1)
    X = np.abs(np.random.default_rng(0).standard_normal((200, 120)))
    few[:n] = np.arange(n) % 2
    refused = f"labels must have at least 600 distinct permutations, got {outcomes}"
    with pytest.raises(ValueError, match=f"{refused} with {n} labelled items. Label more items"):
        compare_vectors(rows, np.where(few < 0, None, few), measures=["dot"])
    with pytest.raises(ValueError, match=refused):
        compare(X, np.where(few < 0, None, few), n_components=3, measures=["dot"])
    few[:13] = np.arange(13) % 2  # 1716
    assert compare_vectors(rows, np.where(few < 0, None, few), measures=["dot"]).n_units == 13


def test_compare_refuses_wrong_preprocessing():
    X, clusters = clustered_interactions()
    with pytest.raises(ValueError, match=r"preprocessing must be one of none, .*, got 'tfidf'"):
        compare(X, clusters, n_components=6, preprocessing=["tfidf"])


@pytest.mark.slow
def test_compare_vectors_identical_on_one_and_two_threads(monkeypatch):
    rows, labels = blobs()
    two = compare_vectors(rows, labels)
    monkeypatch.setenv("FASTCOS_N_THREADS", "1")
    one = compare_vectors(rows, labels)
    assert [row.candidate for row in one.rows] == [row.candidate for row in two.rows]
    assert [row.score for row in one.rows] == [row.score for row in two.rows]


@pytest.mark.slow
def test_rank_names_what_is_not_distinguishable():
    random = np.random.default_rng(7)
    values = random.standard_normal((5, 400))
    values[1:4] += 1
    values[2] = values[1] + 0.01 * random.standard_normal(400)  # equal but for noise
    values[3] -= 0.6
    result = ranked(values, np.full(400, -0.5))
    best, other = sorted(("m1", "m2"), key=lambda name: -result.row(Candidate(name)).score.value)
    assert result.recommended == Candidate(best)
    assert result.not_distinguishable == [Candidate(other)]
    assert result.conclusion.endswith(f" These candidates are not significantly worse: {other}.")
    # On a narrow terminal, a table is split, so the heading of each column must be unique.
    (table,) = result.sections()[0].tables
    assert len(set(table.header)) == len(table.header)
    assert not ranked(values - 3, np.zeros(400)).not_distinguishable


@pytest.mark.slow
def test_held_out_users_are_many_or_all_and_few_are_reported():
    for n_users in (300, 650):
        X, _ = clustered_interactions(n_users)
        arguments = {"n_components": 4, "measures": ["dot"], "grid": False}
        able = compare(X, **arguments).leaderboard.n_units
        leaderboard = compare(X, **arguments, n_sampled=2).leaderboard
        assert leaderboard.n_units == min(able, 500)
        few = f"Only {leaderboard.n_units} users were evaluated"
        assert leaderboard.conclusion.startswith(few) == (leaderboard.n_units < 500)
