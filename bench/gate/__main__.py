"""Is HEAD slower than BASE? `python -m bench.gate BASE HEAD` from the root of a clone.

Each commit is installed into an environment of its own under .gate/, with a code cache of its own.
The suite of this working tree then runs on both, in pairs of fresh processes that take turns at
every benchmark. The summary is Markdown on stdout and, with --summary, in a file. Exit status:
0 passed, 1 slower or nothing ran, 2 an error before any comparison.
"""

import argparse
import re
import subprocess
import sys
import venv
from pathlib import Path

from bench.gate import MIN_PAIRS, Command, compare_speed
from bench.gate.processes import TURNS

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".gate"
# benchmarks by default: all whose calls take milliseconds
DEFAULT = r"^(?!starting|recovery|audit\.EndToEnd)"


def git(*arguments):
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def resolve(revision):
    """Return the hash of a commit, or of a commit of the tracked files for WORKTREE."""
    if revision == "WORKTREE":
        # creates a commit, leaves branch and index as they are
        return git("stash", "create") or git("rev-parse", "HEAD")
    return git("rev-parse", "--verify", f"{revision}^{{commit}}")


def build(commit, role):
    """Return interpreter and folder of an environment with this commit; it is kept for later."""
    place = FOLDER / f"{role}-{commit[:12]}"
    python = place / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    mark = place / "ready"
    if mark.exists():
        return python, place
    sources = place / "sources"
    sources.mkdir(parents=True, exist_ok=True)
    archive = place / "sources.tar"
    git("archive", "--output", str(archive), commit)
    subprocess.run(["tar", "-xf", str(archive), "-C", str(sources)], check=True)
    venv.create(place, with_pip=True, clear=False)
    install = [str(python), "-m", "pip", "install", "--quiet", "--no-warn-script-location"]
    subprocess.run([*install, str(sources), "asv_runner"], check=True, stdout=sys.stderr)
    mark.touch()
    return python, place


def suite_command(commit, role, select, threads):
    """Return the command that measures this commit."""
    python, place = build(commit, role)
    argv = [str(python), "-P", str(ROOT / "bench" / "suite.py"), "--select", select]
    environment = {
        "FASTCOS_CACHE_DIR": str(place / "cache"),
        "FASTCOS_NUM_THREADS": str(threads),
        "OPENBLAS_NUM_THREADS": str(threads),
        "PYTHONPATH": "",
    }
    return Command(argv, environment)


def main(arguments=None):
    parser = argparse.ArgumentParser(
        prog="python -m bench.gate", description=__doc__.split("\n")[0]
    )
    parser.add_argument("base", help="commit, branch or tag")
    parser.add_argument("head", help="the same, or WORKTREE for the tracked files")
    parser.add_argument("--pairs", type=int, default=MIN_PAIRS)
    parser.add_argument("--tolerance", type=float, default=0.10)
    # on two threads a third of the processes take 1.8 times as long: both threads on one core
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--select", default=DEFAULT, metavar="REGEX", help="which benchmarks")
    parser.add_argument("--summary", metavar="FILE", help="write the markdown here as well")
    given = parser.parse_args(arguments)
    try:
        re.compile(given.select)
        base, head = (
            suite_command(resolve(revision), role, given.select, given.threads)
            for role, revision in (("base", given.base), ("head", given.head))
        )
        for command in (base, head):  # compiles, and fills the page cache
            command(["--quick"])
        servers = [Command([*side.argv, "--serve"], side.environment) for side in (base, head)]
        verdict = compare_speed(
            *servers, turns=TURNS, pairs=given.pairs, tolerance=given.tolerance,
            progress=lambda done, total: print(f"pair {done} of {total}", file=sys.stderr),
        )  # fmt: skip
    except (subprocess.CalledProcessError, ValueError, re.error) as error:
        why = getattr(error, "stderr", None) or error
        print(f"bench.gate: {' '.join(str(why).split())}", file=sys.stderr)
        return 2
    summary = f"{verdict.markdown()}\n\n`{given.base}` against `{given.head}`\n"
    print(summary)
    if given.summary:
        Path(given.summary).write_text(summary)
    return 0 if verdict.passed else 1


if __name__ == "__main__":
    sys.exit(main())
