"""Tests of bench.compare: what it measures, when it omits a time, how it describes a ratio."""

import json
import math
import re

import numpy as np
import pytest
import scipy.sparse as sp
from scipy import stats

from bench.compare import __main__ as command, confirm, hard, ratios, render, tasks, turns, worker

FAST = ("--processes", "1", "--seconds", "0.001")


def document(**changes):
    """Return a results file of one task.

    NumPy takes twice as long as fastcos, and SciPy takes half as long as fastcos.
    """
    ours = [[0.010, 0.011], [0.012, 0.010]]
    libraries = {
        "fastcos": {"name": "fastcos", "seconds": ours},
        "numpy": {
            "name": "NumPy",
            "setting": "AVX2 kernels",
            "seconds": [[0.02, 0.022], [0.024, 0.02]],
        },
        "scipy": {"name": "SciPy", "seconds": [[0.005], [0.006]]},
        "turbovec": {"name": "turbovec", "seconds": [[0.001], [0.001]], "recall": 0.9},
        "faiss": {"name": "FAISS", "absent": "not installed"},
    }
    wrong = {"wrong": 3, "of": 1_000_000, "by_family": {"near_ties": 3}}
    call = {"seconds": 2.0, "preparation_seconds": 0.5, "added_mib": 100.0, "certificate": 1e-7}
    large = {
        "fastcos": {"name": "fastcos", "calls": [call]},
        "mkl": {"name": "MKL", "absent": "no"},
    }
    return {
        "machine": "some-cpu-2-threads", "date": "2026-11-28", "commit": "0123456789abcdef",
        "dirty": False, "cpu": "Some CPU (zen9)", "isa": "avx2", "threads": 2, "cores": 2,
        "tags": ["FASTCOS_ISA=avx2"], "absent": {"primme": "not installed"},
        "versions": {"NumPy": {"numpy": "9.9"}},
        "results": {"batch small": {"title": "a batch", "busy": 0.0, "libraries": libraries}},
        "hard_set": {"numpy": {"name": "NumPy", **wrong}},
        "large": {"gram 9": {"title": "X'(X A)", "certificate": "error", "libraries": large}},
    } | changes  # fmt: skip


def test_ratio_is_paired_by_turn_and_has_a_prediction_interval():
    ours, theirs = [[1.0, 2.0, 4.0], [1.0, 1.0, 1.0]], [[2.0, 4.0, 8.0], [3.0, 3.0]]
    ratio, low, high = ratios.ratio_of(theirs, ours)
    assert ratio == pytest.approx(math.sqrt(2 * 3))
    logs = np.log([2, 3])
    half = stats.t.ppf(0.975, 1) * logs.std(ddof=1) * math.sqrt(1 / 2 + 1 / 2)
    assert [low, high] == pytest.approx(np.exp([logs.mean() - half, logs.mean() + half]))


def test_ratio_of_one_process_has_no_interval():
    assert ratios.ratio_of([[2.0]], [[1.0]]) == (2.0, 0.0, math.inf)


@pytest.mark.slow
def test_a_repetition_falls_into_the_interval_as_often_as_said():
    rng, inside = np.random.default_rng(0), 0
    for _ in range(1_000):
        first, second = (np.exp(0.1 * rng.standard_normal((5, 1))).tolist() for _ in range(2))
        ones = [[1.0]] * 5
        _, low, high = ratios.ratio_of(first, ones)
        inside += low <= ratios.ratio_of(second, ones)[0] <= high
    assert 930 <= inside <= 970


@pytest.mark.parametrize(
    ("theirs", "busy", "text"),
    [
        (2.0, 0.0, "fastcos is 2.00 times as fast as FAISS [2.00, 2.00]"),
        (0.5, 0.0, "fastcos is 0.50 times as fast as FAISS [0.50, 0.50]"),
        (2.0, 0.5, "no verdict on FAISS, because other programs used 0.5 cores meanwhile"),
        (2.0, None, "no verdict on FAISS, because other programs used an unknown number of cores"),
    ],
)
def test_every_sentence_has_a_subject(theirs, busy, text):
    assert ratios.sentence("FAISS", [[theirs]] * 5, [[1.0]] * 5, busy).startswith(text)


def test_intervals_that_contain_one_are_undecided():
    text = ratios.sentence("FAISS", [[2.0], [0.4]], [[1.0], [1.0]], 0.0)
    assert text.endswith("this interval contains 1, so neither is shown to be faster")


def test_a_published_command_names_files_without_their_folders():
    words = ["--task", "all", "--out", "/home/somebody/results.json"]
    assert command.published_command(words) == ["--task", "all", "--out", "results.json"]


@pytest.mark.parametrize("seconds", [(2.5, "2.5 s"), (0.0151, "15.1 ms"), (6.9e-7, "0.69 µs")])
def test_durations_have_units(seconds):
    assert ratios.duration(seconds[0]) == seconds[1]


def test_libraries_are_found_by_being_there():
    names = worker.names_of_libraries()
    assert names[0] == "fastcos"
    assert {"faiss", "faiss_mkl", "pytorch", "scipy", "mkl", "sparse_dot_topn"} <= set(names)


def test_every_task_has_three_sizes():
    assert len(tasks.TASKS) == 8
    assert all(list(task.sizes) == ["small", "medium", "large"] for task in tasks.TASKS.values())


def test_search_checker_refuses_a_wrong_neighbour():
    arguments = tasks.search_of_embeddings(4, 60, 8)
    products = arguments["queries"].astype(float) @ arguments["items"].T.astype(float)
    cosines = products / np.linalg.norm(arguments["items"].astype(float), axis=1)
    best = np.argsort(-cosines, axis=1)[:, :10]
    checker = tasks.search_checker(**arguments)
    checker(best[:, ::-1])  # in any order
    best[2, 4] = np.argsort(-cosines[2])[10]
    with pytest.raises(AssertionError, match="1 of 40 neighbours are wrong"):
        checker(best)
    best[2, 4] = best[2, 5]
    with pytest.raises(AssertionError, match="1 of 40 neighbours are wrong"):
        checker(best)


def test_join_checker_refuses_a_row_as_its_own_neighbour():
    rows = tasks.join(20, 4)["rows"]
    with pytest.raises(AssertionError, match="neighbours are wrong"):
        tasks.join_checker(rows, 3)(np.tile(np.arange(3), (20, 1)))


@pytest.mark.parametrize("name", ["product", "gram"])
def test_product_checkers_refuse_a_wrong_entry(name):
    arguments = tasks.product(60, 30, 400)
    X, A = arguments["X"].toarray().astype(float), arguments["A"].astype(float)
    answer = X @ A if name == "product" else X.T @ (X @ A)
    checker = tasks.TASKS[name].checker(**arguments)
    checker(answer)
    answer[3, 2] += 1e-3 * abs(answer).max()
    with pytest.raises(AssertionError, match="of the largest entry"):
        checker(answer)


def test_svd_checker_refuses_a_vector_that_is_none():
    arguments = tasks.factorisation(60, 30, 400, 3)
    _, s, Vt = np.linalg.svd(arguments["X"].toarray().astype(float))
    checker = tasks.svd_checker(**arguments)
    checker(np.column_stack([s[:3], Vt[:3]]))
    with pytest.raises(AssertionError, match="the largest residual is"):
        checker(np.column_stack([s[:3], Vt[[0, 1, 5]]]))


def test_item_join_checker_refuses_a_missing_neighbour():
    arguments = tasks.item_join(80, 30, 500)
    X = arguments["X"].toarray().astype(float)
    norms = np.linalg.norm(X, axis=0)
    cosines = np.nan_to_num(
        X.T @ X / np.where(norms > 0, norms, 1) / np.where(norms > 0, norms, 1)[:, None]
    )
    np.fill_diagonal(cosines, -1)
    best = np.maximum(-np.sort(-cosines, axis=1)[:, :10], 0)
    checker = tasks.item_join_checker(**arguments)
    checker(best)
    with pytest.raises(AssertionError, match="items have wrong cosines"):
        checker(np.column_stack([best[:, 1:], best[:, -1:] / 2]))


@pytest.mark.slow  # several processes
def test_vectors_of_a_file_are_compared(tmp_path, capsys):
    rows = np.random.default_rng(0).standard_normal((300, 8)).astype(np.float32)
    np.save(tmp_path / "rows.npy", rows)
    out = tmp_path / "results.json"
    words = (
        str(tmp_path / "rows.npy"),
        "--k",
        "5",
        "--library",
        "numpy",
        "usearch",
        "--out",
        str(out),
    )
    assert command.main([*words, *FAST]) == 0
    actual = json.loads(out.read_text())
    assert list(actual["results"]) == ["search rows.npy", "self_join rows.npy"]
    for result in actual["results"].values():
        times = [one["seconds"] for one in result["libraries"].values() if "seconds" in one]
        assert len(times) >= 2
        assert all(second > 0 for processes in times for turn in processes for second in turn)
    assert {"commit", "cpu", "isa", "threads", "versions", "load_average"} <= set(actual)
    assert "fastcos takes" in capsys.readouterr().out


@pytest.mark.long  # several processes
def test_interactions_of_a_file_are_compared(tmp_path):
    X = sp.random_array((80, 40), density=0.2, rng=0, format="csr", dtype=np.float32)
    sp.save_npz(tmp_path / "X.npz", X)
    out = tmp_path / "results.json"
    words = (str(tmp_path / "X.npz"), "--library", "scipy", "--out", str(out))
    assert command.main([*words, *FAST]) == 0
    result = json.loads(out.read_text())["results"]
    assert list(result) == ["product X.npz", "gram X.npz", "sparse_join X.npz"]
    assert result["gram X.npz"]["libraries"]["scipy"]["seconds"]


@pytest.mark.slow  # several processes
def test_large_matrices_have_time_memory_and_certificate(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ("--task", "large", "--nnz", "20000", "--library", "scipy", "--out", "results.json")
    assert command.main(list(words)) == 0
    actual = json.loads((tmp_path / "results.json").read_text())["large"]
    assert len(actual) == 3
    for result in actual.values():
        (call,) = result["libraries"]["fastcos"]["calls"]
        assert call["seconds"] > 0
        assert call["certificate"] <= (1e-2 if "singular" in result["title"] else 1e-5)


LIBRARY = '''"""A library that always answers item 0, or that ends."""

import os

import numpy as np

NAME = "Other"
REQUIRES = "numpy"


def search(items, queries, k):
    return (lambda: {call}), lambda found: found
'''


@pytest.mark.slow  # several processes
@pytest.mark.parametrize(
    ("call", "reason"),
    [
        ("np.zeros((len(queries), k), int)", "wrong: "),
        ("items.nonsense()", "AttributeError: "),
        ("os._exit(3)", "the process ended with status 3"),
    ],
)
def test_a_new_library_is_one_file_and_a_failure_is_reported(call, reason, monkeypatch):
    path = worker.ROOT / "bench" / "compare" / "libraries" / "other_library_of_a_test.py"
    path.write_text(LIBRARY.format(call=call))
    try:
        names = worker.names_of_libraries()
        assert path.stem in names
        actual, absent = turns.describe(["fastcos", path.stem], 1)
        assert not absent
        (row,) = tasks.rows_of(["one_query"], ["small"])
        measurement = turns.RowMeasurement(row, actual, 0.001, 1)
        measurement.add_process()
        result = measurement.result()
        assert result["libraries"][path.stem]["absent"].startswith(reason)
        assert result["libraries"]["fastcos"]["seconds"]
    finally:
        path.unlink()


def test_a_later_run_is_counted_in_the_intervals_of_earlier_runs():
    def results(theirs, ours=(1.0, 1.0, 1.0)):
        libraries = {"fastcos": {"seconds": [[seconds] for seconds in ours]}}
        libraries |= {name: {"seconds": [[time] for time in row]} for name, row in theirs.items()}
        libraries["fast but approximate"] |= {"recall": 0.9}
        return {"results": {"batch small": {"libraries": libraries}}}

    early = results({"slow": (9.0, 9.1, 9.2), "exact": (2.0, 2.1, 2.2),
                     "fast but approximate": (0.5, 0.5, 0.5)})  # fmt: skip
    late = results({"slow": (5.0, 5.0, 5.0), "exact": (2.3, 2.0, 2.1),
                    "fast but approximate": (0.5, 0.5, 0.5)})  # fmt: skip
    counted = {name: rest for _, name, *rest in confirm.confirmations([early], late)}
    assert counted == {
        "slow": [False, False], "exact": [True, True], "fast but approximate": [False, True],
    }  # fmt: skip
    pooled = confirm.confirmations([early, late], late)
    assert all(is_confirmed for *_, is_confirmed in pooled)


@pytest.mark.long  # several processes
def test_disturbed_processes_are_measured_again(monkeypatch):
    actual, _ = turns.describe(["fastcos", "numpy"], 1)
    (row,) = tasks.rows_of(["one_query"], ["small"])
    loads = iter([0.9, 0.0, 0.8, 0.01])
    monkeypatch.setattr(
        turns, "take_turns", lambda workers, _: ({w.library: [1.0] for w in workers}, next(loads))
    )
    new = command.new_document(command.parser().parse_args([])) | {"threads": 1}
    arguments = command.parser().parse_args(["--processes", "2"])
    saved = []
    command.measure_rows([row], arguments, new, actual, lambda _: saved.append(1))
    result = new["results"][row.key]
    # Only the second and the fourth process count, because other programs disturbed the first and
    # the third. The result reports the higher of the loads during these two processes.
    assert result["busy"] == 0.01
    assert [len(result["libraries"][name]["seconds"]) for name in actual] == [2, 2]
    assert len(saved) == 4


@pytest.mark.slow  # a process
def test_hard_set_is_hard_for_float32_and_not_for_fastcos(monkeypatch):
    monkeypatch.setattr(hard, "QUERIES", 100)
    monkeypatch.setattr(hard, "ITEMS", 400)
    assert hard.wrong_neighbors("fastcos", 1)["wrong"] == 0
    result = hard.wrong_neighbors("numpy", 1)
    assert result["wrong"] > 1_000
    assert result["wrong"] == sum(result["by_family"].values())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--processes", "0"], "--processes must be at least 1, got 0"),
        (["--seconds", "-1"], "--seconds must be at least 0.001, got -1"),
        (["nothing.npy"], "DATA must be an existing file, got nothing.npy"),
        (["--library", "fais"], "invalid choice: 'fais'"),
    ],
)
def test_wrong_arguments_are_refused(words, message, capsys):
    with pytest.raises(SystemExit):
        command.main(words)
    assert message in capsys.readouterr().err


def test_results_are_never_overwritten(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(command, "RESULTS", tmp_path)
    new = command.new_document(command.parser().parse_args([]))
    path = tmp_path / new["date"] / f"{new['machine']}.json"
    path.parent.mkdir()
    path.write_text("{}")
    with pytest.raises(SystemExit):
        command.main(["--save"])
    assert "results are never edited or merged" in capsys.readouterr().err


def test_table_has_losses_first_and_names_the_machine():
    text = render.markdown({"some-cpu-2-threads": document()})
    assert "on 2026-11-28 with commit 0123456789 of fastcos. The machine has 2 cores of" in text
    assert "(zen9); fastcos used 2 threads and the instruction set AVX2." in text
    assert "AVX2. fastcos ran with FASTCOS_ISA=avx2." in text
    assert "In 1 task, fastcos is slower." in text
    assert text.index("**0.5") < text.index("| 2.00 [")
    assert "recall 0.900" in text
    assert "FAISS: not installed (batch small)" in text
    assert "| NumPy | 3 | 3 |" in text
    assert "| fastcos | 2 s | 500 ms | 100 | 1.0e-07 |" in text


def test_busy_rows_have_no_verdict():
    busy = document()
    busy["results"]["batch small"]["busy"] = 0.5
    text = render.markdown({"some-cpu-2-threads": busy})
    assert "In 1 task, other programs disturbed the measurement." in text
    assert "(no verdict: the machine was busy) |" in text


def test_summary_keeps_libraries_apart_from_intervals():
    """The table has two columns per machine: one of libraries, and one of ratios.

    If a machine did not run a task, its first cell is "not measured", and its second cell is empty.
    """
    wide = document(tags=[], isa="avx512")
    wide["results"] = {"one_query small": wide["results"]["batch small"] | {"title": "one query"}}
    lines = render.summary_table({"narrow": document(), "wide": wide})
    header, batch, query = lines[0], lines[2], lines[3]
    assert header.count("fastest other exact library | fastcos is ... times as fast") == 2
    assert re.fullmatch(r"\| a batch \| SciPy \| \*\*0.5. \[.*\]\*\* \| not measured \|  \|", batch)
    assert re.fullmatch(r"\| one query \| not measured \|  \| SciPy \| \*\*.*\*\* \|", query)


def test_newest_file_of_each_machine_counts(tmp_path):
    for date, machine in (("2026-01-01", "a"), ("2026-02-01", "a"), ("2026-01-15", "b")):
        (tmp_path / date).mkdir(exist_ok=True)
        text = json.dumps(document(date=date, machine=machine))
        (tmp_path / date / f"{machine}.json").write_text(text)
    dates = {name: one["date"] for name, one in render.newest(tmp_path).items()}
    assert dates == {"a": "2026-02-01", "b": "2026-01-15"}


@pytest.mark.slow
def test_one_command_writes_table_picture_page_and_readme(tmp_path, monkeypatch):
    (tmp_path / "2026-11-28").mkdir()
    path = tmp_path / "2026-11-28" / "some-cpu-2-threads.json"
    one = document()
    one["results"]["batch medium"] = one["results"]["batch small"]
    path.write_text(json.dumps(one))
    readme, howto, speed = (tmp_path / f"{name}.md" for name in ("front", "howto", "speed"))
    for page, name in ((readme, "README"), (howto, "HOWTO"), (speed, "SPEED")):
        page.write_text(f"before\n{render.BEGIN}old\n{render.END}after\n")
        monkeypatch.setattr(render, name, page)
    monkeypatch.setattr(render, "FIGURE", tmp_path / "speed.png")
    render.publish(tmp_path)
    assert (tmp_path / "speed.png").read_bytes().startswith(b"\x89PNG")
    assert 'data-library="NumPy"' in (tmp_path / "index.html").read_text()
    assert readme.read_text().startswith("before\n")
    ratio = "**slower: SciPy is 2.0 times as fast** (2.0 to 2.0)"
    row = f"| 256 queries among 50,000 x 384 | 10.7 ms | SciPy: 5.48 ms | {ratio} |"
    assert row in readme.read_text()
    assert "old" not in readme.read_text()
    assert "| X'(X A) | 2 s |  |" in howto.read_text()
    assert "Some CPU (zen9); fastcos used 2 threads" in howto.read_text()
    counts = "In 0 tasks, fastcos is faster than the fastest other exact library. In 2 tasks, "
    assert f"{counts}fastcos is slower." in speed.read_text()


@pytest.mark.parametrize(
    ("cpu", "isa", "name"),
    [
        ("AMD EPYC (znver5)", "vnni", "AMD EPYC (Zen 5)"),
        ("Intel(R) Xeon(R) Processor (rocketlake)", "amx",
         "Intel Xeon Processor with AMX (Sapphire Rapids or later)"),
        ("AMD EPYC 9654 96-Core Processor", "vnni", "AMD EPYC 9654 96-Core Processor"),
    ],
)  # fmt: skip
def test_cpus_have_the_names_of_their_vendors(cpu, isa, name):
    assert render.cpu_name({"cpu": cpu, "isa": isa}) == name


def test_published_results_are_rendered():
    """The table in the repository was made from the newest results."""
    documents = render.newest(command.RESULTS)
    if documents:
        assert (command.RESULTS / "README.md").read_text("utf8") == render.markdown(documents)
