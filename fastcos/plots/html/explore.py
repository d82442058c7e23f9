"""Pages on which a reader moves D: the model of the paper (figure 1), and item embeddings.

The script of the page, explore.js, computes every cosine and score from the factors.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fastcos import validation
from fastcos.auditing.attacks import vertex_attack
from fastcos.auditing.certificates import certified_neighbors
from fastcos.comparison import Comparison
from fastcos.linalg import column_stats
from fastcos.metrics.labelled import check_same_length
from fastcos.neighbors.search import top_k
from fastcos.plots.html.frame import encoded, framed_page, item_fields
from fastcos.rescaling import CONDITION, as_condition, query_metric, rescalings
from fastcos.storage import memmap
from fastcos.validation import Floats, Integers

# ranks and factors of λ that the page of the paper offers besides its own
_RANKS = (2, 5, 10, 20, 50)
_LAMBDA_FACTORS = (0.01, 0.1, 1.0, 10.0, 100.0)
# exponents of the pad and its sliders: from minus this to this
_SPAN = 1
# milliseconds of the replay at each D, enough to read a sentence of 25 words
_REST = 6500
# users whose predictions are shown
_N_EXAMPLES = 3
# what the replay says, in its order: the two special cases of the paper around I, its end of 2.3,
# its remedies, its other model
_SENTENCES = {
    "orthonormal": "D = S^1/2 is the paper's first special case: items are singular vectors alone. "
    "With all dimensions, an item would be similar to itself only.",
    "identity": "D = I is the symmetric solution (Eq. 5). Nothing in the training prefers it.",
    "weights": "D = S^-1/2 is the second special case: the cosines compare rows of W = AB'.",
    "balanced": "D = Σ^-1/2 scales Eq. 1 as Eq. 2 scales its solution (end of section 2.3).",
    "data": "D = S^1/2 Σ^-1 compares columns of the data, as recommenders by a truncated SVD do.",
    "smoothed": "D = S^-1/2 Σ^-1 compares columns of the predictions: the remedy of section 3, for "
    "items.",
    "eq2": "Eq. 2 regularises both factors: its solution is unique. It is another model, marked "
    "at the nearest D.",
}
# most items of a page, and most numbers of their rows: 1.5 MB of its 2.5
_MOST_ITEMS = 2000
_MOST_NUMBERS = 280_000
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
# what the texts of both pages share: data for the script, and sentences to open
_DATA = {"span": _SPAN, "rest": _REST}
_METHOD = (
    "The query metric is the correlation over users of predicted scores. No D changes it.",
    "The address keeps the state: copy it to share what you see.",
)
_FIGURE_DATA = {
    "symbols": ["S", "Σ"],
    "background": "AUC",
    "replay": "Replay the paper",
    "fixedNote": "Both are computed here from the factors A D and B D⁻¹. The loss is that of "
    "Eq. 1; predictions are the three highest of X A B'.",
}
_FIGURE_TEXTS = {
    "name": "After Figure 1 of Steck, Ekanadham and Kallus (2024), arXiv:2403.05440",
    "headline": "One model, one loss, and cosines that are whatever D makes them.",
    "span": str(_SPAN),
    "pad_label": "D = Sᵃ Σᵇ: exponent a from left to right, b from bottom to top",
    "axis_a": "exponent a of S",
    "axis_b": "exponent b of Σ",
    "as_given": "under D = I",
    "certified_note": "",
    "map_caption": "Cosines of all pairs of items, by label, then by descending popularity.",
}
_FIGURE_METHOD = (
    "S = σ²/(σ²+λ) is the share of each direction that Eq. 1 keeps, Σ holds the singular values of "
    "the interactions. Items are V S^1/2 D^-1.",
    "AUC: the probability that two items of one label have a larger cosine than two of different "
    "labels; 0.5 is chance level. MAP@R: how much of each item's label stands at the top of its "
    "list. Accuracy: the ten nearest vote for the label.",
    "Other ranks are the first columns of the same decomposition; other λ change S. λ of Eq. 2 "
    "moves with it, so that both have their knee at the same singular value.",
)
_ITEMS_DATA = {"symbols": ["Q", "P"], "replay": "Replay"}
_ITEMS_TEXTS = {
    "headline": "The predictions stay. Do the neighbours?",
    "span": str(_SPAN),
    "pad_label": "D = Qᵃ Pᵇ: exponent a from left to right, b from bottom to top",
    "axis_a": "a, items' norms",
    "axis_b": "b, users' norms",
    "as_given": "as trained",
    "certified_note": "✓ certified: no rescaling of condition κ removes it. ✗ one does. "
    "? not known. The number: the smallest κ found that removes it.",
}
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
    decay, strength = comparison.parameters["weight_decay"], comparison.parameters["regularization"]
    data = {
        "kind": "paper",
        "item": 0,
        "given": order.tolist(),
        **item_fields(order, None, None if labels is None else [f"cluster {c}" for c in labels]),
        "width": rank,
        "rows": encoded(components.T[order]),
        "sigma": model.singular_values_.tolist(),
        "lambda": strength,
        "lambdas": sorted(
            {float(f"{strength * factor:.12g}") for factor in _LAMBDA_FACTORS} | {strength}
        ),
        "decay": decay,
        "ranks": sorted({rank, *(k for k in _RANKS if k < rank)}),
        "total": float(np.square(X.data, dtype=np.float64).sum()),
        "mean": (components @ column_stats.means(X)).tolist(),
        "users": n,
        "examples": [(components @ X[[user]].toarray()[0]).tolist() for user in examples],
        "exampleNames": [f"user {user}" for user in examples],
        "named": _named_of_the_paper(),
        **_FIGURE_DATA,
        **_DATA,
    }
    summary = (
        f"{n:,} users, {p:,} items, rank k = {rank}, λ = {strength:,.6g} of Eq. 1. D = Sᵃ Σᵇ "
        "multiplies the latent dimensions of the users and divides those of the items. Training "
        "does not determine it. Move it."
    )
    texts = {**_FIGURE_TEXTS, "summary": summary}
    method = (*_FIGURE_METHOD, *_METHOD)
    return framed_page("explore", "D in your hands", texts, method, data, provenance)


def _named_of_the_paper() -> list[dict[str, Any]]:
    """The named D and the solution of Eq. 2, in the order of the replay."""
    found = {one.name: one.rescaling for one in rescalings()}
    forms: dict[str, dict[str, Any]] = {
        name: {"formula": D.formula, "a": D.shrinkage, "b": D.spectrum} for name, D in found.items()
    }
    forms["eq2"] = {"formula": "unique", "unique": True}
    return [{"name": name, **forms[name], "sentence": text} for name, text in _SENTENCES.items()]


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

    Raises
    ------
    ValueError
        NaN or infinity; fewer than 2 items; an argument of another length.

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
    most = max(2, min(_MOST_ITEMS, _MOST_NUMBERS // d))
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
    own = None if users is None else _column_norms(users)
    data = {
        "kind": "items",
        "item": shown.tolist().index(first),
        "given": shown.tolist(),
        **item_fields(shown, names, labels),
        "width": d,
        "rows": encoded(chosen),
        "axes": [_logarithms(_column_norms(chosen)), None if own is None else _logarithms(own)],
        **_certificates(chosen, min(_K, len(shown) - 1), condition),
        **_of_users(chosen, users, min(_K, len(shown) - 1)),
        "background": "overlap with the trained neighbours" if codes is None else "AUC",
        "named": [one for one in _NAMED_OF_ITEMS if users is not None or one["b"] == 0],
        **_ITEMS_DATA,
        **_DATA,
    }
    texts = {
        **_ITEMS_TEXTS,
        "name": f"Neighbours of {name} under rescalings",
        "summary": f"{note} D multiplies the dimensions of the users and divides those of the "
        "items: no dot product changes, and cosines do.",
        "map_caption": f"Cosines of all pairs of items{'' if codes is None else ', by label'}.",
    }
    method = (*_ITEMS_METHOD, *_METHOD)
    return framed_page("explore", f"Rescalings of {name}", texts, method, data, provenance)


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


def _certificates(rows: Any, k: int, condition: float) -> dict[str, Any]:
    """Radii of the trained neighbours: certified, and at which an attack removed them."""
    # a search up to the condition decides there exactly, one far beyond gives the other radii
    far = max(_FAR, condition)
    found = [certified_neighbors(rows, k, far, family="rescaling").radius]
    found.append(certified_neighbors(rows, k, condition, family="rescaling").radius)
    attacked = vertex_attack(rows, k, far).radius
    certified = np.fmax(*found)
    return {
        "k": k,
        "condition": condition,
        "most": far,
        "certified": encoded(certified, "<f8"),
        "attacked": encoded(attacked, "<f8"),
    }


def _of_users(rows: Any, users: Any, k: int) -> dict[str, Any]:
    """Example users, and neighbours by the query metric."""
    if users is None:
        return {"examples": [], "exampleNames": [], "query": None, "fixedNote": _WITHOUT_USERS}
    n = len(users)
    places = sorted({(n * i) // (_N_EXAMPLES + 1) for i in range(1, _N_EXAMPLES + 1)})
    examples = memmap.take_rows("users", users, np.array(places)).astype(np.float64)
    found = top_k(query_metric(users).transform(rows), k=k)
    return {
        "examples": examples.tolist(),
        "exampleNames": [f"user {place}" for place in places],
        "fixedNote": "Predictions are dot products, computed here from the users D and the items "
        "D⁻¹.",
        "query": {
            "lists": found.indices.tolist(),
            "scores": [round(score, 6) for score in found.scores.ravel().tolist()],
        },
    }


def _column_norms(rows: Any) -> Floats:
    """Norms of the columns, in float64, in blocks of rows."""
    squares = np.zeros(rows.shape[1])
    for _, block in memmap.iter_blocks("rows", rows, _BLOCK):
        squares += np.square(block, dtype=np.float64).sum(axis=0)
    return np.asarray(np.sqrt(squares))


def _logarithms(norms: Floats) -> list[float]:
    """Their logarithms; 0 for a zero column, which no D changes."""
    return np.log(np.where(norms > 0, norms, 1.0)).tolist()  # type: ignore[no-any-return]


def _example_users(X: Any) -> list[int]:
    """Users with about as many interactions as the quartiles: few, some and many."""
    sizes = np.diff(X.indptr)
    order = np.argsort(sizes, kind="stable")
    places = (len(order) * np.arange(1, _N_EXAMPLES + 1)) // (_N_EXAMPLES + 1)
    return list(dict.fromkeys(order[places].tolist()))
