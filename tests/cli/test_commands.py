import csv
import json
import re
import shlex
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from PIL import Image
from sklearn.metrics.pairwise import cosine_similarity

from fastcos.cli.main import build_parser, main
from tests.comparison.test_compare import clustered_interactions

DATA = Path(__file__).parents[3] / "shared" / "data"
SMALL = ["--users", "300", "--items", "60", "--rank", "8"]


def needs(*names):
    missing = [name for name in names if not (DATA / name).is_file()]
    return pytest.mark.skipif(bool(missing), reason=f"no real data: {', '.join(missing)}")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Write a CSV of interactions with planted clusters, and a CSV with the clusters as labels."""
    folder = tmp_path_factory.mktemp("files")
    X, clusters = clustered_interactions()
    rows, columns = X.nonzero()
    lines = [f"u{u},{i},1" for u, i in zip(rows, columns, strict=True)]
    (folder / "seen.csv").write_text("user,item,count\n" + "\n".join(lines) + "\n")
    kinds = ["abc"[c] for c in clusters]
    kinds[columns[0]] = "a|b"
    labels = [f"{i},item {i},{1970 + i % 2}s,{kind}" for i, kind in enumerate(kinds)]
    (folder / "items.csv").write_text("item,name,era,kind\n" + "\n".join(labels) + "\n")
    return folder


def call(capsys, *arguments):
    """Run one command; return its exit status, stdout and stderr."""
    try:
        status = main([str(argument) for argument in arguments])
    except SystemExit as exit_:
        status = exit_.code
    return (status, *capsys.readouterr())


def quiet_call(*arguments):
    """Run one command in a fixture; return its exit status, stdout and stderr."""
    with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
        status = main([str(argument) for argument in arguments])
    return status, out.getvalue(), err.getvalue()


def conclusion_of(printed):
    """Return the first printed line, without the name of the task."""
    return printed.splitlines()[0].removeprefix("labels: ")


@pytest.fixture(scope="module")
def reproduced(tmp_path_factory):
    """Return the folder that `fastcos reproduce --json` wrote, and the output."""
    folder = tmp_path_factory.mktemp("reproduced") / "out"
    return folder, *quiet_call("reproduce", *SMALL, "--out", folder, "--json")


@pytest.fixture(scope="module")
def compared(files, tmp_path_factory):
    """Return the folder that `fastcos compare` wrote for labels, and the output."""
    folder = tmp_path_factory.mktemp("compared")
    labels = ("--labels", files / "items.csv", "--label-column", "kind")
    words = (*labels, "--rank", 6, "--measures", "dot,csls")
    words = (*words, "--out", folder)
    return folder, *quiet_call("compare", files / "seen.csv", *words)


def test_reproduce_writes_figure_table_and_provenance(reproduced):
    folder, *_ = reproduced
    names = {path.name for path in folder.iterdir()}
    assert names == {
        *(f"figure1.{kind}" for kind in ("html", "png", "svg", "csv", "json")),
        "exponents.png",
    }
    with Image.open(folder / "figure1.png") as image:
        colours = {colour for _, colour in image.convert("RGB").getcolors(10**6)}
    assert len(colours) <= 256
    # The text is black, and the space between the panels is white.
    assert colours >= {(0, 0, 0), (255, 255, 255)}
    # The figure contains both end colours of the colour scale. The tolerance is as small as the
    # difference between two neighbouring pixels of the colour bar.
    for end in ((103, 0, 31), (5, 48, 97)):
        distances = np.abs(np.array(list(colours)) - end).max(axis=1)
        assert distances.min() <= 6
    document = json.loads((folder / "figure1.json").read_text())
    assert document["parameters"]["simulation"]["random_state"] == 0
    assert document["parameters"]["model"]["regularization"] == 150.0
    assert document["versions"]["fastcos"]
    with (folder / "figure1.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {"pair_auc", "map_at_r", "ami", "ari", "silhouette", "jaccard_at_10"} <= set(rows[0])
    names = {row["name"] for row in rows}
    assert names >= {"identity", "orthonormal", "weights", "balanced", "eq2"}
    assert len(rows) == 7 + 15


@pytest.mark.slow
def test_reproduce_writes_identical_files_again(reproduced, tmp_path, capsys):
    assert call(capsys, "reproduce", *SMALL, "--out", tmp_path)[0] == 0
    for name in ("figure1.csv", "figure1.json"):
        assert (tmp_path / name).read_bytes() == (reproduced[0] / name).read_bytes()


def test_reproduce_json_goes_to_stdout(reproduced):
    _, status, out, err = reproduced
    assert status == 0
    assert len(json.loads(out)["scores"]["named"]) == 7
    assert "simulated" in err
    assert "\x1b" not in err  # No progress bar is drawn if stderr is not a terminal.


def test_compare_writes_scores_and_neighbours(compared):
    folder, status, out, err = compared
    assert status == 0, err
    assert "1 items with several labels" in err
    assert "nearest neighbours of item " in out
    document = json.loads((folder / "comparison.json").read_text())
    assert document["parameters"]["labels"]["classes"] == ["a", "b", "c"]
    scores = document["scores"]["named"]
    assert max(row["stratified_auc"] for row in scores) > 0.9
    with (folder / "neighbors.csv").open() as file:
        rows = list(csv.DictReader(file))
    n_items = document["parameters"]["model"]["n_items"]
    assert len({row["rescaling"] for row in rows}) in (3, 4)
    assert len(rows) == n_items * len({row["rescaling"] for row in rows})
    assert all(row["item"] not in (row["neighbor_1"], row["neighbor_10"]) for row in rows)


@pytest.mark.slow
def test_compare_of_simulated_files_equals_reproduce(reproduced, tmp_path, capsys):
    simulation = ["--users", 300, "--items", 60]
    assert call(capsys, "reproduce", "--only-data", *simulation, "--out", tmp_path / "s")[0] == 0
    status, _, err = call(
        capsys,
        *("compare", tmp_path / "s" / "interactions.npz", "--labels", tmp_path / "s" / "items.csv"),
        *("--label-column", "cluster", "--rank", 8, "--regularization", 150),
        *("--measures", "cosine", "--all", "--out", tmp_path / "c"),
    )
    assert status == 0, err
    assert (tmp_path / "c" / "comparison.csv").read_bytes() == (
        reproduced[0] / "figure1.csv"
    ).read_bytes()


@pytest.mark.slow
def test_compare_takes_own_rescalings(files, tmp_path, capsys):
    status, out, err = call(
        capsys, "compare", files / "seen.csv", "--rank", "5", "--measures", "dot", "--rescaling",
        "0.25,-0.5", "--rescaling=-1,0", "--json", "--out", tmp_path / "c",
    )  # fmt: skip
    assert status in (0, 1), err
    named = [row["name"] for row in json.loads(out)["scores"]["named"]]
    assert named[-3:] == ["S^0.25 Σ^-1/2", "S^-1", "eq2"]
    assert len(named) == 9
    rule = "--rescaling must be one of identity, "
    for wrong, end in (("1,2,3", "got '1,2,3'"), ("idntity", "(did you mean 'identity'?)")):
        status, _, err = call(capsys, "compare", files / "seen.csv", "--rescaling", wrong)
        assert (status, rule in err, err.rstrip().endswith(end)) == (2, True, True)


def test_compare_ends_with_commands_that_parse(compared):
    _, _, printed, _ = compared
    lines = printed.partition("next:\n")[2].splitlines()
    commands = [shlex.split(line.partition("  # ")[0])[1:] for line in lines[:2]]
    assert [words[0] for words in commands] == ["fit", "neighbors"]
    for words in commands:
        assert build_parser(words).parse_args(words).command == words[0]


def test_compare_writes_and_prints_the_leaderboard(compared):
    folder, _, out, _ = compared
    assert re.match(r"(Use|Stay with) .*\. The labels are recovered ", conclusion_of(out))
    # The conclusion contains means over labels, but the table contains means over items. The
    # conclusion says "per class" to mark this difference.
    assert "per class" in conclusion_of(out)
    assert "P@10 in the table are means over items" in out
    leaderboard = json.loads((folder / "comparison.json").read_text())["leaderboard"]
    assert leaderboard["beats_chance"]
    assert leaderboard["conclusion"] == conclusion_of(out)
    with (folder / "measures.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["measure"] for row in rows} == {"cosine", "dot", "csls"}
    assert [float(row["score"]) for row in rows] == sorted(
        (float(row["score"]) for row in rows), reverse=True
    )
    assert (folder / "measures.png").read_bytes().startswith(b"\x89PNG")
    assert (folder / "measures.svg").stat().st_size > 1000


@pytest.mark.slow
def test_compare_of_shuffled_labels_exits_with_one(files, tmp_path, capsys):
    lines = (files / "items.csv").read_text().splitlines()
    kinds = np.random.default_rng(3).permutation([line.split(",")[-1] for line in lines[1:]])
    body = [
        f"{line.rpartition(',')[0]},{kind}" for line, kind in zip(lines[1:], kinds, strict=True)
    ]
    (tmp_path / "shuffled.csv").write_text("\n".join([lines[0], *body]))
    status, out, _ = call(
        capsys,
        *("compare", files / "seen.csv", "--labels", tmp_path / "shuffled.csv"),
        *("--label-column", "kind", "--rank", 6, "--measures", "dot", "--out", tmp_path / "c"),
    )
    assert status == 1  # the answer is no
    assert conclusion_of(out).startswith("No measure recovers these labels significantly ")


def test_compare_of_vectors_by_labels_and_pairs(tmp_path, capsys):
    random = np.random.default_rng(0)
    labels = random.integers(0, 3, 90)
    vectors = random.standard_normal((3, 5))[labels] * 3 + random.standard_normal((90, 5))
    words = np.array([f"w{i}" for i in range(90)])
    np.savez(tmp_path / "v.npz", vectors=vectors, words=words)
    table = "\n".join(f"{w},k{c}" for w, c in zip(words, labels, strict=True))
    (tmp_path / "kinds.csv").write_text(f"word,kind\n{table}\n,k1\n")
    pairs = random.integers(0, 90, (60, 2))
    rated = [f"w{a}\tW{b}\t{(vectors[a] @ vectors[b]):.3f}" for a, b in pairs]
    (tmp_path / "people.txt").write_text("\n".join([*rated, "w1\tnobody\t3"]))
    status, out, err = call(
        capsys,
        *("compare", tmp_path / "v.npz", "--labels", tmp_path / "kinds.csv", "--label-column"),
        *("kind", "--pairs", tmp_path / "people.txt", "--measures", "dot", "--json"),
        *("--out", tmp_path / "c"),
    )
    assert status == 0, err
    assert "left out 1 pairs in which at least one item has no vector" in err
    document = json.loads(out)
    assert set(document["leaderboards"]) == {"labels", "people"}
    best = document["leaderboards"]["people"]["rows"][0]
    assert best["measure"] == "dot"
    assert best["score"] == pytest.approx(1, abs=1e-3)
    assert {path.name for path in (tmp_path / "c").iterdir()} == {
        "comparison.json",
        *(
            f"{stem}.{kind}"
            for stem in ("labels", "people")
            for kind in ("csv", "html", "png", "svg")
        ),
    }


@pytest.fixture(scope="module")
def fitted(files, tmp_path_factory):
    folder = tmp_path_factory.mktemp("fitted") / "model"
    assert main(["fit", str(files / "seen.csv"), "--rank", "6", "--out", str(folder)]) == 0
    return folder


def test_fit_writes_a_model_with_its_residuals(fitted):
    from fastcos import LinearMF

    document = json.loads((fitted / "model.json").read_text())
    model = LinearMF.load(fitted / "model")
    assert document["parameters"]["n_components"] == 6
    assert document["model"]["singular_values"] == model.singular_values_.tolist()
    assert max(document["model"]["relative_residuals"]) <= 1e-3
    assert model.regularization_ == model.singular_values_[1] ** 2
    assert document["parameters"]["regularization"] == model.regularization_


@pytest.mark.parametrize("rescaling", ["identity", "balanced"])
def test_neighbors_of_a_model_match_its_cosines(fitted, tmp_path, capsys, rescaling):
    from fastcos import LinearMF

    out = tmp_path / "n.npz"
    words = ["neighbors", fitted, "--k", 3, "--rescaling", rescaling, "--out", out]
    assert call(capsys, *words)[0] == 0
    loaded = np.load(out)
    rows = LinearMF.load(fitted / "model").item_embeddings(rescaling).astype(np.float64)
    cosines = cosine_similarity(rows)
    np.fill_diagonal(cosines, -np.inf)
    truth = np.sort(cosines, axis=1)[:, ::-1][:, :3]
    np.testing.assert_allclose(np.take_along_axis(cosines, loaded["indices"], 1), truth, atol=1e-6)
    assert len(loaded["ids"]) == len(rows)


def test_neighbors_show_prints_chosen_items_by_id(fitted, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["neighbors", fitted, "--k", 2, "--show", "3", "--json"]
    status, out, _ = call(capsys, *words)
    lines = json.loads(out)
    assert status == 0
    assert [line["rank"] for line in lines] == [1, 2]
    assert all(line["item"] == 3 != line["neighbor"] for line in lines)
    assert list(tmp_path.iterdir()) == []
    whole = tmp_path / "n.csv"
    assert call(capsys, "neighbors", fitted, "--k", 2, "--out", whole)[0] == 0
    with whole.open() as file:
        rows = [row for row in csv.DictReader(file) if row["item"] == "3"]
    assert [int(row["neighbor"]) for row in rows] == [line["neighbor"] for line in lines]


def test_neighbors_of_vectors(tmp_path, capsys):
    np.savez(tmp_path / "v.npz", vectors=np.eye(3) + 0.1, words=np.array(["a", "b", "c"]))
    out = tmp_path / "n.csv"
    words = ["neighbors", tmp_path / "v.npz", "--k", 1, "--measure", "dot", "--out", out]
    assert call(capsys, *words)[0] == 0
    assert out.read_text().splitlines()[:2] == [
        "item,rank,neighbor,score",
        "a,1,b,0.23000000417232513",
    ]


@pytest.mark.parametrize(
    "name", ["project_back_items", "csls", pytest.param("recos", marks=pytest.mark.slow)]
)
def test_neighbors_fit_measures_to_the_model(fitted, tmp_path, capsys, name):
    from fastcos import LinearMF, get_measure, top_k

    out = tmp_path / "n.npz"
    assert call(capsys, "neighbors", fitted, "--k", 3, "--measure", name, "--out", out)[0] == 0
    model = LinearMF.load(fitted / "model")
    rows, measure = model.item_embeddings().astype(np.float64), name
    if name == "project_back_items":
        # The measure project_back_items needs the second moment of the users. The users are X A = U
        # Σ s^½, so their second moment is diag(s σ²).
        users = np.diag(model.singular_values_ * np.sqrt(model.shrinkage_))
        measure = get_measure(name, other=users)
    truth = top_k(rows, k=3, measure=measure)
    np.testing.assert_allclose(np.load(out)["scores"], truth.scores, atol=1e-5)


def test_neighbors_refuse_measures_without_requirements(tmp_path, capsys):
    np.save(tmp_path / "v.npy", np.eye(4) + 0.1)
    for name, needs in (
        ("query_metric_cosine", "other"), ("soft_cosine", "matrix or features"),
        ("rescaled_cosine:data", "model"),
    ):  # fmt: skip
        words = ["neighbors", tmp_path / "v.npy", "--k", 1, "--measure", name]
        status, _, err = call(capsys, *words)
        assert status == 2
        message = f"--measure {name!r} requires {needs} ("
        assert message in err
        assert len(err.strip().splitlines()) == 1


def test_doctor_prints_versions_and_settings(capsys):
    status, out, _ = call(capsys, "doctor", "--json")
    document = json.loads(out)
    assert status == 0
    assert document["threads"] >= 1
    assert document["instruction_set"] in document["instruction_sets_supported"]
    assert {"python", "numba", "numpy", "fastcos"} <= set(document["versions"])
    assert document["blas"]


def test_no_command_prints_the_help(capsys):
    status, out, err = call(capsys)
    assert (status, err) == (2, "")
    assert "commands:" in out
    assert "neighbors" in out


def test_help_fits_one_screen(capsys):
    status, out, _ = call(capsys, "--help")
    assert status == 0
    assert len(out.splitlines()) <= 24


WRONG = [
    (
        ["reproduce", "--only-data", "--users", "0"],
        "--users must be a whole number of at least 1, got 0",
    ),
    (["reproduce", "--rank", "61", "--items", "60", "--users", "300"], "--rank must be a whole"),
    (["reproduce", "--preset", "pareto"], "preset must be one of zipf_bounded, "),
    (["reproduce", "--regularization", "-1", *SMALL[:4]], "--regularization must be a finite"),
    (["reproduce", "--seed", "-1"], "--seed must be a whole number of at least 0, got -1"),
    (["reproduce", "--threads", "0"], "--threads must be a whole number from 1 to 4096, got 0"),
    (["reproduce", "--rank", "many"], "--rank must be a whole number, got 'many'"),
    (["compare", "absent.csv"], "absent.csv"),
    (
        ["compare", "{}/seen.csv", "--label-column", "kind"],
        "--label-column must be left out",
    ),
    (["compare", "{}/seen.csv", "--labels", "{}/items.csv"], "--label-column must be given with"),
    (
        ["compare", "{}/seen.csv", "--labels", "{}/items.csv", "--label-column", "colour"],
        "colour",
    ),
    (["compare", "{}/seen.csv", "--item", "movie"], "movie"),
    (
        ["compare", "{}/seen.csv", "--measures", "cos"],
        "--measures must be the name of a measure, got 'cos' (did you mean 'cosine'?)",
    ),
    (["compare", "{}/seen.csv", "--preprocessing", "tf"], "--preprocessing must be one of all, "),
    (["compare", "{}/v.npy"], "--labels or --pairs must be given to evaluate measures on vectors"),
    (["compare", "{}/text.csv"], "(row 4)"),
    (["compare", "{}/empty.csv"], "empty.csv"),
    (["compare", "{}/nan.npz"], "nan"),
    (["neighbors", "{}/seen.csv"], "seen.csv"),
    (["neighbors", "{}", "--measure", "cos"], "--measure must be the name of a measure, "),
    (["neighbors", "{}", "--out", "n.txt"], "the suffix of --out must be one of .csv, .npz"),
    (["fit", "{}/seen.csv", "--rank", "600"], "--rank must be a whole number from 1 to "),
    (["advise"], "got 'advise'"),
]


@pytest.mark.parametrize(("arguments", "message"), WRONG)
def test_wrong_calls_print_one_line_and_write_nothing(
    files, tmp_path, capsys, monkeypatch, arguments, message
):
    (files / "text.csv").write_text("user,item,count\na,1,1\na,2,2\nb,1,many\n")
    (files / "empty.csv").write_text("")
    np.save(files / "v.npy", np.eye(4))
    nan = sp.csr_array(np.array([[1.0, np.nan], [2.0, 3.0]]))
    sp.save_npz(files / "nan.npz", nan)
    monkeypatch.chdir(tmp_path)
    status, out, err = call(capsys, *(text.format(files) for text in arguments))
    assert status == 2
    assert out == ""
    assert message in err
    assert "Traceback" not in err
    assert err.splitlines()[-1].startswith("fastcos")
    assert list(tmp_path.iterdir()) == []


def test_unwritable_folder_is_refused(files, tmp_path, capsys):
    (tmp_path / "file").write_text("in the way")
    status, _, err = call(
        capsys, "reproduce", "--only-data", *SMALL[:4], "--out", tmp_path / "file"
    )
    assert status == 2
    assert "file" in err


def test_installed_command_runs():
    command = Path(sys.executable).with_name("fastcos")
    if not command.exists():
        pytest.skip("fastcos is not installed as a command beside this Python")
    done = subprocess.run([command, "--help"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    assert "reproduce" in done.stdout


@pytest.mark.slow
@needs("ml-latest-small/ratings.csv.zip", "ml-latest-small/movies.csv")
def test_compare_films_by_genre(tmp_path, capsys):
    folder = DATA / "ml-latest-small"
    status, out, err = call(
        capsys,
        *("compare", folder / "ratings.csv.zip", "--labels", folder / "movies.csv"),
        *("--label-column", "genres", "--rank", 20, "--out", tmp_path, "--show", 1),
        *("--measures", "cosine"),
    )
    assert status == 0, err
    assert "100,836 interactions of 610 users with 9,724 items" in err
    document = json.loads((tmp_path / "comparison.json").read_text())
    auc = [row["pair_auc"] for row in document["scores"]["named"]]
    # Under every D, the cosines of these items hardly reflect genres.
    assert 0.5 < min(auc) < max(auc) < 0.7
    assert "(19" in out


@pytest.mark.slow
@pytest.mark.long
@needs("mtg/mtg_csr.npz", "mtg/cards.csv")
def test_compare_cards_by_colour(tmp_path, capsys):
    status, _, err = call(
        capsys,
        *("compare", DATA / "mtg/mtg_csr.npz", "--labels", DATA / "mtg/cards.csv"),
        *("--label-column", "color", "--only", "W,U,B,R,G", "--out", tmp_path),
    )
    assert status == 0, err
    document = json.loads((tmp_path / "comparison.json").read_text())
    assert document["parameters"]["labels"]["labelled"] == 10_544
    auc = {row["name"]: row["pair_auc"] for row in document["scores"]["named"]}
    assert auc["orthonormal"] < 0.66
    assert auc["eq2"] > 0.8
    assert document["leaderboard"]["beats_chance"]
    assert document["leaderboard"]["chance_level"]["precision@10 per class"] < 0.25


@pytest.mark.slow
@pytest.mark.long
@needs("anime/anime.zip")
def test_compare_anime_by_type(tmp_path, capsys):
    file = DATA / "anime/anime.zip"
    status, out, err = call(
        capsys,
        *("compare", file, "--member", "anime/anime_history.dat", "--labels", file),
        *("--label-member", "anime/anime_info.dat", "--label-column", "type", "--out", tmp_path),
    )
    assert status == 0, err
    assert conclusion_of(out).startswith("Use ")


@pytest.mark.slow
@pytest.mark.long
@needs(
    "completejourney/completejourney_pairs.csv.gz",
    "completejourney/completejourney_products.csv.gz",
)
def test_compare_baskets_by_department(tmp_path, capsys):
    folder = DATA / "completejourney"
    status, out, err = call(
        capsys,
        *("compare", folder / "completejourney_pairs.csv.gz", "--label-column", "department"),
        *("--labels", folder / "completejourney_products.csv.gz", "--out", tmp_path),
    )
    assert status == 0, err
    conclusion = conclusion_of(out)
    assert ". The labels are recovered better than by chance locally (" in conclusion
    assert "but not globally" in conclusion


@pytest.mark.long
@needs("glove50/glove50.npz", "words/battig.csv", "words/bless.csv", "words/EN-MEN-TR-3k.txt")
@pytest.mark.parametrize("categories", ["battig", "bless"])
def test_compare_words_by_category_and_ratings(tmp_path, capsys, categories):
    words = DATA / "words"
    status, out, err = call(
        capsys,
        *("compare", DATA / "glove50/glove50.npz", "--labels", words / f"{categories}.csv"),
        *("--label-column", "category", "--out", tmp_path, "--json"),
        *("--pairs", words / "EN-MEN-TR-3k.txt", words / "EN-SIMLEX-999.txt"),
    )
    assert status == 0, err
    result = json.loads(out)["leaderboards"]
    assert all(one["beats_chance"] for one in result.values())
    cosine = {
        name: next(row["score"] for row in one["rows"] if row["measure"] == "cosine")
        for name, one in result.items()
    }
    assert 0.64 < cosine["EN-MEN-TR-3k"] < 0.67
    assert 0.2 < cosine["EN-SIMLEX-999"] < 0.27
    assert result["EN-MEN-TR-3k"]["gain"]["low"] > 0


def test_reading_names_its_columns_and_cells_that_weigh_most(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cells = np.argwhere(np.random.default_rng(0).random((60, 40)) < 0.3).tolist()
    lines = [f"u{u},i{i},{74215 if [u, i] == cells[9] else 1},2" for u, i in cells]
    Path("sold.csv").write_text("customer,item,quantity,invoices\n" + "\n".join(lines) + "\n")
    for words, columns, warns in (
        ((), "'customer' for users, 'item' for items, 'quantity' for values", True),
        (
            ("--value", ""),
            "'customer' for users, 'item' for items, every interaction has the value 1",
            False,
        ),
        (
            ("--value", "invoices"),
            "'customer' for users, 'item' for items, 'invoices' for values",
            False,
        ),
    ):
        status, _, err = call(capsys, "fit", "sold.csv", "--rank", 2, *words)
        assert status == 0
        assert columns in err
        assert ("cells contribute 100% of the sum of the squared" in err) == warns


def test_warmup_refuses_a_cache_that_it_cannot_write(tmp_path, capsys, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FASTCOS_CACHE_DIR", str(tmp_path / "file" / "cache"))
    status, _, err = call(capsys, "warmup")
    assert status == 2
    assert "the cache (FASTCOS_CACHE_DIR) must be a directory" in err
