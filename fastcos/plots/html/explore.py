"""Pages on which a reader moves D: the model of the paper (figure 1), and item embeddings.

The script of the page, explore.js, computes every cosine and score from the factors.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.optimize import lsq_linear

from fastcos import validation
from fastcos.auditing.attacks import vertex_attack
from fastcos.auditing.certificates import certified_neighbors
from fastcos.comparison import Comparison
from fastcos.linalg import column_stats
from fastcos.metrics.labelled import check_same_length
from fastcos.parallel import memmap
from fastcos.plots.html.item_fields import encoded, item_fields
from fastcos.plots.html.page import page_with_script
from fastcos.similarity.canonical import query_metric
from fastcos.similarity.cosine_bounds import CONDITION, as_condition
from fastcos.similarity.diagonal import rescalings
from fastcos.validation import Floats, Integers

# ranks and factors of λ that the page of the paper offers besides its own
_RANKS = (2, 5, 10, 20, 50)
_LAMBDA_FACTORS = (0.01, 0.1, 1.0, 10.0, 100.0)
# milliseconds of the replay at each D, enough to read a sentence of 25 words
_REST = 6500
# users whose predictions are shown
_N_EXAMPLES = 3
# what the replay says, in its order: the two special cases of the paper around I, its end of 2.3,
# its remedies, its other model
_SENTENCES = {
    "orthonormal": "D = S^1/2 is the paper's first special case: items are singular vectors alone. "
    "With all dimensions, an item would be similar to itself only.",
    "identity": "D = I is the symmetric solution (Eq. 5). The loss does not prefer it.",
    "weights": "D = S^-1/2 is the second special case: the cosines compare rows of W = AB'.",
    "balanced": "D = Σ^-1/2 scales Eq. 1 as Eq. 2 scales its solution (end of section 2.3).",
    "data": "D = S^1/2 Σ^-1 compares columns of the data, as recommenders by a truncated SVD do.",
    "smoothed": "D = S^-1/2 Σ^-1 compares columns of the predictions: the remedy of section 3, for "
    "items.",
    "eq2": "Eq. 2 regularises both factors: its solution is unique. It is another model, marked "
    "at the nearest D.",
}
# most items of a page, and most numbers of their rows and of the users' root: 1.5 MB of its 2.5
_MOST_ITEMS = 2000
_MOST_NUMBERS = 280_000
# multiply-adds of one heat map: 1,000 x 1,000 cosines of 50 columns, 30 ms on a core of 2024
_MAP_WORK = 25e6
# neighbours of an item
_K = 10
# rescalings up to this condition are searched for a neighbour's removal
_FAR = 10.0
# rows that are squared at once
_BLOCK = 8192
_NAMED_OF_ITEMS: tuple[dict[str, Any], ...] = (
    {"name": "as trained", "formula": "I", "a": 0, "b": 0,
     "sentence": "D = I: the items as they were given."},
    {"name": "unit columns", "formula": "Q", "a": 1, "b": 0,
     "sentence": "D = Q: each dimension of the items has the same norm."},
    {"name": "balanced", "formula": "Q^1/2 P^-1/2", "a": 0.5, "b": -0.5,
     "sentence": "D = Q^1/2 P^-1/2: both sides have columns of equal norm, as after weight decay "
     "on both."},
    {"name": "users' scale", "formula": "P^-1", "a": 0, "b": -1,
     "sentence": "D = P^-1: each dimension counts as much as the users vary in it."},
)  # fmt: skip
# what both pages say to open
_METHOD = (
    "The query metric is the correlation over users of predicted scores. No D changes it.",
    "The address keeps the state: copy it to share what you see.",
)
_FIGURE_METHOD = (
    "S = σ²/(σ²+λ) is the share of each direction that Eq. 1 keeps, Σ holds the singular values of "
    "the interactions. Items are V S^1/2 D^-1.",
    "AUC: the probability that two items of one label have a larger cosine than two of different "
    "labels; 0.5 is chance level. MAP@R: how much of each item's label stands at the top of its "
    "list. Accuracy: the ten nearest vote for the label.",
    "Other ranks are the first columns of the same decomposition; other λ change S. λ of Eq. 2 "
    "moves with it, so that both have their knee at the same singular value.",
)
_ITEMS_METHOD = (
    "Q and P hold the norms of the columns of the items and of the users. The condition κ of D is "
    "its largest entry over its smallest.",
    "Neighbours are those among the items of this page. A certificate is a proof; an attack is a D "
    "that was found; between the two nothing is known.",
)
_WITHOUT_USERS = (
    "Without users the page has no predictions, no query metric and no P: give --users."
)


def figure_page(
    comparison: Comparison, X: Any, *, provenance: Mapping[str, Any] | None = None
) -> str:
    """Return the page on which D = S^a Σ^b moves the cosines of one model: no network.

    comparison: of :func:`fastcos.compare` with both objectives, for the interactions X (n, p).
    provenance: as in :func:`items_page`.

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
    rank = int(np.count_nonzero(model.singular_values_))
    sigma, components = model.singular_values_[:rank], model.components_[:rank].astype(np.float64)
    decay, strength = comparison.parameters["weight_decay"], comparison.parameters["regularization"]
    strengths = sorted({float(f"{strength * factor:.12g}") for factor in _LAMBDA_FACTORS})
    ranks = sorted({rank, *(k for k in _RANKS if k < rank)})
    examples, named = _example_users(X), _named_of_the_paper()
    stride, caption = _drawn(len(order), rank)
    data = {
        "state": {
            "a": 0, "b": 0, "unique": False, "item": 0, "rank": rank,
            "lambda": float(f"{strength:.12g}"),
        },
        "given": order.tolist(),
        **item_fields(order, None, None if labels is None else [f"cluster {c}" for c in labels]),
        "width": rank,
        "stride": stride,
        "rows": encoded(components.T[order]),
        "models": [
            _model(sigma, one, decay * (np.sqrt(one / strength) if strength > 0 else 1.0), ranks)
            for one in strengths
        ],
        "sigma": sigma.tolist(),
        "total": float(np.square(X.data, dtype=np.float64).sum()),
        "root": encoded(_root_of_users(sigma, components @ column_stats.means(X), n)),
        "examples": [(components @ X[[user]].toarray()[0]).tolist() for user in examples],
        "exampleNames": [f"user {user}" for user in examples],
        "named": named,
        "own": 0.5,
        "symbols": ["S", "Σ"],
        "replay": "Replay the paper",
        "fixedNote": "Both are computed here from the factors A D and B D⁻¹. The loss is that of "
        "Eq. 1; predictions are the three highest of X A B'.",
        "uniqueNote": "Eq. 2 is another model: it has its own loss and predictions, and no D is "
        "free.",
        "background": "overlap with the neighbours under D = I" if labels is None else "AUC",
        "rest": _REST,
    }  # fmt: skip
    texts: dict[str, Any] = {
        "name": "After Figure 1 of Steck, Ekanadham and Kallus (2024), arXiv:2403.05440",
        "headline": "One model, one loss, and cosines that are whatever D makes them.",
        "axis_a": "exponent a of S",
        "axis_b": "exponent b of Σ",
        "as_given": "under D = I",
        "summary": f"{n:,} users, {p:,} items, rank k = {rank}, λ = {strength:,.6g} of Eq. 1. D = "
        "Sᵃ Σᵇ multiplies the latent dimensions of the users and divides those of the items. "
        "The loss does not determine it. Move it.",
        "map_caption": f"{caption}, {'' if labels is None else 'by label, then '}by descending "
        "popularity.",
        "D": "D = Sᵃ Σᵇ",
        "named": named,
        "has_model": True,
        "has_labels": labels is not None,
        "has_users": True,
        "has_condition": False,
        "most": "1",
        "ranks": ranks,
        "strengths": strengths,
        "method": (*_FIGURE_METHOD, *_METHOD),
    }
    return page_with_script(
        "explore", "D in your hands", provenance, styles=("explore.css",), data=data, **texts
    )


def _named_of_the_paper() -> list[dict[str, Any]]:
    """The named D and the solution of Eq. 2, in the order of the replay."""
    found = {one.name: one.rescaling for one in rescalings()}
    forms: dict[str, dict[str, Any]] = {
        name: {"formula": D.formula, "a": D.shrinkage, "b": D.spectrum} for name, D in found.items()
    }
    forms["eq2"] = {"formula": "unique", "unique": True}
    return [{"name": name, **forms[name], "sentence": text} for name, text in _SENTENCES.items()]


def _model(sigma: Floats, strength: float, decay: float, ranks: list[int]) -> dict[str, Any]:
    """Logarithms of S and Σ for a λ of Eq. 1; of Eq. 2 the weights, and the nearest D by rank."""
    weights = np.sqrt(np.maximum(sigma - decay, 0.0))
    axes = np.log(np.stack([sigma**2 / (sigma**2 + strength), sigma]))
    return {
        "lambda": strength,
        "axes": axes.tolist(),
        "unique": weights.tolist(),
        "places": {rank: _nearest_place(axes[:, :rank], weights[:rank]) for rank in ranks},
    }


def _nearest_place(axes: Floats, weights: Floats) -> list[float]:
    """Exponents a and b for which V S^(1/2 - a) Σ^-b is nearest to V times a multiple of weights.

    By least squares of logarithms.
    """
    kept = weights > 0
    if not kept.any():
        return [0.0, 0.0]
    columns, goal = axes[:, kept].T, 0.5 * axes[0, kept] - np.log(weights[kept])
    found = lsq_linear(columns - columns.mean(axis=0), goal - goal.mean(), (-1, 1))
    return found.x.round(4).tolist()


def _root_of_users(sigma: Floats, mean: Floats, n: int) -> Floats:
    """L with LL' the covariance of n users X V, by their singular values and their mean."""
    values, vectors = np.linalg.eigh(np.diag(sigma**2 / n) - np.outer(mean, mean))
    return vectors * np.sqrt(np.maximum(values, 0.0))


def items_page(
    items: Any,
    users: Any = None,
    *,
    names: Any = None,
    labels: Any = None,
    popularity: Any = None,
    rows: Any = None,
    name: str = "item embeddings",
    condition: float = CONDITION,
    provenance: Mapping[str, Any] | None = None,
) -> str:
    """Return the page on which a reader rescales given items: no network.

    D = Q^a P^b, with the norms of the columns of the items (Q) and of the users (P) on their
    diagonals: a = 1 divides the items by the norms of their columns, b = -1 multiplies them by
    those of the users. Neighbours are those among the items of the page.

    Parameters
    ----------
    items : array_like (p, d), float32 or float64
        Item embeddings, at least 2.
    users : array_like (n, d), optional
        User or query embeddings: for b, the query metric and predictions.
    names : sequence (p,), optional
        What to call the items. Default: their numbers.
    labels : sequence (p,) of int or str, optional
        One label per item; None for no label.
    popularity : array_like (p,), optional
        Chooses the items of the page where they do not all fit.
    rows : array_like, optional
        Numbers of the items of the page, in place of the most popular.
    name : str
        What the items are, such as a file name.
    condition : float
        Of the rescalings that certificates refer to at first.
    provenance : mapping, optional
        Parameters, versions and machine, for the foot of the page.

    Returns
    -------
    str
        HTML with its script and data: at most 2,000 items and 2.5 MB. It says what it left out.

    Notes
    -----
    A neighbour is certified where its radius by :func:`fastcos.certified_neighbors` exceeds the
    condition, and lost where :func:`fastcos.auditing.vertex_attack` removed it at most there.

    Examples
    --------
    >>> import numpy as np
    >>> from fastcos.plots.html import items_page
    >>> items = np.random.default_rng(0).standard_normal((40, 4))
    >>> page = items_page(items, names=[f"film <{i}>" for i in range(40)])
    >>> page.count("film <"), page.count("<script")
    (0, 2)
    """
    given = memmap.as_mapped_rows("items", items)
    p, d = given.shape
    if p < 2:
        raise ValueError(f"items must have at least 2 rows, got {p}")
    condition = as_condition("condition", condition)
    if users is not None:
        users = memmap.as_mapped_rows("users", users)
        validation.check_same_width("users", users, "items", given)
    if names is not None:
        names = [str(one) for one in validation.as_list("names", names)]
        check_same_length("names", len(names), "items", p)
    codes = None if labels is None else validation.as_partial_labels("labels", labels, p)
    if popularity is not None:
        popularity = validation.as_vector("popularity", popularity, p)
    most = _most_items(d, users is not None)
    shown, note = _shown_items(p, most, popularity, rows)
    first = int(shown[0])
    if codes is not None:
        labels = [
            None if code < 0 else label for code, label in zip(codes.tolist(), labels, strict=True)
        ]
        # unlabelled items come last
        group = np.where(codes[shown] < 0, codes.max() + 1, codes[shown])
        shown = shown[np.argsort(group, kind="stable")]
    chosen = memmap.take_rows("items", given, shown).astype(np.float32)
    validation.check_scorable("items", chosen, chosen)
    axes = [_logarithms(chosen), [0.0] * d if users is None else _logarithms(users)]
    # a search up to the condition decides there exactly, one far beyond gives the other radii
    far = max(_FAR, condition)
    stride, caption = _drawn(len(shown), d)
    named = [one for one in _NAMED_OF_ITEMS if users is not None or one["b"] == 0]
    data = {
        "state": {
            "a": 0, "b": 0, "unique": False, "item": shown.tolist().index(first), "rank": d,
            "lambda": None, "condition": condition,
        },
        "given": shown.tolist(),
        **item_fields(shown, names, labels),
        "width": d,
        "stride": stride,
        "rows": encoded(chosen),
        "models": [{"lambda": None, "axes": axes}],
        **_certificates(chosen, min(_K, len(shown) - 1), condition, far),
        **_of_users(users, chosen),
        "background": "overlap with the trained neighbours" if codes is None else "AUC",
        "named": named,
        "own": 0,
        "replay": "Replay",
        "symbols": ["Q"] if users is None else ["Q", "P"],
        "rest": _REST,
    }  # fmt: skip
    texts: dict[str, Any] = {
        "headline": "The predictions stay. Do the neighbours?",
        "axis_a": "a, items' norms",
        "axis_b": "b, users' norms",
        "as_given": "as trained",
        "name": f"Neighbours of {name} under rescalings",
        "summary": f"{note} D multiplies the dimensions of the users and divides those of the "
        "items: no dot product changes, and cosines do.",
        "map_caption": f"{caption}{'' if codes is None else ', by label'}.",
        "D": "D = Qᵃ Pᵇ",
        "named": named,
        "has_model": False,
        "has_labels": codes is not None,
        "has_users": users is not None,
        "has_condition": True,
        "most": f"{far:g}",
        "ranks": (),
        "strengths": (),
        "method": (*_ITEMS_METHOD, *_METHOD),
    }
    title = f"Rescalings of {name}"
    return page_with_script(
        "explore", title, provenance, styles=("explore.css",), data=data, **texts
    )  # fmt: skip


def _shown_items(p: int, most: int, popularity: Any, rows: Any) -> tuple[Integers, str]:
    """Numbers of the items of the page, most popular first, and a sentence about the others."""
    if rows is not None:
        shown = validation.as_item_numbers("rows", rows, p)
        if not 2 <= len(shown) <= most:
            raise ValueError(f"rows must be 2 to {most} items of this width, got {len(shown)}")
        return shown, f"{len(shown):,} of {p:,} items, as named."
    order = np.arange(p) if popularity is None else np.argsort(-popularity, kind="stable")
    if p <= most:
        return order, f"All {p:,} items."
    which = "first" if popularity is None else "most popular"
    hint = " (--popularity chooses the most popular)" if popularity is None else ""
    left = f"The {most:,} {which} of {p:,} items{hint}; the page leaves out {p - most:,}."
    return order[:most], left


def _most_items(d: int, users: bool) -> int:
    """Items of a page by their width; the users' root has d x min(d, items) numbers."""
    fit = max(_MOST_NUMBERS // d - d, _MOST_NUMBERS // (2 * d)) if users else _MOST_NUMBERS // d
    return max(2, min(_MOST_ITEMS, fit))


def _drawn(n: int, width: int) -> tuple[int, str]:
    """Every how many of n items of a width the heat map draws one, and its caption."""
    stride = math.ceil(n / math.sqrt(2 * _MAP_WORK / width))
    return stride, f"Cosines of all pairs of {'items' if stride == 1 else f'one item in {stride}'}"


def _certificates(rows: Any, k: int, condition: float, far: float) -> dict[str, Any]:
    """Radii of the trained neighbours: certified, and at which an attack removed them."""
    found = [certified_neighbors(rows, k, far, family="rescaling").radius]
    found.append(certified_neighbors(rows, k, condition, family="rescaling").radius)
    attacked = vertex_attack(rows, k, far).radius
    return {
        "certified": encoded(np.fmax(*found), "<f8"),
        "attacked": encoded(attacked, "<f8"),
    }


def _of_users(users: Any, items: Any) -> dict[str, Any]:
    """Example users, and a root of the covariance of all.

    With fewer items than columns the covariance is that in the span of the items: its products
    with them are the same, and its root is as narrow as there are items.
    """
    if users is None:
        return {"examples": [], "exampleNames": [], "root": None, "fixedNote": _WITHOUT_USERS}
    n = len(users)
    places = sorted({(n * i) // (_N_EXAMPLES + 1) for i in range(1, _N_EXAMPLES + 1)})
    examples = memmap.take_rows("users", users, np.array(places)).astype(np.float64)
    root = query_metric(users).factor
    if len(items) < root.shape[1]:
        span = np.linalg.qr(items.T.astype(np.float64))[0]
        root = span @ np.linalg.qr(root.T @ span)[1].T
    # in float32; cosines do not depend on its scale
    root = root / (np.abs(root).max(initial=0.0) or 1.0)
    return {
        "examples": examples.tolist(),
        "exampleNames": [f"user {place}" for place in places],
        "fixedNote": "Predictions are dot products, computed here from the users D and the items "
        "D⁻¹.",
        "root": encoded(root),
    }


def _logarithms(rows: Any) -> list[float]:
    """Of the norms of the columns, in blocks of rows; 0 for a zero column, which no D changes."""
    squares = np.zeros(rows.shape[1])
    for _, block in memmap.iter_blocks("rows", rows, _BLOCK):
        squares += np.square(block, dtype=np.float64).sum(axis=0)
    return (0.5 * np.log(np.where(squares > 0, squares, 1.0))).tolist()


def _example_users(X: Any) -> list[int]:
    """Users with about as many interactions as the quartiles: few, some and many."""
    sizes = np.diff(X.indptr)
    order = np.argsort(sizes, kind="stable")
    places = (len(order) * np.arange(1, _N_EXAMPLES + 1)) // (_N_EXAMPLES + 1)
    return list(dict.fromkeys(order[places].tolist()))
