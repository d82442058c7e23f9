"""choose_rank and the sensitivity study on data whose rank is known."""

import numpy as np
import pytest

from fastcos import LinearMF, metrics, query_metric, simulate_interactions
from fastcos.comparison import choose_rank
from fastcos.comparison.rank import largest_gap, shuffled_users
from fastcos.comparison.sensitivity import (
    FORMS,
    RANKS,
    conclusions,
    mean_interval,
    score_simulation,
    summary_table,
)
from fastcos.comparison.tasks.held_out import HeldOutTask


@pytest.fixture(scope="module")
def simulation():
    return simulate_interactions(1500, 150, preset="zipf_pareto_focused", random_state=2)


def test_choose_rank_finds_the_clusters(simulation):
    found = choose_rank(simulation.X)
    assert found.by_gap in (5, 6)
    assert 4 <= found.by_parallel_analysis <= 9
    assert found.by_held_out in found.ranks
    assert found.ndcg_error[found.ndcg.argmax()] == 0
    assert (np.diff(found.singular_values) <= 0).all()


def test_choose_rank_finds_no_signal_in_noise(simulation):
    noise = shuffled_users(simulation.X, np.random.default_rng(0))
    assert (noise.sum(axis=0) == simulation.X.sum(axis=0)).all()
    assert (noise.data == 1).all()
    assert abs(noise - simulation.X).sum() > 0
    # the first direction is popularity, which the noise shares
    assert choose_rank(noise, ranks=[2, 5, 20]).by_parallel_analysis <= 4


def test_largest_gap_leaves_popularity_out():
    assert largest_gap(np.array([100.0, 9, 8, 7, 2, 1.9])) == 4
    assert largest_gap(np.array([5.0, 1])) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"ranks": [1]}, "ranks must be a whole number from 2 to 20, got 1"),
        ({"ranks": []}, "ranks must have at least one rank"),
        ({"regularization": -1}, "regularization must be a finite number >= 0, got -1"),
        ({"random_state": -1}, "random_state must be"),
    ],
)
def test_choose_rank_refuses_wrong_arguments(arguments, message):
    X = np.random.default_rng(0).random((30, 20)) < 0.3
    with pytest.raises(ValueError, match=message):
        choose_rank(X.astype(float), **arguments)


@pytest.fixture(scope="module")
def rows(simulation):
    return score_simulation(simulation, "zipf_pareto_focused", 2)


def test_sensitivity_rows_match_models_of_their_rank(simulation, rows):
    rest = HeldOutTask(simulation.X, np.random.default_rng(2), 1000).rest
    by_place = {(r.rank, r.strength, r.form): r for r in rows if not r.criterion}
    for strength in (0.01, 1.0):
        model = LinearMF(6, regularization=strength * 750.0).fit(rest)
        users = model.user_embeddings(rest)
        forms = {
            "identity": model.item_embeddings(),
            "balanced": model.item_embeddings("balanced"),
            "query_metric": query_metric(users).transform(model.item_embeddings()),
            "eq2": model.reregularized("weight_decay", (strength * 750.0) ** 0.5).item_embeddings(),
        }
        for form, items in forms.items():
            truth = metrics.pair_auc(items, simulation.item_cluster).value
            assert by_place[6, strength, form].auc == pytest.approx(truth, abs=2e-3), form
    assert {row.form for row in rows} == set(FORMS)
    assert {row.rank for row in rows if not row.criterion} == set(RANKS)


def test_sensitivity_concludes_in_five_sentences(rows):
    other = [row._replace(seed=3, auc=row.auc - 0.01) for row in rows]
    sentences = conclusions([*rows, *other])
    assert len(sentences) == 5
    assert sentences[0].startswith("At rank 50 the rescalings of one model differ in AUC by")
    header, [line] = summary_table([*rows, *other])
    cells = dict(zip(header, line, strict=True))
    at_50 = {row.form: row.auc for row in rows if (row.rank, row.strength) == (50, 1.0)}
    assert float(cells["balanced"]) == pytest.approx(at_50["balanced"] - 0.005, abs=6e-4)
    assert float(cells["I, best rank"]) == pytest.approx(
        max(row.auc for row in rows if (row.form, row.strength) == ("identity", 1.0)) - 0.005,
        abs=6e-4,
    )
    mean, low, high = mean_interval([1.0, 2.0, 3.0])
    assert (mean, high - mean) == (2.0, pytest.approx(mean - low))
    assert high - mean == pytest.approx(4.3027 / 3**0.5, rel=1e-4)
