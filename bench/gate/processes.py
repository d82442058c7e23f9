"""Times of two commands, in pairs of fresh processes: one after the other, or interleaved."""

import contextlib
import json
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

# per side, benchmark and pair; with 4 the ratios scatter a fifth more (docs/dev/benchmarks.md)
TURNS = 6

Seconds = dict[str, float]
Measure = Callable[[Sequence[str]], Seconds]
# seconds of every turn, by the name of the benchmark
Turns = dict[str, list[float]]
# from the names of benchmarks to the turns of base and of head
Pair = Callable[[Sequence[str]], tuple[Turns, Turns]]


@dataclass(frozen=True)
class Command:
    """A command that is started anew for every sample.

    Attributes
    ----------
    argv : sequence of str
        The program and its arguments.
    environment : mapping
        Variables in addition to those of this process.
    folder : str, optional
        Where it runs; default: the current one.
    """

    argv: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    folder: str | None = None

    def __call__(self, names: Sequence[str]) -> Seconds:
        """Run it with the names as arguments; return the JSON object at the end of its stdout."""
        done = subprocess.run(
            [*self.argv, *names],
            env={**os.environ, **self.environment},
            cwd=self.folder,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        found: Seconds = json.loads(done.stdout[done.stdout.rindex("{") :])
        return found


class Server:
    """A running process that answers each line of names, a JSON array, with a line of times.

    Parameters
    ----------
    command : Command
    """

    def __init__(self, command: Command) -> None:
        self.argv = list(command.argv)
        self.process = subprocess.Popen(
            self.argv,
            env={**os.environ, **command.environment},
            cwd=command.folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __call__(self, names: Sequence[str]) -> Seconds:
        """Return the times of these benchmarks, or of all."""
        requests, replies = self.process.stdin, self.process.stdout
        # if the process has ended, the empty line below shows it
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps(list(names)), file=requests, flush=True)
        line = "" if replies is None else replies.readline()
        if not line:
            raise subprocess.CalledProcessError(self.process.wait(), self.argv)
        found: Seconds = json.loads(line)
        return found

    def close(self) -> None:
        """Close its stdin and wait until it ends."""
        self.process.communicate()


def alternating(base: Measure, head: Measure) -> Pair:
    """Return a function that runs base, head, then head, base: neither side is always second."""
    sides, order = (base, head), [0, 1]

    def pair(names: Sequence[str]) -> tuple[Turns, Turns]:
        times = {side: sides[side](names) for side in order}
        order.reverse()
        found = [{name: [value] for name, value in times[side].items()} for side in (0, 1)]
        return found[0], found[1]

    return pair


def interleaved(base: Command, head: Command, turns: int = TURNS) -> Pair:
    """Return a function that runs both servers at once; the one started first changes."""
    sides, order = (base, head), [0, 1]

    def pair(names: Sequence[str]) -> tuple[Turns, Turns]:
        times = run_interleaved([sides[side] for side in order], turns, names)
        found = dict(zip(order, times, strict=True))
        order.reverse()
        return found[0], found[1]

    return pair


def run_interleaved(commands: Sequence[Command], turns: int, names: Sequence[str]) -> list[Turns]:
    """Run commands at once; they take turns at every benchmark.

    A disturbance of the machine lasts from milliseconds to minutes. All sides meet it within
    moments here, so that it cancels in the ratio of a turn. A warm-up pass is not counted.
    """
    servers = [Server(command) for command in commands]
    try:
        found: list[Turns] = [{name: [] for name in server(names)} for server in servers]
        sides = list(zip(servers, found, strict=True))
        known = list(dict.fromkeys(name for times in found for name in times))
        for turn in range(turns):
            for position, name in enumerate(known):
                # each side is first as often as it is last
                for server, times in sides if (turn + position) % 2 == 0 else sides[::-1]:
                    if name in times:
                        times[name] += server([name]).values()
    finally:
        for server in servers:
            server.close()
    return found
