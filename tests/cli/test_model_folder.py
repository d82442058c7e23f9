"""The other commands accept the folder that `fit` writes instead of files of users and items."""

import json
from contextlib import redirect_stdout
from io import StringIO

import numpy as np
import pytest
import scipy.sparse as sp

from fastcos import LinearMF, get_measure, top_k
from fastcos.cli.main import main
from fastcos.cli.model_folder import read_model_folder, write_model_folder
from tests.comparison.test_compare import clustered_interactions


def call(*words):
    return main([str(word) for word in words])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with interactions, a model fitted to them, and its item and user vectors."""
    folder = tmp_path_factory.mktemp("folder")
    X, clusters = clustered_interactions()
    X = X.multiply(np.random.default_rng(0).integers(1, 5, X.shape)).tocsr()  # means unlike shares
    sp.save_npz(folder / "X.npz", X)
    rows, columns = X.nonzero()
    lines = [f"u{u},{i},{X[u, i]}" for u, i in zip(rows, columns, strict=True)]
    # The CSV file contains an item that the model does not know, and its rows are in another order
    # than those of X.
    lines = ["u0,unknown,3", *lines[::-1]]
    (folder / "X.csv").write_text("user,item,count\n" + "\n".join(lines) + "\n")
    labels = [f"{i},c{code}" for i, code in enumerate(clusters)]
    (folder / "labels.csv").write_text("item,kind\n" + "\n".join(labels) + "\n")
    assert call("fit", folder / "X.npz", "--rank", 6, "--out", folder / "model") == 0
    model = LinearMF.load(folder / "model" / "model")
    np.save(folder / "items.npy", model.item_embeddings())
    np.save(folder / "users.npy", model.user_embeddings(X))
    return folder


@pytest.fixture(scope="module")
def audited(folder):
    """Return what an audit printed when it compared the folder with itself."""
    model = folder / "model"
    words = ("--against", model, "--fail-under", "unchanged=1", "--k", 3)
    with redirect_stdout(StringIO()) as out:
        assert call("audit", model, *words, "--out", folder / "audit") == 0
    return out.getvalue()


@pytest.mark.parametrize("center", [False, True])
def test_typical_rows_have_the_moments_of_the_users(center, tmp_path):
    X, _ = clustered_interactions()
    model = LinearMF(6, center=center).fit(X)
    write_model_folder(tmp_path, model, X, np.arange(X.shape[1]))
    result = read_model_folder(tmp_path)
    truth, ours = (model.user_embeddings(rows) for rows in (X, result.typical))
    scale = np.abs(truth).max()
    np.testing.assert_allclose(ours.mean(axis=0), truth.mean(axis=0), atol=1e-5 * scale)
    for rows in (truth, ours):
        rows /= np.sqrt(len(rows))
    np.testing.assert_allclose(ours.T @ ours, truth.T @ truth, atol=1e-5 * scale**2)


def test_export_of_a_folder_equals_that_of_its_sides(folder, tmp_path):
    assert call("index", "export", folder / "model", "--unit-rows", "--out", tmp_path / "a") == 0
    sides = (folder / "items.npy", "--users", folder / "users.npy")
    assert call("index", "export", *sides, "--unit-rows", "--out", tmp_path / "b") == 0
    ours, truth = (np.load(tmp_path / name / "items.npy") for name in "ab")
    np.testing.assert_allclose(ours @ ours.T, truth @ truth.T, atol=1e-4)


@pytest.mark.parametrize("file", ["X.npz", "X.csv"])
def test_export_of_a_folder_reads_users_by_interactions(file, folder, tmp_path, capsys):
    """Items are found by their ids in any order; items that the model does not know are ignored."""
    users = ("--users", folder / file)
    assert (
        call("index", "export", folder / "model", *users, "--form", "canonical", "--out", tmp_path)
        == 0
    )
    assert "users from their interactions with" in capsys.readouterr().err
    users, items = (np.load(tmp_path / f"{side}.npy") for side in ("users", "items"))
    truth = np.load(folder / "users.npy") @ np.load(folder / "items.npy").T
    ours = users @ items.T
    if file == "X.csv":  # the CSV sorts users as texts, and lacks users without interactions
        users_with_truth = np.flatnonzero(truth.any(axis=1))
        truth = truth[users_with_truth[np.argsort([f"u{u}" for u in users_with_truth])]]
    np.testing.assert_allclose(ours, truth, atol=1e-4 * np.abs(truth).max())


def test_export_canonical_of_a_folder_requires_users(folder, tmp_path, capsys):
    assert call("index", "export", folder / "model", "--form", "canonical", "--out", tmp_path) == 2
    assert (
        "--users must be a file of interactions, because --form canonical"
        in capsys.readouterr().err
    )


@pytest.mark.slow
def test_audit_of_a_folder_matches_that_of_its_sides(folder, audited, tmp_path):
    ours = json.loads((folder / "audit" / "audit.json").read_text())["audit"]
    sides = (folder / "items.npy", "--users", folder / "users.npy")
    assert call("audit", *sides, "--k", 3, "--out", tmp_path) == 0
    truth = json.loads((tmp_path / "audit.json").read_text())["audit"]
    assert ours["robustness"] == truth["robustness"]
    assert [row["name"] for row in ours["invariant_baselines"]] == [
        row["name"] for row in truth["invariant_baselines"]
    ]
    for section in ("parametrizations", "invariant_baselines"):
        for row, true in zip(ours[section], truth[section], strict=True):
            assert row["jaccard"] == pytest.approx(true["jaccard"], abs=0.02), row["name"]


def test_audit_compares_two_folders(folder, audited):
    """An audit that compares a folder with itself finds that all neighbours are unchanged.

    The fixture `audited` uses the option --fail-under, so it fails if a neighbour has changed.
    """
    diff = json.loads((folder / "audit" / "audit.json").read_text())["diff"]
    assert diff["overlap_after_linear_map"] == 1


@pytest.mark.slow
def test_compare_of_a_folder_equals_that_of_its_items(folder, tmp_path):
    labels = ("--labels", folder / "labels.csv", "--label-column", "kind")
    for source, out in ((folder / "model", "a"), (folder / "items.npy", "b")):
        call("compare", source, *labels, "--measures", "dot", "--out", tmp_path / out)
    ours, truth = (
        json.loads((tmp_path / name / "comparison.json").read_text())["leaderboards"]["labels"]
        for name in "ab"
    )
    assert ours["rows"] == truth["rows"]


def test_neighbors_of_a_folder_by_the_query_metric(folder, tmp_path):
    name = "query_metric_cosine"
    out = tmp_path / "n.npz"
    assert call("neighbors", folder / "model", "--k", 3, "--measure", name, "--out", out) == 0
    measure = get_measure("query_metric_cosine", other=np.load(folder / "users.npy"))
    truth = top_k(np.load(folder / "items.npy"), k=3, measure=measure)
    np.testing.assert_allclose(np.load(out)["scores"], truth.scores, atol=1e-4)


def test_wrong_folders_and_files_are_refused(folder, tmp_path, capsys):
    (tmp_path / "other.csv").write_text("user,item,count\na,nothing,1\nb,nothing,2\n")
    users = ("--users", tmp_path / "other.csv")
    for words, message in (
        (
            ("audit", tmp_path),
            "a folder that fastcos fit or export wrote, got another folder. If the vectors belong",
        ),
        (
            ("index", "export", folder / "model", *users),
            "--users must hold interactions with items of the",
        ),
    ):
        assert call(*words, "--out", tmp_path / "o") == 2
        error = capsys.readouterr().err
        assert message in error
        assert len(error.strip().splitlines()) == 1


@pytest.mark.slow
def test_audit_of_a_fitted_model_knows_what_it_was_trained_on(folder, audited, tmp_path, capsys):
    assert "The model was trained on dot products" in audited
    assert "Suppose that the predictions are dot products" not in audited
    options = ("--trained-on", "cosine", "--out", tmp_path / "b")
    assert call("audit", folder / "model", "--k", 3, *options) == 0
    out = capsys.readouterr().out
    # The pieces of advice must not contradict each other.
    assert "Continue to use the cosine" in out
    assert "Before you show a single neighbour as a fact" not in out
    assert "other form of the same model" in audited
    assert "other form of the same model" not in out
