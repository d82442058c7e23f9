"""fastcos warmup: compile all kernels now, for container images and servers."""

import argparse
import contextlib
import itertools
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from fastcos.cli import options
from fastcos.cli.terminal import print_json, progress_bar, say
from fastcos.engine import uncompiled
from fastcos.kernels import code_cache, tiles
from fastcos.storage.provenance import provenance

DESCRIPTION = """\
Run every operation on tiny inputs, so that later processes find compiled code in the cache
directory. In a container image, run it at build time as the user that will run the service, on the
kind of processor that will run it: code is compiled for the processor that it is compiled on."""
EPILOG = """\
examples:
  fastcos warmup
  FASTCOS_CACHE_DIR=/opt/fastcos-cache fastcos warmup"""
DTYPES = ("float32", "float64")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    options.add_json(parser)


def run(given: argparse.Namespace) -> int:
    """Run every job on tiny inputs."""
    uncompiled.work_left = 0
    jobs = (_compare, _search, _index, _measures, _fit, _audit, _products)
    started = time.perf_counter()
    with progress_bar("compiling") as progress:
        for done, job in enumerate(jobs):
            progress(done, len(jobs))
            job()
    seconds = time.perf_counter() - started
    directory = code_cache.cache_directory()
    files = list((directory / code_cache.code_digest()).rglob("*-*"))
    size = sum(path.stat().st_size for path in files) / 2**20
    if given.json:
        document = provenance({"cache_directory": str(directory)})
        print_json({**document, "signatures": len(files), "MiB": size, "seconds": seconds})
    say(f"{len(files)} compiled signatures, {size:.1f} MiB, in {directory}; {seconds:.1f} s")
    return 0


def _interactions(dtype: str = "float32", *, rated: bool = False) -> Any:
    """Interactions (500, 80): ones, or ratings from 1 to 5."""
    from fastcos.datasets.simulation import simulate_interactions

    X = simulate_interactions(500, 80, random_state=0).X
    if rated:
        X.data = np.arange(1.0, X.nnz + 1) % 5 + 1
    return X.astype(dtype)


def _vectors(dtype: str, n: int = 300) -> Any:
    return np.random.default_rng(0).standard_normal((n, 8)).astype(dtype)


def _compare() -> None:
    from fastcos import comparison

    X = _interactions()
    comparison.compare(X, np.arange(X.shape[1]) % 4, n_components=8)
    comparison.compare(X, n_components=8, measures=["dot"])


def _search() -> None:
    from fastcos.neighbors import neighbors_above, similarity_blocks, top_k

    one = sp.csr_array(([1.0], ([0], [0])), shape=(1, 300))
    for dtype in DTYPES:
        items = _vectors(dtype)
        for measure in ("cosine", "dot", "neg_euclidean"):
            top_k(items, k=5, measure=measure)
            top_k(items[:3], items, 5, measure=measure)
            top_k(items[:1], items, 5, measure=measure, exclude=one)
            top_k(items, items, 5, measure=measure, allowed=range(50))
            neighbors_above(items, 0.5, measure=measure)
        list(similarity_blocks(items, measure="cosine"))
        top_k(np.repeat(items, 2, axis=0), k=5)  # duplicates
        for value in (1, 2, 0.5):  # ones, whole numbers, others
            X = value * _interactions(dtype)
            for measure in ("cosine", "dot"):
                top_k(X, k=5, measure=measure)
                top_k(X[:3], X, 5, measure=measure)
            top_k(X.T, k=5)


def _index() -> None:
    from fastcos.neighbors import SimilarityIndex

    items = _vectors("float32")
    made = SimilarityIndex().fit(items)
    with tempfile.TemporaryDirectory() as folder:
        made.save(Path(folder) / "index")
        for searched in (made, SimilarityIndex.load(Path(folder) / "index")):
            searched.search(items[:1], 5)
            searched.search(items, 5)


def _measures() -> None:
    from fastcos.measures import list_measures
    from fastcos.neighbors import top_k

    for name in list_measures():
        with contextlib.suppress(TypeError, ValueError):  # it requires more than the rows
            top_k(_vectors("float32"), k=5, measure=name)
    # enough rows for the kernels of large searches
    large = _vectors("float32", 2_000)
    top_k(large[:64], large, 5, measure="recos")
    for dtype, name in itertools.product(DTYPES, ("csls", "local_scaling", "dis_sim_local")):
        top_k(_vectors(dtype, 2_000), k=5, measure=name)


def _fit() -> None:
    from fastcos.io import ingest_interactions
    from fastcos.models import CosineMF, LinearMF

    X = _interactions(rated=True).tocoo()
    lines = (f"{u},{i},{v:g}\n" for u, i, v in zip(X.row, X.col, X.data, strict=True))
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "ratings.csv"
        table.write_text("user,item,rating\n" + "".join(lines))
        LinearMF(8).fit(ingest_interactions(table, Path(folder) / "shards"))
    LinearMF(8).fit(X.tocsr())
    CosineMF(4, random_state=0).fit(_interactions())


def _audit() -> None:
    from fastcos import auditing

    # few items, and as many as make a search for few queries share panels among threads
    for dtype, n in itertools.product(DTYPES, (60, 512 * tiles.PANEL)):
        labels = [str(i % 3) for i in range(n)]
        auditing.audit(_vectors(dtype, n), _vectors("float64", 40), labels=labels, k=5)


def _products() -> None:
    from fastcos.linalg import gram_matmul, matmul, randomized_svd, rmatmul, svd_residuals

    for dtype in DTYPES:
        X = _interactions(dtype, rated=True)
        left, right = _vectors(dtype, X.shape[0]), _vectors(dtype, X.shape[1])
        matmul(X, right), rmatmul(X, left), gram_matmul(X, right)
        matmul(_interactions(), right), rmatmul(_interactions(), left)
        svd_residuals(X, randomized_svd(X, 5))
        # large enough to be validated while it is multiplied
        matmul(sp.csr_array(np.ones((2**11, 2**9), dtype)), _vectors(dtype, 2**9))
        # a dense factor larger than the cache
        n, p, per_row = 2**11, 2**13, 2**9
        columns = np.arange(n)[:, None] % (p // per_row) + np.arange(0, p, p // per_row)
        indptr = np.arange(0, n * per_row + 1, per_row)
        for value in (1, 2):
            data = np.full(n * per_row, value, dtype)
            X = sp.csr_array((data, columns.ravel(), indptr), shape=(n, p))
            factor = np.ones((p, 64), dtype)
            matmul(X, factor), gram_matmul(X, factor)
