"""A script: checks that no public call compiles anything after ``fastcos warmup``.

    python -m tests.robustness.warm_calls CACHE [NAME...]

CACHE is a directory that ``FASTCOS_CACHE_DIR=CACHE fastcos warmup`` has filled. Each group of calls
runs in a new process with a copy of this cache. There are three groups: the examples of all
docstrings, the examples of the README and the documentation, and calls that combine different types
of rows, queries, filters and containers. For each group, the script prints JSON: the number of
files of each kernel that the calls added to the copy.
"""

import contextlib
import doctest
import importlib
import json
import os
import pkgutil
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

import fastcos
from fastcos import SimilarityIndex, top_k
from fastcos.parallel import readiness
from fastcos.search import rescore

ROOT = Path(__file__).parents[2]
RANDOM = np.random.default_rng(0)
# The examples in these packages are not run, because their dependencies may be missing, or because
# the examples start a cluster or a service.
WITHOUT_EXAMPLES = ("fastcos.integrations", "fastcos.distributed", "fastcos.kernels")


def docstrings() -> None:
    """Run the examples of all docstrings."""
    for info in pkgutil.walk_packages(fastcos.__path__, "fastcos."):
        if info.name.startswith(WITHOUT_EXAMPLES) or info.name.endswith("__main__"):
            continue
        module = importlib.import_module(info.name)
        doctest.testmod(module, optionflags=doctest.ELLIPSIS, verbose=False, report=False)


def pages() -> None:
    """Run the examples of the README and of all pages."""
    from tests.test_docs import PAGES

    for page in PAGES:
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            options = {"optionflags": doctest.ELLIPSIS, "encoding": "utf8", "report": False}
            doctest.testfile(str(page), module_relative=False, **options)


def rows_of(kind: str, n: int, depth: int) -> Any:
    rows = 20 * RANDOM.standard_normal((n, depth))
    return np.rint(rows).astype("int8") if kind == "int8" else rows.astype(kind)


def query_forms(depth: int) -> Iterator[Any]:
    """Yield 1, 3 and 100 queries in all forms that users pass: arrays of three types, and lists."""
    for n in (1, 3, 100):
        for kind in ("float32", "float64", "float16"):
            yield rows_of(kind, n, depth)
        yield rows_of("float32", n, depth).tolist()
        yield (rows_of("float64", n, depth) / 3).tolist()


def searches(kind: str) -> None:
    """Search rows of one type with every form of queries, every filter and every search method."""
    for n, depth in ((40, 8), (700, 24), (6_000, 200)):
        items = rows_of(kind, n, depth)
        few = n // 3
        index = SimilarityIndex().fit(items)
        index.add(items[:5] if kind == "int8" else (items[:5] / 3).astype(kind))
        index.remove([2])
        for queries in query_forms(depth):
            m = len(queries)
            pairs = sp.csr_array(RANDOM.random((m, n + 5)) < 0.1)
            index.search(queries[0], 3)
            for options in (
                {}, {"allowed": range(few)}, {"allowed": np.arange(n + 5) < few},
                {"allowed": pairs}, {"exclude": pairs},
                {"allowed_ids": [1, 3, 5]}, {"exclude_ids": [1, 3]},
                {"allowed_ids": [[1, 3]] * m}, {"min_score": 0.1},
            ):  # fmt: skip
                index.search(queries, 3, **options)
            index.radius(queries, 0.9)
            index.rescore(queries, np.tile(np.arange(10), (m, 1)), 3)
            top_k(queries, items, 3)
            top_k(queries, items, 3, exclude=pairs[:, :n], min_score=0.2)
            rescore(queries, items, np.tile(np.arange(10), (m, 1)), 3)
            if kind != "int8":
                fastcos.neighbors_above(queries, items, min_score=0.9)
        index.similar([1, 5], 3)
        index.near_duplicates(0.999)
        top_k(items, k=3)
        with tempfile.TemporaryDirectory() as folder:
            index.save(Path(folder) / "index")
            SimilarityIndex.open(Path(folder) / "index").search(items[:3], 3)
            top_k(items, k=3, out=Path(folder) / "out")
            np.save(Path(folder) / "rows.npy", items)
            mapped = np.load(Path(folder) / "rows.npy", mmap_mode="r")
            top_k(mapped, k=3)
            SimilarityIndex().fit(mapped).search(items[:2], 3)


def reports() -> None:
    """Run audits, calibrations and comparisons of few and of many rows, in float32 and float64."""
    for kind in ("float32", "float64"):
        for n in (60, 1_200):
            items, users = rows_of(kind, n, 12), rows_of(kind, 90, 12)
            labels = np.arange(n) % 4
            fastcos.audit(items), fastcos.audit(items, users, labels=labels, k=3)
            fastcos.calibrate(items)
            fastcos.comparison.compare_vectors(items, labels)
    X = sp.csr_array(RANDOM.random((80, 30)) < 0.2).astype(np.float64)
    fastcos.compare(X, np.arange(30) % 3, n_components=4)
    fastcos.LinearMF(4).fit(X), fastcos.CosineMF(4, max_iter=2, random_state=0).fit(X)


def integrations() -> None:
    """Search the store of LangChain, whose embeddings are lists of floats, if it is installed."""
    if importlib.util.find_spec("langchain_core") is None:
        return
    from langchain_core.embeddings import DeterministicFakeEmbedding

    from fastcos.integrations.langchain import FastcosVectorStore

    texts = [f"text {i}" for i in range(200)]
    facts = [{"half": i % 2} for i in range(200)]
    store = FastcosVectorStore(DeterministicFakeEmbedding(size=32))
    store.add_texts(texts, facts)
    store.similarity_search("text 7", k=4), store.similarity_search("x", k=4, filter={"half": 1})
    store.max_marginal_relevance_search("text 9", k=3)


GROUPS: dict[str, Callable[[], None]] = {
    "docstrings": docstrings,
    "pages": pages,
    **{
        f"searches of {kind}": lambda kind=kind: searches(kind)
        for kind in ("float32", "float64", "float16", "int8")
    },
    "reports": reports,
    "integrations": integrations,
}  # fmt: skip


def files(cache: Path) -> set[str]:
    return {str(path.relative_to(cache)) for path in cache.glob("*/*/*-*")}


def added(cache: Path, name: str) -> dict[str, int]:
    """Run a group with a copy of the cache; for each kernel, count the files added to the copy."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "cache"
        shutil.copytree(cache, copy)
        before = files(copy)
        environment = {**os.environ, "FASTCOS_CACHE_DIR": str(copy), "FASTCOS_BACKGROUND": "0"}
        command = [sys.executable, "-m", "tests.robustness.warm_calls", "--run", name]
        done = subprocess.run(
            command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise ChildProcessError(f"{name}: {done.stderr[-2000:]}")
        kernels = [file.split("/")[2].rsplit("-", 2)[0] for file in files(copy) - before]
        return dict(Counter(kernel for kernel in kernels if not kernel.startswith("~")))


if __name__ == "__main__":
    if sys.argv[1] == "--run":
        warnings.simplefilter("ignore")
        # Without this call, NumPy would answer small searches.
        readiness.compile_at_once()
        with contextlib.redirect_stdout(sys.stderr):
            GROUPS[sys.argv[2]]()
    else:
        print(
            json.dumps({one: added(Path(sys.argv[1]), one) for one in sys.argv[2:] or list(GROUPS)})
        )
