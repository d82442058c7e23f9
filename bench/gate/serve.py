"""Serve a project's benchmarks: `python serve.py PYTEST_ARGUMENTS`, a pytest plugin.

Reads lines from stdin, a JSON array of node ids each ([]: all), and answers each with one line:
node id to the median seconds of a turn, as pytest-benchmark measures it, or to the reason why there
are none: a wrong answer is not timed, nor is a call that waits, which CPU time does not count. A
test that is skipped has neither. The process ends with its stdin. It needs pytest and
pytest-benchmark only, so that it runs in the environment of any project.

Fixtures of a function or a module are made again for every turn; make expensive inputs in fixtures
of the session.
"""

import contextlib
import importlib.util
import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol

# seconds of a turn at a benchmark; one call at least
TURN = 0.02
# seconds after which a test that waits is refused, and the share of them that it may sleep
WATCHED, MOST_ASLEEP = 1.0, 0.5
OPTIONS = [
    "-qq", "-p", "no:cacheprovider", "--benchmark-enable", "--benchmark-disable-gc",
    "--benchmark-warmup=off", "--benchmark-min-rounds=1", f"--benchmark-max-time={TURN}",
]  # fmt: skip


def awake():
    """Return the seconds in which this process ran, and in which it was ready to run."""
    with contextlib.suppress(OSError, ValueError):
        _, ready, _ = Path("/proc/self/schedstat").read_text().split()
        return time.process_time() + int(ready) / 1e9
    return time.process_time()


class Waits(Exception):
    """The benchmark sleeps or waits for something else than the CPU."""


@contextlib.contextmanager
def watched():
    """Raise Waits in a test that sleeps: its turn would take hours, in CPU time."""
    if not hasattr(signal, "setitimer") or "time.process_time" not in " ".join(sys.argv):
        yield
        return
    before = [awake()]

    def check(*_):
        asleep = 1 - (awake() - before[0]) / WATCHED
        before[0] = awake()
        if asleep > MOST_ASLEEP:
            raise Waits(f"it waits for {asleep:.0%} of the time, which CPU time does not count")

    previous = signal.signal(signal.SIGALRM, check)
    signal.setitimer(signal.ITIMER_REAL, WATCHED, WATCHED)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


class Server:
    """The plugin, between two files: takes the place of pytest's loop over the tests."""

    def __init__(self, requests, replies):
        self.requests, self.replies = requests, replies

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session):
        if session.testsfailed:
            raise session.Interrupted("errors during the collection")
        items = {item.nodeid: item for item in session.items if "benchmark" in item.fixturenames}
        for line in self.requests:
            names = json.loads(line) or items
            found = {name: self.seconds(items[name]) for name in names if name in items}
            found = {name: seconds for name, seconds in found.items() if seconds is not None}
            print(json.dumps(found), file=self.replies, flush=True)
        session.config._benchmarksession.benchmarks.clear()  # no table at the end
        return True

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_call(self, item):
        with watched():
            yield

    def seconds(self, item):
        """Run a test; return its median seconds, why it failed, or None if it was skipped."""
        # fixtures of other modules end, those of this one stay
        item.session._setupstate.teardown_exact(item.parent)
        measured = item.config._benchmarksession.benchmarks
        measured.clear()
        reports = runtestprotocol(item, nextitem=item.parent, log=False)
        for report in reports:
            if report.failed:
                crash = getattr(report.longrepr, "reprcrash", None)
                why = crash.message if crash else report.longreprtext
                return f"{report.when}: {' '.join(why.split())[:200]}"
        passed = measured and all(report.passed for report in reports)
        return measured[-1].stats.median if passed else None


def main(arguments):
    """Serve until stdin ends; return pytest's exit status."""
    requests, replies = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    # tests may read and print
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    sys.path[0] = str(Path.cwd())  # as `python -m pytest` has it, not the folder of this file
    options = [*OPTIONS, *(["-n0"] if importlib.util.find_spec("xdist") else [])]
    return pytest.main([*options, *arguments], plugins=[Server(requests, replies)])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
