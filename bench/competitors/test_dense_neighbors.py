"""Dense exact top-k against the best-tuned rivals, as ratios of one run.

`pytest -n 0 -s bench/competitors/test_dense_neighbors.py`, one test at a time, for they are timed.
Every library runs in a process of its own, the rivals with the fastest OPENBLAS_CORETYPE of
CORE_TYPES for up to 2,000 of the queries; ours runs before and after each of them.
FASTCOS_COMPETITORS_PYTHON names an interpreter that has the competitors, FASTCOS_TABLE a JSON file
that every row is appended to. The scores of all answers are compared before any ratio is made.
"""

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bench import inputs

WORKER = Path(__file__).with_name("dense_worker.py")
COMPETITORS_PYTHON = os.environ.get("FASTCOS_COMPETITORS_PYTHON", sys.executable)
# "" leaves the choice to the library; the name of an unknown CPU does that too
CORE_TYPES = ("", "SkylakeX", "SapphireRapids", "Haswell")
# those whose time is in a BLAS of their own
USE_BLAS = {"faiss", "numpy", "sklearn"}
# usearch scores pair by pair: minutes for the square of many rows
SLOW = {"usearch"}

# case: k, measure, library of ours, {rival: (at least, aim)}
CASES = {
    "gaussian 40,000 x 128, k = 10": (10, "cosine", "fastcos", {"faiss": (3.0, 6.0)}),
    "gaussian 40,000 x 128, k = 100": (100, "cosine", "fastcos", {"faiss": (2.5, 5.0)}),
    "decks 60,000 x 128, k = 10": (10, "cosine", "fastcos", {"faiss": (2.5, 5.0)}),
    "decks 60,000 x 128, k = 100": (100, "cosine", "fastcos", {"faiss": (2.5, 5.0)}),
    "10,000 queries x 200,000 x 64, k = 10": (10, "cosine", "fastcos", {"faiss": (2.0, 4.0)}),
    "cards 17,192 x 128, k = 10": (10, "cosine", "fastcos", {"faiss": (2.0, 4.0)}),
    "glove 8,347 x 50, k = 10": (10, "cosine", "fastcos", {"faiss": (2.0, 4.0)}),
    "1 query x 1,000,000 x 128, k = 10": (
        10, "cosine", "fastcos_index", {"faiss": (2.5, 4.0), "usearch": (2.5, 4.0)}
    ),
    "euclidean 20,000 x 64, k = 10": (
        10, "neg_euclidean", "fastcos", {"sklearn": (4.0, 10.0), "faiss": (2.0, 4.0)}
    ),
}  # fmt: skip
# in the table only, where they know the measure and the answer is there within minutes
OTHERS = {"cosine": ("numpy", "sklearn", "chunkdot", "implicit", "usearch"), "neg_euclidean": ()}


def float32_error(d):
    """Largest error of a float32 cosine in any order of summation: roundings of 2^-24 each.

    The product of d columns takes d roundings, each of the two norms d / 2 + 3.
    """
    return (2 * d + 6) * 2.0**-24


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


def rivals_of(case):
    """Rivals of a case with what is promised against them, None for those in the table only."""
    _, measure, _, promised = CASES[case]
    others = dict.fromkeys(OTHERS[measure], (None, None)) | promised
    large = case.startswith(("gaussian", "decks", "10,000"))
    return {name: others[name] for name in others if not (large and name in SLOW)}


def run(library, job, folder, core_type=""):
    """Median seconds of a call, and the scores; None where the library is not there."""
    path, answer = folder / f"{library}{core_type}.json", folder / f"{library}{core_type}.npy"
    path.write_text(json.dumps({**job, "library": library, "answer": str(answer)}))
    ours = library.startswith("fastcos")
    environment = {k: v for k, v in os.environ.items() if k != "OPENBLAS_CORETYPE"}
    if core_type:
        environment["OPENBLAS_CORETYPE"] = core_type
    if ours:
        environment["PYTHONPATH"] = str(Path(__file__).parents[2])
    result = subprocess.run(
        [sys.executable if ours else COMPETITORS_PYTHON, str(WORKER), str(path)],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if "ModuleNotFoundError" in result.stderr and not ours:
        return None
    assert result.returncode == 0, result.stderr
    return statistics.median(json.loads(result.stdout)), np.load(answer)


def best_of(rival, job, folder):
    """Core type, seconds and scores of the rival at its best; None where it is not there."""
    core_types = CORE_TYPES if rival in USE_BLAS else CORE_TYPES[:1]
    trial = job | {"trial": True}
    found = {core_type: run(rival, trial, folder, core_type) for core_type in core_types}
    if None in found.values():
        return None
    best = min(found, key=lambda core_type: found[core_type][0])
    return best, *run(rival, job, folder, best)


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


def agree(theirs, ours, queries, items, measure):
    """Whether scores differ by no more than float32 products of unit rows, or of rows, may err."""
    every = [rows for rows in (queries, items) if rows is not None]
    if measure == "cosine":
        return bool(abs(theirs - ours).max() <= float32_error(queries.shape[1]))
    # x^2 + y^2 - 2xy: what is lost of the squares
    longest = max(float(np.linalg.norm(rows, axis=1).max()) for rows in every)
    off = abs(np.square(theirs, dtype=np.float64) - np.square(ours, dtype=np.float64)).max()
    return bool(off <= float32_error(queries.shape[1]) * (2 * longest) ** 2)


def compared(case, cache, folder):
    """Rows of the table for one case; None without its data."""
    k, measure, library, _ = CASES[case]
    queries, items = rows_of(case, cache)
    if queries is None:
        return None
    np.save(folder / "queries.npy", queries)
    if items is not None:
        np.save(folder / "items.npy", items)
    job = {
        "queries": str(folder / "queries.npy"),
        "items": str(folder / "items.npy") if items is not None else None,
        "k": k, "measure": measure, "seconds": 0.5, "trial": False,
    }  # fmt: skip
    seconds, scores = run(library, job, folder)
    assert_exact(scores, queries, items, k, measure)
    ours, rivals = [seconds], {}
    for rival in rivals_of(case):
        rivals[rival] = best_of(rival, job, folder)
        ours.append(run(library, job, folder)[0])
    return [
        {
            "work": case, "rival": f"{rival} {found[0]}".strip(),
            "ratio": found[1] / statistics.median(ours),
            "ours_s": statistics.median(ours), "rival_s": found[1],
            "correct": agree(found[2], scores, queries, items, measure),
            "at_least": rivals_of(case)[rival][0], "aim": rivals_of(case)[rival][1],
        }
        for rival, found in rivals.items() if found is not None
    ]  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_ratio(case, cache, tmp_path, capsys):
    rows = compared(case, cache, tmp_path)
    if rows is None:
        pytest.skip("no such data beside the repository")
    table = os.environ.get("FASTCOS_TABLE")
    if table:
        path = Path(table)
        before = json.loads(path.read_text()) if path.exists() else []
        path.write_text(json.dumps(before + rows, indent=1))
    with capsys.disabled():
        for row in rows:
            least = f"(at least {row['at_least']}x)" if row["at_least"] else "(table only)"
            print(
                f"\n{case}: ours {row['ours_s']:.4f} s, {row['rival']} {row['rival_s']:.4f} s, "
                f"{row['ratio']:.2f}x {least}{'' if row['correct'] else ' WRONG'}"
            )
    for row in rows:
        if row["at_least"]:
            assert row["correct"], row
            assert row["ratio"] >= row["at_least"], row
