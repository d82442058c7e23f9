"""Tests of which names, parameters and custom measures the registry accepts or refuses."""

import csv
import inspect
from pathlib import Path

import numpy as np
import pytest

import fastcos
from fastcos import get_measure, list_measures, top_k
from fastcos.similarity import BaseMeasure, register, summaries
from fastcos.similarity.base import REGISTRY
from fastcos.similarity.rescalings import Rescaling
from tests.similarity.cases import model

# These measures score pairs of rows, and are used with rerank.
SCORERS = {"sts_score", "word_rotators_distance"}
LIST = Path(__file__).parents[1] / "data" / "measures.csv"

REFUSED = {
    ("soft_cosine", "S not PSD"): (
        {"matrix": [[1, 0.9, 0], [0.9, 1, 0.9], [0, 0.9, 1]]},
        r"matrix must be positive semidefinite, got the eigenvalue -0\.27",
    ),
    ("soft_cosine", "not symmetric"): ({"matrix": [[1, 0.5], [0, 1]]}, "must be symmetric"),
    ("soft_cosine", "not square"): ({"matrix": [[1.0, 0.5]]}, "must be square"),
    ("soft_cosine", "zero"): ({"matrix": np.zeros((2, 2))}, "must have a positive eigenvalue"),
    ("soft_cosine", "nothing"): (
        {},
        r'must be given, as in get_measure\("soft_cosine", matrix=\.\.\.\), got neither',
    ),
    ("scaled_similarity", "alpha"): ({"alpha": 1.1}, r"alpha must be .*<= 1.*got 1\.1"),
    ("scaled_similarity", "below"): ({"alpha": -0.1}, r"alpha must be .*>= 0.*got -0\.1"),
    ("radial_cosine", "power"): ({"power": -1}, "power must be .*>= 0"),
    ("norm_angle_distance", "weight"): ({"weight": 0}, "weight must be .*> 0.*got 0"),
    ("feature_augmented", "weight"): ({"weight": np.nan}, "weight must be a finite number"),
    ("csls", "K"): ({"n_neighbors": 0}, "n_neighbors must be a whole number"),
    ("all_but_the_top", "r"): ({"n_directions": 0.5}, "n_directions must be a whole number"),
    ("whitened_cosine", "ridge"): ({"ridge": -1}, "ridge must be"),
    ("whitened_cosine", "k"): ({"n_components": 0}, "n_components must be"),
    ("popularity_whitened_cosine", "none"): ({}, "popularity must be given"),
    ("learned_diagonal", "none"): ({}, "pairs must be given"),
    ("learned_diagonal", "shape"): ({"pairs": [1, 2]}, r"pairs must be whole numbers of shape"),
    ("learned_diagonal", "equal"): (
        {"pairs": [[0, 1], [1, 2]], "targets": [1, 1]},
        "targets must have two different values",
    ),
    ("learned_diagonal", "condition"): (
        {"pairs": [[0, 1], [1, 2]], "targets": [1, 0], "condition": 0.5},
        "condition must be .*>= 1",
    ),
    ("eq2_cosine", "lambda"): ({"regularization": -1}, "regularization must be"),
    ("query_metric_cosine", "other"): ({"other": [[np.inf]]}, "other must be finite"),
    ("rescaled_cosine", "name"): ({"rescaling": "none"}, "rescaling must be one of identity, "),
    ("rescaled_cosine", "alone"): ({"rescaling": Rescaling(0.5)}, "model must be given, as in get"),
}


@pytest.mark.parametrize("case", REFUSED, ids=" ".join)
def test_get_measure_refuses_invalid_parameters(case):
    parameters, message = REFUSED[case]
    with pytest.raises(ValueError, match=message):
        get_measure(case[0], **parameters)


REFUSED_ON_FIT = {
    ("whitened_cosine", "more dimensions than rows"): ({}, (5, 9), "must vary in all 9 dimensions"),
    ("whitened_cosine", "a single row"): ({}, (1, 3), "must differ from each other .* identical"),
    ("whitened_cosine", "too many components"): ({"n_components": 7}, (9, 3), "from 1 to 3, got 7"),
    ("causal_inner_product", "a single row"): ({}, (1, 3), "must differ from each other"),
    ("popularity_whitened_cosine", "length"): ({"popularity": [1.0]}, (9, 3), "of shape"),
    ("popularity_whitened_cosine", "negative"): (
        {"popularity": -np.ones(9)}, (9, 3), "at least 0 and not all 0",
    ),
    ("soft_cosine", "width"): ({"matrix": np.eye(4)}, (9, 3), "as many columns as matrix"),
    ("all_but_the_top", "all of them"): ({"n_directions": 3}, (9, 3), "from 0 to 2, got 3"),
    ("csls", "K"): ({"n_neighbors": 9}, (9, 3), r"n_neighbors must be at most .* \(8\), got 9"),
    ("project_back_items", "no other side"): ({}, (9, 3), "other must be given, as in get_measure"),
    ("query_metric_cosine", "width"): ({"other": np.ones((4, 2))}, (9, 3), "as many columns"),
    ("rescaled_cosine:data", "no model"): ({}, (9, 3), "model must be given"),
    ("rescaled_cosine", "width"): ({"rescaling": np.ones(2)}, (9, 3), r"of shape \(3,\)"),
    ("learned_diagonal", "numbers"): (
        {"pairs": [[0, 1], [1, 20]], "targets": [1, 0]},
        (9, 3),
        "pairs must be below 9",
    ),
    ("learned_diagonal", "zero rows"): (
        {"pairs": [[0, 1], [1, 2]], "targets": [1, 0]},
        (0, 9, 3),
        "pairs must contain at least one pair without a zero row, got a zero row in every pair",
    ),
    ("weight_cosine", "odd"): ({}, (9, 3), "even number of columns"),
    ("weight_cosine", "negative"): ({}, (9, 4), "W_ii must be at least 0 for each row"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED_ON_FIT, ids=" ".join)
def test_fit_refuses_unusable_items(case):
    parameters, (*zero, n, d), message = REFUSED_ON_FIT[case]
    rows = np.zeros((n, d)) if zero else np.random.default_rng(0).standard_normal((n, d))
    with pytest.raises(ValueError, match=message):
        top_k(rows, rows, 1, measure=get_measure(case[0], **parameters))


def class_of(name):
    """Return the class of a measure, even if the name of the measure fixes a parameter."""
    maker = REGISTRY[name]
    return getattr(maker, "func", maker)


@pytest.mark.parametrize("name", list_measures())
def test_measure_documents_itself(name):
    line = summaries()[name]
    assert 15 < len(line) <= 100
    assert line.endswith(".") or name == "sign_cosine"
    maker = class_of(name)
    assert isinstance(maker.needs, str)
    assert set(maker.invariances) <= {"y", "rank", "-"}
    parameters = set(inspect.signature(maker).parameters)
    documented = inspect.getdoc(maker).partition("Parameters\n-")[2]
    assert all(f"{parameter} : " in documented for parameter in parameters - {"args", "kwargs"})


def test_registry_has_every_listed_measure():
    with LIST.open(encoding="utf8") as file:
        rows = [row for row in csv.DictReader(file) if row["kind"] == "measure"]
    names = {row["name"] for row in rows} - SCORERS
    assert names <= set(list_measures())


def test_declared_invariances_are_those_of_the_list():
    with LIST.open(encoding="utf8") as file:
        rows = [row for row in csv.DictReader(file) if row["kind"] == "measure"]
    listed = {}
    for row in rows:
        cells = row["invariances"].split()[:6]
        if all(len(pair.split("=")) == 2 for pair in cells) and len(cells) == 6:
            listed[row["name"]] = dict(pair.rstrip(";").split("=") for pair in cells)
    assert len(listed) > 30
    for name, cells in listed.items():
        if name in SCORERS:
            continue
        maker = class_of(name)
        ours = maker.invariances._asdict()
        # The cells "only" and "-" of measures.csv mean the same: the measure is not invariant. In a
        # cell, the word "only" comes with a remark, such as "along (1,..,1)".
        differ = {cell for cell in cells if ours[cell] != cells[cell].replace("only", "-")}
        assert not differ, (
            f"{name}: the class declares {ours}, tests/data/measures.csv {cells}; one of them is "
            f"wrong about {', '.join(sorted(differ))} (fastcos.similarity.base.Invariances)"
        )


def test_get_measure_lists_known_names():
    with pytest.raises(ValueError, match="measure must be one of all_but_the_top, angular"):
        get_measure("cosin")


@pytest.mark.parametrize("name", sorted(SCORERS))
def test_get_measure_says_where_scorers_are(name):
    message = rf"measure must compare vectors, got '{name}': use rerank\(neighbors, \w+Scorer\("
    with pytest.raises(ValueError, match=message):
        get_measure(name)


def test_register_makes_a_class_known_by_name():
    @register
    class Reversed(BaseMeasure):
        """A cosine that reverses the entries of each item."""

        name = "reversed_for_a_test"

        def encode_items(self, B):
            return B[:, ::-1].copy()

        def encode_queries(self, Q):
            return Q

    try:
        result = top_k(np.array([[1.0, 0]]), np.eye(2), 1, measure="reversed_for_a_test")
        assert result.indices.tolist() == [[1]]
        assert "reversed_for_a_test" in list_measures()
    finally:
        del REGISTRY["reversed_for_a_test"]


def own(**members):
    """Return an instance of a new measure class with these members."""
    return type("Own", (BaseMeasure,), {"name": "own", **members})()


@pytest.mark.parametrize(
    ("measure", "error", "message"),
    [
        (
            own(encode_items=lambda self, B: np.where(B[5] == B, np.nan, B)),
            ValueError,
            r"rows of a measure must be finite, got NaN or infinity in row 5 \(the measure may",
        ),
        (
            own(encode_items=lambda self, B: B > 0),
            TypeError,
            r"rows of a measure must be a float32 or float64 array .* got bool of shape \(70, 6\)",
        ),
        (
            own(encode_items=lambda self, B: B[:, 0]),
            TypeError,
            r"\(n, d\), got float64 of shape \(70,\)",
        ),
        (own(encode_items=lambda self, B: B.tolist()), TypeError, r"got list of shape \(70, 6\)"),
        (
            own(metric_type="dot", item_bias=lambda self, B: B[:3, 0]),
            ValueError,
            r"item_bias of a measure must be float64 of shape \(70,\), got float64 of shape \(3",
        ),
        (
            own(
                metric_type="dot",
                item_bias=lambda self, B: np.where(B[:, 0] == B[4, 0], np.inf, 0.0),
            ),
            ValueError,
            "item_bias of a measure must be finite, got inf for row 4",
        ),
        (
            own(metric_type="cosin"),
            ValueError,
            "metric_type of own must be one of dot, cosine, .*, got 'cosin'",
        ),
        (
            type("Nameless", (BaseMeasure,), {})(),
            TypeError,
            r"measure must be a name or a Measure \(name, metric_type, .*got Nameless",
        ),
    ],
)
def test_invalid_custom_measure_is_refused(measure, error, message):
    _, B = model()
    for call in (
        lambda: top_k(B, k=3, measure=measure),
        lambda: fastcos.SimilarityIndex(measure).fit(B).search(B, 3),
    ):
        with pytest.raises(error, match=message):
            call()
