"""bench.your_data: answers are checked before they are timed; the times are not tested."""

import argparse
import json
import sys

import numpy as np
import pytest
import scipy.sparse as sp

from bench import limits, your_data as bench


def run(*arguments):
    parser = argparse.ArgumentParser()
    bench.add_arguments(parser)
    return bench.run(parser.parse_args([str(word) for word in arguments]))


@pytest.fixture(scope="module")
def rows():
    return np.random.default_rng(0).standard_normal((300, 8)).astype(np.float32)


@pytest.fixture(scope="module")
def interactions():
    return sp.random_array((80, 40), density=0.2, rng=0, format="csr", dtype=np.float32)


def brute_force(rows, k):
    unit = rows.astype(np.float64) / np.linalg.norm(rows.astype(np.float64), axis=1)[:, None]
    scores = unit @ unit.T
    np.fill_diagonal(scores, -np.inf)
    return np.argsort(-scores, axis=1, kind="stable")[:, :k]


def is_right(operation, library, found):
    return operation.error(found) <= operation.limits[library]


def test_search_operation_rejects_wrong_answers(rows):
    operation, right = bench.search_operation(rows, 5, {"fastcos", "numpy"}), brute_force(rows, 5)
    missed = right.copy()
    missed[0, 4] = brute_force(rows, 6)[0, 5]
    itself = right.copy()
    itself[:, 0] = np.arange(len(rows))
    repeated = np.repeat(right[:, :1], 5, axis=1)
    for library in ("fastcos", "numpy"):
        assert is_right(operation, library, right)
        for wrong in (right[:, ::-1], missed, itself, repeated, right * 0 - 1):
            assert not is_right(operation, library, wrong)


def test_search_operation_allows_float32_ties(rows):
    near = np.concatenate([rows, rows[:1]])
    near[300, 0] *= 1 + 1e-6  # float32 products cannot order this row and row 0
    operation, right = bench.search_operation(near, 5, {"fastcos", "numpy"}), brute_force(near, 5)
    swapped = right.copy()
    both = (right == 0).any(axis=1) & (right == 300).any(axis=1)
    swapped[both] = np.select([right == 0, right == 300], [300, 0], right)[both]
    assert both.any()
    # of all rows, not only of those that are checked
    assert is_right(operation, "numpy", swapped)


def test_product_operations_reject_wrong_answers(interactions):
    products = bench.product_operations(interactions, {"fastcos", "scipy"})
    assert [operation.name for operation in products] == ["X A", "X'(X A)"]
    for operation in products:
        right = operation.calls["scipy"]()
        assert is_right(operation, "scipy", right)
        assert is_right(operation, "fastcos", operation.calls["fastcos"]())
        right[3, 2] += 0.01 * abs(right).max()
        assert not is_right(operation, "fastcos", right)


@pytest.mark.slow
def test_measure_does_not_time_wrong_answers():
    calls = {"fastcos": lambda: 0.0, "numpy": lambda: 0.0, "faiss": lambda: 1.0}
    work = limits.Work(1, multiply_adds=10.0)
    operation = bench.Operation("search", calls, float, dict.fromkeys(calls, 0.5), work)
    ours, right, wrong = bench.measure(operation, 0.001)
    assert ours["ratio"] == 1
    assert right["correct"]
    assert right["seconds"] > 0
    assert right["operations_per_second"] == pytest.approx(20 / right["seconds"])
    assert right["percent_of_limit"] > 0
    assert (wrong["seconds"], wrong["ratio"], wrong["correct"]) == (None, None, False)


def test_bench_prints_a_table_of_searches(rows, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    np.save(tmp_path / "rows.npy", rows)
    words = ("--k", 5, "--seconds", 0.001, "--libraries", "faiss,numpy,sklearn", "--threads", 1)
    assert run(tmp_path / "rows.npy", *words) == 0
    printed = capsys.readouterr()
    assert "rows.npy, 300 x 8" in printed.out
    # in the table and in the line to share
    assert [printed.out.count(name) for name in ("numpy", "sklearn", "faiss")] == [2, 2, 0]
    assert printed.out.splitlines()[-1].startswith("fastcos ")
    assert "not installed: faiss" in printed.err


@pytest.mark.slow
def test_bench_prints_products_as_json(interactions, tmp_path, capsys):
    sp.save_npz(tmp_path / "X.npz", interactions)
    words = ("--seconds", 0.001, "--threads", 1, "--json", "--roofline", tmp_path / "roofline.png")
    assert run(tmp_path / "X.npz", *words) == 0
    assert (tmp_path / "roofline.png").read_bytes().startswith(b"\x89PNG")
    document = json.loads(capsys.readouterr().out)
    assert document["parameters"]["shape"] == [80, 40]
    assert [(one["operation"], one["library"]) for one in document["results"]] == [
        ("X A", "fastcos"), ("X A", "scipy"), ("X'(X A)", "fastcos"), ("X'(X A)", "scipy"),
    ]  # fmt: skip
    assert all(one["correct"] and one["seconds"] > 0 for one in document["results"])


def test_bench_fails_where_fastcos_is_wrong(rows, tmp_path, monkeypatch, capsys):
    np.save(tmp_path / "rows.npy", rows)
    work = limits.Work(1)
    wrong = bench.Operation("search", {"fastcos": lambda: 1.0}, float, {"fastcos": 0.5}, work)
    monkeypatch.setattr(bench, "search_operation", lambda *_: wrong)
    assert run(tmp_path / "rows.npy", "--seconds", 0.001) == 1
    assert "False" in capsys.readouterr().out
