"""Read and write the folder that ``fastcos fit`` saves: a model, item ids and user statistics."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from fastcos import io
from fastcos.cli.options import VECTOR_COLUMNS, as_rescaling, refuse, say_columns
from fastcos.cli.terminal import progress_bar, say
from fastcos.io.columns import check_row_numbers, positions_in
from fastcos.io.factors import load_factors
from fastcos.linalg import column_stats
from fastcos.storage import FastcosFormatError

if TYPE_CHECKING:
    from fastcos.comparison.candidates import Embeddings
    from fastcos.models.linear_mf import LinearMF

_MODEL, _ITEMS, _USERS = "model", "items.npz", "users.npz"
_MOMENTS_NOTE = (
    "the folder does not contain the user vectors. The command therefore uses artificial users "
    "with the same mean and covariance. To use the real users, pass the interactions with --users"
)


class ModelFolder(NamedTuple):
    """The content of a model folder.

    - `model`: the fitted model.
    - `ids`: the ids of the items of the model.
    - `typical`: the rows (2 k, p) of 2 k artificial users, where k is the rank of the model and p
      is its number of items. The embeddings of these users have the same mean and the same second
      moments as the user embeddings of the training data.
    - `popularity`: the number of users of each item, or None if the folder does not contain these
      numbers.
    """

    model: "LinearMF"
    ids: npt.NDArray[Any]
    typical: npt.NDArray[np.float64]
    popularity: npt.NDArray[np.float64] | None


def is_model_folder(path: str | Path) -> bool:
    """Return whether the path is a folder that `fastcos fit` wrote."""
    return (Path(path) / _MODEL).is_dir()


def write_model_folder(folder: Path, model: "LinearMF", X: Any, ids: npt.NDArray[Any]) -> None:
    """Write the model, the item ids, the number of users, and statistics of the columns of X."""
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
        rule = f"contain the means of {p} columns"
        raise FastcosFormatError(f"{folder / _USERS} must {rule}, got {means.shape}")
    return ModelFolder(model, ids, _typical_rows(model, means, n), popularity)


def model_embeddings(path: str | Path, rescaling: str | None) -> tuple["Embeddings", Any]:
    """Read a model folder; return its embeddings under a rescaling, and the ids of its items."""
    from fastcos.comparison.candidates import Embeddings

    model, ids, typical, popularity = read_model_folder(path)
    D = None if rescaling is None else as_rescaling(rescaling)
    eq1_rescaling = D if model.objective == "dropout" else None
    return Embeddings(model.item_embeddings(D), popularity, model, typical, eq1_rescaling), ids


def read_factors(
    path: str | Path,
    users: str | Path | None,
    args: argparse.Namespace | None = None,
    *,
    keep_biases: bool = False,
) -> io.Factors:
    """Read the items and users of a model from a model folder or from a file of embeddings.

    If ``path`` is a folder, the embeddings are computed without a rescaling. The user embeddings
    are then computed from the interactions in the file ``users``; if ``users`` is None, the
    function returns the embeddings of artificial users instead. ``args`` contains the options of
    ``options.add_vectors``. The function prints messages about recognised columns and conversions.
    If keep_biases is true, the embeddings of items and users contain columns for the biases of the
    model, so that inner products of users and items are the scores of the model.
    """
    columns = {name: getattr(args, name, None) for name in VECTOR_COLUMNS}
    if not is_model_folder(path):
        factors = load_factors(path, users, **columns)
        say_columns(path, factors)
        if keep_biases and factors.has_biases:
            has_ids, scoring = factors.has_ids, factors.scoring_embeddings()
            note = (
                "the embeddings include the biases of the model, so their inner products are the "
                "scores of the model"
            )
            factors = io.Factors(scoring.items, scoring.users, factors.ids, (note,))
            factors.has_ids = has_ids
    else:
        refuse(args, "for a model", *columns)
        model, ids, X, _ = read_model_folder(path)
        note = _MOMENTS_NOTE
        if users is not None:
            with progress_bar("reading bytes") as progress:
                data = io.read_interactions(users, progress=progress)
            X, n_shared = align_columns(ids, users, data)
            note = (
                f"computed the embeddings of {X.shape[0]:,} users from their interactions with "
                f"{n_shared:,} items of the model"
            )
        factors = io.Factors(model.item_embeddings(), model.user_embeddings(X), ids, (note,))
        factors.has_ids = True
    for note in factors.notes:
        say(note)
    return factors


def read_items(
    path: str | Path, args: argparse.Namespace, *, keep_biases: bool = False
) -> io.Vectors:
    """Read the items and their ids from a model folder or from a file of embeddings."""
    if is_model_folder(path):
        refuse(args, "for a model", *VECTOR_COLUMNS)
        model, ids, *_ = read_model_folder(path)
        vectors, has_ids = io.Vectors(model.item_embeddings(), ids), True
    else:
        factors = read_factors(path, None, args, keep_biases=keep_biases)
        vectors, has_ids = io.Vectors(factors.items, factors.ids), factors.has_ids
        vectors.columns = factors.columns
    vectors.has_ids = has_ids
    return vectors


def align_columns(
    ids: npt.NDArray[Any], users: str | Path, data: io.Interactions
) -> tuple[sp.csr_array, int]:
    """Put the columns of interactions into the order of a model's items.

    Interactions with items that the model lacks are left out. Return the matrix, and the number of
    items of the model that occur in the interactions. ``users`` is the path of the interactions;
    error messages mention this path.
    """
    model_columns = positions_in(ids, data.item_ids)
    shared = np.flatnonzero(model_columns >= 0)
    if not len(shared):
        rule = f"hold interactions with items of the model (such as {ids[0]})"
        raise ValueError(f"--users must {rule}, got no such interaction in {users}")
    cells = sp.csc_array(data.X)[:, shared].tocoo()
    X = sp.csr_array(
        (cells.data, (cells.row, model_columns[shared][cells.col])),
        shape=(cells.shape[0], len(ids)),
    )
    return X, len(shared)


def align_to_users(
    factors: io.Factors,
    user_ids: npt.NDArray[Any],
    path: str | Path,
    data: io.Interactions,
    *,
    has_user_ids: bool,
) -> sp.csr_array:
    """Return interactions as a matrix: one row per user and one column per item of a model.

    - `user_ids` (n,): ids of the users of the model.
    - `has_user_ids`: whether the caller has ids of the users; if not, `user_ids` contains row
      numbers.

    An interaction is left out if the model lacks its user or its item. A message reports how many
    interactions are left out.
    """
    if not factors.has_ids:
        check_row_numbers(Path(path), factors.ids, data.item_ids, "--ids FILE")
    if not has_user_ids:
        check_row_numbers(Path(path), user_ids, data.user_ids, "--user-ids FILE")
    X = align_columns(factors.ids, path, data)[0].tocoo()
    row_of = positions_in(user_ids, data.user_ids)
    has_user = row_of[X.row] >= 0
    if n_left_out := data.X.nnz - int(has_user.sum()):
        reason = "because their user or their item is not in the model"
        say(f"left out {n_left_out:,} interactions of {path}, {reason}")
    cells = X.data[has_user], (row_of[X.row[has_user]], X.col[has_user])
    return sp.csr_array(cells, shape=(len(user_ids), len(factors.ids)))


def _typical_rows(model: "LinearMF", means: Any, n: int) -> npt.NDArray[np.float64]:
    """Return rows (2 k, p) of artificial users, which replace the users of the training data.

    The model has rank k and p items. The embeddings of the artificial users have the same mean and
    the same second moments as the user embeddings of the training data.
    """
    V = model.components_.astype(np.float64)
    center = 0.0 if model.mean_ is None else model.mean_
    mean = V @ (means - center)
    covariance = np.diag(model.singular_values_.astype(np.float64) ** 2) / n - np.outer(mean, mean)
    values, vectors = np.linalg.eigh(covariance)
    deviations = np.sqrt(len(V) * np.maximum(values, 0))[:, None] * vectors.T
    rows = np.vstack([mean + deviations, mean - deviations])
    return rows @ V + center
