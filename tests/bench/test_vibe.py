"""Tests of the module and of the script in bench/vibe.

The module, which VIBE runs, finds every true neighbour. The script counts the ground-truth lists of
VIBE that would change if they were computed in float64.
"""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from bench.vibe import ground_truth
from tests.oracles import dense

yaml = pytest.importorskip("yaml")
FOLDER = Path(__file__).parents[2] / "bench" / "vibe"
(ENTRY,) = yaml.safe_load((FOLDER / "config.yml").read_text())["float"]["any"]


def algorithm(metric):
    """Return the configured object, constructed in the same way as by the runner of VIBE."""
    specification = importlib.util.spec_from_file_location("module", FOLDER / "module.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    arguments = [metric if word == "@metric" else word for word in ENTRY["base_args"]]
    return getattr(module, ENTRY["constructor"])(*arguments)


@pytest.mark.parametrize(
    ("metric", "form"),
    [("cosine", "cosine"), ("normalized", "cosine"), ("ip", "dot"), ("euclidean", "euclidean")],
)
def test_module_finds_every_neighbour(metric, form):
    rng = np.random.default_rng(0)
    items, queries = (rng.standard_normal((n, 12)).astype(np.float32) for n in (500, 40))
    searcher = algorithm(metric)
    searcher.fit(items)
    searcher.batch_query(queries, 10)
    truth, _ = dense.top_k(queries, items, 10, form)
    np.testing.assert_array_equal(searcher.get_batch_results(), truth)
    np.testing.assert_array_equal([searcher.query(one, 10) for one in queries], truth)
    assert str(searcher).startswith("fastcos(")


def test_module_refuses_unknown_metrics():
    with pytest.raises(ValueError, match=r"metric must be one of cosine, .*, got hamming"):
        algorithm("hamming")


def test_config_has_what_vibe_reads():
    assert ENTRY["module"] == "vibe.algorithms.fastcos"
    assert ENTRY["singularity_image"] == "fastcos"
    assert set(ENTRY) >= {"base_args", "name", "run_groups", "disabled"}
    assert (FOLDER / "image.def").read_text().startswith("Bootstrap: localimage\nFrom: base.sif\n")


@pytest.mark.parametrize("distance", ["cosine", "ip", "euclidean"])
def test_ground_truth_counts_the_lists_that_change(distance, tmp_path, capsys):
    h5py = pytest.importorskip("h5py")
    rng = np.random.default_rng(0)
    items, queries = (rng.standard_normal((n, 12)).astype(np.float32) for n in (400, 30))
    form = {"ip": "dot"}.get(distance, distance)
    lists, _ = dense.top_k(queries, items, 11, form)
    lists[3, 9] = lists[3, 10]  # the eleventh true neighbour replaces the tenth
    # The same neighbours in another order do not count as a change.
    lists[7, [0, 1]] = lists[7, [1, 0]]
    with h5py.File(tmp_path / "set.hdf5", "w") as file:
        file.attrs["distance"] = distance
        file["train"], file["test"], file["neighbors"] = items, queries, lists[:, :10]
    ground_truth.main([str(tmp_path / "set.hdf5"), "--k", "10"])
    assert capsys.readouterr().out.startswith("1 of 30 lists of 10 neighbours change in float64")
