"""Tests of `fastcos recommend`, and of the commands that `fastcos compare` suggests."""

import csv
import json
import shlex

import numpy as np
import pytest
import scipy.sparse as sp

from fastcos.cli.main import main
from tests.cli.test_commands import DATA, needs
from tests.comparison.test_compare import clustered_interactions

K = 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder of interactions whose ids are not row numbers, and a model of them."""
    folder = tmp_path_factory.mktemp("seen")
    X, _ = clustered_interactions(500)
    rows, columns = X.nonzero()
    lines = [f"u{u},{7 * i + 3},1,5" for u, i in zip(rows, columns, strict=True)]
    (folder / "seen.csv").write_text("user,item,clicks,rank\n" + "\n".join(lines) + "\n")
    words = ["fit", str(folder / "seen.csv"), "--value", "clicks", "--rank", "6"]
    assert main([*words, "--out", str(folder / "model")]) == 0
    return folder


def recommended(folder, *words):
    """Run one command, and return the list of recommended items for each user."""
    out = folder / "found.csv"
    assert main(["recommend", *map(str, words), "--k", str(K), "--out", str(out)]) == 0
    lists = {}
    with out.open(newline="") as file:
        for row in csv.DictReader(file):
            lists.setdefault(row["user"], []).append(row["item"])
    return lists


def matrix(path):
    """Return the table as a dense matrix, and its user and item ids in ascending order."""
    with path.open() as file:
        cells = [(row["user"], int(row["item"])) for row in csv.DictReader(file)]
    users, items = (sorted({one[side] for one in cells}) for side in (0, 1))
    X = np.zeros((len(users), len(items)))
    for user, item in cells:
        X[users.index(user), items.index(item)] += 1
    return X, users, items


@pytest.mark.parametrize(
    ("measure", "model"),
    [
        ("user_item_dot", "model"),
        pytest.param("project_back_users", "model", marks=pytest.mark.slow),
        pytest.param("cosine", "model", marks=pytest.mark.slow),
        # cosines of the columns of the interactions
        pytest.param("cosine", "none", marks=pytest.mark.slow),
    ],
)
def test_recommend_follows_the_model_without_what_was_seen(folder, measure, model):
    words = ("--value", "clicks", "--measure", measure)
    source = "none" if model == "none" else folder / model
    recommendations = recommended(folder, source, folder / "seen.csv", *words)
    X, users, items = matrix(folder / "seen.csv")
    assert list(recommendations) == users
    from fastcos import LinearMF

    model = LinearMF.load(folder / "model" / "model")
    A, B = (
        np.asarray(one, np.float64) for one in (model.user_embeddings(X), model.item_embeddings())
    )
    seen = X > 0
    B = X.T if source == "none" else B

    def cosines(R):
        norms = np.sqrt((R * R).sum(axis=1))
        # Inner products of counts are exact. The same items therefore have equal scores here and in
        # the command.
        scores = R @ R.T / np.outer(norms, norms)
        np.fill_diagonal(scores, -2)
        return scores

    if measure == "user_item_dot":
        scores = A @ B.T
    else:
        weights = 1 / np.log2(np.arange(2, 22))
        # project_back_users compares the rows of A B'B A'.
        metric = cosines(B) if measure == "cosine" else cosines(A @ np.linalg.cholesky(B.T @ B))
        scores = np.zeros_like(X)
        order = np.argsort(-metric, axis=1, kind="stable")
        for row, nearest in enumerate(order[:, :20]):
            for other, weight in zip(nearest, weights, strict=True):
                if measure == "cosine":
                    scores[:, other] += weight * seen[:, row]
                else:
                    scores[row] += weight * seen[other]
    scores[seen] = -np.inf
    for u, user in enumerate(users):
        mine = [items.index(int(one)) for one in recommendations[user]]
        best = np.sort(scores[u])[::-1][: len(mine)]
        np.testing.assert_allclose(scores[u][mine], best, atol=1e-4)
        assert not seen[u][mine].any()


def test_recommend_from_factors_of_implicit_with_ids(folder):
    X, users, items = matrix(folder / "seen.csv")
    random = np.random.default_rng(0)
    A, B = random.standard_normal((len(users), 5)), random.standard_normal((len(items), 5))
    # The items of the model are in another order than the items of the table.
    order = random.permutation(len(items))
    np.savez(folder / "als.npz", user_factors=A, item_factors=B[order])
    np.save(folder / "items.npy", np.array(items)[order])
    (folder / "users.txt").write_text("\n".join(users) + "\n")
    ids = ("--ids", folder / "items.npy", "--user-ids", folder / "users.txt")
    recommendations = recommended(
        folder, folder / "als.npz", folder / "seen.csv", "--value", "", *ids
    )
    truth = np.argsort(-np.where(X > 0, -np.inf, A @ B.T), axis=1)[:, :K]
    assert list(recommendations.values()) == [[str(items[one]) for one in row] for row in truth]


def test_recommend_adds_the_biases_of_bpr(folder, capsys):
    X, users, items = matrix(folder / "seen.csv")
    random = np.random.default_rng(1)
    A, B = random.standard_normal((len(users), 5)), random.standard_normal((len(items), 5))
    b = 3 * random.standard_normal(len(items))
    np.savez(folder / "bpr.npz", user_factors=np.c_[A, np.ones(len(A))], item_factors=np.c_[B, b])
    np.save(folder / "items.npy", np.array(items))
    (folder / "users.txt").write_text("\n".join(users) + "\n")
    words = (folder / "bpr.npz", folder / "seen.csv", "--value", "", "--ids", folder / "items.npy")
    words = (*words, "--user-ids", folder / "users.txt")
    truth = np.argsort(-np.where(X > 0, -np.inf, A @ B.T + b), axis=1)[:, :K]
    expected = [[str(items[one]) for one in row] for row in truth]
    assert list(recommended(folder, *words).values()) == expected
    assert "scores include the biases" in capsys.readouterr().err
    # Similarities between items exclude the biases, and the output says so.
    np.savez(folder / "plain.npz", user_factors=A, item_factors=B)
    by_cosine = recommended(folder, *words, "--measure", "cosine")
    assert "removed the bias column" in capsys.readouterr().err
    plain = recommended(folder, folder / "plain.npz", *words[1:], "--measure", "cosine")
    assert by_cosine == plain
    # An index of inner products can be searched with the users as queries.
    np.savez(folder / "users.npz", vectors=np.c_[A, np.ones(len(A))], ids=np.array(users))
    index = str(folder / "by_dot")
    build = ["index", "build", str(folder / "bpr.npz"), index, "--measure", "dot"]
    assert main([*build, "--ids", str(folder / "items.npy")]) == 0
    assert "embeddings include the biases" in capsys.readouterr().err
    search = ["index", "search", index, "--queries", str(folder / "users.npz"), "--k", str(K)]
    neighbors = ["neighbors", str(folder / "bpr.npz"), "--measure", "dot", "--k", str(K)]
    neighbors += ["--ids", str(folder / "items.npy"), "--queries", str(folder / "users.npz")]
    best = np.argsort(-(A @ B.T + b), axis=1)[:, :K]
    for command in (search, neighbors):
        assert main([*command, "--out", str(folder / "users.json")]) == 0
        rows = json.loads((folder / "users.json").read_text())
        assert [row["neighbor"] for row in rows] == [items[one] for row in best for one in row]


def test_recommend_shows_lists_of_users(folder, capsys):
    words = [str(folder / "model"), str(folder / "seen.csv"), "--value", "clicks", "--k", "3"]
    assert main(["recommend", *words, "--show", "u3", "u1", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["user"] for row in rows] == ["u1"] * 3 + ["u3"] * 3
    assert list(rows[0]) == ["user", "rank", "item", "score"]
    recommendations = recommended(
        folder, folder / "model", folder / "seen.csv", "--value", "clicks"
    )
    assert [str(row["item"]) for row in rows[3:]] == recommendations["u3"][:3]
    assert main(["recommend", *words, "--show", "u3", "--measure", "cosine"]) == 0
    assert "score" not in capsys.readouterr().out  # votes have none


def commands_after(out):
    """Return the commands that are printed after "next:", as lists of words."""
    lines = out.partition("\nnext:\n")[2].splitlines()
    return [shlex.split(line, comments=True)[1:] for line in lines]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--measures", "user_item_dot"], "recommend"),
        (["--measures", "project_back_users", "--seed", "3"], "recommend"),
        (["--measures", "zscore_cosine,csls:n_neighbors=5"], "neighbors"),
        (["--objective", "weight_decay", "--weight-decay", "1.5"], "neighbors"),
    ],
)
def test_commands_after_compare_run_and_keep_options(
    folder, words, expected, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    common = [str(folder / "seen.csv"), "--user", "user", "--value", "clicks", "--rank", "5"]
    assert main(["compare", *common, *words]) == 0
    document = json.loads((tmp_path / "comparison" / "comparison.json").read_text())
    commands = commands_after(capsys.readouterr().out)
    for command in commands:
        assert main(command) == 0, command
    fit, serve = commands
    # The reader would refuse to choose among these columns, so the command must name them.
    assert {"--value", "--user"} <= set(fit)
    assert serve[0] in ("neighbors", expected)
    fitted = json.loads((tmp_path / "model" / "model.json").read_text())["parameters"]
    compared = document["parameters"]["model"]
    name = "weight_decay" if fitted["objective"] == "weight_decay" else "regularization"
    assert fitted["regularization"] == pytest.approx(compared[name], rel=1e-12)
    for key in ("n_users", "n_items", "n_interactions", "n_components", "random_state"):
        assert fitted[key] == compared[key], key


# For each data set: the arguments, and the number of suggested commands. There is only one
# suggested command if no model is better.
REAL = (
    (["ml-latest-small/ratings.csv.zip"], 2),
    (["online-retail/online_retail_pairs.csv.gz", "--value", ""], 1),
)


@pytest.mark.parametrize(
    ("words", "count"),
    [
        pytest.param(*REAL[0], marks=[needs(REAL[0][0][0]), pytest.mark.slow]),
        pytest.param(*REAL[1], marks=[needs(REAL[1][0][0]), pytest.mark.long]),
    ],
)
def test_commands_after_compare_run_on_real_data(words, count, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["compare", str(DATA / words[0]), *words[1:]]) == 0
    commands = commands_after(capsys.readouterr().out)
    assert len(commands) == count
    for command in commands:
        assert main(command) == 0, command


def test_fit_through_shards_is_the_same_model(folder, tmp_path):
    words = [str(folder / "seen.csv"), "--value", "clicks", "--rank", "6"]
    for name, more in (("a", []), ("b", ["--shards", str(tmp_path / "shards")])):
        assert main(["fit", *words, *more, "--out", str(tmp_path / name)]) == 0
    one, other = (json.loads((tmp_path / n / "model.json").read_text()) for n in "ab")
    np.testing.assert_allclose(
        one["model"]["singular_values"], other["model"]["singular_values"], rtol=1e-5
    )


def test_recommendations_of_a_matrix_file_use_row_numbers(tmp_path):
    X = sp.csr_array((np.random.default_rng(0).random((30, 12)) < 0.4).astype(np.float32))
    sp.save_npz(tmp_path / "X.npz", sp.csr_matrix(X))
    random = np.random.default_rng(1)
    A, B = random.standard_normal((30, 3)), random.standard_normal((12, 3))
    np.savez(tmp_path / "als.npz", user_factors=A, item_factors=B)
    recommendations = recommended(tmp_path, tmp_path / "als.npz", tmp_path / "X.npz")
    truth = np.argsort(-np.where(X.toarray() > 0, -np.inf, A @ B.T), axis=1)[:, :K]
    for user, row in zip(recommendations, truth[np.diff(X.indptr) > 0], strict=True):
        assert recommendations[user] == [str(one) for one in row]


@pytest.mark.long
@pytest.mark.parametrize("words", [pytest.param(words, marks=needs(words[0])) for words, _ in REAL])
def test_recommendation_is_the_same_for_ten_seeds(words, tmp_path, monkeypatch, capsys):
    """The recommendation is the same for ten seeds.

    It is based on at least 500 users or, in smaller data sets, on all users. With 8 to 33 users,
    four seeds led to four recommendations.
    """
    monkeypatch.chdir(tmp_path)
    results = []
    for seed in range(10):
        words = [str(DATA / words[0]), *words[1:]] if seed == 0 else words
        assert main(["compare", *words, "--seed", str(seed), "--json"]) == 0
        board = json.loads(capsys.readouterr().out)["leaderboard"]
        assert board["n_units"] >= 500
        tied = [one["measure"] for one in board["not_distinguishable"]]
        results.append({board["recommended"]["measure"], *tied})
    assert set.intersection(*results)
