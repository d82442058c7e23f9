"""Is HEAD slower than BASE? ``benchgate BASE HEAD -- TESTS``, in a clone of any project.

Both commits are installed into environments of their own below .benchgate/. The pytest-benchmark tests
of HEAD then run on both commits, in pairs of fresh processes that take turns at every benchmark. Words
after -- go to pytest: paths of tests, -k, options of the project. ``benchgate selftest -- TESTS``
compares a commit with itself and reports false alarms and the slow-down that would have been caught.

Locks, input and output, sub-processes and GPUs are not timed by default: the clock is CPU time of one
process. Benchmarks that wait are reported, and --wall times them.

Exit status: 0 passed, 1 a benchmark is slower, lost or crashed, 2 invalid arguments, 3 something could
not be compared.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from . import __version__, selftest, summary
from .checkouts import Checkout, UsageError, copy_tests, prune, root_of_repository, test_paths
from .compare import LOST, MIN_PAIRS, NEW, Verdict, compare_pairs
from .processes import TIMEOUT, CannotServe, Side, interleaved, pytest_command, run_turns


def main(arguments=None):
    """Run the command, and return its exit status."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    is_selftest = words[:1] == ["selftest"]
    given = parse(words[is_selftest:], is_selftest)
    return run_selftest(given) if is_selftest else run_comparison(given)


def parse(words, is_selftest):
    """Return the options of one of the two commands."""
    parser = argparse.ArgumentParser(
        prog="benchgate selftest" if is_selftest else "benchgate",
        description="\n".join(__doc__.splitlines()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    if is_selftest:
        add("--revision", default="HEAD", help="commit, branch or tag (default HEAD)")
    else:
        add("base", metavar="BASE", help="commit, branch or tag")
        add("head", metavar="HEAD", help="the same, or WORKTREE for the tracked files as they are")
    add("tests", nargs="+", metavar="-- TESTS", help="arguments of pytest")
    add(
        "--install",
        action="append",
        metavar="REQUIREMENT",
        help="what pip installs from the sources of each commit, such as '.[test]' (default '.'); '' "
        "for nothing: the sources are then first on the path of --python",
    )
    add("--python", default=sys.executable, help="interpreter of the project (default: this one)")
    add(
        "--env",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        type=variable,
        help="variable for the benchmarks; {folder} in VALUE is a folder that each commit has of its own",
    )
    add(
        "--threads",
        type=positive,
        default=1,
        help="threads of the benchmarks (default 1); more imply --wall",
    )
    add("--wall", action="store_true", help="time all benchmarks in wall time, which scatters more")
    add("--tolerance", type=non_negative, default=0.10, help="how much slower head may be (default 0.1)")
    add(
        "--minutes",
        type=non_negative,
        default=10.0 if is_selftest else 30.0,
        help="time for all pairs (default %(default)g)",
    )
    add(
        "--timeout",
        type=non_negative,
        default=TIMEOUT,
        metavar="SECONDS",
        help="after which one turn hangs (default %(default)g)",
    )
    add("--summary", metavar="FILE", help="append the Markdown to this file, too")
    add("--json", metavar="FILE", help="write the result as JSON")
    if not is_selftest:
        add(
            "--pairs",
            type=int,
            default=MIN_PAIRS,
            help="pairs in the first analysis (default %(default)s)",
        )
        add(
            "--tests-from",
            choices=("head", "base"),
            default="head",
            help="the commit whose tests run on both (default head)",
        )
        add(
            "--accept",
            action="append",
            default=[],
            metavar="PATTERN",
            help="accept that these benchmarks are slower or lost, such as '*[large]'; '*' for all",
        )
    given = parser.parse_args(words)
    if not is_selftest and given.pairs < MIN_PAIRS:
        parser.error(f"--pairs must be at least {MIN_PAIRS}, got {given.pairs}")
    given.wall = given.wall or given.threads > 1
    return given


def non_negative(text):
    """Return a tolerance, or a time."""
    if not 0 <= (value := float(text)) < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number of at least 0, got {text}")
    return value


def positive(text):
    """Return a number of threads."""
    if (value := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {text}")
    return value


def variable(text):
    """Return the name and the value of NAME=VALUE."""
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"must be NAME=VALUE, got {text}")
    return name, value


def run_comparison(given):
    """Compare two commits, write the summary, and return the exit status."""
    started, is_misused = time.monotonic(), False
    try:
        verdict = compared(given)
    except UsageError as error:
        verdict, is_misused = Verdict([], given.tolerance, failure=str(error)), True
    except (subprocess.CalledProcessError, CannotServe, ValueError, OSError) as error:
        verdict = Verdict([], given.tolerance, failure=reason_of(error))
    about = about_run(given, started) | {"base": given.base, "head": given.head}
    footer = f"`{given.base}` against `{given.head}`; {in_words(about)}"
    write(given, summary.markdown(verdict, footer), summary.as_json(verdict, about))
    return 2 if is_misused else verdict.exit_status


def compared(given):
    """Return the verdict on two commits."""
    root = root_of_repository()
    places = base, head = Checkout(given.base, "base", root), Checkout(given.head, "head", root)
    for place in places:
        place.restore([])
    paths = test_paths(given.tests, *places)
    for place in places:
        place.restore(paths)
    sides = [serve(place, given) for place in places]
    prune(root)
    own = listed(sides[0])
    sides[0] = Side(sides[0].command, given.timeout)
    copy_tests(paths, *((head, base) if given.tests_from == "head" else (base, head)))
    unusable = {}
    for role, side in zip(("base", "head"), sides, strict=True):
        print(f"benchgate: runs every benchmark of {role} once", file=sys.stderr)
        try:
            run_turns([side], 0)  # compiles code and fills the caches of the system
        except CannotServe as error:
            unusable[role] = str(error)
    if "head" in unusable and own is not None:  # the tests of base run on base, so head broke them
        return Verdict([], given.tolerance, broken={"all tests": unusable["head"]})
    if unusable:
        raise CannotServe("; ".join(f"{role}: {reason}" for role, reason in unusable.items()))
    settings = sides[0].benchmarks | sides[1].benchmarks
    verdict = compare_pairs(
        interleaved(*sides),
        given.pairs,
        given.tolerance,
        {name: one["tolerance"] for name, one in settings.items() if "tolerance" in one},
        given.accept,
        60 * given.minutes,
        Progress(),
    )
    errors_of_base, errors_of_head = (side.errors for side in sides)
    own_names, own_errors = own or ([], {})
    known = {outcome.name for outcome in verdict.outcomes}
    return verdict._replace(
        outcomes=[explained(outcome, errors_of_base, errors_of_head) for outcome in verdict.outcomes],
        broken={
            file: with_benchmarks(why, file, own_names)
            for file, why in errors_of_head.items()
            if file not in own_errors
        },
        uncollected={file: why for file, why in errors_of_head.items() if file in own_errors},
        removed=[
            name for name in own_names if name not in known and name.partition("::")[0] not in errors_of_head
        ],
    )


def serve(place, given):
    """Install a commit and return the :class:`Side` that serves its benchmarks."""
    requirements = [word for word in given.install or ["."] if word]
    print(f"benchgate: installs {place.folder.name}", file=sys.stderr)
    python = place.install(given.python, requirements)
    environment = {"PYTHONPATH": "" if requirements else str(place.sources)}
    environment |= {name: value.replace("{folder}", str(place.folder)) for name, value in given.env}
    command = pytest_command(python, given.tests, environment, str(place.sources), given.threads, given.wall)
    return Side(command, given.timeout)


def listed(side):
    """Return the benchmarks of a side and the files that it cannot import; None if it cannot start."""
    try:
        side.start()
    except CannotServe:
        return None
    side.close()
    return list(side.benchmarks), side.errors


def with_benchmarks(reason, file, names):
    """Return why a file cannot be imported, and which benchmarks of base are lost with it."""
    lost = [name.partition("::")[2] for name in names if name.partition("::")[0] == file]
    return f"{reason} (lost: {', '.join(lost)})" if lost else reason


def explained(outcome, errors_of_base, errors_of_head):
    """Return an outcome with the reason why one commit does not have the benchmark."""
    file = outcome.name.partition("::")[0]
    errors = {LOST: ("head", errors_of_head), NEW: ("base", errors_of_base)}
    role, found = errors.get(outcome.status, ("", {}))
    return (
        outcome._replace(reason=f"{role} cannot import the file: {found[file]}") if file in found else outcome
    )


class Progress:
    """Prints a line after every pair: what was measured, and how long the current analysis takes."""

    def __init__(self):
        self.started, self.key = time.monotonic(), None

    def __call__(self, done, total, names, series):
        """Print the line of one pair."""
        now = time.monotonic()
        if self.key != (total, series):
            self.key, self.before = (total, series), (self.started, done - 1)
        seconds = (now - self.before[0]) / (done - self.before[1])
        what = (
            "all benchmarks"
            if not names
            else ", ".join(names[:3]) + (f" and {len(names) - 3} more" if names[3:] else "")
        )
        label = "" if series == 1 else "second series, "
        print(
            f"benchgate: {label}pair {done} of {total}, about {seconds * (total - done):.0f} s left: {what}",
            file=sys.stderr,
        )
        self.started = now


def about_run(given, started):
    """Return what the summary says about the run."""
    load = os.getloadavg()[1] if hasattr(os, "getloadavg") else None
    return {
        "benchgate": __version__,
        "date": time.strftime("%Y-%m-%d"),
        "clock": "wall time" if given.wall else "CPU time",
        "threads": given.threads,
        "minutes": round((time.monotonic() - started) / 60, 1),
        "cpus": os.cpu_count(),
        "load": load and round(load, 1),
    }


def in_words(about):
    """Return the description of a run in one line."""
    load = "" if about["load"] is None else f", load {about['load']}"
    return (
        f"{about['clock']}, {summary.plural(about['threads'], 'thread')}; {about['minutes']} minutes on "
        f"{about['cpus']} CPUs{load}; benchgate {about['benchgate']}"
    )


def reason_of(error):
    """Return the message of an error, or what the command that failed wrote."""
    return " ".join(str(getattr(error, "stderr", None) or error).split())


def write(given, text, result):
    """Print the Markdown, and write it and the JSON to files where that was asked for."""
    print(text)
    if given.summary:
        with Path(given.summary).open("a", encoding="utf8") as file:
            file.write(text)
    if given.json:
        Path(given.json).write_text(json.dumps(result, indent=1) + "\n", encoding="utf8")


def run_selftest(given):
    """Compare a commit with itself, and return 0 if that was possible, otherwise 3."""
    started = time.monotonic()
    try:
        root = root_of_repository()
        # Each side gets a folder of its own, as if there were two commits.
        places = [Checkout(given.revision, role, root) for role in ("base", "head")]
        for place in places:
            place.restore([])
            place.restore(test_paths(given.tests, place))
        sides = [serve(place, given) for place in places]
        prune(root)
        for side in sides:
            run_turns([side], 0)
        record, reasons = selftest.record(interleaved(*sides), 60 * given.minutes, Progress())
        report = selftest.report(record, given.tolerance, reasons)
    except UsageError as error:
        print(f"benchgate: error: {error}", file=sys.stderr)
        return 2
    except (subprocess.CalledProcessError, CannotServe, ValueError, OSError) as error:
        print(
            f"benchgate: could not compare {given.revision} with itself: {reason_of(error)}",
            file=sys.stderr,
        )
        return 3
    about = about_run(given, started) | {"revision": given.revision}
    write(given, selftest.markdown(report, in_words(about)), about | {"log_ratios": record, **report})
    return 0
