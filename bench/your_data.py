"""Time fastcos and other installed libraries on your data and machine: python -m bench.your_data.

The same turn loop as that of the published tables: each library has a process of its own and its
best setting (turns.py).
"""

import argparse
import statistics
import sys
from importlib import metadata
from pathlib import Path

from bench import limits, roofline, turns
from bench.worker import OURS, with_threads
from bench.workloads import WORKLOADS, WrongAnswer, label
from fastcos import config, io, validation
from fastcos.cli import options
from fastcos.cli.terminal import print_json, say, spinner
from fastcos.storage import provenance

DESCRIPTION = """\
Time exact cosine search among embeddings (.npy, or .npz of one matrix), or products of interactions
(any other file that fastcos compare reads); of Gaussian rows where no file is given. Compares what
is installed of FAISS, NumPy, scikit-learn and others (search), SciPy and MKL (products). Answers
are checked first; a wrong answer is not timed. The limit is how long this machine needs at least
for the multiply-adds and bytes of the plain method; probes measure it in turns. Exit status 1 if an
answer of fastcos is wrong."""
EPILOG = """\
examples:
  python -m bench.your_data
  python -m bench.your_data vectors.npy --k 100
  python -m bench.your_data ratings.csv --seconds 3 --json > speed.json
  python -m bench.your_data --roofline roofline.png"""
# shape of the Gaussian rows: all libraries together take a minute on two cores
GAUSSIAN = "10,000 x 128"
# columns of the dense factor of a product: a common rank
N_COLUMNS = 64


def workloads_of(given):
    """Return workloads with their case, for a file of rows or interactions, or Gaussian rows."""
    path = given.data and str(Path(given.data).absolute())
    if path and not io.holds_vectors(path):
        case = {"shape": path, "columns": N_COLUMNS}
        return {"Matmul": case, "GramMatmul": case}
    found = {"SelfJoin": {"rows": path or GAUSSIAN, "k": given.k}}
    if given.approximate:
        found["ApproximateSearch"] = {"queries": 1000, "items": path or GAUSSIAN, "k": given.k}
    return found


def libraries_of(given, kind):
    """Return fastcos, on all threads and on one, and the competitors that were asked for."""
    known, ours = kind.competitors, [OURS] + [with_threads(1)] * (config.num_threads() > 1)
    if given.libraries is None:
        return [*ours, *known]
    names = filter(None, given.libraries.split(","))
    return [*ours, *(validation.as_choice("--libraries", name, known) for name in names)]


def records(title, outcome):
    """Return the results as JSON has them, one a library."""
    ours, found = outcome.measured[OURS], []
    for one in turns.results_of(outcome.measured):
        found.append({
            "operation": title, **one, "interval": [one["low"], one["high"]],
            "operations_per_second": ours["operations"] / one["seconds"],
            "percent_of_limit": statistics.median(ours["percents"]) / one["ratio"],
            "limited_by": ours["limited_by"],
        })  # fmt: skip
    return found


def share(title, found):
    """Return a line to share: time, limit, scaling and other libraries."""
    ours, *others = sorted(found, key=lambda one: one["library"] != OURS)
    parts = [f"{1e3 * ours['seconds']:.3g} ms, {ours['percent_of_limit']:.0f}% of the limit"]
    parts += [f"{one['ratio']:.2g}x {one['library']}" for one in others]
    threads, version = config.num_threads(), metadata.version("fastcos")
    return f"fastcos {version}, {threads} threads, {title}: {'; '.join(parts)}"


def run(given):
    """Measure and print."""
    if given.threads is not None:
        config.set_config(num_threads=validation.as_thread_count("--threads", given.threads))
    seconds = validation.as_real("--seconds", given.seconds, above=0)
    cases = workloads_of(given)
    results, missing, drawn = [], {}, []
    for name, case in cases.items():
        kind = WORKLOADS[name]
        title, libraries = label(kind, case), libraries_of(given, kind)
        with spinner(f"measuring {title}"):
            outcome = turns.measure(kind, case, libraries, given.processes, seconds)
        found = records(title, outcome)
        if not given.json:
            print("\n".join([title, *turns.lines(outcome), share(title, found), ""]))
        size = {name: outcome.measured[OURS][name] for name in ("operations", "bytes")}
        drawn += [one | size | {"name": f"{title}, {one['library']}"} for one in found]
        results += found
        missing |= outcome.absent
    if given.roofline:
        roofline.draw(drawn, *limits.roofs()).savefig(given.roofline, dpi=150)
    if given.json:
        document = provenance.provenance({"cases": cases, "seconds": seconds})
        print_json(provenance.json_ready(document | {"results": results, "missing": missing}))


def main(arguments=None):
    parser = argparse.ArgumentParser(
        prog="python -m bench.your_data", description=DESCRIPTION, epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    add = parser.add_argument
    add("data", nargs="?", metavar="DATA", help="embeddings or interactions")
    add("--k", type=int, default=10, metavar="K", help="neighbours (default 10)")
    add("--seconds", type=float, default=1.0, metavar="S", help="of a library and process (1)")
    add("--processes", type=int, default=3, metavar="N", help="of every library (default 3)")
    add("--libraries", metavar="A,B,...", help="only these; '' for none (default: all installed)")
    add("--approximate", action="store_true", help="also scans of codes, with their recall")
    add("--roofline", metavar="FILE", help="draw the limits and these results")
    options.add_json(parser)
    options.add_common(parser, seed=False)
    try:
        run(parser.parse_args(arguments))
    except WrongAnswer as error:
        say(f"fastcos is wrong: {error}")
        return 1
    except (ValueError, OSError) as error:
        parser.error(str(error))
    return 0


if __name__ == "__main__":
    sys.exit(main())
