"""Serve a project's benchmarks: `python serve.py PYTEST_ARGUMENTS`, a pytest plugin.

Reads lines from stdin, a JSON array of node ids each ([]: all), and answers each with one line:
node id to the median seconds of a turn, as pytest-benchmark measures it. A test that fails or is
skipped has no time: a wrong answer is not timed. The process ends with its stdin. It needs pytest
and pytest-benchmark only, so that it runs in the environment of any project.

Fixtures of a function or a module are made again for every turn; make expensive inputs in fixtures
of the session.
"""

import importlib.util
import json
import os
import sys
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol

# seconds of a turn at a benchmark; one call at least
TURN = 0.02
OPTIONS = [
    "-qq", "-p", "no:cacheprovider", "--benchmark-enable", "--benchmark-disable-gc",
    "--benchmark-warmup=off", "--benchmark-min-rounds=1", f"--benchmark-max-time={TURN}",
]  # fmt: skip


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

    def seconds(self, item):
        """Run a test; return its median seconds, or None if it does not pass."""
        # fixtures of other modules end, those of this one stay
        item.session._setupstate.teardown_exact(item.parent)
        measured = item.config._benchmarksession.benchmarks
        measured.clear()
        reports = runtestprotocol(item, nextitem=item.parent, log=False)
        for report in reports:
            if report.failed:
                print(f"{item.nodeid}: {report.longreprtext}", file=sys.stderr)
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
