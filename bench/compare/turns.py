"""The measurement of one row: interleaved turns of all libraries, over several fresh processes."""

import contextlib
import random
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from bench import check, machine
from bench.compare.settings import Setting
from bench.compare.worker import Failed, NotInstalledError, Worker, save_arguments

FASTCOS = "fastcos"
# The number of turns in which a library's settings are tried, and the largest number of turns of a
# process.
TRIAL_TURNS, MAX_TURNS = 2, 7


def describe(names, threads):
    """Return the descriptions of the libraries by name, and the reasons why others are absent."""
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

    # All workers prepare at once, because importing takes long and nothing is timed yet.
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
    """Return the seconds of one turn of every worker, in a random order."""
    return {
        worker: worker.request(do="call")["seconds"]
        for worker in random.sample(workers, len(workers))
    }


def fastest_settings(workers):
    """Return the worker of every library whose setting is fastest in a short trial."""
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
    """Return the seconds of the turns by library, and the cores that other programs used meanwhile.

    fastcos takes part in every turn. Another library stops when its calls have used the budget.
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


def measure(row, descriptions, processes, budget, threads):
    """Return the result of a row in the form of the results file.

    Parameters
    ----------
    row : Row
    descriptions : dict
        The description of each library, as describe returns it.
    processes : int
        Number of fresh processes of every library, which run one after the other.
    budget : float
        Seconds for the calls of a library in a process; at least one call is made.
    threads : int
        Number of threads of every library.
    """
    arguments = row.make()
    checker = row.checker(**arguments)
    choices = [
        (name, setting)
        for name, description in descriptions.items()
        if row.operation in description["operations"]
        for setting in description["settings"]
    ]
    labels, loads = {name: {"name": descriptions[name]["name"]} for name, _ in choices}, []
    results = {name: label | {"seconds": []} for name, label in labels.items()}
    with tempfile.TemporaryDirectory() as folder:
        save_arguments(folder, arguments)
        for _ in range(processes):
            with contextlib.ExitStack() as closing:
                workers = [Worker(name, threads, setting) for name, setting in choices]
                for worker in workers:
                    closing.callback(worker.close)
                workers, absent, approximate = start(row, folder, workers, checker, descriptions)
                for name, reason in absent.items():
                    results[name] = labels[name] | {"absent": reason}
                if FASTCOS in absent or FASTCOS not in results:
                    break  # nothing can be compared; the results contain the reason
                for name, indices in approximate.items():
                    results[name]["recall"] = recall_of(indices, arguments)
                workers = fastest_settings(workers)
                choices = [(worker.library, worker.setting) for worker in workers]
                seconds, busy = take_turns(workers, budget)
                loads.append(busy)
                for worker in workers:
                    results[worker.library]["seconds"].append(seconds[worker.library])
                    if worker.setting.name:
                        results[worker.library]["setting"] = worker.setting.name
                for file in Path(folder).glob("*.answer.npy"):
                    file.unlink()
    # If a library failed in a later process, it has no time at all.
    busy = None if not loads or None in loads else max(loads)
    return {"title": row.title, "busy": busy, "libraries": results}
