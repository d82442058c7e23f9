"""Compare a commit with itself, to count wrong verdicts and to find the smallest slow-down that is caught.

The pairs of processes are recorded once. The recorded ratios of each benchmark are then divided into blocks,
and :func:`compare_pairs` judges each block in the same way as the ratios of a pull request. Because the
commits are equal, a verdict "slower" is a false alarm. To find out which slow-downs are caught, the times of
head in the same blocks are multiplied by a constant.
"""

import contextlib
import time
from types import MappingProxyType

import numpy as np

from .compare import MIN_PAIRS, SLOWER, Series, compare_pairs
from .intervals import log_ratios
from .processes import Measurement
from .summary import cell, plural

# The slow-downs that are tried, from the smallest to the largest.
SLOWDOWNS = (0.12, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.75, 1.0, 2.0, 4.0)
# A slow-down counts as caught if benchgate reports it in at least this share of the comparisons.
CAUGHT = 0.9


def record(pair, seconds, progress=None):
    """Measure at least 10 pairs, and more pairs while time remains; stop early if the user interrupts.

    Return two dicts, whose keys are names of benchmarks. The first dict contains the log-ratio of every
    pair, and the second dict contains the reason why a benchmark has no log-ratios.
    """
    started, series = time.monotonic(), Series()
    with contextlib.suppress(KeyboardInterrupt):
        while series.done < MIN_PAIRS or time.monotonic() - started < seconds:
            series.add([], *pair([]))
            if progress:
                expected = max(series.done, round(series.done * seconds / (time.monotonic() - started)))
                progress(series.done, expected, [], 1)
    reasons = {name: obstacle[1] for name in series.names if (obstacle := series.obstacle(name))}
    logs = {
        name: [round(float(log), 5) for log in log_ratios(series.pairs[name])]
        for name in sorted(series.names - reasons.keys())
    }
    return logs, reasons


def comparisons(logs, slowdown=0.0, tolerance=0.10):
    """Compare recorded log-ratios block by block; return whether the verdict on each block is "slower"."""
    ratios = iter(np.exp(np.asarray(logs) + np.log1p(slowdown)))
    says_slower = []

    def pair(names):
        return {"recorded": Measurement([1.0], [0.0])}, {"recorded": Measurement([next(ratios)], [0.0])}

    with contextlib.suppress(StopIteration):  # the exception means that the record has no more pairs
        while True:
            verdict = compare_pairs(pair, tolerance=tolerance)
            says_slower.append(verdict.outcomes[0].status == SLOWER)
    return says_slower


def caught_slowdown(logs, tolerance):
    """Return the smallest of SLOWDOWNS that benchgate catches, or None if it catches none of them."""
    for slowdown in SLOWDOWNS:
        # Only slow-downs above the tolerance are tried. However many pairs are measured, a slow-down that
        # equals the tolerance cannot be distinguished from a slightly smaller slow-down, which is allowed.
        if (
            slowdown > tolerance
            and (verdicts := comparisons(logs, slowdown, tolerance))
            and np.mean(verdicts) >= CAUGHT
        ):
            return slowdown
    return None


def upper_bound(alarms, total, confidence=0.95):
    """Return the Clopper-Pearson upper confidence bound on the rate of false alarms."""
    from scipy import stats

    return 1.0 if alarms >= total else float(stats.beta.ppf(confidence, alarms + 1, total - alarms))


def report(record, tolerance, reasons=MappingProxyType({})):
    """Return the false alarms and the caught slow-downs of a record, in total and by benchmark.

    ``record`` contains the log-ratios of each benchmark. ``reasons`` contains the reason why a benchmark has
    no log-ratios.
    """
    rows = []
    for name, logs in record.items():
        verdicts = comparisons(logs, 0.0, tolerance)
        if verdicts:
            rows.append({
                "name": name,
                "pairs": len(logs),
                "scatter": float(np.std(logs)),
                "comparisons": len(verdicts),
                "false_alarms": int(sum(verdicts)),
                "caught": caught_slowdown(logs, tolerance),
            })  # fmt: skip
    total, alarms = (sum(row[key] for row in rows) for key in ("comparisons", "false_alarms"))
    return {
        "tolerance": tolerance,
        "comparisons": total,
        "false_alarms": alarms,
        "upper_bound": upper_bound(alarms, total) if total else 1.0,
        "benchmarks": rows,
        "not_measured": dict(reasons),
    }


def markdown(report, footer=""):
    """Return a report as Markdown; its title states the number of false alarms."""
    header = (
        "| benchmark | false alarms | comparisons | scatter of a pair | caught slow-down |\n"
        "|---|---:|---:|---:|---:|"
    )
    rows = [
        f"| `{cell(row['name'])}` | {row['false_alarms']} | {row['comparisons']} | {row['scatter']:.1%} "
        f"| {'none' if row['caught'] is None else format(row['caught'], '+.0%')} |"
        for row in sorted(report["benchmarks"], key=lambda row: -row["scatter"])
    ]
    return "\n".join([
        f"### Self-test: {plural(report['false_alarms'], 'false alarm')} in "
        f"{plural(report['comparisons'], 'comparison')} of equal code",
        "",
        f"With 95 % confidence fewer than {report['upper_bound']:.1%} of the comparisons of one benchmark "
        "on this machine are false alarms.",
        "",
        header,
        *rows,
        "",
        *(
            f"- `{cell(name)}` was not measured: {cell(reason)}"
            for name, reason in report["not_measured"].items()
        ),
        "",
        f"<sub>Tolerance {report['tolerance']:.0%}. Caught slow-down: the smallest of "
        f"{', '.join(f'{share:.0%}' for share in SLOWDOWNS)} that at least {CAUGHT:.0%} of the comparisons "
        f"report, by recorded pairs whose times of head were multiplied. {footer}</sub>",
        "",
    ])  # fmt: skip
