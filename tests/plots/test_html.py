"""The page of an audit is complete, safe, self-contained and accessible."""

import re
import shutil
import subprocess
from html import escape
from html.parser import HTMLParser

import markupsafe
import numpy as np
import pytest

from fastcos import compare_vectors
from fastcos.auditing.item_audit import audit
from fastcos.auditing.model_diff import diff_models
from fastcos.plots.html import audit_page, leaderboard_page
from fastcos.reports import Section, Table

VOID = {"input", "link", "meta"}


class Reader(HTMLParser):
    """Checks that tags are closed in order, and keeps the tags and the text."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.open, self.seen, self.text = [], [], []

    def handle_starttag(self, tag, attributes):
        self.seen.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def read(page):
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert reader.open == []
    return reader


@pytest.fixture(scope="module")
def full():
    rng = np.random.default_rng(1)
    items, users = rng.standard_normal((150, 6)), rng.standard_normal((80, 6))
    labels = rng.integers(0, 3, 150)
    items[:, 0] += labels
    items[7] = 0
    items[9] = items[8]
    report = audit(items, users, labels=labels, popularity=np.arange(1, 151), k=5, condition=1.3)
    diff = diff_models(items * [1, 2, 3, 4, 5, 6], items, k=5)
    return report, diff


@pytest.fixture(scope="module")
def page(full):
    report, diff = full
    return audit_page(report, name="<i>&x", diff=diff, provenance={"versions": {"a": "1"}})


def test_page_has_all_sections_and_numbers(full, page):
    report, diff = full
    page = read(page)
    text = " ".join("".join(page.text).split())
    assert report.verdict in text
    assert diff.verdict in text
    assert all(line in text for line in report.advice)
    assert "<i>&x" in text
    for row in (*report.parametrizations, *report.invariant_baselines):
        assert row.name in text
        assert row.meaning in text
    assert f"{report.label_recovery.low:.3f}" in text
    assert f"{report.label_recovery.high:.3f}" in text
    assert f"{report.popularity.hubness_correlation:.3g}" in text
    assert "1 zero rows left out" in text
    assert "1 duplicate rows" in text
    assert sum(tag == "h2" for tag, _ in page.seen) == 10


def test_page_shows_a_sentence_a_figure_and_advice_and_folds_all_else(full, page):
    report, _ = full
    opened, _, folded = page.partition("<details")
    assert opened.count("<h1>") == 1
    assert report.headline in opened
    assert report.verdict not in opened
    assert opened.count("<figure>") == 1
    assert opened.count("<svg") == 2  # one drawing for wide and one for narrow windows
    assert "<table" not in opened
    assert all(f"<li>{markupsafe.escape(line)}</li>" in opened for line in report.advice)
    # The heading of each section states its result even before the section is opened.
    summaries = re.findall(r"<summary><h2>(.*?)</h2>(.*?)</summary>", folded)
    unanswered = [title for title, answer in summaries if not answer]
    assert unanswered == ["The answer in full", "How to read this"]


def test_page_is_self_contained(page):
    assert not re.search(r"https?://|url\((?!#)|@import|<script|<link|<img|\son\w+=", page)
    tags = {tag for tag, _ in read(page).seen}
    assert tags.isdisjoint({"script", "link", "img", "iframe", "object"})


def test_page_has_light_and_dark_wide_and_narrow(page):
    assert "prefers-color-scheme: dark" in page
    assert "max-width: 46rem" in page
    kinds = [a["class"] for tag, a in read(page).seen if tag == "svg"]
    assert kinds.count("wide") == kinds.count("narrow") == 3
    # Drawings use only the colours of the style sheet, so the drawings of a dark page are dark,
    # too.
    drawings = re.findall(r"<svg.*?</svg>", page, flags=re.DOTALL)
    assert not re.search(r"#[0-9a-f]{6}\b", "".join(drawings))
    ids = [name for drawing in drawings for name in set(re.findall(r'id="(\w+)"', drawing))]
    assert len(ids) == len(set(ids)) > 0


def test_figures_have_labels_and_tables_have_headings(page):
    seen = read(page).seen
    drawings = [attributes for tag, attributes in seen if tag == "svg"]
    assert all(a["role"] == "img" and len(a["aria-label"]) > 20 for a in drawings)
    n_tables = sum(tag == "table" for tag, _ in seen)
    assert n_tables == sum(tag == "caption" for tag, _ in seen) > 3
    assert all("scope" in attributes for tag, attributes in seen if tag == "th")
    assert ("html", {"lang": "en"}) in seen


def test_colours_have_contrast(page):
    schemes = re.findall(r":root \{(.*?)\}", page, flags=re.DOTALL)
    assert len(schemes) == 2
    for scheme in schemes:
        colours = dict(re.findall(r"--(\w+): (#[0-9a-f]{6});", scheme))
        for name in ("ink", "quiet", "main", "other", "third"):
            assert contrast(colours[name], colours["page"]) > 4.5


def contrast(one, other):
    """Return the contrast ratio of two colours, from relative luminances as in WCAG 2.2."""

    def luminance(colour):
        parts = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
        linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        return linear @ [0.2126, 0.7152, 0.0722]

    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.slow
def test_page_of_a_minimal_report():
    rng = np.random.default_rng(3)
    text = "".join(read(audit_page(audit(rng.standard_normal((30, 1)), k=3))).text)
    assert "nan" not in text.lower()
    wide = audit(rng.standard_normal((60, 70)), k=3)
    assert "The 6 smallest shares are not drawn" in "".join(read(audit_page(wide)).text)


def test_every_text_is_escaped():
    rows = np.random.default_rng(0).standard_normal((40, 3))
    leaderboard = compare_vectors(rows, np.argmax(rows, axis=1), measures=["dot"])
    table = Table("<table>", ("<head>", "<other>"), [("<first>", "<cell>")], "<more>")
    section = Section(
        "<title>x", ["<sentence>"], [table], {"<name>": "<value>"}, verdict="<verdict>"
    )
    page = leaderboard_page(
        leaderboard, names=["<i>"] * 40, name="<data>", sections=[section],
        provenance={"versions": {"<a>": "<version>"}},
    )  # fmt: skip
    read(page)
    for word in (
        "title>x", "sentence", "table>", "head>", "other", "first", "cell", "more", "name", "value",
        "verdict", "data>", "a>", "version",
    ):  # fmt: skip
        assert f"&lt;{word.replace('>', '&gt;')}" in page, word


@pytest.mark.slow
@pytest.mark.parametrize("width", [400, 1400])
def test_page_fits_the_browser_window(page, tmp_path, width):
    check_fits_the_window(page, tmp_path, width)


def check_fits_the_window(page, tmp_path, width):
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        pytest.skip("chromium is not there")
    measure = """<script>
      document.querySelectorAll("details").forEach(part => { part.open = true; });
      const shown = [...document.querySelectorAll("svg")].filter(s => s.clientWidth > 0);
      const small = [...document.querySelectorAll("svg text")].filter(
        t => t.getClientRects().length &&
          Math.hypot(t.getScreenCTM().c, t.getScreenCTM().d)
            * parseFloat(getComputedStyle(t).fontSize) < 11.9);
      parent.document.title = [document.documentElement.scrollWidth, innerWidth, shown.length,
                        small.length].join(" ");
    </script>"""
    # A window of headless Chromium is at least 500 points wide, so the page is shown in a narrower
    # frame.
    framed = escape(page.replace("</body>", measure + "</body>"))
    frame = f'<iframe style="width:{width}px;height:900px;border:0" srcdoc="{framed}"></iframe>'
    (tmp_path / "page.html").write_text(f"<title>none</title>{frame}", "utf8")
    done = subprocess.run(
        [browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
         "--window-size=1500,900", "--dump-dom", f"file://{tmp_path}/page.html"],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    title = re.search(r"<title>([\d ]+)</title>", done.stdout).group(1)
    content, window, shown, small = map(int, title.split())
    assert content <= window == width
    # Every chart has two drawings. Exactly one of them is shown, and its text is not scaled down.
    assert shown == page.count("<svg") // 2
    assert small == 0
