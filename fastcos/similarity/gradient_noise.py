"""Gradient noise: how stochastic gradient descent sets the scales of the latent dimensions.

Let P be the users and Q the items of a model, trained by gradient descent on a loss f(PQ'). One
step changes P'P - Q'Q, the difference of the Gram matrices of P and Q. With a step of size h, this
difference changes by exactly h² times the difference of the Gram matrices of the two gradients
(Theorem 9 in docs/explanation/proofs.md). The factors P and Q move slowly, because the small
changes of P'P - Q'Q and the effects of the weight decay add up over many steps. While the factors
move, the predictions PQ' stay the same. The factors come to rest when the changes from the users
and the changes from the items cancel out. Two d x d matrices determine the factors to which
training converges: the weighted Gram matrix of the users, and the weighted Gram matrix of the
items. The number of epochs until convergence also depends on the unweighted Gram matrices of the
users and of the items.
"""

from typing import Any, NamedTuple

import numpy as np

from fastcos import parallel, validation
from fastcos.reports import as_table
from fastcos.validation import Floats

# Let c be the condition number of the map from the converged factors to the current factors. The
# distance to convergence is log(c). Factors count as converged if log(c) / e is below this value,
# where e is Euler's number.
_AT_REST = 1e-3
# The largest step and the largest weight decay that are allowed. The product of a larger step or
# weight decay with squared slopes could overflow.
_LARGEST = 1e60


@as_table
class GradientNoise(NamedTuple):
    """The factors to which stochastic gradient descent converges, and the speed of convergence.

    Attributes
    ----------
    item_weights : ndarray (p,), float64
    user_weights : ndarray (n,), float64
        The weights of the items and of the users. The weight of an item is step * (sum of the
        squared slopes of its observations) + 2 * decay * (number of its observations). The weight
        of a user is computed by the same formula from the observations of the user. Let P'P - Q'Q
        be the Gram matrix of the users minus the Gram matrix of the items. For every item with the
        row x and the weight w, one epoch adds the matrix ``step*w*xx'`` to P'P - Q'Q. For every
        user with the row x and the weight w, one epoch subtracts the matrix ``step*w*xx'``.
    balancing_map : ndarray (d, d), float64
        A symmetric, positive definite matrix. Training converges to ``items @ balancing_map``, up
        to a rotation. A rotation changes no cosine.
    condition : float
        Condition number of ``balancing_map``; 1 if training has already converged.
    epochs_to_forget : float
        Number of epochs after which the logarithm of ``condition`` has fallen to 1/e of its present
        value. If the factors have already converged, training undoes a small rescaling of the
        factors, at a speed that depends on the rescaling. ``epochs_to_forget`` is then the number
        of epochs after which the slowest of these rescalings has shrunk to 1/e of its initial size.
        Factors that have not converged may need more than 100 times as many epochs as converged
        factors. In this case, ``epochs_to_forget`` is infinity.
    """

    item_weights: Floats
    user_weights: Floats
    balancing_map: Floats
    condition: float
    epochs_to_forget: float


def gradient_noise(
    items: Any,
    users: Any,
    slopes: Any,
    *,
    step: float,
    weight_decay: float | tuple[float, float] = 0.0,
) -> GradientNoise:
    """Predict the scales that stochastic gradient descent (SGD) gives to the latent dimensions.

    A loss that depends only on dot products does not determine the scale of the latent dimensions.
    In the long run, the noise of the gradients determines the scale of the dimensions. The function
    predicts this scale, and how fast the factors approach it (``epochs_to_forget``).

    Let x be the row of an item or user, and w the weight of that item or user. At convergence, the
    sum of w xx' over all items equals the sum of w xx' over all users. If the items Q become Q G,
    and the users P become P G'^-1, the predictions stay the same for every invertible matrix G. The
    two sums are equal for exactly one metric GG'. Let A be the sum of w xx' over the items, and B
    the sum of w xx' over the users. The metric GG' is the geometric mean of the matrices A^-1 and
    B. If the mean squared slope is the same for every item and every user, the converged factors
    have the form that an audit calls ``balanced_by_counts``.

    The prediction applies to plain SGD near a minimum, with batches that are a small part of the
    data. Adam and other adaptive methods scale each gradient, so they need not converge to the
    predicted factors.

    Source: Ziyin, Wang, Li, Wu 2024, arXiv:2402.07193, for the fixed point; Ziyin, Li, Ueda 2023,
    arXiv:2308.06671, for the balance of noise.

    Parameters
    ----------
    items : array_like (p, d)
    users : array_like (n, d)
        Factors of the model. The prediction of the model for a user and an item is the dot product
        of their rows, apart from biases.
    slopes : sparse matrix or array_like (n, p)
        For each observation, the derivative of the loss with respect to the prediction of the
        model. If the loss is half of the squared error, the derivative is the residual, which is
        the prediction minus the observed value. Every stored entry of a sparse matrix is one
        observation, including stored zeros. Every entry of an array is one observation.
    step : float
        Learning rate per observation. If the loss is the mean over a batch, pass the learning rate
        divided by the batch size.
    weight_decay : float or (float, float)
        The decay λ: every observation adds λ times the row of its item to the gradient of the item,
        and λ times the row of its user to the gradient of the user. A pair of numbers specifies the
        decay of items and the decay of users.

    Returns
    -------
    GradientNoise
        ``item_weights``, ``user_weights``, ``balancing_map``, ``condition`` and
        ``epochs_to_forget``.

    Raises
    ------
    ValueError
        Shapes do not match, an array contains NaN or infinity, or ``step`` or ``weight_decay`` is
        out of range. ValueError is also raised if the d columns of the items or of the users are
        linearly dependent. If there is no weight decay, every dimension must have gradient noise.
        ValueError is therefore also raised if a dimension has no gradient noise, because too many
        slopes are 0.

    Notes
    -----
    Computing the balancing map takes O((n + p) d² + observations) time. To compute the number of
    epochs, the function integrates a differential equation of d x d matrices. Near convergence, a
    rescaling of the factors fades exponentially. Let M be the sum of the weighted Gram matrices of
    users and items, and N the sum of their unweighted Gram matrices. If the rescaling fades at the
    rate r per epoch, then r / step lies between the smallest and the largest generalised eigenvalue
    of (M, N) (Theorem 9c).

    In the 36 training runs of ``examples/scale_of_dimensions.py``, the measured number of epochs
    differed from the predicted number by at most a factor of 1.4. When training had run for four
    times the predicted number of epochs, the condition number of the balancing map was at most 1.07
    in all runs. The function assumes that the predictions of the model no longer change. If the
    weight decay is as strong as the curvature of the loss, training undoes a rescaling more slowly
    than the function predicts.

    Examples
    --------
    >>> import numpy as np
    >>> from fastcos.auditing import gradient_noise
    >>> rng = np.random.default_rng(0)
    >>> users, items = rng.standard_normal((200, 3)), rng.standard_normal((100, 3))
    >>> residuals = rng.standard_normal((200, 100))   # of a model that fits all entries
    >>> noise = gradient_noise(items * [1, 2, 4], users / [1, 2, 4], residuals, step=0.01)
    >>> round(noise.condition, 1), round(noise.epochs_to_forget)
    (4.2, 97)
    >>> converged_items = items * [1, 2, 4] @ noise.balancing_map
    >>> converged_users = users / [1, 2, 4] @ np.linalg.inv(noise.balancing_map)
    >>> noise = gradient_noise(converged_items, converged_users, residuals, step=0.01)
    >>> round(noise.condition, 6)
    1.0
    """
    Q, P = (
        validation.as_rows(name, side, dtype=np.float64).astype(np.float64, copy=False)
        for name, side in (("items", items), ("users", users))
    )
    validation.check_same_width("users", P, "items", Q)
    validation.check_squarable("items", Q)
    validation.check_squarable("users", P)
    step = validation.as_real("step", step, above=0, high=_LARGEST)
    decays = _as_decays(weight_decay)
    squares, counts = _squares_and_counts(slopes, (len(P), len(Q)))
    item_weights, user_weights = (
        step * squares[side] + 2 * decay * counts[side] for side, decay in enumerate(decays)
    )
    grams = [_weighted_gram(rows, None) for rows in (Q, P)]
    d = Q.shape[1]
    for name, gram in zip(("items", "users"), grams, strict=True):
        rank = np.linalg.matrix_rank(gram, hermitian=True)
        if rank < d:
            raise ValueError(f"{name} must have {d} linearly independent columns, got {rank}")
    # Multiplying all weights by the same number changes only the number of epochs. The weights may
    # be very large or very small, so they are divided by the largest weight before the computation.
    unit = float(max(item_weights.max(), user_weights.max())) or 1.0
    noise_of_items = _weighted_gram(Q, item_weights / unit)
    noise_of_users = _weighted_gram(P, user_weights / unit)
    rank = min(
        np.linalg.matrix_rank(matrix, hermitian=True) for matrix in (noise_of_items, noise_of_users)
    )
    if rank < d:
        raise ValueError(
            "slopes must be non-zero for enough items and enough users. The items with non-zero "
            f"slopes must span all {d} dimensions, and the users with non-zero slopes must span "
            f"all {d} dimensions, too, got {rank} of {d} dimensions. In a dimension that these "
            "items or users do not span, neither the noise nor weight_decay changes the scale"
        )
    metric = geometric_mean(noise_of_items, noise_of_users)
    values, vectors = np.linalg.eigh(metric)
    G: Floats = (vectors * np.sqrt(values)) @ vectors.T
    inverse: Floats = (vectors / np.sqrt(values)) @ vectors.T
    condition = float(np.sqrt(values[-1] / values[0]))
    # The Gram matrices of the converged items and of the converged users. Only one weighted Gram
    # matrix is computed, because it is the same for the converged items and the converged users.
    items_at_rest, users_at_rest = G @ grams[0] @ G, inverse @ grams[1] @ inverse
    weighted = G @ noise_of_items @ G
    epochs = _epochs_to_forget(inverse, items_at_rest, users_at_rest, weighted) / step / unit
    return GradientNoise(item_weights, user_weights, G, condition, epochs)


def _epochs_to_forget(start: Floats, items: Floats, users: Floats, weighted: Floats) -> float:
    """Return the number of epochs in which the distance to convergence falls by a factor of e.

    The number of epochs is computed for a step of 1. The distance to convergence is the logarithm
    of the condition number of the linear map from the converged factors to the current factors.
    ``start`` (d, d) maps the converged factors to the factors from which training starts. ``items``
    and ``users`` (d, d) are the Gram matrices of the converged items and users. The converged items
    and the converged users have the same weighted Gram matrix, ``weighted`` (d, d).
    """
    import scipy.integrate
    import scipy.linalg

    d = len(start)
    slowest = float(scipy.linalg.eigh(2 * weighted, items + users, eigvals_only=True)[0])
    goal = np.log(np.linalg.cond(start)) / np.e
    if goal < _AT_REST:
        return 1 / slowest

    def velocity(_: float, flat: Floats) -> Floats:
        G = flat.reshape(d, d)
        back = np.linalg.inv(G)
        total = G.T @ items @ G + back @ users @ back.T
        excess = G.T @ weighted @ G - back @ weighted @ back.T
        S = scipy.linalg.solve_continuous_lyapunov(total, -excess)
        return np.ravel(G @ S)

    def reaches(_: float, flat: Floats) -> float:
        return float(np.log(np.linalg.cond(flat.reshape(d, d))) - goal)

    reaches.terminal = True  # type: ignore[attr-defined]
    path = scipy.integrate.solve_ivp(
        velocity, (0, 100 / slowest), np.ravel(start), method="LSODA", events=reaches,
        rtol=1e-4, atol=1e-6 * float(np.abs(start).max()),
    )  # fmt: skip
    return float(path.t_events[0][0]) if len(path.t_events[0]) else np.inf


def geometric_mean(A: Floats, B: Floats) -> Floats:
    """Return the geometric mean of A⁻¹ and B, which is the positive definite M with M A M = B.

    A and B (d, d) are positive definite.
    """
    values, vectors = np.linalg.eigh(A)
    root, inverse = ((vectors * values**power) @ vectors.T for power in (0.5, -0.5))
    inner_values, inner_vectors = np.linalg.eigh(root @ B @ root)
    half = inverse @ inner_vectors
    M: Floats = (half * np.sqrt(np.maximum(inner_values, 0.0))) @ half.T
    return (M + M.T) / 2


def _as_decays(weight_decay: Any) -> tuple[float, float]:
    """Return the decay of the items and the decay of the users."""
    if np.ndim(weight_decay) == 0:
        weight_decay = (weight_decay, weight_decay)
    if len(weight_decay) != 2:
        rule = "be one number, or two for items and users"
        raise ValueError(f"weight_decay must {rule}, got {len(weight_decay)}")
    item_decay, user_decay = (
        validation.as_real("weight_decay", decay, low=0, high=_LARGEST) for decay in weight_decay
    )
    return item_decay, user_decay


def _squares_and_counts(
    slopes: Any, shape: tuple[int, int]
) -> tuple[tuple[Floats, Floats], tuple[Floats, Floats]]:
    """Return the sums of squared slopes and the numbers of observations, per item and per user.

    Each of the two results is a pair: the array of the items, and the array of the users.
    """
    import scipy.sparse as sp

    if sp.issparse(slopes):
        triplets = sp.coo_array(slopes)
        validation.check_shape("slopes", triplets.shape, shape)
        values = validation.as_vector("slopes", triplets.data)
        validation.check_squarable("slopes", values)
        users, items = triplets.coords
        sides = ((items, shape[1]), (users, shape[0]))
        ones = np.ones(len(values))
        item_squares, user_squares, item_counts, user_counts = (
            np.bincount(rows, weights, size).astype(np.float64)
            for weights in (np.square(values), ones)
            for rows, size in sides
        )
        return (item_squares, user_squares), (item_counts, user_counts)
    dense = validation.as_rows("slopes", slopes, dtype=np.float64)
    validation.check_shape("slopes", dense.shape, shape)
    validation.check_squarable("slopes", dense)
    squares = np.square(dense)
    counts = np.full(shape[1], float(shape[0])), np.full(shape[0], float(shape[1]))
    return (squares.sum(axis=0), squares.sum(axis=1)), counts


def _weighted_gram(rows: Floats, weights: Floats | None) -> Floats:
    """Return the sum of w xx' over all rows x with their weights w; by default, w is 1."""
    weighted = rows if weights is None else rows * weights[:, None]
    with parallel.blas_lock():
        return weighted.T @ rows
