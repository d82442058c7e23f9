"""The page of a leaderboard, on which a reader sorts the candidates and opens their rows."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fastcos.comparison import Leaderboard, LeaderboardRow
from fastcos.plots.html.item_fields import boundaries, encoded, item_fields
from fastcos.plots.html.page import page_with_script
from fastcos.reports import Section
from fastcos.validation import Integers

# The largest number of rows on a page. With 64 example items, a row takes 9 kB. In a page of
# 2.5 MB, 200 rows take 1.8 MB.
_MAX_ROWS = 200


def leaderboard_page(
    leaderboard: Leaderboard,
    *,
    names: Any = None,
    labels: Any = None,
    name: str = "these data",
    sections: Sequence[Section] = (),
    provenance: Mapping[str, Any] | None = None,
) -> str:
    """Return a page on which a reader can sort a leaderboard; the page needs no network.

    If the reader clicks on a row, the page shows a heat map of the scores between the example
    items, and the neighbours of an item.

    Parameters
    ----------
    leaderboard : Leaderboard
        A leaderboard from a call to :func:`fastcos.compare` or :func:`fastcos.compare_vectors` with
        ``n_examples``. The page shows the baseline, the recommended candidate, and the 200 best
        candidates of the leaderboard.
    names, labels, name, provenance
        As in :func:`fastcos.plots.html.items_page`.
    sections : sequence of Section
        Sections below the leaderboard, which are folded when the page opens.

    Examples
    --------
    >>> import numpy as np
    >>> import fastcos
    >>> from fastcos.plots.html import leaderboard_page
    >>> vectors = np.random.default_rng(0).standard_normal((100, 4))
    >>> labels = np.argmax(vectors, axis=1)
    >>> board = fastcos.compare_vectors(vectors, labels, measures=["dot"], n_examples=20)
    >>> page = leaderboard_page(board, labels=labels, name="a < b")
    >>> "a &lt; b" in page, page.count("<script")
    (True, 2)
    """
    page_rows, n_left_out = leaderboard.rows[:_MAX_ROWS], len(leaderboard.rows) - _MAX_ROWS
    candidates = [row.candidate for row in page_rows]
    for candidate in (leaderboard.baseline, leaderboard.recommended):
        if candidate is not None and candidate not in candidates:
            page_rows.append(leaderboard.row(candidate))
            candidates.append(candidate)
    best_candidates = {row.candidate for row in leaderboard.best_per_measure()} | {
        leaderboard.baseline
    }
    examples = leaderboard.example_items
    items = np.empty(0, np.int64) if examples is None else examples
    neighbors = [
        leaderboard.examples[candidate].neighbors
        for candidate in candidates
        if candidate in leaderboard.examples
    ]
    page_items = np.unique(np.concatenate([items, *(lists.ravel() for lists in neighbors)]))
    fields = item_fields(page_items, names, labels)
    tests, chance = leaderboard.chance_level, leaderboard.chance_level.get(leaderboard.score)
    columns = ("measure", "score", "gain", *leaderboard.rows[0].other_scores)
    # The axis covers only the rows that are shown when the page opens. One rescaling may have a
    # very low score. If the axis also covered this score, the confidence intervals of the shown
    # rows would be too short to compare.
    ends = [end for row in page_rows if row.candidate in best_candidates for end in row.score]
    ends += [] if chance is None else [chance]
    axis = _Axis(min(ends), max(ends), leaderboard.rows[0].score.value, chance)
    has_cut_dots = any(not axis.low <= row.score.value <= axis.high for row in page_rows)
    data = {
        "baseline": candidates.index(leaderboard.baseline),
        "rows": [
            _row(row, leaderboard, row.candidate in best_candidates, page_items)
            for row in page_rows
        ],
        "items": (places := np.searchsorted(page_items, items).tolist()),
        **fields,
        "boundaries": [] if labels is None else boundaries([fields["labels"][at] for at in places]),
    }
    texts: dict[str, Any] = {
        "name": f"Which similarity to use for {name}?",
        "headline": _headline(leaderboard),
        "summary": f"Task: {leaderboard.task}, for {leaderboard.n_units:,} {leaderboard.unit}."
        + (
            f" The gain of the best alternative over the plain cosine is {leaderboard.gain}. The "
            "data were split into two halves: an alternative was chosen on one half, and its gain "
            "was measured on the other half; then the two halves changed roles."
            if leaderboard.gain is not None
            else ""
        ),
        "key": "A dot shows the score of a candidate, and a line shows its 95 % interval"
        + (". The dotted line marks the chance level" if chance is not None else "")
        + (
            ". If a dot is cut off at an end of the axis, its score lies outside the axis"
            if has_cut_dots
            else ""
        )
        + ". The recommended candidate is drawn in colour, and so is every candidate that is not "
        "significantly worse."
        + (
            f" The page leaves out the {n_left_out:,} candidates with the lowest scores."
            * (n_left_out > 0)
        ),
        "sections": sections,
        "columns": columns,
        "score": leaderboard.score,
        "rows": [_line(row, leaderboard, axis) for row in page_rows],
        "n_columns": len(columns) + 1,
        "has_others": not {*candidates} <= best_candidates,
        "unopened": "This measure compares users, so it yields no neighbours of items."
        if len(items)
        else "The comparison was made without example items.",
        "map_note": f"Scores between {len(items)} items"
        + (", sorted by label" if labels is not None else "")
        + ". The colour shows the rank of a score, from blue (lowest) to red (highest).",
    }
    levels = ", ".join(f"{test} {level:.3f}" for test, level in tests.items())
    texts["method"] = (
        leaderboard.verdict,
        f"To compute the intervals, the evaluated {leaderboard.unit} are resampled at random; the "
        "data and the models stay the same. Another interval is computed for the difference in "
        "score between a candidate and the recommended candidate. If this interval contains 0, "
        "the data cannot distinguish the two candidates. Both scores are computed on the same "
        f"{leaderboard.unit}.",
        "The gain of a candidate is its score minus the score of the plain cosine.",
        f"The chance levels are: {levels}.",
        "The neighbours of an item are searched among all items. The address of the page stores "
        "what the page shows.",
    )
    return page_with_script(
        "leaderboard", f"Comparison of {name}", provenance,
        styles=("explore.css", "leaderboard.css"), data=data, **texts,
    )  # fmt: skip


def _headline(leaderboard: Leaderboard) -> str:
    """Return the recommendation in one sentence."""
    recommended, score = leaderboard.recommended, leaderboard.score
    if recommended is None:
        return "No measure exceeds the chance level."
    plain = leaderboard.row(leaderboard.baseline).score.value
    if recommended == leaderboard.baseline:
        return f"Stay with the plain cosine: {score} {plain:.3f}."
    best = leaderboard.row(recommended).score.value
    return f"Use {recommended}: {score} {best:.3f}, compared with {plain:.3f} for the plain cosine."


def _row(
    row: LeaderboardRow, leaderboard: Leaderboard, is_best: bool, page_items: Integers
) -> dict[str, Any]:
    """Return the data that the script needs to show a row.

    `page_items` contains the row numbers of all items on the page, in ascending order.
    """
    candidate = row.candidate
    example = leaderboard.examples.get(candidate)
    sorted_by = {"score": row.score.value, "gain": row.gain.value, **row.other_scores}
    fields: dict[str, Any] = {
        "name": f"{candidate.measure} {candidate.embeddings}".strip(),
        "columns": {
            "measure": candidate.measure,
            **{column: round(number, 6) for column, number in sorted_by.items()},
        },
        "best": is_best,
        "map": None,
    }
    if example is not None:
        fields |= {
            "map": encoded(example.ranks, "u1"),
            "lists": np.searchsorted(page_items, example.neighbors).tolist(),
            "values": [
                [round(score, 3) if np.isfinite(score) else None for score in line]
                for line in example.scores.tolist()
            ],
        }
    return fields


def _line(row: LeaderboardRow, leaderboard: Leaderboard, axis: "_Axis") -> dict[str, Any]:
    """Return the values that the template shows for a row."""
    candidate = row.candidate
    is_recommended, is_baseline = (
        candidate == leaderboard.recommended,
        candidate == leaderboard.baseline,
    )
    is_tied = candidate in leaderboard.not_distinguishable and not is_recommended
    badges = (
        (is_recommended, "recommended", "main"),
        (is_baseline, "plain cosine", "plain"),
        (is_tied, "≈ best", "ties"),
    )
    marks = (("chance", axis.chance), ("best", axis.best))
    return {
        "measure": candidate.measure,
        "embeddings": str(candidate).removeprefix(candidate.measure),
        "badges": [(words, kind) for holds, words, kind in badges if holds],
        "is_best": is_tied or is_recommended,
        "score": row.score,
        "low": axis.place(row.score.low),
        "high": axis.place(row.score.high),
        "value": axis.place(row.score.value),
        "marks": [(name, axis.place(value)) for name, value in marks if value is not None],
        "cells": [
            f"{row.score.value:.3f}",
            "-" if is_baseline else str(row.gain),
            *(f"{value:.3f}" for value in row.other_scores.values()),
        ],
    }


class _Axis(NamedTuple):
    """The axis on which intervals are drawn: its ends, the best score, and the chance level."""

    low: float
    high: float
    best: float
    chance: float | None

    def place(self, value: float) -> str:
        """Return the horizontal position of a score on a drawing that is 200 units wide."""
        share = (value - self.low) / ((self.high - self.low) or 1.0)
        return f"{min(max(4 + 192 * share, 0), 200):.1f}"
