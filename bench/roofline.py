"""Every kernel below the limits of this machine: `python -m bench.roofline`, minutes.

Each case runs in fresh processes, whose placement on the machine differs; a process measures call
and limit in turns. Writes a table, bench/roofline.md, with the least and the most percent of the
processes, and the figure docs/figures/roofline.png. `-k REGEX` selects cases and only prints them.
"""

import argparse
import re
import statistics
from pathlib import Path

from bench import limits
from bench.curves import measure
from bench.tables import cpu_name
from bench.worker import in_new_process
from bench.workloads import WORKLOADS, label
from fastcos import get_config

ROOT = Path(__file__).parents[1]
TABLE, FIGURE = ROOT / "bench" / "roofline.md", ROOT / "docs" / "figures" / "roofline.png"
SPARSE = "40,000 x 20,000"
# workload and case of every bar
CASES = (
    ("SelfJoin", {"rows": "20,000 x 128", "k": 10}),
    *(("SelfJoin", {"rows": f"10,000 x {d}", "k": 10}) for d in (384, 768, 1536)),
    ("IndexSearch", {"queries": 1, "items": "100,000 x 768", "k": 10}),
    ("IndexSearch", {"queries": 256, "items": "100,000 x 768", "k": 10}),
    ("Packing", {"rows": "20,000 x 768"}),
    ("Selection", {"candidates": 100_000, "k": 100}),
    ("Matmul", {"shape": SPARSE, "columns": 64}),
    ("Rmatmul", {"shape": SPARSE, "columns": 64}),
    ("GramMatmul", {"shape": SPARSE, "columns": 64}),
    ("GramMatmul", {"shape": "zipf", "columns": 64}),
    ("TruncatedSVD", {"shape": SPARSE, "k": 16, "tol": 1e-2}),
    ("ItemNeighbors", {"shape": "10,000 x 3,000", "k": 10}),
    ("LinearMFFit", {"shape": SPARSE, "objective": "dropout"}),
    ("SimilarityBlocks", {"rows": 5_000}),
    ("Weighting", {"transformer": "standardise", "shape": SPARSE}),
)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, default=5)
    parser.add_argument("-k", default="", metavar="REGEX")
    given = parser.parse_args()
    from bench.roofline_display import RooflineDisplay, RooflinePoint

    threads = get_config().num_threads
    lines = [
        f"{cpu_name()}, {threads} threads; medians of {given.processes} processes.", "",
        "| case | time | percent of limit | least, most | limit |", "|---|---:|---:|---:|---|",
    ]  # fmt: skip
    print("\n".join(lines))
    points = []
    for name, case in CASES:
        title = label(WORKLOADS[name], case)
        if not re.search(given.k, title):
            continue
        found = [in_new_process(measure, name, case, threads) for _ in range(given.processes)]
        seconds, percents = ([one[key] for one in found] for key in ("seconds", "percent"))
        seconds, percent = statistics.median(seconds), statistics.median(percents)
        bound = statistics.mode(one["bound"] for one in found)
        size = found[0]["operations"], found[0]["bytes"]
        points.append(RooflinePoint(title, *size, seconds, percent, bound))
        lines.append(
            f"| {title} | {1e3 * seconds:.3g} ms | {percent:.0f}% | "
            f"{min(percents):.0f}%, {max(percents):.0f}% | {bound} |"
        )
        print(lines[-1], flush=True)
    if not given.k:
        TABLE.write_text("\n".join([*lines, ""]), "utf8")
        RooflineDisplay(points, *limits.roofs()).plot().figure_.savefig(FIGURE, dpi=130)


if __name__ == "__main__":
    main()
