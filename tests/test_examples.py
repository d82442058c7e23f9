"""The examples run, and give the results that their pages describe."""

import ast
import contextlib
import importlib.util
import json
import re
import shutil
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import numpy as np
import pytest

import fastcos

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
    """Run a real server on a free port; yield call(path, body), returning status and JSON."""
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

    def call(path, body=None, method=None):
        message = urllib.request.Request(
            f"http://127.0.0.1:{port}{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
            method=method,
        )
        try:
            with urllib.request.urlopen(message, timeout=30) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.code, json.load(refused)

    call.url = f"http://127.0.0.1:{port}"
    try:
        yield call
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture
def call(retrieval, folder):
    with serving(retrieval.service(folder)) as call:
        yield call


def nearest(items, query, k):
    units = items / np.linalg.norm(items, axis=1, keepdims=True)
    scores = units.astype(np.float64) @ (query / np.linalg.norm(query))
    return np.argsort(-scores, kind="stable")[:k].tolist()


def test_service_returns_exact_neighbours(retrieval, call):
    items = retrieval.random_items(200, 8, seed=0)
    _, similar = call("/items/7/similar?k=3")
    assert [one["id"] for one in similar] == nearest(items, items[7], 4)[1:]
    queries = np.random.default_rng(1).standard_normal((2, 8))
    _, result = call("/search", {"vectors": queries.tolist(), "k": 5})
    for query, hits in zip(queries.astype(np.float32), result, strict=True):
        assert [one["id"] for one in hits] == nearest(items, query, 5)


def test_published_index_is_readable_for_the_user_of_the_service(folder):
    """In a container, the user of the service may differ from the user who wrote the index."""
    current = (folder / "current").resolve()
    for path in (current, *current.rglob("*")):
        assert path.stat().st_mode & 0o004, path
        assert not path.is_dir() or path.stat().st_mode & 0o001, path


def test_service_takes_up_what_a_writer_process_saved(call, folder):
    vector = np.random.default_rng(2).standard_normal(8)
    assert call("/refresh", {}) == (200, {"new": False, "items": 200})
    new = np.random.default_rng(3).standard_normal((40, 8))
    np.savez(folder / "new.npz", ids=np.arange(1000, 1040), vectors=new)
    command = [sys.executable, "-c", "from fastcos.cli.main import entry_point; entry_point()"]
    index = folder / "current" / "index"
    subprocess.run([*command, "index", "add", index, folder / "new.npz"], check=True)
    _, before = call("/search", {"vectors": [vector.tolist()], "k": 100})
    assert not any(one["id"] >= 1000 for one in before[0])
    assert call("/refresh", {}) == (200, {"new": True, "items": 240})
    _, after = call("/search", {"vectors": [vector.tolist()], "k": 100})
    old = [one for one in after[0] if one["id"] < 1000]
    assert old == before[0][: len(old)]
    assert 60 <= len(old) < 100
    shutil.rmtree((folder / "current").resolve() / "index")
    assert call("/refresh", {})[0] == 409
    assert call("/search", {"vectors": [vector.tolist()], "k": 100}) == (200, after)


def test_service_reports_health_readiness_and_errors(call):
    assert call("/health") == (200, {"status": "alive"})
    assert call("/ready") == (200, {"status": "ready", "items": 200})
    assert call("/items/nobody/similar")[0] == 404
    assert call("/items/7/similar?k=0")[0] == 422
    status, answer = call("/search", {"vectors": [[1.0] * 9]})
    assert status == 422
    assert "queries" in answer["detail"]


@pytest.mark.parametrize("kind", [int, str])
def test_service_of_a_shop_filters_and_changes_items(retrieval, tmp_path, kind):
    """The service filters, adds, changes and removes items whose ids are integers or strings.

    The ids have the types that `fastcos index export` writes.
    """
    items = np.random.default_rng(5).standard_normal((600, 8)).astype(np.float32)
    ids = np.arange(600) * 3 + 2
    named = [kind(one) for one in ids]
    retrieval.publish(tmp_path / "shop", items, ids if kind is int else ids.astype(str))

    def ids_in(answer):
        status, hits = answer
        assert status == 200, hits
        return [hit["id"] for hit in hits]

    with serving(retrieval.service(tmp_path / "shop")) as call:
        similar = ids_in(call(f"/items/{ids[7]}/similar?k=5"))
        truth = [named[one] for one in nearest(items, items[7], 600)[1:]]
        assert similar == truth[:5]
        words = "&".join(f"exclude={one}" for one in similar[:3])
        assert ids_in(call(f"/items/{ids[7]}/similar?k=5&{words}")) == truth[3:8]
        body = {"ids": named[7:9], "k": 4, "exclude": [similar[:2], []]}
        assert ids_in((200, call("/similar", body)[1][0])) == truth[2:6]
        query = {"vectors": [items[7].tolist()] * 2, "k": 3, "exclude": [[named[7]], []]}
        answers = [ids_in((200, one)) for one in call("/search", query)[1]]
        assert answers == [truth[:3], [named[7], *truth[:2]]]
        query = {"vectors": [items[7].tolist()], "k": 3, "allowed": truth[50:60]}
        assert ids_in((200, call("/search", query)[1][0])) == truth[50:53]
        assert call("/search", {"vectors": []}) == (200, [])
        # Items 7 and 9999 get the vector of item 500, so each of the three finds the others.
        change = {"ids": [named[7], kind(9999)], "vectors": [items[500].tolist()] * 2}
        assert call("/items", change) == (200, {"items": 601})
        for one, others in ((7, {500, 9999}), (500, {7, 9999})):
            best = ids_in(call(f"/items/{ids[one]}/similar?k=2"))
            assert set(best) == {named[o] if o < 600 else kind(o) for o in others}
        assert call("/items", {"ids": [named[500]]}, "DELETE") == (200, {"items": 600})
        assert call(f"/items/{ids[500]}/similar")[0] == 404
        assert ids_in(call(f"/items/{ids[7]}/similar?k=1")) == [kind(9999)]
        assert call("/items", {"ids": [named[500]]}, "DELETE")[0] == 422
        assert call("/items", {"ids": [named[1]], "vectors": [[1.0] * 9]})[0] == 422
    with serving(retrieval.service(tmp_path / "shop")) as call:  # the changes are on disk
        assert call("/ready")[1]["items"] == 600
        assert ids_in(call(f"/items/{ids[7]}/similar?k=1")) == [kind(9999)]


def test_service_reports_metrics_to_prometheus(call):
    call("/items/7/similar")
    call("/items/nobody/similar")
    with urllib.request.urlopen(call.url + "/metrics", timeout=30) as answer:
        text = answer.read().decode()
    path = 'path="/items/{name:path}/similar"'
    for line in (
        f'fastcos_requests_total{{{path},status="200"}} 1',
        f'fastcos_requests_total{{{path},status="404"}} 1',
        'fastcos_request_seconds_bucket{le="+Inf"} 2',
        "fastcos_request_seconds_count 2",
        "fastcos_items 200",
    ):
        assert line in text.splitlines()
    for share in ("0.5", "0.99"):
        assert f'fastcos_latest_request_seconds{{quantile="{share}"}} 0.' in text


def test_service_searches_within_groups_by_dot_products(retrieval, tmp_path, monkeypatch, capfd):
    """The service finds the items of one shop, reads ids with slashes, and refuses other models."""
    random = np.random.default_rng(6)
    items, users = random.standard_normal((300, 8)), random.standard_normal((4, 8))
    items = items.astype(np.float32)
    shops = np.array(["north", "south"])[random.integers(0, 2, 300)]
    ids = np.array([f"{shop}/item {n}" for n, shop in enumerate(shops)])
    folder = tmp_path / "shop"
    retrieval.publish(folder, items, ids, "als@1", measure="dot", groups=shops)
    monkeypatch.setattr(retrieval, "SLOW", 0.0)

    def best(vector, shop, k):
        scores = np.where(shops == shop, items.astype(np.float64) @ vector, -np.inf)
        return ids[np.argsort(-scores)[:k]].tolist()

    with serving(retrieval.service(folder, model="als@1")) as call:
        query = {"vectors": users.tolist(), "k": 5, "groups": ["south", "north"] * 2}
        status, answer = call("/search", query | {"model": "als@1"})
        assert status == 200
        for vector, shop, hits in zip(users, query["groups"], answer, strict=True):
            assert [hit["id"] for hit in hits] == best(vector, shop, 5)
        assert call("/search", query | {"model": "als@2"})[0] == 409
        assert call("/search", query | {"groups": ["south"]})[0] == 422
        name = urllib.parse.quote(ids[7], safe="")
        status, hits = call(f"/items/{name}/similar?k=3&group={shops[7]}")
        others = [one for one in best(items[7], shops[7], 4) if one != ids[7]]
        assert [hit["id"] for hit in hits] == others[:3]
        change = {"ids": ["north/new"], "vectors": [users[0].tolist()], "groups": ["north"]}
        assert call("/items", change) == (200, {"items": 301})
        assert call("/items", {"ids": ["x"], "vectors": [users[0].tolist()]})[0] == 422
        call("/search", {"vectors": users[:1].tolist()})
    assert "slow: " in capfd.readouterr().out


def test_service_refreshes_itself(retrieval, folder):
    with serving(retrieval.service(folder, refresh_seconds=0.05)) as call:
        index = fastcos.SimilarityIndex.open(retrieval.current_index(folder))
        index.remove([7])
        index.save(retrieval.current_index(folder))
        until = time.monotonic() + 30
        while call("/ready")[1]["items"] != 199:
            assert time.monotonic() < until
            time.sleep(0.05)
        assert call("/items/7/similar")[0] == 404


def test_service_keeps_items_of_its_model(retrieval, tmp_path):
    folder, rows = tmp_path / "served", retrieval.random_items(200, 8, 0)
    retrieval.publish(folder, rows, np.arange(200), "minilm@2")
    path = retrieval.current_index(folder)
    with pytest.raises(ValueError, match="model must be of the same model as the index"):
        retrieval.loaded(folder, "minilm@3")
    for width, name in ((8, "minilm@3"), (8, None), (5, "minilm@2")):
        with serving(retrieval.service(folder, 0.05, "minilm@2")) as call:
            assert call("/ready")[1] == {"status": "ready", "items": 200, "model": "minilm@2"}
            before = call("/items/7/similar")
            other = fastcos.SimilarityIndex(model=name).fit(rows[::-1, :width])
            other.save(path, replace=True)
            until = time.monotonic() + 30
            while "kept_the_old_items" not in call("/ready")[1]:
                assert time.monotonic() < until
                time.sleep(0.05)
            for request in ("/refresh", "/reload"):
                status, answer = call(request, method="POST")
                assert status == 409
                assert "kept the old" in answer["detail"]
            change = {"ids": [7], "vectors": [[1.0] * 8]}
            assert call("/items", change)[0] == 409
            assert call("/items/7/similar") == before
            with urllib.request.urlopen(call.url + "/metrics", timeout=30) as answer:
                assert "fastcos_stale 1" in answer.read().decode().splitlines()
            # When the job that makes the index has been corrected, the service accepts the new
            # index.
            right = fastcos.SimilarityIndex(model="minilm@2").fit(rows)
            right.save(path, replace=True)
            # Either this call or an earlier REFRESH loads the index.
            assert call("/refresh", method="POST")[1]["items"] == 200
            assert "kept_the_old_items" not in call("/ready")[1]
            # A newer version has been published, but the service has loaded an older version. A
            # change to the older version must not overwrite the newer version.
            retrieval.publish(folder, rows[:100], np.arange(100), "minilm@2")
            assert call("/items", change)[0] == 409
            assert call("/reload", method="POST")[1]["items"] == 100
            retrieval.publish(folder, rows, np.arange(200), "minilm@2")
            path = retrieval.current_index(folder)


def test_service_is_not_ready_before_loading(retrieval, folder):
    with serving(retrieval.service(folder), lifespan="off") as call:
        assert call("/health")[0] == 200
        assert call("/ready")[0] == 503
        assert call("/items/7/similar")[0] == 503


def test_reload_serves_new_version_and_ignores_broken_one(retrieval, call, folder):
    retrieval.make(folder, 300, 8, seed=1)
    assert call("/ready")[1]["items"] == 200
    assert call("/reload", method="POST")[1]["items"] == 300
    before = call("/items/7/similar")
    (folder / "broken").mkdir()
    (folder / "link").symlink_to("broken")
    (folder / "link").replace(folder / "current")
    status, answer = call("/reload", method="POST")
    assert status == 409
    assert "kept the old index" in answer["detail"]
    assert call("/items/7/similar") == before


def test_service_answers_all_requests_during_reloads(retrieval, call, folder):
    statuses, stop = [], threading.Event()

    def send_requests():
        while not stop.is_set():
            statuses.append(call("/items/7/similar")[0])

    sender = threading.Thread(target=send_requests)
    sender.start()
    for seed in range(3):
        retrieval.make(folder, 200, 8, seed=seed)
        assert call("/reload", method="POST")[0] == 200
    stop.set()
    sender.join()
    assert len(statuses) > 3
    assert set(statuses) == {200}


class SlowFirstSearch:
    """An index that records the number of queries of each search; the first search waits."""

    def __init__(self, index):
        self.index, self.n_items_, self.sizes = index, index.n_items_, []
        self.started, self.may_end = threading.Event(), threading.Event()

    def search(self, queries, k, *, n_threads):
        self.sizes.append(len(queries))
        self.started.set()
        assert self.may_end.wait(30)
        return self.index.search(queries, k, n_threads=n_threads)


@pytest.mark.parametrize("is_one_wrong", [False, True])
def test_requests_that_wait_together_get_their_own_answers(retrieval, is_one_wrong):
    rng = np.random.default_rng(3)
    items = rng.standard_normal((50, 6)).astype(np.float32)
    index = SlowFirstSearch(fastcos.SimilarityIndex().fit(items))
    batches, answers = retrieval.Batches(index), {}
    sent = [rng.standard_normal((n, 6)).astype(np.float32) for n in (1, 3, 0, 2, 1)]
    wrong = len(sent) if is_one_wrong else None
    if is_one_wrong:
        sent.append(np.ones((1, 7), np.float32))

    def request(number):
        try:
            answers[number] = batches.search(sent[number], number + 1)
        except ValueError as error:
            answers[number] = str(error)

    threads = [threading.Thread(target=request, args=(number,)) for number in range(len(sent))]
    threads[0].start()
    assert index.started.wait(30)
    for thread in threads[1:]:
        thread.start()
    time.sleep(0.3)  # The other threads wait for the first one.
    index.may_end.set()
    for thread in threads:
        thread.join(30)
    for number, queries in enumerate(sent):
        if number == wrong:
            assert "queries must have as many columns" in answers[number]
            continue
        results = [[hit["id"] for hit in hits] for hits in answers[number]]
        assert results == [nearest(items, query, number + 1) for query in queries]
    if not is_one_wrong:
        assert index.sizes == [1, 6]


def ran(name, *arguments):
    done = subprocess.run(
        [sys.executable, EXAMPLES / f"{name}.py", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.slow
def test_gate_passes_rescaled_model_and_fails_other_model(tmp_path):
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


@pytest.mark.slow
@pytest.mark.parametrize("value", ["clicks", ""])
def test_recommender_runs_from_comparison_to_service(value, tmp_path):
    """The example runs on small data; if implicit is installed, it prints implicit's lists, too."""
    pytest.importorskip("uvicorn", reason="the service needs a server")
    rng = np.random.default_rng(0)
    taste, kinds = rng.dirichlet([0.2] * 4, 700), rng.integers(4, size=90)
    likes = rng.random((700, 90)) < taste[:, kinds] * rng.random(90)
    lines = [f"u{u},{11 * i + 5},{rng.integers(1, 4)}" for u, i in np.argwhere(likes)]
    (tmp_path / "seen.csv").write_text("user,item,clicks\n" + "\n".join(lines) + "\n")
    words = (tmp_path / "seen.csv", "--value", value, "--rank", 8, "--days", 3)
    words = (*words, "--folder", tmp_path / "shop", "--port", 8791 + bool(value))
    status, out, err = ran("recommender", *words)
    assert status == 0, out + err
    assert out.endswith("all commands succeeded, and all answers are right\n")
    assert "after changes and a restart, the service answers right" in out
    # The output contains either implicit's own lists or the reason why they are missing. The output
    # also contains a line about the lists of each day.
    assert ("\nsimilar_items: " in out) != ("implicit is not installed (" in out)
    assert all(f"\nday {day}: " in out for day in (1, 2, 3))


@pytest.mark.slow
def test_text_collection_runs_from_a_table_to_a_store(tmp_path):
    """All steps of the script text_collection succeed on small data with near-duplicates."""
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is an extra")
    parquet = pytest.importorskip("pyarrow.parquet")
    vectors = np.random.default_rng(0).standard_normal((400, 24)).astype(np.float32)
    vectors[300:320] = vectors[:20] * 2
    vectors[200] = vectors[100] + 0.01
    columns = {
        "id": [f"chunk-{one:05}" for one in range(400)],
        "text": [f"what chunk {one} says" for one in range(400)],
        "embedding": vectors.tolist(),
    }
    parquet.write_table(arrow.table(columns), tmp_path / "chunks.parquet")
    words = (tmp_path / "chunks.parquet", "--folder", tmp_path / "t")
    status, out, err = ran("text_collection", *words)
    assert status == 0, out + err
    assert out.endswith("all commands succeeded, and all answers are right\n")
    assert "21 texts left out have a near-duplicate: right" in out


def test_load_test_counts_answers_of_service(call):
    status, out, err = ran(
        "load_test", call.url, "--items", 200, "--connections", 2, "--seconds", 0.5
    )
    assert status == 0, err
    requests = re.match(r"2 connections: requests (\d+)", out)
    assert requests
    assert int(requests[1]) > 0


@pytest.mark.slow
def test_which_remedy_writes_table(tmp_path):
    words = ("--users", 300, "--items", 100, "--seeds", 2, "--output", tmp_path / "remedies.csv")
    status, out, err = ran("which_remedy", *words)
    assert status == 0, err
    assert "| measure | `query_metric_cosine` |" in out
    assert len((tmp_path / "remedies.csv").read_text().splitlines()) > 80


@pytest.mark.slow
@pytest.mark.parametrize("name", ["retraining", "temperature", "eq1_against_eq2"])
def test_studies_write_what_they_computed_in_time(name, tmp_path):
    status, _, err = ran(name, "--output", tmp_path / "runs.csv", "--seconds", 1)
    assert status == 0, err
    assert len((tmp_path / "runs.csv").read_text("utf8").splitlines()) > 1


@pytest.mark.slow
def test_study_of_scales_goes_on_and_writes_its_page(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("<!-- forgetting: made by examples/scale_of_dimensions.py -->\n\n"
                    "<!-- end of forgetting -->\n")  # fmt: skip
    for seconds in (1, 2):
        status, _, err = ran(
            "scale_of_dimensions", "--cache", tmp_path / "cache", "--seconds", seconds,
            "--page", page, "--output", tmp_path / "means.csv",
        )  # fmt: skip
        assert status == 0, err
    lines = (tmp_path / "cache" / "forgetting.csv").read_text("utf8").splitlines()
    assert len(lines) == len(set(lines)) > 2
    assert "| simulation | 0 |" in page.read_text("utf8")


@pytest.mark.slow
def test_audit_is_right_about_factors_of_known_origin(monkeypatch):
    """The audit is right about models that were trained in three ways.

    The script audit_known_origins itself trains 100 models in ten ways.
    """
    monkeypatch.syspath_prepend(EXAMPLES)
    study = imported("audit_known_origins")
    ways = {label: (epochs, recipe, decay) for label, epochs, recipe, decay in study.origins(False)}
    reports = {}
    for label in ("ALS, no decay", "ALS, decay on both", "gradient descent, small start"):
        epochs, recipe, decay = ways[label]
        for told, report, wrong in study.judged(label, epochs, recipe, decay, 0, None):
            assert wrong == [], (label, told)
            reports[label, told] = report
    keeps_start = reports["ALS, no decay", "not both"]
    assert (
        "scale of their dimensions therefore depends on the initialisation" in keeps_start.verdict
    )
    assert not reports["ALS, decay on both", "both"].is_free
    # The judge reports wrong answers.
    truth = {"balanced": 1.8, "items_orthonormal": 3.0, "users_orthonormal": 4.0}
    assert study.faults(reports["ALS, decay on both", "both"], truth, "both") != []
    assert study.faults(keeps_start, truth | {"balanced": 1.0}, "not both") != []
    small = reports["gradient descent, small start", "not both"]
    assert small.parametrization == "balanced"
    assert study.faults(small, truth, "not both") != []


@pytest.mark.slow
def test_trainers_agree_with_their_definitions(monkeypatch):
    """One epoch of gradient descent, SGD or ALS gives the same factors as its formula in NumPy."""
    monkeypatch.syspath_prepend(EXAMPLES)
    study = imported("factor_training")
    data = study.simulated(shape=(12, 9), rank=2)
    X = data.values.reshape(data.shape)
    rng = np.random.default_rng(0)
    P, Q = rng.standard_normal((12, 2)), rng.standard_normal((9, 2))
    recipe = {"by": "gd", "step": 0.001, "decays": (0.2, 0.5)}
    ((P1, Q1),) = study.descend(data, P, Q, recipe, [1], 0)
    F = P @ Q.T - X
    np.testing.assert_allclose(P1, P - 0.001 * (F @ Q + 0.2 * 9 * P))
    np.testing.assert_allclose(Q1, Q - 0.001 * (F.T @ P + 0.5 * 12 * Q))
    ((P2, Q2),) = study.descend(data, P, Q, {"by": "als", "decays": (0.2, 0.5)}, [1], 0)
    expected = X @ Q @ np.linalg.inv(Q.T @ Q + 0.2 * np.eye(2))
    np.testing.assert_allclose(P2, expected, rtol=1e-6)
    expected = X.T @ P2 @ np.linalg.inv(P2.T @ P2 + 0.5 * np.eye(2))
    np.testing.assert_allclose(Q2, expected, rtol=1e-6)
    order = np.random.default_rng(1000).permutation(len(data.values))
    ((P3, Q3),) = study.descend(data, P, Q, recipe | {"by": "sgd", "batch": 1}, [1], 0)
    for t in order:
        u, i = data.users[t], data.items[t]
        e = P[u] @ Q[i] - data.values[t]
        P[u], Q[i] = (
            P[u] - 0.001 * (e * Q[i] + 0.2 * P[u]), Q[i] - 0.001 * (e * P[u] + 0.5 * Q[i])
        )  # fmt: skip
    np.testing.assert_allclose(P3, P)
    np.testing.assert_allclose(Q3, Q)


@pytest.mark.slow
def test_stabilized_retraining_aligns_both_models(tmp_path):
    pytest.importorskip("implicit", reason="the example trains models of implicit")
    data = fastcos.simulate_interactions(300, 80, random_state=0).X.tocoo()
    lines = [f"{u},{i}" for u, i in zip(data.row, data.col, strict=True)]
    (tmp_path / "pairs.csv").write_text("user,item\n" + "\n".join(lines) + "\n")
    status, out, err = ran("stabilized_retraining", tmp_path / "pairs.csv")
    assert status == 0, err
    rows = [line for line in out.splitlines() if ", ALS |" in line or ", BPR |" in line]
    assert len(rows) == 2
    for row in rows:
        before, after = map(float, row.split("|")[2].split("->"))
        assert after > before + 0.2


def overlap_of_encoders(tmp_path, noise, *options):
    """Run the example on an encoder and on its rotated, noisy copy; return the printed lines."""
    rng = np.random.default_rng(0)
    meaning = rng.standard_normal((600, 12))
    turned = np.linalg.qr(rng.standard_normal((16, 16)))[0][:12]
    np.save(tmp_path / "old.npy", meaning)
    np.savez(tmp_path / "new.npz", (meaning + noise * rng.standard_normal((600, 12))) @ turned)
    words = (tmp_path / "old.npy", tmp_path / "new.npz", "--sample-size", 150, *options)
    status, out, err = ran("mapped_encoder", *words)
    assert status == 0, err
    return out.splitlines()


@pytest.mark.slow
def test_mapped_encoder_compares_its_prediction_with_the_truth(tmp_path):
    _, _, first, _, _, last = overlap_of_encoders(tmp_path, 0.0, "--samples", 2)
    assert last == "2 of 2 intervals contain the true overlap"
    # The new encoder is a rotation of the old one. If both encoders encode the whole corpus, they
    # find the same texts.
    assert [cell.strip() for cell in first.split("|")[6:8]] == ["1.0000", "1.0000"]
    _, _, *rows, _, last = overlap_of_encoders(tmp_path, 0.3, "--samples", 3)
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    held = 0
    for _, predicted, interval, truth, answer, extrapolated, truth_of_new in cells:
        assert 0.1 < float(truth_of_new) < 0.9
        assert abs(float(extrapolated) - float(truth_of_new)) < 0.2
        low, high = map(float, interval.split(" to "))
        assert low <= float(predicted) <= high < 0.9
        assert abs(float(predicted) - float(truth)) < 0.1
        assert answer == ("yes" if low <= float(truth) <= high else "no")
        held += answer == "yes"
    assert last == f"{held} of 3 intervals contain the true overlap"
    # An encoder without a common meaning has a low overlap.
    _, _, first, *_ = overlap_of_encoders(tmp_path, 100.0, "--samples", 1)
    assert float(first.split("|")[4]) < 0.1


@pytest.mark.slow
def test_mapped_encoder_refuses_files_of_other_texts(tmp_path):
    np.save(tmp_path / "old.npy", np.eye(200))
    np.save(tmp_path / "new.npy", np.eye(200)[:150])
    status, _, err = ran("mapped_encoder", tmp_path / "old.npy", tmp_path / "new.npy")
    assert status == 1
    assert err.strip() == "both files must have one row per text, got 200 and 150 rows"
    words = (tmp_path / "old.npy", tmp_path / "old.npy", "--sample-size", 120, "--queries", 0)
    status, _, err = ran("mapped_encoder", *words)
    assert status == 2
    assert err.strip().endswith("--samples and --queries must be at least 1")


@pytest.mark.slow
def test_service_benchmark_serves_the_index_of_each_library():
    for package in ("fastapi", "uvicorn", "faiss"):
        pytest.importorskip(package)
    words = (sys.executable, "-m", "examples.service_benchmark", "2000", "16", "--seconds", "0.3")
    done = subprocess.run(
        words, cwd=EXAMPLES.parent, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("| f")]
    rows = [line.strip("|").split("|") for line in lines]
    assert [row[0].strip() for row in rows] == ["fastcos"] * 3 + ["faiss"] * 3
    assert all(row[5].strip().startswith("1.0000 of ") for row in rows)


def test_examples_are_all_run():
    text = Path(__file__).read_text("utf8")
    elsewhere = {
        "service_benchmark.py": "test_service_benchmark_serves_the_index_of_each_library",
        "service_benchmark.md": "the table that it prints",
        "Dockerfile": "its steps are pip, tests/test_native_wheel.py and the service",
        "sensitivity.py": "tests/test_sensitivity_example.py",
    }
    for path in EXAMPLES.iterdir():
        if not path.name.startswith("_"):
            assert path.name in elsewhere or f'"{path.stem}"' in text, path.name


@pytest.mark.slow
def test_audit_your_embeddings_finds_known_answers(tmp_path):
    status, out, err = ran("audit_your_embeddings", tmp_path / "out")
    assert status == 0, err
    reports = {
        path.stem: json.loads(path.read_text())["audit"]
        for path in (tmp_path / "out").glob("*.json")
    }
    assert len(reports) == 4
    assert all((tmp_path / "out" / f"{name}.html").is_file() for name in reports)
    assert (tmp_path / "out" / "robustness.png").stat().st_size > 10_000
    assert (tmp_path / "out" / "summary.md").read_text() in out
    # Weight decay on both sides determines the rescaling.
    assert reports["simulation-eq-2"]["parametrization"] == "balanced"
    assert reports["simulation-eq-1"]["parametrization"] is None

    def jaccard(name, form):
        rows = (*reports[name]["parametrizations"], *reports[name]["invariant_baselines"])
        return next(row["jaccard"] for row in rows if row["name"] == form)

    # The report shows that the neighbours change if a planted rescaling is undone.
    planted, plain = "simulation-planted-d", "simulation-eq-1"
    assert jaccard(planted, "balanced") < 0.8 < jaccard(plain, "balanced")
    # The items are noise, so their cosines do not recover the labels under any rescaling.
    recovery = reports["isotropic-noise"]["label_recovery"]
    assert 0.47 < recovery["low"] <= recovery["high"] < 0.53
    assert max(reports["isotropic-noise"]["dimension_shares"]) < 1.5 / 32


@pytest.mark.slow
def test_cluster_example_resumes(tmp_path):
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


@pytest.mark.slow
def test_deep_models_measure_what_separates_two_runs(tmp_path, monkeypatch):
    pytest.importorskip("torch", reason="the example needs torch")
    deep = imported("deep_models")
    rng = np.random.default_rng(0)
    rows = np.linalg.qr(rng.standard_normal((50, 3)))[0]
    rotation = np.linalg.qr(rng.standard_normal((3, 3)))[0]
    assert deep.separation(rows @ rotation, rows) == pytest.approx(1)
    assert deep.separation(rows * [1, 2, 5], rows) == pytest.approx(5)
    rest = np.array([[True, False, False], [False, False, True]])
    scores = np.array([[9.0, 2, 1], [1.0, 2, 3]])
    assert deep.recall(scores, rest, np.array([1, 0]), k=1) == 0.5
    monkeypatch.setattr(deep, "N_STEPS", 3)
    monkeypatch.setattr(sys, "argv", ["x", "--seeds", "2", "--output", str(tmp_path / "runs.csv")])
    deep.main()
    assert len((tmp_path / "runs.csv").read_text().splitlines()) == 1 + 2 * 10


NOTEBOOKS = sorted((EXAMPLES / "notebooks").glob("*.ipynb"))


def cells_of(path):
    """Return the code cells of a notebook."""
    cells = json.loads(path.read_text("utf8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_executed_in_order(path):
    assert len(NOTEBOOKS) == 3
    assert path.stat().st_size < 500_000
    cells = cells_of(path)
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert outputs
    assert {one["output_type"] for one in outputs} <= {"execute_result", "stream", "display_data"}


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs_within_two_minutes(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names, started = {}, time.monotonic()
    for cell in cells_of(path):
        # A notebook shows the value of the last line of a cell.
        *before, last = ast.parse("".join(cell["source"])).body
        exec(compile(ast.Module(before, []), path.name, "exec"), names)
        shown = isinstance(last, ast.Expr)
        kind = ast.Expression(last.value) if shown else ast.Module([last], [])
        value = eval(compile(kind, path.name, "eval" if shown else "exec"), names)
        texts = [out["data"]["text/plain"] for out in cell["outputs"] if "data" in out]
        if isinstance(value, bool):
            assert texts == [["True"]]
        if hasattr(value, "table"):
            assert all(head in "".join(texts[0]) for head in value.table().header)
        if hasattr(value, "_repr_png_"):
            assert value._repr_png_().startswith(b"\x89PNG")
    assert time.monotonic() - started < 120
