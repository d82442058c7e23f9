"""Is HEAD slower than BASE? `python -m bench.gate BASE HEAD` from the root of a clone.

Both commits are installed into environments of their own under .gate/, with compiled code of their
own; the suite of this working tree is run on them in pairs of fresh processes that take turns at
every benchmark (bench.gate). The summary is markdown, on stdout and with --summary also in a
file. Exit status: 0 passed, 1 slower or nothing ran, 2 it could not be tried.
"""

import argparse
import re
import subprocess
import sys
import venv
from pathlib import Path

from bench.gate import LEAST_PAIRS, Command, compare_speed
from bench.gate.processes import TURNS

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".gate"
# what the gate looks at unless told otherwise: everything that takes milliseconds
DEFAULT = r"^(?!starting|recovery|audit\.Whole)"


def git(*arguments):
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def resolved(revision):
    """The hash of a commit, or of the tracked files as they stand for WORKTREE."""
    if revision == "WORKTREE":
        # a commit of what is there; touches neither the branch nor the index
        return git("stash", "create") or git("rev-parse", "HEAD")
    return git("rev-parse", "--verify", f"{revision}^{{commit}}")


def built(commit, role):
    """The interpreter of an environment that holds this commit; kept for the next time."""
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


def side(commit, role, select, threads):
    """The command that measures this commit."""
    python, place = built(commit, role)
    words = [str(python), "-P", str(ROOT / "bench" / "suite.py"), "--select", select]
    environment = {
        "FASTCOS_CACHE_DIR": str(place / "cache"),
        "FASTCOS_NUM_THREADS": str(threads),
        "OPENBLAS_NUM_THREADS": str(threads),
        "PYTHONPATH": "",
    }
    return Command(words, environment)


def main(arguments=None):
    parser = argparse.ArgumentParser(
        prog="python -m bench.gate", description=__doc__.split("\n")[0]
    )
    parser.add_argument("base", help="commit, branch or tag")
    parser.add_argument("head", help="the same, or WORKTREE for the tracked files as they stand")
    parser.add_argument("--pairs", type=int, default=LEAST_PAIRS)
    parser.add_argument("--tolerance", type=float, default=0.10)
    # two threads may share a core for the life of a process: 1.8 times the time, in a third of them
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--select", default=DEFAULT, metavar="REGEX", help="which benchmarks")
    parser.add_argument("--summary", metavar="FILE", help="write the markdown here as well")
    given = parser.parse_args(arguments)
    try:
        re.compile(given.select)
        base, head = (
            side(resolved(revision), role, given.select, given.threads)
            for role, revision in (("base", given.base), ("head", given.head))
        )
        for command in (base, head):  # compiles, and fills the caches of the disk
            command(["--quick"])
        serving = [Command([*side.words, "--serve"], side.environment) for side in (base, head)]
        verdict = compare_speed(
            *serving, turns=TURNS, pairs=given.pairs, tolerance=given.tolerance,
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
