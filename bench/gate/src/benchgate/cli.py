"""Is HEAD slower than BASE? ``benchgate BASE HEAD -- TESTS``, in a clone of any project.

Both commits are installed into separate environments below .benchgate/. The pytest-benchmark tests of HEAD
then run on both commits, in pairs of fresh processes that take turns at every benchmark. Words after -- are
passed to pytest: paths of tests, -k, options of the project. ``benchgate selftest -- TESTS`` compares a
commit with itself and reports false alarms and the smallest slow-down that is caught reliably.

By default, benchgate measures the CPU time of one process. CPU time does not include the time in which
the process waits for locks, input, output, sub-processes or GPUs. benchgate reports benchmarks that wait;
--wall measures wall time.

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
    options = parse(words[is_selftest:], is_selftest)
    return run_selftest(options) if is_selftest else run_comparison(options)


def parse(words, is_selftest):
    """Return the options of the comparison, or of the self-test."""
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
        add(
            "head",
            metavar="HEAD",
            help="commit, branch or tag, or WORKTREE for the files as they are",
        )
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
        help="environment variable; {folder} in VALUE stands for a separate folder of each commit",
    )
    add(
        "--threads",
        type=positive,
        default=1,
        help="number of threads of the benchmarks (default 1); several imply --wall",
    )
    add("--wall", action="store_true", help="measure wall time, which scatters more than CPU time")
    add(
        "--tolerance", type=non_negative, default=0.10, help="share by which head may be slower (default 0.1)"
    )
    add(
        "--minutes",
        type=non_negative,
        default=10.0 if is_selftest else 30.0,
        help="minutes for all pairs (default %(default)g)",
    )
    add(
        "--timeout",
        type=non_negative,
        default=TIMEOUT,
        metavar="SECONDS",
        help="seconds after which a turn counts as hanging (default %(default)g)",
    )
    add("--summary", metavar="FILE", help="also append the Markdown to this file")
    add("--json", metavar="FILE", help="also write the result to this file as JSON")
    if not is_selftest:
        add(
            "--pairs",
            type=int,
            default=MIN_PAIRS,
            help="number of pairs in the first analysis (default %(default)s)",
        )
        add(
            "--tests-from",
            choices=("head", "base"),
            default="head",
            help="commit whose tests run on both commits (default head)",
        )
        add(
            "--accept",
            action="append",
            default=[],
            metavar="PATTERN",
            help="accept that these benchmarks are slower or lost, such as '*[large]'; '*' for all",
        )
    options = parser.parse_args(words)
    if not is_selftest and options.pairs < MIN_PAIRS:
        parser.error(f"--pairs must be at least {MIN_PAIRS}, got {options.pairs}")
    options.wall = options.wall or options.threads > 1
    return options


def non_negative(text):
    """Convert the text of an option, such as --tolerance or --minutes, to a number of at least 0."""
    if not 0 <= (value := float(text)) < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number of at least 0, got {text}")
    return value


def positive(text):
    """Convert the text of --threads to a whole number of at least 1."""
    if (value := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {text}")
    return value


def variable(text):
    """Return the name and the value of NAME=VALUE."""
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"must be NAME=VALUE, got {text}")
    return name, value


def run_comparison(options):
    """Compare two commits, write the summary, and return the exit status."""
    started, is_misused = time.monotonic(), False
    try:
        verdict = compared(options)
    except UsageError as error:
        verdict, is_misused = Verdict([], options.tolerance, failure=str(error)), True
    except (subprocess.CalledProcessError, CannotServe, ValueError, OSError) as error:
        verdict = Verdict([], options.tolerance, failure=reason_of(error))
    about = about_run(options, started) | {"base": options.base, "head": options.head}
    footer = f"`{options.base}` against `{options.head}`; {in_words(about)}"
    write(options, summary.markdown(verdict, footer), summary.as_json(verdict, about))
    return 2 if is_misused else verdict.exit_status


def compared(options):
    """Return the verdict on two commits."""
    root = root_of_repository()
    checkouts = base, head = Checkout(options.base, "base", root), Checkout(options.head, "head", root)
    for checkout in checkouts:
        checkout.restore([])
    paths = test_paths(options.tests, *checkouts)
    for checkout in checkouts:
        checkout.restore(paths)
    sides = [serve(checkout, options) for checkout in checkouts]
    prune(root)
    base_listing = listed(sides[0])
    sides[0] = Side(sides[0].command, options.timeout)
    copy_tests(paths, *((head, base) if options.tests_from == "head" else (base, head)))
    unusable = {}
    for role, side in zip(("base", "head"), sides, strict=True):
        print(f"benchgate: runs every benchmark of {role} once", file=sys.stderr)
        try:
            run_turns([side], 0)  # compiles code and fills the caches of the system
        except CannotServe as error:
            unusable[role] = str(error)
    # If base can run its own tests, but head cannot run the tests of this comparison, the code of head has
    # broken these tests.
    if "head" in unusable and base_listing is not None:
        return Verdict([], options.tolerance, broken={"all tests": unusable["head"]})
    if unusable:
        raise CannotServe("; ".join(f"{role}: {reason}" for role, reason in unusable.items()))
    settings = sides[0].benchmarks | sides[1].benchmarks
    verdict = compare_pairs(
        interleaved(*sides),
        options.pairs,
        options.tolerance,
        {name: setting["tolerance"] for name, setting in settings.items() if "tolerance" in setting},
        options.accept,
        60 * options.minutes,
        Progress(),
    )
    errors_of_base, errors_of_head = (side.errors for side in sides)
    base_names, base_errors = base_listing or ([], {})
    outcome_names = {outcome.name for outcome in verdict.outcomes}
    return verdict._replace(
        outcomes=[explained(outcome, errors_of_base, errors_of_head) for outcome in verdict.outcomes],
        broken={
            file: with_benchmarks(why, file, base_names)
            for file, why in errors_of_head.items()
            if file not in base_errors
        },
        uncollected={file: why for file, why in errors_of_head.items() if file in base_errors},
        removed=[
            name
            for name in base_names
            if name not in outcome_names and name.partition("::")[0] not in errors_of_head
        ],
    )


def serve(checkout, options):
    """Install a commit and return the :class:`Side` that serves its benchmarks."""
    requirements = [word for word in options.install or ["."] if word]
    print(f"benchgate: installs {checkout.folder.name}", file=sys.stderr)
    python = checkout.install(options.python, requirements)
    environment = {"PYTHONPATH": "" if requirements else str(checkout.sources)}
    environment |= {name: value.replace("{folder}", str(checkout.folder)) for name, value in options.env}
    command = pytest_command(
        python, options.tests, environment, str(checkout.sources), options.threads, options.wall
    )
    return Side(command, options.timeout)


def listed(side):
    """Return the benchmarks and the test-file errors of a commit, or None if its process cannot start."""
    try:
        side.start()
    except CannotServe:
        return None
    side.close()
    return list(side.benchmarks), side.errors


def with_benchmarks(reason, file, names):
    """Append the names of lost benchmarks to the reason why the head commit cannot import a test file."""
    lost = [name.partition("::")[2] for name in names if name.partition("::")[0] == file]
    return f"{reason} (lost: {', '.join(lost)})" if lost else reason


def explained(outcome, errors_of_base, errors_of_head):
    """Return an outcome; if a commit cannot import the test file, the reason of the outcome says so."""
    file = outcome.name.partition("::")[0]
    errors = {LOST: ("head", errors_of_head), NEW: ("base", errors_of_base)}
    role, file_errors = errors.get(outcome.status, ("", {}))
    return (
        outcome._replace(reason=f"{role} cannot import the file: {file_errors[file]}")
        if file in file_errors
        else outcome
    )


class Progress:
    """Prints, after every pair, the measured benchmarks and the time that is left in the analysis."""

    def __init__(self):
        self.started, self.key = time.monotonic(), None

    def __call__(self, done, total, names, series):
        """Print the line of one pair."""
        now = time.monotonic()
        if self.key != (total, series):
            self.key, self.before = (total, series), (self.started, done - 1)
        seconds = (now - self.before[0]) / (done - self.before[1])
        names_text = (
            "all benchmarks"
            if not names
            else ", ".join(names[:3]) + (f" and {len(names) - 3} more" if names[3:] else "")
        )
        label = "" if series == 1 else "second series, "
        print(
            f"benchgate: {label}pair {done} of {total}, about {seconds * (total - done):.0f} s left: "
            f"{names_text}",
            file=sys.stderr,
        )
        self.started = now


def about_run(options, started):
    """Return facts about this run for the summary, such as the date, the clock and the load."""
    load = os.getloadavg()[1] if hasattr(os, "getloadavg") else None
    return {
        "benchgate": __version__,
        "date": time.strftime("%Y-%m-%d"),
        "clock": "wall time" if options.wall else "CPU time",
        "threads": options.threads,
        "minutes": round((time.monotonic() - started) / 60, 1),
        "cpus": os.cpu_count(),
        "load": load and round(load, 1),
    }


def in_words(about):
    """Return the facts about a run as one line of text."""
    load = "" if about["load"] is None else f", load {about['load']}"
    return (
        f"{about['clock']}, {summary.plural(about['threads'], 'thread')}; {about['minutes']} minutes on "
        f"{about['cpus']} CPUs{load}; benchgate {about['benchgate']}"
    )


def reason_of(error):
    """Return the text that a failed command wrote to stderr; for any other error, return its message."""
    return " ".join(str(getattr(error, "stderr", None) or error).split())


def write(options, text, result):
    """Print the Markdown, and write the Markdown and the JSON to the files that the options name."""
    print(text)
    if options.summary:
        with Path(options.summary).open("a", encoding="utf8") as file:
            file.write(text)
    if options.json:
        Path(options.json).write_text(json.dumps(result, indent=1) + "\n", encoding="utf8")


def run_selftest(options):
    """Compare a commit with itself; return 0 if the comparison was possible, and 3 if it was not."""
    started = time.monotonic()
    try:
        root = root_of_repository()
        # Both sides are the same commit, but each side gets a separate folder, as if there were two
        # commits.
        checkouts = [Checkout(options.revision, role, root) for role in ("base", "head")]
        for checkout in checkouts:
            checkout.restore([])
            checkout.restore(test_paths(options.tests, checkout))
        sides = [serve(checkout, options) for checkout in checkouts]
        prune(root)
        for side in sides:
            run_turns([side], 0)
        record, reasons = selftest.record(interleaved(*sides), 60 * options.minutes, Progress())
        report = selftest.report(record, options.tolerance, reasons)
    except UsageError as error:
        print(f"benchgate: error: {error}", file=sys.stderr)
        return 2
    except (subprocess.CalledProcessError, CannotServe, ValueError, OSError) as error:
        print(
            f"benchgate: could not compare {options.revision} with itself: {reason_of(error)}",
            file=sys.stderr,
        )
        return 3
    about = about_run(options, started) | {"revision": options.revision}
    write(options, selftest.markdown(report, in_words(about)), about | {"log_ratios": record, **report})
    return 0
