"""A verdict as Markdown for a pull request, and as JSON for programs."""

from . import compare
from .intervals import CONFIDENCE

HEADER = (
    "| verdict | benchmark | base | head | ratio | interval | pairs |\n|---|---|---:|---:|---:|---:|---:|"
)


def headline(verdict):
    """Return the result in one sentence."""
    compared = len(verdict.compared)
    words = {0: "passed", 1: "failed", 3: "could not compare everything"}[verdict.exit_status]
    if verdict.exit_status == 3 and not compared:
        words = "could not compare"
    counts = {
        "slower": verdict.named(compare.SLOWER),
        "lost": verdict.named(compare.LOST),
        "crashed": verdict.named(compare.CRASHED),
        "accepted": verdict.named(compare.ACCEPTED, compare.LOST_ACCEPTED),
        "waiting": verdict.named(compare.WAITS),
        "not compared": verdict.named(compare.UNCOMPARABLE),
        "undecided": verdict.named(compare.UNDECIDED),
        "only in head": verdict.named(compare.NEW),
    }
    parts = [f"{len(names)} {label}" for label, names in counts.items() if names]
    files = {
        "that head cannot import": verdict.broken,
        "that neither commit can import": verdict.uncollected,
    }
    parts += [f"{plural(len(errors), 'file')} {label}" for label, errors in files.items() if errors]
    if not compared:
        return ", ".join([f"{words}: no benchmark was compared", *parts])
    return f"{words}: {plural(compared, 'benchmark')} compared, {', '.join(parts) or 'none slower'}"


def plural(number, noun):
    """Return a number with its noun, such as "1 file" or "2 files"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def markdown(verdict, footer=""):
    """Return the summary of a verdict as Markdown."""
    blocks = [f"### Benchmarks: {headline(verdict)}"]
    if verdict.failure:
        blocks.append(f"Nothing could be compared: {cell(verdict.failure)}")
    for title, files in (
        ("Head cannot import these test files, but base can:", verdict.broken),
        ("Neither commit can import these test files:", verdict.uncollected),
    ):
        if files:
            blocks += [
                title,
                "\n".join(f"- `{file}`: {cell(reason)}" for file, reason in sorted(files.items())),
            ]
    if verdict.outcomes:
        blocks.append("\n".join([HEADER, *map(_row, verdict.outcomes)]))
    reasons = [
        f"- `{cell(outcome.name)}` ({outcome.status}): {cell(outcome.reason)}"
        for outcome in verdict.outcomes
        if outcome.reason
    ]
    if reasons:
        blocks += ["Reasons:", "\n".join(reasons)]
    if verdict.removed:
        names = "\n".join(f"- `{cell(name)}`" for name in verdict.removed)
        blocks += ["Head's tests no longer contain these benchmarks (removed or renamed):", names]
    cleared_outcomes = [
        outcome for outcome in verdict.outcomes if outcome.first and outcome.status == compare.PASSED
    ]
    if cleared_outcomes:
        rows = [_ratio_cells(outcome.name, outcome.status, outcome.first) for outcome in cleared_outcomes]
        blocks.append(
            "<details><summary>Suspected in the first series, cleared by the second</summary>\n\n"
            + "\n".join([HEADER, *rows])
            + "\n\n</details>"
        )
    blocks.append(
        "<sub>Ratio: time of head / time of base, the trimmed mean over pairs of fresh processes, with its "
        f"{CONFIDENCE:.0%} interval. Slower: the interval lies above {1 + verdict.tolerance:.2f} "
        f"(or the benchmark's own tolerance) in two series. {footer}</sub>"
    )
    # Markdown needs an empty line before a table.
    return "\n\n".join(blocks) + "\n"


def _row(outcome):
    if outcome.ratio:
        return _ratio_cells(outcome.name, outcome.status, outcome.ratio)
    return f"| {_bold(outcome.status)} | `{cell(outcome.name)}` | | | | | |"


def _ratio_cells(name, status, ratio):
    return (
        f"| {_bold(status)} | `{cell(name)}` | {duration(ratio.base)} | {duration(ratio.head)} "
        f"| {ratio.ratio:.3f} | {ratio.low:.3f} to {ratio.high:.3f} | {ratio.pairs} |"
    )


def _bold(status):
    return f"**{status}**" if status in compare.FAILING else status


def cell(text):
    """Return text for a cell of a Markdown table, in one line and with escaped bars."""
    return " ".join(str(text).split()).replace("|", "\\|")


def duration(seconds):
    """Return seconds as text in s, ms, us or ns, with one to three digits before the point."""
    for unit, factor in (("s", 1), ("ms", 1e3), ("us", 1e6)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def as_json(verdict, about):
    """Return a verdict as a dict that JSON can represent; ``about`` describes the run."""
    return {
        **about,
        "verdict": headline(verdict),
        "exit_status": verdict.exit_status,
        "tolerance": verdict.tolerance,
        "failure": verdict.failure,
        "broken_files": dict(verdict.broken),
        "uncollected_files": dict(verdict.uncollected),
        "removed": list(verdict.removed),
        "benchmarks": [
            {
                "name": outcome.name,
                "status": outcome.status,
                "tolerance": outcome.tolerance,
                "reason": outcome.reason,
                **(
                    {key: value for key, value in outcome.ratio._asdict().items() if key != "name"}
                    if outcome.ratio
                    else {}
                ),
            }
            for outcome in verdict.outcomes
        ],
    }
