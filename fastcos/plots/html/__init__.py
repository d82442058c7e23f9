"""A card as one HTML page that needs nothing else: no network, no script, light and dark."""

from fastcos.plots.html.report_page import audit_page

__all__ = ["audit_page"]
