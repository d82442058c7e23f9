"""Tests of the terminal output of the commands.

The tests cover the help with its examples, completion, messages about compilation, progress bars
and tables.
"""

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

from fastcos import set_config
from fastcos.cli import doctor, terminal, warmup
from fastcos.cli.main import COMMANDS, SHELLS, build_parser, main
from fastcos.kernels import cpu, native
from fastcos.kernels.jit import kernel

EXAMPLES = [
    (name, line.strip())
    for name in COMMANDS
    for line in re.sub(r"\\\n *", "", import_module(f"fastcos.cli.{name}").EPILOG).splitlines()
    if line.startswith("  ")
]


def run(capsys, *arguments):
    """Run one command; return its exit status, stdout and stderr."""
    try:
        status = main([str(argument) for argument in arguments])
    except SystemExit as exit_:
        status = exit_.code
    return (status, *capsys.readouterr())


def stdout_of(code):
    """Return the output of Python code that runs in a new process."""
    return subprocess.run(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True
    ).stdout


def test_every_command_has_an_example():
    assert {name for name, _ in EXAMPLES} == set(COMMANDS)


@pytest.mark.parametrize(("name", "line"), EXAMPLES)
def test_examples_of_the_help_parse(name, line):
    words = shlex.split(line.split("  ")[0].split(" > ")[0])
    while "=" in words[0]:  # settings before the command
        words.pop(0)
    assert words.pop(0) == "fastcos"
    assert build_parser(words).parse_args(words).command in COMMANDS


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command_shows_examples_and_json(capsys, name, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    status, out, _ = run(capsys, name, "--help")
    assert status == 0
    assert re.search(r"^examples?:", out, flags=re.MULTILINE)
    assert "--json" in out
    assert max(map(len, out.splitlines())) <= 80


def test_help_fits_a_terminal(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    _, out, _ = run(capsys, "--help")
    lines = out.splitlines()
    assert len(lines) < 24
    assert max(map(len, lines)) <= 80
    assert all(re.search(rf"^ +{name} +\S", out, re.MULTILINE) for name in COMMANDS)


@pytest.mark.slow
def test_import_help_and_the_first_message_import_nothing_heavy():
    """The import of fastcos, the help and the first message load no heavy packages.

    One process is enough for this test, because each step imports all that the step before it
    imported.
    """
    code = """
import sys, fastcos
def show(*names):
    print(sorted({*names} & set(sys.modules)), flush=True)
show("numba", "numpy", "scipy")
from fastcos.cli import main, terminal
try:
    main.main(["--help"])
except SystemExit:
    show("numba", "numpy", "scipy", "sklearn", "matplotlib", "rich")
from fastcos.cli import reproduce
def say(message):
    print(message)
    show("matplotlib", "scipy.stats", "sklearn")
main.fail, reproduce.say = (lambda *_: None), say
main.main(["reproduce", "--users", "0"])
"""
    first, *_, after_help, message, last = stdout_of(code).splitlines()
    assert message == "simulating the interactions of 0 users with 1,000 items"
    assert [first, after_help, last] == ["[]"] * 3


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_knows_commands_and_flags(capsys, shell):
    pytest.importorskip("shtab")
    status, out, _ = run(capsys, "--completion", shell)
    assert status == 0
    assert "reproduce" in out
    assert "label-column" in out


def test_completion_without_shtab_names_the_extra(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "shtab", None)
    status, _, err = run(capsys, "--completion", "bash")
    assert status == 2
    assert "pip install shtab" in err
    assert len(err.splitlines()) == 1


@pytest.mark.skipif(os.name != "posix", reason="pipes of a POSIX shell")
@pytest.mark.parametrize(
    "words",
    [
        "--version",
        pytest.param("doctor --json", marks=pytest.mark.slow),
        pytest.param("doctor", marks=pytest.mark.slow),
        pytest.param("compare --help", marks=pytest.mark.slow),
        pytest.param("--completion zsh", marks=pytest.mark.slow),
    ],
)
def test_closed_pipe_leaves_no_traceback(words):
    program = shlex.join([sys.executable, "-c", "from fastcos.cli.main import *; entry_point()"])
    done = subprocess.run(
        ["bash", "-c", f"(sleep 0.2; {program} {words}) | true; echo ${{PIPESTATUS[0]}}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    # Newer releases of argparse ignore a closed pipe when they print --help.
    assert done.stdout == "141\n" or ("--help" in words and done.stdout == "0\n")


@pytest.mark.slow
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
                ("neighbors missing.npy 2>&- >&1", 2, ""),  # errors are not written to stdout
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


def test_fail_escapes_control_characters(capsys):
    terminal.fail("fastcos", "got \x1b[2J\u202e of\nté")
    assert capsys.readouterr().err == "fastcos: got \\x1b[2J\\u202e of té\n"


def test_wrong_environment_variable_is_refused(capsys, monkeypatch):
    for name in ("FASTCOS_N_THREADS", "FASTCOS_WORKING_MEMORY"):
        with monkeypatch.context() as during:
            during.setenv(name, "abc")
            status, out, err = run(capsys, "neighbors", "missing.npy")
        assert (status, out) == (2, "")
        assert err == f"fastcos neighbors: {name} must be a number, got 'abc'\n"


def test_version(capsys):
    assert run(capsys, "--version")[:2] == (0, f"fastcos {metadata.version('fastcos')}\n")


def test_compilation_time_is_reported(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("FASTCOS_CACHE_DIR", str(tmp_path))
    with terminal.report_compilation():
        numba.jit(lambda x: x + 1)(1)  # no kernel
    assert capsys.readouterr().err == ""
    with terminal.report_compilation():
        kernel(lambda x: x + 1)(1)
    last = capsys.readouterr().err.splitlines()[-1]
    assert re.fullmatch(r"\d+\.\d s of the run time were spent compiling kernels", last)
    with terminal.report_compilation():
        pass
    assert capsys.readouterr().err == ""


def test_doctor_advises_on_each_problem():
    fine = {
        "cache_directory": "/c",
        "cache_writable": True,
        "numba_installed": True,
        "search_is_compiled": True,
        "threads": 2,
        "cores_allowed": 2,
        "instruction_set": "vnni",
        "instruction_sets_supported": ["vnni", "avx2", "generic"],
    }
    assert doctor.advice(fine) == []
    wrong = {
        "cache_writable": (False, "FASTCOS_CACHE_DIR"),
        "numba_installed": (False, "fastcos[compile]"),
        "search_is_compiled": (False, "fastcos warmup"),
        "threads": (3, "3 threads share 2 cores"),
        "instruction_set": ("avx2", "limits the kernels to avx2"),
    }
    for name, (value, words) in wrong.items():
        (line,) = doctor.advice({**fine, name: value})
        assert words in line
    assert "slow" in doctor.advice({**fine, "instruction_set": "generic"})[0]
    # Without Numba, `warmup` cannot compile anything; without a writable cache, it cannot store the
    # compiled code. In both cases, the advice does not recommend `warmup`.
    for name in ("cache_writable", "numba_installed"):
        (line,) = doctor.advice({**fine, name: False, "search_is_compiled": False})
        assert "fastcos warmup" not in line


def test_a_page_of_the_repository_is_named_in_a_clone_only(tmp_path, capsys, monkeypatch):
    page = tmp_path / "decide.md"
    monkeypatch.setattr(terminal, "DECISION_PAGE", page)
    terminal.say_written([tmp_path / "audit.html", tmp_path / "audit.json"])
    assert capsys.readouterr().err == f"wrote to the folder {tmp_path}: audit.html, audit.json\n"
    page.touch()
    terminal.say_written([tmp_path / "audit.html"])
    assert str(page) in capsys.readouterr().err


def test_doctor_prints_a_table(capsys):
    status, out, _ = run(capsys, "doctor")
    assert status == 0
    assert "instruction set" in out


@pytest.fixture
def terminal_of(monkeypatch):
    """Return a function that sets the width of the terminal for which `rich` formats its output."""

    def set_columns(columns):
        for name, value in (("FORCE_COLOR", 1), ("NO_COLOR", 1), ("TERM", "xterm")):
            monkeypatch.setenv(name, str(value))
        monkeypatch.setenv("COLUMNS", str(columns))

    return set_columns


@pytest.fixture
def clock(monkeypatch):
    """Replace the clock of the progress bar; return a list that contains only its current time."""
    now = [0.0]
    monkeypatch.setattr(terminal, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def follow(clock, steps):
    """Pass each step (seconds, done, total) to a progress bar."""
    with terminal.progress_bar("[searching]") as progress:
        for seconds, done, total in steps:
            clock[0] = seconds
            progress(done, total)


def test_progress_bar_writes_lines_to_a_log(capsys, clock):
    follow(clock, [(5.0, 50, 400), (10.0, 100, 400), (11.0, 110, 400)])
    assert capsys.readouterr().err == "[searching]: 100 of 400, 10/s, about 30 s left\n"


def test_progress_bar_estimates_without_the_first_step(capsys, clock):
    """The first step may include compilation, so its time does not count."""
    follow(clock, [(0.0, 0, 32), (40.0, 1, 32), (41.0, 2, 32), (51.0, 12, 32)])
    first, second = capsys.readouterr().err.splitlines()
    assert first == "[searching]: 1 of 32"
    assert second == "[searching]: 12 of 32, 1/s, about 20 s left"


def test_progress_bar_estimates_anew_when_counting_restarts(capsys, clock):
    steps = [(10.0, 100, 200), (20.0, 200, 200), (30.0, 0, 32), (40.0, 8, 32), (50.0, 16, 32)]
    follow(clock, steps)
    lines = capsys.readouterr().err.splitlines()
    assert lines[1:] == [
        "[searching]: 200 of 200, 10/s, about 0 s left",
        "[searching]: 8 of 32",
        "[searching]: 16 of 32, 0.8/s, about 20 s left",
    ]


def test_progress_bar_keeps_its_estimate_on_a_new_total(capsys, clock, terminal_of):
    terminal_of(120)
    follow(clock, [(0.0, 0, 500), (1.0, 16, 256), (3.0, 48, 240), (4.0, 64, 256)])
    err = re.sub("\x1b\\[[0-9;?]*[a-zA-Z]", "", capsys.readouterr().err)
    assert "[searching]" in err
    assert "64 of 256" in err
    assert "0:00:12" in err


def test_text_is_wrapped_at_the_width_of_the_terminal():
    pty = pytest.importorskip("pty", reason="needs a terminal of POSIX")
    words = "the best candidate gains more than the query metric of all users"
    code = f"""
from fastcos.cli.terminal import print_next, say, show_text
show_text({words!r})
say({words!r})
print_next([(["fastcos", "neighbors", "a file whose name is long.npy"], {words!r})])
"""
    main_end, other_end = pty.openpty()
    environment = os.environ | {"COLUMNS": "30"}
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=other_end, stderr=other_end, env=environment
    )
    assert process.wait() == 0
    os.close(other_end)
    lines = os.read(main_end, 10_000).decode().replace("\r", "").splitlines()
    os.close(main_end)
    text, copied = lines[:-2], lines[-2:]
    assert max(map(len, text)) <= 30
    assert " ".join(text) == f"{words} {words}"
    assert copied == ["next:", f"  fastcos neighbors 'a file whose name is long.npy'  # {words}"]


def test_print_table_splits_wide_tables(capsys, terminal_of):
    header = ["name", *(f"number {i}" for i in range(12)), "meaning"]
    rows = [[f"row {i}", *(i + j / 100 for j in range(12)), "what it says"] for i in range(3)]
    for columns, tables in ((40, 4), (160, 1)):
        terminal_of(columns)
        terminal.print_table("a title", header, rows)
        out = re.sub("\x1b\\[[0-9;]*m", "", capsys.readouterr().out)
        assert "…" not in out
        assert max(map(len, out.splitlines())) <= columns
        assert out.count("row 2") >= tables
        assert (out.count("row 2") == 1) == (tables == 1)
        assert all(f"{row[j]:.3f}" in out for row in rows for j in range(1, 13))
        assert out.count("a title") == 1


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_print_table_cuts_no_cell(capsys, terminal_of, columns):
    terminal_of(columns)
    header = ("embeddings", "all linear, at least", "share", "compares")
    text = "directions of the items, equally weighted: components of a whitened matrix"
    rows = [("items_orthonormal", 0.1234, "0.757 ± 0.011", text)] * 2
    terminal.print_table("a long title " * 8, header, rows)
    out = re.sub("\x1b\\[[0-9;]*m", "", capsys.readouterr().out)
    assert all(len(line) <= columns for line in out.splitlines())
    assert {*text.split(), "0.123", "±", "items_orthonormal"} <= set(out.split())


def test_print_table_keeps_square_brackets(capsys):
    terminal.print_table("by [bold]", ["[red]name[/red]"], [["[x]"], ["[/x]"]])
    out = capsys.readouterr().out
    assert all(text in out for text in ("by [bold]", "[red]name[/red]", "[x]", "[/x]"))


# This code records each call for which the process has no compiled code in memory. It also records
# the calls whose compiled code is then loaded from the cache on disk.
RECORDING = """
import json, os
from pathlib import Path
from numba.core.dispatcher import _DispatcherBase
compiled, compile_for_args = set(), _DispatcherBase._compile_for_args
def recorded(self, *arguments, **named):
    types = ", ".join(str(self.typeof_pyval(argument)) for argument in arguments)
    compiled.add(f"{self.py_func.__module__}.{self.py_func.__qualname__}({types})")
    return compile_for_args(self, *arguments, **named)
_DispatcherBase._compile_for_args = recorded
import numpy as np
from fastcos.cli.main import main
from fastcos.parallel import readiness
readiness.compile_at_once()
"""


def signatures_compiled(code, folder):
    record = folder / "compiled.json"
    code = f"os.chdir({str(folder)!r})\n{code}"
    stdout_of(
        f"{RECORDING}\n{code}\nPath({str(record)!r}).write_text(json.dumps(sorted(compiled)))"
    )
    return set(json.loads(record.read_text()))


@pytest.mark.slow
@pytest.mark.long
def test_warmup_compiles_all_that_commands_need(tmp_path):
    # Each job runs in a process of its own, as in the command. If the jobs shared a process, Numba
    # might reuse code that another job has compiled. Instead of compiling new code, Numba would
    # then convert the arguments of the call to the types of the old code.
    warmed = set()
    for job in warmup.JOBS:
        code = f"from fastcos.cli import warmup\nwarmup.JOBS[{job!r}]()"
        warmed |= signatures_compiled(code, tmp_path)
    assert len(warmed) > 50
    commands = """
rng = np.random.default_rng(0)
np.save("f4.npy", rng.standard_normal((100, 8)).astype("f4"))
np.save("f8.npy", rng.standard_normal((100, 8)))
cells = [(u, i) for u in range(60) for i in range(40) if (7 * u + 3 * i) % 5 < 2]
lines = "".join(f"u{u},i{i},{1 + u * i % 3}\\n" for u, i in cells)
Path("seen.csv").write_text("user,item,value\\n" + lines)
seen = ["s/interactions.npz"]
for words in (
    ["reproduce", "--only-data", "--users", "400", "--items", "70", "--out", "s"],
    ["reproduce", "--users", "400", "--items", "70", "--rank", "9", "--out", "r"],
    ["compare", *seen, "--labels", "s/items.csv", "--label-column", "cluster", "--rank", "8"],
    ["compare", "seen.csv", "--rank", "5", "--measures", "dot,csls", "--out", "c"],
    ["fit", *seen, "--rank", "8", "--out", "m"],
    ["fit", "seen.csv", "--shards", "shards", "--rank", "5", "--out", "of-table"],
    ["fit", "shards", "--rank", "5", "--out", "of-shards"],
    ["fit", "seen.csv", "--rank", "5", "--out", "rated"],
    ["neighbors", "rated", "--measure", "csls"],
    ["recommend", "rated", "seen.csv"],
    ["recommend", "rated", "seen.csv", "--measure", "project_back_users"],
    ["recommend", "rated", "seen.csv", "--measure", "cosine"],
    ["neighbors", "m"],
    ["neighbors", "m", "--show", "3"],
    ["neighbors", "f8.npy", "--measure", "dot", "--out", "n.npz"],
    ["audit", "f4.npy", "--users", "f8.npy", "--out", "a"],
    ["audit", "f8.npy", "--out", "a"],
    ["audit", "f4.npy", "--against", "f4.npy", "--out", "a"],
    ["index", "export", "f4.npy", "--users", "f8.npy"],
):
    assert main(words) == 0, words
"""
    compiled = signatures_compiled(commands, tmp_path)
    assert len(compiled) > 20
    assert compiled - warmed == set()


def compiled_files(folder):
    return {path.relative_to(folder) for path in folder.rglob("[!~]*-*")}


@pytest.mark.long
def test_warmup_for_tiers_serves_this_cpu(monkeypatch, tmp_path, capsys):
    if not cpu.supported_tiers():
        pytest.skip("this CPU is of no tier")
    monkeypatch.setenv("FASTCOS_CACHE_DIR", str(tmp_path))
    job = "products of float32"
    monkeypatch.setattr(warmup, "JOBS", {job: None})
    status, out, err = run(capsys, "warmup", "--portable", "--json")
    assert status == 0, err
    files = compiled_files(tmp_path)
    assert json.loads(out)["signatures"] == len(files) > 5 * len(cpu.supported_tiers())
    stdout_of(f"from fastcos.cli import warmup; warmup.compile_now(); warmup.JOBS[{job!r}]()")
    assert compiled_files(tmp_path) == files


@pytest.mark.slow
def test_warmup_runs_all_kernels_of_products_on_one_core_with_a_large_cache(monkeypatch):
    monkeypatch.setattr(cpu, "fast_cache_bytes", lambda: 1 << 24)
    set_config(n_threads=1)
    called = set()
    monkeypatch.setattr(native, "recorder", lambda kernel, _: called.add(kernel.__name__))
    warmup.JOBS["products of float32"]()
    # The first kernel depends on the number of threads, and the others on the size of the cache.
    assert called >= {"join_columns", "matmul_blocks", "transpose_blocks", "gram_blocks"}


def test_warmup_for_tiers_refuses_other_cpus(monkeypatch, capsys):
    monkeypatch.setattr(cpu, "supported_tiers", lambda: ())
    status, out, err = run(capsys, "warmup", "--portable")
    assert (status, out) == (2, "")
    assert re.match("fastcos warmup: --portable must run on one of x86-64-v4-amx, ", err)


@pytest.mark.slow
def test_warmup_reports_a_process_that_fails(monkeypatch, capsys):
    monkeypatch.setattr(warmup, "JOBS", {"nothing": None})
    status, out, err = run(capsys, "warmup")
    assert (status, out) == (2, "")
    *_, last = err.splitlines()
    assert last == "fastcos warmup: compiling for nothing ended with status 1: KeyError: 'nothing'"


def test_names_with_escape_sequences_are_printed_without_them(tmp_path, capsys):
    evil = "\x1b[2J\x1b]0;owned\x07"
    terminal.print_table(f"title {evil}", ["item", evil], [(f"a{evil}", 1.0)])
    terminal.show_text(f"nearest to {evil}")
    terminal.print_next([(["fastcos", "audit", evil], evil)])
    terminal.say(f"a message about {evil}")
    printed = capsys.readouterr()
    assert "\x1b" not in printed.out + printed.err
    assert "\x07" not in printed.out + printed.err
    assert printed.out.count(r"\x1b[2J") == 6


@pytest.mark.slow
def test_a_file_whose_name_is_no_text_is_audited(tmp_path):
    import numpy as np

    name = os.fsencode(tmp_path) + b"/bad\xff.npy"
    np.save(tmp_path / "good.npy", np.random.default_rng(0).standard_normal((60, 5)))
    (tmp_path / "good.npy").rename(os.fsdecode(name))
    done = subprocess.run(
        [sys.executable, "-c", "from fastcos.cli.main import entry_point; entry_point()", "audit",
         name, "--out", tmp_path / "out"], capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert b"can't encode" not in done.stderr
    assert (tmp_path / "out" / "audit.html").is_file()
