"""Times of two commands, in pairs of fresh processes: one after the other, or taking turns."""

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
# seconds at every turn, by the name of the benchmark
Turns = dict[str, list[float]]
# from names to the turns of base and of head
Pair = Callable[[Sequence[str]], tuple[Turns, Turns]]


@dataclass(frozen=True)
class Command:
    """What is started anew for every sample.

    Attributes
    ----------
    words : sequence of str
        The program and its arguments.
    environment : mapping
        Variables beside those of this process.
    """

    words: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, names: Sequence[str]) -> Seconds:
        """Run it with the names as further arguments; the last thing on stdout is its answer."""
        done = subprocess.run(
            [*self.words, *names],
            env={**os.environ, **self.environment},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        found: Seconds = json.loads(done.stdout[done.stdout.rindex("{") :])
        return found

    def serve(self) -> "Server":
        """Start it once, to be asked often."""
        return Server(self)


class Server:
    """A living process that answers a line of names, a JSON array, with a line of times.

    Parameters
    ----------
    command : Command
    """

    def __init__(self, command: Command) -> None:
        self.words = list(command.words)
        self.process = subprocess.Popen(
            self.words,
            env={**os.environ, **command.environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __call__(self, names: Sequence[str]) -> Seconds:
        """Return the times of these benchmarks, or of all."""
        questions, answers = self.process.stdin, self.process.stdout
        # where it has ended, the empty line below tells
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps(list(names)), file=questions, flush=True)
        line = "" if answers is None else answers.readline()
        if not line:
            raise subprocess.CalledProcessError(self.process.wait(), self.words)
        found: Seconds = json.loads(line)
        return found

    def close(self) -> None:
        """Let it end: nothing more is asked."""
        self.process.communicate()


def as_measure(side: Measure | Sequence[str]) -> Measure:
    """Return a command as a function that runs it."""
    return side if callable(side) else Command(side)


def one_by_one(base: Measure, head: Measure) -> Pair:
    """Return a function that runs base, head, then head, base: whoever is second gains nothing.

    Parameters
    ----------
    base, head : callable
        From names to times.

    Returns
    -------
    callable
        From names to the times of both, each of one turn.
    """
    sides, order = (base, head), [0, 1]

    def pair(names: Sequence[str]) -> tuple[Turns, Turns]:
        found = {side: _one_turn(sides[side](names)) for side in order}
        order.reverse()
        return found[0], found[1]

    return pair


def _one_turn(times: Seconds) -> Turns:
    return {name: [seconds] for name, seconds in times.items()}


def taking_turns(base: Command, head: Command, turns: int) -> Pair:
    """Return a function that lets both live at once; who is started first changes every time.

    Parameters
    ----------
    base, head : Command
        Each must serve: see :class:`Server`.
    turns : int

    Returns
    -------
    callable
        From names to the times of both.
    """
    sides, order = (base, head), [0, 1]

    def pair(names: Sequence[str]) -> tuple[Turns, Turns]:
        times = in_turns([sides[side] for side in order], turns, names)
        found = dict(zip(order, times, strict=True))
        order.reverse()
        return found[0], found[1]

    return pair


def in_turns(commands: Sequence[Command], turns: int, names: Sequence[str]) -> list[Turns]:
    """Times of commands that live at once and take turns at every benchmark.

    What disturbs a machine lasts from milliseconds to minutes. Here all sides meet it within
    moments, so that a turn's ratio hardly knows of it.

    Parameters
    ----------
    commands : sequence of Command
        Each must serve: see :class:`Server`.
    turns : int
        How often each measures every benchmark, after a first pass over all that does not count.
    names : sequence of str
        What to measure; nothing means all.

    Returns
    -------
    list of dict
        One for each command: a benchmark's seconds at every turn.
    """
    servers = [command.serve() for command in commands]
    try:
        found: list[Turns] = [{name: [] for name in server(names)} for server in servers]
        sides = list(zip(servers, found, strict=True))
        known = list(dict.fromkeys(name for times in found for name in times))
        for turn in range(turns):
            for position, name in enumerate(known):
                # each side begins as often as it ends
                for server, times in sides if (turn + position) % 2 == 0 else sides[::-1]:
                    if name in times:
                        times[name] += server([name]).values()
    finally:
        for server in servers:
            server.close()
    return found
