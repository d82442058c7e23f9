"""Is HEAD slower than BASE? `python -m bench.gate BASE HEAD -- TESTS` from a clone of any project.

Each commit is installed into an environment of its own under .gate/. The pytest-benchmark tests of
HEAD then run on both, in pairs of fresh processes that take turns at every benchmark. What follows
-- goes to pytest: paths of tests, -k, options of the project. The summary is Markdown on stdout
and, with --summary, in a file. Exit status: 0 passed, 1 slower, missing or nothing ran, 2 an error
before any comparison.
"""

import argparse
import shutil
import subprocess
import sys
import time
import venv
from pathlib import Path

from .compare import MIN_PAIRS, compare_pairs
from .processes import interleaved, run_interleaved, serving

NEEDED = ("pytest", "pytest-benchmark>=5")


def git(*arguments):
    done = subprocess.run(["git", *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def extract(revision, role, root):
    """Return a folder with the files of a commit, or the tracked ones of WORKTREE; it is kept."""
    if revision == "WORKTREE":
        # creates a commit if there are changes, leaves branch and index as they are
        revision = git("stash", "create") or "HEAD"
    commit = git("rev-parse", "--verify", f"{revision}^{{commit}}")
    place = root / ".gate" / f"{role}-{commit[:12]}"
    sources = place / "sources"
    if not sources.exists():
        sources.mkdir(parents=True)
        (root / ".gate" / ".gitignore").write_text("*\n")
        archive = place / "sources.tar"
        git("-C", str(root), "archive", "--output", str(archive), commit)
        subprocess.run(["tar", "-xf", str(archive), "-C", str(sources)], check=True)
    return place


def install(place, requirements):
    """Return the interpreter of an environment with these requirements; this one for none."""
    if not requirements:
        return Path(sys.executable)
    home = place / "venv"
    python = home / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    mark = home / "ready"
    if not mark.exists():
        venv.create(home, with_pip=True)
        command = [str(python), "-m", "pip", "install", "--quiet", *requirements, *NEEDED]
        subprocess.run(command, cwd=place / "sources", check=True, stdout=sys.stderr)
        mark.touch()
    return python


def copy_tests(arguments, head, base):
    """Put the tests of head in the place of those of base: both sides run the same benchmarks."""
    for word in arguments:
        name = word.partition("::")[0]
        path, target = head / "sources" / name, base / "sources" / name
        if word.startswith("-") or not path.exists():
            continue
        if path.is_dir():
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(path, target)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)


def parse(arguments):
    parser = argparse.ArgumentParser(
        prog="python -m bench.gate", description=__doc__.split("\n")[0]
    )
    add = parser.add_argument
    add("base", help="commit, branch or tag")
    add("head", help="the same, or WORKTREE for the tracked files")
    add("tests", nargs="+", metavar="-- TESTS", help="arguments of pytest")
    add(
        "--install", action="append", metavar="REQUIREMENT",
        help="what pip installs from the sources, such as '.[test]' (default '.'); '' for nothing: "
        "this interpreter, with the sources first on the path",
    )  # fmt: skip
    add("--pairs", type=int, default=MIN_PAIRS)
    add("--tolerance", type=float, default=0.10)
    # on two threads a third of the processes take 1.8 times as long: both threads on one core
    add("--threads", type=int, default=1, help="more are timed in wall time")
    add("--minutes", type=float, default=30.0, help="what is open then is undecided (default 30)")
    add("--summary", metavar="FILE", help="write the markdown here as well")
    return parser.parse_args(arguments)


def commands(given, root):
    """Return the commands that serve the benchmarks of both commits."""
    base, head = (extract(getattr(given, role), role, root) for role in ("base", "head"))
    copy_tests(given.tests, head, base)
    requirements = [word for word in given.install or ["."] if word]
    for place in (base, head):
        python, sources = install(place, requirements), str(place / "sources")
        environment = {
            "FASTCOS_CACHE_DIR": str(place / "cache"),
            "PYTHONPATH": "" if requirements else sources,
        }
        yield serving(python, given.tests, given.threads, environment, sources)


def main(arguments=None):
    given, started = parse(arguments), time.monotonic()
    try:
        sides = list(commands(given, Path(git("rev-parse", "--show-toplevel"))))
        for side in sides:  # compiles, and fills the page cache
            run_interleaved([side], 0, [])
        verdict = compare_pairs(
            interleaved(*sides), given.pairs, given.tolerance,
            progress=lambda done, total: print(f"pair {done} of {total}", file=sys.stderr),
            seconds=60 * given.minutes,
        )  # fmt: skip
    except (subprocess.CalledProcessError, ValueError, OSError) as error:
        why = getattr(error, "stderr", None) or error
        print(f"bench.gate: {' '.join(str(why).split())}", file=sys.stderr)
        return 2
    clock = "CPU time, one thread" if given.threads == 1 else f"wall time, {given.threads} threads"
    minutes = (time.monotonic() - started) / 60
    summary = (
        f"{verdict.markdown()}\n\n`{given.base}` against `{given.head}`; {clock}; "
        f"{minutes:.1f} minutes\n"
    )
    print(summary)
    if given.summary:
        Path(given.summary).write_text(summary)
    return 0 if verdict.passed else 1


if __name__ == "__main__":
    sys.exit(main())
