"""The scripts of bench/lab run on small inputs, and their certificates hold."""

import json
import shlex
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import fastcos
from bench.lab import curves, limits, roofline, timing

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]


def output(words):
    """Return the lines that `python -m words` prints."""
    command = [sys.executable, "-m", *shlex.split(words)]
    done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.splitlines()


def test_large_results_are_certified_and_bit_identical():
    sizes = "--nnz 60000 --users 3000 --items 400 --rank 8"
    results = [json.loads(line) for line in output(f"bench.lab.large {sizes} --where disk memory")]
    names = [(one["operation"], one["where"]) for one in results]
    assert names == [
        (name, place) for name in ("gram", "svd", "items") for place in ("disk", "memory")
    ]
    for one in results:
        assert one["certificate"] < (1e-2 if one["operation"] == "svd" else 1e-5)
        assert one["nnz"] < 60_000
        assert one["seconds"] > 0
    for disk, memory in zip(results[::2], results[1::2], strict=True):
        assert disk["digest"] == memory["digest"]


def test_large_resumes_and_reads_interactions(tmp_path):
    rng = np.random.default_rng(0)
    pairs = np.unique(rng.integers(0, [300, 40], (4_000, 2)), axis=0)
    np.savetxt(tmp_path / "own.csv", pairs, "%d", ",", header="user,item", comments="")
    words = f"bench.lab.large --data {tmp_path / 'own.csv'} --folder {tmp_path / 'large'} --rank 8"
    (first,) = map(json.loads, output(f"{words} --operations gram"))
    assert first["nnz"] == len(pairs)
    (second,) = map(json.loads, output(f"{words} --operations gram items"))
    assert second["operation"] == "items"
    assert output(f"{words} --operations gram items") == []


@pytest.mark.long
def test_large_search_is_exact_on_disk_and_on_workers():
    pytest.importorskip("dask.distributed")
    sizes = "--rows 3000 --columns 16 --queries 200 --memory 1"
    lines = output(f"bench.lab.large --operations search {sizes} --where disk memory 2-workers")
    results = [json.loads(line) for line in lines]
    assert [one["where"] for one in results] == ["disk", "memory", "2-workers"]
    assert [one["certificate"] for one in results] == [0, 0, 0]
    assert len({one["digest"] for one in results}) == 1


@pytest.mark.long
def test_large_audits_have_equal_reports():
    lines = output("bench.lab.large --operations audit --rows 900 --columns 8 --where disk memory")
    disk, memory = (json.loads(line) for line in lines)
    assert disk["digest"] == memory["digest"]


def test_curves_measure_one_point_in_a_new_process():
    seconds, mib = timing.in_new_process(curves.measure, curves.self_join, (500, 16, 5), 1)
    assert 0 < seconds < 10
    assert mib >= 0


NAMES = ("name", "percent_of_limit", "limited_by", "lower_percent", "upper_percent")
POINTS = [
    dict(zip(NAMES, ("search", 40.0, "tile", 30.0, 45.0), strict=True)),
    dict(zip(NAMES, ("selection", 70.0, "copy", 70.0, 90.0), strict=True)),
]


def test_limits_are_drawn_with_the_range_of_the_turns():
    figure = roofline.draw(POINTS)
    (bars,), (legend,) = figure.axes, figure.legends
    assert [bar.get_width() for bar in bars.patches[:2]] == [40.0, 70.0]
    assert [line.get_xdata().tolist() for line in bars.lines[:2]] == [[30.0, 45.0], [70.0, 90.0]]
    shares = [text.get_text() for text in bars.texts if text.get_text().endswith(" %")]
    assert shares == ["40 %", "70 %"]
    named = [text.get_text() for text in legend.get_texts()]
    assert named == ["integer multiplication", "copying memory"]
    colours = [patch.get_facecolor() for patch in legend.get_patches()]
    assert [bar.get_facecolor() for bar in bars.patches[:2]] == colours


@pytest.mark.parametrize(
    ("prepare", "resources"),
    [
        (partial(roofline.self_join, 1_000, 64), {"tile", "read", "copy"}),
        (
            partial(roofline.product, fastcos.matmul, limits.product_work, (500, 300, 9_000), 16),
            {"float32", "read", "copy", "gather"},
        ),
    ],
    ids=["self-join", "X A"],
)
def test_roofline_measures_a_kernel(prepare, resources):
    point = roofline.measure("a kernel", prepare)
    assert point["seconds"] > 0
    assert point["percent_of_limit"] > 0
    assert point["limited_by"] in resources


def test_groups_compares_equal_lists():
    pytest.importorskip("faiss", reason="needs faiss-cpu")
    lines = output("bench.lab.groups join --rows 3000 --groups 40")
    assert lines[-1].endswith("of which wrong by float64: 0")
    assert lines[1].startswith("fastcos ")
