import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.metrics import roc_auc_score
from sklearn.metrics.pairwise import cosine_similarity

from fastcos import Rescaling, compare, metrics, top_k
from fastcos.comparison import EQ2

N_ITEMS, RANK = 60, 12


def clustered_interactions(n_users=400, n_items=N_ITEMS, n_clusters=3, seed=0):
    """Return binary interactions and the clusters of the items; most users prefer one cluster.

    Item 5 has no interactions.
    """
    rng = np.random.default_rng(seed)
    clusters = rng.integers(0, n_clusters, n_items)
    taste = rng.dirichlet(np.full(n_clusters, 0.3), n_users)
    popularity = 0.9 * rng.random(n_items) ** 2
    X = (rng.random((n_users, n_items)) < taste[:, clusters] * popularity).astype(np.float32)
    X[:, 5] = 0
    return sp.csr_array(X), clusters


@pytest.fixture(scope="module")
def data():
    return clustered_interactions()


@pytest.fixture(scope="module")
def comparison(data):
    X, clusters = data
    return compare(X, clusters, n_components=RANK, regularization=30.0, measures=["dot"])


def auc_by_scikit_learn(rows, labels):
    """Return the pairwise AUC over all pairs, from the full matrix of cosines."""
    is_active = rows.any(axis=1)
    rows, labels = rows[is_active].astype(np.float64), labels[is_active]
    upper = np.triu_indices(len(rows), 1)
    same = labels[:, None] == labels[None, :]
    return roc_auc_score(same[upper], cosine_similarity(rows)[upper])


def test_compare_auc_matches_scikit_learn(comparison, data):
    _, clusters = data
    for row in [*comparison.named, *comparison.grid]:
        truth = auc_by_scikit_learn(comparison.item_embeddings(row), clusters)
        assert row.pair_auc == pytest.approx(truth, abs=1e-6), row.name
        assert row.pair_auc_low <= truth + 1e-12
        assert row.pair_auc_high >= truth - 1e-12


def test_compare_reports_the_stratified_auc(comparison, data):
    X, clusters = data
    popularity = np.asarray((X != 0).sum(axis=0)).ravel()
    for row in comparison.named:
        items = comparison.item_embeddings(row)
        truth = metrics.stratified_auc(items, clusters, popularity).value
        assert row.stratified_auc == pytest.approx(truth, abs=1e-12)


def test_compare_rescalings_share_predictions(comparison, data):
    X, _ = data
    model = comparison.models["dropout"]
    predictions = [
        model.user_embeddings(X, row.rescaling) @ model.item_embeddings(row.rescaling).T
        for row in comparison.named
        if row.rescaling is not None
    ]
    for other in predictions[1:]:
        np.testing.assert_allclose(other, predictions[0], atol=1e-4)
    assert comparison.auc_range() > 0.05
    assert comparison.auc_range(grid=True) > comparison.auc_range()


def test_compare_named_rows_end_with_eq2(comparison):
    names = [row.name for row in comparison.named]
    assert names[0] == "identity"
    assert names[-1] == EQ2
    assert comparison.named[0].jaccard_at_10 == 1.0
    assert {row.objective for row in comparison.grid} == {"dropout"}


def test_compare_neighbours_match_the_full_matrix(comparison):
    row = comparison.named[1]
    cosines = cosine_similarity(comparison.item_embeddings(row).astype(np.float64))
    np.fill_diagonal(cosines, -np.inf)
    truth = np.sort(cosines, axis=1)[:, ::-1][:, :10]
    result = np.take_along_axis(cosines, comparison.neighbors[row.name], axis=1)
    np.testing.assert_allclose(result, truth, atol=1e-6)


def test_compare_counts_items_without_interactions(comparison):
    assert all(row.zero_items >= 1 for row in comparison.named)
    assert comparison.popularity[5] == 0
    for row in comparison.named:
        assert all(value == value for value in vars(row).values() if isinstance(value, float))


@pytest.mark.slow
def test_compare_leaves_out_items_without_a_label(data):
    X, clusters = data
    labels = [None if i % 3 == 0 else f"c{c}" for i, c in enumerate(clusters)]
    chosen = {"n_components": RANK, "regularization": 30.0, "measures": ["cosine"]}
    partial = compare(X, labels, **chosen, grid=False)
    is_labelled = np.array([label is not None for label in labels])
    assert partial.parameters["n_labelled"] == is_labelled.sum()
    for row in partial.named:
        truth = auc_by_scikit_learn(
            partial.item_embeddings(row)[is_labelled], clusters[is_labelled]
        )
        assert row.pair_auc == pytest.approx(truth, abs=1e-6)


def test_compare_without_labels_fills_other_columns(data):
    chosen = {"n_components": RANK, "regularization": 30.0, "measures": ["cosine"]}
    bare = compare(data[0], **chosen, grid=False)
    for row in bare.named:
        assert row.pair_auc is None
        assert row.silhouette is None
        assert row.effective_rank > 1
        assert 0 <= row.jaccard_at_10 <= 1
    assert bare.auc_range() is None


def test_compare_default_strengths_share_a_knee(data):
    parameters = compare(data[0], n_components=RANK, measures=["cosine"], grid=False).parameters
    assert parameters["weight_decay"] == pytest.approx(np.sqrt(parameters["regularization"]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("objective", "names"), [("dropout", {"identity", "mine"}), ("weight_decay", {EQ2})]
)
def test_compare_objective_and_rescalings_choose_rows(data, objective, names):
    mine = Rescaling(shrinkage=0.25)
    X, clusters = data
    chosen = compare(
        X,
        clusters,
        n_components=RANK,
        regularization=30.0,
        objective=objective,
        rescalings=["identity", mine],
        measures=["cosine"],
    )
    results = {"mine" if row.rescaling == mine else row.name for row in chosen.named}
    assert results == names
    assert bool(chosen.grid) == (objective == "dropout")


@pytest.mark.slow
@pytest.mark.parametrize("k", [1, 5])
def test_compare_leaves_a_column_to_eq2(data, k):
    """With few components, the default regularisation depends on the first singular value."""
    result = compare(*data, n_components=k, measures=["cosine"], grid=False)
    assert result.models["weight_decay"].effective_rank_ >= 1
    assert 0 <= result.named[-1].pair_auc <= 1


def test_compare_progress_ends_at_its_total(data):
    seen = []
    compare(
        data[0], n_components=3, measures=["dot"],
        progress=lambda done, total: seen.append((done, total)),
    )  # fmt: skip
    start = max(i for i, (done, _) in enumerate(seen) if done == 0)
    factorised, evaluated = seen[:start], seen[start:]
    assert factorised[-1][0] == factorised[-1][1]
    assert [done for done, _ in evaluated] == list(range(len(evaluated)))
    assert {total for _, total in evaluated} == {len(evaluated) - 1}


@pytest.mark.slow
def test_compare_is_identical_on_one_and_two_threads(data, comparison, monkeypatch):
    X, clusters = data
    monkeypatch.setenv("FASTCOS_N_THREADS", "1")
    result = compare(X, clusters, n_components=RANK, regularization=30.0, measures=["dot"])
    assert result.named == comparison.named


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_components": 61}, "n_components must be a whole number from 1 to 60, got 61"),
        ({"regularization": -1.0}, "regularization must be a finite number >= 0, got -1.0"),
        ({"weight_decay": np.nan}, "weight_decay must be a finite number >= 0, got nan"),
        ({"weight_decay": 1e6}, "weight_decay must be less than the largest singular value of X"),
        ({"objective": "mse"}, "objective must be one of both, dropout, weight_decay, got 'mse'"),
        ({"rescalings": ["unit"]}, "rescalings must be one of identity, .*, got 'unit'"),
        ({"labels": [0] * 60}, "labels must have at least two different values, got 1"),
        ({"labels": [0, 1]}, r"labels must be of shape \(60,\), got \(2,\)"),
        ({"random_state": -1}, "random_state must be a whole number of at least 0, got -1"),
    ],
)
def test_compare_refuses_wrong_arguments(data, arguments, message):
    with pytest.raises(ValueError, match=message):
        compare(data[0], **arguments)


@pytest.mark.slow
@pytest.mark.parametrize("labelled", [False, True])
def test_compare_of_sampled_items_estimates_all(data, labelled):
    X, clusters = data
    chosen = {"n_components": RANK, "regularization": 30.0, "measures": ["dot"], "grid": False}
    labels = clusters if labelled else None
    everything = compare(X, labels, **chosen)
    result = compare(X, labels, n_sampled=40, **chosen)
    assert everything.sampled is None
    assert result.grid == []
    assert len(np.unique(result.sampled)) == len(result.sampled) == 40
    for one, other in zip(result.named, everything.named, strict=True):
        listed = everything.neighbors[one.name][result.sampled]
        np.testing.assert_array_equal(result.neighbors[one.name], listed)
        error = max(one.jaccard_error, 1e-9)
        assert abs(one.jaccard_at_10 - other.jaccard_at_10) < 4 * error
        if labelled:
            assert abs(one.pair_auc - other.pair_auc) < 0.1
    assert result.leaderboard.score == everything.leaderboard.score
    assert compare(X, labels, n_sampled=N_ITEMS, **chosen).sampled is None


def test_compare_of_few_items_evaluates_fewer_users(data):
    X, _ = data
    few = compare(X, n_components=RANK, measures=["dot"], grid=False, n_sampled=30)
    assert 2 <= few.leaderboard.n_units < X.shape[0]


def test_compare_scores_equal_measures_once(data):
    X, clusters = data
    works = []

    def executor(evaluator, batch):
        works.extend(batch)
        return map(evaluator.evaluate, batch)

    result = compare(
        X, clusters, n_components=RANK, grid=False, rescalings=["identity", "data"],
        objective="dropout", measures=["angular", "ica_cosine", "weight_cosine", "csls"],
        executor=executor,
    )  # fmt: skip
    scored = [str(work) for work in works if hasattr(work, "measure")]
    assert sorted(scored) == sorted(
        [f"{name} under {D}" for name in ("cosine", "csls") for D in ("identity", "data")]
        + ["whitened_cosine under any D"]
    )
    rows = {str(row.candidate): row.score for row in result.leaderboard.rows}
    for D in ("identity", "data"):
        assert rows[f"angular under {D}"] == rows[f"cosine under {D}"]
    assert "ica_cosine under any D" in rows
    assert "whitened_cosine under any D" not in rows


def test_equal_measures_have_equal_neighbours():
    rows = np.random.default_rng(0).standard_normal((300, 6))
    lists = {
        name: top_k(rows, k=5, measure=name).indices
        for name in ("cosine", "angular", "query_normalized", "whitened_cosine", "ica_cosine")
    }
    twice = np.hstack([rows, rows])
    lists["weight_cosine"] = top_k(twice, k=5, measure="weight_cosine").indices
    for name, other in (
        ("angular", "cosine"),
        ("query_normalized", "cosine"),
        ("weight_cosine", "cosine"),
        ("ica_cosine", "whitened_cosine"),
    ):
        np.testing.assert_array_equal(lists[name], lists[other], err_msg=name)


@pytest.mark.slow
def test_compare_stops_at_its_budget(data):
    X, clusters = data
    shown = []
    result = compare(
        X, clusters, n_components=RANK, grid=False, measures=["dot", "zscore_cosine"],
        budget=1e-6, on_rescalings=shown.append,
    )  # fmt: skip
    assert [row.candidate.measure for row in result.leaderboard.rows] == ["cosine"]
    assert result.leaderboard.left_out["zscore_cosine under any D"] == "more than 1e-06 s"
    assert [rows[0].name for rows in shown] == ["identity"]
    with pytest.raises(ValueError, match="budget must be a finite number > 0, got 0"):
        compare(X, clusters, budget=0)


@pytest.mark.slow
@pytest.mark.parametrize("labelled", [False, True])
def test_compare_default_measures_need_no_choice(data, labelled):
    X, clusters = data
    labels = clusters if labelled else None
    result = compare(X, labels, n_components=RANK, grid=False, measures="default", n_sampled=40)
    names = {row.candidate.measure for row in result.leaderboard.rows}
    assert {"cosine", "dot", "query_metric_cosine", "whitened_cosine"} <= names
    assert "csls" not in names
    assert ("user_item_dot" in names) == (not labelled)
