"""Tests of the report of an audit, on data whose result is known."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from fastcos import io, metrics
from fastcos.auditing.certificates import certified_neighbors
from fastcos.auditing.item_audit import audit
from fastcos.auditing.robustness import CONDITIONS
from fastcos.models.linear_mf import LinearMF
from fastcos.models.simulation import simulate_interactions
from fastcos.similarity.cosine_bounds import tv_index
from tests.oracles.audit import cosine_matrix, random_rotation

DATA = Path(__file__).parents[3] / "shared" / "data"


def model(seed, n=120, p=140, d=6):
    """Return users and items in four clusters; the columns have similar lengths."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 4, p)
    items = 2 * rng.standard_normal((4, d))[labels] + rng.standard_normal((p, d))
    return rng, rng.standard_normal((n, d)), items, labels


def by_name(rows):
    return {row.name: row for row in rows}


@pytest.mark.slow
def test_labels_of_two_rows_among_many_are_audited():
    rng = np.random.default_rng(0)
    # The audit draws 1,000 of the 3,000 items, and no two of the drawn items share a label.
    labels = np.concatenate([np.arange(2994), np.repeat([2994, 2995, 2996], 2)])
    centres = rng.standard_normal((2997, 8))
    items = (centres[labels] + 0.3 * rng.standard_normal((3000, 8))).astype(np.float32)
    report = audit(items, labels=labels, k=2, random_state=1)
    assert report.label_recovery.n_items <= 6
    assert report.given.auc > 0.9


def test_report_equals_its_parts():
    _, users, items, labels = model(1)
    report = audit(items, users, labels=labels, popularity=np.arange(1, 141), k=5, condition=1.3)
    certified = certified_neighbors(items, 5, 1.3)
    edges = tv_index(np.repeat(items, 5, axis=0), items[certified.indices.ravel()])
    assert report.sensitivity == pytest.approx(edges.index.mean())
    sums = np.abs(edges.contributions).sum(axis=0)
    np.testing.assert_allclose(report.dimension_shares, sums / sums.sum(), rtol=1e-12)
    point = next(point for point in report.robustness if point.condition == 1.3)
    assert point.certified_linear == certified.certified.mean()
    assert report.hubness == metrics.hubness(certified.indices)
    assert report.mean_cosine == metrics.mean_cosine(items).value
    assert report.effective_rank == pytest.approx(metrics.effective_rank(items), rel=1e-9)
    assert report.isoscore == pytest.approx(metrics.isoscore(items), rel=1e-9)
    variances = np.linalg.eigvalsh(np.cov(items.T))
    assert report.first_axis_share == pytest.approx(variances[-1] / variances.sum())
    assert report.given.auc == pytest.approx(metrics.pair_auc(items, labels).value, abs=1e-4)
    assert (report.given.jaccard, report.given.overlap) == (1, pytest.approx(1))
    assert report.given.rsa == pytest.approx(1)
    query = by_name(report.invariant_baselines)["query_metric"]
    correlations = np.corrcoef(items @ users.T)
    assert query.rsa == pytest.approx(
        np.corrcoef(*(c[np.triu_indices(140, 1)] for c in (correlations, cosine_matrix(items))))[
            0, 1
        ],
        abs=1e-9,
    )


def test_robustness_bounds_descend_and_are_ordered():
    _, users, items, _ = model(2)
    report = audit(items, users, k=5, condition=1.7)
    assert [point.condition for point in report.robustness] == list(CONDITIONS)
    for name in ("certified_linear", "certified", "unbroken", "worst_rescaling", "worst_linear"):
        shares = [getattr(point, name) for point in report.robustness]
        assert shares == sorted(shares, reverse=True)
    for point in report.robustness:
        assert 0 <= point.certified <= point.unbroken <= point.worst_rescaling + 1e-9
        assert point.worst_linear <= point.worst_rescaling <= point.random_rescaling <= 1
    assert report.robustness[0].certified > 0.5 > report.robustness[-1].unbroken


@pytest.mark.slow
def test_invariant_baselines_ignore_a_planted_rescaling():
    _, users, items, _ = model(3, n=200, p=260)
    D = np.array([20.0, 1, 1, 1, 1, 1])
    before, after = (audit(B, A, k=5) for B, A in ((items, users), (items / D, users * D)))
    for name in ("query_metric", "whitened"):
        one = by_name(before.invariant_baselines)[name]
        other = by_name(after.invariant_baselines)[name]
        assert one.hubness == other.hubness
    balanced = by_name(after.parametrizations)["balanced"]
    assert balanced.condition == pytest.approx(20, rel=0.5)
    assert balanced.jaccard < by_name(before.parametrizations)["balanced"].jaccard - 0.1


def test_factors_of_objective_two_are_balanced():
    data = simulate_interactions(1500, 150, random_state=2)
    fitted = LinearMF(8, objective="weight_decay", regularization=20.0).fit(data.X)
    report = audit(fitted.item_embeddings(), fitted.user_embeddings(data.X), k=5)
    balanced = by_name(report.parametrizations)["balanced"]
    assert balanced.jaccard > 0.97
    assert balanced.rsa == pytest.approx(1, abs=1e-3)


@pytest.mark.slow
def test_isotropic_noise_has_equal_dimension_shares():
    rng = np.random.default_rng(4)
    report = audit(rng.standard_normal((600, 16)), k=5)
    assert report.dimension_shares.max() < 1.5 / 16
    assert report.random_basis_sensitivity == pytest.approx(report.sensitivity, abs=0.03)
    assert report.isoscore > 0.9
    assert abs(report.mean_cosine) < 0.01
    assert report.robustness[-1].unbroken < 0.1


def test_random_labels_stay_at_chance_level():
    rng, users, items, _ = model(5)
    report = audit(items, users, labels=rng.integers(0, 3, len(items)), k=5)
    for row in (report.given, *report.parametrizations, *report.invariant_baselines):
        assert abs(row.auc - 0.5) < 0.03
    assert not report.label_test.shown
    assert "the test does not show" in report.advice[-1]


def test_a_rotation_changes_basis_dependent_numbers_only():
    rng, _, items, _ = model(6)
    one, other = audit(items, k=5), audit(items @ random_rotation(rng, 6), k=5)
    for name in ("mean_cosine", "effective_rank", "isoscore"):
        assert getattr(one, name) == pytest.approx(getattr(other, name), rel=1e-9)
    assert one.hubness == other.hubness
    linear = [[point.certified_linear for point in report.robustness] for report in (one, other)]
    assert linear[0] == linear[1]
    assert abs(one.sensitivity - other.sensitivity) > 1e-3


def test_zero_rows_are_counted_and_left_out():
    _, users, items, _ = model(7)
    items[[3, 77]] = 0
    items[100:120] = items[100]
    report = audit(items, users, k=5)
    assert report.n_zero == 2
    assert report.n_sampled == 48
    assert np.isfinite(json.loads(json.dumps(report.to_dict()))["sensitivity"])


def test_audit_takes_one_dimension_and_few_items():
    rng = np.random.default_rng(8)
    report = audit(rng.standard_normal((30, 1)), k=3)
    assert (report.sensitivity, report.isoscore) == (0, None)
    assert audit(rng.standard_normal((4, 3)), k=3).robustness[-1].certified == 1


def test_equal_items_have_no_first_axis():
    report = audit(np.tile(np.random.default_rng(13).standard_normal(3), (30, 1)), k=3)
    assert report.first_axis_share is None
    assert report.statistics()["variance along the first principal axis"] is None


def test_identical_users_have_no_query_metric():
    _, _, items, _ = model(12)
    report = audit(items, np.ones((50, 6)), k=5)
    assert [row.name for row in report.invariant_baselines] == ["whitened"]
    # All users are equal, so the predictions for an item are equal, too. All cosines between the
    # predictions of two items are therefore 1 or -1, and the map is not invertible.
    same = by_name(report.parametrizations)["users_orthonormal"]
    assert same.jaccard < 0.2
    assert same.condition is None
    assert report.nearest_parametrization.name == "items_orthonormal"


@pytest.mark.slow
def test_report_is_the_same_for_float32_and_any_threads():
    _, users, items, labels = model(9)
    items, users = items.astype(np.float32), users.astype(np.float32)
    reports = [audit(items, users, labels=labels, k=5, n_threads=n).to_dict() for n in (1, 3)]
    assert reports[0] == reports[1]
    wide = audit(items.astype(np.float64), users, k=5)
    assert wide.robustness[2].certified == reports[0]["robustness"][2]["certified"]


def test_verdict_has_both_bounds_and_to_dict_is_plain():
    _, users, items, labels = model(10)
    report = audit(
        items, users, labels=labels, popularity=np.ones(140) + np.arange(140), condition=1.1
    )
    point = next(point for point in report.robustness if point.condition == 1.1)
    low = f"{point.certified:.0%} ± {point.certified_error:.0%}"
    high = f"{point.unbroken:.0%} ± {point.unbroken_error:.0%}"
    share = f"between {low} and {high} remain neighbours under every rescaling with factors "
    share += "between 1 and 1.1."
    assert share in report.verdict
    replaced = f"{1 - point.worst_rescaling:.0%}"
    assert f"search found replaces {replaced} of the neighbours." in report.verdict
    assert f"replaces {replaced} of the 10" in report.headline
    assert f"At least {point.certified_linear:.0%} of the neighbours remain" in report.verdict
    nearest = report.nearest_parametrization
    assert nearest.condition == min(row.condition for row in report.parametrizations)
    assert f"is {nearest.jaccard:.2f} ± {nearest.jaccard_error:.2f}" in report.verdict
    plain = json.loads(json.dumps(report.to_dict()))
    assert plain["verdict"] == report.verdict
    assert plain["given"]["name"] == "given"
    assert len(plain["dimension_shares"]) == 6


@pytest.mark.slow
def test_working_memory_does_not_change_the_report(tmp_path):
    _, users, items, labels = model(17, n=200, p=1100, d=48)
    np.save(tmp_path / "items.npy", items)
    mapped = np.load(tmp_path / "items.npy", mmap_mode="r")
    expected = audit(items, users, labels=labels, k=5).to_dict()
    # This working memory (in MiB) is slightly too small to hold all items at once.
    assert audit(mapped, users, labels=labels, k=5, working_memory=0.73).to_dict() == expected
    with pytest.raises(ValueError, match="working_memory must be"):
        audit(items, working_memory=0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"k": 20}, "k must be a whole number from 1 to 19, got 20"),
        ({"users": np.ones((5, 4))}, "users must have as many columns as items"),
        ({"labels": [0, 1]}, "labels must be of shape"),
        ({"popularity": [1.0]}, "popularity must be of shape"),
        ({"trained_on": "dots"}, "one of dot, ranking, cosine, unknown, got 'dots'"),
        ({"condition": 0}, "condition must be a finite number >= 1"),
    ],
)
def test_errors_name_the_argument(arguments, message):
    items = np.random.default_rng(11).standard_normal((20, 3))
    with pytest.raises(ValueError, match=message):
        audit(items, **arguments)


def test_too_many_zero_rows_are_refused():
    items = np.zeros((20, 3))
    items[:4] = np.eye(4, 3) + 1
    with pytest.raises(ValueError, match=r"items must have at least 6 rows .* zero, got 4"):
        audit(items, k=5)


@pytest.mark.slow
def test_standard_errors_match_repeated_samples():
    _, users, items, _ = model(13, p=400)
    reports = [audit(items, users, k=5, condition=1.1, random_state=seed) for seed in range(12)]
    for name, error in (("certified", "certified_error"), ("unbroken", "unbroken_error")):
        observed = np.std([getattr(report.at_condition, name) for report in reports], ddof=1)
        reported = np.mean([getattr(report.at_condition, error) for report in reports])
        assert 0.4 < observed / reported < 2.0
    # All neighbour lists were compared, so there is no sampling error.
    assert reports[0].parametrizations[0].jaccard_error == 0
    assert reports[0].given.jaccard_error == 0


def test_parametrization_is_recognised_by_the_columns():
    rng = np.random.default_rng(14)
    U, V = (np.linalg.qr(rng.standard_normal((m, 5)))[0] for m in (300, 200))
    s = np.array([9.0, 5, 4, 2, 1])
    cases = {
        "balanced": (V * s**0.5, U * s**0.5),
        "items_orthonormal": (V, U * s),
        "users_orthonormal": (V * s, U),
        None: (V * s**0.8, U * s**0.2),
    }
    for name, (items, users) in cases.items():
        assert audit(items, users, k=3).parametrization == name
    assert audit(V, k=3).parametrization == "items_orthonormal"
    assert audit(V * s, k=3).parametrization is None
    # If one direction dominates, the two Gram matrices stay nearly equal when D rescales another
    # direction.
    s, D = np.array([30.0, 1, 1, 1, 1]), np.array([1.0, 2, 1, 1, 1])
    assert audit(V * s**0.5 / D, U * s**0.5 * D, k=3).parametrization is None


def test_duplicates_are_counted():
    _, _, items, _ = model(15)
    items[[7, 9, 100]] = items[3]
    items[20] = items[21] = 0
    assert audit(items, k=5).n_duplicates == 3


@pytest.mark.slow
def test_advice_follows_from_the_report():
    _, users, items, labels = model(16)
    alone, both = audit(items, k=5), audit(items, users, labels=labels, k=5, condition=4.0)
    assert "--weight-decay-on" in alone.advice[0]
    assert "--users" in alone.advice[1]
    assert "query metric" in both.advice[1]
    assert any("single neighbour as a fact" in line for line in both.advice)
    U, V = np.linalg.qr(users)[0], np.linalg.qr(items)[0]
    assert "weight decay" in audit(V, U, k=5).advice[0]
    assert audit(V * [9, 5, 4, 3, 2, 1], U, k=5).parametrization == "users_orthonormal"
    wide = audit(items / np.geomspace(1, 30, 6), users, labels=labels, k=5, condition=30.0)
    assert wide.label_recovery.high - wide.label_recovery.low > 0.1
    assert "Use outside information to choose the rescaling" in wide.advice[-1]


def test_verdict_names_its_premise():
    """If a model was trained on the cosine, D is not free: a rescaling changes its predictions."""
    _, users, items, _ = model(18)
    units = items / np.linalg.norm(items, axis=1, keepdims=True)
    free = "Suppose that the predictions are dot products of items with users or contexts. The"
    not_free = "does not show that the neighbours are arbitrary"
    verdicts = {
        (name, similarity): dataclasses.replace(report, trained_on=similarity)
        for name, rows in (("raw", items), ("unit", units.astype(np.float16).astype(np.float32)))
        for report in [audit(rows, users, k=5, trained_on="dot")]
        for similarity in ("dot", "cosine", "unknown")
    }
    assert verdicts["raw", "unknown"].verdict.startswith(free)
    assert verdicts["unit", "unknown"].verdict.startswith("All items have the same norm. If")
    for name in ("raw", "unit"):
        assert "trained on dot products of users and items." in verdicts[name, "dot"].verdict
        assert not_free in verdicts[name, "cosine"].verdict
        assert "query metric" not in " ".join(verdicts[name, "cosine"].advice)
        assert "Continue to use the cosine" in verdicts[name, "cosine"].advice[0]
    assert "--trained-on" in verdicts["unit", "unknown"].advice[0]
    assert "before they were normalised" in verdicts["unit", "dot"].advice[0]
    # The verdict is right only if a rescaling changes the cosines between users and items.
    D = np.linspace(1, 1.2, 6)
    before, after = (
        cosine_matrix(np.vstack(both)) for both in ((users, items), (users * D, items / D))
    )
    best, best_after = (cosines[:200, 200:].argmax(axis=1) for cosines in (before, after))
    assert (best != best_after).mean() > 0.01
    np.testing.assert_allclose((users * D) @ (items / D).T, users @ items.T, rtol=1e-10, atol=1e-9)


def test_of_a_ranking_loss_the_mean_of_the_items_is_subtracted():
    """Theorem 10: a ranking loss does not change if one vector is added to all items."""
    rng = np.random.default_rng(19)
    users, items = rng.standard_normal((300, 5)), rng.standard_normal((90, 5))
    shifted = items + np.array([2.0, -1.0, 0.0, 1.0, 3.0])

    def kept(rows):
        """Return the share of neighbours in `shifted` that are also neighbours in `rows`."""
        lists = []
        for vectors in (shifted, rows):
            cosines = cosine_matrix(vectors)
            np.fill_diagonal(cosines, -2)
            lists.append(np.argsort(-cosines)[:, :5])
        return np.mean([len({*a} & {*b}) / 5 for a, b in zip(*lists, strict=True)])

    root = np.linalg.cholesky(np.cov(users.T))
    centred = items - items.mean(axis=0)
    report = audit(shifted, users, k=5, trained_on="ranking")
    assert report.centered.neighbors_kept == pytest.approx(kept(centred), abs=1e-12)
    query = by_name(report.invariant_baselines)["query_metric"]
    assert query.neighbors_kept == pytest.approx(kept(centred @ root), abs=1e-12)
    assert f"{kept(centred):.0%} of the neighbours remain" in report.verdict
    assert "also stay the same if the same vector is added to every item." in report.verdict
    assert any("measure centered_cosine" in line for line in report.advice)

    report = audit(shifted, users, k=5, trained_on="dot")
    assert report.centered is None
    query = by_name(report.invariant_baselines)["query_metric"]
    assert query.neighbors_kept == pytest.approx(kept(shifted @ root), abs=1e-12)
    assert kept(shifted @ root) > kept(centred @ root) + 0.1
    assert not any("mean of the items" in line for line in report.advice)


@pytest.mark.slow
def test_labels_recovered_among_neighbours_alone_are_said_to_be():
    folder = DATA / "completejourney"
    if not folder.is_dir():
        pytest.skip(f"{folder} is not there")
    read = io.read_interactions(
        folder / "completejourney_pairs.csv.gz", user="household_id", item="product_id", value=""
    )
    labels = io.read_labels(
        folder / "completejourney_products.csv.gz", read.item_ids, column="department",
        item="product_id", separator=None,
    )  # fmt: skip
    fitted = LinearMF(50, regularization=400.0, random_state=0).fit(read.X)
    report = audit(
        fitted.item_embeddings(),
        fitted.user_embeddings(read.X),
        labels=[None if code < 0 else int(code) for code in labels.labels],
    )
    assert report.label_recovery.high < 0.55
    assert (
        max(
            row.auc for row in (report.given, *report.parametrizations, *report.invariant_baselines)
        )
        < 0.58
    )
    # On average over all pairs, two products of one department are no closer than two products of
    # different departments. However, a product and its neighbour share a department 1.4 times as
    # often as two random products do.
    result = report.label_test
    assert result.auc_p > 0.05
    assert result.precision > 1.3 * result.chance
    assert result.precision_p < 0.01
    assert result.verdict.startswith("The labels are recovered among neighbours")
    assert "Do not rely on the labels" not in " ".join(report.advice)
    # Many products were bought by only one household, so their rows are duplicates.
    assert report.n_duplicates > 5000
