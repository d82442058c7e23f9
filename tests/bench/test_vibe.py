"""The ann-benchmarks module: config.yml names it, and it answers the calls of that runner."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from tests.oracles import dense

yaml = pytest.importorskip("yaml")
FOLDER = Path(__file__).parents[2] / "bench" / "ann_benchmarks"
(ENTRY,) = yaml.safe_load((FOLDER / "config.yml").read_text())["float"]["any"]


def algorithm(metric):
    """Return the configured object, constructed as ann-benchmarks does."""
    specification = importlib.util.spec_from_file_location("module", FOLDER / "module.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    arguments = [metric if word == "@metric" else word for word in ENTRY["base_args"]]
    return getattr(module, ENTRY["constructor"])(*arguments)


@pytest.mark.parametrize(("metric", "form"), [("angular", "cosine"), ("euclidean", "euclidean")])
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
    with pytest.raises(NotImplementedError, match="does not support the metric hamming"):
        algorithm("hamming")


def test_config_has_what_ann_benchmarks_reads():
    assert ENTRY["module"] == "ann_benchmarks.algorithms.fastcos"
    assert set(ENTRY) >= {"base_args", "docker_tag", "name", "run_groups", "disabled"}
