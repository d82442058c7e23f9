"""Options that several commands share, and functions that convert options to arguments."""

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
    from fastcos.similarity.rescalings import Rescaling


VECTOR_FORMATS = """\
.npy, .npz (including models saved by implicit), .safetensors, .parquet, .arrow, .jsonl, .csv,
text in the format of word2vec or GloVe, word2vec .bin"""
INTERACTION_COLUMNS = ("user", "item", "value", "member", "no_header", "no_quotes")
VECTOR_COLUMNS = ("vector_column", "id_column", "ids")
# Examples of column names that the readers of tables recognise.
_EXAMPLES = {"item": "item or id", "name": "name or title", "column": "count or popularity"}
# If a table has at most this many columns, messages list the names of all its columns.
_MAX_NAMES = 5
# A warning is printed if the squares of the _FEW_CELLS largest cells of a table add up to more than
# _LARGE_SHARE of the sum of all squares. If a table has fewer than 1,000 cells, only 1 % of its
# cells (the largest ones, and at least one) are considered.
_FEW_CELLS, _LARGE_SHARE = 10, 0.5
RESCALING_SYMBOLS = (
    "Σ holds the singular values of the interactions, S = Σ² / (Σ² + λ), and λ is the strength of "
    "the regularisation"
)
MEASURE_SYNTAX = (
    "parameters of a measure follow its name, as in csls:n_neighbors=20 or "
    "soft_cosine:matrix=S.npy, and can be numbers, strings or files of arrays"
)


def add_interactions(
    parser: argparse.ArgumentParser, help_text: str = "file of interactions"
) -> None:
    """Add the file of interactions and the options for its columns."""
    parser.add_argument("interactions", metavar="INTERACTIONS", help=help_text)
    group = parser.add_argument_group(
        "columns of the interactions (default: recognised by their names in the header)"
    )
    group.add_argument("--user", metavar="C", help="column of user ids")
    group.add_argument("--item", metavar="C", help="column of item ids")
    help_ = "column of the values, such as ratings; '' gives every interaction the value 1"
    group.add_argument("--value", metavar="C", help=help_)
    help_ = "name of the file to read, if the interactions are in a zip archive"
    group.add_argument("--member", metavar="FILE", help=help_)
    help_ = "the file has no header; its columns are named 1, 2, ..."
    group.add_argument("--no-header", action="store_true", default=None, help=help_)
    help_ = "treat quotation marks as ordinary characters, and not as CSV quoting"
    group.add_argument("--no-quotes", action="store_true", default=None, help=help_)


def read_interactions(args: argparse.Namespace, duplicates: str = "sum") -> "Interactions":
    """Read the file of interactions, report its size and columns, and warn of dominant cells."""
    from fastcos.io import read_interactions

    columns = column_arguments(args)
    with progress_bar("reading bytes") as progress:
        data = read_interactions(
            args.interactions, **columns, duplicates=duplicates, progress=progress
        )
    (n, p), names = data.X.shape, ""
    if data.columns:
        user, item, value = data.columns.values()
        values = "every interaction has the value 1" if value is None else f"{value!r} for values"
        names = f"; columns used: {user!r} for users, {item!r} for items, {values}"
    say(f"read {data.X.nnz:,} interactions of {n:,} users with {p:,} items{names}")
    squares = np.asarray(data.X.data, np.float64) ** 2
    n_cells = min(_FEW_CELLS, max(1, len(squares) // 100))
    largest_squares = np.partition(squares, -n_cells)[-n_cells:]
    share = largest_squares.sum() / max(squares.sum(), np.finfo(float).tiny)
    if share > _LARGE_SHARE:
        say(
            f"warning: {n_cells} of {len(squares):,} cells contribute {share:.0%} of the sum of "
            "the squared values. A model would therefore mostly fit these cells. Use --value '' to "
            "give every interaction the value 1, or --value NAME to use another column"
        )
    return data


@contextlib.contextmanager
def errors_name_flag(flag: str, name_option: str | None = None) -> Iterator[None]:
    """Make errors mention `flag`, the flag with which the user passed the table that is being read.

    For some tables, such as the table of --names, there are no flags with which the user could
    choose the columns. An error about a column of such a table must therefore mention the flag with
    which the user passed the table. `name_option` is the flag that chooses the column of names; it
    is None if there is no such flag.
    """
    contents = {"item": "ids of the items", "name": "names", "column": "numbers"}
    try:
        yield
    except ValueError as error:
        match = re.fullmatch(r"(item|name|column) must be given for (.*?): (.*)", str(error))
        if match is not None and match[1] == "name" and name_option is not None:
            error.args = (f"{name_option} must be given for {match[2]}: {match[3]}",)
        elif match is not None:
            content, path, reason = contents[match[1]], match[2], match[3]
            rule = (
                f"have one column of {content} with a known heading, such as {_EXAMPLES[match[1]]}"
            )
            error.args = (f"{flag} must {rule}, got {path}: {reason}",)
        raise


def column_arguments(args: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of read_interactions that describe the columns of the file."""
    arguments = {name: getattr(args, name) for name in ("user", "item", "value", "member")}
    return arguments | {"header": not args.no_header, "quotes": not args.no_quotes}


def add_vectors(parser: "argparse._ActionsContainer") -> None:
    """Add the options for the columns of a file of vectors."""
    help_ = (
        "column of a table, or array of an .npz or .safetensors file, that contains the vectors "
        "(default: the only column or array that contains vectors)"
    )
    parser.add_argument("--vector-column", metavar="C", help=help_)
    help_ = (
        "column or array that contains the ids, or '' to read no ids (default: recognised by its "
        "name)"
    )
    parser.add_argument("--id-column", metavar="C", help=help_)
    help_ = (
        "file with the id of each item, in the order of the vectors: .npy, .npz with an array "
        "named ids, or text with one id per line. Use it if the file of vectors contains no ids"
    )
    parser.add_argument("--ids", metavar="FILE", help=help_)


def add_model_name(parser: "argparse._ActionsContainer") -> None:
    """Add --model."""
    help_ = (
        "name and version of the model that computed the vectors, such as minilm@2; the name is "
        "stored, and later commands with a different --model fail"
    )
    parser.add_argument("--model", metavar="NAME", help=help_)


def read_vectors(path: str, args: argparse.Namespace, shared: bool = False) -> "Vectors":
    """Read vectors and ids from the columns given by --vector-column and --id-column.

    If `shared` is true, the two options apply to several files, but the user may have meant only
    the file of items. The two options are therefore ignored if `path` is a .npy file, which has no
    columns.
    """
    from fastcos.io import read_vectors

    if shared and Path(path).suffix == ".npy":
        return read_vectors(path)
    vectors = read_vectors(path, vector_column=args.vector_column, id_column=args.id_column)
    say_columns(path, vectors)
    return vectors


def say_columns(path: str | Path, content: "Vectors | Factors") -> None:
    """Print which columns of a table contain the vectors and the ids, and which are not used."""
    if content.columns:
        vectors, ids, unused = (content.columns[name] for name in ("vectors", "ids", "unused"))
        parts = [
            "vectors from " + _list_names(vectors), "no ids" if ids is None else f"ids from {ids!r}"
        ]  # fmt: skip
        if unused:
            parts.append(_list_names(unused) + " not used")
        say(f"columns of {path}: {'; '.join(parts)}")


def _list_names(names: tuple[str, ...]) -> str:
    """Return the names as text; if there are many, only the first two and the last are listed."""
    if len(names) <= _MAX_NAMES:
        return ", ".join(map(repr, names))
    return f"{names[0]!r}, {names[1]!r}, ... {names[-1]!r} ({len(names)} columns)"


def refuse(args: argparse.Namespace | None, reason: str, *names: str) -> None:
    """Raise ValueError, with the reason, if one of the options with the given names is used."""
    for name in names:
        validation.check_none(f"--{name.replace('_', '-')}", getattr(args, name, None), reason)


def arguments(args: argparse.Namespace) -> dict[str, Any]:
    """Return all arguments of a command, for the provenance of the files that it writes."""
    return {
        name: value
        for name, value in vars(args).items()
        if not callable(value) and not isinstance(value, argparse.ArgumentParser)
    }


def option_words(args: argparse.Namespace, *names: str) -> list[str]:
    """Return the flags and values of the options with these names, as words of a command line.

    Options that are not given are left out.
    """
    words: list[str] = []
    for name in names:
        if (value := getattr(args, name)) is not None:
            words.append(f"--{name.replace('_', '-')}")
            words += [] if value is True else [str(value)]
    return words


def command_words(args: argparse.Namespace, *excluded: str) -> list[str]:
    """Return the flags and values of all given options that are not in ``excluded``."""
    words: list[str] = []
    for action in args.parser._actions:
        value = getattr(args, action.dest, None)
        is_given = value is not None and value != action.default
        if not action.option_strings or action.dest in excluded or not is_given:
            continue
        flag = action.option_strings[-1]
        if action.nargs == 0:
            words.append(flag)
        elif action.nargs is not None:  # The flag is followed by several values.
            words += [flag, *map(str, list(value or ()))]
        else:
            # Each flag is followed by one value. A value that begins with a minus sign must follow
            # an equals sign.
            for word in map(str, value if isinstance(value, list) else [value]):
                words += [f"{flag}={word}"] if word.startswith("-") else [flag, word]
    return words


def add_measure(parser: argparse.ArgumentParser, default: str = "cosine") -> None:
    """Add --measure, which as_measure parses."""
    help_ = (
        f"similarity measure (default {default}; fastcos.list_measures() in Python returns all "
        "names); "
        f"{MEASURE_SYNTAX}"
    )
    parser.add_argument("--measure", default=default, metavar="NAME", help=help_)


def add_labels(parser: argparse.ArgumentParser) -> None:
    """Add the file of labels and the options for its columns."""
    group = parser.add_argument_group("labels of the items")
    add = group.add_argument
    add("--labels", metavar="FILE", help="table with item ids and labels")
    add("--label-column", metavar="C", help="column of labels (required with --labels)")
    add("--label-item", metavar="C", help="column of item ids in the table of labels")
    add("--label-name", metavar="C", help="column of item names, which the output shows")
    help_ = "name of the file to read, if the table of labels is in a zip archive"
    add("--label-member", metavar="FILE", help=help_)
    help_ = (
        "character that separates the labels of one item (default |); items with more than one "
        "label are left out of the evaluation"
    )
    add("--label-separator", default="|", metavar="S", help=help_)
    add("--only", metavar="A,B,...", help="evaluate only items whose label is A or B or ...")


def check_labels(args: argparse.Namespace) -> None:
    """Raise ValueError if only one of --labels and --label-column is given."""
    if args.labels is None:
        validation.check_none("--label-column", args.label_column, "without --labels")
    else:
        validation.as_instance("--label-column", args.label_column, str, "given with --labels")


def read_labels(args: argparse.Namespace, item_ids: Any) -> "ItemLabels | None":
    """Read the column that --label-column names; return None without this option.

    The caller must first have passed the same arguments to check_labels.
    """
    from fastcos.io import read_labels

    if args.label_column is None:
        return None
    try:
        return read_labels(
            args.labels,
            item_ids,
            column=args.label_column,
            item=args.label_item,
            name=args.label_name,
            separator=args.label_separator or None,
            only=None if args.only is None else args.only.split(","),
            member=args.label_member,
        )
    except ValueError as error:
        # Errors about the arguments `item` and `member` must mention --label-item and
        # --label-member, so the code below replaces the names of the arguments. Without this
        # replacement, `main` would mention the options --item and --member, which belong to the
        # interactions and not to the labels.
        message = re.sub(r"^(column|item|name|member)(?= must)", r"--label-\1", str(error))
        error.args = (message,)
        raise


def report_labels(item_labels: "ItemLabels") -> tuple[list[str | None], dict[str, Any]]:
    """Print how many items have a label.

    Return the label of each item, and a dict with the printed counts.
    """
    n_labelled, classes = int((item_labels.labels >= 0).sum()), item_labels.classes.tolist()
    _, _, _, n_several, n_none, n_other, n_unknown = item_labels
    items, column, names = item_labels.columns.values()
    name_column = "" if names is None else f", {names!r} for names"
    used_columns = f"{column!r} for labels, {items!r} for items{name_column}"
    say(f"columns used from the label file: {used_columns}")
    say(
        f"read the labels of {n_labelled:,} items in {len(classes)} classes; left out "
        f"{n_several:,} items with several labels, {n_none:,} items without a label, and "
        f"{n_other:,} items whose label is not in --only; the label file also contains "
        f"{n_unknown:,} items that are not in the data"
    )
    counts = {"n_several": n_several, "n_none": n_none, "n_other": n_other, "n_unknown": n_unknown}
    return label_names(item_labels), {"classes": classes, "labelled": n_labelled, **counts}


def label_names(item_labels: "ItemLabels") -> list[str | None]:
    """Return the label of each item; None for an item without a label."""
    return [None if code < 0 else str(item_labels.classes[code]) for code in item_labels.labels]


def add_model(
    parser: argparse.ArgumentParser, default: str, *objectives: str
) -> "argparse._ArgumentGroup":
    """Add the options of a model; `default` describes the default of --regularization.

    The first of the objectives is the default. If no objectives are passed, --objective accepts
    "dropout", "weight_decay" and the default "both", which stands for both objectives.
    """
    group = parser.add_argument_group("model")
    help_ = (
        "rank k of the model (default: 50, but at most the number of users and at most the number "
        "of items)"
    )
    group.add_argument("--rank", type=int, metavar="K", help=help_)
    choices = objectives or ("both", "dropout", "weight_decay")
    help_ = (
        "objective of the model: dropout for Eq. 1 of Steck et al. 2024 (arXiv:2403.05440), "
        f"weight_decay for Eq. 2 (default {choices[0]})"
    )
    group.add_argument("--objective", choices=choices, default=choices[0], help=help_)
    scale = "strength λ of the regularisation"
    if not objectives:
        scale += " in Eq. 1, on the scale of the squared singular values of the interactions"
    help_ = f"{scale}. Default: {default}"
    group.add_argument("--regularization", type=float, metavar="L", help=help_)
    if not objectives:
        help_ = (
            "strength λ of the regularisation in Eq. 2, on the scale of the singular values of the "
            "interactions. Default: the square root of the λ of Eq. 1. If all embeddings are "
            "zero with this λ, the default is half of the largest singular value instead"
        )
        group.add_argument("--weight-decay", type=float, metavar="L", help=help_)
    return group


def add_rescalings(group: "argparse._ActionsContainer") -> None:
    """Add --rescaling A,B, which evaluates a rescaling in addition to the named rescalings."""
    help_ = (
        "also evaluate the rescaling D = S^A Σ^B of the latent dimensions. An example of the "
        "exponents A,B is 0.25,-0.5. If A is negative, write an equals sign, as in "
        f"--rescaling=-1,0. {RESCALING_SYMBOLS}"
    )
    group.add_argument("--rescaling", action="append", default=[], metavar="A,B", help=help_)


def as_rescaling(text: str) -> "str | Rescaling":
    """Return the name of a rescaling, or the rescaling with the exponents A,B."""
    from fastcos.similarity.rescalings import Rescaling, rescalings

    names = [rescaling.name for rescaling in rescalings()]
    if text in names:
        return text
    exponents = text.split(",")
    if len(exponents) != 2:
        rule = f"one of {', '.join(names)}, or two exponents (for example 0.5,1)"
        hint = validation.did_you_mean(text, names)
        raise ValueError(f"--rescaling must be {rule}, got {text!r}{hint}")
    numbers = (validation.as_number("--rescaling", exponent) for exponent in exponents)
    return Rescaling(*(validation.as_real("--rescaling", number) for number in numbers))


def parse_rescalings(args: argparse.Namespace) -> "list[str | Rescaling] | None":
    """Return all named rescalings, followed by the rescalings of --rescaling.

    Return None if --rescaling is not given.
    """
    from fastcos.similarity.rescalings import rescalings

    if not args.rescaling:
        return None
    return [*(rescaling.name for rescaling in rescalings()), *map(as_rescaling, args.rescaling)]


def model_arguments(args: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments of fastcos.compare that describe the model."""
    return {
        "n_components": args.rank,
        "objective": args.objective,
        "regularization": args.regularization,
        "weight_decay": args.weight_decay,
        "random_state": args.seed,
    }


def as_measure(flag: str, text: str) -> "str | Measure":
    """Return NAME unchanged, but convert NAME:PARAMETER=VALUE:... to a measure object."""
    from fastcos.similarity.base import REGISTRY, check_known, get_measure

    # Names such as rescaled_cosine:data also contain a colon, but no equals sign follows it.
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
            raise ValueError(f"{parameter} must have a value after the =, got no value")
        if parameter in parameters:
            raise ValueError(f"{parameter} must be given once, got a second value: {value[:80]!r}")
        parameters[parameter] = _parameter(parameter, value)
    return get_measure(name, **parameters)


def _parameter(name: str, text: str) -> Any:
    """Convert the text of a parameter to the value of the parameter.

    A Python literal is converted to its value. If the text is the path of a .npy file, of a file of
    vectors or of a model folder, the function returns the array, the vectors or the model. Any
    other text is returned unchanged.
    """
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
        raise ValueError(f"{name} must be a folder that `fastcos fit` wrote, got {text!r}")
    return LinearMF.load(path / "model")


def add_output(parser: argparse.ArgumentParser, directory: str) -> None:
    """Add the options --json and --out; the default of --out is ``directory``."""
    group = parser.add_argument_group("output")
    group.add_argument(
        "--out", default=directory, metavar="DIR", help=f"output folder (default {directory})"
    )
    add_json(group)


def add_json(parser: "argparse._ActionsContainer") -> None:
    """Add --json."""
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")


def out_directory(args: argparse.Namespace) -> Path:
    """Return the output folder; raise ValueError if the folder cannot be written."""
    path = validation.as_path("--out", args.out)
    check_output_directory("--out", path)
    return path


def check_output_file(name: str, path: Path) -> None:
    """Raise ValueError unless a regular file can be written at the path."""
    # For a cycle of symbolic links, the result is still a link.
    target = Path(os.path.realpath(path))
    if (target.exists() or target.is_symlink()) and not target.is_file():
        rule = "a regular file or a path that does not exist yet"
        raise ValueError(f"{name} must be {rule}, got {str(path)!r}")
    check_output_directory(f"the folder of {name}", target.parent)


def check_output_directory(name: str, path: Path) -> None:
    """Raise ValueError if files cannot be written to the directory, which may not exist yet."""
    existing = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
    if not existing.is_dir():
        raise ValueError(f"{name} must be a directory, got {str(path)!r}: {existing} is a file")
    if not os.access(existing, os.W_OK):
        reason = f"no permission to write {existing}"
        raise ValueError(f"{name} must be writable, got {str(path)!r}: {reason}")


def add_common(parser: argparse.ArgumentParser, *, seed: bool = True) -> None:
    """Add --seed and --threads, which every command that computes accepts."""
    if seed:
        help_ = "seed of the random samples (default 0)"
        parser.add_argument("--seed", type=int, default=0, metavar="N", help=help_)
    help_ = "number of threads (default: all cores)"
    parser.add_argument("--threads", type=int, metavar="N", help=help_)
