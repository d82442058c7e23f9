"""The folder that fastcos fit writes: the model, the item ids, and moments of the users."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from fastcos import io
from fastcos.cli.options import VECTOR_COLUMNS, as_rescaling, refuse, say_columns
from fastcos.cli.terminal import progress_bar, say
from fastcos.io.columns import positions_in
from fastcos.io.factors import load_factors
from fastcos.linalg import column_stats
from fastcos.storage import FastcosFormatError

if TYPE_CHECKING:
    from fastcos.comparison.candidates import Embeddings
    from fastcos.models.linear_mf import LinearMF

_MODEL, _ITEMS, _USERS = "model", "items.npz", "users.npz"
_MOMENTS_NOTE = (
    "users replaced by rows of their mean and covariance, which the folder holds (--users with "
    "their interactions gives the users themselves)"
)


class ModelFolder(NamedTuple):
    """The model, the ids of its items, and their popularity if the folder has it.

    typical (2 k, p): rows whose embeddings have the mean and the second moment of those of X's.
    """

    model: "LinearMF"
    ids: npt.NDArray[Any]
    typical: npt.NDArray[np.float64]
    popularity: npt.NDArray[np.float64] | None


def is_model_folder(path: str | Path) -> bool:
    """Whether fastcos fit wrote the folder."""
    return (Path(path) / _MODEL).is_dir()


def write_model_folder(folder: Path, model: "LinearMF", X: Any, ids: npt.NDArray[Any]) -> None:
    """Write the model, the item ids, and the column means and counts of X."""
    folder.mkdir(parents=True, exist_ok=True)
    model.save(folder / _MODEL)
    io.write_npz(folder / _ITEMS, {"ids": ids})
    moments = {"n": np.array([X.shape[0]]), "column_means": column_stats.means(X)}
    if sp.issparse(X):
        moments["popularity"] = np.bincount(X.indices, minlength=X.shape[1]).astype(np.float64)
    io.write_npz(folder / _USERS, moments)


def read_model_folder(path: str | Path) -> ModelFolder:
    """Read the folder that write_model_folder wrote."""
    from fastcos.models.linear_mf import LinearMF

    folder = Path(path)
    model = LinearMF.load(folder / _MODEL)
    p = model.components_.shape[1]
    ids = io.read_ids(folder / _ITEMS, p)
    with np.load(folder / _USERS) as moments:
        n, means = int(moments["n"][0]), moments["column_means"]
        popularity = moments.get("popularity")
    if means.shape != (p,):
        rule = f"hold the means of {p} columns"
        raise FastcosFormatError(f"{folder / _USERS} must {rule}, got {means.shape}")
    return ModelFolder(model, ids, _typical_rows(model, means, n), popularity)


def model_embeddings(path: str | Path, rescaling: str | None) -> tuple["Embeddings", Any]:
    """Return what measures of a model are fitted to, under D, and the ids of the items."""
    from fastcos.comparison.candidates import Embeddings

    model, ids, typical, popularity = read_model_folder(path)
    D = None if rescaling is None else as_rescaling(rescaling)
    free = D if model.objective == "dropout" else None
    return Embeddings(model.item_embeddings(D), popularity, model, typical, free), ids


def read_factors(
    path: str | Path,
    users: str | Path | None,
    given: argparse.Namespace | None = None,
    *,
    keep_biases: bool = False,
) -> io.Factors:
    """Both sides of a model: of a folder of fastcos fit under D = I, or from io.read_factors.

    The users of a folder are read from interactions with its items. ``given`` holds the arguments
    of ``options.add_vectors``. What was recognised and converted is said. keep_biases: both sides
    have the columns of a model's biases, so that their inner products are its scores.
    """
    columns = {name: getattr(given, name, None) for name in VECTOR_COLUMNS}
    if not is_model_folder(path):
        factors = load_factors(path, users, **columns)
        say_columns(path, factors)
        if keep_biases and factors.has_biases:
            has_ids, scoring = factors.has_ids, factors.scoring_embeddings()
            note = "kept the biases: inner products of users and items are the model's scores"
            factors = io.Factors(scoring.items, scoring.users, factors.ids, (note,))
            factors.has_ids = has_ids
    else:
        refuse(given, "for a model", *columns)
        model, ids, X, _ = read_model_folder(path)
        note = _MOMENTS_NOTE
        if users is not None:
            with progress_bar("reading bytes") as progress:
                data = io.read_interactions(users, progress=progress)
            X, known = aligned(ids, users, data)
            note = f"{X.shape[0]:,} users by their interactions with {known:,} of the model's items"
        factors = io.Factors(model.item_embeddings(), model.user_embeddings(X), ids, (note,))
        factors.has_ids = True
    for note in factors.notes:
        say(note)
    return factors


def read_items(
    path: str | Path, given: argparse.Namespace, *, keep_biases: bool = False
) -> io.Vectors:
    """The items of read_factors, and their ids."""
    if is_model_folder(path):
        refuse(given, "for a model", *VECTOR_COLUMNS)
        model, ids, *_ = read_model_folder(path)
        vectors, has_ids = io.Vectors(model.item_embeddings(), ids), True
    else:
        factors = read_factors(path, None, given, keep_biases=keep_biases)
        vectors, has_ids = io.Vectors(factors.items, factors.ids), factors.has_ids
        vectors.columns = factors.columns
    vectors.has_ids = has_ids
    return vectors


def aligned(
    ids: npt.NDArray[Any], users: str | Path, data: io.Interactions
) -> tuple[sp.csr_array, int]:
    """Interactions of the file users with the items of a model as columns; how many it has."""
    here = positions_in(ids, data.item_ids)
    there = np.flatnonzero(here >= 0)
    if not len(there):
        rule = f"hold interactions with items of the model (such as {ids[0]})"
        raise ValueError(f"--users must {rule}, got none in {users}")
    known = sp.csc_array(data.X)[:, there].tocoo()
    X = sp.csr_array(
        (known.data, (known.row, here[there][known.col])), shape=(known.shape[0], len(ids))
    )
    return X, len(there)


def _typical_rows(model: "LinearMF", means: Any, n: int) -> npt.NDArray[np.float64]:
    """Rows whose embeddings have the mean and second moment of X's: pairs around their mean."""
    V = model.components_.astype(np.float64)
    center = 0.0 if model.mean_ is None else model.mean_
    mean = V @ (means - center)
    covariance = np.diag(model.singular_values_.astype(np.float64) ** 2) / n - np.outer(mean, mean)
    values, vectors = np.linalg.eigh(covariance)
    deviations = np.sqrt(len(V) * np.maximum(values, 0))[:, None] * vectors.T
    rows = np.vstack([mean + deviations, mean - deviations])
    return rows @ V + center
