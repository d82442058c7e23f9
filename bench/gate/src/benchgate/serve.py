"""Time single benchmarks of a project on request: ``python serve.py PYTEST_ARGUMENTS``.

This file runs in the environment of the tested project. It imports only pytest, pytest-benchmark and
the standard library, because benchgate need not be installed there.

Protocol, one line of JSON per message:

1. The parent sends an array of the paths of test files that pytest must ignore.
2. This process answers ``{"collecting": FILE, "path": PATH}`` before it imports a file, and at the end
   ``{"benchmarks": {NAME: {"tolerance": 0.2}, ...}, "errors": {FILE: REASON}}``.
3. The parent sends the name of a benchmark (its pytest node id), as a JSON string.
4. This process runs the benchmark for one turn and answers ``{"seconds": S, "waits": SHARE}``,
   ``{"failed": REASON}``, ``{"skipped": REASON}`` or ``{"waits": SHARE}``. Steps 3 and 4 repeat.

The process exits when its standard input is closed. For every turn, the fixtures of a function are
created anew. The fixtures of a module are created anew if the previous turn ran a benchmark of another
module. Expensive inputs therefore belong in fixtures of the session.
"""

import importlib.util
import json
import os
import sys
import tempfile
import time
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol

# The seconds that one turn of a benchmark lasts; a turn makes at least one call.
TURN_SECONDS = 0.02
# A benchmark that has run for more than this many seconds of wall time is stopped if it spent more than half
# of this time waiting. Without this limit, a turn of a waiting benchmark could take minutes: pytest-benchmark
# counts only CPU time, and waiting uses almost no CPU time.
MAX_WAITING_SECONDS = 1.0
MARK = "benchgate"
# Options of pytest, and the values to which this file resets them. A project may have set these options in
# `addopts`. With some values of these options, pytest would skip a benchmark, a turn would take longer, or
# the measured times would be disturbed.
PYTEST_OPTIONS = {
    "benchmark_autosave": False,
    "benchmark_compare": None,
    "benchmark_compare_fail": None,
    "benchmark_cprofile": None,
    "benchmark_disable": False,
    "benchmark_disable_gc": True,
    "benchmark_enable": True,
    "benchmark_histogram": None,
    "benchmark_json": None,
    "benchmark_max_time": str(TURN_SECONDS),
    "benchmark_min_rounds": 1,
    "benchmark_only": False,
    "benchmark_precision": None,
    "benchmark_save": None,
    "benchmark_skip": False,
    "benchmark_warmup": False,
    "continue_on_collection_errors": True,
    "dist": "no",  # pytest-benchmark measures nothing in the workers of pytest-xdist
    "maxfail": 0,
    "numprocesses": 0,
    "tx": [],
}


class Waits(Exception):
    """Raised if the benchmark sleeps, or waits for something other than the CPU."""


class Clock:
    """The timer that pytest-benchmark calls before and after every round.

    The timer returns CPU seconds of this process, or wall seconds if ``wall`` is true. The timer stores
    all readings, from which :meth:`waiting` computes the share of the time that the process waited.
    """

    def __init__(self):
        self.wall = False
        self.scheduler = scheduler_file()
        self.reset()

    def reset(self):
        """Forget the readings of the previous benchmark."""
        # Each reading is a pair: the wall seconds and the CPU seconds.
        self.readings = []
        # Each entry contains the number of a reading, and the seconds that the process had waited for a CPU
        # before this reading.
        self.displaced = []

    def __call__(self):
        wall, cpu = time.perf_counter(), time.process_time()
        self.readings.append((wall, cpu))
        if self.wall:
            return wall
        # A call of seconds_displaced takes 3 us, which would distort the times of fast benchmarks.
        # It is therefore called at most once per millisecond.
        if not self.displaced or wall - self.sampled > 1e-3:
            self.sampled = wall
            self.displaced.append((len(self.readings) - 1, self.seconds_displaced()))
            if wall - self.readings[0][0] > MAX_WAITING_SECONDS and (share := self.waiting(0)) > 0.5:
                raise Waits(share)
        return cpu

    def seconds_displaced(self):
        """Return how many seconds this process has waited for a CPU that other processes used."""
        return int(os.pread(self.scheduler, 100, 0).split()[1]) / 1e9 if self.scheduler else 0.0

    def waiting(self, rounds):
        """Of the wall time of the last ``rounds`` rounds, return the share that the process spent waiting.

        If ``rounds`` is 0, the share refers to the whole time since the last reset.
        """
        readings = self.readings[-2 * rounds :] if rounds else [self.readings[0], self.readings[-1]]
        start = len(self.readings) - len(readings) if rounds else 0
        pairs = list(zip(readings[::2], readings[1::2], strict=True))
        wall, cpu = (sum(end[i] - start[i] for start, end in pairs) for i in (0, 1))
        last_number = max(number for number, _ in self.displaced if number <= start)
        displaced = self.displaced[-1][1] - dict(self.displaced)[last_number]
        return min(1.0, max(0.0, (wall - cpu - displaced) / wall)) if wall else 0.0


def scheduler_file():
    """Open the file in which Linux counts how long this process waits for a CPU.

    Return the descriptor of the file, or None if the system has no such file.
    """
    try:
        descriptor = os.open("/proc/self/schedstat", os.O_RDONLY)
        int(os.pread(descriptor, 100, 0).split()[1])
    except (OSError, ValueError, IndexError, AttributeError):
        return None
    return descriptor


class Plugin:
    """The pytest plugin, which takes the place of pytest's loop over the tests."""

    def __init__(self, requests, replies, wall):
        self.requests, self.replies, self.wall = requests, replies, wall
        self.clock, self.errors = Clock(), {}

    def reply(self, message):
        """Send one message to the parent."""
        print(json.dumps(message), file=self.replies, flush=True)

    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self, config):
        config.addinivalue_line("markers", f"{MARK}(tolerance, clock): how benchgate judges a benchmark")
        for name, value in PYTEST_OPTIONS.items():
            setattr(config.option, name, value)

    def pytest_collectstart(self, collector):
        if isinstance(collector, pytest.File):
            self.reply({"collecting": collector.nodeid, "path": str(collector.path)})

    def pytest_collectreport(self, report):
        if report.failed:
            lines = [line.strip() for line in report.longreprtext.splitlines() if line.strip()]
            errors = [line[1:].strip() for line in lines if line.startswith("E ")]
            # If one error caused another error, pytest prints both. The last error that pytest prints is the
            # one that was finally raised.
            self.errors[report.nodeid] = shorten((errors or lines or ["no reason"])[-1])

    def pytest_runtestloop(self, session):
        if not hasattr(session.config, "_benchmarksession"):
            raise pytest.UsageError("pytest-benchmark must be installed and enabled")
        options = session.config._benchmarksession.options
        options["timer"] = type(options["timer"])(self.clock)
        items = {item.nodeid: item for item in session.items if "benchmark" in item.fixturenames}
        settings = {name: self.settings(item) for name, item in items.items()}
        self.reply({"benchmarks": settings, "errors": self.errors})
        for line in self.requests:
            name = json.loads(line)
            error = settings[name].get("error")
            self.reply({"failed": error} if error else self.run(items[name], settings[name]))
        # Without benchmarks in its session, pytest-benchmark prints no table.
        session.config._benchmarksession.benchmarks.clear()
        return True

    def settings(self, item):
        """Return the tolerance and the clock that a mark sets; return an error if the mark is wrong."""
        for mark in item.iter_markers("benchmark"):
            mark.kwargs.pop("timer", None)  # every benchmark is timed by the clock of benchgate
        mark = item.get_closest_marker(MARK)
        if mark is None:
            return {"clock": "wall"} if self.wall else {}
        settings = dict(mark.kwargs)
        unknown = sorted(settings.keys() - {"tolerance", "clock"})
        tolerance = settings.get("tolerance", 0)
        if mark.args or unknown:
            got = ", ".join([*map(repr, mark.args), *unknown])
            return {"error": f"mark {MARK} must have only tolerance= and clock=, got {got}"}
        if not isinstance(tolerance, int | float) or not 0 <= tolerance < float("inf"):
            return {"error": f"tolerance of mark {MARK} must be a number of at least 0, got {tolerance!r}"}
        if settings.get("clock", "cpu") not in ("cpu", "wall"):
            return {"error": f"clock of mark {MARK} must be 'cpu' or 'wall', got {settings['clock']!r}"}
        if self.wall:
            settings.setdefault("clock", "wall")
        return settings

    def run(self, item, settings):
        """Run one turn of a benchmark, and return the answer to the request of the parent process."""
        # This call tears down the fixtures of other modules. It keeps the fixtures of the module that
        # contains the benchmark.
        item.session._setupstate.teardown_exact(item.parent)
        measured = item.config._benchmarksession.benchmarks
        measured.clear()
        self.clock.wall = settings.get("clock") == "wall"
        self.clock.reset()
        self.refused = None
        reports = runtestprotocol(item, nextitem=item.parent, log=False)
        if self.refused is not None:
            return {"waits": self.refused}
        for report in reports:
            if report.failed:
                crash = getattr(report.longrepr, "reprcrash", None)
                message = crash.message if crash else report.longreprtext
                return {"failed": shorten(f"{report.when}: {message}")}
        if any(report.skipped for report in reports):
            return {"skipped": "the test was skipped"}
        if not measured:
            return {"skipped": "the test did not call benchmark()"}
        stats = measured[-1].stats
        return {"seconds": stats.median, "waits": self.share}

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_call(self, item):
        outcome = yield
        benchmarks = item.config._benchmarksession.benchmarks
        if outcome.excinfo and issubclass(outcome.excinfo[0], Waits):
            self.refused = outcome.excinfo[1].args[0]
        elif benchmarks and not self.clock.wall:
            # pytest-benchmark first calibrates a benchmark and then times its rounds. The last readings of
            # the clock were therefore made in these rounds.
            self.share = self.clock.waiting(len(benchmarks[-1].stats.data))
        else:
            self.share = 0.0


def shorten(message):
    """Return a message as a single line for the summary, with paths relative to the repository."""
    return " ".join(message.split()).replace(f"{Path.cwd()}{os.sep}", "")[:200]


def main(arguments):
    """Serve until standard input is closed; return the exit status of pytest."""
    wall = "--wall" in arguments[:1]
    arguments = arguments[wall:]
    # Requests and replies use copies of standard input and standard output. Tests may therefore
    # read standard input and print without disturbing the protocol.
    requests, replies = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    sys.path[0] = str(Path.cwd())  # imports come from the current folder, as with `python -m pytest`
    ignored = [f"--ignore={file}" for file in json.loads(requests.readline())]
    # A plugin would start too late to switch pytest-cov off. The option --no-cov of the command line switches
    # pytest-cov off before it starts to measure.
    extras = ["--no-cov"] if importlib.util.find_spec("pytest_cov") else []
    with tempfile.TemporaryDirectory() as cache:
        options = ["-qq", "-o", f"cache_dir={cache}", *extras, *ignored]
        return pytest.main([*arguments, *options], plugins=[Plugin(requests, replies, wall)])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
