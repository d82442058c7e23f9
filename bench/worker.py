"""A library in a process of its own: it prepares jobs and times calls on request.

Worker runs in the process of pytest, and starts `python bench/worker.py`. The process reads one
JSON request per line from stdin and answers with one line: prepare (task, library, folder of .npy
arrays, parameters), call, limit. fastcos is measured in the same way.
FASTCOS_COMPETITORS_PYTHON names interpreters that have the libraries, separated as in PATH, if this
one does not: some need other versions of NumPy.
"""

import contextlib
import json
import multiprocessing
import os
import re
import runpy
import statistics
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
OURS = "fastcos"
# seconds in which the threads of a process that called must use no CPU, and the share of them that
# counts as none
QUIET, SHARE_OF_NONE = 5e-3, 0.1
# seconds of the calls of a turn that follow each other, and of the pause before a rested call
BURST, PAUSE = 0.02, 0.1


def with_threads(n):
    """Return the name of fastcos on n threads, in the place of a library."""
    return f"{OURS} on {n} thread{'s' * (n > 1)}"


def threads_of(library):
    """Return n of with_threads(n), or None."""
    found = re.fullmatch(rf"{OURS} on (\d+) threads?", library)
    return int(found[1]) if found else None


class Worker:
    """A library in a process of its own, with additional variables; setting says them in words.

    cpu are the CPU seconds of the process until its last answer.
    """

    def __init__(self, library, setting, variables):
        self.library, self.setting, self.variables = library, setting, variables
        self.is_ours = library == OURS or threads_of(library) is not None

    def prepare(self, **job):
        """Prepare a job by the first interpreter that has the library, and return the answer."""
        # here: a competitor's interpreter need not have them
        from bench.gate.processes import THREADS, Command, Server
        from fastcos import config

        # threads that spin after a call would slow down what runs next; 2^22 cycles of OpenBLAS are
        # longer than what is between the calls of a loop, and its 2^28 took 105 ms
        environment = {"OMP_WAIT_POLICY": "passive", "OPENBLAS_THREAD_TIMEOUT": "22"}
        environment |= self.variables
        environment = dict.fromkeys(THREADS, str(config.num_threads())) | environment
        for python in [sys.executable] if self.is_ours else interpreters():
            self.server = Server(Command([python, str(HERE / "worker.py")], environment))
            try:
                return self.request(do="prepare", library=self.library, **job)
            except ImportError as error:
                missing = error
                self.close()
            except RuntimeError:
                self.close()
                raise
        raise missing

    def request(self, **words):
        """Return the answer; raise ImportError or RuntimeError where library or process failed."""
        try:
            found = self.server(words)
        except subprocess.CalledProcessError:
            found = {"error": "the process ended"}
        if "missing" in found:
            raise ImportError(f"{self.library} is not installed ({found['missing']})")
        if "error" in found:
            raise RuntimeError(f"{self.library}: {found['error']}")
        self.cpu = found["cpu"]
        return found

    def close(self):
        """Close its stdin and wait until it ends."""
        with contextlib.suppress(BrokenPipeError):
            self.server.communicate()


def in_new_process(function, *arguments):
    """Return function(*arguments) from a process of its own, whose placement and memory are new."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as fresh:
        return fresh.submit(function, *arguments).result()


def interpreters():
    """Return the interpreters to look for competitors in; this one by default."""
    return os.environ.get("FASTCOS_COMPETITORS_PYTHON", sys.executable).split(os.pathsep)


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


def turn(call, state):
    """Return the seconds of a call: warm, the median of calls in a loop; rested, after a pause."""
    if state == "rested":
        time.sleep(PAUSE)
    spent = []
    while not spent or (state == "warm" and sum(spent) < BURST):
        started = time.perf_counter()
        call()
        spent.append(time.perf_counter() - started)
    return statistics.median(spent[len(spent) > 2 :])  # the first of several is not warm


def wait_for_threads():
    """Wait until the other threads of this process end or sleep: they slow down what runs next.

    So does a machine that slept: this thread does not.
    """
    before, since = -np.inf, 0.0
    while (now := time.perf_counter()) - since < QUIET:
        spent = time.process_time() - time.thread_time()
        if spent - before > SHARE_OF_NONE * QUIET:
            before, since = spent, now


def prepared_call(libraries, request):
    """Return the call of a request, the reader of its answers, and the limit of fastcos' work."""
    if "kind" in request:
        sys.path.insert(0, str(HERE.parent))
        from bench.limits import Limit
        from bench.workloads import WORKLOADS, prepared

        workload = prepared(WORKLOADS[request["kind"]], request["case"])
        return workload.call, None, Limit(workload.work)
    arrays = {file.stem: np.load(file) for file in Path(request["folder"]).glob("*.npy")}
    prepare = libraries["TASKS"][request["task"]][request["library"]]
    return *prepare(arrays, request["parameters"]), None


def serve():
    """Answer the requests on stdin."""
    libraries = runpy.run_path(str(HERE / "libraries.py"))
    out, call, limit = sys.stdout, None, None
    with contextlib.redirect_stdout(sys.stderr):  # libraries may print
        for line in sys.stdin:
            request = json.loads(line)
            try:
                if request["do"] == "prepare":
                    call, read, limit = prepared_call(libraries, request)
                    call()  # compiles, starts threads
                    answer, peak = peak_of(call)
                    if read is not None:
                        np.save(request["answer"], read(answer))
                    del answer
                    found = {"peak_mib": peak}
                elif request["do"] == "limit":
                    found = {"seconds": limit.seconds(), "bound": limit.bound}
                else:
                    found = {"seconds": turn(call, request["state"])}
                    wait_for_threads()
                found["cpu"] = time.process_time()
            except ImportError as error:
                found = {"missing": str(error)}
            except Exception as error:
                found = {"error": f"{type(error).__name__}: {error}"}
            print(json.dumps(found), file=out, flush=True)


if __name__ == "__main__":
    serve()
