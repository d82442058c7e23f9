"""One table, one picture and one page, from the newest results file of each machine."""

import html
import json
from pathlib import Path

from bench.compare import ratios, turns

ROOT = Path(__file__).parents[2]
FIGURE = ROOT / "docs" / "figures" / "speed.png"
README = ROOT / "README.md"
BEGIN, END = "<!-- begin bench/results -->\n", "<!-- end bench/results -->\n"
# The tasks that the README shows, each in the first of these sizes that was measured.
README_TASKS = {
    "one_query": ("small",),
    "batch": ("medium", "small"),
    "self_join": ("medium", "small"),
    "sparse_join": ("medium", "small"),
    "product": ("small",),
    "svd": ("medium", "small"),
}


def newest(folder):
    """Return the newest document of each machine, by the name of the machine."""
    found = {}
    for path in sorted(Path(folder).glob("*/*.json")):  # Folders are named after their dates.
        document = json.loads(path.read_text("utf8"))
        found[document["machine"]] = document
    return found


def comparisons(document):
    """Return a dictionary for every row and every library that has a time beside fastcos."""
    found = []
    for key, result in document["results"].items():
        libraries, busy = result["libraries"], result["busy"]
        ours = libraries.get(turns.FASTCOS, {}).get("seconds")
        for name, one in libraries.items() if ours else ():
            if name == turns.FASTCOS or "seconds" not in one:
                continue
            ratio, low, high = ratios.ratio_of(one["seconds"], ours)
            found.append({
                "key": key, "title": result["title"], "library": one["name"], "ratio": ratio,
                "low": low, "high": high, "verdict": ratios.verdict(low, high, busy),
                "fastcos": ratios.time_of(ours), "time": ratios.time_of(one["seconds"]),
                "setting": one.get("setting", ""), "recall": one.get("recall"),
                "machine": document["machine"],
            })  # fmt: skip
    return found


def best_of(found):
    """Return the fastest exact library of every row, by the key of the row."""
    best = {}
    for one in found:
        known = best.get(one["key"])
        if one["recall"] is None and (known is None or one["time"] < known["time"]):
            best[one["key"]] = one
    return best


def machine_line(document):
    """Return the machine of a document in one sentence."""
    commit = (document["commit"] or "an unknown commit")[:10]
    tags = f" {', '.join(document['tags'])}." if document["tags"] else ""
    changed = " with uncommitted changes" if document["dirty"] else ""
    return (
        f"{document['cpu']}, instruction set {document['isa']}, {document['threads']} threads of "
        f"{document['cores']} cores, {document['date']}, fastcos at {commit}{changed}.{tags}"
    )


def interval(one):
    """Return the ratio with its interval, in bold if fastcos is slower."""
    text = f"{one['ratio']:.2f} [{one['low']:.2f}, {one['high']:.2f}]"
    if one["verdict"] == "busy":
        return f"{text}, busy machine"
    return f"**{text}**" if one["verdict"] == "slower" else text


def table(header, rows):
    """Return the lines of a Markdown table."""
    lines = [f"| {' | '.join(header)} |", f"|{'---|' * len(header)}"]
    return [*lines, *(f"| {' | '.join(map(str, row))} |" for row in rows), ""]


def library_of(one):
    """Return a library with its setting and recall."""
    parts = [one["library"], one["setting"]]
    parts += [f"recall {one['recall']:.3f}"] if one["recall"] is not None else []
    return ", ".join(filter(None, parts))


COLUMNS = ("task", "fastcos", "other library", "its time", "fastcos is ... times as fast")


def cells(one):
    """Return the cells of a comparison under COLUMNS."""
    times = ratios.duration(one["fastcos"]), ratios.duration(one["time"])
    return one["title"], times[0], library_of(one), times[1], interval(one)


def summary(best):
    """Say in how many rows the fastest exact library is faster than fastcos."""
    counts = dict.fromkeys(("faster", "slower", "undecided", "busy"), 0)
    for one in best:
        counts[one["verdict"]] += 1
    text = (
        f"fastcos is faster than the fastest other exact library in {counts['faster']} of "
        f"{len(best)} rows, and slower in {counts['slower']}. In {counts['undecided']} rows "
        "neither is shown to be faster."
    )
    if counts["busy"]:
        text += f" {counts['busy']} rows have no verdict, because the machine was busy."
    return text


def summary_table(documents):
    """Return a table of all tasks by all machines: the ratio to the fastest other exact library."""
    best = {name: best_of(comparisons(one)) for name, one in documents.items()}
    titles = {one["key"]: one["title"] for rows in best.values() for one in rows.values()}
    rows = []
    for key, title in titles.items():
        found = (rows_of_machine.get(key) for rows_of_machine in best.values())
        rows.append([title, *(f"{interval(one)} {one['library']}" if one else "" for one in found)])
    return table(("fastcos is ... times as fast as the fastest other exact library", *best), rows)


def hard_table(document):
    """Return the table of wrong neighbours of the hard set."""
    known = [one for one in document["hard_set"].values() if "wrong" in one]
    if not known:
        return []
    families = list(known[0]["by_family"])
    header = ("library", "wrong neighbours", *(name.replace("_", " ") for name in families))
    rows = [
        (one["name"], f"{one['wrong']:,}", *(f"{one['by_family'][name]:,}" for name in families))
        for one in sorted(known, key=lambda one: one["wrong"])
    ]
    text = (
        f"Wrong neighbours of the hard set, of {known[0]['of']:,}: rows on which rounding decides, "
        "which bench/compare/hard.py describes. A neighbour is wrong if its float64 cosine is "
        "below the k-th best one."
    )
    return [text, "", *table(header, rows)]


def large_tables(document):
    """Return the tables of large interaction matrices."""
    lines = []
    for result in document["large"].values():
        rows = []
        for one in result["libraries"].values():
            calls = one.get("calls") or []
            if not calls:
                rows.append((one["name"], one.get("absent", "no call"), "", "", ""))
            for call in calls:
                times = (ratios.duration(call[name]) for name in ("seconds", "preparation_seconds"))
                memory, certificate = f"{call['added_mib']:,.0f}", f"{call['certificate']:.1e}"
                rows.append((one["name"], *times, memory, certificate))
        header = "library", "time", "preparation", "MiB beside the matrix", "certificate"
        lines += [f"**{result['title']}** (certificate: {result['certificate']})", ""]
        lines += table(header, rows)
    return lines


def absent_lines(document):
    """Return a list of what has no time, and why."""
    found = {f"{name}: {reason}": [] for name, reason in document.get("absent", {}).items()}
    for key, result in document["results"].items():
        for one in result["libraries"].values():
            if "absent" in one:
                found.setdefault(f"{one['name']}: {one['absent']}", []).append(key)
    return [f"- {text}" + f" ({', '.join(keys)})" * bool(keys) for text, keys in found.items()]


def versions_line(document):
    """Return the versions of all libraries and of what does their work."""
    versions = {}
    for reported in document["versions"].values():
        versions |= reported
    known = ", ".join(f"{name} {version}" for name, version in sorted(versions.items()))
    return f"Versions: {known}."


INTRODUCTION = """\
Written by `python -m bench.compare render` from the newest file of each machine. A ratio says how
many times as fast as the other library fastcos is; in brackets stands the interval in which a
repetition of the run is expected with a probability of 95 %. In bold: fastcos is slower. A time is
the geometric mean over the processes of the median turn. A library with a wrong answer has no time.
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
        found = comparisons(document)
        best = list(best_of(found).values())
        others = [one for one in found if one not in best]
        lost = [one for one in found if one["recall"] is None and one["low"] < 1]
        lines += [f"## {name}", "", machine_line(document), "", summary(best), ""]
        if lost:
            lines += ["Every exact library that is faster than fastcos, or about as fast:", ""]
            lines += table(COLUMNS, map(cells, sorted(lost, key=lambda one: one["ratio"])))
        lines += ["Every task beside the fastest other exact library:", ""]
        lines += table(COLUMNS, map(cells, best))
        lines += ["<details><summary>The other libraries</summary>", ""]
        lines += [*table(COLUMNS, map(cells, others)), "</details>", ""]
        lines += hard_table(document) + large_tables(document)
        if absent := absent_lines(document):
            lines += ["Without a time:", "", *absent, ""]
        lines += [versions_line(document), ""]
    return "\n".join(lines)


def draw(documents, path):
    """Draw a row for every task, and in it a mark with its interval for every machine."""
    from matplotlib import pyplot as plt

    best = {name: best_of(comparisons(one)) for name, one in documents.items()}
    titles = {one["key"]: one["title"] for rows in best.values() for one in rows.values()}
    figure, axes = plt.subplots(figsize=(9, 0.36 * len(titles) + 1.4), layout="constrained")
    places = {key: len(titles) - 1 - number for number, key in enumerate(titles)}
    for number, (name, rows) in enumerate(best.items()):
        shift = 0.22 * (number - (len(best) - 1) / 2)
        at = [places[key] - shift for key in rows]
        ratio, low, high = ([one[end] for one in rows.values()] for end in ("ratio", "low", "high"))
        axes.hlines(at, low, high, color=f"C{number}", linewidth=2, alpha=0.5)
        axes.plot(ratio, at, "osD^v"[number % 5], color=f"C{number}", markersize=5, label=name)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_yticks(list(places.values()), list(titles.values()), fontsize=7)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    # Below the whole figure: it is wider than the axes.
    figure.supxlabel(
        "How many times as fast as the fastest other exact library fastcos is (below 1: slower)",
        fontsize=8,
    )
    axes.legend(fontsize=7, loc="lower center", bbox_to_anchor=(0.3, 1.0))
    figure.savefig(path, dpi=130)
    plt.close(figure)


PAGE = """<!doctype html>
<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>fastcos:
results</title> <style> body {{ font: 15px system-ui, sans-serif; margin: 2em; }} table {{
border-collapse: collapse; }} td, th {{ padding: .3em .7em; text-align: left; }} tr:nth-child(even)
{{ background: #8882; }} .slower {{ font-weight: bold; }} </style> <h1>Results</h1> <p>How many
times as fast as the other library fastcos is, with the interval in which a repetition of the run is
expected with a probability of 95 %. Bold: fastcos is slower.</p> <p>Show: {filters}</p>
<table><thead><tr>{header}</tr></thead><tbody>{rows}</tbody></table> <script> const filters =
[...document.querySelectorAll("select")]; const show = () => document.querySelectorAll("tbody
tr").forEach(row => {{
  row.hidden = filters.some(one => one.value && row.dataset[one.name] !== one.value);
}});
filters.forEach(one => one.addEventListener("change", show));
</script>
"""


def page(documents):
    """Return bench/results/index.html: all comparisons, with filters and without other files."""
    found = [one for document in documents.values() for one in comparisons(document)]
    filters = []
    for name in ("machine", "library", "verdict"):
        values = dict.fromkeys(one[name] for one in found)
        options = "".join(f"<option>{html.escape(value)}</option>" for value in values)
        filters.append(
            f'<select name="{name}"><option value="">every {name}</option>{options}</select>'
        )
    rows = []
    for one in found:
        names = "".join(
            f' data-{name}="{html.escape(one[name])}"' for name in ("machine", "library", "verdict")
        )
        text = "".join(
            f"<td>{html.escape(cell.strip('*'))}</td>" for cell in (*cells(one), one["machine"])
        )
        rows.append(f'<tr class="{one["verdict"]}"{names}>{text}</tr>')
    header = "".join(f"<th>{name}</th>" for name in (*COLUMNS, "machine"))
    return PAGE.format(filters=" ".join(filters), header=header, rows="\n".join(rows))


def readme_rows(documents):
    """Return the table of the README, of the machine that was measured last."""
    document = max(documents.values(), key=lambda one: (one["date"], not one["tags"]))
    best = best_of(comparisons(document))
    keys = [[f"{task} {size}" for size in sizes] for task, sizes in README_TASKS.items()]
    known = [[key for key in of_task if key in best] for of_task in keys]
    chosen = [best[of_task[0]] for of_task in known if of_task]
    lines = table(COLUMNS, map(cells, chosen))
    return "\n".join([*lines, f"{summary(best.values())} {machine_line(document)}", ""])


def publish(folder):
    """Write the table, the picture and the page of all machines, and the rows of the README."""
    documents = newest(folder)
    if not documents:
        raise SystemExit(f"{folder} has no results; run python -m bench.compare --save")
    (Path(folder) / "README.md").write_text(markdown(documents), "utf8")
    (Path(folder) / "index.html").write_text(page(documents), "utf8")
    draw(documents, FIGURE)
    before, rest = README.read_text("utf8").split(BEGIN)
    README.write_text(f"{before}{BEGIN}{readme_rows(documents)}{END}{rest.split(END)[1]}", "utf8")
