"""fastcos index export: item embeddings that no rescaling changes, ready for any index."""

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

SUMMARY = "embeddings that no rescaling changes, for any index"
DESCRIPTION = """\
Write item embeddings in a form that is the same for every parametrisation of the model, as float32
.npy files that FAISS, usearch or SimilarityIndex take unchanged.
  query_metric  items.npy, whose inner products compare predicted scores over
                the users (centred); map.npy: embeddings of new items times it
                are in the same form
  canonical     items.npy and users.npy, the balanced factors of the same
                predictions, and singular_values.npy
With both, ids.npy, where the file has ids, and export.json, which describes the files. Two
trainings of a model end in different coordinates: do not mix the rows of two exports, unless the
later one was written with --align-to the earlier one."""
EPILOG = f"""\
examples:
  fastcos index export films --out served
  fastcos index export items.npy --users users.npy --out served
  fastcos index export model.npz --form canonical --out canonical
  fastcos index export model.npz --unit-rows --out served
  fastcos index export model.npz --align-to yesterday --out today
input: a folder of fastcos fit, or
{options.VECTOR_FORMATS}"""
MEANINGS = {
    "query_metric": "cosine of two rows: correlation over users of the items' predicted scores",
    "canonical": "users @ items.T are the predictions; both sides have orthogonal columns of equal "
    "norms",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    add = parser.add_argument
    add("items", metavar="ITEMS", help="file of item embeddings, or a model")
    add("--users", metavar="FILE", help="user or query embeddings; interactions, for a folder")
    help_ = f"{' or '.join(MEANINGS)} (default query_metric)"
    add("--form", default="query_metric", metavar="NAME", help=help_)
    help_ = "items of length 1: an index of inner products then answers cosines"
    add("--unit-rows", action="store_true", help=help_)
    help_ = "an earlier export of the same form: write the rows in its coordinates"
    add("--align-to", metavar="FOLDER", help=help_)
    options.add_vectors(parser)
    options.add_output(parser, "export")


def run(given: argparse.Namespace) -> int:
    """Read, transform, write."""
    folder = options.out_directory(given)
    form = validation.as_choice("--form", given.form, MEANINGS)
    if form == "canonical" and is_model_folder(given.items):
        rule = "given for the form canonical of a folder: the users' interactions"
        validation.as_instance("--users", given.users, str, rule)
    # canonical factors are those of the predictions, to which biases belong
    model = read_factors(given.items, given.users, given, keep_biases=form == "canonical")
    users = validation.as_instance(
        "--users", model.users, np.ndarray, "given: both forms need users"
    )
    if form == "canonical" and given.align_to is not None and given.unit_rows:
        raise ValueError(
            "--unit-rows must be left out with --form canonical and --align-to: the norms of the "
            "items are part of the balanced form, which the next export is aligned to"
        )
    older = None if given.align_to is None else _read_export(given.align_to, form)
    arrays = _arrays(form, model.items, users)
    if given.unit_rows:
        from fastcos.similarity.row_transforms import unit_rows

        arrays["items"] = unit_rows(arrays["items"].astype(np.float64))
    aligned = None
    if older is not None:
        ids = model.ids if model.has_ids else None
        aligned = _align(given.align_to, arrays, ids, older)
    arrays = {name: _as_float32(f"{name} of the form", one) for name, one in arrays.items()}
    if model.has_ids:
        arrays["ids"] = model.ids
    folder.mkdir(parents=True, exist_ok=True)
    described = {}
    for name, array in arrays.items():
        file = f"{name}.npy"
        io.write_npy(folder / file, array)
        described[name] = {"file": file, "shape": list(array.shape), "dtype": str(array.dtype)}
    document = {
        **provenance.provenance(options.arguments(given) | {"read": model.notes}),
        "meaning": MEANINGS[form],
        "arrays": described,
    }
    if aligned is not None:
        document["alignment"] = provenance.json_ready(
            {
                "to": given.align_to,
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
    if given.json:
        print_json(document)
    else:
        print_next(_next_commands(folder, form, unit_rows=given.unit_rows))
    return 0


def _next_commands(folder: Path, form: str, *, unit_rows: bool) -> list[tuple[list[str], str]]:
    """Commands for what was written, each with what it gains."""
    items, users = str(folder / "items.npy"), str(folder / "users.npy")
    if form == "canonical":
        audit = ["fastcos", "audit", items, "--users", users]
        return [(audit, "the same report for every parametrisation of the model")]
    index = f"import faiss, numpy; rows = numpy.load({items!r})"
    index += "" if unit_rows else "; faiss.normalize_L2(rows)"
    index += "; index = faiss.IndexFlatIP(rows.shape[1]); index.add(rows)"
    return [
        (["fastcos", "neighbors", str(folder)], "exact neighbours, the same for every rescaling"),
        (["python", "-c", index], "the same neighbours from FAISS"),
    ]


def _arrays(
    form: str, items: validation.Rows, users: validation.Rows
) -> dict[str, npt.NDArray[Any]]:
    from fastcos.similarity.canonical import canonicalize, query_metric

    if form == "canonical":
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            factors: dict[str, npt.NDArray[Any]] = canonicalize(users, items)._asdict()
        for warning in caught:
            say(str(warning.message))
        return factors
    found = query_metric(users)
    rank = found.factor.shape[1]
    validation.as_count("the rank of the users' covariance", rank)
    return {"items": found.transform(items), "map": found.factor}


def _read_export(folder: str, form: str) -> dict[str, npt.NDArray[Any]]:
    """Read the arrays of an earlier export; refuse another folder, or another form."""
    path = Path(folder)
    try:
        document = json.loads((path / "export.json").read_text())
        is_same_form = document["meaning"] == MEANINGS[form]
    except (OSError, ValueError, KeyError, TypeError):
        rule = "be a folder that fastcos index export wrote"
        raise ValueError(f"--align-to must {rule}, got {folder!r}") from None
    if not is_same_form:
        raise ValueError(f"--align-to must be an export of the form {form}, got another form")
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
    """Write the arrays in the coordinates of the earlier export."""
    from fastcos.auditing import align

    aligned = align(
        arrays["items"], older["items"], users=arrays.get("users"), old_users=older.get("users"),
        ids=ids, old_ids=older.get("ids"),
    )  # fmt: skip
    if not aligned.old_vectors_valid:
        rule = "hold balanced factors, as --form canonical writes them without --unit-rows"
        raise ValueError(f"--align-to must {rule}, got others in {folder}")
    arrays["items"] = aligned.items
    if aligned.users is not None:
        arrays["users"] = aligned.users
    if "map" in arrays:
        arrays["map"] = arrays["map"] @ aligned.map
    return aligned


def _as_float32(name: str, values: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Return values as contiguous float32; refuse numbers beyond its range."""
    largest = validation.largest_magnitude(values)
    if not largest <= float(np.finfo(np.float32).max):
        raise ValueError(f"{name} must fit in float32 (scale the input), got {largest:g}")
    return np.ascontiguousarray(values, np.float32)
