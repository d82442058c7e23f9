"""A headless Chromium for tests of pages.

The browser loads only local files, and records the messages in its console.
"""

import contextlib
import json
import shutil
import tempfile
import time

import pytest

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip

# Each value is a name that contains markup. If a page took the name as markup, the page would run a
# script, load a resource, or break.
KINDS = {
    "ends a script": "</script><img src=x onerror=alert(1)>",
    "ends a title": "</title><script>alert(1)</script>",
    "opens a comment": "<!-- <script>",
    "loads": "<link rel=stylesheet href=//example.com><iframe src=//example.com>",
    "ends an attribute": "\"' onmouseover=alert(1) x='",
    "entities": "&lt;script&gt;&#60;b&#62;",
    "a name of the frame": "{{method}}",
    "a template of JavaScript": "${alert(1)}`;alert(1);//",
    "line separators": "\u2028line\u2029end\nnext",
    "an address": "javascript:alert(1)",
    "no character": "\x00\x1b[31m\ufeff",
    "half a character": "half \ud800 of two",
}
HOSTILE = list(KINDS.values())


@contextlib.contextmanager
def opened_browser():
    """Yield a driver; skip the test if selenium, chromium or chromedriver is missing."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    from selenium.webdriver.chrome.service import Service

    program = shutil.which("chromium") or shutil.which("chromium-browser")
    driver = shutil.which("chromedriver")
    if program is None or driver is None:
        pytest.skip("chromium and chromedriver are not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        browser = webdriver.Chrome(options=options, service=Service(driver))
        try:
            yield browser
        finally:
            browser.quit()


def resize(browser, width, height=1400, *, dark=False):
    """Set the size of the page in CSS pixels; a page can be narrower than the narrowest window."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})


def load(browser, page, folder, fragment="", *, ready="explore"):
    """Open a page, and wait until its script has created its object."""
    (folder / "page.html").write_text(page, "utf8")
    browser.get("about:blank")
    browser.get_log("performance")  # empties the log
    browser.get(f"file://{folder}/page.html{fragment}")
    wait(browser, f"return Boolean(window.{ready})")


def wait(browser, script, seconds=20):
    end = time.monotonic() + seconds
    while not browser.execute_script(script):
        assert time.monotonic() < end, script
        time.sleep(0.02)


def text(browser, name):
    return browser.execute_script("return document.getElementById(arguments[0]).textContent", name)


def check_silent(browser):
    """Check that the console has no message, and that only the file itself was requested."""
    assert browser.get_log("browser") == []
    sent = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    urls = [
        one["params"]["request"]["url"]
        for one in sent
        if one["method"] == "Network.requestWillBeSent"
    ]
    assert [url for url in urls if not url.startswith(("file:", "data:", "about:"))] == []
    assert browser.execute_script("return performance.getEntriesByType('resource').length") == 0
