"""HTML pages that show results without a network: reports, and pages with controls."""

from fastcos.plots.html.explore import figure_page, items_page
from fastcos.plots.html.leaderboard import leaderboard_page
from fastcos.plots.html.report_pages import audit_page, calibration_page

__all__ = ["audit_page", "calibration_page", "figure_page", "items_page", "leaderboard_page"]
