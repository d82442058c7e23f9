"""Comparison of similarity measures under the rescalings of a model, to recommend one of them.

A candidate consists of a similarity measure, a rescaling D of the item embeddings, and a
preprocessing of the interactions X. A task gives every candidate one score per unit. The units of a
task are labelled items, users with held-out interactions, or pairs with ratings. The leaderboard
ranks the candidates by their mean score, with bootstrap intervals, and recommends at most one
candidate. The lead of the best candidate over the cosine is cross-fitted: each half of the units
chooses the best candidate, and the other half measures the lead of this candidate.

The functions ``compare`` (for interactions) and ``compare_vectors`` call the following modules:

- ``models`` fits a model of each objective from one SVD; only ``compare`` needs this module.
- ``candidates`` selects, for each D, the measures for which all required data are present.
- ``tasks`` scores the candidates on ``LabelTask``, ``HeldOutTask`` or ``PairTask``.
- ``scoring`` computes the scores of a fitted measure for blocks of queries and items.
- ``runner`` evaluates all candidates, in this process or on workers.
- ``bootstrap`` computes intervals and cross-fitted leads, and tests the best candidate.
- ``leaderboard`` contains the ranking, the conclusion and the recommendation.
- ``rescaling_table`` scores the cosine of a model under every D, as in the table of the paper.
- ``examples`` finds the nearest neighbours of the example items under every candidate.

``Comparison`` contains the leaderboard, the table of scores by rescaling, and the models.
``choose_rank`` recommends the number of latent dimensions of a model.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastcos.comparison.candidates import EQ2 as EQ2, Candidate as Candidate
    from fastcos.comparison.examples import Example as Example
    from fastcos.comparison.interactions import compare as compare
    from fastcos.comparison.leaderboard import (
        Leaderboard as Leaderboard,
        LeaderboardRow as LeaderboardRow,
    )
    from fastcos.comparison.rank import RankChoice as RankChoice, choose_rank as choose_rank
    from fastcos.comparison.result import (
        Comparison as Comparison,
        RescalingScores as RescalingScores,
    )
    from fastcos.comparison.vectors import compare_vectors as compare_vectors

# A name is imported when it is first used, so that a command that needs only the list of candidates
# does not wait for the import of scikit-learn.
_NAMES_OF = {
    "candidates": ("EQ2", "Candidate"),
    "examples": ("Example",),
    "interactions": ("compare",),
    "leaderboard": ("Leaderboard", "LeaderboardRow"),
    "rank": ("RankChoice", "choose_rank"),
    "result": ("Comparison", "RescalingScores"),
    "vectors": ("compare_vectors",),
}
_MODULE_OF = {name: module for module, names in _NAMES_OF.items() for name in names}

__all__ = [
    "EQ2",
    "Candidate",
    "Comparison",
    "Example",
    "Leaderboard",
    "LeaderboardRow",
    "RankChoice",
    "RescalingScores",
    "choose_rank",
    "compare",
    "compare_vectors",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
