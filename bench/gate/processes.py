"""Times of two sides, interleaved in pairs of fresh processes that serve their benchmarks."""

import contextlib
import itertools
import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

SERVE = Path(__file__).with_name("serve.py")
# per side, benchmark and pair; with 4 the ratios scatter a fifth more (docs/dev/benchmarks.md)
TURNS = 6
# of one thread: other work on the machine adds little to it
CPU_TIME = "--benchmark-timer=time.process_time"
# threads of the libraries that read such a variable
THREADS = (
    "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS",
    "FASTCOS_NUM_THREADS",
)  # fmt: skip


class Command(NamedTuple):
    """A program that serves benchmarks, variables in addition to this environment's, its folder.

    It answers each line of stdin, a JSON array of names ([]: all), with one line of JSON, name to
    seconds or to the reason why there are none, until its stdin ends.
    """

    argv: Sequence[str]
    environment: Mapping[str, str] = {}
    folder: str | None = None


def serving(python, tests, threads, environment, folder=None):
    """Return the command that serves tests of pytest-benchmark by serve.py."""
    clock = [CPU_TIME] if threads == 1 else []
    argv = [str(python), str(SERVE), *clock, *map(str, tests)]
    return Command(argv, dict.fromkeys(THREADS, str(threads)) | environment, folder)


def interleaved(base, head, turns=TURNS):
    """Return a function that measures a pair of processes; the one started first changes."""
    directions = itertools.cycle([1, -1])

    def pair(names):
        direction = next(directions)
        return run_interleaved([base, head][::direction], turns, names)[::direction]

    return pair


def run_interleaved(commands, turns, names):
    """Run commands at once, in turns at every benchmark; return the seconds of the turns by name.

    A disturbance of the machine lasts from milliseconds to minutes. All sides meet it within
    moments here, so that it cancels in the ratio of a turn. A warm-up pass is not counted.
    """
    with contextlib.ExitStack() as stack:
        servers = []
        for command in commands:
            servers.append(Server(command))
            stack.callback(servers[-1].communicate)  # closes its stdin, waits until it ends
        # a string is the reason why a benchmark has no time
        found = [
            {name: one if isinstance(one, str) else [] for name, one in server(names).items()}
            for server in servers
        ]
        sides = list(zip(servers, found, strict=True))
        known = list(dict.fromkeys(name for times in found for name in times))
        for turn, (position, name) in itertools.product(range(turns), enumerate(known)):
            # each side is first as often as it is last
            for server, times in sides if (turn + position) % 2 == 0 else sides[::-1]:
                if isinstance(times.get(name), list):
                    for one in server([name]).values():
                        times[name] = one if isinstance(one, str) else [*times[name], one]
    return found


class Server(subprocess.Popen):
    """The process of a :class:`Command`."""

    def __init__(self, command):
        super().__init__(
            command.argv, env=os.environ | command.environment, cwd=command.folder,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def __call__(self, request):
        """Return the answer to a request: seconds, for names of benchmarks or for [], all."""
        # if the process has ended, the empty line below shows it
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps(request), file=self.stdin, flush=True)
        line = self.stdout.readline()
        if not line:
            raise subprocess.CalledProcessError(self.wait(), self.args)
        return json.loads(line)
