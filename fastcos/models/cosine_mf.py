"""``CosineMF``, a matrix factorisation that normalises users and items in its loss."""

from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.utils.validation import check_is_fitted, check_non_negative

from fastcos import validation
from fastcos.linalg.csr import as_interactions
from fastcos.linalg.products import matmul
from fastcos.models.base import FactorModel
from fastcos.models.cosine_training import train
from fastcos.parallel import Progress
from fastcos.similarity.scoring_embeddings import ScoringEmbeddings

Floats = npt.NDArray[np.float32]

SIMILARITIES = ("cosine", "layer_norm", "dot")
LOSSES = ("info_nce", "negative_sampling")
# Largest number of components. In practice, embeddings have far fewer components than this limit.
# Without the limit, a mistyped number of components would raise MemoryError.
_MAX_COMPONENTS = 2**16
# The allowed ranges of the real-valued parameters. Outside these ranges, training finds no useful
# model, or its numbers overflow float32.
_RANGES = {
    "temperature": (0.01, 100),
    "negative_exponent": (0, 2),
    "propensity_exponent": (0, 2),
    "norm_penalty": (0, 1e6),
    "validation_fraction": (0, 0.5),
}


class CosineMF(FactorModel):
    """Matrix factorisation whose users and items are normalised during training.

    The user embeddings are the rows p_u of P = XA, and the item embeddings are the rows b_i of B,
    as in ``LinearMF``. In the model, the probability that user u chooses item i for an interaction
    is proportional to exp(cos(p_u, b_i) / temperature + bias_i).

    Training separates the items of a user from items that are drawn at random. The model predicts
    each interaction of a user from the user's other interactions. By default, the loss depends on
    the embeddings only through their cosines. A rotation of the latent space does not change the
    loss, but a rescaling of its dimensions does, so training determines the cosines of the items.
    The bias of an item models its popularity; without biases, popularity would influence the
    directions of the item embeddings.

    To train the model of word2vec, use ``similarity="dot", loss="negative_sampling",
    item_bias=False``, and compute cosines of the items after the training.

    Parameters
    ----------
    n_components : int, default 50
        Number k of latent dimensions.
    similarity : {"cosine", "layer_norm", "dot"}, default "cosine"
        The function that compares a user with an item. "layer_norm" is the cosine after layer
        normalisation over the k dimensions (arXiv:1607.06450). The layer normalisation subtracts
        the mean of every row; gain and offset are not used. "dot" is the inner product of rows that
        are not normalised; use "dot" to measure the effect of the normalisation.
    loss : {"info_nce", "negative_sampling"}, default "info_nce"
        The loss of an interaction. "info_nce" applies a softmax to the scores of the item and of
        the negative samples; the loss is the negative logarithm of the item's probability
        (arXiv:1807.03748). "negative_sampling" is the sum of the binary logistic losses of the item
        and of the negative samples (arXiv:1310.4546).
    temperature : float, default 0.25
        The number by which the cosines are divided in the model. At a lower temperature, the model
        fits the data and their noise more closely. The temperature affects the item cosines of a
        ``CosineMF`` about as strongly as D affects the item cosines of a ``LinearMF``. The
        temperature with the lowest held-out loss is often lower than the temperature that best
        recovers the clusters of items.
    item_bias : bool, default True
        Whether the model contains a bias per item, which represents the popularity of the item.
        Unless ``negative_exponent`` is 0, popular items are drawn more often as negative samples;
        this offsets a part of the effect of their popularity. Without biases, as in word2vec, the
        remaining effect of popularity influences the directions and the norms of the embeddings.
    n_negatives : int, default 1024
        Number of items that are drawn at random for each batch of users, as negative samples. All
        users of a batch share the negative samples. Items with which a user has interacted do not
        count as negative samples for this user.
    negative_exponent : float, default 0.75
        The probability that an item is drawn as a negative sample is proportional to
        c^negative_exponent, where c is the item's number of users (arXiv:1310.4546). If
        ``negative_exponent`` is 0, all items that have users are equally probable.
    propensity_exponent : float, default 0.0
        The weight of an interaction in the loss is its value divided by a propensity. The
        propensity is c^propensity_exponent, where c is the item's number of users
        (arXiv:1602.05352). If ``propensity_exponent`` is 0, the weight of an interaction is its
        value.
    norm_penalty : float, default 0.0
        Weight of the penalty Σ (|row| - 1)^2 in the loss. The penalty is a sum over the rows of P
        and B (arXiv:2504.16318).
    learning_rate : float, default 0.3
        Length of the first training step of a row of A or B. The optimiser, Adagrad, makes later
        steps shorter.
    batch_size : int, default 64
        Number of users per training step.
    max_iter : int, default 20
        Maximum number of passes over the users.
    validation_fraction : float, default 0.05
        Share of each user's interactions that is held out for early stopping; 0 to train without
        early stopping.
    n_iter_no_change : int, default 3
        Training stops if the held-out loss has not decreased for this number of successive passes.
        The fitted model is the model after the pass with the smallest held-out loss.
    random_state : int or numpy.random.Generator, default 0
        Seed for the initial parameters, the held-out interactions, the order of the users and the
        negative samples. Results with the same seed are bit-for-bit identical.

    Attributes
    ----------
    components_ : ndarray (k, p), float32
        The transpose B' of the item embeddings. The columns of items without interactions are zero.
        All other columns have norm 1, unless the similarity is "dot".
    encoder_ : ndarray (p, k), float32
        The matrix A, which maps the rows of X to users P = XA.
    item_bias_ : ndarray (p,), float32
        The bias of every item, corrected for the probability with which the item is drawn as a
        negative sample. The bias of an item without interactions is the smallest bias of any item.
    n_iter_ : int
        Number of passes after which the held-out loss was smallest; ``max_iter`` if no interactions
        were held out. The fitted model is the model after this number of passes.
    loss_curve_ : ndarray, float64
        Mean loss of an interaction in each pass, including ``norm_penalty``. The loss of an
        interaction is computed before the training step that uses the interaction.
    validation_curve_ : ndarray, float64
        Mean loss of a held-out interaction after each pass; an empty array if no interactions are
        held out.

    n_features_in_, feature_names_in_
        As in scikit-learn.

    See Also
    --------
    LinearMF : a matrix factorisation in closed form, whose cosines depend on a rescaling.

    Notes
    -----
    A pass takes O((nnz + n n_negatives) k) time and O((n + p) k + batch_size n_negatives) memory. A
    training step first computes the gradients of the users in a batch, and then updates the items.
    Each row of the gradients and of the items is written by only one thread, so results are
    bit-for-bit identical for any number of threads. Between different types of CPU, the last bits
    of the results may differ, because the sums are vectorised in different ways.

    X must be non-negative. A user embedding depends only on the direction of the row of X, but an
    interaction with a larger value has a larger weight in the loss. The embeddings of users and
    items without interactions are zero rows.

    If the loss normalises a row, the gradient is orthogonal to the row, and becomes smaller as the
    norm of the row grows (arXiv:2406.16468). The optimiser is Adagrad with one accumulator per row.
    The steps of a row therefore stay the same if all gradients of the row are multiplied by one
    number.

    Sources: arXiv:2403.05440, section 3, for training with the cosine; Kabbur et al. 2013 (FISM),
    for predicting each interaction from the others.

    Examples
    --------
    >>> from fastcos.models.cosine_mf import CosineMF
    >>> from fastcos.models import simulate_interactions
    >>> from fastcos.metrics import pair_auc
    >>> X, cluster, *_ = simulate_interactions(500, 60, n_clusters=3, random_state=1)
    >>> model = CosineMF(10).fit(X)
    >>> model.item_embeddings().shape, model.transform(X).shape
    ((60, 10), (500, 10))
    >>> bool(pair_auc(model.item_embeddings(), cluster).value > 0.9)
    True
    """

    _saved_as = "CosineMF"
    _fitted_arrays: ClassVar[dict[str, str]] = {
        "components": "kp", "encoder": "pk", "item_bias": "p?", "loss_curve": "t?",
        "validation_curve": "v?",
    }  # fmt: skip

    def __init__(
        self,
        n_components: int = 50,
        *,
        similarity: str = "cosine",
        loss: str = "info_nce",
        temperature: float = 0.25,
        item_bias: bool = True,
        n_negatives: int = 1024,
        negative_exponent: float = 0.75,
        propensity_exponent: float = 0.0,
        norm_penalty: float = 0.0,
        learning_rate: float = 0.3,
        batch_size: int = 64,
        max_iter: int = 20,
        validation_fraction: float = 0.05,
        n_iter_no_change: int = 3,
        random_state: Any = 0,
    ) -> None:
        self.n_components = n_components
        self.similarity = similarity
        self.loss = loss
        self.temperature = temperature
        self.item_bias = item_bias
        self.n_negatives = n_negatives
        self.negative_exponent = negative_exponent
        self.propensity_exponent = propensity_exponent
        self.norm_penalty = norm_penalty
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, *, progress: Progress | None = None) -> "CosineMF":
        """Train the model on the interactions X.

        Parameters
        ----------
        X : sparse matrix or array_like (n, p)
            Non-negative interactions of n users with p items; 0 where there was no interaction.
        y : None, not used
        progress : callable, optional
            Function that is called as progress(number of finished passes, max_iter) after each
            pass.
        """
        validation.check_progress(progress)
        X = self._as_matrix(X, reset=True)
        validation.check_squarable("X", X.data)
        validation.as_count("interactions in X", X.nnz)
        settings, random = self._settings(), self.random_state
        is_generator = isinstance(random, np.random.Generator)
        seed = int(random.integers(2**63)) if is_generator else self._seed()
        result = train(X, settings, seed, progress)
        A, B, bias = result.parameters
        if settings.similarity == "layer_norm":
            A -= A.mean(axis=1, keepdims=True)
            B = _unit(B - B.mean(axis=1, keepdims=True))
        self.encoder_ = A
        self.components_ = np.ascontiguousarray(B.T)
        has_users = ~np.isneginf(result.log_counts)
        item_bias = bias + settings.negative_exponent * np.maximum(result.log_counts, 0)
        lowest_bias = item_bias[has_users].min()
        self.item_bias_ = np.where(has_users, item_bias, lowest_bias).astype(np.float32)
        self.n_iter_ = result.best_epoch
        self.loss_curve_ = np.array(result.losses)
        self.validation_curve_ = np.array(result.validation_losses)
        return self

    def user_embeddings(self, X: Any) -> Floats:
        """Return the user embeddings (m, k) of the rows of X.

        Parameters
        ----------
        X : sparse matrix or array_like (m, p)
            One row per user; the users may differ from those in fit.

        Returns
        -------
        ndarray (m, k), float32
            The rows of XA. Each row is divided by its norm or, if the similarity is "dot", by the
            norm of the corresponding row of X.
        """
        check_is_fitted(self)
        return self._embed(self._as_matrix(X, reset=False))

    def _embed(self, X: sp.csr_array) -> Floats:
        X = X.astype(np.float64)
        P = matmul(X, self.encoder_.astype(np.float64))
        if self.similarity != "dot":
            return _unit(P)
        norms = np.sqrt(X.power(2).sum(axis=1))
        return (P / np.where(norms > 0, norms, 1)[:, None]).astype(np.float32)

    def item_embeddings(self) -> Floats:
        """Return the item embeddings B (p, k); rows have norm 1 unless the similarity is "dot".

        The rows of items without interactions are zero.
        """
        check_is_fitted(self)
        return np.ascontiguousarray(self.components_.T)

    def _scoring(self, X: sp.csr_array) -> ScoringEmbeddings:
        users = self._embed(X) / np.float32(self.temperature)
        return ScoringEmbeddings(
            np.column_stack([users, np.ones(len(users), np.float32)]),
            np.column_stack([self.item_embeddings(), self.item_bias_]),
        )

    def _saved_fields(self) -> dict[str, Any]:
        parameters = vars(self._settings()) | {"random_state": self._seed()}
        return {"parameters": parameters, "n_iter": self.n_iter_}

    def _restore(self, fields: dict[str, Any]) -> None:
        self.n_iter_ = fields["n_iter"]

    def _settings(self) -> SimpleNamespace:
        """Return the validated constructor parameters of the model."""
        checked: dict[str, Any] = {
            "similarity": validation.as_choice("similarity", self.similarity, SIMILARITIES),
            "loss": validation.as_choice("loss", self.loss, LOSSES),
            "item_bias": validation.as_flag("item_bias", self.item_bias),
        }
        # With one component, layer normalisation would make every row zero.
        min_components = 2 if checked["similarity"] == "layer_norm" else 1
        k = validation.as_count("n_components", self.n_components, min_components, _MAX_COMPONENTS)
        for name in ("n_negatives", "batch_size", "max_iter", "n_iter_no_change"):
            checked[name] = validation.as_count(name, getattr(self, name))
        for name, (low, high) in _RANGES.items():
            checked[name] = validation.as_real(name, getattr(self, name), low=low, high=high)
        rate = validation.as_real("learning_rate", self.learning_rate, above=0, high=10)
        return SimpleNamespace(n_components=k, learning_rate=rate, **checked)

    def _seed(self) -> int:
        return validation.as_count("random_state", self.random_state, low=0)

    def _as_matrix(self, X: Any, *, reset: bool) -> sp.csr_array:
        X = super()._as_matrix(X, reset=reset)
        if not sp.issparse(X):
            X = as_interactions("X", X)
        check_non_negative(X, "CosineMF")
        return X

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags


def _unit(rows: Any) -> Floats:
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.where(norms > 0, norms, 1)).astype(np.float32)
