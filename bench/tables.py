"""Tables of ratios to other libraries: `python -m bench.tables [PART ...]`.

Runs the tests of bench/competitors, each of which compares answers before it times them. Writes
bench/tables.json and bench/tables.md. All ratios of a row come from one run, with fastcos before
and after every competitor. Parts that are not named keep their rows and their date. To run a long
part in pieces, set FASTCOS_TABLE=FILE; `--rows FILE` then reads the rows from there and keeps older
rows, with their date, for what FILE lacks. `--readme` copies the best competitor of every case into
the README. Libraries that are not installed are left out; FASTCOS_COMPETITORS_PYTHON names an
interpreter that has them.
"""

import argparse
import datetime
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parents[1]
RECORD, MARKDOWN = ROOT / "bench" / "tables.json", ROOT / "bench" / "tables.md"
PARTS = {
    "dense": ("test_dense_neighbors.py", "Exact neighbours of dense rows"),
    "products": ("test_products.py", "Products of a sparse matrix"),
    "sparse": ("test_sparse_neighbors.py", "Exact neighbours of sparse rows"),
    "svd": ("test_svd.py", "Truncated SVD at equal residual"),
}
LIBRARIES = (
    "fastcos", "numba", "numpy", "scipy", "scikit-learn", "faiss-cpu", "usearch", "implicit",
    "chunkdot", "sparse_dot_topn", "sparse_dot_mkl", "torch", "fbpca",
)  # fmt: skip
BEGIN, END = "<!-- begin bench/tables.md -->\n", "<!-- end bench/tables.md -->\n"


def cpu_name():
    """Return the system's name of the CPU, and LLVM's, which distinguishes virtual CPUs."""
    try:
        (line, *_) = re.findall(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    except (OSError, ValueError):
        line = platform.processor() or platform.machine()
    from llvmlite import binding

    return f"{line} ({binding.get_host_cpu_name()})"


def versions():
    """Return the versions of fastcos here, and of the competitors in their interpreter."""
    names = ",".join(LIBRARIES)
    code = (
        "import importlib.metadata as m, json\nfound = {}\n"
        f"for name in {names!r}.split(','):\n"
        "    try: found[name] = m.version(name)\n"
        "    except m.PackageNotFoundError: pass\nprint(json.dumps(found))"
    )
    other = os.environ.get("FASTCOS_COMPETITORS_PYTHON") or sys.executable
    run = subprocess.run([other, "-c", code], capture_output=True, text=True, check=True)
    found = json.loads(run.stdout)
    return found | {name: metadata.version(name) for name in ("fastcos", "numba")}


def run_part(part):
    """Return the rows of one part, also of tests that fail because a target is missed."""
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder, "table.json")
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-n0",  # parallel tests disturb the times
            str(ROOT / "bench/competitors" / PARTS[part][0]),
        ]
        environment = {**os.environ, "FASTCOS_TABLE": str(table), "PYTHONPATH": str(ROOT)}
        subprocess.run(command, cwd=ROOT, env=environment, check=False, stdout=sys.stderr)
        if not table.exists():
            raise SystemExit(f"bench.tables: {part} returned no rows")
        return rows_of_pieces(table)


def rows_of_pieces(path):
    """Return the rows of FASTCOS_TABLE; the last run of each case counts."""
    rows = json.loads(Path(path).read_text("utf8"))
    return list({(row["work"], row["competitor"]): row for row in rows}.values())


def library_of(row):
    """Return the library without its core type, which differs from run to run."""
    return row["competitor"].split()[0]


def with_older(rows, before):
    """Return these rows, and with their date the earlier rows that they do not replace."""
    new = {(row["work"], library_of(row)) for row in rows}
    kept = [row for row in before.get("rows", ()) if (row["work"], library_of(row)) not in new]
    return rows + [{"date": before["date"], **row} for row in kept]


def dates(found):
    """Return the date of the part, and of its older rows."""
    older = {}
    for row in found["rows"]:
        if row.get("date", found["date"]) != found["date"]:
            older.setdefault(row["date"], set()).add(library_of(row))
    return "; ".join(
        [found["date"], *(f"{', '.join(sorted(older[day]))} {day}" for day in sorted(older))]
    )


def cost(row, seconds, peak):
    """Return the time, and the peak memory if it was measured."""
    taken = row[seconds]
    text = f"{taken:.3g} s" if taken >= 1 else f"{1e3 * taken:.3g} ms"
    return f"{text}, {row[peak]:.0f} MiB" if row.get(peak) else text


def table(rows):
    """Return Markdown lines; a wrong answer is not timed."""
    lines = [
        "| case | library | its time | fastcos | ratio | target |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for row in rows:
        target = f"{row['target']:g}x" if row.get("target") else ""
        its = cost(row, "competitor_s", "competitor_peak_mib") if row["correct"] else "wrong answer"
        ratio = f"{row['ratio']:.2f}x" if row["correct"] else ""
        ours = cost(row, "ours_s", "peak_mib")
        lines.append(
            f"| {row['work']} | {row['competitor']} | {its} | {ours} | {ratio} | {target} |"
        )
    return [*lines, ""]


def markdown(record, complete=True):
    """Return the best competitor of every case; if complete, also the others and the versions."""
    lines = []
    for part, (_, title) in PARTS.items():
        if part not in record:
            continue
        found = record[part]
        libraries = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
        rows = sorted(
            found["rows"], key=lambda row: (row["work"], not row["correct"], row["ratio"])
        )
        works = [row["work"] for row in rows]
        best = [row for i, row in enumerate(rows) if row["work"] not in works[:i]]
        others = [row for row in rows if row not in best]
        lines += [
            f"**{title}**, the best competitor of each case; {dates(found)}, {found['cpu']}, "
            f"{found['threads']} threads.", "", *table(best),
        ]  # fmt: skip
        if not complete:
            continue
        if others:
            lines += ["<details><summary>The others</summary>", "", *table(others)]
            lines += ["</details>", ""]
        lines += [f"Versions: {libraries}.", ""]
    if not complete:
        lines += ["All competitors, and the versions: [bench/tables.md](bench/tables.md).", ""]
    return "\n".join(lines)


def write_readme(text):
    """Replace the text between the marks."""
    path = ROOT / "README.md"
    before, rest = path.read_text("utf8").split(BEGIN)
    after = rest.split(END)[1]
    path.write_text(f"{before}{BEGIN}{text}{END}{after}", "utf8")


def main():
    parser = argparse.ArgumentParser(
        prog="python -m bench.tables", description=__doc__.split("\n")[0]
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; all")
    parser.add_argument("--rows", metavar="FILE", help="rows of the one PART, run in pieces")
    parser.add_argument("--readme", action="store_true", help="copy the tables into the README")
    given = parser.parse_args()
    unknown = set(given.parts) - set(PARTS)
    if unknown:
        parser.error(f"PART must be one of {', '.join(PARTS)}, got {', '.join(sorted(unknown))}")
    if given.rows and len(given.parts) != 1:
        parser.error(f"--rows goes with one PART, got {len(given.parts)}")
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    for part in given.parts or ([] if given.readme else PARTS):
        if given.rows:
            rows = with_older(rows_of_pieces(given.rows), record.get(part, {}))
        else:
            rows = run_part(part)
        record[part] = {
            "date": datetime.date.today().isoformat(),
            "cpu": cpu_name(),
            "threads": int(os.environ.get("FASTCOS_NUM_THREADS", 0)) or available_cores(),
            "versions": versions(),
            "rows": rows,
        }
        RECORD.write_text(json.dumps(record, indent=1) + "\n")
        MARKDOWN.write_text(markdown(record), "utf8")
    if given.readme:
        write_readme(markdown(record, complete=False))
    return 0


def available_cores():
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count()


if __name__ == "__main__":
    sys.exit(main())
