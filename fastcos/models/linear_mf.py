"""``LinearMF``: the linear models of the paper, which are computed from a truncated SVD."""

import copy
import math
import warnings
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted, validate_data

from fastcos import validation
from fastcos.linalg import column_stats
from fastcos.linalg.operators import Matrix, as_operator
from fastcos.linalg.products import matmul
from fastcos.linalg.shards import InteractionShards
from fastcos.linalg.svd import SVD, direct_svd, randomized_svd
from fastcos.models.base import FactorModel
from fastcos.models.preprocessing import Biases, biases
from fastcos.parallel import Progress
from fastcos.similarity.rescalings import Rescaling, as_diagonal

OBJECTIVES = ("dropout", "weight_decay")
SOLVERS = ("auto", "direct", "randomized")
# _CENTERS maps each value of ``center`` to two booleans. The first boolean tells whether the row
# means are subtracted, and the second tells whether the column means are subtracted.
_CENTERS = {False: (False, False), True: (False, True), "rows": (True, False), "both": (True, True)}
# The solver "auto" is "direct" if the smaller dimension of X is at most _DIRECT_SIDE. For 1,000
# columns, the solver "direct" is about as fast as "randomized" and more accurate; for 2,000
# columns, "direct" takes several times as long as "randomized".
_DIRECT_SIDE = 1024
# Eigenvalues σ² count as equal if they differ by at most _TIE_TOLERANCE times the largest one.
_TIE_TOLERANCE = 1e-13
# Default of n_components: the rank in the simulation of the paper.
N_COMPONENTS = 50
# Let σ be the (_KNEE_SHARE * k)-th largest singular value. The default λ suppresses the directions
# whose singular values are smaller than σ. In the simulation of the paper, the default λ suppresses
# about the same directions as the λ of the paper.
_KNEE_SHARE = 0.2


class AmbiguousSolutionWarning(UserWarning):
    """Warns that the closed form has more than one solution, because σ_k = σ_{k+1}."""


class LinearMF(FactorModel):
    """Matrix factorisation X ≈ X A B', solved in closed form as in arXiv:2403.05440.

    The objectives of Eq. 1 and Eq. 2 are minimised over matrices A and B with k columns. The
    objective ``"dropout"`` minimises ‖X - XAB'‖² + λ‖AB'‖² (Eq. 1), and the objective
    ``"weight_decay"`` minimises ‖X - XAB'‖² + λ(‖XA‖² + ‖B‖²) (Eq. 2). The solutions of Eq. 1 and
    Eq. 2 follow from the truncated SVD X ≈ U_k Σ V_k'. The product AB' multiplies each singular
    direction by its shrinkage s, a number from 0 to 1, so AB' = V_k diag(s) V_k':

    - Eq. 1: s = σ²/(σ²+λ). Eq. 1 determines the product AB', but not A and B. The symmetric
      solution is A = B = V_k s^½ (Eq. 5). For every invertible diagonal matrix D, the pair (A D, B
      D^-1) has the same loss; the argument ``rescaling`` of the methods chooses D. The penalty of
      Eq. 1 weights all rows of AB' equally. Exact dropout of the inputs would weight the rows
      unequally: the weight of an item's row would depend on the norm of the item's column in X.
    - Eq. 2: s = max(0, 1 - λ/σ), A = V_k (s/σ)^½, B = V_k (sσ)^½ (Eq. 6). The solution of Eq. 2 is
      unique up to a rotation. If a singular value σ is at most λ, the corresponding columns of A
      and B are zero; ``effective_rank_`` is the number of non-zero columns.

    Parameters
    ----------
    n_components : int, optional
        Number k of latent dimensions, at most min(n, p). Default: the smallest of 50, n and p.
    objective : {"dropout", "weight_decay"}, default "dropout"
        The loss: Eq. 1 ("dropout") or Eq. 2 ("weight_decay").
    regularization : float, optional
        The regularisation strength λ, at least 0. λ has the scale of σ² in Eq. 1 and the scale of σ
        in Eq. 2, so λ = 10,000 in Eq. 1 corresponds to λ = 100 in Eq. 2. If you train on a fraction
        f of the users, multiply λ by f for Eq. 1, and multiply λ by the square root of f for Eq. 2.
        Default: the result of :meth:`default_regularization`.
    center : bool or {"rows", "both"}, default False
        The means that are subtracted from X. The value True subtracts the column means, and "rows"
        subtracts the row means. "both" subtracts row and column means, so that all rows and all
        columns sum to 0. X remains sparse, because the means are stored as separate vectors and are
        not subtracted from the entries of X.
    solver : {"auto", "direct", "randomized"}, default "auto"
        The method that computes the SVD. "direct" computes the eigendecomposition of the smaller
        Gram matrix, X'X or X X', to the precision of float64. If both dimensions of X exceed 2,048,
        "direct" uses the Lanczos method for the eigendecomposition. "randomized" stops as soon as
        the relative residual of every singular triplet is at most ``tol``. "auto" chooses "direct"
        if the smaller dimension of X is at most 1,024, and "randomized" otherwise.
    tol : float, default 1e-3
        The solver "randomized" accepts a singular triplet if its relative residual is at most
        `tol`.
    random_state : int or numpy.random.Generator, default 0
        Seed for the solver "randomized". Results with the same seed are bit-for-bit identical.

    Attributes
    ----------
    components_ : ndarray (k, p), float32 or float64
        The matrix V_k', in the type of X, or in float32 if X contains small integers. In each row,
        the entry with the largest magnitude is positive.
    singular_values_ : ndarray (k,), float64
        Singular values in descending order. Singular values below 1e-7 times the largest one cannot
        be distinguished from rounding errors, and are set to 0.
    regularization_ : float
        The regularisation strength λ that was used.
    shrinkage_ : ndarray (k,), float64
        Shrinkage s of each singular direction, from 0 to 1.
    effective_rank_ : int
        Number of singular directions whose shrinkage s is above 0, and therefore also the number of
        non-zero columns of A and B.
    residuals_ : ndarray (k,), float64
        Relative residual of each singular triplet, as ``svd_residuals`` defines it.
    mean_ : ndarray (p,), float64, or None
        The vector that is subtracted from every row of X: the column means or, if ``center`` is
        "both", the column means minus the overall mean.

    n_features_in_, feature_names_in_
        As in scikit-learn.

    Warns
    -----
    AmbiguousSolutionWarning
        Issued by the solver "direct" if σ_k = σ_{k+1} and the shrinkage of direction k is above 0.
        In this case, several k-dimensional subspaces attain the smallest loss.

    See Also
    --------
    rescalings : the rescalings D that have a name, and the meaning of the cosines under each D.
    CosineMF : a model that is trained for the cosine.

    Notes
    -----
    If the smaller dimension m of X is at most 2,048, the solver "direct" takes O(nnz m + m³) time
    and O(m²) memory. If both dimensions of X exceed 2,048, "direct" makes several passes over X per
    component. Without centring, the embeddings of users and items that have no interactions are
    zero. The largest magnitude in X must be from 1e-60 to 1e60 (float32: 1e-12 to 1e12), because
    squares are summed.

    If λ = 0 and the rank of X is below p, other matrices AB' fit X equally well; the solution is
    the matrix with the smallest norm.

    Source: arXiv:2403.05440, sections 2.2 and 2.3.

    Examples
    --------
    >>> import numpy as np
    >>> from fastcos import LinearMF
    >>> X = np.diag([4.0, 3.0, 2.0, 1.0])
    >>> model = LinearMF(n_components=2, regularization=9.0).fit(X)
    >>> model.singular_values_, model.shrinkage_
    (array([4., 3.]), array([0.64, 0.5 ]))
    >>> model.item_embeddings("orthonormal")
    array([[1., 0.],
           [0., 1.],
           [0., 0.],
           [0., 0.]])
    >>> model.recommend(X, 1, exclude_seen=False).indices.ravel().tolist()
    [0, 1, 0, 0]
    """

    _saved_as = "LinearMF"
    _fitted_arrays: ClassVar[dict[str, str]] = {
        "components": "kp", "singular_values": "k", "shrinkage": "k", "residuals": "k",
        "mean": "p?",
    }  # fmt: skip

    def __init__(
        self,
        n_components: int | None = None,
        *,
        objective: str = "dropout",
        regularization: float | None = None,
        center: bool | str = False,
        solver: str = "auto",
        tol: float = 1e-3,
        random_state: Any = 0,
    ) -> None:
        self.n_components = n_components
        self.objective = objective
        self.regularization = regularization
        self.center = center
        self.solver = solver
        self.tol = tol
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, *, progress: Progress | None = None) -> "LinearMF":
        """Compute the closed-form solution of the objective for the interactions X.

        Parameters
        ----------
        X : sparse matrix, array_like or InteractionShards (n, p)
            Interactions of n users with p items.
        y : None, not used
        progress : callable, optional
            Function that is called as progress(done, total); :func:`fastcos.randomized_svd`
            describes the calls. The solver "direct" calls ``progress`` only once, at the end.
        """
        validation.check_progress(progress)
        X = self._as_matrix(X, reset=True)
        validation.check_squarable("X", column_stats.values(X))
        settings = self._settings(min(X.shape))
        means = biases(X, *_CENTERS[settings.center])
        svd = _svd(X, means, settings, progress)
        k, strength = settings.n_components, settings.regularization
        if strength is None:
            strength = _knee(svd.s[:k], settings.objective)
        shrinkage = _shrinkage(svd.s, settings.objective, strength)
        if len(svd.s) > k and shrinkage[k - 1] > 0:
            last, following = svd.s[k - 1], svd.s[k]
            if last**2 - following**2 <= _TIE_TOLERANCE * svd.s[0] ** 2:
                warnings.warn(
                    "the solution is not unique, because the last component and the next component "
                    f"have equal singular values ({last:g} and {following:g}). Choose another "
                    "n_components",
                    AmbiguousSolutionWarning,
                    stacklevel=2,
                )
        self.components_ = svd.Vt[:k].astype(X.dtype)
        # The embedding of an item without interactions may contain rounding errors of 1e-17.
        # Normalising this embedding would turn the rounding errors into an arbitrary direction, so
        # the embedding is set to 0.
        if means.row_center is None:
            self.components_[:, column_stats.are_empty(X, means.center is not None)] = 0
        self.singular_values_ = svd.s[:k]
        self.residuals_ = svd.residuals[:k]
        self.mean_ = means.center
        return self._shrink(shrinkage[:k], strength)

    def reregularized(self, objective: str, regularization: float) -> "LinearMF":
        """Return a model with another objective or another λ, computed from the SVD of this model.

        The parameters ``objective`` and ``regularization`` have the same meaning as in the
        constructor. Only the shrinkage is computed again, which takes O(k) time. The returned model
        shares the array ``components_`` with this model.

        Examples
        --------
        >>> import numpy as np
        >>> model = LinearMF(2, regularization=1.0).fit(np.diag([4.0, 2.0, 1.0]))
        >>> model.reregularized("weight_decay", 1.0).shrinkage_.round(12)
        array([0.75, 0.5 ])
        """
        check_is_fitted(self)
        strength = validation.as_real("regularization", regularization, low=0)
        model = copy.copy(self).set_params(objective=objective, regularization=regularization)
        settings = model._settings(len(self.singular_values_))
        shrinkage = _shrinkage(self.singular_values_, settings.objective, strength)
        return model._shrink(shrinkage, strength)

    def default_regularization(self, objective: str) -> float:
        """Return the default λ of an objective, computed from singular value number k/5.

        In the simulation of the paper, λ is 10,000 for Eq. 1 and 100 for Eq. 2, so both objectives
        suppress directions whose singular value is below about 100. About 10 of the 50 singular
        values in this simulation exceed 100. In general, number the singular values from 1 in
        descending order. Let m be k/5, rounded up, and let σ be the singular value with the number
        m. The default λ is σ² for Eq. 1 and σ for Eq. 2, so both objectives begin to suppress
        directions at the singular value σ. For k up to 5, σ is the largest singular value. If σ is
        the largest singular value, λ = σ would make all columns of the solution of Eq. 2 zero, so
        the default λ for Eq. 2 is σ/2.

        Examples
        --------
        >>> import numpy as np
        >>> model = LinearMF(2).fit(np.diag([4.0, 2.0, 1.0]))
        >>> model.default_regularization("dropout"), model.default_regularization("weight_decay")
        (16.0, 2.0)
        """
        check_is_fitted(self)
        validation.as_choice("objective", objective, OBJECTIVES)
        return _knee(self.singular_values_, objective)

    def _shrink(self, shrinkage: npt.NDArray[np.float64], regularization: float) -> "LinearMF":
        self.regularization_, self.shrinkage_ = regularization, shrinkage
        self.effective_rank_ = int(np.count_nonzero(shrinkage))
        return self

    def item_embeddings(self, rescaling: Any = None) -> Matrix:
        """Return the item embeddings B D^-1 under a rescaling D.

        Parameters
        ----------
        rescaling : str, Rescaling or array_like (k,), optional
            The rescaling D: a name in :func:`rescalings`, a ``Rescaling`` with two exponents, or
            the positive diagonal of D. Default: D = I. A rescaling is only allowed if the objective
            is "dropout", because the solution of Eq. 2 is unique up to a rotation.

        Returns
        -------
        ndarray (p, k), in the type of ``components_``
            The item embeddings. If the shrinkage of a singular direction is 0, the column of this
            direction is zero under every D.
        """
        check_is_fitted(self)
        factors = np.sqrt(self.shrinkage_) / self._diagonal(rescaling)
        return self._scaled_components(factors)

    def user_embeddings(self, X: Any, rescaling: Any = None) -> Matrix:
        """Return the user embeddings X A D under a rescaling D.

        Parameters
        ----------
        X : sparse matrix or array_like (m, p)
            One row per user; the users may differ from those in fit.
        rescaling : str, Rescaling or array_like (k,), optional
            As in :meth:`item_embeddings`.

        Returns
        -------
        ndarray (m, k), float32 or float64
            The user embeddings. Their type is the type of X or the type of ``components_``,
            whichever is wider. If ``center`` is True or "both", the vector ``mean_`` is subtracted
            from every row of X before the multiplication. If ``center`` is "rows" or "both", the
            mean of each row of X is subtracted from the row.
        """
        check_is_fitted(self)
        return self._embed(self._as_matrix(X, reset=False), rescaling)

    def _embed(self, X: Any, rescaling: Any = None) -> Matrix:
        A = self._scaled_components(np.sqrt(self.shrinkage_) * self._diagonal(rescaling))
        rows, _ = _CENTERS[self._settings(len(self.singular_values_)).center]
        row_center = biases(X, rows, False).row_center
        return matmul(X, A, center=self.mean_, row_center=row_center)

    def _saved_fields(self) -> dict[str, Any]:
        settings = self._settings(len(self.singular_values_))
        seed = validation.as_count("random_state", settings.random_state, low=0)
        parameters = vars(settings) | {"random_state": seed}
        if self.n_components is None:
            parameters["n_components"] = None
        return {"parameters": parameters, "regularization": self.regularization_}

    def _restore(self, fields: dict[str, Any]) -> None:
        self._shrink(self.shrinkage_, fields["regularization"])

    def _settings(self, max_components: int) -> SimpleNamespace:
        """Return the validated constructor parameters of the model."""
        is_generator = isinstance(self.random_state, np.random.Generator)
        k, strength = self.n_components, self.regularization
        if k is None:
            k = min(N_COMPONENTS, max_components)
        if strength is not None:
            strength = validation.as_real("regularization", strength, low=0)
        return SimpleNamespace(
            n_components=validation.as_count("n_components", k, 1, max_components),
            objective=validation.as_choice("objective", self.objective, OBJECTIVES),
            regularization=strength,
            center=validation.as_choice("center", self.center, ("rows", "both"))
            if isinstance(self.center, str)
            else validation.as_flag("center", self.center),
            solver=validation.as_choice("solver", self.solver, SOLVERS),
            tol=validation.as_real("tol", self.tol, above=0),
            random_state=self.random_state
            if is_generator
            else validation.as_count("random_state", self.random_state, low=0),
        )

    def _as_matrix(self, X: Any, *, reset: bool) -> Any:
        if isinstance(X, InteractionShards):
            return validate_data(self, X, reset=reset, skip_check_array=True)
        return super()._as_matrix(X, reset=reset)

    def _diagonal(self, rescaling: Any) -> npt.NDArray[np.float64]:
        """Return the diagonal (k,) of the rescaling D of the symmetric solution V_k s^½."""
        if self.objective == "weight_decay":
            reason = "for objective 'weight_decay', whose solution is unique (Eq. 6)"
            validation.check_none("rescaling", rescaling, reason)
            rescaling = Rescaling(spectrum=-0.5)  # The rescaling "balanced" yields Eq. 6.
        return as_diagonal(rescaling, self.shrinkage_, self.singular_values_)

    def _scaled_components(self, factors: npt.NDArray[np.float64]) -> Matrix:
        return np.ascontiguousarray((self.components_.T * factors).astype(self.components_.dtype))


def _svd(X: Any, means: Biases, settings: SimpleNamespace, progress: Progress | None) -> SVD:
    """Return k singular triplets; the direct solver also computes and returns triplet k + 1.

    The caller needs triplet k + 1 to detect that σ_k = σ_{k+1}.
    """
    k, side = settings.n_components, min(X.shape)
    if settings.solver == "direct" or (settings.solver == "auto" and side <= _DIRECT_SIDE):
        return direct_svd(as_operator(X, **means._asdict()), min(k + 1, side), progress=progress)
    return randomized_svd(
        X, k, tol=settings.tol, random_state=settings.random_state, compute_u=False,
        progress=progress, **means._asdict(),
    )  # fmt: skip


def _knee(s: npt.NDArray[np.float64], objective: str) -> float:
    """Return the default regularisation strength λ for the singular values s (k,)."""
    knee = float(s[math.ceil(_KNEE_SHARE * len(s)) - 1])
    if objective == "dropout":
        return knee**2
    return knee if knee < s[0] else float(s[0]) / 2


def _shrinkage(
    s: npt.NDArray[np.float64], objective: str, regularization: float
) -> npt.NDArray[np.float64]:
    """Return the shrinkage σ²/(σ²+λ) for Eq. 1 or max(0, 1 - λ/σ) for Eq. 2, and 0 for σ = 0."""
    if objective == "dropout":
        numerator, denominator = s**2, s**2 + regularization
    else:
        numerator, denominator = np.maximum(s - regularization, 0), s
    return np.divide(numerator, denominator, out=np.zeros_like(s), where=s > 0)
