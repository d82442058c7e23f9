"""A cluster of processes returns bit-identical results, even if workers are killed."""

import os
import random
import signal
import threading
import time

import numpy as np
import pytest
import scipy.sparse as sp

import fastcos
from fastcos.linalg.operators import as_operator
from tests.oracles.compare import assert_same_bits

dask = pytest.importorskip("dask", reason="dask is an extra")
dask_distributed = pytest.importorskip("distributed", reason="dask is an extra")

from fastcos import distributed  # noqa: E402 # needs dask

pytestmark = [
    pytest.mark.slow,  # Starting the processes takes longer than their computations.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of Dask's own dependencies
    pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning"),
]


@pytest.fixture(scope="module")
def cluster():
    with dask_distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0",
        memory_limit="2GiB",
    ) as cluster:  # fmt: skip
        yield cluster


@pytest.fixture
def client(cluster):
    with dask_distributed.Client(cluster) as client:
        yield client


@pytest.fixture
def small_tasks(monkeypatch):
    monkeypatch.setattr(distributed, "QUERIES_PER_TASK", 700)
    monkeypatch.setattr(distributed, "MIN_ITEMS", 900)


@pytest.fixture
def rows(tmp_path):
    X = np.random.default_rng(0).standard_normal((4000, 24)).astype(np.float32)
    X[3000:3100] = X[:100]
    np.save(tmp_path / "rows.npy", X)
    return X


@pytest.fixture
def shards(tmp_path):
    X = sp.random_array((900, 80), density=0.2, rng=np.random.default_rng(1), format="csr")
    return fastcos.linalg.InteractionShards.write(tmp_path / "x", X, entries_per_shard=2000)


def assert_same(result, expected):
    assert_same_bits(result.indices, expected.indices)
    assert_same_bits(result.scores, expected.scores)


def assert_agree(result, expected):
    """Results may differ by rounding, as BLAS may round differently with fewer threads."""
    np.testing.assert_allclose(result.s, expected.s, rtol=1e-9)
    np.testing.assert_allclose(result.Vt, expected.Vt, atol=1e-6)
    assert result.residuals.max() <= 1e-3


@pytest.mark.usefixtures("small_tasks")
@pytest.mark.parametrize("measure", ["cosine", "neg_euclidean"])
def test_top_k_equals_one_machine(client, rows, tmp_path, measure):
    calls = []
    file, out = tmp_path / "rows.npy", tmp_path / "out"
    result = distributed.top_k(
        file, k=5, measure=measure, out=out, progress=lambda *seen: calls.append(seen)
    )
    assert_same(result, fastcos.top_k(rows, k=5, measure=measure))
    assert calls[-1] == (4000, 4000)
    assert len(calls) == 8
    np.save(tmp_path / "queries.npy", rows[:50] + 1)
    result = distributed.top_k(tmp_path / "queries.npy", file, k=3, out=tmp_path / "other")
    assert_same(result, fastcos.top_k(rows[:50] + 1, rows, k=3))


def test_top_k_has_a_bounded_number_of_tasks():
    for n, m in ((10, 10), (10**6, 10**6), (10**8, 10**8), (10**9, 10**9)):
        block = distributed.queries_per_task(n)
        blocks = -(-n // block)
        tasks = blocks * -(-m // distributed.items_per_task(blocks, m))
        assert tasks <= max(distributed.MAX_TASKS, blocks)


def test_top_k_resumes_after_its_client_is_lost(client, rows, tmp_path, monkeypatch):
    monkeypatch.setattr(distributed, "QUERIES_PER_TASK", 500)

    class ClientLostError(Exception):
        pass

    def leave(done, total):
        if done >= 1500:
            raise ClientLostError

    file = tmp_path / "rows.npy"
    with pytest.raises(ClientLostError):
        distributed.top_k(file, k=5, out=tmp_path / "out", progress=leave)
    calls = []
    result = distributed.top_k(
        file, k=5, out=tmp_path / "out", progress=lambda *seen: calls.append(seen)
    )
    assert calls[0] == (2000, 4000)
    assert_same(result, fastcos.top_k(rows, k=5))


def test_products_and_svd_equal_one_machine(client, shards, monkeypatch):
    monkeypatch.setattr(fastcos.linalg.shards, "ENTRIES_HELD", 0)
    assert len(shards) > 5
    Q = np.random.default_rng(2).standard_normal((80, 7))
    svd = distributed.gram_matmul(shards.path, Q)
    sums = [fastcos.gram_matmul(X, Q) for _, X in shards.blocks()]
    # Add the results of every two adjacent shards. Then add every two adjacent sums, until one sum
    # remains.
    while len(sums) > 1:
        sums = [sum(sums[first + 1 : first + 2], sums[first]) for first in range(0, len(sums), 2)]
    assert_same_bits(svd, sums[0])
    np.testing.assert_allclose(svd, fastcos.gram_matmul(shards, Q), rtol=1e-12)
    center = {"center": np.arange(80.0)}
    svd = distributed.gram_matmul(shards.path, Q, **center)
    np.testing.assert_allclose(svd, fastcos.gram_matmul(shards, Q, **center), rtol=1e-9)
    svd = distributed.randomized_svd(shards.path, 4)
    assert_agree(svd, fastcos.randomized_svd(shards, 4))
    calls = []
    model = distributed.fit(
        fastcos.LinearMF(3, center=True), shards.path, progress=lambda *at: calls.append(at)
    )
    assert calls[-1][0] == calls[-1][1]
    on_one = fastcos.LinearMF(3, center=True).fit(shards)
    np.testing.assert_allclose(model.item_embeddings(), on_one.item_embeddings(), atol=1e-8)


def test_randomized_svd_of_wide_interactions(client, tmp_path):
    X = sp.random_array((60, 500), density=0.2, rng=np.random.default_rng(1), format="csr")
    path = fastcos.linalg.InteractionShards.write(tmp_path / "w", X, entries_per_shard=900).path
    svd = distributed.randomized_svd(path, 3)
    expected = np.linalg.svd(X.toarray(), compute_uv=False)[:3]
    np.testing.assert_allclose(svd.s, expected, rtol=1e-3)


def test_top_k_refuses_invalid_arguments(client, rows, tmp_path):
    file = tmp_path / "rows.npy"
    with pytest.raises(
        ValueError, match=r"working_memory must be at most \d+ MiB per task for work"
    ):
        distributed.top_k(file, out=tmp_path / "out", working_memory=1e5)
    with pytest.raises(
        ValueError, match=r"measure must be one that learns nothing from the items, got .* A search"
    ):
        distributed.top_k(file, measure="whitened_cosine", out=tmp_path / "out")
    with pytest.raises(ValueError, match="k must be"):
        distributed.top_k(file, k=4000, out=tmp_path / "out")
    with pytest.raises(FileNotFoundError):
        distributed.top_k(tmp_path / "no.npy", out=tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rows.npy"]


def test_products_refuse_a_worker_with_too_little_memory(client, shards, monkeypatch):
    monkeypatch.setattr(fastcos.linalg.shards, "ENTRIES_HELD", 0)
    operator = as_operator(distributed.ClusterShards(shards.path, client))
    wide = np.broadcast_to(1.0, (80, 3_000_000))
    with pytest.raises(
        ValueError, match=r"worker \S+ must have \d+ MiB per task .* got 1024 MiB\."
    ):
        operator.gram_matmul(wide)
    with pytest.raises(ValueError, match=r"worker \S+ must have"):
        operator.matmul(wide)
    narrow = np.ones((80, 2))
    product = distributed.gram_matmul(shards.path, narrow, client=client)
    np.testing.assert_allclose(product, fastcos.gram_matmul(shards, narrow), rtol=1e-12)


@pytest.mark.parametrize("labelled", [True, False])
def test_compare_equals_one_machine(client, tmp_path, labelled):
    data = fastcos.simulate_interactions(900, 120, random_state=1)
    labels = data.item_cluster if labelled else None
    options = {
        "n_components": 8,
        "measures": ["dot", "csls"] if labelled else ["dot", "user_item_dot"],
        "preprocessing": ["normalize_rows"],
    }
    expected = fastcos.compare(data.X, labels, **options)
    calls = []
    comparison = distributed.compare(
        data.X, labels, folder=tmp_path, progress=lambda *seen: calls.append(seen), **options
    )
    assert comparison.leaderboard.rows == expected.leaderboard.rows
    assert comparison.leaderboard.conclusion == expected.leaderboard.conclusion
    assert (comparison.named, comparison.grid) == (expected.named, expected.grid)
    for name, lists in expected.neighbors.items():
        assert_same_bits(comparison.neighbors[name], lists)
    start = max(i for i, (done, _) in enumerate(calls) if done == 0)  # before it, factorisations
    cells = len(calls) - start - 1
    assert calls[start:] == [(done, cells) for done in range(cells + 1)]
    assert not list(tmp_path.iterdir())


def test_compare_raises_the_error_of_a_cell(client, tmp_path):
    data = fastcos.simulate_interactions(900, 120, random_state=1)
    options = {"n_components": 8, "measures": [fastcos.get_measure("csls", n_neighbors=4000)]}
    with pytest.raises(ValueError, match="n_neighbors must be"):
        fastcos.compare(data.X, data.item_cluster, **options)
    with pytest.raises(ValueError, match="n_neighbors must be"):
        distributed.compare(data.X, data.item_cluster, folder=tmp_path, **options)
    assert not list(tmp_path.iterdir())


def test_top_k_raises_the_error_of_a_worker(client, rows, tmp_path):
    rows[1234, 5] = np.nan
    np.save(tmp_path / "rows.npy", rows)
    with pytest.raises(ValueError, match="must be finite, got NaN or infinity in row 1234"):
        distributed.top_k(tmp_path / "rows.npy", out=tmp_path / "out")


def kill_for(seconds, cluster, killed):
    """Kill a random worker every 2 s; wait until it has ended before killing the next one."""
    chance, end = random.Random(0), time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(2)
        processes = [nanny.process for nanny in list(cluster.workers.values())]
        pids = [process.pid for process in processes if process is not None and process.pid]
        if pids:
            killed.append(chance.choice(pids))
            os.kill(killed[-1], signal.SIGKILL)


@pytest.mark.skipif(os.name != "posix", reason="kills by signal")
def test_killed_workers_do_not_change_results(tmp_path, monkeypatch):
    """Results remain bit-identical if one of four workers is killed at random every 2 s.

    The test kills workers for 30 s.
    """
    monkeypatch.setattr(distributed, "QUERIES_PER_TASK", 2000)
    rows = np.random.default_rng(0).standard_normal((40_000, 64)).astype(np.float32)
    np.save(tmp_path / "rows.npy", rows)
    X = sp.random_array((20_000, 400), density=0.05, rng=np.random.default_rng(1), format="csr")
    path = fastcos.linalg.InteractionShards.write(tmp_path / "x", X, entries_per_shard=40_000).path
    expected = fastcos.top_k(rows, k=5)
    svd = fastcos.randomized_svd(fastcos.linalg.InteractionShards(path), 8)
    killed, runs = [], 0
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 100}),
        dask_distributed.LocalCluster(
            n_workers=4, threads_per_worker=1, dashboard_address=":0"
        ) as cluster,
        dask_distributed.Client(cluster) as client,
    ):
        thread = threading.Thread(target=kill_for, args=(30, cluster, killed))
        thread.start()
        while thread.is_alive():
            out = tmp_path / f"out{runs}"
            result = distributed.top_k(tmp_path / "rows.npy", k=5, out=out, client=client)
            assert_same(result, expected)
            assert_agree(distributed.randomized_svd(path, 8, client=client), svd)
            runs += 1
        thread.join()
    assert runs
    assert len(killed) >= 10
