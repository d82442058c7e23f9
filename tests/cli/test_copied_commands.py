"""A command that fastcos suggests uses the same items as the call, whatever the ids are."""

import csv
import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from fastcos import LinearMF
from fastcos.cli.main import main
from fastcos.similarity.rescalings import rescalings

RANDOM = np.random.default_rng(0)
N, D = 60, 5
ITEMS, USERS = RANDOM.standard_normal((N, D)), RANDOM.standard_normal((90, D)) * [3, 2, 1, 1, 1]
# There are four kinds of ids: texts, shuffled numbers from 1, shuffled row numbers, and row numbers
# in order.
OWN_IDS = {
    "texts": [f"film {n} #{n % 7}" for n in range(N)],
    "from 1": (np.random.default_rng(1).permutation(N) + 1).tolist(),
    "row numbers": np.random.default_rng(2).permutation(N).tolist(),
    "row numbers in order": list(range(N)),
}


@pytest.fixture(autouse=True)
def in_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def printed_commands(capsys, *words):
    """Run one command; return the commands that it prints below "next:"."""
    capsys.readouterr()
    assert main([*map(str, words)]) in (0, 1)
    lines = capsys.readouterr().out.partition("next:\n")[2].splitlines()
    commands = [shlex.split(line, comments=True) for line in lines if line.startswith("  ")]
    return [one[1:] for one in commands if one[0] == "fastcos"]


def lists(path="neighbors.csv", query="item"):
    """Return the neighbours of each item in a table, as texts of ids."""
    results = {}
    with Path(path).open(newline="") as file:
        for row in csv.DictReader(file):
            results.setdefault(row[query], []).append(row["neighbor"])
    return results


def best(scores, ids, k=10):
    """Return the ids of the k best-scoring items for each item, without the item itself."""
    scores = scores.copy()
    np.fill_diagonal(scores, -np.inf)
    order = np.argsort(-scores, axis=1)[:, :k]
    return {str(ids[row]): [str(ids[one]) for one in order[row]] for row in range(len(ids))}


def cosines(rows):
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return unit @ unit.T


def write_parquet(ids):
    """Write a table whose columns of ids and of vectors must be named by options."""
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    columns = {
        "tenant_id": [f"t{n % 3}" for n in range(N)],
        "old": RANDOM.standard_normal((N, D)).tolist(),
        "chunk_id": ids,
        "new": ITEMS.tolist(),
        "body": [f"text of {one}" for one in ids],
    }
    parquet.write_table(arrow.table(columns), "chunks.parquet")
    return ["chunks.parquet", "--vector-column", "new", "--id-column", "chunk_id"]


def write_model(ids):
    """Write users and items to one file, and the ids to another."""
    np.savez("als.npz", item_factors=ITEMS, user_factors=USERS)
    Path("items.txt").write_text("".join(f"{one}\n" for one in ids))
    return ["als.npz", "--ids", "items.txt"]


def write_arrays(ids):
    """Write vectors and their ids to one file; the name of the ids must be given as an option."""
    np.savez("vectors.npz", key=np.array(ids), vectors=ITEMS)
    return ["vectors.npz", "--id-column", "key"]


SOURCES = {"parquet": write_parquet, "model": write_model, "arrays": write_arrays}
# Each case is a pair of a source and a kind of ids. The default tests contain two pairs; the other
# pairs are slow tests.
IN_THE_DEFAULT_TESTS = {("parquet", "from 1"), ("model", "texts")}
CASES = [
    pytest.param(
        source, kind, marks=() if (source, kind) in IN_THE_DEFAULT_TESTS else pytest.mark.slow
    )
    for source in SOURCES
    for kind in OWN_IDS
    if source == "model" or kind != "texts"
]


@pytest.mark.slow
@pytest.mark.parametrize(("source", "kind"), CASES)
def test_audit_prints_commands_that_keep_the_items(source, kind, capsys):
    ids = OWN_IDS[kind]
    words = SOURCES[source](ids)
    np.save("users.npy", USERS)
    users = [] if source == "model" else ["--users", "users.npy"]
    export, serve = printed_commands(capsys, "audit", *words, *users, "--k", 7)
    assert main(export) == 0
    assert main(serve) == 0
    # The first suggestion is the query metric: the correlation between the scores that the model
    # predicts for two items, computed over all users.
    assert lists() == best(np.corrcoef(ITEMS @ USERS.T), ids, 7)
    # If an audit was run without users, it suggests a command that runs the same audit with users
    # and keeps all other options.
    if source != "model":
        more = ["--condition", "1.5", "--k", "7", "--seed", "3", "--weight-decay-on", "both"]
        (again,) = printed_commands(capsys, "audit", *words, *more)
        for option in (*more, *words[1:]):
            assert option in again
        assert main(again) == 0
        document = json.loads(Path("audit/audit.json").read_text())["parameters"]
        assert document["k"] == 7
        assert document["condition"] == 1.5
        assert document["weight_decay_on"] == "both"
    # After training with a ranking loss, the suggestion is the query metric of the centred items.
    if source != "model":
        words_of_ranking = [*words, *users, "--k", 7, "--trained-on", "ranking"]
        export, serve = printed_commands(capsys, "audit", *words_of_ranking)
        assert main(export) == 0
        assert main(serve) == 0
        scores = ITEMS @ USERS.T
        centred = scores - scores.mean(axis=0)
        assert lists() == best(np.corrcoef(centred), ids, 7)
    # If the model was trained on the cosine, the suggested command uses the cosine itself.
    (serve,) = printed_commands(capsys, "audit", *words, "--trained-on", "cosine")
    assert main(serve) == 0
    assert lists() == best(cosines(ITEMS), ids)


@pytest.mark.parametrize(("source", "kind"), CASES)
def test_calibrate_and_build_print_commands_that_keep_the_items(source, kind, capsys):
    ids = OWN_IDS[kind]
    words = SOURCES[source](ids)
    scores = cosines(ITEMS)
    commands = printed_commands(capsys, "calibrate", *words, "--fpr", "0.05", "--model", "m@1")
    assert len(commands) == 1
    assert main(commands[0]) == 0
    threshold = json.loads(Path("calibration/calibration.json").read_text())["verdict"]
    least = float(re.search(r"-?\d\.\d+", threshold)[0]) - 1e-3
    result, whole = lists(), best(scores, ids, N - 1)
    place = {str(one): row for row, one in enumerate(ids)}
    for item, neighbors in result.items():
        assert neighbors == whole[item][: len(neighbors)]
        assert all(scores[place[item], place[one]] >= least for one in neighbors)
    assert sum(map(len, result.values())) > N / 2
    (search,) = printed_commands(capsys, "index", "build", *words, "shop")
    assert main(search) == 0
    assert lists() == best(scores, ids)


@pytest.mark.slow
def test_calibrate_of_copies_prints_commands_that_keep_the_options(capsys):
    ids = [f"x{n}" for n in range(N)]
    np.savez("v.npz", key=np.array(ids), vectors=np.repeat(ITEMS[:20], 3, axis=0))
    more = ["--sample", "0", "--score", "0.7", "--seed", "4", "--model", "m@1", "--out", "there"]
    words = ["calibrate", "v.npz", "--id-column", "key", "--fpr", "0.001", *more]
    duplicates, again = printed_commands(capsys, *words)
    for option in (*more, "--id-column", "key", "--fpr", "0.001"):
        assert option in again
    assert main(duplicates) == 0
    assert Path("kept.txt").read_text().split() == ids[::3]
    assert main(again) == 0
    assert json.loads(Path("there/calibration.json").read_text())["n_items"] == 20


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["texts", "from 1"])
def test_compare_and_fit_print_commands_that_keep_the_items(kind, capsys):
    ids = OWN_IDS[kind]
    scores = USERS[:, None] * np.ones((1, N, 1)) * ITEMS
    likes = scores.sum(axis=2) > 1
    rows = [(f"u{u}", ids[i], u + i) for u, i in np.argwhere(likes)]
    text = "".join(f"{u},{item},1,{day}\n" for u, item, day in rows)
    Path("log.csv").write_text("who,what,n,rank\n" + text)
    words = ["log.csv", "--user", "who", "--item", "what", "--value", "n", "--rank", "4"]
    commands = printed_commands(capsys, "compare", *words, "--measures", "cosine")
    known = sorted({item for _, item, _ in rows})
    if commands[0][0] == "recommend":  # this command would read the table instead of a model
        pytest.fail(f"a model must win: {commands}")
    fit, serve = commands
    (audit,) = printed_commands(capsys, *fit)
    assert main(serve) == 0
    model = LinearMF.load("model/model")
    named = {one.name: one.rescaling for one in rescalings()}
    chosen = next((word.partition("=")[2] for word in serve if "--rescaling=" in word), "identity")
    rows = np.asarray(model.item_embeddings(named[chosen]), np.float64)
    assert lists() == best(cosines(rows), known)
    export, serve = printed_commands(capsys, *audit)
    assert main(export) == 0
    assert main(serve) == 0
    assert set(lists()) == {str(one) for one in known}
    (search,) = printed_commands(capsys, "index", "build", "model", "shop")
    assert main(search) == 0
    assert lists() == best(cosines(np.asarray(model.item_embeddings(), np.float64)), known)
