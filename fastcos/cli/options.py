"""Flags that several verbs share, and how they become arguments."""

import argparse
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastcos import config, validation
from fastcos.cli.terminal import progress_bar

if TYPE_CHECKING:
    from fastcos.datasets.simulation import Simulation
    from fastcos.io import Interactions, ItemLabels
    from fastcos.measures import Measure


RANK = 50
# how a measure is given with parameters, for help
SPELLING = (
    "one may have parameters, of numbers, texts and files of arrays: csls:n_neighbors=20, "
    "soft_cosine:matrix=S.npy"
)


def add_simulation(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the simulation; the defaults are the paper's."""
    group = parser.add_argument_group("simulation (section 4 of the paper)")
    group.add_argument("--users", type=int, default=20_000, metavar="N", help="default 20000")
    group.add_argument("--items", type=int, default=1_000, metavar="P", help="default 1000")
    group.add_argument(
        "--clusters", dest="n_clusters", type=int, default=5, metavar="C", help="default 5"
    )
    group.add_argument(
        "--item-exponent",
        type=float,
        nargs=2,
        default=(0.25, 1.5),
        metavar=("MIN", "MAX"),
        help="range of the items' power-law exponents (default 0.25 1.5)",
    )
    group.add_argument(
        "--user-exponent",
        type=float,
        default=0.5,
        metavar="B",
        help="power-law exponent of interactions per user (default 0.5)",
    )
    group.add_argument(
        "--preset",
        default="zipf_bounded",
        metavar="NAME",
        help="how to read what the paper leaves open (default zipf_bounded; "
        "a wrong name lists them all)",
    )


def simulated_shape(given: argparse.Namespace) -> tuple[int, int]:
    """Return users and items, checked."""
    users = validation.as_count("--users", given.users)
    return users, validation.as_count("--items", given.items, low=2)


def simulate(given: argparse.Namespace) -> "Simulation":
    """Simulate as the flags say."""
    from fastcos.datasets.simulation import simulate_interactions

    validation.as_count("--seed", given.seed, low=0)
    with progress_bar("simulating users") as progress:
        return simulate_interactions(
            given.users,
            given.items,
            n_clusters=given.n_clusters,
            item_exponent=tuple(given.item_exponent),
            user_exponent=given.user_exponent,
            preset=given.preset,
            random_state=given.seed,
            progress=progress,
        )


def add_interactions(parser: argparse.ArgumentParser, what: str = "file of interactions") -> None:
    """Add the interactions file and how to read it."""
    parser.add_argument("interactions", metavar="INTERACTIONS", help=what)
    group = parser.add_argument_group(
        "columns of the interactions (told by their names if left out)"
    )
    group.add_argument("--user", metavar="C", help="column of user ids")
    group.add_argument("--item", metavar="C", help="column of item ids")
    group.add_argument("--value", metavar="C", help="column of values; '' makes every row count 1")
    group.add_argument("--member", metavar="FILE", help="which file of a zip archive")


def read_interactions(given: argparse.Namespace) -> "Interactions":
    """Read interactions as the flags say."""
    from fastcos.io import read_interactions

    with progress_bar("reading bytes") as progress:
        return read_interactions(
            given.interactions,
            user=given.user,
            item=given.item,
            value=given.value,
            member=given.member,
            progress=progress,
        )


def add_labels(parser: argparse.ArgumentParser) -> None:
    """Add the labels file and how to read it."""
    group = parser.add_argument_group("labels of the items")
    group.add_argument("--labels", metavar="FILE", help="table with one row or more an item")
    group.add_argument(
        "--label-column", metavar="C", help="column of labels (needed with --labels)"
    )
    group.add_argument("--label-item", metavar="C", help="column of item ids in FILE")
    group.add_argument("--label-name", metavar="C", help="column of names for printing")
    group.add_argument("--label-member", metavar="FILE", help="which file of a zip archive")
    group.add_argument(
        "--label-separator",
        default="|",
        metavar="S",
        help="stands between several labels of one item (default |); such items are left out",
    )
    group.add_argument(
        "--only", metavar="A,B,...", help="the labels that count; items with another are left out"
    )


def check_labels(given: argparse.Namespace) -> None:
    """Refuse a column without a file and a file without a column, before anything is read."""
    if given.labels is None:
        validation.check_none("--label-column", given.label_column, "without --labels")
    else:
        validation.as_instance("--label-column", given.label_column, str, "given with --labels")


def read_labels(given: argparse.Namespace, item_ids: Any) -> "ItemLabels | None":
    """Read labels as the flags say, once they are checked; None where there are none."""
    from fastcos.io import read_labels

    if given.labels is None:
        return None
    try:
        return read_labels(
            given.labels,
            item_ids,
            column=given.label_column,
            item=given.label_item,
            name=given.label_name,
            separator=given.label_separator or None,
            only=None if given.only is None else given.only.split(","),
            member=given.label_member,
        )
    except ValueError as error:
        # --item and --member are flags of the interactions
        told = re.sub(r"^(column|item|name|member)(?= must)", r"--label-\1", str(error))
        error.args = (told,)
        raise


def add_rank(group: "argparse._ArgumentGroup") -> None:
    """Add the rank of the model."""
    group.add_argument(
        "--rank",
        type=int,
        metavar="K",
        help=f"rank k (default {RANK}, or all of a smaller matrix)",
    )


def rank(given: argparse.Namespace, shape: tuple[int, int]) -> int:
    """Return the rank to use for interactions of that shape."""
    if given.rank is None:
        return min(RANK, *shape)
    return validation.as_count("--rank", given.rank, high=min(shape))


def add_model(parser: argparse.ArgumentParser, default: str) -> None:
    """Add the flags of the model; default tells that of --regularization."""
    group = parser.add_argument_group("model")
    add_rank(group)
    group.add_argument(
        "--regularization",
        type=float,
        metavar="L",
        help=f"λ of Eq. 1, on the scale of squared singular values (default: {default})",
    )
    group.add_argument(
        "--weight-decay",
        type=float,
        metavar="L",
        help="λ of Eq. 2, on the scale of singular values (default: root of the above)",
    )
    group.add_argument(
        "--objective",
        choices=("both", "dropout", "weight_decay"),
        default="both",
        help="Eq. 1 is dropout, Eq. 2 is weight_decay (default both)",
    )


def add_choices(parser: argparse.ArgumentParser) -> None:
    """Add which measures and preprocessings to compare."""
    group = parser.add_argument_group("candidates")
    group.add_argument(
        "--measures",
        default="all",
        metavar="A,B,...",
        help="measures besides the cosine (default all that the data can serve; a wrong name "
        f"lists them); {SPELLING}",
    )
    group.add_argument(
        "--preprocessing",
        default="none",
        metavar="A,B,...",
        help="what to do to the interactions before the model, each on top of nothing at all "
        "(default none; all; a wrong name lists them)",
    )


def chosen_measures(given: argparse.Namespace) -> "list[str | Measure] | None":
    """Return the measures of --measures, None for all."""
    from fastcos.cli.measures import as_measure

    if given.measures == "all":
        return None
    return [as_measure("--measures", text, ("all",)) for text in given.measures.split(",")]


def chosen_preprocessings(given: argparse.Namespace) -> list[str]:
    """Return the names of --preprocessing."""
    from fastcos.comparison.models import PREPROCESSINGS

    if given.preprocessing == "all":
        return list(PREPROCESSINGS)
    return [
        validation.as_choice("--preprocessing", name, ("all", *PREPROCESSINGS))
        for name in given.preprocessing.split(",")
    ]


def model_arguments(given: argparse.Namespace, shape: tuple[int, int]) -> dict[str, Any]:
    """Return the arguments of compare that the flags of the model set, for X of that shape."""
    strengths = {
        name: None if value is None else validation.as_real(f"--{flag}", value, low=0)
        for name, flag, value in (
            ("regularization", "regularization", given.regularization),
            ("weight_decay", "weight-decay", given.weight_decay),
        )
    }
    return {
        "n_components": rank(given, shape),
        "objective": given.objective,
        "random_state": validation.as_count("--seed", given.seed, low=0),
        **strengths,
    }


def add_output(parser: argparse.ArgumentParser, directory: str) -> None:
    """Add the flags of the output."""
    group = parser.add_argument_group("output")
    group.add_argument(
        "--out", default=directory, metavar="DIR", help=f"folder for files (default {directory})"
    )
    group.add_argument("--json", action="store_true", help="print JSON in place of tables")


def out_directory(given: argparse.Namespace) -> Path:
    """Return the folder for files, refused before the work where it cannot be one."""
    path = validation.as_path("--out", given.out)
    _check_writable_directory("--out", path)
    return path


def check_output_file(name: str, path: Path) -> None:
    """Refuse a path that is no regular file, there or new, in a directory that can be written."""
    target = Path(os.path.realpath(path))  # still a link where links form a circle
    if (target.exists() or target.is_symlink()) and not target.is_file():
        raise ValueError(f"{name} must be a regular file or a new one, got {str(path)!r}")
    _check_writable_directory(f"the folder of {name}", target.parent)


def _check_writable_directory(name: str, path: Path) -> None:
    """Refuse the path of a directory that cannot be written, now or once it is made."""
    nearest = next(place for place in (path, *path.absolute().parents) if place.exists())
    if not nearest.is_dir():
        raise ValueError(f"{name} must be a directory, got {str(path)!r}: {nearest} is a file")
    if not os.access(nearest, os.W_OK):
        raise ValueError(
            f"{name} must be a directory that can be written, got {str(path)!r}: no right to write "
            f"to {nearest}"
        )


def add_common(parser: argparse.ArgumentParser) -> None:
    """Add the flags of every verb that computes."""
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed (default 0)")
    parser.add_argument("--threads", type=int, metavar="N", help="threads (default: all cores)")


def apply_common(given: argparse.Namespace) -> None:
    """Put the number of threads into force."""
    if given.threads is not None:
        config.set_config(num_threads=validation.as_count("--threads", given.threads))
