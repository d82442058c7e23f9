"""Reports of an audit and of a calibration as HTML pages: no network, no script, light and dark."""

from fastcos.plots.html.calibration_page import calibration_page
from fastcos.plots.html.report_page import audit_page

__all__ = ["audit_page", "calibration_page"]
