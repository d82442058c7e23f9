"""Tables of ratios to other libraries: `python -m bench.tables RUN.json ...`.

Reads what `pytest bench --benchmark-only --benchmark-json RUN.json` wrote, and writes
bench/tables.json and bench/tables.md. A ratio is the median over turns of one run. Parts that the
runs lack keep their rows and their date. `--readme` copies a few rows into the README.
"""

import argparse
import contextlib
import inspect
import json
import platform
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from bench.worker import interpreters

ROOT = Path(__file__).parents[1]
RECORD, MARKDOWN = ROOT / "bench" / "tables.json", ROOT / "bench" / "tables.md"
OURS = "fastcos"
# part: questions of the workloads, and the title
PARTS = {
    "dense": (
        ("dense neighbours", "dense queries, one shot", "dense queries, index"),
        "Exact neighbours of dense rows",
    ),
    "products": (("sparse products",), "Products of a sparse matrix"),
    "sparse": (("sparse neighbours",), "Exact neighbours of sparse rows"),
    "svd": (("truncated SVD at equal residual",), "Truncated SVD at equal residual"),
}
LIBRARIES = (
    "fastcos", "numba", "numpy", "scipy", "scikit-learn", "faiss-cpu", "usearch", "implicit",
    "turbovec", "chunkdot", "sparse_dot_topn", "sparse_dot_mkl",
)  # fmt: skip
# the README's rows, by case: one query and a batch among wide rows, packed before or in the call;
# sparse rows, products, an SVD
README_ROWS = {
    "IndexSearch queries=1 1,000,000 x 128 k=10": "index of 1,000,000 x 128, 1 query, k = 10"
}
for d in (384, 768, 1536):
    for n, k in ((1, 10), (256, 10)):
        README_ROWS[f"IndexSearch queries={n} 100,000 x {d} k={k}"] = (
            f"index of 100,000 x {d}, {n} quer{'y' if n == 1 else 'ies'}, k = {k}"
        )
    case = f"OneShot queries=1000 100,000 x {d} cosine k=100"
    README_ROWS[case] = f"1,000 queries x 100,000 x {d}, not packed before, k = 100"
README_ROWS |= {
    "SelfJoin 40,000 x 128 k=10": "all neighbours of 40,000 x 128, k = 10",
    "ItemNeighbors decks k=10": "17,192 items by 385,215 decks, k = 10",
    "Matmul ml-32m columns=64": "X A, 32 million non-zeros, 64 columns",
    "GramMatmul ml-32m columns=64": "X'(X A), the same",
    "TruncatedSVD decks k=128 0.01": "truncated SVD of decks, k = 128",
}
BEGIN, END = "<!-- begin bench/tables.md -->\n", "<!-- end bench/tables.md -->\n"


def cpu_name():
    """Return the system's name of the CPU, and LLVM's, which distinguishes virtual CPUs."""
    try:
        (line, *_) = re.findall(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    except (OSError, ValueError):
        line = platform.processor() or platform.machine()
    from llvmlite import binding

    return f"{line} ({binding.get_host_cpu_name()})"


def versions_of(packages):
    """Return the versions of those packages that are installed here."""
    found = {}
    for name in packages:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def versions():
    """Return the versions of fastcos here, and of the competitors in their interpreters."""
    code = inspect.getsource(versions_of) + f"print(json.dumps(versions_of({LIBRARIES})))"
    code = f"import contextlib, json\nfrom importlib import metadata\n{code}"
    found = {}
    for python in interpreters():
        run = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
        found = json.loads(run.stdout) | found
    return found | versions_of(("fastcos", "numba"))


def rows_of(runs):
    """Return the rows of every part, from JSON documents of pytest-benchmark; the last one counts.

    A wrong answer has a row without a time.
    """
    found = {part: {} for part in PARTS}
    own = {
        entry["group"]: entry
        for run in runs
        for entry in run["benchmarks"]
        if entry["extra_info"]["library"] == OURS
    }
    for run in runs:
        for entry in run["benchmarks"]:
            info = entry["extra_info"]
            part, work = part_and_work(entry["group"])
            if part is None or info["library"] == OURS:
                continue
            ours = own.get(entry["group"], {"extra_info": {}})["extra_info"]
            found[part][work, info["library"]] = {
                "work": work, "competitor": f"{info['library']} {info['core_type']}".strip(),
                "ratio": info["ratio"], "ours_s": info["ours"],
                "competitor_s": entry["stats"]["median"], "correct": True,
                "target": info["target"], "peak_mib": ours.get("peak_mib"),
                "competitor_peak_mib": info["peak_mib"],
                "percent_of_limit": ours.get("percent_of_limit"),
                "limited_by": ours.get("limited_by"),
            }  # fmt: skip
        for one in run.get("wrong_answers", []):
            part, work = part_and_work(one["group"])
            if part is not None and one["group"] in own:
                found[part][work, one["library"]] = {
                    "work": work, "competitor": one["library"], "ratio": 0.0,
                    "ours_s": own[one["group"]]["stats"]["median"], "competitor_s": 0.0,
                    "correct": False, "target": None,
                }  # fmt: skip
    return {part: list(rows.values()) for part, rows in found.items() if rows}


def part_and_work(group):
    """Return the part of a group "question: case", or None, and the case."""
    question, _, work = group.partition(": ")
    part = next((part for part, (questions, _) in PARTS.items() if question in questions), None)
    return part, work


def cost(row, seconds, peak):
    """Return the time; the peak memory and the percent of the limit if they were measured."""
    taken = row[seconds]
    text = f"{taken:.3g} s" if taken >= 1 else f"{1e3 * taken:.3g} ms"
    text += f", {row[peak]:.0f} MiB" if row.get(peak) else ""
    if seconds == "ours_s" and row.get("percent_of_limit"):
        text += f", {row['percent_of_limit']:.0f}% of {row['limited_by']}"
    return text


def table(rows, *, targets=True):
    """Return Markdown lines; a wrong answer is not timed."""
    lines = ["| case | library | its time | fastcos | ratio |", "|---|---|---:|---:|---:|"]
    for row in rows:
        its = cost(row, "competitor_s", "competitor_peak_mib") if row["correct"] else "wrong answer"
        ratio = f"{row['ratio']:.2f}x" if row["correct"] else ""
        ours = cost(row, "ours_s", "peak_mib")
        lines.append(f"| {row['work']} | {row['competitor']} | {its} | {ours} | {ratio} |")
    if targets:
        aims = (f"{row['target']:g}x" if row.get("target") else "" for row in rows)
        cells = (" target |", "---:|", *(f" {aim} |" for aim in aims))
        lines = [line + cell for line, cell in zip(lines, cells, strict=True)]
    return [*lines, ""]


def best_of(rows):
    """Return the rows of the best competitor of every case, and the other rows."""
    rows = sorted(rows, key=lambda row: (row["work"], not row["correct"], row["ratio"]))
    works = [row["work"] for row in rows]
    best = [row for i, row in enumerate(rows) if row["work"] not in works[:i]]
    return best, [row for row in rows if row not in best]


def losing(record):
    """Return the rows of the competitors that are faster, the worst first."""
    rows = [row for part in record.values() for row in part["rows"]]
    lost = (row for row in rows if row["correct"] and row["ratio"] < 1)
    return sorted(lost, key=lambda row: row["ratio"])


def short_markdown(record):
    """Return the README's rows, each with its best competitor, the cases we lose, the machines."""
    best = {row["work"]: row for part in record.values() for row in best_of(part["rows"])[0]}
    rows = [best[case] | {"work": name} for case, name in README_ROWS.items() if case in best]
    rows += [row for row in losing(record) if row["work"] not in README_ROWS]
    machines = {
        f"{part['date']}, {part['cpu']}, {part['threads']} threads" for part in record.values()
    }
    return "\n".join([*table(rows, targets=False), f"{'; '.join(sorted(machines))}.", ""])


def markdown(record):
    """Return the cases we lose; of every part the best competitors, the others, the versions."""
    lost = losing(record)
    lines = [f"**Cases in which another library is faster: {len(lost)}.**", ""]
    lines += table(lost) if lost else []
    for part, (_, title) in PARTS.items():
        if part not in record:
            continue
        found = record[part]
        libraries = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
        best, others = best_of(found["rows"])
        lines += [
            f"**{title}**, the best competitor of each case; {found['date']}, {found['cpu']}, "
            f"{found['threads']} threads.", "", *table(best),
        ]  # fmt: skip
        if others:
            lines += ["<details><summary>The others</summary>", "", *table(others)]
            lines += ["</details>", ""]
        lines += [f"Versions: {libraries}.", ""]
    return "\n".join(lines)


def replace_between(path, begin, end, text):
    """Write a text between two marks of a file."""
    before, rest = path.read_text("utf8").split(begin)
    path.write_text(f"{before}{begin}{text}{end}{rest.split(end)[1]}", "utf8")


def main():
    parser = argparse.ArgumentParser(
        prog="python -m bench.tables", description=__doc__.split("\n")[0]
    )
    parser.add_argument("runs", nargs="*", type=Path, metavar="RUN.json")
    parser.add_argument("--readme", action="store_true", help="copy the tables into the README")
    given = parser.parse_args()
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    runs = [json.loads(path.read_text("utf8")) for path in given.runs]
    for part, rows in rows_of(runs).items():
        machine = runs[-1]["machine_info"]
        record[part] = {
            "date": runs[-1]["datetime"][:10], "cpu": machine["cpu_name"],
            "threads": machine["threads"], "versions": machine["versions"], "rows": rows,
        }  # fmt: skip
    if runs:
        RECORD.write_text(json.dumps(record, indent=1) + "\n")
        MARKDOWN.write_text(markdown(record), "utf8")
    if given.readme:
        replace_between(ROOT / "README.md", BEGIN, END, short_markdown(record))
    return 0


if __name__ == "__main__":
    sys.exit(main())
