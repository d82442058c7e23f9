"""How fast this machine is at these data, and how fast the rivals are that are installed.

Every library (``speed_libraries``) runs in processes of its own (``speed_worker``), in turn, with
every choice of BLAS kernels that may suit it; the fastest counts. Answers are compared with float64
before a time is told. The machine's peak is measured in the same run, so shares of it mean
something.
"""

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from fastcos import config, parallel as threads, validation
from fastcos.speed_jobs import Array, Job, search_job, sparse_jobs

WORKER = Path(__file__).with_name("speed_worker.py")
OURS = "fastcos"
RIVALS = {
    "search": ("faiss", "numpy", "sklearn", "usearch"),
    "product": ("scipy", "mkl"),
    "gram": ("scipy", "mkl"),
    "items": ("sparse_dot_topn",),
}
# OpenBLAS does not know every CPU; told so, it may choose better kernels than by itself
CORE_TYPES = ("", "SkylakeX", "Haswell")
USES_BLAS = {"numpy", "faiss", "sklearn"}
ROUNDS = 2
_SGEMM_SIDE = 2_048
_COPIED_BYTES = 1 << 28
_SCALES = (8, 4, 2, 1)


class Peak(NamedTuple):
    """What the machine can do at most, measured.

    Attributes
    ----------
    gflops : float
        float32 products of large matrices by the best BLAS kernels, 10^9 operations a second.
    gigabytes : float
        Bytes read and written by a copy, 10^9 a second.
    """

    gflops: float
    gigabytes: float

    def bound(self, intensity: float) -> float:
        """GFLOP/s that a job of that many operations per byte can reach (the roofline)."""
        return min(self.gflops, intensity * self.gigabytes)


class Speed(NamedTuple):
    """One library at one job.

    Attributes
    ----------
    work, library, setting : str
        setting is the BLAS core type that was best, "" for the library's own choice.
    seconds : float or None
        Median of the calls; None where the answer was wrong.
    pairs : float or None
        Pairs of rows compared, or rows of A added up, per second, in 10^9.
    gflops : float or None
        2 operations per multiply-add of the plain method, whatever was skipped.
    intensity : float
        Operations per byte of inputs and outputs.
    share : float or None
        gflops over the roofline's bound; above 1 where int8 replaces float32.
    p50, p99 : float or None
        Seconds of a single query.
    peak_bytes : int
        The most that its process held, inputs and interpreter included; 0 where the system does
        not tell.
    exact : float
        Share of rows checked whose neighbours, in order, are those of float64; of products, 1 where
        float32 explains the error. A rival whose other rows float32 explains has a time too.
    ratio : float or None
        Its time over that of fastcos.
    """

    work: str
    library: str
    setting: str
    seconds: float | None
    pairs: float | None
    gflops: float | None
    intensity: float
    share: float | None
    p50: float | None
    p99: float | None
    peak_bytes: int
    exact: float
    ratio: float | None


class Scaling(NamedTuple):
    """Neighbours of the first n rows on some threads: 10^9 pairs a second."""

    n: int
    threads: int
    pairs: float


class SpeedReport(NamedTuple):
    """What ``measure_speed`` found."""

    peak: Peak
    speeds: list[Speed]
    scaling: list[Scaling]
    skipped: list[str]


def measure_speed(
    data: Any,
    *,
    k: int = 10,
    seconds: float = 1.0,
    rivals: Sequence[str] | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> SpeedReport:
    """Measure searches among rows, or products and item neighbours of interactions.

    Parameters
    ----------
    data : array_like (n, d) or sparse (n, p)
        Embeddings, searched by cosine; or interactions.
    k : int
        Neighbours.
    seconds : float
        For each library, kind of work and choice of kernels, twice.
    rivals : sequence of str, optional
        Default: all that are installed for FASTCOS_RIVALS_PYTHON, or else for this interpreter.
    progress : callable(done, total), optional

    Returns
    -------
    SpeedReport
        peak, speeds, scaling (of searches), and skipped: the rivals that are not installed.

    Raises
    ------
    ValueError
        Not finite, k out of range, unknown rivals.

    Examples
    --------
    >>> import numpy as np
    >>> from fastcos.speed import measure_speed
    >>> rows = np.random.default_rng(0).standard_normal((500, 16))
    >>> report = measure_speed(rows, k=5, seconds=0.01, rivals=[])
    >>> report.speeds[0].library, report.speeds[0].exact
    ('fastcos', 1.0)
    """
    known = sorted({name for names in RIVALS.values() for name in names})
    for name in rivals or ():
        validation.as_choice("rivals", name, known)
    seconds = validation.as_real("seconds", seconds, above=0)
    with tempfile.TemporaryDirectory() as folder:
        if sp.issparse(data):
            jobs = sparse_jobs(data, k)
        else:
            jobs = [search_job(np.asarray(validation.as_rows("data", data), np.float32), k)]
        bench = _Bench(Path(folder), seconds, progress)
        bench.plan = [
            (number, library, core_type)
            for number, job in enumerate(jobs)
            for library in (OURS, *(n for n in RIVALS[job.work] if rivals is None or n in rivals))
            for core_type in (_core_types() if library in USES_BLAS else ("",))
        ]
        bench.total = ROUNDS * len(bench.plan) + 1
        peak = Peak(bench.peak_gflops(), _copy_speed())
        speeds = bench.all_speeds(jobs, peak)
        scaling = [] if sp.issparse(data) else _scaling(jobs[0].inputs["rows"], k)
    return SpeedReport(peak, speeds, scaling, sorted(bench.skipped))


class _Bench:
    """Runs workers and keeps what they say."""

    def __init__(
        self, folder: Path, seconds: float, progress: Callable[[int, int], object] | None
    ) -> None:
        self.folder, self.seconds, self.progress = folder, seconds, progress
        self.plan: list[tuple[int, str, str]] = []
        self.skipped: set[str] = set()
        self.done, self.total = 0, 0

    def peak_gflops(self) -> float:
        """The best sgemm of all choices of kernels."""
        best = min(
            min(found["seconds"])
            for core_type in _core_types()
            if (found := self._ask("sgemm", "numpy", core_type, None, _SGEMM_SIDE, 0)) is not None
        )
        self._tick()
        return 2e-9 * float(_SGEMM_SIDE) ** 3 / float(best)

    def all_speeds(self, jobs: Sequence[Job], peak: Peak) -> list[Speed]:
        """Ask everyone in turn, ROUNDS times; keep each one's best choice of kernels."""
        for number, job in enumerate(jobs):
            np.savez(self.folder / f"{number}.npz", allow_pickle=False, **job.inputs)
        found: dict[tuple[int, str, str], list[Any]] = {}
        for _ in range(ROUNDS):
            for number, library, core_type in self.plan:
                key = number, library, core_type
                if library not in self.skipped:
                    inputs = self.folder / f"{number}.npz"
                    job = jobs[number]
                    answer = self._ask(job.work, library, core_type, inputs, 0, job.k)
                    if answer is None:
                        self.skipped.add(library)
                    else:
                        found.setdefault(key, []).append(answer)
                self._tick()
        return [
            speed
            for number, job in enumerate(jobs)
            for speed in _compared(
                job, {key[1:]: value for key, value in found.items() if key[0] == number}, peak
            )
        ]

    def _tick(self) -> None:
        self.done += 1
        if self.progress is not None:
            self.progress(self.done, self.total)

    def _ask(
        self, work: str, library: str, core_type: str, inputs: Path | None, size: int, k: int
    ) -> Any:
        """What the worker prints and its answer; None where the library is not installed."""
        answer, path = self.folder / "answer.npy", self.folder / "job.json"
        job = {
            "work": work,
            "library": library,
            "inputs": None if inputs is None else str(inputs),
            "size": size,
            "k": k,
            "seconds": self.seconds,
            "answer": str(answer),
        }
        path.write_text(json.dumps(job), "utf8")
        ours = library == OURS
        python = sys.executable if ours else _rivals_python()
        done = subprocess.run(
            [python, "-P", str(WORKER), str(path)],
            env=_environment(core_type, ours),
            capture_output=True,
            text=True,
            check=False,
        )
        if not ours and ("ModuleNotFoundError" in done.stderr or "ImportError" in done.stderr):
            return None
        if done.returncode:
            last = done.stderr.strip().splitlines() or ["no message"]
            raise OSError(f"{library} failed at {work}: {last[-1]}")
        return {**json.loads(done.stdout), "answer": np.load(answer)}


def _rivals_python() -> str:
    """Return the interpreter that has the rivals."""
    return os.environ.get("FASTCOS_RIVALS_PYTHON") or sys.executable


def _copy_speed() -> float:
    """Return 10^9 bytes a second, read and written, of a copy on all threads."""
    source = np.ones(_COPIED_BYTES, np.uint8)
    target = np.zeros_like(source)
    cuts = threads.row_blocks(len(source), len(source) // (4 * config.num_threads()))
    taken = []
    for _ in range(5):
        started = time.perf_counter()
        threads.run(_copy, cuts, source, target)
        taken.append(time.perf_counter() - started)
    return 2e-9 * _COPIED_BYTES / min(taken)


def _copy(lo: int, hi: int, source: Array, target: Array) -> None:
    np.copyto(target[lo:hi], source[lo:hi])


def _core_types() -> tuple[str, ...]:
    return CORE_TYPES if platform.machine().lower() in ("x86_64", "amd64") else ("",)


def _environment(core_type: str, ours: bool) -> dict[str, str]:
    n_threads = str(config.num_threads())
    environment = {
        **os.environ,
        "FASTCOS_NUM_THREADS": n_threads,
        "OPENBLAS_NUM_THREADS": n_threads,
        "OMP_NUM_THREADS": n_threads,
        "MKL_NUM_THREADS": n_threads,
    }
    environment.pop("OPENBLAS_CORETYPE", None)
    if core_type:
        environment["OPENBLAS_CORETYPE"] = core_type
    if ours:
        environment["PYTHONPATH"] = str(Path(__file__).parents[1])
        environment["FASTCOS_CACHE_DIR"] = str(config.get_config().cache_dir)
    return environment


def _compared(job: Job, found: dict[tuple[str, str], list[Any]], peak: Peak) -> list[Speed]:
    """One row per library, ours first; a wrong answer has no time."""
    best: dict[str, Speed] = {}
    intensity = job.operations / job.moved_bytes
    for (library, core_type), answers in found.items():
        exact = min(job.check(answer["answer"]) for answer in answers)
        calls = [second for answer in answers for second in answer["seconds"]]
        right = exact == 1 or (
            library != OURS and all(job.is_close(answer["answer"]) for answer in answers)
        )
        seconds = float(np.median(calls)) if right else None
        latencies = [second for answer in answers for second in answer.get("latencies", ())]
        p50, p99 = np.percentile(latencies, [50, 99]).tolist() if latencies else (None, None)
        gflops = None if seconds is None else 1e-9 * job.operations / seconds
        speed = Speed(
            job.work,
            library,
            core_type,
            seconds,
            None if seconds is None else 1e-9 * job.pairs / seconds,
            gflops,
            intensity,
            None if gflops is None else gflops / peak.bound(intensity),
            p50,
            p99,
            max(answer["peak_bytes"] for answer in answers),
            exact,
            None,
        )
        if library not in best or _seconds(speed) < _seconds(best[library]):
            best[library] = speed
    ours = _seconds(best[OURS])
    return [
        speed._replace(ratio=None if speed.seconds is None else speed.seconds / ours)
        for speed in best.values()
    ]


def _seconds(speed: Speed) -> float:
    return float("inf") if speed.seconds is None else speed.seconds


def _scaling(rows: Array, k: int) -> list[Scaling]:
    """Rates of the first eighth, quarter, half and all of the rows, on one and on all threads."""
    from fastcos.neighbors.search import top_k

    found = []
    sizes = sorted({max(k + 1, len(rows) // scale) for scale in _SCALES})
    for n_threads in sorted({1, config.num_threads()}):
        for n in sizes:
            taken = []
            for _ in range(3):
                started = time.perf_counter()
                top_k(rows[:n], k=k, n_threads=n_threads)
                taken.append(time.perf_counter() - started)
            found.append(Scaling(n, n_threads, 1e-9 * n * n / min(taken)))
    return found
