"""The ann-benchmarks module, run by the small harness on a dataset in ann-benchmarks' layout."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

h5py = pytest.importorskip("h5py")
yaml = pytest.importorskip("yaml")
FOLDER = Path(__file__).parents[2] / "bench" / "ann_benchmarks"


def load_module(name):
    specification = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.fixture(params=["angular", "euclidean"])
def dataset(request, tmp_path):
    """Return a data set in the layout of ann_benchmarks/datasets.py."""
    rng = np.random.default_rng(0)
    train, test = (rng.standard_normal((n, 12)).astype(np.float32) for n in (500, 40))
    if request.param == "euclidean":
        away = np.linalg.norm(test[:, None].astype(np.float64) - train, axis=2)
    else:
        lengths = [np.linalg.norm(rows, axis=1) for rows in (test, train)]
        away = 1 - test.astype(np.float64) @ train.T / np.outer(*lengths)
    order = np.argsort(away, axis=1, kind="stable")[:, :100]
    path = tmp_path / f"random-{request.param}.hdf5"
    with h5py.File(path, "w") as file:
        file.attrs.update({"distance": request.param, "dimension": 12, "type": "dense"})
        file["train"], file["test"], file["neighbors"] = train, test, order
        file["distances"] = np.take_along_axis(away, order, axis=1)
    return path


@pytest.mark.parametrize("batch", [False, True])
def test_harness_finds_every_neighbour(dataset, batch):
    result = load_module("harness").run(dataset, k=10, batch=batch)
    assert result["recall"] == 1
    assert result["queries_per_second"] > 0


def test_harness_counts_wrong_neighbours(dataset, monkeypatch):
    harness = load_module("harness")
    right = harness.algorithm

    def wrong(distance):
        searcher = right(distance)
        plain = searcher.query
        searcher.query = lambda v, n: plain(-v, n)
        return searcher

    monkeypatch.setattr(harness, "algorithm", wrong)
    assert harness.run(dataset)["recall"] < 0.2


def test_module_refuses_unknown_metrics():
    with pytest.raises(NotImplementedError, match="does not support the metric hamming"):
        load_module("module").Fastcos("hamming")


def test_config_names_the_module_and_its_class():
    config = yaml.safe_load((FOLDER / "config.yml").read_text())
    (entry,) = config["float"]["any"]
    assert hasattr(load_module("module"), entry["constructor"])
    assert entry["module"] == "ann_benchmarks.algorithms.fastcos"
    assert set(entry) >= {"base_args", "docker_tag", "name", "run_groups", "disabled"}
