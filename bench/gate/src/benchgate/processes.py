"""Measure the benchmarks of two commits in interleaved turns, in pairs of fresh processes."""

import contextlib
import itertools
import json
import os
import random
import re
import signal
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

SERVE = Path(__file__).with_name("serve.py")
# In each pair, every benchmark takes this number of turns on base, and the same number of turns on head. With
# 4 turns instead of 6, the scatter of the ratios would be 20 % larger.
TURNS = 6
# The seconds after which a single turn, or the import of all tests, counts as hanging.
TIMEOUT = 600.0
# The largest size in bytes of a variable that is added to the environment of every process. The size of the
# environment determines the address of the stack, which changes the time of some code by several percent.
MAX_PADDING = 4096
# Variables by which common libraries choose their number of threads.
THREAD_VARIABLES = (
    "BLIS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMBA_NUM_THREADS",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "POLARS_MAX_THREADS",
    "RAYON_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)


class Command(NamedTuple):
    """A program that serves benchmarks by the protocol that the module ``serve`` describes.

    ``environment`` is added to the variables of this process; ``folder`` is the working directory.
    """

    argv: Sequence[str]
    environment: Mapping[str, str] = MappingProxyType({})
    folder: str | None = None


class Measurement(NamedTuple):
    """The seconds of each turn of a benchmark in one process, and the share of each turn spent waiting."""

    seconds: list[float]
    waits: list[float]


class Failure(NamedTuple):
    """The reason why a benchmark has no time; ``kind`` is "failed", "crashed", "waits" or "skipped"."""

    kind: str
    reason: str
    share: float = 0.0  # the share of the time that was spent waiting, if the kind is "waits"


class ProcessDied(Exception):
    """Raised if a process ended before it answered a request, for example because it hung and was ended."""


class CannotServe(Exception):
    """Raised if the tests of a commit cannot be run at all; the message is the reason."""


def pytest_command(python, tests, environment, folder=None, threads=1, wall=False):
    """Return the :class:`Command` that runs the pytest-benchmark tests of a project on request."""
    argv = [str(python), str(SERVE), *(["--wall"] if wall else []), *map(str, tests)]
    return Command(argv, dict.fromkeys(THREAD_VARIABLES, str(threads)) | dict(environment), folder)


class Server:
    """A running process of a :class:`Command`."""

    def __init__(self, command, timeout=TIMEOUT):
        # benchgate may itself run inside pytest. The PYTEST_ variables of this pytest must not change how the
        # project's tests run.
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        padding = {"BENCHGATE_PADDING": "x" * random.randrange(MAX_PADDING)}
        self.timeout = timeout
        self.errors = tempfile.TemporaryFile(mode="w+", errors="replace")  # noqa: SIM115 (closed by close)
        self.process = subprocess.Popen(
            command.argv,
            env=inherited | dict(command.environment) | padding,
            cwd=command.folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
        )

    def send(self, request):
        """Send a request; if the process has ended, :meth:`receive` will raise ProcessDied."""
        with contextlib.suppress(BrokenPipeError, OSError):
            print(json.dumps(request), file=self.process.stdin, flush=True)

    def receive(self):
        """Return the next message of the process; raise ProcessDied if the process ends without a message."""
        is_hanging = threading.Event()

        def end_process():
            is_hanging.set()
            self.process.kill()

        timer = threading.Timer(self.timeout, end_process)
        timer.daemon = True
        timer.start()
        try:
            line = self.process.stdout.readline()
        finally:
            timer.cancel()
        if not line.endswith("\n"):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(10)
            raise ProcessDied(
                f"the process did not answer within {self.timeout:g} s"
                if is_hanging.is_set()
                else self.ending()
            )
        return json.loads(line)

    def ending(self):
        """Describe how the process ended."""
        status = self.process.poll()
        if status is not None and status < 0:
            with contextlib.suppress(ValueError):
                return f"the process was ended by {signal.Signals(-status).name}"
        return f"the process ended with exit status {status}"

    def last_error(self):
        """Return the last line of standard error that contains "error"; if there is none, the last line."""
        self.errors.seek(0)
        lines = [line.strip() for line in self.errors if line.strip()]
        error_lines = [line for line in lines if re.search("error", line, re.IGNORECASE)]
        return ([*lines, *error_lines] or ["it wrote nothing to standard error"])[-1][:200]

    def close(self):
        """Close the standard input of the process and wait until it exits."""
        try:
            self.process.communicate(timeout=30)
        except (subprocess.TimeoutExpired, ValueError, OSError):
            self.process.kill()
            self.process.wait()
        self.errors.close()


class Side:
    """One of the two commits, with facts about its benchmarks, and with the process that runs them.

    Attributes
    ----------
    benchmarks : dict
        Maps the name of each benchmark to its settings, as the most recent process listed them.
    errors : dict
        Maps each test file that could not be imported to the reason.
    crashed : dict
        The benchmarks and test files that ended a process, each with the reason. They are not run again.
    """

    def __init__(self, command, timeout=TIMEOUT):
        self.command, self.timeout = command, timeout
        self.benchmarks, self.errors, self.crashed = {}, {}, {}
        self.ignored = {}  # for each test file, the path that pytest ignores
        self.server = None

    def start(self):
        """Start a fresh process and list its benchmarks. Test files that end the process are ignored."""
        while True:
            self.server = Server(self.command, self.timeout)
            self.server.send(list(self.ignored.values()))
            collecting = None
            try:
                while "benchmarks" not in (message := self.server.receive()):
                    collecting, path = message["collecting"], message["path"]
            except ProcessDied as error:
                died, last_error = str(error), self.server.last_error()
                self.close()
                if collecting is None or collecting in self.ignored:
                    raise CannotServe(f"{died}: {last_error}") from None
                self.crashed[collecting] = f"{died} while it imported the file"
                self.ignored[collecting] = path
                continue
            self.benchmarks = message["benchmarks"]
            self.errors = message["errors"] | {file: self.crashed[file] for file in self.ignored}
            return

    def close(self):
        """End the process, if one is running."""
        if self.server is not None:
            self.server.close()
            self.server = None

    def turn(self, name):
        """Run a benchmark once; return the answer of the process or a :class:`Failure`."""
        if name in self.crashed:
            return Failure("crashed", self.crashed[name])
        self.server.send(name)
        try:
            answer = self.server.receive()
        except ProcessDied as error:
            self.crashed[name] = str(error)
            self.close()
            self.start()
            return Failure("crashed", self.crashed[name])
        for kind in ("failed", "skipped"):
            if kind in answer:
                return Failure(kind, answer[kind])
        if "seconds" in answer and not answer["seconds"] > 0:
            return Failure("failed", "its time is below the resolution of the clock")
        if "seconds" not in answer:
            share = answer["waits"]
            return Failure("waits", f"it waits for {share:.0%} of the time", share)
        return answer


def interleaved(base, head, turns=TURNS):
    """Return a function that measures one pair of processes.

    The function takes a list of names of benchmarks (``[]``: all), and returns one dict for base and one for
    head. Each dict maps the name of a benchmark to a :class:`Measurement` or a :class:`Failure`. The pairs
    alternate: in the first pair, the process of base is started first; in the second pair, the process of
    head is started first.
    """
    directions = itertools.cycle([1, -1])

    def pair(names):
        direction = next(directions)
        return run_turns([base, head][::direction], turns, names)[::direction]

    return pair


def run_turns(sides, turns, names=()):
    """Measure all sides alternately, each in a fresh process; return one dict of results for each side.

    Other work on the machine disturbs the processes for milliseconds to minutes. The two calls of a turn
    follow each other within moments, so a disturbance slows down both calls in the same way. The disturbance
    therefore cancels in the ratio of the two times. Before the first turn, each side calls every benchmark
    once; these calls do not count.
    """
    with contextlib.ExitStack() as stack:
        for side in sides:
            stack.callback(side.close)
            side.start()
        all_names = list(names) or list(dict.fromkeys(itertools.chain(*(side.benchmarks for side in sides))))
        results = [{} for _ in sides]
        sides_and_results = list(zip(sides, results, strict=True))
        for turn, (position, name) in itertools.product(range(-1, turns), enumerate(all_names)):
            # In half of the turns, the first side is called first; in the others, the second side.
            for side, result in sides_and_results if (turn + position) % 2 == 0 else sides_and_results[::-1]:
                if name not in side.benchmarks or isinstance(result.get(name), Failure):
                    continue
                answer = side.turn(name)
                if isinstance(answer, Failure):
                    result[name] = answer
                elif turn < 0:
                    result[name] = Measurement([], [])
                else:
                    result[name].seconds.append(answer["seconds"])
                    result[name].waits.append(answer.get("waits", 0.0))
    return results
