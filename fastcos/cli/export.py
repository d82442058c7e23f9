"""The command ``fastcos index export``, which writes embeddings that no rescaling changes."""

import argparse
import json
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fastcos import io, validation
from fastcos.cli import options
from fastcos.cli.model_folder import is_model_folder, read_factors
from fastcos.cli.terminal import print_json, print_next, say
from fastcos.storage import provenance

if TYPE_CHECKING:
    from fastcos.auditing.alignment import Alignment

SUMMARY = "write embeddings that no rescaling changes, for use in any vector index"
DESCRIPTION = """\
Write item embeddings in a form that does not depend on the parametrisation of the model. The output
consists of float32 .npy files that FAISS, usearch and SimilarityIndex can load without a
conversion.
  --form query_metric writes items.npy and map.npy. The inner product of two rows
      of items.npy is the covariance of the predicted scores of the two items,
      computed over all users. To convert the embeddings of new items to rows of
      the same form, multiply the embeddings by the matrix in map.npy.
  --form canonical writes items.npy, users.npy and singular_values.npy. The inner
      products of users and items are the predictions of the model, and column
      j of items.npy has the same norm as column j of users.npy.
With both forms, the command also writes export.json, which describes the files. If the input has
ids, the command also writes ids.npy. Two training runs of the same model end in different
coordinates. To make the rows of a new export comparable with the rows of an earlier export, pass
the folder of the earlier export to --align-to."""
EPILOG = f"""\
examples:
  fastcos index export films --out served
  fastcos index export items.npy --users users.npy --out served
  fastcos index export model.npz --form canonical --out canonical
  fastcos index export model.npz --unit-rows --out served
  fastcos index export model.npz --align-to yesterday --out today
input: a folder written by `fastcos fit`, or
{options.VECTOR_FORMATS}"""
MEANINGS = {
    "query_metric": "the cosine of two rows is the correlation between the predicted scores "
    "of the two items, computed over all users",
    "canonical": "users @ items.T are the predictions, the columns of each matrix are orthogonal, "
    "and column j of users has the same norm as column j of items",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add = parser.add_argument
    help_ = "file of item embeddings, or folder written by `fastcos fit`"
    add("items", metavar="ITEMS", help=help_)
    help_ = (
        "file of user or query embeddings, or file of interactions if ITEMS is a folder written by "
        "`fastcos fit`"
    )
    add("--users", metavar="FILE", help=help_)
    help_ = f"form of the embeddings: {' or '.join(MEANINGS)} (default query_metric)"
    add("--form", default="query_metric", metavar="NAME", help=help_)
    help_ = "normalise the item rows to unit norm, so that their inner products are cosines"
    add("--unit-rows", action="store_true", help=help_)
    help_ = (
        "folder of an earlier export of the same form; the rows are rotated so that they can be "
        "compared with the rows of the earlier export"
    )
    add("--align-to", metavar="FOLDER", help=help_)
    options.add_vectors(parser)
    options.add_output(parser, "export")


def run(args: argparse.Namespace) -> int:
    """Read the model, transform its embeddings as requested by --form, and write the arrays."""
    folder = options.out_directory(args)
    form = validation.as_choice("--form", args.form, MEANINGS)
    if form == "canonical" and is_model_folder(args.items):
        rule = (
            "a file of interactions, because --form canonical needs the users, which the folder "
            "does not contain"
        )
        validation.as_instance("--users", args.users, str, rule)
    # The canonical form preserves the predictions of the model. The biases are part of the
    # predictions, so they are read as additional columns.
    model = read_factors(args.items, args.users, args, keep_biases=form == "canonical")
    users = validation.as_instance(
        "--users", model.users, np.ndarray, "given, because an export needs user embeddings"
    )
    if form == "canonical" and args.align_to is not None and args.unit_rows:
        raise ValueError(
            "--unit-rows must be left out if both --form canonical and --align-to are given: "
            "--unit-rows discards the norms of the items, which are needed to align a later export"
        )
    older = None if args.align_to is None else _read_export(args.align_to, form)
    arrays = _arrays(form, model.items, users)
    if args.unit_rows:
        from fastcos.similarity.row_transforms import unit_rows

        arrays["items"] = unit_rows(arrays["items"].astype(np.float64))
    aligned = None
    if older is not None:
        ids = model.ids if model.has_ids else None
        aligned = _align(args.align_to, arrays, ids, older)
    arrays = {name: _as_float32(f"the exported {name}", rows) for name, rows in arrays.items()}
    if model.has_ids:
        arrays["ids"] = model.ids
    folder.mkdir(parents=True, exist_ok=True)
    descriptions = {}
    for name, array in arrays.items():
        file = f"{name}.npy"
        io.write_npy(folder / file, array)
        descriptions[name] = {"file": file, "shape": list(array.shape), "dtype": str(array.dtype)}
    document = {
        **provenance.provenance(options.arguments(args) | {"read": model.notes}),
        "meaning": MEANINGS[form],
        "arrays": descriptions,
    }
    if aligned is not None:
        document["alignment"] = provenance.json_ready(
            {
                "to": args.align_to,
                "n_shared": len(aligned.shared),
                "n_new": aligned.n_new,
                "n_removed": aligned.n_removed,
                "residual": aligned.residual,
                "self_match_rate": aligned.self_match_rate,
                "self_match_rate_before": aligned.self_match_rate_before,
            }
        )
        say(aligned.verdict)
    io.write_json(folder / "export.json", document)
    say(f"wrote {', '.join(f'{name}.npy' for name in arrays)} and export.json to {folder}")
    if args.json:
        print_json(document)
    else:
        print_next(_next_commands(folder, form, unit_rows=args.unit_rows))
    return 0


def _next_commands(folder: Path, form: str, *, unit_rows: bool) -> list[tuple[list[str], str]]:
    """Return commands that use the exported files, each with the reason to run it."""
    items, users = str(folder / "items.npy"), str(folder / "users.npy")
    if form == "canonical":
        audit = ["fastcos", "audit", items, "--users", users]
        reason = "reports the same numbers for every parametrisation of the model"
        return [(audit, reason)]
    index = f"import faiss, numpy; rows = numpy.load({items!r})"
    index += "" if unit_rows else "; faiss.normalize_L2(rows)"
    index += "; index = faiss.IndexFlatIP(rows.shape[1]); index.add(rows)"
    return [
        (["fastcos", "neighbors", str(folder)], "finds neighbours that no rescaling changes"),
        (["python", "-c", index], "builds a FAISS index that finds the same neighbours"),
    ]


def _arrays(
    form: str, items: validation.Rows, users: validation.Rows
) -> dict[str, npt.NDArray[Any]]:
    from fastcos.similarity.canonical import canonicalize, query_metric

    if form == "canonical":
        with warnings.catch_warnings(record=True) as rank_warnings:
            warnings.simplefilter("always")
            factors: dict[str, npt.NDArray[Any]] = canonicalize(users, items)._asdict()
        for warning in rank_warnings:
            say(str(warning.message))
        return factors
    metric = query_metric(users)
    validation.as_count("the rank of the users' covariance", metric.factor.shape[1])
    return {"items": metric.transform(items), "map": metric.factor}


def _read_export(folder: str, form: str) -> dict[str, npt.NDArray[Any]]:
    """Read the arrays of an earlier export.

    Raise ValueError unless the folder contains an export of the form ``form``.
    """
    path = Path(folder)
    try:
        document = json.loads((path / "export.json").read_text())
        is_same_form = document["meaning"] == MEANINGS[form]
    except (OSError, ValueError, KeyError, TypeError):
        rule = "be a folder that `fastcos index export` wrote"
        raise ValueError(f"--align-to must {rule}, got {folder!r}") from None
    if not is_same_form:
        raise ValueError(f"--align-to must be an export of the form {form}, got a different form")
    names = ("items", "users", "ids") if form == "canonical" else ("items", "ids")
    return {
        name: np.load(path / f"{name}.npy") for name in names if (path / f"{name}.npy").exists()
    }


def _align(
    folder: str,
    arrays: dict[str, npt.NDArray[Any]],
    ids: npt.NDArray[Any] | None,
    older: dict[str, npt.NDArray[Any]],
) -> "Alignment":
    """Rotate the arrays in ``arrays``, in place, to the coordinates of an earlier export."""
    from fastcos.auditing import align

    aligned = align(
        arrays["items"], older["items"], users=arrays.get("users"), old_users=older.get("users"),
        ids=ids, old_ids=older.get("ids"),
    )  # fmt: skip
    if not aligned.old_vectors_valid:
        rule = "be an export with --form canonical and without --unit-rows"
        raise ValueError(f"--align-to must {rule}, got unbalanced factors in {folder}")
    arrays["items"] = aligned.items
    if aligned.users is not None:
        arrays["users"] = aligned.users
    if "map" in arrays:
        arrays["map"] = arrays["map"] @ aligned.map
    return aligned


def _as_float32(name: str, values: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Return values as contiguous float32; raise ValueError if a number is too large."""
    largest = validation.largest_magnitude(values)
    if not largest <= float(np.finfo(np.float32).max):
        raise ValueError(f"{name} must fit in float32 (scale the input), got {largest:g}")
    return np.ascontiguousarray(values, np.float32)
