"""Tests of `fastcos index export`: its files do not depend on the parametrisation."""

import json
import shlex

import numpy as np
import pytest

from fastcos.cli.main import build_parser, main
from fastcos.search.top_k import top_k
from tests.oracles.audit import cosine_matrix, random_map


def run(*arguments):
    options = build_parser(["index"]).parse_args(["index", "export", *map(str, arguments)])
    return options.run(options)


@pytest.fixture
def files(tmp_path):
    rng = np.random.default_rng(1)
    users, items = rng.standard_normal((80, 5)) + 0.5, rng.standard_normal((60, 5))
    G = random_map(rng, 5, 30.0)
    for name, array in (
        ("items", items),
        ("users", users),
        ("items2", items @ G),
        ("users2", users @ np.linalg.inv(G).T),
    ):
        np.save(tmp_path / f"{name}.npy", array)
    return tmp_path


@pytest.mark.parametrize("form", ["query_metric", "canonical"])
def test_export_is_equal_for_equivalent_models(files, form):
    for number in ("", "2"):
        sides = (files / f"items{number}.npy", "--users", files / f"users{number}.npy")
        assert run(*sides, "--form", form, "--out", files / f"out{number}") == 0
    one, other = (np.load(files / f"out{n}" / "items.npy") for n in ("", "2"))
    assert one.dtype == np.float32
    np.testing.assert_allclose(cosine_matrix(one), cosine_matrix(other), atol=1e-5)


def test_export_query_metric_matches_predicted_scores(files):
    items, users = np.load(files / "items.npy"), np.load(files / "users.npy")
    assert run(files / "items.npy", "--users", files / "users.npy", "--out", files / "out") == 0
    written = np.load(files / "out" / "items.npy")
    np.testing.assert_allclose(cosine_matrix(written), np.corrcoef(items @ users.T), atol=1e-5)
    new = items[:3] @ np.load(files / "out" / "map.npy")
    np.testing.assert_allclose(new, written[:3], rtol=1e-5, atol=1e-6)
    assert not (files / "out" / "ids.npy").exists()


def test_export_unit_rows_make_dot_the_cosine(files):
    sides = (files / "items.npy", "--users", files / "users.npy")
    assert run(*sides, "--out", files / "a") == 0
    assert run(*sides, "--out", files / "b", "--unit-rows") == 0
    plain, unit = (np.load(files / name / "items.npy") for name in "ab")
    np.testing.assert_array_equal(
        top_k(plain, k=5).indices, top_k(unit, k=5, measure="dot").indices
    )


def test_export_canonical_keeps_predictions(files):
    sides = (files / "items.npy", "--users", files / "users.npy", "--form", "canonical")
    assert run(*sides, "--out", files / "out") == 0
    items, users = (np.load(files / "out" / f"{side}.npy") for side in ("items", "users"))
    truth = np.load(files / "users.npy") @ np.load(files / "items.npy").T
    np.testing.assert_allclose(users @ items.T, truth, atol=1e-4)
    values = np.load(files / "out" / "singular_values.npy")
    np.testing.assert_allclose(items.T @ items, np.diag(values), atol=1e-3)


def test_export_json_describes_every_file(files, capsys):
    items = np.load(files / "items.npy")
    np.savez(files / "named.npz", ids=[f"i{n}" for n in range(60)], vectors=items)
    arguments = (files / "named.npz", "--users", files / "users.npy", "--out", files / "out")
    assert run(*arguments, "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((files / "out" / "export.json").read_text())
    for described in printed["arrays"].values():
        array = np.load(files / "out" / described["file"])
        assert (list(array.shape), str(array.dtype)) == (described["shape"], described["dtype"])
    assert np.load(files / "out" / "ids.npy")[59] == "i59"


def test_export_refuses_missing_or_equal_users(files):
    with pytest.raises(TypeError, match="--users must be given, because an export needs user"):
        run(files / "items.npy", "--out", files / "out")
    with pytest.raises(ValueError, match="--form must be one of query_metric, canonical"):
        run(files / "items.npy", "--form", "whitened")
    np.save(files / "alike.npy", np.ones((9, 5)))
    with pytest.raises(ValueError, match="rank of the users' covariance must be"):
        run(files / "items.npy", "--users", files / "alike.npy", "--out", files / "out")


def test_export_reports_lost_columns(files, capsys):
    items = np.load(files / "items.npy")
    items[:, 2] = items[:, 1]
    np.save(files / "flat.npy", items)
    sides = (files / "flat.npy", "--users", files / "users.npy", "--form", "canonical")
    assert run(*sides, "--out", files / "out") == 0
    assert "rank 4: 1 of 5 columns are zero" in capsys.readouterr().err


def test_export_ends_with_commands_that_run(files, capsys, monkeypatch):
    monkeypatch.chdir(files)
    assert run("items.npy", "--users", "users.npy", "--out", "a folder") == 0
    *_, search, index = capsys.readouterr().out.splitlines()
    command, _, gain = search.partition("  # ")
    assert gain == "finds neighbours that no rescaling changes"
    words = shlex.split(command)[1:]
    assert words == ["neighbors", "a folder"]
    assert main(words) == 0
    code = shlex.split(index.partition("  # ")[0])[2]
    compile(code, "command", "exec")
    assert "normalize_L2" in code
    assert run("items.npy", "--users", "users.npy", "--unit-rows", "--out", "unit") == 0
    assert "normalize_L2" not in capsys.readouterr().out


@pytest.mark.parametrize("form", ["query_metric", "canonical"])
def test_export_align_to_an_earlier_export(files, form, capsys):
    """The option --align-to maps a later model to the coordinates of an earlier export.

    The rows of the two exports can then be compared.
    """
    options = ("--form", form)
    first = (files / "items.npy", "--users", files / "users.npy", *options)
    later = (files / "items2.npy", "--users", files / "users2.npy", *options)
    assert run(*first, "--out", files / "first") == 0
    # The canonical forms of the two exports would agree even without an alignment. The test
    # therefore rotates the first export, so that the two exports differ before the alignment.
    R = random_map(np.random.default_rng(3), 5, 1.0)
    names = ("items", "users") if form == "canonical" else ("items",)
    for name in names:
        rows = np.load(files / "first" / f"{name}.npy")
        np.save(files / "first" / f"{name}.npy", (rows @ R).astype(np.float32))
    capsys.readouterr()
    assert run(*later, "--align-to", files / "first", "--out", files / "today", "--json") == 0
    out = capsys.readouterr().out
    assert json.loads(out)["alignment"]["self_match_rate"] == 1
    for name in names:
        earlier, rows = (np.load(files / d / f"{name}.npy") for d in ("first", "today"))
        np.testing.assert_allclose(rows, earlier, atol=2e-5)
    if form == "query_metric":
        mapped = np.load(files / "items2.npy") @ np.load(files / "today" / "map.npy")
        np.testing.assert_allclose(mapped, np.load(files / "today" / "items.npy"), atol=1e-4)


def test_export_align_to_refuses_other_folders(files):
    sides = (files / "items.npy", "--users", files / "users.npy")
    with pytest.raises(ValueError, match="--align-to must be a folder that `fastcos index export`"):
        run(*sides, "--align-to", files, "--out", files / "x")
    assert run(*sides, "--out", files / "metric") == 0
    canonical = (*sides, "--form", "canonical")
    with pytest.raises(ValueError, match="--align-to must be an export of the form canonical"):
        run(*canonical, "--align-to", files / "metric", "--out", files / "x")
    assert run(*canonical, "--unit-rows", "--out", files / "unit") == 0
    with pytest.raises(ValueError, match="--align-to must be an export with --form canonical"):
        run(*canonical, "--align-to", files / "unit", "--out", files / "x")
    with pytest.raises(ValueError, match="--unit-rows must be left out if both --form canonical"):
        run(*canonical, "--unit-rows", "--align-to", files / "unit", "--out", files / "x")
    assert not (files / "x").exists()
