"""examples/sensitivity.py: the scores of its models, its conclusions, and how it resumes."""

import json
import subprocess
import sys

import numpy as np
import pytest

from examples.sensitivity import (
    FORMS,
    RANKS,
    conclusions,
    curves,
    mean_interval,
    score_simulation,
    summary_table,
)
from fastcos import LinearMF, metrics, query_metric, simulate_interactions
from fastcos.comparison.tasks.held_out import HeldOutTask


@pytest.fixture(scope="module")
def simulation():
    return simulate_interactions(1500, 150, preset="zipf_pareto_focused", random_state=2)


@pytest.fixture(scope="module")
def rows(simulation):
    return score_simulation(simulation, "zipf_pareto_focused", 2)


@pytest.mark.slow
def test_sensitivity_rows_match_models_of_their_rank(simulation, rows):
    rest = HeldOutTask.split(simulation.X, np.random.default_rng(2), 1000).training_X
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


@pytest.mark.slow
def test_sensitivity_concludes_in_five_sentences(rows):
    other = [row._replace(seed=3, auc=row.auc - 0.01) for row in rows]
    sentences = conclusions([*rows, *other])
    assert len(sentences) == 5
    assert sentences[0].startswith(
        "At rank 50, the AUC of the best rescaling exceeds the AUC of the worst"
    )
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


@pytest.mark.slow
def test_curves_are_means_over_seeds_by_rank(rows):
    other = [row._replace(seed=3, auc=row.auc - 0.01, ndcg=row.ndcg / 2) for row in rows]
    points = {(point.score, point.rank): point.mean for point in curves([*rows, *other])}
    assert {rank for _, rank in points} == set(RANKS)
    for row in rows:
        if row.strength == 1 and not row.criterion and (row.form, row.rank) in points:
            assert points[row.form, row.rank] == pytest.approx(row.auc - 0.005)
            assert points["ndcg", row.rank] == pytest.approx(0.75 * row.ndcg)


@pytest.mark.slow
def test_sensitivity_continues_where_it_stopped(tmp_path):
    words = [sys.executable, "-m", "examples.sensitivity", "--users", "300", "--items", "60"]
    words += ["--preset", "zipf_pareto_focused", "--seeds", "1", "--out", str(tmp_path)]
    out = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert "the AUC of the best rescaling exceeds the AUC of the worst" in out
    [part] = (tmp_path / "parts").iterdir()
    before = part.stat().st_mtime_ns
    subprocess.run([*words, "--clusters", "4"], capture_output=True, check=True)
    assert len(list((tmp_path / "parts").iterdir())) == 2
    assert part.stat().st_mtime_ns == before
    assert len(json.loads((tmp_path / "sensitivity.json").read_text())["conclusions"]) == 5
    drawn = (tmp_path / "sensitivity.png").read_bytes()
    again = [*words[:3], "--curves", str(tmp_path / "curves.csv"), "--out", str(tmp_path / "again")]
    subprocess.run(again, capture_output=True, check=True)
    assert [one.name for one in (tmp_path / "again").iterdir()] == ["sensitivity.png"]
    assert len((tmp_path / "again" / "sensitivity.png").read_bytes()) > len(drawn) // 2 > 5_000
