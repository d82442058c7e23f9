"""One turn loop over fastcos and all competitors of a case.

Every library is in fresh processes, several one after the other, since the placement of threads and
pages differs between processes. In a process every turn calls each library once, or for 20 ms in a
loop. The time of a library is the geometric mean over processes of the median of its turns; so the
ratio of two times is the mean of the processes' ratios, and has Student's interval over processes.
"""

import math
import statistics
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
from llvmlite import binding
from scipy import stats

from bench.libraries import USE_BLAS
from bench.worker import AS_INSTALLED, BURST, OURS, Missing, Setting, Worker, threads_of
from bench.workloads import WrongAnswer, prepared

CONFIDENCE = 0.95
# turns of the trial of settings, and of a process at most
TRIAL_TURNS, MOST_TURNS = 2, 6
# cores that other processes use on a machine that counts as busy: an idle system uses less
BUSY = 0.15


# kernels of OpenBLAS in words, their OPENBLAS_CORETYPE, and the feature of the CPU that they need
KERNELS = (("AVX-512 kernels", "SkylakeX", "avx512f"), ("AVX2 kernels", "Haswell", "avx2"))
# FAISS_BLAS of libraries.py: always BLAS, and by its default of 128,000 numbers
FAISS_BLAS = ("1", "")


class Measured(NamedTuple):
    """What was measured of a library: the seconds of its turns, a list per process, and facts."""

    library: str
    turns: list
    facts: dict


class Outcome(NamedTuple):
    """The measurement of a case.

    Attributes
    ----------
    measured : dict
        Library to Measured; fastcos is one of them.
    absent, wrong : dict
        Library to the reason why it has no time.
    others : float or None
        Cores that other processes of the machine used meanwhile.
    """

    measured: dict
    absent: dict
    wrong: dict
    others: float | None


def settings(library):
    """Return the settings of a library that this CPU has; those that it lacks are not tried."""
    if threads := threads_of(library):
        return [Setting("", (("FASTCOS_NUM_THREADS", str(threads)),))]
    features = binding.get_host_cpu_features()
    known = [kernel for kernel in KERNELS if features.get(kernel[2])]
    if library not in USE_BLAS or not known:
        return [AS_INSTALLED]
    return [
        Setting(words, (("OPENBLAS_CORETYPE", core), ("FASTCOS_FAISS_BLAS", threshold)))
        for words, core, _ in known
        for threshold in (FAISS_BLAS if library == "faiss" else ("",))
    ]


def busy_seconds():
    """Return the CPU seconds that all processes of this machine have used; None if not known."""
    try:
        user, nice, system, _, _, irq, soft, steal = map(
            int, Path("/proc/stat").read_text().split("\n")[0].split()[1:9]
        )
    except (OSError, ValueError):
        return None
    return (user + nice + system + irq + soft + steal) / 100


class Crew:
    """Processes that take turns; all prepare the job of a case at once, for imports take long.

    Parameters
    ----------
    workload : Workload
    words : dict
        The request of fastcos, and that of the others.
    chosen : list of (library, Setting)
    """

    def __init__(self, workload, words, chosen):
        self.state, self.members, self.failed = workload.state, {}, {}
        sent = [Worker(library, setting) for library, setting in chosen]
        for number, worker in enumerate(sent):
            request = dict(words[worker.is_ours], library=worker.library)
            worker.send(do="prepare", answer=f"{words['answers']}/{number}.npy", **request)
        for number, worker in enumerate(sent):
            try:
                peak = worker.receive()["peak_mib"]
            except (Missing, RuntimeError) as error:
                worker.close()
                if worker.is_ours:
                    raise WrongAnswer(str(error)) from None
                self.failed[worker.library] = error
            else:
                self.members[worker] = Path(words["answers"], f"{number}.npy"), peak

    def turn(self):
        """Return the seconds of the limit and of every member, in an order that is drawn."""
        members = list(self.members)
        np.random.default_rng().shuffle(members)
        found = {}
        for one in members:
            if one.library == OURS:
                found[None] = one.request(do="limit")
            rest = one.library in USE_BLAS
            found[one] = one.request(do="call", state=self.state, rest=rest)["seconds"]
        return found

    def keep(self, kept):
        """End the processes of all members but these."""
        for one in list(self.members):
            if one not in kept:
                del self.members[one]
                one.close()

    def cpu(self):
        return sum(one.cpu for one in self.members) + time.process_time()


def fastest(crew):
    """Keep the fastest setting of every library, by a trial where one has several."""
    if len(crew.members) == len({one.library for one in crew.members}):
        return
    trial, best = [crew.turn() for _ in range(TRIAL_TURNS)], {}
    for one in crew.members:
        seconds = statistics.median(turn[one] for turn in trial)
        if one.library not in best or seconds < best[one.library][0]:
            best[one.library] = seconds, one
    crew.keep({one for _, one in best.values()})


def measure(kind, case, libraries, processes, budget):
    """Return the Outcome of a case: every library in so many processes.

    Parameters
    ----------
    kind, case : type, dict
        Of a workload.
    libraries : list of str
    processes : int
    budget : float
        Seconds of calls of a library in a process.
    """
    workload, found, absent, wrong = prepared(kind, case), {}, {}, {}
    answer, others, work = workload.call(), [], workload.work()
    chosen = [(name, one) for name in libraries for one in settings(name)]
    with tempfile.TemporaryDirectory() as place:
        words = {True: {"kind": kind.__name__, "case": case}, "answers": f"{place}/answers"}
        Path(words["answers"]).mkdir()
        if set(libraries) & set(kind.competitors):
            task, arrays, parameters = workload.job()
            words[False] = {"task": task, "folder": place, "parameters": parameters}
            for name, array in arrays.items():
                np.save(Path(place, name), array)
        for _ in range(processes):
            crew = Crew(workload, words, chosen)
            try:
                _check(crew, workload, answer, found, absent, wrong)
                if not others:
                    fastest(crew)
                chosen = [(one.library, one.setting) for one in crew.members]
                others.append(_take_turns(crew, found, budget))
            finally:
                crew.keep(())
    facts = found[OURS].facts
    facts |= {"error": workload.measured_error, "count": work.units, "bytes": work.bytes}
    facts |= {"operations": 2 * work.multiply_adds}
    known = [one for one in others if one is not None]
    return Outcome(found, absent, wrong, max(known) if known else None)


def _check(crew, workload, answer, found, absent, wrong):
    """Refuse wrong answers; note what else is known of those that are right."""
    for library, error in crew.failed.items():
        (absent if isinstance(error, Missing) else wrong)[library] = str(error)
    kept = set()
    for one, (path, peak) in crew.members.items():
        facts = {"peak_mib": peak, "setting": one.setting.words}
        if not one.is_ours:
            theirs = np.load(path)
            error = float(workload.disagreement(theirs, answer))
            if not error <= 1:
                wrong[one.library] = f"{error:.3g} times the error that float32 explains"
                found.pop(one.library, None)
                continue
            facts |= workload.facts(theirs, answer)
        kept.add(one)
        found.setdefault(one.library, Measured(one.library, [], {})).facts.update(facts)
    crew.keep({one for one in kept if one.library not in wrong})


def _take_turns(crew, found, budget):
    """Take turns until the slowest call has used the budget; return the cores that others used."""
    crew.turn()
    busy, own, started = busy_seconds(), crew.cpu(), time.perf_counter()
    turns = []
    while len(turns) < MOST_TURNS:
        turns.append(crew.turn())
        calls = [seconds for one, seconds in turns[-1].items() if one]
        if len(turns) * max(*calls, BURST) >= budget:
            break
    elapsed = time.perf_counter() - started
    for one in crew.members:
        found[one.library].turns.append([turn[one] for turn in turns])
        found[one.library].facts["setting"] = one.setting.words
    ours = next(one for one in crew.members if one.library == OURS)
    shares = [100 * turn[None]["seconds"] / turn[ours] for turn in turns]
    facts = found[OURS].facts
    facts.setdefault("percents", []).append(statistics.median(shares))
    facts["limited_by"] = turns[-1][None]["bound"]
    if busy is None:
        return None
    return max(0.0, busy_seconds() - busy - (crew.cpu() - own)) / elapsed


def process_times(turns):
    """Return the median seconds of every process."""
    return [statistics.median(one) for one in turns]


def time_of(turns):
    """Return the seconds of a library: the geometric mean of its processes' medians."""
    return statistics.geometric_mean(process_times(turns))


def ratio_of(theirs, ours):
    """Return the ratio of two times with the ends of its interval over processes."""
    pairs = zip(process_times(theirs), process_times(ours), strict=True)
    logs = [math.log(their / our) for their, our in pairs]
    middle = statistics.mean(logs)
    if len(logs) < 2:
        return math.exp(middle), 0.0, math.inf
    wide = stats.t.ppf((1 + CONFIDENCE) / 2, len(logs) - 1)
    wide *= statistics.stdev(logs) / len(logs) ** 0.5
    return tuple(math.exp(middle + sign * wide) for sign in (0, -1, 1))


def verdict(low, high):
    """Return whether fastcos is faster or slower; undecided if the interval contains 1."""
    return "faster" if low > 1 else "slower" if high < 1 else "undecided"


def lines(outcome):
    """Yield a line for every library: time, throughput, and percent of limit or ratio."""
    ours = outcome.measured[OURS]
    for library, turns, facts in outcome.measured.values():
        seconds = time_of(turns)
        amounts = (ours.facts[name] for name in ("count", "bytes", "operations"))
        units, gb, gop = (amount / seconds / 1e9 for amount in amounts)
        ending = f"{statistics.median(ours.facts['percents']):4.0f}% of {ours.facts['limited_by']}"
        if library != OURS:
            ratio, low, high = ratio_of(turns, ours.turns)
            ending = f"{ratio:7.2f} [{low:.2f}, {high:.2f}] x {OURS}, {verdict(low, high)}"
            ending += f", {facts['setting']}" if facts["setting"] else ""
            ending += f", recall {facts['recall']:.3f}" if "recall" in facts else ""
        yield (
            f"{library:19}{1e3 * seconds:11.3f} ms{1e3 * units:11.2f} M units/s"
            f"{gb:8.2f} GB/s{gop:9.1f} Gop/s  {ending}"
        )
    for library, why in (outcome.absent | outcome.wrong).items():
        yield f"{library:19} {why}"
    if outcome.others is not None and outcome.others > BUSY:
        yield f"busy: others used {outcome.others:.1f} cores"
