"""One turn loop over fastcos and all competitors of a case.

Every library is in fresh processes, several one after the other, since the placement of threads and
pages differs between processes. In a process every turn calls each library once, or for 20 ms in a
loop. The time of a library is the geometric mean over processes of the median of its turns; so the
ratio of two times is the mean of the processes' ratios, and has Student's interval over processes.
"""

import contextlib
import math
import os
import random
import statistics
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
from llvmlite import binding
from scipy import stats

from bench.libraries import USE_BLAS
from bench.worker import BURST, OURS, Worker, threads_of
from bench.workloads import WrongAnswer, prepared

CONFIDENCE = 0.95
# turns of the trial of settings, and of a process at most
TRIAL_TURNS, MOST_TURNS = 2, 5
# cores that other processes use on a machine that counts as busy: an idle system uses less
BUSY = 0.15
# kernels of OpenBLAS in words, their OPENBLAS_CORETYPE, and the feature of the CPU that they need
KERNELS = (("AVX-512 kernels", "SkylakeX", "avx512f"), ("AVX2 kernels", "Haswell", "avx2"))


class Outcome(NamedTuple):
    """The measurement of a case.

    Attributes
    ----------
    measured : dict
        Library to facts, of which turns are the seconds, a list per process; fastcos is one.
    absent : dict
        Library to the reason why it has no time.
    others : float or None
        Cores that other processes of the machine used meanwhile.
    """

    measured: dict
    absent: dict
    others: float | None


def settings(library):
    """Return a library's settings that this CPU has, in words and as variables of its process."""
    if threads := threads_of(library):
        return [("", {"FASTCOS_NUM_THREADS": str(threads)})]
    features = binding.get_host_cpu_features()
    found = [
        (words, {"OPENBLAS_CORETYPE": core})
        for words, core, feature in KERNELS
        if library in USE_BLAS and features.get(feature)
    ]
    if library == "faiss":  # always by BLAS, and by its default, from 128,000 numbers
        found = [
            (words, known | more)
            for words, known in found
            for more in ({"FASTCOS_FAISS_BLAS": "1"}, {})
        ]
    return found or [("", {})]


def busy_seconds():
    """Return the CPU seconds that all processes of this machine have used; NaN if not known."""
    try:
        spent = [int(word) for word in Path("/proc/stat").read_text().split()[1:9]]
    except OSError:
        return math.nan
    return (sum(spent) - spent[3] - spent[4]) / 100  # without idle, and waiting for disks


def checked_facts(worker, jobs, workload, answer):
    """Prepare the job of a case; return facts about the answer, or raise for one that is wrong."""
    with tempfile.TemporaryDirectory() as place:
        file = Path(place, "answer.npy")
        facts = {"peak_mib": worker.prepare(answer=str(file), **jobs[worker.is_ours])["peak_mib"]}
        if worker.is_ours:
            return facts
        theirs = np.load(file)
    error = float(workload.disagreement(theirs, answer))
    if not error <= 1:
        raise RuntimeError(f"{error:.3g} times the error that float32 explains")
    return facts | workload.facts(theirs, answer)


def take_turn(crew, state):
    """Return the seconds of every worker, in an order that is drawn, and the limit by None."""
    found = {}
    for one in random.sample(crew, len(crew)):
        if one.library == OURS:
            found[None] = one.request(do="limit")
        found[one] = one.request(do="call", state=state)["seconds"]
    return found


def fastest(crew, state):
    """Return the worker with the fastest setting of every library, by a trial of what differs."""
    of_library = Counter(one.library for one in crew)
    tried = [one for one in crew if of_library[one.library] > 1]
    trial = [take_turn(tried, state) for _ in range(TRIAL_TURNS)]
    tried.sort(key=lambda one: -statistics.median(turn[one] for turn in trial))
    return list({one.library: one for one in [*crew, *tried]}.values())


def take_turns(crew, state, measured, budget):
    """Take turns until the slowest call has used the budget; return the cores that others used."""

    def used_by_others():
        return busy_seconds() - sum(one.cpu for one in crew) - time.process_time()

    take_turn(crew, state)
    used, started, turns, spent = used_by_others(), time.perf_counter(), [], 0.0
    while not turns or (len(turns) < MOST_TURNS and len(turns) * spent < budget):
        turns.append(take_turn(crew, state))
        spent = max(BURST, *(turns[-1][one] for one in crew))
    others = (used_by_others() - used) / (time.perf_counter() - started)
    for one in crew:
        facts = measured[one.library]
        facts["turns"].append([turn[one] for turn in turns])
        facts["setting"] = one.setting
        if one.library == OURS:
            shares = [100 * turn[None]["seconds"] / turn[one] for turn in turns]
            facts.setdefault("percents", []).append(statistics.median(shares))
            facts["limited_by"] = turns[-1][None]["bound"]
    return others


def measure(kind, case, libraries, processes, budget):
    """Return the Outcome of a case: every library in so many processes.

    Parameters
    ----------
    kind, case : Workload, dict
    libraries : list of str
    processes : int
    budget : float
        Seconds of calls of a library in a process.
    """
    workload, measured, absent, others = prepared(kind, case), {}, {}, []
    answer, work, jobs = workload.call(), workload.work, {}
    os.environ.pop("OPENBLAS_CORETYPE", None)  # which the settings have
    chosen = [(name, *one) for name in libraries for one in settings(name)]
    with tempfile.TemporaryDirectory() as place:
        jobs[True] = {"kind": kind.name, "case": case}
        if set(libraries) & set(kind.competitors):
            task, arrays, parameters = workload.job()
            jobs[False] = {"task": task, "folder": place, "parameters": parameters}
            for name, array in arrays.items():
                np.save(Path(place, name), array)
        for _ in range(processes):
            with contextlib.ExitStack() as ending, ThreadPoolExecutor(len(chosen)) as pool:
                workers = [Worker(*one) for one in chosen]
                for one in workers:
                    ending.callback(one.close)
                # all at once, for imports take long
                facts = [pool.submit(checked_facts, w, jobs, workload, answer) for w in workers]
                for one, found in zip(workers, facts, strict=True):
                    try:
                        measured.setdefault(one.library, {"turns": []}).update(found.result())
                    except (ImportError, RuntimeError) as error:
                        if one.is_ours:
                            raise WrongAnswer(str(error)) from None
                        absent[one.library] = str(error)
                crew = [one for one in workers if one.library not in absent]
                crew = crew if others else fastest(crew, kind.state)
                chosen = [(one.library, one.setting, one.variables) for one in crew]
                others.append(take_turns(crew, kind.state, measured, budget))
    measured[OURS] |= {
        "count": work.units, "bytes": work.bytes, "operations": 2 * work.multiply_adds
    }  # fmt: skip
    measured = {name: facts for name, facts in measured.items() if name not in absent}
    return Outcome(measured, absent, None if math.isnan(sum(others)) else max(0.0, *others))


def ratio_of(theirs, ours):
    """Return the ratio of two times with the ends of its interval over processes."""
    logs = np.log(theirs) - np.log(ours)
    middle, wide = logs.mean(), np.inf
    if len(logs) > 1:
        wide = stats.t.ppf((1 + CONFIDENCE) / 2, len(logs) - 1) * stats.sem(logs)
    return np.exp([middle, middle - wide, middle + wide]).tolist()


def results_of(measured):
    """Yield what is published of every library: its time, and its ratio to that of fastcos."""
    medians = {
        name: [statistics.median(turns) for turns in facts["turns"]]
        for name, facts in measured.items()
    }
    for name, facts in measured.items():
        ratio, low, high = ratio_of(medians[name], medians[OURS])
        kept = {one: facts[one] for one in ("setting", "peak_mib", "recall") if one in facts}
        yield {
            "library": name, "seconds": statistics.geometric_mean(medians[name]),
            "least": min(medians[name]), "most": max(medians[name]), **kept,
            "ratio": ratio, "low": low, "high": high,
        }  # fmt: skip


def verdict(low, high):
    """Return whether fastcos is faster or slower; undecided if the interval contains 1."""
    return "faster" if low > 1 else "slower" if high < 1 else "undecided"


def lines(outcome):
    """Yield a line for every library: time, throughput, and percent of limit or ratio."""
    ours = outcome.measured[OURS]
    for one in results_of(outcome.measured):
        seconds = one["seconds"]
        units, gb, gop = (ours[name] / seconds / 1e9 for name in ("count", "bytes", "operations"))
        ending = f"{statistics.median(ours['percents']):4.0f}% of {ours['limited_by']}"
        if one["library"] != OURS:
            low, high = one["low"], one["high"]
            ending = f"{one['ratio']:7.2f} [{low:.2f}, {high:.2f}] x {OURS}, {verdict(low, high)}"
            ending += f", {one['setting']}" if one["setting"] else ""
            ending += f", recall {one['recall']:.3f}" if "recall" in one else ""
        yield (
            f"{one['library']:19}{1e3 * seconds:11.3f} ms{1e3 * units:11.2f} M units/s"
            f"{gb:8.2f} GB/s{gop:9.1f} Gop/s  {ending}"
        )
    for library, why in outcome.absent.items():
        yield f"{library:19} {why}"
    if outcome.others is not None and outcome.others > BUSY:
        yield f"busy: others used {outcome.others:.1f} cores"
