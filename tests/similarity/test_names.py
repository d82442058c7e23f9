"""docs/reference/names.md lists the names in the literature, and refers to public objects.

The tests contain a list of all names, so a test fails if a row of the page is lost.
"""

import csv
import inspect
import re
from pathlib import Path

import pytest

import fastcos
from fastcos.comparison.models import PREPROCESSINGS
from fastcos.models import preprocessing
from tests.similarity.test_entry_points import NAMES as MEASURES

LIST = Path(__file__).parents[1] / "data" / "measures.csv"
PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "names.md").read_text("utf8")
BEFORE_A_MODEL = [
    "none",
    "standardize_columns",
    "center_columns",
    "center_rows",
    "double_center",
    "normalize_rows",
    "ips_columns",
    "ips_rows",
    "correspondence_scaling",
    "shifted_ppmi",
]
TRAINING = [
    "objective_dropout",
    "objective_weight_decay",
    "cosine_mf",
    "train_layer_norm",
    "ips_weighting",
    "negative_sampling",
    "info_nce",
    "norm_penalty",
]
DIAGNOSTICS = [
    "unbounded_range",
    "fisher_z_interval",
    "cosine_interval",
    "tv_index",
    "certified_neighbors:kappa_star",
    "certified_neighbors:joint_certificate",
    "certified_neighbors:refined_certificate",
    "vertex_attack",
    "robustness_curve",
    "family_spread",
    "recovery_range",
    "random_basis_null",
    "rescaling_distance",
    "noise_equilibrium",
    "model_change",
    "mean_cosine",
    "isoscore",
    "effective_rank",
    "participation_ratio",
    "hubness:skewness",
    "hubness:antihub_share",
    "hubness:robin_hood",
    "popularity_bias:frequency",
    "popularity_bias:norm_correlation",
    "popularity_bias:hubness_correlation",
    "pair_auc",
    "stratified_auc",
    "neighbor_purity",
    "map_at_r",
    "silhouette",
    "within_between",
    "clustering_scores:ari",
    "clustering_scores:ami",
    "jaccard_at_k",
    "overlap_at_k",
    "rank_biased_overlap",
    "rsa",
    "cka",
    "cca_similarity",
    "procrustes",
    "trustworthiness",
]
NAMES = [*BEFORE_A_MODEL[1:], "canonicalize", *TRAINING, *DIAGNOSTICS]
ROWS = dict(re.findall(r"^\| `([^`]+)` \|.*?([^|]*) \|$", PAGE, re.MULTILINE))


def test_names_page_has_every_name_and_no_other():
    assert len(NAMES) == 10 + 8 + 41
    assert sorted(ROWS) == sorted(NAMES)


def test_names_are_those_of_the_list():
    with LIST.open(encoding="utf8") as file:
        listed = [row["name"] for row in csv.DictReader(file)]
    known = {*NAMES, *MEASURES}
    assert set(listed) == known, "tests/data/measures.csv has a row for each measure and name"
    assert len(listed) == len(known)


@pytest.mark.parametrize("name", NAMES)
def test_names_page_refers_to_public_objects(name):
    """Each path on the page exists in fastcos, and each keyword is an argument of its function."""
    homes = re.findall(r"`([^`]+)`", ROWS[name])
    assert homes
    for home in homes:
        path, _, arguments = home.partition("(")
        result = fastcos
        for part in path.removeprefix("preprocessing.").split("."):
            result = _member(preprocessing if path.startswith("preprocessing.") else result, part)
        for keyword in re.findall(r"(\w+)=", arguments):
            assert keyword in inspect.signature(result).parameters, home


def _member(owner, name):
    if hasattr(owner, name):
        return getattr(owner, name)
    # If a field of a data class has no default value, the field exists only as an annotation.
    assert name in owner.__annotations__, f"{owner} has no {name}"
    return owner.__annotations__[name]


def test_compare_knows_every_preprocessing():
    assert sorted(PREPROCESSINGS) == sorted(BEFORE_A_MODEL)
