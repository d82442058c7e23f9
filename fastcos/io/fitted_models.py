"""Take item and user embeddings out of the fitted models of other libraries."""

from typing import Any

import numpy as np

from fastcos.io.columns import parse_ids
from fastcos.io.factors import SIDES, TRANSPOSED, Biases, Factors, for_similarity, warn_of_biases
from fastcos.validation import Rows, as_rows, check_length, check_none, check_same_width
from fastcos.validation.ids import as_ids

_KNOWN = "a fitted model of implicit, LightFM, Surprise, Cornac, scikit-learn, gensim or PyTorch"
_OUTPUTS = "the users are the output vectors (syn1neg) that the model learned by negative sampling"
# An error message lists at most this many arrays of a model.
_MAX_ARRAYS = 6


def from_model(model: Any, users: Any = None, *, ids: Any = None) -> Factors:
    """Take item and user embeddings out of a fitted model of another library.

    The model is recognised by its attributes, so that no library is imported:

    - implicit: ``item_factors`` and ``user_factors``, without the bias columns and the columns of
      ones that BPR and logistic factorisation append;
    - LightFM: ``item_embeddings`` and ``user_embeddings``, without the biases. Each row is the
      embedding of one feature. A feature is an item or a user, unless the model was fitted with
      other features;
    - Surprise (SVD, NMF): ``qi`` and ``pu``; Cornac: ``i_factors`` and ``u_factors``, both without
      the biases;
    - scikit-learn (TruncatedSVD, NMF, PCA): the transpose of ``components_``;
    - gensim: ``vectors`` with ``index_to_key``, from KeyedVectors or from a model's ``wv``; the
      output vectors ``syn1neg`` of negative sampling become the users;
    - PyTorch: the ``weight`` of an nn.Embedding or nn.EmbeddingBag.

    Parameters
    ----------
    model : object
        A fitted model.
    users : object, optional
        The users, if the model does not contain them: an nn.Embedding or KeyedVectors, or rows
        (n, d) such as ``svd.transform(X)``.
    ids : array_like (p,), int64 or str, optional
        Ids of the items, in the order of the items in the model. Pass ids only if the model
        contains none. For example, the library implicit numbers the items from 0, in the order of
        the columns of its matrix.

    Returns
    -------
    Factors
        ``items`` (p, d) and ``users`` (n, d), as float32 or float64. If there are no users,
        ``users`` is None. The result also contains the ids of the items (0 .. p-1 if there are no
        ids), and notes about conversions. Arrays are not copied if they have the right type and
        order. Use ``items`` for similarities between items. For recommendations, use
        ``scoring_embeddings()`` of the result, which returns users and items whose inner products
        are the scores of the model, including biases.

    Warns
    -----
    UserWarning
        The model has biases, and the returned items and users do not contain them.

    Raises
    ------
    TypeError
        The model is not recognised, or it is not fitted.
    ValueError
        A value is not finite; items and users have different widths; or users are passed although
        the model contains users.

    See Also
    --------
    fastcos.io.read_factors : reads items and users from files.

    Examples
    --------
    >>> import fastcos
    >>> from sklearn.decomposition import TruncatedSVD
    >>> X = fastcos.simulate_interactions(200, 30, random_state=0).X
    >>> svd = TruncatedSVD(4, random_state=0).fit(X)
    >>> factors = fastcos.from_model(svd, svd.transform(X))
    >>> factors.items.shape, factors.users.shape
    ((30, 4), (200, 4))
    """
    items, user_rows, model_ids, notes, biases = _sides(model)
    if user_rows is not None:
        check_none(
            "users", users, f"for {type(model).__name__}, because the model contains the users"
        )
    elif users is not None:
        is_model = hasattr(users, "embedding_dim") or hasattr(users, "index_to_key")
        user_rows = _sides(users, "users")[0] if is_model else as_rows("users", users)
    if user_rows is not None:
        check_same_width("users", user_rows, "items", items)
    item_ids = np.arange(len(items)) if ids is None else as_ids("ids", ids, len(items))
    if model_ids is not None:
        check_none("ids", ids, f"for {type(model).__name__}, because the model contains the ids")
        check_length("ids of the model", model_ids, len(items), "its items")
        item_ids = model_ids
    if hasattr(model, "item_factors") or biases[0] is not None:
        factors = for_similarity(items, user_rows, item_ids, notes, *biases)
    else:
        factors = Factors(items, user_rows, item_ids, notes)
    factors.has_ids = model_ids is not None or ids is not None
    warn_of_biases("from_model", factors)
    return factors


def _sides(
    model: Any, name: str = "model"
) -> tuple[Rows, Rows | None, Any, tuple[str, ...], Biases]:
    """Return items, users, ids, notes and biases; None stands for a part that the model lacks."""
    no_biases: Biases = (None, None)
    kind = type(model).__name__
    # LinearMF and CosineMF must be refused here, because they have an attribute components_, too.
    if hasattr(model, "scoring_embeddings"):
        raise TypeError(
            f"{name} must be {_KNOWN}, got {kind}. To obtain the vectors of a {kind}, call its "
            "methods item_embeddings() and user_embeddings(X)"
        )
    if hasattr(model, "yj"):  # The model is SVD++ of Surprise.
        raise TypeError(
            f"{name} must have one vector per user, got {kind}. In this model, the vector of a "
            "user is the sum of two terms: the user's row of pu, and a scaled sum of the rows of "
            "yj for the items that the user has rated. Compute this vector for each user, and pass "
            "users and items as arrays"
        )
    for item_name, user_name, *bias_names in SIDES:
        if not (hasattr(model, item_name) and hasattr(model, user_name)):
            continue
        factors = {key: getattr(model, key) for key in (item_name, user_name)}
        if any(side is None for side in factors.values()):
            raise TypeError(f"{name} must be fitted, got {kind} without factors")
        items, user_rows = (_rows(f"{name}.{key}", side) for key, side in factors.items())
        item_biases, user_biases = (getattr(model, key, None) for key in bias_names)
        return items, user_rows, None, (), (item_biases, user_biases)
    if hasattr(model, "wv") and hasattr(model, "dv"):
        raise TypeError(
            f"{name} must have one kind of vectors, got {kind}. Pass either the word vectors "
            f"({name}.wv) or the document vectors ({name}.dv)"
        )
    words = getattr(model, "wv", model)
    if hasattr(words, "vectors") and hasattr(words, "index_to_key"):
        outputs = getattr(model, "syn1neg", None)
        users = None if outputs is None else as_rows(f"{name}.syn1neg", outputs)
        note = () if users is None else (_OUTPUTS,)
        ids = parse_ids([str(key) for key in words.index_to_key])
        return as_rows(f"{name}.vectors", words.vectors), users, ids, note, no_biases
    if hasattr(model, "num_embeddings") and hasattr(model, "weight"):
        return as_rows(f"{name}.weight", model.weight), None, None, (), no_biases
    components = getattr(model, "components_", np.zeros(0))
    if np.ndim(components) == 2:
        items = as_rows(f"{name}.components_", components)
        names = getattr(model, "feature_names_in_", None)
        features = None if names is None else parse_ids([str(feature) for feature in names])
        mean = getattr(model, "mean_", None)  # PCA adds the mean of each column to its predictions.
        return as_rows(name, items.T), None, features, (TRANSPOSED,), (mean, None)
    raise TypeError(f"{name} must be {_KNOWN}, got {kind}{_hint(model)}")


def _rows(name: str, factors: Any) -> Rows:
    """Convert factors to rows; matrices of implicit on a GPU are converted by ``to_numpy``."""
    return as_rows(name, factors.to_numpy() if hasattr(factors, "to_numpy") else factors)


def _hint(model: Any) -> str:
    """Return a hint for an error message.

    The hint names the arrays or embeddings of the model, or advises the user to fit the model.
    """
    arrays = {
        key: value.shape
        for key, value in getattr(model, "__dict__", {}).items()
        if isinstance(value, np.ndarray) and value.ndim == 2
    }
    if arrays:
        names = ", ".join(f"{key} {shape}" for key, shape in list(arrays.items())[:_MAX_ARRAYS])
        return f" (pass the item and user arrays of the model instead; the model contains {names})"
    named_modules = getattr(model, "named_modules", None)
    if callable(named_modules):
        modules = [name for name, module in named_modules() if hasattr(module, "num_embeddings")]
        return f" (pass one of its embeddings: {', '.join(modules)})" if modules else ""
    return " (fit it first)" if hasattr(model, "fit") else ""
