"""Every entry point accepts every measure by its name.

The entry points are top_k, blocks of scores, the index and its files, `compare` (with labels, with
held-out interactions, with given rows), and the commands `neighbors` and `compare`. The tests give
each measure the parameters that it requires. If parameters are missing, an error names them, and
says how to pass them.
"""

import csv
import json

import numpy as np
import pytest
import scipy.sparse as sp

import fastcos
from fastcos import SimilarityIndex, compare, compare_vectors, get_measure, top_k
from fastcos.cli.main import main
from tests.similarity.cases import mostly_slow

P, D, N_USERS = 24, 6, 26
RANDOM = np.random.default_rng(5)
ITEMS = RANDOM.standard_normal((P, D)) * np.linspace(1, 2, D) + 0.3
USERS = RANDOM.standard_normal((N_USERS, D))
LABELS = np.arange(P) % 3
PAIRS = np.stack([np.arange(60) % P, (np.arange(60) * 5 + 1) % P], axis=1)
RATINGS = np.arange(60) % 7 / 7
HALVES = np.hstack([ITEMS, ITEMS * RANDOM.uniform(0.5, 2, (1, D))])
X = sp.csr_array((RANDOM.random((N_USERS, P)) < 0.4).astype(float))
CLUSTERS = np.arange(P) % 4
RESCALINGS = ["identity", "orthonormal", "weights", "balanced", "smoothed", "data"]

# These measures need only rows.
ALONE = [
    "cosine", "dot", "angular", "neg_euclidean", "eq2_cosine", "rescaled_cosine",
    "rescaled_cosine:identity", "centered_cosine", "all_but_the_top", "whitened_cosine",
    "causal_inner_product", "ica_cosine", "unit_column_cosine", "zscore_cosine",
    "layer_norm_cosine", "spearman_dims", "recos", "radial_cosine", "scaled_similarity",
    "feature_augmented", "norm_angle_distance", "query_normalized", "csls", "local_scaling",
    "mutual_proximity", "dis_sim_local",
]  # fmt: skip
USER_ITEM = ["user_item_dot", "user_item_cosine"]
# rows, and required parameters
WITH = {
    "weight_cosine": (HALVES, {}),
    "project_back_users": (USERS, {"other": ITEMS}),
    "project_back_items": (ITEMS, {"other": USERS}),
    "query_metric_cosine": (ITEMS, {"other": USERS}),
    "soft_cosine": (ITEMS, {"matrix": np.eye(D) + 0.5}),
    "popularity_whitened_cosine": (ITEMS, {"popularity": np.arange(1.0, P + 1)}),
    "learned_diagonal": (ITEMS, {"pairs": PAIRS, "targets": RATINGS}),
}
OF_A_MODEL = [f"rescaled_cosine:{name}" for name in RESCALINGS[1:]]
OF_ROWS = [*ALONE, *WITH, *OF_A_MODEL]
# These measures score pairs of rows, and are used with rerank.
SCORERS = ["sts_score", "word_rotators_distance"]
NAMES = [*OF_ROWS, *USER_ITEM, *SCORERS]
WITHOUT = {
    **{name: next(iter(parameters)) for name, (_, parameters) in WITH.items() if parameters},
    **dict.fromkeys(OF_A_MODEL, "model"),
}


class Model:
    """A stand-in for a fitted model, with only the attributes that a rescaled cosine reads."""

    shrinkage_ = np.linspace(0.9, 0.4, D)
    singular_values_ = np.linspace(300.0, 80.0, D)


def rows_and_measure(name):
    """Return rows and a measure; a measure that needs no parameters is given by its name."""
    if name in OF_A_MODEL:
        return ITEMS, get_measure(name, model=Model)
    rows, parameters = WITH.get(name, (ITEMS, {}))
    return rows, get_measure(name, **parameters) if parameters else name


def test_every_measure_is_listed_here():
    known = set(NAMES) - set(SCORERS)
    assert set(fastcos.list_measures()) == known, "list it above: in ALONE, WITH or USER_ITEM"


@pytest.mark.parametrize("name", mostly_slow([*OF_ROWS, *USER_ITEM]))
def test_index_save_and_blocks_agree_with_top_k(name, tmp_path):
    rows, measure = rows_and_measure(name)
    queries = USERS if name in USER_ITEM else rows
    result = top_k(queries, rows, 4, measure=measure)
    assert np.isfinite(result.scores).all()
    [(_, block)] = fastcos.similarity_blocks(queries, rows, measure=measure, block=len(queries))
    np.testing.assert_allclose(-np.sort(-block, axis=1)[:, :4], result.scores, rtol=1e-5, atol=1e-5)
    index = SimilarityIndex(measure).fit(rows)
    index.save(tmp_path / "index")
    for one in (index, SimilarityIndex.open(tmp_path / "index")):
        again = one.search(queries, 4)
        np.testing.assert_array_equal(again.indices, result.indices)
        np.testing.assert_array_equal(again.scores, result.scores)


@pytest.mark.parametrize("name", WITHOUT)
def test_missing_parameter_error_names_it(name):
    rows = WITH.get(name, (ITEMS, {}))[0]
    message = rf'{WITHOUT[name]}.* must be given, as in get_measure\("{name}", {WITHOUT[name]}='
    for call in (top_k, lambda rows, k, measure: SimilarityIndex(measure).fit(rows)):
        with pytest.raises(ValueError, match=message):
            call(rows, k=2, measure=name)


@pytest.mark.parametrize("name", SCORERS)
def test_scorer_name_error_points_to_rerank(name):
    message = rf"measures? must compare vectors, got '{name}': use rerank\(neighbors, \w+Scorer\("
    for call in (
        lambda: get_measure(name),
        lambda: top_k(ITEMS, k=2, measure=name),
        lambda: compare_vectors(ITEMS, LABELS, measures=[name]),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def of_a_model(name):
    """Return a measure in the form that `compare` accepts for interactions.

    Two measures need parameters, so they are returned as objects. For all other measures, the name
    is enough.
    """
    if name == "soft_cosine":
        return get_measure(name, matrix=np.eye(4) + 0.5)
    if name == "learned_diagonal":
        return get_measure(name, pairs=PAIRS, targets=RATINGS)
    return name


@pytest.mark.parametrize(
    "labels", [pytest.param(CLUSTERS, marks=pytest.mark.slow), None], ids=["labels", "held out"]
)
def test_compare_accepts_every_measure(labels):
    names = OF_ROWS if labels is None else [one for one in OF_ROWS if one != "project_back_users"]
    names = [*names, *USER_ITEM] if labels is None else names
    leaderboard = compare(
        X, labels, n_components=4, rescalings=["identity"], objective="dropout",
        measures=[of_a_model(one) for one in names],
    ).leaderboard  # fmt: skip
    baselines = {"most popular items"} if labels is None else set()
    assert {row.candidate.measure for row in leaderboard.rows} == {*names} | baselines
    assert all(np.isfinite([row.score.value, row.gain.value]).all() for row in leaderboard.rows)


@pytest.mark.slow
@pytest.mark.parametrize("task", ["labels", "pairs"])
def test_compare_vectors_accepts_every_measure(task):
    for rows in (ITEMS, USERS, HALVES):
        n = len(rows)
        truth = {"labels": np.arange(n) % 3, "pairs": (PAIRS % n, RATINGS)}[task]
        named = {name: rows_and_measure(name) for name in OF_ROWS}
        measures = {name: measure for name, (own, measure) in named.items() if own is rows}
        comparison = compare_vectors(rows, measures=list(measures.values()), **{task: truth})
        names = [row.candidate.measure.partition(":")[0] for row in comparison.rows]
        expected = [name.partition(":")[0] for name in {"cosine", *measures}]
        assert sorted(names) == sorted(expected)


def test_labels_of_one_class_differ_by_parameters():
    several = [get_measure("csls", n_neighbors=k) for k in (3, 5)]
    comparison = compare_vectors(ITEMS, LABELS, measures=["csls", *several])
    labels = {row.candidate.measure for row in comparison.rows}
    assert labels == {"cosine", "csls", "csls:n_neighbors=3", "csls:n_neighbors=5"}
    same = [get_measure("soft_cosine", matrix=np.eye(D) + share) for share in (0, 1)]
    with pytest.raises(ValueError, match=r"measures must differ .*, got soft_cosine twice"):
        compare_vectors(ITEMS, LABELS, measures=same)


def test_compare_gives_the_other_side_to_measure_objects():
    plain = get_measure("query_metric_cosine", centered=False)
    comparison = compare(
        X, CLUSTERS, n_components=4, rescalings=["identity"], objective="dropout",
        measures=[plain],
    )  # fmt: skip
    model = comparison.models["dropout"]
    measure = get_measure("query_metric_cosine", other=model.user_embeddings(X), centered=False)
    truth = compare_vectors(model.item_embeddings(), CLUSTERS.tolist(), measures=[measure])
    label = "query_metric_cosine:centered=False"
    scores = {row.candidate.measure: row.score.value for row in truth.rows}
    [ours] = [row for row in comparison.leaderboard.rows if row.candidate.measure == label]
    assert ours.score.value == pytest.approx(scores[label])


# the command line


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Write rows, parameters, interactions and labels to files."""
    folder = tmp_path_factory.mktemp("files")
    np.save(folder / "items.npy", ITEMS)
    for name, (rows, parameters) in WITH.items():
        np.save(folder / f"{name}-rows.npy", rows)
        for parameter, value in parameters.items():
            np.save(folder / f"{name}-{parameter}.npy", value)
    np.save(folder / "S.npy", np.eye(4) + 0.5)
    sp.save_npz(folder / "X.npz", X)
    with (folder / "labels.csv").open("w", newline="") as file:
        lines = ((item, f"c{code}") for item, code in enumerate(CLUSTERS))
        csv.writer(file).writerows([("item", "label"), *lines])
    assert main(["fit", str(folder / "X.npz"), "--rank", "4", "--out", str(folder / "model")]) == 0
    return folder


def spelled(name, files):
    """Return the measure in the notation of the command line."""
    parameters = WITH.get(name, (None, {}))[1]
    return ":".join([name, *(f"{key}={files}/{name}-{key}.npy" for key in parameters)])


@pytest.mark.parametrize("name", mostly_slow([*ALONE, *WITH]))
def test_neighbors_command_accepts_every_measure(name, files, tmp_path):
    rows, measure = rows_and_measure(name)
    source = files / (f"{name}-rows.npy" if name in WITH else "items.npy")
    out = tmp_path / "n.npz"
    call = ["neighbors", source, "--k", 4, "--measure", spelled(name, files), "--out", out]
    assert main([str(word) for word in call]) == 0
    truth = top_k(rows, k=4, measure=measure)
    np.testing.assert_array_equal(np.load(out)["indices"], truth.indices)


@pytest.mark.parametrize("name", [*OF_A_MODEL, "eq2_cosine", "weight_cosine"])
def test_neighbors_command_gives_the_model_to_measures(name, files, tmp_path):
    out = tmp_path / "n.npz"
    call = ["neighbors", files / "model", "--k", 4, "--measure", name, "--out", out]
    assert main([str(word) for word in call]) == 0
    assert np.isfinite(np.load(out)["scores"]).all()


# Each of these measures is evaluated under every rescaling, so the default tests contain only one
# measure per kind of parameters.
SOME = ["csls", "rescaled_cosine:data"]
WITH_LABELS = [*ALONE, *OF_A_MODEL, "weight_cosine", "project_back_items", "query_metric_cosine"]
WITH_LABELS += ["popularity_whitened_cosine"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("labelled", "names"),
    [
        (True, SOME),
        (True, WITH_LABELS),
        (False, [*WITH_LABELS, *USER_ITEM, "project_back_users"]),
    ],
    ids=["some", "labels", "held out"],
)
def test_compare_command_accepts_every_measure(labelled, names, files, tmp_path):
    call = ["compare", files / "X.npz", "--rank", 4, "--out", tmp_path, "--objective", "dropout"]
    call += ["--labels", files / "labels.csv", "--label-column", "label"] if labelled else []
    chosen = ",".join([*names, f"soft_cosine:matrix={files}/S.npy"])
    assert main([str(word) for word in [*call, "--measures", chosen]]) in (0, 1)
    rows = json.loads((tmp_path / "comparison.json").read_text())["leaderboard"]["rows"]
    baselines = set() if labelled else {"most popular items"}
    assert {row["measure"] for row in rows} == {"cosine", *names, "soft_cosine"} | baselines


@pytest.mark.parametrize(
    ("measure", "message"),
    [
        ("csls:K=5", "a parameter of csls must be one of n_neighbors, other, got 'K'"),
        ("cosine:power=2", "a parameter of cosine must be one of (it has none), got 'power'"),
        ("csls:n_neighbors=0", "n_neighbors must be a whole number of at least 1, got 0"),
        ("soft_cosine:matrix=none.npy", "none.npy: no such file or directory"),
        ("soft_cosine", "requires matrix or features (soft_cosine:matrix=FILE)"),
        ("sts_score", "--measure must compare vectors, got 'sts_score': use rerank(neighbors, "),
    ],
)
def test_invalid_measure_is_a_one_line_error(measure, message, files, capsys):
    assert main(["neighbors", str(files / "items.npy"), "--k", "2", "--measure", measure]) == 2
    printed = capsys.readouterr().err
    assert message in printed
    assert len(printed.strip().splitlines()) == 1
