"""Take the screenshots of these pages: python docs/screenshots.py NAME=PAGE.html[#STATE] ...

NAME is explore_light or audit_page. The script requires chromium, chromedriver and the extra
"browser" of fastcos.
"""

import base64
import io
import sys
import time
from pathlib import Path

from PIL import Image

FOLDER = Path(__file__).parent / "figures"
sys.path.insert(0, str(FOLDER.parents[1]))
# For each NAME: the width and the height in CSS pixels, and whether the reader prefers a dark page.
VIEWS = {
    "explore_light": (880, 1345, False),
    "audit_page": (800, 1320, False),
}
# The number of colours of an image. Heat maps need more colours than texts.
N_COLOURS = 256
# The seconds that fonts and transitions may take after the page has drawn everything.
PAUSE = 2.0
# JavaScript that returns whether the page has drawn everything, including what it draws piece by
# piece.
IS_DRAWN = "return (document.getElementById('pad')?.dataset.ready ?? 'true') === 'true'"


def main() -> None:
    """Open each page in a window of the size in VIEWS, and save a screenshot."""
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
            # MAXCOVERAGE chooses a palette that also contains rare deep colours, which the default
            # palette mostly lacks.
            kind = Image.Quantize.MAXCOVERAGE
            few = image.quantize(N_COLOURS, method=kind, kmeans=3, dither=Image.Dither.NONE)
            few.save(FOLDER / f"{name}.png", optimize=True)


if __name__ == "__main__":
    main()
