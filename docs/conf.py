"""The configuration of Sphinx: python -m sphinx -W -b html docs docs/_build/html."""

import inspect
import json
import os
import re
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from fastcos import compare, simulate_interactions
from fastcos.cli.main import COMMANDS, build_parser
from fastcos.plots.html import figure_page
from fastcos.similarity import summaries
from fastcos.similarity.base import REGISTRY

HERE = Path(__file__).parent
ROOT = HERE.parent
# On the landing page of the site, this line is replaced by the text of the README.
README_PLACE = "<!-- The site shows the README of the repository here: docs/conf.py -->"
GENERATED = HERE / "reference" / "generated"
NOTEBOOKS = ROOT / "examples" / "notebooks"
# Our pages link to these pages, which lie outside this folder. The links work on GitHub; the site
# contains copies of these pages.
OUTSIDE = (
    ".github/CONTRIBUTING.md", "ARCHITECTURE.md", "bench/README.md", "bench/compare/README.md",
    "bench/gate/README.md", "bench/gate/record/README.md", "bench/results/README.md",
    "examples/service_benchmark.md",
)  # fmt: skip
# Sphinx copies the files in this folder to the site.
COPIED = GENERATED / "copied"
COPIED.mkdir(parents=True, exist_ok=True)

project = "fastcos"
author = "the authors of fastcos"
release = version = metadata.version("fastcos")
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
]
exclude_patterns = ["_build", "README.md"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # Unlike type hints, the docstrings state shapes and dtypes.
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

# Sphinx converts only dashes to typographic characters. Apostrophes must stay as they are, because
# X' means the transpose of X.
smartquotes_action = "D"
html_theme = "furo"
pygments_dark_style = "github-dark"  # The default style underlines names as if they were links.
html_title = f"fastcos {release}"
html_static_path = ["static"]
html_css_files = ["fastcos.css"]
html_extra_path = ["reference/generated/copied"]
html_show_sphinx = False
html_show_copyright = False


def setup(app: Any) -> None:
    """Connect the functions below to the events of Sphinx, and write the generated pages."""
    app.connect("autodoc-process-docstring", _as_plain_text, priority=900)  # after napoleon
    app.connect("autodoc-skip-member", _is_not_ours)
    app.connect("source-read", _link_copies)
    for path in OUTSIDE:
        text = _with_links_to_copies((ROOT / path).read_text("utf8"), ROOT / path, _copy_of(path))
        _copy_of(path).write_text(f"---\norphan: true\n---\n{text}", "utf8")
    (GENERATED / "cli.md").write_text(_commands(), "utf8")
    (GENERATED / "measures.md").write_text(_measures(), "utf8")
    (COPIED / "figure1.html").write_text(_figure_page(), "utf8")
    for path in NOTEBOOKS.glob("*.ipynb"):
        page = "\n\n".join(_notebook(json.loads(path.read_text("utf8"))))
        (GENERATED / f"{path.stem}.md").write_text(page, "utf8")


def _copy_of(path: str) -> Path:
    """Return the path to the copy of a page; the page itself is outside this folder."""
    return GENERATED / (path.removesuffix(".md").strip(".").replace("/", "_") + ".md")


def _link_copies(app: Any, docname: str, source: list[str]) -> None:
    """Let links to files outside docs point to copies; show the README on the landing page."""
    page = HERE / f"{docname}.md"
    if GENERATED not in page.parents:
        source[0] = _with_links_to_copies(source[0], page, page)
    if docname == "index":
        readme = ROOT / "README.md"
        text = _with_links_to_copies(readme.read_text("utf8"), readme, page)
        source[0] = source[0].replace(README_PLACE, text.replace("](docs/figures/", "](figures/"))


def _with_links_to_copies(text: str, page: Path, shown_at: Path) -> str:
    """Return the text of a page with links that work at `shown_at`.

    The site shows the page at `shown_at`. If a link points to a folder, or to a Markdown page that
    the site does not contain, the name of the folder or file takes the place of the link.
    """

    def link(found: re.Match[str]) -> str:
        name, target, anchor = found[1], found[2], found[3] or ""
        path = (page.parent / target).resolve()
        if not path.exists() or (path.suffix not in ("", ".md") and shown_at == page):
            return found[0]
        inside = path.is_relative_to(HERE)
        if inside and shown_at == page:
            return found[0]
        known = str(path.relative_to(ROOT))
        if not inside and known not in OUTSIDE:
            return f"{name} (`{known}`)"
        to = path if inside else _copy_of(known)
        return f"[{name}]({Path(os.path.relpath(to, shown_at.parent)).as_posix()}{anchor})"

    return re.sub(
        r"(?<!!)\[([^]\n]+(?:\n[^]\n]+)?)\]\((?!https?:)([^)#\s]+)(#[^)\s]*)?\)", link, text
    )


def _as_plain_text(app: Any, what: str, name: str, thing: Any, options: Any, lines: Any) -> None:
    """Escape |x| and name_, which are plain text in help(), but markup for Sphinx."""
    for number, line in enumerate(lines):
        if line.lstrip().startswith((">>>", "..")):
            continue
        # In ``double backquotes``, Sphinx reads no markup.
        parts = re.split(r"(``.+?``)", line)
        parts[::2] = [
            re.sub(r"(?<=\w)_(?=\W|$)", r"\\_", part.replace("|", r"\|")) for part in parts[::2]
        ]
        lines[number] = "".join(parts)


def _is_not_ours(
    app: Any, what: str, name: str, thing: Any, skip: bool, options: Any
) -> bool | None:
    """Leave out members with docstrings of other authors: set_*_request, and fields of tuples."""
    is_field = (inspect.getdoc(thing) or "").startswith("Alias for field number")
    return True if is_field or re.fullmatch(r"set_\w+_request", name) else None


def _notebook(notebook: dict[str, Any]) -> Iterator[str]:
    """Yield the cells of an executed notebook and their outputs, as Markdown."""
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        yield source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```"
        for output in cell.get("outputs", ()):
            shown = output.get("data", {"text/plain": output.get("text")})
            if "image/png" in shown:
                image = f'<img alt="" src="data:image/png;base64,{shown["image/png"].strip()}">'
                yield f"```{{raw}} html\n{image}\n```"
            elif "text/html" in shown:
                yield f"```{{raw}} html\n{''.join(shown['text/html'])}\n```"
            else:
                yield f"```text\n{''.join(shown['text/plain'])}\n```"


def _figure_page() -> str:
    """Return the page that `fastcos reproduce` writes for a simulation of the paper's size."""
    data = simulate_interactions(random_state=0)
    found = compare(
        data.X, data.item_cluster, regularization=10_000, measures=["cosine"], grid=False
    )
    return figure_page(found, data.X)


def _commands() -> str:
    top = build_parser(COMMANDS)
    pages = ["# Commands", "", "```text", top.format_help().rstrip(), "```", ""]
    (commands,) = (action for action in top._actions if action.dest == "command")
    found = dict(commands.choices)  # type: ignore[arg-type]
    verbs = next(action for action in found["index"]._actions if action.dest == "verb")
    found |= {f"index {name}": parser for name, parser in verbs.choices.items()}
    for name, parser in found.items():
        pages += [f"## fastcos {name}", "", "```text", parser.format_help().rstrip(), "```", ""]
    return "\n".join(pages)


def _measures() -> str:
    lines = [
        "# Measures by name",
        "",
        "Pass one of these names as `measure=` to `top_k`, `SimilarityIndex`, `similarity_blocks`,",
        "`neighbors_above` or `NeighborsTransformer`. To set the parameters of a measure, pass the",
        "result of `fastcos.get_measure(name, ...)`.",
        "",
    ]
    for name, summary in summaries().items():
        parameters = ", ".join(inspect.signature(REGISTRY[name]).parameters)
        lines += [f"`{name}({parameters})`" if parameters else f"`{name}`", f": {summary}", ""]
    return "\n".join(lines)
