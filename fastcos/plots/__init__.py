"""Figures of results, drawn by display objects like those of scikit-learn.

A display is created from a result. The method ``plot`` of a display draws the figure and returns
the display, without opening a window::

    result      LinearMF        Audit                Comparison            Leaderboard
                   |              |                      |                     |
    display     Rescalings-     Robustness-,         SimilarityMaps-,      Leaderboard-
                Display         DimensionShares-,    ExponentGrid-         Display
                                LabelRecovery-       Display
                                Display
                   |              |
    plot()      matplotlib      html.audit_page: one HTML page
                figure          with the same figures as SVG

``style`` contains the colours, the base class ``Display`` and the rc parameters, which are set only
while a figure is drawn. Figures are created without pyplot, so that importing this package or
drawing a figure changes no global state of matplotlib. :func:`fastcos.plots.html.audit_page`
returns the page of an audit, and :func:`fastcos.plots.html.calibration_page` returns the page of a
calibration. The page of a calibration shows the figures ``ScoreDistributionDisplay``,
``TailDisplay`` and ``OperatingCurveDisplay``.
"""

from fastcos.plots.calibration import OperatingCurveDisplay, ScoreDistributionDisplay, TailDisplay
from fastcos.plots.comparison import (
    ExponentGridDisplay,
    LeaderboardDisplay,
    RescalingsDisplay,
    SimilarityMapsDisplay,
    similarity_image,
)
from fastcos.plots.report import DimensionSharesDisplay, LabelRecoveryDisplay, RobustnessDisplay

__all__ = [
    "DimensionSharesDisplay",
    "ExponentGridDisplay",
    "LabelRecoveryDisplay",
    "LeaderboardDisplay",
    "OperatingCurveDisplay",
    "RescalingsDisplay",
    "RobustnessDisplay",
    "ScoreDistributionDisplay",
    "SimilarityMapsDisplay",
    "TailDisplay",
    "similarity_image",
]
