"""The label test reports labels that neighbours or pairs recover; it reports no shuffled labels."""

import dataclasses

import numpy as np
import pytest
import scipy.stats
from sklearn.metrics import roc_auc_score

import fastcos
from fastcos.metrics import label_permutation
from fastcos.metrics.label_permutation import (
    SIGNIFICANT,
    WEAK_AUC,
    ClassTest,
    LabelTest,
    Ranking,
    doubled_ranks,
    permute_labels,
)


def groups(rng, n_groups, n_items, spread=0.1, d=20):
    """Return rows around centres, and the number of the centre of each row."""
    of = rng.integers(0, n_groups, n_items)
    centres = rng.standard_normal((n_groups, d))
    return centres[of] + spread * rng.standard_normal((n_items, d)), of


def label_test(rows, labels, seed=0):
    return fastcos.audit(rows, labels=labels, k=10, random_state=seed).label_test


@pytest.mark.slow
def test_labels_of_many_groups_are_shown_among_neighbours():
    rng = np.random.default_rng(0)
    rows, of = groups(rng, 40, 480)
    report = fastcos.audit(rows, labels=of % 2)
    result = report.label_test
    assert result.precision > 0.95
    assert result.precision_p <= 0.005 / 3
    assert result.verdict.startswith("The labels are recovered among neighbours")
    # Rows of the same group are near each other, but most pairs consist of rows of different
    # groups. Over all pairs, the labels are therefore recovered only weakly.
    assert result.auc < 0.55
    assert ("and weakly over all pairs" in result.verdict) == (result.auc_p <= 0.005 / 3)
    assert not any("labels" in line and "does not show" in line for line in report.advice)


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.03, 0.01])
def test_a_rare_label_is_shown_by_itself(share):
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((1000, 20))
    n = int(share * 1000)
    rows[:n] = rng.standard_normal(20) * 2 + 0.3 * rng.standard_normal((n, 20))
    labels = np.where(np.arange(1000) < n, "rare", "other")
    labels[n:] = rng.choice(["a", "b", "c"], 1000 - n)
    test_result = label_test(rows, labels)
    assert [one.label for one in test_result.classes] == ["rare"]
    assert test_result.classes[0].precision > 0.5 > 10 * test_result.classes[0].chance
    assert test_result.shown
    assert "1 of 4 labels are recovered: rare." in test_result.verdict


@pytest.mark.slow
def test_shuffled_labels_are_not_shown():
    rng = np.random.default_rng(2)
    rows, of = groups(rng, 12, 150, 0.5)
    report = fastcos.audit(rows, labels=of)
    assert report.label_test.shown
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    ranking = Ranking(fastcos.top_k(rows, k=10).indices, doubled_ranks(unit @ unit.T))
    shown, items, names = 0, np.arange(150), [str(one) for one in range(12)]
    for _ in range(50):
        codes = rng.permutation(of).astype(np.int64)
        shown += permute_labels([ranking], items, items, codes, names, rng).test.shown
    assert shown <= 1


def test_label_test_equals_its_definition():
    """The label test equals its definition, even for incomplete inputs.

    In this example, some neighbours are not among the queries, some items lack a label, and one
    label occurs only once.
    """
    rng = np.random.default_rng(6)
    rows, of = groups(rng, 3, 90, 1.0)
    codes = of.astype(np.int64)
    codes[13], codes[7::10] = 3, -1
    queries, units = np.arange(0, 90, 2), np.flatnonzero(codes >= 0)[::2]
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    cosines = unit @ unit.T
    lists = np.argsort(-cosines + 9 * np.eye(90), axis=1)[queries, :8]
    neighbors = np.where(codes[lists] >= 0, codes[lists], -1)
    ranking = Ranking(
        np.where(neighbors >= 0, lists, -1), doubled_ranks(cosines[np.ix_(units, units)])
    )
    result = permute_labels([ranking], queries, units, codes, ["a", "b", "c", "d"], rng).test

    precisions, aucs = [], []
    for label in range(3):
        labels_near = neighbors[codes[queries] == label]
        precisions.append((labels_near == label).sum() / (labels_near >= 0).sum())
        of_label = []
        for item in units[codes[units] == label]:
            others = units[units != item]
            of_label.append(roc_auc_score(codes[others] == label, cosines[item, others]))
        aucs.append(np.mean(of_label))
    assert 13 in units
    assert result.precision == pytest.approx(np.mean(precisions), abs=1e-12)
    assert result.auc == pytest.approx(np.mean(aucs), abs=1e-12)
    # If the labels are permuted, a label is about as frequent among the neighbours as among all
    # items.
    frequencies = np.bincount(codes[codes >= 0])[:3] / (codes >= 0).sum()
    assert result.chance == pytest.approx(frequencies.mean(), abs=0.02)
    assert (result.n_items, result.n_classes, result.n_tested) == ((codes >= 0).sum(), 4, 3)
    for test in result.classes:
        assert test.precision == pytest.approx(precisions["abc".index(test.label)], abs=1e-12)
        assert test.n_items == (codes == "abc".index(test.label)).sum()


def noisy_ranking(rng, codes):
    """Return a ranking of all items by noisy scores.

    On average, pairs with the same label have slightly higher scores than other pairs.
    """
    same = codes[:, None] == codes
    scores = same + 3 * rng.standard_normal(same.shape)
    lists = np.argsort(-scores + 99 * np.eye(len(codes)), axis=1)[:, :5]
    return Ranking(lists, doubled_ranks(scores))


def test_label_test_does_not_depend_on_blocks_of_permutations(monkeypatch):
    codes, items = np.arange(40) % 3, np.arange(40)
    ranking = noisy_ranking(np.random.default_rng(0), codes)

    def result():
        rng = np.random.default_rng(1)
        return permute_labels([ranking], items, items, codes, ["a", "b", "c"], rng)

    at_once = result()
    for n_permutations in (1, 7, 599):
        monkeypatch.setattr(label_permutation, "MAX_ENTRIES", 40 * n_permutations)
        assert result() == at_once


def test_precision_divides_by_the_number_of_labelled_neighbours():
    """The precision of label "b" is 0, because no item of label "b" has a labelled neighbour.

    One item of label "a" has a labelled neighbour.
    """
    codes, items = np.repeat([0, 1], 10), np.arange(20)
    lists = np.full((20, 3), -1)
    lists[0, 1] = 1
    ranking = Ranking(lists, doubled_ranks(np.eye(20)))
    rng = np.random.default_rng(0)
    test = permute_labels([ranking], items, items, codes, ["a", "b"], rng).test
    assert test.precision == 0.5


def test_items_of_one_label_have_the_auc_of_chance():
    """All units have the same label, so there are no pairs of different labels to compare with."""
    codes = np.repeat([0, 1], 20)
    ranking = noisy_ranking(np.random.default_rng(0), codes)
    units = np.arange(20)
    ranking = ranking._replace(ranks=doubled_ranks(np.eye(20)))
    rng = np.random.default_rng(1)
    test = permute_labels([ranking], np.arange(40), units, codes, ["a", "b"], rng).test
    assert (test.auc, test.auc_p) == (0.5, 1.0)


def test_deviations_are_counted_in_standard_deviations():
    """Deviations do not depend on the scale of the values.

    Each deviation is divided by the standard deviation over the permutations.
    """
    values = np.random.default_rng(0).standard_normal((2, 600, 3)) * [1e-6, 1.0, 1e6]
    np.testing.assert_allclose(
        label_permutation._deviations(values), scipy.stats.zscore(values, axis=1)
    )
    assert not label_permutation._deviations(np.full((1, 600), 0.5)).any()


def test_each_test_names_the_similarity_that_recovers_best():
    """Each test of labels reports which similarity recovers the labels best.

    The test compares three similarities: one recovers the labels only among near neighbours, one
    recovers them only over all pairs, and one does not recover them at all.
    """
    rng = np.random.default_rng(9)
    n, codes = 120, np.repeat([0, 1], 60)
    same = codes[:, None] == codes
    noise = rng.random((n, n))
    lists_of_noise = np.argsort(-noise + 9 * np.eye(n), axis=1)[:, :10]
    lists = np.array([rng.permutation(np.flatnonzero(row))[:10] for row in same])
    pairs = np.where(same, 1.0, 0.0) + rng.standard_normal((n, n))
    nothing = Ranking(lists_of_noise, doubled_ranks(noise.copy()))
    near = Ranking(lists, doubled_ranks(noise.T.copy()))
    over_all_pairs = Ranking(lists_of_noise[::-1].copy(), doubled_ranks(pairs))
    items = np.arange(n)
    for order in ([0, 1, 2], [2, 0, 1], [1, 2, 0]):
        rankings = [(nothing, near, over_all_pairs)[which] for which in order]
        best = permute_labels(rankings, items, items, codes, ["a", "b"], rng)
        assert order[best.of_neighbors] == 1
        assert order[best.of_pairs] == 2
        assert {order[which] for which in best.of_classes} == {1}
        assert best.test.precision == 1
        assert best.test.auc > 0.7


def a_label_test(**changes):
    classes = tuple(ClassTest(name, 10, 0.9, 0.25, 0.001) for name in "pqrs")
    values = {
        "auc": 0.6, "auc_p": 1.0, "precision": 0.5, "chance": 0.25, "precision_p": 1.0,
        "classes": classes[: changes.pop("n_found", 0)], "n_items": 40, "n_classes": 5,
        "n_tested": 4,
    }  # fmt: skip
    return LabelTest(**{**values, **changes})


def test_an_auc_is_weak_only_below_the_stated_value():
    weak = a_label_test(auc=np.nextafter(WEAK_AUC, 0), auc_p=SIGNIFICANT)
    assert "weakly over all pairs" in weak.verdict
    assert "recovered over all pairs" in a_label_test(auc=WEAK_AUC, auc_p=SIGNIFICANT).verdict


@pytest.mark.parametrize("p_value", ["auc_p", "precision_p"])
def test_a_test_is_significant_up_to_the_stated_p_value(p_value):
    for p, is_shown in ((SIGNIFICANT, True), (np.nextafter(SIGNIFICANT, 1), False)):
        result = a_label_test(**{p_value: p})
        assert result.shown == is_shown
        assert result.verdict.startswith("The labels are recovered") == is_shown


@pytest.mark.parametrize(
    ("n_found", "end"),
    [(0, "chance 0.25)."), (1, "recovered: p."), (3, "recovered: p, q, r."), (4, "chance 0.25).")],
)
def test_the_verdict_lists_single_labels_unless_none_or_all_are_recovered(n_found, end):
    assert a_label_test(precision_p=0.001, n_found=n_found).verdict.endswith(end)
    if n_found:
        result = a_label_test(n_found=n_found)
        assert result.shown
        assert result.verdict.startswith("Only some labels are significantly recovered")


def test_the_verdict_names_three_labels_of_many():
    verdict = a_label_test(precision_p=0.001, n_found=4, n_tested=9).verdict
    assert verdict.endswith("4 of 9 labels are recovered: p, q, r, ...")


@pytest.mark.slow
def test_label_test_lists_the_labels_that_are_recovered_in_a_table():
    rng = np.random.default_rng(8)
    rows, of = groups(rng, 3, 150)
    (section,) = label_test(rows, np.array(["x", "y", "z"])[of]).sections()
    (table,) = section.tables
    assert sorted(row[0] for row in table.rows) == ["x", "y", "z"]
    (section,) = label_test(rng.standard_normal((150, 8)), of).sections()
    assert not section.tables


@pytest.mark.slow
def test_labels_without_signal_are_not_shown_and_not_denied():
    rng = np.random.default_rng(3)
    report = fastcos.audit(rng.standard_normal((300, 8)), labels=rng.integers(0, 3, 300), k=5)
    assert not report.label_test.shown
    assert "does not show" in report.label_test.verdict
    assert any("Do not rely on the labels" in line for line in report.advice)


@pytest.mark.slow
def test_label_test_leaves_unlabelled_items_in_place():
    rng = np.random.default_rng(4)
    rows, of = groups(rng, 3, 200)
    labels = [None if i % 2 else str(label) for i, label in enumerate(of)]
    test_result = label_test(rows, labels)
    assert test_result.n_items == 100
    assert test_result.n_classes == 3
    assert test_result.precision > 0.9


def test_label_test_leaves_out_zero_rows():
    """The label test leaves out zero rows.

    The cosines of a zero row are all 0, so its neighbours would be the first items. Here, the zero
    rows and the first items have the same label, so the labels would seem to be recovered.
    """
    rows = np.random.default_rng(7).standard_normal((200, 8))
    rows[140:] = 0
    labels = np.repeat(["a", "b", "c", "a"], [10, 70, 60, 60])
    test_result = label_test(rows, labels)
    assert test_result.n_items == 140
    assert not test_result.shown


def test_weight_decay_on_both_sides_is_not_free():
    rng = np.random.default_rng(5)
    form = fastcos.canonicalize(rng.standard_normal((80, 5)), rng.standard_normal((60, 5)))
    report = fastcos.audit(form.items, form.users, k=3, trained_on="dot", weight_decay_on="both")
    results = {
        decay: dataclasses.replace(report, weight_decay_on=decay)
        for decay in ("both", "not both", "unknown")
    }
    assert "does not show that the neighbours are arbitrary" in results["both"].verdict
    assert "decay on users and items chose" in results["both"].headline
    assert "--weight-decay-on" in results["unknown"].advice[0]
    assert "--weight-decay-on" not in " ".join(results["not both"].advice)
    cosine = dataclasses.replace(results["unknown"], trained_on="cosine")
    assert "other form of the same model" in results["unknown"].verdict
    assert "form of the same model" not in cosine.verdict


def test_decay_on_both_sides_is_compared_with_what_the_factors_show():
    """If users and items are not balanced, the scale is free, even with weight_decay_on="both"."""
    rng = np.random.default_rng(5)
    form = fastcos.canonicalize(rng.standard_normal((80, 5)), rng.standard_normal((60, 5)))
    D = np.geomspace(1, 2.3, 5)
    report = fastcos.audit(form.items / D, form.users * D, k=3, weight_decay_on="both")
    assert report.condition_to_balance == pytest.approx(2.3)
    assert report.is_free
    assert "map of condition 2.3 is needed to make them equal" in report.verdict
    assert "Training has not converged" in report.verdict
    assert "does not show that the neighbours are arbitrary" not in report.verdict
    assert report.headline.startswith("A rescaling with factors between 1 and 1.2 replaces")
    assert "Train for more iterations" in " ".join(report.advice)
    alone = fastcos.audit(form.items / D, k=3, weight_decay_on="both")
    assert alone.condition_to_balance is None
    assert alone.headline.startswith("If training has converged, the cosine is not arbitrary")
    assert "Without the users" in alone.verdict
    assert "--users" in " ".join(alone.advice)
