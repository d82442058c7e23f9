"""Pages that need no network: reports, and pages with which a reader plays."""

from fastcos.plots.html.calibration_page import calibration_page
from fastcos.plots.html.explore import figure_page, items_page
from fastcos.plots.html.leaderboard import leaderboard_page
from fastcos.plots.html.report_page import audit_page

__all__ = ["audit_page", "calibration_page", "figure_page", "items_page", "leaderboard_page"]
