"""The measurement of one row: interleaved turns of all libraries, over several fresh processes."""

import contextlib
import random
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from bench import check, machine
from bench.compare.settings import Setting
from bench.compare.worker import Failed, NotInstalledError, Worker, save_arguments

FASTCOS = "fastcos"
# A turn is a series of timed calls. TRIAL_TURNS is the number of turns in which each setting of a
# library is tried, and MAX_TURNS is the largest number of turns per process.
TRIAL_TURNS, MAX_TURNS = 2, 7


def describe(names, threads):
    """Return two dicts: the descriptions of libraries, and the reasons why some are absent."""
    descriptions, absent = {}, {}
    with contextlib.ExitStack() as closing:
        for name in names:
            worker = Worker(name, threads)
            closing.callback(worker.close)
            try:
                descriptions[name] = worker.request(do="describe")
            except NotInstalledError as error:
                absent[name] = f"not installed ({error})"
            except Failed as error:
                absent[name] = str(error)
    for description in descriptions.values():
        description["settings"] = [Setting(*setting) for setting in description["settings"]]
    return descriptions, absent


def start(row, folder, candidates, checker, descriptions):
    """Prepare workers; return the workers with right answers, and the faults of the others."""
    workers, absent, recalls = [], {}, {}

    def prepare(worker):
        answer = worker.prepare(row.operation, folder)
        if descriptions[worker.library]["exact"]:
            checker(answer)
            return None
        return answer

    # All workers prepare at the same time, because imports take long and nothing is timed yet.
    with ThreadPoolExecutor(len(candidates)) as pool:
        answers = [pool.submit(prepare, worker) for worker in candidates]
    for worker, answer in zip(candidates, answers, strict=True):
        try:
            approximate = answer.result()
        except (Failed, NotInstalledError) as error:
            absent[worker.library] = str(error)
        except AssertionError as error:
            absent[worker.library] = f"wrong: {error}"
        else:
            workers.append(worker)
            if approximate is not None:
                recalls[worker.library] = approximate
    return [worker for worker in workers if worker.library not in absent], absent, recalls


def take_turn(workers):
    """Let every worker take one turn, in a random order, and return the seconds of each worker."""
    return {
        worker: worker.request(do="call")["seconds"]
        for worker in random.sample(workers, len(workers))
    }


def fastest_settings(workers):
    """Return one worker per library: the one whose setting is the fastest in a short trial."""
    by_library = {}
    for worker in workers:
        by_library.setdefault(worker.library, []).append(worker)
    alternatives = [
        worker
        for workers_of_library in by_library.values()
        if len(workers_of_library) > 1
        for worker in workers_of_library
    ]
    trial = [take_turn(alternatives) for _ in range(TRIAL_TURNS)]
    return [
        min(
            workers_of_library, key=lambda worker: statistics.median(turn[worker] for turn in trial)
        )
        if len(workers_of_library) > 1
        else workers_of_library[0]
        for workers_of_library in by_library.values()
    ]


def take_turns(workers, budget):
    """Return the seconds of each library's turns, and how many cores other programs used meanwhile.

    fastcos takes part in every turn. Every other library takes part in the first turn. It takes
    part in a further turn only if the sum of its times is likely to stay within `budget` seconds.
    """

    def used_by_others():
        total = machine.cpu_seconds()
        if total is None:
            return None
        return total - time.process_time() - sum(worker.cpu_seconds for worker in workers)

    take_turn(workers)  # an unmeasured turn fills the caches
    before, started = used_by_others(), time.perf_counter()
    seconds = {worker: [] for worker in workers}
    for _ in range(MAX_TURNS):
        active = [
            worker
            for worker, turns in seconds.items()
            if not turns or sum(turns) + turns[-1] <= budget
        ]
        if [worker.library for worker in active] in ([], [FASTCOS]) and len(workers) > 1:
            break
        active = list({*active, *(worker for worker in workers if worker.library == FASTCOS)})
        for worker, duration in take_turn(active).items():
            seconds[worker].append(duration)
    elapsed, busy = time.perf_counter() - started, None
    if before is not None:
        busy = max(0.0, (used_by_others() - before) / elapsed)
    return {worker.library: turns for worker, turns in seconds.items()}, busy


def recall_of(indices, arguments):
    """Return the share of true neighbours in the answer of a search, over up to 100 queries."""
    queries, items, k = arguments["queries"], arguments["items"], arguments["k"]
    at = check.sample_of(len(queries), 100)
    wrong = check.wrong_neighbors(indices[at].astype(np.int64), queries[at], items)
    return float(1 - wrong.sum() / (k * len(at)))


class RowMeasurement:
    """The measurement of one row; `add_process` measures one fresh process of every library.

    The speed of a shared machine changes within minutes, for all processes that run at the same
    moment. A run therefore measures all rows once, then all rows again, and so on. In this way, the
    processes of each row are measured at different times of the run.

    Parameters
    ----------
    row : Row
    descriptions : dict
        The description of each library, as describe returns it.
    budget : float
        Seconds for the calls of a library in a process; at least one call is made.
    threads : int
        Number of threads of every library.

    Attributes
    ----------
    n_processes : int
        The number of processes whose times are kept.
    """

    def __init__(self, row, descriptions, budget, threads):
        self.row, self.budget, self.threads = row, budget, threads
        self._descriptions = descriptions
        # In the first process, all settings are tried. Later processes use only the fastest setting
        # of each library.
        self._choices = [
            (name, setting)
            for name, description in descriptions.items()
            if row.operation in description["operations"]
            for setting in description["settings"]
        ]
        self._names = {name: descriptions[name]["name"] for name, _ in self._choices}
        self._absent, self._recalls, self._settings, self._processes = {}, {}, {}, []

    @property
    def n_processes(self):
        return len(self._processes)

    @property
    def has_ended(self):
        """Whether fastcos has failed; in this case, no library can be compared with fastcos."""
        return FASTCOS in self._absent or FASTCOS not in self._names

    def add_process(self):
        """Measure one fresh process of every library."""
        arguments = self.row.make()
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as closing:
            save_arguments(folder, arguments)
            workers = [Worker(name, self.threads, setting) for name, setting in self._choices]
            for worker in workers:
                closing.callback(worker.close)
            checker = self.row.checker(**arguments)
            workers, absent, approximate = start(
                self.row, folder, workers, checker, self._descriptions
            )
            self._absent |= absent
            if self.has_ended:
                return
            for name, indices in approximate.items():
                self._recalls[name] = recall_of(indices, arguments)
            workers = fastest_settings(workers)
            self._choices = [(worker.library, worker.setting) for worker in workers]
            self._settings = {worker.library: worker.setting.name for worker in workers}
            self._processes.append(take_turns(workers, self.budget))

    def discard_disturbed(self, limit):
        """Discard all processes during which other programs used more than ``limit`` cores."""
        self._processes = [
            (seconds, busy) for seconds, busy in self._processes if busy is None or busy <= limit
        ]

    def result(self):
        """Return the result of the row, as it is stored in the results file."""
        loads = [busy for _, busy in self._processes]
        libraries = {}
        for name, label in self._names.items():
            libraries[name] = library = {"name": label}
            # A library that failed in a later process is listed as absent, even if it succeeded in
            # the first process.
            if name in self._absent:
                library["absent"] = self._absent[name]
                continue
            library["seconds"] = [seconds[name] for seconds, _ in self._processes]
            if self._settings.get(name):
                library["setting"] = self._settings[name]
            if name in self._recalls:
                library["recall"] = self._recalls[name]
        busy = None if not loads or None in loads else max(loads)
        return {"title": self.row.title, "busy": busy, "libraries": libraries}
