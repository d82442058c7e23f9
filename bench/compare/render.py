"""The published table, picture and page, made from the newest results file of each machine."""

import html
import json
import statistics
import textwrap
from pathlib import Path

from bench import machine
from bench.compare import ratios, tasks, turns
from bench.compare.large import CERTIFICATES

ROOT = Path(__file__).parents[2]
FIGURE = ROOT / "docs" / "figures" / "speed.png"
README = ROOT / "README.md"
HOWTO = ROOT / "docs" / "howto" / "benchmark.md"
SPEED = ROOT / "docs" / "speed.md"
# The colours of the machines are from the palette of Okabe and Ito (2008).
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7")
BEGIN, END = "<!-- begin bench/results -->\n", "<!-- end bench/results -->\n"
# The rows of the README and of the picture. Each row contains a task, two sizes, and a short title.
# If both sizes have a verdict, the first size is shown. If only one size has a verdict, this size
# is shown. If neither has a verdict, the first size that was measured is shown. The README also
# lists every row in which fastcos is slower.
README_ROWS = (
    ("one_query", "small", "small", "1 query among {n:,} x {d}"),
    ("one_query", "medium", "large", "1 query among {n:,} x {d}"),
    ("batch", "medium", "small", "{queries} queries among {n:,} x {d}"),
    ("self_join", "medium", "small", "neighbours of all {n:,} x {d} rows"),
    ("sparse_join", "medium", "small", "neighbours of all {n_items:,} sparse columns"),
    ("product", "medium", "small", "product X A, {nnz:,} non-zeros"),
    ("gram", "medium", "small", "product X'(X A), {nnz:,} non-zeros"),
    ("svd", "medium", "small", "{k} singular values and vectors, {nnz:,} non-zeros"),
)


def newest(folder):
    """Return the newest document of each machine, by the name of the machine.

    Machines whose instruction set was not limited come first.
    """
    documents = {}
    # The names of the folders are dates, so newer results replace older ones.
    for path in sorted(Path(folder).glob("*/*.json")):
        document = json.loads(path.read_text("utf8"))
        documents[document["machine"]] = document
    return dict(sorted(documents.items(), key=lambda item: bool(item[1]["tags"])))


def comparisons(document):
    """Return a list of dictionaries, each of which compares fastcos with one library in one row.

    A library that has no time in a row is left out of this row.
    """
    rows = []
    for key, result in document["results"].items():
        libraries, busy = result["libraries"], result["busy"]
        ours = libraries.get(turns.FASTCOS, {}).get("seconds")
        for name, library in libraries.items() if ours else ():
            if name == turns.FASTCOS or "seconds" not in library:
                continue
            ratio, low, high = ratios.ratio_of(library["seconds"], ours)
            rows.append({
                "key": key, "title": result["title"], "library": library["name"], "ratio": ratio,
                "low": low, "high": high, "verdict": ratios.verdict(low, high, busy),
                "fastcos": ratios.time_of(ours), "time": ratios.time_of(library["seconds"]),
                "setting": library.get("setting", ""), "recall": library.get("recall"),
                "machine": document["machine"],
            })  # fmt: skip
    return rows


def best_of(comparisons_of_machine):
    """Return a dict from the key of each row to the comparison with the fastest exact library."""
    best = {}
    for comparison in comparisons_of_machine:
        fastest = best.get(comparison["key"])
        if comparison["recall"] is None and (
            fastest is None or comparison["time"] < fastest["time"]
        ):
            best[comparison["key"]] = comparison
    return best


def cpu_name(document):
    """For the CPU of a document, return the name under which the vendor sells this CPU."""
    return machine.vendor_name(document["cpu"], document["isa"])


def machine_line(document):
    """Return one sentence about the machine of a document."""
    commit = (document["commit"] or "an unknown commit")[:10]
    tags = f" fastcos ran with {', '.join(document['tags'])}." if document["tags"] else ""
    changed = " with uncommitted changes" if document["dirty"] else ""
    return (
        f"We measured these times on {document['date']} with commit {commit} of fastcos{changed}. "
        f"The machine has {document['cores']} cores of {cpu_name(document)}; fastcos used "
        f"{document['threads']} threads and the instruction set {document['isa'].upper()}.{tags}"
    )


def interval(comparison):
    """Return the ratio with its interval, in bold if fastcos is slower."""
    text = f"{comparison['ratio']:.2f} [{comparison['low']:.2f}, {comparison['high']:.2f}]"
    if comparison["verdict"] == "busy":
        return f"{text} (no verdict: the machine was busy)"
    return f"**{text}**" if comparison["verdict"] == "slower" else text


def rounded(times):
    """Return a factor as text: with two decimals if it is less than 2, otherwise with one."""
    return f"{times:.2f}" if times < 2 else f"{times:.1f}"


def table(header, rows):
    """Return the lines of a Markdown table."""
    lines = [f"| {' | '.join(header)} |", f"|{'---|' * len(header)}"]
    return [*lines, *(f"| {' | '.join(map(str, row))} |" for row in rows), ""]


def library_of(comparison):
    """Return the name of a library with its setting and its recall."""
    # Older files of results use another name for this setting of FAISS.
    setting = comparison["setting"].replace("always by BLAS", "BLAS for every batch")
    parts = [comparison["library"], setting]
    parts += [f"recall {comparison['recall']:.3f}"] if comparison["recall"] is not None else []
    return ", ".join(filter(None, parts))


# The README uses these words for the two verdicts without a winner.
EXPLANATIONS = {"undecided": "undecided", "busy": "disturbed by other programs"}

COLUMNS = (
    "task", "fastcos", "other library", "time of that library", "fastcos is ... times as fast",
)  # fmt: skip


def cells(comparison):
    """Return the cells of a comparison for the columns COLUMNS."""
    times = ratios.duration(comparison["fastcos"]), ratios.duration(comparison["time"])
    return comparison["title"], times[0], library_of(comparison), times[1], interval(comparison)


def summary(best):
    """Return sentences that count the rows in which fastcos is faster, and in which it is slower.

    Each row compares fastcos with the fastest other exact library.
    """
    counts = dict.fromkeys(("faster", "slower", "undecided", "busy"), 0)
    for comparison in best:
        counts[comparison["verdict"]] += 1
    text = (
        f"We measured {_tasks(len(best))} on this machine. In {_tasks(counts['faster'])}, fastcos "
        "is faster than the fastest other exact library. "
        f"In {_tasks(counts['slower'])}, fastcos is slower."
    )
    if counts["undecided"]:
        text += f" In {_tasks(counts['undecided'])}, the result is undecided."
    if counts["busy"]:
        text += f" In {_tasks(counts['busy'])}, other programs disturbed the measurement."
    return text


def _tasks(number):
    """Return a number with the word "task" or "tasks", such as "3 tasks"."""
    return f"{number} {'task' if number == 1 else 'tasks'}"


def summary_table(documents):
    """Return a table that compares fastcos with the fastest other exact library in every task.

    Each machine has two columns, so that the name of the library and the ratio with its interval
    are in separate cells.
    """
    best = {bar_label(document): best_of(comparisons(document)) for document in documents.values()}
    titles = {entry["key"]: entry["title"] for rows in best.values() for entry in rows.values()}
    header = ["task"]
    for label in best:
        header += [f"{label}: fastest other exact library", "fastcos is ... times as fast"]
    rows = []
    for key, title in titles.items():
        row = [title]
        for comparisons_of_machine in best.values():
            comparison = comparisons_of_machine.get(key)
            row += (
                [comparison["library"], interval(comparison)]
                if comparison
                else ["not measured", ""]
            )
        rows.append(row)
    return table(header, rows)


def hard_table(document):
    """Return the table of wrong neighbours of the hard set."""
    libraries = [library for library in document["hard_set"].values() if "wrong" in library]
    if not libraries:
        return []
    families = list(libraries[0]["by_family"])
    header = ("library", "wrong neighbours", *(name.replace("_", " ") for name in families))
    rows = [
        (
            library["name"],
            f"{library['wrong']:,}",
            *(f"{library['by_family'][name]:,}" for name in families),
        )
        for library in sorted(libraries, key=lambda library: library["wrong"])
    ]
    text = (
        "The *hard set* consists of rows for which the rounding errors of float32 can change the "
        "order of the neighbours ([bench/compare/hard.py](../compare/hard.py)). For each library, "
        f"the table shows how many of {libraries[0]['of']:,} neighbours of the hard set are wrong. "
        "A neighbour is wrong if its cosine in float64 is smaller than the k-th best cosine, and "
        "the difference is larger than the rounding error of float64."
    )
    return [text, "", *table(header, rows)]


def large_tables(document):
    """Return the tables of large interaction matrices."""
    lines = []
    for result in document["large"].values():
        rows = []
        for library in result["libraries"].values():
            calls = library.get("calls") or []
            if not calls:
                rows.append((library["name"], library.get("absent", "no call"), "", "", ""))
            for call in calls:
                times = (ratios.duration(call[name]) for name in ("seconds", "preparation_seconds"))
                memory, certificate = f"{call['added_mib']:,.0f}", f"{call['certificate']:.1e}"
                rows.append((library["name"], *times, memory, certificate))
        header = "library", "time", "preparation", "MiB in addition to the matrix", "error"
        certificate = f'The column "error" shows the {result["certificate"]}.'
        lines += [f"**{result['title']}.** {certificate}", ""]
        lines += table(header, rows)
    return lines


def absent_lines(document):
    """Return a list of the libraries and rows that have no time, with the reasons."""
    keys_of_reason = {
        f"{name}: {reason}": [] for name, reason in document.get("absent", {}).items()
    }
    for key, result in document["results"].items():
        for library in result["libraries"].values():
            if "absent" in library:
                keys_of_reason.setdefault(f"{library['name']}: {library['absent']}", []).append(key)
    return [
        f"- {text}" + f" ({', '.join(keys)})" * bool(keys) for text, keys in keys_of_reason.items()
    ]


def versions_line(document):
    """Return the versions of all libraries, and of the libraries that they use, such as BLAS."""
    versions = {}
    for reported in document["versions"].values():
        versions |= reported
    names = ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))
    return f"The versions of all libraries are: {names}."


INTRODUCTION = """\
This page compares the speed of fastcos with the speed of other libraries, on every machine that was
measured. A ratio of 2 means that fastcos is twice as fast as the other library. The brackets after
each ratio contain a 95 % interval. If the measurement is repeated on a machine whose speed has not
changed, the new ratio should lie in this interval in 95 % of the cases ([how often it
did](../compare/README.md#how-well-a-run-can-be-repeated)). A ratio in bold means that fastcos is
slower. If the interval contains 1, the result of the task is *undecided*, because the
measurements do not show which library is faster. If other programs used the machine during the
measurement, there is *no verdict* on the task. Each library runs in several processes, and its time
is the geometric mean of the median times of these processes. In the tables of tasks, no time is
reported for a library that returns a wrong answer. In the tables of the largest matrices, each time
is the time of a single call. These tables report the time and the error of every answer, even if
the error is large. For the method, see the page [Compare fastcos with other
libraries](../compare/README.md). The command `python -m bench.compare render` writes this page from
the newest results of each machine.
"""


def markdown(documents):
    """Return bench/results/README.md."""
    lines = [
        "# Results",
        "",
        *INTRODUCTION.splitlines(),
        "",
        *summary_table(documents),
    ]
    for name, document in documents.items():
        all_comparisons = comparisons(document)
        best = list(best_of(all_comparisons).values())
        other_comparisons = [entry for entry in all_comparisons if entry not in best]
        not_slower = [
            entry for entry in all_comparisons if entry["recall"] is None and entry["low"] < 1
        ]
        file = f"[{document['date']}/{name}.json]({document['date']}/{name}.json)"
        lines += [f"## {bar_label(document)}", "", summary(best), ""]
        lines += [f"{machine_line(document)} {file} contains every measured time.", ""]
        if not_slower:
            lines += ["These exact libraries are faster than fastcos, or about as fast:", ""]
            lines += table(
                COLUMNS, map(cells, sorted(not_slower, key=lambda comparison: comparison["ratio"]))
            )
        lines += [
            "<details><summary>All tasks, compared with the fastest other exact library</summary>",
            "",
        ]
        lines += [*table(COLUMNS, map(cells, best)), "</details>", ""]
        lines += ["<details><summary>All tasks, compared with the other libraries</summary>", ""]
        lines += [*table(COLUMNS, map(cells, other_comparisons)), "</details>", ""]
        lines += hard_table(document) + large_tables(document)
        if absent := absent_lines(document):
            lines += ["No time is reported for the following libraries:", "", *absent, ""]
        lines += [versions_line(document), ""]
    return "\n".join(lines)


def shown_first(documents):
    """Return the newest document.

    If several documents have the newest date, a machine with its full instruction set comes first.
    If this leaves several documents, the one with the most measured tasks comes first.
    """
    return max(
        documents.values(),
        key=lambda document: (document["date"], not document["tags"], len(document["results"])),
    )


def short_titles(document):
    """Return the short titles of those rows of a document that the README shows.

    The result is a dict whose keys are the keys of the rows.
    """
    best, titles = best_of(comparisons(document)), {}
    for task, *sizes, title in README_ROWS:
        measured_sizes = [size for size in sizes if f"{task} {size}" in best]
        quiet = [size for size in measured_sizes if best[f"{task} {size}"]["verdict"] != "busy"]
        for size in (quiet or measured_sizes)[:1]:
            titles[f"{task} {size}"] = title.format(**tasks.TASKS[task].sizes[size])
    return titles


def bar_label(document):
    """Return the label of a document in a legend: the CPU and the instruction set of fastcos."""
    limit = "limited to " if document["tags"] else ""
    return f"{cpu_name(document)}, {limit}{document['isa'].upper()}"


def draw(documents, path):
    """Draw the picture: for each row of README_ROWS, it shows one bar per machine.

    The bar shows the time of the fastest other exact library, divided by the time of fastcos.
    """
    from matplotlib import pyplot as plt
    from matplotlib.ticker import FixedLocator, NullLocator

    titles = short_titles(shown_first(documents))
    keys = list(titles)
    if not keys:
        return
    best = {
        f"{bar_label(document)}, commit {document['commit'][:7]}": best_of(comparisons(document))
        for document in documents.values()
    }
    shown = {name: {key: rows[key] for key in keys if key in rows} for name, rows in best.items()}
    ends = [
        entry[end] for rows in shown.values() for entry in rows.values() for end in ("low", "high")
    ]
    thickness = 0.8 / len(shown)
    figure, axes = plt.subplots(figsize=(8.4, 1.5 + 0.5 * len(titles)), layout="constrained")
    for number, (name, rows) in enumerate(shown.items()):
        places = [keys.index(key) + thickness * (number + 0.5) - 0.4 for key in rows]
        for position, entry in zip(places, rows.values(), strict=True):
            axes.barh(position, entry["ratio"] - 1, thickness * 0.9, left=1, color=COLOURS[number],
                      alpha=0.35 if entry["verdict"] in ("busy", "undecided") else 1)  # fmt: skip
            axes.hlines(position, entry["low"], entry["high"], color="#333333", linewidth=1.2)
            beside = max(entry["high"], 1) * 1.05
            axes.text(
                beside,
                position,
                label_of(entry),
                va="center",
                size=9,
            )
        axes.barh([0], [0], color=COLOURS[number], label=name)
    axes.axvline(1, color="black", linewidth=1)
    lowest, highest = 0.9 * min(0.38, *ends), max(4, *ends)
    ticks = [tick for tick in (0.25, 0.5, 1, 2, 4, 8, 16, 32, 64) if lowest <= tick <= highest]
    axes.set(
        xscale="log", xlim=(max(lowest, 0.2), min(highest, 64) * 4.8), ylim=(len(titles), -0.9)
    )
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter("{x:g} x")
    labels = [textwrap.fill(title, 32, break_on_hyphens=False) for title in titles.values()]
    axes.set_yticks(range(len(keys)), labels, fontsize=10)
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.text(0.95, -0.72, "\N{LEFTWARDS ARROW} slower", ha="right", size=10, color="#333333")
    axes.text(1.05, -0.72, "faster than the fastest other exact library \N{RIGHTWARDS ARROW}",
              size=10, color="#333333")  # fmt: skip
    figure.legend(fontsize=10, frameon=False, loc="outside lower center")
    threads = " or ".join(sorted({str(document["threads"]) for document in documents.values()}))
    dates = sorted({document["date"] for document in documents.values()})
    undecided = [comparison for rows in shown.values() for comparison in rows.values()
                 if comparison["verdict"] in ("busy", "undecided")]  # fmt: skip
    notes = "Pale bars: undecided, or disturbed by other programs. " if undecided else ""
    if any(len(rows) < len(keys) for rows in shown.values()):
        notes += "Where a bar is missing, nothing was measured. "
    note = (
        "Time of the other library divided by the time of fastcos, on a logarithmic scale. "
        "Thin lines: intervals of the ratio; above 1, fastcos is faster. "
        f"{notes}{threads} threads, {dates[-1]}."
    )
    axes.set_xlabel(textwrap.fill(note, 80), fontsize=9, loc="left")
    figure.savefig(path, dpi=130, facecolor="white")
    plt.close(figure)


PAGE = """<!doctype html>
<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>fastcos:
results</title> <style> body {{ font: 15px system-ui, sans-serif; margin: 2em; }} table {{
border-collapse: collapse; }} td, th {{ padding: .3em .7em; text-align: left; }} tr:nth-child(even)
{{ background: #8882; }} .slower {{ font-weight: bold; }} </style> <h1>Results</h1> <p>A ratio of 2
means that fastcos is twice as fast as the other library. The brackets after each ratio contain a 95
% interval: if the measurement is repeated on a machine whose speed has not changed, the new ratio
should lie in this interval in 95 % of the cases. In the rows in bold, fastcos is slower.</p>
<p>Show: {filters}</p>
<table><thead><tr>{header}</tr></thead><tbody>{rows}</tbody></table> <script> const filters =
[...document.querySelectorAll("select")]; const show = () => document.querySelectorAll("tbody
tr").forEach(row => {{
  row.hidden = filters.some(one => one.value && row.dataset[one.name] !== one.value);
}});
filters.forEach(one => one.addEventListener("change", show));
</script>
"""


def page(documents):
    """Return bench/results/index.html with all comparisons and filters, as a single file."""
    all_comparisons = [entry for document in documents.values() for entry in comparisons(document)]
    filters = []
    for name in ("machine", "library", "verdict"):
        values = dict.fromkeys(entry[name] for entry in all_comparisons)
        options = "".join(f"<option>{html.escape(value)}</option>" for value in values)
        filters.append(
            f'<select name="{name}"><option value="">every {name}</option>{options}</select>'
        )
    rows = []
    for entry in all_comparisons:
        names = "".join(
            f' data-{name}="{html.escape(entry[name])}"'
            for name in ("machine", "library", "verdict")
        )
        text = "".join(
            f"<td>{html.escape(cell.strip('*'))}</td>" for cell in (*cells(entry), entry["machine"])
        )
        rows.append(f'<tr class="{entry["verdict"]}"{names}>{text}</tr>')
    header = "".join(f"<th>{name}</th>" for name in (*COLUMNS, "machine"))
    return PAGE.format(filters=" ".join(filters), header=header, rows="\n".join(rows))


def readme_rows(documents):
    """Return the README's text: the newest document's table, and the verdicts of all documents."""
    document, rows = shown_first(documents), []
    best = best_of(comparisons(document))
    for key, title in short_titles(document).items():
        comparison = best[key]
        library, ratio = comparison["library"], comparison["ratio"]
        low, high = comparison["low"], comparison["high"]
        if comparison["verdict"] == "faster":
            words = f"{rounded(ratio)} times as fast ({rounded(low)} to {rounded(high)})"
        elif comparison["verdict"] == "slower":
            words = (
                f"**slower: {library} is {rounded(1 / ratio)} times as fast** "
                f"({rounded(1 / high)} to {rounded(1 / low)})"
            )
        else:
            words = f"{EXPLANATIONS[comparison['verdict']]}: {range_of(comparison)}"
        times = ratios.duration(comparison["fastcos"]), ratios.duration(comparison["time"])
        rows.append((title, times[0], f"{library}: {times[1]}", words))
    lines = [f'The table shows the times for the setting "{bar_label(document)}":', ""]
    lines += table(
        ("work", "fastcos", "fastest other exact library",
         "fastcos compared with that library (interval explained below)"),
        rows,
    )  # fmt: skip
    lines += [machine_line(document), "", *losses(documents), ""]
    return "\n".join(lines)


def best_by_label(documents):
    """Return, for each document, the comparisons with the fastest exact libraries.

    The result is a dict whose keys are the labels of the documents.
    """
    return {
        bar_label(document): best_of(comparisons(document)).values()
        for document in documents.values()
    }


def losses(documents):
    """Return the verdicts of every machine, and all rows in which fastcos is not faster."""
    lines = []
    for label, best in best_by_label(documents).items():
        slower = [
            f'{lead_of(row)} in the task "{row["title"]}".'
            for row in sorted(best, key=lambda row: row["ratio"])
            if row["verdict"] == "slower"
        ]
        undecided = [f'"{row["title"]}"' for row in best if row["verdict"] == "undecided"]
        if undecided:
            slower.append(
                f"The undecided results belong to the following tasks: {'; '.join(undecided)}."
            )
        lines.append(" ".join([f"- **{label}.** {summary(best)}", *slower]))
    return lines


def lead_of(comparison):
    """Return the start of a sentence that says by what factor a library is faster than fastcos."""
    library, times = comparison["library"], 1 / comparison["ratio"]
    if times < 1.05:
        factor = f"{rounded(times)} times as fast"
        return f"The library {library} is only slightly faster than fastcos ({factor})"
    return f"The library {library} is {rounded(times)} times as fast as fastcos"


def label_of(comparison):
    """Return the label of a bar, which says which of the two libraries is faster."""
    ratio, library = comparison["ratio"], comparison["library"]
    if ratio < 1:
        return f"{library} is {rounded(1 / ratio)} x as fast"
    return f"{rounded(ratio)} x as fast as {library}"


def range_of(comparison):
    """Return the interval of a ratio in words."""
    low, high = rounded(comparison["low"]), rounded(comparison["high"])
    return f"between {low} and {high} times as fast"


def howto_rows(documents):
    """Return the table of large matrices for docs/howto/benchmark.md, fastest library first.

    For a singular value decomposition, the table also shows the largest residual. SciPy and
    scikit-learn have no parameter that sets this residual, so their results may be more accurate
    than required.
    """
    measured = {name: document for name, document in documents.items() if document["large"]}
    if not measured:
        return "No matrix of this size has been measured yet.\n"
    document, rows = shown_first(measured), []
    for result in document["large"].values():
        times = sorted(
            (
                statistics.median(call["seconds"] for call in library["calls"]), library["name"],
                max(call["certificate"] for call in library["calls"]),
            )
            for library in result["libraries"].values()
            if library.get("calls")
        )  # fmt: skip
        has_residuals = result["certificate"] == CERTIFICATES["svd"]
        texts = {
            name: ratios.duration(time) + f" (residual {error:.1e})" * has_residuals
            for time, name, error in times
        }
        ours = texts.pop("fastcos", "")
        rows.append((result["title"], ours, "; ".join(" ".join(words) for words in texts.items())))
    lines = table(("work", "fastcos", "other libraries"), rows)
    return "\n".join([*lines, machine_line(document), ""])


def speed_lines(documents):
    """Return a list for docs/speed.md, with one item for each machine.

    Each item says in how many tasks fastcos is faster than every other exact library.
    """
    lines = []
    for document in documents.values():
        best = best_of(comparisons(document)).values()
        lines.append(f"- {bar_label(document)}, {document['date']}: {summary(best)}\n")
    return "".join(lines)


def publish(folder):
    """Write the table, the picture and the page of the results of all machines.

    Also renew the results in README.md, docs/howto/benchmark.md and docs/speed.md, which stand
    between the markers BEGIN and END.
    """
    documents = newest(folder)
    if not documents:
        raise SystemExit(f"{folder} has no results; run python -m bench.compare --save")
    (Path(folder) / "README.md").write_text(markdown(documents), "utf8")
    (Path(folder) / "index.html").write_text(page(documents), "utf8")
    draw(documents, FIGURE)
    shown = (README, readme_rows), (HOWTO, howto_rows), (SPEED, speed_lines)
    for path, rows in ((path, rows_of(documents)) for path, rows_of in shown):
        head, tail = path.read_text("utf8").split(BEGIN)
        path.write_text(f"{head}{BEGIN}{rows}{END}{tail.split(END)[1]}", "utf8")
