"""The command ``fastcos warmup`` compiles all kernels, for container images and servers."""

import argparse
import contextlib
import functools
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from fastcos import config
from fastcos.cli import options
from fastcos.cli.terminal import print_json, progress_bar, say
from fastcos.kernels import code_cache, cpu, native
from fastcos.kernels.simd.panel import PANEL
from fastcos.linalg import (
    gram_matmul,
    matmul,
    operators,
    randomized_svd,
    rmatmul,
    svd_residuals,
)
from fastcos.parallel import readiness
from fastcos.search import SimilarityIndex, neighbors_above, rescore, similarity_blocks, top_k
from fastcos.search.compile_searches import compile_searches
from fastcos.similarity import list_measures
from fastcos.storage.provenance import provenance

DESCRIPTION = """\
Run every operation on tiny inputs, so that later processes find compiled code in the cache
directory. For a container image, run this command at build time as the user that will run the
service. By default, the command compiles for the processor of this machine. With --portable, the
command compiles for every tier of x86-64 that this processor supports. Other machines of these
tiers can then also use the compiled kernels. The tiers are v3 (AVX2), v4 (AVX-512), v4 with VNNI,
and v4 with AMX. The command uses all cores, or the number of cores in FASTCOS_N_THREADS, and about
0.5 GB of memory per core."""
EPILOG = """\
examples:
  fastcos warmup
  FASTCOS_CACHE_DIR=/opt/fastcos-cache fastcos warmup --portable"""
DTYPES = ("float32", "float64")
# The seconds of processor time that all jobs need to compile the kernels for one target. A target
# is this processor or a tier of processors. The command estimates its run time from this number.
_PROCESSOR_SECONDS = 180


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    help_ = (
        "compile for every tier of x86-64 that this processor supports (default: compile for this "
        "processor only)"
    )
    parser.add_argument("--portable", action="store_true", help=help_)
    options.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Run every job on tiny inputs in parallel processes."""
    tiers = cpu.supported_tiers() if args.portable else [None]
    if not tiers:
        raise ValueError(
            f"--portable must run on one of {', '.join(native.TIERS)}, got {platform.machine()}"
        )
    if not code_cache.has_compiler():
        raise ImportError("warmup needs Numba, which is missing: pip install 'fastcos[compile]'")
    directory = code_cache.cache_directory()
    if directory is None:
        raise ValueError(
            "FASTCOS_CACHE_DIR must be an absolute path, got "
            f"{os.environ.get('FASTCOS_CACHE_DIR') or 'no value'}. fastcos has found no other "
            "directory for compiled code, such as a home directory"
        )
    options.check_output_directory("the cache (FASTCOS_CACHE_DIR)", directory)
    started = time.perf_counter()
    # Jobs for different tiers never compile the same code. If there are several tiers, adjacent
    # jobs in this list are for different tiers, so processes that run at the same time rarely wait
    # for each other.
    jobs = [(job, tier) for job in JOBS for tier in tiers]
    messages: set[str] = set()
    n_processes = min(config.n_threads(), len(jobs))
    minutes = max(1, round(_PROCESSOR_SECONDS * len(tiers) / n_processes / 60))
    say(
        f"compiling all kernels into {directory} with {n_processes} processes. This takes about "
        f"{minutes} minute{'s' * (minutes > 1)} on an idle machine, and less time if some kernels "
        "are already compiled"
    )
    with progress_bar("compiling") as progress, ThreadPoolExecutor(config.n_threads()) as pool:
        futures = [pool.submit(_run_job, *job) for job in jobs]
        try:
            for done, future in enumerate(as_completed(futures), 1):
                messages.update(future.result())
                progress(done, len(jobs))
        finally:  # After an error or Ctrl-C, no further process is started.
            pool.shutdown(cancel_futures=True)
    for message in sorted(messages):
        say(message)
    seconds = time.perf_counter() - started
    files = code_cache.signatures()
    size = sum(path.stat().st_size for path in files) / 2**20
    if args.json:
        document = provenance({"cache_directory": str(directory)})
        print_json({**document, "signatures": len(files), "MiB": size, "seconds": seconds})
    say(
        f"{directory} contains {len(files)} compiled kernels of {size:.1f} MiB in total; the "
        f"command took {seconds:.1f} s"
    )
    return 0


def _run_job(job: str, tier: str | None) -> list[str]:
    """Run a job in a separate process; return the warnings that the process prints.

    The process compiles for the processors of `tier`; if `tier` is None, it compiles for this
    processor.
    """
    environment: Mapping[str, str] = os.environ
    if tier is not None:
        name, features = cpu.code_name(tier)
        target = {"NUMBA_CPU_NAME": name, "NUMBA_CPU_FEATURES": features, "FASTCOS_ISA": ""}
        environment = {**os.environ, **target}
    code = f"from fastcos.cli import warmup; warmup.compile_now(); warmup.JOBS[{job!r}]()"
    command = [sys.executable, "-c", code]
    process = subprocess.run(
        command, env=environment, stderr=subprocess.PIPE, text=True, check=False
    )
    if process.returncode:
        last_line = process.stderr.strip().rpartition("\n")[2]
        status = process.returncode
        raise ChildProcessError(f"compiling for {job} ended with status {status}: {last_line}")
    return [line for line in process.stderr.splitlines() if "Warning: " in line]


def compile_now() -> None:
    """Let this process compile every kernel that it calls, even if the inputs are small."""
    readiness.compile_at_once()


def native_jobs() -> dict[str, Callable[[], None]]:
    """Return the jobs that compile the kernels for the libraries of a wheel (kernels.build)."""
    compile_now()
    return {name: job for name, job in JOBS.items() if name.partition(" of ")[0] in NATIVE_JOBS}


def _interactions(dtype: str = "float32", *, rated: bool = False) -> Any:
    """Simulate interactions (500, 80), whose values are ones or ratings from 1 to 5."""
    from fastcos.models.simulation import simulate_interactions

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
    comparison.choose_rank(X)
    comparison.compare(X.astype("float64"), np.arange(X.shape[1]) % 4, n_components=4)
    for dtype in DTYPES:
        for n in (60, 1_200):
            comparison.compare_vectors(_vectors(dtype, n), np.arange(n) % 4)


def _recommend() -> None:
    """Recommend items by each of the three methods of `fastcos recommend`.

    Items are ranked by user-item scores, by votes of the nearest users, or by votes of the items
    that a user has seen.
    """
    from fastcos.comparison.candidates import Embeddings, select_candidates
    from fastcos.comparison.recommending import recommend
    from fastcos.models import LinearMF

    X = sp.csr_array(_interactions(rated=True))
    model = LinearMF(8).fit(X)
    embeddings = Embeddings(model.item_embeddings(), model=model, X=X)
    for measure in ("user_item_dot", "project_back_users", "cosine"):
        *_, candidate = select_candidates([measure], embeddings, with_users=True)[0]
        recommend(candidate, embeddings, np.arange(100), X, 5)


def _search() -> None:
    """Search dense rows in every way.

    A few number types are enough, because the same kernels search the rows of all number types.
    """
    one_item = sp.csr_array(([1.0], ([0], [0])), shape=(1, 300))
    items, queries = _vectors("float32"), _vectors("float64", 100) / 3
    for measure in ("cosine", "dot", "neg_euclidean"):
        top_k(items, k=5, measure=measure)
        top_k(items[:3], items, 5, measure=measure)
        top_k(items[:1], items, 5, measure=measure, exclude=one_item)
        top_k(items, items, 5, measure=measure, allowed=range(50))
        top_k(items[:1], items, 5, measure=measure, allowed=one_item)
        neighbors_above(items, min_score=0.5, measure=measure)
        index = SimilarityIndex(measure).fit(items)
        lists = sp.csr_array(np.tile(np.arange(300) < 20, (len(queries), 1)))
        for rows in (queries, queries[:1]):
            index.search(rows, 5), index.search(rows, 5, allowed=range(150))
            index.search(rows, 5, allowed=lists[: len(rows)], min_score=-1.0)
            index.search(rows, 5, exclude=lists[: len(rows)]), index.radius(rows, 0.9)
            rescore(rows, items, np.tile(np.arange(50), (len(rows), 1)), 5, measure=measure)
    list(similarity_blocks(items, measure="cosine"))
    top_k(np.repeat(items, 2, axis=0), k=5)  # The items contain duplicates.
    top_k(items + 3, k=5)  # Adding 3 to all entries gives the rows a common direction.
    compile_searches()  # Compile the searches of rows that are packed as short codes.
    # A search of 280,000 float32 rows multiplies the rows without packing them.
    top_k(items[:120], _vectors("float32", 280_000), 5)


def _bits() -> None:
    rows = np.arange(300 * 16, dtype=np.uint32).astype(np.uint8).reshape(300, 16)
    top_k(rows, k=5, measure="hamming")
    top_k(rows[:3], rows, 5, measure="hamming")


def _sparse_search(dtype: str) -> None:
    # Matrices of ones, of whole numbers and of fractions are searched by different kernels.
    for value in (1, 2, 0.5):
        X = value * _interactions(dtype)
        for measure in ("cosine", "dot"):
            top_k(X, k=5, measure=measure)
            top_k(X[:3], X, 5, measure=measure)
        top_k(X.T, k=5)


def _measures(dtype: str) -> None:
    # Large searches and small searches use different kernels.
    large = _vectors(dtype, 2_000)
    for name in ("csls", "local_scaling", "dis_sim_local"):
        top_k(large, k=5, measure=name)
    for name in ("csls", "whitened_cosine"):
        SimilarityIndex(name).fit(large[:300]).search(large[:20], 5)
    if dtype == "float32":
        top_k(large[:64], large, 5, measure="recos")
        for name in list_measures():
            # A measure that needs more data than the rows raises an error.
            with contextlib.suppress(TypeError, ValueError):
                top_k(_vectors(dtype), k=5, measure=name)


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
    for dtype in DTYPES:  # The kernels for matrices of ones do not read the data array.
        X = _interactions(dtype)
        LinearMF(4).fit(X[:80, :30]), LinearMF(4).fit(X).user_embeddings(X)
    CosineMF(4, random_state=0).fit(_interactions())


def _audit(dtype: str) -> None:
    from fastcos import auditing, metrics
    from fastcos.similarity import cosine_bounds

    # With 60 items, the search for one query uses a single thread. With 512 panels of PANEL items
    # each, several threads share the search for a few queries.
    for n in (60, 512 * PANEL):
        labels = [str(i % 3) for i in range(n)]
        auditing.audit(_vectors(dtype, n), _vectors("float64", 40), labels=labels, k=5)
    for n in (60, 1_200):
        auditing.audit(_vectors(dtype, n))
        auditing.audit(_vectors(dtype, n), _vectors(dtype, 90), labels=np.arange(n) % 4, k=3)
        auditing.calibrate(_vectors(dtype, n))
    auditing.calibrate(_vectors(dtype, 60), condition=1.2)
    metrics.trustworthiness(_vectors(dtype), _vectors(dtype)[:, :3])
    cosine_bounds.cosine_interval(_vectors(dtype, 2)[0], _vectors(dtype, 2)[1], 1.2)


def _products(dtype: str) -> None:
    X = _interactions(dtype, rated=True)
    users, items = _vectors(dtype, X.shape[0]), _vectors(dtype, X.shape[1])
    matmul(X, items), rmatmul(X, users), gram_matmul(X, items)
    for rated in (False, True):
        narrow = _interactions(rated=rated)
        matmul(narrow, items), rmatmul(narrow, users), gram_matmul(narrow, items)
    svd_residuals(X, randomized_svd(X, 5))
    tall = sp.csr_array(_vectors(dtype, 500) @ _vectors(dtype, 500).T)
    randomized_svd(tall, 2), randomized_svd(tall, 2, tol=1e-9)
    # Each of two threads computes the sums of one group of columns, and the groups are then joined.
    # On a machine with one core, these columns would form a single group without the argument
    # n_threads.
    rmatmul(X[:80], np.tile(users[:80], 2), n_threads=2)
    # Multiply by a dense factor twice: in one piece, and cut into pieces as if it were larger than
    # the cache of the processor. The caches of processors differ, so a small cache is pretended.
    n, p, per_row = 2**9, 2**9, 2**7
    columns = np.arange(n)[:, None] % (p // per_row) + np.arange(0, p, p // per_row)
    indptr = np.arange(0, n * per_row + 1, per_row)
    for value in (1, 2):
        data = np.full(n * per_row, value, dtype)
        X = sp.csr_array((data, columns.ravel(), indptr), shape=(n, p))
        factor = np.ones((p, 70), dtype)
        matmul(X, factor)
        with operators.cache_replaced(2**16):
            matmul(X, factor), gram_matmul(X, factor)


# Each job runs in a process of its own. If a job compiles kernels that other jobs also need, it
# comes before the other jobs.
JOBS: dict[str, Callable[[], None]] = {
    "search": _search,
    **{f"audit of {dtype}": functools.partial(_audit, dtype) for dtype in DTYPES},
    "comparison": _compare,
    "recommendations": _recommend,
    "models": _fit,
    **{f"sparse search of {dtype}": functools.partial(_sparse_search, dtype) for dtype in DTYPES},
    **{f"products of {dtype}": functools.partial(_products, dtype) for dtype in DTYPES},
    **{f"measures of {dtype}": functools.partial(_measures, dtype) for dtype in DTYPES},
    "packed bits": _bits,
}
NATIVE_JOBS = "search", "sparse search", "products", "measures", "packed bits"
