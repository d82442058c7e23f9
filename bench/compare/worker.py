"""The process of one library, which prepares tasks and times calls on request.

`Worker` runs in the process of the comparison and starts `python -m bench.compare.worker LIBRARY`.
The started process reads requests, each of which is one line of JSON, and answers every request
with one line of JSON.
"""

import contextlib
import importlib
import json
import os
import pkgutil
import statistics
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path

import numpy as np
from packaging.requirements import Requirement

from bench.compare import libraries, settings

ROOT = Path(__file__).parents[2]
# In each turn, a library repeats its call until the calls of this turn have taken TURN_SECONDS in
# total.
TURN_SECONDS = 0.02
# Some threads wait actively, in a loop, and would slow the next library down. The next library is
# therefore called only after a quiet period of 5 ms. In a quiet period, all threads of the previous
# library together use less than a tenth of a core.
QUIET_SECONDS, QUIET_SHARE = 5e-3, 0.1
# By default, threads of OpenBLAS wait actively for 2^28 cycles, which is 0.1 s. With this setting,
# the threads of OpenBLAS wait actively for only 2^22 cycles, which is 2 ms. The pause between two
# calls of one turn is shorter than 2 ms, so the threads still wait actively during this pause.
OPENBLAS_WAIT = {"OPENBLAS_THREAD_TIMEOUT": "22"}
# The functions that a library's file may define.
OPERATIONS = ("search", "self_join", "sparse_join", "product", "gram", "svd")
THREAD_VARIABLES = (
    "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS",
    "RAYON_NUM_THREADS", "FASTCOS_N_THREADS",
)  # fmt: skip


class NotInstalledError(Exception):
    """The library is not installed."""


class Failed(Exception):
    """The library raised an error, or its process ended."""


class Worker:
    """The process of a library, with the environment variables of one setting of that library."""

    def __init__(self, library, threads, setting=settings.Setting()):  # noqa: B008  a constant
        self.library, self.setting, self.cpu_seconds = library, setting, 0.0
        variables = dict.fromkeys(THREAD_VARIABLES, str(threads)) | OPENBLAS_WAIT
        if settings.is_limited_to_avx2():
            variables |= settings.AVX2_VARIABLES
        self.process = subprocess.Popen(
            [sys.executable, "-m", "bench.compare.worker", library],
            env=os.environ | variables | setting.variables, cwd=ROOT,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def request(self, **words):
        """Send a request to the process, and return its answer, a dictionary."""
        with contextlib.suppress(BrokenPipeError):  # if the process has ended
            print(json.dumps(words), file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        if not line:
            raise Failed(f"the process ended with status {self.process.wait()}")
        answer = json.loads(line)
        if "missing" in answer:
            raise NotInstalledError(answer["missing"])
        if "error" in answer:
            raise Failed(answer["error"])
        self.cpu_seconds = answer["cpu_seconds"]
        return answer

    def prepare(self, operation, folder):
        """Prepare an operation on the arguments in a folder, and return its answer."""
        self.request(do="prepare", operation=operation, folder=str(folder))
        return np.load(Path(folder, f"{self.process.pid}.answer.npy"))

    def close(self):
        """Close the standard input of the process, and wait until the process ends."""
        with contextlib.suppress(BrokenPipeError):
            self.process.communicate()


def names_of_libraries():
    """Return the names of all files in bench/compare/libraries, fastcos first."""
    names = sorted(module.name for module in pkgutil.iter_modules(libraries.__path__))
    return sorted(names, key=lambda name: name != "fastcos")


def library(name):
    """Import the file of a library."""
    return importlib.import_module(f"bench.compare.libraries.{name}")


def save_arguments(folder, arguments):
    """Write the arguments of an operation to a folder: arrays as .npy files, numbers as JSON."""
    numbers = {}
    for name, value in arguments.items():
        if hasattr(value, "indptr"):
            numbers[name] = {"shape": value.shape}
            for part in ("data", "indices", "indptr"):
                np.save(Path(folder, f"{name}.{part}.npy"), getattr(value, part))
        elif isinstance(value, np.ndarray):
            np.save(Path(folder, f"{name}.npy"), value)
        else:
            numbers[name] = value
    Path(folder, "arguments.json").write_text(json.dumps(numbers))


def load_arguments(folder):
    """Return the arguments that save_arguments wrote."""
    from scipy.sparse import csr_array

    arguments = json.loads(Path(folder, "arguments.json").read_text())
    for name, value in arguments.items():
        if isinstance(value, dict):
            parts = [
                np.load(Path(folder, f"{name}.{part}.npy"))
                for part in ("data", "indices", "indptr")
            ]
            arguments[name] = csr_array(tuple(parts), shape=value["shape"])
    for file in Path(folder).glob("*.npy"):
        if file.name.count(".") == 1:
            arguments[file.stem] = np.load(file)
    return arguments


def blas_libraries():
    """Return the BLAS libraries of this process, as a dictionary of path to name and version."""
    from threadpoolctl import threadpool_info

    pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas" and pool["version"]]
    return {pool["filepath"]: (pool["internal_api"], pool["version"]) for pool in pools}


def versions_of(module, blas):
    """Return the version of a library, and of the BLAS that the library contains."""
    requirement = Requirement(module.REQUIRES)
    package, version = requirement.name, metadata.version(requirement.name)
    if not requirement.specifier.contains(version, prereleases=True):
        raise ImportError(f"needs {module.REQUIRES}, found {version}")
    versions = {package: version} | getattr(module, "versions", dict)()
    return versions | {f"{name} of {package}": version for name, version in blas}


def description(name):
    """Return the facts about a library that the comparison needs before any measurement."""
    # A BLAS library is listed only if importing the library loads it. NumPy's BLAS is already
    # loaded, so for NumPy all loaded BLAS libraries are listed.
    before = {} if name == "numpy" else blas_libraries()
    module = library(name)
    blas = [version for path, version in blas_libraries().items() if path not in before]
    return {
        "name": module.NAME,
        "versions": versions_of(module, blas),
        "exact": getattr(module, "EXACT", True),
        "settings": getattr(module, "SETTINGS", settings.DEFAULT),
        "operations": [name for name in OPERATIONS if hasattr(module, name)],
    }


def resident_mib(field, process="self"):
    """Return VmRSS (the resident memory) or VmHWM (its peak) in MiB, or 0 without /proc."""
    try:
        text = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return 0.0
    return int(text.split(f"{field}:")[1].split()[0]) / 1024


def time_turn(call):
    """Repeat a call until 20 ms have passed; return the median of the seconds that it takes."""
    seconds = []
    while sum(seconds) < TURN_SECONDS:
        started = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - started)
    # If there are several calls, the first call is left out. The first call may be slower than the
    # later calls, because the caches still contain the data of another library when it starts.
    return statistics.median(seconds[1:] or seconds)


def wait_for_threads():
    """Wait until the other threads of this process sleep; busy threads would disturb others."""
    previous_seconds, since = -np.inf, 0.0
    while (now := time.perf_counter()) - since < QUIET_SECONDS:
        helping_seconds = time.process_time() - time.thread_time()
        if helping_seconds - previous_seconds > QUIET_SHARE * QUIET_SECONDS:
            previous_seconds, since = helping_seconds, now


def call_once(prepare, arguments):
    """Call a library once; return the answer, and a dict with the time and memory of the call.

    The dict contains the seconds of the call, the seconds of the preparation, and the peak memory
    that the preparation and the call add to the process. Before this call, a call on the first rows
    compiles kernels and starts threads.
    """
    short_arguments = arguments | {"X": arguments["X"][:5_000]}
    call, read = prepare(**short_arguments)
    call()
    before = resident_mib("VmRSS")
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak of the resident memory
    started = time.perf_counter()
    call, read = prepare(**arguments)
    prepared = time.perf_counter()
    result = call()
    ended = time.perf_counter()
    peak = resident_mib("VmHWM")
    times = {"seconds": ended - prepared, "preparation_seconds": prepared - started}
    return read(result), times | {"added_mib": max(0.0, peak - before)}


def answer_to(request, name, state):
    """Carry out one request; state stores the prepared call between requests."""
    if request["do"] == "describe":
        return description(name)
    if request["do"] == "call":
        seconds = time_turn(state["call"])
        wait_for_threads()
        return {"seconds": seconds}
    prepare = getattr(library(name), request["operation"])
    arguments, facts = load_arguments(request["folder"]), {}
    if request["do"] == "once":
        answer, facts = call_once(prepare, arguments)
    else:
        state["call"], read = prepare(**arguments)
        answer = read(state["call"]())
    np.save(Path(request["folder"], f"{os.getpid()}.answer.npy"), np.asarray(answer))
    return facts


def serve(name):
    """Answer the requests on standard input until it is closed."""
    state, output = {}, sys.stdout
    with contextlib.redirect_stdout(sys.stderr):  # because libraries may print
        for line in sys.stdin:
            try:
                answer = answer_to(json.loads(line), name, state)
            except ImportError as error:
                answer = {"missing": str(error)}
            # If a library raises an error, the error is reported as the result of this library.
            except Exception as error:
                answer = {"error": f"{type(error).__name__}: {error}"[:300]}
            answer["cpu_seconds"] = time.process_time()
            print(json.dumps(answer), file=output, flush=True)


if __name__ == "__main__":
    serve(*sys.argv[1:])
