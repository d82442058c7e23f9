"""Files and tables of the ranking of measures."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fastcos import io
from fastcos.cli.terminal import print_table, say
from fastcos.comparison import LeaderboardRow, Leaderboard
from fastcos.storage import provenance

DOTS_PER_INCH = 200


def leaderboard_document(leaderboard: Leaderboard) -> dict[str, Any]:
    """Return the leaderboard JSON-ready."""
    found = {**vars(leaderboard), "rows": [_named(row) for row in leaderboard.rows]}
    for name in ("baseline", "recommended", "gain"):
        value = found[name]
        found[name] = None if value is None else value._asdict()
    ready: dict[str, Any] = provenance.json_ready(found)
    return ready


def _named(row: LeaderboardRow) -> dict[str, Any]:
    named: dict[str, Any] = {
        **row.candidate._asdict(),
        "score": row.score.value,
        "low": row.score.low,
        "high": row.score.high,
        "gain": row.gain.value,
        "gain_low": row.gain.low,
        "gain_high": row.gain.high,
        **row.other_scores,
    }
    return named


def write_leaderboard(leaderboard: Leaderboard, folder: Path, stem: str) -> list[Path]:
    """Write the ranking as csv and as a picture; each file appears whole or not at all."""
    from fastcos.plots import LeaderboardDisplay

    rows = [_named(row) for row in leaderboard.rows]
    csv = folder / f"{stem}.csv"
    io.write_csv(csv, tuple(rows[0]), (tuple(row.values()) for row in rows))
    figure = LeaderboardDisplay.from_leaderboard(leaderboard).plot().figure_
    return [csv, *write_figure(figure, folder, stem)]


def write_figure(
    figure: Any, folder: Path, stem: str, *, kinds: Sequence[str] = ("png", "svg")
) -> list[Path]:
    """Write a figure, each file whole or not at all."""
    paths = [folder / f"{stem}.{kind}" for kind in kinds]
    for target in paths:
        with io.atomic_path(target) as path:
            figure.savefig(path, format=target.suffix[1:], dpi=DOTS_PER_INCH)
    return paths


def show_leaderboard(leaderboard: Leaderboard, name: str = "") -> None:
    """Print every measure at its best, and the conclusion."""
    others = list(leaderboard.rows[0].other_scores)
    table = [
        (
            row.candidate.measure,
            _place(row),
            row.score.value,
            f"{row.score.low:.3f} .. {row.score.high:.3f}",
            row.gain.value,
            f"{row.gain.low:.3f} .. {row.gain.high:.3f}",
            *(row.other_scores[name] for name in others),
        )
        for row in leaderboard.best_per_measure()
    ]
    title = (
        f"{name + ': ' if name else ''}{leaderboard.task}, {leaderboard.n_units:,} "
        f"{leaderboard.unit}; every measure under its best D, {len(leaderboard.rows)} candidates"
    )
    header = ("measure", "under", leaderboard.score, "95 %", "gain", "95 %", *others)
    print_table(title, header, table)
    print(leaderboard.conclusion)
    if leaderboard.left_out:
        why = "; ".join(f"{name} ({reason})" for name, reason in leaderboard.left_out.items())
        say(f"left out, for what they need: {why}")


def _place(row: LeaderboardRow) -> str:
    _, rescaling, preprocessing = row.candidate
    return rescaling if preprocessing == "none" else f"{rescaling} after {preprocessing}"
