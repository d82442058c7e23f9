"""A wrong call of a command ends with status 2.

The command prints an error of one line that names the wrong argument. It prints no data, and writes
no files.
"""

import re

import numpy as np
import pytest

import fastcos
from fastcos.cli.main import COMMANDS, main

# Each line contains the call, and a part of the expected error message.
CALLS = """
reproduce --users 0                                  | --users must be a whole number of at least
reproduce --users many                               | --users must be a whole number, got 'many'
reproduce --items 1                                  | --clusters must be a whole number from 1 to 1
reproduce --users 300 --items 60 --clusters 2000     | --clusters must be a whole number from 1 to
reproduce --users 90 --items 60 --rank 5000           | --rank must be a whole number from 1 to 60
reproduce --preset zipf                              | --preset must be one of zipf_bounded, zipf_
reproduce --users 90 --items 60 --regularization -1   | --regularization must be a finite number >=
reproduce --objective none                           | --objective must be one of both, drop
reproduce --seed -1                                  | --seed must be a whole number of at least 0
reproduce --out items.npy                            | --out must be a directory, got 'items.npy'
reproduce --fast                                     | unrecognized arguments: --fast (see fastcos
reproduce --only-data --users -5                     | --users must be a whole number of at least
reproduce --only-data --items 0                      | --items must be a whole number of at least
reproduce --only-data --clusters 0                   | --clusters must be a whole number from 1
reproduce --only-data --clusters 3.5                 | --clusters must be a whole number, got '3.5'
reproduce --only-data --preset zipf                  | --preset must be one of
reproduce --only-data --threads -1                   | --threads must be a whole number from 1 to 4
reproduce --only-data --out items.npy/simulated      | --out must be a directory, got 'items.npy/s
reproduce --only-data twice                          | unrecognized arguments: twice (see fastcos
compare                                              | arguments are required: INTERACTIONS
compare missing.csv                                  | missing.csv: no such file or directory
compare empty.csv                                    | empty.csv must start with a header line
compare columns.csv                                  | --user must be given for columns.csv: no col
compare seen.csv --user person                       | --user must name one column of seen.csv (use
compare seen.csv --labels kinds.csv                  | --label-column must be given with --labels
compare seen.csv --label-column kind                 | --label-column must be left out without --la
compare seen.csv --labels kinds.csv --label-column no | --label-column must name one column of kinds
compare seen.csv --labels kinds.csv --label-column kind --label-item no | --label-item must name one
compare seen.csv --labels kinds.csv --label-column kind --label-member a | --label-member must be
compare seen.csv --rank 100                          | --rank must be a whole number from 1 to 9, g
compare seen.csv --rescaling 1                       | --rescaling must be one of identity
compare seen.csv --rescaling 1,x                     | --rescaling must be a number, got 'x'
compare seen.csv --rescaling nan,1                   | --rescaling must be a finite number, got nan
compare seen.csv --measures cosin                    | --measures must be one of all_but_the_top,
compare seen.csv --mesures dot                       | --mesures dot (did you mean '--measures'?)
fit seen.csv --objective dropot                      | 'dropot' (did you mean 'dropout'?)
compare seen.csv --preprocessing tfidf               | --preprocessing must be one of all, none,
compare items.npy                                    | --labels or --pairs must be given to evaluat
compare seen.csv --out items.npy                     | --out must be a directory
recommend items.npy                                  | arguments are required: INTERACTIONS
recommend missing.npz seen.csv                       | missing.npz: no such file or directory
recommend items.npy empty.csv                        | empty.csv must start with a header line
recommend items.npy seen.csv                         | MODEL must be a file with item and user
recommend both.npz seen.csv                          | seen.csv must name rows by their numbers
recommend both.npz seen.csv --ids items.txt          | seen.csv must name rows by their numbers
recommend both.npz seen.csv --ids users.txt          | users.txt must hold 11 ids, got
recommend both.npz seen.csv --measure cosin          | (did you mean 'cosine'?)
recommend both.npz seen.csv --rescaling balanced     | --rescaling must be left out for embeddings
recommend both.npz seen.csv --ids items.txt --user-ids users.txt --k 12 | --k must be a whole number
recommend both.npz seen.csv --ids items.txt --user-ids users.txt --show u9 | --show must be a known
recommend both.npz seen.csv --out r.txt              | the suffix of --out must be one of
fit seen.csv --duplicates mean                       | --duplicates must be one of sum, last, max
fit missing.npz                                      | missing.npz: no such file or directory
fit empty.csv                                        | empty.csv must start with a header line
fit seen.csv --rank 0                                | --rank must be a whole number from 1 to 9
fit seen.csv --rank two                              | --rank must be a whole number, got 'two'
fit seen.csv --objective both                        | --objective must be one of dropout, weight_d
fit seen.csv --regularization -3                     | --regularization must be a finite number >=
fit seen.csv --tol 0                                 | --tol must be a finite number > 0, got 0.0
fit seen.csv --seed -1                               | --seed must be a whole number of at least 0
fit seen.csv --out items.npy                         | --out must be a directory
fit .                                                | INTERACTIONS must be a saved InteractionShar
neighbors missing                                    | missing: no such file or directory
neighbors .                                          | . must be a file of vectors
neighbors items.npy --queries five.npy               | --queries must have as many columns as items
neighbors items.npy --queries missing.npy            | missing.npy: no such file or directory
neighbors items.npy --queries items.npy --show 99    | --show must be a known id
neighbors items.npy --min-score nan                  | --min-score must be a finite number
neighbors items.npy --names kinds.csv                | --text must be given for kinds.csv: no column
recommend none seen.csv                              | must be a measure that compares items
recommend none seen.csv --measure cosine --ids i.npy | --ids must be left out without a model
compare seen.csv --vector-column item                | --labels or --pairs must be given to evaluat
audit items.npy --vector-column a                    | --vector-column must be left out for .npy,
neighbors seen.csv                                   | seen.csv must have a row per vector, got a
neighbors nan.npy                                    | nan.npy: vectors must be finite, got NaN
neighbors line.npy                                   | line.npy must hold one 2-dimensional array
neighbors items.npy --k 5000                         | --k must be a whole number from 1 to 49, got
neighbors items.npy --measure cosin                  | --measure must be one of all_but_the_top,
neighbors items.npy --rescaling balanced             | --rescaling must be left out for vectors
neighbors items.npy --show 99                        | --show must be a known id, such as 0
neighbors items.npy --out n.txt                      | the suffix of --out must be one of .csv, .np
neighbors items.npy --out items.npy/n.csv            | the folder of --out must be a directory
neighbors items.npy --out folder.csv                 | --out must be a regular file or a path
neighbors items.npy --out round.csv                  | --out must be a regular file or a path
neighbors items.npy --measure csls:n_neighbors=      | n_neighbors must have a value after the =
neighbors items.npy --measure csls:n_neighbors=5:n_neighbors=6 | n_neighbors must be given once
neighbors items.npy --measure soft_cosine:matrix=kept | matrix must be a folder that `fastcos fit`
audit missing.npy                                    | missing.npy: no such file or directory
audit nan.npy                                        | nan.npy: vectors must be finite
audit items.npy --users users.npy                    | audit: users.npy: vectors must be finite
audit kept                                           | fastcos fit or export wrote, got another
audit items.npy --users five.npy                     | --users must have as many columns as items (
audit items.npy --k 60                               | --k must be a whole number from 1 to 49, got
audit items.npy --condition 0.5                      | --condition must be a finite number >= 1
audit items.npy --popularity missing.csv             | missing.csv: no such file or directory
audit items.npy --old-users five.npy                 | --old-users must be left out without --again
audit items.npy --fail-under sure=1                  | --fail-under must be one of certified, jacca
audit items.npy --fail-under certified               | --fail-under certified must be a number
audit items.npy --fail-under certified=2             | --fail-under certified must be a finite numb
audit items.npy --fail-under unchanged=0.5           | --against must be given for --fail-under unc
audit items.npy --labels kinds.csv                   | --label-column must be given with --labels
audit items.npy --out items.npy                      | --out must be a directory
index export                                         | arguments are required: ITEMS
index export missing.npy                             | missing.npy: no such file or directory
index export items.npy                               | --users must be given, because an export
index export items.npy --users five.npy              | --users must have as many columns as items (
index export items.npy --form raw                    | --form must be one of query_metric, canonica
index export items.npy --users missing.npy           | missing.npy: no such file or directory
index export nan.npy --users items.npy               | nan.npy: vectors must be finite
index export line.npy --users items.npy              | line.npy must hold one 2-dimensional array
index export items.npy --users huge.npy              | --users must have entries whose squares
index export huge.npy --users items.npy              | the exported items must fit in float32
index export seen.csv --users items.npy              | seen.csv must have a row per vector, got a
index export items.npy --users items.npy --out items.npy   | --out must be a directory
index                                                | arguments are required: SUBCOMMAND
index buld items.npy ix                              | 'buld' (did you mean 'build'?)
index build items.npy kept                           | DIR must be a new directory
index build seen.csv ix                              | seen.csv must have a row per vector, got a
index build items.npy ix --measure cosin             | (did you mean 'cosine'?)
index add missing items.npy                          | missing
index add shop five.npy --ids five.txt               | must have as many columns as
index add shop items.npy                             | --ids must be strings, like the ids of
index remove shop                                    | exactly one of ID and --ids must be given
index remove shop a99                                | ids must be in the index, got 'a99'
index search shop --show a99                         | --show must be a known id, such as
index search shop --queries five.npy                 | --queries must have as many columns as
index search shop --k 0                              | --k must be a whole number
index search shop --out n.txt                        | the suffix of --out must be one of
index search shop --exclude missing.csv              | missing.csv: no such file
index search shop --queries items.npy --exclude seen.csv | seen.csv must name rows by their numbers
index duplicates items.npy                           | --min-score or --fpr must be given
index duplicates items.npy --min-score 95            | --min-score must be at most 1 for cosine
index duplicates items.npy --min-score 0.9 --fpr 0.1 | --fpr: not allowed with argument --min-score
index duplicates items.npy --fpr 2                   | --fpr must be a
calibrate                                            | arguments are required: ITEMS
calibrate missing.npy                                | missing.npy: no such file or directory
calibrate nan.npy                                    | nan.npy: vectors must be finite
calibrate items.npy --queries five.npy               | --queries must have as many columns as items
calibrate items.npy --measure cosin                  | (did you mean 'cosine'?)
calibrate items.npy --fpr 2                          | --fpr must be a
calibrate items.npy --fpr many                       | --fpr must be a number, got 'many'
calibrate items.npy --condition 0.5                  | --condition must be a finite number >= 1
calibrate items.npy --labelled missing.csv           | missing.csv: no such file or directory
calibrate items.npy --out items.npy                  | --out must be a directory
calibrate items.npy --names missing.csv              | missing.csv: no such file or directory
neighbors missing.npy --out o.npy                    | --queries must be given
neighbors missing.npy --queries items.npy --out o.npy| missing.npy
neighbors items.npy --queries missing.npy --out o.npy| missing.npy
neighbors items.npy --queries five.npy --out o.npy   | must have as many columns as
neighbors items.npy --queries items.npy --k 0 --out o.npy| --k must be a whole number
neighbors items.npy --queries items.npy --k 60 --out o.npy| --k must be a whole number
neighbors items.npy --queries items.npy --measure cosin --out o.npy| (did you mean 'cosine'?)
neighbors items.npy --queries items.npy --out o.txt  | --out must
neighbors nan.npy --queries items.npy --out o.npy    | must be finite
neighbors items.npy --queries items.npy --result missing.npy| missing.npy
neighbors items.npy --queries items.npy --threads 0 --out o.npy| --threads must be a whole number
doctor now                                           | unrecognized arguments: now (see fastcos doc
doctor --json=3                                      | --json: ignored explicit argument '3'
warmup now                                           | unrecognized arguments: now (see fastcos war
warmup --threads 2                                   | unrecognized arguments: --threads 2 (see fas
"""
LINES = [tuple(map(str.strip, line.split("|"))) for line in CALLS.strip().splitlines()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wrong")
    rows = np.random.default_rng(0).random((50, 6))
    np.save(folder / "items.npy", rows)
    np.save(folder / "five.npy", rows[:, :5])
    np.save(folder / "line.npy", rows[0])
    rows[3, 2] = np.nan
    np.save(folder / "nan.npy", rows)
    np.save(folder / "users.npy", rows)  # The name of this file starts like a flag.
    np.save(folder / "huge.npy", np.full((50, 6), 1e300))
    np.savez(folder / "both.npz", items=rows[10:21], users=rows[20:29])
    (folder / "items.txt").write_text("".join(f"i{i}\n" for i in range(11)))
    (folder / "users.txt").write_text("".join(f"u{i}\n" for i in range(9)))
    names = [f"a{i}" for i in range(30)]
    fastcos.SimilarityIndex().fit(rows[20:], ids=names).save(folder / "shop")
    (folder / "five.txt").write_text("".join(f"b{i}\n" for i in range(50)))
    (folder / "kept").mkdir()
    (folder / "folder.csv").mkdir()
    (folder / "round.csv").symlink_to("round.csv")
    cells = "".join(f"u{i % 9},i{i * 7 % 11},1\n" for i in range(60))
    (folder / "seen.csv").write_text("user,item,value\n" + cells)
    (folder / "kinds.csv").write_text(
        "item,kind\n" + "".join(f"i{i},k{i % 3}\n" for i in range(11))
    )
    (folder / "empty.csv").write_text("")
    (folder / "columns.csv").write_text("a,b\n1,2\n")
    return folder


def test_every_command_has_ten_wrong_calls():
    commands = [call.split()[0] for call, _ in LINES]
    assert all(commands.count(name) > 9 for name in set(COMMANDS) - {"doctor", "warmup"})


# The default tests are the first five wrong calls of each command.
COMMANDS_OF_LINES = [call.split()[0] for call, _ in LINES]
CASES = [
    pytest.param(*line, marks=[pytest.mark.slow] * (COMMANDS_OF_LINES[:n].count(name) > 4))
    for n, (name, line) in enumerate(zip(COMMANDS_OF_LINES, LINES, strict=True))
]


@pytest.mark.parametrize(("call", "words"), CASES, ids=[call for call, _ in LINES])
def test_wrong_call_prints_one_line(call, words, folder, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    before = sorted(folder.iterdir())
    try:
        status = main(call.split())
    except SystemExit as left:
        status = left.code
    out, err = capsys.readouterr()
    # Other messages may precede the error, for example that kernels are being compiled.
    *talk, line = err.splitlines()
    assert status == 2
    assert out == ""
    assert re.match(rf"fastcos {call.split()[0]}( [a-z]+)?: ", line), err
    assert words in line
    assert not any(one.startswith("fastcos ") for one in talk)
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize(
    ("call", "words"),
    [("adit x", "got 'adit' (did you mean 'audit'?)"), ("x y", "COMMAND must be one of reproduce")],
)
def test_wrong_command_names_the_nearest(call, words, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(call.split())
    assert words in capsys.readouterr().err
