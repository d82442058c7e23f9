"""fastcos bench: what it measures is checked, told and drawn; its times are not judged here."""

import argparse
import json

import numpy as np
import pytest
import scipy.sparse as sp

from fastcos import speed
from fastcos.cli import bench
from fastcos.speed_display import SpeedDisplay
from fastcos.speed_jobs import search_job, sparse_jobs


def run(*arguments):
    parser = argparse.ArgumentParser()
    bench.add_arguments(parser)
    return bench.run(parser.parse_args([str(word) for word in arguments]))


@pytest.fixture(autouse=True)
def one_choice_of_kernels(monkeypatch):
    """A process for each would take long."""
    monkeypatch.setattr(speed, "CORE_TYPES", ("",))


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


def test_a_search_is_right_only_where_neighbours_and_order_are(rows):
    job, right = search_job(rows, 5), brute_force(rows, 5)
    assert job.check(right) == 1
    swapped = right.copy()
    swapped[:, [0, 1]] = swapped[:, [1, 0]]
    assert job.check(swapped) == 0
    one_missed = right.copy()
    one_missed[0, 4] = brute_force(rows, 6)[0, 5]
    assert job.check(one_missed) == pytest.approx(0.98)


def test_a_rival_may_swap_what_float32_cannot_tell_apart(rows):
    near = np.concatenate([rows, rows[:1] * (1 + 1e-7)])  # two items with one direction, nearly
    job, right = search_job(near, 5), brute_force(near, 5)
    assert job.is_close(right)
    other = right.copy()
    both = [list(row).index(0) if 0 in row else None for row in other]
    for row, at in enumerate(both):
        if at is not None and 300 in other[row]:
            partner = list(other[row]).index(300)
            other[row, [at, partner]] = other[row, [partner, at]]
    assert job.is_close(other)
    for wrong in (np.roll(right, 1, axis=1), np.repeat(right[:, :1], 5, axis=1), right * 0 - 1):
        assert not job.is_close(wrong)
    itself = right.copy()
    itself[:, 0] = np.arange(len(near))
    assert not job.is_close(itself)


def test_products_and_items_are_checked_against_float64(interactions):
    product, gram, items = sparse_jobs(interactions, 3)
    A, dense = product.inputs["A"], interactions.toarray().astype(np.float64)
    assert product.check(dense @ A) == gram.check(dense.T @ (dense @ A)) == 1
    off = dense @ A
    off[3, 2] += 0.01 * abs(off).max()
    assert product.check(off) == 0
    unit = dense / np.linalg.norm(dense, axis=0)
    cosines = unit.T @ unit
    np.fill_diagonal(cosines, -np.inf)
    best = -np.sort(-cosines, axis=1)[:, :3]
    assert items.check(best) == 1
    assert items.is_close(best)
    best[0] += 1e-5
    assert items.check(best) == pytest.approx(1 - 1 / 40)
    assert not items.is_close(best)


def test_the_roofline_is_the_lower_of_the_two_peaks():
    peak = speed.Peak(gflops=100.0, gigabytes=10.0)
    assert peak.bound(1.0) == 10.0
    assert peak.bound(1_000.0) == 100.0


def test_a_wrong_answer_has_no_time(rows):
    job, peak = search_job(rows, 5), speed.Peak(100.0, 10.0)

    def said(answer, seconds):
        found = {"answer": answer, "seconds": [seconds], "latencies": [seconds], "peak_bytes": 1}
        return [found, found]

    right = brute_force(rows, 5)
    compared = speed._compared(
        job,
        {("fastcos", ""): said(right, 1.0), ("numpy", ""): said(right, 3.0),
         ("numpy", "Haswell"): said(right, 2.0), ("faiss", ""): said(right[:, ::-1], 0.1)},
        peak,
    )  # fmt: skip
    ratios = {one.library: (one.setting, one.seconds, one.ratio) for one in compared}
    assert ratios == {
        "fastcos": ("", 1.0, 1.0),
        "numpy": ("Haswell", 2.0, 2.0),
        "faiss": ("", None, None),
    }


def test_embeddings_become_a_table_a_document_and_a_figure(rows, tmp_path, capsys):
    np.save(tmp_path / "rows.npy", rows)
    out = tmp_path / "out"
    words = ("--k", 5, "--seconds", 0.01, "--rivals", "numpy", "--threads", 1, "--out", out)
    assert run(tmp_path / "rows.npy", *words) == 0
    said = capsys.readouterr()
    document = json.loads((out / "bench.json").read_text("utf8"))
    assert [one["library"] for one in document["speeds"]] == ["fastcos", "numpy"]
    assert all(one["exact"] == 1 for one in document["speeds"])
    assert all(one["p50"] <= one["p99"] for one in document["speeds"])
    assert document["peak"]["gflops"] > 0
    assert {point["n"] for point in document["scaling"]} == {37, 75, 150, 300}
    assert "fastcos" in said.out
    assert "bench.png" in said.err
    assert (out / "bench.png").read_bytes()[:4] == b"\x89PNG"


def test_interactions_are_multiplied_and_their_items_compared(
    interactions, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(speed._Bench, "peak_gflops", lambda self: 100.0)
    sp.save_npz(tmp_path / "X.npz", interactions)
    words = ("--seconds", 0.01, "--rivals", "", "--threads", 1, "--json", "--out", tmp_path / "o")
    assert run(tmp_path / "X.npz", *words) == 0
    document = json.loads(capsys.readouterr().out)
    assert [one["work"] for one in document["speeds"]] == ["product", "gram", "items"]
    assert all(one["exact"] == 1 for one in document["speeds"])


def test_rivals_that_are_not_installed_are_named(rows, monkeypatch, tmp_path):
    empty = tmp_path / "python"
    empty.write_text("#!/bin/sh\necho 'ModuleNotFoundError: No module named faiss' >&2\nexit 1\n")
    empty.chmod(0o755)
    monkeypatch.setenv("FASTCOS_RIVALS_PYTHON", str(empty))
    monkeypatch.setattr(speed._Bench, "peak_gflops", lambda self: 100.0)
    report = speed.measure_speed(rows, k=3, seconds=0.01, rivals=["faiss"])
    assert report.skipped == ["faiss"]
    assert [one.library for one in report.speeds] == ["fastcos"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rivals": ["faster"]}, "rivals must be one of faiss, mkl, numpy, .*, got 'faster'"),
        ({"k": 300}, "k must be a whole number from 1 to 299, got 300"),
        ({"seconds": 0}, "seconds must be a finite number > 0, got 0"),
    ],
)
def test_bad_arguments_are_refused(rows, arguments, message):
    with pytest.raises(ValueError, match=message):
        speed.measure_speed(rows, **arguments)


def test_the_figure_has_a_roofline_and_scaling():
    timed = speed.Speed("search", "fastcos", "", 1.0, 1.0, 50.0, 20.0, 0.5, 1e-4, 2e-4, 0, 1.0, 1.0)
    rival = timed._replace(library="faiss", gflops=None)
    scaling = [speed.Scaling(10, 1, 0.1), speed.Scaling(20, 1, 0.2)]
    report = speed.SpeedReport(speed.Peak(100.0, 10.0), [timed, rival], scaling, [])
    roofline, rates = SpeedDisplay(report).plot().axes
    assert roofline.get_xscale() == roofline.get_yscale() == "log"
    assert [text.get_text() for text in rates.get_legend().get_texts()] == ["1 thread"]
    assert len(SpeedDisplay(report._replace(scaling=[])).plot().axes) == 1


def test_every_library_of_the_figure_is_named_once():
    timed = speed.Speed("gram", "fastcos", "", 1.0, 1.0, 50.0, 20.0, 0.5, None, None, 0, 1.0, 1.0)
    items = [timed._replace(work="items", library=name) for name in ("fastcos", "sparse_dot_topn")]
    report = speed.SpeedReport(speed.Peak(100.0, 10.0), [timed, *items], [], [])
    (legend,) = SpeedDisplay(report).plot().legends
    named = [text.get_text() for text in legend.get_texts()]
    assert named[1:] == ["fastcos", "sparse_dot_topn"]
