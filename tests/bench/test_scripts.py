"""The scripts of bench/ run on small inputs, and their certificates hold."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bench import curves
from bench.worker import in_new_process

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]


def output(words):
    """Return the lines that `python -m words` prints."""
    command = [sys.executable, "-m", *shlex.split(words)]
    done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.splitlines()


def test_large_results_are_certified_and_bit_identical():
    sizes = "--nnz 60000 --users 3000 --items 400 --rank 8"
    found = [json.loads(line) for line in output(f"bench.large {sizes} --where disk memory")]
    names = [(one["operation"], one["where"]) for one in found]
    assert names == [
        (name, place) for name in ("gram", "svd", "items") for place in ("disk", "memory")
    ]
    for one in found:
        assert one["certificate"] < (1e-2 if one["operation"] == "svd" else 1e-5)
        assert one["nnz"] < 60_000
        assert one["seconds"] > 0
    for disk, memory in zip(found[::2], found[1::2], strict=True):
        assert disk["digest"] == memory["digest"]


def test_large_resumes_and_reads_interactions(tmp_path):
    rng = np.random.default_rng(0)
    pairs = np.unique(rng.integers(0, [300, 40], (4_000, 2)), axis=0)
    np.savetxt(tmp_path / "own.csv", pairs, "%d", ",", header="user,item", comments="")
    words = f"bench.large --data {tmp_path / 'own.csv'} --folder {tmp_path / 'large'} --rank 8"
    (first,) = map(json.loads, output(f"{words} --operations gram"))
    assert first["nnz"] == len(pairs)
    (second,) = map(json.loads, output(f"{words} --operations gram items"))
    assert second["operation"] == "items"
    assert output(f"{words} --operations gram items") == []


def test_large_search_is_exact_on_disk_and_on_workers():
    pytest.importorskip("dask.distributed")
    sizes = "--rows 3000 --columns 16 --queries 200 --memory 1"
    lines = output(f"bench.large --operations search {sizes} --where disk memory 2-workers")
    found = [json.loads(line) for line in lines]
    assert [one["where"] for one in found] == ["disk", "memory", "2-workers"]
    assert [one["certificate"] for one in found] == [0, 0, 0]
    assert len({one["digest"] for one in found}) == 1


def test_large_audits_have_equal_reports():
    lines = output("bench.large --operations audit --rows 900 --columns 8 --where disk memory")
    disk, memory = (json.loads(line) for line in lines)
    assert disk["digest"] == memory["digest"]


def test_curves_measure_one_point_in_a_new_process():
    found = in_new_process(curves.measure, "SelfJoin", {"rows": "500 x 16", "k": 5}, 1)
    assert found["seconds"] > 0
    assert found["percent"] > 0


def test_model_predicts_times_of_its_own_form():
    def point(n):
        return n, 2.0 * n * n * 64, 256.0 * n, 3e-6 * n + max(2.0 * n * n * 64e-12, 256e-9 * n)

    rates = curves.fit([point(n) for n in (10_000, 20_000, 40_000)], 1e9)
    *work, seconds = point(160_000)
    assert curves.predict(rates, *work, 1e9) == pytest.approx(seconds, rel=0.01)
    # a bandwidth that is the limit: the products do not show
    assert curves.predict((0.0, 1e-12), 1, 1e6, 1e6, 1e6) == 1.0


def test_published_predictions_are_within_a_quarter():
    table = (ROOT / "bench" / "model.md").read_text("utf8").splitlines()
    errors = [line.split("|")[-2].strip() for line in table if line.count("%")]
    assert len(errors) >= 2
    assert all(abs(float(one.rstrip("%"))) <= 25 for one in errors)


def test_curves_write_predictions_into_their_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["curves", "SelfJoin", "--model", str(tmp_path / "model.md")])
    sizes = (lambda n: {"rows": f"{n} x 8", "k": 2}), (600, 2_400)
    for axis in ("rows", "rows", "rows again"):
        monkeypatch.setattr(curves, "CURVES", (("SelfJoin", axis, 2, *sizes),))
        curves.main()
        sizes = (lambda n: {"rows": f"{n} x 8", "k": 3}), (600, 2_400)
    table = (tmp_path / "model.md").read_text().splitlines()
    cases = [line.split(" | ")[0] for line in table[4:]]
    assert cases == [f"| neighbours of all 2400 rows x 8, k = {k}" for k in (3, 2)]
