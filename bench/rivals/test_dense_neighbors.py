"""Dense exact top-k against the best-tuned rivals, as ratios of one run.

`pytest bench/rivals/test_dense_neighbors.py -s`. Every library runs in a process of its own, the
rivals once per OPENBLAS_CORETYPE of CORE_TYPES, and the fastest counts. FASTCOS_RIVALS_PYTHON names
an interpreter that has the rivals where this one has not. The scores of all answers are compared
before any ratio is made.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bench import inputs

WORKER = Path(__file__).with_name("dense_worker.py")
RIVALS_PYTHON = os.environ.get("FASTCOS_RIVALS_PYTHON", sys.executable)
CORE_TYPES = ("", "SkylakeX", "Haswell")

# case: k, measure, library of ours, {rival: least ratio}
CASES = {
    "gaussian 40,000 x 128, k = 10": (10, "cosine", "fastcos", {"faiss": 3.0, "numpy": 1.0}),
    "gaussian 40,000 x 128, k = 100": (100, "cosine", "fastcos", {"faiss": 2.5}),
    "decks 60,000 x 128, k = 10": (10, "cosine", "fastcos", {"faiss": 2.5}),
    "decks 60,000 x 128, k = 100": (100, "cosine", "fastcos", {"faiss": 2.5}),
    "10,000 queries x 200,000 x 64, k = 10": (10, "cosine", "fastcos", {"faiss": 2.0}),
    "cards 17,192 x 128, k = 10": (10, "cosine", "fastcos", {"faiss": 2.0}),
    "glove 8,347 x 50, k = 10": (10, "cosine", "fastcos", {"faiss": 2.0}),
    "1 query x 1,000,000 x 128, k = 10": (
        10, "cosine", "fastcos_index", {"faiss": 2.5, "usearch": 2.5}
    ),
    "euclidean 20,000 x 64, k = 10": (
        10, "neg_euclidean", "fastcos", {"sklearn": 4.0, "faiss": 2.0}
    ),
}  # fmt: skip


@pytest.fixture(scope="session")
def cache(request):
    return request.config.cache.mkdir("dense_inputs")


def rows_of(case, cache):
    """Queries and items (None: the queries) of a case."""
    if case.startswith(("decks", "cards")):
        both = inputs.deck_embeddings(cache)
        return (None if both is None else both[case.startswith("cards")]), None
    if case.startswith("glove"):
        return inputs.glove(), None
    if case.startswith("10,000"):
        return inputs.gaussian(10_000, 64, seed=1), inputs.gaussian(200_000, 64)
    if case.startswith("1 query"):
        return inputs.gaussian(1, 128, seed=1), inputs.gaussian(1_000_000, 128)
    if case.startswith("euclidean"):
        return inputs.gaussian(20_000, 64), None
    return inputs.gaussian(40_000, 128), None


def run(library, job, folder, core_type=""):
    """Seconds of the fastest call, and the scores."""
    path, answer = folder / f"{library}{core_type}.json", folder / f"{library}{core_type}.npy"
    path.write_text(json.dumps({**job, "library": library, "answer": str(answer)}))
    ours = library.startswith("fastcos")
    environment = {k: v for k, v in os.environ.items() if k != "OPENBLAS_CORETYPE"}
    if core_type:
        environment["OPENBLAS_CORETYPE"] = core_type
    if ours:
        environment["PYTHONPATH"] = str(Path(__file__).parents[2])
    result = subprocess.run(
        [sys.executable if ours else RIVALS_PYTHON, str(WORKER), str(path)],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if "ModuleNotFoundError" in result.stderr and not ours:
        return None, None
    assert result.returncode == 0, result.stderr
    return min(json.loads(result.stdout)), np.load(answer)


def assert_exact(scores, queries, items, k, measure):
    """The scores of some queries against float64."""
    own = items is None
    items = (queries if own else items).astype(np.float64)
    for i in np.linspace(0, len(queries) - 1, 50).astype(int):
        row = queries[i].astype(np.float64)
        if measure == "cosine":
            norms = np.linalg.norm(items, axis=1) * np.linalg.norm(row)
            truth = np.divide(items @ row, norms, out=np.zeros(len(items)), where=norms > 0)
        else:
            truth = -np.sqrt(((items - row) ** 2).sum(axis=1))
        truth = np.delete(truth, i) if own else truth
        np.testing.assert_allclose(scores[i], np.sort(truth)[::-1][:k], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("case", CASES)
def test_ratio(case, cache, tmp_path, capsys):
    k, measure, library, rivals = CASES[case]
    queries, items = rows_of(case, cache)
    if queries is None:
        pytest.skip("no such data beside the repository")
    np.save(tmp_path / "queries.npy", queries)
    if items is not None:
        np.save(tmp_path / "items.npy", items)
    job = {
        "queries": str(tmp_path / "queries.npy"),
        "items": str(tmp_path / "items.npy") if items is not None else None,
        "k": k, "measure": measure, "seconds": 1.0,
    }  # fmt: skip
    ours, scores = run(library, job, tmp_path)
    assert_exact(scores, queries, items, k, measure)
    for rival, least in rivals.items():
        found = {core: run(rival, job, tmp_path, core) for core in CORE_TYPES}
        seconds, best = min((found[core][0] or np.inf, core) for core in CORE_TYPES)
        if not np.isfinite(seconds):
            continue
        # rivals round in float32, and exact L2 by products loses digits
        np.testing.assert_allclose(found[best][1], scores, atol=2e-2 if "eucl" in case else 2e-5)
        ours = min(ours, run(library, job, tmp_path)[0])
        with capsys.disabled():
            ratio = f"{seconds / ours:.2f}x (at least {least}x)"
            print(f"\n{case}: ours {ours:.4f} s, {rival} {best} {seconds:.4f} s, {ratio}")
        assert seconds >= least * ours
