"""The examples run as their pages say."""

import contextlib
import importlib.util
import json
import re
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


def imported(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def retrieval():
    pytest.importorskip("fastapi", reason="the service needs fastapi")
    pytest.importorskip("uvicorn", reason="the service needs a server")
    return imported("retrieval_service")


@pytest.fixture
def folder(retrieval, tmp_path):
    retrieval.make(tmp_path / "served", 200, 8)
    return tmp_path / "served"


@contextlib.contextmanager
def serving(app, **settings):
    """A real server on a free port of this machine; yields ask(path, body), the status and JSON."""
    import uvicorn

    server = uvicorn.Server(
        uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error", **settings)
    )
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]

    def ask(path, body=None, method=None):
        asked = urllib.request.Request(
            f"http://127.0.0.1:{port}{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
            method=method,
        )
        try:
            with urllib.request.urlopen(asked, timeout=30) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.code, json.load(refused)

    ask.url = f"http://127.0.0.1:{port}"
    try:
        yield ask
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture
def ask(retrieval, folder):
    with serving(retrieval.service(folder)) as ask:
        yield ask


def nearest(items, query, k):
    units = items / np.linalg.norm(items, axis=1, keepdims=True)
    scores = units.astype(np.float64) @ (query / np.linalg.norm(query))
    return [str(item) for item in np.argsort(-scores, kind="stable")[:k]]


def test_the_service_answers_what_brute_force_answers(ask, folder):
    items = np.load(folder / "current" / "items.npy")
    _, similar = ask("/items/7/similar?k=3")
    assert [one["id"] for one in similar] == nearest(items, items[7], 4)[1:]
    queries = np.random.default_rng(1).standard_normal((2, 8))
    _, found = ask("/search", {"vectors": queries.tolist(), "k": 5})
    for query, hits in zip(queries.astype(np.float32), found, strict=True):
        assert [one["id"] for one in hits] == nearest(items, query, 5)


def test_the_service_tells_health_readiness_and_errors(ask):
    assert ask("/health") == (200, {"status": "alive"})
    assert ask("/ready") == (200, {"status": "ready", "items": 200})
    assert ask("/items/nobody/similar")[0] == 404
    assert ask("/items/7/similar?k=0")[0] == 422
    status, told = ask("/search", {"vectors": [[1.0] * 9]})
    assert status == 422
    assert "queries" in told["detail"]


def test_the_service_is_not_ready_before_it_has_loaded(retrieval, folder):
    with serving(retrieval.service(folder), lifespan="off") as ask:
        assert ask("/health")[0] == 200
        assert ask("/ready")[0] == 503
        assert ask("/items/7/similar")[0] == 503


def test_a_reload_serves_the_new_version_and_a_broken_one_changes_nothing(retrieval, ask, folder):
    retrieval.make(folder, 300, 8, seed=1)
    assert ask("/ready")[1]["items"] == 200
    assert ask("/reload", method="POST")[1]["items"] == 300
    before = ask("/items/7/similar")
    (folder / "broken").mkdir()
    (folder / "link").symlink_to("broken")
    (folder / "link").replace(folder / "current")
    status, told = ask("/reload", method="POST")
    assert status == 409
    assert "kept the old index" in told["detail"]
    assert ask("/items/7/similar") == before


def test_no_request_fails_while_versions_change(retrieval, ask, folder):
    statuses, stop = [], threading.Event()

    def keep_asking():
        while not stop.is_set():
            statuses.append(ask("/items/7/similar")[0])

    asking = threading.Thread(target=keep_asking)
    asking.start()
    for seed in range(3):
        retrieval.make(folder, 200, 8, seed=seed)
        assert ask("/reload", method="POST")[0] == 200
    stop.set()
    asking.join()
    assert len(statuses) > 3
    assert set(statuses) == {200}


def ran(name, *arguments):
    done = subprocess.run(
        [sys.executable, EXAMPLES / f"{name}.py", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def test_the_gate_passes_a_rescaled_model_and_fails_another_one(tmp_path):
    rng = np.random.default_rng(0)
    factors = {"users": rng.standard_normal((60, 4)), "items": rng.standard_normal((40, 4))}
    D = np.array([1.0, 4.0, 0.5, 9.0])
    np.savez(tmp_path / "old.npz", **factors)
    np.savez(tmp_path / "same.npz", users=factors["users"] * D, items=factors["items"] / D)
    np.savez(tmp_path / "other.npz", users=factors["users"], items=rng.standard_normal((40, 4)))
    status, out, _ = ran("gate_embeddings", tmp_path / "old.npz", tmp_path / "same.npz")
    assert status == 0
    assert "canonical : predictions changed by 0.0%, CCA similarity 1.000, Jaccard@10 1.000" in out
    status, _, err = ran("gate_embeddings", tmp_path / "old.npz", tmp_path / "other.npz")
    assert status == 1
    assert "failed: Jaccard@10 is less than 0.6" in err


def test_the_load_test_counts_every_answer_of_the_service(ask):
    status, out, err = ran(
        "load_test", ask.url, "--items", 200, "--connections", 2, "--seconds", 0.5
    )
    assert status == 0, err
    requests = re.match(r"2 connections: requests (\d+)", out)
    assert requests
    assert int(requests[1]) > 0


@pytest.mark.slow
def test_training_for_the_cosine_prints_every_training(tmp_path):
    status, out, err = ran("train_for_cosine", "--users", 300, "--items", 100, "--seeds", 1)
    assert status == 0, err
    _, *rows = out.splitlines()
    assert len(rows) == 10
    aucs = {row[:32].strip(): float(row[32:42]) for row in rows}
    assert aucs["CosineMF"] > aucs["Eq. 1, orthonormal"]


@pytest.mark.slow
def test_the_table_of_remedies_can_be_made_again(tmp_path):
    words = ("--users", 300, "--items", 100, "--seeds", 2, "--output", tmp_path / "remedies.csv")
    status, out, err = ran("which_remedy", *words)
    assert status == 0, err
    assert "| measure | `query_metric_cosine` |" in out
    assert len((tmp_path / "remedies.csv").read_text().splitlines()) > 80


def test_every_example_is_run_here_or_says_where():
    text = Path(__file__).read_text("utf8")
    elsewhere = {"Dockerfile": "its steps are pip, fastcos warmup and the service"}
    for path in EXAMPLES.iterdir():
        if not path.name.startswith("_"):
            assert path.name in elsewhere or f'"{path.stem}"' in text, path.name


def test_the_audits_of_known_answers_say_so(tmp_path):
    status, out, err = ran("audit_your_embeddings", tmp_path / "out")
    assert status == 0, err
    cards = {
        path.stem: json.loads(path.read_text())["audit"]
        for path in (tmp_path / "out").glob("*.json")
    }
    assert len(cards) == 4
    assert all((tmp_path / "out" / f"{name}.html").is_file() for name in cards)
    assert (tmp_path / "out" / "survival.png").stat().st_size > 10_000
    assert (tmp_path / "out" / "summary.md").read_text() in out
    # weight decay on both sides fixes the rescaling
    assert cards["simulation-eq-2"]["convention"]["name"] == "balanced"
    assert cards["simulation-eq-1"]["convention"] is None

    def jaccard(name, form):
        rows = (*cards[name]["family"], *cards[name]["alternatives"])
        return next(row["jaccard"] for row in rows if row["name"] == form)

    # undone, a planted rescaling changes the neighbours: the card shows it
    planted, plain = "simulation-planted-d", "simulation-eq-1"
    assert jaccard(planted, "balanced") < 0.8 < jaccard(plain, "half_columns")
    # noise knows no labels under any rescaling
    recovery = cards["isotropic-noise"]["recovery"]
    assert 0.47 < recovery["low"] <= recovery["high"] < 0.53
    assert max(cards["isotropic-noise"]["dimensions"]) < 1.5 / 32


@pytest.mark.slow
def test_the_cluster_example_goes_on_where_it_stopped(tmp_path):
    pytest.importorskip("distributed", reason="dask is an extra")
    status, out, err = ran("neighbors_on_a_cluster", tmp_path)
    assert status == 0, err
    assert "neighbours of 300 items" in out
    lists = np.load(tmp_path / "neighbors" / "indices.npy")
    units = np.load(tmp_path / "items.npy").astype(np.float64)
    assert lists[5].tolist() == [int(one) for one in nearest(units, units[5], 11)[1:]]
    before = (tmp_path / "neighbors" / "indices.npy").stat().st_mtime_ns
    again = ran("neighbors_on_a_cluster", tmp_path)
    assert again[:2] == (0, out)
    assert (tmp_path / "neighbors" / "indices.npy").stat().st_mtime_ns == before
