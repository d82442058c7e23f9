"""The search in NumPy: the bits of the kernels, and only while these are not compiled."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fastcos
from fastcos.engine import scan, uncompiled
from fastcos.engine.packing import (
    ExcludedItems,
    ExecutionOptions,
    encode_rows,
    no_exclusions,
    row_norms,
)
from fastcos.kernels import jit
from fastcos.validation import read_only

ROOT = Path(__file__).parents[2]
OPTIONS = ExecutionOptions(1, 2.0**30)
METRIC_TYPES = ["cosine", "dot", "euclidean"]


def assert_same_bits(metric_type, items, queries, k, *, numbers=None, exclusions=None, bias=None):
    """Compare with the kernel that scores every pair."""
    items, queries = (read_only(np.ascontiguousarray(rows)) for rows in (items, queries))
    right = encode_rows(items, bias if metric_type == "dot" else None, 1, metric_type)
    left = encode_rows(queries, None, 1, metric_type)
    numbers = read_only(np.arange(len(items)) if numbers is None else numbers)
    exclusions = no_exclusions(len(queries)) if exclusions is None else exclusions
    arguments = metric_type, right, numbers, left, exclusions, k
    expected = scan.score_all(*arguments, OPTIONS)
    memory = 17 * 2 * 3 * len(numbers)  # three queries at once
    for options in (OPTIONS, OPTIONS._replace(working_memory=memory)):
        found = uncompiled.search(*arguments, options)
        np.testing.assert_array_equal(found[0], expected[0])
        assert found[1].tobytes() == expected[1].tobytes()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("metric_type", METRIC_TYPES)
def test_search_has_the_bits_of_the_kernels(metric_type, dtype):
    rng = np.random.default_rng(0)
    for depth in (1, 15, 16, 33):
        X = rng.standard_normal((60, depth)).astype(dtype)
        X[5], X[7], X[11] = 0, X[9], 2 * X[9]
        bias = rng.standard_normal(60)
        own = no_exclusions(60, own=True)
        assert_same_bits(metric_type, X, X, 4, exclusions=own, bias=bias)
        assert_same_bits(metric_type, X, X[3:7], 60, bias=bias)
        # many ties
        small = rng.integers(-1, 2, (60, depth)).astype(dtype)
        assert_same_bits(metric_type, small, small, 7, exclusions=own)


@pytest.mark.parametrize("metric_type", METRIC_TYPES)
def test_search_obeys_filters(metric_type):
    rng = np.random.default_rng(1)
    X = rng.standard_normal((50, 20)).astype(np.float32)
    lists = [np.sort(rng.choice(50, rng.integers(0, 50), replace=False)) for _ in X]
    lists[3] = np.arange(50)  # nothing is left
    indptr = np.cumsum([0, *map(len, lists)]).astype(np.int64)
    own = np.where(rng.random(50) < 0.5, np.arange(50), -1)
    exclusions = ExcludedItems(*map(read_only, (own, indptr, np.concatenate(lists))))
    numbers = np.sort(rng.choice(50, 20, replace=False))
    assert_same_bits(metric_type, X, X, 5, exclusions=exclusions)
    assert_same_bits(metric_type, X, X, 20, exclusions=exclusions, numbers=numbers)
    # queries 10 .. 30 of those
    some = exclusions.of_range(10, 30)
    assert_same_bits(metric_type, X, X[10:30], 5, exclusions=some, numbers=numbers)


@pytest.mark.parametrize("metric_type", METRIC_TYPES)
def test_search_separates_scores_that_differ_by_rounding(metric_type):
    rng = np.random.default_rng(2)
    for offset in (0.0, 1e6):
        X = np.repeat(rng.standard_normal((4, 37)), 30, axis=0) + offset
        X *= 1 + rng.integers(-3, 4, X.shape) * 2.0**-52
        assert_same_bits(metric_type, X, X, 5, bias=1e3 + np.zeros(len(X)))


@pytest.mark.parametrize("metric_type", METRIC_TYPES)
@pytest.mark.parametrize(
    "exponents", [(-170, -150), (100, 150), (-150, 150), (-300, -290)], ids=str
)
def test_search_of_rows_that_underflow_or_overflow(metric_type, exponents):
    rng = np.random.default_rng(3)
    X = rng.standard_normal((60, 9)) * 10.0 ** rng.integers(*exponents, (60, 1))
    if metric_type == "dot":
        X[:3] = rng.standard_normal((3, 9)) * 10.0**150
    bias = np.array([0.0, 10.0 ** exponents[0]] * 30)
    assert_same_bits(metric_type, X, X, 6, bias=bias)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_row_norms_has_the_bits_of_the_kernel(dtype):
    rng = np.random.default_rng(4)
    for shape in ((300, 7), (5, 1), (3, 16), (40, 5000), (2, 200_001)):
        X = read_only((rng.standard_normal(shape) * 1e3).astype(dtype))
        assert uncompiled.row_norms(X).tobytes() == row_norms(X).tobytes()


def test_search_reports_progress():
    X = np.ones((20, 3))
    right = encode_rows(X, None, 1, "dot")
    reports = []
    options = ExecutionOptions(1, 17 * 2 * 20 * 8.0, lambda *report: reports.append(report))
    uncompiled.search("dot", right, np.arange(20), right, no_exclusions(20), 2, options)
    assert reports == [(8, 20), (16, 20), (20, 20)]


@pytest.mark.skipif(jit.DISABLE_JIT, reason="nothing is compiled")
def test_takes_until_the_work_is_spent_or_code_exists(monkeypatch, tmp_path):
    @jit.kernel
    def never_compiled_before(lo, hi, out):
        out[lo] = hi

    fastcos.set_config(cache_dir=tmp_path)
    monkeypatch.setenv("FASTCOS_BACKGROUND", "0")
    monkeypatch.setattr(uncompiled, "work_left", 1_000_000)
    assert uncompiled.takes(never_compiled_before, 10, 100, 64)
    assert not uncompiled.takes(never_compiled_before, 1000, 100, 64)  # too much
    assert uncompiled.takes(never_compiled_before, 10, 100, 64)
    assert uncompiled.takes(never_compiled_before, 10, 100, 64)
    assert not uncompiled.takes(never_compiled_before, 10, 100, 64)  # spent
    assert uncompiled.takes(never_compiled_before, 0, 0, 0)
    never_compiled_before(0, 1, np.zeros(1))
    assert not uncompiled.takes(never_compiled_before, 0, 0, 0)


SEARCH_UNTIL_COMPILED = """
import time
import numpy as np
import fastcos
from fastcos.engine import background
from fastcos.kernels.tile_top_k import scan_panels
X = np.random.default_rng(0).standard_normal((2000, 24)).astype(np.float32)
index, end = fastcos.SimilarityIndex().fit(X), time.monotonic() + 280
first = index.search(X[:2], 4)
while not scan_panels.is_ready() and time.monotonic() < end:
    index.search(X[:2], 4)
    time.sleep(0.2)
assert scan_panels.is_ready() and not scan_panels.overloads, "compiled here, not in the background"
second = index.search(X[:2], 4)
assert scan_panels.overloads, "searched without the kernel"
assert all((a == b).all() for a, b in zip(first, second))
"""


@pytest.mark.slow
def test_kernels_compile_in_the_background(tmp_path):
    variables = {"FASTCOS_CACHE_DIR": str(tmp_path), "FASTCOS_NATIVE": "0"}
    done = subprocess.run(
        [sys.executable, "-c", SEARCH_UNTIL_COMPILED], env={**os.environ, **variables},
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("compiling kernels in the background, once on this machine") == 1


FIRST_CALLS = """
import hashlib, sys
import numpy as np
import fastcos
X = np.random.default_rng(0).standard_normal((300, 24)).astype(np.float32)
index = fastcos.SimilarityIndex().fit(X)
found = [fastcos.top_k(X, k=3), fastcos.top_k(X[:2], X, 3, measure="dot"), index.search(X, 4)]
index.add(X[:5] + 1)
found.append(index.search(X[:1], 4))
digest = hashlib.sha256()
for result in found:
    digest.update(result.indices.tobytes() + result.scores.tobytes())
print(digest.hexdigest())
"""


@pytest.mark.slow
@pytest.mark.skipif(jit.DISABLE_JIT, reason="nothing is compiled")
def test_first_calls_compile_nothing(tmp_path):
    def digest(code, **environment):
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
            env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    folder = {"FASTCOS_CACHE_DIR": str(tmp_path / "c"), "FASTCOS_BACKGROUND": "0"}
    uncompiled_digest = digest(FIRST_CALLS, **folder)
    assert not (tmp_path / "c").exists()
    compile_at_once = "from fastcos.engine import uncompiled; uncompiled.work_left = 0\n"
    check = "\nassert fastcos.kernels.tile_top_k.search_rows.overloads"
    assert digest(compile_at_once + FIRST_CALLS + check) == uncompiled_digest
