"""Pages on which a reader moves D: the model of the paper (figure 1), and item embeddings.

A page is the frame explore.html, explore.css and explore.js, and one block of data as JSON. The
script computes every cosine and score from the factors. It has no network: the page's
Content-Security-Policy allows this script and these styles by their digests, and nothing else.
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

from fastcos.comparison import Comparison
from fastcos.linalg import column_stats
from fastcos.reports.markup import Markup, element, joined
from fastcos.reports.page import footer
from fastcos.rescaling import rescalings
from fastcos.validation import Integers

# ranks and factors of λ that the page of the paper offers besides its own
_RANKS = (2, 5, 10, 20, 50)
_LAMBDA_FACTORS = (0.01, 0.1, 1.0, 10.0, 100.0)
# milliseconds of the replay at each D, enough to read a sentence of 25 words
_REST = 6500
# users whose predictions are shown
_N_EXAMPLES = 3
# what the replay says, in the order of the paper: its two special cases, then its end of 2.3
_SENTENCES = {
    "identity": "D = I is the symmetric solution (Eq. 5). Nothing in the training prefers it.",
    "orthonormal": "D = S^1/2 is the paper's first special case: items are singular vectors alone. "
    "With all dimensions, an item would be similar to itself only.",
    "weights": "D = S^-1/2 is the second special case: the cosines compare rows of W = AB'.",
    "balanced": "D = Σ^-1/2 scales Eq. 1 as Eq. 2 scales its solution (end of section 2.3).",
    "data": "D = S^1/2 Σ^-1 compares columns of the data, as recommenders by a truncated SVD do.",
    "smoothed": "D = S^-1/2 Σ^-1 compares columns of the predictions: the remedy of section 3, for "
    "items.",
    "eq2": "Eq. 2 regularises both factors: its solution is unique. It is another model, marked "
    "at the nearest D.",
}
_TOUR = ("orthonormal", "identity", "weights", "balanced", "data", "smoothed", "eq2")


def figure_page(
    comparison: Comparison, X: Any, *, provenance: Mapping[str, Any] | None = None
) -> str:
    """Return the page on which D = S^a Σ^b moves the cosines of one model: no network.

    Parameters
    ----------
    comparison : Comparison
        The result of :func:`fastcos.compare` with both objectives.
    X : csr_array (n, p)
        The interactions that were compared.
    provenance : mapping, optional
        Parameters, versions and machine, for the foot of the page.

    Returns
    -------
    str
        HTML with its script and data.

    Examples
    --------
    >>> import fastcos
    >>> from fastcos.plots.html import figure_page
    >>> data = fastcos.simulate_interactions(300, 60, random_state=0)
    >>> found = fastcos.compare(data.X, data.item_cluster, n_components=8, measures=["cosine"])
    >>> page = figure_page(found, data.X)
    >>> "default-src 'none'" in page, page.count("<script")
    (True, 2)
    """
    model = comparison.models["dropout"]
    labels, popularity = comparison.labels, comparison.popularity
    n, p = X.shape
    order = np.argsort(-popularity, kind="stable")
    if labels is not None:
        order = order[np.argsort(labels[order], kind="stable")]
        order = order[labels[order] >= 0]
    rank = len(model.singular_values_)
    examples = _example_users(X)
    components = model.components_.astype(np.float64)
    named = [
        {"name": one.name, "formula": one.rescaling.formula, "a": one.rescaling.shrinkage,
         "b": one.rescaling.spectrum, "sentence": _SENTENCES[one.name]}
        for one in rescalings()
    ]  # fmt: skip
    named.append(
        {"name": "eq2", "formula": "unique", "unique": True, "sentence": _SENTENCES["eq2"]}
    )
    named.sort(key=lambda one: _TOUR.index(str(one["name"])))
    decay, strength = comparison.parameters["weight_decay"], comparison.parameters["regularization"]
    data = {
        "kind": "paper",
        "names": [f"item {number}" for number in order.tolist()],
        "given": order.tolist(),
        **_label_fields(labels, order, [f"cluster {c}" for c in range(_n_classes(labels))]),
        "width": rank,
        "rows": encoded(components.T[order]),
        "sigma": model.singular_values_.tolist(),
        "lambda": strength,
        "lambdas": sorted(
            {float(f"{strength * factor:.12g}") for factor in _LAMBDA_FACTORS} | {strength}
        ),
        "decay": decay,
        "ranks": sorted({rank, *(k for k in _RANKS if k < rank)}),
        "symbols": ["S", "Σ"],
        "span": 1,
        "total": float(np.square(X.data, dtype=np.float64).sum()),
        "mean": (components @ column_stats.means(X)).tolist(),
        "users": n,
        "examples": [(components @ X[[user]].toarray()[0]).tolist() for user in examples],
        "exampleNames": [f"user {user}" for user in examples],
        "named": named,
        "replay": "Replay the paper",
        "rest": _REST,
        "fixedNote": "Both are computed here from the factors A D and B D^-1. The loss is that of "
        "Eq. 1; predictions are the three highest of X A B'.",
    }
    texts = {
        "name": "Figure 1 of Steck, Ekanadham and Kallus (2024), arXiv:2403.05440",
        "headline": "One model, one loss, and cosines that are whatever D makes them.",
        "summary": f"{n:,} users, {p:,} items, rank k = {rank}, λ = {strength:,.6g} of Eq. 1. "
        f"D = Sᵃ Σᵇ multiplies the latent dimensions of the users and divides those of the "
        "items. Training does not determine it. Move it.",
        "pad_label": "D = Sᵃ Σᵇ: exponent a from left to right, b from bottom to top",
        "background": "Background: AUC of 120 items, 0.5 (dark) to 1 (bright).",
        "axis_a": "exponent a of S",
        "axis_b": "exponent b of Σ",
        "first_sentence": _SENTENCES["identity"],
        "as_given": "under D = I",
        "certified_note": "",
        "map_caption": "Cosines of all pairs of items, by label, then by descending popularity.",
    }
    method = (
        "S = σ²/(σ²+λ) is the share of each direction that Eq. 1 keeps, Σ holds the singular "
        "values of the interactions. Items are V S^1/2 D^-1.",
        "AUC: the probability that two items of one label have a larger cosine than two of "
        "different labels; 0.5 is chance level. MAP@R: how much of each item's label stands at the "
        "top of its list. Accuracy: the ten nearest vote for the label.",
        "Other ranks are the first columns of the same decomposition; other λ change S. λ of Eq. 2 "
        "moves with it, so that both have their knee at the same singular value.",
        "The query metric is the correlation over users of predicted scores. No D changes it.",
        "The address keeps the state: copy it to share what you see.",
    )
    return _document("D in your hands", texts, method, data, provenance)


def encoded(rows: npt.ArrayLike) -> str:
    """Return numbers as base64 of little-endian float32."""
    return base64.b64encode(np.ascontiguousarray(rows, dtype="<f4").tobytes()).decode("ascii")


def _n_classes(labels: Integers | None) -> int:
    return 0 if labels is None else int(labels.max()) + 1


def _label_fields(
    labels: Integers | None, order: Integers, classes: Sequence[str]
) -> dict[str, Any]:
    """Labels of the items in their order, names of the labels, and where the label changes."""
    if labels is None:
        return {"labels": None, "classes": None, "boundaries": []}
    shown = labels[order]
    boundaries = (np.flatnonzero(np.diff(shown)) + 1) / len(order)
    return {
        "labels": shown.tolist(),
        "classes": list(classes),
        "boundaries": boundaries.round(6).tolist(),
    }


def _example_users(X: Any) -> list[int]:
    """Users with about as many interactions as the quartiles: few, some and many."""
    sizes = np.diff(X.indptr)
    order = np.argsort(sizes, kind="stable")
    places = (len(order) * np.arange(1, _N_EXAMPLES + 1)) // (_N_EXAMPLES + 1)
    return list(dict.fromkeys(order[places].tolist()))


def _document(
    title: str,
    texts: Mapping[str, str],
    method: Sequence[str],
    data: Mapping[str, Any],
    provenance: Mapping[str, Any] | None,
) -> str:
    """Fill the frame with texts, and add styles, data and script."""
    frame = _read("fastcos.plots.html", "explore.html")
    script = _read("fastcos.plots.html", "explore.js")
    style = _read("fastcos.reports", "style.css") + _read("fastcos.plots.html", "explore.css")
    written = {name: joined([text]) for name, text in texts.items()}
    written |= {
        "span": Markup(data["span"]),
        "method": joined(element("p", line) for line in method),
    }
    # in one pass: a text may look like a name of the frame
    frame = re.sub(r"\{\{(\w+)\}\}", lambda place: written[place[1]], frame)
    # an HTML parser ends a script at </script, whatever its type
    block = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    block = block.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    policy = (
        f"default-src 'none'; script-src {_digest(script)}; style-src {_digest(style)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    head = element(
        "head",
        Markup('<meta charset="utf-8">'),
        Markup(f'<meta http-equiv="Content-Security-Policy" content="{policy}">'),
        Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Markup('<link rel="icon" href="data:,">'),
        element("title", title),
        Markup(f"<style>{style}</style>"),
    )
    body = element(
        "body",
        element("main", Markup(frame)),
        footer(provenance),
        Markup(f'<script type="application/json" id="data">{block}</script>'),
        Markup(f"<script>{script}</script>"),
    )
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


def _read(package: str, name: str) -> str:
    return resources.files(package).joinpath(name).read_text("utf8")


def _digest(text: str) -> str:
    """The source expression of an inline script or style that has exactly this text."""
    digest = base64.b64encode(hashlib.sha256(text.encode("utf8")).digest()).decode("ascii")
    return f"'sha256-{digest}'"
