"""Pages on which a reader can apply rescalings to the paper's model, or to item embeddings.

The script of both pages, explore.js, computes every cosine and score from the factors.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

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
from fastcos.similarity.rescalings import rescalings
from fastcos.validation import Floats, Integers

# A reader of the page that figure_page returns can change the model in two ways. The rank can be
# reduced to one of _RANKS. The λ can be multiplied by one of _LAMBDA_FACTORS.
_RANKS = (2, 5, 10, 20, 50)
_LAMBDA_FACTORS = (0.01, 0.1, 1.0, 10.0, 100.0)
# The replay shows each rescaling D for this number of milliseconds. In this time, a reader can read
# a sentence of 25 words.
_REST = 6500
# The number of users whose predictions a page shows.
_N_EXAMPLES = 3
# The sentences that the page shows while it replays the rescalings, in the order of the replay. The
# replay begins with the first special case of the paper, and ends with the model of Eq. 2.
_SENTENCES = {
    "orthonormal": "D = S^1/2 is the paper's first special case: the items are the right "
    "singular vectors, which are not scaled. If the model had full rank, an item would be similar "
    "only to itself.",
    "identity": "D = I is the symmetric solution (Eq. 5 of the paper). With every other D, "
    "the loss is the same.",
    "weights": "D = S^-1/2 is the paper's second special case: the cosines compare the rows of "
    "W = AB'.",
    "balanced": "With D = Σ^-1/2, the dimensions of Eq. 1 are scaled as in the solution of Eq. 2 "
    "(end of section 2.3 of the paper).",
    "data": "With D = S^1/2 Σ^-1, the cosines compare the columns of the data. Recommenders that "
    "use a truncated SVD make the same comparison.",
    "smoothed": "With D = S^-1/2 Σ^-1, the cosines compare the columns of the predictions. To "
    "compare users, the remedy in section 3 of the paper compares the rows of the predictions.",
    "eq2": "Eq. 2 regularises both factors, so its solution is unique. Eq. 2 is another model. "
    "The mark shows the D with which the solution of Eq. 1 is closest to the solution of Eq. 2.",
}
# A page shows at most _MAX_ITEMS items. Moreover, a page stores at most _MAX_NUMBERS entries: those
# of the rows of its items, and those of the matrix L of the users (_user_fields). As base64,
# 280,000 entries take 1.5 MB of a page of 2.5 MB.
_MAX_ITEMS = 2000
_MAX_NUMBERS = 280_000
# Largest number of multiply-adds for one heat map. A heat map of 1,000 x 1,000 cosines of rows with
# 50 columns needs this number of multiply-adds, because the map is symmetric and only half of its
# cosines are computed. One core of a processor from 2024 computes this heat map in 30 ms.
_MAP_WORK = 25e6
# The number of neighbours that a page shows for an item.
_K = 10
# An attack looks for a rescaling that removes a neighbour. The condition number of the rescaling is
# at most _FAR or the argument ``condition`` of items_page, whichever is larger.
_FAR = 10.0
# The number of rows of a memory map that are read at a time.
_BLOCK = 8192
_NAMED_OF_ITEMS: tuple[dict[str, Any], ...] = (
    {"name": "as trained", "formula": "I", "a": 0, "b": 0,
     "sentence": "D = I: the items are shown as they were trained."},
    {"name": "unit columns", "formula": "Q", "a": 1, "b": 0,
     "sentence": "D = Q: all dimensions of the items have the same norm."},
    {"name": "balanced", "formula": "Q^1/2 P^-1/2", "a": 0.5, "b": -0.5,
     "sentence": "D = Q^1/2 P^-1/2: in each dimension, users and items have the same norm, as "
     "after training with weight decay on users and items."},
    {"name": "users' scale", "formula": "P^-1", "a": 0, "b": -1,
     "sentence": "D = P^-1: each dimension of the items is multiplied by the norm of the same "
     "dimension of the users."},
)  # fmt: skip
# Explanations that a reader can unfold on every page that this module writes.
_METHOD = (
    "The query metric of two items is the correlation of their predicted scores over all users. No "
    "D changes the query metric.",
    "The address of the page stores what the page shows. Copy the address to share what you see.",
)
_FIGURE_METHOD = (
    "The diagonal matrix Σ contains the singular values of the interactions. Eq. 1 multiplies "
    "each direction by a factor of at most 1; the diagonal matrix S = Σ²/(Σ²+λ) contains these "
    "factors. The matrix V contains the right singular vectors of the interactions. The items are "
    "the rows of V S^1/2 D^-1.",
    "The AUC is the probability that two items with the same label have a larger cosine than two "
    "items with different labels. An AUC of 0.5 is chance level. MAP@R measures how many of the "
    "nearest neighbours of an item have the label of this item. For the accuracy, the label of "
    "each item is predicted: the prediction is the most frequent label of its ten nearest items. "
    "The accuracy is the share of items whose predicted label is correct.",
    "If you choose another rank, the page uses the first columns of the same singular value "
    "decomposition. If you choose another λ for Eq. 1, S changes, and the λ of Eq. 2 changes, too. "
    "Both equations therefore suppress the directions whose singular values are below about the "
    "same limit.",
)
_ITEMS_METHOD = (
    "The diagonal matrix Q contains the norms of the columns of the items, and P contains the "
    "norms of the columns of the users. "
    "The condition κ of D is its largest entry divided by its smallest.",
    "Neighbours are searched among the items of this page. A certificate proves that a neighbour "
    "survives every D up to a given condition. An attack is a D that removes a neighbour. If the "
    "page shows neither a certificate nor an attack for a neighbour, it is unknown whether any D "
    "removes this neighbour.",
)
_WITHOUT_USERS = (
    "The page shows no predictions, no query metric and no P, because all three need the "
    "embeddings of the users. Pass the embeddings of the users by --users."
)


def figure_page(
    comparison: Comparison, X: Any, *, provenance: Mapping[str, Any] | None = None
) -> str:
    """Return a page on which a reader can rescale a model by D = S^a Σ^b.

    The page needs no network. ``comparison`` is the result of :func:`fastcos.compare` with both
    objectives, for the interactions X (n, p). ``provenance`` has the same meaning as in
    :func:`items_page`.

    Examples
    --------
    >>> import fastcos
    >>> from fastcos.plots.html import figure_page
    >>> data = fastcos.simulate_interactions(300, 60, random_state=0)
    >>> comparison = fastcos.compare(
    ...     data.X, data.item_cluster, n_components=8, measures=["cosine"]
    ... )
    >>> page = figure_page(comparison, data.X)
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
    examples, named_rescalings = _example_users(X), _named_of_the_paper()
    stride, caption = _map_stride(len(order), rank)
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
            _model(sigma, value, decay * (np.sqrt(value / strength) if strength else 1.0), ranks)
            for value in strengths
        ],
        "sigma": sigma.tolist(),
        "total": float(np.square(X.data, dtype=np.float64).sum()),
        "root": encoded(_root_of_users(sigma, components @ column_stats.means(X), n)),
        "examples": [(components @ X[[user]].toarray()[0]).tolist() for user in examples],
        "exampleNames": [f"user {user}" for user in examples],
        "named": named_rescalings,
        "own": 0.5,
        "symbols": ["S", "Σ"],
        "replay": "Replay the paper",
        "fixedNote": "The rescaled factors are A D and B D^-1. From these factors, the page "
        "computes the loss of Eq. 1 and the predictions X A B'. For each user, the page shows the "
        "three highest predictions.",
        "uniqueNote": "Eq. 2 is another model, with its own loss and its own predictions. The "
        "solution of Eq. 2 leaves no choice of D.",
        "background": "overlap with the neighbours under D = I" if labels is None else "AUC",
        "rest": _REST,
    }  # fmt: skip
    texts: dict[str, Any] = {
        "name": "After Figure 1 of Steck, Ekanadham and Kallus (2024), arXiv:2403.05440",
        "headline": "One model and one loss, but D decides what the cosines are.",
        "axis_a": "exponent a of S",
        "axis_b": "exponent b of Σ",
        "as_given": "under D = I",
        "summary": f"{n:,} users, {p:,} items, rank k = {rank}, λ = {strength:,.6g} in Eq. 1. "
        "The rescaling D = S^a Σ^b multiplies each latent dimension of the users, and divides the "
        "same dimension of the items. The loss does not determine D. Drag the point to change D.",
        "map_caption": f"{caption}, sorted {'' if labels is None else 'by label, then '}by "
        "descending popularity.",
        "D": "D = S^a Σ^b",
        "named": named_rescalings,
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
    """Return the named rescalings and the solution of Eq. 2, in the order of the page."""
    forms: dict[str, dict[str, Any]] = {
        named.name: {
            "formula": named.rescaling.formula,
            "a": named.rescaling.shrinkage,
            "b": named.rescaling.spectrum,
        }
        for named in rescalings()
    }
    forms["eq2"] = {"formula": "unique", "unique": True}
    return [{"name": name, **forms[name], "sentence": text} for name, text in _SENTENCES.items()]


def _model(sigma: Floats, strength: float, decay: float, ranks: list[int]) -> dict[str, Any]:
    """Return the data for one λ.

    The data contain ln S and ln Σ for Eq. 1, and the weights for Eq. 2. For each rank, the data
    also contain the two exponents of one rescaling D. This D makes the model of Eq. 1 as similar as
    possible to the solution of Eq. 2.
    """
    weights = np.sqrt(np.maximum(sigma - decay, 0.0))
    axes = np.log(np.stack([sigma**2 / (sigma**2 + strength), sigma]))
    return {
        "lambda": strength,
        "axes": axes.tolist(),
        "unique": weights.tolist(),
        "places": {rank: _nearest_place(axes[:, :rank], weights[:rank]) for rank in ranks},
    }


def _nearest_place(axes: Floats, weights: Floats) -> list[float]:
    """Return the exponents a and b of the rescaling that is nearest to the solution of Eq. 2.

    The fit compares the scales of the columns of V S^(1/2 - a) Σ^-b with the scales of the columns
    of V diag(weights), and ignores a common factor of all scales. The fit minimises the sum of the
    squared differences between the logarithms of these scales. Both exponents lie between -1 and 1.
    """
    from scipy.optimize import lsq_linear  # Importing it takes 0.3 s, so it is deferred.

    positive = weights > 0
    if not positive.any():
        return [0.0, 0.0]
    columns, goal = axes[:, positive].T, 0.5 * axes[0, positive] - np.log(weights[positive])
    fit = lsq_linear(columns - columns.mean(axis=0), goal - goal.mean(), (-1, 1))
    return fit.x.round(4).tolist()


def _root_of_users(sigma: Floats, mean: Floats, n: int) -> Floats:
    """Return a matrix L such that L L' is the covariance of the n rows of X V, which are the users.

    `sigma` contains the singular values of X, and `mean` is the mean of the rows of X V.
    """
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
    """Return a page on which a reader can rescale item embeddings; the page needs no network.

    The rescaling is D = Q^a P^b. The diagonal matrix Q contains the norms of the columns of the
    items, and P contains the norms of the columns of the users. With a = 1, each column of the
    items is divided by its norm. With b = -1, each column of the items is multiplied by the norm of
    the same column of the users. The page searches for the neighbours of an item only among the
    items on the page.

    Parameters
    ----------
    items : array_like (p, d), float32 or float64
        Embeddings of at least 2 items.
    users : array_like (n, d), optional
        User or query embeddings. The page can show the exponent b, the query metric and the
        predictions only if ``users`` is passed.
    names : sequence (p,), optional
        Names of the items; by default, a name consists of the word item and the row number.
    labels : sequence (p,) of int or str, optional
        One label per item; None stands for no label.
    popularity : array_like (p,), optional
        Popularity of each item. If not all items fit, the page shows the most popular items or,
        without ``popularity``, the first items.
    rows : array_like, optional
        Row numbers of the items that the page shows. By default, the page shows all items or, if
        not all items fit, the most popular items.
    name : str
        A name for the set of items, such as a file name.
    condition : float
        The condition number κ when the page opens. Certificates refer to all rescalings with
        condition numbers of at most κ.
    provenance : mapping, optional
        Parameters, versions and machine, which are printed at the foot of the page.

    Returns
    -------
    str
        An HTML page with a script and the data of at most 2,000 items; the data take at most
        2.5 MB. A sentence on the page states how many items the page leaves out.

    Notes
    -----
    A reader can change the condition number κ on the page. The page marks a neighbour with ✓ if
    the radius that :func:`fastcos.certified_neighbors` returns for it exceeds κ. The page marks a
    neighbour with ✗ if :func:`fastcos.auditing.vertex_attack` finds a rescaling with a condition
    number of at most κ that removes the neighbour.

    Examples
    --------
    >>> import numpy as np
    >>> from fastcos.plots.html import items_page
    >>> items = np.random.default_rng(0).standard_normal((40, 4))
    >>> page = items_page(items, names=[f"film <{i}>" for i in range(40)])
    >>> page.count("film <"), page.count("<script")
    (0, 2)
    """
    item_rows = memmap.as_mapped_rows("items", items)
    p, d = item_rows.shape
    if p < 2:
        raise ValueError(f"items must have at least 2 rows, got {p}")
    condition = as_condition("condition", condition)
    if users is not None:
        users = memmap.as_mapped_rows("users", users)
        validation.check_same_width("users", users, "items", item_rows)
    if names is not None:
        names = [str(item_name) for item_name in validation.as_list("names", names)]
        check_same_length("names", len(names), "items", p)
    codes = None if labels is None else validation.as_partial_labels("labels", labels, p)
    if popularity is not None:
        popularity = validation.as_vector("popularity", popularity, p)
    max_items = _max_items(d, users is not None)
    page_items, note = _page_items(p, max_items, popularity, rows)
    first = int(page_items[0])
    if codes is not None:
        labels = [
            None if code < 0 else label for code, label in zip(codes.tolist(), labels, strict=True)
        ]
        # Items without a label follow the items with a label.
        group = np.where(codes[page_items] < 0, codes.max() + 1, codes[page_items])
        page_items = page_items[np.argsort(group, kind="stable")]
    page_rows = memmap.take_rows("items", item_rows, page_items).astype(np.float32)
    validation.check_scorable("items", page_rows, page_rows)
    axes = [_log_norms(page_rows), [0.0] * d if users is None else _log_norms(users)]
    # Two searches are made. The first search considers condition numbers up to `condition`, which
    # is the κ that the page shows at first. It decides exactly which neighbours survive all
    # rescalings with a condition number of at most κ. The second search considers condition numbers
    # up to `far_condition`, and finds the radii of the surviving neighbours.
    far_condition = max(_FAR, condition)
    stride, caption = _map_stride(len(page_items), d)
    named_rescalings = [D for D in _NAMED_OF_ITEMS if users is not None or D["b"] == 0]
    data = {
        "state": {
            "a": 0, "b": 0, "unique": False, "item": page_items.tolist().index(first), "rank": d,
            "lambda": None, "condition": condition,
        },
        "given": page_items.tolist(),
        **item_fields(page_items, names, labels),
        "width": d,
        "stride": stride,
        "rows": encoded(page_rows),
        "models": [{"lambda": None, "axes": axes}],
        **_certificates(page_rows, min(_K, len(page_items) - 1), condition, far_condition),
        **_user_fields(users, page_rows),
        "background": "overlap with the trained neighbours" if codes is None else "AUC",
        "named": named_rescalings,
        "own": 0,
        "replay": "Replay",
        "symbols": ["Q"] if users is None else ["Q", "P"],
        "rest": _REST,
    }  # fmt: skip
    texts: dict[str, Any] = {
        "headline": "No D changes the predictions. Does D change the neighbours?",
        "axis_a": "a, items' norms",
        "axis_b": "b, users' norms",
        "as_given": "as trained",
        "name": f"Neighbours of {name} under rescalings",
        "summary": f"{note} D multiplies the dimensions of the users, and divides the same "
        "dimensions of the items. Dot products of users and items stay the same, but cosines "
        "change.",
        "map_caption": f"{caption}{'' if codes is None else ', sorted by label'}.",
        "D": "D = Q^a P^b",
        "named": named_rescalings,
        "has_model": False,
        "has_labels": codes is not None,
        "has_users": users is not None,
        "has_condition": True,
        "most": f"{far_condition:g}",
        "ranks": (),
        "strengths": (),
        "method": (*_ITEMS_METHOD, *_METHOD),
    }
    title = f"Rescalings of {name}"
    return page_with_script(
        "explore", title, provenance, styles=("explore.css",), data=data, **texts
    )  # fmt: skip


def _page_items(p: int, max_items: int, popularity: Any, rows: Any) -> tuple[Integers, str]:
    """Return the row numbers of the items on the page, and a sentence about the choice of items."""
    if rows is not None:
        numbers = validation.as_item_numbers("rows", rows, p)
        if not 2 <= len(numbers) <= max_items:
            got = len(numbers)
            raise ValueError(
                f"rows must select 2 to {max_items} items, got {got}. The more columns the items "
                "have, the fewer items fit on the page"
            )
        return numbers, f"The page shows the {len(numbers):,} selected items of {p:,}."
    order = np.arange(p) if popularity is None else np.argsort(-popularity, kind="stable")
    if p <= max_items:
        return order, f"The page shows all {p:,} items."
    n_shown = f"{max_items:,}"
    choice = f"first {n_shown}" if popularity is None else f"{n_shown} most popular"
    hint = " To show the most popular items, pass --popularity." if popularity is None else ""
    left_out = f"leaves out the other {p - max_items:,}"
    note = f"The page shows the {choice} of {p:,} items and {left_out}.{hint}"
    return order[:max_items], note


def _max_items(d: int, users: bool) -> int:
    """Return how many items fit on a page if their embeddings have d columns.

    If there are users, the page also contains a matrix L for which L L' is the covariance of the
    users. L consists of d x min(d, items) numbers.
    """
    fit = max(_MAX_NUMBERS // d - d, _MAX_NUMBERS // (2 * d)) if users else _MAX_NUMBERS // d
    return max(2, min(_MAX_ITEMS, fit))


def _map_stride(n: int, width: int) -> tuple[int, str]:
    """Return s if the heat map shows every s-th item, and return the caption of the heat map."""
    stride = math.ceil(n / math.sqrt(2 * _MAP_WORK / width))
    sample = "" if stride == 1 else f" (one item in {stride} is shown)"
    return stride, f"Cosines of all pairs of items{sample}"


def _certificates(rows: Any, k: int, condition: float, far: float) -> dict[str, Any]:
    """Return the certified radii and the attack radii of the neighbours of the unscaled items."""
    far_radius = certified_neighbors(rows, k, far, family="rescaling").radius
    near_radius = certified_neighbors(rows, k, condition, family="rescaling").radius
    attack_radius = vertex_attack(rows, k, far).radius
    return {
        "certified": encoded(np.fmax(far_radius, near_radius), "<f8"),
        "attacked": encoded(attack_radius, "<f8"),
    }


def _user_fields(users: Any, items: Any) -> dict[str, Any]:
    """Return example users, and a matrix L ("root") for which L L' is the covariance of all users.

    If there are fewer items than columns, the covariance C is projected onto the span of the items.
    The projection does not change x'C y for any items x and y. After the projection, L has only one
    column per item.
    """
    if users is None:
        return {"examples": [], "exampleNames": [], "root": None, "fixedNote": _WITHOUT_USERS}
    n = len(users)
    numbers = sorted({(n * i) // (_N_EXAMPLES + 1) for i in range(1, _N_EXAMPLES + 1)})
    examples = memmap.take_rows("users", users, np.array(numbers)).astype(np.float64)
    root = query_metric(users).factor
    if len(items) < root.shape[1]:
        span = np.linalg.qr(items.T.astype(np.float64))[0]
        root = span @ np.linalg.qr(root.T @ span)[1].T
    # Dividing L by its largest entry makes L fit into float32, and does not change the cosines.
    root = root / (np.abs(root).max(initial=0.0) or 1.0)
    return {
        "examples": examples.tolist(),
        "exampleNames": [f"user {number}" for number in numbers],
        "fixedNote": "The page computes the predictions as dot products of the rescaled users and "
        "items.",
        "root": encoded(root),
    }


def _log_norms(rows: Any) -> list[float]:
    """Return the logarithms of the norms of the columns; 0 for a zero column."""
    squares = np.zeros(rows.shape[1])
    for _, block in memmap.iter_blocks("rows", rows, _BLOCK):
        squares += np.square(block, dtype=np.float64).sum(axis=0)
    return (0.5 * np.log(np.where(squares > 0, squares, 1.0))).tolist()


def _example_users(X: Any) -> list[int]:
    """Return three users whose numbers of interactions are near the quartiles."""
    sizes = np.diff(X.indptr)
    order = np.argsort(sizes, kind="stable")
    quartiles = (len(order) * np.arange(1, _N_EXAMPLES + 1)) // (_N_EXAMPLES + 1)
    return list(dict.fromkeys(order[quartiles].tolist()))
