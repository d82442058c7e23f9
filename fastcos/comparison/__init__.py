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

from fastcos.comparison.candidates import EQ2, Candidate
from fastcos.comparison.examples import Example
from fastcos.comparison.interactions import compare
from fastcos.comparison.leaderboard import Leaderboard, LeaderboardRow
from fastcos.comparison.rank import RankChoice, choose_rank
from fastcos.comparison.result import Comparison, RescalingScores
from fastcos.comparison.vectors import compare_vectors

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
