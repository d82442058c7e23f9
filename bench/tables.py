"""Tables of fastcos and its competitors: `python -m bench.tables RUN.json ... [--out DIR]`.

Reads what `pytest bench --benchmark-only --benchmark-json RUN.json` wrote, and prints Markdown.
`--out DIR` writes tables.json and tables.md there: a case that the runs have replaces the same case
of the same CPU, all others stay. `--readme` writes the README's rows and figure from
bench/tables.json. Nothing else is written.
"""

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

from bench.markdown import replace_between, table, text_of, versions_of
from bench.turns import BUSY, results_of, verdict
from bench.worker import OURS, interpreters, threads_of

ROOT = Path(__file__).parents[1]
RECORD, MARKDOWN = ROOT / "bench" / "tables.json", ROOT / "bench" / "tables.md"
FIGURE = ROOT / "docs" / "figures" / "speed.png"
# question of the workloads: title
PARTS = {
    "dense queries, index": "Queries of a fitted index",
    "dense queries, one shot": "Queries among rows that are packed in the call",
    "dense neighbours": "Neighbours of all dense rows",
    "sparse neighbours": "Neighbours of all sparse rows",
    "sparse products": "Products of a sparse matrix",
    "truncated SVD at equal residual": "Truncated SVD at equal residual",
    "dense queries, approximate scans": "Exact search beside approximate scans",
}
# the README has of each of these the cases with the least and the most work
README_PARTS = tuple(PARTS)[:6]
# the question of rows that compare fastcos with itself on fewer threads, as --cases roofline does
KERNELS = "kernels"
LIBRARIES = (
    "fastcos", "numba", "numpy", "scipy", "scikit-learn", "faiss-cpu", "usearch", "implicit",
    "numkong", "turbovec", "chunkdot", "sparse_dot_topn", "sparse_dot_mkl", "primme",
)  # fmt: skip
# packages whose names differ from those of the competitors
PACKAGES = {
    "faiss": "faiss-cpu", "sklearn": "scikit-learn", "arpack": "scipy", "mkl": "sparse_dot_mkl",
}  # fmt: skip
BEGIN, END = "<!-- begin bench/tables.md -->\n", "<!-- end bench/tables.md -->\n"


def versions():
    """Return the versions of fastcos here, and of the competitors in their interpreters."""
    found = {}
    for python in interpreters():
        command = [python, ROOT / "bench" / "markdown.py", *LIBRARIES]
        run = subprocess.run(command, capture_output=True, text=True, check=True)
        found = json.loads(run.stdout) | found
    return found | versions_of(("fastcos", "numba"))


def rows_of(run):
    """Return the rows of a JSON document of pytest-benchmark, one a case.

    A case without a competitor has no row, so that it replaces none.
    """
    found = {}
    for entry in run["benchmarks"]:
        if "turns" in (info := entry["extra_info"]):
            found.setdefault(entry["group"], {})[info["library"]] = info
    rows = []
    for group, libraries in found.items():
        question, _, work = group.partition(": ")
        ours = libraries.pop(OURS, None)
        if ours is None:
            raise SystemExit(f"bench.tables: {work} has no times of fastcos; select its test, too")
        fewer = {name: info for name, info in libraries.items() if threads_of(name)}
        others = {name: info for name, info in libraries.items() if name not in fewer}
        if fewer:
            rows.append(row_of(run, KERNELS, f"{work}, kernel", ours, fewer))
        if question in PARTS and (others or ours["absent"]):
            rows.append(row_of(run, question, work, ours, others))
    return rows


def row_of(run, question, work, ours, others):
    machine = run["machine_info"]
    own, *competitors = results_of({OURS: ours} | others)
    kept = ("case", "state", "operations", "bytes", "others", "limited_by", "absent")
    return {name: ours[name] for name in kept} | {
        "id": work, "question": question, "date": run["datetime"][:10],
        "cpu": machine["cpu_name"], "threads": machine["threads"], "versions": machine["versions"],
        "processes": len(ours["turns"]), "percent_of_limit": statistics.median(ours["percents"]),
        OURS: own, "competitors": sorted(competitors, key=lambda one: one["seconds"]),
    }  # fmt: skip


def merged(rows, new):
    """Return the rows with the new ones in the place of the same case of the same CPU."""
    known = {(row["cpu"], row["id"]): row for row in (*rows, *new)}
    return list(known.values())


def time_text(one):
    """Return a time with its least and most of the processes."""
    scale, unit = (1, "s") if one["seconds"] >= 1 else (1e3, "ms")
    if one["seconds"] < 1e-4:
        scale, unit = 1e6, "us"
    middle, least, most = (text_of(scale * one[name]) for name in ("seconds", "least", "most"))
    return f"{middle} {unit} ({least} to {most})"


def name_of(one, versions):
    """Return a library with its version and setting: faiss 1.15.1, AVX-512 kernels."""
    word = one["library"].split()[0]
    # fastcos on fewer threads has the version of the row
    version = "" if threads_of(one["library"]) else versions.get(PACKAGES.get(word, word), "")
    parts = [f"{one['library']} {version}".strip(), one.get("setting")]
    parts += [f"recall {one['recall']:.3f}"] if "recall" in one else []
    return ", ".join(filter(None, parts))


def best_of(row):
    """Return the fastest competitor whose answer is exact, or None."""
    return next((one for one in row["competitors"] if "recall" not in one), None)


COMPARED = "library", "its time", "ratio", "interval", "fastcos is"
BESIDE = "case", "fastcos (processes), percent of limit", *COMPARED
SCALING = "case", "all threads, percent of limit", *COMPARED[:4], "efficiency"


def cells_of(row, one):
    """Return the cells of a case and one competitor, which may be missing, by column."""
    ours = f"{time_text(row[OURS])}, {row['percent_of_limit']:.0f}% of {row['limited_by']}"
    case = row["case"] + " (busy machine)" * ((row["others"] or 0) > BUSY)
    cells = {"case": case} | dict.fromkeys((BESIDE[1], SCALING[1]), ours)
    if one is None:
        return cells | {"library": "; ".join(row["absent"].values()) or "none was measured"}
    threads = threads_of(one["library"])
    return cells | {
        "library": name_of(one, row["versions"]), "its time": time_text(one),
        "ratio": f"{one['ratio']:.2f}", "interval": f"{one['low']:.2f} to {one['high']:.2f}",
        "fastcos is": verdict(one["low"], one["high"]),
        # the ratio a thread, of fastcos to itself on fewer
        "efficiency": threads and f"{one['ratio'] * threads / row['threads']:.0%}",
    }  # fmt: skip


def lines_of(columns, pairs):
    """Return the lines of a table of rows and one competitor each."""
    alignment = ["l" if name in ("case", "library", "fastcos is") else "r" for name in columns]
    found = (cells_of(*pair) for pair in pairs)
    rows = ([cells.get(name) for name in columns] for cells in found)
    return [*table(alignment, columns, rows), ""]


def machines(rows):
    """Return a line for every machine of the rows, with the least and the most of the rest."""
    known = {}
    for row in rows:
        known.setdefault(f"{row['cpu']}, {row['threads']} threads", []).append(row)
    lines = []
    for machine, some in sorted(known.items()):
        dates, processes = (
            " to ".join(dict.fromkeys(str(end(row[name] for row in some)) for end in (min, max)))
            for name in ("date", "processes")
        )
        lines.append(f"{dates}, {machine}, {processes} processes of each library.")
    return " ".join(lines)


def readme_rows(rows):
    """Return of every operation the cases with the least and the most work."""
    chosen = []
    for question in README_PARTS:
        some = sorted(
            (row for row in rows if row["question"] == question and row["state"] == "warm"),
            key=lambda row: row["operations"],
        )
        chosen += [some[0], *some[1:][-1:]] if some else []
    return chosen


def short_markdown(rows):
    """Return the README's rows, each with its fastest exact competitor."""
    chosen = readme_rows(rows)
    lines = lines_of(BESIDE, ((row, best_of(row)) for row in chosen))
    return "\n".join([*lines, f"{summary(rows)} {machines(chosen)}", ""])


def not_won(rows):
    """Return the pairs of a row and an exact competitor that fastcos does not beat clearly."""
    found = [
        (row, one)
        for row in rows
        for one in row["competitors"]
        if "recall" not in one and one["low"] < 1 and row["question"] != KERNELS
    ]
    return sorted(found, key=lambda pair: pair[1]["ratio"])


def summary(rows):
    """Return a sentence: in how many of all cases another library is, or may be, faster."""
    found = not_won(rows)
    slower = {row["id"] for row, one in found if one["high"] < 1}
    open_ones = {row["id"] for row, _ in found} - slower
    n = sum(row["question"] != KERNELS for row in rows)
    return f"Of {n} cases fastcos is slower in {len(slower)}, and {len(open_ones)} are undecided."


def markdown(rows):
    """Return the cases in which another library is faster, all cases by question, and threads."""
    lost = not_won(rows)
    lines = [f"**{summary(rows)}**", "", *(lines_of(BESIDE, lost) if lost else [])]
    for question, title in PARTS.items():
        some = [row for row in rows if row["question"] == question]
        if not some:
            continue
        shown = [(row, best_of(row) or next(iter(row["competitors"]), None)) for row in some]
        lines += [f"**{title}**", "", *lines_of(BESIDE, shown)]
        others = [
            (row, one) for row, best in shown for one in row["competitors"] if one is not best
        ]
        if others:
            lines += ["<details><summary>The other competitors</summary>", ""]
            lines += [*lines_of(("case", *COMPARED), others), "</details>", ""]
        lines += missing(some)
    if some := [row for row in rows if row["question"] == KERNELS]:
        pairs = ((row, one) for row in some for one in row["competitors"])
        lines += ["**Kernels, on one thread and on all**", "", *lines_of(SCALING, pairs)]
    return "\n".join([*lines, machines(rows), "", versions_line(rows), ""])


def missing(rows):
    """Return a list of the libraries that have no time, with the reason and the cases."""
    found = {}
    for row in rows:
        for library, why in row["absent"].items():
            found.setdefault(f"{library}: {why}", []).append(row["case"])
    lines = [
        f"- {why}. {len(cases)} case{'s' * (len(cases) > 1)}, such as {cases[0]}"
        for why, cases in found.items()
    ]
    return [*lines, ""] if lines else []


def versions_line(rows):
    """Return the versions of what was measured, and of what fastcos needs."""
    libraries = {one["library"].split()[0] for row in rows for one in row["competitors"]}
    used = {PACKAGES.get(name, name) for name in libraries} | set(LIBRARIES[:5])
    known = sorted(
        {f"{name} {row['versions'][name]}" for row in rows for name in used & set(row["versions"])}
    )
    return f"Versions: {', '.join(known)}."


def draw(rows, path):
    """Draw the ratio of every row with its interval; the cases that we lose in another colour."""
    from matplotlib import pyplot as plt

    rows = [(row, one) for row in readme_rows(rows)[::-1] if (one := best_of(row)) is not None]
    figure, axes = plt.subplots(figsize=(9, 0.42 * len(rows) + 1.2), layout="constrained")
    colours = {"faster": "#1f6fb4", "undecided": "#767676", "slower": "#c8442b"}
    for at, (_, one) in enumerate(rows):
        colour = colours[verdict(one["low"], one["high"])]
        axes.plot([one["low"], one["high"]], [at, at], color=colour, linewidth=2)
        axes.plot([one["ratio"]], [at], "o", color=colour)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_yticks(
        range(len(rows)), [f"{row['case']}\nbeside {one['library']}" for row, one in rows]
    )
    axes.tick_params("y", labelsize=8)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("time of the fastest exact competitor / time of fastcos")
    figure.savefig(path, dpi=130)
    plt.close(figure)


def main():
    parser = argparse.ArgumentParser(
        prog="python -m bench.tables", description=__doc__.split("\n")[0]
    )
    parser.add_argument("runs", nargs="*", type=Path, metavar="RUN.json")
    parser.add_argument("--out", type=Path, metavar="DIR", help="of tables.json and tables.md")
    parser.add_argument("--readme", action="store_true", help="write the README's rows and figure")
    given = parser.parse_args()
    new = [row for path in given.runs for row in rows_of(json.loads(path.read_text("utf8")))]
    if given.out:
        path = given.out / "tables.json"
        rows = merged(json.loads(path.read_text("utf8")) if path.exists() else [], new)
        given.out.mkdir(exist_ok=True)
        path.write_text(json.dumps(rows, indent=1) + "\n", "utf8")
        (given.out / "tables.md").write_text(markdown(rows), "utf8")
    elif new:
        print(markdown(merged([], new)))
    if given.readme:
        rows = json.loads(RECORD.read_text("utf8"))
        replace_between(ROOT / "README.md", BEGIN, END, short_markdown(rows))
        draw(rows, FIGURE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
