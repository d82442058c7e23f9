"""The page of a leaderboard: sort its candidates, open one, and see what it calls near."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fastcos.comparison import Candidate, Leaderboard, LeaderboardRow
from fastcos.plots.html.frame import boundaries, encoded, framed_page, item_fields
from fastcos.plots.html.svg import draw
from fastcos.reports import Section
from fastcos.reports.markup import joined
from fastcos.reports.page import folded

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
        Of :func:`fastcos.compare` or :func:`fastcos.compare_vectors`, with ``n_examples``.
    names : sequence (p,), optional
        What to call the items. Default: their numbers.
    labels : sequence (p,) of int or str, optional
        One label per item; None for no label.
    name : str
        What was compared, such as a file name.
    sections : sequence of Section
        Tables below the leaderboard, folded.
    provenance : mapping, optional
        Parameters, versions and machine, for the foot of the page.

    Returns
    -------
    str
        HTML with its script and data, of the best 200 candidates.

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
    place = {number: at for at, number in enumerate(used.tolist())}
    fields = item_fields(used, names, labels)
    tests, chance = leaderboard.chance_level, leaderboard.chance_level.get(leaderboard.score)
    data = {
        "score": leaderboard.score,
        "others": list(leaderboard.rows[0].other_scores),
        "chance": chance,
        "baseline": rows.index(leaderboard.baseline),
        "recommended": None
        if leaderboard.recommended is None
        else rows.index(leaderboard.recommended),
        "rows": [_row(row, leaderboard, row.candidate in best, place) for row in shown],
        "items": (places := [place[number] for number in items.tolist()]),
        **fields,
        "boundaries": [] if labels is None else boundaries([fields["labels"][at] for at in places]),
        "mapNote": f"Scores between {len(items)} items"
        + (", by label" if labels is not None else "")
        + ", coloured by rank: the lowest blue, the highest red. Click a row to choose its item.",
    }
    texts = {
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
        + ". Coloured: indistinguishable from the best, which is recommended."
        + (f" The page leaves out the {left:,} lowest candidates." if left > 0 else ""),
        "more": joined(folded(section, draw) for section in sections),
    }
    levels = ", ".join(f"{test} {level:.3f}" for test, level in tests.items())
    method = (
        leaderboard.verdict,
        f"Intervals are over {leaderboard.unit} drawn again, for these data and models. A "
        "candidate is indistinguishable from the recommended one if the interval of their "
        f"difference, on the same {leaderboard.unit}, has 0.",
        "Gain: the score minus that of the plain cosine.",
        f"Chance level: {levels}.",
        "An item's neighbours are the nearest of all items. The address keeps the state.",
    )
    return framed_page("leaderboard", f"Comparison of {name}", texts, method, data, provenance)


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
    row: LeaderboardRow, leaderboard: Leaderboard, best: bool, place: Mapping[int, int]
) -> dict[str, Any]:
    candidate: Candidate = row.candidate
    example = leaderboard.examples.get(candidate)
    written: dict[str, Any] = {
        "measure": candidate.measure,
        "under": candidate.embeddings,
        "score": [round(number, 6) for number in row.score],
        "gain": [round(number, 6) for number in row.gain],
        "others": [round(number, 6) for number in row.other_scores.values()],
        "ties": candidate in (leaderboard.recommended, *leaderboard.not_distinguishable),
        "best": best,
        "map": None,
    }
    if example is not None:
        written |= {
            "map": encoded(example.ranks, "u1"),
            "lists": [[place[j] for j in line] for line in example.neighbors.tolist()],
            "values": [
                [float(f"{score:.4g}") if np.isfinite(score) else None for score in line]
                for line in example.scores.tolist()
            ],
        }
    return written
