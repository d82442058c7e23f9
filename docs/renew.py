"""Renew the published numbers and pictures, and report which of them are too old.

    python docs/renew.py                         # list them: command, time, needs, age
    python docs/renew.py figures animation       # renew these two
    python docs/renew.py --all --data DATA       # renew all of them: a night on a quiet machine
    python docs/renew.py --check                 # exit with status 1 if old numbers look current

docs/renewed.csv contains the commit at which each number or picture was last made. The age of a
number or picture says how many later commits touched the code that it describes. It is too old if
more than 200 of these commits change code; commits that only change comments and docstrings do not
count. For the comparison in README.md, the limit is 100 commits. If a number is too old, and no
suitable machine is available to renew it, its pages must say so after its date and commit: "more
than 200 commits have changed" the code. Without these words, --check fails. DATA is a folder with
the data sets, which are not part of the repository.
"""

import argparse
import ast
import contextlib
import csv
import datetime
import functools
import itertools
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
RECORD = Path(__file__).parent / "renewed.csv"
# A published number counts as too old if more than this many commits have changed the code that it
# describes. A week of work on one subject produces about this many commits.
MOST_COMMITS = 200
KERNELS = ("kernels", "fastcos/search")
MODELS = ("fastcos/models", "fastcos/similarity")


class Published(NamedTuple):
    """Published numbers or pictures, and the commands that make them."""

    shown_in: str
    # {data} is replaced by the folder of the data sets, and {scratch} by an empty folder.
    commands: tuple[str, ...]
    minutes: float  # on two cores
    code: tuple[str, ...]  # The age is the number of commits that changed these paths.
    needs: str = ""
    by_hand: str = ""  # the part of the output that a person must copy to the pages
    most_commits: int = MOST_COMMITS


PUBLISHED = {
    "speed": Published(
        "bench/results, README.md, docs/howto/benchmark.md, docs/figures/speed.png",
        ("python -m bench.compare --task all --nnz 1e8 --save", "python -m bench.compare render"),
        35, KERNELS, "a quiet machine", most_commits=100,
    ),
    "roofline": Published(
        "docs/speed.md, docs/figures/roofline.png", ("python -m bench.lab.roofline",),
        2, (*KERNELS, "fastcos/linalg"), "a quiet machine", "the CPU and rates in docs/speed.md",
    ),
    "threads": Published(
        "docs/dev/benchmarks.md, docs/speed.md, docs/figures/threads.png",
        ("python -m bench.lab.threads",),
        3, KERNELS, "a quiet machine, better with sixteen cores",
        "the table of docs/dev/benchmarks.md; then python docs/renew.py figures",
    ),
    "first_minute": Published(
        "docs/dev/benchmarks.md", ("python -m bench.lab.first_minute",),
        40, (*KERNELS, "fastcos/parallel"), "a quiet machine", "the table of the first minute",
    ),
    "estimates": Published(
        "docs/dev/costs.md", ("python -m bench.lab.explain",),
        1, KERNELS, "a quiet machine", "the table of estimates",
    ),
    "search_costs": Published(
        "docs/dev/costs.md, docs/explanation/kernels.md", ("python -m bench.lab.search_plan",),
        2, KERNELS, "a quiet machine", "the tables of both pages",
    ),
    "larger_than_memory": Published(
        "docs/dev/benchmarks.md, docs/scale.md",
        ("python -m bench.lab.large --operations search --where disk memory --memory 512",
         "python -m bench.lab.large --nnz 1e9 --rank 64"),
        60, ("fastcos/linalg", "fastcos/parallel", "fastcos/storage"), "24 GiB, 40 GB of disk",
        "the tables of both pages",
    ),
    "service": Published(
        "examples/service_benchmark.md, README.md, docs/figures/recall.png",
        ("python -m examples.service_benchmark > {scratch}/service.md",
         "cp {scratch}/service.md examples/service_benchmark.md"),
        30, (*KERNELS, "examples/retrieval_service.py"),
        "a quiet machine; fastapi, uvicorn, hnswlib, usearch, apsw",
        "the numbers of README.md; then python docs/renew.py figures",
    ),
    "gate": Published(
        "bench/gate/record, README.md, bench/gate/README.md",
        ("benchgate selftest --install .[test] --json {scratch}/record.json -- bench/gate/record",
         "python bench/gate/record/compare_tools.py {scratch}/tools.jsonl --minutes 60"),
        90, ("bench/gate/src",), "", "the record, and the tables that count it",
    ),
    "figures": Published(
        "docs/figure1.png, docs/figures: kernel, projection, threads, recall, rescalings, "
        "robustness, exponents", ("python docs/figures.py",),
        1, (*MODELS, "fastcos/auditing", "fastcos/plots", "docs/figures.py"),
    ),
    "animation": Published(
        "docs/figures/rescaling.gif", ("python docs/animation.py",),
        0.5, (*MODELS, "docs/animation.py"),
    ),
    "ten_simulations": Published(
        "README.md", ("python docs/animation.py --means",),
        4, MODELS, "", "the table of Eq. 1 and Eq. 2 in README.md",
    ),
    "screenshots": Published(
        "docs/figures/explore_light.png, docs/figures/audit_page.png",
        ("python -c \"from fastcos.cli.main import main; main(['reproduce', '--out', "
         "'{scratch}/reproduction'])\"",
         "python examples/audit_your_embeddings.py {scratch}/audits --data {data}",
         "python docs/screenshots.py explore_light={scratch}/reproduction/figure1.html "
         "audit_page={scratch}/audits/cards-eq-1.html"),
        5, ("fastcos/plots", "fastcos/auditing"), "data, chromium",
    ),
    "audit": Published(
        "docs/howto/audit.md, docs/figures/audit_robustness.png",
        ("python examples/audit_your_embeddings.py {scratch}/audits --data {data}",
         "cp {scratch}/audits/robustness.png docs/figures/audit_robustness.png",
         "cat {scratch}/audits/summary.md"),
        5, ("fastcos/auditing", *MODELS), "data", "the table of docs/howto/audit.md",
    ),
    "scale_of_dimensions": Published(
        "docs/explanation/scale_of_dimensions.md, docs/figures/scale_of_dimensions.png",
        ("python examples/scale_of_dimensions.py --data {data} --cache {scratch} "
         "--page docs/explanation/scale_of_dimensions.md "
         "--figure docs/figures/scale_of_dimensions.png --output docs/scale_of_dimensions.csv",),
        30, ("examples/scale_of_dimensions.py", "examples/factor_training.py",
             "fastcos/similarity/gradient_noise.py"), "data",
    ),
    "known_origins": Published(
        "docs/explanation/scale_of_dimensions.md",
        ("python examples/audit_known_origins.py --data {data}",),
        10, ("fastcos/auditing", "examples/audit_known_origins.py"), "data",
        "the table of verdicts",
    ),
    "remedies": Published(
        "docs/remedies.md, docs/remedies.csv",
        ("python examples/which_remedy.py --users 5000 --output {scratch}/remedies.csv "
         "--page docs/remedies.md", "cp {scratch}/remedies.csv docs/remedies.csv"),
        240, (*MODELS, "fastcos/metrics", "examples/which_remedy.py"),
    ),
    "temperature": Published(
        "docs/remedies.md, docs/temperature.csv, docs/figures/temperature.png",
        ("python examples/temperature.py --output {scratch}/temperature.csv "
         "--page docs/remedies.md --figure docs/figures/temperature.png",
         "cp {scratch}/temperature.csv docs/temperature.csv"),
        120, (*MODELS, "fastcos/metrics", "examples/temperature.py"),
    ),
    "sensitivity": Published(
        "docs/remedies.md, docs/sensitivity.csv, docs/figures/sensitivity.png",
        ("python examples/sensitivity.py --out {scratch}",
         "cp {scratch}/curves.csv docs/sensitivity.csv",
         "cp {scratch}/sensitivity.png docs/figures/sensitivity.png"),
        15, (*MODELS, "fastcos/metrics", "examples/sensitivity.py"), "",
        "the sentences that the command prints",
    ),
    "deep_models": Published(
        "docs/explanation/deep_models.md",
        ("python examples/deep_models.py --output {scratch}/deep_models.csv "
         "--page docs/explanation/deep_models.md",),
        20, ("examples/deep_models.py",), "torch",
    ),
    "retraining": Published(
        "docs/explanation/deep_models.md, docs/retraining.csv",
        ("python examples/retraining.py --data {data} --output {scratch}/retraining.csv "
         "--page docs/explanation/deep_models.md", "cp {scratch}/retraining.csv docs"),
        120, (*MODELS, "examples/retraining.py"), "data, torch, implicit",
    ),
    "eq1_against_eq2": Published(
        "docs/reproduce.md, docs/eq1_against_eq2.csv",
        ("python examples/eq1_against_eq2.py --data {data} --output {scratch}/eq.csv "
         "--page docs/reproduce.md", "cp {scratch}/eq.csv docs/eq1_against_eq2.csv"),
        10, ("fastcos/models", "examples/eq1_against_eq2.py"), "data",
    ),
    "alignment": Published(
        "docs/howto/retrain.md",
        ("python examples/stabilized_retraining.py {data}/ml-latest-small/ratings.csv.zip "
         "{data}/online-retail/online_retail_pairs.csv.gz",),
        5, ("fastcos/similarity", "examples/stabilized_retraining.py"), "data, implicit",
        "the table of docs/howto/retrain.md",
    ),
    "rounding": Published(
        "docs/dev/reliability.md", ("python -m tests.robustness.rounding_errors --repeats 10",),
        4, ("kernels", "fastcos/metrics", "fastcos/similarity"), "", "the table of ULPs",
    ),
}  # fmt: skip


class Renewal(NamedTuple):
    """A line of docs/renewed.csv: the commit, date and machine of the last renewal."""

    name: str
    commit: str
    date: str
    machine: str
    minutes: str


def state(renewal: Renewal) -> str:
    """Return the date and the commit of a renewal, in the words of the pages."""
    return f"{renewal.date}, commit {renewal.commit[:10]}"


def pages(one: Published) -> list[Path]:
    """Return the Markdown pages that show the numbers."""
    paths = (ROOT / word.rstrip(",:") for word in one.shown_in.split())
    return [path for path in paths if path.suffix == ".md"]


def git(*words: str) -> str | None:
    """Return the output of git, or None if this is not a clone or the clone lacks the commits."""
    try:
        answer = subprocess.run(
            ["git", "-C", str(ROOT), *words], capture_output=True, check=True, text=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return answer.stdout.strip()


def renewals(path: Path) -> dict[str, Renewal]:
    """Return the last renewal of each number or picture in PUBLISHED."""
    with path.open(encoding="utf8", newline="") as file:
        found = {row["name"]: Renewal(**row) for row in csv.DictReader(file)}
    return found | {"speed": found["speed"]._replace(**newest_comparison())}


def newest_comparison() -> dict[str, str]:
    """Return the commit and the date that the newest file of bench/results contains."""
    from bench.compare import render

    document = render.shown_first(render.newest(ROOT / "bench" / "results"))
    return {"commit": document["commit"], "date": document["date"]}


def commits_since(renewal: Renewal, code: tuple[str, ...]) -> list[str] | None:
    """Return the commits since a renewal that changed the code; None if git cannot list them."""
    commits = git("rev-list", f"{renewal.commit}..HEAD", "--", *code)
    return None if commits is None else commits.split()


def is_too_old(renewal: Renewal, one: Published) -> bool:
    """Return whether too many commits changed code; comments and docstrings do not count."""
    since = f"{renewal.commit}..HEAD"
    raw = ("--raw", "--no-abbrev", "--no-renames")
    history = git("log", "--format=tformat:commit", *raw, since, "--", *one.code) or ""
    # For each changed file, git prints a line ":mode mode BLOB BLOB M path", with the blobs (the
    # contents) of the file before and after the commit.
    commits = [
        [line.split() for line in commit.splitlines() if line.startswith(":")]
        for commit in history.split("commit\n")[1:]
    ]
    if len(commits) <= one.most_commits:
        return False
    text_of = contents(sorted({blob for files in commits for file in files for blob in file[2:4]}))
    changes = (
        files
        for files in commits
        if any(
            not path.endswith(".py") or not is_same_file(text_of[before], text_of[after])
            for _, _, before, after, _, path in files
        )
    )
    return sum(1 for _ in itertools.islice(changes, one.most_commits + 1)) > one.most_commits


def contents(blobs: Sequence[str]) -> dict[str, bytes | None]:
    """Return the content of each blob, or None for a blob that does not exist, such as 000...0."""
    words = ("git", "-C", str(ROOT), "cat-file", "--batch")
    answer = subprocess.run(
        words, input="\n".join(blobs).encode(), capture_output=True, check=True
    ).stdout
    text_of: dict[str, bytes | None] = {}
    start = 0
    for blob in blobs:
        head, start = answer[start : answer.index(b"\n", start)], answer.index(b"\n", start) + 1
        if head.endswith(b"missing"):
            text_of[blob] = None
        else:
            end = start + int(head.split()[2])
            text_of[blob], start = answer[start:end], end + 1
    return text_of


# Many published numbers were measured with the same code. Without the cache, one check would
# therefore compare the same two versions of a file many times. The cache makes a check several
# times as fast.
@functools.cache
def is_same_file(before: bytes | None, after: bytes | None) -> bool:
    """Return whether two versions of a Python file differ only in comments and docstrings."""
    if before is None or after is None:
        return before is after
    # Two blank lines separate definitions. Only the definitions that differ are parsed: most
    # commits change few of them, and parsing all definitions would take several times as long.
    definitions = before.split(b"\n\n\n"), after.split(b"\n\n\n")
    if len(definitions[0]) == len(definitions[1]):
        changed = [pair for pair in zip(*definitions, strict=True) if pair[0] != pair[1]]
        # If a string in the file contains two blank lines, the string is cut in two. The two pieces
        # are not valid Python, so the whole files are compared below.
        with contextlib.suppress(SyntaxError):
            return all(is_same_code(ast.parse(one), ast.parse(other)) for one, other in changed)
    return is_same_code(ast.parse(before), ast.parse(after))


def is_same_code(one: object, other: object) -> bool:
    """Return whether two parts of syntax trees are equal except for their docstrings."""
    if isinstance(one, ast.AST):
        return type(one) is type(other) and all(
            is_same_code(getattr(one, field, None), getattr(other, field, None))
            for field in one._fields
        )
    if isinstance(one, list) and isinstance(other, list):
        lists = [[part for part in parts if not is_docstring(part)] for parts in (one, other)]
        return len(lists[0]) == len(lists[1]) and all(map(is_same_code, *lists))
    return type(one) is type(other) and one == other


def is_docstring(part: object) -> bool:
    """Return whether a statement consists of a constant only, like a docstring."""
    return isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant)


def show(path: Path) -> None:
    """Print the list of published numbers, with their pages, commands, time and age."""
    known = renewals(path)
    for name, one in PUBLISHED.items():
        last = known[name]
        commits = commits_since(last, one.code)
        old = "of unknown age" if commits is None else f"{len(commits)} commits to its code ago"
        print(f"{name}: {one.shown_in}")
        for command in one.commands:
            print(f"    {command}")
        needs = f"; needs {one.needs}" if one.needs else ""
        hand = f"; by hand: {one.by_hand}" if one.by_hand else ""
        print(f"    {one.minutes:g} minutes{needs}{hand}")
        print(f"    made at {last.commit[:10]}, {last.date}, {old}")


def check(path: Path) -> int:
    """Print the names of numbers that are too old; return 1 if there are any, else 0."""
    known = renewals(path)
    if any(commits_since(known[name], one.code) is None for name, one in PUBLISHED.items()):
        print("the age of the numbers is unknown: this clone lacks commits (git fetch --unshallow)")
    status = 0
    for name, one in PUBLISHED.items():
        if not is_too_old(known[name], one):
            continue
        if all(says_that_it_is_old(page, known[name], one) for page in pages(one)):
            print(f"{one.shown_in}: old, and the pages say so")
            continue
        status = 1
        print(
            f"{one.shown_in}: more than {one.most_commits} commits changed {', '.join(one.code)} "
            f"since these numbers were made; run python docs/renew.py {name}"
        )
    return status


def says_that_it_is_old(page: Path, renewal: Renewal, one: Published) -> bool:
    """Return whether a page says, soon after the date of its numbers, that they are too old."""
    _, _, after = " ".join(page.read_text("utf8").split()).partition(state(renewal))
    return f"more than {one.most_commits} commits have changed" in after[:300]


def renew(name: str, data: Path | None, path: Path) -> None:
    """Renew the numbers of this name, and record the commit, the date and the machine."""
    from bench import machine

    one = PUBLISHED[name]
    if git("status", "--porcelain", "--untracked-files=no", "--", *one.code):
        raise SystemExit(f"{name}: commit the changes of {', '.join(one.code)} first, so that the "
                         "record can name the commit that was measured")  # fmt: skip
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        for command in one.commands:
            words = command.format(data=data, scratch=scratch)
            print(f"$ {words}", flush=True)
            line = words.replace("python ", f"{shlex.quote(sys.executable)} ", 1)
            if subprocess.run(line, shell=True, cwd=ROOT).returncode:
                raise SystemExit(f"{name}: the command above failed; the record is unchanged")
    minutes = (time.monotonic() - started) / 60
    known = renewals(path)
    last = known[name]
    known[name] = Renewal(
        name, git("rev-parse", "HEAD") or "", f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}",
        machine.description(), f"{minutes:.1f}",
    )  # fmt: skip
    with path.open("w", encoding="utf8", newline="") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(Renewal._fields)
        lines.writerows(known[name] for name in PUBLISHED)
    for page in pages(one):
        text = page.read_text("utf8")
        page.write_text(text.replace(state(last), state(known[name])), "utf8")
    print(f"{name} was renewed in {minutes:.1f} minutes: {one.shown_in}")
    if one.by_hand:
        print(f"{name}: copy from the output by hand: {one.by_hand}")


def main(words: list[str] | None = None) -> int:
    """List the published numbers, renew them, or check their age."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", nargs="*", help="what to renew (default: print the list)")
    parser.add_argument("--all", action="store_true", help="renew everything, in the order listed")
    parser.add_argument("--data", type=Path, help="the folder of the data sets")
    parser.add_argument("--check", action="store_true", help="exit 1 if old numbers look current")
    parser.add_argument("--list", action="store_true", help="the default")
    parser.add_argument("--record", type=Path, default=RECORD, help="default: docs/renewed.csv")
    given = parser.parse_args(words)
    if given.check:
        return check(given.record)
    names = list(PUBLISHED) if given.all else given.name
    for name in names:
        if name not in PUBLISHED:
            parser.error(f"name must be one of {', '.join(PUBLISHED)}, got {name}")
        if "{data}" in " ".join(PUBLISHED[name].commands) and given.data is None:
            parser.error(f"{name} needs --data, the folder of the data sets")
    for name in names:
        renew(name, given.data, given.record)
    if not names:
        show(given.record)
    return 0


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main())
