"""Count the slowdowns that benchgate reports: ``python slowdowns.py 2026-11-28-zen5.json``.

For each benchmark, the file contains the log-ratios of pairs of processes. In these pairs, both commits have
the same code. To simulate a slowdown, the script multiplies the times of the second commit of every pair by a
constant. benchgate then makes comparisons from these pairs, one after the other, until no pairs are left. The
script prints a Markdown table, which counts all comparisons and, in a separate column, only the first
comparison of every benchmark.
"""

import json
import sys
from pathlib import Path

from benchgate.selftest import comparisons

SLOWDOWNS = (0.0, 0.05, 0.12, 0.15, 0.2, 0.3)


def main():
    """Print the table of a file."""
    record = json.loads(Path(sys.argv[1]).read_text("utf8"))["log_ratios"]["nothing"]
    longest = max(map(len, record.values()))
    print(
        '| slowdown | comparisons | reported as slower | benchmarks whose first verdict is "slower" '
        f"| benchmarks undecided after {longest} pairs |\n|---:|---:|---:|---:|---:|"
    )
    for slowdown in SLOWDOWNS:
        verdicts = [comparisons(log_ratios, slowdown) for log_ratios in record.values()]
        undecided = sum(not of_benchmark for of_benchmark in verdicts)
        total, slower = sum(map(len, verdicts)), sum(map(sum, verdicts))
        first = sum(of_benchmark[0] for of_benchmark in verdicts if of_benchmark)
        counts = f"{first} of {len(record)} | {undecided} of {len(record)}"
        print(f"| {slowdown:.0%} | {total} | {slower} | {counts} |")


if __name__ == "__main__":
    main()
