"""The frame of pages with a script: texts in HTML, one block of data as JSON, styles and scripts.

A page has no network: its Content-Security-Policy allows these scripts and styles by their digests,
and nothing else. Texts are escaped, and no text of the data ends the block that holds it.
"""

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

import numpy as np
import numpy.typing as npt

from fastcos.plots.html.markup import Markup, element, joined
from fastcos.plots.html.page import own_style, whole_page
from fastcos.validation import Integers

# styles of each page, after the one of all reports
_STYLES = {"explore": ("explore.css",), "leaderboard": ("explore.css", "leaderboard.css")}


def framed_page(
    kind: str,
    title: str,
    texts: Mapping[str, str],
    method: Sequence[str],
    data: Mapping[str, Any],
    provenance: Mapping[str, Any] | None,
) -> str:
    """Return the page of a kind: its frame with these texts, then data and script.

    texts: by their names in the frame, escaped unless they are Markup. method: sentences that say
    how to read the page.
    """
    script = _read("parts.js") + _read(f"{kind}.js")
    style = own_style() + "".join(map(_read, _STYLES[kind]))
    written = {name: joined([text]) for name, text in texts.items()}
    written["method"] = joined(element("p", line) for line in method)
    # in one pass: a text may look like a name of the frame
    frame = re.sub(r"\{\{(\w+)\}\}", lambda place: written[place[1]], _read(f"{kind}.html"))
    # an HTML parser ends a script at </script, whatever its type
    block = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    block = block.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    policy = (
        f"default-src 'none'; script-src {_digest(script)}; style-src {_digest(style)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    metas = f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
    metas += '<link rel="icon" href="data:,">'
    scripts = f'<script type="application/json" id="data">{block}</script><script>{script}</script>'
    main = element("main", Markup(frame))
    page = whole_page(title, style, main, provenance, metas=metas, scripts=scripts)
    # half a character, as in names of broken files, has no UTF-8; JSON reads it as it is written
    return page.encode("utf8", "backslashreplace").decode("utf8")


def encoded(values: npt.ArrayLike, dtype: str = "<f4") -> str:
    """Return numbers as base64 of little-endian float32, or of another type."""
    return base64.b64encode(np.ascontiguousarray(values, dtype=dtype).tobytes()).decode("ascii")


def item_fields(numbers: Integers, names: Any, labels: Any) -> dict[str, Any]:
    """Return what a page says of items: names, codes and names of labels, where labels change.

    names and labels are those of all items, by number; None for none, and for no label.
    """
    order = numbers.tolist()
    shown = [f"item {number}" if names is None else str(names[number]) for number in order]
    if labels is None:
        return {"names": shown, "labels": None, "classes": None, "boundaries": []}
    known = [None if labels[number] is None else str(labels[number]) for number in order]
    classes = sorted({label for label in known if label is not None})
    code = {label: place for place, label in enumerate(classes)}
    codes = [-1 if label is None else code[label] for label in known]
    return {"names": shown, "labels": codes, "classes": classes, "boundaries": boundaries(codes)}


def boundaries(codes: Sequence[int]) -> list[float]:
    """Return where the label changes in a sequence, as shares of its length."""
    changes = (np.flatnonzero(np.diff(codes)) + 1) / len(codes)
    return changes.round(6).tolist()


def _read(name: str) -> str:
    return resources.files("fastcos.plots.html").joinpath(name).read_text("utf8")


def _digest(text: str) -> str:
    """The source expression of an inline script or style that has exactly this text."""
    digest = base64.b64encode(hashlib.sha256(text.encode("utf8")).digest()).decode("ascii")
    return f"'sha256-{digest}'"
