"""The figures, as display objects: made from a result, drawn on request, never shown by themselves.

Figures are made without pyplot, so importing or drawing changes no global state of matplotlib.
"""

from fastcos.plots.exponent_grid import ExponentGridDisplay
from fastcos.plots.leaderboard import LeaderboardDisplay
from fastcos.plots.similarity_maps import SimilarityMapsDisplay, similarity_image

__all__ = ["ExponentGridDisplay", "LeaderboardDisplay", "SimilarityMapsDisplay", "similarity_image"]
