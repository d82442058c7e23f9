"""The command line of `python -m bench.compare`.

By default, the command measures times. `render` writes the published pages, and `confirm` counts
how many ratios of a later run lie in the intervals of earlier runs.
"""

import argparse
import datetime
import json
import os
import re
import sys
from pathlib import Path

import numpy as np

from bench import data, machine
from bench.compare import confirm, hard, large, ratios, render, tasks, turns, worker

RESULTS = Path(__file__).parents[1] / "results"
# If other programs disturbed some processes, these processes are measured again at the end of the
# run, at most this many times.
MAX_REPLACEMENTS = 2
DESCRIPTION = """\
Compare fastcos with the other libraries that are installed, in interleaved turns over fresh
processes. Answers are checked before anything is timed. Without DATA, the command runs the built-in
tasks, which takes about 25 minutes on two cores. If other programs disturbed some processes, these
processes are measured again at the end. DATA is a file of vectors (.npy, .npz, ...) or of
interactions (.csv, .npz, ...)."""
EPILOG = """\
examples:
  python -m bench.compare --task one_query batch --size small      # a minute
  python -m bench.compare vectors.npy --k 100                      # your vectors
  python -m bench.compare ratings.csv --library scipy mkl          # your interactions
  python -m bench.compare --task large --nnz 1e8                   # time, memory and certificate
  python -m bench.compare --save                                   # bench/results/DATE/MACHINE.json
  python -m bench.compare render                                   # table, picture and page
  python -m bench.compare confirm FIRST.json SECOND.json           # does a second run agree?"""


def parser():
    """Return the parser of the command."""
    command = argparse.ArgumentParser(
        prog="python -m bench.compare", description=DESCRIPTION, epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    libraries = worker.names_of_libraries()
    add = command.add_argument
    add("data", nargs="?", type=Path, metavar="DATA", help="vectors or interactions")
    add(
        "--task",
        nargs="+",
        choices=[*tasks.TASKS, "hard", "large", "all"],
        default=[*tasks.TASKS, "hard"],
        help="default: all but large",
    )
    add(
        "--size",
        nargs="+",
        choices=["small", "medium", "large"],
        default=["small", "medium"],
        help="default: small and medium",
    )
    add("--library", nargs="+", choices=libraries, default=libraries, help="default: all installed")
    add(
        "--processes",
        type=int,
        metavar="N",
        help="processes per library (default 5; 1 for --task large)",
    )
    add(
        "--seconds",
        type=float,
        default=1.0,
        help="seconds of calls per library and process (default 1)",
    )
    add("--k", type=int, default=10, help="neighbours per query in DATA (default 10)")
    add(
        "--nnz", type=float, default=1e7, help="non-zeros of --task large, 1e7 to 1e9 (default 1e7)"
    )
    add("--save", action="store_true", help="write bench/results/DATE/MACHINE.json after every row")
    add("--out", type=Path, metavar="FILE", help="write the results to this file instead")
    return command  # fmt: skip


def name_of_machine(facts):
    """Return the name of the results file, such as "amd-epyc-znver5-avx512-2-threads"."""
    words = f"{facts['cpu']} {facts['isa']} {facts['threads']} threads".lower()
    return re.sub(r"[^a-z0-9]+", "-", re.sub(r"\(r\)|\(tm\)|processor", "", words)).strip("-")


def published_command(words):
    """Return the words of the command with the names of files instead of their absolute paths."""
    return [Path(word).name if Path(word).is_absolute() else word for word in words]


def new_document(arguments):
    """Return an empty results document with the facts about this run."""
    now, facts = datetime.datetime.now(datetime.UTC), machine.facts()
    tags = [
        f"{name}={os.environ[name]}" for name in ("FASTCOS_ISA", "FASTCOS_N_THREADS")
        if name in os.environ
    ]  # fmt: skip
    return {
        "machine": name_of_machine(facts), "date": f"{now:%Y-%m-%d}", "started": f"{now:%H:%M} UTC",
        **facts, "tags": tags, "load_average": list(os.getloadavg()),
        "command": published_command(sys.argv[1:]),
        "processes": arguments.processes, "versions": {}, "absent": {}, "results": {},
        "hard_set": {}, "large": {},
    }  # fmt: skip


def print_row(result, descriptions):
    """Print the time of fastcos, and one sentence about each of the other libraries."""
    libraries = result["libraries"]
    ours = libraries[turns.FASTCOS].get("seconds")
    if not ours:
        print(f"  no time is reported for fastcos: {libraries[turns.FASTCOS].get('absent')}")
        return
    print(f"  fastcos takes {ratios.duration(ratios.time_of(ours))}")
    for name, library in libraries.items():
        label = descriptions[name]["name"]
        if "absent" in library:
            print(f"  no time is reported for {label}: {library['absent']}")
        elif name != turns.FASTCOS:
            text = ratios.sentence(label, library["seconds"], ours, result["busy"])
            setting = f" ({library['setting']})" if "setting" in library else ""
            recall = f"; its recall is {library['recall']:.3f}" if "recall" in library else ""
            print(f"  {text}{recall}{setting}", flush=True)


def measure_rows(rows, arguments, document, descriptions, save):
    """Measure every row of the table in several processes, and print the results.

    All rows are measured once, in fresh processes; then all rows are measured again, and so on.
    """
    processes = arguments.processes or 5
    measurements = [
        turns.RowMeasurement(row, descriptions, arguments.seconds, document["threads"])
        for row in rows
    ]
    for replacement in range(1 + MAX_REPLACEMENTS):
        for measurement in measurements if replacement else ():
            measurement.discard_disturbed(ratios.BUSY_CORES)
        for number in range(1, processes + 1):
            for measurement in measurements:
                if measurement.n_processes < number and not measurement.has_ended:
                    print(f"process {number} of {processes}: {measurement.row.title}", flush=True)
                    measurement.add_process()
                    document["results"][measurement.row.key] = measurement.result()
                    save(document)
        if not any(ratios.is_disturbed(result) for result in document["results"].values()):
            break
    for measurement in measurements:
        row, result = measurement.row, measurement.result()
        document["results"][row.key] = result
        print(f"\n{row.title}")
        print_row(result, descriptions)
        for name in set(arguments.library).intersection(descriptions) - set(result["libraries"]):
            # The condition is true if the user has named libraries.
            if arguments.library != worker.names_of_libraries():
                label = descriptions[name]["name"]
                reason = f"{name}.py defines no function {row.operation}"
                print(f"  no time is reported for {label}: {reason}")


def run(arguments, document, save):
    """Measure the chosen tasks; save(document) is called after every row."""
    threads = document["threads"]
    libraries = [
        turns.FASTCOS,
        *(library_name for library_name in arguments.library if library_name != turns.FASTCOS),
    ]
    descriptions, absent = turns.describe(libraries, threads)
    if turns.FASTCOS in absent:
        raise SystemExit(f"fastcos cannot be measured: {absent[turns.FASTCOS]}")
    for name, reason in absent.items():
        print(f"{name}: {reason}")
    for facts in descriptions.values():
        document["versions"][facts["name"]] = facts["versions"]
    document["absent"] |= absent
    names = [*tasks.TASKS, "hard", "large"] if "all" in arguments.task else arguments.task
    rows = tasks.rows_of([name for name in names if name in tasks.TASKS], arguments.size)
    if arguments.data:
        rows = [] if names == ["large"] else tasks.rows_of_file(arguments.data, arguments.k)
    measure_rows(rows, arguments, document, descriptions, save)
    if "hard" in names and not arguments.data:
        print("\nwrong neighbours of the hard set, of a million", flush=True)
        for name, facts in descriptions.items():
            if "search" in facts["operations"]:
                wrong = hard.wrong_neighbors(name, threads)
                document["hard_set"][name] = {"name": facts["name"]} | wrong
                print(
                    f"  {facts['name']:18} {wrong.get('wrong', wrong.get('absent')):>10,}",
                    flush=True,
                )
        save(document)
    if "large" in names:
        if arguments.data:
            from fastcos import io

            X = io.read_interactions(str(arguments.data)).X.tocsr().astype(np.float32)
            source = arguments.data.name
        else:
            X = data.many_interactions(int(arguments.nnz))
            source = f"{X.shape[0]:,} x {X.shape[1]:,}"
        source += f", {X.nnz:,} non-zeros"
        for operation in large.TITLES:
            print(f"\n{large.TITLES[operation]}, {source}", flush=True)
            result = large.measure(
                operation, X, source, descriptions, arguments.processes or 1, threads
            )
            document["large"][f"{operation} {X.nnz}"] = result
            save(document)


def main(words=None):
    words = sys.argv[1:] if words is None else words
    if words == ["render"]:
        render.publish(RESULTS)
        return 0
    if words[:1] == ["confirm"]:
        if len(words) < 3:
            raise SystemExit("confirm must be followed by two or more files of results")
        confirm.report(words[1:])
        return 0
    command = parser()
    arguments = command.parse_args(words)
    if arguments.data and not arguments.data.exists():
        command.error(f"DATA must be an existing file, got {arguments.data}")
    processes = 1 if arguments.processes is None else arguments.processes
    for name, value, minimum in (
        ("--processes", processes, 1),
        ("--seconds", arguments.seconds, 1e-3),
        ("--k", arguments.k, 1),
        ("--nnz", arguments.nnz, 1e4),
    ):
        if not value >= minimum:
            command.error(f"{name} must be at least {minimum:g}, got {value:g}")
    document = new_document(arguments)
    path = arguments.out
    if arguments.save and not path:
        path = RESULTS / document["date"] / f"{document['machine']}.json"
        if path.exists():
            command.error(
                f"{path} exists, and results are never edited or merged; delete it to measure again"
            )

    def save(document):
        if path:
            path.parent.mkdir(parents=True, exist_ok=True)
            document["load_average_at_end"] = list(os.getloadavg())
            partial = path.with_suffix(".part")
            partial.write_text(json.dumps(document, indent=1) + "\n", "utf8")
            partial.replace(path)

    run(arguments, document, save)
    if path:
        print(f"\nwrote {path}; next: python -m bench.compare render")
    return 0


if __name__ == "__main__":
    sys.exit(main())
