"""What the command line says of itself: help, examples, completion, compilation, progress."""

import json
import os
import re
import shlex
import subprocess
import sys
from importlib import import_module, metadata
from pathlib import Path
from types import SimpleNamespace

import numba
import pytest

from fastcos.cli import doctor, terminal
from fastcos.cli.compilation import SECONDS, compilation_told
from fastcos.cli.main import SHELLS, VERBS, main, whole_parser

EXAMPLES = [
    (name, line.strip())
    for name in VERBS
    for line in re.sub(r"\\\n *", "", import_module(f"fastcos.cli.{name}").EPILOG).splitlines()
    if line.startswith("  ")
]


def told(capsys, *arguments):
    try:
        status = main([str(argument) for argument in arguments])
    except SystemExit as exit_:
        status = exit_.code
    return (status, *capsys.readouterr())


def ran(code):
    """What another process prints on stdout."""
    return subprocess.run(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True
    ).stdout


def test_every_verb_has_an_example():
    assert {name for name, _ in EXAMPLES} == set(VERBS)


@pytest.mark.parametrize(("name", "line"), EXAMPLES)
def test_an_example_is_a_call_that_parses(name, line):
    words = shlex.split(line.split("  ")[0].split(" > ")[0])
    while "=" in words[0]:  # settings before the command
        words.pop(0)
    assert words.pop(0) == "fastcos"
    assert whole_parser(words).parse_args(words).verb in VERBS


@pytest.mark.parametrize("name", VERBS)
def test_the_help_of_a_verb_shows_its_examples_and_json(capsys, name, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    status, out, _ = told(capsys, name, "--help")
    assert status == 0
    assert re.search(r"^examples?:", out, flags=re.MULTILINE)
    assert "--json" in out
    assert max(map(len, out.splitlines())) <= 80


def test_the_help_fits_a_terminal_with_its_prompt(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    _, out, _ = told(capsys, "--help")
    lines = out.splitlines()
    assert len(lines) < 24
    assert max(map(len, lines)) <= 80
    assert all(re.search(rf"^ +{name} +\S", out, re.MULTILINE) for name in VERBS)


def test_the_help_comes_without_numerical_libraries():
    code = """
import sys
from fastcos.cli.main import main
try:
    main(["--help"])
except SystemExit:
    pass
print(sorted({"numba", "numpy", "scipy", "sklearn", "matplotlib", "rich"} & set(sys.modules)))
"""
    assert ran(code).splitlines()[-1] == "[]"


def test_importing_fastcos_imports_nothing_heavy():
    code = "import sys, fastcos; print(sorted({'numba', 'numpy', 'scipy'} & set(sys.modules)))"
    assert ran(code) == "[]\n"


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_knows_verbs_and_flags(capsys, shell):
    pytest.importorskip("shtab")
    status, out, _ = told(capsys, "--completion", shell)
    assert status == 0
    assert "reproduce" in out
    assert "label-column" in out


def test_completion_without_shtab_tells_the_remedy(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "shtab", None)
    status, _, err = told(capsys, "--completion", "bash")
    assert status == 2
    assert "pip install 'fastcos[completion]'" in err
    assert len(err.splitlines()) == 1


@pytest.mark.skipif(os.name != "posix", reason="pipes of a POSIX shell")
@pytest.mark.parametrize(
    "words",
    [
        "doctor --json",
        pytest.param("compare --help", marks=pytest.mark.slow),
        pytest.param("--completion zsh", marks=pytest.mark.slow),
    ],
)
def test_a_reader_that_goes_early_leaves_no_traceback(words):
    program = shlex.join([sys.executable, "-c", "from fastcos.cli.main import *; entry_point()"])
    done = subprocess.run(
        ["bash", "-c", f"(sleep 0.2; {program} {words}) | true; echo ${{PIPESTATUS[0]}}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    # newer releases of argparse ignore a closed pipe under --help
    assert done.stdout == "141\n" or ("--help" in words and done.stdout == "0\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full of Linux")
@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        ("--version > /dev/full", 2, "fastcos: standard output: No space left on device\n"),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (
                ("doctor --json > /dev/full", 2, "fastcos doctor: no space left on device\n"),
                ("doctor >&-", 0, ""),
                ("neighbors missing.npy 2>&- >&1", 2, ""),  # errors do not become data
                ("neighbors missing.npy 2>/dev/full", 2, ""),
                ("doctor <&- >&- 2>&-", 0, ""),
            )
        ),
    ],
)
def test_closed_or_full_streams_leave_no_traceback(words, status, message):
    program = shlex.join([sys.executable, "-c", "from fastcos.cli.main import *; entry_point()"])
    done = subprocess.run(
        ["bash", "-c", f"{program} {words}"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (status, "", message)


def test_an_error_commands_no_terminal(capsys):
    terminal.fail("fastcos", "got \x1b[2J\u202e of\nté")
    assert capsys.readouterr().err == "fastcos: got \\x1b[2J\\u202e of té\n"


def test_a_wrong_variable_is_told_by_itself(capsys, monkeypatch):
    for name in ("FASTCOS_NUM_THREADS", "FASTCOS_WORKING_MEMORY"):
        with monkeypatch.context() as during:
            during.setenv(name, "abc")
            status, out, err = told(capsys, "neighbors", "missing.npy")
        assert (status, out) == (2, "")
        assert err == f"fastcos neighbors: {name} must be a number, got 'abc'\n"


def test_version(capsys):
    assert told(capsys, "--version")[:2] == (0, f"fastcos {metadata.version('fastcos')}\n")


def test_the_seconds_of_compilation_name_verbs():
    assert set(SECONDS) <= set(VERBS)


def test_compilation_is_told_once_and_only_where_there_is_some(capsys):
    with compilation_told("simulate"):
        numba.jit(lambda x: x + 1)(1)
        numba.jit(lambda x: x + 2)(1)
    first, last = capsys.readouterr().err.splitlines()
    assert first.startswith(f"compiling kernels once, about {SECONDS['simulate']} s; later runs")
    assert re.fullmatch(r"compiled for \d+\.\d s", last)
    with compilation_told("simulate"):
        pass
    assert capsys.readouterr().err == ""


def test_doctor_advises_where_something_is_wrong():
    fine = {
        "cache_directory": "/c",
        "cache_writable": True,
        "compiled_signatures_cached": 3,
        "threads": 2,
        "cores_allowed": 2,
        "instruction_set": "vnni",
        "instruction_sets_supported": ["vnni", "avx2", "generic"],
    }
    assert doctor.advice(fine) == []
    wrong = {
        "cache_writable": (False, "FASTCOS_CACHE_DIR"),
        "compiled_signatures_cached": (0, "fastcos warmup"),
        "threads": (3, "3 threads share 2 cores"),
        "instruction_set": ("avx2", "holds the kernels to avx2"),
    }
    for name, (value, words) in wrong.items():
        (line,) = doctor.advice({**fine, name: value})
        assert words in line
    assert "slow" in doctor.advice({**fine, "instruction_set": "generic"})[0]


def test_doctor_prints_a_table(capsys):
    status, out, _ = told(capsys, "doctor")
    assert status == 0
    assert "instruction set" in out


def test_a_log_gets_lines_of_progress_with_rate_and_time_left(capsys, monkeypatch):
    clock = iter([0.0, 5.0, 10.0, 11.0])
    monkeypatch.setattr(terminal.time, "monotonic", lambda: next(clock))
    with terminal.progress_bar("searching") as progress:
        for done in (50, 100, 110):
            progress(done, 400)
    assert capsys.readouterr().err == "searching: 100 of 400, 10/s, about 30 s left\n"


def test_the_pace_in_a_log_leaves_out_the_first_step_which_may_compile(capsys, monkeypatch):
    clock = iter([0.0, 0.0, 40.0, 41.0, 51.0])
    monkeypatch.setattr(terminal.time, "monotonic", lambda: next(clock))
    with terminal.progress_bar("comparing") as progress:
        for done in (0, 1, 2, 12):
            progress(done, 32)
    first, second = capsys.readouterr().err.splitlines()
    assert first == "comparing: 1 of 32"
    assert second == "comparing: 12 of 32, 1/s, about 20 s left"


def test_a_count_that_begins_anew_has_a_pace_of_its_own():
    pace = terminal._Pace()
    assert pace.told(100, 200, 0.0) == ""
    assert pace.told(200, 200, 1.0) == "100/s, about 0 s left"
    assert pace.told(0, 30, 2.0) == ""
    assert pace.told(10, 30, 12.0) == ""
    assert pace.told(20, 30, 22.0) == "1/s, about 10 s left"


def test_a_table_wider_than_the_terminal_goes_on_below_with_every_number_whole(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # what makes rich take stdout for a terminal
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    header = ["name", *(f"number {i}" for i in range(12)), "meaning"]
    rows = [[f"row {i}", *(i + j / 100 for j in range(12)), "what it says"] for i in range(3)]
    for columns, tables in (("40", 4), ("160", 1)):
        monkeypatch.setenv("COLUMNS", columns)
        terminal.print_table("a title", header, rows)
        out = re.sub("\x1b\\[[0-9;]*m", "", capsys.readouterr().out)
        assert "…" not in out
        assert max(map(len, out.splitlines())) <= int(columns)
        assert out.count("row 2") >= tables
        assert (out.count("row 2") == 1) == (tables == 1)
        assert all(f"{row[j]:.3f}" in out for row in rows for j in range(1, 13))
        assert out.count("a title") == 1


@pytest.mark.parametrize(
    ("rate", "text"), [(0.1, "10 s each"), (12.34, "12.3/s"), (1234567, "1.23M/s"), (2e10, "20G/s")]
)
def test_a_rate_is_short(rate, text):
    assert terminal._rate(rate) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (119, "119 s"), (150, "2 min"), (9e3, "2.5 h")],
)
def test_time_left_is_told_as_people_plan_it(seconds, text):
    assert terminal._duration(seconds) == text


def test_a_bar_keeps_its_pace_when_the_total_changes(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # what makes rich take stderr for a terminal
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    clock = iter([0.0, 1.0, 3.0, 4.0])  # rich keeps its own
    monkeypatch.setattr(terminal, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    with terminal.progress_bar("factorising") as progress:
        for done, total in ((0, 500), (16, 500), (48, 300), (64, 256)):
            progress(done, total)
    err = re.sub("\x1b\\[[0-9;?]*[a-zA-Z]", "", capsys.readouterr().err)
    assert "64/256" in err
    assert "16/s, about 12 s left" in err


# writes down every call that finds no compiled code in the process, kept on disk or not
RECORDING = """
import json, os
from pathlib import Path
from numba.core.dispatcher import _DispatcherBase
asked, compile_for_args = set(), _DispatcherBase._compile_for_args
def recorded(self, *arguments, **named):
    types = ", ".join(str(self.typeof_pyval(argument)) for argument in arguments)
    asked.add(f"{self.py_func.__module__}.{self.py_func.__qualname__}({types})")
    return compile_for_args(self, *arguments, **named)
_DispatcherBase._compile_for_args = recorded
import numpy as np
from fastcos.cli.main import main
"""


def signatures_asked_for(code, folder):
    kept = folder / "asked.json"
    code = f"os.chdir({str(folder)!r})\n{code}"
    ran(f"{RECORDING}\n{code}\nPath({str(kept)!r}).write_text(json.dumps(sorted(asked)))")
    return set(json.loads(kept.read_text()))


@pytest.mark.slow
def test_after_warmup_no_verb_compiles_anything(tmp_path):
    warmed = signatures_asked_for('assert main(["warmup"]) == 0', tmp_path)
    assert len(warmed) > 50
    verbs = """
rng = np.random.default_rng(0)
np.save("f4.npy", rng.standard_normal((100, 8)).astype("f4"))
np.save("f8.npy", rng.standard_normal((100, 8)))
cells = [(u, i) for u in range(60) for i in range(40) if (7 * u + 3 * i) % 5 < 2]
lines = "".join(f"u{u},i{i},{1 + u * i % 3}\\n" for u, i in cells)
Path("seen.csv").write_text("user,item,value\\n" + lines)
seen = ["s/interactions.npz"]
for words in (
    ["simulate", "--users", "400", "--items", "70", "--out", "s"],
    ["reproduce", "--users", "400", "--items", "70", "--rank", "9", "--out", "r"],
    ["compare", *seen, "--labels", "s/items.csv", "--label-column", "cluster", "--rank", "8"],
    ["compare", "seen.csv", "--rank", "5", "--measures", "dot,csls", "--out", "c"],
    ["fit", *seen, "--rank", "8", "--out", "m"],
    ["ingest", "seen.csv", "--out", "shards"],
    ["fit", "shards", "--rank", "5", "--out", "of-shards"],
    ["fit", "seen.csv", "--rank", "5", "--out", "rated"],
    ["neighbors", "rated", "--measure", "csls"],
    ["neighbors", "m"],
    ["neighbors", "m", "--show", "3"],
    ["neighbors", "f8.npy", "--measure", "dot", "--out", "n.npz"],
    ["audit", "f4.npy", "--users", "f8.npy", "--out", "a"],
    ["audit", "f8.npy", "--out", "a"],
    ["audit", "f4.npy", "--against", "f4.npy", "--out", "a"],
    ["export", "f4.npy", "--users", "f8.npy"],
    ["bench", "f4.npy", "--seconds", "0.01", "--competitors", ""],
):
    assert main(words) == 0, words
"""
    asked = signatures_asked_for(verbs, tmp_path)
    assert len(asked) > 20
    assert asked - warmed == set()
