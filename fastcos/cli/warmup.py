"""fastcos warmup: compile everything once, for containers and impatient people."""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fastcos.cli.terminal import print_json, progress_bar, say
from fastcos.kernels import code_cache
from fastcos.storage.provenance import provenance

DESCRIPTION = """\
Run every operation on tiny inputs, so that later processes find compiled code in the cache
directory. In a container image, run it at build time as the user that will run the service, on the
kind of processor that will run it: code is compiled for the processor that it is compiled on."""
EPILOG = """\
examples:
  fastcos warmup
  FASTCOS_CACHE_DIR=/opt/fastcos-cache fastcos warmup"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what the verb takes."""
    parser.add_argument("--json", action="store_true", help="print JSON about what was compiled")


def run(given: argparse.Namespace) -> int:
    """Run every job on tiny inputs."""
    started = time.perf_counter()
    with progress_bar("compiling") as progress:
        for done, job in enumerate(JOBS):
            progress(done, len(JOBS))
            job()
    seconds = time.perf_counter() - started
    directory = code_cache.cache_directory()
    files = list((directory / code_cache.sources_digest()).rglob("*-*"))
    size = sum(path.stat().st_size for path in files) / 2**20
    if given.json:
        document = provenance({"cache_directory": str(directory)})
        print_json({**document, "signatures": len(files), "MiB": size, "seconds": seconds})
    say(f"{len(files)} compiled signatures, {size:.1f} MiB, in {directory}; {seconds:.1f} s")
    return 0


def _interactions() -> Any:
    from fastcos.datasets.simulation import simulate_interactions

    return simulate_interactions(500, 80, random_state=0)


def _vectors(dtype: str, n: int = 300) -> Any:
    import numpy as np

    return np.random.default_rng(0).standard_normal((n, 8)).astype(dtype)


def _compare() -> None:
    from fastcos.comparison import compare

    data = _interactions()
    compare(data.X, data.item_cluster, n_components=8)
    compare(data.X, n_components=8, measures=["dot"])  # by what is held out


def _neighbors() -> None:
    from fastcos.neighbors.radius import neighbors_above
    from fastcos.neighbors.search import similarity_blocks, top_k

    for dtype in ("float32", "float64"):
        items = _vectors(dtype)
        for measure in ("cosine", "dot", "neg_euclidean"):
            top_k(items, k=5, measure=measure)
            top_k(items[:3], items, 5, measure=measure)
            top_k(items[:1], items, 5, measure=measure, exclude=_themselves(1, len(items)))
            top_k(items, items, 5, measure=measure, allowed=range(50))
            neighbors_above(items, 0.5, measure=measure)
        for _ in similarity_blocks(items, measure="cosine"):
            pass
        sparse = _interactions().X.astype(dtype)
        for values in (1, 2, 0.5):  # ones, whole numbers, others
            for measure in ("cosine", "dot"):
                top_k(values * sparse, k=5, measure=measure)
                top_k(values * sparse[:3], values * sparse, 5, measure=measure)
            top_k(values * sparse.T, k=5)


def _themselves(n_queries: int, n_items: int) -> Any:
    import numpy as np
    import scipy.sparse as sp

    numbers = np.arange(n_queries)
    return sp.csr_array((np.ones(n_queries), (numbers, numbers)), shape=(n_queries, n_items))


def _equal_rows() -> None:
    import numpy as np

    from fastcos.neighbors.search import top_k

    for dtype in ("float32", "float64"):
        top_k(np.repeat(_vectors(dtype), 2, axis=0), k=5)


def _ratings() -> None:
    from fastcos.io import ingest_interactions
    from fastcos.models.linear_mf import LinearMF

    rated = _interactions().X.tocoo()
    lines = (f"{u},{i},{1 + u % 5}\n" for u, i in zip(rated.row, rated.col, strict=True))
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "ratings.csv"
        table.write_text("user,item,rating\n" + "".join(lines))
        shards = ingest_interactions(table, Path(folder) / "shards")
        LinearMF(8).fit(shards)
        LinearMF(8).fit(_with_values(rated.tocsr()))


def _with_values(X: Any) -> Any:
    import numpy as np

    X.data = np.arange(1.0, len(X.data) + 1) % 5 + 1
    return X


def _index() -> None:
    from fastcos.neighbors.index import SimilarityIndex

    items = _vectors("float32")
    index = SimilarityIndex().fit(items)
    with tempfile.TemporaryDirectory() as folder:
        index.save(Path(folder) / "index")
        for searched in (index, SimilarityIndex.load(Path(folder) / "index")):
            searched.search(items[:1], 5)
            searched.search(items, 5)


def _measures() -> None:
    from fastcos.measures import list_measures
    from fastcos.neighbors.search import top_k

    items = _vectors("float32")
    for name in list_measures():
        try:
            top_k(items, k=5, measure=name)
        except (TypeError, ValueError):
            continue  # it needs parameters, labels or the other side
    # enough items for a guess of what the best of them have
    top_k(_vectors("float32", 2_000)[:64], _vectors("float32", 2_000), 5, measure="recos")
    for dtype in ("float32", "float64"):
        for name in ("csls", "local_scaling", "dis_sim_local"):
            top_k(_vectors(dtype, 2_000), k=5, measure=name)


def _audit() -> None:
    from fastcos.auditing.embeddings import audit
    from fastcos.kernels import tiles

    # from 512 panels of items on, a search for few queries shares the panels among the threads
    n = 512 * tiles.PANEL
    labels = [str(i % 3) for i in range(n)]
    for dtype in ("float32", "float64"):
        audit(_vectors(dtype, 60), _vectors("float64", 40), labels=labels[:60], k=5)
        audit(_vectors(dtype, n), _vectors("float64", 40), labels=labels, k=5)


def _products() -> None:
    import numpy as np
    import scipy.sparse as sp

    from fastcos.linalg.products import gram_matmul, matmul, rmatmul
    from fastcos.linalg.svd import randomized_svd, svd_residuals

    for dtype in ("float32", "float64"):
        X = _with_values(_interactions().X).astype(dtype)
        left, right = _vectors(dtype, X.shape[0]), _vectors(dtype, X.shape[1])
        matmul(X, right), rmatmul(X, left), gram_matmul(X, right)
        ones = _interactions().X  # as they are where means are subtracted
        matmul(ones, right), rmatmul(ones, left)
        svd_residuals(X, randomized_svd(X, 5))
        # large enough to be checked while it is multiplied
        matmul(sp.csr_array(np.ones((2**11, 2**9), dtype)), _vectors(dtype, 2**9))
        for value in (1, 2):  # factors that outgrow the cache
            X = value * _wide(dtype)
            factor = np.ones((X.shape[1], 64), dtype)
            matmul(X, factor), gram_matmul(X, factor)


def _wide(dtype: str) -> Any:
    import numpy as np
    import scipy.sparse as sp

    n, p, per_row = 2**11, 2**13, 2**9
    indices = np.arange(n)[:, None] % (p // per_row) + np.arange(0, p, p // per_row)
    indptr = np.arange(0, n * per_row + 1, per_row)
    return sp.csr_array((np.ones(n * per_row, dtype), indices.ravel(), indptr), shape=(n, p))


def _training() -> None:
    from fastcos.models.cosine_mf import CosineMF

    CosineMF(4, random_state=0).fit(_interactions().X)


JOBS: tuple[Callable[[], None], ...] = (
    _compare,
    _neighbors,
    _index,
    _equal_rows,
    _measures,
    _ratings,
    _audit,
    _products,
    _training,
)
