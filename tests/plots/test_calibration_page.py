"""The page of a calibration is complete and safe, and shows the numbers of the result."""

import numpy as np
import pytest

from fastcos import audit, calibrate
from fastcos.auditing import calibrate_pairs, pairs_near
from fastcos.plots.html import audit_page, calibration_page
from tests.plots.test_html import check_fits_the_window, read


@pytest.fixture(scope="module")
def result():
    rows = np.random.default_rng(1).standard_normal((150, 6))
    rows[9] = rows[8]
    return calibrate(rows, condition=1.3, fpr=0.01, model="a<b@2"), rows


def text_of(page):
    return " ".join("".join(read(page).text).split())


@pytest.mark.slow
def test_page_has_all_sections_and_numbers(result):
    calibration, rows = result
    examples = pairs_near(rows, calibration.threshold())
    names = [f"<row {number}>" for number in range(150)]
    labelled = calibrate_pairs([0.9, 0.8, 0.3, 0.7, 0.2, 0.1], [1, 1, 1, 0, 0, 0])
    page = calibration_page(
        calibration, name="<i>&x", score=0.7, examples=examples, labels=(names, names),
        labelled=labelled, provenance={"versions": {"a": "1"}},
    )  # fmt: skip
    text = text_of(page)
    assert all(sentence in text for sentence in calibration.reading(0.7).split(". "))
    assert calibration.verdict in text
    assert calibration.rescaling.verdict in text
    assert f"{calibration.threshold(0.001):.3f}" in text
    assert f"<row {examples.queries[0]}>" in text
    assert "Labelled pairs" in text
    assert "model a<b@2" in text
    assert all(note in text for note in calibration.notes)
    assert "<script" not in page
    assert "http" not in page.replace("http://www.w3.org", "")


@pytest.mark.slow
def test_page_of_a_bare_calibration_leaves_sections_out(result):
    page = calibration_page(calibrate(result[1], measure="dot"))
    text = text_of(page)
    assert "free choice" not in text
    assert "Labelled" not in text
    assert "just above" not in text


@pytest.mark.slow
def test_page_without_a_tail_says_so():
    calibration = calibrate(np.repeat(np.eye(4), 30, axis=0))
    assert "No model of the tail was fitted" in text_of(calibration_page(calibration))


@pytest.mark.slow
def test_audit_page_shows_thresholds_beside_certificates(result):
    calibration, rows = result
    report = audit(rows, k=3, condition=1.3)
    text = text_of(audit_page(report, calibration=calibration))
    assert "Which threshold has which error rate?" in text
    assert f"{calibration.threshold(0.01):.3f}" in text
    assert "What threshold" not in text_of(audit_page(report))


@pytest.mark.slow
@pytest.mark.parametrize("width", [400, 1400])
def test_page_fits_the_browser_window(result, tmp_path, width):
    calibration, rows = result
    labelled = calibrate_pairs([0.9, 0.8, 0.3, 0.7, 0.2, 0.1], [1, 1, 1, 0, 0, 0])
    examples = pairs_near(rows, calibration.threshold())
    page = calibration_page(calibration, score=0.7, examples=examples, labelled=labelled)
    check_fits_the_window(page, tmp_path, width)
