"""Takes the screenshots of these pages: python docs/screenshots.py NAME=PAGE.html[#STATE] ...

NAME is explore_light or audit_page. Needs chromium, chromedriver and the extra
"browser".
"""

import base64
import io
import sys
import time
from pathlib import Path

from PIL import Image

FOLDER = Path(__file__).parent / "figures"
sys.path.insert(0, str(FOLDER.parents[1]))
# Width and height in CSS pixels, and whether the reader prefers a dark page.
VIEWS = {
    "explore_light": (880, 1345, False),
    "audit_page": (800, 1320, False),
}
# The number of colours of a file; heat maps need more of them than texts.
N_COLOURS = 256
# Seconds to wait after everything has been drawn, for fonts and transitions.
PAUSE = 2.0
# Whether the page has drawn everything, also what it draws in small pieces.
IS_DRAWN = "return (document.getElementById('pad')?.dataset.ready ?? 'true') === 'true'"


def main() -> None:
    """Open each page, and save what a window of that size shows."""
    from tests.plots.browser import opened_browser, resize, wait

    with opened_browser() as browser:
        for argument in sys.argv[1:]:
            name, _, page = argument.partition("=")
            path, _, state = page.partition("#")
            width, height, dark = VIEWS[name]
            resize(browser, width, height, dark=dark)
            browser.get("about:blank")
            browser.get(f"file://{Path(path).absolute()}#{state}")
            wait(browser, IS_DRAWN, 60)
            time.sleep(PAUSE)
            shot = browser.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})
            image = Image.open(io.BytesIO(base64.b64decode(shot["data"]))).convert("RGB")
            # This palette covers all colours; the usual one lacks most rare deep colours.
            kind = Image.Quantize.MAXCOVERAGE
            few = image.quantize(N_COLOURS, method=kind, kmeans=3, dither=Image.Dither.NONE)
            few.save(FOLDER / f"{name}.png", optimize=True)


if __name__ == "__main__":
    main()
