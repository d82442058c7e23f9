"""bench.your_data: what is measured of a file, what is printed, and the exit status."""

import json

import numpy as np
import pytest
import scipy.sparse as sp

from bench import answers, inputs, turns, workloads, your_data as bench
from bench.worker import OURS

FEW = ("--seconds", 0.001, "--processes", 1, "--threads", 1)


def run(*words):
    return bench.main([str(word) for word in words])


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    path = tmp_path_factory.mktemp("rows") / "rows.npy"
    np.save(path, np.random.default_rng(0).standard_normal((300, 8)).astype(np.float32))
    return path


def outcome(*_):
    facts = {"setting": "", "peak_mib": 1.0, "percents": [50.0, 50.0], "limited_by": "tile"}
    facts |= {"count": 10.0, "bytes": 1e6, "operations": 1e9}
    found = {
        name: facts | {"turns": [[seconds], [seconds]]}
        for name, seconds in ((OURS, 0.1), ("faiss", 0.2))
    }
    absent = {"numkong": "numkong is not installed", "numpy": "wrong"}
    return turns.Outcome(found, absent, None)


@pytest.mark.slow  # six processes
def test_searches_of_a_file_are_measured(rows, capsys):
    assert run(rows, "--k", 5, "--libraries", "numpy,sklearn,numkong", *FEW) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == f"SelfJoin {rows} k=5"
    assert {"fastcos", "numpy", "sklearn"} <= {line.split()[0] for line in printed[1:-2]}
    assert printed[-2].startswith("fastcos ")


@pytest.mark.slow  # four processes
def test_products_of_a_file_are_measured(tmp_path, capsys):
    X = sp.random_array((80, 40), density=0.2, rng=0, format="csr", dtype=np.float32)
    sp.save_npz(tmp_path / "X.npz", X)
    picture = tmp_path / "roofline.png"
    words = ("--libraries", "scipy", "--json", "--roofline", picture)
    assert run(tmp_path / "X.npz", *words, *FEW) == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    results = json.loads(capsys.readouterr().out)["results"]
    names = [(one["operation"].split()[0], one["library"]) for one in results]
    assert names == [(kind, name) for kind in ("Matmul", "GramMatmul") for name in (OURS, "scipy")]
    assert all(one["seconds"] > 0 for one in results)


def test_results_and_reasons_are_printed(rows, capsys, monkeypatch):
    monkeypatch.setattr(turns, "measure", outcome)
    assert run(rows, *FEW) == 0
    printed = capsys.readouterr().out
    assert " 2.00 [2.00, 2.00] x fastcos, faster" in printed
    assert "numkong is not installed" in printed
    assert "100 ms, 50% of the limit; 2x faiss" in printed
    assert run(rows, "--json", *FEW) == 0
    document = json.loads(capsys.readouterr().out)
    assert [one["ratio"] for one in document["results"]] == pytest.approx([1, 2])
    assert document["results"][1]["percent_of_limit"] == pytest.approx(25)
    assert set(document["missing"]) == {"numkong", "numpy"}


def test_scaling_is_measured_where_there_are_threads(rows, monkeypatch):
    asked = []
    monkeypatch.setattr(turns, "measure", lambda *given: asked.append(given[2]) or outcome())
    for threads in (1, 2):
        run(rows, "--libraries", "faiss", "--threads", threads)
    assert asked == [[OURS, "faiss"], [OURS, "fastcos on 1 thread", "faiss"]]


def test_wrong_answer_of_fastcos_is_status_1(rows, monkeypatch, capsys):
    monkeypatch.setattr(answers, "wrong_rows", lambda *_, **__: 3.0)
    assert run(rows, "--k", 3, *FEW) == 1
    assert "fastcos is wrong: error must be at most 0, got 3" in capsys.readouterr().err


def test_invalid_settings_are_status_2(rows, capsys):
    with pytest.raises(SystemExit, match="2"):
        run(rows, "--libraries", "nothing", *FEW)
    assert "--libraries must be" in capsys.readouterr().err


def test_rows_of_a_file_may_tie_in_float64(tmp_path):
    rng = np.random.default_rng(0)
    # equal in exact arithmetic, rounded differently: multiples of rows
    rows = np.repeat(rng.integers(1, 9, (40, 3)), 3, axis=0) * np.tile([[1], [3], [7]], (40, 1))
    np.save(tmp_path / "rows.npy", rows.astype(np.float32))
    workload = workloads.dense.SelfJoin(rows=str(tmp_path / "rows.npy"), k=2)
    answer = workload.call()
    assert workload.error(answer) == 0
    swapped = answer._replace(indices=answer.indices[:, ::-1])
    assert workload.error(swapped) == 0
    assert answers.wrong_rows(swapped.indices, rows.astype(np.float32)) > 0
    repeated = answer._replace(indices=answer.indices[:, :1].repeat(2, axis=1))
    assert workload.error(repeated) > 0


def test_interactions_of_a_file_are_read(tmp_path):
    (tmp_path / "own.csv").write_text("user,item,value\na,x,2\na,y,1\nb,y,4\n")
    X = inputs.interactions(str(tmp_path / "own.csv"))
    np.testing.assert_array_equal(X.toarray(), [[2, 1], [0, 4]])
