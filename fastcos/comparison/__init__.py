"""Which similarity to use: every measure, under every rescaling of a model, judged by one score.

``candidates`` and ``entrants`` say what is compared, ``recovery``, ``held_out`` and ``agreement``
how each one is scored unit by unit (items, users, pairs), ``ranking`` ranks them with intervals and
draws the conclusion, which ``standings`` hold. ``rescaled`` keeps the paper's own question: what
one model says of the same items under every D. ``interactions`` and ``vectors`` are the two ways
in.
"""

from fastcos.comparison.candidates import EQ2, Candidate
from fastcos.comparison.interactions import compare
from fastcos.comparison.leaderboard import Standing, Standings
from fastcos.comparison.result import Comparison, Scores
from fastcos.comparison.vectors import compare_vectors

__all__ = [
    "EQ2",
    "Candidate",
    "Comparison",
    "Scores",
    "Standing",
    "Standings",
    "compare",
    "compare_vectors",
]
