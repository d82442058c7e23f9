"""The report of an audit as one HTML page: no network, no script, light and dark."""

from fastcos.plots.html.report_page import audit_page

__all__ = ["audit_page"]
