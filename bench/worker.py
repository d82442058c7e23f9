"""A competitor's process: it prepares jobs and times calls on request.

Competitor runs in the process of pytest, and starts `python bench/worker.py`. The worker reads one
JSON request per line from stdin and answers with one line: prepare (task, library, folder of .npy
arrays, parameters), call, answer. FASTCOS_COMPETITORS_PYTHON names interpreters that have the
libraries, separated as in PATH, if this one does not: some need other versions of NumPy.
"""

import contextlib
import json
import multiprocessing
import os
import runpy
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
# values of OPENBLAS_CORETYPE; "" and names that OpenBLAS does not know leave the choice to it
CORE_TYPES = ("", "SkylakeX", "SapphireRapids", "Haswell")
# seconds after a call: the threads of NumPy's OpenBLAS spin for 50 ms and slow down what runs next.
# Busy, for a machine that slept slows it down, too
REST = 0.06
# calls of a trial of core types
TRIAL_CALLS = 3


class Missing(LookupError):
    """The library is not installed."""


class Competitor:
    """A library in a process of its own.

    Parameters
    ----------
    library : str
    core_type : str
        OPENBLAS_CORETYPE of the process.
    """

    def __init__(self, library, core_type=""):
        self.library, self.core_type = library, core_type
        self.interpreters = interpreters()
        self.start()

    def start(self):
        """Start a process of the next interpreter."""
        # threads of OpenMP that spin after a call would slow down what runs next
        environment = os.environ | {"OMP_WAIT_POLICY": "passive"}
        environment.pop("OPENBLAS_CORETYPE", None)
        if self.core_type:
            environment["OPENBLAS_CORETYPE"] = self.core_type
        self.process = subprocess.Popen(
            [self.interpreters.pop(0), str(HERE / "worker.py")],
            env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def request(self, **words):
        """Return the worker's answer; RuntimeError if the library raised or the process ended."""
        print(json.dumps(words), file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        found = json.loads(line) if line else {"error": "the process ended"}
        if found.get("missing"):
            raise Missing(f"{self.library} is not installed ({found['missing']})")
        if found.get("error"):
            raise RuntimeError(f"{self.library}: {found['error']}")
        return found

    def prepare(self, task, arrays, parameters):
        """Prepare a job and call it once; return its answer and its peak memory in MiB."""
        while True:
            try:
                return self._prepare(task, arrays, parameters)
            except Missing:
                if not self.interpreters:
                    raise
                self.close()
                self.start()

    def _prepare(self, task, arrays, parameters):
        with tempfile.TemporaryDirectory() as folder:
            for name, array in arrays.items():
                np.save(Path(folder, name), array)
            found = self.request(
                do="prepare", task=task, library=self.library, folder=folder, parameters=parameters
            )
            return np.load(Path(folder, "answer.npy")), found["peak_mib"]

    def seconds(self):
        """Return the seconds of one call, measured in the worker."""
        return self.request(do="call")["seconds"]

    def close(self):
        """Close its stdin and wait until it ends."""
        with contextlib.suppress(BrokenPipeError):
            self.process.communicate()


def in_new_process(function, *arguments):
    """Return function(*arguments) from a process of its own, whose placement and memory are new."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as fresh:
        return fresh.submit(function, *arguments).result()


def interpreters():
    """Return the interpreters to look for competitors in; this one by default."""
    return os.environ.get("FASTCOS_COMPETITORS_PYTHON", sys.executable).split(os.pathsep)


def fastest(library, task, arrays, parameters):
    """Return a Competitor with the fastest core type of a trial on this job."""
    best, least = None, np.inf
    for core_type in CORE_TYPES:
        one = Competitor(library, core_type)
        try:
            one.prepare(task, arrays, parameters)
            seconds = statistics.median(one.seconds() for _ in range(TRIAL_CALLS))
        except BaseException:
            one.close()
            raise
        if seconds < least:
            best, least, one = one, seconds, best
        if one is not None:
            one.close()
    return best


def resident_mib(field, process="self"):
    """Return VmRSS or VmHWM of a process in MiB; 0 where the system has no /proc."""
    try:
        text = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return 0.0
    return int(text.split(f"{field}:")[1].split()[0]) / 1024


def peak_of(call):
    """Return the result of a call, and the peak memory that it added in MiB."""
    before = resident_mib("VmRSS")
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # resets the high-water mark
    return call(), max(0.0, resident_mib("VmHWM") - before)


def serve():
    """Answer the requests on stdin."""
    libraries = runpy.run_path(str(HERE / "libraries.py"))
    out, calls = sys.stdout, None
    with contextlib.redirect_stdout(sys.stderr):  # libraries may print
        for line in sys.stdin:
            request = json.loads(line)
            try:
                if request["do"] == "prepare":
                    calls = None
                    folder = Path(request["folder"])
                    arrays = {file.stem: np.load(file) for file in folder.glob("*.npy")}
                    task, library = request["task"], request["library"]
                    calls = libraries["prepare"](task, library, arrays, request["parameters"])
                    calls.call()  # compiles, starts threads
                    answer, peak = peak_of(calls.call)
                    np.save(folder / "answer.npy", calls.read(answer))
                    del answer
                    found = {"peak_mib": peak}
                else:
                    started = time.perf_counter()
                    calls.call()
                    found = {"seconds": time.perf_counter() - started}
                    until = time.perf_counter() + REST
                    while time.perf_counter() < until:
                        pass
            except ImportError as error:
                found = {"missing": str(error)}
            except Exception as error:
                found = {"error": f"{type(error).__name__}: {error}"}
            print(json.dumps(found), file=out, flush=True)


if __name__ == "__main__":
    serve()
