"""The page of a leaderboard: sort its candidates, open one, and see what it calls near."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fastcos.comparison import Leaderboard, LeaderboardRow
from fastcos.plots.html.item_fields import boundaries, encoded, item_fields
from fastcos.plots.html.page import page_with_script
from fastcos.reports import Section
from fastcos.validation import Integers

# rows of a page, best first: 9 kB each with 64 example items, 1.8 of 2.5 MB
_MOST_ROWS = 200


def leaderboard_page(
    leaderboard: Leaderboard,
    *,
    names: Any = None,
    labels: Any = None,
    name: str = "these data",
    sections: Sequence[Section] = (),
    provenance: Mapping[str, Any] | None = None,
) -> str:
    """Return a leaderboard as a page that a reader sorts and opens: no network.

    A row opens to a heat map of the scores between example items, and to an item's neighbours.

    Parameters
    ----------
    leaderboard : Leaderboard
        Of :func:`fastcos.compare` or :func:`fastcos.compare_vectors`, with ``n_examples``. The page
        has its best 200 candidates.
    names, labels, name, provenance
        As in :func:`fastcos.plots.html.items_page`.
    sections : sequence of Section
        Tables below the leaderboard, folded.

    Examples
    --------
    >>> import numpy as np
    >>> import fastcos
    >>> from fastcos.plots.html import leaderboard_page
    >>> vectors = np.random.default_rng(0).standard_normal((100, 4))
    >>> labels = np.argmax(vectors, axis=1)
    >>> found = fastcos.compare_vectors(vectors, labels, measures=["dot"], n_examples=20)
    >>> page = leaderboard_page(found, labels=labels, name="a < b")
    >>> "a &lt; b" in page, page.count("<script")
    (True, 2)
    """
    shown, left = leaderboard.rows[:_MOST_ROWS], len(leaderboard.rows) - _MOST_ROWS
    rows = [row.candidate for row in shown]
    for wanted in (leaderboard.baseline, leaderboard.recommended):
        if wanted is not None and wanted not in rows:
            shown.append(leaderboard.row(wanted))
            rows.append(wanted)
    best = {row.candidate for row in leaderboard.best_per_measure()} | {leaderboard.baseline}
    examples = leaderboard.example_items
    items = np.empty(0, np.int64) if examples is None else examples
    found = [leaderboard.examples[one].neighbors for one in rows if one in leaderboard.examples]
    used = np.unique(np.concatenate([items, *(lists.ravel() for lists in found)]))
    fields = item_fields(used, names, labels)
    tests, chance = leaderboard.chance_level, leaderboard.chance_level.get(leaderboard.score)
    columns = ("measure", "score", "gain", *leaderboard.rows[0].other_scores)
    # of the rows that are shown first: one bad D would squeeze them
    ends = [end for row in shown if row.candidate in best for end in row.score]
    ends += [] if chance is None else [chance]
    axis = _Axis(min(ends), max(ends), leaderboard.rows[0].score.value, chance)
    beyond = any(not axis.least <= row.score.value <= axis.most for row in shown)
    data = {
        "baseline": rows.index(leaderboard.baseline),
        "rows": [_row(row, leaderboard, row.candidate in best, used) for row in shown],
        "items": (places := np.searchsorted(used, items).tolist()),
        **fields,
        "boundaries": [] if labels is None else boundaries([fields["labels"][at] for at in places]),
    }
    texts: dict[str, Any] = {
        "name": f"Which similarity to use for {name}?",
        "headline": _headline(leaderboard),
        "summary": f"Task: {leaderboard.task}; {leaderboard.n_units:,} {leaderboard.unit}."
        + (
            f" Chosen on one half and measured on the other, the best alternative to the plain "
            f"cosine gains {leaderboard.gain}."
            if leaderboard.gain is not None
            else ""
        ),
        "key": "Dots are scores, lines their 95 % intervals"
        + ("; dotted: chance level" if chance is not None else "")
        + ("; half a dot: beyond the axis" if beyond else "")
        + ". Coloured: indistinguishable from the best, which is recommended."
        + (f" The page leaves out the {left:,} lowest candidates." if left > 0 else ""),
        "sections": sections,
        "columns": columns,
        "score": leaderboard.score,
        "rows": [_line(row, leaderboard, axis) for row in shown],
        "n_columns": len(columns) + 1,
        "has_others": not {*rows} <= best,
        "unopened": "It compares users, so that items have no neighbours by it."
        if len(items)
        else "No example items were kept.",
        "map_note": f"Scores between {len(items)} items"
        + (", by label" if labels is not None else "")
        + ", coloured by rank: the lowest blue, the highest red.",
    }
    levels = ", ".join(f"{test} {level:.3f}" for test, level in tests.items())
    texts["method"] = (
        leaderboard.verdict,
        f"Intervals are over {leaderboard.unit} drawn again, for these data and models. A "
        "candidate is indistinguishable from the recommended one if the interval of their "
        f"difference, on the same {leaderboard.unit}, has 0.",
        "Gain: the score minus that of the plain cosine.",
        f"Chance level: {levels}.",
        "An item's neighbours are the nearest of all items. The address keeps the state.",
    )
    return page_with_script(
        "leaderboard", f"Comparison of {name}", provenance,
        styles=("explore.css", "leaderboard.css"), data=data, **texts,
    )  # fmt: skip


def _headline(found: Leaderboard) -> str:
    """The verdict in a sentence."""
    if found.recommended is None:
        return "No measure exceeds the chance level."
    own = found.row(found.baseline).score.value
    if found.recommended == found.baseline:
        return f"Stay with the plain cosine: {found.score} {own:.3f}."
    best = found.row(found.recommended).score.value
    return (
        f"Use {found.recommended}: {found.score} {best:.3f} against {own:.3f} of the plain cosine."
    )


def _row(
    row: LeaderboardRow, leaderboard: Leaderboard, best: bool, used: Integers
) -> dict[str, Any]:
    """What the script reads of a row; used: the items of the page, ascending."""
    candidate = row.candidate
    example = leaderboard.examples.get(candidate)
    sorted_by = {"score": row.score.value, "gain": row.gain.value, **row.other_scores}
    written: dict[str, Any] = {
        "name": f"{candidate.measure} {candidate.embeddings}".strip(),
        "columns": {
            "measure": candidate.measure,
            **{column: round(number, 6) for column, number in sorted_by.items()},
        },
        "best": best,
        "map": None,
    }
    if example is not None:
        written |= {
            "map": encoded(example.ranks, "u1"),
            "lists": np.searchsorted(used, example.neighbors).tolist(),
            "values": [
                [round(score, 3) if np.isfinite(score) else None for score in line]
                for line in example.scores.tolist()
            ],
        }
    return written


def _line(row: LeaderboardRow, leaderboard: Leaderboard, axis: "_Axis") -> dict[str, Any]:
    """A row as a reader sees it."""
    candidate = row.candidate
    recommended, plain = candidate == leaderboard.recommended, candidate == leaderboard.baseline
    ties = candidate in leaderboard.not_distinguishable and not recommended
    badges = (
        (recommended, "recommended", "main"),
        (plain, "plain cosine", "plain"),
        (ties, "≈ best", "ties"),
    )
    marks = (("chance", axis.chance), ("best", axis.best))
    return {
        "measure": candidate.measure,
        "embeddings": str(candidate).removeprefix(candidate.measure),
        "badges": [(words, kind) for holds, words, kind in badges if holds],
        "is_best": ties or recommended,
        "score": row.score,
        "low": axis.place(row.score.low),
        "high": axis.place(row.score.high),
        "value": axis.place(row.score.value),
        "marks": [(name, axis.place(value)) for name, value in marks if value is not None],
        "cells": [
            f"{row.score.value:.3f}",
            "-" if plain else str(row.gain),
            *(f"{value:.3f}" for value in row.other_scores.values()),
        ],
    }


class _Axis(NamedTuple):
    """The axis of the intervals: its ends, the best score, and the chance level if there is one."""

    least: float
    most: float
    best: float
    chance: float | None

    def place(self, value: float) -> str:
        """Return where a score lies on a drawing that is 200 wide."""
        share = (value - self.least) / ((self.most - self.least) or 1.0)
        return f"{min(max(4 + 192 * share, 0), 200):.1f}"
