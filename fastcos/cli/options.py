"""Arguments that several commands share, and their conversion for the library."""

import argparse
import ast
import contextlib
import inspect
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fastcos import validation
from fastcos.cli.terminal import progress_bar, say

if TYPE_CHECKING:
    from fastcos.io import Factors, Interactions, ItemLabels, Vectors
    from fastcos.similarity import Measure
    from fastcos.similarity.diagonal import Rescaling


VECTOR_FORMATS = """\
.npy, .npz (also as implicit saves models), .safetensors, .parquet, .arrow, .jsonl, .csv,
word2vec or GloVe text, word2vec .bin"""
INTERACTION_COLUMNS = ("user", "item", "value", "member", "no_header", "no_quotes")
VECTOR_COLUMNS = ("vector_column", "id_column", "ids")
# names that readers recognise
_EXAMPLES = {"item": "item or id", "name": "name or title", "column": "count or popularity"}
# names of columns that are all listed
_MOST_NAMES = 5
# cells, of at least a hundred times as many, whose share of the squared sum is reported above
_FEW_CELLS, _LARGE_SHARE = 10, 0.5
MEASURE_SYNTAX = (
    "a measure may have parameters, of numbers, texts and files of arrays: csls:n_neighbors=20, "
    "soft_cosine:matrix=S.npy"
)


def add_interactions(parser: argparse.ArgumentParser, what: str = "file of interactions") -> None:
    """Add the file of interactions and its columns."""
    parser.add_argument("interactions", metavar="INTERACTIONS", help=what)
    group = parser.add_argument_group("columns of the interactions (default: by the header)")
    group.add_argument("--user", metavar="C", help="column of user ids")
    group.add_argument("--item", metavar="C", help="column of item ids")
    group.add_argument("--value", metavar="C", help="column of values; '' makes every row count 1")
    group.add_argument("--member", metavar="FILE", help="which file of a zip archive")
    help_ = "the first line is data: the columns are named 1, 2, ..."
    group.add_argument("--no-header", action="store_true", default=None, help=help_)
    help_ = "quotes are ordinary characters, not those of CSV"
    group.add_argument("--no-quotes", action="store_true", default=None, help=help_)


def read_interactions(given: argparse.Namespace, duplicates: str = "sum") -> "Interactions":
    """Read the file of interactions."""
    from fastcos.io import read_interactions

    columns = columns_of(given)
    with progress_bar("reading bytes") as progress:
        data = read_interactions(
            given.interactions, **columns, duplicates=duplicates, progress=progress
        )
    (n, p), names = data.X.shape, ""
    if data.columns:
        user, item, value = data.columns.values()
        counted = "every row counts 1" if value is None else f"values {value!r}"
        names = f"; users {user!r}, items {item!r}, {counted}"
    say(f"read {data.X.nnz:,} interactions of {n:,} users with {p:,} items{names}")
    squares = np.asarray(data.X.data, np.float64) ** 2
    few = min(_FEW_CELLS, max(1, len(squares) // 100))
    share = np.partition(squares, -few)[-few:].sum() / max(squares.sum(), np.finfo(float).tiny)
    if share > _LARGE_SHARE:
        say(
            f"{few} of {len(squares):,} cells hold {share:.0%} of the squared sum, which a model "
            "follows: --value '' counts every row once, --value NAME takes another column"
        )
    return data


@contextlib.contextmanager
def recognised_columns(flag: str, name_option: str | None = None) -> Iterator[None]:
    """Report a column that is not recognised by the option of its table, which has no other.

    name_option: the option for the column of names, if there is one.
    """
    whats = {"item": "ids of the items", "name": "names", "column": "numbers"}
    try:
        yield
    except ValueError as error:
        found = re.fullmatch(r"(item|name|column) must be given for (.*?): (.*)", str(error))
        if found is not None and found[1] == "name" and name_option is not None:
            error.args = (f"{name_option} must be given for {found[2]}: {found[3]}",)
        elif found is not None:
            what, path, reason = whats[found[1]], found[2], found[3]
            rule = f"have one column of {what} that its name shows, such as {_EXAMPLES[found[1]]}"
            error.args = (f"{flag} must {rule}, got {path}: {reason}",)
        raise


def columns_of(given: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of read_interactions that were given."""
    arguments = {name: getattr(given, name) for name in ("user", "item", "value", "member")}
    return arguments | {"header": not given.no_header, "quotes": not given.no_quotes}


def add_vectors(parser: "argparse._ActionsContainer") -> None:
    """Add the columns of a file of vectors."""
    help_ = (
        "column of vectors in a table, or array in .npz or .safetensors (default: the only "
        "one); also of --queries"
    )
    parser.add_argument("--vector-column", metavar="C", help=help_)
    help_ = "column or array of ids (default: by its name; '' for none)"
    parser.add_argument("--id-column", metavar="C", help=help_)
    help_ = (
        "ids of the items in the order of their rows, for a file without: .npy, .npz with the "
        "array ids, or text with one a line"
    )
    parser.add_argument("--ids", metavar="FILE", help=help_)


def add_model_name(parser: "argparse._ActionsContainer") -> None:
    """Add --model."""
    help_ = "name and version of what made the vectors, such as minilm@2: kept and compared"
    parser.add_argument("--model", metavar="NAME", help=help_)


def read_vectors(path: str, given: argparse.Namespace, shared: bool = False) -> "Vectors":
    """Read a file of vectors, by the columns that were given.

    shared: the columns are also those of the items, and need not mean anything for .npy.
    """
    from fastcos.io import read_vectors

    if shared and Path(path).suffix == ".npy":
        return read_vectors(path)
    read = read_vectors(path, vector_column=given.vector_column, id_column=given.id_column)
    say_columns(path, read)
    return read


def say_columns(path: str | Path, read: "Vectors | Factors") -> None:
    """Name the columns of a table that vectors and ids were read from."""
    if read.columns:
        vectors, ids, unused = (read.columns[name] for name in ("vectors", "ids", "unused"))
        parts = ["vectors " + _listed(vectors), "no ids" if ids is None else f"ids {ids!r}"]
        if unused:
            parts.append("not used " + _listed(unused))
        say(f"read columns of {path}: {'; '.join(parts)}")


def _listed(names: tuple[str, ...]) -> str:
    """Return names as text: all of a few, or the first two and the last one."""
    if len(names) <= _MOST_NAMES:
        return ", ".join(map(repr, names))
    return f"{names[0]!r}, {names[1]!r}, ... {names[-1]!r} ({len(names)} columns)"


def refuse(given: argparse.Namespace | None, why: str, *names: str) -> None:
    """Refuse the options of these names, such as id_column, for a reason."""
    for name in names:
        validation.check_none(f"--{name.replace('_', '-')}", getattr(given, name, None), why)


def arguments(given: argparse.Namespace) -> dict[str, Any]:
    """Return all that a command was given, for the provenance of what it writes."""
    return {
        name: value
        for name, value in vars(given).items()
        if not callable(value) and not isinstance(value, argparse.ArgumentParser)
    }


def words_of(given: argparse.Namespace, *names: str) -> list[str]:
    """Return the options of these names that were given, as words of a command to copy."""
    words: list[str] = []
    for name in names:
        if (value := getattr(given, name)) is not None:
            words.append(f"--{name.replace('_', '-')}")
            words += [] if value is True else [str(value)]
    return words


def words_given(given: argparse.Namespace, *left_out: str) -> list[str]:
    """Return all options that were given, but these, as words of the same command to copy."""
    words: list[str] = []
    for action in given.parser._actions:
        value = getattr(given, action.dest, None)
        is_given = value is not None and value != action.default
        if not action.option_strings or action.dest in left_out or not is_given:
            continue
        flag = action.option_strings[-1]
        if action.nargs == 0:
            words.append(flag)
        elif action.nargs is not None:  # several values after one flag
            words += [flag, *map(str, list(value or ()))]
        else:  # or one value after each flag; with =, a value may begin with a minus sign
            for one in value if isinstance(value, list) else [value]:
                words += [f"{flag}={one}"] if str(one).startswith("-") else [flag, str(one)]
    return words


def add_measure(parser: argparse.ArgumentParser, default: str = "cosine") -> None:
    """Add --measure, for as_measure."""
    help_ = f"default {default}; a wrong name lists all; {MEASURE_SYNTAX}"
    parser.add_argument("--measure", default=default, metavar="NAME", help=help_)


def add_labels(parser: argparse.ArgumentParser) -> None:
    """Add the file of labels and its columns."""
    group = parser.add_argument_group("labels of the items")
    add = group.add_argument
    add("--labels", metavar="FILE", help="table with one row or more an item")
    add("--label-column", metavar="C", help="column of labels (needed with --labels)")
    add("--label-item", metavar="C", help="column of item ids in FILE")
    add("--label-name", metavar="C", help="column of names for printing")
    add("--label-member", metavar="FILE", help="which file of a zip archive")
    help_ = "between several labels of one item (default |); such items are left out"
    add("--label-separator", default="|", metavar="S", help=help_)
    add("--only", metavar="A,B,...", help="labels to use; items with another are left out")


def check_labels(given: argparse.Namespace) -> None:
    """Refuse a column without a file and a file without a column, before anything is read."""
    if given.labels is None:
        validation.check_none("--label-column", given.label_column, "without --labels")
    else:
        validation.as_instance("--label-column", given.label_column, str, "given with --labels")


def read_labels(
    given: argparse.Namespace, item_ids: Any, option: str = "column"
) -> "ItemLabels | None":
    """Read --label-column, or --label-stratum, of the file of labels; None where it is not given.

    The arguments are those that check_labels has passed.
    """
    from fastcos.io import read_labels

    column = getattr(given, f"label_{option}")
    if column is None:
        return None
    only = given.only.split(",") if option == "column" and given.only is not None else None
    try:
        return read_labels(
            given.labels,
            item_ids,
            column=column,
            item=given.label_item,
            name=given.label_name,
            separator=given.label_separator or None,
            only=only,
            member=given.label_member,
        )
    except ValueError as error:
        # --item and --member are arguments of the interactions
        message = re.sub(r"^column(?= must)", f"--label-{option}", str(error))
        error.args = (re.sub(r"^(item|name|member)(?= must)", r"--label-\1", message),)
        raise


def use_labels(labelled: "ItemLabels") -> tuple[list[str | None], dict[str, Any]]:
    """Labels as compare takes them, and their counts, which are also reported."""
    n_labelled, classes = int((labelled.labels >= 0).sum()), labelled.classes.tolist()
    _, _, _, several, none, other, unknown = labelled
    items, column, names = labelled.columns.values()
    say(f"labels {column!r} of items {items!r}" + ("" if names is None else f", names {names!r}"))
    say(
        f"labels: {n_labelled:,} items in {len(classes)} classes; left out {several:,} with "
        f"several labels, {none:,} with none, {other:,} with another; {unknown:,} items of the "
        "file are not among them"
    )
    left_out = {"n_several": several, "n_none": none, "n_other": other, "n_unknown": unknown}
    return label_names(labelled), {"classes": classes, "labelled": n_labelled, **left_out}


def label_names(labelled: "ItemLabels") -> list[str | None]:
    """Return the labels of the items, None for an item without."""
    return [None if code < 0 else str(labelled.classes[code]) for code in labelled.labels]


def add_model(
    parser: argparse.ArgumentParser, default: str, *objectives: str
) -> "argparse._ArgumentGroup":
    """Add the arguments of a model; default describes that of --regularization.

    Without objectives, the first of which is the default, they are both at once or one of them.
    """
    group = parser.add_argument_group("model")
    help_ = "rank k (default 50, or all of a smaller matrix)"
    group.add_argument("--rank", type=int, metavar="K", help=help_)
    chosen = objectives or ("both", "dropout", "weight_decay")
    help_ = f"Eq. 1 is dropout, Eq. 2 is weight_decay (default {chosen[0]})"
    group.add_argument("--objective", choices=chosen, default=chosen[0], help=help_)
    scale = "λ" if objectives else "λ of Eq. 1, on the scale of squared singular values"
    help_ = f"{scale} (default: {default})"
    group.add_argument("--regularization", type=float, metavar="L", help=help_)
    if not objectives:
        help_ = "λ of Eq. 2, on the scale of singular values (default: root of the above)"
        group.add_argument("--weight-decay", type=float, metavar="L", help=help_)
    return group


def add_rescalings(group: "argparse._ActionsContainer") -> None:
    """Add --rescaling, for one's own D besides the named ones."""
    help_ = "also D = S^A Σ^B, such as 0.25,-0.5 (write --rescaling=-1,0 where A is negative)"
    group.add_argument("--rescaling", action="append", default=[], metavar="A,B", help=help_)


def as_rescaling(text: str) -> "str | Rescaling":
    """Return the rescaling of exponents A,B, or the name that is given."""
    from fastcos.similarity.diagonal import Rescaling, rescalings

    names = [one.name for one in rescalings()]
    if text in names:
        return text
    exponents = text.split(",")
    if len(exponents) != 2:
        rule = f"two exponents, such as 0.5,1, or one of {', '.join(names)}"
        hint = validation.did_you_mean(text, names)
        raise ValueError(f"--rescaling must be {rule}, got {text!r}{hint}")
    numbers = (validation.as_number("--rescaling", one) for one in exponents)
    return Rescaling(*(validation.as_real("--rescaling", number) for number in numbers))


def chosen_rescalings(given: argparse.Namespace) -> "list[str | Rescaling] | None":
    """Return every named rescaling and those of --rescaling; None without any."""
    from fastcos.similarity.diagonal import rescalings

    if not given.rescaling:
        return None
    return [*(one.name for one in rescalings()), *map(as_rescaling, given.rescaling)]


def model_arguments(given: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of compare for the model."""
    return {
        "n_components": given.rank,
        "objective": given.objective,
        "regularization": given.regularization,
        "weight_decay": given.weight_decay,
        "random_state": given.seed,
    }


def as_measure(flag: str, text: str) -> "str | Measure":
    """Return the name, or the measure of NAME:PARAMETER=VALUE:PARAMETER=VALUE."""
    from fastcos.similarity.base import REGISTRY, check_known, get_measure

    # a colon is also in names such as rescaled_cosine:data
    name, *pairs = re.split(r":(?=\w+=)", text)
    check_known(flag, name)
    if not pairs:
        return name
    accepted = inspect.signature(REGISTRY[name]).parameters
    parameters: dict[str, Any] = {}
    for pair in pairs:
        parameter, _, value = pair.partition("=")
        validation.as_choice(f"a parameter of {name}", parameter, [*accepted] or ["(it has none)"])
        if not value:
            raise ValueError(f"{parameter} must have a value after its =, got none")
        if parameter in parameters:
            raise ValueError(f"{parameter} must be given once, got it again: {value[:80]!r}")
        parameters[parameter] = _parameter(parameter, value)
    return get_measure(name, **parameters)


def _parameter(name: str, text: str) -> Any:
    """A number, True or False; the array or model in a file of that kind; or the text itself."""
    from fastcos import io
    from fastcos.io.arrays import read_npy
    from fastcos.io.vectors import SUFFIXES

    with contextlib.suppress(ValueError, SyntaxError):
        return ast.literal_eval(text)
    path = Path(text)
    if path.suffix == ".npy":
        return read_npy(path)
    if path.suffix in SUFFIXES:
        return io.read_vectors(text).vectors
    if not path.is_dir():
        return text
    from fastcos.models.linear_mf import LinearMF

    if not (path / "model").is_dir():
        raise ValueError(f"{name} must be a folder of fastcos fit, got {text!r}")
    return LinearMF.load(path / "model")


def add_output(parser: argparse.ArgumentParser, directory: str) -> None:
    """Add the arguments of the output."""
    group = parser.add_argument_group("output")
    group.add_argument(
        "--out", default=directory, metavar="DIR", help=f"folder for files (default {directory})"
    )
    add_json(group)


def add_json(parser: "argparse._ActionsContainer") -> None:
    """Add --json."""
    parser.add_argument("--json", action="store_true", help="print JSON in place of tables")


def out_directory(given: argparse.Namespace) -> Path:
    """Return the folder for files, refused before the work where it cannot be one."""
    path = validation.as_path("--out", given.out)
    check_output_directory("--out", path)
    return path


def check_output_file(name: str, path: Path) -> None:
    """Refuse a path that is no regular file, old or new, in a directory that can be written."""
    target = Path(os.path.realpath(path))  # still a link where links form a circle
    if (target.exists() or target.is_symlink()) and not target.is_file():
        raise ValueError(f"{name} must be a regular file or a new one, got {str(path)!r}")
    check_output_directory(f"the folder of {name}", target.parent)


def check_output_directory(name: str, path: Path) -> None:
    """Refuse the path of a directory that cannot be written, now or once it is made."""
    nearest = next(place for place in (path, *path.absolute().parents) if place.exists())
    if not nearest.is_dir():
        raise ValueError(f"{name} must be a directory, got {str(path)!r}: {nearest} is a file")
    if not os.access(nearest, os.W_OK):
        raise ValueError(f"{name} must be writable, got {str(path)!r}: no right to write {nearest}")


def add_common(parser: argparse.ArgumentParser, *, seed: bool = True) -> None:
    """Add the arguments of every command that computes; main sets the threads."""
    if seed:
        parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed (default 0)")
    parser.add_argument("--threads", type=int, metavar="N", help="threads (default: all cores)")
